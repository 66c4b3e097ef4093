"""Statements of docs/mathematics.md that no other test makes, and that the tests which it names exist."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqdec import filters, likelihoods, models
from seqdec import params as parameters

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


def dense(belief):
    factor = belief.blocks[0].factor
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


def test_every_test_that_the_page_names_exists():
    named = re.findall(r"`(tests/\w+\.py)::(\w+)`", (ROOT / "docs" / "mathematics.md").read_text(encoding="utf-8"))
    assert len(named) > 15
    for path, name in named:
        assert f"\ndef {name}(" in (ROOT / path).read_text(encoding="utf-8"), name
