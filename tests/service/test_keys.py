"""Decisions by key and age: a retry decides once, what was withdrawn is not learned, what is forgotten is gone."""

import os
import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import seqdec
from seqdec.service import Catalog, read_history, read_log, retention
from seqdec.service.sqlite import FILE
from seqdec.service.store import Store
from tests.service.services import SITE, Clock, X, bits, copied, service, shop
from tests.writes import Stopped, Writes, writes

__all__ = ["writes"]
LATE: dict[str, Any] = {"reward_default": 0.0, "reward_after": 60.0}
FORGOTTEN = pytest.mark.filterwarnings("ignore:.* were not learned again:RuntimeWarning")


def catalog(folder: Path | None) -> seqdec.OnlineAgent:
    one = service(folder, shop, Catalog(spaces.Box(-5, 5, (2,)), user=spaces.Box(-5, 5, (2,))))
    if not one.items:
        one.add_items({name: [float(place), 1.0] for place, name in enumerate("abcd")})
    return one


def points(folder: Path | None) -> seqdec.OnlineAgent:
    site = seqdec.core.Spaces(spaces.Box(-5, 5, (2,)), spaces.Box(-1, 1, (2,), np.float32))
    return service(folder, lambda site: seqdec.agents.random(site), site)


def seen(decisions: Sequence[Any]) -> list[Any]:
    return [(np.asarray(one.action).tolist(), str(one.propensity), one.token, one.probabilities) for one in decisions]


# Retries


@pytest.mark.parametrize("made", [service, catalog, points])
def test_a_retry_returns_the_first_decision(made: Any, tmp_path: Path) -> None:
    """Also in another thread, after a restart, and in a batch that holds new requests and the same one twice."""
    with made(tmp_path / "log") as one:
        with ThreadPoolExecutor(4) as threads:
            first = list(threads.map(lambda _: one.decide(X[0], key="ann/1"), range(8)))
        assert seen(first) == seen(first[:1]) * 8 and one.counts["decisions"] == 1
        assert one.learn(first[0].token, 1.0) == "learned"
        assert one.learn(one.decide(X[0], key="ann/1").token, 1.0) == "repeated"
    with made(tmp_path / "log") as one:
        many = one.decide_many(X[[1, 0, 2, 1]], keys=["bob", "ann/1", "eve", "bob"])
        assert seen(many[1:2]) == seen(first[:1]) and seen(many[:1]) == seen(many[3:])
        assert one.counts["decisions"] == 3 and seen([one.decide(X[2], key="eve")]) == seen(many[2:3])
        assert one.decide(X[0]).token != one.decide(X[0]).token  # without a key
        assert read_history(tmp_path / "log")["key"].fillna("").tolist() == ["ann/1", "bob", "eve", "", ""]


def test_a_retry_is_decided_as_it_would_have_been_alone() -> None:
    """The others of its batch take the numbers, and so the random choices, that they would have had."""
    masks = np.array([[True, False, True], [True, True, True], [False, True, True]])
    with service() as one, service() as other:
        one.decide(X[1], masks[1], key="first")
        many = one.decide_many(X[:3], masks, keys=["a", "first", "b"])
        other.decide(X[1], masks[1])
        expected = other.decide_many(X[[0, 2]], masks[[0, 2]])
    assert [(d.action, d.propensity) for d in (many[0], many[2])] == [(d.action, d.propensity) for d in expected]


def test_a_key_has_its_first_action_in_whatever_context() -> None:
    """A retry brings the visitor's context of now; also when the arm or its item is no longer played."""
    with service() as one:
        first = one.decide(X[0], {1, 2}, key="a")
        assert seen([one.decide(X[1], key="a"), one.decide(X[2], {first.action}, key="a")]) == seen([first] * 2)
        one.remove_arm(first.action)
        assert seen([one.decide(X[1], key="a"), one.decide(X[1], {first.action}, key="a")]) == seen([first] * 2)
        many = one.decide_many(X[:3], keys=["b", "a", "b"])
        assert seen(many) == seen([many[0], first, many[0]]) and one.counts["decisions"] == 2
    with catalog(None) as one:
        first = one.decide(X[0], items=["b"], key="a")
        one.add_items({"b": [3.0, 3.0]})
        one.remove_items(["a"])
        assert seen([one.decide(X[1], items=["b", "c"], key="a")]) == seen([first])
        with pytest.raises(ValueError, match="the key 'a' is of a decision for 'b', which is not allowed here"):
            one.decide(X[1], items=["c"], key="a")


