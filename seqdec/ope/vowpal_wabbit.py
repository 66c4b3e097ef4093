"""Logs of Vowpal Wabbit.

A line of `cb` is action, cost, probability, then features by namespace; empty lines are skipped.

    2:0.3:0.25 | age:31 |place city=paris

In `cb_adf` a decision is a line of shared features, or none, and one for each action, one of them labeled, then an
empty line.

    shared | age:31
    | price:3
    0:0.3:0.25 | price:5

In `dsjson` it is a line of JSON: cost, probability and action from 1 of the label, all actions "a" with their
probabilities "p", and features "c" by namespace, with an object for each action in "_multi". Texts are features
name=text, lists of numbers name^0, name^1, ...; names that begin with "_" are no features.

    {"_label_cost": 0.3, "_label_probability": 0.25, "_label_Action": 2, "_labelIndex": 1, "a": [2, 1],
     "p": [0.25, 0.75], "c": {"user": {"age": 31}, "_multi": [{"price": 3}, {"price": 5}]}}

Source: https://github.com/VowpalWabbit/vowpal_wabbit/wiki, "Contextual bandit", "Input format" and "DSJSON".
"""

import json
import math
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from seqdec.boundary import checks
from seqdec.introspection import counted
from seqdec.ope.log import Log, make_log
from seqdec.persistence import located, read_text

_MOST = 4096
_LABEL = "action:cost:probability, such as 2:0.3:0.25"
_LABELED = ("_label_cost", "_label_probability")
_ROUNDED = 0.001
"""Largest error of written probabilities."""
Features = dict[str, float]


class _Line(NamedTuple):
    number: int
    label: tuple[int, float, float] | None
    shared: bool
    features: Features


class _Decision(NamedTuple):
    number: int
    """of its first line"""
    label: tuple[int, float, float]
    """index of the action, cost, probability"""
    shared: Features
    actions: Sequence[Features]
    law: np.ndarray | None = None
    """(k,) probabilities; None if unknown"""
    time: Any = None
    key: Any = None


def load_vowpal_wabbit(
    path: str | os.PathLike[str],
    *,
    first_action: int = 1,
    num_actions: int | None = None,
    buckets: int | None = None,
) -> Log:
    """The log in a `cb`, `cb_adf` or `dsjson` file of Vowpal Wabbit, also compressed; rewards are minus the costs.

    JSON is read as `dsjson`; a "shared" line, or several groups of lines, some without label, as `cb_adf`. There,
    features of actions are `Log.action_features`, and decisions among fewer actions mask the last ones. In `dsjson`
    decisions are sorted by "Timestamp", "EventId" is `Log.key`, "a" and "p" are `Log.logging`, and lines without
    decision, with "_skipLearn" or, with a warning, with a repeated "EventId" are left out.

    Args:
        path: path of the file; .gz, .bz2, .xz and .zip are decompressed.
        first_action: first number of actions in `cb`; 0 for --indexing 0.
        num_actions: k of `cb`; None: as many as occur, which are indices if consecutive from `first_action` on, else
            names.
        buckets: hashed columns; None: a column for each name, sorted.

    Raises:
        FileNotFoundError: no such file.
        ValueError: naming file, line and remedy.
    """
    path = located(path)
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    checks.number("first_action", first_action, 0)
    buckets = None if buckets is None else checks.count("buckets", buckets)
    text = read_text(path)
    try:
        is_json = text.lstrip()[:1] in ("{", "[")
        groups = [] if is_json else list(_groups(text.split("\n")))
        lines = [line for group in groups for line in group]
        by_action = is_json or any(line.shared for line in lines)
        by_action = by_action or (len(groups) > 1 and any(line.label is None for line in lines))
        if by_action and num_actions is not None:
            raise ValueError("num_actions is that of the lines of each decision: leave it out")
        decisions = (
            _distinct(list(_objects(text.split("\n"))))
            if is_json
            else [_decision(group) for group in groups * by_action]
        )
        if not decisions and not lines:
            raise ValueError("there is no line with a decision")
        return _by_actions(decisions, buckets) if by_action else _by_lines(lines, first_action, num_actions, buckets)
    except ValueError as error:
        raise ValueError(f"{path}, {error}" if str(error).startswith("line ") else f"{path}: {error}") from None


def _groups(text: list[str]) -> Iterator[list[_Line]]:
    group = []
    for number, line in enumerate(text, 1):
        if line.strip():
            group.append(_parsed(number, line))
        elif group:
            yield group
            group = []
    if group:
        yield group


