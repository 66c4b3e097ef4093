"""Rare habits with containers, paths and processes: the answer to the usual habit, or one clear error."""

import enum
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from gymnasium import spaces
from sklearn.preprocessing import FunctionTransformer

import seqdec
from seqdec import data, envs, features, ope
from seqdec.bo import BayesianOptimizer, Categorical, space_from
from seqdec.boundary.checks import as_array, count, real, seed
from seqdec.core import Spaces
from seqdec.features import Encoder
from seqdec.persistence import check_writable, located, reading
from seqdec.progress import advance, bar

SITE = Spaces(spaces.Box(-1, 1, (2,)), spaces.Discrete(2))
LOG = ope.make_log(action=[0, 1], reward=[1.0, 0.0], propensity=[0.5, 0.5], num_actions=2)
MASKED = np.ma.masked_equal([1.0, 2.0], 2.0)
ARROW = pd.ArrowDtype(pa.float64())

MISSING: dict[str, Any] = {
    "arrow": pa.array([1.0, None]),
    "arrow integers": pa.array([1, None]),
    "chunks": pa.chunked_array([[1.0], [None]]),
    "lists": pa.array([[1.0, None], [1.0, 2.0]]),
    "lists of one size": pa.array([[1.0, None]], pa.list_(pa.float64(), 2)),
    "lists in chunks": pa.chunked_array([[[1.0, None]]]),
    "table": pa.table({"a": [1.0, None]}),
    "table of lists": pa.table({"a": [[1.0, None]]}),
    "batch": pa.RecordBatch.from_pydict({"a": [1.0, None]}),
    "nullable frame": pd.DataFrame({"a": pd.Series([1, None], dtype="Int64"), "b": [1.0, 2.0]}),
    "arrow column": pd.Series([1.0, None], dtype=ARROW),
    "categories": pd.Series(pd.Categorical([1, None])),
    "index of categories": pd.CategoricalIndex([1, None]),
    "list of columns": [pd.Series([1, None], dtype="Int64"), pd.Series([1, 2], dtype="Int64")],
}


@pytest.mark.parametrize("kind", MISSING)
def test_a_missing_entry_is_not_a_number(kind: str) -> None:
    with pytest.raises(TypeError, match="context must hold real numbers; got missing entries: fill them"):
        as_array("context", MISSING[kind])


def test_a_column_without_missing_entries_is_read() -> None:
    np.testing.assert_array_equal(as_array("x", pa.array([None, 1.0, 2.0])[1:]), [1, 2])
    np.testing.assert_array_equal(as_array("x", pa.array([[None], [1.0], [2.0]])[1:]), [[1], [2]])
    np.testing.assert_array_equal(as_array("x", pd.Series([1.0, None])), [1, np.nan])  # NaN is a number of the column
    np.testing.assert_array_equal(as_array("x", [1.0, float("nan")]), [1, np.nan])


@pytest.mark.parametrize("values", [[MASKED, MASKED], ([0.0], MASKED), [1.0, np.ma.masked]], ids=repr)
def test_a_mask_inside_a_list_is_refused(values: Any) -> None:
    with pytest.raises(TypeError, match="x must be an array without a mask"):
        as_array("x", values)
    optimizer = BayesianOptimizer([(0.0, 3.0), (0.0, 3.0)], seed=0)
    with pytest.raises(TypeError, match="must be a number; got masked"):
        optimizer.tell(MASKED, 1.0)
    with pytest.raises(TypeError, match="must be hashable; got masked"):
        space_from([Categorical(np.ma.masked_equal([1, 2, 3], 2))])  # pyright: ignore[reportArgumentType]


def test_a_name_that_occurs_twice_is_refused() -> None:
    optimizer = BayesianOptimizer({"a": (0.0, 1.0), "b": (0.0, 1.0)}, seed=0)
    frame = pd.DataFrame([[0.25, 0.5, 0.75]], columns=["a", "b", "a"])
    for point in (frame, frame.iloc[0], pa.Table.from_arrays([pa.array([0.25])] * 3, ["a", "b", "a"])):
        with pytest.raises(ValueError, match="the name 'a' occurs twice"):
            optimizer.tell(point, 1.0)
    assert not optimizer.trials


