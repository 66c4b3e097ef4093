"""`seqdec sweep`: numbers of a cell, finished cells, failures, interruptions, configurations."""

import importlib.util
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import seqdec
from seqdec.cli import main
from seqdec.commands import folder, sweep

ROOT = Path(__file__).resolve().parents[1]
CONFIG = """
steps = 30
seeds = 2
seed = 5

[environments]
linear = { noise_std = [0.1, 0.5] }
arms = { environment = "bernoulli" }

[agents]
linear = { policy = ["greedy", "thompson"] }
"""
CELLS = 6


def written(path: Path, text: str = CONFIG) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def table_of(out: Path) -> bytes:
    return (out / "sweep.parquet").read_bytes()


class Quick:
    """In the place of `run_cell`: a row that depends on the cell, without a run."""

    def __init__(self) -> None:
        self.starts: Counter[str] = Counter()
        self.fails = False

    def __call__(self, cell: sweep.Cell, key: str) -> pd.DataFrame:
        """Fails for one cell where it is told to."""
        self.starts[key] += 1
        if self.fails and cell.agent.options == {"policy": "greedy"} and cell.environment.name == "arms":
            raise ValueError("no such luck")
        values = (cell.environment.name, cell.environment.settings(), "a", cell.agent.settings())
        numbers = {"steps": 1, "reward": int(key, 16) % 97 / 7, "last_reward": 0.5, "regret": 0.1, "rejected": 0}
        return pd.DataFrame([dict(zip(sweep.CELL, values, strict=True)) | {"seed": 5} | numbers])


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Quick:
    """Cells are computed by it, in this process."""
    made = Quick()
    monkeypatch.setattr(sweep, "run_cell", made)
    monkeypatch.setattr(sweep.Sweep, "executor", lambda self: futures.ThreadPoolExecutor(1))
    return made


def test_a_cell_has_the_sums_of_its_runs(tmp_path: Path) -> None:
    for cell in sweep.read_cells(Path(written(tmp_path / "a.toml")))[::5]:
        env = seqdec.envs.make(cell.environment.kind, **cell.environment.options)
        run = seqdec.run(seqdec.agents.linear(env, **cell.agent.options), env, 30, seed=5, num_seeds=2)
        rows = sweep.run_cell(cell, cell.key())
        assert rows["seed"].tolist() == [5, 6]
        np.testing.assert_allclose(rows["reward"], run.rewards.sum(axis=1), rtol=1e-3)
        np.testing.assert_allclose(rows["last_reward"], run.rewards[:, -3:].mean(axis=1), rtol=1e-3)
        np.testing.assert_allclose(rows["regret"], run.regret.sum(axis=1), rtol=1e-3)


@pytest.mark.extended
@pytest.mark.slow
def test_tables_are_equal_whatever_computed_them(tmp_path: Path) -> None:
    """One worker or two, and with Ray where it is installed."""
    config = written(tmp_path / "a.toml")
    runs = {"one": ["--workers", "1"], "two": ["--workers", "2"]}
    if importlib.util.find_spec("ray") is not None:
        runs["ray"] = ["--backend", "ray", "--workers", "2"]
    for name, arguments in runs.items():
        assert main(["sweep", config, *arguments, "--out", str(tmp_path / name)]) == 0
    assert len({table_of(tmp_path / name) for name in runs}) == 1


