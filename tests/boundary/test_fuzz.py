"""Random calls of the public functions: refused with a message of our own, or done, and no state is ever damaged.

    SEQDEC_FUZZ_CASES=10000 pytest -n 2 tests/boundary/test_fuzz.py

tries so many calls of each target, other ones each time; without the variable a few, always the same. To fuzz another
function, add a row to `TARGETS`: a strategy for the arguments, and what is done with them. An attempt may raise
ValueError or TypeError from a line of seqdec; anything else fails. Programs are compiled once, for fixed shapes: an
attempt checks what was drawn as the function does, then casts it to what was compiled.
"""

import contextlib
import functools
import math
import os
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import seqdec
from seqdec import agents, filters, likelihoods, models
from seqdec.bo import (
    BayesianOptimizer,
    Categorical,
    Conditional,
    Exhausted,
    Integer,
    Linear,
    Ordinal,
    Real,
    Search,
    space_from,
)
from seqdec.boundary.spaces import check_context, check_feedback
from seqdec.core import Masked, Spaces
from seqdec.ope import Log, make_log
from seqdec.results import Run
from tests.boundary.test_boundary import is_ours
from tests.test_damaged_data import READERS, read
from tests.test_results import make_run

CASES = int(os.environ.get("SEQDEC_FUZZ_CASES", "30"))
fuzz = settings(
    max_examples=CASES,
    deadline=None,
    database=None,
    derandomize="SEQDEC_FUZZ_CASES" not in os.environ,
    suppress_health_check=list(HealthCheck),
)
WIDTH, OUTPUTS = 4, 3
SITE = Spaces(spaces.Box(-5, 5, (WIDTH,), np.float32), spaces.Discrete(OUTPUTS))
NETWORK = models.network(models.MLP(OUTPUTS, (6,)), jnp.zeros(WIDTH))
GAUSSIAN = likelihoods.gaussian(0.1)

# What may be drawn

LARGE = [1e15, 1.7e18, 1e30, 1e38, 3e38, 1e300, np.inf, -np.inf, np.nan, -1e20]
NUMBERS = st.one_of(
    st.floats(-3, 3),
    st.integers(-3, 9),
    st.sampled_from([0.0, -0.0, 1e-30, 1e-45, *LARGE, 2**31, 2**40, -(2**63), 2**70, 10**400]),
    st.sampled_from([np.float32(2), np.int64(3), np.array([2.0])]),
)
SCALARS = st.one_of(
    NUMBERS, st.text(max_size=3), st.sampled_from([None, "3.5", True, 1j, b"1", object(), np.datetime64(0, "s")])
)
THINGS = st.recursive(
    st.one_of(SCALARS, st.dictionaries(st.one_of(st.integers(), st.text(max_size=3)), SCALARS, max_size=2)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.tuples(inner, inner)),
    max_leaves=5,
)
DTYPES = ["f4", "f4", "f4", "f8", "f2", "i4", "i8", "u1", "u8", "?", "c8", "U4", "O"]


@st.composite
def arrays(draw: Any, *shapes: tuple[int, ...]) -> np.ndarray:
    """An array of one of the shapes, of any dtype, mostly of moderate numbers."""
    shape, dtype = draw(st.sampled_from(shapes)), draw(st.sampled_from(DTYPES))
    values = np.random.default_rng(draw(st.integers(0, 9))).normal(size=shape)
    if values.size and draw(st.booleans()):
        values.flat[draw(st.integers(0, values.size - 1))] = draw(st.sampled_from(LARGE))
    with np.errstate(all="ignore"):
        return values.astype(dtype)


GOOD_X = np.linspace(-1, 1, WIDTH, dtype=np.float32)
GOOD_XS = arrays((WIDTH,)).filter(lambda array: array.dtype == np.float32)
XS = st.one_of(
    arrays(*[(WIDTH,)] * 3, (2, 2), (3,), (), (0,), (1, WIDTH)), arrays((WIDTH,)).map(np.ndarray.tolist), THINGS
)
YS = st.one_of(NUMBERS, NUMBERS, arrays((), (1,), (2,), (OUTPUTS,), (5,), (2, 2)), THINGS)
INDICES = st.one_of(
    st.none(),
    st.integers(-9, 9),
    st.lists(st.integers(-1, 3), max_size=3),
    st.lists(st.integers(0, 2)).map(np.array),
    THINGS,
)
MASKS = st.one_of(arrays(*[(OUTPUTS,)] * 2, (2,), ()), st.lists(st.booleans(), max_size=4), THINGS)
CONTEXTS = st.one_of(XS, XS, st.builds(Masked, XS, MASKS), st.builds(Masked, GOOD_XS, MASKS))


