r"""A log in a folder of parquet files, evaluated by sums, in processes or on a cluster.

    z = (1, r, w, w r, d, w (r - q)),    sum z in each of 65,536 blocks of rows,    sum z z^T of all rows

with rewards r, weights w, predicted rewards q, and d expected under the target. Estimates are ratios of sums of z, and
their influence functions are linear in z: the matrix gives their variance over rows, and the blocks, scaled to the same
variance, take the place of rows. Diagnostics use at most 131,072 equally spaced rows. A process only keeps these, and a
batch of rows.
"""

import collections
import functools
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any, NamedTuple, cast

import numpy as np

from seqdec import executors
from seqdec.ope.contract import Estimator, Evidence, Target, evidence
from seqdec.ope.diagnostics import (
    Overlap,
    Reach,
    Support,
    Weights,
    overlap_of,
    overlap_seen,
    range_of,
    reach,
    reach_of,
    support_of,
)
from seqdec.ope.estimators import DM, DR, IPS, SNDR, SNIPS
from seqdec.ope.files import LogFolder, Numbers, evidence_of
from seqdec.ope.intervals import Ends, Terms
from seqdec.ope.log import Log

_BLOCKS, _SHIFT, _SPREAD = 2**16, np.uint64(48), np.uint64(11400714819323198485)
"""Row i belongs to block (i 2^64 / golden ratio mod 2^64) / 2^48."""
_SAMPLE, _CELLS = 2**17, 2**23
"""Rows of the sample, and its probabilities, at most."""
_ONE, _R, _W, _WR, _D, _WQ = np.eye(6)
_FORMS: dict[Estimator, tuple[list[np.ndarray], list[np.ndarray]]] = {
    IPS(): ([_WR], [_ONE]),
    SNIPS(): ([_WR], [_W]),
    DM(): ([_D], [_ONE]),
    DR(): ([_D + _WQ], [_ONE]),
    SNDR(): ([_D, _WQ], [_ONE, _W]),
}
"""Numerators and denominators in terms of z."""


