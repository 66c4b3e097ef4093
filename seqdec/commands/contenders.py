"""Agents of an experiment by "kind:rank+policy.variant", as in hilofi:20+greedy; all but the kind may be missing.

Variants: `rehearsal` moves the mean by a step of AdamW after each update; `published` has the settings of the paper.
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
    """None where the name has none"""
    policy: str
    """"" where the name has none"""
    variant: str
    """"" where the name has none"""


def split(name: str, known: Collection[str]) -> Contender:
    """The parts of "kind:rank+policy.variant"; kinds such as koala++ contain "+", and "module:function" is a kind.

    Raises ValueError where the rank is not an integer, or the kind has no rank or no policy.
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
    """Keyword of the variant `rehearsal`. Raises ValueError where agents of that kind cannot rehearse."""
    if contender.variant != "rehearsal":
        return {}
    if not agents.capabilities(contender.kind).rehearses:
        raise ValueError(f"{contender.kind}.rehearsal: only filters can rehearse")
    return {"rehearsal": agents.Rehearsal(memory.reservoir(20_000), updates=0, optimizer=optax.adamw(1e-3))}


def has_rank(kind: str) -> bool:
    """Whether agents called `kind` have a rank."""
    return kind in agents.REGISTRY and agents.capabilities(kind).rank is not None


def has_filter(kind: str) -> bool:
    """Whether the agent is a filter with a policy, to which `filter_settings` applies."""
    return agents.capabilities(kind).kind == "filter"


def filter_settings(
    kind: str, tuned: Mapping[str, Any], *, rank: int | None, process_noise: float | None
) -> dict[str, Any]:
    """Rank and process noise, unless None, as keywords of the agent called `kind`, and contexts not standardized.

    Where an agent has several, they are those of the hidden layers. HiLoFi's last layer has the same process noise
    unless `tuned` gives it another.
    """
    own = agents.capabilities(kind)
    given = {own.rank: rank} if own.rank else {}
    given |= dict.fromkeys(own.process_noise[:1], process_noise)
    if kind == "hilofi":
        given["process_noise_last"] = tuned.get("process_noise_last", process_noise)
    return {"standardize": False, **{keyword: value for keyword, value in given.items() if value is not None}}


def checked(agent: Agent, name: str) -> Agent:
    """The agent under `name`. Raises ValueError where a setting does not fit the network, without computing."""
    jax.eval_shape(agent.init, jax.random.key(0))
    return agent._replace(name=name)


def without_estimate(agent: Agent) -> Agent:
    """The agent without the estimate of its propensity, which then costs nothing in a compiled loop."""

    def act(key, state, observation):
        return agent.act(key, state, observation)._replace(propensity=jnp.full((), jnp.nan))

    return agent._replace(act=act)
