"""Worker processes, on this machine and on Ray, and `minimize` with workers of every kind."""

import importlib.util
import math
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqdec
from seqdec import executors
from seqdec.executors import Local, Ray

BOUNDS = [(-1.0, 1.0), (-1.0, 1.0)]
SPAWN = multiprocessing.get_context("spawn")
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


def bowl(x: Any) -> float:
    return float((x[0] - 0.3) ** 2 + x[1] ** 2)


def fragile(folder: str, x: Any) -> float:
    """The bowl; the second call kills its process, once."""
    (Path(folder) / f"call-{os.getpid()}-{float(x[0])}").touch()
    died = Path(folder) / "died"
    if len(list(Path(folder).glob("call-*"))) > 1 and not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return bowl(x)


def die(code: int) -> None:
    os._exit(code)


def device() -> tuple[str, int, Any]:
    import jax

    return jax.default_backend(), jax.device_count(), os.environ.get("NPROC")


class Odd(Exception):
    """It can be pickled, but not read again."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)


def fail_oddly() -> None:
    raise Odd("first", "second")


def test_local_processes_are_equal_and_return_values_and_errors(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PJRT_NPROC", "8")
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "4")
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    offset = 3
    with Local(2) as executor:
        assert executor.submit(device).result() == ("cpu", 1, "1")
        assert list(executor.map(lambda x: x + offset, range(5))) == [3, 4, 5, 6, 7]
        assert executor.submit(print, "printed").result() is None
        with pytest.raises(ZeroDivisionError):
            executor.submit(lambda: 1 / 0).result()
        with pytest.raises(RuntimeError, match="Odd: first"):
            executor.submit(fail_oddly).result()
        with pytest.raises((TypeError, RuntimeError), match="pickle"):
            executor.submit(threading.Lock).result()
    assert capfd.readouterr().err == "printed\n"
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(device)


@pytest.mark.extended
def test_a_death_concerns_one_task_only(tmp_path: Path) -> None:
    with Local(2) as executor:
        poison, others = executor.submit(die, 7), [executor.submit(pow, 2, n) for n in range(8)]
        assert [other.result() for other in others] == [2**n for n in range(8)]
        with pytest.raises(RuntimeError, match="its worker process died 4 times, the last time with exit code 7"):
            poison.result()
        xs = [np.array([0.1 * n, 0.0]) for n in range(4)]
        assert [executor.submit(fragile, str(tmp_path), x).result() for x in xs] == [bowl(x) for x in xs]
    assert (tmp_path / "died").exists()


@pytest.mark.extended
def test_workers_end_with_the_work(tmp_path: Path) -> None:
    """When the executor is told to cancel, and when its process is killed."""
    executor = Local(1)
    pid = executor.submit(os.getpid).result()
    running, waiting = executor.submit(wait_after, tmp_path / "begun"), executor.submit(os.getpid)
    assert happens((tmp_path / "begun").exists)
    executor.shutdown(cancel_futures=True)
    assert waiting.cancelled()
    with pytest.raises(CancelledError):
        running.result()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    program = HANGING + "Local(1).submit(hang); wait(); os._exit(9)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 9
    pids = [int(path.name.removeprefix("hung-")) for path in tmp_path.glob("hung-*")]
    assert len(pids) == 2 and happens(lambda: all(map(has_ended, pids)))


def wait_after(path: Path) -> None:
    path.touch()
    threading.Event().wait()


HANGING = """
import os, signal, subprocess, threading, time
from pathlib import Path
import seqdec
from seqdec.executors import Local
signal.signal(signal.SIGINT, signal.default_int_handler)

def hang():
    child = subprocess.Popen(["sleep", "100000"])
    Path(f"hung-{child.pid}").touch()
    Path(f"hung-{os.getpid()}").touch()
    time.sleep(100_000)

def wait():
    while len(list(Path().glob("hung-*"))) < 2:
        time.sleep(0.05)
"""
CTRL_C = """
def interrupt():
    wait()
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
"""
PROGRAMS = {
    "a result": "Local(1).submit(hang); interrupt()",
    "the end of with": """
threading.Thread(target=interrupt).start()
with Local(1) as executor: executor.submit(hang)
""",
    "minimize": """
threading.Thread(target=interrupt).start()
with Local(2) as executor:
    print(seqdec.minimize(lambda x: 1.0 if x[0] > 0.5 else hang(), [(0, 1)], x0=[[0.9], [0.1]], n_calls=9, seed=0,
                          workers=executor, batch_size=1).status)
