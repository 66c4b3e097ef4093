"""The logs of recommenders: read, refused, cached, generated, and cut into blocks."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pooch
import pytest

from seqdec.data import form_blocks, load_kuairec, load_random_exposures, synthetic_kuairec, write_kuairec
from seqdec.data import kuairec as reader
from seqdec.data.kuairec_synthetic import world
from seqdec.data.recommender import check_log

DAY = 86400.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two users, five videos, two days, all in order and without gaps; the cache beside them."""
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "cache")
    rows = []
    for user in (14, 3):
        for i, video in enumerate((7, 5, 9, 2, 8)):
            time = 1.6e9 + user + 10 * i + (DAY if i >= 3 else 0)
            rows.append((user, video, 900, 1000, "2020-07-05 00:00:00.000", 20200705 + (i >= 3), time, 0.1 * video))
    names = ["user_id", "video_id", "play_duration", "video_duration", "time", "date", "timestamp", "watch_ratio"]
    pd.DataFrame(rows, columns=names).to_csv(tmp_path / "small_matrix.csv", index=False)
    daily = [
        (video, "tag, and comma", date, *(video * (k + 1) + date % 10 for k in range(8)))
        for video in (2, 5, 7, 8, 9)
        for date in (20200704, 20200705, 20200706)
    ]
    columns = ["video_id", "video_tag_name", "date", *reader.COUNTS]
    pd.DataFrame(daily, columns=columns).to_csv(tmp_path / "item_daily_features.csv", index=False)
    return tmp_path


def edit(path: Path, line: int, old: str, new: str) -> None:
    """Replace `old` in one line, counted from 1."""
    lines = path.read_text().splitlines(keepends=True)
    assert old in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(old, new, 1)
    path.write_text("".join(lines))


def test_blocks_of_a_small_log(folder: Path) -> None:
    log = load_kuairec(folder, size=2)
    assert {name: ids.tolist() for name, ids in log.labels.items()} == {"user": [3, 14], "video": [2, 5, 7, 8, 9]}
    assert log.ids["user"].tolist() == [[0, 0], [1, 1], [0, 0], [1, 1]]  # in the order of their first rows
    assert log.ids["video"].tolist() == [[2, 1], [2, 1], [4, 0], [4, 0]]
    np.testing.assert_allclose(log.rewards, np.log1p([[0.7, 0.5]] * 2 + [[0.9, 0.2]] * 2), rtol=1e-6)
    assert log.days.tolist() == [20200705] * 4 and log.candidates.all()
    seen = np.expm1(log.features[log.feature_rows])  # of the day before: the 4th, and the 5th where it is the 6th
    np.testing.assert_allclose(seen[0, :, 2], [3 * 7 + 4, 3 * 5 + 4], rtol=1e-5)
    np.testing.assert_allclose(seen[2, :, 0], [9 + 4, 2 + 5], rtol=1e-5)
    assert log.dropped == {"without a time": 0, "without features": 0, "repeated": 0, "in blocks that are not full": 2}


def test_short_blocks_and_the_counts_of_the_day_after(folder: Path) -> None:
    log = load_kuairec(folder, size=2, keep_short=True)
    assert log.candidates.tolist() == [[True, True]] * 4 + [[True, False]] * 2
    assert log.days.tolist() == [20200705] * 4 + [20200706] * 2
    after = load_kuairec(folder, size=2, feature_lag=-1)
    assert after.dropped["without features"] == 4  # nothing is known of the 7th
    np.testing.assert_allclose(np.expm1(after.features[after.feature_rows])[0, 0, 0], 7 + 6, rtol=1e-5)


def test_the_cache_gives_the_same_log_until_a_file_changes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_kuairec(folder, size=2)
    assert len(list((folder / "cache").rglob("*"))) == 2  # a folder and one file
    with monkeypatch.context() as patch:
        patch.setattr(reader, "_read", None)
        again = load_kuairec(folder, size=2)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_equal(a, b)
    edit(folder / "small_matrix.csv", 2, "0.7", "0.8")
    assert load_kuairec(folder, size=2).rewards.max() == pytest.approx(np.log1p(0.9))
    assert load_kuairec(folder, size=2).rewards[1, 0] == pytest.approx(np.log1p(0.8))


