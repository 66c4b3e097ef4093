"""Monotone warp of responses to those of a stationary Gaussian process.

    z = (psi((y - c) / s) - m) / d

with Yeo and Johnson's transform of power p between 0 and 2:

    psi(u) = ((1 + u)^p - 1) / p              for u >= 0,    log(1 + u)   for p = 0
    psi(u) = -((1 - u)^(2 - p) - 1) / (2 - p)    for u < 0,    -log(1 - u)  for p = 2

p = 1 is the identity; p = 1.5 and 2 compress responses far below c, then the best one. Power and scale maximize, on a
grid, the marginal likelihood of the responses y (Snelson, Rasmussen, Ghahramani, "Warped Gaussian processes", 2003):

    log p(y) = -n/2 log(w' M^-1 w / n) - 1/2 log det M + sum_i log psi'((y_i - c) / s) / s,    w = psi - mean psi
    M = 1 1' + k(r / (l sqrt d)) + v I

at the best amplitude and the best of a grid of length scales l, log l ~ N(-1/2, 1), and noise variances v. The identity
has prior probability one half.

Responses that `seqdec.bo.outliers` suspects are left out.

Warps of outcomes keep the sign: the identity or psi(u) = sign(u) log(1 + |u|) with c = 0, without outliers.

Sources of psi: Yeo, Johnson, "A new family of power transformations to improve normality or symmetry", 2000; for
outcomes: Eriksson, Poloczek, "Scalable constrained Bayesian optimization", 2021.
"""

import functools
import math
from typing import NamedTuple

import numpy as np

from seqdec.bo import outliers
from seqdec.kernels import matern52_at

_LENGTH_SCALES = np.array([0.1, 0.2, 0.4, 0.8, 1.6, 3.2])
"""In units of the root of the number of columns."""
_NOISE_VARIANCES = np.array([1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1e-1, 1.0])
_POWERS = (1.5, 2.0)
_SCALES, _LEAST = 8, 0.25
"""Scales for each power; their lowest quantile of the distances from the origin."""
_SMALL = 0.1
"""Quantile of the sizes that is an outcome's smallest scale."""
_FEWEST = 5
"""Responses below which the identity is taken."""
_MOST = 256
"""Most responses used for the fit."""
_MODERATE = 1e-4
"""Least scale of a warp in a hypervolume, as a share of the responses' range."""
_FAR = 10.0
"""A new response warped beyond it calls for a new warp."""


