r"""The recursion that all Kalman filters here share: one Gaussian per block of parameters, coupled by one innovation.

The belief is N(mean, blockdiag(Sigma_1, ..., Sigma_B)). With Jacobians J_b of the expected response at the mean, noise
R and process noise q_b, an observation y gives

    S = sum_b J_b (Sigma_b + q_b I) J_b^T + R         K_b = (Sigma_b + q_b I) J_b^T S^{-1}
    mean_b += K_b (y - y_hat)                         Sigma_b = (I - K_b J_b) Sigma_b (I - K_b J_b)^T + K_b R K_b^T,
    approximately

so a filter is a list of blocks, and a block says how it keeps Sigma_b. `full_rank` and `low_rank` are the two forms.

With a root Sigma_b = T^T T all this needs the product of J_b (K x D) with the n columns of T^T or of its basis. There
are three ways to it, all timed by `benchmarks/jacobians.py`. Rows of a dense layer are outer products, which share all
that is read of the columns: a half to a twentieth of the time that whole rows take (`seqdec.filters.derivatives`).
Other parameters, say those of a network that is applied to K candidates one by one, need K reverse passes and a product
of matrices, or n forward passes along the columns, which never form the Jacobian; these are taken where K >= n, and an
update then needs the Jacobian of the observed outputs only.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer

from seqdec import linalg
from seqdec import params as parameters
from seqdec.core import Array, ErrorBound, Filter, Key, Predictive, PyTree, UpdateInfo
from seqdec.filters import derivatives
from seqdec.likelihoods import Likelihood
from seqdec.linalg import Outer, Pieces, Rows


class Observation(NamedTuple):
    """What one update tells a block: o observed responses, linearised."""

    jacobian: Rows
    """J_b (o, D_p); all else is finite even where the observation is not accepted"""
    products: Array
    """(o, k), the block's own product of the Jacobian with its factor"""
    again: Any
    """what the block's `step` had to compute"""
    innovation_root: Array
    """S^{1/2} (o, o)"""
    noise_root: Array
    """R^{1/2} (o, o)"""
    accept: Array
    """() bool; False: leave the covariance as it is"""
    read: Array
    """() bool, True: every `step` has read what it reads of the factors"""


class BlockUpdate(NamedTuple):
    """A block after an observation, and its part of the error bounds."""

    state: Any
    gain_gram: Array
    """K_b^T K_b (o, o)"""
    process_noise: Array
    truncation: Array
    parts: tuple[Array, Array] | None = None
    """K^T K and J (Sigma + q I) J^T, (g, o, o) each, of g groups of parameters whose correlation the block neglects"""


class Block(NamedTuple):
    """How the covariance of one block of parameters is kept."""

    pack: Callable[[list[Array | Outer]], Rows]
    """rows of the Jacobian by each leaf -> the form (o, D_p) in which the block works with them"""
    unpack: Callable[[Pieces, list[Array]], list[Array]]
    """a vector in that form, (D_p,), and leaves to look like -> leaves"""
    init: Callable[[Key, list[Array], Any, Rows | None], Any]
    """(key, leaves of the mean, dtype, Jacobians to come or their shapes) -> state"""
    predict: Callable[[Any], Any]
    columns: Callable[[Any], Pieces | None]
    """state -> (D_p, k), the columns with which Jacobians are multiplied; None where there is more to it"""
    project: Callable[[Any, Rows], Array]
    """(state, J (o, D_p)) -> products (o, k)"""
    variance: Callable[[Any, Array], Array]
    """(state, products) -> J Sigma J^T (o, o)"""
    pending: Callable[[Any], Array | None]
    """state -> (), the variance q that has arrived since the last update; None where there is never any"""
    step: Callable[[Any, Rows, Array, Array], tuple[Pieces, Array, Any]]
    """(state, J, products, S^{-1} eps) -> K eps (D_p,), its square |K eps|^2, and what `update` can use again"""
    update: Callable[[Any, Observation], BlockUpdate]
    draw: Callable[[Key, Any], Pieces]
    """(key, state) -> (D_p,) sample of N(0, Sigma)"""


class BlockState(NamedTuple):
    """A factor, and the process noise that has arrived since the last update."""

    factor: Any
    pending: Array
    """() variance"""


