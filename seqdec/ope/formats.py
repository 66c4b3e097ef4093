"""Logs of Open Bandit Pipeline and Vowpal Wabbit.

A line of Vowpal Wabbit's `cb` is action from 1, cost, probability, then features by namespace.

    2:0.3:0.25 | age:31 |place city=paris

In `cb_adf` a decision is a line of shared features and one for each action, one of them labeled, then an empty line.

    shared | age:31
    | price:3
    0:0.3:0.25 | price:5

Source: https://github.com/VowpalWabbit/vowpal_wabbit/wiki, "Contextual bandit" and "Input format".
"""

import math
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from seqdec.boundary import checks
from seqdec.ope.log import Log, make_log
from seqdec.persistence import located, read_text

_MOST = 4096
_LABEL = "action:cost:probability, such as 2:0.3:0.25"
Features = dict[str, float]


class _Line(NamedTuple):
    number: int
    label: tuple[int, float, float] | None
    shared: bool
    features: Features


def from_bandit_feedback(feedback: Mapping[str, Any]) -> Log:
    """The log in a `BanditFeedback` of Open Bandit Pipeline.

    Reads "action", "reward", "n_actions", and optionally "pscore", "context", "position" (one-hot, appended to the
    context) and "action_context" (unless it is one-hot).

    Raises:
        TypeError: not a dict.
        ValueError: a missing key, or what `make_log` refuses.
    """
    if not isinstance(feedback, Mapping):
        raise TypeError(f"feedback must be a dict of arrays; got {type(feedback).__name__}")
    for key in ("action", "reward", "n_actions"):
        if feedback.get(key) is None:
            raise ValueError(f"feedback has no {key!r}; it has {', '.join(map(str, feedback)) or 'nothing'}")
    size, parts = checks.count("n_actions", feedback["n_actions"]), []
    if feedback.get("context") is not None:
        parts.append(np.asarray(checks.as_array("context", feedback["context"]), np.float64))
    if feedback.get("position") is not None:
        _, place = np.unique(checks.entries("position", feedback["position"]), return_inverse=True)
        parts.append(np.eye(int(place.max()) + 1)[place])
    features = feedback.get("action_context")
    if features is not None and np.array_equal(np.asarray(features), np.eye(size)):
        features = None
    return make_log(
        action=feedback["action"],
        reward=feedback["reward"],
        propensity=feedback.get("pscore"),
        context=np.concatenate(parts, axis=1) if parts else None,
        action_features=features,
        num_actions=size,
    )


def load_vowpal_wabbit(
    path: str | os.PathLike[str],
    *,
    first_action: int = 1,
    num_actions: int | None = None,
    buckets: int | None = None,
) -> Log:
    """The log in a `cb` or `cb_adf` file of Vowpal Wabbit; rewards are minus the costs.

    A "shared" line, or empty lines between others, mean `cb_adf`: features of actions are `Log.action_features`, and
    decisions among fewer actions mask the last ones.

    Args:
        path: of the file.
        first_action: in `cb`; 0 for --indexing 0.
        num_actions: k of `cb`; None: the largest action.
        buckets: hashed columns; None: a column for each name, sorted.

    Raises:
        FileNotFoundError: no such file.
        ValueError: naming file, line and remedy.
    """
    path = located(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    checks.number("first_action", first_action, 0)
    buckets = None if buckets is None else checks.count("buckets", buckets)
    text = read_text(path).split("\n")
    try:
        groups = list(_groups(text))
        if not groups:
            raise ValueError("there is no line with a decision")
        if any(one.shared for group in groups for one in group) or len(groups) > 1:
            if num_actions is not None:
                raise ValueError("num_actions is that of the lines of each decision: leave it out")
            return _by_actions(groups, buckets)
        return _by_lines(groups[0], first_action, num_actions, buckets)
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
    action, cost, chance = zip(*labels, strict=True)
    context = _columns([line.features for line in lines], buckets)
    return make_log(action=action, reward=-np.array(cost), propensity=chance, context=context, num_actions=size)


def _by_actions(groups: list[list[_Line]], buckets: int | None) -> Log:
    shared, actions, features, labels = [], [], [], []
    for group in groups:
        own = group[1:] if group[0].shared else group
        if wrong := [line.number for line in own if line.shared]:
            raise ValueError(
                f"line {wrong[0]}: only the first line of a decision is shared: separate decisions by empty lines"
            )
        chosen = [place for place, line in enumerate(own) if line.label is not None]
        if len(chosen) != 1:
            raise ValueError(
                f"line {group[0].number}: {len(chosen)} lines of the decision have a label {_LABEL}; one must, that of "
                "the action that was played: drop decisions without one"
            )
        label = own[chosen[0]].label
        assert label is not None
        labels.append((chosen[0], *label[1:]))
        shared.append(group[0].features if group[0].shared else {})
        features += [line.features for line in own]
        actions.append(len(own))
    mask = np.arange(max(actions)) < np.array(actions)[:, None]
    found = _columns(features, buckets)
    described = np.zeros((*mask.shape, found.shape[1]))
    described[mask] = found
    action, cost, chance = zip(*labels, strict=True)
    return make_log(
        action=action,
        reward=-np.array(cost),
        propensity=chance,
        context=_columns(shared, buckets),
        mask=mask,
        action_features=described if found.shape[1] else None,
    )


def _columns(rows: list[Features], buckets: int | None) -> np.ndarray:
    from sklearn.feature_extraction import DictVectorizer, FeatureHasher

    names = {name for row in rows for name in row}
    if not names:
        return np.zeros((len(rows), 0))
    if buckets is not None:
        hashed: Any = FeatureHasher(buckets).transform(rows)
        return hashed.toarray()
    if len(names) > _MOST:
        raise ValueError(f"there are {len(names):,} features, more than {_MOST:,}: hash them, as with buckets=256")
    return np.asarray(DictVectorizer(sparse=False).fit_transform(rows))


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
    features: Features = {}
    for space in spaces:
        for name, value in _features(number, space):
            features[name] = features.get(name, 0.0) + value
    return _Line(number, label, shared, features)


def _label(number: int, word: str) -> tuple[int, float, float]:
    parts = word.split(":")
    if len(parts) != 3 or not parts[0].isdecimal():
        raise ValueError(f"line {number}: a label is {_LABEL}; got {word[:60]!r}")
    cost, chance = (_number(number, "the label", part) for part in parts[1:])
    if not 0 < chance <= 1 + checks.TOLERANCE:
        raise ValueError(f"line {number}: the probability must lie in (0, 1]; got {chance}: drop the decision")
    return int(parts[0]), cost, chance


def _features(number: int, space: str) -> Iterator[tuple[str, float]]:
    """Names (space^feature, or feature) and values in a namespace."""
    words = space.split()
    own, _, scale = words.pop(0).partition(":") if space and not space[0].isspace() else ("", "", "")
    factor = _number(number, f"the namespace {own}", scale) if scale else 1.0
    for word in words:
        name, _, value = word.partition(":")
        amount = _number(number, f"the feature {name}", value) if value else 1.0
        yield f"{own}^{name}" if own else name, factor * amount


def _number(number: int, what: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise ValueError(f"line {number}: {what} has {text[:40]!r}, which is not a finite number")
    return found
