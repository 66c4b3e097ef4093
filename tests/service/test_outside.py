"""Decisions with a number far outside of what was learned."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import seqdec
from seqdec.core import Spaces
from seqdec.features import Days, Encoder, Numeric, Quantiles, Tags
from seqdec.service import contexts

ARMS = spaces.Discrete(2)
ENCODER = Encoder(
    {
        "age": Numeric(45, 5),
        "born": Days(730_000, 1000),
        "paid": Quantiles((0.0, 1.0, 20.0), (0.0, 1.0, 3.0)),
        "tags": Tags(("new",)),
    }
)
FAR = {"age": 730, "born": "2026-11-29", "paid": "2000", "tags": ["new", "other"]}
USUAL = {"age": 69.9, "born": "1999-09-01", "paid": 21.0, "tags": None}


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "_TOLD", set())


def taught(folder: Path | None, rows: np.ndarray, **settings: Any) -> seqdec.OnlineAgent:
    site = Spaces(spaces.Box(-1e6, 1e6, (rows.shape[1],)), ARMS)
    one = seqdec.OnlineAgent("linear", site, seed=0, folder=folder, **settings)
    for decision in one.decide_many(rows):
        one.learn(decision.token, 1.0)
    return one


def test_a_value_beyond_what_the_encoder_was_fitted_to_warns_once_and_is_counted() -> None:
    one = seqdec.OnlineAgent("linear", Spaces(ENCODER.space, ARMS), seed=0, encoder=ENCODER)
    one.decide(USUAL)
    with pytest.warns(UserWarning, match="which its encoder was fitted to: look at its unit") as told:
        one.decide(FAR)
    assert [str(warning.message).partition(", which")[0] for warning in told] == [
        "age = 730 lies outside of 20 to 70",
        "born = 2026-11-29 lies outside of 1985-12-25 to 2013-05-12",
        "paid = 2000 lies outside of 0 to 20",
    ]
    one.decide_many([FAR, USUAL, FAR])
    assert one.counts["outside"] == 3


def test_a_number_far_from_what_was_learned_warns_once_and_is_counted(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.uniform(18, 95, 500), rng.normal(size=500), np.ones(500)])
    near, far = np.array([120.0, -5, 7]), np.array([730.0, 0, 1])  # a number that never varied may have any value
    with taught(tmp_path, rows) as one:
        one.decide(near)
        with pytest.warns(
            UserWarning, match=r"^context_0 = 730 lies outside of 1\d\.\d+ to 10\d\.\d, between which lies all that was"
        ):
            one.decide(far)
        one.decide_many(np.stack([far, near]))
        with pytest.warns(UserWarning, match="context_1 = -40 lies"):
            one.decide_many(np.stack([far, near, [60, -40, 1]]))
        assert one.counts["outside"] == 4
        for _ in range(40):  # until it is learned
            one.learn(one.decide(far).token, 1.0)
        count = one.counts["outside"]
        one.decide(far)
        assert one.counts["outside"] == count < 44
    with taught(tmp_path, rows[:0]) as again:  # what was learned is in the state
        again.decide(far)
        assert "outside" not in again.counts
        again.decide(30 * far)
        assert again.counts["outside"] == 1


@pytest.mark.parametrize("make", ["random", lambda site: seqdec.agents.lrkf(site, standardize=False)])
def test_of_few_rewards_and_of_other_agents_nothing_is_said(make: Any) -> None:
    rows = np.random.default_rng(0).normal(size=(200, 2))
    one = seqdec.OnlineAgent(make, Spaces(spaces.Box(-1e6, 1e6, (2,)), ARMS), seed=0)
    few = taught(None, rows[:90])
    for decision in one.decide_many(rows):
        one.learn(decision.token, 1.0)
    for other in (one, few):
        other.decide(np.array([1e5, 0]))
        assert "outside" not in other.counts
