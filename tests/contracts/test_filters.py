"""Every filter: the contract of `seqdec.testing`. Their mathematics are in `tests/test_filters.py` and others."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqdec import filters, likelihoods, testing
from seqdec.filters import Annealed, Numerics
from tests.toys import network_of

FILTERS = {
    "ekf": filters.ekf,
    "ekf, drifting": lambda *model: filters.ekf(*model, process_noise=Annealed(1e-3, 10.0)),
    "hilofi": lambda *model: filters.hilofi(*model, rank=7, process_noise_hidden=1e-3, process_noise_last=1e-3),
    "hilofi, by output": lambda *model: filters.hilofi(*model, rank=7, process_noise_last=1e-3, per_output=True),
    "lofi": lambda *model: filters.lofi(*model, rank=7, process_noise=1e-3),
    "lofi, spare": lambda *model: filters.lofi(*model, rank=7, spare=5),
    "lolofi": lambda *model: filters.lolofi(*model, rank_hidden=7, rank_last=9, process_noise_hidden=1e-3),
    "lrkf": lambda *model: filters.lrkf(*model, rank=9, process_noise=1e-3),
    "lrkf, observed outputs": lambda *model: filters.lrkf(
        *model, rank=9, process_noise=1e-3, numerics=Numerics(dtype=jnp.float32, share_linearization=False)
    ),
    "subspace": lambda *model: filters.subspace(*model, rank=9),
}


def test_every_filter_is_under_test():
    others = {"Annealed", "Numerics", "independent", "learner", "posterior"}
    assert {name.partition(",")[0] for name in FILTERS} == set(filters.__all__) - others


@pytest.mark.parametrize("name", FILTERS)
def test_contract(name):
    testing.check_filter(FILTERS[name])


INPUTS, OUTPUTS = 3, 2
SIZE = INPUTS * OUTPUTS
R = np.array([[0.5, 0.42], [0.42, 0.4]])  # a root of it is far from its transpose
NETWORK = network_of(lambda params, x: x @ params["w"])
EXACT: dict[str, dict[str, Any]] = {"ekf": {}, "lrkf": {"rank": SIZE}}


@pytest.mark.parametrize("name", EXACT)
def test_a_linear_model_with_correlated_noise_has_the_belief_of_kalman(name: str) -> None:
    draw = np.random.default_rng(0)
    xs, ys = draw.normal(size=(6, INPUTS)), draw.normal(size=(6, OUTPUTS))
    with jax.enable_x64(True):
        options = {"numerics": Numerics(dtype=jnp.float64), **EXACT[name]}
        flt = getattr(filters, name)(NETWORK, likelihoods.gaussian(jnp.asarray(R)), initial_std=0.7, **options)
        belief = flt.init(jax.random.key(0), {"w": jnp.zeros((INPUTS, OUTPUTS))})
        step = jax.jit(lambda belief, x, y: flt.update(flt.predict(belief), x, y)[0])
        mean, cov = np.zeros(SIZE), 0.49 * np.eye(SIZE)
        for x, y in zip(xs, ys, strict=True):
            belief = step(belief, x, y)
            h = np.kron(x, np.eye(OUTPUTS))
            gain = cov @ h.T @ np.linalg.inv(h @ cov @ h.T + R)
            mean, cov = mean + gain @ (y - h @ mean), cov - gain @ h @ cov
        np.testing.assert_allclose(np.ravel(flt.mean(belief)["w"]), mean, atol=1e-8)
        at = np.kron(xs[0], np.eye(OUTPUTS))
        found = flt.moments(belief, xs[0])
        np.testing.assert_allclose(found.cov, at @ cov @ at.T, atol=1e-8)
        np.testing.assert_allclose(found.noise, R, atol=1e-12)
