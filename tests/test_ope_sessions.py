"""Sessions of several decisions: estimators on all sessions that can happen, tables, and what is refused."""

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from seqdec import ope

STEPS, GAMMA = 3, 0.9
rng = np.random.default_rng(0)
REWARDS = rng.normal(size=(2, 2))  # of a state and an action
MOVES = rng.dirichlet([1, 1, 1], (2, 2))  # to both states, or the end
LOGGING, TARGET = rng.dirichlet([2, 2], 2), rng.dirichlet([2, 2], 2)
PATH = list[tuple[int, int, int]]
"""(state, action, next state or 2 for the end)"""


def paths(policy: np.ndarray) -> list[tuple[float, PATH]]:
    """All sessions with their probabilities; they begin in state 0 and end after three steps at the latest."""
    found: list[tuple[float, PATH]] = []

    def go(chance: float, path: PATH, state: int) -> None:
        for action, following in itertools.product(range(2), range(3)):
            likely = chance * policy[state, action] * MOVES[state, action, following]
            longer = [*path, (state, action, following)]
            if following == 2 or len(longer) == STEPS:
                found.append((likely, longer))
            else:
                go(likely, longer, following)

    go(1.0, [], 0)
    return found


def value(gamma: float) -> float:
    return sum(p * sum(gamma**t * REWARDS[s, a] for t, (s, a, _) in enumerate(path)) for p, path in paths(TARGET))


def logged(some: list[PATH]) -> tuple[ope.EpisodeLog, np.ndarray]:
    """The log of sessions, and the target's probabilities. Contexts are one-hot states at each step."""
    rows = [(number, t, s, a) for number, path in enumerate(some) for t, (s, a, _) in enumerate(path)]
    session, t, state, action = np.array(rows).T
    steps = ope.make_log(
        action=action,
        reward=REWARDS[state, action],
        propensity=LOGGING[state, action],
        context=np.eye(2 * STEPS)[2 * t + state],
        num_actions=2,
    )
    return ope.EpisodeLog(steps, session), TARGET[state]


def drawn(count: int, seed: int) -> tuple[ope.EpisodeLog, np.ndarray]:
    chances, every = zip(*paths(LOGGING), strict=True)
    return logged([every[i] for i in np.random.default_rng(seed).choice(len(every), count, p=np.array(chances))])


@pytest.mark.parametrize("name", ["pdis", "sequential_dr"])
@pytest.mark.parametrize("gamma", [GAMMA, 1.0, 0.0])
def test_over_all_sessions_the_mean_is_the_value(name: str, gamma: float) -> None:
    """Whatever is predicted; weighted by the probabilities of the sessions under the logging policy."""
    chances, every = zip(*paths(LOGGING), strict=True)
    log, target = logged(list(every))
    assert set(log.lengths) == {1, 2, 3} and abs(sum(chances) - 1) < 1e-12
    predicted = np.random.default_rng(1).normal(size=(2 * STEPS, 2))[log.steps.context.argmax(axis=1)]
    given = ope.evidence(log, target, predicted, seed=0)
    for normalized in (False, True):
        above, below = ope.REGISTRY.make(name, gamma=gamma, normalized=normalized).terms(given).columns
        found = np.sum((chances @ above) / (chances @ below))
        assert abs(found - value(gamma)) < 1e-12


def test_predicted_returns_are_those_of_the_model_of_the_world_and_make_errors_smaller() -> None:
    log, target = drawn(3000, 0)
    predicted = ope.predict_returns(log, target, seed=0, gamma=GAMMA)
    first = log.place == 0
    assert abs((target * predicted).sum(axis=1)[first].mean() - value(GAMMA)) < 0.05
    estimators = [ope.PDIS(gamma=GAMMA), ope.SequentialDR(gamma=GAMMA), ope.SequentialDR(gamma=GAMMA, normalized=True)]
    table = ope.evaluate(log, target, predicted, seed=0, estimators=estimators)
    assert np.all((table["low"] < value(GAMMA)) & (value(GAMMA) < table["high"]))
    assert table["std_error"].iloc[1:].max() < 0.6 * table["std_error"].iloc[0]
    assert ope.overlap(log, target).verdict.startswith("The log can decide")
    sizes = ope.effective_sessions(log, target)
    w = ope.evidence(log, target, seed=0).weights
    np.testing.assert_allclose(sizes, w.sum(axis=0) ** 2 / (w**2).sum(axis=0))
    assert (np.diff(sizes) < 0).all()


