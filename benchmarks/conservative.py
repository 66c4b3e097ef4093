"""Whether a conservative agent keeps its bound, and what it costs.

Three arms with rewards of 0 or 1 and contexts of two numbers; arm 0 is control, whose rewards may lose a tenth. Worlds:
means are constant; arm 1 is good for half of the contexts and bad for the others; all means move in a wave, arm 1 with
the opposite sign; control is best; the agent always plays the worst arm. Rewards are learned at once, or 200 decisions
later. "Kept": share of runs in which the expected reward of the laws played never falls, in sum, below .9 of control's.
"Lowest": least margin of a run, in rewards. Regret is against the best arm in each context, for the agent, for the
conservative one, and for control alone; "free": share of decisions in which control keeps its share only.

    python benchmarks/conservative.py [--runs 100] [--steps 10000]
"""

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from harness import command, table

from seqdec import agents
from seqdec.core import Action, Agent, Assessment, Spaces

ARMS = Spaces(spaces.Box(-1, 1, (2,)), spaces.Discrete(3))
LOSS, SHARE = 0.1, 0.1
WORLDS = {
    "constant": lambda t, x: jnp.array([0.5, 0.6, 0.4]),
    "contexts": lambda t, x: jnp.array([0.5, 0.5, 0.4]) + jnp.array([0.0, 0.3, 0.0]) * jnp.sign(x[0]),
    "wave": lambda t, x: jnp.array([0.5, 0.5, 0.4]) + jnp.array([0.15, -0.15, 0.0]) * jnp.sin(t / 400),
    "control best": lambda t, x: jnp.array([0.6, 0.5, 0.4]),
    "bad agent": lambda t, x: jnp.array([0.5, 0.6, 0.1]),
}


def stubborn() -> Agent:
    """An agent that always plays arm 2."""
    agent, own = agents.linear(ARMS), jnp.array([0.0, 0.0, 1.0])
    return agent._replace(
        act=lambda key, state, x: Action(jnp.int32(2), jnp.float32(1), own),
        assess=lambda key, state, x: Assessment(own, own, own),
    )


def played(agent: Agent, world: str, late: int, runs: int, steps: int) -> np.ndarray:
    """(3, runs, steps): expected rewards of the law played, of control and of the best arm."""
    means = WORLDS[world]

    def step(carry, now):
        state, waiting = carry
        t, key = now
        at, act, pay = jax.random.split(key, 3)
        x = jax.random.uniform(at, (2,), minval=-1, maxval=1)
        value, chance, law = agent.act(act, state, x)
        rates = means(t, x)
        reward = (jax.random.uniform(pay) < rates[value]).astype(float)
        waiting = jax.tree.map(
            lambda queue, one: queue.at[t % (late + 1)].set(one), waiting, (x, value, chance, reward)
        )
        x, before, chance, reward = jax.tree.map(lambda queue: queue[(t - late) % (late + 1)], waiting)
        reward = jnp.where(t >= late, reward, jnp.nan)
        state, _ = agent.update(state, x, agent.lesson(Action(before, chance)), reward)
        return (state, waiting), jnp.array([rates[value] if law is None else law @ rates, rates[0], rates.max()])

    def run(key):
        first, key = jax.random.split(key)
        state = agent.init(first)
        shapes = jax.eval_shape(agent.act, key, state, jnp.zeros(2))
        waiting = jnp.zeros((late + 1, 2)), *(jnp.zeros(late + 1, part.dtype) for part in (*shapes[:2], jnp.float32(0)))
        return jax.lax.scan(step, (state, waiting), (jnp.arange(steps), jax.random.split(key, steps)))[1]

    found = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), runs))
    return np.moveaxis(np.asarray(found, float), 2, 0)


def main(runs: int = 100, steps: int = 4000) -> None:
    """Print the table."""
    row = table("world", "late", "kept", "lowest", "agent", "conservative", "control")
    for world in WORLDS:
        base = stubborn() if world == "bad agent" else agents.linear(ARMS)
        alone = played(base, world, 0, runs, steps)[0]
        for late in (0, 200):
            agent = agents.conservative(base, loss=LOSS, share=SHARE, late=late)
            law, control, best = played(agent, world, late, runs, steps)
            margin = np.cumsum(law - (1 - LOSS) * control, axis=1).min(axis=1)
            regrets = ((best - one).sum(axis=1).mean() for one in (alone, law, control))
            row(world, str(late), f"{(margin >= 0).mean():.2f}", f"{margin.min():.1f}", *(f"{r:.0f}" for r in regrets))


if __name__ == "__main__":
    command(main)
