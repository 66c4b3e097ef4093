"""Paths and files, wherever one enters: "~" is home, a relative path stays where it was, what is no file says so."""

import dataclasses
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_type_hints

import jax
import numpy as np
import pandas as pd
import pytest

import seqdec
from seqdec import agents, cli, commands, data, envs, executors, ope
from seqdec.bo import BayesianOptimizer
from seqdec.data.files import data_folder
from seqdec.persistence import check_writable, located, reading
from seqdec.progress import advance, bar
from tests.boundary.entries import ENTRIES, LOG, write_state, write_study, written_run

MODULES = ("seqdec", "seqdec.bo", "seqdec.data", "seqdec.envs", "seqdec.integrations", "seqdec.service", "seqdec.ope")
ENV = envs.linear()


def interrupted_run(path: Any) -> None:
    """Its checkpoint stays."""
    steps = []

    def update(bar: Any, count: int) -> None:
        os.chdir(os.environ["HOME"])
        steps.append(count)
        if sum(steps) > 100:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tqdm.tqdm.update", update)
        found = seqdec.run(agents.random(ENV), ENV, 200, seed=0, checkpoint=path, checkpoint_every=1)
    assert found.interrupted


def search(path: Any) -> None:
    """The function changes the working directory."""

    def fun(x: Any) -> float:
        os.chdir(os.environ["HOME"])
        return 1.0

    seqdec.minimize(fun, [(0, 1)], n_calls=1, seed=0, progress=False, checkpoint=path)


def page(path: Any) -> None:
    optimizer = BayesianOptimizer([(0, 1)], seed=0)
    optimizer.tell([0.5], 1.0)
    optimizer.report(f"{path}.html" if isinstance(path, str) and path else path)


FILES: dict[str, Callable[[Any], Any]] = {
    "seqdec.save": write_state,
    "seqdec.bo.BayesianOptimizer.save": write_study,
    "seqdec.ope.Log.save": LOG.save,
}
WRITERS: dict[str, Callable[[Any], Any]] = FILES | {
    "seqdec.OnlineAgent": ENTRIES["OnlineAgent(folder)"].take,
    "seqdec.OnlineAgent.backup": lambda path: seqdec.OnlineAgent("random", ENV, seed=0).backup(path),
    "seqdec.run": interrupted_run,
    "seqdec.Run.save": written_run,
    "seqdec.minimize": search,
    "seqdec.compilation_cache": seqdec.compilation_cache,
    "seqdec.data.write_kuairec": ENTRIES["write_kuairec"].take,
}
READERS: dict[str, Callable[[Any], Any]] = {
    "seqdec.save": lambda path: seqdec.load(path, {"a": np.ones(1, np.float32)}),
    "seqdec.bo.BayesianOptimizer.save": BayesianOptimizer.load,
    "seqdec.ope.Log.save": lambda path: ope.Log.load(path, num_actions=2),
}


def taking_paths() -> Iterator[tuple[str, Callable[..., Any], str]]:
    """(name, function, parameter) of every public function, class or method that takes a path."""
    for module in map(importlib.import_module, MODULES):
        for name in getattr(module, "__all__", ()):
            found = getattr(module, name)
            methods = inspect.getmembers(found, inspect.isroutine) if inspect.isclass(found) else []
            for place, member in ((name, found), *((f"{name}.{method}", member) for method, member in methods)):
                if not callable(member) or place.rpartition(".")[2].startswith("_"):
                    continue
                try:
                    parameters = inspect.signature(member).parameters.values()
                except ValueError:  # of C
                    continue
                for parameter in parameters:
                    if "Path" in str(parameter.annotation):
                        yield f"{module.__name__}.{place}", member, parameter.name


TAKING = {name: (function, parameter) for name, function, parameter in taking_paths()}
TWICE = {
    "seqdec.service.OnlineAgent", "seqdec.service.OnlineAgent.backup", "seqdec.bo.minimize", "seqdec.maximize",
    "seqdec.bo.maximize",
}  # fmt: skip
PAGES = {"seqdec.bo.BayesianOptimizer.report"}
READING = sorted(TAKING.keys() - WRITERS.keys() - TWICE - PAGES)


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    """The home folder and the working directory."""
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(work)
    cache = jax.config.values["jax_compilation_cache_dir"]
    yield home, work
    if jax.config.values["jax_compilation_cache_dir"] != cache:
        seqdec.compilation_cache(cache)


def test_a_path_is_located(places: tuple[Path, Path]) -> None:
    assert [located(path) for path in ("~", "a/b", "a:b")] == [places[0], places[1] / "a/b", places[1] / "a:b"]
    with pytest.raises(ValueError, match=r"no home folder '~nobody-here'; .* './~nobody-here/a'"):
        located("~nobody-here/a")


