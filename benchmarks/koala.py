"""Training loss of KOALA++ with other observations of the loss, each with a sweep of learning rates of its own.

    python benchmarks/koala.py [TASK ...] [--rates 5] [--seeds 3] [--steps N] [--variants VARIANT ...]

default       the loss, and R tracks its square, as in `seqdec run optimizers`
first_twice   the first gradient is filtered twice, as the authors' code does
lowest        the loss minus 0.9 times the lowest value so far of its moving average
known floor   the loss minus 0.9 times the loss at the end of the default's runs
variance      R tracks the variance of the loss over the minibatch

Learning rates are half a decade apart around 0.316, with warm-up and a cosine; the best is chosen on a seed that is not
reported. Prints the loss over the last tenth of the steps, and by how much it lies below the default's on the same
seeds, with 95% intervals.
"""

import argparse
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from reproduction import tasks
from reproduction.tasks import Task
from seqdec import optim
from seqdec.statistics import mean_and_margin

SHARE = 0.9
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "first_twice": {"first_twice": True},
    "lowest": {"share": SHARE},
    "known floor": {"known": True},
    "variance": {"variance": True},
}


def training(task: Task, steps: int, variance: bool = False, **settings: Any) -> Callable[..., jax.Array]:
    """A program (rate, seed, floor, share) -> mean loss over the last tenth of the steps."""
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1.0, steps // 10, steps, 0.1)
    transform = optim.koala_plus_plus(schedule, initial_variance=10.0, process_noise=10.0, **settings)

    def observe(params, batch):
        losses = jax.vmap(lambda row: task.loss(params, jax.tree.map(lambda part: part[None], row))[0])(batch)
        return jnp.mean(losses), jnp.var(losses)

    def step(carry, number, data, rate, seed, floor, share):
        params, state, average, lowest = carry
        batch = task.draw(jax.random.fold_in(jax.random.key(seed), number), data, task.batch)
        (loss, spread), gradients = jax.value_and_grad(observe, has_aux=True)(params, batch)
        average = jnp.where(number == 0, loss, 0.9 * average + 0.1 * loss)
        lowest = jnp.minimum(lowest, average)
        value = jnp.maximum(loss - jnp.maximum(floor, share * lowest), 0)
        extra = {"value_variance": spread} if variance else {}
        updates, state = transform.update(gradients, state, params, value=value, **extra)
        return (jax.tree.map(lambda p, u: p + rate * u, params, updates), state, average, lowest), loss

    @jax.jit
    def run(data, rate, seed, floor, share):
        params = task.init(jax.random.key(seed))
        body = functools.partial(step, data=data, rate=rate, seed=seed, floor=floor, share=share)
        carry = (params, transform.init(params), jnp.zeros(()), jnp.asarray(jnp.inf))
        return jnp.mean(jax.lax.scan(body, carry, jnp.arange(steps))[1][-(steps // 10) :])

    return functools.partial(run, task.data)


def compare(name: str, options: argparse.Namespace) -> None:
    """Print the figures of one task."""
    task = tasks.make(name)
    grid = 0.316 * 10 ** (0.5 * (np.arange(options.rates) - (options.rates - 1) / 2))
    programs, ends = {}, {}
    for variant in dict.fromkeys(["default", *options.variants]):
        settings = VARIANTS[variant]
        kinds = tuple((key, value) for key, value in settings.items() if key in ("first_twice", "variance"))
        if kinds not in programs:
            programs[kinds] = training(task, options.steps or task.steps, **dict(kinds))
        floor = SHARE * np.mean(ends["default"]) if "known" in settings else 0.0
        run = functools.partial(programs[kinds], floor=floor, share=settings.get("share", 0.0))
        sweep = np.nan_to_num([float(run(rate, options.seeds)) for rate in grid], nan=np.inf)
        best = grid[np.argmin(sweep)]
        ends[variant] = np.array([float(run(best, seed)) for seed in range(options.seeds)])
        figures = [mean_and_margin(ends[variant]), mean_and_margin(ends["default"] - ends[variant])]
        loss, ahead = (f"{mean:.3f} ± {margin:.3f}" for mean, margin in figures)
        print(f"{name:6} {variant:12} rate {best:.2g}  loss {loss}  ahead of default {ahead}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=list(tasks.names()), metavar="TASK")
    parser.add_argument("--rates", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS), metavar="VARIANT")
    arguments = parser.parse_args()
    for chosen in arguments.tasks:
        compare(chosen, arguments)
