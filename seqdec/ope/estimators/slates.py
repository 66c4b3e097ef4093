"""Slates: several items at once."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from seqdec.boundary import checks
from seqdec.ope.contract import Estimator, evidence
from seqdec.ope.diagnostics import Reach, by_weights, reach
from seqdec.ope.estimators.continuous import finite
from seqdec.ope.intervals import Terms
from seqdec.rows import Rows


@dataclass(frozen=True, eq=False)
class SlateLog(Rows):
    """Slates of L slots, from `make_slate_log`."""

    action: np.ndarray
    """(n, L) int64 items from 0"""
    reward: np.ndarray
    """(n, L) float64; a reward of the whole slate may stand in any slot"""
    propensity: np.ndarray
    """(n, L) probability of the item, given context and items above"""
    marginal: np.ndarray
    """(n, L) probability of the item, given the context"""

    known_propensities: ClassVar[bool] = True
    estimated: ClassVar[bool] = False


class SlateEvidence(NamedTuple):
    """A log of slates and a target."""

    log: SlateLog
    probabilities: np.ndarray
    """(n, L, k) of the target, given context and logged items above"""
    conditional: np.ndarray
    """(n, L) weights of the logged items, given those above"""
    marginal: np.ndarray
    """(n, L) weights of the logged items, given the context"""
    predicted: Any
    """(n, L, k) the target's expected reward of this slot and below, for each item here"""
    seed: int


def make_slate_log(*, action: Any, reward: Any, propensity: Any, marginal: Any = None) -> SlateLog:
    """A validated log of slates.

    Args:
        action: (n, L) items from 0.
        reward: (n, L) finite.
        propensity: (n, L) in (0, 1], given the items above.
        marginal: (n, L) in (0, 1], given the context; None: equal to propensity, for independent slots.

    Raises:
        TypeError: not numbers.
        ValueError: other shapes or ranges.
    """
    action = np.asarray(checks.as_array("action", action))
    if action.ndim != 2 or not action.size or action.dtype.kind not in "iu" or action.min() < 0:
        raise ValueError(f"action must be (slates, slots) integers from 0; got {action.dtype} {action.shape}")
    reward = finite("reward", reward, action.shape)
    parts = []
    for name, given in (("propensity", propensity), ("marginal", propensity if marginal is None else marginal)):
        parts.append(part := finite(name, given, action.shape))
        if not ((part > 0) & (part <= 1 + checks.TOLERANCE)).all():
            raise ValueError(f"{name} must lie in (0, 1]; got {part.min()} to {part.max()}")
    return SlateLog(action.astype(np.int64), reward, *parts)


@evidence.register
def _of_slates(log: SlateLog, target: Any, predicted: Any = None, *, seed: int) -> SlateEvidence:
    """`target` (n, L, k), paired with marginal (n, L) unless slots are independent; `predicted` (n, L, k) or None."""
    conditional, marginal = target if isinstance(target, tuple) and len(target) == 2 else (target, None)
    law = np.asarray(checks.as_array("target", conditional), np.float64)
    if law.ndim != 3 or law.shape[:2] != log.action.shape or law.shape[2] <= log.action.max():
        raise ValueError(f"target must have shape (*{log.action.shape}, k); got {law.shape}")
    if (law < -checks.TOLERANCE).any() or (np.abs(law.sum(axis=2) - 1) > checks.TOLERANCE).any():
        raise ValueError("target must hold probabilities that sum to 1 in each slot")
    own = np.take_along_axis(law, log.action[:, :, None], axis=2)[:, :, 0]
    alone = own if marginal is None else finite("marginal probabilities of the target", marginal, log.action.shape)
    known = None if predicted is None else finite("predicted", predicted, law.shape)
    return SlateEvidence(log, law, own / log.propensity, alone / log.marginal, known, checks.seed("seed", seed))


@reach.register
def _reach(evidence: SlateEvidence) -> Reach:
    """Weights of whole slates, and the largest share of the target's items in a slot that no row has there."""
    law, action = evidence.probabilities, evidence.log.action
    never = [np.setdiff1d(np.arange(law.shape[2]), action[:, slot]) for slot in range(law.shape[1])]
    shares = [law[:, slot, items].sum(axis=1).mean() for slot, items in enumerate(never)]
    return by_weights(evidence.conditional.prod(axis=1), float(max(shares)))


