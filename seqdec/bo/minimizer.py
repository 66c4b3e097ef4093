"""`minimize` and `maximize`: Bayesian optimization in one call."""

import contextlib
import functools
import inspect
import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from seqdec.bo import checkpoint as files
from seqdec.bo import loop
from seqdec.bo import study as studies
from seqdec.bo.fidelity import Fidelity, Grid
from seqdec.bo.limits import Progress, limits_of, prolonged
from seqdec.bo.loop import Run
from seqdec.bo.model import Responses
from seqdec.bo.optimizer import BayesianOptimizer
from seqdec.bo.search.candidates import Search
from seqdec.bo.settings import Prior
from seqdec.bo.space import containers
from seqdec.bo.space.bounds import space_from
from seqdec.bo.space.constraints import Constraint, Linear
from seqdec.bo.space.space import Point, Space, identity
from seqdec.bo.surrogates.contract import Surrogate
from seqdec.bo.trials import Outputs
from seqdec.bo.workers import Call, Workers
from seqdec.boundary import checks
from seqdec.core import Acquisition
from seqdec.executors import width

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

    from seqdec.bo.result import SearchResult

P = ParamSpec("P")
R = TypeVar("R")


def minimize(
    fun: Callable[..., Any],
    bounds: Any,
    *,
    n_calls: int,
    constraints: Sequence[Constraint] = (),
    x0: Any = None,
    y0: Any = None,
    seed: int | None = None,
    maximize: bool | Sequence[bool] = False,
    objectives: int = 1,
    outcome_constraints: int = 0,
    reference_point: Sequence[float] | np.ndarray | None = None,
    noise_std: float | None = None,
    fidelity: Fidelity | None = None,
    surrogate: str | Surrogate = "auto",
    surrogate_options: Mapping[str, Any] | None = None,
    acquisition: str | Acquisition = "auto",
    initial: int | None = None,
    responses: Responses = "warped",
    search: Search | None = None,
    prior: Prior | None = None,
    workers: int | Executor = 1,
    batch_size: int | None = None,
    time_limit: float | None = None,
    target: float | Sequence[float] | None = None,
    patience: int | None = None,
    repeats: int | None = None,
    catch: type[Exception] | Iterable[type[Exception]] = (),
    max_failures: int = 30,
    checkpoint: str | os.PathLike[str] | None = None,
    shared: bool = False,
    callback: Callable[..., Any] | None = None,
    progress: bool | None = None,
) -> "SearchResult":
    """Find the minimum of an expensive function in few calls.

        >>> import seqdec
        >>> result = seqdec.minimize(lambda x: (x[0] - 0.3) ** 2, [(0, 1)], n_calls=3, seed=0, progress=False)
        >>> result.nfev, result.kind
        (3, 'observed')

    Other keywords are those of `seqdec.bo.BayesianOptimizer`.

    Args:
        fun: (x) -> value, or values of several objectives; with outcome constraints (value, outcomes). With `fidelity`
            (x, fidelity) -> value, or a generator (x) of the values after the units 1, 2, .... NaN, infinity and
            exceptions of `catch` are failed calls.
        bounds: as in `seqdec.bo.space_from`.
        n_calls: number of calls; with `fidelity` their cost, in evaluations at full fidelity.
        x0, y0: points to start from, and their values if known.
        seed: seed for all random numbers; None draws one, stored in the result.

        workers: number of processes that evaluate a batch; -1: one per core. Or an Executor: a free worker gets the
            next point at once; `seqdec.executors.Local(4, call_timeout=60)` ends calls that hang.
        batch_size: points evaluated at a time; None: one, or the number of an executor's workers.

        time_limit: seconds after which no call begins.
        target: value, or one for each objective; the search ends once a feasible call is as good.
        patience: number of calls without improvement after which the search ends.
        repeats: number of last calls at the recommended point, so that `fun` and its interval agree with further calls
            there; if the values at a point are equal the search continues. One objective, without `fidelity`. None:
            three, but at most a tenth of the calls, if the values may be noisy.
        catch: exceptions of `fun` that count as a failed call; others are raised.
        max_failures: number of successive failed calls after which the search ends.

        checkpoint: file from which the search continues identically after a kill; locked meanwhile. Limits, workers,
            `catch`, `callback` and `fun` may differ. Or "postgresql://user@host/database#study", shared.
        shared: whether processes with the same checkpoint work on one search and return the same result. Limits count
            all calls; `time_limit`, `callback` and Ctrl-C apply to each. A process evaluates one point at a time;
            another repeats the evaluation of a killed one.
        callback: called after every call with the best x or, if its argument is `intermediate_result`, the result so
            far; True or StopIteration ends the search.
        progress: whether to show a bar on standard error; None: on a terminal, elsewhere an occasional line.

    Returns:
        A `seqdec.bo.result.SearchResult`; x and fun are those of `BayesianOptimizer.recommend`, or the front.

    Raises:
        ValueError, TypeError: an argument does not fit, or the checkpoint is damaged or of another search.
        OSError: the checkpoint cannot be written; FileExistsError: another search uses it without sharing.
        Exception: an exception of `fun`, with the result so far as its attribute `search_result`.
    """
    from seqdec.progress import bar

    n_calls = checks.count("n_calls", n_calls)
    _check_workers(fun, workers)
    catch, told_of = _exceptions(catch), _of_the_result(callback)
    number, shared = _number_at_a_time(batch_size, workers), checks.flag("shared", shared)
    outputs, space = Outputs(objectives, outcome_constraints), space_from(bounds, constraints)
    with contextlib.ExitStack() as held, contextlib.ExitStack() as beginning:
        study = studies.opened(checkpoint, shared, held)
        _check_one(study, number, workers)
        beginning.enter_context(study.exclusive())
        trust = [name for name in (surrogate, acquisition) if isinstance(name, str)]
        kept = _read(study, space, trust) if study.path is not None and study.path.exists() else None
        if kept is not None and not study.worker and any(map(study.is_alive, kept[1].held.values())):
            raise FileExistsError(f"{study.name} is in use by processes that share it: wait, or pass shared=True")
        if seed is None:
            seed = secrets.randbits(32) if kept is None else kept[0].seed
        given, known = _start_points(space, x0, y0, n_calls, outputs)
        optimizer = BayesianOptimizer(
            space,
            seed=seed,
            maximize=maximize,
            objectives=objectives,
            outcome_constraints=outcome_constraints,
            reference_point=reference_point,
            surrogate=surrogate,
            surrogate_options=surrogate_options,
            acquisition=acquisition,
            initial=kept[0].initial if initial is None and kept is not None else initial,
            capacity=n_calls + len(known),
            responses=responses,
            noise_std=noise_std,
            search=search,
            prior=prior,
            fidelity=fidelity,
        )
        points = [space.known_point(x, outside=False) if known else space.point(x) for x in given]
        for point, (value, outcomes) in zip(points, known, strict=False):
            optimizer.tell(point, value, outcomes=outcomes)
        signs = optimizer.settings.signs[:objectives]
        limits = limits_of(n_calls, max_failures, time_limit, target, patience, signs)
        limits = limits._replace(repeats=_repeats(repeats, objectives, fidelity))
        so_far = Progress(n_calls)
        if kept is None:
            loop.write(study.path, optimizer, so_far)  # fails before anything is evaluated
        else:
            _check_equal(study, kept[0], optimizer, points)
            optimizer, so_far = kept[0], prolonged(kept[1], n_calls)
        beginning.close()  # other processes may begin
        grid = optimizer.settings.fidelity
        call = Call(fun, outputs, catch, limits.deadline, grid, _yields_curves(fun, grid))
        caller = Workers(call, workers, catch)
        show = None if progress is None else checks.flag("progress", progress)
        aim = "optimize" if objectives > 1 else "maximize" if optimizer.maximize else "minimize"
        name = optimizer.surrogate if isinstance(optimizer.surrogate, str) else "custom"
        title = f"{aim} with {name}{' (auto)' if optimizer.settings.is_automatic else ''}"
        with bar(n_calls, title, "call", show=show, initial=int(so_far.cost)) as shown:
            read = functools.partial(_read, study, space, trust)
            run = Run(optimizer, so_far, limits, caller, number, points, told_of, shown, study, read)
            try:
                status, message = run.until_ended()
            except BaseException as error:
                run.attach(error)
                raise
        return run.result(status, message, final=True)


