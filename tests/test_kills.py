"""Commands that are killed at any write: what they leave, and how they go on."""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import seqdec
from seqdec import persistence
from seqdec.cli import main
from seqdec.commands import bandits, folder, sweep, tune
from seqdec.commands.folder import read_settings
from seqdec.results import Run
from tests.toys import toy_agent, toy_env


class Killed(BaseException):
    """In place of SIGKILL: no handler of errors sees it."""


@contextmanager
def killed(monkeypatch: pytest.MonkeyPatch, number: int, after: bool) -> Iterator[None]:
    """End the process, as it were, before or after its renaming of that number, from 0, if it comes to so many."""
    replace, calls = os.replace, itertools.count()

    def replacing(source: Any, target: Any) -> None:
        last = next(calls) == number
        if after or not last:
            replace(source, target)
        if last:
            # A dead process removes nothing; the system releases its locks.
            patch.setattr(persistence, "_discard", lambda place, lock: lock.release())
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(persistence.os, "replace", replacing)
        yield


before_or_after = pytest.mark.parametrize("after", [True, False], ids=["after", "before"])


def left_over(place: Path) -> list[Path]:
    return [path for path in place.rglob("*") if persistence.is_temporary(path)]


def survives(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], home: Path, results: Callable[[Path], Any], after: bool
) -> int:
    """Kill the command before or after each of its renamings, and resume it; returns how many there are."""
    assert main([*arguments, "--out", str(home / "whole")]) == 0
    expected = results(home / "whole")
    for number in itertools.count():
        out = home / str(number)
        with killed(monkeypatch, number, after):
            try:
                assert main([*arguments, "--out", str(out)]) == 0
                return number
            except Killed:
                pass
        assert len(left_over(out)) == 1
        again = ["--resume", str(out)] if (out / "manifest.json").exists() else ["--out", str(out)]
        command = arguments if "--out" in again else arguments[:1]
        assert main([*command, *again]) == 0, (number, after)
        assert results(out) == expected, (number, after)
        assert left_over(out) == []
    raise AssertionError


def small(*_: Any) -> dict[str, Figure]:
    return {"small.png": Figure((1, 1), dpi=20)}


def steps_of(out: Path) -> Any:
    """All results of a run that do not depend on the clock."""
    runs = folder.load_runs(out)
    found = [(name, run.actions.tolist(), run.rewards.tobytes(), run.interrupted) for name, run in runs.items()]
    names = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    return found, pd.read_csv(out / "summary.csv")["reward"].tolist(), names


