"""The entry of the command `seqdec`, which Ctrl-C ends with exit code 130 at any moment.

It is beside the package because the package imports JAX, during which KeyboardInterrupt would be lost or print a
traceback.
"""

import io
import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import Any

_INTERRUPTED = 130


def main() -> int:
    """Run the command line of this process and return its exit code, or leave the process with it."""
    _open_streams()
    _search_here()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell
        return _command()
    signal.signal(signal.SIGINT, _leave_at_once)
    with suppress(ModuleNotFoundError):  # `_command` says so
        import seqdec.cli  # noqa: F401

    interrupts = _Interrupts()
    try:
        code = _command()
    except KeyboardInterrupt:  # once more, while the command dealt with the first
        code = _INTERRUPTED
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if interrupts.heard and code != 0:
        code = _INTERRUPTED
    if code:
        _leave(code)
    return code


def _search_here() -> None:
    """Let "module:function" find the modules of the working directory, the last place that is searched."""
    if not sys.flags.safe_path:
        with suppress(OSError):  # the folder is gone
            sys.path.append(os.getcwd())


def _open_streams() -> None:
    """Make standard output and error exist, and take every character; standard error drops what it cannot write."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (until the process ends)
    sys.stdout.reconfigure(errors="backslashreplace")  # pyright: ignore[reportAttributeAccessIssue] (a TextIOWrapper)
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(_Dropping(sys.stderr.fileno(), "w", closefd=False)),
        encoding=sys.stderr.encoding,
        errors="backslashreplace",
        line_buffering=True,
    )


class _Dropping(io.FileIO):
    """A file that drops what it cannot write."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(memoryview(data).cast("B"))


def _command() -> int:
    try:
        from seqdec.cli import main
    except ModuleNotFoundError as error:
        print(f"seqdec: {error}: the command needs the extra `full`: pip install 'seqdec[full]'", file=sys.stderr)
        return 2
    return main()


class _Interrupts:
    """Raises KeyboardInterrupt on Ctrl-C, and again if Python had to drop it in a finalizer or callback of JAX."""

    def __init__(self) -> None:
        self.heard, self._report = False, sys.unraisablehook
        signal.signal(signal.SIGINT, self._interrupt)
        sys.unraisablehook = self._dropped

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.heard = True
        raise KeyboardInterrupt

    def _dropped(self, dropped: Any) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            return self._report(dropped)
        again = threading.Timer(0.1, signal.raise_signal, (signal.SIGINT,))
        again.daemon = True
        again.start()


def _leave_at_once(number: int, frame: FrameType | None) -> None:
    """Ctrl-C before there is anything to save."""
    print("seqdec: interrupted", file=sys.stderr)
    _leave(_INTERRUPTED)


def _leave(code: int) -> None:
    """End the process without finalizing the interpreter, which would crash computations on XLA's threads."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
