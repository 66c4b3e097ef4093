"""Logs from tables as people have them: columns of other names, named actions, dates, propensities that are unknown."""

import datetime as dt
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from gymnasium import spaces
from scipy import sparse
from sklearn.linear_model import Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import seqdec
from seqdec import cli, ope
from seqdec.core import Schema, Spaces
from seqdec.features import Encoder
from seqdec.ope import Log, make_log

ROWS = 60
RNG = np.random.default_rng(0)
OFFERS = np.array(["banner", "mail", "none"])[np.arange(ROWS) % 3]
TABLE = pd.DataFrame(
    {
        "user": range(ROWS),
        "age": np.where(np.arange(ROWS) == 5, np.nan, RNG.normal(40, 10, ROWS).round(1)),
        "visits": RNG.integers(0, 9, ROWS),
        "city": RNG.choice(["Rome", "Oslo"], ROWS),
        "when": np.repeat(pd.date_range("2024-05-01", periods=ROWS // 2, freq="h"), 2).astype(str),
        "offer": OFFERS,
        "chance": 1 / 3,
        "clicked": RNG.random(ROWS) < 0.3,
    }
)
ENCODER = Encoder.fit(TABLE, ["age", "city", "when"])
UNIFORM = np.full((ROWS, 3), 1 / 3)


def a_log(table: Any = TABLE, **changes: Any) -> Log:
    columns = {"context": ENCODER, "action": "offer", "reward": "clicked", "propensity": "chance", "time": "when"}
    return Log.from_pandas(table, **{**columns, **changes})


def assert_equal(one: Log, other: Log) -> None:
    for name, left, right in ((name, left, vars(other)[name]) for name, left in vars(one).items()):
        np.testing.assert_array_equal(left, right, err_msg=name)  # pyright: ignore[reportArgumentType]


# Columns


def test_columns_of_any_name_make_a_log() -> None:
    log = a_log()
    np.testing.assert_array_equal(log.context, ENCODER.transform(TABLE))
    assert log.action_names == ("banner", "mail", "none") and log.num_actions == 3
    assert [log.name(action) for action in log.action] == OFFERS.tolist()
    assert log.reward.tolist() == TABLE["clicked"].tolist() and set(log.propensity) == {1 / 3}
    np.testing.assert_array_equal(log.timestamp, pd.to_datetime(TABLE["when"]))  # each time occurs twice
    assert "banner, mail, none" in repr(log) and "banner" in log._repr_html_()
    assert_equal(a_log(TABLE[TABLE.columns[::-1]].set_axis(range(7, ROWS + 7))), log)


@pytest.mark.parametrize("library", ["pyarrow", "polars"])
def test_a_table_of_any_library_makes_the_same_log(library: str) -> None:
    table = pytest.importorskip(library).Table if library == "pyarrow" else pytest.importorskip(library)
    assert_equal(a_log(table.from_pandas(TABLE)), a_log())


def test_other_columns_are_ignored_and_times_may_be_missing() -> None:
    table = a_log().to_pandas().assign(user="x", note=None)
    assert_equal(Log.from_pandas(table), a_log().replace(encoder=None))
    assert Log.from_pandas(table.drop(columns="timestamp")).timestamp.tolist() == list(range(ROWS))


def test_named_columns_of_numbers_are_taken_as_they_are() -> None:
    log = a_log(context=["visits", "clicks so far"], table=TABLE.assign(**{"clicks so far": TABLE["visits"] > 3}))
    np.testing.assert_array_equal(log.context, np.stack([TABLE["visits"], TABLE["visits"] > 3], axis=1))
    assert a_log(context=[]).context.shape == (ROWS, 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"context": ["visits", "city"]}, r"column city is .* in row 0.* number: encode the columns, context=Encoder"),
        ({"context": ["age"]}, r"column age is nan in row 5: fill it, or encode"),
        ({"context": ["visitz"]}, "there is no column visitz; the table has user, age"),
        ({"context": "age"}, "context must be an Encoder or a list of columns; got 'age'"),
        ({"context": ["visits", "clicked"]}, "column clicked of the context is the reward, .* not known before"),
        ({"context": Encoder.fit(TABLE)}, "column offer of the context is the action, .* not known before"),
        ({"context": ["chance"]}, "column chance of the context is the propensity"),
        ({"propensity": "propensity"}, r"there is no column propensity; .*propensity=\.\.\., or .*propensity=None"),
        ({"reward": "reward"}, r"there is no column reward; .*name the column of the reward, reward=\.\.\."),
        (
            {"table": TABLE.assign(**{"reward[a]": 0.0, "reward[b b]": 1.0}), "reward": "reward"},
            r"there is no column reward; .*reward=\.\.\., or add one, a weighted sum of reward\[a\], reward\[b b\]",
        ),
        ({"time": "timestamp"}, "there is no column timestamp"),
        ({"reward": "offer"}, r"column offer is .* not a number: convert it, as with table\['offer'\]\.map"),
        (
            {"action_names": ["banner", "mail"]},
            "column action is none in row 2 .*it is not an action; they are banner, mail",
        ),
        ({"action_names": ["mail", "mail"]}, "action_names must differ"),
        ({"action_names": "mail"}, "action_names must be a list of texts or integers"),
        ({"action_names": [1, "1", "mail"]}, "action_names must differ, also as text"),
        ({"action_names": [1.5, "mail"]}, "action_names must be a list of texts or integers; got"),
        (
            {"table": TABLE.assign(offer=1.5)},
            r"column action is 1.5 in row 0.*: actions must be integers, or names",
        ),
        ({"num_actions": 5}, r"count different numbers of actions: \[3, 5\]"),
        ({"table": TABLE.assign(offer=[*OFFERS[:-1], None])}, "in row 59.*: it is not the name of an action"),
        ({"table": TABLE.assign(offer=[7, *OFFERS[1:]])}, "is 7 in row 0.*: it is not the name of an action"),
        ({"table": pd.concat([TABLE, TABLE[["offer"]]], axis=1)}, "the column offer occurs twice"),
        ({"table": TABLE[::-1]}, "column timestamp is .* in row 2.* sort the log by time"),
    ],
)
def test_what_makes_no_log_is_refused_with_a_remedy(changes: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        a_log(**changes)


@pytest.mark.parametrize(
    ("actions", "names"),
    [
        (["b", "a", "b"], ("a", "b")),
        (pd.Categorical(["b", "a", "b"], ["c", "b", "a"]), ("c", "b", "a")),
        (pd.array(["b", "a", "b"], dtype="string"), ("a", "b")),
        (["10", "x", "10"], ("10", "x")),
        (pd.Categorical(["b", 7, "b"], [7, "a", "b"]), (7, "a", "b")),
        ([3, 1, 3], (1, 3)),
        ([101, 2**62, 101], (101, 2**62)),
        (pd.array([333, 101, 333], dtype="Int64"), (101, 333)),
        (pd.Categorical([333, 101, 333], [205, 333, 101]), (205, 333, 101)),
    ],
)
def test_named_actions_of_any_container(actions: Any, names: tuple[str, ...], tmp_path: Path) -> None:
    table = pd.DataFrame({"action": actions, "reward": [0.0, 1.0, 0.0], "propensity": 0.5})
    log = Log.from_pandas(table)
    assert log.action_names == names and [names[action] for action in log.action] == list(actions)
    for given in (names, list(map(str, names))):
        made = make_log(action=list(actions), reward=[0, 1, 0], propensity=[0.5] * 3, action_names=given)
        assert_equal(made.replace(action_names=names), log)
    assert_equal(make_log(action=actions, reward=[0, 1, 0], propensity=[0.5] * 3), log)
    log.save(tmp_path / "log.parquet")
    assert_equal(Log.load(tmp_path / "log.parquet"), log)  # with the names of actions that nobody played


@pytest.mark.parametrize(
    ("actions", "options", "names", "size"),
    [
        ([2, 0, 1], {}, None, 3),
        ([2, 0, 2], {}, (0, 2), 2),
        ([2.0, 1.0, 3.0], {}, (1, 2, 3), 3),
        (["2", "1", "3"], {}, (1, 2, 3), 3),
        (["2", "01", "3"], {}, ("01", "2", "3"), 3),
        (["0", "2", "1"], {}, None, 3),
        ([-1, 1, -1], {}, (-1, 1), 2),
        (["-1", "1", "0"], {}, (-1, 0, 1), 3),
        ([2, 0, 2], {"num_actions": 5}, None, 5),
        ([2, 1, 2], {"action_names": ["a", "b", "c"]}, ("a", "b", "c"), 3),
        ([2, 1, 2], {"action_names": [2, 0, 1]}, (2, 0, 1), 3),
        ([2, 1, 2], {"action_names": [0, 1, 2]}, None, 3),
        ([2, 1, 3], {"num_actions": 3}, (1, 2, 3), 3),
        (pd.Categorical([2, 0, 2], [0, 1, 2]), {}, None, 3),
        (pd.Categorical([2, 0, 2], [2, 0, 1]), {}, (2, 0, 1), 3),
        ([True, False, True], {}, None, 2),
    ],
)
def test_integers_are_labels_unless_they_count_from_0(actions: Any, options: Any, names: Any, size: int) -> None:
    table = pd.DataFrame({"action": actions, "reward": 1.0, "propensity": 0.5})
    log = Log.from_pandas(table, **options)
    assert (log.action_names, log.num_actions) == (names, size)
    shown = [int(one) if str(one) != "01" else one for one in actions]
    assert [log.name(action) for action in log.action] == (
        list(map(str, shown)) if options.get("action_names") != ["a", "b", "c"] else ["c", "b", "c"]
    )
    assert_equal(make_log(action=table["action"], reward=[1.0] * 3, propensity=[0.5] * 3, **options), log)
    if names == ("01", "2", "3"):
        return  # numbers in a file of text
    csv = Log.from_pandas(pd.read_csv(io.StringIO(log.to_pandas().to_csv(index=False))))
    assert csv.num_actions == size and list(csv.action) == list(log.action) and str(names) in str(csv.action_names)


def test_an_index_out_of_range_is_no_label() -> None:
    with pytest.raises(ValueError, match="is 7 in row 1: actions count from 0 to 2"):
        make_log(action=[0, 7, 1], reward=[0] * 3, propensity=None, mask=np.ones((3, 3)))
    with pytest.raises(ValueError, match=r"count different numbers of actions: \[2, 3\]"):
        make_log(action=[4, 7, 4], reward=[0] * 3, propensity=None, num_actions=3)
    log = make_log(action=[0, 2, 2], reward=[0] * 3, propensity=[0.5] * 3)
    with pytest.raises(ValueError, match=r"all actions, \(3, 2\); got \(3, 3\)"):
        ope.check_target(log, np.eye(3))


def test_masks_and_features_are_of_the_labels_in_brackets() -> None:
    table = pd.DataFrame({"action": [205, 101], "reward": 0.0, "propensity": 0.5})
    for label, allowed in ((333, [0, 0]), (205, [1, 0]), (101, [1, 1])):
        table[f"mask[{label}]"], table[f"action[{label}]_feature_0"] = allowed, label
    log = Log.from_pandas(table)
    assert log.action_names == (333, 205, 101) and log.mask.tolist() == [[False, True, True], [False, False, True]]
    assert log.action_features is not None and log.action_features[0].ravel().tolist() == [333, 205, 101]
    mask = table.filter(like="mask").rename(columns=lambda name: name[5:-1])
    for columns in ([101, 205, 333], ["205", "101", "333"]):
        given = mask[list(map(str, columns))].set_axis(columns, axis=1)
        made = make_log(
            action=[205, 101], reward=[0, 0], propensity=[0.5] * 2, mask=given, action_names=[333, 205, 101]
        )
        np.testing.assert_array_equal(made.mask, log.mask)
    with pytest.raises(ValueError, match=r"columns are of the actions '333', '205', '101'; the actions are 101, 205"):
        Log.from_pandas(table, action_names=[101, 205])
    with pytest.raises(ValueError, match=r"columns mask\[333\] and mask_0: use numbers or names in all"):
        Log.from_pandas(table.assign(mask_0=1))


def test_many_ids_are_few_actions_and_no_mask_takes_no_memory() -> None:
    random = np.random.default_rng(0)
    ids = random.choice(1_000_000, 500, replace=False)
    log = make_log(action=random.choice(ids, 20_000), reward=np.ones(20_000), propensity=np.full(20_000, 1 / 500))
    assert log.num_actions == 500 and log.action_names == tuple(sorted(ids.tolist()))
    for rows in (log, log[::2], log[log.action < 250], log[:0]):
        assert rows.mask.shape == (len(rows), 500) and rows.mask.size * rows.mask.strides[0] == 0


def test_columns_of_a_target_are_matched_by_name() -> None:
    check: Any
    log = make_log(action=[101, 205, 333], reward=[1.0, 0.0, 0.0], propensity=[0.5] * 3)
    target = pd.DataFrame({333: [0.0] * 3, 101: [1.0] * 3, 205: [0.0] * 3})
    for one in (
        target,
        target.rename(columns=str),
        target.set_axis(range(3), axis=1)[[1, 0, 2]].set_axis(range(3), axis=1),
    ):
        check = ope.check_target
        np.testing.assert_array_equal(check(log, one).probabilities, [[1.0, 0.0, 0.0]] * 3)
    for wrong in (target.rename(columns={333: 334}), target.set_axis(list("abc"), axis=1)):
        for check in (ope.check_target, ope.check_predicted):
            with pytest.raises(ValueError, match="must have a column for each action, 101, 205, 333; got '"):
                check(log, wrong)


@pytest.mark.filterwarnings("ignore:the mean weight")
def test_a_sparse_target_has_the_estimates_of_an_array() -> None:
    random = np.random.default_rng(0)
    mask, action = np.ones((90, 4), bool), random.integers(0, 3, 90)
    mask[::3, 3] = False
    log = make_log(action=action, reward=random.random(90), propensity=np.full(90, 0.3), mask=mask)
    target, predicted = np.zeros((90, 4)), random.random((90, 4))
    target[np.arange(90), action] += 0.5
    target[:, 1] += 0.5
    check: Any = ope.check_target
    options: Any = {"seed": 0, "samples": 50}
    for estimators in (None, "ips, snips, dr"):
        for q in (None, predicted) if estimators is None else (predicted,):
            found = ope.evaluate(log, sparse.coo_matrix(target), q, estimators=estimators, **options)
            pd.testing.assert_frame_equal(found, ope.evaluate(log, target, q, estimators=estimators, **options))
    law = ope.evidence(log, target, seed=0)
    for name in ("law", "usual_weight", "weights"):
        np.testing.assert_allclose(
            getattr(ope.evidence(log, sparse.csr_array(target), seed=0), name), getattr(law, name), rtol=1e-12
        )
    assert ope.overlap(log, sparse.csr_array(target)) == ope.overlap(log, target)
    with pytest.raises(ValueError, match=r"mips needs contexts .* of a sparse target: .* pass an array"):
        ope.evaluate(log, sparse.csr_array(target), seed=0, estimators="mips")
    for wrong, message in (
        (target * 2, "target, row 0: the probabilities do not sum to 1"),
        (np.eye(4)[np.full(90, 3)], "row 0: .* masked out a positive probability"),
        (target - [[0.7, 0, -0.7, 0]], "row .* not all >= 0"),
        (target[:5], r"all actions, \(90, 4\); got \(5, 4\)"),
    ):
        with pytest.raises(ValueError, match=message):
            check(log, sparse.csr_matrix(wrong))


def test_numbers_as_text_are_numbers() -> None:
    table = pd.DataFrame({"action": ["0", "2", "1"], "reward": ["0", "1.5", "0"], "propensity": "0.5"})
    log = Log.from_pandas(table.assign(timestamp=["9", "10", "11"]))
    assert log.action.tolist() == [0, 2, 1] and log.action_names is None and log.timestamp.tolist() == [9, 10, 11]


DAYS = ["2024-05-01", "2024-05-02", "2024-05-02"]


@pytest.mark.parametrize(
    "times",
    [
        DAYS,
        pd.Series(DAYS, dtype=object),
        pd.Series(DAYS, dtype="string"),
        pd.Series(DAYS, dtype="category"),
        [f"{day}T02:00:00+02:00" for day in DAYS],
        [f"{day} 00:00:00Z" for day in DAYS],
        [dt.date.fromisoformat(day) for day in DAYS],
        [dt.datetime.fromisoformat(day).replace(tzinfo=dt.UTC) for day in DAYS],
        pd.to_datetime(DAYS).tz_localize("UTC"),
        np.array(DAYS, "datetime64[D]"),
        [DAYS[0], pd.Timestamp(DAYS[1]), dt.date.fromisoformat(DAYS[2])],
    ],
)
def test_dates_are_read_alike_everywhere(times: Any, tmp_path: Path) -> None:
    columns: Any = {"action": [0, 1, 0], "reward": [0.0, 1.0, 0.0], "propensity": [0.5] * 3}
    table = pd.DataFrame({**columns, "at": times})
    table.to_csv(tmp_path / "log.csv", index=False)
    expected = np.array(DAYS, "datetime64[ns]")
    for log in (
        Log.from_pandas(table, time="at"),
        Log.from_pandas(table.rename(columns={"at": "timestamp"})),
        Log.load(tmp_path / "log.csv", time="at"),
        make_log(timestamp=times, **columns),
    ):
        np.testing.assert_array_equal(log.timestamp, expected)
    encoder = Encoder.fit(table, ["at"], kinds={"at": "date"})
    np.testing.assert_array_equal(encoder.transform(table), encoder.transform(pd.DataFrame({"at": DAYS})))


# Names


def named_log(**changes: Any) -> Log:
    given = {"action": ["c", "a", "b"], "context": [[1, 2], [3, 4], [5, 6]], "context_names": ["x", "y"]}
    features = [[1.0], [2.0], [3.0]]
    log = make_log(**{**given, "reward": [0, 1, 2], "propensity": [0.5] * 3, "action_features": features, **changes})
    return log.replace(logging=np.tile([0.2, 0.3, 0.5], (3, 1)))


def test_a_log_is_aligned_by_the_names_of_actions_and_columns() -> None:
    log, mask = named_log(), np.array([[True, False, True], [True, True, False], [True, True, True]])
    schema = Schema(("d", "c", "b", "a"), ("y", "x"))
    for one in (log, log.replace(mask=mask)):
        found = ope.aligned(one, schema)
        assert found.schema == schema and [found.name(action) for action in found.action] == ["c", "a", "b"]
        np.testing.assert_array_equal(found.context, one.context[:, ::-1])
        np.testing.assert_array_equal(found.mask, np.c_[np.zeros(3, bool), one.mask[:, ::-1]])
        assert found.action_features is not None and found.action_features[0].ravel().tolist() == [0, 3, 2, 1]
        assert found.logging is not None and found.logging[0].tolist() == [0, 0.5, 0.3, 0.2]
        back = ope.aligned(found[:2].replace(action_names=None), Schema(None, ("x", "y")))
        np.testing.assert_array_equal(back.context, one.context[:2])
    assert ope.aligned(log, None) is log and ope.aligned(log, log.schema) is log
    assert ope.aligned(log[:0], schema).mask.shape == (0, 4)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (Schema(("a", "b", "d")), "log are 'a', 'b', 'c'; what was learned before is of 'a', 'b', 'd', without 'c'"),
        (Schema((1, 2, 3)), "log are 'a', 'b', 'c'; .* of 1, 2, 3, without 'a', 'b', 'c'"),
        (Schema(None, ("x", "z")), "contexts of the log are 'x', 'y'; what was learned before is of 'x', 'z'"),
        (Schema(None, ("x",)), "contexts of the log are 'x', 'y'; .* of 'x': take the same columns"),
        (Schema(None, None, "12"), "contexts of the log are columns as they are, .* encoder with digest 12: .* fitted"),
    ],
)
def test_names_of_another_schema_are_refused_with_both_lists(schema: Schema, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ope.aligned(named_log(encoder=""), schema)


def test_indices_are_not_labels_of_the_same_number_of_actions() -> None:
    log = named_log(action=[0, 1, 2])
    with pytest.raises(ValueError, match=r"log are 0, 1, 2; .* of 1, 2, 3, without 0"):
        ope.aligned(log, Schema((1, 2, 3)))
    with pytest.raises(ValueError, match=r"the 3 actions of the log are indices from 0; .* before is of 'a', 'b'$"):
        ope.aligned(log, Schema(("a", "b")))


def test_names_and_indices_are_joined_where_somebody_says_so(may: Log) -> None:
    plain, names = may.replace(action_names=None), may.action_names
    by_name, by_index = ope.learn_by_classification(may), ope.learn_by_classification(plain)
    for agent, log, known in ((by_name, plain, names), (by_index, may, None)):
        said = f"if they are the same in this order, say so, log.replace(action_names={known!r})"
        for join in (lambda log: ope.warm_start(agent, log, seed=0), lambda log: ope.target_of(agent, log, seed=0)):  # noqa: B023
            with pytest.raises(ValueError, match=re.escape(said)):
                join(log)
        assert ope.warm_start(agent, log.replace(action_names=known), seed=0).schema == agent.schema
    named = pd.DataFrame(np.tile([0.2, 0.3, 0.5], (300, 1)), columns=list(names or ()))
    for check in (ope.check_target, ope.check_predicted):
        with pytest.raises(ValueError, match=r"for each action, 0, 1, 2; got 'a', 'b', 'c': .* as by to_numpy\(\)"):
            check(plain, named)  # pyright: ignore[reportArgumentType]
        check(plain, named.to_numpy())
    with pytest.raises(ValueError, match="mask must have a column for each action, 0, 1, 2; got 'a', 'b', 'c'"):
        make_log(action=plain.action, reward=plain.reward, propensity=None, mask=named > 0)


@pytest.mark.parametrize("key", [None, np.arange(90)])
def test_numbers_of_rows_refuse_those_of_another_log(key: Any, may: Log) -> None:
    agent = ope.learn_by_classification(may[90:])
    log = may[:90].replace(logging=np.full((90, 3), 1 / 3), key=key)
    predicted, estimated = ope.predict_rewards(log, seed=0, model=Ridge()), ope.estimated_policy(log, seed=0)
    arrays: Any = {
        "target": ope.target_of(agent, log, seed=0),
        "estimated": estimated,
        "cross-fitted": ope.cross_fit_policy(lambda rows: agent, log, seed=0),
        "predicted": predicted,
    }
    reordered = ope.aligned(log, Schema(("c", "a", "b")))
    np.testing.assert_array_equal(ope.check_predicted(reordered, predicted), np.asarray(predicted)[:, [2, 0, 1]])
    for wrong, message in (
        (log[np.random.default_rng(0).permutation(90)], r"of the rows of another log: .* with numpy.array\("),
        (may[90:180].replace(key=None if key is None else key + 90), "of the rows of another log"),
        (log.replace(action_names=None), "of the actions 'a', 'b', 'c'; the log has 0, 1, 2"),
        (log.replace(action_names=("a", "b", "d")), "of the actions 'a', 'b', 'c'; the log has 'a', 'b', 'd'"),
    ):
        for name, array in arrays.items():
            check: Any = ope.check_predicted if name == "predicted" else ope.check_target
            check(log, array)
            check(wrong, np.array(array))
            check(wrong, array + 0)
            with pytest.raises(ValueError, match=message):
                check(wrong, array)
        with pytest.raises(ValueError, match=message):
            ope.evaluate(wrong, np.full((90, 3), 1 / 3), predicted, seed=0)
    assert type(predicted.mean()) is np.float64 and type(predicted + 1) is np.ndarray
    ope.check_predicted(log[::2], predicted[::2])


def test_a_row_that_is_taken_twice_has_no_key_and_what_is_saved_is_loaded(may: Log, tmp_path: Path) -> None:
    log, file = may.replace(key=np.arange(len(may))), tmp_path / "log.parquet"
    for rows in ([0, 0, 1], [-1, len(log) - 1]):
        assert log[rows].key is None
    for rows in ([0, 2], slice(0, 9, 2), log.action == 1):
        found = log[rows]
        found.save(file)
        assert found.key is not None
        assert_equal(Log.load(file), found)
    log[[0, 0, 1]].save(file)
    for wrong, message in (
        (log[::-1], r"is 298 in row 1 .*: it is earlier than the row before; .* log\[numpy.argsort\(log.timestamp\)\]"),
        (log[:0], "a log needs at least one row"),
        (log.replace(key=np.array([1, "1"] * 150, object)), r"is 1 in row 1 .*: an earlier row has this key"),
    ):
        with pytest.raises(ValueError, match=message):
            wrong.save(file)
    assert len(Log.load(file)) == 3


@pytest.mark.parametrize("unit", ["Y", "D", "s", "ms", "ns", "ps"])
def test_dates_of_any_unit_are_saved(unit: str, tmp_path: Path) -> None:
    times = np.array(["1970-01-01", "1970-03-01"], "datetime64[s]").astype(f"datetime64[{unit}]")
    log = make_log(action=["a", "b"], reward=[0, 1], propensity=[0.5] * 2, timestamp=times)
    log.replace(key=times if unit == "D" else None).save(tmp_path / "log.parquet")
    assert (Log.load(tmp_path / "log.parquet").timestamp == times).all()


@pytest.mark.parametrize("rows", [300, [0, -301], "a", 1.5, [True, False], [[0, 1]], None, ..., {"a": 1}, slice("a")])
def test_rows_that_are_none_are_refused_in_a_sentence(rows: Any, may: Log) -> None:
    with pytest.raises(
        IndexError, match="rows are given by a slice, 300 bools, or whole numbers from -300 to 299; got"
    ):
        may[rows]


def test_the_schema_travels_through_tables_files_and_rows(tmp_path: Path) -> None:
    other = Encoder.fit(TABLE[:30], ["age", "city", "when"])
    log, raw = a_log(), a_log(context=["visits"])
    assert log.schema == Schema(("banner", "mail", "none"), ENCODER.names, ENCODER.digest)
    assert raw.schema == Schema(log.action_names, ("visits",), "")
    log.save(tmp_path / "log.parquet")
    assert Log.load(tmp_path / "log.parquet")[::2].schema == log.schema
    assert Log.from_pandas(log.to_pandas()).schema == log.schema._replace(encoder=None)
    assert other.space == ENCODER.space and a_log(context=other).encoder not in (log.encoder, None)
    with pytest.raises(ValueError, match="make both with one encoder, fitted once"):
        ope.aligned(a_log(context=other), log.schema)


def test_an_encoder_of_scikit_learn_is_known_by_its_parameters() -> None:
    scalers = [StandardScaler().fit(rows) for rows in (np.eye(2), np.eye(2), 2 * np.eye(2))]
    first, same, second = (Encoder.of(scaler, ["visits", "user"]).digest for scaler in scalers)
    assert first == same != second
    assert Encoder.of(FunctionTransformer(lambda x: x), ["visits"], example={"visits": 1}).digest is None


SITE = Spaces(spaces.Box(-np.inf, np.inf, (2,)), spaces.Discrete(3))


@pytest.fixture(scope="module")
def may() -> Log:
    """Offer b pays where the second feature is positive, a elsewhere."""
    random = np.random.default_rng(0)
    table = pd.DataFrame(random.normal(size=(300, 2)), columns=["x", "y"])
    table["offer"] = random.choice(["a", "b", "c"], 300)
    table["paid"] = table["offer"] == np.where(table["y"] > 0, "b", "a")
    return Log.from_pandas(
        table.assign(chance=1 / 3), context=["x", "y"], action="offer", reward="paid", propensity="chance"
    )


def renamed(log: Log, names: dict[Any, Any]) -> Log:
    return log.replace(action_names=tuple(names[name] for name in log.action_names or ()))


def test_an_agent_meets_the_actions_and_columns_of_a_log_by_name(may: Log) -> None:
    first, may = may[:150], may[150:]
    learned = ope.learn_by_classification(first, epsilon=0.3)
    started = ope.warm_start(seqdec.agents.linear(SITE, policy=seqdec.policies.epsilon_greedy(0.3)), first, seed=0)
    other = ope.aligned(may, Schema(("c", "b", "a"), ("y", "x")))
    for agent in (learned, started):
        assert agent.schema == may.schema
        expected = ope.target_of(agent, may, seed=0)
        np.testing.assert_allclose(ope.target_of(agent, other, seed=0), expected[:, ::-1], atol=1e-6)
        few = ope.aligned(
            may[may.action > 0].replace(
                action=may.action[may.action > 0] - 1,
                action_names=("b", "c"),
                mask=np.ones(((may.action > 0).sum(), 2), bool),
            ),
            None,
        )
        found = ope.target_of(agent, few, seed=0)
        assert found.shape == (len(few), 2) and (found.argmax(1) == 0).mean() > 0.4
        np.testing.assert_allclose(found.sum(1), 1)
        chosen = ope.select(other, {"learned": agent, "c": np.eye(3)[np.zeros(150, int)]}, seed=0)
        assert chosen.chosen == "learned" and chosen.table.loc["learned", "value"] > 0.6
    more = ope.aligned(first, other.schema)
    one, other = (ope.target_of(ope.warm_start(started, log, seed=0), may, seed=0) for log in (first, more))
    np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda log: renamed(log, {"a": "b", "b": "c", "c": "d"}),
            "log are 'b', 'c', 'd'; .* of 'a', 'b', 'c', without 'd'",
        ),
        (lambda log: renamed(log, {"a": 1, "b": 2, "c": 3}), "log are 1, 2, 3; .* of 'a', 'b', 'c', without 1, 2, 3"),
        (lambda log: log.replace(context_names=("x", "z")), "contexts of the log are 'x', 'z'; .* of 'x', 'y'"),
        (lambda log: log.replace(encoder="12"), "encoder with digest 12, .* columns as they are: .* fitted once"),
    ],
)
def test_an_agent_refuses_a_log_of_other_names_with_both_lists(may: Log, change: Any, message: str) -> None:
    agent = ope.learn_by_classification(may)
    started = seqdec.agents.linear(SITE)._replace(schema=may.schema)
    for join in (
        lambda log: ope.target_of(agent, log, seed=0),
        lambda log: ope.warm_start(started, log, seed=0),
        lambda log: ope.select(log, {"may": agent}, seed=0),
    ):
        with pytest.raises(ValueError, match=message):
            join(change(may))


