"""Points and known values in containers of any kind are those of lists and dicts, or one clear error."""

import importlib.util
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import seqdec
from seqdec.bo import BayesianOptimizer, Categorical, Conditional, Integer, Real, space_from
from seqdec.bo.space.space import Space

NAMED = {"b": (0.0, 1.0), "a": (0.0, 1.0)}
PLAIN = [(0.0, 1.0), (0.0, 1.0)]
ROWS = [[0.25, 0.5], [0.75, 1.0]]
DICTS = [{"b": 0.25, "a": 0.5}, {"b": 0.75, "a": 1.0}]
FRAME = pd.DataFrame({"b": [0.25, 0.75], "a": [0.5, 1.0]}, index=[7, 3])
RECORDS = FRAME.to_records(index=False)
Row = namedtuple("Row", "b a")
if importlib.util.find_spec("polars") is None:  # its containers are tested where it is installed
    pl: Any = None
else:
    import polars as pl

TABLES: dict[str, Any] = {
    "pandas": FRAME,
    "polars": FRAME if pl is None else pl.DataFrame(DICTS),
    "arrow": pa.Table.from_pandas(FRAME, preserve_index=False),
    "batch": pa.RecordBatch.from_pandas(FRAME, preserve_index=False),
    "structs": pa.array(DICTS),
    "records": RECORDS,
    "structured": np.array([(0.25, 0.5), (0.75, 1.0)], [("b", ">f8"), ("a", "f4")]),
    "dicts": DICTS,
    "series of dicts": pd.Series(DICTS, index=[5, 1]),
    "rows": [row for _, row in FRAME.iterrows()],
    "tuples": [*FRAME.itertuples(index=False)],
}
ARRAYS: dict[str, Callable[[], Any]] = {
    "lists": lambda: ROWS,
    "tuple": lambda: tuple(map(tuple, ROWS)),
    "array": lambda: np.array(ROWS),
    "transposed": lambda: np.array(ROWS).T.copy().T,
    "big-endian": lambda: np.array(ROWS).astype(">f4"),
    "jax": lambda: jnp.array(ROWS),
    "list of jax": lambda: [jnp.array(row) for row in ROWS],
    "list of series": lambda: [pd.Series(row, index=["q", "p"]) for row in ROWS],
    "polars series": lambda: ROWS if pl is None else [pl.Series(row) for row in ROWS],
    "arrow lists": lambda: pa.array(ROWS),
    "object": lambda: np.array(ROWS, object),
    "unnamed columns": lambda: pd.DataFrame(ROWS),
}
POINTS: dict[str, Any] = {
    "list": lambda: [0.25, 0.5],
    "tuple": lambda: Row(0.25, 0.5),
    "array": lambda: np.array([0.25, 0.5], ">f8"),
    "jax": lambda: jnp.array([0.25, 0.5]),
    "0-d": lambda: [np.array(0.25), jnp.array(0.5)],
    "series": lambda: pd.Series([0.25, 0.5], index=["p", "q"]),
    "shuffled": lambda: pd.Series([0.25, 0.5], index=[1, 0]),
    "column": lambda: FRAME.iloc[0],
    "polars": lambda: [0.25, 0.5] if pl is None else pl.Series([0.25, 0.5]),
    "arrow": lambda: pa.array([0.25, 0.5]),
    "struct": lambda: pa.scalar(DICTS[0]),
    "record": lambda: RECORDS[0],
    "table": lambda: FRAME[:1],
}


def units(space: Space, points: list[Any]) -> list[list[float]]:
    return [space.point(point).unit.tolist() for point in points]


