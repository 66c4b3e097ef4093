"""The recursion of all Kalman filters here: one Gaussian per block of parameters, coupled by one innovation.

The belief is N(mean, blockdiag(Sigma_1, ..., Sigma_B)). With Jacobians J_b of the expected response at the mean, noise
R and process noise q_b, an observation y gives

    S = sum_b J_b (Sigma_b + q_b I) J_b^T + R         K_b = (Sigma_b + q_b I) J_b^T S^{-1}
    mean_b += K_b (y - y_hat)                         Sigma_b = (I - K_b J_b) Sigma_b (I - K_b J_b)^T + K_b R K_b^T,
    approximately

Forms of `Covariance`: `full_rank` (ekf), `low_rank` (lrkf), `by_output` (hilofi), `diagonal_and_low_rank` (lofi),
`table` (embeddings). `seqdec.filters.trust` gives J, R and y_hat where the expected response is unbounded, as for
counts.

J_b (K x D) times the n columns of Sigma_b's root takes one pass for outer products (`seqdec.filters.jacobians`), else
K reverse passes or, for K >= n, n forward passes.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from seqdec import linalg
from seqdec import params as parameters
from seqdec.boundary.checks import integers, keyed, numbers, one_array, refuse_misfit
from seqdec.core import Array, Filter, IsLast, Key, Marginals, Network, Predictive, PyTree, UpdateInfo
from seqdec.filters import batches, embeddings, jacobians, trust
from seqdec.filters.bounds import error_bound
from seqdec.filters.covariance import Belief, Covariance, Numerics, Observation, checked_numerics
from seqdec.filters.embeddings import TableStd
from seqdec.likelihoods import Likelihood
from seqdec.linalg import Outer, Pieces, Rows
from seqdec.runtime import alike


class _Model(NamedTuple):
    covariances: tuple[Covariance, ...]
    """by block"""
    network: Network
    likelihood: Likelihood
    numerics: Numerics
    places: Callable[[Any], tuple[Sequence[int], ...]]
    """structure of the parameters -> places of each block's leaves"""


def build(
    name: str,
    network: Network,
    likelihood: Likelihood,
    covariances: tuple[Covariance, ...],
    initial_std_table: TableStd,
    numerics: Numerics,
) -> Filter:
    """A `Filter` with one covariance for all parameters, or for hidden layers and last layer; and tables."""
    numerics = checked_numerics(numerics)
    tables = embeddings.covariances(network.tables, initial_std_table, numerics.error_bounds)

    places = functools.partial(_places, tuple(network.tables), network.is_last if len(covariances) > 1 else None)
    model = _Model((*covariances, *tables), network, likelihood, numerics, places)
    flt = Filter(
        init=keyed(functools.partial(_init, model)),
        predict=functools.partial(_predict, model),
        update=functools.partial(_update, model),
        moments=functools.partial(_moments, model),
        sample=keyed(functools.partial(_sample, model)),
        mean=lambda belief: belief.params,
        response=lambda params, x: model.likelihood.mean(model.network.apply(params, x)),
        recenter=lambda belief, params: belief._replace(params=params),
        update_batch=functools.partial(_update_batch, model),
        marginals=functools.partial(_marginals, model),
    )
    return _explained(name, embeddings.sparse(flt, network.tables), network)


@functools.lru_cache(maxsize=256)  # of the module: a filter that had its own could not be pickled
def _places(tables: tuple[str, ...], is_last: IsLast | None, structure: Any) -> tuple[Any, ...]:
    rest, apart = embeddings.split_tables(structure.unflatten(range(structure.num_leaves)), tables)
    layers = (jax.tree.leaves(rest),) if is_last is None else parameters.split(rest, is_last)
    return (*layers, *apart)


def _explained(name: str, flt: Filter, network: Network) -> Filter:
    """`flt`, with an error for a belief of another filter."""

    def form() -> Belief:
        return jax.eval_shape(lambda key: flt.init(key, network.init(key)), jax.random.key(0))

    def explained(function: Any, place: int = 0) -> Any:
        @functools.wraps(function)
        def checked(*arguments: Any, **named: Any) -> Any:
            arguments, named = alike((arguments, named))
            try:
                return function(*arguments, **named)
            except Exception as error:
                belief = arguments[place] if len(arguments) > place else named.get("belief")
                wrong = f"belief is not one of this filter, {name}"
                refuse_misfit(error, belief, form, wrong, "pass what its init, predict or update returned")
                raise

        return checked

    def marginals(belief: Belief) -> Callable[[PyTree], Marginals]:
        found = explained(flt.marginals)(belief)
        own = explained(lambda belief, x: found(x))
        return lambda x: own(belief, x)

    return flt._replace(
        predict=explained(flt.predict),
        update=explained(flt.update),
        moments=explained(flt.moments),
        sample=explained(flt.sample, 1),
        update_batch=explained(flt.update_batch),
        marginals=None if flt.marginals is None else marginals,
    )


