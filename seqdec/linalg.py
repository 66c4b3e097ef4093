r"""Square-root linear algebra for recursive Gaussian beliefs, and the only place with jitter.

Covariances are kept as roots, Sigma = C^T C, so that they are positive semi-definite whatever the rounding. Three
forms:

* plain matrices: `root_of_sum` (the paper's Q_R), `low_rank_projection` (P_{d,+a}), `psd_root`, `solve_psd`;
* `Root`: a root of full rank that takes low-rank downdates in O(D^2);
* `LowRank`: a rank-d root on a lazy basis that takes an update in O(D d) instead of the O(D d^2) of the printed boxes.

The lazy basis. Write C = T Y with a small root T (d x d) and orthonormal rows Y = A B^T, of small coefficients A (d x
n) and a tall basis B (D x n, n = d + m). An observation with Jacobian H (o x D), noise R, innovation variance S and
gain K^T = S^{-1} (H C^T C + q H) turns C into a rank-d root of (I - K H) C^T C (I - K H)^T + K R K^T + q I. Once H is
appended to B as o new columns, what it has outside the span of C gives o more orthonormal rows, Y+, and everything that
happens to C happens in the d + o coordinates [Y; Y+]:

    H = a Y + b Y+      a = (H B) A^T, b b^T = H H^T - a a^T      U = T a^T = C H^T
    kappa = S^{-1} [U^T T + q a, q b]                             K^T = kappa [Y; Y+]
    Z     = [[T, 0] - U kappa; R^{1/2} kappa]                     (d + o square) the stack of the paper is Z [Y; Y+]

P_{d,+q} of the stack leaves out the o directions in which Z is least. With Q (d x d + o) an orthonormal basis of all
others, Y <- Q [Y; Y+], and T <- the triangular root of Q Z^T Z Q^T + q I: a Cholesky factor where that loses few
digits, and otherwise from one QR of [Z Q^T; q^{1/2} I], which does not square T, so that small variances keep their
digits beside large ones. For o = 1 there is no eigendecomposition: the one direction comes by inverse iteration, two
triangular solves a round since Z is a change of T by one row and column, and Q is a reflection.

B is read once for H B and once for the mean's step K eps: 2 n D floats are moved per observation, which is the floor of
this form. When the m spare columns are used up, B <- [B, H^T] A^T, and what rounding has done to Y Y^T = L L^T is put
right by A <- L^{-1}, T <- T L: O(D d n) work once in m / o observations. B is written last, so that the small algebra
waits for no pass over it. With q = 0 the gain stays in the span of C: nothing is appended and only T changes.
B and H are kept in the same pieces along D, so that the Jacobian of a large network need not be put together. Rows of
H by the kernel of a dense layer are outer products (`Outer`): x^T B serves all outputs, and no such row is written
down. Where it is known from the start which pieces have such rows, what is appended to them is kept as it comes, as
two vectors (`Extended`): 2 d D floats are moved then, and d D kept.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap

from seqdec.core import Array, Key

_T = TypeVar("_T")

Pieces = tuple[Array, ...]
"""A matrix with one column, or one row, per parameter, cut along the parameters; see `seqdec.models.pieces`."""


class Outer(NamedTuple):
    """Rows (o, in * out) of a Jacobian that are outer products, x delta_o^T; see `seqdec.filters.derivatives`.

    x^T B, for B as (in, out * n), is all that a product of all these rows with a basis B reads of it.
    """

    inputs: Array
    """x (in,)"""
    deltas: Array
    """(o, out)"""

    @property
    def shape(self) -> tuple[int, int, int]:
        """(o, in, out)."""
        return (len(self.deltas), len(self.inputs), self.deltas.shape[1])


Rows = tuple[Array | Outer, ...]
"""`Pieces` (o, D_p) of a Jacobian, some of them as outer products."""


class Extended(NamedTuple):
    """A piece of a basis, (in * out, d + m): d columns, and m more that are outer products."""

    columns: Array
    """(in * out, d)"""
    inputs: Array
    """(in, m)"""
    deltas: Array
    """(out, m)"""


def dense(rows: Array | Outer) -> Array:
    """The rows as a matrix (o, D_p); an array is (o, ...)."""
    if isinstance(rows, Outer):
        rows = rows.inputs[:, None] * rows.deltas[:, None, :]
    return rows.reshape(len(rows), -1)


def select(rows: Array | Outer, which: Array) -> Array | Outer:
    """Some of the rows."""
    return rows._replace(deltas=rows.deltas[which]) if isinstance(rows, Outer) else rows[which]


def one_by_one(function: Callable[..., _T]) -> Callable[..., _T]:
    """The same function of arrays; on a CPU `jax.vmap` computes it for one member of the batch after the other.

    For factorisations. jaxlib 0.10 spreads a batch of them over the threads of its CPU backend, and waits for it on one
    of these same threads: as many batches at once as there are threads wait for ever.
    """

    @custom_vmap
    def single(*arguments):
        return function(*arguments)

    @single.def_vmap
    def _(axis_size, in_batched, *arguments):
        every = _batched(axis_size, in_batched, arguments)
        done = lax.platform_dependent(
            *every, cpu=lambda *batch: lax.map(lambda member: single(*member), batch), default=jax.vmap(function)
        )
        return done, jax.tree.map(lambda _: True, done)

    # Derivatives in reverse do not go through a custom_vmap.
    differentiable = jax.custom_jvp(single)
    differentiable.defjvp(functools.partial(jax.jvp, function))
    return differentiable


def _batched(axis_size: int, in_batched: Sequence[Any], arguments: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments of a rule for `jax.vmap`, those that are the same for all members repeated for each."""
    return jax.tree.map(
        lambda leaf, batched: leaf if batched else jnp.broadcast_to(leaf, (axis_size, *jnp.shape(leaf))),
        tuple(arguments),
        tuple(in_batched),
    )


