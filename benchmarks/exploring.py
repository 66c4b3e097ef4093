"""What a floor of the propensities costs and gives: reward, and intervals of each arm that hold at all times.

Three arms that pay in .5, .4 and .3 of 10,000 decisions, chosen by Thompson sampling with a linear belief. Intervals
are of `ope.compare(log, only this arm, anytime=True)`, the difference to the log: their widths, and the share of runs
in which both worse arms are known to be worse.

    python benchmarks/exploring.py [--seeds 40]
"""

import numpy as np
from harness import command, table

import seqdec
from seqdec import agents, envs, ope

RATES = (0.5, 0.4, 0.3)
STEPS = 10_000
FLOORS = {"none": None, "constant .1": (0.1, 0.0), "falls from 1": (1.0, 0.24), "falls from .5": (0.5, 0.24)}


def main(seeds: int = 40) -> None:
    """Print the table."""
    row = table("floor", "reward per decision", "width: best arm", "second", "third", "holds", "both worse known")
    env = envs.bernoulli(RATES, horizon=STEPS)
    for name, floor in FLOORS.items():
        base = agents.linear(env, policy="thompson")
        share, power = floor or (0.0, 0.0)
        agent = agents.exploring(base, share=share, power=power)  # with exact propensities
        kept = ("observation", "probabilities")
        run = seqdec.run(agent, env, STEPS, seed=0, num_seeds=seeds, diagnostics=kept, progress=False)
        rewards, widths, holds, known = [], [], [], []
        for seed in range(seeds):
            log = run.log(seed, num_actions=3)
            rewards.append(log.reward.mean())
            assert log.logging is not None
            mean = float((log.logging @ np.array(RATES)).mean())
            found = []
            for arm, rate in enumerate(RATES):
                target = np.tile(np.eye(3)[arm], (len(log), 1))
                one = ope.compare(log, target, seed=0, samples=2, window=len(log), anytime=True).difference
                holds.append(one.low <= rate - mean <= one.high)
                found.append((one.high - one.low, one.high))
            widths.append([width for width, _ in found])
            known.append(found[1][1] < 0 and found[2][1] < 0)
        shown = (f"{one:.2f}" for one in np.median(widths, axis=0))
        row(name, f"{np.mean(rewards):.3f}", *shown, f"{np.mean(holds):.3f}", f"{np.mean(known):.2f}")


if __name__ == "__main__":
    command(main)
