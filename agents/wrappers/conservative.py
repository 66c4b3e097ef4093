r"""Conservative: an agent that earns, in sum, at least a share of what a control arm would have earned.

With rewards in [0, 1], m(x) the control arm's mean reward in a context, and q the agent's own probabilities,

    sum_t E r_t >= (1 - loss) sum_t m(x_t)   at all t, with probability `level`

    p_t = h_t control + (1 - h_t) q,    h_t = 1 - loss - g_t >= share

With g_t = 0 the bound holds whatever q is; else a decision may lose g_t. The budget, a lower bound of the sum of
E r - (1 - loss) m(x) over the decisions that were learned, has to pay for all others, which are the `late` ones without
a learned reward, and this one. The largest g that half of a budget has paid for so far is played while the whole one
pays for it, and 0 otherwise. With c the mean reward of the control arm so far, the terms

    z = r - (1 - loss) (c + (r - c) 1[played control] / p(control))

have the means E r - (1 - loss) m(x), whatever contexts, rewards and q do, and are at least -b for
b = max(1 - loss, (1 - loss) / share - 1). As in `seqdec.ope.sequences`, with the weights w_j of rates s_j,

    budget = sum z - min_j (b log(1 / (w_j (1 - level))) + sum z^2 psi(s_j) / b) / s_j,   psi(s) = -log(1 - s) - s

Sources: Wu, Shariff, Lattimore, Szepesvari, "Conservative bandits", 2016; Fan, Grama, Liu, "Exponential inequalities
for martingales with applications", 2015.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from seqdec.agents.inputs import checked
from seqdec.agents.wrappers.laws import redrawn
from seqdec.boundary import checks
from seqdec.core import Action, Agent, Array

_RATES = 0.9 * 2.0 ** -np.arange(20)
_PRIOR = np.log(np.arange(1, 21) * np.arange(2, 22.0))
_PRICE = (-np.log1p(-_RATES) - _RATES) / _RATES
_RECENT = 10_000
"""Plays of the control arm that its mean remembers."""
_EXACT = 1e-3
"""Relative error of a propensity, at most."""


class Account(NamedTuple):
    """Sums, as pairs of a float and its rounding error."""

    total: tuple[Array, Array]
    """of z"""
    squares: tuple[Array, Array]
    """of z^2"""
    usual: Array
    """() c"""
    plays: Array
    """() int, of the control arm"""
    lent: Array
    """() largest g so far"""
    held: Array
    """() h"""


class Conservative(NamedTuple):
    """State of an agent, and its reward beyond the bound."""

    state: Any
    """of the agent"""
    account: Account


def conservative(
    agent: Agent,
    *,
    control: int = 0,
    loss: float = 0.1,
    share: float = 0.1,
    late: int = 0,
    largest_reward: float = 1.0,
    level: float = 0.95,
) -> Agent:
    """`agent` that earns, in sum, at least 1 - loss of what the control arm would have earned.

    Wrap others inside: this law has to be the one that is played. Its `update` counts lessons with their propensities,
    an `Action` in place of its value, as `seqdec.run` and `OnlineAgent` pass them; others are learned, but not counted.

    >>> from seqdec import agents, envs
    >>> agents.conservative(agents.linear(envs.linear()), loss=0.05).name
    'linear-conservative'

    Args:
        agent: agent with finitely many actions and `Agent.assess`.
        control: index of the control arm. Where it is not allowed the agent decides, and control counts with its mean.
        loss: share of the control arm's rewards that may be lost, in (0, 1).
        share: share of decisions kept for the control arm, to measure it; in (0, 1 - loss).
        late: largest number of earlier decisions whose reward has not been learned. When a reward is learned may depend
            on anything but the reward: collect rewards for a fixed time if large ones come early.
        largest_reward: largest possible reward. The smallest is 0; rewards beyond are clipped.
        level: probability with which the bound holds at all times together.

    Raises ValueError for a setting out of range, or an agent without probabilities.
    """
    for name, value, most in (("loss", loss, 1.0), ("share", share, 1.0 - loss), ("level", level, 1.0)):
        checks.number(name, value, 0, most, exclusive=True)
    checks.positive("largest_reward", largest_reward)
    control, late = checks.count("control", control, 0), checks.count("late", late, 0)
    where = agent.spaces
    if where is not None and isinstance(where.action_space, spaces.Discrete) and control >= where.action_space.n:
        raise ValueError(f"control={control} must be one of the {where.action_space.n} actions, from 0")
    kept, bound = 1 - loss, max(1 - loss, (1 - loss) / share - 1)
    cost = bound * (_PRIOR - math.log(1 - level)) / _RATES

    def law(state, allowed, own):
        held = state.account.held
        return jnp.where(allowed[control], (1 - held) * own + held * (jnp.arange(len(own)) == control), own)

    def init(key):
        zero = jnp.zeros(()), jnp.zeros(())
        return Conservative(agent.init(key), Account(zero, zero, *map(jnp.asarray, (0.0, 0, 0.0, kept))))

    def counted(account, lesson):
        """The account with one lesson, unless it was rejected or has no propensity of this law."""
        value, propensity, feedback, rejected = lesson
        reward, played = jnp.clip(feedback / largest_reward, 0, 1), value == control
        if reward.ndim:
            z, told = reward[value] - kept * reward[control], True
        else:
            correction = jnp.where(played, (reward - account.usual) / jnp.maximum(propensity, share), 0)
            z = reward - kept * (account.usual + correction)
            told = propensity >= jnp.where(played, (1 - _EXACT) * share, 0)
            played &= told
        z = jnp.where(told & ~rejected, z, 0.0)
        plays = account.plays + (played & ~rejected)
        own = reward[control] if reward.ndim else reward
        usual = jnp.where(played & ~rejected, (own - account.usual) / jnp.minimum(plays, _RECENT), 0)
        total, squares = _plus(account.total, z), _plus(account.squares, z * z)
        each = (total[0] - jnp.min(cost + squares[0] * (_PRICE / bound))) / (late + 1)
        lent = jnp.clip(each / 2, account.lent, kept - share)
        return Account(total, squares, account.usual + usual, plays, lent, kept - jnp.where(each >= lent, lent, 0))

    def update(state, observation, action, feedback):
        value, propensity = _parts(action)
        inner, info = agent.update(state.state, observation, value, feedback)
        if value is None:
            return Conservative(inner, state.account), info
        lesson = value, propensity, jnp.asarray(feedback), jnp.any(info.rejected)
        return Conservative(inner, counted(state.account, lesson)), info

    def update_batch(state, observations, actions, rewards):
        assert agent.update_batch is not None
        values, propensities = _parts(actions)
        inner, info = agent.update_batch(state.state, observations, values, rewards)
        lessons = values, jnp.broadcast_to(propensities, values.shape), rewards, info.rejected
        account, _ = jax.lax.scan(lambda account, lesson: (counted(account, lesson), None), state.account, lessons)
        return Conservative(inner, account), info

    own = {"control": control, "loss": loss, "share": share, "late": late}
    made = redrawn(agent, law, "conservative", lambda state: state.state)._replace(
        init=init,
        update=update,
        settings={**agent.settings, **own, "largest_reward": largest_reward, "level": level},
        update_batch=None if agent.update_batch is None else update_batch,
        weighted=True,
    )
    return made if where is None else checked(made, where)


def _parts(action: Any) -> tuple[Any, Any]:
    """Value and propensity, NaN if unknown."""
    return (action.value, action.propensity) if isinstance(action, Action) else (action, jnp.nan)


def _plus(pair: tuple[Array, Array], x: Array) -> tuple[Array, Array]:
    """The sum of three numbers, and what it lacks (Knuth)."""
    high, low = pair
    x = x + low
    total = high + x
    part = total - high
    return total, (high - (total - part)) + (x - part)
