"""Logs in parquet files, read in batches: the estimates of a log in memory, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from seqdec import ope

NAMES = ("no", "blue", "red")
ESTIMATORS = [*ope.STANDARD[:10], ope.SubGaussianDR(), ope.IPS(max_weight="slope")]


def policy(log: ope.Log) -> np.ndarray:
    """Prefers an action by the context, among those that are allowed."""
    chance = log.mask * np.exp(log.context @ [[1.0, -1.0, 0.0], [0.0, 0.5, 1.0]])
    return chance / chance.sum(axis=1, keepdims=True)


def model(log: ope.Log) -> np.ndarray:
    return np.tile([0.2, 0.5, 0.4], (len(log.action), 1)) + 0.1 * log.context[:, :1]


def draw(rows: int = 2500) -> ope.Log:
    rng = np.random.default_rng(0)
    mask = np.column_stack([np.ones((rows, 2)), rng.random(rows) < 0.5])
    chance = mask * [0.2, 0.3, 0.5]
    chance /= chance.sum(axis=1, keepdims=True)
    action = (rng.random((rows, 1)) > chance.cumsum(axis=1)).sum(axis=1)
    return ope.make_log(
        action=action,
        reward=(rng.random(rows) < 0.2 + 0.2 * (action > 0)) * 1.0,
        propensity=chance[np.arange(rows), action],
        context=rng.normal(size=(rows, 2)),
        mask=mask,
        action_names=NAMES,
    )


@pytest.fixture(scope="module")
def log() -> ope.Log:
    return draw()


@pytest.fixture
def path(log: ope.Log, tmp_path: Path) -> Path:
    table = log.to_pandas().assign(**{f"p_{i}": column for i, column in enumerate(policy(log).T)})
    table.to_parquet(tmp_path / "log.parquet", row_group_size=1000)
    return tmp_path / "log.parquet"


@pytest.mark.parametrize("target", [policy, ["p_0", "p_1", "p_2"]], ids=["function", "columns"])
@pytest.mark.parametrize("groups", [None, np.arange(2500) // 5])
def test_a_log_in_batches_has_the_estimates_of_the_log_in_memory(
    target: Any, groups: Any, log: ope.Log, path: Path
) -> None:
    options: dict[str, Any] = {"seed": 3, "estimators": ESTIMATORS, "groups": groups, "samples": 200}
    found = ope.evaluate(ope.scan_log(path, batch_size=700), target, model, **options)
    expected = ope.evaluate(log, policy(log), model(log), **options)
    pd.testing.assert_frame_equal(found, expected, rtol=1e-9)
    assert ope.overlap(ope.scan_log(path, batch_size=700), target).verdict == ope.overlap(log, policy(log)).verdict


def test_batches_are_the_rows_of_the_file(log: ope.Log, path: Path) -> None:
    file = ope.scan_log(path, batch_size=700)
    batches = list(file.batches())
    assert max(len(batch.action) for batch in batches) == 700 and "2,500 decisions" in repr(file)
    assert all(batch.action_names == NAMES for batch in batches)  # red is in the order of the categories
    np.testing.assert_array_equal(np.concatenate([batch.action for batch in batches]), log.action)


def test_actions_are_those_of_the_whole_file(path: Path) -> None:
    table = pd.read_parquet(path).drop(columns=[f"mask[{name}]" for name in NAMES]).sort_values("action").reset_index()
    table["timestamp"] = np.arange(len(table))
    for column, size, names in (
        (table["action"].cat.codes, 3, None),
        (table["action"].astype(object), 3, tuple(sorted(NAMES))),
    ):
        table.assign(action=column).to_parquet(path)
        (*_, batch) = ope.scan_log(path, batch_size=100).batches()
        assert (batch.num_actions, batch.action_names) == (size, names)


def test_without_propensities_there_is_the_direct_method(log: ope.Log, path: Path) -> None:
    table = ope.evaluate(ope.scan_log(path, propensity=None), policy, model, seed=0, samples=50)
    assert list(table.index) == ["auto", "dm"] and table.loc["dm", "value"] == pytest.approx(
        (policy(log) * model(log)).sum(1).mean()
    )


@pytest.mark.parametrize("name", ["mrdr", "balanced_ipw", "mips"])
def test_estimators_that_need_contexts_are_refused(name: str, path: Path) -> None:
    with pytest.raises(ValueError, match=f"{name} needs contexts .* read a part of the log with Log.load"):
        ope.evaluate(ope.scan_log(path), policy, seed=0, estimators=[name])


def spoil(column: str, row: int | slice, value: Any) -> Any:
    def change(table: pd.DataFrame) -> pd.DataFrame:
        table.loc[row, column] = value
        return table

    return change


BAD = {
    "reward": (spoil("reward", 1402, np.nan), r"log\.parquet, rows 1,400 to 2,099: column reward is nan in row 2"),
    "order": (spoil("timestamp", slice(700, 1399), 1), "rows 700 to 1,399: the first is earlier than the row before"),
    "unknown in a batch": (spoil("propensity", slice(700, 1399), np.nan), "rows 700 to 1,399: propensities are known"),
    "missing": (lambda table: table.drop(columns="action"), "no column action; the table has timestamp, reward"),
    "empty": (lambda table: table.iloc[:0], "has no rows"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused(name: str, path: Path) -> None:
    change, message = BAD[name]
    change(pd.read_parquet(path)).to_parquet(path)
    with pytest.raises(ValueError, match=message):
        ope.evaluate(ope.scan_log(path, batch_size=700), policy, seed=0)


def test_other_mistakes(path: Path, tmp_path: Path) -> None:
    file = ope.scan_log(path, batch_size=700)
    with pytest.raises(ValueError, match=r"there is no column p_7"):
        ope.evaluate(file, ["p_0", "p_1", "p_7"], seed=0)
    with pytest.raises(
        TypeError, match="target of a log in batches must be a function of a batch or a list of columns"
    ):
        ope.evaluate(file, np.full((2500, 3), 1 / 3), seed=0)
    with pytest.raises(ValueError, match=r"rows 0 to 699: target, row 0: the probabilities do not sum to 1"):
        ope.evaluate(file, lambda log: np.where(log.mask, 0.9, 0.0), seed=0)
    with pytest.raises(TypeError, match="target of a log in batches must be a function of a batch"):
        ope.overlap(file, np.full((2500, 3), 1 / 3))
    (tmp_path / "log.csv").write_text("action,reward\n1,2\n")
    with pytest.raises(ValueError, match=r"a log in batches is a parquet file: read others with Log\.load"):
        ope.scan_log(tmp_path / "log.csv")
    with pytest.raises(FileNotFoundError):
        ope.scan_log(tmp_path / "none.parquet")
    pd.read_parquet(path).iloc[:900].to_parquet(path)
    with pytest.raises(ValueError, match=r"has 900 rows and had 2,500: call scan_log anew"):
        ope.evaluate(file, policy, seed=0)