cholesky = one_by_one(jnp.linalg.cholesky)
_lower_root = one_by_one(functools.partial(lax.linalg.cholesky, symmetrize_input=False))
eigh = one_by_one(jnp.linalg.eigh)
qr = one_by_one(jnp.linalg.qr)
svd = one_by_one(functools.partial(jnp.linalg.svd, full_matrices=False))
_triangle = one_by_one(functools.partial(jnp.linalg.qr, mode="r"))
_solve_triangular = one_by_one(jax.scipy.linalg.solve_triangular)
_solve_transposed = one_by_one(functools.partial(jax.scipy.linalg.solve_triangular, trans=1))


def _jitter(dtype) -> float:
    """Relative size of the only ridge in the library: a few units in the last place."""
    return 8 * float(jnp.finfo(dtype).eps)


def root_of_sum(*blocks: Array) -> Array:
    r"""Upper triangular R with R^T R = sum_i B_i^T B_i, from one QR of the stacked rows; the paper's Q_R.

    Args:
        *blocks: matrices (rows_i, n) with the same number of columns.

    Returns:
        (n, n) root; padded with zero rows where the stack has fewer than n rows.
    """
    stack = jnp.concatenate(blocks)
    missing = max(0, stack.shape[1] - stack.shape[0])
    return _triangle(jnp.pad(stack, ((0, missing), (0, 0))))


def psd_root(cov: Array) -> Array:
    """Upper triangular R with R^T R = cov (n, n) up to a relative jitter; cov may be singular, even zero."""
    if cov.shape == (1, 1):
        return jnp.sqrt(jnp.maximum(cov, 0))
    largest = jnp.max(jnp.diagonal(cov))
    # Scaled to one first: a ridge of the size of a tiny covariance's rounding would be subnormal, and flushed to zero.
    # The rounding of an n x n factorisation grows with n.
    ridge = max(1, len(cov) / 8) * _jitter(cov.dtype) * jnp.eye(len(cov), dtype=cov.dtype)
    return jnp.sqrt(largest) * cholesky(cov / _scale_of(largest) + ridge).mT


def solve_psd(root: Array, rhs: Array) -> Array:
    """(R^T R)^{-1} rhs through two triangular solves with the upper triangular R (n, n); a division where n = 1."""
    if root.shape == (1, 1):
        return rhs / root[0, 0] ** 2
    half = _solve_transposed(root, rhs)
    return _solve_triangular(root, half)


def low_rank_projection(rank: int, *blocks: Array, inflation: Array | float = 0.0) -> Array:
    r"""J (rank, n) with J^T J the best rank-d approximation of sum_i B_i^T B_i + a I; the paper's P_{d,+a}.

    J = diag(sqrt(s_i^2 + a)) V_d^T from the singular values and right vectors of the stacked rows. Only directions in
    the row space of the stack are represented, so the rows beyond its rank are zero.

    Args:
        rank: number d of rows to return.
        *blocks: matrices (rows_i, n).
        inflation: a >= 0, a variance.
    """
    stack = jnp.concatenate(blocks)
    stack = jnp.pad(stack, ((0, max(0, rank - len(stack))), (0, 0)))
    # Entries of tiny and huge stacks would under- and overflow in the Gram matrix: work at scale one.
    scale = _scale_of(stack)
    unit = stack / scale
    values, vectors = eigh(unit @ unit.mT)
    # Directions whose eigenvalue drowns in rounding are inflated by less than a, never by more.
    safe = jnp.maximum(values[-rank:], len(stack) * _jitter(stack.dtype))
    gains = jnp.sqrt(1 + jnp.minimum(inflation / scale / scale / safe, jnp.finfo(stack.dtype).max))
    return scale * gains[:, None] * (vectors[:, -rank:].mT @ unit)


