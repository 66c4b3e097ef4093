"""The loop on the host: a gymnasium environment step by step with compiled functions of the agent."""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Discrete

from seqdec.boundary.checks import as_array, real, seed_bits
from seqdec.boundary.spaces import as_observation, spaces_of, typed
from seqdec.core import Action, Agent, Array, Key, Masked, PyTree
from seqdec.envs.gym import FunctionalEnv
from seqdec.loop.record import Outcome, Record, check_action, rejected, select, split_key
from seqdec.runtime import UNOPTIMIZED, ahead


def on_host(
    agent: Agent, env: gymnasium.Env, num_steps: int, seeds: range, names: tuple[str, ...], tick: Callable[[int], Any]
) -> Outcome:
    """Seed after seed; a step is three calls: act, env.step, update."""
    began = time.perf_counter()
    programs = _compile_host(agent, env, names, seeds[0])
    compiled = time.perf_counter()

    finished, rows, interrupted = [], [], False
    try:
        for seed in seeds:
            rows = []
            for row in _episodes(env, num_steps, seed, programs):
                rows.append(row)
                tick(1)
            finished.append(_stack(rows))
    except KeyboardInterrupt:
        if not finished and not rows:
            raise
        finished, interrupted = finished or [_stack(rows)], True
    record = jax.tree.map(lambda *parts: np.stack(parts), *finished)
    clock = [(record.reward.shape[1], time.perf_counter() - compiled)]
    return Outcome(record, clock, compiled - began, interrupted)


class _HostPrograms(NamedTuple):
    init: Callable[[Key], PyTree]
    act: Callable[[Key, np.uint32, PyTree, PyTree], Action]
    update: Callable[[PyTree, PyTree, Action, np.ndarray], tuple[PyTree, Array, dict[str, Array]]]
    """(state, observation, action, reward) -> (state, rejected, diagnostics)."""
    like: PyTree
    """An observation of the compiled structure and dtypes."""
    seed: int
    """the first"""


def _compile_host(agent: Agent, env: gymnasium.Env, names: tuple[str, ...], seed: int) -> _HostPrograms:
    def act(key: Key, step: Array, state: PyTree, observation: PyTree) -> Action:
        action = agent.act(jax.random.fold_in(key, step), state, observation)
        check_action(action, env.action_space)
        return action

    def update(state: PyTree, observation: PyTree, action: Action, reward: Array) -> tuple[PyTree, Array, PyTree]:
        state, info = agent.update(state, observation, agent.lesson(action), reward)
        return state, rejected(info), select(info, observation, action, names)

    like = jax.tree.map(lambda leaf: np.asarray(jnp.asarray(leaf)), _observation(env, *_reset(env, seed=seed)))
    key, step = jax.random.key(seed_bits(seed)), np.uint32(0)
    init = ahead(jax.jit(agent.init), key, options=UNOPTIMIZED)
    state = jax.eval_shape(agent.init, key)
    acting = ahead(jax.jit(act), key, step, state, like)
    action = jax.eval_shape(act, key, step, state, like)
    updating = ahead(jax.jit(update, donate_argnums=0), state, like, action, _scalar(0.0))
    return _HostPrograms(init, acting, updating, like, seed)


def _episodes(env: gymnasium.Env, num_steps: int, seed: int, programs: _HostPrograms) -> Iterator[Record]:
    (_, _), (init_key, agent_key) = split_key(jax.random.key(seed_bits(seed)))
    state = programs.init(init_key)
    observation = _as(programs.like, _observation(env, *_reset(env, seed=seed)))
    for step in range(num_steps):
        action = programs.act(agent_key, np.uint32(step), state, observation)
        value = np.asarray(action.value)
        raw, reward, terminated, truncated, info = _step(env, _for_gymnasium(value, env.action_space))
        if step == 0 and programs.seed == seed:
            _warn_of_episodes(env, terminated or truncated)
        reward = _scalar(np.nan if info.get("unknown_reward") else real("reward", reward))
        state, refused, diagnostics = programs.update(state, observation, action, reward)
        regret = _scalar(real('info["regret"]', info.get("regret", np.nan)))
        yield jax.device_get(Record(value, reward, regret, action.propensity, refused, diagnostics))
        if terminated or truncated:
            raw, info = _reset(env)
        observation = _as(programs.like, _observation(env, raw, info))


