"""`auto` without a setting against learners of other libraries with the best of six settings, on streams.py.

    pip install vowpalwabbit mabwiser
    python benchmarks/tuned_streams.py results.csv [--streams STREAM ...] [--families FAMILY ...] [--workers 16]

For each stream and family the setting with the least mean regret on seeds 100 and 101 is played with seeds 0 to 9, and
appended to the table as a row: stream, family, setting, regret with its 95% interval, that of the worst seed,
microseconds of a step. Rows that the table has are not computed again.
"""

import itertools
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import tyro
from harness import command, interval
from peers import regret_of, worlds
from streams import STREAMS, environment
from tqdm import tqdm

TRIED, PLAYED = range(100, 102), range(10)


def grid(form: str, *values: tuple) -> tuple[str, ...]:
    """A setting for each combination of values."""
    return tuple(form.format(*each) for each in itertools.product(*values))


_RATES = ("-l 0.5", "-l 0.1", "-l 0.1 --power_t 0")  # of Vowpal Wabbit
_COSTS = ("mtr", "dr")  # how it estimates costs
_RIDGE = ((0.1, 0.3, 1), ("False", "True"))  # width of exploration, whether features are standardized
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
_STREAMS = ("abrupt", "drift", "costs", "counts", "heavy", "revenue", "wide", "half", "rare")


def played(stream: str, family: str) -> dict[str, Any]:
    """The row of the best setting of a family."""
    env, steps, settings = environment(stream), STREAMS[stream].steps, FAMILIES[family]
    foreign = settings[0].startswith(("vw", "mabwiser"))
    met = {seeds: worlds(env, steps, seeds) if foreign else None for seeds in (TRIED, PLAYED)}

    def regret_in(setting, seeds):
        return regret_of(setting, env, steps, seeds, met[seeds])

    best = settings[0]
    if len(settings) > 1:
        best = min(settings, key=lambda each: regret_in(each, TRIED)[0].sum(1).mean())
    regret, seconds = regret_in(best, PLAYED)
    total = regret.sum(1)
    return {
        "stream": stream, "family": family, "setting": best, "regret": interval(total), "worst": total.max(),
        "microseconds": 1e6 * seconds / regret.size,
    }  # fmt: skip


def main(
    path: Annotated[Path, tyro.conf.Positional],
    streams: tuple[str, ...] = _STREAMS,
    families: tuple[str, ...] = tuple(FAMILIES),
    workers: int | None = None,
) -> None:
    """Append the rows that are missing, and print the table."""
    rows = pd.read_csv(path).to_dict("records") if path.exists() else []
    have = {(row["stream"], row["family"]) for row in rows}
    missing = [
        (stream, family)
        for stream, family in itertools.product(streams, families)
        if (stream, family) not in have and (family != "Beta TS" or stream in ("half", "rare"))  # without contexts
    ]
    missing.sort(key=lambda each: ("MABWiser" not in each[1], -STREAMS[each[0]].steps))
    os.environ |= {"OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "JAX_PLATFORMS": "cpu"}
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        work = [pool.submit(played, *each) for each in missing]
        for done in tqdm(as_completed(work), total=len(work)):
            rows.append(done.result())
            pd.DataFrame(rows).to_csv(path, index=False)
    print(pd.DataFrame(rows).pivot(index="stream", columns="family", values="regret").to_string(na_rep=""))


if __name__ == "__main__":
    command(main)
