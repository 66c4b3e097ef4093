"""Covariance functions of Gaussian processes."""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from seqdec.core import Array


def matern52_at(r: Any, exp: Callable[[Any], Any] = np.exp) -> Any:
    """Matern-5/2 at sqrt5 times the distance, (1 + r + r^2 / 3) exp(-r)."""
    return (1 + r + r**2 / 3) * exp(-r)


def matern52(a: Array, b: Array) -> Array:
    """Matern-5/2, (1 + sqrt5 r + 5 r^2 / 3) exp(-sqrt5 r) for the distance r of two rows: (n, d), (m, d) -> (n, m)."""
    squares = jnp.sum(a**2, 1)[:, None] + jnp.sum(b**2, 1)[None] - 2 * a @ b.T
    # sqrt has no gradient at zero; that of the kernel is zero there.
    far = squares > 1e-20
    r = math.sqrt(5) * jnp.sqrt(jnp.where(far, squares, 1.0))
    return jnp.where(far, matern52_at(r, jnp.exp), 1.0)


def padded(cov: Array, keep: Array, noise: Array | float) -> Array:
    """Covariance (N, N) of noisy responses in the rows kept (N,) bool; of others the identity."""
    both = keep[:, None] & keep[None]
    return jnp.where(both, cov, 0) + jnp.diag(jnp.where(keep, noise, 1.0))
