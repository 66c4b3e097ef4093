"""`minimum(shared=True)`: several processes work on one search."""

import contextlib
import itertools
import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from seqdec.bo import BayesianOptimizer, study
from tests.bo.common import SQUARE, minimum
from tests.bo.searches import differences
from tests.bo.shared import CALLS
from tests.databases import Cluster

ROOT = Path(__file__).resolve().parents[2]
_NAMES = itertools.count()


@pytest.fixture(params=["file", "postgres"])
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return str(tmp_path / "study")
    return f"{request.getfixturevalue('postgres').url}#study {next(_NAMES)}"


def bowl(x: Any) -> float:
    return float((x[0] - 0.3) ** 2 + (x[1] - 0.4) ** 2)


def failing(*_: Any) -> float:
    pytest.fail("called")


def shared(checkpoint: str, fun: Callable[..., Any] = bowl, **options: Any) -> Any:
    return minimum(fun, SQUARE, checkpoint=checkpoint, **{"n_calls": 6, "initial": 6, "shared": True, **options})


@pytest.mark.slow
def test_four_processes_of_which_one_is_killed(checkpoint: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.bo.shared", checkpoint, str(tmp_path / "calls"), "4"]
    jobs = [
        subprocess.Popen([*command, *["kill"] * (not number)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for number in range(4)
    ]
    try:
        said = [job.communicate(timeout=60)[0] for job in jobs]
    finally:
        for job in jobs:
            job.kill()
    assert [job.returncode for job in jobs] == [-signal.SIGKILL, 0, 0, 0]
    assert said[1] == said[2] == said[3]
    _, _, count, _, values, points = json.loads(said[1])
    assert count == CALLS == len(values)
    calls = [line.split(maxsplit=1) for line in (tmp_path / "calls").read_text().splitlines()]
    lost = [x for pid, x in calls if int(pid) == jobs[0].pid]
    assert len(lost) == 1
    assert Counter(x for _, x in calls) == Counter([str(x) for x in points] + lost)
    assert len({str(x) for x in points}) == CALLS
    assert {path.name for path in tmp_path.iterdir()} <= {"calls", "study", ".study.lock"}


def test_one_process_asks_what_it_would_ask_alone(checkpoint: str) -> None:
    alone, first = minimum(bowl, SQUARE), minimum(bowl, SQUARE, n_calls=5, checkpoint=checkpoint, shared=True)
    assert first.nfev == 5
    result = minimum(bowl, SQUARE, checkpoint=checkpoint, shared=True, seed=None)
    assert differences(result, alone) == []
    assert differences(minimum(failing, SQUARE, checkpoint=checkpoint, shared=True), alone) == []


def test_a_process_waits_for_the_calls_of_others_up_to_its_time_limit(checkpoint: str) -> None:
    others: list[Any] = []

    def fun(x: Any) -> float:
        if not others:
            others.append(None)
            others[0] = shared(checkpoint, seed=None, time_limit=1)
        return bowl(x)

    result = shared(checkpoint, fun)
    assert others[0].message.startswith("time_limit of 1 seconds over: 5 calls made")
    assert result.nfev == 6 and result.message.startswith("6 calls made")
    assert len({tuple(x) for x in result.x_iters}) == 6


def test_a_value_counts_once_where_another_took_the_process_for_dead(tmp_path: Path) -> None:
    others: list[Any] = []

    def fun(x: Any) -> float:
        if not others:
            for claim in tmp_path.glob(".study-*"):
                shutil.rmtree(claim)
            others.append(None)
            others[0] = shared(str(tmp_path / "study"))
        return bowl(x)

    result = shared(str(tmp_path / "study"), fun)
    assert differences(result, others[0]) == [] and result.nfev == 6 == len(others[0].x_iters)


def test_a_call_that_raises_is_made_again_by_another(checkpoint: str) -> None:
    seen: list[Any] = []

    def raising(x: Any) -> float:
        seen.append(x)
        if len(seen) == 3:
            raise ArithmeticError("diverged")
        return bowl(x)

    with pytest.raises(ArithmeticError) as error:
        shared(checkpoint, raising)
    assert vars(error.value)["search_result"].nfev == 3
    result = shared(checkpoint, raising)
    assert result.nfev == 6 and list(seen[2]) == list(seen[3]) and len(seen) == 7


def test_limits_count_the_calls_of_all(checkpoint: str) -> None:
    heard: list[int] = []
    options = {"max_failures": 2, "catch": ZeroDivisionError}

    def fun(x: Any) -> float:
        if not heard:
            heard.append(0)
            heard[0] = shared(checkpoint, fun, time_limit=1, **options).nfev
        return 1 / 0

    result = shared(checkpoint, fun, **options)
    assert heard == [2] and result.nfev == 3 and result.message.startswith("3 calls in a row failed")


def test_a_callback_ends_the_search_of_all(checkpoint: str) -> None:
    def fun(x: Any) -> float:
        inside = shared(checkpoint, callback=lambda x: True, time_limit=1)
        assert inside.nfev == 1
        return bowl(x)

    result = shared(checkpoint, fun)
    assert result.nfev == 2 and result.message.startswith("callback returned True")


def test_who_does_not_share_keeps_others_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "_PATIENCE", 0.1)
    path = str(tmp_path / "study")

    def refused(x: Any, message: str, **options: Any) -> float:
        with pytest.raises(FileExistsError, match=message):
            shared(path, failing, **options)
        return bowl(x)

    shared(path, lambda x: refused(x, "or pass shared=True in each process of one search"), shared=False, n_calls=2)
    shared(path, lambda x: refused(x, "wait, or pass shared=True", shared=False), n_calls=4)
    assert shared(path, n_calls=6, shared=False).nfev == 6
    assert [found.name for found in tmp_path.iterdir()] == ["study"]
    assert len(BayesianOptimizer.load(path).trials) == 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"checkpoint": None}, "shared=True needs a checkpoint"),
        ({"workers": 2}, "evaluates one point at a time.*got workers=2 for 1 points"),
        ({"batch_size": 3}, "evaluates one point at a time.*got workers=1 for 3 points"),
        ({"shared": "yes"}, "shared must be"),
        ({"seed": 1}, "seed is 0 there and 1 here"),
        ({"checkpoint": "postgresql://ann:secret@host/database"}, "with the name of a study, as postgresql://"),
        ({"checkpoint": "postgresql://ann:se#cret@host/database"}, "with the name of a study, as postgresql://"),
        ({"checkpoint": "postgresql://ann:secret@host:x/database#study"}, r"study' in|with the name"),
    ],
)
def test_what_cannot_be_shared_is_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    shared(str(tmp_path / "study"), n_calls=1)
    with pytest.raises((ValueError, TypeError, ConnectionError), match=message) as error:
        shared(**{"checkpoint": str(tmp_path / "study"), "fun": failing, **options})
    assert "cret" not in str(error.value)
    assert not list(tmp_path.glob(".study-*"))


