"""A full-rank covariance as a square root T, updated by o observations in O(D^2 o)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from seqdec.core import Array
from seqdec.linalg.batching import advance_filled, check_spare_columns, columns_from, cond_any, eigh, qr
from seqdec.linalg.roots import potter_scale, root_of_sum, solve_psd
from seqdec.linalg.spectral import sylvester


class FullRankFactor(NamedTuple):
    """Root T, not triangular, of a full-rank covariance Sigma = T^T T = columns columns^T."""

    columns: Array
    """(D, D + m) T^T; m spare columns, zero until used"""
    filled: Array
    """() int32, spare columns in use"""


def full_rank_from(square: Array, spare: int) -> FullRankFactor:
    """The factor of square^T square, square (D, D), with m = spare columns."""
    return FullRankFactor(jnp.pad(square.mT, ((0, 0), (0, spare))), jnp.zeros((), jnp.int32))


class FullRankUpdate(NamedTuple):
    """A factor after an observation, and its gain."""

    factor: FullRankFactor
    gain: Array
    """K^T (o, D)"""


def full_rank_downdate(
    factor: FullRankFactor,
    jacobian: Array,
    products: Array,
    raw_gain: Array,
    innovation_root: Array,
    noise_root: Array,
    accept: Array,
) -> FullRankUpdate:
    """Root of (I - K H) Sigma (I - K H)^T + K R K^T, the Joseph form, for any gain, in O(D^2).

    The stack [T (I - K H)^T; R^{1/2} K^T] changes T by rank o and adds o rows in spare columns; when none are left, one
    QR makes T square.

    Args:
        factor: root of Sigma.
        jacobian: H (o, D).
        products: H T^T (o, D + m).
        raw_gain: S K^T (o, D), such as H Sigma + q H.
        innovation_root, noise_root: upper triangular S^{1/2} and R^{1/2} (o, o).
        accept: () False changes nothing; all else must be finite even then.
    """
    (size, width), observed = factor.columns.shape, len(jacobian)
    spare = width - size
    check_spare_columns(observed, spare)

    def make_room(operand):
        full, _, jacobian = operand
        square = full_rank_from(root_of_sum(full.columns.mT), spare)
        return square, jacobian @ square.columns, jacobian

    factor, products, _ = cond_any(factor.filled + observed > spare, make_room, (factor, products, jacobian))
    gain = jnp.where(accept, solve_psd(innovation_root, raw_gain), 0)
    # Spare columns in use later are zero now, so the new rows are part of the same rank-o change.
    place = columns_from(size + factor.filled, observed, width)
    columns = factor.columns + gain.mT @ (noise_root.mT @ place.astype(gain.dtype) - products)
    return FullRankUpdate(FullRankFactor(columns, advance_filled(factor.filled, observed, accept)), gain)


@jax.custom_jvp
def _root_loss(matrix: Array) -> Array:
    """I - (I - M)^{1/2} of a symmetric M (o, o) with eigenvalues of at most 1."""
    values, vectors = eigh(matrix)
    return (vectors * (1 - jnp.sqrt(jnp.clip(1 - values, 0)))[None]) @ vectors.mT


@_root_loss.defjvp
def _(primals, tangents):
    """S dS + dS S = -dM for the root S."""
    lost = _root_loss(*primals)
    root = jnp.eye(len(lost), dtype=lost.dtype) - lost
    return lost, sylvester(root, -root, tangents[0])


def symmetric_downdate(
    factor: FullRankFactor, products: Array, raw_gain: Array, innovation_root: Array, noise_root: Array, accept: Array
) -> FullRankUpdate:
    """`full_rank_downdate` for q = 0, K^T = S^{-1} H Sigma, without new columns.

    With F = H T^T and W = S^{-1}, T^T <- T^T (I - F^T X F)^{1/2}, X = 2 W - W (F F^T + R) W: for one observation
    Potter's form; otherwise through I - B X B^T (o, o), F^T = Q B. `raw_gain` is F T (o, D).
    """
    gain = jnp.where(accept, solve_psd(innovation_root, raw_gain), 0)
    if len(products) == 1:
        columns = factor.columns - gain.mT @ (potter_scale(products, innovation_root, noise_root) * products)
    else:
        span, small = qr(products.mT)
        weighted = solve_psd(innovation_root, small.mT)
        variance = products @ products.mT + noise_root.mT @ noise_root
        lost = _root_loss(2 * small @ weighted - weighted.mT @ variance @ weighted)
        columns = factor.columns - (factor.columns @ span) @ (jnp.where(accept, lost, 0) @ span.mT)
    return FullRankUpdate(factor._replace(columns=columns), gain)
