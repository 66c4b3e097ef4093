"""`seqdec run optimizers`, from arguments to curves, table and pictures, on tasks that take no time; and the tasks."""

import re
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
from seqdec import models
from seqdec.cli import main


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
    task = Task("mnist", init, data, held_out, draw, loss, batch=16, steps=80, long_steps=200)
    monkeypatch.setitem(tasks._MAKERS, "mnist", lambda: task)
    return task


ARGUMENTS = ["run", "optimizers", "--tasks", "mnist", "--optimizers", "sgd,koala_plus_plus", "--rates", "3"]


def test_run_fills_the_folder_and_report_rebuilds_it(toy: Task, tmp_path: Path, capsys: Any) -> None:
    assert main([*ARGUMENTS, "--seeds", "2", "--seed", "4", "--out", str(tmp_path)]) == 0
    printed, err = capsys.readouterr()
    assert err == ""
    names = {"curves.parquet", "manifest.json", "summary.csv", "summary.md", "mnist.png"}
    assert {path.name for path in tmp_path.iterdir() if path.name != ".lock"} == names
    assert all(name in printed for name in ("adamw", "sgd", "koala_plus_plus", "ahead of AdamW"))

    curves = pd.read_parquet(tmp_path / "curves.parquet")
    assert len(curves) == 3 * (3 + 2) * 40
    assert set(curves[curves["sweep"]]["seed"]) == {6} and set(curves[~curves["sweep"]]["seed"]) == {4, 5}
    table = pd.read_csv(tmp_path / "summary.csv").set_index("optimizer")
    assert list(table.index) == ["adamw", "sgd", "koala_plus_plus"]
    assert table.loc["adamw", "ahead_steps"] == 0 and table.loc["adamw", "time_ratio"] == 1
    assert table.loc["koala_plus_plus", "state"] == pytest.approx((2 * 10 + 3 * 2 + 1 + 1) / 10)
    assert table.loc["koala_plus_plus", "state_bytes"] == 4 * (2 * 10 + 3 * 2 + 1 + 1)
    assert "state / kB" in printed
    for name, rows in curves.groupby("optimizer"):
        ends = {rate: run["loss"].to_numpy()[-4:].mean() for rate, run in rows[rows["sweep"]].groupby("rate")}
        assert min(ends, key=ends.__getitem__) == pytest.approx(table.loc[name, "best_rate"])
        reported = [run["loss"].to_numpy()[-4:].mean() for _, run in rows[~rows["sweep"]].groupby("seed")]
        assert np.mean(reported) == pytest.approx(table.loc[name, "loss"]) and np.mean(reported) < 0.5

    (tmp_path / "summary.md").unlink()
    assert main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() in printed
    assert (tmp_path / "summary.md").is_file()


def test_the_peak_of_the_rate_is_that_of_the_optimizer(toy: Task) -> None:
    """The compiled program multiplies updates by the peak; a run of optax's own loop with that rate ends alike."""
    import optax

    trial = optimizers._Trial(toy, optimizers.CONTENDERS["adamw"].make, 80, optimizers.Optimizers())
    frame = trial.run(0.02, 0.0, 3)
    transform = optax.adamw(optax.warmup_cosine_decay_schedule(0, 0.02, 8, 80, 0.002))
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


