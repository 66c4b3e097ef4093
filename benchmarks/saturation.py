"""Why LRKF with the published settings and epsilon-greedy stays at the reward of chance with some seeds.

Its initial directions are the first parameters: the six biases of the first convolution and some of its weights. Where
the first rewards make all biases very negative, each ELU is -1 for every image, and nothing depends on the image.

    python benchmarks/saturation.py --steps 1000 --seeds 3
"""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import tyro

import seqdec
from reproduction.images import MNIST

IMAGES = 64


def main(steps: int = 1000, seeds: int = 3) -> None:
    """Print the first convolution's largest bias, and the largest deviation of an output between images, by seed.

    Args:
        steps: of each run.
        seeds: runs.
    """
    options = MNIST(published=True, agents="lrkf+epsilon_greedy.published")
    env = options.environment()
    agent = options.agent(options.agents, env)
    run = seqdec.run(agent, env, steps, seed=0, num_seeds=seeds)
    assert agent.assess is not None and run.state is not None
    shown = [env.reset(jax.random.key(image), env.params)[1] for image in range(IMAGES)]
    rows = []
    for seed in range(seeds):
        state = jax.tree.map(lambda leaf, seed=seed: leaf[seed], run.state.agent)
        means = jax.vmap(agent.assess, (None, None, 0))(jax.random.key(0), state, jnp.stack(shown)).mean
        rows.append(
            {
                "seed": seed,
                "largest bias": f"{np.max(state.params['conv_0']['kernel']['bias']):.1f}",
                "deviation between images": f"{np.max(np.std(means, axis=0)):.1e}",
                f"reward in {steps:,} steps": f"{run.rewards[seed].sum():.0f}",
            }
        )
    print(pd.DataFrame(rows).to_string(index=False))


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
