"""Ask and tell: order, records, files, trust regions, points outside of the bounds."""

import math
import pickle
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import seqdec
from seqdec import policies
from seqdec.bo import (
    BayesianOptimizer,
    Categorical,
    Conditional,
    Integer,
    Linear,
    Real,
    Search,
    Trial,
    model,
    suggestion,
)
from seqdec.bo import model as programs
from seqdec.bo import optimizer as optimizers
from seqdec.bo.search.trust_region import Stage, stage
from tests.bo.common import BOX, BRANIN, QUICK, SQUARE, minimum, quick, searched
from tests.toys import optimizer_programs

ROOT = Path(__file__).resolve().parents[2]
FINITE = [Integer(0, 2), Categorical(("a", "b"))]


def test_trials_may_be_told_in_any_order_or_never() -> None:
    optimizer = quick()
    first = optimizer.ask(3)
    for trial in (first[2], first[0]):
        optimizer.tell(trial, BRANIN(trial.x))
    later = optimizer.ask(2)
    assert [trial.number for trial in optimizer.trials] == [0, 1, 2, 3, 4]
    optimizer.tell(later[1], 0.5)
    table = optimizer.trials_dataframe()
    assert table["state"].tolist() == ["complete", "pending", "complete", "pending", "complete"]
    assert list(table) == ["number", "state", "value", "x_0", "x_1", "reason", "seconds"]
    assert np.isnan(table["value"][1])
    assert optimizer.best == (pytest.approx(later[1].x), 0.5)


def test_pending_points_are_not_suggested_again() -> None:
    optimizer = quick()
    for trial in optimizer.ask(3):
        optimizer.tell(trial, BRANIN(trial.x))
    points = np.array([trial.x for trial in optimizer.ask(5)])
    distances = np.linalg.norm(points[:, None] - points, axis=2) + 100 * np.eye(5)
    assert distances.min() > 1e-3


def test_points_of_your_own_count() -> None:
    optimizer = quick()
    trial = optimizer.tell([math.pi, 2.275], 0.397887)
    assert trial.number == 0 and optimizer.best[1] == 0.397887
    with pytest.raises(ValueError, match="a point has 2 values; got 1"):
        optimizer.tell([1.0], 1.0)
    assert len(optimizer.trials) == 1


def test_a_trial_is_told_once_and_by_its_own_optimizer() -> None:
    optimizer, other = quick(), quick(seed=1)
    trial = optimizer.ask()
    optimizer.tell(trial, 1.0)
    with pytest.raises(ValueError, match=r"trial 0 was told before: it is complete"):
        optimizer.tell(trial, 1.0)
    with pytest.raises(ValueError, match=r"trial 0 at .* is not from this optimizer"):
        optimizer.tell(other.ask(), 1.0)
    with pytest.raises(ValueError, match=r"trial 7 at .* is not from this optimizer"):
        optimizer.tell(trial._replace(number=7), 1.0)


def test_an_integer_is_the_number_of_a_trial_in_every_space() -> None:
    for bounds in ([(0, 10)], [Integer(0, 10)], BOX):
        optimizer = quick(bounds)
        trials = optimizer.ask(4)
        assert optimizer.tell(trials[3].number, 1.5) == trials[3] and optimizer.tell(np.int64(1), 2.5) == trials[1]
        for wrong, message in ((3, "trial 3 was told before"), (4, "no trial 4 among 4"), (-1, "no trial -1")):
            with pytest.raises(ValueError, match=message):
                optimizer.tell(wrong, 1.0)
        assert optimizer.trials_dataframe()["state"].tolist() == ["pending", "complete", "pending", "complete"]
    optimizer = quick([Integer(0, 10)])
    assert optimizer.tell([3], 1.0).x == [3] and minimum(lambda x: x[0], [Integer(0, 10)], x0=3).x_iters[0] == [3]
    assert quick([(0, 10)]).tell(3.0, 1.0).x == [3.0]


