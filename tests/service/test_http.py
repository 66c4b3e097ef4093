"""The HTTP service in examples/, with a lighter agent in this process: its routes, limits and metrics."""

import contextlib
import http.client
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn

import seqdec
from seqdec.features import Categorical, Encoder, Numeric
from seqdec.ope import make_log
from seqdec.service import read_encoder
from tests.service.services import small

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import service as example  # pyright: ignore[reportMissingImports]

JSON = {"Content-Type": "application/json"}
CONTEXT = [0.5] * 64


@contextlib.contextmanager
def served(folder: Path, **rewards: Any) -> Iterator[Any]:
    """Port and agent of a service."""
    agents = []

    def made(make: Any, site: Any, **options: Any) -> Any:
        agents.append(seqdec.OnlineAgent(small, site, **options))
        return agents[0]

    light = SimpleNamespace(OnlineAgent=made, compilation_cache=lambda folder: folder)
    patch = pytest.MonkeyPatch()
    patch.setattr(example, "seqdec", light)
    server = uvicorn.Server(uvicorn.Config(example.application(folder, **rewards), port=0, log_level="critical"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield SimpleNamespace(port=server.servers[0].sockets[0].getsockname()[1], agent=agents[0])
    finally:
        server.should_exit = True
        thread.join(30)
        patch.undo()


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Iterator[Any]:
    with served(tmp_path_factory.mktemp("service") / "folder") as site:
        yield site


def ask(site: Any, path: str, body: Any = None, headers: Any = JSON, method: str = "POST") -> tuple[int, Any]:
    content = body if isinstance(body, str | bytes) else json.dumps(body)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", site.port, timeout=30)) as connection:
        connection.request(method, path, content if method == "POST" else None, headers)
        response = connection.getresponse()
        text = response.read().decode()
        return response.status, json.loads(text) if text.startswith("{") else text


def metrics(site: Any) -> dict[str, float]:
    _, text = ask(site, "/metrics", method="GET")
    pairs = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in pairs}


def test_arms_are_listed_and_added(site):
    status, before = ask(site, "/arms", method="GET")
    assert (status, before["arms"][:10]) == (200, list(range(10)))
    assert ask(site, "/arms", {}) == (200, {"arm": len(before["arms"])})
    assert ask(site, "/arms", method="GET")[1]["arms"] == [*before["arms"], len(before["arms"])]


def test_explanations_are_json_and_log_nothing(site):
    before = site.agent.counts
    status, found = ask(site, "/explain", {"context": CONTEXT})
    assert status == 200 and site.agent.counts == before
    assert [row["action"] for row in found["actions"]] == list(site.agent.arms)
    assert sum(row["probability"] for row in found["actions"]) == pytest.approx(1, abs=1e-4)
    assert "context_63" in found["actions"][0]


def test_contexts_are_objects_where_there_is_an_encoder_and_a_log_is_learned_first(tmp_path):
    encoder = Encoder({"age": Numeric(40, 12), "city": Categorical(("Oslo", "Rome"))})
    contexts = encoder.transform([{"age": 31}, {"city": "Rome"}, {"city": "Lima", "age": 50}])
    log = make_log(action=["a", "b", "a"], reward=[1, 0, 1], propensity=[0.5] * 3, context=contexts)
    for _ in range(2):
        with served(tmp_path, encoder=encoder, arms=2, log=log) as site:
            assert site.agent.counts["rewards"] == 3
            for row in ({"age": 31, "city": "Rome"}, {"age": None}, {"city": "Lima"}):
                status, decision = ask(site, "/decide", {"context": row})
                assert status == 200 and decision["action"] in (0, 1)
            status, found = ask(site, "/explain", {"context": {"age": 31}})
            assert status == 200 and {"age", "city"} <= found["actions"][0].keys()
            for context in ([0.5, 0.5], {"agee": 3}, {"age": "old"}, None):
                assert ask(site, "/decide", {"context": context})[0] == 422
    assert read_encoder(tmp_path) == encoder


def test_a_body_is_json_by_its_content_type(site):
    for kind in ({}, {"Content-Type": "text/plain"}, {"Content-Type": "application/x-www-form-urlencoded"}):
        for path in ("/decide", "/learn", "/explain", "/arms"):
            status, told = ask(site, path, {"context": CONTEXT}, kind)
            assert status == 415 and "application/json" in told["error"]
    assert ask(site, "/decide", {"context": CONTEXT}, {"Content-Type": "application/JSON; charset=utf-8"})[0] == 200


DEEP = ["[" * 100_000, '{"a": ' * 100_000, '{"context": ' + "[" * 500 + "]" * 500 + "}"]
WRONG = ["", "{", "[1]", '"a"', "NaN", b"\xff\xfe", "{}", '{"context": null}', '{"context": [1e999]}']


def test_a_wrong_body_is_refused(site):
    decisions = site.agent.counts["decisions"]
    for body in [*DEEP, *WRONG, '{"context": {"a": 1}}', {"context": CONTEXT[1:]}]:
        for path in ("/decide", "/explain", "/learn"):
            status, told = ask(site, path, body)
            assert status == 422 and told["error"]
    lacks = "ValueError: the body lacks 'context'; it has 'contexts'"
    assert ask(site, "/decide", {"contexts": CONTEXT}) == (422, {"error": lacks})
    assert ask(site, "/health", method="GET") == (200, {"status": "ok"})
    assert site.agent.counts["decisions"] == decisions


@pytest.mark.parametrize("chunked", [False, True])
def test_a_large_body_is_refused_before_it_is_read(site, chunked):
    size = 100 * 2**20
    with contextlib.closing(socket.create_connection(("127.0.0.1", site.port), timeout=30)) as line:
        length = b"Transfer-Encoding: chunked" if chunked else f"Content-Length: {size}".encode()
        line.sendall(b"POST /decide HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n" + length + b"\r\n\r\n")
        if chunked:
            part = b" " * 2**18
            for _ in range(8):
                line.sendall(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        assert line.recv(1000).startswith(b"HTTP/1.1 413")


def test_requests_latencies_and_counts_are_in_the_metrics(site):
    before = metrics(site)
    ask(site, "/decide", {"context": CONTEXT})
    ask(site, "/decide", {"context": CONTEXT[1:]})
    ask(site, "/no/such/path", method="GET")
    after = metrics(site)

    def more(name: str) -> float:
        return after[name] - before.get(name, 0)

    assert more('seqdec_requests_total{path="/decide",status="200"}') == 1
    assert more('seqdec_requests_total{path="/decide",status="422"}') == 1
    assert more('seqdec_requests_total{path="other",status="404"}') == 1
    assert more('seqdec_seconds_count{path="/decide"}') == 2
    assert more('seqdec_seconds_bucket{le="+Inf",path="/decide"}') == 2
    assert more('seqdec_count{of="decisions"}') == 1


def test_an_agent_that_is_closed_answers_503(tmp_path):
    with served(tmp_path / "folder") as site:
        site.agent.close()
        asked, report = {"context": CONTEXT}, {"token": "1-00", "reward": 1}
        for path, body in (("/decide", asked), ("/learn", report), ("/explain", asked), ("/arms", {})):
            status, told = ask(site, path, body)
            assert status == 503 and "this agent is closed" in told["error"]
        assert ask(site, "/health", method="GET")[0] == 503
        assert ask(site, "/counts", method="GET")[0] == 503


def test_named_rewards_over_http(tmp_path: Path) -> None:
    with served(tmp_path / "folder", reward_weights={"click": 1.0, "revenue": 0.05}, reward_after=3600.0) as site:
        token = ask(site, "/decide", {"context": CONTEXT})[1]["token"]
        assert ask(site, "/learn", {"token": token, "reward": {"click": 1}}) == (200, {"result": "collected"})
        for wrong in (1.0, {"clicks": 1}, {"click": "1"}, {}):
            status, answer = ask(site, "/learn", {"token": token, "reward": wrong})
            assert status == 422 and "error" in answer
        status, answer = ask(site, "/learn", f'{{"token": "{token}", "reward": {{"revenue": NaN}}}}')
        assert status == 422 and "'revenue' must be a finite number" in answer["error"]
