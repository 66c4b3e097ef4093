"""Everything that has a name, for `seqdec list`."""

from typing import Any

import gymnasium

from seqdec import agents, commands, envs, policies
from seqdec.registry import Registry

_KINDS: dict[str, Registry[Any]] = {
    "experiments": commands.EVERY,
    "agents": agents.REGISTRY,
    "policies": policies.REGISTRY,
    "environments": envs.REGISTRY,
}


def catalog() -> dict[str, dict[str, str]]:
    """Kind -> name -> one line of description, with the package of names from outside; kinds without names left out."""
    found = {kind: {name: _line(registry, name) for name in _ordered(registry)} for kind, registry in _KINDS.items()}
    ids = [spec for spec in gymnasium.registry.values() if spec.id.startswith("seqdec/")]
    found["gymnasium ids"] = {spec.id: found["environments"][spec.kwargs["name"]] for spec in ids}
    found["without effect"] = {name: why for one in _KINDS.values() for name, why in one.ignored().items()}
    return {kind: names for kind, names in found.items() if names}


def _ordered(registry: Registry[Any]) -> tuple[str, ...]:
    """The names: experiments in the order of the registry."""
    return tuple(registry) if registry is commands.EVERY else registry.names()


def _line(registry: Registry[Any], name: str) -> str:
    """What a name stands for, or why it cannot be used."""
    if name in registry.own():
        return registry.describe(name)
    try:
        return f"{registry.describe(name)} ({registry.origin(name)})"
    except ValueError as error:
        return f"CANNOT BE USED: {error}"