def cast(values: Any, dtype: Any = np.float32) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(values, dtype)


def judge(before: Any, after: Any, rejected: Any) -> None:
    """The state is finite, and the same to the bit where all was rejected."""
    one, other = (list(map(np.asarray, jax.tree.leaves(tree))) for tree in (before, after))
    assert all(np.isfinite(leaf).all() for leaf in other if leaf.dtype.kind == "f")
    if np.all(rejected):
        assert [leaf.tobytes() for leaf in one] == [leaf.tobytes() for leaf in other]


# Filters

LIKELIHOODS = {"gaussian": GAUSSIAN, "poisson": likelihoods.poisson(), "categorical": likelihoods.categorical()}
FILTERS: dict[str, dict[str, Any]] = {"ekf": {}, "hilofi": {"rank": 5}, "lrkf": {"rank": 8, "process_noise": 1e-4}}
EVERY_FILTER = st.sampled_from([("ekf", "poisson"), ("lrkf", "categorical"), *((name, "gaussian") for name in FILTERS)])


@functools.cache
def subject(name: str, likelihood: str) -> tuple[Any, Any, Any]:
    """A filter, a belief that has learned a little, and its compiled update."""
    flt = getattr(filters, name)(NETWORK, LIKELIHOODS[likelihood], **FILTERS[name])
    belief = flt.init(jax.random.key(1), NETWORK.init(jax.random.key(0)))
    update = jax.jit(flt.update)
    for step in range(3):
        x = np.random.default_rng(step).normal(size=WIDTH).astype(np.float32)
        belief, _ = update(flt.predict(belief), x, np.float32([1]), np.int32([step]))
    return flt, belief, update


def update(kind: tuple[str, str], x: Any, y: Any, observed: Any, known: bool) -> None:
    """Shapes, dtypes and known indices are checked while tracing; the belief alone is traced."""
    flt, belief, compiled = subject(*kind)
    if known:
        jax.eval_shape(lambda belief: flt.update(belief, x, y, observed), belief)
    else:
        x, y, observed = GOOD_X, 0.5, np.clip(cast(observed, np.int32).ravel()[:1], -9, 9)
    ys, rows = np.atleast_1d(cast(y)), None if observed is None else np.atleast_1d(cast(observed, np.int32))
    after, info = compiled(belief, cast(x).reshape(WIDTH), ys, rows)
    assert rows is None or np.all((rows >= 0) & (rows < OUTPUTS)) or info.rejected
    judge(belief, after, info.rejected)


# Agents

SMALL: dict[str, dict[str, Any]] = {"gp": {"buffer": 10}, "linear": {}, "replay_adamw": {"capacity": 50}}


@functools.cache
def living(name: str) -> tuple[seqdec.core.Agent, Any]:
    """An agent, and one of its states."""
    agent = seqdec.compiled(agents.make(name, SITE, **SMALL[name]), optimize=False)
    state = agent.init(jax.random.key(0))
    for step in range(3):
        x = np.random.default_rng(step).normal(size=WIDTH).astype(np.float32)
        state, _ = agent.update(state, x, jnp.int32(step), jnp.float32(0.5))
    return agent, state


def canonical(context: Any) -> Any:
    """A context that was let through, as the programs were compiled for."""
    if isinstance(context, Masked):
        return Masked(cast(context.observation), cast(context.mask, bool))
    return Masked(cast(context), np.ones(OUTPUTS, bool))


def act(name: str, context: Any) -> None:
    agent, state = living(name)
    check_context(SITE, context)
    action = agent.act(jax.random.key(0), state, canonical(context))
    assert canonical(context).mask[action.value] and not action.propensity > 1 + 1e-5


def learn(name: str, context: Any, action: Any, reward: Any) -> None:
    agent, state = living(name)
    check_feedback(SITE, context, action, reward)
    index = np.int32(0) if action is None else np.int32(np.clip(action, -9, 9))
    after, info = agent.update(state, cast(canonical(context).observation), index, cast(reward))
    judge(state, after, info.rejected)
    if np.shape(reward) == () and (index not in range(OUTPUTS) or not np.isfinite(cast(reward))):
        assert info.rejected


