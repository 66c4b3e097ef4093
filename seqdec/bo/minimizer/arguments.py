"""The arguments of `seqdec.minimize`, checked."""

import contextlib
import inspect
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from numbers import Integral
from typing import TYPE_CHECKING, Any

from seqdec import checks
from seqdec.bo.fidelity import Grid
from seqdec.bo.outputs import Outputs
from seqdec.bo.space import containers
from seqdec.bo.space.spaces import Space
from seqdec.executors import width

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult


def number_at_a_time(asked: int | None, workers: Any) -> int:
    """How many points are under evaluation at a time."""
    if asked is not None:
        return checks.count("batch_size", asked)
    number = width(workers) if isinstance(workers, Executor) else 1
    if number is None:
        raise ValueError(f"batch_size must say how many points {workers!r} evaluates at a time")
    return number


def check_calls(fun: Any, workers: Any) -> None:
    """Raises TypeError or ValueError for a function that cannot be called, or for what are no workers."""
    if not callable(fun):
        raise TypeError(f"fun must be callable; got {fun!r}")
    if isinstance(workers, Executor) or callable(workers):
        return
    if isinstance(workers, bool) or not isinstance(workers, Integral) or (workers < 1 and workers != -1):
        raise ValueError(
            f"workers must be a number of processes, -1 for one on each core, an executor or a map; got {workers!r}"
        )


def yields_curves(fun: Callable[..., Any], grid: Grid | None) -> bool:
    """Whether `fun`, with these levels, takes x alone and yields learning curves; else it takes x and a level.

    Raises TypeError or ValueError for a function that takes neither, and for one that yields without levels.
    """
    if grid is None:
        if inspect.isgeneratorfunction(fun):
            raise TypeError(
                f"fun must return its value, but {fun!r} yields values: for a learning curve of up to 30 epochs pass "
                "fidelity=Fidelity(1, 30)"
            )
        return False
    uses = "fun(x, fidelity), which returns a value, or fun(x), which yields a learning curve"
    try:
        signature = inspect.signature(fun)
    except ValueError as error:  # of some functions written in C
        raise TypeError(f"with fidelity the signature of fun must be known; got {fun!r}: wrap it as {uses}") from error
    for count in (2, 1):
        with contextlib.suppress(TypeError):
            signature.bind(*[None] * count)
            break
    else:
        raise TypeError(f"with fidelity fun must be {uses}; its signature is {signature}")
    if count == 1 and not grid.counts:
        raise ValueError(
            f"fun must be fun(x, fidelity), which returns a value: fun{signature} would have to yield a learning "
            f"curve, but the levels {', '.join(map(str, grid.levels[::-1]))} are no integers"
        )
    if count == 2 and inspect.isgeneratorfunction(fun):
        raise TypeError(f"with fidelity fun must be {uses}; {fun!r} yields, and its signature is {signature}")
    return count == 1


def check_timeout(seconds: Any, workers: Any) -> None:
    """Raises TypeError or ValueError for what is no number of seconds, and for workers that cannot end a call."""
    if seconds is None:
        return
    checks.positive("call_timeout", seconds)
    own = f"workers=seqdec.executors.Local(number, call_timeout={seconds!r})"
    if not isinstance(workers, Integral):
        raise ValueError(f"call_timeout needs workers that are a number of processes; got {workers!r}: pass {own}")
    if workers == 1:
        raise ValueError(
            f"call_timeout={seconds!r} ends a call with its process, but workers=1 calls fun in this process: pass "
            f"workers=2 or more, or for a single process {own.replace('number', '1')}"
        )


def exceptions(catch: Any) -> tuple[type[Exception], ...]:
    """`catch` as a tuple. Raises TypeError for anything but classes of exceptions."""
    classes = tuple(catch) if isinstance(catch, Iterable) else (catch,)
    for one in classes:
        if not isinstance(one, type) or not issubclass(one, Exception):
            raise TypeError(f"catch must be a subclass of Exception, such as ValueError, or several; got {catch!r}")
    return classes


def start_points(
    space: Space, x0: Any, y0: Any, n_calls: int, outputs: Outputs
) -> tuple[list[Any], list[tuple[Any, Any]]]:
    """x0 as a list of points and y0 as a list of their values and outcomes, empty if they are not known."""
    if x0 is None:
        if y0 is not None:
            raise ValueError("y0 holds the values at x0; pass x0 as well")
        return [], []
    points = space.listed(x0)
    if y0 is None:
        if len(points) > n_calls:
            raise ValueError(f"x0 holds {len(points)} points, but n_calls is {n_calls}")
        return points, []
    rows = containers.table(y0)
    returned = containers.sequence(y0) if rows is None else [[*row.values()] for row in rows]
    returned = [y0] if returned is None else returned
    if outputs.plain:
        values = [(checks.real("a value of y0", value), None) for value in returned]
    else:
        values = [outputs.split(one) for one in returned]
    if len(values) != len(points):
        raise ValueError(f"y0 must hold one value for each of the {len(points)} points of x0; got {len(values)}")
    return points, values


def of_the_result(callback: Callable[..., Any] | None) -> "Callable[[OptimizeResult], Any] | None":
    """The callback as a function of the result so far, for both of scipy's forms. Raises TypeError for another."""
    if callback is None:
        return None
    if not callable(callback):
        raise TypeError(f"callback must be callable; got {callback!r}")
    try:
        signature = inspect.signature(callback)
    except ValueError:  # of some functions written in C
        return lambda result: callback(result.x)
    named = list(signature.parameters) == ["intermediate_result"]
    try:
        signature.bind(**{"intermediate_result": None}) if named else signature.bind(None)
    except TypeError as error:
        raise TypeError(f"callback must take one argument, intermediate_result or x; it is {signature}") from error
    if named:
        return lambda result: callback(intermediate_result=result)
    return lambda result: callback(result.x)
