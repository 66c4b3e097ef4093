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
from typing import NamedTuple

import jax.numpy as jnp
from gymnasium import spaces as gym_spaces

from seqdec import memory, models, policies
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
from seqdec.agents.wrappers.rehearsal import Rehearsal
from seqdec.boundary import checks
from seqdec.boundary.spaces import spaces_of
from seqdec.core import Acquisition, Agent, Array, HasSpaces, Marginals, Posterior, Predictive
from seqdec.filters import Numerics
from seqdec.filters.covariance import ProcessNoise
from seqdec.filters.embeddings import TableStd
from seqdec.likelihoods import Likelihood


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


def linear(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition | None = None,
    half_life: float | None = None,
    intercepts: bool | None = None,
    likelihood: Likelihood | None = None,
    noise_variance: float | None = None,
    num_candidates: int | None = None,
    rehearsal: Rehearsal | None = None,
    average: float | None = None,
    standardize: bool | None = None,
    initial_std: Array | float | None = None,
    process_noise: ProcessNoise | None = None,
    initial_std_table: TableStd | None = None,
    numerics: Numerics | None = None,
) -> Agent:
    """Linear regression: LinTS with a sampling policy, LinUCB with `policy="ucb"`.

    Args:
        spaces: anything with observation_space and action_space.
        policy: as in `seqdec.agents.auto`.
        half_life: for contexts, steps after which an observation counts half as much; None: they all count alike.
        intercepts: for candidates, as in `seqdec.agents.recommender.linear`, which this is then.
        likelihood: for candidates and Box actions, as in `seqdec.agents.ekf`, which this is then; None is its default.
        noise_variance, num_candidates, rehearsal, average, standardize: likewise.
        initial_std, process_noise, initial_std_table, numerics: likewise.

    Raises TypeError or ValueError for a space or an option that does not fit.
    """
    spaces = spaces_of(spaces)
    of_filter = {
        "likelihood": likelihood, "noise_variance": noise_variance, "num_candidates": num_candidates,
        "rehearsal": rehearsal, "average": average, "standardize": standardize, "initial_std": initial_std,
        "process_noise": process_noise, "initial_std_table": initial_std_table, "numerics": numerics,
    }  # fmt: skip
    given = {name: value for name, value in of_filter.items() if value is not None}
    by_row = isinstance(spaces.observation_space, gym_spaces.Dict)
    if by_row:
        check_candidates(spaces)
    of_contexts = not by_row and isinstance(spaces.action_space, gym_spaces.Discrete)
    unused = {**given, "intercepts": intercepts} if of_contexts else {"half_life": half_life}
    unused |= {} if by_row else {"intercepts": intercepts}
    for name, value in unused.items():
        if value is not None:
            where = f"{spaces.observation_space} and {spaces.action_space}"
            raise TypeError(f"{name}={value!r} has no effect in agents.linear for {where}: leave it out")
    if of_contexts:
        return _per_action(spaces, policy, half_life)
    given |= {} if policy is None else {"policy": policy}
    if by_row:
        return recommender.linear(spaces, intercepts=intercepts is None or intercepts, **given)
    return ekf(spaces, model=models.MLP(1, ()), **given)._replace(name="linear")


def _per_action(spaces: HasSpaces, policy: str | Acquisition | None, half_life: float | None) -> Agent:
    """A regression for each action."""
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