def _repeats(repeats: Any, objectives: int, fidelity: Any) -> int | None:
    plain = objectives == 1 and fidelity is None
    if repeats is None:
        return None if plain else 0
    repeats = checks.count("repeats", repeats, 0)
    if repeats and not plain:
        given = f"objectives={objectives}, fidelity={fidelity!r}"
        raise ValueError(f"repeats={repeats} needs one objective without fidelity; got {given}")
    return repeats


def _takes(other: Callable[P, R]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    del other
    return lambda function: function


@_takes(minimize)
def maximize(fun: Callable[..., Any], bounds: Any, **options: Any) -> "SearchResult":
    """Find the maximum: as `seqdec.minimize`; values keep their signs."""
    return minimize(fun, bounds, **options, maximize=True)


def _check_workers(fun: Any, workers: Any) -> None:
    if not callable(fun):
        raise TypeError(f"fun must be callable; got {fun!r}")
    whole = isinstance(workers, Integral) and not isinstance(workers, bool)
    if not isinstance(workers, Executor) and not (whole and (int(workers) >= 1 or workers == -1)):
        raise ValueError(
            f"workers must be a number of processes, -1 for one on each core, or an executor; got {workers!r}"
        )


def _number_at_a_time(asked: int | None, workers: Any) -> int:
    if asked is not None:
        return checks.count("batch_size", asked)
    number = width(workers) if isinstance(workers, Executor) else 1
    if number is None:
        raise ValueError(f"batch_size must say how many points {workers!r} evaluates at a time")
    return number


def _exceptions(catch: Any) -> tuple[type[Exception], ...]:
    classes = tuple(catch) if isinstance(catch, Iterable) else (catch,)
    for one in classes:
        if not isinstance(one, type) or not issubclass(one, Exception):
            raise TypeError(f"catch must be a subclass of Exception, such as ValueError, or several; got {catch!r}")
    return classes


def _of_the_result(callback: Callable[..., Any] | None) -> "Callable[[OptimizeResult], Any] | None":
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


def _yields_curves(fun: Callable[..., Any], grid: Grid | None) -> bool:
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
            f"curve, but the levels {', '.join(map(str, grid.levels[::-1]))} are not integers"
        )
    if count == 2 and inspect.isgeneratorfunction(fun):
        raise TypeError(f"with fidelity fun must be {uses}; {fun!r} yields, and its signature is {signature}")
    return count == 1