def _warn_of_episodes(env: gymnasium.Env, ended: bool) -> None:
    """Warn of an environment of Gymnasium's registry, but seqdec's, with episodes of several steps."""
    if env.spec is None or ended or isinstance(env.unwrapped, FunctionalEnv):
        return
    warnings.warn(
        f"{env.spec.id} has episodes of several steps: each step is learned as one of a bandit, by its own reward, "
        "without credit for later rewards or for the states that an action leads to",
        stacklevel=2,
    )


_OLD = "an environment of the API before Gymnasium 0.26 has to be changed, or wrapped in one that has the present API"


def _reset(env: gymnasium.Env, **seed: int) -> tuple[Any, Mapping[str, Any]]:
    """The observation and the info of `env.reset`; ValueError for anything else."""
    try:
        result: Any = env.reset(**seed)  # pyright: ignore[reportArgumentType]
    except TypeError as error:
        if "unexpected keyword argument 'seed'" not in str(error):
            raise
        raise ValueError(f"{env}: reset must take the keyword seed, as reset(self, *, seed=None); {_OLD}") from error
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], Mapping):
        raise ValueError(
            f"{env}: reset must return (observation, info), where info may be {{}}; got {_kind(result)}; {_OLD}"
        )
    return result


def _step(env: gymnasium.Env, action: Any) -> tuple[Any, Any, Any, Any, Mapping[str, Any]]:
    """The result of `env.step`; ValueError if not of the present API."""
    result: Any = env.step(action)
    if not isinstance(result, tuple) or len(result) != 5 or not isinstance(result[4], Mapping):
        raise ValueError(
            f"{env}: step must return (observation, reward, terminated, truncated, info), of which truncated may be "
            f"False and info {{}}; got {_kind(result)}; {_OLD}"
        )
    return result


def _kind(result: Any) -> str:
    return f"a tuple of {len(result)}" if isinstance(result, tuple) else f"{type(result).__name__} {result!r:.60}"


def _observation(env: gymnasium.Env, raw: Any, info: Mapping[str, Any]) -> PyTree:
    """The observation for the agent: `Masked` if the info holds "action_mask".

    Raises TypeError or ValueError where it does not fit the spaces in kind or shape.
    """
    spaces = spaces_of(env)
    space = spaces.observation_space
    context = jax.tree.map(np.asarray, typed(space, as_observation(space, raw, "observation")))
    if "action_mask" not in info:
        return context
    mask: Any = np.asarray(as_array('info["action_mask"]', info["action_mask"]))
    actions = spaces.action_space
    if not isinstance(actions, Discrete) or mask.shape != (actions.n,):
        raise ValueError(f'info["action_mask"] must have an entry for each action of {actions}; got shape {mask.shape}')
    return Masked(context, mask.astype(bool))


def _as(like: PyTree, observation: PyTree) -> PyTree:
    if isinstance(like, Masked) != isinstance(observation, Masked):
        raise ValueError('the environment must put "action_mask" into every info, or into none')
    if jax.tree.structure(like) != jax.tree.structure(observation):
        raise ValueError(f"observations must have the structure of the first one, {like!r}; got {observation!r}")
    return jax.tree.map(_cast, like, observation)


def _cast(like: np.ndarray, leaf: np.ndarray) -> np.ndarray:
    if leaf.shape != like.shape:
        raise ValueError(f"observations must have the shape of the first one, {like.shape}; got {leaf.shape}")
    with np.errstate(over="ignore", invalid="ignore"):
        cast = leaf.astype(like.dtype)
    if not jnp.issubdtype(like.dtype, jnp.floating) and not np.array_equal(cast, leaf):
        raise ValueError(
            f"observations must be {like.dtype}, as the observation space or the first one says; got {leaf}: declare a "
            "Box of floats"
        )
    return cast


def _for_gymnasium(value: np.ndarray, space: gymnasium.Space) -> Any:
    """An action in the space of gymnasium; indices from 0 become those from the start of a Discrete space."""
    if isinstance(space, Discrete):
        return (value + space.start).astype(space.dtype)[()]
    return np.array(value, space.dtype)


def _scalar(number: Any) -> np.ndarray:
    """() of JAX's default float dtype."""
    return np.asarray(number, jax.dtypes.canonicalize_dtype(float)).reshape(())


def _stack(rows: list[Record]) -> Record:
    """Records of single steps as fields (steps, ...)."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *rows)
