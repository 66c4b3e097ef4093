"""Rewards of decisions: a number each, or named numbers with weights.

The log holds a number, the part "", or named parts as a JSON object, weighted only when learned or read.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from seqdec.boundary import checks
from seqdec.boundary.checks import choice, positive
from seqdec.ope.columns import part_column
from seqdec.ope.log import Log
from seqdec.registry import unknown
from seqdec.service.learner import Learner, Result
from seqdec.service.store import (
    COLLECTED,
    DEFAULT,
    REPORTED,
    WITHDRAWN,
    Logged,
    Store,
    Stored,
    check_keys,
    nanoseconds,
)

_PLAIN = ""
_LARGEST = float(np.finfo(np.float32).max)
_AGGREGATIONS: dict[str, Callable[[list[float]], float]] = {
    "first": lambda given: given[0],
    "sum": math.fsum,
    "last": lambda given: given[-1],
    "max": max,
}
"""(reported numbers, in order) -> the one to learn."""

Parts = dict[str, float]
"""Parts of a reward by name."""
_MANY, _FEW = 1024, 8
"""Due decisions in a batch; those that `decide` learns."""


class Rule(NamedTuple):
    """Treatment of a decision's rewards."""

    aggregation: str
    after: float | None
    """seconds in which a decision takes rewards; None: learn each at once"""
    defaults: Parts
    """by name, where there is one"""
    weights: Parts
    """by name, sorted"""

    @property
    def names(self) -> list[str] | None:
        return None if _PLAIN in self.weights else list(self.weights)

    def facts(self) -> dict[str, Any]:
        plain = self.names is None
        return {
            "reward_names": self.names,
            "rewards": self.aggregation,
            "reward_after": self.after,
            "reward_default": self.defaults.get(_PLAIN) if plain else self.defaults or None,
            "reward_weights": None if plain else self.weights,
        }

    def parse(self, reward: Any) -> Parts:
        """Parts of a reported reward. Raises TypeError or ValueError."""
        if self.names is None:
            if isinstance(reward, Mapping):
                raise TypeError(
                    f"a reward must be a number; got {reward!r:.80}: for named ones make the agent with their weights, "
                    "as in reward_weights={'click': 1.0, 'revenue': 0.05}"
                )
            return {_PLAIN: checked_reward(reward)}
        parts = _named("a reward", reward, self.names)
        missing = [name for name in self.names if name not in parts]
        if not parts or (missing and self.after is None):
            raise ValueError(
                f"the reward {reward!r:.80} lacks {', '.join(missing)}: report all names at once, or let the agent "
                "collect them, reward_after=seconds"
            )
        return parts

    def combined(self, reports: Sequence[Parts]) -> Parts | None:
        """All reports as one, with defaults; None where a part is missing."""
        combine = _AGGREGATIONS[self.aggregation]
        found = {name: [report[name] for report in reports if name in report] for name in self.weights}
        parts = self.defaults | {name: combine(given) for name, given in found.items() if given}
        return parts if len(parts) == len(self.weights) else None

    def of_log(self, log: Log) -> list[Parts]:
        """Parts of a log's rewards. Raises ValueError where some are missing."""
        if self.names is None:
            return [self.parse(reward) for reward in log.reward]
        columns = log.reward_parts or {}
        if missing := [name for name in self.names if name not in columns]:
            raise ValueError(
                f"the log lacks the reward {missing[0]!r}; it has {', '.join(columns) or 'no named rewards'}: give it "
                f"the columns {', '.join(map(part_column, self.names))}, or make_log the reward_parts"
            )
        rows = zip(*(columns[name].tolist() for name in self.names), strict=True)
        return [self.parse(dict(zip(self.names, row, strict=True))) for row in rows]