def _init(model: _Model, key: Key, params: PyTree) -> Belief:
    dtype, example = model.numerics.dtype, model.network.example
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype if dtype is not None else jnp.result_type(leaf)), params)
    leaves, structure = jax.tree.flatten(params)
    keys, algebra = jax.random.split(key, len(model.covariances)), jnp.result_type(*leaves)
    if jnp.finfo(algebra).bits < 32:
        raise TypeError(
            f"a filter computes in 32 bits or more, and its parameters are {algebra}: "
            "pass numerics=Numerics(dtype=jnp.float32)"
        )
    if example is None:
        like = [None] * len(model.covariances)
    else:
        like = jax.eval_shape(lambda params, x: _linearize(model, params, x).jacobians, params, example)
    parts = zip(model.covariances, keys, model.places(structure), like, strict=True)
    return Belief(
        params, tuple(c.init(k, [leaves[place] for place in own], algebra, rows) for c, k, own, rows in parts)
    )


def _blocks(model: _Model, belief: Belief, *parts: Any) -> Iterator[tuple[Any, ...]]:
    return zip(model.covariances, belief.blocks, *parts, strict=True)


def _predict(model: _Model, belief: Belief) -> Belief:
    return belief._replace(blocks=tuple(c.predict(state) for c, state in _blocks(model, belief)))


def _moments(model: _Model, belief: Belief, x: PyTree) -> Predictive:
    """The expected response f, its covariance J Sigma J^T, and the noise R."""
    x = numbers("x", x)
    at = _linearize(model, belief.params, x)
    products, skipped = _project_all(model, belief, x, at)
    cov, noise = functools.reduce(jnp.add, _variances(model, belief, products)), _accumulated_noise(model, belief)
    formed = {index: at.jacobians[index] for index in noise if not skipped[index]}

    def add(cov, noise, formed, params, x):
        # Process noise needs the Jacobians that `_project_all` did not form.
        rows = formed
        if len(formed) < len(noise):
            rows = {**dict(enumerate(_linearize(model, params, x).jacobians)), **formed}
        return cov + sum(q * linalg.gram_of(rows[index]) for index, q in noise.items())

    # Zero from an update to the next time step: this saves a product.
    if noise:
        arrived = functools.reduce(jnp.maximum, noise.values()) > 0
        cov = linalg.cond_any(arrived, add, cov, noise, formed, belief.params, x)
    return Predictive(at.mean, cov, at.noise)


def _marginals(model: _Model, belief: Belief) -> Callable[[PyTree], Marginals]:
    """X -> f, and the diagonals of J Sigma J^T and R."""

    def plain(covariance, state):
        return lambda rows: jnp.diagonal(covariance.variance(state, covariance.project(state, rows)))

    variances = [plain(c, s) if c.variances is None else c.variances(s) for c, s in _blocks(model, belief)]
    noise = _accumulated_noise(model, belief)

    def marginals(x):
        at = _linearize(model, belief.params, x)
        terms = [own(rows) for own, rows in zip(variances, at.jacobians, strict=True)]
        terms += [q * linalg.squares_of(at.jacobians[index]) for index, q in noise.items()]
        return Marginals(at.mean, functools.reduce(jnp.add, terms), jnp.diagonal(at.noise))

    return marginals


def _update(
    model: _Model, belief: Belief, x: PyTree, y: Array, observed: Array | None = None
) -> tuple[Belief, UpdateInfo]:
    x, (y, rows) = numbers("x", x), _observed(y, observed)
    share = model.numerics.share_linearization
    at = _linearize(model, belief.params, x, None if share else rows)
    if rows is None and y.shape != at.mean.shape:
        raise ValueError(
            f"y has shape {y.shape}, but the network has {len(at.mean)} outputs; pass observed= for some of them"
        )
    y = batches.known(y.astype(at.mean.dtype), rows, len(at.mean))
    if rows is None or not share:
        jacobians, products = at.jacobians, _project(model, belief, at.jacobians)
    else:
        products, skipped = _project_all(model, belief, x, at)
        few = _linearize(model, belief.params, x, rows).jacobians if any(skipped) else at.jacobians
        jacobians = tuple(
            own if skip else tuple(linalg.select(part, rows) for part in every)
            for own, every, skip in zip(few, at.jacobians, skipped, strict=True)
        )
        products = [part[rows] for part in products]
    mean, noise = (at.mean, at.noise) if rows is None else (at.mean[rows], at.noise[rows][:, rows])
    xs, ys, few = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], (x, y, rows))
    region = trust.region(model.network, model.likelihood, belief.params, xs, ys, few, jnp.ones(1, bool))
    return _condition(model, belief, jacobians, products, y - mean, noise, region)


