"""Runs on disk, in tables and in pictures."""

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from pyarrow import parquet
from scipy import stats

from reproduction import classify
from seqdec import figures, ope, pages, persistence, results, tables
from seqdec.results import Run


def make_run(num_seeds: int = 3, num_steps: int = 40, *, seed: int = 0, action_shape: tuple[int, ...] = ()) -> Run:
    """A run of random numbers in the dtypes that real ones have, NaN included."""
    rng = np.random.default_rng(seed)
    shape = (num_seeds, num_steps)
    rewards = rng.random(shape, np.float32)
    points = rng.random((*shape, *action_shape), np.float32)
    return Run(
        agent="toy",
        env="arms",
        seeds=tuple(range(5, 5 + num_seeds)),
        actions=points if action_shape else rng.integers(0, 4, shape, np.int32),
        rewards=rewards,
        regret=(1 - rewards).astype(np.float32),
        propensities=np.where(rewards < 0.3, np.float32(np.nan), rewards),
        diagnostics={
            "error": rng.random((*shape, 2, 2), np.float32),
            "rejected": rewards > 0.9,
            "bound.truncation": rng.random(shape),
        },
        rejected=np.arange(num_seeds),
        elapsed=np.cumsum(rng.random(num_steps)),
        compile_seconds=1.25,
        interrupted=False,
        settings={"rank": 50, "layers": [50, 50], "noise": 1e-3},
        versions={"jax": "0.10"},
    )


def assert_equal(one: Run, other: Run) -> None:
    left: Any
    right: Any
    for name, left, right in ((name, left, vars(other)[name]) for name, left in vars(one).items()):
        pairs = left.items() if name == "diagnostics" else [(name, left)]
        for key, array in pairs:
            twin = right[key] if name == "diagnostics" else right
            if isinstance(array, np.ndarray):
                assert array.dtype == twin.dtype and array.shape == twin.shape, key
                assert array.tobytes() == twin.tobytes(), key
            else:
                assert array == twin, key
    assert list(one.diagnostics) == list(other.diagnostics)


@pytest.mark.parametrize("action_shape", [(), (2, 12)])
def test_save_and_load_round_trip_exactly(tmp_path: Path, action_shape: tuple[int, ...]) -> None:
    run = make_run(action_shape=action_shape)
    run.save(tmp_path / "deep" / "run")
    assert_equal(Run.load(tmp_path / "deep" / "run"), run)
    assert sorted(path.name for path in (tmp_path / "deep").rglob("*")) == ["run", "steps.parquet"]


def test_saving_again_replaces_the_run(tmp_path: Path) -> None:
    make_run(seed=1).save(tmp_path / "run")
    make_run(seed=2, num_seeds=2).save(tmp_path / "run")
    assert_equal(Run.load(tmp_path / "run"), make_run(seed=2, num_seeds=2))
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_other_files_are_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match="is not a saved run; choose another folder"):
        make_run().save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_full_disk_leaves_the_old_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(seed=1).save(tmp_path / "run")

    def full(table: Any, file: BinaryIO) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parquet, "write_table", full)
    with pytest.raises(OSError, match=r"cannot write .*steps.parquet: No space left on device"):
        make_run(seed=2).save(tmp_path / "run")
    assert_equal(Run.load(tmp_path / "run"), make_run(seed=1))
    assert [path.name for path in tmp_path.rglob("*")] == ["run", "steps.parquet"]