""",
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", PROGRAMS)
def test_ctrl_c_ends_the_program_its_workers_and_what_they_started(name: str, tmp_path: Path) -> None:
    program = HANGING + CTRL_C + PROGRAMS[name]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, timeout=300)
    if name == "minimize":
        assert (done.returncode, done.stdout) == (0, "3\n")
    else:
        assert done.returncode == -signal.SIGINT and done.stderr.endswith("KeyboardInterrupt\n")
    pids = [int(path.name.removeprefix("hung-")) for path in tmp_path.glob("hung-*")]
    assert len(pids) == 2 and happens(lambda: all(map(has_ended, pids)))


def test_a_running_task_can_be_cancelled(tmp_path: Path) -> None:
    with Local(1) as executor:
        running, next_one = executor.submit(wait_after, tmp_path / "begun"), executor.submit(pow, 2, 3)
        assert happens((tmp_path / "begun").exists) and not running.cancelled()
        assert running.cancel()
        with pytest.raises(CancelledError):
            running.result()
        assert next_one.result() == 8 and not next_one.cancel() and not running.cancel()
        assert executor.submit(input).exception() is not None  # there is nothing to read


def test_an_end_within_with_ends_what_is_running(tmp_path: Path) -> None:
    executor = Local(1)
    running = executor.submit(wait_after, tmp_path / "begun")
    assert happens((tmp_path / "begun").exists)
    with pytest.raises(KeyboardInterrupt), executor:
        raise KeyboardInterrupt
    assert isinstance(running.exception(), CancelledError)


def test_a_forked_process_leaves_the_workers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with Local(1) as executor:
        assert executor.submit(pow, 2, 3).result() == 8
        with monkeypatch.context() as patch:
            patch.setattr(executors.os, "getpid", lambda: -1)
            with pytest.raises(RuntimeError, match="belongs to the process that forked this one"):
                executor.submit(pow, 2, 3)
            executor.shutdown(cancel_futures=True)
        assert executor.submit(pow, 2, 3).result() == 8


def happens(condition: Callable[[], bool]) -> bool:
    """Whether a condition comes true."""
    pause = threading.Event()
    return any(condition() or pause.wait(0.05) for _ in range(1200))


def has_ended(pid: int) -> bool:
    """Whether a process has ended; nobody may wait for it any more."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except (ProcessLookupError, FileNotFoundError):
        return True


def test_workers_keep_programs_in_a_folder_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    found = executors.worker_environment()
    assert found["JAX_COMPILATION_CACHE_DIR"].endswith("/workers")
    assert found["XLA_FLAGS"] == "--xla_cpu_enable_fast_math=false" and found["JAX_NUM_CPU_DEVICES"] == "1"


