"""The figure of the front page: what an agent knows about two offers after 20, 60 and 300 visitors.

    python examples/uncertainty.py docs/uncertainty.png

Visitors differ in age, and the agent chooses an offer for each. It tries both offers until one is very likely
the better one for visitors of an age, and stays uncertain about the other.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from gymnasium import spaces
from PIL import Image

import seqdec

OFFERS = ("news", "voucher")
COLORS = ("tab:blue", "tab:orange")
MOMENTS = (20, 60, 300)


def truth(age: np.ndarray) -> np.ndarray:
    """(n, 2) expected reward of each offer at ages (n,)."""
    return np.stack([0.2 + 0.5 / (1 + np.exp((45 - age) / 5)), 1.05 - age / 60], axis=1)


def main(picture: Path) -> None:
    """Let an agent decide for 300 visitors, and draw its belief on the way."""
    rng, grid = np.random.default_rng(2), np.linspace(18, 70, 53)
    site = seqdec.core.Spaces(spaces.Box(18, 70, (1,)), spaces.Discrete(2))
    service = seqdec.OnlineAgent("auto", site, seed=0, arms=OFFERS)
    figure, axes = plt.subplots(1, len(MOMENTS), figsize=(10, 3.3), sharex=True, sharey=True, layout="constrained")
    ages, played, rewards = [], [], []
    for visitor in range(1, MOMENTS[-1] + 1):
        age = rng.uniform(18, 70)
        decision = service.decide([age])
        place = OFFERS.index(decision.action)
        reward = truth(np.array([age]))[0, place] + 0.1 * rng.normal()
        service.learn(decision.token, reward)
        ages, played, rewards = [*ages, age], [*played, place], [*rewards, reward]
        if visitor not in MOMENTS:
            continue
        axis = axes[MOMENTS.index(visitor)]
        found = [service.explain([at]) for at in grid]
        for arm, (offer, color) in enumerate(zip(OFFERS, COLORS, strict=True)):
            places = [each.actions.index(offer) for each in found]
            mean = np.array([each.mean[place] for each, place in zip(found, places, strict=True)])
            half = 1.96 * np.array([each.deviation[place] for each, place in zip(found, places, strict=True)])
            axis.fill_between(grid, mean - half, mean + half, color=color, alpha=0.25, lw=0)
            axis.plot(grid, mean, color, label=f"{offer}: belief")
            axis.plot(grid, truth(grid)[:, arm], color, ls="--", lw=1, label=f"{offer}: truth")
            chosen = np.array(played) == arm
            axis.plot(np.array(ages)[chosen], np.array(rewards)[chosen], ".", color=color, ms=3)
        axis.set_title(f"after {visitor} visitors")
    axes[0].set_ylim(-0.4, 1.1)
    axes[0].set_ylabel("reward")
    figure.supxlabel("age of the visitor")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
    figure.savefig(picture, dpi=90)
    Image.open(picture).quantize(64).save(picture, optimize=True)  # fewer colors make a smaller file


if __name__ == "__main__":
    main(Path(sys.argv[1]))