def test_a_log_carries_the_unit_of_its_rewards(folder: Path) -> None:
    log = load_kuairec(folder, size=2)
    assert log.unit.name == "watch ratio"
    np.testing.assert_allclose(log.unit.from_reward(log.rewards)[0], [0.7, 0.5], rtol=1e-6)
    best = log.rewards.max(axis=1, keepdims=True)
    values, below_best = log.unit.convert(log.rewards, best - log.rewards)
    np.testing.assert_allclose(values[0], [0.7, 0.5], rtol=1e-6)
    np.testing.assert_allclose(below_best[0], [0.0, 0.2], atol=1e-6)
    plain = form_blocks(np.zeros(2, int), np.arange(2), np.array([0.25, 0.5]), size=2)
    assert (plain.unit.name, plain.unit.from_reward(plain.rewards).tolist()) == ("reward", [[0.25, 0.5]])


def test_any_order_of_the_lines_gives_the_same_log(folder: Path) -> None:
    expected = load_kuairec(folder, size=2, cache=False)
    table = pd.read_csv(folder / "small_matrix.csv")
    table.sample(frac=1, random_state=0).to_csv(folder / "small_matrix.csv", index=False)
    log = load_kuairec(folder, size=2, cache=False)
    for a, b in zip(expected, log, strict=True):
        np.testing.assert_equal(a, b)


def test_gaps_and_repetitions_are_left_out_and_counted(folder: Path) -> None:
    path = folder / "small_matrix.csv"
    lines = path.read_text().splitlines()
    lines[1] = "14,7,900,1000,,,,0.7"  # as published: neither time nor date nor timestamp
    path.write_text("\n".join([*lines, lines[3]]) + "\n")
    edit(folder / "item_daily_features.csv", 3, "7,9,", ",9,")  # an empty count is zero
    log = load_kuairec(folder, size=2)
    assert log.dropped == {"without a time": 1, "without features": 0, "repeated": 1, "in blocks that are not full": 1}
    assert np.isfinite(log.features).all()


BAD = [
    (1, "watch_ratio", "ratio", r"line 1: there is no column watch_ratio; it has user_id, .*published"),
    (5, "0.2", "NaN", "line 5, column watch_ratio: not a finite number from 0 on. Remove the line"),
    (4, "14,9,", "14,77,", "line 4, column video_id: a video that has no features on any day. Remove"),
    (6, "14,8,", "14,eight,", "line 6, column video_id: .*'eight'.* Correct or remove"),
    (6, "14,8,", "14,,", "line 6, column video_id: no value"),
    (3, ",20200705", "", "line 3: .*8 columns, got 7"),
    (3, "14,5,", "14,7,1,1000,x,20200705,1600000014.0,0.9\n14,5,", r"line 3, column timestamp: the same user, video "),
]
"""A change of a line of small_matrix.csv, and what is said of it."""


@pytest.mark.parametrize(("line", "old", "new", "message"), BAD)
def test_a_bad_line_is_refused_with_place_and_remedy(folder: Path, line: int, old: str, new: str, message: str) -> None:
    edit(folder / "small_matrix.csv", line, old, new)
    with pytest.raises(ValueError, match=rf"small_matrix\.csv, {message}"):
        load_kuairec(folder, size=2)
    assert not (folder / "cache").exists()


def test_other_bad_files_are_refused(folder: Path) -> None:
    path, daily = folder / "small_matrix.csv", folder / "item_daily_features.csv"
    whole = path.read_text()
    for content, message in (
        (whole.replace(",", ";"), "line 1: its columns are separated by ';'; separate them by commas"),
        (whole.splitlines()[0] + "\n", r"small_matrix\.csv has no rows"),
    ):
        path.write_text(content)
        with pytest.raises(ValueError, match=message):
            load_kuairec(folder, size=2)
    path.write_text(whole)
    with pytest.raises(ValueError, match="no block of 10 candidates is left of 10 rows"):
        load_kuairec(folder)
    edit(daily, 2, "20200704", "20201304")
    with pytest.raises(ValueError, match=r"item_daily_features\.csv, column date: 20201304 is not a day"):
        load_kuairec(folder, size=2)


