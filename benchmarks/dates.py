"""Tables with a column that grows: 1,000 past decisions are learned, in order or shuffled, then 400 of the agent's own.

    python benchmarks/dates.py --seeds 5

The world is the shop of the tutorial: three offers, whose clicks depend on one of its columns and never on the date.
Printed is the true mean reward of the 400 decisions, for which the agent learns its own rewards; in "one month on" they
come 30 days after the table.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from gymnasium.spaces import Box, Discrete
from harness import command, interval, table

import seqdec
from seqdec.core import Agent, Spaces
from seqdec.features import Encoder, Ordered

OFFERS = ("discount", "news", "nothing")
AGENTS = {
    "auto": seqdec.agents.auto,
    "linear": seqdec.agents.linear,
    "hilofi": lambda spaces: seqdec.agents.hilofi(spaces, rank=10),
}


def visitors(count: int, start: str, random: np.random.Generator) -> pd.DataFrame:
    """Columns of so many visitors, one every 50 minutes."""
    age = np.where(random.random(count) < 0.1, np.nan, random.normal(40, 12, count).round())
    when = pd.date_range(start, periods=count, freq="50min").astype(str)
    member, plan = random.random(count) < 0.3, random.choice(["free", "basic", "pro"], count)
    return pd.DataFrame({"when": when, "age": age, "member": member, "plan": plan, "row": np.arange(count)})


def rates(people: pd.DataFrame) -> np.ndarray:
    """Mean rewards (n, 3)."""
    member = people["member"].to_numpy()
    return np.stack([np.full(len(people), 0.3), 0.1 + 0.4 * member, np.full(len(people), 0.05)], 1)


def rewards(people: pd.DataFrame, random: np.random.Generator) -> np.ndarray:
    """(n, 3): a click, and half as much again for the discount, which pays."""
    means = rates(people)
    clicks = random.random(means.shape) < means / [1.5, 1, 1]
    return clicks * np.array([1.5, 1.0, 1.0])


def world(
    seed: int, *, grows: tuple[str, ...], start: str = "2024-04-08", shuffled: bool = False
) -> tuple[np.ndarray, ...]:
    """Past contexts, actions and rewards; later contexts and rewards, and their means."""
    random = np.random.default_rng(seed)
    people, later = visitors(1000, "2024-03-01", random), visitors(400, start, random)
    later["row"] += len(people)
    if shuffled:
        people = people.sample(frac=1, random_state=seed, ignore_index=True)
    columns = [*grows, "age", "member", "plan"]
    encoder = Encoder.fit(people, columns, kinds={"plan": Ordered(("free", "basic", "pro"))})
    chances = np.where(people[["member"]], [0.2, 0.6, 0.2], [0.6, 0.2, 0.2])
    actions = (random.random((1000, 1)) > chances.cumsum(1)).sum(1)
    x, x_later = (np.stack([encoder(row) for row in table.to_dict("records")]) for table in (people, later))
    known = rewards(people, random)[np.arange(1000), actions]
    return x, actions, known, x_later, rewards(later, random), rates(later)


def earned(agent: Agent, seed: jax.Array, x, actions, known, x_later, rewards, means) -> jax.Array:
    """Mean reward of the later decisions, by a belief that has learned the past ones."""
    key = jax.random.key(seed)

    def learned(state, row):
        return agent.update(state, *row)[0], None

    def played(state, row):
        key, x, rewards, means = row
        action = agent.act(key, state, x).value
        return agent.update(state, x, action, rewards[action])[0], means[action]

    state, _ = jax.lax.scan(learned, agent.init(key), (x, actions, known))
    keys = jax.random.split(jax.random.fold_in(key, 1), len(x_later))
    return jax.lax.scan(played, state, (keys, x_later, rewards, means))[1].mean()


def main(seeds: int = 5, agents: tuple[str, ...] = ()) -> None:
    """Uniform play earns .19, and the best .36, on average."""
    cases: dict[str, dict[str, Any]] = {
        "neither": {"grows": ()},
        "a date": {"grows": ("when",)},
        "shuffled": {"grows": ("when",), "shuffled": True},
        "one month on": {"grows": ("when",), "start": "2024-05-08"},
        "a row number": {"grows": ("row",)},
        "shuffled ": {"grows": ("row",), "shuffled": True},
    }
    worlds = [[world(seed, **case) for seed in range(seeds)] for case in cases.values()]
    row = table("agent", *cases)
    for name in agents or AGENTS:
        programs, cells = {}, []
        for each in worlds:
            given = [jnp.stack(parts) for parts in zip(*each, strict=True)]
            size = given[0].shape[-1]
            if size not in programs:
                agent = AGENTS[name](Spaces(Box(-np.inf, np.inf, (size,), np.float32), Discrete(len(OFFERS))))
                programs[size] = jax.jit(jax.vmap(functools.partial(earned, agent)))
            cells.append(interval(programs[size](jnp.arange(seeds), *given), ".3f"))
        row(name, *cells)


if __name__ == "__main__":
    command(main)
