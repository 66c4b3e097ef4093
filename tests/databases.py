"""A PostgreSQL of the tests: its own cluster, on a socket in a folder of its own."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

_PATIENCE = 60.0
"""Seconds for a start."""


class Cluster:
    """A server that can be stopped and started."""

    def __init__(self, folder: Path, programs: Path, *, durable: bool = False) -> None:
        self.folder, self._programs = folder, programs
        self._user = next((one for one in ("postgres", "nobody") if _known(one)), None) if os.getuid() == 0 else None
        self.url = f"postgresql://seqdec@/postgres?host={folder}"
        self._settings = {"listen_addresses": "", "unix_socket_directories": str(folder), "max_connections": "60"}
        self._settings |= {"shared_buffers": "32MB", "fsync": "on" if durable else "off"}
        if self._user is not None:
            shutil.chown(folder, self._user)
        self._run("initdb", "-A", "trust", "-U", "seqdec", "--no-sync", "--no-locale", "-E", "UTF8").wait()
        self.start()

    def start(self) -> None:
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        self.process = self._run("postgres", *settings)
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                return psycopg.connect(self.url).close()
            except psycopg.OperationalError:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError((self.folder / "log").read_text()) from None
                time.sleep(0.02)

    def stop(self, how: int = signal.SIGINT) -> None:
        """SIGINT: end all sessions; SIGQUIT: as in a crash."""
        self.process.send_signal(how)
        self.process.wait()

    def _run(self, program: str, *arguments: str) -> "subprocess.Popen[bytes]":
        command = [self._programs / program, "-D", self.folder / "data", *arguments]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, user=self._user, cwd=self.folder)


@contextmanager
def cluster(*, durable: bool = False) -> Iterator[Cluster]:
    """A running server. Raises FileNotFoundError where PostgreSQL is not installed."""
    folder = Path(tempfile.mkdtemp(prefix="seqdec"))  # a short path: that of a socket has at most 107 bytes
    try:
        made = Cluster(folder, _programs(), durable=durable)
        try:
            yield made
        finally:
            made.stop()
    finally:
        shutil.rmtree(folder)


def _programs() -> Path:
    """The folder of initdb and postgres."""
    found = shutil.which("initdb")
    places = [Path(found).resolve().parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda place: int(place.parent.name))
    for place in reversed(places):
        if (place / "initdb").exists() and (place / "postgres").exists():
            return place
    raise FileNotFoundError("PostgreSQL is not installed: there is no initdb")


def _known(user: str) -> bool:
    return user in {one.pw_name for one in pwd.getpwall()}
