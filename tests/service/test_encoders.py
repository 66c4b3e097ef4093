"""Services whose contexts, items or users are rows of mixed columns."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from gymnasium import spaces
from sklearn.preprocessing import StandardScaler

import seqdec
from seqdec.core import Spaces
from seqdec.features import Categorical, Encoder, Numeric, Text
from seqdec.ope import make_log
from seqdec.service import Catalog, read_encoder, read_history, read_log
from tests.service.services import bits, service, shop

ROWS: list[dict[str, Any]] = [
    {"age": 31, "city": "Rome", "query": "cheap flights"},
    {"age": None, "city": "Oslo", "query": "a hotel by the sea", "other": 3},
    {"city": "Lima"},
]
KINDS = {"age": Numeric(40, 12), "city": Categorical(("Oslo", "Rome")), "query": Text(16)}
ENCODER = Encoder(KINDS)
SITE = Spaces(ENCODER.space, spaces.Discrete(2))


def encoded(folder: Path | None = None, encoder: Any = ENCODER, site: Any = SITE) -> seqdec.OnlineAgent:
    return service(folder, site=site, encoder=encoder)


def test_rows_are_decided_and_learned_as_their_features(tmp_path: Path) -> None:
    with encoded(tmp_path) as rows, encoded(encoder=None) as features:
        for row in ROWS:
            one, other = rows.decide(row), features.decide(ENCODER(row))
            assert one[:2] == other[:2]
            assert rows.learn(one.token, 1.0) == features.learn(other.token, 1.0) == "learned"
        table = pd.DataFrame(ROWS)
        for stacked in (ROWS, table):
            ours, theirs = rows.decide_many(stacked), features.decide_many(ENCODER.transform(table))
            assert [decision[:2] for decision in ours] == [decision[:2] for decision in theirs]
        assert rows.log().context.tolist() == features.log().context.tolist()
    assert read_log(tmp_path).context.shape == (3, len(ENCODER.names))
    assert read_encoder(tmp_path) == ENCODER
    with encoded(tmp_path, read_encoder(tmp_path)) as again:
        assert again.counts["decisions"] == 9


def test_a_log_belongs_to_an_encoder(tmp_path: Path) -> None:
    encoded(tmp_path / "log").close()
    scaler = Encoder.of(StandardScaler().fit(pd.DataFrame({"x": [1.0, 2.0]})), ["x"])
    for other, message in (
        (Encoder({**KINDS, "age": Numeric(41, 12)}), "another age"),
        (Encoder(dict(reversed(KINDS.items()))), "another order of columns"),
        (None, "cannot be encoded again"),
        (scaler, "another age, city, query, x"),
    ):
        site = SITE if other is None else Spaces(other.space, SITE.action_space)
        with pytest.raises(ValueError, match=f"was written with an encoder.*{message}"):
            encoded(tmp_path / "log", other, site)
    encoded(tmp_path / "plain", None).close()
    with pytest.raises(ValueError, match="had no encoder"):
        read_encoder(tmp_path / "plain")
    with pytest.raises(ValueError, match="was written without an encoder"):
        encoded(tmp_path / "plain")


def test_an_encoder_without_json_serves_too(tmp_path: Path) -> None:
    scaler = Encoder.of(StandardScaler().fit(pd.DataFrame({"x": [1.0, 2.0]})), ["x"])
    site = Spaces(scaler.space, SITE.action_space)
    for _ in range(2):
        with encoded(tmp_path, scaler, site) as one:
            assert one.decide({"x": 1.5}).propensity > 0
    with pytest.raises(ValueError, match=r"had an encoder without a JSON form, of the columns \['x'\]"):
        read_encoder(tmp_path)
    with pytest.raises(ValueError, match="was written with an encoder"):
        encoded(tmp_path, None, site)


def test_what_is_wrong_is_refused() -> None:
    with pytest.raises(TypeError, match="encoder must be a seqdec"):
        encoded(encoder=3)
    with pytest.raises(ValueError, match="the observation space must be that of the encoder"):
        encoded(site=Spaces(spaces.Box(-1, 1, (2,)), SITE.action_space))
    with encoded() as one:
        for wrong in ([1.0, 2.0], {"age": "old"}, {"town": "Rome"}):
            with pytest.raises((TypeError, ValueError)):
                one.decide(wrong)
        with pytest.raises(TypeError, match="row 1, column age"):
            one.decide_many([ROWS[0], {"age": "old"}])
        assert one.counts["decisions"] == 0


def test_rows_of_columns_need_an_encoder() -> None:
    films = Catalog(spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (2,)))
    with encoded(encoder=None) as one, service(make="random", site=films) as other:
        for call in (
            lambda: one.decide(ROWS[0]),
            lambda: one.decide([ROWS[0]]),
            lambda: one.decide_many(ROWS),
            lambda: one.decide_many(pd.DataFrame({"city": ["Oslo"], "age": [3.0]})),
            lambda: one.explain(ROWS[0]),
            lambda: other.decide(ROWS[0]),
            lambda: other.add_items({"new": ROWS[0]}),
        ):
            with pytest.raises(TypeError, match="encode rows of named columns, as with seqdec"):
                call()


def test_an_encoder_in_the_place_of_a_space_is_refused() -> None:
    for site in (ENCODER, Spaces(ENCODER, SITE.action_space)):  # pyright: ignore[reportArgumentType]
        for make in (seqdec.agents.linear, lambda site: encoded(site=site)):
            with pytest.raises(TypeError, match=r"an encoder is not a space: use .* Spaces\(encoder.space"):
                make(site)  # pyright: ignore[reportArgumentType]


FILM = Encoder({"length": Numeric(100, 20), "kind": Categorical(("comedy", "drama"))})
VISITOR = Encoder({"age": Numeric(40, 12)})
FILMS: dict[Any, Any] = {
    "a": {"length": 90, "kind": "comedy"},
    "b": {"length": 120.0, "kind": "drama"},
    7: {"kind": "western"},
}


def rented(folder: Path | None = None, item: Any = FILM, user: Any = VISITOR, **options: Any) -> seqdec.OnlineAgent:
    return service(folder, shop, Catalog(item, user), **options)


def test_items_and_users_are_rows(tmp_path: Path) -> None:
    log = make_log(
        action=["7", "a", "7"], reward=[1.0, 0.0, 2.0], propensity=[0.5] * 3, action_names=["7", "a"],
        context=VISITOR.transform([{"age": 20}, {"age": 30}, {"age": 40}]),
    )  # fmt: skip
    with rented(tmp_path / "log") as one:
        one.add_items(FILMS)
        known: Any = one._actions
        for name, number in known.inventory.numbers.items():
            np.testing.assert_array_equal(known.inventory.features[number], FILM(FILMS[name]))
        decision = one.decide({"age": 31})
        many = one.decide_many([{"age": 20}, {"age": None}], items=[None, ["b"]])
        assert one.decide_many([]) == [] and many[1].action == "b"
        assert len(one.decide_slate(2, {"age": 50})) == 2
        assert one.learn(decision.token, 1.0) == "learned"
        one.warm_start(log)
        np.testing.assert_array_equal(one.log().context[:3], np.vstack([VISITOR({"age": 31}), log.context[:2]]))
        for call, message in (
            (lambda: one.add_items({"c": {"length": "long"}}), "the features of item 'c': column length"),
            (lambda: one.add_items({"c": [1.0] * 6}), "the features of item 'c': a row must be a dict"),
            (lambda: one.decide([31.0]), "a row must be a dict"),
            (lambda: one.decide(), "a row must be a dict; got NoneType"),
            (lambda: one.decide_many([{"age": 3}, {"age": "old"}]), "row 1, column age"),
        ):
            with pytest.raises((TypeError, ValueError), match=message):
                call()
        expected, items = bits(one), one.items
    assert read_encoder(tmp_path / "log", "item") == FILM and read_encoder(tmp_path / "log", "user") == VISITOR
    with pytest.raises(ValueError, match="a catalog: say of which part, 'item' or 'user'"):
        read_encoder(tmp_path / "log")
    columns = set(read_history(tmp_path / "log").columns)
    assert {f"item {name}" for name in FILM.names} | {f"user {name}" for name in VISITOR.names} <= columns
    with rented(tmp_path / "log") as again:
        assert bits(again) == expected and again.items == items


def test_a_catalog_belongs_to_its_encoders(tmp_path: Path) -> None:
    rented(tmp_path / "log").close()
    rented(tmp_path / "plain", FILM.space, VISITOR.space).close()
    other = Encoder({"age": Numeric(40, 13)})
    for folder, item, user, message in (
        ("log", FILM, other, "with an encoder that has another age of each user"),
        ("log", FILM, VISITOR.space, "with an encoder of each user"),
        ("log", FILM.space, VISITOR, "with an encoder of each item"),
        ("plain", FILM, VISITOR, "without an encoder of each item"),
    ):
        with pytest.raises(ValueError, match=f"was written {message}"):
            rented(tmp_path / folder, item, user)
    with pytest.raises(ValueError, match="had no encoder of each user"):
        read_encoder(tmp_path / "plain", "user")
    with pytest.raises(TypeError, match=r"encoders of its own: Catalog\(item=encoder, user=encoder\)"):
        rented(encoder=FILM)