@pytest.mark.parametrize("normalized", [False, True])
def test_intervals_hold(normalized: bool) -> None:
    """By the influence of each session, over 400 logs of 200 sessions."""
    found = []
    for seed in range(400):
        log, target = drawn(200, seed)
        terms = ope.PDIS(normalized=normalized).terms(ope.evidence(log, target, seed=0))
        found.append((terms.value, terms.std_error))
    points, errors = np.array(found).T
    assert 0.91 < (abs(points - value(1.0)) < 1.96 * errors).mean() < 0.98


def test_sessions_are_slices_masks_and_rows_of_a_table() -> None:
    log, target = drawn(50, 1)
    table = log.steps.to_pandas().drop(columns="timestamp").assign(user=[f"u{9 - s}" for s in log.session % 10])
    table = table.assign(user=[f"user {s}" for s in log.session], page=log.place, timestamp=range(len(log.session)))
    shuffled = table.sort_values("page", kind="stable").reset_index(drop=True)
    read = ope.EpisodeLog.from_pandas(shuffled, session="user", step="page", num_actions=2)
    np.testing.assert_array_equal(read.session, log.session)
    np.testing.assert_array_equal(read.steps.context, log.steps.context)
    ordered = ope.EpisodeLog.from_pandas(table, session="user", step=None, num_actions=2)
    np.testing.assert_array_equal(ordered.steps.action, log.steps.action)
    whole = ope.PDIS().terms(ope.evidence(log, target, seed=0)).numerator
    for chosen in (slice(10, 20), np.arange(50) % 3 == 0, [4, 2, 2], 7):
        part = log[chosen]
        rows = np.concatenate([np.flatnonzero(log.session == one) for one in np.atleast_1d(np.arange(50)[chosen])])
        assert (
            len(part) == np.size(np.arange(50)[chosen])
            and part.steps.reward.tolist() == log.steps.reward[rows].tolist()
        )
        np.testing.assert_allclose(
            ope.PDIS().terms(ope.evidence(part, target[rows], seed=0)).numerator, np.atleast_1d(whole[chosen])
        )
    assert len(log[[]]) == 0
    with pytest.raises(IndexError):
        log[50]


TABLE = pd.DataFrame(
    {"session": ["a", "a", "b"], "step": [0, 1, 0], "action": [0, 1, 1], "reward": 1.0, "propensity": 0.5}
)


@pytest.mark.parametrize(
    ("table", "options", "error", "message"),
    [
        (TABLE.assign(step=[0, 0, 0]), {}, ValueError, "column step is 0 in row 1: its session has two decisions"),
        (
            TABLE.assign(session=["a", None, "b"]),
            {},
            ValueError,
            "column session is .* in row 1.*must belong to a session",
        ),
        (TABLE.drop(columns="step"), {}, ValueError, "there is no column step.*step="),
        (TABLE.assign(reward=[1, 2, np.nan]), {}, ValueError, "column reward is nan in row 2"),
        (TABLE, {"time": "step"}, TypeError, "ordered by step"),
    ],
)
def test_tables_that_are_no_sessions_are_refused(table: Any, options: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        ope.EpisodeLog.from_pandas(table, **options)


def test_what_does_not_fit_is_refused() -> None:
    log, target = drawn(20, 0)
    for call, error, message in (
        (lambda: ope.PDIS(gamma=1.5), ValueError, r"gamma must lie in \[0, 1\]; got 1.5"),
        (lambda: ope.evaluate(log, target[:5], seed=0), ValueError, r"target must have .*got \(5, 2\)"),
        (
            lambda: ope.evaluate(log, target, seed=0, estimators="snips"),
            ValueError,
            "snips is for a Log; got a EpisodeLog",
        ),
        (lambda: ope.evaluate(log, target, seed=0, estimators="sequential_dr"), ValueError, "needs predicted"),
        (lambda: ope.predict_returns(log, target, seed=0, folds=21), ValueError, "number of sessions, 20; got 21"),
        (lambda: ope.predict_returns(log, target, seed=0, gamma=2.0), ValueError, "gamma"),
        (
            lambda: ope.predict_returns(log, target, seed=0, model=HistGradientBoostingClassifier()),
            TypeError,
            "regressor of scikit-learn",
        ),
    ):
        with pytest.raises(error, match=message):
            call()
    long = ope.EpisodeLog(
        ope.make_log(action=[0, 1] * 100, reward=[1] * 200, propensity=[0.5] * 200), np.zeros(200, int)
    )
    with pytest.raises(ValueError, match="sessions of fewer than 100 steps; got 200"):
        ope.evaluate(long, np.full((200, 2), 0.5), seed=0, estimators="pdis(normalized=True)")
