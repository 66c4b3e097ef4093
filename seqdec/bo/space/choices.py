"""Dimensions of choices: an Ordinal takes one column of the unit cube, a Categorical one for each choice, one-hot."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from seqdec.bo.space import containers
from seqdec.bo.space.constant import Constant
from seqdec.bo.space.numeric import Integer
from seqdec.registry import spelled_fields


@spelled_fields
class Ordinal(NamedTuple):
    """One of `choices`, which are in order, such as (16, 32, 64) or ("low", "high"), searched as equally spaced."""

    choices: tuple[Any, ...]
    """As in `Categorical`."""

    @property
    def continuous(self) -> bool:
        """As in `Real`."""
        return False

    @property
    def numeric(self) -> bool:
        """As in `Real`."""
        return False

    @property
    def width(self) -> int:
        """As in `Real`."""
        return 1

    @property
    def size(self) -> float:
        """As in `Real`."""
        return len(self.choices)

    @property
    def neutral(self) -> np.ndarray:
        """As in `Real`."""
        return np.full(1, 0.5)

    @property
    def _places(self) -> Integer:
        """The indices of the choices."""
        return Integer(0, len(self.choices) - 1)

    @property
    def widened(self) -> "Ordinal":
        """As in `Real`."""
        return self

    def checked(self, name: str) -> "Ordinal | Constant":
        """As in `Real`."""
        choices = _choices(self.choices, name, "an Ordinal")
        return Ordinal(choices) if len(choices) > 1 else Constant(*choices)

    def values(self) -> Sequence[Any]:
        """As in `Real`."""
        return self.choices

    def value(self, given: Any, name: str) -> Any:
        """As in `Real`."""
        return containers.among(self.choices, given, name)

    def place(self, value: Any) -> int:
        """The index of a choice."""
        return containers.place(self.choices, value)

    def encode(self, value: Any) -> np.ndarray:
        """As in `Real`."""
        return self._places.encode(self.place(value))

    def decode(self, part: np.ndarray) -> Any:
        """As in `Real`."""
        return self.choices[self._places.decode(part)]

    def snap(self, part: np.ndarray) -> np.ndarray:
        """As in `Real`."""
        return self._places.snap(part)

    def uniform(self, u: np.ndarray) -> np.ndarray:
        """As in `Real`."""
        return self.snap(u[:, None])


@spelled_fields
class Categorical(NamedTuple):
    """One of `choices`, which have no order."""

    choices: tuple[Any, ...]
    """Hashable values, all different. A study can be saved if they are strings, numbers, booleans, None, numpy scalars
    or tuples of these."""

    @property
    def continuous(self) -> bool:
        """As in `Real`."""
        return False

    @property
    def numeric(self) -> bool:
        """As in `Real`."""
        return False

    @property
    def width(self) -> int:
        """As in `Real`."""
        return len(self.choices)

    @property
    def size(self) -> float:
        """As in `Real`."""
        return len(self.choices)

    @property
    def neutral(self) -> np.ndarray:
        """As in `Real`."""
        return np.full(self.width, 1 / self.width)

    @property
    def widened(self) -> "Categorical":
        """As in `Real`."""
        return self

    def checked(self, name: str) -> "Categorical | Constant":
        """As in `Real`."""
        choices = _choices(self.choices, name, "a Categorical")
        return Categorical(choices) if len(choices) > 1 else Constant(*choices)

    def values(self) -> Sequence[Any]:
        """As in `Real`."""
        return self.choices

    def value(self, given: Any, name: str) -> Any:
        """As in `Real`."""
        return containers.among(self.choices, given, name)

    def place(self, value: Any) -> int:
        """The index of a choice."""
        return containers.place(self.choices, value)

    def encode(self, value: Any) -> np.ndarray:
        """As in `Real`."""
        return np.eye(self.width)[self.place(value)]

    def decode(self, part: np.ndarray) -> Any:
        """As in `Real`."""
        return self.choices[int(np.argmax(part))]

    def snap(self, part: np.ndarray) -> np.ndarray:
        """As in `Real`."""
        return np.eye(self.width)[np.argmax(part, axis=-1)]

    def uniform(self, u: np.ndarray) -> np.ndarray:
        """As in `Real`."""
        return np.eye(self.width)[np.minimum((u * self.width).astype(int), self.width - 1)]


def _choices(given: Any, name: str, kind: str) -> tuple[Any, ...]:
    """Choices as a tuple. Raises ValueError or TypeError."""
    if (choices := containers.sequence(given)) is None:
        raise TypeError(f"{name}: the choices of {kind} must be a tuple or list; got {given!r}")
    for choice in choices:
        try:
            hash(choice)
        except TypeError:
            raise TypeError(
                f"{name}: a choice must be hashable; got {choice!r}: write a list as a tuple, and for anything else a "
                "name, by which the function finds it"
            ) from None
    if not choices or len(set(choices)) < len(choices):
        raise ValueError(f"{name} must have choices, all of them different; got {tuple(choices)!r}")
    return tuple(choices)
