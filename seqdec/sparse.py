"""Sparse arrays of SciPy, which callers may pass in the place of dense ones; nothing imports SciPy for that."""

import sys
from typing import Any

import numpy as np


def is_sparse(values: Any) -> bool:
    """Whether it is a sparse array or matrix of SciPy."""
    module = sys.modules.get("scipy.sparse")
    return module is not None and module.issparse(values)


def dense(name: str, values: Any) -> Any:
    """A sparse array or matrix, or a list of sparse rows, as one of NumPy; all else as it is.

    Raises ValueError for sparse rows of different lengths.
    """
    if is_sparse(values):
        return values.toarray()
    if isinstance(values, list | tuple) and values and all(map(is_sparse, values)):
        lengths = [row.shape[-1] for row in values]
        if len(set(lengths)) > 1:
            raise ValueError(f"{name} must hold sparse rows of equal lengths; got {', '.join(map(str, lengths[:12]))}")
        return np.concatenate([np.atleast_2d(row.toarray()) for row in values])
    return values


def only_row(values: Any) -> Any:
    """A sparse matrix of one row as this row, because matrices have no other form for it; all else as it is."""
    single = is_sparse(values) and values.ndim == 2 and values.shape[0] == 1
    return values.toarray()[0] if single else values
