"""Bandits on images that can be put into other environments: their options and settings by data set."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from flax import linen as nn

from seqdec import envs
from seqdec.core import Environment
from seqdec.experiments.bandits import Bandit
from seqdec.experiments.base import Choice
from seqdec.experiments.digits import Digits
from seqdec.experiments.mnist import MNIST, FashionMNIST

DATASETS: Mapping[str, type[Bandit]] = {"digits": Digits, "mnist": MNIST, "fashion-mnist": FashionMNIST}
"""Data sets, with the experiment whose network and settings are used."""


@dataclass(frozen=True, kw_only=True)
class Images(Bandit):
    """Options of bandits on one of several data sets."""

    name: ClassVar[str] = "images"
    choices: ClassVar[Mapping[str, Choice]] = {**Bandit.choices, "dataset": Choice("dataset", DATASETS)}

    dataset: str = "mnist"
    """Images: digits, mnist or fashion-mnist."""

    def plain(self) -> Environment:
        """The bandit on the images."""
        return envs.make(self.dataset)

    def network_of(self, kind: str, env: Environment) -> nn.Module | None:
        """That of the data set's own experiment."""
        del kind, env
        return DATASETS[self.dataset].model

    def presets(self, kind: str) -> dict[str, Any]:
        """Those of the data set's own experiment."""
        return dict(DATASETS[self.dataset].tuned.get(kind, {}))
