"""Tables for contextual bandits, standardized, one-hot where categorical.

Sources: UCI machine learning repository; Riquelme, Tucker, Snoek, Deep Bayesian Bandits Showdown, ICLR 2018 (rewards,
stock prices); Goldberg et al., Eigentaste, 2001 (jester).
"""

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqdec.data.files import check_last_line, data_folder, downloader
from seqdec.persistence import located, reading

_CUT = 5.0
_OCCUPATIONS = 14
_RATING = 10.0


class Table(NamedTuple):
    """Contexts and rewards of every action."""

    features: np.ndarray
    """(n, d) float32, standardized."""
    rewards: np.ndarray
    """(n, k) float32, expected"""
    spread: np.ndarray | None = None
    """(n, k) float32: rewards are expected plus or minus this, equally probable; None is 0"""


class _Source(NamedTuple):
    name: str
    url: str
    sha256: str | None
    """None if unknown: downloads are checked by parsing"""


_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/"
_SHOWDOWN = "https://storage.googleapis.com/bandits_datasets/"
_ADULT = _Source(
    "adult.data", _UCI + "adult/adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"
)
_MUSHROOM = _Source(
    "agaricus-lepiota.data",
    _UCI + "mushroom/agaricus-lepiota.data",
    "e65d082030501a3ebcbcd7c9f7c71aa9d28fdfff463bf4cf4716a3fe13ac360e",
)
_STATLOG = _Source(
    "shuttle.trn", _SHOWDOWN + "shuttle.trn", "87b24ee9fb5137e1d417659cf905d84d0e15342bbaa60770f1ae83da1a38200a"
)
_COVERTYPE = _Source(
    "covtype.data.gz",
    "https://ndownloader.figshare.com/files/5976039",
    "614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771",
)
_STOCKS = _Source(
    "raw_stock_contexts",
    _SHOWDOWN + "raw_stock_contexts",
    "cf468e5aae150dfd5c6b096464cd11e85f8b01198f8e49bedb941948850a6315",
)
_CENSUS = _Source("USCensus1990.data.txt", _UCI + "census1990-mld/USCensus1990.data.txt", None)
_JESTER = _Source("jester_data_40jokes_19181users.npy", _SHOWDOWN + "jester_data_40jokes_19181users.npy", None)

Root = str | os.PathLike[str] | None


def load_mushroom(root: Root = None) -> Table:
    """Eat a mushroom (action 1) or not (0): 8,124 rows, 22 categorical features.

    Eating pays 5, or -35 with probability 1/2 if poisonous; not eating pays 0.

    All tables are read from `root`, by default $SEQDEC_DATA/tabular, else downloaded once and checked.
    FileNotFoundError has instructions, ValueError names file, line and remedy.
    """
    table = _read(_MUSHROOM, root, ",", 23)
    _refuse(~table[0].isin(["e", "p"]).to_numpy(), table, 0, "none of e, p", _MUSHROOM)
    poisonous = (table[0] == "p").to_numpy()
    pays = np.zeros((len(table), 2), np.float32)
    pays[:, 1] = np.where(poisonous, -15.0, 5.0)
    spread = np.zeros_like(pays)
    spread[:, 1] = np.where(poisonous, 20.0, 0.0)
    return Table(_features(table.drop(columns=0)), pays, spread)


def load_adult(root: Root = None) -> Table:
    """Guess a person's occupation: reward 1 if right, else 0; 30,718 people, 14 occupations.

    Features are the other columns, including income; "unknown" is a category.
    """
    table = _read(_ADULT, root, ",", 15)
    known = table[table[6] != "?"]
    if not 0 < known[6].nunique() <= _OCCUPATIONS:
        raise ValueError(
            f"{_ADULT.name}, column 7: it must have at most {_OCCUPATIONS} occupations; it has {known[6].nunique()}; "
            f"get {_ADULT.url}"
        )
    numbers = [0, 2, 4, 10, 11, 12]
    for column in numbers:
        known = known.assign(**{str(column): _numbers(known, column, _ADULT)})
    features = known.drop(columns=[6, *numbers])
    return Table(_features(features), _one_hot(known[6]))


def load_statlog(root: Root = None) -> Table:
    """Guess the state of a space shuttle's radiator: reward 1 if right, else 0; 43,500 rows, 9 numbers, 7 states.

    78% of the rows are of one state; the rarest has six.
    """
    table = _read(_STATLOG, root, " ", 10)
    numbers = _all_numbers(table, _STATLOG)
    return Table(standardize(numbers[:, :-1]), _one_hot(_classes(numbers[:, -1], 7, _STATLOG)))


def load_covertype(root: Root = None) -> Table:
    """Guess the forest on a piece of land: reward 1 if right, else 0; 581,012 rows, 54 numbers, 7 kinds of forest."""
    numbers = _all_numbers(_read(_COVERTYPE, root, ",", 55), _COVERTYPE)
    return Table(standardize(numbers[:, :-1]), _one_hot(_classes(numbers[:, -1], 7, _COVERTYPE)))


def load_census(root: Root = None, *, rows: int = 100_000) -> Table:
    """Guess a person's kind of occupation (dOccup): reward 1 if right, else 0; 9 kinds, 66 columns of codes.

    The first `rows` of 2,458,285 people in random order. No checksum.
    """
    table = _read(_CENSUS, root, ",", 69, header=True, rows=rows)
    if "dOccup" not in table:
        raise ValueError(f"{_CENSUS.name} has no column dOccup in its first line; get {_CENSUS.url}")
    codes = table.drop(columns=[name for name in ("caseid", "dOccup") if name in table])
    return Table(_features(codes), _one_hot(table["dOccup"]))


