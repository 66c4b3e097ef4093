"""The Optuna sampler: Optuna's own tests of samplers, and how it follows the trials of a study."""

import functools
import math
import pickle
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqdec.bo import BayesianOptimizer, Search, space_from
from seqdec.bo.space.space import identity

optuna = pytest.importorskip("optuna", reason="Optuna is not installed")

from optuna.distributions import (  # noqa: E402
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.testing import pytest_samplers  # noqa: E402
from optuna.trial import TrialState, create_trial  # noqa: E402

from seqdec.integrations.optuna import Sampler  # noqa: E402

optuna.logging.set_verbosity(optuna.logging.WARNING)
ROOT = Path(__file__).parents[1]
SMALL = Search(raw_samples=16, num_restarts=2, steps=2)
OPTIONS: dict[str, Any] = {"capacity": 32, "search": SMALL, "surrogate": "gp", "surrogate_options": {"draws": 1}}
small = functools.partial(Sampler, **OPTIONS)
MODULE: Any = sys.modules[Sampler.__module__]
UNIT = FloatDistribution(0.0, 1.0)


@pytest.mark.slow
class TestBasic(pytest_samplers.BasicSamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], Sampler]:
        return functools.partial(small, n_startup_trials=0)


@pytest.mark.slow
class TestRelative(pytest_samplers.RelativeSamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], Sampler]:
        return functools.partial(small, n_startup_trials=0)


@pytest.mark.slow
class TestMultiObjective(pytest_samplers.MultiObjectiveSamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], Sampler]:
        return functools.partial(small, n_startup_trials=0)


def told(sampler: Sampler, *names: str) -> list[tuple[str, float]]:
    """(state, value) of the trials of the optimizer of some parameters."""
    (model,) = [model for (_, found), model in sampler._models.items() if found == names]
    table = model._optimizer.trials_dataframe()
    return list(zip(table["state"], table["value"], strict=True))


def question(sampler: Any, study: Any) -> dict[str, Any]:
    """The parameters that a sampler chooses for a new trial."""
    trial = study.ask()._cached_frozen_trial
    return sampler.sample_relative(study, trial, sampler.infer_relative_search_space(study, trial))


def add(study: Any, value: float | None, state: Any = TrialState.COMPLETE, **params: float) -> None:
    distributions = dict.fromkeys(params, UNIT)
    study.add_trial(create_trial(value=value, params=params, distributions=distributions, state=state))


def mixed(trial: Any) -> float:
    a, b = trial.suggest_float("a", 1, 9), trial.suggest_float("b", 1, 9, log=True)
    c, d = trial.suggest_float("c", 1, 9, step=1), trial.suggest_int("d", 1, 9)
    e, f = trial.suggest_int("e", 1, 9, log=True), trial.suggest_int("f", 1, 9, step=2)
    return a + b + c + d + e + f + trial.suggest_categorical("g", [1, 2])


def points(seed: int = 0, direction: str = "minimize", sign: int = 1) -> list[dict[str, Any]]:
    """The parameters of the trials of a study whose last ones are modeled."""
    study = optuna.create_study(sampler=small(seed=seed, n_startup_trials=3), direction=direction)
    study.optimize(lambda trial: sign * mixed(trial), n_trials=6)
    return [trial.params for trial in study.trials]


@pytest.mark.slow
def test_a_question_is_that_of_an_optimizer_with_the_same_trials() -> None:
    sampler = small(seed=3, n_startup_trials=2)
    study = optuna.create_study(sampler=sampler)
    optimizer = BayesianOptimizer(
        [(0.0, 1.0)] * 2,
        seed=3,
        initial=2,
        capacity=32,
        search=SMALL,
        surrogate="gp",
        surrogate_options={"draws": 1},
    )
    for x, y in ((0.1, 0.5), (0.8, 0.2), (0.4, 0.9)):
        add(study, (x - 0.3) ** 2 + y, x=x, y=y)
        optimizer.tell([x, y], (x - 0.3) ** 2 + y)
    for _ in range(3):  # the earlier ones are pending: the trial runs, without parameters yet
        x, y = optimizer.ask().x
        assert question(sampler, study) == {"x": x, "y": y}
    assert [state for state, _ in told(sampler, "x", "y")] == ["complete"] * 3 + ["pending"] * 3


