"""Every filter against the printed boxes, the dense Kalman filter, Monte Carlo and the error bounds."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import block_diag

from seqdec import filters, likelihoods, linalg, models
from seqdec import params as parameters
from seqdec.filters import Numerics, reference
from seqdec.filters._lofi import Precision
from tests.toys import compiled, network_of

NETWORK = models.network(models.MLP(4, (6, 5)), jnp.zeros(3))
STEPS = 60


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


DOUBLE = Numerics(dtype=jnp.float64)


def stream(seed, steps=STEPS, inputs=3, outputs=4):
    generator = np.random.default_rng(seed)
    return (
        generator.normal(size=(steps, inputs)),
        generator.normal(size=(steps, outputs)),
        generator.integers(outputs, size=steps),
    )


def precision_of(factor):
    """LoFi's u and W."""
    diagonal = np.asarray(factor.diagonal)
    return diagonal, np.sqrt(diagonal)[:, None] * np.asarray(factor.factor)


def dense_of(state):
    """Covariance kept by a block."""
    factor = state.factor
    if isinstance(factor, Precision):
        diagonal, columns = precision_of(factor)
        return np.linalg.inv(np.diag(diagonal) + columns @ columns.T)
    if isinstance(factor, linalg.FullRankFactor):
        return np.asarray(factor.columns @ factor.columns.T)
    rows = factor.root @ factor.coefficients @ np.concatenate(factor.basis).T
    return np.asarray(rows.T @ rows)


def factor_of(state):
    """A square (or d x D) root to start a box from; of LoFi the two parts of the precision."""
    factor = state.factor
    if isinstance(factor, Precision):
        return list(precision_of(factor))
    if isinstance(factor, linalg.FullRankFactor):
        return np.asarray(factor.columns[:, : len(factor.columns)].T)
    return np.asarray(factor.root @ factor.coefficients @ np.concatenate(factor.basis).T)


def layers(q):
    return {
        "initial_std_hidden": 0.4, "initial_std_last": 0.6, "process_noise_hidden": q, "process_noise_last": 2 * q,
    }  # fmt: skip


MAKERS = {
    "ekf": lambda network, likelihood, q, **kw: filters.ekf(
        network, likelihood, initial_std=0.5, process_noise=q, numerics=Numerics(**kw)
    ),
    "lrkf": lambda network, likelihood, q, **kw: filters.lrkf(
        network, likelihood, rank=7, initial_std=0.8, process_noise=q, numerics=Numerics(**{"buffer": 9, **kw})
    ),
    "hilofi": lambda network, likelihood, q, per_output=False, **kw: filters.hilofi(
        network, likelihood, rank=7, per_output=per_output, numerics=Numerics(**{"buffer": 11, **kw}), **layers(q)
    ),
    "lofi": lambda network, likelihood, q, **kw: filters.lofi(
        network, likelihood, rank=7, initial_std=0.5, process_noise=q, numerics=Numerics(**kw)
    ),
    "lolofi": lambda network, likelihood, q, **kw: filters.lolofi(
        network, likelihood, rank_hidden=7, rank_last=9, numerics=Numerics(**{"buffer": 11, **kw}), **layers(q)
    ),
}
MAKERS = {name: compiled(make) for name, make in MAKERS.items()}
NAMES = sorted(MAKERS)
SINGLE = ("ekf", "lofi", "lrkf")
"""Filters with one block."""
LIKELIHOODS = {
    "gaussian": likelihoods.gaussian(0.1),
    "categorical": likelihoods.categorical(1e-2),
    "bernoulli": likelihoods.bernoulli(),
    "poisson": likelihoods.poisson(),
}


def blocks(name, tree):
    return (jax.tree.leaves(tree),) if name in SINGLE else parameters.split(tree, NETWORK.is_last)


def by_block(name, tree, axes=0):
    """Vectors, or rows of a Jacobian."""
    return [parameters.ravel(leaves, axes) for leaves in blocks(name, tree)]