class Rewards:
    """Rewards of the decisions in a log, and their learning. One thread at a time, except `parse`."""

    def __init__(self, rule: Rule, expire_after: float | None, store: Store, learner: Learner) -> None:
        self._rule, self._store, self._learner = rule, store, learner
        self._window = None if rule.after is None else nanoseconds(rule.after)
        self._lifetime = min(1e9 * seconds for seconds in (expire_after, rule.after, math.inf) if seconds is not None)
        self._ended: Any = None
        self.counts: Counter[str] = Counter()

    @property
    def collects(self) -> bool:
        return self._window is not None

    def parse(self, given: Iterable[Sequence[Any]]) -> list[tuple[int, bytes, Parts, bytes | None]]:
        """Number, nonce, reward and digest of the key of (token, reward) or (token, reward, key).

        Raises TypeError or ValueError.
        """
        parse = self._rule.parse
        return [(*place_of(token), parse(reward), _digest(*key)) for token, reward, *key in map(_report, given)]

    def report(self, asked: Sequence[tuple[int, bytes, Parts, bytes | None]]) -> list[Result]:
        """Log and learn what is new; returns the result of each. A shared store's rewards are learned later."""
        with self._store.locked({number for number, *_ in asked}) as found:
            results, new = self._logged(asked, found)
        if new and not self._store.is_shared:
            for index, result in zip(new, self._learner.catch_up(), strict=True):
                results[index] = result
        self.counts.update(result for result in results if result != "withdrawn")
        return results

    def _logged(
        self, asked: Sequence[tuple[int, bytes, Parts, bytes | None]], known: Mapping[int, Logged]
    ) -> tuple[list[Result], list[int]]:
        """Log what is new about these decisions; results, and places of rewards to learn at once."""
        results: list[Result] = ["repeated"] * len(asked)
        new: dict[int, int] = {}
        collected: list[tuple[int, Parts, bytes | None]] = []
        activated: set[int] = set()
        rule, oldest = self._rule, self._store.now() - self._lifetime
        keeps_first = rule.aggregation == "first"
        keys, names = self._reported(known)
        for index, (number, nonce, parts, key) in enumerate(asked):
            found = known.get(number)
            if found is None or found.nonce != nonce:
                results[index] = "unknown"
            elif found.source == WITHDRAWN:
                results[index] = "withdrawn"
            elif found.source == REPORTED or number in new:
                results[index] = "repeated"
            elif found.source is not None or (found.begun is not None and found.begun < oldest):
                was_given = key in keys[number] or (keeps_first and names[number].issuperset(parts))
                results[index] = "repeated" if was_given else "expired"
            elif rule.after is None:
                new[number] = index
                results[index] = "collected"
            elif key not in keys[number]:
                old = names[number] if keeps_first else set()
                fresh = {name: part for name, part in parts.items() if name not in old}
                if not fresh:
                    continue
                results[index] = "collected"
                collected.append((number, fresh, key))
                if found.begun is None:
                    activated.add(number)
                names[number].update(fresh)
                if key is not None:
                    keys[number].add(key)
        if collected:
            reports = [(number, encoded(fresh), key) for number, fresh, key in collected]
            self._store.append_reports(reports, sorted(activated))
        if new:
            rows = [(known[number], encoded(asked[at][2]), REPORTED) for number, at in new.items()]
            self._store.append_rewards(rows)
        return results, list(new.values())

    def _reported(self, numbers: Collection[int]) -> tuple[dict[int, set[bytes]], dict[int, set[str]]]:
        """Digests of the keys of the decisions' reports, and names of the parts in them."""
        keys: dict[int, set[bytes]] = {number: set() for number in numbers}
        names: dict[int, set[str]] = {number: set() for number in numbers}
        for number, given in self._store.reports(numbers).items() if self.collects else ():
            for reward, digest in given:
                names[number].update(decoded(reward))
                if digest is not None:
                    keys[number].add(digest)
        return keys, names

    def activate(self, number: int, nonce: bytes) -> Result:
        """Log that a decision takes rewards from now on, if it does not yet."""
        with self._store.locked([number]) as known:
            found = known.get(number)
            if found is None or found.nonce != nonce:
                self.counts["unknown"] += 1
                return "unknown"
            if found.source == WITHDRAWN:
                return "withdrawn"
            if found.begun is None:
                self._store.activate(number)
                self.counts["activated"] += 1
            return "activated"

    def withdraw(self, number: int, nonce: bytes) -> Result:
        """Log that a decision is never learned, unless it has a reward."""
        result: Result = "repeated"
        with self._store.locked([number]) as known:
            found = known.get(number)
            if found is None or found.nonce != nonce:
                result = "unknown"
            elif found.source in (None, WITHDRAWN):
                result = "withdrawn"
                if found.source is None:
                    self._store.withdraw([number])
        if found is None or found.source != WITHDRAWN:
            self.counts[result] += 1
        return result

    def settle(self, *, few: bool) -> None:
        """Learn the rewards of due decisions, or of the next few."""
        if self._window is None:
            return
        before, done = self._store.now() - self._window, False
        while not done:
            due, last = self._store.unrewarded(self._place(), before, _FEW if few else _MANY)
            sources = self._settled([found.number for found in due]) if due else []
            if sources and not self._store.is_shared:
                results = zip(sources, self._learner.catch_up(), strict=True)
                self.counts.update(DEFAULT if source == DEFAULT else result for source, result in results)
            done, self._ended = last == self._ended or few, last

    def _settled(self, numbers: Sequence[int]) -> list[str]:
        """Log the rewards of decisions whose time is over; their sources."""
        with self._store.locked(numbers) as found:
            rows: list[tuple[Logged, Stored, str]] = []
            waiting = [found[number] for number in numbers if number in found and found[number].source is None]
            reports = self._store.reports([one.number for one in waiting])
            for one in waiting:
                given = [decoded(reward) for reward, _ in reports.get(one.number, ())]
                parts = self._rule.combined(given)
                if parts is not None:
                    rows.append((one, encoded(parts), COLLECTED if given else DEFAULT))
                elif given:
                    self.counts["incomplete"] += 1
            if rows:
                self._store.append_rewards(rows)
        return [source for *_, source in rows]

    def _place(self) -> Any:
        """Up to which decisions were looked at."""
        if self._ended is None:
            self._ended = self._store.settled()
        return self._ended

    def is_more_due(self) -> bool:
        assert self._window is not None
        place = self._place()
        _, last = self._store.unrewarded(place, self._store.now() - self._window, 1)
        return last != place


