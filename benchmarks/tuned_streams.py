"""`auto` without a setting against learners of other libraries with the best of six settings, on streams.py.

    pip install vowpalwabbit mabwiser
    python benchmarks/tuned_streams.py results.csv [--streams STREAM ...] [--families FAMILY ...] [--workers 16]

For each stream and family the setting with the least mean regret on seeds 100 and 101 is played with seeds 0 to 9, and
appended to the table as a row: stream, family, setting, regret with its 95% interval, microseconds of a step. Rows that
the table has are not computed again. Families that keep a matrix of all features are left out where there are more than
256 of them.
"""

import argparse
import itertools
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import plain
import streams
from tqdm import tqdm

from seqdec.statistics import mean_and_margin

TRIED, PLAYED = range(100, 102), range(10)
WIDE = 256


def grid(form: str, *values: tuple) -> tuple[str, ...]:
    """A setting for each combination of values."""
    return tuple(form.format(*each) for each in itertools.product(*values))


_RATES = ("-l 0.5", "-l 0.1", "-l 0.1 --power_t 0")  # of Vowpal Wabbit
_COSTS = ("mtr", "dr")  # how it estimates costs
_RIDGE = ((0.1, 0.3, 1), (0, 1))  # width of exploration, whether features are standardized
FAMILIES: dict[str, tuple[str, ...]] = {
    "auto": ("auto",),
    "linear": ("linear",),
    "VW epsilon": grid("vw:--epsilon 0.05 {} --cb_type {}", _RATES, _COSTS),
    "VW bag": grid("vw:--bag 5 {} --cb_type {}", _RATES, _COSTS),
    "VW squarecb": grid("vw:--squarecb {} --gamma_scale {}", _RATES, (10, 100)),
    "MABWiser LinUCB": grid("mabwiser:LinUCB:alpha={}:scale={}", *_RIDGE),
    "MABWiser LinTS": grid("mabwiser:LinTS:alpha={}:scale={}", *_RIDGE),
    "discounted LinUCB": grid("linucb:{}:{}", (0.3, 1, 3), (200, 1000)),
    "Beta TS": ("beta",),
}
BERNOULLI = ("half", "rare")  # without contexts


class Row(NamedTuple):
    """One stream and family."""

    stream: str
    family: str
    setting: str
    regret: float
    margin: float
    worst: float
    microseconds: float


def entries(stream: str) -> list[str]:
    """Families that can play a stream."""
    wide = streams.STREAMS[stream].features > WIDE
    return [
        family
        for family in FAMILIES
        if not (wide and family in ("linear", "MABWiser LinUCB", "MABWiser LinTS", "discounted LinUCB"))
        and (stream in BERNOULLI or family != "Beta TS")
    ]


def played(stream: str, family: str) -> Row:
    """The best setting of the family, played."""
    env, steps = streams.environment(stream), streams.STREAMS[stream].steps
    settings, library = FAMILIES[family], FAMILIES[family][0].partition(":")[0] in streams.LIBRARIES
    met = {seeds: plain.worlds(env, steps, seeds) for seeds in (TRIED, PLAYED)} if library else {}

    def regret_of(setting, seeds):
        if not library:
            return streams.regret_of(setting, env, steps, seeds)
        kind, _, options = setting.partition(":")
        return plain.peer_regret(streams.LIBRARIES[kind](options), met[seeds], seeds)

    best = settings[0]
    if len(settings) > 1:
        best = min(settings, key=lambda each: regret_of(each, TRIED)[0].sum(1).mean())
    regret, seconds = regret_of(best, PLAYED)
    mean, margin = mean_and_margin(regret.sum(1))
    return Row(
        stream, family, best, float(mean), float(margin), float(regret.sum(1).max()), 1e6 * seconds / regret.size
    )


def main(asked: argparse.Namespace) -> None:
    """Append the rows that are missing."""
    rows = [Row(*each) for each in pd.read_csv(asked.table).itertuples(index=False)] if asked.table.exists() else []
    have = {(row.stream, row.family) for row in rows}
    missing = [
        (stream, family)
        for stream in asked.streams or streams.STREAMS
        for family in entries(stream)
        if family in (asked.families or FAMILIES) and (stream, family) not in have
    ]
    missing.sort(key=lambda each: ("MABWiser" not in each[1], -streams.STREAMS[each[0]].steps))
    os.environ |= {"OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "JAX_PLATFORMS": "cpu"}
    with ProcessPoolExecutor(asked.workers, multiprocessing.get_context("spawn")) as pool:
        work = [pool.submit(played, *each) for each in missing]
        for done in tqdm(as_completed(work), total=len(work)):
            rows.append(done.result())
            pd.DataFrame(rows).to_csv(asked.table, index=False)
    cells = pd.DataFrame([(each.stream, each.family, f"{each.regret:.4g} ± {each.margin:.2g}") for each in rows])
    print(cells.pivot(index=0, columns=1, values=2).to_string(na_rep=""))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--streams", nargs="*", choices=streams.STREAMS)
    parser.add_argument("--families", nargs="*", choices=FAMILIES)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    main(parser.parse_args())
