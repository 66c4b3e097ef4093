"""The loop on the devices: chunks of a compiled scan."""

import functools
import math
import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from seqdec.boundary.checks import seed_bits
from seqdec.core import Agent, Environment, Key, PyTree
from seqdec.envs._check import begun, explained, stepped
from seqdec.loop.checkpoint import Checkpoint, Progress, load, save
from seqdec.loop.record import Outcome, Record, RunState, check_action, check_state, rejected, select, split_key
from seqdec.runtime import UNOPTIMIZED, compile_once, is_eager, scan, step_options

_LONGEST_CHUNK = 1000
_CHUNKS = 100


def on_device(
    agent: Agent,
    env: Environment,
    num_steps: int,
    seeds: range,
    names: tuple[str, ...],
    tick: Callable[[int], Any],
    tell: Callable[[float | None], Any],
    mesh: Mesh,
    state: RunState | None = None,
    checkpoint: Checkpoint | None = None,
) -> Outcome:
    """Run chunk by chunk, from the checkpoint, else from `state`, else from the beginning.

    `tick` gets the steps done, `tell` the seconds that a program may take to compile.
    """
    length = chunk_length(num_steps)
    began = time.perf_counter()
    per_seed, common = _placements(mesh)
    params = jax.device_put(env.params, common)
    env = env._replace(params=params)
    # Every device takes the same number of seeds: some seeds run twice to fill up, and the copies are cut off below.
    rows = np.resize(np.arange(len(seeds)), -(-len(seeds) // mesh.size) * mesh.size)
    keys = jax.device_put(jax.vmap(jax.random.key)(np.stack([seed_bits(seed) for seed in seeds])[rows]), per_seed)
    with explained(env):
        programs = _programs(agent, env, names, keys, params, mesh, tell)
    like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((len(seeds), *leaf.shape[1:]), leaf.dtype), programs.state)
    known = None if checkpoint is None else load(checkpoint, like)
    state = state if known is None else known.state
    if state is None:
        carry = programs.start(keys, params)
    else:
        check_state(state, like)
        carry = jax.device_put(jax.tree.map(lambda leaf: leaf[rows], state), per_seed)
    with explained(env):
        for steps in {length, num_steps % length or length}:
            programs.advance(steps)
    compiled = time.perf_counter()

    # Records and times of consecutive chunks; a pair is stored as one, so that an interruption leaves whole ones.
    chunks = [] if known is None else [(known.record, known.clock)]
    first, earlier = (0, 0.0) if known is None else known.clock[-1]
    compile_seconds = compiled - began + (0.0 if known is None else known.compile_seconds)
    saved, interrupted = first, False
    tick(first)
    try:
        for done in range(first, num_steps, length):
            count = min(length, num_steps - done)
            carry, record = programs.advance(count)(carry, params)
            part = jax.tree.map(lambda leaf: leaf[: len(seeds)], jax.device_get(record))
            chunks.append((part, [(done + count, earlier + time.perf_counter() - compiled)]))
            tick(count)
            if checkpoint is not None and saved + checkpoint.every <= done + count < num_steps:
                chunks = [_merged(chunks)]
                present = jax.tree.map(lambda leaf: leaf[: len(seeds)], carry)
                save(checkpoint, Progress(present, *chunks[0], compile_seconds))
                saved = done + count
    except KeyboardInterrupt:
        if not chunks:
            raise
        interrupted = True
    last = None if interrupted else jax.tree.map(lambda leaf: leaf[: len(seeds)], carry)
    return Outcome(*_merged(chunks), compile_seconds, interrupted, last)


_Chunk = tuple[Record, list[tuple[int, float]]]


def _merged(chunks: list[_Chunk]) -> _Chunk:
    records, clocks = zip(*chunks, strict=True)
    record = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *records)
    return record, [entry for clock in clocks for entry in clock]


def mesh_for(num_seeds: int) -> Mesh:
    """One axis over the devices, no more than seeds."""
    devices = jax.local_devices()[:num_seeds]
    return jax.make_mesh((len(devices),), ("seeds",), (AxisType.Auto,), devices=devices)


def _placements(mesh: Mesh) -> tuple[NamedSharding, NamedSharding]:
    """Shardings of arrays (seeds, ...), and of shared ones."""
    return NamedSharding(mesh, PartitionSpec("seeds")), NamedSharding(mesh, PartitionSpec())