def _update_batch(
    model: _Model, belief: Belief, xs: PyTree, ys: Array, observed: Array | None = None
) -> tuple[Belief, UpdateInfo]:
    xs = numbers("xs", xs)
    ys, rows = batches.checked(xs, ys, observed)
    over = (0, None if rows is None else 0)
    at = jax.vmap(functools.partial(_linearize, model, belief.params), over)(xs, rows)
    ys = batches.known(ys.astype(at.mean.dtype), rows, at.mean.shape[1])
    innovation, joint = batches.stacked(*at, ys, rows)
    region = trust.region(model.network, model.likelihood, belief.params, xs, ys, rows, joint.finite)
    products = _project(model, belief, joint.jacobians)
    belief, info = _condition(model, belief, joint.jacobians, products, joint.innovation, joint.noise, region)
    return belief, info._replace(
        innovation=innovation,
        log_density=info.log_density - joint.left_out,
        rejected=~joint.finite | info.rejected,
    )


def _condition(
    model: _Model,
    belief: Belief,
    jacobians: tuple[Rows, ...],
    products: list[Array],
    innovation: Array,
    noise: Array,
    region: trust.Region | None,
) -> tuple[Belief, UpdateInfo]:
    """Recursion from J_b (o, D_p) and products (o, k) by block, innovation (o,) and noise (o, o)."""
    # S and S^{-1} (y - y_hat).
    parts = _variances(model, belief, products)
    for index, q in _accumulated_noise(model, belief).items():
        parts[index] += q * linalg.gram_of(jacobians[index])
    expected = innovation
    if region is not None:
        variances = jnp.diagonal(functools.reduce(jnp.add, parts))
        factors, innovation, noise = trust.scales(region, variances, innovation, noise)
        parts = [factors[:, None] * part * factors[None] for part in parts]
        jacobians = tuple(trust.scaled(rows, factors) for rows in jacobians)
        products = [trust.scaled_array(part, factors) for part in products]
    total = functools.reduce(jnp.add, parts) + noise
    root = linalg.psd_root(total)
    weights = linalg.solve_psd(root, innovation[:, None])[:, 0]
    log_density = -0.5 * (innovation @ weights + len(weights) * math.log(2 * math.pi)) - jnp.sum(
        jnp.log(jnp.diagonal(root))
    )
    # K_b (y - y_hat).
    steps, squares, caches = zip(
        *(
            c.mean_update(state, jacobian, product, weights)
            for c, state, jacobian, product in _blocks(model, belief, jacobians, products)
        ),
        strict=True,
    )
    # Steps of finite norm leave finite parameters finite, so these need no test.
    accept = jnp.isfinite(log_density) & jnp.all(jnp.isfinite(jnp.stack(squares)))
    if region is not None:
        steps, fitting = trust.halved(steps, lambda steps: _moved(model, belief, list(steps)), accept, region)
        accept &= fitting
    # Data dependency: finish all reads of the basis before writing it, so that XLA can update it in place.
    reads_done = jnp.all(jnp.isfinite(jnp.stack([part[(0,) * part.ndim] for step in steps for part in step])))
    # Sigma_b.
    shared = [
        jnp.where(accept, root, jnp.eye(len(root), dtype=root.dtype)),
        linalg.psd_root(jnp.where(accept, noise, 0)),
        accept,
        reads_done | ~accept,
    ]
    # The Jacobians are left unmasked, so that J J^T is shared.
    products, caches = jax.tree.map(lambda leaf: jnp.where(accept, leaf, 0), (products, caches))
    observations = [Observation(*own, *shared) for own in zip(jacobians, products, caches, strict=True)]
    done = [c.covariance_update(state, own) for c, state, own in _blocks(model, belief, observations)]
    params = _moved(model, belief, [tuple(jnp.where(accept, part, 0) for part in step) for step in steps])
    bound = error_bound(done, parts, total, noise) if model.numerics.error_bounds else None
    return Belief(params, tuple(d.state for d in done)), UpdateInfo(expected, log_density, ~accept, bound)


