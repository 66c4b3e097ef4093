"""`seqdec run tabular`: regret in percent of that of uniform play, and its files."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from reproduction import tabular
from seqdec import cli, envs
from seqdec.results import Run
from tests.tables import write_tables
from tests.test_results import make_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home") / "tabular"
    write_tables(home)
    return home


@pytest.fixture
def home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEQDEC_DATA", str(folder.parent))
    return folder


def test_regret_is_relative_to_uniform_play() -> None:
    runs: dict[str, dict[str, Run]] = {"statlog": {"uniform": make_run(3, 40, seed=1), "linear": make_run(3, 30)}}
    table = tabular.summarize(runs)
    own, even = runs["statlog"]["linear"].regret.sum(1), runs["statlog"]["uniform"].regret[:, :30].sum(1)
    assert table.loc[("statlog", "uniform"), "regret"] == pytest.approx(100)
    assert table.loc[("statlog", "linear"), "regret"] == pytest.approx((100 * own / even).mean(), rel=1e-5)


def test_uniform_play_is_uniform(home: Path) -> None:
    env = envs.statlog()
    agent = tabular.uniform(env)
    actions = jax.vmap(lambda key: agent.act(key, None, jnp.zeros(9)))(jax.random.split(jax.random.key(0), 7000))
    counts = np.bincount(actions.value, minlength=7)
    assert len(counts) == 7 and np.abs(counts - 1000).max() < 6 * np.sqrt(7000 * 6 / 49)
    assert np.allclose(actions.propensity, 1 / 7)


def test_every_agent_plays_all_seeds(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(tabular, "run", lambda agent, env, steps, **given: asked.append((steps, given)) or make_run())
    options = tabular.Tabular(tables="statlog", agents="linear", steps=20, seed=4, seeds=2)
    assert [name for _, name, _ in options.play(None, [])] == ["uniform", "linear"]
    assert asked == [(20, {"seed": 4, "num_seeds": 2})] * 2


@pytest.mark.extended
def test_the_command_runs_the_tables_and_rebuilds_its_report(home: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "out"
    names = ["--tables", "statlog,financial", "--agents", "neural-greedy", "--steps", "20", "--seeds", "2"]
    assert cli.main(["run", "tabular", *names, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "financial" in printed and "uniform" in printed and "100.0" in printed
    summary = pd.read_parquet(out / "summary.parquet")
    assert list(summary.index) == [
        (table, name) for table in ("financial", "statlog") for name in ("uniform", "neural-greedy")
    ]
    assert (out / "regret.png").read_bytes().startswith(b"\x89PNG") and (out / "statlog" / "comparison.png").is_file()
    assert json.loads((out / "manifest.json").read_text())["experiment"] == "tabular"
    (out / "summary.csv").unlink()
    assert cli.main(["report", str(out)]) == 0
    assert capsys.readouterr().out.strip() == printed.split("\n\nResults")[0].strip()
    assert (out / "summary.csv").is_file()
