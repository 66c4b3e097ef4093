"""Streams of candidates with features, of items that come and go, and of actions in a box.

    python benchmarks/rows.py [STREAM ...] [--agents AGENT ...] [--seeds 5]

Each stream draws its truth anew for each seed. Printed for each stream and agent: cumulative regret with its 95%
interval over seeds, that of the worst seed, and microseconds of a step, of all seeds side by side divided by their
steps.

An agent is a name of seqdec, with a policy and its scale after colons if it is not the default; or, on the numbers of
candidates as they are, `linucb:ALPHA`, `lints:SCALE` and with a q in front, such as `qlinucb:1`, on these and all their
products; or, for boxes of one dimension, `rbf:SCALE`, Thompson sampling on 16 Gaussian bumps in the action times
(1, context), and `grid:ALPHA`, a LinUCB for each of 16 actions. These have ridge 1; SCALE multiplies the deviation of
the draw. Agents are left out on streams on which they cannot act.
"""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from gymnasium.spaces import Box, Dict, Discrete, Space
from harness import command, interval, played, table

from seqdec import agents, policies
from seqdec.core import Action, Agent, Array, Environment, TimeStep
from seqdec.envs.outcomes import in_range, reward_and_regret

STD = 0.5
"""Deviation of the noise of rewards, whose expectations have one of about 1."""


class Stream(NamedTuple):
    """Candidates, and what they are worth."""

    candidates: int
    steps: int
    start: Callable[[Array], Any]
    """(key) -> truth"""
    offer: Callable[[Array, Any], tuple[Any, dict[str, Array]]]
    """(key, truth) -> truth, observation"""
    means: Callable[[Any, dict[str, Array]], Array]
    """(truth, observation) -> (n,) expected rewards"""


def environment(name: str) -> Environment:
    """The stream called `name`."""
    return _boxed(name) if name in BOXES else _offered(name)


def _offered(name: str) -> Environment:
    stream = STREAMS[name]

    def reset(key, params):
        drawn, shown = jax.random.split(key)
        truth, x = stream.offer(shown, stream.start(drawn))
        return (truth, x), x

    def step(key, state, action, params):
        paid, shown = jax.random.split(key)
        truth, x = state
        means = stream.means(truth, x)
        got = means[in_range(action, stream.candidates)] + STD * jax.random.normal(paid)
        reward, regret = reward_and_regret(action, means, got)
        truth, x = stream.offer(shown, truth)
        return (truth, x), TimeStep(x, reward, regret, jnp.array(False))

    example = jax.eval_shape(lambda key: reset(key, ())[1], jax.random.key(0))
    spaces: dict[str, Space] = {
        part: Box(0, MANY - 1, leaf.shape, np.int32)
        if jnp.issubdtype(leaf.dtype, jnp.integer)
        else Box(-np.inf, np.inf, leaf.shape, np.float32)
        for part, leaf in example.items()
    }
    return Environment(reset, step, (), Dict(spaces), Discrete(stream.candidates), name)


def _boxed(name: str) -> Environment:
    width, size, _, mean = BOXES[name]
    points = jnp.linspace(-1, 1, 401)

    def reset(key, params):
        truth, x = jax.random.normal(key, (width + 1, width)), jnp.zeros(size)
        return (truth, jax.random.normal(jax.random.fold_in(key, 1), (size,)) + x), x

    def step(key, state, action, params):
        truth, x = state
        best = jnp.max(jax.vmap(lambda point: mean(truth, x, point * jnp.ones(width)))(points)) if width == 1 else 1.0
        worth = mean(truth, x, action)
        fresh = jax.random.normal(jax.random.fold_in(key, 1), (size,))
        reward = worth + 0.1 * jax.random.normal(key)
        return (truth, fresh), TimeStep(fresh, reward, best - worth, jnp.array(False))

    box = Box(-np.inf, np.inf, (size,), np.float32)
    return Environment(reset, step, (), box, Box(-1, 1, (width,), np.float32), name)


MANY = 2000
"""Rows of the table of items."""


def _features(key: Array, shape: tuple[int, ...]) -> Array:
    return jax.random.normal(key, shape)


def linear(n: int, size: int, steps: int = 2000) -> Stream:
    """Linear in the features of candidates."""
    return Stream(
        n, steps, lambda key: jax.random.normal(key, (size,)) / size**0.5,
        lambda key, truth: (truth, {"features": _features(key, (n, size))}), lambda truth, x: x["features"] @ truth,
    )  # fmt: skip


