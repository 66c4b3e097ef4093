"""Reward and regret of one of finitely many actions."""

import jax.numpy as jnp

from seqdec.core import Array


def reward_and_regret(action: Array, expected: Array, reward: Array, mask: Array | None = None) -> tuple[Array, Array]:
    """(reward, regret) of `action` (); regret = best allowed of `expected` (n,) - expected[action].

    `reward` () belongs to an allowed action. Both are NaN if the action is out of range or not in `mask` (n,) bool.
    """
    allowed = jnp.ones_like(expected, bool) if mask is None else mask
    index = in_range(action, expected.shape[0])
    valid = (index == action) & allowed[index]
    best = jnp.max(jnp.where(allowed, expected, -jnp.inf))
    return jnp.where(valid, reward, jnp.nan), jnp.where(valid, best - expected[index], jnp.nan)


def in_range(action: Array, num_actions: int) -> Array:
    """The nearest valid index; TypeError for an action that is not a single integer."""
    action = jnp.asarray(action)
    if action.shape != () or not jnp.issubdtype(action.dtype, jnp.integer):
        raise TypeError(f"an action must be a () integer array; got {action.dtype} of shape {action.shape}")
    return jnp.clip(action, 0, num_actions - 1)
