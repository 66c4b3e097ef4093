"""Settings that `optax.inject_hyperparams` leaves alone without being told: integers, masks and functions."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar

from optax import ScalarOrSchedule

P = ParamSpec("P")
R = TypeVar("R")


class _Static(NamedTuple):
    """A value that is neither a number nor a function."""

    value: Any


class _Signature(inspect.Signature):
    """Binds integers and functions as `_Static`, but for parameters annotated as numbers (Any) or schedules.

    `optax.inject_hyperparams` binds arguments by it, makes arrays of those that are numbers, and calls functions with
    the number of the step.
    """

    def bind(self, *args: Any, **kwargs: Any) -> inspect.BoundArguments:
        bound = super().bind(*args, **kwargs)
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            moving = self.parameters[name].annotation in (Any, ScalarOrSchedule)
            if not moving and (type(value) is int or callable(value)):
                bound.arguments[name] = _Static(value)
        return bound


def injectable(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, which `optax.inject_hyperparams` takes without `static_args`."""
    inner: Any = function  # any names of arguments

    @functools.wraps(function)
    def injected(*args: P.args, **kwargs: P.kwargs) -> R:
        plain: Any = {key: value.value if isinstance(value, _Static) else value for key, value in kwargs.items()}
        return inner(*args, **plain)

    signature = inspect.signature(function)
    vars(injected)["__signature__"] = _Signature(list(signature.parameters.values()))
    return injected
