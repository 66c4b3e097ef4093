"""Sessions of several decisions, each of which changes what comes next.

The value of a target is its mean over sessions of sum_t gamma^t r_t. Decisions have the weights
W_t = prod_{s <= t} target / propensity; after the end of a session rewards are zero and W_t stays, so that sessions of
all lengths count in each step.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from seqdec.boundary import checks
from seqdec.boundary.tables import frame
from seqdec.ope.columns import named, required, times
from seqdec.ope.contract import Estimator, check_predicted, check_target, evidence
from seqdec.ope.diagnostics import Reach, by_weights, reach
from seqdec.ope.intervals import Terms
from seqdec.ope.log import Log
from seqdec.ope.rewards import predictions
from seqdec.rows import refuse, row_index

if TYPE_CHECKING:
    import pandas as pd

_MOST_RATIOS = 100


@dataclass(frozen=True, eq=False)
class EpisodeLog:
    """Sessions of any lengths; `len`, slices and masks are of sessions."""

    steps: Log
    """decisions, session by session"""
    session: np.ndarray
    """(rows,) int64, the session of each decision, from 0 and never decreasing"""

    def __len__(self) -> int:
        return int(self.session[-1]) + 1 if len(self.session) else 0

    def __getitem__(self, sessions: Any) -> "EpisodeLog":
        """Sessions by a slice, bools, indices, or one index. Raises IndexError."""
        chosen = np.arange(len(self))[row_index(sessions, len(self))]
        every = np.split(np.arange(len(self.session)), self._first[1:-1])
        rows = np.concatenate([every[one] for one in chosen] or [np.zeros(0, int)])
        return EpisodeLog(self.steps[rows], np.repeat(np.arange(len(chosen)), self.lengths[chosen]))

    @property
    def lengths(self) -> np.ndarray:
        """(m,) decisions of each session."""
        return np.bincount(self.session, minlength=len(self))

    @property
    def reward(self) -> np.ndarray:
        """(m, longest) rewards of the decisions, zero after the end of a session."""
        return self.padded(self.steps.reward)

    @property
    def _first(self) -> np.ndarray:
        return np.insert(np.cumsum(self.lengths), 0, 0)

    @property
    def place(self) -> np.ndarray:
        """(rows,) place of each decision in its session, from 0."""
        return np.arange(len(self.session)) - self._first[self.session]

    @property
    def known_propensities(self) -> bool:
        """Of the decisions."""
        return self.steps.known_propensities

    @property
    def estimated(self) -> bool:
        """Of the propensities of the decisions."""
        return self.steps.estimated

    def padded(self, values: np.ndarray, fill: float = 0.0) -> np.ndarray:
        """(m, longest) numbers (rows,) of the decisions, and `fill` after the end of a session."""
        found = np.full((len(self), int(self.lengths.max())), fill)
        found[self.session, self.place] = values
        return found

    @classmethod
    def from_pandas(
        cls, table: "pd.DataFrame", *, session: str = "session", step: str | None = "step", **columns: Any
    ) -> "EpisodeLog":
        """The sessions in a table with a row for each decision.

        >>> import pandas as pd
        >>> table = pd.DataFrame({"user": ["ann", "bob", "ann"], "page": [1, 1, 2], "action": [0, 1, 1]})
        >>> log = EpisodeLog.from_pandas(table.assign(reward=1.0, propensity=0.5), session="user", step="page")
        >>> len(log), log.lengths.tolist(), log.steps.action.tolist()
        (2, [2, 1], [0, 1, 1])

        Args:
            table: of pandas, polars or pyarrow.
            session: column of what a session is known by; sessions are in the order of their first rows.
            step: column of numbers or dates that order a session's decisions; None for the order of the table.
            **columns: as in `Log.from_pandas`, without time.

        Raises:
            TypeError: not a table, or another keyword.
            ValueError: a session without an identity, two decisions at one step, or what `Log.from_pandas` refuses.
        """
        import pandas as pd

        if "time" in columns:
            raise TypeError("time orders the rows of a Log: the decisions of a session are ordered by step")
        rows = named(frame(table).to_pandas())
        identity = required(rows, "session", session)
        member = pd.factorize(identity)[0]
        refuse(session, member < 0, identity.to_numpy(), "a decision must belong to a session")
        moments = np.arange(len(rows)) if step is None else times(required(rows, "step", step))
        order = np.lexsort((moments, member))
        log = Log.from_pandas(rows.drop(columns="timestamp", errors="ignore"), **columns)[order]
        same = (np.diff(member[order]) == 0) & (moments[order][1:] == moments[order][:-1])
        twice = np.zeros(len(rows), bool)
        twice[order[1:][same]] = True
        remedy = "its session has two decisions at this step; step=None keeps the order of the table"
        refuse(str(step), twice, np.asarray(moments), remedy)
        return cls(log, member[order].astype(np.int64))


class EpisodeEvidence(NamedTuple):
    """Sessions and a target."""

    log: EpisodeLog
    probabilities: np.ndarray
    """(rows, k) of the target in all decisions"""
    weights: np.ndarray
    """(m, longest) W_t, constant after the end of a session"""
    predicted: Any
    """(rows, k) the target's expected discounted reward of this decision and later ones, for each action here"""
    seed: int


