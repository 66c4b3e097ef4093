"""The networks of the published MNIST bandit with the loss and the covariance of the paper's code.

    python benchmarks/published_networks.py [--agents NAME ...] [--steps 40000] [--seeds 3]

`last_layer_laplace.published`, `adamw.published` and `muon.published` minimize squared errors, as everywhere in this
library. The code of the paper minimizes the cross-entropy of a sigmoid of the played arm's output,

    loss = -y log s(f_a(x)) - (1 - y) log(1 - s(f_a(x))),        g the gradient of it by the last layer

and calls last-layer Laplace what draws the outputs of all arms together from N(f(x), J F J^T + R) with

    F = g g^T / |g|^2 + 1e-4 I,        J = df/dw (last layer),        R = diag(m) - m m^T + 1e-4 I,  m = softmax(f)

F is a Fisher matrix, which a Laplace approximation would invert, of the last observation alone; it is thus large for
the arm that was played last, and the other arms are explored by R.
"""

import dataclasses

import jax
import jax.numpy as jnp
import optax
import pandas as pd
from harness import command
from published_mnist import row

import seqdec
from reproduction.images import MNIST
from seqdec.agents import neural
from seqdec.agents._neural.last_layer import displaced, last_layer
from seqdec.agents._neural.loop import Head, mean_of_rows
from seqdec.core import Network, Posterior, Predictive

JITTER = 1e-4


def logistic(network: Network) -> Head:
    """Cross-entropy of the sigmoid, and F of the last observation."""
    layer = last_layer(network)

    def loss(params, belief, batch, seen):
        outputs = jax.vmap(network.apply, (None, 0))(params, batch.rows.x)
        return mean_of_rows(optax.sigmoid_binary_cross_entropy(outputs, batch.rows.y), batch), (outputs, ())

    def update(params, unit, lesson):
        row = jax.tree.map(lambda leaf: leaf[0], lesson.newest)
        outputs, phi = layer.features(params, row.x)
        slopes = jnp.where(row.observed, jax.nn.sigmoid(outputs) - row.y, 0)[:, None] * phi
        return slopes / (jnp.linalg.norm(slopes) + 1e-6)

    def posterior(params, unit):
        def joint(candidates):
            outputs, phi = layer.features(params, candidates)
            variances = jnp.sum(phi * unit, 1) ** 2 + JITTER * jnp.sum(phi**2, 1)
            softmax = jax.nn.softmax(outputs)
            noise = jnp.diag(softmax + JITTER) - jnp.outer(softmax, softmax)
            return Predictive(outputs, jnp.diag(variances), noise)

        def draw(key):
            along, around = jax.random.split(key)
            shift = unit * jax.random.normal(along) + jnp.sqrt(JITTER) * jax.random.normal(around, unit.shape)
            return displaced(layer, network, params, layer.get(params) + shift)

        return Posterior(lambda candidates: network.apply(params, candidates), joint, draw)

    return Head(lambda key, params: (params, jnp.zeros((layer.groups, layer.size))), loss, update, posterior)


@dataclasses.dataclass(frozen=True)
class Setting:
    """Of `neural`, the agents of the paper's code."""

    optimizer: optax.GradientTransformation
    inner_steps: int
    policy: str | seqdec.core.Acquisition


SETTINGS = {
    "last_layer_laplace": Setting(
        optax.adamw(1e-4), 5, seqdec.policies.predictive_sampling(joint=True, propensity_samples=0)
    ),
    "adamw": Setting(optax.adamw(1e-4), 5, "epsilon_greedy"),
    "muon": Setting(optax.contrib.muon(1e-4), 1, "epsilon_greedy"),
}


def main(agents: tuple[str, ...] = tuple(SETTINGS), steps: int = 40_000, seeds: int = 3) -> None:
    """Print the reward of each agent.

    Args:
        agents: names of SETTINGS.
        steps: of each run.
        seeds: runs of each agent.
    """
    options = MNIST(published=True, agents="hilofi.published", steps=steps, seeds=seeds)
    env = options.environment()
    model = seqdec.models.LeNet5(env.action_space.n)
    rows = []
    for name in agents:
        own = SETTINGS[name]
        agent = neural(
            env, optimizer=own.optimizer, head=logistic, policy=own.policy, model=model, inner_steps=own.inner_steps
        )
        rewards = seqdec.run(agent, env, steps, seed=0, num_seeds=seeds).rewards
        rows.append(row("agent", name, rewards))
        print(pd.DataFrame(rows).to_string(index=False), flush=True)


if __name__ == "__main__":
    command(main)
