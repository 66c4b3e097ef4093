"""How exact the filters are: against their boxes, in single precision for a million steps, and against float64.

    python benchmarks/precision.py equality     # LeNet5, rank 50, float64: actions and means against the printed boxes
    python benchmarks/precision.py million      # float32 at input scales 1e-4, 1 and 1e4: finite, and how definite
    python benchmarks/precision.py drift        # 100,000 digits steps in float32 and float64 on the same data

Each prints one line per filter and setting.
"""

import argparse
import functools

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

from seqdec import filters, likelihoods, linalg, models
from seqdec.experiments import bench, boxes
from seqdec.experiments.bandit import Digits

NAMES = ("lrkf", "lolofi", "hilofi")


def equality(steps: int) -> None:
    """Actions and means of the lazy basis against those of the boxes, on LeNet5 with ten arms."""
    jax.config.update("jax_enable_x64", True)
    work = bench.workload(0, 10)
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), work.network.init(jax.random.key(0)))
    keys = jax.random.split(jax.random.key(1), steps)
    inputs = jax.random.uniform(jax.random.key(2), (steps, 28, 28))
    for name in NAMES:
        for q in (0.0, 1e-6):
            bench._Q = q
            prior = {"rank": 50, "rank_last": 100, "dtype": jnp.float64}
            likelihood = likelihoods.gaussian(bench._NOISE)
            pair = (
                bench.make(name, work.network, **prior),
                boxes.make(name, work.network, likelihood, std=bench._STD, q=q, **prior),
            )
            actions, means = [], []
            for flt in pair:
                run = jax.jit(functools.partial(jax.lax.scan, bench.bandit_step(flt)), donate_argnums=0)
                belief, played = run(flt.init(jax.random.key(3), params), (inputs, keys))
                actions.append(np.asarray(played))
                means.append(np.asarray(models.ravel(jax.tree.leaves(belief.params))))
            error = np.max(np.abs(means[0] - means[1])) / np.max(np.abs(means[1]))
            differing = np.sum(actions[0] != actions[1])
            print(f"{name:7} q={q:g}: {steps} steps, {differing} actions differ, means within {error:.1e}", flush=True)


def _definiteness(belief) -> jax.Array:
    """Smallest eigenvalue of every block's covariance over its largest, from the products that the filter uses."""

    def ratio(state):
        factor = state.factor
        if isinstance(factor, linalg.LowRank):
            gram = factor.coefficients @ factor.gram @ factor.coefficients.mT
        else:
            gram = factor.columns @ factor.columns.mT
        values = jnp.linalg.eigvalsh(gram)
        return values[0] / jnp.maximum(values[-1], jnp.finfo(values.dtype).tiny)

    return jnp.stack([ratio(state) for state in belief.blocks])


def million(steps: int) -> None:
    """Regression on a random function of random inputs: a fresh random answer's noise, all scales of input."""
    network = models.network(models.MLP(3, features=(16, 12)), jnp.zeros(6))
    teacher = network.init(jax.random.key(9))
    teacher["output"] = jax.tree.map(lambda leaf: jax.random.normal(jax.random.key(8), leaf.shape), teacher["output"])
    chunk = 10_000
    for name in NAMES:
        for q in (0.0, 1e-6, 1e-4):
            bench._Q = q
            flt = bench.make(name, network, 10, 20)
            for scale in (1e-4, 1.0, 1e4):

                def step(belief, key, scale=scale, flt=flt):
                    inputs, noise, arm = jax.random.split(key, 3)
                    x = scale * jax.random.normal(inputs, (6,))
                    played = jax.random.randint(arm, (), 0, 3)
                    y = network.apply(teacher, x)[played] + 0.1 * jax.random.normal(noise)
                    at = flt.moments(belief, x)
                    values = jnp.linalg.eigvalsh(at.cov)
                    belief, info = flt.update(flt.predict(belief), x, y, played)
                    worst = values[0] / jnp.maximum(values[-1], jnp.finfo(values.dtype).tiny)
                    return belief, (info.rejected, jnp.all(jnp.isfinite(at.cov)), worst)

                def chunk_of(belief, keys, step=step):
                    belief, (rejected, finite, worst) = jax.lax.scan(step, belief, keys)
                    return belief, (rejected.sum(), finite.all(), jnp.min(worst), jnp.min(_definiteness(belief)))

                advance = jax.jit(chunk_of, donate_argnums=0)
                belief, seen = flt.init(jax.random.key(0), network.init(jax.random.key(1))), []
                for i in range(steps // chunk):
                    belief, record = advance(belief, jax.random.split(jax.random.fold_in(jax.random.key(2), i), chunk))
                    seen.append(jax.device_get(record))
                rejected, finite, moments, blocks = (np.array(part) for part in zip(*seen, strict=True))
                sound = finite.all() and all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(belief))
                print(
                    f"{name:7} q={q:g} scale {scale:g}: {steps:,} steps, finite {bool(sound)}, "
                    f"rejected {rejected.sum()}, smallest eigenvalue over largest: "
                    f"moments {moments.min():.1e}, blocks {blocks.min():.1e}",
                    flush=True,
                )


