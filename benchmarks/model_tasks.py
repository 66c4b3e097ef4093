"""Models to be tuned: nine by the error of three folds, and three networks whose folds are drawn anew.

They are those of scikit-learn, XGBoost and LightGBM; the data are those that scikit-learn contains. The first nine
errors are means of three folds, which are the same in every call. A network is trained once in a call, from another
initial point and on another split of the rows, so that its error is noisy: what counts is the mean error on ten splits
of its own, `judge`, at the point that a method answers with.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from seqdec.bo import Categorical, Conditional, Integer, Ordinal, Real

Point = Mapping[str, Any]
_SPLITS = 10
"""By which the answers of noisy tasks are judged."""
_DIVERGED = 2.0
"""The largest error of a network, twice that of the mean."""


class Model(NamedTuple):
    """A model to be tuned."""

    error: Callable[..., float]
    """of a point, and of networks also a seed"""
    space: dict[str, Any]
    noisy: bool = False
    calls: int = 50

    def judge(self, x: Point) -> float:
        """The mean error of a network on ten splits that are no call's."""
        return float(np.mean([self.error(x, 10**6 + split) for split in range(_SPLITS)]))


def _folds(model: Any, x: np.ndarray, y: np.ndarray, scoring: str) -> float:
    """Minus the mean score of three folds."""
    from sklearn.model_selection import KFold, cross_val_score

    return -float(cross_val_score(model, x, y, cv=KFold(3, shuffle=True, random_state=0), scoring=scoring).mean())


@functools.cache
def _digits() -> tuple[np.ndarray, np.ndarray]:
    """600 images of handwritten digits, scaled, and their labels."""
    from sklearn.datasets import load_digits

    data = load_digits()
    chosen = np.random.default_rng(0).permutation(len(data.target))[:600]
    return data.data[chosen] / 16, data.target[chosen]


@functools.cache
def _tumors() -> tuple[np.ndarray, np.ndarray]:
    """Measurements of tumors, standardized, and whether they are benign."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    return (data.data - data.data.mean(0)) / data.data.std(0), data.target


@functools.cache
def _diabetes() -> tuple[np.ndarray, np.ndarray]:
    """Measurements of 442 patients, and the progress of their diabetes in a year, both standardized."""
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True)
    return x / x.std(0), (y - y.mean()) / y.std()


def _svc(x: Point) -> float:
    """The share of wrong digits."""
    from sklearn.svm import SVC

    return 1 + _folds(SVC(**x), *_digits(), "accuracy")


def _boosting(x: Point) -> float:
    """The root mean squared error of the progress of diabetes."""
    from sklearn.datasets import load_diabetes
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(max_iter=50, early_stopping=False, random_state=0, **x)
    return _folds(model, *load_diabetes(return_X_y=True), "neg_root_mean_squared_error")


def _options(x: Point, kind: str) -> dict[str, Any]:
    """The parameters whose names begin with `kind` and a dot."""
    return {name.removeprefix(f"{kind}."): value for name, value in x.items() if name.startswith(f"{kind}.")}


def _choice(x: Point) -> float:
    """1 - area under the ROC curve of the classifier that `x` names."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.svm import SVC

    kinds = {
        "svc": SVC,
        "neighbors": KNeighborsClassifier,
        "logistic": functools.partial(LogisticRegression, max_iter=100, tol=1e-3),
        "forest": functools.partial(RandomForestClassifier, n_estimators=30, random_state=0),
    }
    return 1 + _folds(kinds[x["model"]](**_options(x, x["model"])), *_tumors(), "roc_auc")


def _forest(x: Point) -> float:
    """The root mean squared error of 20 extremely randomized trees, in standard deviations."""
    from sklearn.ensemble import ExtraTreesRegressor

    return _folds(ExtraTreesRegressor(20, random_state=0, **x), *_diabetes(), "neg_root_mean_squared_error")


def _kernel(x: Point) -> float:
    """The root mean squared error of kernel ridge regression, in standard deviations."""
    from sklearn.kernel_ridge import KernelRidge

    return _folds(KernelRidge(**x), *_diabetes(), "neg_root_mean_squared_error")


def _pipeline(x: Point) -> float:
    """The share of wrong digits after scaling, projection and one of two classifiers."""
    from sklearn.decomposition import PCA
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, StandardScaler

    scaler = {"none": [], "range": [MinMaxScaler()], "deviation": [StandardScaler()]}[x["scaler"]]
    projection = [PCA(whiten=x["whiten"], random_state=0, **_options(x, "pca"))] if x["project"] else []
    classifier = {"neighbors": KNeighborsClassifier, "lda": functools.partial(LinearDiscriminantAnalysis, "lsqr")}
    model = classifier[x["model"]](**_options(x, x["model"]))
    return 1 + _folds(make_pipeline(*scaler, *projection, model), *_digits(), "accuracy")


