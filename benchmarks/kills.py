"""Experiments killed at random moments and resumed, compared with uninterrupted ones.

    python benchmarks/kills.py [bandit] [recommender] [tabular] [bo] [--kills 20] [--seed 0]

A command runs in one folder; it is killed with SIGKILL at a random moment, resumed, killed again, and so on, until it
has been killed as often as asked for. Whenever it ends before it is killed, its folder is compared with that of an
uninterrupted run, and another run begins. All columns of all parquet files must be equal to the bit, except those that
hold times. Exits with 1 if any differs. Compiled programs are kept in a temporary folder.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

COMMANDS = {
    "bandit": "run digits --agents linear,lrkf,replay_adamw --steps 20000 --seeds 2 --checkpoint-every 1000",
    "recommender": "run kuairec --agents hilofi,linear --steps 4000 --checkpoint-every 200",
    "tabular": "run tabular --tables statlog --agents linear,hilofi --steps 5000 --seeds 2 --checkpoint-every 250",
    "bo": "run bo --functions branin,hartmann6 --methods auto,gp --runs 2 --evaluations 20",
}
TIMES = ("elapsed", "seconds", "seconds_per_1000_steps")


def start(arguments: list[str], folder: Path, cache: Path) -> subprocess.Popen[bytes]:
    """The command line in a process of its own."""
    code = "import sys; from seqdec.cli import main; sys.exit(main())"
    options = [*arguments, "--compilation-cache", str(cache)]
    with (folder.parent / f"{folder.name}.log").open("ab") as log:
        return subprocess.Popen([sys.executable, "-c", code, *options], stdout=log, stderr=log)


def differences(one: Path, other: Path) -> list[str]:
    """The files and columns in which two folders differ."""
    files = sorted(path.relative_to(one) for path in one.rglob("*.parquet"))
    if files != sorted(path.relative_to(other) for path in other.rglob("*.parquet")):
        return ["the names of the files"]
    found = []
    for name in files:
        left, right = pd.read_parquet(one / name), pd.read_parquet(other / name)
        for column in left.columns.union(right.columns):
            if column not in TIMES and not (column in left and column in right and left[column].equals(right[column])):
                found.append(f"{name}: {column}")
    return found


def campaign(command: str, kills: int, rng: random.Random, folder: Path) -> tuple[int, list[str]]:
    """Kill and resume runs of a command; returns how many ended, and all differences."""
    cache = folder / "cache"
    whole, duration = folder / "whole", 0.0
    for _ in range(2):  # the second with compiled programs, so that its time is that of the others
        began = time.perf_counter()
        if start([*command.split(), "--out", str(whole)], whole, cache).wait():
            raise RuntimeError((folder / "whole.log").read_text())
        duration = time.perf_counter() - began
    killed, ended, found = 0, 0, []
    while killed < kills or not ended:
        place = folder / f"run-{ended}"
        known = (place / "manifest.json").exists()
        arguments = ["run", "--resume", str(place)] if known else [*command.split(), "--out", str(place)]
        process = start(arguments, place, cache)
        try:
            code = process.wait(timeout=rng.uniform(0, duration) if killed < kills else None)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            killed += 1
            continue
        if code:
            raise RuntimeError((folder / f"{place.name}.log").read_text())
        found += differences(whole, place)
        ended += 1
    return ended, found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("names", nargs="*", default=list(COMMANDS))
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    failed = False
    for name in asked.names:
        with tempfile.TemporaryDirectory() as folder:
            rng = random.Random(f"{asked.seed} {name}")
            ended, found = campaign(COMMANDS[name], asked.kills, rng, Path(folder))
        print(
            f"{name}: killed {asked.kills} times, {ended} runs ended, {len(found)} columns differ {found}", flush=True
        )
        failed |= bool(found)
    sys.exit(failed)
