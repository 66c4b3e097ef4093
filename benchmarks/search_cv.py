"""`seqdec.integrations.sklearn.SearchCV` beside scikit-learn's RandomizedSearchCV: the best score at equal calls.

    python benchmarks/search_cv.py [NAME ...] [--candidates 25] [--seeds 10] [--seed 0]

Prints one line for each model: the largest mean score of three folds, mean over the runs with its 95% interval, of
both; and in how many runs, of equal seeds, SearchCV finds more and less.
"""

from typing import Annotated, Any

import numpy as np
import tyro
from harness import command, interval, table
from scipy.stats import loguniform, randint, uniform
from sklearn.datasets import load_diabetes, load_digits
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import RandomizedSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from seqdec.integrations.sklearn import SearchCV

SVM = {"svc__C": loguniform(1e-3, 1e3), "svc__gamma": loguniform(1e-6, 1.0), "svc__kernel": ["rbf", "poly", "sigmoid"]}
RIDGE = {"alpha": loguniform(1e-4, 1e2), "gamma": loguniform(1e-3, 1e3), "kernel": ["rbf", "laplacian", "polynomial"]}
BOOSTING = {
    "learning_rate": loguniform(1e-2, 1.0),
    "n_estimators": randint(5, 100),
    "max_depth": [1, 2, 3, 4, 5],
    "subsample": uniform(0.3, 0.7),
    "min_samples_leaf": randint(1, 30),
}
MODELS: dict[str, tuple[Any, dict[str, Any], Any]] = {
    "svm, digits": (make_pipeline(StandardScaler(), SVC()), SVM, load_digits),
    "kernel ridge, diabetes": (KernelRidge(), RIDGE, load_diabetes),
    "boosting, diabetes": (GradientBoostingRegressor(random_state=0), BOOSTING, load_diabetes),
}


def best(kind: Any, name: str, candidates: int, seed: int) -> float:
    """The largest mean score that a search finds."""
    model, distributions, load = MODELS[name]
    search = kind(model, distributions, n_iter=candidates, cv=3, random_state=seed, refit=False)
    return float(search.fit(*load(return_X_y=True)).best_score_)


def main(
    names: Annotated[tuple[str, ...], tyro.conf.Positional] = tuple(MODELS),
    candidates: int = 25,
    seeds: int = 10,
    seed: int = 0,
) -> None:
    """The table, one line as soon as it is known."""
    row = table("model", "RandomizedSearchCV", "SearchCV", "more", "less")
    for name in names:
        found = [
            [best(kind, name, candidates, seed + run) for run in range(seeds)]
            for kind in (RandomizedSearchCV, SearchCV)
        ]
        more = np.diff(found, axis=0)
        row(name, *map(interval, found), (more > 0).sum(), (more < 0).sum())


if __name__ == "__main__":
    command(main)
