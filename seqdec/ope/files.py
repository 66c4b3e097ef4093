"""Logs in parquet files, read in batches, and in folders of such files."""

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from seqdec.boundary import checks
from seqdec.introspection import counted, described
from seqdec.ope.columns import actions_in, named, numbers, required
from seqdec.ope.contract import Evidence, Target, evidence, refuse_agent
from seqdec.ope.labels import Label, labeled
from seqdec.ope.log import Log
from seqdec.ope.validity import check_keys
from seqdec.persistence import located, manifest_of, reading

if TYPE_CHECKING:
    import pandas as pd

_REMEDY = "a log in batches is a parquet file: read others with Log.load, or convert them"


class LogFile(NamedTuple):
    """A log in a parquet file, from `scan_log`."""

    file: str
    """absolute path"""
    rows: int
    """n"""
    batch_size: int
    """rows in memory at a time"""
    options: Mapping[str, Any]
    """keywords of `Log.from_pandas`"""
    encoder: str | None = None
    """as in `Log`, of a file from `Log.save`"""

    def __repr__(self) -> str:
        return described(
            f"Log of {counted(self.rows, 'decision')} in {self.file}", f"read in batches of {self.batch_size:,}"
        )

    @property
    def num_actions(self) -> int:
        """Number of actions k."""
        return self.options["num_actions"] if "num_actions" in self.options else len(self.options["action_names"])

    def batches(self) -> Iterator[Log]:
        """Validated logs of at most `batch_size` rows, in the order of the file.

        Raises ValueError naming file, rows, column, value and remedy.
        """
        return (log for _, _, log in self.tables())

    def tables(self) -> "Iterator[tuple[int, pd.DataFrame, Log]]":
        """First row, table with all columns, and log of each batch."""
        start, before, keys = 0, None, []
        for table in _tables(Path(self.file), self.batch_size):
            with self.naming(start, len(table)):
                log = Log.from_pandas(table, **self.options)
                log = log if log.encoder is not None else log.replace(encoder=self.encoder)
                if before is not None and self.timed(table) and log.timestamp[0] < before.timestamp[-1]:
                    raise ValueError("the first is earlier than the row before: sort the log by time")
                if before is not None and before.known_propensities != log.known_propensities:
                    raise ValueError("propensities are known in some batches only: drop rows without one")
            yield start, table, log
            start, before = start + len(table), log
            keys += [] if log.key is None else [log.key]
        if len(keys) > 1:
            with self.naming(0, start):
                check_keys(np.concatenate(keys))
        if start != self.rows:
            raise ValueError(f"{self.file} has {start:,} rows and had {self.rows:,}: call scan_log anew")

    @contextmanager
    def naming(self, start: int, rows: int) -> Iterator[None]:
        """Adds file and rows of the batch to errors."""
        try:
            yield
        except (TypeError, ValueError) as error:
            raise type(error)(f"{self.file}, rows {start:,} to {start + rows - 1:,}: {error}") from error

    def timed(self, table: "pd.DataFrame") -> bool:
        """Whether the rows have times."""
        return self.options.get("time") is not None or "timestamp" in table


class LogFolder(NamedTuple):
    """A log in a folder of parquet files, from `scan_log`."""

    files: tuple[LogFile, ...]
    """in the order of their names"""
    executor: Executor | None = None
    """that evaluates them; None: this process, one after the other"""

    def __repr__(self) -> str:
        folder, files = os.path.dirname(self.files[0].file), counted(len(self.files), "file")
        return described(f"Log of {counted(self.rows, 'decision')} in {files} of {folder}")

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return sum(file.rows for file in self.files)

    def batches(self) -> Iterator[Log]:
        """As of `LogFile`, one file after the other."""
        return itertools.chain.from_iterable(file.batches() for file in self.files)