def test_a_slate_has_a_key(tmp_path: Path) -> None:
    with catalog(tmp_path) as one:
        slate = one.decide_slate(3, X[0], key="page")
        assert seen(one.decide_slate(3, X[0], key="page")) == seen(slate) and one.counts["decisions"] == 3
        assert seen(one.decide_slate(2, X[0], key="page")) == seen(slate[:2])
        with pytest.raises(ValueError, match="slate with this key has 3 items, not 4: ask for as many as before"):
            one.decide_slate(4, X[0], key="page")
        assert seen(one.decide_slate(3, X[1], key="page")) == seen(slate)
        with pytest.raises(
            ValueError, match=r"'page/0' is of a decision for '.', which is not allowed here: give this"
        ):
            one.decide_slate(3, X[1], items=set("abcd") - {slate[0].action}, key="page")
        assert read_history(tmp_path)["key"].tolist() == ["page/0", "page/1", "page/2"]
        assert one.forget(["page"]) == 3


def test_keys_that_cannot_be_are_refused_before_anything_is_logged() -> None:
    with service() as one:
        first = one.decide(X[0], key="a").action
        others = {0, 1, 2} - {first}
        never = f"is of a decision for {first}, which is not allowed here: give this decision a key of its own"
        refused: list[tuple[Any, type[Exception], str]] = [
            (lambda: one.decide(X[1], others, key="a"), ValueError, f"the key 'a' {never}"),
            (lambda: one.decide(X[1], [k in others for k in range(3)], key="a"), ValueError, f"the key 'a' {never}"),
            (lambda: one.decide_many(X[:2], [None, others], keys=["b", "a"]), ValueError, f"the key 'a' {never}"),
            (lambda: one.decide_many(X[:2], [{0}, {1}], keys=["b", "b"]), ValueError, "'b' is of a decision for 0, wh"),
            (lambda: one.decide(X[0], active="no"), TypeError, "active must be"),  # pyright: ignore
            (lambda: one.decide_many(X[:2], keys=["b"]), ValueError, "one for each of 2 contexts; got 1"),
            (lambda: one.decide(X[0], key=""), ValueError, "1 to 200 printable characters; got ''"),
            (lambda: one.decide(X[0], key="a" * 201), ValueError, "1 to 200 printable characters"),
            (lambda: one.decide(X[0], key="\ud800"), ValueError, "1 to 200 printable characters"),
            (lambda: one.decide(X[0], key=17), TypeError, "a key must be a text; got 17"),  # pyright: ignore
            (lambda: one.forget("ann"), TypeError, "keys must be a list of texts; got 'ann'"),
            (lambda: one.forget([17]), TypeError, "a key must be a text; got 17"),  # pyright: ignore
            (lambda: one.forget(older_than=-1), ValueError, "older_than must be"),
        ]
        for call, kind, message in refused:
            with pytest.raises(kind, match=message):
                call()
        assert one.counts["decisions"] == 1


# The law


def test_the_log_has_the_law_that_was_played(tmp_path: Path) -> None:
    with service(tmp_path) as one:
        played = [
            one.decide(x, mask) for x, mask in zip(X[:6], [[True, True, True], [False, True, True]] * 3, strict=True)
        ]
        one.add_arm()
        played += one.decide_many(X[6:9])
        one.learn_many([(decision.token, 1.0) for decision in played])
        log = one.log()
        assert log.logging is not None and log.key is not None and log.key.tolist() == [d.token for d in played]
        laws = [list(decision.probabilities or ()) for decision in played]
        np.testing.assert_array_equal(log.logging, [law + [0.0] * (4 - len(law)) for law in laws])
        np.testing.assert_array_equal(log.logging[np.arange(9), log.action], log.propensity)
        np.testing.assert_allclose(log.logging.sum(1), 1, atol=1e-6)
        assert not log.logging[~log.mask].any()
        np.testing.assert_array_equal(read_log(tmp_path).logging, log.logging)
    with service() as other:
        other.add_arm()
        other.warm_start(log)
        np.testing.assert_array_equal(other.log().logging, log.logging)
        assert other.log().key.tolist() == log.key.tolist()  # pyright: ignore[reportOptionalMemberAccess]


