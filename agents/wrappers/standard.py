r"""Standard units: a learner that sees standardized numbers.

    contexts, vectors or single numbers     (x - mean) / std, running (`seqdec.agents.regression.units`), cut off at 5
    numbers of candidates, likewise         each column over all candidates allowed
    Box actions                             (a - middle) / std of a uniform point of the box

Arrays of two and more axes or more than 256 numbers, Discrete observations and row numbers are unchanged. The units
include the newest context; they move as 1 / n.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as gym_spaces

from seqdec.agents.regression import units
from seqdec.agents.regression.units import Units
from seqdec.boundary.spaces import spaces_of
from seqdec.core import Array, HasSpaces, Learner, Network, Posterior, PyTree, Spaces

_CONTEXT = "context"
"""Name of a context that is not a Dict."""


class Standardized(NamedTuple):
    """State of a learner in standard units."""

    state: Any
    """of the learner"""
    contexts: dict[str, Units]
    """by name of the entry of a Dict, or "context" alone"""

    @property
    def params(self) -> PyTree:
        """Parameters of the learner."""
        return self.state.params


def standard_spaces(spaces: HasSpaces) -> Spaces:
    """The spaces of the learner inside, in standard units."""
    observations, actions = spaces_of(spaces)
    if isinstance(observations, gym_spaces.Dict):
        fresh = {name: _free(part) if _is_numeric(part, 1) else part for name, part in observations.items()}
        return Spaces(gym_spaces.Dict(fresh), actions)
    return Spaces(_free(observations) if _is_numeric(observations, 0) else observations, actions)


def standardized(learner: Learner, spaces: HasSpaces) -> Learner:
    """`learner`, built for `standard_spaces(spaces)`, in these spaces; itself where all contexts stay."""
    observations, actions = spaces_of(spaces)
    shapes, named = _shapes(observations), isinstance(observations, gym_spaces.Dict)
    boxes = isinstance(actions, gym_spaces.Box)
    if not shapes:
        return learner

    def parts_of(x):
        """Numbers by name: of a context (1, ...), also before the points of a box, or of candidates (n, ...)."""
        if boxes:
            x = x[0, : math.prod(shapes[_CONTEXT])].reshape(shapes[_CONTEXT])
        parts = x if named else {_CONTEXT: x[None]}
        return {name: jnp.asarray(parts[name], float) for name in shapes}

    def seen(contexts, x):
        parts = {name: jax.vmap(units.bounded, (None, 0))(contexts[name], part) for name, part in parts_of(x).items()}
        if named:
            return {**x, **parts}
        if not boxes:
            return parts[_CONTEXT][0]
        context = parts[_CONTEXT].reshape(1, -1)
        context = jnp.broadcast_to(context, (len(x), context.size))
        wide = jnp.result_type(context, x)
        return jnp.concatenate([context.astype(wide), x[:, context.shape[1] :].astype(wide)], axis=1)

    def counted(x, y, allowed):
        """Numbers that the units measure, and which rows count."""
        parts = parts_of(x)
        rows = jnp.ones(len(next(iter(parts.values()))), bool)
        return parts, (rows if allowed is None or not named else jnp.asarray(allowed, bool)) & jnp.all(jnp.isfinite(y))

    def measured(contexts, parts, present):
        return {name: units.measured(contexts[name], parts[name], present) for name in shapes}

    def init(key):
        return Standardized(learner.init(key), {name: units.unknown(shape) for name, shape in shapes.items()})

    def update(state, x, y, observed=None, allowed=None):
        contexts = measured(state.contexts, *counted(x, y, allowed))
        inner, info = learner.update(state.state, seen(contexts, x), y, observed, allowed)
        return Standardized(inner, _unless(info.rejected, contexts, state.contexts)), info

    def update_batch(state, xs, ys, observed=None, allowed=None):
        assert learner.update_batch is not None
        parts, present = jax.vmap(counted)(xs, ys, allowed)
        parts = jax.tree.map(lambda part: part.reshape(-1, *part.shape[2:]), parts)
        contexts = measured(state.contexts, parts, present.ravel())
        shown = jax.vmap(seen, (None, 0))(contexts, xs)
        inner, info = learner.update_batch(state.state, shown, ys, observed, allowed)
        return Standardized(inner, _unless(info.rejected, contexts, state.contexts)), info

    def asked(posterior_of):
        return lambda state: on_inputs(posterior_of(state.state), functools.partial(seen, state.contexts))

    return learner._replace(
        init=init,
        update=update,
        posterior=asked(learner.posterior),
        update_batch=None if learner.update_batch is None else update_batch,
        prepared=None if learner.prepared is None else asked(learner.prepared),
        widened=None,
    )


def on_inputs(posterior: Posterior, change: Callable[[PyTree], PyTree]) -> Posterior:
    """`posterior` with `change` applied to its inputs."""
    marginals, parts = posterior.marginals, posterior.parts

    def draw(key):
        function = posterior.draw(key)
        return lambda candidates: function(change(candidates))

    return Posterior(
        lambda candidates: posterior.mean(change(candidates)),
        lambda candidates: posterior.joint(change(candidates)),
        draw,
        None if marginals is None else lambda candidates: marginals(change(candidates)),
        None if parts is None else lambda candidates: parts(change(candidates)),
    )


def standard_actions(network: Network, spaces: HasSpaces) -> Network:
    """A network of observation and action with Box actions in standard units; others unchanged."""
    actions = spaces_of(spaces).action_space
    if not isinstance(actions, gym_spaces.Box) or not actions.is_bounded():
        return network
    low, high = (np.asarray(bound, float).ravel() / 2 for bound in (actions.low, actions.high))
    width = high - low + np.issubdtype(actions.dtype, np.integer) / 2
    middle, std = low + high, np.where(width > 0, width, math.sqrt(3)) / math.sqrt(3)

    def apply(params, x):
        before = np.zeros(x.shape[-1] - len(low))
        told = np.append(before, middle), np.append(before + 1, std)
        shift, scale = (jnp.broadcast_to(jnp.asarray(part, x.dtype), x.shape) for part in told)
        return network.apply(params, (x - shift) / scale)

    return network._replace(apply=apply)


def _is_numeric(space: gym_spaces.Space, leading: int) -> bool:
    """Whether a Box holds vectors or numbers after `leading` axes, not row numbers."""
    if not isinstance(space, gym_spaces.Box) or 0 in space.shape:
        return False
    shape = space.shape[leading:]
    return len(shape) <= 1 and units.few(shape) and (leading == 0 or np.issubdtype(space.dtype, np.floating))


def _free(space: gym_spaces.Space) -> gym_spaces.Box:
    return gym_spaces.Box(-np.inf, np.inf, space.shape, np.float32)


def _shapes(observations: gym_spaces.Space) -> dict[str, tuple[int, ...]]:
    if isinstance(observations, gym_spaces.Dict):
        return {name: (part.shape or ())[1:] for name, part in observations.items() if _is_numeric(part, 1)}
    return {_CONTEXT: observations.shape or ()} if _is_numeric(observations, 0) else {}


def _unless(rejected: Array, new: PyTree, old: PyTree) -> PyTree:
    return jax.tree.map(lambda *pair: jnp.where(jnp.all(rejected), pair[1], pair[0]), new, old)
