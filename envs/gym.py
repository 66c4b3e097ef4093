"""Functional environments behind gymnasium's interface, one at a time or vectorized, and their registered ids.

A functional environment continues with the next episode at once. The adapters keep the new episode back until `reset`.
No context follows a bandit's last action, so the final observation of an episode repeats the context of that action,
and the end counts as terminated: there is no later value to bootstrap from.
"""

import inspect
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Discrete
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from seqdec import checks
from seqdec.core import Array, Environment, Key, Masked, PyTree, TimeStep
from seqdec.envs._check import contract
from seqdec.envs.registry import REGISTRY, make
from seqdec.portable import portable
from seqdec.runtime import check_process

_TITLES = {
    "bernoulli": "BernoulliBandit",
    "drawnn": "DrawNN",
    "fashion-mnist": "FashionMNIST",
    "gaussian": "GaussianBandit",
    "kuairec": "KuaiRec",
    "linear": "LinearBandit",
    "mnist": "MNIST",
    "wheel": "WheelBandit",
}
"""Names in gymnasium's ids that are not simply capitalized."""


def id_of(name: str) -> str:
    """The gymnasium id of the environment called `name`: "random-exposures" is "seqdec/RandomExposures-v0"."""
    title = _TITLES.get(name) or "".join(word.capitalize() for word in name.split("-"))
    return f"seqdec/{title}-v0"


def register() -> None:
    """Make the environments known to `gymnasium.make` and `gymnasium.make_vec`; a second call does nothing."""
    for name in REGISTRY.own():
        if id_of(name) not in gymnasium.registry:
            gymnasium.register(
                id_of(name),
                entry_point="seqdec.envs.gym:make_env",
                vector_entry_point="seqdec.envs.gym:make_vector_env",
                kwargs={"name": name},
            )


def make_env(name: str, **options: Any) -> "FunctionalEnv":
    """`seqdec.envs.make(name, **options)` as a gymnasium.Env."""
    return FunctionalEnv(_made(name, options))


def make_vector_env(
    name: str, num_envs: int, autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP, **options: Any
) -> "FunctionalVectorEnv":
    """`num_envs` copies of `seqdec.envs.make(name, **options)`, which share their data, as a gymnasium VectorEnv."""
    return FunctionalVectorEnv(_made(name, options), num_envs, autoreset_mode=autoreset_mode)


def _made(name: str, options: dict[str, Any]) -> Environment:
    """The environment of an id. Raises TypeError for a missing option; warns where its data are synthetic."""
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
"""In the names of environments whose data are made up, though their name is that of real data."""


