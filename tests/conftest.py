"""What several test files share."""

import gc
import itertools
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pooch
import pytest

import seqdec
from seqdec import progress
from seqdec.runtime import UNFUSED, UNOPTIMIZED
from seqdec.service.postgres import Postgres
from tests.databases import Cluster, cluster
from tests.service.services import Clock
from tests.tables import write_open_bandit, write_tables

_SCHEMAS = itertools.count()


def pytest_configure() -> None:
    """Compile quickly, and once: in the workers of one run, in child processes and in later runs.

    Programs that took long to compile are kept in the user's cache folder, without the lines of source they come from.
    XLA leaves out the optimizations of machine code, which cost more time than they save in runs of a few steps;
    XLA_FLAGS=--xla_backend_optimization_level=3 tests with all of them. Most programs are small, and are compiled in
    one piece. Each core is a device, so that runs of several seeds are spread over them.
    """
    flags = {**UNOPTIMIZED, **UNFUSED, "xla_cpu_parallel_codegen_split_count": 1}
    os.environ.setdefault("XLA_FLAGS", " ".join(f"--{flag}={value}".lower() for flag, value in flags.items()))
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(pooch.os_cache("seqdec") / "tests"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    seqdec.compilation_cache(os.environ["JAX_COMPILATION_CACHE_DIR"])
    seqdec.use_all_cores()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run extended tests too, and all cases of sampled ones")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests with the mark `extended`, and all but every n-th case of those with the mark `sampled(n)`."""
    if config.getoption("--all"):
        return
    seen: Counter[str] = Counter()
    kept, left = [], []
    for item in items:
        mark, function = item.get_closest_marker("sampled"), item.nodeid.partition("[")[0]
        spared = item.get_closest_marker("extended") or (mark and seen[function] % mark.args[0])
        (left if spared else kept).append(item)
        seen[function] += 1
    config.hook.pytest_deselected(items=left)
    items[:] = kept


def pytest_collection_finish() -> None:
    """Look for garbage seldom: tracing makes many objects, and a search goes through all of them."""
    gc.freeze()
    gc.set_threshold(50_000, 50, 1000)


@pytest.fixture(autouse=True)
def no_lines_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a test takes on a busy machine, standard error is that of a short run."""
    monkeypatch.setattr(progress, "_FIRST", 3600.0)


@pytest.fixture(scope="module", autouse=True)
def programs_of_one_file() -> Iterator[None]:
    """Each compiled program takes several of the memory maps that Linux allows a process; all files' are too many."""
    yield
    jax.clear_caches()


@pytest.fixture(scope="session")
def image_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with mnist/ and fashion-mnist/: files of the right names and shapes, almost all pixels black.

    Beside them small cifar10/, kuairec/, open_bandit/, snelson/ and tabular/.
    """
    home = tmp_path_factory.mktemp("data")
    write_tables(home / "tabular")
    write_open_bandit(home / "open_bandit")
    (home / "mnist").mkdir()
    for prefix, count in (("train", 60_000), ("t10k", 10_000)):
        images = np.zeros((count, 28, 28), np.uint8)
        images[:, 0, :10] = np.eye(10, dtype=np.uint8)[np.arange(count) % 10] * 255
        for part, array in (("images", images), ("labels", (np.arange(count) % 10).astype(np.uint8))):
            header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
            (home / "mnist" / f"{prefix}-{part}-idx{array.ndim}-ubyte").write_bytes(header + array.tobytes())
    (home / "fashion-mnist").symlink_to("mnist")
    (home / "cifar10").mkdir()
    images = np.arange(40 * 32 * 32 * 3).reshape(40, 32, 32, 3).astype(np.uint8)
    np.savez(home / "cifar10" / "train_first4000.npz", x=images, y=np.arange(40) % 10)
    (home / "snelson").mkdir()
    for name, numbers in (("train_inputs", np.linspace(0, 6, 200)), ("train_outputs", np.sin(np.linspace(0, 6, 200)))):
        np.savetxt(home / "snelson" / name, numbers)
    (home / "kuairec").mkdir()
    rows = (f"{user},{video},{0.1 + (user + video) % 7}" for user in range(5) for video in range(12))
    (home / "kuairec" / "random_exposures.txt").write_text("\n".join(rows))
    return home


@pytest.fixture
def image_home(image_files: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`image_files` as the folder where data sets are looked for."""
    monkeypatch.setenv("SEQDEC_DATA", str(image_files))
    return image_files


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The system's clock, which the test turns."""
    made = Clock()
    monkeypatch.setattr(time, "time_ns", made)
    return made


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """A PostgreSQL of this process."""
    try:
        running = cluster()
        made = running.__enter__()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    yield made
    running.__exit__(None, None, None)


@pytest.fixture
def place(postgres: Cluster) -> Postgres:
    """Of a log in a schema of its own, not made yet."""
    return Postgres(postgres.url, f"log {next(_SCHEMAS)}")