@pytest.mark.sampled(2)
@before_or_after
def test_a_run_survives_a_kill_at_any_write(after: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    team, env = {name: toy_agent()._replace(name=name) for name in ("first", "second")}, toy_env()
    finite = env._replace(step=lambda key, state, action, params: env.step(key, state * 0, action, params))
    monkeypatch.setattr(bandits.Options, "check", lambda self: bandits.Plan(finite, team, self.steps))
    monkeypatch.setattr(bandits.Options, "pictures", staticmethod(small))
    arguments = ["run", "digits", "--steps", "20", "--seeds", "2", "--checkpoint-every", "12"]
    # Manifest; checkpoint, steps and manifest of each agent; table and picture; the manifest says that it has finished.
    assert survives(monkeypatch, arguments, tmp_path, steps_of, after) == 1 + 2 * 3 + 2 + 1


@pytest.mark.extended
@before_or_after
def test_a_study_survives_a_kill_at_any_write(after: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The best trial is the last one, whose settings are easily lost."""

    def trials_of(out: Path) -> Any:
        table = pd.read_parquet(out / "trials.parquet").drop(columns="seconds")
        return table.to_csv(), read_settings(out / "settings.json", "digits"), (out / "tuning.png").exists()

    def objective(*_: Any) -> Callable[[Any], float]:
        return lambda settings: sum(settings.values()) if settings["learning_rate"] != rate else -1.0

    rate = 0.003
    monkeypatch.setattr(tune, "_objective", objective)
    monkeypatch.setattr(tune, "_picture", lambda trials: small()["small.png"])
    arguments = ["tune", "digits", "--agent", "adamw", "--budget", "2", "--steps", "9"]
    # Manifest; manifest, settings and trials of each trial; the picture; the manifest.
    assert survives(monkeypatch, arguments, tmp_path, trials_of, after) == 1 + 2 * 3 + 1 + 1
    found = read_settings(tmp_path / "whole" / "settings.json", "digits")["adamw"]
    assert found["budget"] == 2 and pd.read_parquet(tmp_path / "whole" / "trials.parquet")["reward"].idxmax() == 1


class Inline(Executor):
    """Runs a task when it is submitted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


@pytest.mark.extended
@before_or_after
def test_a_sweep_survives_a_kill_at_any_write(after: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def cell(one: sweep.Cell, key: str) -> pd.DataFrame:
        values = (one.environment.name, one.environment.settings(), one.agent.name, one.agent.settings())
        numbers = {"seed": 0, "steps": 1, "reward": 0.5, "last_reward": 0.5, "regret": 0.1, "rejected": 0}
        return pd.DataFrame([dict(zip(sweep.CELL, values, strict=True)) | numbers])

    monkeypatch.setattr(sweep, "run_cell", cell)
    monkeypatch.setattr(sweep.Sweep, "executor", lambda self: Inline())
    monkeypatch.setattr(sweep, "rewards_figure", lambda summary: small()["small.png"])
    config = tmp_path / "config.toml"
    config.write_text(
        "steps = 9\n[environments]\narms = { environment = 'bernoulli' }\n[agents]\nlinear = {}\nekf = {}"
    )
    # Manifest, configuration, manifest; two cells; table, summary, picture; manifest.
    found = survives(
        monkeypatch, ["sweep", str(config)], tmp_path, lambda out: (out / "sweep.parquet").read_bytes(), after
    )
    assert found == 3 + 2 + 3 + 1


KILL = """
import os, signal, sys
from pyarrow import parquet
parquet.write_table = lambda *arguments, **options: os.kill(os.getpid(), signal.SIGKILL)
from seqdec.cli import main
main(sys.argv[1:])
"""


def test_a_process_that_is_killed_while_it_writes_steps_is_resumed(tmp_path: Path) -> None:
    arguments = ["run", "digits", "--agents", "random", "--steps", "60", "--seeds", "1", "--checkpoint-every", "20"]
    out = tmp_path / "killed"
    command = [sys.executable, "-c", KILL, *arguments, "--out", str(out)]
    assert subprocess.run(command, check=False, capture_output=True).returncode == -signal.SIGKILL
    assert len(left_over(out)) == 1
    assert main(["run", "--resume", str(out)]) == 0 and left_over(out) == []
    assert main([*arguments, "--out", str(tmp_path / "whole")]) == 0
    one, other = (Run.load(place / "runs" / "random") for place in (out, tmp_path / "whole"))
    np.testing.assert_array_equal(one.actions, other.actions)


def test_an_earlier_commands_checkpoint_does_not_outlive_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A kill between a command's first steps in a folder with a checkpoint."""
    arguments = ["run", "digits", "--agents", "random", "--seeds", "1", "--checkpoint-every", "20"]
    out = ["--out", str(tmp_path)]
    with killed(monkeypatch, 1, True), pytest.raises(Killed):
        main([*arguments, "--steps", "60", *out])
    assert (tmp_path / folder.CHECKPOINT).exists()
    with killed(monkeypatch, 0, True), pytest.raises(Killed):
        main([*arguments, "--steps", "40", *out])
    assert main(["run", "--resume", str(tmp_path)]) == 0
    assert Run.load(tmp_path / "runs" / "random").rewards.shape == (1, 40)


def abandon(path: Path, *content: str) -> Path:
    """What a killed writer of `path` leaves."""
    place = path.parent / f".{path.name}-0123abcd"
    place.mkdir(parents=True)
    for name in content:
        (place / name).touch()
    return place


def test_what_a_dead_writer_left_is_removed_and_a_living_ones_work_is_not(tmp_path: Path) -> None:
    target, lock = tmp_path / "state", "writing.lock"
    dead, empty = abandon(target, lock, "state", ".tmpAbC"), abandon(tmp_path / "state-2")
    foreign, other = abandon(tmp_path / "foreign", "precious"), abandon(tmp_path / "other", lock, "other")

    def write(path: Path) -> None:
        assert not dead.exists() and not empty.exists()
        persistence.write_json(target, "inner")  # as another process would, at the same time
        persistence.clear(tmp_path.iterdir())
        path.write_text("outer")

    persistence.write_file(target, write)
    assert target.read_text() == "outer" and not other.exists()
    assert (foreign / "precious").exists() and left_over(tmp_path) == [foreign]

    for place in (abandon(target, lock), abandon(tmp_path / "writable", lock)):
        persistence.check_writable(tmp_path)
        persistence.remove(target)
        assert not place.exists() and not target.exists()
    beside = abandon(target, lock)
    with persistence.locked(tmp_path):
        assert not beside.exists()


def test_every_writer_of_files_clears_what_a_kill_left(tmp_path: Path) -> None:
    """Also where nothing is left to write: a run that continues from a checkpoint and needs no other one."""
    optimizer = seqdec.bo.BayesianOptimizer([(0, 1)], seed=0)
    log = seqdec.ope.make_log(action=[0, 1], reward=[0.0, 1.0], propensity=[0.5, 0.5], context=np.zeros((2, 1)))
    run = seqdec.run(toy_agent(), toy_env(), 4, seed=0)
    writers: dict[str, Callable[[Path], Any]] = {
        "state": lambda path: seqdec.save(path, {"a": np.ones(2)}),
        "study": optimizer.save,
        "log.parquet": log.save,
        "run": lambda path: run.replace(state=None).save(path),
        "kept": lambda path: seqdec.run(toy_agent(), toy_env(), 4, seed=0, checkpoint=path, checkpoint_every=9),
    }
    for name, write in writers.items():
        target = tmp_path / name / "steps.parquet" if name == "run" else tmp_path / name
        place = abandon(target, "writing.lock", target.name)
        write(tmp_path / name)
        assert not place.exists(), name
    assert run.rewards.tobytes() == Run.load(tmp_path / "run").rewards.tobytes()
    assert list(seqdec.load(tmp_path / "state", {"a": np.zeros(2)})["a"]) == [1.0, 1.0]


def test_a_generated_log_is_whole_or_absent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seqdec.data.write_kuairec(tmp_path, users=6, videos=8, seed=0)
    whole = (tmp_path / "small_matrix.csv").read_bytes()
    with killed(monkeypatch, 1, True), pytest.raises(Killed):
        seqdec.data.write_kuairec(tmp_path, users=5, videos=8, seed=0)
    with pytest.raises(FileNotFoundError, match=r"no small_matrix\.csv"):
        seqdec.data.load_kuairec(tmp_path)
    seqdec.data.write_kuairec(tmp_path, users=6, videos=8, seed=0)
    assert (tmp_path / "small_matrix.csv").read_bytes() == whole and left_over(tmp_path) == []
