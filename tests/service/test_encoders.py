"""Services whose contexts are rows of mixed columns."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from gymnasium import spaces
from sklearn.preprocessing import StandardScaler

import seqdec
from seqdec.core import Spaces
from seqdec.features import Categorical, Encoder, Numeric, Text
from seqdec.service import read_encoder, read_log

ROWS: list[dict[str, Any]] = [
    {"age": 31, "city": "Rome", "query": "cheap flights"},
    {"age": None, "city": "Oslo", "query": "a hotel by the sea", "other": 3},
    {"city": "Lima"},
]
KINDS = {"age": Numeric(40, 12), "city": Categorical(("Oslo", "Rome")), "query": Text(16)}
ENCODER = Encoder(KINDS)
SITE = Spaces(ENCODER.space, spaces.Discrete(2))


def service(folder: Path | None = None, encoder: Any = ENCODER, site: Any = SITE) -> seqdec.OnlineAgent:
    return seqdec.OnlineAgent("linear", site, seed=0, encoder=encoder, folder=folder)


def test_rows_are_decided_and_learned_as_their_features(tmp_path: Path) -> None:
    with service(tmp_path) as rows, service(encoder=None) as features:
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
    with service(tmp_path, read_encoder(tmp_path)) as again:
        assert again.counts["decisions"] == 9


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (Encoder({**KINDS, "age": Numeric(41, 12)}), "another age"),
        (Encoder(dict(reversed(KINDS.items()))), "another order of columns"),
        (None, "cannot be encoded anew"),
        (Encoder.of(StandardScaler().fit(pd.DataFrame({"x": [1.0, 2.0]})), ["x"]), "another age, city, query, x"),
    ],
    ids=["column", "order", "none", "of"],
)
def test_a_log_belongs_to_an_encoder(other: Any, message: str, tmp_path: Path) -> None:
    service(tmp_path).close()
    site = SITE if other is None else Spaces(other.space, SITE.action_space)
    with pytest.raises(ValueError, match=f"was written with an encoder.*{message}"):
        service(tmp_path, other, site)


def test_an_encoder_without_json_serves_too(tmp_path: Path) -> None:
    scaler = Encoder.of(StandardScaler().fit(pd.DataFrame({"x": [1.0, 2.0]})), ["x"])
    site = Spaces(scaler.space, SITE.action_space)
    for _ in range(2):
        with service(tmp_path, scaler, site) as one:
            assert one.decide({"x": 1.5}).propensity > 0
    with pytest.raises(ValueError, match=r"had an encoder without a JSON form, of the columns \['x'\]"):
        read_encoder(tmp_path)
    with pytest.raises(ValueError, match="was written with an encoder"):
        service(tmp_path, None, site)


def test_what_is_wrong_is_refused() -> None:
    with pytest.raises(TypeError, match="encoder must be a seqdec"):
        service(encoder=3)
    with pytest.raises(ValueError, match="the observation space must be that of the encoder"):
        service(site=Spaces(spaces.Box(-1, 1, (2,)), SITE.action_space))
    with service() as one:
        for wrong in ([1.0, 2.0], {"age": "old"}, {"town": "Rome"}):
            with pytest.raises((TypeError, ValueError)):
                one.decide(wrong)
        with pytest.raises(TypeError, match="row 1, column age"):
            one.decide_many([ROWS[0], {"age": "old"}])
        assert one.counts["decisions"] == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda one, films: one.decide(ROWS[0]),
        lambda one, films: one.decide([ROWS[0]]),
        lambda one, films: one.decide_many(ROWS),
        lambda one, films: one.decide_many(pd.DataFrame({"city": ["Oslo"], "age": [3.0]})),
        lambda one, films: one.explain(ROWS[0]),
        lambda one, films: films.decide(ROWS[0]),
        lambda one, films: films.add_items({"new": ROWS[0]}),
    ],
)
def test_rows_of_columns_need_an_encoder(call: Any) -> None:
    films = seqdec.service.Catalog(spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (2,)))
    with service(encoder=None) as one, seqdec.OnlineAgent("linear", films, seed=0) as other:
        other.add_items({"a": [0.0, 1.0]})
        with pytest.raises(TypeError, match="encode rows of named columns, as with seqdec"):
            call(one, other)


@pytest.mark.parametrize("spaces_of", [lambda: ENCODER, lambda: Spaces(ENCODER, SITE.action_space)])  # pyright: ignore[reportArgumentType]
def test_an_encoder_in_the_place_of_a_space_is_refused(spaces_of: Any) -> None:
    for make in (seqdec.agents.linear, lambda site: service(site=site)):
        with pytest.raises(TypeError, match=r"an encoder is not a space: take .* Spaces\(encoder.space"):
            make(spaces_of())


def test_a_log_without_an_encoder_has_none(tmp_path: Path) -> None:
    service(tmp_path, None).close()
    with pytest.raises(ValueError, match="had no encoder"):
        read_encoder(tmp_path)
    with pytest.raises(ValueError, match="was written without an encoder"):
        service(tmp_path)
