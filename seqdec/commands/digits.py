"""The bandit on scikit-learn's handwritten digits."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from flax import linen as nn

from seqdec import models
from seqdec.commands.bandits import Bandit


@dataclass(frozen=True, kw_only=True)
class Digits(Bandit):
    """Bandit on scikit-learn's 1,797 handwritten digits: ten arms, reward 1 for the right one.

    Data come with scikit-learn; the default run takes a few minutes.
    Example: seqdec run digits --agents auto,hilofi --seeds 3
    """

    name: ClassVar[str] = "digits"
    tuned: ClassVar[dict[str, dict[str, Any]]] = {
        "adamw": {"learning_rate": 3e-3, "inner_steps": 1},
        "lolofi": {"process_noise_hidden": 1e-2, "initial_std_last": 0.3, "rank_last": 50},
        "lrkf": {"process_noise": 1e-2},
    }
    model: ClassVar[nn.Module | None] = models.MLP(10, features=(32, 32))

    quick_options: ClassVar[Mapping[str, Any]] = {"steps": 400, "seeds": 5}

    agents: str = "auto,hilofi,lolofi,lrkf,replay_adamw,random"
    steps: int = 1500
    seeds: int = 5
    out: Path = Path("results/digits")
    rank: int | None = 10