# Whole laws and identities


LAW = np.array([[0.2, 0.3, 0.5], [0.0, 0.5, 0.5], [0.2, 0.7, 0.1]])


def a_law(**changes: Any) -> Log:
    given = {"action": ["c", "b", "a"], "reward": [0, 1, 2], "propensity": None, "logging": LAW}
    return make_log(**{**given, **changes})


def test_the_whole_logging_law_gives_propensities_and_travels(tmp_path: Path) -> None:
    log = a_law(mask=LAW > 0, key=["x", "y", "z"])
    assert log.propensity.tolist() == [0.5, 0.5, 0.2]
    assert_equal(a_law(mask=LAW > 0, key=["x", "y", "z"], logging=pd.DataFrame(LAW[:, ::-1], columns=list("cba"))), log)
    log.save(tmp_path / "log.parquet")
    assert_equal(Log.load(tmp_path / "log.parquet"), log)
    table = log.to_pandas()
    assert table["logging[c]"].tolist() == LAW[:, 2].tolist()
    assert_equal(Log.from_pandas(pd.read_csv(io.StringIO(table.to_csv(index=False)))), log)
    part = a_law(logging=LAW * [[1], [np.nan], [1]], propensity=[0.5, 0.5, 0.2])
    found, unknown = (ope.evidence(one, np.full((3, 3), 1 / 3), seed=0) for one in (part, part.replace(logging=None)))
    assert found.usual_weight == unknown.usual_weight and found.log.logging is None
    some = log[[2, 0]]
    assert some.logging is not None and some.key is not None
    assert some.logging.tolist() == LAW[[2, 0]].tolist() and some.key.tolist() == ["z", "x"]
    numbered = Log.from_pandas(
        table.rename(columns={f"logging[{name}]": f"logging_{i}" for i, name in enumerate("abc")})
    )
    np.testing.assert_array_equal(numbered.logging, LAW)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"logging": LAW * 0.9}, "column logging is 0.9.* in row 0.*: the sum of the probabilities must be 1"),
        ({"logging": LAW - [0.3, 0, -0.3]}, "column logging is .* in row 0.*: a probability must be >= 0"),
        (
            {"logging": LAW * [[1, 1, 1], [1, np.nan, 1], [1, 1, 1]]},
            "column logging is .* in row 1.*: a probability must be >= 0",
        ),
        ({"propensity": [0.5, 0.5, 0.3]}, "column logging is 0.2 in row 2: .* must equal its propensity"),
        (
            {"mask": np.array([[False, True, True]] * 2 + [[True] * 3])},
            "is 0.2 in row 0.*: an action that is masked out",
        ),
        ({"logging": LAW[:2]}, r"logging must have shape \(3, 3\); got \(2, 3\)"),
        ({"logging": LAW[:, :2] / LAW[:, :2].sum(1)[:, None]}, r"logging count different numbers .*\[2, 3\]"),
        (
            {"logging": pd.DataFrame(LAW, columns=list("abd"))},
            "logging must have a column for each action, 'a', 'b', 'c'",
        ),
        ({"key": [1, 2, 1]}, "column key is 1 in row 2: an earlier row has this key, .*drop_duplicates"),
        ({"key": ["a", None, "b"]}, "column key is None in row 1: a decision has no key"),
        ({"key": [1, 2]}, r"key must have shape \(3,\); got \(2,\)"),
    ],
)
def test_laws_and_keys_that_fit_no_log_are_refused(changes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        a_law(**changes)


def test_a_key_is_a_column_of_any_name_also_in_batches(tmp_path: Path) -> None:
    table = pd.DataFrame({"action": [0, 1] * 3, "reward": 1.0, "propensity": 0.5, "id": [4, 5, 6, 7, 4, 8]})
    log = Log.from_pandas(table.head(4), key="id")
    assert log.key is not None and log.key.tolist() == [4, 5, 6, 7] and Log.from_pandas(table).key is None
    table.to_parquet(tmp_path / "log.parquet")
    with pytest.raises(ValueError, match="rows 0 to 5: column key is 4 in row 4: an earlier row has this key"):
        ope.evaluate(
            ope.scan_log(tmp_path / "log.parquet", key="id", batch_size=3),
            lambda log: np.full((len(log), 2), 0.5),
            seed=0,
        )


def test_a_run_and_open_bandit_pipeline_tell_the_whole_law() -> None:
    env = seqdec.envs.bernoulli((0.2, 0.8))
    agent = seqdec.agents.random(env)
    run = seqdec.run(agent, env, 20, seed=0, diagnostics=("observation", "probabilities"), progress=False)
    np.testing.assert_array_equal(run.log(0, num_actions=2).logging, np.full((20, 2), 0.5))  # pyright: ignore[reportArgumentType]
    feedback = {"action": [2, 1, 0], "reward": [0.0] * 3, "n_actions": 3, "pscore": [0.5, 0.5, 0.2]}
    for law, position in (
        (LAW, None),
        (LAW[:, :, None], None),
        (np.stack([LAW[[0, 0, 2]], LAW[[1, 1, 1]]], 2), [0, 1, 0]),
    ):
        found = ope.from_bandit_feedback({**feedback, "pi_b": law, "position": position}).logging
        np.testing.assert_array_equal(found, LAW)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="pi_b is of 2 positions, so that position must be 3 integers from 0 to 1"):
        ope.from_bandit_feedback({**feedback, "pi_b": np.stack([LAW, LAW], 2)})


