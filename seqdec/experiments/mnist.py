"""The bandit on the images of MNIST."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from seqdec.experiments.bandits import Bandit


@dataclass(frozen=True, kw_only=True)
class MNIST(Bandit):
    """Bandit on the 60,000 images of MNIST with LeNet5: ten arms, reward 1 for the right one."""

    name: ClassVar[str] = "mnist"
    tuned: ClassVar[dict[str, dict[str, Any]]] = {
        # A tight prior on the last layer keeps its weights small, and with them the gradients that train the layers
        # below; a wide prior or a fast one on the hidden layers explores at the start.
        "hilofi": {
            "initial_std_hidden": 3.0,
            "initial_std_last": 0.01,
            "process_noise_hidden": 1e-3,
            "process_noise_last": 0.0,
        },
        "lolofi": {"policy": "epistemic_sampling", "initial_std_last": 0.1, "process_noise_hidden": 3e-4},
        "lrkf": {"policy": "epistemic_sampling", "process_noise": 3e-4},
    }

    agents: str = "hilofi,lolofi,lrkf"
    steps: int = 5000
    seeds: int = 1
    out: Path = Path("results/mnist")
