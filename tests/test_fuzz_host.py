"""Arbitrary arguments and damaged files: the documented exceptions, or a result that keeps its promises.

SEQDEC_FUZZ_CASES is the number of cases of each test.
"""

import math
import os
import string
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds

import seqdec
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
from seqdec.ope import Log, make_log
from seqdec.results import Run
from tests.test_damaged_data import READERS, Reader, read
from tests.test_results import make_run

CASES = int(os.environ.get("SEQDEC_FUZZ_CASES", "40"))
fuzz = settings(
    max_examples=CASES,
    deadline=None,
    database=None,
    derandomize="SEQDEC_FUZZ_CASES" not in os.environ,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
DOCUMENTED = (ValueError, TypeError)

# Anything that a user may hand over by mistake, and numbers of all sizes.
numbers = st.one_of(
    st.integers(-3, 5),
    st.integers(),
    st.floats(),
    st.floats(-10, 10),
    st.sampled_from([10**400, np.float32(2), np.int64(3), jnp.float32(1), np.array([2.0]), True, -0.0]),
)
scalars = st.one_of(
    numbers, st.none(), st.text(max_size=3), st.binary(max_size=2), st.complex_numbers(), st.just("3.5")
)
tables = st.dictionaries(st.one_of(st.integers(), st.text(max_size=3)), scalars, max_size=2)
things = st.recursive(
    st.one_of(scalars, tables),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.tuples(inner, inner)),
    max_leaves=5,
)
dimensions = st.one_of(
    st.tuples(numbers, numbers),
    st.builds(Real, numbers, numbers, st.booleans()),
    st.builds(Integer, numbers, numbers, st.booleans()),
    st.builds(Categorical, st.lists(things, max_size=4).map(tuple)),
    st.builds(Categorical, things),
    st.builds(Ordinal, st.lists(things, max_size=4).map(tuple)),
)
named = st.dictionaries(
    st.one_of(st.sampled_from("abc"), things.filter(lambda thing: isinstance(thing, str | int))),
    st.one_of(dimensions, st.builds(Conditional, dimensions, st.sampled_from("abc"), st.one_of(st.just((1,)), things))),
    max_size=3,
)
bounds = st.one_of(
    named,
    things,
    st.lists(st.one_of(dimensions, things), max_size=3),
    st.lists(dimensions, min_size=1, max_size=3),
    st.builds(lambda low, high: gymnasium.spaces.Box(low, high, (2,), np.float64), st.floats(-9, 0), st.floats(0)),
    st.builds(lambda low, high: Bounds([low], [high]), st.floats(), st.floats()),  # pyright: ignore
)
good_dimensions = st.one_of(
    st.tuples(st.floats(-1e6, -1), st.floats(1, 1e6)),
    st.builds(Integer, st.integers(-5, 0), st.integers(1, 5), st.just(False)),
    st.builds(Real, st.floats(1e-6, 0.5), st.floats(1, 1e6), st.just(True)),
    st.just(Categorical(("a", (1, (2.0, None)), np.float32(0.1), False))),
    st.just(Ordinal((np.int64(16), 32, "more"))),
)
good_names = st.dictionaries(st.sampled_from("abc"), good_dimensions, min_size=1).map(
    lambda bounds: bounds | {"on": Integer(0, 2), "inner": Conditional(Integer(0, 2), "on", (1, 2))}
)


@fuzz
@given(bounds, things)
def test_bounds(bounds: Any, x: Any) -> None:
    try:
        space = space_from(bounds)
    except DOCUMENTED:
        return
    rng = np.random.default_rng(0)
    for unit in rng.random((4, space.columns)):
        point = space.point_at(unit)
        assert point is not None and np.all((point.unit >= -1e-9) & (point.unit <= 1 + 1e-9))
        assert space.values(point.x) == (point.x if space.names else list(point.x))
    try:
        point = space.point(x)
    except DOCUMENTED:
        return
    assert point.unit.shape == (space.columns,) and np.isfinite(point.unit).all()


