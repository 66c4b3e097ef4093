"""One server in a thread for all tests of this folder, with a key of each role."""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from seqdec.client import Client, RefusedError
from seqdec.serve.access import new_key
from seqdec.serve.application import application
from seqdec.serve.config import read
from seqdec.serve.connections import Server, server

ROLES = ("reader", "decider", "operator")
NUMBERS = """
[deployments.numbers]
arms = ["left", "right", 3]
context = { size = 2, low = -1, high = 1 }
agent = "linear"
"""
DEPLOYMENTS = f"""{NUMBERS}
[deployments.shop]
arms = ["sale", "news"]
agent = "linear"
[deployments.shop.context.columns]
age = {{ kind = "numeric", low = 18, high = 90 }}
city = {{ kind = "categorical", levels = ["Oslo", "Rome"] }}
[deployments.shop.rewards]
window = 3600
[deployments.shop.rewards.names]
click = {{ weight = 1.0, default = 0, low = 0, high = 1 }}
[deployments.taught]
arms = ["old", "new"]
context = {{ size = 2, low = -1, high = 1 }}
agent = "linear"
apprentice = true
rewards = {{ low = 0, high = 1 }}
[deployments.goods]
items = {{ size = 2, low = -1, high = 1 }}
agent = "linear"
"""


class Running(NamedTuple):
    """A server and its keys by role."""

    port: int
    keys: dict[str, str]
    folder: Path
    clients: contextlib.ExitStack
    server: Server

    def stop(self) -> None:
        """As SIGTERM."""
        self.server.should_exit = True

    def client(self, role: str | None = "operator") -> Client:
        client = Client(f"http://127.0.0.1:{self.port}", key=role and self.keys[role], timeout=60)
        return self.clients.enter_context(client)


def settings(home: Path, deployments: str = DEPLOYMENTS, options: str = "") -> tuple[Path, dict[str, str]]:
    """A file of settings on any free port, and its keys by role."""
    keys: dict[str, str] = {}
    text = f'[server]\nport = 0\nfolder = "data"\n{options}\n'
    for role in ROLES:
        keys[role], digest = new_key()
        text += f'[keys.{role}]\nrole = "{role}"\nsha256 = ["{digest}"]\n'
    file = home / "settings.toml"
    file.write_text(text + deployments)
    return file, keys


@contextlib.contextmanager
def in_thread(running: Server) -> Iterator[int]:
    """The port of a server that listens."""
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        while not running.started and thread.is_alive():
            time.sleep(0.01)
        yield running.servers[0].sockets[0].getsockname()[1]
    finally:
        running.should_exit = True
        thread.join(60)


@contextlib.contextmanager
def serving(home: Path, deployments: str = DEPLOYMENTS, options: str = "") -> Iterator[Running]:
    """A server whose deployments are open."""
    file, keys = settings(home, deployments, options)
    found = read(file)
    made = server(application(found), found.settings.server)
    with in_thread(made) as port:
        until = time.monotonic() + 120
        while time.monotonic() < until:
            with contextlib.suppress(RefusedError), Client(f"http://127.0.0.1:{port}") as client:
                client.call("/ready")
                break
            time.sleep(0.05)
        with contextlib.ExitStack() as clients:
            yield Running(port, keys, home / "data", clients, made)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running
