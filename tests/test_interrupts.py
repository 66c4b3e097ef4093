"""The command in a process of its own, interrupted: exit code 130, one line, and what was finished is kept."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seqdec.commands.folder import load_runs, read_manifest

# The child calls a function before it starts the command, so it is forked, of which JAX warns.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning")

COMMAND = str(Path(sys.executable).with_name("seqdec"))
LONG = ("run", "digits", "--steps", "200000", "--agents", "linear,lrkf", "--seeds", "1", "--out")


def start(*arguments: str) -> subprocess.Popen[str]:
    def listen() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs start with it ignored

    return subprocess.Popen(
        [COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=listen
    )


def interrupted(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, output and complaint of a process that receives SIGINT now."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=100)
    return process.returncode, out, err


def finished(folder: Path) -> bool:
    """Whether a run is saved."""
    return (folder / "manifest.json").exists() and bool(read_manifest(folder)["runs"])


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.4, 0.8, 3.0])
def test_ctrl_c_is_quiet_at_any_time(seconds: float, tmp_path: Path) -> None:
    with start(*LONG, str(tmp_path)) as process:
        time.sleep(seconds)
        code, _, err = interrupted(process)
    assert (code, err) == (130, "seqdec: interrupted\n")


@pytest.mark.slow
def test_ctrl_c_keeps_the_finished_runs(tmp_path: Path) -> None:
    options = ("--agents", "linear,auto", "--steps", "6000", "--seeds", "1", "--out", str(tmp_path))
    with start(*LONG[:2], *options) as process:
        while process.poll() is None and not finished(tmp_path):
            time.sleep(0.1)
        code, out, err = interrupted(process)
    assert (code, err.splitlines()[-1]) == (130, "seqdec: interrupted") and "linear" in out  # below lines of progress
    assert next(iter(load_runs(tmp_path))) == "linear" and (tmp_path / "summary.csv").exists()


@pytest.mark.slow
def test_exit_codes_of_the_installed_command(tmp_path: Path) -> None:
    missing, damaged = ("report", str(tmp_path / "missing")), ("report", str(tmp_path))
    (tmp_path / "manifest.json").write_text("{")
    for arguments, code in ((("list",), 0), (("run", "digitz"), 2), (missing, 2), (damaged, 1)):
        with start(*arguments) as process:
            out, err = process.communicate(timeout=100)
        assert process.returncode == code and len(err.splitlines()) == (code > 0) and bool(out) == (code == 0)
