"""Calls over HTTP: what a client gets, and what it is refused."""

import contextlib
import http.client
import json
import random
import shutil
import socket
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from seqdec.client import Client, RefusedError
from seqdec.serve import deployments
from seqdec.serve.access import new_key
from seqdec.serve.application import application, run
from seqdec.serve.calls import CALLS
from seqdec.serve.config import Declaration, read
from seqdec.serve.connections import server
from seqdec.serve.openapi import openapi
from tests.serve.conftest import DEPLOYMENTS, NUMBERS, Running, in_thread, serving, settings
from tests.serve.test_page import get

KEPT = Path(__file__).parent / "openapi.json"
POINT = [0.5, -0.5]


def sent(served: Running, path: str, body: bytes | None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    """Status and content of a request as it is."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    given = {"Content-Type": "application/json", "Authorization": f"Bearer {served.keys['operator']}"}
    with contextlib.closing(connection):
        connection.request("GET" if body is None else "POST", path, body, {**given, **(headers or {})})
        response = connection.getresponse()
        content = response.read()
    is_json = response.headers.get_content_type() == "application/json"
    return response.status, json.loads(content) if is_json else content


def refused(client: Client, path: str, body: Any = None) -> tuple[int, str]:
    with pytest.raises(RefusedError) as found:
        client.call(path, body)
    return found.value.status, str(found.value)


def test_decisions_and_rewards_go_round(served: Running) -> None:
    client = served.client("decider")
    decision = client.decide("numbers", POINT, mask=["left", 3])
    assert decision["action"] in ("left", 3) and 0 < decision["propensity"] <= 1
    assert client.learn("numbers", decision["token"], 1.5) == "learned"
    assert client.learn("numbers", decision["token"], 1.5) == "repeated"
    assert client.learn("numbers", "1-00", 1.0) == "unknown"
    first, again = (client.decide("numbers", POINT, key="ann/1") for _ in range(2))
    assert first == again
    other = client.decide("shop", {"age": 30, "city": "Rome"})
    assert client.learn("shop", other["token"], {"click": 1}) == "collected"
    assert client.learn("numbers", other["token"], 1.0) == "unknown"  # tokens belong to a deployment


def test_many_are_decided_and_learned(served: Running) -> None:
    client = served.client("decider")
    rows = [{"context": POINT, "key": f"many/{place}"} for place in range(5)]
    decisions = client.call("/v1/numbers/decide_many", {"rows": rows})["decisions"]
    assert client.call("/v1/numbers/decide_many", {"rows": rows})["decisions"] == decisions
    reports = [{"token": one["token"], "reward": 0.5} for one in decisions]
    assert client.call("/v1/numbers/learn_many", {"reports": reports})["results"] == ["learned"] * 5
    status, message = refused(client, "/v1/numbers/decide_many", {"rows": [*rows, {"context": POINT}]})
    assert status == 422 and "key" in message


def test_what_is_refused_says_why(served: Running) -> None:
    client = served.client()
    cases = [
        ("/v1/numbers/decide", {"context": [0.5]}, 422, "shape"),
        ("/v1/numbers/decide", {}, 422, "give a context"),
        ("/v1/numbers/decide", {"context": POINT, "mask": ["up"]}, 422, "left"),
        ("/v1/numbers/decide", {"context": POINT, "contxt": 1}, 422, "contxt: unknown key; did you mean 'context'?"),
        ("/v1/shop/decide", {"context": {"age": 30, "town": "Rome"}}, 422, "unknown column of the context 'town'"),
        ("/v1/numbers/challenger", None, 409, "declare challenger"),
        ("/v1/numbers/comparison", None, 409, "declare apprentice = true"),
        ("/v1/numbers/restore", {"relearn": True}, 409, "archive it before"),
        ("/v1/numbers/decide", {"context": POINT, "mask": []}, 422, "at least one"),
        ("/v1/numbers/decide", {"context": [True, 0.5]}, 422, "context"),
        ("/v1/numbers/learn", {"token": "1-00", "reward": "1"}, 422, "reward"),
        ("/v1/numbers/learn", {"token": "1-00", "reward": {"click": 1}}, 422, "a number"),
        ("/v1/shop/learn", {"token": "1-00", "reward": {"click": 2}}, 422, "from 0 to 1"),
        ("/v1/shop/learn", {"token": "1-00", "reward": {"buy": 1}}, 422, "click"),
        ("/v1/other/decide", {"context": POINT}, 404, "other"),
        ("/v1/numbers/nothing", {}, 404, "nothing"),
        ("/v1/numbers/decide", None, 405, "GET"),
        ("/v1", {"name": "numbers", "declaration": {"arms": [1, 2]}}, 409, "open"),
        ("/v1", {"name": "new", "declaration": {"arms": ["a"], "agent": "os:system"}}, 422, "--trust"),
        ("/v1", {"name": "new", "declaration": {"arms": ["a"], "settings": {"policy": "os:system"}}}, 422, "--trust"),
        ("/v1", {"name": "new", "declaration": {"arms": ["a"], "agent": "lienar"}}, 422, "linear"),
    ]
    for path, body, status, message in cases:
        found = refused(client, path, body)
        assert found[0] == status and message in found[1], (path, body, found)


def test_one_bad_request_spoils_no_other(served: Running) -> None:
    """Requests that are decided together succeed or fail alone."""
    import threading

    results: dict[int, Any] = {}

    def ask(place: int) -> None:
        context = POINT if place % 3 else [0.5, 0.5, 0.5]
        with Client(f"http://127.0.0.1:{served.port}", key=served.keys["decider"], timeout=60) as client:
            try:
                results[place] = client.decide("numbers", context)["action"]
            except RefusedError as error:
                results[place] = error.status

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((results[place] == 422) is (place % 3 == 0) for place in range(30))


def test_arms_come_and_go_by_name(served: Running) -> None:
    client = served.client()
    assert "up" in client.call("/v1/shop/add_arm", {"name": "up"})["arms"]
    assert "up" not in client.call("/v1/shop/remove_arm", {"name": "up"})["arms"]


def test_explanations_logs_and_counts_are_read(served: Running, tmp_path: Path) -> None:
    from seqdec.ope import Log

    client = served.client("reader")
    found = client.call("/v1/shop/explain", {"context": {"age": 40, "city": "Oslo"}})["actions"]
    assert {one["action"] for one in found} == {"sale", "news"}
    assert set(found[0]["contributions"]) == {"age", "city"}
    deciding = served.client("decider")
    deciding.learn("numbers", deciding.decide("numbers", POINT)["token"], 2.0)
    (tmp_path / "log.parquet").write_bytes(client.call("/v1/numbers/log.parquet"))
    log = Log.load(tmp_path / "log.parquet")
    assert not client.call("/v1/numbers/diagnostics")["alarms"]  # in a short log
    about = client.call("/v1/numbers")
    assert 0 < len(log) <= about["counts"]["decisions"] and about["arms"] == ["left", "right", 3]
    assert [one["name"] for one in client.call("/v1")["deployments"]][:2] == ["numbers", "shop"]
    assert b'seqdec_requests_total{call="decide",status="200"}' in client.call("/metrics")


def test_an_apprentice_plays_only_what_is_taken_before_the_word(served: Running) -> None:
    client, decider = served.client(), served.client("decider")
    status, message = refused(decider, "/v1/taught/decide", {"context": POINT})
    assert status == 422 and "send the arm that today's rule plays" in message
    assert refused(decider, "/v1/taught/decide", {"context": POINT, "taken": "older"})[0] == 422
    assert refused(decider, "/v1/taught/decide", {"context": POINT, "taken": "old", "chance": 0})[0] == 422
    assert refused(decider, "/v1/numbers/decide", {"context": POINT, "taken": "left"})[0] == 422
    assert refused(client, "/v1/taught/comparison")[0] == 422  # nothing yet
    for place in range(20):
        chance = 0.8 if place % 5 else 0.2
        arm = "old" if place % 5 else "new"
        decision = decider.decide("taught", POINT, taken=arm, chance=chance)
        assert (decision["action"], decision["propensity"]) == (arm, chance)
        decider.learn("taught", decision["token"], float(arm == "new"))
    rows = [{"context": POINT, "taken": arm, "chance": 0.5} for arm in ("new", "old")]
    many = decider.call("/v1/taught/decide_many", {"rows": rows})["decisions"]
    assert [one["action"] for one in many] == ["new", "old"]
    found = client.call("/v1/taught/comparison")
    assert found["decision"] == "cannot decide" and "Cannot decide: 10 rows are worth" in found["verdict"]
    assert refused(decider, "/v1/taught/take_over", {})[0] == 403
    assert refused(client, "/v1/numbers/take_over", {})[0] == 409
    assert client.call("/v1/taught")["imitates"]


def test_an_apprentice_takes_over_on_a_word_that_lasts(tmp_path: Path) -> None:
    taught = DEPLOYMENTS[DEPLOYMENTS.index("[deployments.taught]") :]

    def news(client: Client) -> int:
        asked = [client.decide("taught", POINT, taken="old") for _ in range(40)]
        return sum(one["action"] == "new" for one in asked)

    with serving(tmp_path, taught) as running:
        client = running.client()
        assert not news(client)
        assert not client.call("/v1/taught/take_over", {})["imitates"]
        assert news(client)
        assert client.decide("taught", POINT)["action"] in ("old", "new")
    with serving(tmp_path, taught) as running:
        client = running.client()
        assert news(client)
        assert client.call("/v1/taught/hand_back", {})["imitates"]
        assert not news(client)
    audit = [json.loads(line)["call"] for line in (tmp_path / "data" / "audit.jsonl").read_text().splitlines()]
    assert audit == ["take_over", "hand_back"]


def test_a_declaration_that_changes_is_relearned_on_a_word(tmp_path: Path) -> None:
    with serving(tmp_path, NUMBERS) as running:
        client = running.client()
        assert client.call("/v1/numbers/compact", {"older_than": 60}) == {"count": 0}
        assert client.learn("numbers", client.decide("numbers", POINT)["token"], 1.0) == "learned"
    file, keys = settings(tmp_path, f"{NUMBERS}\nbatch_size = 8\nretention = 7776000\n")
    found = read(file)
    with in_thread(server(application(found), found.settings.server)) as port:
        client = Client(f"http://127.0.0.1:{port}", key=keys["operator"], timeout=60)
        until = time.monotonic() + 60
        while (about := client.call("/v1/numbers"))["state"] == "opening" and time.monotonic() < until:
            time.sleep(0.05)
        assert about["state"] == "failed"
        assert 'relearn=True, POST /v1/numbers/restore {"relearn": true}' in about["reason"]
        assert str(tmp_path) not in about["reason"] and "numbers/agent/decisions.sqlite was written" in about["reason"]
        status, said = refused(client, "/v1/numbers/restore", {})
        assert status == 503 and "has failed" in said
        assert client.call("/v1/numbers/restore", {"relearn": True})["counts"]["rewards"] == 1
        client.close()


def test_a_damaged_log_is_no_fault_of_the_client(tmp_path: Path) -> None:
    with serving(tmp_path, NUMBERS) as running:
        client = running.client()
        status, said = refused(client, "/v1/numbers/log.parquet")
        assert status == 422 and "numbers/agent/decisions.sqlite has no decision with a pr" in said
        assert str(tmp_path) not in said
        token = client.decide("numbers", POINT)["token"]
        path = tmp_path / "data" / "deployments" / "numbers" / "agent" / "decisions.sqlite"
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.execute("UPDATE decisions SET propensity = propensity / 2")
        assert refused(client, "/v1/numbers/learn", {"token": token, "reward": 1})[0] == 503


def test_a_control_group_is_of_units(served: Running) -> None:
    client, decider = served.client(), served.client("decider")
    declaration = {"arms": ["a", "b"], "context": {"size": 2}, "agent": "linear", "control": {"share": 0.5, "arm": "b"}}
    for wrong in ({"share": 1.0}, {"share": 0.5, "arm": "c"}):
        status, _ = refused(client, "/v1", {"name": "held", "declaration": {**declaration, "control": wrong}})
        assert status == 422
    client.call("/v1", {"name": "held", "declaration": declaration})
    assert "send the unit of the decision" in refused(decider, "/v1/held/decide", {"context": POINT})[1]
    assert refused(decider, "/v1/numbers/decide", {"context": POINT, "unit": "ann"})[0] == 422
    assert refused(client, "/v1/held/control")[0] == 422  # nothing yet
    rows = [{"context": POINT, "unit": f"user {n % 40}"} for n in range(80)]
    made = [decider.call("/v1/held/decide_many", {"rows": part})["decisions"] for part in (rows[:40], rows[40:])]
    certain = [[one["propensity"] == 1 for one in part] for part in made]
    assert certain[0] == certain[1] and 0 < sum(certain[0]) < 40
    for part in made:
        for one in part:
            decider.learn("held", one["token"], float(one["action"] == "a"))
    found = client.call("/v1/held/control")
    assert found["decision"] == "cannot decide" and "40 rows" in found["verdict"]  # the later half
    found = client.call("/v1/held/report")
    assert found["control"]["rows"] == 40 and found["control"]["total"] is not None and found["challenger"] is None
    assert found["arms"]["verdict"].startswith("Arm 'a' is best")
    client.call("/v1/held/archive", {})


def test_a_challenger_is_compared_and_takes_over_on_a_word_that_lasts(tmp_path: Path) -> None:
    challenged = """
[deployments.shop]
arms = ["a", "b"]
context.size = 2
rewards = { low = 0, high = 1 }
agent = "linear"
explore = { share = 0.5 }
challenger = { agent = "linear", settings = { policy = "ucb" } }
"""
    with serving(tmp_path, challenged) as running:
        client = running.client()
        assert refused(client, "/v1/shop/challenger")[0] == 422  # nothing yet
        for _ in range(2):
            made = client.call("/v1/shop/decide_many", {"rows": [{"context": POINT}] * 40})["decisions"]
            assert all(0.09 < one["propensity"] < 0.91 for one in made)  # of the floor
            reports = [{"token": one["token"], "reward": float(one["action"] == "a")} for one in made]
            client.call("/v1/shop/learn_many", {"reports": reports})
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with contextlib.suppress(RefusedError):
                found = client.call("/v1/shop/challenger")
                break
            time.sleep(0.1)
        assert found["decision"] in ("better", "worse", "no difference shown", "cannot decide")
        status, text, _ = get(running, "/deployments/shop/report", running.keys["reader"])
        assert status == 200 and "Would the challenger have earned more" in text and "Arm &#x27;a&#x27; is best" in text
        assert "/report" in get(running, "/deployments/shop", running.keys["reader"])[1]
        answers = client.call("/v1/shop/report")
        assert answers["arms"]["decided"] and answers["arms"]["rows"] == 80 and answers["control"] is None
        assert answers["challenger"]["difference"]["low"] <= answers["challenger"]["difference"]["high"]
        assert client.call("/v1/shop/take_over", {})["took_over"]
        about = client.call("/v1/shop/take_over", {})
        assert about["state"] == "open" and about["counts"]["rewards"] == 80
        last = client.decide("shop", POINT)["token"]
    with serving(tmp_path, challenged) as running:
        client = running.client()
        assert client.learn("shop", last, 1.0) == "learned"
        assert not client.call("/v1/shop/hand_back", {})["took_over"]
        declaration = {"arms": ["a", "b"], "challenger": {"agent": "linear"}, "apprentice": True}
        assert refused(client, "/v1", {"name": "both", "declaration": declaration})[0] == 422


def test_shares_and_arms_that_are_off_are_kept(served: Running) -> None:
    """By the law that is logged, in single decisions and many, whatever mask a request has."""
    client = served.client()
    columns = {"city": {"kind": "categorical", "levels": ["Oslo", "Rome"]}, "adult": {"kind": "bool"}}
    declaration: Any = {"arms": ["a", "b", 3], "context": {"columns": columns}, "agent": "linear"}
    declaration |= {"shares": {"floor": 0.1, "ceiling": {"3": 0.3}}, "off": {"b": {"city": ["Rome"], "adult": False}}}
    for part, message in (
        ({"shares": {"floor": {"c": 0.1}}}, "'c'"),
        ({"shares": {"floor": 0.4}}, "no probabilities of 3 arms"),
        ({"shares": {"ceiling": 0.3}}, "no probabilities of 3 arms"),
        ({"off": {"c": {"city": "Rome"}}}, "'c'"),
        ({"off": {"b": {"city": "Paris"}}}, "city=Paris"),
        ({"off": {"b": {"town": "Rome"}}}, "'town'"),
        ({"report": {"segments": ["town"]}}, "'town'"),
        ({"report": {"decisions": 3}}, "go together"),
        ({"context": {"size": 2}}, "declare columns"),
    ):
        status, said = refused(client, "/v1", {"name": "kept", "declaration": {**declaration, **part}})
        assert status == 422 and message in said, said
    client.call("/v1", {"name": "kept", "declaration": {**declaration, "report": {"segments": ["city"]}}})
    rome, child, free = ({"city": "Rome", "adult": True}, {"adult": 0}, {"city": "Oslo", "adult": True})
    made = client.call("/v1/kept/decide_many", {"rows": [{"context": one} for one in (rome, child, free) * 60]})
    actions = [[one["action"] for one in made["decisions"][place::3]] for place in range(3)]
    assert {"a", 3} == set(actions[0]) == set(actions[1]) and set(actions[2]) == {"a", "b", 3}
    found = {one["action"]: one["probability"] for one in client.call("/v1/kept/explain", {"context": rome})["actions"]}
    assert not found["b"] and 0.1 <= found[3] <= 0.3 + 1e-6
    assert client.call("/v1/kept/decide", {"context": rome, "mask": ["b", 3]})["action"] == 3
    assert "at least one of the arms" in refused(client, "/v1/kept/decide", {"context": rome, "mask": ["b"]})[1]
    assert refused(client, "/v1/kept/remove_arm", {"name": "b"})[0] == 409
    client.learn("kept", made["decisions"][0]["token"], 1.0)
    assert [one["segment"] for one in client.call("/v1/kept/report")["arms"]["segments"]] == ["city=Rome"]
    client.call("/v1/kept/archive", {})


def test_a_conservative_deployment_begins_with_control(served: Running) -> None:
    client = served.client()
    declaration: Any = {"arms": ["new", "today"], "agent": "linear", "rewards": {"low": 0, "high": 2}}
    declaration |= {"conservative": {"arm": "today", "late": 50, "loss": 0.2}}
    for part, message in (
        ({"conservative": {"arm": "other", "late": 50}}, "'other'"),
        ({"conservative": {"arm": "today"}}, "late"),
        ({"conservative": {"arm": "today", "late": 5, "loss": 0.5, "share": 0.6}}, "below 1 together"),
        ({"rewards": {"low": -1, "high": 2}}, "rewards from 0 on"),
        ({"rewards": {}}, "rewards from 0 on"),
        ({"shares": {"floor": 0.1}}, "without shares"),
    ):
        status, said = refused(client, "/v1", {"name": "careful", "declaration": {**declaration, **part}})
        assert status == 422 and message in said, said
    client.call("/v1", {"name": "careful", "declaration": declaration})
    found = {one["action"]: one["probability"] for one in client.call("/v1/careful/explain", {})["actions"]}
    assert found["today"] >= 0.8 - 1e-6 and found["new"] <= 0.2 + 1e-6
    assert refused(client, "/v1/careful/remove_arm", {"name": "today"})[0] == 409
    client.call("/v1/careful/archive", {})


def test_deployments_are_created_archived_and_restored(served: Running) -> None:
    client = served.client()
    declaration = {"arms": ["a", "b"], "context": {"size": 2}, "agent": "linear"}
    client.call("/v1", {"name": "made", "declaration": declaration})
    token = client.decide("made", POINT)["token"]
    assert client.call("/v1/made/archive", {})["state"] == "archived"
    assert refused(client, "/v1/made/decide", {"context": POINT})[0] == 503
    assert client.call("/v1/made/restore", {})["state"] == "open"
    assert client.learn("made", token, 1.0) == "learned"


def test_each_role_may_do_its_own(served: Running) -> None:
    allowed = {"read": {"reader", "operator"}, "decide": {"decider", "operator"}, "operate": {"operator"}}
    for call in CALLS:
        for role in (None, *served.keys):
            path = call.path.replace("{deployment}", "absent")
            try:
                served.client(role).call(path, None if call.takes is None else {"no": 1})
                status = 200
            except RefusedError as error:
                status = error.status
            if call.right is None:
                assert status == 200
            elif role is None:
                assert status == 401
            else:
                assert (status == 403) is (role not in allowed[call.right]), (call.path, role, status)


def test_operators_calls_are_in_the_audit(served: Running) -> None:
    served.client().call("/v1/shop/add_arm", {"name": "audited"})
    served.client().call("/v1/shop/remove_arm", {"name": "audited"})
    path = served.folder / "audit.jsonl"
    last = json.loads(path.read_text().splitlines()[-1])
    assert (last["key"], last["call"], last["deployment"], last["status"]) == ("operator", "remove_arm", "shop", 200)
    assert path.stat().st_mode & 0o077 == 0


def test_bodies_are_limited_and_are_json(served: Running) -> None:
    path = "/v1/numbers/decide"
    assert sent(served, path, b'{"context": [NaN, 0]}')[0] == 400
    assert sent(served, path, b'{"context": [1e999, 0]}')[0] == 400
    assert sent(served, path, b'{"context": [' + b"9" * 400 + b", 0]}")[0] == 400
    assert sent(served, path, b'{"context": ' + b"[" * 100_000)[0] == 400
    assert sent(served, path, b'{"context": ' + b"[" * 50 + b"]" * 50 + b"}")[0] == 422
    assert sent(served, path, b" " * 2**21)[0] == 413
    assert sent(served, path, b"{}", {"Content-Type": "text/plain"})[0] == 415
    assert sent(served, path, b"\xff")[0] == 400
    assert sent(served, path, b'{"context": [99999999999999999999999, 0]}')[0] == 422


def test_other_hosts_and_rates_are_refused(tmp_path: Path) -> None:
    with serving(tmp_path, "", 'hosts = ["bandit.example"]\nrate = 5') as limited:
        assert sent(limited, "/v1", None)[0] == 421
        statuses = [sent(limited, "/v1", None, {"Host": "bandit.example:80"})[0] for _ in range(12)]
        assert 5 <= statuses.count(200) < 12 and statuses.count(429) == 12 - statuses.count(200)


def test_half_requests_end_and_idle_connections_give_way(tmp_path: Path) -> None:
    with serving(tmp_path, "", "connections = 20\npatience = 1.0") as small:
        half = [socket.create_connection(("127.0.0.1", small.port)) for _ in range(60)]
        for one in half[40:]:
            one.sendall(b"POST /v1 HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n")
        assert sent(small, "/health", None)[0] == 200
        half[-1].settimeout(5)
        assert half[-1].recv(1) == b""  # ended after a second
        endless = socket.create_connection(("127.0.0.1", small.port), timeout=5)
        endless.sendall(b"GET /health HTTP/1.1\r\nHost: " + b"x" * 2**17)
        with contextlib.suppress(ConnectionResetError):
            assert endless.recv(1) == b""
        for one in (*half, endless):
            one.close()


def test_more_waits_than_may_is_refused(tmp_path: Path) -> None:
    import asyncio
    import threading

    from seqdec.serve.queue import Batches, FullError

    async def full() -> None:
        free = threading.Event()
        batches = Batches("test", lambda rows: [free.wait() and row for row in rows], most=2, room=4)
        asked = [asyncio.ensure_future(batches.ask([place, place])) for place in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(FullError):
            await batches.ask([3])
        free.set()
        assert await asyncio.gather(*asked) == [[0, 0], [1, 1]]
        batches.close()
        with pytest.raises(RuntimeError):
            await batches.ask([4])
        assert await asyncio.to_thread(batches.join, 5)

    asyncio.run(full())


def test_a_batch_has_all_that_the_loop_still_brings() -> None:
    import asyncio
    import time

    from seqdec.serve.queue import Batches

    async def sizes() -> list[int]:
        made: list[int] = []
        batches = Batches("test", lambda rows: made.append(len(rows)) or rows, most=8, room=100)
        asked = []
        for place in range(12):  # one more at every turn
            asked.append(asyncio.ensure_future(batches.ask([place])))
            time.sleep(0.001)  # in which the thread could begin
            await asyncio.sleep(0)
        assert await asyncio.gather(*asked) == [[place] for place in range(12)]
        batches.close()
        return made

    assert asyncio.run(sizes()) == [8, 4]


def test_settings_are_refused_by_their_key(tmp_path: Path) -> None:
    file, _ = settings(tmp_path, f"{NUMBERS}\nseed = 1  \n")
    text = file.read_text()
    cases = {
        'agent = "linear"': ('agent = "linaer"', "deployments.numbers: .*'linear'"),
        "size = 2": ("size = -2", "deployments.numbers.context.size"),
        'role = "reader"': ('role = "rader"', "keys.reader.role"),
        "port = 0": ("prt = 0", "server.prt"),
        '"left"': ('"right"', "differ"),
        "seed = 1": (
            "retention = 50\nrewards = { window = 60, default = 0 }",
            "retention must be at least rewards.window",
        ),
        "seed = 1 ": ("rewards = { window = 60 }", "a window requires a default"),
        "seed = 1  ": ("rewards = { default = 0 }", "require a window"),
    }
    for old, (new, message) in cases.items():
        file.write_text(text.replace(old, new))
        with pytest.raises(ValueError, match=message):
            read(file)
    file.write_text('[server]\nhost = "0.0.0.0"')
    with pytest.raises(ValueError, match="keys"):
        read(file)
    file.write_text("[server")
    with pytest.raises(ValueError, match="TOML"):
        read(file)


def test_a_server_learns_the_log_of_an_agent_first(tmp_path: Path) -> None:
    import seqdec
    from seqdec.serve.deployments import opened

    declared = read(settings(tmp_path)[0]).settings.deployments["numbers"]
    with opened(declared, tmp_path / "old") as agent:
        agent.learn(agent.decide(POINT).token, 1.0)
    text = f'{NUMBERS}log = "{tmp_path / "old" / "decisions.sqlite"}"\n'
    with serving(tmp_path, text) as running:
        assert running.client().call("/v1/numbers")["counts"]["rewards"] == 1
    assert len(seqdec.service.read_log(running.folder / "deployments" / "numbers" / "agent")) == 1


def test_a_port_in_use_is_refused_before_anything_is_opened(served: Running, tmp_path: Path) -> None:
    file, _ = settings(tmp_path)
    file.write_text(file.read_text().replace("port = 0", f"port = {served.port}"))
    with pytest.raises(ValueError, match=f"server.port = {served.port}: "):
        run(read(file))
    assert not (tmp_path / "data").exists()


def test_a_missing_file_of_settings_names_the_remedy(tmp_path: Path) -> None:
    from seqdec.commands.serve import Serve

    with pytest.raises(FileNotFoundError, match=r"no such file: .*shop.toml. .* --init shop.toml writes an example"):
        Serve(tmp_path / "shop.toml").execute()
    with pytest.raises(FileNotFoundError, match=r"is a folder\. Pass a file"):
        Serve(tmp_path).execute()
    (tmp_path / "shop.toml").touch()
    with pytest.raises(FileExistsError, match="exists already"):
        Serve(tmp_path / "shop.toml", init=True).execute()


def test_two_keys_are_valid_while_they_rotate(tmp_path: Path) -> None:
    from seqdec.serve.access import Access, RefusedError
    from seqdec.serve.config import Settings

    (old, first), (new, second) = new_key(), new_key()
    key = {"role": "decider", "sha256": [first, second], "deployments": ["a"]}
    access = Access(Settings.model_validate({"keys": {"shop": key}}), tmp_path / "audit")
    for one in (old, new):
        caller = access.caller(f"Bearer {one}", "")
        access.check(caller, "decide", "a")
        with pytest.raises(RefusedError, match="deployments"):
            access.check(caller, "decide", "b")
    with pytest.raises(RefusedError):
        access.caller(f"Bearer {first}", "")


def test_the_description_of_version_1_stays() -> None:
    """Rewrite tests/serve/openapi.json only for additions: clients of v1 are out there."""
    assert json.loads(json.dumps(openapi(CALLS))) == json.loads(KEPT.read_text(encoding="utf-8"))


PIECES: list[Any] = [
    None, True, 0, -1, 1.5, 1e300, 2**63, "", "left", "a" * 300, "\x00", [], {}, [0.5, 0.5], [None], ["left"], [[1]],
    {"age": 30}, {"age": []}, {"city": {"a": 1}}, "1-00", ["sale", "sale"],
]  # fmt: skip
RIGHT: dict[str, list[Any]] = {
    "decide": [
        {"context": POINT, "mask": ["left"], "key": "k", "active": False},
        {"context": {"age": 1, "city": "x"}},
        {"context": POINT, "taken": "old", "chance": 0.5},
        {"context": POINT, "unit": "ann"},
    ],
    "decide_many": [{"rows": [{"context": POINT}, {"context": POINT, "key": "k"}]}],
    "learn": [{"token": "1-0000000000000000", "reward": 1, "id": "a"}, {"token": "1-00", "reward": {"click": 1}}],
    "learn_many": [{"reports": [{"token": "1-00", "reward": 1}]}],
    "explain": [{"context": POINT, "items": ["a"]}, {"context": {"age": 1}}],
    "add_arm": [{"name": "left"}],
    "add_items": [{"items": {"a": [1.0]}}, {"items": {"a": [0.5, -1], "b": [1e30, 0]}}],
    "remove_items": [{"ids": ["a"]}],
    "forget": [{"keys": ["k"]}, {"older_than": 1e300}, {"keys": ["1-00"], "older_than": 3600.0}],
    "": [
        {"name": "numbers", "declaration": {"arms": ["a"], "agent": "linear", "settings": {"policy": "ucb"}}},
        {"name": "numbers", "declaration": {"items": {"size": 2}, "context": {"columns": {"a": {"kind": "bool"}}}}},
        {"name": "numbers", "declaration": {"box": {"low": [0, -1], "high": [1, 1e30]}, "rewards": {"window": 1e300}}},
    ],
}
ANY: list[Any] = [{"token": "1-00"}, {"name": "absent"}, {}]


def mutated(chance: random.Random, value: Any) -> Any:
    """A value in which a few parts are others."""
    if chance.random() < 0.15:
        return chance.choice(PIECES)
    if isinstance(value, dict):
        found = {name: mutated(chance, part) for name, part in value.items() if chance.random() < 0.95}
        return {**found, "more": 1} if chance.random() < 0.03 else found
    return [mutated(chance, part) for part in value] if isinstance(value, list) else value


@pytest.mark.sampled(20)
@pytest.mark.parametrize("seed", range(20))
def test_nothing_that_a_client_sends_is_a_fault_of_the_server(served: Running, seed: int, tmp_path: Path) -> None:
    chance, found = random.Random(seed), set()
    verbs = [call.path.rpartition("/")[2] for call in CALLS if call.takes is not None and "{" in call.path]
    verbs = [verb for verb in verbs if verb not in ("archive", "compact", "relearn")]  # compile, or close
    reads = [call.path.rpartition("/")[2] for call in CALLS if call.takes is None and "{deployment}/" in call.path]
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {served.keys['operator']}"}
    for _ in range(500):
        verb, name = chance.choice([*verbs, ""]), chance.choice(["numbers", "shop", "taught", "goods", "x", "%00"])
        name = "shop" if (verb, name) == ("forget", "numbers") else name  # whose belief is looked at below
        body = json.dumps(mutated(chance, chance.choice(RIGHT.get(verb, ANY)))).encode()
        if chance.random() < 0.05:
            body = body[: chance.randrange(len(body))] + bytes([chance.randrange(256)])
        if chance.random() < 0.02:
            connection.request("GET", f"/v1/{name}/{chance.choice(reads)}?x=%ff", headers=headers)
        else:
            connection.request("POST", f"/v1/{name}/{verb}" if verb else "/v1", body, headers)
        response = connection.getresponse()
        found.add(response.status)
        assert response.status < 500, (name, verb, body, response.read())
        response.read()
    connection.close()
    assert {200, 400, 404, 422} <= found
    client = served.client()
    client.call("/v1/taught/hand_back", {})
    assert client.call("/ready") == {"status": "ready"}
    if seed == 0:  # the belief is what the log gives
        folder = shutil.copytree(
            served.folder / "deployments/numbers/agent", tmp_path / "copy", ignore=shutil.ignore_patterns("state*")
        )
        declared = Declaration.model_validate(client.call("/v1/numbers")["declaration"])
        with contextlib.closing(deployments.opened(declared, folder)) as whole:
            found = whole.explain(POINT).mean.tolist()
        assert found == [one["mean"] for one in client.call("/v1/numbers/explain", {"context": POINT})["actions"]]


def test_the_example_answers_at_short_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "examples"))
    import service  # pyright: ignore[reportMissingImports]

    declaration = {**service.MAIN, "arms": [0, 1], "context": {"size": 2}}
    found = service.settings(tmp_path / "data", 0, declaration)
    running = server(service.shortened(application(found)), found.settings.server)
    with in_thread(running) as port, Client(f"http://127.0.0.1:{port}", timeout=60) as client:
        decision = client.call("/decide", {"context": POINT})
        assert client.call("/learn", {"token": decision["token"], "reward": 1}) == {"result": "learned"}


def test_items_and_points_are_chosen(served: Running) -> None:
    client = served.client()
    columns = {"price": {"kind": "numeric", "low": 0, "high": 10}}
    shelf = {"items": {"columns": columns}, "agent": "linear"}
    client.call("/v1", {"name": "shelf", "declaration": shelf})
    assert client.call("/v1/shelf/add_items", {"items": {"tea": {"price": 3}, "rum": {"price": 9}}})["items"] == 2
    assert client.decide("shelf", items=["rum"])["action"] == "rum"
    assert client.call("/v1/shelf/remove_items", {"ids": ["rum"]})["items"] == 1
    decision = client.decide("shelf")
    assert decision["action"] == "tea" and client.learn("shelf", decision["token"], 1.0) == "learned"
    client.call("/v1/shelf/archive", {})
    client.call("/v1", {"name": "price", "declaration": {"box": {"low": [5], "high": [20]}, "agent": "linear"}})
    assert 5 <= client.decide("price")["action"][0] <= 20
    client.call("/v1/price/archive", {})
