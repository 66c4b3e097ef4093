"""Fitted transformers and pipelines of scikit-learn as encoders."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from seqdec import checks
from seqdec.features import values
from seqdec.features.encoder import Encoder
from seqdec.features.tables import columns_of
from seqdec.introspection import brief, described
from seqdec.sparse import dense

if TYPE_CHECKING:
    import pandas as pd

_NO_JSON = (
    "the encoder of a scikit-learn transformer has no JSON form: save the transformer by its own means, such as "
    "skops.io.dump, and wrap it again with Encoder.of"
)


class Transformed(Encoder):
    """What `Encoder.of` returns. Encoders are equal where they hold the same transformer and columns."""

    def __init__(self, transformer: Any, columns: Iterable[str], example: Mapping[str, Any] | None = None):
        """Arguments and errors as in `Encoder.of`."""
        if not callable(getattr(transformer, "transform", None)):
            raise TypeError(f"transformer must have a method transform; got {transformer!r:.80}")
        self.transformer = transformer
        """As given."""
        self.columns = tuple(checks.ordered("columns", columns, "a list of names"))
        """Those that it takes."""
        self.kinds = {}
        self.names = self.column_of = self._named(example)
        self.space = spaces.Box(-np.inf, np.inf, (len(self.names),), np.float32)

    def _named(self, example: Mapping[str, Any] | None) -> tuple[str, ...]:
        from sklearn.exceptions import NotFittedError
        from sklearn.utils.validation import check_is_fitted

        try:
            check_is_fitted(self.transformer)
            return tuple(map(str, self.transformer.get_feature_names_out()))
        except NotFittedError as error:
            raise ValueError(f"the transformer must be fitted: call its fit first ({error})") from error
        except (AttributeError, ValueError, TypeError) as error:
            if example is None:
                raise ValueError(
                    f"the transformer does not name its features ({str(error).splitlines()[0]}): give a row, "
                    "Encoder.of(transformer, columns, example={...})"
                ) from error
            return tuple(f"feature {index}" for index in range(self._numbers([example]).shape[1]))

    def __call__(self, row: Mapping[str, Any]) -> np.ndarray:
        """The features (F,) of one row. Errors as in `transform`."""
        self._check_row(row)
        return self.transform([row])[0]

    def transform(self, table: Any) -> np.ndarray:
        """The features (n, F) of a table.

        Raises what the transformer raises, and ValueError for results that are not finite numbers of shape (n, F).
        """
        encoded = self._numbers(table)
        if encoded.shape[1] != len(self.names) or not np.isfinite(encoded).all():
            wrong = "numbers that are not finite" if encoded.shape[1] == len(self.names) else f"shape {encoded.shape}"
            raise ValueError(f"the transformer must return {len(self.names)} finite numbers for each row; got {wrong}")
        return encoded

    def _numbers(self, table: Any) -> np.ndarray:
        import pandas as pd

        rows, found = columns_of(table, self.columns)
        if not rows:
            return np.zeros((0, len(self.names)), np.float32)
        frame = pd.DataFrame({name: _filled(column.values) for name, column in found.items()})
        result = self.transformer.transform(frame)
        found = np.asarray(dense("what the transformer returns", result))
        if found.ndim != 2 or len(found) != rows:
            raise ValueError(f"the transformer must return numbers of shape ({rows}, F); got {found.shape}")
        return found.astype(np.float32)

    def _check_row(self, row: Any) -> None:
        if not isinstance(row, Mapping):
            raise TypeError(f"a row must be a dict; got {type(row).__name__}: encode tables with transform")

    def to_json(self) -> str:
        """Raises TypeError: see `Encoder.of`."""
        raise TypeError(_NO_JSON)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Transformed) and self.transformer is other.transformer and self.columns == other.columns
        )

    def __hash__(self) -> int:
        return hash((id(self.transformer), self.columns))

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.transformer, self.columns, self.names)

    def __repr__(self) -> str:
        head = f"Encoder of {len(self.columns)} columns, {len(self.names)} features"
        return described(head, " ".join(brief(self.transformer).split()))


def _restored(transformer: Any, columns: tuple[str, ...], names: tuple[str, ...]) -> Transformed:
    """A copy of an encoder whose features are named already."""
    copy = Transformed.__new__(Transformed)
    copy.transformer, copy.columns, copy.kinds = transformer, columns, {}
    copy.names = copy.column_of = names
    copy.space = spaces.Box(-np.inf, np.inf, (len(names),), np.float32)
    return copy


def _filled(cells: list[Any]) -> "pd.Series":
    """The values with NaN in the place of every missing one; objects where all are missing, as they may be of text."""
    import pandas as pd

    filled = [float("nan") if values.missing(value) else value for value in cells]
    return pd.Series(filled, dtype=object if all(value != value for value in filled) else None)
