"""A filter: copy to seqdec/filters/_committee.py.

Registry, AGENTS of agents/registry.py:

    "committee": Entry(
        filtered.from_filter("seqdec.filters._committee:committee", "thompson"), FILTER._replace(learning_rate=True)
    ),

Case, SMALL of tests/test_agents.py:

    "committee": {},
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.stats import multivariate_normal

from seqdec.boundary.checks import count
from seqdec.core import Filter, Network, Predictive, PyTree, UpdateInfo
from seqdec.likelihoods import Likelihood


class Members(NamedTuple):
    """The belief of a committee."""

    params: PyTree
    """those of all networks, (members, ...)"""


def committee(
    network: Network, likelihood: Likelihood, *, members: int = 3, initial_std: float = 0.1, learning_rate: float = 0.1
) -> Filter:
    """Committee: networks with different initial weights, each trained by gradient descent on every observation.

    Args:
        network: of any kind.
        likelihood: observation model, from `seqdec.likelihoods`.
        members: how many networks.
        initial_std: standard deviation of the initial weights around the given ones.
        learning_rate: of one gradient step on half the squared error per observation.
    """
    count("members", members, 2)

    def response(params, x):
        return likelihood.mean(network.apply(params, x))

    def init(key, params):
        def member(key):
            keys = jax.random.split(key, len(jax.tree.leaves(params)))
            noise = (
                initial_std * jax.random.normal(k, leaf.shape)
                for k, leaf in zip(keys, jax.tree.leaves(params), strict=True)
            )
            return jax.tree.map(jnp.add, params, jax.tree.unflatten(jax.tree.structure(params), noise))

        return Members(jax.vmap(member)(jax.random.split(key, members)))

    def mean(belief):
        return jax.tree.map(lambda leaf: leaf.mean(0), belief.params)

    def moments(belief, x):
        outputs = jax.vmap(response, (0, None))(belief.params, x)
        noise = likelihood.cov(network.apply(mean(belief), x))
        return Predictive(outputs.mean(0), jnp.atleast_2d(jnp.cov(outputs.T)), noise)

    def update(belief, x, y, observed=None):
        rows = jnp.arange(jnp.size(y)) if observed is None else jnp.atleast_1d(observed)

        def loss(params):
            return jnp.sum((y - response(params, x)[rows]) ** 2) / 2

        at = moments(belief, x)
        innovation, cov = y - at.mean[rows], (at.cov + at.noise)[jnp.ix_(rows, rows)]
        slopes = jax.vmap(jax.grad(loss))(belief.params)
        stepped = Members(jax.tree.map(lambda leaf, slope: leaf - learning_rate * slope, belief.params, slopes))
        good = jnp.array([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(stepped)]).all()
        good &= jnp.all((rows >= 0) & (rows < len(at.mean)))
        belief = jax.tree.map(lambda new, old: jnp.where(good, new, old), stepped, belief)
        density = jnp.asarray(multivariate_normal.logpdf(innovation, jnp.zeros(len(rows)), cov))
        return belief, UpdateInfo(innovation, density, rejected=~good)

    def sample(key, belief):
        chosen = jax.random.randint(key, (), 0, members)
        return jax.tree.map(lambda leaf: leaf[chosen], belief.params)

    return Filter(init, lambda belief: belief, update, moments, sample, mean, response)
