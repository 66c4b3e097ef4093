"""Logs in the order of a schema.

Rows of one log and numbers learned from another are matched by names of actions and columns, and the encoder's digest.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from seqdec.core import Schema
from seqdec.ope.labels import shown
from seqdec.ope.log import Log, check_log
from seqdec.rows import is_view


def aligned(log: Log, schema: Schema | None) -> Log:
    """The log with actions and columns in the order of a schema.

    Actions of the schema that the log lacks are masked out. Labels that are all integers count as names, also beside
    indices. A schema of None, or contexts without names, leave the log unchanged.

    >>> from seqdec.ope import make_log
    >>> log = make_log(action=["b", "a"], reward=[1, 0], propensity=[0.5, 0.5])
    >>> aligned(log, Schema(("c", "b", "a"))).mask
    array([[False,  True,  True],
           [False,  True,  True]])

    Raises:
        TypeError: not a log.
        ValueError: an action or a column that the schema does not have, names beside indices, another encoder.
    """
    check_log(log)
    return log if schema is None else _actions(_contexts(log, schema), schema.action_names)


def _contexts(log: Log, schema: Schema) -> Log:
    if log.encoder is not None and schema.encoder is not None and log.encoder != schema.encoder:
        known, own = (_encoder(digest) for digest in (schema.encoder, log.encoder))
        raise ValueError(
            f"the contexts of the log are {own}, what was learned before is of contexts that are {known}: make both "
            "with one encoder, fitted once"
        )
    names, wanted = log.context_names, schema.context_names
    if names is None or wanted is None or names == wanted:
        return log
    if set(names) != set(wanted) or len(names) != len(wanted):
        raise ValueError(
            f"the contexts of the log are {shown(names)}; what was learned before is of {shown(wanted)}: take the "
            "same columns"
        )
    return log.replace(context=log.context[:, [names.index(name) for name in wanted]], context_names=wanted)


def _actions(log: Log, wanted: Sequence[str | int] | None) -> Log:
    names, size = log.action_names, log.num_actions
    if names == wanted:
        return log
    if not all(isinstance(name, int) for name in wanted or names or ()) and None in (names, wanted):
        own, known = ("indices from 0" if one is None else shown(one) for one in (names, wanted))
        raise ValueError(
            f"the {size} actions of the log are {own}; what was learned before is of {known}"
            + f": if they are the same in this order, say so, log.replace(action_names={wanted!r})"
            * (len(wanted or names or ()) == size)
        )
    names = names or tuple(range(size))
    wanted = wanted or tuple(range(max(size, *(name + 1 for name in names))))  # pyright: ignore[reportOperatorIssue]
    places = {name: place for place, name in enumerate(wanted)}
    if strange := [name for name in names if name not in places]:
        raise ValueError(
            f"the actions of the log are {shown(names)}; what was learned before is of {shown(wanted)}, without "
            f"{shown(strange)}: keep the rows of its actions, or learn from both"
        )
    order = np.array([places[name] for name in names])
    return log.replace(
        action=order[log.action],
        action_names=wanted,
        **{name: _spread(getattr(log, name), order, len(wanted)) for name in ("mask", "action_features", "logging")},
    )


def _spread(array: Any, order: np.ndarray, size: int) -> Any:
    """(n, size, ...) with column i at place order[i], zero elsewhere."""
    if array is None:
        return None
    if is_view(array):
        return np.broadcast_to(_spread(array[0][None].copy(), order, size)[0], (len(array), size, *array.shape[2:]))
    found = np.zeros((len(array), size, *array.shape[2:]), array.dtype)
    found[:, order] = array
    return found


def _encoder(digest: str) -> str:
    return f"of the encoder with digest {digest[:12]}" if digest else "columns as they are"
