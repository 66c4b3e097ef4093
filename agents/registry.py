"""Agents by name, and their capabilities."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from seqdec.agents import filtered, trained
from seqdec.core import Agent, HasSpaces
from seqdec.registry import Outside, Registry, keywords


class Capabilities(NamedTuple):
    """The kind, spaces and keywords of an agent."""

    kind: str
    """"filter"; "network", trained by an optimizer, without uncertainty; "head", a trained network with a belief about
    its responses; "regression"; "process", a Gaussian process; or "baseline". Outside the library: "filter" with the
    keywords of all filters, else "regression" with `policy`, else "baseline"
    """
    spaces: frozenset[str] = frozenset({"contexts", "points", "features", "ids"})
    """"contexts", Box or Discrete observations and Discrete actions; "points", Box actions; "features" and "ids",
    observations that are a Dict of candidates with numbers, with row numbers of tables; "sparse", contexts of a
    `seqdec.features.SparseBox` and Discrete actions
    """
    policy: bool = True
    """takes `policy`"""
    model: bool = False
    """takes `model`"""
    learning_rate: bool = False
    """takes `learning_rate`"""
    rehearses: bool = False
    """takes `rehearsal`"""
    rank: str | None = None
    """keyword of the rank of its covariance, or of the hidden layers'; None: none"""
    process_noise: tuple[str, ...] = ()
    """keywords of process noise, the hidden layers' first"""

    @property
    def uncertain(self) -> bool:
        """Whether it has a belief about expected responses, for any policy."""
        return self.kind not in ("network", "baseline")


class Entry(NamedTuple):
    """A row of the registry."""

    factory: Callable[..., Agent] | str
    """(spaces, *, keywords) -> agent, or "module:function", imported on first use"""
    capabilities: Capabilities


FILTER = Capabilities("filter", model=True, rehearses=True)
_RANKED = FILTER._replace(rank="rank")
_DRIFTING = _RANKED._replace(process_noise=("process_noise",))
NETWORK = Capabilities("network", model=True, learning_rate=True)
HEAD = Capabilities("head", model=True, learning_rate=True)
_EVERYWHERE = Capabilities("").spaces | {"sparse"}
_OF_FILTERS = frozenset({"policy", "likelihood", "noise_variance", "standardize"})
_LAYERS = ("process_noise_hidden", "process_noise_last")

AGENTS: Mapping[str, Entry] = {
    "adamw": Entry(trained.adamw, NETWORK),
    "auto": Entry(
        "seqdec.agents.regression.auto:auto", Capabilities("regression", _EVERYWHERE, model=True, learning_rate=True)
    ),
    "ekf": Entry(filtered.ekf, FILTER._replace(process_noise=("process_noise",))),
    "ensemble": Entry("seqdec.agents._neural.ensemble:ensemble", HEAD),
    "gp": Entry("seqdec.agents._gp:gp", Capabilities("process", frozenset({"contexts", "points", "features"}))),
    "hashed": Entry("seqdec.agents.regression.hashed:hashed", Capabilities("regression", frozenset({"sparse"}))),
    "hilofi": Entry(filtered.hilofi, _RANKED._replace(process_noise=_LAYERS)),
    "last_layer_laplace": Entry("seqdec.agents._neural.laplace:last_layer_laplace", HEAD),
    "koala++": Entry(trained.koala_plus_plus, NETWORK),
    "linear": Entry("seqdec.agents.regression.linear:linear", Capabilities("regression")),
    "lofi": Entry(filtered.lofi, _DRIFTING),
    "lolofi": Entry(filtered.lolofi, FILTER._replace(rank="rank_hidden", process_noise=_LAYERS)),
    "lrkf": Entry(filtered.lrkf, _DRIFTING),
    "muon": Entry(trained.muon, NETWORK),
    "neural_linear": Entry("seqdec.agents._neural.neural_linear:neural_linear", HEAD),
    "on_vbll": Entry("seqdec.agents._neural.vbll:on_vbll", HEAD),
    "pooled": Entry("seqdec.agents.regression.pooled:pooled", Capabilities("regression", frozenset({"contexts"}))),
    "popularity": Entry("seqdec.agents.recommender:popularity", Capabilities("baseline", frozenset({"ids"}))),
    "random": Entry("seqdec.agents.recommender:random", Capabilities("baseline", _EVERYWHERE, policy=False)),
    "replay_adamw": Entry(trained.replay_adamw, NETWORK),
    "replay_koala++": Entry(trained.replay_koala_plus_plus, NETWORK),
    "replay_muon": Entry(trained.replay_muon, NETWORK),
    "replay_sgd": Entry(trained.replay_sgd, NETWORK),
    "subspace": Entry(filtered.subspace, _RANKED),
    "vbll": Entry("seqdec.agents._neural.vbll:vbll", HEAD),
}
"""Agents of the library."""

REGISTRY: Registry[Agent] = Registry(
    "agent",
    {name: entry.factory for name, entry in AGENTS.items()},
    outside=Outside("seqdec.agents", "a function (spaces, *, keywords) -> seqdec.core.Agent", Agent),
)


def names() -> tuple[str, ...]:
    """The names that `make` knows, sorted."""
    return REGISTRY.names()


def make(name: str, spaces: HasSpaces, **options: Any) -> Agent:
    """The agent called `name`, for an environment or other `spaces`; `options` go to its function in `seqdec.agents`.

    Raises:
        ValueError: unknown name, with a suggestion.
        ValueError, TypeError: an option or a space does not fit.
    """
    return REGISTRY.make(name, spaces, **options)


def capabilities(name: str) -> Capabilities:
    """Capabilities of the agent called `name`; outside the library, from its keywords.

    Raises ValueError, with a suggestion, for an unknown name.
    """
    if name in AGENTS:
        return AGENTS[name].capabilities
    factory = REGISTRY[name]
    known = factory.keywords if isinstance(factory, filtered.FromFilter) else keywords(factory)
    kind = "regression" if "policy" in known else "baseline"
    return Capabilities(
        "filter" if set(known) >= _OF_FILTERS else kind,
        policy="policy" in known,
        model="model" in known,
        learning_rate="learning_rate" in known,
        rehearses="rehearsal" in known,
        rank=next((word for word in ("rank_hidden", "rank") if word in known), None),
        process_noise=tuple(word for word in (*_LAYERS, "process_noise") if word in known),
    )
