"""The loop of `seqdec.minimize`: ask, call, tell."""

import contextlib
import logging
import math
import time
import warnings
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, CancelledError
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from seqdec.bo.limits import (
    BROKEN,
    CALLBACK,
    DONE,
    EXHAUSTED,
    FAILED,
    INFEASIBLE,
    INTERRUPTED,
    RAISED,
    SUCCESSES,
    TIME,
    Limits,
    Progress,
    end,
    fits,
    made,
)
from seqdec.bo.optimizer import BayesianOptimizer
from seqdec.bo.space.space import Point, identity
from seqdec.bo.study import LostError, Study
from seqdec.bo.trials import Exhausted, Trial
from seqdec.bo.workers import Outcome, Workers, note
from seqdec.persistence import file_identity

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult
    from tqdm import tqdm

    from seqdec.bo.result import SearchResult

R = TypeVar("R")
NOTE = "minimize"
"""The optimizer's note of the progress."""
_PAUSE = 1.0
"""Seconds between computations of the expected gain, and between looks at what other processes evaluate."""
_REPEATS = 3
"""Last calls at the best point where values may be noisy."""
_logger = logging.getLogger(__name__)


def write(path: Path | None, optimizer: BayesianOptimizer, progress: Progress) -> None:
    """Replace the locked file, if there is a path. Raises as `BayesianOptimizer.save`."""
    if path is not None:
        optimizer.notes = {NOTE: progress._asdict()}
        optimizer._write(path)


class _CallbackError(Exception):
    """Its cause is the exception of the callback."""


class _FunError(Exception):
    """`args`: an exception that ends the search, its trial, the outcome."""


