"""Agents that have learned a log before they act."""

import jax
import jax.numpy as jnp
import numpy as np

from seqdec.boundary import checks
from seqdec.core import Agent
from seqdec.ope.learning import in_chunks, scanned
from seqdec.ope.log import Log
from seqdec.ope.selection import observations


def warm_start(agent: Agent, log: Log, *, seed: int) -> Agent:
    """The agent in the state that it has after the rows of a log, in their order, as if it had played them itself.

    Its policy is then judged, by `evaluate` with `target_of` on rows that were not used here, played on by
    `seqdec.run`, or served: `OnlineAgent(lambda spaces: warm_start(linear(spaces), log, seed=0), ...)`. Propensities do
    not enter: a filter's belief given contexts, actions and rewards does not depend on how the actions were chosen.

    Args:
        agent: any that learns, with a Box of observations and Discrete actions.
        log: of the same actions; a row of `seqdec.ope.inputs` is an observation, reshaped.
        seed: of the state that the agent begins with.

    Raises:
        TypeError: not an agent or not a log, or an agent of other spaces.
        ValueError: other numbers of features or of actions.
    """
    x = observations(agent, log)
    start = agent.init(jax.random.key(checks.seed_bits(checks.seed("seed", seed))))

    def step(state, row):
        x, action, reward = row

        def learn(state):
            return agent.update(state, x, action, reward)[0]

        return jax.lax.cond(jnp.isfinite(reward), learn, lambda state: state, state), None

    rows = (x, log.action, log.reward.astype(np.float32))
    state, _ = in_chunks(scanned(step), start, rows, "learning")
    learned = {**agent.settings, "warm_start": len(log.action)}
    return agent._replace(init=lambda key: jax.tree.map(jnp.copy, state), settings=learned)
