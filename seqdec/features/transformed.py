"""Encoders by scikit-learn's fitted transformers."""

import hashlib
import pickle
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from seqdec.boundary import checks
from seqdec.boundary.checks import dense
from seqdec.boundary.tables import columns_of
from seqdec.features import values
from seqdec.features.encoder import Encoder, Outside
from seqdec.findings import Finding
from seqdec.introspection import brief, counted, described

if TYPE_CHECKING:
    import pandas as pd


class Transformed(Encoder):
    """What `Encoder.of` returns; equal for the same transformer and columns."""

    def __init__(self, transformer: Any, columns: Iterable[str], example: Mapping[str, Any] | None = None):
        """Arguments and errors as in `Encoder.of`."""
        self.transformer = transformer
        """As given."""
        self.columns = tuple(checks.ordered("columns", columns, "a list of names"))
        """Its inputs."""
        self.kinds = {}
        read_as = " ".join(brief(transformer).split())
        self._findings = tuple(Finding(name, read_as, "scikit-learn") for name in self.columns)
        self.names = self.column_of = self._names(example)
        self.space = spaces.Box(-np.inf, np.inf, (len(self.names),), np.float32)

    def _names(self, example: Mapping[str, Any] | None) -> tuple[str, ...]:
        transformer = self.transformer
        if not callable(getattr(transformer, "transform", None)):
            raise TypeError(f"transformer must have a method transform; got {transformer!r:.80}")
        from sklearn.exceptions import NotFittedError
        from sklearn.utils.validation import check_is_fitted

        try:
            check_is_fitted(transformer)
            return tuple(map(str, transformer.get_feature_names_out()))
        except NotFittedError as error:
            raise ValueError(f"the transformer must be fitted: call its fit first ({error})") from error
        except (AttributeError, ValueError, TypeError) as error:
            if example is None:
                raise ValueError(
                    f"the transformer does not name its features ({str(error).splitlines()[0]}): give a row, "
                    "Encoder.of(transformer, columns, example={...})"
                ) from error
            return tuple(f"feature {index}" for index in range(self._numbers([example]).shape[1]))

    def _numbers(self, table: Any) -> np.ndarray:
        import pandas as pd

        rows, found = columns_of(table, self.columns)
        if not rows:
            return np.zeros((0, 0), np.float32)
        frame = pd.DataFrame({name: _filled(column.values) for name, column in found.items()})
        numbers = np.asarray(dense("what the transformer returns", self.transformer.transform(frame)))
        if numbers.ndim != 2 or len(numbers) != rows:
            raise ValueError(f"the transformer must return numbers of shape ({rows}, F); got {numbers.shape}")
        return numbers.astype(np.float32)

    def __call__(self, row: Mapping[str, Any]) -> np.ndarray:
        """The features (F,) of one row. Errors as in `transform`."""
        if not isinstance(row, Mapping):
            raise TypeError(f"a row must be a dict; got {type(row).__name__}: encode tables with transform")
        return self.transform([row])[0]

    def transform(self, table: Any) -> np.ndarray:
        """The features (n, F) of a table.

        Raises what the transformer raises, and ValueError for results not finite or not (n, F).
        """
        encoded, width = self._numbers(table), len(self.names)
        if not len(encoded):
            return np.zeros((0, width), np.float32)
        if encoded.shape[1] != width or not np.isfinite(encoded).all():
            wrong = "numbers that are not finite" if encoded.shape[1] == width else f"shape {encoded.shape}"
            raise ValueError(f"the transformer must return {width} finite numbers for each row; got {wrong}")
        return encoded

    def read(self, row: Mapping[str, Any]) -> tuple[np.ndarray, list[Outside]]:
        """The features of one row; of numbers far outside nothing is known."""
        return self(row), []

    def read_table(self, table: Any) -> tuple[np.ndarray, list[Outside]]:
        """As `read`, of a table."""
        return self.transform(table), []

    def to_json(self) -> str:
        """Raises TypeError: see `Encoder.of`."""
        raise TypeError(
            "the encoder of a scikit-learn transformer has no JSON form: save the transformer by its own means, such "
            "as skops.io.dump, and wrap it again with Encoder.of"
        )

    @property
    def digest(self) -> str | None:
        """SHA-256 of joblib's hash of the transformer, and of the columns; None with a function that has no name."""
        import joblib

        try:
            return hashlib.sha256(f"{joblib.hash(self.transformer)} {self.columns}".encode()).hexdigest()
        except pickle.PicklingError:
            return None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Transformed):
            return False
        return self.transformer is other.transformer and self.columns == other.columns

    def __hash__(self) -> int:
        return hash((id(self.transformer), self.columns))

    __reduce__ = object.__reduce__  # pyright: ignore[reportAssignmentType] (by its attributes)

    def __repr__(self) -> str:
        head = f"Encoder of {counted(len(self.columns), 'column')}, {counted(len(self.names), 'feature')}"
        return described(head, " ".join(brief(self.transformer).split()))


def _filled(cells: list[Any]) -> "pd.Series":
    """The values with missing ones as NaN; objects where all are missing."""
    import pandas as pd

    filled = [float("nan") if values.missing(value) else value for value in cells]
    return pd.Series(filled, dtype=object if all(value != value for value in filled) else None)
