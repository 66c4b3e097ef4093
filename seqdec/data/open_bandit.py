"""Open Bandit Dataset: a fashion shop's recommendations, uniform or by Bernoulli Thompson sampling.

A row is one of three places of a page.

Source: Saito, Aihara, Matsutani, Narita, Open Bandit Dataset and Pipeline, NeurIPS 2021; https://research.zozo.com.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqdec.boundary.checks import TOLERANCE, choice
from seqdec.data.files import check_last_line, data_folder
from seqdec.persistence import located, reading

CAMPAIGNS = ("all", "men", "women")
"""Whose items were shown."""
_POLICIES = ("random", "bts")
_USER = tuple(f"user_feature_{i}" for i in range(4))
_NUMBERS = ("item_id", "position", "click", "propensity_score")
_PLACES = 3


class OpenBandit(NamedTuple):
    """The log of one policy, in the order of time."""

    context: np.ndarray
    """(n, d) float32 one-hot: place (3), then four user features"""
    item: np.ndarray
    """(n,) int64 from 0"""
    place: np.ndarray
    """(n,) int64 from 0, left to right"""
    click: np.ndarray
    """(n,) float64, 0 or 1"""
    propensity: np.ndarray
    """(n,) float64, of the item in this place"""
    timestamp: np.ndarray
    """(n,) datetime64[ns], UTC, increasing; places of one page are one nanosecond apart"""
    item_features: np.ndarray
    """(n, items, 2) float32: item_feature_0 as published, and the user's past clicks on the item"""


def load_open_bandit(
    policy: str = "random", root: str | os.PathLike[str] | None = None, *, campaign: str = "all"
) -> OpenBandit:
    """The log of a policy in a campaign.

    Args:
        policy: "random" or "bts".
        root: folder of the files as published or in package obp: random/all/all.csv (or random_all/...),
            random/all/item_context.csv, ...; None: $SEQDEC_DATA/open_bandit.
        campaign: one of `CAMPAIGNS`.

    Raises:
        FileNotFoundError: with instructions.
        ValueError: an unknown policy or campaign; or naming file, column, row and remedy.
    """
    choice("policy", policy, _POLICIES)
    choice("campaign", campaign, CAMPAIGNS)
    base = data_folder("open_bandit") if root is None else located(root)
    homes = [] if base is None else [base / f"{policy}_{campaign}", base / policy / campaign]
    path = next((home / f"{campaign}.csv" for home in homes if (home / f"{campaign}.csv").is_file()), None)
    if path is None:
        raise FileNotFoundError(
            f"no {policy}/{campaign}/{campaign}.csv in "
            f"{base or '$SEQDEC_DATA/open_bandit, for SEQDEC_DATA is not set'}: fetch the Open Bandit Dataset from "
            "https://research.zozo.com/data.html, or the folder obp/dataset/obd of "
            "https://github.com/st-tech/zr-obp, and put its folders random and bts into $SEQDEC_DATA/open_bandit"
        )
    folder = path.parent
    items = _read(folder / "item_context.csv", ["item_id", "item_feature_0"])
    affinities = [f"user-item_affinity_{i}" for i in range(len(items))]
    table = _in_time(_read(path, [*_NUMBERS, *affinities], ("timestamp", *_USER)), path)
    _check(table, items, path)
    numbers = items.sort_values("item_id")["item_feature_0"].to_numpy(np.float32)
    numbers = np.broadcast_to((numbers - numbers.mean()) / (numbers.std() or 1), (len(table), len(items)))
    place = table["position"].to_numpy(np.int64) - 1
    users = [_one_hot(np.unique(table[name], return_inverse=True)[1]) for name in _USER]
    return OpenBandit(
        context=np.concatenate([_one_hot(place, _PLACES), *users], axis=1),
        item=table["item_id"].to_numpy(np.int64),
        place=place,
        click=table["click"].to_numpy(np.float64),
        propensity=table["propensity_score"].to_numpy(np.float64).clip(max=1),
        timestamp=table["timestamp"].to_numpy(),
        item_features=np.stack([numbers, table[affinities].to_numpy(np.float32)], axis=2),
    )


