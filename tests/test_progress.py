"""Progress on a terminal and elsewhere, and what the command says of itself."""

import errno
import http.server
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pooch
import pytest

import seqdec
from seqdec import cli, progress
from seqdec.commands import tune
from seqdec.commands.digits import Digits
from seqdec.data.files import downloader
from tests.toys import toy_agent, toy_env


def until(capsys: pytest.CaptureFixture[str], text: str) -> str:
    """Standard error from now on, up to a line with this text."""
    seen = ""
    for _ in range(1200):
        seen += capsys.readouterr().err
        if text in seen:
            return seen
        time.sleep(0.05)
    raise AssertionError(f"{text!r} is not in {seen!r}")


def test_lines_come_while_nothing_advances(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(progress, "_FIRST", 0.01)
    with progress.bar(10, "agent", "step") as shown:
        progress.compiling(shown)
        assert "\nagent:   0%| 0/10 [" in "\n" + until(capsys, "compiling]\n")
        progress.compiling(shown, 6.2)
        until(capsys, "compiling (about 6 s)]\n")
        shown.start_t -= 100
        progress.advance(shown, 4)
        assert shown.format_dict["elapsed"] < 50  # without what was compiled
        assert "compiling" not in until(capsys, "agent:  40%| 4/10 [").rpartition("40%")[2]
        progress.advance(shown, 6)
    assert "\r" not in until(capsys, "agent: 100%| 10/10 [")


def test_what_is_done_quickly_says_nothing(capsys: Any) -> None:
    with progress.bar(10, "agent", "step") as shown:
        progress.advance(shown, 10)
    with progress.bar(10, "agent", "step", show=False) as shown:
        progress.compiling(shown)
        progress.advance(shown)
    with progress.noted("compiling"):
        pass
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    seqdec.run(toy_agent(), toy_env(), 5, seed=0)
    shown = capsys.readouterr().err
    assert "compiling" in shown.split("\r")[2] and "5/5" in shown and "compiling" not in shown.split("\r")[-1]


def test_a_service_says_that_it_compiles(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(progress, "_FIRST", 1e-3)
    site: Any = seqdec.envs.make("linear")
    with seqdec.OnlineAgent(seqdec.agents.linear, site, seed=0) as one:
        token = one.decide(np.zeros(site.observation_space.shape, np.float32)).token
        assert capsys.readouterr().err == "linear: compiling\n"
        one.learn(token, 1.0)
        assert capsys.readouterr().err == "linear: compiling\n"
        one.decide(np.zeros(site.observation_space.shape, np.float32))
    assert capsys.readouterr().err == ""


def minimize() -> None:
    seqdec.minimize(lambda x: float(x[0] ** 2), [(-1, 1)], n_calls=4, initial=9, seed=0)


def run() -> None:
    seqdec.run(toy_agent(), toy_env(), 5, seed=0)


def relearn(folder: Path) -> None:
    site: Any = seqdec.envs.make("linear")
    with seqdec.OnlineAgent(seqdec.agents.linear, site, seed=0, folder=folder) as one:
        for _ in range(2):
            one.learn(one.decide(np.zeros(site.observation_space.shape, np.float32)).token, 1.0)
    (folder / "state.safetensors").unlink()
    with seqdec.OnlineAgent(seqdec.agents.linear, site, seed=0, folder=folder):
        pass


def tuning(folder: Path) -> None:
    experiment = tune.Tune(experiment="digits", agent="adamw", budget=1, out=folder)
    plan = tune.Plan("adamw", {"learning_rate": 0.01}, [seqdec.bo.Real(1e-3, 1.0)], lambda settings: 0.0)
    assert len(list(experiment.play(plan, []))) == 1


@pytest.mark.parametrize("call", [minimize, run, relearn, tuning])
def test_everything_long_tells_its_progress(
    call: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each with its title, and up to its total."""
    made = []

    class Recorded(progress._Lines):
        def __init__(self, **options: Any) -> None:
            made.append(self)
            super().__init__(**options)

    monkeypatch.setattr(progress, "_Lines", Recorded)
    monkeypatch.setattr("seqdec.service.learner._MANY", 0)
    call(*[tmp_path] * call.__code__.co_argcount)
    assert made and all(shown.n == shown.total and shown.desc and shown._closed.is_set() for shown in made)
    assert all("compiling" not in str(shown) for shown in made)


class Page(http.server.BaseHTTPRequestHandler):
    """Ten bytes under any name."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "10")
        self.end_headers()
        self.wfile.write(b"0123456789")

    def log_message(self, *_: Any) -> None:
        """Not on standard error."""


def test_a_download_tells_its_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, real = [], progress.bar
    monkeypatch.setattr(progress, "bar", lambda *values, **options: made.append(real(*values, **options)) or made[-1])
    with http.server.HTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/table.csv"
        pooch.retrieve(url, None, "table.csv", tmp_path, downloader=downloader(30.0))
        server.shutdown()
    assert (tmp_path / "table.csv").read_bytes() == b"0123456789"
    assert [(shown.desc, shown.n, shown.total) for shown in made] == [("table.csv", 10, 10)]


@pytest.mark.parametrize("command", [[], *([name] for name in cli.COMMANDS), ["run", "digits"]])
def test_every_help_names_the_options_of_every_command(command: list[str], capsys: Any) -> None:
    assert cli.main([*command, "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "--resume DIR" in shown and "--compilation-cache [DIR]" in shown
    assert ("--version" in shown) == (command == [])


def test_the_version_is_that_of_the_package(capsys: Any) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"seqdec {seqdec.__version__}\n"


@pytest.mark.parametrize("arguments", [["list"], ["--help"], ["report"]])
def test_a_reader_that_ends_is_left_quietly(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capfd: Any, tmp_path: Path
) -> None:
    """As in `seqdec list | head -1`: no message, and the exit code that the shell gives other commands."""
    reading, writing = os.pipe()
    os.close(reading)
    if arguments == ["report"]:
        arguments = ["report", str(tmp_path)]
        monkeypatch.setattr(cli, "read_manifest", lambda place: {"experiment": "digits"})
        monkeypatch.setattr(Digits, "report", classmethod(lambda cls, place: "table"))
    with os.fdopen(writing, "w") as broken:
        monkeypatch.setattr(sys, "stdout", broken)
        assert cli.main(arguments) == 141
        broken.flush()
    assert capfd.readouterr().err == ""


def test_another_broken_pipe_is_an_error(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def fail() -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(cli, "_list", fail)
    assert cli.main(["list"]) == 1
    assert "Broken pipe" in capsys.readouterr().err
