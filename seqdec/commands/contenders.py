"""Agents by "kind:rank+policy.variant", as in hilofi:20+greedy; only the kind is required.

Variants: `rehearsal` adds a step of AdamW after each update; `published` has the paper's settings.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from seqdec import agents, memory
from seqdec.core import Agent
from seqdec.plugins import REFERENCE

_VARIANTS = ("rehearsal", "published")


class Contender(NamedTuple):
    """The parts of an agent's name."""

    kind: str
    rank: int | None
    """None if absent"""
    policy: str
    """empty if absent"""
    variant: str
    """empty if absent"""


def split(name: str, known: Collection[str]) -> Contender:
    """The parts of a name; a kind may contain "+" (koala++), or be "module:function".

    Raises ValueError for a rank that is not an integer, or a kind without rank or policy.
    """
    variant = next((variant for variant in _VARIANTS if name.endswith(f".{variant}")), "")
    name = name.removesuffix(f".{variant}")
    fitting = [kind for kind in known if name == kind or name.startswith((f"{kind}+", f"{kind}:"))]
    reference = REFERENCE.match(name)
    kind = fitting[0] if fitting else reference[0] if reference else re.split(r"[+:]", name)[0]
    rank, _, policy = name[len(kind) :].partition("+")
    if policy and kind in agents.REGISTRY and not agents.capabilities(kind).policy:
        raise ValueError(f"{name!r}: {kind} has no policy; leave out +{policy}")
    if not rank:
        return Contender(kind, None, policy, variant)
    if not rank[1:].isdigit() or not has_rank(kind):
        raise ValueError(f"{name!r}: a filter's rank is an integer after a colon, as in hilofi:20; {kind} got {rank}")
    return Contender(kind, int(rank[1:]), policy, variant)


def rehearsal(contender: Contender) -> dict[str, agents.Rehearsal]:
    """Keyword of the variant `rehearsal`. Raises ValueError for agents that cannot rehearse."""
    if contender.variant != "rehearsal":
        return {}
    if not agents.capabilities(contender.kind).rehearses:
        raise ValueError(f"{contender.kind}.rehearsal: only filters can rehearse")
    return {"rehearsal": agents.Rehearsal(memory.reservoir(20_000), updates=0, optimizer=optax.adamw(1e-3))}


def has_rank(kind: str) -> bool:
    """Whether agents `kind` have a rank."""
    return kind in agents.REGISTRY and agents.capabilities(kind).rank is not None


def has_filter(kind: str) -> bool:
    """Whether `filter_settings` applies: a filter with a policy."""
    return agents.capabilities(kind).kind == "filter"


def filter_settings(
    kind: str, tuned: Mapping[str, Any], *, rank: int | None, process_noise: float | None
) -> dict[str, Any]:
    """Rank and process noise of the hidden layers, unless None, as keywords, with raw contexts.

    HiLoFi's last layer shares the process noise unless `tuned` sets another.
    """
    own = agents.capabilities(kind)
    given = {own.rank: rank} if own.rank else {}
    given |= dict.fromkeys(own.process_noise[:1], process_noise)
    if kind == "hilofi":
        given["process_noise_last"] = tuned.get("process_noise_last", process_noise)
    return {"standardize": False, **{keyword: value for keyword, value in given.items() if value is not None}}


def checked(agent: Agent, name: str) -> Agent:
    """The agent. Raises ValueError for unfit settings, without computing."""
    jax.eval_shape(agent.init, jax.random.key(0))
    return agent._replace(name=name)


def without_propensities(agent: Agent) -> Agent:
    """The agent without propensities, so that they are not computed."""

    def act(key, state, observation):
        return agent.act(key, state, observation)._replace(propensity=jnp.full((), jnp.nan))

    return agent._replace(act=act)
