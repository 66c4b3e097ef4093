"""Dimensions of choices: an Ordinal takes one column of the unit cube, a Categorical one for each choice, one-hot."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from seqdec.bo.space import containers
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

    def checked(self, name: str) -> "Ordinal":
        """As in `Real`."""
        return Ordinal(_choices(self.choices, name, "an Ordinal"))

    def values(self) -> Sequence[Any]:
        """As in `Real`."""
        return self.choices

    def value(self, given: Any, name: str) -> Any:
        """As in `Real`."""
        return _among(self.choices, given, name)

    def place(self, value: Any) -> int:
        """The index of a choice."""
        return _place(self.choices, value)

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

    def checked(self, name: str) -> "Categorical":
        """As in `Real`."""
        return Categorical(_choices(self.choices, name, "a Categorical"))

    def values(self) -> Sequence[Any]:
        """As in `Real`."""
        return self.choices

    def value(self, given: Any, name: str) -> Any:
        """As in `Real`."""
        return _among(self.choices, given, name)

    def place(self, value: Any) -> int:
        """The index of a choice."""
        return _place(self.choices, value)

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
    if len(choices) < 2 or len(set(choices)) < len(choices):
        raise ValueError(f"{name} must have two or more different choices; got {tuple(choices)!r}")
    return tuple(choices)


def _among(choices: tuple[Any, ...], given: Any, name: str) -> Any:
    """`given` as one of the choices."""
    try:
        return choices[_place(choices, given)]
    except (KeyError, TypeError):  # TypeError: it has no hash
        raise ValueError(f"{name} = {given!r} is none of {choices!r}") from None


def _place(choices: tuple[Any, ...], value: Any) -> int:
    """The index of a choice, by hash, because a tuple and a numpy scalar cannot be compared."""
    return {choice: i for i, choice in enumerate(choices)}[value]
