"""Methods of a service whose calls take turns."""

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from seqdec.runtime import check_process


class Locked(Protocol):
    """What has such methods."""

    _lock: Any

    def _ease(self) -> None:
        """Do what is due, in steps between which other calls go on."""
        ...

    def _alone(self, in_haste: bool, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """What a method returns, for the thread that has the lock."""
        ...


P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=Locked)


def exclusive(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """For one thread at a time, after what an exception has left undone and what is due.

    Raises RuntimeError once the agent is closed, and in a forked process.
    """
    return _locked(method, in_haste=False)


def urgent(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """As `exclusive`, but does only a little of what is due."""
    return _locked(method, in_haste=True)


def _locked(method: Callable[Concatenate[S, P], R], *, in_haste: bool) -> Callable[Concatenate[S, P], R]:
    @functools.wraps(method)
    def alone(self: S, *arguments: P.args, **named: P.kwargs) -> R:
        check_process()
        if not in_haste:
            self._ease()
        # On one line: a tracer or debugger that raises at the start of a line then leaves no lock behind.
        with self._lock: return self._alone(in_haste, method, *arguments, **named)  # fmt: skip  # noqa: E701

    return alone