# Withdrawal


def test_what_was_withdrawn_is_learned_as_nothing(tmp_path: Path, clock: Clock) -> None:
    with service(tmp_path / "log", **LATE) as one:
        shown = one.decide_many(X[:6])
        assert one.learn(shown[1].token, 1.0) == "collected"
        assert [one.withdraw(d.token) for d in shown[:2]] == ["withdrawn", "withdrawn"]
        assert [one.withdraw(shown[0].token), one.learn(shown[0].token, 1.0)] == ["withdrawn", "withdrawn"]
        assert one.withdraw("7-00") == "unknown" and one.counts["withdrawn"] == 2  # decisions
        killed = copied(tmp_path / "log", tmp_path / "killed")
        clock.seconds += 61
        assert one.counts["default"] == 4 and one.withdraw(shown[2].token) == "repeated"
        state, log = bits(one), one.log()
    assert len(log) == 4 and log.reward.tolist() == [0.0] * 4
    history = read_history(tmp_path / "log")
    assert history["source"].tolist() == ["withdrawn"] * 2 + ["default"] * 4 and history["reward"].isna().sum() == 2
    with service(killed, **LATE) as one:
        assert one.counts["default"] == 4 and bits(one) == state
    with pytest.raises(TypeError, match="a token is the text"):
        one.withdraw(3)  # pyright: ignore[reportArgumentType]


# Activation


def test_what_is_not_active_has_no_default_and_all_the_time(tmp_path: Path, clock: Clock) -> None:
    """Its time begins with `activate` or its first report, also after a restart."""
    with service(tmp_path, **LATE) as one:
        hidden = one.decide(X[0], key="ann/1", active=False)
        shown, early, gone = one.decide_many(X[1:4], active=False)
        late = one.decide(X[4])
        assert seen([one.decide(X[5], key="ann/1")]) == seen([hidden])  # and is not active by it
        clock.seconds += 61
        assert one.counts["default"] == 1 and one.learn(late.token, 1.0) == "expired"
        assert [one.activate(shown.token) for _ in range(2)] == ["activated"] * 2 and one.counts["activated"] == 1
        assert one.learn(early.token, 1.0) == "collected" and one.withdraw(gone.token) == "withdrawn"
        assert [one.activate(token) for token in (gone.token, late.token, "9-00")] == [
            "withdrawn", "activated", "unknown",
        ]  # fmt: skip
    clock.seconds += 59
    with service(tmp_path, **LATE) as one:
        assert one.counts["rewards"] == 1 and one.learn(shown.token, 0.5) == "collected"
        clock.seconds += 2
        assert one.counts["rewards"] == 3 and one.learn(shown.token, 0.5) == "repeated"
        clock.seconds += 8e4
        assert one.counts["rewards"] == 3 and one.activate(hidden.token) == "activated"
        clock.seconds += 61
        assert one.counts["default"] == 1 and one.learn(hidden.token, 1.0) == "expired"
        assert sorted(one.log().reward.tolist()) == [0.0, 0.0, 0.5, 1.0]
    sources = read_history(tmp_path)["source"].tolist()
    assert sources == ["default", "collected", "collected", "withdrawn", "default"]


def test_without_a_window_what_is_not_active_waits_for_its_reward(tmp_path: Path, clock: Clock) -> None:
    with service(tmp_path, expire_after=60.0) as one:
        never, second, third = one.decide_many(X[:3], active=False)
        clock.seconds += 8e4
        assert one.learn(second.token, 1.0) == "learned" and one.activate(third.token) == "activated"
        clock.seconds += 61
        assert one.learn(third.token, 1.0) == "expired" and never.token
        assert read_history(tmp_path)["source"].fillna("").tolist() == ["inactive", "reported", ""]
        assert one.forget(older_than=60) == 3 and one.activate(never.token) == "unknown"


def test_a_slate_may_be_inactive(clock: Clock) -> None:
    with service(None, shop, Catalog(spaces.Box(-5, 5, (2,))), **LATE) as one:
        one.add_items({name: [float(place), 1.0] for place, name in enumerate("abcd")})
        slate = one.decide_slate(3, active=False)
        one.activate(slate[0].token)
        clock.seconds += 61
        assert one.counts["default"] == 1


