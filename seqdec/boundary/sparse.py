"""Contexts of many numbers, nearly all zero, by those that are not."""

from typing import Any

import numpy as np
from gymnasium import spaces as gym_spaces

from seqdec.boundary.checks import count, is_sparse

_WHOLE = 2**24
"""Integers up to which float32 represents all."""


class SparseBox(gym_spaces.Box):
    """A gymnasium Box (nonzero, 2) of float32 for contexts of `size` numbers, of which at most `nonzero` are not zero.

    Each row is the index of a number, from 0, and its value; rows left over are zeros. Each index occurs once. Agents
    round an index that is not whole.

    Args:
        size: numbers in a context, at most 2^24.
        nonzero: most of them that are not zero.

    Raises TypeError or ValueError for a count that is none.

    >>> from sklearn.feature_extraction.text import HashingVectorizer
    >>> from seqdec.features import SparseBox
    >>> space = SparseBox(100_000, 20)
    >>> space.rows(HashingVectorizer(n_features=100_000).transform(["two words", "and three more"])).shape
    (2, 20, 2)
    """

    def __init__(self, size: int, nonzero: int) -> None:
        self.size, self.nonzero = count("size", size), count("nonzero", nonzero)
        if size > _WHOLE:
            raise ValueError(f"size must be at most {_WHOLE}, for indices in float32; got {size}")
        high = np.tile(np.array([self.size - 1, np.inf], np.float32), (self.nonzero, 1))
        super().__init__(np.where(np.isinf(high), -high, 0), high, dtype=np.float32)

    def rows(self, matrix: Any) -> np.ndarray:
        """Members (n, nonzero, 2) of the rows of a sparse matrix (n, size) of SciPy.

        Raises TypeError for another matrix, ValueError for one of other columns, and for a row with too many numbers.
        """
        if not is_sparse(matrix):
            raise TypeError(f"the matrix must be a sparse matrix of SciPy; got {type(matrix).__name__}")
        if matrix.shape[-1] != self.size:
            raise ValueError(f"the matrix must have {self.size} columns, as {self}; got shape {matrix.shape}")
        known = matrix.reshape(-1, self.size).tocsr().copy()
        known.sum_duplicates()
        known.eliminate_zeros()
        counts = np.diff(known.indptr)
        if (counts > self.nonzero).any():
            row = int(np.argmax(counts > self.nonzero))
            raise ValueError(
                f"row {row} of the matrix has {counts[row]} nonzero numbers, more than {self} allows: set "
                f"nonzero={counts.max()}, or keep fewer numbers per row"
            )
        rows = np.zeros((len(counts), *self.shape), np.float32)
        at = np.repeat(np.arange(len(counts)), counts)
        rows[at, np.arange(len(at)) - known.indptr[at]] = np.stack([known.indices, known.data], axis=1)
        return rows

    def __repr__(self) -> str:
        return f"SparseBox({self.size}, {self.nonzero})"
