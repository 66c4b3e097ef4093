"""CPU milliseconds of `OnlineAgent.decide_many`: 1,000 contexts of 64 numbers, ten arms, with and without an encoder.

    taskset -c 0 python benchmarks/decide_many.py [linear hilofi auto] [--turns 5]

Every decision is in the log of a folder before a call returns. For each agent: the whole call; the call with an
encoder, of as many rows of ten columns that become 64 numbers; the decisions on the device alone; and what is left for
the host, in which the log is the most. CPU time, so that other load matters little; medians of the turns' medians.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
from gymnasium import spaces

import seqdec
from seqdec.features import Categorical, Encoder, Numeric, Text
from seqdec.online import contexts
from seqdec.runtime import one_blas_thread

ROWS, ARMS = 1000, 10
AGENTS: dict[str, Any] = {
    "linear": "linear",
    "hilofi": lambda site: seqdec.agents.hilofi(site, rank=10),
    "auto": "auto",
}


def table(random: np.random.Generator) -> tuple[Encoder, pd.DataFrame]:
    """Rows of eight numbers, a category and a text, and their encoder to 64 numbers."""
    cities = tuple(f"city {place}" for place in range(23))
    columns = {f"number {place}": Numeric(0, 1) for place in range(8)}
    encoder = Encoder({**columns, "city": Categorical(cities), "query": Text(22)})
    rows: dict[str, Any] = {name: random.normal(size=ROWS) for name in columns}
    rows |= {"city": random.choice(cities, ROWS), "query": random.choice(["cheap flights", "hotel by the sea"], ROWS)}
    return encoder, pd.DataFrame(rows)


def milliseconds(call: Callable[[], Any], times: int) -> float:
    """Median CPU time of a call."""
    taken = []
    for _ in range(times):
        began = time.process_time()
        call()
        taken.append(1e3 * (time.process_time() - began))
    return median(taken)


def measured(name: str, folder: Path, turns: int) -> dict[str, float]:
    """Milliseconds of each part, for one agent."""
    random = np.random.default_rng(0)
    encoder, rows = table(random)
    plain, encoded = spaces.Box(0, 1, (64,)), encoder.space
    given = random.uniform(0, 1, (ROWS, 64)).astype(np.float32)
    found: dict[str, list[float]] = {"decide_many": [], "with an encoder": [], "device": []}
    site, table_site = (seqdec.core.Spaces(space, spaces.Discrete(ARMS)) for space in (plain, encoded))
    with (
        seqdec.OnlineAgent(AGENTS[name], site, seed=0, folder=folder / "plain", capacity=ARMS) as service,
        seqdec.OnlineAgent(
            AGENTS[name], table_site, seed=0, folder=folder / "table", encoder=encoder, capacity=ARMS
        ) as other,
    ):
        for agent in (service, other):
            agent.warm_up()
        for decision in service.decide_many(given[:100]):
            service.learn(decision.token, float(decision.action == 3))
        records = contexts.checked(plain, service._record, given, ROWS)
        masks = np.ones((ROWS, ARMS), bool)
        for _ in range(turns):
            found["decide_many"].append(milliseconds(lambda: service.decide_many(given), 20))
            found["with an encoder"].append(milliseconds(lambda: other.decide_many(rows), 10))
            found["device"].append(milliseconds(lambda: service._learner.decide(1, records, masks), 20))
    medians = {part: median(times) for part, times in found.items()}
    return {**medians, "host": medians["decide_many"] - medians["device"], "features": float(len(encoder.names))}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("agents", nargs="*", default=list(AGENTS), help=", ".join(AGENTS))
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    with one_blas_thread():
        for name in options.agents:
            with tempfile.TemporaryDirectory() as folder:
                times = measured(name, Path(folder), options.turns)
            print(f"{name:>8}", ", ".join(f"{part} {value:.1f}" for part, value in times.items()), flush=True)