@pytest.mark.parametrize(("rewards", "total"), [("sum", 8.0), ("last", 3.0)])
def test_a_report_that_is_sent_again_is_combined_once(rewards: str, total: float, tmp_path: Path, clock: Clock) -> None:
    """Also after a restart, and in one call; without a key each counts."""
    late: Any = {"rewards": rewards, "reward_after": 60.0}
    with service(tmp_path, **late) as one:
        token = one.decide(X[0], key="ann").token
        sent = [(token, 5.0, "ann/order 1"), (token, 5.0, "ann/order 1"), (token, 3.0, "ann/order 2")]
        assert one.learn_many(sent) == ["collected", "repeated", "collected"]
    with service(tmp_path, **late) as one:
        assert one.learn(token, 5.0, key="ann/order 1") == "repeated"
        with pytest.raises(ValueError, match="printable characters"):
            one.learn(token, 5.0, key="")
        assert found_in(tmp_path, b"ann/order") == []
        clock.seconds += 61
        assert one.counts["learned"] == 1 and one.log().reward.tolist() == [total]


# Erasure


def found_in(folder: Path, *texts: bytes) -> list[tuple[str, bytes]]:
    """Files of the folder, with what they hold of the texts."""
    return [(path.name, text) for path in folder.iterdir() for text in texts if text in path.read_bytes()]


LARGE = seqdec.core.Spaces(spaces.Box(-5, 5, (2000,)), spaces.Discrete(2))


