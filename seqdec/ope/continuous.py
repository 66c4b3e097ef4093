"""Policies of numbers as actions, learned from a log by gradients.

With w = K((a - pi(x)) / h) / (h density), K the standard normal density, r the rewards less the mean of those learned
from, and q(x, a) predicted rewards, `learn_continuous` maximizes the objectives of `seqdec.ope.gradients`, where
pi(. | x) is the one action

    pi(x) = low + (high - low) sigmoid(f(x) + c),

f a network, low and high the ends of the logged actions, and c such that f = 0 plays their mean. The gradient reaches
f through w, which mixes the rewards of actions within a few h: pi is the best policy of rewards smoothed by h.

References:
    Kallus, Zhou, "Policy evaluation and optimization with continuous treatments", 2018.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from gymnasium import spaces as gym_spaces

from seqdec.boundary import checks
from seqdec.boundary.spaces import spaces_of
from seqdec.core import Agent, Array, HasSpaces, PyTree, Spaces
from seqdec.modules import Model
from seqdec.ope.estimators.continuous import ContinuousLog
from seqdec.ope.gradients import MODELED, OBJECTIVES, ascent_of, maximize, network_of
from seqdec.ope.learned import deterministic, standardized_inputs
from seqdec.ope.log import folds_of


class _Rows(NamedTuple):
    x: Any
    action: Any
    """(n,) in standard units, as density and bandwidth"""
    reward: Any
    density: Any
    own: Any
    """(n,) predicted rewards of logged actions"""
    predicted: Any
    """(n, 3) of 1, a, a^2: predicted rewards of all actions"""


def learn_continuous(
    log: ContinuousLog,
    *,
    seed: int,
    objective: str = "dr",
    bandwidth: float | None = None,
    model: Model | None = None,
    optimizer: optax.GradientTransformation | None = None,
    spaces: HasSpaces | None = None,
    held_out: float = 0.2,
    batch_size: int = 64,
    max_epochs: int = 200,
    patience: int = 20,
) -> Agent:
    """A deterministic policy of one number that maximizes a kernel estimate of its value.

    It stays within the range of the logged actions. A constant added to all rewards, or their unit, changes nothing.

    >>> import jax
    >>> import numpy as np
    >>> from seqdec import ope
    >>> a = np.linspace(0, 4, 100)
    >>> log = ope.make_continuous_log(action=a, reward=-((a - 3) ** 2), density=np.full(100, 0.25))
    >>> agent = ope.learn_continuous(log, seed=0)
    >>> agent.act(jax.random.key(0), (), np.zeros(0)).value.round(1)
    Array([3.], dtype=float32)

    Args:
        log: from `make_continuous_log`, with at least two different actions.
        seed: seed for initial parameters, held-out rows, minibatches and folds of the reward model.
        objective: one of `OBJECTIVES`; "dr" and "dm" predict rewards by cross-fitted ridge regression on contexts times
            1, a and a^2.
        bandwidth: h > 0, in units of the action; None: the deviation of the actions times n^(-1/5).
        model: flax module or `seqdec.models.Network` from an observation to (1,) number f(x); None: as in `learn`.
        optimizer, held_out, batch_size, max_epochs, patience: as in `learn`.
        spaces: the agent's observation_space (a Box) and action_space (a Box of one number); None: a Box of a row of
            contexts, and the range of the logged actions.

    Raises:
        TypeError: not such a log; a model, an optimizer or spaces of another kind.
        ValueError: equal actions; spaces or a network that do not fit, a setting out of range, or a held-out objective
            that is not finite.
    """
    checks.choice("objective", objective, OBJECTIVES)
    own, low, high = _spaces_for(log, spaces)
    if bandwidth is not None:
        checks.positive("bandwidth", bandwidth)
    ascent = ascent_of(len(log), seed, optimizer, held_out, batch_size, max_epochs, patience)
    scaled, center, scale = standardized_inputs(log.context.astype(np.float32), own)
    net = network_of(model, scaled[0], 1)
    middle, spread = log.reward[ascent.learned].mean(), log.reward[ascent.learned].std() or 1.0
    mean, unit = log.action.mean(), log.action.std()
    h = len(log) ** -0.2 if bandwidth is None else bandwidth / unit
    action, reward = (log.action - mean) / unit, (log.reward - middle) / spread
    q = _predicted(log, scaled, action, reward, ascent.seed) if objective in MODELED else np.zeros((len(log), 3))
    parts = action, reward, log.density * unit, (q * _powers(action)).sum(axis=1), q
    whole = _Rows(scaled, *(part.astype(np.float32) for part in parts))
    least, most = float(action.min()), float(action.max())
    start, goal = math.log(-least / most), OBJECTIVES[objective]

    def play(params: PyTree, x: Array) -> Array:
        return least + (most - least) * jax.nn.sigmoid(net.apply(params, x)[0] + start)

    def value(params: PyTree, rows: _Rows) -> Array:
        played = jax.vmap(play, (None, 0))(params, rows.x)
        direct = jnp.sum(rows.predicted * jnp.stack([jnp.ones_like(played), played, played**2], axis=1), axis=1)
        w = jax.scipy.stats.norm.pdf(rows.action, played, h) / rows.density
        above, below = goal(w, rows.reward, rows.own, direct)
        return jnp.sum(above) / jnp.sum(below)

    best = maximize(value, net, whole, ascent)
    center, scale = jnp.asarray(center), jnp.asarray(scale)
    settings = {"objective": objective, "bandwidth": float(h * unit), "rows": len(log), "seed": ascent.seed}
    return deterministic(
        lambda x: jnp.clip(mean + unit * play(best, (x - center) / scale), low, high), own, settings, log
    )


def _spaces_for(log: Any, spaces: HasSpaces | None) -> tuple[Spaces, np.float32, np.float32]:
    """The agent's spaces, and the range of the logged actions."""
    if not isinstance(log, ContinuousLog):
        raise TypeError(
            f"log must be a seqdec.ope.ContinuousLog, of make_continuous_log; got {type(log).__name__}: for a Log of "
            "Discrete actions, take seqdec.ope.learn"
        )
    if log.action.ndim > 1:
        raise ValueError(
            f"actions of the log have {log.action.shape[1]} numbers; only actions of one number can be learned"
        )
    low, high = log.action.min(), log.action.max()
    ends = np.nextafter(np.float32(low), np.float32(high)), np.nextafter(np.float32(high), np.float32(low))
    if not ends[0] < ends[1]:
        raise ValueError(f"the actions of the log are all {low:.6g}: nothing can be learned from them")
    size = log.context.shape[1]
    if spaces is None:
        return Spaces(
            gym_spaces.Box(-np.inf, np.inf, (size,), np.float32), gym_spaces.Box(*ends, (1,), np.float32)
        ), *ends
    seen, actions = own = spaces_of(spaces)
    if not isinstance(seen, gym_spaces.Box) or not isinstance(actions, gym_spaces.Box):
        raise TypeError(f"spaces must have Box observations and Box actions; got {seen} and {actions}")
    if math.prod(seen.shape) != size or math.prod(actions.shape) != 1 or actions.dtype.kind != "f":
        raise ValueError(
            f"spaces must have observations of {size} numbers and one real number as action, as the log; got {seen} "
            f"and {actions}"
        )
    if not (actions.low <= ends[0]).all() or not (ends[1] <= actions.high).all():
        raise ValueError(f"actions of the log lie between {low:.6g} and {high:.6g}, beyond {actions}")
    return own, *ends


def _powers(action: np.ndarray) -> np.ndarray:
    return np.vander(action, 3, increasing=True)


def _predicted(log: ContinuousLog, x: np.ndarray, action: np.ndarray, reward: np.ndarray, seed: int) -> np.ndarray:
    """(n, 3) cross-fitted coefficients of 1, a, a^2, linear in x."""
    from sklearn.linear_model import Ridge

    count, folds = len(log), min(5, len(log))
    own = np.concatenate([np.ones((count, 1)), x.reshape(count, -1)], axis=1)
    design = (own[:, :, None] * _powers(action)[:, None]).reshape(count, -1)
    member, found = folds_of(log, folds, seed), np.zeros((count, 3))
    for fold in range(folds):
        at = member == fold
        weights = Ridge(fit_intercept=False).fit(design[~at], reward[~at]).coef_
        found[at] = own[at] @ weights.reshape(-1, 3)
    return found
