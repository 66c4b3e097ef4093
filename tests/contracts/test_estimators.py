"""What kernels and diagnostics of off-policy evaluation must be, by other ways to the same number."""

import warnings

import numpy as np
import pytest

from seqdec import ope

GRID = np.linspace(-8, 8, 4001)


@pytest.mark.parametrize("kernel", ["gaussian", "epanechnikov", "triangular", "cosine"])
@pytest.mark.parametrize("bandwidth", [0.5, 1.5])
def test_a_kernel_is_a_density(kernel: str, bandwidth: float) -> None:
    """The mean over targets everywhere, of an action at 0 with density 1 and reward 1, times the length of the line."""
    same = np.zeros(len(GRID))
    log = ope.make_continuous_log(action=same, reward=same + 1, density=same + 1)
    given = ope.evidence(log, GRID, seed=0)
    found = ope.REGISTRY.make("kernel_ips", kernel=kernel, bandwidth=bandwidth).terms(given)
    assert abs(found.value * 16 - 1) < 1e-3


def test_the_miscalibration_is_in_standard_errors_of_a_share() -> None:
    """Of each row 1 / p where the action was played, else 0, less 1: the sum over the rows, in its standard errors."""
    draw = np.random.default_rng(3)
    law = draw.dirichlet([3.0, 3.0, 3.0], 400)
    action = (draw.random((400, 1)) > law.cumsum(1)).sum(1).clip(max=2)
    told = 0.8 * law[np.arange(400), action]  # each too small
    log = ope.make_log(action=action, reward=draw.random(400), propensity=told, num_actions=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = ope.overlap(log, np.full((400, 3), 1 / 3))
    rows = np.where(action[:, None] == np.arange(3), 1 / told[:, None], 0.0)
    scores = (rows.sum(0) - 400) / (np.sqrt(400) * rows.std(0))
    assert scores.max() > 2
    np.testing.assert_allclose(found.miscalibration, scores.max(), rtol=1e-9)
