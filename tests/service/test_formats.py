"""Logs that were written once open for ever; a backup is such a log, and finds what is damaged."""

import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import seqdec
from seqdec.service import logs, read_history
from seqdec.service.database import FORMAT, TABLES
from seqdec.service.snapshots import SNAPSHOT
from seqdec.service.sqlite import FILE
from tests.service.services import SITE, X, bits, service

KEPT = Path(__file__).with_name("logs")
"""Folders for each format, from 4 on; `python -m tests.service.test_formats` writes those of the present one."""
YEARS = 100 * 365 * 86_400.0


def kept(folder: Path) -> seqdec.OnlineAgent:
    late: Any = {"rewards": "sum", "reward_after": YEARS, "reward_default": 0.0}
    return seqdec.OnlineAgent("linear", SITE, seed=0, folder=folder, arms=["a", "b", "c"], **late)


def leaves(one: seqdec.OnlineAgent) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(one.state)]


def write(folder: Path) -> None:
    with kept(folder) as one:
        log = seqdec.ope.make_log(action=[0, 1, 2], reward=[1.0, 0.0, 0.5], propensity=[0.5] * 3, context=X[:3])
        one.warm_start(log.replace(action_names=("a", "b", "c")))
        decisions = one.decide_many(X[3:6], keys=["ann/1", "ann/2", "bob/1"])
        hidden = one.decide(X[6], active=False)
        one.learn(decisions[0].token, 2.0, key="order 1")
        one.withdraw(decisions[1].token)
        one.forget(["bob"])
    (folder / "tokens").write_text("\n".join(one.token for one in (*decisions, hidden)))
    _packed(folder)


def write_base(folder: Path) -> None:
    """A log from which decisions were removed."""
    with seqdec.OnlineAgent("linear", SITE, seed=0, folder=folder) as one:
        one.learn_many([(one.decide(x).token, 1.0) for x in X[:6]])
        time.sleep(0.01)
        assert one.compact(0.005) == 6
        one.learn(one.decide(X[6]).token, 0.5)
    _packed(folder)


def _packed(folder: Path) -> None:
    with closing(sqlite3.connect(folder / FILE, isolation_level=None)) as database:
        for statement in ("PRAGMA journal_mode = DELETE", "PRAGMA page_size = 512", "VACUUM"):
            database.execute(statement)
    (folder / ".lock").unlink()


@pytest.mark.parametrize("number", range(4, 1 + int(FORMAT.rpartition(" ")[2])))
def test_logs_of_all_formats_open(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqdec.service.facade.has_changed", lambda *_, **__: False)  # other versions of libraries
    folder = Path(shutil.copytree(KEPT / str(number), tmp_path / "log"))
    tokens = (folder / "tokens").read_text().split()
    with kept(folder) as one:
        assert one.counts["decisions"] == 7 and one.counts["rewards"] == 3
        learned = leaves(one)
        assert one.decide(X[0], key="ann/1").token == tokens[0]
        assert one.learn(tokens[0], 2.0, key="order 1") == "repeated"
        assert [one.learn(token, 1.0) for token in tokens[1:]] == ["withdrawn", "unknown", "collected"]
        history = read_history(folder)["source"].fillna("").tolist()
        assert history == ["history"] * 3 + ["", "withdrawn", "withdrawn", ""]
    (folder / SNAPSHOT).unlink()
    with kept(folder) as one:
        for leaf, expected in zip(leaves(one), learned, strict=True):
            np.testing.assert_allclose(leaf, expected, rtol=1e-4, atol=1e-5)  # of another type of machine


@pytest.mark.parametrize("number", range(5, 1 + int(FORMAT.rpartition(" ")[2])))
def test_bases_of_all_formats_are_learned_from(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqdec.service.facade.has_changed", lambda *_, **__: False)  # other versions of libraries
    folder = Path(shutil.copytree(KEPT / f"{number}-base", tmp_path / "log"))
    found = []
    for _ in range(2):
        with seqdec.OnlineAgent("linear", SITE, seed=0, folder=folder) as one:
            assert (one.counts["decisions"], one.counts["rewards"], len(one.log())) == (7, 7, 1)
            found.append(leaves(one))
        (folder / SNAPSHOT).unlink()
    for leaf, expected in zip(*found, strict=True):
        np.testing.assert_allclose(leaf, expected, rtol=1e-4, atol=1e-5)


def test_a_backup_goes_on_where_the_log_was(tmp_path: Path) -> None:
    with service(tmp_path / "log") as one:
        one.learn_many([(one.decide(x).token, 1.0) for x in X[:20]])
        one.backup(tmp_path / "copy")
        later = one.decide(X[0])
        state = bits(one)
        with pytest.raises(FileExistsError, match="copy exists: a backup needs a folder of its own"):
            one.backup(tmp_path / "copy")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "copy").iterdir()}
    assert modes == {FILE: 0o600, SNAPSHOT: 0o600} and (tmp_path / "copy").stat().st_mode & 0o777 == 0o700
    with service(tmp_path / "copy") as one:
        assert bits(one) == state and one.counts["decisions"] == 20 and one.learn(later.token, 1.0) == "unknown"
    with service() as one:  # in memory
        one.learn(one.decide(X[0]).token, 1.0)
        one.backup(tmp_path / "memory")
    with service(tmp_path / "memory") as one:
        assert one.counts["rewards"] == 1


