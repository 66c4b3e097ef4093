"""Regret of several processes with one log: one learns, and the others follow the beliefs that it publishes.

Five arms, contexts of ten numbers, rewards linear in them with noise of deviation .5, 4,000 decisions. Each decision is
made by any of the deciders. The one that learns looks for rewards every 50 ms, as the others look for its beliefs, each
at another moment; it publishes at a tenth more lessons, or after a second. "At once": one
process that learns each reward before the next decision. LinTS and LinUCB (two deviations) are of Bayesian regressions.
Contexts, noise and draws of the policy are the same for all numbers of deciders; "against one" is paired over seeds.

    python benchmarks/deciders.py [--seeds 200]
    python benchmarks/deciders.py --processes 4 [--policy ucb] [--seeds 30] [--rate 40] [--steps 500]

The second plays `linear` in one process and in several, all with one log in a PostgreSQL of its own, in real time.
"""

import functools
import multiprocessing
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from harness import command, interval, table

from seqdec import OnlineAgent, agents
from seqdec.core import Agent, Spaces
from seqdec.service.postgres import Postgres
from tests.databases import cluster

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
    rng, routes = np.random.default_rng(0).spawn(2)
    weights = rng.normal(size=(seeds, ARMS, WIDTH))
    eye = np.broadcast_to(np.eye(WIDTH), (seeds, ARMS, WIDTH, WIDTH))
    truth = Belief(eye.copy(), np.zeros((seeds, ARMS, WIDTH)), eye)
    beliefs = [copied(truth)] * 3
    published, last, lost = 0, 0.0, np.zeros(seeds)
    waiting = []
    for step, (looks, which) in enumerate(deciding(deciders, portion, routes)):
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


def simulated(seeds: int) -> None:
    """Print the table."""
    row = table("policy", "decisions per second", "deciders", "regret", "against at once", "against one")
    for policy in ("LinTS", "LinUCB"):
        once = regrets(policy, 1, 1, seeds)
        row(policy, "any", "at once", interval(once, ".0f"), "", "")
        for portion in (2, 20):
            one = regrets(policy, 1, portion, seeds)
            for deciders in (1, 4, 16, 64):
                found = regrets(policy, deciders, portion, seeds)
                ratios = (f"{interval(found - other, '.1f', 100 / other.mean())}%" for other in (once, one))
                row(policy, f"{portion / LOOK:.0f}", deciders, interval(found, ".0f"), *ratios)


SITE = Spaces(spaces.Box(-1, 1, (WIDTH,)), spaces.Discrete(ARMS))


@functools.cache
def linear(policy: str) -> Agent:
    """Whose programs all runs of a process share."""
    return agents.linear(SITE, policy=policy)


def play(place: int, url: str, policy: str, seeds: int, rate: float, steps: int, barrier: Any, found: Any) -> None:
    """In a process: its share of each run, by itself and with the others; puts (workers, seed, regret, seconds)."""
    for seed in range(-1, seeds):  # the first compiles
        rng = np.random.default_rng(seed + 1)
        weights, contexts = rng.normal(size=(ARMS, WIDTH)), rng.uniform(-1, 1, (steps, WIDTH)).astype(np.float32)
        means, noise = contexts @ weights.T, NOISE * rng.normal(size=steps)
        for workers in (1, barrier.parties):
            barrier.wait()
            if place >= workers:
                continue
            log, lost = Postgres(url, f"of {workers} {seed}"), 0.0
            with OnlineAgent(lambda _: linear(policy), SITE, seed=max(seed, 0), store=log, capacity=ARMS) as agent:
                agent.warm_up()
                if workers > 1:
                    barrier.wait()
                start = time.monotonic()
                for step in range(place, steps if seed >= 0 else 100, workers):
                    time.sleep(max(0.0, start + step / rate - time.monotonic()))
                    decision = agent.decide(contexts[step])
                    agent.learn(decision.token, means[step, decision.action] + noise[step])
                    lost += means[step].max() - means[step, decision.action]
                found.put((workers, seed, lost, time.monotonic() - start))


def real(processes: int, policy: str, seeds: int, rate: float, steps: int) -> None:
    """Print the table."""
    context = multiprocessing.get_context("spawn")
    barrier, found = context.Barrier(processes), context.Queue()
    lost, longest = np.zeros((2, seeds)), 0.0
    with cluster(durable=True) as database:
        given = database.url, policy, seeds, rate, steps, barrier, found
        players = [context.Process(target=play, args=(place, *given), daemon=True) for place in range(processes)]
        for player in players:
            player.start()
        for _ in range((seeds + 1) * (processes + 1)):
            workers, seed, part, seconds = found.get()
            if seed >= 0:
                lost[int(workers > 1), seed] += part
                longest = max(longest, seconds)
        for player in players:
            player.join()
    row = table("processes", "regret", "against one")
    row(1, interval(lost[0], ".0f"), "")
    row(processes, interval(lost[1], ".0f"), f"{interval(lost[1] - lost[0], '.1f', 100 / lost[0].mean())}%")
    print(f"{policy}, {steps:,} decisions, {rate:g} per second; the slowest run took {longest:.1f} s")


def main(
    seeds: int | None = None, processes: int = 0, policy: str = "thompson", rate: float = 40.0, steps: int = 500
) -> None:
    """Simulated, or in processes."""
    if processes:
        real(processes, policy, seeds or 30, rate, steps)
    else:
        simulated(seeds or 200)


if __name__ == "__main__":
    command(main)
