"""Embedding tables in filters: against the dense algebra, and at a cost that does not depend on their size."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqdec import filters, likelihoods, models
from seqdec.filters.embeddings import RowRoots
from tests.toys import compiled

USERS, VIDEOS, WIDTH, OFFER, FEATURES = 3, 6, 2, 4, 3
NOISE = 0.3


def network():
    example = {"user": jnp.int32(0), "video": jnp.int32(0), "features": jnp.zeros(FEATURES)}
    module = models.Score(dense=3, hidden=(4,))
    return models.per_candidate(models.embedded(module, example, {"user": USERS, "video": VIDEOS}, WIDTH))


def offer(generator):
    """A user's candidates; every other offer holds a video twice."""
    videos = generator.integers(VIDEOS, size=OFFER)
    videos[1] = videos[0]
    user = np.full(OFFER, generator.integers(USERS))
    return {"user": user, "video": videos, "features": generator.normal(size=(OFFER, FEATURES))}


MAKERS = {
    "ekf": lambda net: filters.ekf(
        net, likelihoods.gaussian(NOISE), initial_std=0.5, initial_std_table=0.7
    ),
    "hilofi": lambda net: filters.hilofi(
        net, likelihoods.gaussian(NOISE), rank=12, initial_std_hidden=0.5,
        initial_std_last=0.4, process_noise_hidden=1e-3, initial_std_table=0.7,
    ),
    "lolofi": lambda net: filters.lolofi(
        net, likelihoods.gaussian(NOISE), rank_hidden=12, rank_last=3,
        initial_std_hidden=0.5, initial_std_last=0.4, initial_std_table=0.7,
    ),
    "lrkf": lambda net: filters.lrkf(
        net, likelihoods.gaussian(NOISE), rank=9, initial_std=0.5, process_noise=1e-3,
        initial_std_table=0.7,
    ),
}  # fmt: skip
MAKERS = {name: compiled(make) for name, make in MAKERS.items()}


def table_blocks(belief, tables):
    return dict(zip(tables, belief.blocks[-len(tables) :], strict=True))


def dense_tables(belief, tables):
    """name -> (rows, width, width) covariances."""
    return {name: np.asarray(block.columns @ block.columns.mT) for name, block in table_blocks(belief, tables).items()}


def jacobian_of(net, params, x):
    """Of the responses by each whole table: name -> (offer, rows, width), and the responses."""

    def response(tables):
        return net.apply({**params, "tables": tables}, x)

    return jax.tree.map(np.asarray, jax.jacrev(response)(params["tables"])), np.asarray(response(params["tables"]))