def _scale_of(values: Array) -> Array:
    """Largest magnitude, or 1 where all values are zero."""
    largest = jnp.max(jnp.abs(values))
    return jnp.where(largest > 0, largest, 1)


def random_orthonormal_rows(key: Key, rank: int, size: int, dtype) -> Array:
    """(rank, size) rows, orthonormal and uniformly distributed; rank must not exceed size."""
    return qr(jax.random.normal(key, (size, rank), dtype))[0].mT


def when(condition: Array, function: Any, operand: Any, *constants: Any) -> Any:
    """function(operand, *constants) if condition else operand: a branch that stays a branch under `jax.vmap`.

    `lax.cond` on a batched condition evaluates both sides at every step. Here the whole batch takes the branch as soon
    as one of its members asks for it, so `function` must do no harm where it was not asked for.
    """

    @custom_vmap
    def branch(condition, operand, constants):
        return lax.cond(condition, lambda same, rest: function(same, *rest), lambda same, _: same, operand, constants)

    @branch.def_vmap
    def _(axis_size, in_batched, condition, operand, constants):
        asked, *batched = in_batched
        operand, constants = _batched(axis_size, batched, (operand, constants))
        done = when(jnp.any(condition) if asked else condition, jax.vmap(function), operand, *constants)
        return done, jax.tree.map(lambda _: True, done)

    return branch(condition, operand, constants)


@custom_vmap
def _put_columns(buffer: Array, values: Array, at: Array) -> Array:
    """Buffer (D, n) with values (D, o) in its columns from `at` on; one write for a batch with the same place for all.

    The members of a batch fill their buffers in step unless one of them has refused an update.
    """
    return lax.dynamic_update_slice_in_dim(buffer, values, at, 1)


@_put_columns.def_vmap
def _(axis_size, in_batched, buffer, values, at):
    buffer, values, at = _batched(axis_size, in_batched, (buffer, values, at))

    # A loop of no rounds, where a conditional would copy the buffer.
    def write(member, buffer):
        place = (member, jnp.zeros_like(member), at[member].astype(member.dtype))
        return lax.dynamic_update_slice(buffer, values[member][None], place)

    in_step = at == at[0]
    present = lax.dynamic_slice_in_dim(buffer, at[0], values.shape[2], 2)
    buffer = lax.dynamic_update_slice_in_dim(buffer, jnp.where(in_step[:, None, None], values, present), at[0], 2)
    return lax.fori_loop(0, jnp.where(jnp.all(in_step), 0, axis_size), write, buffer), True


class Root(NamedTuple):
    """Root T of a full-rank covariance, Sigma = T^T T = columns columns^T; not triangular, with room to fill."""

    columns: Array
    """(D, D + m) T^T: a row of T is a column here, as in `LowRank`"""
    filled: Array
    """() int32, number of spare columns in use"""


def root_from(square: Array, spare: int) -> Root:
    """A `Root` of square^T square, square (D, D), with m = spare columns to fill."""
    return Root(jnp.pad(square.mT, ((0, 0), (0, spare))), jnp.zeros((), jnp.int32))


class RootUpdate(NamedTuple):
    """A conditioned root, and the gain that did it."""

    root: Root
    gain: Array
    """K^T (o, D)"""


def root_downdate(
    root: Root,
    jacobian: Array,
    products: Array,
    raw_gain: Array,
    innovation_root: Array,
    noise_root: Array,
    accept: Array,
) -> RootUpdate:
    r"""Root of (I - K H) Sigma (I - K H)^T + K R K^T, the Joseph form, for a gain of any kind, in O(D^2).

    The stack [T (I - K H)^T; R^{1/2} K^T] is a rank-o change of T and o new rows, which fill the spare columns. One QR
    makes room again when they are used up.

    Args:
        root: T with T^T T = Sigma.
        jacobian: H (o, D).
        products: H T^T (o, D + m).
        raw_gain: S K^T (o, D), such as H Sigma + q H.
        innovation_root: S^{1/2} (o, o), upper triangular.
        noise_root: R^{1/2} (o, o).
        accept: () bool; False leaves the covariance as it is. All other arguments must be finite all the same.
    """
    (size, width), observed = root.columns.shape, len(jacobian)
    spare = width - size
    _check_room(observed, spare)

    def make_room(operand):
        full, _, jacobian = operand
        fresh = root_from(root_of_sum(full.columns.mT), spare)
        return fresh, jacobian @ fresh.columns, jacobian

    root, products, _ = when(root.filled + observed > spare, make_room, (root, products, jacobian))
    gain = jnp.where(accept, solve_psd(innovation_root, raw_gain), 0)
    # Spare columns are zero until they are in use, so that the new rows come with the same change of rank o.
    place = jnp.arange(width) == size + root.filled + jnp.arange(observed)[:, None]
    columns = root.columns + gain.mT @ (noise_root.mT @ place.astype(gain.dtype) - products)
    return RootUpdate(Root(columns, _advance(root.filled, observed, accept)), gain)


