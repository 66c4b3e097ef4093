"""The contract of `seqdec.core.Environment`, checked."""

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import Env, Space
from gymnasium.spaces import Box, Dict, Discrete

from seqdec.boundary import checks
from seqdec.core import Environment, Key, Masked, PyTree, TimeStep
from seqdec.runtime import UNOPTIMIZED
from seqdec.states import described, named_leaves

_TRACING = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.UnexpectedTracerError,
)
_LARGEST_CONSTANT = 10_000
_TOLERANCE = 1e-4
"""Negative regret that is rounding, by the largest number in it."""


def check(env: Environment, *, steps: int = 16, seed: int = 0) -> None:
    """Check that a functional environment satisfies its contract over `steps` random actions, compiled.

    Observations must fit the space; they and the state must keep shapes and dtypes. Reward and regret are single
    numbers, regret at least 0 or NaN, the end of an episode a bool; equal keys give equal results.

    Raises:
        TypeError: not a functional environment, or spaces that no agent supports.
        ValueError: it violates the contract; the message says where and how to fix it.

    Warns:
        UserWarning: arrays that belong in `params` are constants of the compiled program, or no reward is known.
    """
    if isinstance(env, Env):
        raise TypeError(f"{env} is a gymnasium.Env: check it with gymnasium.utils.env_checker.check_env")
    steps, key = checks.count("steps", steps), jax.random.key(checks.seed_bits(checks.seed("seed", seed)))
    observation, timestep = contract(env)
    _check_spaces(env)
    _check_dtypes(env, observation, timestep)

    def play(key: Key, params: PyTree) -> tuple[PyTree, PyTree, TimeStep]:
        start, acting, playing = jax.random.split(key, 3)
        actions = _random_actions(acting, env.action_space, steps)
        state, observation = env.reset(start, params)
        keys = jax.random.split(playing, steps)
        _, timesteps = jax.lax.scan(
            lambda state, given: env.step(given[0], state, given[1], params), state, (keys, actions)
        )
        return actions, observation, timesteps

    with jax.disable_jit(False):
        programs = [jax.jit(lambda *given: play(*given)).trace(key, env.params) for _ in range(2)]
        _check_purity(env, *(program.jaxpr for program in programs))
        program = programs[0].lower().compile(UNOPTIMIZED)
        played, again = (jax.device_get(program(key, env.params)) for _ in range(2))
    if not _equal(played, again):
        _refuse(env, "equal keys must give equal results; they give others when it is called again: draw from the key")
    _check_values(env, *played)


def contract(env: Environment) -> tuple[PyTree, TimeStep]:
    """Shapes of an observation and a time step; TypeError or ValueError where they break the contract."""
    if not isinstance(env, Environment):
        raise TypeError(f"env must be a seqdec.core.Environment, as seqdec.envs.make builds; got {type(env).__name__}")
    if not isinstance(env.action_space, Discrete | Box):
        raise TypeError(
            f"environment {env.name!r}: action_space must be Discrete or a bounded Box; got {env.action_space}: number "
            "the actions, and look them up in step"
        )
    (state, observation), (following, timestep) = _shapes(env)
    _check_same(env, "state", state, following)
    _check_same(env, "observation", observation, timestep.observation)
    _check_observation(env, observation)
    return observation, timestep


@contextmanager
def explained(env: Environment) -> Iterator[None]:
    """Errors of making programs with `env` in the words of `contract`."""
    try:
        yield
    except Exception:
        try:
            contract(env)
        except Exception as error:
            raise error from None
        raise


def begun(env: Environment, returned: Any) -> tuple[PyTree, PyTree]:
    """The result of `env.reset`; ValueError unless a state and an observation."""
    if not isinstance(returned, tuple) or len(returned) != 2 or isinstance(returned, Masked):
        _refuse(env, f"reset must return (state, observation); it returns {_form(returned)}")
    return returned


def stepped(env: Environment, returned: Any) -> tuple[PyTree, TimeStep]:
    """The result of `env.step`; ValueError unless a state and a `TimeStep` of single numbers."""
    if not isinstance(returned, tuple) or len(returned) != 2 or not isinstance(returned[1], TimeStep):
        _refuse(
            env,
            "step must return (state, seqdec.core.TimeStep(observation, reward, regret, done)); it returns "
            f"{_form(returned)}",
        )
    timestep = returned[1]
    for name, remedy in (
        ("reward", "the responses of every action are outcomes"),
        ("regret", "NaN where it is unknown"),
    ):
        leaf = getattr(timestep, name)
        if leaf is None or np.shape(leaf) or not checks.is_real(jnp.result_type(leaf)):
            _refuse(env, f"{name} must be one number, of shape (); step returns {_form(leaf)}: {remedy}")
    outcomes, actions = timestep.outcomes, env.action_space
    if outcomes is not None and (not isinstance(actions, Discrete) or np.shape(outcomes) != (actions.n,)):
        _refuse(env, f"outcomes must hold the response of every action of {actions}; got {_form(outcomes)}")
    return returned