def load_stocks(root: Root = None) -> np.ndarray:
    """(3713, 21) float32: daily price moves of 21 stocks, as published."""
    return _all_numbers(_read(_STOCKS, root, " ", 21, skip=1), _STOCKS).astype(np.float32)


def load_jester(root: Root = None) -> Table:
    """Choose one of eight jokes for a person with known ratings of 32 others; reward: the rating, -10 to 10.

    19,181 people. No checksum.
    """
    path = _find(_JESTER, root)
    with reading(path, f"it is not an array of numbers; get {_JESTER.url}"):
        ratings = np.asarray(np.load(path, allow_pickle=False)).astype(np.float64, casting="safe")
    if ratings.ndim != 2 or ratings.shape[1] != 40 or not len(ratings) or not (np.abs(ratings) <= _RATING).all():
        raise ValueError(
            f"{path} must hold numbers from -{_RATING:g} to {_RATING:g} of shape (n, 40); got shape {ratings.shape}; "
            f"get {_JESTER.url}"
        )
    return Table(standardize(ratings[:, :32]), ratings[:, 32:].astype(np.float32))


def standardize(numbers: np.ndarray) -> np.ndarray:
    """(n, d) float32 of mean 0 and standard deviation 1, clipped at five; constant columns become 0."""
    std = numbers.std(axis=0)
    scaled = (numbers - numbers.mean(axis=0)) / np.where(std > 0, std, 1)
    return np.clip(scaled, -_CUT, _CUT).astype(np.float32)


def _features(table: Any) -> np.ndarray:
    import pandas as pd

    columns = (table[name] for name in table)
    parts = [
        column.to_numpy()[:, None] if pd.api.types.is_float_dtype(column) else _one_hot(column) for column in columns
    ]
    return standardize(np.concatenate(parts, axis=1))


def _one_hot(column: Any) -> np.ndarray:
    """(n,) -> (n, number of distinct values), sorted."""
    values, codes = np.unique(np.asarray(column), return_inverse=True)
    return np.eye(len(values), dtype=np.float32)[codes]


def _refuse(wrong: np.ndarray, table: Any, column: int, what: str, source: _Source) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"{source.name}, line {table.index[row]}, column {column + 1}: {table[column].iloc[row]!r} is {what}; "
            f"get {source.url}"
        )


def _numbers(table: Any, column: int, source: _Source) -> np.ndarray:
    import pandas as pd

    values: Any = pd.to_numeric(table[column], errors="coerce")
    values = np.asarray(values, np.float64)
    _refuse(~np.isfinite(values), table, column, "not a number", source)
    return values


def _all_numbers(table: Any, source: _Source) -> np.ndarray:
    return np.stack([_numbers(table, column, source) for column in table], axis=1)


def _classes(column: np.ndarray, count: int, source: _Source) -> np.ndarray:
    if set(np.unique(column)) != set(range(1, count + 1)):
        raise ValueError(
            f"{source.name}: the last column must have the classes 1 to {count}; it has "
            f"{np.unique(column)[: count + 1].tolist()}; get {source.url}"
        )
    return column


def _read(
    source: _Source,
    root: Root,
    separator: str,
    columns: int,
    *,
    header: bool = False,
    skip: int = 0,
    rows: int | None = None,
) -> Any:
    """The checked table in a text file, indexed by line, without leading spaces."""
    import pandas as pd

    path = _find(source, root)
    if path.suffix != ".gz":  # gzip has a checksum
        check_last_line(path, f"get {source.url}")
    settings: Any = {"header": 0 if header else None, "skiprows": skip, "nrows": rows, "dtype": str, "engine": "c"}
    try:
        table = pd.read_csv(path, sep=separator, skipinitialspace=True, keep_default_na=False, **settings)
    except Exception as error:  # of pandas, gzip or zlib
        raise ValueError(f"{path} cannot be read ({str(error).strip()}); get {source.url}") from error
    if table.shape[1] != columns:
        raise ValueError(
            f"{path}, line {1 + skip}: {table.shape[1]} columns where {columns} are expected, separated by "
            f"{separator!r}; is the separator another? Get {source.url}"
        )
    table.index += 1 + skip + header
    short = (table.isna() | (table == "")).to_numpy()  # pandas fills rows up
    if short.any():
        row = int(short.any(axis=1).argmax())
        raise ValueError(
            f"{path}, line {table.index[row]}: {columns - int(short[row].sum())} columns where {columns} are "
            f"expected; get {source.url}"
        )
    return table


def _find(source: _Source, root: Root) -> Path:
    folder = data_folder("tabular") if root is None else located(root)
    if folder is not None and (folder / source.name).is_file():
        return folder / source.name
    wanted = f"fetch {source.url} and put it, as {source.name}, into the folder tabular of $SEQDEC_DATA"
    if root is not None:
        raise FileNotFoundError(f"{folder} holds no {source.name}: {wanted}, or into {folder}")
    import pooch

    try:
        fetched = pooch.retrieve(
            source.url,
            source.sha256 and f"sha256:{source.sha256}",
            source.name,
            Path(pooch.os_cache("seqdec")) / "tabular",
            downloader=downloader(30.0),
        )
    except (ValueError, OSError) as error:
        raise FileNotFoundError(f"{source.name} cannot be downloaded ({error}): {wanted}") from error
    return Path(fetched)
