"""Belief about every action in a context, and the contribution of each feature (integrated gradients).

With m_a(x) the expected reward of action a and x0 the mean of the latest contexts, feature j contributes

    c_aj = (x_j - x0_j) int_0^1 dm_a / dx_j (x0 + t (x - x0)) dt,      sum_j c_aj = m_a(x) - m_a(x0)

by a sum over 33 points including both ends. Its error is distributed in proportion to the mean deviation of the
features' gradients along the line: linear features stay exact.

Source: Sundararajan, Taly, Yan, "Axiomatic attribution for deep networks", ICML 2017.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as gym_spaces
from jax import lax

from seqdec.boundary.sparse import SparseBox
from seqdec.core import Agent, Array, Assessment, Masked, PyTree
from seqdec.features import Encoder
from seqdec.features.values import missing
from seqdec.introspection import counted, described, html
from seqdec.runtime import UNFUSED, UNOPTIMIZED
from seqdec.service.contexts import WHOLE

if TYPE_CHECKING:
    import pandas as pd

_STEPS = 32
_SHOWN = 5
_PARTS = 5
_OWN = ("action", "mean", "deviation", "probability", "baseline")


class Explanation(NamedTuple):
    """Belief about each of n actions in one context; a row of `to_pandas` each."""

    actions: tuple[Any, ...]
    """ids of present arms or items, or indices of candidates"""
    mean: np.ndarray
    """(n,) expected reward, not clipped to the range of rewards; NaN where unknown"""
    deviation: np.ndarray
    """(n,) epistemic standard deviation of the mean; NaN where unknown"""
    probability: np.ndarray
    """(n,) of being played, 0 where masked; NaN where unknown"""
    columns: tuple[str, ...]
    """columns of the encoder's table, or numbers of the context; may be empty"""
    values: tuple[Any, ...]
    """of the columns in this context"""
    baseline: np.ndarray
    """(n,) expected reward at the mean of the latest contexts; NaN without columns"""
    contributions: np.ndarray
    """(n, columns) shift of the expected reward from the baseline by each column"""

    def __repr__(self) -> str:
        order = np.lexsort((-np.nan_to_num(self.mean), -np.nan_to_num(self.probability)))
        return described(f"Explanation of {counted(len(self.actions), 'action')}", *map(self._line, order))

    def _line(self, place: int) -> str:
        parts = sorted(zip(self.contributions[place], self.columns, self.values, strict=True), key=lambda c: -abs(c[0]))
        because = ", ".join(f"{name} {_brief(value)}: {part:+.3g}" for part, name, value in parts[:_SHOWN] if part)
        because = f"; from {self.baseline[place]:.4g} by {because}" if because else ""
        deviation = "" if np.isnan(self.deviation[place]) else f" +- {self.deviation[place]:.2g}"
        mean = "" if np.isnan(self.mean[place]) else f"{self.mean[place]:.4g}{deviation}, "
        return f"{self.actions[place]}: {mean}played with probability {self.probability[place]:.3g}{because}"

    def _repr_html_(self) -> str:
        return html(f"Explanation of {counted(len(self.actions), 'action')}", self.to_pandas())

    def to_pandas(self) -> "pd.DataFrame":
        """One row per action."""
        import pandas as pd

        own = dict(zip(_OWN, (self.actions, self.mean, self.deviation, self.probability, self.baseline), strict=True))
        names = [f"contribution {name}" if name in own else name for name in self.columns]
        parts = pd.DataFrame(self.contributions, columns=pd.Index(names, dtype=object))
        return pd.concat([pd.DataFrame(own), parts], axis=1)


def has_contributions(space: gym_spaces.Space) -> bool:
    """Whether the numbers of a context can vary one by one."""
    numbers = isinstance(space, gym_spaces.Box) and np.issubdtype(space.dtype, np.floating) and 0 not in space.shape
    return numbers and not isinstance(space, SparseBox)


