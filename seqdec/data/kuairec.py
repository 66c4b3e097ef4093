"""KuaiRec: watch ratios of 1,411 users (small matrix) or 7,176 users (big matrix) of a video app.

Reads small_matrix.csv or big_matrix.csv (user_id, video_id, date, timestamp, watch_ratio) and item_daily_features.csv
(video_id, date, eight counts). Rewards are log(1 + watch_ratio), features of a video log(1 + count) of the day before.

Source: Gao, Li, Lei, Chen, Li, Jiang, He, Mao, Chua, KuaiRec: A Fully-observed Dataset and Insights for Evaluating
Recommender Systems, CIKM 2022. The replay in blocks of ten: Duran-Martin, Sanchez-Betancourt, Cartea, Murphy,
"Martingale Posterior Neural Networks for Fast Sequential Decision Making", section 5.3.
"""

import hashlib
import json
import os
import re
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seqdec.data.files import data_folder
from seqdec.data.recommender import RecommenderLog, RewardUnit, check_log, form_blocks
from seqdec.persistence import located, read_arrays, write_arrays

COUNTS = (
    "like_cnt",
    "share_cnt",
    "play_cnt",
    "comment_cnt",
    "complete_play_cnt",
    "follow_cnt",
    "reply_comment_cnt",
    "download_cnt",
)
"""Counts that become features, in their order."""

WATCH_RATIO = RewardUnit("watch ratio", np.log1p, np.expm1)
"""log(1 + watch_ratio)."""

FEATURES = "item_daily_features.csv"
SLICE = "random_exposures.txt"
SYNTHETIC = "SYNTHETIC.txt"
"""Marks generated files."""
_URL = "https://zenodo.org/records/18164998/files/KuaiRec.zip"
_CACHE_VERSION = 3
_MATRIX = {
    "user_id": "int32",
    "video_id": "int32",
    "date": "float64",  # "20200705.0" where the column has gaps
    "timestamp": "float64",
    "watch_ratio": "float32",
}
_DAILY = {"video_id": "int32", "date": "int32", **dict.fromkeys(COUNTS, "float32")}


class _Table(NamedTuple):
    """Columns of a CSV file; row i came from line i + first."""

    path: Path
    columns: dict[str, np.ndarray]
    first: int

    def refuse(self, wrong: np.ndarray, column: str, what: str, remedy: str = "Remove the line") -> None:
        if wrong.any():
            line = int(np.argmax(wrong)) + self.first
            count = f" ({int(wrong.sum()):,} such lines)" if wrong.sum() > 1 else ""
            raise ValueError(f"{self.path}, line {line}, column {column}: {what}{count}. {remedy}")

    def refuse_ratios(self) -> None:
        """Raise ValueError about the first watch ratio that is negative or not finite."""
        ratio = self.columns["watch_ratio"]
        self.refuse(~(np.isfinite(ratio) & (ratio >= 0)), "watch_ratio", "not a finite number from 0 on")


def load_kuairec(
    folder: str | os.PathLike[str],
    *,
    matrix: str = "small_matrix.csv",
    size: int = 10,
    keep_short: bool = False,
    feature_lag: int = 1,
    cache: bool = True,
) -> RecommenderLog:
    """The log in the CSV files of a folder, or of its subfolder data or KuaiRec/data.

    Rows without time or features and exact duplicates are counted in `dropped`. An empty count is 0. The cache depends
    on the files' names, sizes and times; a damaged one is replaced with a warning. Logs of `write_kuairec` have
    SYNTHETIC in their name.

    Args:
        folder: folder with the files.
        matrix: "small_matrix.csv" or "big_matrix.csv".
        size: candidates in a block, a user's next videos.
        keep_short: keep a user's last, shorter block.
        feature_lag: 1: counts of the day before; -1: of the day after, unknown then, as in published code.
        cache: read and write the cache.

    Raises:
        FileNotFoundError: a missing file.
        ValueError: another form, naming file, line, column and remedy.
    """
    import pooch

    home = located(folder)
    paths = [_find(home, name) for name in (matrix, FEATURES)]
    stats = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    key = json.dumps([_CACHE_VERSION, stats, size, keep_short, feature_lag])
    name = f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.safetensors"
    cached = Path(pooch.os_cache("seqdec")) / "kuairec" / name
    log = _load(cached) if cache and cached.is_file() else None
    if log is None:
        rows, daily = _read(paths[0], _MATRIX), _read(paths[1], _DAILY)
        log = _join(rows, daily, size, keep_short, feature_lag)
        if cache:
            _save(log, cached)
    return log._replace(name="kuairec SYNTHETIC") if (paths[0].parent / SYNTHETIC).exists() else log


