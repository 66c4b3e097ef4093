"""Logs that were written once open for ever; a backup is such a log, and finds what is damaged."""

import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import seqdec
from seqdec.service import logs, read_history, store
from seqdec.service.learner import SNAPSHOT
from seqdec.service.store import FILE
from tests.service.services import SITE, X, bits, service

KEPT = Path(__file__).with_name("logs")
"""A folder for each format, from 4 on; `python -m tests.service.test_formats` writes the present one."""
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
    with closing(sqlite3.connect(folder / FILE, isolation_level=None)) as database:
        for statement in ("PRAGMA journal_mode = DELETE", "PRAGMA page_size = 512", "VACUUM"):
            database.execute(statement)
    (folder / ".lock").unlink()


@pytest.mark.parametrize("number", range(4, 1 + int(store.FORMAT.rpartition(" ")[2])))
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


def test_a_backup_finds_flipped_bits(tmp_path: Path) -> None:
    """Of rows, and of indexes, whose bits no row has; those of free space do not matter."""
    with service(tmp_path / "log", rewards="sum", reward_after=1e6) as one:
        for n, x in enumerate(X[:40]):
            one.learn(one.decide(x, key=f"ann/{n}", active=n % 2 > 0).token, float(n), key=f"report {n}")
        one.backup(tmp_path / "copy")
        pages = bytes((tmp_path / "copy" / FILE).read_bytes())
    missed = []
    for place in np.random.default_rng(0).choice(len(pages), 150, replace=False):
        flipped = bytearray(pages)
        flipped[place] ^= 1 << (place % 8)
        (tmp_path / FILE).write_bytes(flipped)
        try:
            with logs.read_only(tmp_path / FILE) as database:
                database.check()
                seen = [database.rows(table) for table in store.TABLES]
            missed.append((place, seen))
        except (ValueError, OSError):
            pass
    with logs.read_only(tmp_path / "copy" / FILE) as database:
        expected = [database.rows(table) for table in store.TABLES]
    assert 0 < len(missed) < 150 and all(seen == expected for _, seen in missed)


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else KEPT / store.FORMAT.rpartition(" ")[2])