def average_policy(log: OpenBandit) -> np.ndarray:
    """(3, items) the logging policy's probabilities, averaged over time, by place.

    Over the rows of item a, the mean of 1 / p_t(a) is one over the average of p_t(a):

        pi(a) = n_a / sum_{i: a_i = a} 1 / p_i,        0 for items never shown, then scaled to sum to 1

    One row of an item is enough if p_t(a) is constant.
    """
    shape = (_PLACES, log.item_features.shape[1])
    counts, inverses = np.zeros(shape), np.zeros(shape)
    np.add.at(counts, (log.place, log.item), 1.0)
    np.add.at(inverses, (log.place, log.item), 1 / log.propensity)
    mean = counts / np.where(inverses > 0, inverses, 1.0)
    return mean / mean.sum(axis=1, keepdims=True)


def _one_hot(codes: np.ndarray, size: int | None = None) -> np.ndarray:
    return np.eye(size or int(codes.max()) + 1, dtype=np.float32)[codes]


def _read(path: Path, numbers: list[str], others: tuple[str, ...] = ()) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}; put it beside the log, as published")
    import pandas as pd

    check_last_line(path, "get it as published")
    with reading(path, "get it as published"):
        table = pd.read_csv(path)
    missing = [name for name in (*others, *numbers) if name not in table]
    if missing:
        hint = (
            f"the only column is {table.columns[0][:40]!r}: is the separator a comma? " if table.shape[1] == 1 else ""
        )
        raise ValueError(f"{path} has no column {missing[0]}: {hint}get the file as published")
    found: Any = table.assign(**{name: pd.to_numeric(table[name], errors="coerce") for name in numbers})
    for name in (*numbers, *(user for user in _USER if user in others)):
        wrong = found[name].isna() | (found[name].abs() == np.inf if name in numbers else False)
        if wrong.any():
            row = int(wrong.to_numpy().argmax())
            raise ValueError(
                f"{path}, column {name}: {found[name].iloc[row]} at line {row + 2}, where a value is needed; get the "
                "file as published"
            )
    return found


def _in_time(table: Any, path: Path) -> Any:
    """The table sorted by time; places of a page are one nanosecond apart."""
    import pandas as pd

    times: Any = pd.to_datetime(table["timestamp"], utc=True, errors="coerce", format="ISO8601")
    if times.isna().any():
        row = int(times.isna().to_numpy().argmax())
        raise ValueError(f"{path}, column timestamp, row {row}: {table['timestamp'].iloc[row]!r} is not a date")
    instants = times.dt.tz_localize(None).astype("datetime64[ns]")
    table = table.assign(timestamp=instants + pd.to_timedelta(table["position"], unit="ns"))
    table = table.sort_values("timestamp", kind="stable", ignore_index=True)
    same = table["timestamp"].duplicated().to_numpy()
    if same.any():
        row = int(same.argmax())
        raise ValueError(
            f"{path}, column timestamp: {table['timestamp'].iloc[row]} occurs twice with position "
            f"{table['position'].iloc[row]}: drop the copy"
        )
    return table


def _check(table: Any, items: Any, path: Path) -> None:
    if sorted(items["item_id"]) != list(range(len(items))):
        raise ValueError(f"{path.parent / 'item_context.csv'}: item_id must count from 0; get the file as published")
    score = table["propensity_score"]
    for name, good, words in (
        ("item_id", table["item_id"].isin(items["item_id"]), "an item of item_context.csv"),
        ("position", table["position"].isin(range(1, _PLACES + 1)), "1, 2 or 3"),
        ("click", table["click"].isin((0, 1)), "0 or 1"),
        ("propensity_score", (score > 0) & (score <= 1 + TOLERANCE), "in (0, 1]"),
    ):
        if not good.all():
            row = int(good.to_numpy().argmin())
            raise ValueError(
                f"{path}, column {name}: {table[name].iloc[row]} at {table['timestamp'].iloc[row]} is not {words}; "
                "drop the row, or get the file as published"
            )
