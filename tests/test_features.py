"""Encoders of mixed columns: against scikit-learn, a row against the table, what is missing, unknown or wrong."""

import ast
import json
import math
import pickle
import warnings
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MultiLabelBinarizer, OneHotEncoder, StandardScaler

from seqdec.features import (
    KINDS,
    Bool,
    Categorical,
    Date,
    Days,
    Encoder,
    Hashed,
    HashedTags,
    Numeric,
    Ordered,
    Quantiles,
    Tags,
    Text,
    Vector,
)
from seqdec.features.kinds import NAMES
from seqdec.findings import Finding
from tests.boundary.test_fuzz import fuzz

WORDS = ("red shoe", "the blue SHOE", "a", "", "shoe shoe shoe Größe", "x-ray 12")
TABLE = pd.DataFrame(
    {
        "age": [31.5, None, 47.0, 22.0, 58.5, 31.5],
        "visits": [0, 3, 1, 1, 12, 7],
        "member": [True, False, True, True, False, False],
        "city": ["Rome", "Paris", None, "Rome", "Oslo", "Paris"],
        "size": pd.Categorical(["S", "L", "M", None, "S", "M"], ["S", "M", "L"], ordered=True),
        "query": WORDS,
        "when": pd.to_datetime(
            ["2024-02-29 12:00", None, "2023-01-01", "2024-12-31 23:59:59.5", "2024-05-05", "2020"], format="ISO8601"
        ),
        "tags": [["a", "b"], [], None, ["b"], ["c", "b", "b"], ("a",)],
    }
)
KINDS_OF_TABLE = {"query": "text"}
ENCODER = Encoder.fit(TABLE, kinds=KINDS_OF_TABLE)
DECLARED: dict[str, Any] = {
    "numeric": Numeric(2.0, 3.0),
    "quantiles": Quantiles((-2.0, 0.0, 1e3), (-1.5, 0.25, 3.0)),
    "vector": Vector((0.5, -1.0), (2.0, 1e-3)),
    "bool": Bool(),
    "date": Date(),
    "days": Days(738_000.0, 100.0),
    "categorical": Categorical(("a", "3", "True")),
    "hashed": Hashed(7),
    "ordered": Ordered(("1", "2", "3")),
    "text": Text(8),
    "tags": Tags(("a", "3")),
    "hashed_tags": HashedTags(5),
}


def assert_same(one: np.ndarray, other: np.ndarray) -> None:
    assert one.dtype == other.dtype == np.float32 and one.shape == other.shape
    assert one.tobytes() == other.tobytes()


class Code(str, Enum):  # noqa: UP042 (a str whose text is another)
    X = "x"


def columns_like(prefix: str) -> list[int]:
    return [index for index, name in enumerate(ENCODER.names) if name.startswith(prefix)]


# What the features are


def test_kinds_are_chosen_by_the_values() -> None:
    many = pd.DataFrame(
        {
            "id": [f"u{i}" for i in range(60)],
            "note": [f"order number {i}" for i in range(60)],
            "day": [f"2024-01-{1 + i % 28:02}" for i in range(60)],
            "code": pd.Categorical([1 + i % 3 for i in range(60)]),
            "labels": [[f"t{i}"] for i in range(60)],
            "price": [Decimal(i) for i in range(60)],
            "mixed": [True, 2] * 30,
        }
    )
    kinds = Encoder.fit(many).kinds
    assert [type(kind) for kind in kinds.values()] == [Hashed, Text, Date, Categorical, HashedTags, Numeric, Numeric]
    assert [type(kind) for kind in ENCODER.kinds.values()] == [
        Numeric, Numeric, Bool, Categorical, Ordered, Text, Date, Tags,
    ]  # fmt: skip
    assert type(Encoder.fit(many, ["id"], max_levels=60).kinds["id"]) is Categorical
    assert Encoder.fit(many, ["id"], buckets=5).kinds["id"] == Hashed(5)


def test_numbers_and_levels_agree_with_scikit_learn() -> None:
    encoded = ENCODER.transform(TABLE)
    numbers = make_pipeline(StandardScaler(), SimpleImputer(strategy="constant", fill_value=0))
    np.testing.assert_allclose(
        encoded[:, columns_like("visits")[:1]], numbers.fit_transform(TABLE[["visits"]]), atol=1e-6
    )
    np.testing.assert_allclose(encoded[:, columns_like("age")[:1]], numbers.fit_transform(TABLE[["age"]]), atol=1e-6)
    np.testing.assert_array_equal(encoded[:, columns_like("age missing")[0]], TABLE["age"].isna())
    known = TABLE["city"].notna()
    levels = OneHotEncoder(sparse_output=False).fit_transform(TABLE.loc[known, ["city"]])
    np.testing.assert_array_equal(encoded[known][:, columns_like("city=")], levels)
    assert encoded[~known][:, columns_like("city")].tolist() == [[0, 0, 0, 0, 1]]
    tags = MultiLabelBinarizer().fit_transform([value or [] for value in TABLE["tags"]])
    np.testing.assert_array_equal(encoded[:, columns_like("tags=")], tags)


