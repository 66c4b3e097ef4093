"""Calls that wait, made together: while one batch is written to the disk, the next gathers."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, NamedTuple


class FullError(Exception):
    """Too many calls are waiting."""


class _Job(NamedTuple):
    rows: Sequence[Any]
    options: tuple[Any, ...]
    answer: asyncio.Future[Any]


class Batches:
    """One thread that makes the calls of many requests: `call(rows, *options) -> results`, about `most` rows at once.

    A batch begins when a turn of the event loop has brought nothing more, because a batch costs far more than a row.
    Where a call refuses its rows (ValueError, TypeError) and has changed nothing, each half of its jobs is tried alone,
    so that only the job at fault is refused. Methods belong to the event loop's thread, but for `close` and `join`.
    """

    def __init__(self, name: str, call: Callable[..., Sequence[Any]], *, most: int, room: int) -> None:
        self._call, self._most, self._room = call, most, room
        self._jobs: deque[_Job] = deque()
        self._batch: list[_Job] = []
        self._batches: SimpleQueue[list[_Job] | None] = SimpleQueue()
        self._loop, self._is_open, self._is_busy, self.waiting = asyncio.get_running_loop(), True, False, 0
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def ask(self, rows: Sequence[Any], *options: Any) -> Sequence[Any]:
        """Results of rows that succeed or fail together. Raises FullError, RuntimeError once closed, as the call."""
        if not self._is_open:
            raise RuntimeError("the deployment is closed")
        if self.waiting and self.waiting + len(rows) > self._room:
            raise FullError
        self.waiting += len(rows)
        answer = self._loop.create_future()
        self._jobs.append(_Job(rows, options, answer))
        self._go_on()
        return await answer

    def close(self) -> None:
        """Refuse what comes later; what waits is still answered."""
        self._is_open = False
        self._loop.call_soon_threadsafe(self._guarded, self._go_on)

    def join(self, seconds: float) -> bool:
        """Whether all has been answered, after at most so long."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _guarded(self, step: Callable[..., None], *arguments: Any) -> None:
        """A step in the loop; its exception, such as of memory, is the answer to the batch, and others go on."""
        try:
            step(*arguments)
        except BaseException as error:
            self._refuse(error)

    def _refuse(self, error: BaseException) -> None:
        jobs, self._batch, self._is_busy = self._batch, [], False
        for job in jobs:
            self.waiting -= len(job.rows)
            if not job.answer.done():
                job.answer.set_exception(error)
        self._go_on()

    def _go_on(self) -> None:
        if self._is_busy:
            return
        if self._jobs:
            self._is_busy = self._begin(0)
        elif not self._is_open:
            self._batches.put(None)

    def _begin(self, before: int) -> bool:
        self._loop.call_soon(self._guarded, self._gather, before)
        return True

    def _gather(self, before: int) -> None:
        """Begin a batch, or come back if more waits than at the last turn."""
        if before < self.waiting < self._most:
            self._begin(self.waiting)
            return
        count = 0
        while self._jobs and count < self._most:
            self._batch.append(self._jobs.popleft())
            count += len(self._batch[-1].rows)
        self._batches.put(self._batch)

    def _work(self) -> None:
        with suppress(RuntimeError):  # the loop has ended
            while True:
                try:
                    jobs = self._batches.get()
                    if jobs is None:
                        return
                    step = self._deliver, self._made(jobs)
                except BaseException as error:
                    step = self._refuse, error
                self._loop.call_soon_threadsafe(self._guarded, *step)

    def _made(self, jobs: list[_Job]) -> Mapping[asyncio.Future[Any], Any]:
        answers: dict[asyncio.Future[Any], Any] = {}
        for options in dict.fromkeys(job.options for job in jobs):
            some = [job for job in jobs if job.options == options]
            answers |= zip((job.answer for job in some), self._answers(some, options), strict=True)
        return answers

    def _answers(self, jobs: list[_Job], options: tuple[Any, ...]) -> list[Any]:
        """Results of each job, or an exception."""
        try:
            results = iter(self._call([row for job in jobs for row in job.rows], *options))
            return [[next(results) for _ in job.rows] for job in jobs]
        except (ValueError, TypeError) as error:
            if len(jobs) == 1:
                return [error]
            half = len(jobs) // 2
            return self._answers(jobs[:half], options) + self._answers(jobs[half:], options)
        except BaseException as error:  # is every request's
            return [error] * len(jobs)

    def _deliver(self, answers: Mapping[asyncio.Future[Any], Any]) -> None:
        while self._batch:
            future = self._batch[-1].answer
            answer = answers[future]
            if future.done():  # its client has gone
                pass
            elif isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)
            self.waiting -= len(self._batch.pop().rows)
        self._is_busy = False
        self._go_on()