def test_loading_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"has no saved run: steps\.parquet"):
        Run.load(tmp_path)
    make_run().save(tmp_path / "run")
    file = tmp_path / "run" / "steps.parquet"
    whole = file.read_bytes()
    for broken in (whole[: len(whole) // 2], b""):
        file.write_bytes(broken)
        with pytest.raises(ValueError, match="damaged"):
            Run.load(tmp_path / "run")
    file.write_bytes(whole)
    table, manifest = persistence.read_table(file)
    persistence.write_table(file, table, {**manifest, "format": "seqdec run 9"})
    with pytest.raises(ValueError, match="'seqdec run 9', not 'seqdec run 2'; read it with the seqdec of version"):
        Run.load(tmp_path / "run")


def test_to_pandas_is_long_and_in_order() -> None:
    run = make_run(num_seeds=2, num_steps=3, action_shape=(2,))
    frame = run.to_pandas()
    entries = [f"error_{i}" for i in range(4)]
    assert list(frame) == [
        "seed", "step", "action_0", "action_1", "reward", "regret", "propensity", "elapsed", *entries, "rejected",
        "bound.truncation",
    ]  # fmt: skip
    assert frame["seed"].tolist() == [5, 5, 5, 6, 6, 6] and frame["step"].tolist() == [0, 1, 2, 0, 1, 2]
    row = frame.iloc[4]
    assert row["reward"] == run.rewards[1, 1] and row["action_1"] == run.actions[1, 1, 1]
    assert row["error_2"] == run.diagnostics["error"][1, 1, 1, 0] and row["elapsed"] == run.elapsed[1]


def test_compare_against_scipy() -> None:
    run = make_run(num_seeds=4)
    table = results.compare({"a": run, "b": make_run(num_seeds=1)})
    totals = run.rewards.astype(np.float64).sum(axis=1)
    low, high = stats.t.interval(0.95, 3, loc=totals.mean(), scale=stats.sem(totals))
    row = table.loc["a"]
    np.testing.assert_allclose([row["reward"] - row["reward_95"], row["reward"] + row["reward_95"]], [low, high])
    np.testing.assert_allclose(row["optimum_share"], totals.mean() / 40, rtol=1e-6)
    np.testing.assert_allclose(row["seconds_per_1000_steps"], 1000 * run.elapsed[-1] / 160)
    assert row["rejected"] == 6 and row["steps"] == 40 and row["seeds"] == 4
    assert np.isnan(table.loc["b", "reward_95"]) and np.isnan(table.loc["b", "regret_95"])
    assert list(table.index) == ["a", "b"]


def test_unknown_regret_stays_unknown() -> None:
    run = make_run().replace(regret=np.full((3, 40), np.nan, np.float32))
    table = results.compare({"gym": run})
    assert table[["regret", "regret_95", "optimum_share"]].isna().to_numpy().all()
    line = results.readable(table).to_string().splitlines()[1].split()
    assert line[0] == "gym" and line[4:6] == ["-", "-"]


def test_a_difference_is_paired_over_seeds() -> None:
    """Seeds differ by far more than the two agents do."""
    base = make_run()
    shifts = 100.0 * np.arange(len(base.seeds))[:, None]
    runs = {"base": base.replace(rewards=base.rewards + shifts), "own": base.replace(rewards=base.rewards + shifts + 1)}
    table = results.compare(runs, baseline="base")
    assert table.loc["own", "ahead"] == pytest.approx(len(base)) and table.loc["base", "ahead"] == 0
    assert table.loc["own", "ahead_95"] < 1e-6 < 50 < table.loc["own", "reward_95"]
    assert list(results.readable(table).columns[:3]) == ["reward", "regret", "ahead"]
    with pytest.raises(ValueError, match="baseline must be one of 'base', 'own'; got 'other'"):
        results.compare(runs, baseline="other")
    with pytest.raises(ValueError, match="run 'own' must have the seeds and steps of the baseline"):
        results.compare({**runs, "own": base[1:]}, baseline="base")


def test_table_for_people() -> None:
    table = results.compare({"hilofi": make_run(num_steps=4000), "one": make_run(1, 4000)})
    lines = results.readable(table).to_string().splitlines()
    assert " ".join(lines[0].split()) == "reward regret % of optimum s / 1,000 steps compile s rejected"
    assert lines[1].startswith("hilofi") and " ± " in lines[1] and ",0" in lines[1]
    assert f" {100 * table.loc['hilofi', 'optimum_share']:.1f} " in lines[1]
    assert " ± " not in lines[2]


def test_latex_of_any_text_and_number() -> None:
    table = pd.DataFrame({"a_b": ["100% & #1 ± $x^2~", "[0] {\\} | <y>"], "x": [1.5e-9, -np.inf]})
    lines = tables.latex(table).splitlines()
    assert lines[0] == r"\begin{tabular}{lr}" and lines[2] == r"a\_b & x \\"
    first = r"100\% \& \#1 $\pm$ \$x\textasciicircum{}2\textasciitilde{} & $1.5 \cdot 10^{-9}$ \\"
    second = r"{[}0{]} \{\textbackslash{}\} \textbar{} \textless{}y\textgreater{} & $-\infty$ \\"
    assert lines[4:6] == [first, second]


def test_cells_of_a_page_are_whole() -> None:
    text = pages.table(pd.DataFrame({"path": ["x" * 80], "seen": [0.123456789], "reward": ["1,234.5 ± 3.0"]}))
    assert f"<td>{'x' * 80}</td>" in text
    assert '<td class="number">0.123457</td>' in text
    assert '<td class="number">1,234.5 ± 3.0</td>' in text


def test_rolling_mean_against_a_loop() -> None:
    values = np.random.default_rng(0).random((2, 30))
    expected = [[row[t : t + 7].mean() for t in range(24)] for row in values]
    np.testing.assert_allclose(figures.rolling(values, 7), expected)
    np.testing.assert_allclose(figures.rolling(values, 50), values.mean(axis=1, keepdims=True))


def test_comparison_draws_what_the_runs_hold() -> None:
    runs = {"one": make_run(seed=1), "two": make_run(seed=2, num_steps=20)}
    figure = results.plot_comparison(runs)
    average, whole, regret, time = figure.axes
    for line, run in zip(regret.lines, runs.values(), strict=True):
        np.testing.assert_allclose(np.asarray(line.get_ydata()), run.regret.cumsum(axis=1, dtype=float).mean(axis=0))
    for axis in (average, regret):
        assert [line.get_label() for line in axis.lines][:2] == list(runs) and len(axis.collections) == 2
        assert axis.get_xlabel() == "step" and axis.get_ylabel()
    assert [label.get_text() for label in whole.get_yticklabels()] == list(runs) and whole.get_xlabel()
    assert time.get_xlabel().endswith("/ s")
    assert [text.get_text() for text in figure.legends[0].texts] == [*runs, "optimum"]
    assert pyplot.get_fignums() == []


def test_the_optimum_and_uniform_play_are_references() -> None:
    good, random = (make_run(seed=seed).replace(regret=np.full((3, 40), lost)) for seed, lost in ((1, 0.1), (2, 0.9)))
    good, random = (run.replace(rewards=1 - run.regret) for run in (good, random))
    average, whole, regret, time = figures.comparison({"linear": good, "random": random}).axes
    (best,) = (line for line in average.lines if line.get_label() == "optimum")
    np.testing.assert_allclose(np.asarray(best.get_ydata()), 1)
    (best,) = (line for line in whole.lines if line.get_label() == "optimum")
    np.testing.assert_allclose(np.asarray(best.get_xdata()), 1)
    assert regret.get_ylim() == time.get_ylim() and regret.get_ylim()[1] < 0.9 * 40  # random play leaves the panel
    unknown = {"linear": good.replace(regret=np.full((3, 40), np.nan))}
    figure = figures.comparison(unknown)
    assert "reward" in figure.axes[2].get_title(loc="left") and "reward" in figure.axes[3].get_title(loc="left")
    assert [text.get_text() for text in figure.legends[0].texts] == ["linear"]


@pytest.mark.parametrize(("count", "note"), [(1, "1 seed, no band"), (2, "too few for a band"), (3, "95% band")])
def test_fewer_than_three_seeds_have_no_band(count: int, note: str) -> None:
    figure = results.plot_comparison({"a": make_run(count)})
    average, whole, regret, time = figure.axes
    assert figure.get_suptitle().endswith(note)
    assert len(average.collections) == len(regret.collections) == (count == 3)
    for bars in (whole.collections[0], time.collections[0]):
        assert isinstance(bars, LineCollection)
        assert np.any(np.ptp(bars.get_segments()[0], axis=0) > 0) == (count == 3)


@pytest.mark.parametrize(("count", "length"), [(3, 4), (1, 60), (9, 25)])
def test_a_legend_stays_within_its_figure(count: int, length: int) -> None:
    """In as few rows as that allows: short names stand side by side."""
    figure = results.plot_comparison({f"{index}{'m' * length}": make_run() for index in range(count)})
    FigureCanvasAgg(figure).draw()
    legend = figure.legends[0]
    box = legend.get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.width
    rows = len({round(text.get_window_extent().y0) for text in legend.texts})
    assert rows == 1 if count * length < 30 else rows <= count


def test_bands_are_t_intervals() -> None:
    run = make_run(num_seeds=5)
    band = results.plot_comparison({"a": run}).axes[2].collections[0].get_paths()[0].vertices
    assert isinstance(band, np.ndarray)
    totals = run.regret.cumsum(axis=1, dtype=float)[:, -1]
    last = band[band[:, 0] == 40][:, 1]
    low, high = stats.t.interval(0.95, 4, loc=totals.mean(), scale=stats.sem(totals))
    np.testing.assert_allclose([last.min(), last.max()], [low, high])


def test_pictures_of_odd_runs(tmp_path: Path) -> None:
    short, blind = make_run(1, 1), make_run().replace(regret=np.full((3, 40), np.nan))
    odd = (short.plot(), blind.plot(), figures.regret({"x": blind}), classify.accuracy_figure({"x": short}))
    for number, figure in enumerate(odd):
        figure.savefig(tmp_path / f"{number}.png")
        assert (tmp_path / f"{number}.png").stat().st_size > 5000


def test_labels_do_not_overlap() -> None:
    values = np.array([5.0, 5.1, 5.2, 9.0, np.nan])
    places = figures._spread(values, 0.5)
    finite = np.sort(places[:4])
    assert (np.diff(finite) >= 0.5 - 1e-12).all()
    assert (np.argsort(places[:4]) == np.argsort(values[:4])).all() and np.isnan(places[4])
    np.testing.assert_allclose(places[:4], [4.6, 5.1, 5.6, 9.0])  # the crowd moves as little as it can, others stay


def test_the_length_of_results_and_logs_is_their_rows() -> None:
    run = make_run()
    steps = run.rewards.shape[1]
    assert len(run) == steps == sum(1 for _ in run) and (run == run) is True
    rows = np.arange(steps) % 3 == 1
    for at in (slice(2, 9), rows, np.flatnonzero(rows), list(range(3))):
        np.testing.assert_array_equal(run[at].rewards, run.rewards[:, at])
        assert len(run[at].elapsed) == len(run[at]) and run[at].seeds == run.seeds
    log = ope.make_log(action=rows * 1, reward=np.arange(steps), propensity=rows * 0.2 + 0.5, reward_parts={"a": rows})
    spread = ope.make_continuous_log(action=rows * 1.0, reward=np.arange(steps), density=rows + 1.0)
    for one in (log, spread):
        assert len(one) == steps == sum(1 for _ in one) and one[3].reward == [3] and len(one[:0]) == 0
        np.testing.assert_array_equal(one[rows].reward, np.flatnonzero(rows))
        with pytest.raises(IndexError):
            one[steps]
    assert log[rows].reward_parts is not None and log[rows].reward_parts["a"].all()
