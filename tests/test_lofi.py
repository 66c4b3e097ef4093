"""LoFi against the dense filter and the dense inverse of its precision; the printed box is in `test_filters`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqdec import filters, likelihoods, models
from seqdec import params as parameters
from seqdec.filters import Numerics
from seqdec.filters._lofi import diagonal_and_low_rank, precision_of
from seqdec.filters.covariance import initial_state
from tests.toys import compiled

NETWORK = models.network(models.MLP(2, (3,)), jnp.zeros(2))
SIZE = 3 * 3 + 4 * 2
DOUBLE = Numerics(dtype=jnp.float64)


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def stream(steps, seed=0):
    generator = np.random.default_rng(seed)
    return generator.normal(size=(steps, 2)), generator.normal(size=(steps, 2)), generator.integers(2, size=steps)


def run(flt, data):
    """Belief after predict and update for each observation of one output."""
    belief = flt.init(jax.random.key(1), NETWORK.init(jax.random.key(0)))

    def step(belief, seen):
        x, y, arm = seen
        return flt.update(flt.predict(belief), x, y[arm], arm)

    return jax.jit(functools.partial(jax.lax.scan, step))(belief, data)


def dense(state):
    diagonal, factor = state.factor[:2]
    root = np.sqrt(diagonal)[:, None]
    return np.linalg.inv(root * (np.eye(len(root)) + np.asarray(factor @ factor.T)) * root.T)


def mean_of(belief):
    return parameters.ravel(jax.tree.leaves(belief.params))


@pytest.mark.parametrize(
    ("rank", "spare", "steps", "q", "exact"),
    [(SIZE, 0, 60, 1e-3, True), (5, 0, 5, 1e-3, True), (3, 4, 7, 0.0, True), (5, 4, 40, 1e-3, False)],
    ids=["full rank", "few values", "few with spare", "many values"],
)
def test_nothing_is_lost_while_the_columns_suffice(rank, spare, steps, q, exact):
    """The dense filter's mean, covariance and densities: with all D columns, or with one for each value so far."""
    likelihood, data = likelihoods.gaussian(0.1), stream(steps)
    settings = {"rank": rank, "spare": spare, "initial_std": 0.5, "process_noise": q}
    low = filters.lofi(NETWORK, likelihood, numerics=DOUBLE, **settings)
    full = filters.ekf(NETWORK, likelihood, initial_std=0.5, process_noise=q, numerics=DOUBLE)
    (ours, seen), (theirs, expected) = run(low, data), run(full, data)
    factor = theirs.blocks[0].factor.columns
    errors = (
        np.abs(mean_of(ours) - mean_of(theirs)).max(),
        np.abs(dense(ours.blocks[0]) - factor @ factor.T).max(),
        np.abs(seen.log_density - expected.log_density).max(),
    )
    assert max(errors) < 1e-9 if exact else min(errors) > 1e-4


def random_state(size=12, rank=4, seed=0):
    """Variances over two decades, and directions of large and of small precision."""
    generator = np.random.default_rng(seed)
    factor = generator.normal(size=(size, rank)) * np.array([30.0, 3.0, 1.0, 0.01])
    diagonal = jnp.asarray(10 ** generator.uniform(-1, 1, size))
    factor = jnp.asarray(factor) / jnp.sqrt(diagonal)[:, None]
    return initial_state(precision_of(diagonal, factor, factor.T @ factor, jnp.int32(0)), jnp.float64, 0.0)


def test_draws_have_the_inverse_of_the_precision_as_covariance():
    """Every entry within six standard errors, sqrt((Sigma_ii Sigma_jj + Sigma_ij^2) / n)."""
    state, draws = random_state(), 200_000
    form = diagonal_and_low_rank(4, 1.0, 0.0)
    samples = jax.vmap(lambda key: form.draw(key, state)[0])(jax.random.split(jax.random.key(0), draws))
    want = dense(state)
    errors = np.sqrt((np.outer(np.diag(want), np.diag(want)) + want**2) / draws)
    assert np.all(np.abs(samples.mean(0)) < 6 * np.sqrt(np.diag(want) / draws))
    assert np.all(np.abs(np.cov(samples.T) - want) < 6 * errors)
    # The test would see a sampler that forgets the factor, or adds where it has to subtract.
    prior = np.diag(1 / state.factor.diagonal)
    for wrong in (prior, 2 * prior - want):
        assert np.any(np.abs(wrong - want) > 20 * errors)


