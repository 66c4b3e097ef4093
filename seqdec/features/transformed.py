"""The numbers that a fitted transformer or pipeline of scikit-learn makes of a table, and their names."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqdec.boundary.checks import dense
from seqdec.boundary.tables import columns_of
from seqdec.features import values

if TYPE_CHECKING:
    import pandas as pd


def names_of(transformer: Any, columns: Sequence[str], example: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Names of the features, numbered if it has none and there is an example row.

    Raises:
        TypeError: it has no method transform.
        ValueError: it is not fitted, or neither names its features nor has an example.
    """
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
        return tuple(f"feature {index}" for index in range(_numbers(transformer, columns, [example]).shape[1]))


def features_of(transformer: Any, columns: Sequence[str], table: Any, width: int) -> np.ndarray:
    """The features (n, width) float32 of a table.

    Raises what the transformer raises, and ValueError for results that are not finite numbers of shape (n, width).
    """
    encoded = _numbers(transformer, columns, table)
    if not len(encoded):
        return np.zeros((0, width), np.float32)
    if encoded.shape[1] != width or not np.isfinite(encoded).all():
        wrong = "numbers that are not finite" if encoded.shape[1] == width else f"shape {encoded.shape}"
        raise ValueError(f"the transformer must return {width} finite numbers for each row; got {wrong}")
    return encoded


def _numbers(transformer: Any, columns: Sequence[str], table: Any) -> np.ndarray:
    import pandas as pd

    rows, found = columns_of(table, columns)
    if not rows:
        return np.zeros((0, 0), np.float32)
    frame = pd.DataFrame({name: _filled(column.values) for name, column in found.items()})
    numbers = np.asarray(dense("what the transformer returns", transformer.transform(frame)))
    if numbers.ndim != 2 or len(numbers) != rows:
        raise ValueError(f"the transformer must return numbers of shape ({rows}, F); got {numbers.shape}")
    return numbers.astype(np.float32)


def _filled(cells: list[Any]) -> "pd.Series":
    """The values with NaN in the place of every missing one; objects where all are missing, as they may be of text."""
    import pandas as pd

    filled = [float("nan") if values.missing(value) else value for value in cells]
    return pd.Series(filled, dtype=object if all(value != value for value in filled) else None)
