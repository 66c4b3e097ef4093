"""Whether an apprentice's verdict is right: five simulated services, of which all expected rewards are known.

In the shadow of a rule, an agent decides 8,000 times and learns; then its comparison says better, worse, or neither;
then it takes over, and plays 2,000 times. The truth is its expected reward in these against that of the rule in the
same contexts. A verdict of better or worse is right if the truth has its sign; the others claim nothing. "Holds" is the
share of intervals with the true difference of the decisions that they compare. The rules play any arm in a fifth of
their decisions, that which knows the best arm in a twentieth.

    python benchmarks/apprentice.py [--seeds 20] [--agent linear]
"""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from gymnasium import spaces
from harness import command, interval, table
from tqdm import trange

import seqdec
from seqdec.core import Spaces
from seqdec.ope.comparison import DECISIONS
from seqdec.service.logs import opened

ARMS, SIZE, BATCH = 4, 6, 250
SHADOW, ALONE = 8000, 2000
WITHIN = spaces.Box(-5, 5, (SIZE,), np.float32)


class Service(NamedTuple):
    """Users, what they pay, and the rule of today."""

    best: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """(n,) the arm that the rule plays: contexts (n, d), expected rewards (n, k)"""
    explored: float = 0.2
    """share of decisions in which the rule plays any arm"""
    is_click: bool = False
    drift: float = 0.0
    """of the contexts' mean in all"""


class World:
    """One service drawn at random."""

    def __init__(self, service: Service, seed: int) -> None:
        self.service, self.rng = service, np.random.default_rng(seed)
        self.weights, self.base = self.rng.normal(size=(SIZE, ARMS)), self.rng.normal(size=ARMS)
        self.way = self.rng.normal(size=SIZE)

    def users(self, count: int, part: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Contexts (count, d), expected rewards (count, k), probabilities of the rule (count, k)."""
        moved = self.service.drift * part * self.way / np.linalg.norm(self.way)
        x = np.clip(self.rng.normal(size=(count, SIZE)) + moved, -5, 5)
        mean = (0.3 if self.service.is_click else 100) / (1 + np.exp(-0.2 * x @ self.weights - 0.3 * self.base))
        law = np.eye(ARMS)[self.service.best(x, mean)] * (1 - self.service.explored) + self.service.explored / ARMS
        return x, mean, law

    def rewards(self, mean: np.ndarray) -> np.ndarray:
        """What is reported of decisions with these expected rewards."""
        if self.service.is_click:
            return (self.rng.random(mean.shape) < mean).astype(float)
        return 100 * self.rng.beta(mean / 50, 2 - mean / 50)


SERVICES = {
    "clicks, one arm for all": Service(lambda x, mean: np.full(len(x), mean.mean(0).argmax()), is_click=True),
    "amounts, by one column": Service(lambda x, mean: np.where(x[:, 0] > 0, 1, 2)),
    "best arm of each user": Service(lambda x, mean: mean.argmax(1), explored=0.05),
    "worse than uniform": Service(lambda x, mean: mean.argmin(1)),
    "clicks, users change": Service(lambda x, mean: (mean + 0.1 * x[:, :ARMS]).argmax(1), is_click=True, drift=3.0),
}


class Run(NamedTuple):
    """One apprentice."""

    decision: str
    truth: float
    """expected reward after it took over, less that of the rule"""
    holds: bool
    """whether the interval has the true difference of the decisions that it compares"""
    width: float
    others: int
    """decisions before the word that were not the rule's"""
    before: float
    """expected reward of the rule in the shadow, per decision"""
    after: float
    """and of the agent, once it has taken over"""

    @property
    def is_right(self) -> bool:
        """Whether what is claimed, if anything, is true."""
        return {"better": self.truth > 0, "worse": self.truth < 0}.get(self.decision, True)


def run(service: Service, agent: str, seed: int, shadow: int = SHADOW, alone: int = ALONE) -> Run:
    """The shadow, the verdict and what follows."""
    world, each = World(service, seed), np.arange(BATCH)
    site = Spaces(WITHIN, spaces.Discrete(ARMS))
    with seqdec.OnlineAgent(agent, site, seed=seed, capacity=ARMS) as one:

        def turn(place: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
            """Expected rewards of a batch: by the rule, of all arms, of those played; how many are not the rule's."""
            x, mean, law = world.users(BATCH, place / (shadow + alone))
            arms = (world.rng.random((BATCH, 1)) > law.cumsum(1)).sum(1).clip(max=ARMS - 1)
            rule = {"taken": arms.tolist(), "chances": law[each, arms].tolist()} if place < shadow else {}
            made = one.decide_many(x, **rule)
            played = np.array([decision.action for decision in made])
            rewards = world.rewards(mean[each, played]).tolist()
            one.learn_many([(decision.token, reward) for decision, reward in zip(made, rewards, strict=True)])
            return law * mean, mean, mean[each, played], int((played != arms).sum())

        before = [turn(place) for place in range(0, shadow, BATCH)]
        found = one.comparison(seed=seed, reward_range=(0.0, 1.0 if service.is_click else 100.0))
        imitated = shadows(one)
        after = [turn(place) for place in range(shadow, shadow + alone, BATCH)]
    rule, mean, _, others = zip(*before, strict=True)
    inside = (imitated * np.concatenate(mean) - np.concatenate(rule)).sum(1)[shadow // 2 :].mean()
    own = float(np.mean([played for _, _, played, _ in after]))
    today = float(np.mean([law.sum(1) for law, *_ in after]))
    _, low, high = found.difference
    earned = float(np.mean([law.sum(1) for law in rule]))
    return Run(found.decision, own - today, low <= inside <= high, high - low, sum(others), earned, own)


def shadows(one: seqdec.OnlineAgent) -> np.ndarray:
    """(n, k) what the agent would have played."""
    with opened(one._store, one._transact) as database:  # pyright: ignore[reportPrivateUsage]
        laws = [row[9] for row in database.rows("decisions", "ORDER BY number")]
    return np.array([np.frombuffer(law, "<f4") for law in laws if law is not None])


def main(seeds: int = 20, agent: str = "linear") -> None:
    """Print the table."""
    row = table("service", "truth", *DECISIONS, "right", "holds", "width", "reward before", "after", "not the rule's")
    for name, service in SERVICES.items():
        found: list[Run] = []
        try:
            for seed in trange(seeds, desc=name, leave=False):
                found.append(run(service, agent, seed))
        finally:  # also of those before Ctrl-C
            if found:
                _, truth, holds, width, others, before, after = zip(*found, strict=True)
                counts = Counter(one.decision for one in found)
                right = f"{sum(one.is_right for one in found)} of {len(found)}"
                sizes = interval(truth, ".3g"), *(counts[one] for one in DECISIONS), right, f"{np.mean(holds):.2f}"
                rewards = (f"{np.mean(part):.3g}" for part in (width, before, after))
                row(name, *sizes, *rewards, sum(others))


if __name__ == "__main__":
    command(main)
