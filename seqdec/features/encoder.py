"""Encoders of rows."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from seqdec.boundary import checks
from seqdec.boundary.tables import AS_DICT, check_keys, columns_of
from seqdec.features.kinds import KINDS, NAMES, Kind, Ordered, fitted
from seqdec.findings import Finding, Report, examples_of, warn_of
from seqdec.introspection import brief, counted, described
from seqdec.registry import unknown

_FORMAT = "seqdec encoder 1"
_SHOWN = 12


class Outside(NamedTuple):
    """A value far outside of a range."""

    row: int
    column: str
    value: Any
    known: str
    """the range and what it is, in words"""


class Encoder:
    """Encodes a row of mixed columns, a dict or in a table, as the same float32 bits.

    A column has the features of its kind (`seqdec.features.KINDS`) and one that is 1, the others 0, where the value is
    missing (None, NaN, NaT, pandas.NA, or an absent key). Other columns are ignored.

    >>> encoder = Encoder.fit([{"city": "Rome", "age": 30}, {"city": "Oslo", "age": 40}])
    >>> dict(zip(encoder.names, encoder({"city": "Rome", "age": 40}).tolist()))
    {'city=Oslo': 0.0, 'city=Rome': 1.0, 'city other': 0.0, 'city missing': 0.0, 'age': 1.0, 'age missing': 0.0}
    """

    _findings: tuple[Finding, ...] = ()
    """of `fit`"""

    def __init__(self, kinds: Mapping[str, Kind]):
        """An encoder of declared columns, such as {"age": Numeric(mean=40, std=12), "city": Categorical(("Rome",))}.

        Raises TypeError or ValueError for an invalid kind.
        """
        if not isinstance(kinds, Mapping):
            raise TypeError(f"kinds must be a dict from columns to kinds; got {kinds!r:.80}: see Encoder.fit")
        if not kinds:
            raise ValueError("an encoder needs at least one column")
        for name, kind in kinds.items():
            if not isinstance(name, str):
                raise TypeError(f"the name of a column must be a str; got {name!r:.80}")
            if not isinstance(kind, Kind):
                raise TypeError(f"column {name} must be declared by a kind, such as Bool(); got {kind!r:.80}")
        self.kinds: Mapping[str, Kind] = MappingProxyType({name: kind.checked(name) for name, kind in kinds.items()})
        """Of the columns."""
        self.columns = tuple(self.kinds)
        """Names of the encoded columns."""
        features, limits, self._writers, origins = [], [], [], []
        for name, kind in self.kinds.items():
            write = kind.writer(name, len(features))
            features += kind.features(name)
            limits += [kind.bounds] * (len(features) - len(limits))
            self._writers.append((name, kind.missing, write, len(features)))
            features.append(f"{name} missing")
            limits.append((0.0, 1.0))
            origins += [name] * (len(features) - len(origins))
        self.names: tuple[str, ...] = tuple(features)
        """Of the features."""
        self.column_of: tuple[str, ...] = tuple(origins)
        """Column of each feature, or its own name if unknown."""
        low, high = np.array(limits, np.float32).T
        self.space = spaces.Box(low, high, dtype=np.float32)
        """Observation space of encoded rows."""

    @classmethod
    def fit(
        cls,
        table: Any,
        columns: Iterable[str] | None = None,
        *,
        kinds: Mapping[str, str | Kind] | None = None,
        max_levels: int = 50,
        buckets: int = 64,
    ) -> "Encoder":
        """The encoder of a table's columns, by their values.

        Text is a number or a date if all is plain, as "1.5" or in ISO 8601, else categorical up to `max_levels`, else
        free text if mostly several words, else hashed. Skewed numbers become normal scores, lists of numbers with
        decimals vectors. `report` says what was read and why; a warning names possible misreadings.

        Args:
            table: a pandas, polars or pyarrow table, or a list of dicts.
            columns: columns to encode; None: all.
            kinds: kinds of some columns, such as {"size": Ordered(("S", "M", "L")), "zip": "hashed"}.
            max_levels: largest number of levels or tags of a column that is not hashed.
            buckets: number of features of a hashed column.

        Raises:
            TypeError: not a table, or values of another kind than the column's.
            ValueError: no rows, a missing, repeated or empty column, or an unknown kind.
        """
        max_levels, buckets = checks.count("max_levels", max_levels), checks.count("buckets", buckets)
        wanted = None if columns is None else checks.ordered("columns", columns, "a list of names")
        given = {} if kinds is None else kinds
        if not isinstance(given, Mapping):
            raise TypeError(f"kinds must be a dict from columns to kinds; got {kinds!r:.80}")
        rows, found = columns_of(table, wanted)
        if strange := [name for name in given if name not in found]:
            raise ValueError(unknown("column", strange[0], found))
        if not rows:
            raise ValueError("the table has no rows to fit an encoder to: declare the columns, Encoder({...})")
        chosen: dict[str, Kind] = {}
        findings = []
        for name, column in found.items():
            kind, why, suspicion = given.get(name, column.kind), "declared", ""
            if isinstance(kind, Kind):
                chosen[name] = kind
            elif kind == "ordered" and column.levels:
                chosen[name] = Ordered(column.levels)
            else:
                chosen[name], why, suspicion = fitted(name, kind, column.values, max_levels=max_levels, buckets=buckets)
            why = "the type of the column" if name not in given and column.kind else why
            known = [cell for cell in column.values if not chosen[name].missing(cell)]
            findings.append(
                Finding(name, brief(chosen[name]), why, 1 - len(known) / rows, examples_of(known), suspicion)
            )
        warn_of(
            findings,
            "some columns may not be what they seem; kinds={...} of Encoder.fit declares them, without this warning:",
            stacklevel=2,
        )
        encoder = cls(chosen)
        encoder._findings = tuple(findings)
        return encoder

    @classmethod
    def of(cls, transformer: Any, columns: Iterable[str], *, example: Mapping[str, Any] | None = None) -> "Encoder":
        """The encoder of a fitted transformer or pipeline of scikit-learn, without JSON form.

        A row takes about a millisecond; missing values are NaN.

        Args:
            transformer: fitted transformer to numbers (n, F), dense or sparse.
            columns: names of its inputs.
            example: a row, if it cannot name its features.

        Raises:
            TypeError: no method transform.
            ValueError: not fitted, or neither names of features nor an example.
        """
        from seqdec.features.transformed import Transformed

        return Transformed(transformer, columns, example)

    def __call__(self, row: Mapping[str, Any]) -> np.ndarray:
        """The features (F,) of one row.

        Raises TypeError unless it is a dict with values of the right types; ValueError for a value without encoding, or
        none of the columns.
        """
        return self.read(row)[0]

    def read(self, row: Mapping[str, Any]) -> tuple[np.ndarray, list[Outside]]:
        """The features (F,) of one row, and its numbers and dates far outside of what the encoder was fitted to.

        Raises as `__call__`.
        """
        self._check_row(row)
        encoded, get, outside = np.zeros(len(self.names), np.float32), row.get, []
        for name, missing, write, last in self._writers:
            value = get(name)
            if missing(value):
                encoded[last] = 1.0
            elif write(encoded, value):
                outside.append(self._outside(0, name, value))
        return encoded, outside

    def transform(self, table: Any) -> np.ndarray:
        """The features (n, F) of a table, as for `fit`.

        Raises as `__call__`, and for a missing or repeated column.
        """
        return self.read_table(table)[0]

    def read_table(self, table: Any) -> tuple[np.ndarray, list[Outside]]:
        """As `transform`, and what `read` finds in each row."""
        rows, found = columns_of(table, list(self.kinds))
        encoded, outside = np.zeros((rows, len(self.names)), np.float32), []
        for name, missing, write, last in self._writers:
            for place, value in enumerate(found[name].values):
                try:
                    if missing(value):
                        encoded[place, last] = 1.0
                    elif write(encoded[place], value):
                        outside.append(self._outside(place, name, value))
                except (TypeError, ValueError) as error:
                    raise type(error)(f"row {place}, {error}") from None
        return encoded, outside

    def _outside(self, row: int, column: str, value: Any) -> Outside:
        return Outside(row, column, value, f"{self.kinds[column].fitted_to}, which its encoder was fitted to")

    @property
    def report(self) -> Report:
        """How `fit` read each column and why, missing values, examples, and suspicions with their remedies."""
        declared = (Finding(name, brief(kind), "declared") for name, kind in self.kinds.items())
        return Report(self._findings or declared)

    def to_json(self) -> str:
        """The columns as JSON, for `from_json`."""
        columns = [{"name": name, "kind": NAMES[type(kind)], **vars(kind)} for name, kind in self.kinds.items()]
        return json.dumps({"format": _FORMAT, "columns": columns})

    @classmethod
    def from_json(cls, text: str) -> "Encoder":
        """The encoder of `to_json`. Raises ValueError for other text."""
        try:
            content = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"an encoder is read from the text of Encoder.to_json; got {text!r:.80}") from error
        found = content.get("format") if isinstance(content, dict) else None
        if found != _FORMAT:
            raise ValueError(f"the format must be {_FORMAT!r}; got {found!r:.80}: fit the encoder anew")
        kinds = {}
        try:
            for column in content["columns"]:
                name, kind = column.pop("name"), KINDS[column.pop("kind")](**column)
                if name in kinds:
                    raise ValueError(f"the column {name} occurs twice")
                kinds[name] = kind
            return cls(kinds)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the text is not that of an encoder, or damaged: {error}") from error

    @property
    def digest(self) -> str | None:
        """SHA-256 of the JSON form, which identifies the encoder in logs and policies."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return type(other) is Encoder and type(self) is Encoder and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __reduce__(self) -> tuple[Any, ...]:
        return Encoder, (dict(self.kinds),)

    def __repr__(self) -> str:
        lines = [f"{name}: {brief(kind)}" for name, kind in list(self.kinds.items())[:_SHOWN]]
        more = [f"and {len(self.kinds) - _SHOWN} more"] if len(self.kinds) > _SHOWN else []
        return described(
            f"Encoder of {counted(len(self.kinds), 'column')}, {counted(len(self.names), 'feature')}", *lines, *more
        )

    def _check_row(self, row: Any) -> None:
        if not isinstance(row, Mapping):
            raise TypeError(f"a row must be a dict; got {type(row).__name__}: {AS_DICT}; encode tables with transform")
        if row.keys().isdisjoint(self.kinds):
            check_keys(row, self.kinds, "the row")
