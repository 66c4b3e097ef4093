"""Off-policy evaluation: estimators by hand, logs good and bad, models that do not grade themselves."""

import gzip
import json
import shutil
import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from gymnasium import spaces
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyRegressor

import seqdec
from seqdec import cli, envs, filters, likelihoods, models, ope, testing
from seqdec.commands import logs
from seqdec.commands import ope as evaluation
from seqdec.core import Learner
from seqdec.ope import Log, make_log
from seqdec.ope.contract import registered_name
from tests.toys import toy_agent, toy_env

# Six rows, three actions; weights 1, 2, 8, 1, 5, 0.
SIX = {
    "action": [0, 1, 2, 0, 1, 0],
    "reward": [1.0, 0.0, 2.0, -1.0, 3.0, 1.0],
    "propensity": [1 / 2, 1 / 4, 1 / 8, 1.0, 1 / 10, 4 / 5],
}
TARGET = np.array(
    [[1 / 2, 1 / 4, 1 / 4], [1 / 4, 1 / 2, 1 / 4], [0, 0, 1], [1, 0, 0], [0, 1 / 2, 1 / 2], [0, 1, 0]], float
)
PREDICTED = np.array([[0.5, 0.2, 0.1], [0.4, 0.3, 0.2], [1, 1, 1.5], [-0.5, 0, 0], [0, 2, 1], [1, 0.5, 0]], float)
DIRECT = 3.625  # 0.325 + 0.3 + 1.5 - 0.5 + 1.5 + 0.5; residuals 0.5, -0.3, 0.5, -0.5, 1, 0, weighted 8.4 in all


class Odds(ClassifierMixin, BaseEstimator):
    """A classifier whose odds are known: 1, 3 and 1/4 of the actions."""

    def fit(self, x: Any, y: Any) -> "Odds":
        return self

    def predict_proba(self, x: Any) -> np.ndarray:
        chance = x.toarray() @ np.array([1 / 2, 3 / 4, 1 / 5])
        return np.stack([1 - chance, chance], axis=1)


# By name in the registry, with settings; a name may have several rows.
HAND: dict[str, tuple[str, dict[str, Any], float]] = {
    "ips": ("ips", {}, 31 / 6),  # 1 + 0 + 16 - 1 + 15 + 0
    "ips, clipped": ("ips", {"max_weight": 4}, 20 / 6),  # 1 + 0 + 8 - 1 + 12 + 0
    "snips": ("snips", {}, 31 / 17),
    "snips, clipped": ("snips", {"max_weight": 4}, 20 / 12),
    "sub_gaussian_ips": ("sub_gaussian_ips", {"strength": 0.5}, 77 / 54),  # weights 1, 4/3, 16/9, 1, 5/3, 0
    # Seed 0 draws 0.64, 0.27, 0.04, 0.02, 0.81, 0.91 of the largest weight 8: rows 2 and 3, 2 and -1.
    "replay": ("replay", {}, 1 / 2),
    "dm": ("dm", {}, DIRECT / 6),
    "dr": ("dr", {}, (DIRECT + 8.4) / 6),
    "dr, shrunk": ("dr", {"shrinkage": 4}, (DIRECT - 0.3 + 4 / 17 + 20 / 29) / 6),  # weights 4/5, 1, 8/17, 4/5, 20/29
    "sndr": ("sndr", {}, DIRECT / 6 + 8.4 / 17),
    "switch_dr": ("switch_dr", {"threshold": 5}, (DIRECT + 4.4) / 6),  # without the third row's 4
    "sub_gaussian_dr": ("sub_gaussian_dr", {"strength": 0.5}, (DIRECT - 0.4 + 23 / 9) / 6),
    # Rows 0, 2 and 5 are one fold. With the weights 1, 6, 56, 0, 45, 0 of the fit, the mean of the others is 45/17 for
    # them and 113/57 for rows 1, 3 and 4: 1 + (16 - 7 q) + q and -q - 1 + (15 - 4 q).
    "mrdr": ("mrdr", {"model": DummyRegressor(), "folds": 2}, (19 / 17 + 233 / 57) / 6),
    "balanced_ipw": ("balanced_ipw", {"classifier": Odds(), "folds": 2}, 10.5 / 9.25),  # weights 1, 3, 1/4, 1, 3, 1
    "mips": (
        "mips",
        {"embedding": [0, 0, 1, 0, 0, 0], "law": [[1, 0], [1, 0], [0, 1]], "logging": np.full((6, 3), 1 / 3)},
        9.375 / 6,  # weights 9/8, 9/8, 3, 3/2, 3/4, 3/2
    ),
    "balanced_loggers": (
        "balanced_loggers",
        {"mixture": [0.5, 0.5, 0.25, 1, 0.2, 0.4]},
        15.5 / 6,
    ),  # 1, 1, 4, 1, 5/2, 0
    # Means 32/3 and -1/3 with variances 422/9 and 2/9.
    "weighted_loggers": ("weighted_loggers", {"logger": list("ababab")}, -179 / 636),
    "auto": ("auto", {}, DIRECT / 6 + 8.4 / 17),
}
SLATES = ope.make_slate_log(
    action=[[0, 1], [1, 0], [0, 0], [1, 1], [0, 1], [1, 0]],
    reward=[[1, 0], [0, 1], [1, 1], [0, 0], [2, 1], [1, 1]],
    propensity=[[0.5, 0.5], [0.5, 0.5], [0.25, 0.5], [0.5, 0.5], [0.5, 0.5], [0.5, 0.5]],
)  # weights (3/2, 3/2), (1/2, 1/2), (3, 1/2), (1/2, 3/2), (3/2, 3/2), (1/2, 1/2)
SLATE_TARGET = np.tile([[0.75, 0.25], [0.25, 0.75]], (6, 1, 1))
SLATE_PREDICTED = np.tile([[1.0, 2.0], [0.5, 0.5]], (6, 1, 1))
SESSIONS = ope.EpisodeLog(make_log(action=[1, 0, 0], reward=[1, 2, 4], propensity=[0.5] * 3), np.array([0, 0, 1]))
SESSION_TARGET, SESSION_PREDICTED = (
    np.tile([0.25, 0.75], (3, 1)),
    np.tile([1.0, 2.0], (3, 1)),
)  # weights (3/2, 3/4), 1/2
NUMBERS = ope.make_continuous_log(
    action=[0, 1, 2, 3, 4, 5], reward=[1, 2, 0, -1, 3, 5], density=[0.5, 0.25, 0.5, 1, 0.5, 0.25]
)
NUMBER_TARGET = [0.5, 1, 1.5, 4, 4, 9]  # distances 1/4, 0, -1/4, 1/2, 0, 2 in bandwidths of 2
NUMBER_PREDICTED = [0.5, 1, 0.5, 0, 2, 1]
HAND |= {
    "slate_ips": ("slate_ips", {}, 12.25 / 6),  # 3/2, 1/4, 9/2, 0, 21/4, 3/4
    "slate_ips, standard": ("slate_ips", {"interaction": "standard"}, 12.75 / 6),
    "slate_ips, normalized": ("slate_ips", {"interaction": "standard", "normalized": True}, 12.75 / 7.25),
    "slate_ips, independent": ("slate_ips", {"interaction": "independent"}, 11 / 6),
    "slate_pi": ("slate_pi", {}, 13 / 6),  # weights 2, 0, 5/2, 1, 2, 0
    "cascade_dr": ("cascade_dr", {}, 10.875 / 6),
    "kernel_ips": ("kernel_ips", {"bandwidth": 2, "kernel": "triangular"}, 7.5 / 6),  # weights 3/4, 2, 3/4, 1/4, 1, 0
    "kernel_ips, normalized": ("kernel_ips", {"bandwidth": 2, "kernel": "triangular", "normalized": True}, 7.5 / 4.75),
    "kernel_ips, epanechnikov": ("kernel_ips", {"bandwidth": 2}, 5.671875 / 6),
    "pdis": ("pdis", {"gamma": 0.5}, 4.25 / 2),  # 3/2 + 3/4, 2
    "pdis, normalized": ("pdis", {"gamma": 0.5, "normalized": True}, 3.5 / 2 + 0.75 / 1.25),
    "sequential_dr": ("sequential_dr", {"gamma": 0.5}, 5.1875 / 2),  # 7/4 - 3/16 + 3/8, 7/4 + 3/2
    "sequential_dr, normalized": (
        "sequential_dr",
        {"gamma": 0.5, "normalized": True},
        1.75 + 1.3125 / 2 + 0.375 / 1.25,
    ),
    "kernel_dr": ("kernel_dr", {"bandwidth": 2, "kernel": "triangular"}, 7.75 / 6),
}


