"""Processes that share out tasks: on this machine, or on the machines of a Ray cluster.

Both are `concurrent.futures.Executor`s, as `seqdec.minimize(workers=...)` and `seqdec sweep` take them.
"""

import importlib.util
import multiprocessing
import os
import signal
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, as_completed
from typing import Any, TypeVar

from seqdec.checks import count
from seqdec.runtime import available_cores

K = TypeVar("K", bound=Hashable)
_RETRIES = 3
_FORWARDED = ("SEQDEC_DATA", "XLA_FLAGS")


def local(workers: int | None = None) -> Executor:
    """Processes on this machine, one for each core that this one may use unless `workers` says otherwise.

    Raises TypeError or ValueError for what is no number of processes.
    """
    number = available_cores() if workers is None else count("workers", workers)
    # Not forked: JAX has threads. Ctrl-C is for the process that asked for the work.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(number, context, signal.signal, (signal.SIGINT, signal.SIG_IGN))


def check_ray() -> None:
    """Raises ImportError, naming the remedy, where Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise ImportError("Ray is not installed: pip install 'seqdec[ray]'")


class Ray(Executor):
    """The workers of a Ray cluster, which runs a task again, on another worker, when its worker dies.

    Functions and arguments must be picklable by cloudpickle, and seqdec must be installed on every machine. The
    environment variables SEQDEC_DATA and XLA_FLAGS of this process are those of the workers too.

    Args:
        address: of the cluster, as `ray.init` takes it, such as "auto" or "ray://head:10001"; None starts one on this
            machine, which ends with the executor.
        workers: CPUs of a cluster that is started here; None is one for each core.

    Raises:
        ImportError: Ray is not installed.
        ConnectionError: there is no cluster at the address.
    """

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        """See the class."""
        check_ray()
        import ray  # pyright: ignore[reportMissingImports] (an extra)

        self._ray = ray
        variables = {name: os.environ[name] for name in _FORWARDED if name in os.environ}
        own = {"num_cpus": available_cores() if workers is None else count("workers", workers)}
        ray.init(
            address or "local",
            runtime_env={"env_vars": variables},
            log_to_driver=False,
            logging_level="ERROR",
            **({} if address else {**own, "include_dashboard": False}),
        )

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """A task of one CPU."""
        remote = self._ray.remote(num_cpus=1, max_retries=_RETRIES)(fn)
        return remote.remote(*args, **kwargs).future()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Disconnect; a cluster that was started here ends, with its tasks."""
        del wait, cancel_futures
        self._ray.shutdown()


def completed(
    make: Callable[[], Executor], function: Callable[[Any], Any], tasks: Mapping[K, Any]
) -> Iterator[tuple[K, Any]]:
    """Yield (key, function(task)), or (key, exception), in the order in which the tasks are completed.

    Tasks that were lost with a worker process run again on new ones, three times at most. Leaving the iteration ends
    all processes.
    """
    left = dict(tasks)
    for _ in range(1 + _RETRIES):
        if not left:
            return
        executor = make()
        try:
            futures = {executor.submit(function, task): key for key, task in left.items()}
            for future in as_completed(futures):
                error = future.exception()
                if isinstance(error, BrokenExecutor):
                    continue
                key = futures[future]
                del left[key]
                yield key, error or future.result()
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
            if left:
                for process in multiprocessing.active_children():
                    process.terminate()
    for key in left:
        yield key, BrokenExecutor(f"its worker process died {1 + _RETRIES} times")
