"""Rows of mixed columns as numbers."""

from seqdec.boundary.sparse import SparseBox
from seqdec.features.encoder import Encoder
from seqdec.features.kinds import (
    KINDS,
    Bool,
    Categorical,
    Date,
    Days,
    Hashed,
    HashedTags,
    Kind,
    Numeric,
    Ordered,
    Quantiles,
    Tags,
    Text,
    Vector,
)

__all__ = [
    "KINDS",
    "Bool",
    "Categorical",
    "Date",
    "Days",
    "Encoder",
    "Hashed",
    "HashedTags",
    "Kind",
    "Numeric",
    "Ordered",
    "Quantiles",
    "SparseBox",
    "Tags",
    "Text",
    "Vector",
]