def disconnect(postgres: Cluster) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'seqdec'")


def test_a_lost_connection_loses_no_value(postgres: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    exclusive, sections = study._Row.exclusive, itertools.count()

    def fun(x: Any) -> float:
        seen.append(tuple(x))
        if len(seen) == 5:
            disconnect(postgres)
        return bowl(x)

    @contextlib.contextmanager
    def failing_at_times(self: Any) -> Iterator[None]:
        with exclusive(self):
            yield
            number = next(sections)
            if number in (3, 9):  # a question and an answer, before the end of the transaction
                disconnect(postgres)
        if number in (5, 7):  # an answer and a question, after it
            raise study.LostError

    monkeypatch.setattr(study._Row, "exclusive", failing_at_times)
    monkeypatch.setattr(study, "_PAUSE", 0.01)
    result = shared(f"{postgres.url}#lost", fun)
    assert result.nfev == 6 == len(seen) and seen == [tuple(x) for x in result.x_iters]
    assert differences(result, minimum(bowl, SQUARE, n_calls=6, initial=6)) == []


def test_threads_share_a_file_too(tmp_path: Path) -> None:
    found: list[Any] = []
    begun: set[int] = set()

    def fun(x: Any) -> float:
        begun.add(threading.get_ident())
        while len(begun) < 2:
            time.sleep(0.01)
        return bowl(x)

    threads = [threading.Thread(target=lambda: found.append(shared(str(tmp_path / "study"), fun))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert differences(*found) == [] and len({tuple(x) for x in found[0].x_iters}) == 6 == found[0].nfev
