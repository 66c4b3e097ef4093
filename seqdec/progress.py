"""Progress on standard error: a bar on a terminal, lines elsewhere."""

import sys
import threading
from contextlib import suppress
from typing import Any

from tqdm import tqdm

_FIRST, _LONGEST = 5.0, 60.0
"""Seconds before the first line, doubled up to the longest pause."""
_LINE = "{l_bar} {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_fmt}{postfix}]"
_COMPILING = "compiling"


def bar(total: int, title: str, unit: str, *, show: bool | None = None, **options: Any) -> tqdm:
    """A bar of tqdm, a context manager.

    Args:
        total: at the end.
        title: in front.
        unit: of the total.
        show: True: a bar anywhere; False: nothing; None: a bar on a terminal, else lines.
        **options: of tqdm.
    """
    options = {"total": total, "desc": title, "unit": unit, **options}
    if sys.stderr is None:  # of a service or a program without a console
        show = False
    elif show is None and not sys.stderr.isatty():
        return _Lines(**options)
    made = tqdm(**options, disable=show is False, dynamic_ncols=True)
    made.postfix = None  # which a disabled one lacks
    return made


def compiling(shown: tqdm) -> None:
    """Show that programs are compiled, until `advance`."""
    shown.set_postfix_str(_COMPILING)


def advance(shown: tqdm, steps: int = 1) -> None:
    """Add `steps` to the bar."""
    if shown.postfix == _COMPILING:
        shown.set_postfix_str("")
    shown.update(steps)


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
            self._write()
            pause = min(2 * pause, _LONGEST)

    def _write(self) -> None:
        with suppress(OSError, ValueError):  # nobody reads standard error any more
            print(self, file=sys.stderr, flush=True)

    def display(self, *_: Any, **__: Any) -> None:
        """Lines have their own time."""

    def close(self) -> None:
        if not self._closed.is_set():
            self._closed.set()
            if self._begun:
                self._write()
        super().close()
