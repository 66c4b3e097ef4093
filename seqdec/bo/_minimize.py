"""Bayesian optimization in one call, for a function and its bounds."""

import contextlib
import functools
import inspect
import logging
import math
import pickle
import secrets
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import cloudpickle
import numpy as np

from seqdec import checks
from seqdec.bo.answers import Front, Recommendation
from seqdec.bo.optimizer import BayesianOptimizer
from seqdec.bo.options import MaximizeOptions, MinimizeOptions
from seqdec.bo.outputs import Outputs
from seqdec.bo.record import Exhausted, Trial
from seqdec.bo.space import containers
from seqdec.bo.space.bounds import space_from
from seqdec.bo.space.spaces import Point, Space
from seqdec.bo.surrogates.contract import Surrogate
from seqdec.core import Acquisition
from seqdec.executors import Local, width
from seqdec.registry import spelled

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult
    from tqdm import tqdm

    from seqdec.bo.result import SearchResult

_DONE, _FAILED, _STOPPED, _INTERRUPTED, _EXHAUSTED, _BROKEN, _CALLBACK, _INFEASIBLE, _RAISED = range(9)

_logger = logging.getLogger(__name__)


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
    callback: Callable[..., Any] | None = None,
    workers: int | Executor | Callable[..., Iterable[Any]] = 1,
    call_timeout: float | None = None,
    seed: int | None = None,
    catch: type[Exception] | Iterable[type[Exception]] = (),
    max_failures: int = 30,
    progress: bool | None = None,
    **options: Unpack[MinimizeOptions],
) -> "SearchResult":
    """Find the smallest value of an expensive function on a box, in few calls.

        result = seqdec.minimize(fun, [(-5, 10), (0, 15)], n_calls=40)
        result.x, result.fun

    Args:
        fun: (x) -> value. x is a numpy array where all dimensions are Real, else a list, and with names a dict. NaN or
            infinity make a failed call, which counts as a call and has no value for the surrogate; so does an exception
            of `catch`. With several objectives the value is a sequence of as many numbers; with outcome constraints fun
            returns a pair (value, outcomes), and x is feasible if no outcome is above 0.
        bounds: (low, high) pairs, `seqdec.bo.Real` (also logarithmic), `Integer`, `Ordinal` and `Categorical`; or a
            dict from names to these and to `Conditional`; or scipy Bounds, or a gymnasium Box or Discrete.
        n_calls: number of calls of `fun`.
        surrogate, acquisition: as in `seqdec.bo.BayesianOptimizer`; the result says what "auto" chose.
        batch_size: points chosen at a time, before any of their values is known; None is one. With an executor, points
            under evaluation at a time; None is the number of its workers.
        x0: a point or several to start from: lists, dicts, arrays, rows or tables of pandas, Polars, Arrow or NumPy
            (columns by name, or in their order where dimensions have no names), or an iterator.
        y0: their known values, one number or several in a container of any kind; then `fun` is not called for them.
            With several objectives a row for each point; with outcome constraints a list of what fun returns.
        callback: called after every call of `fun`, as scipy does: with the result so far if its one argument is named
            `intermediate_result`, else with the best x so far. Raising StopIteration ends the search; so does any other
            exception, which becomes a warning, and `error` of the result, so that no evaluation is lost.
        workers: who calls `fun`. A number: processes, through joblib, which evaluate a batch; -1 is one for each core.
            A function like `map`, such as `multiprocessing.Pool.map`: it evaluates a batch. A
            `concurrent.futures.Executor`, such as those of `seqdec.executors`: each worker that is done gets its next
            point at once, chosen with all values known by then. The points then depend on the order in which the calls
            end, and so on their durations: equal seeds give equal searches only where that order is equal. `fun` must
            be picklable by processes.
        call_timeout: seconds that a call may take, with `workers` of at least 2: a call that takes longer is ended with
            its process, which is replaced, and counts as a failed call, as an exception of `catch`. An executor has a
            limit of its own, `seqdec.executors.Local(workers, call_timeout=...)`. None: no limit.
        seed: of everything random; None draws one, which the result contains.
        catch: exceptions of `fun` that make a failed call, a class or several, as in Optuna's `Study.optimize`. They
            are logged, the first one with its traceback, which is also `traceback` of the result. Any other exception
            ends the search and is raised.
        max_failures: failed calls in a row that end the search.
        progress: whether to show a bar on standard error, with the best value so far and the time to choose the last
            point; None: a bar on a terminal, elsewhere a line now and then.
        **options: further keywords of `seqdec.bo.BayesianOptimizer`: constraints, objectives, outcome_constraints,
            reference_point, surrogate_options, initial, trust_region, standardize, warp, input_warp, noise_std,
            search.

    Returns:
        A scipy OptimizeResult: x and fun, with kind "observed" those of the best call (None and NaN when all failed);
        where values are known or found to be noisy (`BayesianOptimizer.recommend` says when), kind "predicted", x is
        the evaluated point with the best posterior mean, fun the mean there and fun_interval its 95% interval, as the
        message says; a callback receives the best call so far. With outcome constraints only feasible calls count (None
        and NaN where none is). With several objectives x is the list of the points of the front and fun (k, objectives)
        their values, as in `BayesianOptimizer.front`, both empty where no call is feasible. Then nfev, success, status
        (0 all calls made, 1 too many failures in a row, 2 callback raised StopIteration, 3 Ctrl-C, 4 every point of a
        finite space evaluated, 5 the executor broke or was shut down, 6 callback raised another exception, which is
        then `error`, 7 no call was feasible, 8 an exception was raised), message, traceback (of the first exception of
        `catch`, as text, else None), x_iters and func_vals of all points (given values first, NaN for failures),
        surrogate, acquisition, seed, and the `optimizer`, with its `trials_dataframe()` and with ask and tell to
        continue. Its `plot()` draws the search, as `BayesianOptimizer.plot`.

    Raises:
        ValueError, TypeError: an argument does not fit; the message names it.
        KeyboardInterrupt: Ctrl-C before the first value.
        Exception: of `fun`, unless it is one of `catch`; or of a worker, which could not call it. All calls made by
            then are in the result that is the exception's attribute `search_result`.
    """
    from seqdec.progress import bar

    n_calls, max_failures = checks.count("n_calls", n_calls), checks.count("max_failures", max_failures)
    _check_calls(fun, workers)
    _check_timeout(call_timeout, workers)
    catch = _exceptions(catch)
    batch_size = _batch_size(batch_size, workers)
    seed = secrets.randbits(32) if seed is None else seed
    outputs = Outputs(options.get("objectives", 1), options.get("outcome_constraints", 0))
    space = space_from(bounds)
    given, known = _start_points(space, x0, y0, n_calls, outputs)
    optimizer = BayesianOptimizer(
        space,
        seed=seed,
        surrogate=surrogate,
        acquisition=acquisition,
        capacity=n_calls + len(known),
        **options,
    )
    points = [optimizer.space.point(x) for x in given]  # refused outside the bounds, before anything is evaluated
    for point, (value, outcomes) in zip(points, known, strict=False):
        optimizer.tell(point, value, outcomes=outcomes)
    show = None if progress is None else checks.flag("progress", progress)
    aim = "optimize" if outputs.objectives > 1 else "maximize" if optimizer.maximize else "minimize"
    with bar(n_calls, f"{aim} {_name(surrogate, optimizer.surrogate)}", "call", show=show) as shown:
        search = _Search(optimizer, fun, n_calls, catch, max_failures, _wrap(callback), shown, call_timeout)
        try:
            status, message = search.run([] if known else points, batch_size, workers)
        except BaseException as error:
            search.attach(error)
            raise
    return search.result(status, message, final=True)


