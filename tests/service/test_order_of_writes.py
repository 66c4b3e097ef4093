"""What is on the disk at every point of a service's calls: whole transactions, in the right order."""

import shutil
import struct
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from safetensors.numpy import load_file

import seqdec
from tests.service.services import X, bits, copied, service
from tests.toys import toy_agent, toy_env
from tests.writes import Event, Stopped, Writes, writes

__all__ = ["writes"]
LOG, SNAPSHOT = "decisions.sqlite", "state.safetensors"
LATE = {"rewards": "sum", "reward_after": 1e6}
CALLS: dict[str, tuple[dict[str, Any], Callable[[seqdec.OnlineAgent, list[str]], Any]]] = {
    "decisions": ({}, lambda one, tokens: one.decide_many(X[:4])),
    "rewards": ({}, lambda one, tokens: one.learn_many([(token, 1.0) for token in tokens])),
    "reports": (LATE, lambda one, tokens: one.learn_many([(token, 1.0) for token in tokens])),
    "arms": ({"capacity": 3}, lambda one, tokens: one.add_arm()),  # as many as the model has outputs: arms and facts
}


def seen(writes: Writes, folder: Path) -> tuple[Any, ...]:
    """Of the log, by another process."""
    with closing(writes.connect(folder / LOG)) as db:
        rows = [db.execute(f"SELECT count(*) FROM {table}").fetchone() for table in ("decisions", "rewards", "reports")]
        arms = db.execute("SELECT * FROM arms ORDER BY id").fetchall()
        return *rows, *arms, *db.execute("SELECT * FROM facts ORDER BY name").fetchall()


@pytest.mark.parametrize("call", CALLS)
def test_another_process_sees_all_of_a_call_or_nothing(call: str, tmp_path: Path, writes: Writes) -> None:
    options, act = CALLS[call]
    with service(tmp_path, **options) as one:
        tokens = [decision.token for decision in one.decide_many(X[:4])]
        views = [seen(writes, tmp_path)]
        writes.before = lambda event: views.append(seen(writes, tmp_path))
        act(one, tokens)
        writes.before = lambda event: None
        after = seen(writes, tmp_path)
    assert after != views[0] and len(views) > 2
    assert [view for view in views if view not in (views[0], after)] == []


def test_a_snapshot_follows_what_it_has_learned_to_the_disk(tmp_path: Path, writes: Writes) -> None:
    with service(tmp_path) as one:
        for value in (0.5, 1.0):
            one.learn(one.decide(X[0]).token, value)
            since = len(writes.events)
            one.snapshot()
            log = [place for place in writes.synchronized((tmp_path / f"{LOG}-wal").stat().st_ino) if place >= since]
            (last,) = [place for place in writes.replaced(SNAPSHOT) if place >= since]
            assert log and log[0] < last, "the log was not on the disk when the snapshot took its place"


def test_snapshots_are_as_far_apart_after_a_start(tmp_path: Path, writes: Writes) -> None:
    for _ in range(2):
        with service(tmp_path, snapshot_every=5) as one:
            before = len(writes.replaced(SNAPSHOT))
            for expected in (0, 0, 0, 0, 1):
                one.learn(one.decide(X[0]).token, 1.0)
                assert len(writes.replaced(SNAPSHOT)) - before == expected


def test_a_file_is_on_the_disk_before_it_takes_its_place(tmp_path: Path, writes: Writes) -> None:
    run = seqdec.run(toy_agent(), toy_env(), 40, seed=0, checkpoint=tmp_path / "run", checkpoint_every=20)
    run.save(tmp_path / "saved")
    seqdec.save(tmp_path / SNAPSHOT, run.state)
    moved = [(place, event) for place, event in enumerate(writes.events) if event.kind == "replace"]
    assert len(moved) >= 3
    for place, event in moved:
        assert any(earlier < place for earlier in writes.synchronized(event.file)), event.name


