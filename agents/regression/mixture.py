r"""A mixture of regressions on several kinds of features and half-lives, weighted by their past predictive density.

The world may change: with hazard h in each step, the member that predicts best is drawn anew. For each h in (1e-6,
1e-4, 1e-3, 1e-2), of prior (0.9, 0.07, 0.02, 0.01), and p_k the predictive density of a reward under member k before it
is learned (fixed share),

    w_hk <- w_hk p_k(reward) exp(-price_k)        w_hk <- (1 - h) w_hk + h share_k sum_j w_hj        sum_hk w_hk = 1

Half of a response's weights come from all rewards, half from its own, with p_k = 1 and no price while it is not
observed: then a change becomes likelier.

A member that forgets pays 0.005 nats a step, others nothing; those that do not forget share 0.96 of the prior. The
prior mean of its weights is the mean of the member that differs only in the half-life: what is known of an action that
is not played becomes less certain, but is not lost. All members estimate the noise from all rewards: otherwise
short memories win by following it. A member with a level learns rewards minus their running mean of half-life 32, to
follow what moves all rewards alike.

Mean and noise of a reward are weighted means of the members', its variance the weighted mean of their variances plus
the variance of their means.

Source: Herbster, Warmuth, "Tracking the best expert", 1998; Koolen, de Rooij, "Combining expert advice efficiently",
2008, for the hazards; Russac, Vernade, Cappe, "Weighted linear bandits for non-stationary environments", NeurIPS 2019,
for members that forget. The level is ours.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seqdec.agents.regression import conjugate
from seqdec.agents.regression.units import Rewards
from seqdec.core import Array, Marginals, Posterior, Predictive, PyTree
from seqdec.runtime import alike

HALF_LIVES = (32.0, 128.0, 512.0, 2048.0)
"""Of members that forget, in steps."""
_HAZARDS, _HAZARD_PRIOR = (1e-6, 1e-4, 1e-3, 1e-2), (0.9, 0.07, 0.02, 0.01)
"""h, and their prior."""
_KEPT, _PRICE, _LEVEL = 0.96, 0.005, 0.5 ** (1 / 32)
"""Prior of members that do not forget; price of others; what a step leaves of the level."""
_TIED, _LEAST = 0.5, 1e-30
"""Share of the weights of all responses in those of each; least w."""

Phis = tuple[Array, ...]
"""(b, K, F) for the K members of each group."""


class Kind(NamedTuple):
    """A member within its group."""

    scale: float
    """r"""
    half_life: float = math.inf
    """in steps"""
    level: bool = False
    """whether it learns rewards minus their running mean"""

    @property
    def adapts(self) -> bool:
        """Whether it is for a world that changes."""
        return self.level or self.half_life < math.inf


class Group(NamedTuple):
    """Members with features (r z, 3)."""

    features: Callable[[PyTree, PyTree], Array]
    """(network parameters, row in standard units) -> z (F - 1,)"""
    kinds: tuple[Kind, ...]
    prior: Callable[[int, int], Any] = conjugate.prior
    """(responses, features) -> initial belief"""
    log_weight: float = 0.0
    """initial"""
    renewed: bool = False
    """recomputed from a memory"""

    def phis(self, params: PyTree, row: PyTree) -> Array:
        """(K, F)."""
        z = jnp.ravel(self.features(params, row))
        scaled = jnp.array([kind.scale for kind in self.kinds], z.dtype)[:, None] * z[None]
        return jnp.concatenate([scaled, jnp.full((len(scaled), 1), conjugate.CONSTANT, z.dtype)], 1)


class Mixture(NamedTuple):
    """Beliefs and weights of the members."""

    members: tuple[Any, ...]
    """beliefs (K, ...) of each group"""
    shares: Array
    """(1 + n, hazards, members) w of all responses, and of each; sum 1"""
    level: Array
    """() running mean of rewards"""

    @property
    def weights(self) -> Array:
        """(members, n), sum 1."""
        weights = jnp.sum(self.shares, 1)
        return (_TIED * weights[:1] + (1 - _TIED) * weights[1:]).T


def prior(groups: tuple[Group, ...], responses: int, phis: Phis) -> Mixture:
    """Before any observation, for features of the shapes of `phis`."""
    members = tuple(
        jax.tree.map(lambda leaf, count=phi.shape[1]: jnp.stack([leaf] * count), group.prior(responses, phi.shape[2]))
        for group, phi in zip(groups, phis, strict=True)
    )
    adapts, share = _shares(groups)
    parts = [np.where(of, share, 0) for of in (~adapts, adapts)]
    start = sum(part / max(part.sum(), 1e-30) * prior for part, prior in zip(parts, (_KEPT, 1 - _KEPT), strict=True))
    each = np.outer(_HAZARD_PRIOR, start / np.sum(start))
    shares = np.broadcast_to(each, (1 + responses, *each.shape))
    return Mixture(members, jnp.array(shares), jnp.zeros(()))


def weighed(groups: tuple[Group, ...], shares: Array, densities: Array, index: Array) -> Array:
    """Weights (1 + n, hazards, members) after log densities (members, o) of responses number `index` (o,)."""
    adapts, share = _shares(groups)
    gains = densities.T - np.where(adapts, _PRICE, 0)[None]
    logs = jnp.zeros((len(shares), len(share)), densities.dtype)
    logs = logs.at[0].set(jnp.sum(gains, 0)).at[1 + index].set(gains)
    fresh = shares * jnp.exp(logs - jnp.max(logs, 1, keepdims=True))[:, None]
    hazards, share = jnp.array(_HAZARDS, shares.dtype)[None, :, None], jnp.array(share, shares.dtype)[None, None]
    moved = hazards * share * jnp.sum(fresh, 2, keepdims=True)
    fresh = (1 - hazards) * fresh + moved
    return jnp.maximum(fresh / jnp.sum(fresh, (1, 2), keepdims=True), _LEAST)


def learned(
    groups: tuple[Group, ...], mixture: Mixture, phis: Phis, y: Array, index: Array, steps: Array, rewards: Rewards,
    good: Array,
) -> tuple[Mixture, Array]:  # fmt: skip
    """The mixture after b rows in order, unless not `good`; and the errors of its predictions (b o,).

    The rows are responses y (b, o) number `index` (o,), counted from the first reward, in steps (b,).
    """
    good = good & jnp.all(jnp.stack([jnp.all(jnp.isfinite(phi)) for phi in phis]))

    def row(mixture, at):
        phis, y, step = at
        fresh, told = [], []
        for group, own, phi in zip(groups, mixture.members, phis, strict=True):
            learn = jax.vmap(conjugate.learned, (0, 0, 0, None, 0, None))
            offsets, mu = _centers(group, own, mixture.level, rewards.location)
            own, at = learn(own, phi, y[None] - offsets[:, None], index, mu, good)
            fresh.append(conjugate.forgotten(own, [kind.half_life for kind in group.kinds], step, good))
            told.append(at)
        errors, densities = jax.tree.map(lambda *parts: jnp.concatenate(parts), *told)
        error = jnp.sum(mixture.weights[:, index].astype(errors.dtype) * errors, 0)
        shares = weighed(groups, mixture.shares, densities, index)
        rate = jnp.maximum(1 - _LEVEL, 1 / step.astype(float))
        level = mixture.level + rate * (jnp.mean(y) - mixture.level)
        moved = jax.tree.map(lambda new, old: jnp.where(good, new, old), (shares, level), mixture[1:])
        return Mixture(tuple(fresh), *moved), error

    at = phis, y, steps
    mixture, errors = jax.lax.scan(row, alike(mixture, at), at)
    return mixture, errors.ravel()


def posterior(
    groups: tuple[Group, ...], mixture: Mixture, phis: Callable[[PyTree], Phis], rewards: Rewards
) -> Posterior:
    """Of the b n responses to an input, b or n being 1; phis are the features of its b rows."""
    location = rewards.location

    def answers(phis):
        """Predictions of the members (members, b n), in order, of rewards from the origin."""
        each = []
        for group, members, phi in zip(groups, mixture.members, phis, strict=True):
            offsets, mu = _centers(group, members, mixture.level, location)
            at = jax.vmap(_answers, (0, 1, 0))(members, phi, mu)
            each.append(at._replace(mean=at.mean + offsets[:, None, None]))
        return jax.tree.map(lambda *rows: jnp.concatenate(rows).reshape(len(mixture.weights), -1), *each)

    def mean_of(values, weights=mixture.weights):
        return jnp.sum(weights * values, 0)

    def mixed(at, weights):
        mean = mean_of(at.mean, weights)
        variance = mean_of(at.variance + (at.mean - mean[None]) ** 2, weights)
        return Marginals(mean + rewards.origin, variance, mean_of(at.noise, weights))

    def parts(x):
        """Of the members for a world that stays, and of the others: mixed, rare doubts would count in each decision."""
        adapts = _shares(groups)[0]
        own = jnp.stack([jnp.where(kept[:, None], mixture.weights, 0) for kept in (~adapts, adapts) if kept.any()])
        totals = jnp.maximum(jnp.sum(own, 1), jnp.finfo(own.dtype).tiny)
        each = jax.vmap(mixed, (None, 0))(answers(phis(x)), own / totals[:, None])
        return jnp.broadcast_to(totals, each.mean.shape), each

    def responses(weights, phis):
        """(members, b n) expected rewards of weights (K, n, F) of each group."""
        each = []
        for group, members, own, phi in zip(groups, mixture.members, weights, phis, strict=True):
            offsets, _ = _centers(group, members, mixture.level, location)
            at = jax.vmap(_responses, (0, 0, 1, None))(members, own, phi, location)
            each.append(at.reshape(len(offsets), -1) + offsets[:, None])
        return rewards.origin + jnp.concatenate(each)

    def mean(x):
        """In O(n F); variances take O(n F^2)."""
        weights = []
        for group, members in zip(groups, mixture.members, strict=True):
            _, mu = _centers(group, members, mixture.level, location)
            weights.append(jax.vmap(lambda member, mu: member.expected(mu))(members, mu))
        return mean_of(responses(weights, phis(x)))

    def draw(key):
        chosen, drawn = jax.random.split(key)
        gumbel = jax.random.gumbel(chosen, (len(mixture.weights), 1))  # one draw: equal weights, equal members
        member = jnp.argmax(jnp.log(mixture.weights) + gumbel, 0)[None]
        sizes = [members.weights.shape[2] for members in mixture.members]
        normal = jax.random.normal(drawn, (mixture.members[0].weights.shape[1], max(sizes)))
        weights = []
        for group, members, size in zip(groups, mixture.members, sizes, strict=True):
            _, mu = _centers(group, members, mixture.level, location)
            drawn_of = jax.vmap(lambda each, own, mu: each.drawn(own, mu), (0, None, 0))
            weights.append(drawn_of(members, normal[:, :size], mu))
        return lambda x: _taken(responses(weights, phis(x)), member)

    def joint(x):
        seen = phis(x)
        at = answers(seen)
        mean = mean_of(at.mean)
        errors = (at.mean - mean[None]) * jnp.sqrt(mixture.weights)
        if len(seen[0]) == 1:
            own = jnp.diag(mean_of(at.variance))
        else:  # the weights of all rows are the same
            given = zip(mixture.members, seen, strict=True)
            each = [jax.vmap(lambda member, phi: member.covariance(phi), (0, 1))(*pair) for pair in given]
            own = jnp.tensordot(mixture.weights[:, 0], jnp.concatenate(each), 1)
        return Predictive(mean + rewards.origin, errors.mT @ errors + own, jnp.diag(mean_of(at.noise)))

    return Posterior(mean, joint, draw, lambda x: mixed(answers(phis(x)), mixture.weights), parts)


def recomputed(
    groups: tuple[Group, ...], mixture: Mixture, y: Array, observed: Array, blocks: Array,
    block: Callable[[Array], tuple[Phis, Array, Array, Array]],
) -> Mixture:  # fmt: skip
    """The mixture whose renewed members are those of rows; the noise stays.

    Logarithms take their scale from y (c, n), where `observed`. `block` (number) of `blocks` gives features, responses
    (b, n), how many observations each stands for (b, n), and the steps since (b,).
    """
    chosen = [place for place, group in enumerate(groups) if group.renewed]
    members = [jax.vmap(lambda each: each.rescaled(y, observed))(mixture.members[place]) for place in chosen]

    def add(number, sums):
        phis, y, counts, ages = block(number)

        def one(member, sums, phi, half_life):
            return sums.added(phi, member.target(y), counts * 0.5 ** (ages / half_life)[:, None])

        fresh = []
        for place, own, before in zip(chosen, members, sums, strict=True):
            half_lives = jnp.array([kind.half_life for kind in groups[place].kinds])
            fresh.append(jax.vmap(one, (0, 0, 1, 0))(own, before, phis[place], half_lives))
        return fresh

    none = [jax.vmap(conjugate.no_rows)(own.weights) for own in members]
    sums = jax.lax.fori_loop(0, blocks, add, alike(none, members, y))
    fresh = list(mixture.members)
    for place, *pair in zip(chosen, members, sums, strict=True):
        fresh[place] = jax.lax.map(lambda each: each[0].recomputed(each[1]), tuple(pair))
    return mixture._replace(members=tuple(fresh))


def _shares(groups: tuple[Group, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(members,) Whether each is for a world that changes; share_k."""
    share = np.exp([group.log_weight for group in groups for _ in group.kinds])
    return np.array([kind.adapts for group in groups for kind in group.kinds]), share / share.sum()


