"""Streams of contexts and rewards with a known truth, and tables of data, on which agents differ.

    python benchmarks/streams.py [NAME ...] [--agents CONTENDER ...] [--seeds 5]
    SEQDEC_DATA=folder python benchmarks/streams.py tables --seeds 3

A name is a stream, such as `abrupt` or `plain/tanh`, or a group of them: `candidates`, `boxes`, `plain`, `tables`. Each
stream draws its truth anew for each seed. `plain` has 20 standard normal features, five arms and rewards 0 or 1; with
weights w_a, standard normal, and sigma(z) = 1 / (1 + exp(-z)), arm a pays 1 with probability

    linear          5,000 steps    1/2 + 0.15 w_a^T x / sqrt(20), clipped to [0, 1]
    tanh            5,000 steps    sigma(3/2 tanh(w_a^T x / sqrt(20)))
    interactions   20,000 steps    sigma(2 w_a^T (x_1 x_2, x_3 x_4, |x_5| - 0.8, x_6, sin 2 x_7) / sqrt(5))

`tables` are the first 10,000 rows in random order. Contenders are written as in `benchmarks/peers.py`; they are left
out where they cannot act.

Printed: cumulative regret with its 95% interval over seeds, that of a step, that of a step in the last quarter, that of
the worst seed, of tables in percent of uniform play's, how it grows, and microseconds of a step, of all seeds side by
side divided by their steps. It grows as t^a: printed is a, fitted to each seed from a tenth of the steps to their end,
in the mean and in the seed where it is largest. A seed that settles on a wrong action has 1; 1/2 is the rate in the
worst case of the theory.
"""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from gymnasium.spaces import Box, Dict, Discrete
from harness import command, interval, table
from peers import arguments, regret_of, worlds

import seqdec
from seqdec.core import Array, Environment, TimeStep
from seqdec.envs.outcomes import in_range, reward_and_regret
from seqdec.features import SparseBox

STD, MANY = 0.5, 2000
"""Deviation of the noise of candidates' rewards, whose expectations have one of about 1; rows of the table of items."""


class Stream(NamedTuple):
    """A bandit whose truth is known."""

    arms: int
    steps: int
    start: Callable[[Array], Any]
    """(key) -> truth"""
    show: Callable[[Array, Any, Array], tuple[Any, Any]]
    """(key, truth, step) -> truth, observation"""
    means: Callable[[Any, Any], Array]
    """(truth, observation) -> (arms,) expected rewards"""
    reward: Callable[[Array, Array], Array] = lambda key, mean: mean + STD * jax.random.normal(key)
    """(key, expected reward) -> reward"""
    change: Callable[[Array, Any, Array], Any] = lambda key, truth, step: truth
    """(key, truth, step) -> truth"""
    space: SparseBox | None = None
    """of contexts, where they are rows of one"""


def environment(name: str) -> Environment:
    """The stream or table called `name`."""
    if name in BOXES:
        return _boxed(name)
    return _streamed(name) if name in STREAMS else seqdec.envs.make(name.removeprefix("tables/"))


def _streamed(name: str) -> Environment:
    stream = STREAMS[name]

    def reset(key, params):
        drawn, shown = jax.random.split(key)
        truth, x = stream.show(shown, stream.start(drawn), jnp.int32(0))
        return (truth, x, jnp.int32(0)), x

    def step(key, state, action, params):
        paid, shown, moved = jax.random.split(key, 3)
        truth, x, count = state
        means = stream.means(truth, x)
        got = stream.reward(paid, means[in_range(action, stream.arms)])
        reward, regret = reward_and_regret(action, means, got)
        count = count + 1
        truth, x = stream.show(shown, stream.change(moved, truth, count), count)
        return (truth, x, count), TimeStep(x, reward, regret, jnp.array(False))

    def space(leaf):
        whole = jnp.issubdtype(leaf.dtype, jnp.integer)
        return Box(0, MANY - 1, leaf.shape, np.int32) if whole else Box(-np.inf, np.inf, leaf.shape, np.float32)

    example = jax.eval_shape(lambda key: reset(key, ())[1], jax.random.key(0))
    observed = (
        Dict({part: space(leaf) for part, leaf in example.items()}) if isinstance(example, dict) else space(example)
    )
    return Environment(reset, step, (), stream.space or observed, Discrete(stream.arms), name)


