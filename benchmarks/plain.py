"""Contexts of a few numbers: `auto` against linear agents, other agents and other libraries.

    python benchmarks/plain.py streams [STREAM ...] [--peers]
    SEQDEC_DATA=folder python benchmarks/plain.py tables [TABLE ...] [--peers]

`streams`: 20 standard normal features, five arms, rewards 0 or 1. With weights w_a, standard normal, drawn for each
seed, and sigma(z) = 1 / (1 + exp(-z)), arm a pays 1 with probability

    linear          5,000 steps    1/2 + 0.15 w_a^T x / sqrt(20), clipped to [0, 1]
    tanh            5,000 steps    sigma(3/2 tanh(w_a^T x / sqrt(20)))
    interactions   20,000 steps    sigma(2 w_a^T (x_1 x_2, x_3 x_4, |x_5| - 0.8, x_6, sin 2 x_7) / sqrt(5))

Printed: regret a step, over all steps and over the last 5,000.

`tables`: the first 10,000 rows in random order, of financial all 3,713. Printed: regret in percent of uniform play's.

Both with 95% intervals over seeds, and microseconds of a step: of seqdec's agents, whose seeds are computed side by
side, the time of all seeds divided by their steps. `--peers` adds the libraries of `LIBRARIES`, with their own defaults
where nothing is said; they meet the same contexts and rewards, `--peer-seeds` of the seeds.

Half an hour in all on one core.
"""

import argparse
import importlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete

import seqdec
from seqdec import agents, models
from seqdec.core import Action, Agent, Array, Environment, TimeStep
from seqdec.envs.outcomes import in_range, reward_and_regret
from seqdec.loop.device import play
from seqdec.statistics import mean_and_margin

FEATURES, ARMS, LAST = 20, 5, 5000
TABLES = ("statlog", "mushroom", "adult", "financial")
LIBRARIES = "mabwiser contextualbandits vowpalwabbit"

Step = Callable[[np.ndarray, np.ndarray], int]
"""(context (d,), rewards (n,)) -> arm; learns from the reward of that arm only."""


class Stream(NamedTuple):
    """A bandit with a known truth."""

    means: Callable[[Array, Array], Array]
    """(weights (n, F), context) -> (n,) probabilities of reward 1"""
    features: int
    """F"""
    steps: int


def linear(weights: Array, x: Array) -> Array:
    """(n,) linear in x, almost never clipped."""
    return jnp.clip(0.5 + 0.15 * weights @ x / FEATURES**0.5, 0, 1)


def tanh(weights: Array, x: Array) -> Array:
    """(n,) monotone in a linear function, saturated from about two standard deviations on."""
    return jax.nn.sigmoid(1.5 * jnp.tanh(weights @ x / FEATURES**0.5))


def interactions(weights: Array, x: Array) -> Array:
    """(n,) of products, an absolute value, a linear and a periodic term."""
    terms = jnp.stack([x[0] * x[1], x[2] * x[3], jnp.abs(x[4]) - 0.8, x[5], jnp.sin(2 * x[6])])
    return jax.nn.sigmoid(2 * weights @ terms / 5**0.5)


STREAMS = {
    "linear": Stream(linear, FEATURES, 5000),
    "tanh": Stream(tanh, FEATURES, 5000),
    "interactions": Stream(interactions, 5, 20_000),
}


def environment(name: str) -> Environment:
    """The stream called `name`; its state is the weights and the context shown."""
    stream = STREAMS[name]

    def reset(key, params):
        drawn, shown = jax.random.split(key)
        x = jax.random.normal(shown, (FEATURES,))
        return (jax.random.normal(drawn, (ARMS, stream.features)), x), x

    def step(key, state, action, params):
        paid, shown = jax.random.split(key)
        weights, x = state
        means = stream.means(weights, x)
        won = jax.random.uniform(paid) < means[in_range(action, ARMS)]
        reward, regret = reward_and_regret(action, means, won.astype(means.dtype))
        x = jax.random.normal(shown, (FEATURES,))
        return (weights, x), TimeStep(x, reward, regret, jnp.array(False))

    return Environment(reset, step, (), Box(-10, 10, (FEATURES,)), Discrete(ARMS), name)