def drift(steps: int) -> None:
    """The digits bandit in float64; the float32 filter is told the same contexts, actions and rewards."""
    jax.config.update("jax_enable_x64", True)
    digits = load_digits()
    images, labels = digits.images / 16, digits.target
    network = models.network(Digits.model, jnp.zeros(images.shape[1:]))
    order = np.random.default_rng(0).integers(len(images), size=steps)
    likelihood = likelihoods.gaussian(0.01)
    makers = {
        "lrkf": lambda dtype: filters.lrkf(network.apply, likelihood, rank=20, process_noise=1e-2, dtype=dtype),
        "lolofi": lambda dtype: filters.lolofi(
            network.apply, likelihood, is_last=network.is_last, rank_hidden=20, rank_last=50,
            process_noise_hidden=1e-4, process_noise_last=1e-6, dtype=dtype,
        ),
        "hilofi": lambda dtype: filters.hilofi(
            network.apply, likelihood, is_last=network.is_last, rank=20, process_noise_hidden=1e-4,
            process_noise_last=1e-6, dtype=dtype,
        ),
    }  # fmt: skip
    for name, make in makers.items():
        double, single = make(jnp.float64), make(jnp.float32)

        def step(beliefs, seen, double=double, single=single):
            index, key = seen
            x, label = jnp.asarray(images)[index], jnp.asarray(labels)[index]
            at = double.moments(beliefs[0], x)
            spread = jnp.sqrt(jnp.maximum(jnp.diagonal(at.cov), 0))
            action = jnp.argmax(at.mean + spread * jax.random.normal(key, (10,)))
            reward = (action == label).astype(jnp.float64)
            fresh = double.update(double.predict(beliefs[0]), x.astype(jnp.float64), reward, action)[0]
            x, reward = x.astype(jnp.float32), reward.astype(jnp.float32)
            return (fresh, single.update(single.predict(beliefs[1]), x, reward, action)[0]), None

        start = network.init(jax.random.key(0))
        beliefs = tuple(flt.init(jax.random.key(1), start) for flt in (double, single))
        keys = jax.random.split(jax.random.key(2), steps)
        beliefs, _ = jax.jit(functools.partial(jax.lax.scan, step), donate_argnums=0)(beliefs, (order, keys))
        errors = []
        for x in images[:100]:
            exact = double.moments(beliefs[0], jnp.asarray(x, jnp.float64))
            rough = single.moments(beliefs[1], jnp.asarray(x, jnp.float32))
            parts = ((exact.mean, rough.mean), (exact.cov, rough.cov))
            errors.append([float(jnp.linalg.norm(a - b) / jnp.linalg.norm(a)) for a, b in parts])
        mean, cov = np.max(errors, axis=0)
        print(
            f"{name:7}: {steps:,} steps, largest relative error of 100 means {mean:.1e}, covariances {cov:.1e}",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("equality", "million", "drift"))
    parser.add_argument("--steps", type=int, default=None)
    options = parser.parse_args()
    defaults = {"equality": 1000, "million": 1_000_000, "drift": 100_000}
    globals()[options.what](options.steps or defaults[options.what])
