"""Arm against arm."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from seqdec import ope
from seqdec.ope.arms import differences

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
AT = np.arange(600)


@pytest.mark.parametrize(
    ("name", "floor"), [("constant", None), ("context", 0.1), ("opposite contexts", 0.02), ("wave", 0.1)]
)
def test_no_arm_is_better_at_any_time_where_none_is(
    name: str, floor: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import arms  # pyright: ignore[reportMissingImports]

    monkeypatch.setattr(arms, "ROWS", len(AT))
    world = next(one for one in arms.WORLDS if one.name == name)
    outside = 0
    for action, reward, chance, *_ in zip(*arms.streamed(world, floor, 100, 0), strict=True):
        _, low, high = differences(action, reward, np.stack([chance, 1 - chance], axis=1), 0, 1, 0.025, AT)
        outside += bool((low > 0).any() or (high < 0).any())
    assert outside <= 10  # of 100, more than 5 with a probability of 1%


def table(log: ope.Log, **options: Any) -> Any:
    return ope.compare_arms(log, **options).table


def draw(means: list[float], law: list[float] | None = None, rows: int = 4000, seed: int = 0) -> ope.Log:
    rng, p = np.random.default_rng(seed), np.array(law or [1 / len(means)] * len(means))
    action = rng.choice(len(p), size=rows, p=p)
    reward = rng.random(rows) < np.array(means)[action]
    names = tuple("abcdef"[: len(p)])
    log = ope.make_log(action=action, reward=reward, propensity=p[action], action_names=names)
    return log.replace(logging=np.tile(p, (rows, 1)))


def test_the_best_arm_is_named_and_others_are_compared_with_a_baseline() -> None:
    log = draw([0.5, 0.6, 0.52])
    found = ope.compare_arms(log)
    assert found.best == found.reference == "b" and found.verdict.startswith(
        "Arm 'b' is best: better than the next, 'c', by 0.1"
    )
    truth, seen = np.array([-0.1, 0, -0.08]), table(log)
    assert (seen["low"] <= truth).all() and (truth <= seen["high"]).all()
    assert seen["best"].sum() == pytest.approx(1) and seen["best"]["b"] > 0.99
    assert seen["loss"].to_numpy() == pytest.approx([0.1, 0, 0.08], abs=0.05)
    against = ope.compare_arms(log, baseline="a")
    assert against.verdict.startswith("Against 'a': 'b' is better by 0.1") and against.best is None
    other = table(log, baseline="a")
    assert other["high"]["b"] - other["low"]["b"] < seen["high"]["a"] - seen["low"]["a"]
    few = ope.compare_arms(log[:40])
    assert few.best is None and few.verdict.startswith("Not decided") and "is expected to cost" in few.verdict
    two = ope.compare_arms(draw([0.5, 0.6]), baseline="a")
    assert two.best == "b"


def test_ends_do_not_depend_on_units_order_or_how_the_law_is_known() -> None:
    log = draw([0.4, 0.6], [0.3, 0.7], rows=500)
    names = ["difference", "low", "high"]
    ends = table(log, baseline="a").loc["b", names].to_numpy()
    scaled = table(log.replace(reward=10 * log.reward - 3), baseline="a", reward_range=(-3, 7))
    assert scaled.loc["b", names].to_numpy() == pytest.approx(10 * ends)
    other = table(log.replace(action=1 - log.action, logging=np.tile([0.7, 0.3], (500, 1))), baseline="b")
    assert other.loc["a", names].to_numpy() == pytest.approx(ends)
    pd.testing.assert_frame_equal(table(log.replace(logging=None)), table(log))


def test_segments_are_compared_at_a_level_for_all_together() -> None:
    log, by = draw([0.5, 0.6]), np.repeat(["new", "old"], 2000)
    segments: Any = ope.compare_arms(log, by=by).segments
    assert list(segments.index.levels[0]) == ["new", "old"]
    pd.testing.assert_frame_equal(segments.loc["new"], table(log[:2000], level=1 - 0.05 / 3))


def test_segments_may_overlap_and_those_without_rows_count_for_the_level() -> None:
    log = draw([0.5, 0.6])
    parts = {"first": np.arange(4000) < 2000, "most": np.arange(4000) < 3000, "none": np.zeros(4000, bool)}
    segments: Any = ope.compare_arms(log, by=parts).segments
    assert list(segments.index.unique(0)) == ["first", "most"]
    pd.testing.assert_frame_equal(segments.loc["most"], table(log[:3000], level=1 - 0.05 / 4))
    with pytest.raises(ValueError, match=r"by\['x'\] must be a bool for each row, \(4000,\)"):
        ope.compare_arms(log, by={"x": [True]})


def test_decisions_that_may_not_play_an_arm_do_not_count_for_it() -> None:
    """As before an arm was added: without them the ends are those of the decisions with both."""
    log = draw([0.5, 0.6, 0.7], rows=3000)
    late, only = np.arange(3000) >= 1000, np.array([0.5, 0.5, 0.0])
    both = np.array([True, True, False])
    early = np.where(log.action < 2, log.action, 0)
    mixed = log.replace(
        action=np.where(late, log.action, early),
        mask=np.where(late[:, None], True, both),
        logging=np.where(late[:, None], log.logging, only),
        propensity=np.where(late, log.propensity, 0.5),
    )
    columns = ["difference", "low", "high"]
    found = table(mixed, baseline="a").loc["c", columns]
    assert found.tolist() == pytest.approx(table(log[late], baseline="a").loc["c", columns].tolist())


def test_a_small_share_does_not_widen_the_ends_for_good() -> None:
    """The first rows, before the shares are known, bound what one row can say."""
    rng = np.random.default_rng(0)
    rare = (rng.random(2000) < 0.1) * 1
    law = np.tile([0.9, 0.1], (2000, 1))
    _, low, high = differences(rare, rng.random(2000) * 0.1, law, 0, 1, 0.025, np.array([1999]))
    assert (high - low)[0] < 0.12


def test_an_arm_that_is_never_played_is_not_known() -> None:
    log = draw([0.5, 0.5], [1, 0], rows=50)
    found = ope.compare_arms(log)
    seen = table(log)
    assert found.best is None and tuple(seen.loc[found.reference, ["low", "high"]]) == (0, 0)
    assert seen["reward"].isna().sum() == 1 and np.isfinite(seen["best"]).all()
    assert seen["low"].min() == -1 and seen["high"].max() == 1


def test_what_cannot_be_compared_is_refused() -> None:
    log = draw([0.5, 0.6, 0.5], [0.2, 0.3, 0.5], rows=50)
    for wrong, settings, message in (
        (log.replace(estimated=True), {}, "exact propensities"),
        (log.replace(logging=None), {}, "probabilities of all actions"),
        (log.replace(reward=2 * log.reward), {}, "range of possible rewards"),
        (log, {"baseline": "z"}, "is not an arm of the log"),
        (log, {"by": ["x"]}, "by must name the group of each row"),
        (log[:0], {}, "needs rows"),
    ):
        with pytest.raises(ValueError, match=message):
            ope.compare_arms(wrong, **settings)  # pyright: ignore
    with pytest.raises(TypeError, match=r"must be a seqdec\.ope\.Log"):
        ope.compare_arms("log")  # pyright: ignore
