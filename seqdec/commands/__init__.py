"""Experiments by name, imported on first use."""

from collections.abc import Mapping

from seqdec.commands.base import Experiment, Quick, is_experiment
from seqdec.registry import Outside, Registry

EXPERIMENTS: Mapping[str, str] = {
    "digits": "seqdec.commands.digits:Digits",
}
"""`seqdec run NAME`; others are in `reproduction/`."""

COMMANDS: Mapping[str, str] = {
    "sweep": "seqdec.commands.sweep:Sweep",
    "tune": "seqdec.commands.tune:Tune",
    "ope": "seqdec.commands.ope:Evaluation",
    "monitor": "seqdec.commands.monitor:Monitor",
    "bench": "seqdec.commands.bench:Bench",
}
"""`seqdec NAME`."""

_OUTSIDE = Outside(
    "seqdec.experiments",
    "a dataclass with the fields and methods of seqdec.commands.base.Quick, such as a subclass of "
    "seqdec.commands.bandits.Bandit",
    fits=is_experiment,
    hint=". The papers' experiments are found in a clone of https://github.com/seqdec/seqdec: run the command there",
)

REGISTRY: Registry[Quick] = Registry("experiment", EXPERIMENTS, outside=_OUTSIDE)
"""Those of `seqdec run`."""

EVERY: Registry[Experiment] = Registry("experiment", EXPERIMENTS, COMMANDS, outside=_OUTSIDE)
"""All, by the name in their manifest."""