def test_failures_never_reach_the_belief() -> None:
    optimizer = quick()
    failed = [optimizer.tell(optimizer.ask(), value) for value in (math.nan, math.inf, -math.inf, None)]
    searched(optimizer, BRANIN, 4)
    trials = optimizer.fitted()[1].trials
    assert (int(trials.answered), int(trials.pending), int(trials.failed)) == (4, 0, 4)
    assert np.isfinite(trials.y).all() and optimizer.trials_dataframe()["state"][:4].tolist() == ["failed"] * 4
    units = [optimizer.space.point(trial.x).unit for trial in failed]
    np.testing.assert_allclose(np.asarray(trials.x)[4:8], units, rtol=1e-6)


def test_equal_seeds_give_equal_points_and_growth_compiles_nothing() -> None:
    runs = []
    for seed in (0, 0, 1):
        optimizer = searched(quick(seed=seed), BRANIN, 4)
        compiled = optimizer_programs()
        searched(optimizer, BRANIN, 8)
        assert optimizer_programs() == compiled
        runs.append(np.array([trial.x for trial in optimizer.trials]))
    assert np.array_equal(runs[0], runs[1]) and not np.array_equal(runs[0], runs[2])


def test_the_initial_design_compiles_the_programs_and_changes_nothing() -> None:
    optimizer = quick(search=Search(raw_samples=64, num_restarts=4, steps=11))  # which no other test compiles
    searched(optimizer, BRANIN, optimizer.initial)
    for compiling in optimizers._compiling.values():
        compiling.result()
    compiled = optimizer_programs()
    points = [trial.x for trial in searched(optimizer, BRANIN, 3).trials]
    assert optimizer_programs() == compiled
    code = f"""
from tests.bo.test_optimizer import *
optimizers._compile = lambda *_: None
optimizer = quick(search=Search(raw_samples=64, num_restarts=4, steps=11))
print([trial.x.tolist() for trial in searched(optimizer, BRANIN, {len(points)}).trials])
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout == f"{[x.tolist() for x in points]}\n"


def test_a_process_ends_while_programs_are_compiled() -> None:
    code = "from tests.bo.common import *; searched(quick(capacity=100), BRANIN, 2).ask(); print('told')"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("told\n", "")


def test_a_process_that_ctrl_c_interrupts_waits_for_what_it_compiles() -> None:
    code = """
import signal, time
from tests.bo.test_optimizer import *
optimizers._compile = lambda *_: (time.sleep(2), print("compiled"))
optimizer = quick()
searched(optimizer, BRANIN, optimizer.initial)
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.5)
try:
    optimizer.ask()
except KeyboardInterrupt:
    print("interrupted")
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("interrupted\ncompiled\n", "")


def test_many_more_points_than_prepared_for() -> None:
    optimizer = quick()
    for point in np.random.default_rng(0).uniform((-5, 0), (10, 15), (100, 2)):
        optimizer.tell(point, BRANIN(point))
    assert optimizer.ask().number == 100 and optimizer.capacity == 128


def test_what_is_handed_out_does_not_change_the_record() -> None:
    optimizer = quick()
    trial = optimizer.ask()
    with pytest.raises(ValueError, match="read-only"):
        trial.x[:] = 0.123
    optimizer.tell(trial, 1.0)
    for mine in (optimizer.best[0], optimizer.evaluations()[0][0]):
        mine[:] = 0.123
    table = optimizer.trials_dataframe()
    assert (
        [table["x_0"][0], table["x_1"][0]]
        == trial.x.tolist()
        == optimizer.space.decode(optimizer._record.entries[0].point.unit).tolist()
    )

    mixed = quick([Real(1e-4, 1.0, log=True), Integer(1, 4), Categorical(("relu", "elu", "tanh"))])
    first, point = mixed.ask(), mixed.space.point([0.1, 2, "elu"])
    own = list(first.x)
    second = mixed.propose(point)
    point.x[1] = 3
    second.x[2] = mixed.trials[1].x[2] = "tanh"
    first.x[1] = 4 if first.x[1] == 1 else 1
    with pytest.raises(ValueError, match=r"trial 0 at .* is not from this optimizer"):
        mixed.tell(first, 1.0)
    assert [trial.x for trial in mixed.trials] == [own, [0.1, 2, "elu"]]
    mixed.tell(mixed.trials[0], 1.0)
    mixed.best[0][1] = mixed.evaluations()[0][0][1] = 7
    assert mixed.best[0] == own


