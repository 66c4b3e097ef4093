"""The loop on the host: a gymnasium environment, step by step, with the agent's functions compiled."""

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Discrete

from seqdec.checks import word
from seqdec.core import Action, Agent, Array, Key, Masked, PyTree
from seqdec.envs.gym import FunctionalEnv
from seqdec.loop.record import Outcome, Record, check_action, rejected, select, split_key
from seqdec.runtime import UNOPTIMISED


def on_host(
    agent: Agent, env: gymnasium.Env, num_steps: int, seeds: range, names: tuple[str, ...], tick: Callable[[int], Any]
) -> Outcome:
    """Run on the host, seed after seed; a step is three calls: act, env.step, update."""
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
    """The compiled functions of an agent."""

    init: Callable[[Key], PyTree]
    act: Callable[[Key, np.uint32, PyTree, PyTree], Action]
    update: Callable[[PyTree, PyTree, Array, np.ndarray], tuple[PyTree, Array, dict[str, Array]]]
    """(state, observation, action, reward) -> (state, rejected, diagnostics)."""
    like: PyTree
    """An observation with the structure and dtypes that the programs were compiled for."""
    seed: int
    """the first"""


def _compile_host(agent: Agent, env: gymnasium.Env, names: tuple[str, ...], seed: int) -> _HostPrograms:
    """Compile the agent against the first observation of `env`."""

    def act(key: Key, step: Array, state: PyTree, observation: PyTree) -> Action:
        action = agent.act(jax.random.fold_in(key, step), state, observation)
        check_action(action, env.action_space)
        return action

    def update(state: PyTree, observation: PyTree, action: Array, reward: Array) -> tuple[PyTree, Array, PyTree]:
        state, info = agent.update(state, observation, action, reward)
        return state, rejected(info), select(info, observation, names)

    raw, info = env.reset(seed=seed)
    like = jax.tree.map(lambda leaf: np.asarray(jnp.asarray(leaf)), _pack(raw, info))
    key, step = jax.random.key(word(seed)), np.uint32(0)
    init = jax.jit(agent.init).lower(key).compile(UNOPTIMISED)
    state = jax.eval_shape(agent.init, key)
    acting = jax.jit(act).lower(key, step, state, like).compile()
    action = jax.eval_shape(act, key, step, state, like).value
    updating = jax.jit(update, donate_argnums=0).lower(state, like, action, _scalar(0.0)).compile()
    return _HostPrograms(init, acting, updating, like, seed)


def _episodes(env: gymnasium.Env, num_steps: int, seed: int, programs: _HostPrograms) -> Iterator[Record]:
    """The steps of one seed, over as many episodes as they take."""
    (_, _), (init_key, agent_key) = split_key(jax.random.key(word(seed)))
    state = programs.init(init_key)
    observation = _observe(*env.reset(seed=seed), programs.like)
    for step in range(num_steps):
        action = programs.act(agent_key, np.uint32(step), state, observation)
        value = np.asarray(action.value)
        raw, reward, terminated, truncated, info = env.step(_for_gymnasium(value, env.action_space))
        if step == 0 and programs.seed == seed:
            _warn_of_episodes(env, terminated or truncated)
        reward = _scalar(np.nan if info.get("unknown_reward") else reward)
        state, refused, diagnostics = programs.update(state, observation, action.value, reward)
        regret = _scalar(info.get("regret", np.nan))
        yield jax.device_get(Record(value, reward, regret, action.propensity, refused, diagnostics))
        if terminated or truncated:
            raw, info = env.reset()
        observation = _observe(raw, info, programs.like)


def _warn_of_episodes(env: gymnasium.Env, ended: bool) -> None:
    """Warn of an environment of Gymnasium's registry whose episodes have several steps, unless it is one of seqdec."""
    if env.spec is None or ended or isinstance(env.unwrapped, FunctionalEnv):
        return
    warnings.warn(
        f"{env.spec.id} has episodes of several steps: each step is learned as one of a bandit, by its own reward, "
        "without credit for later rewards or for the states that an action leads to",
        stacklevel=2,
    )


def _pack(raw: Any, info: dict[str, Any]) -> PyTree:
    """The observation as the agent gets it: `Masked` if the environment's info holds "action_mask"."""
    return Masked(raw, jnp.asarray(info["action_mask"], bool)) if "action_mask" in info else raw


def _observe(raw: Any, info: dict[str, Any], like: PyTree) -> PyTree:
    """The observation in the dtypes the programs were compiled for."""
    observation = _pack(raw, info)
    if isinstance(like, Masked) != isinstance(observation, Masked):
        raise ValueError('the environment must put "action_mask" into every info, or into none')
    return jax.tree.map(lambda leaf, example: np.asarray(leaf, example.dtype), observation, like)


def _for_gymnasium(value: np.ndarray, space: gymnasium.Space) -> Any:
    """An agent's action as a member of the action space; indices count from 0, a Discrete space from its start."""
    first = space.start if isinstance(space, Discrete) else 0
    return (value + first).astype(space.dtype)[()]


def _scalar(number: Any) -> np.ndarray:
    """A () array of JAX's default float dtype."""
    return np.asarray(number, jax.dtypes.canonicalize_dtype(float)).reshape(())


def _stack(rows: list[Record]) -> Record:
    """Stack the records of single steps: every field (steps, ...)."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *rows)