def test_what_is_told_of_each_state() -> None:
    study = optuna.create_study(sampler=small(seed=0, n_startup_trials=19))
    add(study, 2.0, x=0.1)
    add(study, math.inf, x=0.2)
    add(study, None, TrialState.FAIL, x=0.3)
    add(study, None, TrialState.FAIL)
    add(study, None, TrialState.PRUNED, x=0.4)
    for value in (5.0, math.nan):
        values = {0: 7.0, 3: value}
        study.add_trial(
            create_trial(
                state=TrialState.PRUNED, params={"x": 0.5}, distributions={"x": UNIT}, intermediate_values=values
            )
        )
    study.ask({"x": UNIT})  # it runs
    study.enqueue_trial({"x": 0.7})  # it waits
    sampler = small(seed=0, n_startup_trials=19)  # which knows the study from its storage only
    trial = create_trial(value=0.0)  # not asked, so that the queue stays as it is
    trial.number = 100
    sampler.sample_relative(study, trial, {"x": UNIT})
    states = ["complete", "failed", "failed", "failed", "complete", "failed"]
    assert [state for state, _ in told(sampler, "x")] == [*states, "pending", "pending"]
    np.testing.assert_array_equal([value for state, value in told(sampler, "x") if state == "complete"], [2, 5])


def test_constraints_of_both_kinds_are_outcomes() -> None:
    sampler = small(seed=0, n_startup_trials=19)
    study = optuna.create_study(sampler=sampler)
    for stored in (
        {"constraints": [-1.0, 0.5], "constraints:c": 0.5},
        {"constraints": [0.0, -1.0], "constraints:c": 0.0},
        {"constraints": [0.0, -1.0]},  # without one of them
        {"constraints": [0.0, math.inf], "constraints:c": 0.0},
    ):
        study.add_trial(create_trial(value=1.0, params={"x": 0.6}, distributions={"x": UNIT}, system_attrs=stored))
    question(sampler, study)
    (model,) = sampler._models.values()
    table = model._optimizer.trials_dataframe()
    assert table["state"].tolist()[:4] == ["complete", "complete", "failed", "failed"]
    assert table["feasible"].tolist()[:4] == [False, True, False, False]
    assert table[["outcome_0", "outcome_1", "outcome_2"]].iloc[0].tolist() == [-1.0, 0.5, 0.5]


@pytest.mark.slow
def test_a_question_of_several_directions_with_constraints_is_that_of_an_optimizer() -> None:
    sampler = small(seed=3, n_startup_trials=2, reference_point=(1.5, -0.5))
    study = optuna.create_study(sampler=sampler, directions=["minimize", "maximize"])
    optimizer = BayesianOptimizer(
        [(0.0, 1.0)] * 2,
        objectives=2,
        outcome_constraints=1,
        maximize=[False, True],
        reference_point=(1.5, -0.5),
        seed=3,
        initial=2,
        capacity=32,
        search=SMALL,
        surrogate="gp",
        surrogate_options={"draws": 1},
    )
    for x, y in ((0.1, 0.5), (0.8, 0.2), (0.4, 0.9), (0.6, 0.6)):
        values, outcome = [(x - 0.3) ** 2 + y, x * y], y - 0.7
        study.add_trial(
            create_trial(
                values=values,
                params={"x": x, "y": y},
                distributions={"x": UNIT, "y": UNIT},
                system_attrs={"constraints": [outcome]},
            )
        )
        optimizer.tell([x, y], values, outcomes=outcome)
    for _ in range(2):
        x, y = optimizer.ask().x
        assert question(sampler, study) == {"x": x, "y": y}


@pytest.mark.slow
def test_a_study_with_a_constraint_keeps_to_it() -> None:
    sampler = Sampler(seed=0, capacity=32, search=SMALL)
    study = optuna.create_study(sampler=sampler)

    def objective(trial: Any) -> float:
        x, y = trial.suggest_float("x", 0, 1), trial.suggest_float("y", 0, 1)
        trial.set_constraint("product", 0.2 - x * y)
        return x + y

    study.optimize(objective, n_trials=20)
    feasible = [t for t in study.trials if t.params["x"] * t.params["y"] >= 0.2]
    assert min(trial.value for trial in feasible) < 1.02 * 2 * math.sqrt(0.2)