def test_false_and_true_are_choices() -> None:
    for limits in ((False, True), np.array([False, True])):
        with pytest.raises(TypeError, match=r"bounds\[0\] must be numbers; got .*False.*: use a Categorical"):
            space_from([limits])


def test_steps_of_any_container_and_no_others() -> None:
    expected = envs.permuted("linear", change_points=[3, 5]).params.change_points

    class Array:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return np.array([3, 5], dtype)

    for points in (Array(), pa.array([3, 5]).dictionary_encode(), jnp.array([3, 5])):
        found = envs.permuted("linear", change_points=points).params.change_points  # pyright: ignore[reportArgumentType]
        np.testing.assert_array_equal(found, expected)
    for wrong in ({3: "a", 5: "b"}, [3.0, 5.0], "35", [[3, 5]]):
        with pytest.raises((TypeError, ValueError), match="change_points must"):
            envs.permuted("linear", change_points=wrong)  # pyright: ignore[reportArgumentType]


def test_a_log_from_a_table_of_another_kind() -> None:
    table = LOG.to_pandas()
    for same in (table.astype(object), table.astype("category"), table.convert_dtypes(dtype_backend="pyarrow")):
        for one, wanted in zip(ope.Log.from_pandas(same, num_actions=2)[:6], LOG, strict=False):
            np.testing.assert_array_equal(one, wanted)  # pyright: ignore[reportArgumentType]
    others: Any = (table.to_dict("list"), table.to_records(index=False), table["reward"])
    for other in others:
        with pytest.raises(TypeError, match="table must be a pandas, polars or pyarrow table, or a list of dicts; got"):
            ope.Log.from_pandas(other)
    with pytest.raises(ValueError, match="the column reward occurs twice: drop one"):
        ope.Log.from_pandas(pd.concat([table, table[["reward"]]], axis=1))


def test_a_reward_of_any_number_type() -> None:
    with seqdec.OnlineAgent("linear", SITE, seed=0) as one:
        for reward in (pa.scalar(1.0), jnp.bfloat16(1.0), np.longdouble(1), np.array(1, ">f4")):
            assert one.learn(one.decide([0.0, 0.0]).token, reward) == "learned"  # pyright: ignore[reportArgumentType]
        token = one.decide([0.0, 0.0]).token
        for wrong in (np.ma.masked, pa.scalar(None, pa.float64()), pd.NA, np.timedelta64(1, "s"), [1.0]):
            with pytest.raises(TypeError, match="a reward must be a number"):
                one.learn(token, wrong)  # pyright: ignore[reportArgumentType]
        assert one.learn(token, 1.0) == "learned"


def test_a_state_with_what_a_file_cannot_hold(tmp_path: Path) -> None:
    for leaf, message in ((MASKED, "a is a masked array"), (2**70, "a is an integer of more than 32 bits")):
        with pytest.raises(TypeError, match=f"the leaf {message}"):
            seqdec.save(tmp_path / "state", {"a": leaf})
    assert not list(tmp_path.iterdir())


def test_seeds_and_names_of_other_types() -> None:
    one = enum.IntEnum("one", {"one": 1}).one  # pyright: ignore[reportAttributeAccessIssue]
    for given in (one, pa.scalar(1), np.array(1, ">i2"), jnp.array(1)):
        assert seed("seed", given) == 1
    for wrong in (np.array([1]), jnp.array(True), np.True_, 1.0, "1", None, jax.random.key(1)):
        with pytest.raises(TypeError, match="seed must be an integer"):
            seed("seed", wrong)
    for name in (["linear"], {"linear"}, None, b"linear"):
        with pytest.raises(ValueError, match="unknown agent"):
            seqdec.agents.make(name, SITE)  # pyright: ignore[reportArgumentType]


def test_text_is_no_feature() -> None:
    with pytest.raises(TypeError, match="features must hold real numbers"):
        data.form_blocks([0] * 10, range(10), [1.0] * 10, features=[["1"], ["2"]], feature_row=[0] * 10)