# Likelihoods


def gaussian(noise: Any) -> None:
    cov = likelihoods.gaussian(noise).cov(jnp.zeros(np.shape(noise)[-1] if np.shape(noise) else 2))
    assert np.linalg.eigvalsh(np.asarray(cov, float)).min() >= -1e-4 * max(1, np.abs(cov).max())


# Searches

dimensions = st.one_of(
    st.tuples(NUMBERS, NUMBERS),
    st.builds(Real, NUMBERS, NUMBERS, st.booleans()),
    st.builds(Integer, NUMBERS, NUMBERS, st.booleans()),
    st.builds(Categorical, THINGS),
    st.builds(Ordinal, st.lists(THINGS, max_size=4).map(tuple)),
)
conditional = st.builds(Conditional, dimensions, st.sampled_from("abc"), st.one_of(st.just((1,)), THINGS))
bounds = st.one_of(
    st.dictionaries(st.sampled_from("abc"), st.one_of(dimensions, conditional), max_size=3),
    st.lists(st.one_of(dimensions, THINGS), max_size=3),
    st.lists(dimensions, min_size=1, max_size=3),
    st.builds(lambda low, high: gymnasium.spaces.Box(low, high, (2,), np.float64), st.floats(-9, 0), st.floats(0)),
)
GOOD = {
    "real": (-1e6, 1e6),
    "log": Real(1e-6, 1e6, log=True),
    "whole": Integer(-5, 5),
    "kind": Categorical(("a", (1, (2.0, None)), np.float32(0.1), False)),
    "step": Ordinal((np.int64(16), 32, "more")),
    "on": Integer(0, 2),
    "inner": Conditional(Integer(0, 2), "on", (1, 2)),
}


def space(bounds: Any, x: Any) -> None:
    made = space_from(bounds)
    for unit in np.random.default_rng(0).random((4, made.columns)):
        point = made.point_at(unit)
        assert point is not None and np.all((point.unit >= -1e-9) & (point.unit <= 1 + 1e-9))
        assert made.values(point.x) == (point.x if made.names else list(point.x))
    point = made.point(x)
    assert point.unit.shape == (made.columns,) and np.isfinite(point.unit).all()


def search_settings(options: dict[str, Any]) -> None:
    optimizer = BayesianOptimizer([(0, 1)], **{"seed": 0, **options})
    assert optimizer.capacity >= 1 and optimizer.initial >= 1


STEPS: tuple[Callable[[BayesianOptimizer, Any], Any], ...] = (
    lambda one, thing: one.ask(),
    lambda one, thing: one.tell(one.ask(), thing),
    lambda one, thing: one.tell(thing, 1.0),
    lambda one, thing: one.propose(thing),
    lambda one, thing: one.tell(one.trials[-1] if one.trials else thing, thing),
    lambda one, thing: one.ask(fixed=thing),
    lambda one, thing: one.ask(fixed=dict.fromkeys(one.space.keys, thing)),
    lambda one, thing: one.tell(one.ask()._replace(x=thing), 2.0),
)


def ask_and_tell(names: set[str], steps: list[tuple[Any, Any]]) -> None:
    """Random designs only, because a surrogate would be compiled for each space."""
    one = BayesianOptimizer({name: GOOD[name] for name in GOOD if name in names | {"real", "on"}}, seed=0, initial=1000)
    for step, thing in steps:
        with contextlib.suppress(ValueError, TypeError, Exhausted):
            step(one, thing)
    table = one.trials_dataframe()
    assert table["number"].tolist() == list(range(len(table))) == [trial.number for trial in one.trials]
    assert np.isfinite(table["value"][table["state"] == "complete"].to_numpy(float)).all()
    one.save("study")
    loaded = BayesianOptimizer.load("study")
    assert [(trial.number, str(trial.x)) for trial in loaded.trials] == [(t.number, str(t.x)) for t in one.trials]


def constraints(rules: Any) -> None:
    one = BayesianOptimizer({"a": Real(0, 1), "on": Integer(0, 2)}, seed=0, constraints=rules)
    assert one.space.point(one.ask().x).x.keys() == {"a", "on"}


