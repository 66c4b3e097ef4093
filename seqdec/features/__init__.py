"""Rows of mixed columns as numbers: `Encoder`, and the kinds of columns that it knows."""

from seqdec.features.dates import Date
from seqdec.features.encoder import Encoder
from seqdec.features.kinds import KINDS, Kind
from seqdec.features.levels import Categorical, Hashed, HashedTags, Ordered, Tags
from seqdec.features.numeric import Bool, Numeric
from seqdec.features.text import Text

__all__ = [
    "KINDS",
    "Bool",
    "Categorical",
    "Date",
    "Encoder",
    "Hashed",
    "HashedTags",
    "Kind",
    "Numeric",
    "Ordered",
    "Tags",
    "Text",
]
