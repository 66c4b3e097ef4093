"""Whether a filter loses less to flipped rewards if it trusts surprising ones less: HiLoFi on images, 5% flipped.

    python benchmarks/robust.py digits --steps 2000 --seeds 16
    SEQDEC_DATA=... python benchmarks/robust.py mnist --steps 5000 --seeds 1

A likelihood that is raised to a power w has the noise R / w. The weights, of a reward y whose prediction has mean m and
innovation variance S:

    plain            w = 1
    larger noise     R / w = R + s (1 - s), the variance that flips of a share s add
    not flipped      w = P(y was not flipped | m), with probability max(1 - |y - m|, 0.01) of y as it is
    confident        the same with max(1 - |y - m| + sqrt(S - R), 0.01): what the belief does not know counts fully
    multi-quadric c  w = 1 / (1 + (y - m)^2 / (c^2 S)), Duran-Martin et al., "Outlier-robust Kalman filtering through
                     generalised Bayes", ICML 2024
    oracle           w = 0 for what was flipped, 1 for the rest

The runs of a seed see the same images, and flips at the same steps. Prints true rewards without and with flips and the
paired difference, with 95% intervals over seeds.
"""

import argparse
import functools

import jax
import jax.numpy as jnp
import numpy as np

from seqdec import data, filters, likelihoods, models
from seqdec.statistics import mean_and_margin

SHARE, NOISE = 0.05, 0.01
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


def not_flipped(probability):
    """Of a reward with this probability as it is reported."""
    p = jnp.clip(probability, 0.01, 1)
    return (1 - SHARE) * p / ((1 - SHARE) * p + SHARE * (1 - p))


def multi_quadric(c):
    """The weight with threshold c."""
    return lambda error, total, flipped: 1 / (1 + error**2 / (c**2 * total))


WEIGHTS = {
    "plain": lambda error, total, flipped: 1.0,
    "larger noise": lambda error, total, flipped: NOISE / (NOISE + SHARE * (1 - SHARE)),
    "not flipped": lambda error, total, flipped: not_flipped(1 - jnp.abs(error)),
    "confident": lambda error, total, flipped: not_flipped(1 - jnp.abs(error) + jnp.sqrt(total - NOISE)),
    "multi-quadric 2": multi_quadric(2.0),
    "multi-quadric 4": multi_quadric(4.0),
    "oracle": lambda error, total, flipped: jnp.where(flipped, 1e-9, 1.0),
}


def load(name):
    """Images, labels and the network."""
    if name == "digits":
        images, labels = data.load_digits()
        return images / 16.0, labels, models.network(models.MLP(10, features=(32, 32)), jnp.zeros(64))
    images, labels = data.load_mnist(None).train
    network = models.network(models.LeNet5(10), jnp.zeros((28, 28)))
    return images[:20_000] / 255.0, labels[:20_000], network


def play(network, settings, images, labels, steps, weight, share, seed):
    """True rewards (steps,) of one run."""

    def with_noise(noise):
        return filters.hilofi(network, likelihoods.gaussian(noise), per_output=True, **settings)

    flt = with_noise(NOISE)
    key = jax.random.key(seed)
    passes = range(-(-steps // len(images)))
    orders = [jax.random.permutation(jax.random.fold_in(key, 10 + i), len(images)) for i in passes]
    order = jnp.concatenate(orders)[:steps]

    def step(belief, t):
        x, label = images[order[t]], labels[order[t]]
        draw, flip = jax.random.split(jax.random.fold_in(jax.random.fold_in(key, 3), t))
        at = flt.moments(belief, x)
        variance = jnp.maximum(jnp.diagonal(at.cov), 0)
        action = jnp.argmax(at.mean + jnp.sqrt(variance) * jax.random.normal(draw, (10,)))
        reward = (action == label).astype(jnp.float32)
        flipped = jax.random.uniform(flip) < share
        reported = jnp.where(flipped, 1 - reward, reward)
        trust = weight(reported - at.mean[action], variance[action] + NOISE, flipped)
        return with_noise(NOISE / trust).update(flt.predict(belief), x, reported, action)[0], reward

    start = flt.init(jax.random.fold_in(key, 1), network.init(jax.random.fold_in(key, 2)))
    return jax.lax.scan(step, start, jnp.arange(steps))[1]


def main(name: str, steps: int, seeds: int, weights: list[str]) -> None:
    """One line for each weight."""
    images, labels, network = load(name)
    images, labels = jnp.asarray(images, jnp.float32), jnp.asarray(labels)
    for title in weights:
        run = functools.partial(play, network, SETTINGS[name], images, labels, steps, WEIGHTS[title])
        both = jax.jit(jax.vmap(jax.vmap(run, (None, 0)), (0, None)))(jnp.array([0, SHARE]), jnp.arange(seeds))
        clean, flipped = np.asarray(both, np.float64).sum(2)
        cells = ("{:,.0f} ± {:.0f}".format(*mean_and_margin(part)) for part in (clean, flipped, clean - flipped))
        print(f"{title:16s}", *(f"{cell:>14s}" for cell in cells), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(SETTINGS))
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--weights", nargs="+", choices=tuple(WEIGHTS), default=list(WEIGHTS))
    options = parser.parse_args()
    main(options.name, options.steps, options.seeds, options.weights)
