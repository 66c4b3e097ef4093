"""Optimal optimizers of four families of trust regions on two functions (self-tuning momentum, Figure 2).

    python benchmarks/trust_regions.py [--steps 200] [--budgets 181]

theta_{t+1} = theta_t - Q_t g_t, where Q_t maximizes the learning power Tr(Q Sigma_t) over the symmetric Q >= 0 of a
region, and Sigma_t is the average of g g^T with decay 0.9, without bias (Corollary 2):

Frobenius  ||Q||_F^2 <= B                        Q = sqrt(B) Sigma / ||Sigma||_F
spectral   Tr Q <= tau, Q <= lambda I            Q has lambda on the leading eigenvectors of Sigma until tau is spent
Lyapunov   Tr(Q^2 Sigma) <= B                    Q = sqrt(B / Tr Sigma) on the range of Sigma
diagonal   sum_j c_j q_j^2 <= B, c_j^2 = S_jj    q_j = sqrt(B / sum_l S_ll^2 / c_l) S_jj / c_j

Each family has the budget with the lowest loss at the end of those on a grid from 1e-6 to 1e3 (of the spectral one,
lambda is on the grid and tau is 1, 1.5 or 2 lambda), as the paper's lines are the best of a dense search.
The functions, from (-1.5, 2): (x^2 + 25 y^2) / 2, and Rosenbrock's (1 - x)^2 + 100 (y - x^2)^2. The paper names neither
its constants nor its starting points, so that only the order of the families compares.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from harness import command, table

DECAY = 0.9
TINY = 1e-30


def frobenius(moment: jax.Array, budget: jax.Array) -> jax.Array:
    """Q of the ball of the Frobenius norm."""
    return jnp.sqrt(budget) * moment / (jnp.linalg.norm(moment) + TINY)


def spectral(part: float) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """Q of the bounded trace and largest eigenvalue, tau = `part` lambda."""

    def region(moment, budget):
        _, vectors = jnp.linalg.eigh(moment)
        spent = jnp.clip(part - jnp.arange(moment.shape[0]), 0.0, 1.0)[::-1]
        return budget * (vectors * spent) @ vectors.T

    return region


def lyapunov(moment: jax.Array, budget: jax.Array) -> jax.Array:
    """Q of equal power: a multiple of the projector on the range of the moment."""
    values, vectors = jnp.linalg.eigh(moment)
    kept = jnp.where(values > 1e-12 * values[-1], 1.0, 0.0)
    return jnp.sqrt(budget / (jnp.trace(moment) + TINY)) * (vectors * kept) @ vectors.T


def diagonal(moment: jax.Array, budget: jax.Array) -> jax.Array:
    """Q of the weighted ball of diagonal matrices."""
    squares = jnp.diag(moment)
    costs = jnp.sqrt(squares) + TINY
    return jnp.sqrt(budget / (jnp.sum(squares**2 / costs) + TINY)) * jnp.diag(squares / costs)


FAMILIES = {
    "Frobenius": {"": frobenius},
    "spectral": {f", tau = {part} lambda": spectral(part) for part in (1, 1.5, 2)},
    "Lyapunov": {"": lyapunov},
    "diagonal": {"": diagonal},
}
FUNCTIONS = {
    "ellipse": lambda point: (point[0] ** 2 + 25 * point[1] ** 2) / 2,
    "Rosenbrock": lambda point: (1 - point[0]) ** 2 + 100 * (point[1] - point[0] ** 2) ** 2,
}


def losses(function: Callable, region: Callable, steps: int, budget: jax.Array) -> jax.Array:
    """(steps + 1,) losses along a run; inf where they are not finite."""

    def step(carry, number):
        point, moment = carry
        gradient = jax.grad(function)(point)
        moment = DECAY * moment + (1 - DECAY) * jnp.outer(gradient, gradient)
        point = point - region(moment / (1 - DECAY ** (number + 1)), budget) @ gradient
        return (point, moment), function(point)

    start = jnp.array([-1.5, 2.0])
    _, values = jax.lax.scan(step, (start, jnp.zeros((2, 2))), jnp.arange(steps))
    values = jnp.concatenate([function(start)[None], values])
    return jnp.where(jnp.isfinite(values), values, jnp.inf)


def main(steps: int = 200, budgets: int = 181) -> None:
    """Print a row for each function and family, with the best of so many budgets."""
    jax.config.update("jax_enable_x64", True)
    tried = jnp.logspace(-6, 3, budgets)
    shown = [step for step in (10, 30, 100) if step < steps] + [steps]
    row = table("function", "family", "budget", *(f"loss, step {step}" for step in shown))
    for title, function in FUNCTIONS.items():
        for family, regions in FAMILIES.items():
            curves = {}
            for suffix, region in regions.items():
                run = jax.vmap(functools.partial(losses, function, region, steps))
                found = np.asarray(jax.jit(run)(tried))
                best = int(np.argmin(found[:, -1]))
                curves[f"{tried[best]:.2g}{suffix}"] = found[best]
            setting = min(curves, key=lambda name: curves[name][-1])
            row(title, family, setting, *(f"{curves[setting][step]:.1e}" for step in shown))


if __name__ == "__main__":
    command(main)
