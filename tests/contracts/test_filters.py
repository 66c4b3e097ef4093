"""What every filter that keeps enough of its covariance must do: agree with the Kalman filter of a linear model."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqdec import filters, likelihoods
from seqdec.filters import Numerics
from tests.toys import network_of

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