def six(**changes: Any) -> Log:
    return make_log(**{**SIX, **changes})


def estimate(name: str, log: Any, target: Any, predicted: Any = None, **settings: Any) -> float:
    given = ope.evidence(log, target, predicted, seed=0)
    return ope.REGISTRY.make(name, **settings).terms(given).value


def test_every_estimator_is_tried_and_is_an_attribute_by_its_name() -> None:
    assert {name for name, _, _ in HAND.values()} == set(ope.REGISTRY)
    for name in ope.REGISTRY:
        factory = ope.REGISTRY[name]
        assert registered_name(factory) == name and getattr(ope, factory.__name__) is factory


@pytest.mark.parametrize("row", HAND)
def test_an_estimator_by_hand(row: str) -> None:
    name, settings, value = HAND[row]
    given = {
        Log: (six(), TARGET, PREDICTED),
        ope.ContinuousLog: (NUMBERS, NUMBER_TARGET, NUMBER_PREDICTED),
        ope.EpisodeLog: (SESSIONS, SESSION_TARGET, SESSION_PREDICTED),
        ope.SlateLog: (SLATES, SLATE_TARGET, SLATE_PREDICTED),
    }[ope.REGISTRY[name].log]
    assert abs(estimate(name, *given, **settings) - value) < 1e-12


ARRAYS: dict[str, dict[str, Any]] = {
    "balanced_loggers": {"mixture": np.full(60, 0.4)},
    "weighted_loggers": {"logger": np.arange(60) % 2},
    "mrdr": {"model": DummyRegressor()},
    "balanced_ipw": {"folds": 2},
    "mips": {"logging": np.full((60, 3), 1 / 3)},
}
"""Settings that fit the log on which an estimator is tried."""


@pytest.mark.parametrize("name", ope.REGISTRY)
def test_an_estimator_keeps_its_contract(name: str) -> None:
    testing.check_estimator(lambda: ope.REGISTRY.make(name, **ARRAYS.get(name, {})))


@pytest.mark.parametrize(
    ("terms", "settings", "message"),
    [
        (lambda given: ope.Terms(given.weights[:-1], given.weights[:-1]), {}, "one row for each row"),
        (lambda given: ope.Terms(given.weights / 0, given.weights), {}, "finite"),
        (lambda given: ope.Terms(np.random.random(60), np.ones(60)), {}, "function of the evidence"),
        (lambda given: ope.Terms(given.direct, np.ones(60)), {}, 'needs "predicted"'),
        (lambda given: ope.Terms(given.target.probabilities.sum(1), np.ones(60)), {}, '"contexts" among its needs'),
        (lambda given: ope.Terms(given.weights.__imul__(2), given.weights), {}, "function of|must not change"),
    ],
)
def test_an_estimator_that_breaks_its_contract_is_told(terms: Any, settings: Any, message: str) -> None:
    broken = type("Broken", (ope.Estimator,), {"terms": lambda self, given: terms(given), **settings})
    with pytest.raises((AssertionError, ValueError), match=message), np.errstate(all="ignore"):
        testing.check_estimator(broken)


@pytest.mark.filterwarnings("ignore:the log supports only a part")
@pytest.mark.parametrize(
    ("log", "target", "predicted", "names"),
    [
        (six(), TARGET, PREDICTED, 10),
        (six(), TARGET, None, 5),
        (SLATES, SLATE_TARGET, SLATE_PREDICTED, 5),
        (NUMBERS, NUMBER_TARGET, NUMBER_PREDICTED, 3),
    ],
)
def test_the_table_has_the_standard_estimators_of_the_log(log: Any, target: Any, predicted: Any, names: int) -> None:
    table = ope.evaluate(log, target, predicted, seed=0, samples=50)
    assert list(table.columns) == ["value", "low", "high", "std_error", "interval"] and len(table) == names
    assert (table["low"] <= table["value"]).all() and (table["value"] <= table["high"]).all()


