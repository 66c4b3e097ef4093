"""The probability that a candidate is the best by independent normal scores, against a fine grid."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr

from seqdec.policies import common


def exact(mean, std, index: int) -> float:
    """By the midpoints of cells that are small where any rival is undecided."""
    scaled, ratio = (mean - mean[index]) / std[index], std[index] / std
    rivals = np.arange(len(mean)) != index
    near = [scaled[rival] + np.linspace(-8, 8, 161) / ratio[rival] for rival in np.flatnonzero(rivals)]
    edges = np.unique(np.clip(np.concatenate([np.linspace(-8, 8, 2001), *near]), -8, 8))
    z = (edges[1:] + edges[:-1]) / 2
    below = np.prod(ndtr(ratio[rivals] * (z[:, None] - scaled[rivals])), axis=1)
    return float(np.diff(ndtr(edges)) @ below)


def drawn(size: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Means and deviations: alike or orders of magnitude apart, one that is known best or least, ties."""
    random = np.random.default_rng(size)
    std = np.exp(random.normal(size=(count, size)) * random.choice([0, 0.3, 1, 3], (count, 1)))
    std[np.arange(count) % 5 == 0, 0] *= 50
    std[np.arange(count) % 5 == 1] = 1e-3
    std[np.arange(count) % 5 == 1, -1] = 1
    mean = (
        random.normal(size=(count, size)) * 10 ** random.uniform(-2, 2, (count, 1)) * random.choice([0, 1], (count, 1))
    )
    return mean.astype(np.float32), std.astype(np.float32)


@pytest.mark.parametrize("size", [2, 5, 30])
def test_the_error_is_as_stated(size):
    mean, std = drawn(size, 1000 // size)
    found = jax.jit(jax.vmap(lambda mean, std: common.wins(mean, std, jnp.ones(size, bool))))(mean, std)
    pairs = zip(mean.astype(float), std.astype(float), strict=True)
    known = np.array([[exact(*pair, index) for index in range(size)] for pair in pairs])
    error = np.abs(np.asarray(found) - known)
    assert error.max() < 0.002
    assert error.mean() < 0.0005


@pytest.mark.parametrize("size", [10, 1000, 20_000])
def test_many_candidates_that_are_equally_uncertain_share_the_probability(size):
    shares = common.wins(jnp.zeros(size), jnp.ones(size), jnp.ones(size, bool))
    np.testing.assert_allclose(shares, 1 / size, rtol=1e-4)