# Propensities that are unknown or estimated


def a_stream(rows: int = 600) -> tuple[Log, np.ndarray]:
    """A log of a logistic policy of three actions, without propensities, and the policy's probabilities."""
    rng = np.random.default_rng(1)
    context = rng.normal(size=(rows, 2))
    policy = np.exp(context @ np.array([[1.0, 0.0, -1.0], [0.0, 1.0, 0.0]]))
    policy /= policy.sum(1, keepdims=True)
    action = (rng.random((rows, 1)) > policy.cumsum(1)).sum(1)
    reward = (action == 1) + rng.normal(size=rows)
    return make_log(action=action, reward=reward, propensity=None, context=context, num_actions=3), policy


def test_a_log_without_propensities_serves_the_direct_method_alone() -> None:
    log = a_log(propensity=None)
    assert not log.known_propensities and "propensity: unknown" in repr(log)
    table = ope.evaluate(log, UNIFORM, np.ones((ROWS, 3)), seed=0)
    assert list(table.index) == ["auto", "dm"] and table.loc["dm", "value"] == 1
    assert table.loc["dm", "interval"] == "without the error of the model"
    assert "the log has no propensities" in ope.overlap(log, UNIFORM).warnings[0]
    with pytest.raises(ValueError, match=r"the log has no propensities: .*estimate_propensities.*direct method"):
        ope.evaluate(log, UNIFORM, seed=0)
    for one in ope.STANDARD:
        if one.log is Log and "propensities" in one.needs:
            with pytest.raises(ValueError, match="the log has no propensities"):
                ope.evaluate(log, UNIFORM, np.ones((ROWS, 3)), seed=0, estimators=[one])


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize("kind", ["known", "unknown", "estimated"])
def test_a_file_keeps_names_and_what_is_known_of_propensities(kind: str, suffix: str, tmp_path: Path) -> None:
    log = a_log(propensity=None if kind == "unknown" else "chance").replace(estimated=kind == "estimated")
    path = tmp_path / f"log.{suffix}"
    if suffix == "csv":
        log.to_pandas().to_csv(path, index=False)
    else:
        log.save(path)
    assert_equal(Log.load(path), log if suffix == "parquet" else log.replace(encoder=None))
    assert ("estimated_propensity" in log.to_pandas()) == (kind == "estimated")


