r"""Guarded: an agent that keeps the share of each arm between a floor and a ceiling.

    p(a) = min(max(tau q(a), floor_a), ceiling_a),    sum_a p(a) = 1

with q the agent's own probabilities of the n allowed actions, raised to at least 1e-6 / n. Actions are drawn from p
itself, so that propensities are exact.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from seqdec.agents.inputs import checked
from seqdec.agents.wrappers.laws import redrawn
from seqdec.boundary import checks
from seqdec.core import Agent

_LEAST = 1e-6
_RANGE, _STEPS = 20.0, 40
"""Of log(tau), and halvings of it."""


def guarded(agent: Agent, *, floor: Any = 0.0, ceiling: Any = 1.0) -> Agent:
    """`agent` with bounds of the propensities.

    >>> from seqdec import agents, envs
    >>> agents.guarded(agents.linear(envs.linear()), floor=0.05).name
    'linear-guarded'

    Args:
        agent: agent with finitely many actions and `Agent.assess`.
        floor: smallest probability of an allowed action: a number, or one for each of the first actions, 0 for others.
        ceiling: largest probability likewise, 1 for others; ignored where the allowed actions cannot reach 1 together.

    Raises ValueError for floors or ceilings that no distribution satisfies, or an agent without probabilities.
    """
    low, high = _bounds("floor", floor), _bounds("ceiling", ceiling)
    known = agent.spaces is not None and isinstance(agent.spaces.action_space, spaces.Discrete)
    _of_all(low, high, int(agent.spaces.action_space.n) if known else max(low.size, high.size))  # pyright: ignore

    def law(state, allowed, own):
        least, most = (bound * allowed for bound in _of_all(low, high, len(own)))
        most = jnp.where(most.sum() < 1, allowed, most)
        q = (1 - _LEAST) * own + _LEAST * allowed / jnp.maximum(allowed.sum(), 1)

        def kept(log_tau):
            return jnp.clip(jnp.exp(log_tau) * q, least, most)

        def halved(_, ends):
            middle = (ends[0] + ends[1]) / 2
            return jax.tree.map(
                lambda a, b: jnp.where(kept(middle).sum() < 1, a, b), (middle, ends[1]), (ends[0], middle)
            )

        first, last = jax.lax.fori_loop(0, _STEPS, halved, (jnp.full((), -_RANGE), jnp.full((), _RANGE)))
        p = kept((first + last) / 2)
        left = 1 - p.sum()
        slack = jnp.where(left > 0, most - p, p - least)
        return p.at[slack.argmax()].add(left)

    made = redrawn(agent, law, "guarded")
    settings = {**agent.settings, "floor": floor, "ceiling": ceiling}
    made = made._replace(settings=settings)
    return made if agent.spaces is None else checked(made, agent.spaces)


def _bounds(name: str, given: Any) -> np.ndarray:
    """() or (m,) in [0, 1]. Raises ValueError, TypeError."""
    found = np.asarray(checks.numbers(name, given), np.float32)
    if found.ndim > 1 or not found.size or not ((found >= 0) & (found <= 1)).all():
        raise ValueError(f"{name} must be a number from 0 to 1, or one for each action; got {given}")
    return found


def _of_all(low: np.ndarray, high: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of n actions. Raises ValueError where no probabilities keep them."""
    if max(low.size, high.size) > n:
        raise ValueError(f"{max(low.size, high.size)} bounds are given, for {n} actions")
    least, most = (
        np.full(n, one) if not one.ndim else np.append(one, np.full(n - one.size, other, np.float32))
        for one, other in ((low, 0.0), (high, 1.0))
    )
    if (least > most).any() or least.sum() > 1 + _LEAST:
        raise ValueError(f"no probabilities of {n} actions satisfy floor={low.tolist()} and ceiling={high.tolist()}")
    return least, most
