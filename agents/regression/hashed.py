r"""Linear Thompson sampling of contexts with very many numbers, nearly all zero, as hashed words and levels are.

The model is that of `seqdec.agents.regression.pooled`, with a variance for each weight in place of covariances:

    y_a = (w + u_a)^T phi(x) + e        w ~ N(0, sigma^2 I)        u_a ~ N(0, sigma^2 r^2 I)        e ~ N(0, sigma^2)

phi = (z, 1) has the numbers z of the context that are not zero, divided by the root mean square of the lengths of
contexts, and no longer than five times that; the prior deviations of the weights of 1 are 3 and 1 in place of 1 and r.
Rewards are counted from the first. With w ~ N(m, sigma^2 diag T), and given w

    w + u_a ~ N(v_a + A_a w, sigma^2 r^2 diag A_a)        at first v_a = 0, A_a = 1

a reward y of action a, with q = A_a phi, e = y - v_a^T phi, s = 1 + r^2 q^T phi and S = s + q^T T q, gives

    v_a += r^2 q e / s             1 / A_a += r^2 phi^2
    m += T q (e - m^T q) / S       1 / T += q^2 / s

products and quotients of vectors by entry. A decision takes O(n b) and a reward O(b), for n actions and b numbers that
are not zero, whatever the size. Each action has a noise variance as in `seqdec.agents.regression.conjugate`. r is one
of three values, all of which learn; that with the largest log density of past rewards, which decays by one in 1,000 a
step, acts.

Source: Crammer, Kulesza, Dredze, "Adaptive regularization of weight vectors", NeurIPS 2009, for the diagonal;
Weinberger, Dasgupta, Langford, Smola, Attenberg, "Feature hashing for large scale multitask learning", ICML 2009.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from gymnasium import spaces as gym_spaces

from seqdec.agents._neural.experience import usable
from seqdec.agents.assembly import agent
from seqdec.agents.regression import conjugate, units
from seqdec.agents.regression.conjugate import CONSTANT, Noise
from seqdec.agents.regression.units import Rewards, Units
from seqdec.boundary.sparse import SparseBox
from seqdec.boundary.spaces import spaces_of
from seqdec.core import Acquisition, Agent, Array, HasSpaces, Learner, Marginals, Posterior, Predictive, UpdateInfo
from seqdec.runtime import alike, scan

_SPREADS = (0.3, 1.0, 3.0)
"""Values of r."""
_KEPT = 0.999
"""What is left of a log density after a step."""
_LONGEST = 5.0
"""Of a context, in usual lengths."""


class Belief(NamedTuple):
    """Belief over the weights of n actions, of F - 1 numbers and a constant, for K values of r."""

    own: Array
    """(F, K, n) v"""
    seen: Array
    """(F, n) sums of phi^2"""
    mean: Array
    """(F, K) m"""
    common: Array
    """(F, K) sums of q^2 / s"""
    noise: Noise
    """(K, n)"""

    def parts(self, at: Array) -> tuple[Array, Array, Array]:
        """r^2 (b, K), A (b, K, n) and T (b, K) of features number `at` (b,)."""
        constant = (at == len(self.mean) - 1)[:, None]
        own = jnp.where(constant, 1, jnp.square(jnp.array(_SPREADS, self.mean.dtype)))
        prior = jnp.where(constant, CONSTANT**2, 1)
        return own, 1 / (1 + own[:, :, None] * self.seen[at][:, None]), prior / (1 + prior * self.common[at])

    def observed(self, at: Array, phi: Array, y: Array, index: Array, accept: Array) -> tuple["Belief", tuple]:
        """The belief after reward y of action `index`, its errors (K,) and log densities (K,).

        Features number `at` (b,) are phi (b,). Unchanged if phi is zero and not `accept`.
        """
        own, every, common = self.parts(at)
        q = every[:, :, index] * phi[:, None]
        s = 1 + jnp.sum(own * q * phi[:, None], 0)
        total = s + jnp.sum(common * q**2, 0)
        error = jnp.where(accept, y - phi @ self.own[at, :, index], 0)
        beyond = error - jnp.sum(self.mean[at] * q, 0)
        noise, densities = jax.vmap(lambda noise, *of: noise.observed(*of, index, accept))(self.noise, beyond, total)
        learned = Belief(
            self.own.at[at, :, index].add(own * q * (error / s)),
            self.seen.at[at, index].add(phi**2),
            self.mean.at[at].add(common * q * (beyond / total)),
            self.common.at[at].add(q**2 / s),
            noise,
        )
        return learned, (beyond, densities)


def prior(size: int, actions: int) -> Belief:
    """Before any reward."""
    count = len(_SPREADS)
    noise = Noise(jnp.zeros((count, actions)), jnp.zeros((count, actions)))
    own, seen = jnp.zeros((size + 1, count, actions)), jnp.zeros((size + 1, actions))
    return Belief(own, seen, jnp.zeros((size + 1, count)), jnp.zeros((size + 1, count)), noise)


class HashedState(NamedTuple):
    """State of the agent."""

    belief: Belief
    densities: Array
    """(K,) log densities of the past"""
    lengths: Units
    """of contexts"""
    rewards: Rewards

    @property
    def params(self) -> Array:
        """(F, K) expected common weights."""
        return self.belief.mean


def hashed(spaces: HasSpaces, *, policy: str | Acquisition | None = None) -> Agent:
    """Linear regressions of contexts of a `seqdec.features.SparseBox`; a step takes as long for any size.

    A state has 4 (4 n + 6) bytes for each of `size` numbers, for n actions.

    Args:
        spaces: with observation_space, a SparseBox, and action_space, Discrete.
        policy: as in `seqdec.agents.auto`; None as in `seqdec.agents.linear`.

    Raises TypeError for other spaces.
    """
    spaces = spaces_of(spaces)
    seen, played = spaces.observation_space, spaces.action_space
    if not isinstance(seen, SparseBox) or not isinstance(played, gym_spaces.Discrete):
        raise TypeError(
            f"hashed is for contexts of a SparseBox and Discrete actions; got {seen} and {played}: use linear or auto"
        )
    size, actions = seen.size, int(played.n)

    def length_of(x):
        return jnp.linalg.norm(x[:, 1])

    def features(lengths, x):
        """Numbers (b,) of the features that are not zero, and these (b,)."""
        usual = jnp.sqrt(lengths.mean**2 + jnp.maximum(lengths.squares, 0) / jnp.maximum(lengths.seen, 1))
        usual = jnp.maximum(usual, length_of(x) / _LONGEST)
        z = jnp.where(usual > 0, x[:, 1] / jnp.where(usual > 0, usual, 1), 0)
        return jnp.append(jnp.clip(jnp.round(x[:, 0]), 0, size - 1).astype(jnp.int32), size), jnp.append(z, 1)

    def init(key):
        return HashedState(prior(size, actions), jnp.zeros(len(_SPREADS)), units.unknown(()), units.no_rewards())

    def update(state, x, y, observed=None, allowed=None):
        good = usable((x, y))
        x, y = jnp.where(good, x, 0), jnp.ravel(y)
        lengths = units.measured(state.lengths, units.cut(state.lengths, length_of(x))[None], good[None])
        rewards, y = units.counted(state.rewards, y, good)
        at, phi = features(lengths, x)
        dtype = state.belief.mean.dtype
        phi, y = jnp.where(good, phi, 0).astype(dtype), y.astype(dtype)

        def one(belief, told):
            return belief.observed(at, phi, *told, good)

        belief = alike(state.belief, phi, y)
        if observed is None:
            belief, (errors, densities) = scan(one, belief, (y, jnp.arange(actions)))
        else:  # a scan of one step would copy the belief
            belief, told = one(belief, (y[0], jnp.asarray(observed)))
            errors, densities = (each[None] for each in told)
        best, told = jnp.argmax(state.densities), jnp.sum(densities, 0)
        fresh = jnp.where(good, _KEPT * state.densities + told, state.densities)
        return HashedState(belief, fresh, lengths, rewards), UpdateInfo(errors[:, best], told[best], ~good)

    def posterior(state):
        belief, origin, best = state.belief, state.rewards.origin, jnp.argmax(state.densities)
        noise = jax.tree.map(lambda leaf: leaf[best], belief.noise).variance

        def entries(x):
            at, phi = features(state.lengths, x)
            phi = phi.astype(noise.dtype)[:, None]
            own, every, common = (part[:, best] for part in belief.parts(at))
            q = every * phi
            mean = jnp.sum(belief.own[at, best] * phi + belief.mean[at, best][:, None] * q, 0) + origin
            return at, mean, jnp.sqrt(own[:, None] * every) * phi, jnp.sqrt(common)[:, None] * q

        def marginals(x):
            _, mean, own, common = entries(x)
            return Marginals(mean, noise * (jnp.sum(own**2, 0) + jnp.sum(common**2, 0)), noise)

        def joint(x):
            _, mean, own, common = entries(x)
            common = common * jnp.sqrt(noise)
            return Predictive(mean, common.mT @ common + jnp.diag(noise * jnp.sum(own**2, 0)), jnp.diag(noise))

        def draw(key):
            def drawn(x):
                at, mean, own, common = entries(x)
                keys = jax.vmap(jax.random.fold_in, (None, 0))(key, at)
                normal = jax.vmap(lambda key: jax.random.normal(key, (actions + 1,), noise.dtype))(keys)
                return mean + jnp.sqrt(noise) * jnp.sum(own * normal[:, 1:] + common * normal[:, :1], 0)

            return drawn

        return Posterior(lambda x: marginals(x).mean, joint, draw, marginals)

    def widened(state):
        belief = state.belief
        more = prior(size, actions - belief.seen.shape[1])
        own, seen, noise = jax.tree.map(
            lambda *both: jnp.concatenate(both, -1),
            (belief.own, belief.seen, belief.noise), (more.own, more.seen, more.noise),
        )  # fmt: skip
        return state._replace(belief=belief._replace(own=own, seen=seen, noise=noise))

    chosen = conjugate.usual_policy(size) if policy is None else policy
    settings = {"policy": None} if policy is None else {}
    learner = Learner(init, update, posterior, widened=widened, sparse=True)
    return agent(learner, chosen, spaces, name="hashed", settings=settings)
