"""Whether what is logged is what is played: frequencies of actions in one state and context, and logged probabilities.

Each agent learns some rewards of a linear world with four arms, then decides 20,000 times in the same state and context
with other keys. Of each arm, the largest |z| is of plays less logged probabilities; E[w] is the mean weight, and E[w^2]
the mean square, of a target that always plays this arm, for arms that are played at least in 2% of the decisions. E[w]
should be 1. Agents that know no uncertainty have greedy and epsilon-greedy policies only.

Points of a box are played by a density: the arms are then the quarters of the interval [-1, 1], and the target is
uniform in one; |z| is of E[w] - 1, of all quarters. It has few terms where only uniform play reaches a quarter.
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
    "points": Spaces(spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (1,))),
}
KINDS = {"contexts": "contexts", "candidates": "features", "points": "points"}
BATCH = 500
"""Decisions at a time."""
RAREST = 0.02
"""Least share of an arm with a row's weights."""


def main(
    decisions: int = 20_000,
    rewards: int = 30,
    seed: int = 0,
    only: tuple[str, ...] = (),
    sites: tuple[str, ...] = tuple(SITES),
) -> None:
    """A row for each agent and policy."""
    row = table("agent", "space", "policy", "largest abs z", "E[w]", "E[w^2]", "rarest share")
    for name in only or agents.names():
        can = agents.capabilities(name)
        for space, site in SITES.items():
            if KINDS[space] not in can.spaces or space not in sites:
                continue
            known = policies.names() if can.uncertain else ("greedy", "epsilon_greedy")
            known = [one for one in known if space != "points" or policies.make(one).law is not None]
            for policy in known if can.policy else (None,):
                agent = agents.make(name, site, **({} if policy is None else {"policy": policy}))
                row(name, space, policy or "its own", *measured(agent, site, decisions, rewards, seed))


def measured(agent: Agent, site: Spaces, decisions: int, rewards: int, seed: int) -> tuple[str, ...]:
    """Cells of the row of an agent."""
    rng = np.random.default_rng(seed)
    state, update = jax.jit(agent.init)(jax.random.key(seed)), jax.jit(agent.update)
    truth, points = rng.normal(size=(ARMS, 3)) / 3, isinstance(site.action_space, spaces.Box)

    def seen():
        features = rng.uniform(-1, 1, (ARMS, 3)).astype(np.float32)
        return features[0] if isinstance(site.observation_space, spaces.Box) else {"features": features}

    for step in range(rewards):
        x, arm = seen(), step % ARMS
        value = truth[arm] @ x if isinstance(x, np.ndarray) else truth[0] @ x["features"][arm]
        played = np.array([(arm + 0.5) * 2 / ARMS - 1], np.float32) if points else jnp.int32(arm)
        state, _ = update(state, x, played, jnp.float32(value + 0.3 * rng.normal()))
    keys = jax.random.split(jax.random.key(seed + 1), decisions)
    x = seen()
    action = jax.jit(lambda state: jax.lax.map(lambda key: agent.act(key, state, x), keys, batch_size=BATCH))(state)
    if points:
        place = ((np.asarray(action.value) + 1) * ARMS / 2).astype(int)  # (n, 1)
        weights = (place == np.arange(ARMS)) * ARMS / 2 / np.asarray(action.propensity, float)[:, None]
        z = np.abs(weights.mean(0) - 1) / (weights.std(0) / decisions**0.5)
        return _cells(z, weights, (place == np.arange(ARMS)).mean(0))
    law = np.asarray(action.probabilities, float)
    played = np.asarray(action.value)[:, None] == np.arange(ARMS)
    error = np.sqrt((law * (1 - law)).sum(0))
    z = np.abs((played - law).sum(0)) / np.maximum(error, 1)
    shares = played.mean(0)
    frequent = shares >= RAREST
    return _cells(z, played[:, frequent] / law[:, frequent], shares)


def _cells(z: np.ndarray, weights: np.ndarray, shares: np.ndarray) -> tuple[str, ...]:
    return (
        f"{z.max():.2f}",
        " ".join(f"{mean:.3f}" for mean in weights.mean(0)),
        " ".join(f"{square:.2f}" for square in (weights**2).mean(0)),
        f"{shares.min():.4f}",
    )


if __name__ == "__main__":
    command(main)
