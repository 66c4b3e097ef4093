"""The contracts of seqdec: named tuples of pure functions, and of state.

A `Filter` keeps a Gaussian belief over the parameters of a network; an `Acquisition` scores n candidates by a
`Posterior`; an `Agent` joins the two and acts in an `Environment`.
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
"""(path) -> bool, true in the output layer; a path has the names of a leaf."""


@portable
class Network(NamedTuple):
    """A network as pure functions."""

    init: Callable[[Key], PyTree]
    """(key) -> params"""
    apply: Callable[[PyTree, PyTree], Array]
    """(params, x) -> (out,)"""
    is_last: IsLast
    """true in the output layer"""
    tables: tuple[str, ...] = ()
    """embedding tables: an input x reads row x[name] of params["tables"][name] (rows, width)"""
    example: PyTree | None = None
    """shapes of an input x, if known"""


class Predictive(NamedTuple):
    """Gaussian prediction of `out` responses."""

    mean: Array
    """(out,) expected response."""
    cov: Array
    """(out, out) epistemic covariance."""
    noise: Array
    """(out, out) observation covariance R."""


class Marginals(NamedTuple):
    """Gaussian prediction of `out` responses without correlations."""

    mean: Array
    """(out,) expected response."""
    variance: Array
    """(out,) epistemic variance."""
    noise: Array
    """(out,) observation variance."""


class ErrorBound(NamedTuple):
    """Bounds, in Frobenius norm, on what the covariance of one update neglects; their sum bounds the whole."""

    process_noise: Array
    """() interaction of gain and process noise."""
    truncation: Array
    """() eigenvalues beyond the rank, process noise included."""
    coupling: Array
    """() correlation of hidden and last layers; 0 with one block."""


class UpdateInfo(NamedTuple):
    """Diagnostics of one filter update."""

    innovation: Array
    """(o,) observed minus predicted response."""
    log_density: Array
    """() of the observation under the one-step-ahead predictive, in nats."""
    rejected: Array
    """() bool: not finite input or result, unchanged belief."""
    error_bound: ErrorBound | None = None
    """None unless built with `error_bounds=True`."""


@portable
class Filter(NamedTuple):
    """Recursive Gaussian belief over the parameters of `apply(params, x) -> (out,)`."""

    init: Callable[[Key, PyTree], Any]
    """(key, params) -> belief centered on params."""
    predict: Callable[[Any], Any]
    """(belief) -> belief after one time step and its process noise."""
    update: Callable[..., tuple[Any, UpdateInfo]]
    """(belief, x, y, observed=None) -> (belief, info). `observed` (o,) indexes the outputs in y (o,), or is a scalar
    with a scalar y; None: all."""
    moments: Callable[[Any, PyTree], Predictive]
    """(belief, x) -> predictive."""
    sample: Callable[[Key, Any], PyTree]
    """(key, belief) -> params drawn from the belief."""
    mean: Callable[[Any], PyTree]
    """(belief) -> its mean, as params."""
    response: Callable[[PyTree, PyTree], Array]
    """(params, x) -> (out,) expected responses."""
    recenter: Callable[[Any, PyTree], Any] | None = None
    """(belief, params) -> belief with this mean and the same covariance; None without a free mean."""
    update_batch: Callable[..., tuple[Any, UpdateInfo]] | None = None
    """(belief, xs (b, ...), ys, observed=None) -> (belief, info): one update with b inputs, linearized at the present
    mean. ys and `observed` are (b, o), or (b,) for one response each; innovations (b, o), `rejected` (b,)."""
    marginals: Callable[[Any], Callable[[PyTree], Marginals]] | None = None
    """(belief) -> (x -> marginals), for many inputs; None: take them from `moments`."""


@portable
class Posterior(NamedTuple):
    """Belief about n candidates, as functions for acquisitions."""

    mean: Callable[[PyTree], Array]
    """(candidates) -> (n,) expected responses."""
    joint: Callable[[PyTree], Predictive]
    """(candidates) -> predictive of the n responses."""
    draw: Callable[[Key], Callable[[PyTree], Array]]
    """(key) -> (candidates -> (n,)): one function drawn from the belief."""
    marginals: Callable[[PyTree], Marginals] | None = None
    """(candidates) -> marginals of the n responses; None: take them from `joint`."""
    parts: Callable[[PyTree], tuple[Array, Marginals]] | None = None
    """(candidates) -> weights and marginals (K, n) of the beliefs that are mixed; None: one."""
    varying: Array | None = None
    """() how many numbers of the contexts differed so far; None: unknown."""


@portable
class Learner(NamedTuple):
    """A belief about the responses to inputs x, as pure functions.

    An input is a context with n responses, or n candidates (n, ...) with one response each.
    """

    init: Callable[[Key], Any]
    """(key) -> state."""
    update: Callable[..., tuple[Any, Any]]
    """(state, x, y, observed=None, allowed=None) -> (state, info): one time step with the responses y (o,) to x.
    `observed` (o,) indexes the responses in y, or is a scalar with a scalar y; `allowed` (n,) bool: candidates that
    could be chosen; None: all. What is not finite teaches nothing: `info.rejected` () bool."""
    posterior: Callable[[Any], Posterior]
    """(state) -> posterior."""
    update_batch: Callable[..., tuple[Any, Any]] | None = None
    """(state, xs (b, ...), ys, observed=None, allowed=None) -> (state, info): one time step; ys and `observed` are (b,
    o), or (b,) for one response each; `info.rejected` (b,)."""
    prepared: Callable[[Any], Posterior] | None = None
    """(state) -> posterior for many inputs; None: `posterior`."""
    widened: Callable[[Any], Any] | None = None
    """(state of fewer responses, the first of these) -> state; None where only observations can tell."""
    uncertain: bool = True
    """False: the posterior has means only."""
    sparse: bool = False
    """True: takes contexts of a `seqdec.features.SparseBox`."""


@portable
class Acquisition(NamedTuple):
    """Scores candidates, and plays one; the k largest scores make a slate."""

    score: Callable[[Key | None, Posterior, PyTree, Array | None], Array]
    """(key, posterior, candidates, mask) -> (n,) scores: -inf where the mask (n,) bool is False, finite elsewhere."""
    needs: str
    """The most expensive field of the posterior used: "mean", "joint" or "draw"."""
    law: Callable[[Key, Posterior, PyTree, Array | None], tuple[Array, Array | None]] | None = None
    """(key, posterior, candidates, mask) -> index to play, and (n,) the probabilities by which it was drawn, None if
    unknown. None for scores that are not random: their key is None, and the first largest is played."""


class TimeStep(NamedTuple):
    """Result of an action."""

    observation: PyTree
    """Next observation; a `Masked` if not every action is allowed."""
    reward: Array
    """() NaN when the action was not allowed."""
    regret: Array
    """() expected reward of the best action minus this one's; NaN where unknown."""
    done: Array
    """() bool: the episode ended, `observation` starts a new one."""
    outcomes: Array | None = None
    """(n,) responses of all actions, under full information."""


