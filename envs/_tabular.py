"""Tables as bandits: a step shows a row, an action is an arm; all expected rewards are known.

Source: Riquelme, Tucker, Snoek, Deep Bayesian Bandits Showdown, ICLR 2018.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete

from seqdec import data
from seqdec.boundary import checks
from seqdec.boundary.checks import keyed
from seqdec.core import Array, Environment, Key, PyTree, TimeStep
from seqdec.data.tabular import Root, standardize
from seqdec.envs._classification import State as Place
from seqdec.envs._classification import choose
from seqdec.envs.outcomes import in_range, reward_and_regret


class Rows(NamedTuple):
    features: Array
    rewards: Array
    spread: Array | None


class Market(NamedTuple):
    features: Array
    """(n, d) float32 standardized moves, observed."""
    moves: Array
    """(n, d) float32 moves, for the rewards."""
    noise_std: Array
    """()"""


class State(NamedTuple):
    place: Place
    drawn: PyTree


def tables() -> tuple[str, ...]:
    """Names of the environments made from tables."""
    return ("adult", "census", "covertype", "financial", "jester", "mushroom", "statlog")


def tabular(
    table: data.Table, *, order: str = "shuffle", horizon: int | None = None, name: str = "tabular"
) -> Environment:
    """Rows of a table as contexts, its rewards as those of the arms.

    Args:
        table: features (n, d), expected rewards (n, k) and their spread.
        order: as in `seqdec.envs.classification`.
        horizon: steps of an episode; None is one pass, n.
        name: shown in tables and figures.

    Raises:
        ValueError, TypeError: misshapen or not finite arrays, or an unknown option.
    """
    features, rewards = checks.array("features", table.features, 2), checks.array("rewards", table.rewards, 2)
    spread = None if table.spread is None else checks.array("spread", table.spread, 2)
    shapes = {rewards.shape} if spread is None else {rewards.shape, spread.shape}
    if len(rewards) != len(features) or len(shapes) > 1:
        raise ValueError(f"{len(features)} rows of features need as many rewards; got {shapes} for rewards and spread")

    def pay(key: Key, params: Rows, shown: Array, expected: Array) -> Array:
        if params.spread is None:
            return expected
        return expected + params.spread[shown] * jax.random.rademacher(key, (), jnp.float32)

    def expect(params: Rows, drawn: None, shown: Array) -> Array:
        return params.rewards[shown]

    params = Rows(features, rewards, spread)
    return _environment(name, params, rewards.shape[1], order, horizon, lambda key, params: None, expect, pay)


def mushroom(*, root: Root = None, horizon: int = 50_000) -> Environment:
    """Mushrooms drawn with replacement, to eat (1) or not (0); `root` as in `seqdec.data.load_mushroom`."""
    return tabular(data.load_mushroom(root), order="replacement", horizon=horizon, name="mushroom")


def adult(*, root: Root = None, order: str = "shuffle") -> Environment:
    """Predict the occupation (of 14) of 30,718 people from a census; `root` as in `seqdec.data.load_adult`."""
    return tabular(data.load_adult(root), order=order, name="adult")


def statlog(*, root: Root = None, order: str = "shuffle") -> Environment:
    """Predict the state (of 7) of a space shuttle from nine numbers; `root` as in `seqdec.data.load_statlog`."""
    return tabular(data.load_statlog(root), order=order, name="statlog")


def covertype(*, root: Root = None, order: str = "shuffle") -> Environment:
    """Predict the forest cover type (of 7) from 54 numbers; `root` as in `seqdec.data.load_covertype`."""
    return tabular(data.load_covertype(root), order=order, name="covertype")


def census(*, root: Root = None, order: str = "shuffle") -> Environment:
    """Predict the occupation class (of 9) from the US census of 1990; `root` as in `seqdec.data.load_census`."""
    return tabular(data.load_census(root), order=order, name="census")


def jester(*, root: Root = None, order: str = "shuffle") -> Environment:
    """Choose one of eight jokes; the reward is its rating; `root` as in `seqdec.data.load_jester`."""
    return tabular(data.load_jester(root), order=order, name="jester")


def financial(
    *, root: Root = None, num_arms: int = 8, noise_std: float = 0.01, order: str = "shuffle", horizon: int | None = None
) -> Environment:
    """Portfolios of 21 stocks: arm a pays w_a . (the day's price moves) + N(0, noise_std^2).

    The weights w_a are uniform in [-1, 1], scaled to norm 1, and drawn for each run. Observations are the standardized
    moves. `root` as in `seqdec.data.load_stocks`; `order`, `horizon` as in `tabular`. Raises ValueError or TypeError
    for options out of range.
    """
    moves = data.load_stocks(root)
    num_arms = checks.count("num_arms", num_arms, 2)
    params = Market(jnp.asarray(standardize(moves)), jnp.asarray(moves), checks.array("noise_std", noise_std, 0, 0.0))

    def draw(key: Key, params: Market) -> Array:
        weights = jax.random.uniform(key, (params.moves.shape[1], num_arms), jnp.float32, -1, 1)
        return weights / jnp.linalg.norm(weights, axis=0, keepdims=True)

    def expect(params: Market, drawn: Array, shown: Array) -> Array:
        return params.moves[shown] @ drawn

    def pay(key: Key, params: Market, shown: Array, expected: Array) -> Array:
        return expected + params.noise_std * jax.random.normal(key, expected.shape, jnp.float32)

    return _environment("financial", params, num_arms, order, horizon, draw, expect, pay)


def _environment(
    name: str,
    params: Any,
    num_arms: int,
    order: str,
    horizon: int | None,
    draw: Callable[[Key, Any], PyTree],
    expect: Callable[[Any, PyTree, Array], Array],
    pay: Callable[[Key, Any, Array, Array], Array],
) -> Environment:
    """Rows of `params.features` in some order.

    `draw` (key, params) -> constants of a run; `expect` (params, drawn, row) -> expected rewards (k,); `pay` (key,
    params, row, expected) -> rewards (k,).
    """
    checks.choice("order", order, ("shuffle", "sequential", "replacement"))
    count, width = params.features.shape
    length = count if horizon is None else checks.count("horizon", horizon, 1)

    @keyed
    def reset(key: Key, params: Any) -> tuple[State, Array]:
        row_key, draw_key = jax.random.split(key)
        start = jnp.arange(count, dtype=jnp.int32) if order == "shuffle" else None
        place = choose(row_key, jnp.int32(0), start, count, order)
        return State(place, draw(draw_key, params)), params.features[place.shown]

    @keyed
    def step(key: Key, state: State, action: Array, params: Any) -> tuple[State, TimeStep]:
        pay_key, row_key = jax.random.split(key)
        expected = expect(params, state.drawn, state.place.shown)
        paid = pay(pay_key, params, state.place.shown, expected)
        reward, regret = reward_and_regret(action, expected, paid[in_range(action, num_arms)])
        done = state.place.step + 1 >= length
        following = jnp.where(done, 0, state.place.step + 1)
        place = choose(row_key, following, state.place.order, count, order)
        return State(place, state.drawn), TimeStep(params.features[place.shown], reward, regret, done)

    bound = float(np.abs(np.asarray(params.features)).max())
    space = Box(-bound, bound, (width,), np.float32)
    return Environment(reset, step, params, space, Discrete(num_arms), name)