def chunk_length(num_steps: int) -> int:
    """About a hundredth of the run, at most about 1,000; a divisor of `num_steps` if one is near."""
    target = -(-num_steps // max(-(-num_steps // _LONGEST_CHUNK), min(_CHUNKS, num_steps)))
    nearby = range(-(-target // 4), max(target, min(4 * target, _LONGEST_CHUNK)) + 1)
    divisors = [length for length in nearby if num_steps % length == 0]
    return min(divisors, key=lambda length: abs(math.log(length / target)), default=target)


class _Programs(NamedTuple):
    start: Callable[[Key, PyTree], RunState]
    """(keys, params) -> state"""
    advance: Callable[[int], Callable[[RunState, PyTree], tuple[RunState, Record]]]
    """(steps) -> (state, params) -> (state, record of these steps)"""
    state: RunState
    """shapes of a state"""


def _programs(
    agent: Agent,
    env: Environment,
    names: tuple[str, ...],
    keys: Key,
    params: PyTree,
    mesh: Mesh,
    tell: Callable[[float | None], Any],
) -> _Programs:
    """The programs of a run for the seeds of all devices; plain functions under `jax.disable_jit`."""
    begin = functools.partial(_start, agent, env)
    if is_eager():
        start, chunk = _sequential(begin), functools.partial(functools.partial, _advance, agent, env, names)
        return _Programs(start, lambda steps: _sequential(chunk(steps)), jax.eval_shape(start, keys, params))
    by_seed, replicated = PartitionSpec("seeds"), PartitionSpec()
    placed = {"in_shardings": _placements(mesh), "out_shardings": _placements(mesh)[0]}

    def lower(function, states, **options):
        def lower_with(over_seeds):
            sharded = jax.shard_map(
                over_seeds(function), mesh=mesh, in_specs=(by_seed, replicated), out_specs=by_seed, check_vma=False
            )
            return jax.jit(sharded, **placed, **options).lower(states, params)

        vectorized = lower_with(lambda function: jax.vmap(function, (0, None)))
        return lower_with(_sequential) if _BATCHED_LAPACK.search(vectorized.as_text()) else vectorized

    starting, devices = lower(begin, keys), tuple(mesh.devices.flat)
    state = starting.out_info

    @functools.cache
    def advance(length: int):
        program = functools.partial(_advance, agent, env, names, length)
        return compile_once(lower(program, state, donate_argnums=0), step_options(), devices, tell)

    def start(keys: Key, params: PyTree) -> RunState:
        return compile_once(starting, UNOPTIMIZED, devices, tell)(keys, params)

    return _Programs(start, advance, state)


def play(agent: Agent, env: Environment, num_steps: int, key: Key, params: PyTree) -> Record:
    """The steps of one seed, for use within another compiled program; the agent's settings may be traced."""
    return _advance(agent, env, (), num_steps, _start(agent, env, key, params), params)[1]


def _start(agent: Agent, env: Environment, key: Key, params: PyTree) -> RunState:
    (reset_key, env_key), (init_key, agent_key) = split_key(key)
    state, observation = begun(env, env.reset(reset_key, params))
    return RunState(jnp.uint32(0), env_key, agent_key, state, observation, agent.init(init_key))


def _advance(
    agent: Agent, env: Environment, names: tuple[str, ...], length: int, state: RunState, params: PyTree
) -> tuple[RunState, Record]:
    steps = state.step + jnp.arange(length, dtype=state.step.dtype)
    # All keys of a chunk at once, which is cheaper than inside the scan.
    env_keys, agent_keys = (
        jax.vmap(jax.random.fold_in, (None, 0))(key, steps) for key in (state.env_key, state.agent_key)
    )

    def step(state, keys):
        return _step(agent, env, names, state, keys, params)

    state, record = scan(step, state, (env_keys, agent_keys))
    return state._replace(step=state.step + jnp.uint32(length)), record


_BATCHED_LAPACK = re.compile(r"@lapack_.*: \(tensor<\d+x\d+x\d+x")
"""Batched LAPACK on a CPU can deadlock: see `seqdec.linalg.sequential_vmap`."""


def _sequential(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    return lambda states, *others: jax.lax.map(lambda state: function(state, *others), states)


def _step(
    agent: Agent,
    env: Environment,
    names: tuple[str, ...],
    state: RunState,
    keys: tuple[Key, Key],
    params: PyTree,
) -> tuple[RunState, Record]:
    env_key, agent_key = keys
    action = agent.act(agent_key, state.agent, state.observation)
    check_action(action, env.action_space)
    env_state, timestep = stepped(env, env.step(env_key, state.env, action.value, params))
    feedback = timestep.reward if timestep.outcomes is None else timestep.outcomes
    learned, info = agent.update(state.agent, state.observation, agent.lesson(action), feedback)
    diagnostics = select(info, state.observation, action, names)
    record = Record(action.value, timestep.reward, timestep.regret, action.propensity, rejected(info), diagnostics)
    return state._replace(env=env_state, observation=timestep.observation, agent=learned), record