def test_an_optimizer_follows_its_study_and_is_made_anew_only_where_a_trial_is_not_what_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, model = [], MODULE._Model
    start = model._start
    monkeypatch.setattr(model, "_start", lambda self, **options: made.append(self) or start(self, **options))
    sampler = small(seed=0, n_startup_trials=20)
    study = optuna.create_study(sampler=sampler)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1) + trial.suggest_float("y", 0, 1), n_trials=8, catch=())
    assert len(made) == 1 and [state for state, _ in told(sampler, "x", "y")] == ["complete"] * 7 + ["pending"]
    study.enqueue_trial({"x": 0.25})  # y is that of a question whose x was another one
    study.optimize(lambda trial: trial.suggest_float("y", 0, 1) + trial.suggest_float("x", 0, 1), n_trials=2)
    assert len(made) == 2
    values = [trial.value for trial in study.trials]
    assert [value for state, value in told(sampler, "x", "y") if state == "complete"] == values[:9]
    other = optuna.create_study(sampler=sampler)
    add(other, 0.5, x=0.5, y=0.25)
    assert question(sampler, other).keys() == {"x", "y"}
    assert len(made) == 3 and [state for state, _ in told(sampler, "x", "y")] == ["complete", "pending"]


def test_a_failed_trial_without_its_parameters_is_no_longer_pending() -> None:
    sampler = small(seed=0, n_startup_trials=20)
    study = optuna.create_study(sampler=sampler)
    add(study, 1.0, x=0.5, y=0.5)

    def fail(trial: Any) -> float:
        trial.suggest_float("x", 0, 1)
        raise RuntimeError

    study.optimize(fail, n_trials=1, catch=RuntimeError)
    question(sampler, study)
    assert [state for state, _ in told(sampler, "x", "y")] == ["complete", "pending"]


@pytest.mark.parametrize(
    ("distribution", "values"),
    [
        (FloatDistribution(-1.5, 2.5), [-1.5, 0.1, 2.5]),
        (FloatDistribution(1e-7, 10.0, log=True), [1e-7, 1.0, 10.0]),
        (FloatDistribution(-10.2, 10.2, step=0.1), [-10.2, 0.1, 10.2]),
        (IntDistribution(-7, 3), list(range(-7, 4))),
        (IntDistribution(-7, 9, step=4), [-7, -3, 1, 5, 9]),
        (IntDistribution(1, 100, log=True), [1, 10, 100]),
        (CategoricalDistribution((None, math.nan, "a", 2, True)), [None, math.nan, "a", 2, True]),
    ],
)
def test_values_come_back_from_their_dimension(distribution: Any, values: list[Any]) -> None:
    space = space_from([MODULE._dimension(distribution)])
    for value in values:
        (inside,) = identity(space.point_at(space.point([MODULE._internal(distribution, value)]).unit).x)
        found = MODULE._external(distribution, inside)
        assert type(found) is type(value)
        is_close = isinstance(value, float) and math.isclose(found, value, rel_tol=1e-12, abs_tol=1e-12)
        assert is_close or found is value or found == value
        assert distribution._contains(distribution.to_internal_repr(found))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The distribution is specified by")  # a step that is wider than the range
def test_constants_have_their_value_and_are_no_dimension_of_the_model() -> None:
    def constants(trial: optuna.Trial) -> tuple[Any, ...]:
        return (
            trial.suggest_float("b", 2.0, 2.0),
            trial.suggest_float("c", 0.01, 0.01, log=True),
            trial.suggest_float("d", 0.3, 0.35, step=0.1),
            trial.suggest_int("e", 3, 3),
            trial.suggest_int("f", 4, 4, log=True),
            trial.suggest_categorical("g", ["only"]),
        )

    def objective(trial: optuna.Trial) -> float:
        assert constants(trial) == (2.0, 0.01, 0.3, 3, 4, "only")
        return trial.suggest_float("a", 0.0, 1.0)

    sampler = Sampler(seed=0, search=SMALL)
    study = optuna.create_study(sampler=sampler)
    study.optimize(objective, n_trials=5)
    (model,) = sampler._models.values()
    assert list(model.space) == ["a"] and len({trial.params["a"] for trial in study.trials}) == 5
    alone = optuna.create_study(sampler=Sampler(seed=0))
    alone.optimize(lambda trial: float(constants(trial)[0]), n_trials=3)
    assert [trial.value for trial in alone.trials] == [2.0] * 3


