r"""Square roots of covariances, Sigma = R^T R, as plain matrices."""

import jax
import jax.numpy as jnp

from seqdec.core import Array, Key
from seqdec.linalg.batching import cholesky, eigh, qr, solve_transposed, solve_triangular, triangular_factor


def relative_jitter(dtype) -> float:
    """Relative size of a ridge: a few units in the last place."""
    return 8 * float(jnp.finfo(dtype).eps)


def root_of_sum(*blocks: Array) -> Array:
    """Upper triangular R (n, n) with R^T R = sum_i B_i^T B_i of blocks (rows_i, n), by one QR; the paper's Q_R."""
    stack = jnp.concatenate(blocks)
    missing = max(0, stack.shape[1] - stack.shape[0])
    return triangular_factor(jnp.pad(stack, ((0, missing), (0, 0))))


def psd_root(cov: Array) -> Array:
    """Upper triangular R with R^T R = cov (n, n) up to a relative jitter; cov may be singular, even zero."""
    if cov.shape == (1, 1):
        return jnp.sqrt(jnp.maximum(cov, 0))
    largest = jnp.max(jnp.diagonal(cov))
    # Scaled to one first: the ridge of a tiny covariance would be subnormal and flushed to zero. It grows with n as
    # the rounding of an n x n factorization does.
    ridge = max(1, len(cov) / 8) * relative_jitter(cov.dtype) * jnp.eye(len(cov), dtype=cov.dtype)
    return jnp.sqrt(largest) * cholesky(cov / largest_magnitude(largest) + ridge).mT


def solve_psd(root: Array, rhs: Array) -> Array:
    """(R^T R)^{-1} rhs for upper triangular R (n, n)."""
    if root.shape == (1, 1):
        return rhs / root[0, 0] ** 2
    half = solve_transposed(root, rhs)
    return solve_triangular(root, half)


def inverse_root(precision: Array) -> Array:
    """Upper triangular C with C C^T the inverse of a positive definite precision (n, n), scaled to a unit diagonal."""
    scale = 1 / jnp.sqrt(jnp.diagonal(precision))
    ridge = max(1, len(precision) / 8) * relative_jitter(precision.dtype)
    identity = jnp.eye(len(precision), dtype=precision.dtype)
    root = cholesky(precision * scale[None] * scale[:, None] + ridge * identity)
    return scale[:, None] * solve_triangular(root.mT, identity)


def low_rank_projection(rank: int, *blocks: Array, inflation: Array | float = 0.0) -> Array:
    """J (rank, n) with J^T J the best rank-d approximation of sum_i B_i^T B_i + a I; the paper's P_{d,+a}.

    J = diag(sqrt(s_i^2 + a)) V_d^T from the singular values and right vectors of the stacked blocks (rows_i, n). Rows
    beyond the rank of the stack are zero. `inflation` is the variance a >= 0.
    """
    stack = jnp.concatenate(blocks)
    stack = jnp.pad(stack, ((0, max(0, rank - len(stack))), (0, 0)))
    # Scaled to one, so that the Gram matrix of tiny or huge entries neither under- nor overflows.
    scale = largest_magnitude(stack)
    unit = stack / scale
    values, vectors = eigh(unit @ unit.mT)
    # Directions with an eigenvalue below rounding are inflated by less than a, never by more.
    safe = jnp.maximum(values[-rank:], len(stack) * relative_jitter(stack.dtype))
    gains = jnp.sqrt(1 + jnp.minimum(inflation / scale / scale / safe, jnp.finfo(stack.dtype).max))
    return scale * gains[:, None] * (vectors[:, -rank:].mT @ unit)


def largest_magnitude(values: Array) -> Array:
    """Largest magnitude, or 1 where all values are zero."""
    largest = jnp.max(jnp.abs(values))
    return jnp.where(largest > 0, largest, 1)


def random_orthonormal_rows(key: Key, rank: int, size: int, dtype) -> Array:
    """(rank, size) orthonormal rows, uniformly distributed; rank <= size."""
    return qr(jax.random.normal(key, (size, rank), dtype))[0].mT


def potter_scale(products: Array, innovation_root: Array, noise_root: Array) -> Array:
    """The c for which T^T - c K F, F = H T^T (1, D), is a root of (I - K H) Sigma (I - K H)^T + K R K^T."""
    total = innovation_root[0, 0] ** 2
    epistemic, noise = jnp.sum(products**2) / total, noise_root[0, 0] ** 2 / total
    left = jnp.sqrt((1 - epistemic) ** 2 + noise * epistemic)
    # (1 - left) S / |F|^2 without cancellation, since 1 - left^2 = epistemic (2 - epistemic - noise).
    return (2 - epistemic - noise) / (1 + left)
