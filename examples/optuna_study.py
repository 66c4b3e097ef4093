"""Tune gradient boosting with Optuna and the sampler of seqdec, and look at the study in a browser.

    pip install 'seqdec[optuna]' optuna-dashboard
    python examples/optuna_study.py
    optuna-dashboard sqlite:///study.db

The last command prints the address of a page, which follows a study that runs.
"""

import optuna  # pyright: ignore[reportMissingImports] (an extra)
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import cross_val_score

from seqdec.integrations.optuna import Sampler

x, y = load_breast_cancer(return_X_y=True)


def objective(trial: optuna.Trial) -> float:
    """Mean area under the ROC curve of three folds."""
    model = HistGradientBoostingClassifier(
        learning_rate=trial.suggest_float("learning_rate", 0.01, 0.5, log=True),
        max_iter=trial.suggest_int("max_iter", 5, 60),
        max_leaf_nodes=trial.suggest_int("max_leaf_nodes", 2, 31),
        l2_regularization=trial.suggest_float("l2_regularization", 1e-6, 10, log=True),
        random_state=0,
    )
    return float(cross_val_score(model, x, y, cv=3, scoring="roc_auc").mean())


if __name__ == "__main__":
    study = optuna.create_study(
        storage="sqlite:///study.db",
        study_name="boosting",
        direction="maximize",
        sampler=Sampler(seed=0),
        load_if_exists=True,
    )
    study.optimize(objective, n_trials=30)
    print(study.best_params, study.best_value)
