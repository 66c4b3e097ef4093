"""Arm against arm, read after each of 3,000 rewards: how often the difference is outside of its ends at some time.

Worlds without a difference: constant; rewards by a context that the agent follows; arms of equal mean, better in one
context and worse in the other; a wave in both means. With one: .6 against .5. The agent plays uniformly, or by Thompson
sampling from Beta distributions of each context, with a least probability of `floor`.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from harness import command, table
from scipy.special import ndtr
from tqdm import tqdm

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


def streamed(world: World, floor: float | None, runs: int, seed: int) -> Stream:
    """Runs of Thompson sampling, or of uniform play."""
    rng, at = np.random.default_rng(seed), np.arange(runs)
    won, lost = np.ones((2, runs, 2, 2))
    found: list[list[np.ndarray]] = [[], [], [], []]
    for row in range(ROWS):
        context = (rng.random(runs) < world.share) * 1
        if floor is None:
            chance = np.full(runs, 0.5)
        else:
            mean = won[at, context] / (won + lost)[at, context]
            variance = mean * (1 - mean) / ((won + lost)[at, context] + 1)
            chance = ndtr((mean[:, 0] - mean[:, 1]) / np.sqrt(variance.sum(axis=1))).clip(floor, 1 - floor)
        action, means = (rng.random(runs) > chance) * 1, world.means(context, row)
        reward = (rng.random(runs) < np.where(action == 0, *means)) * 1.0
        won[at, context, action] += reward
        lost[at, context, action] += 1 - reward
        (first, second), weights = world.means(np.arange(2), row), np.array([1 - world.share, world.share])
        exact = np.full(runs, weights @ (first - second))
        for column, value in zip(found, (action, reward, chance, exact), strict=True):
            column.append(value)
    return Stream(*(np.stack(column, axis=1) for column in found))


def main(runs: int = 1000, seed: int = 0) -> None:
    """All worlds and agents."""
    row = table("means", "agent", "outside", "decided", "outside of ends for one time", "width by theirs")
    at = np.arange(ROWS)
    for world in WORLDS:
        for name, floor in (("uniform", None), ("Thompson, floor .2", 0.2), ("Thompson, floor .01", 0.01)):
            outside, decided, fixed, widths = 0, 0, 0, []
            stream = streamed(world, floor, runs, seed)
            for action, reward, chance, exact in tqdm(zip(*stream, strict=True), total=runs, disable=None, leave=False):
                law = np.stack([chance, 1 - chance], axis=1)
                _, low, high = differences(action, reward, law, 0, 1, 0.025, at)
                truth = exact.cumsum() / (at + 1)
                outside += bool((low > truth + 1e-9).any() or (high < truth - 1e-9).any())
                decided += bool((low > 0).any() or (high < 0).any())
                x = np.where(action == 0, 1 / chance, -1 / (1 - chance)) * (reward - reward.mean())
                mean, square = (part.cumsum() / (at + 1) for part in (x, x**2))
                half = 1.96 * np.sqrt(np.maximum(square - mean**2, 0) / (at + 1))
                fixed += bool((np.abs(mean - truth) > half)[FEW:].any())
                widths.append((high - low)[-1] / (2 * half[-1]))
            shares = (f"{count / runs:.1%}" for count in (outside, decided, fixed))
            row(world.name, name, *shares, f"{np.median(widths):.1f}")


if __name__ == "__main__":
    command(main)