@spelled(minimize, BayesianOptimizer, hidden=("capacity", "maximize"))
def maximize(fun: Callable[[Any], Any], bounds: Any, **options: Unpack[MaximizeOptions]) -> "SearchResult":
    """Find the largest value of an expensive function: as `seqdec.minimize`, the signs of all values kept."""
    return minimize(fun, bounds, **options, maximize=True)


class _CallbackError(Exception):
    """An exception of the callback, which is the cause."""


class _FunError(Exception):
    """An exception that ends the search, `args[0]`."""


class _Search:
    """One run of `minimize`."""

    def __init__(
        self,
        optimizer: BayesianOptimizer,
        fun: Callable[[Any], Any],
        n_calls: int,
        catch: tuple[type[Exception], ...],
        max_failures: int,
        callback: "Callable[[OptimizeResult], Any] | None",
        bar: "tqdm",
        call_timeout: float | None,
    ) -> None:
        self.bar = bar
        self.optimizer, self.n_calls, self.catch, self.callback = optimizer, n_calls, catch, callback
        self._call = functools.partial(_call, fun, optimizer.outputs, catch)
        self.call_timeout = call_timeout
        self.max_failures, self.failures, self.calls, self.last = max_failures, 0, 0, ""
        self.given: list[Point] = []
        self.choosing = 0.0
        """seconds that the last point took to be chosen"""
        self.error: BaseException | None = None
        self.traceback: str | None = None
        self._evaluated: Iterator[tuple[Trial, _Outcome]] = iter(())
        """trials that are evaluated, but not recorded"""

    def run(self, given: list[Point], batch_size: int, workers: Any) -> tuple[int, str]:
        """Evaluate until the budget is spent or the search is stopped -> (status, message).

        Raises an exception of `fun` that is not to be caught.
        """
        self.given = given
        evaluate = self._as_completed if isinstance(workers, Executor) else self._in_batches
        try:
            with contextlib.closing(evaluate(batch_size, workers)) as outcomes:
                for trial, outcome in outcomes:
                    self._record(trial, outcome)
            if self.calls < self.n_calls and self.failures < self.max_failures:
                again = "noise_std above 0 for noisy values, or search=Search(repeats=True), allows repeats"
                return _EXHAUSTED, f"every point of the space has been evaluated: {again}"
            if self.failures >= self.max_failures:
                return _FAILED, f"{self.failures} calls in a row failed, the last with: {self.last}"
            return _DONE, f"{self.n_calls} calls made"
        except StopIteration:
            return _STOPPED, "callback raised StopIteration"
        except (BrokenExecutor, CancelledError) as error:
            self._keep_evaluated()
            reason = str(error).partition("\n")[0]
            return _BROKEN, f"the executor ended after {self.calls} calls: {type(error).__name__}: {reason}"
        except _CallbackError as error:
            self._keep_evaluated()
            self.error = error.__cause__
            reason = f"callback raised {type(self.error).__name__}: {self.error}"
            warnings.warn(f"{reason}; the search ends after {self.calls} calls", RuntimeWarning, stacklevel=3)
            return _CALLBACK, reason
        except KeyboardInterrupt:
            self._keep_evaluated()
            if not self.calls:
                raise
            return _INTERRUPTED, "interrupted"
        except _FunError as error:
            self._keep_evaluated()
            raised: Exception = error.args[0]
        raise raised  # outside of the handlers, so that its context stays

    def attach(self, error: BaseException) -> None:
        """Give an exception that ends the search the result of the calls made, as `search_result`."""
        if self.optimizer.trials:
            vars(error)["search_result"] = self.result(_RAISED, f"{type(error).__name__} was raised")
            _note(error, "seqdec: all calls made are in `search_result` of this exception")

    def _keep_evaluated(self) -> None:
        """Tell what is evaluated, but not recorded, when the search ends."""
        for trial, outcome in self._evaluated:
            self._tell(trial, outcome)

    def _goes_on(self) -> bool:
        return self.calls < self.n_calls and self.failures < self.max_failures

    def _trials(self, number: int) -> list[Trial]:
        """The next trials, fewer where no new point is left."""
        from seqdec.progress import compiling

        trials: list[Trial] = []
        began, said = time.perf_counter(), self.bar.postfix or ""
        if not self.optimizer.is_fitted:
            compiling(self.bar)
        with contextlib.suppress(Exhausted):
            while len(trials) < number:
                trials.append(self.optimizer.propose(self.given.pop(0)) if self.given else self.optimizer.ask())
        self.bar.set_postfix_str(said)
        if trials:
            self.choosing = (time.perf_counter() - began) / len(trials)
        return trials

    def _in_batches(self, size: int, workers: Any) -> "Generator[tuple[Trial, _Outcome]]":
        """Trials and outcomes, a batch after the other."""
        with contextlib.ExitStack() as held:
            if self.call_timeout is not None:
                workers = Local(None if workers == -1 else workers, call_timeout=self.call_timeout)
                held.callback(workers.shutdown, cancel_futures=True)
            while self._goes_on() and (batch := self._trials(min(size, self.n_calls - self.calls))):
                outcomes = self._outcomes(batch, workers)
                evaluated = zip(batch, outcomes, strict=True)
                self._evaluated = evaluated if isinstance(outcomes, list) else iter(())  # others evaluate on demand
                yield from evaluated

    def _outcomes(self, batch: Sequence[Trial], workers: Any) -> Any:
        """The outcomes of a batch, in its order; evaluated lazily if there is one worker."""
        if isinstance(workers, Local):
            pending = {workers.submit(self._call, trial.x): trial for trial in batch}
            self._evaluated = self._completed(pending)
            wait(pending)
            return [self._outcome(future) for future in pending]
        if callable(workers):
            return workers(self._call, [trial.x for trial in batch])
        if workers == 1:
            return (self._call(trial.x) for trial in batch)
        from joblib import Parallel, delayed  # slow to import

        done: dict[int, _Outcome] = {}
        self._evaluated = ((trial, done[trial.number]) for trial in batch if trial.number in done)
        calls = (delayed(_numbered)(trial.number, self._call, trial.x) for trial in batch)
        found: Any = Parallel(n_jobs=workers, return_as="generator_unordered")(calls)
        done.update(found)
        return [done[trial.number] for trial in batch]

    def _as_completed(self, size: int, executor: Executor) -> "Generator[tuple[Trial, _Outcome]]":
        """Trials and outcomes in the order in which they are completed, with `size` under evaluation at a time.

        Leaving the iteration cancels those that wait for a worker.
        """
        pending: dict[Future[_Outcome], Trial] = {}
        self._evaluated = self._completed(pending)
        try:
            while self._goes_on():
                for trial in self._trials(min(size, self.n_calls - self.calls) - len(pending)):
                    pending[executor.submit(self._call, trial.x)] = trial
                if not pending:
                    return
                done = wait(pending, return_when=FIRST_COMPLETED).done
                # The values before the news that the executor has broken.
                for future in sorted(done, key=lambda one: (_broken(one), pending[one].number)):
                    yield pending.pop(future), self._outcome(future)
        finally:
            for future in pending:
                future.cancel()

    def _completed(self, pending: "dict[Future[_Outcome], Trial]") -> "Iterator[tuple[Trial, _Outcome]]":
        """Those of the pending trials that are completed when this is asked for."""
        for future, trial in pending.items():
            if future.done() and not _broken(future):
                yield trial, self._outcome(future)

    def _outcome(self, future: "Future[_Outcome]") -> "_Outcome":
        """The outcome of a future that is done; an exception is that of its transport. Raises where it ended."""
        if not _broken(future) and isinstance(error := future.exception(), Exception):
            return _failed(error, (*self.catch, TimeoutError))  # TimeoutError: the executor ended the call
        return future.result()

    def _record(self, trial: Trial, outcome: "_Outcome") -> None:
        self._tell(trial, outcome)
        self.bar.update()
        if outcome.raised is not None:
            _note(outcome.raised.error, f"seqdec: call {self.calls} of fun, at {trial.x!r}")
            raise _FunError(outcome.raised.error)
        if self.callback is not None or not outcome.reason:
            so_far = self.result(_DONE, "running")
            self.bar.set_postfix({**_shown(so_far), "choosing": f"{self.choosing:.2g} s/point"})
            if self.callback is not None:
                try:
                    self.callback(so_far)
                except StopIteration:
                    raise
                except Exception as error:
                    raise _CallbackError from error

    def _tell(self, trial: Trial, outcome: "_Outcome") -> None:
        reason = outcome.reason
        self.optimizer.tell(trial, outcome.value, outcomes=outcome.outcomes, failed=bool(reason), reason=reason)
        self.calls += 1
        self.failures, self.last = (self.failures + 1 if reason else 0), reason
        if outcome.traceback and outcome.raised is None:
            detail = f"\n{outcome.traceback}" if self.traceback is None else ""
            _logger.warning("call %d of fun failed at %r: %s%s", self.calls, trial.x, reason, detail)
            self.traceback = self.traceback or outcome.traceback

    def result(self, status: int, message: str, final: bool = False) -> "SearchResult":
        """The result of all calls so far; of the best one unless it is `final`."""
        from seqdec.bo.result import SearchResult

        optimizer = self.optimizer
        points, values = optimizer.evaluations()
        best = _best(optimizer, final)
        if not np.isfinite(values).any():
            if status == _DONE:
                status, message = _FAILED, f"all {self.calls} calls failed, the last with: {self.last}"
        elif final and not optimizer.is_feasible and status in (_DONE, _EXHAUSTED):
            status, message = _INFEASIBLE, f"none of the {self.calls} calls was feasible"
        surrogate = optimizer.surrogate if isinstance(optimizer.surrogate, str) else "custom"
        reason = f" ({optimizer.reason})" if optimizer.reason.startswith("auto") else ""
        acquisition = optimizer.acquisition if isinstance(optimizer.acquisition, str) else "custom"
        predicted = "; values are noisy: fun is predicted" if best.kind == "predicted" else ""
        used = f"surrogate {surrogate}{reason}, acquisition {acquisition}"
        return SearchResult(
            x=best.x,
            fun=best.value,
            fun_interval=(best.low, best.high),
            kind=best.kind,
            nfev=self.calls,
            success=status in (_DONE, _EXHAUSTED),
            status=status,
            message=f"{message}{predicted} ({used}, seed {optimizer.seed})",
            x_iters=points,
            func_vals=values,
            surrogate=surrogate,
            acquisition=acquisition,
            seed=optimizer.seed,
            optimizer=optimizer,
            traceback=self.traceback,
            **({} if self.error is None else {"error": self.error}),
        )


