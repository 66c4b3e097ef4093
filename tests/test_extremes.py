"""Filters at the edge of single precision: a belief stays finite, and an update that would not is rejected."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqdec import filters, likelihoods, models

NETWORK = models.network(models.MLP(4, (4,)), jnp.zeros(8))
FILTERS = {
    "ekf": {},
    "hilofi": {"rank": 2},
    "lofi": {"rank": 1},
    "lofi with spare columns": {"rank": 1, "spare": 4},
    "lolofi": {"rank_hidden": 2, "rank_last": 3},
    "lrkf": {"rank": 2},
    "subspace": {"rank": 2},
}
CONTEXTS = jnp.asarray(np.random.default_rng(0).normal(size=(120, 8)), jnp.float32)


def finite(tree):
    floats = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in floats]))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
@pytest.mark.parametrize("name", FILTERS)
def test_huge_contexts_and_hardly_any_noise_leave_a_finite_belief(name: str, many: bool) -> None:
    def final(noise, scale):
        flt = getattr(filters, name.split()[0])(NETWORK, likelihoods.gaussian(noise), **FILTERS[name])

        def step(belief, contexts):
            xs, ys = contexts * scale, jnp.sum(contexts, 1)
            if many:
                fresh, info = flt.update_batch(flt.predict(belief), xs, ys, jnp.arange(4) % 2)
            else:
                fresh, info = flt.update(flt.predict(belief), xs[0], ys[0], 0)
            same = jnp.all(jnp.stack(jax.tree.leaves(jax.tree.map(lambda a, b: jnp.all(a == b), fresh, belief))))
            asked = flt.moments(fresh, xs[0])
            return fresh, (finite(fresh), finite((asked.mean, asked.cov)), same | ~jnp.all(info.rejected))

        rows = CONTEXTS.reshape(-1, 4, 8) if many else CONTEXTS[:, None]
        start = flt.init(jax.random.key(0), NETWORK.init(jax.random.key(1)))
        return jax.lax.scan(step, start, rows)[1]

    compiled = jax.jit(final)
    for noise, scale in ((1e-12, 1e14), (1e-6, 1e14), (0.0, 1e14), (0.0, 1e7)):
        belief, moments, unchanged = compiled(jnp.float32(noise), jnp.float32(scale))
        assert belief.all() and unchanged.all(), (noise, scale)
        assert moments.all() or noise == 0, (noise, scale)  # variances of 1e56 are beyond single precision
