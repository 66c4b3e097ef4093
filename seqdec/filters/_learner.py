"""A filter as `seqdec.core.Learner`, and its belief as `seqdec.core.Posterior`."""

from collections.abc import Callable
from typing import Any

import jax

from seqdec.core import Filter, Key, Learner, Marginals, Posterior, PyTree

_BLOCK = 256


def posterior(flt: Filter, belief: Any) -> Posterior:
    """The `seqdec.core.Posterior` of a belief of the filter `flt`, for policies."""

    def draw(key):
        params = flt.sample(key, belief)
        return lambda candidates: flt.response(params, candidates)

    return Posterior(
        lambda candidates: flt.response(flt.mean(belief), candidates),
        lambda candidates: flt.moments(belief, candidates),
        draw,
    )


def learner(flt: Filter, init: Callable[[Key], PyTree], *, row_by_row: bool = False) -> Learner:
    """A filter with its network: each update is a `Filter.predict` and a `Filter.update`.

    Args:
        flt: the filter.
        init: (key) -> initial parameters of its network.
        row_by_row: marginals of n candidates each from its row alone: O(n), where their Jacobian is O(n^2).
    """

    def start(key):
        network, belief = jax.random.split(key)
        return flt.init(belief, init(network))

    def update(belief, x, y, observed=None, allowed=None):
        return flt.update(flt.predict(belief), x, y, observed)

    def update_batch(belief, xs, ys, observed=None, allowed=None):
        assert flt.update_batch is not None
        return flt.update_batch(flt.predict(belief), xs, ys, observed)

    def question(belief):
        asked = posterior(flt, belief)
        return asked._replace(marginals=_row_by_row(flt, belief)) if row_by_row else asked

    def prepared(belief):
        assert flt.marginals is not None
        return posterior(flt, belief)._replace(marginals=flt.marginals(belief))

    return Learner(
        start,
        update,
        question,
        None if flt.update_batch is None else update_batch,
        None if flt.marginals is None else prepared,
    )


def _row_by_row(flt: Filter, belief: Any) -> Callable[[PyTree], Marginals]:
    def alone(row):
        at = flt.moments(belief, jax.tree.map(lambda leaf: leaf[None], row))
        return Marginals(at.mean[0], at.cov[0, 0], at.noise[0, 0])

    return lambda candidates: jax.lax.map(alone, candidates, batch_size=_BLOCK)
