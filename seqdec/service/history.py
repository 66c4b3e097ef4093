"""Logs of other decisions become part of a service's own: all rows or, where that fails, none.

Rows are written some at a time, while other calls go on, and count once the last transaction says so.
"""

import secrets
from collections.abc import Sequence

import numpy as np

from seqdec.ope.log import Log
from seqdec.service.actions import Actions
from seqdec.service.contexts import split
from seqdec.service.identity import content_digest
from seqdec.service.rewards import Parts, encoded
from seqdec.service.store import Entry, Store, Transact, portion


def add_log(
    store: Store, actions: Actions, transact: Transact, log: Log, rewards: Sequence[Parts], names: Sequence[str]
) -> int | None:
    """Write a log with the rewards of its rows, whose parts have these names, in steps, for one thread at a time.

    Returns how many contexts were beyond bounds; None: the log has been added before.
    """
    records, others = actions.records_of(log)
    propensities = np.full(len(log.action), np.nan) if log.estimated else log.propensity
    outcomes = [np.array([parts[name] for parts in rewards]) for name in names]
    told = content_digest(records, log.mask, log.action, *outcomes, propensities, log.timestamp, *others)
    if told in transact(store.histories, urgent=True):
        return None
    (contexts, masks, written), count = transact(actions.imported, log, records, urgent=True), len(records)
    nonces = split(secrets.token_bytes(8 * count), count)
    decided = list(map(Entry, nonces, contexts.packed, masks, written, map(float, propensities)))
    stored = list(map(encoded, rewards))
    while transact(store.drop_staged, portion(1), urgent=True):
        pass
    step = portion(max(len(entry.context) + len(entry.mask or b"") for entry in decided))
    for start in range(0, count, step):
        transact(store.stage, start, decided[start : start + step], stored[start : start + step], count, urgent=True)
    transact(store.show_history, count, told)
    return contexts.clipped
