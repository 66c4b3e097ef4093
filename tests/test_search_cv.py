"""scikit-learn's search by `seqdec.bo`: as RandomizedSearchCV, but for the candidates."""

import math
import pickle
from typing import Any

import numpy as np
import pytest
from scipy.stats import expon, loguniform, norm, poisson, randint, uniform
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.dummy import DummyRegressor
from sklearn.exceptions import FitFailedWarning
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, RandomizedSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import check_estimator

from seqdec.bo import Categorical, Conditional, Integer, Linear, Ordinal, Real, space_from
from seqdec.integrations.sklearn import SearchCV, _dimension

IRIS, DIABETES = load_iris(return_X_y=True), load_diabetes(return_X_y=True)
PIPELINE = Pipeline([("scaler", StandardScaler()), ("clf", SVC())])
DISTRIBUTIONS = {"clf__C": loguniform(1e-2, 1e2), "clf__kernel": ["rbf", "poly"], "scaler__with_mean": [False, True]}


class Fragile(Ridge):
    """Fails where alpha is above its limit, and in part of the folds above half of it."""

    def __init__(self, alpha: float = 1.0, limit: float = 1.0) -> None:
        super().__init__(alpha=alpha)
        self.limit = limit

    def fit(self, X: Any, y: Any) -> Any:
        if self.alpha > self.limit or (2 * self.alpha > self.limit and X[0, 0] == DIABETES[0][0, 0]):
            raise ArithmeticError("too much")
        return super().fit(X, y)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_scikit_learn_checks_it_as_its_own() -> None:
    outcomes = []
    for kind in (RandomizedSearchCV, SearchCV):
        search = kind(Ridge(), {"alpha": [0.1, 1.0]}, cv=2, error_score="raise", random_state=0)
        found = check_estimator(search, on_skip=None, on_fail=None)
        outcomes.append({one["check_name"]: one["status"] for one in found})
    assert outcomes[0] == outcomes[1] and list(outcomes[1].values()).count("passed") > 40


@pytest.mark.slow
def test_it_has_what_randomized_search_has() -> None:
    options: dict[str, Any] = {"n_iter": 6, "cv": 3, "random_state": 0, "return_train_score": True}
    random, ours = (kind(PIPELINE, DISTRIBUTIONS, **options).fit(*IRIS) for kind in (RandomizedSearchCV, SearchCV))
    assert vars(ours).keys() == vars(random).keys() | {"optimizer_"}
    assert ours.cv_results_.keys() == random.cv_results_.keys()
    for name, column in random.cv_results_.items():
        assert (len(column), type(column)) == (6, type(ours.cv_results_[name]))
        assert name == "params" or column.dtype.kind == ours.cv_results_[name].dtype.kind
    assert ours.best_score_ == ours.cv_results_["mean_test_score"].max() == ours.optimizer_.best[1] > 0.9
    assert ours.best_params_ == ours.cv_results_["params"][ours.best_index_] == ours.optimizer_.best[0]
    assert ours.score(*IRIS) == ours.best_estimator_.score(*IRIS) and ours.classes_.tolist() == [0, 1, 2]
    assert ours.n_features_in_ == 4 and ours.n_splits_ == 3 and ours.refit_time_ > 0


def test_equal_seeds_and_any_number_of_processes_give_equal_candidates() -> None:
    def params(**options: Any) -> Any:
        return SearchCV(PIPELINE, DISTRIBUTIONS, n_iter=4, cv=2, **options).fit(*IRIS).cv_results_["params"]

    first = params(random_state=3)
    assert first == params(random_state=3, n_jobs=2) == params(random_state=np.random.RandomState(3))
    assert first != params(random_state=4)


