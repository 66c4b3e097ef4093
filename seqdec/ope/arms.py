r"""Which arm earns most, from a growing log that may be read at any time.

Of a decision with probabilities p(a), p(b) of two arms, and the mean c of the rewards before it,

    x = h (1[played a] / p(a) - 1[played b] / p(b)) (r - c),    h = mean of p(a) p(b) / (p(a) + p(b)) in rows before

E x = h (E r(a) - E r(b)), whatever c and h. The confidence sequence (`seqdec.ope.sequences`) of the mean of x, divided
by that of h, therefore holds at all numbers of rows at once, also if the agent learns. If the means change, it covers
their average so far, with weights h; these make it narrowest for constant means. They do not depend on the context,
which would change the estimand. A decision with p(a) or p(b) below h / 10 counts with the smallest or largest possible
difference; one whose mask forbids an arm does not count.

The probability that an arm is best is of independent normal distributions around weighted means, with weights

    q 1[played a] / p(a),    q^2 = share of a in 100 decisions before,

which keep their variance stable where the agent plays an arm less after bad luck.

Source of these weights: Hadad, Hirshberg, Zhan, Wager, Athey, "Confidence intervals for policy evaluation in adaptive
experiments", 2021.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from seqdec.boundary import checks
from seqdec.introspection import described, html
from seqdec.ope.comparison import Estimate
from seqdec.ope.diagnostics import labels_of, range_of
from seqdec.ope.intervals import Ends, Terms
from seqdec.ope.labels import Label
from seqdec.ope.log import Log, check_log, num_allowed
from seqdec.ope.sequences import before, lower, sums_before

if TYPE_CHECKING:
    import pandas as pd

_RECENT, _NEAR = 100, 50
"""Decisions before, for the weights of an arm's mean, and of a difference."""
_SCARCE = 0.1
"""Of h, below which a probability tells nothing."""
_QUANTILES, _CELLS = 1001, 10**7
"""Quantiles of each distribution, fewer where there are many arms."""


@dataclass(frozen=True, eq=False, repr=False)
class ArmComparison:
    """Comparison of a log's arms; prints as a short report."""

    verdict: str
    """the answer, in a sentence"""
    best: Label | None
    """the arm that is better than all others, beyond doubt; None: not decided"""
    reference: Label
    """the baseline, or the arm that leads"""
    table: "pd.DataFrame"
    """by arm: decisions; share of them; reward, as if the arm were always played, and its standard error; probability
    of being best; loss of always playing it, expected, per decision; difference to the reference, with the ends low and
    high, which hold for all arms at all times together
    """
    segments: "pd.DataFrame | None"
    """such a table by segment and arm; None without `by`"""

    def __repr__(self) -> str:
        return described(self.verdict, *self.table.round(4).to_string().splitlines())

    def _repr_html_(self) -> str:
        return html(self.verdict, self.table.reset_index())


def compare_arms(
    log: Log,
    *,
    reward_range: tuple[float, float] | None = None,
    baseline: Label | None = None,
    by: Any = None,
    level: float = 0.95,
) -> ArmComparison:
    """Which arm earns most, or whether others earn more than a baseline; valid after every reward.

    >>> import numpy as np
    >>> from seqdec import ope
    >>> rng = np.random.default_rng(0)
    >>> arm = rng.integers(2, size=4000)
    >>> reward = rng.random(4000) < np.array([0.5, 0.6])[arm]
    >>> log = ope.make_log(action=arm, reward=reward, propensity=np.full(4000, 0.5), action_names=("old", "new"))
    >>> print(ope.compare_arms(log).verdict)
    Arm 'new' is best: better than 'old' by 0.11 (0.05 to 0.16).

    If there is no difference, an arm is called better with probability at most 1 - level, however often the growing log
    is compared. An agent and a control group are compared as two arms whose propensities are their shares.

    Args:
        log: with exact propensities of all actions (`Log.logging`), which for two arms, and for uniform decisions,
            follow from that of the action.
        reward_range: (low, high) of all possible rewards; None: (0, 1) for rewards of 0 and 1.
        baseline: arm to compare the others with; None: the leading one, and intervals hold for all pairs.
        by: (n,) segment of each row, known before the decision; each is compared as well, with joint intervals. Or a
            dict of (n,) bools by segment, which may overlap or be empty.
        level: simultaneous confidence level of all intervals.

    Raises:
        TypeError: not a Log.
        ValueError: propensities that are estimated or unknown for some actions, an unknown range, arm or length.
    """
    import pandas as pd

    check_log(log)
    checks.number("level", level, 0, 1, exclusive=True)
    names = log.action_names or tuple(range(log.num_actions))
    if len(names) < 2 or not len(log):
        raise ValueError(f"a comparison of arms needs rows and two arms; got {len(log)} rows and {len(names)} arms")
    if baseline is not None and baseline not in names:
        raise ValueError(f"baseline={baseline!r} is not an arm of the log; its arms are {', '.join(map(repr, names))}")
    bounds = range_of(reward_range, log.reward)
    if bounds is None:
        raise ValueError("a comparison of arms needs the range of possible rewards: pass reward_range=(low, high)")
    law = _law(log)
    parts = _segments(by, len(log))
    miss = (1 - level) / (1 + len(parts))
    table, reference = _table(log, law, names, bounds, baseline, miss)
    by_segment: dict[Any, Any] = {
        one: _table(log[rows], law[rows], names, bounds, baseline, miss)[0] for one, rows in parts.items() if rows.any()
    }
    segments = pd.concat(by_segment, names=["segment"]) if by_segment else None
    best, verdict = _verdict(table, names, reference, baseline is not None)
    return ArmComparison(verdict, best, names[reference], table, segments)


