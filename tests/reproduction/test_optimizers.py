"""`seqdec run optimizers`, from arguments to curves, table and pictures, on tasks that take no time; and the tasks."""

import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pooch
import pytest

from reproduction import optimizers, tasks
from reproduction.data import load_cifar10
from reproduction.tasks import Task
from seqdec import models, optim
from seqdec.cli import main
from seqdec.persistence import write_table


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Task:
    """Softmax regression on separable points, in the place of MNIST."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 4)).astype(np.float32)
    data = (jnp.asarray(x), jnp.asarray((x[:, 0] > 0).astype(np.int32)))

    def loss(params, batch):
        return tasks._cross_entropy(batch[0] @ params["hidden"] + params["bias"], batch[1])

    def draw(key, data, size):
        rows = jax.random.randint(key, (size,), 0, len(data[1]))
        return data[0][rows], data[1][rows]

    def init(key):
        return {"hidden": 0.1 * jax.random.normal(key, (4, 2)), "bias": jnp.zeros(2)}

    held_out = jax.tree.map(lambda part: part.reshape(2, 100, *part.shape[1:]), data)
    task = Task("mnist", init, data, held_out, draw, loss, batch=16, steps=80)
    monkeypatch.setitem(tasks._MAKERS, "mnist", lambda: task)
    return task


ARGUMENTS = ["run", "optimizers", "--tasks", "mnist", "--optimizers", "sgd,koala_plus_plus"]


def test_run_fills_the_folder_and_report_rebuilds_it(toy: Task, tmp_path: Path, capsys: Any) -> None:
    assert main([*ARGUMENTS, "--seeds", "2", "--seed", "4", "--out", str(tmp_path)]) == 0
    printed, err = capsys.readouterr()
    assert err == ""
    names = {"curves.parquet", "manifest.json", "summary.csv", "summary.md", "claims.csv", "mnist.png"}
    assert {path.name for path in tmp_path.iterdir() if path.name != ".lock"} == names
    assert all(name in printed for name in ("adamw", "sgd", "koala_plus_plus", "ahead of AdamW"))

    curves = pd.read_parquet(tmp_path / "curves.parquet")
    assert set(curves[curves["sweep"]]["seed"]) == {6} and set(curves[~curves["sweep"]]["seed"]) == {4, 5}
    assert curves["judged"].mean() == 0.25
    table = pd.read_csv(tmp_path / "summary.csv").set_index("optimizer")
    assert list(table.index) == ["adamw", "sgd", "koala_plus_plus"]
    assert table.loc["adamw", "ahead_accuracy"] == 0 and table.loc["adamw", "time_ratio"] == 1
    assert table.loc["adamw", "steps_to_adamw"] <= 1
    assert table.loc["koala_plus_plus", "state"] == pytest.approx((2 * 10 + 3 * 2 + 1 + 1) / 10)
    assert table.loc["koala_plus_plus", "state_bytes"] == 4 * (2 * 10 + 3 * 2 + 1 + 1)
    assert "state / kB" in printed
    for name, rows in curves[curves["step"] == 80].groupby("optimizer"):
        searched, reported = rows[rows["sweep"]], rows[~rows["sweep"]]
        own = table.loc[name]
        assert len(searched) == own["searched"] and searched["share"].nunique() >= 3
        chosen = searched[np.isclose(searched["rate"], own["rate"]) & np.isclose(searched["share"], own["share"])]
        assert chosen["choice_accuracy"].max() == searched["choice_accuracy"].max()
        assert reported["test_accuracy"].mean() == pytest.approx(own["test_accuracy"]) and own["loss"] < 0.5

    (tmp_path / "summary.md").unlink()
    assert main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() in printed
    assert (tmp_path / "summary.md").is_file()
    write_table(tmp_path / "curves.parquet", curves.drop(columns="share"))
    assert main(["report", str(tmp_path)]) == 1 and "run the experiment again" in capsys.readouterr().err


def test_the_peak_of_the_rate_is_that_of_the_optimizer(toy: Task) -> None:
    """The compiled program multiplies updates by the peak; a run of optax's own loop with that rate ends alike."""
    import optax

    trial = optimizers._Trial(toy, optimizers.CONTENDERS["adamw"].make, optimizers.Optimizers())
    frame = trial.run(0.02, 0.5, 3)
    rates = {"matrix": 0.02, "vector": 0.01, "head": 0.01}
    transform = optax.partition(
        {name: optax.adam(optax.warmup_cosine_decay_schedule(0, rate, 4, 80, 0.0)) for name, rate in rates.items()},
        optim.partition(toy.init(jax.random.key(0))),
    )
    params = toy.init(jax.random.key(3))
    state = transform.init(params)

    @jax.jit
    def step(params, state, count):
        batch = toy.draw(jax.random.fold_in(jax.random.key(3), count), toy.data, 16)
        (loss, _), gradients = jax.value_and_grad(toy.loss, has_aux=True)(params, batch)
        updates, state = transform.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    losses = []
    for count in range(80):
        params, state, loss = step(params, state, count)
        losses.append(float(loss))
    np.testing.assert_allclose(frame["loss"], np.reshape(losses, (40, 2)).mean(1), rtol=1e-4)
    assert list(frame["step"]) == list(range(2, 81, 2))