def _boxed(name: str) -> Environment:
    width, size, _, mean, paid = BOXES[name]
    points = jnp.linspace(-1, 1, 401)

    def reset(key, params):
        truth, x = jax.random.normal(key, (width + 1, width)), jnp.zeros(size)
        return (truth, jax.random.normal(jax.random.fold_in(key, 1), (size,)) + x), x

    def step(key, state, action, params):
        truth, x = state
        best = jnp.max(jax.vmap(lambda point: mean(truth, x, point * jnp.ones(width)))(points)) if width == 1 else 1.0
        worth = mean(truth, x, action)
        fresh = jax.random.normal(jax.random.fold_in(key, 1), (size,))
        return (truth, fresh), TimeStep(fresh, paid(key, worth, action), best - worth, jnp.array(False))

    box = Box(-np.inf, np.inf, (size,), np.float32)
    return Environment(reset, step, (), box, Box(-1, 1, (width,), np.float32), name)


# --- contexts, and arms with weights of their own ---


def shown(context: Callable[[Array, Array], Array]) -> Callable[[Array, Any, Array], tuple[Any, Array]]:
    """Contexts that do not depend on the truth."""
    return lambda key, truth, step: (truth, context(key, step))


def normal(*shape: int) -> Callable[[Array, Any, Array], tuple[Any, Array]]:
    """Standard normal contexts."""
    return shown(lambda key, step: jax.random.normal(key, shape))


def linear(arms: int, features: int, steps: int, std: float = STD, **other: Any) -> Stream:
    """Linear rewards of deviation about 1."""
    base = Stream(
        arms, steps, lambda key: jax.random.normal(key, (arms, features)) / features**0.5, normal(features),
        lambda truth, x: truth @ x, lambda key, mean: mean + std * jax.random.normal(key),
    )  # fmt: skip
    return base._replace(**other)


def few_of_many(features: int, scales: Array | float = 1.0) -> Stream:
    """Linear in five numbers of many, in units of these scales."""

    def start(key):
        places, weights = jax.random.split(key)
        at = jax.random.choice(places, features, (5,), replace=False)
        return jnp.zeros((5, features)).at[:, at].set(jax.random.normal(weights, (5, 5)) / 5**0.5)

    context = shown(lambda key, step: scales * jax.random.normal(key, (features,)))
    return linear(5, features, 5000, start=start, show=context, means=lambda truth, x: truth @ (x / scales))


def abrupt(key: Array, truth: Array, step: Array) -> Array:
    """New weights every 3,000 steps."""
    fresh = jax.random.normal(key, truth.shape) / truth.shape[1] ** 0.5
    return jnp.where(step % 3000 == 0, fresh, truth)


def redrawn(key: Array, truth: Array, step: Array) -> Array:
    """New weights every 300 steps."""
    return jnp.where(step % 300 == 0, jax.random.normal(key, truth.shape) / truth.shape[1] ** 0.5, truth)


def drift(key: Array, truth: Array, step: Array) -> Array:
    """A random walk that forgets in about 2,000 steps."""
    rate = 1 / 2000
    fresh = jax.random.normal(key, truth.shape) / truth.shape[1] ** 0.5
    return (1 - rate) ** 0.5 * truth + rate**0.5 * fresh


def won(key: Array, mean: Array) -> Array:
    """1 with this probability, else 0."""
    return jax.random.bernoulli(key, mean).astype(jnp.float32)


def clicks(truth: Array, x: Array) -> Array:
    """Probabilities that are logistic in the context."""
    return jax.nn.sigmoid(2 * truth @ x)


def crowd(shared: float, own: float, steps: int = 10_000, arms: int = 3000, features: int = 10, **other: Any) -> Stream:
    """Many arms whose weights, and mean rewards, are drawn about common ones."""

    def start(key):
        common, each = jax.random.split(key)
        common = shared * jax.random.normal(common, (1, features + 1)) / features**0.5
        drawn = own * jax.random.normal(each, (arms, features + 1))
        return common + drawn.at[:, :-1].multiply(features**-0.5)

    base = Stream(arms, steps, start, normal(features), lambda truth, x: truth[:, :-1] @ x + truth[:, -1])
    return base._replace(**other)


def bernoulli(*probabilities: float, steps: int) -> Stream:
    """Arms whose order is drawn, without context."""

    def start(key):
        return jax.random.permutation(key, jnp.array(probabilities))

    return Stream(len(probabilities), steps, start, shown(lambda *_: jnp.ones(1)), lambda truth, x: truth, won)


