"""Keywords of agents for type checkers and editors, where the functions themselves are made by other functions.

`help` and `inspect` show the signatures with their defaults; `tests/test_typing.py` compares the two.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypedDict, Unpack

from seqdec.agents._neural.loop import Head
from seqdec.agents.wrappers.rehearsal import Rehearsal
from seqdec.core import Acquisition, Agent, Array, HasSpaces, Network
from seqdec.filters import Numerics
from seqdec.filters.covariance import ProcessNoise
from seqdec.filters.embeddings import TableStd
from seqdec.likelihoods import Likelihood
from seqdec.memory import Memory
from seqdec.modules import Model


class _Options(TypedDict, total=False):
    """Keywords that the agents of all filters take, apart from model and policy."""

    likelihood: Likelihood | None
    noise_variance: float
    num_candidates: int | None
    rehearsal: Rehearsal | None
    average: float
    standardize: bool
    initial_std_table: TableStd
    numerics: Numerics


class BeliefOptions(_Options, total=False):
    """Keywords that the agents of all filters take, apart from the model."""

    policy: str | Acquisition


class FilterOptions(BeliefOptions, total=False):
    """Keywords that the agents of all filters take."""

    model: Model | None


class FilterAgent(Protocol):
    """The factory of a filter's agent."""

    __name__: str

    def __call__(self, spaces: HasSpaces, **settings: Any) -> Agent:
        """The agent; `settings` are those of `FilterOptions` and the keywords of the filter."""
        ...


class Dense(Protocol):
    """`seqdec.agents.ekf`."""

    __name__: str

    def __call__(
        self,
        spaces: HasSpaces,
        *,
        initial_std: Array | float = ...,
        process_noise: ProcessNoise = ...,
        **options: Unpack[FilterOptions],
    ) -> Agent:
        """The agent."""
        ...


class LoFi(Protocol):
    """`seqdec.agents.lofi`."""

    __name__: str

    def __call__(
        self,
        spaces: HasSpaces,
        *,
        rank: int = ...,
        initial_std: Array | float = ...,
        process_noise: ProcessNoise = ...,
        spare: int = ...,
        **options: Unpack[FilterOptions],
    ) -> Agent:
        """The agent."""
        ...


class LRKF(Protocol):
    """`seqdec.agents.lrkf`."""

    __name__: str

    def __call__(
        self,
        spaces: HasSpaces,
        *,
        rank: int = ...,
        initial_std: Array | float = ...,
        process_noise: ProcessNoise = ...,
        initial_span: str = ...,
        **options: Unpack[FilterOptions],
    ) -> Agent:
        """The agent."""
        ...


class Subspace(Protocol):
    """`seqdec.agents.subspace`."""

    __name__: str

    def __call__(
        self,
        spaces: HasSpaces,
        *,
        rank: int = ...,
        initial_std: Array | float = ...,
        **options: Unpack[FilterOptions],
    ) -> Agent:
        """The agent."""
        ...


class HiLoFi(Protocol):
    """`seqdec.agents.hilofi`."""

    __name__: str

    def __call__(
        self,
        spaces: HasSpaces,
        *,
        rank: int = ...,
        initial_std_hidden: Array | float = ...,
        initial_std_last: Array | float = ...,
        process_noise_hidden: ProcessNoise = ...,
        process_noise_last: ProcessNoise = ...,
        initial_span: str = ...,
        per_output: bool = ...,
        **options: Unpack[FilterOptions],
    ) -> Agent:
        """The agent."""
        ...


class LoLoFi(Protocol):
    """`seqdec.agents.lolofi`."""

    __name__: str

    def __call__(
        self,
        spaces: HasSpaces,
        *,
        rank_hidden: int = ...,
        rank_last: int | None = ...,
        initial_std_hidden: Array | float = ...,
        initial_std_last: Array | float = ...,
        process_noise_hidden: ProcessNoise = ...,
        process_noise_last: ProcessNoise = ...,
        initial_span: str = ...,
        **options: Unpack[FilterOptions],
    ) -> Agent:
        """The agent."""
        ...


class TrainedOptions(TypedDict, total=False):
    """Keywords of `seqdec.agents.neural` that the networks with an optimizer of their own pass on."""

    head: Callable[[Network], Head] | None
    policy: str | Acquisition
    model: Model | None
    memory: Memory | None
    batch_size: int | None
    num_candidates: int | None


class ReplayOptions(TypedDict, total=False):
    """Keywords of `seqdec.agents.neural` that the networks with replay pass on."""

    head: Callable[[Network], Head] | None
    model: Model | None
    inner_steps: int
    num_candidates: int | None


class Replay(Protocol):
    """`seqdec.agents.replay_adamw` and its like."""

    __name__: str

    def __call__(
        self,
        spaces: HasSpaces,
        *,
        policy: str | Acquisition = ...,
        learning_rate: float = ...,
        batch_size: int | None = ...,
        capacity: int = ...,
        **options: Unpack[ReplayOptions],
    ) -> Agent:
        """The agent."""
        ...


class LinearOptions(_Options, total=False):
    """Keywords of `seqdec.agents.linear`: of the regression, and of the filter for candidates and Box actions."""

    policy: str | Acquisition | None
    half_life: float | None
    intercepts: bool
    initial_std: Array | float
    process_noise: ProcessNoise


class ScorerOptions(BeliefOptions, total=False):
    """Keywords that the linear filter for candidates passes on to `seqdec.agents.ekf`."""

    initial_std: Array | float
    process_noise: ProcessNoise


class VariationalOptions(TypedDict, total=False):
    """Keywords of `seqdec.agents.variational` without `regularization`."""

    head: str
    prior_std: float
    noise_variance: float
    degrees: float
    scale: float


class RegularizedOptions(VariationalOptions, total=False):
    """Keywords of `seqdec.agents.variational`."""

    regularization: float
