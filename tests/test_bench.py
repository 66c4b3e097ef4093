"""The bench: its boxes are the same filters, its options are checked, and its table says what it should."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from seqdec import likelihoods, models
from seqdec import params as parameters
from seqdec.cli import main
from seqdec.commands import bench
from seqdec.filters import reference

NAMES = ("lrkf", "lolofi", "hilofi")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("q", [0.0, 1e-6])
@pytest.mark.parametrize("name", NAMES)
def test_a_thousand_steps_take_the_actions_of_the_boxes(name: str, q: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float64 every action is the same, and at the end the means agree to 1e-9 and the moments to 1e-7."""
    monkeypatch.setattr(bench, "_Q", q)
    monkeypatch.setattr(parameters, "_LARGE", 50)  # so that there are large leaves and small ones
    with jax.enable_x64(True):
        network = models.network(models.MLP(5, (12, 9)), jnp.zeros(8))
        likelihood = likelihoods.gaussian(bench._NOISE)
        prior: dict[str, Any] = {"rank": 10, "rank_last": 20, "dtype": jnp.float64}
        ours = bench.make(name, network, **prior)
        printed = reference.make(name, network, likelihood, std=bench._STD, q=q, **prior)
        inputs = jnp.asarray(np.random.default_rng(0).normal(size=(1000, 8)))
        keys = jax.random.split(jax.random.key(1), 1000)
        start = jax.random.key(2), network.init(jax.random.key(0))
        ends, actions = zip(
            *(
                jax.jit(lambda b, flt=flt: jax.lax.scan(bench.bandit_step(flt), b, (inputs, keys)))(flt.init(*start))
                for flt in (ours, printed)
            ),
            strict=True,
        )
        np.testing.assert_array_equal(*actions)
        assert len(set(actions[0].tolist())) == 5
        means = [parameters.ravel(jax.tree.leaves(belief.params)) for belief in ends]
        assert np.max(np.abs(means[0] - means[1])) <= 1e-9 * np.max(np.abs(means[1]))
        moments = [flt.moments(belief, inputs[0]) for flt, belief in zip((ours, printed), ends, strict=True)]
        np.testing.assert_allclose(moments[0].cov, moments[1].cov, rtol=1e-7, atol=1e-12)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NAMES)
def test_acting_and_updating_read_the_basis_as_often_as_updating_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both share one linearization, and one product with the basis serves all arms."""
    monkeypatch.setattr(parameters, "_LARGE", 500)  # so that both hidden kernels are large
    network = models.network(models.MLP(10, (40, 30)), jnp.zeros(50))
    flt = bench.make(name, network, 10, 20)
    belief = flt.init(jax.random.key(0), network.init(jax.random.key(1)))
    columns = belief.blocks[0].factor.basis[0].columns.shape[1]
    # x^T B of either kernel, and the step of either's mean.
    results = [(40 * columns,), (1, 40 * columns), (30 * columns,), (1, 30 * columns), (2000, 1), (1200, 1)]
    shapes = {",".join(map(str, shape)) for shape in results}

    def passes(function: Callable[..., Any]) -> int:
        text = jax.jit(function).lower(belief, jnp.ones(50), jax.random.key(2)).compile().as_text()
        return sum(shape in shapes for shape in re.findall(r"f32\[([\d,]+)\]\S* dot\(", text))

    def act_and_update(belief, x, key):
        return bench.bandit_step(flt)(belief, (x, key))

    def update(belief, x, key):
        return flt.update(flt.predict(belief), x, jnp.ones(()), jnp.int32(0))

    assert passes(act_and_update) == passes(update) == 4


@pytest.mark.extended
def test_the_command_fills_the_folder(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_LONG", 0.0)
    monkeypatch.setattr(bench, "copy_bandwidth", lambda: 1e10)
    sizes = ["--sizes", "3000", "6000", "9000", "--ranks", "3"]
    assert main(["bench", "filters", *sizes, "--repeats", "1", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    table = pd.read_parquet(tmp_path / "filters.parquet")
    assert list(table.columns) == list(bench.COLUMNS)
    assert len(table) == 9
    assert set(table["filter"]) == set(NAMES)
    assert np.all(table["D"].to_numpy() <= np.repeat([3000, 6000, 9000], 3))
    numbers = table.select_dtypes("number").drop(columns=["ms_products", "ms_rest"])  # differences of noisy times
    assert np.all(np.isfinite(numbers) & (numbers > 0))
    np.testing.assert_allclose(table["ms_jacobian"] + table["ms_products"] + table["ms_rest"], table["ms"])
    np.testing.assert_allclose(table["ratio"], table["ms_boxes"] / table["ms"])
    assert "lrkf, d = 3: time grows as D^" in shown
    assert (tmp_path / "filters.md").read_text() in shown
    assert (tmp_path / "filters.png").stat().st_size > 10_000


def test_lenet5_without_boxes() -> None:
    work = bench.workload(0, 10)
    assert work.size == 43_902
    assert work.inputs.shape[1:] == (28, 28)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--filters", "lrkf,ekf"], "unknown filter 'ekf': "),
        (["--filters", "lrkf,lrkf"], "filters must differ from each other; got 'lrkf,lrkf'"),
        (["--sizes", "100"], "sizes must be one or more numbers of at least 1035; got (100,)"),
        (["--ranks", "0"], "ranks must be one or more numbers of at least 1; got (0,)"),
    ],
)
def test_impossible_options(arguments: list[str], message: str, tmp_path: Path, capsys: Any) -> None:
    assert main(["bench", "filters", *arguments, "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
