"""Random calls of the public functions: refused with a message of our own, or done, and no state is ever damaged.

    SEQDEC_FUZZ_CASES=10000 pytest -n 2 tests/test_fuzz.py

tries so many calls, spread over the targets, other ones each time; without the variable a few hundred, always the same.
A target is a row of `TARGETS`: a strategy for the arguments, and what is done with them. To fuzz another function, add
a row. An attempt may raise ValueError or TypeError from a line of seqdec; anything else fails. Programs are compiled
once, for fixed shapes: an attempt checks what was drawn as the function does, then casts it to what was compiled.
"""

import functools
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import seqdec
from seqdec import agents, filters, likelihoods, models
from seqdec.boundary.spaces import check_context, check_feedback
from seqdec.core import Masked
from seqdec.filters import Numerics

CASES = int(os.environ.get("SEQDEC_FUZZ_CASES", "400"))
ROOT = Path(seqdec.__file__).resolve().parents[1]
WIDTH, OUTPUTS = 4, 3
NETWORK = models.network(models.MLP(OUTPUTS, (6,)), jnp.zeros(WIDTH))


class Target(NamedTuple):
    """A public function."""

    arguments: st.SearchStrategy[tuple[Any, ...]]
    attempt: Callable[..., Any]
    """(*arguments): calls it and asserts what must hold afterwards"""


# What may be drawn

LARGE = [1e15, 1.7e18, 1e30, 1e38, 3e38, 1e300, np.inf, -np.inf, np.nan, -1e20]
NUMBERS = st.one_of(
    st.floats(-3, 3),
    st.sampled_from([0.0, -0.0, 1e-30, 1e-45, *LARGE]),
    st.integers(-3, 9),
    st.sampled_from([2**31, 2**40, -(2**63), 2**70, 10**400]),
)
THINGS = st.one_of(
    NUMBERS, st.sampled_from([None, "3.5", "", True, 1j, {}, [], (), b"1", object(), np.datetime64(0, "s")])
)
DTYPES = ["f4", "f4", "f4", "f8", "f2", "i4", "i8", "u1", "u8", "?", "c8", "U4", "O"]


@st.composite
def arrays(draw, shapes):
    """An array of one of the shapes, of any dtype, mostly of moderate numbers."""
    shape, dtype = draw(st.sampled_from(shapes)), draw(st.sampled_from(DTYPES))
    values = np.random.default_rng(draw(st.integers(0, 9))).normal(size=shape)
    if values.size and draw(st.booleans()):
        values.flat[draw(st.integers(0, values.size - 1))] = draw(st.sampled_from(LARGE))
    with np.errstate(all="ignore"):
        return values.astype(dtype)


def lists(shapes):
    return arrays(shapes).map(lambda array: array.tolist())


XS = st.one_of(
    arrays([(WIDTH,), (WIDTH,), (WIDTH,), (2, 2), (3,), (5,), (), (0,), (1, WIDTH)]), lists([(WIDTH,)]), THINGS
)
GOOD_XS = arrays([(WIDTH,)]).filter(lambda array: array.dtype == np.float32)
YS = st.one_of(NUMBERS, NUMBERS, arrays([(), (1,), (2,), (OUTPUTS,), (5,), (2, 2)]), lists([(OUTPUTS,)]), THINGS)
INDICES = st.one_of(
    st.none(),
    st.integers(-9, 9),
    st.lists(st.integers(-1, 3), min_size=0, max_size=3),
    st.lists(st.integers(0, 2), min_size=1, max_size=3).map(lambda rows: np.array(rows)),
    THINGS,
)


# What must hold


def ours(error: Exception) -> bool:
    """Whether the last line that raised it is one of seqdec's."""
    return Path(traceback.extract_tb(error.__traceback__)[-1].filename).resolve().is_relative_to(ROOT) and bool(
        str(error)
    )


def finite(tree: Any) -> bool:
    return all(np.isfinite(leaf).all() for leaf in map(np.asarray, jax.tree.leaves(tree)) if leaf.dtype.kind == "f")


def assert_same_bits(one: Any, other: Any) -> None:
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


# Filters

