"""Logs are joined with what a service knows by names of actions and columns, and by encoder."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from seqdec.core import Spaces
from seqdec.features import Encoder
from seqdec.ope import Log
from seqdec.service import read_log
from tests.service.services import SITE, X, bits, service

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
