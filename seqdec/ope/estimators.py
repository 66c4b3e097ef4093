r"""Value of a policy estimated from another policy's log: estimators, each a pure function of arrays.

With context x_i, action a_i, reward r_i and propensity p_i in row i, target probabilities pi(a | x_i), weights
w_i = pi(a_i | x_i) / p_i and predicted rewards q(x_i, a), every estimate is a ratio of sums over rows,

    value = sum_i numerator_i / sum_i denominator_i

so that one bootstrap serves all of them:

    IPS            w r                             1         Horvitz, Thompson, 1952
    SNIPS          w r                             w         Swaminathan, Joachims, 2015
    clipped IPS    min(w, M) r                     1         Bottou et al., 2013
    direct method  sum_a pi(a) q(a)                1
    DR             direct + w (r - q)              1         Dudik, Langford, Li, 2011
    SWITCH-DR      direct + w 1[w <= tau] (r - q)  1         Wang, Agarwal, Dudik, 2017
    replay         accepted r                      accepted  Li, Chu, Langford, Wang, 2011

Where no row has a weight, IPS, SNIPS, clipped IPS and replay are NaN, and DR and SWITCH-DR are the direct method.

IPS is unbiased if the propensities are right and positive wherever the target's probabilities are. So is DR for any q
that was not fitted to the row it predicts (`seqdec.ope.cross_fit`, `seqdec.ope.prequential`); DR is also unbiased if
the propensities are wrong but q is right. The others trade bias for variance.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from seqdec import checks
from seqdec.ope.columns import by_action
from seqdec.ope.log import Log, check_log
from seqdec.registry import Registry


class Terms(NamedTuple):
    """Contribution of each row to an estimate."""

    numerator: np.ndarray
    """(n,)"""
    denominator: np.ndarray
    """(n,)"""

    @property
    def value(self) -> float:
        """The estimate; NaN if the denominators sum to zero."""
        total = self.denominator.sum()
        return float(self.numerator.sum() / total) if total else float("nan")


class Estimator(NamedTuple):
    """A row of the registry."""

    terms: Callable[..., Terms] | str
    """(log, target, ...) -> Terms, or "module:function", which is imported on first use"""
    takes: tuple[str, ...] = ()
    """its other arguments among those of `seqdec.ope.evaluate`: "predicted", "seed", "max_weight", "threshold\""""
    weighted: bool = True
    """whether it uses propensities"""


class Target(NamedTuple):
    """A target policy that fits a log, as `check_target` returns it."""

    probabilities: np.ndarray
    """(n, k) float64, zero for masked actions"""
    weights: np.ndarray
    """(n,) the target's probability of the logged action over its propensity; NaN where that is unknown"""


class Predicted(NamedTuple):
    """Predicted rewards that fit a log, as `check_predicted` returns them."""

    rewards: np.ndarray
    """(n, k) float64, zero for masked actions"""


def check_target(log: Log, target: np.ndarray | Target) -> Target:
    """Validated probabilities and weights of a policy; a `Target` is returned as it is.

    Args:
        log: decisions of the logging policy.
        target: (n, k) probabilities of all actions under the policy to be evaluated; columns of a table that are names
            of actions count by name. Each may miss its range, and each row a sum of 1, by 0.00001, as float32 rounds.

    Raises:
        TypeError: not a log; or not numbers, such as a function.
        ValueError: a row is not a distribution over the allowed actions.
    """
    check_log(log)
    if isinstance(target, Target):
        return target
    target = _of_all_actions("target", "probability", log, target)
    for wrong, reason in (
        (~(target >= -checks.TOLERANCE).all(axis=1), "hold a probability that is not >= 0"),
        (np.abs(target.sum(axis=1) - 1) > checks.TOLERANCE, "do not sum to 1"),
        (
            (target * ~log.mask).max(axis=1) > checks.TOLERANCE,
            "give an action that is masked out a positive probability",
        ),
    ):
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(f"target, row {row}: the probabilities {reason}: {np.round(target[row], 6).tolist()}")
    target = np.where(log.mask, np.maximum(target, 0.0), 0.0)
    return Target(target, target[np.arange(len(log.action)), log.action] / log.propensity)


def check_predicted(log: Log, predicted: np.ndarray | Predicted) -> Predicted:
    """Validated predictions of a reward model; a `Predicted` is returned as it is.

    Args:
        log: decisions of the logging policy.
        predicted: (n, k) predicted reward of every action in every row.

    Raises:
        TypeError: not numbers, such as a function.
        ValueError: another shape, or a prediction for an allowed action that is not finite.
    """
    if isinstance(predicted, Predicted):
        return predicted
    predicted = _of_all_actions("predicted", "reward", log, predicted)
    wrong = (~np.isfinite(predicted) & log.mask).any(axis=1)
    if wrong.any():
        raise ValueError(f"predicted, row {int(np.argmax(wrong))}: a predicted reward is not finite")
    return Predicted(np.where(log.mask, predicted, 0.0))