def test_moments_and_a_time_step_are_those_of_the_dense_covariance():
    state, rows = random_state(), (jnp.asarray(np.random.default_rng(1).normal(size=(3, 12))),)
    form = diagonal_and_low_rank(4, 1.0, 0.3)
    got = form.variance(state, form.project(state, rows))
    np.testing.assert_allclose(got, rows[0] @ dense(state) @ rows[0].T, rtol=1e-10)
    np.testing.assert_allclose(dense(form.predict(state)), dense(state) + 0.3 * np.eye(12), rtol=1e-9, atol=1e-12)


SPARE = 4


def test_full_spare_columns_leave_the_largest_directions_of_all_columns():
    """The printed precision, cut back once in `SPARE` values or so by a dense SVD; the error is below its bound."""
    likelihood = likelihoods.gaussian(0.1)
    numerics = DOUBLE._replace(error_bounds=True)
    flt = filters.lofi(NETWORK, likelihood, rank=3, spare=SPARE, initial_std=0.5, numerics=numerics)
    belief = flt.init(jax.random.key(1), NETWORK.init(jax.random.key(0)))
    diagonal, columns, cuts = np.full(SIZE, 4.0), np.zeros((SIZE, 0)), 0
    for x, y, arm in zip(*stream(30), strict=True):
        rows = np.array([0, 1]) if arm else np.array([1])
        jacobian = np.asarray(parameters.ravel(jax.tree.leaves(jax.jacrev(NETWORK.apply)(belief.params, x)), 1))[rows]
        if columns.shape[1] + len(rows) > 3 + SPARE:
            left, values, _ = np.linalg.svd(columns, full_matrices=False)
            lost = left[:, 3:] * values[3:]
            diagonal, columns, cuts = diagonal + np.sum(lost**2, 1), left[:, :3] * values[:3], cuts + 1
        columns = np.concatenate([columns, jacobian.T / np.sqrt(0.1)], axis=1)
        exact = np.linalg.inv(np.linalg.inv(dense(belief.blocks[0])) + jacobian.T @ jacobian / 0.1)
        belief, info = flt.update(belief, x, y[rows], rows)
        want = np.linalg.inv(np.diag(diagonal) + columns @ columns.T)
        np.testing.assert_allclose(dense(belief.blocks[0]), want, rtol=1e-8, atol=1e-12)
        error = np.linalg.norm(dense(belief.blocks[0]) - exact)
        assert error <= info.error_bound.truncation + 1e-12
        assert (info.error_bound.truncation > 0) == (columns.shape[1] == 3 + len(rows))
    assert cuts > 5


def test_members_of_a_batch_cut_back_when_their_own_spare_columns_are_full():
    """Under `jax.vmap` too, where one of them has rejected observations and so has more room."""
    flt = compiled(filters.lofi)(NETWORK, likelihoods.gaussian(0.1), rank=3, spare=SPARE, numerics=DOUBLE)
    xs, ys, _ = stream(12)
    bad = np.array([[False, True], [False, False]])[:, (np.arange(12) % 5 == 2).astype(int)]
    both = np.where(bad, np.nan, ys[None, :, 0])
    belief = flt.init(jax.random.key(1), NETWORK.init(jax.random.key(0)))

    def step(belief, seen):
        return flt.update(belief, seen[0], seen[1], 0)[0], None

    def final(y):
        return jax.lax.scan(step, belief, (xs, y))[0]

    together = jax.jit(jax.vmap(final))(both)
    assert together.blocks[0].factor.filled.tolist() == [6, 4]
    for member, y in enumerate(both):
        alone = jax.jit(final)(y)
        own = jax.tree.map(lambda leaf, member=member: leaf[member], together)
        np.testing.assert_allclose(mean_of(own), mean_of(alone), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(dense(own.blocks[0]), dense(alone.blocks[0]), rtol=1e-9, atol=1e-12)


def test_exact_observations_stay_finite():
    """R = 0: the observed response has next to no variance left, the belief is finite and the next update is taken."""
    network = models.network(models.MLP(2, ()), jnp.zeros(2))
    flt = compiled(filters.lofi)(network, likelihoods.gaussian(0.0), rank=3, initial_std=0.5)
    belief, x = flt.init(jax.random.key(1), network.init(jax.random.key(0))), jnp.array([0.4, -1.0], jnp.float32)
    before = flt.moments(belief, x).cov
    for value in (0.7, 0.7, -0.2):
        belief, info = flt.update(belief, x, jnp.float32(value), 1)
        assert not info.rejected
    assert 0 <= flt.moments(belief, x).cov[1, 1] < 1e-4 * before[1, 1]
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(belief))
