"""What the calls of an `OnlineAgent` write to its log, and learn of it."""

import math
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seqdec.checks import positive
from seqdec.core import PyTree
from seqdec.online import contexts
from seqdec.online.arms import Arms
from seqdec.online.digests import content_digest
from seqdec.online.learner import Learner
from seqdec.online.rewards import Parts, Stored, decoded, encoded, make_rule
from seqdec.online.tables import COLLECTED, DEFAULT, REPORTED, Entry
from seqdec.online.turns import exclusive, urgent
from seqdec.online.upkeep import Result
from seqdec.ope.log import Log

_PART, _FEW = 1024, 8
"""Decisions whose time is over that are learned as one batch; those that a call to decide learns."""

_PORTION, _BYTES = 128, 2**18
"""Rows that are written while others wait, and their bytes, at most."""

_LATEST = 500
"""Decisions whose contexts are averaged for an explanation."""


class Decision(NamedTuple):
    """What to do, and how to report its reward."""

    action: Any
    """id of the arm, or the point of a Box"""
    propensity: float
    """probability with which the policy plays this arm; NaN where it is not estimated"""
    token: str
    """for `OnlineAgent.learn`"""
    probabilities: tuple[float, ...] | None = None
    """of all arms by their ids, where the policy computes them anyway, for at most 256 arms; else None, as for the
    default policies: see `OnlineAgent.explain`"""


class Known(NamedTuple):
    """What an agent knows when it is asked for an explanation."""

    learner: Learner
    state: PyTree
    record: np.ndarray
    """() the context, as it would be decided on"""
    mask: np.ndarray
    """(outputs,) bool"""
    outputs: dict[int, int]
    """(id of an arm) -> its output, of arms that are not removed"""
    latest: np.ndarray
    """(n,) contexts of the latest decisions; the context itself where there are none"""


