"""Directions of the steps of KOALA++ and FISMO, and the momentum of self-tuning SGD, in a training run by KOALA++.

    python benchmarks/directions.py mnist cifar text

Prints medians over the tensors and over the second half of the run: the cosine between successive minibatch gradients,
between KOALA++'s step and the current gradient, and between momentum 0.9 and the current gradient. For matrices, the
cosine between the steps of FISMO and of Muon without Nesterov's momentum (FISMO with identity factors), and the largest
condition number of FISMO's factors at the end; the same with its scale-free statistics. In what share of the steps
self-tuning SGD takes each of its momenta.
"""

from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro
from harness import command

from reproduction import tasks
from seqdec import optim

MOMENTA = (0.01, 0.9, 0.99)


def cosines(left, right) -> jax.Array:
    """The cosine of each pair of tensors."""
    pairs = zip(left, right, strict=True)
    return jnp.stack([optax.cosine_similarity(a.ravel(), b.ravel(), epsilon=1e-30) for a, b in pairs])


def measure(name: str, rate: float, steps: int) -> dict[str, float]:
    """The figures of one task by title, from a run of KOALA++ with a constant learning rate."""
    task = tasks.make(name)
    koala = optim.koala_plus_plus(rate, initial_variance=10.0, process_noise=10.0)
    momentum = optax.trace(0.9)
    muon = optim.scale_by_fismo(b2=1.0, rms=None)
    printed = optim.scale_by_fismo(rms=None)
    free = optim.scale_by_fismo(statistics="scale_free", eps=0.1, rms=None)
    tuned = optim.scale_by_self_tuning(MOMENTA)
    start = task.init(jax.random.key(0))
    is_matrix = jax.tree.leaves(optim.hidden_matrices(start))

    def matrices(tree):
        return [leaf for leaf, selected in zip(jax.tree.leaves(tree), is_matrix, strict=True) if selected]

    def step(carry, number):
        params, last, state, tuning, *states = carry
        batch = task.draw(jax.random.fold_in(jax.random.key(0), number), task.data, task.batch)
        loss, gradients = jax.value_and_grad(lambda params: task.loss(params, batch)[0])(params)
        steps, state = koala.update(gradients, state, params, value=loss)
        averaged, states[0] = momentum.update(gradients, states[0])
        _, tuning = tuned.update(gradients, tuning)
        rows, directions = jax.tree.leaves(gradients), []
        for index, method in enumerate((muon, printed, free), 1):
            direction, states[index] = method.update(matrices(gradients), states[index])
            directions.append(direction)
        measured = (
            cosines(rows, last),
            -cosines(jax.tree.leaves(steps), rows),
            cosines(jax.tree.leaves(averaged), rows),
            cosines(directions[1], directions[0]),
            cosines(directions[2], directions[0]),
        )
        return (optax.apply_updates(params, steps), rows, state, tuning, *states), (*measured, tuning.chosen)

    states = (momentum.init(start), *(method.init(matrices(start)) for method in (muon, printed, free)))
    zeros = [jnp.zeros_like(leaf) for leaf in jax.tree.leaves(start)]
    carry = (start, zeros, koala.init(start), tuned.init(start), *states)
    run = jax.jit(lambda carry: jax.lax.scan(step, carry, jnp.arange(steps)))
    (*_, printed_state, free_state), (*measured, chosen) = run(carry)
    titles = (
        "successive gradients",
        "KOALA++ and gradient",
        "momentum and gradient",
        "FISMO and Muon",
        "scale-free FISMO and Muon",
    )
    result = {title: float(np.median(cosine[steps // 2 :])) for title, cosine in zip(titles, measured, strict=True)}
    for title, state in (("condition", printed_state), ("scale-free condition", free_state)):
        factors = jax.tree.leaves([optax.tree.get(state, name) for name in ("left", "right")])
        result[title] = max(float(np.linalg.cond(np.asarray(factor, float))) for factor in factors)
    for index, value in enumerate(MOMENTA):
        result[f"takes momentum {value}"] = float(np.mean(chosen[steps // 2 :] == index))
    return result


def main(
    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ("mnist", "cifar", "text"),
    rate: float = 0.1,
    steps: int = 100,
) -> None:
    """Print a line for each task."""
    for name in names:
        figures = measure(name, rate, steps)
        print(name, *(f"{key} {value:.3f}" for key, value in figures.items()), sep="; ", flush=True)


if __name__ == "__main__":
    command(main)
