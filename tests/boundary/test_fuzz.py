"""Random calls of the public functions: refused with a message of our own, or done, and no state is ever damaged.

    SEQDEC_FUZZ_CASES=10000 pytest -n 2 tests/boundary/test_fuzz.py

tries so many calls of each target, other ones each time; without the variable a few, always the same. To fuzz another
function, add a row to `TARGETS`: a strategy for the arguments, and what is done with them. An attempt may raise
ValueError or TypeError from a line of seqdec; anything else fails.
"""

import contextlib
import math
import os
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import seqdec
from seqdec.bo import (
    BayesianOptimizer,
    Categorical,
    Conditional,
    Exhausted,
    Integer,
    Ordinal,
    Real,
    Search,
    space_from,
)
from seqdec.ope import Log, make_log
from seqdec.results import Run
from tests.boundary.test_boundary import is_ours
from tests.test_results import make_run

CASES = int(os.environ.get("SEQDEC_FUZZ_CASES", "30"))
fuzz = settings(
    max_examples=CASES,
    deadline=None,
    database=None,
    derandomize="SEQDEC_FUZZ_CASES" not in os.environ,
    suppress_health_check=list(HealthCheck),
)

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


TARGETS: dict[str, tuple[Any, ...]] = {
    "space_from": (space, bounds, THINGS),
    "ask and tell": (
        ask_and_tell,
        st.sets(st.sampled_from(sorted(GOOD))),
        st.lists(st.tuples(st.sampled_from(STEPS), THINGS), max_size=8),
    ),
    "minimize": (
        minimize,
        options(
            "n_calls", "batch_size", "x0", "y0", "callback", "seed", "max_failures", "bounds", "surrogate",
            "surrogate_options", "acquisition", "search",
            n_calls=st.integers(-1, 3),
            bounds=bounds,
            surrogate=st.sampled_from(["gp", "hilofi", "auto", "nope"]),
            surrogate_options=st.dictionaries(st.sampled_from(["growth", "scale", "draws", "rank"]), THINGS),
            acquisition=st.sampled_from(["ucb", "thompson", "auto", "nope"]),
            search=st.builds(Search, *[st.one_of(st.integers(-1, 5), SCALARS)] * 3),
        ),
        THINGS,
    ),
    "make_log": (
        of_columns,
        st.sets(st.sampled_from(["context", "mask", "timestamp", "action_features", "num_actions"])),
        st.dictionaries(st.sampled_from(sorted(COLUMNS)), columns, max_size=2),
    ),
    "Log.from_pandas": (
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
"""An attempt, which asserts what must hold afterwards, and strategies for its arguments."""


@pytest.mark.parametrize("name", TARGETS)
def test_whatever_comes_is_refused_or_done(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    function, *strategies = TARGETS[name]

    @fuzz
    @given(st.tuples(*strategies))
    def attempt(arguments: tuple[Any, ...]) -> None:
        try:
            function(*arguments)
        except (ValueError, TypeError) as error:
            if not is_ours(error):
                raise

    attempt()


# Files

changes = st.lists(
    st.tuples(st.sampled_from(["flip", "cut", "insert"]), st.floats(0, 1), st.binary(min_size=1)),
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
        }[kind]
    return content


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
