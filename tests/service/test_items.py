"""Catalogs of `OnlineAgent`: items that come and go, decisions among them, and a log that restores all of it."""

import shutil
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import seqdec
from seqdec.core import Action, Agent, HasSpaces, Masked
from seqdec.service import Catalog, read_history, read_log
from seqdec.service.items import ROWS, size_of, sizes

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "benchmarks")]

import online_exceptions as exceptions  # noqa: E402  # pyright: ignore[reportMissingImports]

SHOP = Catalog(spaces.Box(-5, 5, (2,)), spaces.Box(-5, 5, (1,)))
ITEMS: dict[Any, Any] = {"lamp": [1.0, 0.0], "chair": [0.0, 1.0], 7: [0.5, 0.5]}


def rows(site: HasSpaces) -> Agent:
    """One linear model of all rows, by gradient descent; it plays the best or, once in ten times, any of them."""
    sizes = {name: part.shape[1] for name, part in site.observation_space.items()}  # pyright: ignore
    count, width = int(site.action_space.n), sum(sizes.values())  # pyright: ignore[reportAttributeAccessIssue]

    def joined(x: Any) -> Any:
        return jnp.concatenate([x[name] for name in sorted(sizes)], axis=1)

    def act(key: Any, state: Any, masked: Masked) -> Action:
        x, mask = masked
        scores, explore = jnp.where(mask, joined(x) @ state, -jnp.inf), jax.random.bernoulli(key, 0.1)
        noise = jnp.where(mask, jax.random.uniform(key, (count,)), -jnp.inf)
        index = jnp.where(explore, jnp.argmax(noise), jnp.argmax(scores))
        return Action(index, 0.1 / jnp.sum(mask) + 0.9 * (index == jnp.argmax(scores)))

    def update(state: Any, x: Any, action: Any, reward: Any) -> tuple[Any, Any]:
        row = joined(x)[action]
        good = jnp.isfinite(reward)
        return state + jnp.where(good, 0.3 * (reward - row @ state) * row, 0), exceptions.Info(~good)

    return Agent(lambda key: jnp.zeros(width), act, update, "rows", True, {})


def service(folder: Path | None = None, make: Any = rows, site: Any = SHOP, **options: Any) -> seqdec.OnlineAgent:
    return seqdec.OnlineAgent(make, site, **{"seed": 0, "folder": folder, **options})


def busy(one: seqdec.OnlineAgent, steps: int = 30, **options: Any) -> list[seqdec.service.Decision]:
    """Decisions whose reward is 1 for an item whose first number is large; half of the rewards come late."""
    decisions = [one.decide([float(step % 2)], **options) for step in range(steps)]
    worth: dict[Any, float] = {
        name: one._actions.inventory.features[number][0].item()
        for name, number in one._actions.inventory.numbers.items()
    }
    for decision in decisions[::2] + decisions[1::2]:
        assert one.learn(decision.token, worth[decision.action]) == "learned"
    return decisions


def test_the_state_is_that_of_the_log_after_a_kill(tmp_path: Path) -> None:
    with service(tmp_path / "log", snapshot_every=7) as one:
        one.add_items(ITEMS)
        late = busy(one)[0]
        waiting = one.decide([1.0], items=["chair"])
        one.remove_items(["chair"])
        one.add_items({"lamp": [0.2, 0.0], "desk": [2.0, -1.0]})
        busy(one, 5)
        expected, items, decisions = exceptions.bits(one), one.items, one.counts["decisions"]
        shutil.copytree(tmp_path / "log", tmp_path / "killed")
        shutil.copytree(tmp_path / "log", tmp_path / "bare", ignore=shutil.ignore_patterns("state*"))
        assert one.learn(waiting.token, 1.0) == "learned"  # of an item that is gone
        after = exceptions.bits(one)
        answer = one.decide([0.5])
    for kept in ("killed", "bare"):
        with service(tmp_path / kept, snapshot_every=7) as again:
            assert exceptions.bits(again) == expected and again.counts["decisions"] == decisions
            assert again.items == items == (7, "lamp", "desk")
            assert again.learn(late.token, 1.0) == "repeated"
            assert again.learn(waiting.token, 1.0) == "learned" and exceptions.bits(again) == after
            assert again.decide([0.5])[:2] == answer[:2]
            with pytest.raises(ValueError, match=r"no item 'chair' \(1 of 2 are unknown or removed\)"):
                again.decide([0.0], items=["chair", "lamp"])
            np.testing.assert_array_equal(
                again._actions.inventory.features[again._actions.inventory.numbers["lamp"]],
                np.array([0.2, 0], np.float32),
            )