def _refuse(env: Environment, words: str) -> NoReturn:
    raise ValueError(f"environment {env.name!r}: {words}")


def _shapes(env: Environment) -> tuple[tuple[PyTree, PyTree], tuple[PyTree, TimeStep]]:
    key = jax.eval_shape(lambda: jax.random.key(0))
    first = begun(env, _traced(env, "reset", env.reset, key, env.params))
    action = jax.ShapeDtypeStruct(env.action_space.shape or (), jax.dtypes.canonicalize_dtype(_action_dtype(env)))
    return first, stepped(env, _traced(env, "step", env.step, key, first[0], action, env.params))


def _action_dtype(env: Environment) -> Any:
    return np.int32 if isinstance(env.action_space, Discrete) else env.action_space.dtype


def _traced(env: Environment, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return jax.eval_shape(lambda *given: function(*given), *arguments)
    except _TRACING as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"environment {env.name!r}: {name} cannot be compiled, because it needs the value of an array ({reason}): "
            "use jax.numpy in place of numpy, jnp.where or jax.lax.cond in place of if, the key for random numbers, "
            "the state for memory"
        ) from error
    except Exception as error:
        error.add_note(f"while {name} of the environment {env.name!r} was traced")
        raise


def _form(value: Any) -> str:
    if isinstance(value, tuple) and type(value) is not tuple:
        return type(value).__name__
    if isinstance(value, tuple):
        return f"a tuple ({', '.join(map(_form, value))})"
    return f"{value.dtype} of shape {value.shape}" if hasattr(value, "dtype") else f"{type(value).__name__}"


def _check_same(env: Environment, name: str, first: PyTree, later: PyTree) -> None:
    leaves, others = dict(named_leaves(first)), dict(named_leaves(later))
    for path in {**leaves, **others}:
        before, after = (described(known[path]) if path in known else None for known in (leaves, others))
        if before != after:
            place = name if path == "state" else f"{name}, {path}"
            found = [f"{one['dtype']} of shape {tuple(one['shape'])}" if one else "missing" for one in (before, after)]
            _refuse(
                env,
                f"the {name} must keep its shapes and dtypes: {place} is {found[0]} after reset and {found[1]} after a "
                "step: make both alike, as with astype",
            )
    if jax.tree.structure(first) != jax.tree.structure(later):
        kinds = jax.tree.structure(first), jax.tree.structure(later)
        _refuse(env, f"the {name} must keep its structure; it is {kinds[0]} after reset and {kinds[1]} after a step")


def _check_observation(env: Environment, observation: PyTree) -> None:
    if isinstance(observation, Masked):
        actions, mask = env.action_space, observation.mask
        if not isinstance(actions, Discrete) or getattr(mask, "shape", None) != (actions.n,):
            _refuse(env, f"a mask must hold a bool for each action of {actions}; got {_form(mask)}")
        observation = observation.observation
    _check_shape(env, "the observation", env.observation_space, observation)


def _check_shape(env: Environment, name: str, space: Space, found: Any) -> None:
    if isinstance(space, Dict):
        if not isinstance(found, Mapping) or set(found) != set(space):
            entries = sorted(found) if isinstance(found, Mapping) else _form(found)
            _refuse(env, f"{name} must be a dict with the entries {sorted(space)}; got {entries}")
        for entry in space:
            _check_shape(env, f"{name}[{entry!r}]", space[entry], found[entry])
    elif isinstance(space, Box | Discrete) and getattr(found, "shape", None) != space.shape:
        _refuse(env, f"{name} must be an array of shape {space.shape}, as {space}; it is {_form(found)}")


def _check_spaces(env: Environment) -> None:
    if isinstance(env.action_space, Box) and not env.action_space.is_bounded():
        raise TypeError(f"environment {env.name!r}: actions must be bounded; got {env.action_space}")
    space = env.observation_space
    parts = space.values() if isinstance(space, Dict) else [space]
    if not all(isinstance(part, Box | Discrete) for part in parts):
        raise TypeError(
            f"environment {env.name!r}: observation_space must be Box, Discrete or a Dict of Boxes with a row for each "
            f"action; got {space}: make it an array of features"
        )


