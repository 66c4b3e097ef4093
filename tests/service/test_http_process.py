"""The HTTP service in examples/ as a process, with a light agent: loaded by its client, killed and started again."""

import contextlib
import http.client
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "benchmarks")]

import client  # noqa: E402  # pyright: ignore[reportMissingImports]
import online_service as benchmark  # noqa: E402  # pyright: ignore[reportMissingImports]

LIGHT = f"""
import runpy, sys
sys.path.insert(0, {str(ROOT)!r})
import seqdec
from tests.service.services import small
seqdec.agents.hilofi = lambda site, rank: small(site)
runpy.run_path({str(ROOT / "examples" / "service.py")!r}, run_name="__main__")
"""


def ask(port: int, path: str, body: Any) -> tuple[int, Any]:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        headers = {"Content-Type": "application/json"}
        connection.request("GET" if body is None else "POST", path, body and json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())


@pytest.mark.slow
def test_the_service_answers_many_threads_and_survives_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "service.py").write_text(LIGHT)
    monkeypatch.setattr(benchmark, "EXAMPLES", tmp_path)
    process, port, _ = benchmark.started(tmp_path / "service", tmp_path / "log")
    try:
        compiled = (tmp_path / "log").read_text().count("XLA compilation")
        figures = client.load(port, threads=8, requests=5)
        assert figures["requests"] == 80 and figures["learned"] == 40
        assert (tmp_path / "log").read_text().count("XLA compilation") == compiled > 0
        decision = ask(port, "/decide", {"context": [0.5] * 64})[1]
        report = {"token": decision["token"], "reward": 1}
        assert ask(port, "/learn", report) == (200, {"result": "learned"})
        assert ask(port, "/learn", {"token": "1-00", "reward": 1})[0] == 404
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        process, port, _ = benchmark.started(tmp_path / "service", tmp_path / "log")
        assert ask(port, "/learn", report) == (200, {"result": "repeated"})
        _, counts = ask(port, "/counts", None)
        assert counts["rewards"] == 41 and counts["decisions"] == 43  # `started` asks for one
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.wait(30)
