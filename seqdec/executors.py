"""Executors of worker processes, on this machine or a Ray cluster, for `seqdec.minimize(workers=...)` and sweeps.

A task whose worker dies runs again on another, three times at most. `Future.cancel` ends a running task too, Ctrl-C all
tasks, and `Local` a task beyond its time limit.

Results of JAX may depend on the number of devices and threads: every worker has one CPU device with the threads of one
core. JAX_PLATFORMS chooses another device.
"""

import contextlib
import importlib.util
import io
import logging
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping
from concurrent import futures
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from typing import Any, BinaryIO

import cloudpickle
import jax

from seqdec.boundary.checks import count, positive
from seqdec.persistence import located
from seqdec.runtime import available_cores

_RETRIES = 3
_CONNECT_SECONDS = 20
_OBJECT_STORE_BYTES = 100_000_000
_BEGUN = b""
"""Sent by a worker before a call, and before its answer."""
_PINNED = {"JAX_NUM_CPU_DEVICES": "1", "NPROC": "1", "PJRT_NPROC": "1"}


def worker_environment() -> dict[str, str]:
    """Environment of every worker: this process's settings of JAX, XLA and seqdec, on one CPU device."""
    own = {name: value for name, value in os.environ.items() if name.startswith(("JAX_", "XLA_", "SEQDEC_"))}
    if own.get("SEQDEC_DATA"):
        own["SEQDEC_DATA"] = str(located(own["SEQDEC_DATA"]))  # workers may have another working directory
    cache = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue] (made by JAX at run time)
    kept = {} if cache is None else {
        "JAX_COMPILATION_CACHE_DIR": os.path.join(cache, "workers"),  # whose programs have other threads
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }  # fmt: skip
    return {"JAX_PLATFORMS": "cpu"} | own | kept | _PINNED


class _Task(Future[Any]):
    """A future whose `cancel` also ends a running task, with CancelledError."""

    def __init__(self) -> None:
        super().__init__()
        self._stopped, self._guard = False, threading.Lock()
        self._end: Callable[[], Any] | None = None

    def cancel(self) -> bool:
        if self.done():
            return False
        with self._guard:
            self._stopped = True
            if self._end is not None:
                self._end()
        super().cancel()
        return True

    def goes_on(self, end: Callable[[], Any] | None) -> bool:
        """`end` ends the task from here on; False if it has been cancelled."""
        with self._guard:
            self._end = end
            return not self._stopped


class _Workers(Executor):
    """An executor of its process, not of a forked one; an exception within `with` ends it at once."""

    def __init__(self) -> None:
        self._owner = os.getpid()

    def _check_owner(self) -> None:
        if os.getpid() != self._owner:
            raise RuntimeError("this executor belongs to the process that forked this one; make one here")

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        self.shutdown(cancel_futures=kind is not None and not issubclass(kind, Exception))


