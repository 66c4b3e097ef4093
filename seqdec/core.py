"""The contracts that hold seqdec together: named tuples of pure functions, and named tuples of state.

A `Filter` keeps a Gaussian belief over the parameters of a network. A `Posterior` is what an `Acquisition` can compute
of such a belief about n candidates. An `Agent` joins the two; an `Environment` is what an agent acts in. No concrete
filter, policy, environment or agent is known here.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import gymnasium
import jax
from jax.typing import ArrayLike

from seqdec.introspection import brief, described, listed, sized
from seqdec.portable import portable

Array = jax.Array
Key = jax.Array  # a typed key, from `jax.random.key`
PyTree = Any


IsLast = Callable[[tuple[str, ...]], bool]
"""(path) -> bool, true for the parameters of the output layer; a path holds the names of a leaf in the tree."""


@portable
class Network(NamedTuple):
    """A network as pure functions."""

    init: Callable[[Key], PyTree]
    """(key) -> params"""
    apply: Callable[[PyTree, PyTree], Array]
    """(params, x) -> (out,)"""
    is_last: IsLast
    """(path) -> bool, true for the parameters of the output layer"""
    tables: tuple[str, ...] = ()
    """names of the embedding tables: params["tables"][name] (rows, width), of which an input x reads row x[name]"""
    example: PyTree | None = None
    """shapes of an input x, where they are known"""


class Predictive(NamedTuple):
    """Gaussian prediction of `out` responses, epistemic and aleatoric uncertainty apart."""

    mean: Array
    """(out,) expected response."""
    cov: Array
    """(out, out) epistemic covariance, which more data reduces."""
    noise: Array
    """(out, out) observation covariance R, which data do not reduce."""


class Marginals(NamedTuple):
    """Gaussian prediction of `out` responses one by one, without their correlations."""

    mean: Array
    """(out,) expected response."""
    variance: Array
    """(out,) epistemic variance."""
    noise: Array
    """(out,) observation variance."""


class ErrorBound(NamedTuple):
    """Upper bounds, in Frobenius norm, on what the covariance of one update neglects. Their sum bounds the whole."""

    process_noise: Array
    """() bound on the neglected interaction of gain and process noise."""
    truncation: Array
    """() norm of the eigenvalues beyond the rank, process noise included."""
    coupling: Array
    """() bound on the neglected correlation of hidden and last layers; 0 for filters with one block."""


class UpdateInfo(NamedTuple):
    """Diagnostics of one filter update, which the next update does not need."""

    innovation: Array
    """(o,) observed minus predicted response."""
    log_density: Array
    """() log density of the observation under the one-step-ahead predictive, in nats."""
    rejected: Array
    """() bool: the input or the result was not finite, and the belief is unchanged."""
    error_bound: ErrorBound | None = None
    """The bounds, where the filter was built with `error_bounds=True`."""


@portable
class Filter(NamedTuple):
    """Recursive Gaussian belief over the parameters of `apply(params, x) -> (out,)`."""

    init: Callable[[Key, PyTree], Any]
    """(key, params) -> belief, centered on params."""
    predict: Callable[[Any], Any]
    """(belief) -> belief: one time step passes; process noise arrives."""
    update: Callable[..., tuple[Any, UpdateInfo]]
    """(belief, x, y, observed=None) -> (belief, info). `observed` (o,) indexes the outputs that y (o,) holds; a
    scalar index goes with a scalar y; None means all."""
    moments: Callable[[Any, PyTree], Predictive]
    """(belief, x) -> predictive of all responses."""
    sample: Callable[[Key, Any], PyTree]
    """(key, belief) -> params drawn from the belief."""
    mean: Callable[[Any], PyTree]
    """(belief) -> params at the belief's mean."""
    response: Callable[[PyTree, PyTree], Array]
    """(params, x) -> (out,) expected responses of the model with these parameters."""
    recenter: Callable[[Any, PyTree], Any] | None = None
    """(belief, params) -> belief with this mean and the same covariance; None where a belief has no free mean."""
    update_batch: Callable[..., tuple[Any, UpdateInfo]] | None = None
    """(belief, xs, ys, observed=None) -> (belief, info): one update with the responses at b inputs, linearized at the
    present mean. Leaves of xs are (b, ...); ys and `observed` are (b, o), or (b,) for one response each. In `info` the
    innovation is (b, o), and `rejected` (b,) marks inputs that were not finite. None where it is missing."""
    marginals: Callable[[Any], Callable[[PyTree], Marginals]] | None = None
    """(belief) -> (x -> marginals of all responses), for many inputs: what does not depend on x is computed once. None
    where it is missing: take them from `moments`."""


