"""Arm against arm, and a challenger against its agent, read after each of 3,000 rewards: how often the ends are wrong.

Worlds without a difference: constant; rewards by a context that the agent follows; arms of equal mean, better in one
context and worse in the other; a wave in both means. With one: .6 against .5. The agent plays uniformly, or by Thompson
sampling from Beta distributions of each context, with a least probability of `floor`. The challenger plays the arm that
earned more so far in a context with probability .9.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from harness import command, table
from scipy.special import ndtr
from tqdm import tqdm

from seqdec import ope
from seqdec.ope import sequences
from seqdec.ope.arms import differences

ROWS, FEW = 3000, 100
"""Rows of a run, and those after which ends for one time are read."""


class World(NamedTuple):
    """Mean rewards of the two arms, `means(context, row)`, of contexts 0 and 1."""

    name: str
    means: Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]
    share: float = 0.5
    """of context 1"""


WORLDS = (
    World("constant", lambda x, t: (0.5 + 0 * x, 0.5 + 0 * x)),
    World("context", lambda x, t: (0.3 + 0.4 * x, 0.3 + 0.4 * x)),
    World("opposite contexts", lambda x, t: (0.45 + 0.25 * x, 0.5 + 0 * x), share=0.2),
    World("wave", lambda x, t: (0.5 + 0.4 * np.sin(t / 200) + 0 * x, 0.5 + 0.4 * np.sin(t / 200) + 0 * x)),
    World(".6 and .5", lambda x, t: (0.6 + 0 * x, 0.5 + 0 * x)),
)


class Stream(NamedTuple):
    """Of many runs, each array (runs, rows)."""

    action: np.ndarray
    reward: np.ndarray
    chance: np.ndarray
    """of arm 0"""
    difference: np.ndarray
    """of the means over contexts, arm 0 less arm 1"""
    rival: np.ndarray
    """chance of arm 0 under the challenger"""
    gain: np.ndarray
    """expected reward of the challenger less that of the agent, over contexts"""


def streamed(world: World, floor: float | None, runs: int, seed: int) -> Stream:
    """Runs of Thompson sampling, or of uniform play."""
    rng, at = np.random.default_rng(seed), np.arange(runs)
    won, lost = np.ones((2, runs, 2, 2))
    found: list[list[np.ndarray]] = [[] for _ in Stream._fields]
    weights = np.array([1 - world.share, world.share])
    for row in range(ROWS):
        context = (rng.random(runs) < world.share) * 1
        mean = won / (won + lost)
        deviation = np.sqrt((mean * (1 - mean) / (won + lost + 1)).sum(axis=2))
        better = mean[:, :, 0] - mean[:, :, 1]
        chances = np.full((runs, 2), 0.5) if floor is None else ndtr(better / deviation).clip(floor, 1 - floor)
        rivals = np.where(better > 0, 0.9, 0.1)
        chance, rival = chances[at, context], rivals[at, context]
        action, means = (rng.random(runs) > chance) * 1, world.means(context, row)
        reward = (rng.random(runs) < np.where(action == 0, *means)) * 1.0
        won[at, context, action] += reward
        lost[at, context, action] += 1 - reward
        first, second = world.means(np.arange(2), row)
        exact, gain = np.full(runs, weights @ (first - second)), (rivals - chances) @ (weights * (first - second))
        for column, value in zip(found, (action, reward, chance, exact, rival, gain), strict=True):
            column.append(value)
    return Stream(*(np.stack(column, axis=1) for column in found))


def challenged(action: np.ndarray, reward: np.ndarray, chance: np.ndarray, rival: np.ndarray) -> np.ndarray:
    """(2, m) ends of the challenger's gain at rows, and the rows."""
    law, target = (np.stack([one, 1 - one], axis=1) for one in (chance, rival))
    log = ope.make_log(action=action, reward=reward, propensity=law[np.arange(ROWS), action], logging=law)
    found = sequences.of_difference(ope.evidence(log, target, seed=0), (0.0, 1.0), 0.95)
    return np.stack([found["low"], found["high"], found.index - 1])


def main(runs: int = 1000, seed: int = 0) -> None:
    """All worlds and agents."""
    row = table("means", "agent", "ends of", "outside", "decided", "outside of ends for one time", "width by theirs")
    for world in WORLDS:
        for name, floor in (("uniform", None), ("Thompson, floor .2", 0.2), ("Thompson, floor .01", 0.01)):
            stream = streamed(world, floor, runs, seed)
            for kind in ("arms", "challenger"):
                outside, decided, fixed, widths = 0, 0, 0, []
                every = zip(*stream, strict=True)
                for action, reward, chance, exact, rival, gain in tqdm(every, total=runs, disable=None, leave=False):
                    if kind == "arms":
                        law, at, truth = np.stack([chance, 1 - chance], axis=1), np.arange(ROWS), exact
                        _, low, high = differences(action, reward, law, 0, 1, 0.025, at)
                        weight = np.where(action == 0, 1 / chance, -1 / (1 - chance))
                    else:
                        low, high, at = challenged(action, reward, chance, rival)
                        at, truth = at.astype(int), gain
                        weight = np.where(action == 0, rival / chance, (1 - rival) / (1 - chance)) - 1
                    mean, half = at_once(weight * (reward - reward.mean()))
                    running = truth.cumsum() / np.arange(1, ROWS + 1)
                    outside += bool((low > running[at] + 1e-9).any() or (high < running[at] - 1e-9).any())
                    decided += bool((low > 0).any() or (high < 0).any())
                    fixed += bool((np.abs(mean - running) > half)[FEW:].any())
                    widths.append((high - low)[-1] / (2 * half[-1]))
                shares = (f"{count / runs:.1%}" for count in (outside, decided, fixed))
                row(world.name, name, kind, *shares, f"{np.median(widths):.1f}")


def at_once(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean of the first rows, and half of the usual interval of 95% for one time."""
    count = np.arange(1, len(x) + 1)
    mean, square = x.cumsum() / count, (x**2).cumsum() / count
    return mean, 1.96 * np.sqrt(np.maximum(square - mean**2, 0) / count)


if __name__ == "__main__":
    command(main)