@pytest.mark.parametrize("name", TABLES)
def test_a_table_holds_points_by_name_or_by_the_order_of_its_columns(name: str) -> None:
    assert units(space_from(NAMED), space_from(NAMED).listed(TABLES[name])) == ROWS
    if name in ("dicts", "structs", "series of dicts"):
        space = space_from(NAMED)
        points = [dict(reversed(point.items())) for point in space.listed(TABLES[name])]
        assert units(space, points) == ROWS  # the order of names does not matter
        with pytest.raises(TypeError, match="a point of this space, which has no names, is a list of values"):
            space_from(PLAIN).point(DICTS[0])
    else:
        assert units(space_from(PLAIN), space_from(PLAIN).listed(TABLES[name])) == ROWS


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_holds_points(name: str) -> None:
    space = space_from(PLAIN)
    assert units(space, space.listed(ARRAYS[name]())) == ROWS


@pytest.mark.parametrize("name", POINTS)
def test_one_point(name: str) -> None:
    space, optimizer = space_from(PLAIN), BayesianOptimizer(PLAIN, seed=0)
    assert units(space, space.listed(POINTS[name]())) == [ROWS[0]]
    assert optimizer.propose(POINTS[name]()).x.tolist() == optimizer.tell(POINTS[name](), 1.0).x.tolist() == ROWS[0]
    if name in ("tuple", "column", "struct", "record", "table"):
        named = BayesianOptimizer(NAMED, seed=0)
        assert units(named.space, named.space.listed(POINTS[name]())) == [ROWS[0]]
        assert named.tell(POINTS[name](), 1.0).x == DICTS[0]


def test_a_choice_that_is_a_tuple_is_not_a_point() -> None:
    layers = space_from([Categorical(((8,), (8, 8))), Categorical(((1,), (2,)))])
    assert layers.listed([(8, 8), (2,)]) == [[(8, 8), (2,)]]
    assert layers.listed([[(8, 8), (2,)], [(8,), (1,)]]) == [[(8, 8), (2,)], [(8,), (1,)]]
    mixed = space_from([Categorical(((8,), (8, 8))), Real(0, 1)])
    assert mixed.listed([(8, 8), 0.5]) == [[(8, 8), 0.5]]


def test_a_table_of_trials_starts_another_search_inactive_parameters_included() -> None:
    space = {
        "kind": Categorical(("a", "b")),
        "count": Integer(1, 9),
        "extra": Conditional(Real(0, 1), on="kind", values=("b",)),
    }
    first = seqdec.minimize(lambda x: x["count"], space, n_calls=8, seed=0, initial=100, progress=False)
    table = first.optimizer.trials_dataframe()
    assert 0 < np.sum(table["extra"].isna()) < 8
    points = table[[*space]]
    for x0 in (points, pa.Table.from_pandas(points), points if pl is None else pl.from_pandas(points)):
        again = seqdec.minimize(
            lambda x: 1.0, space, n_calls=1, seed=0, initial=100, progress=False, x0=x0, y0=table["value"]
        )
        assert again.x_iters[:8] == first.x_iters and again.func_vals[:8].tolist() == first.func_vals.tolist()
    with pytest.raises(ValueError, match="unknown parameter 'number'"):
        seqdec.minimize(lambda x: 1.0, space, n_calls=9, seed=0, x0=table)
    with pytest.raises(ValueError, match="inactive at 'kind' = 'a': leave it out"):
        space_from(space).point({"kind": "a", "count": 1, "extra": 0.5})


@pytest.mark.parametrize(
    "y0",
    [
        [1.0, 2.0],
        np.array([[1.0], [2.0]]),
        pd.Series([1.0, 2.0], index=[1, 0]),
        pd.DataFrame({"y": [1.0, 2.0]}),
        [1.0, 2.0] if pl is None else pl.Series([1.0, 2.0]),
        pa.array([1, 2]),
        pa.chunked_array([[1], [2]]),
        jnp.array([1, 2]),
    ],
    ids=lambda y0: type(y0).__name__,
)
def test_known_values(y0: Any) -> None:
    options: Any = {"n_calls": 1, "seed": 0, "initial": 100, "progress": False}
    result = seqdec.minimize(lambda x: 3.0, PLAIN, x0=ROWS, y0=y0, **options)
    assert result.func_vals.tolist() == [1.0, 2.0, 3.0]


