"""What an agent has earned over its control group, read after each unit that counts, and how often that is wrong.

Of 3,000 decisions, 30% are for new units, and the others for a unit of any decision before, so that some units come
very often. Units differ in how much they pay; a tenth of them is the control group, whose rule plays two arms equally.
The agent samples from Beta distributions (Thompson), with a least probability of .05. Worlds: arms that pay equally,
constantly, by a context, or in a wave; and .65 against .35, which the agent learns, so that what it earns grows.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from arms import at_once
from harness import command, table
from scipy.special import ndtr
from tqdm import tqdm

from seqdec.ope.arms import differences

ROWS, NEW, SHARE, FLOOR = 3000, 0.3, 0.1, 0.05
MOST, WITHIN = 5, 300
"""Decisions of a unit, and the rows within which they count."""
FEW = 30
"""Units of the control group from which on ends for one time are read."""


class World(NamedTuple):
    """Means of arms 0 and 1, `means(context, row)`, to which a unit adds its own."""

    name: str
    means: Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]


WORLDS = (
    World("constant", lambda x, t: (0.5 + 0 * x, 0.5 + 0 * x)),
    World("context", lambda x, t: (0.35 + 0.3 * x, 0.35 + 0.3 * x)),
    World("wave", lambda x, t: (0.5 + 0.25 * np.sin(t / 200) + 0 * x, 0.5 + 0.25 * np.sin(t / 200) + 0 * x)),
    World("an agent that learns", lambda x, t: (0.65 + 0 * x, 0.35 + 0 * x)),
)


class Stream(NamedTuple):
    """Of many runs, each array (runs, rows)."""

    unit: np.ndarray
    is_agent: np.ndarray
    reward: np.ndarray
    gain: np.ndarray
    """expected reward of the agent's law less that of the control group's"""


def streamed(world: World, runs: int, seed: int) -> Stream:
    """Runs of a service."""
    rng, at = np.random.default_rng(seed), np.arange(runs)
    won, lost = np.ones((2, runs, 2))
    unit, made = np.zeros((runs, ROWS), int), np.zeros(runs, int)
    own, is_control = rng.choice([-0.25, 0.25], (runs, ROWS)), rng.random((runs, ROWS)) < SHARE
    of_agent, reward, gain = (np.zeros((runs, ROWS)) for _ in range(3))
    for row in range(ROWS):
        is_new = (rng.random(runs) < NEW) | (row == 0)
        who = np.where(is_new, made, unit[at, rng.integers(max(row, 1), size=runs)])
        made, unit[:, row] = made + is_new, who
        context = (rng.random(runs) < 0.5) * 1
        mean = won / (won + lost)
        deviation = np.sqrt((mean * (1 - mean) / (won + lost + 1)).sum(axis=1))
        chance = ndtr((mean[:, 0] - mean[:, 1]) / deviation).clip(FLOOR, 1 - FLOOR)
        agent = ~is_control[at, who]
        action = (rng.random(runs) > np.where(agent, chance, 0.5)) * 1
        means = world.means(context, row)
        got = rng.random(runs) < np.where(action == 0, *means) + own[at, who]
        won[at, action] += got
        lost[at, action] += ~got
        of_agent[:, row], reward[:, row], gain[:, row] = agent, got, (chance - 0.5) * (means[0] - means[1])
    return Stream(unit, of_agent > 0, reward, gain)


def counted(unit: np.ndarray, most: int, within: int) -> tuple[np.ndarray, np.ndarray]:
    """Which decisions of a run count, and the units whose rewards are all known, in the order of their first."""
    _, first, units, _ = np.unique(unit, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(units, kind="stable")
    rank = np.empty(ROWS, int)
    rank[order] = np.arange(ROWS) - np.searchsorted(units[order], units[order])
    here = (rank < most) & (np.arange(ROWS) <= first[units] + within)
    return here, np.flatnonzero(first + within < ROWS)  # units are numbered in the order of their first decisions


def main(runs: int = 1000, seed: int = 0) -> None:
    """All worlds, by three kinds of rows."""
    row = table("world", "rows", "outside", "decided", "outside of ends for one time", "width by theirs")
    kinds = (("each decision", None), ("first decision", (1, 0)), (f"first {MOST}", (MOST, WITHIN)))
    for world in WORLDS:
        stream = streamed(world, runs, seed)
        for name, kind in kinds:
            outside, decided, fixed, widths = 0, 0, 0, []
            for unit, agent, reward, gain in tqdm(zip(*stream, strict=True), total=runs, disable=None, leave=False):
                group, worth, truth, most = agent, reward, gain, 1
                if kind is not None:
                    most = kind[0]
                    here, units = counted(unit, *kind)
                    first = np.unique(unit, return_index=True)[1][units]
                    sums = (np.bincount(unit, here * part, minlength=ROWS)[units] for part in (reward, gain))
                    group, (worth, truth) = agent[first], sums
                at = np.arange(len(group))
                law = np.tile([1 - SHARE, SHARE], (len(group), 1))
                _, low, high = most * differences(np.where(group, 0, 1), worth / most, law, 0, 1, 0.025, at)
                exact = truth.cumsum() / (at + 1)
                outside += bool((low > exact + 1e-9).any() or (high < exact - 1e-9).any())
                decided += bool((low > 0).any() or (high < 0).any())
                x = np.where(group, 1 / (1 - SHARE), -1 / SHARE) * (worth - worth.mean())
                mean, half = at_once(x)
                fixed += bool((np.abs(mean - exact) > half)[np.cumsum(~group) >= FEW].any())
                widths.append((high - low)[-1] / (2 * half[-1]))
            shares = (f"{count / runs:.1%}" for count in (outside, decided, fixed))
            row(world.name, name, *shares, f"{np.median(widths):.1f}")


if __name__ == "__main__":
    command(main)
