"""What a client may not do to the server, or through it: one test for each limit."""

import contextlib
import hmac
import http.server
import json
import math
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seqdec.client import Client, RefusedError
from seqdec.serve import access, calls
from seqdec.serve.application import _failed, _record
from seqdec.serve.config import Server, Settings
from seqdec.serve.connections import server
from seqdec.serve.queue import FullError
from tests.serve.conftest import NUMBERS, Running, in_thread, serving

POINT = [0.5, -0.5]


def received(port: int, *parts: bytes, seconds: float = 5.0) -> bytes:
    """What the server sends until it ends the connection, or is silent for so long."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        found = b""
        with contextlib.suppress(OSError):  # ended, or silent
            for part in parts:
                connection.sendall(part)
            while more := connection.recv(2**16):
                found += more
            found += b"<end>"
    return found


def head(served: Running, method: str = "POST", path: str = "/v1/numbers/decide", host: str = "localhost") -> bytes:
    lines = f"{method} {path} HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {served.keys['operator']}"
    return "\r\n".join([*lines, "Content-Type: application/json\r\n"]).encode()


def test_keys_are_random_and_all_of_them_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [access.new_key() for _ in range(4)]
    assert len({key for key, _ in made}) == 4
    assert all(re.fullmatch("seqdec_[A-Za-z0-9_-]{43}", key) and key not in digest for key, digest in made)  # 256 bits
    keys = {f"key{place}": {"role": "reader", "sha256": [digest]} for place, (_, digest) in enumerate(made)}
    checked = access.Access(Settings.model_validate({"keys": keys}), tmp_path / "audit")
    compared: list[Any] = []
    monkeypatch.setattr(hmac, "compare_digest", lambda one, other: compared.append(1) or one == other)
    for place, (key, _) in enumerate(made):
        assert checked.caller(f"Bearer {key}", "").name == f"key{place}"
        assert len(compared) == 4 * (place + 1)
    for wrong in (None, "", "Bearer", "Bearer ", f"Basic {made[0][0]}", f"Bearer {made[0][1]}", "Bearer \udcff\u20ac"):
        with pytest.raises((access.RefusedError, UnicodeEncodeError)):
            checked.caller(wrong, "")


def test_without_keys_the_server_is_for_this_machine_only(tmp_path: Path) -> None:
    for host in ("127.0.0.1", "::1", "localhost", "127.3.2.1"):
        Settings.model_validate({"server": {"host": host}})
    for host in ("0.0.0.0", "::", "192.168.1.2", "example.com", "localhost.example.com", ""):
        with pytest.raises(ValueError, match="keys"):
            Settings.model_validate({"server": {"host": host}})
    open_ = access.Access(Settings(), tmp_path / "audit")
    for host in ("localhost:8000", "127.0.0.1", "[::1]:80", "LOCALHOST"):
        open_.check_host(host)
    for host in ("", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "[::2]", "localhost@evil"):
        with pytest.raises(access.RefusedError, match="hosts"):
            open_.check_host(host)


def test_whoever_is_refused_learns_when_to_come_back(tmp_path: Path) -> None:
    limited = access.Access(Settings.model_validate({"server": {"rate": 50}}), tmp_path / "audit")
    with pytest.raises(access.RefusedError) as found:
        list(map(limited.caller, [None] * 200, ["address"] * 200))
    assert found.value.status == 429 and int(found.value.headers["Retry-After"]) >= 1
    assert limited.caller(None, "another").key is None
    full = _failed(FullError(), {})  # pyright: ignore[reportArgumentType]
    assert full.status_code == 503 and int(full.headers["retry-after"]) >= 1


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Of a server whose answers have 12 MB, and whose patience is short."""
    content = b"x" * 12_000_000

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for event in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{event}.complete"})
            return
        size = [(b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": size})
        await send({"type": "http.response.body", "body": content})

    with in_thread(server(answer, Server(port=0, patience=1.0, idle=30.0))) as port:
        yield port


def reading(port: int) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
    connection.settimeout(10)
    connection.connect(("127.0.0.1", port))
    connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return connection


def test_a_client_that_does_not_read_is_not_waited_for(port: int) -> None:
    count = 0
    with reading(port) as connection, contextlib.suppress(ConnectionResetError):
        time.sleep(4.5)
        while part := connection.recv(2**20):
            count += len(part)
    assert count < 12_000_000  # what the system had sent already


def test_a_client_that_reads_slowly_gets_all(port: int) -> None:
    count, began = 0, time.monotonic()
    with reading(port) as connection:
        while count < 12_000_000:
            count += len(connection.recv(2**18))
            time.sleep(0.05)
    assert time.monotonic() - began > 2.0  # longer than its patience


def test_one_connection_cannot_smuggle_requests(served: Running) -> None:
    body = json.dumps({"context": POINT}).encode()
    chunked = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n" % (len(body), body)
    start, length = head(served), b"Content-Length: %d\r\n" % len(body)
    refused = [
        start + b"Content-Length: 5\r\n" + chunked + b"\r\n",
        start + length + b"Content-Length: 5\r\n\r\n" + body,
        start + b"Content-Length: -1\r\n\r\n",
        start + b"Content-Length: 1e3\r\n\r\n",
        start + b"Content-Length: 99999999999999999999999\r\n\r\n",
        start + b"Transfer-Encoding: gzip\r\n\r\n",
        start + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        start + b"X: a\r\n b\r\n\r\n",
        start + b"X y: a\r\n\r\n",
        start + b"X: a\0b\r\n\r\n",
        b"GET /v1/\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /health HTTP/9.9\r\n\r\n",
        b"BREW /v1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ]
    for request in refused:
        found = received(served.port, request)
        assert found.startswith(b"HTTP/1.1 400 ") and found.endswith(b"<end>"), request
        assert found.count(b"HTTP/1.1 ") == 1, request
    last = head(served, "GET", "/v1/numbers") + b"Connection: close\r\n\r\n"
    assert received(served.port, start + chunked + b"\r\n" + last).count(b"HTTP/1.1 200 ") == 2
    assert received(served.port, (start + length + b"\r\n" + body) * 3 + last).count(b"HTTP/1.1 200 ") == 4
    assert b"HTTP/1.1 100 " in received(
        served.port, start + length + b"Expect: 100-continue\r\n\r\n", body, seconds=0.5
    )
    assert received(served.port, b"GET /health HTTP/1.0\r\n\r\n").endswith(b"<end>")


def test_trailers_are_no_headers_and_have_an_end(served: Running) -> None:
    body = json.dumps({"context": POINT}).encode()
    late = f"Authorization: Bearer {served.keys['operator']}\r\n\r\n".encode()
    anonymous = b"POST /v1/numbers/decide HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    chunked = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n" % (len(body), body)
    assert b" 401 " in received(served.port, anonymous + chunked, late, seconds=0.5)
    endless = [head(served) + chunked, *[b"X: " + b"x" * 2**14 + b"\r\n"] * 100]
    assert b" 200 " not in received(served.port, *endless)
    small = b"".join(b"1\r\n%c\r\n" % byte for byte in body.ljust(30_000))
    chunks = head(served) + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + small + b"0\r\n\r\n"
    assert b" 200 " in received(served.port, chunks)


def test_names_in_paths_lead_nowhere_else(served: Running) -> None:
    for path in ("/v1/../../etc/passwd", "/v1/..%2f..%2fetc/log.parquet", "/v1/%2e%2e/log.parquet", "/v1/Numbers",
                 "/v1/numbers%00", "/v1/numbers%0d%0aX:%20y", "//v1//numbers", "/v1/numbers/", "/v1/" + "a" * 30_000,
                 "/v1/%ff%fe", "/deployments/%3Cscript%3E"):  # fmt: skip
        found = received(served.port, head(served, "GET", path) + b"Connection: close\r\n\r\n")
        assert found.startswith(b"HTTP/1.1 404 "), (path, found[:200])
        assert len(found) < 2_500 and b"\r\nX:" not in found and b"<script>" not in found, path
    for method in ("PUT", "DELETE", "PATCH", "TRACE", "OPTIONS"):
        found = received(served.port, head(served, method, "/v1/numbers/decide") + b"Connection: close\r\n\r\n")
        assert found.startswith(b"HTTP/1.1 405 "), method
    client = served.client()
    for name in ("../up", "A", "a b", "a\n", "a/b", "", "x" * 64, "é", ".", "-a"):
        with pytest.raises(RefusedError, match=r"^422"):
            client.call("/v1", {"name": name, "declaration": {"arms": ["a"], "agent": "linear"}})


def test_pages_of_others_reach_nothing(served: Running) -> None:
    """Of another origin: no CORS, forms are no JSON, and a browser's password is not taken by the calls."""
    client = served.client()
    before = client.call("/v1/numbers")["counts"]["decisions"]
    body = json.dumps({"context": POINT}).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        request = head(served).replace(b"application/json", kind.encode())
        found = received(
            served.port, request + b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        assert found.startswith(b"HTTP/1.1 415 "), kind
    asked = head(served, "OPTIONS") + b"Origin: http://evil\r\nAccess-Control-Request-Method: POST\r\n"
    assert b"access-control" not in received(served.port, asked + b"Connection: close\r\n\r\n").lower()
    for value in (b"Basic eDp5", b"Basic \xf6\xf6", b"Basic ====", b"Bearer \xed\xa0\x80", b"Basic"):
        asked = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: " + value + b"\r\n\r\n"
        assert received(served.port, asked).startswith(b"HTTP/1.1 401 "), value
    assert client.call("/v1/numbers")["counts"]["decisions"] == before


def test_texts_of_others_are_no_markup_and_no_lines_of_logs(
    served: Running, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    client = served.client()
    name = "<script>alert(1)</script>\n2026-01-01 forged"
    client.call("/v1/shop/add_arm", {"name": name})
    try:
        token = client.decide("shop", {"age": 30, "city": "Oslo"}, mask=[name])["token"]
        client.learn("shop", token, {"click": 1})
        password = __import__("base64").b64encode(f"x:{served.keys['operator']}".encode())
        asked = b"GET /deployments/shop HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Basic " + password
        shown = received(served.port, asked + b"\r\n\r\n", seconds=60)
        assert b" 200 " in shown and b"&lt;script&gt;" in shown and b"<script" not in shown
    finally:
        client.call("/v1/shop/remove_arm", {"name": name})
    line = (served.folder / "audit.jsonl").read_text().splitlines()[-1]
    assert json.loads(line)["call"] == "remove_arm"
    assert "forged" not in capfd.readouterr().err


def test_refused_calls_of_operators_are_in_the_audit(served: Running, caplog: pytest.LogCaptureFixture) -> None:
    client = served.client("decider")
    with pytest.raises(RefusedError, match=r"^403"):
        client.call("/v1/numbers/add_arm", {"name": "x"})
    with pytest.raises(RefusedError, match=r"^404"):
        served.client().call("/v1/absent/forget", {"keys": ["x"]})
    lines = [json.loads(line) for line in (served.folder / "audit.jsonl").read_text().splitlines()]
    found = [(line["key"], line["call"], line["deployment"], line["status"]) for line in lines[-2:]]
    assert found == [("decider", "add_arm", "numbers", 403), ("operator", "forget", "absent", 404)]

    class Full:
        def record(self, *line: Any) -> None:
            raise OSError("no space left")

    _record(Full(), "operator", "127.0.0.1", "add_arm", "numbers", 200)  # pyright: ignore[reportArgumentType]
    assert "no space left" in caplog.text and "add_arm" in caplog.text


def test_values_of_json_are_refused_or_taken(served: Running) -> None:
    """By their bytes: what a client in another language may send."""
    cases = {
        b'{"context": [0.5, 0.5], "context": [0.1, -0.0]}': 200,
        b'{"context": [-0.0, 1e-400]}': 200,
        b'{"context": [1e308, -1e308]}': 422,
        b'{"context": [0.5, 1e400]}': 400,
        b'{"context": [Infinity, 0]}': 400,
        b'{"context": ["0.5", 0]}': 422,
        b'{"context": [18446744073709551616, 0]}': 422,
        b'{"context": [0.5, 0.5], "mask": [18446744073709551615]}': 422,
        b'{"context": [0.5, 0.5], "mask": [true]}': 422,
        b'{"context": [0.5, 0.5], "mask": [3.5]}': 422,
        b'{"context": [0.5, 0.5], "mask": %b}' % json.dumps(["left"] * 10_000).encode(): 200,
        b'{"context": [0.5, 0.5], "mask": %b}' % json.dumps(list(range(50_000))).encode(): 422,
        b'{"context": [0.5, 0.5], "items": ["a"]}': 422,
        b'{"context": [0.5, 0.5], "key": "\\ud800"}': 400,
        b'{"context": [0.5, 0.5], "key": "\xed\xa0\x80"}': 400,
        b'{"context": [0.5, 0.5], "key": "a\\u0000b"}': 422,
        b'{"context": [0.5, 0.5], "key": "a\\nb"}': 422,
        b'{"context": [0.5, 0.5], "key": ""}': 422,
        b'{"context": [0.5, 0.5], "key": 5}': 422,
        b'{"context": [0.5, 0.5], "key": "%b"}' % (b"k" * 201): 422,
        b'{"context": [0.5, 0.5], "key": "%b"}' % (b"k" * 200): 200,
        b'{"context": %b}' % (b"[" * 10_000 + b"]" * 10_000): 400,
        b'{"context": [0.5, 0.5], "active": "yes please"}': 422,
        b"\xef\xbb\xbf{}": 400,
        b"[]": 422,
        b"null": 422,
        b"": 400,
    }
    for body, status in cases.items():
        request = head(served) + b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        found = received(served.port, request, seconds=30)
        assert found.startswith(b"HTTP/1.1 %d " % status), (body[:80], found[:300])


def test_long_calls_leave_threads_to_others_and_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free, begun = threading.Event(), threading.Semaphore(0)
    monkeypatch.setattr(calls, "_diagnosed", lambda folder, agent: begun.release() or free.wait(60) or {})
    state = tmp_path / "data/deployments/numbers/agent/state.safetensors"

    def look(client: Client) -> None:
        with contextlib.suppress(RefusedError, OSError):
            client.call("/v1/numbers/diagnostics")

    with serving(tmp_path, NUMBERS, "grace = 1.0") as running, contextlib.ExitStack() as end:
        end.callback(free.set)
        threads = [threading.Thread(target=look, args=(running.client("reader"),)) for _ in range(40)]
        for thread in threads:
            thread.start()
        begun.acquire(timeout=10)
        decider = running.client("decider")
        token = decider.decide("numbers", POINT, active=False)["token"]
        assert decider.call("/v1/numbers/activate", {"token": token}) == {"result": "activated"}
        decider.learn("numbers", token, 1.0)
        running.stop()
        until = time.monotonic() + 20
        while not state.exists() and time.monotonic() < until:
            time.sleep(0.05)
        assert state.exists() and not free.is_set()
    for thread in threads:
        thread.join()


class Proxy(http.server.BaseHTTPRequestHandler):
    """Answers a second request of a connection by ending it, after it has done what was asked."""

    protocol_version = "HTTP/1.1"
    done: list[str]
    seen: set[Any]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.done.append(self.path)
        if self.client_address in self.seen:
            self.close_connection = True
            return
        self.seen.add(self.client_address)
        status = 502 if self.path.endswith("broken") else 200
        content, kind = (b"<html>", "text/html") if status == 502 else (b'{"done": true}', "application/json")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_the_client_repeats_only_what_counts_once() -> None:
    Proxy.done, Proxy.seen = [], set()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        with Client(f"http://127.0.0.1:{proxy.server_address[1]}/prefix/", timeout=5) as client:
            assert client.call("/first", {"key": "k"}) == {"done": True}
            assert client.call("/keyed", {"key": "k"}) == {"done": True}
            assert Proxy.done.count("/prefix/keyed") == 2  # sent again
            for place in range(3):
                assert client.call(f"/plain{place}", {"name": "x"}) == {"done": True}
                assert Proxy.done.count(f"/prefix/plain{place}") == 1
            with pytest.raises(RefusedError, match=r"502: <html>"):
                client.call("/broken", {"name": "x"})
        proxy.shutdown()
    with pytest.raises(ConnectionError):
        client.call("/gone", {"key": "k"})


def test_seconds_of_any_length_are_taken(tmp_path: Path) -> None:
    import numpy as np

    import seqdec

    world = seqdec.envs.linear()
    options: dict[str, Any] = {"reward_after": 1e300, "reward_default": 0.0, "expire_after": 1e308}
    with seqdec.OnlineAgent("linear", world, seed=0, folder=tmp_path / "agent", **options) as one:
        shape = world.observation_space.shape
        assert shape is not None
        token = one.decide(np.zeros(shape)).token
        assert one.learn(token, 1.0) == "collected"
        assert one.forget(older_than=1e300) == 0
        assert one.counts["decisions"] == 1 and math.isfinite(one.decide(np.zeros(shape)).propensity)