LIKELIHOODS = {
    "gaussian": likelihoods.gaussian(0.1),
    "poisson": likelihoods.poisson(),
    "categorical": likelihoods.categorical(),
}
FILTERS = {
    "ekf": lambda likelihood: filters.ekf(NETWORK, likelihood),
    "hilofi": lambda likelihood: filters.hilofi(NETWORK, likelihood, rank=5, process_noise_hidden=1e-4),
    "lofi": lambda likelihood: filters.lofi(NETWORK, likelihood, rank=5),
    "lolofi": lambda likelihood: filters.lolofi(NETWORK, likelihood, rank_hidden=5, rank_last=8),
    "lrkf": lambda likelihood: filters.lrkf(NETWORK, likelihood, rank=8, process_noise=1e-4),
}


class Subject(NamedTuple):
    """A filter, a belief that has learned a little, and compiled programs."""

    flt: seqdec.core.Filter
    belief: Any
    update: Callable[..., Any]
    update_batch: Callable[..., Any]
    moments: Callable[..., Any]


@functools.cache
def subject(name: str, likelihood: str) -> Subject:
    flt = FILTERS[name](LIKELIHOODS[likelihood])
    belief = flt.init(jax.random.key(1), NETWORK.init(jax.random.key(0)))
    update = jax.jit(flt.update)
    for step in range(3):
        x = np.random.default_rng(step).normal(size=WIDTH).astype(np.float32)
        belief, _ = update(flt.predict(belief), x, np.float32([1]), np.int32([step]))
    return Subject(flt, belief, update, jax.jit(flt.update_batch), jax.jit(flt.moments))


def cast(values: Any, dtype: Any = np.float32) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(values, dtype)


def judge(before: Any, after: Any, rejected: Any) -> None:
    """The belief is finite, and the same to the bit where all was rejected."""
    assert finite(after)
    if np.all(rejected):
        assert_same_bits(before, after)


def update(name, likelihood, x, y, observed):
    it = subject(name, likelihood)
    # Shapes, dtypes and indices are checked while tracing; the belief alone is traced.
    jax.eval_shape(lambda belief: it.flt.update(belief, x, y, observed), it.belief)
    ys, rows = np.atleast_1d(cast(y)), None if observed is None else np.atleast_1d(cast(observed, np.int32))
    after, info = it.update(it.belief, cast(x).reshape(WIDTH), ys, rows)
    judge(it.belief, after, info.rejected)


def update_traced(name, likelihood, x, y, index):
    """An index that is not known when the program is compiled."""
    it = subject(name, likelihood)
    after, info = it.update(it.belief, x, np.atleast_1d(cast(y)), np.int32([index]))
    assert index in range(OUTPUTS) or info.rejected
    judge(it.belief, after, info.rejected)


def update_batch(name, likelihood, xs, ys, observed):
    it = subject(name, likelihood)
    jax.eval_shape(lambda belief: it.flt.update_batch(belief, xs, ys, observed), it.belief)
    count = len(ys)
    rows = None if observed is None else cast(observed, np.int32).reshape(count, -1)
    after, info = it.update_batch(it.belief, cast(xs).reshape(count, WIDTH), cast(ys).reshape(count, -1), rows)
    assert info.rejected.shape == (count,)
    judge(it.belief, after, info.rejected)


def update_batch_traced(name, likelihood, xs, ys, rows):
    it = subject(name, likelihood)
    after, info = it.update_batch(it.belief, xs, cast(ys)[:, None], np.int32(rows)[:, None])
    wrong = [row not in range(OUTPUTS) for row in rows]
    assert np.all(np.asarray(info.rejected) >= wrong)
    judge(it.belief, after, info.rejected)


def moments(name, likelihood, x):
    it = subject(name, likelihood)
    jax.eval_shape(lambda belief: it.flt.moments(belief, x), it.belief)
    known = cast(x).reshape(WIDTH)
    found = it.moments(it.belief, known)
    if np.all(np.abs(known) < 10):
        assert finite(found)


EVERY_FILTER = st.sampled_from(sorted(FILTERS)), st.sampled_from(sorted(LIKELIHOODS))