def scan_log(
    path: str | os.PathLike[str],
    *,
    executor: Executor | None = None,
    batch_size: int = 100_000,
    action: str = "action",
    action_names: Sequence[Label] | None = None,
    num_actions: int | None = None,
    **columns: Any,
) -> LogFile | LogFolder:
    """The log in a parquet file, or in the files of a folder, for `evaluate` and `compare`; reads only its actions.

    Args:
        path: a file, or a folder with files *.parquet, searched recursively.
        executor: evaluates the files of a folder: `seqdec.executors.Local()`, `Ray()` or one of `concurrent.futures`.
        batch_size: rows in memory at a time.
        action: column of the actions.
        action_names: names of all actions; None: as in `Log.from_pandas`, of the whole file.
        num_actions: k; needed only for numbered actions without masks and features.
        columns: other keywords of `Log.from_pandas`.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not a parquet file, no rows or actions, or a setting out of range.
    """
    import pandas as pd

    path, batch_size = located(path), checks.count("batch_size", batch_size)
    paths = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not paths:
        raise FileNotFoundError(f"{path} has no file *.parquet; {_REMEDY}")
    if executor is not None and not path.is_dir():
        raise ValueError(f"executor is for the files of a folder; {path} is a file: leave it out")
    names, facts = _schema(paths[0])
    counts, levels, categorical = [], {}, False
    for one in paths:
        required(named(pd.DataFrame(columns=_schema(one)[0])), "action", action)
        counts.append(0)
        for table in _tables(one, batch_size, [action]):
            column = table[action]
            categorical = isinstance(column.dtype, pd.CategoricalDtype)
            levels |= dict.fromkeys(column.cat.categories if categorical else column.unique())
            counts[-1] += len(column)
        if not counts[-1]:
            raise ValueError(f"{one} has no rows: a log needs at least one")
    numbered, bracketed = actions_in(names)
    if action_names is None and num_actions is None and action == "action":
        action_names = facts.get("action_names")
    if action_names is None and not categorical:
        action_names = bracketed
    column = pd.Series(pd.Categorical(levels, list(levels)) if categorical else [*levels])
    _, labels = labeled(column, action_names, numbered if num_actions is None else num_actions)
    own = {"num_actions": len(labels)} if isinstance(labels, range) else {"action_names": labels}
    options, encoder = {"action": action, **own, **columns}, facts.get("encoder")
    files = [LogFile(str(one), count, batch_size, options, encoder) for one, count in zip(paths, counts, strict=True)]
    return LogFolder(tuple(files), executor) if path.is_dir() else files[0]


Numbers = Callable[[Log], Any] | Sequence[str]
"""(batch) -> (m, k) numbers, or their columns"""


def evidence_of(
    log: LogFile, target: Numbers, predicted: Numbers | None, *, seed: int
) -> Iterator[tuple[int, Evidence]]:
    """First row and evidence of each batch; rows without times are numbered in the file."""
    for start, table, part in log.tables():
        with log.naming(start, len(table)):
            own = evidence(
                part,
                _numbers("target", target, table, part),
                None if predicted is None else _numbers("predicted", predicted, table, part),
                seed=seed,
            )
        if not log.timed(table):
            own = own._replace(log=own.log.replace(timestamp=np.arange(start, start + len(table))))
        yield start, own


@evidence.register
def _of_file(log: LogFile, target: Numbers, predicted: Numbers | None = None, *, seed: int) -> Evidence:
    kept, law, usual = [], np.zeros(()), 0.0
    own = None
    for _, own in evidence_of(log, target, predicted, seed=seed):
        part, rows = own.log, len(own.weights)
        kept.append((part.action, part.reward, part.propensity, part.timestamp, own.weights, own.direct, own.residual))
        law, usual = law + rows * own.law, usual + rows * own.usual_weight
    assert own is not None, "scan_log refuses files without rows"
    parts = (np.concatenate(parts) for parts in zip(*kept, strict=True))
    action, reward, propensity, timestamp, weights, direct, residual = parts
    whole = own.log.replace(
        context=np.zeros((log.rows, 0)),
        action=action,
        reward=reward,
        propensity=propensity,
        mask=np.broadcast_to(True, (log.rows, own.log.num_actions)),
        timestamp=timestamp,
        action_features=None,
        reward_parts=None,
        key=None,
        logging=None,
    )
    nothing = np.zeros((0, own.log.num_actions))
    known, policy = None if predicted is None else nothing, Target(nothing, weights)
    return Evidence(whole, policy, known, weights, direct, residual, law / log.rows, usual / log.rows, own.seed)


def _numbers(name: str, given: Numbers, table: "pd.DataFrame", batch: Log) -> Any:
    if callable(given):
        return given(batch)
    refuse_agent(name, given)
    if not isinstance(given, list | tuple) or not all(isinstance(column, str) for column in given):
        raise TypeError(
            f"{name} of a log in batches must be a function of a batch or a list of columns; got {type(given).__name__}"
        )
    return np.stack([numbers(column, required(table, "", column)) for column in given], axis=1)


def _schema(path: Path) -> tuple[list[str], dict[str, Any]]:
    from pyarrow import parquet

    with path.open("rb") as file, reading(path, _REMEDY):
        found = parquet.read_schema(file)
        return found.names, manifest_of(found)


def _tables(path: Path, batch_size: int, columns: list[str] | None = None) -> "Iterator[pd.DataFrame]":
    from pyarrow import parquet

    with path.open("rb") as file:  # pyarrow takes no path that is not UTF-8
        batches = parquet.ParquetFile(file).iter_batches(batch_size, columns=columns)
        while True:
            with reading(path):
                batch = next(batches, None)
                table = None if batch is None else batch.to_pandas()
            if table is None:
                return
            yield table
