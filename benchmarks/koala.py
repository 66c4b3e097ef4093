"""What KOALA++ makes of a training run's gradients: why its steps are those of plain SGD where minibatches are noisy.

    python benchmarks/koala.py mnist cifar text

Prints, as medians over steps and tensors of the run's second half: the cosine between successive minibatch gradients;
the cosine between KOALA++'s step and the gradient of the moment, and the same of Adam's first moment; and in how many
per cent of the steps the covariance started anew because the variance it predicted was not positive.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax

from seqdec import optim
from seqdec.experiments import tasks


def cosines(left, right) -> jax.Array:
    """One for each tensor."""
    pairs = zip(left, right, strict=True)
    return jnp.stack([optax.cosine_similarity(a.ravel(), b.ravel(), epsilon=1e-30) for a, b in pairs])


def measure(name: str, rate: float, steps: int) -> dict[str, float]:
    task = tasks.make(name)
    koala = optim.koala_plus_plus(rate, initial_variance=10.0, process_noise=10.0)
    momentum = optax.trace(0.9)

    def step(carry, number):
        params, state, trace, last = carry
        batch = task.draw(jax.random.fold_in(jax.random.key(0), number), task.data, task.batch)
        (loss, _), gradients = jax.value_and_grad(task.loss, has_aux=True)(params, batch)
        updates, fresh = koala.update(gradients, state, params, value=loss)
        averaged, trace = momentum.update(gradients, trace)
        rows, (inner, *_) = jax.tree.leaves(gradients), fresh
        # v = p_0 H, and only then, in a step that starts anew.
        anew = cosines(jax.tree.leaves(inner.product), rows) > 1 - 1e-6
        seen = (
            cosines(rows, last),
            cosines([-u for u in jax.tree.leaves(updates)], rows),
            cosines(jax.tree.leaves(averaged), rows),
            anew,
        )
        return (optax.apply_updates(params, updates), fresh, trace, rows), (loss, *seen)

    params = task.init(jax.random.key(0))
    zeros = [jnp.zeros_like(leaf) for leaf in jax.tree.leaves(params)]
    carry = params, koala.init(params), momentum.init(params), zeros
    _, (loss, successive, own, adam, anew) = jax.jit(lambda carry: jax.lax.scan(step, carry, jnp.arange(steps)))(carry)
    half = steps // 2
    return {
        "loss": float(loss[-steps // 10 :].mean()),
        "successive gradients": float(np.median(successive[half:])),
        "step of KOALA++": float(np.median(own[half:])),
        "momentum 0.9": float(np.median(adam[half:])),
        "started anew, %": 100 * float(np.mean(anew[half:])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+", choices=tasks.names())
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()
    for name in arguments.tasks:
        found = measure(name, arguments.rate, arguments.steps)
        print(name, *(f"{key} {value:.3f}" for key, value in found.items()), sep="; ", flush=True)


if __name__ == "__main__":
    main()