class BoxRun:
    """The printed box of a filter, run beside it on the same linearization code path but with its own algebra."""

    def __init__(self, name, likelihood, belief, q):
        self.name, self.likelihood, self.q = name, likelihood, q
        self.params = belief.params
        self.factors = [factor_of(s) for s in belief.blocks]
        if name == "ekf":
            self.factors = [self.factors[0].T @ self.factors[0]]

    @functools.cached_property
    def _linearize(self):
        def response(params, x, rows):
            output = NETWORK.apply(params, x)
            return self.likelihood.mean(output)[rows], self.likelihood.cov(output)[rows][:, rows]

        def stacked(params, xs, rows):
            mean, noise = jax.vmap(response, (None, 0, 0))(params, xs, rows)
            found = jax.jacrev(lambda params: jax.vmap(response, (None, 0, 0))(params, xs, rows)[0].ravel())(params)
            return mean.ravel(), jax.scipy.linalg.block_diag(*noise), found

        return jax.jit(stacked)

    def step(self, xs, y, rows):
        """Inputs (b, 3) with responses (b * o,) of the outputs in rows (b, o), their Jacobians on top of each other."""
        mean, noise, rows_of = self._linearize(self.params, xs, rows)
        mean, noise = np.asarray(mean), np.asarray(noise)
        jac = [np.asarray(rows) for rows in by_block(self.name, rows_of, 1)]
        eps = np.asarray(y) - mean
        box = getattr(reference, self.name)
        if self.name in ("ekf", "lrkf"):
            self.factors[0], *steps = box(self.factors[0], jac[0], noise, eps, self.q)
        elif self.name == "lofi":
            *self.factors[0], step = box(*self.factors[0], jac[0], noise, eps, self.q)
            steps = [step]
        else:
            last, hidden, step_l, step_h = box(
                self.factors[1], self.factors[0], jac[1], jac[0], noise, eps, 2 * self.q, self.q
            )
            self.factors, steps = [hidden, last], [step_h, step_l]
        leaves = blocks(self.name, self.params)
        fresh = [parameters.unravel(parameters.ravel(old) + s, old) for old, s in zip(leaves, steps, strict=True)]
        if len(fresh) == 1:
            self.params = jax.tree.structure(self.params).unflatten(fresh[0])
        else:
            self.params = parameters.join(self.params, NETWORK.is_last, *fresh)

    def covariances(self):
        if self.name == "lofi":
            diagonal, low_rank = self.factors[0]
            return [np.linalg.inv(np.diag(diagonal) + low_rank @ low_rank.T)]
        return [f if self.name == "ekf" else f.T @ f for f in self.factors]


def vector(params):
    return parameters.ravel(jax.tree.leaves(params))


def relative(a, b):
    return np.max(np.abs(np.asarray(a) - np.asarray(b))) / max(1.0, np.max(np.abs(np.asarray(b))))


@pytest.mark.parametrize("name", NAMES)
def test_equals_printed_box(name):
    """Mean and covariance, one observed arm per step, through several emptied buffers."""
    likelihood, q = LIKELIHOODS["gaussian"], 1e-4
    flt = MAKERS[name](NETWORK, likelihood, q, dtype=jnp.float64)
    belief = flt.init(jax.random.key(1), NETWORK.init(jax.random.key(0)))
    box = BoxRun(name, likelihood, belief, q)
    step = jax.jit(lambda belief, x, y, arm: flt.update(flt.predict(belief), x, y, arm))
    for x, y, arm in zip(*stream(0), strict=True):
        belief, info = step(belief, x, y[arm], arm)
        assert not info.rejected
        box.step(x[None], y[[arm]], np.array([[arm]]))
    assert relative(vector(belief.params), vector(box.params)) < 1e-10
    for state, cov in zip(belief.blocks, box.covariances(), strict=True):
        assert relative(dense_of(state), cov) < 1e-10


