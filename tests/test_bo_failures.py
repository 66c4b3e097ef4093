"""Failing calls: exceptions of the function that `minimize` calls, and what failures say of other points."""

import contextlib
import functools
import logging
import math
import os
import pickle
import subprocess
import threading
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import seqdec
from seqdec.bo import BayesianOptimizer, Categorical, Conditional, Real, Search
from seqdec.bo.acquisition import failures
from seqdec.executors import Local
from seqdec.runtime import one_blas_thread
from tests.test_executors import happens, has_ended

ROOT = Path(__file__).resolve().parents[1]
BOX = [(0.0, 1.0), (0.0, 1.0)]
OPTIONS: dict[str, Any] = {"n_calls": 6, "seed": 0, "initial": 100, "progress": False}


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


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("workers", "batch_size", "evaluated"), [(1, 1, 3), (1, 3, 3), (InThread(), 4, 4)])
@pytest.mark.parametrize("kind", [KeyError, StopIteration, BrokenExecutor, Frozen, TypeError])
def test_a_bug_of_the_function_is_raised_with_what_was_evaluated(
    kind: type[Exception], workers: Any, batch_size: int, evaluated: int
) -> None:
    error = kind(3)
    with pytest.raises(kind) as caught:
        seqdec.minimize(Faulty(error), BOX, workers=workers, batch_size=batch_size, **OPTIONS)
    assert caught.value is error and "Faulty" in str(caught.traceback[-1].frame.code.raw.co_qualname)
    result = vars(error)["search_result"]
    assert (result.nfev, result.status, result.success) == (evaluated, 8, False)
    assert np.isfinite(result.func_vals).tolist() == [True, True] + [False] * (evaluated - 2)
    assert result.fun == result.func_vals[:2].min() and result.optimizer.ask().number >= evaluated
    call, attached = vars(error)["__notes__"]
    assert call.startswith("seqdec: call 3 of fun, at array([") and "in `search_result` of" in attached


def test_an_exception_of_another_process_is_raised_with_its_traceback() -> None:
    with pytest.raises(KeyError, match="'a'") as caught:
        seqdec.minimize(Faulty(KeyError("a")), BOX, workers=Pickled(), **OPTIONS)
    notes = "".join(caught.value.__notes__)
    assert "raised in a worker process:\nTraceback" in notes and "in __call__" in notes
    with pytest.raises(RuntimeError, match="Unpicklable: both parts"):
        seqdec.minimize(Faulty(Unpicklable("both ", "parts")), BOX, workers=Pickled(), **OPTIONS)


@pytest.mark.parametrize("workers", [1, InThread(), Pickled()])
@pytest.mark.parametrize("error", [KeyError("a"), Unpicklable("both ", "parts")])
def test_what_is_caught_is_a_failed_trial_and_logged(
    error: Exception, workers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "seqdec"):
        result = seqdec.minimize(
            Faulty(error), BOX, workers=workers, batch_size=2, catch=(OSError, type(error)), **OPTIONS
        )
    assert result.success and result.nfev == 6 and np.isnan(result.func_vals[2:]).all()
    table = result.optimizer.trials_dataframe()
    assert table["state"].tolist() == ["complete"] * 2 + ["failed"] * 4
    assert table["reason"][5] == f"{type(error).__name__}: {error}"
    assert result.traceback.startswith("Traceback") and f"{type(error).__name__}: {error}" in result.traceback
    messages = [record.getMessage() for record in caplog.records]
    assert [message.partition(" of fun")[0] for message in messages] == [f"call {n} failed"[:6] for n in range(3, 7)]
    assert [("Traceback" in message) for message in messages] == [True, False, False, False]


def test_one_class_is_caught_with_its_subclasses_and_nothing_else() -> None:
    assert seqdec.minimize(Faulty(KeyError()), BOX, catch=LookupError, **OPTIONS).success
    with pytest.raises(KeyError):
        seqdec.minimize(Faulty(KeyError()), BOX, catch=(IndexError, OSError), **OPTIONS)
    assert seqdec.maximize(Faulty(KeyError()), BOX, catch={KeyError}, **OPTIONS).traceback is not None


