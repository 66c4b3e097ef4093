"""The subspace filter against the dense filter of the coordinates."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from seqdec import filters, likelihoods, models
from seqdec import params as parameters
from tests.toys import network_of

NETWORK = models.network(models.MLP(2, (3,)), jnp.zeros(2))


def test_it_is_the_dense_filter_of_the_coordinates_and_moves_nothing_else():
    generator = np.random.default_rng(0)
    data = generator.normal(size=(40, 2)), generator.normal(size=(40, 2)), generator.integers(2, size=40)
    x = jnp.array([0.3, -1.0])
    with jax.enable_x64(True):
        likelihood, double = likelihoods.gaussian(0.1), filters.Numerics(dtype=jnp.float64)
        start = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), NETWORK.init(jax.random.key(0)))
        own = filters.subspace(NETWORK, likelihood, rank=4, initial_std=0.7, numerics=double)
        belief = own.init(jax.random.key(1), start)
        factor = belief.blocks[0].factor
        basis = jnp.concatenate(factor.basis) @ factor.coefficients.T
        origin, like = parameters.ravel(jax.tree.leaves(start)), jax.tree.leaves(start)

        def apply(z, x):
            leaves = parameters.unravel(origin + basis @ z, like)
            return NETWORK.apply(jax.tree.structure(start).unflatten(leaves), x)

        dense = filters.ekf(network_of(apply), likelihood, initial_std=0.7, numerics=double)

        def run(flt, belief):
            def step(belief, seen):
                x, y, arm = seen
                return flt.update(flt.predict(belief), x, y[arm], arm)

            return jax.jit(functools.partial(jax.lax.scan, step))(belief, data)

        belief, info = run(own, belief)
        coordinates, expected = run(dense, dense.init(jax.random.key(1), jnp.zeros(4)))
        np.testing.assert_allclose(info.log_density, expected.log_density, rtol=1e-9)
        for got, want in zip(own.moments(belief, x), dense.moments(coordinates, x), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-12)
        moved = parameters.ravel(jax.tree.leaves(belief.params)) - origin
        np.testing.assert_allclose(moved, basis @ coordinates.params, rtol=1e-8, atol=1e-10)
        assert float(jnp.linalg.norm(moved)) > 0.1