def _by_lines(lines: list[_Line], first: int, size: int | None, buckets: int | None) -> Log:
    labels = []
    for line in lines:
        if line.label is None:
            raise ValueError(
                f"line {line.number}: there is no label {_LABEL}; where each action has a line, empty lines must "
                "separate the decisions"
            )
        action = line.label[0] - first
        if action < 0 or (size is not None and action >= size):
            raise ValueError(
                f"line {line.number}: the action is {line.label[0]}, outside of {first} to "
                f"{'...' if size is None else first + size - 1}: pass first_action or num_actions"
            )
        labels.append((action, *line.label[1:]))
    action, cost, chance = map(np.array, zip(*labels, strict=True))
    context, names = _columns([line.features for line in lines], buckets)
    gaps = size is None and len(np.unique(action)) <= action.max()
    return make_log(
        action=action + first if gaps else action,
        reward=-cost,
        propensity=chance,
        context=context,
        num_actions=size,
        context_names=names,
    )


def _decision(group: list[_Line]) -> _Decision:
    own = group[1:] if group[0].shared else group
    if wrong := [line.number for line in own if line.shared]:
        raise ValueError(
            f"line {wrong[0]}: only the first line of a decision is shared: separate decisions by empty lines"
        )
    chosen = [(place, line.label) for place, line in enumerate(own) if line.label is not None]
    if len(chosen) != 1:
        raise ValueError(
            f"line {group[0].number}: {len(chosen)} lines of the decision have a label {_LABEL}; one must, that of "
            "the action that was played: drop decisions without one"
        )
    place, label = chosen[0]
    shared = group[0].features if group[0].shared else {}
    return _Decision(group[0].number, (place, *label[1:]), shared, [line.features for line in own])


def _objects(text: list[str]) -> Iterator[_Decision]:
    for number, line in enumerate(text, 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"line {number}: it is not JSON ({error}): drop it") from None
        # Checkpoints, rewards without decision, and actions that were never shown.
        if isinstance(found, Mapping) and "c" in found and not found.get("_skipLearn"):
            yield _object(number, found)


def _object(number: int, found: Mapping[str, Any]) -> _Decision:
    content, actions = found["c"], None
    if isinstance(content, Mapping) and "_slots" not in content:
        actions = content.get("_multi")
    if not isinstance(actions, list) or not actions:
        raise ValueError(f"line {number}: c has no list _multi of the actions; decisions of several slots are not read")
    if found.get("pdrop"):
        raise ValueError(f"line {number}: decisions were dropped with probability pdrop, and a log has no weights")
    if absent := [name for name in _LABELED if name not in found]:
        raise ValueError(f"line {number}: there is no {absent[0]}: drop decisions without a label")
    cost, chance = (_number(number, name, found[name]) for name in _LABELED)
    listed = found.get("a") or []
    first = found["_labelIndex"] + 1 if "_labelIndex" in found else None
    action = found.get("_label_Action", first or (listed[0] if listed else None))
    if not isinstance(action, int) or not 1 <= action <= len(actions) or first not in (None, action):
        raise ValueError(
            f"line {number}: the action _label_Action is {action!r}, with _labelIndex {found.get('_labelIndex')!r}; it "
            f"must be one of the {len(actions)} in _multi, from 1"
        )
    _check_chance(number, chance)
    law, known = np.zeros(len(actions)), found.get("p") or []
    if sorted(listed) == [*range(1, len(actions) + 1)] and len(known) == len(listed):
        law[np.array(listed) - 1] = [_number(number, "p", part) for part in known]
    shared = {name: part for name, part in content.items() if name != "_multi"}
    return _Decision(
        number,
        (action - 1, cost, chance),
        _summed(_flattened(number, shared, "")),
        [_summed(_flattened(number, one, "")) for one in actions],
        law if law.any() else None,
        found.get("Timestamp"),
        found.get("EventId"),
    )


