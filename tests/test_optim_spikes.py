"""What one gradient far longer than the others costs every optimizer."""

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqdec import optim
from seqdec.optim import common, linear

STEPS, SPIKE = 160, 39  # in its 40th step all that have intervals of 10 and 20 renew
NAMES = optim.REGISTRY.names()
RANKED = ("alice", "alice_0", "apollo", "fira")


def gradients():
    """Of a matrix, a stack of them, and a vector: a mean and as much noise."""
    rng, shapes = np.random.default_rng(0), {"hidden": (12, 16), "experts": (2, 6, 8), "bias": (16,)}
    return {
        name: jnp.asarray(0.02 * (rng.normal(size=shape) + rng.normal(size=(STEPS, *shape))), jnp.float32)
        for name, shape in shapes.items()
    }


def updates(name, factors):
    """Of all steps, with the gradient of one of them times each of the factors; a factor of 1 is the usual one."""
    options: dict[str, Any] = {"rank": 4} if name in RANKED else {}
    if "rms" in inspect.signature(optim.REGISTRY[name]).parameters:
        options["rms"] = None  # else the norms of all updates are the same
    transform, sequence = optim.REGISTRY[name](1.0, **options), gradients()

    def run(factor):
        def step(carry, one):
            number, gradient = one
            state, params = carry
            gradient = jax.tree.map(lambda leaf: leaf * jnp.where(number == SPIKE, factor, 1), gradient)
            moved, state = transform.update(gradient, state, params, value=jnp.float32(1.0))
            return (state, params), moved

        params = jax.tree.map(lambda leaf: jnp.ones_like(leaf[0]), sequence)
        return jax.lax.scan(step, (transform.init(params), params), (jnp.arange(STEPS), sequence))[1]

    return jax.jit(lambda factors: jax.lax.map(run, factors))(jnp.asarray(factors, jnp.float32))


@pytest.mark.parametrize("name", NAMES)
def test_a_spike_costs_at_most_a_hundred_steps_and_no_long_one(name):
    """By the norms of the updates of a run without it: within a factor of six, and 85% after a hundred steps."""
    for moved in jax.tree.leaves(updates(name, [1, 1e3, 1e20, 1e38])):
        norms = np.linalg.norm(np.asarray(moved, np.float64).reshape(4, STEPS, -1), axis=-1)
        ratios = norms[1:, SPIKE:] / norms[0, SPIKE:]
        assert np.all(ratios < 6)
        assert np.all(ratios[:, 100:] > 0.85)


@pytest.mark.parametrize("name", NAMES)
def test_ordinary_gradients_stay_to_the_bit(name, monkeypatch):
    found = updates(name, [1])
    monkeypatch.setattr(common, "_SPIKE", jnp.inf)
    jax.tree.map(np.testing.assert_array_equal, found, updates(name, [1]))


def test_the_usual_norm_follows_gradients_that_grow_for_good():
    transform, gradient = common.steady(), jnp.ones(4)
    state = transform.init(gradient)
    lengths = []
    for size in [1.0, 0.1, 1.0] * 8 + [0.0] * 50 + [1000.0] * 30:
        moved, state = transform.update(size * gradient, state)
        lengths.append(float(jnp.linalg.norm(moved)))
    np.testing.assert_array_equal(lengths[:6], np.float32([2, 0.2, 2, 2, 0.2, 2]))  # in the first steps to the bit
    np.testing.assert_allclose(np.divide(lengths[75:77], lengths[74]), [1.4, 1.96], rtol=1e-5)
    assert 5 < lengths[74] < 10  # zeros are not usual
    np.testing.assert_allclose(lengths[-5:], 2000, rtol=1e-6)


@pytest.mark.parametrize("size", [1e-30, 1.0, 2e14, 3e38])
def test_bounded_gradients(size):
    """Shorter ones stay to the bit; NaN and infinity reach the updates."""
    gradient = jnp.asarray([3.0, 0, -4], jnp.float32) / 4 * size
    for limit in (jnp.inf, 1e-3):
        moved, norm = linear.bounded(gradient, limit)
        least = min(limit, float(jnp.finfo(jnp.float32).max) ** 0.375)
        if 1.25 * size < least:
            np.testing.assert_array_equal(moved, gradient)
        np.testing.assert_allclose(norm, min(1.25 * size, least), rtol=1e-6)
        np.testing.assert_allclose(moved, np.array([0.6, 0, -0.8]) * min(1.25 * size, least), rtol=1e-5)
    assert not jnp.isfinite(linear.bounded(gradient.at[1].set(jnp.nan))[0]).all()
    assert not jnp.isfinite(linear.bounded(gradient.at[1].set(jnp.inf))[0]).all()
