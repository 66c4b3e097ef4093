"""Several fidelities: levels, learning curves that end early, and the record of both."""

import json
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqdec.bo import BayesianOptimizer, Categorical, Fidelity, Integer, Prior, Search
from seqdec.bo.fidelity import Forecast, level_of
from seqdec.bo.output_warp import Warp
from seqdec.bo.surrogates import evidence
from seqdec.bo.workers import Call
from seqdec.persistence import read_arrays, write_arrays
from tests.bo.common import SQUARE, minimum, quick

OPTIONS: dict[str, Any] = {"fidelity": Fidelity(1, 9)}


def height(x: Any, fidelity: float) -> float:
    """Smallest at (.3, .6), and larger below full fidelity."""
    return float((x[0] - 0.3) ** 2 + (x[1] - 0.6) ** 2 + (0.5 + 0.1 * x[0]) * (1 / fidelity - 1 / 9))


def curve(x: Any) -> Iterator[float]:
    """The same as a learning curve, which would go on for ever."""
    epoch = 0
    while True:
        epoch += 1
        yield height(x, epoch)


def told() -> BayesianOptimizer:
    """An optimizer with values at three levels."""
    optimizer = quick(
        SQUARE, fidelity=Fidelity(1, 9), responses="standardized", surrogate="gp", surrogate_options={"draws": 1}
    )
    for number, x in enumerate(np.random.default_rng(0).random((7, 2))):
        optimizer.tell(x, [height(x, epoch) for epoch in range(1, 10)][: (1, 3, 9)[number % 3]])
    return optimizer


def test_a_question_is_the_level_that_reduces_most_variance_of_the_full_value_per_cost() -> None:
    optimizer = told()
    trial = optimizer.ask()
    optimizer.tell(trial, None)
    _, fitted = optimizer.fitted()
    hyper, count = fitted.state.hyper, int(fitted.trials.answered)
    rows = np.array([[*trial.x, column] for column in (0.0, 0.5, 1.0)])  # of full fidelity, 3 epochs and 1
    known = np.asarray(fitted.trials.x)[:count]
    noise = np.exp(hyper.log_noise) + evidence.SMALLEST_NOISE
    cross = evidence.covariances(hyper, rows, known)
    inverse = np.linalg.inv(evidence.covariances(hyper, known, known) + noise * np.eye(count))
    cov = evidence.covariances(hyper, rows, rows) - cross @ inverse @ cross.T
    mean = cross @ inverse @ np.asarray(fitted.trials.y)[:count] + fitted.offsets[:, 0]
    forecast = trial.forecast
    assert forecast is not None and forecast.levels == (9, 3, 1)
    np.testing.assert_allclose(forecast.cov, cov, atol=1e-7)
    np.testing.assert_allclose(forecast.means, mean, atol=1e-6)
    # The variance of the full value, less that when an observation at the level is known.
    reductions = [
        cov[0, 0] - (cov[0, 0] - cov[0, level] * cov[0, level] / (cov[level, level] + noise)) for level in range(3)
    ]
    expected = int(np.argmax(np.array(reductions) / np.array([1, 1 / 3, 1 / 9])))
    assert trial.fidelity == (9, 3, 1)[expected]
    # Alike levels: the cheapest. Unrelated ones: full fidelity, and whenever lower levels have cost enough.
    grid = Fidelity(1, 9).grid
    assert level_of(grid, np.ones((3, 3)), 0.01, 0.0) == 2
    assert level_of(grid, np.eye(3), 0.01, 0.0) == 0 == level_of(grid, np.ones((3, 3)), 0.01, 1.0)


