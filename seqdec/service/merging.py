"""Finds rows of another log that a service already has.

A row is known by its key; without one by its content, 16 bytes of BLAKE2b of context, action, propensity, reward and
time: of equal rows, as many as the service has. Rows that are numbered have no time. They are known by the rest of
their content if it tells rows apart, with at most three equal ones in the mean; else as far as the log begins as one
before, by a hash of all rows up to each.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from seqdec.ope.log import Log
from seqdec.service.actions import Actions
from seqdec.service.database import Database, lowest_of
from seqdec.service.store import Stored, token_of

_SIZE = 16
_EQUAL = 3
"""Most equal rows in the mean."""
_NUMBERS = 10**9
"""Increasing integers below are no times; seconds since 1970 are above."""


class Hashes(NamedTuple):
    """Hashes that identify the n rows of a log."""

    contents: np.ndarray
    """(n,) hashes"""
    beginnings: np.ndarray | None
    """(n,) hashes of all rows up to each; None for rows with times"""

    def stored(self) -> list[bytes]:
        """Hash of each row, for the log."""
        parts = [self.contents] if self.beginnings is None else [self.contents, self.beginnings]
        return [b"".join(row) for row in zip(*(_split(part) for part in parts), strict=True)]


def hashes_of(
    log: Log, contexts: Sequence[bytes], written: Sequence[int], rewards: Sequence[Stored], kind: Actions
) -> Hashes:
    """Hashes of a log's rows, from stored values."""
    times = _times(log.timestamp)
    contents = _contents(kind.compared(contexts), written, log.propensity, times, rewards)
    return Hashes(contents, None if times is not None else _beginnings(contents))


def known(database: Database, log: Log, own: Hashes, kind: Actions) -> np.ndarray:
    """(n,) bool, the rows of a log that are in the database."""
    lowest, found = lowest_of(database.inserted()), np.zeros(len(log), bool)
    if log.key is not None:
        stored = database.execute("SELECT key, number, nonce FROM decisions WHERE number >= ?", (lowest,))
        texts = [str(key or token_of(number, nonce)) for key, number, nonce in stored if nonce is not None]
        found = np.isin(_hashes(map(str, log.key.tolist())), _hashes(texts))
    keyless = "AND key IS NULL" if log.key is not None else ""
    imported = database.execute(
        f"SELECT nonce FROM decisions WHERE number >= ? AND number < 0 AND nonce IS NOT NULL {keyless}", (lowest,)
    )
    nonces = [nonce for (nonce,) in imported]
    contents = [_joined([nonce[:_SIZE] for nonce in nonces])]
    if log.timestamp.dtype.kind == "M":
        contents.append(_decided(database, log, kind))
    left = np.flatnonzero(~found)
    if own.beginnings is not None and _EQUAL * len(np.unique(own.contents)) < len(log):
        before = _joined([nonce[_SIZE:] for nonce in nonces if len(nonce) > _SIZE])
        found[left] = np.isin(own.beginnings[left], before)
    else:
        found[left] = _matched(own.contents[left], np.concatenate(contents))
    return found


def _decided(database: Database, log: Log, kind: Actions) -> np.ndarray:
    """Hashes of the service's own rows with a reward in the time of a log."""
    first, last = (int(time) for time in log.timestamp[[0, -1]].astype("datetime64[ns]").astype(np.int64))
    condition = "WHERE decisions.number > 0 AND decisions.time BETWEEN ? AND ? AND context IS NOT NULL"
    pairs = database.rewarded(condition, (first, last))
    if not pairs:
        return _joined([])
    _, times, _, contexts, _, actions, propensities, *_ = zip(*(decision for _, decision in pairs), strict=True)
    chances, moments = np.array(propensities, float), np.array(times, np.int64)
    return _contents(kind.compared(contexts), actions, chances, moments, [reward[3] for reward, _ in pairs])


def _times(timestamp: np.ndarray) -> np.ndarray | None:
    """(n,) 8 bytes; None for row numbers."""
    if timestamp.dtype.kind == "M":
        return timestamp.astype("datetime64[ns]").astype(np.int64)
    if timestamp.dtype.kind in "iu" and (np.diff(timestamp) > 0).all() and timestamp[-1] < _NUMBERS:
        return None
    return timestamp.astype(np.float64)


def _contents(
    records: np.ndarray,
    actions: Sequence[int],
    propensities: np.ndarray,
    times: np.ndarray | None,
    rewards: Sequence[Stored],
) -> np.ndarray:
    chances = np.where(np.isnan(propensities), np.nan, propensities)  # one of the many bit patterns
    columns = [records, np.array(actions, np.int64), chances, *([] if times is None else [times])]
    count = len(records)
    joined = np.concatenate([np.frombuffer(one.tobytes(), np.uint8).reshape(count, -1) for one in columns], axis=1)
    rows = zip(_split(joined), rewards, strict=True)
    return _joined([_hash(row + repr(reward).encode()) for row, reward in rows])


def _beginnings(contents: np.ndarray) -> np.ndarray:
    running, found = hashlib.blake2b(digest_size=_SIZE), []
    for content in _split(contents):
        running.update(content)
        found.append(running.digest())
    return _joined(found)


def _matched(hashes: np.ndarray, stored: np.ndarray) -> np.ndarray:
    """(n,) bool: of equal hashes, the first as many as are stored."""
    kinds, place = np.unique(hashes, return_inverse=True)
    at = np.minimum(np.searchsorted(kinds, stored), len(kinds) - 1) if len(kinds) else np.zeros(0, int)
    have = np.bincount(at[kinds[at] == stored] if len(kinds) else at, minlength=len(kinds))
    order = np.argsort(place, kind="stable")
    occurrence = np.empty(len(place), int)
    occurrence[order] = np.arange(len(place)) - np.searchsorted(place[order], place[order])
    return occurrence < have[place]


def _hash(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_SIZE).digest()


def _hashes(texts: Iterable[str]) -> np.ndarray:
    return _joined([_hash(text.encode()) for text in texts])


def _joined(hashes: Sequence[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(hashes), f"S{_SIZE}")


def _split(rows: np.ndarray) -> list[bytes]:
    """Bytes of each row."""
    content, size = rows.tobytes(), rows.nbytes // max(len(rows), 1)
    return [content[place : place + size] for place in range(0, len(content), size)]
