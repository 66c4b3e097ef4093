"""Sparse Gaussian process: the prior of `seqdec.bo.surrogates.gaussian_process`, for thousands of responses.

For M of the evaluated points, z, the n responses y, their noise D, K = k(z, z) = L L' and A = L^-1 k(z, x) D^-1/2,

    f(x) | y ~ N(k(x, z) w, k(x, x) - k(x, z) V' V k(z, x))
    w = L^-T (I + A A')^-1 A D^-1/2 y,    V' V = L^-T (I - (I + A A')^-1) L^-1

the variational posterior, exact where z are all points. They are chosen for every question by pivoted Cholesky
factorization, M / 2 among the best, then among all. Hyperparameters are the exact process's. A question costs O(n M^2).

Sources: Titsias, "Variational learning of inducing variables in sparse Gaussian processes", 2009; the choice of points:
Burt, Rasmussen, van der Wilk, "Convergence of sparse variational inference in Gaussian processes regression", 2020;
good ones first: Moss, Ober, Picheny, "Inducing point allocation for sparse Gaussian processes in high-throughput
Bayesian optimization", 2023.
"""

import numpy as np

from seqdec.bo.surrogates import evidence
from seqdec.bo.surrogates import gaussian_process as exact
from seqdec.bo.surrogates.contract import History, Surrogate
from seqdec.bo.surrogates.evidence import Hyperparameters, Known
from seqdec.bo.surrogates.gaussian_process import Process
from seqdec.boundary import checks
from seqdec.core import Key

_CERTAIN = 1e-8
"""Share of the prior variance below which a value is known."""


def sparse_gp(*, points: int = 512) -> Surrogate:
    """Sparse Gaussian process with Matern-5/2 kernel.

    Args:
        points: the largest M.

    Raises ValueError or TypeError for a setting that does not fit.
    """
    points = checks.count("points", points, 2)

    def init(key: Key, history: History) -> Process:
        hyper, empty = evidence.prior_mean(evidence.places_of(history)), history._replace(filled=0)
        return _condition(hyper, empty, points)

    def fit(state: Process, history: History) -> Process:
        hyper, count = exact.refitted(state, history)
        return _condition(hyper, history, points)._replace(fitted=count)

    def condition_on(state: Process, history: History) -> Process:
        return _condition(state.hyper, history, points)

    return Surrogate(
        init,
        fit,
        condition_on,
        exact.posterior,
        exact.GROWTH,
        "log_expected_improvement",
        exact.DTYPE,
        lambda state: np.exp(state.hyper.log_noise),
        lambda state: state.stored,
    )


def _condition(hyper: Hyperparameters, history: History, points: int) -> Process:
    known = evidence.told(history)
    dim = known.x.shape[1]
    x, whiten, weights, spread = np.zeros((points, dim)), np.zeros((points, points)), np.zeros(points), np.zeros(points)
    chosen, rows = _chosen(hyper, known, points)
    count = len(chosen)
    if count:
        from scipy.linalg import solve_triangular

        std = np.sqrt(evidence.noise_variances(hyper, known))
        scaled = rows.T / std
        values, vectors = np.linalg.eigh(scaled @ scaled.T)
        values = np.maximum(values, 0)
        inverse = solve_triangular(rows[chosen], np.eye(count), lower=True, check_finite=False)
        x[:count] = known.x[chosen]
        whiten[:count, :count] = np.sqrt(values / (1 + values))[:, None] * (vectors.T @ inverse)
        weights[:count] = inverse.T @ (vectors @ ((vectors.T @ (scaled @ (known.y / std))) / (1 + values)))
        spread[:count] = np.sqrt(1 / (1 + values))
    keep = np.arange(points) < count
    return Process(hyper, np.int32(len(known.y)), x, keep, whiten, weights, np.zeros(points), spread)


def _chosen(hyper: Hyperparameters, known: Known, points: int) -> tuple[np.ndarray, np.ndarray]:
    """(indices (m,) of the points, factor (n, m) of the prior covariance)."""
    count = len(known.y)
    left = evidence.prior_variance(hyper) * np.ones(count)
    least, best = _CERTAIN * left.max(initial=0), np.argsort(-known.y, kind="stable")[: points // 2]
    rows, chosen = np.zeros((count, min(points, count))), []
    for among in (best, np.arange(count)):
        while len(chosen) < (points // 2 if among is best else points) and len(chosen) < count:
            pivot = among[int(np.argmax(left[among]))]
            if left[pivot] <= least:
                break
            step = len(chosen)
            column = (
                evidence.covariances(hyper, known.x, known.x[pivot][None])[:, 0] - rows[:, :step] @ rows[pivot, :step]
            )
            rows[:, step] = column / np.sqrt(left[pivot])
            left = np.maximum(left - rows[:, step] ** 2, 0)
            left[pivot] = 0
            chosen.append(int(pivot))
    return np.array(chosen, int), rows[:, : len(chosen)]
