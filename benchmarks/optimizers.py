"""Time of a training step on LeNet5 with each optimizer, and its ratio to that of optax.adamw.

    python benchmarks/optimizers.py [NAME ...] [--batch 64] [--rounds 7]

A step is loss, gradient and update on random images of MNIST's size. The optimizers are measured in turns, and the
minimum over the rounds is reported, because other programs can only slow them down. On a shared machine processor time,
of all threads, is more reliable. The time of Alice includes one switch per interval.
"""

import argparse
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

from reproduction.optimizers import CONTENDERS
from seqdec import models, optim

STEPS = 200
MAKERS = {name: functools.partial(contender.make, contender.rate) for name, contender in CONTENDERS.items()} | {
    "alice": functools.partial(optim.alice, 0.02, rank=32, interval=STEPS),
    "alice_0": functools.partial(optim.alice_0, 0.02, rank=32, interval=STEPS),
    "muon": functools.partial(CONTENDERS["muon"].make, lambda step: 0.02),
}


def training(name: str, batch: int):
    """A compiled program of STEPS steps, and its arguments."""
    module, transform = models.LeNet5(10), optax.with_extra_args_support(MAKERS[name]())
    images = jax.random.uniform(jax.random.key(0), (16, batch, 28, 28))
    labels = jax.random.randint(jax.random.key(1), (16, batch), 0, 10)
    params = module.init(jax.random.key(2), images[0, 0])["params"]

    def loss_of(params, x, y):
        logits = jax.vmap(lambda image: module.apply({"params": params}, image))(x)
        return optax.softmax_cross_entropy_with_integer_labels(jnp.asarray(logits), y).mean()

    def step(carry, count, images, labels):
        params, state = carry
        loss, gradients = jax.value_and_grad(loss_of)(params, images[count % 16], labels[count % 16])
        updates, state = transform.update(gradients, state, params, value=loss)
        return (optax.apply_updates(params, updates), state), loss

    def run(carry, images, labels):
        return jax.lax.scan(functools.partial(step, images=images, labels=labels), carry, jnp.arange(STEPS))

    carry = (params, transform.init(params))
    return jax.jit(run).lower(carry, images, labels).compile(), (carry, images, labels)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(MAKERS), metavar="NAME")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    chosen = ["adamw", *(name for name in options.names if name != "adamw")]
    programs = {name: training(name, options.batch) for name in chosen}
    best = {name: np.full(2, np.inf) for name in chosen}
    for _ in range(options.rounds):
        for name, (program, arguments) in programs.items():
            began = np.array([time.perf_counter(), time.process_time()])
            jax.block_until_ready(program(*arguments))
            spent = np.array([time.perf_counter(), time.process_time()]) - began
            best[name] = np.minimum(best[name], 1e3 * spent / STEPS)
    for name, (wall, processor) in best.items():
        ratios = best[name] / best["adamw"]
        print(
            f"{name:18} {wall:7.3f} ms a step, {ratios[0]:.2f} of AdamW's; "
            f"processor {processor:7.3f} ms, {ratios[1]:.2f}",
            flush=True,
        )
