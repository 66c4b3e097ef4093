"""Who evaluates the points: this process, other processes, a function like `map`, or an executor."""

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from typing import Any, TypeAlias

from seqdec.bo.minimizer.outcome import Outcome, failed
from seqdec.bo.record import Trial
from seqdec.executors import Local

Evaluated: TypeAlias = tuple[Trial, Outcome | None]


class Workers:
    """The evaluation of trials.

    Args:
        call: (trial) -> Outcome, or None where it was too late to begin.
        workers: as in `seqdec.minimize`.
        catch: exceptions of a worker that make a failed call.
        call_timeout: seconds that a call may take, or None.
    """

    def __init__(
        self,
        call: Callable[[Trial], Outcome | None],
        workers: Any,
        catch: tuple[type[Exception], ...],
        call_timeout: float | None,
    ) -> None:
        """See the class."""
        self._call, self._workers, self._catch, self._call_timeout = call, workers, catch, call_timeout
        self.unclaimed: Iterator[Evaluated] = iter(())
        """Trials that are evaluated, but were not handed out when the iteration ended."""

    def evaluated(self, goes_on: Callable[[], bool], ask: Callable[[int], list[Trial]]) -> Generator[Evaluated]:
        """Trials and outcomes, while `goes_on` says so: a batch after the other, or as an executor completes them.

        Leaving the iteration cancels those that wait for a worker.

        Args:
            goes_on: () -> whether further trials are wanted.
            ask: (trials under evaluation) -> further trials to evaluate; none where all have been asked.
        """
        return (self._as_completed if isinstance(self._workers, Executor) else self._in_batches)(goes_on, ask)

    def _in_batches(self, goes_on: Callable[[], bool], ask: Callable[[int], list[Trial]]) -> Generator[Evaluated]:
        with contextlib.ExitStack() as held:
            workers = self._workers
            if self._call_timeout is not None:
                workers = Local(None if workers == -1 else workers, call_timeout=self._call_timeout)
                held.callback(workers.shutdown, cancel_futures=True)
            while goes_on() and (batch := ask(0)):
                outcomes = self._outcomes(batch, workers)
                evaluated = zip(batch, outcomes, strict=True)
                self.unclaimed = evaluated if isinstance(outcomes, list) else iter(())  # others evaluate on demand
                yield from evaluated

    def _outcomes(self, batch: Sequence[Trial], workers: Any) -> Any:
        """The outcomes of a batch, in its order; evaluated lazily if there is one worker."""
        if isinstance(workers, Local):
            pending = {workers.submit(self._call, trial): trial for trial in batch}
            self.unclaimed = self._completed(pending)
            wait(pending)
            return [self._outcome(future) for future in pending]
        if callable(workers):
            return workers(self._call, batch)
        if workers == 1:
            return (self._call(trial) for trial in batch)
        from joblib import Parallel, delayed  # slow to import

        done: dict[int, Outcome | None] = {}
        self.unclaimed = ((trial, done[trial.number]) for trial in batch if trial.number in done)
        calls = (delayed(_numbered)(self._call, trial) for trial in batch)
        found: Any = Parallel(n_jobs=workers, return_as="generator_unordered")(calls)
        done.update(found)
        return [done[trial.number] for trial in batch]

    def _as_completed(self, goes_on: Callable[[], bool], ask: Callable[[int], list[Trial]]) -> Generator[Evaluated]:
        pending: dict[Future[Outcome | None], Trial] = {}
        self.unclaimed = self._completed(pending)
        try:
            while goes_on():
                while trials := ask(len(pending)):
                    pending |= {self._workers.submit(self._call, trial): trial for trial in trials}
                if not pending:
                    return
                done = wait(pending, return_when=FIRST_COMPLETED).done
                # The values before the news that the executor has broken.
                for future in sorted(done, key=lambda one: (_broken(one), pending[one].number)):
                    yield pending.pop(future), self._outcome(future)
        finally:
            for future in pending:
                future.cancel()

    def _completed(self, pending: dict[Future[Outcome | None], Trial]) -> Iterator[Evaluated]:
        """Those of the pending trials that are completed when this is asked for."""
        for future, trial in pending.items():
            if future.done() and not _broken(future):
                yield trial, self._outcome(future)

    def _outcome(self, future: Future[Outcome | None]) -> Outcome | None:
        """The outcome of a future that is done; an exception is that of its transport. Raises where it ended."""
        if not _broken(future) and isinstance(error := future.exception(), Exception):
            seconds = self._call_timeout if isinstance(error, TimeoutError) else None
            return failed(error, (*self._catch, TimeoutError), seconds)  # TimeoutError: the executor ended the call
        return future.result()


def _broken(future: Future[Outcome | None]) -> bool:
    """Whether a future that is done tells of the end of its executor."""
    return future.cancelled() or isinstance(future.exception(), BrokenExecutor | CancelledError)


def _numbered(call: Callable[[Trial], Outcome | None], trial: Trial) -> tuple[int, Outcome | None]:
    return trial.number, call(trial)