def _start(factor, dtype) -> BlockState:
    return BlockState(factor, jnp.zeros((), dtype))


def pack_whole(rows: Sequence[Array | Outer]) -> Pieces:
    """All parameters as one piece, for blocks whose covariance is one matrix."""
    return (_whole(rows),)


def _whole(rows: Sequence[Array | Outer]) -> Array:
    return jnp.concatenate([linalg.dense(part) for part in rows], axis=1)


def unpack_whole(parts: Pieces, like: list[Array]) -> list[Array]:
    """A vector in the form of `pack_whole` or `pack_square` -> leaves."""
    return parameters.unravel(parts[0], like)


def pack_square(rows: list[Array | Outer]) -> Rows:
    """As `pack_whole`, but a dense layer that is most of it stays an outer product, if `linalg.multiply_all` can."""
    sizes = [math.prod(part.shape[1:]) for part in rows]
    whole = sum(sizes)
    for place, (part, size) in enumerate(zip(rows, sizes, strict=True)):
        out = part.shape[-1]
        if isinstance(part, Outer) and 2 * size > whole and sum(sizes[:place]) % out == whole % out == 0:
            before, after = rows[:place], rows[place + 1 :]
            return (*(pack_whole(before) if before else ()), part, *(pack_whole(after) if after else ()))
    return pack_whole(rows)


def pack_pieces(rows: list[Array | Outer]) -> Rows:
    """The pieces of `parameters.pieces`; outer products are written down for small leaves only."""
    large, small = parameters.by_size(rows, 1)
    whole = tuple(part if isinstance(part, Outer) else linalg.dense(part) for part in large)
    return (*whole, *pack_whole(small)) if small else whole


def full_rank(initial_std, process_noise, *, buffer: int | None) -> Block:
    """Sigma (D x D) as a root; process noise enters the gain and the innovation, and is dropped from the covariance."""
    still = _known_zero(process_noise)
    spare = 0 if still else (128 if buffer is None else buffer)

    def init(key, leaves, dtype, like):
        del key, like
        size = sum(leaf.size for leaf in leaves)
        return _start(linalg.full_rank_from(initial_std * jnp.eye(size, dtype=dtype), spare), dtype)

    def project(state, jacobian):
        return linalg.multiply_all(jacobian, state.factor.columns)

    def variance(state, products):
        del state
        return products @ products.mT

    def step(state, jacobian, products, weights):
        known = products @ state.factor.columns.mT
        raw = known if still else known + state.pending * _whole(jacobian)
        move = weights @ raw
        return (move,), move @ move, raw

    def update(state, seen):
        products, roots, accept = seen.products, (seen.innovation_root, seen.noise_root), seen.accept
        jacobian = jnp.where(accept, _whole(seen.jacobian), 0)
        if still:
            done = linalg.symmetric_downdate(state.factor, products, seen.again, *roots, accept)
        else:
            done = linalg.full_rank_downdate(state.factor, jacobian, products, seen.again, *roots, accept)
        return BlockUpdate(
            BlockState(done.factor, jnp.where(seen.accept, 0, state.pending)),
            done.gain @ done.gain.mT,
            state.pending * _joseph_norm(done.gain, jacobian),
            jnp.zeros_like(state.pending),
        )

    def draw(key, state):
        columns = state.factor.columns
        return (columns @ jax.random.normal(key, (columns.shape[1],), columns.dtype),)

    return Block(
        pack_square,
        unpack_whole,
        init,
        _accumulate(process_noise),
        lambda state: (state.factor.columns,),
        project,
        variance,
        lambda state: None if still else state.pending,
        step,
        update,
        draw,
    )


