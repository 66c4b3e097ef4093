"""Settings that `optax.inject_hyperparams` leaves alone without being told: integers, masks and functions."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from optax import ScalarOrSchedule

P = ParamSpec("P")
R = TypeVar("R")


class _Static:
    """A value that is neither a number nor a function."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        """That of the value."""
        return repr(self.value)


class _Signature(inspect.Signature):
    """Binds integers and functions as `_Static`, but for parameters annotated as numbers (Any) or schedules.

    `optax.inject_hyperparams` binds arguments by it, makes arrays of those that are numbers, and calls functions with
    the number of the step.
    """

    def bind(self, *args: Any, **kwargs: Any) -> inspect.BoundArguments:
        """All arguments, those with defaults too."""
        bound = super().bind(*args, **kwargs)
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            moving = self.parameters[name].annotation in (Any, ScalarOrSchedule)
            if not moving and (type(value) is int or callable(value)):
                bound.arguments[name] = _Static(value)
        return bound


def injectable(function: Callable[P, R], signature: inspect.Signature | None = None) -> Callable[P, R]:
    """`function` for `optax.inject_hyperparams` without `static_args`; None is its own signature."""
    signature = inspect.signature(function) if signature is None else signature
    inner: Any = function  # any names of arguments

    @functools.wraps(function)
    def injected(*args: P.args, **kwargs: P.kwargs) -> R:
        def plain(value: Any) -> Any:
            return value.value if isinstance(value, _Static) else value

        return inner(*map(plain, args), **{name: plain(value) for name, value in kwargs.items()})

    bound = _Signature(list(signature.parameters.values()), return_annotation=signature.return_annotation)
    vars(injected)["__signature__"] = bound
    return injected
