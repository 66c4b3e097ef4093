"""The loop of `seqdec.minimize`: ask, call, tell, until the budget is spent or something ends it."""

import contextlib
import functools
import logging
import time
import warnings
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, CancelledError
from typing import TYPE_CHECKING, Any

import numpy as np

from seqdec.bo.minimizer.outcome import Outcome, call, note
from seqdec.bo.minimizer.workers import Workers
from seqdec.bo.optimizer import BayesianOptimizer
from seqdec.bo.record import Exhausted, Trial
from seqdec.bo.space.spaces import Point

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult
    from tqdm import tqdm

    from seqdec.bo.result import SearchResult

DONE, FAILED, STOPPED, INTERRUPTED, EXHAUSTED, BROKEN, CALLBACK, INFEASIBLE, RAISED = range(9)

_logger = logging.getLogger(__name__)


class _CallbackError(Exception):
    """An exception of the callback, which is the cause."""


class _FunError(Exception):
    """An exception that ends the search, `args[0]`."""


class Run:
    """One run of `seqdec.minimize`."""

    def __init__(
        self,
        optimizer: BayesianOptimizer,
        fun: Callable[[Any], Any],
        n_calls: int,
        catch: tuple[type[Exception], ...],
        max_failures: int,
        callback: "Callable[[OptimizeResult], Any] | None",
        bar: "tqdm",
        given: list[Point],
        number: int,
        workers: Any,
        call_timeout: float | None,
    ) -> None:
        self.bar = bar
        self.optimizer, self.n_calls, self.callback = optimizer, n_calls, callback
        self.workers = Workers(functools.partial(call, fun, optimizer.outputs, catch), workers, catch, call_timeout)
        self.max_failures, self.failures, self.calls, self.last = max_failures, 0, 0, ""
        self.given, self.number = given, number
        self.choosing = 0.0
        """seconds that the last point took to be chosen"""
        self.error: BaseException | None = None
        self.traceback: str | None = None

    def until_ended(self) -> tuple[int, str]:
        """Evaluate until the budget is spent or the search is stopped -> (status, message).

        Raises an exception of `fun` that is not to be caught.
        """
        try:
            with contextlib.closing(self.workers.evaluated(self._goes_on, self._trials)) as evaluated:
                for trial, outcome in evaluated:
                    self._record(trial, outcome)
            if self.calls < self.n_calls and self.failures < self.max_failures:
                again = "noise_std above 0 for noisy values, or search=Search(repeats=True), allows repeats"
                return EXHAUSTED, f"every point of the space has been evaluated: {again}"
            if self.failures >= self.max_failures:
                return FAILED, f"{self.failures} calls in a row failed, the last with: {self.last}"
            return DONE, f"{self.n_calls} calls made"
        except StopIteration:
            return STOPPED, "callback raised StopIteration"
        except (BrokenExecutor, CancelledError) as error:
            self._keep_unclaimed()
            reason = str(error).partition("\n")[0]
            return BROKEN, f"the executor ended after {self.calls} calls: {type(error).__name__}: {reason}"
        except _CallbackError as error:
            self._keep_unclaimed()
            self.error = error.__cause__
            reason = f"callback raised {type(self.error).__name__}: {self.error}"
            warnings.warn(f"{reason}; the search ends after {self.calls} calls", RuntimeWarning, stacklevel=3)
            return CALLBACK, reason
        except KeyboardInterrupt:
            self._keep_unclaimed()
            if not self.calls:
                raise
            return INTERRUPTED, "interrupted"
        except _FunError as error:
            self._keep_unclaimed()
            raised: Exception = error.args[0]
        raise raised  # outside of the handlers, so that its context stays

    def attach(self, error: BaseException) -> None:
        """Give an exception that ends the search the result of the calls made, as `search_result`."""
        if self.optimizer.trials:
            vars(error)["search_result"] = self.result(RAISED, f"{type(error).__name__} was raised")
            note(error, "seqdec: all calls made are in `search_result` of this exception")

    def _keep_unclaimed(self) -> None:
        """Tell what is evaluated, but not recorded, when the search ends."""
        for trial, outcome in self.workers.unclaimed:
            self._tell(trial, outcome)

    def _goes_on(self) -> bool:
        return self.calls < self.n_calls and self.failures < self.max_failures

    def _trials(self, pending: int) -> list[Trial]:
        """The next trials beside those that are pending, fewer where no new point is left."""
        from seqdec.progress import compiling

        wanted = min(self.number, self.n_calls - self.calls) - pending
        trials: list[Trial] = []
        began, said = time.perf_counter(), self.bar.postfix or ""
        if not self.optimizer.is_fitted:
            compiling(self.bar)
        with contextlib.suppress(Exhausted):
            while len(trials) < wanted:
                trials.append(self.optimizer.propose(self.given.pop(0)) if self.given else self.optimizer.ask())
        self.bar.set_postfix_str(said)
        if trials:
            self.choosing = (time.perf_counter() - began) / len(trials)
        return trials

    def _record(self, trial: Trial, outcome: Outcome) -> None:
        self._tell(trial, outcome)
        self.bar.update()
        if outcome.raised is not None:
            note(outcome.raised.error, f"seqdec: call {self.calls} of fun, at {trial.x!r}")
            raise _FunError(outcome.raised.error)
        if self.callback is not None or not outcome.reason:
            so_far = self.result(DONE, "running")
            self.bar.set_postfix({**_shown(so_far), "choosing": f"{self.choosing:.2g} s/point"})
            if self.callback is not None:
                try:
                    self.callback(so_far)
                except StopIteration:
                    raise
                except Exception as error:
                    raise _CallbackError from error

    def _tell(self, trial: Trial, outcome: Outcome) -> None:
        reason = outcome.reason
        value, outcomes, seconds = outcome.value, outcome.outcomes, outcome.seconds
        self.optimizer.tell(trial, value, outcomes=outcomes, failed=bool(reason), reason=reason, seconds=seconds)
        self.calls += 1
        self.failures, self.last = (self.failures + 1 if reason else 0), reason
        if outcome.traceback and outcome.raised is None:
            detail = f"\n{outcome.traceback}" if self.traceback is None else ""
            _logger.warning("call %d of fun failed at %r: %s%s", self.calls, trial.x, reason, detail)
            self.traceback = self.traceback or outcome.traceback

    def result(self, status: int, message: str, final: bool = False) -> "SearchResult":
        """The result of all calls so far; of the best one unless it is `final`."""
        from seqdec.bo.result import SearchResult

        if not np.isfinite(self.optimizer.evaluations()[1]).any():
            if status == DONE:
                status, message = FAILED, f"all {self.calls} calls failed, the last with: {self.last}"
        elif final and not self.optimizer.is_feasible and status in (DONE, EXHAUSTED):
            status, message = INFEASIBLE, f"none of the {self.calls} calls was feasible"
        return SearchResult.of(
            self.optimizer,
            final,
            message,
            nfev=self.calls,
            status=status,
            success=status in (DONE, EXHAUSTED),
            traceback=self.traceback,
            **({} if self.error is None else {"error": self.error}),
        )


def _shown(so_far: "OptimizeResult") -> dict[str, str]:
    """What the progress bar says of the calls so far."""
    return {"best": f"{so_far.fun:.6g}"} if np.ndim(so_far.fun) == 0 else {"front": f"{len(so_far.x)} points"}
