"""Streams of contexts and rewards on which agents differ: origins and units, change, rare rewards, long tails.

    python benchmarks/streams.py [STREAM ...] [--agents AGENT ...] [--seeds 5]

Each stream draws its truth anew for each seed. Printed for each stream and agent: cumulative regret with its 95%
interval over seeds, that of the last quarter, that of the worst seed, how it grows, and microseconds of a step, of all
seeds side by side divided by their steps. It grows as t^a: printed is a, fitted to each seed from a tenth of the steps
to their end, in the mean and in the seed where it is largest. A seed that settles on a wrong action has 1; 1/2 is the
rate in the worst case of the theory.

An agent is a name of seqdec, with a half-life, or inf for None, after @ and a policy and its options after colons if
they are not the defaults, such as `linear@200:ucb`; or `linucb:ALPHA`, LinUCB with ridge 1 and an intercept, on
contexts and rewards as they are; `linucb:ALPHA:H`, the same with observations that count half after H steps; or `beta`,
Thompson sampling of Bernoulli arms. `vw:OPTIONS` and `mabwiser:POLICY:SETTINGS` are learners of these libraries (`pip
install vowpalwabbit mabwiser`), which meet the same contexts and rewards one seed after the other, such as
"vw:--squarecb" and "mabwiser:LinUCB:alpha=0.3:scale=1".
"""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import plain
import tyro
from gymnasium.spaces import Box, Discrete
from harness import command, interval, played, table

from seqdec import agents, policies
from seqdec.core import Action, Agent, Array, Environment, TimeStep
from seqdec.envs.outcomes import in_range, reward_and_regret


class Stream(NamedTuple):
    """A bandit whose truth is known."""

    arms: int
    features: int
    steps: int
    start: Callable[[Array], Any]
    """(key) -> truth"""
    means: Callable[[Any, Array], Array]
    """(truth, context) -> (arms,) expected rewards"""
    reward: Callable[[Array, Array], Array]
    """(key, expected reward) -> reward"""
    context: Callable[[Array, Array], Array]
    """(key, step) -> context"""
    change: Callable[[Array, Any, Array], Any] = lambda key, truth, step: truth
    """(key, truth, step) -> truth"""


def environment(name: str) -> Environment:
    """The stream called `name`."""
    stream = STREAMS[name]

    def reset(key, params):
        drawn, shown = jax.random.split(key)
        x = stream.context(shown, jnp.int32(0))
        return (stream.start(drawn), x, jnp.int32(0)), x

    def step(key, state, action, params):
        paid, shown, moved = jax.random.split(key, 3)
        truth, x, count = state
        means = stream.means(truth, x)
        got = stream.reward(paid, means[in_range(action, stream.arms)])
        reward, regret = reward_and_regret(action, means, got)
        count = count + 1
        x = stream.context(shown, count)
        return (stream.change(moved, truth, count), x, count), TimeStep(x, reward, regret, jnp.array(False))

    box = Box(-np.inf, np.inf, (stream.features,), np.float32)
    return Environment(reset, step, (), box, Discrete(stream.arms), name)


def normal_weights(arms: int, features: int) -> Callable[[Array], Array]:
    """Weights (arms, features) whose product with a standard normal context has variance 1."""
    return lambda key: jax.random.normal(key, (arms, features)) / features**0.5


def normal_context(features: int) -> Callable[[Array, Array], Array]:
    """Standard normal numbers."""
    return lambda key, step: jax.random.normal(key, (features,))


def linear(arms: int, features: int, steps: int, std: float, **other: Any) -> Stream:
    """Linear rewards of deviation about 1."""
    location, scale = other.pop("location", 0.0), other.pop("scale", 1.0)

    def means(truth, x):
        return location + scale * (truth @ x[: truth.shape[1]])

    base = Stream(
        arms, features, steps, normal_weights(arms, other.pop("relevant", features)), means,
        lambda key, mean: mean + scale * std * jax.random.normal(key), normal_context(features),
    )  # fmt: skip
    return base._replace(**other)