def test_equal_seeds_give_equal_trials_also_in_another_process() -> None:
    code = "from tests.test_optuna import points; print(points())"
    other = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    here = points()
    assert other.stdout.strip() == str(here)
    assert points(direction="maximize", sign=-1) == here
    assert points(seed=1)[1:] != here[1:]


def test_reseeding_changes_the_points() -> None:
    def run(reseed: bool) -> list[Any]:
        sampler = small(seed=0, n_startup_trials=9)
        if reseed:
            sampler.reseed_rng()
        study = optuna.create_study(sampler=sampler)
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=3)
        return [trial.params for trial in study.trials]

    assert run(False) == run(False)
    assert all(one != other for one, other in zip(run(True), run(False), strict=True))


def test_a_pickled_sampler_goes_on() -> None:
    sampler = small(seed=0, n_startup_trials=9)
    study = optuna.create_study(sampler=sampler)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=3)
    other = pickle.loads(pickle.dumps(sampler))
    assert question(other, study).keys() == {"x"}
    assert [state for state, _ in told(other, "x")][:3] == ["complete"] * 3


def test_parameters_of_a_branch_are_modeled_with_those_of_all_trials() -> None:
    study = optuna.create_study()
    add(study, 1.0, a=0.1, b=0.2)
    add(study, 2.0, a=0.2, b=0.3, c=0.1)
    add(study, 3.0, a=0.4, b=0.5, d=0.1)
    study.add_trial(
        create_trial(value=1.0, params={"a": 0.3, "b": 1.5}, distributions={"a": UNIT, "b": FloatDistribution(0, 2)})
    )
    sampler = small(seed=0, n_startup_trials=9)
    trial = study.ask()._cached_frozen_trial
    space = sampler.infer_relative_search_space(study, trial)
    assert list(space) == [*"abcd"] and space["b"] == FloatDistribution(0, 2)  # the range of the latest trial
    chosen = sampler.sample_relative(study, trial, space)
    assert chosen.keys() == space.keys()
    assert [names for _, names in sampler._models] == [tuple("ab"), tuple("abc"), tuple("abd")]
    assert told(sampler, *"abc")[0] == ("complete", 2.0) and told(sampler, *"abd")[0] == ("complete", 3.0)
    for names in ("abc", "abd"):
        (model,) = [model for (_, found), model in sampler._models.items() if found == tuple(names)]
        assert model._optimizer.trials[-1].x[0] == chosen["a"]


def modeled(sampler: Sampler, *names: str) -> list[float]:
    """The values of the complete trials of the optimizer of some parameters."""
    return [value for state, value in told(sampler, *names) if state == "complete"]


@pytest.mark.parametrize(
    ("old", "new", "values", "kept"),
    [
        (FloatDistribution(0, 10), FloatDistribution(0, 1), [0.5, 7.0, 1.0], [0, 2]),
        (FloatDistribution(0, 1), FloatDistribution(-5, 5), [0.5, 1.0], [0, 1]),
        (FloatDistribution(0, 4, step=0.5), FloatDistribution(0, 4, step=1.0), [0.5, 3.0], [1]),
        (FloatDistribution(0, 4), FloatDistribution(0, 4, step=1.0), [0.7, 3.0], [1]),
        (IntDistribution(0, 9), IntDistribution(0, 9, step=3), [3, 4, 9], [0, 2]),
        (IntDistribution(1, 90), IntDistribution(1, 9), [3, 40], [0]),
    ],
)
def test_a_range_that_changes_is_searched_on_the_trials_within(
    old: Any, new: Any, values: Any, kept: Any, caplog: pytest.LogCaptureFixture
) -> None:
    sampler = small(seed=0, n_startup_trials=19)
    study = optuna.create_study(sampler=sampler)
    asked: dict[str, Any] = {"p": new, "x": UNIT}
    for index, value in enumerate(values):
        params = {"p": value, "x": 0.5}
        study.add_trial(create_trial(value=index, params=params, distributions={"p": old, "x": UNIT}))
    first = study.ask(asked)
    study.tell(first, 10.0)
    assert not caplog.records
    trial = study.ask(asked)
    study.ask(asked)
    (record,) = caplog.records  # once
    assert record.name == "seqdec.integrations.optuna" and "the distribution of 'p' changes" in record.getMessage()
    assert trial.relative_params is not None
    assert trial.relative_params.keys() == {"p", "x"} and trial.params == trial.relative_params
    within = [10.0] if new._contains(new.to_internal_repr(first.params["p"])) else []
    assert modeled(sampler, "p", "x") == [*kept, *within]