def test_all_functions_that_write_are_known() -> None:
    assert WRITERS.keys() <= TAKING.keys() and len(READING) > 15


@pytest.mark.parametrize("name", [*WRITERS, *PAGES])
def test_what_is_written_is_where_the_path_says(name: str, places: tuple[Path, Path]) -> None:
    home, work = places
    write, end = (page, ".html") if name in PAGES else (WRITERS[name], "")
    for path in ("~/a", f"b{end}" if not end else "b"):
        write(path)
        os.chdir(work)
    found = [[item.name for item in place.iterdir() if item.name[0] != "."] for place in (home, work)]
    assert found == [[f"a{end}"], [f"b{end}"]]  # matplotlib keeps hidden files at home
    with pytest.raises(ValueError, match="a path must"):
        write("")


@pytest.mark.parametrize("name", READING)
def test_what_is_read_is_where_the_path_says(name: str, places: tuple[Path, Path]) -> None:
    home, work = places
    function, parameter = TAKING[name]
    needed: dict[str, Any] = {"like": {}} if name == "seqdec.load" else {}
    for given, place in (("~/a", home / "a"), ("a", work / "a")):
        with pytest.raises(FileNotFoundError, match=re.escape(str(place))):
            function(**needed, **{parameter: given})
    for wrong in (3, b"a", ""):
        with pytest.raises((TypeError, ValueError), match="a path must"):
            function(**needed, **{parameter: wrong})


@pytest.mark.parametrize("name", list(commands.EVERY))
def test_paths_among_the_options_of_a_command(name: str, places: tuple[Path, Path]) -> None:
    home, work = places
    kind: Any = commands.EVERY[name]
    needed = {
        "ope": {"log": "~/log"},
        "tune": {"experiment": "digits", "agent": "linear"},
        "bench": {"what": "filters"},
    }
    hints = get_type_hints(kind)
    paths = [field.name for field in dataclasses.fields(kind) if "Path" in str(hints[field.name])]
    made, kept = (kind(**needed.get(name, {}) | dict.fromkeys(paths, Path(path))) for path in ("~/x", "x"))
    os.chdir(home)
    assert "out" in paths
    assert [(getattr(made, option), getattr(kept, option)) for option in paths] == [(home / "x", work / "x")] * len(
        paths
    )
    if name == "ope":
        assert made.log == str(home / "log") and kind(log="open-bandit").log == "open-bandit"


