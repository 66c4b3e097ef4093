"""Expected and observed rewards."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import seqdec
from seqdec.core import Spaces
from seqdec.service.diagnostics import uncalibrated

SITE = Spaces(spaces.Box(-1, 1, (2,)), spaces.Discrete(2))


def served(shift: float, folder: Path | None = None, rows: int = 600) -> Any:
    """A service of two arms, whose rewards at the end are shifted."""
    rng, service = np.random.default_rng(0), seqdec.OnlineAgent("linear", SITE, seed=0, arms=["a", "b"], folder=folder)
    for part in range(rows // 100):
        contexts = rng.uniform(-1, 1, (100, 2))
        decisions = service.decide_many(contexts)
        rewards = contexts[:, 0] * [1 if one.action == "a" else -1 for one in decisions] + rng.normal(0, 0.5, 100)
        rewards += shift * (part >= rows // 100 - 2)
        service.learn_many([(one.token, reward) for one, reward in zip(decisions, rewards, strict=True)])
    return service


def test_a_belief_that_fits_is_calibrated_and_one_that_does_not_is_found(tmp_path: Path) -> None:
    with served(0.0, tmp_path / "log") as service:
        table: Any = service.calibration()
        assert table["decisions"].sum() == 600 and table["expected"].is_monotonic_increasing
        assert (np.abs(table["observed"] - table["expected"]) < 4 * table["std_error"]).all()
        assert not list(uncalibrated(table)) and service.calibration(50)["decisions"].sum() == 50
    with served(3.0) as service:
        (alarm,) = uncalibrated(service.calibration(200))
        assert alarm.kind == "calibration" and "where the agent expects" in str(alarm)
    few: Any = table.assign(decisions=3)
    assert not list(uncalibrated(few.assign(observed=9.0)))


def test_what_has_no_expectation_is_refused() -> None:
    with served(0.0, rows=0) as service, pytest.raises(ValueError, match="no decision has a reward yet"):
        service.calibration()
    box = Spaces(SITE.observation_space, spaces.Box(0, 1, (1,)))
    with seqdec.OnlineAgent("linear", box, seed=0) as service, pytest.raises(TypeError):
        service.calibration()
    with served(0.0, rows=0) as service, pytest.raises(ValueError, match="most must be at least 1"):
        service.calibration(0)