def test_finished_cells_are_skipped(quick: Quick, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    arguments = ["sweep", written(tmp_path / "c.toml"), "--out", str(out)]
    assert main(arguments) == 0
    assert sorted(quick.starts.values()) == [1] * CELLS
    whole, cells = table_of(out), sorted((out / "cells").iterdir())
    assert main(arguments) == 0
    assert quick.starts.total() == CELLS and table_of(out) == whole
    for cell in cells[:2]:
        cell.unlink()
    assert main(arguments) == 0
    assert sorted(quick.starts.values()) == [1] * (CELLS - 2) + [2] * 2 and table_of(out) == whole
    (out / "sweep.parquet").unlink()
    assert main(["report", str(out)]) == 0
    assert table_of(out) == whole and (out / "rewards.png").stat().st_size > 10_000
    output = capsys.readouterr().out
    assert "linear noise_std=0.1" in output and "policy=thompson" in output
    written(tmp_path / "c.toml", CONFIG.replace('"greedy", ', ""))  # cells that are no longer asked for
    assert main(arguments) == 0
    assert len(pd.read_parquet(out / "sweep.parquet")) == CELLS / 2 and quick.starts.total() == CELLS + 2
    for runs, (old, new) in enumerate((("seed = 5", "seed = 6"), ("steps = 30", "steps = 31")), 1):
        written(tmp_path / "c.toml", CONFIG.replace(old, new))
        assert main(arguments) == 0
        assert quick.starts.total() == (1 + runs) * CELLS + 2


def test_the_page_of_a_folder_that_was_moved_has_its_configuration(quick: Quick, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["sweep", written(tmp_path / "a.toml"), "--out", str(tmp_path / "out")]) == 0
    moved = (tmp_path / "out").rename(tmp_path / "moved")
    assert main(["report", str(moved), "--html", str(page)]) == 0
    assert "noise_std = [0.1, 0.5]" in page.read_text(encoding="utf-8")


def test_a_failing_cell_keeps_no_other_from_being_finished(
    quick: Quick, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = ["sweep", written(tmp_path / "c.toml"), "--out", str(out)]
    quick.fails = True
    assert main(arguments) == 1
    output = capsys.readouterr()
    assert "1 of 6 cells failed, among them linear policy=greedy in arms: no such luck" in output.err
    assert "1 of 6 cells are not finished." in output.out and "Traceback" not in output.err
    assert len(pd.read_parquet(out / "sweep.parquet")) == CELLS - 1
    quick.fails = False
    assert main(arguments) == 0
    assert sorted(quick.starts.values()) == [1] * (CELLS - 1) + [2]


def test_an_interrupted_sweep_keeps_finished_cells_and_is_resumed(
    quick: Quick, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, config = tmp_path / "out", tmp_path / "c.toml"
    assert main(["sweep", written(config), "--out", str(tmp_path / "whole")]) == 0

    def interrupted(pending: Any) -> Iterator[Any]:
        completed = futures.as_completed(pending)
        yield next(completed)
        yield next(completed)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sweep, "as_completed", interrupted)
        assert main(["sweep", str(config), "--out", str(out)]) == 130
    output = capsys.readouterr()
    assert "interrupted" in output.err and "4 of 6 cells are not finished." in output.out
    assert len(pd.read_parquet(out / "sweep.parquet")) == 2 == len(list((out / "cells").iterdir()))
    config.unlink()
    moved = out.rename(tmp_path / "moved")
    with folder.opened(moved):
        assert main(["sweep", "--resume", str(moved)]) == 1
    assert "in use by this process" in capsys.readouterr().err
    assert main(["sweep", "--resume", str(moved)]) == 0
    assert table_of(moved) == table_of(tmp_path / "whole")


TOP = {
    "stepz = 1": "unknown key of .*'stepz': did you mean 'steps'",
    "steps = 0": "steps must be an integer of at least 1; got 0",
    "steps = true": "steps must be an integer of at least 1; got True",
    "": "steps must be an integer of at least 1; got None",
    "steps = 1\nseeds = 0": "seeds must be an integer of at least 1; got 0",
    "steps = 1\nseed = -1": r"seed must be an integer from 0 to 2\*\*63 - 1; got -1",
    "steps = ": "is not TOML: ",
    "steps = 1\nagents = 3": r"\[environments\] must name at least one environment, such as linear = {}; got None",
    "steps = 1\n[environments]\nlinear = {}": r"\[agents\] must name at least one agent",
}
ENVIRONMENTS = {
    "x = { environment = 'bernouli' }": "unknown environment 'bernouli': did you mean 'bernoulli'",
    "linear = 3": "environments.linear must be a table of keywords, such as {}; got 3",
    "linear = { noise_sd = 1 }": ".*keyword of envs.linear 'noise_sd': did you mean 'noise_std'",
    "linear = { noise_std = [] }": r"environments.linear.noise_std must list at least one value, .*got \[\]",
    "linear = { noise_std = [1.0, 1.0] }": "none twice",
    "linear = { noise_std = -1.0 }": "environments.linear with {'noise_std': -1.0}: ",
    "linear = { noise_std = 2020-01-01 }": "environments.linear with .*date",
    "branin = { nois = 10 }": "environments.branin with .*unknown keyword of envs.branin 'nois'",
    "idx = {}": "environments.idx with {}: .*path",
}
AGENTS = {
    "x = { agent = 3 }": "agents.x: unknown agent 3",
    "linear = { policy = 'gredy' }": "unknown policy 'gredy': did you mean 'greedy'",
    "hilofi = { rnk = 3 }": "agents.hilofi with .*'rnk': did you mean 'rank'",
    "hilofi = { rank = [3, -3] }": "agents.hilofi with {'rank': -3}: rank",
}
BAD = {
    **TOP,
    **{f"steps = 9\n[agents]\nlinear = {{}}\n[environments]\n{line}": text for line, text in ENVIRONMENTS.items()},
    **{f"steps = 9\n[environments]\nlinear = {{}}\n[agents]\n{line}": text for line, text in AGENTS.items()},
}


@pytest.mark.parametrize(("text", "message"), BAD.items())
def test_a_wrong_configuration_is_refused_before_any_work(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "c.toml", text)
    assert main(["sweep", path, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert re.search(message, error) and path in error, error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.toml"], "no such file: "),
        (["c.toml", "--backend", "rai"], "unknown backend 'rai': did you mean 'ray'"),
        (["c.toml", "--workers", "0"], "workers must be at least 1"),
        (["c.toml", "--address", "auto"], "--address requires --backend ray"),
    ],
)
def test_wrong_options_are_refused(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "c.toml")
    assert main(["sweep", *arguments]) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "results").exists()


def test_ray_that_is_not_installed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["sweep", written(tmp_path / "c.toml"), "--backend", "ray", "--out", str(tmp_path / "out")]) == 1
    assert "pip install 'seqdec[ray]'" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_worker_with_other_versions_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = sweep.read_cells(Path(written(tmp_path / "c.toml")))[0]
    key = cell.key()
    monkeypatch.setattr(sweep, "_present", lambda: "seqdec 0.0.1")
    with pytest.raises(RuntimeError, match=r"a worker has other versions than this machine: seqdec 0\.0\.1"):
        sweep.run_cell(cell, key)