def bilinear(n: int, size: int, steps: int = 4000) -> Stream:
    """Bilinear in a context, the same in each row, and the features of candidates."""

    def offer(key, truth):
        own, shared = jax.random.split(key)
        user = jnp.broadcast_to(_features(shared, (size,)), (n, size))
        return truth, {"item": _features(own, (n, size)), "user": user}

    return Stream(
        n, steps, lambda key: jax.random.normal(key, (size, size)) / size, offer,
        lambda truth, x: jnp.einsum("ni,ij,nj->n", x["user"], truth, x["item"]),
    )  # fmt: skip


def curved(n: int, size: int, steps: int = 4000) -> Stream:
    """A bump in the features of candidates."""

    def means(truth, x):
        return 3 * jnp.exp(-0.5 * jnp.sum((x["features"] - truth) ** 2, 1) / size)

    return Stream(
        n, steps, lambda key: jax.random.normal(key, (size,)),
        lambda key, truth: (truth, {"features": _features(key, (n, size))}), means,
    )  # fmt: skip


class Shop(NamedTuple):
    """Items on offer, and how they are judged."""

    weights: Array
    features: Array
    effects: Array
    ids: Array
    next: Array


def shop(n: int, size: int, std: float, steps: int = 4000) -> Stream:
    """Items with features and effects of their own, of which one is replaced every twenty steps on average."""

    def start(key):
        weights, items, effects = jax.random.split(key, 3)
        ids = jnp.arange(n, dtype=jnp.int32)
        return Shop(
            jax.random.normal(weights, (size,)) / size**0.5, _features(items, (n, size)),
            std * jax.random.normal(effects, (n,)), ids, jnp.int32(n),
        )  # fmt: skip

    def offer(key, truth):
        chance, place, items, effects = jax.random.split(key, 4)
        new = jax.random.bernoulli(chance, 0.05) & (truth.next < MANY)
        at = jnp.where(new, jax.random.randint(place, (), 0, n), n)
        truth = Shop(
            truth.weights,
            truth.features.at[at].set(_features(items, (size,)), mode="drop"),
            truth.effects.at[at].set(std * jax.random.normal(effects), mode="drop"),
            truth.ids.at[at].set(truth.next, mode="drop"),
            truth.next + new,
        )
        return truth, {"features": truth.features, "item": truth.ids}

    return Stream(n, steps, start, offer, lambda truth, x: x["features"] @ truth.weights + truth.effects)


STREAMS: dict[str, Stream] = {
    "linear": linear(10, 10),
    "linear, hundred": linear(100, 10),
    "linear, thousand": linear(1000, 20),
    "bilinear": bilinear(20, 5),
    "curved": curved(20, 4),
    "shop": shop(20, 5, 0.0),
    "shop, effects": shop(20, 5, 0.5),
}


def bump(truth, x, action):
    """The best action is a squashed linear function of the context."""
    best = jnp.tanh(x @ jnp.resize(truth[0], x.shape) + 0.3 * truth[1, 0])
    return jnp.exp(-((action[0] - best) ** 2) / 0.1)


def price(truth, x, action):
    """Revenue: a price from 0 to 10 times a chance of buying that falls with it, by the context."""
    paid = 5 * (action[0] + 1)
    level = 4 + x @ jnp.resize(truth[0], x.shape) / x.size**0.5
    return paid / 10 * jax.nn.sigmoid(2 * (level - paid))


def dose(truth, x, action):
    """A product of bumps in several coordinates, at places that depend on the context."""
    best = jnp.tanh(x[: truth.shape[1]] @ truth[1:] / truth.shape[1] ** 0.5 + truth[0] * 0.3)
    return jnp.exp(-jnp.sum((action - best) ** 2))


BOXES: dict[str, Any] = {
    "bump": (1, 3, 3000, bump),
    "price": (1, 5, 3000, price),
    "dose": (3, 3, 3000, dose),
}
"""dimensions of the action, of the context, steps, (truth, context, action) -> expected reward"""


class Ridge(NamedTuple):
    """A ridge regression."""

    inverse: Array
    moment: Array


def _ridge(size: int, responses: tuple[int, ...] = ()) -> Ridge:
    return Ridge(jnp.broadcast_to(jnp.eye(size), (*responses, size, size)), jnp.zeros((*responses, size)))


def _added(state: Ridge, phi: Array, reward: Array) -> Ridge:
    p = state.inverse @ phi
    return Ridge(state.inverse - jnp.outer(p, p) / (1 + phi @ p), state.moment + reward * phi)