@fuzz
@given(st.text(max_size=60), st.integers(1, 40))
def test_text_is_hashed_as_by_scikit_learn(text: str, buckets: int) -> None:
    known = text.encode("utf-8", "ignore").decode()
    expected: Any = HashingVectorizer(n_features=buckets).transform([known])
    encoded = Encoder({"text": Text(buckets)})({"text": known})
    np.testing.assert_allclose(encoded[:-1], expected.toarray()[0], atol=1e-6)


def test_dates_have_cycles_or_are_days() -> None:
    encoder = Encoder({"when": Date(yearly=True), "born": Days(738_000.0, 1000.0)})
    at = dict(
        zip(encoder.names, encoder(dict.fromkeys(("when", "born"), datetime(2024, 2, 29, 6))), strict=True)
    )  # a Thursday
    week, year = math.tau * (3 + 0.25) / 7, math.tau * (31 + 28 + 0.25) / 365.25
    expected = [1, 0, math.sin(week), math.cos(week), math.sin(year), math.cos(year)]
    expected += [0, (datetime(2024, 2, 29).toordinal() + 0.25 - 738_000) / 1000, 0]
    np.testing.assert_allclose(list(at.values()), expected, atol=1e-6)
    assert list(at)[:2] == ["when hour sin", "when hour cos"] and list(at)[-2:] == ["born", "born missing"]
    for days, yearly in ((365, False), (366, True)):
        table = pd.DataFrame({"when": pd.date_range("2023-03-01", periods=days + 1)})
        assert Encoder.fit(table).kinds == {"when": Date(yearly=yearly)}


def test_a_date_is_the_same_in_every_form() -> None:
    encoder = Encoder({"when": DECLARED["date"]})
    forms = [
        datetime(2024, 5, 1, 10),
        datetime(2024, 5, 1, 12, tzinfo=timezone(timedelta(hours=2))),
        "2024-05-01T10:00:00",
        "2024-05-01 12:00:00+02:00",
        "20240501T100000Z",
        np.datetime64("2024-05-01T10:00"),
        np.datetime64("2024-05-01T10:00:00.000000001"),
        pd.Timestamp("2024-05-01 10:00"),
        pd.Timestamp("2024-05-01 10:00:00.000000001", tz="UTC"),
    ]
    for form in forms:
        assert_same(encoder({"when": form}), encoder({"when": forms[0]}))
        assert_same(encoder.transform([{"when": form}])[0], encoder({"when": forms[0]}))
    for form in ("2024-05", date(2024, 5, 1), np.datetime64("2024-05"), pd.Timestamp("2024-05-01")):
        assert_same(encoder({"when": form}), encoder({"when": "2024-05-01"}))


