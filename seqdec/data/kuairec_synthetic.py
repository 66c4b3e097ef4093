r"""SYNTHETIC logs in KuaiRec's published CSV form.

Every user sees every video once, at a random time in 63 days. With factors p_u of users and g_v of videos, both in R^2,
day t and N(0, 1) noise e,

    appeal_v(t)  = 0.8 quality_v + drift_v(t)                  drift: a random walk over days, final deviation 0.5
    s            = appeal_v(t) + match p_u . g_v / sqrt 2 + generosity_u + day effect(t) - 0.3 log-length_v
    watch_ratio  = 2.2 sigmoid(s - 0.6) exp(0.45 e - 0.1)

Day effects are higher on weekends and some other days. Daily counts are Poisson with mean plays(t) times a rate; plays
are nearly independent of appeal, the other rates rise with it, with a random offset per video.

Of the variance of log(1 + watch_ratio), 28% is in videos, 3% in users, 30% in taste (`match=0`: none); in the real
random-exposure slice 36%, 3% and none measurable. 3% of the rows have no time, 1% of a video's days no features, 0.5%
of the counts are empty.
"""

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from seqdec.boundary import checks
from seqdec.data.kuairec import COUNTS, FEATURES, SYNTHETIC, load_kuairec
from seqdec.data.recommender import RecommenderLog
from seqdec.persistence import check_writable, located, write_file

if TYPE_CHECKING:
    import pyarrow as pa

_FIRST_DAY = np.datetime64("2020-07-05")
_DAYS = 63
_FACTORS = 2
_USERS_AT_ONCE = 256
# Mean of each count per play, and the slope of its logarithm in appeal.
_RATES = {
    "like_cnt": (0.03, 0.6),
    "share_cnt": (0.004, 0.4),
    "comment_cnt": (0.006, 0.3),
    "complete_play_cnt": (0.3, 0.5),
    "follow_cnt": (0.003, 0.5),
    "reply_comment_cnt": (0.002, 0.2),
    "download_cnt": (0.002, 0.3),
}


class World(NamedTuple):
    """Latent factors of users, videos and days."""

    taste: np.ndarray
    """(users, 2)"""
    generosity: np.ndarray
    """(users,)"""
    style: np.ndarray
    """(videos, 2)"""
    appeal: np.ndarray
    """(videos, days) quality and drift"""
    plays: np.ndarray
    """(videos, days) expected plays"""
    length: np.ndarray
    """(videos,) milliseconds"""
    day_effect: np.ndarray
    """(days,)"""


def world(users: int, videos: int, *, match: float = 1.0, seed: int) -> World:
    """Latent factors of a synthetic log."""
    draw = np.random.default_rng([checks.seed("seed", seed), 0])
    quality = draw.normal(size=videos)
    drift = np.cumsum(draw.normal(scale=0.5 / _DAYS**0.5, size=(videos, _DAYS)), axis=1)
    audience = draw.normal(scale=1.2, size=(videos, 1)) + 0.3 * quality[:, None]
    audience = audience + np.cumsum(draw.normal(scale=0.15, size=(videos, _DAYS)), axis=1)
    weekend = np.isin((_FIRST_DAY.astype(int) + 3 + np.arange(_DAYS)) % 7, (5, 6))
    return World(
        match**0.5 * draw.normal(size=(users, _FACTORS)),
        draw.normal(scale=0.3, size=users),
        match**0.5 * draw.normal(size=(videos, _FACTORS)),
        0.8 * quality[:, None] + drift,
        300 * np.exp(audience),
        np.exp(draw.normal(np.log(12_000), 0.6, size=videos)),
        0.15 * weekend + draw.normal(scale=0.1, size=_DAYS),
    )


def write_kuairec(folder: str | os.PathLike[str], *, users: int, videos: int, match: float = 1.0, seed: int) -> None:
    """Write small_matrix.csv (users * videos rows) and item_daily_features.csv of a synthetic world into `folder`.

    Deterministic; memory does not grow with users. SYNTHETIC.txt marks the log.

    Raises ValueError for fewer than one user or video, OSError if not writable.
    """
    from pyarrow import csv

    if users < 1 or videos < 1:
        raise ValueError(f"a log needs users and videos; got {users} and {videos}")
    folder, seed = located(folder), checks.seed("seed", seed)
    check_writable(folder)
    truth, matrix = world(users, videos, match=match, seed=seed), folder / "small_matrix.csv"
    matrix.unlink(missing_ok=True)  # so that it never stands beside the features of another log
    origin = f"Written by seqdec.data.write_kuairec(users={users}, videos={videos}, match={match}, seed={seed})."
    write_file(folder / SYNTHETIC, lambda path: path.write_text(f"{origin}\nNo user has seen any of this.\n"))
    schema = _rows(truth, range(1), seed).schema

    def write_features(path: Path) -> None:
        with path.open("wb") as file:  # pyarrow takes no path that is not UTF-8
            csv.write_csv(_daily(truth, seed), file)

    def write(path: Path) -> None:
        with path.open("wb") as file, csv.CSVWriter(file, schema) as writer:
            for start in range(0, users, _USERS_AT_ONCE):
                writer.write_table(_rows(truth, range(start, min(users, start + _USERS_AT_ONCE)), seed))

    write_file(folder / FEATURES, write_features)
    write_file(matrix, write)


