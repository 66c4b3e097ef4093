"""Downloads with progress on standard error."""

from typing import Any


def downloader(timeout: float) -> Any:
    """The `downloader` of `pooch.retrieve`; `timeout` is in seconds."""

    def download(url: str, output_file: Any, source: Any) -> None:
        import pooch

        from seqdec.progress import bar

        # pooch sets the total.
        with bar(1, url.rpartition("/")[2], "B", unit_scale=True, leave=False) as shown:
            pooch.HTTPDownloader(progressbar=shown, timeout=timeout)(url, output_file, source)  # pyright: ignore (its stubs)

    return download
