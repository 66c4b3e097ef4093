"""The log of a service as a `Log` or table, also while in use; imports of other logs."""

import dataclasses
import json
import math
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np

from seqdec.features import Encoder
from seqdec.ope.alignment import aligned
from seqdec.ope.columns import part_column
from seqdec.ope.comparison import Comparison, compare
from seqdec.ope.diagnostics import RARE
from seqdec.ope.estimators.continuous import ContinuousLog, make_continuous_log
from seqdec.ope.log import Log, make_log
from seqdec.persistence import located
from seqdec.service import rewards
from seqdec.service.actions import Actions
from seqdec.service.contexts import USER, WHOLE, record_from, unpacked
from seqdec.service.database import COLUMNS, WIDTHS, Database, lowest_of
from seqdec.service.identity import feature_names, part_of
from seqdec.service.items import Inventory, unpack_mask
from seqdec.service.merging import hashes_of, known
from seqdec.service.postgres import Postgres, reading
from seqdec.service.rewards import Rule, encoded
from seqdec.service.sqlite import FILE, SQLite, wal
from seqdec.service.store import COLLECTED, INACTIVE, WITHDRAWN, Entry, Store, Transact, portion, token_of

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
Laws = Mapping[int, bytes]
"""Probabilities of all arms as float32, by number of the decision."""
Pairs = Sequence[tuple[Sequence[Any], Sequence[Any]]]
"""Rewards with their decisions, as the log has them."""
LOG = "log"
"""Name in `attrs` of a history of what the log says of itself.

encoder (JSON), window of rewards (seconds), arms that may be played, last report that waits to be combined, time before
which decisions may have been removed (seconds since 1970); None without.
"""
_EXPLORE = (
    "In {:.0%} of the decisions the rule could play nothing else: let it play another arm in a share of them, such as "
    "a tenth, and send the probability of what it plays as `chance`."
)
_SQLITE = b"SQLite format 3\0"


class Merged(NamedTuple):
    """Result of importing a log."""

    known: int
    """rows that the service had"""
    clipped: int
    """contexts beyond bounds among the others"""


def import_log(store: Store, actions: Actions, transact: Transact, log: Log, rule: Rule) -> Merged:
    """Write the rows of a log that are not known, in portions; they count from the last transaction on."""
    learned = transact(store.taught, urgent=True)
    log = aligned(log, actions.schema(log, learned))
    taught = learned._replace(**{name: part for name, part in log.schema._asdict().items() if part is not None})
    log = log.replace(propensity=np.full(len(log), np.nan)) if log.estimated else log
    stored = list(map(encoded, rule.of_log(log)))
    contexts, masks, written = actions.imported(log)
    hashes = hashes_of(log, contexts.packed, written, stored, actions)
    with opened(store, transact) as database:
        old = known(database, log, hashes, actions) | _removed(database, log)
    if old.all():
        return Merged(len(log), 0)
    nonces = hashes.stored()
    if old.any() and log.key is None and hashes.beginnings is not None:
        warnings.warn(
            f"{int(old.sum()):,} of {len(log):,} rows were not learned, because they equal rows that this agent has; "
            "they have neither a key nor a time to tell: give the log one, as with Log.from_pandas(..., key=...)",
            RuntimeWarning,
            stacklevel=4,
        )
    if old.any():
        new = np.flatnonzero(~old)
        log, stored, nonces = log[new], [stored[row] for row in new], [nonces[row] for row in new]
        contexts, masks, written = actions.imported(log)
    count = len(log)
    keys = [None] * count if log.key is None else list(map(str, log.key.tolist()))
    laws: list[bytes | None] = [None] * count
    if log.logging is not None:
        laws = [None if np.isnan(row).any() else row.tobytes() for row in np.asarray(log.logging, "<f4")]
    times = (
        log.timestamp.astype("datetime64[ns]").astype(np.int64).tolist() if log.timestamp.dtype.kind == "M" else None
    )
    entries = list(map(Entry, nonces, contexts.packed, masks, written, map(float, log.propensity), keys, laws))
    while transact(store.drop_staged, portion(1), urgent=True):
        pass
    step = portion(max(len(entry.context) + len(entry.mask or b"") for entry in entries))
    for start in range(0, count, step):
        part = slice(start, start + step)
        moments = None if times is None else times[part]
        transact(store.stage, start, entries[part], stored[part], moments, count, urgent=True)
    transact(store.show_history, count, taught)
    return Merged(len(old) - count, contexts.clipped)


