"""Bounds of the share of each arm."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from seqdec import agents, testing
from seqdec.core import Masked, Spaces

ARMS = Spaces(spaces.Box(-1, 1, (2,)), spaces.Discrete(4))
BOUNDS = {"floor": [0.1, 0.05], "ceiling": [1.0, 0.3, 0.4]}


def test_it_keeps_the_contract_of_agents() -> None:
    testing.check_agent(lambda where: agents.guarded(agents.linear(where, policy="greedy"), **BOUNDS), spaces=ARMS)


def test_every_law_keeps_the_bounds_and_a_law_within_them_stays() -> None:
    laws = np.random.default_rng(0).dirichlet([0.1] * 4, size=3000).astype(np.float32)
    laws[:4] = np.eye(4)
    masks = np.random.default_rng(1).random((3000, 4)) < 0.7
    masks[masks.sum(axis=1) == 0] = True
    laws = np.where(masks, laws + 1e-9, 0)
    laws /= laws.sum(axis=1, keepdims=True)
    base = agents.linear(ARMS)
    found = agents.guarded(base._replace(spaces=None, assess=lambda _, q, x: base_assessed(q)), **BOUNDS).assess
    assert found is not None
    key = jax.random.key(0)
    played = np.asarray(
        jax.jit(jax.vmap(lambda q, mask: found(key, q, Masked(jnp.zeros(2), mask)).probability))(laws, masks)
    )
    floor, ceiling = np.array([0.1, 0.05, 0, 0]) * masks, np.array([1, 0.3, 0.4, 1]) * masks
    reach = ceiling.sum(axis=1) >= 1
    np.testing.assert_allclose(played.sum(axis=1), 1, atol=2e-6)
    assert (played >= floor - 1e-6).all() and (played[reach] <= ceiling[reach] + 1e-6).all()
    assert (played[~masks] == 0).all() and reach.mean() > 0.5
    inside = reach & (laws >= floor).all(axis=1) & (laws <= ceiling).all(axis=1)
    assert inside.sum() > 50
    np.testing.assert_allclose(played[inside], laws[inside], atol=1e-5)


def base_assessed(q):
    from seqdec.core import Assessment

    return Assessment(q, q, q)


def test_arms_are_played_as_often_as_they_are_logged_within_the_bounds() -> None:
    """An agent that plays its best arm only, in contexts whose masks forbid some."""
    agent, count = agents.guarded(agents.linear(ARMS, policy="greedy"), **BOUNDS), 20_000
    rng, state = np.random.default_rng(0), agent.init(jax.random.key(0))
    masks = np.array([[1, 1, 1, 1], [1, 1, 0, 1], [0, 1, 1, 1]], bool)[rng.integers(3, size=count)]
    x = rng.choice([-0.5, 0.5], (count, 2)).astype(np.float32)
    act = jax.jit(jax.vmap(agent.act, in_axes=(0, None, 0)))
    action = act(jax.random.split(jax.random.key(1), count), state, Masked(jnp.asarray(x), jnp.asarray(masks)))
    law, played = np.asarray(action.probabilities, float), np.eye(4)[np.asarray(action.value)]
    low, high = np.array([0.1, 0.05, 0, 0]) * masks, np.array([1, 0.3, 0.4, 1]) * masks
    assert (law >= low - 1e-6).all() and (law <= high + 1e-6).all() and not played[~masks].any()
    for rows in (masks.all(axis=1), ~masks[:, 0], x[:, 0] > 0):
        error = (played - law)[rows].sum(axis=0) / np.sqrt(1 + (law * (1 - law))[rows].sum(axis=0))
        assert np.abs(error).max() < 4


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"floor": -0.1}, "floor must be a number from 0 to 1"),
        ({"floor": [0.6, 0.6]}, "no probabilities of 4 actions"),
        ({"floor": [0.5], "ceiling": [0.4]}, "no probabilities of 4 actions"),
        ({"ceiling": [[1.0]]}, "ceiling must be a number"),
        ({"floor": 0.3}, "no probabilities of 4 actions"),
        ({"floor": [0.1] * 5}, "5 bounds are given, for 4 actions"),
    ],
)
def test_bounds_that_cannot_be_kept_are_refused(bounds, message) -> None:
    with pytest.raises(ValueError, match=message):
        agents.guarded(agents.linear(ARMS), **bounds)
