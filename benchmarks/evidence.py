"""Coverage of the default intervals, and verdicts, in simulated worlds whose truth is known.

    python benchmarks/evidence.py [--worlds rates revenue] [--logs 200] [--seed 0]

Beside them: the interval of Clopper and Pearson for rewards 0 and 1 in the rows that the target might have logged, that
of Vowpal Wabbit (empirical likelihood by Cressie and Read's divergence), and that of Open Bandit Pipeline (percentiles
of resampled w r). The worlds "obp", "contextual", "many", "continuous" and "slates" follow its synthetic data sets.
"""

import functools
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from harness import command, table
from scipy import special

import seqdec
from seqdec import ope

Generator = np.random.Generator


class Case(NamedTuple):
    """A log and what is asked of it."""

    log: Any
    target: Any
    predicted: Any = None
    options: Mapping[str, Any] = MappingProxyType({})
    """of `ope.evaluate` and `ope.overlap`"""


class World(NamedTuple):
    """Logs of one kind."""

    name: str
    truth: float
    """the target's value"""
    draw: Callable[[int], Case]
    """of a seed"""
    estimators: tuple[str, ...] = ("snips",)


def sampled(rng: Generator, law: np.ndarray) -> np.ndarray:
    """(...) an index from each of the laws (..., k)."""
    return (rng.random((*law.shape[:-1], 1)) > law.cumsum(axis=-1)).sum(axis=-1).clip(max=law.shape[-1] - 1)


def taken(law: np.ndarray, action: np.ndarray) -> np.ndarray:
    """(...) entries of (..., k) at the indices (...)."""
    return np.take_along_axis(law, action[..., None], axis=-1)[..., 0]


def greedy(score: np.ndarray, epsilon: float) -> np.ndarray:
    """(..., k) law that plays the best score with probability 1 - epsilon, else any."""
    best = np.eye(score.shape[-1])[score.argmax(axis=-1)]
    return (1 - epsilon) * best + epsilon / score.shape[-1]


def fitted(log: ope.Log) -> np.ndarray:
    """(n, k) rewards by ridge regressions of each action, fitted to the half of the rows that a row is not in."""
    x = np.column_stack([np.ones(len(log)), log.context])
    width, half = x.shape[1], np.arange(len(log)) % 2
    found = np.empty((len(log), log.num_actions))
    for part in (0, 1):
        rows = half != part
        gram = np.broadcast_to(np.eye(width), (log.num_actions, width, width)).copy()
        np.add.at(gram, log.action[rows], x[rows, :, None] * x[rows, None])
        moment = np.zeros((log.num_actions, width))
        np.add.at(moment, log.action[rows], x[rows] * log.reward[rows, None])
        found[~rows] = x[~rows] @ np.linalg.solve(gram, moment[:, :, None])[:, :, 0].T
    return found.clip(log.reward.min(), log.reward.max())


def plain(reward: Callable[[Generator], np.ndarray], truth: float, name: str, target: float = 0.5) -> World:
    """Two arms that pay alike, played with probability 1/2 each."""

    def draw(seed: int) -> Case:
        rng = np.random.default_rng(seed)
        r = reward(rng)
        action = rng.integers(2, size=len(r))
        log = ope.make_log(action=action, reward=r, propensity=np.full(len(r), 0.5), num_actions=2)
        return Case(log, np.tile([target, 1 - target], (len(r), 1)))

    return World(name, truth, draw)


def rates() -> Iterator[World]:
    """Rare clicks; the target is the logging policy, and one of its arms."""
    for rate in (0.0005, 0.001, 0.002, 0.005, 0.01):
        for rows in (1, 10, 100, 1000, 10_000):
            clicks = functools.partial(lambda rng, n, p: rng.binomial(1, p, size=n) * 1.0, n=rows, p=rate)
            yield plain(clicks, rate, f"clicks {rate}, n = {rows:,}")
            if rows >= 1000:
                yield plain(clicks, rate, f"clicks {rate}, n = {rows:,}, one arm", target=1.0)


def revenue() -> Iterator[World]:
    """Rewards with long tails."""

    def lognormal(rng: Generator, n: int) -> np.ndarray:
        return rng.binomial(1, 0.05, size=n) * rng.lognormal(sigma=2, size=n)

    def pareto(rng: Generator, n: int) -> np.ndarray:
        return 1 + rng.pareto(1.5, size=n)

    for rows in (1000, 10_000):
        sold = functools.partial(lognormal, n=rows)
        yield plain(sold, 0.05 * math.exp(2), f"5% lognormal, n = {rows:,}")
        yield plain(sold, 0.05 * math.exp(2), f"5% lognormal, n = {rows:,}, one arm", target=1.0)
        yield plain(functools.partial(pareto, n=rows), 3.0, f"Pareto 1.5, n = {rows:,}")


