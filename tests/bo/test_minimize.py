"""`minimize`: its result, callbacks, what ends it, and calls that fail."""

import contextlib
import functools
import logging
import math
import os
import pickle
import subprocess
import threading
import time
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import OptimizeResult

import seqdec
from seqdec.bo import BayesianOptimizer
from seqdec.executors import Local
from tests.bo.common import BOX, BRANIN, QUICK, SQUARE, minimum
from tests.test_executors import happens, has_ended

OPTIONS: dict[str, Any] = {"n_calls": 6, "initial": 100}
"""All points are of the design, so that nothing is compiled."""


# Results


def test_minimize_answers_as_scipy_does() -> None:
    calls = []
    result = minimum(lambda x: calls.append(x) or BRANIN(x))
    assert isinstance(result, OptimizeResult) and result.success and result.status == 0
    assert result.nfev == len(calls) == len(result.x_iters) == 8 and result.message.startswith("8 calls made")
    assert result.fun == min(result.func_vals) == BRANIN(result.x) and result.x.shape == (2,)
    assert (result.surrogate, result.acquisition, result.seed) == ("gp", "log_expected_improvement", 0)
    np.testing.assert_array_equal(np.array(calls), np.array(result.x_iters))
    assert len(result.optimizer.trials_dataframe()) == 8


def test_maximize_is_minimize_of_the_negative() -> None:
    down = minimum(BRANIN)
    up = seqdec.maximize(lambda x: -BRANIN(x), BOX, n_calls=8, seed=0, search=QUICK, progress=False)
    assert up.x.tolist() == down.x.tolist() and up.fun == -down.fun


def test_one_call_and_a_seed_that_was_not_given() -> None:
    result = minimum(BRANIN, n_calls=1, seed=None)
    assert result.nfev == 1 and result.success
    assert minimum(BRANIN, n_calls=1, seed=result.seed).x.tolist() == result.x.tolist()


def test_starting_points() -> None:
    known = minimum(BRANIN, x0=[[math.pi, 2.275], [0, 0]], y0=[0.397887, 55.6], n_calls=3)
    assert known.nfev == 3 and len(known.func_vals) == 5 and known.fun <= 0.397887
    asked = minimum(BRANIN, x0=[1.0, 2.0], n_calls=2)
    assert asked.x_iters[0].tolist() == [1.0, 2.0] and asked.nfev == 2


def test_processes_give_what_one_gives() -> None:
    def fun(x: Any) -> float:
        if x[0] > 3:
            raise ValueError("too large")
        return float(x[0] ** 2 + x[1])

    options: Any = {"n_calls": 6, "batch_size": 3, "catch": ValueError}
    alone, together = (minimum(fun, workers=workers, **options) for workers in (1, 2))
    np.testing.assert_array_equal(alone.func_vals, together.func_vals)
    assert np.isnan(alone.func_vals).any() and "ValueError: too large" in set(
        together.optimizer.trials_dataframe()["reason"]
    )


# Callbacks


def test_callbacks_of_both_forms() -> None:
    results, points = [], []
    minimum(BRANIN, n_calls=3, callback=lambda intermediate_result: results.append(intermediate_result))
    minimum(BRANIN, n_calls=3, callback=points.append)
    assert [result.nfev for result in results] == [1, 2, 3]
    assert [result.fun for result in results] == [BRANIN(x) for x in points]

    def stop(xk: Any) -> None:
        raise StopIteration

    result = minimum(BRANIN, callback=stop)
    assert (result.status, result.nfev, result.success) == (2, 1, False) and np.isfinite(result.fun)


@pytest.mark.parametrize("callback", [3, lambda: None, lambda x, y: None, lambda *, other: None])
def test_a_callback_that_cannot_be_called_is_refused_before_anything_is_evaluated(callback: Any) -> None:
    with pytest.raises(TypeError, match="callback must"):
        minimum(lambda x: pytest.fail("evaluated"), callback=callback)


