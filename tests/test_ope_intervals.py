"""Intervals of off-policy estimates: by hand, against theory, and how often they hold the value on hard logs."""

import functools
import math
import warnings
from typing import Any

import numpy as np
import pytest
from scipy import stats

from seqdec import ope
from seqdec.ope import diagnostics, intervals
from tests.test_ope import MEANS, TRUTH, draw_log


def one_action(x: np.ndarray) -> tuple[ope.Log, np.ndarray]:
    """A log whose IPS estimate is the mean of x."""
    return ope.make_log(action=np.zeros(len(x), int), reward=x, propensity=np.ones(len(x))), np.ones((len(x), 1))


def two_arms(reward: np.ndarray, rng: np.random.Generator) -> ope.Log:
    """Two arms that pay alike, played with probability 1/2 each."""
    action = rng.integers(2, size=len(reward))
    return ope.make_log(action=action, reward=reward, propensity=np.full(len(reward), 0.5), num_actions=2)


def snips(log: ope.Log, **options: Any) -> Any:
    target = np.tile([1.0, 0.0], (len(log), 1))
    return ope.evaluate(log, target, seed=0, estimators="snips", samples=200, **options).iloc[0]


@pytest.mark.parametrize(("hits", "rows"), [(0, 1000), (10, 10), (1, 1), (3, 40), (50, 100)])
def test_equal_weights_have_the_interval_of_clopper_and_pearson(hits: int, rows: int) -> None:
    log, target = one_action((np.arange(rows) < hits) * 1.0)
    row = ope.evaluate(log, target, seed=0, estimators="snips").iloc[0]
    expected = stats.binomtest(hits, rows).proportion_ci(0.95, method="exact")
    np.testing.assert_allclose([row.low, row.high], expected, atol=1e-9)
    own = intervals.interval(ope.Terms(log.reward, np.ones(rows)), reward_range=(0, 1))
    np.testing.assert_allclose(own[:2], expected, atol=1e-9)
    scaled = ope.evaluate(
        log.replace(reward=5 - 3 * log.reward), target, seed=0, estimators="snips", reward_range=(2, 5)
    )
    np.testing.assert_allclose(
        scaled.iloc[0][["low", "high"]].astype(float), 5 - 3 * np.array(expected)[::-1], atol=1e-9
    )


@pytest.mark.parametrize(("rate", "rows"), [(0.0005, 1000), (0.001, 1000), (0.01, 10), (0.005, 10_000)])
def test_rare_clicks_are_not_impossible(rate: float, rows: int) -> None:
    held = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        row = snips(two_arms((rng.random(rows) < rate) * 1.0, rng))
        held += row.low <= rate <= row.high
        assert row.low < row.high
    assert held >= 93


@pytest.mark.filterwarnings("ignore:the mean weight")
@pytest.mark.parametrize("reward", [[0.4], [5.0] * 50, list(np.linspace(0, 9, 8))])
def test_without_a_range_few_rows_set_no_limit(reward: list[float]) -> None:
    log = two_arms(np.array(reward), np.random.default_rng(0)).replace(action=np.zeros(len(reward), int))
    row = snips(log)
    assert row.low == -math.inf and row.high == math.inf and "too few rows" in row.interval
    row = snips(log, reward_range=(0, 10))
    assert 0 <= row.low < row.high <= 10


def test_a_heavy_tail_has_no_upper_limit_and_a_light_one_has() -> None:
    held, decided = 0, 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        log = two_arms((rng.random(1000) < 0.05) * rng.lognormal(sigma=2, size=1000), rng)
        row = snips(log)
        held += row.low <= 0.05 * math.exp(2) <= row.high
        decided += "can decide" in ope.overlap(log, np.full((1000, 2), 0.5)).verdict
    assert held >= 53 and decided == 0
    x = np.random.default_rng(0).normal(size=1000)
    log = two_arms(x, np.random.default_rng(1))
    row, mean = snips(log), x[log.action == 0].mean()
    error = x.std() / math.sqrt((log.action == 0).sum())
    np.testing.assert_allclose([row.low, row.high], [mean - 2 * error, mean + 2 * error], atol=0.5 * error)
    assert "can decide" in ope.overlap(log, np.full((1000, 2), 0.5)).verdict