@pytest.mark.sampled(2)
@pytest.mark.parametrize("perplexity", [False, True])
def test_validation_chooses_by_held_out_data(
    toy: Task, perplexity: bool, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(tasks._MAKERS, "mnist", lambda: toy._replace(perplexity=perplexity))
    arguments = ["--validation", "--decays", "0,0.05", "--schedule", "steps", "--seeds", "2"]
    assert main([*ARGUMENTS, *arguments, "--out", str(tmp_path)]) == 0
    assert ("perplexity" if perplexity else "test accuracy") in capsys.readouterr().out
    curves = pd.read_parquet(tmp_path / "curves.parquet")
    assert len(curves) == 3 * (3 * 2 + 2) * 40 and curves["step"].max() == 200
    judged = curves[curves["judged"]]
    assert len(judged) == len(curves) / 4
    table = pd.read_csv(tmp_path / "summary.csv").set_index("optimizer")
    for name, rows in judged[judged["step"] == 200].groupby("optimizer"):
        sweep = rows[rows["sweep"]].set_index(["rate", "decay"])
        cost = sweep["test_loss"] if perplexity else 1 - sweep["test_accuracy"]
        assert (table.loc[name, "best_rate"], table.loc[name, "best_decay"]) == pytest.approx(cost.idxmin())
        reported = rows[~rows["sweep"]]
        assert table.loc[name, "perplexity"] == pytest.approx(np.exp(reported["test_loss"]).mean())
        assert table.loc[name, "test_accuracy"] == pytest.approx(reported["test_accuracy"].mean())
    assert table.loc["sgd", "ahead_accuracy"] == pytest.approx(
        table.loc["sgd", "test_accuracy"] - table.loc["adamw", "test_accuracy"]
    )


@pytest.mark.extended
def test_runs_of_the_sweep_can_be_shorter_than_the_reported(toy: Task, tmp_path: Path) -> None:
    """They are what runs of that many steps are, and choose the rate."""
    brief = [*ARGUMENTS, "--seeds", "1", "--seed", "2"]
    assert main([*brief, "--steps", "160", "--sweep-steps", "80", "--out", str(tmp_path / "both")]) == 0
    assert main([*brief, "--steps", "80", "--out", str(tmp_path / "short")]) == 0
    both, short = (pd.read_parquet(tmp_path / name / "curves.parquet") for name in ("both", "short"))
    columns = ["optimizer", "rate", "seed", "step", "loss", "best_rate"]
    pd.testing.assert_frame_equal(both.loc[both["sweep"], columns], short.loc[short["sweep"], columns])
    assert both.groupby("sweep")["step"].max().to_dict() == {True: 80, False: 160}
    assert (both["rate"] == both["best_rate"])[~both["sweep"]].all()


@pytest.mark.parametrize(
    ("schedule", "shares"),
    [("steps", {0.04: 0.8, 0.29: 1.0, 0.31: 0.1, 0.61: 0.01, 0.91: 0.001}), ("cosine", {0.05: 1.0, 0.525: 0.5, 1: 0})],
)
def test_schedules_of_whole_runs(schedule: str, shares: dict[float, float]) -> None:
    shape = optimizers._shape(optimizers.Optimizers(validation=True, schedule=schedule), 1000)
    for share, wanted in shares.items():
        assert float(shape(round(share * 1000))) == pytest.approx(wanted, abs=1e-6)


def test_weight_decay_shrinks_by_its_share(toy: Task) -> None:
    """With a rate of zero the parameters are multiplied by 1 - decay s(t) in each step."""
    trial = optimizers._Trial(toy, optimizers.CONTENDERS["sgd"].make, 80, optimizers.Optimizers())
    shape = optimizers._shape(optimizers.Optimizers(), 80)
    factor = np.prod([1 - 0.01 * float(shape(count)) for count in range(80)])
    params = jax.tree.map(lambda part: factor * part, toy.init(jax.random.key(3)))
    loss, _ = toy.loss(params, jax.tree.map(lambda part: part[0], toy.held_out))
    assert trial.run(0.0, 0.01, 3)["test_loss"].to_numpy()[-1] == pytest.approx(float(loss), rel=1e-5)


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
        (["--sweep-steps", "3"], "sweep_steps must be at least 40; got 3"),
        (["--decays", "0,1"], "decays must be at least 0 and below 1; got '0,1'"),
        (["--decays", "much"], "decays must be numbers, separated by commas; got 'much'"),
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
def test_text_task_predicts_the_next_character_without_seeing_it() -> None:
    task = tasks.make("text")
    batch = task.draw(jax.random.key(0), task.data, 2)
    assert batch.shape == (2, 65) and task.held_out.shape == (1, 125, 65)
    params = task.init(jax.random.key(1))
    assert 1.0e6 < sum(leaf.size for leaf in jax.tree.leaves(params)) < 3.0e6
    module = tasks.Transformer(int(max(task.data.max(), task.held_out.max())) + 1)
    tokens = batch[0, :-1]
    logits, later = (module.apply({"params": params}, t) for t in (tokens, tokens.at[40:].set((tokens[40:] + 1) % 20)))
    np.testing.assert_allclose(logits[:40], later[:40], atol=1e-4)
    assert np.max(np.abs(np.asarray(logits[40:]) - np.asarray(later[40:]))) > 1e-3


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


def test_the_page_names_all_settings_that_are_not_defaults():
    page = (Path(__file__).parents[2] / "docs" / "measurements" / "optimizers.md").read_text()
    rows = re.findall(r"^\| (`.*`) \| (.*) \|$", page, re.MULTILINE)
    shown = {name.strip("`"): text for names, text in rows for name in names.split(", ")}
    for name, contender in optimizers.CONTENDERS.items():
        assert shown[name] == (optimizers.preset(contender.make) or "defaults"), name