def test_an_exception_of_the_callback_loses_nothing() -> None:
    def broken(x: Any) -> None:
        broken.calls += 1
        if broken.calls == 3:
            raise OSError("no space left")

    broken.calls = 0
    with pytest.warns(RuntimeWarning, match="callback raised OSError: no space left; the search ends after 3 calls"):
        result = minimum(BRANIN, callback=broken)
    assert (result.status, result.success, result.nfev) == (6, False, 3) and np.isfinite(result.func_vals).all()
    assert result.message.startswith("callback raised OSError") and isinstance(result.error, OSError)
    assert result.error.__traceback__ is not None and result.optimizer.ask().number == 3


@pytest.mark.parametrize("stop", [True, np.True_])
def test_a_callback_that_returns_true_ends_the_search(stop: Any) -> None:
    answers = iter([None, 1.0, stop])
    result = minimum(first, callback=lambda x: next(answers), **OPTIONS)
    assert (result.nfev, result.status, result.success) == (3, 2, False)
    assert result.message.startswith("callback returned True")


# Limits


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


def first(x: Any) -> float:
    return float(x[0])


@pytest.mark.parametrize("kind", ["one", "threads"])
def test_the_seconds_of_each_call_are_in_the_result_and_in_the_file(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock = Clock(monkeypatch)
    with ThreadPoolExecutor(1) as executor:
        workers = {"one": 1, "threads": executor}[kind]
        result = minimum(clock.fun, x0=[0.5, 0.5], y0=1.0, workers=workers, catch=ArithmeticError, **OPTIONS)
    np.testing.assert_array_equal(result.seconds, [math.nan, 1, 2, 3, 4, 5, 6])
    result.optimizer.save(tmp_path / "study")
    table = BayesianOptimizer.load(tmp_path / "study").trials_dataframe()
    np.testing.assert_array_equal(table["seconds"], result.seconds)
    assert table.columns[-1] == "seconds" and table["seconds"].dtype == float


@pytest.mark.parametrize(("seconds", "error"), [(-1.0, ValueError), (math.nan, ValueError), ("1", TypeError)])
def test_impossible_seconds_are_refused(seconds: Any, error: type[Exception]) -> None:
    optimizer = BayesianOptimizer(BOX, seed=0)
    with pytest.raises(error, match="seconds"):
        optimizer.tell(optimizer.ask(), 1.0, seconds=seconds)
    assert len(optimizer.evaluations()[0]) == 0


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("workers", [1, "threads"])
def test_a_target_ends_the_search(workers: Any, maximize: bool) -> None:
    values, target = ([1.0, 2.0, 4.0, 3.0], 3.5) if maximize else ([5.0, 4.0, 2.0, 3.0], 2.5)
    told = iter(values)
    with ThreadPoolExecutor(1) as executor:
        workers = executor if workers == "threads" else workers
        result = minimum(lambda x: next(told), workers=workers, target=target, maximize=maximize, **OPTIONS)
    assert (result.status, result.success, result.nfev, result.fun) == (10, True, 3, values[2])
    assert result.message.startswith("target reached: 3 calls made")


def test_a_target_that_is_known_needs_no_call_and_one_of_several_objectives_is_for_all_of_them() -> None:
    result = minimum(lambda x: pytest.fail("called"), x0=[0.5, 0.5], y0=1.0, target=1.0, **OPTIONS)
    assert (result.status, result.success, result.nfev, result.fun) == (10, True, 0, 1.0)
    for values, calls in (([[0.0, 5.0]], 1), ([[2.0, 5.0], [0.5, 3.0], [0.5, 4.0]], 3)):
        told, options = iter(values), {"objectives": 2, "maximize": [False, True], "target": [1.0, 4.0]}
        result = minimum(lambda x, told=told: next(told), **options, **OPTIONS)
        assert (result.status, result.nfev) == (10, calls)


@pytest.mark.parametrize(
    ("values", "nfev", "status"),
    [
        ([5, 4, 4, 4.5, 3], 4, 11),  # an equal value is no improvement
        ([5, math.nan, math.nan, 1], 3, 11),
        ([math.nan, math.nan, math.nan, 1, 2, 3], 6, 0),  # nothing to improve on at first
        ([5, 4, 3, 3, 2, 2], 6, 0),
    ],
)
def test_patience_counts_calls_without_an_improvement(values: list[float], nfev: int, status: int) -> None:
    told = iter(values)
    result = minimum(lambda x: next(told), patience=2, **OPTIONS)
    assert (result.nfev, result.status, result.success) == (nfev, status, True)
    assert status == 0 or result.message.startswith(f"2 calls without an improvement (patience=2): {nfev} calls made")


def test_the_last_calls_are_at_the_best_point_until_values_are_equal() -> None:
    """Then the search goes on."""
    exact, noisy, generator = [], [], np.random.default_rng(0)

    def bowl(x: Any, called: list[Any]) -> float:
        called.append(tuple(x))
        return float(np.sum((x - np.array([1.3, 2.7])) ** 2)) + (called is noisy) * 3 * generator.standard_normal()

    for called in (exact, noisy):
        result = minimum(lambda x, called=called: bowl(x, called), n_calls=12, repeats=3)
    assert len(set(exact)) == 11 and exact[9] in exact[:9]
    assert all(x in noisy[:9] for x in noisy[9:]) and result.kind == "predicted"
    exact.clear(), noisy.clear()
    for called in (exact, noisy):
        minimum(lambda x, called=called: bowl(x, called), n_calls=24)
    assert len(set(exact)) == 24 and len(set(noisy)) <= 23 and all(x in noisy[:22] for x in noisy[22:])


def test_only_feasible_values_are_improvements_and_reach_a_target() -> None:
    told = [(1.0, [1.0]), (5.0, [0.0]), (0.0, [0.5]), (4.0, [1.0]), (3.0, [-1.0])]
    for limits, found in (({"patience": 2, "target": 2.0}, (11, 4, 5.0)), ({"target": 3.0}, (10, 5, 3.0))):
        values = iter(told)
        result = minimum(lambda x, values=values: next(values), outcome_constraints=1, **limits, **OPTIONS)
        assert (result.status, result.nfev, result.fun) == found


def test_patience_with_several_objectives_is_for_the_front() -> None:
    told = iter([[1.0, 5.0], [5.0, 1.0], [3.0, 3.0], [4.0, 4.0], [3.0, 3.0]])
    result = minimum(lambda x: next(told), objectives=2, patience=2, **OPTIONS)
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
        result = minimum(fun, workers=workers, batch_size=batch, time_limit=6, **OPTIONS)
    assert (result.nfev, result.status, result.success) == (2, 9, True)  # at 0 and 4 seconds
    assert result.message.startswith("time_limit of 6 seconds over: 2 calls made")
    states = result.optimizer.trials_dataframe()["state"].tolist()
    assert states == ["complete"] * 2 + ["pending"] * (len(states) - 2)


def test_a_search_without_time_has_no_result_and_goes_on_later(tmp_path: Path) -> None:
    path = tmp_path / "study"
    result = minimum(first, time_limit=1e-9, checkpoint=path, **OPTIONS)
    assert (result.nfev, result.status, result.success, result.x) == (0, 9, False, None)
    result = minimum(first, checkpoint=path, **OPTIONS)
    assert (result.nfev, result.status) == (6, 0)
    failed = minimum(lambda x: math.nan, time_limit=600, **OPTIONS)
    assert (failed.status, failed.success) == (1, False)


def test_too_many_failures_in_a_row_end_it_with_what_is_known() -> None:
    def fun(x: Any) -> float:
        fun.calls += 1
        return BRANIN(x) if fun.calls == 1 else math.nan

    fun.calls = 0
    result = minimum(fun, max_failures=3, **OPTIONS)
    assert (result.status, result.success, result.nfev) == (1, False, 4) and np.isfinite(result.fun)
    assert result.message.startswith("3 calls in a row failed, the last with: value nan")
    fun.calls = 1
    nothing = minimum(fun, n_calls=2)
    assert nothing.x is None and math.isnan(nothing.fun) and not nothing.success
    assert nothing.message.startswith("all 2 calls failed")


def test_ctrl_c_keeps_what_is_done() -> None:
    def fun(x: Any) -> float:
        fun.calls += 1
        if fun.calls == 4:
            raise KeyboardInterrupt
        return BRANIN(x)

    fun.calls = 0
    result = minimum(fun)
    assert (result.status, result.nfev, result.success) == (3, 3, False) and np.isfinite(result.fun)
    fun.calls = 3
    with pytest.raises(KeyboardInterrupt):
        minimum(fun)


# Calls that fail


class Unpicklable(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


@dataclass(frozen=True)
class Frozen(Exception):
    code: int


class Faulty:
    """A function that raises from its third call on, from the first where processes do not share the count."""

    def __init__(self, error: Exception, healthy: int = 2) -> None:
        self.error, self.healthy = error, healthy

    def __call__(self, x: Any) -> float:
        if self.healthy:
            self.healthy -= 1
            return float(x[0])
        raise self.error


class InThread(Executor):
    """Completes a task when it is submitted."""

    workers = 3

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class Pickled(InThread):
    """Its results come from elsewhere."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(pickle.loads(pickle.dumps(fn(*args, **kwargs))))
        return future


class Ended(InThread):
    """Completes its first task only; cancelling ends the others while they run, as `seqdec.executors.Local` does."""

    def __init__(self) -> None:
        self.first = True

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.first:
            self.first = False
            return super().submit(fn, *args, **kwargs)
        return Running()


class Running(Future[Any]):
    def cancel(self) -> bool:
        self.set_exception(CancelledError())
        return True


@pytest.mark.parametrize("bad", [math.nan, math.inf, ZeroDivisionError("no"), "text"])
def test_a_failing_call_is_survived(bad: Any) -> None:
    calls = []

    def fun(x: Any) -> Any:
        calls.append(x)
        if len(calls) not in (2, 5):
            return BRANIN(x)
        if isinstance(bad, Exception):
            raise bad
        return bad

    result = minimum(fun, catch=(ZeroDivisionError, TypeError))
    assert result.success and np.flatnonzero(np.isnan(result.func_vals)).tolist() == [1, 4]
    words = {"no": "ZeroDivisionError: no", "text": "TypeError"}
    assert result.optimizer.trials_dataframe()["reason"][1].startswith(words.get(str(bad), "value"))
    assert (result.traceback is None) == isinstance(bad, float)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("workers", "batch_size", "evaluated"), [(1, 1, 3), (1, 3, 3), (InThread(), 4, 4)])
@pytest.mark.parametrize("kind", [KeyError, StopIteration, BrokenExecutor, Frozen, TypeError])
def test_a_bug_of_the_function_is_raised_with_what_was_evaluated(
    kind: type[Exception], workers: Any, batch_size: int, evaluated: int
) -> None:
    error = kind(3)
    with pytest.raises(kind) as caught:
        minimum(Faulty(error), workers=workers, batch_size=batch_size, **OPTIONS)
    assert caught.value is error and "Faulty" in str(caught.traceback[-1].frame.code.raw.co_qualname)
    result = vars(error)["search_result"]
    assert (result.nfev, result.status, result.success) == (evaluated, 8, False)
    assert np.isfinite(result.func_vals).tolist() == [True, True] + [False] * (evaluated - 2)
    assert result.fun == result.func_vals[:2].min() and result.optimizer.ask().number >= evaluated
    call, attached = vars(error)["__notes__"]
    assert call.startswith("seqdec: call 3 of fun, at array([") and "in `search_result` of" in attached


def test_an_exception_of_another_process_is_raised_with_its_traceback() -> None:
    with pytest.raises(KeyError, match="'a'") as caught:
        minimum(Faulty(KeyError("a")), workers=Pickled(), **OPTIONS)
    notes = "".join(caught.value.__notes__)
    assert "raised in a worker process:\nTraceback" in notes and "in __call__" in notes
    with pytest.raises(RuntimeError, match="Unpicklable: both parts"):
        minimum(Faulty(Unpicklable("both ", "parts")), workers=Pickled(), **OPTIONS)


@pytest.mark.parametrize("workers", [1, InThread(), Pickled()])
@pytest.mark.parametrize("error", [KeyError("a"), Unpicklable("both ", "parts")])
def test_what_is_caught_is_a_failed_trial_and_logged(
    error: Exception, workers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "seqdec"):
        result = minimum(Faulty(error), workers=workers, batch_size=2, catch=(OSError, type(error)), **OPTIONS)
    assert result.success and result.nfev == 6 and np.isnan(result.func_vals[2:]).all()
    table = result.optimizer.trials_dataframe()
    assert table["state"].tolist() == ["complete"] * 2 + ["failed"] * 4
    assert table["reason"][5] == f"{type(error).__name__}: {error}"
    assert result.traceback.startswith("Traceback") and f"{type(error).__name__}: {error}" in result.traceback
    messages = [record.getMessage() for record in caplog.records]
    assert [message.partition(" of fun")[0] for message in messages] == [f"call {n} failed"[:6] for n in range(3, 7)]
    assert [("Traceback" in message) for message in messages] == [True, False, False, False]


def test_one_class_is_caught_with_its_subclasses_and_nothing_else() -> None:
    assert minimum(Faulty(KeyError()), catch=LookupError, **OPTIONS).success
    with pytest.raises(KeyError):
        minimum(Faulty(KeyError()), catch=(IndexError, OSError), **OPTIONS)
    for catch in (KeyboardInterrupt, BaseException, (ValueError, 3), "ValueError", None, ValueError()):
        with pytest.raises(TypeError, match="catch must be a subclass of Exception, such as ValueError, or several"):
            minimum(lambda x: pytest.fail("evaluated"), catch=catch)


def test_what_is_not_a_number_is_an_error_of_the_function() -> None:
    for returned in (None, "text", [1.0, 2.0], object(), 1j):
        with pytest.raises(TypeError, match="the value of fun must be a number; got"):
            minimum(lambda x, returned=returned: returned, **OPTIONS)


def test_whatever_ends_the_search_keeps_what_was_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = BayesianOptimizer.ask

    def broken(self: Any) -> Any:
        if len(self.trials) == 4:
            raise MemoryError
        return ask(self)

    monkeypatch.setattr(BayesianOptimizer, "ask", broken)
    with pytest.raises(MemoryError) as caught:
        minimum(first, **OPTIONS)
    assert vars(caught.value)["search_result"].nfev == 4

    def leave(x: Any) -> float:
        raise SystemExit

    monkeypatch.undo()
    with pytest.raises(SystemExit) as left:
        minimum(leave, x0=[0.5, 0.5], y0=0.5, **OPTIONS)
    assert vars(left.value)["search_result"].func_vals.tolist() == [0.5]


def test_an_interrupted_search_keeps_what_others_have_completed() -> None:
    def interrupt(x: Any) -> None:
        raise KeyboardInterrupt

    result = minimum(first, workers=InThread(), callback=interrupt, **OPTIONS)
    assert (result.status, result.nfev) == (3, 3) and np.isfinite(result.func_vals).all()

    result = minimum(first, workers=Ended(), callback=interrupt, **OPTIONS)
    assert result.optimizer.trials_dataframe()["state"].tolist() == ["complete", "pending", "pending"]

    def in_worker(x: Any) -> float:
        raise KeyboardInterrupt

    with ThreadPoolExecutor(1) as executor, pytest.raises(KeyboardInterrupt):
        minimum(in_worker, workers=executor, **OPTIONS)


def hanging(folder: str, x: Any) -> float:
    """Hangs, with a process that it has started, unless x is small."""
    if x[0] < 0.5:
        return float(x[0])
    child = subprocess.Popen(["sleep", "100000"])
    for pid in (child.pid, os.getpid()):
        (Path(folder) / f"hung-{pid}").touch()
    threading.Event().wait()
    return 0.0


def hung(folder: Path) -> list[int]:
    return [int(path.name.removeprefix("hung-")) for path in folder.glob("hung-*")]


STARTS = [[0.1, 0.0], [0.9, 0.0], [0.2, 0.0], [0.8, 0.0], [0.3, 0.0]]


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["number", "executor"])
def test_a_call_that_hangs_is_ended_and_counts_as_failed(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fun = functools.partial(hanging, str(tmp_path))
    options = {**OPTIONS, "n_calls": 5, "x0": STARTS}
    with contextlib.ExitStack() as held, caplog.at_level(logging.WARNING, "seqdec"):
        if kind == "executor":
            executor = held.enter_context(Local(1, call_timeout=0.5))
            result = minimum(fun, SQUARE, workers=executor, **options)
            assert executor.submit(pow, 2, 3).result() == 8  # in the place of the worker that was ended
        else:
            result = minimum(fun, SQUARE, workers=held.enter_context(Local(2, call_timeout=0.5)), **options)
    assert result.success and (result.nfev, result.fun) == (5, 0.1)
    assert np.isnan(result.func_vals).tolist() == [False, True, False, True, False]
    reasons = result.optimizer.trials_dataframe()["reason"]
    message = "TimeoutError: the call took longer than call_timeout=0.5 seconds; its worker process was ended"
    assert reasons[1] == reasons[3] == message and message in result.traceback
    assert sum(message in record.getMessage() for record in caplog.records) == 2
    assert len(hung(tmp_path)) == 4 and happens(lambda: all(map(has_ended, hung(tmp_path))))


# Refusals


def never(*_: Any) -> float:
    pytest.fail("evaluated")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_calls": 0}, ValueError, "n_calls must be at least 1; got 0"),
        ({"n_calls": 2.5}, TypeError, "n_calls must be an integer"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1"),
        ({"workers": 0}, ValueError, "workers must be a number of processes"),
        ({"x0": [11.0, 0.0]}, ValueError, r"x\[0\] = 11.0 lies outside the bounds"),
        ({"y0": [1.0]}, ValueError, "pass x0 as well"),
        ({"x0": [[0, 1], [1, 1]], "y0": [1.0]}, ValueError, "one value for each of the 2 points"),
        ({"x0": [[i, 1] for i in range(9)]}, ValueError, "x0 holds 9 points, but n_calls is 8"),
        ({"bounds": [(1, 0), (0, 1)]}, ValueError, "low <= high"),
        ({"fun": 3}, TypeError, "fun must be callable"),
        ({"x0": ["3.5", "1"]}, TypeError, r"x\[0\] must be a number; got '3.5'"),
        ({"x0": [1.0, 2.0], "y0": "3.5"}, TypeError, "a value of y0 must be a number; got"),
        ({"nonsense": 3}, TypeError, "nonsense"),
        ({"target": math.nan}, ValueError, "target must be finite; got"),
        ({"target": "1"}, TypeError, "target must be a number; got '1'"),
        ({"target": 1.0, "objectives": 2}, ValueError, "target must be a sequence of 2 numbers"),
        ({"patience": 0}, ValueError, "patience"),
        ({"patience": 1.5}, TypeError, "patience"),
        ({"repeats": -1}, ValueError, "repeats"),
        (
            {"repeats": 2, "objectives": 2},
            ValueError,
            "repeats=2 needs one objective without fidelity",
        ),
        ({"time_limit": 0}, ValueError, "time_limit"),
        ({"time_limit": "1"}, TypeError, "time_limit"),
    ],
)
def test_bad_calls_are_refused_before_anything_is_evaluated(options: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        minimum(**{"fun": never, "bounds": BOX, **options})


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), "5", [5]])
def test_a_call_timeout_is_a_number_of_seconds(seconds: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="call_timeout must"):
        Local(1, call_timeout=seconds)
