"""`seqdec.minimize`: how long calls take, and what ends a search."""

import math
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqdec
from seqdec.bo import BayesianOptimizer

BOX = [(0.0, 1.0), (0.0, 1.0)]
OPTIONS: dict[str, Any] = {"n_calls": 5, "seed": 0, "initial": 100, "progress": False}


class Clock:
    """The clock by which calls are timed; each call of `fun` takes as many seconds as its number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.calls = 100.0, 0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(time, "time", lambda: self.now)

    def fun(self, x: Any) -> float:
        self.calls += 1
        self.now += self.calls
        if self.calls == 2:
            raise ArithmeticError
        return math.nan if self.calls == 3 else float(x[0])


@pytest.mark.parametrize("kind", ["one", "threads"])
def test_the_seconds_of_each_call_are_in_the_result_and_in_the_file(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock = Clock(monkeypatch)
    with ThreadPoolExecutor(1) as executor:
        workers = {"one": 1, "threads": executor}[kind]
        result = seqdec.minimize(
            clock.fun, BOX, x0=[0.5, 0.5], y0=1.0, workers=workers, catch=ArithmeticError, **OPTIONS
        )
    np.testing.assert_array_equal(result.seconds, [math.nan, 1, 2, 3, 4, 5])
    result.optimizer.save(tmp_path / "study")
    table = BayesianOptimizer.load(tmp_path / "study").trials_dataframe()
    np.testing.assert_array_equal(table["seconds"], result.seconds)
    assert table.columns[-1] == "seconds" and table["seconds"].dtype == float


@pytest.mark.parametrize(("seconds", "error"), [(-1.0, ValueError), (math.nan, ValueError), ("1", TypeError)])
def test_impossible_seconds_are_refused(seconds: Any, error: type[Exception]) -> None:
    optimizer = BayesianOptimizer(BOX, seed=0)
    trial = optimizer.ask()
    with pytest.raises(error, match="seconds"):
        optimizer.tell(trial, 1.0, seconds=seconds)
    assert len(optimizer.evaluations()[0]) == 0


def first(x: Any) -> float:
    return float(x[0])


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("workers", [1, "threads"])
def test_a_target_ends_the_search(workers: Any, sign: int) -> None:
    search, values = (seqdec.minimize, [5.0, 4.0, 2.0, 3.0]) if sign > 0 else (seqdec.maximize, [1.0, 2.0, 4.0, 3.0])
    told = iter(values)
    with ThreadPoolExecutor(1) as executor:
        workers = executor if workers == "threads" else workers
        result = search(lambda x: next(told), BOX, workers=workers, target=values[2] + sign * 0.5, **OPTIONS)
    assert (result.status, result.success, result.nfev, result.fun) == (10, True, 3, values[2])
    assert result.message.startswith("target reached: 3 calls made")


def test_a_target_that_is_known_needs_no_call_and_one_of_several_objectives_is_for_all_of_them() -> None:
    result = seqdec.minimize(lambda x: pytest.fail("called"), BOX, x0=[0.5, 0.5], y0=1.0, target=1.0, **OPTIONS)
    assert (result.status, result.success, result.nfev, result.fun) == (10, True, 0, 1.0)
    told = iter([[0.0, 5.0], [2.0, 3.0], [0.5, 4.0]])
    result = seqdec.minimize(
        lambda x: next(told), BOX, objectives=2, maximize=[False, True], target=[1.0, 4.0], **OPTIONS
    )
    assert (result.status, result.nfev) == (10, 1)
    told = iter([[2.0, 5.0], [0.5, 3.0], [0.5, 4.0]])
    result = seqdec.minimize(
        lambda x: next(told), BOX, objectives=2, maximize=[False, True], target=[1.0, 4.0], **OPTIONS
    )
    assert (result.status, result.nfev) == (10, 3)


@pytest.mark.parametrize(
    ("values", "nfev", "status"),
    [
        ([5, 4, 4, 4.5, 3], 4, 11),  # an equal value is no improvement
        ([5, math.nan, math.nan, 1], 3, 11),
        ([math.nan, math.nan, math.nan, 1, 2, 3], 5, 0),  # nothing to improve on
        ([5, 4, 3, 3, 2], 5, 0),
    ],
)
def test_patience_counts_calls_without_an_improvement(values: list[float], nfev: int, status: int) -> None:
    told = iter(values)
    result = seqdec.minimize(lambda x: next(told), BOX, patience=2, **OPTIONS)
    assert (result.nfev, result.status, result.success) == (nfev, status, True)
    assert status == 0 or result.message.startswith(f"2 calls without an improvement (patience=2): {nfev} calls made")


def test_only_feasible_values_are_improvements_and_reach_a_target() -> None:
    told = [(1.0, [1.0]), (5.0, [0.0]), (0.0, [0.5]), (4.0, [1.0]), (3.0, [-1.0])]
    values = iter(told)
    result = seqdec.minimize(lambda x: next(values), BOX, outcome_constraints=1, patience=2, target=2.0, **OPTIONS)
    assert (result.status, result.nfev, result.fun) == (11, 4, 5.0)
    values = iter(told)
    result = seqdec.minimize(lambda x: next(values), BOX, outcome_constraints=1, target=3.0, **OPTIONS)
    assert (result.status, result.nfev, result.fun) == (10, 5, 3.0)


def test_patience_with_several_objectives_is_for_the_front() -> None:
    told = iter([[1.0, 5.0], [5.0, 1.0], [3.0, 3.0], [4.0, 4.0], [3.0, 3.0]])
    result = seqdec.minimize(lambda x: next(told), BOX, objectives=2, patience=2, **OPTIONS | {"n_calls": 8})
    assert (result.status, result.nfev, len(result.x)) == (11, 5, 4)  # equal points are all kept


@pytest.mark.parametrize("kind", ["one", "batch", "threads"])
def test_no_call_begins_after_the_time_limit(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    def fun(x: Any) -> float:
        clock.now += 4
        return first(x)

    with ThreadPoolExecutor(1) as executor:
        workers = {"threads": executor}.get(kind, 1)
        batch = 1 if kind == "one" else 3
        result = seqdec.minimize(fun, BOX, workers=workers, batch_size=batch, time_limit=6, **OPTIONS)
    assert (result.nfev, result.status, result.success) == (2, 9, True)  # at 0 and 4 seconds
    assert result.message.startswith("time_limit of 6 seconds over: 2 calls made")
    states = result.optimizer.trials_dataframe()["state"].tolist()
    assert states == ["complete"] * 2 + ["pending"] * (len(states) - 2)


def test_a_search_without_time_has_no_result_and_goes_on_later(tmp_path: Path) -> None:
    path = tmp_path / "study"
    result = seqdec.minimize(first, BOX, time_limit=1e-9, checkpoint=path, **OPTIONS)
    assert (result.nfev, result.status, result.success, result.x) == (0, 9, False, None)
    result = seqdec.minimize(first, BOX, checkpoint=path, **OPTIONS)
    assert (result.nfev, result.status) == (5, 0)
    failed = seqdec.minimize(lambda x: math.nan, BOX, time_limit=600, **OPTIONS)
    assert (failed.status, failed.success) == (1, False)


@pytest.mark.parametrize("stop", [True, np.True_])
def test_a_callback_that_returns_true_ends_the_search(stop: Any) -> None:
    answers = iter([None, 1.0, stop])
    result = seqdec.minimize(first, BOX, callback=lambda x: next(answers), **OPTIONS)
    assert (result.nfev, result.status, result.success) == (3, 2, False)
    assert result.message.startswith("callback returned True")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"target": math.nan}, ValueError, "target must be finite; got"),
        ({"target": "1"}, TypeError, "target must be a number; got '1'"),
        ({"target": [1.0, 2.0]}, TypeError, "target must be a number"),
        (
            {"target": 1.0, "objectives": 2},
            ValueError,
            "target must be a sequence of 2 numbers",
        ),
        ({"patience": 0}, ValueError, "patience"),
        ({"patience": 1.5}, TypeError, "patience"),
        ({"time_limit": 0}, ValueError, "time_limit"),
        ({"time_limit": "1"}, TypeError, "time_limit"),
    ],
)
def test_limits_that_cannot_be_are_refused(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        seqdec.minimize(lambda x: pytest.fail("called"), BOX, **OPTIONS, **options)