FRAME = pd.DataFrame({"age": [31.0, 47.0], "city": ["Rome", "Oslo"]})
ENCODER = Encoder.fit(FRAME)
ROWS: list[dict[str, Any]] = FRAME.to_dict("records")
ORDERED: dict[str, Callable[[Any], Any]] = {
    "levels": lambda names: Encoder({"age": features.Categorical(names)}).names,
    "ordered levels": lambda names: Encoder({"age": features.Ordered(names)}).names,
    "tags": lambda names: Encoder({"age": features.Tags(names)}).names,
    "columns": lambda names: Encoder.fit(FRAME, names).names,
    "columns of a transformer": lambda names: (
        Encoder.of(FunctionTransformer().fit(FRAME[["age"]]), names, example={"age": 1.0}).columns
    ),
    "action_names": lambda names: ope.make_log(**ACTIONS, action_names=names).action_names,
    "context": lambda names: ope.Log.from_pandas(LOG.to_pandas().assign(age=1.0), context=names).context,
}
ACTIONS: dict[str, Any] = {"action": ["age"], "reward": [1.0], "propensity": [1.0]}


@pytest.mark.parametrize("name", ORDERED)
def test_where_an_order_counts_a_set_has_none(name: str) -> None:
    expected = ORDERED[name](["age"])
    for same in (("age",), deque(["age"]), iter(["age"]), {"age": 0}.keys(), pd.Index(["age"]), np.array(["age"])):
        np.testing.assert_array_equal(ORDERED[name](same), expected)
    for wrong, remedy in (
        ({"age"}, "as with sorted"),
        (frozenset({"age"}), "as with sorted"),
        ("age", "'age'"),
        (3, ""),
    ):
        with pytest.raises(TypeError, match=f"must be .*a list of .*; got .*{remedy}"):
            ORDERED[name](wrong)


def test_rows_of_any_container() -> None:
    expected = ENCODER.transform(FRAME)
    for same in (ROWS, tuple(ROWS), list(map(MappingProxyType, ROWS))):
        np.testing.assert_array_equal(ENCODER.transform(same), expected)
    for wrong in (list(FRAME.itertuples()), [FRAME.iloc[0]], [3]):
        with pytest.raises(TypeError, match=r"row 0 must be a dict; got .*: convert it, as with _asdict\(\)"):
            ENCODER.transform(wrong)
    with pytest.raises(TypeError, match=r"a row must be a dict; got Series: convert it, .* or to_dict\(\)"):
        ENCODER(FRAME.iloc[0])  # pyright: ignore[reportArgumentType]
    for wrong in ("numeric", ["age"], [("age", "numeric")]):
        with pytest.raises(TypeError, match="kinds must be a dict from columns to kinds; got "):
            Encoder.fit(FRAME, kinds=wrong)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("unit", ["ns", "s", "generic"])
def test_a_duration_is_no_number(unit: Any) -> None:
    """NumPy counts durations among the integers, and converts some of them."""
    duration = np.timedelta64(5, unit)
    takers: tuple[Callable[[Any], Any], ...] = (
        lambda value: real("x", value),
        lambda value: as_array("x", np.array([value, 1], object)),
        lambda value: ENCODER({"age": value}),
        lambda value: ENCODER({"city": value}),
        lambda value: Encoder({"age": features.Bool()})({"age": value}),
        lambda value: Encoder.fit([{"age": value}]),
    )
    for take in takers:
        with pytest.raises(TypeError, match=r"must|is not|no known kind"):
            take(duration)
    with pytest.raises(TypeError, match="a level must be a str, a number or a bool; got nan"):
        Encoder({"city": features.Categorical(["Rome", float("nan")])})


def test_rewards_are_told_in_pairs() -> None:
    with seqdec.OnlineAgent("linear", SITE, seed=0) as one:
        for nothing in ([], np.zeros((0, 2)), pd.DataFrame(columns=["a", "b"], dtype=float)):
            assert one.decide_many(nothing) == []
        token = one.decide([0.0, 0.0]).token
        record = {"token": token, "reward": 1.0}
        for wrong in ({token: 1.0}, [record], [token], "ab", pd.DataFrame([record]), [(token, 1.0, 0)], [None]):
            with pytest.raises(
                TypeError, match=r"must be given as pairs \(token, reward\); got .*zip\(tokens, rewards\)"
            ):
                one.learn_many(wrong)  # pyright: ignore[reportArgumentType]
        assert one.learn_many({token: 1.0}.items()) == ["learned"]


