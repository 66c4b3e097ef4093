"""Bandits with known expected rewards: Bernoulli and Gaussian arms, linear arms, the wheel.

Contexts and allowed arms are independent between steps. Regret is exact: the best allowed expected reward minus that of
the arm played. An episode ends after `horizon` steps; the next has the same arms. A step costs O(arms * features).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete

from seqdec.boundary import checks
from seqdec.boundary.checks import keyed
from seqdec.core import Array, Environment, Key, Masked, PyTree, TimeStep
from seqdec.envs.outcomes import in_range, reward_and_regret


class Arms(Protocol):
    """Parameters of a bandit's arms."""

    def means(self, context: Array) -> Array:
        """(n,) expected rewards."""
        ...

    def reward(self, key: Key, context: Array, arm: Array) -> Array:
        """() random reward of `arm`."""
        ...

    def drift(self, key: Key, std: Array) -> "Arms":
        """The arms after a random step of size `std`."""
        ...


class BernoulliArms(NamedTuple):
    """Arms of `bernoulli`."""

    probabilities: Array
    """(n,)"""

    def means(self, context: Array) -> Array:
        return self.probabilities

    def reward(self, key: Key, context: Array, arm: Array) -> Array:
        return jax.random.bernoulli(key, self.probabilities[arm]).astype(jnp.float32)

    def drift(self, key: Key, std: Array) -> "BernoulliArms":
        """Gaussian steps, clipped to [0, 1]."""
        return BernoulliArms(jnp.clip(_step(key, self.probabilities, std), 0.0, 1.0))


class GaussianArms(NamedTuple):
    """Arms of `gaussian`."""

    mean: Array
    """(n,)"""
    std: Array
    """(n,)"""

    def means(self, context: Array) -> Array:
        return self.mean

    def reward(self, key: Key, context: Array, arm: Array) -> Array:
        return self.mean[arm] + self.std[arm] * jax.random.normal(key, dtype=jnp.float32)

    def drift(self, key: Key, std: Array) -> "GaussianArms":
        return self._replace(mean=_step(key, self.mean, std))


class LinearArms(NamedTuple):
    """Arms of `linear`."""

    weights: Array
    """(n, features)"""
    noise_std: Array
    """()"""

    def means(self, context: Array) -> Array:
        return self.weights @ context

    def reward(self, key: Key, context: Array, arm: Array) -> Array:
        return self.means(context)[arm] + self.noise_std * jax.random.normal(key, dtype=jnp.float32)

    def drift(self, key: Key, std: Array) -> "LinearArms":
        return self._replace(weights=_step(key, self.weights, std))


class Wheel(NamedTuple):
    """Arms of `wheel`."""

    mean: Array
    """(5,) expected rewards off the rim; the last arm has no quadrant."""
    std: Array
    """()"""
    large_mean: Array
    """() expected reward on the rim."""
    large_std: Array
    """()"""
    delta: Array
    """() inner radius of the rim."""

    def wins(self, context: Array) -> Array:
        """(5,) bool: arm with the large reward, if any."""
        quadrant = jnp.where(context[0] > 0, 0, 2) + jnp.where(context[1] > 0, 0, 1)
        return (jnp.arange(5) == quadrant) & (jnp.linalg.norm(context) >= self.delta)

    def means(self, context: Array) -> Array:
        return jnp.where(self.wins(context), self.large_mean, self.mean)

    def reward(self, key: Key, context: Array, arm: Array) -> Array:
        std = jnp.where(self.wins(context), self.large_std, self.std)
        return self.means(context)[arm] + std[arm] * jax.random.normal(key, dtype=jnp.float32)

    def drift(self, key: Key, std: Array) -> "Wheel":
        """Gaussian steps of the means off the rim."""
        return self._replace(mean=_step(key, self.mean, std))


class State(NamedTuple):
    """Context and allowed arms of a step."""

    context: Array
    mask: Array | None
    """(n,) bool allowed arms; None: all."""
    step: Array
    """() int32 step of the episode."""


def bernoulli(
    probabilities: Sequence[float] | Array = (0.2, 0.35, 0.5, 0.65, 0.8),
    *,
    availability: float | None = None,
    horizon: int = 1000,
) -> Environment:
    """Arms that pay 1 with probability `probabilities` (n,), else 0. The observation is the constant (1,).

    With `availability`, each arm is allowed with that probability in each step, and one random arm always (sleeping
    arms); observations are then `Masked`. Raises ValueError for numbers out of range.
    """
    params = BernoulliArms(checks.array("probabilities", probabilities, 1, 0.0, 1.0))
    return _bandit("bernoulli", params, _no_context, 1, params.probabilities.shape[0], availability, horizon)


def gaussian(
    means: Sequence[float] | Array = (0.0, 0.25, 0.5, 0.75, 1.0),
    *,
    std: float | Sequence[float] | Array = 1.0,
    availability: float | None = None,
    horizon: int = 1000,
) -> Environment:
    """Arms that pay N(means, std^2); `means` (n,), `std` one number or (n,). The observation is the constant (1,).

    `availability` as in `bernoulli`. Raises ValueError for a negative or misshapen `std` and numbers not finite.
    """
    mean = checks.array("means", means, 1)
    given = checks.as_array("std", std)
    each = checks.array("std", std, given.ndim, 0.0)
    if each.shape not in ((), mean.shape):
        raise ValueError(f"std must be one number or have the shape {mean.shape} of means; got shape {each.shape}")
    params = GaussianArms(mean, jnp.broadcast_to(each, mean.shape))
    return _bandit("gaussian", params, _no_context, 1, mean.shape[0], availability, horizon)


