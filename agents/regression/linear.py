r"""Linear Thompson sampling and LinUCB: a weight vector for each action, or one for all candidates.

For contexts of numbers each action has a Bayesian regression of its own on (z, 3), z the context in standard units
(`seqdec.agents.regression.nig`, `seqdec.agents.regression.units`): no setting depends on the unit or the origin of
contexts or rewards. An observation costs O(F^2) for F - 1 numbers in a context. With a half-life it is discounted
linear Thompson sampling or LinUCB, at O(n F^3) more in every fourth of the half-life.

Source: Agrawal, Goyal, "Thompson sampling for contextual bandits with linear payoffs", ICML 2013; Li, Chu, Langford,
Schapire, "A contextual-bandit approach to personalized news article recommendation", WWW 2010, for a weight vector for
each action; Russac, Vernade, Cappe, "Weighted linear bandits for non-stationary environments", NeurIPS 2019.
"""

import functools
import inspect
from collections.abc import Callable
from typing import NamedTuple, Unpack

import jax.numpy as jnp
from gymnasium import spaces as gym_spaces

from seqdec import checks, memory, models, policies
from seqdec.agents import recommender
from seqdec.agents._filtering import assessing, choices_for, decide
from seqdec.agents._neural.experience import first, recorder, usable
from seqdec.agents.filtered import ekf
from seqdec.agents.inputs import checked
from seqdec.agents.networks import check_candidates
from seqdec.agents.regression import nig, rewards, units
from seqdec.agents.regression.nig import Regression
from seqdec.agents.regression.rewards import Rewards
from seqdec.agents.regression.units import Units
from seqdec.agents.signatures import LinearOptions, ScorerOptions
from seqdec.core import Acquisition, Agent, Array, HasSpaces, Marginals, Posterior, Predictive
from seqdec.registry import spelled, unknown
from seqdec.spaces import spaces_of


class LinearState(NamedTuple):
    """What the agent knows."""

    belief: Regression
    contexts: Units
    rewards: Rewards
    seen: Array
    """() int32 steps"""

    @property
    def params(self) -> Array:
        """(n, F) expected weights, of rewards counted from the origin, but for the prior mean."""
        return self.belief.weights


class LinearInfo(NamedTuple):
    """Result of an update."""

    innovation: Array
    """(o,) observed minus predicted reward, before the update"""
    log_density: Array
    """() of the reward, before the update, in nats"""
    rejected: Array
    """() bool: the input was not finite, and the state is unchanged"""


def _of_points(spaces: HasSpaces, **options: Unpack[ScorerOptions]) -> Agent:
    return ekf(spaces, model=models.MLP(1, ()), **options)._replace(name="linear")


def _per_action(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition | None = None,
    half_life: float | None = None,
) -> Agent:
    if half_life is not None:
        checks.number("half_life", half_life, 0, nig.LONGEST, exclusive=True)
    choices = choices_for(spaces)
    recording = recorder(choices, spaces)
    example = recording.example.x
    acquisition, called = (nig.usual_policy(example.size), None) if policy is None else policies.resolve(policy)
    actions = int(spaces.action_space.n)  # pyright: ignore[reportAttributeAccessIssue] (Discrete)

    def init(key):
        belief = nig.prior(actions, example.size + 1)
        return LinearState(belief, units.unknown(example.shape), rewards.unknown(), jnp.int32(0))

    def phi_of(state, x):
        return nig.with_constant(units.bounded(state.contexts, x))

    def answers(state, x):
        at = nig.answer(state.belief, phi_of(state, x), rewards.location(state.rewards))
        return at._replace(mean=at.mean + state.rewards.origin)

    def joint(state, x):
        at = answers(state, x)
        return Predictive(at.mean, jnp.diag(at.variance), jnp.diag(at.noise))

    def question(state):
        def draw(key):
            weights = nig.drawn(key, state.belief, rewards.location(state.rewards))
            return lambda x: weights @ phi_of(state, x) + state.rewards.origin

        return Posterior(
            lambda x: answers(state, x).mean,
            functools.partial(joint, state),
            draw,
            lambda x: Marginals(*answers(state, x)),
        )

    def act(key, state, observation):
        return decide(key, acquisition, question(state), choices, observation)

    def update(state, observation, action, feedback):
        newest, single = recording.rows(observation, action, feedback), jnp.ndim(feedback) == 0
        row, good = first(newest), usable(newest)
        error = nig.innovation(answers(state, row.x).mean, row, single)
        x = units.cut(state.contexts, row.x)
        state = state._replace(contexts=units.measured(state.contexts, x[None], good[None]))
        seen, y = rewards.measured(state.rewards, row.y, good & row.observed)
        location = rewards.location(seen)
        belief, density = nig.learn(state.belief, phi_of(state, x), row._replace(y=y), location, single, good)
        steps = memory.counted(state.seen, good)
        if half_life is not None:
            belief = nig.forgotten(belief, half_life, steps, good)
        return LinearState(belief, state.contexts, seen, steps), LinearInfo(error, density, ~good)

    def widened(state):
        return state._replace(belief=nig.widened(state.belief, actions))

    told = {"policy": called, "half_life": half_life}
    assess = assessing(acquisition, question, choices, spaces)
    made = Agent(init, act, update, "linear", acquisition.exact, told, widened=widened, assess=assess)
    return checked(made, spaces)


def _keywords(factory: Callable[..., Agent]) -> set[str]:
    return set(inspect.signature(factory).parameters) - {"spaces", "model"}


_OWN, _OF_EKF = _keywords(_per_action), _keywords(ekf)


@spelled(_per_action, recommender.linear, ekf, hidden=("model",))
def linear(spaces: HasSpaces, **options: Unpack[LinearOptions]) -> Agent:
    """Linear regression: LinTS with a sampling policy, LinUCB with `policy="ucb"`.

    Args:
        spaces: anything with observation_space and action_space.
        **options: for Discrete actions policy, as in `seqdec.agents.auto`, and half_life, steps after which an
            observation counts half as much (default None: they all count alike). For observations that are a Dict of
            candidates those of `seqdec.agents.recommender.linear`; for Box actions those of `seqdec.agents.ekf`, whose
            model is linear in the context and the action.

    Raises TypeError or ValueError for a space or an option that does not fit.
    """
    spaces = spaces_of(spaces)
    factory: Callable[..., Agent]
    if isinstance(spaces.observation_space, gym_spaces.Dict):
        check_candidates(spaces)
        factory, known = recommender.linear, {"intercepts", *_OF_EKF}
    elif isinstance(spaces.action_space, gym_spaces.Discrete):
        factory, known = _per_action, _OWN
    else:
        factory, known = _of_points, _OF_EKF
    for option in options:
        if option not in known:
            where = f"{spaces.observation_space} and {spaces.action_space}"
            raise TypeError(f"agents.linear for {where}: {unknown('keyword', option, known)}")
    return factory(spaces, **options)