def test_a_row_does_not_enter_its_own_propensity() -> None:
    log, _ = a_stream(120)
    estimated = ope.estimated_policy(log, seed=3)
    action = log.action.copy()
    action[7] = (action[7] + 1) % 3
    other = ope.estimated_policy(log.replace(action=action), seed=3)
    np.testing.assert_array_equal(other[7], estimated[7])
    assert np.abs(other - estimated).max() > 0


def test_estimated_propensities_are_close_and_marked() -> None:
    log, policy = a_stream()
    chances = ope.estimated_policy(log, seed=0)
    for found in (chances, ope.estimated_policy(log, seed=0, classifier=GaussianNB())):
        assert np.abs(found - policy).mean() < 0.06
    estimated = ope.estimate_propensities(log, seed=0)
    np.testing.assert_array_equal(estimated.propensity, chances[np.arange(600), log.action])
    assert estimated.estimated and "propensity (estimated)" in repr(estimated)
    table = ope.evaluate(estimated, np.tile([0.0, 1.0, 0.0], (600, 1)), np.zeros((600, 3)), seed=0)
    assert table["propensities"].to_dict() == {
        one.name: "not used" if one.name == "dm" else "estimated" for one in ope.STANDARD if one.log is Log
    }
    assert table.loc["snips", "low"] < 1 < table.loc["snips", "high"]
    assert "the propensities are estimates" in ope.overlap(estimated, policy).warnings[0]


