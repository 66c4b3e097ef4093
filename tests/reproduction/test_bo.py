"""`seqdec run bo`, from arguments to exit codes and files."""

import json
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection

from reproduction import bo
from seqdec import bo as package
from seqdec import cli
from seqdec.bo.search.candidates import sobol

FILES = {"manifest.json", "trials.parquet", "summary.csv", "progress.png", "time.png"}
TINY = ["run", "bo", "--functions", "branin,drawnn50", "--methods", "random,evolution", "--seeds", "2"]


def test_run_fills_the_folder_and_report_rebuilds_it(tmp_path: Path, capsys: Any) -> None:
    assert cli.main([*TINY, "--steps", "9", "--out", str(tmp_path)]) == 0
    printed, err = capsys.readouterr()
    assert (
        err == ""
        and "branin" in printed
        and {path.name for path in tmp_path.iterdir() if path.name != ".lock"} == FILES
    )
    trials = pd.read_parquet(tmp_path / "trials.parquet")
    assert (
        len(trials) == 2 * 2 * (11 + 59) and trials.groupby(["function", "method", "run"])["best"].min().notna().all()
    )
    table = bo.summarize(trials)
    branin = trials.query("function == 'branin' and method == 'random'").groupby("run")["value"].min()
    assert table.loc[("branin", "random"), "best"] == pytest.approx(branin.mean())
    assert table.loc[("branin", "random"), "best_95"] == pytest.approx(12.7062 * branin.std() / np.sqrt(2), rel=1e-4)
    assert np.isnan(table.loc[("drawnn50", "random"), "regret"])
    assert json.loads((tmp_path / "manifest.json").read_text())["options"]["seeds"] == 2
    for name in ("summary.csv", "progress.png", "time.png"):
        (tmp_path / name).unlink()
    assert cli.main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == printed.split("\n\nResults")[0].strip()
    assert {path.name for path in tmp_path.iterdir() if path.name != ".lock"} == FILES


def test_a_method_names_its_acquisition_and_rank() -> None:
    assert bo._settings("hilofi:200+thompson") == {
        "surrogate": "hilofi", "acquisition": "thompson", "surrogate_options": {"rank": 200}
    }  # fmt: skip
    published = bo._settings("lrkf.published")
    assert published is not None and published["search"].grid and published["responses"] == "raw"
    assert published["surrogate_options"]["noise_variance"] == 0


BASELINES = ["lofi", "last_layer_laplace", "on_vbll", "vbll", "gp"]


def test_published_settings_are_those_that_the_page_states() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "measurements" / "reproduction.md").read_text(
        encoding="utf-8"
    )
    (row,) = re.findall(r"^\| `bo` \|.*$", page, re.MULTILINE)
    stated = {kind: {} for kind in BASELINES}
    rank, hidden, last = re.findall(
        r"HiLoFi and LoFi with rank (\S+), R = 0, covariances (\S+) I of the hidden layers and (\S+) I of the last", row
    )[0]
    stds = {"initial_std_hidden": float(hidden) ** 0.5, "initial_std_last": float(last) ** 0.5}
    stated["lofi"] = {"rank": int(rank), **stds}
    buffer, steps, rate, inner = re.findall(
        r"LLL and OnVBLL with a buffer of (\d+) and (\d+) steps of AdamW at (\S+), VBLL with all values and (\d+)", row
    )[0]
    rates = {"learning_rate": float(rate)}
    for kind in ("last_layer_laplace", "on_vbll"):
        stated[kind] = {"buffer": int(buffer), "inner_steps": int(steps)} | rates
    stated["vbll"] = {"inner_steps": int(inner)} | rates
    length, last_points = re.findall(r"GP with the length scale (\S+) and a buffer of (\d+)", row)[0]
    stated["gp"] = {"length_scale": float(length), "buffer": int(last_points)}
    for kind, settings in stated.items():
        published = bo._settings(f"{kind}.published")
        assert published is not None and published["search"].grid and published["responses"] == "raw"
        options = published["surrogate_options"]
        assert options == options | settings and options["growth"] == np.inf
        assert options.get("scale", 0.5) == 0.5 and options.get("noise_variance", 0.0) <= 1e-6


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", BASELINES)
def test_published_baselines_run_and_repeat(kind: str, tmp_path: Path) -> None:
    command = ["run", "bo", "--functions", "ackley2", "--methods", f"{kind}.published", "--steps", "3"]
    assert cli.main([*command, "--seeds", "2", "--out", str(tmp_path / "both")]) == 0
    assert cli.main([*command, "--seeds", "1", "--seed", "1", "--out", str(tmp_path / "second")]) == 0
    both, second = (pd.read_parquet(tmp_path / name / "trials.parquet") for name in ("both", "second"))
    first, again = (both.query("run == @run")["value"].to_numpy() for run in (0, 1))
    np.testing.assert_array_equal(again, second["value"])
    assert np.all(first[:2] != again[:2]) and np.any(first[2:] != again[2:])  # corners have equal values


