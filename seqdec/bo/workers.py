"""Calls of the function, here, in other processes or an executor."""

import contextlib
import inspect
import math
import pickle
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from typing import Any, NamedTuple, TypeAlias

import cloudpickle

from seqdec.bo.fidelity import Grid
from seqdec.bo.space import containers
from seqdec.bo.trials import Outputs, Trial
from seqdec.boundary import checks
from seqdec.executors import Local


class Outcome(NamedTuple):
    """Outcome of a call of `fun`."""

    value: Any
    outcomes: Any
    reason: str
    """of a failure, else empty"""
    traceback: str = ""
    """of an exception"""
    raised: "Raised | None" = None
    """an exception not to be caught"""
    seconds: float | None = None
    """of the call; None: unknown"""
    units: int | None = None
    """values made of a learning curve, else None"""


class Raised:
    """An exception on its way from `fun`, from another process with its traceback."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        reason = f"{type(self.error).__name__}: {self.error}"
        try:
            pickled = cloudpickle.dumps(self.error)
            pickle.loads(pickled)
        except Exception:
            pickled = cloudpickle.dumps(RuntimeError(reason))
        return _arrived, (pickled, "".join(traceback.format_exception(self.error)))


def _arrived(pickled: bytes, text: str) -> Raised:
    error = pickle.loads(pickled)
    note(error, f"raised in a worker process:\n{text}")
    return Raised(error)


def note(error: BaseException, text: str) -> None:
    """`error.add_note(text)`, also where attributes cannot be set."""
    vars(error).setdefault("__notes__", []).append(text)


class Call(NamedTuple):
    """The function and how to call it."""

    fun: Callable[..., Any]
    outputs: Outputs
    catch: tuple[type[Exception], ...]
    deadline: float
    grid: Grid | None = None
    """of the fidelity"""
    curves: bool = False
    """whether it yields learning curves"""

    def __call__(self, trial: Trial) -> Outcome | None:
        """The outcome at a trial; None if too late."""
        if time.time() >= self.deadline:
            return None
        if self.grid is not None and self.curves:
            return _followed(self, self.grid, trial)
        return _called(self, trial)


def _called(how: Call, trial: Trial) -> Outcome:
    outputs, catch, level = how.outputs, how.catch, () if how.grid is None else (trial.fidelity,)
    x, began = containers.copied(trial.x), time.perf_counter()
    try:
        returned = how.fun(x, *level)
    except Exception as error:
        return failed(error, catch, time.perf_counter() - began)
    seconds = time.perf_counter() - began
    try:
        value, outcomes = outputs.split(returned)
        values, found = outputs.values(value, "the value of fun"), outputs.outcomes(outcomes)
    except Exception as error:
        return failed(error, catch, seconds)
    finite = all(map(math.isfinite, (*values, *found)))
    value = values if outputs.objectives > 1 else values[0]
    return Outcome(value, found or None, "" if finite else outputs.described(values, found), seconds=seconds)


def _followed(how: Call, grid: Grid, trial: Trial) -> Outcome:
    """The outcome of a learning curve."""
    x, began, curve = containers.copied(trial.x), time.perf_counter(), list[float]()
    try:
        returned = how.fun(x)
        if not inspect.isgenerator(returned):
            raise TypeError(
                f"fun(x) must yield its values one by one, being a generator, or be fun(x, fidelity); it returned "
                f"{returned!r}"
            )
        with contextlib.closing(returned):
            for value in returned:
                curve.append(checks.real("a value that fun yields", value))
                hopeless = (
                    trial.forecast is not None and len(curve) in grid.levels and trial.forecast.is_hopeless(curve)
                )
                if hopeless or not math.isfinite(curve[-1]) or len(curve) == trial.fidelity:
                    break
    except Exception as error:
        return failed(error, how.catch, time.perf_counter() - began)._replace(units=len(curve))
    reason = "" if not curve or math.isfinite(curve[-1]) else how.outputs.described((curve[-1],), ())
    if not reason and len(curve) < grid.levels[-1]:
        reason = f"fun yielded {len(curve)} values, and the lowest level is {grid.levels[-1]}"
    return Outcome(None if reason else curve, None, reason, seconds=time.perf_counter() - began, units=len(curve))


def failed(error: Exception, catch: tuple[type[Exception], ...], seconds: float | None) -> Outcome:
    """The outcome of a call that raised after so many seconds."""
    raised, text = None if isinstance(error, catch) else Raised(error), "".join(traceback.format_exception(error))
    return Outcome(None, None, f"{type(error).__name__}: {error}", text, raised, seconds)


Evaluated: TypeAlias = tuple[Trial, Outcome | None]


class Workers:
    """The evaluation of trials by `call`: (trial) -> Outcome, or None where it was too late.

    `catch`: exceptions of a worker that make a failed call.
    """

    def __init__(
        self,
        call: Callable[[Trial], Outcome | None],
        workers: int | Executor,
        catch: tuple[type[Exception], ...],
    ) -> None:
        self._call, self._workers, self._catch = call, workers, catch
        self.unclaimed: Iterator[Evaluated] = iter(())
        """Trials evaluated, but not handed out."""

    def evaluated(self, goes_on: Callable[[], bool], ask: Callable[[int], list[Trial]]) -> Generator[Evaluated]:
        """Trials and outcomes: own processes evaluate batches, an executor continuously.

        `ask`: (trials under evaluation) -> further trials; none where all have been asked.
        """
        if self._workers == 1:
            while goes_on() and (batch := ask(0)):
                yield from ((trial, self._call(trial)) for trial in batch)
            return
        pending: dict[Future[Outcome | None], Trial] = {}
        self.unclaimed = self._completed(pending)
        with contextlib.ExitStack() as cleanup:
            if isinstance(self._workers, Executor):
                executor, in_batches = self._workers, False
            else:
                number = None if self._workers == -1 else self._workers
                executor, in_batches = Local(number), True
                cleanup.callback(executor.shutdown, cancel_futures=True)
            cleanup.callback(lambda: [future.cancel() for future in pending])
            while goes_on():
                while trials := ask(len(pending)):
                    pending |= {executor.submit(self._call, trial): trial for trial in trials}
                    if in_batches:
                        break
                if not pending:
                    return
                done = wait(pending, return_when=ALL_COMPLETED if in_batches else FIRST_COMPLETED).done
                # The values before the news that the executor has broken.
                for future in sorted(done, key=lambda one: (_broken(one), pending[one].number)):
                    yield pending.pop(future), self._outcome(future)

    def _completed(self, pending: dict[Future[Outcome | None], Trial]) -> Iterator[Evaluated]:
        for future, trial in pending.items():
            if future.done() and not _broken(future):
                yield trial, self._outcome(future)

    def _outcome(self, future: Future[Outcome | None]) -> Outcome | None:
        """An exception of a future is that of its transport."""
        if not _broken(future) and isinstance(error := future.exception(), Exception):
            return failed(error, (*self._catch, TimeoutError), None)  # TimeoutError: the executor ended the call
        return future.result()


def _broken(future: Future[Outcome | None]) -> bool:
    return future.cancelled() or isinstance(future.exception(), BrokenExecutor | CancelledError)