class Rewards(NamedTuple):
    """Mean rewards of `SyntheticBanditDataset`: x M a + b x + c a, of actions one-hot, as they are or logistic."""

    interaction: np.ndarray
    """(d + 1, k)"""
    logistic: bool

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """(n, k) at contexts (n, d)."""
        z = np.column_stack([np.ones(len(x)), x]) @ self.interaction
        return special.expit(z - z.mean() / z.std()) if self.logistic else z - z.mean() / z.std()

    def drawn(self, rng: Generator, mean: np.ndarray) -> np.ndarray:
        """Rewards of given means."""
        return rng.binomial(1, mean) * 1.0 if self.logistic else rng.normal(mean)


def rewards(actions: int, logistic: bool, seed: int = 12345, dimension: int = 5) -> Rewards:
    """Coefficients uniform in [-1, 1]."""
    rng = np.random.default_rng(seed)
    interaction = rng.uniform(-1, 1, size=(dimension + 1, actions)) + rng.uniform(-1, 1, size=(dimension + 1, 1))
    interaction[0] += rng.uniform(-1, 1, size=actions) + rng.uniform(-1, 1)
    return Rewards(interaction, logistic)


def contextual(
    name: str,
    mean: Rewards,
    rows: int,
    logging: Callable[[np.ndarray, np.ndarray], np.ndarray],
    *,
    epsilon: float = 0.1,
    known: bool = False,
) -> World:
    """Epsilon-greedy target in a world of contexts; `known` tells the log the logging law of all actions."""
    context = np.random.default_rng(1).normal(size=(200_000, len(mean.interaction) - 1))
    q = mean(context)
    truth = float((greedy(q, epsilon) * q).sum(axis=1).mean())

    def draw(seed: int) -> Case:
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(rows, context.shape[1]))
        q = mean(x)
        law = logging(x, q)
        action = sampled(rng, law)
        reward = mean.drawn(rng, taken(q, action))
        log = ope.make_log(
            action=action, reward=reward, propensity=taken(law, action), context=x, num_actions=q.shape[1]
        )
        return Case(log.replace(logging=law) if known else log, greedy(q, epsilon), fitted(log))

    return World(name, truth, draw, ("auto", "snips", "dr"))


def obp() -> Iterator[World]:
    """Softmax of beta times the mean reward as logging policy: nearly deterministic for large |beta|."""
    for logistic in (True, False):
        mean = rewards(10, logistic)
        for beta in (-8, -4, -2, 2, 8):
            for known in (False, True):
                name = f"obp {'logistic' if logistic else 'linear'}, beta {beta}" + ", law known" * known
                yield contextual(name, mean, 1000, lambda x, q, b=beta: special.softmax(b * q, axis=1), known=known)


def support() -> Iterator[World]:
    """Uniform logging of a part of ten actions."""

    def some(x: np.ndarray, q: np.ndarray, never: int) -> np.ndarray:
        return np.broadcast_to((np.arange(10) >= never) / (10 - never), q.shape)

    def here(x: np.ndarray, q: np.ndarray) -> np.ndarray:
        law = np.where((np.arange(10) < 4) & (x[:, :1] > 0), 0.0, 1.0)
        return law / law.sum(axis=1, keepdims=True)

    for logistic in (True, False):
        mean, kind = rewards(10, logistic), "logistic" if logistic else "linear"
        for never in (4, 7):
            logging = functools.partial(some, never=never)
            yield contextual(f"{never} of 10 never, {kind}", mean, 1000, logging, epsilon=0.5)
        yield contextual(f"4 of 10 never in half of the contexts, {kind}", mean, 1000, here, epsilon=0.5)
        yield contextual(f"the same, law known, {kind}", mean, 1000, here, epsilon=0.5, known=True)


def many() -> Iterator[World]:
    """Uniform logging of many actions."""
    for actions, rows in ((200, 2000), (200, 10_000), (1000, 10_000)):
        mean = rewards(actions, True)
        yield contextual(f"{actions} actions, n = {rows:,}", mean, rows, lambda x, q: np.full_like(q, 1 / q.shape[1]))


