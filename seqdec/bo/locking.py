"""One thread at a time."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from seqdec.runtime import apart, check_process

F = TypeVar("F", bound=Callable[..., Any])


def one_at_a_time(method: F) -> F:
    """Decorator: hold the lock while the method runs."""

    @functools.wraps(method)
    def locked(self: Any, *args: Any, **kwargs: Any) -> Any:
        check_process()
        with self._lock, apart():
            return method(self, *args, **kwargs)

    return locked  # pyright: ignore[reportReturnType] (of the same signature)