@portable
class Posterior(NamedTuple):
    """What acquisitions can compute of a belief about n candidates."""

    mean: Callable[[PyTree], Array]
    """(candidates) -> (n,) expected responses; the cheapest."""
    joint: Callable[[PyTree], Predictive]
    """(candidates) -> predictive over the n responses."""
    draw: Callable[[Key], Callable[[PyTree], Array]]
    """(key) -> (candidates -> (n,)): one coherent function drawn from the belief."""
    marginals: Callable[[PyTree], Marginals] | None = None
    """(candidates) -> marginals of the n responses; None: take them from `joint`."""


@portable
class Learner(NamedTuple):
    """What learns: a belief about the responses to inputs x, as pure functions.

    An input is a context with n responses, or n candidates with one response each: a tree of arrays (n, ...).
    """

    init: Callable[[Key], Any]
    """(key) -> state, before any observation."""
    update: Callable[..., tuple[Any, Any]]
    """(state, x, y, observed=None, allowed=None) -> (state, info): one time step passes, and the responses y (o,) to x
    arrive. `observed` (o,) indexes the responses that y holds; a scalar index goes with a scalar y; None means all.
    `allowed` (n,) bool marks the candidates in x that could be chosen; None means all. What is not finite teaches
    nothing: `info.rejected` () bool."""
    posterior: Callable[[Any], Posterior]
    """(state) -> posterior of the responses to an input."""
    update_batch: Callable[..., tuple[Any, Any]] | None = None
    """(state, xs (b, ...), ys, observed=None, allowed=None) -> (state, info): one time step with b observations; ys and
    `observed` are (b, o), or (b,) for one response each; `info.rejected` (b,). None where it is missing."""
    prepared: Callable[[Any], Posterior] | None = None
    """(state) -> posterior for many inputs: what does not depend on them is computed once. None: `posterior`."""
    widened: Callable[[Any], Any] | None = None
    """(state of a learner of fewer responses, the first of these) -> state; None where only observations can tell."""
    uncertain: bool = True
    """Whether the posterior has more than means."""


@portable
class Acquisition(NamedTuple):
    """Scores candidates; the largest score acts, the k largest make a slate."""

    score: Callable[[Key, Posterior, PyTree, Array | None], Array]
    """(key, posterior, candidates, mask) -> (n,) scores: -inf where the mask (n,) bool is False, finite elsewhere."""
    probabilities: Callable[[Key, Posterior, PyTree, Array | None], Array] | None
    """(key, posterior, candidates, mask) -> (n,) probability that each candidate is played; None when not estimated."""
    exact: bool
    """True where `probabilities` is the exact law of the action, False where it is a Monte Carlo estimate."""
    needs: str
    """The most expensive field of the posterior that it uses: "mean", "joint" or "draw"."""
    probability: Callable[[Key, Posterior, PyTree, Array | None, Array], Array] | None = None
    """(key, posterior, candidates, mask, index) -> () that of one candidate, where it costs less than all of them: one
    of `probabilities` up to its error. None where it does not."""


class TimeStep(NamedTuple):
    """Result of an action."""

    observation: PyTree
    """The next observation; a `Masked` where not every action is allowed."""
    reward: Array
    """() reward of the action; NaN when the action was not allowed."""
    regret: Array
    """() expected reward of the best action minus that of the action taken; NaN where unknown."""
    done: Array
    """() bool: the episode ended and `observation` starts a new one."""
    outcomes: Array | None = None
    """(n,) the response of every action under full information; None when only the reward is observed."""


class Masked(NamedTuple):
    """An observation with the set of actions allowed in it."""

    observation: PyTree
    """As in an environment without masks."""
    mask: Array
    """(n,) bool, True where allowed."""


