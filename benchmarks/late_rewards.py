"""What it costs to learn late: regret where rewards arrive at once, or late and in batches.

    python benchmarks/late_rewards.py [--streams exact rare ...] [--agents auto linear] [--seeds 5]

The streams are those of `benchmarks/streams.py`. Printed for each stream and agent: cumulative regret with its 95%
interval over seeds, when each reward is learned before the next decision, and when it is learned at least `--delay`
decisions later, in batches of `--batch`.
"""

import argparse
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import streams

import seqdec
from seqdec.core import Agent
from seqdec.statistics import mean_and_margin


class Waiting(NamedTuple):
    """A state, and what it has not learned."""

    state: Any
    rows: Any
    """(delay + batch, ...) contexts, actions and rewards, each at its step modulo their number"""
    steps: jax.Array


def late(agent: Agent, delay: int, batch: int, example: jax.Array) -> Agent:
    """The agent with rewards that arrive `delay` decisions late, in batches."""
    kept = delay + batch

    def init(key):
        row = example, jnp.int32(0), jnp.float32(0)
        return Waiting(agent.init(key), jax.tree.map(lambda leaf: jnp.stack([leaf] * kept), row), jnp.int32(0))

    def act(key, waiting, observation):
        return agent.act(key, waiting.state, observation)

    def update(waiting, observation, action, reward):
        row = observation, jnp.asarray(action, jnp.int32), jnp.asarray(reward, jnp.float32)
        rows = jax.tree.map(lambda leaf, new: leaf.at[waiting.steps % kept].set(new), waiting.rows, row)
        steps = waiting.steps + 1

        def learn(place, state):
            at = (steps - kept + place) % kept
            return agent.update(state, *jax.tree.map(lambda leaf: leaf[at], rows))[0]

        due = (steps % batch == 0) & (steps >= kept)
        state = jax.lax.fori_loop(0, jnp.where(due, batch, 0), learn, waiting.state)
        return Waiting(state, rows, steps), None

    return agent._replace(init=init, act=act, update=update, update_batch=None, act_batch=None)


def main(asked: argparse.Namespace) -> None:
    """One line for each stream and agent."""
    print(f"{'stream':12} {'agent':12} {'at once':>20} {f'{asked.delay} late, by {asked.batch}':>24}")
    for name in asked.streams:
        env = streams.environment(name)
        example = jnp.zeros(env.observation_space.shape or ())
        for each in asked.agents:
            agent, found = streams.contender(each, env), []
            for played in (agent, late(agent, asked.delay, asked.batch, example)):
                run = seqdec.run(played, env, asked.steps or streams.STREAMS[name].steps, seed=asked.seed,
                                 num_seeds=asked.seeds, progress=False)  # fmt: skip
                mean, margin = mean_and_margin(np.asarray(run.regret).sum(1))
                found.append(f"{mean:.4g} ± {margin:.3g}")
            print(f"{name:12} {each:12} {found[0]:>20} {found[1]:>24}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", nargs="+", default=["exact", "half", "rare"])
    parser.add_argument("--agents", nargs="+", default=["auto", "linear", "linucb:1"])
    parser.add_argument("--delay", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int)
    main(parser.parse_args())