def symmetric_downdate(
    root: Root, products: Array, raw_gain: Array, innovation_root: Array, noise_root: Array, accept: Array
) -> RootUpdate:
    r"""Root of (I - K H) Sigma (I - K H)^T + K R K^T with K^T = S^{-1} H Sigma: `root_downdate` for q = 0.

    With F = H T^T and W = S^{-1} that is T^T (I - F^T X F) T, X = 2 W - W (F F^T + R) W, so that T^T is multiplied by
    the symmetric root of I - F^T X F: no column is added, and nothing ever has to be factorised again. For one
    observation it is Potter's form; otherwise F^T = Q B turns it into the root of I - B X B^T (o x o).

    Args:
        root: T with T^T T = Sigma and no spare columns.
        products: F = H T^T (o, D).
        raw_gain: H Sigma = F T (o, D).
        innovation_root: S^{1/2} (o, o), upper triangular.
        noise_root: R^{1/2} (o, o).
        accept: () bool; False leaves the covariance as it is. All other arguments must be finite all the same.
    """
    gain = jnp.where(accept, solve_psd(innovation_root, raw_gain), 0)
    if len(products) == 1:
        columns = root.columns - gain.mT @ (_potter(products, innovation_root, noise_root) * products)
    else:
        span, small = qr(products.mT)
        weighted = solve_psd(innovation_root, small.mT)
        seen = products @ products.mT + noise_root.mT @ noise_root
        values, vectors = eigh(2 * small @ weighted - weighted.mT @ seen @ weighted)
        lost = (vectors * (1 - jnp.sqrt(jnp.clip(1 - values, 0)))) @ vectors.mT
        columns = root.columns - (root.columns @ span) @ (jnp.where(accept, lost, 0) @ span.mT)
    return RootUpdate(root._replace(columns=columns), gain)


def _potter(products: Array, innovation_root: Array, noise_root: Array) -> Array:
    """The c for which T^T - c K F, with F = H T^T (1, D), is a root of (I - K H) Sigma (I - K H)^T + K R K^T.

    (1 - c |F|^2 / S)^2 is the factor by which the variance along F shrinks.
    """
    total = innovation_root[0, 0] ** 2
    seen, noise = jnp.sum(products**2) / total, noise_root[0, 0] ** 2 / total
    left = jnp.sqrt((1 - seen) ** 2 + noise * seen)
    # (1 - left) S / |F|^2 without the cancellation, since 1 - left^2 = seen (2 - seen - noise).
    return (2 - seen - noise) / (1 + left)


def _check_room(observed: int, spare: int) -> None:
    if observed > spare:
        raise ValueError(
            f"{observed} outputs observed at once do not fit a buffer of {spare}; "
            f"build the filter with buffer={observed} or more"
        )


def _advance(filled: Array, observed: int, accept: Array) -> Array:
    return filled + observed * accept.astype(filled.dtype)


class LowRank(NamedTuple):
    """Rank-d root C = T Y of a covariance Sigma = C^T C, Y = coefficients basis^T; see the head of this file."""

    basis: tuple[Array | Extended, ...]
    """(D_p, n), n = d + m: a direction is a column here, because products run twice as fast so on a CPU"""
    coefficients: Array
    """(d, n) of the orthonormal rows Y"""
    root: Array
    """T (d, d), upper triangular unless q = 0"""
    filled: Array
    """() int32, number of columns in use"""


def low_rank_from(rows: Pieces, root: Array, spare: int, basis_dtype=None, like: Rows | None = None) -> LowRank:
    """A `LowRank` equal to root @ rows, with m = spare columns for what updates append.

    Args:
        rows: Y (d, D_p), orthonormal.
        root: T (d, d), upper triangular.
        spare: m.
        basis_dtype: may be narrower than that of the rows: bfloat16 halves the memory, and every row that enters the
            basis is rounded to it, but for outer products. Coefficients, root and sums keep the dtype of the rows.
        like: Jacobians to come, or their shapes; for those pieces that are an `Outer` the spare columns are too.
    """
    rank, dtype = len(rows[0]), rows[0].dtype
    kept = _as(rows, dtype if basis_dtype is None else basis_dtype)

    def piece(columns, jacobian):
        if spare and isinstance(jacobian, Outer):
            _, size, out = jacobian.shape
            return Extended(columns, jnp.zeros((size, spare), dtype), jnp.zeros((out, spare), dtype))
        return jnp.pad(columns, ((0, 0), (0, spare)))

    return LowRank(
        tuple(piece(part.mT, jacobian) for part, jacobian in zip(kept, like or kept, strict=True)),
        jnp.eye(rank, rank + spare, dtype=dtype),
        root,
        jnp.asarray(rank, jnp.int32),
    )


