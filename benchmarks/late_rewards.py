"""What it costs to learn late: regret where rewards arrive at once, or late and in batches.

    python benchmarks/late_rewards.py [--names exact rare ...] [--agents auto linear] [--seeds 5]

The streams are those of `benchmarks/streams.py`. Printed for each stream and agent: cumulative regret with its 95%
interval over seeds, when each reward is learned before the next decision, and when it is learned at least `--delay`
decisions later, in batches of `--batch`.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import streams
from harness import command, interval, played, table
from peers import contender

from seqdec.core import Agent


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


def main(
    names: tuple[str, ...] = ("exact", "half", "rare"),
    agents: tuple[str, ...] = ("auto", "linear", "linucb:1"),
    delay: int = 1000,
    batch: int = 100,
    seeds: int = 5,
) -> None:
    """Print a row for each stream and agent."""
    row = table("stream", "agent", "at once", f"{delay} late, by {batch}")
    for name in names:
        env = streams.environment(name)
        example = jnp.zeros(env.observation_space.shape or ())
        for each in agents:
            agent = contender(each, env)
            both = agent, late(agent, delay, batch, example)
            regrets = [played(one, env, streams.STREAMS[name].steps, range(seeds))[0] for one in both]
            row(name, each, *(interval(regret.sum(1)) for regret in regrets))


if __name__ == "__main__":
    command(main)
