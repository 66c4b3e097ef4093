"""The probability that a candidate is the best by independent scores, mixtures of normals, against a fine grid."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr

from seqdec.policies import common


def exact(weights, mean, std) -> np.ndarray:
    """(n,) of parts (P, n), by the midpoints of cells that are small where any of them is undecided."""
    edges = np.unique(mean[..., None] + std[..., None] * np.linspace(-8, 8, 501))
    middle = (edges[1:] + edges[:-1]) / 2

    def below(y):
        return np.stack(
            [w @ ndtr((y - m[:, None]) / s[:, None]) for w, m, s in zip(weights.T, mean.T, std.T, strict=True)]
        )

    shares, one = below(middle), np.ones((1, len(middle)))
    before = np.cumprod(np.concatenate([one, shares[:-1]]), axis=0)
    after = np.cumprod(np.concatenate([one, shares[:0:-1]]), axis=0)[::-1]
    return np.sum(np.diff(below(edges)) * before * after, axis=1)


def drawn(size: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, means and deviations (count, 2, size).

    First parts alike or orders of magnitude apart, one that is known best or least, ties; second parts rare and wide.
    """
    random = np.random.default_rng(size)
    std = np.exp(random.normal(size=(count, size)) * random.choice([0, 0.3, 1, 3], (count, 1)))
    std[np.arange(count) % 5 == 0, 0] *= 50
    std[np.arange(count) % 5 == 1] = 1e-3
    std[np.arange(count) % 5 == 1, -1] = 1
    mean = (
        random.normal(size=(count, size)) * 10 ** random.uniform(-2, 2, (count, 1)) * random.choice([0, 1], (count, 1))
    )
    rare = random.choice([0, 1e-4, 0.01, 0.1, 0.5], (count, size))
    apart = std * random.normal(size=(count, size)) * random.choice([0, 3], (count, 1))
    wide = std * random.choice([1, 3, 30], (count, size))
    parts = (1 - rare, rare), (mean, mean + apart), (std, wide)
    weights, mean, std = (np.stack(pair, 1).astype(np.float32) for pair in parts)
    return weights, mean, std


@pytest.mark.parametrize("size", [2, 5, 30])
def test_the_error_is_as_stated(size):
    given = drawn(size, 600 // size)
    found = jax.jit(jax.vmap(lambda *parts: common.wins(*parts, jnp.ones(size, bool))))(*given)
    known = np.array([exact(*triple) for triple in zip(*(part.astype(float) for part in given), strict=True)])
    error = np.abs(np.asarray(found) - known)
    assert error.max() < 0.002
    assert error.mean() < 0.0005


@pytest.mark.parametrize("size", [10, 1000, 20_000])
def test_many_candidates_that_are_equally_uncertain_share_the_probability(size):
    equal = jnp.ones((1, size))
    shares = common.wins(equal, 0 * equal, equal, jnp.ones(size, bool))
    np.testing.assert_allclose(shares, 1 / size, rtol=1e-4)
