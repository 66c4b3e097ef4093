"""Checks that the readers of text files share."""

import os
from pathlib import Path


def check_last_line(path: Path, remedy: str) -> None:
    """Refuse a text file that does not end with a whole line. Raises ValueError naming the file and the remedy."""
    with path.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
        if file.read() != b"\n":
            raise ValueError(f"{path} is cut: its last line has no end; {remedy}")