def test_it_is_cloned_pickled_and_nested() -> None:
    search = SearchCV(PIPELINE, DISTRIBUTIONS, n_iter=3, cv=2, random_state=0)
    assert clone(search).get_params().keys() == search.get_params().keys()
    assert len(cross_val_score(search, *IRIS, cv=2)) == 2
    fitted = pickle.loads(pickle.dumps(search.fit(*IRIS)))
    np.testing.assert_array_equal(fitted.predict(IRIS[0]), search.predict(IRIS[0]))
    assert fitted.optimizer_.ask().x == search.optimizer_.ask().x


@pytest.mark.parametrize(
    ("given", "dimension"),
    [
        ((0.5, 2), Real(0.5, 2)),
        (Integer(1, 9, log=True), Integer(1, 9, log=True)),
        (loguniform(1e-3, 10), Real(1e-3, 10.0, log=True)),
        (uniform(loc=2, scale=3), Real(2.0, 5.0)),
        (randint(1, 9), Integer(1.0, 8.0)),
        (poisson(4), Integer(0.0, 10.0)),
        (expon(scale=2), Real(0.0, -2 * math.log(0.005))),
        (norm(1, 2), Real(1 + 2 * norm.ppf(0.005), 1 + 2 * norm.ppf(0.995))),
        ([3, 1, 2.5, 1], Ordinal((1, 2.5, 3))),
        (np.logspace(0, 2, 3), Ordinal((1, 10, 100))),
        (range(2, 5), Ordinal((2, 3, 4))),
        ([None, "sqrt", 2], Categorical((None, "sqrt", 2))),
        (("l1", "l2"), Categorical(("l1", "l2"))),
    ],
)
def test_distributions_are_dimensions(given: Any, dimension: Any) -> None:
    found = _dimension("p", given)
    assert type(found) is type(dimension)
    if isinstance(found, Real | Integer):
        assert (found.low, found.high) == pytest.approx((dimension.low, dimension.high))
        assert found.log == dimension.log
    else:
        assert found == dimension


@pytest.mark.parametrize("given", ["rbf", [], 3.0, {"low": 1}])
def test_what_is_no_distribution_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match=r"param_distributions\['C'\] must be a Real"):
        SearchCV(SVC(), {"C": given}).fit(*IRIS)


def test_values_without_a_hash_arrive_as_they_are() -> None:
    weights = [{0: 1, 1: 2, 2: 1}, None, {0: 1, 1: 1, 2: 1}]
    search = SearchCV(SVC(), {"class_weight": weights, "C": [1.0, 1]}, n_iter=20, cv=2, random_state=0).fit(*IRIS)
    found = [params["class_weight"] for params in search.cv_results_["params"]]
    assert len(found) == 3 and all(weight in found for weight in weights)  # each point once
    assert search.optimizer_.plot("slices")


def test_several_dicts_are_branches() -> None:
    branches = [{"kernel": ["rbf"], "gamma": (0.1, 1.0)}, {"kernel": ["poly"], "degree": [2, 3, 4]}]
    search = SearchCV(SVC(), branches, n_iter=8, cv=2, random_state=0).fit(*IRIS)
    names = {(params["kernel"], *sorted(params)) for params in search.cv_results_["params"]}
    assert names == {("rbf", "gamma", "kernel"), ("poly", "degree", "kernel")}


def test_a_space_has_conditions_and_constraints() -> None:
    bounds = {"kernel": Categorical(("rbf", "poly")), "degree": Conditional(Integer(2, 4), "kernel", ("poly",))}
    space = space_from({**bounds, "C": Real(0.1, 2.0), "coef0": Real(0.0, 2.0)}, [Linear({"C": 1, "coef0": 1}, high=2)])
    search = SearchCV(SVC(), space, n_iter=8, cv=2, random_state=0).fit(*IRIS)
    for params in search.cv_results_["params"]:
        assert ("degree" in params) == (params["kernel"] == "poly") and params["C"] + params["coef0"] <= 2
    with pytest.raises(ValueError, match="must have names"):
        SearchCV(SVC(), space_from([(0.1, 2.0)])).fit(*IRIS)