class Calls(Arms):
    """An agent whose calls are in its log. Their arguments are checked and encoded.

    Args:
        expire_after, rewards, reward_after, reward_default, reward_weights: of `OnlineAgent`.
        others: of `Upkeep`.
    """

    def __init__(
        self,
        *,
        expire_after: float | None,
        rewards: str,
        reward_after: float | None,
        reward_default: float | Mapping[str, float] | None,
        reward_weights: Mapping[str, float] | None,
        **others: Any,
    ) -> None:
        """See the class."""
        if expire_after is not None:
            positive("expire_after", expire_after)
        rule = make_rule(rewards, reward_after, reward_default, reward_weights)
        self._window = None if reward_after is None else int(1e9 * reward_after)
        self._lifetime = min(1e9 * seconds for seconds in (expire_after, reward_after, math.inf) if seconds is not None)
        self._counts: Counter[str] = Counter()
        super().__init__(rule=rule, **others)

    @urgent
    def _decided(
        self, records: np.ndarray, mask: Any, lead: tuple[int, ...], nonces: Sequence[bytes]
    ) -> list[Decision]:
        """Decide, and write the decisions to the log; `mask` is (*lead, ids), `nonces` are of tokens."""
        if not len(records):
            return []
        allowed = np.broadcast_to(self._allowed(mask, lead), (len(records), len(self._arms)))
        records, clipped = contexts.clipped(self._spaces.observation_space, records)
        owners = {arm.output: key for key, arm in self._arms.items() if arm.output is not None}
        masks = np.zeros((len(records), self._learner.outputs), bool)
        masks[:, list(owners)] = allowed[:, list(owners.values())]
        values, propensities, every = self._learner.decide(self._journal.decisions + 1, records, masks)
        rows = len(records)
        if owners:
            actions: list[Any] = [owners[output] for output in values.tolist()]
            written, masks = actions, parts_of(allowed.tobytes(), rows)
        else:
            actions, written = list(map(_frozen, values)), parts_of(values.astype(np.float32).tobytes(), rows)
            masks = [None] * rows
        known, propensities = contexts.packed(records), propensities.tolist()
        first = self._journal.add_decisions(list(map(Entry, nonces, known, masks, written, propensities)))
        if clipped:
            self._counts["clipped"] += clipped
        tokens = [f"{number}-{nonce.hex()}" for number, nonce in enumerate(nonces, first)]
        if every is None:
            return list(map(Decision, actions, propensities, tokens))
        by_id = np.zeros((rows, len(self._arms)))
        by_id[:, list(owners.values())] = every[:, list(owners)]
        return list(map(Decision, actions, propensities, tokens, map(tuple, by_id.tolist())))

    @urgent
    def _known(self, records: np.ndarray, mask: Any) -> Known:
        """What an explanation is made of, for one context; it can be computed while others decide."""
        allowed = self._allowed(mask, ())
        records, _ = contexts.clipped(self._spaces.observation_space, records)
        outputs = {key: arm.output for key, arm in self._arms.items() if not arm.removed and arm.output is not None}
        masks = np.zeros(self._learner.outputs, bool)
        masks[list(outputs.values())] = allowed[list(outputs)]
        others = contexts.unpacked(self._journal.latest(_LATEST) or [records.tobytes()], self._record)
        return Known(self._learner, self._learner.copied(), records[0], masks, outputs, others)

    @exclusive
    def _reported(self, asked: Sequence[tuple[int, bytes, Parts]]) -> list[Result]:
        """Write to the log and learn what is new of (number, nonce, reward)."""
        results: list[Result] = ["repeated"] * len(asked)
        new: dict[int, int] = {}
        collected: list[tuple[int, Parts]] = []
        told: dict[int, set[str]] = {}
        rule, oldest = self._rule, self._journal.now() - self._lifetime
        for index, (number, nonce, parts) in enumerate(asked):
            found = self._journal.find(number)
            if found is None or found.nonce != nonce:
                results[index] = "unknown"
            elif found.source == REPORTED or number in new or (found.source == COLLECTED and rule.keeps_first):
                results[index] = "repeated"
            elif found.source is not None or found.time < oldest:
                results[index] = "expired"
            elif not rule.collects:
                new[number] = index
            else:
                if rule.keeps_first and number not in told:
                    told[number] = {name for report in self._journal.reports(number) for name in decoded(report)}
                known = told.get(number, set())
                if fresh := {name: part for name, part in parts.items() if name not in known}:
                    results[index] = "collected"
                    collected.append((number, fresh))
                    known.update(fresh)
        if collected:
            numbers, fresh = zip(*collected, strict=True)
            self._journal.add_reports(numbers, list(map(encoded, fresh)))
        if new:
            rewards = [encoded(asked[index][2]) for index in new.values()]
            self._journal.add_rewards(list(new), rewards, [REPORTED] * len(new))
            for index, result in zip(new.values(), self._catch_up(self._learner, self._arms), strict=True):
                results[index] = result
        self._counts.update(results)
        return results

    def _add_history(self, records: np.ndarray, log: Log, rewards: Sequence[Parts]) -> bool:
        """Write the decisions of another log to this one, unless it has them; returns whether it had not.

        For one thread at a time, while others go on. All of them count when this returns; else none does.
        """
        propensities = np.full(len(log.action), np.nan) if log.estimated else log.propensity
        outcomes = [np.array([parts[name] for parts in rewards]) for name in self._rule.weights]
        told = content_digest(records, log.mask, log.action, *outcomes, propensities, log.timestamp, *self._also(log))
        if told in self._histories():
            return False
        records, masks, actions = self._history_of(records, log)
        records, clipped = contexts.clipped(self._spaces.observation_space, records)
        decided = [
            Entry(nonce, record, mask, action, float(propensity))
            for nonce, record, mask, action, propensity in zip(
                new_nonces(len(records)), contexts.packed(records), masks, actions, propensities, strict=True
            )
        ]
        stored, rows = list(map(encoded, rewards)), len(decided)
        while self._dropped():
            pass
        step = portion(max(len(entry.context) + len(entry.mask or b"") for entry in decided))
        for start in range(0, rows, step):
            self._stage(start, decided[start : start + step], stored[start : start + step], rows)
        self._show_history(rows, told, clipped)
        return True

    @urgent
    def _histories(self) -> list[str]:
        """The digests of the other logs in this one."""
        return self._journal.histories()

    @urgent
    def _dropped(self) -> int:
        """Delete some of what is left of another log that was not written to its end; returns how much."""
        return self._journal.drop_staged(portion(1))

    @urgent
    def _stage(self, place: int, entries: Sequence[Entry], rewards: Sequence[Stored], rows: int) -> None:
        self._journal.stage(place, entries, rewards, rows)

    @exclusive
    def _show_history(self, rows: int, digest: str, clipped: int) -> None:
        self._journal.show_history(rows, digest)
        if clipped:
            self._counts["clipped"] += clipped

    def _records_of(self, log: Log) -> np.ndarray:
        """The contexts of a log. Raises TypeError or ValueError where it does not fit."""
        rows, names = len(log.action), list(self._record.names or ())
        shape = contexts.shape_of(self._record, names[0])
        features = log.context if log.action_features is None else log.action_features
        if len(names) > 1 or features[0].size != math.prod(shape):
            raise ValueError(f"a row of the log has {features[0].shape} numbers; an observation has {self._record}")
        stacked = features.reshape(rows, *shape)
        whole = stacked if names[0] == contexts.WHOLE else {names[0]: stacked}
        return contexts.checked(self._spaces.observation_space, self._record, whole, rows)

    def _also(self, log: Log) -> list[np.ndarray]:
        """What else tells a log from others, besides contexts, actions and rewards."""
        return []

    def _history_of(self, records: np.ndarray, log: Log) -> tuple[np.ndarray, list[bytes], list[int]]:
        """What is written of a log: contexts, masks and actions. Raises ValueError where an action is not known."""
        if log.num_actions > len(self._arms):
            raise ValueError(f"the log has {log.num_actions} actions; this agent has {len(self._arms)} arms")
        return records, parts_of(log.mask.tobytes(), len(records)), log.action.tolist()

    @exclusive
    def _copied(self) -> PyTree:
        return jax.tree.map(jnp.copy, self._learner.belief.state)

    @exclusive
    def _counted(self) -> dict[str, int]:
        return {"decisions": self._journal.decisions, "rewards": self._journal.rewards, **self._counts}

    def _ease(self) -> None:
        while self._window is not None and self._is_more_due():
            pass
        super()._ease()

    @urgent
    def _is_more_due(self) -> bool:
        """Whether there are decisions whose time is over, besides the few that were looked at before this."""
        assert self._window is not None
        _, last = self._journal.unrewarded(self._ended, self._journal.now() - self._window, 1)
        return last != self._ended

    def _prepare(self, in_haste: bool) -> None:
        """Learn the rewards of the decisions whose time is over, of the next few in haste."""
        if self._window is None:
            return
        before, done = self._journal.now() - self._window, False
        while not done:
            due, last = self._journal.unrewarded(self._ended, before, _FEW if in_haste else _PART)
            settled = [(number, reports, self._rule.settled(list(map(decoded, reports)))) for number, reports in due]
            known = [
                (number, encoded(parts), COLLECTED if reports else DEFAULT)
                for number, reports, parts in settled
                if parts is not None
            ]
            if known:
                numbers, rewards, sources = zip(*known, strict=True)
                self._journal.add_rewards(numbers, rewards, sources)
                results = self._catch_up(self._learner, self._arms)
                self._counts.update(
                    DEFAULT if source == DEFAULT else result for source, result in zip(sources, results, strict=True)
                )
            if incomplete := sum(parts is None and bool(reports) for _, reports, parts in settled):
                self._counts["incomplete"] += incomplete
            done, self._ended = last == self._ended or in_haste, last


def new_nonces(count: int) -> list[bytes]:
    """Of tokens: eight random bytes each."""
    return parts_of(secrets.token_bytes(8 * count), count)


def portion(size: int) -> int:
    """How many rows of so many bytes are written while others wait."""
    return max(1, min(_PORTION, _BYTES // max(1, size)))


def parts_of(content: bytes, count: int) -> list[bytes]:
    """So many parts of equal length."""
    size = len(content) // max(count, 1)
    return [content[size * place : size * (place + 1)] for place in range(count)]


def _frozen(point: np.ndarray) -> np.ndarray:
    """A copy that cannot be written."""
    own = point.copy()
    own.flags.writeable = False
    return own
