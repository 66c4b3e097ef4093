"""Folders of data sets, downloads, truncated text files."""

import os
from pathlib import Path
from typing import Any

from seqdec.persistence import located


def data_folder(name: str) -> Path | None:
    """The folder `name` in $SEQDEC_DATA; None where that is not set."""
    home = os.environ.get("SEQDEC_DATA")
    return located(home) / name if home else None


def downloader(timeout: float) -> Any:
    """A `downloader` of `pooch.retrieve`; `timeout` in seconds."""

    def download(url: str, output_file: Any, source: Any) -> None:
        import pooch

        from seqdec.progress import bar

        # pooch sets the total.
        with bar(1, url.rpartition("/")[2], "B", unit_scale=True, leave=False) as shown:
            pooch.HTTPDownloader(progressbar=shown, timeout=timeout)(url, output_file, source)  # pyright: ignore (its stubs)

    return download


def check_last_line(path: Path, remedy: str) -> None:
    """Raises ValueError, naming file and remedy, for an incomplete last line."""
    with path.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
        if file.read() != b"\n":
            raise ValueError(f"{path} is cut: its last line has no end; {remedy}")