PUBLISHED = {"ackley2": 1.56, "ackley5": 4.16, "ackley10": 6.24, "ackley50": 8.42, "branin": 0.43, "hartmann6": -2.61}
"""The best value on the grid of the authors' experiments, as the paper's settings give it."""


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_searches_the_authors_grid(name: str) -> None:
    objective = bo.PROBLEMS[name].build()
    low, high = objective.bounds.T
    published = bo._settings("hilofi.published")
    assert published is not None
    grid = low + (high - low) * sobol(published["search"].raw_samples, len(low), published["search"].grid)
    best = jax.vmap(lambda x: objective.value(objective.params, x))(jnp.asarray(grid)).min()
    assert float(best) == pytest.approx(PUBLISHED[name], abs=0.0051)
    small = published["surrogate_options"] | {"rank": 2, "features": (4,)}
    early = bo._run(objective, 1, "hilofi", published | {"surrogate_options": small}, seed=3)[0]
    assert early.min() >= float(best) - 1e-4


def test_ctrl_c_keeps_the_runs_that_are_done(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    def ask(self: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(package.BayesianOptimizer, "ask", ask)
    command = ["run", "bo", "--functions", "branin", "--methods", "random,gp", "--seeds", "1", "--out", str(tmp_path)]
    assert cli.main(command) == 130
    out, err = capsys.readouterr()
    assert (
        err == "seqdec: interrupted\n"
        and "random" in out
        and {path.name for path in tmp_path.iterdir() if path.name != ".lock"} == FILES
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "hilofy"], "unknown method 'hilofy'"),
        (["--methods", "ekf.published"], "ekf.published: the settings of the paper are known for hilofi, lrkf, lofi"),
        (["--methods", "gp+ei"], "unknown acquisition 'ei': did you mean 'log_expected_improvement'?"),
        (["--methods", "lrkf:many"], "the rank of 'lrkf:many' must be an integer"),
        (["--methods", "lrkf:"], "the rank of 'lrkf:' must be an integer"),
        (["--methods", "hilofi:0"], "the rank of 'hilofi:0' must be an integer of at least 1"),
        (["--methods", "gp:20"], "gp has no rank; got 'gp:20'"),
        (["--methods", "random+ucb"], "random has neither a rank nor an acquisition"),
        (["--methods", "random.published"], "random has neither a rank nor an acquisition nor published settings"),
    ],
)
def test_nonsense_is_refused(arguments: list[str], message: str, tmp_path: Path, capsys: Any) -> None:
    assert cli.main(["run", "bo", *arguments, "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.startswith(f"seqdec: {message}") and not (tmp_path / "out").exists()


def test_pictures_show_regret_where_the_optimum_is_known() -> None:
    names, values = ("branin", "drawnn50"), np.r_[1e3, np.geomspace(100, 1, 59)]
    parts = [bo._table(bo.PROBLEMS[n].build(), n, "random", 0, values, np.zeros(60)) for n in names]
    trials = pd.concat(parts, ignore_index=True)
    table = bo.summarize(trials)
    for figure in (bo.progress_figure(trials), bo.time_figure(table)):
        labels = [axis.get_ylabel() for axis in figure.axes if axis.get_visible()]
        assert labels[0].startswith("regret") and labels[1].startswith("best value")
        assert [text.get_text() for text in figure.legends[0].texts] == ["random"]
    (line, *_), (clock, *_) = bo.progress_figure(trials).axes[0].lines, bo.time_figure(table).axes[0].lines
    last = np.asarray(line.get_ydata())[-1]
    assert 10**last == pytest.approx(1 - 0.397887) and np.ravel(clock.get_ydata()) == pytest.approx([1 - 0.397887])


def test_values_before_a_tenth_of_the_evaluations_leave_the_panel() -> None:
    found = [np.r_[np.full(50, 1e3), np.linspace(100, end, 100)] for end in (1, 2)]
    parts = [
        bo._table(bo.PROBLEMS["drawnn50"].build(), "drawnn50", m, 0, v, v) for m, v in zip("ab", found, strict=True)
    ]
    axis = bo.progress_figure(pd.concat(parts, ignore_index=True)).axes[0]
    assert 80 < axis.get_ylim()[1] < 100


def test_fewer_than_three_runs_have_no_interval() -> None:
    rows = pd.DataFrame(
        {
            "function": ["branin"] * 2,
            "method": ["gp", "random"],
            "best": [1.0, 2.0],
            "regret": [0.6, 1.6],
            "seconds": 1.0,
        }
    ).set_index(["function", "method"])
    for runs, margins, lengths in (
        (1, [np.nan, np.nan], [0.0, 0.0]),
        (2, [0.5, 3.0], [0.0, 0.0]),
        (3, [0.5, 3.0], [1.0, 4.6]),
    ):
        (axis,) = bo.time_figure(rows.assign(runs=runs, best_95=margins)).axes
        drawn = [np.ptp(bars.get_segments()[0][:, 1]) for bars in axis.collections if isinstance(bars, LineCollection)]
        np.testing.assert_allclose(drawn, lengths)