def make_rule(rewards: str, after: float | None, default: Any, weights: Any) -> Rule:
    """The rule of an `OnlineAgent`'s arguments. Raises TypeError or ValueError."""
    choice("rewards", rewards, _AGGREGATIONS)
    checked = _weights(weights)
    if after is not None:
        positive("reward_after", after)
        if rewards == "first" and default is None and weights is None:
            raise ValueError("reward_after needs a reward_default, such as 0.0, or rewards='sum', 'last' or 'max'")
    elif rewards != "first" or default is not None:
        given = f"rewards={rewards!r}" if rewards != "first" else f"reward_default={default!r}"
        raise ValueError(f"{given} needs reward_after, the seconds in which a decision accepts rewards")
    rule = Rule(rewards, None if after is None else float(after), {}, checked)
    if default is None:
        return rule
    return rule._replace(
        defaults=rule.parse(default) if weights is None else _named("reward_default", default, list(checked))
    )


def encoded(parts: Parts) -> Stored:
    """A reward as stored."""
    return parts[_PLAIN] if _PLAIN in parts else json.dumps(parts, sort_keys=True)


def decoded(stored: Stored) -> Parts:
    """Parts of a stored reward."""
    return json.loads(stored) if isinstance(stored, str) else {_PLAIN: stored}


def worth(stored: Stored, weights: Mapping[str, float] | None) -> float:
    """The number to learn: the weighted sum of the parts."""
    if not isinstance(stored, str):
        return stored
    parts = decoded(stored)
    return math.fsum(weight * parts[name] for name, weight in (weights or {}).items())


def columns(stored: Sequence[Stored | None], weights: Mapping[str, float] | None) -> dict[str, np.ndarray]:
    """Parts of several rewards by name, NaN for None; none for numbers."""
    known = [{} if reward is None else decoded(reward) for reward in stored]
    return {name: np.array([parts.get(name, np.nan) for parts in known], float) for name in weights or {}}


def checked_reward(reward: Any, called: str = "a reward") -> float:
    """A finite number. Raises TypeError or ValueError."""
    if type(reward) is float and -_LARGEST <= reward <= _LARGEST:
        return reward
    try:
        given = np.asarray(checks.as_array(called, reward))
    except (TypeError, ValueError):
        given = np.array(())
    if given.shape != ():
        raise TypeError(f"{called} must be a number; got {reward!r:.60}: convert it, as with float()")
    if not abs(float(given)) <= _LARGEST:
        raise ValueError(f"{called} must be a finite number in float32; got {reward!r}")
    return float(given)


def _named(called: str, given: Any, names: Sequence[str]) -> Parts:
    if not isinstance(given, Mapping):
        raise TypeError(f"{called} must be a dict of {', '.join(names)}, as in reward_weights; got {given!r:.80}")
    for name in given:
        if name not in names:
            raise ValueError(f"{called} {given!r:.80} has an {unknown('name', name, names)}, as in reward_weights")
    return {name: checked_reward(given[name], f"{called} {name!r}") for name in names if name in given}


def _weights(weights: Any) -> Parts:
    if weights is None:
        return {_PLAIN: 1.0}
    if not isinstance(weights, Mapping) or not all(isinstance(name, str) for name in weights):
        raise TypeError(
            "reward_weights must be a dict of numbers by name, as {'click': 1.0, 'revenue': 0.05}; got "
            f"{weights!r:.80}"
        )
    if not weights or _PLAIN in weights:
        raise ValueError(f"reward_weights needs at least one name, none of them empty; got {weights!r:.80}")
    return {name: checked_reward(weights[name], f"the weight of {name!r}") for name in sorted(weights)}


def _report(given: Any) -> Sequence[Any]:
    """Token, reward and perhaps a key. Raises TypeError for anything else."""
    if not isinstance(given, tuple | list) or len(given) not in (2, 3):
        raise TypeError(
            f"rewards must be given as pairs (token, reward), or with a key (token, reward, key); got {given!r:.80}: "
            "pass zip(tokens, rewards), or the items() of a dict"
        )
    return given


def _digest(key: Any = None) -> bytes | None:
    """Of a key, which may name a person."""
    return None if key is None else hashlib.blake2b(check_keys([key])[0].encode(), digest_size=16).digest()


def place_of(token: Any) -> tuple[int, bytes]:
    """Number and nonce of a token; 0 for an invalid str. Raises TypeError for others."""
    if not isinstance(token, str):
        raise TypeError(f"a token is the text that `decide` returned; got {token!r:.60}")
    number, _, nonce = token.partition("-")
    try:
        place = int(number) if number.isascii() and number.isdigit() and len(number) < 20 else 0
        return place if place < 2**63 else 0, bytes.fromhex(nonce)
    except ValueError:
        return 0, b""