class Masked(NamedTuple):
    """An observation and its allowed actions."""

    observation: PyTree
    """The observation without its mask."""
    mask: Array
    """(n,) bool, True: allowed."""


@portable
class Environment(NamedTuple):
    """A functional environment, all its data in `params`."""

    reset: Callable[[Key, PyTree], tuple[Any, PyTree]]
    """(key, params) -> (state, observation)."""
    step: Callable[[Key, Any, Array, PyTree], tuple[Any, TimeStep]]
    """(key, state, action, params) -> (state, time step)."""
    params: PyTree
    """Arrays that the functions read."""
    observation_space: gymnasium.Space
    """Space of observations without masks."""
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
    """() index from 0 for Discrete actions, wherever the space starts; a point for Box actions."""
    propensity: Array
    """() probability by which this index was drawn; of points of a Box of floats the density, per unit of volume. NaN
    if unknown, as of the one point that a policy without a random choice plays, and in compiled code for a mask without
    allowed action or a context not finite or as large as 1e15 (in Python a ValueError)."""
    probabilities: Array | None = None
    """(n,) of all actions, if known."""


class Assessment(NamedTuple):
    """Beliefs about n actions in one context; NaN: none, or unknown."""

    mean: Array
    """(n,) expected response."""
    variance: Array
    """(n,) epistemic variance."""
    probability: Array
    """(n,) probability of each action under the policy."""