@portable
class Environment(NamedTuple):
    """A functional environment. All data live in `params`, which is passed to both functions and never closed over."""

    reset: Callable[[Key, PyTree], tuple[Any, PyTree]]
    """(key, params) -> (state, observation)."""
    step: Callable[[Key, Any, Array, PyTree], tuple[Any, TimeStep]]
    """(key, state, action, params) -> (state, time step)."""
    params: PyTree
    """All arrays that the two functions read."""
    observation_space: gymnasium.Space
    """Of the observations, without their masks."""
    action_space: gymnasium.Space
    """Discrete or Box."""
    name: str
    """Shown in tables and figures."""

    def __repr__(self) -> str:
        return described(
            f"Environment {self.name}",
            f"observations {brief(self.observation_space)}",
            f"actions {brief(self.action_space)}",
            f"params: {sized(self.params)}",
        )


class Action(NamedTuple):
    """An action and its propensity."""

    value: Array
    """() integer index from 0 for Discrete actions, wherever the space starts; a point of the box for Box actions."""
    propensity: Array
    """() probability with which the agent's policy plays this index; NaN where it is not estimated, and in compiled
    code for a context that is not finite or as large as 1e15, or a mask that allows no action: calls from Python raise
    ValueError there."""
    probabilities: Array | None = None
    """(n,) those of all actions, where the policy computes them for the propensity anyway; else None."""


class Assessment(NamedTuple):
    """What an agent believes of each of n actions in one context. NaN where it has no belief or no estimate."""

    mean: Array
    """(n,) expected response."""
    variance: Array
    """(n,) epistemic variance."""
    probability: Array
    """(n,) with which the agent's policy plays each."""


class Spaces(NamedTuple):
    """The spaces that an agent is built for."""

    observation_space: gymnasium.Space
    """Box, Discrete, or a Dict of candidates."""
    action_space: gymnasium.Space
    """Discrete or Box."""


@portable
class Agent(NamedTuple):
    """Three pure functions: init, act and update."""

    init: Callable[[Key], Any]
    """(key) -> state."""
    act: Callable[[Key, Any, PyTree], Action]
    """(key, state, observation) -> action. Never changes the state, so feedback may come late or in batches."""
    update: Callable[[Any, PyTree, ArrayLike, ArrayLike], tuple[Any, Any]]
    """(state, observation, action, feedback) -> (state, info). Scalar feedback is the reward of that action; an (n,)
    vector is the response of every action (full information)."""
    name: str
    """Shown in tables and figures."""
    exact_propensity: bool
    """Whether `Action.propensity` is exact; False marks a Monte Carlo estimate."""
    settings: Mapping[str, Any]
    """The settings that the agent was built with, recorded in the manifest of a run."""
    update_batch: Callable[[Any, PyTree, ArrayLike, ArrayLike], tuple[Any, Any]] | None = None
    """(state, observations (b, ...), actions (b, ...), rewards (b,)) -> (state, info): one update with all of them, and
    one step of time. A reward that is NaN teaches nothing, and `info.rejected` (b,) marks it. None where it is missing:
    update one after the other."""
    act_batch: Callable[[Key, Any, PyTree], Action] | None = None
    """(keys (b,), state, observations (b, ...)) -> actions (b, ...) and propensities (b,), as `jax.vmap` of `act` up to
    rounding. None where it is missing."""
    spaces: Spaces | None = None
    """The spaces that the agent was built for; None where they are not known."""
    widened: Callable[[Any], Any] | None = None
    """(state of the same agent for fewer actions, the first of these) -> state; None where only rewards can tell."""
    assess: Callable[[Key, Any, PyTree], Assessment] | None = None
    """(key, state, observation) -> assessment of all actions, by which `act` chooses. None for Box actions."""

    def __hash__(self) -> int:
        """Of the functions; settings and spaces have none. It makes an agent a static argument of `jax.jit`."""
        return hash((self.init, self.act, self.update))

    def __repr__(self) -> str:
        where = self.spaces
        batches = [name for name in ("update_batch", "act_batch") if getattr(self, name) is not None]
        return described(
            f"Agent {self.name}",
            "" if where is None else f"observations {brief(where.observation_space)}",
            "" if where is None else f"actions {brief(where.action_space)}",
            f"settings: {listed(self.settings)}" if self.settings else "no settings",
            f"propensities {'exact' if self.exact_propensity else 'estimated'}"
            f"{'; with ' + ' and '.join(batches) if batches else ''}",
        )


class HasSpaces(Protocol):
    """Anything with gymnasium spaces: an `Environment`, a `gymnasium.Env`."""

    @property
    def observation_space(self) -> gymnasium.Space:
        """Box or Discrete."""
        ...

    @property
    def action_space(self) -> gymnasium.Space:
        """Discrete or Box."""
        ...