def clusters() -> Iterator[World]:
    """100 users with 20 rows each, and an effect of deviation 1."""

    def draw(seed: int, arm: float, told: bool) -> Case:
        rng = np.random.default_rng(seed)
        user = np.repeat(np.arange(100), 20)
        reward, action = rng.normal(size=100)[user] + rng.normal(size=2000), rng.integers(2, size=2000)
        log = ope.make_log(action=action, reward=reward, propensity=np.full(2000, 0.5), num_actions=2)
        return Case(log, np.tile([arm, 1 - arm], (2000, 1)), options={"groups": user} if told else {})

    for arm in (0.5, 1.0):
        for told in (False, True):
            name = f"100 users, target {arm}" + ", groups=" * told
            yield World(name, 0.0, functools.partial(draw, arm=arm, told=told))


def continuous() -> Iterator[World]:
    """Rewards, policies and noise of `SyntheticContinuousBanditDataset`, and a wave of uniform actions."""
    coefficients = np.random.default_rng(12345).normal(size=(3, 5))
    power, bias = np.random.default_rng(7).uniform(size=2)
    means = {
        "linear": lambda x, a: np.abs(x @ coefficients[0] - a) ** power + bias,
        "quadratic": lambda x, a: a * (x @ coefficients[0]) + x @ coefficients[1] * a + (a - x @ coefficients[2]) ** 2,
    }
    targets = {"linear": lambda x: x.mean(axis=1), "sine": lambda x: np.sin(x.mean(axis=1))}

    def normal(x: np.ndarray, rng: Generator) -> tuple[np.ndarray, np.ndarray]:
        noise = rng.normal(size=len(x))
        return x.mean(axis=1) + 0.3 + noise, np.exp(-(noise**2) / 2) / math.sqrt(2 * math.pi)

    def far(x: np.ndarray, rng: Generator) -> tuple[np.ndarray, np.ndarray]:
        noise = rng.normal(size=len(x))
        return x @ coefficients[0] + bias + noise, np.exp(-(noise**2) / 2) / math.sqrt(2 * math.pi)

    def uniform(x: np.ndarray, rng: Generator) -> tuple[np.ndarray, np.ndarray]:
        return rng.uniform(-3, 3, size=len(x)), np.full(len(x), 1 / 6)

    for rows in (300, 1000, 3000, 10_000):
        for kind, mean in means.items():
            for logging in (normal, uniform, far):
                for aim, target in targets.items():
                    name = f"{kind}, {logging.__name__} logging, {aim} target, n = {rows:,}"
                    yield numeric(name, 5, rows, mean, logging, target)

        def wave(x: np.ndarray, rng: Generator) -> tuple[np.ndarray, np.ndarray]:
            return rng.uniform(0, 1, size=len(x)), np.ones(len(x))

        for aim, shift in (("inside", 0.0), ("at the edge", 0.25)):
            yield numeric(
                f"wave, target {aim}, n = {rows:,}",
                1,
                rows,
                lambda x, a: np.sin(6 * a) + 0.5 * x[:, 0],
                wave,
                lambda x, s=shift: 0.5 + s + 0.25 * np.tanh(x[:, 0]),
            )


def numeric(
    name: str,
    dimension: int,
    rows: int,
    mean: Callable[[np.ndarray, np.ndarray], np.ndarray],
    logging: Callable[[np.ndarray, Generator], tuple[np.ndarray, np.ndarray]],
    target: Callable[[np.ndarray], np.ndarray],
) -> World:
    """Actions that are numbers; rewards are predicted by a cross-fitted polynomial of degree 2."""
    x = np.random.default_rng(1).normal(size=(400_000, dimension))
    truth = float(mean(x, target(x)).mean())

    def features(x: np.ndarray, a: np.ndarray) -> np.ndarray:
        return np.column_stack([np.ones(len(x)), x, a, a**2, x * a[:, None]])

    def draw(seed: int) -> Case:
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(rows, dimension))
        action, density = logging(x, rng)
        reward, aim = rng.normal(mean(x, action)), target(x)
        predicted, half = np.empty(rows), np.arange(rows) % 2
        for part in (0, 1):
            fit = np.linalg.lstsq(features(x, action)[half != part], reward[half != part])[0]
            predicted[half == part] = features(x, aim)[half == part] @ fit
        return Case(ope.make_continuous_log(action=action, reward=reward, density=density, context=x), aim, predicted)

    return World(name, truth, draw, ("kernel_dr", "kernel_ips(normalized=True)"))


