"""Options of agents: those without an effect are refused, and the registry says which there are."""

import inspect
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gymnasium import spaces

from seqdec import agents, likelihoods, models
from seqdec.commands import contenders
from seqdec.core import Masked, Spaces

CONTEXT = spaces.Box(-1, 1, (4,), np.float32)
ARMS, POINTS = Spaces(CONTEXT, spaces.Discrete(3)), Spaces(CONTEXT, spaces.Box(0, 1, (2,), np.float32))
CANDIDATES = Spaces(
    spaces.Dict(video=spaces.Box(0, 6, (3,), np.int32), features=spaces.Box(-1, 1, (3, 2), np.float32)),
    spaces.Discrete(3),
)
ROWS = Spaces(spaces.Dict(video=spaces.Box(0, 6, (3,), np.int32)), spaces.Discrete(3))
UNUSED: list[tuple[str, Spaces, Mapping[str, Any]]] = [
    *((name, ARMS, {"num_candidates": 8}) for name in ("auto", "linear", "hilofi", "gp", "adamw", "ensemble", "vbll")),
    ("linear", ARMS, {"noise_variance": 0.1}),
    ("linear", ARMS, {"intercepts": False}),
    ("linear", POINTS, {"half_life": 3.0}),
    ("linear", POINTS, {"intercepts": False}),
    ("linear", CANDIDATES, {"half_life": 3.0}),
    ("linear", CANDIDATES, {"model": models.Linear()}),
    ("hilofi", ARMS, {"initial_std_table": 0.5}),
    ("lrkf", POINTS, {"initial_std_table": 0.5}),
    ("ekf", ARMS, {"likelihood": likelihoods.bernoulli(), "noise_variance": 0.5}),
    ("last_layer_laplace", ARMS, {"optimizer": optax.sgd(0.1), "learning_rate": 0.1}),
    ("random", ARMS, {"policy": "greedy"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "where", "options"), UNUSED)
def test_an_option_without_effect_is_refused_by_name(name, where, options):
    keyword = list(options)[-1]
    with pytest.raises((TypeError, ValueError), match=keyword):
        agents.make(name, where, **options)


@pytest.mark.parametrize("name", ["auto", "linear", "hilofi"])
def test_recorded_settings_build_the_agent_again(name):
    for where, options in ((ARMS, {"policy": "ucb"}), (POINTS, {"num_candidates": 9}), (ROWS, {})):
        agent = agents.make(name, where, **options)
        settings = {key: value for key, value in agent.settings.items() if isinstance(value, int | float | str)}
        assert options.items() <= settings.items()
        assert agents.make(name, where, **settings).settings == agent.settings


def test_random_play_is_uniform_over_the_allowed_actions_and_fills_a_box():
    agent, keys = agents.random(CANDIDATES), jax.random.split(jax.random.key(0), 600)
    seen = Masked(jax.tree.map(jnp.zeros_like, CANDIDATES.observation_space.sample()), jnp.arange(3) > 0)
    action = jax.jit(jax.vmap(lambda key: agent.act(key, (), seen)))(keys)
    assert set(np.unique(action.value)) == {1, 2}
    np.testing.assert_allclose(action.propensity, 1 / 2, rtol=1e-6)
    assert abs(np.mean(action.value == 1) - 0.5) < 6 * 0.5 / np.sqrt(600)
    agent = agents.random(POINTS)
    points = jax.jit(jax.vmap(lambda key: agent.act(key, (), jnp.zeros(4)).value))(keys)
    np.testing.assert_allclose([points.mean(0), points.min(0), points.max(0)], [[0.5] * 2, [0] * 2, [1] * 2], atol=0.05)


@pytest.mark.parametrize("name", agents.names())
def test_capabilities_are_those_of_the_factory(name):
    own, keywords = agents.capabilities(name), set(inspect.signature(inspect.unwrap(agents.REGISTRY[name])).parameters)
    if name == "linear":  # those of a filter are for candidates and Box actions only
        keywords &= {"policy", "half_life"}
    many = "options" in keywords  # passed on
    for keyword in ("policy", "model", "learning_rate"):
        assert keyword in keywords or many or not getattr(own, keyword), keyword
        assert getattr(own, keyword) or keyword not in keywords, keyword
    assert own.rehearses == ("rehearsal" in keywords)
    assert (own.kind == "filter") == ({"likelihood", "noise_variance"} <= keywords)
    assert {own.rank} - {None} == keywords & {"rank", "rank_hidden"}
    assert set(own.process_noise) == {keyword for keyword in keywords if keyword.startswith("process_noise")}
    assert own.spaces <= {"contexts", "points", "features", "ids", "sparse"}


def test_contenders_follow_the_capabilities():
    assert [name for name in agents.names() if contenders.has_filter(name)] == [
        "ekf", "hilofi", "lofi", "lolofi", "lrkf", "subspace",
    ]  # fmt: skip
    assert contenders.filter_settings("lolofi", {}, rank=3, process_noise=0.1) == {
        "standardize": False, "rank_hidden": 3, "process_noise_hidden": 0.1,
    }  # fmt: skip
    assert contenders.filter_settings("ekf", {}, rank=3, process_noise=None) == {"standardize": False}
    with pytest.raises(ValueError, match="random has no policy"):
        contenders.split("random+greedy", agents.names())
    with pytest.raises(ValueError, match="did you mean 'hilofi'"):
        agents.capabilities("hilofy")
