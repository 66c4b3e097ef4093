r"""Regressions with different priors and half-lives, weighted by their past predictive density.

A kind with scale r and half-life H is a regression (`seqdec.agents.regression.nig`) on the features (r z, 3), whose
observations count half as much after H steps. A large r is for rewards that are nearly free of noise, a finite H for a
world that changes.

Weights. With p_k the predictive density of a reward under member k, before it is learned,

    log weight_k <- (1 - 1 / horizon) log weight_k + log p_k(reward) - price_k        sum_k weight_k = 1

so that old predictions are forgotten: the member that is better now need not be the one that was better at
first. The belief is the mixture of the members: mean and noise of an action's reward are weighted means of theirs, and
the variance that of their variances plus that of their means.

Change. A member that forgets explores for ever, and foretells the rewards of a model that does not fit somewhat better
where nothing changes, so that it has to be worth it. It has no weight before a change was found: with s the squared
error of the mixture in the variance of all rewards, at most 9, bars for means over the last 200 steps and e for the
standard error of such a mean,

    s_bar - s_bar* > max(0.2, 6 e, 12 e*)

where stars are those of the step t > 400 at which s_bar was smallest. From then on the price is 0.2 nats a step, that
of the others 0, and the log weight is kept above that of the best less 6, from where it returns in a few steps.

Source: Raftery, Karny, Ettler, "Online prediction under model uncertainty via dynamic model averaging", 2010; price and
detection are ours.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from seqdec import linalg
from seqdec.agents._neural.experience import Experience
from seqdec.agents.regression import diagonal, logs, nig
from seqdec.agents.regression.nig import Answer
from seqdec.core import Array, Key

_PRICE = 0.2
"""Nats a step that a member which forgets has to foretell better by."""
_LEAST = -6.0
"""Its log weight at least, where the largest is 0."""
_NONE = -100.0
"""Its log weight before a change was found."""
_RISE, _SURE, _SURE_BEFORE, _RECENT, _LARGEST = 0.2, 6.0, 12.0, 200, 9.0
"""Of the squared error: smallest rise, and in standard errors now and before; steps of its mean; the most of a step."""


class Kind(NamedTuple):
    """How a member differs."""

    scale: float = 1.0
    """r"""
    half_life: float | None = None
    """H, in steps; None is infinity"""
    log_weight: float = 0.0
    """before any observation"""


class Form(NamedTuple):
    """A regression as functions of these names, those of `seqdec.agents.regression.nig`."""

    prior: Callable[[int, int], Any]
    answer: Callable[[Any, Array, Array], Answer]
    expected: Callable[[Any, Array], Array]
    drawn: Callable[[Key, Any, Array], Array]
    learn: Callable[[Any, Array, Experience, Array, bool, Array], tuple[Any, Array]]
    responses: Callable[[Any, Array, Array, Array], Array]
    root: Callable[[Any, Array], Array]
    forgotten: Callable[[Any, float, Array, Array], Any] | None = None
    from_rows: "FromRows | None" = None


class FromRows(NamedTuple):
    """How a belief is recomputed from rows of a memory."""

    rescaled: Callable[[Any, Array, Array], Any]
    no_rows: Callable[[Any], Any]
    added: Callable[[Any, Any, Array, Array, Array, Array], Any]
    recomputed: Callable[[Any, Any], Any]


FULL = Form(
    nig.prior, nig.answer, nig.expected, nig.drawn, nig.learn, nig.responses, nig.root, nig.forgotten,
    FromRows(
        lambda belief, y, observed: belief, nig.no_rows,
        lambda moments, belief, *rows: nig.added(moments, *rows), nig.recomputed,
    ),
)  # fmt: skip
"""With a covariance of all features."""
DIAGONAL = Form(
    diagonal.prior, diagonal.answer, diagonal.expected, diagonal.drawn, diagonal.learn, nig.responses, diagonal.root,
    diagonal.forgotten,
)  # fmt: skip
"""With variances only (`seqdec.agents.regression.diagonal`), for many features."""
LOGS = Form(
    logs.prior, logs.answer, logs.expected, logs.drawn, logs.learn, logs.responses, logs.root,
    from_rows=FromRows(logs.rescaled, logs.no_rows, logs.added, logs.recomputed),
)  # fmt: skip
"""Of the logarithms of rewards (`seqdec.agents.regression.logs`), which remembers all."""


class Change(NamedTuple):
    """Whether the world changes, by the squared errors of its predictions."""

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


def unchanged() -> Change:
    """Before any observation."""
    return Change(jnp.zeros(()), jnp.zeros(()), jnp.full((), _LARGEST, float), jnp.zeros(()), jnp.bool_(False))


def watched(change: Change, square: Array, steps: Array) -> Change:
    """What is known after a squared error () in the variance of the rewards, in step number `steps` () int32."""
    s = jnp.minimum(square, _LARGEST).astype(change.mean.dtype)
    rate = 1 / jnp.minimum(steps, _RECENT).astype(s.dtype)
    mean, second = change.mean + rate * (s - change.mean), change.square + rate * (s**2 - change.square)
    error = jnp.sqrt(jnp.maximum(second - mean**2, 0) / (2 * _RECENT))
    lower = (steps > 2 * _RECENT) & (mean < change.least)
    least, before = jnp.where(lower, mean, change.least), jnp.where(lower, error, change.error)
    rise = jnp.maximum(_RISE, jnp.maximum(_SURE * error, _SURE_BEFORE * before))
    return Change(mean, second, least, before, change.found | (mean - least > rise))


def prior(form: Form, kinds: tuple[Kind, ...], responses: int, size: int) -> Any:
    """Members with `size` features, before any observation: with a leading axis (K,)."""
    return jax.tree.map(lambda leaf: jnp.stack([leaf] * len(kinds)), form.prior(responses, size))


def features(kinds: tuple[Kind, ...], z: Array) -> Array:
    """(K, F) features of the members, from what they share (F - 1,)."""
    scaled = jnp.array([kind.scale for kind in kinds], z.dtype)[:, None] * jnp.ravel(z)[None]
    return jnp.concatenate([scaled, jnp.full((len(kinds), 1), nig.CONSTANT, z.dtype)], 1)


def answers(form: Form, kinds: tuple[Kind, ...], members: Any, phis: Array, location: Array, found: Array) -> Answer:
    """The members' predictions, (K, n) each; zeros of those that forget, which have no weight before a change is found.

    One member after the other: under `jax.vmap` a product for all of them is three times as slow on a CPU.

    Args:
        form: of the members.
        kinds: of the members.
        members: (K, ...).
        phis: (K, F).
        location: m.
        found: () bool, whether a change was found.
    """

    def one(place, members, phis, location):
        return form.answer(jax.tree.map(lambda leaf: leaf[place], members), phis[place], location)

    def told(place, kind):
        if kind.half_life is None:
            return one(place, members, phis, location)
        shapes = jax.eval_shape(functools.partial(one, place), members, phis, location)
        none = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return linalg.cond_any(found, lambda _, *given: one(place, *given), none, members, phis, location)

    return jax.tree.map(lambda *rows: jnp.stack(rows), *(told(*each) for each in enumerate(kinds)))


def expected(form: Form, members: Any, location: Array) -> Array:
    """(K, n, F) weights, of each member's belief in the mean."""
    return jax.vmap(form.expected, (0, None))(members, location)


