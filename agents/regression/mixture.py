r"""A mixture of regressions on several kinds of features, weighted by their past predictive density.

Weights. With p_k the predictive density of a reward under member k, before it is learned,

    log weight_k <- (1 - 1 / horizon) log weight_k + log p_k(reward) - price_k        sum_k weight_k = 1

Mean and noise of a reward are weighted means of the members', the variance that of their variances plus that of their
means.

Change. Members that forget have no weight before a change was found. With s the squared error of the mixture in the
variance of all rewards, at most 9, bars for means over the last 200 steps and e for their standard error, it is found
when

    s_bar - s_bar* > max(0.2, 6 e, 12 e*)

where stars are those of the step t > 400 with the smallest s_bar. From then on their price is 0.2 nats a step, that of
the others 0, and their log weight at least that of the best less 6.

Source: Raftery, Karny, Ettler, "Online prediction under model uncertainty via dynamic model averaging", 2010; price and
detection are ours.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from seqdec import linalg
from seqdec.agents.regression import conjugate
from seqdec.agents.regression.units import Rewards
from seqdec.core import Array, Marginals, Posterior, Predictive, PyTree
from seqdec.runtime import alike

_NONE, _PRICE, _LEAST = -100.0, 0.2, -6.0
"""Of a member that forgets: log weight before a change; price in nats a step; least log weight below the best."""
_RISE, _SURE, _SURE_BEFORE, _RECENT, _LARGEST = 0.2, 6.0, 12.0, 200, 9.0
"""Of the squared error: smallest rise; standard errors now and before; steps of its mean; most of a step."""

Phis = tuple[Array, ...]
"""(b, K, F) for the K members of each group."""


class Kind(NamedTuple):
    """A member within its group."""

    scale: float
    """r"""
    half_life: float = math.inf
    """in steps"""

    @property
    def forgets(self) -> bool:
        """Whether the half-life is finite."""
        return self.half_life < math.inf


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


class Change(NamedTuple):
    """Change of the world, by squared errors of predictions."""

    mean: Array
    """() s_bar"""
    square: Array
    """() recent mean of s^2"""
    least: Array
    """() smallest s_bar, s_bar*"""
    error: Array
    """() e*"""
    found: Array
    """() bool"""


class Mixture(NamedTuple):
    """Beliefs and weights of the members."""

    members: tuple[Any, ...]
    """beliefs (K, ...) of each group"""
    log_weights: Array
    """(members,), the largest is 0"""
    change: Change

    @property
    def weights(self) -> Array:
        """(members,), sum 1."""
        return jax.nn.softmax(self.log_weights)


def prior(groups: tuple[Group, ...], responses: int, phis: Phis) -> Mixture:
    """Before any observation, for features of the shapes of `phis`."""
    members = tuple(
        jax.tree.map(lambda leaf, count=phi.shape[1]: jnp.stack([leaf] * count), group.prior(responses, phi.shape[2]))
        for group, phi in zip(groups, phis, strict=True)
    )
    log_weights = [_NONE if kind.forgets else group.log_weight for group in groups for kind in group.kinds]
    return Mixture(members, jnp.array(log_weights), unchanged())


def unchanged() -> Change:
    """Before any observation."""
    return Change(jnp.zeros(()), jnp.zeros(()), jnp.full((), _LARGEST, float), jnp.zeros(()), jnp.bool_(False))


def watched(change: Change, square: Array, step: Array) -> Change:
    """After a squared error () in the variance of the rewards, in step `step` () int32."""
    s = jnp.minimum(square, _LARGEST).astype(change.mean.dtype)
    rate = 1 / jnp.minimum(step, _RECENT).astype(s.dtype)
    mean, second = change.mean + rate * (s - change.mean), change.square + rate * (s**2 - change.square)
    error = jnp.sqrt(jnp.maximum(second - mean**2, 0) / (2 * _RECENT))
    lower = (step > 2 * _RECENT) & (mean < change.least)
    least, before = jnp.where(lower, mean, change.least), jnp.where(lower, error, change.error)
    rise = jnp.maximum(_RISE, jnp.maximum(_SURE * error, _SURE_BEFORE * before))
    return Change(mean, second, least, before, change.found | (mean - least > rise))


def learned(
    groups: tuple[Group, ...], mixture: Mixture, phis: Phis, y: Array, index: Array, steps: Array, rewards: Rewards,
    horizon: float, good: Array,
) -> tuple[Mixture, Array]:  # fmt: skip
    """The mixture after b rows in order, unless not `good`; and the errors of its predictions (b o,).

    The rows are responses y (b, o) number `index` (o,), counted from the first reward, in steps (b,).
    """
    good = good & jnp.all(jnp.stack([jnp.all(jnp.isfinite(phi)) for phi in phis]))

    def row(members, at):
        phis, y, step = at
        fresh, told = [], []
        for group, own, phi in zip(groups, members, phis, strict=True):
            learn = jax.vmap(conjugate.learned, (0, 0, None, None, None, None))
            own, at = learn(own, phi, y, index, rewards.location, good)
            for place, kind in enumerate(group.kinds):
                if kind.forgets:
                    less = _member(own, place).forgotten(kind.half_life, step, good)
                    own = jax.tree.map(lambda leaf, new, place=place: leaf.at[place].set(new), own, less)
            fresh.append(own)
            told.append(at)
        return tuple(fresh), jax.tree.map(lambda *parts: jnp.concatenate(parts), *told)

    at = phis, y, steps
    members, (errors, densities) = jax.lax.scan(row, alike(mixture.members, at), at)  # each (b, members, o)
    error = jnp.einsum("k,bko->bo", mixture.weights, errors).ravel()
    square = jnp.mean(error**2) / jnp.maximum(rewards.variance, jnp.finfo(error.dtype).tiny ** 0.5)
    change = watched(mixture.change, square, steps[-1])
    forgets = jnp.array([kind.forgets for group in groups for kind in group.kinds])
    fresh = (1 - 1 / horizon) * mixture.log_weights + jnp.sum(densities, (0, 2)) - jnp.where(forgets, _PRICE, 0.0)
    fresh = jnp.where(forgets & ~change.found, _NONE, fresh)
    fresh = fresh - jnp.max(fresh)
    fresh = jnp.where(forgets, jnp.maximum(fresh, jnp.where(change.found, _LEAST, _NONE)), fresh)
    before = mixture.log_weights, mixture.change
    log_weights, change = jax.tree.map(lambda new, old: jnp.where(good, new, old), (fresh, change), before)
    return Mixture(members, log_weights, change), error


def posterior(
    groups: tuple[Group, ...], mixture: Mixture, phis: Callable[[PyTree], Phis], rewards: Rewards
) -> Posterior:
    """Of the b n responses to an input, b or n being 1; phis are the features of its b rows."""
    location = rewards.location

    def answers(phis):
        """Predictions of the members (members, b n), in order."""
        each = []
        for group, members, phi in zip(groups, mixture.members, phis, strict=True):
            for place, kind in enumerate(group.kinds):
                ask, given = functools.partial(_answers, place), (members, phi, location)
                if kind.forgets:  # without weight, so without need of predictions, before a change was found
                    none = jax.tree.map(jnp.zeros_like, each[-1])
                    each.append(linalg.cond_any(mixture.change.found, ask, none, *given))
                else:
                    each.append(ask(None, *given))
        found = jax.tree.map(lambda *rows: jnp.stack(rows).reshape(len(rows), -1), *each)
        return found._replace(mean=found.mean + rewards.origin)

    def moments(at):
        mean = mixture.weights @ at.mean
        variance = mixture.weights @ (at.variance + (at.mean - mean[None]) ** 2)
        return Marginals(mean, variance, mixture.weights @ at.noise)

    def responses(weights, phis):
        """(members, b n) expected rewards of weights (K, n, F) of each group."""
        each = [
            jax.vmap(_responses, (0, 0, 1, None))(*given, location).reshape(given[2].shape[1], -1)
            for given in zip(mixture.members, weights, phis, strict=True)
        ]
        return rewards.origin + jnp.concatenate(each)

    def mean(x):
        """In O(n F); variances take O(n F^2)."""
        weights = [jax.vmap(lambda member: member.expected(location))(members) for members in mixture.members]
        return mixture.weights @ responses(weights, phis(x))

    def draw(key):
        chosen, drawn = jax.random.split(key)
        member = jax.random.categorical(chosen, mixture.log_weights)
        sizes = [members.weights.shape[2] for members in mixture.members]
        normal = jax.random.normal(drawn, (mixture.members[0].weights.shape[1], max(sizes)))
        weights = [
            jax.vmap(lambda each, own: each.drawn(own, location), (0, None))(members, normal[:, :size])
            for members, size in zip(mixture.members, sizes, strict=True)
        ]
        return lambda x: responses(weights, phis(x))[member]

    def joint(x):
        seen = phis(x)
        at = answers(seen)
        mixed = moments(at)
        errors = (at.mean - mixed.mean[None]) * jnp.sqrt(mixture.weights)[:, None]
        if len(seen[0]) == 1:
            own = jnp.diag(mixture.weights @ at.variance)
        else:  # the weights of all rows are the same
            given = zip(mixture.members, seen, strict=True)
            each = [jax.vmap(lambda member, phi: member.covariance(phi), (0, 1))(*pair) for pair in given]
            own = jnp.tensordot(mixture.weights, jnp.concatenate(each), 1)
        return Predictive(mixed.mean, errors.mT @ errors + own, jnp.diag(mixed.noise))

    return Posterior(mean, joint, draw, lambda x: moments(answers(phis(x))))


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


def _member(members: Any, place: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[place], members)


def _answers(place: int, _, members: Any, phi: Array, location: Array) -> Marginals:
    """Predictions (b, n) of one member."""
    member = _member(members, place)
    return jax.vmap(lambda phi: member.answer(phi[place], location))(phi)


def _responses(member: Any, weights: Array, phi: Array, location: Array) -> Array:
    """(b, n) expected rewards of weights (n, F) at features (b, F)."""
    return jax.vmap(lambda phi: member.responses(weights, phi, location))(phi)