@pytest.mark.parametrize("observed", [[3, 0, 1], None])
def test_ekf_with_tables_is_the_blockwise_recursion_on_dense_jacobians(observed):
    with jax.enable_x64(True):
        net, generator = network(), np.random.default_rng(0)
        flt = MAKERS["ekf"](net)
        belief = flt.init(jax.random.key(0), jax.tree.map(lambda p: p + 0.3, net.init(jax.random.key(1))))
        for _ in range(2):
            x = offer(generator)
            seen = np.arange(OFFER) if observed is None else np.array(observed)
            y = generator.normal(size=len(seen))
            jac, mean = jacobian_of(net, belief.params, x)
            rest = {"network": belief.params["network"]}
            flat, unravel = jax.flatten_util.ravel_pytree(rest)
            jac_rest = np.asarray(
                jax.jacrev(lambda v, p=belief.params, u=unravel, x=x: net.apply({**p, **u(v)}, x))(flat)
            )
            root = belief.blocks[0].factor.columns
            sigma_rest, sigma = np.asarray(root @ root.T), dense_tables(belief, net.tables)
            cov = jac_rest @ sigma_rest @ jac_rest.T
            for name in net.tables:
                cov = cov + np.einsum("ark,rkj,brj->ab", jac[name], sigma[name], jac[name])
            at = flt.moments(belief, x)
            np.testing.assert_allclose(at.cov, cov, rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(at.mean, mean, rtol=1e-12)

            total = cov[np.ix_(seen, seen)] + NOISE * np.eye(len(seen))
            weights = np.linalg.inv(total)
            fresh, info = flt.update(belief, x, jnp.asarray(y), None if observed is None else jnp.asarray(seen))
            assert not info.rejected
            for name in net.tables:
                for row in range(len(sigma[name])):
                    h = jac[name][seen, row]
                    gain = sigma[name][row] @ h.T @ weights
                    left = np.eye(WIDTH) - gain @ h
                    expected = left @ sigma[name][row] @ left.T + NOISE * gain @ gain.T
                    np.testing.assert_allclose(dense_tables(fresh, net.tables)[name][row], expected, atol=1e-12)
                    moved = np.asarray(fresh.params["tables"][name][row] - belief.params["tables"][name][row])
                    np.testing.assert_allclose(moved, gain @ (y - mean[seen]), atol=1e-12)
            belief = fresh


@pytest.mark.parametrize(
    "name", ["ekf", "lolofi", *(pytest.param(name, marks=pytest.mark.extended) for name in ("hilofi", "lrkf"))]
)
def test_only_the_rows_in_question_move(name):
    net, generator = network(), np.random.default_rng(1)
    flt = MAKERS[name](net)
    belief = flt.init(jax.random.key(0), jax.tree.map(lambda p: p + 0.1, net.init(jax.random.key(1))))
    x = offer(generator) | {"video": np.array([0, 0, 3, 5])}
    fresh, _ = jax.jit(flt.update)(flt.predict(belief), x, 1.0, 2)
    moved = np.flatnonzero(np.any(fresh.params["tables"]["video"] != belief.params["tables"]["video"], axis=1))
    assert moved.tolist() == [3]
    changed = [
        np.flatnonzero(np.any(a.columns != b.columns, axis=(1, 2))).tolist()
        for a, b in zip(fresh.blocks[-2:], belief.blocks[-2:], strict=True)
    ]
    assert changed == [[int(x["user"][0])], [3]]
    assert jax.tree.structure(fresh) == jax.tree.structure(belief)
    assert all(isinstance(block, RowRoots) and block.which is None for block in fresh.blocks[-2:])


def test_draws_have_the_moments_of_the_belief():
    net = network()
    flt = MAKERS["hilofi"](net)
    belief = flt.init(jax.random.key(0), net.init(jax.random.key(1)))
    belief, _ = flt.update(belief, offer(np.random.default_rng(3)), 1.0, 1)
    draws = jax.jit(jax.vmap(flt.sample, (0, None)))(jax.random.split(jax.random.key(2), 4000), belief)
    for table in net.tables:
        sample = np.asarray(draws["tables"][table])
        cov = dense_tables(belief, net.tables)[table]
        error = sample.mean(0) - belief.params["tables"][table]
        assert np.all(np.abs(error) < 6 * np.sqrt(np.einsum("rkk->rk", cov) / len(sample)))
        spread = np.einsum("nrk,nrj->rkj", *(2 * [sample - sample.mean(0)])) / len(sample)
        np.testing.assert_allclose(spread, cov, atol=6 * 1.5 * 0.49 / np.sqrt(len(sample)))


def operations(size: int) -> float:
    """Floating-point operations of one compiled act-and-learn step with a table of `size` rows."""
    example = {"video": jnp.int32(0)}
    net = models.per_candidate(models.embedded(models.Score(hidden=(8,)), example, {"video": size}, 4))
    flt = filters.hilofi(net, likelihoods.gaussian(0.1), rank=5, initial_std_table=0.3)

    def step(belief, x):
        at = flt.moments(belief, x)
        return flt.update(belief, x, at.mean[0], 0)[0]

    belief = jax.eval_shape(lambda: flt.init(jax.random.key(0), net.init(jax.random.key(1))))
    x = {"video": jax.ShapeDtypeStruct((10,), jnp.int32)}
    cost = jax.jit(step, donate_argnums=0).lower(belief, x).compile().cost_analysis()
    return cost["flops"]


def test_a_step_costs_the_same_whatever_the_size_of_the_table():
    small, large = operations(100), operations(20_000)
    assert large < 1.05 * small


def test_tables_and_error_bounds_are_refused_together():
    net = network()
    with pytest.raises(ValueError, match="no error bounds for embedding tables"):
        filters.lrkf(net, likelihoods.gaussian(0.1), rank=3, numerics=filters.Numerics(error_bounds=True))
    with pytest.raises(ValueError, match="initial_std_table"):
        filters.lrkf(net, likelihoods.gaussian(0.1), rank=3, initial_std_table=-1.0)


def test_each_table_has_a_prior_of_its_own():
    net, given = network(), {"user": 0.2, "video": jnp.array([0.5, 0.3])}
    flt = filters.lrkf(net, likelihoods.gaussian(0.1), rank=3, initial_std_table=given)
    belief = flt.init(jax.random.key(0), net.init(jax.random.key(1)))
    for name, cov in dense_tables(belief, net.tables).items():
        np.testing.assert_allclose(cov, np.broadcast_to(np.diag(np.full(2, given[name]) ** 2), cov.shape), rtol=1e-6)
    with pytest.raises(ValueError, match=r"for the tables \['user'\], but the network's are \['user', 'video'\]"):
        filters.lrkf(net, likelihoods.gaussian(0.1), rank=3, initial_std_table={"user": 0.2})


def test_row_numbers_without_a_table_are_left_out():
    example = {"user": jnp.int32(0), "video": jnp.int32(0)}
    net = models.embedded(models.Score(hidden=(4,)), example, {"video": 5}, 2)
    params = net.init(jax.random.key(0))
    params = jax.tree.map(lambda p: p + 1, params)
    apply = functools.partial(net.apply, params)
    assert apply({"user": jnp.int32(1), "video": jnp.int32(2)}) == apply({"user": jnp.int32(9), "video": jnp.int32(2)})
    with pytest.raises(ValueError, match=r"tables \['film'\] are not in the input"):
        models.embedded(models.Score(), example, {"film": 5}, 2)
