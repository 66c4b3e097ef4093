"""What a report needs of a search."""

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from seqdec.bo.answers import Front, Recommendation
from seqdec.bo.model import Fitted, Model
from seqdec.bo.outputs import Outputs
from seqdec.bo.space.spaces import Space

if TYPE_CHECKING:
    import pandas as pd


class Searched(Protocol):
    """A search, of which `seqdec.bo.BayesianOptimizer` is one."""

    space: Space
    outputs: Outputs
    maximize: bool | tuple[bool, ...]
    surrogate: Any
    acquisition: Any

    @property
    def settings(self) -> Any:
        """As in the optimizer."""
        ...

    def evaluations(self) -> tuple[list[Any], np.ndarray]:
        """As in the optimizer."""
        ...

    def feasibility(self) -> np.ndarray:
        """As in the optimizer."""
        ...

    def trials_dataframe(self) -> "pd.DataFrame":
        """As in the optimizer."""
        ...

    def front(self) -> Front:
        """As in the optimizer."""
        ...

    def recommend(self) -> Recommendation:
        """As in the optimizer."""
        ...

    def fitted(self) -> tuple[Model, Fitted]:
        """As in the optimizer."""
        ...