@pytest.mark.parametrize("catch", [KeyboardInterrupt, BaseException, (ValueError, 3), "ValueError", None, ValueError()])
def test_only_exceptions_can_be_caught(catch: Any) -> None:
    with pytest.raises(TypeError, match="catch must be a subclass of Exception, such as ValueError, or several; got"):
        seqdec.minimize(lambda x: pytest.fail("evaluated"), BOX, catch=catch, **OPTIONS)


@pytest.mark.parametrize("returned", [None, "text", [1.0, 2.0], object(), b"1", 1j, {}])
def test_what_is_not_a_number_is_an_error_of_the_function(returned: Any) -> None:
    with pytest.raises(TypeError, match="the value of fun must be a number; got"):
        seqdec.minimize(lambda x: returned, BOX, **OPTIONS)


def test_whatever_ends_the_search_keeps_what_was_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = BayesianOptimizer.ask

    def broken(self: Any) -> Any:
        if len(self.trials) == 4:
            raise MemoryError
        return ask(self)

    monkeypatch.setattr(BayesianOptimizer, "ask", broken)
    with pytest.raises(MemoryError) as caught:
        seqdec.minimize(lambda x: x[0], BOX, **OPTIONS)
    assert vars(caught.value)["search_result"].nfev == 4

    def leave(x: Any) -> float:
        raise SystemExit

    monkeypatch.undo()
    with pytest.raises(SystemExit) as left:
        seqdec.minimize(leave, BOX, x0=[0.5, 0.5], y0=0.5, **OPTIONS)
    assert vars(left.value)["search_result"].func_vals.tolist() == [0.5]


def test_an_interrupted_search_keeps_what_others_have_completed() -> None:
    def interrupt(x: Any) -> None:
        raise KeyboardInterrupt

    result = seqdec.minimize(lambda x: x[0], BOX, workers=InThread(), callback=interrupt, **OPTIONS)
    assert (result.status, result.nfev) == (3, 3) and np.isfinite(result.func_vals).all()

    result = seqdec.minimize(lambda x: x[0], BOX, workers=Ended(), callback=interrupt, **OPTIONS)
    assert result.optimizer.trials_dataframe()["state"].tolist() == ["complete", "pending", "pending"]

    def in_worker(x: Any) -> float:
        raise KeyboardInterrupt

    with ThreadPoolExecutor(1) as executor, pytest.raises(KeyboardInterrupt):
        seqdec.minimize(in_worker, BOX, workers=executor, **OPTIONS)


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
            result = seqdec.minimize(fun, BOX, workers=executor, **options)
            assert executor.submit(pow, 2, 3).result() == 8  # in the place of the worker that was ended
        else:
            result = seqdec.minimize(fun, BOX, workers=2, batch_size=3, call_timeout=0.5, **options)
    assert result.success and (result.nfev, result.fun) == (5, 0.1)
    assert np.isnan(result.func_vals).tolist() == [False, True, False, True, False]
    reasons = result.optimizer.trials_dataframe()["reason"]
    message = "TimeoutError: the call took longer than call_timeout=0.5 seconds; its worker process was ended"
    assert reasons[1] == reasons[3] == message and message in result.traceback
    assert sum(message in record.getMessage() for record in caplog.records) == 2
    assert len(hung(tmp_path)) == 4 and happens(lambda: all(map(has_ended, hung(tmp_path))))


@pytest.mark.parametrize(
    ("workers", "message"),
    [
        (
            1,
            r"workers=1 calls fun in this process: pass workers=2 or more, or .*Local\(1, call_timeout=5\)",
        ),
        (InThread(), "workers that are a number of processes; got .*InThread"),
    ],
)
def test_a_call_timeout_needs_processes(workers: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        seqdec.minimize(lambda x: pytest.fail("evaluated"), BOX, workers=workers, call_timeout=5, **OPTIONS)


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), "5", [5]])
def test_a_call_timeout_is_a_number_of_seconds(seconds: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="call_timeout must"):
        seqdec.minimize(lambda x: pytest.fail("evaluated"), BOX, workers=2, call_timeout=seconds, **OPTIONS)
    with pytest.raises((TypeError, ValueError), match="call_timeout must"):
        Local(1, call_timeout=seconds)