def _removed(database: Database, log: Log) -> np.ndarray:
    """(n,) bool, the rows from before decisions were removed, which may be some of those; with a warning.

    Raises ValueError where no times tell.
    """
    base = database.base()
    if base is None or not (base.imported or log.timestamp.dtype.kind == "M"):
        return np.zeros(len(log), bool)
    if log.timestamp.dtype.kind != "M":
        raise ValueError(
            f"imported rows were removed from the log {database.path}, and rows without times may be some of them: "
            "give the log times, as with Log.from_pandas(..., timestamp=...)"
        )
    early = log.timestamp.astype("datetime64[ns]").astype(np.int64) < base.before
    if early.any():
        warnings.warn(
            f"{int(early.sum()):,} of {len(log):,} rows are from before {np.datetime64(base.before, 'ns')}, and were "
            "not learned, because rows of that time were removed from the log of this agent, perhaps the same ones",
            RuntimeWarning,
            stacklevel=5,
        )
    return early


@contextmanager
def opened(store: Store, transact: Transact) -> Iterator[Database]:
    """The log as it is now, while calls go on."""
    if isinstance(store.path, Postgres):
        with reading(store.path) as shared:
            yield shared
        return
    store.check_place()
    content = transact(store.content)
    with read_only(store.path) if content is None else closing(from_bytes(content)) as database:
        yield database


def back_up(store: Store, transact: Transact, snapshot: Path | None, to: Path) -> None:
    """Write a new folder with the log, as it is now, and the last snapshot; all or nothing."""
    if store.is_shared:
        raise ValueError(
            f"a backup of {store.path} is made by pg_dump, or by the archive of the database's WAL; seqdec store copy "
            "writes its log to a folder"
        )
    with new_folder(to) as part:
        if snapshot is not None and snapshot.is_file():  # before the log, which has what it has learned
            shutil.copyfile(snapshot, part / snapshot.name)
        with opened(store, transact) as database:
            database.execute("VACUUM INTO ?", (str(part / FILE),))
        with read_only(part / FILE) as copy:
            copy.check()


@contextmanager
def new_folder(to: Path) -> Iterator[Path]:
    """A folder to fill, which then becomes that one, and is on the disk; all or nothing."""
    if to.exists():
        raise FileExistsError(f"{to} exists: a backup needs a folder of its own, such as one named by the date")
    part = to.with_name(f".{to.name}.{os.getpid()}")
    part.mkdir(mode=0o700)
    try:
        yield part
        for path in part.iterdir():
            path.chmod(0o600)
            with path.open("rb+") as file:
                os.fsync(file.fileno())
        part.rename(to)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


@contextmanager
def read_only(path: Path) -> Iterator[Database]:
    """A read-only connection to a log, also while in use. Raises OSError or ValueError."""
    in_use, file = wal(path).exists(), path
    with ExitStack() as held:
        if in_use and not path.with_name(f"{path.name}-shm").exists():
            # A crash left the WAL; SQLite would have to write beside it.
            copy = Path(held.enter_context(TemporaryDirectory()))
            for part in (wal(path), path):
                shutil.copyfile(part, copy / part.name)
            file = copy / path.name
        # Without a WAL, SQLite would make one, which its owner might not be allowed to open.
        mode = "mode=ro" if in_use else "mode=ro&immutable=1"
        database = held.enter_context(closing(SQLite(path, f"{file.as_uri()}?{mode}", uri=True)))
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not {"facts", "decisions", "rewards"} <= tables or not database.described():
            raise ValueError(f"{path} is not the log of an OnlineAgent; its tables are {sorted(tables)}")
        yield database


def from_bytes(content: bytes) -> SQLite:
    """The log in a database's bytes."""
    database = SQLite(Path(":memory:"))
    database.connection.deserialize(content)
    return database


def log_of(database: Database) -> Any:
    """Decisions with known reward and propensity, but for control groups of one arm. Raises ValueError where none."""
    pairs = _rewarded(database)
    if pairs and isinstance(pairs[0][1][5], bytes):
        return _of_points(database, pairs)
    found = joined(database, pairs)
    one_arm = {number for number, unit in database.units().items() if unit.is_control}
    kept = [
        place
        for place, (number, chance) in enumerate(zip(found.numbers, found.log.propensity, strict=True))
        if number not in one_arm or chance < 1
    ]
    return found.log if len(kept) == len(found.log) else found.log[np.array(kept, int)]