def test_threads_share_an_optimizer() -> None:
    optimizer = quick()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: searched(optimizer, BRANIN, 5), range(4)))
    table = optimizer.trials_dataframe()
    assert table["number"].tolist() == list(range(20)) and set(table["state"]) == {"complete"}
    assert len({tuple(trial.x) for trial in optimizer.trials}) == 20


def test_an_interrupted_question_can_be_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = quick()
    for trial in optimizer.ask(4):
        optimizer.tell(trial, BRANIN(trial.x))
    inner = programs.fit

    def interrupted(*arguments: Any) -> Any:
        inner(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(programs, "fit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            optimizer.ask()
    assert optimizer.ask().number == 4


@pytest.mark.parametrize("acquisition", [*seqdec.bo.acquisition_names(), policies.greedy()])
@pytest.mark.sampled(3)
def test_every_acquisition_finds_new_points_in_the_box(acquisition: Any) -> None:
    optimizer = searched(quick(acquisition=acquisition), BRANIN, 5)
    points = np.array([trial.x for trial in optimizer.trials])
    assert len(np.unique(points, axis=0)) == 5 and np.all((points >= [-5, 0]) & (points <= [10, 15]))


def test_the_design_of_a_finite_space_is_repeated_where_repeats_are_allowed() -> None:
    optimizer = quick(FINITE, search=replace(QUICK, repeats=True))
    trials = optimizer.ask(9)  # without a value all belong to the design
    assert len({tuple(trial.x) for trial in trials[:6]}) == 6
    assert {tuple(trial.x) for trial in trials[6:]} <= {tuple(trial.x) for trial in trials[:6]}


def test_equal_values_are_asked_as_the_design() -> None:
    optimizer = searched(quick(SQUARE), lambda x: -3.5, 20)
    points = np.array([trial.x for trial in optimizer.trials])
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 21)] * 2), -1).reshape(-1, 1, 2)
    assert np.abs(grid - points).max(-1).min(-1).max() < 0.26 and not optimizer.is_fitted  # no large gap
    optimizer.tell(optimizer.ask(), -4.5)
    optimizer.ask()
    assert optimizer.is_fitted


def test_every_second_question_is_of_the_design_while_values_are_noise() -> None:
    values = np.random.default_rng(0).standard_normal(14).tolist()

    def asked(initial: int) -> list[Any]:
        search, rest = quick(SQUARE, initial=initial), iter(values)
        for number in range(10):
            search.tell([0.25 + 0.5 * (number % 2), 0.5], next(rest))
        return [tuple(trial.x) for trial in searched(search, lambda _: next(rest), 4).trials[10:]]

    pairs = zip(asked(4), asked(20), strict=True)
    assert [modeled == designed for modeled, designed in pairs] == [False, True, False, True]


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
@pytest.mark.parametrize(("scale", "responses"), [(1e160, "warped"), (1e300, "raw"), (1e-300, "warped")])
def test_values_whose_squares_overflow(scale: float, responses: Any) -> None:
    optimizer = quick(SQUARE, responses=responses)
    searched(optimizer, lambda x: scale * (float(np.sum(np.square(x))) - 0.3), 6)
    found = optimizer.predict([0.5, 0.5])
    assert np.isfinite(found if responses == "warped" else found.mean).all() and optimizer.is_fitted


@pytest.mark.parametrize("maximize", [False, True])
def test_the_expected_gain_is_that_of_draws_from_the_belief(maximize: bool) -> None:
    sign = -1.0 if maximize else 1.0
    optimizer = quick([(0.0, 1.0)], maximize=maximize, responses="standardized")
    for x in (0.0, 0.3, 0.5, 1.0):
        assert math.isnan(optimizer.expected_gain())
        optimizer.tell([x], sign * (x - 0.6) ** 2)
    trial = optimizer.ask()
    gain = optimizer.expected_gain()
    gains = optimizer.expected_gain([trial.x, [0.5], [0.0]])
    np.testing.assert_allclose(gains, [gain, *map(optimizer.expected_gain, ([0.5], [0.0]))], rtol=1e-6)
    assert gains.argmax() == 0 and gains.min() >= 0
    method, fitted = optimizer.fitted()
    means, stds = model.marginals(method, fitted, np.array([trial.x, [0.5]]))
    draws = means[0, 0] + stds[0, 0] * np.random.default_rng(0).standard_normal(100_000)
    scale = fitted.warps[0].inverse(np.ones(1))[0] - fitted.warps[0].inverse(np.zeros(1))[0]
    assert gain == pytest.approx(scale * np.maximum(draws - means[1, 0], 0).mean(), rel=0.05) and 0 < gain < 0.2
    optimizer.tell(trial, 0.0)
    assert optimizer.expected_gain() == gain
    assert math.isnan(pickle.loads(pickle.dumps(optimizer)).expected_gain())


