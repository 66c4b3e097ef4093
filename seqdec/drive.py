"""The two ways to drive an agent: chunks of a compiled scan on the devices, or step by step on the host.

Keys: seed i starts from `jax.random.key(seed + i)`, split into an environment key and an agent key, so that different
agents meet the same environment; each is split again into a key to start with and a key to which the step number is
folded in. A result therefore depends on neither the chunks nor the number of seeds.
"""

import re
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from seqdec.core import Action, Agent, Array, Environment, Key, Masked, PyTree

_LONGEST_CHUNK = 1000
_CHUNKS = 100


class Record(NamedTuple):
    """What one step leaves behind; stacked to (seeds, steps, ...) by and by."""

    action: Array | np.ndarray
    reward: Array | np.ndarray
    regret: Array | np.ndarray
    propensity: Array | np.ndarray
    rejected: Array | np.ndarray
    diagnostics: dict[str, Any]


class Outcome(NamedTuple):
    """What a drive brings home."""

    record: Record
    """Every field (seeds, steps, ...); possibly some steps more than were asked for."""
    clock: list[tuple[int, float]]
    """(steps done, seconds of running since the start), increasing."""
    compile_seconds: float
    interrupted: bool


class _Carry(NamedTuple):
    """All that a seed takes from one step to the next; `step` and the keys to fold it into change with the chunk."""

    step: Array
    env_key: Key
    agent_key: Key
    env: PyTree
    observation: PyTree
    agent: PyTree


def on_device(
    agent: Agent, env: Environment, num_steps: int, seeds: range, names: tuple[str, ...], tick: Callable[[int], Any]
) -> Outcome:
    """Run on the devices, chunk by chunk, the seeds spread over all of them.

    The lists grow by a whole chunk or not at all, so Ctrl-C cannot tear them.
    """
    length = chunk_length(num_steps)
    began = time.perf_counter()
    mesh = _mesh(len(seeds))
    per_seed, common = _placements(mesh)
    params = jax.device_put(env.params, common)
    # Devices take equal shares: where the seeds do not go round, some run twice, and the copies are cut off below.
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
    """As many devices as there are seeds to share out, at most all."""
    devices = jax.local_devices()[:num_seeds]
    return jax.make_mesh((len(devices),), ("seeds",), (AxisType.Auto,), devices=devices)


def _placements(mesh: Mesh) -> tuple[NamedSharding, NamedSharding]:
    """Of what belongs to seeds, and of what they all read."""
    return NamedSharding(mesh, PartitionSpec("seeds")), NamedSharding(mesh, PartitionSpec())


