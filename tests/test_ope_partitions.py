"""Logs in folders of parquet files: the results of the log in memory, however it is divided, and what is refused."""

import itertools
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from seqdec import cli, ope
from tests.test_ope_files import NAMES, draw, model, policy

SUMS = [ope.IPS(), ope.SNIPS(), ope.DM(), ope.DR(), ope.SNDR()]
CUTS = [0, 300, 301, 1500, 2500]


@pytest.fixture(scope="module")
def log() -> ope.Log:
    return draw()


@pytest.fixture(scope="module")
def folder(log: ope.Log, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return divided(log, CUTS, tmp_path_factory.mktemp("log"))


def divided(log: ope.Log, cuts: list[int], folder: Path) -> Path:
    for place, (start, stop) in enumerate(itertools.pairwise(cuts)):
        (folder / f"day={place}").mkdir(parents=True)
        log[start:stop].save(folder / f"day={place}" / "part.parquet")
    return folder


def test_a_folder_has_the_estimates_of_the_log_in_memory(log: ope.Log, folder: Path) -> None:
    files = ope.scan_log(folder, batch_size=700)
    assert "2,500 decisions in 4 files" in repr(files)
    for predicted, chosen in ((model, SUMS), (None, SUMS[:2])):
        known = None if predicted is None else model(log)
        expected = ope.evaluate(log, policy(log), known, seed=3, estimators=chosen, samples=100)
        found = ope.evaluate(files, policy, predicted, seed=3, samples=100)
        np.testing.assert_allclose(found["value"], expected["value"], rtol=1e-9)
        np.testing.assert_allclose(found[["low", "high"]], expected[["low", "high"]], rtol=1e-6)
        np.testing.assert_allclose(found["std_error"], expected["std_error"], rtol=1e-3)  # n - 1 of rows, of blocks
        assert list(found["interval"]) == list(expected["interval"])
    seen, known = ope.overlap(files, policy), ope.overlap(log, policy(log))
    assert seen.verdict == known.verdict and seen[:8] == pytest.approx(known[:8], rel=1e-9)


def test_a_folder_is_compared_as_the_log_in_memory(log: ope.Log, folder: Path) -> None:
    found, expected = ope.compare(ope.scan_log(folder), policy, seed=3), ope.compare(log, policy(log), seed=3)
    assert found.estimator == expected.estimator == "snips" and found.decision == expected.decision
    assert found.baseline == pytest.approx(expected.baseline, rel=1e-6)
    assert found.difference.value == pytest.approx(expected.difference.value, rel=1e-9)
    ends = np.subtract(expected.difference[1:], expected.difference.value)
    np.testing.assert_allclose(np.subtract(found.difference[1:], found.difference.value), ends, rtol=0.1)  # bootstrap
    same = ope.compare(ope.scan_log(folder), lambda part: part.mask * [0.2, 0.3, 0.5] / weigh(part), seed=3)
    assert same.verdict == "No difference: the policy is equal to that of the log."


def weigh(part: ope.Log) -> Any:
    return (part.mask * [0.2, 0.3, 0.5]).sum(axis=1, keepdims=True)


class Counting(ThreadPoolExecutor):
    """How many tasks have been given at most, and not been taken."""

    waiting = most = 0

    def submit(self, *task: Any, **named: Any) -> Future[Any]:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        future = super().submit(*task, **named)
        found = future.result

        def result(*given: Any) -> Any:
            self.waiting -= 1
            return found(*given)

        future.result = result  # pyright: ignore[reportAttributeAccessIssue]
        return future


def test_files_batches_and_workers_change_nothing(log: ope.Log, folder: Path, tmp_path: Path) -> None:
    expected = ope.evaluate(ope.scan_log(folder), policy, model, seed=0)
    other = divided(log, [*range(0, 2500, 100), 2500], tmp_path)
    with Counting(2) as executor:
        found = ope.evaluate(ope.scan_log(other, executor=executor, batch_size=70), policy, model, seed=0)
        assert executor.most == 5  # results are not collected
    pd.testing.assert_frame_equal(found, expected, rtol=1e-9)


def test_a_sample_tells_about_a_log_that_is_longer(log: ope.Log, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqdec.ope.partitions._SAMPLE", 500)
    expected = ope.evaluate(log, policy(log), seed=0, estimators=SUMS[:2])
    found = ope.evaluate(ope.scan_log(folder), policy, seed=0)
    np.testing.assert_allclose(found["value"], expected["value"], rtol=1e-9)
    np.testing.assert_allclose(found[["low", "high"]], expected[["low", "high"]], rtol=0.01)
    seen = ope.overlap(ope.scan_log(folder), policy)
    assert (
        seen.rows == 2500
        and 0.8 < seen.effective_sample_size / ope.overlap(log, policy(log)).effective_sample_size < 1.2
    )


def test_a_policy_that_was_never_played_is_unknown(folder: Path) -> None:
    def never(part: ope.Log) -> np.ndarray:
        return np.eye(3)[np.where(part.action == 0, 1, 0)]

    with pytest.warns(UserWarning, match="no support"):
        found = ope.evaluate(ope.scan_log(folder), never, model, seed=0)
    assert np.isnan(found.loc[["ips", "snips"], "value"]).all()
    assert found.loc["sndr", "value"] == pytest.approx(found.loc["dm", "value"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"estimators": "auto"},
            "auto needs all rows together: a folder of files has the estimators ips, snips, dm, dr",
        ),
        ({"estimators": "dr(shrinkage=2)"}, "needs all rows together"),
        ({"groups": np.arange(2500)}, "groups= needs all rows together"),
        ({"reward_range": (0.5, 1)}, "reward_range must be"),
        ({"estimators": "dm"}, "dm needs predicted rewards"),
    ],
)
def test_what_needs_all_rows_is_refused(options: dict[str, Any], message: str, folder: Path) -> None:
    with pytest.raises(ValueError, match=message):
        ope.evaluate(ope.scan_log(folder), policy, seed=0, **options)


