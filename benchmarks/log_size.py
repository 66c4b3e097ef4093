"""Bytes of a service's log for each decision and reward, before and after old ones are removed, and seconds of a check.

    python benchmarks/log_size.py
    python benchmarks/log_size.py --rows 1000000    # only the check, of so many rows

A decision has a key of 12 characters and one of four arms, by `linear`. The later half of the decisions stays.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

import seqdec
from seqdec.features import Categorical, Encoder, Numeric, Text
from seqdec.service import logs
from seqdec.service.database import FORMAT
from seqdec.service.sqlite import FILE
from seqdec.service.store import REPORTED, Entry, Store

ROWS = 8_000
COLUMNS = Encoder({"age": Numeric(40, 12), "city": Categorical(("Oslo", "Rome", "Turku")), "query": Text(32)})


def size(folder: Path) -> int:
    """Bytes of a log and its WAL."""
    return sum(path.stat().st_size for path in folder.glob(f"{FILE}*"))


def measured(name: str, space: Any, contexts: Any, encoder: Encoder | None = None) -> None:
    """A line of a log of ROWS such contexts, half of which are removed."""
    site = seqdec.core.Spaces(space, spaces.Discrete(4))
    with (
        tempfile.TemporaryDirectory() as home,
        seqdec.OnlineAgent("linear", site, seed=0, folder=home, encoder=encoder) as one,
    ):
        folder, sizes, began = Path(home), [size(Path(home))], []
        for half in range(2):
            began.append(time.time())
            made = one.decide_many(contexts, keys=[f"{half}{n:07}/req" for n in range(ROWS // 2)])
            one._store.settle_erasure()
            sizes.append(size(folder))
            one.learn_many([(decision.token, 1.0) for decision in made])
            one._store.settle_erasure()
            sizes.append(size(folder))
        decision = (sizes[1] - sizes[0] + sizes[3] - sizes[2]) / ROWS
        reward = (sizes[2] - sizes[1] + sizes[4] - sizes[3]) / ROWS
        start = time.perf_counter()
        removed = one.compact(time.time() - began[1])
        seconds = time.perf_counter() - start
        print(
            f"{name}: {decision:.0f} bytes a decision, {reward:.0f} a reward; {sizes[4] / 1e6:.2f} MB, "
            f"{size(folder) / 1e6:.2f} MB without {removed:,} of {ROWS:,} ({seconds:.1f} s)",
            flush=True,
        )


def checked(rows: int) -> None:
    """A log of eight numbers and a reward each."""
    random, step = np.random.default_rng(0), 5_000
    with tempfile.TemporaryDirectory() as home:
        store = Store(Path(home))
        store.describe({"format": FORMAT, "record": [["context", "<f4", [8]]]}, {})
        for start in range(0, rows, step):
            contexts = random.normal(size=(step, 8)).astype(np.float32)
            store.append_decisions(
                [Entry(bytes(8), x.tobytes(), b"\1" * 4, 0, 0.5, f"{start + n:08}/req") for n, x in enumerate(contexts)]
            )
            store.append_rewards([(one, 1.0, REPORTED) for n in range(step) if (one := store.find(start + n + 1))])
        store.close()
        for name in ("integrity_check", "quick_check"):
            with logs.read_only(Path(home, FILE)) as database:
                start = time.perf_counter()
                database.execute(f"PRAGMA {name}(1)")
                print(f"{rows:,} rows, {size(Path(home)) / 1e6:.0f} MB: {name} {time.perf_counter() - start:.1f} s")
        with logs.read_only(Path(home, FILE)) as database:
            start = time.perf_counter()
            database.check()
            print(f"all of `backup`'s check: {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int)
    asked = parser.parse_args()
    if asked.rows:
        checked(asked.rows)
    else:
        random = np.random.default_rng(0)
        for width in (5, 8, 64):
            x = random.normal(size=(ROWS // 2, width)).astype(np.float32)
            measured(f"{width} numbers", spaces.Box(-9, 9, (width,)), x)
        words = ["cheap", "flights", "hotels", "to", "from", "rome", "oslo", "near", "the", "sea"]
        rows = [
            {"age": float(age), "city": str(city), "query": " ".join(random.choice(words, 3))}
            for age, city in zip(
                random.normal(40, 12, ROWS // 2), random.choice(["Oslo", "Rome", "Lima"], ROWS // 2), strict=True
            )
        ]
        measured(f"columns, {len(COLUMNS.names)} features", COLUMNS.space, rows, COLUMNS)