@FORGOTTEN
def test_what_is_forgotten_is_in_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows that share pages with others, and of rows on pages of their own."""
    monkeypatch.setattr(retention, "_SOME", 7)
    for name, site, size in (("small", SITE, 2), ("large", LARGE, 2000)):
        random = np.random.default_rng(1)
        rows, folder = random.normal(size=(90, size)).astype(np.float32), tmp_path / name
        with service(folder, site=site) as one:
            tokens = [one.decide(row, key=f"{'ann' if n % 3 else 'bob'}/{n}").token for n, row in enumerate(rows)]
            one.learn_many([(token, 1.0) for token in tokens[:60]])
            gone = [row.tobytes()[:8] for n, row in enumerate(rows) if n % 3]
            kept = [row.tobytes()[:8] for n, row in enumerate(rows) if not n % 3]
            assert {text for _, text in found_in(folder, *gone, *kept)} == {*gone, *kept}
            state = bits(one)
            assert one.forget(["ann", "nobody", tokens[0]]) == 61 and one.forget(["ann", tokens[0]]) == 0
            assert found_in(folder, *gone, kept[0], b"ann/") == []
            assert {text for _, text in found_in(folder, *kept)} == set(kept[1:])
            assert bits(one) == state and one.counts["decisions"] == 90 and one.counts["rewards"] == 60
            assert one.learn(tokens[1], 1.0) == "unknown" == one.withdraw(tokens[80])
            assert one.learn(tokens[3], 1.0) == "repeated" and one.learn(tokens[63], 0.5) == "learned"
            assert len(one.log()) == 20 and one.decide(rows[1], key="ann/1").token.startswith("91-")
        history = read_history(folder)
        erased = history["token"].isna()
        assert erased.sum() == 61 and history[erased].iloc[:, -size:].isna().all(axis=None) and len(history) == 91
        assert history["propensity"].notna().all() and history["reward"].sum() == 60.5
        assert (history["source"] == "withdrawn").sum() == 20
        with service(folder, site=site) as one:
            assert one.counts["rewards"] == 61


def test_forgotten_rewards_are_unlearned_on_a_word(tmp_path: Path) -> None:
    """By the same agent, which else has nothing to learn again."""
    with service(tmp_path) as one:
        for number, x in enumerate(X[:12]):
            decision = one.decide(x, key=f"{'right' if number % 2 else 'wrong'}/{number}")
            one.learn(decision.token, float(number % 3))
        one.forget(["wrong"])
        before = bits(one)
    with service(tmp_path) as again:
        assert bits(again) == before
    with pytest.warns(RuntimeWarning, match="6 rewards"):
        again = service(tmp_path, relearn=True)
    with again:
        assert bits(again) != before and again.log().reward.tolist() == [1.0, 0.0, 2.0, 1.0, 0.0, 2.0]


def test_a_restart_keeps_what_was_learned_and_relearning_says_what_it_lacks(tmp_path: Path) -> None:
    with service(tmp_path / "log") as one:
        for n, x in enumerate(X[:12]):
            one.learn(one.decide(x, key=f"{'ann' if n < 4 else 'bob'}/{n}").token, 1.0)
        assert one.forget(["ann"]) == 4
        one.learn(one.decide(X[12]).token, 0.5)
        state = bits(one)
        killed = copied(tmp_path / "log", tmp_path / "killed")  # without the snapshot
    with service(tmp_path / "log") as one:
        assert bits(one) == state
    with pytest.warns(RuntimeWarning, match="4 rewards in .*decisions.sqlite were not learned again, because"):
        relearned = service(killed)
    with relearned:
        assert bits(relearned) != state and relearned.counts["rewards"] == 13
        with pytest.warns(RuntimeWarning, match="4 rewards"):
            relearned.add_arm()


def test_erasure_by_age(tmp_path: Path, clock: Clock) -> None:
    with service(tmp_path, **LATE) as one:
        one.warm_start(seqdec.ope.make_log(action=[0, 1], reward=[1.0, 0.0], propensity=[0.5, 0.5], context=X[:2]))
        old = one.decide_many(X[2:5])
        one.withdraw(old[0].token)
        clock.seconds += 50
        new = one.decide(X[5])
        assert one.forget(older_than=60) == 0
        clock.seconds += 20
        assert one.forget(older_than=60) == 5 and one.forget(older_than=60) == 0
        assert found_in(tmp_path, *[x.astype(np.float32).tobytes() for x in X[:5]]) == []
        assert one.learn(new.token, 1.0) == "collected"
        clock.seconds += 60
        assert len(one.log()) == 1 and read_history(tmp_path)["source"].tolist() == [
            "history", "history", "withdrawn", "default", "default", "collected",
        ]  # fmt: skip


def test_an_unfinished_erasure_leaves_whole_rows(tmp_path: Path, writes: Writes) -> None:
    """Killed at any statement, a second call erases the rest."""
    expected = None
    for number in range(100):
        folder = tmp_path / str(number)
        one = service(folder)
        one.learn_many([(one.decide(x, key="ann").token, 1.0) for x in X[:1]])
        one.decide_many(X[1:3], keys=["ann/1", "ann/2"])
        one.snapshot()
        writes.most = len(writes.events) + number
        try:
            assert one.forget(["ann"]) == 3
            expected = number
        except Stopped:
            pass
        writes.most = None
        if expected is None:
            killed = copied(folder, tmp_path / f"killed {number}")
            with closing(Store(killed)) as log:
                contexts = [row[3] is None for row in log.database.rows("decisions", "ORDER BY number")]
                assert contexts in ([True] * 3, [False] * 3)
                assert len(log.database.rows("withdrawn")) == (2 if contexts[0] else 0)
        one.close()
        if expected is not None:
            break
    assert expected is not None and expected > 8


def test_a_reader_that_holds_the_old_pages_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sqlite3

    monkeypatch.setattr(retention, "_PAUSE", 0.01)
    with service(tmp_path) as one:
        one.decide(X[0], key="ann")
        with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM decisions").fetchone()
            with pytest.warns(RuntimeWarning, match="another process reads .* until the next call of forget or close"):
                assert one.forget(["ann"]) == 1
        assert one.forget() == 0 and found_in(tmp_path, X[0].astype(np.float32).tobytes(), b"ann") == []


def test_the_log_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        (tmp_path / "there").mkdir()
        for name, mode in (("new", 0o700), ("there", 0o755)):
            with service(tmp_path / name) as one:
                one.learn(one.decide(X[0]).token, 1.0)
                one.snapshot()
                modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / name).iterdir()}
                assert {mode for name, mode in modes.items() if name != ".lock"} == {0o600} and len(modes) == 5
                assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode
        (tmp_path / "new" / "state.safetensors").chmod(0o640)
        with service(tmp_path / "new") as one:
            one.learn(one.decide(X[0]).token, 1.0)
        assert stat.S_IMODE((tmp_path / "new" / "state.safetensors").stat().st_mode) == 0o640  # as somebody chose
    finally:
        os.umask(before)
