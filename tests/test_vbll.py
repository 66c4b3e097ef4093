"""Variational last layers against closed forms and numerical integrals, in double precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqdec import agents, models
from seqdec.agents._neural import last_layer, vbll
from seqdec.agents._neural.experience import Batch, Experience
from tests.test_agents import CONTEXT, NUM_ARMS, NUM_FEATURES, Custom, contexts

NETWORK = models.network(Custom(), jnp.zeros(NUM_FEATURES))
SHARED = NETWORK._replace(example=None)
PRIOR_STD, NOISE = 0.7, 0.2


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64():
        yield


def data(rows=12):
    """Some rows, in which some responses are missing."""
    random = np.random.default_rng(0)
    x, y = jnp.asarray(contexts(rows), float), jnp.asarray(random.normal(size=(rows, NUM_ARMS)))
    return Batch(Experience(x, y, jnp.asarray(random.random((rows, NUM_ARMS)) < 0.6)), jnp.ones(rows))


def first(network, **options):
    head = agents.variational(prior_std=PRIOR_STD, noise_variance=NOISE, **options)(network)
    weights = jax.tree.map(lambda leaf: leaf.astype(float), network.init(jax.random.key(0)))
    return head, head.init(jax.random.key(1), weights)[0]


def exact(layer, weights, batch):
    """The parameters with the posterior of a linear model in the features: means and Cholesky factors by NumPy."""
    _, phi = jax.vmap(layer.features, (None, 0))(weights, batch.rows.x)
    means, roots = [], []
    for group in range(layer.groups):
        arms = [group] if layer.groups > 1 else range(NUM_ARMS)
        use = [(i, j) for j in arms for i in range(len(phi)) if batch.rows.observed[i, j]]
        design, y = np.array([phi[i, j] for i, j in use]), np.array([batch.rows.y[i, j] for i, j in use])
        cov = np.linalg.inv(np.eye(layer.size) / PRIOR_STD**2 + design.T @ design / NOISE)
        means.append(cov @ design.T @ y / NOISE)
        roots.append(np.linalg.cholesky(cov))
    return np.array(means), np.array(roots)


@pytest.mark.parametrize("network", [NETWORK, SHARED], ids=["a group per arm", "one group"])
def test_the_bound_is_largest_at_the_posterior_of_a_linear_model(network):
    """There the gradient by means and roots vanishes, and predictions are those of the linear model."""
    batch, layer = data(), last_layer.last_layer(network)
    head, params = first(network)
    means, roots = exact(layer, params.network, batch)
    diagonal = np.log(np.diagonal(roots, axis1=1, axis2=2))
    raw = np.tril(roots, -1) + diagonal[:, :, None] * np.eye(layer.size)
    best = params._replace(network=layer.put(params.network, jnp.asarray(means)), raw_root=jnp.asarray(raw))

    @jax.jit
    def slope(params):
        gradient = jax.grad(lambda params: head.loss(params, (), batch, len(batch.weights))[0])(params)
        return layer.get(gradient.network), jnp.tril(gradient.raw_root)

    for leaf in slope(best):
        np.testing.assert_allclose(leaf, 0, atol=1e-12)
    assert all(np.abs(leaf).max() > 1e-3 for leaf in slope(params))
    at = head.posterior(best, ()).joint(CONTEXT.astype(float))
    _, phi = layer.features(best.network, CONTEXT.astype(float))
    covs = [root @ root.T for root in roots] if layer.groups > 1 else [roots[0] @ roots[0].T] * NUM_ARMS
    expected = [phi[j] @ covs[j] @ phi[j] for j in range(NUM_ARMS)]
    np.testing.assert_allclose(np.diag(at.cov), expected, rtol=1e-10)
    np.testing.assert_allclose(at.mean, jnp.sum(phi * means, 1), rtol=1e-10)
    np.testing.assert_allclose(at.noise, NOISE * np.eye(NUM_ARMS), rtol=1e-10)


def test_the_objective_of_one_observation_worked_by_hand():
    """One weight: m = 0.5, s = exp(-1), sigma^2 = 0.5, phi = 2, y = 1.5; prior N(0, 4), nu = 3, scale 0.2."""
    squares = (1.5 - 1.0) ** 2 + 4 * np.exp(-2)
    bound = -0.5 * np.log(2 * np.pi * 0.5) - squares / (2 * 0.5)
    divergence = 0.5 * ((np.exp(-2) + 0.25) / 4 - 1 + np.log(4) + 2)
    log_prior = -0.5 * (5 * np.log(0.5) + 0.2 / 0.5)
    params = vbll.Variational((), jnp.array([[[-1.0]]]), jnp.log(jnp.array([0.5])))
    variance = last_layer.variances(jnp.array([[2.0]]), vbll.root_of(params))
    np.testing.assert_allclose(vbll.regression_bound(1.5, 1.0, variance, params.log_noise), [[bound]][0], rtol=1e-12)
    penalty = vbll.penalty(params, jnp.array([[0.5]]), 2.0, 3.0, 0.2)
    np.testing.assert_allclose(penalty, divergence - log_prior, rtol=1e-12)


def test_the_bound_of_an_observation_is_below_its_log_density_and_exact_without_variance():
    """Equation (114) of the paper, whose density is N(y | m, phi^T Sigma phi + R)."""
    random = np.random.default_rng(0)
    y, mean, variance, noise = *random.normal(size=(2, 50)), *random.uniform(0.1, 1, size=(2, 50))
    for spread, gap in ((variance, 1e-4), (np.zeros(50), 0.0)):
        bound = vbll.regression_bound(y, mean, spread, jnp.log(noise))
        density = jax.scipy.stats.norm.logpdf(y, mean, np.sqrt(spread + noise))
        assert np.all(density - bound >= gap - 1e-12)
    np.testing.assert_allclose(bound, density, rtol=1e-10)


def test_the_bound_of_a_class_is_below_its_expectation_and_exact_without_variance():
    random = np.random.default_rng(0)
    mean, variance = jnp.asarray(random.normal(size=4)), jnp.asarray(random.uniform(0.1, 1, 4))
    logits = np.asarray(mean) + np.sqrt(np.asarray(variance) + 0.3) * random.normal(size=(200_000, 4))
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    exactly = jax.nn.softmax(mean)
    label, one = jnp.array([0.0, 0, 1, 0]), jnp.array([False, False, True, False])
    for y, observed, draws, certain in [
        (label, jnp.ones(4, bool), p[:, 2], exactly[2]),
        (label, one, p[:, 2], exactly[2]),
        (jnp.zeros(4), one, 1 - p[:, 2], 1 - exactly[2]),
    ]:
        bound = vbll.classification_bound(y, observed, mean, variance, jnp.full(4, np.log(0.3)))
        assert -1.0 < bound - np.mean(np.log(draws)) < 0
        tight = vbll.classification_bound(y, observed, mean, jnp.zeros(4), jnp.full(4, -jnp.inf))
        np.testing.assert_allclose(tight, np.log(certain), rtol=1e-10)


def test_a_classifier_is_trained_on_its_bound_and_predicts_a_softmax():
    batch, layer = data(), last_layer.last_layer(NETWORK)
    labels = jax.nn.one_hot(jnp.argmax(batch.rows.y, 1), NUM_ARMS)
    batch = batch._replace(rows=batch.rows._replace(y=labels))
    head, params = first(NETWORK, head="classification")
    loss, (expected, _) = head.loss(params, (), batch, 24)
    logits, phi = jax.vmap(layer.features, (None, 0))(params.network, batch.rows.x)
    variance = last_layer.variances(phi, vbll.root_of(params))
    each = jax.vmap(vbll.classification_bound, (0, 0, 0, 0, None))(
        labels, batch.rows.observed, logits, variance, params.log_noise
    )
    rest = vbll.penalty(params, layer.get(params.network), PRIOR_STD, 1.0, 0.01)
    np.testing.assert_allclose(loss, rest / 24 - each.mean(), rtol=1e-10)
    np.testing.assert_allclose(expected, jax.nn.softmax(logits), rtol=1e-10)
    question, x = head.posterior(params, ()), batch.rows.x[0]
    slope = jax.jacobian(jax.nn.softmax)(logits[0])
    np.testing.assert_allclose(question.joint(x).mean, expected[0], rtol=1e-10)
    np.testing.assert_allclose(question.mean(x), expected[0], rtol=1e-10)
    np.testing.assert_allclose(question.joint(x).cov, slope @ jnp.diag(variance[0]) @ slope.T, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(question.draw(jax.random.key(0))(x).sum(), 1, rtol=1e-10)


def test_what_does_not_fit_a_head_is_refused():
    for wrong, message in [
        ({"head": "classify"}, "did you mean 'classification'"),
        ({"prior_std": -1.0}, "prior_std must be positive; got -1.0"),
        ({"scale": -1.0}, "scale must be a finite number >= 0; got -1.0"),
    ]:
        with pytest.raises(ValueError, match=message):
            agents.variational(**wrong)
    with pytest.raises(ValueError, match="needs Discrete actions and a network with one output for each"):
        agents.variational(head="classification")(SHARED)