def test_other_folders_are_refused(log: ope.Log, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"has no file \*.parquet"):
        ope.scan_log(tmp_path)
    wide = divided(log.replace(reward=3 * log.reward), [0, 2500], tmp_path / "wide")
    with pytest.raises(ValueError, match="needs the range of possible rewards"):
        ope.evaluate(ope.scan_log(wide), policy, seed=0)
    with pytest.raises(ValueError, match="needs propensities"):
        ope.evaluate(ope.scan_log(folder, propensity=None), policy, model, seed=0)
    options: list[dict[str, Any]] = [{"anytime": True}, {"window": 10}, {"baseline": policy}]
    for wrong in options:
        with pytest.raises(ValueError, match="leave out baseline, window, anytime"):
            ope.compare(ope.scan_log(folder), policy, seed=0, **wrong)
    with pytest.raises(ValueError, match="is a file: leave it out"):
        ope.scan_log(folder / "day=0" / "part.parquet", executor=ThreadPoolExecutor(1))


class Here:
    """In place of worker processes."""

    def __init__(self, workers: int | None) -> None:
        assert workers == 3

    def __enter__(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1)

    def __exit__(self, *_: Any) -> None:
        pass


def test_the_command_compares_a_folder(
    log: ope.Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("seqdec.executors.Local", Here)
    (tmp_path / "log").mkdir()
    for place in range(2):
        part = log[place * 1250 : (place + 1) * 1250]
        columns = {f"probability_{name}": one for name, one in zip(NAMES, policy(part).T, strict=True)}
        part.to_pandas().assign(**columns).to_parquet(tmp_path / "log" / f"{place}.parquet")
    start = ["ope", str(tmp_path / "log"), "--out", str(tmp_path / "out"), "--samples", "50"]
    assert cli.main([*start, "--policy", "columns", "--workers", "3"]) == 0
    said, expected = capsys.readouterr().out, ope.compare(log, policy(log), seed=0, samples=50)
    assert expected.verdict[:14] in said and "2,500 rows" in said and "snips" in said
    assert {"difference.png", "estimates.csv"} <= {path.name for path in (tmp_path / "out").iterdir()}
    for options, message in (
        ([], "must be uniform or columns for a folder of parquet files; got greedy"),
        (["--policy", "uniform", "--anytime"], "--anytime does not apply to"),
        (["--policy", "uniform", "--propensity", "none"], "--propensity does not apply to"),
        (["--policy", "uniform", "--address", "auto"], "--address requires --backend ray"),
    ):
        assert cli.main([*start, *options]) == 2
        assert message in capsys.readouterr().err
    single = ["ope", str(tmp_path / "log" / "0.parquet"), *start[2:], "--policy"]
    for options, message in (
        (["columns"], "policy columns requires a folder of parquet files"),
        (["uniform", "--workers", "2"], "--workers does not apply to"),
    ):
        assert cli.main([*single, *options]) == 2
        assert message in capsys.readouterr().err