def test_the_folder_of_data_sets(image_files: Path, places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    (places[0] / "data").symlink_to(image_files)
    for given, place in (("~/data", places[0] / "data"), ("data", places[1] / "data")):
        monkeypatch.setenv("SEQDEC_DATA", given)
        assert data_folder("mnist") == place / "mnist"
        assert executors.worker_environment()["SEQDEC_DATA"] == str(place)
    monkeypatch.setenv("SEQDEC_DATA", "")
    assert data_folder("mnist") is None


# What stands there


@pytest.mark.parametrize("name", ["seqdec.OnlineAgent", "seqdec.run", "seqdec.Run.save", *FILES])
def test_the_name_of_another_kind_of_file_is_refused(name: str, places: tuple[Path, Path]) -> None:
    for suffix in (".xlsx", ".CSV", ".parquet.gz"):
        last = re.escape(Path(f"a{suffix}").suffix)
        with pytest.raises(ValueError, match=rf"would be a .* with the suffix '{last}'.*: call it .*a"):
            WRITERS[name](f"a{suffix}")
    assert not list(places[1].iterdir())


def test_a_table_is_known_by_its_suffix(places: tuple[Path, Path]) -> None:
    for name in ("a.parquet", "a.PQ", "a", "a.2024-05-01"):
        LOG.save(name)
        assert len(ope.Log.load(name, num_actions=2).action) == 6
    with pytest.raises(ValueError, match=r"call it a\.parquet \(known are \.parquet, \.pq and no suffix\)"):
        LOG.save("a.unknown")


@pytest.mark.parametrize("name", FILES)
def test_nothing_but_a_file_is_replaced_or_read(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    for place, kind in (("pipe", "a pipe or a device"), ("folder", "a folder"), ("loop", "a symbolic link that leads")):
        with pytest.raises(OSError, match=f"cannot write {tmp_path / place}: it is {kind}"):
            FILES[name](tmp_path / place)
        if place != "loop":
            with pytest.raises(ValueError, match=f"{tmp_path / place} is {kind}; give the path of a file"):
                READERS[name](tmp_path / place)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["folder", "loop", "pipe"]


@pytest.mark.parametrize("name", FILES)
def test_a_symbolic_link_stays_and_any_name_is_kept(name: str, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk/file")
    for _ in range(2):  # the file is missing, then it is replaced
        FILES[name](tmp_path / "link")
        assert (tmp_path / "link").is_symlink() and not (tmp_path / "disk" / "file").is_symlink()
    assert [item.name for item in (tmp_path / "disk").iterdir()] == ["file"]
    FILES[name](tmp_path / "\udcff")  # not Unicode, as Linux allows
    assert READERS[name](tmp_path / "\udcff") is not None


def test_what_is_in_the_way_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    for name, kind in (("file", "a file"), ("link", "a symbolic link that leads nowhere")):
        for folder in (tmp_path / name, tmp_path / name / "deep" / "er"):
            with pytest.raises(OSError, match=f"cannot write {folder}: {tmp_path / name} is {kind}.*, not a folder"):
                check_writable(folder)


def test_what_the_system_refuses_is_not_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PermissionError, match=f"cannot read {tmp_path}: not allowed"), reading(tmp_path):
        raise PermissionError(1, "not allowed")
    with pytest.raises(ValueError, match="is damaged"), reading(tmp_path):
        raise OSError("corrupt snappy data")  # pyarrow's

    def acquire(*_: Any, **__: Any) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("filelock.FileLock.acquire", acquire)
        with pytest.raises(OSError, match="Too many open files"):
            LOG.save(tmp_path / "log")
    assert not list(tmp_path.iterdir())


def test_a_working_directory_that_was_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert len(data.load_digits())
    with pytest.raises(FileNotFoundError, match="'x' is relative to a working directory that was deleted"):
        LOG.save("x")


def test_a_state_of_any_layout_is_saved(tmp_path: Path) -> None:
    state = {"parts": np.arange(6, dtype=">f8").reshape(2, 3)[:, ::2], "bools": np.array([True, False])[::-1]}
    seqdec.save(tmp_path / "state", state)
    jax.tree.map(np.testing.assert_array_equal, seqdec.load(tmp_path / "state", state), state)


def test_a_state_with_what_a_file_cannot_hold(tmp_path: Path) -> None:
    series, masked = pd.Series([0.5, None], dtype="Float64"), np.ma.masked_equal([1.0, 2.0], 2.0)
    for leaf, message in (
        (masked, "is a masked array"),
        (2**70, "is an integer of more"),
        (series, "must be an array"),
    ):
        with pytest.raises(TypeError, match=f"the leaf a {message}"):
            seqdec.save(tmp_path / "state", {"a": leaf})
    assert not list(tmp_path.iterdir())
    write_state(tmp_path / "state")
    for wrong in (agents.linear, dict, "linear", {"a": "linear"}, object()):
        with pytest.raises(TypeError, match="like must be an agent, as a factory makes it of an environment"):
            seqdec.load(tmp_path / "state", wrong)


# Texts and terminals

ENCODINGS = {"utf-16": "UTF-16:", "utf-16-le": "UTF-16LE", "cp1252": "iconv -f WINDOWS-1252 -t UTF-8"}


@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz"])
def test_a_text_that_is_not_utf8_says_how_to_convert_it(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    table = pd.DataFrame({"action": ["b", "\u00e9"], "reward": [1.0, 0.0], "propensity": [0.5, 0.5]})
    for encoding, remedy in ENCODINGS.items():
        table.to_csv(path, index=False, encoding=encoding)
        with pytest.raises(ValueError, match=rf"^{path} is not text in UTF-8.*{remedy}"):
            ope.Log.load(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=f"^{path} is empty"):
        ope.Log.load(path)


@pytest.mark.parametrize("name", ["settings.json", "sweep.toml", "manifest.json"])
def test_settings_that_are_not_utf8(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = {
        "settings.json": ["run", "digits", "--settings", str(tmp_path / name)],
        "sweep.toml": ["sweep", str(tmp_path / name)],
        "manifest.json": ["report", str(tmp_path)],
    }
    for encoding, message in (("utf-16", "but in UTF-16:"), ("utf-8-sig", name)):
        (tmp_path / name).write_text("{", encoding=encoding)
        assert cli.main(given[name]) > 0
        error = capsys.readouterr().err
        assert message in error and "BOM" not in error and error.count(name) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
@pytest.mark.parametrize("command", ["list", "lisst"])
def test_an_output_that_is_full(command: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    stream, code = ("stderr", 2) if command == "lisst" else ("stdout", 1)
    with open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr(sys, stream, full)
        assert cli.main(command.split()) == code
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())
    if stream == "stdout":
        wanted = "seqdec: cannot write to standard output: No space left on device"
        assert capsys.readouterr().err.startswith(wanted)


def test_progress_where_there_is_no_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    for show in (None, True):
        with bar(2, "title", "step", show=show) as shown:
            advance(shown, 2)