def program(agent: Agent) -> Callable[..., tuple[Assessment, Array | None, Array | None]]:
    """(state, seed, x, mask, x0) -> assessment, m(x0) (n,) and c (n, *shape of x); None for both without x0."""

    def explained(
        state: PyTree, seed: Any, x: PyTree, mask: Any, middle: Any
    ) -> tuple[Assessment, Array | None, Array | None]:
        key = jax.random.key(seed)

        def assess(x: PyTree) -> Assessment:
            assert agent.assess is not None
            return agent.assess(jax.random.clone(key), state, Masked(x, mask))

        def mean(x: Array) -> Array:
            return assess(x).mean

        found = assess(x)
        if middle is None:
            return found, None, None
        line = x - middle
        derivative = jax.jacrev(mean) if len(mask) <= line.size else jax.jacfwd(mean)
        shares = jnp.arange(_STEPS + 1, dtype=line.dtype) / _STEPS
        slopes = lax.map(lambda share: derivative(middle + share * line), shares)
        at_mean, along = mean(middle), line[None].astype(slopes.dtype)
        slope = (slopes[1:] + slopes[:-1]).mean(0) / 2
        contributed, varying = slope * along, jnp.abs(slopes - slope[None]).mean(0) * jnp.abs(along)
        axes = tuple(range(1, contributed.ndim))
        residual = found.mean - at_mean - jnp.sum(contributed, axes)
        smallest = jnp.finfo(contributed.dtype).tiny
        share = varying / jnp.maximum(jnp.sum(varying, axes, keepdims=True), smallest)
        return found, at_mean, contributed + jnp.expand_dims(residual, axes) * share

    return jax.jit(explained, compiler_options={**UNOPTIMIZED, **UNFUSED})


def expectations(agent: Agent) -> Callable[..., Array]:
    """(state, seed, x, masks) -> (n, outputs) expected rewards in contexts x (n, ...)."""

    def expected(state: PyTree, seed: Any, x: PyTree, masks: Any) -> Array:
        def mean(x: PyTree, mask: Any) -> Array:
            assert agent.assess is not None
            return agent.assess(jax.random.key(seed), state, Masked(x, mask)).mean

        return jax.vmap(mean)(x, masks)

    return jax.jit(expected, compiler_options={**UNOPTIMIZED, **UNFUSED})


def explain(
    outputs: Mapping[Any, int], found: tuple[Assessment, Any, Any], x: Any, encoder: Encoder | None, context: Any
) -> Explanation:
    """Explanation of the arms with `outputs` by id; an encoder's contributions are summed by column.

    `x` is the observation, `context` as the caller gave it.
    """
    assessment, baseline, contributions = found
    chosen = np.array(list(outputs.values()), int)
    mean, variance, probability = (np.asarray(leaf, float)[chosen] for leaf in assessment)
    deviation = np.sqrt(np.maximum(variance, 0))
    columns: tuple[str, ...] = ()
    values: Sequence[Any] = ()
    base, contributed = np.full(len(chosen), np.nan), np.zeros((len(chosen), 0))
    if contributions is not None and not np.isnan(mean).all():
        base, contributed = (np.asarray(leaf, float)[chosen] for leaf in (baseline, contributions))
        contributed = contributed.reshape(len(chosen), -1)
        if encoder is None:
            values = x.ravel().tolist()
            columns = tuple(f"{WHOLE}_{place}" for place in range(len(values)))
        else:
            columns = tuple(dict.fromkeys(encoder.column_of))
            belongs = np.array([[source == name for name in columns] for source in encoder.column_of])
            contributed = contributed @ belongs
            features = dict(zip(encoder.names, x.tolist(), strict=True))
            values = [context.get(name) if name in encoder.columns else features[name] for name in columns]
    return Explanation(tuple(outputs), mean, deviation, probability, columns, tuple(values), base, contributed)


def calibrated(expected: np.ndarray, observed: np.ndarray) -> "pd.DataFrame":
    """The table of `OnlineAgent.calibration`."""
    import pandas as pd

    gap, rows = observed - expected, []
    spread = gap.std(ddof=1) if len(gap) > 1 else np.nan
    for part in np.array_split(np.argsort(expected, kind="stable"), min(_PARTS, len(gap))):
        rows.append((len(part), expected[part].mean(), observed[part].mean(), spread / np.sqrt(len(part))))
    return pd.DataFrame(rows, columns=["decisions", "expected", "observed", "std_error"])


def _brief(value: Any) -> str:
    if missing(value):
        return "missing"
    return f"{value:.3g}" if isinstance(value, float) else f"{value!s:.20}"
