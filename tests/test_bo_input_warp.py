"""Warped inputs of the optimizer's surrogates."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqdec.bo import BayesianOptimizer, Search, gp
from seqdec.bo.model import marginals_of as marginals
from seqdec.bo.surrogates import contract as surrogates
from seqdec.bo.surrogates import gaussian_process, input_warp
from seqdec.bo.surrogates.contract import History
from seqdec.bo.surrogates.input_warp import Powers
from tests.toys import optimizer_programs

BOX = [(0.0, 1.0), (0.0, 1.0)]
QUICK = Search(raw_samples=64, num_restarts=4, steps=10)
POWERS = Powers(np.array([-0.7, 0.4]), np.array([0.2, -1.1]))
POINTS = np.random.default_rng(0).random((40, 2))


def steep(x: Any) -> float:
    """A wave whose length is proportional to the first parameter."""
    return float(np.sin(3 * np.log10(x[0] + 1e-3)) + x[1] ** 2)


def history(points: np.ndarray, length: int = 64) -> History:
    x, y = np.zeros((length, 2)), np.zeros(length)
    values = np.array([steep(point) for point in points])
    x[: len(points)], y[: len(points)] = points, (values - values.mean()) / values.std()
    return History(x, y, np.int32(len(points)))


def test_it_is_an_increasing_map_of_the_unit_interval_and_the_identity_for_powers_of_one() -> None:
    grid = np.repeat(np.linspace(0, 1, 201)[:, None], 2, axis=1)
    moved = input_warp.forward(POWERS, grid, np)
    assert np.all(np.diff(moved, axis=0) > 0) and moved.min() >= 0 and moved.max() <= 1
    np.testing.assert_allclose(input_warp.forward(Powers(np.zeros(2), np.zeros(2)), grid, np), grid, atol=2e-6)
    with jax.enable_x64(True):
        np.testing.assert_allclose(input_warp.forward(POWERS, jnp.asarray(grid), jnp), moved, atol=1e-12)
    known = 1 - (1 - 0.3 ** np.exp(-0.7)) ** np.exp(0.2)
    assert input_warp.forward(POWERS, np.full((1, 2), 0.3), np)[0, 0] == pytest.approx(known)


def test_derivatives() -> None:
    with jax.enable_x64(True):
        jacobian = jax.jacobian(lambda powers: input_warp.forward(powers, jnp.asarray(POINTS), jnp))(POWERS)
    for found, want in zip(input_warp.derivatives(POWERS, POINTS), jacobian, strict=True):
        np.testing.assert_allclose(found, np.einsum("ndd->nd", np.asarray(want)), rtol=1e-9)


def test_the_likelihood_has_the_gradient_by_the_points() -> None:
    known, flat = gaussian_process.told(history(POINTS)), np.log([0.4, 0.9, 1.7, 1e-2])
    _, _, gradient = gaussian_process.negative_log_likelihood(flat, known)
    for row, column in ((0, 0), (7, 1), (39, 0)):
        step = np.zeros_like(known.x)
        step[row, column] = 1e-6
        moved = [known._replace(x=known.x + sign * step) for sign in (1, -1)]
        ends = [gaussian_process.negative_log_likelihood(flat, one)[0] for one in moved]
        assert gradient[row, column] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4, abs=1e-5)


def test_the_fit_raises_the_likelihood_of_a_function_that_is_steep_at_one_end() -> None:
    known = history(POINTS)
    powers = input_warp.fitted(known)
    assert powers.log_a[0] < -0.5  # the small values of the first parameter are drawn apart

    def likelihood(powers: Powers) -> float:
        moved = known._replace(x=input_warp.forward(powers, known.x, np))
        flat = gaussian_process.flatten(gaussian_process.fitted(moved, 50))
        return -gaussian_process.negative_log_likelihood(flat, gaussian_process.told(moved))[0]

    assert likelihood(powers) > likelihood(Powers(*np.zeros((2, 2)))) + 5


def test_predictions_of_a_function_that_is_steep_at_one_end() -> None:
    known, new = history(POINTS), np.random.default_rng(1).random((200, 2))
    scale = np.std([steep(point) for point in POINTS])
    errors = []
    with jax.enable_x64(True):
        for surrogate in (gp(), input_warp.warped(gp())):
            state = surrogate.fit(surrogate.init(jax.random.key(0), known), known)
            mean, _ = marginals(surrogate, state, new)
            truth = (np.array([steep(x) for x in new]) - np.mean([steep(x) for x in POINTS])) / scale
            errors.append(np.sqrt(np.mean((mean - truth) ** 2)))
            again = surrogate.condition_on(state, known)
            np.testing.assert_allclose(marginals(surrogate, again, new)[0], mean, atol=1e-9)
            draw = surrogate.posterior(state).draw(jax.random.key(1))(jnp.asarray(POINTS))
            np.testing.assert_allclose(draw, known.y[:40], atol=0.2)
    assert errors[1] < 0.5 * errors[0]


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("surrogate", "objectives"), [("auto", 1), ("auto", 2), ("sparse_gp", 1), ("hilofi", 2)])
def test_a_search_goes_on_from_its_file(surrogate: str, objectives: int, tmp_path: Path) -> None:
    options = {"surrogate_options": {"units": 16}} if surrogate == "hilofi" else {}

    def fun(x: Any) -> Any:
        return steep(x) if objectives == 1 else [steep(x), float(x[1])]

    def new(**changed: Any) -> BayesianOptimizer:
        return BayesianOptimizer(
            BOX, seed=0, capacity=16, search=QUICK, surrogate=surrogate, objectives=objectives, **options, **changed
        )

    optimizer, plain = new(input_warp=True), new()
    for one in (optimizer, plain):
        for _ in range(8):
            trial = one.ask()
            one.tell(trial, fun(trial.x))
    assert [trial.x.tolist() for trial in optimizer.trials[4:]] != [trial.x.tolist() for trial in plain.trials[4:]]
    optimizer.save(tmp_path / "study")
    loaded = BayesianOptimizer.load(tmp_path / "study")
    assert loaded.settings.input_warp
    before = optimizer_programs()
    a, b = optimizer.ask(), loaded.ask()
    assert a.x.tolist() == b.x.tolist()
    assert new(input_warp=True).ask() is not None and optimizer_programs() == before


def test_equal_surrogates_share_their_programs() -> None:
    assert input_warp.warped(surrogates.make("gp", 2)) is input_warp.warped(surrogates.make("gp", 2))