@pytest.mark.parametrize(
    ("old", "new", "values", "kept"),
    [
        (FloatDistribution(1, 9), IntDistribution(1, 9), [2.5, 3.0], [1]),
        (IntDistribution(1, 9), FloatDistribution(2, 9), [1, 3], [1]),
        (FloatDistribution(0, 9), FloatDistribution(1, 9, log=True), [0.0, 3.0], [1]),
        (CategoricalDistribution(("a", "b")), CategoricalDistribution(("b", "c", 1)), ["a", "b"], [1]),
        (CategoricalDistribution(("a", 3)), FloatDistribution(0, 9), ["a", 3], [1]),
    ],
)
def test_a_kind_that_changes_is_searched_once_it_was_drawn(old: Any, new: Any, values: Any, kept: Any) -> None:
    sampler = small(seed=0, n_startup_trials=19)
    study = optuna.create_study(sampler=sampler)
    study.tell(study.ask({"x": UNIT}), 20.0)
    study.tell(study.ask({"p": new}), 10.0)
    for index, value in enumerate(values):
        study.add_trial(create_trial(value=index, params={"p": value}, distributions={"p": old}))
    assert study.ask({"p": new}).relative_params.keys() == {"x", "p"}
    assert modeled(sampler, "p") == [10.0, *kept]
    pickled = pickle.loads(pickle.dumps(sampler))
    assert pickled.infer_relative_search_space(study, study.trials[-1]).keys() == {"x"}


@pytest.mark.parametrize("name", ["float", "stepped", "int", "logarithmic"])
def test_a_value_outside_is_not_modeled_and_the_study_goes_on(name: str) -> None:
    suggest: dict[str, Callable[[Any], float]] = {
        "float": lambda trial: trial.suggest_float("a", 0.0, 1.0),
        "stepped": lambda trial: trial.suggest_float("a", 0.0, 1.0, step=0.25),
        "int": lambda trial: trial.suggest_int("a", 0, 4),
        "logarithmic": lambda trial: trial.suggest_int("a", 1, 4, log=True),
    }
    sampler = small(seed=0, n_startup_trials=19)
    study = optuna.create_study(sampler=sampler)

    def objective(trial: Any) -> float:
        return suggest[name](trial) + trial.suggest_float("b", 0.0, 1.0)

    def enqueued(value: float) -> None:
        study.enqueue_trial({"a": value})
        with pytest.warns(UserWarning, match="out of range"):
            study.optimize(objective, n_trials=1)

    enqueued(5)
    study.optimize(objective, n_trials=2)
    enqueued(7)
    study.optimize(objective, n_trials=2)
    values = [trial.value for trial in study.trials]
    assert len(values) == 6 and modeled(sampler, "a", "b") == [*values[1:3], values[4]]


@pytest.mark.slow
def test_points_of_a_finite_space_are_repeated_after_all_of_them() -> None:
    study = optuna.create_study(sampler=small(seed=0, n_startup_trials=0))
    study.optimize(lambda trial: trial.suggest_int("value", 0, 3) % 2, n_trials=9)
    values = [trial.params["value"] for trial in study.trials]
    assert sorted(values[:4]) == [0, 1, 2, 3] and {*values[4:]} <= {0, 1, 2, 3}
    failing = optuna.create_study(sampler=small(seed=0))
    add(failing, None, TrialState.FAIL, x=0.5)
    failing.optimize(lambda trial: trial.suggest_int("x", 0, 1) and math.nan, n_trials=9)
    assert {trial.params["x"] for trial in failing.trials[1:]} == {0, 1}


