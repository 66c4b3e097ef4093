"""Accuracy of the filters: against their algorithm boxes, over a million steps in float32, and against float64.

    python benchmarks/precision.py equality     # LeNet5, rank 50, float64: actions and means against the boxes
    python benchmarks/precision.py million      # float32 at input scales 1e-4, 1 and 1e4: finite, smallest eigenvalues
    python benchmarks/precision.py drift        # 100,000 digits steps in float32 and float64 on the same data

Each prints one line per filter and setting; `--filters lrkf hilofi` runs some of the filters. `drift --filters lofi` is
LoFi without process noise, whose precisions grow for ever.
"""

import functools
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from harness import command
from sklearn.datasets import load_digits

from seqdec import filters, likelihoods, linalg, models
from seqdec import params as parameters
from seqdec.commands import bench
from seqdec.commands.digits import Digits
from seqdec.filters import reference

NAMES = ("lrkf", "lolofi", "hilofi")


def equality(steps: int, names: list[str]) -> None:
    """Actions and means of the lazy basis against those of the boxes, on LeNet5 with ten arms."""
    jax.config.update("jax_enable_x64", True)
    work = bench.workload(0, 10)
    keys = jax.random.split(jax.random.key(1), steps)
    inputs = jax.random.uniform(jax.random.key(2), (steps, 28, 28))
    for name in names:
        for q in (0.0, 1e-6):
            bench._Q = q
            prior = {"rank": 50, "rank_last": 100, "dtype": jnp.float64}
            likelihood = likelihoods.gaussian(bench._NOISE)
            pair = (
                bench.make(name, work.network, **prior),
                reference.make(name, work.network, likelihood, std=bench._STD, q=q, **prior),
            )
            actions, means = [], []
            for flt in pair:
                run = jax.jit(functools.partial(jax.lax.scan, bench.bandit_step(flt)), donate_argnums=0)
                params = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), work.network.init(jax.random.key(0)))
                belief, played = run(flt.init(jax.random.key(3), params), (inputs, keys))
                actions.append(np.asarray(played))
                means.append(np.asarray(parameters.ravel(jax.tree.leaves(belief.params))))
            error = np.max(np.abs(means[0] - means[1])) / np.max(np.abs(means[1]))
            differing = np.sum(actions[0] != actions[1])
            print(f"{name:7} q={q:g}: {steps} steps, {differing} actions differ, means within {error:.1e}", flush=True)


def definiteness(belief) -> jax.Array:
    """Smallest eigenvalue of every block's covariance over its largest, from the products that the filter uses."""

    def ratio(state):
        factor = state.factor
        if isinstance(factor, linalg.LowRankFactor):
            rows = factor.root @ factor.coefficients
            gram = rows @ sum(piece.mT @ piece for piece in map(linalg.full_columns, factor.basis)) @ rows.mT
        else:
            gram = factor.columns @ factor.columns.mT
        values = jnp.linalg.eigvalsh(gram)
        return jnp.min(values[..., 0] / jnp.maximum(values[..., -1], jnp.finfo(values.dtype).tiny))

    return jnp.stack([ratio(state) for state in belief.blocks])


def million(steps: int, names: list[str]) -> None:
    """Regression on a random function of random inputs of several scales, with noisy observations."""
    network = models.network(models.MLP(3, features=(16, 12)), jnp.zeros(6))
    teacher = network.init(jax.random.key(9))
    teacher["output"] = jax.tree.map(lambda leaf: jax.random.normal(jax.random.key(8), leaf.shape), teacher["output"])
    chunk = 10_000
    for name in names:
        for q in (0.0, 1e-4):
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
                    return belief, (rejected.sum(), finite.all(), jnp.min(worst), jnp.min(definiteness(belief)))

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