def differences(
    action: np.ndarray, reward: np.ndarray, law: np.ndarray, a: int, b: int, miss: float, at: np.ndarray
) -> np.ndarray:
    """(3, m) of arms a and b after rows `at`, with both ends, for rewards in [0, 1].

    Each end is wrong with probability `miss` at most, at all rows together.
    """
    of_a, of_b = law[:, a], law[:, b]
    both = np.divide(of_a * of_b, of_a + of_b, out=np.zeros(len(law)), where=of_a + of_b > 0)
    sums, rows = sums_before(both, _NEAR)
    h, c = sums / np.maximum(rows, 1), before(reward, 0.5)
    told = np.minimum(of_a, of_b) > _SCARCE * h
    to_a, to_b = (np.divide(h, chance, out=np.zeros(len(h)), where=told) for chance in (of_a, of_b))
    x = (to_a * (action == a) - to_b * (action == b)) * (reward - c)
    down, up = np.maximum(to_a * c, to_b * (1 - c)), np.maximum(to_a * (1 - c), to_b * c)
    guess, unknown = h * before(x, 0.0) / before(h, 1.0), np.where(told, 0.0, h)
    down, up = down + unknown, up + unknown
    low = lower(x - unknown, -down, miss, guess=np.clip(guess, -down, up), at=at)
    high = -lower(-x - unknown, -up, miss, guess=np.clip(-guess, -up, down), at=at)
    mean = h.cumsum()[at] / (at + 1)
    found = np.array([x.cumsum()[at] / (at + 1), low, high])
    ratio = np.divide(found, mean, out=np.tile([[0.0], [-1.0], [1.0]], len(at)), where=mean > 0)
    value, low, high = np.clip(ratio, -1.0, 1.0)
    return np.array([np.clip(value, low, high), low, high])


def stable_terms(played: np.ndarray, reward: np.ndarray, chance: np.ndarray, arms: int) -> Terms:
    """Contributions of decisions to an arm's mean reward; `chance`: of the played action, or NaN."""
    weighted = np.isfinite(chance[played]).all()
    weights = np.divide(1.0, chance, out=np.zeros(len(chance)), where=played) if weighted else played * 1.0
    sums, rows = sums_before(played, _RECENT)
    stable = weights * np.sqrt((sums + 1) / (rows + arms)) if weighted else weights
    return Terms(stable * reward, stable)


def _segments(by: Any, count: int) -> dict[Any, np.ndarray]:
    """(n,) bool by segment. Raises ValueError for another shape, or a missing label."""
    import pandas as pd

    if isinstance(by, Mapping):
        parts = {one: np.asarray(rows, bool) for one, rows in by.items()}
        for one, rows in parts.items():
            if rows.shape != (count,):
                raise ValueError(f"by[{one!r}] must be a bool for each row, {(count,)}; got shape {rows.shape}")
        return parts
    labels = np.array([]) if by is None else labels_of("by", by, count)
    return {one: labels == one for one in pd.unique(labels)}


