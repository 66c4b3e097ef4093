"""An experiment: copy to seqdec/commands/jackpot.py.

Registry, EXPERIMENTS of seqdec/commands/__init__.py:

    "jackpot": "seqdec.commands.jackpot:Jackpot",
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from seqdec import envs
from seqdec.commands.bandits import Bandit
from seqdec.core import Environment


@dataclass(frozen=True, kw_only=True)
class Jackpot(Bandit):
    """Bandit of five Bernoulli arms."""

    name: ClassVar[str] = "jackpot"

    agents: str = "ekf,ekf+greedy"
    steps: int = 200
    seeds: int = 2
    out: Path = Path("results/jackpot")

    def environment(self) -> Environment:
        """The arms."""
        return envs.bernoulli((0.1, 0.3, 0.5, 0.7, 0.9))