def test_rare_actions_no_context_and_masks() -> None:
    log, _ = a_stream(120)
    rare = log.replace(action=np.where(np.arange(120) == 4, 3, log.action), mask=np.ones((120, 5), bool))
    chances = ope.estimated_policy(rare, seed=0)
    np.testing.assert_allclose(chances.sum(1), 1)
    assert chances[:, 3:].min() > 0 and chances[:, 3:].max() < 0.03
    shares = ope.estimated_policy(log.replace(context=np.zeros((120, 0))), seed=0)
    np.testing.assert_allclose(shares, np.tile(np.bincount(log.action) / 120, (120, 1)), atol=0.05)
    mask = np.ones((120, 3), bool)
    mask[:, 2] = log.action == 2
    masked = ope.estimated_policy(log.replace(mask=mask), seed=0)
    assert (masked[~mask] == 0).all() and (masked[mask] > 0).all()
    np.testing.assert_allclose(masked.sum(1), 1)
    one = make_log(action=[0] * 9, reward=[0.0] * 9, propensity=None, context=RNG.normal(size=(9, 2)))
    assert ope.estimate_propensities(one, seed=0).propensity.tolist() == [1.0] * 9
    with pytest.raises(ValueError, match="folds must lie between 2 and the number of rows, 120; got 1"):
        ope.estimated_policy(log, seed=0, folds=1)
    with pytest.raises(TypeError, match="must have a method predict_proba"):
        ope.estimated_policy(log, seed=0, classifier=3)