class Local(_Workers):
    """Processes on this machine, printing on standard error. cloudpickle must pickle what they get and return.

    Args:
        workers: number of processes; None: one per core that this process may use.
        call_timeout: seconds for a call in the worker; then the worker is killed, with the processes that it started,
            and replaced, and the future raises TimeoutError.

    Raises TypeError or ValueError for a setting out of its range.
    """

    def __init__(self, workers: int | None = None, *, call_timeout: float | None = None) -> None:
        super().__init__()
        if call_timeout is not None:
            positive("call_timeout", call_timeout)
        self._limit = call_timeout
        self.workers = available_cores() if workers is None else count("workers", workers)
        self._environment = {
            **os.environ,
            **worker_environment(),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        # Each thread waits for the one process that computes its task, so that a death concerns no other task.
        self._threads = ThreadPoolExecutor(self.workers)
        self._tasks: set[_Task] = set()
        self._started: list[_Process] = []
        self._idle: list[_Process] = []
        self._lock, self._closed = threading.Lock(), False
        _LOCALS.add(self)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """A task of one process; its future raises RuntimeError if workers died too often.

        Raises RuntimeError after `shutdown`, and in a forked process.
        """
        self._check_owner()
        task = _Task()
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._threads.submit(self._work, task, fn, args, kwargs)
        return task

    def _work(self, task: _Task, *call: Any) -> None:
        if not task.set_running_or_notify_cancel():
            return
        try:
            task.set_result(self._attempt(task, cloudpickle.dumps(call)))
        except BaseException as error:
            task.set_exception(error)

    def _attempt(self, task: _Task, content: bytes) -> Any:
        code: int | None = None
        for _ in range(1 + _RETRIES):
            process = self._process()
            answer = process.call(content, self._limit) if task.goes_on(process.end) else None
            if not task.goes_on(None):
                process.end()
                raise CancelledError
            if answer is not None:
                self._idle.append(process)
                return _opened(answer)
            code = process.end()
        raise RuntimeError(f"its worker process died {1 + _RETRIES} times, the last time with exit code {code}")

    def _process(self) -> "_Process":
        with self._lock:
            if self._closed:
                raise CancelledError
            if self._idle:
                return self._idle.pop()
            process = _Process(self._environment)
            self._started.append(process)
            return process

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes when all tasks are done; at once with `cancel_futures` or on Ctrl-C."""
        if os.getpid() != self._owner:
            return
        if not cancel_futures:
            try:
                self._threads.shutdown(wait)
            except KeyboardInterrupt:
                self.shutdown(cancel_futures=True)
                raise
            if not wait:
                return  # they end with this process
        with self._lock:
            self._closed = True
        for task in tuple(self._tasks):
            task.cancel()
        self._threads.shutdown(wait=False)
        for process in self._started:
            process.end()


_LOCALS: "weakref.WeakSet[Local]" = weakref.WeakSet()


def _end_after_interrupt() -> None:
    if issubclass(getattr(sys, "last_type", None) or Exception, KeyboardInterrupt):
        for executor in tuple(_LOCALS):
            executor.shutdown(cancel_futures=True)


# As concurrent.futures.thread does, whose function, registered earlier, is called later.
threading._register_atexit(_end_after_interrupt)  # pyright: ignore[reportAttributeAccessIssue] (not in its stubs)


class _Process:
    """A worker process; the end of its standard input ends it, with all that its tasks started."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        command = [sys.executable, "-c", "from seqdec.executors import serve; serve()"]
        # In a session of its own, because Ctrl-C is for the process that asked for the work.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._tasks, self._answers = self._process.stdin, self._process.stdout
        self._lock = threading.Lock()

    def call(self, task: bytes, limit: float | None) -> bytes | None:
        """The answer of `serve` to a task; None if the process has died.

        Raises TimeoutError, after the end of the process, for a call of more than `limit` seconds.
        """
        overdue = threading.Event()

        def end() -> None:
            overdue.set()
            self.end()

        clock = threading.Timer(min(limit or 0, threading.TIMEOUT_MAX), end)
        clock.daemon = True
        try:
            pickle.dump(task, self._tasks)
            self._tasks.flush()
            found = pickle.load(self._answers)
            if found != _BEGUN:
                return found
            if limit is not None:
                clock.start()
            return pickle.load(self._answers)
        except (OSError, EOFError, ValueError, pickle.UnpicklingError):
            if overdue.is_set():
                raise TimeoutError(
                    f"the call took longer than call_timeout={limit:g} seconds; its worker process was ended"
                ) from None
            return None
        finally:
            clock.cancel()

    def end(self) -> int:
        """Kill the process; its exit code."""
        with self._lock:
            if self._process.returncode is None:
                with contextlib.suppress(OSError):
                    _kill_group(self._process.pid)
            code = self._process.wait()
            for pipe in (self._answers, self._tasks):
                with contextlib.suppress(OSError):
                    pipe.close()
            return code


def serve() -> None:
    """Answer each task; end with the driver, also within a task."""
    answers, source = os.fdopen(os.dup(1), "wb"), os.fdopen(os.dup(0), "rb")
    os.dup2(2, 1)  # a task prints to standard error, line by line, since the process is killed in the end
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # and has nothing to read
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(source, tasks), daemon=True).start()

    def send(message: bytes) -> None:
        pickle.dump(message, answers)
        answers.flush()

    while True:
        send(answer(tasks.get(), lambda: send(_BEGUN)))


def _receive(source: BinaryIO, tasks: "queue.SimpleQueue[bytes]") -> None:
    with contextlib.suppress(EOFError, OSError, pickle.UnpicklingError):
        while True:
            tasks.put(pickle.load(source))
    _kill_group(os.getpid())


