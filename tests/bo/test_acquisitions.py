"""Acquisitions against oracles: improvements, hypervolumes, feasibility and failures."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

import seqdec
from seqdec import policies
from seqdec.bo import Categorical, Conditional, Real, hypervolume
from seqdec.bo.acquisition import failures, pareto
from seqdec.bo.acquisition import names as acquisitions
from seqdec.bo.acquisition.feasibility import Incumbent, Target, log_probability, weighted
from seqdec.bo.surrogates import multi_output
from seqdec.core import Posterior, Predictive
from seqdec.policies.improvement import log_h
from seqdec.runtime import one_blas_thread
from tests.bo.common import SQUARE, quick


@pytest.fixture
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def front_of(count: int, objectives: int, seed: int) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal((count, objectives))
    return values[pareto.non_dominated(values)]


def normal(mean: np.ndarray, std: np.ndarray) -> Posterior:
    """Independent outputs with these moments (m,), whatever the candidates are."""

    def joint(candidates: Any) -> Predictive:
        eye = jnp.eye(len(candidates))[:, :, None]
        return Predictive(jnp.broadcast_to(mean, (len(candidates), len(mean))), eye * std**2, 0 * eye * std)

    return Posterior(lambda candidates: joint(candidates).mean, joint, lambda key: lambda candidates: mean)


# Expected improvement


value_and_slope = jax.jit(jax.value_and_grad(log_h))


@pytest.mark.parametrize("z", [-300.0, -10.001, -9.999, -1.001, -0.999, 0.0, 30.0])
@pytest.mark.parametrize("x64", [False, True])
def test_log_expected_improvement_against_quadrature(z: float, x64: bool) -> None:
    # h(z) = phi(z) int_0^inf s exp(s z - s^2 / 2) ds for z < 0: nothing cancels
    if z < 0:
        width = 40 / (abs(z) + 1)
        area, _ = integrate.quad(lambda s: s * math.exp(s * z - s * s / 2), 0, width, epsabs=0, epsrel=1e-12)
        oracle = -0.5 * z * z - 0.5 * math.log(2 * math.pi) + math.log(area)
    else:
        oracle = math.log(
            integrate.quad(lambda s: max(z + s, 0) * math.exp(-s * s / 2), -z, 40)[0] / 2.5066282746310002
        )
    with jax.enable_x64(x64):
        value, slope = value_and_slope(jnp.asarray(z))
    assert float(value) == pytest.approx(oracle, rel=1e-9 if x64 else 1e-6, abs=2e-6 if x64 else 1e-3)
    assert float(slope) == pytest.approx(math.exp(special.log_ndtr(z) - oracle), rel=1e-5 if x64 else 1e-2)


def test_log_expected_improvement_ranks_where_plain_improvement_is_zero() -> None:
    at = seqdec.core.Predictive(jnp.array([-50.0, -30.0, -40.0]), jnp.eye(3), jnp.eye(3))
    posterior = seqdec.core.Posterior(lambda c: at.mean, lambda c: at, lambda key: lambda c: at.mean)
    acquisition = policies.log_expected_improvement(0.0)
    score = jax.jit(lambda mask: acquisition.score(jax.random.key(0), posterior, jnp.zeros((3, 1)), mask))
    scores = score(None)
    assert np.argsort(scores).tolist() == [0, 2, 1] and np.isfinite(scores).all()
    masked = score(jnp.array([True, False, True]))
    assert np.argmax(masked) == 2


# Hypervolume


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
def test_the_hypervolume_is_that_of_inclusion_and_exclusion(objectives: int) -> None:
    for seed in range(5):
        values = np.random.default_rng(seed).random((7, objectives))
        reference, expected = np.full(objectives, 0.8), 0.0
        for size in range(1, 8):
            for rows in itertools.combinations(values, size):
                sides = np.maximum(reference - np.max(rows, 0), 0)
                expected -= (-1) ** size * np.prod(sides)
        assert hypervolume(values, reference) == pytest.approx(expected, rel=1e-9, abs=1e-12)
        assert hypervolume(-values, -reference, maximize=True) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("objectives", [2, 3, 4])
def test_boxes_are_the_points_that_nothing_dominates(objectives: int) -> None:
    generator = np.random.default_rng(0)
    values = generator.integers(0, 5, (12, objectives)).astype(float)  # with ties
    boxes = pareto.decompose(values, np.full(objectives, -0.5))
    points = generator.uniform(-0.5, 6, (4000, objectives))
    inside = np.all((points[:, None] >= boxes.low) & (points[:, None] < boxes.high), axis=2).sum(1)
    assert inside.tolist() == (~np.any(np.all(values >= points[:, None], axis=2), axis=1)).astype(int).tolist()


def test_two_objectives_have_one_box_more_than_points() -> None:
    front = front_of(50, 2, 0)
    assert len(pareto.decompose(front, np.full(2, -9.0)).low) == len(front) + 1
    assert len(pareto.decompose(np.zeros((0, 2)), np.zeros(2)).low) == 1


def test_a_hypervolume_may_mix_directions_and_be_empty() -> None:
    assert hypervolume([[1.0, 9.0], [0.0, 3.0]], [2.0, 1.0], maximize=[False, True]) == pytest.approx(8 + 2)
    assert hypervolume([], [2.0, 1.0]) == 0.0 == hypervolume([[3.0, 0.0]], [2.0, 1.0])


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (([[1.0, 2.0]], [1.0]), {}, ValueError, "a column for each of the 1 numbers"),
        (([[1.0, math.nan]], [1.0, 2.0]), {}, ValueError, "values must be finite"),
        (([["a", "b"]], [1.0, 2.0]), {}, TypeError, "values must hold real numbers"),
        (([[1.0, 2.0]], [1.0, 2.0]), {"maximize": [True]}, ValueError, "each of the 2 objectives"),
        (([[1.0, 2.0]], [1.0, 2.0]), {"maximize": "yes"}, TypeError, "maximize must be True, False"),
    ],
)
def test_no_hypervolume(arguments: Any, options: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        hypervolume(*arguments, **options)


def test_log_ehvi_is_the_mean_improvement(x64: None) -> None:
    draws, objectives = 20_000, 3
    for seed in range(3):
        generator = np.random.default_rng(seed)
        front, reference = front_of(12, objectives, seed), np.full(objectives, -2.0)
        mean, std = 0.5 * generator.standard_normal(objectives), generator.uniform(0.3, 1.0, objectives)
        boxes = pareto.decompose(front, reference)
        y = mean + std * generator.standard_normal((draws, objectives))
        sides = np.clip(np.minimum(y[:, None], boxes.high) - boxes.low, 0, None)
        gains = np.prod(sides, axis=2).sum(1)
        volumes = [pareto.volume(np.vstack([front, row]), reference) for row in y[:20]]
        np.testing.assert_allclose(gains[:20], np.array(volumes) - pareto.volume(front, reference), atol=1e-9)
        found = math.exp(pareto.log_improvement(jnp.asarray(mean), jnp.asarray(std), pareto.padded(boxes, 64)))
        assert abs(found - gains.mean()) < 5 * gains.std() / math.sqrt(draws)


def test_log_ehvi_of_one_objective_is_log_ei(x64: None) -> None:
    boxes = pareto.decompose(np.array([[0.3]]), np.array([-1.0]))
    for mean in (2.0, -1.0, -40.0):
        posterior = normal(np.array([mean]), np.array([0.7]))
        expected = policies.log_expected_improvement(0.3).score(
            jax.random.key(0), multi_output.select(posterior, 0), jnp.zeros((1, 1)), None
        )
        found = pareto.log_improvement(jnp.array([mean]), jnp.array([0.7]), boxes)
        assert float(found) == pytest.approx(float(expected[0]), rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_far_below_the_front_the_score_is_finite_and_its_gradient_leads_back(dtype: Any, x64: None) -> None:
    objectives = 2
    boxes = pareto.padded(pareto.decompose(front_of(20, objectives, 0), np.full(objectives, -1.0)), 32)
    boxes = pareto.Boxes(*(side.astype(dtype) for side in boxes))
    slope = jax.jit(jax.value_and_grad(pareto.log_improvement))
    for mean, std in ((-30.0, 0.5), (-3.0, 1e-3), (-1000.0, 1.0), (50.0, 0.1), (0.0, 1e-5)):
        value, gradient = slope(jnp.full(objectives, mean, dtype), jnp.full(objectives, std, dtype), boxes)
        assert np.isfinite(value) and np.isfinite(gradient).all() and value.dtype == dtype
        if mean < -1:
            assert np.all(gradient > 0)


def test_thin_boxes_keep_their_volume() -> None:
    """In single precision, against double precision."""
    with jax.enable_x64(True):
        for a in (-8.0, -1.0, 0.0, 3.0):
            for width in (1e-6, 1e-4, 1e-2, 1.0):
                exact = math.log(float(stats.norm.cdf(a - width / 2)) * width)
                found = [
                    float(pareto._log_difference(*(jnp.asarray(v, dtype) for v in (a, a - width, width))))
                    for dtype in (np.float32, np.float64)
                ]
                assert found[0] == pytest.approx(found[1], abs=5e-3)
                if width < 1e-2:
                    assert found[1] == pytest.approx(exact, abs=1e-3)


# Feasibility


def test_feasibility_weights_the_improvement(x64: None) -> None:
    mean, std = np.array([0.2, -0.5, 1.0]), np.array([0.6, 0.3, 2.0])
    acquisition = weighted(acquisitions.make("log_expected_improvement"), 1)
    thresholds = np.array([-0.4, 0.1])

    def score(known: bool) -> float:
        target = Target(Incumbent(jnp.asarray(0.5), jnp.zeros(())), jnp.asarray(known), thresholds)
        return float(acquisition(target).score(jax.random.key(0), normal(mean, std), jnp.zeros((2, 1)), None)[1])

    z = (0.2 - 0.5) / 0.6
    improvement = 0.6 * (stats.norm.pdf(z) + z * stats.norm.cdf(z))
    feasible = np.prod(stats.norm.cdf((mean[1:] - thresholds) / std[1:]))
    assert score(True) == pytest.approx(math.log(improvement * feasible), rel=1e-10)
    assert score(False) == pytest.approx(math.log(feasible), rel=1e-10)


def test_the_log_probability_and_its_gradient() -> None:
    z = np.array([-1e6, -1e3, -50.0, -12.0, -9.0, -1.0, 0.0, 4.0])
    with jax.enable_x64(True):
        value, slope = jax.vmap(jax.value_and_grad(log_probability))(jnp.asarray(z))
        np.testing.assert_allclose(value, stats.norm.logcdf(z), rtol=1e-12)
        log_slope = stats.norm.logpdf(z[2:]) - stats.norm.logcdf(z[2:])
        np.testing.assert_allclose(slope[2:], np.exp(log_slope), rtol=1e-6)
        np.testing.assert_allclose(slope[:2], -z[:2], rtol=1e-5)
    single = jax.vmap(jax.grad(log_probability))(jnp.asarray(z, jnp.float32))
    np.testing.assert_allclose(single, slope, rtol=1e-3)


# Failures


def probability(state: Any, *points: Any) -> np.ndarray:
    with jax.enable_x64(True):
        return np.exp([float(failures.log_success(state, jnp.array(point))) for point in points])


def test_the_probability_of_a_success_has_the_border_that_failures_show() -> None:
    x = np.random.default_rng(0).random((40, 2))
    x[30:] = [(0.5 + side * 10.0**-k, 0.5) for k in range(1, 6) for side in (-1, 1)]  # as a search comes close to it
    state = failures.fit(x, x[:, 0] < 0.5, 64)
    within, beyond = probability(state, (0.1, 0.5), (0.3, 0.5)), probability(state, (0.7, 0.5), (0.9, 0.5))
    assert within.min() > 0.95 and beyond.max() < 0.05


@one_blas_thread()
def test_failures_at_random_or_none_say_nothing_of_points() -> None:
    x = np.random.default_rng(0).random((60, 3))
    assert failures.fit(x, np.ones(60, bool), 64) is None
    assert all(failures.fit(x, np.random.default_rng(seed).random(60) > 0.1, 64) is None for seed in range(10))
    failed = np.argsort(np.sum((x - 0.5) ** 2, 1))[:6]  # as many, side by side
    assert failures.fit(x, ~np.isin(np.arange(60), failed), 64) is not None


@pytest.mark.parametrize("good", [lambda x: x[:, 0] < 0.5, lambda x: np.arange(len(x)) == 0, lambda x: x[:, 0] < 2])
def test_points_that_repeat_with_either_result_leave_the_probability_finite(good: Any) -> None:
    x = np.repeat(np.random.default_rng(0).random((6, 2)), 5, 0)
    ok = good(x)
    ok[::5] = ~ok[::5]
    for hyper in (failures._hyperparameters(2, scale, variance) for scale in (0.1, 3.2) for variance in (10.0, 1e8)):
        found = failures._posterior(hyper, x, ok)
        assert np.isfinite(found.evidence) and found.evidence < 0
        assert np.isfinite(found.weights).all() and np.isfinite(found.whiten).all()


def beyond_fails(x: Any) -> float:
    """The squared distance to (0.8, 0.4), of which the half with that point fails: the minimum is 0.02."""
    return math.nan if x[0] + x[1] > 1 else (x[0] - 0.8) ** 2 + (x[1] - 0.4) ** 2


@pytest.mark.extended
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_minimum_on_the_border_of_failures_is_found(seed: int) -> None:
    result = seqdec.minimize(beyond_fails, SQUARE, n_calls=30, seed=seed, progress=False)
    assert result.fun - 0.02 < 1e-3 and result.nfev == 30


NAMED = {"x": Real(0.0, 1.0), "y": Real(0.0, 1.0), "z": Conditional(Real(0.0, 1.0), on="kind", values=("a",))}
KINDS = [
    (SQUARE, {}),
    (SQUARE, {"surrogate": "hilofi"}),
    (SQUARE, {"acquisition": "ucb"}),
    (SQUARE, {"outcome_constraints": 1}),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("bounds", "options"), [*KINDS, (NAMED | {"kind": Categorical(("a", "b"))}, {})])
def test_questions_of_every_kind_keep_to_where_calls_succeed(bounds: Any, options: dict[str, Any]) -> None:
    optimizer = quick(bounds, capacity=32, **options)
    generator, named = np.random.default_rng(0), isinstance(bounds, dict)
    for _ in range(24):
        u, v, w = generator.random(3)
        point = {"x": u, "y": v, "z": w, "kind": "a"} if named else [u, v]
        outcomes = [-1.0] if optimizer.outputs.outcome_constraints and u < 0.5 else None
        optimizer.tell(point, -u if u < 0.5 else None, outcomes=outcomes)
    asked = optimizer.ask(fixed={"kind": "a"} if named else None).x
    assert (asked["x"] if named else asked[0]) < 0.6