def abrupt(key: Array, truth: Array, step: Array) -> Array:
    """New weights every 3,000 steps."""
    fresh = jax.random.normal(key, truth.shape) / truth.shape[1] ** 0.5
    return jnp.where(step % 3000 == 0, fresh, truth)


def drift(key: Array, truth: Array, step: Array) -> Array:
    """A random walk that forgets in about 2,000 steps."""
    rate = 1 / 2000
    fresh = jax.random.normal(key, truth.shape) / truth.shape[1] ** 0.5
    return (1 - rate) ** 0.5 * truth + rate**0.5 * fresh


def bernoulli(probabilities: tuple[float, ...], steps: int, columns: int = 0) -> Stream:
    """Arms whose order is drawn, without context, or with one that does not matter."""

    def start(key):
        return jax.random.permutation(key, jnp.array(probabilities))

    return Stream(
        len(probabilities), max(columns, 1), steps, start, lambda truth, x: truth,
        bernoulli_reward,
        normal_context(columns) if columns else lambda key, step: jnp.ones(1),
    )  # fmt: skip


def bernoulli_reward(key: Array, mean: Array) -> Array:
    """1 with this probability, else 0."""
    return jax.random.bernoulli(key, mean).astype(jnp.float32)


def clicks(arms: int, features: int, steps: int, base: float) -> Stream:
    """Click rates about `base`, log-linear in the context."""

    def means(truth, x):
        return jnp.clip(base * jnp.exp(truth @ x), 0, 0.5)

    return linear(arms, features, steps, 0.0)._replace(means=means, reward=bernoulli_reward)


def counts(arms: int, features: int, steps: int, base: float, std: float) -> Stream:
    """Poisson counts, log-linear in the context."""

    def means(truth, x):
        return base * jnp.exp(jnp.clip(std * (truth @ x), -4, 4))

    def reward(key, mean):
        return jax.random.poisson(key, mean).astype(jnp.float32)

    return linear(arms, features, steps, 0.0)._replace(means=means, reward=reward)


def revenue() -> Stream:
    """Nothing in 19 of 20 steps, else a lognormal amount, log-linear in the context."""
    rate = 0.05

    def means(truth, x):
        return 10 * rate * jnp.exp(jnp.clip(truth @ x, -4, 3))

    def reward(key, mean):
        bought, amount = jax.random.split(key)
        paid = mean / rate * jnp.exp(jax.random.normal(amount) - 0.5)
        return jnp.where(jax.random.bernoulli(bought, rate), paid, 0.0)

    return linear(5, 5, 10_000, 0.0)._replace(means=means, reward=reward)


def costs() -> Stream:
    """Rewards are costs with a long tail: minus a lognormal variable of scale exp(w x)."""

    def means(truth, x):
        return -jnp.exp(0.5 * truth @ x + 0.5)

    def reward(key, mean):
        return mean * jnp.exp(jax.random.normal(key) - 0.5)

    return linear(5, 10, 6000, 0.0)._replace(means=means, reward=reward)


def heavy(key: Array, step: Array) -> Array:
    """Lognormal columns of scales from 1 to 1e6."""
    return jnp.exp(jax.random.normal(key, (6,)) * 1.5) * 10.0 ** jnp.arange(6)


def heavy_means(truth: Array, x: Array) -> Array:
    """Linear in the logarithms of the columns."""
    logs = jnp.log(x / 10.0 ** jnp.arange(6)) / 1.5
    return truth @ logs


def absurd_context(key: Array, step: Array) -> Array:
    """Standard normal, but for one value of 1e6 in step 300."""
    return jax.random.normal(key, (10,)) + jnp.where((step == 300) & (jnp.arange(10) == 0), 1e6, 0)


def rings(key: Array) -> Array:
    """Nothing is drawn: only the number of arms counts."""
    return jax.random.normal(key, (3, 1))


def ring_means(truth: Array, x: Array) -> Array:
    """Each arm is best in a ring of the plane."""
    radius = jnp.linalg.norm(x)
    return jnp.exp(-((radius - jnp.array([0.5, 1.2, 2.0])) ** 2) / 0.18) + 0 * truth[:, 0]


