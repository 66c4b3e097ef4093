"""Out-of-sample predictions of a reward model: any filter, evaluated on rows that it was not updated with.

`prequential` passes through the log once and predicts each row just before the update with it; `cross_fit` predicts
each fold with a belief updated with the other folds. The prediction is any function of the belief: expected rewards
for the direct method, or the action probabilities of a policy that acts on the belief.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seqdec.boundary import checks
from seqdec.core import Array, Filter, Key, PyTree
from seqdec.ope.log import Log, check_log, inputs

Predict = Callable[[Key, Any, Array, Array], PyTree]
"""(key, belief, x, mask (k,)) -> predictions for one row."""

_CHUNK = 500


def expected_rewards(flt: Filter) -> Predict:
    """Predictions for the direct method: (k,) expected rewards."""
    return lambda key, belief, x, mask: flt.response(flt.mean(belief), x)


def prequential(flt: Filter, params: PyTree, log: Log, predict: Predict, *, seed: int) -> PyTree:
    """Predictions (n, ...) for each row by a belief updated with the earlier rows only.

    Args:
        flt: filter over a network with one response per action, applied to the rows of `seqdec.ope.inputs`.
        params: initial parameters of the network.
        log: rows to learn from and to predict.
        predict: function of the belief, e.g. `expected_rewards(flt)`.
        seed: of the filter's initial belief and of `predict`.
    """
    check_log(log)
    start, key = jax.random.split(jax.random.key(checks.seed_bits(checks.seed("seed", seed))))

    def step(belief, row):
        index, x, mask, action, reward = row
        prediction = predict(jax.random.fold_in(key, index), belief, x, mask)

        def learn(belief):
            return flt.update(flt.predict(belief), x, reward, observed=action)[0]

        return jax.lax.cond(jnp.isfinite(reward), learn, lambda belief: belief, belief), prediction

    rows = (np.arange(len(log.action)), inputs(log), log.mask, log.action, log.reward)
    return in_chunks(scanned(step), flt.init(start, params), rows, "learning")[1]


def cross_fit(flt: Filter, params: PyTree, log: Log, predict: Predict, *, seed: int, folds: int = 5) -> PyTree:
    """Predictions (n, ...) for each row by a belief updated with the other folds only.

    Folds are drawn at random with `seed`; each belief is updated with its rows in the order of time. Arguments as in
    `prequential`. Raises ValueError for fewer than 2 folds or more than there are rows.
    """
    check_log(log)
    count = len(log.action)
    if not 2 <= folds <= count:
        raise ValueError(f"folds must lie between 2 and the number of rows, {count}; got {folds}")
    member = np.random.default_rng(checks.seed("seed", seed)).permutation(np.arange(count) % folds)
    start, key = jax.random.split(jax.random.key(checks.seed_bits(checks.seed("seed", seed))))
    x = inputs(log)

    def learn(beliefs, row):
        x, action, reward, fold = row

        def one(belief, own):  # a NaN reward leaves the belief unchanged
            return flt.update(flt.predict(belief), x, jnp.where(fold == own, jnp.nan, reward), observed=action)[0]

        def all_of_them(beliefs):
            return jax.vmap(one)(beliefs, jnp.arange(folds))

        return jax.lax.cond(jnp.isfinite(reward), all_of_them, lambda beliefs: beliefs, beliefs), None

    def out_of_fold(belief, row):
        index, x, mask = row
        return belief, predict(jax.random.fold_in(key, index), belief, x, mask)

    beliefs = jax.vmap(flt.init, (0, None))(jax.random.split(start, folds), params)
    beliefs, _ = in_chunks(scanned(learn), beliefs, (x, log.action, log.reward, member), "learning")
    rows_of, parts, advance = [np.flatnonzero(member == fold) for fold in range(folds)], [], scanned(out_of_fold)
    for fold, rows in enumerate(rows_of):
        belief = jax.tree.map(lambda leaf, fold=fold: leaf[fold], beliefs)
        parts.append(in_chunks(advance, belief, (rows, x[rows], log.mask[rows]), f"fold {fold + 1}")[1])
    order = np.argsort(np.concatenate(rows_of))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[order], *parts)


def scanned(step: Callable) -> Callable:
    """The compiled scan of a step over rows."""
    return jax.jit(lambda carry, rows: jax.lax.scan(step, carry, rows))


def in_chunks(advance: Callable, carry: PyTree, rows: tuple[np.ndarray, ...], title: str) -> tuple[PyTree, PyTree]:
    """A compiled scan over rows (n, ...) in chunks of equal length -> (carry, outputs on the host).

    The last chunk is padded with rows of NaN reward, which leave the carry unchanged.
    """
    from seqdec import progress

    count, length, outputs = len(rows[0]), _CHUNK, []
    with progress.bar(count, title, "row") as bar:
        progress.compiling(bar)
        for first in range(0, count, length):
            chunk = tuple(_padded(part[first : first + length], length) for part in rows)
            with jax.debug_nans(False):  # a reward of NaN stands for a row that is not to be learned
                carry, output = advance(carry, chunk)
            outputs.append(jax.device_get(output))
            progress.advance(bar, min(length, count - first))
    return carry, jax.tree.map(lambda *leaves: np.concatenate(leaves)[:count], *outputs)


def _padded(part: np.ndarray, length: int) -> np.ndarray:
    """Pad (m, ...) to (length, ...), in JAX's dtypes, with NaN or zero."""
    part = part.astype(jax.dtypes.canonicalize_dtype(part.dtype))
    padding = np.nan if part.dtype.kind == "f" else 0
    return np.concatenate([part, np.full((length - len(part), *part.shape[1:]), padding, part.dtype)])
