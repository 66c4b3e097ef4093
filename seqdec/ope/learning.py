"""A reward model that does not grade itself: any filter, asked about each row before it has seen it.

`prequential` passes through the log once and asks just before each update; `cross_fit` learns from the other folds.
What is asked for is a function of the belief: expected rewards for the direct method, or action probabilities of a
policy that acts on the belief, so that model and policy of a row come from rows that do not include it.
"""

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from seqdec.core import Array, Filter, Key, PyTree
from seqdec.ope.log import Log, inputs

Ask = Callable[[Key, Any, Array, Array], PyTree]
"""(key, belief, x, mask (k,)) -> answer."""

_CHUNK = 500


def expected_rewards(flt: Filter) -> Ask:
    """The question of the direct method: (k,) expected rewards."""
    return lambda key, belief, x, mask: flt.response(flt.mean(belief), x)


def prequential(flt: Filter, params: PyTree, log: Log, ask: Ask, *, seed: int) -> PyTree:
    """Answers (n, ...) of a belief that has seen the earlier rows only.

    Args:
        flt: filter over a network with one response per action, applied to the rows of `seqdec.ope.inputs`.
        params: initial parameters of the network.
        log: what to learn from.
        ask: what to ask, e.g. `expected_rewards(flt)`.
        seed: of the filter's initial belief and of `ask`.
    """
    start, key = jax.random.split(jax.random.key(seed))

    def step(belief, row):
        index, x, mask, action, reward = row
        answer = ask(jax.random.fold_in(key, index), belief, x, mask)

        def learn(belief):
            return flt.update(flt.predict(belief), x, reward, observed=action)[0]

        return jax.lax.cond(jnp.isfinite(reward), learn, lambda belief: belief, belief), answer

    rows = (np.arange(len(log.action)), inputs(log), log.mask, log.action, log.reward)
    return _in_chunks(_scanned(step), flt.init(start, params), rows, "learning")[1]


def cross_fit(flt: Filter, params: PyTree, log: Log, ask: Ask, *, seed: int, folds: int = 5) -> PyTree:
    """Answers (n, ...) of a belief that has seen the other folds only.

    Folds are drawn at random with `seed`; each belief takes its rows in the order of time. Arguments as in
    `prequential`. Raises ValueError for fewer than 2 folds or more than there are rows.
    """
    count = len(log.action)
    if not 2 <= folds <= count:
        raise ValueError(f"folds must lie between 2 and the number of rows, {count}; got {folds}")
    member = np.random.default_rng(seed).permutation(np.arange(count) % folds)
    start, key = jax.random.split(jax.random.key(seed))
    x = inputs(log)

    def learn(beliefs, row):
        x, action, reward, fold = row

        def one(belief, own):  # a reward that is not a number is not learnt from
            return flt.update(flt.predict(belief), x, jnp.where(fold == own, jnp.nan, reward), observed=action)[0]

        def all_of_them(beliefs):
            return jax.vmap(one)(beliefs, jnp.arange(folds))

        return jax.lax.cond(jnp.isfinite(reward), all_of_them, lambda beliefs: beliefs, beliefs), None

    def answer(belief, row):
        index, x, mask = row
        return belief, ask(jax.random.fold_in(key, index), belief, x, mask)

    beliefs = jax.vmap(flt.init, (0, None))(jax.random.split(start, folds), params)
    beliefs, _ = _in_chunks(_scanned(learn), beliefs, (x, log.action, log.reward, member), "learning")
    places, parts, asked = [np.flatnonzero(member == fold) for fold in range(folds)], [], _scanned(answer)
    for fold, place in enumerate(places):
        belief = jax.tree.map(lambda leaf, fold=fold: leaf[fold], beliefs)
        parts.append(_in_chunks(asked, belief, (place, x[place], log.mask[place]), f"fold {fold + 1}")[1])
    back = np.argsort(np.concatenate(places))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[back], *parts)


def _scanned(step: Callable) -> Callable:
    return jax.jit(lambda carry, rows: jax.lax.scan(step, carry, rows))


def _in_chunks(advance: Callable, carry: PyTree, rows: tuple[np.ndarray, ...], title: str) -> tuple[PyTree, PyTree]:
    """A compiled scan over rows (n, ...), chunk by chunk behind a progress bar; answers on the host.

    The last chunk is filled up with rows that are not numbers, which leave the carry as it is.
    """
    count, length, answers = len(rows[0]), _CHUNK, []
    with tqdm(total=count, desc=title, unit="row", disable=not sys.stderr.isatty(), dynamic_ncols=True) as bar:
        for first in range(0, count, length):
            chunk = tuple(_fill(part[first : first + length], length) for part in rows)
            carry, answer = advance(carry, chunk)
            answers.append(jax.device_get(answer))
            bar.update(min(length, count - first))
    return carry, jax.tree.map(lambda *leaves: np.concatenate(leaves)[:count], *answers)


def _fill(part: np.ndarray, length: int) -> np.ndarray:
    """(m, ...) -> (length, ...) in the dtypes of JAX."""
    part = part.astype(jax.dtypes.canonicalize_dtype(part.dtype))
    filling = np.nan if part.dtype.kind == "f" else 0
    return np.concatenate([part, np.full((length - len(part), *part.shape[1:]), filling, part.dtype)])