def team(env: Environment) -> dict[str, Agent]:
    """The agents of seqdec that play a stream."""
    network = models.MLP(ARMS, ())
    variances = (0.25, 0.05, 0.01, 0.0025)
    grid = {
        f"ekf linear, R = {r}": agents.ekf(env, model=network, noise_variance=r, standardize=False) for r in variances
    }
    plain = {name: agents.make(name, env) for name in ("auto", "linear", "neural_linear")}
    plain["hilofi"] = agents.hilofi(env, standardize=False)  # features are standard normal
    return plain | grid


def library(module: str) -> Any:
    """A module of another library; ends with the command that installs it if it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        raise SystemExit(f"{missing}; --peers needs other libraries: pip install {LIBRARIES}") from missing


def mabwiser(name: str, **options: float) -> Callable[[int, int], Step]:
    """A learning policy of MABWiser, for (arms, seed)."""

    def make(arms, seed):
        mab = library("mabwiser.mab")
        learner = mab.MAB(list(range(arms)), getattr(mab.LearningPolicy, name)(**options), seed=seed)
        begun = False

        def step(x, rewards):
            nonlocal begun
            arm = learner.predict(x[None]) if begun else 0
            learn = learner.partial_fit if begun else learner.fit
            learn([arm], [rewards[arm]], x[None])
            begun = True
            return arm

        return step

    return make


def contextual_bandits(name: str, **options: Any) -> Callable[[int, int], Step]:
    """A class of contextualbandits.online, for (arms, seed)."""

    def make(arms, seed):
        learner = getattr(library("contextualbandits.online"), name)(arms, random_state=seed + 1, **options)

        def step(x, rewards):
            arm = int(learner.predict(x[None])[0])
            learner.partial_fit(x[None], np.array([arm]), rewards[[arm]])
            return arm

        return step

    return make


def vowpal_wabbit(options: str) -> Callable[[int, int], Step]:
    """Contextual bandits of Vowpal Wabbit, cost -reward, for (arms, seed)."""

    def make(arms, seed):
        settings = f"--cb_explore {arms} {options} --random_seed {seed} --quiet"
        workspace, rng = library("vowpalwabbit").Workspace(settings), np.random.default_rng(seed)

        def step(x, rewards):
            # Names that are numbers would be indices, which the weights of different arms share.
            shown = "| " + " ".join(f"x{place}:{x[place]:g}" for place in np.flatnonzero(x))
            shares = np.maximum(workspace.predict(shown), 0)
            arm = rng.choice(arms, p=shares / shares.sum())
            workspace.learn(f"{arm + 1}:{-rewards[arm]}:{shares[arm] / shares.sum()} {shown}")
            return arm

        return step

    return make


PEERS = {
    "streams": {
        "MABWiser LinTS": mabwiser("LinTS"),
        "MABWiser LinTS, alpha = 0.1": mabwiser("LinTS", alpha=0.1),
        "contextualbandits LinTS": contextual_bandits("LinTS"),
        "contextualbandits LinTS, ci": contextual_bandits("LinTS", sample_from="ci"),
        "contextualbandits LinUCB": contextual_bandits("LinUCB"),
    },
    "tables": {
        f"VW {options.split()[0][2:]}": vowpal_wabbit(options) for options in ("--bag 5", "--cover 5", "--squarecb")
    },
}


def always(arm: int | Array) -> Agent:
    """One arm in every step."""

    def act(key, state, observation):
        return Action(jnp.asarray(arm, jnp.int32), jnp.float32(1))

    return Agent(lambda key: None, act, lambda state, *_: (state, None), "always", True, {})


class World(NamedTuple):
    """What one seed shows and pays, whatever is played: for environments in which no action changes what follows."""

    contexts: np.ndarray
    """(steps, F)"""
    rewards: np.ndarray
    """(steps, n) of all arms"""
    regret: np.ndarray
    """(steps, n)"""


def worlds(env: Environment, steps: int, seeds: range) -> list[World]:
    """The world of each seed, as `seqdec.run` meets it."""

    def one(key, params, arm):
        record = play(always(arm), env, steps, key, params)
        return record.reward, record.regret

    def all_arms(key, params):
        return jax.vmap(one, (None, None, 0), 1)(key, params, jnp.arange(env.action_space.n))  # pyright: ignore

    keys = jax.vmap(jax.random.key)(jnp.array(seeds))
    rewards, regret = jax.jit(jax.vmap(all_arms, (0, None)))(keys, env.params)
    shown = seqdec.run(
        always(0), env, steps, seed=seeds[0], num_seeds=len(seeds), diagnostics=("observation",), progress=False
    ).diagnostics["observation"]
    return [
        World(*each) for each in zip(np.asarray(shown), np.asarray(rewards, float), np.asarray(regret), strict=True)
    ]


def peer_regret(make: Callable[[int, int], Step], met: list[World], seeds: range) -> tuple[np.ndarray, float]:
    """Regret (seeds, steps) of a learner in the world of each seed, and seconds of all steps."""
    rows, seconds = [], 0.0
    for seed, world in zip(seeds, met, strict=True):
        step = make(world.rewards.shape[1], seed)
        began = time.perf_counter()
        arms = [step(x.astype(float), paid) for x, paid in zip(world.contexts, world.rewards, strict=True)]
        seconds += time.perf_counter() - began
        rows.append(world.regret[np.arange(len(arms)), arms])
    return np.array(rows), seconds


def contests(asked: argparse.Namespace, env: Environment, steps: int) -> Iterator[tuple[str, np.ndarray, float]]:
    """The name, the regret (seeds, steps) and the microseconds of a step of each contender."""
    players = team(env) if asked.kind == "streams" else {name: agents.make(name, env) for name in ("auto", "linear")}
    chosen = [name for name in players if not asked.agents or name in asked.agents]
    for name in chosen:
        run = seqdec.run(players[name], env, steps, seed=0, num_seeds=asked.seeds, progress=False)
        yield name, run.regret, 1e6 * run.run_seconds / run.regret.size
    seeds = range(min(asked.peer_seeds, asked.seeds))
    met = worlds(env, steps, seeds) if asked.peers else []
    for name, make in PEERS[asked.kind].items() if asked.peers else ():
        regret, seconds = peer_regret(make, met, seeds)
        yield name, regret, 1e6 * seconds / regret.size


def written(samples: np.ndarray, digits: int) -> str:
    """Mean and 95% interval."""
    mean, margin = mean_and_margin(samples)
    return f"{mean:.{digits}f} ± {margin:.{digits}f}"


def main(asked: argparse.Namespace) -> None:
    """One line for each stream or table and contender."""
    for name in asked.names or (STREAMS if asked.kind == "streams" else TABLES):
        env = environment(name) if asked.kind == "streams" else seqdec.envs.make(name)
        steps = STREAMS[name].steps if asked.kind == "streams" else min(10_000, len(env.params.features))
        if asked.kind == "tables":
            uniform = [world.regret.mean(1).sum() for world in worlds(env, steps, range(asked.seeds))]
        for contender, regret, microseconds in contests(asked, env, steps):
            if asked.kind == "streams":
                shown = f"{written(regret.mean(1), 4)}   {written(regret[:, -LAST:].mean(1), 4)}"
            else:
                shown = f"{written(100 * regret.sum(1) / uniform[: len(regret)], 2):>14}"
            print(f"{name:13} {contender:28} {shown} {microseconds:8,.0f} us", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("streams", "tables"))
    parser.add_argument("names", nargs="*", help="streams or tables; default: all")
    parser.add_argument("--agents", nargs="*", help="agents of seqdec to play; default: all")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--peers", action="store_true", help=f"other libraries too: pip install {LIBRARIES}")
    parser.add_argument("--peer-seeds", type=int, default=3)
    main(parser.parse_args())
