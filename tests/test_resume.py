"""Runs that continue: from the state of an earlier run, and from a checkpoint after any interruption, to the bit."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest

import seqdec
from reproduction.bo import Optimization
from seqdec import envs, persistence, states
from seqdec.cli import main
from seqdec.commands import folder
from seqdec.results import Run
from tests.toys import toy_agent, toy_env

ARRAYS = ("actions", "rewards", "regret", "propensities")


def assert_equal(one: Run, other: Run) -> None:
    """All that does not depend on the clock."""
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    for name in one.diagnostics:
        np.testing.assert_array_equal(one.diagnostics[name], other.diagnostics[name], err_msg=name)
    assert one.rejected.tolist() == other.rejected.tolist()
    for left, right in zip(jax.tree.leaves(one.state), jax.tree.leaves(other.state), strict=True):
        assert states.as_array("", left).tobytes() == states.as_array("", right).tobytes()


def test_a_continued_run_equals_a_long_one() -> None:
    whole = seqdec.run(toy_agent(), toy_env(), 450, seed=3, num_seeds=2)
    first = seqdec.run(toy_agent(), toy_env(), 202, seed=3, num_seeds=2)
    second = seqdec.run(toy_agent(), toy_env(), 248, seed=3, num_seeds=2, state=first.state)
    joined = {name: np.concatenate([getattr(first, name), getattr(second, name)], axis=1) for name in ARRAYS}
    assert_equal(second.replace(**joined, rejected=first.rejected + second.rejected), whole)
    assert second.state.step.tolist() == [450, 450]


class Stopped(BaseException):
    """In place of a kill: no handler of errors sees it."""


@contextmanager
def stopped_after(monkeypatch: pytest.MonkeyPatch, chunks: int) -> Iterator[None]:
    """Let a run fail when the record of so many chunks has been fetched."""
    get, left = jax.device_get, [chunks]

    def failing(record: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise Stopped
        return get(record)

    with monkeypatch.context() as patch:
        patch.setattr(jax, "device_get", failing)
        try:
            yield
        except Stopped:
            return
        pytest.fail("it was not stopped")


@pytest.mark.parametrize("chunks", [3, 19, 20, 55, 99])
def test_an_interrupted_run_ends_as_it_would_have(chunks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"seed": 0, "num_seeds": 2, "diagnostics": ("error",)}
    whole = seqdec.run(toy_agent(), toy_env(), 100, **options)
    kept = {"checkpoint": tmp_path / "run.checkpoint", "checkpoint_every": 20}
    with stopped_after(monkeypatch, chunks):
        seqdec.run(toy_agent(), toy_env(), 100, **options, **kept)
    assert (tmp_path / "run.checkpoint").exists() == (chunks >= 20)
    resumed = seqdec.run(toy_agent(), toy_env(), 100, **options, **kept)
    assert_equal(resumed, whole)
    assert np.all(np.diff(resumed.elapsed) >= 0) and not list(tmp_path.iterdir())


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[str, Any] = {"checkpoint": tmp_path / "c", "checkpoint_every": 10, "seed": 0}
    with stopped_after(monkeypatch, 40):
        seqdec.run(toy_agent(), toy_env(), 100, **kept)
    with pytest.raises(ValueError, match=r"another run: its num_steps is 100, that of this run 200; delete the file"):
        seqdec.run(toy_agent(), toy_env(), 200, **kept)
    with pytest.raises(ValueError, match=r"its settings is"):
        seqdec.run(toy_agent(settings={"other": 1}), toy_env(), 100, **kept)
    whole = (tmp_path / "c").read_bytes()
    (tmp_path / "c").write_bytes(whole[:-1])
    with pytest.raises(ValueError, match="damaged"):
        seqdec.run(toy_agent(), toy_env(), 100, **kept)
    persistence.write_arrays(tmp_path / "c", {}, {"format": "seqdec checkpoint 2"})
    with pytest.raises(ValueError, match="'seqdec checkpoint 2', not 'seqdec checkpoint 1'"):
        seqdec.run(toy_agent(), toy_env(), 100, **kept)


def test_a_checkpoint_that_cannot_be_written_is_refused_before_the_first_step(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    never = toy_env()._replace(step=lambda *given: pytest.fail("it began"))
    for path, message in ((tmp_path, "it is a folder"), (tmp_path / "file" / "c", "is a file, not a folder")):
        with pytest.raises(OSError, match=f"cannot write .*: .*{message}"):
            seqdec.run(toy_agent(), never, 5, seed=0, checkpoint=path)


def test_what_cannot_be_continued_is_refused() -> None:
    env = envs.linear()
    state = seqdec.run(toy_agent(), toy_env(), 5, seed=0).state
    with pytest.raises(ValueError, match="state is not of this agent, environment and number of seeds"):
        seqdec.run(seqdec.agents.make("linear", env), env, 5, seed=0, state=state)
    with pytest.raises(ValueError, match="number of seeds"):
        seqdec.run(toy_agent(), toy_env(), 5, seed=0, num_seeds=2, state=state)
    with pytest.raises(TypeError, match="state must be the `state` of an earlier run; got dict"):
        seqdec.run(toy_agent(), toy_env(), 5, seed=0, state={})  # pyright: ignore[reportArgumentType]
    host = gymnasium.make("seqdec/GaussianBandit-v0")
    with pytest.raises(ValueError, match="cannot be continued: only a functional environment"):
        seqdec.run(seqdec.agents.make("linear", host), host, 5, seed=0, checkpoint="x")
    with pytest.raises(ValueError, match="checkpoint_every must be at least 1"):
        seqdec.run(toy_agent(), toy_env(), 5, seed=0, checkpoint_every=0)


def test_options_that_do_not_go_with_resuming_are_refused(tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "out"
    assert main(["run", "digits", "--agents", "random", "--steps", "10", "--seeds", "1", "--out", str(out)]) == 0
    capsys.readouterr()
    for arguments, message in (
        (["run", "--resume", str(out), "--steps", "200"], "leave out '--steps 200'"),
        (["run", "classify", "--resume", str(out)], "digits"),
        (["run", "--resume", str(tmp_path / "nowhere")], "No such folder: "),
    ):
        assert main(arguments) == 2
        assert message in capsys.readouterr().err
    assert main(["run", "digits", "--resume", str(out)]) == 0


def test_a_new_run_does_not_take_an_earlier_ones_results_for_its_own(tmp_path: Path) -> None:
    first = Optimization(functions="branin", methods="random", steps=3, seeds=2, out=tmp_path)
    second = replace(first, seed=7)
    folder.write_manifest(tmp_path, first, command="one")
    parts = []
    for part in first.play(first.check(), ()):
        parts.append(part)
        first.save(parts)
    assert [part.equals(other) for part, other in zip(first.restore(), parts, strict=True)] == [True, True]
    assert not list(first.play(first.check(), parts))
    folder.write_manifest(tmp_path, second, command="two")
    assert second.restore() == []
    assert folder.resumed(Optimization, tmp_path) == second
