"""Progress on standard error: a bar on a terminal, lines elsewhere."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tqdm import tqdm

_FIRST, _LONGEST = 5.0, 60.0
"""Seconds before the first line, doubled up to the longest pause."""
_LINE = "{l_bar} {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_fmt}{postfix}]"
_COMPILING = "compiling"


def bar(total: int, title: str, unit: str, *, show: bool | None = None, **options: Any) -> tqdm:
    """A bar of tqdm, a context manager.

    Args:
        total: final value.
        title: text in front of the bar.
        unit: unit of the total.
        show: True: a bar anywhere; False: nothing; None: a bar on a terminal, else lines.
        **options: options of tqdm.
    """
    options = {"total": total, "desc": title, "unit": unit, **options}
    if sys.stderr is None:  # of a service or a program without a console
        show = False
    elif show is None and not sys.stderr.isatty():
        return _Lines(**options)
    made = tqdm(**options, disable=show is False, dynamic_ncols=True)
    made.postfix = None  # which a disabled one lacks
    return made


def compiling(shown: tqdm, seconds: float | None = None) -> None:
    """Show that programs are compiled, in about so many seconds if known, until `advance`."""
    shown.set_postfix_str(_COMPILING if seconds is None else f"{_COMPILING} (about {max(1, round(seconds))} s)")


def advance(shown: tqdm, steps: int = 1) -> None:
    """Add `steps` to the bar; those after compiling count their time from here on."""
    if (shown.postfix or "").startswith(_COMPILING):
        shown.set_postfix_str("")
        shown.start_t = shown.last_print_t = time.time()
    shown.update(steps)


@contextmanager
def noted(text: str) -> Iterator[None]:
    """Write a line on standard error where this takes long."""
    timer = threading.Timer(_FIRST, _write, (text,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _write(text: Any) -> None:
    with suppress(OSError, ValueError):  # nobody reads standard error any more
        print(text, file=sys.stderr, flush=True)


class _Lines(tqdm):
    """Lines from a thread, also while nothing advances."""

    def __init__(self, **options: Any) -> None:
        # Without the displays of `update` and `close`.
        super().__init__(**options, bar_format=_LINE, delay=float("inf"), mininterval=float("inf"))
        self._closed, self._begun = threading.Event(), False
        threading.Thread(target=self._report, daemon=True).start()

    def _report(self) -> None:
        pause = _FIRST
        while not self._closed.wait(pause):
            self._begun = True
            _write(self)
            pause = min(2 * pause, _LONGEST)

    def display(self, *_: Any, **__: Any) -> None:
        """Lines have their own time."""

    def close(self) -> None:
        if not self._closed.is_set():
            self._closed.set()
            if self._begun:
                _write(self)
        super().close()
