"""Files that a process keeps: one that works with a file keeps others from it, and nothing that was told is lost."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import seqdec
from seqdec import bo, persistence
from seqdec.bo import optimizer
from seqdec.commands import folder
from tests.toys import toy_agent, toy_env


def searched(path: Path) -> Any:
    return seqdec.minimize(lambda x: x[0] ** 2, [(-1, 1)], n_calls=2, seed=0, checkpoint=path, progress=False)


def run(path: Path) -> Any:
    return seqdec.run(toy_agent(), toy_env(), 4, seed=0, checkpoint=path)


def saved(path: Path) -> Any:
    return bo.BayesianOptimizer([(0, 1)], seed=0).save(path)


def opened(path: Path) -> None:
    with folder.opened(path):
        pass


def lock_of(path: Path) -> Path:
    return path / ".lock" if path.name == "folder" else path.with_name(f".{path.name}.lock")


kept_by = pytest.mark.parametrize(
    ("name", "use"), [("search", searched), ("run", run), ("study", saved), ("folder", opened)]
)


@kept_by
def test_what_another_process_uses_is_refused_until_it_ends(
    name: str, use: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizer, "_PATIENCE", 0.1)
    path = tmp_path / "new" / name
    lock_of(path).parent.mkdir(parents=True)
    code = "import sys, filelock as f; lock = f.FileLock(sys.argv[1]); lock.acquire(); print(flush=True); input()"
    command = [sys.executable, "-c", code, str(lock_of(path))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline()
        with pytest.raises(FileExistsError, match=f"{name} is in use by another process: wait for it, or choose"):
            use(path)
        assert not path.is_file()
        other.kill()
    use(path)  # the lock of a killed process is none
    assert name == "folder" or not lock_of(path).exists()


def test_a_search_keeps_its_file_from_other_threads_and_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two searches of one file would each lose what the other evaluated."""
    monkeypatch.setattr(optimizer, "_PATIENCE", 0.1)
    (tmp_path / "link").symlink_to(tmp_path / "search")
    refused: list[str] = []

    def fun(x: Any) -> float:
        for path, use in ((tmp_path / "search", searched), (tmp_path / "link", searched), (tmp_path / "search", saved)):
            with pytest.raises(FileExistsError, match="in use by this process: wait for the other") as error:
                use(path)
            refused.append(str(error.value))
        return x[0]

    result = seqdec.minimize(fun, [(0, 1)], n_calls=2, seed=0, checkpoint=tmp_path / "search", progress=False)
    assert len(refused) == 6 and {path.name for path in tmp_path.iterdir()} == {"search", "link"}
    kept = bo.BayesianOptimizer.load(tmp_path / "search")
    assert [trial.x[0] for trial in kept.trials] == [x[0] for x in result.x_iters]
    result.optimizer.save(tmp_path / "search")  # what this search wrote last


def test_a_study_that_another_has_written_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "study"
    saved(path)
    first, second = (bo.BayesianOptimizer.load(path) for _ in range(2))
    for number in range(2):
        first.tell([0.1 + number / 10], 1.0)
        first.save(path)
    second.tell([0.9], 2.0)
    with pytest.raises(FileExistsError, match="was changed since this optimizer loaded or saved it: load"):
        second.save(path)
    second.save(tmp_path / "other")
    assert len(bo.BayesianOptimizer.load(path).trials) == 2
    path.unlink()
    first.save(path)


def test_a_place_without_locks_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import filelock

    def none(self: Any, timeout: float = 0) -> None:
        raise NotImplementedError("FileSystem does not appear to support flock")

    monkeypatch.setattr(persistence, "check_replaceable", lambda path: None)
    monkeypatch.setattr(filelock.FileLock, "acquire", none)
    with pytest.raises(OSError, match=r"cannot lock .*search.lock: .*flock; choose a place on a file system"):
        searched(tmp_path / "search")
