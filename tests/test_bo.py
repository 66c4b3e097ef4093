"""Bayesian optimization: spaces, surrogates against oracles, ask and tell, minimize."""

import functools
import math
import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special
from scipy.optimize import Bounds, OptimizeResult
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

import seqdec
from seqdec import filters, policies
from seqdec.bo import (
    BayesianOptimizer,
    Categorical,
    Exhausted,
    History,
    Integer,
    Real,
    Search,
    model,
    space_from,
    suggestion,
)
from seqdec.bo import gp as make_gp
from seqdec.bo import model as programs
from seqdec.bo.search.trust_region import Stage, stage
from seqdec.bo.surrogates import contract as surrogates
from seqdec.bo.surrogates import evidence, gaussian_process
from seqdec.bo.surrogates.filtered import over_mlp
from seqdec.envs import objectives
from seqdec.policies.improvement import log_h
from seqdec.registry import Registry
from seqdec.testing import check_surrogate
from tests.toys import optimizer_programs

BOX = [(-5.0, 10.0), (0.0, 15.0)]
QUICK = Search(raw_samples=64, num_restarts=4, steps=10)
BRANIN = objectives.branin()
MIXED = [Real(1e-4, 1.0, log=True), Integer(1, 4), Categorical(("relu", "elu", "tanh"))]


def quick(**options: Any) -> BayesianOptimizer:
    """An optimizer that shares its programs with the other tests'."""
    return BayesianOptimizer(BOX, **{"seed": 0, "capacity": 16, "search": QUICK, **options})


def minimum(fun: Any, bounds: Any = BOX, **options: Any) -> OptimizeResult:
    return seqdec.minimize(fun, bounds, **{"n_calls": 8, "seed": 0, "search": QUICK, "progress": False, **options})


# Spaces


@settings(deadline=None)
@given(st.floats(1e-4, 1.0), st.integers(1, 4), st.sampled_from(["relu", "elu", "tanh"]))
def test_points_survive_the_unit_cube(rate: float, layers: int, name: str) -> None:
    space = space_from(MIXED)
    unit = space.point([rate, layers, name]).unit
    assert unit.shape == (space.columns,) == (5,) and np.all((unit >= 0) & (unit <= 1))
    back = space.decode(unit)
    assert back[0] == pytest.approx(rate, rel=1e-9) and back[1:] == [layers, name]
    np.testing.assert_allclose(space.snap(unit), unit, atol=1e-6)


def test_a_logarithmic_scale_has_its_middle_at_the_geometric_mean() -> None:
    assert space_from([Real(1e-4, 1.0, log=True)]).decode(np.array([0.5])) == pytest.approx(1e-2)
    assert space_from([Real(0.0, 1.0)]).decode(np.array([0.5])) == pytest.approx(0.5)


@pytest.mark.parametrize("log", [False, True])
def test_snap_goes_to_integers_and_every_integer_is_reached(log: bool) -> None:
    space = space_from([Integer(1, 4, log=log)])
    units = np.linspace(0, 1, 401)[:, None]
    snapped = np.asarray(space.snap(jnp.asarray(units, jnp.float32)))
    values = [space.decode(unit)[0] for unit in units]
    assert {space.decode(unit)[0] for unit in snapped} == {1, 2, 3, 4} == set(values)
    np.testing.assert_allclose(snapped[:, 0], [space.point([v]).unit[0] for v in values], atol=1e-6)
    if not log:
        assert np.bincount(values)[1:].min() >= 99  # each owns a quarter


def test_a_choice_is_one_hot() -> None:
    space = space_from([Categorical(("a", "b", "c"))])
    np.testing.assert_array_equal(space.snap(jnp.array([0.2, 0.7, 0.6])), [0, 1, 0])
    assert space.point(["c"]).unit.tolist() == [0, 0, 1] and space.size == 3 and len(list(space.points())) == 3


@pytest.mark.parametrize(
    ("bounds", "dimensions"),
    [
        (Bounds([0, 1], [2, 3]), (Real(0, 2), Real(1, 3))),
        (np.array([[0, 2], [1, 3]]), (Real(0, 2), Real(1, 3))),
        (gymnasium.spaces.Box(-1, 1, (2,)), (Real(-1, 1), Real(-1, 1))),
        (gymnasium.spaces.Box(0, 5, (1,), np.int64), (Integer(0, 5),)),
        (gymnasium.spaces.Discrete(3, start=2), (Integer(2, 4),)),
        (space_from(MIXED), tuple(MIXED)),
    ],
)
def test_what_counts_as_bounds(bounds: Any, dimensions: Any) -> None:
    assert space_from(bounds).dimensions == dimensions