# Trust regions


def test_the_trust_region_grows_with_success_and_shrinks_without() -> None:
    assert stage(np.array([0.0, 1.0]), 2, 5) == (0, 0.8)
    assert stage(np.array([0.0, 1.0, 2.0, 3.0, 4.0]), 2, 5) == (0, 1.6)
    assert stage(np.array([0.0, 1.0, *[0.0] * 5]), 2, 5) == (0, 0.4)
    assert stage(np.array([0.0, 1.0, *[0.0] * 4, 2.0, *[0.0] * 4]), 2, 5) == (0, 0.8)
    shrunk = np.array([0.0, 1.0, *[0.0] * 35])
    assert stage(shrunk, 2, 5) == Stage(37, 0.8)  # begun anew
    assert stage(np.array([*shrunk, -3.0, -3.0, -2.0, -1.0, -0.5]), 2, 5) == Stage(37, 1.6)  # by its own best


def region(optimizer: BayesianOptimizer) -> tuple[np.ndarray, np.ndarray]:
    known, (_, fitted) = optimizer._observations(), optimizer.fitted()
    return suggestion._region(optimizer._method, known, fitted.warps)


def test_a_trust_region_is_around_the_best_feasible_point() -> None:
    optimizer = quick(search=replace(QUICK, trust_region=True))
    for trial, value in zip(optimizer.ask(2), (3.0, 2.0), strict=True):
        optimizer.tell(trial, value)
    low, high = region(optimizer)
    center = optimizer.space.point(optimizer.best[0]).unit
    np.testing.assert_allclose([low, high], np.clip([center - 0.4, center + 0.4], 0, 1))
    point = optimizer.space.point(optimizer.ask().x).unit
    assert np.all((low - 1e-9 <= point) & (point <= high + 1e-9))
    named = quick({"a": Real(0, 1), "b": Real(0, 1)}, search=replace(QUICK, trust_region=True), outcome_constraints=1)
    for a, b, outcome in ((0.1, 0.1, 0.5), (0.6, 0.6, -0.1), (0.9, 0.9, -0.2)):
        named.tell({"a": a, "b": b}, a + b, outcomes=outcome)
    np.testing.assert_allclose(region(named), [[0.2, 0.2], [1.0, 1.0]])


def test_a_trust_region_that_has_shrunk_begins_anew_all_over_the_space() -> None:
    optimizer = quick(SQUARE, search=replace(QUICK, trust_region=True), initial=4)
    for x in np.random.default_rng(0).random((4, 2)):
        optimizer.tell(list(x), float(np.sum(x)))
    for x in np.random.default_rng(1).random((28, 2)) * 0.01 + 0.4:  # seven halvings
        optimizer.tell(list(x), 5.0)
    anew = [optimizer.tell(optimizer.ask(), 3.0 + i) for i in range(4)]
    assert np.ptp([trial.x for trial in anew], axis=0).min() > 0.4
    after = optimizer.ask()
    assert np.all(np.abs(after.x - anew[0].x) <= 0.4)  # around the best of these, not of all


# Files


CHOICES = ((32, 32), (64,), ((1, (2.5, None)), "x"), np.float32(0.1), np.int64(7), np.str_("name"), True, None, "a")