def test_an_older_snapshot_never_takes_the_place_of_a_newer(tmp_path: Path, writes: Writes) -> None:
    known: list[float] = []

    def before(event: Event) -> None:
        if event.kind == "fsync":
            time.sleep(0.002)  # others come up meanwhile, and wait
        if event.name == SNAPSHOT:
            (file,) = [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_ino == event.file]
            known.append(sum(array.sum() for name, array in load_file(file).items() if name.endswith("counts")))

    def work(one: seqdec.OnlineAgent) -> None:
        for _ in range(12):
            one.learn(one.decide(X[0]).token, 1.0)
            one.snapshot()

    with service(tmp_path / "a") as one:
        writes.before = before
        with ThreadPoolExecutor(6) as pool:
            for done in [pool.submit(work, one) for _ in range(6)]:
                done.result()
        assert one.counts == {"decisions": 72, "rewards": 72, "learned": 72}
        expected, kept = bits(one), copied(tmp_path / "a", tmp_path / "b")
    assert len(known) > 10 and known == sorted(known)
    with service(kept) as again:
        assert bits(again) == expected


def test_what_a_kill_leaves_at_any_write_is_what_was_acknowledged(tmp_path: Path, writes: Writes) -> None:
    acknowledged, left = [0, 0], []

    def before(event: Event) -> None:
        if event.name != "SELECT":
            place = tmp_path / f"copy{len(left)}"
            shutil.copytree(tmp_path / "log", place, ignore=lambda folder, names: {n for n in names if "lock" in n})
            left.append((place, *acknowledged))

    with service(tmp_path / "log", snapshot_every=2) as one:
        writes.before = before
        decided = one.decide_many(X[:4])
        acknowledged[0] = len(decided)
        for number, decision in enumerate(decided, 1):
            one.learn(decision.token, float(number))
            acknowledged[1] = number
        writes.before = lambda event: None
        whole = bits(one)
    assert len(left) > 8
    for place, decisions, rewards in left:
        with service(place) as again:
            assert again.counts["decisions"] in (decisions, 4), place
            assert again.counts["rewards"] in (rewards, rewards + 1), place
            tokens = [decision.token for decision in decided[again.counts["rewards"] :]]
            if again.counts["decisions"]:
                for number, token in enumerate(tokens, 4 - len(tokens) + 1):
                    assert again.learn(token, float(number)) == "learned"
                assert bits(again) == whole


@pytest.mark.parametrize("most", range(6))
def test_a_write_that_fails_takes_nothing_back_and_leaves_nothing_half_done(
    most: int, tmp_path: Path, writes: Writes
) -> None:
    with service(tmp_path) as one:
        tokens = [decision.token for decision in one.decide_many(X[:4])]
        writes.most = len(writes.events) + most
        with suppress(Stopped):
            one.learn_many([(token, 1.0) for token in tokens])
        writes.most = None
        assert one.counts["rewards"] in (0, 4) and one.counts["decisions"] == 4
        assert one.learn_many([(token, 1.0) for token in tokens])[0] in ("learned", "repeated")
        assert one.counts["rewards"] == 4 and float(one.state.counts.sum()) == 4


def reshaped(file: Path, name: str, shape: list[int]) -> None:
    """Give an array of a safetensors file another shape, and nothing else."""
    content = file.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header, body = content[8 : 8 + length].decode(), content[8 + length :]
    begin = header.index('"shape":', header.index(f'"{name}":')) + len('"shape":')
    end = header.index("]", begin) + 1
    changed = (header[:begin] + str(shape).replace(" ", "") + header[end:]).encode()
    file.write_bytes(struct.pack("<Q", len(changed)) + changed + body)


def test_an_array_of_another_shape_is_damage(tmp_path: Path) -> None:
    seqdec.save(tmp_path / SNAPSHOT, {"a": jnp.arange(6.0).reshape(2, 3)})
    reshaped(tmp_path / SNAPSHOT, "a", [2, 3])
    seqdec.load(tmp_path / SNAPSHOT, {"a": jnp.zeros((2, 3))})
    reshaped(tmp_path / SNAPSHOT, "a", [3, 2])
    with pytest.raises(ValueError, match="checksum"):
        seqdec.load(tmp_path / SNAPSHOT, {"a": jnp.zeros((2, 3))})