# Agents


class Where(NamedTuple):
    observation_space: gymnasium.Space
    action_space: gymnasium.Space


SITE = Where(spaces.Box(-5, 5, (WIDTH,), np.float32), spaces.Discrete(OUTPUTS))
SMALL: dict[str, dict[str, Any]] = {
    "auto": {"capacity": 50},
    "gp": {"buffer": 10},
    "hilofi": {"rank": 4, "model": models.MLP(OUTPUTS, (6,))},
    "linear": {},
    "replay_adamw": {"capacity": 50, "model": models.MLP(OUTPUTS, (6,))},
}
MASKS = st.one_of(arrays([(OUTPUTS,), (OUTPUTS,), (2,), (5,), ()]), st.lists(st.booleans(), max_size=4), THINGS)
CONTEXTS = st.one_of(XS, XS, st.builds(Masked, XS, MASKS), st.builds(Masked, GOOD_XS, MASKS))


class Living(NamedTuple):
    """An agent, one of its states, and compiled programs."""

    agent: seqdec.core.Agent
    state: Any
    act: Callable[..., Any]
    update: Callable[..., Any]


@functools.cache
def living(name: str) -> Living:
    made = agents.make(name, SITE, **SMALL[name])
    agent = seqdec.compiled(made, optimize=False)
    state = agent.init(jax.random.key(0))
    for step in range(3):
        x = np.random.default_rng(step).normal(size=WIDTH).astype(np.float32)
        state, _ = agent.update(state, x, np.int32(step), np.float32(0.5))
    return Living(agent, state, agent.act, agent.update)


def canonical(context: Any) -> Any:
    """A context that was let through, as the programs were compiled for."""
    if isinstance(context, Masked):
        return Masked(cast(context.observation), cast(context.mask, bool))
    return Masked(cast(context), np.ones(OUTPUTS, bool))


def act(name, context):
    it = living(name)
    assert it.agent.spaces is not None
    check_context(it.agent.spaces, context)
    action = it.act(jax.random.key(0), it.state, canonical(context))
    assert action.value in range(OUTPUTS)
    assert canonical(context).mask[action.value] and not action.propensity > 1 + 1e-5


def lesson(name, context, action, reward):
    it = living(name)
    assert it.agent.spaces is not None
    check_feedback(it.agent.spaces, context, action, reward)
    index = np.int32(0) if action is None else np.int32(np.clip(action, -9, 9))
    after, info = it.update(it.state, cast(canonical(context).observation), index, cast(reward))
    assert finite(after)
    if name != "hilofi":  # whose process noise arrives all the same
        judge(it.state, after, info.rejected)
    if np.shape(reward) == () and (index not in range(OUTPUTS) or not np.isfinite(cast(reward))):
        assert info.rejected


# Factories


def gaussian(noise):
    cov = likelihoods.gaussian(noise).cov(jnp.zeros(np.shape(noise)[-1] if np.shape(noise) else 2))
    assert np.linalg.eigvalsh(np.asarray(cov, float)).min() >= -1e-4 * max(1, np.abs(cov).max())


def jitter(kind, value):
    getattr(likelihoods, kind)(value)


def numerics(field, value):
    filters.ekf(NETWORK, LIKELIHOODS["gaussian"], numerics=Numerics(**{field: value}))


def factory(name, setting, value):
    FACTORIES[name](**{setting: value})


FACTORIES: dict[str, Callable[..., Any]] = {
    "ekf": lambda **options: filters.ekf(NETWORK, LIKELIHOODS["gaussian"], **options),
    "hilofi": lambda **options: filters.hilofi(NETWORK, LIKELIHOODS["gaussian"], **{"rank": 3, **options}),
    "lofi": lambda **options: filters.lofi(NETWORK, LIKELIHOODS["gaussian"], **{"rank": 3, **options}),
    "lrkf": lambda **options: filters.lrkf(NETWORK, LIKELIHOODS["gaussian"], **{"rank": 3, **options}),
}
SETTINGS = {
    "ekf": ("initial_std", "process_noise", "initial_std_table", "numerics"),
    "hilofi": (
        "rank",
        "initial_std_hidden",
        "initial_std_last",
        "process_noise_hidden",
        "process_noise_last",
        "numerics",
    ),
    "lofi": ("rank", "initial_std", "process_noise"),
    "lrkf": ("rank", "initial_std", "process_noise", "numerics"),
}
SETTING = st.sampled_from([(name, setting) for name, every in SETTINGS.items() for setting in every])


