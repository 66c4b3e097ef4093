"""One call of the function: its outcome, and exceptions on their way from another process."""

import math
import pickle
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import cloudpickle

from seqdec.bo.outputs import Outputs
from seqdec.bo.space import containers


class Outcome(NamedTuple):
    """What a call of `fun` gave."""

    value: Any
    outcomes: Any
    reason: str
    """of a failure, else empty"""
    traceback: str = ""
    """of an exception"""
    raised: "Raised | None" = None
    """an exception that is not to be caught"""
    seconds: float | None = None
    """that the call took; None where its worker did not say"""


class Raised:
    """An exception on its way from `fun`; from another process with its traceback as a note."""

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
    """The exception of another process."""
    error = pickle.loads(pickled)
    note(error, f"raised in a worker process:\n{text}")
    return Raised(error)


def note(error: BaseException, text: str) -> None:
    """`error.add_note(text)`, also for exceptions whose attributes cannot be set."""
    vars(error).setdefault("__notes__", []).append(text)


def call(
    fun: Callable[[Any], Any], outputs: Outputs, catch: tuple[type[Exception], ...], deadline: float, x: Any
) -> Outcome | None:
    """The outcome of a call, a failure if it raises or a number is not finite; None, uncalled, after the deadline."""
    if time.time() >= deadline:
        return None
    x, began = containers.copied(x), time.perf_counter()
    try:
        returned = fun(x)
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


def failed(error: Exception, catch: tuple[type[Exception], ...], seconds: float | None) -> Outcome:
    """The outcome of a call that raised after so many seconds, None where they are not known."""
    raised, text = None if isinstance(error, catch) else Raised(error), "".join(traceback.format_exception(error))
    return Outcome(None, None, f"{type(error).__name__}: {error}", text, raised, seconds)