def levels(arms: int, count: int, steps: int) -> Stream:
    """A category of so many levels, each with a reward probability for each arm about the arm's own."""

    def start(key):
        own, each = jax.random.split(key)
        return jax.random.normal(own, (1, arms)) + jax.random.normal(each, (count, arms))

    def context(key, step):
        # Some levels are much more common than others.
        return jax.nn.one_hot(jax.random.categorical(key, -jnp.log1p(jnp.arange(count))), count)

    return Stream(arms, count, steps, start, lambda truth, x: jax.nn.sigmoid(x @ truth), bernoulli_reward, context)


def words(arms: int, buckets: int, steps: int, topics: int = 12, length: int = 25) -> Stream:
    """Texts as hashed words: each of one topic, whose words are half of it, and which decides what arms pay."""
    own = buckets // (2 * topics)

    def start(key):
        return 1.5 * jax.random.normal(key, (topics, arms))

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

    return Stream(arms, buckets, steps, start, means, bernoulli_reward, context)


STREAMS: dict[str, Stream] = {
    **{f"location {b}": linear(5, 10, 4000, 0.5, location=float(b)) for b in (0, 10, 30, 100, 1000, -100)},
    **{f"scale {s:g}": linear(5, 10, 4000, 0.5, scale=s) for s in (1e-6, 1e6)},
    "costs": costs(),
    "counts": counts(5, 5, 6000, 1.0, 1.0),
    "counts of 5": counts(5, 5, 6000, 5.0, 0.5),
    "revenue": revenue(),
    "abrupt": linear(5, 10, 12_000, 0.5, change=abrupt),
    "drift": linear(5, 10, 12_000, 0.5, change=drift),
    "bernoulli": bernoulli((0.1, 0.05, 0.08, 0.02, 0.04), 20_000),
    "half": bernoulli((0.5, 0.45, 0.4, 0.3, 0.55), 10_000),
    "half, columns": bernoulli((0.5, 0.45, 0.4, 0.3, 0.55), 10_000, 10),
    "rare": bernoulli((0.01, 0.002), 20_000),
    "clicks": clicks(5, 5, 20_000, 0.02),
    "exact": linear(5, 10, 4000, 0.5),
    "noiseless": linear(5, 10, 4000, 0.001),
    "extra": linear(5, 40, 4000, 0.5, relevant=5),
    "wide": linear(10, 10, 5000, 0.5),
    "heavy": linear(5, 6, 6000, 0.3)._replace(means=heavy_means, context=heavy),
    "absurd context": linear(5, 10, 4000, 0.5, context=absurd_context),
    "levels": levels(5, 1000, 10_000),
    "words": words(5, 2000, 10_000),
    "rings": linear(3, 2, 5000, 0.2)._replace(start=rings, means=ring_means),
}


class Ridge(NamedTuple):
    """Sums of ridge regressions, one for each arm."""

    gram: Array
    inverse: Array
    moment: Array


def linucb(env: Environment, alpha: float, half_life: float = np.inf) -> Agent:
    """LinUCB of Li et al. 2010; with a half-life D-LinUCB of Russac et al. 2019 without its second matrix."""
    arms, size = int(env.action_space.n), env.observation_space.shape[0] + 1  # pyright: ignore
    keep = 0.5 ** (1 / half_life)

    def init(key):
        eye = jnp.broadcast_to(jnp.eye(size), (arms, size, size))
        return Ridge(eye, eye, jnp.zeros((arms, size)))

    def act(key, state, x):
        phi = jnp.append(x, 1.0)
        mean = jnp.einsum("afk,ak,f->a", state.inverse, state.moment, phi)
        width = jnp.sqrt(jnp.einsum("afk,f,k->a", state.inverse, phi, phi))
        score = mean + alpha * width + 1e-9 * jax.random.uniform(key, mean.shape)
        return Action(jnp.argmax(score), jnp.float32(1))

    def update(state, x, action, reward):
        phi = jnp.append(x, 1.0)
        gram = state.gram if keep == 1 else keep * state.gram + (1 - keep) * jnp.eye(size)
        gram = gram.at[action].add(jnp.outer(phi, phi))
        moment = (keep * state.moment).at[action].add(reward * phi)
        if keep == 1:
            p = state.inverse[action] @ phi
            inverse = state.inverse.at[action].add(-jnp.outer(p, p) / (1 + phi @ p))
        else:
            inverse = jnp.linalg.inv(gram)
        return Ridge(gram, inverse, moment), None

    return Agent(init, act, update, "linucb", True, {})