def test_a_list_of_configured_estimators_names_its_rows() -> None:
    listed = [ope.DR(), ope.DR(shrinkage="slope"), "snips", ope.IPS(max_weight=4), ope.DR()]
    table = ope.evaluate(six(), TARGET, PREDICTED, seed=0, estimators=listed)
    assert list(table.index) == ["dr", "dr(shrinkage='slope')", "snips", "ips(max_weight=4)"]
    assert [text.split(";")[0] for text in table["interval"]] == ["of snips", "of snips", "own", "of snips"]
    assert abs(table.loc["ips(max_weight=4)", "value"] - 20 / 6) < 1e-12
    rich, target = draw_log(300, 0)
    table = ope.evaluate(rich, target, np.zeros((300, 4)), seed=0, estimators=listed)
    assert [text.split(";")[0] for text in table["interval"]] == ["own", "of dr", "own", "of snips"]
    text = "auto, dr(shrinkage=slope), ips(max_weight=4), replay"
    by_name = ope.evaluate(six(), TARGET, PREDICTED, seed=0, estimators=text)
    assert list(by_name.index) == ["auto", "dr(shrinkage='slope')", "ips(max_weight=4)", "replay"]
    again = ope.evaluate(six(), TARGET, PREDICTED, seed=0, estimators=list(by_name.index))
    pd.testing.assert_frame_equal(by_name, again)  # a name in the table is the name of the estimator


@pytest.mark.parametrize(
    ("estimators", "error", "message"),
    [
        ([], ValueError, "at least one"),
        (["dr"], ValueError, r"dr needs predicted rewards, such as those of seqdec\.ope\.predict_rewards"),
        ([ope.SlateIPS()], ValueError, "slate_ips is for a SlateLog; got a Log"),
        ([ope.DR], TypeError, "a list of estimators or their names; got <class .*DR"),
        (["dor"], ValueError, "unknown estimator 'dor': did you mean 'dr'"),
        ("dr(shrinkage=0)", ValueError, "shrinkage must be"),
        ("dr(shrinkage=best)", ValueError, "unknown shrinkage"),
        ("ips(max_weight=-1)", ValueError, "max_weight must be"),
        ("switch_dr(threshold=-1)", ValueError, "threshold must be"),
        ("sub_gaussian_ips(strength=2)", ValueError, "strength must"),
        ("slate_ips(interaction=none)", ValueError, "interaction"),
        ("kernel_ips(kernel=box)", ValueError, "kernel"),
        ("kernel_dr(bandwidth=bound)", ValueError, "unknown bandwidth"),
        ("dr(shrinkage=print())", ValueError, r"estimators must be names such as .*; got 'dr\(shrinkage=print\(\)\)'"),
        ("snips]; [dr", ValueError, "estimators must be names such as"),
    ],
)
def test_estimators_that_do_not_fit_are_refused(estimators: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        ope.evaluate(six(), TARGET, seed=0, estimators=estimators)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rule", ["slope", "bound"])
@pytest.mark.parametrize("name", ["ips", "dr", "switch_dr", "sub_gaussian_ips", "sub_gaussian_dr"])
def test_a_rule_chooses_little_bias_with_many_rows_and_little_variance_with_few(name: str, rule: str) -> None:
    setting = {"ips": "max_weight", "dr": "shrinkage", "switch_dr": "threshold"}.get(name, "strength")
    errors: dict[int, list[float]] = {60: [], 6000: []}
    plain: dict[int, list[float]] = {60: [], 6000: []}
    for seed in range(20):
        for rows in errors:
            log, target = draw_log(rows, seed)
            given = ope.evidence(log, target, np.full(log.mask.shape, 1.0), seed=0)
            errors[rows].append(ope.REGISTRY.make(name, **{setting: rule}).terms(given).value - TRUTH)
            plain[rows].append(ope.REGISTRY.make("ips" if "ips" in name else "dr").terms(given).value - TRUTH)
    few, many = (np.sqrt(np.mean(np.square(errors[rows]))) for rows in errors)
    assert many < few / 1.4 and (rule == "slope" or many < 1.2 * np.sqrt(np.mean(np.square(plain[6000]))))
    assert few < (1.1 if "dr" in name else 2) * np.sqrt(np.mean(np.square(plain[60])))


def test_contexts_are_standardized() -> None:
    log = six(context=np.column_stack([np.arange(6.0), np.full(6, 3.0)]))
    scaled = ope.standardized(log).context
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(scaled.std(0), [1, 0], atol=1e-12)
    np.testing.assert_array_equal(log.context[:, 0], np.arange(6))


CONTEXTS, ARMS = 3, 4
LOGGING = np.array([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], [0.05, 0.05, 0.45, 0.45]])
EVALUATED = np.array([[0.7, 0.1, 0.1, 0.1], [0.0, 0.0, 0.5, 0.5], [0.5, 0.5, 0.0, 0.0]])
MEANS = np.arange(12.0).reshape(3, 4) / 4
TRUTH = float((EVALUATED * MEANS).sum(1).mean())


def draw_log(rows: int, seed: int, noise: float = 1.0) -> tuple[Log, np.ndarray]:
    """Rows of a policy that is known, and the target's probabilities in them."""
    rng = np.random.default_rng(seed)
    context = rng.integers(CONTEXTS, size=rows)
    action = (rng.random((rows, 1)) > LOGGING[context].cumsum(1)).sum(1).clip(max=ARMS - 1)
    reward = MEANS[context, action] + noise * rng.normal(size=rows)
    propensity = LOGGING[context, action]
    log = make_log(
        action=action, reward=reward, propensity=propensity, context=np.eye(CONTEXTS)[context], num_actions=ARMS
    )
    return log, EVALUATED[context]


def test_intervals_cover() -> None:
    hits = []
    for seed in range(100):
        log, target = draw_log(300, 1000 + seed)
        table = ope.evaluate(log, target, MEANS[log.context.argmax(1)], seed=seed, samples=200)
        hits.append((table["low"] < TRUTH) & (table["high"] > TRUTH))
    share = pd.DataFrame(hits).mean()
    for name in ("ips", "snips", "dm", "dr", "sndr"):
        assert share[name] > 0.95 - 4 * np.sqrt(0.95 * 0.05 / 100), name


def linear_model(log: Log) -> Learner:
    network = models.network(models.MLP(log.num_actions, ()), jnp.zeros(log.context.shape[1]))
    return filters.learner(filters.ekf(network, likelihoods.gaussian(1.0)), network.init)


def test_a_filter_as_the_model_makes_dr_more_exact_than_ips() -> None:
    log, target = draw_log(3000, 5)
    for fit in (ope.cross_fit, ope.prequential):
        predicted = fit(linear_model(log), log, seed=0)
        assert predicted.shape == (3000, ARMS)
        table = ope.evaluate(log, target, predicted, seed=0, samples=300)
        assert table.loc["dr", "std_error"] < 0.8 * table.loc["ips", "std_error"]
        assert table.loc["dr", "low"] < TRUTH < table.loc["dr", "high"]
    scaled = ope.cross_fit(linear_model(log), ope.standardized(log), seed=0, folds=3)
    np.testing.assert_array_equal(ope.predict_rewards(log, model=linear_model(log), seed=0, folds=3), scaled)
    late = predicted[-1000:] - MEANS[log.context.argmax(1)][-1000:]
    assert np.abs(late).mean() < 0.15