class Inline(Executor):
    """Runs a task when it is submitted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def search(fun: Callable[[Any], float], workers: Any, **options: Any) -> Any:
    return seqdec.minimize(fun, BOUNDS, **{"n_calls": 6, "seed": 0, **options}, workers=workers, progress=False)


def test_an_executor_of_one_worker_searches_as_no_executor_does() -> None:
    plain, inline = search(bowl, 1), search(bowl, Inline(), batch_size=1)
    np.testing.assert_array_equal(plain.x_iters, inline.x_iters)
    assert inline.success and plain.fun == inline.fun


def test_a_worker_that_is_done_gets_its_next_point_at_once() -> None:
    """The first call ends after the fifth has begun, which a search by batches would never reach."""
    fifth, begun, lock = threading.Event(), [], threading.Lock()

    def fun(x: Any) -> float:
        with lock:
            begun.append(x)
            number = len(begun)
        if number == 5:
            fifth.set()
        if number == 1 and not fifth.wait(60):
            raise AssertionError("the other worker waited for this one")
        return bowl(x)

    with ThreadPoolExecutor(2) as executor:
        result = search(fun, executor)
    assert result.success and result.nfev == 6 and np.isfinite(result.func_vals).all()
    assert len({tuple(x) for x in result.x_iters}) == 6
    assert result.optimizer.trials_dataframe()["state"].tolist() == ["complete"] * 6


@pytest.mark.extended
@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["processes", "local", "number", pytest.param("ray", marks=needs_ray)])
def test_minimize_takes_workers_of_every_kind(kind: str) -> None:
    if kind == "processes":
        with ProcessPoolExecutor(2, SPAWN) as executor:
            result = search(bowl, executor)
    elif kind == "local":
        with Local(2) as executor:
            result = search(lambda x: bowl(x), executor)
    elif kind == "ray":
        with Ray(workers=2) as executor:
            result = search(lambda x: bowl(x), executor)
    else:
        result = search(lambda x: bowl(x), 2, batch_size=2)
    assert result.success and result.nfev == 6
    assert result.func_vals.tolist() == [bowl(x) for x in result.x_iters]
    if kind == "number":
        np.testing.assert_array_equal(result.x_iters, search(bowl, 1, batch_size=2).x_iters)


def test_failures_in_an_executor_are_failed_calls() -> None:
    def fun(x: Any) -> float:
        if x[0] < 0:
            raise ValueError("negative")
        return bowl(x)

    with ThreadPoolExecutor(2) as executor:
        result = search(fun, executor, n_calls=8, catch=ValueError)
        bad = [math.isnan(value) for value in result.func_vals]
        assert bad == [x[0] < 0 for x in result.x_iters] and any(bad) and not all(bad)
        stopped = search(lambda x: 1 / 0, executor, max_failures=3, catch=ArithmeticError)
    assert stopped.status == 1 and "ZeroDivisionError" in stopped.message and stopped.nfev in (3, 4)


def test_what_cannot_be_pickled_is_raised_or_caught() -> None:
    with ProcessPoolExecutor(1, SPAWN) as executor:
        with pytest.raises((AttributeError, pickle.PicklingError), match="pickle"):
            search(lambda x: bowl(x), executor)
        result = search(lambda x: bowl(x), executor, max_failures=2, catch=Exception)
    assert result.status == 1 and "pickle" in result.message and result.x is None


@pytest.mark.extended
def test_a_broken_executor_ends_the_search_with_what_was_told(tmp_path: Path) -> None:
    with ProcessPoolExecutor(1, SPAWN) as executor:
        result = search(Fragile(str(tmp_path)), executor)
    assert (result.status, result.success, result.nfev) == (5, False, 1)
    assert "the executor ended after 1 calls: BrokenProcessPool" in result.message
    assert result.fun == bowl(result.x)
    with Local(1) as executor:  # which replaces what has died
        (tmp_path / "died").unlink()
        assert search(Fragile(str(tmp_path)), executor).nfev == 6
    assert (tmp_path / "died").exists()


class Fragile:
    """`fragile` as a picklable function of x."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, x: Any) -> float:
        return fragile(self.folder, x)


def test_a_stopped_search_cancels_what_waits_for_a_worker() -> None:
    def stop(x: Any) -> None:
        raise StopIteration

    with ThreadPoolExecutor(1) as executor:
        result = search(bowl, executor, batch_size=4, callback=stop)
    assert (result.status, result.nfev) == (2, 1)
    assert result.optimizer.trials_dataframe()["state"].tolist() == ["complete"] + ["pending"] * 3


def test_impossible_numbers_of_workers_are_refused() -> None:
    for workers, error in ((0, ValueError), (1.5, TypeError), (True, TypeError)):
        with pytest.raises(error, match="workers must be"):
            Local(workers)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"batch_size must say how many points <.*Inline"):
        search(bowl, Inline())
    assert executors.width(ThreadPoolExecutor(3)) == 3


@pytest.mark.slow
@needs_ray
def test_ray_runs_the_tasks_of_a_dead_worker_again(tmp_path: Path) -> None:
    with Ray(workers=2) as executor:
        assert executor.workers == 2 and executor.submit(device).result() == ("cpu", 1, "1")
        xs = [np.array([0.1 * n, 0.0]) for n in range(4)]
        assert [executor.submit(fragile, str(tmp_path), x).result() for x in xs] == [bowl(x) for x in xs]
        with pytest.raises(ZeroDivisionError):
            executor.submit(lambda: 1 / 0).result()
        with pytest.raises(RuntimeError, match="Odd: first"):
            executor.submit(fail_oddly).result()
        with pytest.raises(RuntimeError, match="Ray did not complete it: WorkerCrashedError"):
            executor.submit(die, 7).result()
    assert (tmp_path / "died").exists()


@needs_ray
@pytest.mark.parametrize("address", ["127.0.0.1:9", "ray://127.0.0.1:9", "ray://127.0.0.1:x"])
def test_a_cluster_that_is_not_there_is_an_error(address: str) -> None:
    with pytest.raises(ConnectionError):
        Ray(address)
