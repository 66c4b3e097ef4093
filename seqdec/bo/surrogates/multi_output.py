"""Several outputs as one surrogate: independent beliefs at the same points.

Responses are (N, m), moments have the outputs as last axis, functions are (n, d) -> (n, m).
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seqdec.bo.surrogates.contract import History, Surrogate
from seqdec.core import Key, Posterior


@functools.cache
def independent(surrogates: tuple[Surrogate, ...]) -> Surrogate:
    """The surrogate of independent outputs, one of `surrogates` each, of one kind of state; its state is a tuple."""
    first, outputs = surrogates[0], len(surrogates)

    def init(key: Key, history: History) -> tuple[Any, ...]:
        return tuple(one.init(key, of) for one, of in zip(surrogates, _each(history), strict=True))

    def fit(state: tuple[Any, ...], history: History) -> tuple[Any, ...]:
        return tuple(one.fit(own, of) for one, own, of in zip(surrogates, state, _each(history), strict=True))

    def condition_on(state: tuple[Any, ...], history: History) -> tuple[Any, ...]:
        return tuple(one.condition_on(own, of) for one, own, of in zip(surrogates, state, _each(history), strict=True))

    def averaged(state: tuple[Any, ...], history: History, most: int) -> tuple[Any, ...]:
        parts = zip(surrogates, state, _each(history), strict=True)
        return tuple(one.averaged(own, of, most) for one, own, of in parts)

    def posterior(state: tuple[Any, ...]) -> Posterior:
        together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *state)  # compiled once for all

        def mean(candidates):
            return jax.vmap(lambda own: first.posterior(own).mean(candidates), out_axes=-1)(together)

        def joint(candidates):
            return jax.vmap(lambda own: first.posterior(own).joint(candidates), out_axes=-1)(together)

        def draw(key):
            keys = jax.random.split(key, outputs)
            functions = [first.posterior(own).draw(one) for own, one in zip(state, keys, strict=True)]
            return lambda candidates: jnp.stack([function(candidates) for function in functions], -1)

        return Posterior(mean, joint, draw)

    def noise_variance(state: tuple[Any, ...]) -> np.ndarray:
        estimates = [one.noise_variance for one in surrogates]
        return np.array([estimate(own) for estimate, own in zip(estimates, state, strict=True) if estimate is not None])

    def stored(state: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(one.stored(own) for one, own in zip(surrogates, state, strict=True))

    return first._replace(
        init=init,
        fit=fit,
        condition_on=condition_on,
        posterior=posterior,
        noise_variance=None if first.noise_variance is None else noise_variance,
        stored=stored,
        averaged=averaged,
    )


def _each(history: History) -> list[History]:
    """The history of each output."""
    outputs = range(history.y.shape[1])
    noise = [None if history.noise is None else history.noise[:, output] for output in outputs]
    return [history._replace(y=history.y[:, output], noise=noise[output]) for output in outputs]


def select(posterior: Posterior, outputs: int | slice) -> Posterior:
    """The posterior of some outputs; of one, without the last axis."""

    def joint(candidates):
        return jax.tree.map(lambda leaf: leaf[..., outputs], posterior.joint(candidates))

    def draw(key):
        function = posterior.draw(key)
        return lambda candidates: function(candidates)[..., outputs]

    return Posterior(lambda x: posterior.mean(x)[..., outputs], joint, draw)
