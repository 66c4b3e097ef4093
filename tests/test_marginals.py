"""`Filter.marginals`, which computes what does not depend on the input once, against `Filter.moments`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from gymnasium.spaces import Box, Dict, Discrete

from seqdec import agents, filters, likelihoods, models
from seqdec.agents import filtered
from seqdec.core import Spaces

OUTPUTS, SIZE = 3, 4


class Mixing(nn.Module):
    """Outputs that all depend on all parameters of the last dense layer."""

    @nn.compact
    def __call__(self, x):
        hidden = nn.tanh(nn.Dense(5, name="hidden_0")(x))
        out = nn.Dense(OUTPUTS, name="output")(hidden)
        return out - jnp.mean(out)


NETWORKS = {"mlp": models.MLP(OUTPUTS, (5,)), "mixing": Mixing()}
LIKELIHOODS = {"gaussian": likelihoods.gaussian(0.1), "categorical": likelihoods.categorical()}


CASES = [("hilofi", "mlp", "gaussian"), ("hilofi", "mlp", "categorical"), ("hilofi", "mixing", "gaussian")]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "module", "likelihood"), [*CASES, ("lrkf", "mlp", "gaussian")])
def test_marginals_are_those_of_the_moments(name, module, likelihood):
    """Whether a response depends on the parameters of one output or of all, with process noise that has arrived."""
    network = models.network(NETWORKS[module], jnp.zeros(SIZE))
    network = network._replace(is_last=lambda path: path[0] == "output")
    options = {"hilofi": {"rank": 4, "process_noise_last": 1e-2}, "lrkf": {"rank": 4}}[name]
    flt = getattr(filters, name)(network, LIKELIHOODS[likelihood], **options)
    belief = flt.init(jax.random.key(0), network.init(jax.random.key(1)))
    xs = jax.random.normal(jax.random.key(2), (6, SIZE))
    belief, _ = jax.jit(flt.update)(belief, xs[0], jnp.array([0.2, 0.3, 0.5]))
    belief = flt.predict(belief)
    known = jax.jit(jax.vmap(flt.moments, (None, 0)))(belief, xs)
    found = jax.jit(lambda belief, xs: jax.vmap(flt.marginals(belief))(xs))(belief, xs)
    np.testing.assert_allclose(found.mean, known.mean, rtol=1e-5, atol=1e-6)
    variance = np.diagonal(known.cov, axis1=1, axis2=2)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-3, atol=1e-6)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("tables", [False, True], ids=["features", "tables"])
@pytest.mark.parametrize("name", ["linear", "hilofi", "lrkf"])
def test_a_decision_among_many_candidates_takes_memory_in_proportion(name, tables, monkeypatch):
    """And is the one that the covariance of all leads to."""
    count = 300
    parts = {"features": Box(-np.inf, np.inf, (count, 3), np.float32)}
    x = {"features": np.random.default_rng(0).normal(size=(count, 3)).astype(np.float32)}
    if tables:
        parts["item"], x["item"] = Box(0, 9, (count,), np.int32), np.arange(count, dtype=np.int32) % 10
    spaces, found = Spaces(Dict(parts), Discrete(count)), []
    for many in (count, filtered._MANY):
        monkeypatch.setattr(filtered, "_MANY", many)
        agent = agents.make(name, spaces)
        state = agent.init(jax.random.key(0))
        lowered = jax.jit(agent.act).lower(jax.random.key(1), state, x)
        found.append(lowered.compile()(jax.random.key(1), state, x))
        text = lowered.as_text()
        assert (f"{count}x{count}x" in text) == (many == count)
    assert found[0].value == found[1].value
    np.testing.assert_allclose(found[0].propensity, found[1].propensity, rtol=1e-3)
