"""The regression of logarithms that the default agent has for counts, costs and revenue."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqdec.agents.regression import conjugate, logs
from tests.test_auto import PHI, PLAYED, F, N, T, double_precision

AMOUNTS = np.exp(2 * np.random.default_rng(1).normal(size=T))
assert double_precision


OBSERVED = jnp.asarray(np.eye(N)[PLAYED] > 0)


def from_rows(amounts):
    y = jnp.where(OBSERVED, jnp.asarray(amounts)[:, None], 0)
    scaled = logs.prior(N, F).rescaled(y, OBSERVED)
    sums = conjugate.no_rows(scaled.weights).added(jnp.asarray(PHI), scaled.target(y), OBSERVED.astype(float))
    return scaled.recomputed(sums)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_logarithms_are_taken_from_the_end_of_the_shorter_side(double_precision, sign):
    belief = from_rows(sign * AMOUNTS)
    distance = AMOUNTS - AMOUNTS.min()
    shift = 0.1 * distance.mean()
    u = np.log(distance + shift)
    found = [belief.scale.end, belief.scale.sign, belief.scale.shift, belief.scale.unit]
    np.testing.assert_allclose(found, [sign * AMOUNTS.min(), sign, shift, np.exp(u.mean())])
    at = belief.answer(jnp.asarray(PHI[0]), jnp.zeros((N, F)))
    for j in range(N):
        rows, own = PHI[j == PLAYED], (u - u.mean())[j == PLAYED]
        cov = np.linalg.inv(np.eye(F) + rows.T @ rows)
        mean = cov @ rows.T @ own
        amount = np.exp(u.mean() + mean @ PHI[0])
        np.testing.assert_allclose(belief.weights[j], mean, rtol=1e-8)
        np.testing.assert_allclose(belief.regression.noise.squares[j], own @ own - mean @ (rows.T @ own), rtol=1e-8)
        np.testing.assert_allclose(at.mean[j], sign * (AMOUNTS.min() + amount - shift), rtol=1e-8)


def test_learning_one_by_one_in_a_known_scale_is_recomputing(double_precision):
    whole = from_rows(AMOUNTS)
    belief = logs.prior(N, F)._replace(scale=whole.scale)
    learn = jax.jit(lambda belief, *at: conjugate.learned(belief, *at, jnp.zeros((N, F)), jnp.bool_(True))[0])
    for phi, y, j in zip(jnp.asarray(PHI), jnp.asarray(AMOUNTS), jnp.asarray(PLAYED), strict=True):
        belief = learn(belief, phi, y[None], j[None])
    np.testing.assert_allclose(belief.weights, whole.weights, rtol=1e-8)
    np.testing.assert_allclose(belief.regression.noise.squares, whole.regression.noise.squares, rtol=1e-8)
    np.testing.assert_allclose(belief.regression.noise.counts, whole.regression.noise.counts)
    np.testing.assert_allclose(belief.seen, np.sum(AMOUNTS - AMOUNTS.min() + whole.scale.shift))


def test_moments_are_those_of_the_draws(double_precision):
    belief = from_rows(AMOUNTS)
    belief = belief._replace(noise=belief.noise._replace(squares=jnp.ones(N), counts=jnp.ones(N)))
    location, mu, phi = jnp.asarray(0.0), jnp.zeros_like(belief.weights), jnp.asarray(PHI[0])
    normal = jax.random.normal(jax.random.key(0), (4000, N, F))
    drawn = jax.vmap(lambda numbers: belief.responses(belief.drawn(numbers, mu), phi, location))(normal)
    at = belief.answer(phi, mu)
    np.testing.assert_allclose(drawn.mean(0), at.mean, atol=4 * np.sqrt(at.variance / 4000).max())
    np.testing.assert_allclose(drawn.var(0), at.variance, rtol=0.1)


def test_rewards_that_do_not_vary_have_no_scale():
    none = logs.prior(N, F)
    for y, seen in ((OBSERVED.astype(float), OBSERVED), (jnp.zeros((4, N)), jnp.zeros((4, N), bool))):
        belief = none.rescaled(y, seen)
        assert belief.scale.unit == 0 and belief.scale.shift == 0
        at = belief.answer(jnp.asarray(PHI[0]), jnp.full((N, F), 1 / 3))
        assert np.all(at.mean == 1) and np.all(at.variance == 0)
