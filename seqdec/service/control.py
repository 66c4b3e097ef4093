"""A control group: a fixed share of the units, such as users, for which a fixed rule decides.

A unit is in the group if the first 8 bytes of a keyed hash of its name, as a number in [0, 2^64), are below share 2^64.
The key of the hash is the UUID of the log: a unit stays in its group, a larger share has the same units and more, and
the groups of two logs are independent. Given the unit the group is fixed, so that the propensity of a decision is that
of the rule of its group; over all units, the group is drawn with the propensity `share`.
"""

import hashlib
from dataclasses import dataclass

import numpy as np

from seqdec.boundary import checks
from seqdec.ope.labels import Label
from seqdec.service.database import Unit

_SIZE = 8
"""Bytes of a digest."""


@dataclass(frozen=True)
class Control:
    """The share of units for which a fixed arm is played, or a random arm if it is None or not allowed.

    >>> from seqdec.service import Control
    >>> Control(0.1, "none")
    Control(share=0.1, arm='none')

    Raises TypeError or ValueError for a share that is not between 0 and 1.
    """

    share: float
    arm: Label | None = None

    def __post_init__(self) -> None:
        checks.number("share", self.share, 0, 1, exclusive=True)

    def unit(self, log: str, name: str) -> Unit:
        """The unit with a name, in the log with a UUID."""
        digest = hashlib.blake2b(name.encode(), digest_size=_SIZE, key=bytes.fromhex(log)).digest()
        is_control = int.from_bytes(digest) < self.share * 256**_SIZE
        return Unit(digest, is_control, self.share if is_control else 1 - self.share)


def law_of(arm: int | None, allowed: np.ndarray) -> np.ndarray:
    """(n,) probabilities of the arms by id in the control group."""
    law = allowed.astype(float)
    if arm is not None and allowed[arm]:
        law = np.where(np.arange(len(law)) == arm, 1.0, 0.0)
    return law / law.sum()
