"""Alarms of a service: each fault is found, healthy services are quiet."""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import seqdec
from seqdec import cli
from seqdec.core import Spaces
from seqdec.service import read_history
from seqdec.service.diagnostics import alarms, drift
from seqdec.service.logs import read_latest
from seqdec.service.summary import summary
from tests.service.histories import ENCODER, histories, services
from tests.service.services import Clock

ROWS = 800
LATE = slice(550, None)


@pytest.fixture(scope="module")
def healthy() -> dict[str, np.ndarray]:
    return services(6, ROWS, 1, 10.0)


@pytest.mark.parametrize("days", [0.5, 10.0, 40.0])
def test_healthy_services_are_quiet(days: float) -> None:
    """Though traffic follows the hour, agents learn, rewards come late, dates go on, and users come back at once."""
    parts = services(17, ROWS, int(days), days)
    users = np.arange(ROWS) // 15 * 15
    found = [alarm for one in histories(parts) for alarm in alarms(one)]
    parts |= {name: parts[name][:, users] for name in ("ages", "cities", "spent")}
    found += [alarm for one in histories(parts) for alarm in alarms(one)]
    assert len(found) <= 1, found


def collapsed(parts: dict[str, Any]) -> None:
    parts["actions"][:, LATE], parts["chances"][:, LATE] = 1, 1.0
    parts["clicks"][:, LATE] = np.random.default_rng(0).random(parts["clicks"][:, LATE].shape) < 0.1


def unreported(parts: dict[str, Any]) -> None:
    parts["delays"][:, LATE] = np.inf


def of_one_arm(parts: dict[str, Any]) -> None:
    parts["actions"][:, ::2], parts["actions"][:, 1::2] = 0, 1
    late = parts["delays"][:, LATE]
    late[:, ::2] = np.inf


def in_months(parts: dict[str, Any]) -> None:
    parts["ages"][:, LATE] *= 12


def in_cents(parts: dict[str, Any]) -> None:
    parts["spent"][:, LATE] *= 100


def in_decades(parts: dict[str, Any]) -> None:
    parts["ages"][:, LATE] /= 10


def absent(parts: dict[str, Any]) -> None:
    parts["ages"][:, LATE] = np.nan


def opened(parts: dict[str, Any]) -> None:
    cities = parts["cities"][:, LATE]
    cities[cities == 2] = 3


def queued(parts: dict[str, Any]) -> None:
    parts["delays"][:, LATE] *= 5


@pytest.mark.parametrize(
    ("fault", "kind", "subject"),
    [
        (collapsed, "choices", "<b>video</b>"),
        (unreported, "reports", ""),
        (of_one_arm, "reports", "banner"),
        (in_months, "clipped", "age"),
        (in_cents, "clipped", "spent"),
        (in_decades, "drift", "age"),
        (absent, "missing", "age"),
        (opened, "levels", "city"),
        (queued, "delays", ""),
    ],
)
def test_each_fault_is_found(
    healthy: dict[str, np.ndarray], fault: Callable[[dict[str, Any]], None], kind: str, subject: str
) -> None:
    fault(parts := {name: part.copy() for name, part in healthy.items()})
    found = [alarms(one) for one in histories(parts)]
    counts = Counter({(alarm.kind, alarm.subject) for one in found for alarm in one})
    hit = [any((alarm.kind, alarm.subject) == (kind, subject) for alarm in one) for one in found]
    assert np.mean(hit) >= 0.5, counts
    for alarm in (alarm for one in found for alarm in one):
        assert alarm.observed and alarm.cause and alarm.action and "nan" not in str(alarm)


def test_columns_that_follow_the_calendar_are_apart() -> None:
    """Declared dates, and numbers that are the hour or count up; others still drift."""
    parts = services(2, ROWS, 2, 10.0)
    in_decades(parts)
    for one in histories(parts):
        hour = one["time"].dt.hour.to_numpy(float)
        one = one.assign(clock=hour, serial=np.arange(ROWS) + 0.5)
        found: Any = drift(one)
        dates = found[[str(name).startswith(("when", "clock", "serial")) for name in found.index]]
        apart = dates.drop("when missing")
        assert apart["calendar"].all() and not apart["beyond chance"].any() and len(apart) == 8
        assert found.loc["age", "beyond chance"] and found.index[0] == "age"
        assert list(found["calendar"]) == sorted(found["calendar"])


def test_repeated_contexts_are_not_independent() -> None:
    """Sessions of a hundred rows each: a part holds two, whatever their distance."""
    (one,) = histories(services(1, ROWS, 3, 0.5))
    sessions = np.repeat(np.random.default_rng(0).normal(size=8), 100)
    assert not drift(one.assign(age=sessions)).loc["age", "beyond chance"]


def test_a_service_says_what_its_alarms_are(clock: Clock, tmp_path: Path, capsys: Any) -> None:
    """From the log of an agent: the window, the encoder and waiting reports; the command and `read_latest`."""
    site = Spaces(ENCODER.space, spaces.Discrete(2))
    options: Any = {"encoder": ENCODER, "arms": ["<a>", "b"], "reward_after": 3_600, "reward_default": 0.0}
    rng = np.random.default_rng(0)
    with seqdec.OnlineAgent("random", site, seed=0, folder=tmp_path / "log", **options) as service:
        for number in range(400):
            clock.seconds += 30
            city = "Oslo" if number % 2 or number < 300 else "Bergen"
            row = {"when": "2026-09-01", "age": rng.normal(40, 10), "city": city, "spent": 7.0}
            decision = service.decide(row)
            if number < 300:
                service.learn(decision.token, float(number % 2))
    history = read_history(tmp_path / "log")
    found = {alarm.kind: alarm for alarm in alarms(history)}
    assert set(found) == {"reports", "levels"} and found["levels"].subject == "city"
    assert re.match("no report for the last 10[01] decisions", found["reports"].observed)  # though in the last hour
    assert [alarm.kind for alarm in alarms(read_latest(tmp_path / "log", 250))] == ["reports", "levels"]
    assert len(read_latest(tmp_path / "log", 250)) == 250
    assert cli.main(["monitor", str(tmp_path / "log"), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "! no report" in said and "entropy of the choices" in said
    page = (tmp_path / "out" / "monitor.html").read_text(encoding="utf-8")
    assert 'class="warning">no report' in page and "<a>" not in page and "&lt;a&gt;" in page
    assert not alarms(history.iloc[:100])


def test_means_without_propensities_are_no_test() -> None:
    (one,) = histories(services(1, 300, 4, 3.0))
    assert not any("no test" in fact for fact in summary(one).facts)
    assert any("no test" in fact for fact in summary(one.assign(propensity=np.nan)).facts)
    assert summary(one).periods["entropy"].between(0, np.log(4)).all()
