"""Devices and the cache of compiled programs, each in a process of its own, because JAX reads them once."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import seqdec
from seqdec import runtime
from seqdec.persistence import check_writable, clear, write_file
from seqdec.runtime import step_options

_CACHED = """
import sys, jax, jax.numpy as jnp, seqdec
jnp.sin(jnp.ones(3)).block_until_ready()
print(seqdec.compilation_cache(*sys.argv[1:]))
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event.endswith("/cache_hits")))
jax.jit(lambda x: jnp.cos(x) * 3)(jnp.ones(5)).block_until_ready()
print(sum(hits))
"""


def run(program: str, *arguments: str, **variables: str) -> list[str]:
    """The lines that a program prints in a process without the test run's cache."""
    environment = {name: value for name, value in os.environ.items() if "CACHE" not in name} | variables
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_time_of_a_program_is_foretold_by_the_programs_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "_pace", {})
    told: list[float | None] = []
    for size, options in ((3, runtime.UNOPTIMIZED), (4, None), (5, None)):
        program = jax.jit(lambda x: jnp.sin(x) @ jnp.cos(x)).lower(jnp.ones(size))
        runtime._compiled(program, options, "\n" * 10, told.append)
        runtime._pace = dict.fromkeys(runtime._pace, 0.1)
    assert told == [None, pytest.approx(2.0), pytest.approx(1.0)]


@pytest.mark.extended
def test_a_later_process_loads_the_programs_that_an_earlier_one_compiled(tmp_path: Path) -> None:
    folder = tmp_path / "programs" / "here"
    told, hits = run(_CACHED, str(folder))
    assert (told, hits) == (str(folder), "0")
    assert any("jit__lambda" in file.name for file in folder.iterdir())
    assert int(run(_CACHED, str(folder))[1]) >= 1


def test_programs_are_kept_in_the_users_cache_folder_by_default(tmp_path: Path, monkeypatch) -> None:
    """Also of a process that has compiled others before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    try:
        folder = seqdec.compilation_cache()
        jax.jit(lambda x: jnp.cos(x) * 3)(jnp.ones(5))
    finally:
        seqdec.compilation_cache(os.environ["JAX_COMPILATION_CACHE_DIR"])
    assert folder == tmp_path / "seqdec" / "programs"
    assert any("jit__lambda" in file.name for file in folder.iterdir())


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="cannot write"):
        seqdec.compilation_cache(tmp_path / "file")


def test_processes_that_start_together_share_a_folder(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(check_writable, [tmp_path / "programs"] * 400))
    assert list((tmp_path / "programs").iterdir()) == []


def test_a_temporary_folder_that_another_process_is_about_to_remove_is_not_used(tmp_path: Path, monkeypatch) -> None:
    """The other process takes the folder for abandoned after its lock file is opened and before that is locked."""
    fcntl = pytest.importorskip("fcntl")
    flock, rmtree, abandoned = fcntl.flock, shutil.rmtree, []

    def locked_too_late(descriptor: int, operation: int) -> None:
        if list(tmp_path.glob(".file-*/*")):
            monkeypatch.setattr(fcntl, "flock", flock)
            monkeypatch.setattr(shutil, "rmtree", lambda folder, **options: abandoned.append(folder))
            clear(list(tmp_path.iterdir()))
            monkeypatch.setattr(shutil, "rmtree", rmtree)
        flock(descriptor, operation)

    def write(temporary: Path) -> None:
        for folder in abandoned:
            rmtree(folder)
        temporary.write_text("kept")

    monkeypatch.setattr(fcntl, "flock", locked_too_late)
    write_file(tmp_path / "file", write)
    assert len(abandoned) == 1
    assert [(item.name, item.read_text()) for item in tmp_path.iterdir()] == [("file", "kept")]


def test_every_core_is_a_device_and_the_blas_of_factorizations_has_one_thread_until_it_is_released() -> None:
    """In a process of its own, where no BLAS but NumPy's is loaded before."""
    program = """if True:
        import jax, seqdec
        from threadpoolctl import threadpool_info
        from seqdec.runtime import available_cores, one_blas_thread, use_all_cores

        def threads():
            return [pool["num_threads"] for pool in threadpool_info() if "scipy.libs" in pool["filepath"]]

        assert threads() == []
        with one_blas_thread():
            assert threads() == [1], threads()
        assert threads() == [min(2, available_cores())], threads()
        use_all_cores()
        assert len(jax.devices()) == available_cores()
        """
    run(program, XLA_FLAGS="", OPENBLAS_NUM_THREADS="2")


@pytest.mark.extended
@pytest.mark.parametrize(
    ("before", "flags", "wanted"),
    [
        ("", "--xla_force_host_platform_device_count=3", 3),
        ("jax.config.update('jax_num_cpu_devices', 3)", "", 3),
        ("jax.numpy.zeros(1)", "", 1),
    ],
)
def test_the_user_may_choose_another_number_of_devices(before: str, flags: str, wanted: int) -> None:
    program = f"import jax, seqdec\n{before}\nseqdec.use_all_cores()\nprint(len(jax.devices()))"
    assert run(program, XLA_FLAGS=flags) == [str(wanted)]


@pytest.mark.parametrize(
    ("flags", "expected"), [("", {"xla_backend_optimization_level": "1"}), ("--xla_backend_optimization_level=3", None)]
)
def test_the_level_of_optimization_in_xla_flags_takes_precedence(flags, expected, monkeypatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", flags)
    assert step_options() == expected