def drift(steps: int, names: list[str]) -> None:
    """The digits bandit in float64; filters in float32 are updated with the same contexts, actions and rewards."""
    jax.config.update("jax_enable_x64", True)
    digits = load_digits()
    images, labels = jnp.asarray(digits.images / 16), jnp.asarray(digits.target)
    network = models.network(Digits.model, jnp.zeros(images.shape[1:]))
    order = np.random.default_rng(0).integers(len(images), size=steps)
    keys = jax.random.split(jax.random.key(2), steps)
    dtypes = {
        "float64": filters.Numerics(dtype=jnp.float64),
        "float32": filters.Numerics(dtype=jnp.float32),
        "float32, basis in bfloat16": filters.Numerics(dtype=jnp.float32, basis_dtype=jnp.bfloat16),
    }
    layered = {"process_noise_last": 1e-6}
    makers = {
        "lrkf": functools.partial(filters.lrkf, rank=20, process_noise=1e-2),
        "lolofi": functools.partial(filters.lolofi, rank_hidden=20, rank_last=50, process_noise_hidden=1e-2, **layered),
        "hilofi": functools.partial(filters.hilofi, rank=20, process_noise_hidden=1e-4, **layered),
        "lofi": functools.partial(filters.lofi, rank=20, initial_std=0.1),
    }
    for name in names:
        make = makers[name]
        team = [make(network, likelihoods.gaussian(0.01), numerics=kinds) for kinds in dtypes.values()]

        def step(beliefs, seen, team=team):
            index, key = seen
            x, label = images[index], labels[index]
            at = team[0].moments(beliefs[0], x)
            spread = jnp.sqrt(jnp.maximum(jnp.diagonal(at.cov), 0))
            action = jnp.argmax(at.mean + spread * jax.random.normal(key, (10,)))
            reward = (action == label).astype(jnp.float64)
            narrow = x.astype(jnp.float32), reward.astype(jnp.float32), action
            told = [(x, reward, action), narrow, narrow]
            updated = [f.update(f.predict(b), *t)[0] for f, b, t in zip(team, beliefs, told, strict=True)]
            finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(updated)]
            return updated, (reward, jnp.all(jnp.stack(finite)))

        beliefs = [flt.init(jax.random.key(1), network.init(jax.random.key(0))) for flt in team]
        # The same key draws different numbers in another dtype, so all filters start from the factors of the first.
        beliefs = [jax.tree.map(lambda own, first: first.astype(own.dtype), b, beliefs[0]) for b in beliefs]
        beliefs, (rewards, finite) = jax.jit(functools.partial(jax.lax.scan, step))(beliefs, (order, keys))
        at = [jax.vmap(lambda x, f=f, b=b: f.moments(b, x))(images[:100]) for f, b in zip(team, beliefs, strict=True)]
        print(
            f"{name}: {steps:,} steps, reward {rewards.sum():,.0f}, finite {bool(finite.all())}; "
            "largest relative error over 100 images",
            flush=True,
        )
        for label, rough in zip(list(dtypes)[1:], at[1:], strict=True):
            means = jnp.linalg.norm(rough.mean - at[0].mean, axis=1) / jnp.linalg.norm(at[0].mean, axis=1)
            spreads = jnp.linalg.norm(rough.cov - at[0].cov, axis=(1, 2)) / jnp.linalg.norm(at[0].cov, axis=(1, 2))
            least = jnp.min(jnp.linalg.eigvalsh(rough.cov) / jnp.max(rough.cov, axis=(1, 2))[:, None])
            print(
                f"    {label}: means {means.max():.1e}, covariances {spreads.max():.1e}, smallest eigenvalue over "
                f"largest variance {least:.1e}",
                flush=True,
            )


def main(
    what: Annotated[Literal["equality", "million", "drift"], tyro.conf.Positional],
    steps: int | None = None,
    filters: tuple[str, ...] = NAMES,
) -> None:
    """Print the lines of one measurement; None is its own number of steps."""
    measure, usual = {"equality": (equality, 1000), "million": (million, 1_000_000), "drift": (drift, 100_000)}[what]
    measure(steps or usual, list(filters))


if __name__ == "__main__":
    command(main)