def by_output(initial_std, process_noise, *, buffer: int | None) -> Block:
    """As `full_rank`, but outputs apart: a root for the parameters of each output, the last axis of every leaf.

    With K outputs the covariance has a K-th of the entries, and it is the same one as long as every observation is of
    one response that depends on the parameters of one output: nothing then correlates two outputs. Correlations that
    other observations bring are dropped.
    """
    whole = full_rank(initial_std, process_noise, buffer=buffer)
    # All roots are filled in step.
    axes: Any = BlockState(linalg.FullRankFactor(0, None), None)  # pyright: ignore[reportArgumentType] (axes, not arrays)

    def pack(rows):
        return tuple(part if isinstance(part, Outer) else linalg.dense(part) for part in rows)

    def unpack(parts, like):
        apart = parameters.unravel(parts[0], [leaf[..., 0] for leaf in like])
        return [jnp.moveaxis(leaf, 0, -1) for leaf in apart]

    def init(key, leaves, dtype, like):
        counts = {leaf.shape[-1:] for leaf in leaves}
        if len(counts) > 1 or () in counts:
            shapes = ", ".join(str(leaf.shape) for leaf in leaves)
            raise ValueError(
                f"per_output needs the outputs as the last axis of all parameters of the last layer; got {shapes}: "
                "leave per_output out"
            )
        one = whole.init(key, [leaf[..., :1] for leaf in leaves], dtype, like)
        columns = jnp.repeat(one.factor.columns[None], *counts.pop(), axis=0)
        return one._replace(factor=one.factor._replace(columns=columns))

    def apart(state, rows):
        """Rows (K, o, ...) by the parameters of each output."""
        count = len(state.factor.columns)

        def split(part):
            if isinstance(part, Outer):
                return Outer(jnp.repeat(part.inputs[None], count, axis=0), part.deltas.mT[:, :, None])
            return jnp.moveaxis(part.reshape(len(part), -1, count), 2, 0)

        return tuple(map(split, rows))

    def project(state, jacobian):
        return jax.vmap(whole.project, (axes, 0), 1)(state, apart(state, jacobian))

    def variance(state, products):
        del state
        flat = products.reshape(len(products), -1)
        return flat @ flat.mT

    def step(state, jacobian, products, weights):
        moves, squares, again = jax.vmap(whole.step, (axes, 0, 1, None))(
            state, apart(state, jacobian), products, weights
        )
        return moves, jnp.sum(squares), again

    def variance_of_one(state, products, jacobian):
        return whole.variance(state, products) + state.pending * linalg.gram_of(jacobian)

    def update(state, seen):
        jacobian = jax.tree.map(lambda rows: jnp.where(seen.accept, rows, 0), apart(state, seen.jacobian))
        seen_axes: Any = Observation(0, 1, 0, None, None, None, None)  # pyright: ignore[reportArgumentType] (axes)
        done = jax.vmap(whole.update, (axes, seen_axes))(state, seen._replace(jacobian=jacobian))
        variances = jax.vmap(variance_of_one, (axes, 1, 0))(state, seen.products, jacobian)
        factor, pending = done.state
        return BlockUpdate(
            BlockState(factor._replace(filled=factor.filled[0]), pending[0]),
            jnp.sum(done.gain_gram, 0),
            jnp.linalg.norm(done.process_noise),
            jnp.zeros_like(state.pending),
            (done.gain_gram, variances),
        )

    def draw(key, state):
        keys = jax.random.split(key, len(state.factor.columns))
        return jax.vmap(whole.draw, (0, axes))(keys, state)

    return Block(
        pack, unpack, init, whole.predict, lambda state: None, project, variance, whole.pending, step, update, draw
    )


