"""Logs are joined with what a service knows by names of actions and columns, and by encoder."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from seqdec.core import Spaces
from seqdec.features import Encoder
from seqdec.ope import Log
from seqdec.service import read_log
from tests.service.services import SITE, X, bits, copied, service

RNG = np.random.default_rng(0)
COLUMNS = ["age", "price"]
TABLE: Any = pd.DataFrame(X[:40], columns=pd.Index(COLUMNS)).assign(
    action=RNG.integers(0, 3, 40), reward=RNG.random(40), propensity=1 / 3
)
FEW: Any = TABLE[TABLE["action"] < 2].assign(reward=0.5)


def log_of(table: Any, names: Any = None, context: Any = COLUMNS) -> Log:
    """A log whose actions have these names in place of numbers."""
    offers = table if names is None else table.assign(action=np.array(names, object)[table["action"]])
    return Log.from_pandas(offers, context=context, action_names=names)


def test_names_outside_stand_for_the_arms_in_their_order(tmp_path: Path) -> None:
    plain = service()
    with service(tmp_path) as one:
        one.warm_start(log_of(TABLE, ["a", "b", "c"]))
        plain.warm_start(log_of(TABLE))
        assert bits(one) == bits(plain) and one.arms == (0, 1, 2)
        with pytest.raises(ValueError, match=r"actions of the log are 'b', 'c', 'd'; .* of 'a', 'b', 'c', without 'd'"):
            one.warm_start(log_of(TABLE, ["b", "c", "d"]))
        assert one.counts["decisions"] == 40
    with service(tmp_path) as one:  # the log of the service remembers them
        one.warm_start(log_of(FEW, ["c", "b"]))
        plain.warm_start(log_of(FEW.assign(action=2 - FEW["action"])))
        assert bits(one) == bits(plain)
        with pytest.raises(ValueError, match="actions of the log are 'x', 'y', 'z'"):
            one.warm_start(log_of(TABLE, ["x", "y", "z"]))
        assert one.log().action_names is None
        again = service()
        again.warm_start(one.log())


def test_a_service_with_names_learns_logs_by_name() -> None:
    one, plain = service(arms=["c", "a", "b"]), service()
    one.warm_start(log_of(TABLE, ["a", "b", "c"]))
    plain.warm_start(log_of(TABLE.assign(action=(TABLE["action"] + 1) % 3)))
    assert bits(one) == bits(plain)
    with pytest.raises(ValueError, match="of 'c', 'a', 'b', without 'd'"):
        one.warm_start(log_of(FEW, ["b", "d"]))
    own = one.log()
    assert own.action_names == ("c", "a", "b")
    again = service(arms=["b", "c", "a"])
    again.warm_start(own)
    found = again.log()
    assert found.reward[found.action == 0].tolist() == own.reward[own.action == 2].tolist() != []


def test_encoders_and_columns_belong_together(tmp_path: Path) -> None:
    may, june = Encoder.fit(TABLE[:20], COLUMNS), Encoder.fit(TABLE[20:], COLUMNS)
    raw, encoded = log_of(TABLE), log_of(TABLE, context=may)
    assert may.space.shape == june.space.shape
    with service(tmp_path, site=Spaces(may.space, SITE.action_space), encoder=may) as one:
        for wrong, message in (
            (log_of(TABLE, context=june), "are of the encoder with digest"),
            (raw, "are columns as they are"),
            (encoded.replace(encoder=None, context_names=("size",) * encoded.context.shape[1]), "are 'size', "),
        ):
            with pytest.raises(ValueError, match=message):
                one.warm_start(wrong)
        assert one.counts["decisions"] == 0
        one.warm_start(encoded)
        for found in (one.log(), read_log(tmp_path)):
            assert found.schema == encoded.schema
    one = service()
    one.warm_start(raw)
    one.warm_start(log_of(FEW, context=COLUMNS[::-1]))  # other places
    np.testing.assert_array_equal(one.log().context[40:], FEW[COLUMNS].to_numpy(np.float32))
    for wrong, message in (
        (encoded, "columns as they are"),
        (log_of(TABLE.assign(size=0), context=["age", "size"]), "take the same columns"),
    ):
        with pytest.raises(ValueError, match=message):
            one.warm_start(wrong)


def merged(*logs: Log) -> tuple[int, int]:
    """Rows that a service has learned of these logs, and how many it knew."""
    one = service()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "[0-9]+ of [0-9]+ rows were not learned", RuntimeWarning)
        for log in logs:
            one.warm_start(log)
    return one.counts["rewards"], one.counts.get("known", 0)


DAYS: Any = TABLE.assign(
    timestamp=pd.date_range("2026-05-01", periods=40, freq="h"), order=[f"no {i}" for i in range(40)]
)
SAME: Any = pd.DataFrame({"action": [0, 1] * 10, "reward": [1.0, 0.0] * 10, "propensity": 0.5}).assign(x=1.0, y=0.0)


def test_rows_of_overlapping_logs_are_learned_once() -> None:
    numbered, dated = log_of(TABLE), log_of(DAYS)
    assert merged(numbered[:20], numbered, numbered) == (40, 60)
    assert merged(log_of(TABLE[10:30]), log_of(TABLE), numbered[5:]) == (40, 55)  # numbers of rows are no times
    assert merged(dated[:20], log_of(DAYS[10:]), dated.replace(timestamp=dated.timestamp.astype("datetime64[s]"))) == (
        40,
        50,
    )
    assert merged(dated, log_of(DAYS.assign(timestamp=DAYS["timestamp"] + pd.Timedelta("1D")))) == (80, 0)
    assert merged(dated, log_of(DAYS.assign(reward=1 - DAYS["reward"]))) == (80, 0)
    named = service(arms=["a", "b", "c"])
    named.warm_start(log_of(TABLE, ["a", "b", "c"]))
    named.warm_start(
        Log.from_pandas(
            TABLE.assign(action=[["a", "b", "c"][i] for i in TABLE["action"]]),
            context=COLUMNS,
            action_names=["c", "a", "b"],
        )
    )
    assert named.counts["rewards"] == named.counts["known"] == 40  # by name, in whatever order
    one = service()
    one.warm_start(numbered[:20])
    with pytest.warns(
        RuntimeWarning, match="20 of 40 rows were not learned, because they equal rows that this agent has"
    ):
        one.warm_start(numbered)
    with_nan = numbered.replace(propensity=np.full(40, np.nan))
    assert merged(with_nan[:20], with_nan) == (40, 20)


def test_equal_rows_are_learned_as_often_as_they_occur() -> None:
    often = pd.DataFrame(np.repeat(TABLE.to_numpy(), 2, axis=0), columns=TABLE.columns).astype({"action": int})
    assert merged(log_of(TABLE), log_of(often)) == (80, 40)
    assert merged(log_of(often), log_of(TABLE), log_of(often)) == (80, 120)
    dates = SAME.assign(timestamp=pd.Timestamp("2026-05-01"))
    assert merged(log_of(dates[:8], context=["x", "y"]), log_of(dates, context=["x", "y"])) == (20, 8)
    first = log_of(SAME, context=["x", "y"])
    assert merged(first[:8], first, first[:10]) == (20, 18)  # it has grown
    assert merged(first, log_of(SAME[::-1], context=["x", "y"])) == (40, 0)  # another day with such rows


@pytest.mark.parametrize("again", ["itself", "a copy", "itself without keys"])
def test_the_log_of_a_service_is_known_to_it(again: str, tmp_path: Path) -> None:
    with service(tmp_path / "a", arms=["a", "b", "c"]) as one:
        one.warm_start(log_of(DAYS, ["a", "b", "c"])[:10])
        decisions = one.decide_many(X[:20])
        one.learn_many([(decision.token, float(i)) for i, decision in enumerate(decisions[:15])])
        log, expected = one.log(), bits(one)
        log.save(tmp_path / "log.parquet")
        found = Log.load(tmp_path / "log.parquet")
        if again == "itself without keys":
            found = found.replace(key=None)
        with service(copied(tmp_path / "a", tmp_path / "b"), arms=["a", "b", "c"]) as copy:
            other = copy if again == "a copy" else one
            other.warm_start(found)
            assert log.timestamp[:10].tolist() == DAYS["timestamp"].to_numpy()[:10].astype("datetime64[ns]").tolist()
            assert (other.counts["rewards"], other.counts["known"]) == (25, len(found)) and bits(other) == expected


def test_keys_say_which_rows_are_known() -> None:
    keyed = log_of(DAYS).replace(key=np.array(DAYS["order"]))
    assert merged(keyed[:20], keyed[::-1].replace(reward=np.zeros(40))) == (40, 20)
    assert merged(keyed, keyed.replace(key=np.array([f"other {i}" for i in range(40)]))) == (80, 0)
    assert merged(keyed, keyed.replace(key=None), keyed) == (40, 80)
    assert merged(keyed.replace(key=None)[:30], keyed) == (40, 30)
    numbered = keyed.replace(key=np.arange(40))
    assert merged(numbered[10:], numbered.replace(key=np.arange(40).astype(str))) == (40, 30)
    one = service()
    first, second = one.decide(X[0], key="no 0"), one.decide(X[1])
    one.learn_many([(first.token, 1.0), (second.token, 1.0)])
    one.warm_start(keyed)
    assert one.counts["rewards"] == 41 and one.counts["known"] == 1
