"""The loop on the devices: chunks of a compiled scan over a functional environment."""

import functools
import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from seqdec.core import Agent, Array, Environment, Key, PyTree
from seqdec.loop.record import Outcome, Record, check_action, rejected, select, split_key
from seqdec.runtime import UNOPTIMISED, step_options

_LONGEST_CHUNK = 1000
_CHUNKS = 100


class _Carry(NamedTuple):
    """The state of one seed between steps; `step`, the number of steps done, changes from chunk to chunk only."""

    step: Array
    env_key: Key
    agent_key: Key
    env: PyTree
    observation: PyTree
    agent: PyTree


def on_device(
    agent: Agent, env: Environment, num_steps: int, seeds: range, names: tuple[str, ...], tick: Callable[[int], Any]
) -> Outcome:
    """Run on the devices, chunk by chunk, with the seeds spread over all devices.

    A chunk counts once its record and its time are both stored, so that an interruption leaves whole chunks.
    """
    length = chunk_length(num_steps)
    began = time.perf_counter()
    mesh = _mesh(len(seeds))
    per_seed, common = _placements(mesh)
    params = jax.device_put(env.params, common)
    # Every device takes the same number of seeds: some seeds run twice to fill up, and the copies are cut off below.
    padded = np.resize(np.asarray(seeds, np.uint32), -(-len(seeds) // mesh.size) * mesh.size)
    keys = jax.device_put(jax.vmap(jax.random.key)(padded), per_seed)
    start, advance = _compile(agent, env, names, length, keys, params, mesh)
    compiled = time.perf_counter()

    records, clock, interrupted = [], [], False
    try:
        carry = start(keys, params)
        for done in range(0, num_steps, length):
            carry, record = advance(carry, params)
            records.append(jax.device_get(record))
            clock.append((done + length, time.perf_counter() - compiled))
            tick(min(length, num_steps - done))
    except KeyboardInterrupt:
        if not clock:
            raise
        interrupted = True
    record = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1)[: len(seeds)], *records[: len(clock)])
    return Outcome(record, clock, compiled - began, interrupted)


def _mesh(num_seeds: int) -> Mesh:
    """One axis over the devices, of which there are no more than seeds."""
    devices = jax.local_devices()[:num_seeds]
    return jax.make_mesh((len(devices),), ("seeds",), (AxisType.Auto,), devices=devices)


def _placements(mesh: Mesh) -> tuple[NamedSharding, NamedSharding]:
    """Shardings of arrays with a leading axis of seeds, and of arrays that all seeds share."""
    return NamedSharding(mesh, PartitionSpec("seeds")), NamedSharding(mesh, PartitionSpec())


def chunk_length(num_steps: int) -> int:
    """Steps in one compiled chunk: about a hundredth of the run, at most 1,000, with few steps beyond the end."""
    chunks = max(-(-num_steps // _LONGEST_CHUNK), min(_CHUNKS, num_steps))
    return -(-num_steps // chunks)


def _compile(
    agent: Agent, env: Environment, names: tuple[str, ...], length: int, keys: Key, params: PyTree, mesh: Mesh
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The two programs of a run: (keys, params) -> carry and (carry, params) -> (carry, record of one chunk)."""
    start, advance = functools.partial(_start, agent, env), functools.partial(_advance, agent, env, names, length)
    by_seed, replicated = PartitionSpec("seeds"), PartitionSpec()
    placed = {"in_shardings": _placements(mesh), "out_shardings": _placements(mesh)[0]}

    def lower(function, states, **options):
        """Each device runs its own seeds, vectorised if possible; nothing is exchanged between devices."""

        def lower_with(over_seeds):
            sharded = jax.shard_map(
                over_seeds(function), mesh=mesh, in_specs=(by_seed, replicated), out_specs=by_seed, check_vma=False
            )
            return jax.jit(sharded, **placed, **options).lower(states, params)

        vectorised = lower_with(lambda function: jax.vmap(function, (0, None)))
        return lower_with(_sequential) if _BATCHED_LAPACK.search(vectorised.as_text()) else vectorised

    starting = lower(start, keys)
    carry = starting.out_info
    return starting.compile(UNOPTIMISED), lower(advance, carry, donate_argnums=0).compile(step_options())


def play(agent: Agent, env: Environment, num_steps: int, key: Key, params: PyTree) -> Record:
    """The steps of one seed, as a part of another program: the agent's settings may be traced values.

    Args:
        agent: who acts.
        env: where; its data are those in `params`.
        num_steps: how long.
        key: of the seed.
        params: `env.params`.
    """
    return _advance(agent, env, (), num_steps, _start(agent, env, key, params), params)[1]


def _start(agent: Agent, env: Environment, key: Key, params: PyTree) -> _Carry:
    """Before the first step."""
    (reset_key, env_key), (init_key, agent_key) = split_key(key)
    state, observation = env.reset(reset_key, params)
    return _Carry(jnp.uint32(0), env_key, agent_key, state, observation, agent.init(init_key))


def _advance(
    agent: Agent, env: Environment, names: tuple[str, ...], length: int, carry: _Carry, params: PyTree
) -> tuple[_Carry, Record]:
    """`length` steps."""
    # All keys of a chunk at once, which is cheaper than inside the scan.
    steps = carry.step + jnp.arange(length, dtype=carry.step.dtype)
    env_keys, agent_keys = (
        jax.vmap(jax.random.fold_in, (None, 0))(key, steps) for key in (carry.env_key, carry.agent_key)
    )

    def step(carry, keys):
        return _step(agent, env, names, carry, keys, params)

    carry, record = jax.lax.scan(step, carry, (env_keys, agent_keys))
    return carry._replace(step=carry.step + jnp.uint32(length)), record


_BATCHED_LAPACK = re.compile(r"@lapack_.*: \(tensor<\d+x\d+x\d+x")
"""A batched LAPACK factorisation on a CPU, which can deadlock: see `seqdec.linalg.sequential_vmap`."""


def _sequential(function: Callable[[PyTree, PyTree], PyTree]) -> Callable[[PyTree, PyTree], PyTree]:
    """As `jax.vmap` over the first argument, but one element after the other."""
    return lambda states, params: jax.lax.map(lambda state: function(state, params), states)


def _step(
    agent: Agent,
    env: Environment,
    names: tuple[str, ...],
    carry: _Carry,
    keys: tuple[Key, Key],
    params: PyTree,
) -> tuple[_Carry, Record]:
    """One step of one seed: choose an action, step the environment, update the agent."""
    env_key, agent_key = keys
    action = agent.act(agent_key, carry.agent, carry.observation)
    check_action(action, env.action_space)
    state, timestep = env.step(env_key, carry.env, action.value, params)
    feedback = timestep.reward if timestep.outcomes is None else timestep.outcomes
    learned, info = agent.update(carry.agent, carry.observation, action.value, feedback)
    diagnostics = select(info, carry.observation, names)
    record = Record(action.value, timestep.reward, timestep.regret, action.propensity, rejected(info), diagnostics)
    return carry._replace(env=state, observation=timestep.observation, agent=learned), record