@pytest.mark.parametrize("name", ["hilofi", "lrkf"])
def test_a_step_is_the_kalman_filter_s_of_the_blocks_and_keeps_the_best_low_rank(name):
    """Propositions D.1 to D.3, F.1 and F.2, as corrected, by dense matrices."""
    q, noise, flt = 1e-4, 0.1, MAKERS[name](NETWORK, LIKELIHOODS["gaussian"], 1e-4, dtype=jnp.float64)
    belief = flt.init(jax.random.key(1), NETWORK.init(jax.random.key(0)))
    step = jax.jit(lambda belief, x, y, arm: flt.update(flt.predict(belief), x, y, arm))
    jacobian, output = jax.jit(jax.jacrev(NETWORK.apply)), jax.jit(NETWORK.apply)

    for x, y, arm in zip(*stream(8, 15), strict=True):
        rows = [np.asarray(every)[arm] for every in by_block(name, jacobian(belief.params, x), 1)]
        old, own = [dense_of(state) for state in belief.blocks], [q, 2 * q][: len(rows)]
        priors = [cov + extra * np.eye(len(cov)) for cov, extra in zip(old, own, strict=True)]
        total = sum(row @ prior @ row for row, prior in zip(rows, priors, strict=True)) + noise
        eps = y[arm] - output(belief.params, x)[arm]
        before = by_block(name, belief.params)
        belief, info = step(belief, x, y[arm], arm)
        np.testing.assert_allclose(info.log_density, -0.5 * (eps**2 / total + np.log(2 * np.pi * total)), rtol=1e-10)
        after = by_block(name, belief.params)
        for place, (state, cov, prior, row) in enumerate(zip(belief.blocks, old, priors, rows, strict=True)):
            gain = prior @ row / total
            np.testing.assert_allclose(after[place] - before[place], gain * eps, atol=1e-11)
            left = np.eye(len(row)) - np.outer(gain, row)
            surrogate, kept = left @ cov @ left.T + noise * np.outer(gain, gain), dense_of(state)
            if isinstance(state.factor, linalg.FullRankFactor):
                np.testing.assert_allclose(kept, surrogate, atol=1e-11)
                continue
            surrogate, rank = surrogate + own[place] * np.eye(len(row)), len(state.factor.root)
            assert np.linalg.matrix_rank(kept, 1e-10) == rank
            least = np.linalg.norm(np.linalg.eigvalsh(surrogate)[:-rank])
            np.testing.assert_allclose(np.linalg.norm(surrogate - kept), least, rtol=1e-7)


def test_any_mix_of_observed_outputs_equals_the_box():
    """One output, all of them and a pair, in turn, whose noise is correlated."""
    likelihood = LIKELIHOODS["categorical"]
    flt = MAKERS["hilofi"](NETWORK, likelihood, 1e-3, dtype=jnp.float64)
    belief = flt.init(jax.random.key(1), NETWORK.init(jax.random.key(0)))
    box = BoxRun("hilofi", likelihood, belief, 1e-3)
    step = jax.jit(lambda b, x, y, rows=None: flt.update(flt.predict(b), x, y, rows))
    for t, (x, _, arm) in enumerate(zip(*stream(1, 24), strict=True)):
        y, rows = np.eye(4)[arm], np.array([arm, (arm + 1) % 4])[: t % 3] if t % 3 else np.arange(4)
        belief, info = step(belief, x, y[rows], rows) if t % 3 else step(belief, x, y)
        assert not info.rejected
        box.step(x[None], y[rows], rows[None])
    for state, cov in zip(belief.blocks, box.covariances(), strict=True):
        assert relative(dense_of(state), cov) < 1e-9


def test_the_reference_filter_is_the_filter():
    """All outputs observed, then one; and its draws have its variance."""
    likelihood, std, q = LIKELIHOODS["gaussian"], 0.5, 1e-3
    options = {"initial_std_hidden": std, "initial_std_last": std, "process_noise_hidden": q, "process_noise_last": q}
    ours = compiled(filters.hilofi)(NETWORK, likelihood, rank=7, numerics=DOUBLE, **options)
    plain = reference.make("hilofi", NETWORK, likelihood, rank=7, rank_last=9, std=std, q=q, dtype=jnp.float64)
    xs, ys, _ = stream(3, 2)
    beliefs = []
    for flt in (ours, plain):
        belief = flt.init(jax.random.key(1), NETWORK.init(jax.random.key(0)))
        belief, _ = flt.update(flt.predict(belief), xs[0], ys[0])
        beliefs.append(flt.update(flt.predict(belief), xs[1], ys[1, 2], 2)[0])
    left, right = (flt.moments(belief, xs[0]) for flt, belief in zip((ours, plain), beliefs, strict=True))
    assert relative(left.mean, right.mean) < 1e-10
    assert relative(left.cov, right.cov) < 1e-10
    draws = jax.vmap(lambda key: vector(plain.sample(key, beliefs[1])))(jax.random.split(jax.random.key(2), 2000))
    variance = sum(float(np.sum(factor**2)) for factor in beliefs[1].factors)
    spread = float(np.sum((draws - vector(plain.mean(beliefs[1]))) ** 2)) / 2000
    assert spread == pytest.approx(variance, rel=0.05)