def _with_rule(database: Database, laws: Laws, latest: int | None, **settings: Any) -> Comparison:
    """The agent against the rule that it imitated."""
    log, _, shadows, _ = joined(database)
    rows = _latest([shadow is not None for shadow in shadows], latest)
    if not len(rows):
        raise ValueError(
            f"{database.path} has no decision with a reward in which the agent imitated another rule: give `decide` "
            "the arm that the rule takes, as `taken`"
        )
    part = log[rows].replace(logging=None)
    found = compare(part, policy_of([shadows[row] for row in rows], log.num_actions), **settings)
    certain = float((part.propensity == 1).mean())
    if found.decision == "cannot decide" and certain > RARE:
        found = dataclasses.replace(found, verdict=f"{found.verdict} {_EXPLORE.format(certain)}")
    return found


def _with_challenger(database: Database, laws: Laws, latest: int | None, **settings: Any) -> Comparison:
    """The challenger against the agent, in what the agent decided by itself."""
    (log, numbers, shadows, _), units = joined(database), database.units()
    others = {number for number, unit in units.items() if unit.is_control}
    others.update(number for number, shadow in zip(numbers, shadows, strict=True) if shadow is not None)
    rows = _latest([number in laws and number not in others for number in numbers], latest)
    if not len(rows):
        raise ValueError(
            f"{database.path} has no decision of the agent with a reward that a challenger has learned: make the agent "
            "with a challenger, and wait for rewards"
        )
    return compare(log[rows], policy_of([laws[numbers[row]] for row in rows], log.num_actions), **settings)


def policy_of(laws: Sequence[bytes | None], size: int) -> np.ndarray:
    """(n, size) probabilities."""
    found = _laws(laws, size)
    assert found is not None
    return found / found.sum(axis=1, keepdims=True)


def _with_control(database: Database, laws: Laws, latest: int | None, **settings: Any) -> Comparison:
    """The units of the agent against those of the control group."""
    (log, numbers, *_), units = joined(database), database.units()
    rows = _latest([number in units for number in numbers], latest)
    if not len(rows):
        raise ValueError(f"{database.path} has no decision with a reward since there is a control group")
    found = [units[numbers[row]] for row in rows]
    is_control, share = (np.array(part) for part in zip(*((one.is_control, one.share) for one in found), strict=True))
    others = np.where(is_control, share, 1 - share)  # of units in the control group
    groups = make_log(
        action=np.where(is_control, 0, 1),
        reward=log.reward[rows],
        propensity=share,
        timestamp=log.timestamp[rows],
        logging=np.stack([others, 1 - others], axis=1),
    )
    control, agent = (np.tile(law, (len(rows), 1)) for law in ([1.0, 0.0], [0.0, 1.0]))
    return compare(groups, agent, baseline=control, groups=[unit.digest.hex() for unit in found], **settings)


COMPARED: Mapping[str, Callable[..., Comparison]] = MappingProxyType(
    {"rule": _with_rule, "control": _with_control, "challenger": _with_challenger}
)
"""With what an agent is compared: (log, laws of the challenger, latest rows that count, settings of `compare`).

They raise ValueError where no row counts.
"""


