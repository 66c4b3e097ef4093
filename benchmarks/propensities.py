"""Whether what is logged is what is played: frequencies of actions in one state and context, and logged probabilities.

Each agent learns some rewards of a linear world with four arms, then decides 20,000 times in the same state and context
with other keys. Of each arm, the largest |z| is of plays less logged probabilities; E[w] is the mean weight, and E[w^2]
the mean square, of a target that always plays this arm, for arms that are played at least in 2% of the decisions. E[w]
should be 1. Agents that know no uncertainty have greedy and epsilon-greedy policies only.
"""

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from harness import command, table

from seqdec import agents, policies
from seqdec.core import Agent, Spaces

ARMS = 4
SITES = {
    "contexts": Spaces(spaces.Box(-1, 1, (3,)), spaces.Discrete(ARMS)),
    "candidates": Spaces(spaces.Dict(features=spaces.Box(-1, 1, (ARMS, 3))), spaces.Discrete(ARMS)),
}
KINDS = {"contexts": "contexts", "candidates": "features"}
BATCH = 500
"""Decisions at a time."""
RAREST = 0.02
"""Least share of an arm with a row's weights."""


def main(decisions: int = 20_000, rewards: int = 30, seed: int = 0, only: tuple[str, ...] = ()) -> None:
    """A row for each agent and policy."""
    row = table("agent", "space", "policy", "largest abs z", "E[w]", "E[w^2]", "rarest share")
    for name in only or agents.names():
        can = agents.capabilities(name)
        for space, site in SITES.items():
            if KINDS[space] not in can.spaces:
                continue
            known = policies.names() if can.uncertain else ("greedy", "epsilon_greedy")
            for policy in known if can.policy else (None,):
                agent = agents.make(name, site, **({} if policy is None else {"policy": policy}))
                row(name, space, policy or "its own", *measured(agent, site, decisions, rewards, seed))


def measured(agent: Agent, site: Spaces, decisions: int, rewards: int, seed: int) -> tuple[str, ...]:
    """Cells of the row of an agent."""
    rng = np.random.default_rng(seed)
    state, update = jax.jit(agent.init)(jax.random.key(seed)), jax.jit(agent.update)
    truth = rng.normal(size=(ARMS, 3)) / 3

    def seen():
        features = rng.uniform(-1, 1, (ARMS, 3)).astype(np.float32)
        return features[0] if isinstance(site.observation_space, spaces.Box) else {"features": features}

    for step in range(rewards):
        x, arm = seen(), step % ARMS
        value = truth[arm] @ x if isinstance(x, np.ndarray) else truth[0] @ x["features"][arm]
        state, _ = update(state, x, jnp.int32(arm), jnp.float32(value + 0.3 * rng.normal()))
    keys = jax.random.split(jax.random.key(seed + 1), decisions)
    x = seen()
    action = jax.jit(lambda state: jax.lax.map(lambda key: agent.act(key, state, x), keys, batch_size=BATCH))(state)
    law = np.asarray(action.probabilities, float)
    played = np.asarray(action.value)[:, None] == np.arange(ARMS)
    error = np.sqrt((law * (1 - law)).sum(0))
    z = np.abs((played - law).sum(0)) / np.maximum(error, 1)
    shares = played.mean(0)
    frequent = shares >= RAREST
    weights = played[:, frequent] / law[:, frequent]
    return (
        f"{z.max():.2f}",
        " ".join(f"{mean:.3f}" for mean in weights.mean(0)),
        " ".join(f"{square:.2f}" for square in (weights**2).mean(0)),
        f"{shares.min():.4f}",
    )


if __name__ == "__main__":
    command(main)
