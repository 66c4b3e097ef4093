"""Out-of-sample predictions of a `Learner`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seqdec.boundary import checks
from seqdec.core import Array, Key, Learner, Posterior, PyTree
from seqdec.ope.log import Log, check_log, folds_of, inputs

Predict = Callable[[Key, Posterior, Array, Array], PyTree]
"""(key, posterior, x, mask (k,)) -> predictions for one row"""

_CHUNK = 500


def expected_rewards(key: Key, posterior: Posterior, x: Array, mask: Array) -> Array:
    """Expected rewards (k,) of all actions in context x, as `predict` of `prequential` and `cross_fit`."""
    return posterior.mean(x)


def prequential(learner: Learner, log: Log, predict: Predict = expected_rewards, *, seed: int) -> PyTree:
    """Predictions (n, ...) of each row by a learner of the earlier rows.

    Args:
        learner: one response per action; inputs are rows of `seqdec.ope.inputs`.
        log: rows to learn from and predict.
        predict: (key, posterior, x, mask (k,)) -> predictions for one row.
        seed: seed for the initial state and `predict`.

    Raises:
        TypeError: not a learner, or not a log.
    """
    start, key = _keys(learner, log, seed)

    def step(state, row):
        index, x, mask, action, reward = row
        prediction = predict(jax.random.fold_in(key, index), learner.posterior(state), x, mask)

        def learn(state):
            return learner.update(state, x, reward, action, mask)[0]

        return jax.lax.cond(jnp.isfinite(reward), learn, lambda state: state, state), prediction

    rows = (np.arange(len(log.action)), inputs(log), log.mask, log.action, log.reward)
    return in_chunks(scanned(step), learner.init(start), rows, "learning")[1]


def cross_fit(learner: Learner, log: Log, predict: Predict = expected_rewards, *, seed: int, folds: int = 5) -> PyTree:
    """Predictions (n, ...) by a learner of the other random folds, in order of time.

    Arguments and errors as in `prequential`, and ValueError for fewer than 2 folds or more than rows.
    """
    start, key = _keys(learner, log, seed)
    member, x = folds_of(log, folds, seed), inputs(log)

    def learn(states, row):
        x, mask, action, reward, fold = row

        def one(state, own):  # a NaN reward teaches nothing
            return learner.update(state, x, jnp.where(fold == own, jnp.nan, reward), action, mask)[0]

        def all_of_them(states):
            return jax.vmap(one)(states, jnp.arange(folds))

        return jax.lax.cond(jnp.isfinite(reward), all_of_them, lambda states: states, states), None

    def out_of_fold(state, row):
        index, x, mask = row
        return state, predict(jax.random.fold_in(key, index), learner.posterior(state), x, mask)

    states = jax.vmap(learner.init)(jax.random.split(start, folds))
    states, _ = in_chunks(scanned(learn), states, (x, log.mask, log.action, log.reward, member), "learning")
    rows_of, parts, advance = [np.flatnonzero(member == fold) for fold in range(folds)], [], scanned(out_of_fold)
    for fold, rows in enumerate(rows_of):
        state = jax.tree.map(lambda leaf, fold=fold: leaf[fold], states)
        parts.append(in_chunks(advance, state, (rows, x[rows], log.mask[rows]), f"fold {fold + 1}")[1])
    order = np.argsort(np.concatenate(rows_of))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[order], *parts)


def _keys(learner: Any, log: Any, seed: int) -> tuple[Key, Key]:
    check_log(log)
    if not isinstance(learner, Learner):
        raise TypeError(f"learner must be a seqdec.core.Learner, such as filters.learner(...); got {learner!r:.80}")
    start, key = jax.random.split(jax.random.key(checks.seed_bits(checks.seed("seed", seed))))
    return start, key


def scanned(step: Callable) -> Callable:
    """The compiled scan of a step."""
    return jax.jit(lambda carry, rows: jax.lax.scan(step, carry, rows))


def in_chunks(advance: Callable, carry: PyTree, rows: tuple[np.ndarray, ...], title: str) -> tuple[PyTree, PyTree]:
    """A compiled scan over rows (n, ...) in equal chunks -> (carry, outputs on the host).

    The last is padded with NaN rewards, which must not change the carry.
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
    part = part.astype(jax.dtypes.canonicalize_dtype(part.dtype))
    padding = np.nan if part.dtype.kind == "f" else 0
    return np.concatenate([part, np.full((length - len(part), *part.shape[1:]), padding, part.dtype)])
