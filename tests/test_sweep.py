"""`seqdec sweep`: equal tables whatever computed them, finished cells, dead workers, failures, configurations."""

import collections
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
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
SHUFFLED = """
steps = 30
seeds = 2
seed = 5

[agents]
linear = { policy = ["thompson", "greedy"] }
[environments]
arms = { environment = "bernoulli" }
linear = { noise_std = [0.5, 0.1] }
"""
CELLS = 6
LOG = "SEQDEC_TEST_FOLDER"  # workers have all variables that begin like this
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


def written(path: Path, text: str = CONFIG) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def table_of(out: Path) -> bytes:
    return (out / "sweep.parquet").read_bytes()


def quick_cell(cell: sweep.Cell, key: str) -> pd.DataFrame:
    """A row that depends on the cell, without a run; a file for each start. Some cells fail, or kill their process."""
    place = Path(os.environ[LOG])
    starts = len(list(place.glob(f"{key}-*")))
    (place / f"{key}-{starts}").touch()
    if cell.agent.options == {"policy": "greedy"} and cell.environment.name == "arms":
        if (place / "fail").exists():
            raise ValueError("no such luck")
        if (place / "kill").exists() and not starts:
            os.kill(os.getpid(), signal.SIGKILL)
    row = dict(
        zip(sweep.CELL, (cell.environment.name, cell.environment.settings(), "a", cell.agent.settings()), strict=True)
    )
    numbers = {"seed": 5, "steps": 1, "reward": int(key, 16) % 97 / 7, "last_reward": 0.5, "regret": 0.1, "rejected": 0}
    return pd.DataFrame([row | numbers])


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder where `quick_cell` notes its starts."""
    (tmp_path / "starts").mkdir()
    monkeypatch.setenv(LOG, str(tmp_path / "starts"))
    monkeypatch.setattr(sweep, "run_cell", quick_cell)
    return tmp_path / "starts"


def starts_in(place: Path) -> list[int]:
    """How often each cell was started, sorted."""
    keys = (path.name.partition("-")[0] for path in place.glob("*-*"))
    return sorted(collections.Counter(keys).values())


@pytest.mark.extended
@pytest.mark.slow
def test_tables_are_equal_whatever_computed_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One worker or two, cells in another order, and with Ray where it is installed."""
    config, shuffled = written(tmp_path / "a.toml"), written(tmp_path / "b.toml", SHUFFLED)
    runs = {"one": [config, "--workers", "1"], "two": [shuffled, "--workers", "2"]}
    if importlib.util.find_spec("ray") is not None:
        runs["ray"] = [config, "--backend", "ray", "--workers", "2"]
    for name, arguments in runs.items():
        assert main(["sweep", *arguments, "--out", str(tmp_path / name)]) == 0
    (whole,) = {table_of(tmp_path / name) for name in runs}
    output = capsys.readouterr().out
    assert "linear noise_std=0.1" in output and "policy=thompson" in output
    table = pd.read_parquet(tmp_path / "one" / "sweep.parquet")
    assert len(table) == 2 * CELLS and table["seed"].unique().tolist() == [5, 6]
    for (_, settings, _, policy), rows in table.query("environment == 'linear'").groupby(sweep.CELL):
        env = seqdec.envs.linear(**json.loads(settings))
        run = seqdec.run(seqdec.agents.make("linear", env, **json.loads(policy)), env, 30, seed=5, num_seeds=2)
        np.testing.assert_allclose(rows["reward"], run.rewards.sum(axis=1), rtol=1e-3)
        np.testing.assert_allclose(rows["last_reward"], run.rewards[:, -3:].mean(axis=1), rtol=1e-3)
        np.testing.assert_allclose(rows["regret"], run.regret.sum(axis=1), rtol=1e-3)
    (tmp_path / "one" / "sweep.parquet").unlink()
    assert main(["report", str(tmp_path / "one")]) == 0
    assert table_of(tmp_path / "one") == whole and (tmp_path / "one" / "rewards.png").stat().st_size > 10_000