def linear(
    weights: Sequence[Sequence[float]] | Array | None = None,
    *,
    noise_std: float = 0.1,
    availability: float | None = None,
    horizon: int = 1000,
) -> Environment:
    """Arms that pay weights[arm] . context + N(0, noise_std^2); contexts uniform on the unit sphere.

    `weights` (n, features); None: five unit vectors spread evenly over the plane. `availability` as in `bernoulli`.
    Raises ValueError for misshapen weights, negative noise and numbers not finite.
    """
    angles = 2 * np.pi * np.arange(5) / 5
    spread = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    weights = checks.array("weights", spread if weights is None else weights, 2)
    params = LinearArms(weights, checks.array("noise_std", noise_std, 0, 0.0))
    num_arms, num_features = weights.shape
    return _bandit("linear", params, _sphere(num_features), num_features, num_arms, availability, horizon)


def wheel(
    delta: float = 0.95,
    *,
    means: Sequence[float] | Array = (1.0, 1.0, 1.0, 1.0, 1.2),
    std: float = 0.01,
    large_mean: float = 50.0,
    large_std: float = 0.01,
    horizon: int = 1000,
) -> Environment:
    """The wheel bandit: contexts uniform in the unit disc, five arms, large rewards in a rare region only.

    Arm a pays N(means[a], std^2), but N(large_mean, large_std^2) in its quadrant where the context's norm is at least
    `delta`. Arms 0 to 3 own the quadrants (+, +), (+, -), (-, +), (-, -); an axis belongs to the minus side. Raises
    ValueError for numbers out of range.

    Source: Riquelme, Tucker, Snoek, Deep Bayesian Bandits Showdown, ICLR 2018, with its constants as defaults.
    """
    params = Wheel(
        checks.array("means", means, 1),
        checks.array("std", std, 0, 0.0),
        checks.array("large_mean", large_mean, 0),
        checks.array("large_std", large_std, 0, 0.0),
        checks.array("delta", delta, 0, 0.0, 1.0),
    )
    if params.mean.shape != (5,):
        raise ValueError(f"means must hold the five arms' expected rewards; got shape {params.mean.shape}")
    return _bandit("wheel", params, _disc, 2, 5, None, horizon)


def _bandit(
    name: str,
    params: Arms,
    draw_context: Callable[[Key], Array],
    num_features: int,
    num_arms: int,
    availability: float | None,
    horizon: int,
) -> Environment:
    horizon = checks.count("horizon", horizon, 1)
    if availability is not None:
        checks.array("availability", availability, 0, 0.0, 1.0)

    def begin(key: Key, step: Array) -> tuple[State, PyTree]:
        context_key, mask_key = jax.random.split(key)
        context = draw_context(context_key)
        if availability is None:
            return State(context, None, step), context
        mask = _draw_mask(mask_key, num_arms, availability)
        return State(context, mask, step), Masked(context, mask)

    @keyed
    def reset(key: Key, params: Arms) -> tuple[State, PyTree]:
        return begin(key, jnp.int32(0))

    @keyed
    def step(key: Key, state: State, action: Array, params: Arms) -> tuple[State, TimeStep]:
        reward_key, next_key = jax.random.split(key)
        paid = params.reward(reward_key, state.context, in_range(action, num_arms))
        reward, regret = reward_and_regret(action, params.means(state.context), paid, state.mask)
        done = state.step + 1 >= horizon
        state, observation = begin(next_key, jnp.where(done, 0, state.step + 1))
        return state, TimeStep(observation, reward, regret, done)

    low = 0.0 if draw_context is _no_context else -1.0
    space = Box(low, 1.0, (num_features,), np.float32)
    return Environment(reset, step, params, space, Discrete(num_arms), name)


def _draw_mask(key: Key, num_arms: int, availability: float) -> Array:
    """(n,) bool: each arm with probability `availability`, a random one always."""
    some_key, one_key = jax.random.split(key)
    some = jax.random.bernoulli(some_key, availability, (num_arms,))
    return some | (jnp.arange(num_arms) == jax.random.randint(one_key, (), 0, num_arms))


def _no_context(key: Key) -> Array:
    return jnp.ones(1, jnp.float32)


def _sphere(num_features: int) -> Callable[[Key], Array]:
    """(key) -> (features,) uniform on the unit sphere."""

    def draw(key: Key) -> Array:
        direction = jax.random.normal(key, (num_features,), jnp.float32)
        # rounding must not move the point out of the observation space
        return jnp.clip(direction / jnp.linalg.norm(direction), -1.0, 1.0)

    return draw


def _disc(key: Key) -> Array:
    radius, turn = jax.random.uniform(key, (2,), jnp.float32)
    angle = 2 * jnp.pi * turn
    return jnp.sqrt(radius) * jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def _step(key: Key, values: Array, std: Array) -> Array:
    return values + std * jax.random.normal(key, values.shape, values.dtype)
