"""Policies against closed forms and frequencies, on posteriors made by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from seqdec import policies, testing
from seqdec.core import Posterior, Predictive
from seqdec.policies.common import played

MEAN = np.array([0.3, 0.5, 0.1, 0.45], np.float32)
ROOT = np.array([[0.6, 0.4, -0.1, 0.2], [0, 0.3, 0.2, 0.1], [0, 0, 0.5, -0.3], [0, 0, 0, 0.2]], np.float32)
COV = ROOT.T @ ROOT
NOISE = np.diag(np.array([0.04, 0.09, 0.01, 0.16], np.float32))
MASK = np.array([True, False, True, True])
DRAWS = 10_000
SIGMAS = 6

# name -> (maker, what it needs of the posterior)
POLICIES = {
    "epsilon_greedy": (lambda: policies.epsilon_greedy(0.2), "mean"),
    "epistemic_sampling": (policies.epistemic_sampling, "joint"),
    "greedy": (policies.greedy, "mean"),
    "log_expected_improvement": (policies.log_expected_improvement, "joint"),
    "predictive_sampling": (policies.predictive_sampling, "joint"),
    "tempered_sampling": (policies.tempered_sampling, "joint"),
    "thompson": (policies.thompson, "draw"),
    "ucb": (lambda: policies.ucb(1.5), "joint"),
}
MAKERS, NEEDS = ({name: row[i] for name, row in POLICIES.items()} for i in range(2))
DETERMINISTIC = ("greedy", "log_expected_improvement", "ucb")
VARIANTS = MAKERS | {
    "predictive_sampling, jointly": lambda: policies.predictive_sampling(joint=True),
    "epistemic_sampling, jointly": lambda: policies.epistemic_sampling(joint=True),
}
RANDOMIZED = (
    "epistemic_sampling",
    "epistemic_sampling, jointly",
    "predictive_sampling",
    "predictive_sampling, jointly",
    "tempered_sampling",
    "thompson",
)


def belief(mean=MEAN, cov=COV, noise=NOISE) -> Posterior:
    """The posterior N(mean, cov) over the candidates, whatever they are."""
    values, vectors = np.linalg.eigh(np.asarray(cov, np.float64))
    root = jnp.asarray((vectors * np.sqrt(np.maximum(values, 0))).T, np.float32)
    mean, cov, noise = (jnp.asarray(part) for part in (mean, cov, noise))

    def draw(key):
        sample = mean + jax.random.normal(key, mean.shape) @ root
        return lambda candidates: sample

    return Posterior(lambda candidates: mean, lambda candidates: Predictive(mean, cov, noise), draw)


def law(name):
    """Mean and covariance of the scores of a randomized policy on `belief()`."""
    if name == "tempered_sampling":
        ratio = np.diag(COV) / np.diag(NOISE)
        return MEAN, np.diag(np.diag(COV) * np.minimum(1, ratio * np.sum(1 / ratio) / (5 * len(MEAN))))
    total = COV + (NOISE if name.startswith("predictive_sampling") else 0)
    return MEAN, total if name.endswith("jointly") or name == "thompson" else np.diag(np.diag(total))


def probabilities_of(policy, question, mask=None, key=None):
    """(n,) by which the policy draws what it plays."""
    return played(policy, jax.random.key(0) if key is None else key, question, None, mask)[1]


def scores_of(name, draws=DRAWS, mask=None, question=None):
    """(draws, n) scores with as many keys."""
    policy, question = VARIANTS[name](), question or belief()
    keys = jax.random.split(jax.random.key(0), draws)
    return np.asarray(jax.jit(jax.vmap(lambda key: policy.score(key, question, None, mask)))(keys))


def winners(mean, cov, draws=300_000):
    """Frequencies of the largest entry of N(mean, cov), by NumPy."""
    sample = np.random.default_rng(1).multivariate_normal(mean, cov, draws)
    return np.bincount(sample.argmax(1), minlength=len(mean)) / draws


def test_every_policy_is_under_test():
    assert sorted(MAKERS) == list(policies.names())
    assert all(getattr(policies, name) is policies.REGISTRY[name] for name in MAKERS)


@pytest.mark.parametrize("name", VARIANTS)
def test_contract(name):
    testing.check_policy(VARIANTS[name])


@pytest.mark.parametrize("name", MAKERS)
def test_what_a_policy_needs_is_not_asked_for_each_of_its_draws(name):
    policy, asked = MAKERS[name](), []
    assert policies.make(name).needs == NEEDS[name]

    def listen(question):
        return lambda *arguments: asked.append(question) or getattr(belief(), question)(*arguments)

    spy = Posterior(listen("mean"), listen("joint"), listen("draw"))
    probabilities_of(policy, spy)
    assert set(asked) == {policy.needs} == {NEEDS[name]} and len(asked) == 1
    assert (policy.law is None) is (name in DETERMINISTIC)


@pytest.mark.parametrize("name", RANDOMIZED)
def test_scores_have_the_moments_of_the_predictive(name):
    scores, (mean, cov) = scores_of(name).astype(np.float64), law(name)
    variances = np.diag(cov)
    assert np.all(np.abs(scores.mean(0) - mean) < SIGMAS * np.sqrt(variances / DRAWS))
    error = np.sqrt((np.outer(variances, variances) + cov**2) / DRAWS)
    assert np.all(np.abs(np.cov(scores.T) - cov) < SIGMAS * error)
    assert np.all(np.abs(stats.kurtosis(scores)) < SIGMAS * np.sqrt(24 / DRAWS))


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_separate_draws_win_with_the_probabilities_that_are_played(scale):
    """Also where one arm is a hundred times as uncertain as the others, or they as it."""
    cov = np.diag([0.02, 0.03 * scale**2, 0.02, 0.05])
    policy, question = policies.epistemic_sampling(), belief(MEAN, cov.astype(np.float32))
    found = np.asarray(probabilities_of(policy, question))
    np.testing.assert_array_equal(found, probabilities_of(policy, question, key=jax.random.key(1)))
    p = winners(MEAN.astype(float), cov)
    share = 0.0001 + 0.002 * (1 - p.max())
    p = (1 - share) * p + share / 4
    assert np.all(np.abs(found - p) < SIGMAS * np.sqrt(p * (1 - p) / 300_000) + 0.002)


def test_little_is_neglected_where_contexts_hardly_differ():
    """By how many numbers do, and by one at least."""
    question = belief()
    for varying in (0.0, 3.0, 20.0):
        known = policies.tempered_sampling(neglect=min(max(varying, 1.0), 5.0))
        found = probabilities_of(
            policies.tempered_sampling(neglect=5.0), question._replace(varying=jnp.float32(varying))
        )
        np.testing.assert_array_equal(found, probabilities_of(known, question))


@pytest.mark.parametrize("name", VARIANTS)
def test_what_is_played_has_the_law_that_is_logged(name):
    """So that rewards weighted by it are unbiased: mean weights are 1, also of what is rarely played."""
    policy, mask = VARIANTS[name](), jnp.arange(4) != 1
    question = belief(MEAN - 0.5 * jnp.eye(4)[2], COV)
    keys = jax.random.split(jax.random.key(0), 50_000)
    index, every = map(np.asarray, jax.jit(jax.vmap(lambda key: played(policy, key, question, None, mask)))(keys))
    is_played = np.eye(4)[index]
    assert not every[:, 1].any() and not is_played[:, 1].any()
    for arm in (0, 2, 3):
        rest = is_played[:, arm] - every[:, arm]
        assert abs(rest.mean()) <= SIGMAS * rest.std() / len(rest) ** 0.5
        if name not in DETERMINISTIC:
            weights = is_played[:, arm] / every[:, arm]
            assert abs(weights.mean() - 1) < SIGMAS * weights.std() / len(rest) ** 0.5


@pytest.mark.parametrize("name", VARIANTS)
def test_what_no_law_is_for_has_no_probability(name):
    policy = VARIANTS[name]()
    for question, mask in ((belief(), jnp.zeros(4, bool)), (belief(MEAN * np.float32("nan")), None)):
        index, every = played(policy, jax.random.key(0), question, None, mask)
        assert index in range(4) and not every[index] > 0


def test_many_equal_and_certain_arms_share_the_probability():
    """Their ties are counted evenly: the product of 299 halves is zero in float32."""
    question = belief_of(jnp.zeros((300, 300)))
    np.testing.assert_allclose(probabilities_of(policies.epistemic_sampling(), question), 1 / 300, rtol=1e-4)


@pytest.mark.parametrize("name", RANDOMIZED)
def test_the_probability_of_an_allowed_candidate_is_never_zero(name):
    """Not even where the other arm is 100 standard deviations better: its inverse may become a weight."""
    question = belief(np.array([0, 100, 0], np.float32), np.eye(3, dtype=np.float32), np.zeros((3, 3), np.float32))
    found = probabilities_of(VARIANTS[name](), question, jnp.array([True, True, False]))
    np.testing.assert_allclose(found, [5e-5, 0.99995, 0], rtol=1e-3)


@pytest.mark.parametrize("make", [policies.thompson, policies.epistemic_sampling, policies.predictive_sampling])
def test_without_samples_the_probability_is_unknown_and_of_one_draw_it_is_nearly_one(make):
    assert probabilities_of(make(propensity_samples=0), belief()) is None
    index, every = played(policies.thompson(propensity_samples=1), jax.random.key(0), belief(), None, None)
    assert float(every[index]) == pytest.approx(0.999925)


@settings(max_examples=50, deadline=None)
@given(
    mean=arrays(np.float32, 4, elements=st.floats(-1e3, 1e3, width=32)),
    root=arrays(np.float32, (3, 4), elements=st.floats(-10, 10, width=32)),
    mask=arrays(bool, 4).filter(np.any),
)
def test_probabilities_are_a_distribution_over_the_allowed(mean, root, mask):
    for name, found in _every_law(mean, root.T @ root, mask).items():
        probabilities = np.asarray(found)
        assert np.all(probabilities[~mask] == 0), name
        assert np.all(probabilities >= 0) and probabilities.sum() == pytest.approx(1, rel=1e-5), name
        if name not in DETERMINISTIC:
            assert np.all(probabilities[mask] > 0), name


@jax.jit
def _every_law(mean, cov, mask):
    """Every policy's probabilities; compiled once for all examples."""

    def draw(key):
        sample = mean + jax.random.normal(key, mean.shape)
        return lambda candidates: sample

    question = Posterior(lambda candidates: mean, lambda candidates: Predictive(mean, cov, 0.1 * jnp.eye(4)), draw)
    return {name: probabilities_of(make(), question, mask) for name, make in MAKERS.items()}