def test_environments_of_one_name_are_told_apart(tmp_path: Path) -> None:
    cells = sweep.read_cells(Path(written(tmp_path / "c.toml")))
    assert len({cell.key() for cell in cells}) == CELLS == len({str(cell) for cell in cells})
    assert str(cells[0]) == "linear policy=greedy in linear noise_std=0.1"


@pytest.mark.extended
@pytest.mark.slow
def test_the_recipe_for_several_hosts_computes_what_one_host_computes(tmp_path: Path) -> None:
    """Two processes with jax.distributed on this machine."""
    page = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"^```py\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "host.py").write_text(recipe)
    port = str(free_port())
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "1"}
    hosts = [
        subprocess.Popen(
            [sys.executable, "host.py", f"127.0.0.1:{port}", "2", str(index)], cwd=tmp_path, env=environment
        )
        for index in range(2)
    ]
    assert [host.wait(timeout=300) for host in hosts] == [0, 0]
    tables = [seqdec.Run.load(tmp_path / f"host-{index}").to_pandas() for index in range(2)]
    together = pd.concat(tables)
    assert together["seed"].unique().tolist() == list(range(8))
    env = seqdec.envs.linear()
    run = seqdec.run(seqdec.agents.hilofi(env, rank=3), env, 200, seed=4, num_seeds=4)
    np.testing.assert_allclose(tables[1]["reward"], run.to_pandas()["reward"], rtol=1e-3, atol=1e-3)


def free_port() -> int:
    """A port of this machine that nobody uses."""
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