@dataclass(eq=False)
class Run:
    """One run of `seqdec.minimize`."""

    optimizer: BayesianOptimizer
    progress: Progress
    limits: Limits
    workers: Workers
    number: int
    """trials under evaluation at a time"""
    points: list[Point]
    """to start from"""
    callback: "Callable[[OptimizeResult], Any] | None"
    """(result so far) -> True to end the search"""
    bar: "tqdm"
    study: Study
    read: Callable[[], tuple[BayesianOptimizer, Progress]]
    """what the study's file holds"""
    choosing: float = 0.0
    """seconds to choose the last point"""
    gain: float = math.nan
    """expected of the last point, for the bar"""
    looked: float = -math.inf
    """when the gain was computed"""
    late: bool = False
    """whether a worker found the time over"""
    error: BaseException | None = None
    """of the callback"""

    def __post_init__(self) -> None:
        self._adopt(self.optimizer, self.progress)

    def _adopt(self, optimizer: BayesianOptimizer, progress: Progress) -> None:
        self.optimizer, self.progress = optimizer, progress
        self.given = self.points[len(optimizer.trials) :]
        """points to start from that were not proposed"""
        self.signs = self.optimizer.settings.signs[: self.optimizer.outputs.objectives]
        values = np.reshape(self.optimizer.evaluations()[1], (-1, len(self.signs)))
        self.front = values[self.optimizer.feasibility()] * self.signs
        """(k, objectives) feasible values, larger is better, among them the best"""
        self.reserved: dict[int, float] = {}
        """costs of the trials under evaluation, by number"""
        self.elsewhere: dict[str, str] = {}
        """as `Progress.held`, by other processes"""
        if len(self.front) and self.progress.improved is None:
            self.progress = self.progress._replace(improved=0)

    def _shared(self, act: Callable[[], R]) -> R:
        """`act` on the newest state, while other processes wait; again where the study was lost meanwhile."""
        while True:
            with contextlib.suppress(LostError), self.study.exclusive():
                if self.study.worker:
                    self._refresh(self.study.worker)
                return act()

    def _refresh(self, own: str) -> None:
        if self.study.path is not None and self.optimizer._file != (self.study.path, file_identity(self.study.path)):
            self._adopt(*self.read())
        held = self.progress.held.items()
        alive = {worker for worker in {worker for _, worker in held} - {own} if self.study.is_alive(worker)}
        self.elsewhere = {number: worker for number, worker in held if worker in alive}

    def _write(self) -> None:
        own = dict.fromkeys(map(str, self.reserved), self.study.worker) if self.study.worker else {}
        self.progress = self.progress._replace(held=self.elsewhere | own)
        write(self.study.path, self.optimizer, self.progress)

    def until_ended(self) -> tuple[int, str]:
        """Evaluate until the search ends -> (status, message). Raises exceptions of `fun` not to be caught."""
        try:
            return self._loop()
        except (BrokenExecutor, CancelledError) as error:
            self._keep_unclaimed()
            reason, calls = str(error).partition("\n")[0], self.progress.calls
            return BROKEN, f"the executor ended after {calls} calls: {type(error).__name__}: {reason}"
        except _CallbackError as error:
            self._keep_unclaimed()
            self.error = error.__cause__
            reason = f"callback raised {type(self.error).__name__}: {self.error}"
            warnings.warn(f"{reason}; the search ends after {self.progress.calls} calls", RuntimeWarning, stacklevel=3)
            return CALLBACK, reason
        except KeyboardInterrupt:
            self._keep_unclaimed()
            if not self.progress.calls:
                raise
            return INTERRUPTED, "interrupted"
        except _FunError as error:
            raised, trial, outcome = error.args
            self._keep_unclaimed()
            self._tell(trial, outcome)
        raise raised  # outside of the handlers: its context stays

    def _loop(self) -> tuple[int, str]:
        if self.progress.reported < self.progress.calls:  # it was killed before the callback returned
            self._report()
        while True:
            with contextlib.closing(self.workers.evaluated(lambda: self._end() is None, self._trials)) as evaluated:
                for trial, outcome in evaluated:
                    if outcome is None:
                        self.late = True
                    else:
                        self._record(trial, outcome)
                    if self.progress.stopped:
                        break
            if not self._shared(lambda: bool(self.elsewhere)) or self._is_over():
                break
            time.sleep(_PAUSE)
        if (ended := self._end()) is not None:
            return ended
        if self._is_over():
            return TIME, f"time_limit of {self.limits.time_limit:g} seconds over: {made(self.progress)}"
        again = "noise_std above 0 for noisy values, or search=Search(repeats=True), allows repeats"
        return EXHAUSTED, f"every point of the space has been evaluated: {again}"

    def attach(self, error: BaseException) -> None:
        """Give an exception the result so far, as `search_result`."""
        if self.optimizer.trials:
            vars(error)["search_result"] = self.result(RAISED, f"{type(error).__name__} was raised")
            note(error, "seqdec: all calls made are in `search_result` of this exception")

    def _keep_unclaimed(self) -> None:
        """Tell what was evaluated but not recorded; what raised is not kept."""
        evaluated = [(trial, outcome) for trial, outcome in self.workers.unclaimed if outcome is not None]
        for trial, outcome in sorted(evaluated, key=lambda one: one[1].raised is not None):
            self._tell(trial, outcome)

    def _end(self) -> tuple[int, str] | None:
        return end(self.limits, self.progress, self.front)

    def _is_over(self) -> bool:
        return self.late or time.time() >= self.limits.deadline

    def _trials(self, pending: int) -> list[Trial]:
        if self._is_over() or pending >= self.number:
            return []
        if self.study.worker:
            self.optimizer._compile_ahead()
        return self._shared(lambda: [] if self._end() is not None else self._chosen(pending))

    def _chosen(self, pending: int) -> list[Trial]:
        """The next trials, first those of a killed process."""
        from seqdec.progress import compiling

        if not pending:
            self.reserved = {}
        trials: list[Trial] = []
        taken = {*map(str, self.reserved), *self.elsewhere}
        asked = [trial for trial in self.optimizer.pending if str(trial.number) not in taken]
        while asked and self._has_room(pending + len(trials)):
            trials.append(self._begun(asked.pop(0)))
        if trials:
            self._write()
            return trials
        began, said = time.perf_counter(), self.bar.postfix or ""
        if not self.optimizer.is_fitted:
            compiling(self.bar)
        with contextlib.suppress(Exhausted):
            while self._has_room(pending + len(trials)):
                trials.append(self._begun(self._next()))
        self.bar.set_postfix_str(said)
        if trials:
            self.choosing = (time.perf_counter() - began) / len(trials)
            shown = self.optimizer.is_fitted and len(self.signs) == 1 and not self.bar.disable
            if shown and began > self.looked + _PAUSE:
                self.gain, self.looked = self.optimizer.expected_gain(), began
            self._write()
        return trials

    def _has_room(self, pending: int) -> bool:
        return pending < self.number and fits(self.limits, self._cost())

    def _cost(self) -> float:
        elsewhere = (trial for trial in self.optimizer.pending if str(trial.number) in self.elsewhere)
        return self.progress.cost + sum(self.reserved.values()) + sum(map(self._cost_of, elsewhere))

    def _begun(self, trial: Trial) -> Trial:
        self.reserved[trial.number] = self._cost_of(trial)
        return trial

    def _cost_of(self, trial: Trial, outcome: Outcome | None = None) -> float:
        """The cost of a call, in full evaluations; without its outcome, the most it can cost."""
        grid = self.optimizer.settings.fidelity
        if grid is None:
            return 1
        made = None if outcome is None else outcome.units
        return grid.cost(trial.fidelity if made is None else made)

    def _next(self) -> Trial:
        if self.given:
            return self.optimizer.propose(self.given.pop(0))
        grid = self.optimizer.settings.fidelity
        if self._repeats():
            return self.optimizer.propose(self.optimizer.recommend().x)
        if grid is None:
            return self.optimizer.ask()
        full = not fits(self.limits, self._cost(), grid.costs[1])
        return self.optimizer.ask(fidelity=grid.levels[0] if full else None)

    def _repeats(self) -> bool:
        """Whether to call again at the best point: at the end, until two values at one point are equal."""
        asked, left = self.limits.repeats, self.limits.n_calls - self._cost()
        if left > (min(_REPEATS, self.limits.n_calls // 10) if asked is None else asked):
            return False
        if not self.optimizer.is_feasible or (asked is None and not self.optimizer._may_be_noisy()):
            return False
        points, values = self.optimizer.evaluations()
        told: dict[Any, list[float]] = {}
        for x, value in zip(points, values.ravel(), strict=True):
            if math.isfinite(value):
                told.setdefault(identity(self.optimizer.space.flat(x)), []).append(value)
        again = [found for found in told.values() if len(found) > 1]
        return not again or any(max(found) > min(found) for found in again)

    def _record(self, trial: Trial, outcome: Outcome) -> None:
        if outcome.raised is not None:
            error = outcome.raised.error
            note(error, f"seqdec: call {self.progress.calls + 1} of fun, at {trial.x!r}")
            raise _FunError(error, trial, outcome)
        before = int(self.progress.cost)
        self._tell(trial, outcome)
        self.bar.update(int(self.progress.cost) - before)
        if self.callback is not None or not outcome.reason:
            self._report()

    def _report(self) -> None:
        so_far = self.result(DONE, "running")
        gain = {"expected gain": f"{self.gain:.2g}"} if self.gain >= 0 else {}
        self.bar.set_postfix({**_shown(so_far), **gain, "choosing": f"{self.choosing:.2g} s/point"})
        if self.callback is not None:
            try:
                answer = self.callback(so_far)
                stopped = "callback returned True" if isinstance(answer, bool | np.bool_) and answer else ""
            except StopIteration:
                stopped = "callback raised StopIteration"
            except Exception as error:
                raise _CallbackError from error
            self._shared(lambda: self._reported(stopped))

    def _reported(self, stopped: str) -> None:
        self.progress = self.progress._replace(reported=self.progress.calls, stopped=stopped or self.progress.stopped)
        self._write()

    def _tell(self, trial: Trial, outcome: Outcome) -> None:
        """Tell an outcome, and write the file unless an exception ends the search."""
        if outcome.raised is None:
            self._shared(lambda: self._told(trial, outcome) and self._write())
        else:
            self._told(trial, outcome)

    def _told(self, trial: Trial, outcome: Outcome) -> bool:
        """Whether it was told; not where another process, which took this one for dead, has told it."""
        reason, progress = outcome.reason, self.progress
        self.reserved.pop(trial.number, None)
        if self.study.worker and all(one.number != trial.number for one in self.optimizer.pending):
            return False
        self.optimizer.tell(
            trial,
            outcome.value,
            outcomes=outcome.outcomes,
            failed=bool(reason),
            reason=reason,
            seconds=outcome.seconds,
        )
        calls, first = progress.calls + 1, progress.traceback
        cost = progress.cost + self._cost_of(trial, outcome)
        improved = cost if not reason and self._improves(trial, outcome) else progress.improved
        if outcome.traceback and outcome.raised is None:
            detail = f"\n{outcome.traceback}" if first is None else ""
            _logger.warning("call %d of fun failed at %r: %s%s", calls, trial.x, reason, detail)
            first = first or outcome.traceback
        self.progress = progress._replace(
            calls=calls,
            cost=cost,
            failures=progress.failures + 1 if reason else 0,
            last=reason,
            improved=improved,
            reported=calls if self.callback is None or self.study.worker else progress.reported,
            traceback=first,
        )
        return True

    def _improves(self, trial: Trial, outcome: Outcome) -> bool:
        """Whether no earlier feasible value is as good in all objectives; it joins the front."""
        grid, value = self.optimizer.settings.fidelity, np.reshape(outcome.value, -1)
        if grid is not None and (trial.fidelity if outcome.units is None else outcome.units) < grid.levels[0]:
            return False
        value = (value if outcome.units is None else value[-1:]) * self.signs
        if any(number > 0 for number in outcome.outcomes or ()) or (self.front >= value).all(1).any():
            return False
        self.front = np.vstack([self.front, value])
        return True

    def result(self, status: int, message: str, final: bool = False) -> "SearchResult":
        """The result so far; of the best call unless `final`."""
        from seqdec.bo.result import SearchResult

        calls, ends = self.progress.calls, (DONE, EXHAUSTED, TIME)
        if calls and status in ends and not np.isfinite(self.optimizer.evaluations()[1]).any():
            status, message = FAILED, f"all {calls} calls failed, the last with: {self.progress.last}"
        elif calls and final and not self.optimizer.is_feasible and status in ends:
            status, message = INFEASIBLE, f"none of the {calls} calls was feasible"
        return SearchResult.of(
            self.optimizer,
            final,
            message,
            nfev=calls,
            cost=self.progress.cost,
            status=status,
            success=status in SUCCESSES and self.optimizer.is_feasible,
            traceback=self.progress.traceback,
            **({} if self.error is None else {"error": self.error}),
        )


def _shown(so_far: "OptimizeResult") -> dict[str, str]:
    return {"best": f"{so_far.fun:.6g}"} if np.ndim(so_far.fun) == 0 else {"front": f"{len(so_far.x)} points"}
