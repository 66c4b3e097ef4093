"""What single optimizers promise about the updates of a step, seen from outside."""

import jax.numpy as jnp
import numpy as np

from seqdec import optim


def test_fira_lets_the_part_outside_its_basis_grow_by_its_factor_a_step() -> None:
    """Gradients with one strong direction, the basis, and a rest that is small in the first step and large after it."""
    draw = np.random.default_rng(0)
    left, _ = np.linalg.qr(draw.normal(size=(4, 4)))
    right, _ = np.linalg.qr(draw.normal(size=(6, 6)))
    made = optim.scale_by_fira(rank=1, growth=1.5)
    state, lengths = made.init({"w": jnp.zeros((4, 6))}), []
    for rest in (1e-3, 5.0, 5.0, 5.0):
        gradient = 10 * np.outer(left[:, 0], right[0]) + rest * np.outer(left[:, 1], right[1] + right[0])
        updates, state = made.update({"w": jnp.asarray(gradient, jnp.float32)}, state, {"w": jnp.zeros((4, 6))})
        lengths.append(float(np.linalg.norm(left[:, 1:].T @ np.asarray(updates["w"]))))
    np.testing.assert_allclose(np.array(lengths[1:]) / lengths[:-1], 1.5, rtol=0.05)
