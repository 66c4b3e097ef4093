"""Several servers of one database."""

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import psycopg
import pytest

from seqdec.client import Client, RefusedError
from seqdec.serve.application import application
from seqdec.serve.config import read
from seqdec.serve.connections import server
from seqdec.serve.deployments import Deployment, Deployments
from tests.databases import Cluster
from tests.serve.conftest import NUMBERS, Running, in_thread, serving, settings

POINT = [0.5, -0.5]
DECLARED = {"arms": ["a", "b"], "agent": "linear"}
Pair = tuple[Running, Running]


def states(client: Client) -> set[tuple[str, str]]:
    return {(one["name"], one["state"]) for one in client.call("/v1")["deployments"]}


def wait(condition: Callable[[], object], seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "nothing happened in time"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def database(postgres: Cluster) -> str:
    """URL of a database with nothing in it."""
    with psycopg.connect(postgres.url, autocommit=True) as session:
        session.execute("CREATE DATABASE many")
    return postgres.url.replace("/postgres", "/many")


@pytest.fixture(scope="module")
def pair(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    options = f'store = "{database}"\nspool = true\n'
    with (
        serving(tmp_path_factory.mktemp("first"), NUMBERS, options) as first,
        serving(tmp_path_factory.mktemp("second"), NUMBERS, options) as second,
    ):
        yield first, second


@pytest.fixture
def held() -> Iterator[contextlib.ExitStack]:
    """What is closed in the end."""
    with contextlib.ExitStack() as held:
        yield held


def test_learning_is_spread_over_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    holders, place = dict.fromkeys("pqrstuv", "a"), read(settings(tmp_path, NUMBERS)[0])

    def opened(name: str, server: str) -> Any:
        agent = SimpleNamespace(learner=holders[name], snapshot=lambda: holders.update({name: server}))
        return SimpleNamespace(is_warm=True, state="open", agent=agent)

    for one in "abcabcabc":
        deployments = Deployments(place)
        deployments._known = {name: opened(name, one) for name in holders}
        monkeypatch.setattr("seqdec.serve.deployments.this_process", lambda one=one: one)
        deployments._spread()
    assert sorted(Counter(holders.values()).values()) == [2, 2, 3]


def test_what_waits_neither_holds_up_others_nor_fills_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    deployments, ends = Deployments(read(settings(tmp_path, NUMBERS)[0])), threading.Event()
    kept = SimpleNamespace(is_shared=True, read=lambda: {}, agent=lambda name: tmp_path)
    opened = Mock(side_effect=OSError("too many sessions"))
    monkeypatch.setattr(deployments, "_kept", kept)
    monkeypatch.setattr(deployments, "_spread", lambda: ends.wait(10))  # for a lease
    monkeypatch.setattr("seqdec.serve.deployments._LOOK", 0.01)
    monkeypatch.setattr(Deployment, "open", opened)

    async def serve() -> None:
        await deployments.open()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(deployments.follow(), 2)
        ends.set()

    asyncio.run(serve())
    assert opened.call_count > 3
    assert [one.message for one in caplog.records] == ["deployment numbers failed: too many sessions"]


def test_a_token_is_valid_at_all_servers(pair: Pair) -> None:
    first, second = (running.client() for running in pair)
    decision = first.decide("numbers", POINT, key="a")
    assert second.decide("numbers", POINT, key="a") == decision
    assert second.learn("numbers", decision["token"], 1.0) == "collected"
    assert first.learn("numbers", decision["token"], 1.0) == "repeated"
    wait(lambda: all(one.call("/v1/numbers")["counts"]["rewards"] == 1 for one in (first, second)))
    assert b'seqdec_learns{deployment="numbers"} 1.0' in first.call("/metrics")  # this process


def test_deployments_and_arms_are_those_of_all_servers(pair: Pair) -> None:
    first, second = (running.client() for running in pair)
    first.call("/v1", {"name": "made", "declaration": DECLARED})
    wait(lambda: ("made", "open") in states(second))
    assert second.decide("made")["action"] in ("a", "b")
    second.call("/v1/made/add_arm", {"name": "c"})
    wait(lambda: first.call("/v1/made")["arms"] == ["a", "b", "c"])
    first.call("/v1/made/archive", {})
    wait(lambda: second.call("/v1/made")["state"] == "archived")
    second.call("/v1/made/restore", {})
    wait(lambda: first.call("/v1/made")["state"] == "open")
    second.call("/v1/made/archive", {})
    assert first.call("/v1/made/restore", {"relearn": True})["state"] == "open"  # at once
    wait(lambda: second.call("/v1/made")["state"] == "open")


@pytest.mark.filterwarnings("ignore:.*this process decides by its last belief:RuntimeWarning")
def test_a_lost_database_is_waited_for(
    pair: Pair, postgres: Cluster, database: str, tmp_path: Path, held: contextlib.ExitStack
) -> None:
    first, second = (running.client() for running in pair)
    first.call("/v1", {"name": "gone", "declaration": DECLARED})
    wait(lambda: ("gone", "open") in states(second))
    first.call("/v1/gone/archive", {})
    wait(lambda: second.call("/v1/gone")["state"] == "archived")
    tokens = [one.decide("numbers", POINT)["token"] for one in (first, second)]
    try:
        postgres.stop()
        kept = first.decide("numbers", POINT, key="b")
        with pytest.raises(RefusedError, match="503"):
            second.learn("numbers", tokens[0], 1.0)
        first.call("/health")
        with pytest.raises(RefusedError):
            first.call("/v1/gone/restore", {})
        assert first.call("/v1/gone")["state"] == "failed" and first.call("/ready")
        file, keys = settings(tmp_path, NUMBERS, f'store = "{database}"')
        late = held.enter_context(in_thread(server(application(read(file)), read(file).settings.server)))
        third = held.enter_context(Client(f"http://127.0.0.1:{late}", key=keys["operator"]))
        third.call("/health")
        with pytest.raises(RefusedError, match="the database does not answer yet"):
            third.call("/ready")
        with pytest.raises(RefusedError, match="503"):  # and not 404
            third.decide("numbers", POINT)
    finally:
        postgres.start()
    wait(lambda: first.call("/v1/gone")["state"] == "open")
    wait(lambda: states(third) >= {("numbers", "open"), ("gone", "open")} and states(third) <= states(first))
    third.call("/ready")
    reports, results = [{"token": token, "reward": 1} for token in (kept["token"], *tokens)], list[str]()

    def report() -> object:
        with contextlib.suppress(RefusedError):  # until both are back
            results.extend(second.call("/v1/numbers/learn_many", {"reports": reports})["results"])
        return results

    wait(report)
    assert results == ["collected"] * 3 and first.decide("numbers", POINT, key="b") == kept
