"""Kalman filters over the weights of a network as agents, with settings for rewards of order one.

Ranks, and HiLoFi's initial covariances, are those of the paper's MNIST bandit.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

from gymnasium import spaces as gym_spaces

from seqdec import filters, likelihoods, policies
from seqdec.agents.assembly import agent
from seqdec.agents.inputs import refuse_unused
from seqdec.agents.networks import network_for
from seqdec.agents.wrappers.averaging import averaging
from seqdec.agents.wrappers.rehearsal import Rehearsal, rehearsing
from seqdec.agents.wrappers.standard import standard_actions, standard_spaces, standardized
from seqdec.boundary import checks
from seqdec.core import Acquisition, Agent, Array, Filter, HasSpaces
from seqdec.filters import Numerics
from seqdec.filters.covariance import ProcessNoise
from seqdec.filters.embeddings import TableStd
from seqdec.likelihoods import Likelihood
from seqdec.modules import Model
from seqdec.registry import check_keywords, keywords, load

NOISE_VARIANCE, STD = 0.01, math.sqrt(0.1)
_MANY = 64
"""Candidates beyond which only the diagonal of their covariance is computed."""


def hilofi(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition = "epistemic_sampling",
    model: Model | None = None,
    likelihood: Likelihood | None = None,
    noise_variance: float = NOISE_VARIANCE,
    num_candidates: int | None = None,
    rehearsal: Rehearsal | None = None,
    average: float = 0.0,
    standardize: bool = True,
    rank: int = 50,
    initial_std_hidden: Array | float = STD,
    initial_std_last: Array | float = STD,
    process_noise_hidden: ProcessNoise = 1e-6,
    process_noise_last: ProcessNoise = 1e-6,
    initial_span: str = "random",
    initial_std_table: TableStd = STD,
    per_output: bool = False,
    numerics: Numerics = Numerics(),
) -> Agent:
    """HiLoFi: full-rank belief over the last layer, low-rank over the hidden layers.

    >>> import seqdec
    >>> env = seqdec.envs.linear()
    >>> agent = seqdec.agents.hilofi(env, rank=5)
    >>> agent.name
    'hilofi'

    Args:
        spaces: with observation_space and action_space: an Environment, a gymnasium.Env.
        policy: name or acquisition of `seqdec.policies`.
        model: flax module or `seqdec.models.Network` with one output per action; None is LeNet5 for 28 x 28 images,
            `seqdec.agents.scorer` for candidates, else an MLP with two hidden layers of 50 units. The output layer is
            detected, or a Network's `is_last`.
        likelihood: observation model, from `seqdec.likelihoods`; None is gaussian(noise_variance).
        noise_variance: observation variance R.
        num_candidates: points per decision, for Box actions only; None is 256.
        rehearsal: a `seqdec.agents.Rehearsal` of past observations, or None.
        average: act by a moving average of means with decay a in [0, 1) (`seqdec.agents.averaging`); 0: no average.
        standardize: whether contexts of at most 256 numbers, candidates' numbers and Box actions are in standard units
            (`seqdec.agents.wrappers.standard`).
        rank, others: as in `seqdec.filters.hilofi`.

    Raises:
        ValueError, TypeError: a setting or a space does not fit.
    """
    return _of_filter(hilofi, filters.hilofi, **locals())


def lolofi(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition = "predictive_sampling",
    model: Model | None = None,
    likelihood: Likelihood | None = None,
    noise_variance: float = NOISE_VARIANCE,
    num_candidates: int | None = None,
    rehearsal: Rehearsal | None = None,
    average: float = 0.0,
    standardize: bool = True,
    rank_hidden: int = 50,
    rank_last: int | None = None,
    initial_std_hidden: Array | float = 1.0,
    initial_std_last: Array | float = 1.0,
    process_noise_hidden: ProcessNoise = 1e-4,
    process_noise_last: ProcessNoise = 1e-6,
    initial_span: str = "random",
    initial_std_table: TableStd = STD,
    numerics: Numerics = Numerics(),
) -> Agent:
    """LoLoFi: low-rank beliefs over the last layer and over the hidden layers.

    Arguments up to `standardize` as in `seqdec.agents.hilofi`, others as in `seqdec.filters.lolofi`.
    """
    return _of_filter(lolofi, filters.lolofi, **locals())


def lofi(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition = "predictive_sampling",
    model: Model | None = None,
    likelihood: Likelihood | None = None,
    noise_variance: float = NOISE_VARIANCE,
    num_candidates: int | None = None,
    rehearsal: Rehearsal | None = None,
    average: float = 0.0,
    standardize: bool = True,
    rank: int = 50,
    initial_std: Array | float = 0.1,
    process_noise: ProcessNoise = 0.0,
    initial_std_table: TableStd = 1.0,
    spare: int = 0,
    numerics: Numerics = Numerics(),
) -> Agent:
    """LoFi: one belief over all parameters whose precision is a diagonal and a low-rank matrix.

    Arguments up to `standardize` as in `seqdec.agents.hilofi`, others as in `seqdec.filters.lofi`.
    """
    return _of_filter(lofi, filters.lofi, **locals())


def lrkf(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition = "predictive_sampling",
    model: Model | None = None,
    likelihood: Likelihood | None = None,
    noise_variance: float = NOISE_VARIANCE,
    num_candidates: int | None = None,
    rehearsal: Rehearsal | None = None,
    average: float = 0.0,
    standardize: bool = True,
    rank: int = 50,
    initial_std: Array | float = 1.0,
    process_noise: ProcessNoise = 1e-4,
    initial_span: str = "random",
    initial_std_table: TableStd = STD,
    numerics: Numerics = Numerics(),
) -> Agent:
    """LRKF: one low-rank belief over all parameters.

    >>> import seqdec
    >>> env = seqdec.envs.linear()
    >>> agent = seqdec.agents.lrkf(env, rank=5, policy="thompson")
    >>> agent.name
    'lrkf'

    Arguments up to `standardize` as in `seqdec.agents.hilofi`, others as in `seqdec.filters.lrkf`.
    """
    return _of_filter(lrkf, filters.lrkf, **locals())


def ekf(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition = "epistemic_sampling",
    model: Model | None = None,
    likelihood: Likelihood | None = None,
    noise_variance: float = NOISE_VARIANCE,
    num_candidates: int | None = None,
    rehearsal: Rehearsal | None = None,
    average: float = 0.0,
    standardize: bool = True,
    initial_std: Array | float = STD,
    process_noise: ProcessNoise = 0.0,
    initial_std_table: TableStd = STD,
    numerics: Numerics = Numerics(),
) -> Agent:
    """EKF: one dense belief over all parameters, for small networks.

    >>> import seqdec
    >>> env = seqdec.envs.linear()
    >>> agent = seqdec.agents.ekf(env, model=seqdec.models.MLP(5, ()))
    >>> agent.name
    'ekf'

    Arguments up to `standardize` as in `seqdec.agents.hilofi`, others as in `seqdec.filters.ekf`.
    """
    return _of_filter(ekf, filters.ekf, **locals())


def subspace(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition = "predictive_sampling",
    model: Model | None = None,
    likelihood: Likelihood | None = None,
    noise_variance: float = NOISE_VARIANCE,
    num_candidates: int | None = None,
    rehearsal: Rehearsal | None = None,
    average: float = 0.0,
    standardize: bool = True,
    rank: int = 100,
    initial_std: Array | float = 1.0,
    initial_std_table: TableStd = 1.0,
    numerics: Numerics = Numerics(),
) -> Agent:
    """Subspace EKF: a dense belief over d random directions of parameter space; the others are fixed.

    Arguments up to `standardize` as in `seqdec.agents.hilofi`, others as in `seqdec.filters.subspace`.
    """
    return _of_filter(subspace, filters.subspace, **locals())


class FromFilter:
    """Result of `from_filter`: (spaces, *, keywords) -> agent."""

    def __init__(self, make_filter: Callable[..., Filter], policy: str, presets: Mapping[str, Any]) -> None:
        self.filter, self.policy, self.presets = make_filter, policy, presets
        self.__name__, self.__doc__ = make_filter.__name__, make_filter.__doc__

    @property
    def keywords(self) -> tuple[str, ...]:
        """Keywords of the agents."""
        return (*_COMMON, *keywords(self.filter))

    def __call__(
        self,
        spaces: HasSpaces,
        *,
        policy: str | Acquisition | None = None,
        model: Model | None = None,
        likelihood: Likelihood | None = None,
        noise_variance: float = NOISE_VARIANCE,
        num_candidates: int | None = None,
        rehearsal: Rehearsal | None = None,
        average: float = 0.0,
        standardize: bool = True,
        **settings: Any,
    ) -> Agent:
        """The agent; `settings` go to the filter."""
        check_keywords(self.__name__, settings, self.keywords)
        return _of_filter(
            self, self.filter, spaces=spaces, policy=self.policy if policy is None else policy, model=model,
            likelihood=likelihood, noise_variance=noise_variance, num_candidates=num_candidates, rehearsal=rehearsal,
            average=average, standardize=standardize, **{**self.presets, **settings},
        )  # fmt: skip


_COMMON = tuple(name for name in keywords(FromFilter.__call__) if name != "spaces")


def from_filter(factory: Callable[..., Filter] | str, policy: str, **presets: Any) -> FromFilter:
    """The agent factory of a filter: (spaces, *, keywords of `hilofi` up to standardize and of the filter) -> agent.

    Args:
        factory: (network, likelihood, *, keywords) -> Filter, or "module:function". With a keyword `numerics`, acting
            and learning share the linearization if the policy linearizes too.
        policy: default policy of the agents.
        **presets: defaults of the filter's keywords.
    """
    return FromFilter(load(factory) if isinstance(factory, str) else factory, policy, presets)


def _of_filter(
    public: Callable[..., Agent],
    make_filter: Callable[..., Filter],
    *,
    spaces: HasSpaces,
    policy: str | Acquisition,
    model: Model | None,
    likelihood: Likelihood | None,
    noise_variance: float,
    num_candidates: int | None,
    rehearsal: Rehearsal | None,
    average: float,
    standardize: bool,
    **own: Any,
) -> Agent:
    """The agent of a filter with the settings `own`; `public` has their defaults."""
    checks.number("average", average, 0, 1)
    name, settings = public.__name__, dict(own)
    if likelihood is not None:
        refuse_unused(public, {"noise_variance": noise_variance}, "with a likelihood, which has its own")
    acquisition, called = policies.resolve(policy)
    inside = standard_spaces(spaces) if checks.flag("standardize", standardize) else spaces
    network = network_for(inside, model)
    network = standard_actions(network, inside) if standardize else network
    if "initial_std_table" in own and not network.tables:
        table = {"initial_std_table": own["initial_std_table"]}
        refuse_unused(public, table, "on a network without embedding tables")
    if "numerics" in inspect.signature(make_filter).parameters:
        # An average of means acts elsewhere than the filter linearizes.
        share = acquisition.needs == "joint" and not average
        settings["numerics"] = own.get("numerics", Numerics())._replace(share_linearization=share)
    flt = make_filter(network, likelihoods.gaussian(noise_variance) if likelihood is None else likelihood, **settings)
    actions = spaces.action_space
    many = isinstance(actions, gym_spaces.Discrete) and int(actions.n) > _MANY
    row_by_row = many and isinstance(spaces.observation_space, gym_spaces.Dict)
    learner = filters.learner(flt, network.init, row_by_row=row_by_row)
    told = {"policy": called, "noise_variance": noise_variance if likelihood is None else "likelihood", **own}
    told["standardize"] = standardize
    if told.get("numerics") == Numerics():
        del told["numerics"]
    if rehearsal is not None:
        learner = rehearsing(learner, flt, rehearsal, inside)
        told["rehearsal"] = {**rehearsal._asdict(), "memory": rehearsal.memory.capacity}
    if average != 0:
        if flt.recenter is None:
            raise ValueError(f"the belief of {name} has no mean to average: leave out average={average}")
        learner = averaging(learner, average, *_mean_of(flt, rehearsal is not None))
        told["average"] = average
    if standardize:
        learner = standardized(learner, spaces)
    return agent(learner, acquisition, spaces, name=name, settings=told, num_candidates=num_candidates)


def _mean_of(flt: Filter, rehearses: bool) -> tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]:
    recenter = flt.recenter
    assert recenter is not None
    if not rehearses:
        return flt.mean, recenter
    return (
        lambda state: flt.mean(state.belief),
        lambda state, params: state._replace(belief=recenter(state.belief, params)),
    )