class Warp(NamedTuple):
    """The warp z of responses y, larger is better."""

    origin: float = 0.0
    """c"""
    scale: float = 1.0
    """s > 0"""
    power: float = 1.0
    """p"""
    mean: float = 0.0
    """m"""
    std: float = 1.0
    """d > 0"""
    fence: float = -math.inf
    """The least response that is no outlier, if some are."""
    outliers: tuple[int, ...] = ()
    """Which of the responses it was fitted to."""
    fitted: int = 0
    """Responses it was fitted to."""
    symmetric: bool = False
    """Whether it is that of an outcome."""

    def forward(self, y: np.ndarray) -> np.ndarray:
        """The warps z of `y`."""
        u = (y - self.origin) / self.scale
        psi = np.sign(u) * np.log1p(np.abs(u)) if self.symmetric else _psi(u, self.power)
        return (psi - self.mean) / self.std

    def slope(self, y: np.ndarray) -> np.ndarray:
        """dz/dy at `y`."""
        u = (y - self.origin) / self.scale
        log_slope = -np.log1p(np.abs(u)) if self.symmetric else _log_slope(u, self.power)
        return np.exp(log_slope) / (self.scale * self.std)

    def inverse(self, z: np.ndarray) -> np.ndarray:
        """The responses y of warps `z`."""
        w = z * self.std + self.mean
        u = np.sign(w) * np.expm1(np.abs(w)) if self.symmetric else _inverse_psi(w, self.power)
        return self.origin + self.scale * u

    def expected_inverse(self, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
        """E y for z ~ N(mean, std^2), by Gauss-Hermite quadrature."""
        if self.power == 1 and not self.symmetric:
            return self.inverse(mean)
        nodes, weights = np.polynomial.hermite_e.hermegauss(32)
        return self.inverse(mean[..., None] + std[..., None] * nodes) @ (weights / weights.sum())

    def is_far(self, y: np.ndarray) -> bool:
        """Whether some of `y`, outliers apart, are far from those it was fitted to."""
        return bool(np.any(np.abs(self.forward(y[y >= self.fence])) > _FAR))


def _psi(u: np.ndarray, power: float) -> np.ndarray:
    return np.where(u >= 0, _box_cox(np.maximum(u, 0), power), -_box_cox(np.maximum(-u, 0), 2 - power))


def _inverse_psi(w: np.ndarray, power: float) -> np.ndarray:
    return np.where(w >= 0, _inverse(np.maximum(w, 0), power), -_inverse(np.maximum(-w, 0), 2 - power))


def _log_slope(u: np.ndarray, power: float) -> np.ndarray:
    return np.where(u >= 0, power - 1, 1 - power) * np.log1p(np.abs(u))


def _box_cox(u: np.ndarray, power: float) -> np.ndarray:
    """((1 + u)^p - 1) / p for u >= 0, log(1 + u) for p = 0."""
    if power == 1:  # the identity, to the last digit
        return u
    return np.log1p(u) if power == 0 else np.expm1(power * np.log1p(u)) / power


def _inverse(w: np.ndarray, power: float) -> np.ndarray:
    """Of `_box_cox` for w >= 0."""
    if power == 1:
        return w
    return np.expm1(w) if power == 0 else np.expm1(np.log1p(power * w) / power)


def standardized(y: np.ndarray) -> Warp:
    """The identity, standardized."""
    size = float(np.abs(y).max(initial=0.0)) or 1.0  # squares of large responses overflow
    std = float((y / size).std())
    return Warp(scale=size, mean=float((y / size).mean()), std=std if std > 0 else 1.0, fitted=len(y))


def fit(x: np.ndarray, y: np.ndarray, places: np.ndarray) -> Warp:
    """The most likely warp for responses `y` (n,) at unit points `x` (n, d) of the parameters `places` (d,)."""
    identity = standardized(y)
    if len(y) < _FEWEST or y.min() == y.max():
        return identity

    @functools.cache
    def among(kept: bytes) -> Warp:
        inner = np.frombuffer(kept, bool)
        scale = standardized(y[inner]).scale
        rows = np.unique(np.linspace(0, inner.sum() - 1, min(inner.sum(), _MOST)).astype(int))
        warp = _among(x[inner][rows], y[inner][rows] / scale)
        fence = -math.inf if inner.all() else float(y[inner].min())
        warp = Warp(warp.origin * scale, warp.scale * scale, warp.power, fence=fence)
        return _standard(warp, y[inner])._replace(outliers=tuple(np.flatnonzero(~inner).tolist()), fitted=len(y))

    def warped(kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        warp = among(kept.tobytes())
        return warp.forward(y), np.log(warp.slope(y))

    return among(outliers.inliers(x, y, places, warped).tobytes())


def fit_outcome(x: np.ndarray, y: np.ndarray) -> Warp:
    """The most likely warp for outcomes `y` (n,) at unit points `x` (n, d)."""
    identity = standardized(y)
    sizes = np.abs(y[y != 0]) / identity.scale
    if len(y) < _FEWEST or y.min() == y.max() or not len(sizes):
        return identity
    rows = np.unique(np.linspace(0, len(y) - 1, min(len(y), _MOST)).astype(int))
    scales = np.geomspace(np.quantile(sizes, _SMALL), sizes.max(), _SCALES)
    warps = [Warp(), *(Warp(scale=float(scale), symmetric=True) for scale in scales)]
    _, warp = _best(x[rows], y[rows] / identity.scale, warps)
    return _standard(warp._replace(scale=warp.scale * identity.scale), y) if warp.symmetric else identity


def _standard(warp: Warp, y: np.ndarray) -> Warp:
    """The warp, rescaled to mean 0 and variance 1 of the warped `y` that are not below the fence."""
    inner = warp.forward(y[y >= warp.fence])
    return warp._replace(mean=float(inner.mean()), std=float(inner.std()) or 1.0, fitted=len(y))


def moderate(warp: Warp, y: np.ndarray) -> Warp:
    """The warp of responses `y` (n,) for hypervolumes; the identity, without outliers, where its scale is too small."""
    kept = y[y >= warp.fence]
    if warp.power == 1 or warp.scale >= _MODERATE * np.ptp(kept):
        return warp
    return standardized(kept)._replace(fence=warp.fence, fitted=len(y))


def _among(x: np.ndarray, y: np.ndarray) -> Warp:
    """The best warp."""
    return Warp() if y.min() == y.max() else _best(x, y, _candidates(y))[1]


def _best(x: np.ndarray, y: np.ndarray, warps: list[Warp]) -> tuple[float, Warp]:
    """(log posterior, warp) of the best of `warps`, the first of which is the identity."""
    warped = np.stack([warp.forward(y) for warp in warps], 1)
    jacobians = np.array([np.sum(np.log(warp.slope(y))) for warp in warps])
    prior = np.full(len(warps), -math.log(2 * (len(warps) - 1)))
    prior[0] = -math.log(2)
    scores = _log_likelihoods(x, warped - warped.mean(0)) + jacobians + prior
    best = int(np.argmax(np.where(np.isfinite(scores), scores, -np.inf)))
    return float(scores[best]), warps[best]


def _candidates(y: np.ndarray) -> list[Warp]:
    """Identity first."""
    best = float(y.max())
    gaps = best - y
    scales = np.geomspace(np.quantile(gaps[gaps > 0], _LEAST), gaps.max(), _SCALES)
    warps = [Warp(best, float(scale), power) for power in _POWERS for scale in scales]
    return [Warp(float(np.median(y)), float(gaps.max())), *warps]


def _log_likelihoods(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """(k,) largest log likelihoods of the columns of `w` (n, k)."""
    count = len(w)
    squares = np.maximum(np.sum(x**2, 1)[:, None] + np.sum(x**2, 1) - 2 * x @ x.T, 0)
    best = np.full(w.shape[1], -np.inf)
    for length in _LENGTH_SCALES:
        r = np.sqrt(5 * squares / x.shape[1]) / length
        values, vectors = np.linalg.eigh(1 + matern52_at(r))
        rotated = (vectors.T @ w) ** 2
        spectra = np.maximum(values, 0)[:, None] + _NOISE_VARIANCES
        amplitudes = rotated.T @ (1 / spectra) / count
        found = -0.5 * count * np.log(amplitudes) - 0.5 * np.log(spectra).sum(0)
        prior = -0.5 * (math.log(length) + 0.5) ** 2
        best = np.maximum(best, found.max(1) + prior)
    return best