def slates() -> Iterator[World]:
    """Three slots of five items, drawn alone; rewards of a slot depend on its item, those above, or all."""
    slots, items, dimension = 3, 5, 5
    rng = np.random.default_rng(12345)
    slopes, policy = rng.uniform(-1, 1, size=(dimension, items)), rng.uniform(-1, 1, size=(dimension, items))
    apart = np.abs(np.subtract.outer(np.arange(slots), np.arange(slots)))
    decay = np.where(apart > 0, -np.exp(-apart), 0.0)

    def chances(x: np.ndarray, action: np.ndarray, structure: str) -> np.ndarray:
        base = np.take_along_axis(x @ slopes, action, axis=1)
        other = {"independent": np.zeros((slots, slots)), "cascade": np.tril(decay), "standard": decay}[structure]
        return special.expit(base + base @ other.T)

    def laws(x: np.ndarray, score: np.ndarray, scale: float) -> np.ndarray:
        return np.repeat(special.softmax(scale * (x @ score), axis=1)[:, None], slots, axis=1)

    def draw(seed: int, structure: str, rows: int) -> Case:
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(rows, dimension))
        law = laws(x, policy, 0.5)
        action = sampled(rng, law)
        reward = rng.binomial(1, chances(x, action, structure)) * 1.0
        log = ope.make_slate_log(action=action, reward=reward, propensity=taken(law, action))
        return Case(log, laws(x, slopes, 0.5))

    x = rng.normal(size=(500_000, dimension))
    played = sampled(rng, laws(x, slopes, 0.5))
    for structure in ("independent", "cascade", "standard"):
        truth = float(chances(x, played, structure).sum(axis=1).mean())
        for rows in (300, 1000, 10_000):
            drawn = functools.partial(draw, structure=structure, rows=rows)
            names = ("slate_ips(interaction='standard')", "slate_ips", "slate_ips(interaction='independent')")
            yield World(f"{structure}, n = {rows:,}", truth, drawn, names)


