"""Search ranges of agents' settings, by keyword, on a logarithmic scale."""

from collections.abc import Mapping

RANGES: Mapping[str, tuple[float, float]] = {
    "noise_variance": (1e-4, 1.0),
    "initial_std": (1e-2, 10.0),
    "initial_std_hidden": (1e-2, 10.0),
    "initial_std_last": (1e-3, 10.0),
    "last_layer_std": (1e-2, 10.0),
    "prior_std": (1e-3, 10.0),
    "process_noise": (1e-8, 1e-1),
    "process_noise_hidden": (1e-8, 1e-1),
    "process_noise_last": (1e-8, 1e-1),
    "learning_rate": (1e-5, 1e-1),
    "length_scale": (1e-2, 1e4),
}
"""keyword -> (lowest, highest)"""

_OWN: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "koala++": {"learning_rate": (1e-2, 1e2)},
    "replay_koala++": {"learning_rate": (1e-2, 1e2)},
}
"""agent -> keyword -> a range of its own"""


def ranges(kind: str, defaults: Mapping[str, object]) -> dict[str, tuple[float, float]]:
    """The ranges of the agent called `kind`, by keyword.

    Args:
        kind: name of the agent.
        defaults: values of its keywords; 0 stays 0, values other than numbers are left out.
    """
    known = {**RANGES, **_OWN.get(kind, {})}
    numbers = [name for name, value in defaults.items() if isinstance(value, float | int) and value > 0]
    return {name: known[name] for name in known if name in numbers}