def counts(base: float, std: float) -> Stream:
    """Poisson counts, log-linear in the context."""
    return linear(
        5, 5, 6000, means=lambda truth, x: base * jnp.exp(jnp.clip(std * (truth @ x), -4, 4)),
        reward=lambda key, mean: jax.random.poisson(key, mean).astype(jnp.float32),
    )  # fmt: skip


def revenue() -> Stream:
    """Nothing in 19 of 20 steps, else a lognormal amount, log-linear in the context."""
    rate = 0.05

    def reward(key, mean):
        bought, amount = jax.random.split(key)
        paid = mean / rate * jnp.exp(jax.random.normal(amount) - 0.5)
        return jnp.where(jax.random.bernoulli(bought, rate), paid, 0.0)

    means = lambda truth, x: 10 * rate * jnp.exp(jnp.clip(truth @ x, -4, 3))  # noqa: E731
    return linear(5, 5, 10_000, means=means, reward=reward)


def orders() -> Stream:
    """Arms without context, of which 1 to 5 percent of visitors order, for lognormal amounts of mean 82."""

    def reward(key, mean):
        bought, amount = jax.random.split(key)
        size = jnp.exp(4 + 0.9 * jax.random.normal(amount))
        return jnp.where(jax.random.bernoulli(bought, mean / jnp.exp(4 + 0.9**2 / 2)), size, 0.0)

    base = bernoulli(0.01, 0.02, 0.03, 0.04, 0.05, steps=20_000)
    return base._replace(means=lambda truth, x: truth * jnp.exp(4 + 0.9**2 / 2), reward=reward)


def costs() -> Stream:
    """Rewards are costs with a long tail: minus a lognormal variable of scale exp(w x)."""
    return linear(
        5, 10, 6000, means=lambda truth, x: -jnp.exp(0.5 * truth @ x + 0.5),
        reward=lambda key, mean: mean * jnp.exp(jax.random.normal(key) - 0.5),
    )  # fmt: skip


def heavy() -> Stream:
    """Lognormal columns of scales from 1 to 1e6, rewards linear in their logarithms."""
    scales = 10.0 ** jnp.arange(6)
    return linear(
        5, 6, 6000, 0.3, means=lambda truth, x: truth @ (jnp.log(x / scales) / 1.5),
        show=shown(lambda key, step: jnp.exp(jax.random.normal(key, (6,)) * 1.5) * scales),
    )  # fmt: skip


def levels(arms: int, count: int, steps: int) -> Stream:
    """A category of so many levels, each with a reward probability for each arm about the arm's own."""

    def start(key):
        own, each = jax.random.split(key)
        return jax.random.normal(own, (1, arms)) + jax.random.normal(each, (count, arms))

    def context(key, step):
        # Some levels are much more common than others.
        return jax.nn.one_hot(jax.random.categorical(key, -jnp.log1p(jnp.arange(count))), count)

    return Stream(arms, steps, start, shown(context), lambda truth, x: jax.nn.sigmoid(x @ truth), won)


def words(arms: int, buckets: int, steps: int, topics: int = 12, length: int = 25) -> Stream:
    """Texts as hashed words: each of one topic, whose words are half of it, and which decides what arms pay."""
    own = buckets // (2 * topics)

    def context(key, step):
        which, theirs, common, mixed = jax.random.split(key, 4)
        topic = jax.random.randint(which, (), 0, topics)
        special = topic * own + jax.random.randint(theirs, (length,), 0, own)
        usual = jax.random.categorical(common, -jnp.log1p(jnp.arange(buckets)), shape=(length,))
        word = jnp.where(jax.random.bernoulli(mixed, 0.5, (length,)), special, usual)
        # The topic is kept as a fraction too small to matter.
        return jnp.zeros(buckets).at[word].add(1.0).at[0].add(1e-4 * topic.astype(float))

    def means(truth, x):
        topic = jnp.round(1e4 * (x[0] - jnp.floor(x[0]))).astype(int)
        return jax.nn.sigmoid(truth[topic])

    return Stream(arms, steps, lambda key: 1.5 * jax.random.normal(key, (topics, arms)), shown(context), means, won)


BUCKETS, LONGEST = 100_000, 60
"""Numbers in a hashed context, and most that are not zero."""
COLUMNS = np.array([5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 20_000, 50_000])
"""Levels of columns."""


