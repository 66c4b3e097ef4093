"""What 16 seeds side by side cost against one, on the digits bandit: seconds of a step, agent by agent.

    python benchmarks/seeds.py

One and sixteen seeds run in turns, and the quickest run of each counts: other programs can only slow them down.
"""

import numpy as np

import seqdec
from seqdec.experiments.bandit import Digits, build

AGENTS = "lrkf,lolofi,hilofi"
STEPS, TURNS = 1000, 4


def milliseconds(agent, env, num_seeds: int) -> float:
    """Median time of a step; the seeds side by side count as one step."""
    run = seqdec.run(agent, env, STEPS, seed=0, num_seeds=num_seeds, progress=False)
    return 1e3 * float(np.median(np.diff(run.elapsed)))


if __name__ == "__main__":
    env, team = build(Digits(agents=AGENTS, seeds=1, steps=STEPS, out=Digits.out))
    for name, agent in team.items():
        times = np.array([[milliseconds(agent, env, seeds) for seeds in (1, 16)] for _ in range(TURNS)]).min(0)
        print(
            f"{name:7} {times[0]:.3f} ms a step, 16 seeds {times[1]:.3f} ms: {times[1] / times[0]:.1f} times",
            flush=True,
        )