def test_warnings_name_the_actions() -> None:
    log = a_log(TABLE[TABLE["offer"] != "mail"], action_names=["banner", "mail", "none"])
    assert any("actions that no row has (mail)" in text for text in ope.overlap(log, UNIFORM[:40]).warnings)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("propensity", ["none", "estimated"])
def test_a_warm_start_needs_no_propensities_and_keeps_no_estimates(propensity: str) -> None:
    log = a_log(propensity=None)
    log = log if propensity == "none" else ope.estimate_propensities(log, seed=0)
    with seqdec.OnlineAgent("linear", Spaces(ENCODER.space, spaces.Discrete(3)), seed=0) as service:
        service.warm_start(log)
        assert service.decide(ENCODER({"age": 30, "city": "Oslo"})).propensity > 0
        with pytest.raises(ValueError, match="no decision with a propensity"):
            service.log()


def test_the_dict_of_open_bandit_pipeline_is_a_log() -> None:
    rng = np.random.default_rng(0)
    feedback = {
        "n_rounds": 6,
        "n_actions": 3,
        "context": rng.normal(size=(6, 2)),
        "action_context": np.eye(3, dtype=int),
        "action": np.array([0, 1, 2, 1, 0, 1]),
        "position": np.array([0, 1, 0, 1, 2, 0]),
        "reward": np.arange(6),
        "pscore": np.full(6, 0.5),
    }
    log = ope.from_bandit_feedback(feedback)
    np.testing.assert_array_equal(log.context, np.concatenate([feedback["context"], np.eye(3)[[0, 1, 0, 1, 2, 0]]], 1))
    assert log.action.tolist() == [0, 1, 2, 1, 0, 1] and log.num_actions == 3 and log.action_features is None
    other = ope.from_bandit_feedback({**feedback, "position": None, "pscore": None, "action_context": np.ones((3, 4))})
    assert other.context.shape == (6, 2) and not other.known_propensities
    assert other.action_features is not None and other.action_features.shape == (6, 3, 4)
    with pytest.raises(ValueError, match="feedback has no 'reward'; it has n_rounds"):
        ope.from_bandit_feedback({**feedback, "reward": None})
    with pytest.raises(TypeError, match="feedback must be a dict of arrays; got list"):
        ope.from_bandit_feedback([feedback])  # pyright: ignore[reportArgumentType]


