"""A sweep on processes and on a Ray cluster, with a worker killed midway: wall time, cells run again, equal bytes.

    python benchmarks/sweep.py [local] [local-killed] [ray-killed] [--cells 200] [--workers 2]

The first sweep is undisturbed. In the others the process of a running cell gets SIGKILL when half of the cells are
done. Exits with 1 if a table differs from the first one in any byte. `pip install 'seqdec[ray]'` for Ray.
"""

import argparse
import collections
import contextlib
import io
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import pandas as pd

from seqdec.cli import main
from seqdec.commands import sweep

LOG = "SEQDEC_SWEEP_LOG"  # workers have all variables that begin like this
CONFIG = """
steps = 200
seeds = 4

[environments]
linear = {{ noise_std = {noises} }}

[agents]
linear = {{ policy = ["greedy", "epsilon_greedy", "thompson", "ucb", "epistemic_sampling"], half_life = [1e2, 1e3] }}
"""
run_cell = sweep.run_cell


def recorded_cell(cell: sweep.Cell, key: str) -> pd.DataFrame:
    """The same with a line in a file before and after it."""
    note(f"start {key} {os.getpid()}")
    table = run_cell(cell, key)
    note(f"end {key} {os.getpid()}")
    return table


def note(line: str) -> None:
    """Append a line to the log of the sweep, from any process."""
    with Path(os.environ[LOG]).open("a") as file:
        file.write(line + "\n")


def notes(log: Path) -> list[list[str]]:
    """The words of each line of the log."""
    return [line.split() for line in log.read_text().splitlines()] if log.exists() else []


def kill_one(log: Path, after: int, stop: threading.Event) -> None:
    """Kill the process of the cell that began last, once `after` cells have ended."""
    while not stop.wait(0.05):
        lines = notes(log)
        ended = {key for word, key, _ in lines if word == "end"}
        running = [int(pid) for word, key, pid in lines if word == "start" and key not in ended]
        if len(ended) >= after and running:
            os.kill(running[-1], signal.SIGKILL)
            return


def measure(name: str, config: Path, cells: int, workers: int, folder: Path) -> tuple[bytes, str]:
    """The bytes of the table, and a line that describes the sweep."""
    backend, _, killed = name.partition("-")
    log, out, stop = folder / f"{name}.log", folder / name, threading.Event()
    os.environ[LOG] = str(log)
    killer = threading.Thread(target=kill_one, args=(log, cells // 2, stop), daemon=True)
    if killed:
        killer.start()
    began = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        code = main(["sweep", str(config), "--backend", backend, "--workers", str(workers), "--out", str(out)])
    seconds = time.perf_counter() - began
    stop.set()
    if code:
        raise RuntimeError(f"{name} ended with {code}")
    starts = collections.Counter(key for word, key, _ in notes(log) if word == "start")
    again = sum(count - 1 for count in starts.values())
    return (out / "sweep.parquet").read_bytes(), f"{name}: {len(starts)} cells in {seconds:.0f} s, {again} run again"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("names", nargs="*", default=["local", "local-killed", "ray-killed"])
    parser.add_argument("--cells", type=int, default=200, help="a multiple of 10")
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    sweep.run_cell = recorded_cell
    tables = []
    with tempfile.TemporaryDirectory() as place:
        config = Path(place) / "sweep.toml"
        config.write_text(CONFIG.format(noises=[round(0.05 * (1 + i), 2) for i in range(asked.cells // 10)]))
        for name in asked.names:
            table, line = measure(name, config, asked.cells, asked.workers, Path(place))
            tables.append(table)
            print(f"{line}, bytes {'equal' if table == tables[0] else 'DIFFERENT'}", flush=True)
    sys.exit(len(set(tables)) > 1)
