"""Calls that wait, made together: while one batch is written to the disk, the next gathers."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple


class FullError(Exception):
    """As much waits as may."""


class _Job(NamedTuple):
    rows: Sequence[Any]
    options: tuple[Any, ...]
    answer: asyncio.Future[Any]


class Batches:
    """One thread that makes the calls of many requests: `call(rows, *options) -> results`, about `most` rows at once.

    Where a call refuses its rows (ValueError, TypeError) and has changed nothing, each half of its jobs is tried alone,
    so that only the job at fault is refused. Methods belong to the event loop's thread, but for `join`.
    """

    def __init__(self, name: str, call: Callable[..., Sequence[Any]], *, most: int, room: int) -> None:
        self._call, self._most, self._room = call, most, room
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._loop, self._is_open, self.waiting = asyncio.get_running_loop(), True, 0
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
        self._jobs.put(_Job(rows, options, answer))
        return await answer

    def close(self) -> None:
        """Refuse what comes later; what waits is still answered."""
        self._is_open = False
        self._jobs.put(None)

    def join(self, seconds: float) -> bool:
        """Whether all has been answered, after at most so long."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _work(self) -> None:
        job = self._jobs.get()
        while job is not None:
            jobs, count = [], 0
            with contextlib.suppress(Empty):
                while job is not None:
                    jobs.append(job)
                    count += len(job.rows)
                    if count >= self._most:
                        break
                    job = self._jobs.get_nowait()
            for options in dict.fromkeys(one.options for one in jobs):
                self._settle([one for one in jobs if one.options == options], options)
            if job is not None:
                job = self._jobs.get()

    def _settle(self, jobs: list[_Job], options: tuple[Any, ...]) -> None:
        answers: list[Any]
        try:
            results = iter(self._call([row for job in jobs for row in job.rows], *options))
            answers = [[next(results) for _ in job.rows] for job in jobs]
        except (ValueError, TypeError) as error:
            if len(jobs) > 1:
                half = len(jobs) // 2
                self._settle(jobs[:half], options)
                return self._settle(jobs[half:], options)
            answers = [error]
        except BaseException as error:  # is every request's
            answers = [error] * len(jobs)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._deliver, jobs, answers)

    def _deliver(self, jobs: list[_Job], answers: list[Any]) -> None:
        for job, answer in zip(jobs, answers, strict=True):
            self.waiting -= len(job.rows)
            if job.answer.done():  # its client has gone
                continue
            if isinstance(answer, BaseException):
                job.answer.set_exception(answer)
            else:
                job.answer.set_result(answer)