def test_a_log_is_made_before_it_is_evaluated() -> None:
    target, wrong = np.full((2, 2), 0.5), LOG.to_pandas()
    takers: tuple[Callable[[Any], Any], ...] = (
        lambda log: ope.evaluate(log, target, seed=0),
        lambda log: ope.overlap(log, target),
        lambda log: ope.evidence(log, target, seed=0),
        lambda log: ope.predict_rewards(log, seed=0),
        lambda log: ope.estimate_propensities(log, seed=0),
        lambda log: ope.cross_fit(None, log, seed=0),  # pyright: ignore[reportArgumentType]
        lambda log: ope.prequential(None, log, seed=0),  # pyright: ignore[reportArgumentType]
        lambda log: seqdec.OnlineAgent("linear", SITE, seed=0).warm_start(log),
    )
    for take in takers:
        for log in (wrong, tuple(LOG), None):
            with pytest.raises(
                TypeError, match=r"log must be a seqdec\.ope\.Log; got .*: make it with Log.from_pandas"
            ):
                take(log)


def test_what_a_state_is_loaded_like(tmp_path: Path) -> None:
    save_state(tmp_path / "state")
    for wrong in (seqdec.agents.linear, dict, "linear", {"a": "linear"}, object()):
        with pytest.raises(
            TypeError, match="like must be an agent, as a factory makes it of an environment, or a tree"
        ):
            seqdec.load(tmp_path / "state", wrong)


def test_a_setting_is_a_number_that_jax_calculates_with() -> None:
    for wrong in (pa.scalar(0.1), Fraction(1, 10), Decimal("0.1"), "0.1", [0.1], True):
        with pytest.raises((TypeError, ValueError), match=r"learning_rate must (be|hold) "):
            seqdec.optim.soap(wrong)  # pyright: ignore[reportArgumentType]
        with pytest.raises((TypeError, ValueError), match=r"horizon must (be|hold) "):
            seqdec.agents.make("auto", SITE, horizon=wrong)
    for good in (1, 0.1, np.float32(0.1), np.array(0.1), jnp.float32(0.1)):
        seqdec.optim.soap(good)


def test_a_size_is_one_integer() -> None:
    for wrong in (np.array([20]), np.array(2.0), "20", pd.NA):
        with pytest.raises(TypeError, match="steps must be an integer; got "):
            count("steps", wrong)


def save_state(path: Path) -> None:
    seqdec.save(path, {"a": np.ones(2)})


def save_study(path: Path) -> None:
    BayesianOptimizer([(0, 1)], seed=0).save(path)


WRITERS: dict[str, Callable[[Path], None]] = {"state": save_state, "study": save_study, "log": LOG.save}


