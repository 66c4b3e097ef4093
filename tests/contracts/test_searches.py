"""What the settings of a search mean, by the same search with the setting written out."""

from typing import Any

import numpy as np

from seqdec.bo import BayesianOptimizer, Search

QUICK = Search(raw_samples=64, num_restarts=4, steps=10)


def asked(reference_point: Any) -> np.ndarray:
    """The point after six values with a curved front."""
    options: dict[str, Any] = {"objectives": 2, "initial": 6, "capacity": 32, "warp": False, "search": QUICK}
    optimizer = BayesianOptimizer([(0.0, 1.0), (0.0, 1.0)], seed=0, reference_point=reference_point, **options)
    for values in VALUES:
        optimizer.tell(optimizer.ask(), list(values))
    return np.asarray(optimizer.ask().x)


VALUES = np.array([[0.0, 3.0], [1.0, 1.0], [3.0, 0.0], [4.0, 4.0], [2.0, 5.0], [3.5, 2.0]])
FRONT = VALUES[:3]


def test_the_default_reference_point_is_a_tenth_of_all_values_beyond_the_front() -> None:
    beyond = FRONT.max(0) + 0.1 * np.ptp(VALUES, axis=0)
    np.testing.assert_allclose(asked(None), asked(beyond.tolist()), atol=1e-3)
