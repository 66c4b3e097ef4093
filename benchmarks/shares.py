"""A million decisions of a guarded agent that learns: bounds of the shares that are broken, and propensities as drawn.

Four arms, of which 1 has at least .05 and at most .3 of the decisions, 0 at least .1 and 2 at most .4; a rule takes arm
3 out of half of the contexts. The agent is a linear one that plays the best arm only, so that bounds always bind, and
learns after each batch. Shares of the arms, by context and in all, are compared with their mean propensities, in
standard errors.
"""

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from harness import command, table

from seqdec import agents
from seqdec.core import Masked, Spaces

FLOOR, CEILING = np.array([0.1, 0.05, 0, 0]), np.array([1, 0.3, 0.4, 1])
CONTEXTS = 8


def main(decisions: int = 1_000_000, batch: int = 10_000, seed: int = 0) -> None:
    """All policies."""
    row = table("policy", "bounds broken", "arms off that were played", "largest error of a share", "errors above 3")
    for policy in ("greedy", "ucb", "thompson"):
        site = Spaces(spaces.Box(-1, 1, (2,)), spaces.Discrete(4))
        agent = agents.guarded(agents.linear(site, policy=policy), floor=FLOOR.tolist(), ceiling=CEILING.tolist())
        act = jax.jit(jax.vmap(agent.act, in_axes=(0, None, 0)))
        learn = jax.jit(agent.update)
        rng, state = np.random.default_rng(seed), agent.init(jax.random.key(seed))
        corners = rng.uniform(-1, 1, (CONTEXTS, 2))
        broken, forbidden = 0, 0
        played, expected, variance = np.zeros((3, CONTEXTS, 4))
        for part in range(decisions // batch):
            kind = rng.integers(CONTEXTS, size=batch)
            mask = np.ones((batch, 4), bool)
            mask[kind % 2 == 0, 3] = False
            keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), part), batch)
            action = act(keys, state, Masked(jnp.asarray(corners[kind], jnp.float32), jnp.asarray(mask)))
            value, law = np.asarray(action.value), np.asarray(action.probabilities, float)
            low, high = FLOOR * mask, np.where(mask, CEILING, 0)
            broken += int(((law < low - 1e-6) | (law > high + 1e-6)).any(axis=1).sum())
            forbidden += int((~mask[np.arange(batch), value]).sum())
            np.add.at(played, (kind, value), 1)
            np.add.at(expected, kind, law)
            np.add.at(variance, kind, law * (1 - law))
            for place in range(3):
                worth = float(rng.random() < 0.2 + 0.2 * value[place])
                state, _ = learn(state, jnp.asarray(corners[kind[place]], jnp.float32), value[place], worth)
        known = variance > 1
        errors = np.abs(played - expected)[known] / np.sqrt(variance[known])
        row(policy, broken, forbidden, f"{errors.max():.2f} standard errors", f"{(errors > 3).sum()} of {errors.size}")


if __name__ == "__main__":
    command(main)
