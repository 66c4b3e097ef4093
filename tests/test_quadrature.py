"""The probability that a candidate is the best by independent normal scores, against a fine grid."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr

from seqdec.policies import common

DRAWS = 10**7
"""So many that the share of uniform play vanishes."""


def exact(mean, std, index: int) -> float:
    """By the midpoints of cells that are small where any rival is undecided."""
    scaled, ratio = (mean - mean[index]) / std[index], std[index] / std
    rivals = np.arange(len(mean)) != index
    near = [scaled[rival] + np.linspace(-8, 8, 161) / ratio[rival] for rival in np.flatnonzero(rivals)]
    edges = np.unique(np.clip(np.concatenate([np.linspace(-8, 8, 2001), *near]), -8, 8))
    z = (edges[1:] + edges[:-1]) / 2
    below = np.prod(ndtr(ratio[rivals] * (z[:, None] - scaled[rivals])), axis=1)
    return float(np.diff(ndtr(edges)) @ below)


def drawn(size: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means, deviations and candidates: alike or orders of magnitude apart, one that is known best or least, ties."""
    random = np.random.default_rng(size)
    std = np.exp(random.normal(size=(count, size)) * random.choice([0, 0.3, 1, 3], (count, 1)))
    std[np.arange(count) % 5 == 0, 0] *= 50
    std[np.arange(count) % 5 == 1] = 1e-3
    std[np.arange(count) % 5 == 1, -1] = 1
    mean = (
        random.normal(size=(count, size)) * 10 ** random.uniform(-2, 2, (count, 1)) * random.choice([0, 1], (count, 1))
    )
    best = np.argmax(mean + std * random.normal(size=(count, size)), axis=1)
    index = np.where(random.uniform(size=count) < 0.7, best, random.integers(0, size, count))
    return mean.astype(np.float32), std.astype(np.float32), index


@pytest.mark.parametrize("size", [5, 30])
def test_the_error_is_as_stated(size):
    mean, std, index = drawn(size, 1500 // size)
    _, probability = common.marginal_quadrature(lambda posterior, candidates, mask: posterior, DRAWS)
    assert probability is not None
    found = jax.jit(jax.vmap(lambda mean, std, index: probability(None, (mean, std), None, None, index)))(
        mean, std, index
    )
    known = np.array([exact(*each) for each in zip(mean.astype(float), std.astype(float), index, strict=True)])
    error = np.abs(np.asarray(found) - known)
    assert error.max() < 0.002
    assert (error / (known + 0.01)).max() < 0.01
    assert error.mean() < 0.0002


@pytest.mark.sampled(3)
@pytest.mark.parametrize("size", [10, 1000, 20_000])
def test_many_candidates_that_are_equally_uncertain_share_the_probability(size):
    _, probability = common.marginal_quadrature(lambda posterior, candidates, mask: posterior, DRAWS)
    assert probability is not None
    one = probability(None, (jnp.zeros(size), jnp.ones(size)), None, None, jnp.int32(3))
    assert float(one) == pytest.approx(1 / size, rel=0.1)