def run(flt, xs, ys, arms, params=None):
    """Belief after a stream, by scan, and the stacked infos."""

    def step(belief, seen):
        x, y, arm = seen
        return flt.update(flt.predict(belief), x, y[arm], arm)

    belief = flt.init(jax.random.key(1), NETWORK.init(jax.random.key(0)) if params is None else params)
    return jax.jit(lambda b, data: jax.lax.scan(step, b, data))(belief, (xs, ys, arms))


@pytest.mark.parametrize(
    ("make", "blocks"),
    [
        (filters.lrkf, {"rank": (5, 0.5)}),
        (filters.hilofi, {"rank": (5, 0.4)}),
        (filters.lolofi, {"rank_hidden": (5, 0.4), "rank_last": (3, 0.6)}),
    ],
)
def test_the_first_parameters_can_be_the_initial_span(make: Any, blocks: dict[str, tuple[int, float]]) -> None:
    stds = {"initial_std": 0.5} if make is filters.lrkf else {"initial_std_hidden": 0.4, "initial_std_last": 0.6}
    options = {name: rank for name, (rank, _) in blocks.items()} | stds
    flt = make(NETWORK, LIKELIHOODS["gaussian"], initial_span="first", numerics=DOUBLE, **options)
    belief = flt.init(jax.random.key(1), NETWORK.init(jax.random.key(0)))
    for state, (rank, std) in zip(belief.blocks, blocks.values(), strict=False):
        variances = std**2 * (np.arange(len(dense_of(state))) < rank)
        assert np.allclose(dense_of(state), np.diag(variances), rtol=1e-12, atol=0)
    with pytest.raises(ValueError, match="unknown initial_span 'frist': did you mean 'first'"):
        make(NETWORK, LIKELIHOODS["gaussian"], initial_span="frist", **options)


def test_lrkf_of_full_rank_is_the_dense_filter():
    """With d = D and q = 0 the random rows span everything, so C^T C is the dense covariance."""
    size = parameters.ravel(jax.tree.leaves(NETWORK.init(jax.random.key(0)))).size
    low = filters.lrkf(NETWORK, LIKELIHOODS["gaussian"], rank=size, initial_std=0.5, numerics=DOUBLE)
    dense = filters.ekf(NETWORK, LIKELIHOODS["gaussian"], initial_std=0.5, numerics=DOUBLE)
    (a, _), (b, _) = (run(flt, *stream(2, 60)) for flt in (low, dense))
    assert relative(dense_of(a.blocks[0]), dense_of(b.blocks[0])) < 1e-9
    assert relative(vector(a.params), vector(b.params)) < 1e-9


def test_layered_filters_of_full_rank_agree_with_each_other_and_the_first_step_with_the_dense_filter():
    """With full ranks HiLoFi and LoLoFi keep the same blocks; the first step's mean is the dense filter's."""
    hidden, last = (
        parameters.ravel(leaves).size for leaves in parameters.split(NETWORK.init(jax.random.key(0)), NETWORK.is_last)
    )
    common = {"initial_std_hidden": 0.5, "initial_std_last": 0.5, "numerics": DOUBLE}
    likelihood = LIKELIHOODS["gaussian"]
    high = filters.hilofi(NETWORK, likelihood, rank=hidden, **common)
    low = filters.lolofi(NETWORK, likelihood, rank_hidden=hidden, rank_last=last, **common)
    dense = filters.ekf(NETWORK, likelihood, initial_std=0.5, numerics=DOUBLE)
    (a, _), (b, _) = (run(flt, *stream(3, 60)) for flt in (high, low))
    for x, y in zip(a.blocks, b.blocks, strict=True):
        assert relative(dense_of(x), dense_of(y)) < 1e-9
    (a, _), (b, _) = (run(flt, *stream(3, 1)) for flt in (high, dense))
    assert relative(vector(a.params), vector(b.params)) < 1e-10