def low_rank(rank: int, initial_std, process_noise, *, buffer: int | None, basis_dtype: Any = None) -> Block:
    """Sigma = C^T C with C (rank x D) on a lazy basis; process noise turns its span unless it is known to be zero."""
    still = _known_zero(process_noise)

    def spare(like) -> int:
        if still:
            return 0
        if buffer is not None:
            return buffer
        # Outer products take little room; other columns take as much as a direction of the covariance.
        mostly = like is not None and not _mostly_whole(like)
        return max(32, rank) if mostly else max(16, rank // 2)

    def init(key, leaves, dtype, like):
        size = sum(leaf.size for leaf in leaves)
        if rank > size:
            raise ValueError(f"rank {rank} exceeds the {size} parameters it is to span; choose rank <= {size}")
        rows = linalg.random_orthonormal_rows(key, rank, size, dtype)
        rows = parameters.pieces(parameters.unravel(rows, [leaf.astype(dtype) for leaf in leaves]), 1)
        root = initial_std * jnp.eye(rank, dtype=dtype)
        return _start(linalg.low_rank_from(rows, root, spare(like), basis_dtype, like), dtype)

    def variance(state, products):
        root = products @ state.factor.coefficients.mT @ state.factor.root.mT
        return root @ root.mT

    def step(state, jacobian, products, weights):
        factor = state.factor
        inside = weights @ products @ factor.coefficients.mT
        along = inside @ factor.root.mT @ factor.root
        span, square = linalg.times(factor, along), along @ along
        if still:
            return span, square, None
        noise = state.pending * weights
        span = tuple(part + noise @ linalg.dense(rows) for part, rows in zip(span, jacobian, strict=True))
        square += 2 * state.pending * (inside @ along) + noise @ linalg.gram_of(jacobian) @ noise
        return span, square, None

    def update(state, seen):
        products, roots, accept = seen.products, (seen.innovation_root, seen.noise_root), seen.accept
        if still:
            done = linalg.fixed_span_downdate(state.factor, products, *roots, accept)
        else:
            done = linalg.low_rank_downdate(
                state.factor, seen.jacobian, products, *roots, state.pending, accept, seen.read
            )
        noise, size = state.pending, sum(math.prod(rows.shape[1:]) for rows in seen.jacobian)
        turned = _product_norm(done.gain_gram, jnp.where(accept, linalg.gram_of(seen.jacobian), 0))
        dropped = done.dropped[len(done.dropped) - min(len(done.dropped), size - rank) :] + noise
        beyond = max(0, size - rank - len(done.dropped))
        return BlockUpdate(
            BlockState(done.factor, jnp.where(seen.accept, 0, noise)),
            done.gain_gram,
            noise * (2 * turned + turned**2),
            jnp.sqrt(jnp.sum(dropped**2) + beyond * noise**2),
        )

    def columns(state):
        basis = state.factor.basis
        return None if any(isinstance(piece, linalg.Extended) for piece in basis) else basis

    def draw(key, state):
        root = state.factor.root
        return linalg.times(state.factor, jax.random.normal(key, (rank,), root.dtype) @ root)

    return Block(
        pack_pieces,
        parameters.unpieces,
        init,
        _accumulate(process_noise),
        columns,
        lambda state, jacobian: linalg.cross(state.factor, jacobian),
        variance,
        lambda state: None if still else state.pending,
        step,
        update,
        draw,
    )


def _known_zero(process_noise) -> bool:
    """Whether there is no process noise, so that a covariance never leaves its span."""
    return not isinstance(process_noise, Tracer) and process_noise == 0


def _accumulate(process_noise):
    return lambda state: state._replace(pending=state.pending + process_noise)


def _product_norm(left: Array, right: Array) -> Array:
    """||K M||_F from the (o, o) Gram matrices K^T K and M M^T."""
    return jnp.sqrt(jnp.maximum(jnp.sum(left * right.mT), 0))


def _joseph_norm(gain: Array, jacobian: Array) -> Array:
    """||(I - K J)(I - K J)^T||_F through I + P Y P^T with P = [K, J^T] (D x 2o)."""
    observed = len(gain)
    factor = jnp.concatenate([gain, jacobian])
    gram = factor @ factor.mT
    one = jnp.eye(observed, dtype=gain.dtype)
    inner = jnp.block([[jacobian @ jacobian.mT, -one], [-one, jnp.zeros_like(one)]]) @ gram
    return jnp.sqrt(jnp.maximum(gain.shape[1] + 2 * jnp.trace(inner) + jnp.sum(inner * inner.mT), 0))


class Belief(NamedTuple):
    """Gaussian belief over a network's parameters."""

    params: PyTree
    """the mean"""
    blocks: tuple[Any, ...]
    """one factor of the covariance per block"""


class _Linearization(NamedTuple):
    mean: Array
    noise: Array
    jacobians: tuple[Rows, ...]


def single(
    apply, likelihood, block, share_linearisation, error_bounds, dtype, tables: Mapping[str, Block], example=None
) -> Filter:
    """A `Filter` with one block for all parameters, but for those in `tables`."""

    def split(params):
        rest, apart = _set_apart(params, tables)
        return (jax.tree.leaves(rest), *apart)

    def join(like, leaves, *apart):
        rest = jax.tree.structure(_set_apart(like, tables)[0]).unflatten(leaves)
        return _put_together(rest, apart, tables)

    every = (block, *tables.values())
    return _build(apply, likelihood, every, split, join, share_linearisation, error_bounds, dtype, example)


def layered(
    apply,
    likelihood,
    is_last,
    hidden,
    last,
    share_linearisation,
    error_bounds,
    dtype,
    tables: Mapping[str, Block],
    example=None,
) -> Filter:
    """A `Filter` with one block for the hidden layers, one for the last, where `is_last(path)` holds, and `tables`."""

    def split(params):
        rest, apart = _set_apart(params, tables)
        return (*parameters.split(rest, is_last), *apart)

    def join(like, hidden, last, *apart):
        rest = parameters.join(_set_apart(like, tables)[0], is_last, hidden, last)
        return _put_together(rest, apart, tables)

    every = (hidden, last, *tables.values())
    return _build(apply, likelihood, every, split, join, share_linearisation, error_bounds, dtype, example)


def _set_apart(params: PyTree, tables: Mapping[str, Block]) -> tuple[PyTree, list[list[Array]]]:
    """The parameters that lie in no table, and each table's as a list of its own."""
    if not tables:
        return params, []
    return {name: part for name, part in params.items() if name != "tables"}, [[params["tables"][t]] for t in tables]


def _put_together(rest: PyTree, apart: Sequence[list[Array]], tables: Mapping[str, Block]) -> PyTree:
    """Inverse of `_set_apart`."""
    named = {name: leaf for name, (leaf,) in zip(tables, apart, strict=True)}
    return {**rest, "tables": named} if tables else rest


def _build(
    apply: Callable[[PyTree, PyTree], Array],
    likelihood: Likelihood,
    blocks: tuple[Block, ...],
    split: Callable[[PyTree], tuple[list[Array], ...]],
    join: Callable[..., PyTree],
    share_linearisation: bool,
    error_bounds: bool,
    dtype: Any,
    example: PyTree | None,
) -> Filter:
    """A `Filter` from the blocks of its covariance.

    Args:
        apply: (params, x) -> (out,).
        likelihood: mean and covariance of the response given the network's output.
        blocks: how each block's covariance is kept.
        split: params -> one list of leaves per block.
        join: (params like, *lists of leaves) -> params.
        share_linearisation: see `seqdec.filters.hilofi`.
        error_bounds: report `UpdateInfo.error_bound`.
        dtype: of the mean and the factors; None: that of the parameters.
        example: see `seqdec.filters.hilofi`.
    """

    def response(params, x):
        output = apply(params, x)
        if output.ndim != 1:
            raise ValueError(f"apply(params, x) must return a vector (out,); it returned shape {output.shape}")
        return likelihood.mean(output), output

    def linearise(params, x, rows=None):
        mean, output, found = derivatives.rows(response, params, x, rows)
        leaves, structure = jax.tree.flatten(params)
        # Of the parameters: inputs of a wider type must not widen the belief.
        algebra = jnp.result_type(*leaves)
        found = jax.tree.map(lambda leaf: leaf.astype(algebra), found)
        places = split(structure.unflatten(range(len(leaves))))
        jacobians = tuple(b.pack([found[i] for i in own]) for b, own in zip(blocks, places, strict=True))
        return _Linearization(mean.astype(algebra), likelihood.cov(output).astype(algebra), jacobians)

    def init(key, params):
        params = jax.tree.map(
            lambda leaf: jnp.asarray(leaf, dtype if dtype is not None else jnp.result_type(leaf)), params
        )
        leaves, keys = split(params), jax.random.split(key, len(blocks))
        algebra = jnp.result_type(*jax.tree.leaves(params))
        if example is None:
            like = [None] * len(blocks)
        else:
            like = jax.eval_shape(lambda params, x: linearise(params, x).jacobians, params, example)
        parts = zip(blocks, keys, leaves, like, strict=True)
        return Belief(params, tuple(b.init(k, part, algebra, rows) for b, k, part, rows in parts))

    def moved(belief, steps):
        """The mean, moved by one step for each block."""
        old = split(belief.params)
        unpacked = [b.unpack(step, leaves) for b, step, leaves in zip(blocks, steps, old, strict=True)]
        return jax.tree.map(jnp.add, belief.params, join(belief.params, *unpacked))

    def predict(belief):
        return belief._replace(blocks=tuple(b.predict(s) for b, s in zip(blocks, belief.blocks, strict=True)))

    def project(belief, jacobians):
        return [b.project(s, j) for b, s, j in zip(blocks, belief.blocks, jacobians, strict=True)]

    def along_columns(belief, x, index):
        """Products of one block's Jacobian by forward passes."""
        block, leaves = blocks[index], split(belief.params)

        def response(own):
            return likelihood.mean(apply(join(belief.params, *leaves[:index], own, *leaves[index + 1 :]), x))

        _, push = jax.linearize(response, leaves[index])
        columns = block.columns(belief.blocks[index])
        return jax.vmap(lambda *parts: push(block.unpack(parts, leaves[index])), -1, -1)(*columns)

    def project_all(belief, x, at):
        """Products of all outputs, and for each block whether the Jacobian has been spared."""
        every = [b.columns(s) for b, s in zip(blocks, belief.blocks, strict=True)]
        forward = [
            columns is not None and columns[0].shape[1] <= len(at.mean) and _mostly_whole(j)
            for columns, j in zip(every, at.jacobians, strict=True)
        ]
        products = [
            along_columns(belief, x, index).astype(at.mean.dtype) if spared else block.project(state, jacobian)
            for index, (block, state, jacobian, spared) in enumerate(
                zip(blocks, belief.blocks, at.jacobians, forward, strict=True)
            )
        ]
        return products, forward

    def variances(belief, products):
        return [b.variance(s, p) for b, s, p in zip(blocks, belief.blocks, products, strict=True)]

    def pending(belief):
        """Process noise by block, of those that may have some."""
        found = [b.pending(s) for b, s in zip(blocks, belief.blocks, strict=True)]
        return {index: q for index, q in enumerate(found) if q is not None}

    def moments(belief, x):
        at = linearise(belief.params, x)
        products, forward = project_all(belief, x, at)
        known, noise = functools.reduce(jnp.add, variances(belief, products)), pending(belief)
        held = {index: at.jacobians[index] for index in noise if not forward[index]}

        def add(known, noise, held, params, x):
            # Jacobians that the products spared are computed after all.
            rows = held if len(held) == len(noise) else {**dict(enumerate(linearise(params, x).jacobians)), **held}
            return known + sum(q * linalg.gram_of(rows[index]) for index, q in noise.items())

        # From an update to the next step of time q is zero: a product less.
        if noise:
            arrived = functools.reduce(jnp.maximum, noise.values()) > 0
            known = linalg.cond_any(arrived, add, known, noise, held, belief.params, x)
        return Predictive(at.mean, known, at.noise)

    def update(belief, x, y, observed=None):
        y, rows = _observed(y, observed)
        at = linearise(belief.params, x, None if share_linearisation else rows)
        if rows is None and y.shape != at.mean.shape:
            raise ValueError(
                f"y has shape {y.shape}, but the network has {len(at.mean)} outputs; pass observed= for some of them"
            )
        if rows is None or not share_linearisation:
            jacobians, products = at.jacobians, project(belief, at.jacobians)
        else:
            products, forward = project_all(belief, x, at)
            seen, everything = linearise(belief.params, x, rows).jacobians, at.jacobians
            jacobians = [
                few if spared else tuple(linalg.select(part, rows) for part in many)
                for few, many, spared in zip(seen, everything, forward, strict=True)
            ]
            products = [part[rows] for part in products]
        mean, noise = (at.mean, at.noise) if rows is None else (at.mean[rows], at.noise[rows][:, rows])
        return _condition(belief, jacobians, products, y.astype(mean.dtype) - mean, noise)

    def _condition(belief, jacobians, products, innovation, noise):
        parts = variances(belief, products)
        for index, q in pending(belief).items():
            parts[index] += q * linalg.gram_of(jacobians[index])
        total = functools.reduce(jnp.add, parts) + noise
        root = linalg.psd_root(total)
        weights = linalg.solve_psd(root, innovation[:, None])[:, 0]
        log_density = -0.5 * (innovation @ weights + len(weights) * math.log(2 * math.pi)) - jnp.sum(
            jnp.log(jnp.diagonal(root))
        )
        steps, squares, again = zip(
            *(b.step(s, j, p, weights) for b, s, j, p in zip(blocks, belief.blocks, jacobians, products, strict=True)),
            strict=True,
        )
        # Parameters are not looked at, for what has a norm is finite.
        accept = jnp.isfinite(log_density) & jnp.all(jnp.isfinite(jnp.stack(squares)))
        # One number of each piece, so that the basis is read before `update` writes to it, and XLA need not copy it.
        read = jnp.all(jnp.isfinite(jnp.stack([part[(0,) * part.ndim] for step in steps for part in step])))

        safe = [
            jnp.where(accept, root, jnp.eye(len(root), dtype=root.dtype)),
            linalg.psd_root(jnp.where(accept, noise, 0)),
            accept,
            read | ~accept,
        ]
        # Not so the rows, or their products with themselves would be computed twice.
        cleared = jax.tree.map(lambda leaf: jnp.where(accept, leaf, 0), (products, again))
        seen = [Observation(*parts, *safe) for parts in zip(jacobians, *cleared, strict=True)]
        done = [b.update(s, o) for b, s, o in zip(blocks, belief.blocks, seen, strict=True)]
        params = moved(belief, [tuple(jnp.where(accept, part, 0) for part in step) for step in steps])
        bound = _bound(done, parts, total, noise) if error_bounds else None
        return Belief(params, tuple(d.state for d in done)), UpdateInfo(innovation, log_density, ~accept, bound)

    def sample(key, belief):
        keys = jax.random.split(key, len(blocks))
        return moved(belief, [b.draw(k, s) for b, k, s in zip(blocks, keys, belief.blocks, strict=True)])

    def expected(params, x):
        return likelihood.mean(apply(params, x))

    return Filter(init, predict, update, moments, sample, lambda belief: belief.params, expected)


def _mostly_whole(jacobian: Rows) -> bool:
    """Whether less than half of the parameters have outer products as rows."""
    sizes = [(math.prod(rows.shape[1:]), isinstance(rows, Outer)) for rows in jacobian]
    return 2 * sum(size for size, outer in sizes if outer) < sum(size for size, _ in sizes)


def _observed(y, observed) -> tuple[Array, Array | None]:
    """Both as vectors; a scalar y goes with a scalar index."""
    y, rows = jnp.asarray(y), None if observed is None else jnp.asarray(observed)
    shape = y.shape if rows is None else rows.shape
    if y.ndim > 1 or shape != y.shape:
        raise ValueError(f"y must be a vector with one entry per observed output; got y {y.shape} and observed {shape}")
    return jnp.atleast_1d(y), None if rows is None else jnp.atleast_1d(rows)


def _bound(done: list[BlockUpdate], parts: list[Array], total: Array, noise: Array) -> ErrorBound:
    r"""Bound on ||(I - K J) Sigma_pred (I - K J)^T + K R K^T - blockdiag(kept)||_F with the joint gain K.

    Beside what each block neglects, the blocks miss their correlation -K_a S K_b^T, and each block's own Joseph form
    misses K_a (S - S_a - R) K_a^T, the variance that the other blocks contribute to the innovation. Both vanish for a
    single block.
    """
    apart = [d.parts or (d.gain_gram[None], part[None]) for d, part in zip(done, parts, strict=True)]
    groups = [pair for grams, variances in apart for pair in zip(grams, variances, strict=True)]
    own = [_sandwich(gram, total - part - noise, gram) for gram, part in groups]
    pairs = [(a, b) for i, (a, _) in enumerate(groups) for b, _ in groups[:i]]
    cross = [math.sqrt(2) * _sandwich(a, total, b) for a, b in pairs]
    zero = jnp.zeros((), total.dtype)
    return ErrorBound(
        sum((d.process_noise for d in done), zero),
        sum((d.truncation for d in done), zero),
        sum(own + cross, zero) if pairs else zero,
    )


def _sandwich(left: Array, middle: Array, right: Array) -> Array:
    """||A M B^T||_F from the Gram matrices A^T A and B^T B and M (o, o)."""
    return jnp.sqrt(jnp.maximum(jnp.sum((left @ middle @ right) * middle), 0))