def test_runs_are_chosen_and_judged_by_different_halves(toy: Task, tmp_path: Path) -> None:
    """The second half has other labels, so that a search by it would prefer steps upwards."""
    x, y = toy.held_out
    task = toy._replace(held_out=(x, y.at[1].set(1 - y[1])))
    trial = optimizers._Trial(task, optimizers.CONTENDERS["sgd"].make, optimizers.Optimizers())
    ends = {rate: trial.run(rate, 1.0, 0).iloc[-1] for rate in (0.1, -0.1)}
    assert ends[0.1]["test_accuracy"] < 0.2 < 0.8 < ends[-0.1]["test_accuracy"]
    for perplexity in (False, True):
        costs = {rate: optimizers.cost_of(end.to_frame().T, perplexity) for rate, end in ends.items()}
        assert costs[0.1] < costs[-0.1]


@pytest.mark.parametrize("least", [-4, -1, 0, 2, 4])
def test_a_search_ends_where_both_neighbors_are_worse(least: int) -> None:
    """The minimum, in halves of a decade from the middle, is found, with a wall of NaN above."""
    tried: list[float] = []

    def cost(rate: float) -> float:
        tried.append(rate)
        place = 2 * np.log10(rate / 0.3)
        return abs(place - least) if place < 5.5 else np.nan

    best, value = optimizers.lowest(cost, 0.3)
    assert best == pytest.approx(0.3 * 10 ** (least / 2)) and value == pytest.approx(0, abs=1e-9)
    assert len(tried) == len(set(tried)) <= 7 and min(tried) < best < max(tried)


def test_the_schedule_of_a_run() -> None:
    shape = optimizers._shape(1000)
    for share, wanted in {0.025: 0.5, 0.05: 1.0, 0.525: 0.5, 1: 0}.items():
        assert float(shape(round(share * 1000))) == pytest.approx(wanted, abs=1e-6)


def test_verdicts_follow_from_paired_intervals() -> None:
    """Seeds differ by far more than optimizers do; losses are judged with the other sign than accuracies."""
    gains = {
        "alice": [0.3, 0.31, 0.32],
        "racs": [-0.3, -0.31, -0.32],
        "adamw": [0.0, 0.0, 0.0],
        "fira": [0.9, 0.3, -0.5],
    }
    common = {"sweep": False, "step": 40}
    rows = [
        {"task": task, "optimizer": name, "seed": seed, "perplexity": task == "text", **common}
        | {"test_loss": 9 * seed - gain, "test_accuracy": 0.1 * seed + gain / 100}
        for task in ("text", "mnist")
        for name, own in gains.items()
        for seed, gain in enumerate(own)
    ]
    table = optimizers.claims(pd.DataFrame(rows)).set_index(["better", "worse", "task"])
    for task in ("text", "mnist"):
        found = {pair: table.loc[(*pair, task), "verdict"] for pair in (("alice", "adamw"), ("racs", "adamw"))}
        assert found == {("alice", "adamw"): "seen", ("racs", "adamw"): "not seen"}
        assert table.loc[("alice", "fira", task), "verdict"] == "open"
        assert table.loc[("alice", "adamw", task), "gain"] == pytest.approx(0.31)
    assert len(table) == 6


