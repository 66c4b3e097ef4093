"""Downloads with progress on standard error."""

from collections.abc import Callable
from typing import Any


def downloader(timeout: float) -> Callable[[str, Any, Any], None]:
    """The `downloader` of `pooch.retrieve`; `timeout` is in seconds."""

    def download(url: str, file: Any, source: Any) -> None:
        import pooch

        from seqdec.progress import bar

        # pooch sets the total.
        with bar(1, url.rpartition("/")[2], "B", unit_scale=True, leave=False) as shown:
            pooch.HTTPDownloader(progressbar=shown, timeout=timeout)(url, file, source)  # pyright: ignore (its stubs)

    return download
