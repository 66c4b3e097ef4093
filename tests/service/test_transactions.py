"""An exception at any line of a call of `OnlineAgent` leaves nothing half-done."""

import sys
from pathlib import Path
from typing import Any

import pytest

from seqdec.service.model import Model

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "benchmarks")]

import online_exceptions as exceptions  # noqa: E402  # pyright: ignore[reportMissingImports]

CASES = {**dict.fromkeys(exceptions.CALLS, 60), "add_arm beyond the capacity": 3}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "capacity"), CASES.items(), ids=CASES)
def test_an_exception_at_some_lines(name: str, capacity: int, tmp_path: Path) -> None:
    """At all lines: benchmarks/online_exceptions.py."""
    step = 13 if capacity > 3 else 61
    assert exceptions.sweep(tmp_path, name.removesuffix(" beyond the capacity"), range(3, 1000, step), capacity) > 1


def test_an_exception_that_loses_a_state_which_updates_write_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqdec.service.model._LARGE", -1)
    found: list[bool] = []
    lost: Any = Model.is_lost

    def noted(model: Model) -> bool:
        found.append(lost.fget(model))
        return found[-1]

    monkeypatch.setattr(Model, "is_lost", property(noted))
    exceptions.sweep(tmp_path, "learn", range(100, 1000, 3), 4)
    assert any(found) and not all(found)
