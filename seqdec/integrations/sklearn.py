"""Tuning of scikit-learn's estimators by `seqdec.bo`."""

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import RandomizedSearchCV, check_cv
from sklearn.utils import check_random_state

from seqdec.bo import BayesianOptimizer, Categorical, Conditional, Exhausted, Integer, Ordinal, Real, Search, Space
from seqdec.bo.space import containers
from seqdec.bo.space.dimensions import Dimension
from seqdec.boundary import checks

_WHICH = "param_distributions"
"""Name of the choice among several."""
_OUTSIDE = 0.005
"""Share of a distribution without limits left out on that side."""


class SearchCV(RandomizedSearchCV):
    """RandomizedSearchCV of scikit-learn with candidates of `seqdec.bo.BayesianOptimizer`.

        >>> from sklearn.datasets import load_iris
        >>> from sklearn.svm import SVC
        >>> from seqdec.bo import Real
        >>> from seqdec.integrations.sklearn import SearchCV
        >>> space = {"C": Real(0.1, 100, log=True), "kernel": ["rbf", "poly"]}
        >>> search = SearchCV(SVC(), space, n_iter=2, random_state=0)
        >>> sorted(search.fit(*load_iris(return_X_y=True)).best_params_)
        ['C', 'kernel']

    Arguments, methods and attributes are those of RandomizedSearchCV, and `optimizer_` is the BayesianOptimizer. One
    candidate is evaluated after the other, `n_jobs` folds at a time, all on the same splits. With several scores,
    `refit` names the one to maximize. Candidates with a score that is not finite have failed, and none is evaluated
    twice: the search of a finite space ends with its last point.

    Args:
        estimator: the estimator to tune.
        param_distributions: a dict from names to what `seqdec.bo.space_from` takes, where a pair of limits is a tuple,
            to lists of values, ordered if they are numbers, and to frozen distributions of scipy, of which the limits,
            integer values and a logarithmic scale count. Or a list of such dicts, or a Space with names.
        n_iter: number of candidates.
        scoring, n_jobs, refit, cv, verbose, pre_dispatch, random_state, error_score, return_train_score: as in
            RandomizedSearchCV.

    Raises:
        ValueError, TypeError: an argument does not fit, or all fits failed.
    """

    _parameter_constraints = RandomizedSearchCV._parameter_constraints | {"param_distributions": [dict, list, Space]}

    def _run_search(self, evaluate_candidates: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        bounds, repeats = _bounds(self.param_distributions), Search(repeats=False)
        optimizer = BayesianOptimizer(bounds, seed=seed, maximize=True, capacity=self.n_iter, search=repeats)
        self.optimizer_ = optimizer
        splits = _Splits(getattr(self, "_checked_cv_orig", self.cv), is_classifier(self.estimator))  # older versions
        results: dict[str, Any] = {}
        lost: dict[int, tuple[dict[str, Any], ValueError]] = {}
        for place, trial in enumerate(_asked(optimizer, self.n_iter)):
            params = _params(trial.x)
            try:
                results = evaluate_candidates([params], splits)
            except ValueError as error:
                if "fits failed" not in str(error):
                    raise
                lost[place] = params, error
                warnings.warn(str(error), FitFailedWarning, stacklevel=2)
                reason = str(error).strip().rpartition("\n")[2]
                optimizer.tell(trial, self.error_score, reason=reason)
            else:
                optimizer.tell(trial, results[f"mean_test_{self._maximized(results)}"][-1])
        if not results:
            raise next(error for _, error in lost.values())
        results.update(self._completed({place: params for place, (params, _) in lost.items()}))

    def _format_results(self, candidate_params: Any, n_splits: int, out: Any, more_results: Any = None) -> Any:
        self._evaluated = list(candidate_params), n_splits, list(out)
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # once, in `_completed`, is enough
            return super()._format_results(candidate_params, n_splits, out, more_results)

    def _completed(self, lost: Mapping[int, Any]) -> dict[str, Any]:
        """The results with the candidates at these places, none of whose fits scikit-learn kept."""
        candidates, folds, rows = self._evaluated
        del self._evaluated
        scores = {name: _filled(rows[0][name], self.error_score) for name in rows[0] if name.endswith("_scores")}
        row = {**rows[0], **scores, "fit_time": math.nan, "score_time": math.nan}
        for place, params in lost.items():
            candidates.insert(place, params)
            rows[place * folds : place * folds] = [row] * folds
        return super()._format_results(candidates, folds, rows)

    def _maximized(self, results: Mapping[str, Any]) -> Any:
        name = self.refit if f"mean_test_{self.refit}" in results else "score"
        if f"mean_test_{name}" not in results:
            names = [key[10:] for key in results if key.startswith("mean_test_")]
            raise ValueError(f"refit must name the score to maximize, one of {names}; got {self.refit!r}")
        return name


class _Splits:
    """Of all candidates, drawn once."""

    def __init__(self, cv: Any, classifier: bool) -> None:
        self._cv, self._classifier, self._drawn = cv, classifier, None

    def split(self, x: Any, y: Any = None, **params: Any) -> list[Any]:
        splitter: Any = check_cv(self._cv, y, classifier=self._classifier)
        self._drawn = self._drawn or list(splitter.split(x, y, **params))
        return self._drawn


@dataclass(frozen=True, eq=False)
class _Choice:
    """A value that has no hash, or is equal to another."""

    value: Any

    def __repr__(self) -> str:
        return repr(self.value)


def _asked(optimizer: BayesianOptimizer, count: int) -> Iterator[Any]:
    for _ in range(count):
        try:
            yield optimizer.ask()
        except Exhausted:
            return


def _params(x: dict[str, Any]) -> dict[str, Any]:
    chosen = x[str(x[_WHICH])] if _WHICH in x else x
    return {name: value.value if isinstance(value, _Choice) else value for name, value in chosen.items()}


def _filled(score: Any, value: float) -> Any:
    return dict.fromkeys(score, value) if isinstance(score, dict) else value


def _bounds(given: Any) -> Any:
    """Several dicts are branches of a choice."""
    if isinstance(given, Space):
        if not given.names:
            raise ValueError("param_distributions must have names; got a Space without: make it of a dict")
        return given
    dicts = [given] if isinstance(given, dict) else given
    parts = [{name: _dimension(name, one) for name, one in part.items()} for part in dicts]
    if len(parts) == 1:
        return parts[0]
    return {_WHICH: Categorical(tuple(range(len(parts))))} | {
        str(i): {name: Conditional(one, _WHICH, (i,)) for name, one in part.items()} for i, part in enumerate(parts)
    }


def _dimension(name: str, given: Any) -> Any:
    if isinstance(given, Dimension | Conditional):
        return given
    if hasattr(given, "ppf"):
        limits = np.array(given.support(), float)
        low, high = np.where(np.isfinite(limits), limits, given.ppf([_OUTSIDE, 1 - _OUTSIDE]))
        log = given.dist.name in ("loguniform", "reciprocal")
        return Integer(low, high) if hasattr(given, "pmf") else Real(low, high, log)
    if isinstance(given, tuple) and len(given) == 2 and all(map(checks.is_number, given)):
        return Real(*given)
    if not (values := containers.sequence(given)):
        raise TypeError(
            f"param_distributions[{name!r}] must be a Real, Integer, Ordinal or Categorical, a tuple (low, high), a "
            f"frozen distribution of scipy or a list, not empty; got {given!r}"
        )
    if all(map(checks.is_number, values)):
        return Ordinal(tuple(sorted(set(values))))
    return Categorical(tuple(values if _are_different(values) else map(_Choice, values)))


def _are_different(values: list[Any]) -> bool:
    try:
        return len(set(values)) == len(values)
    except TypeError:  # without a hash
        return False
