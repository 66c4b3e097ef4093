r"""Linear Thompson sampling of many actions: each action's weights deviate from common weights.

    y_a = (w + u_a)^T phi(x) + e        w ~ N(0, sigma^2 I)        u_a ~ N(0, sigma^2 r^2 I)        e ~ N(0, sigma^2)

with phi = (z, 3), z the context in standard units (`seqdec.agents.regression.units`), rewards counted from the first.
The belief is exact: w ~ N(m, sigma^2 T T^T), and given w

    w + u_a ~ N(v_a + A_a w, sigma^2 r^2 A_a)        A_a = R_a R_a^T        at first v_a = 0, A_a = I

so that an action never played has the weights w. With p = R_a^T phi, q = R_a p and t = T^T q, its reward has mean v_a^T
phi + m^T q and variance sigma^2 (r^2 p^T p + t^T t). A reward y, with e = y - v_a^T phi, s = 1 + r^2 p^T p and S = s +
t^T t, gives

    v_a += r^2 q e / s           R_a -= r^2 q p^T / (s + sqrt(s))
    m += T t (e - m^T q) / S     T -= T t t^T / (S + sqrt(s S))

in O(F^2), for F - 1 numbers and any number of actions; a decision takes O(n F^2). Each action has a noise variance as
in `seqdec.agents.regression.conjugate`. r is one of seven values, all of which learn; the one with the largest log
density of past rewards, which decays by 1 / 1,000 a step, acts.

Source: Lindley, Smith, "Bayes estimates for the linear model", JRSS B 1972, for the model; Li, Chu, Langford, Schapire,
"A contextual-bandit approach to personalized news article recommendation", WWW 2010, for shared and own weights.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from gymnasium import spaces as gym_spaces

from seqdec.agents._neural.experience import rows_of, usable
from seqdec.agents.assembly import agent
from seqdec.agents.regression import conjugate, units
from seqdec.agents.regression.conjugate import CONSTANT, Noise
from seqdec.agents.regression.units import Rewards, Units
from seqdec.boundary.spaces import spaces_of
from seqdec.core import Acquisition, Agent, Array, HasSpaces, Learner, Marginals, Posterior, Predictive, UpdateInfo
from seqdec.runtime import alike

_SPREADS = (0.05, 0.1, 0.2, 0.5, 1.0, 3.0, 10.0)
"""Values of r."""
_KEPT = 0.999
"""What is left of a log density after a step."""


class Pool(NamedTuple):
    """Belief over the weights of n actions, of F features."""

    own: Array
    """(n, F) v"""
    root: Array
    """(n, F, F) R"""
    mean: Array
    """(F,) m"""
    spread: Array
    """(F, F) T"""
    noise: Noise

    def parts(self, phi: Array) -> tuple[Array, Array, Array]:
        """Means (n,) at features (F,), p (n, F) and t (n, F)."""
        p = jnp.einsum("f,nfk->nk", phi, self.root)
        q = jnp.einsum("nfk,nk->nf", self.root, p)
        return self.own @ phi + q @ self.mean, p, q @ self.spread

    def drawn(self, r: Array, common: Array, normal: Array) -> Array:
        """Weights (n, F) drawn by standard normal numbers (F,) and (n, F)."""
        std = jnp.sqrt(self.noise.variance)[:, None]
        inside = jnp.einsum("nfk,nf->nk", self.root, self.mean[None] + std * (self.spread @ common)[None])
        return self.own + jnp.einsum("nfk,nk->nf", self.root, inside + r * std * normal)

    def observed(self, r: Array, phi: Array, y: Array, index: Array, accept: Array) -> tuple["Pool", tuple]:
        """The belief after reward y of action `index`, its error () and log density (); as it was unless `accept`."""
        root, own = self.root[index], self.own[index]
        p = jnp.where(accept, phi @ root, 0)
        q = root @ p
        t = q @ self.spread
        s = 1 + r**2 * (p @ p)
        total = s + t @ t
        error = jnp.where(accept, y - own @ phi, 0)
        beyond = error - self.mean @ q
        gain = self.spread @ t
        noise, density = self.noise.observed(beyond, total, index, accept)
        learned = Pool(
            self.own.at[index].add(r**2 * q * error / s),
            self.root.at[index].add(-(r**2) * jnp.outer(q, p / (s + jnp.sqrt(s)))),
            self.mean + gain * beyond / total,
            self.spread - jnp.outer(gain, t / (total + jnp.sqrt(s * total))),
            noise,
        )
        return learned, (beyond, density)


def prior(actions: int, features: int) -> Pool:
    """Before any reward."""
    eye, zeros = jnp.eye(features), jnp.zeros(actions)
    root = jnp.broadcast_to(eye, (actions, features, features))
    return Pool(jnp.zeros((actions, features)), root, jnp.zeros(features), eye, Noise(zeros, zeros))


class PooledState(NamedTuple):
    """State of the agent."""

    pools: Pool
    """for each r"""
    densities: Array
    """(7,) log densities of the past"""
    contexts: Units
    rewards: Rewards

    @property
    def params(self) -> Array:
        """(7, F) expected common weights."""
        return self.pools.mean


def pooled(spaces: HasSpaces, *, policy: str | Acquisition | None = None) -> Agent:
    """Linear regressions of many actions that learn from each other.

    Args:
        spaces: with observation_space and action_space: contexts, and Discrete actions.
        policy: as in `seqdec.agents.auto`.

    Raises TypeError or ValueError for a space that does not fit.
    """
    spaces = spaces_of(spaces)
    seen, played = spaces.observation_space, spaces.action_space
    if isinstance(seen, gym_spaces.Dict) or not isinstance(played, gym_spaces.Discrete):
        raise TypeError(f"pooled is for contexts and Discrete actions; got {seen} and {played}: use linear or auto")
    shape, actions = rows_of(spaces).example.x.shape, int(played.n)
    features = math.prod(shape) + 1

    def before(actions):
        return jax.tree.map(lambda leaf: jnp.stack([leaf] * len(_SPREADS)), prior(actions, features))

    def init(key):
        return PooledState(before(actions), jnp.zeros(len(_SPREADS)), units.unknown(shape), units.no_rewards())

    def phi_of(contexts, x):
        return jnp.append(units.bounded(contexts, x), CONSTANT)

    def update(state, x, y, observed=None, allowed=None):
        index = jnp.arange(actions) if observed is None else jnp.asarray(observed)[None]
        y = jnp.ravel(y)
        good = usable((x, y))
        x = units.cut(state.contexts, x)
        contexts = units.measured(state.contexts, x[None], good[None])
        rewards, y = units.counted(state.rewards, y, good)
        dtype = state.pools.mean.dtype
        phi = jnp.where(good, phi_of(contexts, x), 0).astype(dtype)
        spreads, y = jnp.array(_SPREADS, dtype), y.astype(dtype)

        def one(pools, at):
            return jax.vmap(lambda pool, r: pool.observed(r, phi, *at, good))(pools, spreads)

        pools, (errors, densities) = jax.lax.scan(one, alike(state.pools, phi, y), (y, index))
        best, told = jnp.argmax(state.densities), jnp.sum(densities, 0)
        fresh = jnp.where(good, _KEPT * state.densities + told, state.densities)
        return PooledState(pools, fresh, contexts, rewards), UpdateInfo(errors[:, best], told[best], ~good)

    def posterior(state):
        best, origin = jnp.argmax(state.densities), state.rewards.origin
        pool, r = jax.tree.map(lambda leaf: leaf[best], (state.pools, jnp.array(_SPREADS, state.pools.mean.dtype)))

        def parts(x):
            mean, p, t = pool.parts(phi_of(state.contexts, x).astype(pool.mean.dtype))
            return mean + origin, r**2 * jnp.sum(p**2, 1), t, pool.noise.variance

        def marginals(x):
            mean, own, t, noise = parts(x)
            return Marginals(mean, noise * (own + jnp.sum(t**2, 1)), noise)

        def joint(x):
            mean, own, t, noise = parts(x)
            t = jnp.sqrt(noise)[:, None] * t
            return Predictive(mean, t @ t.mT + jnp.diag(noise * own), jnp.diag(noise))

        def draw(key):
            common, own = jax.random.split(key)
            dtype = pool.mean.dtype
            normal = jax.random.normal(common, pool.mean.shape, dtype), jax.random.normal(own, pool.own.shape, dtype)
            weights = pool.drawn(r, *normal)
            return lambda x: weights @ phi_of(state.contexts, x).astype(dtype) + origin

        return Posterior(lambda x: marginals(x).mean, joint, draw, marginals)

    def widened(state):
        known, new = state.pools, before(actions - state.pools.own.shape[1])
        own, root, noise = jax.tree.map(
            lambda *both: jnp.concatenate(both, 1),
            (known.own, known.root, known.noise), (new.own, new.root, new.noise),
        )  # fmt: skip
        return state._replace(pools=known._replace(own=own, root=root, noise=noise))

    chosen = conjugate.usual_policy(features - 1) if policy is None else policy
    settings = {"policy": None} if policy is None else {}
    return agent(Learner(init, update, posterior, widened=widened), chosen, spaces, name="pooled", settings=settings)
