"""What each choice of the published MNIST bandit is worth to HiLoFi, and its agents from the same parameters.

The paper states neither R nor the link nor the first directions of the hidden layers, and its 0.1 is a covariance in
the text and a standard deviation in the code. Each row changes one of these in `hilofi.published`.

    python benchmarks/published_mnist.py --steps 6000 --seeds 3

In the paper all agents and runs begin with the same parameters of the network. With --shared, so do these agents:

    python benchmarks/published_mnist.py --steps 40000 --shared hilofi lolofi lrkf
"""

import math
from typing import Any

import jax
import numpy as np
import pandas as pd
from harness import command

import seqdec
from reproduction.images import MNIST
from seqdec.core import Agent
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


def alike(agent: Agent) -> Agent:
    """The agent, which begins every run with the same parameters, whatever the seed."""
    return agent._replace(init=lambda key: agent.init(jax.random.key(0)))


def main(steps: int = 6000, seeds: int = 3, shared: tuple[str, ...] = ()) -> None:
    """Print the reward of each variant, or of agents that share the initial parameters.

    Args:
        steps: of each run.
        seeds: runs of each variant.
        shared: agents with the settings of the paper.
    """
    options = MNIST(published=True, agents="hilofi.published", steps=steps, seeds=seeds)
    env = options.environment()
    if shared:
        agents = {name: alike(options.agent(f"{name}.published", env)) for name in shared}
    else:
        agents = {name: options.agent("hilofi.published", env, **changes) for name, changes in VARIANTS.items()}
    rows = []
    for name, agent in agents.items():
        rewards = seqdec.run(agent, env, steps, seed=0, num_seeds=seeds).rewards
        rows.append(row("agent" if shared else "settings", name, rewards))
        print(pd.DataFrame(rows).to_string(index=False), flush=True)


if __name__ == "__main__":
    command(main)
