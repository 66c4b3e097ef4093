r"""Linear Thompson sampling of contexts with very many numbers, nearly all zero, as hashed words and levels are.

Each action has a regression of `seqdec.agents.regression.conjugate` on (r z, 3), with the variance of each weight in
place of covariances. z are the nonzero numbers of the context, divided by the root mean square length of contexts, and
cut off at five times that. Only their weights are read and written: a step takes O(n b), for n actions and b such
numbers, whatever the size. r is one of three values, all of which learn; the one with the largest log density of past
rewards, which decays by 1 / 1,000 a step, acts.

Source: Crammer, Kulesza, Dredze, "Adaptive regularization of weight vectors", NeurIPS 2009, for the diagonal;
Weinberger, Dasgupta, Langford, Smola, Attenberg, "Feature hashing for large scale multitask learning", ICML 2009.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from gymnasium import spaces as gym_spaces

from seqdec.agents._neural.experience import usable
from seqdec.agents.assembly import agent
from seqdec.agents.regression import conjugate, units
from seqdec.agents.regression.conjugate import CONSTANT, Noise, Regression
from seqdec.agents.regression.units import Rewards, Units
from seqdec.boundary.spaces import spaces_of
from seqdec.boundary.sparse import SparseBox
from seqdec.core import Acquisition, Agent, Array, HasSpaces, Learner, Posterior, Predictive, UpdateInfo

_SPREADS = (0.3, 1.0, 3.0)
"""Values of r."""
_KEPT = 0.999
"""What is left of a log density after a step."""
_LONGEST = 5.0
"""Of a context, in usual lengths."""


class HashedState(NamedTuple):
    """State of the agent, for F - 1 numbers and the constant, n actions and K values of r."""

    params: Array
    """(F, K, n) weights for prior mean 0"""
    root: Array
    """(F, K, n) roots of their variances, in those of the noise"""
    noise: Noise
    """(K, n)"""
    densities: Array
    """(K,) log densities of the past"""
    lengths: Units
    """of contexts"""
    rewards: Rewards

    def some(self, at: Array) -> Regression:
        """Beliefs (K, n, b) over the weights of numbers `at` (b,)."""
        weights, root = (jnp.moveaxis(leaf[at], 0, -1) for leaf in (self.params, self.root))
        return Regression(weights, root, self.noise)


def hashed(spaces: HasSpaces, *, policy: str | Acquisition | None = None) -> Agent:
    """Linear regressions on contexts of a `seqdec.features.SparseBox`; time depends only on the nonzero numbers.

    The state takes 24 n bytes per number of the context, for n actions.

    Args:
        spaces: with observation_space, a SparseBox, and action_space, Discrete.
        policy: as in `seqdec.agents.auto`.

    Raises TypeError for other spaces.
    """
    spaces = spaces_of(spaces)
    seen, played = spaces.observation_space, spaces.action_space
    if not isinstance(seen, SparseBox) or not isinstance(played, gym_spaces.Discrete):
        raise TypeError(
            f"hashed is for contexts of a SparseBox and Discrete actions; got {seen} and {played}: use linear or auto"
        )
    size, actions, count = seen.size, int(played.n), len(_SPREADS)

    def length_of(x):
        return jnp.linalg.norm(x[:, 1])

    def features(lengths, x):
        """Numbers (b,) that are not zero, beyond all for padding, and the features (K, b) of these."""
        usual = jnp.sqrt(lengths.mean**2 + jnp.maximum(lengths.squares, 0) / jnp.maximum(lengths.seen, 1))
        usual = jnp.maximum(usual, length_of(x) / _LONGEST)
        z = jnp.where(usual > 0, x[:, 1] / jnp.where(usual > 0, usual, 1), 0)
        at = jnp.where(x[:, 1] == 0, size + 1, jnp.clip(jnp.round(x[:, 0]), 0, size - 1).astype(jnp.int32))
        scaled = jnp.array(_SPREADS, z.dtype)[:, None] * z[None]
        return jnp.append(at, size), jnp.append(scaled, jnp.full((count, 1), CONSTANT, z.dtype), 1)

    def before(actions):
        shape = size + 1, count, actions
        return jnp.zeros(shape), jnp.ones(shape), Noise(jnp.zeros(shape[1:]), jnp.zeros(shape[1:]))

    def init(key):
        return HashedState(*before(actions), jnp.zeros(count), units.unknown(()), units.no_rewards())

    def update(state, x, y, observed=None, allowed=None):
        index = jnp.arange(actions) if observed is None else jnp.asarray(observed)[None]
        y = jnp.ravel(y)
        good = usable((x, y))
        x = jnp.where(good, x, 0)
        lengths = units.measured(state.lengths, units.cut(state.lengths, length_of(x))[None], good[None])
        rewards, y = units.counted(state.rewards, y, good)
        at, phi = features(lengths, x)
        known = state.some(at)
        mu = conjugate.usual_mean(known.weights[0], rewards.location)
        learned = jax.vmap(lambda belief, phi: conjugate.learned(belief, phi, y, index, mu, good))
        fresh, (errors, densities) = learned(known, phi)
        params, root = (
            old.at[at].set(jnp.moveaxis(new, -1, 0), mode="drop")
            for old, new in ((state.params, fresh.weights), (state.root, fresh.root))
        )
        best, told = jnp.argmax(state.densities), jnp.sum(densities, 1)
        past = jnp.where(good, _KEPT * state.densities + told, state.densities)
        return HashedState(params, root, fresh.noise, past, lengths, rewards), UpdateInfo(
            errors[best], told[best], ~good
        )

    def posterior(state):
        origin, best = state.rewards.origin, jnp.argmax(state.densities)

        def asked(x):
            at, phi = features(state.lengths, x)
            own = jax.tree.map(lambda leaf: leaf[best], state.some(at))
            return (
                own,
                at,
                phi[best].astype(own.weights.dtype),
                conjugate.usual_mean(own.weights, state.rewards.location),
            )

        def marginals(x):
            own, _, phi, mu = asked(x)
            found = own.answer(phi, mu)
            return found._replace(mean=found.mean + origin)

        def joint(x):
            found = marginals(x)
            return Predictive(found.mean, jnp.diag(found.variance), jnp.diag(found.noise))

        def draw(key):
            def drawn(x):
                own, at, phi, mu = asked(x)
                keys = jax.vmap(functools.partial(jax.random.fold_in, key))(at)
                normal = jax.vmap(lambda key: jax.random.normal(key, (actions,), phi.dtype), out_axes=1)(keys)
                return own.drawn(normal, mu) @ phi + origin

            return drawn

        return Posterior(lambda x: marginals(x).mean, joint, draw, marginals)

    def widened(state):
        more = before(actions - state.params.shape[-1])
        both = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, -1), state[:3], more)
        return HashedState(*both, *state[3:])

    chosen = conjugate.usual_policy(size) if policy is None else policy
    settings = {"policy": None} if policy is None else {}
    learner = Learner(init, update, posterior, widened=widened, sparse=True)
    return agent(learner, chosen, spaces, name="hashed", settings=settings)