def minimize(options: dict[str, Any], value: Any) -> None:
    if isinstance(options.get("n_calls"), int):
        options["n_calls"] = min(options["n_calls"], 3)
    given = {"bounds": [(0, 1)], "n_calls": 2, "seed": 0, "initial": 1000, "progress": False, **options}
    result = seqdec.minimize(lambda x: value, **given)
    assert result.nfev <= 3 and len(result.x_iters) == len(result.func_vals) >= result.nfev
    assert result.success == (result.status in (0, 4)) and (math.isnan(result.fun) or result.fun in result.func_vals)


def options(*names: str, **hints: Any) -> st.SearchStrategy[dict[str, Any]]:
    """At most three of the keywords, with a value of the hint or anything."""
    one = st.sampled_from(names).flatmap(
        lambda name: st.tuples(st.just(name), st.one_of(hints.get(name, NUMBERS), THINGS))
    )
    return st.lists(one, max_size=3).map(dict)


# Logs

COLUMNS: dict[str, Any] = {
    "action": [0, 1, 2],
    "reward": [0.0, 1.0, 0.5],
    "propensity": [0.5, 1.0, 0.2],
    "context": np.zeros((3, 2)),
    "mask": np.ones((3, 3)),
    "timestamp": [1, 2, 3],
    "action_features": np.zeros((3, 3, 2)),
    "num_actions": 3,
}
columns = st.one_of(
    THINGS,
    st.lists(NUMBERS, min_size=3, max_size=3),
    st.lists(st.integers(0, 2), min_size=3, max_size=3),
    st.lists(st.lists(st.floats(0, 1), min_size=2, max_size=2), min_size=3, max_size=3),
)


def sound(log: Log) -> None:
    assert log.mask[np.arange(len(log.action)), log.action].all() and np.isfinite(log.reward).all()
    assert ((log.propensity > 0) & (log.propensity <= 1)).all() and log.context.ndim == 2


def of_columns(left_out: set[str], changed: dict[str, Any]) -> None:
    sound(make_log(**{name: value for name, value in COLUMNS.items() if name not in left_out} | changed))


def of_table(names: list[str], rows: list[list[Any]]) -> None:
    known = ["timestamp", "action", "reward", "propensity", *names]
    table = pd.DataFrame([row[: len(known)] for row in rows], columns=pd.Index(known), dtype=object)
    log = Log.from_pandas(table)
    sound(log)
    assert len(log.action) == len(rows)


class Target(NamedTuple):
    """A public function."""

    attempt: Callable[..., Any]
    """(*arguments): calls it and asserts what must hold afterwards"""
    arguments: st.SearchStrategy[tuple[Any, ...]]


def target(attempt: Callable[..., Any], *arguments: st.SearchStrategy[Any]) -> Target:
    return Target(attempt, st.tuples(*arguments))