def test_an_item_is_added_learned_and_removed() -> None:
    with service() as one:
        with pytest.raises(ValueError, match="the catalog is empty"):
            one.decide([0.0])
        one.add_items(ITEMS)
        busy(one, 60)
        before = exceptions.bits(one)
        one.add_items({"floodlight": [3.0, 0.0]})  # better, by what was learned of others
        assert exceptions.bits(one) == before
        played = [decision.action for decision in one.decide_many(np.zeros((30, 1)))]
        assert played.count("floodlight") > 20
        one.remove_items(["floodlight"])
        assert "floodlight" not in {decision.action for decision in one.decide_many(np.zeros((60, 1)))}
        many = one.decide_many(np.zeros((4, 1)), items=[["chair"], None, [7], {"chair"}])
        assert [many[place].action for place in (0, 2, 3)] == ["chair", 7, "chair"]
        one.remove_items(list(one.items))
        assert one.items == ()
        one.add_items({"stool": [0, 0]})
        assert one.decide([0.0])[:2] == ("stool", pytest.approx(1.0))


def test_the_log_says_what_was_offered(tmp_path: Path) -> None:
    with service(tmp_path) as one:
        one.add_items(ITEMS)
        first = one.decide([0.25], items=["lamp", 7])
        one.add_items({"lamp": [4.0, 4.0]})
        second = one.decide([9.0])  # beyond the bounds
        assert one.counts["clipped"] == 1
        for decision in (first, second):
            one.learn(decision.token, 1.0)
        own = one.log()
        history = read_history(tmp_path)
    for log in (own, read_log(tmp_path)):
        assert log.action_names == ("lamp#0", "chair", "7", "lamp#3")
        assert log.mask.tolist() == [[True, False, True, False], [False, True, True, True]]
        assert log.context.ravel().tolist() == [0.25, 5.0] and log.action_features is not None
        np.testing.assert_array_equal(log.action_features[1], [[1, 0], [0, 1], [0.5, 0.5], [4, 4]])
        assert log.propensity.tolist() == pytest.approx([first.propensity, second.propensity])
        uniform = log.mask / log.mask.sum(1, keepdims=True)
        with pytest.warns(UserWarning, match="supports only a part"):  # two rows
            assert len(seqdec.ope.evaluate(log, uniform, seed=0))
    assert history["action"].tolist() == [first.action, second.action]
    assert history["user_0"].tolist() == [0.25, 5.0]
    assert own.action_features is not None
    chosen = own.action_features[[0, 1], own.action]
    assert history[["item_0", "item_1"]].to_numpy().tolist() == chosen.tolist()


def test_what_is_refused_changes_nothing(tmp_path: Path) -> None:
    with service(tmp_path) as one:
        one.add_items(ITEMS)
        before = one.items, one.counts
        for wrong, error, message in (
            ({"a": [1.0]}, ValueError, r"the features of item 'a' must have shape \(2,\).*got shape \(1,\)"),
            ({"a": [1.0, 2.0], "b": [np.nan, 0.0]}, ValueError, "the features of item 'b' must hold finite numbers"),
            ({True: [1.0, 2.0]}, TypeError, "the id of an item must be a text or an integer; got True"),
            ([("a", [1.0, 2.0])], TypeError, "items must be a dict of features by id"),
        ):
            with pytest.raises(error, match=message):
                one.add_items(wrong)  # pyright: ignore[reportArgumentType]
        for arguments, options, error, message in (
            (([0.0, 1.0],), {}, ValueError, r"the context must have shape \(1,\)"),
            (([np.inf],), {}, ValueError, "the context must hold finite numbers"),
            (([0.0], np.ones(3, bool)), {}, TypeError, r"say with items=\[...\]"),
            (([0.0],), {"items": []}, ValueError, "items is empty"),
            (([0.0],), {"items": "lamp"}, TypeError, "items must be a list of ids; got 'lamp'"),
            (([0.0],), {"items": [["lamp"]]}, TypeError, "ids of items are texts or integers"),
            (([0.0],), {"items": ["sofa"]}, ValueError, "no item 'sofa'"),
        ):
            with pytest.raises(error, match=message):
                one.decide(*arguments, **options)
        for ids in (["sofa"], ["lamp", "sofa"]):
            with pytest.raises(ValueError, match="no item 'sofa'"):
                one.remove_items(ids)
        with pytest.raises(ValueError, match="one list of ids for each of 2 contexts; got 1"):
            one.decide_many(np.zeros((2, 1)), items=[["lamp"]])
        for call in (one.add_arm, lambda: one.remove_arm(0)):
            with pytest.raises(TypeError, match="use add_items and remove_items"):
                call()
        with pytest.raises(TypeError, match="has no `assess`"):
            one.explain([0.0])
        assert (one.items, one.counts) == before and one.arms == ()
    with pytest.raises(ValueError, match=r"in the action space \(0: a Box, or a catalog\) is 0, not \d$"):
        service(tmp_path, site=SHOP.spaces(1))
    with pytest.raises(ValueError, match=r"whose record of a context .* is"):
        service(tmp_path, site=Catalog(SHOP.item))
    with pytest.raises(TypeError, match="user of a Catalog must be a Box of floats with one axis"):
        service(site=Catalog(SHOP.item, spaces.Discrete(3)))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="capacity=5 is of arms"):
        service(capacity=5)
    with service(make=exceptions.means) as other:
        other.add_items(ITEMS)
        with pytest.raises(TypeError, match="its state depends on the number of candidates"):
            other.decide([0.0])
    with service(site=exceptions.SITE, make=exceptions.means) as arms, pytest.raises(TypeError, match="need a catalog"):
        arms.decide(exceptions.X[0], items=["lamp"])