def _of_all_actions(name: str, what: str, log: Log, given: Any) -> np.ndarray:
    """(n, k) float64, a number for every action in every row.

    Raises:
        TypeError: not numbers.
        ValueError: another shape.
    """
    shape = log.mask.shape
    given = by_action(name, given, log.action_names or range(shape[1]))
    try:
        array = np.asarray(checks.as_array(name, given), np.float64)
        if not array.ndim:
            raise TypeError("not an array")
    except (TypeError, ValueError) as error:
        kind = "a function" if callable(given) else type(given).__name__
        raise TypeError(
            f"{name} must be an array {shape} with the {what} of every action in every row; got {kind}: compute the "
            f"array first, as with np.array([policy(x) for x in log.context])"
        ) from error
    if array.shape != shape:
        remedy = ""
        if array.shape == shape[:1]:
            remedy = f"; for one action in each row, pass np.eye({shape[1]})[actions]"
        plural = {"probability": "probabilities", "reward": "rewards"}[what]
        raise ValueError(f"{name} must hold the {plural} of all actions, {shape}; got {array.shape}{remedy}")
    return array


def weights(log: Log, target: np.ndarray | Target) -> np.ndarray:
    """(n,) w, the target's probability of the logged action over its propensity.

    Arguments and errors as in `check_target`; ValueError also for a log without propensities.
    """
    target = check_target(log, target)
    if not log.known_propensities:
        raise ValueError(
            "the log has no propensities: name their column, Log.from_pandas(..., propensity=...), estimate them with "
            "seqdec.ope.estimate_propensities, or use the direct method"
        )
    return target.weights


def ips(log: Log, target: np.ndarray | Target) -> Terms:
    """Inverse propensity scoring. Arguments and errors as in `check_target`."""
    w = weights(log, target)
    return _mean(w * log.reward, supported=w.any())


def snips(log: Log, target: np.ndarray | Target) -> Terms:
    """Self-normalised inverse propensity scoring. Arguments and errors as in `check_target`."""
    w = weights(log, target)
    return Terms(w * log.reward, w)


def clipped_ips(log: Log, target: np.ndarray | Target, *, max_weight: float = 10.0) -> Terms:
    """Inverse propensity scoring with weights clipped at `max_weight` > 0. Otherwise as `check_target`."""
    checks.positive("max_weight", max_weight)
    w = np.minimum(weights(log, target), max_weight)
    return _mean(w * log.reward, supported=w.any())


def direct_method(log: Log, target: np.ndarray | Target, predicted: np.ndarray | Predicted) -> Terms:
    """Expected predicted reward under the target. Arguments and errors as in `check_target` and `check_predicted`."""
    rewards = check_predicted(log, predicted).rewards
    return _mean((check_target(log, target).probabilities * rewards).sum(axis=1))


def doubly_robust(log: Log, target: np.ndarray | Target, predicted: np.ndarray | Predicted) -> Terms:
    """Direct method, corrected by the weighted errors of the model. Arguments and errors as in `direct_method`."""
    return _corrected(log, check_target(log, target), check_predicted(log, predicted), threshold=np.inf)


def switch_dr(
    log: Log, target: np.ndarray | Target, predicted: np.ndarray | Predicted, *, threshold: float = 10.0
) -> Terms:
    """Doubly robust in rows whose weight is at most `threshold` > 0, the direct method in all others.

    Other arguments and errors as in `direct_method`.
    """
    checks.positive("threshold", threshold)
    return _corrected(log, check_target(log, target), check_predicted(log, predicted), threshold)


def replay(log: Log, target: np.ndarray | Target, *, seed: int) -> Terms:
    """Replay: the mean reward of the rows that rejection sampling accepts.

    Row i is accepted with probability w_i / max w, which makes the accepted rows a sample of the target's own
    interaction. With uniform propensities and a deterministic target these are the rows in which both agree.

    Args:
        log: decisions of the logging policy.
        target: as in `check_target`.
        seed: of the rejection sampling.
    """
    w = weights(log, target)
    accepted = (np.random.default_rng(checks.seed("seed", seed)).random(len(w)) * w.max() < w).astype(np.float64)
    return Terms(accepted * log.reward, accepted)


ESTIMATORS: Mapping[str, Estimator] = {
    "ips": Estimator(ips),
    "snips": Estimator(snips),
    "clipped_ips": Estimator(clipped_ips, ("max_weight",)),
    "replay": Estimator(replay, ("seed",)),
    "direct_method": Estimator(direct_method, ("predicted",), weighted=False),
    "doubly_robust": Estimator(doubly_robust, ("predicted",)),
    "switch_dr": Estimator(switch_dr, ("predicted", "threshold")),
}
"""In the order of the table of `seqdec.ope.evaluate`. A new estimator is one row here."""

REGISTRY: Registry[Terms] = Registry("estimator", {name: row.terms for name, row in ESTIMATORS.items()})


def _mean(terms: np.ndarray, *, supported: Any = True) -> Terms:
    """The mean of `terms`; NaN if not `supported`: the log then says nothing about the target."""
    return Terms(terms, np.full_like(terms, float(supported)))


def _corrected(log: Log, target: Target, predicted: Predicted, threshold: float) -> Terms:
    """Direct method plus the weighted errors of the model in the rows whose weight is at most `threshold`."""
    error = log.reward - predicted.rewards[np.arange(len(log.action)), log.action]
    w = weights(log, target)
    correction = np.where(w <= threshold, w, 0.0) * error
    return _mean(direct_method(log, target, predicted).numerator + correction)