def test_ordered_levels_are_equally_spaced() -> None:
    encoder = Encoder({"size": Ordered(("S", "M", "L"))})
    found = encoder.transform([{"size": size} for size in ("S", "M", "L", "XL", None)])
    assert found.tolist() == [[-1, 0, 0], [0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert Encoder.fit(pd.DataFrame({"x": [10, 9, 100]}), kinds={"x": "ordered"}).kinds["x"] == Ordered(
        ("9", "10", "100")
    )


def test_levels_are_compared_as_text() -> None:
    encoder = Encoder({"code": Categorical((3, "x", True))})
    for value in (3, 3.0, "3", np.int8(3), np.float32(3)):
        assert encoder({"code": value}).tolist() == [1, 0, 0, 0, 0]
    assert encoder({"code": Code.X}).tolist() == [0, 1, 0, 0, 0]
    for value in (True, np.True_, "True"):
        assert encoder({"code": value}).tolist() == [0, 0, 1, 0, 0]
    assert encoder({"code": 3.5}).tolist() == [0, 0, 0, 1, 0]
    frame = pd.DataFrame({"code": [3, None]})  # pandas makes 3 a float
    assert_same(encoder.transform(frame)[0], encoder({"code": 3}))


# What is read, and what is said of it


def said_of(column: str, cells: list[Any], warned: str | None = None, **options: Any) -> tuple[Encoder, Finding]:
    """The encoder of a column, and its finding; all warnings are `warned`."""
    table = pd.DataFrame({column: pd.Series(cells, dtype=object)})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        encoder = Encoder.fit(table, **options)
    assert [str(one.message) for one in caught] == [] if warned is None else warned in str(caught[0].message)
    (finding,) = encoder.report
    assert bool(finding.suspicion) == (warned is not None) and finding.name == column
    return encoder, finding


def test_whole_numbers_with_the_name_of_an_identifier_are_suspected() -> None:
    for column in ("user_id", "Item ID", "id"):
        encoder, _ = said_of(column, [*range(1000, 1200, 7)], "its numbers are identifiers: leave it out")
        assert encoder.kinds[column] == said_of("age", [*range(1000, 1200, 7)])[0].kinds["age"]
    for column, cells in {"humid": [1, 2, 5] * 9, "paid": [0, 1, 2] * 9, "mean_id": [0.5, 1.5, 2.5] * 9}.items():
        said_of(column, cells)


DAYS, SECONDS = ["2024-12-31", "2025-02-01", None], [1_700_000_000, 1_700_086_400, None]


@pytest.mark.parametrize(
    ("cells", "warned", "read"),
    [
        (
            ["1,200", "2,100", "900"],
            "('1,200'): a comma or point may stand before",
            ([1200, 2100, 900], [1.2, 2.1, 900]),
        ),
        (["12,5", "3,25", "7"], "its texts look like numbers ('12,5')", ([12.5, 3.25, 7],)),
        (["12,5", "3,250", "?"], "its texts look like numbers ('12,5')", ([12.5, 3.25, None],)),
        (["1.234,5", "-1.000,25", "0,5"], "its texts look like numbers", ([1234.5, -1000.25, 0.5],)),
        (["1,234.5", "-1,000.25", ".5"], "its texts look like numbers", ([1234.5, -1000.25, 0.5],)),
        (["$5.00", "$ 12", "($1,003)"], "its texts look like numbers", ([5, 12, -1003],)),
        (["5,5 €", "1.200,75 €", "unknown"], "its texts look like numbers", ([5.5, 1200.75, None],)),
        (["5 €", "12 €"], "its texts look like numbers", ([5, 12],)),
        (["5%", "12.5 %", "100%", "bad"], "its texts look like numbers", ([5, 12.5, 100, None],)),
        (["1 200", "3\u00a0400", "12'000"], "its texts look like numbers", ([1200, 3400, 12000],)),
        (["1,20,000", "5"], "its texts look like numbers", ([120_000, 5],)),
        ([*map(str, range(30)), "30+"], "its texts look like numbers ('30+')", ([*range(30), None],)),
        (["$5", "5 €"], "('$5'), with several units: convert them to numbers of one kind", ()),
        (["12,5", "3.75,5", "3.75"], "with several decimal signs: convert them", ()),
        (["31/12/2024", "01/02/2025", "?"], "dayfirst=True, utc=True, errors='coerce')", (DAYS,)),
        (["12/31/2024", "02/01/2025"], "dayfirst=False, utc=True)", (DAYS[:2],)),
        (
            ["01/02/2025", "03/04/2025"],
            "both orders of day",
            (["2025-02-01", "2025-04-03"], ["2025-01-02", "2025-03-04"]),
        ),
        (["31.12.2024 10:30", "1.2.25 9:15"], "dayfirst=True", (["2024-12-31T10:30", "2025-02-01T09:15"],)),
        (["2024/12/31", "2025/02/01"], "its texts look like dates ('2024/12/31')", (DAYS[:2],)),
        (["2024-12-31", "2025-02-01T02:00+02:00", "soon"], "its texts look like dates", (DAYS,)),
        (["Dec 31, 2024", "Sat, 1 Feb 2025", "1st June 2024"], "like dates", ([*DAYS[:2], "2024-06-01"],)),
        ([20241231, 20250201], "its numbers look like dates, year, month and day", (DAYS[:2],)),
        ([20241231, 20250201, None], "its numbers look like dates, year, month and day", (DAYS,)),
        (["20241231", "20250201", "?"], "its numbers look like dates, year, month and day", (DAYS,)),
        (SECONDS[:2], "its numbers look like times since 1970", (SECONDS[:2],)),
        ([1000 * second for second in SECONDS[:2]], "its numbers look like times since 1970", (SECONDS[:2],)),
        (["1700000000", "1700086400", "?"], "its numbers look like times since 1970", (SECONDS,)),
        (["1.5", "2.5", "10"], "kinds={'x': 'numeric'} reads numbers", ()),
        ([[1, 2], [3, 4]], "kinds={'x': 'vector'} reads numbers", ()),
        (["[1, 2]", "[3, 4]"], "kinds={'x': 'vector'} reads numbers", ()),
        (["[0.1, 2]", "[3, 4]", "bad"], "look like lists ('[0.1, 2]')", ([[0.1, 2], [3, 4], None],)),
        (["[0.1, 2]", "[3]"], "of several lengths: convert them to lists of one length", ()),
        (["['a', 'b']", "['c']", None], "look like lists", ([["a", "b"], ["c"], None],)),
        (["[0.1 0.2 ... 0.3]", "[1. 0.2 ... 5. ]"], "look like lists ('[0.1 0.2 ... 0.3]'): convert them to lists", ()),
    ],
)
def test_a_guess_that_may_surprise_is_warned_of_with_a_remedy_that_is_right(
    cells: list[Any], warned: str, read: Any
) -> None:
    _, finding = said_of("x", cells, warned)
    given = finding.suspicion.rpartition("convert them with ")[2] if "convert them with" in finding.suspicion else ""
    remedies = [part for part in given.split(" or ") if part]
    assert len(remedies) == len(read)
    for dtype in (object, None):
        table = pd.DataFrame({"x": pd.Series(cells, dtype=dtype)})
        for remedy, expected in zip(remedies, read, strict=True):
            found = eval(remedy, {"pandas": pd, "ast": ast, "table": table})
            if isinstance(expected[0], str) or expected is SECONDS or expected == SECONDS[:2]:
                unit: Any = None if isinstance(expected[0], str) else "s"
                expected = pd.to_datetime(pd.Series(expected), utc=True, unit=unit, format=None if unit else "ISO8601")
            columns = [pd.DataFrame({"x": column}) for column in (found, expected)]
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                made = [Encoder.fit(column) for column in columns]
            assert made[0].kinds == made[1].kinds or isinstance(expected[0], int)
            np.testing.assert_allclose(made[1].transform(columns[0]), made[1].transform(columns[1]), atol=1e-6)


@pytest.mark.parametrize(
    ("cells", "warned"), [(["12,5", "3,25"], "'12,5'"), ([20240501, 20240602], "dates"), ([[1, 2], [3, 4]], "vector")]
)
def test_a_guess_that_may_surprise_is_warned_of_with_its_remedy(cells: list[Any], warned: str) -> None:
    encoder, finding = said_of("x", cells, warned)
    assert f"  ! {finding.suspicion}" in repr(encoder.report) and f"\n  x: {finding.suspicion}" not in repr(encoder)
    kind = type(encoder.kinds["x"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Encoder.fit(pd.DataFrame({"x": cells}), kinds={"x": NAMES[kind]}).report[0].why == "declared"


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["007", "012", "100"], Categorical),
        (["1.2.3", "1.10.0"], Categorical),
        (["192.168.1.10", "10.0.0.1"], Categorical),
        (["12:30", "9:15"], Categorical),
        (["18-24", "25-34", "65+"], Categorical),
        (["?", "NA"], Categorical),
        (["may", "june"], Categorical),
        (["1", "?", " 3 "], Numeric),
        (["1", None, "-"], Numeric),
        ([1.5, "?", "2"], Numeric),
        ([str(value) for value in range(200)], Numeric),
        ([1999, 2024], Numeric),
        ([3, 1_700_000_000], Numeric),
        ([[1.0, 2.0], None, [3.0, 4.0]], Vector),
        ([np.float32([1, 2]), np.float32([3, 4])], Vector),
        ([[1], [2, 3]], Tags),
        ([["a", "b"], ["c", "d"]], Tags),
        ([[], ["a"]], Tags),
        (["2024-05-01", "?", "2024-06-01"], Date),
        (["[0.1, 2]", "[3, 4]", "?"], Vector),
        (["[ 0.1 -2e-3]", "[3.  4. ]"], Vector),
        (["(0.1, 0.2)", None], Vector),
        (["A17", "1001", "1002"], Categorical),
        (["007", "x", "012"], Categorical),
    ],
)
def test_what_anybody_would_read_so_is_read_without_a_word(cells: list[Any], kind: type) -> None:
    assert type(said_of("x", cells)[0].kinds["x"]) is kind


def test_numbers_in_text_are_read_alike_when_fitted_and_when_served() -> None:
    table = pd.DataFrame({"age": ["31", " 40 ", "?", "5e1"], "pay": ["1.5", "2.5", "n/a", "10"]})
    encoder = Encoder.fit(table)
    plain = Encoder.fit(pd.DataFrame({"age": [31, 40, None, 50], "pay": [1.5, 2.5, None, 10]}))
    assert encoder == plain
    served = pd.DataFrame({"age": [31, 40.0, "-", "50"], "pay": [1.5, "2.50", "NA", " 10"]})
    assert_same(encoder.transform(table), plain.transform(served))
    assert encoder.report[0].missing == 0.25 and "plain numbers in text, '?' as missing" in repr(encoder.report)


def test_one_warning_names_all_columns() -> None:
    table = pd.DataFrame({"a": ["1,200", "5"], "b": ["31.12.2024", "1.1.2024"], "c": ["x", "y"]})
    with pytest.warns(UserWarning, match="some columns may not be what they seem") as caught:
        encoder = Encoder.fit(table)
    assert len(caught) == 1 and caught[0].filename == __file__
    assert "\n  a: its texts" in str(caught[0].message) and "\n  b: its texts" in str(caught[0].message)
    shown = encoder.report.to_pandas()
    assert shown["name"].tolist() == ["a", "b", "c"] and shown["suspicion"].astype(bool).tolist() == [True, True, False]
    assert "c: Categorical(levels=('x', 'y')) (text with few distinct values): 'x', 'y'" in repr(encoder.report)
    assert [finding.why for finding in Encoder.from_json(encoder.to_json()).report] == ["declared"] * 3


def test_vectors_are_numbers_of_one_length() -> None:
    rows = np.random.default_rng(0).normal(3, 2, (50, 4))
    encoder = Encoder.fit(pd.DataFrame({"v": list(rows)}))
    np.testing.assert_allclose(
        encoder.transform(pd.DataFrame({"v": list(rows)}))[:, :4], StandardScaler().fit_transform(rows), atol=1e-6
    )
    near, far = encoder({"v": rows[0] + 1e-6}) - encoder({"v": rows[0]}), encoder({"v": rows[0] + 1e300})
    assert np.abs(near).max() < 1e-5 and far.tolist() == [5, 5, 5, 5, 0]
    assert encoder.names == ("v 0", "v 1", "v 2", "v 3", "v missing")
    assert Encoder.fit(pd.DataFrame({"v": [[1, 2], [3, 4]]}), kinds={"v": "vector"}).kinds["v"] == Vector(
        (2, 3), (1, 1)
    )
    with pytest.raises(
        ValueError, match=r"column v holds lists of 1 and 2 numbers: vectors have one length, .*'tags'}"
    ):
        Encoder.fit(pd.DataFrame({"v": [[1.5], [1.5, 2.5]]}))
    with pytest.raises(ValueError, match=r"column v: .* has an entry that is not finite"):
        Encoder.fit(pd.DataFrame({"v": [[1.5, 1.0], [1.5, math.nan]]}))


LISTS = pa.table({
    "v": pa.array([[0.5, 1.0], None, [2.0, 4.0]], pa.list_(pa.float32(), 2)),
    "w": pa.array([[0.5, 1.0], [1.0, 2.0], None], pa.list_(pa.float64())),
    "t": pa.array([["a", "b"], None, []], pa.large_list(pa.large_string())),
    "c": pa.array(["x", None, "y"]).dictionary_encode(),
    "n": pa.array([1, None, 3], pa.int16()),
    "d": pa.array([0, None, 86_400_000], pa.timestamp("ms", tz="UTC")),
})  # fmt: skip


@pytest.mark.parametrize(
    "convert",
    [
        lambda table: table,
        lambda table: pa.Table.from_batches(table.to_batches(max_chunksize=2)),
        lambda table: table.to_batches()[0],
        lambda table: table.to_pandas(),
        lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
        lambda table: pytest.importorskip("polars").from_arrow(table),
        lambda table: table.to_pylist(),
    ],
)
def test_arrow_columns_are_read_in_every_table(convert: Any) -> None:
    kinds: Any = {"c": "categorical"}
    reference, table = Encoder.fit(LISTS, kinds=kinds), convert(LISTS)
    assert [type(kind) for kind in reference.kinds.values()] == [Vector, Vector, Tags, Categorical, Numeric, Date]
    encoder = Encoder.fit(table, kinds=kinds)
    assert encoder == reference
    assert_same(encoder.transform(table), reference.transform(LISTS))


SKEWED = {
    "lognormal": lambda random, n: random.lognormal(3, 3, n),
    "Pareto": lambda random, n: random.pareto(1, n),
    "mostly zero": lambda random, n: random.lognormal(3, 2, n) * (random.random(n) < 0.1),
    "Cauchy": lambda random, n: random.standard_cauchy(n),
    "with a sentinel": lambda random, n: np.where(np.arange(n) % 100 == 0, 1e9, random.normal(size=n)),
}
PLAIN = {
    "normal": lambda random, n: random.normal(5, 3, n),
    "uniform": lambda random, n: random.random(n),
    "exponential": lambda random, n: random.exponential(1, n),
    "Student, 4": lambda random, n: random.standard_t(4, n),
    "counts": lambda random, n: random.poisson(0.1, n),
    "two groups": lambda random, n: random.normal(5, 1, n) * random.choice([-1, 1], n),
    "flag": lambda random, n: random.random(n) < 0.01,
}


@pytest.mark.parametrize("name", [*SKEWED, *PLAIN])
def test_skewed_numbers_and_no_others_are_normal_scores(name: str) -> None:
    for seed in range(20):
        for n in (200, 2000):
            table = pd.DataFrame({"x": {**SKEWED, **PLAIN}[name](np.random.default_rng(seed), n).astype(float)})
            assert isinstance(Encoder.fit(table).kinds["x"], Quantiles) == (name in SKEWED)


def test_normal_scores_are_monotone_bounded_and_those_of_the_logarithm() -> None:
    random = np.random.default_rng(0)
    table = pd.DataFrame({"x": random.lognormal(3, 3, 20_000)})
    encoder = Encoder.fit(table)
    at = np.sort(random.lognormal(3, 3, 1000))
    scores = encoder.transform(pd.DataFrame({"x": at}))[:, 0]
    np.testing.assert_allclose(scores, np.clip((np.log(at) - 3) / 3, -3, 3), atol=0.15)
    assert (np.diff(scores) >= 0).all()
    extreme = [encoder({"x": value})[0] for value in (-1e308, -1, 0, 1e12, 1.7e308)]
    assert extreme == [-3, -3, -3, 3, 3]
    wide = Encoder({"x": Quantiles((-1.7e308, 1.7e308), (-1, 1))})
    assert [wide({"x": value})[0] for value in (-1.7e308, 0, 1.7e308)] == [-1, 0, 1]
    tied = Encoder.fit(pd.DataFrame({"x": [0.0] * 90 + [*np.exp(np.arange(1, 11))]}))
    assert tied({"x": 0})[0] == -0.625 < tied({"x": math.e})[0] < 1.5 < tied({"x": math.exp(9)})[0]


def test_the_best_action_of_a_skewed_price_is_found() -> None:
    """Least squares for each of two actions, whose rewards cross at the median price."""
    random, found = np.random.default_rng(1), {}
    price = random.lognormal(3, 3, 2000)
    rewards = np.stack([np.tanh((np.log(price) - 3) / 3), np.zeros_like(price)], 1) + random.normal(0, 0.5, (2000, 2))
    table, new = pd.DataFrame({"price": price}), pd.DataFrame({"price": random.lognormal(3, 3, 4000)})
    for kind in (None, "numeric"):
        encoder = Encoder.fit(table, kinds=None if kind is None else {"price": kind})
        inputs = [np.c_[np.ones(len(rows)), encoder.transform(rows)[:, 0]] for rows in (table, new)]
        weights = np.linalg.lstsq(inputs[0], rewards, rcond=None)[0]
        found[kind] = np.mean((inputs[1] @ weights).argmax(1) == (np.log(new["price"]) < 3))
    assert found[None] > 0.95 > 0.75 > found["numeric"]


# The same bits in every container


@pytest.mark.parametrize(
    "convert",
    [
        lambda table: pa.Table.from_pandas(table, preserve_index=False),
        lambda table: pytest.importorskip("polars").from_pandas(table),
        lambda table: table.to_dict("records"),
        lambda table: table.convert_dtypes(),
        lambda table: table.convert_dtypes(dtype_backend="pyarrow"),
        lambda table: table.set_axis(range(10, 16)).assign(reward=1, **{"an extra": "x"}),
    ],
)
def test_every_table_gives_the_same_encoder_and_features(convert: Any) -> None:
    table, names = convert(TABLE), list(ENCODER.kinds)
    reference = Encoder.fit(TABLE, names, kinds={"query": "text", "size": Ordered(("S", "M", "L"))})
    fitted = Encoder.fit(table, names, kinds={"query": "text", "size": Ordered(("S", "M", "L"))})
    assert fitted == reference and fitted.digest == reference.digest and hash(fitted) == hash(reference)
    assert_same(fitted.transform(table), reference.transform(TABLE))


unknown = st.sampled_from([None, math.nan, pd.NA, pd.NaT, np.float32("nan"), np.datetime64("NaT"), Decimal("nan")])
levels = st.one_of(st.text(max_size=3), st.integers(-3, 3), st.booleans(), st.floats(-3, 3))
dates = st.datetimes(datetime(1800, 1, 1), datetime(2200, 1, 1))
finite = st.floats(allow_nan=False, allow_infinity=False)
numbers = st.one_of(
    finite, st.integers(), st.decimals(-9, 9), finite.map(str), st.sampled_from([" 3 ", "?", "NA", "n/a", "-", "+.5e3"])
)
CELLS = {
    "numeric": numbers,
    "quantiles": numbers,
    "vector": st.one_of(st.tuples(finite, finite), st.tuples(finite, finite).map(np.array)),
    "bool": st.booleans(),
    **dict.fromkeys(
        ("date", "days"),
        st.one_of(dates, dates.map(datetime.isoformat), dates.map(lambda at: at.replace(tzinfo=UTC))),
    ),
    "categorical": levels,
    "hashed": levels,
    "ordered": levels,
    "text": st.text(max_size=20),
    "tags": st.lists(levels, max_size=3),
    "hashed_tags": st.one_of(st.sets(st.text(max_size=2), max_size=3), st.lists(levels, max_size=3).map(np.array)),
}


@fuzz
@given(st.data())
def test_a_row_has_the_same_bits_in_a_dict_and_in_a_table(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(CELLS)), min_size=1, max_size=4, unique=True))
    encoder = Encoder({name: DECLARED[name] for name in names})
    row = st.fixed_dictionaries({name: st.one_of(unknown, CELLS[name]) for name in names}, optional={"extra": levels})
    rows = data.draw(st.lists(row, min_size=1, max_size=4))
    encoded = encoder.transform(rows)
    frame = pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=object) for name in names})
    assert_same(encoder.transform(frame), encoded)
    for place, one in enumerate(rows):
        assert_same(encoder(one), encoded[place])
        assert encoder.space.contains(encoder(one))
    assert_same(Encoder.from_json(encoder.to_json()).transform(rows), encoded)


