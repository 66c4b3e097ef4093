"""The `Posterior` of a belief, which acquisitions score candidates by."""

from typing import Any

from seqdec.core import Filter, Posterior


def posterior(flt: Filter, belief: Any) -> Posterior:
    """The functions of `seqdec.core.Posterior` for one belief."""

    def draw(key):
        params = flt.sample(key, belief)
        return lambda candidates: flt.response(params, candidates)

    return Posterior(
        lambda candidates: flt.response(flt.mean(belief), candidates),
        lambda candidates: flt.moments(belief, candidates),
        draw,
    )
