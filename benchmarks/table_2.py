"""Milliseconds of a step of every agent of Table 2, with the paper's settings, measured in turns.

    OMP_NUM_THREADS=1 taskset -c 0 python benchmarks/table_2.py [--steps 400] [--turns 5]

A step draws an image, chooses an arm and learns from the reward. Compilation is not counted. Times are by the clock:
the median of the turns, with the least and the most. The paper has minutes of ten trials of 40,000 steps that run
together on a TPU v4-8, which are divided by the number of steps of all trials.
"""

from typing import Any

import numpy as np
import pandas as pd
from harness import command

import seqdec
from reproduction.images import MNIST

MINUTES = {
    ("hilofi", ""): 8.44,
    ("lolofi", ""): 3.67,
    ("lrkf", ""): 2.51,
    ("lofi", ""): 4.76,
    ("lofi", "thompson"): 38.90,
    ("lofi, 12 spare columns", ""): None,
    ("lofi, 12 spare columns", "thompson"): None,
    ("last_layer_laplace", ""): 1.36,
    ("last_layer_laplace", "thompson"): 191.55,
    ("adamw", ""): None,
    ("muon", ""): None,
}
"""Of the paper, by agent and policy; "" is predictive sampling, and epsilon-greedy for AdamW and Muon. Thompson
sampling does not compute propensities, which would take 32 more draws."""


def main(steps: int = 400, turns: int = 5) -> None:
    """Print the table.

    Args:
        steps: of each turn.
        turns: of each agent.
    """
    names = {kind: f"{kind.partition(',')[0]}.published" for kind, _ in MINUTES}
    options = MNIST(published=True, agents=",".join(dict.fromkeys(names.values())))
    env, agents = options.environment(), {}
    for kind, policy in MINUTES:
        chosen: dict[str, Any] = {"policy": seqdec.policies.thompson(propensity_samples=0)} if policy else {}
        chosen |= {"spare": 12} if "spare" in kind else {}
        agents[kind, policy] = options.agent(names[kind], env, **chosen)
    states: dict[tuple, Any] = dict.fromkeys(agents)
    taken: dict[tuple, list[float]] = {name: [] for name in agents}
    for _ in range(turns):
        for name, agent in agents.items():
            run = seqdec.run(agent, env, steps, seed=0, state=states[name], progress=False)
            taken[name].append(1e3 * run.elapsed[-1] / steps)
            states[name] = run.state
    rows = []
    for (kind, policy), every in taken.items():
        times, minutes = np.asarray(every), MINUTES[kind, policy]
        cells = [f"{np.median(times):.2f} ({times.min():.2f} to {times.max():.2f})"]
        cells.append("" if minutes is None else f"{minutes * 60e3 / (10 * 40_000):.2f}")
        rows.append((kind, policy, *cells))
    columns = ["agent", "policy", "ms of a step", "of the paper"]
    print(pd.DataFrame(rows, columns=columns).to_string(index=False))


if __name__ == "__main__":
    command(main)
