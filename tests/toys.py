"""An environment and an agent small enough to know exactly."""

from collections.abc import Callable
from concurrent.futures import wait
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete

from seqdec.bo import model as programs
from seqdec.bo import optimizer
from seqdec.bo.search import ascent
from seqdec.core import Action, Agent, Array, Environment, Filter, IsLast, Key, Masked, Network, TimeStep
from seqdec.optim.common import SteadyState

NUM_ARMS = 3


class ToyState(NamedTuple):
    totals: Array
    counts: Array


class ToyInfo(NamedTuple):
    error: Array
    rejected: Array
    counts: Array
    bound: tuple[Array, ...] | None
    nested: ToyState


def toy_env(*, full_information: bool = False, noise: float = 0.1) -> Environment:
    """Arms with known means and a context that says nothing; every seventh reward is NaN."""

    def reset(key: Key, params: Array) -> tuple[Array, Array]:
        return jnp.int32(0), jax.random.normal(key, (2,))

    def step(key: Key, state: Array, action: Array, params: Array) -> tuple[Array, TimeStep]:
        reward_key, context_key = jax.random.split(key)
        rewards = params + noise * jax.random.normal(reward_key, params.shape)
        rewards = jnp.where(state % 7 == 6, jnp.nan, rewards)
        timestep = TimeStep(
            observation=jax.random.normal(context_key, (2,)),
            reward=rewards[action],
            regret=params.max() - params[action],
            done=jnp.bool_(False),
            outcomes=rewards if full_information else None,
        )
        return state + 1, timestep

    return Environment(
        reset, step, jnp.array([0.2, 0.5, 0.9]), Box(-np.inf, np.inf, (2,), np.float32), Discrete(NUM_ARMS), "toy"
    )


def toy_agent(*, settings: dict[str, Any] | None = None) -> Agent:
    """Epsilon-greedy on arm averages, with propensities in closed form; NaN rewards are rejected."""

    def init(key: Key) -> ToyState:
        return ToyState(jax.random.uniform(key, (NUM_ARMS,)), jnp.ones(NUM_ARMS))

    def act(key: Key, state: ToyState, observation: Any) -> Action:
        mask = observation.mask if isinstance(observation, Masked) else jnp.ones(NUM_ARMS, bool)
        explore_key, arm_key = jax.random.split(key)
        greedy = jnp.argmax(jnp.where(mask, state.totals / state.counts, -jnp.inf))
        random = jax.random.categorical(arm_key, jnp.where(mask, 0.0, -jnp.inf))
        arm = jnp.where(jax.random.bernoulli(explore_key, 0.3), random, greedy)
        return Action(arm, jnp.where(arm == greedy, 0.7, 0.0) + 0.3 / mask.sum(dtype=float))

    def update(state: ToyState, observation: Any, action: Array, feedback: Array) -> tuple[ToyState, ToyInfo]:
        played = jnp.ones(NUM_ARMS) if feedback.ndim else jax.nn.one_hot(action, NUM_ARMS)
        rejected = ~jnp.isfinite(feedback).all()
        error = (feedback if feedback.ndim == 0 else feedback[action]) - (state.totals / state.counts)[action]
        new = ToyState(state.totals + played * feedback, state.counts + played)
        new = jax.tree.map(lambda old, new: jnp.where(rejected, old, new), state, new)
        return new, ToyInfo(error, rejected, new.counts, None, new)

    return Agent(init, act, update, "toy", settings or {"epsilon": 0.3})


def network_of(apply: Callable[[Any, Any], Array], is_last: IsLast = lambda path: False) -> Network:
    """A `Network` whose parameters a test makes itself."""

    def init(key: Key) -> Any:
        raise AssertionError("this network's parameters come from the test")

    return Network(init, apply, is_last)


def compiled(make: Callable[..., Filter]) -> Callable[..., Filter]:
    """The factory of a filter whose functions are compiled: eager, each of their operations is a program of its own."""

    def made(*arguments: Any, **options: Any) -> Filter:
        flt = make(*arguments, **options)
        return flt._replace(
            init=jax.jit(flt.init),
            predict=jax.jit(flt.predict),
            update=jax.jit(flt.update),
            moments=jax.jit(flt.moments),
            sample=jax.jit(flt.sample),
        )

    return made


def optimizer_programs() -> int:
    """The number of compiled programs that choose points in Bayesian optimization, once none is being compiled."""
    wait(optimizer._compiling.values())
    return ascent.score._cache_size() + ascent.climb._cache_size() + programs.means_of._cache_size()


def of_matrices(state: Any) -> Any:
    """The state of the direction for matrices in that of an optimizer."""
    parts = state.inner_states["matrix"].inner_state
    return next(part for part in parts if not isinstance(part, SteadyState))