class _Outcome(NamedTuple):
    """What a call of `fun` gave."""

    value: Any
    outcomes: Any
    reason: str
    """of a failure, else empty"""
    traceback: str = ""
    """of an exception"""
    raised: "_Raised | None" = None
    """an exception that is not to be caught"""


class _Raised:
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


def _arrived(pickled: bytes, text: str) -> _Raised:
    """The exception of another process."""
    error = pickle.loads(pickled)
    _note(error, f"raised in a worker process:\n{text}")
    return _Raised(error)


def _note(error: BaseException, text: str) -> None:
    """`error.add_note(text)`, also for exceptions whose attributes cannot be set."""
    vars(error).setdefault("__notes__", []).append(text)


def _best(optimizer: BayesianOptimizer, final: bool) -> Recommendation:
    """What a result answers: a recommendation; of several objectives the front, observed."""
    if optimizer.outputs.objectives > 1:
        front = optimizer.front() if optimizer.is_feasible else Front([], np.zeros((0, optimizer.outputs.objectives)))
        return Recommendation.observed(front.x, front.values)
    if not optimizer.is_feasible:
        return Recommendation.observed(None, math.nan)
    return optimizer.recommend() if final and optimizer.is_fitted else Recommendation.observed(*optimizer.best)


def _shown(so_far: "OptimizeResult") -> dict[str, str]:
    """What the progress bar says of the calls so far."""
    return {"best": f"{so_far.fun:.6g}"} if np.ndim(so_far.fun) == 0 else {"front": f"{len(so_far.x)} points"}


