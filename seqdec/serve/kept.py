"""Stored declarations of deployments: in the folder of a server or, for all servers of a database, in a table."""

import json
import shlex
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from seqdec.persistence import check_format, read_json, read_text, write_json
from seqdec.service.copying import AGENT, DEPLOYMENTS, deployment_of
from seqdec.service.postgres import Postgres, PostgresDatabase, prepare
from seqdec.service.schema import SERVER, SERVERS
from seqdec.service.sqlite import FILE

_FORMAT = "seqdec deployment 1"
_DECLARATION, _MOVED = "declaration.json", "moved"


class Kept(NamedTuple):
    """Declaration and state of one deployment."""

    declaration: dict[str, Any]
    archived: bool
    took_over: bool


class Place(Protocol):
    """read: all of them by name; write: one; agent: where the log of one is. Raise OSError, ValueError."""

    is_shared: bool

    def read(self) -> dict[str, Kept]: ...
    def write(self, name: str, kept: Kept) -> None: ...
    def agent(self, name: str) -> Path | Postgres: ...


class Folder:
    """FOLDER/deployments/NAME/declaration.json, and the folder agent beside it."""

    is_shared = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder / DEPLOYMENTS

    def read(self) -> dict[str, Kept]:
        found = {}
        for path in sorted(self._folder.glob(f"*/{_DECLARATION}")):
            kept = read_json(path)
            check_format(path, kept, _FORMAT)
            found[path.parent.name] = Kept(kept["declaration"], kept["archived"], kept["took_over"])
        return found

    def write(self, name: str, kept: Kept) -> None:
        (self._folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        write_json(self._folder / name / _DECLARATION, {"format": _FORMAT, **kept._asdict()})

    def agent(self, name: str) -> Path:
        mark = self._folder / name / AGENT / _MOVED
        if mark.exists():
            raise ValueError(
                f"the log of the deployment {name} has moved to {read_text(mark)}: give that as store, or "
                f"delete {mark} to go on without what it has there"
            )
        (self._folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        return mark.parent


class Table:
    """A table of the schema seqdec; the log of a deployment is in the schema seqdec_NAME."""

    is_shared = True

    def __init__(self, url: str) -> None:
        self._url, self._is_prepared = url, False
        self._database = PostgresDatabase(Postgres(url, SERVERS))

    def read(self) -> dict[str, Kept]:
        self._prepare()
        rows = self._database.execute("SELECT name, declaration, archived, took_over FROM deployments ORDER BY name")
        return {name: Kept(json.loads(text), archived, took_over) for name, text, archived, took_over in rows}

    def write(self, name: str, kept: Kept) -> None:
        self._prepare()
        row = name, json.dumps(kept.declaration), kept.archived, kept.took_over
        self._database.execute(
            "INSERT INTO deployments (name, declaration, archived, took_over) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE "
            "SET declaration = excluded.declaration, archived = excluded.archived, took_over = excluded.took_over",
            row,
        )

    def agent(self, name: str) -> Postgres:
        return Postgres(self._url, f"{SERVERS}_{name}")

    def close(self) -> None:
        self._database.close()

    def _prepare(self) -> None:
        if not self._is_prepared:
            prepare(self._database.path, SERVER)
            self._is_prepared = True


def carry(source: Path | Postgres, to: Path | Postgres) -> str | None:
    """Keep a deployment where its log was copied to; returns its name, None for other logs.

    These are FOLDER/deployments/NAME/agent and the schema seqdec_NAME.
    """
    folder, shared = (source, to) if isinstance(source, Path) else (to, source)
    assert isinstance(folder, Path) and isinstance(shared, Postgres)
    name = deployment_of(folder)
    if name is None or shared.schema != f"{SERVERS}_{name}":
        return None
    with closing(Table(shared.url)) as table:
        places = Folder(folder.parents[2]), table
        before, after = places if isinstance(source, Path) else places[::-1]
        kept = before.read().get(name)
        if kept is not None:
            after.write(name, kept)
    if isinstance(source, Path):
        (source / _MOVED).write_text(str(to), encoding="utf-8")
    return kept and name


def check_moved(folder: Path) -> None:
    """Raises ValueError for a server's folder with a log that was not copied to its store."""
    for log in sorted((folder / DEPLOYMENTS).glob(f"*/{AGENT}/{FILE}")):
        agent, name = log.parent, log.parents[1].name
        if not (agent / _MOVED).exists():
            raise ValueError(
                f"{agent} has a log that the store lacks: copy it (seqdec store copy {shlex.quote(str(agent))} URL "
                f"--schema {SERVERS}_{name}), or move {agent.parent} away"
            )
