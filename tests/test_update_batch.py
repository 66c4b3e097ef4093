"""`Filter.update_batch`: several inputs in one update, against single updates, the printed boxes and candidates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import seqdec
from seqdec import filters, likelihoods
from seqdec.filters import Numerics
from tests.test_embeddings import MAKERS as WITH_TABLES
from tests.test_embeddings import network, offer
from tests.test_filters import DOUBLE, LIKELIHOODS, MAKERS, NETWORK, BoxRun, dense_of, linear, relative, stream, vector
from tests.toys import network_of


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def assert_close(one, other, tolerance=1e-10):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert relative(a, b) < tolerance


@pytest.mark.parametrize("observed", [None, [1, 3, 1]], ids=["all outputs", "one output each"])
def test_for_a_linear_model_a_batch_is_the_sequence(observed):
    flt = filters.ekf(network_of(linear), likelihoods.gaussian(0.2), initial_std=0.7, numerics=DOUBLE)
    together = apart = flt.init(jax.random.key(0), {"weight": jnp.zeros((4, 3))})
    xs, ys, _ = stream(21, 3)
    which = None if observed is None else np.array(observed)
    ys = ys if which is None else ys[np.arange(3), which]
    together, info = jax.jit(flt.update_batch)(together, xs, ys, which)
    density, update = 0, jax.jit(flt.update)
    for i in range(3):
        apart, single = update(apart, xs[i], ys[i], None if which is None else which[i])
        density += single.log_density
    assert relative(together.params["weight"], apart.params["weight"]) < 1e-12
    assert relative(dense_of(together.blocks[0]), dense_of(apart.blocks[0])) < 1e-12
    np.testing.assert_allclose(info.log_density, density, rtol=1e-12)


def batches(count=12):
    """Three inputs with one output each and two with two, in turn: xs, ys, observed."""
    xs, _, arms = stream(22, 5 * count)
    for t in range(count):
        x, rows = xs[5 * t :][: 3 - t % 2], arms[5 * t :][: 3 - t % 2, None]
        rows = np.concatenate([rows, (rows + 1) % 4], axis=1) if t % 2 else rows
        yield x, (rows % 2).astype(float), rows


@pytest.mark.parametrize("name", ["hilofi", "lofi"])
def test_batches_equal_the_box_with_stacked_jacobians(name):
    """Through several emptied buffers."""
    flt = MAKERS[name](NETWORK, LIKELIHOODS["bernoulli"], 1e-3, dtype=jnp.float64)
    belief = flt.init(jax.random.key(1), NETWORK.init(jax.random.key(0)))
    box = BoxRun(name, LIKELIHOODS["bernoulli"], belief, 1e-3)
    step = jax.jit(lambda belief, xs, ys, rows: flt.update_batch(flt.predict(belief), xs, ys, rows))
    for xs, ys, rows in batches():
        belief, info = step(belief, xs, ys, rows)
        assert not info.rejected.any()
        box.step(xs, ys.ravel(), rows)
    assert relative(vector(belief.params), vector(box.params)) < 1e-10
    for state, cov in zip(belief.blocks, box.covariances(), strict=True):
        assert relative(dense_of(state), cov) < 1e-9


def test_inputs_that_are_not_finite_are_left_out():
    flt = MAKERS["hilofi"](NETWORK, LIKELIHOODS["gaussian"], 1e-3, dtype=jnp.float64)
    belief = flt.predict(flt.init(jax.random.key(1), NETWORK.init(jax.random.key(0))))
    xs, ys, arms = stream(23, 4)
    ys = ys[np.arange(4), arms]
    update = jax.jit(flt.update_batch)
    fewer, short = update(belief, xs[::3], ys[::3], arms[::3])
    xs[1, 0], ys[2] = np.nan, np.inf
    some, info = update(belief, xs, ys, arms)
    assert info.rejected.tolist() == [False, True, True, False]
    assert_close((fewer.params, short.log_density), (some.params, info.log_density))
    for a, b in zip(fewer.blocks, some.blocks, strict=True):
        assert relative(dense_of(a), dense_of(b)) < 1e-9
    none, info = update(belief, np.full_like(xs, np.nan), ys, arms)
    assert info.rejected.all()
    assert_close(belief.params, none.params, 1e-15)
    at = jnp.ones(3)
    np.testing.assert_allclose(flt.moments(none, at).cov, flt.moments(belief, at).cov, rtol=1e-12)


def test_inputs_of_one_candidate_are_the_candidates_of_one_input():
    """Embedding tables: rows that several inputs read, some of them twice."""
    net = network()
    flt = WITH_TABLES["hilofi"](net)
    belief = flt.init(jax.random.key(0), jax.tree.map(lambda p: p + 0.3, net.init(jax.random.key(1))))
    belief = flt.predict(belief)
    x, y = offer(np.random.default_rng(4)), np.array([0.3, -1.0, 2.0, 0.1])
    whole, _ = flt.update(belief, x, y)
    apart, _ = jax.jit(flt.update_batch)(belief, jax.tree.map(lambda leaf: leaf[:, None], x), y, np.zeros(4, int))
    assert_close(whole.params, apart.params)
    for a, b in zip(whole.blocks[-2:], apart.blocks[-2:], strict=True):
        assert relative(a.columns @ a.columns.mT, b.columns @ b.columns.mT) < 1e-10


def test_what_does_not_fit_is_refused_by_shape():
    flt = filters.lrkf(NETWORK, LIKELIHOODS["gaussian"], rank=4, process_noise=1e-3, numerics=Numerics(buffer=2))
    belief = flt.init(jax.random.key(1), NETWORK.init(jax.random.key(0)))
    with pytest.raises(ValueError, match=r"ys \(2,\), xs \[\(3, 3\)\] and observed None"):
        flt.update_batch(belief, jnp.ones((3, 3)), jnp.ones(2))
    with pytest.raises(ValueError, match=r"with b > 0"):
        flt.update_batch(belief, jnp.ones((0, 3)), jnp.ones((0, 4)))
    with pytest.raises(ValueError, match=r"ys has shape \(2, 1\), but the network has 4 outputs"):
        flt.update_batch(belief, jnp.ones((2, 3)), jnp.ones(2))
    with pytest.raises(ValueError, match=r"3 outputs observed at once do not fit a buffer of 2; .* buffer=3 or more"):
        flt.update_batch(belief, jnp.ones((3, 3)), jnp.ones(3), jnp.zeros(3, int))


def test_a_batch_of_symbolic_size_is_refused():
    env = seqdec.envs.linear()
    agent = seqdec.agents.lrkf(env, rank=2)
    (size,) = export.symbolic_shape("b")
    state = jax.eval_shape(agent.init, jax.random.key(0))
    kinds = ((size, 2), jnp.float32), ((size,), jnp.int32), ((size,), jnp.float32)
    given = [jax.ShapeDtypeStruct(*kind) for kind in kinds]
    with pytest.raises(TypeError, match=r"must be a number; got ys \(b, ?1?\)?.*export it for one size"):
        export.export(jax.jit(agent.update_batch))(state, *given)