# Missing, unknown, wrong


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_missing_value_is_marked_in_every_kind(name: str) -> None:
    encoder = Encoder({"x": DECLARED[name], "y": Bool()})
    expected = np.zeros(len(encoder.names), np.float32)
    expected[-3] = 1
    for value in (None, math.nan, pd.NA, pd.NaT, np.datetime64("NaT"), np.float32("nan"), Decimal("nan")):
        assert_same(encoder({"x": value, "y": False}), expected)
    assert_same(encoder({"y": False}), expected)
    assert_same(encoder.transform([{"y": False}])[0], expected)
    assert encoder.names[-3] == "x missing"
    assert (
        encoder.transform([]).shape == encoder.transform(pd.DataFrame({"x": [], "y": []})).shape == (0, expected.size)
    )


WRONG = {
    "numeric": [
        "3,5",
        "1,200",
        "inf",
        "1_000",
        "$5",
        "٣",
        1j,
        [1.0],
        {},
        math.inf,
        10**400,
        np.array([1.0, 2.0]),
        datetime(2024, 1, 1),
    ],
    "quantiles": ["3,5", [1.0], math.inf, 10**400],
    "vector": [3.0, "1,2", [1.0], [1.0, 2.0, 3.0], [1.0, None], [1.0, math.nan], ["1", "2"], [[1.0, 2.0]], np.eye(2)],
    "bool": ["true", 2, 0.5, [True]],
    "date": ["noon", "NaT", "now", 1_700_000_000, True, [], "2024-13-01", np.datetime64(10**18, "s"), "03/04/2024"],
    "days": ["noon", 1_700_000_000, 3.5],
    "categorical": [["a"], {}, b"a", 1j, datetime(2024, 1, 1)],
    "hashed": [["a"], {}, b"a", Decimal(3)],
    "ordered": [["a"], {}, b"a"],
    "text": [3, ["a word"], b"a", True],
    "tags": ["a,b", 3, {"a": 1}, [["a"]], np.eye(2)],
    "hashed_tags": ["a,b", 3, {"a": 1}, [["a"]]],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_named_with_its_column_and_row(name: str) -> None:
    encoder = Encoder({"some column": DECLARED[name]})
    for value in WRONG[name]:
        with pytest.raises((TypeError, ValueError), match=r"column some column: "):
            encoder({"some column": value})
        with pytest.raises((TypeError, ValueError), match=r"row 1, column some column: "):
            encoder.transform([{"some column": None}, {"some column": value}])


def test_unknown_levels_are_marked() -> None:
    assert Encoder({"x": Categorical(("a",))})({"x": "b"}).tolist() == [0, 1, 0]
    assert Encoder({"x": Tags(("a",))})({"x": ["a", None, "b", "c"]}).tolist() == [1, 1, 0]
    assert Encoder({"x": Hashed(3)})({"x": "whatever"}).sum() == 1


def test_numbers_are_clipped_and_equal_ones_are_zero() -> None:
    encoder = Encoder.fit(pd.DataFrame({"x": [2.0, 2.0]}))
    assert [encoder({"x": value})[0] for value in (2, 2.5, 1e300, -1e300)] == [0, 0.5, 5, -5]


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: Encoder.fit(TABLE.iloc[:0]), "no rows"),
        (lambda: Encoder.fit(pd.DataFrame(index=range(3))), "at least one column"),
        (
            lambda: Encoder.fit(TABLE, ["agee"]),
            "no column agee; the table has age, visits.*: did you mean 'age'[?] Else add",
        ),
        (lambda: Encoder.fit(TABLE, "age"), r"columns must be a list of names; got 'age': \['age'\]"),
        (lambda: Encoder.fit(TABLE, kinds={"age": "numerc"}), "kind of column age"),
        (lambda: Encoder.fit(TABLE, kinds={"age": [Bool]}), "kind of column age"),  # pyright: ignore[reportArgumentType]
        (lambda: Encoder.fit(pd.concat([TABLE, TABLE[["age"]]], axis=1)), "the column age occurs twice"),
        (lambda: Encoder.fit(pd.DataFrame({"x": [None, np.nan]})), "column x has only missing values"),
        (lambda: Encoder.fit(pd.DataFrame({"x": ["a", 3]})), r"column x has values of several kinds \('a', 3\)"),
        (lambda: Encoder.fit(pd.DataFrame({"x": [{}, {}]})), "column x has values of no known kind"),
        (lambda: Encoder.fit(pd.DataFrame({"x": ["S", "L"]}), kinds={"x": "ordered"}), "declare it: Ordered"),
        (lambda: Encoder.fit(pd.DataFrame({"x": [1e308, -1e308]})), "overflows"),
        (lambda: Encoder.fit(pd.DataFrame({"x": [1.0, np.inf]})), "column x: inf is not a finite number"),
        (lambda: Encoder.fit(pd.DataFrame({3: [1.0]})), "names of columns must be str; got 3"),
        (lambda: Encoder.fit(np.eye(3)), "table must be a pandas, polars or pyarrow table.*got ndarray"),
        (lambda: ENCODER.transform({"age": 3}), "got a dict: to encode one row, call the encoder with the dict"),
        (lambda: ENCODER.transform([{"age": 3}, 3]), "row 1 must be a dict; got int"),
        (lambda: ENCODER.transform(TABLE.drop(columns="age")), "there is no column age.*filled with None"),
        (lambda: ENCODER.transform(pa.table([[1], [2]], names=["age", "age"])), "the column age occurs twice"),
        (lambda: ENCODER(TABLE.iloc[0]), "a row must be a dict; got Series"),
        (lambda: ENCODER({"agee": 3}), "the row has none of the columns age, visits.*it has agee"),
        (lambda: ENCODER.transform([{"age": 3}, {}]), "row 1 has none of the columns"),
        (lambda: Encoder({"x": "numeric"}), r"column x must be declared by a kind, such as Bool\(\)"),  # pyright: ignore[reportArgumentType]
        (lambda: Encoder({"x": Numeric(0, 0)}), "std above zero"),
        (lambda: Encoder({"x": Categorical("ab")}), "levels of column x must be a list"),  # pyright: ignore[reportArgumentType]
        (lambda: Encoder({"x": Categorical(("3", 3))}), "column x has a level twice: '3'"),  # pyright: ignore[reportArgumentType]
        (lambda: Encoder({"x": Tags(())}), "at least one level"),
        (lambda: Encoder({"x": Hashed(0)}), "buckets of column x"),
        (lambda: Encoder({"x": Text(2**30)}), "at most 1048576"),
    ],
)
def test_what_cannot_be_encoded_is_refused_with_a_remedy(act: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        act()


# As JSON


def test_json_is_plain_and_lossless() -> None:
    awkward = Encoder({**DECLARED, "naïve \ud800": Numeric(0.1 + 0.2, 1e-300), "": Categorical(("", "ß", "\ud800"))})
    for encoder in (ENCODER, awkward):
        copy = Encoder.from_json(encoder.to_json())
        assert copy == encoder and copy.names == encoder.names and copy.space == encoder.space
        assert json.loads(encoder.to_json())["format"] == "seqdec encoder 1"
        assert pickle.loads(pickle.dumps(encoder)) == encoder
    assert Encoder({"x": Hashed(8)}) != Encoder({"x": Text(8)}) != Encoder({"y": Text(8)})
    assert Encoder({"x": Bool(), "y": Bool()}) != Encoder({"y": Bool(), "x": Bool()})


@pytest.mark.parametrize(
    "text",
    [
        "", "3", "[]", "{}", "[" * 10_000, 3, None,
        '{"format": "seqdec encoder 2", "columns": []}',
        '{"format": "seqdec encoder 1"}',
        '{"format": "seqdec encoder 1", "columns": {"x": {}}}',
        '{"format": "seqdec encoder 1", "columns": [{"name": "x", "kind": "numbers"}]}',
        '{"format": "seqdec encoder 1", "columns": [{"name": "x", "kind": "numeric", "mean": 0}]}',
        '{"format": "seqdec encoder 1", "columns": [{"name": "x", "kind": "numeric", "mean": 0, "std": NaN}]}',
        '{"format": "seqdec encoder 1", "columns": [{"name": "x", "kind": "bool"}, {"name": "x", "kind": "bool"}]}',
        '{"format": "seqdec encoder 1", "columns": [{"name": "x", "kind": ["bool"]}]}',
        '{"format": "seqdec encoder 1", "columns": [{"name": "x", "kind": "vector", "means": [], "stds": []}]}',
        Encoder({"x": Quantiles((1, 2), (0, 1))}).to_json().replace("[1.0, 2.0]", "[1.0, 1.0]"),
        Encoder({"x": Quantiles((1, 2), (0, 1))}).to_json().replace("[1.0, 2.0]", "[1.0]"),
        Encoder({"x": Quantiles((1, 2), (0, 1))}).to_json().replace("[0.0, 1.0]", "[0.0, 6.0]"),
        '{"format": "seqdec encoder 1", "columns": [{"name": "x", "kind": "vector", "means": [0], "stds": [0]}]}',
    ],
)  # fmt: skip
def test_other_json_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="encoder"):
        Encoder.from_json(text)