def drawn(form: Form, key: Key, members: Any, location: Array) -> Array:
    """(K, n, F) weights, drawn from each member's belief."""
    keys = jax.random.split(key, len(members.weights))
    return jax.vmap(form.drawn, (0, 0, None))(keys, members, location)


def responses(form: Form, members: Any, weights: Array, phis: Array, location: Array) -> Array:
    """(K, n) expected rewards with weights (K, n, F)."""
    return jax.vmap(form.responses, (0, 0, 0, None))(members, weights, phis, location)


def roots(form: Form, members: Any, phis: Array) -> Array:
    """(K, b, C) R of which R R^T is the covariance of the first response at phis (b, K, F), in the noise variance."""
    return jax.vmap(form.root, (0, 1))(members, phis)


def learn(
    form: Form, members: Any, phis: Array, row: Experience, location: Array, single: bool, accept: Array
) -> tuple[Any, Array]:
    """The members after one step, as `seqdec.agents.regression.nig.learn`, and the log densities (K,)."""
    return jax.vmap(lambda belief, phi: form.learn(belief, phi, row, location, single, accept))(members, phis)


def forgotten(form: Form, kinds: tuple[Kind, ...], members: Any, steps: Array, accept: Array) -> Any:
    """The members after step number `steps` () int32, with what those that forget have forgotten."""
    for place, kind in enumerate(kinds):
        if kind.half_life is not None:
            assert form.forgotten is not None
            own = jax.tree.map(lambda leaf, at=place: leaf[at], members)
            own = form.forgotten(own, kind.half_life, steps, accept)
            members = jax.tree.map(lambda leaf, new, at=place: leaf.at[at].set(new), members, own)
    return members


def begun(form: Form, members: Any, rows: Experience, present: Array) -> tuple[Any, Any]:
    """The members in the scale of rows (b, ...) that are present (b,) bool, and sums over no rows."""
    assert form.from_rows is not None
    observed = rows.observed & present[:, None]
    members = jax.vmap(form.from_rows.rescaled, (0, None, None))(members, rows.y, observed)
    return members, jax.vmap(form.from_rows.no_rows)(members)


def added(
    form: Form,
    kinds: tuple[Kind, ...],
    sums: Any,
    members: Any,
    phis: Array,
    rows: Experience,
    counts: Array,
    ages: Array,
) -> Any:
    """The sums with more rows (b, ...) of features phis (b, K, F), each for `counts` (b,) as many and so old."""
    assert form.from_rows is not None
    half_lives = jnp.array([kind.half_life or jnp.inf for kind in kinds], counts.dtype)
    weights = counts[None] * 0.5 ** (ages[None] / half_lives[:, None])
    add = jax.vmap(form.from_rows.added, (0, 0, 1, None, None, 0))
    return add(sums, members, phis, rows.y, rows.observed, weights)


def recomputed(form: Form, members: Any, sums: Any) -> Any:
    """The members from sums over rows."""
    recompute = form.from_rows.recomputed  # pyright: ignore[reportOptionalMemberAccess]
    return jax.lax.map(lambda each: recompute(*each), (members, sums))


def log_weights(kinds: tuple[Kind, ...]) -> Array:
    """(K,) of all members before any observation."""
    return jnp.array([kind.log_weight if kind.half_life is None else _NONE for kind in kinds])


def reweighted(kinds: tuple[Kind, ...], log_weights: Array, densities: Array, horizon: float, found: Array) -> Array:
    """The log weights (K,) of all members after a step, by whether a change was found; the largest is 0."""
    forgets = jnp.array([kind.half_life is not None for kind in kinds])
    fresh = (1 - 1 / horizon) * log_weights + densities - jnp.where(forgets, _PRICE, 0.0)
    fresh = jnp.where(forgets & ~found, _NONE, fresh)
    fresh = fresh - jnp.max(fresh)
    return jnp.where(forgets, jnp.maximum(fresh, jnp.where(found, _LEAST, _NONE)), fresh)