def test_the_shift_that_levels_have_in_common_is_learned_from_points_with_several() -> None:
    optimizer = told()
    found, known = optimizer.fitted()[1], optimizer._observations()
    places = [point.level for point in known.told]
    z = found.warps[0].forward(known.responses[:, 0]) - found.offsets[places, 0]
    np.testing.assert_allclose(found.trials.y[: len(z)], z, atol=1e-9)
    mean, std = found.warps[0].mean, found.warps[0].std
    shifts = [np.mean([-height(x, level) + height(x, 9) for x in SQUARE]) / std for level in (9, 3, 1)]
    assert np.isfinite(mean) and found.offsets[0, 0] == 0
    np.testing.assert_allclose(found.offsets[:, 0], shifts, rtol=0.15)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_chance_of_a_curve_is_the_share_of_draws_that_end_better(sign: float) -> None:
    root = np.array([[0.5, 0.3, 0.1, 0.0], [0.4, 0.4, 0.0, 0.1], [0.3, 0.1, 0.3, 0.0], [0.5, 0.0, 0.1, 0.3]])
    cov, means, noise, warp = root @ root.T, np.array([0.2, 0.0, -0.3, -0.9]), 0.02, Warp(scale=2.0, power=1.5)
    forecast = Forecast((27, 9, 3, 1), (*means,), (*map(tuple, cov),), noise, 0.6, sign, warp)
    rng = np.random.default_rng(0)
    draws = means + rng.standard_normal((400_000, 4)) @ root.T + np.sqrt(noise) * rng.standard_normal((400_000, 4))
    z = np.array([-1.0, 0.1, 0.3])  # of 1, 3 and 9 epochs
    values = np.repeat(sign * warp.inverse(z), (2, 6, 1))  # those between the levels do not count
    for known in range(4):
        columns = [3, 2, 1][:known]
        inputs = np.column_stack([np.ones(len(draws)), draws[:, columns]])
        slope = np.linalg.lstsq(inputs, draws[:, 0])[0]
        ends = draws[:, 0] - inputs @ slope + np.array([1.0, *z[:known]]) @ slope
        given = values[: (0, 1, 3, 9)[known]]
        assert forecast.chance(given) == pytest.approx(np.mean(ends > 0.6), abs=0.004)
        assert pickle.loads(pickle.dumps(forecast)).is_hopeless(given) == (known > 0 and np.mean(ends > 0.6) < 0.05)
    assert forecast._replace(best=9.0).is_hopeless(values[:1]) and not forecast._replace(best=9.0).is_hopeless([])


def test_a_search_pays_little_for_lower_levels_and_answers_with_values_at_full_fidelity() -> None:
    result = minimum(height, SQUARE, n_calls=8, **OPTIONS)
    table = result.optimizer.trials_dataframe()
    full = table["fidelity"] == 9
    assert result.nfev == len(table) > 10 and set(table["fidelity"]) <= {1, 3, 9}
    assert result.cost == pytest.approx(table["fidelity"].sum() / 9) and 7 <= result.cost <= 8 + 1e-9
    assert full.iloc[-1] and full.sum() >= 3 and (table["state"] == np.where(full, "complete", "partial")).all()
    assert result.fun == table["value"][full].min() == height(result.x, 9) < 0.05
    np.testing.assert_array_equal(result.func_vals, table["value"][full])
    again = minimum(height, SQUARE, n_calls=8, **OPTIONS)
    assert table.drop(columns="seconds").equals(again.optimizer.trials_dataframe().drop(columns="seconds"))


class Curves:
    """A generator function that counts what it yields, and whether it was closed."""

    def __init__(self) -> None:
        self.lengths: list[int] = []
        self.closed = 0

    def __call__(self, x: Any) -> Iterator[float]:
        self.lengths.append(0)
        try:
            for value in curve(x):
                self.lengths[-1] += 1
                yield -value
        finally:
            self.closed += 1


