"""Whether a policy is better than what is done now: the paired difference against the intervals of both.

Five actions; the target plays the best one, which the log plays in 15% of its rows, in 25%.
"Apart" is the share of logs where the intervals of the target and of the log do not overlap.

    python benchmarks/comparison.py [--logs 200] [--samples 1000]
"""

import numpy as np
from harness import command, table

from seqdec import ope

LAW = np.array([0.3, 0.25, 0.2, 0.15, 0.1])
TARGET = LAW + np.array([-0.05, -0.05, 0, 0.1, 0])
MEANS = np.array([0.7, 1, 1.3, 1.6, 0.9])
WORLDS = ((1000, 0.3), (1000, 0.05), (10_000, 0.05), (10_000, 0.005))


def draw(rng: np.random.Generator, rows: int, rate: float) -> ope.Log:
    """A log of clicks."""
    action = rng.choice(5, size=rows, p=LAW)
    reward = (rng.random(rows) < rate * MEANS[action]) * 1.0
    return ope.make_log(action=action, reward=reward, propensity=LAW[action], num_actions=5)


def main(logs: int = 200, samples: int = 1000) -> None:
    """Print the table."""
    row = table("rows, click rate", "difference", "holds", "width", "width of the target", "better", "worse", "apart")
    for count, rate in WORLDS:
        truth, found = rate * float((TARGET - LAW) @ MEANS), []
        for seed in range(logs):
            log = draw(np.random.default_rng(seed), count, rate)
            one = ope.compare(log, np.tile(TARGET, (count, 1)), seed=seed, samples=samples, window=count)
            (_, low, high), (_, least, most), now = one.difference, one.target, one.baseline
            apart = least > now.high or most < now.low
            decided = one.decision == "better", one.decision == "worse"
            found.append((low <= truth <= high, high - low, most - least, *decided, apart))
        holds, width, wide, better, worse, apart = np.transpose(np.array(found, float))
        sizes = (f"{np.median(part):.4f}" for part in (width, wide))
        shares = (f"{part.mean():.2f}" for part in (better, worse, apart))
        row(f"{count:,}, {rate}", f"{truth:.4g}", f"{holds.mean():.3f}", *sizes, *shares)


if __name__ == "__main__":
    command(main)
