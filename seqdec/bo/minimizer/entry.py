"""`minimize` and `maximize`: Bayesian optimization in one call, for a function and its bounds."""

import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Unpack

from seqdec import checks
from seqdec.bo.minimizer import arguments, stops, study
from seqdec.bo.minimizer.outcome import Call
from seqdec.bo.minimizer.run import Run, signs_of
from seqdec.bo.minimizer.stops import Progress
from seqdec.bo.minimizer.study import Study
from seqdec.bo.minimizer.workers import Workers
from seqdec.bo.optimizer import BayesianOptimizer
from seqdec.bo.options import MaximizeOptions, MinimizeOptions
from seqdec.bo.outputs import Outputs
from seqdec.bo.space.bounds import space_from
from seqdec.bo.surrogates.contract import Surrogate
from seqdec.core import Acquisition
from seqdec.persistence import located
from seqdec.registry import spelled

if TYPE_CHECKING:
    from seqdec.bo.result import SearchResult


@spelled(BayesianOptimizer, hidden=("capacity",))
def minimize(
    fun: Callable[[Any], Any],
    bounds: Any,
    *,
    n_calls: int,
    surrogate: str | Surrogate = "auto",
    acquisition: str | Acquisition = "auto",
    batch_size: int | None = None,
    x0: Any = None,
    y0: Any = None,
    outside: bool = False,
    callback: Callable[..., Any] | None = None,
    workers: int | Executor | Callable[..., Iterable[Any]] = 1,
    call_timeout: float | None = None,
    time_limit: float | None = None,
    target: float | Sequence[float] | None = None,
    patience: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    catch: type[Exception] | Iterable[type[Exception]] = (),
    max_failures: int = 30,
    progress: bool | None = None,
    **options: Unpack[MinimizeOptions],
) -> "SearchResult":
    """Find the minimum of an expensive function on a box, in few calls.

        result = seqdec.minimize(fun, [(-5, 10), (0, 15)], n_calls=40)
        result.x, result.fun

    Args:
        fun: (x) -> value. x is a numpy array if all dimensions are Real, else a list, and with names a dict. A call
            that returns NaN or infinity, or raises an exception of `catch`, fails: it counts as a call and has no value
            for the surrogate. With several objectives the value is a sequence with one number for each; with outcome
            constraints fun returns a pair (value, outcomes), and x is feasible if no outcome is above 0. With
            `fidelity` it is (x, fidelity) -> value at the level asked for, which is full fidelity in the last calls; or
            (x) -> a generator that yields the value after each unit, 1, 2, ..., such as epochs. The generator is closed
            at the level asked for, or where, given its values so far, its value at full fidelity is better than the
            best one with probability below 5%.
        bounds: (low, high) pairs, `seqdec.bo.Real` (also logarithmic), `Integer`, `Ordinal` and `Categorical`; or a
            dict from names to these, to `Conditional` and to further dicts; or scipy Bounds, or a gymnasium Box or
            Discrete.
        n_calls: number of calls of `fun`. With `fidelity` it is the cost that the calls may have together, in
            evaluations at full fidelity; a call at a lower level, or a curve that ended early, counts with its share of
            the cost.
        surrogate, acquisition: as in `seqdec.bo.BayesianOptimizer`; the result says what "auto" chose.
        batch_size: points chosen at a time, before any of their values is known; None: one. With an executor, points
            under evaluation at a time; None: the number of its workers.
        x0: a point or several to start from: lists, dicts, arrays, rows or tables of pandas, Polars, Arrow or NumPy
            (columns by name, or in their order where dimensions have no names), or an iterator.
        y0: known values of the points of x0, one number or several in a container of any kind; then `fun` is not called
            for them. With several objectives a row for each point; with outcome constraints a list of what fun returns.
        outside: accept points of x0 with known values that violate constraints, or lie outside the bounds by at most
            their range on the scale of search. They inform the search and are in the table of trials, but not in the
            result.
        callback: called after every call of `fun`, as in scipy: with the result so far if its one argument is named
            `intermediate_result`, else with the best x so far. Returning True, or raising StopIteration, ends the
            search. So does any other exception, which becomes a warning, and `error` of the result, so that no
            evaluation is lost.
        workers: what calls `fun`. A number: processes, through joblib, which evaluate a batch; -1 is one for each core.
            A function like `map`, such as `multiprocessing.Pool.map`: it evaluates a batch. A
            `concurrent.futures.Executor`, such as those of `seqdec.executors`: each worker that is done gets its next
            point at once, chosen with all values known by then. The points then depend on the order in which the calls
            end, and so on their durations: equal seeds give equal searches only if that order is equal. Processes need
            a `fun` that can be pickled.
        call_timeout: seconds that a call may take, with `workers` of at least 2. A call that takes longer is ended with
            its process, which is replaced, and counts as failed, like an exception of `catch`. An executor has a limit
            of its own, `seqdec.executors.Local(workers, call_timeout=...)`. None: no limit.
        time_limit: seconds after which no call of `fun` begins; those that have begun are completed. None: no limit.
        target: value that ends the search once a feasible call is at least as good, as observed; with several
            objectives a sequence with one value for each, all of which one call must reach. A batch is completed first.
        patience: calls without an improvement that end the search, counted as in `n_calls`, from the first feasible
            value on. An improvement is a feasible value that is better than all earlier ones; with several objectives,
            one that no earlier call matches or beats in all of them. Failed and infeasible calls are not improvements.
            A batch is completed first.
        checkpoint: path of a file, replaced whenever points were chosen, a value was told or `callback` has returned.
            If it exists, the search continues from it, also after its process was killed: with equal arguments the
            result is that of an uninterrupted search, to the bit, if it does not depend on the order in which calls
            end. Points that were under evaluation are evaluated again. `n_calls`, the other limits, `workers`,
            `batch_size`, `catch`, `callback` and `fun` may differ; a `seed` of None is that of the file. It is a study,
            which `BayesianOptimizer.load` reads. One process at a time may use it. None: no file.
        seed: of everything random; None draws one, which the result contains.
        catch: exceptions of `fun` that make a failed call, a class or several, as in Optuna's `Study.optimize`. They
            are logged, the first one with its traceback, which is also `traceback` of the result. Any other exception
            ends the search and is raised.
        max_failures: failed calls in a row that end the search.
        progress: whether to show a bar on standard error, with the best value so far and the time to choose the last
            point; None: a bar on a terminal, elsewhere a line now and then.
        **options: further keywords of `seqdec.bo.BayesianOptimizer`: constraints, objectives, outcome_constraints,
            reference_point, surrogate_options, initial, trust_region, standardize, warp, input_warp, noise_std,
            search, optimum, monotone, fidelity, earlier.

    Returns:
        A scipy OptimizeResult. x and fun are, with kind "observed", those of the best call (None and NaN if all
        failed). If values are known or found to be noisy (`BayesianOptimizer.recommend` says when), kind is
        "predicted": x is the evaluated point with the best posterior mean, fun the mean there and fun_interval its 95%
        interval, as the message says; a callback receives the best call so far. With outcome constraints only feasible
        calls count (None and NaN if there is none). With several objectives x is the list of the points of the front
        and fun (k, objectives) their values, as in `BayesianOptimizer.front`; both are empty if no call is feasible.
        Further fields: nfev, cost (of the calls, as n_calls counts it), success, status (0 all calls made, 1 too many
        failures in a row, 2 callback returned True or raised StopIteration, 3 Ctrl-C, 4 every point of a finite space
        evaluated, 5 the executor broke or was shut down, 6 callback raised another exception, which is then `error`, 7
        no call was feasible, 8 an exception was raised, 9 `time_limit`, 10 `target`, 11 `patience`), of which 0, 4, 9,
        10 and 11 are a success if a call was feasible, message, traceback (of the first exception of `catch`, as text,
        else None), x_iters and func_vals of all points (given values first, NaN for failures), seconds (that each call
        took, NaN for given values), surrogate, acquisition, seed, and the `optimizer`, with its `trials_dataframe()`
        and with ask and tell to continue. Its `plot()` draws the search, as `BayesianOptimizer.plot`.

    Raises:
        ValueError, TypeError: an argument does not fit; the message names it. The checkpoint is damaged, of another
            search, or cannot hold this one, see `BayesianOptimizer.save`.
        OSError: the checkpoint cannot be written.
        KeyboardInterrupt: Ctrl-C before the first value.
        Exception: of `fun`, unless it is one of `catch`; or of a worker that could not call `fun`. The attribute
            `search_result` of the exception is the result with all calls made by then.
    """
    from seqdec.progress import bar

    n_calls = checks.count("n_calls", n_calls)
    arguments.check_calls(fun, workers)
    arguments.check_timeout(call_timeout, workers)
    catch = arguments.exceptions(catch)
    number = arguments.number_at_a_time(batch_size, workers)
    told_of = arguments.of_the_result(callback)
    outputs = Outputs(options.get("objectives", 1), options.get("outcome_constraints", 0))
    space = space_from(bounds)
    path = None if checkpoint is None else located(checkpoint)  # `fun` may change the working directory
    kept = study.read(path, space_from(space, options.get("constraints", ())))
    if seed is None:
        seed = secrets.randbits(32) if kept is None else kept.optimizer.seed
    given, known = arguments.start_points(space, x0, y0, n_calls, outputs)
    optimizer = BayesianOptimizer(
        space,
        seed=seed,
        surrogate=surrogate,
        acquisition=acquisition,
        capacity=n_calls + len(known),
        **options,
    )
    outside, space = checks.flag("outside", outside), optimizer.space
    # Those that do not fit are refused before anything is evaluated.
    points = [space.known_point(x, outside) if known else space.point(x) for x in given]
    for point, (value, outcomes) in zip(points, known, strict=False):
        optimizer.tell(point, value, outcomes=outcomes)
    limits = stops.limits(n_calls, max_failures, time_limit, target, patience, signs_of(optimizer))
    if kept is None:
        kept = Study(optimizer, Progress(n_calls))
        study.write(path, *kept)  # what cannot be written is refused before anything is evaluated
    else:
        study.check(path, kept, optimizer, points)
        kept = kept._replace(progress=stops.prolonged(kept.progress, n_calls))
    optimizer = kept.optimizer
    grid = optimizer.settings.fidelity
    call = Call(fun, outputs, catch, limits.deadline, grid, arguments.yields_curves(fun, grid))
    caller = Workers(call, workers, catch, call_timeout)
    show = None if progress is None else checks.flag("progress", progress)
    aim = "optimize" if outputs.objectives > 1 else "maximize" if optimizer.maximize else "minimize"
    title, done = f"{aim} {_name(surrogate, optimizer.surrogate)}", int(kept.progress.cost)
    with bar(n_calls, title, "call", show=show, initial=done) as shown:
        run = Run(kept, limits, caller, number, points[len(optimizer.trials) :], told_of, shown, path)
        try:
            status, message = run.until_ended()
        except BaseException as error:
            run.attach(error)
            raise
    return run.result(status, message, final=True)


@spelled(minimize, BayesianOptimizer, hidden=("capacity", "maximize"))
def maximize(fun: Callable[[Any], Any], bounds: Any, **options: Unpack[MaximizeOptions]) -> "SearchResult":
    """Find the maximum of an expensive function: as `seqdec.minimize`; values keep their signs."""
    return minimize(fun, bounds, **options, maximize=True)


def _name(asked: str | Surrogate, chosen: str | Surrogate) -> str:
    """The surrogate's description in the progress bar."""
    name = chosen if isinstance(chosen, str) else "custom"
    return f"with {name} (auto)" if asked == "auto" else f"with {name}"