def _check_dtypes(env: Environment, observation: PyTree, timestep: TimeStep) -> None:
    inner = observation.observation if isinstance(observation, Masked) else observation
    parts = env.observation_space.items() if isinstance(env.observation_space, Dict) else [("", env.observation_space)]
    wanted = {f"the observation[{name!r}]" if name else "the observation": part.dtype for name, part in parts}
    found = [inner[name] if name else inner for name, _ in parts]
    rows = [
        *zip(wanted, found, wanted.values(), strict=True),
        ("reward", timestep.reward, np.float32),
        ("regret", timestep.regret, np.float32),
        ("done", timestep.done, np.bool_),
    ]
    if isinstance(observation, Masked):
        rows.append(("the mask", observation.mask, np.bool_))
    for name, leaf, dtype in rows:
        kinds = [kind for kind in (jnp.floating, jnp.integer, jnp.bool_) if jnp.issubdtype(dtype, kind)]
        if not hasattr(leaf, "dtype") or not jnp.issubdtype(leaf.dtype, kinds[0]):
            wanted_dtype = jax.dtypes.canonicalize_dtype(dtype)
            _refuse(
                env, f"{name} must be {wanted_dtype}; it is {_form(leaf)}: convert it, as with jnp.{wanted_dtype}(...)"
            )


def _random_actions(key: Key, space: Space, steps: int) -> jax.Array:
    if isinstance(space, Discrete):
        return jax.random.randint(key, (steps,), 0, int(space.n), jnp.int32)
    assert isinstance(space, Box)
    shape, dtype = (steps, *space.shape), jax.dtypes.canonicalize_dtype(space.dtype)
    if np.issubdtype(space.dtype, np.floating):
        return jax.random.uniform(key, shape, minval=jnp.asarray(space.low), maxval=jnp.asarray(space.high)).astype(
            dtype
        )
    low, high = (jnp.asarray(bound, jnp.int32) for bound in (space.low, space.high))
    return jax.random.randint(key, shape, low, high + 1).astype(dtype)


def _check_purity(env: Environment, *programs: Any) -> None:
    """Refuse functions that change when traced again; warn of large constants."""
    texts = [re.sub(r"0x[0-9a-f]+", "", str(program)) for program in programs]
    if texts[0] != texts[1] or not _equal(*(program.consts for program in programs)):
        _refuse(
            env,
            "equal keys must give equal results; reset or step computes something else when it is traced again: draw "
            "random numbers from the key, and keep what changes in the state",
        )
    size = sum(np.size(constant) for constant in programs[0].consts)
    if size > _LARGEST_CONSTANT:
        warnings.warn(
            f"environment {env.name!r}: {size:,} numbers that its functions close over become constants of the "
            "compiled program: pass them in params",
            stacklevel=4,
        )


def _equal(one: PyTree, other: PyTree) -> bool:
    leaves, others = ([_plain(leaf) for leaf in jax.tree.leaves(tree)] for tree in (one, other))
    return len(leaves) == len(others) and all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in zip(leaves, others, strict=True)
    )


def _plain(leaf: Any) -> np.ndarray:
    is_key = hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def _check_values(env: Environment, actions: PyTree, first: PyTree, steps: TimeStep) -> None:
    following = steps.observation
    seen = jax.tree.map(lambda one, more: np.concatenate([np.asarray(one)[None], more]), first, following)
    if isinstance(seen, Masked):
        if not seen.mask.any(-1).all():
            _refuse(env, "a mask must allow at least one action; it allows none")
        seen = seen.observation
    for row in range(len(actions) + 1):
        observation = jax.tree.map(lambda leaf, row=row: leaf[row], seen)
        _check_inside(env, "the observation", env.observation_space, observation)
    known = steps.reward[~np.isnan(steps.reward)]
    if np.isinf(known).any():
        _refuse(env, f"a reward must be finite, or NaN where it is unknown; got {known[np.isinf(known)][0]}")
    if not known.size:
        warnings.warn(f"environment {env.name!r}: none of {len(actions)} rewards is known: all are NaN", stacklevel=4)
    regret = steps.regret[~np.isnan(steps.regret)]
    if regret.size and regret.min() < -_TOLERANCE * max(1, np.abs(regret).max()):
        _refuse(
            env,
            f"a regret must be at least 0, or NaN where it is unknown; got {regret.min():g}: it is the expected reward "
            "of the best action minus that of the action taken",
        )


def _check_inside(env: Environment, name: str, space: Space, values: Any) -> None:
    if isinstance(space, Dict):
        for entry in space:
            _check_inside(env, f"{name}[{entry!r}]", space[entry], values[entry])
    elif not space.contains(np.asarray(values, space.dtype)):
        _refuse(env, f"{name} must lie in {space}; got {np.asarray(values).tolist()}: widen the space")