def _latest(counts: Sequence[bool], latest: int | None) -> np.ndarray:
    """Rows that count, the latest of them; None: their later half."""
    rows = np.flatnonzero(counts)
    return rows[-latest:] if latest else rows[len(rows) // 2 :]


class Joined(NamedTuple):
    """Rows of a log, with fields that are not its columns."""

    log: Log
    numbers: Sequence[int]
    """of the decisions"""
    shadows: Sequence[bytes | None]
    """laws of the agent where it imitated another rule"""
    sequences: Sequence[int]
    """places in the order of learning"""


def joined(database: Database, pairs: Pairs | None = None) -> Joined:
    """Decisions with known reward and propensity, of some or all. Raises ValueError where there is none."""
    pairs = _rewarded(database) if pairs is None else pairs
    if pairs and isinstance(pairs[0][1][5], bytes):
        raise ValueError("arms are compared, and these actions are points of a Box")
    rows = _known(database, pairs)
    numbers, moments, nonces, contexts, masks, actions, propensities, keys, laws, shadows, stored, sequences = zip(
        *rows, strict=True
    )
    facts = database.facts()
    times, weights, record = (
        np.array(moments, "datetime64[ns]"),
        facts.get("reward_weights"),
        record_from(facts["record"]),
    )
    given = {"action": actions, "propensity": propensities, "timestamp": times}
    own = [key or token_of(number, nonce) for key, number, nonce in zip(keys, numbers, nonces, strict=True)]
    given |= {"reward": [rewards.worth(reward, weights) for reward in stored]}
    given |= {"reward_parts": rewards.columns(stored, weights)}
    if items := database.items():
        known = Inventory.read(items, record)
        mask = np.array([unpack_mask(shown, len(items)) for shown in masks])
        users = unpacked(contexts, record)[USER][:, 0] if USER in (record.names or ()) else None
        given |= {} if users is None else _columns(database, USER)
        log = make_log(**given, context=users, mask=mask, action_features=known.features, action_names=known.names)
        return Joined(log.replace(key=np.array(own, object)), numbers, shadows, sequences)
    size = max(map(len, masks))
    records = unpacked(contexts, record)
    whole = record.names == (WHOLE,)
    lead = (len(rows),) if whole else (len(rows), size)
    parts = [records[name] for name in record.names or ()]
    columns = [part.reshape(*lead, part.size // math.prod(lead)) for part in parts]
    joined = np.concatenate(columns, axis=-1)
    names = tuple(arm.name for arm in database.arms().values())[:size]
    log = make_log(
        **given,
        **({"context": joined, **_columns(database)} if whole else {}),
        action_features=None if whole else joined,
        mask=np.frombuffer(b"".join(mask.ljust(size, b"\0") for mask in masks), bool).reshape(len(rows), size),
    )
    known = None if names == tuple(range(size)) else names
    log = log.replace(action_names=known, key=np.array(own, object), logging=_laws(laws, size))
    return Joined(log, numbers, shadows, sequences)


def _rewarded(database: Database) -> Pairs:
    """All rewards with their decisions."""
    first = lowest_of(database.inserted())
    return database.rewarded("WHERE rewards.number >= ? ORDER BY rewards.number", (first,))


def _known(database: Database, pairs: Pairs) -> list[Any]:
    """Decisions with propensities, in their order, each with its reward and the place of that; of no erased context.

    Raises ValueError where there is none.
    """
    rows = [(*decision, reward[3], reward[0]) for reward, decision in pairs if None not in (decision[3], decision[6])]
    if not rows:
        raise ValueError(f"{database.path} has no decision with a propensity and a reward yet")
    return sorted(rows, key=lambda row: row[1])


def _of_points(database: Database, pairs: Pairs) -> ContinuousLog:
    """Decisions for points of a Box, whose propensities are densities."""
    _, _, _, contexts, _, actions, densities, *_, stored, _ = zip(*_known(database, pairs), strict=True)
    facts, count = database.facts(), len(actions)
    points = np.frombuffer(b"".join(actions), np.float32).reshape(count, -1)
    records = unpacked(contexts, record_from(facts["record"]))
    return make_continuous_log(
        action=points[:, 0] if points.shape[1] == 1 else points,
        reward=[rewards.worth(reward, facts.get("reward_weights")) for reward in stored],
        density=densities,
        context=np.concatenate([records[name].reshape(count, -1) for name in records.dtype.names or ()], axis=1),
    )


def _laws(laws: Sequence[bytes | None], size: int) -> np.ndarray | None:
    """(n, size) probabilities, 0 of later arms, NaN where unknown; None where all are."""
    if not any(laws):
        return None
    found = np.zeros((len(laws), size))
    for row, law in zip(found, laws, strict=True):
        given = np.full(size, np.nan, np.float32) if law is None else np.frombuffer(law, "<f4")
        row[: len(given)] = given
    return found


def _columns(database: Database, part: str | None = None) -> dict[str, Any]:
    """Names of features and digest of the encoder, or those of imported logs."""
    found, taught = database.facts().get("encoder"), database.taught()
    described: Any = found if part is None else part_of(found, part)
    names, digest = taught.context_names, taught.encoder
    if isinstance(described, Mapping):
        names, digest = tuple(described["features"]), None
    elif described is not None:
        encoder = Encoder.from_json(described)
        names, digest = encoder.names, encoder.digest
    unique = names is not None and len(set(names)) == len(names)
    return {"context_names": names if unique else None, "encoder": digest}


def history_of(database: Database, most: int | None = None) -> "pd.DataFrame":
    """All decisions, as in `read_history`, or the latest."""
    import pandas as pd

    items, facts = database.items(), database.facts()
    record = record_from(facts["record"])
    weights, names = facts.get("reward_weights"), feature_names(facts.get("encoder"))
    gone = {number: WITHDRAWN for number, _ in database.rows("withdrawn")}
    waiting = {number: INACTIVE for number, _ in database.rows("deferred", "WHERE activated IS NULL")}
    found = database.execute(
        f"SELECT {COLUMNS['decisions']}, {COLUMNS['rewards']} FROM decisions LEFT JOIN rewards "
        f"USING (number) WHERE decisions.number >= ? ORDER BY decisions.{database.newest} LIMIT ?",
        (lowest_of(database.inserted()), sys.maxsize if most is None else most),
    )[::-1]
    width = WIDTHS["decisions"]
    rows = [(database.verified("decisions", row[:width]), _reward_of(database, row[0], row[width:])) for row in found]
    if any(source == COLLECTED for _, (*_, source) in rows):
        last = {number: moment for _, number, _, moment, _ in database.rows("reports", "ORDER BY sequence")}
        rows = [
            (row, (reward, last[row[0]] if source == COLLECTED else moment, source))
            for row, (reward, moment, source) in rows
        ]
    rows.sort(key=lambda row: row[0][1])  # by time
    decided = list(zip(*(row for row, _ in rows), strict=True)) or [()] * (width - 1)
    rewarded = list(zip(*(row for _, row in rows), strict=True)) or [()] * 3
    number, moment, nonce, context, _, action, propensity, own_key, *_ = decided
    without = waiting | gone
    source = [kind or without.get(key) for key, kind in zip(number, rewarded[2], strict=True)]
    columns: dict[str, Any] = {
        "number": np.array(number, np.int64),
        "time": _times(moment),
        "token": pd.array(list(map(token_of, number, nonce)), "string"),
        "key": pd.array(own_key, "string"),
    }
    if rows and isinstance(action[0], bytes):
        points = np.array([np.frombuffer(point, np.float32) for point in action])
        columns |= {f"action_{place}": points[:, place] for place in range(points.shape[1])}
    else:
        ids = {key: arm.name for key, arm in database.arms().items()}
        ids |= {number: json.loads(text) for number, text, *_ in items}
        columns["action"] = pd.Series([ids.get(key, key) for key in action], dtype=None if action else np.int64)
    columns |= {
        "propensity": np.array(propensity, float),
        "reward": np.array([None if one is None else rewards.worth(one, weights) for one in rewarded[0]], float),
        **{part_column(name): part for name, part in rewards.columns(rewarded[0], weights).items()},
        "reward_time": _times(rewarded[1]),
        "source": pd.array(source, "string"),
    }
    erased = np.array([one is None for one in context], bool)
    records = unpacked([bytes(record.itemsize) if one is None else one for one in context], record)
    for field in record.names or ():
        part = records[field][:, 0] if items else records[field]  # of the item that was chosen
        flat = part.reshape(len(rows), math.prod(part.shape[1:]))
        flat = np.where(erased[:, None], np.nan, flat) if erased.any() else flat
        own = names.get(field) or [f"{field}_{place}" for place in range(flat.shape[1])]
        columns |= {f"context {name}" if name in columns else name: flat[:, i] for i, name in enumerate(own)}
    table = pd.DataFrame(columns)
    arms = [arm.name for arm in database.arms().values() if not arm.removed]
    ((latest,),) = database.execute("SELECT max(time) FROM reports")
    first = min(number, default=0)
    reported = {key for (key,) in database.execute("SELECT DISTINCT number FROM reports WHERE number >= ?", (first,))}
    unlearned = {key for key, kind in zip(number, rewarded[2], strict=True) if kind is None} - gone.keys()
    table.attrs[LOG] = {
        "encoder": facts.get("encoder"),
        "window": facts.get("reward_after"),
        "arms": None if items else arms,
        "collected": len(reported & unlearned),
        "last report": None if latest is None else latest / 1e9,
        "removed before": None if (base := database.base()) is None else base.before / 1e9,
    }
    return table


def latest_rewarded(database: Database, most: int) -> tuple[list[bytes], list[Any], np.ndarray]:
    """Contexts, actions and rewards of the latest own decisions with all of them."""
    weights = database.facts().get("reward_weights")
    condition = f"WHERE rewards.number >= 0 AND context IS NOT NULL ORDER BY decisions.{database.newest} LIMIT ?"
    found = database.rewarded(condition, (most,))
    worths = np.array([rewards.worth(reward[3], weights) for reward, _ in found], float)
    return [decision[3] for _, decision in found], [decision[5] for _, decision in found], worths


def _reward_of(database: Database, number: int, row: Sequence[Any]) -> tuple[Any, Any, Any]:
    """Reward of a decision, its time and its source; all None without a reward."""
    if all(value is None for value in (row[0], *row[2:])):
        return None, None, None
    _, _, _, reward, moment, source = database.verified("rewards", (row[0], number, *row[2:]))
    return reward, moment, source


def _times(moments: Sequence[int | None]) -> "pd.Series":
    import pandas as pd

    numbers = [np.iinfo(np.int64).min if moment is None else moment for moment in moments]  # that of NaT
    return pd.Series(np.array(numbers, np.int64).astype("datetime64[ns]")).dt.tz_localize("UTC")


def is_database(path: str | os.PathLike[str]) -> bool:
    """Whether a path is an agent's folder or a SQLite database."""
    place = located(path)
    if place.is_dir():
        return (place / FILE).is_file()
    with place.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def read_log(path: str | os.PathLike[str] | Postgres) -> Any:
    """Decisions of an `OnlineAgent` with their rewards, for off-policy evaluation, also while it is in use.

    A `Log`; of points of a Box a `ContinuousLog`.

    Args:
        path: the agent's folder, the database in it, or a copy; read only. Of several processes: `Postgres`.

    Raises FileNotFoundError where there is no log, ValueError where it is damaged, or has no decision with a reward and
    a propensity yet.
    """
    return read_database(path, log_of)


def read_history(path: str | os.PathLike[str] | Postgres) -> "pd.DataFrame":
    """All decisions of an `OnlineAgent` as a table, also without a reward, and while it is in use.

    Columns: number (below 0 for a `warm_start`), time (UTC), token, key (if the client gave one), action (action_0, ...
    of a point), propensity (NaN where unknown), reward and named parts (reward[click]), reward_time (of the last
    report), source ("reported", "default", "collected", "history"; without a reward "withdrawn" or "inactive"), and the
    context: the encoder's features or context_0, ...; where it was erased neither token nor key nor context. `attrs`
    says of the log: its encoder, window of rewards and present arms. `path` and errors as in `read_log`.
    """
    return read_database(path, history_of)


def read_latest(path: str | os.PathLike[str] | Postgres, most: int) -> "pd.DataFrame":
    """The latest decisions, as in `read_history`."""
    return read_database(path, lambda database: history_of(database, most))


def check(path: str | os.PathLike[str] | Postgres) -> None:
    """Read the whole log of an `OnlineAgent`. Raises as `read_log`, also for damaged rows and indexes seldom read."""
    read_database(path, Database.check)


def read_encoder(path: str | os.PathLike[str] | Postgres, part: Literal["item", "user"] | None = None) -> Encoder:
    """The encoder of an `OnlineAgent`, or of its catalog's items or users; also while it is in use.

    `path` and errors as in `read_log`; also ValueError for an encoder without a JSON form (`Encoder.of`).
    """
    found = read_database(path, lambda database: database.facts().get("encoder"))
    text = found if part is None else part_of(found, part)
    if isinstance(text, str):
        return Encoder.from_json(text)
    if text is None:
        kind = f"no encoder{'' if part is None else f' of each {part}'}"
    elif "columns" in text:
        kind = f"an encoder without a JSON form, of the columns {text['columns']}"
    else:
        kind = f"a catalog: say of which part, {' or '.join(map(repr, text))}"
    raise ValueError(f"the agent of {path} had {kind}")


def read_database(path: str | os.PathLike[str] | Postgres, get: Callable[[Database], T]) -> T:
    """Result of a function of an opened log. Raises as `read_log`."""
    if isinstance(path, Postgres):
        with reading(path) as database:
            return get(database)
    place = located(path)
    file = place / FILE if place.is_dir() else place
    if not file.is_file():
        raise FileNotFoundError(f"there is no {FILE} in {place}, and no file of that name")
    while True:
        in_use = wal(file).exists()
        with read_only(file) as database:
            found = get(database)
        if in_use or not wal(file).exists():
            return found  # else an agent has opened it meanwhile