def built(setting, value):
    agents.hilofi(SITE, **{"model": NETWORK, "rank": 3, setting: value})


TARGETS = {
    "Filter.update": Target(st.tuples(*EVERY_FILTER, XS, YS, INDICES), update),
    "Filter.update, traced": Target(
        st.tuples(*EVERY_FILTER, GOOD_XS, NUMBERS.filter(lambda y: abs(y) < 1e301 or y != y), st.integers(-9, 9)),
        update_traced,
    ),
    "Filter.update_batch": Target(
        st.tuples(
            *EVERY_FILTER,
            st.one_of(arrays([(2, WIDTH), (2, WIDTH), (3, WIDTH), (2, 3), (0, WIDTH), (WIDTH,)]), THINGS),
            st.one_of(arrays([(2,), (2, OUTPUTS), (3, OUTPUTS), (2, 1), (0,), ()]), THINGS),
            st.one_of(
                st.none(),
                st.lists(st.integers(-1, 3), min_size=2, max_size=2),
                st.lists(st.integers(0, 2), min_size=2, max_size=2).map(np.array),
                THINGS,
            ),
        ),
        update_batch,
    ),
    "Filter.update_batch, traced": Target(
        st.tuples(
            *EVERY_FILTER,
            arrays([(2, WIDTH)]).filter(lambda array: array.dtype == np.float32),
            arrays([(2,)]).filter(lambda array: array.dtype in (np.float32, np.float64)),
            st.lists(st.integers(-4, 4), min_size=2, max_size=2),
        ),
        update_batch_traced,
    ),
    "Filter.moments": Target(st.tuples(*EVERY_FILTER, XS), moments),
    "Agent.act": Target(st.tuples(st.sampled_from(sorted(SMALL)), CONTEXTS), act),
    "Agent.update": Target(
        st.tuples(
            st.sampled_from(sorted(SMALL)),
            st.one_of(GOOD_XS, CONTEXTS),
            st.one_of(st.integers(0, OUTPUTS - 1), st.integers(-9, 9), arrays([(), (2,), (1,)]), THINGS),
            YS,
        ),
        lesson,
    ),
    "likelihoods.gaussian": Target(
        st.tuples(st.one_of(THINGS, arrays([(), (3,), (2, 2), (5, 4), (2, 2, 2), (0,)]), lists([(2, 2)]))), gaussian
    ),
    "likelihoods, jitter": Target(st.tuples(st.sampled_from(["bernoulli", "categorical", "poisson"]), THINGS), jitter),
    "Numerics": Target(st.tuples(st.sampled_from(Numerics._fields), THINGS), numerics),
    "filters, factories": Target(
        st.tuples(SETTING, st.one_of(THINGS, arrays([(), (2,)]))).map(lambda drawn: (*drawn[0], drawn[1])), factory
    ),
    "agents.hilofi": Target(
        st.tuples(st.sampled_from(["noise_variance", "rank", "policy", "average", "model", "num_candidates"]), THINGS),
        built,
    ),
}


@pytest.mark.sampled(20)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")  # numpy, of a number that does not fit float32
@pytest.mark.parametrize("name", TARGETS)
def test_whatever_comes_is_refused_or_done(name: str) -> None:
    target = TARGETS[name]

    @settings(
        max_examples=max(1, CASES // len(TARGETS)),
        deadline=None,
        database=None,
        derandomize="SEQDEC_FUZZ_CASES" not in os.environ,
        suppress_health_check=list(HealthCheck),
    )
    @given(target.arguments)
    def attempt(arguments: tuple[Any, ...]) -> None:
        try:
            target.attempt(*arguments)
        except (ValueError, TypeError) as error:
            if not ours(error):
                raise

    attempt()