def test_rows_of_a_user_are_no_independent_rows() -> None:
    user, held, log = np.repeat(np.arange(100), 20), np.zeros(2), None
    for seed in range(60):
        rng = np.random.default_rng(seed)
        log = two_arms(rng.normal(size=100)[user] + rng.normal(size=2000), rng)
        names = np.array([f"user {one}" for one in user])
        rows = [snips(log, groups=groups) for groups in (None, names)]
        held += [row.low <= 0 <= row.high for row in rows]
        assert rows[0].value == pytest.approx(rows[1].value)
    assert held[0] < 52 and held[1] >= 54
    assert log is not None and "of 5 groups" in ope.overlap(log, np.full((2000, 2), 0.5), groups=user // 20).verdict
    with pytest.raises(ValueError, match=r"groups must name the group of each row, \(2000,\); got shape \(3,\)"):
        snips(log, groups=[1, 2, 3])


@pytest.mark.parametrize("known", [False, True])
def test_decisions_without_support_count_with_the_range_of_rewards(known: bool) -> None:
    held = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        action = rng.integers(4, 10, size=1000)
        log = ope.make_log(
            action=action,
            reward=(rng.random(1000) < action / 10) * 1.0,
            propensity=np.full(1000, 1 / 6),
            num_actions=10,
        )
        if known:
            log = log.replace(logging=np.tile((np.arange(10) >= 4) / 6, (1000, 1)))
        uniform = np.full((1000, 10), 0.1)
        with pytest.warns(UserWarning, match="only a part of the policy"):
            table = ope.evaluate(log, uniform, np.full((1000, 10), 0.7), seed=0, estimators="snips, dr, dm, ips")
        held += ((table.low <= 0.45) & (table.high >= 0.45)).all()
        assert "40.0% of the decisions from 0 to 1" in table.loc["dr", "interval"]
        assert ope.overlap(log, uniform).unsupported == pytest.approx(0.4)
    assert held >= 38


def test_many_actions_that_chance_did_not_play_are_supported() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        action = rng.integers(200, size=1000)
        log = ope.make_log(
            action=action, reward=(rng.random(1000) < 0.5) * 1.0, propensity=np.full(1000, 1 / 200), num_actions=200
        )
        assert "can decide" in ope.overlap(log, np.full((1000, 200), 1 / 200)).verdict


def test_the_whole_law_of_the_logging_policy_leaves_nothing_to_luck() -> None:
    law, target = np.array([0.999, 0.001]), np.tile([0.5, 0.5], (1000, 1))
    rng = np.random.default_rng(0)
    log = ope.make_log(
        action=np.zeros(1000, int),
        reward=(rng.random(1000) < 0.5) * 1.0,
        propensity=np.full(1000, 0.999),
        num_actions=2,
    ).replace(logging=np.tile(law, (1000, 1)))
    found = ope.overlap(log, target)
    assert found.effective_sample_size == pytest.approx(1000 / (0.25 / 0.999 + 0.25 / 0.001))
    assert found.unsupported == 0 and "hardly" in found.verdict


def test_propensities_of_an_agent_that_learns_are_not_called_wrong() -> None:
    rng, rows = np.random.default_rng(0), 1000
    chance = np.full((200, rows), 0.5)
    played = np.zeros((200, rows), bool)
    for row in range(rows):  # a play makes the next one less likely
        chance[:, row] = np.maximum(0.5 / (1 + 0.3 * played[:, :row].sum(axis=1)), 0.004)
        played[:, row] = rng.random(200) < chance[:, row]
    log = None
    for p, action in zip(chance, played * 1, strict=True):
        log = ope.make_log(
            action=action, reward=np.zeros(rows), propensity=np.where(action == 1, p, 1 - p), num_actions=2
        )
        assert ope.overlap(log, np.tile([0.0, 1.0], (rows, 1))).miscalibration < 5
    assert log is not None
    assert ope.overlap(log.replace(propensity=log.propensity / 2), np.full((rows, 2), 0.5)).miscalibration > 5


def test_an_estimate_lies_in_its_interval() -> None:
    rng = np.random.default_rng(0)
    log, target = draw_log(300, 5)
    names = set(ope.REGISTRY.names()) - {"mips", "balanced_loggers", "weighted_loggers"}
    names = {name for name in names if issubclass(ope.REGISTRY[name].log, ope.Log)}
    for one in (log, log.replace(reward=(log.reward > 1) * 1.0), log[:3], log[log.action != 0]):
        rows = len(one)
        predicted = rng.normal(size=one.mask.shape)
        listed = [ope.REGISTRY.make(name) for name in names if rows > 9 or name not in ("mrdr", "balanced_ipw")]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = ope.evaluate(one, target[:rows], predicted, seed=0, estimators=listed, samples=50)
        known = table[table.value.notna()]
        assert (
            len(known) and ((known.low <= known.value) & (known.value <= known.high) & (known.low < known.high)).all()
        )


def test_a_range_that_does_not_hold_the_rewards_is_refused() -> None:
    log, target = one_action(np.array([0.0, 0.5, 3.0]))
    for wrong, error in (((0, 1), ValueError), ((3, 0), ValueError), ((0, "many"), TypeError), (3, TypeError)):
        for call in (
            lambda **options: ope.evaluate(log, target, seed=0, **options),
            functools.partial(ope.overlap, log, target),
        ):
            with pytest.raises(error, match="reward_range"):
                call(reward_range=wrong)


def nearly_deterministic(rng: Any) -> tuple[ope.Log, np.ndarray, float]:
    action = (rng.random(300) < 0.005).astype(int)
    chance = np.where(action == 1, 0.005, 0.995)
    log = ope.make_log(action=action, reward=(rng.random(300) < 0.5) * 1.0, propensity=chance, num_actions=2)
    return log, np.tile([0.05, 0.95], (300, 1)), 0.5


def rare(rng: Any) -> tuple[ope.Log, np.ndarray, float]:
    action = rng.integers(4, size=400)
    log = ope.make_log(action=action, reward=(rng.random(400) < 0.02) * 1.0, propensity=np.full(400, 0.25))
    return log, np.tile([1.0, 0, 0, 0], (400, 1)), 0.02


def rarely_played(rng: Any) -> tuple[ope.Log, np.ndarray, float]:
    law = np.array([0.996 / 9] * 9 + [0.004])
    action = rng.choice(10, size=1000, p=law)
    reward = (rng.random(1000) < np.where(action == 9, 0.8, 0.3)) * 1.0
    log = ope.make_log(action=action, reward=reward, propensity=law[action], num_actions=10)
    return log, np.tile([0.1 / 9] * 9 + [0.9], (1000, 1)), 0.1 * 0.3 + 0.9 * 0.8


@pytest.mark.parametrize("draw", [nearly_deterministic, rare, rarely_played])
@pytest.mark.filterwarnings("ignore:the log", "ignore:the mean weight")
def test_default_intervals_hold_on_hard_logs(draw: Any) -> None:
    held = []
    for seed in range(60):
        log, target, truth = draw(np.random.default_rng(seed))
        predicted = np.full(log.mask.shape, log.reward.mean())
        table = ope.evaluate(log, target, predicted, seed=seed, estimators="ips, snips, dm, dr, sndr, switch_dr")
        held.append((table["low"] <= truth) & (table["high"] >= truth))
    assert np.mean(held, axis=0).min() > 0.9


def test_auto_leaves_a_bad_model_and_keeps_a_good_one() -> None:
    errors: dict[str, list[list[float]]] = {"good": [], "bad": []}
    for seed in range(60):
        log, target = draw_log(300, seed)
        good = MEANS[log.context.argmax(1)]
        bad = 8 * np.random.default_rng(seed).normal(size=good.shape)
        for kind, predicted in (("good", good), ("bad", bad)):
            given = ope.evidence(log, target, predicted, seed=0)
            errors[kind].append([one.terms(given).value - TRUTH for one in (ope.Auto(), ope.SNDR(), ope.SNIPS())])
    good, bad = (np.sqrt(np.mean(np.square(errors[kind]), axis=0)) for kind in ("good", "bad"))
    assert good[0] < 1.05 * good[1] < 1.05 * good[2]
    assert bad[0] < 1.05 * bad[2] and bad[2] < 0.5 * bad[1]


def test_the_auto_estimate_of_other_logs() -> None:
    log, target = draw_log(200, 0)
    table = ope.evaluate(log, target, seed=0, estimators=["auto", "snips"])
    assert table.loc["auto", "value"] == table.loc["snips", "value"]
    unknown = log.replace(propensity=np.full(200, np.nan))
    table = ope.evaluate(unknown, target, np.ones((200, 4)), seed=0, estimators="auto")
    assert table.loc["auto", "value"] == 1


def test_reward_models_are_cross_fitted_and_the_likeliest_is_chosen() -> None:
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import LogisticRegression, Ridge

    rng = np.random.default_rng(0)
    x, action = 5 + 3 * rng.normal(size=(600, 2)), rng.integers(2, size=600)
    line = np.where(action == 1, 1, -1) * (x[:, 0] - 5) / 3
    log = ope.make_log(action=action, reward=line + 0.1 * rng.normal(size=600), propensity=np.full(600, 0.5), context=x)
    assert isinstance(ope.choose_model(log, seed=0), Ridge)
    found = ope.predict_rewards(log, seed=0, folds=3)
    np.testing.assert_allclose(found[np.arange(600), action], line, atol=0.15)
    waves = log.replace(reward=np.sin(2 * x[:, 0]) * (1 + action))
    assert isinstance(ope.choose_model(waves, seed=0), HistGradientBoostingRegressor)
    clicks = log.replace(reward=(rng.random(600) < 1 / (1 + np.exp(-2 * line))) * 1.0)
    assert isinstance(ope.choose_model(clicks, seed=0), LogisticRegression)
    other = log.replace(reward=np.where(np.arange(600) == 7, 1e4, log.reward))
    changed = ope.predict_rewards(other, seed=0, model=Ridge(), folds=3) != ope.predict_rewards(
        log, seed=0, model=Ridge(), folds=3
    )
    fold = np.random.default_rng(0).permutation(np.arange(600) % 3)
    np.testing.assert_array_equal(changed.all(axis=1), fold != fold[7])
    weights = (np.arange(600) % 2).astype(float)
    half = ope.predict_rewards(other, seed=0, model=Ridge(), folds=3, weights=weights * (np.arange(600) != 7))
    np.testing.assert_allclose(half[np.arange(600), action], line, atol=0.15)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"model": 3}, TypeError, "a Learner, or a regressor or classifier of scikit-learn; got 3"),
        ({"folds": 1}, ValueError, "folds must lie between 2 and the number of rows, 50; got 1"),
        ({"weights": -np.ones(50)}, ValueError, r"weights must be \(50,\) finite numbers >= 0"),
    ],
)
def test_what_is_no_reward_model_is_refused(given: Any, error: Any, message: str) -> None:
    from sklearn.linear_model import LogisticRegression

    log, _ = draw_log(50, 0)
    with pytest.raises(error, match=message):
        ope.predict_rewards(log, seed=0, **given)
    with pytest.raises(ValueError, match="a classifier predicts rewards that are all 0 or 1"):
        ope.predict_rewards(log, seed=0, model=LogisticRegression())


