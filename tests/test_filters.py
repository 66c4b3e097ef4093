"""Every filter against the printed boxes, the dense Kalman filter, Monte Carlo and the error bounds."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqdec import filters, likelihoods, linalg, models
from seqdec import params as parameters
from seqdec.filters import Numerics, reference
from seqdec.filters._lofi import Precision
from tests.toys import compiled, network_of

NETWORK = models.network(models.MLP(4, (6, 5)), jnp.zeros(3))
STEPS = 200


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
        return precision_of(factor)
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


class BoxRun:
    """The printed box of a filter, run beside it on the same linearization code path but with its own algebra."""

    def __init__(self, name, likelihood, belief, q):
        self.name, self.likelihood, self.q = name, likelihood, q
        self.params = belief.params
        self.factors = [factor_of(s) for s in belief.blocks]
        if name == "ekf":
            self.factors = [self.factors[0].T @ self.factors[0]]

    def _split(self, tree):
        return (jax.tree.leaves(tree),) if self.name in SINGLE else parameters.split(tree, NETWORK.is_last)

    @functools.cached_property
    def _linearize(self):
        def response(params, x, rows):
            output = NETWORK.apply(params, x)
            return self.likelihood.mean(output)[rows], self.likelihood.cov(output)[rows][:, rows]

        return jax.jit(lambda *args: (*response(*args), jax.jacrev(lambda *a: response(*a)[0])(*args)))

    def step(self, x, y, rows):
        mean, noise, rows_of = self._linearize(self.params, x, jnp.asarray(rows))
        mean, noise = np.asarray(mean), np.asarray(noise)
        jac = [np.asarray(parameters.ravel(leaves, 1)) for leaves in self._split(rows_of)]
        eps = np.asarray(y) - mean
        if self.name == "ekf":
            self.factors[0], *steps = reference.ekf(self.factors[0], jac[0], noise, eps, self.q)
        elif self.name == "lrkf":
            self.factors[0], *steps = reference.lrkf(self.factors[0], jac[0], noise, eps, self.q)
        elif self.name == "lofi":
            *precision, step = reference.lofi(*self.factors[0], jac[0], noise, eps, self.q)
            self.factors[0], steps = precision, [step]
        else:
            box = getattr(reference, self.name)
            last, hidden, step_l, step_h = box(
                self.factors[1], self.factors[0], jac[1], jac[0], noise, eps, 2 * self.q, self.q
            )
            self.factors, steps = [hidden, last], [step_h, step_l]
        leaves = self._split(self.params)
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


def relative(a, b):
    return np.max(np.abs(np.asarray(a) - np.asarray(b))) / max(1.0, np.max(np.abs(np.asarray(b))))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("q", [0.0, 1e-4])
@pytest.mark.parametrize("name", NAMES)
def test_equals_printed_box(name, q):
    """Mean and covariance of every filter, one observed arm per step, against the box over 200 steps."""
    likelihood = LIKELIHOODS["gaussian"]
    flt = MAKERS[name](NETWORK, likelihood, q, dtype=jnp.float64)
    belief = flt.init(jax.random.key(1), NETWORK.init(jax.random.key(0)))
    box = BoxRun(name, likelihood, belief, q)
    step = jax.jit(lambda belief, x, y, arm: flt.update(flt.predict(belief), x, y, arm))
    for x, y, arm in zip(*stream(0), strict=True):
        belief, info = step(belief, x, y[arm], arm)
        assert not info.rejected
        box.step(x, y[[arm]], [arm])
    ours, theirs = parameters.ravel(jax.tree.leaves(belief.params)), parameters.ravel(jax.tree.leaves(box.params))
    assert relative(ours, theirs) < 1e-10
    for state, cov in zip(belief.blocks, box.covariances(), strict=True):
        assert relative(dense_of(state), cov) < 1e-10


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["hilofi", "lolofi", "lrkf"])
def test_a_step_is_the_kalman_filter_s_of_the_blocks_and_keeps_the_best_low_rank(name):
    """Propositions D.1 to D.3, F.1 and F.2, as corrected, by dense matrices."""
    q, noise, flt = 1e-4, 0.1, MAKERS[name](NETWORK, LIKELIHOODS["gaussian"], 1e-4, dtype=jnp.float64)
    belief = flt.init(jax.random.key(1), NETWORK.init(jax.random.key(0)))
    step = jax.jit(lambda belief, x, y, arm: flt.update(flt.predict(belief), x, y, arm))
    jacobian, output = jax.jit(jax.jacrev(NETWORK.apply)), jax.jit(NETWORK.apply)

    def split(tree):
        return (jax.tree.leaves(tree),) if name == "lrkf" else parameters.split(tree, NETWORK.is_last)

    for x, y, arm in zip(*stream(8, 15), strict=True):
        rows = [np.asarray(parameters.ravel(leaves, 1))[arm] for leaves in split(jacobian(belief.params, x))]
        old, own = [dense_of(state) for state in belief.blocks], [q, 2 * q][: len(rows)]
        priors = [cov + extra * np.eye(len(cov)) for cov, extra in zip(old, own, strict=True)]
        total = sum(row @ prior @ row for row, prior in zip(rows, priors, strict=True)) + noise
        eps = y[arm] - output(belief.params, x)[arm]
        before = [parameters.ravel(leaves) for leaves in split(belief.params)]
        belief, info = step(belief, x, y[arm], arm)
        np.testing.assert_allclose(info.log_density, -0.5 * (eps**2 / total + np.log(2 * np.pi * total)), rtol=1e-10)
        after = [parameters.ravel(leaves) for leaves in split(belief.params)]
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


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    ("name", "likelihood"), [("hilofi", name) for name in sorted(LIKELIHOODS)] + [("lrkf", "categorical")]
)
def test_any_mix_of_observed_outputs_equals_the_box(name, likelihood):
    """One output, all of them and a pair, in turn, under every likelihood."""
    flt = MAKERS[name](NETWORK, LIKELIHOODS[likelihood], 1e-3, dtype=jnp.float64)
    belief = flt.init(jax.random.key(1), NETWORK.init(jax.random.key(0)))
    box = BoxRun(name, LIKELIHOODS[likelihood], belief, 1e-3)
    steps = {n: jax.jit(lambda b, x, y, rows: flt.update(flt.predict(b), x, y, rows)) for n in (1, 2)}
    whole = jax.jit(lambda b, x, y: flt.update(flt.predict(b), x, y))
    for t, (x, y, arm) in enumerate(zip(*stream(1, 24), strict=True)):
        y = np.abs(y) if likelihood == "poisson" else np.eye(4)[arm]
        if t % 3 == 0:
            belief, info = whole(belief, x, y)
            rows = np.arange(4)
        else:
            rows = np.array([arm, (arm + 1) % 4])[: t % 3]
            belief, info = steps[len(rows)](belief, x, y[rows], rows)
        assert not info.rejected
        box.step(x, y[rows], rows)
    for state, cov in zip(belief.blocks, box.covariances(), strict=True):
        assert relative(dense_of(state), cov) < 1e-9


@pytest.mark.extended
@pytest.mark.parametrize("name", ["hilofi", "lolofi", "lrkf"])
def test_the_reference_filter_is_the_filter(name):
    """All outputs observed, then one; and its draws have its covariance."""
    likelihood, std, q = LIKELIHOODS["gaussian"], 0.5, 1e-3
    options = {"initial_std_hidden": std, "initial_std_last": std, "process_noise_hidden": q, "process_noise_last": q}
    ours = {
        "hilofi": lambda: filters.hilofi(NETWORK, likelihood, rank=7, numerics=DOUBLE, **options),
        "lolofi": lambda: filters.lolofi(NETWORK, likelihood, rank_hidden=7, rank_last=9, numerics=DOUBLE, **options),
        "lrkf": lambda: filters.lrkf(NETWORK, likelihood, rank=7, initial_std=std, process_noise=q, numerics=DOUBLE),
    }[name]()
    plain = reference.make(name, NETWORK, likelihood, rank=7, rank_last=9, std=std, q=q, dtype=jnp.float64)
    xs, ys, _ = stream(3, 2)
    beliefs = []
    for flt in (ours, plain):
        belief = flt.init(jax.random.key(1), NETWORK.init(jax.random.key(0)))
        belief, _ = flt.update(flt.predict(belief), xs[0], ys[0])
        beliefs.append(flt.update(flt.predict(belief), xs[1], ys[1, 2], 2)[0])
    left, right = (flt.moments(belief, xs[0]) for flt, belief in zip((ours, plain), beliefs, strict=True))
    assert relative(left.mean, right.mean) < 1e-10
    assert relative(left.cov, right.cov) < 1e-10
    draws = jax.vmap(lambda key: parameters.ravel(jax.tree.leaves(plain.sample(key, beliefs[1]))))
    spread = np.var(np.sum(draws(jax.random.split(jax.random.key(2), 2000)), axis=1))
    leaves = jax.tree.leaves(plain.mean(beliefs[1]))
    ones = jax.tree.unflatten(jax.tree.structure(plain.mean(beliefs[1])), [jnp.ones_like(leaf) for leaf in leaves])
    blocks = parameters.split(ones, NETWORK.is_last)[::-1] if name != "lrkf" else (jax.tree.leaves(ones),)
    parts = zip(beliefs[1].factors, blocks, strict=True)
    variance = sum(np.sum(np.square(factor @ parameters.ravel(own))) for factor, own in parts)
    assert abs(spread - variance) < 6 * variance * np.sqrt(2 / 2000)
    assert np.all(np.isfinite(plain.response(plain.mean(beliefs[1]), xs[0])))


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
    assert relative(parameters.ravel(jax.tree.leaves(a.params)), parameters.ravel(jax.tree.leaves(b.params))) < 1e-9


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
    assert relative(parameters.ravel(jax.tree.leaves(a.params)), parameters.ravel(jax.tree.leaves(b.params))) < 1e-10


def linear(params, x):
    return params["weight"] @ x


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rank", [None, 6])
def test_moments_agree_with_monte_carlo_for_a_linear_model(rank):
    """Mean and covariance of f(theta, x) over sampled theta, within six standard errors."""
    likelihood = likelihoods.gaussian(0.2)
    make = {None: lambda: filters.ekf(network_of(linear), likelihood, initial_std=1.0, numerics=DOUBLE)}
    flt = make.get(
        rank, lambda: filters.lrkf(network_of(linear), likelihood, rank=rank, process_noise=0.01, numerics=DOUBLE)
    )()
    belief, _ = run(flt, *stream(4, 15), params={"weight": jnp.zeros((4, 3))})
    x, draws = jnp.array([0.3, -1.0, 2.0]), 40_000
    got = flt.moments(belief, x)
    sampled = jax.vmap(lambda key: linear(flt.sample(key, belief), x))(jax.random.split(jax.random.key(5), draws))
    deviation = np.sqrt(np.diag(got.cov))
    assert np.all(np.abs(sampled.mean(0) - got.mean) < 6 * deviation / np.sqrt(draws))
    spread = np.sqrt((np.outer(deviation, deviation) ** 2 + np.asarray(got.cov) ** 2) / draws)
    assert np.all(np.abs(np.cov(sampled.T) - got.cov) < 6 * spread)
    np.testing.assert_allclose(got.noise, 0.2 * np.eye(4))


def test_process_noise_between_updates_widens_the_moments():
    flt = filters.lrkf(network_of(linear), LIKELIHOODS["gaussian"], rank=3, process_noise=0.1, numerics=DOUBLE)
    belief = flt.init(jax.random.key(0), {"weight": jnp.zeros((4, 3))})
    x = jnp.array([1.0, 2.0, 0.0])
    before, after = flt.moments(belief, x).cov, flt.moments(flt.predict(flt.predict(belief)), x).cov
    np.testing.assert_allclose(after - before, 2 * 0.1 * 5.0 * np.eye(4), atol=1e-12)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("q", [0.0, 1e-2])
def test_error_bounds_hold_on_random_streams(name, q):
    """||exact posterior of this step - what is kept||_F is at most the sum of the reported bounds."""
    likelihood = LIKELIHOODS["gaussian"]
    flt = MAKERS[name](NETWORK, likelihood, q, error_bounds=True, dtype=jnp.float64)
    belief = flt.init(jax.random.key(1), NETWORK.init(jax.random.key(0)))
    step = jax.jit(lambda b, x, y, arm: flt.update(flt.predict(b), x, y[arm], arm))
    split = (
        (lambda tree: (jax.tree.leaves(tree),))
        if len(belief.blocks) == 1
        else lambda tree: parameters.split(tree, NETWORK.is_last)
    )
    jacobian = jax.jit(jax.jacrev(NETWORK.apply))
    for x, y, arm in zip(*stream(6, 40), strict=True):
        jac = np.concatenate([parameters.ravel(leaves, 1) for leaves in split(jacobian(belief.params, x))], 1)[[arm]]
        own = [q, 2 * q] if len(belief.blocks) == 2 else [q]
        prior = block_diagonal(
            [dense_of(s) + extra * np.eye(len(dense_of(s))) for s, extra in zip(belief.blocks, own, strict=True)]
        )
        gain = prior @ jac.T / (jac @ prior @ jac.T + 0.1)
        exact = prior - gain @ (jac @ prior)
        belief, info = step(belief, x, y, arm)
        error = np.linalg.norm(exact - block_diagonal([dense_of(s) for s in belief.blocks]))
        assert error <= sum(map(float, info.error_bound)) * (1 + 1e-9) + 1e-9
    if name in SINGLE:
        assert info.error_bound.coupling == 0
    if q and name == "lrkf":
        # The part of the truncation that no rank-d matrix avoids: process noise in the D - d directions left out.
        assert info.error_bound.truncation >= q * np.sqrt(len(prior) - 7)


def block_diagonal(matrices):
    out = np.zeros((sum(map(len, matrices)),) * 2)
    at = 0
    for m in matrices:
        out[at : at + len(m), at : at + len(m)] = m
        at += len(m)
    return out


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", NAMES)
def test_vmap_over_seeds_and_settings_equals_one_by_one(name):
    xs, ys, arms = stream(8, 40)
    params = NETWORK.init(jax.random.key(0))

    def final(seed, q):
        flt = MAKERS[name](NETWORK, LIKELIHOODS["gaussian"], q, dtype=jnp.float64)
        belief = flt.init(jax.random.key(seed), params)
        belief, info = jax.lax.scan(
            lambda b, s: flt.update(flt.predict(b), s[0], s[1][s[2]], s[2]), belief, (xs, ys, arms)
        )
        return parameters.ravel(jax.tree.leaves(belief.params)), info.log_density

    seeds, noises = jnp.arange(3), jnp.array([1e-4, 1e-3, 0.0])
    together = jax.jit(jax.vmap(final))(seeds, noises)
    for i in range(3):
        alone = jax.jit(final)(seeds[i], noises[i])
        for a, b in zip(together, alone, strict=True):
            assert relative(a[i], b) < 1e-9


def test_traced_and_plain_zero_process_noise_agree():
    plain = filters.lrkf(NETWORK, LIKELIHOODS["gaussian"], rank=7, numerics=DOUBLE)
    traced = filters.lrkf(NETWORK, LIKELIHOODS["gaussian"], rank=7, process_noise=jnp.zeros(()), numerics=DOUBLE)
    (a, _), (b, _) = (run(flt, *stream(9, 60)) for flt in (plain, traced))
    assert relative(parameters.ravel(jax.tree.leaves(a.params)), parameters.ravel(jax.tree.leaves(b.params))) < 1e-9
    assert a.blocks[0].factor.basis[0].shape[1] == 7  # nothing is ever appended


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", NAMES)
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
    moved = [total(jax.tree.map(lambda p, g, step=step: p + step * g, params, gradient)) for step in (1e-7, -1e-7)]
    squares = sum(float(jnp.sum(leaf**2)) for leaf in jax.tree.leaves(gradient))
    np.testing.assert_allclose((moved[0] - moved[1]) / 2e-7, squares, rtol=1e-4)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", NAMES)
def test_update_without_shared_linearization_is_the_same_update(name):
    both = [
        MAKERS[name](NETWORK, LIKELIHOODS["categorical"], 1e-3, share_linearization=s, dtype=jnp.float64)
        for s in (True, False)
    ]
    (a, info_a), (b, info_b) = (run(flt, *stream(10, 30)) for flt in both)
    assert relative(parameters.ravel(jax.tree.leaves(a.params)), parameters.ravel(jax.tree.leaves(b.params))) < 1e-10
    np.testing.assert_allclose(info_a.log_density, info_b.log_density, rtol=1e-9)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["lrkf", "lolofi", "hilofi"])
def test_an_example_changes_what_is_kept_and_not_the_posterior(name, monkeypatch):
    monkeypatch.setattr(parameters, "_LARGE", 15)  # so that the kernels are pieces of their own
    both = [
        MAKERS[name](NETWORK._replace(example=example), LIKELIHOODS["categorical"], 1e-3, dtype=jnp.float64)
        for example in (None, NETWORK.example)
    ]
    (a, info_a), (b, info_b) = (run(flt, *stream(12, 60)) for flt in both)
    kept = [[isinstance(p, linalg.Extended) for p in belief.blocks[0].factor.basis] for belief in (a, b)]
    assert not any(kept[0])
    assert kept[1][:2] == [True, True]
    assert relative(parameters.ravel(jax.tree.leaves(a.params)), parameters.ravel(jax.tree.leaves(b.params))) < 1e-10
    np.testing.assert_allclose(info_a.log_density, info_b.log_density, rtol=1e-9)
    draws = [flt.sample(jax.random.key(0), belief) for flt, belief in zip(both, (a, b), strict=True)]
    assert all(np.all(np.isfinite(leaf)) for draw in draws for leaf in jax.tree.leaves(draw))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli"])
@pytest.mark.parametrize("q", [0.0, 1e-3])
def test_a_last_layer_by_output_is_the_last_layer(q, likelihood):
    """One response at a time: the same moments, draws of the same law, and the same error bounds."""
    both = [
        MAKERS["hilofi"](NETWORK, LIKELIHOODS[likelihood], q, per_output=apart, error_bounds=True, dtype=jnp.float64)
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
    if likelihood == "gaussian":
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


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["lrkf", "lolofi", "hilofi"])
def test_a_basis_in_bfloat16_halves_the_memory_and_keeps_the_moments(name):
    """Two hundred steps, with room made several times; coefficients and root stay in single precision.

    An error of the covariance turns the gains, and so moves the mean in units of its standard deviation, not of its
    own size, which may be near zero.
    """
    xs, ys, arms = stream(5)
    network = NETWORK.init(jax.random.key(0))
    beliefs = []
    for basis_dtype in (jnp.float32, jnp.bfloat16):
        flt = MAKERS[name](NETWORK, LIKELIHOODS["gaussian"], 1e-4, dtype=jnp.float32, basis_dtype=basis_dtype)
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


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", NAMES)
def test_acting_and_updating_share_the_linearization_in_a_compiled_scan(name):
    """Moments for all arms and the update of one, in one scan, cost the update's products and a few small ones.

    Of LoFi without process noise, which changes its factor between the two.
    """
    flt = MAKERS[name](NETWORK, LIKELIHOODS["gaussian"], 0.0 if name == "lofi" else 1e-4)

    def act_and_update(belief, x):
        at = flt.moments(belief, x)
        return flt.update(flt.predict(belief), x, 1.0, jnp.argmax(at.mean + jnp.diagonal(at.cov)))[0], None

    def update(belief, x):
        return flt.update(flt.predict(belief), x, 1.0, 2)[0], None

    belief = flt.init(jax.random.key(1), NETWORK.init(jax.random.key(0)))
    both, alone = (
        jax.jit(lambda b, xs, f=f: jax.lax.scan(f, b, xs))
        .lower(belief, jnp.ones((3, 3)))
        .compile()
        .as_text()
        .count(" dot(")
        for f in (act_and_update, update)
    )
    # moments adds, per block, the products with coefficients and root, the square and J J^T: all small, and none of the
    # Jacobian's or the basis'.
    assert both <= alone + 4 * len(belief.blocks)


BAD = {
    "rank of zero": (
        lambda: filters.lrkf(network_of(linear), likelihoods.gaussian(0.1), rank=0),
        "rank must be at least 1; got 0",
    ),
    "negative process noise": (
        lambda: filters.ekf(network_of(linear), likelihoods.gaussian(0.1), process_noise=-1e-3),
        "process_noise must be a finite number >= 0; got -0.001",
    ),
    "rank above D": (
        lambda: filters.lrkf(network_of(linear), likelihoods.gaussian(0.1), rank=13).init(
            jax.random.key(0), {"weight": jnp.zeros((4, 3))}
        ),
        "rank 13 exceeds the 12 parameters",
    ),
    "no last layer": (
        lambda: filters.hilofi(network_of(linear), likelihoods.gaussian(0.1), rank=2).init(
            jax.random.key(0), {"weight": jnp.zeros((4, 3))}
        ),
        "is_last matches nothing among the parameters weight",
    ),
    "everything last": (
        lambda: filters.hilofi(network_of(linear, lambda path: True), likelihoods.gaussian(0.1), rank=2).init(
            jax.random.key(0), {"weight": jnp.zeros((4, 3))}
        ),
        "is_last matches everything among the parameters weight",
    ),
}


@pytest.mark.parametrize("case", sorted(BAD))
def test_bad_settings_are_refused_by_name_and_value(case):
    attempt, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        attempt()


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


@pytest.mark.extended
@pytest.mark.parametrize("name", ["lolofi", "hilofi"])
def test_forward_passes_along_the_columns_equal_reverse_passes_of_the_outputs(name):
    """Thirty outputs against eight columns or, the same filter with more room in its buffer, many columns."""
    network = models.network(models.MLP(30, (6, 5)), jnp.zeros(3))
    likelihood = likelihoods.gaussian(0.1)
    size = sum(leaf.size for leaf in jax.tree.leaves(network.init(jax.random.key(0))))

    def make(q, **options):
        noises = {"process_noise_hidden": q, "process_noise_last": q, "numerics": DOUBLE._replace(**options)}
        if name == "hilofi":
            return filters.hilofi(network, likelihood, rank=3, **noises)
        return filters.lolofi(network, likelihood, rank_hidden=3, rank_last=4, **noises)

    def step(flt, belief, seen):
        x, y, arm = seen
        before = flt.moments(belief, x)
        belief = flt.predict(belief)
        between = flt.moments(belief, x)
        belief, info = flt.update(belief, x, y[arm], arm)
        return belief, (before.cov, between.cov, info.log_density)

    ends, seens = [], []
    for buffer in (4, 60):
        flt = make(1e-2, buffer=buffer)
        begin = flt.init(jax.random.key(1), network.init(jax.random.key(0)))
        scan = jax.jit(lambda b, data, flt=flt: jax.lax.scan(functools.partial(step, flt), b, data))
        end, seen = scan(begin, stream(12, 40, outputs=30))
        ends.append(parameters.ravel(jax.tree.leaves(end.params)))
        seens.append(seen)
    assert relative(*ends) < 1e-9
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10), *seens)

    # Without process noise nothing ever needs the Jacobian of all outputs, and no program forms it.
    if name != "hilofi":  # whose last layer's root has more columns than there are outputs
        flt = make(0.0)
        begin = flt.init(jax.random.key(1), network.init(jax.random.key(0)))
        data = jax.tree.map(lambda leaf: leaf[0], stream(12, 1, outputs=30))
        text = jax.jit(functools.partial(step, flt)).lower(begin, data).compile().as_text()
        assert f"[30,{size - 180}]" not in text
        assert "[30,180]" not in text