def test_singular_covariances_in_float32_give_finite_scores():
    """Products of float32 matrices, of every rank up to full, have slightly negative eigenvalues."""
    generator, arms = np.random.default_rng(64), 64
    policy = policies.epistemic_sampling(joint=True, propensity_samples=0)
    score = jax.jit(lambda key, cov: policy.score(key, belief_of(cov), None, None))
    for scale in (1e-12, 1.0, 1e12):
        for rank in (0, 1, 2, arms // 2, arms):
            root = jnp.asarray(np.sqrt(scale) * generator.normal(size=(rank, arms)), np.float32)
            scores = score(jax.random.key(rank), root.T @ root)
            assert np.all(np.isfinite(scores))
            assert rank or np.all(scores == 0)


def belief_of(cov):
    return Posterior(None, lambda candidates: Predictive(jnp.zeros(len(cov)), cov, jnp.zeros_like(cov)), None)  # pyright: ignore[reportArgumentType]


def test_upper_confidence_bound_by_hand():
    scores = policies.ucb(2.0).score(jax.random.key(0), belief(), None, None)
    np.testing.assert_allclose(scores, MEAN + 2 * np.sqrt(np.diag(COV)), rtol=1e-6)
    np.testing.assert_allclose(policies.ucb(0.0).score(jax.random.key(0), belief(), None, None), MEAN, rtol=1e-6)


@pytest.mark.parametrize("mask", [None, MASK], ids=["all allowed", "some allowed"])
def test_improvement_is_over_the_best_expected_response_of_the_allowed(mask):
    mask = None if mask is None else jnp.asarray(mask)
    scores = policies.log_expected_improvement().score(jax.random.key(0), belief(), None, mask)
    allowed = np.ones(4, bool) if mask is None else MASK
    std, z = np.sqrt(np.diag(COV)), (MEAN - MEAN[allowed].max()) / np.sqrt(np.diag(COV))
    expected = np.log(std * (stats.norm.pdf(z) + z * stats.norm.cdf(z)))
    np.testing.assert_allclose(np.asarray(scores)[allowed], expected[allowed], rtol=1e-4)


def test_augmented_improvement_by_hand():
    def scores(noise_std, cov=COV):
        policy = policies.log_expected_improvement(0.5, noise_std)
        return policy.score(jax.random.key(0), belief_of(jnp.asarray(cov)), None, None)

    factor = 1 - 0.5 / np.sqrt(np.diag(COV) + 0.25)
    np.testing.assert_allclose(scores(0.5) - scores(None), np.log(factor), rtol=1e-4)
    assert np.all(np.isfinite(scores(1e3, np.zeros((4, 4)))))
    slopes = [jax.grad(lambda scale, std=std: scores(std, scale * COV).sum())(1.0) for std in (None, 0.0)]
    assert np.isfinite(slopes[0]) and float(slopes[1]) == pytest.approx(float(slopes[0]), rel=1e-5)
    np.testing.assert_allclose(scores(0.0), scores(None), rtol=1e-6)


def test_epsilon_greedy_probabilities_by_hand():
    policy = policies.epsilon_greedy(0.3)
    probabilities = probabilities_of(policy, belief())
    np.testing.assert_allclose(probabilities, [0.075, 0.775, 0.075, 0.075], rtol=1e-5)
    probabilities = probabilities_of(policy, belief(), jnp.asarray(MASK))
    np.testing.assert_allclose(probabilities, [0.1, 0, 0.1, 0.8], rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_of_equal_scores_the_first_allowed_is_played_and_its_probability_is_one(name):
    question = belief(np.zeros(4, np.float32), np.eye(4, dtype=np.float32), NOISE)
    mask = jnp.array([False, True, True, True])
    policy = MAKERS[name]()
    assert jnp.argmax(policy.score(jax.random.key(0), question, None, mask)) == 1
    np.testing.assert_array_equal(probabilities_of(policy, question, mask), [0, 1, 0, 0])


def test_settings_may_be_mapped_over():
    def share(epsilon):
        return probabilities_of(policies.epsilon_greedy(epsilon), belief())[0]

    np.testing.assert_allclose(jax.jit(jax.vmap(share))(jnp.array([0.0, 0.4, 1.0])), [0, 0.1, 0.25], atol=1e-6)
    bounds = jax.vmap(lambda w: policies.ucb(w).score(jax.random.key(0), belief(), None, None))(jnp.array([0.0, 1.0]))
    np.testing.assert_allclose(bounds[1] - bounds[0], np.sqrt(np.diag(COV)), rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: policies.epsilon_greedy(1.2), r"epsilon must lie in \[0, 1\]; got 1.2"),
        (lambda: policies.epsilon_greedy(float("nan")), "epsilon must lie"),
        (lambda: policies.ucb(-1.0), "width must .*; got -1.0"),
        (lambda: policies.thompson(propensity_samples=-1), "propensity_samples must be an integer >= 0.*; got -1"),
        (lambda: policies.predictive_sampling(propensity_samples=2.5), "propensity_samples must .*; got 2.5"),
        (lambda: policies.make("tompson"), "unknown policy 'tompson': did you mean 'thompson'"),
        (
            lambda: policies.make("x"),
            "Known: .*epistemic_sampling, .*greedy, log_expected_improvement, .*tempered_sampling, thompson, ucb",
        ),
    ],
)
def test_bad_settings_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("name", MAKERS)
def test_a_candidate_that_is_forbidden_might_as_well_not_be_there(name: str) -> None:
    policy = policies.make(name)
    mean, noise = np.array([0.3, 0.35, 0.2, 0.32], np.float32), np.diag([0.04, 0.09, 0.01, 0.16]).astype(np.float32)
    root = np.diag([0.2, 0.3, 0.01, 0.25]) + 0.01  # the third was observed most by far
    cov, allowed = (root.T @ root).astype(np.float32), np.array([0, 1, 3])
    few = belief(mean[allowed], cov[np.ix_(allowed, allowed)], noise[np.ix_(allowed, allowed)])

    @jax.jit
    @jax.vmap
    def shares(key):
        masked = probabilities_of(policy, belief(mean, cov, noise), jnp.arange(4) != 2, key)
        return masked, probabilities_of(policy, few, None, key)

    masked, expected = map(np.asarray, shares(jax.random.split(jax.random.key(0), 60)))
    assert (masked[:, 2] == 0).all()
    error = np.sqrt((masked[:, allowed].var(0) + expected.var(0)) / 60)  # 0 of policies that draw nothing
    np.testing.assert_array_less(np.abs(masked[:, allowed].mean(0) - expected.mean(0)), 5 * error + 2e-3)