@pytest.mark.parametrize("pruner", [optuna.pruners.MedianPruner(2, 0), optuna.pruners.HyperbandPruner(1, 4, 2)])
def test_a_study_with_a_pruner_ends(pruner: Any) -> None:
    def objective(trial: Any) -> float:
        x = trial.suggest_float("x", -1, 1)
        for step in range(4):
            trial.report(x**2 + 1 / (1 + step), step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return x**2

    study = optuna.create_study(sampler=small(seed=0, n_startup_trials=9), pruner=pruner)
    study.optimize(objective, n_trials=20)
    states = {trial.state for trial in study.trials}
    assert states == {TrialState.COMPLETE, TrialState.PRUNED}


def test_constraints_are_stored() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        sampler = small(seed=0, n_startup_trials=9, constraints_func=lambda trial: (trial.params["x"] - 0.5,))
    study = optuna.create_study(sampler=sampler)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=6)
    xs = [trial.params["x"] for trial in study.trials]
    assert [trial.system_attrs["constraints"] for trial in study.trials] == [(x - 0.5,) for x in xs]
    question(sampler, study)
    (model,) = sampler._models.values()
    assert model._optimizer.trials_dataframe()["outcome_0"].tolist()[:6] == [x - 0.5 for x in xs]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="surrogate"):
        Sampler(surrogate="hilofy")
    with pytest.raises(TypeError, match="acquisitions"):
        Sampler(acquisitions="ucb")
    with pytest.raises(TypeError, match="maximize"):
        Sampler(maximize=True)
    with pytest.raises(ValueError, match="n_startup_trials must be at least 0; got -1"):
        Sampler(n_startup_trials=-1)
    study = optuna.create_study(directions=["minimize"] * 2, sampler=small(seed=0, acquisition="ucb"))
    study.add_trial(create_trial(values=[1.0, 2.0], params={"x": 0.1}, distributions={"x": UNIT}))
    with pytest.raises(ValueError, match="with several objectives acquisition must be 'auto'"):
        study.ask().suggest_float("x", 0, 1)
    with pytest.raises(TypeError, match="objectives"):
        Sampler(objectives=2)


def slow_bowl(trial: Any) -> float:
    x, y = trial.suggest_float("x", -1, 1), trial.suggest_int("y", -5, 5)
    time.sleep(0.05)
    return x**2 + y**2


def work(url: str, seed: int) -> None:
    """Take part in a study until it says so; prints the number of each trial that this process completed."""
    sampler = small(seed=seed)
    study = optuna.load_study(study_name="shared", storage=url, sampler=sampler)

    def report(study: Any, trial: Any) -> None:
        print(trial.number, flush=True)
        if "stop" in study.user_attrs:
            study.stop()

    study.optimize(slow_bowl, callbacks=[report])
    check(sampler, study)


def check(sampler: Sampler, study: Any) -> None:
    """The optimizer knows each trial once, with its value."""
    (model,) = sampler._models.values()
    values = {trial.number: tuple(trial.values or ()) for trial in study.get_trials()}
    complete = {number: record.values for number, record in model._records.items() if record.values is not None}
    assert complete == {number: values[number] for number in complete}
    states = [state for state, _ in told(sampler, *model.space)]
    assert states.count("complete") == len(complete) and len(states) == len(model._records)


@pytest.mark.slow
def test_processes_share_a_study_of_which_one_is_killed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    study = optuna.create_study(study_name="shared", storage=url)
    code = "from tests.test_optuna import work; work({!r}, {})"
    commands = [[sys.executable, "-c", code.format(url, seed)] for seed in range(4)]
    started = [subprocess.Popen(each, cwd=ROOT, stdout=subprocess.PIPE, text=True) for each in commands]

    def wait_for(count: int) -> None:
        while len(study.get_trials(states=(TrialState.COMPLETE,))) < count:
            assert not any(process.poll() for process in started[1:])
            time.sleep(0.05)

    victim = started[0]
    assert victim.stdout is not None
    first = victim.stdout.readline()
    wait_for(8)
    victim.kill()
    wait_for(len(study.trials) + 9)
    study.set_user_attr("stop", True)
    outputs = [process.communicate()[0].split() for process in started]
    assert [process.returncode for process in started] == [-signal.SIGKILL, 0, 0, 0]
    reported = [int(number) for output in (first.split(), *outputs) for number in output]
    trials = study.get_trials()
    complete = {trial.number for trial in trials if trial.state == TrialState.COMPLETE}
    assert [trial.number for trial in trials] == list(range(len(trials)))
    assert len(reported) == len({*reported}) and {*reported} <= complete
    unreported = complete - {*reported}  # that of the killed process, if it was killed before it could print the number
    left = {trial.number for trial in trials} - complete
    assert len(unreported | left) <= 1
    sampler = small(seed=9)
    study.sampler = sampler
    study.optimize(slow_bowl, n_trials=3)
    check(sampler, study)
    assert len(study.get_trials(states=(TrialState.COMPLETE,))) == len(complete) + 3
