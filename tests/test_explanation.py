"""`OnlineAgent.explain`, and `Agent.assess`, which it is made of."""

import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from gymnasium import spaces

import seqdec
from seqdec.core import Spaces
from seqdec.features import Categorical, Encoder, Numeric

SITE = Spaces(spaces.Box(-np.inf, np.inf, (3,)), spaces.Discrete(3))
ITEMS = Spaces(spaces.Dict({"features": spaces.Box(-1, 1, (4, 2))}), spaces.Discrete(4))
DOSE = Spaces(spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (1,)))
VISITORS = np.random.default_rng(0).normal(1, 1, (40, 3))


def played(make: Any, spaces: Spaces = SITE, contexts: Any = VISITORS, **options: Any) -> seqdec.OnlineAgent:
    service = seqdec.OnlineAgent(make, spaces, seed=0, **options)
    decisions = service.decide_many(contexts)
    service.learn_many((d.token, float(np.ravel(x)[d.action])) for d, x in zip(decisions, contexts, strict=True))
    return service


@pytest.fixture(scope="module")
def linear() -> seqdec.OnlineAgent:
    return played("linear")


def test_a_linear_agent_is_explained_by_its_coefficients(linear):
    """A feature moves the mean by what taking it back to its mean changes."""
    context, middle = VISITORS[3], VISITORS.mean(0)
    found = linear.explain(context)
    assert found.columns == ("context_0", "context_1", "context_2")
    np.testing.assert_allclose(found.values, context, rtol=1e-6)
    np.testing.assert_allclose(found.baseline, linear.explain(middle).mean, atol=1e-5)
    np.testing.assert_allclose(found.contributions.sum(1), found.mean - found.baseline, atol=1e-5)
    for place in range(3):
        back = np.where(np.arange(3) == place, middle, context)
        np.testing.assert_allclose(found.contributions[:, place], found.mean - linear.explain(back).mean, atol=1e-5)


def test_what_is_cut_off_moves_the_mean_up_to_there_and_changes_no_other(linear):
    middle = VISITORS.mean(0)
    found, usual = linear.explain([1000.0, 2, 1]), linear.explain([middle[0], 2, 1])
    np.testing.assert_allclose(found.contributions.sum(1), found.mean - found.baseline, atol=1e-4)
    np.testing.assert_allclose(found.contributions[:, 1:], usual.contributions[:, 1:], atol=1e-4)


def test_the_probability_is_the_propensity_of_a_decision(linear):
    for context in VISITORS[:3]:
        decision = linear.decide(context)
        assert linear.explain(context).probability[decision.action] == pytest.approx(decision.propensity, abs=0.01)


def test_nothing_is_logged_or_changed():
    asked, other = played("linear"), played("linear")
    counts, state = asked.counts, asked.state
    asked.explain(VISITORS[0], mask=np.array([True, False, True]))
    assert asked.counts == counts
    jax.tree.map(np.testing.assert_array_equal, asked.state, state)
    ours, theirs = ([d[:2] for d in service.decide_many(VISITORS[:9])] for service in (asked, other))
    assert ours == theirs


def test_others_decide_meanwhile(linear, monkeypatch):
    """Compiling the program takes seconds."""
    explained = linear._learner.model.explained

    def slow(*arguments: Any) -> Any:
        thread = threading.Thread(target=linear.decide, args=(VISITORS[0],))
        thread.start()
        thread.join(30)
        assert not thread.is_alive()
        return explained(*arguments)

    monkeypatch.setattr(linear._learner.model, "explained", slow)
    linear.explain(VISITORS[0])


@pytest.mark.parametrize("name", ["adamw", "random", pytest.param("hilofi", marks=pytest.mark.extended)])
def test_networks_add_up_too(name):
    found = played(name).explain(VISITORS[3])
    assert found.probability.sum() == pytest.approx(1, abs=1e-4)
    assert np.isnan(found.mean).all() == (name == "random")
    assert np.isnan(found.deviation).all() == (name in ("random", "adamw"))
    assert len(found.columns) == (0 if name == "random" else 3)
    if name != "random":
        np.testing.assert_allclose(found.contributions.sum(1), found.mean - found.baseline, atol=0.01)
        assert np.abs(found.contributions).max() > 0.05
    assert "nan" not in repr(found)


