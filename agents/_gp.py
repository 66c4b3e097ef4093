r"""Gaussian process on a buffer of the last observations, with fixed hyperparameters.

    f_j ~ GP(0, s k(|x - x'| / l)), k Matern-5/2         y_j = f_j(x) + e,  Var[e] = v

independently for each of n Discrete actions j on the context x; for Box actions and Dict candidates, one process on
rows of context and action. With the rows X of the buffer in which action j was observed and their responses y,

    mean(x) = k(x, X) (K + v I)^{-1} y        cov(x, x') = k(x, x') - k(x, X) (K + v I)^{-1} k(X, x')

A draw is joint over the candidates. Cost of an update: O(n B^3) for a buffer of B; of a decision: O(n B^2).

Source: Rasmussen, Williams, "Gaussian processes for machine learning", 2006, section 2.2.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as gym_spaces

from seqdec import kernels, linalg
from seqdec import memory as memories
from seqdec.agents._neural.experience import remember, rows_of, usable
from seqdec.agents._neural.loop import NeuralInfo, innovation_of
from seqdec.agents.assembly import agent
from seqdec.boundary import checks
from seqdec.core import Acquisition, Agent, Array, HasSpaces, Learner, Posterior, Predictive, PyTree
from seqdec.memory import MemoryState


class Process(NamedTuple):
    memory: MemoryState
    """rows `Experience`"""
    roots: Array
    """(n, B, B) W, W^T W = (K + v I)^{-1}"""
    weights: Array
    """(n, B) (K + v I)^{-1} y"""


class Kernel(NamedTuple):
    length_scale: float
    scale: float
    noise_variance: float

    def __call__(self, a: Array, b: Array) -> Array:
        """Rows (r, d) and (m, d) -> (r, m)."""
        return self.scale * kernels.matern52(a / self.length_scale, b / self.length_scale)


def gp(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition = "thompson",
    buffer: int = 20,
    length_scale: float = 0.1,
    scale: float = 1.0,
    noise_variance: float = 0.01,
    num_candidates: int | None = None,
) -> Agent:
    """Gaussian process with a Matern-5/2 kernel on a buffer of the last observations.

    Args:
        spaces: with observation_space and action_space; a Dict of candidates with numbers only.
        policy: name or acquisition of `seqdec.policies`.
        buffer: B, number of observations kept.
        length_scale: l, in units of the observation.
        scale: prior variance s of an expected response.
        noise_variance: observation variance v.
        num_candidates: points per decision, for Box actions only; None is 256.

    Raises TypeError or ValueError for row numbers of a table, other spaces, and a setting out of range.
    """
    buffer = checks.count("buffer", buffer)
    for setting, value in (("length_scale", length_scale), ("scale", scale), ("noise_variance", noise_variance)):
        checks.positive(setting, value)
    recording, memory = rows_of(spaces), memories.last(buffer)
    kernel = Kernel(length_scale, scale, noise_variance)
    by_row = not isinstance(spaces.action_space, gym_spaces.Discrete) or isinstance(
        spaces.observation_space, gym_spaces.Dict
    )
    _check_numbers(spaces)

    def init(key):
        del key
        return condition(kernel, memory.init(recording.example))

    def posterior(state):
        return _posterior(kernel, state, by_row)

    def update(state, x, y, observed=None, allowed=None):
        newest = recording.rows(x, y, observed)
        ask = jax.vmap(posterior(state).mean)
        innovation = innovation_of(newest, ask(newest.x), single=observed is not None)
        loss = 0.5 * jnp.sum(innovation**2)
        good = usable(newest) & jnp.isfinite(loss)
        # The key is not used: the last rows are kept without a draw.
        fresh = condition(kernel, remember(memory, jax.random.key(0), state.memory, newest, good))
        roots, weights = (
            jnp.where(good, new.astype(old.dtype), old)
            for new, old in ((fresh.roots, state.roots), (fresh.weights, state.weights))
        )
        return Process(fresh.memory, roots, weights), NeuralInfo(innovation, loss, ~good)

    settings = {"buffer": buffer, **kernel._asdict()}
    learner = Learner(init, update, posterior)
    return agent(learner, policy, spaces, name="gp", settings=settings, num_candidates=num_candidates)


def _check_numbers(spaces: HasSpaces) -> None:
    if isinstance(spaces.observation_space, gym_spaces.Dict):
        for name, part in spaces.observation_space.items():
            if not np.issubdtype(part.dtype, np.floating):
                raise TypeError(
                    f"a Gaussian process has no distance between row numbers, and the candidates' {name!r} is "
                    f"{part.dtype}; use an agent with a network"
                )


def _rows(x: PyTree, by_row: bool) -> Array:
    """Inputs (r, d): a row per candidate, or one for a context."""
    leaves = [leaf.reshape(len(leaf) if by_row else 1, -1) for leaf in jax.tree.leaves(x)]
    return jnp.concatenate([leaf.astype(float) for leaf in leaves], axis=1)


def condition(kernel: Kernel, memory: MemoryState) -> Process:
    x, present = _rows(memory.rows.x, True), memories.present(memory)
    cov = kernel(x, x)

    def one(y, observed):
        keep = present & observed
        columns = linalg.inverse_root(kernels.padded(cov, keep, kernel.noise_variance))
        return columns.T, columns @ (columns.T @ jnp.where(keep, y, 0))

    return Process(memory, *jax.vmap(one, (1, 1))(memory.rows.y, memory.rows.observed))


def _posterior(kernel: Kernel, state: Process, by_row: bool) -> Posterior:
    """Responses at a context (n actions), or at rows (r candidates)."""
    rows = state.memory.rows
    keep = rows.observed & memories.present(state.memory)[:, None]

    def cross(candidates):
        """(n, B) covariance of each response with its buffer, or (r, B) by row."""
        known = kernel(_rows(candidates, by_row), _rows(rows.x, True))
        return jnp.where(keep.T, known, 0)

    def mean(candidates):
        return jnp.sum(cross(candidates) * state.weights, 1)

    def joint(candidates):
        known = cross(candidates)
        if by_row:
            part = known @ state.roots[0].T
            inputs = _rows(candidates, True)
            cov = kernel(inputs, inputs) - part @ part.T
        else:
            part = jnp.einsum("nab,nb->na", state.roots, known)
            cov = jnp.diag(jnp.maximum(kernel.scale - jnp.sum(part**2, 1), 0))
        noise = kernel.noise_variance * jnp.eye(len(cov), dtype=cov.dtype)
        return Predictive(jnp.sum(known * state.weights, 1), cov, noise)

    def draw(key):
        def function(candidates):
            at = joint(candidates)
            normal = jax.random.normal(key, at.mean.shape, at.mean.dtype)
            if by_row:
                return at.mean + normal @ linalg.psd_root(at.cov)
            return at.mean + jnp.sqrt(jnp.diagonal(at.cov)) * normal

        return function

    return Posterior(mean, joint, draw)