@portable
class FunctionalEnv(gymnasium.Env):
    """A functional environment as a gymnasium.Env.

    `reset()` after the end of an episode continues with the next one; with a seed, or within an episode, it restarts
    the environment. The info holds "regret" if it is known, "outcomes" under full information, and "action_mask" if
    actions are masked. Gymnasium's rewards are numbers, so one that is unknown, NaN, is returned as 0 with
    "unknown_reward" in the info; `seqdec.run` takes it as unknown.

    Raises ValueError for an action that is out of range or masked out, and ResetNeeded for a step before `reset`.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 (gymnasium's class attribute)

    def __init__(self, env: Environment) -> None:
        """Wrap `env`."""
        check_process()
        self.env = _check_env(env)
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
class FunctionalVectorEnv(VectorEnv):
    """`num_envs` copies of a functional environment, stepped by one compiled call, as a gymnasium VectorEnv.

    Its results equal those of `gymnasium.vector.SyncVectorEnv` over `num_envs` `FunctionalEnv`, seed by seed, in every
    autoreset mode. The copies share the data.
    """

    def __init__(
        self, env: Environment, num_envs: int, *, autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP
    ) -> None:
        """Wrap `num_envs` copies of `env`. Raises ValueError for an unknown mode or fewer than one copy."""
        check_process()
        self.env, self.num_envs = _check_env(env), checks.count("num_envs", num_envs, 1)
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {"render_modes": [], "autoreset_mode": self.autoreset_mode}
        self.single_observation_space, self.single_action_space = env.observation_space, env.action_space
        self.observation_space = batch_space(env.observation_space, self.num_envs)
        self.action_space = batch_space(env.action_space, self.num_envs)
        self._params = jax.device_put(env.params)
        begin, advance = _programs(env)
        self._begin = jax.jit(jax.vmap(begin, in_axes=(0, None)))
        self._advance = jax.jit(jax.vmap(advance, in_axes=(0, 0, None)))
        self._choose = jax.jit(jax.vmap(_choose))
        self._course: _Course | None = None
        self._shown: PyTree = None
        self._ended = np.ones(self.num_envs, bool)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[PyTree, dict[str, Any]]:
        """The first observations of episodes; of those in `options["reset_mask"]` (num_envs,) bool, where it is given.

        An integer seed gives copy i the seed `seed + i`.
        """
        seeds = self._check_seeds(seed)
        chosen = self._check_reset_mask(options)
        keys, seeded = self._keys(seeds)
        if self._course is None:
            if not chosen.all():
                raise ResetNeeded('reset all environments before resetting some with options["reset_mask"]')
            course = self._begin(keys, self._params)
        else:
            fresh = chosen & (seeded | ~self._ended)
            keys = self._choose(seeded, keys, self._course.key)
            course = self._choose(fresh, self._begin(keys, self._params), self._course)
        observation = jax.device_get(course.observation)
        self._course = course
        self._shown = observation if self._shown is None else _merge(chosen, observation, self._shown)
        self._ended = self._ended & ~chosen
        shown, mask = _to_numpy(self._shown)
        return shown, _infos(chosen, action_mask=mask)

    def step(self, actions: Any) -> tuple[PyTree, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Play one action in every copy; copies whose next-step reset is due are reset instead."""
        if self._course is None:
            raise ResetNeeded("call reset() before the first step")
        if self.autoreset_mode is AutoresetMode.DISABLED and self._ended.any():
            ended = np.flatnonzero(self._ended).tolist()
            raise ResetNeeded(f'environments {ended} have ended: reset them with options={{"reset_mask": ...}}')
        playing = ~self._ended
        indices = self._check_actions(actions, playing)
        course, timestep = self._advance(self._course, indices, self._params)
        course = self._choose(playing, course, self._course)
        self._course = course
        following, timestep = jax.device_get((course.observation, timestep))
        done = timestep.done & playing
        rewards = np.where(playing & ~np.isnan(timestep.reward), timestep.reward, 0.0).astype(float)
        infos = self._show(following, timestep, playing, done)
        shown, _ = _to_numpy(self._shown)
        return shown, rewards, done, np.zeros_like(done), infos

    def _show(self, following: PyTree, timestep: TimeStep, playing: np.ndarray, done: np.ndarray) -> dict[str, Any]:
        """Set the observations shown: those `following` a step, or the last ones of episodes; -> their infos."""
        last = self._shown
        same_step = self.autoreset_mode is AutoresetMode.SAME_STEP
        self._shown = following if same_step else _merge(done, last, following)
        self._ended = np.zeros_like(done) if same_step else done
        _, mask = _to_numpy(self._shown)
        if not same_step:
            return _facts(playing, timestep) | _infos(np.ones_like(done), action_mask=mask)
        infos = _facts(~done, timestep) | _infos(np.ones_like(done), action_mask=mask)
        if done.any():
            final, final_mask = _to_numpy(last)
            observations = np.full(self.num_envs, None, object)
            for i in np.flatnonzero(done):
                observations[i] = jax.tree.map(lambda leaf, i=i: leaf[i], final)
            final_info = _facts(done, timestep) | _infos(done, action_mask=final_mask)
            infos |= {"final_obs": observations, "_final_obs": done.copy()}
            infos |= {"final_info": final_info, "_final_info": done.copy()}
        return infos

    def _check_seeds(self, seed: Any) -> list[int | None]:
        """One seed, or None, for every copy."""
        if seed is None:
            return [None] * self.num_envs
        if np.ndim(seed) == 1:
            if len(seed) != self.num_envs:
                raise ValueError(f"a list of seeds must hold num_envs={self.num_envs} of them; got {len(seed)}")
            return [None if one is None else checks.seed("seed", one) for one in seed]
        return list(checks.seeds(seed, self.num_envs))

    def _check_reset_mask(self, options: dict[str, Any] | None) -> np.ndarray:
        """(num_envs,) bool: the copies to be reset."""
        mask = (options or {}).get("reset_mask")
        if mask is None:
            return np.ones(self.num_envs, bool)
        if not isinstance(mask, np.ndarray) or mask.dtype != bool or mask.shape != (self.num_envs,) or not mask.any():
            raise ValueError(f"reset_mask must be a bool array ({self.num_envs},), not all False; got {mask!r}")
        return mask

    def _check_actions(self, actions: Any, playing: np.ndarray) -> np.ndarray:
        """The actions counted from 0; not checked in copies that do not play."""
        actions = np.asarray(checks.as_array("actions", actions))
        if actions.shape != self.action_space.shape:
            raise ValueError(f"actions must have shape {self.action_space.shape}; got {actions.shape}")
        _, mask = _to_numpy(self._shown)
        indices = np.zeros_like(actions)
        for i in np.flatnonzero(playing):
            allowed = None if mask is None else mask[i]
            try:
                indices[i] = _check_action(actions[i], self.single_action_space, allowed)
            except ValueError as error:
                raise ValueError(f"environment {i}: {error}") from None
        return indices

    def _keys(self, seeds: list[int | None]) -> tuple[Key, np.ndarray]:
        """(num_envs,) keys to start from, and a mask of those that come from a given seed."""
        seeded = np.array([seed is not None for seed in seeds])
        generators = [self.np_random if seed is None else seeding.np_random(seed)[0] for seed in seeds]
        return jax.vmap(jax.random.key)(np.array([_draw_seed(generator) for generator in generators])), seeded


