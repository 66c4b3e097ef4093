"""Deployments that move from a server's folder to a database and back: `seqdec store`."""

import itertools
import traceback
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from seqdec import cli
from seqdec.client import Client
from seqdec.serve.config import read
from seqdec.serve.deployments import Deployments
from seqdec.serve.kept import Table, check_moved
from tests.databases import Cluster
from tests.serve.conftest import NUMBERS, serving, settings

TAUGHT = """
[deployments.taught]
arms = ["left", "right"]
context = { size = 2, low = -1, high = 1 }
agent = "linear"
apprentice = true
rewards = { low = 0, high = 1 }
"""
ADDED = {"arms": ["left", "right"], "context": {"size": 2, "low": -1, "high": 1}, "agent": "linear"}
NAMES = ("numbers", "taught", "added")
KNOWN = ("state", "declaration", "imitates", "took_over", "reason", "arms")


def known(client: Client) -> Any:
    found = [client.call(f"/v1/{name}") for name in NAMES]
    return [[one.get(name) for name in KNOWN] + [one.get("counts", {}).get("decisions")] for one in found]


@pytest.mark.slow
def test_deployments_move_to_a_database_whose_role_makes_no_tables_and_back(
    tmp_path: Path, postgres: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as owner:
        owner.execute("CREATE DATABASE shop")
        owner.execute("CREATE ROLE app LOGIN")
    url = postgres.url.replace("/postgres?", "/shop?")
    app = url.replace("seqdec@", "app@")
    with serving(tmp_path, NUMBERS + TAUGHT) as running, running.client() as client:
        token = client.decide("numbers", [0.5, 0.5], key="ann")["token"]
        late = client.decide("numbers", [0.5, 0.5])["token"]
        client.learn("numbers", token, 1.0)
        client.call("/v1/taught/take_over", {})
        client.call("/v1", {"name": "added", "declaration": ADDED})
        client.call("/v1/added/archive", {})
        before = known(client)
    for name in NAMES:
        folder, schema = str(tmp_path / "data" / "deployments" / name / "agent"), f"seqdec_{name}"
        assert cli.main(["store", "copy", folder, url, "--schema", schema]) == 0
        assert f"the deployment {name} continues in PostgreSQL at" in capsys.readouterr().out
        assert cli.main(["store", "init", url, "--schema", schema, "--role", "app"]) == 0
        assert cli.main(["store", "copy", folder, url, "--schema", schema]) == 2
        assert "has a log already" in capsys.readouterr().err
    home = tmp_path / "other machine"
    home.mkdir()
    with serving(home, NUMBERS + TAUGHT, f'store = "{app}"') as running, running.client() as client:
        assert known(client) == before
        assert client.decide("numbers", [0.5, 0.5], key="ann")["token"] == token
        assert client.learn("numbers", late, 1.0) == "collected"
        assert client.learn("numbers", token, 1.0) == "repeated"
        assert client.call("/v1/added/restore", {})["state"] == "open"
        after = known(client)
    for name in NAMES:
        folder = str(home / "data" / "deployments" / name / "agent")
        assert cli.main(["store", "copy", url, folder, "--schema", f"seqdec_{name}"]) == 0
    with serving(home, NUMBERS + TAUGHT) as running, running.client() as client:
        assert known(client) == after
        assert client.decide("numbers", [0.5, 0.5], key="ann")["token"] == token
        assert client.learn("numbers", late, 1.0) == "repeated"


def test_a_log_in_a_folder_is_not_forgotten_and_its_copy_not_gone_on_with(
    tmp_path: Path, postgres: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as owner:
        owner.execute("CREATE DATABASE left_behind")
    url = postgres.url.replace("/postgres?", "/left_behind?")
    with serving(tmp_path, NUMBERS) as running, running.client() as client:
        client.call("/v1", {"name": "added", "declaration": ADDED})
    folders = {name: tmp_path / "data" / "deployments" / name / "agent" for name in ("added", "numbers")}
    shared = settings(tmp_path, NUMBERS, f'store = "{url}"')[0]
    for name, folder in folders.items():
        command = ["store", "copy", str(folder), "URL", "--schema", f"seqdec_{name}"]
        with pytest.raises(ValueError, match=f"store lacks: copy it .seqdec {' '.join(command)}., or move"):
            Deployments(read(shared))
        assert cli.main([*command[:3], url, "--schema", "seqdec_other"]) == 2
        assert f"needs --schema seqdec_{name}" in capsys.readouterr().err
        assert cli.main([*command[:3], url, *command[4:]]) == 0
    check_moved(tmp_path / "data")
    with closing(Table(url)) as table:
        assert set(table.read()) == set(folders)
    alone = Deployments(read(settings(tmp_path, NUMBERS)[0]))
    for name, deployment in alone.items():
        with pytest.raises(ValueError, match=f"{name} has moved to PostgreSQL at .* schema 'seqdec_{name}'"):
            alone.place(deployment)


def test_tables_are_made_where_servers_look(postgres: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as owner:
        owner.execute("CREATE DATABASE made")
    url = postgres.url.replace("/postgres?", "/made?")
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute("CREATE SCHEMA seqdec_foreign")
        owner.execute("CREATE TABLE seqdec_foreign.arms (x int)")
        assert cli.main(["store", "init", url, "--schema", "seqdec_foreign"]) == 2
        assert "tables of another program: choose another" in capsys.readouterr().err
        assert cli.main(["store", "init", url, "--schema", "seqdec_x", "--role", "nobody here"]) == 2
        assert "no role 'nobody here'" in capsys.readouterr().err
        schemas = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'seqdec%'"
        assert owner.execute(schemas).fetchall() == [("seqdec_foreign",)]
    for schema, is_looked_at in (("Bad Name;", False), ("seqdec_x", True)):
        assert cli.main(["store", "init", url, "--schema", schema]) == 0
        assert ("does not use this schema" in capsys.readouterr().out) is not is_looked_at


PLACES = ("mysql://ann:secret@host/shop", "ann:secret@host/shop", "host=localhost Password = secret")
LINES = (
    *("store = {}", "stroe = {}", "store = [{}]", "hosts = {}", "hosts = [1, {}]", "port = {}", "host = {}", "{} = 1"),
    *("[keys.a]\nrole = {}", "[keys.{}]", "[deployments.{}]", "[deployments.a]\nagent = {}"),
    *("[deployments.a]\narms = [{0}, {0}]", "[deployments.a.context.columns.b]\nkind = {}"),
)
FILES = ("folder = {}", "[deployments.a]\nlog = {}", "[deployments.a.context]\nencoder = {}")


@pytest.mark.parametrize(("line", "place"), [*itertools.product(LINES, PLACES), *((one, PLACES[0]) for one in FILES)])
def test_wrong_settings_are_refused_without_a_password(line: str, place: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("[server]\n" + line.format(f'"{place}"'))
    with pytest.raises(ValueError, match=r"settings\.toml: .") as raised:
        read(file)
    assert "secret" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("call", [["init"], ["copy", "away"], ["copy", "postgresql://ann@host/x"]])
@pytest.mark.parametrize(
    "url", ["postgresql://ann:secret@[::1", "postgresql://ann:secret@127.0.0.1:1/x", "password=secret", PLACES[0]]
)
def test_a_wrong_url_is_refused_without_its_password(
    call: list[str], url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("away").mkdir()
    Path("away/decisions.sqlite").touch()
    assert cli.main(["store", *call, url, "--schema", "x"]) in (1, 2)
    found = capsys.readouterr()
    assert "seqdec: " in found.err and "secret" not in found.out + found.err