@pytest.mark.parametrize(
    ("bounds", "error", "message"),
    [
        ([(0, 1), (2, 1)], ValueError, r"bounds\[1\] must have low <= high; got \(2.0, 1.0\): exchange them"),
        ([(0, math.inf)], ValueError, r"bounds\[0\] must be finite; got \(0.0, inf\)"),
        ([(math.nan, 1)], ValueError, r"bounds\[0\] must be finite"),
        (gymnasium.spaces.Box(-np.inf, np.inf, (1,)), ValueError, "must be finite"),
        ([Real(1, 2, log="no")], TypeError, r"log of bounds\[0\] must be True or False; got 'no'"),  # pyright: ignore
        ([Real(0, 1, log=True)], ValueError, r"bounds\[0\] must be positive for a logarithmic scale"),
        ([Integer(0.5, 2)], ValueError, "must be whole numbers"),  # pyright: ignore[reportArgumentType]
        ([Categorical(())], ValueError, "must have choices, all of them different"),
        ([Categorical(("a", "a"))], ValueError, "must have choices, all of them different"),
        ([(0, 1, 2)], TypeError, r"bounds\[0\] must be a pair"),
        ([("a", "b")], TypeError, r"bounds\[0\] must be numbers"),
        ([("3", "5")], TypeError, r"bounds\[0\] must be numbers; got '3' and '5'"),
        ([(-1e308, 1e308)], ValueError, r"bounds\[0\] span more than a float can hold"),
        ([Real(1e-300, 1e300, log=True)], ValueError, r"bounds\[0\] span more than a float can hold"),
        ([(0, 10**400)], ValueError, r"bounds\[0\] must be a number that a float can hold"),
        ([Integer(0, 2**60)], ValueError, r"bounds\[0\] of an Integer must lie within"),
        ([Categorical("relu")], TypeError, "choices of a Categorical must be a tuple or list; got 'relu'"),  # pyright: ignore
        ([Categorical({1, 2})], TypeError, "choices of a Categorical must be a tuple or list"),  # pyright: ignore
        ([Categorical(([1], [2]))], TypeError, r"bounds\[0\]: a choice must be hashable; got \[1\]: write a list as"),
        ([Categorical(((1, [2]), 3))], TypeError, r"bounds\[0\]: a choice must be hashable"),
        ([Categorical((np.zeros(2), 3))], TypeError, r"bounds\[0\]: a choice must be hashable"),
        ([], ValueError, "at least one dimension"),
        (3, TypeError, "bounds must be a sequence"),
        ("ab", TypeError, "bounds must be a sequence"),
    ],
)
def test_bad_bounds_are_refused(bounds: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        space_from(bounds)


# Expected improvement

value_and_slope = jax.jit(jax.value_and_grad(log_h))


@pytest.mark.parametrize("z", [-300.0, -40.0, -10.001, -9.999, -3.0, -1.001, -0.999, 0.0, 2.0, 30.0])
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


# Surrogates

POINTS = np.random.default_rng(0).random((12, 2))
VALUES = np.sin(5 * POINTS[:, 0]) + POINTS[:, 1]


def history(count: int, length: int = 16, dtype: Any = float) -> History:
    """The first `count` points, padded with arbitrary numbers."""
    x, y = np.full((length, 2), 0.123), np.full(length, 1e3)
    x[:count], y[:count] = POINTS[:count], VALUES[:count]
    return History(x.astype(dtype), y.astype(dtype), np.int32(count))


def test_gaussian_process_against_scikit_learn() -> None:
    hyper, known = evidence.Hyperparameters(np.log([0.4, 0.9]), np.log(1.7), np.log(1e-3)), history(12)
    new = np.random.default_rng(1).random((7, 2))
    with jax.enable_x64(True):
        state = gaussian_process.condition(hyper, known)

        @jax.jit
        def predict(state: Any, new: Any) -> Any:
            return gaussian_process.posterior(state).joint(new), gaussian_process.posterior(state).mean(new)

        at, mean = predict(state, new)
    flat = evidence.flatten(hyper)
    likelihood = -evidence.negative_log_likelihood(flat, evidence.told(known))[0]
    kernel = ConstantKernel(1.0) + 1.7 * Matern([0.4, 0.9], nu=2.5) + WhiteKernel(1e-3 + 1e-8)
    oracle = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(POINTS, VALUES)
    expected, cov = oracle.predict(new, return_cov=True)
    np.testing.assert_allclose(at.mean, expected, rtol=1e-8)
    np.testing.assert_allclose(mean, expected, rtol=1e-8)
    np.testing.assert_allclose(at.cov + at.noise, cov, atol=1e-9)
    assert likelihood - 6 * math.log(2 * math.pi) == pytest.approx(oracle.log_marginal_likelihood_value_, rel=1e-8)


def test_gaussian_process_draws_have_the_posteriors_moments() -> None:
    hyper = evidence.Hyperparameters(np.log([0.4, 0.9]), np.log(1.7), np.log(1e-3))
    new, draws = np.random.default_rng(1).random((3, 2)), 400
    with jax.enable_x64(True):
        state = gaussian_process.condition(hyper, history(6))

        @jax.jit
        def draw(state: Any) -> Any:
            posterior = gaussian_process.posterior(state)
            keys = jax.random.split(jax.random.key(0), draws)
            return jax.vmap(lambda key: posterior.draw(key)(new))(keys), posterior.joint(new)

        samples, at = jax.device_get(draw(state))
    std = np.sqrt(np.diag(at.cov))
    assert np.all(np.abs(samples.mean(0) - at.mean) < 6 * std / math.sqrt(draws))
    spread = np.sqrt((np.outer(std, std) ** 2 + np.asarray(at.cov) ** 2) / draws)
    # beside Monte Carlo, 1,024 random features approximate the kernel to a few percent of the prior variance
    assert np.all(np.abs(np.cov(samples.T) - at.cov) < 6 * spread + 0.05)


@pytest.mark.parametrize("noise", [None, 0.02])
def test_the_gradient_of_the_likelihood_is_its_derivative(noise: float | None) -> None:
    known = history(12)._replace(noise=None if noise is None else np.where(np.arange(16) < 5, noise, -1.0))
    hyper = evidence.Hyperparameters(np.log([0.4, 0.9]), np.log(1.7), np.log(1e-2))

    def loss(hyper: Any) -> Any:
        estimated = jnp.exp(hyper.log_noise)
        variances = estimated if noise is None else jnp.where(jnp.arange(12) < 5, noise, estimated)
        cov = gaussian_process.kernel(hyper, POINTS, POINTS) + jnp.diag(variances * jnp.ones(12) + 1e-8)
        return 0.5 * VALUES @ jnp.linalg.solve(cov, VALUES) + 0.5 * jnp.linalg.slogdet(cov)[1]

    with jax.enable_x64(True):
        value, gradient = jax.value_and_grad(loss)(jax.tree.map(jnp.asarray, hyper))
    flat = evidence.flatten(hyper)
    found, slopes = evidence.negative_log_likelihood(flat, evidence.told(known))
    assert found == pytest.approx(float(value), rel=1e-9)
    np.testing.assert_allclose(slopes, evidence.flatten(gradient), rtol=1e-6, atol=1e-8)


def test_fitting_maximizes_the_posterior_of_the_hyperparameters() -> None:
    surrogate, known = make_gp(), history(12)

    def loss(hyper: Any) -> tuple[float, np.ndarray]:
        return evidence.loss(evidence.flatten(hyper), evidence.told(known))

    first = surrogate.init(jax.random.key(0), known)
    state = surrogate.fit(first, known)
    warm = surrogate.fit(state, known)
    begun, (fitted, slopes), again = loss(first.best.hyper)[0], loss(state.best.hyper), loss(warm.best.hyper)[0]
    assert fitted < begun - 1 and again <= fitted + 1e-9
    assert np.abs(slopes).max() < 0.5


def linear_regression(count: int, std: float, noise: float, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of Bayesian linear regression on [2 (2x - 1), 1], whose first weights are zero."""
    features = np.column_stack([2 * (2 * POINTS[:count] - 1), np.ones(count)])
    at = np.column_stack([2 * (2 * new - 1), np.ones(len(new))])
    cov = np.linalg.inv(features.T @ features / noise + np.eye(3) / std**2)
    return at @ cov @ features.T @ VALUES[:count] / noise, at @ cov @ at.T


def test_a_filter_over_a_linear_network_is_bayesian_regression() -> None:
    surrogate = over_mlp(functools.partial(filters.ekf, initial_std=0.7), 2, features=(), noise_variance=0.01)
    init, fit, extend = surrogate.init, surrogate.fit, surrogate.condition_on
    joint = jax.jit(lambda belief, new: surrogate.posterior(belief).joint(new))
    new = np.random.default_rng(1).random((5, 2))
    state = init(jax.random.key(0), history(0, dtype=jnp.float32))
    for count, renewed in ((5, True), (6, False), (12, False)):
        known = history(count, dtype=jnp.float32)
        extended = extend(state, known)
        state = fit(init(jax.random.key(0), known) if renewed else state, known)
        mean, cov = linear_regression(count, 0.7, 0.01, new)
        for belief in (state, extended):
            at = joint(belief, jnp.asarray(new, jnp.float32))
            np.testing.assert_allclose(at.mean, mean, atol=1e-3)
            np.testing.assert_allclose(at.cov, cov, atol=1e-4)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", surrogates.names())
def test_every_surrogate_learns_a_function(name: str) -> None:
    small: dict[str, dict[str, Any]] = {
        "hilofi": {"units": 64},
        "hilofi_mlp": {"features": (20, 20), "rank": 20},
        "last_layer_laplace": {"features": (20, 20)},
        "lofi": {"features": (20, 20), "rank": 20},
        "lolofi": {"features": (20, 20), "rank_hidden": 20, "rank_last": 21},
        "lrkf": {"features": (20, 20), "rank": 20},
        "on_vbll": {"features": (20, 20)},
        "vbll": {"features": (20, 20)},
    }
    check_surrogate(lambda dim: surrogates.make(name, dim, **small.get(name, {})))
    if name in surrogates.REGISTRY.own():
        assert getattr(seqdec.bo, name) is surrogates.REGISTRY[name]


def test_auto_chooses_by_what_has_been_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    assert [surrogates.choose(told) for told in (0, 1000, 1001)] == ["gp", "gp", "sparse_gp"]
    monkeypatch.setattr(surrogates, "_MOST_EXACT", 5)
    optimizer = quick(surrogate="auto")
    assert optimizer.surrogate == "gp" and "exact" in optimizer.reason
    for _ in range(5):
        optimizer.tell(trial := optimizer.ask(), BRANIN(trial.x))
    optimizer.ask()
    optimizer.tell([0.0, 0.0], BRANIN([0.0, 0.0]))
    assert optimizer.surrogate == "gp"
    optimizer.save(tmp_path / "before")
    prediction = optimizer.predict([1.0, 1.0])
    assert optimizer.surrogate == "sparse_gp" and "slow" in optimizer.reason
    loaded = BayesianOptimizer.load(tmp_path / "before")
    assert loaded.surrogate == "gp" and loaded.predict([1.0, 1.0]) == prediction
    asked = [one.ask().x.tolist() for one in (optimizer, loaded)]
    assert asked[0] == asked[1] and loaded.surrogate == "sparse_gp"
    optimizer.save(tmp_path / "after")
    again = BayesianOptimizer.load(tmp_path / "after")
    assert again.surrogate == "sparse_gp" and again.ask().x.tolist() == optimizer.ask().x.tolist()


# Ask and tell

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
    with pytest.raises(ValueError, match=r"x\[0\] = 11.0 lies outside the bounds \[-5.0, 10.0\]"):
        optimizer.tell([11.0, 0.0], 1.0)
    with pytest.raises(ValueError, match="a point has 2 values; got 1"):
        optimizer.tell([1.0], 1.0)
    assert len(optimizer.trials) == 1


def test_a_trial_is_told_once_and_by_its_own_optimizer() -> None:
    optimizer, other = quick(), quick(seed=1)
    trial = optimizer.ask()
    optimizer.tell(trial, 1.0)
    with pytest.raises(ValueError, match="trial 0 has been told before: it is complete"):
        optimizer.tell(trial, 1.0)
    with pytest.raises(ValueError, match="trial 0 was not asked from this optimizer"):
        optimizer.tell(other.ask(), 1.0)
    with pytest.raises(ValueError, match="trial 7 was not asked"):
        optimizer.tell(trial._replace(number=7), 1.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None])
def test_failures_never_reach_the_belief(value: float | None) -> None:
    optimizer = quick()
    failed = optimizer.ask()
    optimizer.tell(failed, value)
    for _ in range(4):
        trial = optimizer.ask()
        optimizer.tell(trial, BRANIN(trial.x))
    trials = optimizer.fitted()[1].trials
    assert (int(trials.answered), int(trials.pending), int(trials.failed)) == (4, 0, 1)
    assert np.isfinite(trials.y).all() and optimizer.trials_dataframe()["state"][0] == "failed"
    np.testing.assert_allclose(np.asarray(trials.x)[4], optimizer.space.point(failed.x).unit, rtol=1e-6)


def test_equal_seeds_give_equal_points_and_growth_compiles_nothing() -> None:
    runs = []
    for seed in (0, 0, 1):
        optimizer = quick(seed=seed)
        for i in range(12):
            trial = optimizer.ask()
            optimizer.tell(trial, BRANIN(trial.x))
            if i == 3:
                compiled = optimizer_programs()
        runs.append(np.array([trial.x for trial in optimizer.trials]))
        assert optimizer_programs() == compiled
    assert np.array_equal(runs[0], runs[1]) and not np.array_equal(runs[0], runs[2])


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

    mixed = BayesianOptimizer(MIXED, seed=0, search=QUICK)
    first, point = mixed.ask(), mixed.space.point([0.1, 2, "elu"])
    own = list(first.x)
    second = mixed.propose(point)
    point.x[1] = 3
    second.x[2] = mixed.trials[1].x[2] = "tanh"
    first.x[1] = 4 if first.x[1] == 1 else 1
    with pytest.raises(ValueError, match="trial 0 was not asked from this optimizer at"):
        mixed.tell(first, 1.0)
    assert [trial.x for trial in mixed.trials] == [own, [0.1, 2, "elu"]]
    mixed.tell(mixed.trials[0], 1.0)
    mixed.best[0][1] = mixed.evaluations()[0][0][1] = 7
    assert mixed.best[0] == own


def test_threads_share_an_optimizer() -> None:
    optimizer = quick()

    def work(_: int) -> None:
        for _ in range(5):
            trial = optimizer.ask()
            optimizer.tell(trial, BRANIN(trial.x))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
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


CHOICES = ((32, 32), (64,), ((1, (2.5, None)), "x"), np.float32(0.1), np.int64(7), np.str_("name"), True, None, "a")


def test_every_kind_of_choice_comes_back(tmp_path: Any) -> None:
    optimizer = BayesianOptimizer([Categorical(CHOICES), Integer(0, 3), (0, 1)], seed=0, search=QUICK)
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
        optimizer = BayesianOptimizer([Categorical((choice, "other"))], seed=0, search=QUICK)
        assert len(optimizer.ask(2)) == 2
        with pytest.raises(TypeError, match=r"a study cannot hold .*: use a name for it, and look the name up"):
            optimizer.save(tmp_path / "study")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [before]


def test_options_of_the_surrogate_come_back(tmp_path: Any) -> None:
    options = {"features": [8, np.int64(8)], "rank": 5, "noise_variance": np.float32(1e-3)}
    optimizer = quick(surrogate="hilofi_mlp", surrogate_options=options)
    optimizer.save(tmp_path / "study")
    assert BayesianOptimizer.load(tmp_path / "study").settings.surrogate_options == {**options, "features": (8, 8)}


def test_any_flipped_or_missing_byte_of_a_study_is_refused(tmp_path: Any) -> None:
    file, rng = tmp_path / "study", random.Random(0)
    optimizer = quick()
    for trial in optimizer.ask(3):
        optimizer.tell(trial, BRANIN(trial.x))
    optimizer.save(file)
    whole = file.read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << rng.randrange(8)
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged"):
            BayesianOptimizer.load(file)
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="damaged"):
            BayesianOptimizer.load(file)


@pytest.mark.parametrize("value", ["3.5", "text", 1j, [1.0, 2.0], [1.0, [2.0]], [], {}])
def test_a_value_is_a_number(value: Any) -> None:
    optimizer = quick()
    trial = optimizer.ask()
    with pytest.raises(TypeError, match="value must be a number; got"):
        optimizer.tell(trial, value)
    with pytest.raises(TypeError, match=r"x\[0\] must be a number; got"):
        optimizer.propose([value, 1.0])
    for good in (np.float32(2), jnp.float32(2), np.array([2.0]), jnp.bfloat16(2), Fraction(2), True):
        optimizer.tell(jnp.zeros(2), good)
    assert optimizer.trials_dataframe()["state"].tolist() == ["pending", *["complete"] * 6]


def test_what_cannot_be_saved_or_loaded(tmp_path: Any) -> None:
    with pytest.raises(TypeError, match="only a surrogate and an acquisition given by name can be saved"):
        quick(acquisition=policies.ucb(1.0)).save(tmp_path / "x")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        BayesianOptimizer.load(tmp_path / "x")
    (tmp_path / "x").write_bytes(b"rubbish")
    with pytest.raises(ValueError, match=r"x is damaged .*; restore it"):
        BayesianOptimizer.load(tmp_path / "x")


def test_a_finite_space_is_searched_once() -> None:
    optimizer = BayesianOptimizer(FINITE, seed=0, capacity=16, search=QUICK)
    seen = []
    for _ in range(6):
        trial = optimizer.ask()
        seen.append(tuple(trial.x))
        optimizer.tell(trial, trial.x[0])
    assert len(set(seen)) == 6
    with pytest.raises(Exhausted, match="all 6 points"):
        optimizer.ask()


def test_the_design_of_a_finite_space_is_repeated_where_repeats_are_allowed() -> None:
    optimizer = BayesianOptimizer(FINITE, seed=0, capacity=16, search=replace(QUICK, repeats=True))
    trials = optimizer.ask(9)  # without a value all belong to the design
    assert len({tuple(trial.x) for trial in trials[:6]}) == 6
    assert {tuple(trial.x) for trial in trials[6:]} <= {tuple(trial.x) for trial in trials[:6]}


def test_the_trust_region_grows_with_success_and_shrinks_without() -> None:
    assert stage(np.array([0.0, 1.0]), 2, 5) == (0, 0.8)
    assert stage(np.array([0.0, 1.0, 2.0, 3.0, 4.0]), 2, 5) == (0, 1.6)
    assert stage(np.array([0.0, 1.0, *[0.0] * 5]), 2, 5) == (0, 0.4)
    assert stage(np.array([0.0, 1.0, *[0.0] * 4, 2.0, *[0.0] * 4]), 2, 5) == (0, 0.8)
    shrunk = np.array([0.0, 1.0, *[0.0] * 35])
    assert stage(shrunk, 2, 5) == Stage(37, 0.8)  # begun anew
    assert stage(np.array([*shrunk, -3.0, -3.0, -2.0, -1.0, -0.5]), 2, 5) == Stage(37, 1.6)  # by its own best
    optimizer = quick(trust_region=True)
    for trial, value in zip(optimizer.ask(2), (3.0, 2.0), strict=True):
        optimizer.tell(trial, value)
    known, (_, fitted) = optimizer._observations(), optimizer.fitted()
    low, high = suggestion._region(optimizer._method, known, fitted.warps)
    center = optimizer.space.point(optimizer.best[0]).unit
    np.testing.assert_allclose(low, np.clip(center - 0.4, 0, 1))
    assert np.all((low <= center) & (center <= high))
    point = optimizer.space.point(optimizer.ask().x).unit
    assert np.all((low - 1e-9 <= point) & (point <= high + 1e-9))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("acquisition", [*seqdec.bo.acquisition_names(), policies.greedy()])
def test_every_acquisition_finds_new_points_in_the_box(acquisition: Any) -> None:
    optimizer = quick(acquisition=acquisition)
    for _ in range(5):
        trial = optimizer.ask()
        optimizer.tell(trial, BRANIN(trial.x))
    points = np.array([trial.x for trial in optimizer.trials])
    assert len(np.unique(points, axis=0)) == 5 and np.all((points >= [-5, 0]) & (points <= [10, 15]))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"seed": -1}, ValueError, r"seed must be an integer from 0 to 2\*\*63 - 1; got -1"),
        ({"seed": 0.5}, TypeError, r"seed must be an integer from 0 to 2\*\*63 - 1; got 0.5"),
        ({"capacity": 0}, ValueError, "capacity must be at least 1"),
        ({"surrogate": "hilofy"}, ValueError, "unknown surrogate 'hilofy': did you mean 'hilofi'"),
        ({"surrogate": "autp"}, ValueError, "unknown surrogate 'autp': did you mean 'auto'"),
        ({"surrogate": 3}, TypeError, "surrogate must be a name"),
        ({"trust_region": 1}, TypeError, "trust_region must be True or False; got 1"),
        ({"standardize": None}, TypeError, "standardize must be True or False; got None"),
        ({"warp": 0.5}, TypeError, "warp must be True or False; got 0.5"),
        ({"search": Search(grid="yes")}, TypeError, "grid must be True or False; got 'yes'"),  # pyright: ignore
        ({"search": Search(repeats=1)}, TypeError, "repeats must be True or False; got 1"),
        ({"surrogate": "hilofi", "surrogate_options": {"rank": 0}}, ValueError, "rank must be at least 1; got 0"),
        ({"surrogate": "hilofi", "surrogate_options": {"units": 33}}, ValueError, "units must be even.*; got 33"),
        (
            {"surrogate": "sparse_gp", "surrogate_options": {"points": 1}},
            ValueError,
            "points must be at least 2; got 1",
        ),
        (
            {"surrogate": "hilofi_mlp", "surrogate_options": {"scale": 0}},
            ValueError,
            r"scale must lie in \(0, inf\); got 0",
        ),
        ({"surrogate": "hilofi_mlp", "surrogate_options": {"scale": math.nan}}, ValueError, "scale must lie in"),
        (
            {"surrogate": "hilofi_mlp", "surrogate_options": {"scale": "2"}},
            TypeError,
            "scale must be a number; got '2'",
        ),
        (
            {"surrogate": "hilofi_mlp", "surrogate_options": {"growth": math.nan}},
            ValueError,
            "growth must be at least 1",
        ),
        (
            {"surrogate": "hilofi_mlp", "surrogate_options": {"features": (0,)}},
            ValueError,
            r"features\[0\] must be at least",
        ),
        (
            {"surrogate": "hilofi_mlp", "surrogate_options": {"noise_variance": -1.0}},
            ValueError,
            "noise_variance must be",
        ),
        (
            {"surrogate": "hilofi_mlp", "surrogate_options": {"initial_std_last": math.nan}},
            ValueError,
            "initial_std_last",
        ),
        ({"surrogate": "gp", "surrogate_options": {"draws": -5}}, ValueError, "draws must be at least 1"),
        ({"surrogate": "gp", "surrogate_options": {"draws": {}}}, TypeError, "option draws must be a number"),
        ({"acquisition": "thomson"}, ValueError, "unknown acquisition 'thomson': did you mean 'thompson'"),
        ({"acquisition": 3}, TypeError, "acquisition must be a name"),
        ({"search": Search(raw_samples=100)}, ValueError, "raw_samples must be a power of two; got 100"),
        ({"search": Search(raw_samples=8)}, ValueError, "num_restarts must be"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        BayesianOptimizer(BOX, **{"seed": 0, **options})


def test_a_new_surrogate_is_one_entry_of_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {"stiff": lambda: make_gp(draws=1)}
    monkeypatch.setattr(surrogates, "REGISTRY", Registry("surrogate", entries))
    optimizer = quick(surrogate="stiff")
    assert optimizer.surrogate == "stiff" and surrogates.names() == ("stiff",)
    with pytest.raises(ValueError, match="unknown surrogate 'stif': did you mean 'stiff'"):
        quick(surrogate="stif")


# minimize


def test_minimize_answers_as_scipy_does() -> None:
    calls = []
    result = minimum(lambda x: calls.append(x) or BRANIN(x))
    assert isinstance(result, OptimizeResult) and result.success and result.status == 0
    assert result.nfev == len(calls) == len(result.x_iters) == 8 and result.message.startswith("8 calls made")
    assert result.fun == min(result.func_vals) == BRANIN(result.x) and result.x.shape == (2,)
    assert (result.surrogate, result.acquisition, result.seed) == ("gp", "log_expected_improvement", 0)
    np.testing.assert_array_equal(np.array(calls), np.array(result.x_iters))
    assert len(result.optimizer.trials_dataframe()) == 8


def test_maximize_is_minimize_of_the_negative() -> None:
    down = minimum(BRANIN)
    up = seqdec.maximize(lambda x: -BRANIN(x), BOX, n_calls=8, seed=0, search=QUICK, progress=False)
    assert up.x.tolist() == down.x.tolist() and up.fun == -down.fun


def test_one_call_and_a_seed_that_was_not_given() -> None:
    result = minimum(BRANIN, n_calls=1, seed=None)
    assert result.nfev == 1 and result.success
    assert minimum(BRANIN, n_calls=1, seed=result.seed).x.tolist() == result.x.tolist()


@pytest.mark.parametrize("bad", [math.nan, math.inf, ZeroDivisionError("no"), "text", None])
def test_a_failing_call_is_survived(bad: Any) -> None:
    calls = []

    def fun(x: Any) -> Any:
        calls.append(x)
        if len(calls) in (2, 5):
            if isinstance(bad, Exception):
                raise bad
            return bad
        return BRANIN(x)

    result = minimum(fun, catch=(ZeroDivisionError, TypeError))
    assert result.success and np.flatnonzero(np.isnan(result.func_vals)).tolist() == [1, 4]
    reason = result.optimizer.trials_dataframe()["reason"][1]
    words = {"no": "ZeroDivisionError: no", "text": "TypeError", "None": "TypeError"}
    assert reason.startswith(words.get(str(bad), "value"))
    assert (result.traceback is None) == isinstance(bad, float)


def test_too_many_failures_in_a_row_end_it_with_what_is_known() -> None:
    def fun(x: Any) -> float:
        fun.calls += 1
        return BRANIN(x) if fun.calls == 1 else math.nan

    fun.calls = 0
    result = minimum(fun, n_calls=16, max_failures=3)
    assert (result.status, result.success, result.nfev) == (1, False, 4) and np.isfinite(result.fun)
    assert result.message.startswith("3 calls in a row failed, the last with: value nan")
    fun.calls = 1
    nothing = minimum(fun, n_calls=2)
    assert nothing.x is None and math.isnan(nothing.fun) and not nothing.success
    assert nothing.message.startswith("all 2 calls failed")


def test_callbacks_of_both_forms() -> None:
    results, points = [], []
    minimum(BRANIN, n_calls=3, callback=lambda intermediate_result: results.append(intermediate_result))
    minimum(BRANIN, n_calls=3, callback=points.append)
    assert [result.nfev for result in results] == [1, 2, 3]
    assert [result.fun for result in results] == [BRANIN(x) for x in points]

    def stop(xk: Any) -> None:
        raise StopIteration

    result = minimum(BRANIN, callback=stop)
    assert (result.status, result.nfev, result.success) == (2, 1, False) and np.isfinite(result.fun)


@pytest.mark.parametrize("callback", [3, lambda: None, lambda x, y: None, lambda *, other: None])
def test_a_callback_that_cannot_be_called_is_refused_before_anything_is_evaluated(callback: Any) -> None:
    with pytest.raises(TypeError, match="callback must"):
        minimum(lambda x: pytest.fail("evaluated"), callback=callback)


def test_an_exception_of_the_callback_loses_nothing() -> None:
    def broken(x: Any) -> None:
        broken.calls += 1
        if broken.calls == 3:
            raise OSError("no space left")

    broken.calls = 0
    with pytest.warns(RuntimeWarning, match="callback raised OSError: no space left; the search ends after 3 calls"):
        result = minimum(BRANIN, callback=broken)
    assert (result.status, result.success, result.nfev) == (6, False, 3) and np.isfinite(result.func_vals).all()
    assert result.message.startswith("callback raised OSError") and isinstance(result.error, OSError)
    assert result.error.__traceback__ is not None and result.optimizer.ask().number == 3


def test_batches() -> None:
    sizes = []
    result = minimum(BRANIN, batch_size=3, callback=lambda intermediate_result: sizes.append(intermediate_result.nfev))
    assert result.nfev == 8 and sizes == [*range(1, 9)]


def test_processes_give_what_one_gives() -> None:
    def fun(x: Any) -> float:
        if x[0] > 3:
            raise ValueError("too large")
        return float(x[0] ** 2 + x[1])

    options: Any = {"n_calls": 6, "batch_size": 3, "catch": ValueError}
    alone, together = (minimum(fun, workers=workers, **options) for workers in (1, 2))
    np.testing.assert_array_equal(alone.func_vals, together.func_vals)
    assert np.isnan(alone.func_vals).any() and "ValueError: too large" in set(
        together.optimizer.trials_dataframe()["reason"]
    )


def test_ctrl_c_keeps_what_is_done() -> None:
    def fun(x: Any) -> float:
        fun.calls += 1
        if fun.calls == 4:
            raise KeyboardInterrupt
        return BRANIN(x)

    fun.calls = 0
    result = minimum(fun)
    assert (result.status, result.nfev, result.success) == (3, 3, False) and np.isfinite(result.fun)
    fun.calls = 3
    with pytest.raises(KeyboardInterrupt):
        minimum(fun)


def test_starting_points() -> None:
    known = minimum(BRANIN, x0=[[math.pi, 2.275], [0, 0]], y0=[0.397887, 55.6], n_calls=3)
    assert known.nfev == 3 and len(known.func_vals) == 5 and known.fun <= 0.397887
    asked = minimum(BRANIN, x0=[1.0, 2.0], n_calls=2)
    assert asked.x_iters[0].tolist() == [1.0, 2.0] and asked.nfev == 2


def test_a_finite_space_ends_before_the_budget() -> None:
    result = minimum(lambda x: (x[0] - 1) ** 2 + (x[1] == "a"), FINITE, n_calls=9)
    assert (result.status, result.success, result.nfev, result.x) == (4, True, 6, [1, "b"])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_calls": 0}, ValueError, "n_calls must be at least 1; got 0"),
        ({"n_calls": 2.5}, TypeError, "n_calls must be an integer"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1"),
        ({"workers": 0}, ValueError, "workers must be a number of processes"),
        ({"x0": [11.0, 0.0]}, ValueError, r"x\[0\] = 11.0 lies outside the bounds"),
        ({"y0": [1.0]}, ValueError, "pass x0 as well"),
        ({"x0": [[0, 1], [1, 1]], "y0": [1.0]}, ValueError, "one value for each of the 2 points"),
        ({"x0": [[i, 1] for i in range(9)]}, ValueError, "x0 holds 9 points, but n_calls is 8"),
        ({"bounds": [(1, 0), (0, 1)]}, ValueError, "low <= high"),
        ({"fun": 3}, TypeError, "fun must be callable"),
        ({"x0": ["3.5", "1"]}, TypeError, r"x\[0\] must be a number; got '3.5'"),
        ({"x0": [1.0, 2.0], "y0": "3.5"}, TypeError, "a value of y0 must be a number; got"),
        ({"nonsense": 3}, TypeError, "nonsense"),
    ],
)
def test_bad_calls_are_refused_before_anything_is_evaluated(options: dict[str, Any], error: type, message: str) -> None:
    def never(x: Any) -> float:
        raise AssertionError("evaluated")

    with pytest.raises(error, match=message):
        minimum(**{"fun": never, "bounds": BOX, **options})


@pytest.mark.sampled(2)
@pytest.mark.parametrize("maximize", [False, True])
def test_the_expected_gain_is_that_of_draws_from_the_belief(maximize: bool) -> None:
    sign = -1.0 if maximize else 1.0
    optimizer = BayesianOptimizer([(0.0, 1.0)], seed=0, maximize=maximize, search=QUICK, capacity=16, warp=False)
    for x in (0.0, 0.3, 0.5, 1.0):
        assert math.isnan(optimizer.expected_gain())
        optimizer.tell([x], sign * (x - 0.6) ** 2)
    trial = optimizer.ask()
    gain = optimizer.expected_gain()
    method, fitted = optimizer.fitted()
    means, stds = model.marginals(method, fitted, np.array([trial.x, [0.5]]))
    draws = means[0, 0] + stds[0, 0] * np.random.default_rng(0).standard_normal(100_000)
    scale = fitted.warps[0].inverse(np.ones(1))[0] - fitted.warps[0].inverse(np.zeros(1))[0]
    assert gain == pytest.approx(scale * np.maximum(draws - means[1, 0], 0).mean(), rel=0.05) and 0 < gain < 0.2
    optimizer.tell(trial, 0.0)
    assert optimizer.expected_gain() == gain
    assert math.isnan(pickle.loads(pickle.dumps(optimizer)).expected_gain())