@evidence.register
def _of_sessions(log: EpisodeLog, target: Any, predicted: Any = None, *, seed: int) -> EpisodeEvidence:
    """`target` (rows, k) and `predicted` (rows, k) or None, for the decisions of `log.steps`."""
    given = check_target(log.steps, target)
    known = None if predicted is None else check_predicted(log.steps, predicted)
    weights = log.padded(given.weights, 1.0).cumprod(axis=1)
    return EpisodeEvidence(log, given.probabilities, weights, known, checks.seed("seed", seed))


@reach.register
def _reach(evidence: EpisodeEvidence) -> Reach:
    """Weights of whole sessions, and the target's share of actions that no decision has."""
    never = np.setdiff1d(np.arange(evidence.probabilities.shape[1]), evidence.log.steps.action)
    unsupported = float(evidence.probabilities[:, never].sum(axis=1).mean())
    if not evidence.log.known_propensities:
        return Reach(evidence.weights[:, -1], unsupported=unsupported)
    mean = by_weights(evidence.weights.mean(axis=1), unsupported)
    return by_weights(evidence.weights[:, -1], unsupported)._replace(missing=mean.missing)


def effective_sessions(log: EpisodeLog, target: Any) -> np.ndarray:
    """Effective sample size (longest,) of the weights W_t at each step, (sum W)^2 / sum W^2.

    Arguments and errors as in `overlap`.
    """
    w = _of_sessions(log, target, seed=0).weights
    squares = (w**2).sum(axis=0)
    return np.divide(w.sum(axis=0) ** 2, squares, out=np.zeros(w.shape[1]), where=squares > 0)


def predict_returns(
    log: EpisodeLog, target: Any, *, seed: int, model: Any = None, gamma: float = 1.0, folds: int = 5
) -> np.ndarray:
    """(rows, k) the target's expected discounted reward of this decision and later ones, for each action here.

    For `SequentialDR`, by fitted Q evaluation: as many regressions as the longest session has steps, of
    r + gamma sum_b pi(b | x') q(x', b) at the next decision, on context and action. Sessions are predicted by models of
    other sessions. Contexts should hold what tells how much of a session is left.

    Args:
        log: its propensities are ignored.
        target: (rows, k) probabilities in `log.steps`.
        seed: seed for the random folds of sessions.
        model: unfitted regressor of scikit-learn; None: ridge regression, with products of action and context.
        gamma: discount factor in [0, 1].
        folds: number of folds, from 2 to the number of sessions.

    Raises:
        TypeError: a model of another kind.
        ValueError: a target that does not fit, gamma out of range, or an impossible number of folds.

    References:
        Le, Voloshin, Yue, "Batch policy learning under constraints", 2019.
    """
    from sklearn.base import is_regressor
    from sklearn.linear_model import Ridge

    law, steps, place = check_target(log.steps, target).probabilities, log.steps, log.place
    model = Ridge() if model is None else model
    if isinstance(model, type) or not is_regressor(model):
        raise TypeError(f"model must be an unfitted regressor of scikit-learn; got {model!r:.80}")
    _check_gamma(gamma)
    if not 2 <= checks.count("folds", folds) <= len(log):
        raise ValueError(f"folds must lie between 2 and the number of sessions, {len(log)}; got {folds}")
    member = np.random.default_rng(checks.seed("seed", seed)).permutation(np.arange(len(log)) % folds)[log.session]
    goes_on, found = np.append(place[1:] > 0, False), np.zeros(law.shape)
    for fold in range(folds):
        others, q = np.flatnonzero(member != fold), np.zeros(law.shape)
        for _ in range(int(place.max()) + 1):
            value = np.append((law * q).sum(axis=1)[1:], 0.0)
            aim = steps.replace(reward=steps.reward + gamma * np.where(goes_on, value, 0.0))
            q = predictions(model, aim, others, np.arange(len(place)), np.ones(len(others)))
        found[member == fold] = q[member == fold]
    return np.where(steps.mask, found, 0.0)