def test_every_kind_of_choice_comes_back(tmp_path: Any) -> None:
    optimizer = quick([Categorical(CHOICES), Integer(0, 3), (0, 1)])
    for i, trial in enumerate(optimizer.ask(6)):
        optimizer.tell(trial, float(i))
    for choice in CHOICES:
        optimizer.tell([choice, np.int32(2), np.float32(0.5)], 1.0)
    optimizer.save(tmp_path / "study")
    loaded = BayesianOptimizer.load(tmp_path / "study")
    found = loaded.space.dimensions[0].choices  # pyright: ignore[reportAttributeAccessIssue]
    assert found == CHOICES and list(map(type, found)) == list(map(type, CHOICES))
    assert [trial.x for trial in loaded.trials] == [trial.x for trial in optimizer.trials]
    assert [type(value) for value in loaded.trials[6].x[1:]] == [int, float]
    assert loaded.ask().x == optimizer.ask().x


def test_objects_are_searched_but_not_saved(tmp_path: Any) -> None:
    quick().save(tmp_path / "study")
    before = (tmp_path / "study").read_bytes()
    for choice in (math.sin, b"bytes", 1j, {1: 2}.keys, (1, math.sin)):
        optimizer = quick([Categorical((choice, "other"))])
        assert len(optimizer.ask(2)) == 2
        with pytest.raises(TypeError, match=r"a study cannot hold .*: use a name for it, and look the name up"):
            optimizer.save(tmp_path / "study")
    with pytest.raises(TypeError, match="only a surrogate and an acquisition given by name can be saved"):
        quick(acquisition=policies.ucb(1.0)).save(tmp_path / "study")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [before]


def test_options_of_the_surrogate_come_back(tmp_path: Any) -> None:
    options = {"features": [8, np.int64(8)], "rank": 5, "noise_variance": np.float32(1e-3)}
    optimizer = quick(surrogate="hilofi_mlp", surrogate_options=options)
    optimizer.save(tmp_path / "study")
    assert BayesianOptimizer.load(tmp_path / "study").settings.surrogate_options == {**options, "features": (8, 8)}


def test_any_flipped_or_missing_byte_of_a_study_is_refused(tmp_path: Any) -> None:
    file, rng = tmp_path / "study", random.Random(0)
    searched(quick(), BRANIN, 3).save(file)
    whole = file.read_bytes()
    for place in range(0, len(whole), 37):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << rng.randrange(8)
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged"):
            BayesianOptimizer.load(file)
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"study is damaged .*; restore it"):
            BayesianOptimizer.load(file)


# Points outside of the bounds


MIXED = {
    "rate": Real(1e-3, 1e-1, log=True),
    "kind": Categorical(("a", "b")),
    "layers": Integer(2, 5),
    "skip": Conditional(Integer(1, 3, log=True), "layers", (4, 5)),
}


def bowl(x: Any) -> float:
    """The minimum over the square is .04, at (.3, 1); beyond it there are smaller values."""
    return float((x[0] - 0.3) ** 2 + (x[1] - 1.2) ** 2)


def earlier(count: int = 24) -> tuple[np.ndarray, list[float]]:
    points = np.random.default_rng(1).uniform(-0.5, 1.8, (count, 2))
    points = points[(points > 1).any(1) | (points < 0).any(1)]
    return points, [bowl(x) for x in points]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"surrogate": "hilofi"},
        {"search": replace(QUICK, trust_region=True)},
        {"constraints": [lambda x: x[0] < 0.9]},
    ],
)
@pytest.mark.sampled(4)
def test_values_outside_inform_the_search_and_are_not_in_its_result(options: dict[str, Any]) -> None:
    points, values = earlier()
    study = quick(SQUARE, **options)
    for x, value in zip(points, values, strict=True):
        study.tell(x, value, outside=True)
    found, told = searched(study, bowl, 3).evaluations()
    assert all(0 <= number <= 1 for x in found for number in x)
    assert study.best[1] == min(told) < 0.06  # the first of the three calls is of the initial design
    assert min(values) < min(told)
    states = study.trials_dataframe()["state"].tolist()
    assert states == ["outside"] * len(points) + ["complete"] * 3
    assert f"3 complete, {len(points)} outside" in repr(study)
    study.plot()