def linear(params, x):
    return params["weight"] @ x


@pytest.mark.parametrize("rank", [None, 6])
def test_moments_agree_with_monte_carlo_for_a_linear_model(rank):
    """Mean and covariance of f(theta, x) over sampled theta, within six standard errors."""
    likelihood = likelihoods.gaussian(0.2)
    if rank is None:
        flt = filters.ekf(network_of(linear), likelihood, initial_std=1.0, numerics=DOUBLE)
    else:
        flt = filters.lrkf(network_of(linear), likelihood, rank=rank, process_noise=0.01, numerics=DOUBLE)
    belief, _ = run(flt, *stream(4, 15), params={"weight": jnp.zeros((4, 3))})
    x, draws = jnp.array([0.3, -1.0, 2.0]), 20_000
    got = flt.moments(belief, x)
    sampled = jax.vmap(lambda key: linear(flt.sample(key, belief), x))(jax.random.split(jax.random.key(5), draws))
    deviation = np.sqrt(np.diag(got.cov))
    assert np.all(np.abs(sampled.mean(0) - got.mean) < 6 * deviation / np.sqrt(draws))
    spread = np.sqrt((np.outer(deviation, deviation) ** 2 + np.asarray(got.cov) ** 2) / draws)
    assert np.all(np.abs(np.cov(sampled.T) - got.cov) < 6 * spread)
    np.testing.assert_allclose(got.noise, 0.2 * np.eye(4))


@pytest.mark.parametrize(
    "make", [filters.ekf, functools.partial(filters.lofi, rank=3), functools.partial(filters.lrkf, rank=3)]
)
def test_a_step_whose_norm_overflows_is_refused(make):
    """In float32, where the density of the response is finite."""
    flt = make(network_of(linear), likelihoods.gaussian(100.0), initial_std=1e15)
    belief = flt.init(jax.random.key(0), {"weight": jnp.zeros((2, 3), jnp.float32)})
    after, info = jax.jit(flt.update)(belief, jnp.full(3, 1e-14, jnp.float32), jnp.float32(1e18), 0)
    assert info.rejected and np.isfinite(info.log_density)
    assert not np.any(after.params["weight"])


def test_process_noise_between_updates_widens_the_moments():
    flt = filters.lrkf(network_of(linear), LIKELIHOODS["gaussian"], rank=3, process_noise=0.1, numerics=DOUBLE)
    belief = flt.init(jax.random.key(0), {"weight": jnp.zeros((4, 3))})
    x = jnp.array([1.0, 2.0, 0.0])
    before, after = flt.moments(belief, x).cov, flt.moments(flt.predict(flt.predict(belief)), x).cov
    np.testing.assert_allclose(after - before, 2 * 0.1 * 5.0 * np.eye(4), atol=1e-12)


@pytest.mark.parametrize("name", ["hilofi", "lofi", "lrkf"])
def test_error_bounds_hold_on_random_streams(name):
    """||exact posterior of this step - what is kept||_F is at most the sum of the reported bounds."""
    likelihood, q = LIKELIHOODS["gaussian"], 1e-2
    flt = MAKERS[name](NETWORK, likelihood, q, error_bounds=True, dtype=jnp.float64)
    belief = flt.init(jax.random.key(1), NETWORK.init(jax.random.key(0)))
    step = jax.jit(lambda b, x, y, arm: flt.update(flt.predict(b), x, y[arm], arm))
    jacobian = jax.jit(jax.jacrev(NETWORK.apply))
    for x, y, arm in zip(*stream(6, 40), strict=True):
        jac = np.concatenate(by_block(name, jacobian(belief.params, x), 1), 1)[[arm]]
        covariances = [dense_of(state) for state in belief.blocks]
        prior = block_diag(*(cov + q * (1 + i) * np.eye(len(cov)) for i, cov in enumerate(covariances)))
        gain = prior @ jac.T / (jac @ prior @ jac.T + 0.1)
        exact = prior - gain @ (jac @ prior)
        belief, info = step(belief, x, y, arm)
        error = np.linalg.norm(exact - block_diag(*map(dense_of, belief.blocks)))
        assert error <= sum(map(float, info.error_bound)) * (1 + 1e-9) + 1e-9
    assert (info.error_bound.coupling > 0) == (name not in SINGLE)
    if name == "lrkf":
        # The part of the truncation that no rank-d matrix avoids: process noise in the D - d directions left out.
        assert info.error_bound.truncation >= q * np.sqrt(len(prior) - 7)