def test_a_curve_is_closed_at_its_level_or_without_hope() -> None:
    fun = Curves()
    result = minimum(fun, SQUARE, maximize=True, n_calls=6, **OPTIONS)
    table = result.optimizer.trials_dataframe()
    assert fun.lengths == table["fidelity"].tolist() and fun.closed == result.nfev
    assert result.cost == pytest.approx(sum(fun.lengths) / 9) and result.fun > -0.05
    optimizer = result.optimizer
    for corner in (0.0, 1.0):
        trial = optimizer.ask(fixed={0: corner, 1: corner}, fidelity=9)
        outcome = Call(fun, optimizer.outputs, (), np.inf, optimizer.settings.fidelity, curves=True)(trial)
        assert outcome is not None and outcome.units == fun.lengths[-1] < 9 and fun.closed == len(fun.lengths)
        optimizer.tell(trial, outcome.value)
    assert optimizer.trials_dataframe()["state"].tolist()[-2:] == ["stopped"] * 2


def diverging(x: Any) -> Iterator[float]:
    for epoch, value in enumerate(curve(x), 1):
        yield np.nan if x[0] < 0.5 and epoch == 2 else value


def ending(x: Any) -> Iterator[float]:
    yield from [height(x, epoch) for epoch in range(1, 5 if x[0] < 0.5 else 3)]


def raising(x: Any) -> Iterator[float]:
    yield height(x, 1)
    raise ArithmeticError("diverged")


def test_curves_that_diverge_end_or_raise_cost_what_was_made_of_them() -> None:
    options = OPTIONS | {"n_calls": 2, "x0": [[0.2, 0.2], [0.8, 0.8]]}
    low, high = minimum(diverging, SQUARE, **options).optimizer.trials_dataframe().iloc[:2].itertuples()
    assert (low.state, low.reason, high.state, high.fidelity) == ("failed", "value nan", "complete", 9)
    result = minimum(ending, SQUARE, **options | {"fidelity": Fidelity(3, 9)})
    low, high = result.optimizer.trials_dataframe().iloc[:2].itertuples()
    assert (low.state, low.fidelity, low.value) == ("stopped", 3, height([0.2, 0.2], 3))
    assert high.state == "failed" and "fun yielded 2 values, and the lowest level is 3" in high.reason
    result = minimum(raising, SQUARE, **options, catch=ArithmeticError, max_failures=2)
    assert result.nfev == 2 and result.cost == pytest.approx(2 / 9) and "diverged" in result.traceback
    with pytest.raises(ArithmeticError, match="diverged") as caught:
        minimum(raising, SQUARE, **options)
    assert caught.value.search_result.nfev == 1


class Copying:
    """The function, which keeps the file as it was at a call: what a kill there leaves."""

    def __init__(self, file: Path, copy: Path, at: int) -> None:
        self.file, self.copy, self.left = file, copy, at

    def _see(self) -> None:
        self.left -= 1
        if self.left == 0:
            shutil.copy(self.file, self.copy)

    def level(self, x: Any, fidelity: int) -> float:
        self._see()
        return height(x, fidelity)

    def curve(self, x: Any) -> Iterator[float]:
        self._see()
        return curve(x)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("kind", "batch", "at"), [("curve", 1, 6), ("level", 1, 9), ("curve", 3, 8)])
def test_a_killed_search_goes_on_with_the_same_result(kind: str, batch: int, at: int, tmp_path: Path) -> None:
    options = OPTIONS | {"n_calls": 5, "batch_size": batch}
    fun = getattr(Copying(tmp_path / "whole", tmp_path / "killed", at), kind)
    whole = minimum(fun, SQUARE, checkpoint=tmp_path / "whole", **options)
    result = minimum(fun, SQUARE, checkpoint=tmp_path / "killed", **options)
    expected, found = (one.optimizer.trials_dataframe().drop(columns="seconds") for one in (whole, result))
    assert expected.equals(found) and len(found) > at and result.cost == whole.cost and result.message == whole.message
    with pytest.raises(ValueError, match="fidelity is Grid"):
        minimum(fun, SQUARE, checkpoint=tmp_path / "killed", **options | {"fidelity": Fidelity(1, 27)})