def _find(folder: Path, name: str) -> Path:
    for place in (folder, folder / "data", folder / "KuaiRec" / "data"):
        if (place / name).is_file():
            return place / name
    raise FileNotFoundError(
        f"no {name} in {folder}: get KuaiRec.zip (432 MB) with  curl -L -C - -o KuaiRec.zip {_URL}  (repeat it to "
        f"resume), unzip it, and pass the folder KuaiRec/data"
    )


def _read(path: Path, types: dict[str, str], *, header: bool = True) -> _Table:
    import pyarrow as pa
    from pyarrow import csv

    from seqdec.progress import bar

    if header:
        _check_header(path, types)
    convert = csv.ConvertOptions(column_types=types, include_columns=list(types))
    names = None if header else list(types)
    reading = csv.ReadOptions(
        use_threads=False, block_size=2**24, column_names=names
    )  # errors of one thread have lines
    chunks: dict[str, list[np.ndarray]] = {name: [] for name in types}
    size, first = path.stat().st_size, 1 + header
    try:
        with (
            bar(size, path.name, "B", unit_scale=True, leave=False) as shown,
            path.open("rb") as file,  # pyarrow takes no path that is not UTF-8
            csv.open_csv(file, read_options=reading, convert_options=convert) as reader,
        ):
            for batch in reader:
                for name in types:
                    column = batch.column(name)
                    if pa.types.is_integer(column.type) and column.null_count:
                        line = first + sum(map(len, chunks[name])) + int(np.argmax(column.is_null().to_numpy(False)))
                        raise ValueError(f"{path}, line {line}, column {name}: no value. Remove the line")
                    chunks[name].append(column.to_numpy(zero_copy_only=False))
                shown.update(min(batch.nbytes, size - shown.n))
    except (pa.ArrowException, UnicodeDecodeError, KeyError) as error:
        raise ValueError(_explain(path, list(types), str(error))) from error
    columns = {}
    for name in types:  # one column at a time, to free its chunks before the next
        columns[name] = np.concatenate(chunks.pop(name)) if chunks[name] else np.empty(0)
    if not len(next(iter(columns.values()))):
        raise ValueError(f"{path} has no rows: copy it again")
    return _Table(path, columns, first)


def _check_header(path: Path, types: dict[str, str]) -> None:
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        header = file.readline().strip()
    names = [name.strip().strip('"') for name in header.split(",")]
    if len(names) == 1:
        found = next((mark for mark in ";\t|" if mark in header), None)
        problem = f"its columns are separated by {found!r}" if found else f"it has one column, {header[:40]!r}"
        raise ValueError(f"{path}, line 1: {problem}; separate them by commas, as published")
    missing = [name for name in types if name not in names]
    if missing:
        raise ValueError(
            f"{path}, line 1: there is no column {', '.join(missing)}; it has {', '.join(names)}. Copy the published "
            "file again, or give the columns their published names"
        )


def _explain(path: Path, names: list[str], error: str) -> str:
    """Arrow's error message with file, line, column and remedy."""
    line, place = re.search(r"Row #(\d+)", error), re.search(r"column #(\d+)", error)
    reason = error.rsplit("error", 1)[-1].strip(" :")
    where = f"{path}, line {line[1] if line else 'unknown'}"
    if place and int(place[1]) < len(names):
        where += f", column {names[int(place[1])]}"
    return f"{where}: {reason}. Correct or remove the line, or copy the published file again"


def _join(rows: _Table, daily: _Table, size: int, keep_short: bool, feature_lag: int) -> RecommenderLog:
    user, video = rows.columns["user_id"], rows.columns["video_id"]
    rows.refuse_ratios()
    ratio, time, date = (rows.columns.pop(name) for name in ("watch_ratio", "timestamp", "date"))
    known = np.unique(daily.columns["video_id"])
    remedy = f"Remove the line, or add the video to {daily.path.name}"
    rows.refuse(~np.isin(video, known), "video_id", "a video that has no features on any day", remedy)

    timed = np.isfinite(time) & np.isfinite(date)
    day = np.where(timed, date, 0).astype(np.int32)
    features, feature_row = _look_up(daily, video, day, feature_lag)
    kept = np.flatnonzero(timed & (feature_row >= 0))
    dropped = {"without a time": int((~timed).sum()), "without features": int((timed & (feature_row < 0)).sum())}
    fresh = _without_repetitions(rows, kept, time, ratio)
    dropped["repeated"] = len(kept) - len(fresh)
    try:
        return form_blocks(
            user[fresh],
            video[fresh],
            WATCH_RATIO.to_reward(ratio[fresh]),
            time=time[fresh],
            day=day[fresh],
            features=features,
            feature_row=feature_row[fresh],
            size=size,
            keep_short=keep_short,
            name="kuairec",
            unit=WATCH_RATIO,
            dropped=dropped,
        )
    except ValueError as error:
        raise ValueError(f"{rows.path}, columns user_id, date and timestamp: {error}") from error