# The command


@pytest.mark.sampled(2)
@pytest.mark.parametrize("propensity", ["chance", "estimated", "none"])
def test_the_command_reads_columns_of_any_name(propensity: str, tmp_path: Path, capsys: Any) -> None:
    TABLE.to_csv(tmp_path / "bandit.csv", index=False)
    chances = pd.DataFrame(UNIFORM, columns=[f"probability_{name}" for name in ("none", "mail", "banner")])
    chances.to_csv(tmp_path / "policy.csv", index=False)
    columns = ["--context", "age,city,when", "--action", "offer", "--reward", "clicked", "--time", "when"]
    options = ["--model", "linear", "--folds", "2", "--samples", "20", "--policy", str(tmp_path / "policy.csv")]
    command = ["ope", str(tmp_path / "bandit.csv"), *columns, "--propensity", propensity, *options]
    assert cli.main([*command, "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    table = pd.read_csv(tmp_path / "out" / "estimates.csv", index_col="estimator")
    assert ("ips" in table.index) == (propensity != "none") and "dm" in table.index
    assert ("propensities" in table) == ("the propensities are estimates" in said) == (propensity == "estimated")
    assert ("the log has no propensities" in said) == ("effective" not in said) == (propensity == "none")


def test_the_picture_says_that_propensities_are_estimated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from seqdec.commands import ope as evaluation

    titles = []
    monkeypatch.setattr(ope, "estimates_figure", lambda *arguments: titles.append(arguments[-1]))
    monkeypatch.setattr(evaluation, "save_figure", lambda path, figure: None)
    log = a_log()
    for marked in (log, log.replace(estimated=True)):
        result = evaluation.Result(
            ope.compare(marked, UNIFORM, seed=0), ope.evaluate(marked, UNIFORM, seed=0), (0, 1), None, np.ones(40)
        )
        evaluation.Evaluation(log=str(tmp_path / "log.csv"), out=tmp_path).save([result])
        evaluation.Evaluation.report(tmp_path)
    assert ["estimated propensities" in title for title in titles] == [False, True]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("bandit.csv --context age,citi", "context: HERE/bandit.csv has no column 'citi'; it has user, age"),
        ("bandit.csv --time at", "time: HERE/bandit.csv has no column 'at'"),
        ("open-bandit --reward clicked", "--reward clicked does not apply to open-bandit, which is not a table"),
        ("log.vw --reward-default 0", "--reward-default 0.0 does not apply to HERE/log.vw, which is not a table"),
        (
            "decisions.sqlite --context age",
            "--context age does not apply to HERE/decisions.sqlite, which is not a table",
        ),
        ("log.vw --time at", "--time at does not apply to HERE/log.vw, which is not a table"),
    ],
)
def test_the_command_refuses_columns_that_are_not_there(
    arguments: str, message: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    TABLE.to_csv("bandit.csv", index=False)
    Path("decisions.sqlite").write_bytes(b"SQLite format 3\0")
    Path("log.vw").write_text("1:0:0.5 | a\n")
    assert cli.main(["ope", *arguments.split()]) == 2
    assert message.replace("HERE", str(tmp_path)) in capsys.readouterr().err


def test_a_log_reports_what_it_holds() -> None:
    shown = repr(a_log().report)
    assert "action: 3 actions: banner 33.3%, mail 33.3%, none 33.3% (by name)" in shown
    assert f"reward: 0 or 1, {TABLE['clicked'].mean():.4g} of them 1 (no other values)" in shown
    assert (
        "propensity: 0.3333 (known)" in shown
        and f"by the encoder {ENCODER.digest[:12] if ENCODER.digest else ''}" in shown
    )
    assert "timestamp: 2024-05-01T00:00:00" in shown and "rows: 60 decisions" in shown and " ! " not in shown
    money = make_log(
        action=np.arange(300) % 2,
        reward=np.where(np.arange(300) % 100, 1.0, 1e4),
        propensity=np.ones(300),
        mask=np.ones((300, 4)),
        action_features=np.zeros((4, 2)),
        reward_parts={"click": np.arange(300) % 2},
    ).report
    table = money.to_pandas().set_index("name")
    assert (
        table.loc["reward", "suspicion"] == "99% of the sum of |reward| is in 1% of the rows: intervals are uncertain"
    )
    assert table.loc["propensity", "suspicion"].startswith("all are 1: a policy that never explores shows nothing")
    assert (
        table.loc["action", "why"] == "indices from 0; 2 never played"
        and table.loc["action features", "read_as"] == "2"
    )
    assert table.loc["reward[click]", "read_as"] == "0 or 1, 0.5 of them 1"


@pytest.mark.parametrize(
    ("chance", "remedy"),
    [(50.0, "divide percentages by 100"), (np.log(0.5), "convert logarithms of probabilities with numpy.exp")],
)
def test_propensities_on_another_scale_are_refused_with_the_remedy(chance: float, remedy: str) -> None:
    with pytest.raises(ValueError, match=rf"column propensity is .* in row 0.* must lie in \(0, 1\]; {remedy}"):
        make_log(action=[0, 1], reward=[0, 1], propensity=[chance] * 2)


@pytest.mark.parametrize("columns", [["context_0", "context_1"], None])
def test_arrow_tables_are_logs(columns: Any) -> None:
    plain = pd.DataFrame({"action": ["b", "a", "b"], "reward": [0, 1, 0], "propensity": [0.5, 0.25, 0.5]})
    plain = plain.assign(context_0=[1.5, 2.5, 3.5], context_1=[1, 2, 3], timestamp=pd.date_range("2024", periods=3))
    arrow = pa.Table.from_pandas(plain, preserve_index=False)
    coded = arrow.set_column(0, "action", arrow["action"].dictionary_encode())
    polars = pytest.importorskip("polars")
    expected = Log.from_pandas(plain, context=columns)
    given = [arrow, coded, arrow.to_batches()[0], arrow.to_pandas(types_mapper=pd.ArrowDtype)]
    for table in (*given, polars.from_arrow(arrow), polars.from_arrow(coded)):
        log = Log.from_pandas(table, context=columns)
        assert [log.name(action) for action in log.action] == ["b", "a", "b"]
        for name in ("reward", "propensity", "context", "timestamp"):
            np.testing.assert_array_equal(getattr(log, name), getattr(expected, name))
    made = make_log(action=arrow["action"], reward=arrow["reward"], propensity=arrow["propensity"].chunk(0))
    assert made.action.tolist() == [1, 0, 1] and made.reward.tolist() == [0, 1, 0]
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), 2)
    for lists in (vectors, vectors.cast(pa.list_(pa.float64())), pa.chunked_array([vectors])):
        np.testing.assert_array_equal(make_log(**NAMED, context=lists).context, [[1, 2], [3, 4], [5, 6]])


NAMED: dict[str, Any] = {"action": [0, 1, 0], "reward": [0, 1, 0], "propensity": [0.5] * 3}
