"""Seconds and memory of an off-policy evaluation: all standard estimators, with 1,000 bootstrap samples.

    python benchmarks/ope_sizes.py [--rows 1000000] [--actions 10]
    python benchmarks/ope_sizes.py --rows 10000000 --parquet     from a file, in batches
    python benchmarks/ope_sizes.py --rows 10000000 --parts 10 [--workers 2]     from a folder of files, by sums

The files have five contexts; target and predicted rewards are functions of them.
"""

import resource
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
from harness import command
from pyarrow.parquet import ParquetWriter
from scipy.special import softmax

import seqdec.ope.partitions
from seqdec import ope
from seqdec.executors import Local

GROUP = 1_000_000
"""Rows of a row group."""


def draw(rows: int, actions: int, rng: np.random.Generator) -> ope.Log:
    """A log of uniform actions with five contexts."""
    return ope.make_log(
        action=rng.integers(actions, size=rows),
        reward=(rng.random(rows) < 0.3) * 1.0,
        propensity=np.full(rows, 1 / actions),
        context=rng.normal(size=(rows, 5)),
        num_actions=actions,
    )


def in_memory(rows: int, actions: int) -> None:
    """Print the times of a log in memory."""
    rng = np.random.default_rng(0)
    log = draw(rows, actions, rng)
    target = rng.dirichlet(np.ones(actions), size=rows)
    predicted = rng.random((rows, actions))
    start = time.perf_counter()
    table = ope.evaluate(log, target, predicted, seed=0)
    middle = time.perf_counter()
    ope.overlap(log, target)
    end = time.perf_counter()
    print(
        f"{rows:,} rows, {actions} actions: {len(table)} estimates {middle - start:.1f} s, overlap {end - middle:.1f} s"
    )


def from_file(path: Path, rows: int, actions: int) -> None:
    """Write a log and print the time in which it is evaluated."""
    rng = np.random.default_rng(0)
    slopes = rng.normal(size=(5, actions))
    writer = None
    for start in range(0, rows, GROUP):
        log = draw(min(GROUP, rows - start), actions, rng)
        table = pa.Table.from_pandas(log.replace(timestamp=log.timestamp + start).to_pandas(), preserve_index=False)
        writer = writer or ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()
    del log, table
    start = time.perf_counter()
    table = ope.evaluate(
        ope.scan_log(path, num_actions=actions),
        lambda log: softmax(log.context @ slopes, axis=1),
        lambda log: 1 / (1 + np.exp(-log.context @ slopes)),
        seed=0,
    )
    seconds = time.perf_counter() - start
    print(
        f"{rows:,} rows, {actions} actions from {path.stat().st_size / 2**20:.0f} MiB: {len(table)} estimates, "
        f"{seconds:.1f} s"
    )


def from_folder(folder: Path, rows: int, actions: int, parts: int, workers: int) -> None:
    """Write a log in files and print the time in which it is evaluated, by the policy in its columns."""
    rng = np.random.default_rng(0)
    slopes, names = rng.normal(size=(5, actions)), [f"probability_{action}" for action in range(actions)]
    for place in range(parts):
        log = draw(rows // parts, actions, rng)
        law = softmax(log.context @ slopes, axis=1).astype(np.float32)
        table = log.replace(timestamp=log.timestamp + place * len(log)).to_pandas()
        table.assign(**dict(zip(names, law.T, strict=True))).to_parquet(folder / f"{place:04}.parquet")
    del log, table, law
    with Local(workers) if workers else nullcontext() as executor:
        if executor is not None:
            list(executor.map(warm, range(workers)))
        start, own = time.perf_counter(), time.process_time()
        found = ope.compare(ope.scan_log(folder, num_actions=actions, executor=executor), names, seed=0)
        seconds, own = time.perf_counter() - start, time.process_time() - own
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    print(
        f"{rows:,} rows in {parts} files, {workers or 'no'} workers: {seconds:.1f} s, of which {own:.1f} s of this "
        f"process; {rows / seconds:,.0f} rows per second; largest worker {most:.2f} GiB; {found.verdict}"
    )


def warm(place: int) -> str:
    """Import what a worker needs."""
    time.sleep(1)
    return seqdec.ope.partitions.__name__


def main(rows: int = 1_000_000, actions: int = 10, parquet: bool = False, parts: int = 0, workers: int = 0) -> None:
    """Print times and memory, from a file of row groups if `parquet`, from a folder if `parts`."""
    if parts:
        with tempfile.TemporaryDirectory() as folder:
            from_folder(Path(folder), rows, actions, parts, workers)
    elif parquet:
        with tempfile.TemporaryDirectory() as folder:
            from_file(Path(folder) / "log.parquet", rows, actions)
    else:
        in_memory(rows, actions)
    print(f"largest resident memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB")


if __name__ == "__main__":
    command(main)
