"""Functional environments behind gymnasium's interface, one at a time or vectorized, and their registered ids.

A functional environment continues with the next episode; the adapters wait for `reset`. The final observation of an
episode repeats the context of the last action, and the end counts as terminated.
"""

import inspect
import warnings
from collections.abc import Sequence
from copy import copy
from typing import Any, NamedTuple

import gymnasium
import jax
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from seqdec import gymnasium_ids
from seqdec.boundary import checks
from seqdec.core import Array, Environment, Key, Masked, PyTree, TimeStep
from seqdec.envs._check import contract
from seqdec.envs.registry import REGISTRY, make
from seqdec.gymnasium_ids import id_of
from seqdec.portable import portable
from seqdec.runtime import check_process


def register() -> None:
    """Register the environments with gymnasium; a second call does nothing."""
    gymnasium_ids.register(REGISTRY.own())


def make_env(name: str, **options: Any) -> "FunctionalEnv":
    """`seqdec.envs.make(name, **options)` as a gymnasium.Env."""
    return FunctionalEnv(_made(name, options))


def make_vector_env(
    name: str, num_envs: int, autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP, **options: Any
) -> "FunctionalVectorEnv":
    """`num_envs` copies of `seqdec.envs.make(name, **options)` with shared data as a gymnasium VectorEnv."""
    return FunctionalVectorEnv(_made(name, options), num_envs, autoreset_mode=autoreset_mode)


def _made(name: str, options: dict[str, Any]) -> Environment:
    """The environment of an id; TypeError for a missing option, a warning for synthetic data."""
    parameters = inspect.signature(REGISTRY[name]).parameters.values()
    missing = [
        p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD and p.name not in options
    ]
    if missing:
        given = ", ".join(f"{option}=..." for option in missing)
        raise TypeError(f"write gymnasium.make({id_of(name)!r}, {given}); see seqdec.envs.{name.replace('-', '_')}")
    env = make(name, **options)
    if _SYNTHETIC in env.name:
        warnings.warn(
            f"{id_of(name)}: the log is SYNTHETIC, not data of the platform; pass data= the folder of the real log",
            stacklevel=2,
        )
    return env


_SYNTHETIC = "SYNTHETIC"
"""In the names of environments with synthetic data under the name of real data."""


@portable
class FunctionalEnv(gymnasium.Env):
    """A functional environment as a gymnasium.Env.

    `reset()` after the end of an episode continues with the next one; with a seed, or within an episode, it restarts
    the environment. The info holds "regret" if known, "outcomes" under full information, and "action_mask" if actions
    are masked. An unknown reward, NaN, is returned as 0 with "unknown_reward" in the info.

    Raises ValueError for an action out of range or masked out, and ResetNeeded for a step before `reset`.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 (gymnasium's class attribute)

    def __init__(self, env: Environment) -> None:
        check_process()
        contract(env)
        self.env = env
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self._params = jax.device_put(env.params)
        self._begin, self._advance = _programs(env)
        self._course: _Course | None = None
        self._ended = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[PyTree, dict[str, Any]]:
        """The first observation of an episode."""
        super().reset(seed=None if seed is None else checks.seed("seed", seed))
        if self._course is None or seed is not None:
            course = self._begin(jax.random.key(_draw_seed(self.np_random)), self._params)
        else:
            course = self._course if self._ended else self._begin(self._course.key, self._params)
        self._course, self._ended = course, False
        observation, mask = _to_numpy(course.observation)
        return observation, _info(mask)

    def step(self, action: Any) -> tuple[PyTree, float, bool, bool, dict[str, Any]]:
        """Play one action."""
        if self._course is None or self._ended:
            raise ResetNeeded("call reset() before the first step and after the end of an episode")
        observation, mask = _to_numpy(self._course.observation)
        index = _check_action(action, self.action_space, mask)
        self._course, timestep = self._advance(self._course, index, self._params)
        self._ended = bool(timestep.done)
        if not self._ended:
            observation, mask = _to_numpy(timestep.observation)
        info = _info(mask)
        if not np.isnan(timestep.regret):
            info["regret"] = float(timestep.regret)
        if timestep.outcomes is not None:
            info["outcomes"] = np.array(timestep.outcomes)
        reward = float(timestep.reward)
        if np.isnan(reward):
            reward, info["unknown_reward"] = 0.0, True
        return observation, reward, self._ended, False, info


@portable
class FunctionalVectorEnv(SyncVectorEnv):
    """`num_envs` copies of a functional environment with shared data and programs as a gymnasium VectorEnv.

    In every autoreset mode copy i plays as a `FunctionalEnv` with the seed `seed + i`. Raises ValueError for an
    unknown mode or fewer than one copy.
    """

    def __init__(
        self, env: Environment, num_envs: int, *, autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP
    ) -> None:
        one = FunctionalEnv(env)
        copies = [lambda: copy(one)] * checks.count("num_envs", num_envs, 1)
        super().__init__(copies, autoreset_mode=AutoresetMode(autoreset_mode))

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[PyTree, dict[str, Any]]:
        """First observations of episodes; with `options["reset_mask"]`, of those copies."""
        several: Any = seed
        if seed is not None and not np.shape(several):
            several = list(checks.seeds(seed, self.num_envs))
        return super().reset(seed=several, options=options)

    def step(self, actions: Any) -> tuple[PyTree, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Play one action in every copy; those whose next-step reset is due are reset instead."""
        actions = np.asarray(checks.as_array("actions", actions))
        if actions.shape != self.action_space.shape:
            raise ValueError(f"actions must have shape {self.action_space.shape}; got {actions.shape}")
        return super().step(actions)


class _Course(NamedTuple):
    key: Key
    state: PyTree
    observation: PyTree


def _programs(env: Environment) -> tuple[Any, Any]:
    """(key, params) -> course, and (course, action, params) -> (course, time step)."""

    def begin(key: Key, params: PyTree) -> _Course:
        key, reset_key = jax.random.split(key)
        return _Course(key, *env.reset(reset_key, params))

    def advance(course: _Course, action: Array, params: PyTree) -> tuple[_Course, TimeStep]:
        key, step_key = jax.random.split(course.key)
        state, timestep = env.step(step_key, course.state, action, params)
        return _Course(key, state, timestep.observation), timestep

    return jax.jit(begin), jax.jit(advance)


def _to_numpy(observation: PyTree) -> tuple[PyTree, np.ndarray | None]:
    """(observation, mask or None) as copies."""
    observation, mask = observation if isinstance(observation, Masked) else (observation, None)
    return jax.tree.map(np.array, observation), None if mask is None else np.array(mask)


def _info(mask: np.ndarray | None) -> dict[str, Any]:
    return {} if mask is None else {"action_mask": mask}


def _draw_seed(generator: np.random.Generator) -> np.uint32:
    return generator.integers(2**32, dtype=np.uint32)


def _check_action(action: Any, space: gymnasium.Space, mask: np.ndarray | None) -> Any:
    """`action`, from 0 if discrete; ValueError if not allowed."""
    if not space.contains(action):
        raise ValueError(f"action {action!r} is not in {space}")
    if not isinstance(space, Discrete):
        return action
    index = np.int32(action - space.start)
    if mask is not None and not mask[index]:
        raise ValueError(f"action {action!r} is masked out; allowed now: {np.flatnonzero(mask).tolist()}")
    return index
