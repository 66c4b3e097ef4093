"""Kinds of dimensions, and their encoding in columns of the unit cube.

Columns are continuous for Real dimensions only: `snap` rounds all others to values of the dimension. Each kind is a
class with the same members, which `seqdec.bo.space.numeric.Real` describes.
"""

from seqdec.bo.space.choices import Categorical, Ordinal
from seqdec.bo.space.constant import Constant
from seqdec.bo.space.numeric import Integer, Real

Dimension = Real | Integer | Ordinal | Categorical | Constant

__all__ = ["Categorical", "Constant", "Dimension", "Integer", "Ordinal", "Real"]
