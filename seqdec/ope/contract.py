"""What every estimator of off-policy evaluation starts from, and what it returns.

An estimator is a configured value: a name and a pure function from `Evidence` to `Terms`, the contribution of each row
to one or several ratios of sums,

    value = sum_j (sum_i numerator_ij / sum_i denominator_ij)

so that one bootstrap serves all estimators, whether they are means, self-normalized, or both.
"""

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec

import numpy as np

from seqdec import checks
from seqdec.ope.columns import by_action
from seqdec.ope.log import Log, check_log
from seqdec.registry import spelled

P = ParamSpec("P")


class Terms(NamedTuple):
    """Contribution of each row to an estimate."""

    numerator: np.ndarray
    """(n,), or (n, j) for a sum of j ratios"""
    denominator: np.ndarray
    """as the numerator"""

    @property
    def columns(self) -> tuple[np.ndarray, np.ndarray]:
        """Both as (n, j)."""
        return tuple(part.reshape(len(part), -1) for part in self)  # pyright: ignore[reportReturnType]

    @property
    def value(self) -> float:
        """The estimate; NaN if a column of denominators sums to zero."""
        numerator, denominator = (part.sum(axis=0) for part in self.columns)
        return float((numerator / denominator).sum()) if denominator.all() else float("nan")

    @property
    def influence(self) -> np.ndarray:
        """(n,) influence of each row on the estimate: sum_j (numerator - ratio denominator) / mean denominator.

        NaN if a column of denominators sums to zero.
        """
        numerator, denominator = self.columns
        total = denominator.sum(axis=0)
        if not total.all():
            return np.full(len(numerator), np.nan)
        return ((numerator - denominator * (numerator.sum(axis=0) / total)) / total).sum(axis=1) * len(numerator)

    @property
    def std_error(self) -> float:
        """Standard error of the estimate by its influence function; NaN for one row."""
        count = len(self.numerator)
        return float(np.sqrt((self.influence**2).sum() / (count - 1) / count)) if count > 1 else float("nan")


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


class Evidence(NamedTuple):
    """A log, a target policy and predicted rewards that fit together, as `evidence` returns them."""

    log: Log
    """decisions of the logging policy"""
    target: Target
    """the policy to be evaluated"""
    predicted: Predicted | None
    """of a reward model that was not fitted to the row that it predicts; None without one"""
    seed: int
    """of estimators that draw random numbers"""

    @property
    def weights(self) -> np.ndarray:
        """(n,) w, the target's probability of the logged action over its propensity."""
        return self.target.weights

    @property
    def direct(self) -> np.ndarray:
        """(n,) expected predicted reward under the target."""
        return np.einsum("na,na->n", self.target.probabilities, self._rewards)

    @property
    def residual(self) -> np.ndarray:
        """(n,) reward minus the predicted reward of the logged action."""
        return self.log.reward - self._rewards[np.arange(len(self.log.action)), self.log.action]

    @property
    def law(self) -> np.ndarray:
        """(k,) mean probability of each action under the target."""
        return self.target.probabilities.mean(axis=0)

    @property
    def usual_weight(self) -> float:
        """Mean weight of a decision of the target if the logging policy plays all unlogged actions equally often."""
        return usual_weight(self.log, self.target)

    @property
    def _rewards(self) -> np.ndarray:
        assert self.predicted is not None, "an estimator that uses predictions must declare that it needs them"
        return self.predicted.rewards


class Expected(NamedTuple):
    """What predicted rewards say of each row, where those of all actions are not kept."""

    direct: np.ndarray
    """(n,) as in `Evidence`"""
    residual: np.ndarray
    """(n,) as in `Evidence`"""


class RowEvidence(NamedTuple):
    """`Evidence` without contexts and without the numbers of each action, for estimators that do not need them."""

    log: Log
    """without contexts, masks and features of the actions"""
    weights: np.ndarray
    """(n,) as in `Evidence`"""
    predicted: Expected | None
    """None without predictions"""
    law: np.ndarray
    """(k,) as in `Evidence`"""
    usual_weight: float
    """as in `Evidence`"""
    seed: int
    """of estimators that draw random numbers"""

    @property
    def direct(self) -> np.ndarray:
        """(n,) expected predicted reward under the target."""
        return self._expected.direct

    @property
    def residual(self) -> np.ndarray:
        """(n,) reward minus the predicted reward of the logged action."""
        return self._expected.residual

    @property
    def _expected(self) -> Expected:
        assert self.predicted is not None, "an estimator that uses predictions must declare that it needs them"
        return self.predicted


