"""Statements of docs/mathematics.md and of the paper that no other test makes; the tests that the pages name exist."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.stats

from seqdec import filters, likelihoods, models
from seqdec import params as parameters
from seqdec.filters import reference
from tests.toys import network_of

ROOT = Path(__file__).resolve().parents[1]
NETWORK = models.network(models.MLP(3, (3,)), jnp.zeros(2))
SIZE = 3 * 3 + 4 * 3
INPUT = jnp.array([0.4, -1.1])


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def rows_of(function, params):
    return np.asarray(parameters.ravel(jax.tree.leaves(jax.jacrev(function)(params)), 1))


def dense(belief, block=0):
    factor = belief.blocks[block].factor
    root = factor.columns.T if hasattr(factor, "columns") else factor.root @ factor.coefficients @ factor.basis[0].T
    return np.asarray(root.T @ root)


def started(flt):
    key = jax.random.key(0)
    params = jax.tree.map(lambda leaf: 0.5 * jax.random.normal(key, leaf.shape), NETWORK.init(jax.random.key(1)))
    return flt.predict(flt.init(jax.random.key(2), params))


def moved(before, after):
    return np.asarray(
        parameters.ravel(jax.tree.leaves(after.params)) - parameters.ravel(jax.tree.leaves(before.params))
    )


def test_a_classified_input_adds_its_fisher_information_and_moves_along_the_gradient():
    flt = filters.ekf(
        NETWORK,
        likelihoods.categorical(jitter=1e-9),
        initial_std=0.7,
        numerics=filters.Numerics(dtype=jnp.float64),
    )
    before, seen = started(flt), jnp.eye(3)[1]
    after, _ = flt.update(before, INPUT, seen)
    probabilities = np.asarray(jax.nn.softmax(NETWORK.apply(before.params, INPUT)))
    logits = rows_of(lambda params: NETWORK.apply(params, INPUT), before.params)
    fisher = logits.T @ (np.diag(probabilities) - np.outer(probabilities, probabilities)) @ logits
    covariance = np.linalg.inv(np.eye(SIZE) / 0.7**2 + fisher)
    np.testing.assert_allclose(dense(after), covariance, atol=1e-6)
    np.testing.assert_allclose(moved(before, after), covariance @ logits.T @ (seen - probabilities), atol=1e-6)


def test_likelihoods_have_the_moments_of_their_responses():
    f, jitter = jnp.array([0.3, -1.0, 0.5]), 1e-3
    shares, odds, rates = np.exp(f) / np.sum(np.exp(f)), 1 / (1 + np.exp(-f)), np.exp(f)
    classes = np.eye(3) - shares  # of each label, centered
    for likelihood, mean, cov in (
        (likelihoods.categorical(jitter), shares, classes.T @ np.diag(shares) @ classes),
        (likelihoods.bernoulli(jitter), odds, np.diag(odds * (1 - odds))),
        (likelihoods.poisson(jitter), rates, np.diag(rates)),
    ):
        np.testing.assert_allclose(likelihood.mean(f), mean, rtol=1e-12)
        np.testing.assert_allclose(likelihood.cov(f), cov + jitter * np.eye(3), atol=1e-12)
    mode = likelihoods.poisson().mode
    assert mode is not None
    np.testing.assert_allclose(mode(jnp.array([0.0, 6.0])), [[0, np.log(7)], [1, 1 / 7]], rtol=1e-12)


def test_at_full_rank_only_the_surrogate_of_the_process_noise_is_left():
    q, likelihood = 0.1, likelihoods.gaussian(0.2)
    common = {"initial_std": 0.7, "process_noise": q, "numerics": filters.Numerics(dtype=jnp.float64)}
    low, full = filters.lrkf(NETWORK, likelihood, rank=SIZE, **common), filters.ekf(NETWORK, likelihood, **common)
    seen = jnp.array([1.0, -1.0, 0.5])
    (ours, _), (theirs, _) = (flt.update(started(flt), INPUT, seen) for flt in (low, full))
    np.testing.assert_allclose(moved(started(low), ours), moved(started(full), theirs), atol=1e-10)
    rows = rows_of(lambda params: NETWORK.apply(params, INPUT), started(full).params)
    prior = (0.7**2 + q) * np.eye(SIZE)
    turned = prior @ rows.T @ np.linalg.inv(rows @ prior @ rows.T + 0.2 * np.eye(3)) @ rows
    neglected = q * (turned + turned.T - turned @ turned.T)
    assert np.linalg.norm(neglected) > 0.1
    np.testing.assert_allclose(dense(ours) - dense(theirs), neglected, atol=1e-10)


def test_the_ekf_of_a_linear_model_is_the_best_linear_predictor_and_the_posterior():
    """Propositions B.1 and B.2 by the covariance of all responses, Corollary B.4 by the precision of all states."""
    count, std, q, noise, generator = 5, 0.7, 0.1, 0.2, np.random.default_rng(0)
    flt = filters.ekf(
        network_of(lambda params, x: params["weight"] @ x),
        likelihoods.gaussian(noise),
        initial_std=std,
        process_noise=q,
        numerics=filters.Numerics(dtype=jnp.float64),
    )
    belief, density = flt.init(jax.random.key(0), {"weight": jnp.zeros((2, 3))}), 0.0
    inputs, responses = generator.normal(size=(count, 3)), generator.normal(size=(count, 2))
    for x, y in zip(inputs, responses, strict=True):
        belief, info = flt.update(flt.predict(belief), x, y)
        density += info.log_density
    mean, seen = np.ravel(belief.params["weight"]), responses.ravel()

    rows = np.concatenate([np.kron(np.eye(2), x) for x in inputs])
    walk = std**2 + q * np.minimum.outer(np.arange(1, count + 1), np.arange(1, count + 1))
    total = np.kron(walk, np.ones((2, 2))) * (rows @ rows.T) + noise * np.eye(len(seen))
    across = np.repeat(walk[-1], 2) * rows.T
    best = across @ np.linalg.inv(total)
    errors = walk[-1, -1] * np.eye(6) - best @ total @ best.T
    np.testing.assert_allclose(mean, best @ seen, atol=1e-12)
    np.testing.assert_allclose(dense(belief), errors, atol=1e-12)

    def squared_error(weights):
        return 6 * walk[-1, -1] + np.trace(weights @ total @ weights.T - 2 * weights @ across.T)

    np.testing.assert_allclose(squared_error(best), np.trace(errors))
    others = best + 0.01 * generator.normal(size=(20, *best.shape))
    assert min(map(squared_error, others)) > squared_error(best)

    steps, observed = np.eye(count) - np.eye(count, k=-1), scipy.linalg.block_diag(*np.split(rows, count))
    precision = np.diag([1 / (std**2 + q)] + [1 / q] * (count - 1))
    posterior = np.linalg.inv(np.kron(steps.T @ precision @ steps, np.eye(6)) + observed.T @ observed / noise)
    np.testing.assert_allclose(mean, (posterior @ observed.T @ seen / noise)[-6:], atol=1e-12)
    np.testing.assert_allclose(dense(belief), posterior[-6:, -6:], atol=1e-12)
    np.testing.assert_allclose(density, scipy.stats.multivariate_normal(np.zeros(len(seen)), total).logpdf(seen))


def test_the_joint_update_couples_the_blocks_through_the_variance_of_the_innovation():
    """Equation (72) and Proposition 4.1, corrected and, without process noise and at full rank, as printed."""
    flt = filters.hilofi(
        NETWORK,
        likelihoods.gaussian(0.01),
        rank=9,
        initial_std_hidden=0.7,
        initial_std_last=0.5,
        numerics=filters.Numerics(dtype=jnp.float64, error_bounds=True),
    )
    before, noise = started(flt), 0.01 * np.eye(3)
    after, info = flt.update(before, INPUT, jnp.array([1.0, -1.0, 0.5]))
    jacobian = jax.jacrev(lambda params: NETWORK.apply(params, INPUT))(before.params)
    rows = [np.asarray(parameters.ravel(leaves, 1)) for leaves in parameters.split(jacobian, NETWORK.is_last)]
    priors = [dense(before, block) for block in range(2)]
    parts = [jac @ prior @ jac.T for jac, prior in zip(rows, priors, strict=True)]
    total = sum(parts) + noise
    gains = [prior @ jac.T @ np.linalg.inv(total) for jac, prior in zip(rows, priors, strict=True)]
    joint, _ = reference.ekf(scipy.linalg.block_diag(*priors), np.hstack(rows), noise, np.zeros(3), 0.0)
    own = []
    for jac, prior, gain, other in zip(rows, priors, gains, parts[::-1], strict=True):
        left = np.eye(len(prior)) - gain @ jac
        own.append(left @ prior @ left.T + gain @ (noise + other) @ gain.T)
    between = -gains[0] @ total @ gains[1].T
    np.testing.assert_allclose(joint, np.block([[own[0], between], [between.T, own[1]]]), atol=1e-12)

    error = np.linalg.norm(joint - scipy.linalg.block_diag(*(dense(after, block) for block in range(2))))
    printed = 2 * np.linalg.norm(gains[1] @ noise @ gains[0].T) ** 2
    assert 100 * printed < error <= sum(map(float, info.error_bound))


def one_step(sigma, root, x, noise):
    """||theta - theta_hat|| after an innovation of one, and the bound (109), a function of sigma_{d+1} and sigma_1."""
    seen = x[None], noise * np.eye(1), np.ones(1), 0.0
    difference = np.linalg.norm(reference.ekf(sigma, *seen)[1] - reference.lrkf(root, *seen)[1])
    length, least = np.linalg.norm(x), min(x @ sigma @ x, np.sum((root @ x) ** 2)) + noise
    return difference, lambda dropped, largest: dropped * length * (1 / least + largest * length**2 / least**2)


def test_the_step_of_lrkf_is_as_near_the_kalman_filter_s_as_its_covariance():
    """Proposition F.4 for the best approximation of Sigma, and with ||Sigma - Sigma_hat|| for that of a later step."""
    generator = np.random.default_rng(1)
    for _ in range(10):
        half = generator.normal(size=(6, 6))
        sigma = half.T @ half
        values, vectors = np.linalg.eigh(sigma)
        for dropped in range(6):  # of the six directions
            root = np.sqrt(values[dropped:, None]) * vectors[:, dropped:].T
            norms = values[dropped - 1] if dropped else 0.0, values[-1]
            difference, bound = one_step(sigma, root, generator.normal(size=6), generator.uniform(0.1, 1))
            assert difference <= bound(*norms) + 1e-12
            if dropped:  # sharp along the largest of them, where the noise is large
                difference, bound = one_step(sigma, root, vectors[:, dropped - 1], 1e4 * values[-1])
                np.testing.assert_allclose(difference, bound(*norms), rtol=1e-3)

    sigma, root, first = np.diag([100.0, 90.0]), np.array([[10.0, 0.0]]), (np.eye(1, 2), np.eye(1), np.ones(1), 0.0)
    sigma, root = reference.ekf(sigma, *first)[0], reference.lrkf(root, *first)[0]
    difference, bound = one_step(sigma, root, np.array([0.0, 0.1]), 1.0)
    assert difference > 10 * bound(*np.linalg.eigvalsh(sigma))
    assert difference <= bound(np.linalg.norm(sigma - root.T @ root, 2), np.linalg.norm(root, 2) ** 2)


@pytest.mark.parametrize("page", ["mathematics", "measurements/reproduction"])
def test_every_test_that_a_page_names_exists(page):
    named = re.findall(r"`(tests/\w+\.py)::(\w+)`", (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))
    assert len(named) > 5
    for path, name in named:
        assert f"\ndef {name}(" in (ROOT / path).read_text(encoding="utf-8"), name
