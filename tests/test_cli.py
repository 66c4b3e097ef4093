"""The command line, from arguments to exit codes and files."""

import json
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

from seqdec import agents, cli, commands, envs, policies
from seqdec.commands import bandits, folder
from seqdec.core import Agent
from seqdec.results import Run
from tests.test_runner import interrupt_at
from tests.toys import toy_agent, toy_env

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def team(monkeypatch: pytest.MonkeyPatch) -> dict[str, Agent]:
    """Two toy agents in the toy environment, in the place of what the options ask for."""
    agents = {name: toy_agent()._replace(name=name) for name in ("first", "second+greedy")}
    env = toy_env()
    finite = env._replace(step=lambda key, state, action, params: env.step(key, state * 0, action, params))
    monkeypatch.setattr(bandits.Options, "check", lambda self: bandits.Plan(finite, agents, self.steps))
    return agents


def files(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file() and path.name != ".lock"}


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The complaint: a single line on standard error, and no traceback anywhere."""
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    assert len(err.splitlines()) == 1 and err.startswith("seqdec: "), err
    return err


RUNS = {f"runs/{name}/steps.parquet" for name in ("first", "second+greedy")}
BANDIT_FILES = RUNS | {"manifest.json", "summary.csv", "comparison.png", "regret.png"}


def test_run_fills_the_folder_and_prints_the_table(team: Any, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "deep" / "out"
    assert cli.main(["run", "digits", "--steps", "60", "--seeds", "3", "--seed", "4", "--out", str(out)]) == 0
    printed, err = capsys.readouterr()
    assert err == ""  # quiet: not a terminal
    lines = printed.splitlines()
    assert "of optimum" in lines[0] and lines[1].startswith("first ") and lines[2].startswith("second+greedy ")
    assert files(out) == BANDIT_FILES
    assert all((out / name).read_bytes().startswith(PNG) for name in ("comparison.png", "regret.png"))

    summary = pd.read_csv(out / "summary.csv", index_col="agent")
    run = Run.load(out / "runs" / "first")
    assert run.seeds == (4, 5, 6) and run.rewards.shape == (3, 60) and run.agent == "first"
    np.testing.assert_allclose(summary.loc["first", "reward"], run.rewards.sum(axis=1).mean(), rtol=1e-6)
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["runs"] == ["first", "second+greedy"] and manifest["options"]["steps"] == 60
    assert manifest["versions"]["jax"] == jax.__version__ and manifest["experiment"] == "digits"


def test_report_rebuilds_what_run_made(team: Any, tmp_path: Path, capsys: Any) -> None:
    assert cli.main(["run", "digits", "--steps", "30", "--seeds", "2", "--out", str(tmp_path)]) == 0
    table = capsys.readouterr().out.split("\n\nResults")[0]
    summary = (tmp_path / "summary.csv").read_bytes()
    for name in ("summary.csv", "comparison.png", "regret.png"):
        (tmp_path / name).unlink()
    assert cli.main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == table.strip()
    assert files(tmp_path) == BANDIT_FILES and (tmp_path / "summary.csv").read_bytes() == summary


def test_report_makes_a_page_vector_figures_and_latex(team: Any, tmp_path: Path, capsys: Any) -> None:
    out, page = tmp_path / "a & b", tmp_path / "page.html"
    assert cli.main(["run", "digits", "--steps", "30", "--seeds", "3", "--out", str(out)]) == 0
    table = capsys.readouterr().out.split("\n\nResults")[0]
    assert cli.main(["report", str(out), "--html", str(page), "--format", "svg", "--latex"]) == 0
    latex, text = capsys.readouterr().out, page.read_text(encoding="utf-8")
    assert files(out) == BANDIT_FILES | {"comparison.svg", "regret.svg"}
    assert r"\toprule" in latex and r"second+greedy & $30$ & $3$ & $" in latex and r" \pm " in latex
    assert r"optimum\_share" in latex and "±" not in latex
    assert text.count("data:image/png;base64,") == 2 and "://" not in text  # base64 may hold "http"
    shown = ("a &amp; b", table, "--steps 30 --seeds 3", "Cumulative regret", "reward (95%)", jax.__version__)
    assert all(part in text for part in shown) and "not marked as finished" not in text

    manifest = json.loads((out / "manifest.json").read_text())
    (out / "manifest.json").write_text(json.dumps(manifest | {"finished": False}))
    assert cli.main(["report", str(out), "--html", str(page)]) == 0
    assert (
        "not marked as finished" in page.read_text(encoding="utf-8")
        and capsys.readouterr().out.strip() == table.strip()
    )
    assert cli.main(["report", str(out), "--html", str(tmp_path / "page.png")]) == 2
    assert "call it page.html" in one_line(capsys)


def test_classify_reports_accuracy(team: Any, tmp_path: Path, capsys: Any) -> None:
    assert cli.main(["run", "classify", "--steps", "50", "--seeds", "2", "--out", str(tmp_path)]) == 0
    assert re.match(r" +accuracy / % +last 8 steps / %", capsys.readouterr().out)
    assert files(tmp_path) == BANDIT_FILES - {"regret.png"} | {"accuracy.png"}
    row = pd.read_csv(tmp_path / "summary.csv", index_col="agent").loc["first"]
    run = Run.load(tmp_path / "runs" / "first")
    np.testing.assert_allclose(row["accuracy"], run.rewards.mean(), rtol=1e-6)
    np.testing.assert_allclose(row["recent_accuracy"], run.rewards[:, -8:].mean(), rtol=1e-6)


@pytest.mark.parametrize(("call", "lengths"), [(10, [9]), (21, [20])])
def test_ctrl_c_saves_and_reports_what_is_done(
    call: int, lengths: list[int], team: Any, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_at(monkeypatch, call)
    assert cli.main(["run", "digits", "--steps", "20", "--seeds", "2", "--out", str(tmp_path)]) == 130
    out, err = capsys.readouterr()
    assert err == "seqdec: interrupted\n" and out.startswith(" ")
    runs = folder.load_runs(tmp_path)
    assert [run.rewards.shape[1] for run in runs.values()] == lengths
    assert list(runs.values())[-1].interrupted == (lengths[-1] < 20)
    assert (tmp_path / "summary.csv").exists()


def test_ctrl_c_before_anything_is_done(
    team: Any, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_at(monkeypatch, 1)
    assert cli.main(["run", "digits", "--steps", "20", "--out", str(tmp_path)]) == 130
    assert one_line(capsys) == "seqdec: interrupted\n" and files(tmp_path) == {"manifest.json"}


def test_a_failing_agent_leaves_the_others_reported(team: dict[str, Agent], tmp_path: Path, capsys: Any) -> None:
    def broken(*args: Any) -> Any:
        raise RuntimeError("cannot think\nof anything")

    team["second+greedy"] = toy_agent()._replace(act=broken)
    assert cli.main(["run", "digits", "--steps", "20", "--seeds", "1", "--out", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert err == "seqdec: cannot think\n" and "first" in out
    assert list(folder.load_runs(tmp_path)) == ["first"]


def test_an_unwritable_folder_is_found_before_the_run(team: dict[str, Agent], tmp_path: Path, capsys: Any) -> None:
    team.clear()
    (tmp_path / "file").touch()
    assert cli.main(["run", "digits", "--out", str(tmp_path / "file" / "out")]) == 1
    assert "cannot write" in one_line(capsys)


def test_a_foreign_manifest_is_not_replaced(team: Any, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "manifest.json").write_text('{"name": "web app"}')
    assert cli.main(["run", "digits", "--out", str(tmp_path)]) == 1
    assert "choose another folder" in one_line(capsys)
    assert files(tmp_path) == {"manifest.json"}


def test_report_of_nothing(tmp_path: Path, capsys: Any) -> None:
    assert cli.main(["report", str(tmp_path / "nowhere")]) == 2
    assert "No such folder: " in one_line(capsys)
    assert cli.main(["report", str(tmp_path)]) == 2
    assert "No manifest.json in " in one_line(capsys)
    (tmp_path / "manifest.json").write_text("{")
    assert cli.main(["report", str(tmp_path)]) == 1
    assert "damaged" in one_line(capsys)


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (["run", "digits", "--stepz", "5"], "--steps"),
        (["run", "digits", "--steps", "many"], "--steps"),
        (["report"], "required"),
        ([], "run"),
    ],
)
def test_misspelled_commands(arguments: list[str], suggestion: str, capsys: Any) -> None:
    assert cli.main(arguments) == 2
    err = capsys.readouterr().err
    assert suggestion in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["digits", "--agents", "adamw,"], "unknown agent ''"),
        (["digits", "--agents", "lrkf,adamw+gredy"], "'greedy'"),
        (["digits", "--agents", "lrkf", "--policy", "tompson"], "'thompson'"),
        (["digits", "--agents", "lrkf,lrkf"], "must differ"),
        (["digits", "--agents", "lrkf", "--rank", "1000000"], "rank 1000000 exceeds"),
        (["digits", "--agents", "lrkf", "--noise-variance", "-1"], "noise"),
    ],
)
def test_misspelled_names_and_impossible_numbers(
    arguments: list[str], message: str, tmp_path: Path, capsys: Any
) -> None:
    assert cli.main(["run", *arguments, "--out", str(tmp_path / "out")]) == 2
    assert message in one_line(capsys)
    assert not (tmp_path / "out").exists()


def test_missing_data_is_a_failure(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, **options: Any) -> Any:
        raise FileNotFoundError("put train-images-idx3-ubyte.gz into /data")

    monkeypatch.setattr(bandits.envs, "make", missing)
    assert cli.main(["run", "mnist", "--out", str(tmp_path)]) == 1
    assert one_line(capsys) == "seqdec: put train-images-idx3-ubyte.gz into /data\n"


def test_list_names_everything(capsys: Any) -> None:
    assert cli.main(["list"]) == 0
    out = capsys.readouterr().out
    for name in (*agents.names(), *policies.names(), *envs.names(), "seqdec/Digits-v0", *commands.EVERY):
        assert re.search(rf"^  {re.escape(name)}  +\w", out, re.MULTILINE), name


@pytest.mark.parametrize(
    ("option", "folder"), [(["--compilation-cache"], None), (["--compilation-cache", "here"], "here"), ([], "unused")]
)
def test_the_compilation_cache_is_an_option_of_every_command(
    option: list[str], folder: str | None, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    folders: list[Any] = []
    monkeypatch.setattr(cli, "compilation_cache", folders.append)
    assert cli.main(["list", *option]) == 0
    assert cli.main(["report", *option, "--help"]) == 0
    assert folders == ([folder] if option else [])