@pytest.mark.extended
def test_processes_evaluate_curves() -> None:
    options = OPTIONS | {"n_calls": 5, "batch_size": 2}
    here, there = (minimum(curve, SQUARE, workers=workers, **options) for workers in (1, 2))
    here, there = (one.optimizer.trials_dataframe().drop(columns="seconds") for one in (here, there))
    assert here.equals(there) and len(here) > 5


def test_ask_and_tell_keep_levels_and_curves_in_a_file(tmp_path: Path) -> None:
    optimizer = quick(SQUARE, fidelity=Fidelity(1, 9))
    for _ in range(6):
        trial = optimizer.ask()
        optimizer.tell(trial, height(trial.x, trial.fidelity))
    assert optimizer.tell([0.5, 0.5], [0.4, 0.3, 0.2, 0.1]).fidelity == 3
    assert optimizer.tell([0.1, 0.5], 0.4, fidelity=3).fidelity == 3
    assert optimizer.propose([0.2, 0.5], fidelity=1).fidelity == 1 and optimizer.propose([0.3, 0.5]).fidelity == 9
    pending = optimizer.ask(fidelity=9)
    assert pending.fidelity == 9 and pending.forecast is not None
    optimizer.save(tmp_path / "study")
    loaded = BayesianOptimizer.load(tmp_path / "study")
    assert optimizer.trials_dataframe().equals(loaded.trials_dataframe())
    assert loaded.trials[-1].forecast == pending.forecast
    assert optimizer.trials_dataframe()["state"].tolist()[6:] == ["stopped", "partial", *["pending"] * 3]
    assert optimizer.predict([0.5, 0.5]) == loaded.predict([0.5, 0.5])
    one, other = (each.ask() for each in (optimizer, loaded))
    np.testing.assert_array_equal(one.x, other.x)
    assert one.fidelity == other.fidelity and "partial" in repr(optimizer)


def test_a_file_of_an_earlier_format_is_refused(tmp_path: Path) -> None:
    options: Any = {"checkpoint": tmp_path / "search"}
    minimum(lambda x: height(x, 9), SQUARE, n_calls=2, **options)
    tensors, content = read_arrays(tmp_path / "search")
    written = content | {"format": "seqdec optimizer 3", "versions": {"seqdec": "0.1.0"}}
    write_arrays(tmp_path / "search", tensors, json.loads(json.dumps(written)))
    for read in (
        lambda: minimum(lambda x: height(x, 9), SQUARE, n_calls=3, **options),
        lambda: BayesianOptimizer.load(tmp_path / "search"),
    ):
        with pytest.raises(ValueError, match=r"search has the format 'seqdec optimizer 3'.* seqdec of version 0\.1\.0"):
            read()


def test_finite_spaces_failures_and_earlier_studies_have_levels_too() -> None:
    bounds = {"depth": Integer(1, 4), "kind": Categorical(("a", "b"))}

    def fun(x: Any, fidelity: float) -> float:
        value = (x["depth"] - 2) ** 2 + (x["kind"] == "b") + 0.1 / fidelity
        return np.nan if x["depth"] == 4 else value

    first = minimum(fun, bounds, n_calls=9, **OPTIONS | {"fidelity": Fidelity(0.1, 1.0)})
    assert first.x == {"depth": 2, "kind": "a"} and first.status in (0, 4)
    more = {"fidelity": Fidelity(0.1, 1.0), "prior": Prior(earlier=first, monotone={"depth": 1})}
    assert minimum(fun, bounds, n_calls=4, **OPTIONS | more).x == first.x


