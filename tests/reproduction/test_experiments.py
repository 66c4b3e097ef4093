"""The experiments of the paper's figures: options, measures worked by hand, and files, on small data."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection

from reproduction import cifar, classify, images, in_between, nonstationary, outliers
from reproduction.data import load_snelson
from seqdec import cli, commands, figures, models
from seqdec.agents._neural.experience import Batch, Experience
from seqdec.commands import contenders, folder
from seqdec.commands.base import description
from seqdec.commands.digits import Digits
from seqdec.results import Run
from tests.test_results import make_run


def written(options: Any, runs: dict[str, Run], out: Path) -> str:
    """The report of runs that are saved as those of an experiment."""
    for name, run in runs.items():
        folder.save_run(out, name, run)
    folder.write_manifest(out, options, list(runs))
    return options.report(out)


PRESETS = [
    (name, flag)
    for name in commands.REGISTRY
    for flag in ("quick", "published")
    if hasattr(commands.REGISTRY[name], f"{flag}_options")
]


@pytest.mark.parametrize(("name", "flag"), PRESETS)
def test_a_preset_changes_defaults_only_and_the_help_says_which(name: str, flag: str) -> None:
    options: Any = commands.REGISTRY[name]
    changed, quick = getattr(options, f"{flag}_options"), options.quick_options
    assert changed and set(changed) <= {field.name for field in fields(options)}
    assert all(f"{key.replace('_', '-')} {value}" in description(options) for key, value in changed.items())
    assert cli._parse(["run", name]) == options()
    for flags, expected in (({f"--{flag}"}, changed), ({f"--{flag}", "--quick"}, {**changed, **quick})):
        parsed = cli._parse(["run", name, *flags])
        assert {key: getattr(parsed, key) for key in expected} == expected
    for key in changed:  # what is given counts, also where it is the default without the preset
        if isinstance(changed[key], bool):
            on, off = f"--{key.replace('_', '-')}", f"--no-{key.replace('_', '-')}"
            assert [getattr(cli._parse(["run", name, f"--{flag}", one]), key) for one in (on, off)] == [True, False]
            continue
        default = getattr(options(), key) or 12
        for value in {default, 12_345} if isinstance(default, int) else {default}:
            parsed = cli._parse(["run", name, f"--{flag}", f"--{key.replace('_', '-')}", str(value)])
            assert getattr(parsed, key) == value


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("image_home")
@pytest.mark.parametrize("name", ["mnist", "classify", "cifar"])
def test_published_agents_are_those_of_the_paper(name: str) -> None:
    chosen: Any = commands.REGISTRY[name]
    with pytest.raises(ValueError, match=f"no published settings in {name}; the paper has settings for "):
        chosen(agents="random.published").check()
    with pytest.raises(ValueError, match="no published settings in digits; use lrkf"):
        Digits(agents="lrkf.published").check()
    every = ",".join(f"{kind}.published" for kind in chosen.paper)
    team = chosen(agents=every).check().agents
    for kind, settings in chosen.paper.items():
        told = team[f"{kind}.published"].settings
        assert {key: told[key] for key in settings if key in told} == {
            key: settings[key] for key in settings if key in told
        }


def test_published_mnist_shows_the_images_of_the_paper(image_home: Path) -> None:
    options = images.MNIST(published=True, agents="lrkf,lrkf.published")
    assert float(options.check().env.observation_space.low.min()) < 0  # pyright: ignore[reportAttributeAccessIssue]
    ours, theirs = (agent.settings["process_noise"] for agent in options.check().agents.values())
    assert (ours, theirs) == (3e-4, 1e-6)


def test_names_of_agents() -> None:
    known = ("koala++", "hilofi", "lrkf", "adamw")
    assert contenders.split("hilofi", known) == ("hilofi", None, "", "")
    assert contenders.split("hilofi:20+greedy", known) == ("hilofi", 20, "greedy", "")
    assert contenders.split("koala+++greedy", known) == ("koala++", None, "greedy", "")
    assert contenders.split("lrkf:2.rehearsal", known) == ("lrkf", 2, "", "rehearsal")
    assert contenders.split("hilofi+ucb.published", known) == ("hilofi", None, "ucb", "published")
    for name in ("hilofi:many", "hilofi:", "adamw:5"):
        with pytest.raises(ValueError, match=r"rank is an integer after a colon, as in hilofi:20"):
            contenders.split(name, known)


def test_propensities_are_computed_for_logs_only() -> None:
    env = Digits().environment()
    key, image = jax.random.key(0), jnp.zeros(env.observation_space.shape)
    for name in ("linear+thompson", "linear+epsilon_greedy"):
        without, with_logs = (Digits(logs=logs).agent(name, env) for logs in (False, True))
        ours, theirs = (agent.act(key, agent.init(key), image) for agent in (without, with_logs))
        assert ours.value == theirs.value and 0 < theirs.propensity <= 1
        assert np.isnan(ours.propensity)


def test_an_agent_has_one_color_in_every_figure() -> None:
    alone, team = (
        figures.styles(["lrkf"])[0],
        figures.styles(["x", "hilofi", "lrkf:5", "hilofi+greedy", "y", "koala++"]),
    )
    assert team[2] == alone and team[1]["color"] == team[3]["color"] == figures.COLORS["hilofi"]
    assert team[1]["ls"] != team[3]["ls"] and team[5]["color"] == figures.COLORS["koala++"]
    assert figures.styles(["lrkf.rehearsal"])[0] == alone
    many = figures.styles([f"hilofi:{rank}" for rank in range(1, 13)])
    assert many[0] == figures.styles(["hilofi"])[0]
    assert len({(style["color"], str(style["ls"])) for style in many}) == 12
    assert len({style["color"] for style in team}) == 5  # other names take colors that are free


def test_bands_end_where_values_are_impossible() -> None:
    rewards = np.zeros((3, 40), np.float32)
    rewards[0] = 1
    run = make_run().replace(rewards=rewards, regret=1 - rewards)
    average, _, regret, _ = figures.comparison({"hilofi": run}).axes
    for axis, (low, high) in ((average, (0, 1)), (regret, (0, 40))):
        band = np.asarray(axis.collections[0].get_paths()[0].vertices)[:, 1]
        assert band.min() == pytest.approx(low) and low < band.max() <= high


def test_average_reward_since_the_start() -> None:
    run = make_run()
    line = images.average_figure({"hilofi": run}).axes[0].lines[0]
    expected = run.rewards.astype(float).mean(axis=0).cumsum() / np.arange(1, 41)
    np.testing.assert_allclose(np.asarray(line.get_ydata()), expected[20:])


def test_classify_expands_ranks_and_keeps_bounds_of_filters() -> None:
    options = classify.Classify(agents="hilofi.rehearsal,lrkf:7,lolofi+ucb,adamw", ranks="2,10", error_bounds=True)
    assert options.names() == [
        "hilofi:2.rehearsal", "hilofi:10.rehearsal", "lrkf:7", "lolofi:2+ucb", "lolofi:10+ucb", "adamw",
    ]  # fmt: skip
    assert (
        options.kept("hilofi:2.rehearsal") == options.kept("lrkf:7") == ("error_bound",) and options.kept("adamw") == ()
    )
    with pytest.raises(ValueError, match="agents must differ"):
        classify.Classify(agents="hilofi,hilofi:2", ranks="2").names()


def test_likelihoods_and_rehearsal_of_classifiers() -> None:
    options = classify.Classify(dataset="digits", agents="lrkf:2,lrkf:2.rehearsal,subspace:2,adamw")
    plain, rehearsed, logits, trained = options.check().agents.values()
    assert plain.settings["noise_variance"] == 0.01 and logits.settings["noise_variance"] == "likelihood"
    assert rehearsed.name == "lrkf:2.rehearsal" and "rehearsal" in rehearsed.settings
    assert trained.settings["policy"] == "greedy"
    with pytest.raises(ValueError, match="only filters can rehearse"):
        classify.Classify(dataset="digits", agents="adamw.rehearsal").check()


def test_classify_shows_ranks_and_bounds(tmp_path: Path) -> None:
    bounds = {name: np.abs(make_run(seed=i).rewards) for i, name in enumerate(classify._TERMS)}
    bounds["error_bound.coupling"] *= 0  # a filter with one block
    runs = {f"lrkf:{rank}": make_run(seed=rank).replace(diagnostics=bounds) for rank in (10, 2)}
    printed = written(classify.Classify(), {**runs, "adamw": make_run()}, tmp_path)
    recent = make_run().rewards[:, -6:].mean(dtype=float)
    assert "last 6 steps / %" in printed and f"{100 * recent:.1f} ± " in printed.splitlines()[-1]
    summary = pd.read_csv(tmp_path / "summary.csv", index_col="agent")
    assert summary.loc["adamw", "recent_accuracy"] == pytest.approx(recent)
    names = {path.name for path in tmp_path.glob("*.png")}
    assert names == {"accuracy.png", "comparison.png", "ranks.png", "bounds.png"}
    _, clock = classify.ranks_figure(runs).axes
    times = [runs[f"lrkf:{rank}"].run_seconds / 3 for rank in (2, 10)]
    np.testing.assert_allclose(np.asarray(clock.lines[0].get_xydata()), np.stack([[2, 10], times], axis=1))
    single = {name: make_run(num_seeds=1).replace(env=run.env) for name, run in runs.items()}
    for team, drawn in ((runs, True), (single, False)):  # no interval of one seed
        (bars,) = classify.ranks_figure(team).axes[0].collections
        assert isinstance(bars, LineCollection)
        assert any(np.ptp(segment[:, 1]) > 0 for segment in bars.get_segments()) == drawn
    assert len(classify.bounds_figure(runs).axes) == 3  # two terms that are not zero, and accuracy


def test_cross_entropy_of_the_rows_of_a_minibatch() -> None:
    net = models.Network(lambda key: jnp.zeros((2, 3)), lambda params, x: x @ params, lambda path: False)
    x, y, params = jnp.eye(2), jnp.eye(3)[:2], jnp.array([[1.0, 2.0, 0.0], [0.0, 0.0, 0.0]])
    batch = Batch(Experience(x, y, jnp.ones((2, 3), bool)), jnp.ones(2))
    loss, (means, _) = classify.cross_entropy(net).loss(params, (), batch, jnp.int32(2))
    expected = [np.log(1 + np.e + np.e**2) - 1, np.log(3)]
    assert float(loss) == pytest.approx(np.mean(expected), rel=1e-6)
    np.testing.assert_allclose(means[1], np.full(3, 1 / 3), rtol=1e-6)


def test_recovery_by_hand(tmp_path: Path) -> None:
    rewards = np.ones((2, 120), np.float32)
    rewards[0, 40:60] = 0  # one seed needs 20 steps, and 0 after the second change
    rewards[1, 80:] = 0  # the other recovers at once, and never
    run = make_run().replace(seeds=(5, 6), rewards=rewards, regret=1 - rewards, elapsed=np.arange(120.0))
    run = run.replace(actions=rewards, propensities=rewards, diagnostics={}, rejected=np.zeros(2, int))
    table = nonstationary.recovery({"hilofi": run}, 40)
    row = table.loc["hilofi"]
    assert row["before"] == 1 and row["after"] == pytest.approx((0.75 + 0.5) / 2)
    # Windows of two steps: 22 steps to a mean of 1, or 2 at once.
    assert row["recovered"] == pytest.approx(((22 + 2) / 2 + (2 + 40) / 2) / 2)
    printed = written(nonstationary.Nonstationary(period=40), {"hilofi": run}, tmp_path)
    assert "steps to recover" in printed and (tmp_path / "recovery.png").exists()
    with pytest.raises(ValueError, match="at least two periods"):
        nonstationary.Nonstationary(steps=100, period=60).check()


@pytest.mark.extended
def test_all_rewards_flipped_are_lost(tmp_path: Path, capsys: Any) -> None:
    arguments = ["--dataset", "digits", "--agents", "adamw", "--steps", "30", "--seeds", "2", "--share", "1"]
    assert cli.main(["run", "outliers", *arguments, "--out", str(tmp_path)]) == 0
    assert "with outliers" in capsys.readouterr().out
    runs = folder.load_runs(tmp_path)
    assert list(runs) == ["adamw.clean", "adamw"]
    np.testing.assert_array_equal(runs["adamw"].rewards, runs["adamw"].regret)  # the truth is the opposite
    np.testing.assert_array_equal(runs["adamw.clean"].rewards, 1 - runs["adamw.clean"].regret)
    row = pd.read_csv(tmp_path / "summary.csv", index_col="agent").loc["adamw"]
    lost = runs["adamw.clean"].rewards.sum(1) - (1 - runs["adamw"].rewards).sum(1)
    assert row["lost"] == pytest.approx(lost.mean()) and row["clean"] == runs["adamw.clean"].rewards.sum(1).mean()
    assert cli.main(["run", "outliers", *arguments[:-1], "2", "--out", str(tmp_path / "no")]) == 2


def test_an_interrupted_pair_is_compared_as_far_as_it_goes() -> None:
    whole, cut = make_run(seed=1), make_run(seed=2, num_steps=15)
    table = outliers.losses({"a.clean": whole, "a": cut, "b.clean": whole})
    assert list(table.index) == ["a"]
    lost = cut.regret.sum(1, dtype=float) - whole.regret[:, :15].sum(1, dtype=float)
    assert table.loc["a", "lost"] == pytest.approx(lost.mean())


@pytest.mark.parametrize(("name", "millions"), [("vgg", 1.672522), ("vgg-block", 4.688202)])
def test_sizes_of_the_networks(name: str, millions: float) -> None:
    image = jax.ShapeDtypeStruct((32, 32, 3), jnp.float32)
    shapes = jax.eval_shape(cifar.NETWORKS[name].init, jax.random.key(0), image)
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == round(1e6 * millions)


def test_cifar_takes_every_image_once_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (12, 32, 32, 3), np.uint8), np.arange(12) % 10
    (tmp_path / "cifar10").mkdir()
    np.savez(tmp_path / "cifar10" / "train_first4000.npz", x=images, y=labels)
    monkeypatch.setenv("SEQDEC_DATA", str(tmp_path))
    monkeypatch.setitem(cifar.NETWORKS, "vgg", models.MLP(10, (2,)))
    plan = cifar.CIFAR(agents="lrkf:2,adamw").check()
    assert plan.steps == 12 and plan.agents["lrkf:2"].settings["rank"] == 2
    assert plan.agents["adamw"].settings["policy"] == "greedy"
    np.testing.assert_array_equal(plan.env.params.images, images)
    np.testing.assert_array_equal(plan.env.params.labels, labels)
    with pytest.raises(ValueError, match="did you mean 'vgg'"):
        cifar.CIFAR(network="vg").check()


def test_noise_of_a_smooth_function() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 6, 4000)
    x = x[(x < 2) | (x > 4)]
    y = np.sin(2 * x) + np.where(x > 4, 5, 0) + rng.normal(0, 0.3, len(x))
    assert in_between.rice(x, y) == pytest.approx(0.09, rel=0.1)


def test_snelson_is_cut_into_parts_that_do_not_overlap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = np.linspace(0, 6, 200), np.arange(200.0)
    monkeypatch.setenv("SEQDEC_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="train_inputs and train_outputs"):
        load_snelson()
    (tmp_path / "snelson").mkdir()
    for name, part in (("train_inputs", x), ("train_outputs", y)):
        np.savetxt(tmp_path / "snelson" / name, part)
    data = in_between._snelson(0)
    parts = [data.y, data.held_out[1], data.gap[1]]
    assert sorted(np.concatenate(parts)) == list(range(200)) and len(data.y) == 120
    assert data.gap[0].min() > 2.4 and data.gap[0].max() < 3.7
    assert not np.array_equal(data.x, in_between._snelson(1).x)
    np.savez(tmp_path / "snelson" / "snelson.npz", x_train=x, y_train=y)
    for name in ("train_inputs", "train_outputs"):
        (tmp_path / "snelson" / name).unlink()
    np.testing.assert_array_equal(load_snelson()[0], x)


def test_measures_of_bands_by_hand() -> None:
    """Data on [0, 3], deviation 0.1 there, 1 in the gap, and x elsewhere; R = 0.03, so a band of 0.39 at the data."""
    places = {"data": [0.0, 3.0], "held out": [1.0, 2.0], "gap": [1.4, 1.6], "grid": np.linspace(-3, 6, 10)}
    parts = [pd.DataFrame({"where": where, "x": x}) for where, x in places.items()]
    bands = pd.concat(parts, ignore_index=True).assign(data="d", filter="f", seed=0, observations=120, epochs=1)
    bands["std"] = np.where(bands["where"] == "gap", 1.0, np.where(bands["where"] == "grid", np.abs(bands["x"]), 0.1))
    bands = bands.assign(mean=0.0, noise=0.03, y=[0.0, 0.0, 0.38, 0.4, 3.0, -1.0, *[np.nan] * 10])
    row = in_between.summarize(bands).loc[("d", "f")]
    assert (row["at_data"], row["in_gap"], row["outside"]) == pytest.approx((0.1, 1.0, 1.0))
    assert (row["gap_ratio"], row["outside_ratio"]) == pytest.approx((10.0, 10.0))
    assert (row["coverage"], row["gap_coverage"]) == (0.5, 0.5)
    assert row["rmse"] == pytest.approx(np.sqrt((0.38**2 + 0.4**2) / 2))


def test_in_between_from_options_to_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    small = models.network(models.MLP(1, (6,)), jnp.zeros(1))
    monkeypatch.setattr(in_between, "network", lambda published: small)
    monkeypatch.setattr(in_between, "plain", lambda: small)
    monkeypatch.setattr(in_between, "_EPOCHS", (1, 3000))
    filters = "hilofi:2,lrkf:2.published,vbll.published"
    arguments = ["--data", "clusters", "--filters", filters, "--seeds", "2"]
    assert cli.main(["run", "in-between", *arguments, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "gap / data" in printed
    bands = pd.read_parquet(tmp_path / "bands.parquet")
    assert np.isfinite(bands[["mean", "std"]]).all(axis=None) and set(bands["observations"]) == {10, 30, 120}
    assert set(bands["seed"]) == {0, 1}
    grid = bands[bands["where"] == "grid"]
    filtered: Any = grid[grid["filter"] != "vbll.published"]
    early, late = (filtered.loc[filtered["observations"] == count, "std"].mean() for count in (10, 120))
    assert early > late
    trained = bands[(bands["filter"] == "vbll.published") & (bands["where"] == "data")]
    assert set(trained["observations"]) == {120} and set(trained["epochs"]) == {1, 3000}
    first, last = (part for _, part in trained.groupby("epochs"))
    assert np.mean((last["mean"] - last["y"]) ** 2) < 0.9 * np.mean((first["mean"] - first["y"]) ** 2)
    assert {path.name for path in tmp_path.glob("*.png")} == {
        "clusters-hilofi.png", "clusters-lrkf.png", "clusters-vbll.png", "deviation.png",
    }  # fmt: skip
    assert cli.main(["report", str(tmp_path)]) == 0
    reported = capsys.readouterr().out.strip()
    assert "gap / data" in reported and printed.strip().startswith(reported)


@pytest.mark.parametrize(
    "options",
    [
        {"filters": "hilofi"},
        {"filters": "vbll:5"},
        {"filters": "vbll+greedy"},
        {"filters": "adamw:5"},
        {"data": "snelsn"},
    ],
)
def test_in_between_refuses(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"rank|did you mean"):
        in_between.InBetween(**{"data": "clusters", **options}).check()