def _numbered(number: int, call: Callable[[Any], _Outcome], x: Any) -> tuple[int, _Outcome]:
    return number, call(x)


def _call(fun: Callable[[Any], Any], outputs: Outputs, catch: tuple[type[Exception], ...], x: Any) -> _Outcome:
    """The outcome of a call, a failure if it raises or a number is not finite."""
    try:
        value, outcomes = outputs.split(fun(x.copy()))
        values, found = outputs.values(value, "the value of fun"), outputs.outcomes(outcomes)
    except Exception as error:
        return _failed(error, catch)
    finite = all(map(math.isfinite, (*values, *found)))
    value = values if outputs.objectives > 1 else values[0]
    return _Outcome(value, found or None, "" if finite else outputs.described(values, found))


def _failed(error: Exception, catch: tuple[type[Exception], ...]) -> _Outcome:
    """The outcome of a call that raised."""
    raised = None if isinstance(error, catch) else _Raised(error)
    return _Outcome(None, None, f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error)), raised)


def _broken(future: "Future[_Outcome]") -> bool:
    """Whether a future that is done tells of the end of its executor."""
    return future.cancelled() or isinstance(future.exception(), BrokenExecutor | CancelledError)


def _batch_size(asked: int | None, workers: Any) -> int:
    """How many points are under evaluation at a time."""
    if asked is not None:
        return checks.count("batch_size", asked)
    number = width(workers) if isinstance(workers, Executor) else 1
    if number is None:
        raise ValueError(f"batch_size must say how many points {workers!r} evaluates at a time")
    return number