@fuzz
@given(st.data())
def test_settings_of_an_optimizer(data: st.DataObject) -> None:
    names = ("seed", "initial", "capacity", "maximize", "surrogate", "surrogate_options", "acquisition", "search")
    hints: dict[str, Any] = {
        "surrogate": st.sampled_from(["gp", "hilofi", "lrkf", "auto", "nope"]),
        "surrogate_options": st.dictionaries(
            st.sampled_from(["growth", "scale", "iterations", "rank", "features", "noise_variance", "initial_std"]),
            st.one_of(numbers, things, st.just((4,))),
            max_size=2,
        ),
        "acquisition": st.sampled_from(["ucb", "thompson", "auto", "nope"]),
        "search": st.builds(Search, *[st.one_of(st.integers(-1, 5), scalars)] * 3),
    }
    chosen = data.draw(st.sets(st.sampled_from(names), max_size=3))
    options = {name: data.draw(st.one_of(hints.get(name, numbers), things)) for name in sorted(chosen)}
    try:
        optimizer = BayesianOptimizer([(0, 1)], **{"seed": 0, **options})
    except DOCUMENTED:
        return
    assert optimizer.capacity >= 1 and optimizer.initial >= 1


@fuzz
@given(
    bounds=st.one_of(st.lists(good_dimensions, min_size=1, max_size=3), good_names),
    steps=st.lists(st.tuples(st.integers(0, 7), things), max_size=8),
)
def test_ask_and_tell(tmp_path_factory: pytest.TempPathFactory, bounds: Any, steps: list[tuple[int, Any]]) -> None:
    """Random designs only, because a surrogate would be compiled for each space."""
    optimizer = BayesianOptimizer(bounds, seed=0, initial=1000)
    for kind, thing in steps:
        try:
            if kind == 0:
                optimizer.ask()
            elif kind == 1:
                optimizer.tell(optimizer.ask(), thing)
            elif kind == 2:
                optimizer.tell(thing, 1.0)
            elif kind == 3:
                optimizer.propose(thing)
            elif kind == 4:
                optimizer.tell(optimizer.trials[-1] if optimizer.trials else thing, thing)
            elif kind == 5:
                optimizer.ask(fixed=thing)
            elif kind == 6:
                optimizer.ask(fixed=dict.fromkeys(optimizer.space.keys, thing))
            else:
                optimizer.tell(optimizer.ask()._replace(x=thing), 2.0)
        except (*DOCUMENTED, Exhausted):
            pass
    table = optimizer.trials_dataframe()
    assert table["number"].tolist() == list(range(len(table))) == [trial.number for trial in optimizer.trials]
    assert np.isfinite(table["value"][table["state"] == "complete"].to_numpy(float)).all()
    path = tmp_path_factory.getbasetemp() / "study"
    optimizer.save(path)
    loaded = BayesianOptimizer.load(path)
    assert list(map(_plain, loaded.trials)) == list(map(_plain, optimizer.trials))


def _plain(trial: Any) -> tuple[int, list[Any]]:
    return trial.number, list(trial.x.items() if isinstance(trial.x, dict) else trial.x)


@fuzz
@given(
    st.one_of(
        things, st.lists(st.one_of(things, st.builds(Linear, st.one_of(things, st.just({"a": 1.0})), numbers, numbers)))
    ),
    things,
)
def test_constraints(constraints: Any, answer: Any) -> None:
    bounds = {"a": Real(0, 1), "on": Integer(0, 2)}
    for rules in (constraints, [lambda x: answer]):
        try:
            optimizer = BayesianOptimizer(bounds, seed=0, constraints=rules)
        except DOCUMENTED:
            continue
        assert optimizer.space.point(optimizer.ask().x).x.keys() == bounds.keys()


@fuzz
@given(st.data())
def test_arguments_of_minimize(data: st.DataObject) -> None:
    names = ("n_calls", "batch_size", "x0", "y0", "callback", "seed", "max_failures", "bounds")
    chosen = data.draw(st.sets(st.sampled_from(names), max_size=3))
    values: dict[str, Any] = {"n_calls": st.integers(-1, 3), "bounds": bounds}
    options = {name: data.draw(st.one_of(values.get(name, numbers), things)) for name in sorted(chosen)}
    if isinstance(options.get("n_calls"), int):
        options["n_calls"] = min(options["n_calls"], 3)
    value = data.draw(things)
    arguments = {"bounds": [(0, 1)], "n_calls": 2, "seed": 0, "initial": 1000, "progress": False, **options}
    try:
        result = seqdec.minimize(lambda x: value, **arguments)
    except DOCUMENTED:
        return
    assert result.nfev <= 3 and len(result.x_iters) == len(result.func_vals) >= result.nfev
    assert result.success == (result.status in (0, 4)) and (math.isnan(result.fun) or result.fun in result.func_vals)


