r"""Bootstrapped ensemble: networks with different initial weights, each trained on a resampling of the observations.

Member m weighs observation i with w_im ~ Poisson(1), the limit of the bootstrap, or 2 Bernoulli(1/2), drawn once, and
minimizes over a minibatch shared by all members

    sum_i w_im 1/2 |y_i - f_m(x_i)|^2 / sum_i w_im

A draw of the posterior is a random member; mean and covariance are those of the members. With randomized priors,

    f_m(x) = f(x; theta_m) + g_m(x)

where g_m is an untrained network of the same form with last weights N(0, beta^2 / F).

Cost of an update: the network's times the number of members.

Sources: Osband, Blundell, Pritzel, Van Roy, "Deep exploration via bootstrapped DQN", 2016; Osband, Aslanides, Cassirer,
"Randomized prior functions for deep reinforcement learning", 2018.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from seqdec.agents._neural.last_layer import last_layer
from seqdec.agents._neural.loop import Head, mean_of_rows, with_head
from seqdec.boundary import checks
from seqdec.core import Acquisition, Agent, Array, HasSpaces, Key, Network, Posterior, Predictive, PyTree
from seqdec.modules import Model

_BOOTSTRAPS = ("poisson", "bernoulli", "none")
_MOST = 12
"""Largest Poisson(1) weight; larger ones have probability 1e-10."""


def members_head(
    *, members: int = 10, bootstrap: str = "poisson", prior_scale: float = 0.0, noise_variance: float = 0.01
) -> Callable[[Network], Head]:
    """The head of an ensemble, for elementwise optimizers such as SGD and Adam.

    Args:
        members: number of networks.
        bootstrap: "poisson", "bernoulli", or "none" for weights of 1.
        prior_scale: beta, scale of the randomized priors; 0: none.
        noise_variance: observation variance of predictive distributions.

    Raises TypeError or ValueError for a setting out of range.
    """
    members = checks.count("members", members)
    checks.choice("bootstrap", bootstrap, _BOOTSTRAPS)
    checks.non_negative("prior_scale", prior_scale)
    checks.positive("noise_variance", noise_variance)

    def head(network: Network) -> Head:
        prior_of = _prior(network, prior_scale) if prior_scale else None

        def respond(params, prior, x):
            response = network.apply(params, x)
            return response if prior_of is None else response + network.apply(prior, x)

        def init(key, params):
            starts, priors = jax.random.split(key)
            first = jax.tree.map(lambda leaf: leaf[None], params)
            others = jax.vmap(network.init)(jax.random.split(starts, members - 1)) if members > 1 else None
            stacked = first if others is None else jax.tree.map(lambda *parts: jnp.concatenate(parts), first, others)
            return stacked, () if prior_of is None else jax.vmap(prior_of)(jax.random.split(priors, members))

        def loss(params, priors, batch, seen):
            def one(params, prior, weights):
                responses = jax.vmap(respond, (None, None, 0))(params, prior, batch.rows.x)
                errors = 0.5 * (batch.rows.y - responses.astype(batch.rows.y.dtype)) ** 2
                return mean_of_rows(errors, batch._replace(weights=batch.weights * weights)), responses

            losses, responses = jax.vmap(one)(params, priors, batch.rows.weights.T)
            return jnp.sum(losses), (jnp.mean(responses, 0), ())

        def tag(key, rows):
            shape = len(rows.y), members
            if bootstrap == "none":
                return rows._replace(weights=jnp.ones(shape))
            if bootstrap == "poisson":
                return rows._replace(weights=_poisson(key, shape))
            return rows._replace(weights=2 * jax.random.bernoulli(key, 0.5, shape).astype(float))

        def posterior(params, priors):
            def each(candidates):
                return jax.vmap(respond, (0, 0, None))(params, priors, candidates)

            def joint(candidates):
                responses = each(candidates)
                mean = jnp.mean(responses, 0)
                apart = (responses - mean[None]) / jnp.sqrt(max(1, members - 1))
                noise = noise_variance * jnp.eye(len(mean), dtype=mean.dtype)
                return Predictive(mean, apart.T @ apart, noise)

            def draw(key):
                chosen = jax.random.randint(key, (), 0, members)
                own, prior = jax.tree.map(lambda leaf: leaf[chosen], (params, priors))
                return lambda candidates: respond(own, prior, candidates)

            return Posterior(lambda candidates: jnp.mean(each(candidates), 0), joint, draw)

        return Head(init, loss, lambda params, priors, lesson: priors, posterior, tag)

    return head


def _prior(network: Network, scale: float) -> Callable[[Key], PyTree]:
    """(key) -> parameters of a randomized prior."""
    layer = last_layer(network)

    def draw(key):
        body, top = jax.random.split(key)
        weights = jax.random.normal(top, (layer.groups, layer.size)) * scale / layer.size**0.5
        return layer.put(network.init(body), weights)

    return draw


def _poisson(key: Key, shape: tuple[int, ...]) -> Array:
    """Poisson(1) numbers, by inversion."""
    cumulative = np.exp(-1) * np.cumsum([1 / math.factorial(k) for k in range(_MOST)])
    above = jax.random.uniform(key, (*shape, 1)) > cumulative.reshape((1,) * len(shape) + (-1,))
    return jnp.sum(above, -1).astype(float)


def ensemble(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition = "thompson",
    model: Model | None = None,
    learning_rate: float = 1e-3,
    inner_steps: int = 1,
    batch_size: int | None = 32,
    capacity: int = 40_000,
    members: int = 10,
    bootstrap: str = "poisson",
    prior_scale: float = 0.0,
    noise_variance: float = 0.01,
    num_candidates: int | None = None,
) -> Agent:
    """Bootstrapped ensemble of networks, trained by AdamW on minibatches of all observations.

    Arguments as in `seqdec.agents.replay_adamw` and `seqdec.agents.members_head`.
    """
    return with_head("ensemble", members_head, **locals())
