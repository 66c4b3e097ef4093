"""What the calls of an `OnlineAgent` write to its log, and learn of it."""

import math
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as gym_spaces

from seqdec import checks
from seqdec.checks import positive
from seqdec.core import PyTree
from seqdec.online import contexts
from seqdec.online.arguments import check_rewards, checked_reward
from seqdec.online.tables import COLLECTED, DEFAULT, REPORTED, Entry
from seqdec.online.upkeep import Result, Upkeep, exclusive
from seqdec.ope.log import Log

_PART = 1024
"""Decisions whose time is over that are learned as one batch."""

_AGGREGATIONS: dict[str, Callable[[list[float]], float]] = {
    "first": lambda given: given[0],
    "sum": math.fsum,
    "last": lambda given: given[-1],
    "max": max,
}
"""(rewards of a decision, as they came) -> the one that is learned."""


class Decision(NamedTuple):
    """What to do, and how to report its reward."""

    action: Any
    """id of the arm, or the point of a Box"""
    propensity: float
    """probability with which the policy plays this arm; NaN where it is not estimated"""
    token: str
    """for `OnlineAgent.learn`"""


class Calls(Upkeep):
    """An agent whose calls are in its log. Their arguments are checked and encoded.

    Args:
        expire_after, rewards, reward_after, reward_default: of `OnlineAgent`.
        others: of `Upkeep`.
    """

    def __init__(
        self,
        *,
        expire_after: float | None,
        rewards: str,
        reward_after: float | None,
        reward_default: float | None,
        **others: Any,
    ) -> None:
        """See the class."""
        if expire_after is not None:
            positive("expire_after", expire_after)
        check_rewards(rewards, _AGGREGATIONS, reward_after, reward_default)
        self._collects, self._put_together = rewards != "first", _AGGREGATIONS[rewards]
        self._default = None if reward_default is None else checked_reward(reward_default)
        self._window = None if reward_after is None else int(1e9 * reward_after)
        self._lifetime = min(1e9 * seconds for seconds in (expire_after, reward_after, math.inf) if seconds is not None)
        self._counts: Counter[str] = Counter()
        options = {
            "rewards": rewards,
            "reward_after": None if reward_after is None else float(reward_after),
            "reward_default": self._default,
        }
        super().__init__(options=options, **others)

    @property
    def arms(self) -> tuple[int, ...]:
        """The ids of the arms that may be played; empty for points of a Box."""
        return tuple(key for key, arm in self._arms.items() if not arm.removed)

    @exclusive
    def _decided(self, records: np.ndarray, mask: Any, lead: tuple[int, ...]) -> list[Decision]:
        """Decide, and write the decisions to the log; `mask` is (*lead, ids)."""
        if not len(records):
            return []
        allowed = np.broadcast_to(self._allowed(mask, lead), (len(records), len(self._arms)))
        records, clipped = contexts.clipped(self._spaces.observation_space, records)
        owners = {arm.output: key for key, arm in self._arms.items() if arm.output is not None}
        masks = np.zeros((len(records), self._learner.outputs), bool)
        masks[:, list(owners)] = allowed[:, list(owners.values())]
        values, propensities = self._learner.decide(self._journal.decisions + 1, records, masks)
        actions: list[Any] = [owners[int(output)] for output in values] if owners else list(map(_frozen, values))
        entries = [
            Entry(
                secrets.token_bytes(8),
                record.tobytes(),
                mask.tobytes() if owners else None,
                action if owners else action.astype(np.float32).tobytes(),
                float(propensity),
            )
            for record, mask, action, propensity in zip(records, allowed, actions, propensities, strict=True)
        ]
        first = self._journal.add_decisions(entries)
        if clipped:
            self._counts["clipped"] += clipped
        return [
            Decision(action, entry.propensity, f"{first + index}-{entry.nonce.hex()}")
            for index, (action, entry) in enumerate(zip(actions, entries, strict=True))
        ]

    @exclusive
    def _reported(self, asked: Sequence[tuple[int, bytes, float]]) -> list[Result]:
        """Write to the log and learn what is new of (number, nonce, reward)."""
        results: list[Result] = ["repeated"] * len(asked)
        new: dict[int, int] = {}
        collected: list[int] = []
        oldest = self._journal.now() - self._lifetime
        for index, (number, nonce, _) in enumerate(asked):
            found = self._journal.find(number)
            if found is None or found.nonce != nonce:
                results[index] = "unknown"
            elif found.source == REPORTED or number in new:
                results[index] = "repeated"
            elif found.source is not None or found.time < oldest:
                results[index] = "expired"
            elif self._collects:
                results[index] = "collected"
                collected.append(index)
            else:
                new[number] = index
        if collected:
            numbers, _, rewards = zip(*(asked[index] for index in collected), strict=True)
            self._journal.add_reports(numbers, rewards)
        if new:
            rewards = [asked[index][2] for index in new.values()]
            self._journal.add_rewards(list(new), rewards, [REPORTED] * len(new))
            for index, result in zip(new.values(), self._catch_up(self._learner, self._arms), strict=True):
                results[index] = result
            self._snapshot_if_due()
        self._counts.update(results)
        return results

    @exclusive
    def _add_history(self, records: np.ndarray, log: Log, rewards: Sequence[float]) -> None:
        """Write the decisions of another log to this one, and learn them."""
        if log.num_actions > len(self._arms):
            raise ValueError(f"the log has {log.num_actions} actions; this agent has {len(self._arms)} arms")
        records, clipped = contexts.clipped(self._spaces.observation_space, records)
        propensities = np.full(len(log.action), np.nan) if log.estimated else log.propensity
        decided = [
            Entry(secrets.token_bytes(8), record.tobytes(), mask.tobytes(), int(action), float(propensity))
            for record, mask, action, propensity in zip(records, log.mask, log.action, propensities, strict=True)
        ]
        self._journal.add_history(decided, rewards)
        if clipped:
            self._counts["clipped"] += clipped
        self._catch_up(self._learner, self._arms)
        self._snapshot_if_due()

    @exclusive
    def _copied(self) -> PyTree:
        return jax.tree.map(jnp.copy, self._learner.belief.state)

    @exclusive
    def _counted(self) -> dict[str, int]:
        return {"decisions": self._journal.decisions, "rewards": self._journal.rewards, **self._counts}

    def _prepare(self) -> None:
        """Learn the rewards of the decisions whose time is over."""
        if self._window is None:
            return
        due = self._journal.unrewarded(self._ended, self._journal.now() - self._window)
        for start in range(0, len(due), _PART):
            part = due[start : start + _PART]
            known = [(number, self._put_together(reports), COLLECTED) for number, reports in part if reports]
            if self._default is not None:
                known += [(number, self._default, DEFAULT) for number, reports in part if not reports]
            if known:
                numbers, rewards, sources = zip(*sorted(known), strict=True)
                self._journal.add_rewards(numbers, rewards, sources)
                results = self._catch_up(self._learner, self._arms)
                self._counts.update(
                    DEFAULT if source == DEFAULT else result for source, result in zip(sources, results, strict=True)
                )
                self._snapshot_if_due()
            self._ended = part[-1][0]

    def _check_arms(self) -> None:
        candidates = isinstance(self._spaces.observation_space, gym_spaces.Dict)
        if candidates or not self._arms:
            kind = "candidates, which a mask allows or not" if candidates else "points of a Box"
            raise TypeError(f"arms can be added and removed where actions have an index; here they are {kind}")

    def _allowed(self, mask: Any, lead: tuple[int, ...]) -> np.ndarray:
        """(*lead, ids) bool, whether each arm may be played."""
        live = np.array([not arm.removed for arm in self._arms.values()], bool)
        if mask is None:
            return np.broadcast_to(live, (*lead, len(live)))
        given = np.asarray(checks.as_array("the mask", mask))
        if given.dtype != bool or given.shape != (*lead, len(live)):
            raise ValueError(
                f"the mask must be bool of shape {(*lead, len(live))}, an entry for each id of an arm; "
                f"got {given.dtype} of shape {given.shape}"
            )
        allowed = given & live
        if not allowed.any(-1).all():
            raise ValueError(f"the mask must allow at least one of the arms {self.arms}; got {mask!r:.80}")
        return allowed


def _frozen(point: np.ndarray) -> np.ndarray:
    """A copy that cannot be written."""
    own = point.copy()
    own.flags.writeable = False
    return own
