"""Deployments that move from a server's folder to a database and back: `seqdec store`."""

from pathlib import Path
from typing import Any

import psycopg
import pytest

from seqdec import cli
from seqdec.client import Client
from tests.databases import Cluster
from tests.serve.conftest import NUMBERS, serving

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
        assert f"the deployment {name} goes on in PostgreSQL at" in capsys.readouterr().out
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


@pytest.mark.parametrize("call", [["init"], ["copy", "away"]])
@pytest.mark.parametrize(
    "url", ["postgresql://ann:secret@[::1", "postgresql://ann:secret@127.0.0.1:1/x", "password=secret"]
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
