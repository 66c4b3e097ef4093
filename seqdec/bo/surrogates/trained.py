"""Surrogates from networks trained by AdamW, with a belief over their last layer: the agents' heads and memories.

The network is that of `seqdec.bo.surrogates.filtered`. Every response is learned by gradient steps on it and on the
responses kept before it; `fit` learns the appended rows only, one after the other. After responses are standardized
again, the optimizer restarts from the prior.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from seqdec import memory as memories
from seqdec.agents import laplace, variational
from seqdec.agents._neural.experience import Experience
from seqdec.agents._neural.loop import Head, NeuralState, Trainer, trainer
from seqdec.bo.surrogates.contract import History, Surrogate, check_growth
from seqdec.bo.surrogates.filtered import mlp
from seqdec.boundary import checks
from seqdec.core import Array, Key, Network, Posterior


class State(NamedTuple):
    """A trained network and the number of rows that it has learned."""

    learned: NeuralState
    absorbed: Array
    """() int32 rows of the history"""


def last_layer_laplace(
    dim: int,
    *,
    learning_rate: float = 1e-3,
    inner_steps: int = 50,
    buffer: int = 20,
    prior_std: float = 1.0,
    noise_variance: float = 1e-4,
    features: tuple[int, ...] = (180, 180, 180),
    scale: float = 2.0,
    growth: float = 1.25,
) -> Surrogate:
    """Network trained on the last responses, with a Laplace approximation of its last layer (`seqdec.agents.laplace`).

    Args:
        dim: columns of the unit cube.
        learning_rate: learning rate of AdamW.
        inner_steps: gradient steps for each response, on it and the whole buffer.
        buffer: number of responses that are kept.
        prior_std: prior standard deviation of every parameter of the last layer.
        noise_variance: noise variance of the responses.
        features, scale, growth: as in `over_trained_mlp`.

    Raises ValueError or TypeError for a setting that is out of its range or not a number.
    """
    head, buffer = laplace(prior_std=prior_std, noise_variance=noise_variance), checks.count("buffer", buffer)
    return over_trained_mlp(
        head, dim, learning_rate, inner_steps, buffer, features=features, scale=scale, growth=growth
    )


def vbll(
    dim: int,
    *,
    learning_rate: float = 1e-3,
    inner_steps: int = 100,
    regularization: float = 1.0,
    prior_std: float = 1.0,
    noise_variance: float = 0.01,
    degrees: float = 1.0,
    wishart_scale: float = 0.01,
    features: tuple[int, ...] = (180, 180, 180),
    scale: float = 2.0,
    growth: float = 1.25,
) -> Surrogate:
    """Variational Bayesian last layer (`seqdec.agents.variational`), trained on all responses.

    Args:
        dim: columns of the unit cube.
        learning_rate: learning rate of AdamW.
        inner_steps: gradient steps for each response, on all responses so far.
        regularization: factor of the prior's terms.
        prior_std, noise_variance, degrees: of `seqdec.agents.variational`.
        wishart_scale: its `scale`.
        features, scale, growth: as in `over_trained_mlp`.

    Raises ValueError or TypeError for a setting that is out of its range or not a number.
    """
    checks.non_negative("wishart_scale", wishart_scale)
    head = variational(
        prior_std=prior_std,
        noise_variance=noise_variance,
        degrees=degrees,
        scale=wishart_scale,
        regularization=regularization,
    )
    return over_trained_mlp(head, dim, learning_rate, inner_steps, None, features=features, scale=scale, growth=growth)


def on_vbll(
    dim: int,
    *,
    learning_rate: float = 1e-3,
    inner_steps: int = 50,
    buffer: int = 20,
    regularization: float = 0.0,
    prior_std: float = 1.0,
    noise_variance: float = 0.01,
    degrees: float = 1.0,
    wishart_scale: float = 0.01,
    features: tuple[int, ...] = (180, 180, 180),
    scale: float = 2.0,
    growth: float = 1.25,
) -> Surrogate:
    """Variational Bayesian last layer, trained on the last responses, without regularization.

    Args:
        dim: columns of the unit cube.
        learning_rate: learning rate of AdamW.
        inner_steps: gradient steps for each response, on it and the whole buffer.
        buffer: number of responses that are kept.
        regularization, prior_std, noise_variance, degrees, wishart_scale, features, scale, growth: as in `vbll`.

    Raises ValueError or TypeError for a setting that is out of its range or not a number.
    """
    buffer = checks.count("buffer", buffer)
    checks.non_negative("wishart_scale", wishart_scale)
    head = variational(
        prior_std=prior_std,
        noise_variance=noise_variance,
        degrees=degrees,
        scale=wishart_scale,
        regularization=regularization,
    )
    return over_trained_mlp(
        head, dim, learning_rate, inner_steps, buffer, features=features, scale=scale, growth=growth
    )


def over_trained_mlp(
    head: Callable[[Network], Head],
    dim: int,
    learning_rate: float,
    inner_steps: int,
    buffer: int | None,
    *,
    features: tuple[int, ...],
    scale: float,
    growth: float,
) -> Surrogate:
    """The surrogate of a network with a head.

    Args:
        head: (network) -> loss and belief.
        dim: columns of the unit cube.
        learning_rate: learning rate of AdamW.
        inner_steps: gradient steps for each response.
        buffer: number of responses that are kept; None: all.
        features: widths of the hidden layers.
        scale: a; the network's inputs lie in [-a, a].
        growth: as in `Surrogate`.

    Raises ValueError or TypeError for a setting that is out of its range or not a number.
    """
    checks.rate("learning_rate", learning_rate)
    inner_steps, growth = checks.count("inner_steps", inner_steps), check_growth(growth)
    buffer = None if buffer is None else checks.count("buffer", buffer)
    rows = mlp(dim, features, scale)
    top = head(rows)

    def learner(history: History) -> Trainer:
        memory = memories.last(len(history.x) if buffer is None else buffer)
        return trainer(
            rows, top, jax.tree.map(lambda leaf: leaf[0], _row(history, 0)), optimizer=optax.adamw(learning_rate),
            memory=memory, batch_size=None, inner_steps=inner_steps,
        )  # fmt: skip

    def init(key: Key, history: History) -> State:
        return State(learner(history).init(key), jnp.int32(0))

    def condition_on(state: State, history: History) -> State:
        update = learner(history).update
        learned = jax.lax.fori_loop(
            state.absorbed, history.filled, lambda i, learned: update(learned, _row(history, i))[0], state.learned
        )
        return State(learned, history.filled)

    def posterior(state: State) -> Posterior:
        at = top.posterior(state.learned.params, state.learned.belief)

        def joint(candidates: Array) -> Any:  # heads calculate in JAX's default dtype
            return jax.tree.map(lambda leaf: leaf.astype(candidates.dtype), at.joint(candidates))

        return at._replace(joint=joint)

    fit, extend = jax.jit(condition_on, donate_argnums=0), jax.jit(condition_on)
    return Surrogate(jax.jit(init), fit, extend, posterior, growth, "thompson", jnp.float32)


def _row(history: History, index: Any) -> Experience:
    """One row of the history, with a leading axis."""
    return Experience(history.x[index][None, None], history.y[index][None, None], jnp.ones((1, 1), bool))