def test_all_candidates_have_the_same_splits() -> None:
    always = DummyRegressor(strategy="constant")
    shuffled: dict[str, Any] = {"cv": KFold(3, shuffle=True), "scoring": "neg_mean_absolute_error", "random_state": 0}
    scores = SearchCV(always, {"constant": (150.0, 150.001)}, n_iter=4, **shuffled).fit(*DIABETES).cv_results_
    assert all(np.ptp(scores[f"split{i}_test_score"]) < 0.01 for i in range(3))


def test_failed_candidates_are_rows_without_a_score() -> None:
    search = SearchCV(Fragile(), {"alpha": Real(0.01, 2.0)}, n_iter=12, cv=3, random_state=0, return_train_score=True)
    with pytest.warns((FitFailedWarning, UserWarning)) as caught:
        search.fit(*DIABETES)
    results, told = search.cv_results_, search.optimizer_.trials_dataframe()
    alphas = [params["alpha"] for params in results["params"]]
    assert alphas == told["alpha"].tolist() == results["param_alpha"].tolist() and len(alphas) == 12
    failed = np.array(alphas) > 0.5
    assert np.isnan(results["mean_test_score"]).tolist() == failed.tolist() == (told["state"] == "failed").tolist()
    assert np.isnan(results["split0_train_score"]).tolist() == (np.array(alphas) > 1).tolist()
    assert 0 < np.sum(np.array(alphas) > 1) < failed.sum() < 12
    assert set(results["rank_test_score"][failed]) == {12 - failed.sum() + 1} and search.best_params_["alpha"] <= 0.5
    assert "ArithmeticError: too much" in told["reason"].tolist()
    assert sum("non-finite" in str(one.message) for one in caught) == 2  # test and training scores, once each


def test_failures_have_the_score_asked_for() -> None:
    options: dict[str, Any] = {"n_iter": 3, "cv": 2, "random_state": 0}
    with pytest.warns(FitFailedWarning, match="All the 2 fits failed"):
        search = SearchCV(Fragile(limit=0.5), {"alpha": [0.1, 2.0]}, error_score=-3.0, **options).fit(*DIABETES)
    assert sorted(search.cv_results_["mean_test_score"])[0] == -3.0 and search.best_params_ == {"alpha": 0.1}
    with pytest.raises(ArithmeticError, match="too much"):
        SearchCV(Fragile(), {"alpha": [0.1, 2.0]}, error_score="raise", **options).fit(*DIABETES)
    with pytest.warns(FitFailedWarning), pytest.raises(ValueError, match="All the 2 fits failed"):
        SearchCV(Fragile(), {"alpha": (2.0, 3.0)}, **options).fit(*DIABETES)
    with pytest.raises(ValueError, match="Invalid parameter 'beta'"):
        SearchCV(Ridge(), {"beta": [0.1, 2.0]}, **options).fit(*DIABETES)


def test_of_several_scores_that_of_refit_is_maximized() -> None:
    scoring = {"r2": "r2", "score": "neg_mean_absolute_error"}
    options: dict[str, Any] = {"scoring": scoring, "n_iter": 3, "cv": 2, "random_state": 0}
    for name in scoring:
        search = SearchCV(Ridge(), {"alpha": (0.01, 2.0)}, refit=name, **options).fit(*DIABETES)
        assert search.multimetric_ and search.optimizer_.best[1] == search.cv_results_[f"mean_test_{name}"].max()
    options["scoring"] = ["r2", "explained_variance"]
    with pytest.raises(ValueError, match=r"one of \['r2', 'explained_variance'\]; got False"):
        SearchCV(Ridge(), {"alpha": (0.01, 2.0)}, refit=False, **options).fit(*DIABETES)
    single = SearchCV(Ridge(), {"alpha": (0.01, 2.0)}, refit=False, n_iter=2, random_state=0).fit(*DIABETES)
    assert not hasattr(single, "best_estimator_") and single.best_score_ == single.optimizer_.best[1]
