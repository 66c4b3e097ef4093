"""`hashed`: the diagonal regressions of `conjugate` on sparse contexts, without a dense copy of one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from scipy import sparse

import seqdec
from seqdec import agents, policies
from seqdec.agents.regression import conjugate, hashed
from seqdec.core import Spaces
from seqdec.features import SparseBox

SIZE, ARMS, STEPS = 30, 3, 60
SPACE = SparseBox(SIZE, 5)
SITE = Spaces(SPACE, spaces.Discrete(ARMS))


def matrix(steps=STEPS, seed=0):
    rng = np.random.default_rng(seed)
    rows = np.zeros((steps, SIZE))
    for row in rows:  # of one length
        at = rng.permutation(SIZE)[: rng.integers(1, 6)]
        row[at] = rng.normal(size=len(at))
        row /= np.linalg.norm(row)
    return rows


def test_belief_is_that_of_regressions_on_dense_contexts():
    rng = np.random.default_rng(1)
    dense, index, y = matrix(), rng.integers(ARMS, size=STEPS), rng.normal(size=STEPS)
    with jax.enable_x64(True):
        agent = agents.hashed(SITE)
        given = SPACE.rows(sparse.csr_array(dense)).astype(float), index, y

        def step(state, at):
            return agent.update(state, *at)[0], None

        state = jax.jit(lambda state, given: jax.lax.scan(step, state, given)[0])(agent.init(jax.random.key(0)), given)
        asked = matrix(1, seed=2)
        shown = SPACE.rows(sparse.csr_array(asked))[0].astype(float)
        assessed = jax.tree.map(np.asarray, agent.assess(jax.random.key(0), state, shown))
        best, means = int(np.argmax(state.densities)), np.asarray(state.rewards.location)
        for place, r in enumerate(hashed._SPREADS):
            known = conjugate.prior(ARMS, SIZE + 1, diagonal=True)
            for row in range(STEPS):
                mu = conjugate.usual_mean(known.weights, y[: row + 1].mean() - y[0])
                phi = jnp.append(r * np.float32(dense[row]).astype(float), 3.0)
                known, _ = known.observed(phi, y[row] - y[0], index[row], mu, jnp.bool_(True))
            np.testing.assert_allclose(state.params[:, place].T, known.weights, rtol=1e-6, atol=1e-9)
            np.testing.assert_allclose(state.root[:, place].T, known.root, rtol=1e-6)
            if place == best:
                at = known.answer(
                    jnp.append(r * np.float32(asked[0]).astype(float), 3.0), conjugate.usual_mean(known.weights, means)
                )
                np.testing.assert_allclose(assessed.mean, at.mean + y[0], rtol=1e-6)
                np.testing.assert_allclose(assessed.variance, at.variance, rtol=1e-6)


def test_draws_have_the_moments_of_the_belief_and_are_functions():
    agent = agents.hashed(SITE, policy=policies.thompson(propensity_samples=0))
    rows = jnp.asarray(SPACE.rows(sparse.csr_array(matrix())))
    state = agent.init(jax.random.key(0))
    for step in range(20):
        state, _ = agent.update(state, rows[step], step % ARMS, float(step % ARMS == 1))
    keys = jax.random.split(jax.random.key(1), 4000)
    played = jax.vmap(lambda key: agent.act(key, state, rows[0]).value)(keys)
    at = agent.assess(jax.random.key(0), state, rows[0])
    normal = np.random.default_rng(0).normal(size=(100_000, ARMS))
    expected = np.bincount(np.argmax(at.mean + np.sqrt(at.variance) * normal, 1), minlength=ARMS) / 100_000
    np.testing.assert_allclose(np.bincount(played, minlength=ARMS) / 4000, expected, atol=0.03)


def shapes(jaxpr):
    """Of all values in a program and those inside."""
    for equation in jaxpr.eqns:
        for part in jax.tree.leaves(
            equation.params, is_leaf=lambda leaf: hasattr(leaf, "eqns") or hasattr(leaf, "jaxpr")
        ):
            inner = getattr(part, "jaxpr", part)
            if hasattr(inner, "eqns"):
                yield from shapes(inner)
        yield from ((equation.primitive.name, value.aval.shape) for value in equation.outvars)


def test_a_step_makes_no_array_as_long_as_a_context_but_the_belief():
    size = 100_000
    agent = agents.hashed(Spaces(SparseBox(size, 50), spaces.Discrete(ARMS)))
    state = jax.eval_shape(agent.init, jax.random.key(0))
    x = jnp.zeros((50, 2))

    def step(key, state):
        action = agent.act(key, state, x)
        return agent.update(state, x, action.value, 1.0)

    found = list(shapes(jax.make_jaxpr(step)(jax.random.key(0), state).jaxpr))
    long = [(name, shape) for name, shape in found if np.prod(shape, dtype=int) >= size and name not in ("jit", "pjit")]
    assert long == [("scatter", state.params.shape)] * 2


@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csc_matrix, sparse.coo_array])
def test_rows_of_a_sparse_matrix(form):
    dense = matrix(20)
    rows = SPACE.rows(form(dense))
    again = np.zeros_like(dense)
    for row, (at, value) in enumerate(np.moveaxis(rows, 2, 1)):
        np.add.at(again[row], at.astype(int), value)
    np.testing.assert_allclose(again, dense, rtol=1e-6)
    assert rows.dtype == np.float32
    assert all(SPACE.contains(row) for row in rows)
    np.testing.assert_array_equal(SPACE.rows(sparse.csr_array(dense)[3]), rows[3:4])


def test_rows_that_do_not_fit_are_refused():
    full = np.ones((2, SIZE)) * [[0], [1]]
    with pytest.raises(ValueError, match="row 1 of the matrix has 30 nonzero numbers"):
        SPACE.rows(sparse.csr_array(full))
    with pytest.raises(ValueError, match="must have 30 columns"):
        SPACE.rows(sparse.csr_array(full[:, :7]))
    with pytest.raises(TypeError, match="sparse matrix of SciPy; got ndarray"):
        SPACE.rows(full)
    with pytest.raises(ValueError, match="at most 16777216"):
        SparseBox(2**25, 5)


def test_an_index_beyond_the_size_is_refused_and_rejected():
    agent = agents.hashed(SITE)
    state, beyond = agent.init(jax.random.key(0)), np.zeros((5, 2), np.float32)
    beyond[2] = SIZE, 1
    with pytest.raises(ValueError, match="indices and finite numbers"):
        agent.act(jax.random.key(0), state, beyond)
    assert np.isnan(jax.jit(agent.act)(jax.random.key(0), state, beyond).propensity)
    assert jax.jit(agent.update)(state, beyond, 0, 1.0)[1].rejected


def test_auto_is_hashed_and_a_service_takes_its_contexts(tmp_path):
    assert isinstance(jax.eval_shape(agents.auto(SITE).init, jax.random.key(0)), hashed.HashedState)
    rows = SPACE.rows(sparse.csr_array(matrix()))
    with seqdec.OnlineAgent("auto", SITE, seed=0, folder=tmp_path) as service:
        decisions = service.decide_many(rows[:20])
        service.learn_many([(decision.token, 1.0) for decision in decisions])
        expected = service.decide(rows[30]).probabilities
    with seqdec.OnlineAgent("auto", SITE, seed=0, folder=tmp_path) as service:
        np.testing.assert_array_equal(service.decide(rows[30]).probabilities, expected)
        with pytest.raises(ValueError, match="indices and finite numbers"):
            service.decide(np.full((5, 2), SIZE, np.float32))
    with pytest.raises(TypeError, match=r"capacity=10 has no effect for contexts of a SparseBox"):
        agents.auto(SITE, capacity=10)