def test_levels_are_spaced_on_a_logarithmic_scale() -> None:
    assert Fidelity(1, 30).grid.levels == (30, 10, 3, 1) and Fidelity(1, 2, levels=9).grid.levels == (2, 1)
    np.testing.assert_allclose(Fidelity(0.1, 1.0, levels=3).grid.levels, (1.0, 0.1**0.5, 0.1))
    grid = Fidelity(1, 9, cost=lambda level: level**2).grid
    np.testing.assert_allclose(grid.costs, (1, 1 / 9, 1 / 81))
    assert grid.cost(2) == pytest.approx(np.mean([1 / 81, 1 / 9])) and grid.cost(0) == 0


def two(x: Any, fidelity: Any) -> float:
    pytest.fail("called")


def yielding(x: Any, fidelity: Any) -> Iterator[float]:
    yield 0.0


WRONG = [
    ({"fidelity": Fidelity(9, 1)}, ValueError, "low=9 and high=1"),
    ({"fidelity": Fidelity(0, 1)}, ValueError, "0 < low < high"),
    ({"fidelity": Fidelity(1, 9, levels=1)}, ValueError, "at least 2; got 1"),
    ({"fidelity": Fidelity(1, 9, cost=lambda level: -level)}, ValueError, "above 0 and largest at the level 9"),
    ({"fidelity": (1, 9)}, TypeError, "seqdec.bo.Fidelity"),
    ({"fidelity": Fidelity(1, 9), "objectives": 2}, ValueError, "one objective.*got objectives=2"),
    ({"fidelity": Fidelity(1, 9), "outcome_constraints": 1}, ValueError, "outcome_constraints=1"),
    ({"fidelity": Fidelity(1, 9), "surrogate": "lrkf"}, ValueError, "auto, gp, sparse_gp; got 'lrkf'"),
    ({"fidelity": Fidelity(1, 9), "search": Search(trust_region=True)}, ValueError, "leave trust_region out"),
    ({"fidelity": Fidelity(1, 9), "bounds": {"fidelity": (0, 1)}}, ValueError, "'fidelity'.*choose another"),
    ({"fidelity": Fidelity(1, 9), "fun": lambda: 0.0}, TypeError, r"fun must be fun\(x, fidelity\)"),
    ({"fidelity": Fidelity(1, 9), "fun": yielding}, TypeError, "yields, and its signature"),
    ({"fidelity": Fidelity(0.1, 1.0), "fun": curve}, ValueError, "are not integers"),
    ({"fun": curve}, TypeError, r"fidelity=Fidelity\(1, 30\)"),
]


@pytest.mark.parametrize(("given", "error", "message"), WRONG)
def test_what_does_not_fit_is_refused_before_a_call(given: dict[str, Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        minimum(**{"fun": two, "bounds": SQUARE, "n_calls": 3} | given)


def test_values_that_do_not_fit_are_refused_and_change_nothing() -> None:
    optimizer = quick(SQUARE, fidelity=Fidelity(3, 9))
    trial = optimizer.ask()
    assert trial.fidelity == 3
    for call, message in [
        (lambda: optimizer.ask(fidelity=5), "one of the levels 3, 9; got 5"),
        (lambda: optimizer.propose([0, 0], fidelity=2), "one of the levels 3, 9; got 2"),
        (lambda: optimizer.tell([0, 0], 1.0, fidelity=4), "one of the levels 3, 9; got 4"),
        (lambda: optimizer.tell(trial, 1.0, fidelity=9), "for a point; trial 0 has a level"),
        (lambda: optimizer.tell(trial, [1.0, 2.0]), "the first 3 to 9 values of a learning curve; got 2"),
        (lambda: optimizer.tell(trial, [1.0] * 10), "learning curve; got 10"),
        (lambda: quick(SQUARE).ask(fidelity=3), "needs levels"),
        (lambda: quick(SQUARE, fidelity=Fidelity(0.5, 1)).tell([0, 0], [1.0]), "integers"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    assert optimizer.trials_dataframe()["state"].tolist() == ["pending"]
    with pytest.raises(TypeError, match="one by one"):
        minimum(lambda x: 1.0, SQUARE, n_calls=2, fidelity=Fidelity(1, 9))