def test_known_values_of_several_objectives_are_rows() -> None:
    options: Any = {"n_calls": 1, "seed": 0, "initial": 100, "progress": False, "objectives": 2}
    values = pd.DataFrame({"first": [1.0, 2.0], "second": [4.0, 3.0]})
    for y0 in (
        values,
        values.to_numpy(),
        pa.Table.from_pandas(values),
        jnp.array(values.to_numpy()),
    ):
        result = seqdec.minimize(lambda x: (5.0, 6.0), PLAIN, x0=ROWS, y0=y0, **options)
        assert result.func_vals.tolist() == [[1.0, 4.0], [2.0, 3.0], [5.0, 6.0]]


@pytest.mark.parametrize(
    ("x0", "error", "message"),
    [
        ("ab", ValueError, r"a point has 2 values; got 1: 'ab'"),
        ({0.1, 0.2}, ValueError, "a point has 2 values; got 1"),
        (FRAME.assign(c=1.0), ValueError, "a point has 2 values; got 3"),
        (pd.Series(["x", "y"]), TypeError, r"x\[0\] must be a number; got 'x'"),
        (pd.DataFrame({"a": [None], "b": [0.5]}), TypeError, r"x\[0\] must be a number; got None"),
        (np.zeros((2, 2, 2)), TypeError, r"x\[0\] must be a number"),
        (object(), ValueError, "a point has 2 values; got 1"),
        (pd.DataFrame({"a": [np.nan], "b": [0.5]}), ValueError, r"x\[0\] = nan lies outside the bounds"),
    ],
)
def test_what_is_no_point_is_refused(x0: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        seqdec.minimize(lambda x: pytest.fail("evaluated"), PLAIN, n_calls=2, seed=0, x0=x0)


@pytest.mark.parametrize(
    "bounds",
    [
        np.array([[0, 1], [0, 1]], ">i8"),
        jnp.array([[0.0, 1.0], [0.0, 1.0]]),
        pd.DataFrame({"low": [0, 0], "high": [1.0, 1.0]}, index=[3, 1]),
        pd.Series([(0, 1), (0, 1)], index=[1, 0]),
        pa.array([[0.0, 1.0], [0.0, 1.0]]),
        pa.table({"low": [0, 0], "high": [1, 1]}),
        [jnp.array([0, 1]), pd.Series([0, 1], index=[1, 0])],
    ],
    ids=lambda bounds: type(bounds).__name__,
)
def test_bounds(bounds: Any) -> None:
    assert space_from(bounds) == space_from(PLAIN)


@pytest.mark.parametrize(
    "choices",
    [
        np.array([1, 2, 3], ">i4"),
        jnp.arange(1, 4),
        pd.Series([1, 2, 3], index=[2, 1, 0]),
        pd.Index([1, 2, 3]),
        pa.array([1, 2, 3]),
        range(1, 4),
    ],
    ids=lambda choices: type(choices).__name__,
)
def test_choices(choices: Any) -> None:
    space = space_from([Categorical(choices)])
    assert space.dimensions == (Categorical((1, 2, 3)),) and space.point([2]).x == [2]
    on = space_from({"a": Integer(1, 9), "b": Conditional(Real(0, 1), on="a", values=jnp.array([2, 3]))})  # pyright: ignore[reportArgumentType]
    assert on.conditions[1] is not None and on.conditions[1].values == (2, 3)


@pytest.mark.parametrize(
    "value",
    [np.ones((1, 1)), jnp.ones(1), pd.Series([1.0], index=[7]), pd.DataFrame({"a": [1]}), [1.0], True, np.float16(1)],
    ids=lambda value: type(value).__name__,
)
def test_what_a_function_returns(value: Any) -> None:
    options: Any = {"n_calls": 1, "seed": 0, "progress": False}
    workers: Any = np.int64(1)
    assert seqdec.minimize(lambda x: value, PLAIN, workers=workers, **options).fun == 1.0
    two = seqdec.minimize(lambda x: pd.Series([1.0, 2.0], index=[1, 0]), PLAIN, objectives=2, **options)
    assert two.func_vals.tolist() == [[1.0, 2.0]]