def test_missing_files_come_with_directions(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no small_matrix.csv in .*curl -L -C - -o KuaiRec.zip https://"):
        load_kuairec(tmp_path)
    with pytest.raises(FileNotFoundError, match="SEQDEC_DATA"):
        load_random_exposures(tmp_path / "nothing.txt")


def test_the_subfolders_of_the_archive_are_looked_into(folder: Path) -> None:
    (folder / "KuaiRec" / "data").mkdir(parents=True)
    for name in ("small_matrix.csv", "item_daily_features.csv"):
        (folder / name).rename(folder / "KuaiRec" / "data" / name)
    assert len(load_kuairec(folder, size=2).rewards) == 4


def small_log(**changes: Any) -> Any:
    fields = {"user": [0, 0, 0, 1, 1], "item": [0, 1, 2, 0, 1], "reward": [0.1, 0.2, 0.3, 0.4, 0.5]}
    arrays = {name: np.array(values) for name, values in (fields | changes).items()}
    return form_blocks(**arrays, size=2, keep_short=True)


def test_blocks_of_rows_by_hand() -> None:
    rows = {
        "user": [7, 3, 3, 7, 7, 3],
        "item": [10, 20, 30, 40, 50, 60],
        "reward": [0.5, 0.25, 0.75, 1.0, 0.0, 2.0],
        "time": [1, 6, 2, 5, 3, 4],
        "day": [20200701, 20200703, 20200701, 20200702, 20200702, 20200702],
        "feature_row": [0, 1, 2, 2, 1, 0],
    }
    log = form_blocks(**rows, features=np.arange(6, dtype=np.float32).reshape(3, 2), size=2)
    assert log.labels["video"][log.ids["video"]].tolist() == [[10, 50], [30, 60]]
    assert log.labels["user"][log.ids["user"]].tolist() == [[7, 7], [3, 3]]
    assert log.rewards.tolist() == [[0.5, 0.0], [0.75, 2.0]] and log.days.tolist() == [20200701, 20200701]
    assert log.feature_rows.tolist() == [[0, 1], [2, 0]] and log.dropped == {"in blocks that are not full": 2}


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"user": np.zeros(4, int)}, ValueError, r"one entry for each row.*user \(4,\), item \(5,\)"),
        ({"reward": np.zeros(6)}, ValueError, r"reward \(6,\)"),
        ({"time": np.zeros(4)}, ValueError, r"time \(4,\)"),
        ({"day": np.full(1, 20200701)}, ValueError, r"day \(1,\)"),
        ({"reward": np.zeros((5, 1))}, ValueError, r"reward \(5, 1\)"),
        ({"user": [], "item": [], "reward": []}, ValueError, "at least one row"),
        ({"user": [0, 0, 0, 1, np.nan]}, ValueError, "user, row 4: it is missing"),
        ({"time": [0, 1, np.nan, 3, 4]}, ValueError, "time, row 2: it is missing"),
        (
            {"time": np.array(["2020-07-01", "NaT", "2020-07-01", "2020-07-02", "2020-07-02"], "M8[s]")},
            ValueError,
            "row 1",
        ),
        ({"day": [0.5] * 5}, TypeError, "day must hold integers yyyymmdd; got float64"),
        ({"reward": ["1"] * 5}, TypeError, "reward must hold numbers; got <U1"),
        ({"feature_row": [0.5] * 5}, TypeError, "feature_row must hold integers"),
    ],
)
def test_rows_that_do_not_fit_together_are_refused(changes: dict[str, Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        small_log(**changes)


def test_blocks_without_time_let_the_users_take_turns() -> None:
    log = small_log()
    assert log.ids["user"].tolist() == [[0, 0], [1, 1], [0, 0]]
    assert log.candidates.tolist() == [[True, True], [True, True], [True, False]]
    assert log.days is None


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ({"candidates": np.zeros((3, 2), bool)}, "block 0 has no candidate: leave it out"),
        ({"rewards": np.full((3, 2), np.nan)}, r"block 0 has a reward that is not a finite number.*\(3 such\)"),
        ({"ids": {"video": np.full((3, 2), 3)}}, "block 0 has an unknown video: ids must lie in 0 to 2"),
        ({"days": np.array([20200705, 20200707, 20200706])}, "block 2 is older than the one before it: sort"),
        ({"days": np.array([20200705])}, "days must be one for each of 3 blocks"),
        ({"candidates": np.ones((3, 3), bool)}, r"candidates must have the shape \(3, 2\)"),
        ({"rewards": np.zeros((0, 2))}, "at least one of each"),
        ({"features": np.zeros((4, 2)), "feature_rows": np.full((3, 2), 4)}, "has an invalid feature row"),
    ],
)
def test_a_log_that_cannot_be_replayed_is_refused(spoil: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_log(small_log()._replace(**spoil))


def test_random_exposures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kuairec" / "random_exposures.txt"
    path.parent.mkdir()
    path.write_text("".join(f"{user},{video},{0.5 * video}\n" for user in (4, 9) for video in range(12)))
    monkeypatch.setenv("SEQDEC_DATA", str(tmp_path))
    log = load_random_exposures()
    assert log.rewards.shape == (4, 10) and log.candidates.sum(1).tolist() == [10, 10, 2, 2]
    assert log.ids["user"][:, 0].tolist() == [0, 1, 0, 1] and log.features is None
    np.testing.assert_allclose(log.rewards[2, :2], np.log1p([5.0, 5.5]), rtol=1e-6)
    edit(path, 3, "1.0", "-1.0")
    with pytest.raises(ValueError, match=r"random_exposures.txt, line 3, column watch_ratio: not a finite number"):
        load_random_exposures()
    edit(path, 5, "4,4", "4,four")
    with pytest.raises(ValueError, match=r"random_exposures.txt, line 5, column video_id"):
        load_random_exposures()


def test_the_synthetic_files_have_the_schema_and_the_truth(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_kuairec(tmp_path / name, users=6, videos=50, seed=3)
    assert all(
        (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
        for file in ("small_matrix.csv", "item_daily_features.csv")
    )
    table = pd.read_csv(tmp_path / "one" / "small_matrix.csv")
    assert list(table) == [
        "user_id", "video_id", "play_duration", "video_duration", "time", "date", "timestamp", "watch_ratio",
    ]  # fmt: skip
    assert len(table) == 300 and 0 < table["timestamp"].isna().sum() < 30
    assert (table["timestamp"].isna() == table["date"].isna()).all()
    timed = table.dropna()
    assert (pd.to_datetime(timed["time"]).dt.strftime("%Y%m%d").astype(int) == timed["date"]).all()
    stamps = (pd.to_datetime(timed["time"]) - pd.Timestamp("1970-01-01 08:00")).dt.total_seconds()
    np.testing.assert_allclose(stamps, timed["timestamp"], atol=2e-3)
    np.testing.assert_allclose(table["play_duration"] / table["video_duration"], table["watch_ratio"], atol=1e-3)
    with pytest.raises(ValueError, match="needs users and videos; got 0 and 5"):
        write_kuairec(tmp_path, users=0, videos=5, seed=0)


def test_taste_and_drift_are_in_the_synthetic_log() -> None:
    log = synthetic_kuairec(users=60, videos=80, seed=1)
    assert log.name == "kuairec SYNTHETIC"
    truth = world(60, 80, seed=1)
    user, video = (log.labels[name][log.ids[name]].ravel() for name in ("user", "video"))
    match = np.einsum("ij,ij->i", truth.taste[user], truth.style[video])
    appeal = truth.appeal.mean(1)[video]
    reward = log.rewards.ravel()
    assert np.corrcoef(match, reward)[0, 1] > 0.3 and np.corrcoef(appeal, reward)[0, 1] > 0.3
    plain = synthetic_kuairec(users=60, videos=80, seed=1, match=0.0)
    reward = plain.rewards.ravel()
    user, video = (plain.labels[name][plain.ids[name]].ravel() for name in ("user", "video"))
    match = np.einsum("ij,ij->i", truth.taste[user], truth.style[video])
    assert abs(np.corrcoef(match, reward)[0, 1]) < 6 / np.sqrt(len(reward))
