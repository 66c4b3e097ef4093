"""A service of a small agent, and a clock that tests turn."""

import sys
from pathlib import Path
from typing import Any

import seqdec

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "benchmarks")]

import online_exceptions as exceptions  # noqa: E402  # pyright: ignore[reportMissingImports]

X = exceptions.X


class Clock:
    """In place of the system's, in seconds."""

    def __init__(self) -> None:
        self.seconds = 1e9

    def __call__(self) -> int:
        return int(self.seconds * 1e9)


def service(folder: Path | None = None, **options: Any) -> seqdec.OnlineAgent:
    return seqdec.OnlineAgent(exceptions.means, exceptions.SITE, seed=0, folder=folder, **options)
