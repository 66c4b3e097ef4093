"""What rehearsal brings and costs: HiLoFi on the first steps of the MNIST bandit, for some settings.

    SEQDEC_DATA=folder python benchmarks/rehearsal.py [--steps 5000] [--seed 0] [--seeds 1] [SETTING ...]

Prints for each setting the mean reward, the time of a step, and the size of the agent's state. A setting is K:RATE:B, K
replayed rows a step and one step of AdamW with a rate on a minibatch of B; 0:0:0 is the plain filter.

Some minutes for each setting on two cores.
"""

import argparse

import jax
import optax

import seqdec
from reproduction.images import MNIST
from seqdec.agents import Rehearsal

SETTINGS = ["0:0:0", "1:0:0", "4:0:0", "8:0:0", "0:3e-4:32", "1:3e-4:8", "1:3e-4:32", "1:3e-4:128"]


def make(env: seqdec.core.Environment, setting: str, capacity: int = 40_000) -> seqdec.core.Agent:
    """HiLoFi with the settings of `seqdec run mnist`, and rehearsal."""
    updates, rate, batch = setting.split(":")
    optimizer = optax.adamw(float(rate)) if float(rate) else None
    rehearsal = Rehearsal(seqdec.memory.reservoir(capacity), int(updates), optimizer, max(int(batch), 1))
    return seqdec.agents.hilofi(env, **MNIST.tuned["hilofi"], rehearsal=None if setting == "0:0:0" else rehearsal)


def size(agent: seqdec.core.Agent) -> int:
    """Bytes of the agent's state."""
    state = jax.eval_shape(agent.init, jax.random.key(0))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", default=SETTINGS)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1)
    asked = parser.parse_args()
    env = seqdec.envs.make("mnist")
    for setting in asked.settings:
        agent = make(env, setting)
        run = seqdec.run(agent, env, asked.steps, seed=asked.seed, num_seeds=asked.seeds)
        rewards = run.rewards.sum(1)
        time = 1e3 * run.elapsed[-1] / asked.steps
        print(f"{setting:12} {rewards.mean():8,.0f} {time:6.2f} ms {size(agent) / 1e6:6.0f} MB  {rewards}", flush=True)
