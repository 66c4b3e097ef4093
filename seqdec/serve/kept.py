"""What is kept of deployments: in the folder of a server or, for all servers of a database, in a table."""

import json
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from seqdec.persistence import check_format, read_json, write_json
from seqdec.service.postgres import Postgres, PostgresDatabase, prepare
from seqdec.service.schema import SERVER

_FORMAT = "seqdec deployment 1"
_DECLARATION, _AGENT, _DEPLOYMENTS = "declaration.json", "agent", "deployments"
_SHARED = "seqdec"
"""Schema of the table, and the beginning of those of the logs."""


class Kept(NamedTuple):
    """Of one deployment."""

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
        self._folder = folder / _DEPLOYMENTS

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
        (self._folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._folder / name / _AGENT


class Table:
    """A table of the schema seqdec; the log of a deployment is in the schema seqdec_NAME."""

    is_shared = True

    def __init__(self, url: str) -> None:
        self._url = url
        prepare(Postgres(url, _SHARED), SERVER)
        self._database = PostgresDatabase(Postgres(url, _SHARED))

    def read(self) -> dict[str, Kept]:
        rows = self._database.execute("SELECT name, declaration, archived, took_over FROM deployments ORDER BY name")
        return {name: Kept(json.loads(text), archived, took_over) for name, text, archived, took_over in rows}

    def write(self, name: str, kept: Kept) -> None:
        row = name, json.dumps(kept.declaration), kept.archived, kept.took_over
        self._database.execute(
            "INSERT INTO deployments (name, declaration, archived, took_over) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE "
            "SET declaration = excluded.declaration, archived = excluded.archived, took_over = excluded.took_over",
            row,
        )

    def agent(self, name: str) -> Postgres:
        return Postgres(self._url, f"{_SHARED}_{name}")
