"""Why HiLoFi with the published settings earns less than popularity on a recommender's log, one change after another.

    python benchmarks/recommender.py [--data DIR] [--steps 20000] [--seeds 3] [--first-seed 100]

Blocks are shuffled, and features of --data are those of the next day, as in the paper's code. Each row of the table has
the settings of the row above it and one more change, with two standard errors; the last is `seqdec run kuairec`.
Without --data the log is SYNTHETIC, with another seed than the experiment's.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from harness import command

import seqdec
from reproduction import kuairec
from seqdec import agents, models
from seqdec.core import Agent, Environment
from seqdec.data import load_kuairec, synthetic_kuairec


def contenders(env: Environment) -> Iterator[tuple[str, Agent]]:
    """The baseline, and HiLoFi from the published settings to ours."""
    yield "popularity", agents.popularity(env, prior_plays=3.0)
    asked = kuairec.KuaiRec(published=True)
    settings = {"std": 10**-0.5, "width": 10, "tables": ("video",)}
    dense = agents.scorer(env, models.Score(), **settings)._replace(tables=())

    def published(**changes) -> Agent:
        return asked.agent("hilofi.published", env, **{"policy": "epistemic_sampling", **changes})

    yield "published settings, epistemic sampling", published()
    noise = {"noise_variance": 0.065}
    yield "R = 0.065 instead of 0.0001", published(model=dense, **noise)
    rows = agents.scorer(env, models.Score(), **settings)
    yield "a belief for each video's embedding", published(model=rows, initial_std_table=0.3, **noise)
    direct = agents.scorer(env, models.Score(intercepts=True), **settings)
    table = {"initial_std_table": (0.2, *9 * [0.3])}
    yield "an intercept for each video", published(model=direct, **table, **noise)
    yield "policy ucb", published(model=direct, policy="ucb", **table, **noise)
    yield "users, products, direct features", kuairec.KuaiRec().agent("hilofi", env)


def main(data: Path | None = None, steps: int = 20_000, seeds: int = 3, first_seed: int = 100) -> None:
    """Print a line for each change."""
    seqdec.use_all_cores()
    log = synthetic_kuairec(seed=7) if data is None else load_kuairec(data, feature_lag=-1)
    env = seqdec.envs.recommender_log(log, order="shuffled")
    for name, agent in contenders(env):
        run = seqdec.run(agent, env, min(steps, len(log.rewards)), seed=first_seed, num_seeds=seeds)
        run = kuairec.in_watch_ratios(run)
        mean = run.rewards.mean(1)
        margin = f" ± {2 * mean.std(ddof=1) / np.sqrt(len(mean)):.3f}" if len(mean) > 1 else ""
        print(f"{name:40} {mean.mean():.3f}{margin}", flush=True)


if __name__ == "__main__":
    command(main)