def test_no_row_is_predicted_from_itself() -> None:
    log, _ = draw_log(60, 6)
    other, learner = log.replace(reward=np.where(np.arange(60) == 20, 1e3, log.reward)), linear_model(log)
    predict = {
        name: [fit(learner, one, seed=3) for one in (log, other)]
        for name, fit in (("cross", ope.cross_fit), ("prequential", ope.prequential))
    }
    same = {name: (before == after).all(1) for name, (before, after) in predict.items()}
    assert same["prequential"][:21].all() and not same["prequential"][21:].any()
    member = np.random.default_rng(3).permutation(np.arange(60) % 5)
    np.testing.assert_array_equal(same["cross"], member == member[20])


def test_cross_fitting_is_fitting_to_the_other_folds() -> None:
    log, _ = draw_log(40, 7)
    network = models.network(models.MLP(log.num_actions, ()), jnp.zeros(log.context.shape[1]))
    flt = filters.lrkf(network, likelihoods.gaussian(1.0), rank=5, process_noise=1e-3)
    params = network.init(jax.random.key(0))
    learner = filters.learner(flt, network.init)._replace(init=lambda key: flt.init(key, params))
    found, spread = ope.cross_fit(
        learner, log, lambda key, posterior, x, mask: (posterior.mean(x), posterior.joint(x).cov), seed=1, folds=4
    )
    member = np.random.default_rng(1).permutation(np.arange(40) % 4)
    start = jax.random.split(jax.random.split(jax.random.key(1))[0], 4)
    belief = flt.init(start[2], params)
    update = jax.jit(lambda belief, x, y, action: flt.update(flt.predict(belief), x, y, observed=action)[0])
    x = ope.inputs(log)
    for row in range(40):  # time passes in all rows
        if member[row] != 2:
            belief = update(belief, x[row], np.float32(log.reward[row]), log.action[row])
        else:
            belief = flt.predict(belief)
    for row in np.flatnonzero(member == 2):
        np.testing.assert_allclose(found[row], flt.response(flt.mean(belief), x[row]), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(spread[row], flt.moments(belief, x[row]).cov, rtol=1e-3, atol=1e-5)


def test_overlap_warns() -> None:
    log, target = draw_log(5000, 8)
    good = ope.overlap(log, target)
    w = ope.check_target(log, target).weights
    usual = ope.evidence(log, target, seed=0).usual_weight
    sizes = w.sum() ** 2 / (w**2).sum(), 5000 / usual
    assert good.warnings == () and good.effective_sample_size == pytest.approx(min(sizes))
    assert good.mean_weight_error == pytest.approx(w.std(ddof=1) / 5000**0.5, rel=1e-9)
    assert {type(field) for field in good} == {int, float, tuple, str}  # no scalars of NumPy, whose repr names them
    wrong = ope.overlap(log.replace(propensity=np.full(5000, 0.25)), target)
    assert any("should be 1" in text for text in wrong.warnings)
    rare = make_log(
        action=np.arange(2000) % 2, reward=np.ones(2000), propensity=np.where(np.arange(2000) == 1, 1e-3, 0.5)
    )
    words = " ".join(ope.overlap(rare, np.tile([0.0, 1.0], (2000, 1))).warnings)
    assert "hardly overlaps" in words and "one row has" in words


def test_overlap_judges_the_weights_and_not_the_length_of_the_log() -> None:
    def words(rows: int, chance: float) -> str:
        """Warnings where the policy plays action 0, and the log with a chance of `chance`."""
        action = (np.arange(rows) % round(1 / chance) > 0).astype(int)
        log = make_log(action=action, reward=np.ones(rows), propensity=np.where(action == 0, chance, 1 - chance))
        return " ".join(ope.overlap(log, np.tile([0.9, 0.1], (rows, 1))).warnings)

    assert words(68, 1 / 2) == words(50, 1 / 2) == words(1000, 1 / 10) == ""
    assert "the log is short: 20 rows are worth" in words(20, 1 / 2) and "trust no" not in words(20, 1 / 2)
    assert "the log hardly overlaps with the policy: 100 rows are worth" in words(100, 1 / 10)
    rounded = make_log(action=[0, 1] * 50, reward=np.ones(100), propensity=np.full(100, 1 / 2 + 1e-7))
    assert ope.overlap(rounded, np.full((100, 2), 0.5)).warnings == ()  # a mean weight of 1, but for rounding


def test_a_verdict_says_whether_the_log_can_decide() -> None:
    log, target = draw_log(3000, 8)
    half = np.full((300, 2), 0.5)
    never = make_log(action=np.zeros(300, int), reward=np.ones(300), propensity=np.ones(300), num_actions=2)
    small = np.where(log.action == 0, 1e-3, log.propensity)
    found = ope.overlap(log, target)
    assert found.verdict.startswith("The log can decide about this policy: 3,000 rows are worth")
    assert found.miscalibration < 5 and found.unsupported == 0 and 0 < found.weakest_cluster < 0.6
    for other, policy, verdict in (
        (make_log(action=[0, 1] * 10, reward=np.ones(20), propensity=np.full(20, 0.5)), half[:20], "is too short to"),
        (make_log(action=[1] + [0] * 99, reward=np.ones(100), propensity=[0.01] + [0.99] * 99), half[:100], "hardly"),
        (log.replace(propensity=small), target, "Do not decide by this log before its propensities are put right"),
        (log.replace(propensity=np.full(3000, np.nan)), target, "without propensities estimates rest on the model"),
        (never, half, "50.0% of the policy's decisions are actions that no row has"),
        (never, np.tile([0.0, 1.0], (300, 1)), "it never played what the policy would play"),
    ):
        assert verdict in ope.overlap(other, policy).verdict


def test_without_support_nothing_is_known() -> None:
    log = make_log(action=np.zeros(50, int), reward=np.ones(50), propensity=np.full(50, 0.5), num_actions=2)
    never = np.tile([0.0, 1.0], (50, 1))
    with pytest.warns(UserWarning, match="no support for the policy") as seen:
        table = ope.evaluate(log, never, np.full((50, 2), 0.25), seed=0, samples=50)
    assert len(seen) == 1  # and none of NumPy's
    by_weight = ["ips", "snips", "ips(max_weight='bound')", "replay"]
    assert table.loc[by_weight, "value":"std_error"].isna().all(axis=None)
    assert (table.loc[["dm", "dr", "sndr", "switch_dr"], "value"] == 0.25).all()
    assert all(np.isnan(estimate(name, log, never)) for name in ("ips", "snips", "sub_gaussian_ips"))
    assert ope.overlap(log, never).warnings == (str(seen[0].message),)


@pytest.mark.filterwarnings("error")
def test_partial_support_is_told() -> None:
    """Of actions that no row has, and of contexts in which the log plays but one action."""
    half = make_log(action=np.zeros(50, int), reward=np.ones(50), propensity=np.full(50, 0.5), num_actions=2)
    with pytest.warns(UserWarning, match=r"only a part of the policy: 50.0% .* no row has \(1\)"):
        table = ope.evaluate(half, np.full((50, 2), 0.5), seed=0, samples=50)
    assert table.loc["ips", "value"] == 1
    action = np.where(np.arange(400) % 2, 0, np.arange(400) // 2 % 2)  # in odd rows always 0
    contexts = make_log(action=action, reward=np.ones(400), propensity=np.where(np.arange(400) % 2, 1.0, 0.5))
    with pytest.warns(UserWarning, match=r"mean weight is 0\.500 .*only a part of the policy"):
        ope.evaluate(contexts, np.tile([0.0, 1.0], (400, 1)), seed=0, samples=50)
    one = make_log(action=[0] * 49 + [1], reward=np.ones(50), propensity=[0.98] * 49 + [0.02])
    table = ope.evaluate(one, np.tile([0.0, 1.0], (50, 1)), seed=0, samples=2)  # neither sample has support
    assert table.loc["snips", "value"] == 1


@pytest.mark.parametrize("off", [1e-7, -1e-7, 9e-6])
def test_probabilities_may_be_rounded(off: float) -> None:
    """One tolerance, for propensities and for targets."""
    log = make_log(action=[0, 1], reward=[1.0, 0.0], propensity=np.array([1 + max(off, 0), 0.5]))
    assert log.propensity.tolist() == [1.0, 0.5]
    target = ope.check_target(log, np.array([[1 + off, 0.0], [1.0, off]]))
    assert (target.probabilities >= 0).all()
    masked = log.replace(mask=np.array([[True, False], [True, True]]))
    assert ope.check_target(masked, np.array([[1.0, abs(off)], [1.0, 0.0]])).probabilities[0, 1] == 0


def test_probabilities_that_are_off_are_refused() -> None:
    with pytest.raises(ValueError, match=r"is 1\.00002 in row 0.*: a propensity must lie in \(0, 1\]"):
        make_log(action=[0, 1], reward=[1.0, 0.0], propensity=[1.00002, 0.5])
    log = make_log(action=[0, 1], reward=[1.0, 0.0], propensity=[0.5, 0.5])
    for row in ([1.00002, 0.0], [1.00002, -0.00002]):
        with pytest.raises(ValueError, match="target, row 1"):
            ope.check_target(log, np.array([[1.0, 0.0], row]))


@pytest.mark.parametrize("names", [None, ("DL", "AA", "UA"), ("uniform", "AA", "7")])
def test_a_policy_is_given_by_what_it_plays(names: Any) -> None:
    """One action, one in each row, or a function of the log; "uniform" is one only where no action has this name."""
    log, place = six(action_names=names), [2, 0, 1, 1, 0, 2]
    given = place if names is None else [names[at] for at in place]
    for target in (given, np.array(given), lambda log: given, lambda log: np.eye(3)[place]):
        np.testing.assert_array_equal(ope.check_target(log, target).probabilities, np.eye(3)[place])
    np.testing.assert_array_equal(ope.check_target(log, str(given[0])).probabilities, np.eye(3)[[2] * 6])
    allowed = MASKED.replace(action_names=names)
    expected = np.array([[0.5, 0.5, 0]] + 5 * [[1 / 3] * 3]) if names is None or "DL" in names else np.eye(3)[[0] * 6]
    np.testing.assert_array_equal(ope.check_target(allowed, "uniform").probabilities, expected)


MASKED = six(mask=np.array([[1, 1, 0]] + [[1, 1, 1]] * 5, bool))


@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        (lambda log: len(log), ValueError, r"got \(\)"),
        ("greedy", ValueError, r"'greedy' is not an action of the log; they are '0', '1', '2'"),
        ([0, 1, 2, 0, 1, 3], ValueError, "'3' is not an action"),
        ([2, 1, 2, 0, 1, 0], ValueError, "row 0: .* masked out"),
        ([0, 1, 2, 0, 1], ValueError, r"got \(5, 3\)"),
        (None, TypeError, "got NoneType"),
        ([[0.5, 0.5], [1.0]], ValueError, "rows of equal lengths"),
        (np.ones(6), ValueError, r"for one action in each row, pass np\.eye\(3\)\[actions\]"),
        (TARGET[:, :2], ValueError, r"must have the probabilities of all actions, \(6, 3\); got \(6, 2\)"),
        (np.where(np.eye(6, 3, -2, bool), -0.1, TARGET), ValueError, "row 2: .* not all >= 0"),
        (TARGET * [[1], [1], [1], [0.5], [1], [1]], ValueError, "row 3: .* do not sum to 1"),
        (np.where(np.eye(6, 3, dtype=bool), np.nan, TARGET), ValueError, "row 0"),
        (TARGET[[0, 0, 0, 0, 0, 0]], ValueError, "row 0: .* masked out"),
    ],
)
def test_what_is_no_policy_is_refused(target: Any, error: Any, message: str) -> None:
    for evaluate in (ope.evaluate, ope.check_target, ope.overlap):
        with pytest.raises(error, match=f"target.* {message}"):
            evaluate(MASKED, target, **({"seed": 0} if evaluate is ope.evaluate else {}))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: ope.evaluate(six(), TARGET, TARGET[:, :2], seed=0), r"predicted must .*\(6, 3\); got \(6, 2\)"),
        (
            lambda: ope.evaluate(six(), TARGET, np.where(np.eye(6, 3, -1, bool), np.nan, PREDICTED), seed=0),
            "predicted, row 1: a predicted reward is not finite",
        ),
        (lambda: ope.evaluate(six(), TARGET, seed=0, samples=1), "samples must be at least 2"),
        (lambda: ope.cross_fit(linear_model(six()), six(), seed=1, folds=1), "folds must lie between 2 .* 6; got 1"),
        (lambda: ope.cross_fit(linear_model(six()), six(), seed=1, folds=7), "folds must lie between 2 .* 6; got 7"),
    ],
)
def test_other_wrong_arguments_are_refused(wrong: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrong()


# The log as a table


def full_log() -> Log:
    """Everything that a log can hold."""
    rng = np.random.default_rng(0)
    mask = np.array([[1, 1, 1], [1, 1, 0], [0, 1, 1], [1, 0, 1], [1, 1, 1], [1, 1, 1]], bool)
    times = pd.to_datetime("2024-03-01") + pd.to_timedelta(np.arange(6) * 1.5, unit="s")
    return six(
        context=rng.normal(size=(6, 2)),
        mask=mask,
        timestamp=times.to_numpy(),
        action_features=rng.normal(size=(6, 3, 2)),
    )


def assert_equal(one: Log, other: Log) -> None:
    for name, left, right in ((name, left, vars(other)[name]) for name, left in vars(one).items()):
        assert (left is None) == (right is None), name
        if left is not None:
            np.testing.assert_array_equal(left, right, err_msg=name)


def test_a_log_survives_its_file(tmp_path: Path) -> None:
    for log in (six(), full_log()):
        log.to_pandas().to_csv(tmp_path / "log.csv", index=False)
        log.save(tmp_path / "log.parquet")
        for path in tmp_path.iterdir():
            assert_equal(Log.load(path), log)
        assert_equal(Log.from_pandas(log.to_pandas()), log)
        assert log.num_actions == 3


@pytest.mark.parametrize("name", ["LOG.CSV", "log.tsv", "Log.Csv.GZ", "log.txt.bz2", "log.csv.xz", "log.csv.zip"])
def test_text_is_known_by_its_name(name: str, tmp_path: Path) -> None:
    table = full_log().to_pandas()
    packed = {"gz": "gzip", "bz2": "bz2", "xz": "xz", "zip": "zip"}.get(name.lower().rpartition(".")[2])
    path, separator = tmp_path / name, "\t" if ".tsv" in name else ","
    table.to_csv(path, index=False, compression=packed, sep=separator)  # pyright: ignore[reportArgumentType]
    assert_equal(Log.load(path), full_log())
    with pytest.raises(ValueError, match=r"with the suffix .*: call it .*\.parquet .* or write another kind"):
        full_log().save(path)
    assert_equal(Log.load(path), full_log())
    chances = pd.DataFrame(TARGET, columns=[f"probability_{i}" for i in range(3)])
    chances.to_csv(path, index=False, compression=packed, sep=separator)  # pyright: ignore[reportArgumentType]
    assert evaluation._is_file(str(path))
    np.testing.assert_array_equal(logs.read_policy(str(path), full_log())[0], TARGET)


@pytest.mark.parametrize("name", ["log", "LOG.PARQUET", "log.pq", "log.2024"])
def test_parquet_is_known_by_its_content(name: str, tmp_path: Path) -> None:
    full_log().save(tmp_path / name)
    assert_equal(Log.load(tmp_path / name), full_log())


def test_files_of_another_kind_are_called_what_they_are(tmp_path: Path) -> None:
    six().to_pandas().to_json(tmp_path / "log.json")
    (tmp_path / "log.parquet.gz").write_bytes(gzip.compress(b"PAR1"))
    (tmp_path / "log.sqlite").write_bytes(b"SQLite format 3\0")
    (tmp_path / "log.csv.gz").write_text("timestamp,action,reward,propensity\n")
    for name, message in (
        ("log.json", r"neither a parquet file nor, by its name, a text file: convert it .*\.csv.*\.gz"),
        ("log.parquet.gz", "neither a parquet file nor"),
        ("log.sqlite", r"is a database: read the log of an OnlineAgent with seqdec\.service\.read_log"),
        ("log.csv.gz", "is damaged .*gzip"),
        (".", "is a folder; give the path of a file in it"),
    ):
        with pytest.raises(ValueError, match=message):
            Log.load(tmp_path / name)
        with pytest.raises(ValueError, match=message):
            logs.read_policy(str(tmp_path / name), full_log())


def test_shared_action_features_and_inputs() -> None:
    log = six(context=np.arange(6.0)[:, None], action_features=np.array([[10.0], [20.0], [30.0]]))
    assert log.action_features is not None and log.action_features.shape == (6, 3, 1)
    np.testing.assert_array_equal(ope.inputs(log)[4], [[4, 10], [4, 20], [4, 30]])
    assert ope.inputs(six(context=np.zeros((6, 2)))).shape == (6, 2)


def change(column: str, row: int, value: Any) -> Any:
    def apply(table: pd.DataFrame) -> pd.DataFrame:
        table[column] = table[column].astype(object)
        table.loc[row, column] = value
        return table.infer_objects()

    return apply


BAD = {
    "missing column": (lambda t: t.drop(columns="propensity"), "there is no column propensity"),
    "missing number": (lambda t: t.drop(columns="context_0"), "no column context_0, but there is context_1"),
    "propensity 0": (change("propensity", 3, 0.0), r"column propensity is 0.0 in row 3: .*in \(0, 1\]"),
    "propensity above 1": (change("propensity", 2, 1.5), r"column propensity is 1.5 in row 2: .*in \(0, 1\]"),
    "propensity unknown": (change("propensity", 2, np.nan), "column propensity is nan in row 2"),
    "reward unknown": (change("reward", 1, np.nan), "column reward is nan in row 1: .*drop rows"),
    "reward a word": (change("reward", 1, "yes"), "column reward is yes in row 1: it is not a number"),
    "unsorted time": (lambda t: t.iloc[[0, 2, 1, 3, 4, 5]], "column timestamp is .* in row 2.* sort the log"),
    "no date": (change("timestamp", 4, "noon"), "column timestamp is noon in row 4: .*ISO 8601"),
    "half an action": (change("action", 0, 0.5), "column action is 0.5 in row 0: .*integers"),
    "negative action": (change("action", 0, -1), "column action is -1 in row 0: actions count from 0"),
    "unknown action": (change("action", 0, 3), "column action is 3 in row 0: actions count from 0 to 2"),
    "forbidden action": (change("mask_0", 0, False), "column action is 0 in row 0: the mask forbids it"),
    "mask unknown": (change("mask_0", 4, np.nan), "column mask is nan in row 4"),
    "context unknown": (change("context_1", 5, np.inf), "column context is inf in row 5: .*finite"),
    "feature unknown": (change("action_2_feature_1", 5, np.nan), "column action features is nan in row 5"),
    "no rows": (lambda t: t.iloc[:0], "at least one row"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_log_is_refused(name: str, tmp_path: Path) -> None:
    spoil, message = BAD[name]
    table = spoil(full_log().to_pandas().astype({"timestamp": str})).reset_index(drop=True)
    with pytest.raises(ValueError, match=message):
        Log.from_pandas(table)
    table.astype({"timestamp": str}).to_csv(tmp_path / "log.csv", index=False)
    with pytest.raises(ValueError, match=rf"log\.csv: .*{message}"):
        Log.load(tmp_path / "log.csv")


@pytest.mark.parametrize("nothing", [None, np.nan, pd.NaT])
def test_a_missing_time_is_told_from_a_malformed_one(nothing: Any) -> None:
    table = full_log().to_pandas()
    days = [f"2024-03-0{day}" for day in range(1, 7)]
    table["timestamp"] = pd.Series([*days[:4], nothing, days[5]], dtype=object)
    with pytest.raises(ValueError, match=r"column timestamp is .* in row 4: a time is missing; drop such rows"):
        Log.from_pandas(table)


@pytest.mark.parametrize("separator", [";", "\t"])
def test_a_wrong_separator_is_named(separator: str, tmp_path: Path) -> None:
    full_log().to_pandas().to_csv(tmp_path / "log.csv", index=False, sep=separator)
    with pytest.raises(ValueError, match="the separator seems to be"):
        Log.load(tmp_path / "log.csv")


def test_no_log_at_all(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no log"):
        Log.load(tmp_path / "log.parquet")
    (tmp_path / "log.parquet").write_text("no parquet")
    with pytest.raises(ValueError, match=r"/log\.parquet is damaged"):
        Log.load(tmp_path / "log.parquet")
    with pytest.raises(ValueError, match="different numbers of actions"):
        six(num_actions=4, mask=np.ones((6, 3), bool))


# Logs of runs


def test_a_run_leaves_a_log_that_values_another_policy() -> None:
    env = envs.gaussian((0.0, 0.5, 1.0), std=0.3)
    agent = seqdec.agents.ekf(env, model=models.MLP(3, ()), policy=seqdec.policies.epsilon_greedy(0.5))
    run = seqdec.run(agent, env, 3000, seed=3, num_seeds=2, diagnostics=("observation",), progress=False)
    log = run.log(4, num_actions=3)
    np.testing.assert_array_equal(log.reward, run.rewards[1].astype(np.float64))
    np.testing.assert_array_equal(log.action, run.actions[1])
    assert log.context.shape == (3000, 1) and log.num_actions == 3
    table = ope.evaluate(log, np.full((3000, 3), 1 / 3), seed=0)
    assert table.loc["ips", "low"] < 0.5 < table.loc["ips", "high"]
    worst = np.tile([1.0, 0.0, 0.0], (3000, 1))
    assert table.loc["ips", "low"] > ope.evaluate(log, worst, seed=0).loc["ips", "high"]


def test_a_masked_run_leaves_masks() -> None:
    env = envs.bernoulli((0.2, 0.5, 0.8), availability=0.5)
    run = seqdec.run(toy_agent(), env, 200, seed=0, diagnostics=("observation",), progress=False)
    log = run.log(0)
    assert log.mask.shape == (200, 3) and not log.mask.all() and log.mask[np.arange(200), log.action].all()
    assert log.context.shape == (200, 1)


def test_runs_that_leave_no_log() -> None:
    run = seqdec.run(toy_agent(), toy_env(), 20, seed=0, progress=False)
    with pytest.raises(ValueError, match='diagnostics=\\("observation",\\)'):
        run.log(0)
    run = seqdec.run(toy_agent(), toy_env(), 20, seed=0, diagnostics=("observation",), progress=False)
    with pytest.raises(ValueError, match="one of the seeds"):
        run.log(7)
    with pytest.raises(ValueError, match="column reward is nan in row 6"):
        run.log(0)


# The command


def test_the_command_reads_the_log_that_a_run_writes(tmp_path: Path, capsys: Any) -> None:
    digits = ["run", "digits", "--agents", "adamw", "--steps", "1500", "--seeds", "1", "--logs"]
    assert cli.main([*digits, "--out", str(tmp_path / "run")]) == 0
    path = tmp_path / "run" / "logs" / "adamw-0.parquet"
    assert not [name for name in pd.read_parquet(tmp_path / "run/runs/adamw/steps.parquet") if "observation" in name]
    options = ["--policy", "uniform", "--model", "lrkf", "--folds", "0", "--samples", "20", "--out", str(tmp_path)]
    assert cli.main(["ope", str(path), *options]) == 0
    printed = capsys.readouterr().out
    assert "dr" in printed and "effective sample size" in printed and "difference: " in printed
    for name in ("estimates.png", "weights.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    table = pd.read_parquet(tmp_path / "estimates.parquet")
    assert list(table.index) == [one.name for one in ope.STANDARD if one.log is Log]
    assert json.loads((tmp_path / "manifest.json").read_text())["options"]["policy"] == "uniform"
    assert abs(table.loc["ips", "value"] - 0.1) < 4 * table.loc["ips", "std_error"]


def test_the_command_reads_a_policy_from_a_file_and_rebuilds_its_report(tmp_path: Path, capsys: Any) -> None:
    full_log().save(tmp_path / "log.parquet")
    chances = full_log().mask / full_log().mask.sum(1, keepdims=True)
    pd.DataFrame(chances, columns=[f"probability_{i}" for i in range(3)]).to_csv(tmp_path / "p.csv", index=False)
    options = ["--model", "linear", "--folds", "2", "--out", str(tmp_path / "out")]
    arguments = ["ope", str(tmp_path / "log.parquet"), *options]
    assert cli.main([*arguments, "--policy", str(tmp_path / "p.csv")]) == 0
    printed = capsys.readouterr().out
    assert "the log itself: 1, standard error 0.58, 6 rows" in printed
    assert "warning: the log is short: 6 rows are worth" in printed
    (tmp_path / "out" / "estimates.csv").unlink()
    assert cli.main(["report", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.strip() == printed.split("\n\nResults")[0].strip()
    assert (tmp_path / "out" / "estimates.csv").is_file()
    assert cli.main([*arguments, "--policy", "epsilon_greedy"]) == 0  # on the model's belief
    chance = pd.read_parquet(tmp_path / "out" / "weights.parquet")["weight"] * full_log().propensity
    explored = 0.05 / full_log().mask.sum(1)
    assert all(np.isclose(chance, explored, rtol=1e-4) | np.isclose(chance, 0.95 + explored, rtol=1e-4))


def test_the_command_compares_a_policy_in_a_file_and_trains_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(evaluation, "_learn", lambda *_: pytest.fail("a model is trained"))
    rng, law = np.random.default_rng(0), np.array([0.6, 0.4])
    action = rng.choice(2, size=2000, p=law)
    reward = (rng.random(2000) < np.array([0.1, 0.3])[action]) * 1.0
    dates = np.datetime64("2026-01-01", "ns") + np.arange(2000) // 50 * np.timedelta64(1, "D")
    log = make_log(action=np.array(["a", "b"])[action], reward=reward, propensity=law[action], timestamp=dates)
    log.save(tmp_path / "log.parquet")
    for name, b, more in (("new", 0.6, {"predicted_a": 0.1, "predicted_b": 0.3}), ("old", 0.2, {})):
        columns = {"probability_a": np.full(2000, 1 - b), "probability_b": b, **more}
        pd.DataFrame(columns).to_parquet(tmp_path / f"{name}.parquet")
    out, new, old = tmp_path / "out", str(tmp_path / "new.parquet"), str(tmp_path / "old.parquet")
    start = ["ope", str(tmp_path / "log.parquet"), "--policy", new, "--samples", "50", "--out", str(out)]
    for options, begins, estimator, windows in (
        ([], "Better by 0.0", "snips", 5),
        (["--baseline", old, "--window", "10D"], "Better by 0.0", "sndr", 4),
        (["--policy", "uniform", "--baseline", new, "--window", "1000"], "Worse by 0.0", "snips", 2),
        (["--anytime", "--reward-range", "0,1"], "Better by 0.0", "ips", 5),
    ):
        assert cli.main([*start, *options]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith(begins) and lines[1].startswith("difference: ")
        told = json.loads((out / "manifest.json").read_text())["comparison"]
        assert told["estimator"] == estimator and told["decision"] == begins.split()[0].lower()
        assert len(pd.read_csv(out / "windows.csv")) == windows
        assert (out / "difference.png").read_bytes().startswith(b"\x89PNG")
    assert pd.read_csv(out / "sequence.csv")["rows"].iloc[-1] == 2000
    plain = json.loads((out / "manifest.json").read_text())["comparison"]["difference"]
    users = pd.read_parquet(tmp_path / "log.parquet").assign(user=np.arange(2000) // 20)
    users.to_csv(tmp_path / "users.csv", index=False)
    assert cli.main(["ope", str(tmp_path / "users.csv"), "--groups", "user", *start[2:]]) == 0
    assert json.loads((out / "manifest.json").read_text())["comparison"]["difference"] != plain
    unseen = users.assign(reward=users["reward"].where(users["reward"] != 0))  # only clicks are written
    unseen.to_csv(tmp_path / "users.csv", index=False)
    assert cli.main(["ope", str(tmp_path / "users.csv"), "--reward-default", "0", "--anytime", *start[2:]]) == 0
    assert json.loads((out / "manifest.json").read_text())["comparison"]["difference"] == plain
    capsys.readouterr()
    for options, message in (
        (["--reward-range", "1"], "reward_range must be two numbers, such as 0,1"),
        (["--baseline", "epsilon_greedy"], "unknown baseline 'epsilon_greedy'"),
        (["--groups", "user"], "has no column 'user'"),
        (["--baseline", old, "--anytime"], "leave out baseline"),
    ):
        assert cli.main([*start, *options]) in (1, 2)
        assert message in capsys.readouterr().err


@pytest.mark.extended
def test_the_command_reads_the_log_of_an_online_agent_and_leaves_it_alone(tmp_path: Path, capsys: Any) -> None:
    site = SimpleNamespace(observation_space=spaces.Box(-5, 5, (2,)), action_space=spaces.Discrete(2))
    folder = tmp_path / "site"

    def report(path: Path, *options: str) -> tuple[int, str]:
        given = ["--policy", "uniform", "--model", "linear", "--folds", "2", "--samples", "20", *options]
        code = cli.main(["ope", str(path), *given, "--out", str(tmp_path / "out")])
        said = capsys.readouterr()
        return code, said.out + said.err

    with seqdec.OnlineAgent(seqdec.agents.linear, site, seed=0, folder=folder) as service:
        for step in range(40):
            decision = service.decide([1.0, step % 3])
            service.learn(decision.token, decision.action)
        assert "40 rows" in report(folder)[1]  # while it is in use
        service.learn(service.decide([1.0, 0.0]).token, 1.0)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    shutil.copy(folder / "decisions.sqlite", tmp_path / "a copy #1.db")
    for path in (folder, folder / "decisions.sqlite", tmp_path / "a copy #1.db"):
        code, said = report(path)
        assert code == 0 and "41 rows" in said
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files
    refused = f"seqdec: actions: {folder} has 2 actions; got 3; leave the option out\n"
    assert report(folder, "--actions", "3") == (1, refused)
    sqlite3.connect(tmp_path / "other.db").executescript("CREATE TABLE sales (price REAL)").close()
    code, said = report(tmp_path / "other.db")
    assert code == 1 and "is not the log of an OnlineAgent; its tables are ['sales']" in said


def test_the_command_tells_of_missing_support(tmp_path: Path, capsys: Any) -> None:
    make_log(action=[0] * 20, reward=[1.0, 0.0] * 10, propensity=[0.5] * 20, num_actions=2).replace(
        mask=np.ones((20, 2), bool)
    ).save(tmp_path / "log.parquet")
    pd.DataFrame({"probability_0": [0.0] * 20, "probability_1": 1.0}).to_csv(tmp_path / "p.csv", index=False)
    options = ["--policy", str(tmp_path / "p.csv"), "--model", "linear", "--folds", "2", "--out", str(tmp_path / "out")]
    assert cli.main(["ope", str(tmp_path / "log.parquet"), *options]) == 0
    said = capsys.readouterr()
    assert "warning: the log has no support for the policy" in said.out and "NaN" in said.out
    assert said.out.count("no support") == 1 and said.err == ""


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["log.parquet", "--policy", "gredy"], 2, "'greedy'"),
        (["log.parquet", "--folds", "1"], 2, "folds must be 0"),
        (["nowhere.parquet"], 2, "log: no such file or folder: HERE/nowhere.parquet"),
        (["log.parquet", "--policy", "bts"], 2, "available only for open-bandit"),
        (["log.parquet", "--policy", "nowhere.csv"], 2, "policy: no such file or folder: HERE/nowhere.csv"),
    ],
)
def test_the_command_complains(
    arguments: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    full_log().save("log.parquet")
    assert cli.main(["ope", *arguments, "--out", "out"]) == code
    err = capsys.readouterr().err
    assert message.replace("HERE", str(tmp_path)) in err
    assert len(err.splitlines()) == 1 and not Path("out/estimates.csv").exists()