def hashed(arms: int, columns: bool = False) -> Stream:
    """Contexts by their numbers that are not zero, words or levels; each has a normal weight for each arm.

    Those of levels have a part that is the same for all arms.
    """

    def means(truth, x):
        key = jax.random.wrap_key_data(truth)
        every = jax.vmap(lambda word: jax.random.normal(jax.random.fold_in(key, word), (arms + 1,)))(
            x[:, 0].astype(int)
        )
        each = 1.5 * (0.7 * every[:, 1:] + every[:, :1]) if columns else every[:, 1:]
        score = jnp.sum(each * x[:, 1:], 0) / jnp.sqrt(jnp.sum(x[:, 1]))
        return score + 0.5 * jax.random.normal(key, (arms,))

    show = shown(levels_of_columns if columns else text)
    return Stream(arms, 5000, jax.random.key_data, show, means, space=SparseBox(BUCKETS, LONGEST))


def clicked(stream: Stream) -> Stream:
    """Clicks, with probabilities that are logistic in the expected reward."""
    return stream._replace(means=lambda truth, x: jax.nn.sigmoid(stream.means(truth, x) - 1), reward=won)


def scaled(stream: Stream) -> Stream:
    """Amounts a hundred times as large, with normal noise."""
    noisy = lambda key, mean: mean + 50 * jax.random.normal(key)  # noqa: E731
    return stream._replace(means=lambda truth, x: 100 * stream.means(truth, x), reward=noisy)


def zipf(key: Array, counts: Any, shape: tuple[int, ...] = ()) -> Array:
    """Numbers below `counts`, of probabilities about proportional to 1 / (1 + number)."""
    drawn = jnp.exp(jax.random.uniform(key, shape or jnp.shape(counts)) * jnp.log(counts + 1.0))
    return jnp.minimum(drawn.astype(int) - 1, jnp.asarray(counts) - 1)


def sparse_row(words: Array, present: Array) -> Array:
    """(60, 2) of words, each one once."""
    words = jnp.sort(jnp.where(present, words, BUCKETS))
    once = (words < BUCKETS) & (words != jnp.append(-1, words[:-1]))
    row = jnp.where(once[:, None], jnp.stack([words, once], 1), 0)
    return jnp.pad(row, ((0, LONGEST - len(row)), (0, 0))).astype(jnp.float32)