def test_several_objectives_and_outcomes_have_no_front_outside() -> None:
    study = quick(SQUARE, objectives=2, outcome_constraints=1)
    for x in earlier()[0]:
        study.tell(x, (-1.0, -bowl(x)), outcomes=[-1.0], outside=True)
    assert not study.is_feasible and len(study.feasibility()) == 0
    with pytest.raises(ValueError, match="no trial is complete yet"):
        study.front()
    for _ in range(3):
        trial = study.ask()
        study.tell(trial, (float(trial.x[0]), bowl(trial.x)), outcomes=[float(trial.x[1] - 2)])
    assert 1 <= len(study.front().x) <= 3 and all((x >= 0).all() and (x <= 1).all() for x in study.front().x)


def test_a_belief_knows_what_lies_beyond_the_border() -> None:
    plain, informed = (quick(SQUARE) for _ in range(2))
    for study in (plain, informed):
        for x in ([0.1, 0.2], [0.8, 0.4], [0.4, 0.6]):
            study.tell(x, bowl(x))
    points, values = earlier()
    for x, value in zip(points, values, strict=True):
        informed.tell(x, value, outside=True)
    border = [0.6, 1.0]
    low, high = informed.predict(border)[1:]
    assert high - low < 0.3 * np.subtract(*plain.predict(border)[:0:-1]) and low - 0.01 < bowl(border) < high + 0.01
    assert informed.recommend().x.tolist() == [0.4, 0.6]


def test_names_logarithms_conditions_and_constraints(tmp_path: Any) -> None:
    rule = Linear({"layers": 1.0}, high=4.0)
    study = quick(MIXED, constraints=[rule])
    inside = {"rate": 0.01, "kind": "a", "layers": 3}
    told = [
        {**inside, "rate": 1.0},
        {**inside, "layers": 6},  # beyond the values of which skip is active
        {**inside, "layers": 5, "skip": 2},  # violates the rule
        {**inside, "rate": 2e-4, "layers": 4, "skip": 4},
    ]
    for number, x in enumerate(told):
        assert study.tell(x, float(number), outside=True) == Trial(number, x)
    study.tell(inside, 5.0, outside=True)
    study.tell({**inside, "rate": 0.5}, math.nan, outside=True)
    assert study.trials_dataframe()["state"].tolist() == ["outside"] * 4 + ["complete", "failed"]
    assert study.best == (inside, 5.0)
    study.save(tmp_path / "study")
    loaded = BayesianOptimizer.load(tmp_path / "study")
    assert loaded.trials == study.trials and loaded.best == study.best
    for _ in range(4):
        asked = study.ask()
        assert asked == loaded.ask() and study.space.point(asked.x).inside


def test_a_search_with_values_outside_goes_on_from_its_file(tmp_path: Any) -> None:
    study = quick(SQUARE)
    for x, value in zip(*earlier(), strict=True):
        study.tell(x, value, outside=True)
    study.save(tmp_path / "study")
    ways = (searched(one, bowl, 4).evaluations()[1] for one in (study, BayesianOptimizer.load(tmp_path / "study")))
    assert np.array_equal(*ways)


@pytest.mark.parametrize(
    ("x", "outside", "error", "message"),
    [
        (
            [1.5, 0],
            False,
            ValueError,
            r"x\[0\] = 1.5 lies outside the bounds \[0.0, 1.0\]: .*tell.*outside=True",
        ),
        ([0.5, 0.95], False, ValueError, "violates the constraint .*:.*tell.*outside=True.* accepts it"),
        (
            [2.1, 0],
            True,
            ValueError,
            r"x\[0\] = 2.1 lies outside .*, by more than their range: leave it",
        ),
        ([math.nan, 0], True, ValueError, "lies outside the bounds"),
        (["a", 0], True, TypeError, r"x\[0\] must be a number; got 'a'"),
        ([1.5, 0], "yes", TypeError, "outside must be True or False; got 'yes'"),
    ],
)
def test_what_cannot_inform_is_refused(x: Any, outside: Any, error: type, message: str) -> None:
    study = quick(SQUARE, constraints=[Linear({0: 1.0, 1: 1.0}, high=1.4)])
    with pytest.raises(error, match=message):
        study.tell(x, 1.0, outside=outside)
    assert not study.trials


