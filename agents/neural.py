"""A network trained by any optax optimizer on the last observation only, behind a policy that needs no uncertainty."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from seqdec import policies
from seqdec.agents.filtering import choices_for, decide
from seqdec.agents.networks import network_for
from seqdec.core import Acquisition, Agent, Array, HasSpaces, Masked, Posterior, PyTree
from seqdec.models import Network


class NeuralState(NamedTuple):
    """Network and optimizer."""

    params: PyTree
    optimizer: Any


class NeuralInfo(NamedTuple):
    """What one update found out."""

    innovation: Array
    """(o,) observed minus predicted response, before the update"""
    loss: Array
    """() half the squared innovation"""
    rejected: Array
    """() bool: the input or the result was not finite, and the state is unchanged"""


def neural(
    spaces: HasSpaces,
    *,
    optimizer: optax.GradientTransformation,
    policy: str | Acquisition = "epsilon_greedy",
    model: nn.Module | Network | None = None,
    inner_steps: int = 1,
    num_candidates: int = 256,
    name: str = "neural",
    settings: Mapping[str, Any] | None = None,
) -> Agent:
    """Network x optimizer, with a buffer of one observation.

    Each update takes `inner_steps` gradient steps on half the squared error of the last observation. Optimizers that
    ask for the loss get it as the extra argument `value`.

    Args:
        spaces: anything with observation_space and action_space.
        optimizer: any optax transformation, e.g. `optax.adamw(1e-4)`.
        policy: name or acquisition of `seqdec.policies`, one that needs only the expected responses.
        model: a flax module or `seqdec.models.Network`; None chooses as `seqdec.agents.hilofi` does.
        inner_steps: gradient steps per observation.
        num_candidates: points drawn per decision from a Box of actions.
        name: for tables and pictures.
        settings: what the manifest of a run should say of the optimizer.

    Raises:
        TypeError: spaces of other kinds than Box and Discrete.
        ValueError: a policy that needs uncertainty, or inner_steps < 1.
    """
    acquisition, called = policies.resolve(policy)
    if acquisition.needs != "mean":
        raise ValueError(
            f"a plain network has no uncertainty, and the policy needs {acquisition.needs!r} of it; use epsilon_greedy"
        )
    if inner_steps < 1:
        raise ValueError(f"inner_steps must be at least 1; got {inner_steps}")
    choices = choices_for(spaces, num_candidates)
    network = network_for(spaces, model)
    transform = optax.with_extra_args_support(optimizer)

    def init(key):
        params = network.init(key)
        return NeuralState(params, transform.init(params))

    def act(key, state, observation):
        def mean(candidates):
            return network.apply(state.params, candidates)

        return decide(key, acquisition, Posterior(mean, _no_uncertainty, _no_uncertainty), choices, observation)

    def update(state, observation, action, feedback):
        seen = observation.observation if isinstance(observation, Masked) else observation
        x, y, observed = choices.evidence(seen, action, feedback)

        def loss_of(params):
            response = network.apply(params, x)
            innovation = jnp.atleast_1d(y - (response if observed is None else response[observed]))
            return 0.5 * jnp.sum(innovation**2), innovation

        def descend(carry, _):
            (loss, innovation), gradients = jax.value_and_grad(loss_of, has_aux=True)(carry.params)
            updates, optimizer_state = transform.update(gradients, carry.optimizer, carry.params, value=loss)
            return NeuralState(optax.apply_updates(carry.params, updates), optimizer_state), (loss, innovation)

        fresh, (losses, innovations) = jax.lax.scan(descend, state, length=inner_steps)
        good = jnp.isfinite(losses[0]) & jnp.all(
            jnp.stack([jnp.all(jnp.isfinite(p)) for p in jax.tree.leaves(fresh.params)])
        )
        kept = jax.tree.map(lambda new, old: jnp.where(good, new, old), fresh, state)
        return kept, NeuralInfo(innovations[0], losses[0], ~good)

    return Agent(
        init, act, update, name, acquisition.exact, {"policy": called, "inner_steps": inner_steps, **(settings or {})}
    )


def _no_uncertainty(_):
    raise TypeError("a plain network has no uncertainty")