def usual_weight(log: Log, target: Target) -> float:
    """Mean over rows of sum_a pi(a)^2 / p(a), with p of the logged action known and equal for all others."""
    others = np.maximum(log.mask.sum(axis=1) - 1, 1)
    rest = np.maximum((1 - log.propensity) / others, 1e-6)
    own = target.probabilities[np.arange(len(log.action)), log.action]
    squares = np.einsum("na,na->n", target.probabilities, target.probabilities) - own**2
    return float(np.mean(own * target.weights + squares / rest))


class Estimator(NamedTuple):
    """A configured estimator."""

    terms: Callable[[Any], Terms]
    """(`Evidence`, or that of another kind of log) -> contribution of each row"""
    needs: tuple[str, ...] = ("propensities",)
    """of "propensities", "predicted" and "contexts\"; the last for those that use contexts, or the probabilities or
    predicted rewards of each action, and so not for `RowEvidence`"""
    log: type = Log
    """the kind of log that it is for"""
    references: "tuple[Estimator, ...] | Callable[[Any], tuple[Estimator, ...]]" = ()
    """estimators of the same value without the bias of this one, or a function of the evidence that returns them; the
    interval is that of the first whose needs are met, and of this estimator itself if there is none"""
    extended: bool = False
    """whether terms of a row are the same without the other rows, so that the default interval may add a row, as
    `RowEvidence`"""
    name: str = ""
    """its row in tables: its name in the registry, with the settings that are not defaults"""


def configured(factory: Callable[P, Estimator]) -> Callable[P, Estimator]:
    """Decorator of a factory of estimators: the name is that of the registry with settings, dr(shrinkage='slope')."""
    defaults = {name: part.default for name, part in inspect.signature(factory).parameters.items()}
    called = re.sub("(?<=[a-z])(?=[A-Z])", "_", factory.__name__).lower()

    @functools.wraps(factory)
    def named(*arguments: P.args, **settings: P.kwargs) -> Estimator:
        shown = [
            f"{name}={value!r}"
            for name, value in settings.items()
            if isinstance(value, str | float | int) and value != defaults[name]
        ]
        name = called + (f"({', '.join(shown)})" if shown else "")
        return factory(*arguments, **settings)._replace(name=name)

    return spelled(name=f"ope.{factory.__name__}")(named)


@functools.singledispatch
def evidence(log: Any, target: Any, predicted: Any = None, *, seed: int) -> Any:
    """What estimators start from, of a log of any kind that is registered here.

    Args:
        log: a `Log`, a `seqdec.ope.SlateLog` or a `seqdec.ope.ContinuousLog`.
        target: of a `Log` as in `check_target`; others see there.
        predicted: of a `Log` as in `check_predicted`; None without predictions.
        seed: of estimators that draw random numbers.

    Raises:
        TypeError: not a log, or not numbers.
        ValueError: arrays that do not fit the log.
    """
    check_log(log)


@evidence.register
def _of_actions(
    log: Log, target: np.ndarray | Target, predicted: np.ndarray | Predicted | None = None, *, seed: int
) -> Evidence:
    given = check_target(log, target)
    known = None if predicted is None else check_predicted(log, predicted)
    return Evidence(log, given, known, checks.seed("seed", seed))


def lacks(estimator: Estimator, evidence: Any) -> str:
    """What an estimator needs and the evidence lacks, in words with the remedy; empty where nothing is missing."""
    if not isinstance(evidence.log, estimator.log):
        return f"{estimator.name} is for a {estimator.log.__name__}; got a {type(evidence.log).__name__}"
    if "propensities" in estimator.needs and not evidence.log.known_propensities:
        return (
            f"{estimator.name} needs propensities and the log has no propensities: name their column, "
            "Log.from_pandas(..., propensity=...), estimate them with seqdec.ope.estimate_propensities, or use the "
            "direct method"
        )
    if "predicted" in estimator.needs and evidence.predicted is None:
        return f"{estimator.name} needs predicted rewards, such as those of seqdec.ope.predict_rewards(log, seed=0)"
    if "contexts" in estimator.needs and isinstance(evidence, RowEvidence):
        return (
            f"{estimator.name} needs contexts and the probabilities of all actions, which are not kept of a log in "
            "batches: read a part of the log with Log.load"
        )
    return ""


def check_needs(estimator: Estimator, evidence: Any) -> None:
    """Raises ValueError, with the remedy, for an estimator that needs what the evidence lacks."""
    if reason := lacks(estimator, evidence):
        raise ValueError(reason)


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