def _sample(model: _Model, key: Key, belief: Belief) -> PyTree:
    keys = jax.random.split(key, len(model.covariances))
    return _moved(model, belief, [c.draw(k, state) for c, state, k in _blocks(model, belief, keys)])


def _moved(model: _Model, belief: Belief, steps: list[Pieces]) -> PyTree:
    leaves, structure = jax.tree.flatten(belief.params)
    changes: dict[int, Array] = {}
    for covariance, step, places in zip(model.covariances, steps, model.places(structure), strict=True):
        changes |= zip(places, covariance.unpack(step, [leaves[place] for place in places]), strict=True)
    return structure.unflatten([jnp.add(leaf, changes[place]) for place, leaf in enumerate(leaves)])


def _variances(model: _Model, belief: Belief, products: list[Array]) -> list[Array]:
    """J_b Sigma_b J_b^T (o, o) by block."""
    return [c.variance(state, product) for c, state, product in _blocks(model, belief, products)]


def _project(model: _Model, belief: Belief, jacobians: tuple[Rows, ...]) -> list[Array]:
    return [c.project(state, jacobian) for c, state, jacobian in _blocks(model, belief, jacobians)]


def _accumulated_noise(model: _Model, belief: Belief) -> dict[int, Array]:
    found = [c.accumulated_noise(state) for c, state in _blocks(model, belief)]
    return {index: q for index, q in enumerate(found) if q is not None}


class _Linearization(NamedTuple):
    mean: Array
    noise: Array
    jacobians: tuple[Rows, ...]


def _linearize(model: _Model, params: PyTree, x: PyTree, rows: Array | None = None) -> _Linearization:
    """Mean and noise of all outputs, Jacobians of those in `rows`, None for all."""

    def response(params, x):
        output = model.network.apply(params, x)
        if output.ndim != 1:
            raise ValueError(f"apply(params, x) must return a vector (out,); it returned shape {output.shape}")
        return model.likelihood.mean(output), output

    mean, output, found = jacobians.rows(response, params, x, rows)
    leaves, structure = jax.tree.flatten(params)
    # The dtype of the parameters: inputs of a wider type must not widen the belief.
    algebra = jnp.result_type(*leaves)
    found = jax.tree.map(lambda leaf: leaf.astype(algebra), found)
    places = zip(model.covariances, model.places(structure), strict=True)
    packed = tuple(c.pack([found[place] for place in own]) for c, own in places)
    return _Linearization(mean.astype(algebra), model.likelihood.cov(output).astype(algebra), packed)


def _project_all(model: _Model, belief: Belief, x: PyTree, at: _Linearization) -> tuple[list[Array], list[bool]]:
    """Products (K, k) by block, and whether they were computed without its Jacobian."""
    products, skipped = [], []
    for index, (covariance, state, jacobian) in enumerate(_blocks(model, belief, at.jacobians)):
        columns = covariance.columns(state)
        skip = columns is not None and columns[0].shape[1] <= len(at.mean) and mostly_dense(jacobian)
        if skip:
            products.append(_project_forward(model, belief, x, index).astype(at.mean.dtype))
        else:
            products.append(covariance.project(state, jacobian))
        skipped.append(skip)
    return products, skipped


def _project_forward(model: _Model, belief: Belief, x: PyTree, index: int) -> Array:
    covariance, (leaves, structure) = model.covariances[index], jax.tree.flatten(belief.params)
    places = model.places(structure)[index]

    def response(own):
        new = dict(zip(places, own, strict=True))
        params = structure.unflatten([new.get(place, leaf) for place, leaf in enumerate(leaves)])
        return model.likelihood.mean(model.network.apply(params, x))

    own = [leaves[place] for place in places]
    _, push = jax.linearize(response, own)
    columns: Any = covariance.columns(belief.blocks[index])
    return jax.vmap(lambda *parts: push(covariance.unpack(parts, own)), -1, -1)(*columns)


def mostly_dense(jacobian: Rows) -> bool:
    """Whether less than half of the parameters have outer products."""
    sizes = [(math.prod(rows.shape[1:]), isinstance(rows, Outer)) for rows in jacobian]
    return 2 * sum(size for size, outer in sizes if outer) < sum(size for size, _ in sizes)


def _observed(y: Any, observed: Any) -> tuple[Array, Array | None]:
    y, rows = jnp.asarray(one_array("y", y)), None if observed is None else integers("observed", observed)
    shape = y.shape if rows is None else rows.shape
    if y.ndim > 1 or shape != y.shape:
        raise ValueError(f"y must be a vector with one entry per observed output; got y {y.shape} and observed {shape}")
    return jnp.atleast_1d(y), None if rows is None else jnp.atleast_1d(rows)
