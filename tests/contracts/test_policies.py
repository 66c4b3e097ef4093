"""What every policy must do, whatever it is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqdec import policies
from seqdec.core import Posterior, Predictive

MEAN, NOISE = np.array([0.3, 0.35, 0.2, 0.32]), np.array([0.04, 0.09, 0.01, 0.16])
ROOT = np.diag([0.2, 0.3, 0.01, 0.25]) + 0.01  # the third was observed most by far
COV = ROOT.T @ ROOT
MASK = np.array([True, True, False, True])


def posterior(kept: np.ndarray) -> Posterior:
    """Of some of the candidates."""
    mean, cov = jnp.asarray(MEAN[kept], jnp.float32), jnp.asarray(COV[np.ix_(kept, kept)], jnp.float32)
    root, noise = jnp.linalg.cholesky(cov), jnp.diag(jnp.asarray(NOISE[kept], jnp.float32))

    def draw(key):
        sample = mean + root @ jax.random.normal(key, mean.shape)
        return lambda candidates: sample

    return Posterior(lambda _: mean, lambda _: Predictive(mean, cov, noise), draw)


@pytest.mark.parametrize("name", policies.REGISTRY.names())
def test_a_candidate_that_is_forbidden_might_as_well_not_be_there(name: str) -> None:
    policy = policies.REGISTRY.make(name)
    if policy.probabilities is None:
        pytest.skip("it has no probabilities")
    keys = jax.random.split(jax.random.key(0), 60)
    every, allowed = np.arange(4), np.flatnonzero(MASK)

    @jax.jit
    def shares(keys):
        masked = jax.vmap(lambda key: policy.probabilities(key, posterior(every), jnp.arange(4), jnp.asarray(MASK)))(
            keys
        )
        few = jax.vmap(lambda key: policy.probabilities(key, posterior(allowed), jnp.arange(3), None))(keys)
        return masked, few

    masked, few = map(np.asarray, shares(keys))
    assert (masked[:, 2] == 0).all()
    error = np.sqrt((masked[:, allowed].var(0) + few.var(0)) / len(keys))  # 0 of policies that draw nothing
    np.testing.assert_array_less(np.abs(masked[:, allowed].mean(0) - few.mean(0)), 5 * error + 2e-3)
