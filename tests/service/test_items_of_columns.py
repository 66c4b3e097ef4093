"""Catalogs of items and users as rows of mixed columns; changes in portions, explanations, logs of other decisions."""

import shutil
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import seqdec
from seqdec.core import Action, Agent, Assessment, HasSpaces, Masked
from seqdec.features import Categorical, Encoder, Numeric
from seqdec.service import Catalog, read_encoder, read_history, store
from seqdec.service.store import checksum

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "benchmarks")]

import online_exceptions as exceptions  # noqa: E402  # pyright: ignore[reportMissingImports]

FILM = Encoder({"length": Numeric(100, 20), "kind": Categorical(("comedy", "drama"))})
VISITOR = Encoder({"age": Numeric(40, 12)})
FILMS: dict[Any, Any] = {
    "a": {"length": 90, "kind": "comedy"},
    "b": {"length": 120.0, "kind": "drama"},
    7: {"kind": "western"},
}
ROWS = Catalog(FILM, VISITOR)
NUMBERS = Catalog(spaces.Box(-5, 5, (2,)))


def greedy(site: HasSpaces) -> Agent:
    """The item with the largest product of its numbers and a vector that rewards move."""
    parts: Any = site.observation_space
    width = parts["item"].shape[1]

    def assess(key: Any, state: Any, masked: Masked) -> Assessment:
        x, mask = masked
        mean = x["item"] @ state
        chosen = jnp.argmax(jnp.where(mask, mean, -jnp.inf)) == jnp.arange(len(mean))
        return Assessment(mean, jnp.zeros(len(mean)), chosen.astype(float))

    def act(key: Any, state: Any, masked: Masked) -> Action:
        chances = assess(key, state, masked).probability
        return Action(jnp.argmax(chances), jnp.float32(1))

    def update(state: Any, x: Any, action: Any, reward: Any) -> tuple[Any, Any]:
        good = jnp.isfinite(reward)
        return state + jnp.where(good, reward, 0) * x["item"][action], exceptions.Info(~good)

    return Agent(lambda key: jnp.zeros(width), act, update, "greedy", True, {}, assess=assess)


def service(folder: Path | None = None, site: Any = ROWS, **options: Any) -> seqdec.OnlineAgent:
    return seqdec.OnlineAgent(greedy, site, **{"seed": 0, "folder": folder, **options})


def inventory(one: seqdec.OnlineAgent) -> dict[Any, list[float]]:
    return {
        name: one._actions.inventory.features[number].tolist()
        for name, number in one._actions.inventory.numbers.items()
    }


def test_items_and_users_are_rows(tmp_path: Path) -> None:
    with service(tmp_path / "log") as one:
        one.add_items(FILMS)
        assert inventory(one) == {name: FILM(row).tolist() for name, row in FILMS.items()}
        decision = one.decide({"age": 31})
        many = one.decide_many([{"age": 20}, {"age": None}], items=[None, ["b"]])
        assert one.decide_many([]) == [] and many[1].action == "b"
        assert len(one.decide_slate(2, {"age": 50})) == 2
        assert one.learn(decision.token, 1.0) == "learned"
        for call, message in (
            (lambda: one.add_items({"c": {"length": "long"}}), "the features of item 'c': column length"),
            (lambda: one.add_items({"c": [1.0] * 6}), "the features of item 'c': a row must be a dict"),
            (lambda: one.decide([31.0]), "a row must be a dict"),
            (lambda: one.decide(), "a row must be a dict; got NoneType"),
            (lambda: one.decide_many([{"age": 3}, {"age": "old"}]), "row 1, column age"),
        ):
            with pytest.raises((TypeError, ValueError), match=message):
                call()
        expected, items = exceptions.bits(one), one.items
    assert read_encoder(tmp_path / "log", "item") == FILM and read_encoder(tmp_path / "log", "user") == VISITOR
    with pytest.raises(ValueError, match="a catalog: say of which part, 'item' or 'user'"):
        read_encoder(tmp_path / "log")
    columns = set(read_history(tmp_path / "log").columns)
    assert {f"item {name}" for name in FILM.names} | {f"user {name}" for name in VISITOR.names} <= columns
    with service(tmp_path / "log") as again:
        assert exceptions.bits(again) == expected and again.items == items
    other = Encoder({"age": Numeric(40, 13)})
    for site, message in (
        (Catalog(FILM, other), "with an encoder that has another age of each user"),
        (Catalog(FILM, VISITOR.space), "with an encoder of each user"),
        (Catalog(FILM.space, VISITOR), "with an encoder of each item"),
    ):
        with pytest.raises(ValueError, match=f"was written {message}"):
            service(tmp_path / "log", site)
    with service(tmp_path / "plain", Catalog(FILM.space, VISITOR.space)) as one:
        one.add_items({"a": FILM(FILMS["a"])})
    with pytest.raises(ValueError, match="was written without an encoder of each item"):
        service(tmp_path / "plain")
    with pytest.raises(ValueError, match="had no encoder of each user"):
        read_encoder(tmp_path / "plain", "user")
    with pytest.raises(TypeError, match=r"encoders of its own: Catalog\(item=encoder, user=encoder\)"):
        service(encoder=FILM)