def _check_calls(fun: Any, workers: Any) -> None:
    """Raises TypeError or ValueError for a function that cannot be called, or for what are no workers."""
    if not callable(fun):
        raise TypeError(f"fun must be callable; got {fun!r}")
    if isinstance(workers, Executor) or callable(workers):
        return
    if isinstance(workers, bool) or not isinstance(workers, Integral) or (workers < 1 and workers != -1):
        raise ValueError(
            f"workers must be a number of processes, -1 for one on each core, an executor or a map; got {workers!r}"
        )


def _check_timeout(seconds: Any, workers: Any) -> None:
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


def _exceptions(catch: Any) -> tuple[type[Exception], ...]:
    """`catch` as a tuple. Raises TypeError for anything but classes of exceptions."""
    classes = tuple(catch) if isinstance(catch, Iterable) else (catch,)
    for one in classes:
        if not isinstance(one, type) or not issubclass(one, Exception):
            raise TypeError(f"catch must be a subclass of Exception, such as ValueError, or several; got {catch!r}")
    return classes


def _start_points(
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


def _wrap(callback: Callable[..., Any] | None) -> "Callable[[OptimizeResult], Any] | None":
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


def _name(asked: str | Surrogate, chosen: str | Surrogate) -> str:
    """The surrogate's description in the progress bar."""
    name = chosen if isinstance(chosen, str) else "custom"
    return f"with {name} (auto)" if asked == "auto" else f"with {name}"
