"""CPU milliseconds of a decision and of a learned reward, and megabytes of the state, by the number of actions.

    python benchmarks/action_times.py [AGENT ...] [--actions 100 300 3000] [--numbers 10]

Median and 99% quantile of a hundred calls after the first ten; the state is overwritten in place.
"""

import time
from typing import Annotated

import jax
import numpy as np
import tyro
from gymnasium.spaces import Box, Discrete
from harness import command, milliseconds, table
from peers import contender

import seqdec
from seqdec.core import Environment, Spaces

WARM, CALLS = 10, 100


def measured(name: str, actions: int, numbers: int) -> tuple[str, str, str]:
    """Times of a decision and of a reward, and the size of the state."""
    spaces = Spaces(Box(-np.inf, np.inf, (numbers,), np.float32), Discrete(actions))
    env = Environment(None, None, (), *spaces, "")  # pyright: ignore[reportArgumentType]
    agent = seqdec.compiled(contender(name, env), in_place=True)
    rng, state, played = np.random.default_rng(0), agent.init(jax.random.key(0)), []

    def decide(context):
        played.append(jax.block_until_ready(agent.act(jax.random.key(len(played)), state, context)).value)

    def learn(at):
        nonlocal state
        state = jax.block_until_ready(agent.update(state, *at, np.float32(rng.normal()))[0])

    contexts = rng.normal(size=(WARM + CALLS, numbers)).astype(np.float32)
    for context in contexts[:WARM]:
        decide(context)
        learn((context, played[-1]))
    decision = milliseconds(decide, contexts[WARM:], time.process_time)
    reward = milliseconds(learn, zip(contexts[WARM:], played[WARM:], strict=True), time.process_time)
    return decision, reward, f"{sum(leaf.nbytes for leaf in jax.tree.leaves(state)) / 1e6:.1f}"


def main(
    agents: Annotated[tuple[str, ...], tyro.conf.Positional] = ("auto", "linear", "hybrid:0.3"),
    actions: tuple[int, ...] = (100, 300, 3000),
    numbers: int = 10,
) -> None:
    """Print a row for each agent and number of actions."""
    row = table("agent", "actions", "decision", "reward", "MB of state")
    for name in agents:
        for count in actions:
            row(name, count, *measured(name, count, numbers))


if __name__ == "__main__":
    command(main)