def _flattened(number: int, value: Any, name: str) -> Iterator[tuple[str, float]]:
    """Names (space^feature, or feature) and values in JSON."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            if key == "_text":
                yield from ((f"{name}^{word}" if name else word, 1.0) for word in str(part).split())
            elif not key.startswith("_"):
                yield from _flattened(number, part, f"{name}^{key}" if name else key)
    elif isinstance(value, list):
        for place, part in enumerate(value):
            is_number = isinstance(part, int | float) and not isinstance(part, bool)
            yield from _flattened(number, part, f"{name}^{place}" if is_number else name)
    elif isinstance(value, str):
        yield f"{name}={value}", 1.0
    elif value:  # neither null nor false nor 0
        yield name, _number(number, f"the feature {name}", value)


def _distinct(decisions: list[_Decision]) -> list[_Decision]:
    """The first decision of each key, and those without one."""
    first = {decision.key: decision for decision in reversed(decisions) if decision.key is not None}
    kept = [decision for decision in decisions if decision is first.get(decision.key, decision)]
    if again := len(decisions) - len(kept):
        twice = next(decision for decision in decisions if decision is not first.get(decision.key, decision))
        warnings.warn(
            f"{counted(again, 'line')} with an EventId that was before, as line {twice.number} with {twice.key!r}: the "
            "first line of each is kept",
            stacklevel=3,
        )
    return kept


def _by_actions(decisions: list[_Decision], buckets: int | None) -> Log:
    times: Any = [decision.time for decision in decisions]
    if None not in times:
        import pandas as pd

        times = pd.to_datetime(times, utc=True, format="ISO8601").tz_localize(None).to_numpy()
        order = np.argsort(times, kind="stable")
        decisions, times = [decisions[place] for place in order], times[order]
    actions = [len(decision.actions) for decision in decisions]
    mask = np.arange(max(actions)) < np.array(actions)[:, None]
    found, _ = _columns([features for decision in decisions for features in decision.actions], buckets)
    described = np.zeros((*mask.shape, found.shape[1]))
    described[mask] = found
    context, names = _columns([decision.shared for decision in decisions], buckets)
    action, cost, chance = map(np.array, zip(*(decision.label for decision in decisions), strict=True))
    log = make_log(
        action=action,
        reward=-cost,
        propensity=chance,
        context=context,
        context_names=names,
        mask=mask,
        action_features=described if found.shape[1] else None,
        timestamp=times if isinstance(times, np.ndarray) else None,
    )
    keys = [decision.key for decision in decisions]
    return _with_law(log if None in keys else log.replace(key=np.array(keys)), decisions)


def _with_law(log: Log, decisions: list[_Decision]) -> Log:
    """The log with the whole logging law, if all lines have it."""
    laws = [decision.law for decision in decisions]
    if any(law is None for law in laws):
        return log
    law = np.zeros(log.mask.shape)
    law[log.mask] = np.concatenate([law for law in laws if law is not None])
    logged = law[np.arange(len(law)), log.action]
    wrong = ~(np.abs(law.sum(axis=1) - 1) <= _ROUNDED * log.mask.sum(axis=1)) | (law < 0).any(axis=1)
    wrong |= np.abs(logged - log.propensity) > _ROUNDED
    if wrong.any():
        place = int(np.argmax(wrong))
        warnings.warn(
            f"the probabilities p of {counted(int(wrong.sum()), 'decision')} are not a distribution with "
            f"_label_probability, as in line {decisions[place].number}: Log.logging is left out",
            stacklevel=4,
        )
        return log
    law /= law.sum(axis=1, keepdims=True)
    return log.replace(logging=law, propensity=law[np.arange(len(law)), log.action])


def _columns(rows: list[Features], buckets: int | None) -> tuple[np.ndarray, list[str] | None]:
    from sklearn.feature_extraction import DictVectorizer, FeatureHasher

    names = {name for row in rows for name in row}
    if not names:
        return np.zeros((len(rows), 0)), None
    if buckets is not None:
        hashed: Any = FeatureHasher(buckets).transform(rows)
        return hashed.toarray(), None
    if len(names) > _MOST:
        raise ValueError(f"there are {len(names):,} features, more than {_MOST:,}: hash them, as with buckets=256")
    vectorizer = DictVectorizer(sparse=False)
    return np.asarray(vectorizer.fit_transform(rows)), list(vectorizer.get_feature_names_out())


def _parsed(number: int, line: str) -> _Line:
    head, *spaces = line.split("|")
    words = head.split()
    if words and (words[-1][0] == "'" or (len(words) > 1 and not head[-1].isspace())):  # a tag
        words.pop()
    if not spaces:
        raise ValueError(f"line {number}: there is no bar before the features; got {line.strip()[:60]!r}")
    shared = words == ["shared"]
    if len(words) > 1:
        raise ValueError(f"line {number}: a line has one label {_LABEL}; got {head.strip()[:60]!r}")
    label = None if shared or not words else _label(number, words[0])
    return _Line(number, label, shared, _summed(pair for space in spaces for pair in _features(number, space)))


def _summed(pairs: Iterable[tuple[str, float]]) -> Features:
    features: Features = {}
    for name, value in pairs:
        features[name] = features.get(name, 0.0) + value
    return features


def _label(number: int, word: str) -> tuple[int, float, float]:
    parts = word.split(":")
    if len(parts) != 3 or not parts[0].isdecimal():
        raise ValueError(f"line {number}: a label is {_LABEL}; got {word[:60]!r}")
    cost, chance = (_number(number, "the label", part) for part in parts[1:])
    _check_chance(number, chance)
    return int(parts[0]), cost, chance


def _check_chance(number: int, chance: float) -> None:
    if not 0 < chance <= 1 + checks.TOLERANCE:
        raise ValueError(f"line {number}: the probability must lie in (0, 1]; got {chance}: drop the decision")


def _features(number: int, space: str) -> Iterator[tuple[str, float]]:
    """Names (space^feature, or feature) and values in a namespace."""
    words = space.split()
    own, _, scale = words.pop(0).partition(":") if space and not space[0].isspace() else ("", "", "")
    factor = _number(number, f"the namespace {own}", scale) if scale else 1.0
    for word in words:
        name, _, value = word.partition(":")
        amount = _number(number, f"the feature {name}", value) if value else 1.0
        yield f"{own}^{name}" if own else name, factor * amount


def _number(number: int, what: str, text: Any) -> float:
    try:
        found = float(text)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise ValueError(f"line {number}: {what} has {text!r:.40}, which is not a finite number")
    return found
