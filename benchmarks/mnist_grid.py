"""Observation and process noise of the presets: a small grid on the first steps of the MNIST bandit.

    SEQDEC_DATA=folder python benchmarks/mnist_grid.py --agents hilofi lrkf lolofi --steps 10000

Prints, for each agent, the reward collected with every pair of noise R and process noise q.
"""

import argparse

import pandas as pd

import seqdec


def grid(name: str, noises: list[float], process_noises: list[float], steps: int, seed: int) -> pd.DataFrame:
    """Reward of one run with every pair of observation noise (rows) and process noise (columns)."""
    env = seqdec.envs.make("mnist")
    table = pd.DataFrame(index=pd.Index(noises, name="R"), columns=pd.Index(process_noises, name="q"))
    for noise in noises:
        for process_noise in process_noises:
            agent = seqdec.agents.make(name, env, noise=noise, process_noise=process_noise)
            table.loc[noise, process_noise] = seqdec.run(agent, env, steps, seed=seed).rewards.sum()
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", nargs="+", default=["hilofi", "lrkf", "lolofi"])
    parser.add_argument("--noises", nargs="+", type=float, default=[0.003, 0.01, 0.03])
    parser.add_argument("--process-noises", nargs="+", type=float, default=[1e-6, 1e-5, 1e-4, 1e-3])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for agent_name in options.agents:
        print(f"\n{agent_name}: reward in {options.steps:,} steps, seed {options.seed}")
        print(grid(agent_name, options.noises, options.process_noises, options.steps, options.seed).to_string())
