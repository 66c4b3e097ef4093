"""A dimension of one value, which is in every point and takes no part in the search."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from seqdec import checks
from seqdec.bo.space.containers import among
from seqdec.registry import spelled_fields


@spelled_fields
class Constant(NamedTuple):
    """A Real, an Integer, an Ordinal or a Categorical with one value."""

    only: Any
    """The value."""
    real: bool = False
    """Whether it is that of a Real."""
    width: int = 0
    """As in `Real`: none, or one where no dimension of the space varies, because a surrogate needs a column."""

    def __repr__(self) -> str:
        return f"Constant({self.only!r})"

    @property
    def continuous(self) -> bool:
        """As in `Real`."""
        return False

    @property
    def numeric(self) -> bool:
        """As in `Real`."""
        return checks.is_number(self.only)

    @property
    def low(self) -> Any:
        """The value."""
        return self.only

    @property
    def high(self) -> Any:
        """The value."""
        return self.only

    @property
    def size(self) -> float:
        """As in `Real`."""
        return 1

    @property
    def neutral(self) -> np.ndarray:
        """As in `Real`."""
        return np.full(self.width, 0.5)

    @property
    def widened(self) -> "Constant":
        """As in `Real`."""
        return self

    def checked(self, name: str) -> "Constant":
        """As in `Real`."""
        del name
        return self

    def values(self) -> Sequence[Any]:
        """As in `Real`."""
        return (self.only,)

    def value(self, given: Any, name: str) -> Any:
        """As in `Real`."""
        return among((self.only,), checks.real(name, given) if self.numeric else given, name)

    def encode(self, value: Any) -> np.ndarray:
        """As in `Real`."""
        del value
        return self.neutral

    def decode(self, part: np.ndarray) -> Any:
        """As in `Real`."""
        del part
        return self.only

    def snap(self, part: np.ndarray) -> np.ndarray:
        """As in `Real`."""
        return np.full_like(part, 0.5)

    def uniform(self, u: np.ndarray) -> np.ndarray:
        """As in `Real`."""
        return np.full((len(u), self.width), 0.5)