def test_vmap_over_seeds_and_settings_equals_one_by_one():
    xs, ys, arms = stream(8, 40)
    params = NETWORK.init(jax.random.key(0))

    def final(seed, q):
        flt = MAKERS["hilofi"](NETWORK, LIKELIHOODS["gaussian"], q, dtype=jnp.float64)
        belief = flt.init(jax.random.key(seed), params)
        belief, info = jax.lax.scan(
            lambda b, s: flt.update(flt.predict(b), s[0], s[1][s[2]], s[2]), belief, (xs, ys, arms)
        )
        return vector(belief.params), info.log_density

    seeds, noises = jnp.arange(3), jnp.array([1e-4, 1e-3, 0.0])
    together = jax.jit(jax.vmap(final))(seeds, noises)
    alone_of = jax.jit(final)
    for i in range(3):
        alone = alone_of(seeds[i], noises[i])
        for a, b in zip(together, alone, strict=True):
            assert relative(a[i], b) < 1e-9


def test_traced_and_plain_zero_process_noise_agree():
    plain = filters.lrkf(NETWORK, LIKELIHOODS["gaussian"], rank=7, numerics=DOUBLE)
    traced = filters.lrkf(NETWORK, LIKELIHOODS["gaussian"], rank=7, process_noise=jnp.zeros(()), numerics=DOUBLE)
    (a, _), (b, _) = (run(flt, *stream(9, 60)) for flt in (plain, traced))
    assert relative(vector(a.params), vector(b.params)) < 1e-9
    assert a.blocks[0].factor.basis[0].shape[1] == 7  # nothing is ever appended


@pytest.mark.parametrize("name", ["ekf", "hilofi"])
def test_the_log_density_of_a_stream_has_derivatives_by_the_first_mean(name):
    """Without process noise, from the prior on, whose factors have columns of zero; against a difference quotient."""
    flt = MAKERS[name](NETWORK, likelihoods.gaussian(0.1), 0.0, dtype=jnp.float64)
    xs, ys, arms = stream(4, steps=3)

    rows = xs, ys[np.arange(3), arms], arms

    def total(params):
        belief = flt.init(jax.random.key(3), params)
        _, infos = jax.lax.scan(lambda belief, row: flt.update(flt.predict(belief), *row), belief, rows)
        return jnp.sum(infos.log_density)

    params = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), NETWORK.init(jax.random.key(0)))
    gradient = jax.jit(jax.grad(total))(params)
    shifted = jax.jit(lambda step: total(jax.tree.map(lambda p, g: p + step * g, params, gradient)))
    moved = [shifted(step) for step in (1e-7, -1e-7)]
    squares = sum(float(jnp.sum(leaf**2)) for leaf in jax.tree.leaves(gradient))
    np.testing.assert_allclose((moved[0] - moved[1]) / 2e-7, squares, rtol=1e-4)


def test_update_without_shared_linearization_is_the_same_update():
    both = [
        MAKERS["hilofi"](NETWORK, LIKELIHOODS["categorical"], 1e-3, share_linearization=s, dtype=jnp.float64)
        for s in (True, False)
    ]
    (a, info_a), (b, info_b) = (run(flt, *stream(10, 30)) for flt in both)
    assert relative(vector(a.params), vector(b.params)) < 1e-10
    np.testing.assert_allclose(info_a.log_density, info_b.log_density, rtol=1e-9)


def test_an_example_changes_what_is_kept_and_not_the_posterior(monkeypatch):
    monkeypatch.setattr(parameters, "_LARGE", 15)  # so that the kernels are pieces of their own
    both = [
        MAKERS["lrkf"](NETWORK._replace(example=example), LIKELIHOODS["categorical"], 1e-3, dtype=jnp.float64)
        for example in (None, NETWORK.example)
    ]
    (a, info_a), (b, info_b) = (run(flt, *stream(12, 60)) for flt in both)
    kept = [[isinstance(p, linalg.Extended) for p in belief.blocks[0].factor.basis] for belief in (a, b)]
    assert not any(kept[0])
    assert kept[1][:2] == [True, True]
    assert relative(vector(a.params), vector(b.params)) < 1e-10
    np.testing.assert_allclose(info_a.log_density, info_b.log_density, rtol=1e-9)
    draws = [flt.sample(jax.random.key(0), belief) for flt, belief in zip(both, (a, b), strict=True)]
    assert all(np.all(np.isfinite(leaf)) for draw in draws for leaf in jax.tree.leaves(draw))


