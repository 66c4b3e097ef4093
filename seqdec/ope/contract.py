"""The contract of off-policy estimators."""

import abc
import dataclasses
import functools
import re
from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from seqdec.boundary import checks
from seqdec.core import Agent
from seqdec.ope.intervals import Terms
from seqdec.ope.labels import by_action, shown
from seqdec.ope.log import Log, check_log, num_allowed
from seqdec.ope.rowwise import in_rows_of

UNIFORM = "uniform"
"""The policy that plays all allowed actions alike."""


class Target(NamedTuple):
    """A validated target policy, from `check_target`."""

    probabilities: Any
    """(n, k) float64, zero for masked actions; sparse (CSR) if given so"""
    weights: np.ndarray
    """(n,) target / propensity of the logged action; NaN where unknown"""


class Evidence(NamedTuple):
    """What estimators start from.

    For logs in batches contexts and arrays of all actions are empty, as are a sparse target's probabilities.
    """

    log: Log
    """decisions of the logging policy"""
    target: Target
    """to be evaluated"""
    predicted: np.ndarray | None
    """(n, k) cross-fitted predicted rewards, zero for masked actions; None without a model"""
    weights: np.ndarray
    """(n,) w = target / propensity of the logged action"""
    direct: np.ndarray
    """(n,) expected predicted reward under the target; NaN without a model"""
    residual: np.ndarray
    """(n,) reward minus prediction of the logged action; NaN without a model"""
    law: np.ndarray
    """(k,) mean probability of each action under the target"""
    usual_weight: float
    """mean weight of the target's decisions by `Log.logging`, else if all unlogged actions are played equally often"""
    seed: int
    """of random estimators"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimator(abc.ABC):
    """A frozen dataclass whose fields are settings."""

    needs: ClassVar[tuple[str, ...]] = ("propensities",)
    """of "propensities", "predicted", "contexts"; the last for contexts or numbers of each action, absent in batches"""
    log: ClassVar[type] = Log
    """kind of log"""

    @abc.abstractmethod
    def terms(self, evidence: Any) -> Terms:
        """Contribution of each row."""

    def references(self, evidence: Any) -> "tuple[Estimator, ...]":
        """Unbiased estimators of the same value; the first usable one, else this, gives the interval."""
        return ()

    @property
    def name(self) -> str:
        """Registered name and settings that are not defaults."""
        settings = [(field, getattr(self, field.name)) for field in dataclasses.fields(self)]
        shown = [
            f"{field.name}={value!r}"
            for field, value in settings
            if isinstance(value, str | float | int) and value != field.default
        ]
        return registered_name(type(self)) + (f"({', '.join(shown)})" if shown else "")


def named(estimators: Iterable[Estimator]) -> list[str]:
    """The name of each."""
    return [one.name for one in estimators]


def registered_name(estimator: type[Estimator]) -> str:
    """The name in the registry, such as sub_gaussian_dr."""
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", estimator.__name__).lower()


@functools.singledispatch
def evidence(log: Any, target: Any, predicted: Any = None, *, seed: int) -> Any:
    """The evidence of a log, a target policy and predictions.

    Args:
        log: `Log`, `seqdec.ope.SlateLog`, `seqdec.ope.ContinuousLog` or another registered kind.
        target: as in `check_target`.
        predicted: as in `check_predicted`, or None.
        seed: seed for random estimators.

    Raises:
        TypeError: not a log, or not numbers.
        ValueError: arrays that do not fit the log.
    """
    check_log(log)


@evidence.register
def _of_actions(log: Log, target: np.ndarray | Target, predicted: np.ndarray | None = None, *, seed: int) -> Evidence:
    if not len(log):
        raise ValueError("log must have at least one row; got none")
    given = policy("target", log, target)
    if log.logging is not None and np.isnan(log.logging).any():  # unknown in some rows
        log = log.replace(logging=None)
    law, weights = given.probabilities, given.weights
    rows, sparse = np.arange(len(log.action)), _is_sparse(law)
    direct = residual = np.broadcast_to(np.nan, len(rows))
    if predicted is not None:
        predicted = check_predicted(log, predicted)
        direct = _products(law, predicted)
        residual = log.reward - predicted[rows, log.action]
    own = _of_logged(log, law)  # the weight is the mean over rows of sum_a pi(a)^2 / p(a)
    if log.logging is None:
        left = 1 - log.propensity  # nothing, and no weight, where the logging policy is deterministic
        rest = np.where(left > checks.TOLERANCE, left / np.maximum(num_allowed(log) - 1, 1), np.inf)
        usual = float(np.mean(own * weights + (_products(law, law) - own**2) / rest))
    else:
        inverse = np.divide(1, log.logging, out=np.zeros_like(log.logging), where=log.logging > 0)
        usual = float(_products(law * law, inverse).mean())
    number, kept = checks.seed("seed", seed), given
    if sparse:
        kept = Target(np.zeros((0, log.num_actions)), weights)
    return Evidence(log, kept, predicted, weights, direct, residual, law.mean(axis=0), usual, number)


def _products(law: Any, other: Any) -> np.ndarray:
    """(n,) sums over actions of products."""
    return law.multiply(other).sum(axis=1) if _is_sparse(law) else np.einsum("na,na->n", law, other)


def _of_logged(log: Log, law: Any) -> np.ndarray:
    """(n,) entries of the logged actions."""
    if not _is_sparse(law):
        return law[np.arange(len(log.action)), log.action]
    rows = _rows(law)
    logged = law.indices == log.action[rows]
    return np.bincount(rows[logged], law.data[logged], len(log.action))


def _of_allowed(log: Log, law: Any) -> Any:
    """Entries >= 0 of the allowed actions, zero elsewhere."""
    if not _is_sparse(law):
        return np.where(log.mask, np.maximum(law, 0.0), 0.0)
    found = law.copy()
    found.data = np.where(log.mask[_rows(law), law.indices], np.maximum(law.data, 0.0), 0.0)
    return found


def _rows(law: Any) -> np.ndarray:
    """The row of each entry of a CSR array."""
    return np.repeat(np.arange(law.shape[0]), np.diff(law.indptr))


def missing(evidence: Any) -> dict[str, str]:
    """Unmet needs of the estimators -> remedy."""
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
            "contexts and the probabilities of all actions, which are not kept of a log in batches or of a sparse "
            "target: read a part of the log with Log.load, or pass an array"
        )
    return remedies


def check_needs(estimator: Estimator, evidence: Any) -> None:
    """Raises ValueError, with the remedy, for unmet needs."""
    if not isinstance(evidence.log, estimator.log):
        name, got = estimator.log.__name__, type(evidence.log).__name__
        raise ValueError(f"{estimator.name} is for a {name}; got a {got}")
    remedies = missing(evidence)
    for need in estimator.needs:
        if need in remedies:
            raise ValueError(f"{estimator.name} needs {remedies[need]}")


def check_target(log: Log, target: np.ndarray | Target) -> Target:
    """Validated probabilities and weights of a policy.

    Args:
        log: decisions of the logging policy.
        target: (n, k) probabilities, matched by name where columns are names of actions, tolerance 0.00001; a sparse
            matrix of SciPy stays sparse; or (n,) names, or numbers, of the actions played; one name, for all rows;
            "uniform"; a function of the log that returns one of these; or a `Target`, returned unchanged.

    Raises:
        TypeError: not a log, or not numbers.
        ValueError: a row is not a distribution over the allowed actions, or a function computed them from other rows;
            a name of no action.
    """
    check_log(log)
    return policy("target", log, target)


def policy(name: str, log: Log, target: Any) -> Target:
    """`check_target` for an argument of another name."""
    if isinstance(target, Target):
        return target
    given = _of_all_actions(name, "probabilities", log, _spelled(name, log, target))
    law = _of_allowed(log, given)
    rest = abs(given - law).max(axis=1)
    for wrong, reason in (
        (~(_dense(given.min(axis=1)) >= -checks.TOLERANCE), "are not all >= 0"),
        (np.abs(given.sum(axis=1) - 1) > checks.TOLERANCE, "do not sum to 1"),
        (_dense(rest) > checks.TOLERANCE, "give an action that is masked out a positive probability"),
    ):
        if wrong.any():
            row = int(np.argmax(wrong))
            shown = np.round(_dense(given[[row]])[0], 6).tolist()
            raise ValueError(f"{name}, row {row}: the probabilities {reason}; got {shown!s:.200}")
    return Target(law, _of_logged(log, law) / log.propensity)


def _dense(values: Any) -> np.ndarray:
    return values.toarray() if _is_sparse(values) else values


def check_predicted(log: Log, predicted: np.ndarray) -> np.ndarray:
    """Validated predicted rewards (n, k) float64 of all actions, zero where masked.

    Raises:
        TypeError: not numbers.
        ValueError: another shape, not finite where allowed, or those of `predict_rewards` from other rows.
    """
    predicted = _of_all_actions("predicted", "rewards", log, predicted)
    wrong = (~np.isfinite(predicted) & log.mask).any(axis=1)
    if wrong.any():
        raise ValueError(f"predicted, row {int(np.argmax(wrong))}: a predicted reward is not finite")
    return np.where(log.mask, predicted, 0.0)


def refuse_agent(name: str, given: Any) -> None:
    """Raises TypeError, with the remedy, for an agent instead of its probabilities."""
    if isinstance(given, Agent):
        raise TypeError(
            f"{name} must be a policy's actions or probabilities in each row; got the agent {given.name}: pass "
            "seqdec.ope.target_of(agent, log, seed=0), or a function of a batch for a log in batches"
        )


def _spelled(name: str, log: Log, target: Any) -> Any:
    """Probabilities of a policy given by name, by the actions that it plays, or as a function of the log."""
    refuse_agent(name, target)
    given: Any = target(log) if callable(target) else target
    places = {str(label): place for place, label in enumerate(log.action_names or range(log.num_actions))}
    if isinstance(given, str) and given == UNIFORM and given not in places:
        return log.mask / log.mask.sum(axis=1, keepdims=True)
    played: Any = [given] * len(log) if isinstance(given, str) else given
    if not hasattr(played, "__len__") or _is_sparse(played):
        return given
    first = np.asarray(played[:1]) if isinstance(played, list | tuple) else np.asarray(played)
    if first.ndim != 1 or not len(first) or not isinstance(first[0], str | int | np.integer):
        return given
    texts = list(map(str, played))
    if unknown := [text for text in texts if text not in places]:
        raise ValueError(
            f"{name}: {unknown[0]!r} is not an action of the log; they are {shown(list(places))}. A policy is one of "
            f"them, one for each row, {UNIFORM!r}, or an array {log.mask.shape} of probabilities"
        )
    return np.eye(len(places))[[places[text] for text in texts]]


def _of_all_actions(name: str, what: str, log: Log, given: Any) -> Any:
    shape = log.mask.shape
    try:
        if what == "probabilities" and _is_sparse(given):
            from scipy.sparse import csr_array

            array: Any = csr_array(given, dtype=np.float64)
            array.sum_duplicates()
        else:
            table = by_action(name, in_rows_of(log, name, given), log.action_names or range(shape[1]))
            array = np.asarray(checks.as_array(name, table), np.float64)
    except TypeError as error:
        kind = "a function" if callable(given) else type(given).__name__
        raise TypeError(
            f"{name} must be an array {shape} with the {what} of all actions in every row; got {kind}: compute it "
            "first, as with np.array([policy(x) for x in log.context])"
        ) from error
    if array.shape != shape:
        remedy = f"; for one action in each row, pass np.eye({shape[1]})[actions]" * (array.shape == shape[:1])
        if array.shape[:1] == shape[:1] and all(isinstance(label, int) for label in log.action_names or ()):
            remedy = remedy or ": if these are all actions, make the log with num_actions"
        raise ValueError(f"{name} must have the {what} of all actions, {shape}; got {array.shape}{remedy}")
    return array


def _is_sparse(array: Any) -> bool:
    return hasattr(array, "tocsr")
