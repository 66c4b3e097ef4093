"""Agents of an experiment by "kind" or "kind+policy", such as hilofi+greedy."""

from collections.abc import Collection, Mapping
from typing import Any

import jax

from seqdec import agents
from seqdec.core import Agent


def split(name: str, known: Collection[str]) -> tuple[str, str]:
    """("kind", "policy") of "kind+policy", the policy "" if there is none; kinds such as koala++ contain "+"."""
    kind = next((kind for kind in known if f"{name}+".startswith(f"{kind}+")), name.partition("+")[0])
    return kind, name[len(kind) + 1 :]


def has_filter(kind: str) -> bool:
    """Whether the agent is a filter with a policy, to which `filter_settings` applies."""
    return "noise_variance" in agents.REGISTRY.parameters(kind)


def filter_settings(
    kind: str, tuned: Mapping[str, Any], *, rank: int | None, process_noise: float | None
) -> dict[str, Any]:
    """Rank and process noise, unless None, as keywords of the agent called `kind`.

    Where an agent has several, they are those of the hidden layers. HiLoFi's last layer has the same process noise
    unless `tuned` gives it another.
    """
    given = {
        "rank": rank,
        "rank_hidden": rank,
        "process_noise": process_noise,
        "process_noise_hidden": process_noise,
        "process_noise_last": tuned.get("process_noise_last", process_noise) if kind == "hilofi" else None,
    }
    known = agents.REGISTRY.parameters(kind)
    return {keyword: value for keyword, value in given.items() if value is not None and keyword in known}


def checked(agent: Agent, name: str) -> Agent:
    """The agent under `name`. Raises ValueError where a setting does not fit the network, without computing."""
    jax.eval_shape(agent.init, jax.random.key(0))
    return agent._replace(name=name)
