"""When values count as noisy: what is recommended then, and whether points of a finite space are asked for again."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import seqdec
from seqdec.bo import BayesianOptimizer, Categorical, Exhausted, History, Integer, Search
from seqdec.bo.surrogates.evidence import shows_noise
from seqdec.envs import objectives

BOX = [(-5.0, 10.0), (0.0, 15.0)]
QUICK = Search(raw_samples=64, num_restarts=4, steps=10)
BRANIN = objectives.branin()
SIX = {"y": Integer(1, 3), "z": Categorical(("a", "b"))}


def rough(x: Any) -> float:
    """Changes faster than a few points tell."""
    u, v = (x[0] + 5) / 15, x[1] / 15
    return math.sin(37 * u) + 0.5 * math.sin(91 * v)


def told(fun: Any, count: int, seed: int = 0, repeats: int = 1, surrogate: str = "gp") -> BayesianOptimizer:
    optimizer = BayesianOptimizer(BOX, seed=0, capacity=32, search=QUICK, surrogate=surrogate)
    points = np.random.default_rng(seed).uniform((-5, 0), (10, 15), (count, 2))
    for x in [*points, *points[:1].repeat(repeats - 1, axis=0)]:
        optimizer.tell(x, fun(x))
    return optimizer


def noisy(std: float, seed: int = 0) -> Any:
    generator = np.random.default_rng(seed)
    return lambda x: BRANIN(x) + std * generator.standard_normal()


def estimates(optimizer: BayesianOptimizer) -> float:
    """The share of noise that the surrogate estimates."""
    model, fitted = optimizer.fitted()
    assert model.surrogate.noise_variance is not None
    return float(model.surrogate.noise_variance(fitted.state))


def test_of_a_rough_function_the_best_evaluated_point_is_recommended() -> None:
    optimizers = [told(rough, 20, seed) for seed in range(24)]
    assert sum(estimates(optimizer) > 0.01 for optimizer in optimizers) >= 3
    for optimizer in optimizers:
        best = optimizer.recommend()
        assert best.kind == "observed" and best.value == rough(best.x) == optimizer.evaluations()[1].min()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("surrogate", ["gp", "sparse_gp", "hilofi"])
def test_noise_is_found_without_repeated_points_where_there_are_many(surrogate: str) -> None:
    assert told(noisy(10.0), 31, surrogate=surrogate).recommend().kind == "predicted"


def test_a_point_that_repeats_tells_whether_there_is_noise() -> None:
    assert told(noisy(30.0), 12).recommend().kind == "observed"
    repeated = told(noisy(30.0), 12, repeats=2)
    assert estimates(repeated) > 0.01 and repeated.recommend().kind == "predicted"
    values = noisy(30.0)
    table: dict[Any, float] = {}  # as noisy between points, but a function of them
    exact = told(lambda x: table.setdefault(tuple(x), values(x)), 30, repeats=2)
    assert estimates(exact) > 0.01 and exact.recommend().kind == "observed"


def test_residuals_of_a_rough_function_are_not_noise_where_close_points_agree() -> None:
    generator = np.random.default_rng(0)
    x = np.concatenate([generator.random((60, 2)), np.array([0.5, 0.5]) + 0.004 * generator.standard_normal((8, 2))])
    ripple = 0.2 * np.sin(x @ np.array([97.0, 61.0]))
    trend = 2 * (x[:, 0] - 0.5) ** 2 + x[:, 1]
    for residuals, expected in ((ripple, False), (0.15 * generator.standard_normal(68), True)):
        y = trend + residuals
        history = History(x, (y - y.mean()) / y.std(), np.int32(68))
        assert shows_noise(history) == expected
        assert shows_noise(history._replace(filled=np.int32(60)))  # they look alike without the close points


def test_the_message_says_that_a_value_is_predicted() -> None:
    options: Any = {"n_calls": 8, "seed": 0, "progress": False, "search": QUICK}
    assert "predicted" not in seqdec.minimize(BRANIN, BOX, **options).message
    assert "values are noisy: fun is predicted" in seqdec.minimize(noisy(30.0), BOX, noise_std=30.0, **options).message


def ask_and_tell(noise: float, n: int, values: Any = None, **options: Any) -> BayesianOptimizer:
    optimizer = BayesianOptimizer(SIX, **{"seed": 0, "capacity": 16, "search": QUICK, **options})
    generator = np.random.default_rng(0)
    for _ in range(n):
        trial = optimizer.ask()
        optimizer.tell(trial, trial.x["y"] + (trial.x["z"] == "b") + noise * generator.standard_normal())
    return optimizer


def test_points_of_a_finite_space_are_asked_for_again_where_values_are_noisy() -> None:
    optimizer = ask_and_tell(1.0, 14, noise_std=1.0)
    points = [(x["y"], x["z"]) for x in optimizer.evaluations()[0]]
    assert len({*points[:6]}) == 6 and points.count((1, "a")) > 2
    with pytest.raises(Exhausted, match=r"noise_std above 0 .* or search=Search\(repeats=True\), allows repeats"):
        ask_and_tell(1.0, 7, noise_std=1.0, search=replace(QUICK, repeats=False))
    with pytest.raises(Exhausted):
        ask_and_tell(0.0, 7)
    assert len(ask_and_tell(0.0, 8, search=replace(QUICK, repeats=True)).trials) == 8


def test_noise_that_is_found_allows_repeats_too() -> None:
    optimizer = ask_and_tell(1.0, 6)
    for value in (-3.0, 3.0):
        optimizer.tell({"y": 1, "z": "a"}, value)
    assert optimizer.ask().number == 8


@pytest.mark.parametrize("initial", [2, 9])
def test_a_noisy_search_of_a_finite_space_makes_all_its_calls(initial: int) -> None:
    options: Any = {"seed": 0, "progress": False, "search": QUICK, "initial": initial}
    space = ask_and_tell(0.0, 0).space
    result = seqdec.minimize(
        lambda x: float(space.point(x).unit[0]), SIX, n_calls=11, noise_std=1.0, batch_size=4, **options
    )
    assert (result.status, result.nfev) == (0, 11)
    ended = seqdec.minimize(lambda x: float(space.point(x).unit[0]), SIX, n_calls=11, batch_size=4, **options)
    assert (ended.status, ended.nfev, ended.success) == (4, 6, True)
    assert "Search(repeats=True), allows repeats" in ended.message
