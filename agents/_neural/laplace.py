r"""Laplace approximation of the last layer: a Gaussian around the trained weights.

For a Gaussian likelihood with variance R and the features phi of `seqdec.agents._neural.last_layer`, a group of weights
has

    Lambda = I / sigma_0^2 + sum_i phi_i phi_i^T / R,        w ~ N(w_trained, Lambda^{-1})

summed over the rows of the memory with present features, or over all observations with the features of their time.
A prediction is N(f(x), phi^T Lambda^{-1} phi) and noise R.

Cost of an update, for G groups of F parameters: O(m G F^2 + G F^3) for a memory of m rows, O(G F^2) for all
observations.

Sources: MacKay, "A practical Bayesian framework for backpropagation networks", 1992. Last layer only: Kristiadi, Hein,
Hennig, "Being Bayesian, even just a bit, fixes overconfidence in ReLU networks", 2020.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from seqdec import linalg
from seqdec import memory as memories
from seqdec.agents._neural.last_layer import by_group, condition, displaced, draw_weights, gram, last_layer, spread
from seqdec.agents._neural.loop import Head, neural, squared_error
from seqdec.agents.inputs import refuse_unused
from seqdec.boundary import checks
from seqdec.core import Acquisition, Agent, HasSpaces, Network, Posterior, Predictive
from seqdec.modules import Model

_OVER = ("memory", "stream")


def laplace(*, prior_std: float = 1.0, noise_variance: float = 0.01, over: str = "memory") -> Callable[[Network], Head]:
    """The head of a Laplace approximation; the loss is the squared error.

    Args:
        prior_std: prior standard deviation sigma_0 of every parameter of the last layer.
        noise_variance: observation variance R.
        over: precision over "memory", its rows with present features, or "stream", all observations with the features
            of their time.

    Raises ValueError for a setting out of range.
    """
    checks.positive("prior_std", prior_std)
    checks.positive("noise_variance", noise_variance)
    checks.choice("over", over, _OVER)

    def head(network: Network) -> Head:
        layer = last_layer(network)

        def init(key, params):
            root = prior_std * jnp.eye(layer.size)
            return params, jnp.broadcast_to(root, (layer.groups, *root.shape))

        def from_memory(params, columns, lesson):
            rows = lesson.memory.rows
            _, phi = jax.vmap(layer.features, (None, 0))(params, rows.x)
            present = memories.present(lesson.memory)
            scale = (rows.observed & present[:, None]).astype(float) / noise_variance
            prior = jnp.eye(layer.size) / prior_std**2
            return jax.vmap(linalg.inverse_root)(prior[None] + gram(phi, scale, layer.groups)).astype(columns.dtype)

        def from_stream(params, columns, lesson):
            newest = lesson.newest
            _, phi = jax.vmap(layer.features, (None, 0))(params, newest.x)
            phi = by_group(jnp.where(newest.observed[:, :, None], phi, 0), layer.groups)
            return condition(columns, jnp.where(lesson.good, phi, 0), noise_variance, lesson.good).columns

        def posterior(params, columns):
            def joint(candidates):
                expected, phi = layer.features(params, candidates)
                noise = noise_variance * jnp.eye(len(expected), dtype=expected.dtype)
                return Predictive(expected, spread(phi, columns), noise)

            def draw(key):
                return displaced(layer, network, params, draw_weights(key, layer.get(params), columns))

            return Posterior(lambda candidates: network.apply(params, candidates), joint, draw)

        return Head(init, squared_error(network), from_memory if over == "memory" else from_stream, posterior)

    return head


def last_layer_laplace(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition = "epistemic_sampling",
    model: Model | None = None,
    optimizer: optax.GradientTransformation | None = None,
    learning_rate: float = 1e-4,
    inner_steps: int = 50,
    buffer: int = 20,
    prior_std: float = 1.0,
    noise_variance: float = 0.01,
    over: str = "memory",
    num_candidates: int | None = None,
) -> Agent:
    """Network trained on a buffer of the last observations, with a Laplace approximation of its last layer.

    Args:
        spaces: with observation_space and action_space.
        policy: name or acquisition of `seqdec.policies`.
        model: as in `seqdec.agents.hilofi`.
        optimizer: any optax transformation, such as `optax.contrib.muon(1e-4)`; None is AdamW.
        learning_rate: learning rate of AdamW.
        inner_steps: gradient steps per observation, each on the newest and the whole buffer.
        buffer: number of observations kept.
        prior_std, noise_variance, over: as in `laplace`.
        num_candidates: points per decision, for Box actions only; None is 256.

    Raises TypeError or ValueError for a space or a setting that does not fit.
    """
    told: dict[str, Any] = {"prior_std": prior_std, "noise_variance": noise_variance, "over": over}
    checks.rate("learning_rate", learning_rate)
    if optimizer is not None:
        refuse_unused(last_layer_laplace, {"learning_rate": learning_rate}, "with an optimizer, which has its own")
    told["learning_rate"] = learning_rate if optimizer is None else "optimizer"
    return neural(
        spaces, optimizer=optax.adamw(learning_rate) if optimizer is None else optimizer,
        head=laplace(prior_std=prior_std, noise_variance=noise_variance, over=over), policy=policy, model=model,
        memory=memories.last(checks.count("buffer", buffer)), batch_size=None, inner_steps=inner_steps,
        num_candidates=num_candidates, name="last_layer_laplace", settings=told,
    )  # fmt: skip
