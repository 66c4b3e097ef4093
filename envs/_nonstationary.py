"""Environments made of another: permuted actions, drifting expected rewards, outliers.

A change costs O(actions).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Discrete

from seqdec.boundary import checks
from seqdec.boundary.checks import keyed
from seqdec.core import Array, Environment, Key, Masked, PyTree, TimeStep
from seqdec.envs.outcomes import in_range
from seqdec.envs.registry import resolve


class Changing(NamedTuple):
    params: PyTree
    change_points: Array
    """(k,) int32, increasing: first steps of regimes."""
    drift_std: Array
    """() standard deviation of a step of the expected rewards."""


class State(NamedTuple):
    env: PyTree
    params: PyTree
    """Drifted; None if actions are permuted."""
    permutation: Array
    """(n,) int32: action a is permutation[a] of the inner environment."""
    step: Array
    """() int32 steps since reset, over all episodes."""


def nonstationary(
    env: Environment, change_points: Sequence[int], *, kind: str = "permute", drift_std: float | None = None
) -> Environment:
    """`env` with a new regime from each of `change_points` on: steps from 0 at reset, through all episodes.

    kind="permute": all n actions (labels) are permuted along a random cycle, and none keeps its place.
    kind="drift": expected rewards (of linear arms: weights) take a Gaussian step of standard deviation `drift_std`, by
    default 0.1; where the params are data, two random actions are exchanged instead.

    Regret refers to the current regime. Raises TypeError unless the actions are Discrete, and ValueError for change
    points that do not increase from 1 on or a `drift_std` that is negative or without effect.
    """
    if not isinstance(env.action_space, Discrete) or env.action_space.n < 2:
        raise TypeError(f"only environments with two or more Discrete actions can change; got {env.action_space}")
    checks.choice("kind", kind, ("permute", "drift"))
    walks = kind == "drift" and hasattr(env.params, "drift")
    if drift_std is not None and not walks:
        raise ValueError(f"drift_std={drift_std} has no effect: kind={kind!r} permutes actions of {env.name}")
    params = Changing(
        env.params,
        jnp.asarray(_check_change_points(change_points)),
        checks.array("drift_std", 0.1 if drift_std is None else drift_std, 0, 0.0),
    )
    num_actions = int(env.action_space.n)
    change = _drift if walks else _rearrange(num_actions, num_actions if kind == "permute" else 2)

    @keyed
    def reset(key: Key, params: Changing) -> tuple[State, PyTree]:
        inner, observation = env.reset(key, params.params)
        drifting = params.params if walks else None
        return State(inner, drifting, jnp.arange(num_actions, dtype=jnp.int32), jnp.int32(0)), observation

    @keyed
    def step(key: Key, state: State, action: Array, params: Changing) -> tuple[State, TimeStep]:
        step_key, change_key = jax.random.split(key)
        inner_params = state.params if walks else params.params
        inner, timestep = env.step(step_key, state.env, _translate(action, state.permutation), inner_params)
        now = state.step + 1
        changed = change(change_key, state, params)
        due = jnp.any(now == params.change_points)
        after = jax.tree.map(lambda new, old: jnp.where(due, new, old), changed, (state.params, state.permutation))
        return State(inner, after[0], after[1], now), _rename(timestep, state.permutation, after[1])

    return env._replace(reset=reset, step=step, params=params, name=f"{env.name}-{kind}")


def permuted(
    env: Environment | str = "digits", *, change_points: Sequence[int] = (1_000, 2_000, 3_000, 4_000), **options: Any
) -> Environment:
    """A bandit whose actions are all permuted at each change point; `options` belong to a named `env`."""
    return nonstationary(resolve(env, options), change_points)


def drifting(
    env: Environment | str = "digits",
    *,
    change_points: Sequence[int] = range(250, 5_000, 250),
    drift_std: float | None = None,
    **options: Any,
) -> Environment:
    """A bandit that changes a little at each change point.

    As kind="drift" of `nonstationary`; `options` belong to a named `env`.
    """
    return nonstationary(resolve(env, options), change_points, kind="drift", drift_std=drift_std)


class Corrupted(NamedTuple):
    params: PyTree
    share: Array
    """() probability of an outlier."""


def outliers(env: Environment | str = "digits", *, share: float = 0.05, **options: Any) -> Environment:
    """A bandit with rewards in [0, 1] that a step reports as 1 - reward with probability `share`.

    Outliers are independent; under full information all outcomes of a step are flipped. Regret refers to the true
    rewards. `options` belong to a named `env`.
    """
    env = resolve(env, options)
    params = Corrupted(env.params, checks.array("share", share, 0, 0.0, 1.0))

    @keyed
    def reset(key: Key, params: Corrupted) -> tuple[Any, PyTree]:
        return env.reset(key, params.params)

    @keyed
    def step(key: Key, state: Any, action: Array, params: Corrupted) -> tuple[Any, TimeStep]:
        state, timestep = env.step(key, state, action, params.params)
        flipped = jax.random.uniform(jax.random.fold_in(key, 1), dtype=jnp.float32) < params.share
        reported = timestep._replace(
            reward=1 - timestep.reward, outcomes=None if timestep.outcomes is None else 1 - timestep.outcomes
        )
        return state, jax.tree.map(lambda new, old: jnp.where(flipped, new, old), reported, timestep)

    return env._replace(reset=reset, step=step, params=params, name=f"{env.name}-outliers")


def _drift(key: Key, state: State, params: Changing) -> tuple[PyTree, Array]:
    return state.params.drift(key, params.drift_std), state.permutation


def _rearrange(num_actions: int, moving: int) -> Callable[[Key, State, Changing], tuple[PyTree, Array]]:
    """Permutation along a random cycle of `moving` actions."""

    def change(key: Key, state: State, params: Changing) -> tuple[PyTree, Array]:
        cycle = jax.random.permutation(key, num_actions)[:moving]
        return None, state.permutation.at[cycle].set(state.permutation[jnp.roll(cycle, 1)])

    return change


def _translate(action: Array, permutation: Array) -> Array:
    """The inner environment's index of `action`; -1 if out of range."""
    index = in_range(action, permutation.shape[0])
    return jnp.where(index == action, permutation[index], -1)


def _rename(timestep: TimeStep, before: Array, after: Array) -> TimeStep:
    """`timestep` with outcomes permuted by the step's regime, the mask by the next step's."""
    observation = timestep.observation
    if isinstance(observation, Masked):
        observation = observation._replace(mask=observation.mask[after])
    outcomes = None if timestep.outcomes is None else timestep.outcomes[before]
    return timestep._replace(observation=observation, outcomes=outcomes)


def _check_change_points(change_points: Sequence[int]) -> np.ndarray:
    """(k,) int32, increasing from 1 on."""
    points = np.asarray(checks.as_array("change_points", change_points))
    points = np.asarray(checks.integers("change_points", points if points.size else np.zeros(0, int)))
    if points.ndim != 1 or not len(points) or points[0] < 1 or not (np.diff(points) > 0).all():
        raise ValueError(f"change_points must be one or more steps that increase from 1 on; got {points.tolist()}")
    return points.astype(np.int32)