class _Course(NamedTuple):
    """Key, state and observation of a functional environment."""

    key: Key
    state: PyTree
    observation: PyTree


def _programs(env: Environment) -> tuple[Any, Any]:
    """Compiled (key, params) -> course, and (course, action, params) -> (course, time step)."""

    def begin(key: Key, params: PyTree) -> _Course:
        key, reset_key = jax.random.split(key)
        return _Course(key, *env.reset(reset_key, params))

    def advance(course: _Course, action: Array, params: PyTree) -> tuple[_Course, TimeStep]:
        key, step_key = jax.random.split(jax.random.clone(course.key))  # a copy that does not play keeps the old one
        state, timestep = env.step(step_key, course.state, action, params)
        return _Course(key, state, timestep.observation), timestep

    return jax.jit(begin), jax.jit(advance)


def _choose(condition: Array, yes: PyTree, no: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def _merge(condition: np.ndarray, yes: PyTree, no: PyTree) -> PyTree:
    """`_choose` on the host, row by row."""
    return jax.tree.map(lambda a, b: np.where(condition.reshape(-1, *[1] * (a.ndim - 1)), a, b), yes, no)


def _to_numpy(observation: PyTree) -> tuple[PyTree, np.ndarray | None]:
    """(observation, mask or None) as copies, so that callers may modify them."""
    observation, mask = observation if isinstance(observation, Masked) else (observation, None)
    return jax.tree.map(np.array, observation), None if mask is None else np.array(mask)


def _info(mask: np.ndarray | None) -> dict[str, Any]:
    return {} if mask is None else {"action_mask": mask}


def _infos(known: np.ndarray, **values: np.ndarray | None) -> dict[str, Any]:
    """Vectorized infos: each value, zero where not `known`, and under "_" + its name the mask `known`."""
    infos = {}
    for name, value in values.items():
        if value is not None and known.any():
            infos[name], infos[f"_{name}"] = _merge(known, value, np.zeros_like(value)), known.copy()
    return infos


def _facts(known: np.ndarray, timestep: TimeStep) -> dict[str, Any]:
    """The infos "regret", where it is not NaN, "unknown_reward" and "outcomes" of the copies in `known`."""
    regret, outcomes = np.asarray(timestep.regret, float), timestep.outcomes
    unknown = np.isnan(timestep.reward)
    infos = _infos(known & ~np.isnan(regret), regret=regret) | _infos(known & unknown, unknown_reward=unknown)
    return infos if outcomes is None else infos | _infos(known, outcomes=np.asarray(outcomes))


def _draw_seed(generator: np.random.Generator) -> np.uint32:
    """A 32-bit seed for JAX from gymnasium's generator, whose seeds may be larger."""
    return generator.integers(2**32, dtype=np.uint32)


def _check_env(env: Environment) -> Environment:
    contract(env)
    return env


def _check_action(action: Any, space: gymnasium.Space, mask: np.ndarray | None) -> Any:
    """`action`, counted from 0 if it is discrete. Raises ValueError if it is not allowed."""
    if not space.contains(action):
        raise ValueError(f"action {action!r} is not in {space}")
    if not isinstance(space, Discrete):
        return action
    index = np.int32(action - space.start)
    if mask is not None and not mask[index]:
        raise ValueError(f"action {action!r} is masked out; allowed now: {np.flatnonzero(mask).tolist()}")
    return index