@pytest.mark.parametrize("kind", ["numbers", "levels", "none"])
def test_rows_that_are_there_three_times_are_told_of(kind: str) -> None:
    rng = np.random.default_rng(0)
    n, law = 300, np.array([0.6, 0.3, 0.1])
    draws = {"numbers": rng.normal(size=(n, 2)), "levels": rng.integers(3, size=(n, 2)) * 1.0, "none": np.zeros((n, 0))}
    for _ in range(20):
        action = rng.choice(3, size=n, p=law)
        columns = {"context": draws[kind], "action": action, "reward": rng.random(n) < 0.3, "propensity": law[action]}
        log = ope.make_log(**columns, num_actions=3)
        assert list(diagnostics.repeats(log)) == []
    target = np.full((3 * n, 3), 1 / 3)
    for rows in (np.repeat(np.arange(n), 3), np.tile(np.arange(n), 3)):
        with pytest.warns(UserWarning, match="repeat an earlier one of the same .*drop duplicates"):
            ope.evaluate(log[rows], target, seed=0, samples=10, estimators="snips")
        assert "rows may be there twice" in "".join(ope.overlap(log[rows], target).warnings)
        assert "twice" not in "".join(ope.overlap(log[rows], target, groups=rows).warnings)


def heavy_slates(seed: int) -> tuple[ope.SlateLog, np.ndarray]:
    """Slates of two binary slots, whose weights are nearly log-normal."""
    rng = np.random.default_rng(seed)
    score = 1.2 * rng.normal(size=(1000, 1, 1)) * np.array([-0.5, 0.5])
    law, target = (np.repeat(np.exp(s) / np.exp(s).sum(axis=2, keepdims=True), 2, axis=1) for s in (score, -score))
    action = (rng.random((1000, 2)) < law[:, :, 1]).astype(int)
    propensity = np.take_along_axis(law, action[:, :, None], axis=2)[:, :, 0]
    reward = (rng.random((1000, 2)) < 0.3) * 1.0
    return ope.make_slate_log(action=action, reward=reward, propensity=propensity), target