def assert_sound(log: Log) -> None:
    assert log.mask[np.arange(len(log.action)), log.action].all() and np.isfinite(log.reward).all()
    assert ((log.propensity > 0) & (log.propensity <= 1)).all() and log.context.ndim == 2


columns = st.one_of(
    things,
    st.lists(numbers, min_size=3, max_size=3),
    st.lists(st.integers(0, 2), min_size=3, max_size=3),
    st.lists(st.lists(st.floats(0, 1), min_size=2, max_size=2), min_size=3, max_size=3),
)


@fuzz
@given(st.data())
def test_columns_of_a_log(data: st.DataObject) -> None:
    good: dict[str, Any] = {
        "action": [0, 1, 2],
        "reward": [0.0, 1.0, 0.5],
        "propensity": [0.5, 1.0, 0.2],
        "context": np.zeros((3, 2)),
        "mask": np.ones((3, 3)),
        "timestamp": [1, 2, 3],
        "action_features": np.zeros((3, 3, 2)),
        "num_actions": 3,
    }
    left_out = data.draw(st.sets(st.sampled_from(["context", "mask", "timestamp", "action_features", "num_actions"])))
    changed = data.draw(st.sets(st.sampled_from(sorted(good)), max_size=2))
    arguments = {name: value for name, value in good.items() if name not in left_out}
    try:
        log = make_log(**arguments | {name: data.draw(columns) for name in sorted(changed)})
    except DOCUMENTED:
        return
    assert_sound(log)


names = st.one_of(
    st.text(string.ascii_letters + "_0123456789", max_size=12),
    st.from_regex(r"(context|mask)_[0-9]{1,25}", fullmatch=True),
)


@fuzz
@given(st.lists(names, max_size=3), st.lists(st.lists(scalars, min_size=7, max_size=7), min_size=1, max_size=3))
def test_tables_as_logs(names: list[str], rows: list[list[Any]]) -> None:
    import pandas as pd

    known = ["timestamp", "action", "reward", "propensity"]
    table = pd.DataFrame([row[: 4 + len(names)] for row in rows], columns=pd.Index([*known, *names]), dtype=object)
    try:
        log = Log.from_pandas(table)
    except DOCUMENTED:
        return
    assert_sound(log)
    assert len(log.action) == len(rows)


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


@pytest.fixture(scope="module", params=READERS)
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Reader, Path, bytes]:
    reader, place = READERS[request.param], tmp_path_factory.mktemp("reader") / "files"
    reader.write(place)
    return reader, place, (place / reader.file).read_bytes()


@pytest.mark.sampled(2)
@settings(fuzz, max_examples=max(10, CASES // len(READERS)))
@given(changes=changes)
def test_readers(files: tuple[Reader, Path, bytes], changes: Any) -> None:
    reader, place, content = files
    read(reader, place, changed(content, changes))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, bytes, Any]]:
    """File, content and loader of everything that can be saved."""
    home = tmp_path_factory.mktemp("saved")
    make_run(1, 3).save(home / "run")
    state = {"a": jnp.arange(3.0), "key": jax.random.key(0)}
    seqdec.save(home / "state", state)
    optimizer = BayesianOptimizer([(0, 1), Categorical(((1, 2), "x"))], seed=0)
    optimizer.tell(optimizer.ask(), 1.0)
    optimizer.save(home / "study")
    log = make_log(action=[0, 1, 0], reward=[0.0, 1.0, 0.0], propensity=[0.5] * 3, context=np.zeros((3, 1)))
    log.save(home / "log.parquet")
    log.to_pandas().to_csv(home / "log.csv", index=False)
    loaders: dict[str, Any] = {
        "run/steps.parquet": lambda path: Run.load(path.parent),
        "state": lambda path: seqdec.load(path, state),
        "study": BayesianOptimizer.load,
        "log.parquet": lambda path: Log.load(path, num_actions=2),
        "log.csv": lambda path: Log.load(path, num_actions=2),
    }
    return {name: (home / name, (home / name).read_bytes(), load) for name, load in loaders.items()}


@pytest.mark.parametrize("name", ["run/steps.parquet", "state", "study", "log.parquet", "log.csv"])
@fuzz
@given(changes=changes)
def test_saved_files(name: str, saved: dict[str, tuple[Path, bytes, Any]], changes: Any) -> None:
    path, content, load = saved[name]
    path.write_bytes(changed(content, changes))
    try:
        load(path)
    except ValueError as error:
        refusal = error
    else:
        return
    assert path.name in str(refusal), refusal
