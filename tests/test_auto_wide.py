"""The default agent on contexts of many numbers, and its regression without covariances."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import seqdec
from seqdec import agents
from seqdec.agents.regression import conjugate
from seqdec.agents.regression.features import inputs_of
from seqdec.core import Environment, Spaces, TimeStep
from tests.test_agents import assert_same

N, F, STEPS = 3, 6, 40
LEVELS = 300
WIDE = Spaces(Box(-np.inf, np.inf, (LEVELS,), np.float32), Discrete(N))
LOCATION = jnp.float32(2.5)


def learned(belief, t, half_life=None):
    """After a one-hot context with the constant in every third step, and the reward of one action."""
    generator = np.random.default_rng(t)
    phi, j = jnp.eye(F)[generator.integers(F)], jnp.asarray(generator.integers(N))[None]
    y = jnp.float32(generator.normal())[None]
    belief, (_, density) = conjugate.learned(belief, phi, y, j, LOCATION, jnp.bool_(True))
    return belief if half_life is None else belief.forgotten(half_life, jnp.int32(t + 1), jnp.bool_(True)), density


@pytest.mark.parametrize("half_life", [None, 8.0])
def test_where_features_never_occur_together_it_is_the_regression(half_life):
    sides = []
    for diagonal in (False, True):
        belief, densities = conjugate.prior(N, F, diagonal=diagonal), []
        for t in range(STEPS):
            belief, density = learned(belief, t, half_life)
            densities.append(density)
        sides.append((densities, [belief.answer(phi, LOCATION) for phi in jnp.eye(F)], belief.noise))
    assert_same(*sides, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("diagonal", [False, True])
def test_what_was_not_observed_or_is_refused_changes_nothing(diagonal):
    belief = conjugate.prior(N, F, diagonal=diagonal)
    y, index = jnp.ones(1), jnp.array([1])
    same, _ = conjugate.learned(belief, jnp.full(F, jnp.nan), y, index, LOCATION, jnp.bool_(False))
    assert_same(same, belief, rtol=0)
    one, _ = conjugate.learned(belief, jnp.ones(F), y, index, LOCATION, jnp.bool_(True))
    assert_same([leaf[0::2] for leaf in jax.tree.leaves(one)], [leaf[0::2] for leaf in jax.tree.leaves(belief)], rtol=0)
    assert np.all(one.weights[1] != 0)


def test_draws_have_the_moments_of_the_belief():
    belief = conjugate.prior(N, F, diagonal=True)
    for t in range(STEPS):
        belief, _ = learned(belief, t)
    phi = jnp.ones(F).at[0].set(-2)
    normal = jax.random.normal(jax.random.key(0), (20_000, N, F))
    weights = jax.vmap(lambda numbers: belief.drawn(numbers, LOCATION))(normal)
    at, drawn = belief.answer(phi, LOCATION), np.asarray(weights @ phi)
    np.testing.assert_allclose(drawn.var(0), at.variance, rtol=0.06)
    np.testing.assert_allclose(drawn.mean(0), at.mean, atol=5 * float(jnp.sqrt(at.variance.max() / 20_000)))
    assert np.all(np.asarray(belief.noise.variance) > 0)


def test_vectors_have_a_member_without_covariances_whatever_their_unit_and_images_none():
    def of(shape):
        return inputs_of(Spaces(Box(0, 1, shape, np.float32), Discrete(N)))

    assert of((20, 20, 1)).wide is None and of((20,)).wide is None and len(of((20,)).features) == 1
    wide = of((300,)).wide
    assert wide is not None
    x = jnp.zeros(300).at[jnp.array([3, 7])].set(1.0)
    for scale in (1e-30, 1.0, 1e30):
        np.testing.assert_allclose(wide(scale * x), 3 * x / np.sqrt(2), rtol=1e-5)
    assert np.all(wide(0 * x) == 0)


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