def test_steps_to_a_loss_are_interpolated() -> None:
    def mean(losses: list[float]) -> pd.DataFrame:
        rows = {"step": [10, 20, 30, 40], "test_loss": losses, "judged": True}
        return pd.concat([pd.DataFrame(rows | {"seed": seed}) for seed in (0, 1)])

    base = mean([4.0, 3.0, 2.0, 1.0])
    assert optimizers._share_to(base, base) == 1
    assert optimizers._share_to(mean([3.0, 1.5, 0.5, 0.5]), base) == pytest.approx(0.625)
    assert optimizers._share_to(mean([0.5, 0.4, 2.0, 2.0]), base) == 0.25
    assert np.isnan(optimizers._share_to(mean([3.0, 2.0, 1.5, 1.2]), base))


def test_a_shift_moves_the_rates(toy: Task, tmp_path: Path) -> None:
    arguments = [*ARGUMENTS, "--no-search", "--shift", "0.25", "--seeds", "1", "--out", str(tmp_path)]
    assert main(arguments) == 0
    rates = pd.read_csv(tmp_path / "summary.csv").set_index("optimizer")["rate"]
    assert rates["sgd"] == pytest.approx(optimizers.CONTENDERS["sgd"].rate * 10**0.25)


def test_weight_decay_shrinks_by_its_share(toy: Task) -> None:
    """With a rate of zero the parameters are multiplied by 1 - decay s(t) in each step."""
    trial = optimizers._Trial(toy, optimizers.CONTENDERS["sgd"].make, optimizers.Optimizers(decay=0.01))
    shape = optimizers._shape(80)
    factor = np.prod([1 - 0.01 * float(shape(count)) for count in range(80)])
    params = jax.tree.map(lambda part: factor * part, toy.init(jax.random.key(3)))
    loss, _ = toy.loss(params, jax.tree.map(lambda part: part[1], toy.held_out))
    assert trial.run(0.0, 1.0, 3)["test_loss"].to_numpy()[-1] == pytest.approx(float(loss), rel=1e-5)


