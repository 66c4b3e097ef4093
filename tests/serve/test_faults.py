"""The server killed, or with exceptions in its lines, under load: benchmarks/service_kills.py, shortened."""

import functools
import sys
from pathlib import Path

import pytest

from seqdec.serve import deployments
from seqdec.service import OnlineAgent

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import service_kills as faults  # pyright: ignore[reportMissingImports]


@pytest.mark.slow
@pytest.mark.extended
def test_kills_under_load_lose_nothing(tmp_path: Path) -> None:
    assert faults.kills(tmp_path, count=2, clients=3) == []


@pytest.mark.slow
def test_exceptions_under_load_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frequent = functools.partial(OnlineAgent, snapshot_every=faults.SNAPSHOT_EVERY)
    monkeypatch.setattr(deployments, "OnlineAgent", frequent)
    assert faults.exceptions(tmp_path, clients=2, seconds=4) == []