def _law(log: Log) -> np.ndarray:
    """(n, k) probabilities of all actions. Raises ValueError where they are not known."""
    if log.estimated or not log.known_propensities:
        raise ValueError("a comparison of arms needs exact propensities: log the probability of each drawn action")
    allowed, chance, rows = num_allowed(log), log.propensity, np.arange(len(log))
    if log.logging is not None and np.isfinite(log.logging).all():
        return log.logging
    if (allowed <= 2).all() or np.allclose(chance, 1 / allowed):
        others = np.where(log.mask, ((1 - chance) / np.maximum(allowed - 1, 1))[:, None], 0.0)
        others[rows, log.action] = chance
        return others
    raise ValueError(
        "a comparison of more than two arms needs the probabilities of all actions: log them, logging= of make_log"
    )


def _table(
    log: Log, law: np.ndarray, names: Sequence[Label], bounds: Ends, baseline: Label | None, miss: float
) -> tuple[Any, int]:
    """The table, and the place of the baseline or of the arm that leads."""
    import pandas as pd

    least, size, count = bounds[0], bounds[1] - bounds[0], len(names)
    reward, played = (log.reward - least) / size, [log.action == arm for arm in range(count)]
    terms = [stable_terms(one, reward, log.propensity, count) for one in played]
    mean, error = np.array([(one.value, one.std_error) for one in map(_with_ends, terms)]).T
    chance, loss = _best(mean, error)
    value, deviation = np.array([(one.value, one.std_error) for one in terms]).T
    reference = int(mean.argmax()) if baseline is None else names.index(baseline)
    each = miss / (count - 1) / (2 if baseline is not None else count)
    found = np.tile([[0.0], [-1.0], [1.0]], count)
    found[:, reference] = 0
    for arm in range(count):
        both = slice(None) if log.mask.all() else np.flatnonzero(log.mask[:, arm] & log.mask[:, reference])
        rows = len(log.action[both])
        if arm != reference and rows:
            given = log.action[both], reward[both], law[both]
            found[:, arm] = differences(*given, arm, reference, each, np.array([rows - 1]))[:, 0]
    decisions = np.array([one.sum() for one in played])
    columns = {"decisions": decisions, "share": decisions / len(log), "reward": least + size * value}
    columns |= {"std_error": size * deviation, "best": chance, "loss": size * loss}
    ends = zip(("difference", "low", "high"), size * found, strict=True)
    return pd.DataFrame({**columns, **dict(ends)}, index=pd.Index(names, name="arm")), reference


def _with_ends(terms: Terms) -> Terms:
    """With one more decision for a reward of 0, and one of 1, so that an arm that is hardly played is uncertain."""
    played = terms.denominator[terms.denominator > 0]
    usual = played.mean() if len(played) else 1.0
    return Terms(np.append(terms.numerator, [0, usual]), np.append(terms.denominator, [usual, usual]))


def _best(mean: np.ndarray, error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Probability that each of independent normal variables is the largest, and how much larger the largest is."""
    from scipy.special import log_ndtr, ndtri

    points = int(np.clip(_CELLS / len(mean) ** 2, 51, _QUANTILES))
    y = mean[:, None] + error[:, None] * ndtri((np.arange(points) + 0.5) / points)
    others = np.stack([log_ndtr((y - m) / e) for m, e in zip(mean, error, strict=True)])
    log_others = others.sum(axis=0) - others[np.arange(len(mean)), np.arange(len(mean))]
    density = np.exp(log_others) / points
    density /= density.sum()
    return density.sum(axis=1), np.maximum((density * y).sum() - mean, 0.0)


def _verdict(table: Any, names: Sequence[Label], reference: int, given: bool) -> tuple[Label | None, str]:
    """The best arm, and the sentence."""
    value, low, high = (table[name].to_numpy() for name in ("difference", "low", "high"))
    others, own = [arm for arm in range(len(names)) if arm != reference], names[reference]
    near = max(others, key=lambda arm: high[arm])
    which = repr(names[near]) if len(others) == 1 else f"the next, {names[near]!r},"
    less = Estimate(0.0 - value[near], -high[near], -low[near])
    if less.low > 0:
        return own, f"Arm {own!r} is best: better than {which} by {less}."
    better, worse = ([arm for arm in others if ends[arm] > 0] for ends in (low, -high))
    if given and (better or worse):
        words = [f"{names[arm]!r} is better by {Estimate(value[arm], low[arm], high[arm])}" for arm in better]
        words += [f"{names[arm]!r} is worse by {Estimate(-value[arm], -high[arm], -low[arm])}" for arm in worse]
        return names[near] if better and len(others) == 1 else None, f"Against {own!r}: {', '.join(words)}."
    cost = f"always playing {own!r} is expected to cost {table['loss'].iloc[reference]:.2g} per decision"
    return None, f"Not decided: {own!r} against {names[near]!r}: {less}; {cost}."
