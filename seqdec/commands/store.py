"""Logs in PostgreSQL: their tables, and copies."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from seqdec.persistence import located

if TYPE_CHECKING:
    from seqdec.service.postgres import Postgres


@dataclass(frozen=True)
class Init:
    """Create or upgrade the tables of a log, and grant a role access to them."""

    url: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="URL")]
    """postgresql://user:password@host/database, of a role that may create schemas."""
    schema: str
    """Schema of the log, created if missing; seqdec_NAME for the deployment NAME of servers."""
    role: str | None = None
    """Role of the servers, which may read and write rows but not create tables."""

    def execute(self) -> None:
        from seqdec.service.postgres import Postgres, check_role, grant, prepare
        from seqdec.service.schema import LOG, SERVER, SERVERS

        shared = [SERVERS] if self.schema.startswith(f"{SERVERS}_") else []
        if self.role is not None:
            check_role(Postgres(self.url, self.schema), self.role)
        for schema in (self.schema, *shared):
            place = Postgres(self.url, schema)
            prepare(place, SERVER if schema == SERVERS else LOG)
            if self.role is not None:
                grant(place, self.role)
            print(f"{place} is ready{'' if self.role is None else f' for the role {self.role!r}'}")
        if not shared and self.schema != SERVERS:
            print(f"seqdec serve does not use this schema: for its deployment NAME it is {SERVERS}_NAME")


@dataclass(frozen=True)
class Copy:
    """Copy a log that is not in use from a folder to PostgreSQL, or back; tokens stay valid.

    For a deployment of a server, copy FOLDER/deployments/NAME/agent to or from the schema seqdec_NAME; this includes
    the server's own records.
    """

    source: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="FROM")]
    """Folder of an agent, or postgresql://user:password@host/database."""
    to: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TO")]
    """The other kind: a database, or a new folder."""
    schema: str
    """Schema of the log in the database."""

    def execute(self) -> None:
        from seqdec.service.copying import copy, deployment_of
        from seqdec.service.schema import SERVERS

        source, to = self._place(self.source), self._place(self.to)
        name = deployment_of(source) if isinstance(source, Path) else None
        if name is not None and self.schema != f"{SERVERS}_{name}":
            raise ValueError(f"the deployment {name} needs --schema {SERVERS}_{name}; got {self.schema}")
        counts = copy(source, to)
        print(*(f"{table}: {count:,}" for table, count in counts.items() if count), sep="\n")
        if self.schema.startswith(f"{SERVERS}_"):
            from seqdec.serve.kept import carry  # which needs what a server needs

            if name := carry(source, to):
                print(f"the deployment {name} continues in {to}")

    def _place(self, text: str) -> "Path | Postgres":
        from seqdec.service.postgres import Postgres

        is_url = "://" in text or text.startswith(("postgresql:", "postgres:"))
        is_url |= "passw" in text.lower() and "=" in text  # not to be shown as a path
        return Postgres(text, self.schema) if is_url else located(text)


@dataclass(frozen=True)
class Store:
    """Logs in PostgreSQL, for several servers: create their tables, or copy a log there or back."""

    call: Annotated[Init, tyro.conf.subcommand("init")] | Annotated[Copy, tyro.conf.subcommand("copy")]

    def execute(self, *, trust: bool = False) -> None:
        """Raises ValueError, FileNotFoundError, FileExistsError, OSError."""
        self.call.execute()