TARGETS = {
    "Filter.update": target(update, EVERY_FILTER, XS, YS, INDICES, st.booleans()),
    "Agent.act": target(act, st.sampled_from(sorted(SMALL)), CONTEXTS),
    "Agent.update": target(
        learn,
        st.sampled_from(sorted(SMALL)),
        st.one_of(GOOD_XS, CONTEXTS),
        st.one_of(st.integers(0, OUTPUTS - 1), st.integers(-9, 9), arrays((), (2,), (1,)), THINGS),
        YS,
    ),
    "likelihoods.gaussian": target(gaussian, st.one_of(THINGS, arrays((), (3,), (2, 2), (5, 4), (2, 2, 2), (0,)))),
    "space_from": target(space, bounds, THINGS),
    "BayesianOptimizer": target(
        search_settings,
        options(
            "seed", "initial", "capacity", "maximize", "surrogate", "surrogate_options", "acquisition", "search",
            surrogate=st.sampled_from(["gp", "hilofi", "lrkf", "auto", "nope"]),
            surrogate_options=st.dictionaries(st.sampled_from(["growth", "scale", "draws", "rank"]), THINGS),
            acquisition=st.sampled_from(["ucb", "thompson", "auto", "nope"]),
            search=st.builds(Search, *[st.one_of(st.integers(-1, 5), SCALARS)] * 3),
        ),
    ),
    "ask and tell": target(
        ask_and_tell,
        st.sets(st.sampled_from(sorted(GOOD))),
        st.lists(st.tuples(st.sampled_from(STEPS), THINGS), max_size=8),
    ),
    "constraints": target(
        constraints,
        st.one_of(
            THINGS,
            st.lists(st.one_of(THINGS, st.builds(Linear, st.one_of(THINGS, st.just({"a": 1.0})), NUMBERS, NUMBERS))),
            THINGS.map(lambda answer: [lambda x: answer]),
        ),
    ),
    "minimize": target(
        minimize,
        options(
            "n_calls", "batch_size", "x0", "y0", "callback", "seed", "max_failures", "bounds",
            n_calls=st.integers(-1, 3), bounds=bounds,
        ),
        THINGS,
    ),
    "make_log": target(
        of_columns,
        st.sets(st.sampled_from(["context", "mask", "timestamp", "action_features", "num_actions"])),
        st.dictionaries(st.sampled_from(sorted(COLUMNS)), columns, max_size=2),
    ),
    "Log.from_pandas": target(
        of_table,
        st.lists(
            st.one_of(
                st.text(string.ascii_letters + "_0123456789", max_size=12),
                st.from_regex(r"(context|mask)_[0-9]{1,25}", fullmatch=True),
            ),
            max_size=3,
        ),
        st.lists(st.lists(SCALARS, min_size=7, max_size=7), min_size=1, max_size=3),
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")  # numpy, of a number that does not fit float32
@pytest.mark.parametrize("name", TARGETS)
def test_whatever_comes_is_refused_or_done(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    @fuzz
    @given(TARGETS[name].arguments)
    def attempt(arguments: tuple[Any, ...]) -> None:
        try:
            TARGETS[name].attempt(*arguments)
        except (ValueError, TypeError) as error:
            if not is_ours(error):
                raise

    attempt()


# Files

changes = st.lists(
    st.tuples(st.sampled_from(["flip", "cut", "insert", "delete", "repeat"]), st.floats(0, 1), st.binary(min_size=1)),
    min_size=1,
    max_size=3,
)


def changed(content: bytes, changes: list[tuple[str, float, bytes]]) -> bytes:
    for kind, share, text in changes:
        at = int(share * (len(content) - 1)) if content else 0
        before, rest = content[:at], content[at:]
        content = {
            "flip": before + bytes([rest[0] ^ text[0]]) + rest[1:] if rest else content,
            "cut": before,
            "insert": before + text + rest,
            "delete": before + rest[len(text) :],
            "repeat": before + rest[:40] + rest,
        }[kind]
    return content


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", READERS)
def test_readers_of_damaged_files(name: str, tmp_path: Path) -> None:
    reader, place = READERS[name], tmp_path / "files"
    reader.write(place)
    content = (place / reader.file).read_bytes()

    @settings(fuzz, max_examples=max(10, CASES // 10))
    @given(changes=changes)
    def attempt(changes: Any) -> None:
        read(reader, place, changed(content, changes))

    attempt()


def test_damaged_files_of_our_own_are_named(tmp_path: Path) -> None:
    make_run(1, 3).save(tmp_path / "run")
    state = {"a": jnp.arange(3.0), "key": jax.random.key(0)}
    seqdec.save(tmp_path / "state", state)
    optimizer = BayesianOptimizer([(0, 1), Categorical(((1, 2), "x"))], seed=0)
    optimizer.tell(optimizer.ask(), 1.0)
    optimizer.save(tmp_path / "study")
    log = make_log(action=[0, 1, 0], reward=[0.0, 1.0, 0.0], propensity=[0.5] * 3, context=np.zeros((3, 1)))
    log.save(tmp_path / "log.parquet")
    log.to_pandas().to_csv(tmp_path / "log.csv", index=False)
    loaders: dict[str, Callable[[Path], Any]] = {
        "run/steps.parquet": lambda path: Run.load(path.parent),
        "state": lambda path: seqdec.load(path, state),
        "study": BayesianOptimizer.load,
        "log.parquet": lambda path: Log.load(path, num_actions=2),
        "log.csv": lambda path: Log.load(path, num_actions=2),
    }
    kept = {name: (tmp_path / name).read_bytes() for name in loaders}

    @fuzz
    @given(st.sampled_from(sorted(loaders)), changes)
    def attempt(name: str, changes: Any) -> None:
        path = tmp_path / name
        path.write_bytes(changed(kept[name], changes))
        try:
            loaders[name](path)
        except ValueError as error:
            assert path.name in str(error)  # noqa: PT017

    attempt()