def test_a_change_that_stops_between_its_portions_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_PORTION", 2)
    several = {str(number): [number / 2, 0.0] for number in range(7)}
    with service(tmp_path / "log", NUMBERS) as one:
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
        for change in (
            lambda: one.add_items({name: [4.0, 4.0] for name in several}),
            lambda: one.remove_items(list(several)[:6]),
            lambda: one.add_items({"x": [1.0, 1.0], "y": [2.0, 2.0], "z": [3.0, 3.0]}),
        ):
            before, left = inventory(one), len(written) + 1
            with pytest.raises(OSError, match="full"):
                change()
            left = 10**6
            assert one.counts and inventory(one) == before
            killed = tmp_path / "killed"
            shutil.copytree(tmp_path / "log", killed, ignore=shutil.ignore_patterns("state*"))
            with service(killed, NUMBERS) as again:
                assert inventory(again) == before
                again.remove_items(["6"])  # what was half written does not count with a later change
                assert inventory(again) == {name: row for name, row in before.items() if name != "6"}
                again.add_items({"new": [0.5, 0.5]})
            with service(killed, NUMBERS) as again:
                expected = {name: row for name, row in before.items() if name != "6"} | {"new": [0.5, 0.5]}
                assert inventory(again) == expected
            shutil.rmtree(killed)
        one.add_items({"0": [4.0, 4.0]})
        assert inventory(one) == {**several, "0": [4.0, 4.0]} and one.items[-1] == "0"


def test_a_catalog_from_before_changes_had_numbers(tmp_path: Path) -> None:
    with service(tmp_path, NUMBERS) as one:
        one.add_items({"a": [1, 0], "b": [0, 1], "c": [1, 1]})
        one.remove_items(["b"])
        database = one._store.database.connection
        database.execute("DELETE FROM facts WHERE name = 'catalog'")
        (number, name, features), removed = (1, '"b"', np.array([0, 1], np.float32).tobytes()), 1
        row = (number, name, features, removed)
        database.execute("INSERT OR REPLACE INTO items VALUES (?, ?, ?, ?, ?)", (*row, checksum(row)))
    with service(tmp_path, NUMBERS) as again:
        assert again.items == ("a", "c")
        again.add_items({"b": [2, 2]})
        again.remove_items(["a"])
        assert again.items == ("c", "b")
    with service(tmp_path, NUMBERS) as again:
        assert again.items == ("c", "b")


def test_an_explanation_of_items(tmp_path: Path) -> None:
    with service(site=NUMBERS) as one:
        one.add_items({"a": [1, 0], "b": [0, 1], 7: [1, 1]})
        one.learn(one.decide(items=["b"]).token, 2.0)
        before = one.counts
        found = one.explain()
        assert found.actions == ("a", "b", 7) and found.mean.tolist() == [0, 2, 2]
        assert found.probability.sum() == 1 and found.columns == ()
        assert one.explain(items=["a", 7]).mean.tolist() == [0, 2]
        assert found.to_pandas()["action"].tolist() == ["a", "b", 7] and "7: 2" in repr(found)
        assert one.counts == before
        with pytest.raises(ValueError, match="no item 'x'"):
            one.explain(items=["x"])
    with (
        pytest.raises(TypeError, match="need a catalog"),
        seqdec.OnlineAgent("linear", exceptions.SITE, seed=0) as arms,
    ):
        arms.explain(exceptions.X[0], items=["a"])


def test_a_log_of_other_decisions_among_items(tmp_path: Path) -> None:
    items = {"a": [1, 0], "b": [0, 1], 7: [1, 1]}
    given: Any = {"reward": [1.0, 0.0, 2.0], "propensity": [0.5, 1.0, 0.25]}
    log = seqdec.ope.make_log(
        **given, action=["7", "a", "7"], action_names=["7", "a"], mask=[[True, True], [False, True], [True, True]]
    )
    with service(tmp_path / "log", NUMBERS) as one:
        with pytest.raises(ValueError, match=r"no item '7', an action of the log \(2 of 2"):
            one.warm_start(log)
        one.add_items(items)
        one.warm_start(log)
        one.warm_start(log)
        assert one.counts["decisions"] == 3 and one.state.tolist() == [3, 3]
        own = one.log()
        assert own.mask.tolist() == [[True, False, True], [True, False, False], [True, False, True]]
        assert own.action.tolist() == [2, 0, 2] and own.propensity.tolist() == [0.5, 1.0, 0.25]
        other = log._replace(action_features=np.full((3, 2, 2), 2.0))
        one.warm_start(other)  # the features that it has count
        assert one.counts["decisions"] == 6 and one.state.tolist() == [9, 9]
        expected = exceptions.bits(one)
        for wrong, message in (
            (log._replace(action_names=None), "give them the names of items"),
            (log._replace(context=np.ones((3, 2))), "has 2 numbers of the user; the catalog has 0"),
            (log._replace(action_features=np.ones((3, 2, 5))), "has 5 features; an item has 2"),
        ):
            with pytest.raises(ValueError, match=message):
                one.warm_start(wrong)
        assert exceptions.bits(one) == expected
        shutil.copytree(tmp_path / "log", tmp_path / "copy", ignore=shutil.ignore_patterns("state*"))
    with service(tmp_path / "copy", NUMBERS) as again:
        assert exceptions.bits(again) == expected
    with service() as rows:
        rows.add_items(FILMS)
        users = VISITOR.transform([{"age": 20}, {"age": 30}, {"age": 40}])
        rows.warm_start(log._replace(context=users))
        np.testing.assert_array_equal(rows.log().context, users)
