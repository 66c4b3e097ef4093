"""Logs of a recommender as bandits: the candidates of a block are the actions, and the reward of each is known.

An observation is a dict with a row per candidate: row numbers of users and videos (`int32`) and any features. Shorter
blocks have a mask. `params` holds the log, once for all seeds.
"""

import os
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Space

from seqdec.boundary import checks
from seqdec.boundary.checks import keyed
from seqdec.core import Array, Environment, Key, Masked, PyTree, TimeStep
from seqdec.data import (
    RecommenderLog,
    check_log,
    load_kuairec,
    load_open_bandit,
    load_random_exposures,
    synthetic_kuairec,
)
from seqdec.envs.outcomes import in_range, reward_and_regret


class Blocks(NamedTuple):
    """A `RecommenderLog` on the device."""

    rewards: Array
    """(blocks, n)"""
    mask: Array | None
    """(blocks, n) bool; None if all are full"""
    ids: dict[str, Array]
    """(blocks, n) int32 each"""
    features: Array | None
    """(m, f)"""
    feature_rows: Array | None
    """(blocks, n) int32"""


class State(NamedTuple):
    """Position in the log."""

    step: Array
    """() int32 steps of this pass"""
    order: Array | None
    """(blocks,) int32 for order="shuffled", of this seed"""


def recommender_log(
    log: RecommenderLog, *, order: str = "chronological", standardize: bool = True, horizon: int | None = None
) -> Environment:
    """Replay the blocks of `log`: an action is the place of a candidate, its reward is in the log.

    The regret is the best reward of the block minus the action's. An episode is `horizon` blocks, by default all, and
    begins a new pass. `order`: "chronological", or "shuffled", random for each seed and the same for every agent.
    `standardize` gives each feature mean 0 and deviation 1 over the candidates of the first day, or the first tenth.

    Raises ValueError for a log that cannot be replayed (`seqdec.data.check_log`) or an unknown order.
    """
    checks.choice("order", order, ("chronological", "shuffled"))
    log = check_log(log)
    count, num_candidates = log.rewards.shape
    length = count if horizon is None else checks.count("horizon", horizon, 1)
    features = None if log.features is None else _standardized(log) if standardize else log.features
    blocks = Blocks(
        jnp.asarray(np.where(log.candidates, log.rewards, 0)),
        None if log.candidates.all() else jnp.asarray(log.candidates),
        {name: jnp.asarray(rows) for name, rows in log.ids.items()},
        None if features is None else jnp.asarray(features),
        None if features is None else jnp.asarray(log.feature_rows),
    )

    def place(state: State) -> Array:
        position = state.step % count
        return position if state.order is None else state.order[position]

    def show(state: State, params: Blocks) -> PyTree:
        block = place(state)
        observation = {name: rows[block] for name, rows in params.ids.items()}
        if params.features is not None and params.feature_rows is not None:
            observation["features"] = params.features[params.feature_rows[block]]
        return observation if params.mask is None else Masked(observation, params.mask[block])

    @keyed
    def reset(key: Key, params: Blocks) -> tuple[State, PyTree]:
        shuffled = jax.random.permutation(key, jnp.arange(count, dtype=jnp.int32)) if order == "shuffled" else None
        state = State(jnp.int32(0), shuffled)
        return state, show(state, params)

    @keyed
    def step(key: Key, state: State, action: Array, params: Blocks) -> tuple[State, TimeStep]:
        block = place(state)
        rewards, mask = params.rewards[block], None if params.mask is None else params.mask[block]
        reward, regret = reward_and_regret(action, rewards, rewards[in_range(action, num_candidates)], mask)
        done = state.step + 1 >= length
        state = state._replace(step=jnp.where(done, 0, state.step + 1))
        return state, TimeStep(show(state, params), reward, regret, done)

    spaces: dict[str, Space] = {name: _rows_space(len(log.labels[name]), num_candidates) for name in log.ids}
    if features is not None:
        low, high = (np.tile(bound, (num_candidates, 1)) for bound in (features.min(0), features.max(0)))
        spaces["features"] = Box(low, high, dtype=np.float32)
    return Environment(reset, step, blocks, Dict(spaces), Discrete(num_candidates), log.name)


