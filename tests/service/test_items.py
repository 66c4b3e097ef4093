"""Catalogs of `OnlineAgent`: items that come and go, decisions among them, and a log that restores all of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import seqdec
from seqdec.core import Agent, HasSpaces
from seqdec.service import Catalog, Decision, read_history, read_log, store
from seqdec.service.database import checksum
from seqdec.service.items import ROWS, size_of, sizes
from tests.service.services import X, bits, copied, killed, service, shop, small

NUMBERS = Catalog(spaces.Box(-5, 5, (2,)))
VISITED = Catalog(NUMBERS.item, spaces.Box(-5, 5, (1,)))
ITEMS: dict[Any, Any] = {"lamp": [1.0, 0.0], "chair": [0.0, 1.0], 7: [0.5, 0.5]}


def stocked(
    folder: Path | None = None, site: Catalog = VISITED, items: Any = ITEMS, **options: Any
) -> seqdec.OnlineAgent:
    one = service(folder, shop, site, **options)
    if not one.items:
        one.add_items(items)
    return one


def inventory(one: seqdec.OnlineAgent) -> dict[Any, list[float]]:
    known = one._actions.inventory  # pyright: ignore[reportAttributeAccessIssue]
    return {name: known.features[number].tolist() for name, number in known.numbers.items()}


def busy(one: seqdec.OnlineAgent, steps: int = 12, **options: Any) -> list[Decision]:
    """Decisions whose reward is 1 for an item whose first number is large; half of the rewards come late."""
    decisions, worth = [one.decide([float(step % 2)], **options) for step in range(steps)], inventory(one)
    for decision in decisions[::2] + decisions[1::2]:
        assert one.learn(decision.token, worth[decision.action][0]) == "learned"
    return decisions


def test_items_that_changed_are_those_of_the_log_after_a_kill(tmp_path: Path) -> None:
    with stocked(tmp_path / "log", snapshot_every=7) as one:
        late = busy(one)[0]
        waiting = one.decide([1.0], items=["chair"])
        one.remove_items(["chair"])
        one.add_items({"lamp": [0.25, 0.0], "desk": [2.0, -1.0]})
        busy(one, 5)
        expected, known = bits(one), inventory(one)
        kept = killed(tmp_path / "log", tmp_path / "killed"), copied(tmp_path / "log", tmp_path / "bare")
        assert one.learn(waiting.token, 1.0) == "learned"  # of an item that is gone
        after, answer = bits(one), one.decide([0.5])
    for folder in kept:
        with stocked(folder, snapshot_every=7) as again:
            assert bits(again) == expected
            assert inventory(again) == known == {7: [0.5, 0.5], "lamp": [0.25, 0.0], "desk": [2.0, -1.0]}
            assert again.learn(late.token, 1.0) == "repeated"
            assert again.learn(waiting.token, 1.0) == "learned" and bits(again) == after
            assert again.decide([0.5])[:2] == answer[:2]
            with pytest.raises(ValueError, match=r"no item 'chair' \(1 of 2 are unknown or removed\)"):
                again.decide([0.0], items=["chair", "lamp"])


def test_an_item_is_added_learned_and_removed() -> None:
    with service(make=shop, site=VISITED) as one:
        with pytest.raises(ValueError, match="the catalog is empty"):
            one.decide([0.0])
        one.add_items(ITEMS)
        busy(one, 40)
        before = bits(one)
        one.add_items({"floodlight": [3.0, 0.0]})  # better, by what was learned of others
        assert bits(one) == before
        played = [decision.action for decision in one.decide_many(np.zeros((30, 1)))]
        assert played.count("floodlight") > 15
        one.remove_items(["floodlight"])
        assert "floodlight" not in {decision.action for decision in one.decide_many(np.zeros((40, 1)))}
        many = one.decide_many(np.zeros((4, 1)), items=[["chair"], None, [7], {"chair"}])
        assert [many[place].action for place in (0, 2, 3)] == ["chair", 7, "chair"]
        one.remove_items(list(one.items))
        assert one.items == ()
        one.add_items({"stool": [0, 0]})
        assert one.decide([0.0])[:2] == ("stool", pytest.approx(1.0))


def test_the_log_says_what_was_offered(tmp_path: Path) -> None:
    with stocked(tmp_path) as one:
        first = one.decide([0.25], items=["lamp", 7])
        one.add_items({"lamp": [4.0, 4.0]})
        decisions = [first, *one.decide_many([[0.5], [9.0]])]  # the last one beyond the bounds
        assert one.counts["clipped"] == 1
        for decision in decisions:
            one.learn(decision.token, 1.0)
        own, history = one.log(), read_history(tmp_path)
    for log in (own, read_log(tmp_path)):
        assert log.action_names == ("lamp#0", "chair", "7", "lamp#3")
        assert log.mask.tolist() == [[True, False, True, False], *[[False, True, True, True]] * 2]
        assert log.context.ravel().tolist() == [0.25, 0.5, 5.0] and log.action_features is not None
        np.testing.assert_array_equal(log.action_features[1], [[1, 0], [0, 1], [0.5, 0.5], [4, 4]])
        assert log.propensity.tolist() == pytest.approx([decision.propensity for decision in decisions])
    assert history["action"].tolist() == [decision.action for decision in decisions]
    assert history["user_0"].tolist() == [0.25, 0.5, 5.0]
    chosen = own.action_features[[0, 1, 2], own.action]  # pyright: ignore[reportOptionalSubscript]
    assert history[["item_0", "item_1"]].to_numpy().tolist() == chosen.tolist()


def test_what_is_refused_changes_nothing(tmp_path: Path) -> None:
    with stocked(tmp_path) as one, service() as arms:
        before = one.items, one.counts
        for wrong, error, message in (
            ({"a": [1.0]}, ValueError, r"the features of item 'a' must have shape \(2,\).*got shape \(1,\)"),
            ({"a": [1.0, 2.0], "b": [np.nan, 0.0]}, ValueError, "the features of item 'b' must hold finite numbers"),
            ({True: [1.0, 2.0]}, TypeError, "the id of an item must be a text or an integer; got True"),
            ([("a", [1.0, 2.0])], TypeError, "items must be a dict of features by id"),
            ({"7": [1.0, 2.0]}, ValueError, "the catalog has an item 7, which as text is '7' too"),
        ):
            with pytest.raises(error, match=message):
                one.add_items(wrong)  # pyright: ignore[reportArgumentType]
        for call, error, message in (
            (lambda: one.decide([0.0, 1.0]), ValueError, r"the context must have shape \(1,\)"),
            (lambda: one.decide([np.inf]), ValueError, "the context must hold finite numbers"),
            (lambda: one.decide([0.0], np.ones(3, bool)), TypeError, r"say with items=\[...\]"),
            (lambda: one.decide([0.0], items=[]), ValueError, "items is empty"),
            (lambda: one.decide([0.0], items="lamp"), TypeError, "items must be a list of ids; got 'lamp'"),
            (lambda: one.decide([0.0], items=[["lamp"]]), TypeError, "ids of items are texts or integers"),  # pyright: ignore
            (lambda: one.decide([0.0], items=["sofa"]), ValueError, "no item 'sofa'"),
            (lambda: one.explain([0.0], items=["sofa"]), ValueError, "no item 'sofa'"),
            (lambda: one.remove_items(["lamp", "sofa"]), ValueError, "no item 'sofa'"),
            (lambda: one.decide_many(np.zeros((2, 1)), items=[["lamp"]]), ValueError, "for each of 2 contexts; got 1"),
            (lambda: one.decide_slate(4, [0.0]), ValueError, "count=4 different items cannot be chosen from 3"),
            (lambda: one.decide_slate(0, [0.0]), ValueError, "count must be"),
            (one.add_arm, TypeError, "use add_items and remove_items"),
            (lambda: one.remove_arm(0), TypeError, "use add_items and remove_items"),
            (lambda: arms.decide(X[0], items=["lamp"]), TypeError, "need a catalog"),
            (lambda: arms.decide_slate(2, X[0]), TypeError, "need a catalog"),
            (lambda: arms.explain(X[0], items=["lamp"]), TypeError, "need a catalog"),
        ):
            with pytest.raises(error, match=message):
                call()
        assert (one.items, one.counts) == before and one.arms == ()
    for options, error, message in (
        ({"site": VISITED.spaces(1)}, ValueError, r"whose record of a context .* is"),
        ({"site": NUMBERS}, ValueError, r"whose record of a context .* is"),
        ({"site": Catalog(NUMBERS.item, spaces.Discrete(3))}, TypeError, "user of a Catalog must be a Box of floats"),  # pyright: ignore
        ({"site": VISITED, "capacity": 5}, ValueError, "capacity=5 is for arms"),
    ):
        with pytest.raises(error, match=message):
            service(tmp_path, shop, **options)
    with service(make=small, site=NUMBERS) as other:
        other.add_items(ITEMS)
        with pytest.raises(TypeError, match="its state depends on the number of candidates"):
            other.decide()


def test_a_slate_has_different_items(tmp_path: Path) -> None:
    with stocked(tmp_path / "log", items={**ITEMS, "desk": [2.0, -1.0]}) as one:
        slate = one.decide_slate(3, [0.0], items=["lamp", "chair", "desk"])
        assert {decision.action for decision in slate} == {"lamp", "chair", "desk"}
        assert slate[2].propensity == pytest.approx(1.0) and min(decision.propensity for decision in slate) > 0
        assert one.learn_many([(decision.token, 1.0) for decision in slate]) == ["learned"] * 3
        log = one.log()
        assert log.mask.sum(1).tolist() == [3, 2, 1]
        assert not log.mask[1, log.action[0]] and not log.mask[2, log.action[:2]].any()


def test_the_rows_beside_the_chosen_one_are_drawn_for_each_decision() -> None:
    with stocked(items={number: [number / 25, 0.0] for number in range(100)}) as one:
        one.decide_many(np.zeros((4, 1)))
        packed = [context for (context,) in one._store.database.execute("SELECT context FROM decisions")]
        rows = one._actions._contexts.unpack(packed)["item"][:, :, 0]  # pyright: ignore[reportAttributeAccessIssue]
        assert len({tuple(row) for row in rows[:, 1:].tolist()}) == 4


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
        return shop(site)

    with service(make=make, site=VISITED) as one:
        one.add_items(ITEMS)
        assert made == [ROWS]
        one.warm_up()
        assert made == [ROWS, 16]
        one.add_items({number: [0, 0] for number in range(40)})
        assert made == [ROWS, 16, 48]
        busy(one, 3)
        busy(one, 3, items=[1, 2, 3])
        assert len(made) == 3


def test_a_change_that_stops_between_its_portions_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_PORTION", 2)
    several = {str(number): [number / 2, 0.0] for number in range(7)}
    with service(tmp_path / "log", shop, NUMBERS) as one:
        written: list[int] = []
        write, left = one._store.write_items, 10**6

        def portion(rows: Any) -> None:
            if len(written) >= left:
                raise OSError("the disk is full")
            written.append(len(rows))
            write(rows)

        monkeypatch.setattr(one._store, "write_items", portion)
        one.add_items(several)
        assert sum(written) == 7 and max(written) == 2
        for place, change in enumerate(
            (
                lambda: one.add_items({name: [4.0, 4.0] for name in several}),
                lambda: one.remove_items(list(several)[:6]),
                lambda: one.add_items({"x": [1.0, 1.0], "y": [2.0, 2.0], "z": [3.0, 3.0]}),
            )
        ):
            before, left = inventory(one), len(written) + 1
            with pytest.raises(OSError, match="full"):
                change()
            left = 10**6
            assert one.counts and inventory(one) == before
            kept = copied(tmp_path / "log", tmp_path / str(place))
            expected = {name: row for name, row in before.items() if name != "6"}
            with service(kept, shop, NUMBERS) as again:
                assert inventory(again) == before
                again.remove_items(["6"])  # what was half written does not count with a later change
                assert inventory(again) == expected
                again.add_items({"new": [0.5, 0.5]})
            with service(kept, shop, NUMBERS) as again:
                assert inventory(again) == {**expected, "new": [0.5, 0.5]}
        one.add_items({"0": [4.0, 4.0]})
        assert inventory(one) == {**several, "0": [4.0, 4.0]} and one.items[-1] == "0"


def test_a_catalog_from_before_changes_had_numbers(tmp_path: Path) -> None:
    with stocked(tmp_path, NUMBERS, {"a": [1, 0], "b": [0, 1], "c": [1, 1]}) as one:
        one.remove_items(["b"])
        database = one._store.database.connection
        database.execute("DELETE FROM facts WHERE name = 'catalog'")
        row = 1, '"b"', np.array([0, 1], np.float32).tobytes(), 1
        database.execute("INSERT OR REPLACE INTO items VALUES (?, ?, ?, ?, ?)", (*row, checksum(row)))
    with service(tmp_path, shop, NUMBERS) as again:
        assert again.items == ("a", "c")
        again.add_items({"b": [2, 2]})
        again.remove_items(["a"])
        assert again.items == ("c", "b")
    with service(tmp_path, shop, NUMBERS) as again:
        assert again.items == ("c", "b")


def test_an_explanation_of_items() -> None:
    with stocked(site=NUMBERS) as one:
        one.learn(one.decide(items=["chair"]).token, 2.0)
        before, expected = one.counts, np.array(list(ITEMS.values())) @ np.asarray(one.state)
        found = one.explain()
        assert found.actions == ("lamp", "chair", 7) and found.columns == ()
        np.testing.assert_allclose(found.mean, expected, rtol=1e-6)
        assert found.probability.sum() == pytest.approx(1) and found.probability.argmax() == 1
        some = one.explain(items=["lamp", 7])
        np.testing.assert_allclose(some.mean, expected[[0, 2]], rtol=1e-6)
        assert found.to_pandas()["action"].tolist() == ["lamp", "chair", 7] and "7: 0.3" in repr(found)
        assert one.counts == before


def test_a_log_of_other_decisions_among_items(tmp_path: Path) -> None:
    items = {"a": [1, 0], "b": [0, 1], 7: [1, 1]}
    given: Any = {"reward": [1.0, 0.0, 2.0], "propensity": [0.5, 1.0, 0.25]}
    log = seqdec.ope.make_log(
        **given, action=["7", "a", "7"], action_names=["7", "a"], mask=[[True, True], [False, True], [True, True]]
    )

    def learned(state: np.ndarray, rows: Any) -> np.ndarray:
        for row, reward in zip(rows, given["reward"], strict=True):
            state = state + 0.3 * (reward - row @ state) * row
        return state

    with service(tmp_path / "log", shop, NUMBERS) as one:
        with pytest.raises(ValueError, match=r"no item '7', an action of the log \(2 of 2"):
            one.warm_start(log)
        one.add_items(items)
        one.warm_start(log)
        one.warm_start(log)
        state = learned(np.zeros(2), np.array([[1, 1], [1, 0], [1, 1]]))
        assert one.counts["decisions"] == 3
        np.testing.assert_allclose(one.state, state, rtol=1e-5)
        own = one.log()
        assert own.mask.tolist() == [[True, False, True], [True, False, False], [True, False, True]]
        assert own.action.tolist() == [2, 0, 2] and own.propensity.tolist() == [0.5, 1.0, 0.25]
        other = log.replace(action_features=np.full((3, 2, 2), 2.0))
        one.warm_start(other)  # the features that it has count
        assert one.counts["decisions"] == 6
        np.testing.assert_allclose(one.state, learned(state, np.full((3, 2), 2.0)), rtol=1e-4)
        expected = bits(one)
        for wrong, message in (
            (log.replace(action_names=None), "give them the names of items"),
            (log.replace(context=np.ones((3, 2))), "has 2 numbers of the user; the catalog has 0"),
            (log.replace(action_features=np.ones((3, 2, 5))), "has 5 features; an item has 2"),
        ):
            with pytest.raises(ValueError, match=message):
                one.warm_start(wrong)
        assert bits(one) == expected
        kept = copied(tmp_path / "log", tmp_path / "copy")
    with service(kept, shop, NUMBERS) as again:
        assert bits(again) == expected


@pytest.mark.extended
def test_auto_learns_a_catalog(tmp_path: Path) -> None:
    generator, played = np.random.default_rng(0), []
    items = {str(number): row for number, row in enumerate(generator.normal(size=(12, 2)))}
    best = max(items, key=lambda name: items[name][0])
    with service(tmp_path, "auto", VISITED) as one:
        one.add_items(items)
        for _ in range(40):
            decision = one.decide(generator.normal(size=1))
            assert 0 < decision.propensity <= 1
            one.learn(decision.token, 2 * items[decision.action][0] + 0.1 * generator.normal())
            played.append(decision.action)
        assert played[20:].count(best) > 15
        one.add_items({"new": [items[best][0] + 1, 0.0]})
        assert one.decide([0.0]).action == "new"
        expected = bits(one)
    with service(tmp_path, "auto", VISITED) as again:
        assert bits(again) == expected