def learners() -> Iterator[World]:
    """1,000 decisions of an agent that learns; the target plays one of three arms."""

    def draw(seed: int, arm: int, means: tuple[float, ...]) -> Case:
        log = logged(seed // 50, means).log(seed, num_actions=3)
        return Case(log, np.tile(np.eye(3)[arm], (len(log), 1)))

    for means in ((0.5, 0.45, 0.3), (0.05, 0.04, 0.03)):
        for arm, mean in enumerate(means):
            yield World(f"learner, arm {arm} of {means}", mean, functools.partial(draw, arm=arm, means=means))


@functools.lru_cache(maxsize=1)
def logged(block: int, means: tuple[float, ...]) -> Any:
    """A run of 50 seeds."""
    env = seqdec.envs.bernoulli(means)
    return seqdec.run(
        seqdec.agents.linear(env),
        env,
        1000,
        seed=50 * block,
        num_seeds=50,
        diagnostics=("observation",),
        progress=False,
    )


GROUPS = {one.__name__: one for one in (rates, revenue, obp, support, many, clusters, continuous, slates, learners)}

Ends = tuple[float, float]
UNKNOWN = (math.nan, math.nan)


def clopper_pearson(w: np.ndarray, r: np.ndarray) -> Ends:
    """Of the matched rows, where all have one weight and rewards are 0 or 1."""
    r = r[w > 0]
    if not r.size or np.ptp(w[w > 0]) > 1e-9 or not np.isin(r, (0, 1)).all():
        return UNKNOWN
    hits, n = r.sum(), len(r)
    low = special.betaincinv(hits, n - hits + 1, 0.025) if hits else 0.0
    return float(low), float(special.betaincinv(hits + 1, n - hits, 0.975) if hits < n else 1.0)


def cressie_read(w: np.ndarray, r: np.ndarray) -> Ends:
    """The values that a likelihood ratio of level 95% allows, over laws of (w, r) with mean weight 1.

    With an unseen row of weight 0 or infinity and the least or largest reward (0 and 1, or those of the log).
    References: Karampatziakis, Langford, Mineiro, "Empirical likelihood for contextual bandits", 2020.
    """
    n, bottom, top = len(w), min(0.0, r.min()), max(1.0, r.max())
    phi_infinite = -(1 + 1 / n) - special.fdtri(1, n, 0.95)
    mean, square = w.sum() / (1 + n), (w**2).sum() / (1 + n)
    if w.sum() < n:  # the unseen row has an infinite weight
        phi = phi_infinite / (2 * (1 + n))
    else:
        phi = (-(1 + n) * (mean - 1) ** 2 / max(square - mean**2, 1e-12) - special.fdtri(1, n, 0.95)) / (2 * (1 + n))
    ends = []
    for unseen, sign in ((bottom, 1), (top, -1)):
        excess = w * (r - unseen)
        x = sign * (unseen + excess.sum() / n)
        y = excess.sum() ** 2 / (n * (1 + n)) - (excess**2).sum() / (1 + n)
        found = [x - math.sqrt(max(2 * y * (phi + 1 / (2 * n)), 0.0))]
        variance = square - mean**2
        if variance > 0:
            first, cross = sign * (w * r).sum() / (1 + n), sign * (w**2 * r).sum() / (1 + n)
            covariance, z = cross - mean * first, phi + (1 - mean) ** 2 / variance / 2
            y = covariance**2 / variance - ((w * r) ** 2).sum() / (1 + n) + first**2
            if y * z >= 0 >= z:
                found.append(first + (1 - mean) * covariance / variance - math.sqrt(2 * y * z))
        ends.append(min(top, max(bottom, sign * min(found))))
    return ends[0], ends[1]


def percentiles(w: np.ndarray, r: np.ndarray, seed: int) -> Ends:
    """Bootstrap of the mean of w r."""
    n, rng = len(w), np.random.default_rng(seed)
    means = [(w * r)[rng.integers(n, size=n)].mean() for _ in range(200)]
    return float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


PEERS = {
    "Clopper-Pearson": lambda w, r, seed: clopper_pearson(w, r),
    "Vowpal Wabbit": lambda w, r, seed: cressie_read(w, r),
    "obp": percentiles,
}
VERDICTS = ("can decide", "only in part", "hardly", "too short", "cannot decide", "not decide")


def verdict(case: Case) -> str:
    """The words of the verdict that tell it from others."""
    said = ope.overlap(case.log, case.target, **case.options).verdict
    return next((words for words in VERDICTS if words in said), said)


def share(hits: np.ndarray) -> str:
    """Mean of booleans; nothing of nothing."""
    return f"{hits.mean():.3f}" if hits.size else ""


def measure(world: World, logs: int, seed: int, row: Callable[..., None]) -> None:
    """Print a row for each estimator."""
    said, ends, others = [], [], []
    for number in range(seed, seed + logs):
        case = world.draw(number)
        said.append(verdict(case))
        names = list(world.estimators)
        found = ope.evaluate(
            case.log, case.target, case.predicted, seed=number, estimators=", ".join(names), **case.options
        )
        ends.append(found[["low", "high"]].to_numpy())
        if isinstance(case.log, ope.Log):
            weights = ope.check_target(case.log, case.target).weights
            others.append([one(weights, case.log.reward, number) for one in PEERS.values()])
    low, high = np.moveaxis(np.array(ends), 2, 0)
    decided, hit = np.array(said) == VERDICTS[0], (low <= world.truth) & (world.truth <= high)
    shares = ", ".join(f"{words} {count / logs:.0%}" for words, count in Counter(said).most_common())
    beside = [""] * len(PEERS)
    if others:
        bottom, top = np.moveaxis(np.array(others), 2, 0)
        caught = (bottom <= world.truth) & (world.truth <= top)
        for place in np.flatnonzero(np.isfinite(bottom).all(axis=0)):
            beside[place] = f"{share(caught[:, place])}, {np.median(top - bottom, axis=0)[place]:.3g}"
    for place, name in enumerate(world.estimators):
        width = np.median(high[:, place] - low[:, place])
        row(world.name, name, share(hit[:, place]), share(hit[decided, place]), f"{width:.3g}", shares, *beside)
        world, shares, beside = world._replace(name=""), "", [""] * len(PEERS)


def main(worlds: tuple[str, ...] = tuple(GROUPS), logs: int = 200, seed: int = 0) -> None:
    """Print the table."""
    warnings.simplefilter("ignore", UserWarning)
    peers = [f"{name}: coverage, width" for name in PEERS]
    row = table("world", "estimator", "coverage", 'where it "can decide"', "median width", "verdicts", *peers)
    for group in worlds:
        for world in GROUPS[group]():
            measure(world, logs, seed, row)


if __name__ == "__main__":
    command(main)
