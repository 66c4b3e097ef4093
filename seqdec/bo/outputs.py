"""What is told of a point: the values of one or several objectives, and outcomes, which are to be at most 0."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from seqdec import checks


class Outputs(NamedTuple):
    """Their numbers."""

    objectives: int = 1
    outcome_constraints: int = 0

    @property
    def plain(self) -> bool:
        """Whether there is one objective and nothing else."""
        return self == Outputs()

    @property
    def failed(self) -> tuple[float, ...]:
        """The values of a failed trial."""
        return (math.nan,) * self.objectives

    @property
    def columns(self) -> tuple[str, ...]:
        """What they are called in the table of trials: value, or value_0, ...; outcome_0, ... and feasible."""
        values = ["value"] if self.objectives == 1 else [f"value_{i}" for i in range(self.objectives)]
        outcomes = [f"outcome_{i}" for i in range(self.outcome_constraints)]
        return (*values, *outcomes, *(["feasible"] if outcomes else []))

    def values(self, value: Any, name: str = "value") -> tuple[float, ...]:
        """`value`, called `name`, a number, or a sequence of one number for each of several objectives.

        Raises:
            TypeError: not of numbers.
            ValueError: another number of them.
        """
        if self.objectives == 1:
            return (checks.real(name, value),)
        return _sequence(name, value, self.objectives, "objective")

    def outcomes(self, outcomes: Any) -> tuple[float, ...]:
        """`outcomes`, a sequence of one number for each constraint, or that of the only one. Raises as `values`."""
        if self.outcome_constraints == 1 and np.ndim(outcomes) == 0 and not isinstance(outcomes, str | None):
            outcomes = [outcomes]
        return _sequence("outcomes", () if outcomes is None else outcomes, self.outcome_constraints, "constraint")

    def described(self, values: tuple[float, ...], outcomes: tuple[float, ...]) -> str:
        """Why a trial with these failed: one of them is not finite."""
        value = f"value {values[0] if len(values) == 1 else values}"
        return value if not outcomes else f"{value}, outcomes {outcomes}"

    def split(self, returned: Any) -> tuple[Any, Any]:
        """(value, outcomes) of what a function returned: with constraints it is a pair of these. Raises as `values`."""
        if not self.outcome_constraints:
            return returned, None
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            raise ValueError(
                f"with outcome_constraints={self.outcome_constraints} fun must return a pair, (value, outcomes); got "
                f"{returned!r}"
            )
        return returned[0], returned[1]


def _sequence(name: str, given: Any, count: int, of: str) -> tuple[float, ...]:
    if isinstance(given, str | bytes) or (np.ndim(given) == 0 and not isinstance(given, Sequence)):
        parts = None
    else:
        parts = list(given)
    if parts is None or len(parts) != count:
        expected = f"a sequence of {count} numbers, one for each {of}" if count else f"left out, without {of}s"
        error = TypeError if isinstance(given, str | bytes) else ValueError
        raise error(f"{name} must be {expected}; got {given!r}")
    return tuple(checks.real(f"{name}[{index}]", part) for index, part in enumerate(parts))
