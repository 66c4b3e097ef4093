"""What each choice of the published MNIST bandit is worth to HiLoFi.

The paper states neither R nor the link nor the first directions of the hidden layers, and its 0.1 is a covariance in
the text and a standard deviation in the code. Each row changes one of these in `hilofi.published`.

    python benchmarks/published_mnist.py --steps 6000 --seeds 3
"""

import math
from typing import Any

import numpy as np
import pandas as pd
from harness import command

import seqdec
from reproduction.images import MNIST
from seqdec.statistics import mean_and_margin, with_margin

WIDE = {"initial_std_hidden": math.sqrt(0.1), "initial_std_last": math.sqrt(0.1)}
IDENTITY = {"likelihood": seqdec.likelihoods.gaussian(1e-4)}
RANDOM = {"initial_span": "random"}
VARIANTS: dict[str, dict[str, Any]] = {
    "as in the code": {},
    "the identity as the link": IDENTITY,
    "0.1 as the covariance": WIDE,
    "random directions": RANDOM,
    "all three": {**IDENTITY, **WIDE, **RANDOM},
}


def row(title: str, name: str, rewards: np.ndarray) -> dict[str, str]:
    """Reward of all steps and of the last 1,000, of rewards (seeds, steps), as cells with 95% intervals."""
    sums = np.stack([rewards.sum(axis=1), rewards[:, -1000:].sum(axis=1)], axis=1)
    whole, last = with_margin(*mean_and_margin(sums))
    return {title: name, f"reward in {rewards.shape[1]:,} steps": whole, "in the last 1,000": last}


def main(steps: int = 6000, seeds: int = 3) -> None:
    """Print the reward of each variant.

    Args:
        steps: of each run.
        seeds: runs of each variant.
    """
    options = MNIST(published=True, agents="hilofi.published", steps=steps, seeds=seeds)
    env = options.environment()
    rows = []
    for name, changes in VARIANTS.items():
        agent = options.agent("hilofi.published", env, **changes)
        rewards = seqdec.run(agent, env, steps, seed=0, num_seeds=seeds).rewards
        rows.append(row("settings", name, rewards))
        print(pd.DataFrame(rows).to_string(index=False), flush=True)


if __name__ == "__main__":
    command(main)