def test_finished_cells_are_skipped(quick: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    arguments = ["sweep", written(tmp_path / "c.toml"), "--workers", "2", "--out", str(out)]
    assert main(arguments) == 0
    assert starts_in(quick) == [1] * CELLS
    whole, cells = table_of(out), sorted((out / "cells").iterdir())
    assert main(arguments) == 0
    assert starts_in(quick) == [1] * CELLS and table_of(out) == whole
    for cell in cells[:2]:
        cell.unlink()
    assert main(arguments) == 0
    assert starts_in(quick) == [1] * (CELLS - 2) + [2] * 2 and table_of(out) == whole
    written(tmp_path / "c.toml", CONFIG.replace('"greedy", ', ""))  # cells that are no longer asked for
    assert main(arguments) == 0
    assert len(pd.read_parquet(out / "sweep.parquet")) == CELLS / 2 and sum(starts_in(quick)) == CELLS + 2
    written(tmp_path / "c.toml", CONFIG.replace("seed = 5", "seed = 6"))
    assert main(arguments) == 0
    assert sum(starts_in(quick)) == 2 * CELLS + 2
    written(tmp_path / "c.toml", CONFIG.replace("steps = 30", "steps = 31"))
    assert main(arguments) == 0
    assert sum(starts_in(quick)) == 3 * CELLS + 2
    assert "noise_std" in capsys.readouterr().out


def test_the_page_of_a_folder_that_was_moved_has_its_configuration(quick: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["sweep", written(tmp_path / "a.toml"), "--out", str(tmp_path / "out"), "--workers", "1"]) == 0
    moved = (tmp_path / "out").rename(tmp_path / "moved")
    assert main(["report", str(moved), "--html", str(page)]) == 0
    assert "noise_std = [0.1, 0.5]" in page.read_text(encoding="utf-8")


@pytest.mark.extended
@pytest.mark.parametrize("backend", ["local", pytest.param("ray", marks=[needs_ray, pytest.mark.slow])])
def test_cells_of_a_dead_worker_run_again(backend: str, quick: Path, tmp_path: Path) -> None:
    config = written(tmp_path / "c.toml")
    assert main(["sweep", config, "--workers", "2", "--out", str(tmp_path / "whole")]) == 0
    for path in quick.iterdir():
        path.unlink()
    (quick / "kill").touch()
    assert main(["sweep", config, "--backend", backend, "--workers", "2", "--out", str(tmp_path / "killed")]) == 0
    assert starts_in(quick) == [1] * (CELLS - 1) + [2]
    assert table_of(tmp_path / "killed") == table_of(tmp_path / "whole")


@pytest.mark.extended
@pytest.mark.parametrize("backend", ["local", pytest.param("ray", marks=[needs_ray, pytest.mark.slow])])
def test_a_failing_cell_keeps_no_other_from_being_finished(
    backend: str, quick: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = ["sweep", written(tmp_path / "c.toml"), "--backend", backend, "--workers", "2", "--out", str(out)]
    (quick / "fail").touch()
    assert main(arguments) == 1
    output = capsys.readouterr()
    assert "1 of 6 cells failed, among them linear policy=greedy in arms: " in output.err
    assert "no such luck" in output.err and "Traceback" not in output.err
    assert "1 of 6 cells are not finished." in output.out
    assert len(pd.read_parquet(out / "sweep.parquet")) == CELLS - 1
    (quick / "fail").unlink()
    assert main(arguments) == 0
    assert starts_in(quick) == [1] * (CELLS - 1) + [2]


@pytest.mark.extended
def test_an_interrupted_sweep_keeps_finished_cells_and_is_resumed(
    quick: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, config = tmp_path / "out", tmp_path / "c.toml"
    assert main(["sweep", written(config), "--workers", "2", "--out", str(tmp_path / "whole")]) == 0

    def interrupted(pending: Any) -> Iterator[Any]:
        completed = futures.as_completed(pending)
        yield next(completed)
        yield next(completed)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sweep, "as_completed", interrupted)
        assert main(["sweep", str(config), "--workers", "1", "--out", str(out)]) == 130
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
    "steps = 1.5": r"steps must be an integer of at least 1; got 1\.5",
    "": "steps must be an integer of at least 1; got None",
    "steps = 1\nseeds = 0": "seeds must be an integer of at least 1; got 0",
    "steps = 1\nseed = -1": r"seed must be an integer from 0 to 2\*\*63 - 1; got -1",
    "steps = 1\nseed = 9223372036854775808": r"seed must be an integer from 0 to 2\*\*63 - 1",
    "steps = ": "is not TOML: ",
    "steps = 1\nagents = 3": r"\[environments\] must name at least one environment, such as linear = {}; got None",
    "steps = 1\n[environments]\n[agents]\nlinear = {}": "must name at least one environment",
    "steps = 1\n[environments]\nlinear = {}": r"\[agents\] must name at least one agent",
}
ENVIRONMENTS = {
    "liner = {}": r"environments\.liner: unknown environment 'liner': did you mean 'linear'",
    "x = { environment = 'bernouli' }": "unknown environment 'bernouli': did you mean 'bernoulli'",
    "linear = 3": "environments.linear must be a table of keywords, such as {}; got 3",
    "linear = { noise_sd = 1 }": ".*keyword of envs.linear 'noise_sd': did you mean 'noise_std'",
    "linear = { noise_std = [] }": r"environments.linear.noise_std must list at least one value, .*got \[\]",
    "linear = { noise_std = [1.0, 1.0] }": "none twice",
    "linear = { noise_std = -1.0 }": "environments.linear with {'noise_std': -1.0}: ",
    "linear = { noise_std = 2020-01-01 }": "environments.linear with .*date",
    "branin = { horizn = 10 }": "unknown keyword of envs.branin 'horizn': did you mean 'horizon'",
    "branin = { nois = 10 }": "environments.branin with .*unknown keyword of envs.branin 'nois'",
    "digits = { ordr = 1 }": "unknown keyword of envs.digits 'ordr': did you mean 'order'",
    "idx = {}": "environments.idx with {}: .*path",
}
AGENTS = {
    "linar = {}": "agents.linar: unknown agent 'linar': did you mean 'linear'",
    "x = { agent = 3 }": "agents.x: unknown agent 3",
    "linear = { polcy = 'greedy' }": "agents.linear with .*keyword of agents.linear 'polcy': did you mean 'policy'",
    "linear = { policy = 'gredy' }": "unknown policy 'gredy': did you mean 'greedy'",
    "hilofi = { rnk = 3 }": "agents.hilofi with .*'rnk': did you mean 'rank'",
    "hilofi = { rank = [3, -3] }": "agents.hilofi with {'rank': -3}: rank",
    "hilofi = { model = 'mlp' }": "agents.hilofi with {'model': 'mlp'}: ",
    "adamw = { learnin_rate = 0.1 }": "unknown keyword of agents.adamw 'learnin_rate': did you mean 'learning_rate'",
    "vbll = { prior_scal = 0.1 }": "agents.vbll with .*keyword of agents.vbll 'prior_scal': did you mean 'prior_std'",
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
        (["none.toml"], "there is no configuration "),
        (["c.toml", "--backend", "rai"], "unknown backend 'rai': did you mean 'ray'"),
        (["c.toml", "--workers", "0"], "workers must be at least 1"),
        (["c.toml", "--address", "auto"], "--address belongs to --backend ray"),
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