def test_ctrl_c_keeps_the_optimizers_that_are_done(
    toy: Task, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, calls = optimizers._contest, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return run(*arguments)

    monkeypatch.setattr(optimizers, "_contest", interrupted)
    assert main([*ARGUMENTS, "--seeds", "2", "--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err == "seqdec: interrupted\n"
    assert set(pd.read_parquet(tmp_path / "curves.parquet")["optimizer"]) == {"adamw"}
    assert (tmp_path / "mnist.png").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--optimizers", "adamw,adamw"], "optimizers must differ from each other; got 'adamw,adamw'"),
        (["--steps", "3"], "steps must be at least 40; got 3"),
        (["--decay", "1"], "decay must be at least 0 and below 1; got 1.0"),
        (["--shift", "0.5"], "shift must be at least 0 and below the step of the grids, 0.5; got 0.5"),
    ],
)
def test_impossible_options(arguments: list[str], message: str, tmp_path: Path, capsys: Any) -> None:
    assert main(["run", "optimizers", *arguments, "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def write_binary(folder: Path, records: int = 3) -> np.ndarray:
    """The files of the binary version, small; -> all images, (6 * records, 32, 32, 3)."""
    folder.mkdir(parents=True)
    images = np.random.default_rng(0).integers(0, 256, (6, records, 32, 32, 3), np.uint8)
    labels = np.arange(records, dtype=np.uint8)[:, None]
    for name, own in zip((*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"), images, strict=True):
        content = np.concatenate([labels, own.transpose(0, 3, 1, 2).reshape(records, -1)], 1)
        (folder / f"{name}.bin").write_bytes(content.tobytes())
    return images.reshape(-1, 32, 32, 3)


def test_cifar_in_its_binary_version_and_as_an_excerpt(tmp_path: Path) -> None:
    whole = write_binary(tmp_path / "cifar-10-batches-bin")
    data = load_cifar10(tmp_path)
    np.testing.assert_array_equal(np.concatenate([data.train.images, data.test.images]), whole)
    np.testing.assert_array_equal(data.test.labels, [0, 1, 2])
    excerpt = tmp_path / "excerpt"
    excerpt.mkdir()
    with pytest.raises(FileNotFoundError, match="has no CIFAR-10"):
        load_cifar10(excerpt)
    np.savez(excerpt / "train_first4000.npz", x=whole[:8], y=np.arange(8))
    data = load_cifar10(excerpt)
    np.testing.assert_array_equal(data.train.images, whole[:6])
    np.testing.assert_array_equal(data.test.labels, [6, 7])
    np.savez(excerpt / "train_first4000.npz", x=whole[:8, ..., 0], y=np.arange(8))
    with pytest.raises(ValueError, match=r"x must be uint8 \(n, 32, 32, 3\)"):
        load_cifar10(excerpt)


def test_cifar_is_downloaded_or_says_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEQDEC_DATA", raising=False)
    write_binary(tmp_path / "source")

    def fetch(url, known_hash, fname, path, processor, downloader):
        assert url.endswith("cifar-10-binary.tar.gz") and known_hash.startswith("sha256:")
        assert isinstance(processor, pooch.Untar)
        shutil.copytree(tmp_path / "source", path / "cifar-10-batches-bin")

    monkeypatch.setattr("pooch.os_cache", lambda name: tmp_path / "cache" / name)
    monkeypatch.setattr("pooch.retrieve", fetch)
    assert len(load_cifar10().train.labels) == 15

    def refuse(*arguments, **options):
        raise OSError("no network")

    monkeypatch.setattr("pooch.retrieve", refuse)
    with pytest.raises(FileNotFoundError, match=r"no network.*SEQDEC_DATA"):
        load_cifar10()


@pytest.mark.extended
@pytest.mark.parametrize("name", ["text", "scanned", "lstm"])
def test_networks_predict_the_next_character_without_seeing_it(name: str) -> None:
    task = tasks.make(name)
    batch = task.draw(jax.random.key(0), task.data, 2)
    assert batch.shape == (2, 65) and task.held_out.shape == (2, 125, 65)
    params = task.init(jax.random.key(1))
    first = batch[:1]
    later = first.at[:, 41:].set((first[:, 41:] + 1) % 20)

    def losses(windows):
        """Of the first 40 characters, whose logits see no later one."""
        return task.loss(params, windows[:, :41])[0]

    np.testing.assert_allclose(losses(first), losses(later), rtol=1e-6)
    assert abs(task.loss(params, first)[0] - task.loss(params, later)[0]) > 1e-3


def test_a_stacked_transformer_is_the_same_function() -> None:
    plain, stacked = (tasks.Transformer(11, 16, 2, 2, 8, scanned) for scanned in (False, True))
    tokens = jnp.arange(8)
    params = plain.init(jax.random.key(0), tokens)["params"]
    layers = [params.pop(f"layer_{index}") for index in range(2)]
    together = params | {"layers": jax.tree.map(lambda *own: jnp.stack(own), *layers)}
    single = params | {f"layer_{index}": layer for index, layer in enumerate(layers)}
    wanted, found = plain.apply({"params": single}, tokens), stacked.apply({"params": together}, tokens)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("size", "stride"), [(3, 1), (3, 2), (1, 2)])
def test_patch_convolutions_are_convolutions(size: int, stride: int) -> None:
    image = jnp.asarray(np.random.default_rng(2).normal(size=(8, 8, 3)), jnp.float32)
    module = models.PatchConv(4, size, stride, size // 2)
    params = module.init(jax.random.key(0), image)["params"]
    kernel = params["kernel"]["kernel"].reshape(size, size, 3, 4)
    padding = [(size // 2, size // 2)] * 2
    wanted = jax.lax.conv_general_dilated(
        image[None], kernel, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )[0]
    np.testing.assert_allclose(module.apply({"params": params}, image), wanted, rtol=1e-4, atol=1e-5)
