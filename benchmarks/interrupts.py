"""Ctrl-C at many moments of a command: exit code, standard error and what is saved.

    python benchmarks/interrupts.py [--times 0.3 1 4 12] [--tries 3] [--agents lrkf,hilofi,lolofi]

`seqdec run digits --steps 2000` is started and receives SIGINT after so many seconds. It must end within a minute, with
exit code 130, or 0 if it had finished; with at most one line on standard error; with a folder from which every run
that its manifest lists can be read. Before Python has installed its handler of the signal, the signal kills the
process, which a shell reports as 130 too. Exits with 1 if anything else happens.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from seqdec.commands.folder import load_runs, read_manifest

TIMES = (0.1, 0.3, 0.6, 1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 20.0, 25.0)
PATIENCE = 60.0


def interrupted(seconds: float, folder: Path, arguments: list[str]) -> tuple[int, str]:
    """The exit code of a command interrupted after so many seconds, and its standard error."""
    program = str(Path(sys.executable).with_name("seqdec"))
    command = [program, "run", "digits", "--steps", "2000", *arguments, "--out", str(folder)]

    def listen() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs start with it ignored

    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=listen)
    try:
        _, stderr = process.communicate(timeout=seconds)
        return process.returncode, stderr
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    try:
        _, stderr = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        return -signal.SIGKILL, f"still running {PATIENCE:.0f} s after the signal\n{process.communicate()[1]}"
    return process.returncode, stderr


def faults(code: int, stderr: str, folder: Path) -> list[str]:
    """What is wrong with how a command ended."""
    found = [] if code in (0, 130, -signal.SIGINT) else [f"exit code {code}"]
    if len(stderr.splitlines()) > 1:
        found.append(f"standard error: {stderr}")
    if (folder / "manifest.json").exists() and read_manifest(folder)["runs"]:
        load_runs(folder)
    return found


def saved(folder: Path) -> int:
    """How many runs the manifest lists."""
    return len(read_manifest(folder)["runs"]) if (folder / "manifest.json").exists() else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--times", type=float, nargs="+", default=TIMES)
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--agents")
    asked = parser.parse_args()
    arguments = [] if asked.agents is None else ["--agents", asked.agents]
    failed = 0
    for seconds in asked.times:
        for _ in range(asked.tries):
            with tempfile.TemporaryDirectory() as place:
                began = time.perf_counter()
                code, stderr = interrupted(seconds, Path(place), arguments)
                wrong = faults(code, stderr, Path(place))
                after = time.perf_counter() - began - seconds
                print(
                    f"{seconds:5.1f} s: exit code {code}, {after:.1f} s later, {saved(Path(place))} runs saved", *wrong,
                    flush=True,
                )  # fmt: skip
                failed += bool(wrong)
    print(f"{failed} of {len(asked.times) * asked.tries} interruptions were not as they should be")
    sys.exit(bool(failed))