def heavy_decisions(seed: int) -> tuple[ope.Log, np.ndarray]:
    rng = np.random.default_rng(seed)
    odds = np.exp(1.5 * rng.normal(size=1000))
    law, target = (np.stack([np.ones(1000), o], axis=1) / (1 + o)[:, None] for o in (odds, 1 / odds))
    action = (rng.random(1000) < law[:, 1]).astype(int)
    reward = (rng.random(1000) < 0.3) * 1.0
    return ope.make_log(action=action, reward=reward, propensity=law[np.arange(1000), action], num_actions=2), target


@pytest.mark.parametrize(("draw", "left"), [(heavy_slates, 0.95), (heavy_decisions, 0.85)])
def test_a_log_whose_heavy_rows_are_missing_does_not_decide(draw: Any, left: float) -> None:
    seen, fewer = [], []
    for seed in range(6):
        log, target = draw(seed)
        w = diagnostics.reach(ope.evidence(log, target, seed=0)).weights
        means = np.sort(w).cumsum() / np.arange(1, len(w) + 1)
        kept = np.argsort(w)[: int((means < left).sum())]
        seen.append("can decide" in ope.overlap(log, target).verdict)
        fewer.append(ope.overlap(log[kept], target[kept]).verdict)
    assert any(seen) and not any("can decide" in words for words in fewer)
    assert any("rows with" in words and "seem to be missing" in words for words in fewer)


