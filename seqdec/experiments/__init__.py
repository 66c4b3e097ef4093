"""Experiments by name. Their modules are imported on first use."""

from collections.abc import Mapping

from seqdec.experiments.base import Experiment, Quick, is_experiment
from seqdec.registry import Outside, Registry

EXPERIMENTS: Mapping[str, str] = {
    "digits": "seqdec.experiments.digits:Digits",
    "mnist": "seqdec.experiments.mnist:MNIST",
    "fashion-mnist": "seqdec.experiments.mnist:FashionMNIST",
    "classify": "seqdec.experiments.classify:Classify",
    "cifar": "seqdec.experiments.cifar:CIFAR",
    "in-between": "seqdec.experiments.in_between:InBetween",
    "kuairec": "seqdec.experiments.kuairec:KuaiRec",
    "tabular": "seqdec.experiments.tabular:Tabular",
    "bo": "seqdec.experiments.bo:Optimization",
    "nonstationary": "seqdec.experiments.nonstationary:Nonstationary",
    "outliers": "seqdec.experiments.outliers:Outliers",
    "optimizers": "seqdec.experiments.optimizers:Optimizers",
}
"""`seqdec run NAME`: the options class, which satisfies `Experiment`."""

COMMANDS: Mapping[str, str] = {
    "sweep": "seqdec.experiments.sweep:Sweep",
    "tune": "seqdec.experiments.tune:Tune",
    "ope": "seqdec.experiments.evaluation:Evaluation",
    "monitor": "seqdec.experiments.monitor:Monitor",
    "bench": "seqdec.experiments.bench:Bench",
}
"""`seqdec NAME`: experiments that are commands themselves."""

_OUTSIDE = Outside(
    "seqdec.experiments",
    "a dataclass with the fields and methods of seqdec.experiments.base.Quick, such as a subclass of "
    "seqdec.experiments.bandits.Bandit",
    fits=is_experiment,
)

REGISTRY: Registry[Quick] = Registry("experiment", EXPERIMENTS, outside=_OUTSIDE)
"""The experiments of `seqdec run`."""

EVERY: Registry[Experiment] = Registry("experiment", EXPERIMENTS, COMMANDS, outside=_OUTSIDE)
"""All experiments, by the name in their manifest."""
