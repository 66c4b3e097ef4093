"""Small files in the formats of the published tables and logs, filled at random."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd

OCCUPATIONS = [f"Job-{i}" for i in range(14)]


def write_tables(folder: Path) -> None:
    """The seven tables of `seqdec.data.tabular`."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    letters = rng.choice(list("abcd"), (60, 22))
    labels = rng.choice(["e", "p"], 60)
    _lines(folder / "agaricus-lepiota.data", ",", np.column_stack([labels, letters]))
    _lines(folder / "adult.data", ", ", _people(rng))
    classes = np.arange(70) % 7 + 1
    numbers = np.column_stack([rng.integers(-90, 90, (70, 9)), classes])
    _lines(folder / "shuttle.trn", " ", numbers)
    forest = np.column_stack([rng.integers(0, 300, (70, 54)), classes])
    _lines(folder / "covtype.data", ",", forest)
    (folder / "covtype.data.gz").write_bytes(gzip.compress((folder / "covtype.data").read_bytes()))
    names = ["caseid", "dOccup", *(f"iCode{i}" for i in range(67))]
    codes = np.column_stack([np.arange(45), np.arange(45) % 9, rng.integers(0, 3, (45, 67))])
    pd.DataFrame(codes, columns=names).to_csv(folder / "USCensus1990.data.txt", index=False)
    header = ",".join(f"S{i}" for i in range(21))
    np.savetxt(folder / "raw_stock_contexts", rng.normal(size=(50, 21)), header=header, comments="")
    np.save(folder / "jester_data_40jokes_19181users.npy", rng.uniform(-10, 10, (30, 40)))


def _people(rng: np.random.Generator) -> np.ndarray:
    """60 rows of adult.data, the first four of unknown occupation."""
    jobs = ["?"] * 4 + OCCUPATIONS * 4
    columns = [rng.choice(["one", "two", "?"], 60) for _ in range(15)]
    for column in (0, 2, 4, 10, 11, 12):
        columns[column] = rng.integers(1, 90, 60).astype(str)
    columns[6] = np.array(jobs)
    return np.column_stack(columns)


def _lines(path: Path, separator: str, rows: np.ndarray) -> None:
    path.write_text("".join(separator.join(map(str, row)) + "\n" for row in rows))


def write_open_bandit(folder: Path, *, rows: int = 400, items: int = 6, seed: int = 0) -> np.ndarray:
    """Both logs, every page with its three places; returns bts's probabilities averaged over time, (3, items).

    bts plays one law in the first half of the time and another in the second.
    """
    rng = np.random.default_rng(seed)
    laws = rng.dirichlet(np.full(items, 0.7), (2, 3)) * 0.9 + 0.1 / items
    for policy in ("random", "bts"):
        home = folder / f"{policy}_all"
        home.mkdir(parents=True)
        item_table = {"item_id": np.arange(items), "item_feature_0": rng.normal(size=items)}
        pd.DataFrame(item_table | {"item_feature_1": "x"}).to_csv(home / "item_context.csv")
        half, place = np.arange(rows) // 3 * 3 * 2 // rows, np.arange(rows) % 3
        law = np.full((rows, items), 1 / items) if policy == "random" else laws[half, place]
        item = (rng.random((rows, 1)) > law.cumsum(1)).sum(1).clip(max=items - 1)
        users = {f"user_feature_{i}": rng.choice(["a", "b", "c"], rows) for i in range(4)}
        affinities = {f"user-item_affinity_{i}": rng.integers(0, 2, rows).astype(float) for i in range(items)}
        times = pd.Timestamp("2019-11-24", tz="UTC") + pd.to_timedelta(np.arange(rows) // 3 * 7, unit="s")
        columns = {
            "timestamp": times.astype(str),
            "item_id": item,
            "position": place + 1,
            "click": (rng.random(rows) < 0.1 + 0.1 * item).astype(int),
            "propensity_score": law[np.arange(rows), item],
        }
        pd.DataFrame(columns | users | affinities).to_csv(home / "all.csv")
    return laws.mean(0)