def test_where_the_logging_policy_is_deterministic_it_supports_nothing_else() -> None:
    rng = np.random.default_rng(0)
    certain = np.arange(1000) < 800
    log = ope.make_log(
        action=np.where(certain, 0, rng.integers(2, size=1000)),
        reward=(rng.random(1000) < 0.5) * 1.0,
        propensity=np.where(certain, 1.0, 0.5),
        num_actions=2,
    )
    target = np.tile([0.95, 0.05], (1000, 1))
    found = ope.overlap(log, target)
    assert found.unsupported == pytest.approx(0.04) and "never made by the logging policy" in found.verdict
    with pytest.warns(UserWarning, match=r"never made|should be 1"):
        assert "4.0% of the decisions" in ope.evaluate(log, target, seed=0, estimators="snips").loc["snips", "interval"]
    assert ope.overlap(log, np.where(certain[:, None], [1.0, 0.0], 0.5)).unsupported == 0


def test_sixty_rows_of_ten_thousand_can_decide() -> None:
    rng, rows = np.random.default_rng(0), 10_000
    log = ope.make_log(
        action=rng.integers(200, size=rows),
        reward=(rng.random(rows) < 0.5) * 1.0,
        propensity=np.full(rows, 1 / 200),
        num_actions=200,
    )
    found = ope.overlap(log, 0.9 * np.eye(200)[np.full(rows, 7)] + 0.1 / 200)
    assert 50 < found.effective_sample_size < 75 and "can decide" in found.verdict


def kinds() -> dict[str, tuple[Any, np.ndarray]]:
    """Logs of each kind, whose rewards have a heavy tail, and targets."""
    rng, n = np.random.default_rng(0), 2000
    reward, action = np.exp(2 * rng.normal(size=n)), rng.integers(2, size=n)
    log = ope.make_log(action=action, reward=reward, propensity=np.full(n, 0.5))
    law = np.full((n, 2), 0.5)
    pair = (n // 2, 2)
    slates = ope.make_slate_log(action=action.reshape(pair), reward=reward.reshape(pair), propensity=np.full(pair, 0.5))
    numbers = ope.make_continuous_log(action=rng.uniform(size=n), reward=reward, density=np.ones(n))
    return {
        "decisions": (log, law),
        "sessions": (ope.EpisodeLog(log, np.arange(n) // 2), law),
        "slates": (slates, np.full((*pair, 2), 0.5)),
        "numbers": (numbers, np.full(n, 0.5)),
    }


@pytest.mark.parametrize("kind", ["decisions", "sessions", "slates", "numbers"])
def test_verdicts_of_all_kinds_of_logs_know_range_and_groups(kind: str) -> None:
    log, target = kinds()[kind]
    assert "a few large rewards may change the mean" in ope.overlap(log, target).verdict
    assert "can decide" in ope.overlap(log, target, reward_range=(0, 1e5)).verdict
    assert "of 20 groups only" in ope.overlap(log, target, groups=np.arange(len(log)) % 20).verdict
    with pytest.raises(ValueError, match="reward_range must be"):
        ope.overlap(log, target, reward_range=(0, 1))
    with pytest.raises(ValueError, match="groups must name the group of each row"):
        ope.overlap(log, target, groups=[1, 2])


def test_equal_values_have_a_light_tail() -> None:
    """Also where the grid of the fit has a rate of 0, that of an exponential distribution, as for 100 values."""
    with np.errstate(all="raise"):
        assert np.isfinite(intervals._shape(np.full(100, 2.0)))  # pyright: ignore[reportPrivateUsage]
