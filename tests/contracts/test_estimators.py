"""What kernels and diagnostics of off-policy evaluation must be, by other ways to the same number."""

import warnings

import numpy as np
import pytest

from seqdec import ope
from seqdec.ope.intervals import points

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


def test_the_miscalibration_is_nearly_the_excess_in_standard_errors() -> None:
    """Of each row 1 / p where the action was played, else 0, less 1: the sum over the rows, in its standard errors.

    The loss is that of bets on any excess of any action, at all times.
    """
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
    loss = 2 * np.log(12 * 3)
    assert scores.max() > 2 and scores.max() ** 2 - loss < found.miscalibration**2 < 1.3 * scores.max() ** 2


def draw_numbers(seed: int, rows: int = 1000, shift: float = 0.0) -> tuple[ope.ContinuousLog, np.ndarray]:
    """Uniform actions in [0, 1] that pay a wave, and a target around .5 + shift."""
    draw = np.random.default_rng(seed)
    x, action = draw.normal(size=(rows, 1)), draw.uniform(size=rows)
    reward = np.sin(6 * action) + 0.5 * x[:, 0] + draw.normal(scale=0.5, size=rows)
    log = ope.make_continuous_log(action=action, reward=reward, density=np.ones(rows), context=x)
    return log, 0.5 + shift + 0.25 * np.tanh(x[:, 0])


@pytest.mark.parametrize("shift", [0.0, 0.25])
@pytest.mark.parametrize("rows", [300, 5000])
def test_intervals_of_numbers_cover_inside_and_at_the_edge(rows: int, shift: float) -> None:
    x = np.random.default_rng(0).normal(size=200_000)
    truth = np.sin(6 * (0.5 + shift + 0.25 * np.tanh(x))).mean()
    off = []
    for seed in range(60):
        log, target = draw_numbers(seed, rows, shift)
        ((value, error),) = points([ope.KernelIPS(normalized=True).terms(ope.evidence(log, target, seed=0))])
        off.append((value - truth) / error)
    assert np.mean(np.abs(off) < 2) >= 0.88 and abs(np.mean(off)) < 0.6


def test_a_bandwidth_borrows_the_interval_of_the_narrow_one() -> None:
    log, target = draw_numbers(0)
    table = ope.evaluate(
        log, target, np.zeros(1000), seed=0, samples=50, estimators="kernel_dr(bandwidth=1.0), kernel_dr"
    )
    assert table["interval"].tolist() == ["of kernel_dr", "own"]
    wide, own = table.to_dict("records")
    assert wide["low"] == min(own["low"], wide["value"]) and wide["high"] == max(own["high"], wide["value"])


def test_corrected_weights_keep_their_mean_at_the_edge() -> None:
    """Of all actions in the range, the weights of a parabola are its value at the target, even at the ends."""
    action = (np.arange(20_000) + 0.5) / 20_000
    for place in (0.5, 0.95, 1.0):
        log = ope.make_continuous_log(action=action, reward=3 + action - 2 * action**2, density=np.ones(20_000))
        value = ope.KernelIPS().terms(ope.evidence(log, np.full(20_000, place), seed=0)).value
        assert abs(value - (3 + place - 2 * place**2)) < 2e-3


def test_overlap_of_numbers() -> None:
    log, inside = draw_numbers(0)
    found = ope.overlap(log, inside)
    assert "can decide" in found.verdict and not found.warnings and abs(found.mean_weight - 1) < 0.2
    outside = ope.overlap(log, inside + 0.4)
    assert "only in part" in outside.verdict and 0.2 < outside.unsupported < 0.8
    with pytest.warns(UserWarning, match="only a part of the policy"):
        ope.evaluate(log, inside + 0.4, seed=0, samples=50)
    assert "cannot decide" in ope.overlap(log, inside + 9).verdict
    assert "hardly" in ope.overlap(log[:25], inside[:25]).verdict


def test_overlap_of_slates() -> None:
    draw = np.random.default_rng(0)
    action, law = draw.integers(3, size=(500, 2)), np.full((500, 2, 3), 1 / 3)
    log = ope.make_slate_log(action=action, reward=draw.random((500, 2)), propensity=np.full((500, 2), 1 / 3))
    found = ope.overlap(log, law)
    assert "can decide" in found.verdict and abs(found.effective_sample_size - 500) < 1e-6
    other = np.tile([[0.0, 0.0, 0.5, 0.5]], (500, 2, 1))
    assert "only in part" in ope.overlap(log, other).verdict
    with pytest.warns(UserWarning, match="only a part of the policy"):
        table = ope.evaluate(log, other, seed=0, samples=50)
    (interval,) = set(table["interval"])
    assert interval.startswith("of slate_ips(interaction='standard', normalized=True); 67.0% of the decisions from")
