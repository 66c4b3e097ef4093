"""True rewards of HiLoFi with and without flipped rewards, plain and with `seqdec.likelihoods.robust`.

    python benchmarks/robust.py digits --steps 2000 --seeds 5
    SEQDEC_DATA=... python benchmarks/robust.py mnist --steps 6000 --seeds 1

All four runs of a seed see the same images, and flips at the same steps. Prints rewards with 95% intervals over seeds.
"""

import argparse
import functools

import jax
import jax.numpy as jnp
import numpy as np

from seqdec import data, filters, likelihoods, models

SHARE = 0.05
SETTINGS = {
    "digits": {
        "rank": 10, "initial_std_hidden": 0.316, "initial_std_last": 0.316, "process_noise_hidden": 1e-6,
        "process_noise_last": 1e-6,
    },
    "mnist": {
        "rank": 20, "initial_std_hidden": 3.0, "initial_std_last": 0.01, "process_noise_hidden": 1e-3,
        "process_noise_last": 0.0,
    },
}  # fmt: skip


def load(name):
    """Images, labels and the network."""
    if name == "digits":
        images, labels = data.load_digits()
        return images / 16.0, labels, models.network(models.MLP(10, features=(32, 32)), jnp.zeros(64))
    images, labels = data.load_mnist(None).train
    network = models.network(models.LeNet5(10), jnp.zeros((28, 28)))
    return images[:20_000] / 255.0, labels[:20_000], network


def play(network, settings, images, labels, steps, flipped, share, seed):
    """True rewards (steps,) of one run."""
    flt = filters.hilofi(network, likelihoods.robust(likelihoods.gaussian(0.01), share), per_output=True, **settings)
    key = jax.random.key(seed)
    passes = range(-(-steps // len(images)))
    orders = [jax.random.permutation(jax.random.fold_in(key, 10 + i), len(images)) for i in passes]
    order = jnp.concatenate(orders)[:steps]

    def step(belief, t):
        x, label = images[order[t]], labels[order[t]]
        draw, flip = jax.random.split(jax.random.fold_in(jax.random.fold_in(key, 3), t))
        at = flt.moments(belief, x)
        spread = jnp.sqrt(jnp.maximum(jnp.diagonal(at.cov), 0))
        action = jnp.argmax(at.mean + spread * jax.random.normal(draw, (10,)))
        reward = (action == label).astype(jnp.float32)
        reported = jnp.where(jax.random.uniform(flip) < flipped, 1 - reward, reward)
        return flt.update(flt.predict(belief), x, reported, action)[0], reward

    start = flt.init(jax.random.fold_in(key, 1), network.init(jax.random.fold_in(key, 2)))
    return jax.lax.scan(step, start, jnp.arange(steps))[1]


def main(name: str, steps: int, seeds: int) -> None:
    """One line for each stream and filter."""
    images, labels, network = load(name)
    pairs = np.array([(flipped, share) for flipped in (0.0, SHARE) for share in (0.0, SHARE)], np.float32)
    run = functools.partial(play, network, SETTINGS[name])
    run = jax.vmap(jax.vmap(run, (None, None, None, None, None, 0)), (None, None, None, 0, 0, None))
    together = jax.jit(run, static_argnums=2)
    rewards = together(jnp.asarray(images, jnp.float32), jnp.asarray(labels), steps, *pairs.T, jnp.arange(seeds))
    for (flipped, share), totals in zip(pairs, np.asarray(rewards).sum(2), strict=True):
        margin = 1.96 * totals.std(ddof=1) / np.sqrt(seeds) if seeds > 1 else np.nan
        print(f"{flipped:.0%} flipped, robust to {share:.0%}: {totals.mean():,.0f} ± {margin:.0f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(SETTINGS))
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    main(options.name, options.steps, options.seeds)