_INTERACTIONS = ("standard", "independent", "cascade")


@dataclass(frozen=True, kw_only=True)
class SlateIPS(Estimator):
    """Inverse propensity scoring of slates: sum over slots l of W_l r_l.

    With weights w_l of the items,

        "standard"     W_l = prod_{m <= L} w_m: no assumption
        "independent"  W_l = w_l, marginal: rewards depend on the slot's item alone
        "cascade"      W_l = prod_{m <= l} w_m: and on the items above (reward-interaction IPS)

    References:
        Li et al., "Offline evaluation of ranking policies with click models", 2018 (independent);
        McInerney et al., "Counterfactual evaluation of slate recommendations with sequential reward interactions",
        2020.
    """

    interaction: str = "cascade"
    """One of these."""
    normalized: bool = False
    """divides each slot by its mean weight"""

    log = SlateLog

    def __post_init__(self) -> None:
        checks.choice("interaction", self.interaction, _INTERACTIONS)
        checks.flag("normalized", self.normalized)

    def terms(self, evidence: SlateEvidence) -> Terms:
        w = evidence.marginal if self.interaction == "independent" else evidence.conditional.cumprod(axis=1)
        if self.interaction == "standard":
            w = np.repeat(w[:, -1:], w.shape[1], axis=1)
        return _terms(w, evidence.log.reward, self.normalized)

    def references(self, evidence: SlateEvidence) -> tuple[Estimator, ...]:
        own = self.normalized and self.interaction == "standard"
        return () if own else _UNBIASED


_UNBIASED = (SlateIPS(interaction="standard", normalized=True),)


@dataclass(frozen=True, kw_only=True)
class SlatePI(Estimator):
    """Pseudo-inverse estimator: (1 + sum_l (w_l - 1)) times the sum of rewards, w_l marginal.

    For independent slots of the logging policy, and rewards additive over slots, which need not be observed.

    References:
        Swaminathan et al., "Off-policy evaluation for slate recommendation", 2017.
    """

    normalized: bool = False
    """divides by the mean weight"""

    log = SlateLog

    def __post_init__(self) -> None:
        checks.flag("normalized", self.normalized)

    def terms(self, evidence: SlateEvidence) -> Terms:
        w = 1 + (evidence.marginal - 1).sum(axis=1, keepdims=True)
        return _terms(w, evidence.log.reward.sum(axis=1, keepdims=True), self.normalized)

    def references(self, evidence: SlateEvidence) -> tuple[Estimator, ...]:
        return _UNBIASED


@dataclass(frozen=True, kw_only=True)
class CascadeDR(Estimator):
    """Doubly robust in each slot, under the cascade assumption.

    With W_l = prod_{m <= l} w_m and predictions q_l(a) of rewards of slot l and below, the sum over l of
    W_l (r_l - q_l(a_l)) + W_{l-1} sum_a pi_l(a) q_l(a).

    References:
        Kiyohara et al., "Doubly robust off-policy evaluation for ranking policies under the cascade behavior model",
        2022.
    """

    needs = ("propensities", "predicted")
    log = SlateLog

    def terms(self, evidence: SlateEvidence) -> Terms:
        q = evidence.predicted
        w = evidence.conditional.cumprod(axis=1)
        before = np.concatenate([np.ones((len(w), 1)), w[:, :-1]], axis=1)
        own = np.take_along_axis(q, evidence.log.action[:, :, None], axis=2)[:, :, 0]
        expected = (evidence.probabilities * q).sum(axis=2)
        value = (w * (evidence.log.reward - own) + before * expected).sum(axis=1)
        return Terms(value, np.ones_like(value))

    def references(self, evidence: SlateEvidence) -> tuple[Estimator, ...]:
        return _UNBIASED


def _terms(w: np.ndarray, reward: np.ndarray, normalized: bool) -> Terms:
    numerator = w * reward
    return Terms(numerator, w if normalized else np.ones_like(numerator))
