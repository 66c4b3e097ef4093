"""A belief as what an acquisition may ask."""

from typing import Any

from seqdec.core import Filter, Posterior


def posterior(flt: Filter, belief: Any) -> Posterior:
    """The questions of `seqdec.core.Posterior`, answered by a belief."""

    def draw(key):
        params = flt.sample(key, belief)
        return lambda candidates: flt.response(params, candidates)

    return Posterior(
        lambda candidates: flt.response(flt.mean(belief), candidates),
        lambda candidates: flt.moments(belief, candidates),
        draw,
    )
