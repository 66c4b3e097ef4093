"""Every filter against the printed boxes, the dense Kalman filter, Monte Carlo and the error bounds."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests import boxes

from seqdec import filters, likelihoods, linalg, models

NETWORK = models.network(models.MLP(4, (6, 5)), jnp.zeros(3))
STEPS = 200


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def stream(seed, steps=STEPS, inputs=3, outputs=4):
    generator = np.random.default_rng(seed)
    return generator.normal(size=(steps, inputs)), generator.normal(size=(steps, outputs)), generator.integers(outputs, size=steps)


def dense_of(state):
    """Covariance kept by a block."""
    factor = state.factor
    if isinstance(factor, linalg.Root):
        return np.asarray(factor.rows.T @ factor.rows)
    rows = factor.coefficients @ factor.basis.T
    return np.asarray(rows.T @ rows)


def factor_of(state):
    """A square (or d x D) root to start a box from."""
    factor = state.factor
    if isinstance(factor, linalg.Root):
        return np.asarray(factor.rows[: factor.rows.shape[1]])
    return np.asarray(factor.coefficients @ factor.basis.T)


MAKERS = {
    "ekf": lambda apply, likelihood, q, **kw: filters.ekf(apply, likelihood, initial_std=0.5, process_noise=q, **kw),
    "lrkf": lambda apply, likelihood, q, **kw: filters.lrkf(
        apply, likelihood, rank=7, initial_std=0.8, process_noise=q, buffer=9, **kw
    ),
    "hilofi": lambda apply, likelihood, q, **kw: filters.hilofi(
        apply, likelihood, is_last=NETWORK.is_last, rank=7, initial_std_hidden=0.4, initial_std_last=0.6,
        process_noise_hidden=q, process_noise_last=2 * q, buffer=11, **kw,
    ),
    "lolofi": lambda apply, likelihood, q, **kw: filters.lolofi(
        apply, likelihood, is_last=NETWORK.is_last, rank_hidden=7, rank_last=9, initial_std_hidden=0.4, initial_std_last=0.6,
        process_noise_hidden=q, process_noise_last=2 * q, buffer=11, **kw,
    ),
}  # fmt: skip
NAMES = sorted(MAKERS)
LIKELIHOODS = {
    "gaussian": likelihoods.gaussian(0.1),
    "categorical": likelihoods.categorical(1e-2),
    "bernoulli": likelihoods.bernoulli(),
    "poisson": likelihoods.poisson(),
}


class BoxRun:
    """The printed box of a filter, run beside it on the same linearisation code path but with its own algebra."""

    def __init__(self, name, likelihood, belief, q):
        self.name, self.likelihood, self.q = name, likelihood, q
        self.params = belief.params
        self.factors = [factor_of(s) for s in belief.blocks]
        if name == "ekf":
            self.factors = [self.factors[0].T @ self.factors[0]]

    def _split(self, tree):
        return (jax.tree.leaves(tree),) if self.name in ("ekf", "lrkf") else models.split(tree, NETWORK.is_last)

    @functools.cached_property
    def _linearise(self):
        def response(params, x, rows):
            output = NETWORK.apply(params, x)
            return self.likelihood.mean(output)[rows], self.likelihood.cov(output)[rows][:, rows]

        return jax.jit(lambda *args: (*response(*args), jax.jacrev(lambda *a: response(*a)[0])(*args)))

    def step(self, x, y, rows):
        mean, noise, rows_of = self._linearise(self.params, x, jnp.asarray(rows))
        mean, noise = np.asarray(mean), np.asarray(noise)
        jac = [np.asarray(models.ravel(leaves, 1)) for leaves in self._split(rows_of)]
        eps = np.asarray(y) - mean
        if self.name == "ekf":
            self.factors[0], *steps = boxes.ekf(self.factors[0], jac[0], noise, eps, self.q)
        elif self.name == "lrkf":
            self.factors[0], *steps = boxes.lrkf(self.factors[0], jac[0], noise, eps, self.q)
        else:
            box = getattr(boxes, self.name)
            last, hidden, step_l, step_h = box(self.factors[1], self.factors[0], jac[1], jac[0], noise, eps, 2 * self.q, self.q)
            self.factors, steps = [hidden, last], [step_h, step_l]
        leaves = self._split(self.params)
        fresh = [models.unravel(models.ravel(old) + s, old) for old, s in zip(leaves, steps, strict=True)]
        if len(fresh) == 1:
            self.params = jax.tree.structure(self.params).unflatten(fresh[0])
        else:
            self.params = models.join(self.params, NETWORK.is_last, *fresh)

    def covariances(self):
        return [f if self.name == "ekf" else f.T @ f for f in self.factors]


def relative(a, b):
    return np.max(np.abs(np.asarray(a) - np.asarray(b))) / max(1.0, np.max(np.abs(np.asarray(b))))


@pytest.mark.parametrize("q", [0.0, 1e-4])
@pytest.mark.parametrize("name", NAMES)
def test_equals_printed_box(name, q):
    """Mean and covariance of every filter, one observed arm per step, against the box over 200 steps."""
    likelihood = LIKELIHOODS["gaussian"]
    flt = MAKERS[name](NETWORK.apply, likelihood, q, dtype=jnp.float64)
    belief = flt.init(jax.random.key(1), NETWORK.init(jax.random.key(0)))
    box = BoxRun(name, likelihood, belief, q)
    step = jax.jit(lambda belief, x, y, arm: flt.update(flt.predict(belief), x, y, arm))
    for x, y, arm in zip(*stream(0), strict=True):
        belief, info = step(belief, x, y[arm], arm)
        assert not info.rejected
        box.step(x, y[[arm]], [arm])
    ours, theirs = models.ravel(jax.tree.leaves(belief.params)), models.ravel(jax.tree.leaves(box.params))
    assert relative(ours, theirs) < 1e-10
    for state, cov in zip(belief.blocks, box.covariances(), strict=True):
        assert relative(dense_of(state), cov) < 1e-10
