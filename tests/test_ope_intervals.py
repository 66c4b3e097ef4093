"""Intervals of off-policy estimates: by hand, against theory, and how often they hold the value on hard logs."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from seqdec import ope
from seqdec.ope import intervals
from tests.test_ope import MEANS, TRUTH, draw_log


def one_action(x: np.ndarray) -> tuple[ope.Log, np.ndarray]:
    """A log whose IPS estimate is the mean of x."""
    return ope.make_log(action=np.zeros(len(x), int), reward=x, propensity=np.ones(len(x))), np.ones((len(x), 1))


@pytest.mark.parametrize("name", ["studentized", "bca", "percentile"])
def test_a_bootstrap_of_a_mean_is_the_interval_of_theory(name: str) -> None:
    x = np.random.default_rng(0).normal(size=200)
    table = ope.evaluate(*one_action(x), seed=0, estimators=["ips"], interval=name, samples=20_000)
    low, high = stats.t.interval(0.95, 199, x.mean(), x.std(ddof=1) / math.sqrt(200))
    width = high - low
    assert table.loc["ips", "std_error"] == pytest.approx(x.std(ddof=1) / math.sqrt(200), rel=1e-9)
    assert abs(table.loc["ips", "low"] - low) < 0.03 * width and abs(table.loc["ips", "high"] - high) < 0.03 * width
    assert table.loc["ips", "interval"] == name


def test_skewness_moves_the_studentized_and_accelerated_intervals_to_the_long_tail() -> None:
    log, target = one_action(np.random.default_rng(1).exponential(size=60) ** 2)
    ends = {
        name: ope.evaluate(log, target, seed=0, estimators=["ips"], interval=name, samples=4000).loc["ips"]
        for name in ("percentile", "bca", "studentized")
    }
    assert ends["percentile"]["high"] < ends["bca"]["high"] < ends["studentized"]["high"]


def test_the_bootstrap_of_blocks_has_the_errors_of_rows() -> None:
    log, target = draw_log(40_000, 3)
    given = ope.evidence(log, target, MEANS[log.context.argmax(1)], seed=0)
    terms = [one.terms(given) for one in (ope.IPS(), ope.SNIPS(), ope.SNDR())]
    drawn, errors = ope.bootstrap(terms, seed=0, samples=2000)
    expected = [one.std_error for one in terms]
    np.testing.assert_allclose(drawn.std(axis=0), expected, rtol=0.06)
    np.testing.assert_allclose(errors.mean(axis=0), expected, rtol=0.02)
    np.testing.assert_allclose(drawn.mean(axis=0), [one.value for one in terms], atol=5 * max(expected) / 40)


def test_an_empirical_bernstein_interval_by_hand() -> None:
    low, high = intervals.bernstein(ope.Terms(np.array([0.0, 1, 1, 0] * 100), np.ones(400)), (0, 1), 0.95)
    half = math.sqrt(2 * (100 / 399) * math.log(80) / 400) + 7 * math.log(80) / (3 * 399)
    assert (low, high) == pytest.approx((0.5 - half, 0.5 + half))


def test_betting_holds_at_all_times_at_once_and_is_narrower_than_bernstein() -> None:
    left = 0
    for seed in range(60):
        x = (np.random.default_rng(seed).random(400) < 0.1) * 1.0
        looks = [intervals.betting(ope.Terms(x[:n], np.ones(n)), (0, 1), 0.9) for n in (10, 30, 60, 120, 250, 400)]
        left += any(not low <= 0.1 <= high for low, high in looks)
        assert all(now[0] >= then[0] - 1e-9 and now[1] <= then[1] + 1e-9 for then, now in itertools.pairwise(looks))
    assert left <= 12  # of 6 expected at most, with a standard deviation of 2.3
    other = intervals.bernstein(ope.Terms(x, np.ones(400)), (0, 1), 0.9)
    assert looks[-1][1] - looks[-1][0] < 0.9 * (other[1] - other[0])


@pytest.mark.parametrize("name", ["bernstein", "betting"])
def test_bounds_are_those_of_every_row(name: str) -> None:
    log, target = draw_log(50, 0)
    with pytest.raises(ValueError, match=r"bounds must include every row's contribution, .* got \(0, 1\)"):
        ope.evaluate(log, target, seed=0, estimators=["ips"], interval=name, bounds=(0, 1))
    with pytest.raises(ValueError, match="for means, such as IPS, DR and DM, not for ratios"):
        ope.evaluate(log, target, seed=0, estimators=["snips"], interval=name, bounds=(0, 1))
    table = ope.evaluate(log, target, seed=0, estimators=["ips"], interval=name, bounds=(-100, 100))
    assert table.loc["ips", "low"] < TRUTH < table.loc["ips", "high"]


def covered(log: ope.Log, target: np.ndarray, predicted: Any, truth: float, interval: str, seed: int) -> np.ndarray:
    table = ope.evaluate(log, target, predicted, seed=seed, interval=interval, samples=200)
    return ((table["low"] <= truth) & (table["high"] >= truth)).to_numpy()


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


@pytest.mark.sampled(6)
@pytest.mark.parametrize("draw", [nearly_deterministic, rare, rarely_played])
@pytest.mark.filterwarnings("ignore:the log", "ignore:the mean weight")
def test_default_intervals_hold_where_percentiles_are_too_short(draw: Any) -> None:
    found: dict[str, list[np.ndarray]] = {"cautious": [], "percentile": []}
    for seed in range(60):
        log, target, truth = draw(np.random.default_rng(seed))
        if log.reward.any() and np.isfinite(ope.evidence(log, target, seed=0).weights).all():
            predicted = np.full(log.mask.shape, log.reward.mean())
            for name, hits in found.items():
                hits.append(covered(log, target, predicted, truth, name, seed))
    share = {name: np.mean(hits, axis=0) for name, hits in found.items()}
    table = ope.evaluate(log, target, predicted, seed=0)
    known = (
        np.isin(table.index, ["dm", "dr", "sndr", "switch_dr"]) if draw is nearly_deterministic else np.ones(10, bool)
    )
    unbiased = np.isin(table.index, ["snips", "dr"])
    assert share["cautious"][known].min() > 0.88 and share["percentile"][unbiased].min() < 0.85


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