@dataclass(frozen=True, kw_only=True)
class PDIS(Estimator):
    """Per-decision importance sampling of sessions: mean of sum_t gamma^t W_t r_t.

    References:
        Precup, Sutton, Singh, "Eligibility traces for off-policy policy evaluation", 2000.
    """

    gamma: float = 1.0
    """discount, in [0, 1]"""
    normalized: bool = False
    """divides each step by its mean weight"""

    log = EpisodeLog

    def __post_init__(self) -> None:
        _check_gamma(self.gamma)
        checks.flag("normalized", self.normalized)

    def terms(self, evidence: EpisodeEvidence) -> Terms:
        w = evidence.weights
        gain = _discounts(w, self.gamma) * w * evidence.log.padded(evidence.log.steps.reward)
        return _summed(gain) if not self.normalized else _ratios(gain, w)


@dataclass(frozen=True, kw_only=True)
class SequentialDR(Estimator):
    """Doubly robust at each step: mean of v_0 + sum_t gamma^t W_t (r_t + gamma v_{t+1} - q_t).

    q_t is the predicted discounted reward of the decision and later ones, as by `predict_returns`, v_t its expectation
    under the target, 0 after the end of a session.

    References:
        Jiang, Li, "Doubly robust off-policy value evaluation for reinforcement learning", 2016;
        Thomas, Brunskill, "Data-efficient off-policy policy evaluation for reinforcement learning", 2016 (normalized).
    """

    gamma: float = 1.0
    """discount, in [0, 1], as that of the predictions"""
    normalized: bool = False
    """divides each step by its mean weight"""

    needs = ("propensities", "predicted")
    log = EpisodeLog

    def __post_init__(self) -> None:
        _check_gamma(self.gamma)
        checks.flag("normalized", self.normalized)

    def terms(self, evidence: EpisodeEvidence) -> Terms:
        log, w, q = evidence.log, evidence.weights, evidence.predicted
        v = log.padded((evidence.probabilities * q).sum(axis=1))
        later = np.concatenate([v[:, 1:], np.zeros((len(v), 1))], axis=1)
        own = log.padded(q[np.arange(len(q)), log.steps.action])
        gain = _discounts(w, self.gamma) * w * (log.padded(log.steps.reward) + self.gamma * later - own)
        ones = np.ones((len(w), 1))
        gain, w = np.concatenate([v[:, :1], gain], axis=1), np.concatenate([ones, w], axis=1)
        return _summed(gain) if not self.normalized else _ratios(gain, w)


def _check_gamma(gamma: float) -> None:
    if not 0 <= checks.real("gamma", gamma) <= 1:
        raise ValueError(f"gamma must lie in [0, 1]; got {gamma}")


def _discounts(w: np.ndarray, gamma: float) -> np.ndarray:
    return gamma ** np.arange(w.shape[1])


def _summed(gain: np.ndarray) -> Terms:
    return Terms(gain.sum(axis=1), np.ones(len(gain)))


def _ratios(gain: np.ndarray, w: np.ndarray) -> Terms:
    if w.shape[1] > _MOST_RATIOS:
        raise ValueError(
            f"normalized estimates are for sessions of fewer than {_MOST_RATIOS} steps; got {w.shape[1]}: leave out "
            "normalized, or end sessions earlier"
        )
    return Terms(gain, w)
