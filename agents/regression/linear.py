r"""Linear Thompson sampling and LinUCB: a weight vector for each action, or one for all candidates.

For contexts each action has a Bayesian regression on (z, 3), z the context in standard units
(`seqdec.agents.regression.conjugate`, `seqdec.agents.regression.units`). An observation costs O(F^2) for F - 1 numbers
in a context. A half-life makes it discounted, at O(n F^3) more in every fourth of the half-life.

Source: Agrawal, Goyal, "Thompson sampling for contextual bandits with linear payoffs", ICML 2013; Li, Chu, Langford,
Schapire, "A contextual-bandit approach to personalized news article recommendation", WWW 2010, for a weight vector for
each action; Russac, Vernade, Cappe, "Weighted linear bandits for non-stationary environments", NeurIPS 2019.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from gymnasium import spaces as gym_spaces

from seqdec import memory, models
from seqdec.agents._neural.experience import rows_of, usable
from seqdec.agents.assembly import agent
from seqdec.agents.filtered import ekf
from seqdec.agents.networks import check_candidates, scorer
from seqdec.agents.regression import conjugate, units
from seqdec.agents.regression.conjugate import Regression
from seqdec.agents.regression.units import Rewards, Units
from seqdec.agents.wrappers.rehearsal import Rehearsal
from seqdec.boundary import checks
from seqdec.boundary.spaces import spaces_of
from seqdec.core import Acquisition, Agent, Array, HasSpaces, Learner, Marginals, Posterior, Predictive, UpdateInfo
from seqdec.filters import Numerics
from seqdec.filters.covariance import ProcessNoise
from seqdec.filters.embeddings import TableStd
from seqdec.likelihoods import Likelihood


class LinearState(NamedTuple):
    """State of the agent."""

    belief: Regression
    contexts: Units
    rewards: Rewards
    seen: Array
    """() int32 steps"""

    @property
    def params(self) -> Array:
        """(n, F) expected weights for rewards counted from the origin, prior mean 0."""
        return self.belief.weights


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

    >>> import seqdec
    >>> env = seqdec.envs.linear()
    >>> agent = seqdec.agents.linear(env, policy="ucb")
    >>> agent.name
    'linear'

    Args:
        spaces: with observation_space and action_space.
        policy: as in `seqdec.agents.auto`.
        half_life: for contexts, steps after which an observation counts half; None: all count alike.
        intercepts: for candidates, whether each row of a table has an intercept beside the weights of the features,
            with prior standard deviation `initial_std_table`; None is True.
        likelihood, others: for candidates and Box actions, as in `seqdec.agents.ekf`, here with a linear model; None is
            its default.

    Raises TypeError or ValueError for a space or an option that does not fit.
    """
    given = {name: value for name, value in locals().items() if value is not None}
    for own in ("spaces", "policy", "half_life", "intercepts"):
        given.pop(own, None)
    spaces = spaces_of(spaces)
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
    if not by_row:
        return ekf(spaces, model=models.MLP(1, ()), **given)._replace(name="linear")
    intercepts = intercepts is None or checks.flag("intercepts", intercepts)
    model = scorer(spaces, models.Linear(), tables=None if intercepts else (), width=1, std=0.0)
    made = ekf(spaces, model=model, **given)
    return made._replace(name="linear", settings={**made.settings, "intercepts": intercepts})


def _per_action(spaces: HasSpaces, policy: str | Acquisition | None, half_life: float | None) -> Agent:
    if half_life is not None:
        checks.number("half_life", half_life, 0, conjugate.LONGEST, exclusive=True)
    shape = rows_of(spaces).example.x.shape
    actions = int(spaces.action_space.n)  # pyright: ignore[reportAttributeAccessIssue] (Discrete)
    features = math.prod(shape) + 1

    def init(key):
        return LinearState(conjugate.prior(actions, features), units.unknown(shape), units.no_rewards(), jnp.int32(0))

    def phi_of(contexts, x):
        return jnp.append(units.bounded(contexts, x), conjugate.CONSTANT)

    def update(state, x, y, observed=None, allowed=None):
        index = jnp.arange(actions) if observed is None else jnp.asarray(observed)[None]
        y = jnp.ravel(y)
        good = usable((x, y))
        x = units.cut(state.contexts, x)
        contexts = units.measured(state.contexts, x[None], good[None])
        rewards, y = units.counted(state.rewards, y, good)
        phi = phi_of(contexts, x)
        mu = conjugate.usual_mean(state.belief.weights, rewards.location)
        belief, (error, densities) = conjugate.learned(state.belief, phi, y, index, mu, good)
        steps = memory.counted(state.seen, good)
        if half_life is not None:
            only = jax.tree.map(lambda leaf: leaf[None], belief)
            belief = jax.tree.map(lambda leaf: leaf[0], conjugate.forgotten(only, (half_life,), steps, good))
        return LinearState(belief, contexts, rewards, steps), UpdateInfo(error, jnp.sum(densities), ~good)

    def posterior(state):
        mu, origin = conjugate.usual_mean(state.belief.weights, state.rewards.location), state.rewards.origin

        def marginals(x):
            at = state.belief.answer(phi_of(state.contexts, x), mu)
            return Marginals(at.mean + origin, at.variance, at.noise)

        def joint(x):
            at = marginals(x)
            return Predictive(at.mean, jnp.diag(at.variance), jnp.diag(at.noise))

        def draw(key):
            weights = state.belief.drawn(jax.random.normal(key, state.belief.weights.shape), mu)
            return lambda x: weights @ phi_of(state.contexts, x) + origin

        return Posterior(lambda x: marginals(x).mean, joint, draw, marginals)

    def widened(state):
        fresh = conjugate.prior(actions - len(state.belief.weights), features)
        both = jax.tree.map(lambda known, new: jnp.concatenate([known, new.astype(known.dtype)]), state.belief, fresh)
        return state._replace(belief=both)

    chosen = conjugate.usual_policy(features - 1) if policy is None else policy
    settings = {"half_life": half_life, **({"policy": None} if policy is None else {})}
    return agent(Learner(init, update, posterior, widened=widened), chosen, spaces, name="linear", settings=settings)