def full_columns(piece: Array | Extended) -> Array:
    """The columns of a piece of a basis as a matrix (D_p, n)."""
    if not isinstance(piece, Extended):
        return piece
    appended = (piece.inputs[:, None] * piece.deltas).reshape(-1, piece.inputs.shape[1])
    return jnp.concatenate([piece.columns.astype(appended.dtype), appended], axis=1)


def _product(left: Array, right: Array, dtype) -> Array:
    """Product of two matrices, both of the dtype of the basis, summed in `dtype`."""
    return jnp.matmul(left, right, preferred_element_type=dtype)


def _as(rows: Rows, dtype) -> Pieces:
    return tuple(dense(piece).astype(dtype) for piece in rows)


def gram_of(rows: Rows, dtype=None) -> Array:
    """H H^T (o, o) for H (o, D_p), summed in `dtype`."""

    def gram(piece):
        if isinstance(piece, Outer):
            return jnp.sum(piece.inputs**2) * _product(piece.deltas, piece.deltas.mT, dtype)
        return _product(piece, piece.mT, dtype)

    return functools.reduce(jnp.add, map(gram, rows))


def cross(factor: LowRank, jacobian: Rows) -> Array:
    """E^T = H B (o, n) for H (o, D_p): the one product with the basis that acting and updating share."""
    dtype = factor.root.dtype
    parts = (multiply(rows, piece, dtype) for rows, piece in zip(jacobian, factor.basis, strict=True))
    return functools.reduce(jnp.add, parts)


def multiply(rows: Array | Outer, columns: Array | Extended, dtype) -> Array:
    """Rows (o, D_p) times columns (D_p, n), summed in `dtype`.

    It is kept in this orientation: XLA folds a transpose into the product, which then runs five times slower on a CPU.
    """
    if isinstance(columns, Extended):
        if not isinstance(rows, Outer):
            raise ValueError(
                "a layer that is dense for the example that the filter was built with is none for this input: build "
                "the filter with example=None"
            )
        appended = (rows.inputs @ columns.inputs) * (rows.deltas @ columns.deltas)
        return jnp.concatenate([multiply(rows, columns.columns, dtype), appended], axis=1)
    if not isinstance(rows, Outer):
        return _product(rows.astype(columns.dtype), columns, dtype)
    _, size, out = rows.shape
    seen = _product(_parts(rows.inputs, columns.dtype), columns.reshape(size, -1), dtype)
    return rows.deltas @ jnp.sum(seen, 0).reshape(out, -1)


def multiply_all(rows: Rows, columns: Array) -> Array:
    """Rows (o, D_p) times the columns (D, n) of one matrix, whose rows are those of the pieces one after the other.

    A large slice would be copied. So outer products take the whole matrix, with zeros for the rows that are not
    theirs; the number of these before and after has to be a multiple of their `out`.
    """
    total, offset = jnp.zeros((), columns.dtype), 0
    for piece in rows:
        size = math.prod(piece.shape[1:])
        if isinstance(piece, Outer):
            before, out = offset // piece.shape[2], piece.shape[2]
            after = len(columns) // out - before - piece.shape[1]
            total += multiply(piece._replace(inputs=jnp.pad(piece.inputs, (before, after))), columns, columns.dtype)
        else:
            total += piece @ columns[offset : offset + size]
        offset += size
    return total


def _parts(vector: Array, dtype) -> Array:
    """(parts, n) that add up to vector (n,): two narrow numbers hold twice the digits of one.

    Only the basis itself is rounded then.
    """
    if vector.dtype == dtype:
        return vector[None]
    head = vector.astype(dtype)
    return jnp.stack([head, (vector - head.astype(vector.dtype)).astype(dtype)])


def times(factor: LowRank, weights: Array) -> Pieces:
    """Y^T weights (D_p,) for weights (d,): one pass over the basis."""
    combined = weights @ factor.coefficients

    def combine(columns, weights):
        return jnp.sum(_product(columns, _parts(weights, columns.dtype).mT, weights.dtype), 1)

    def of(piece):
        if not isinstance(piece, Extended):
            return combine(piece, combined)
        rank = piece.columns.shape[1]
        appended = (piece.inputs * combined[rank:]) @ piece.deltas.mT
        return combine(piece.columns, combined[:rank]) + appended.reshape(-1)

    return tuple(map(of, factor.basis))


_CHUNK = 2**14
"""Rows of a basis that are rewritten at a time."""