@pytest.mark.parametrize("name", WRITERS)
def test_nothing_but_a_file_is_replaced(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    for place, kind in (("pipe", "a pipe or a device"), ("folder", "a folder"), ("loop", "a symbolic link that leads")):
        with pytest.raises(OSError, match=f"cannot write {tmp_path / place}: it is {kind}"):
            WRITERS[name](tmp_path / place)
    assert (tmp_path / "pipe").is_fifo() and (tmp_path / "folder").is_dir() and (tmp_path / "loop").is_symlink()
    assert sorted(item.name for item in tmp_path.iterdir()) == ["folder", "loop", "pipe"]


@pytest.mark.parametrize("name", WRITERS)
def test_a_symbolic_link_stays(name: str, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk/file")
    for _ in range(2):  # the file is missing, then it is replaced
        WRITERS[name](tmp_path / "link")
        assert (tmp_path / "link").is_symlink() and not (tmp_path / "disk" / "file").is_symlink()
    assert [item.name for item in (tmp_path / "disk").iterdir()] == ["file"]


def test_what_is_in_the_way_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    for name, kind in (("file", "a file"), ("link", "a symbolic link that leads nowhere"), ("pipe", "a pipe")):
        for folder in (tmp_path / name, tmp_path / name / "deep" / "er"):
            with pytest.raises(OSError, match=f"cannot write {folder}: {tmp_path / name} is {kind}.*, not a folder"):
                check_writable(folder)
    with pytest.raises(OSError, match="is a file, not a folder"):
        data.write_kuairec(tmp_path / "file", users=1, videos=1, seed=0)


READERS: dict[str, Callable[[Path], Any]] = {
    "state": lambda path: seqdec.load(path, {"a": np.ones(2)}),
    "study": BayesianOptimizer.load,
    "log": ope.Log.load,
}


@pytest.mark.parametrize("name", READERS)
def test_what_is_read_is_a_file(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    places = {tmp_path: "a folder", tmp_path / "pipe": "a pipe or a device", Path("/dev/null"): "a pipe or a device"}
    for place, kind in places.items():
        with pytest.raises(ValueError, match=f"{place} is {kind}; give the path of a file"):
            READERS[name](place)


def test_what_the_system_refuses_is_not_damaged(tmp_path: Path) -> None:
    with pytest.raises(PermissionError, match=f"cannot read {tmp_path}: not allowed"), reading(tmp_path):
        raise PermissionError(1, "not allowed")
    with pytest.raises(ValueError, match="is damaged"), reading(tmp_path):
        raise OSError("corrupt snappy data")  # pyarrow's


@pytest.mark.parametrize("wrong", ["a\0b", "s3://bucket/log", "https://site/log.csv", Path("file:///tmp/x")], ids=repr)
def test_a_path_is_of_this_machine(wrong: Any) -> None:
    with pytest.raises(ValueError, match="a path must"):
        located(wrong)
    assert located("a:b") == Path.cwd() / "a:b"


@pytest.fixture
def nowhere(tmp_path: Path) -> Iterator[None]:
    """A working directory that was deleted."""
    before = Path.cwd()
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    yield
    os.chdir(before)


@pytest.mark.usefixtures("image_home", "nowhere")
def test_a_working_directory_that_was_deleted(tmp_path: Path) -> None:
    tables = data.load_adult, data.load_mushroom, data.load_statlog, data.load_stocks
    for load in (data.load_digits, data.load_mnist, data.load_open_bandit, *tables):
        assert len(load())
    with pytest.raises(FileNotFoundError, match="'x' is relative to a working directory that was deleted"):
        LOG.save("x")
    LOG.save(tmp_path / "log")
    assert len(ope.Log.load(tmp_path / "log", num_actions=2).action) == 2


def test_a_thread_that_decides_while_the_process_ends(tmp_path: Path) -> None:
    with seqdec.OnlineAgent("linear", SITE, seed=0, folder=tmp_path) as one:
        one._free()  # as `weakref.finalize` does at the end
        with pytest.raises(
            RuntimeError, match=f"{tmp_path}/decisions.sqlite is closed, perhaps because the process ends"
        ):
            one.decide([0.0, 0.0])


def test_too_many_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def acquire(*_: Any, **__: Any) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("filelock.FileLock.acquire", acquire)
        with pytest.raises(OSError, match="Too many open files"):
            LOG.save(tmp_path / "log")
    assert not list(tmp_path.iterdir())


def test_progress_where_there_is_no_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    for show in (None, True):
        with bar(2, "title", "step", show=show) as shown:
            advance(shown, 2)


def test_a_name_that_is_not_unicode(tmp_path: Path) -> None:
    """As Linux allows, and as Python reads every name under LANG=C without its UTF-8 mode."""
    for name, write in WRITERS.items():
        place = tmp_path / f"{name}\udcff"
        write(place)
        assert READERS[name](place) is not None
    data.write_kuairec(tmp_path / "\udcff", users=1, videos=20, seed=0)
    assert data.load_kuairec(tmp_path / "\udcff", cache=False).rewards.size


@pytest.mark.extended
def test_a_report_in_a_terminal_of_few_characters(tmp_path: Path) -> None:
    """A module as the command, an output that takes ASCII only, outputs that are closed, and a full disk."""
    given = {**os.environ, "PYTHONIOENCODING": "ascii"}
    module = [sys.executable, "-m", "seqdec"]
    help_text = subprocess.run([*module, "run", "--help"], capture_output=True, env=given, check=True, timeout=100)
    assert b"digits" in help_text.stdout and help_text.stdout.isascii()
    for closed in ("1>&-", "2>&-", "<&-", "1>&- 2>&-"):
        shell = [f'exec "$@" {closed}', "sh", *module, "run", "digitz"]
        done = subprocess.run(["sh", "-c", *shell], capture_output=True, text=True, timeout=100)
        assert done.returncode == 2 and not done.stdout
        assert ("did you mean 'digits'" in done.stderr) != ("2>" in closed) and "Traceback" not in done.stderr
