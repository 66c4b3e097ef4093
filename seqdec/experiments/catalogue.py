"""Everything that has a name, for `seqdec list`."""

import gymnasium

from seqdec import agents, envs, experiments, policies


def catalogue() -> dict[str, dict[str, str]]:
    """Kind -> name -> one line of description."""
    environments = {name: _first_line(getattr(envs, name.replace("-", "_"))) for name in envs.names()}
    ids = [spec for spec in gymnasium.registry.values() if spec.id.startswith("seqdec/")]
    return {
        "experiments": {name: experiments.EVERY.describe(name) for name in experiments.EVERY},
        "agents": {name: agents.REGISTRY.describe(name) for name in agents.names()},
        "policies": {name: policies.REGISTRY.describe(name) for name in policies.names()},
        "environments": environments,
        "gymnasium ids": {spec.id: environments[spec.kwargs["name"]] for spec in ids},
    }


def _first_line(thing: object) -> str:
    return (thing.__doc__ or "").strip().partition("\n")[0]
