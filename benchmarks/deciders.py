"""Regret of several processes with one log: one learns, and the others follow the beliefs that it publishes.

Five arms, contexts of ten numbers, rewards linear in them with noise of deviation .5, 4,000 decisions. Each decision is
made by any of the deciders. The one that learns looks for rewards every 50 ms, as the others look for its beliefs, each
at another moment; it publishes at a tenth more lessons, or after a second. "At once": one
process that learns each reward before the next decision. LinTS and LinUCB (two deviations) are of Bayesian regressions.

    python benchmarks/deciders.py [--seeds 20]
"""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from harness import command, interval, table

ARMS, WIDTH, STEPS, NOISE = 5, 10, 4000, 0.5
LOOK, MORE, PERIOD = 0.05, 1.1, 1.0


class Belief(NamedTuple):
    """Of each arm in each run."""

    cov: np.ndarray
    """(seeds, arms, d, d)"""
    mean: np.ndarray
    """(seeds, arms, d)"""
    root: np.ndarray
    """of the covariance"""


def chosen(policy: str, belief: Belief, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(seeds,) arms."""
    mean = np.einsum("sad,sd->sa", belief.mean, x)
    spread = np.einsum("sade,sd->sae", belief.root, x)
    if policy == "LinUCB":
        return (mean + 2 * np.sqrt((spread**2).sum(axis=2))).argmax(axis=1)
    return (mean + np.einsum("sae,sae->sa", spread, rng.normal(size=spread.shape))).argmax(axis=1)


def learn(belief: Belief, x: np.ndarray, arm: np.ndarray, reward: np.ndarray) -> None:
    """In place, but for the root, one reward in each run."""
    rows = np.arange(len(x))
    gain = np.einsum("sde,se->sd", belief.cov[rows, arm], x)
    gain /= np.sqrt(NOISE**2 + np.einsum("sd,sd->s", gain, x))[:, None]
    belief.cov[rows, arm] -= gain[:, :, None] * gain[:, None, :]
    error = reward - np.einsum("sd,sd->s", belief.mean[rows, arm], x)
    belief.mean[rows, arm] += np.einsum("sde,se->sd", belief.cov[rows, arm], x) * (error / NOISE**2)[:, None]


def copied(belief: Belief) -> Belief:
    """With its root."""
    return Belief(belief.cov.copy(), belief.mean.copy(), np.linalg.cholesky(belief.cov))


def deciding(deciders: int, portion: int, rng: np.random.Generator) -> Iterator[tuple[bool, int]]:
    """By decision: whether a look comes before it, and the belief: 0 the learner's, 1 the published one, 2 before."""
    phase = np.arange(deciders) * portion // deciders
    for step in range(STEPS):
        who, place = rng.integers(deciders), step % portion
        yield place == 0, 0 if who == 0 else 1 if place >= phase[who] else 2


def regrets(policy: str, deciders: int, portion: int, seeds: int) -> np.ndarray:
    """(seeds,) sums, with `portion` decisions between two looks."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(seeds, ARMS, WIDTH))
    eye = np.broadcast_to(np.eye(WIDTH), (seeds, ARMS, WIDTH, WIDTH))
    truth = Belief(eye.copy(), np.zeros((seeds, ARMS, WIDTH)), eye)
    beliefs = [copied(truth)] * 3
    published, last, lost = 0, 0.0, np.zeros(seeds)
    waiting = []
    for step, (looks, which) in enumerate(deciding(deciders, portion, rng)):
        if looks:
            for lesson in waiting:
                learn(truth, *lesson)
            waiting, seconds = [], step / portion * LOOK
            own, after = copied(truth), beliefs[1]
            if step >= MORE * published or seconds >= last + PERIOD:
                published, last, after = step, seconds, own
            beliefs = [own, after, beliefs[1]]
        x = rng.uniform(-1, 1, (seeds, WIDTH))
        arm = chosen(policy, beliefs[which], x, rng)
        means = np.einsum("sad,sd->sa", weights, x)
        own = means[np.arange(seeds), arm]
        lost += means.max(axis=1) - own
        waiting.append((x, arm, own + NOISE * rng.normal(size=seeds)))
    return lost


def main(seeds: int = 20) -> None:
    """Print the table."""
    row = table("policy", "decisions per second", "deciders", "regret", "against at once")
    for policy in ("LinTS", "LinUCB"):
        once = regrets(policy, 1, 1, seeds)
        row(policy, "any", "at once", interval(once, ".0f"), "")
        for portion, deciders in itertools.product((2, 20), (1, 4, 16, 64)):
            found = regrets(policy, deciders, portion, seeds)
            shown = interval(found, ".0f"), f"{found.mean() / once.mean() - 1:+.0%}"
            row(policy, f"{portion / LOOK:.0f}", deciders, *shown)


if __name__ == "__main__":
    command(main)
