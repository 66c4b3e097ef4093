"""The default agent on contexts of many numbers, and its regression without covariances."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import seqdec
from seqdec import agents
from seqdec.agents._filtering import choices_for
from seqdec.agents._neural.experience import Experience, recorder
from seqdec.agents.regression import diagonal, nig, noise
from seqdec.agents.regression.members import parts_of
from seqdec.core import Environment, Spaces, TimeStep
from tests.test_agents import assert_same

N, F, STEPS = 3, 6, 40
LEVELS = 300
WIDE = Spaces(Box(-np.inf, np.inf, (LEVELS,), np.float32), Discrete(N))
LOCATION = jnp.float32(2.5)


def experience(t):
    """A one-hot context with the constant in every third step, and the reward of one action."""
    generator = np.random.default_rng(t)
    phi = np.eye(F)[generator.integers(F)]
    played = np.arange(N) == generator.integers(N)
    return Experience(
        jnp.asarray(phi, jnp.float32), jnp.asarray(played * generator.normal(), jnp.float32), jnp.asarray(played)
    )


@pytest.mark.parametrize("half_life", [None, 8.0])
def test_where_features_never_occur_together_it_is_the_regression(half_life):
    sides = []
    for form in (nig, diagonal):

        @jax.jit
        def step(belief, row, count, form=form):
            belief, density = form.learn(belief, row.x, row, LOCATION, True, jnp.bool_(True))
            if half_life is not None:
                belief = form.forgotten(belief, half_life, count, jnp.bool_(True))
            return belief, density

        belief, densities = form.prior(N, F), []
        for t in range(STEPS):
            belief, density = step(belief, experience(t), jnp.int32(t + 1))
            densities.append(density)
        answers = [form.answer(belief, jnp.eye(F)[i], LOCATION) for i in range(F)]
        sides.append((densities, answers, belief.noise))
    assert_same(*sides, rtol=1e-4, atol=1e-5)


def test_what_was_not_observed_or_is_refused_changes_nothing():
    belief, row = diagonal.prior(N, F), experience(0)
    same, density = diagonal.learn(belief, jnp.full(F, jnp.nan), row, LOCATION, True, jnp.bool_(False))
    assert_same(same, belief, rtol=0)
    assert density == 0
    one, _ = diagonal.learn(belief, jnp.ones(F), row, LOCATION, False, jnp.bool_(True))
    others = np.flatnonzero(~np.asarray(row.observed))
    assert np.all(one.variances[others] == 1) and np.all(one.weights[others] == 0)


def test_draws_have_the_moments_of_the_belief():
    belief = diagonal.prior(N, F)
    step = jax.jit(lambda belief, row: diagonal.learn(belief, row.x, row, LOCATION, True, jnp.bool_(True))[0])
    for t in range(STEPS):
        belief = step(belief, experience(t))
    phi = jnp.ones(F).at[0].set(-2)
    weights = jax.vmap(lambda key: diagonal.drawn(key, belief, LOCATION))(jax.random.split(jax.random.key(0), 20_000))
    at, drawn = diagonal.answer(belief, phi, LOCATION), np.asarray(weights @ phi)
    np.testing.assert_allclose(drawn.var(0), at.variance, rtol=0.06)
    np.testing.assert_allclose(drawn.mean(0), at.mean, atol=5 * float(jnp.sqrt(at.variance.max() / 20_000)))
    assert np.all(np.asarray(noise.variance(belief.noise)) > 0)


def test_an_action_that_was_never_played_has_the_mean_of_all_rewards():
    phi = jnp.ones(F).at[-1].set(nig.CONSTANT)
    at = diagonal.answer(diagonal.prior(N, F), phi, LOCATION)
    np.testing.assert_allclose(at.mean, np.full(N, LOCATION), rtol=1e-6)


def views(shape):
    spaces = Spaces(Box(0, 1, shape, np.float32), Discrete(N))
    return parts_of(spaces, None, recorder(choices_for(spaces), spaces).example.x, None)


def test_vectors_have_a_member_without_covariances_whatever_their_unit_and_images_none():
    wide, image, few = (len(views(shape).groups) for shape in ((300,), (20, 20, 1), (20,)))
    assert (wide, image, few) == (2, 1, 3)
    features = views((300,)).groups[0].features
    x = jnp.zeros(300).at[jnp.array([3, 7])].set(1.0)
    for scale in (1e-30, 1.0, 1e30):
        z = features(None, scale * x)
        np.testing.assert_allclose(z, 3 * x / np.sqrt(2), rtol=1e-5)
    assert np.all(features(None, 0 * x) == 0)


@pytest.mark.extended
def test_a_category_of_many_levels_is_learned():
    """Four seeds. Each level has a best action of its own."""
    best = jax.random.randint(jax.random.key(9), (LEVELS,), 0, N)

    def reset(key, params):
        level = jax.random.randint(key, (), 0, 40)
        return level, jax.nn.one_hot(level, LEVELS)

    def step(key, level, action, params):
        paid, shown = jax.random.split(key)
        right = (best[level] == action).astype(float)
        fresh, x = reset(shown, params)
        return fresh, TimeStep(x, right + 0.1 * jax.random.normal(paid), 1 - right, jnp.array(False))

    env = Environment(reset, step, (), *WIDE, "levels")
    run = seqdec.run(agents.auto(env, capacity=500), env, 800, seed=0, num_seeds=4, progress=False)
    late = run.regret[:, -200:].mean(1)
    assert np.all(late < 0.1), late  # uniform play: 2 / 3