# Transformers of scikit-learn


def test_a_pipeline_of_scikit_learn_is_an_encoder() -> None:
    pipeline = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["age", "visits"]),
        (OneHotEncoder(handle_unknown="ignore"), ["city"]),
    ).fit(TABLE[["age", "visits", "city"]])
    encoder = Encoder.of(pipeline, ["age", "visits", "city"])
    encoded = encoder.transform(TABLE)
    np.testing.assert_array_equal(encoded, pipeline.transform(TABLE.fillna({"city": np.nan})).astype(np.float32))
    assert encoder.names == tuple(pipeline.get_feature_names_out()) and encoder.space.shape == (len(encoder.names),)
    for place, row in enumerate(TABLE.to_dict("records")):
        assert_same(encoder(row), encoded[place])
    assert_same(encoder({"age": 3, "city": "Nowhere"}), encoder.transform([{"age": 3.0, "city": "Nowhere"}])[0])
    assert encoder == Encoder.of(pipeline, ["age", "visits", "city"]) != ENCODER
    assert pickle.loads(pickle.dumps(encoder)).names == encoder.names
    assert encoder.transform([]).shape == (0, len(encoder.names))
    with pytest.raises(TypeError, match="has no JSON form: save the transformer by its own means"):
        encoder.to_json()
    assert repr(encoder.report).startswith("age: ColumnTransformer")


def test_transformers_that_are_no_encoders_are_refused() -> None:
    with pytest.raises(ValueError, match="must be fitted"):
        Encoder.of(StandardScaler(), ["age"])
    with pytest.raises(TypeError, match="must have a method transform"):
        Encoder.of(3, ["age"])
    logs = FunctionTransformer(np.log)
    with pytest.raises(ValueError, match=r"does not name its features.*example="):
        Encoder.of(logs, ["visits"])
    encoder = Encoder.of(logs, ["visits"], example={"visits": 1})
    assert encoder.names == ("feature 0",) and encoder({"visits": 1}).tolist() == [0]
    with (
        pytest.raises(ValueError, match="1 finite numbers for each row; got numbers that are not finite"),
        np.errstate(all="ignore"),
    ):
        encoder({"visits": 0})
    with pytest.raises(TypeError, match="a row must be a dict"):
        encoder(3)  # pyright: ignore[reportArgumentType]
