"""A server as a process of its own: killed under load, started again, ended while a client hangs."""

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from seqdec.client import Client, RefusedError
from seqdec.serve.config import read
from tests.serve.conftest import NUMBERS


@contextlib.contextmanager
def process(file: Path, port: int):
    """A process that serves a file, once it is ready, and its client."""
    with (file.parent / "log").open("ab") as log:
        running = subprocess.Popen([sys.executable, "-m", "seqdec", "serve", str(file)], stderr=log, stdout=log)
    try:
        with Client(f"http://127.0.0.1:{port}", timeout=60) as client:
            while True:
                assert running.poll() is None, (file.parent / "log").read_text()
                with contextlib.suppress(RefusedError, OSError):
                    client.call("/ready")
                    break
                time.sleep(0.1)
            yield running, client
    finally:
        running.kill()
        running.wait(30)


@pytest.mark.slow
def test_a_kill_under_load_loses_nothing_and_the_end_is_in_time(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = tmp_path / "settings.toml"
    file.write_text(f"[server]\nport = {port}\ngrace = 5\n{NUMBERS}")
    decided: list[str] = []
    learned: list[str] = []

    def visit(seed: int) -> None:
        with Client(f"http://127.0.0.1:{port}", timeout=30) as client, contextlib.suppress(OSError):
            while True:
                decision = client.decide("numbers", [seed / 10, 0.5])
                decided.append(decision["token"])
                if len(decided) % 2:
                    assert client.learn("numbers", decision["token"], 1.0) == "learned"
                    learned.append(decision["token"])

    with process(file, port) as (running, _):
        threads = [threading.Thread(target=visit, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        while len(learned) < 100 and any(thread.is_alive() for thread in threads):
            time.sleep(0.01)
        running.send_signal(signal.SIGKILL)
        for thread in threads:
            thread.join()
    assert learned

    with process(file, port) as (running, client):
        other = file.with_name("other.toml")
        other.write_text(file.read_text().replace(f"port = {port}", "port = 0"))
        command = [sys.executable, "-m", "seqdec", "serve", str(other)]
        another = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert another.returncode == 2 and "in use by another process" in another.stderr
        told = [client.learn("numbers", token, 1.0) for token in decided]
        assert set(told) <= {"learned", "repeated"} and told.count("learned") <= len(decided) - len(learned)
        half = socket.create_connection(("127.0.0.1", port))
        half.sendall(b"POST /v1/numbers/decide HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n")
        half.sendall(b"Content-Type: application/json\r\n\r\n{")
        time.sleep(0.2)
        running.send_signal(signal.SIGTERM)
        assert running.wait(20) == 0
        half.close()
    assert (tmp_path / "data/deployments/numbers/agent/state.safetensors").stat().st_mode & 0o077 == 0
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "data").rglob("*")} == {0}


@pytest.mark.slow
def test_a_server_that_still_opens_ends_at_once(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(f"[server]\nport = 0\nwait = true\n{NUMBERS}")
    with (tmp_path / "log").open("wb") as log:
        running = subprocess.Popen([sys.executable, "-m", "seqdec", "serve", str(file)], stderr=log, stdout=log)
    try:
        while b"Waiting for application startup" not in (tmp_path / "log").read_bytes():
            assert running.poll() is None
            time.sleep(0.02)
        running.send_signal(signal.SIGTERM)
        assert running.wait(5) == 0
    finally:
        running.kill()
        running.wait(30)


def test_the_settings_of_the_examples_are_valid() -> None:
    (folder,) = (Path(__file__).parents[2] / "examples").glob("serve")
    found = read(folder / "router.toml").settings.deployments["router"]
    found.rewards.check_reported({"quality": 0.5, "dollars": 0.01, "seconds": 2.0})
    assert found.context is not None and found.context.made() is not None