def beta(env: Environment) -> Agent:
    """Thompson sampling of Bernoulli arms."""
    arms = int(env.action_space.n)  # pyright: ignore

    def act(key, state, x):
        return Action(jnp.argmax(jax.random.beta(key, 1 + state[0], 1 + state[1])), jnp.float32(jnp.nan))

    def update(state, x, action, reward):
        won, lost = state
        return (won.at[action].add(reward), lost.at[action].add(1 - reward)), None

    return Agent(lambda key: (jnp.zeros(arms), jnp.zeros(arms)), act, update, "beta", False, {})


def contender(name: str, env: Environment) -> Agent:
    """The agent called `name`, as at the head of this file."""
    kind, *options = name.split(":")
    kind, _, half_life = kind.partition("@")
    forgets: dict[str, Any] = {"half_life": None if half_life == "inf" else float(half_life)} if half_life else {}
    if kind == "linucb":
        return linucb(env, *map(float, options))
    if kind == "beta":
        return beta(env)
    if not options:
        return agents.make(kind, env, **forgets)
    policy, *settings = options
    return agents.make(kind, env, policy=policies.make(policy, **settings_of(settings)), **forgets)


def settings_of(options: list[str]) -> dict[str, float]:
    """The numbers of options such as alpha=0.3."""
    pairs = (option.split("=") for option in options)
    return {key: float(value) for key, value in pairs}


def mabwiser(text: str) -> Callable[[int, int], plain.Step]:
    """The learning policy of MABWiser after `mabwiser:`."""
    policy, *options = text.split(":")
    settings: dict[str, float] = {
        key: bool(value) if key == "scale" else value for key, value in settings_of(options).items()
    }
    return plain.mabwiser(policy, **settings)


LIBRARIES: dict[str, Callable[[str], Callable[[int, int], plain.Step]]] = {
    "vw": plain.vowpal_wabbit,
    "mabwiser": mabwiser,
}


def regret_of(name: str, env: Environment, steps: int, seeds: range) -> tuple[np.ndarray, float]:
    """Regret (seeds, steps) of the contender called `name`, and seconds of all steps."""
    kind, _, options = name.partition(":")
    if kind in LIBRARIES:
        return plain.peer_regret(LIBRARIES[kind](options), plain.worlds(env, steps, seeds), seeds)
    return played(contender(name, env), env, steps, seeds)


def exponents(regret: np.ndarray) -> np.ndarray:
    """(seeds,) least-squares slopes of log cumulative regret over log t, from regret (seeds, steps)."""
    steps = regret.shape[1]
    at = np.unique(np.geomspace(max(1, steps // 10), steps, 30).astype(int))
    total = np.maximum(np.cumsum(regret, 1)[:, at - 1], 1e-9)
    return np.polyfit(np.log(at), np.log(total).T, 1)[0]


def main(
    names: Annotated[tuple[str, ...], tyro.conf.Positional] = (),
    agents: tuple[str, ...] = ("auto", "linear"),
    seeds: int = 5,
    seed: int = 0,
    steps: int | None = None,
) -> None:
    """Print a row for each stream and agent."""
    row = table("stream", "agent", "regret", "last quarter", "worst seed", "grows", "us of a step")
    for name in names or STREAMS:
        env, length = environment(name), steps or STREAMS[name].steps
        for each in agents:
            regret, seconds = regret_of(each, env, length, range(seed, seed + seeds))
            total, last, growth = regret.sum(1), regret[:, -length // 4 :].sum(1), exponents(regret)
            grows = f"{growth.mean():.2f}, {growth.max():.2f}"
            time = f"{1e6 * seconds / regret.size:.0f}"
            row(name, each, interval(total), f"{last.mean():.4g}", f"{total.max():.4g}", grows, time)


if __name__ == "__main__":
    command(main)