def _look_up(daily: _Table, video: np.ndarray, day: np.ndarray, lag: int) -> tuple[np.ndarray, np.ndarray]:
    """(features (m, 8), row of each video's features on its day or -1)."""
    dates, inverse = np.unique(daily.columns["date"], return_inverse=True)
    shifted = np.array([_shift(int(date), lag, daily.path) for date in dates])
    key = daily.columns["video_id"].astype(np.int64) * 10**8 + shifted[inverse]
    order = np.argsort(key, kind="stable")
    key = key[order]
    wanted = video.astype(np.int64) * 10**8 + day
    place = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
    found = np.where(key[place] == wanted, place, -1).astype(np.int32)
    counts = np.stack([daily.columns[name][order] for name in COUNTS], axis=1)
    return np.log1p(np.maximum(np.nan_to_num(counts), 0)), found


def _shift(date: int, days: int, path: Path) -> int:
    text = str(date)
    try:
        moved = np.datetime64(f"{text[:4]}-{text[4:6]}-{text[6:]}") + np.timedelta64(days, "D")
    except ValueError as error:
        raise ValueError(f"{path}, column date: {date} is not a day; write it as yyyymmdd") from error
    return int(str(moved).replace("-", ""))


def _without_repetitions(rows: _Table, kept: np.ndarray, time: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    """`kept` without duplicates of user, video and time; their watch ratios must agree."""
    user, video = rows.columns["user_id"], rows.columns["video_id"]
    order = kept[np.lexsort((kept, video[kept], time[kept], user[kept]))]
    same = np.ones(len(order) - 1, bool)
    for column in (user, video, time):
        same &= np.diff(column[order]) == 0
    twice, once = order[1:][same], order[:-1][same]
    conflict = np.zeros(len(user), bool)
    conflict[twice[ratio[twice] != ratio[once]]] = True
    what = "the same user, video and timestamp as in another line, but another watch_ratio"
    rows.refuse(conflict, "timestamp", what, "Keep one of the two lines")
    return order[np.concatenate([[True], ~same])]


def load_random_exposures(path: str | os.PathLike[str] | None = None, *, size: int = 10) -> RecommenderLog:
    """The slice random_exposures.txt: user_id, video_id, watch_ratio, no header, time or features.

    Read from `path`, by default from $SEQDEC_DATA/kuairec. Blocks are a user's next `size` videos, or fewer at the end.
    Raises FileNotFoundError, and ValueError naming line and column.
    """
    file = (data_folder("kuairec") or located("kuairec")) / SLICE if path is None else located(path)
    if not file.is_file():
        raise FileNotFoundError(
            f"no {file}: set the environment variable SEQDEC_DATA to a folder and put {SLICE} into its subfolder "
            "kuairec"
        )
    table = _read(file, {"user_id": "int32", "video_id": "int32", "watch_ratio": "float64"}, header=False)
    table.refuse_ratios()
    user, video, ratio = table.columns.values()
    name = "kuairec random exposures"
    rewards = WATCH_RATIO.to_reward(ratio)
    return form_blocks(user, video, rewards, size=size, keep_short=True, name=name, unit=WATCH_RATIO)


def _save(log: RecommenderLog, path: Path) -> None:
    arrays = {field: value for field, value in log._asdict().items() if isinstance(value, np.ndarray)}
    for field in ("ids", "labels"):
        arrays |= {f"{field}.{name}": value for name, value in getattr(log, field).items()}
    write_arrays(path, arrays, {"name": log.name, "dropped": dict(log.dropped)})


def _load(path: Path) -> RecommenderLog | None:
    try:
        parts, facts = read_arrays(path)
    except ValueError as error:
        warnings.warn(f"the cache is made anew from the CSV files: {error}", RuntimeWarning, stacklevel=3)
        return None
    nested = {
        field: {key.split(".")[1]: value for key, value in parts.items() if key.startswith(f"{field}.")}
        for field in ("ids", "labels")
    }
    others = {*nested, *facts, "unit"}
    plain = {field: parts.get(field) for field in RecommenderLog._fields if field not in others}
    return check_log(RecommenderLog(**nested, **plain, **facts, unit=WATCH_RATIO))  # pyright: ignore[reportArgumentType]
