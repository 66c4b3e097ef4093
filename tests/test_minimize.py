"""`seqdec.minimize`: how long calls take, and what ends a search."""

import math
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqdec
from seqdec.bo import BayesianOptimizer

BOX = [(0.0, 1.0), (0.0, 1.0)]
OPTIONS: dict[str, Any] = {"n_calls": 5, "seed": 0, "initial": 100, "progress": False}


class Clock:
    """The clock by which calls are timed; each call of `fun` takes as many seconds as its number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.calls = 100.0, 0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(time, "time", lambda: self.now)

    def fun(self, x: Any) -> float:
        self.calls += 1
        self.now += self.calls
        if self.calls == 2:
            raise ArithmeticError
        return math.nan if self.calls == 3 else float(x[0])


@pytest.mark.parametrize("kind", ["one", "map", "threads"])
def test_the_seconds_of_each_call_are_in_the_result_and_in_the_file(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock = Clock(monkeypatch)
    with ThreadPoolExecutor(1) as executor:
        workers = {"one": 1, "map": map, "threads": executor}[kind]
        result = seqdec.minimize(
            clock.fun, BOX, x0=[0.5, 0.5], y0=1.0, workers=workers, catch=ArithmeticError, **OPTIONS
        )
    np.testing.assert_array_equal(result.seconds, [math.nan, 1, 2, 3, 4, 5])
    result.optimizer.save(tmp_path / "study")
    table = BayesianOptimizer.load(tmp_path / "study").trials_dataframe()
    np.testing.assert_array_equal(table["seconds"], result.seconds)
    assert table.columns[-1] == "seconds" and table["seconds"].dtype == float


@pytest.mark.parametrize(("seconds", "error"), [(-1.0, ValueError), (math.nan, ValueError), ("1", TypeError)])
def test_impossible_seconds_are_refused(seconds: Any, error: type[Exception]) -> None:
    optimizer = BayesianOptimizer(BOX, seed=0)
    trial = optimizer.ask()
    with pytest.raises(error, match="seconds"):
        optimizer.tell(trial, 1.0, seconds=seconds)
    assert len(optimizer.evaluations()[0]) == 0