def test_a_last_layer_by_output_is_the_last_layer():
    """One response at a time: the same moments, draws of the same law, and the same error bounds."""
    both = [
        MAKERS["hilofi"](NETWORK, LIKELIHOODS["gaussian"], 1e-3, per_output=apart, error_bounds=True, dtype=jnp.float64)
        for apart in (False, True)
    ]
    (a, info_a), (b, info_b) = (run(flt, *stream(13, 60)) for flt in both)
    assert a.blocks[1].factor.columns.shape[0] == 24
    assert b.blocks[1].factor.columns.shape[:2] == (4, 6)
    x = jnp.array([0.3, -1.0, 0.4])
    at = [flt.moments(flt.predict(belief), x) for flt, belief in zip(both, (a, b), strict=True)]
    for whole, apart in zip(at[0], at[1], strict=True):
        np.testing.assert_allclose(apart, whole, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(info_b.log_density, info_a.log_density, rtol=1e-9)
    np.testing.assert_allclose(info_b.error_bound, info_a.error_bound, rtol=1e-8, atol=1e-12)
    keys = jax.random.split(jax.random.key(0), 4000)
    drawn = jax.vmap(lambda key: NETWORK.apply(both[1].sample(key, b), x))(keys)
    np.testing.assert_allclose(np.cov(drawn.T), both[1].moments(b, x).cov, atol=0.15 * float(at[1].cov.max()))


def test_a_last_layer_by_output_counts_what_it_drops_when_all_outputs_are_observed():
    bounds = []
    for apart in (False, True):
        flt = MAKERS["hilofi"](
            NETWORK, LIKELIHOODS["categorical"], 1e-3, per_output=apart, error_bounds=True, dtype=jnp.float64
        )
        belief = flt.init(jax.random.key(1), NETWORK.init(jax.random.key(0)))
        _, info = flt.update(flt.predict(belief), jnp.ones(3), jnp.array([1.0, 0.0, 0.0, 0.0]))
        bounds.append(info.error_bound)
    assert bounds[1].coupling > bounds[0].coupling


def test_a_last_layer_by_output_needs_the_outputs_as_last_axis():
    flt = filters.hilofi(
        NETWORK._replace(is_last=lambda path: path[0] != "hidden_0"), LIKELIHOODS["gaussian"], rank=2, per_output=True
    )
    with pytest.raises(ValueError, match=r"last axis .* got \(5,\), .*leave per_output out"):
        flt.init(jax.random.key(1), NETWORK.init(jax.random.key(0)))


def test_a_basis_in_bfloat16_halves_the_memory_and_keeps_the_moments():
    """With room made several times; coefficients and root stay in single precision.

    An error of the covariance turns the gains, and so moves the mean in units of its standard deviation, not of its
    own size, which may be near zero.
    """
    xs, ys, arms = stream(5)
    network = NETWORK.init(jax.random.key(0))
    beliefs = []
    for basis_dtype in (jnp.float32, jnp.bfloat16):
        flt = MAKERS["lrkf"](NETWORK, LIKELIHOODS["gaussian"], 1e-4, dtype=jnp.float32, basis_dtype=basis_dtype)
        belief = flt.init(jax.random.key(1), network)
        update = jax.jit(lambda b, x, y, arm, flt=flt: flt.update(flt.predict(b), x, y, arm)[0])
        for x, y, arm in zip(xs.astype(np.float32), ys.astype(np.float32), arms, strict=True):
            belief = update(belief, x, y[arm], arm)
        beliefs.append((flt, belief))
    factor = beliefs[1][1].blocks[0].factor
    assert factor.basis[0].dtype == jnp.bfloat16
    assert factor.coefficients.dtype == factor.root.dtype == jnp.float32
    for x in xs[:20].astype(np.float32):
        exact, rough = (flt.moments(belief, x) for flt, belief in beliefs)
        assert np.linalg.norm(rough.cov - exact.cov) <= 0.05 * np.linalg.norm(exact.cov)
        assert np.linalg.norm(rough.mean - exact.mean) <= 0.1 * np.sqrt(np.trace(exact.cov))
    assert np.all(np.isfinite(parameters.ravel(jax.tree.leaves(beliefs[1][0].sample(jax.random.key(3), belief)))))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda *model: filters.lrkf(*model, rank=0), "rank must be at least 1; got 0"),
        (lambda *model: filters.ekf(*model, process_noise=-1e-3), "process_noise must be a finite .* >= 0; got -0.001"),
        (lambda *model: filters.lrkf(*model, rank=13), "rank 13 exceeds the 12 parameters"),
        (lambda *model: filters.hilofi(*model, rank=2), "is_last matches nothing among the parameters weight"),
        (
            lambda network, noise: filters.hilofi(network._replace(is_last=lambda path: True), noise, rank=2),
            "is_last matches everything among the parameters weight",
        ),
    ],
)
def test_bad_settings_are_refused_by_name_and_value(make, message):
    with pytest.raises(ValueError, match=message):
        make(network_of(linear), likelihoods.gaussian(0.1)).init(jax.random.key(0), {"weight": jnp.zeros((4, 3))})