def shared(env: Environment, kind: str, value: float) -> Agent:
    """LinUCB or Thompson sampling with one weight vector for all candidates."""
    plain = [name for name, part in env.observation_space.items() if np.issubdtype(part.dtype, np.floating)]  # pyright: ignore

    def phis(x):
        rows = jnp.concatenate([x[name] for name in plain], axis=1)
        if kind.startswith("q"):
            first, second = np.triu_indices(rows.shape[1])
            rows = jnp.concatenate([rows, rows[:, first] * rows[:, second]], axis=1)
        return jnp.concatenate([rows, jnp.ones((len(rows), 1))], axis=1)

    def init(key):
        example = {name: jnp.zeros(env.observation_space[name].shape) for name in plain}  # pyright: ignore
        return _ridge(phis(example).shape[1])

    def act(key, state, x):
        rows = phis(x)
        if kind.endswith("linucb"):
            width = jnp.sqrt(jnp.sum(rows @ state.inverse * rows, 1))
            return Action(jnp.argmax(rows @ state.inverse @ state.moment + value * width), jnp.float32(1))
        root = jnp.linalg.cholesky(state.inverse)
        weights = state.inverse @ state.moment + value * root @ jax.random.normal(key, state.moment.shape)
        return Action(jnp.argmax(rows @ weights), jnp.float32(1))

    def update(state, x, action, reward):
        return _added(state, phis(x)[action], reward), None

    return Agent(init, act, update, kind, True, {})


def boxed(env: Environment, kind: str, value: float) -> Agent:
    """Sixteen bumps in the action times (1, context) with Thompson sampling, or a LinUCB for each of 16 actions."""
    size, grid, fine = env.observation_space.shape[0] + 1, jnp.linspace(-1, 1, 16), jnp.linspace(-1, 1, 200)  # pyright: ignore

    def phi(x, action):
        return jnp.outer(jnp.exp(-0.5 * ((action - grid) * 7.5) ** 2), jnp.append(x, 1.0)).ravel()

    if kind == "rbf":

        def act(key, state, x):
            rows = jax.vmap(lambda action: phi(x, action))(fine)
            root = jnp.linalg.cholesky(state.inverse)
            weights = state.inverse @ state.moment + value * root @ jax.random.normal(key, state.moment.shape)
            return Action(fine[jnp.argmax(rows @ weights)][None], jnp.float32(1))

        def update(state, x, action, reward):
            return _added(state, phi(x, action[0]), reward), None

        return Agent(lambda key: _ridge(16 * size), act, update, kind, True, {})

    def act_grid(key, state, x):
        z = jnp.append(x, 1.0)
        mean = jnp.einsum("afk,ak,f->a", state.inverse, state.moment, z)
        score = mean + value * jnp.sqrt(jnp.einsum("afk,f,k->a", state.inverse, z, z))
        return Action(grid[jnp.argmax(score)][None], jnp.float32(1))

    def update_grid(state, x, action, reward):
        at = jnp.argmin(jnp.abs(grid - action[0]))
        own = _added(Ridge(state.inverse[at], state.moment[at]), jnp.append(x, 1.0), reward)
        return Ridge(state.inverse.at[at].set(own.inverse), state.moment.at[at].set(own.moment)), None

    return Agent(lambda key: _ridge(size, (16,)), act_grid, update_grid, kind, True, {})


def contender(name: str, env: Environment) -> Agent:
    """The agent called `name`, as at the head of this file."""
    kind, _, value = name.partition(":")
    if kind in ("linucb", "lints", "qlinucb", "qlints"):
        return shared(env, kind, float(value))
    if kind in ("rbf", "grid"):
        return boxed(env, kind, float(value))
    policy, _, scale = value.partition(":")
    if scale:
        return agents.make(kind, env, policy=policies.make(policy, scale=float(scale)))
    return agents.make(kind, env, **({"policy": policy} if policy else {}))


def fits(called: str, name: str) -> bool:
    """Whether an agent acts on a stream."""
    kind = called.partition(":")[0]
    if kind in ("rbf", "grid"):
        return name in BOXES and BOXES[name][0] == 1
    return name not in BOXES or kind not in ("linucb", "lints", "qlinucb", "qlints")


def main(
    names: Annotated[tuple[str, ...], tyro.conf.Positional] = (),
    agents: tuple[str, ...] = ("auto", "linear"),
    seeds: int = 5,
) -> None:
    """Print a row for each stream and each agent that acts on it."""
    row = table("stream", "agent", "regret", "worst seed", "us of a step")
    for name in names or [*STREAMS, *BOXES]:
        env, steps = environment(name), (BOXES[name][2] if name in BOXES else STREAMS[name].steps)
        for called in [one for one in agents if fits(one, name)]:
            regret, seconds = played(contender(called, env), env, steps, range(seeds))
            total = regret.sum(1)
            row(name, called, interval(total), f"{total.max():.4g}", f"{1e6 * seconds / regret.size:.0f}")


if __name__ == "__main__":
    command(main)