def _stages(x: Point) -> float:
    """The share of wrong digits after blurring, scaling, projection, features of a kernel and a classifier."""
    from scipy.ndimage import gaussian_filter
    from sklearn.decomposition import PCA
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import RidgeClassifier
    from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler
    from sklearn.random_projection import GaussianRandomProjection

    images, labels = _digits()
    blurred = gaussian_filter(images.reshape(-1, 8, 8), (0, x["blur"], x["blur"])).reshape(len(images), -1)
    scaler = {"none": [], "range": [MinMaxScaler()], "deviation": [StandardScaler()], "norm": [Normalizer()]}
    projection = {"pca": PCA, "random": GaussianRandomProjection}
    classifier = {
        "neighbors": KNeighborsClassifier,
        "lda": functools.partial(LinearDiscriminantAnalysis, "lsqr"),
        "ridge": RidgeClassifier,
        "centroid": NearestCentroid,
    }
    parts = scaler[x["scaler"]]
    if x["project"] != "none":
        parts = [*parts, projection[x["project"]](random_state=0, **_options(x, "project"))]
    if x["kernel"] != "none":
        parts = [*parts, Nystroem(x["kernel"], random_state=0, **_options(x, "kernel"))]
    model = classifier[x["model"]](**_options(x, x["model"]))
    return 1 + _folds(make_pipeline(*parts, model), blurred ** x["power"], labels, "accuracy")


def _xgboost(x: Point) -> float:
    """The log loss of tumors."""
    from xgboost import XGBClassifier

    return _folds(XGBClassifier(n_jobs=1, random_state=0, **x), *_tumors(), "neg_log_loss")


def _lightgbm(x: Point) -> float:
    """The log loss of digits after ten rounds."""
    from lightgbm import LGBMClassifier

    model = LGBMClassifier(n_estimators=10, subsample_freq=1, n_jobs=1, random_state=0, verbose=-1, **x)
    return _folds(model, *_digits(), "neg_log_loss")


def _network(x: Point, seed: int, data: Callable[[], tuple[np.ndarray, np.ndarray]], epochs: int) -> float:
    """The loss on a third of the rows of a network that is trained on the others.

    It is the share of wrong classes, or the mean squared error of a number, at most 2, also where training diverges.
    """
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    inputs, targets = data()
    options: dict[str, Any] = dict(x)
    layers = options.pop("layers")
    options["hidden_layer_sizes"] = tuple(options.pop(f"width_{layer}") for layer in range(1, layers + 1))
    kind = MLPRegressor if targets.dtype.kind == "f" else MLPClassifier
    model = kind(max_iter=epochs, random_state=seed, n_iter_no_change=epochs, **options)
    train, test, wanted, held = train_test_split(inputs, targets, test_size=1 / 3, random_state=seed)
    try:
        found = model.fit(train, wanted).predict(test)
    except ValueError:  # of weights that are not finite
        return _DIVERGED
    error = float(np.mean((found - held) ** 2 if kind is MLPRegressor else found != held))
    return min(error, _DIVERGED)


def _of(model: str, dimension: Any) -> Conditional:
    return Conditional(dimension, on="model", values=(model,))