class _Downdated(NamedTuple):
    """A factor whose last directions have yet to be written to the basis."""

    factor: LowRank
    """C with coefficients of what the basis holds already"""
    appended: Array
    """(d, o) coefficients of the rows H to come"""
    columns: Array
    """() int32, how many columns these will fill"""


def _make_room(state: _Downdated, jacobian: Rows) -> _Downdated:
    """Rewrite C on a basis of its own d rows, in place, which takes up H too."""
    factor, appended = state.factor, state.appended
    (rank, width), dtype = factor.coefficients.shape, factor.root.dtype
    if any(leaf.dtype != dtype for leaf in jax.tree.leaves(factor.basis)):
        # Rows that are about to be rounded are principal directions: those of much variance are small where inputs are
        # large, and so are their errors then.
        turn = eigh(factor.root.mT @ factor.root)[1]
        factor = factor._replace(coefficients=turn.mT @ factor.coefficients, root=factor.root @ turn)
        appended = turn.mT @ appended

    def rewrite(piece, seen, first, count, target):
        if isinstance(piece, Extended):
            old, new = jnp.split(factor.coefficients.mT, [rank])
            new, out = jnp.concatenate([new, appended.mT]), len(piece.deltas)
            columns = lax.dynamic_slice_in_dim(target, first * out, count * out)
            inputs = lax.dynamic_slice_in_dim(piece.inputs, first, count)
            latest = lax.dynamic_slice_in_dim(seen.inputs, first, count)[:, None]
            inputs = jnp.concatenate([inputs, jnp.broadcast_to(latest, (count, len(seen.deltas)))], axis=1)
            deltas = jnp.concatenate([piece.deltas, seen.deltas.mT], axis=1)
            # The coefficients meet inputs or deltas first, whichever are fewer: the outer products are not written out,
            # and in both ways the rows come out in their order (`einsum` transposes them where deltas are fewer).
            if count < out:
                outer = jnp.matmul(deltas, inputs[:, :, None] * new)
            else:
                outer = inputs @ (deltas.mT[:, :, None] * new[:, None]).reshape(len(new), -1)
            rows = columns.astype(dtype) @ old + outer.reshape(-1, rank)
        else:
            rows = lax.dynamic_slice_in_dim(target, first, count).astype(dtype) @ factor.coefficients.mT
            rows += lax.dynamic_slice_in_dim(seen, first, count, 1).astype(dtype).mT @ appended.mT
        rows = rows.astype(target.dtype)
        place = first * (len(rows) // count)
        # Other columns are left as they are: without coefficients they are no part of C.
        return lax.dynamic_update_slice(target, rows, (place, jnp.zeros_like(place))), _product(rows.mT, rows, dtype)

    # By chunks, because a second basis would be most of the memory that a large network needs.
    basis, gram = [], jnp.zeros((rank, rank), dtype)
    for piece, seen in zip(factor.basis, jacobian, strict=True):
        extended = isinstance(piece, Extended)
        size, out = (len(piece.inputs), len(piece.deltas)) if extended else (len(piece), 1)
        target, chunk = piece.columns if extended else piece, min(size, max(1, _CHUNK // out))

        def step(i, done, piece=piece, seen=seen, chunk=chunk):
            target, more = rewrite(piece, seen, i * chunk, chunk, done[0])
            return target, done[1] + more

        target, gram = lax.fori_loop(0, size // chunk, step, (target, gram))
        if size % chunk:
            target, more = rewrite(piece, seen, jnp.asarray(size - size % chunk), size % chunk, target)
            gram += more
        basis.append(piece._replace(columns=target) if extended else target)
    # Rows that were orthonormal but for rounding are made so: Y = L (L^{-1} Y), T Y = (T L) (L^{-1} Y).
    skew = psd_root(gram)
    straight = _solve_transposed(skew, jnp.eye(rank, dtype=dtype))
    fresh = LowRank(
        tuple(basis),
        jnp.pad(straight, ((0, 0), (0, width - rank))),
        root_of_sum(factor.root @ skew.mT),
        jnp.asarray(rank, jnp.int32),
    )
    return _Downdated(fresh, jnp.zeros_like(appended), jnp.zeros_like(state.columns))


def _append(piece: Array | Extended, rows: Array | Outer, at: Array) -> Array | Extended:
    """The piece with `rows` as its columns from `at` on."""
    if not isinstance(piece, Extended):
        return _put_columns(piece, dense(rows).mT, at)
    assert isinstance(rows, Outer)
    place = at - piece.columns.shape[1]
    inputs = jnp.broadcast_to(rows.inputs[:, None], (len(rows.inputs), len(rows.deltas)))
    return piece._replace(
        inputs=_put_columns(piece.inputs, inputs, place), deltas=_put_columns(piece.deltas, rows.deltas.mT, place)
    )


class LowRankUpdate(NamedTuple):
    """A conditioned factor, and what its error bound needs."""

    factor: LowRank
    gain_gram: Array
    """(o, o) K^T K"""
    dropped: Array
    """(o,) eigenvalues that fell off the end, in ascending order"""


def low_rank_downdate(
    factor: LowRank,
    jacobian: Rows,
    products: Array,
    innovation_root: Array,
    noise_root: Array,
    process_noise: Array,
    accept: Array,
    read: Array | bool = True,
) -> LowRankUpdate:
    r"""C <- P_{d,+q}(C (I - K H)^T, R^{1/2} K^T) on the lazy basis, with K^T = S^{-1} (H C^T C + q H).

    Args:
        factor: C.
        jacobian: H (o, D_p), the observed rows.
        products: H B (o, n) from `cross`.
        innovation_root: S^{1/2} (o, o), upper triangular.
        noise_root: R^{1/2} (o, o).
        process_noise: () variance q.
        accept: () bool; False leaves the covariance as it is. All but the Jacobian must be finite all the same.
        read: () bool, True; computed from whatever else reads the basis, lest it is written before, and so copied.
    """
    (rank, width), observed = factor.coefficients.shape, len(products)
    _check_room(observed, width - rank)
    root = factor.root
    kept_rows = tuple(
        rows if isinstance(piece, Extended) else dense(rows).astype(piece.dtype)
        for rows, piece in zip(jacobian, factor.basis, strict=True)
    )
    inside = products @ factor.coefficients.mT
    outside, beyond, real = _residual(inside, jnp.where(accept, gram_of(kept_rows, products.dtype), 0))
    # By the columns of the basis and those to come.
    old = jnp.pad(factor.coefficients, ((0, 0), (0, observed)))
    directions = jnp.concatenate(
        [old, beyond @ jnp.concatenate([-inside @ factor.coefficients, jnp.eye(observed, dtype=root.dtype)], axis=1)]
    )

    seen = inside @ root.mT
    raw = jnp.concatenate([seen @ root + process_noise * inside, process_noise * outside], axis=1)
    gain = solve_psd(innovation_root, raw)
    stack = jnp.concatenate([jnp.pad(root, ((0, 0), (0, observed))) - seen.mT @ gain, noise_root @ gain])
    if observed == 1:
        least = _least_direction(root, seen[0], gain[0], noise_root[0, 0] ** 2)
        dropped = jnp.sum((stack @ least) ** 2)[None]
        directions, across = (_reflect(least, part) for part in (directions, stack.mT))
    else:
        # Rows of zeros are dropped before any direction that is one, be its variance as small.
        variances = stack.mT @ stack
        void = jnp.where(real, 0, _scale_of(variances))
        values, vectors = eigh(variances - jnp.diag(jnp.pad(void, (rank, 0))))
        dropped = jnp.maximum(values[:observed], 0)
        directions, across = (vectors[:, observed:].mT @ part for part in (directions, stack.mT))
    inflated = _inflated_root(across, process_noise)
    coefficients, appended = jnp.split(jnp.where(accept, directions, old), [width], axis=1)
    downdated = _Downdated(
        factor._replace(coefficients=coefficients, root=jnp.where(accept, inflated, root)),
        appended,
        _advance(jnp.zeros_like(factor.filled), observed, accept),
    )
    kept_rows = jax.tree.map(lambda rows: jnp.where(accept & read, rows, 0), kept_rows)
    full = jnp.where(read, factor.filled + observed, width + 1) > width
    factor, appended, columns = when(full, _make_room, downdated, kept_rows)
    # What is small is masked: a write at a place of its own for each member of a batch would be a loop over them.
    here = (jnp.arange(width) == factor.filled + jnp.arange(observed)[:, None]).astype(appended.dtype)
    updated = factor._replace(
        basis=tuple(_append(piece, rows, factor.filled) for piece, rows in zip(factor.basis, kept_rows, strict=True)),
        coefficients=factor.coefficients + appended @ here,
        filled=factor.filled + columns,
    )
    return LowRankUpdate(updated, gain @ gain.mT, dropped)


def _inflated_root(factor: Array, inflation: Array) -> Array:
    """Upper triangular R (d, d) with R^T R = F F^T + a I, for F (d, k) and a variance a.

    By Cholesky from the sum itself, which takes less time than a QR; by QR, which does not square, where a row of F is
    so nearly a combination of others that the sum has lost its digits.
    """

    def from_rows(_, factor, inflation):
        return root_of_sum(factor.mT, jnp.sqrt(inflation) * jnp.eye(len(factor), dtype=factor.dtype))

    total = factor @ factor.mT + inflation * jnp.eye(len(factor), dtype=factor.dtype)
    root = _lower_root(total).mT
    # What is left of each row beside those before it. NaN where the factorisation broke down.
    left = jnp.diagonal(root) ** 2
    return when(~jnp.all(left > _SURE * jnp.diagonal(total)), from_rows, root, factor, inflation)


_SURE = 1e-2
"""Share of a variance that has to be left to trust its Cholesky factor: with two digits lost, five remain."""


def _residual(inside: Array, gram: Array) -> tuple[Array, Array, Array]:
    """What H = a Y + b Y+ has outside the span: b (o, o), the (o, o) that turns H - a Y into Y+, and which rows exist.

    Args:
        inside: a (o, d).
        gram: H H^T (o, o).
    """
    left = gram - inside @ inside.mT
    values, vectors = (left[0], jnp.ones_like(left)) if len(left) == 1 else eigh(left)
    # What is left of H by rounding has no direction, and gets a row of zeros.
    real = values > _jitter(gram.dtype) * jnp.max(jnp.diagonal(gram))
    lengths = jnp.sqrt(jnp.where(real, values, 1))
    return vectors * jnp.where(real, lengths, 0), (vectors * jnp.where(real, 1 / lengths, 0)).mT, real


@one_by_one
def _least_direction(root: Array, seen: Array, gain: Array, noise: Array) -> Array:
    """Unit v (d + 1,) with the least |Z v|, Z = [[T, 0] - u kappa; r kappa], by inverse iteration on Z^T Z.

    It starts from the new direction, which had no variance before: its q^2 b^2 (|u|^2 + R) / S^2 is a quarter of q or
    less, and all other directions have been inflated by q. So few rounds suffice, more only where q has grown.

    Args:
        root: T (d, d), upper triangular.
        seen: u (d,).
        gain: kappa (d + 1,).
        noise: R = r^2.
    """
    inside, outside = gain[:-1], gain[-1]
    eps = float(jnp.finfo(root.dtype).eps)
    # Directions without variance are given the least that can be divided by.
    diagonal = jnp.diagonal(root)
    upper = root + jnp.diag(jnp.where(diagonal == 0, eps * _scale_of(diagonal), 0))

    def refine(state):
        count, v, _ = state
        # (Z^T Z)^{-1} v up to a positive factor, such that nothing is divided by R or the last entry of kappa.
        first = jax.scipy.linalg.solve_triangular(upper, outside * v[:-1] - inside * v[-1], trans=1)
        second = v[-1] + seen @ first
        turned = jax.scipy.linalg.solve_triangular(upper, noise * first + seen * second)
        image = jnp.append(outside * turned, second - inside @ turned)
        square = image @ image
        image = jnp.where(jnp.isfinite(square) & (square > 0), image / jnp.sqrt(square), v)
        return count + 1, image, jnp.sum((image - v) ** 2)

    def moving(state):
        count, _, change = state
        return (count < _ROUNDS) & (change > (4 * eps) ** 2)

    state = (0, jnp.zeros_like(gain).at[-1].set(1), jnp.ones((), gain.dtype))
    # Two rounds are mostly enough, and written out they cost less than in the loop.
    return lax.while_loop(moving, refine, refine(refine(state)))[1]


_ROUNDS = 50
"""At most, of inverse iteration; directions that it cannot tell apart by then have nearly the same variance."""


def _reflect(direction: Array, columns: Array) -> Array:
    """Q columns (d, k) of columns (d + 1, k), with Q the reflection that takes a unit direction to the last axis.

    It lacks its last row, so that its rows span what is orthogonal to the direction.
    """
    sign = jnp.where(direction[-1] < 0, -1, 1)
    normal = direction.at[-1].add(sign)
    return columns[:-1] - jnp.outer(normal[:-1], normal @ columns) / jnp.abs(normal[-1])


def fixed_span_downdate(
    factor: LowRank, products: Array, innovation_root: Array, noise_root: Array, accept: Array
) -> LowRankUpdate:
    r"""C <- a root of (I - K H) C^T C (I - K H)^T + K R K^T for q = 0, through T alone.

    The gain lies in the span of C, which therefore stays as it is.
    For one observation this is Potter's form; otherwise one small QR.
    """
    seen = products @ factor.coefficients.mT @ factor.root.mT
    gain = solve_psd(innovation_root, seen @ factor.root)
    if len(products) > 1:
        root = root_of_sum(factor.root - seen.mT @ gain, noise_root @ gain)
    else:
        root = factor.root - _potter(seen, innovation_root, noise_root) * seen.mT @ gain
    kept = factor._replace(root=jnp.where(accept, root, factor.root))
    return LowRankUpdate(kept, gain @ gain.mT, jnp.zeros(len(products), products.dtype))