def test_choices_have_no_outside_and_points_to_evaluate_are_inside() -> None:
    study = quick(MIXED)
    with pytest.raises(ValueError, match=r"x\['kind'\] = 'c' is not one of \('a', 'b'\)"):
        study.tell({"rate": 0.01, "kind": "c", "layers": 3}, 1.0, outside=True)
    with pytest.raises(ValueError, match=r"x\['rate'\] = -1.0 lies outside"):
        study.tell({"rate": -1.0, "kind": "a", "layers": 3}, 1.0, outside=True)
    with pytest.raises(ValueError, match=r"x\[0\] = 1.5 lies outside the bounds \[0.0, 1.0\]$"):
        minimum(bowl, SQUARE, x0=[[1.5, 0.0]])


# Refusals


def test_a_value_is_a_number() -> None:
    optimizer = quick()
    trial = optimizer.ask()
    for value in ("3.5", 1j, [1.0, 2.0], [], {}):
        with pytest.raises(TypeError, match="value must be a number; got"):
            optimizer.tell(trial, value)
        with pytest.raises(TypeError, match=r"x\[0\] must be a number; got"):
            optimizer.propose([value, 1.0])
    for good in (np.float32(2), jnp.float32(2), np.array([2.0]), jnp.bfloat16(2), Fraction(2), True):
        optimizer.tell(jnp.zeros(2), good)
    assert optimizer.trials_dataframe()["state"].tolist() == ["pending", *["complete"] * 6]


def of(surrogate: str, **options: Any) -> dict[str, Any]:
    return {"surrogate": surrogate, "surrogate_options": options}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"seed": -1}, ValueError, r"seed must be an integer from 0 to 2\*\*63 - 1; got -1"),
        ({"seed": 0.5}, TypeError, r"seed must be an integer from 0 to 2\*\*63 - 1; got 0.5"),
        ({"capacity": 0}, ValueError, "capacity must be at least 1"),
        ({"surrogate": "hilofy"}, ValueError, "unknown surrogate 'hilofy': did you mean 'hilofi'"),
        ({"surrogate": "autp"}, ValueError, "unknown surrogate 'autp': did you mean 'auto'"),
        ({"surrogate": 3}, TypeError, "surrogate must be a name"),
        ({"search": Search(trust_region=1)}, TypeError, "trust_region must be True or False; got 1"),
        ({"responses": "warp"}, ValueError, "responses"),
        ({"prior": {"optimum": {}}}, TypeError, r"prior must be a seqdec.bo.Prior; got \{'optimum"),
        ({"search": Search(grid="yes")}, TypeError, "grid must be True or False; got 'yes'"),  # pyright: ignore
        ({"search": Search(repeats=1)}, TypeError, "repeats must be True or False; got 1"),
        ({"search": Search(raw_samples=100)}, ValueError, "raw_samples must be a power of two; got 100"),
        ({"search": Search(raw_samples=8)}, ValueError, "num_restarts must be"),
        (of("hilofi", rank=0), ValueError, "rank must be at least 1; got 0"),
        (of("hilofi", units=33), ValueError, "units must be even.*; got 33"),
        (of("sparse_gp", points=1), ValueError, "points must be at least 2; got 1"),
        (of("hilofi_mlp", scale=0), ValueError, r"scale must lie in \(0, inf\); got 0"),
        (of("hilofi_mlp", scale="2"), TypeError, "scale must hold real numbers; got '2'"),
        (of("hilofi_mlp", growth=math.nan), ValueError, "growth must be at least 1"),
        (of("hilofi_mlp", features=(0,)), ValueError, r"features\[0\] must be at least"),
        (of("hilofi_mlp", noise_variance=-1.0), ValueError, "noise_variance must be"),
        (of("hilofi_mlp", initial_std_last=math.nan), ValueError, "initial_std_last"),
        (of("gp", draws=-5), ValueError, "draws must be at least 1"),
        (of("gp", draws={}), TypeError, "option draws must be a number"),
        (of("auto", draws=2), TypeError, "surrogate_options need a surrogate by name"),
        ({"acquisition": "thomson"}, ValueError, "unknown acquisition 'thomson': did you mean 'thompson'"),
        ({"acquisition": 3}, TypeError, "acquisition must be a name"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        BayesianOptimizer(BOX, **{"seed": 0, **options})