def _start_points(
    space: Space, x0: Any, y0: Any, n_calls: int, outputs: Outputs
) -> tuple[list[Any], list[tuple[Any, Any]]]:
    """x0, and y0 as values and outcomes, empty if unknown."""
    if x0 is None:
        if y0 is not None:
            raise ValueError("y0 holds the values at x0; pass x0 as well")
        return [], []
    points = [x0] if (several := space.listed(x0)) is None else several
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


def _check_one(study: studies.Study, number: int, workers: Any) -> None:
    if study.worker and (number > 1 or (workers != 1 and not isinstance(workers, Executor))):
        raise ValueError(
            "each process of a shared search evaluates one point at a time: start further processes, without workers "
            f"and batch_size; got workers={workers!r} for {number} points"
        )


def _read(study: studies.Study, space: Space, trust: list[str]) -> tuple[BayesianOptimizer, Progress]:
    """The search of a study's file. Raises ValueError for a file of another kind."""
    functions = [rule for rule in space.constraints if not isinstance(rule, Linear)]
    path: Any = study.path
    optimizer = BayesianOptimizer.load(path, functions, trust=trust)
    if loop.NOTE not in optimizer.notes:
        raise ValueError(
            f"checkpoint {study.name} is a study that BayesianOptimizer.save wrote: pass its evaluations as x0 and y0, "
            "and another path"
        )
    return optimizer, Progress(**optimizer.notes[loop.NOTE])


def _check_equal(
    study: studies.Study, optimizer: BayesianOptimizer, other: BayesianOptimizer, points: list[Point]
) -> None:
    """Raises ValueError unless searches and start points are equal."""
    told, asked = len(other.trials), min(len(points), len(optimizer.trials))
    settings = [replace(one.settings, acquisition=one.acquisition) for one in (optimizer, other)]
    kept, given = map(files.plain, settings)
    there, here = (vars(one) | one.outputs._asdict() for one in settings)
    differing = [] if optimizer.space == other.space else ["the bounds or constraints are others"]
    differing += [
        f"{name} is {there[name]!r} there and {here[name]!r} here" for name in kept if kept[name] != given[name]
    ]
    if not differing:
        known = [identity(optimizer.space.flat(trial.x)) for trial in optimizer.trials[:asked]]
        if known != [identity(point.x) for point in points[:asked]]:
            differing.append("x0 is another")
        elif not np.array_equal(optimizer.told()[:told], other.told(), equal_nan=True):
            differing.append("y0 is another")
    if differing:
        raise ValueError(
            f"checkpoint {study.name} is of another search: {'; '.join(differing)}. Give the arguments with which it "
            "began, or another path"
        )