class Sums(NamedTuple):
    """What estimators by sums start from."""

    rows: int
    blocks: np.ndarray
    """(65536, 6) sums of z"""
    gram: np.ndarray
    """(6, 6) sum of z z^T"""
    ends: np.ndarray
    """(2,) smallest and largest reward"""
    binary: bool
    """whether all rewards are 0 or 1"""
    weights: np.ndarray
    """(2,) smallest and largest weight"""
    support: Support
    """of all rows"""
    sample: Evidence
    """of some rows; its mean law and usual weight are of all"""

    @property
    def log(self) -> Log:
        """Of the sample."""
        return self.sample.log

    @property
    def predicted(self) -> np.ndarray | None:
        """Of the sample."""
        return self.sample.predicted

    @property
    def seed(self) -> int:
        """Of random estimators."""
        return self.sample.seed

    def form(self, estimator: Estimator) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Numerators and denominators; as the estimators have them where no row has a weight."""
        above, below = _FORMS[estimator]
        if self.blocks[:, 2].any():
            return above, below
        return above, [
            0 * _ONE if isinstance(estimator, IPS) else _ONE if isinstance(estimator, SNDR) else one for one in below
        ]

    def terms(self, above: list[np.ndarray], below: list[np.ndarray]) -> Terms:
        """Of blocks, whose influence has the variance of that of rows."""
        numerator, denominator = self.blocks @ np.transpose(above), self.blocks @ np.transpose(below)
        plain = Terms(numerator, denominator)
        total, own = denominator.sum(axis=0), (plain.influence**2).sum() / _BLOCKS**2
        if not total.all() or not own:
            return plain
        ratios = numerator.sum(axis=0) / total
        slope = sum((a - ratio * b) / t for a, b, ratio, t in zip(above, below, ratios, total, strict=True))
        scale = np.sqrt(max(slope @ self.gram @ slope, 0.0) / own)
        return Terms(*(part.mean(axis=0) + scale * (part - part.mean(axis=0)) for part in plain))

    def difference(self, estimator: Estimator) -> Terms:
        """Of the target and the log."""
        above, below = self.form(estimator)
        return self.terms([*above, -_R], [*below, _ONE])

    @property
    def mean(self) -> Terms:
        """Of the rewards of the log."""
        return self.terms([_R], [_ONE])

    def row(self, rows: list[Terms]) -> list[Terms]:
        """Of the size of a row in place of a block."""
        return [Terms(*(part * _BLOCKS / self.rows for part in one)) for one in rows]

    def known(self, reward_range: Ends | None) -> Ends:
        """The range of the rewards. Raises ValueError where it is unknown."""
        found = (0.0, 1.0) if self.binary and reward_range is None else None
        if found is None and reward_range is None:
            raise ValueError("a folder of files needs the range of possible rewards: pass reward_range=(low, high)")
        return found or cast(Ends, range_of(reward_range, self.ends))

    def check(self, estimators: list[Estimator], groups: Any) -> None:
        """Raises ValueError for what needs all rows."""
        wrong = [one.name for one in estimators if one not in _FORMS]
        if wrong or groups is not None:
            raise ValueError(
                f"{wrong[0] if wrong else 'groups='} needs all rows together: a folder of files has the estimators "
                f"{', '.join(one.name for one in _FORMS)}, without groups; pass one file, or a Log"
            )


class _Part(NamedTuple):
    """Of some rows."""

    ends: tuple[np.ndarray, np.ndarray]
    """(2,) of rewards and weights"""
    sums: tuple[Any, ...]
    """blocks, gram, rewards beside 0 and 1, law, usual weight, rows of each action, and those of `Support`"""
    sample: list[Evidence]

    def plus(self, other: "_Part") -> "_Part":
        ends = [np.array([min(a[0], b[0]), max(a[1], b[1])]) for a, b in zip(self.ends, other.ends, strict=True)]
        sums = tuple(a + b for a, b in zip(self.sums, other.sums, strict=True))
        return _Part((ends[0], ends[1]), sums, self.sample + other.sample)


def standard(predicted: Any) -> list[Estimator]:
    """Estimators by sums that need no more than is there."""
    return [one for one in _FORMS if predicted is not None or "predicted" not in one.needs]


@reach.register
def _reach(given: Sums) -> Reach:
    return reach_of(given.sample, given.support)


@overlap_seen.register
def _overlap(given: Sums, reward_range: Ends | None, groups: Any) -> Overlap:
    given.check([], groups)
    return overlap_of(given.sample, given.known(reward_range), None, given.support)


@evidence.register
def _of_folder(log: LogFolder, target: Numbers, predicted: Numbers | None = None, *, seed: int) -> Sums:
    actions = log.files[0].num_actions
    step = -(-log.rows // max(1, min(_SAMPLE, _CELLS // actions)))
    starts = np.cumsum([0, *(file.rows for file in log.files)]).tolist()
    tasks = [(file, start, step, target, predicted, seed) for file, start in zip(log.files, starts, strict=False)]
    total = functools.reduce(_Part.plus, _in_order(tasks, log.executor))
    rows, (blocks, gram, odd, law, usual, played, others, certain, never) = log.rows, total.sums
    sample = _joined(total.sample)._replace(law=law / rows, usual_weight=usual / rows)
    known = sample.log.logging is not None
    mean, square = blocks[:, 2].sum() / rows, gram[2, 2] / rows
    error = float(np.sqrt(max(square - mean**2, 0.0) / max(rows - 1, 1)))
    weights = Weights(rows, float(mean), error, float(square), float(np.abs(total.ends[1]).max()))
    support = Support(weights, played, others, certain / rows, never / rows if known else None)
    return Sums(rows, blocks, gram, total.ends[0], not odd, total.ends[1], support, sample)


def _in_order(tasks: list[Any], executor: Executor | None) -> Iterator[_Part]:
    """Sums of one file after the other, of which few wait."""
    if executor is None:
        yield from itertools.starmap(_summed, tasks)
        return
    ahead: collections.deque[Future[_Part]] = collections.deque()
    for task in tasks:
        ahead.append(executor.submit(_summed, *task))
        if len(ahead) > 2 * (executors.width(executor) or 1):
            yield ahead.popleft().result()
    while ahead:
        yield ahead.popleft().result()


def _summed(file: Any, first: int, step: int, target: Numbers, predicted: Numbers | None, seed: int) -> _Part:
    """One file, whose first row has this number in the folder."""
    total: _Part | None = None
    for start, own in evidence_of(file, target, predicted, seed=seed):
        if not own.log.known_propensities:
            raise ValueError(f"{file.file}: a folder of files needs propensities: estimate them, or pass a Log")
        count, r, w = len(own.weights), own.log.reward, own.weights
        direct, residual = (np.nan_to_num(part) for part in (own.direct, own.residual))
        z = np.stack([np.ones(count), r, w, w * r, direct, w * residual], axis=1)
        place = np.arange(first + start, first + start + count, dtype=np.uint64)
        block = ((place * _SPREAD) >> _SHIFT).astype(np.int64)
        blocks = np.stack([np.bincount(block, column, _BLOCKS) for column in z.T], axis=1)
        some = slice(-(first + start) % step, None, step)
        kept = own._replace(
            log=own.log[some].replace(key=None, action_features=None, reward_parts=None),
            target=Target(own.target.probabilities[some], w[some]),
            predicted=None if own.predicted is None else own.predicted[some],
            weights=w[some],
            direct=own.direct[some],
            residual=own.residual[some],
        )
        support, odd = support_of(own), int((~np.isin(r, (0, 1))).sum())
        of_support = support.played, support.others, count * support.certain, count * (support.never or 0.0)
        sums = blocks, z.T @ z, odd, count * own.law, count * own.usual_weight, *of_support
        one = _Part((r[[r.argmin(), r.argmax()]], w[[w.argmin(), w.argmax()]]), sums, [kept])
        total = one if total is None else total.plus(one)
    assert total is not None, "scan_log refuses files without rows"
    return total


def _joined(sample: list[Evidence]) -> Evidence:
    """The sample as one, with the mean law of its first part."""
    parts = [part for part in sample if len(part.log)]
    first = parts[0]

    def together(take: Callable[[Any], Any]) -> Any:
        found = [take(part) for part in parts]
        return None if any(one is None for one in found) else np.concatenate(found)

    fields = ("context", "action", "reward", "propensity", "mask", "timestamp", "logging")
    log = first.log.replace(**{name: together(lambda part, name=name: getattr(part.log, name)) for name in fields})
    weights, fields = together(lambda part: part.weights), ("predicted", "direct", "residual")
    return first._replace(
        log=log,
        target=Target(together(lambda part: part.target.probabilities), weights),
        weights=weights,
        **{name: together(lambda part, name=name: getattr(part, name)) for name in fields},
    )