def probability(state: Any, *points: Any) -> np.ndarray:
    with jax.enable_x64(True):
        return np.exp([float(failures.log_success(state, jnp.array(point))) for point in points])


def test_the_probability_of_a_success_has_the_border_that_failures_show() -> None:
    x = np.random.default_rng(0).random((40, 2))
    x[30:] = [(0.5 + side * 10.0**-k, 0.5) for k in range(1, 6) for side in (-1, 1)]  # as a search comes close to it
    state = failures.fit(x, x[:, 0] < 0.5, 64)
    within, beyond = probability(state, (0.1, 0.5), (0.3, 0.5)), probability(state, (0.7, 0.5), (0.9, 0.5))
    assert within.min() > 0.95 and beyond.max() < 0.05


@one_blas_thread()
def test_failures_at_random_or_none_say_nothing_of_points() -> None:
    x = np.random.default_rng(0).random((60, 3))
    assert failures.fit(x, np.ones(60, bool), 64) is None
    assert all(failures.fit(x, np.random.default_rng(seed).random(60) > 0.1, 64) is None for seed in range(10))
    failed = np.argsort(np.sum((x - 0.5) ** 2, 1))[:6]  # as many, side by side
    assert failures.fit(x, ~np.isin(np.arange(60), failed), 64) is not None


@pytest.mark.parametrize("good", [lambda x: x[:, 0] < 0.5, lambda x: np.arange(len(x)) == 0, lambda x: x[:, 0] < 2])
def test_points_that_repeat_with_either_result_leave_the_probability_finite(good: Any) -> None:
    x = np.repeat(np.random.default_rng(0).random((6, 2)), 5, 0)
    ok = good(x)
    ok[::5] = ~ok[::5]
    for hyper in (failures._hyperparameters(2, scale, variance) for scale in (0.1, 3.2) for variance in (10.0, 1e8)):
        found = failures._posterior(hyper, x, ok)
        assert np.isfinite(found.evidence) and found.evidence < 0
        assert np.isfinite(found.weights).all() and np.isfinite(found.whiten).all()


def beyond_fails(x: Any) -> float:
    """The squared distance to (0.8, 0.4), of which the half with that point fails: the minimum is 0.02."""
    return math.nan if x[0] + x[1] > 1 else (x[0] - 0.8) ** 2 + (x[1] - 0.4) ** 2


@pytest.mark.extended
@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_minimum_on_the_border_of_failures_is_found(seed: int) -> None:
    result = seqdec.minimize(beyond_fails, BOX, n_calls=30, seed=seed, progress=False)
    assert result.fun - 0.02 < 1e-3 and result.nfev == 30


NAMED = {"x": Real(0.0, 1.0), "y": Real(0.0, 1.0), "z": Conditional(Real(0.0, 1.0), on="kind", values=("a",))}
KINDS = [(BOX, {}), (BOX, {"surrogate": "hilofi"}), (BOX, {"acquisition": "ucb"}), (BOX, {"outcome_constraints": 1})]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("bounds", "options"), [*KINDS, (NAMED | {"kind": Categorical(("a", "b"))}, {})])
def test_questions_of_every_kind_keep_to_where_calls_succeed(bounds: Any, options: dict[str, Any]) -> None:
    optimizer = BayesianOptimizer(bounds, seed=0, capacity=32, search=Search(64, 4, steps=10), **options)
    generator, named = np.random.default_rng(0), isinstance(bounds, dict)
    for _ in range(24):
        u, v, w = generator.random(3)
        point = {"x": u, "y": v, "z": w, "kind": "a"} if named else [u, v]
        outcomes = [-1.0] if optimizer.outputs.outcome_constraints and u < 0.5 else None
        optimizer.tell(point, -u if u < 0.5 else None, outcomes=outcomes)
    asked = optimizer.ask(fixed={"kind": "a"} if named else None).x
    assert (asked["x"] if named else asked[0]) < 0.6