def _kill_group(leader: int) -> None:
    """Kill a process that leads a session and, with groups, those that it started."""
    if os.name == "posix":
        os.killpg(leader, signal.SIGKILL)
    else:
        os.kill(leader, signal.SIGTERM)


def answer(task: bytes, begin: Callable[[], Any] = lambda: None) -> bytes:
    """A pickled (function, args, kwargs) called after `begin`: pickled (result, exception)."""
    try:
        fn, args, kwargs = pickle.loads(task)
        begin()
        return cloudpickle.dumps((fn(*args, **kwargs), None))
    except Exception as raised:
        try:
            found = cloudpickle.dumps((None, raised))
            pickle.loads(found)
        except Exception:  # it cannot be pickled, or not read again
            return cloudpickle.dumps((None, RuntimeError(f"{type(raised).__name__}: {raised}")))
        return found


def _opened(found: bytes) -> Any:
    result, error = pickle.loads(found)
    if error is not None:
        raise error
    return result


class Ray(_Workers):
    """Workers of a Ray cluster, one per CPU, with seqdec; cloudpickle must pickle what they get.

    Args:
        address: address for `ray.init`, such as "auto" or "ray://head:10001"; None starts a cluster for this executor,
            reachable from this machine alone.
        workers: CPUs of a cluster that is started; None: one per core.

    Raises:
        ImportError: Ray is not installed.
        ConnectionError: there is no cluster at the address.
    """

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        super().__init__()
        check_ray()
        if address is not None:
            _check_reachable(address)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        own: dict[str, Any] = {}
        if address is None:
            # Despite its name this applies to Linux too: all of Ray's servers then listen on 127.0.0.1.
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
            number = available_cores() if workers is None else count("workers", workers)
            own = {"num_cpus": number, "include_dashboard": False, "object_store_memory": _OBJECT_STORE_BYTES}
        import ray  # pyright: ignore[reportMissingImports] (an extra)

        self._ray = ray
        self._futures: list[_Task] = []
        with warnings.catch_warnings():
            # Ray's processes replace the forked one at once, so that JAX's threads do not matter.
            warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
            try:
                ray.init(
                    address or "local",
                    runtime_env={"env_vars": worker_environment()},
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    **own,
                )
            except ConnectionError as error:
                remedy = "a cluster with token authentication needs RAY_AUTH_MODE=token in the environment"
                raise ConnectionError(f"no Ray cluster answers at {address!r}: {error}; {remedy}") from error
        self.workers = max(1, int(ray.cluster_resources().get("CPU", 1)))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """A task of one CPU; its future raises RuntimeError if Ray gives it up, `submit` in a forked process."""
        self._check_owner()
        remote = self._ray.remote(num_cpus=1, max_retries=_RETRIES)(answer)
        found = remote.remote(cloudpickle.dumps((fn, args, kwargs)))
        future = _Task()
        future.goes_on(lambda: self._ray.cancel(found, force=True))
        found.future().add_done_callback(lambda done: _pass_on(done, future))
        self._futures.append(future)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Disconnect, after all tasks if `wait`, or on Ctrl-C; a cluster started here ends."""
        if os.getpid() != self._owner:
            return
        try:
            if wait and not cancel_futures:
                futures.wait(self._futures)
        finally:
            self._ray.shutdown()


def _pass_on(found: Future[bytes], future: Future[Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        if (error := found.exception()) is not None:
            reason = str(error).strip().partition("\n")[0]
            raise RuntimeError(f"Ray did not complete it: {type(error).__name__}: {reason}") from error
        future.set_result(_opened(found.result()))
    except Exception as error:
        future.set_exception(error)


def _check_reachable(address: str) -> None:
    """Raises ConnectionError where nothing answers at host:port."""
    host, colon, port = address.removeprefix("ray://").partition(":")
    if not colon:
        return  # such as "auto": Ray looks for the cluster itself
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise ConnectionError(f"there is no Ray cluster at {address!r}: {error}") from error


def check_ray() -> None:
    """Raises ImportError, with the remedy, without Ray."""
    if importlib.util.find_spec("ray") is None:
        raise ImportError("Ray is not installed: pip install 'seqdec[ray]'")


def width(executor: Executor) -> int | None:
    """How many tasks run at a time, if known."""
    return getattr(executor, "workers", getattr(executor, "_max_workers", None))