def test_wrong_shapes_are_refused_by_shape():
    flt = filters.ekf(network_of(linear), likelihoods.gaussian(0.1))
    belief = flt.init(jax.random.key(0), {"weight": jnp.zeros((4, 3))})
    with pytest.raises(ValueError, match=r"y has shape \(3,\), but the network has 4 outputs"):
        flt.update(belief, jnp.ones(3), jnp.ones(3))
    with pytest.raises(ValueError, match=r"one entry per observed output; got y \(2,\) and observed \(3,\)"):
        flt.update(belief, jnp.ones(3), jnp.ones(2), jnp.array([0, 1, 2]))
    scalar = filters.ekf(network_of(lambda params, x: params["weight"] @ x), likelihoods.gaussian(0.1))
    with pytest.raises(ValueError, match=r"must return a vector \(out,\); it returned shape \(\)"):
        scalar.moments(scalar.init(jax.random.key(0), {"weight": jnp.zeros(3)}), jnp.ones(3))


def test_forward_passes_along_the_columns_equal_reverse_passes_of_the_outputs():
    """Sixteen outputs against eight columns or, the same filter with more room in its buffer, many columns."""
    network = models.network(models.MLP(16, (6, 5)), jnp.zeros(3))
    size = sum(leaf.size for leaf in jax.tree.leaves(network.init(jax.random.key(0))))

    def make(q, **options):
        noises = {"process_noise_hidden": q, "process_noise_last": q, "numerics": DOUBLE._replace(**options)}
        return filters.lolofi(network, LIKELIHOODS["gaussian"], rank_hidden=3, rank_last=4, **noises)

    def step(flt, belief, seen):
        x, y, arm = seen
        before = flt.moments(belief, x)
        belief = flt.predict(belief)
        between = flt.moments(belief, x)
        belief, info = flt.update(belief, x, y[arm], arm)
        return belief, (before.cov, between.cov, info.log_density)

    ends, seens = [], []
    for buffer in (4, 40):
        flt = make(1e-2, buffer=buffer)
        begin = flt.init(jax.random.key(1), network.init(jax.random.key(0)))
        scan = jax.jit(lambda b, data, flt=flt: jax.lax.scan(functools.partial(step, flt), b, data))
        end, seen = scan(begin, stream(12, 40, outputs=16))
        ends.append(vector(end.params))
        seens.append(seen)
    assert relative(*ends) < 1e-9
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10), *seens)

    # Without process noise nothing ever needs the Jacobian of all outputs, and no program forms it.
    flt = make(0.0)
    begin = flt.init(jax.random.key(1), network.init(jax.random.key(0)))
    data = jax.tree.map(lambda leaf: leaf[0], stream(12, 1, outputs=16))
    text = jax.jit(functools.partial(step, flt)).lower(begin, data).compile().as_text()
    assert f"[16,{size - 96}]" not in text
    assert "[16,96]" not in text
