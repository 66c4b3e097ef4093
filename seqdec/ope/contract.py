"""What every estimator of off-policy evaluation starts from, and its form.

An estimator is a frozen dataclass of settings whose `terms` is a pure function from `Evidence` to the contribution of
each row to one or several ratios of sums (`Terms`), so that one bootstrap serves all estimators.
"""

import abc
import dataclasses
import functools
import re
from typing import Any, ClassVar, NamedTuple

import numpy as np

from seqdec.boundary import checks
from seqdec.ope.columns import by_action
from seqdec.ope.intervals import Terms
from seqdec.ope.log import Log, check_log


class Target(NamedTuple):
    """A target policy that fits a log, as `check_target` returns it."""

    probabilities: np.ndarray
    """(n, k) float64, zero for masked actions"""
    weights: np.ndarray
    """(n,) the target's probability of the logged action over its propensity; NaN where that is unknown"""


class Evidence(NamedTuple):
    """What `evidence` returns of a `Log`.

    Of a log in batches, contexts and the numbers of each action are not kept: these arrays have no rows or columns.
    """

    log: Log
    """decisions of the logging policy"""
    target: Target
    """to be evaluated"""
    predicted: np.ndarray | None
    """(n, k) rewards by a model that was not fitted to the row, zero for masked actions; None without one"""
    weights: np.ndarray
    """(n,) w, the target's probability of the logged action over its propensity"""
    direct: np.ndarray
    """(n,) expected predicted reward under the target; NaN without predictions"""
    residual: np.ndarray
    """(n,) reward minus the predicted reward of the logged action; NaN without predictions"""
    law: np.ndarray
    """(k,) mean probability of each action under the target"""
    usual_weight: float
    """mean weight of a decision of the target if the logging policy plays all unlogged actions equally often"""
    seed: int
    """of estimators that draw random numbers"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimator(abc.ABC):
    """A configured estimator: its fields are its settings."""

    needs: ClassVar[tuple[str, ...]] = ("propensities",)
    """of "propensities", "predicted" and "contexts"; the last for those that use contexts, or the probabilities or
    predicted rewards of each action, which are not kept of a log in batches"""
    log: ClassVar[type] = Log
    """the kind of log that it is for"""
    extended: ClassVar[bool] = False
    """whether terms of a row are the same without the other rows, so that the default interval may add a row"""

    @abc.abstractmethod
    def terms(self, evidence: Any) -> Terms:
        """Contribution of each row, of `Evidence` or that of another kind of log."""

    def references(self, evidence: Any) -> "tuple[Estimator, ...]":
        """Estimators of the same value without the bias of this one.

        The interval is that of the first whose needs are met, else of this estimator.
        """
        return ()

    @property
    def name(self) -> str:
        """Its row in tables: its name in the registry, with the settings that are not defaults."""
        settings = [(field, getattr(self, field.name)) for field in dataclasses.fields(self)]
        shown = [
            f"{field.name}={value!r}"
            for field, value in settings
            if isinstance(value, str | float | int) and value != field.default
        ]
        return registered_name(type(self)) + (f"({', '.join(shown)})" if shown else "")


def registered_name(estimator: type[Estimator]) -> str:
    """The name in the registry: SubGaussianDR is sub_gaussian_dr."""
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", estimator.__name__).lower()


@functools.singledispatch
def evidence(log: Any, target: Any, predicted: Any = None, *, seed: int) -> Any:
    """What estimators start from: a log, a target policy, predictions, and what follows from them.

    Args:
        log: a `Log`, a `seqdec.ope.SlateLog` or a `seqdec.ope.ContinuousLog`; other kinds are registered here.
        target: of a `Log` as in `check_target`; of others see there.
        predicted: of a `Log` as in `check_predicted`; None without predictions.
        seed: of estimators that draw random numbers.

    Raises:
        TypeError: not a log, or not numbers.
        ValueError: arrays that do not fit the log.
    """
    check_log(log)


@evidence.register
def _of_actions(log: Log, target: np.ndarray | Target, predicted: np.ndarray | None = None, *, seed: int) -> Evidence:
    given = _target(log, target)
    law, weights = given.probabilities, given.weights
    rows = np.arange(len(log.action))
    direct = residual = np.broadcast_to(np.nan, len(rows))
    if predicted is not None:
        predicted = check_predicted(log, predicted)
        direct = np.einsum("na,na->n", law, predicted)
        residual = log.reward - predicted[rows, log.action]
    # Mean over rows of sum_a pi(a)^2 / p(a), with p of the logged action known and equal for all others.
    rest = np.maximum((1 - log.propensity) / np.maximum(log.mask.sum(axis=1) - 1, 1), 1e-6)
    own = law[rows, log.action]
    usual = float(np.mean(own * weights + (np.einsum("na,na->n", law, law) - own**2) / rest))
    number = checks.seed("seed", seed)
    return Evidence(log, given, predicted, weights, direct, residual, law.mean(axis=0), usual, number)


def missing(evidence: Any) -> dict[str, str]:
    """The needs of estimators that the evidence does not meet -> the remedy."""
    remedies = {}
    if not evidence.log.known_propensities:
        remedies["propensities"] = (
            "propensities and the log has no propensities: name their column, Log.from_pandas(..., propensity=...), "
            "estimate them with seqdec.ope.estimate_propensities, or use the direct method"
        )
    if evidence.predicted is None:
        remedies["predicted"] = "predicted rewards, such as those of seqdec.ope.predict_rewards(log, seed=0)"
    if isinstance(evidence, Evidence) and len(evidence.target.probabilities) < len(evidence.log.action):
        remedies["contexts"] = (
            "contexts and the probabilities of all actions, which are not kept of a log in batches: read a part of the "
            "log with Log.load"
        )
    return remedies


def check_needs(estimator: Estimator, evidence: Any) -> None:
    """Raises ValueError, with the remedy, for an estimator that needs what the evidence lacks."""
    if not isinstance(evidence.log, estimator.log):
        name, got = estimator.log.__name__, type(evidence.log).__name__
        raise ValueError(f"{estimator.name} is for a {name}; got a {got}")
    remedies = missing(evidence)
    for need in estimator.needs:
        if need in remedies:
            raise ValueError(f"{estimator.name} needs {remedies[need]}")


def check_target(log: Log, target: np.ndarray | Target) -> Target:
    """Validated probabilities and weights of a policy; a `Target` is returned as it is.

    Args:
        log: decisions of the logging policy.
        target: (n, k) probabilities of all actions under the policy to be evaluated; columns of a table that are names
            of actions count by name. They, and their sums, may be off by 0.00001, as float32 rounds.

    Raises:
        TypeError: not a log; or not numbers, such as a function.
        ValueError: a row is not a distribution over the allowed actions.
    """
    check_log(log)
    return _target(log, target)


def _target(log: Log, target: np.ndarray | Target) -> Target:
    if isinstance(target, Target):
        return target
    target = _of_all_actions("target", "probabilities", log, target)
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


def check_predicted(log: Log, predicted: np.ndarray) -> np.ndarray:
    """Validated predictions of a reward model, (n, k) float64, of every action in every row; zero where masked.

    Raises:
        TypeError: not numbers, such as a function.
        ValueError: another shape, or a prediction for an allowed action that is not finite.
    """
    predicted = _of_all_actions("predicted", "rewards", log, predicted)
    wrong = (~np.isfinite(predicted) & log.mask).any(axis=1)
    if wrong.any():
        raise ValueError(f"predicted, row {int(np.argmax(wrong))}: a predicted reward is not finite")
    return np.where(log.mask, predicted, 0.0)


def _of_all_actions(name: str, what: str, log: Log, given: Any) -> np.ndarray:
    """(n, k) float64, a number for every action in every row."""
    shape = log.mask.shape
    try:
        array = np.asarray(
            checks.as_array(name, by_action(name, given, log.action_names or range(shape[1]))), np.float64
        )
    except TypeError as error:
        kind = "a function" if callable(given) else type(given).__name__
        raise TypeError(
            f"{name} must be an array {shape} with the {what} of all actions in every row; got {kind}: compute it "
            "first, as with np.array([policy(x) for x in log.context])"
        ) from error
    if array.shape != shape:
        remedy = f"; for one action in each row, pass np.eye({shape[1]})[actions]" * (array.shape == shape[:1])
        raise ValueError(f"{name} must hold the {what} of all actions, {shape}; got {array.shape}{remedy}")
    return array