def _rows_space(size: int, num_candidates: int) -> Box:
    return Box(0, size - 1, (num_candidates,), np.int32)


def _standardized(log: RecommenderLog) -> np.ndarray:
    """Features by mean and deviation of the first blocks."""
    assert log.features is not None and log.feature_rows is not None
    early = len(log.rewards) // 10 + 1 if log.days is None else np.searchsorted(log.days, log.days[0], "right")
    known = log.features[log.feature_rows[:early][log.candidates[:early]]].astype(np.float64)
    std = known.std(0)
    return ((log.features - known.mean(0)) / np.where(std > 0, std, 1)).astype(np.float32)


def kuairec(
    *,
    data: str | os.PathLike[str] | None = None,
    matrix: str = "small_matrix.csv",
    feature_lag: int = 1,
    keep_short: bool = False,
    order: str = "chronological",
    standardize: bool = True,
    horizon: int | None = None,
) -> Environment:
    """KuaiRec: choose one of a user's next ten videos; reward log(1 + watch_ratio). Without `data`, a SYNTHETIC log.

    Options as in `seqdec.data.load_kuairec`, or `seqdec.data.synthetic_kuairec`, and in `recommender_log`.
    """
    if data is None:
        log = synthetic_kuairec(keep_short=keep_short)
    else:
        log = load_kuairec(data, matrix=matrix, feature_lag=feature_lag, keep_short=keep_short)
    return recommender_log(log, order=order, standardize=standardize, horizon=horizon)


def random_exposures(
    *, path: str | os.PathLike[str] | None = None, order: str = "shuffled", horizon: int | None = None
) -> Environment:
    """Real watch ratios of randomly shown videos of KuaiRec: 1,411 users x 83 of 2,519 videos, no features, no time.

    `path` as in `seqdec.data.load_random_exposures`; options as in `recommender_log`.
    """
    return recommender_log(load_random_exposures(path), order=order, horizon=horizon)


class Impressions(NamedTuple):
    """Contexts, shown items and clicks."""

    context: Array
    """(n, d) float32"""
    item: Array
    """(n,) int32"""
    click: Array
    """(n,) float32"""


def open_bandit(*, root: str | os.PathLike[str] | None = None) -> Environment:
    """The Open Bandit log of the uniform policy, replayed: 80 items, reward 1 for a click, NaN for items not shown.

    The mean of the known rewards is an unbiased estimate of the agent's mean reward in as many steps. An episode is one
    pass in the order of time; regret is unknown. `root` as in `seqdec.data.load_open_bandit`.

    Source: Li, Chu, Langford, Wang, Unbiased offline evaluation of contextual-bandit-based news article recommendation
    algorithms, 2011.
    """
    log = load_open_bandit("random", root)
    count, num_items = log.item_features.shape[:2]

    @keyed
    def reset(key: Key, params: Impressions) -> tuple[Array, Array]:
        return jnp.int32(0), params.context[0]

    @keyed
    def step(key: Key, state: Array, action: Array, params: Impressions) -> tuple[Array, TimeStep]:
        agrees = (in_range(action, num_items) == action) & (action == params.item[state])
        reward = jnp.where(agrees, params.click[state], jnp.nan)
        done = state + 1 >= count
        state = jnp.where(done, 0, state + 1)
        return state, TimeStep(params.context[state], reward, jnp.full_like(reward, jnp.nan), done)

    params = Impressions(
        jnp.asarray(log.context), jnp.asarray(log.item, jnp.int32), jnp.asarray(log.click, jnp.float32)
    )
    space = Box(0.0, 1.0, log.context.shape[1:], np.float32)
    return Environment(reset, step, params, space, Discrete(num_items), "open-bandit")