def text(key: Array, step: Array) -> Array:
    """30 to 60 words by Zipf's law, fewer where some recur."""
    length, words = jax.random.split(key)
    present = jnp.arange(LONGEST) < jax.random.randint(length, (), LONGEST // 2, LONGEST + 1)
    return sparse_row(zipf(words, BUCKETS, (LONGEST,)), present)


def topical(key: Array, truth: Any, step: Array) -> tuple[Any, Array]:
    """The same, of which three in ten are of one of twenty topics, the last entry of the truth."""
    base, which, mixed, theirs = jax.random.split(key, 4)
    row, topic = text(base, step), jax.random.randint(which, (), 0, 20)
    special = 10_000 + topic * 2000 + zipf(theirs, 2000, (LONGEST,))
    mine = jax.random.bernoulli(mixed, 0.3, (LONGEST,))
    return (truth[0], topic), sparse_row(jnp.where(mine, special, row[:, 0].astype(int)), row[:, 1] > 0)


def levels_of_columns(key: Array, step: Array) -> Array:
    """A level of each of twelve columns."""
    first = np.cumsum(np.append(0, COLUMNS[:-1]))
    return sparse_row(first + zipf(key, COLUMNS), jnp.ones(len(COLUMNS), bool))


def plain(steps: int, means: Callable[[Array, Array], Array], features: int = 20) -> Stream:
    """Five arms with normal weights (5, features), 20 standard normal numbers, rewards 0 or 1."""
    return Stream(5, steps, lambda key: jax.random.normal(key, (5, features)), normal(20), means, won)


def interactions(weights: Array, x: Array) -> Array:
    """Of products, an absolute value, a linear and a periodic term."""
    terms = jnp.stack([x[0] * x[1], x[2] * x[3], jnp.abs(x[4]) - 0.8, x[5], jnp.sin(2 * x[6])])
    return jax.nn.sigmoid(2 * weights @ terms / 5**0.5)


class Clock(NamedTuple):
    """Two sets of weights, and the step."""

    first: Array
    second: Array
    step: Array


def timed(steps: int, means: Callable[[Clock, Array], Array]) -> Stream:
    """Five arms whose rewards depend on the step too."""

    def start(key):
        return Clock(*jax.random.normal(key, (2, 5, 10)) / 10**0.5, jnp.int32(0))

    return linear(5, 10, steps, start=start, means=means, change=lambda key, truth, step: truth._replace(step=step))


def cycle(truth: Clock, x: Array) -> Array:
    """A hidden cycle of 300 steps in the reward of each arm."""
    phase = 2 * jnp.pi * truth.step / 300
    return truth.first @ x + 2 * (jnp.cos(phase) * truth.second[:, 0] + jnp.sin(phase) * truth.second[:, 1])


def regimes(truth: Clock, x: Array) -> Array:
    """Two sets of weights, a thousand steps each in turns."""
    return jnp.where(truth.step // 1000 % 2 == 0, truth.first, truth.second) @ x


def rise(truth: Clock, x: Array) -> Array:
    """All rewards rise by ten deviations of the noise at step 3,000."""
    return truth.first @ x + jnp.where(truth.step >= 3000, 10 * STD, 0.0)


def woken(key: Array, truth: Array, step: Array) -> Array:
    """At step 2,000 the worst arm becomes the best."""
    return jnp.where((step == 2000) & (truth == jnp.min(truth)), 0.9, truth)


# --- candidates with features ---


def candidates(n: int, size: int, steps: int, means: Callable[[Array, Array], Array], scale: float = 1) -> Stream:
    """Candidates with features, one weight vector."""

    def show(key, truth, step):
        return truth, {"features": jax.random.normal(key, (n, size))}

    def start(key):
        return jax.random.normal(key, (size,)) / scale

    return Stream(n, steps, start, show, lambda truth, x: means(truth, x["features"]))


def bilinear(n: int, size: int) -> Stream:
    """Bilinear in a context, the same in each row, and the features of candidates."""

    def show(key, truth, step):
        own, shared = jax.random.split(key)
        user = jnp.broadcast_to(jax.random.normal(shared, (size,)), (n, size))
        return truth, {"item": jax.random.normal(own, (n, size)), "user": user}

    return Stream(
        n, 4000, lambda key: jax.random.normal(key, (size, size)) / size, show,
        lambda truth, x: jnp.einsum("ni,ij,nj->n", x["user"], truth, x["item"]),
    )  # fmt: skip


class Shop(NamedTuple):
    """Items on offer, and how they are judged."""

    weights: Array
    features: Array
    effects: Array
    ids: Array
    next: Array


def shop(n: int, size: int, std: float) -> Stream:
    """Items with features and effects of their own, of which one is replaced every twenty steps on average."""

    def start(key):
        weights, items, effects = jax.random.split(key, 3)
        ids = jnp.arange(n, dtype=jnp.int32)
        return Shop(
            jax.random.normal(weights, (size,)) / size**0.5, jax.random.normal(items, (n, size)),
            std * jax.random.normal(effects, (n,)), ids, jnp.int32(n),
        )  # fmt: skip

    def show(key, truth, step):
        chance, place, items, effects = jax.random.split(key, 4)
        new = jax.random.bernoulli(chance, 0.05) & (truth.next < MANY)
        at = jnp.where(new, jax.random.randint(place, (), 0, n), n)
        truth = Shop(
            truth.weights,
            truth.features.at[at].set(jax.random.normal(items, (size,)), mode="drop"),
            truth.effects.at[at].set(std * jax.random.normal(effects), mode="drop"),
            truth.ids.at[at].set(truth.next, mode="drop"),
            truth.next + new,
        )
        return truth, {"features": truth.features, "item": truth.ids}

    return Stream(n, 4000, start, show, lambda truth, x: x["features"] @ truth.weights + truth.effects)


def market(n: int, size: int) -> Stream:
    """Such items, judged linearly and bilinearly by a user whose numbers are the same in each row."""
    items, judged = shop(n, size, 0.0), bilinear(n, size)

    def start(key):
        own, taste = jax.random.split(key)
        return items.start(own), judged.start(taste)

    def show(key, truth, step):
        moved, seen = jax.random.split(key)
        own, offer = items.show(moved, truth[0], step)
        user = jnp.broadcast_to(jax.random.normal(seen, (size,)), (n, size))
        return (own, truth[1]), {"features": offer["features"], "user": user}

    def means(truth, x):
        return x["features"] @ truth[0].weights + judged.means(truth[1], {"item": x["features"], "user": x["user"]})

    return Stream(n, 4000, start, show, means)


STREAMS: dict[str, Stream] = {
    "costs": costs(),
    "counts": counts(1.0, 1.0),
    "counts of 5": counts(5.0, 0.5),
    "revenue": revenue(),
    "orders": orders(),
    "abrupt": linear(5, 10, 12_000, change=abrupt),
    "drift": linear(5, 10, 12_000, change=drift),
    "abrupt 0/1": linear(5, 10, 12_000, means=clicks, reward=won, change=abrupt),
    "drift 0/1": linear(5, 10, 12_000, means=clicks, reward=won, change=drift),
    "crowd/shared": crowd(1.0, 0.3),
    "crowd/alone": crowd(0.0, 1.0),
    "crowd/few": crowd(0.0, 1.0, 4000, 100),
    "crowd/clicks": crowd(
        1.0, 0.7, means=lambda truth, x: jax.nn.sigmoid(truth[:, :-1] @ x + truth[:, -1] - 2), reward=won
    ),
    "redrawn": linear(5, 10, 12_000, change=redrawn),
    "cycle": timed(12_000, cycle),
    "regimes": timed(8000, regimes),
    "rise": timed(6000, rise),
    "woken": bernoulli(0.5, 0.45, 0.4, 0.35, 0.1, steps=6000)._replace(change=woken),
    "half": bernoulli(0.5, 0.45, 0.4, 0.3, 0.55, steps=10_000),
    "rare": bernoulli(0.01, 0.002, steps=20_000),
    "exact": linear(5, 10, 4000),
    "wide": linear(10, 10, 5000),
    "heavy": heavy(),
    "sparse/300": few_of_many(300),
    "sparse/300 units": few_of_many(300, 10.0 ** jnp.linspace(0, 4, 300)),
    "levels": levels(5, 1000, 10_000),
    "words": words(5, 2000, 10_000),
    "hashed/words": clicked(hashed(5)),
    "hashed/amounts": scaled(hashed(10)),
    "hashed/topics": clicked(
        hashed(5)._replace(
            start=lambda key: (1.5 * jax.random.normal(key, (20, 5)), jnp.int32(0)),
            show=topical,
            means=lambda truth, x: truth[0][truth[1]],
        )
    ),
    "hashed/columns": clicked(hashed(5, columns=True)),
    "plain/linear": plain(5000, lambda weights, x: jnp.clip(0.5 + 0.15 * weights @ x / 20**0.5, 0, 1)),
    "plain/tanh": plain(5000, lambda weights, x: jax.nn.sigmoid(1.5 * jnp.tanh(weights @ x / 20**0.5))),
    "plain/interactions": plain(20_000, interactions, 5),
    "candidates/10": candidates(10, 10, 2000, lambda truth, x: x @ truth, 10**0.5),
    "candidates/100": candidates(100, 10, 2000, lambda truth, x: x @ truth, 10**0.5),
    "candidates/bilinear": bilinear(20, 5),
    "candidates/bump": candidates(20, 4, 4000, lambda truth, x: 3 * jnp.exp(-0.5 * jnp.sum((x - truth) ** 2, 1) / 4)),
    "candidates/shop": shop(20, 5, 0.0),
    "candidates/shop with effects": shop(20, 5, 0.5),
    "candidates/market": market(20, 4),
}


# --- actions in a box ---


def bump(truth: Array, x: Array, action: Array) -> Array:
    """The best action is a squashed linear function of the context."""
    best = jnp.tanh(x @ jnp.resize(truth[0], x.shape) + 0.3 * truth[1, 0])
    return jnp.exp(-((action[0] - best) ** 2) / 0.1)


def price(truth: Array, x: Array, action: Array) -> Array:
    """Revenue: a price from 0 to 10 times a chance of buying that falls with it, by the context."""
    paid = 5 * (action[0] + 1)
    level = 4 + x @ jnp.resize(truth[0], x.shape) / x.size**0.5
    return paid / 10 * jax.nn.sigmoid(2 * (level - paid))


def steep(truth: Array, x: Array, action: Array) -> Array:
    """Revenue in hundreds: a price from 1 to 100 times a chance of buying that falls steeply, by the context."""
    level = 50 + 15 * x @ jnp.resize(truth[0], x.shape) / x.size**0.5
    return price_of(action) / 100 * jax.nn.sigmoid(level - price_of(action))


def price_of(action: Array) -> Array:
    """From 1 to 100."""
    return 1 + 99 / 2 * (action[0] + 1)


def dose(truth: Array, x: Array, action: Array) -> Array:
    """A product of bumps in several coordinates, at places that depend on the context."""
    best = jnp.tanh(x[: truth.shape[1]] @ truth[1:] / truth.shape[1] ** 0.5 + truth[0] * 0.3)
    return jnp.exp(-jnp.sum((action - best) ** 2))


def noisy(key: Array, mean: Array, action: Array) -> Array:
    """Normal rewards."""
    return mean + 0.1 * jax.random.normal(key)


def sold(key: Array, mean: Array, action: Array) -> Array:
    """The price or nothing, in hundreds."""
    paid = price_of(action) / 100
    return paid * jax.random.bernoulli(key, mean / paid)


BOXES: dict[str, tuple[int, int, int, Callable[..., Array], Callable[..., Array]]] = {
    "boxes/bump": (1, 3, 3000, bump, noisy),
    "boxes/price": (1, 5, 3000, price, noisy),
    "boxes/steep": (1, 3, 3000, steep, noisy),
    "boxes/sales": (1, 3, 3000, steep, sold),
    "boxes/dose": (3, 3, 3000, dose, noisy),
}
"""dimensions of the action, of the context, steps, (truth, context, action) -> expected reward, and a reward of it"""
TABLES = tuple(f"tables/{name}" for name in ("statlog", "mushroom", "adult", "financial"))


def steps_of(name: str, env: Environment) -> int:
    """The steps of a stream or table."""
    if name in TABLES:
        return min(10_000, len(env.params.features))
    return STREAMS[name].steps if name in STREAMS else BOXES[name][2]


def fits(contender: str, name: str) -> bool:
    """Whether a contender acts on a stream."""
    kind = arguments(contender)[0]
    if kind in ("bumps", "grid"):
        return name in BOXES and BOXES[name][0] == 1
    if name.startswith("hashed") or kind == "hashed":
        return name.startswith("hashed") and kind in ("auto", "hashed", "random", "vw")
    if kind in ("products", "shared"):
        return name.startswith("candidates")
    return not name.startswith(("candidates", "boxes")) or kind in seqdec.agents.names()


def exponents(regret: np.ndarray) -> np.ndarray:
    """(seeds,) least-squares slopes of log cumulative regret over log t, from regret (seeds, steps)."""
    steps = regret.shape[1]
    at = np.unique(np.geomspace(max(1, steps // 10), steps, 30).astype(int))
    total = np.maximum(np.cumsum(regret, 1)[:, at - 1], 1e-9)
    return np.polyfit(np.log(at), np.log(total).T, 1)[0]


def main(
    names: Annotated[tuple[str, ...], tyro.conf.Positional] = tuple(STREAMS),
    agents: tuple[str, ...] = ("auto", "linear"),
    seeds: int = 5,
    seed: int = 0,
    steps: int | None = None,
) -> None:
    """Print a row for each stream or table and contender."""
    row = table("stream", "agent", "regret", "a step", "last quarter", "worst", "% of uniform", "grows", "us of a step")
    every, drawn = (*STREAMS, *BOXES, *TABLES), range(seed, seed + seeds)
    for name in [one for one in every if one in names or one.partition("/")[0] in names]:
        env = environment(name)
        length = steps or steps_of(name, env)
        uniform = [world.regret.mean(1).sum() for world in worlds(env, length, drawn)] if name in TABLES else np.nan
        for each in [one for one in agents if fits(one, name)]:
            regret, seconds = regret_of(each, env, length, drawn)
            total, growth = regret.sum(1), exponents(regret)
            last = interval(regret[:, -length // 4 :].mean(1))
            percent = interval(total / np.asarray(uniform), unit=100) if name in TABLES else ""
            grows, time = f"{growth.mean():.2f}, {growth.max():.2f}", f"{1e6 * seconds / regret.size:.0f}"
            row(name, each, interval(total), interval(regret.mean(1)), last, f"{total.max():.4g}", percent, grows, time)


if __name__ == "__main__":
    command(main)