def chunk_length(num_steps: int) -> int:
    """Steps in one compiled chunk: about a hundredth of the run, at most 1,000, with little left over at the end."""
    chunks = max(-(-num_steps // _LONGEST_CHUNK), min(_CHUNKS, num_steps))
    return -(-num_steps // chunks)


def _compile(
    agent: Agent, env: Environment, names: tuple[str, ...], length: int, keys: Key, params: PyTree, mesh: Mesh
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The two programs of a run: (keys, params) -> carry and (carry, params) -> (carry, record of one chunk)."""

    def start(key: Key, params: PyTree) -> _Carry:
        (reset_key, env_key), (init_key, agent_key) = _split(key)
        state, observation = env.reset(reset_key, params)
        return _Carry(jnp.uint32(0), env_key, agent_key, state, observation, agent.init(init_key))

    def advance(carry: _Carry, params: PyTree) -> tuple[_Carry, Record]:
        # All keys of a chunk at once: one by one they would cost a step of many seeds a tenth of its time.
        steps = carry.step + jnp.arange(length, dtype=carry.step.dtype)
        env_keys, agent_keys = (
            jax.vmap(jax.random.fold_in, (None, 0))(key, steps) for key in (carry.env_key, carry.agent_key)
        )

        def step(carry, keys):
            return _step(agent, env, names, carry, keys, params)

        carry, record = jax.lax.scan(step, carry, (env_keys, agent_keys))
        return carry._replace(step=carry.step + jnp.uint32(length)), record

    spread, whole = PartitionSpec("seeds"), PartitionSpec()
    placed = {"in_shardings": _placements(mesh), "out_shardings": _placements(mesh)[0]}

    def lower(function, states, **options):
        """Each device runs its share of the seeds side by side; nothing is exchanged between devices."""

        def share(over_seeds):
            shared = jax.shard_map(
                over_seeds(function), mesh=mesh, in_specs=(spread, whole), out_specs=spread, check_vma=False
            )
            return jax.jit(shared, **placed, **options).lower(states, params)

        beside = share(lambda function: jax.vmap(function, (0, None)))
        return share(_one_by_one) if _BATCHED_LAPACK.search(beside.as_text()) else beside

    starting = lower(start, keys)
    carry = starting.out_info
    return starting.compile(), lower(advance, carry, donate_argnums=0).compile()


_BATCHED_LAPACK = re.compile(r"@lapack_.*: \(tensor<\d+x\d+x\d+x")
"""A factorisation of a batch on a CPU, which may wait for ever: see `seqdec.linalg.one_by_one`."""


def _one_by_one(function: Callable[[PyTree, PyTree], PyTree]) -> Callable[[PyTree, PyTree], PyTree]:
    """As `jax.vmap` over the first argument, but in turns."""
    return lambda states, params: jax.lax.map(lambda state: function(state, params), states)


def _step(
    agent: Agent,
    env: Environment,
    names: tuple[str, ...],
    carry: _Carry,
    keys: tuple[Key, Key],
    params: PyTree,
) -> tuple[_Carry, Record]:
    """One step of one seed: act, see what comes of it, learn."""
    env_key, agent_key = keys
    action = agent.act(agent_key, carry.agent, carry.observation)
    _check_action(action, env.action_space)
    state, timestep = env.step(env_key, carry.env, action.value, params)
    feedback = timestep.reward if timestep.outcomes is None else timestep.outcomes
    learned, info = agent.update(carry.agent, carry.observation, action.value, feedback)
    kept = _select(info, carry.observation, names)
    record = Record(action.value, timestep.reward, timestep.regret, action.propensity, _rejected(info), kept)
    return carry._replace(env=state, observation=timestep.observation, agent=learned), record


def on_host(
    agent: Agent, env: gymnasium.Env, num_steps: int, seeds: range, names: tuple[str, ...], tick: Callable[[int], Any]
) -> Outcome:
    """Run on the host, seed after seed, every step three calls: act, env.step, update."""
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
    """The compiled halves of a step on the host."""

    init: Callable[[Key], PyTree]
    act: Callable[[Key, np.uint32, PyTree, PyTree], Action]
    update: Callable[[PyTree, PyTree, Array, np.ndarray], tuple[PyTree, Array, dict[str, Array]]]
    """(state, observation, action, reward) -> (state, rejected, diagnostics)."""
    like: PyTree
    """An observation, whose structure and dtypes the programs were compiled for."""


def _compile_host(agent: Agent, env: gymnasium.Env, names: tuple[str, ...], seed: int) -> _HostPrograms:
    """Compile the agent against the first observation of `env`."""

    def act(key: Key, step: Array, state: PyTree, observation: PyTree) -> Action:
        action = agent.act(jax.random.fold_in(key, step), state, observation)
        _check_action(action, env.action_space)
        return action

    def update(state: PyTree, observation: PyTree, action: Array, reward: Array) -> tuple[PyTree, Array, PyTree]:
        state, info = agent.update(state, observation, action, reward)
        return state, _rejected(info), _select(info, observation, names)

    raw, info = env.reset(seed=seed)
    like = jax.tree.map(lambda leaf: np.asarray(jnp.asarray(leaf)), _pack(raw, info))
    key, step = jax.random.key(seed), np.uint32(0)
    init = jax.jit(agent.init).lower(key).compile()
    state = jax.eval_shape(agent.init, key)
    acting = jax.jit(act).lower(key, step, state, like).compile()
    action = jax.eval_shape(act, key, step, state, like).value
    updating = jax.jit(update, donate_argnums=0).lower(state, like, action, _scalar(0.0)).compile()
    return _HostPrograms(init, acting, updating, like)


def _episodes(env: gymnasium.Env, num_steps: int, seed: int, programs: _HostPrograms) -> Iterator[Record]:
    """One seed's steps; an ended episode is followed by the next."""
    (_, _), (init_key, agent_key) = _split(jax.random.key(seed))
    state = programs.init(init_key)
    observation = _observe(*env.reset(seed=seed), programs.like)
    for step in range(num_steps):
        action = programs.act(agent_key, np.uint32(step), state, observation)
        value = np.asarray(action.value)
        raw, reward, terminated, truncated, info = env.step(_for_gymnasium(value, env.action_space))
        state, rejected, kept = programs.update(state, observation, action.value, _scalar(reward))
        regret = _scalar(info.get("regret", np.nan))
        yield jax.device_get(Record(value, _scalar(reward), regret, action.propensity, rejected, kept))
        if terminated or truncated:
            raw, info = env.reset()
        observation = _observe(raw, info, programs.like)


def _pack(raw: Any, info: dict[str, Any]) -> PyTree:
    """The observation as the agent gets it: `Masked` where the environment says which actions are allowed."""
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


def _split(key: Key) -> tuple[tuple[Key, Key], tuple[Key, Key]]:
    """A seed's key -> ((environment's first key, its step key), (agent's first key, its step key))."""
    env_key, agent_key = jax.random.split(key)
    (reset_key, step_key), (init_key, act_key) = jax.random.split(env_key), jax.random.split(agent_key)
    return (reset_key, step_key), (init_key, act_key)


def _rejected(info: Any) -> Array:
    """() bool: whether the update was rejected; False for agents that never say."""
    return jnp.asarray(getattr(info, "rejected", False), bool)


def _select(info: Any, observation: PyTree, names: tuple[str, ...]) -> dict[str, Array]:
    """The wanted fields of an agent's info, or the observation; what has fields of its own gives one entry for each."""
    fields = {name: getattr(info, name) for name in getattr(info, "_fields", ()) if getattr(info, name) is not None}
    available = {**fields, "observation": observation}
    for name in names:
        if name not in available:
            raise ValueError(
                f"diagnostics: the agent's {type(info).__name__} holds no {name!r}; available: {', '.join(available)}"
            )
    leaves = jax.tree_util.tree_leaves_with_path({name: available[name] for name in names})
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def _check_action(action: Action, space: gymnasium.Space) -> None:
    """Refuse, while tracing, an action that cannot fit the action space."""
    value = action.value
    if isinstance(space, Discrete):
        if value.shape != () or not jnp.issubdtype(value.dtype, jnp.integer):
            raise ValueError(f"{space} wants a () integer action; the agent plays {value.dtype} of shape {value.shape}")
    elif isinstance(space, Box):
        if value.shape != space.shape:
            raise ValueError(f"{space} wants an action of shape {space.shape}; the agent plays shape {value.shape}")
    else:
        raise TypeError(f"the action space must be Discrete or Box; got {space}")