def test_a_slate_has_different_items(tmp_path: Path) -> None:
    with service(tmp_path / "log") as one:
        one.add_items({**ITEMS, "desk": [2.0, -1.0]})
        slate = one.decide_slate(3, [0.0], items=["lamp", "chair", "desk"])
        assert {decision.action for decision in slate} == {"lamp", "chair", "desk"}
        assert slate[2].propensity == pytest.approx(1.0) and min(decision.propensity for decision in slate) > 0
        assert one.learn_many([(decision.token, 1.0) for decision in slate]) == ["learned"] * 3
        log = one.log()
        assert log.mask.sum(1).tolist() == [3, 2, 1]
        assert not log.mask[1, log.action[0]] and not log.mask[2, log.action[:2]].any()
        before = one.counts
        with pytest.raises(ValueError, match="count=5 different items cannot be chosen from 4"):
            one.decide_slate(5, [0.0])
        with pytest.raises(ValueError, match="count must be"):
            one.decide_slate(0, [0.0])
        assert one.counts == before
        shutil.copytree(tmp_path / "log", tmp_path / "killed")
        with service(tmp_path / "killed") as again:
            assert exceptions.bits(again) == exceptions.bits(one)
    with service(make=exceptions.means, site=exceptions.SITE) as arms, pytest.raises(TypeError, match="need a catalog"):
        arms.decide_slate(2, exceptions.X[0])


def test_the_rows_beside_the_chosen_one_are_drawn_for_each_decision() -> None:
    with service() as one:
        one.add_items({number: [number / 25, 0.0] for number in range(100)})
        one.decide_many(np.zeros((4, 1)))
        packed = [context for (context,) in one._store.database.execute("SELECT context FROM decisions")]
        others = one._actions._contexts.unpack(packed)["item"][:, 1:, 0]
        assert len({tuple(row) for row in others.tolist()}) == 4


def test_sizes_of_programs() -> None:
    for count in (0, 1, 16, 17, 100, 5000, 20_000):
        found = sizes(count)
        assert found == sorted(found) and count <= found[-1] <= max(32, 1.25 * count) and len(found) < 8
        assert size_of(count, count) == found[-1] and size_of(1, count) == 16
    assert sizes(20_000) == [16, 64, 256, 1024, 4096, 16384, 20480]


def test_a_catalog_that_grows_compiles_before_it_needs_to() -> None:
    made: list[int] = []

    def make(site: HasSpaces) -> Agent:
        made.append(int(site.action_space.n))  # pyright: ignore[reportAttributeAccessIssue]
        return rows(site)

    with service(make=make) as one:
        one.add_items(ITEMS)
        assert made == [ROWS]
        one.warm_up()
        assert made == [ROWS, 16]
        one.add_items({number: [0, 0] for number in range(40)})
        assert made == [ROWS, 16, 48]
        compiled = len(made)
        busy(one, 3)
        busy(one, 3, items=[1, 2, 3])
        assert len(made) == compiled


@pytest.mark.extended
def test_auto_learns_a_catalog(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    items = {str(number): row for number, row in enumerate(generator.normal(size=(12, 2)))}
    best = max(items, key=lambda name: items[name][0])
    played = []
    with service(tmp_path, "auto") as one:
        one.add_items(items)
        for _ in range(40):
            decision = one.decide(generator.normal(size=1))
            assert 0 < decision.propensity <= 1
            one.learn(decision.token, 2 * items[decision.action][0] + 0.1 * generator.normal())
            played.append(decision.action)
        assert played[20:].count(best) > 15
        one.add_items({"new": [items[best][0] + 1, 0.0]})
        assert one.decide([0.0]).action == "new"
        expected = exceptions.bits(one)
    with service(tmp_path, "auto") as again:
        assert exceptions.bits(again) == expected
