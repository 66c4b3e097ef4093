r"""What a policy would have earned, from the log of another: seven estimators, each a pure function of arrays.

With context x_i, action a_i, reward r_i and propensity p_i in row i, target probabilities pi(a | x_i), weights
w_i = pi(a_i | x_i) / p_i and predicted rewards q(x_i, a), every estimate is a ratio of sums over rows,

    value = sum_i numerator_i / sum_i denominator_i

so that one bootstrap serves all of them:

    IPS          w r                             1      Horvitz, Thompson, 1952
    SNIPS        w r                             w      Swaminathan, Joachims, 2015
    clipped IPS  min(w, M) r                     1      Bottou et al., 2013
    direct       sum_a pi(a) q(a)                1
    DR           direct + w (r - q)              1      Dudik, Langford, Li, 2011
    SWITCH-DR    direct + w 1[w <= tau] (r - q)  1      Wang, Agarwal, Dudik, 2017
    replay       accepted r                      accepted   Li, Chu, Langford, Wang, 2011

IPS is unbiased where the propensities are right and positive wherever the target's probabilities are. So is DR whatever
q, if q was not fitted to the row it is asked about (`seqdec.ope.cross_fit`, `seqdec.ope.prequential`); it also is where
the propensities are wrong but q is right. The others trade bias for variance.
"""

from typing import NamedTuple

import numpy as np

from seqdec.ope.log import Log


class Terms(NamedTuple):
    """What each row contributes to an estimate."""

    numerator: np.ndarray
    """(n,)"""
    denominator: np.ndarray
    """(n,)"""

    @property
    def value(self) -> float:
        """The estimate; NaN where the denominators sum to zero."""
        total = self.denominator.sum()
        return float(self.numerator.sum() / total) if total else float("nan")


def weights(log: Log, target: np.ndarray) -> np.ndarray:
    """(n,) w, the target's probability of the logged action over its propensity.

    `target` (n, k) holds the probabilities of all actions under the policy to be valued. Raises ValueError unless they
    are those of distributions over the allowed actions.
    """
    return _checked(log, target)[np.arange(len(log.action)), log.action] / log.propensity


def ips(log: Log, target: np.ndarray) -> Terms:
    """Inverse propensity scoring. Arguments and errors as in `weights`."""
    return _mean(weights(log, target) * log.reward)


def snips(log: Log, target: np.ndarray) -> Terms:
    """Self-normalised inverse propensity scoring. Arguments and errors as in `weights`."""
    w = weights(log, target)
    return Terms(w * log.reward, w)


def clipped_ips(log: Log, target: np.ndarray, *, maximum: float = 10.0) -> Terms:
    """Inverse propensity scoring with weights cut at `maximum` > 0. Otherwise as `weights`."""
    _check_positive("maximum", maximum)
    return _mean(np.minimum(weights(log, target), maximum) * log.reward)


def direct(log: Log, target: np.ndarray, predicted: np.ndarray) -> Terms:
    """Direct method: what a reward model predicts, `predicted` (n, k) for every row and action.

    Otherwise as `weights`; raises ValueError for predictions of another shape and, where allowed, not finite.
    """
    target, predicted = _checked(log, target), _check_predicted(log, predicted)
    return _mean((target * predicted).sum(axis=1))


def doubly_robust(log: Log, target: np.ndarray, predicted: np.ndarray) -> Terms:
    """Direct method, corrected by the weighted errors of the model. Arguments and errors as in `direct`."""
    return switch_dr(log, target, predicted, threshold=np.inf)


def switch_dr(log: Log, target: np.ndarray, predicted: np.ndarray, *, threshold: float = 10.0) -> Terms:
    """Doubly robust where the weight is at most `threshold` > 0, else the direct method alone. As `direct`."""
    _check_positive("threshold", threshold)
    w, rows = weights(log, target), np.arange(len(log.action))
    error = log.reward - _check_predicted(log, predicted)[rows, log.action]
    correction = np.where(w <= threshold, w, 0.0) * error
    return _mean(direct(log, target, predicted).numerator + correction)


def replay(log: Log, target: np.ndarray, *, seed: int) -> Terms:
    """Replay: the mean reward of the rows that rejection sampling accepts.

    Row i is accepted with probability w_i / max w, which makes the accepted rows a sample of what the target would have
    met and done. With uniform propensities and a deterministic target these are the rows in which both agree. Otherwise
    as `weights`; `seed` draws which rows are accepted.
    """
    w = weights(log, target)
    accepted = (np.random.default_rng(seed).random(len(w)) * w.max() < w).astype(np.float64)
    return Terms(accepted * log.reward, accepted)


def _mean(terms: np.ndarray) -> Terms:
    return Terms(terms, np.ones_like(terms))


def _checked(log: Log, target: np.ndarray) -> np.ndarray:
    """The target as float64 probabilities."""
    target = np.asarray(target, np.float64)
    if target.shape != log.mask.shape:
        raise ValueError(f"target must hold the probabilities of all actions, {log.mask.shape}; got {target.shape}")
    for wrong, reason in (
        (~(target >= 0).all(axis=1), "hold a probability that is not >= 0"),
        (np.abs(target.sum(axis=1) - 1) > 1e-5, "do not sum to 1"),
        ((target * ~log.mask).max(axis=1) > 0, "give an action that is masked out a chance"),
    ):
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(f"target, row {row}: the probabilities {reason}: {np.round(target[row], 6).tolist()}")
    return target


def _check_predicted(log: Log, predicted: np.ndarray) -> np.ndarray:
    """Predictions as float64, zero for actions that are masked out."""
    predicted = np.asarray(predicted, np.float64)
    if predicted.shape != log.mask.shape:
        raise ValueError(f"predicted must hold the rewards of all actions, {log.mask.shape}; got {predicted.shape}")
    wrong = (~np.isfinite(predicted) & log.mask).any(axis=1)
    if wrong.any():
        raise ValueError(f"predicted, row {int(np.argmax(wrong))}: a predicted reward is not finite")
    return np.where(log.mask, predicted, 0.0)


def _check_positive(name: str, value: float) -> None:
    if not value > 0:
        raise ValueError(f"{name} must be positive; got {value!r}")