def _centers(group: Group, members: Any, level: Array, location: Array) -> tuple[Array, Array]:
    """Of each member, what its rewards are counted from, and its prior means (K, n, F)."""
    has = jnp.array([kind.level for kind in group.kinds])
    mu = jax.vmap(conjugate.usual_mean)(members.weights, jnp.where(has, 0, location).astype(location.dtype))
    lasting = np.array([group.kinds.index(kind._replace(half_life=math.inf)) for kind in group.kinds])
    known = jax.vmap(lambda member, mu: member.expected(mu))(members, mu)[lasting]
    own = (lasting == np.arange(len(lasting)))[:, None, None]
    return jnp.where(has, level, 0), jnp.where(own, mu, known)


def _answers(member: Any, phi: Array, mu: Array) -> Marginals:
    """Predictions (b, n) of one member."""
    return jax.vmap(lambda phi: member.answer(phi, mu))(phi)


def _responses(member: Any, weights: Array, phi: Array, location: Array) -> Array:
    """(b, n) expected rewards of weights (n, F) at features (b, F)."""
    return jax.vmap(lambda phi: member.responses(weights, phi, location))(phi)


def _taken(values: Array, member: Array) -> Array:
    """(b n,) of values (members, b n) those of members (1, n), b or n being 1."""
    return jnp.take_along_axis(values, jnp.broadcast_to(member, (1, values.shape[1])), 0)[0]