def test_the_features_of_a_column_count_together():
    encoder = Encoder({"age": Numeric(40, 12), "city": Categorical(("Oslo", "Rome")), "mean": Numeric(0, 1)})
    rows = [{"age": age, "city": city, "mean": 0} for age in (20, 40, 60) for city in ("Oslo", "Rome", None)]
    service = seqdec.OnlineAgent("linear", Spaces(encoder.space, spaces.Discrete(2)), seed=0, encoder=encoder)
    for decision, row in zip(service.decide_many(rows), rows, strict=True):
        service.learn(decision.token, float((row["city"] == "Rome") == decision.action))
    found = service.explain({"age": 31, "city": "Rome"})
    assert found.columns == ("age", "city", "mean")
    assert found.values == (31, "Rome", None)
    assert "city missing" in repr(service.explain({"age": 31}))
    np.testing.assert_allclose(found.contributions.sum(1), found.mean - found.baseline, atol=1e-5)
    table = found.to_pandas()
    assert list(table) == ["action", "mean", "deviation", "probability", "baseline", "age", "city", "contribution mean"]
    assert "city Rome" in repr(found) and "<table" in found._repr_html_()


def test_arms_that_are_removed_or_not_allowed():
    service = played("linear")
    new = service.add_arm()
    service.remove_arm(0)
    found = service.explain(VISITORS[0], mask=np.array([True, False, True, True]))
    assert found.actions == (1, 2, new)
    assert found.probability[0] == 0 and found.probability.sum() == pytest.approx(1, abs=1e-4)
    with pytest.raises(ValueError, match="must allow at least one"):
        service.explain(VISITORS[0], mask=np.zeros(4, bool))


NUMBER = Spaces(spaces.Discrete(5), spaces.Discrete(3))


@pytest.mark.parametrize(
    ("site", "context"), [(ITEMS, {"features": np.full((4, 2), 0.5)}), (NUMBER, 2)], ids=["candidates", "a number"]
)
def test_contexts_that_are_not_floats_have_no_contributions(site, context):
    found = seqdec.OnlineAgent("linear", site, seed=0).explain(context)
    assert len(found.mean) == site.action_space.n and found.columns == () and found.contributions.shape[1] == 0
    assert found.probability.sum() == pytest.approx(1, abs=1e-4)


def test_points_of_a_box_and_agents_without_assess_are_refused():
    with pytest.raises(TypeError, match="its actions are points of a Box"):
        seqdec.OnlineAgent("linear", DOSE, seed=0).explain([0.0, 0, 0])
    own: Callable[[Any], Any] = lambda site: seqdec.agents.linear(site)._replace(assess=None)  # noqa: E731
    with pytest.raises(TypeError, match="it has no `assess`"):
        seqdec.OnlineAgent(own, SITE, seed=0).explain([0.0, 0, 0])


@pytest.mark.parametrize("policy", ["epistemic_sampling", "epsilon_greedy", "thompson"])
def test_a_decision_has_the_probabilities_that_its_policy_computes(policy):
    service = played(lambda site: seqdec.agents.linear(site, policy=policy), capacity=4)
    new = service.add_arm()
    service.remove_arm(0)
    mask = np.array([True, True, False, True])
    decisions = [service.decide(VISITORS[0], mask), *service.decide_many(VISITORS[:3], np.stack([mask] * 3))]
    for decision in decisions:
        assert decision.probabilities is not None and len(decision.probabilities) == new + 1
        assert decision.probabilities[0] == decision.probabilities[2] == 0
        assert sum(decision.probabilities) == pytest.approx(1, abs=1e-5)
        assert decision.probabilities[decision.action] == decision.propensity


def test_a_decision_has_no_probabilities_that_are_unknown_or_many():
    unknown = seqdec.policies.thompson(propensity_samples=0)
    service = seqdec.OnlineAgent(lambda site: seqdec.agents.linear(site, policy=unknown), SITE, seed=0)
    assert service.decide(VISITORS[0]).probabilities is None
    many = Spaces(SITE.observation_space, spaces.Discrete(300))
    assert seqdec.OnlineAgent("random", many, seed=0).decide(VISITORS[0]).probabilities is None
    point = seqdec.OnlineAgent(lambda site: seqdec.agents.linear(site, policy="thompson"), DOSE, seed=0).decide(
        [0.0] * 3
    )
    assert point.probabilities is None and point.action.shape == (1,)
