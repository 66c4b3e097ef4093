r"""Variational Bayesian last layers: network, covariance of the last layer and noise are trained on one bound.

With features phi (`seqdec.agents._neural.last_layer`) and q(w_g) = N(m_g, S_g), S_g = L_g L_g^T, the optimizer trains
the network, whose last layer is m, the lower triangular L and the noise variances sigma^2 to maximize

    mean_i bound_i - (1/N) [ sum_g KL(q(w_g) || N(0, sigma_0^2 I)) - sum_g log p(sigma_g^2) ]

    KL = 1/2 [ (tr S + m^T m) / sigma_0^2 - F + F log sigma_0^2 - log det S ]
    log p(sigma^2) = -1/2 [ (nu + 2) log sigma^2 + s / sigma^2 ]           inverse Wishart, up to a constant

for N observations so far. The bound of a row on E_q log p(y | x) is, for observed responses j,

    regression        sum_j log N(y_j | phi_j^T m_j, sigma_j^2) - phi_j^T S_j phi_j / (2 sigma_j^2)
    classification    lse_{k in A} phi^T m_k - lse_k [ phi^T m_k + (phi^T S_k phi + sigma_k^2) / 2 ]

lse is log sum exp, A the possible classes: the one with reward 1 if seen, else all but those with reward 0. The
regression bound is the expectation itself; A = {y} is the paper's discriminative bound, extended to "not this class" by
Jensen's inequality.

A gradient step costs O(b G F^2) more than one of the network alone.

Source: Harrison, Willes, Snoek, "Variational Bayesian last layers", 2024.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from seqdec.agents._neural.last_layer import LastLayer, displaced, draw_weights, last_layer, spread, variances
from seqdec.agents._neural.loop import Head, mean_of_rows, with_head
from seqdec.boundary import checks
from seqdec.core import Acquisition, Agent, Array, HasSpaces, Network, Posterior, Predictive, PyTree
from seqdec.modules import Model

_HEADS = ("regression", "classification")


class Variational(NamedTuple):
    network: PyTree
    """its last layer holds the means m"""
    raw_root: Array
    """(G, F, F) L below the diagonal, log L on it"""
    log_noise: Array
    """(G,) log sigma^2"""


def root_of(params: Variational) -> Array:
    """L (G, F, F), lower triangular."""
    diagonal = jnp.exp(jnp.diagonal(params.raw_root, axis1=1, axis2=2))
    return jnp.tril(params.raw_root, -1) + diagonal[:, :, None] * jnp.eye(diagonal.shape[1], dtype=diagonal.dtype)[None]


def penalty(params: Variational, means: Array, prior_std: float, degrees: float, scale: float) -> Array:
    """KL to the prior minus the log prior of the noise, summed over groups; means (G, F)."""
    squares = jnp.sum(root_of(params) ** 2) + jnp.sum(means**2)
    log_det = 2 * jnp.sum(jnp.diagonal(params.raw_root, axis1=1, axis2=2))
    divergence = 0.5 * (squares / prior_std**2 + means.size * (2 * jnp.log(prior_std) - 1) - log_det)
    log_prior = -0.5 * jnp.sum((degrees + 2) * params.log_noise + scale * jnp.exp(-params.log_noise))
    return divergence - log_prior


def regression_bound(y: Array, mean: Array, variance: Array, log_noise: Array) -> Array:
    """E_q log N(y | f, sigma^2) for f ~ N(mean, variance); arguments broadcast."""
    squares = (y - mean) ** 2 + variance
    log_noise = log_noise.reshape((1,) * (squares.ndim - log_noise.ndim) + log_noise.shape)
    return -0.5 * (math.log(2 * math.pi) + log_noise + squares * jnp.exp(-log_noise))


def classification_bound(y: Array, observed: Array, mean: Array, variance: Array, log_noise: Array) -> Array:
    """Bound on E_q log p(feedback): rewards y (n,) of 0 or 1 where observed, logits N(mean, variance) -> ()."""
    right = observed & (y > 0.5)
    possible = jnp.where(jnp.any(right), right, ~observed)
    spread = mean + 0.5 * (variance + jnp.exp(log_noise))
    return jax.nn.logsumexp(mean, where=possible) - jax.nn.logsumexp(spread)


def variational(
    *,
    head: str = "regression",
    prior_std: float = 1.0,
    noise_variance: float = 0.01,
    degrees: float = 1.0,
    scale: float = 0.01,
    regularization: float = 1.0,
) -> Callable[[Network], Head]:
    """The head of a variational last layer.

    Args:
        head: "regression", or "classification" for Discrete actions of which one has reward 1 and the others 0:
            expected rewards are then a softmax.
        prior_std: prior standard deviation sigma_0 of every parameter of the last layer, and the initial one of q.
        noise_variance: initial sigma^2.
        degrees: nu of the inverse Wishart prior.
        scale: s of the inverse Wishart prior.
        regularization: factor of the terms divided by N.

    Raises ValueError for a setting out of range.
    """
    checks.choice("head", head, _HEADS)
    for setting, value in (("prior_std", prior_std), ("noise_variance", noise_variance)):
        checks.positive(setting, value)
    for setting, value in (("degrees", degrees), ("scale", scale), ("regularization", regularization)):
        checks.non_negative(setting, value)

    def build(network: Network) -> Head:
        layer = last_layer(network)
        if head == "classification" and layer.groups == 1:
            raise ValueError(
                "a classification head needs Discrete actions and a network with one output for each, two or more; "
                "use head='regression'"
            )

        def init(key, params):
            root = jnp.log(prior_std) * jnp.eye(layer.size)
            noise = jnp.log(noise_variance) * jnp.ones(layer.groups)
            return Variational(params, jnp.broadcast_to(root, (layer.groups, *root.shape)), noise), ()

        def loss(params, belief, batch, seen):
            mean, phi = jax.vmap(layer.features, (None, 0))(params.network, batch.rows.x)
            variance = variances(phi, root_of(params))
            if head == "classification":
                bound = jax.vmap(classification_bound, (0, 0, 0, 0, None))
                each = bound(batch.rows.y, batch.rows.observed, mean, variance, params.log_noise)
                fit, expected = jnp.sum(batch.weights * each) / jnp.sum(batch.weights), jax.nn.softmax(mean)
            else:
                bounds = regression_bound(batch.rows.y, mean, variance, params.log_noise)
                fit, expected = mean_of_rows(bounds, batch), mean
            rest = penalty(params, layer.get(params.network), prior_std, degrees, scale)
            return regularization * rest / jnp.asarray(seen, rest.dtype) - fit, (expected, ())

        posterior = _posterior(network, layer, head == "classification")
        return Head(init, loss, lambda params, belief, lesson: (), posterior)

    return build


def _posterior(network: Network, layer: LastLayer, softmax: bool) -> Callable[[Variational, Any], Posterior]:
    """Responses under q; a classifier is linearized at the mean for the covariance."""

    def posterior(params, belief):
        def mean(candidates):
            response = network.apply(params.network, candidates)
            return jax.nn.softmax(response) if softmax else response

        def joint(candidates):
            response, phi = layer.features(params.network, candidates)
            cov, noise = spread(phi, root_of(params)), jnp.exp(params.log_noise)
            if not softmax:
                return Predictive(response, cov, jnp.diag(jnp.broadcast_to(noise, response.shape)))
            p = jax.nn.softmax(response)
            slope = jnp.diag(p) - jnp.outer(p, p)
            return Predictive(p, slope @ cov @ slope, slope)

        def draw(key):
            weights = draw_weights(key, layer.get(params.network), root_of(params))
            function = displaced(layer, network, params.network, weights)
            return (lambda candidates: jax.nn.softmax(function(candidates))) if softmax else function

        return Posterior(mean, joint, draw)

    return posterior


def vbll(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition = "epistemic_sampling",
    model: Model | None = None,
    learning_rate: float = 1e-3,
    inner_steps: int = 10,
    batch_size: int | None = 32,
    capacity: int = 1000,
    num_candidates: int | None = None,
    head: str = "regression",
    prior_std: float = 1.0,
    noise_variance: float = 0.01,
    degrees: float = 1.0,
    scale: float = 0.01,
    regularization: float = 1.0,
) -> Agent:
    """Variational Bayesian last layer, trained by AdamW on minibatches of all observations.

    The published experiments take `inner_steps=100, batch_size=None`. Arguments as in `seqdec.agents.replay_adamw` and
    `seqdec.agents.variational`.
    """
    return with_head("vbll", variational, **locals())


def on_vbll(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition = "epistemic_sampling",
    model: Model | None = None,
    learning_rate: float = 1e-3,
    inner_steps: int = 50,
    buffer: int = 10,
    num_candidates: int | None = None,
    head: str = "regression",
    prior_std: float = 1.0,
    noise_variance: float = 0.01,
    degrees: float = 1.0,
    scale: float = 0.01,
    regularization: float = 0.0,
) -> Agent:
    """Variational Bayesian last layer, trained by AdamW on a buffer of the last observations, without regularization.

    Arguments as in `seqdec.agents.last_layer_laplace` and `seqdec.agents.variational`.
    """
    return with_head("on_vbll", variational, **locals())