_TREES = {
    "max_depth": Integer(2, 20),
    "min_samples_leaf": Integer(1, 40, log=True),
    "max_features": Real(0.1, 1.0),
    "criterion": Categorical(("squared_error", "friedman_mse")),
    "bootstrap": Categorical((False, True)),
    "max_samples": Conditional(Real(0.2, 1.0), on="bootstrap", values=(True,)),
}
_KERNEL = {
    "alpha": Real(1e-4, 1e3, log=True),
    "kernel": Categorical(("rbf", "laplacian", "polynomial")),
    "gamma": Real(1e-4, 10.0, log=True),
    "degree": Conditional(Integer(1, 4), on="kernel", values=("polynomial",)),
    "coef0": Conditional(Real(0.0, 5.0), on="kernel", values=("polynomial",)),
}
_CHOICE = {
    "model": Categorical(("svc", "neighbors", "logistic", "forest")),
    "svc.C": _of("svc", Real(1e-2, 1e3, log=True)),
    "svc.gamma": _of("svc", Real(1e-4, 10.0, log=True)),
    "neighbors.n_neighbors": _of("neighbors", Integer(1, 30, log=True)),
    "neighbors.weights": _of("neighbors", Categorical(("uniform", "distance"))),
    "neighbors.p": _of("neighbors", Real(1.0, 4.0)),
    "logistic.C": _of("logistic", Real(1e-3, 1e3, log=True)),
    "forest.max_depth": _of("forest", Integer(2, 20)),
    "forest.max_features": _of("forest", Real(0.05, 1.0, log=True)),
}
_PIPELINE = {
    "scaler": Categorical(("none", "range", "deviation")),
    "project": Categorical((False, True)),
    "whiten": Categorical((False, True)),
    "pca.n_components": Conditional(Integer(2, 60), on="project", values=(True,)),
    "model": Categorical(("neighbors", "lda")),
    "neighbors.n_neighbors": _of("neighbors", Integer(1, 30, log=True)),
    "neighbors.weights": _of("neighbors", Categorical(("uniform", "distance"))),
    "lda.shrinkage": _of("lda", Real(1e-4, 1.0, log=True)),
}
_STAGES = {
    "blur": Real(0.0, 1.5),
    "power": Real(0.25, 2.0, log=True),
    "scaler": Categorical(("none", "range", "deviation", "norm")),
    "project": Categorical(("none", "pca", "random")),
    "project.n_components": Conditional(Integer(4, 60), on="project", values=("pca", "random")),
    "kernel": Categorical(("none", "rbf", "laplacian")),
    "kernel.gamma": Conditional(Real(1e-4, 10.0, log=True), on="kernel", values=("rbf", "laplacian")),
    "kernel.n_components": Conditional(Integer(10, 200, log=True), on="kernel", values=("rbf", "laplacian")),
    "model": Categorical(("neighbors", "lda", "ridge", "centroid")),
    "neighbors.n_neighbors": _of("neighbors", Integer(1, 30, log=True)),
    "neighbors.weights": _of("neighbors", Categorical(("uniform", "distance"))),
    "neighbors.metric": _of("neighbors", Categorical(("euclidean", "manhattan", "cosine"))),
    "lda.shrinkage": _of("lda", Real(1e-4, 1.0, log=True)),
    "ridge.alpha": _of("ridge", Real(1e-3, 1e3, log=True)),
    "ridge.fit_intercept": _of("ridge", Categorical((False, True))),
    "centroid.shrink_threshold": _of("centroid", Real(1e-3, 1.0, log=True)),
}
_XGBOOST = {
    "n_estimators": Integer(5, 100, log=True),
    "learning_rate": Real(1e-2, 1.0, log=True),
    "max_depth": Integer(1, 10),
    "min_child_weight": Real(1e-2, 30.0, log=True),
    "gamma": Real(1e-4, 10.0, log=True),
    "subsample": Real(0.2, 1.0),
    "colsample_bytree": Real(0.2, 1.0),
    "colsample_bylevel": Real(0.2, 1.0),
    "colsample_bynode": Real(0.2, 1.0),
    "reg_alpha": Real(1e-4, 10.0, log=True),
    "reg_lambda": Real(1e-4, 100.0, log=True),
    "grow_policy": Categorical(("depthwise", "lossguide")),
    "max_leaves": Conditional(Integer(2, 64, log=True), on="grow_policy", values=("lossguide",)),
}
_LIGHTGBM = {
    "learning_rate": Real(1e-2, 1.0, log=True),
    "num_leaves": Integer(2, 64, log=True),
    "min_child_samples": Integer(1, 60, log=True),
    "reg_alpha": Real(1e-4, 10.0, log=True),
    "reg_lambda": Real(1e-4, 100.0, log=True),
    "subsample": Real(0.2, 1.0),
    "colsample_bytree": Real(0.1, 1.0),
    "boosting_type": Categorical(("gbdt", "dart")),
    "drop_rate": Conditional(Real(0.01, 0.5), on="boosting_type", values=("dart",)),
}
_NETWORK = {
    "layers": Integer(1, 3),
    "width_1": Integer(4, 64, log=True),
    "width_2": Conditional(Integer(4, 64, log=True), on="layers", values=(2, 3)),
    "width_3": Conditional(Integer(4, 64, log=True), on="layers", values=(3,)),
    "activation": Categorical(("relu", "tanh")),
    "solver": Categorical(("adam", "sgd")),
    "momentum": Conditional(Real(0.0, 0.99), on="solver", values=("sgd",)),
    "learning_rate_init": Real(1e-4, 1.0, log=True),
    "alpha": Real(1e-6, 10.0, log=True),
    "batch_size": Ordinal((16, 32, 64, 128)),
}
MODELS = {
    "svc": Model(_svc, {"C": Real(1e-2, 1e3, log=True), "gamma": Real(1e-4, 10.0, log=True)}),
    "boosting": Model(
        _boosting,
        {
            "learning_rate": Real(1e-3, 1.0, log=True),
            "max_leaf_nodes": Integer(2, 64, log=True),
            "min_samples_leaf": Integer(1, 60),
            "l2_regularization": Real(1e-3, 1e3, log=True),
            "max_features": Real(0.1, 1.0),
        },
    ),
    "choice": Model(_choice, _CHOICE),
    "forest": Model(_forest, _TREES),
    "kernel": Model(_kernel, _KERNEL),
    "pipeline": Model(_pipeline, _PIPELINE),
    "stages": Model(_stages, _STAGES, calls=40),
    "xgboost": Model(_xgboost, _XGBOOST),
    "lightgbm": Model(_lightgbm, _LIGHTGBM),
    **{
        f"network-{name}": Model(functools.partial(_network, data=data, epochs=epochs), _NETWORK, noisy=True)
        for name, data, epochs in (("digits", _digits, 15), ("tumors", _tumors, 15), ("diabetes", _diabetes, 15))
    },
}
"""All models, by name."""