def synthetic_kuairec(
    *, users: int = 420, videos: int = 500, match: float = 1.0, seed: int = 0, keep_short: bool = False
) -> RecommenderLog:
    """A synthetic log, by default of some 20,000 blocks. `keep_short` as in `load_kuairec`."""
    with tempfile.TemporaryDirectory() as folder:
        write_kuairec(folder, users=users, videos=videos, match=match, seed=seed)
        return load_kuairec(folder, keep_short=keep_short, cache=False)


def _rows(truth: World, users: range, seed: int) -> "pa.Table":
    import pyarrow as pa

    videos = len(truth.length)
    parts = [_of_user(truth, user, np.random.default_rng([seed, 1, user])) for user in users]
    video, seconds, ratio, missing = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    user = np.repeat(np.array(users, np.int32), videos)
    length = truth.length[video].round()
    stamp = _FIRST_DAY.astype("datetime64[ms]") + (1000 * seconds).astype("timedelta64[ms]")
    date = np.array([int(day.replace("-", "")) for day in (_FIRST_DAY + np.arange(_DAYS)).astype(str)])
    unix = stamp.astype(np.int64) / 1000 - 8 * 3600  # dates are in UTC+8
    return pa.table(
        {
            "user_id": user,
            "video_id": video.astype(np.int32),
            "play_duration": (ratio * length).round().astype(np.int64),
            "video_duration": length.astype(np.int64),
            "time": pa.array(stamp, mask=missing),
            "date": pa.array(date[(seconds // 86400).astype(int)].astype(float), mask=missing),
            "timestamp": pa.array(unix, mask=missing),
            "watch_ratio": ratio,
        }
    )


def _of_user(truth: World, user: int, draw: np.random.Generator) -> tuple[np.ndarray, ...]:
    """(videos by time, seconds since the first day, watch ratios, whether times are missing)."""
    videos = len(truth.length)
    seconds = np.sort(draw.uniform(0, 86400 * _DAYS, size=videos)).round(3)
    seconds = np.minimum(seconds, 86400 * _DAYS - 1)
    video, day = draw.permutation(videos), (seconds // 86400).astype(int)
    length = np.log(truth.length[video] / 12_000)
    score = (
        truth.appeal[video, day]
        + truth.style[video] @ truth.taste[user] / _FACTORS**0.5
        + truth.generosity[user]
        + truth.day_effect[day]
        - 0.3 * length
    )
    noise = np.exp(0.45 * draw.normal(size=videos) - 0.1)
    return video, seconds, 2.2 / (1 + np.exp(0.6 - score)) * noise, draw.uniform(size=videos) < 0.03


def _daily(truth: World, seed: int) -> "pa.Table":
    """Counts of every video on every day, and on the day before the first one."""
    import pyarrow as pa

    draw = np.random.default_rng([seed, 2])
    videos = len(truth.length)
    days = np.concatenate([[0], np.arange(_DAYS)])
    appeal, plays = truth.appeal[:, days], draw.poisson(truth.plays[:, days])
    counts = {"play_cnt": plays}
    for name, (share, slope) in _RATES.items():
        own = draw.normal(scale=0.4, size=(videos, 1))
        rate = share * np.exp(slope * appeal + own)
        counts[name] = draw.poisson(np.minimum(rate, 1) * plays)
    dates = [int(day.replace("-", "")) for day in (_FIRST_DAY - 1 + np.arange(_DAYS + 1)).astype(str)]
    kept = draw.uniform(size=appeal.size) > 0.01
    table = {
        "video_id": np.repeat(np.arange(videos, dtype=np.int32), _DAYS + 1)[kept],
        "date": np.tile(np.array(dates, np.int32), videos)[kept],
    }
    for name in COUNTS:
        empty = draw.uniform(size=kept.sum()) < 0.005
        table[name] = pa.array(counts[name].ravel()[kept], mask=empty)
    return pa.table(table)