class Spaces(NamedTuple):
    """Spaces of an agent."""

    observation_space: gymnasium.Space
    """Box, Discrete, or a Dict of candidates."""
    action_space: gymnasium.Space
    """Discrete or Box."""


class Schema(NamedTuple):
    """Names of the actions and columns of a log, and of what was learned from it."""

    action_names: tuple[str | int, ...] | None = None
    """(k,) labels of the actions; None for indices from 0"""
    context_names: tuple[str, ...] | None = None
    """(d,) of the columns of the context; None if unknown"""
    encoder: str | None = None
    """`Encoder.digest` of the context's encoder, "" for columns as they are; None if unknown"""


@portable
class Agent(NamedTuple):
    """Pure functions init, act and update."""

    init: Callable[[Key], Any]
    """(key) -> state."""
    act: Callable[[Key, Any, PyTree], Action]
    """(key, state, observation) -> action; the state stays."""
    update: Callable[[Any, PyTree, ArrayLike, ArrayLike], tuple[Any, Any]]
    """(state, observation, action, feedback) -> (state, info). Feedback: the action's reward, or (n,) the responses of
    all actions (full information)."""
    name: str
    """Shown in tables and figures."""
    settings: Mapping[str, Any]
    """Settings of its construction, for manifests."""
    update_batch: Callable[[Any, PyTree, ArrayLike, ArrayLike], tuple[Any, Any]] | None = None
    """(state, observations (b, ...), actions (b, ...), rewards (b,)) -> (state, info): one update, one step of time. A
    reward of NaN teaches nothing: `info.rejected` (b,)."""
    act_batch: Callable[[Key, Any, PyTree], Action] | None = None
    """(keys (b,), state, observations (b, ...)) -> actions (b, ...), propensities (b,): `jax.vmap` of `act` up to
    rounding."""
    spaces: Spaces | None = None
    """Spaces it was built for, if known."""
    widened: Callable[[Any], Any] | None = None
    """(state of fewer actions, the first of these) -> state; None where only rewards can tell."""
    assess: Callable[[Key, Any, PyTree], Assessment] | None = None
    """(key, state, observation) -> assessment of all actions; None for Box actions."""
    schema: Schema | None = None
    """Schema of the log that it was learned from; None without one."""
    learned_from: bytes = b""
    """Sorted hashes, of 8 bytes each, of the log rows that it has learned, see `seqdec.ope.unseen`."""
    weighted: bool = False
    """Whether `update` and `update_batch` also take an `Action` in place of its value, and use its propensity."""

    def lesson(self, action: Action) -> Any:
        """The argument of `update` for an action that was played."""
        return action._replace(probabilities=None) if self.weighted else action.value

    def __hash__(self) -> int:
        return hash((self.init, self.act, self.update))

    def __repr__(self) -> str:
        where = self.spaces
        batches = [name for name in ("update_batch", "act_batch") if getattr(self, name) is not None]
        return described(
            f"Agent {self.name}",
            "" if where is None else f"observations {brief(where.observation_space)}",
            "" if where is None else f"actions {brief(where.action_space)}",
            f"settings: {listed(self.settings)}" if self.settings else "no settings",
            "with " + " and ".join(batches) if batches else "",
        )


class HasSpaces(Protocol):
    """Anything with gymnasium spaces."""

    @property
    def observation_space(self) -> gymnasium.Space:
        """Box, Discrete, or a Dict of candidates."""
        ...

    @property
    def action_space(self) -> gymnasium.Space:
        """Discrete or Box."""
        ...