SHARES = 60
"""Of the bytes of a log, each of which loses a bit in one."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small log with rows in all tables, in small pages, and the same with half of its rows in the WAL."""
    home = tmp_path_factory.mktemp("whole")
    with service(home / "log", rewards="sum", reward_after=0.5) as one:
        one.learn_many([(one.decide(x).token, 1.0) for x in X[:5]])
        time.sleep(0.6)
        assert one.compact(0.5) == 5
        for n, x in enumerate(X[:12]):
            one.decide(x, key=f"ann/{n}", active=n % 2 > 0)
        one.withdraw(one.decide(X[0]).token)
        one.warm_start(seqdec.ope.make_log(action=[0, 1], reward=[1.0, 0.5], propensity=[0.5] * 2, context=X[:2]))
    with closing(sqlite3.connect(home / "log" / FILE, isolation_level=None)) as database:
        for statement in ("PRAGMA journal_mode = DELETE", "PRAGMA page_size = 512", "VACUUM"):
            database.execute(statement)
    with service(home / "log", rewards="sum", reward_after=0.5) as one:
        for n, x in enumerate(X[:6]):
            one.learn(one.decide(x).token, float(n), key=f"report {n}")
        shutil.copytree(home / "log", home / "killed", ignore=shutil.ignore_patterns("state*", "*-shm", ".*"))
    return home


def read(folder: Path) -> dict[str, Any]:
    """All rows of a log that is whole. Raises ValueError or OSError."""
    with logs.read_only(folder / FILE) as database:
        database.check()
        return {table: database.rows(table) for table in TABLES}


@pytest.mark.sampled(SHARES)
@pytest.mark.parametrize("share", range(SHARES))
def test_a_check_finds_every_flipped_bit_of_what_is_read(share: int, whole: Path, tmp_path: Path) -> None:
    """In the header, in rows and in indexes, whose bits no row has; those of free space do not matter."""
    expected, pages = read(whole / "log"), (whole / "log" / FILE).read_bytes()
    found = 0
    for place in range(share, len(pages), SHARES):
        flipped = bytearray(pages)
        flipped[place] ^= 1 << (place // SHARES % 8)
        (tmp_path / FILE).write_bytes(flipped)
        try:
            assert read(tmp_path) == expected, place
        except (ValueError, OSError):
            found += 1
    assert found > len(pages) / SHARES / 4


@pytest.mark.sampled(SHARES)
@pytest.mark.parametrize("share", range(SHARES))
def test_a_flipped_bit_of_the_wal_loses_only_what_came_after(share: int, whole: Path, tmp_path: Path) -> None:
    """As a loss of power does: SQLite ends the WAL at the first wrong checksum."""
    expected, name = read(whole / "killed"), f"{FILE}-wal"
    shutil.copyfile(whole / "killed" / FILE, tmp_path / FILE)
    content = (whole / "killed" / name).read_bytes()
    kept = set()
    for place in range(share, len(content), SHARES):
        flipped = bytearray(content)
        flipped[place] ^= 1 << (place // SHARES % 8)
        (tmp_path / name).write_bytes(flipped)
        rows = read(tmp_path)
        kept.add(len(rows["decisions"]))
        for table in ("decisions", "rewards", "reports"):
            assert rows[table] == expected[table][: len(rows[table])], (table, place)
    assert len(kept) > 3


if __name__ == "__main__":
    present = KEPT / FORMAT.rpartition(" ")[2]
    write(present)
    write_base(present.with_name(f"{present.name}-base"))
