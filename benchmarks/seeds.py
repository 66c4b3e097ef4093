"""Time of a step of the digits bandit with 16 seeds in parallel and with one, for each agent.

    python benchmarks/seeds.py

Runs of one and of sixteen seeds are measured in turns. Reported is the fastest tenth of their chunks, because other
programs can only slow them down.
"""

import numpy as np

import seqdec
from seqdec.commands.digits import Digits

AGENTS = "lrkf,lolofi,hilofi"
STEPS, TURNS = 2000, 3


def milliseconds(agent, env, num_seeds: int) -> float:
    """Time of a step, the 10th percentile over chunks; a step of all seeds counts as one."""
    run = seqdec.run(agent, env, STEPS, seed=0, num_seeds=num_seeds, progress=False)
    return 1e3 * float(np.percentile(np.diff(run.elapsed), 10))


if __name__ == "__main__":
    seqdec.use_all_cores()
    env, team, *_ = Digits(agents=AGENTS, seeds=1, steps=STEPS).check()
    total = np.zeros(2)
    for name, agent in team.items():
        times = np.array([[milliseconds(agent, env, seeds) for seeds in (1, 16)] for _ in range(TURNS)]).min(0)
        total += times
        print(
            f"{name:7} {times[0]:.3f} ms a step, 16 seeds {times[1]:.3f} ms: {times[1] / times[0]:.1f} times",
            flush=True,
        )
    print(f"all     {total[0]:.3f} ms a step, 16 seeds {total[1]:.3f} ms: {total[1] / total[0]:.1f} times")
