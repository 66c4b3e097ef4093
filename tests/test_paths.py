"""Wherever a path enters: "~" is the home folder, a relative path stays where it was, str and os.PathLike are alike."""

import dataclasses
import functools
import importlib
import inspect
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from gymnasium import spaces

import seqdec
from seqdec import cli, commands, data, envs, executors, ope
from seqdec.data.files import data_folder
from seqdec.persistence import located
from seqdec.runtime import compilation_cache

SITE = seqdec.core.Spaces(spaces.Box(-1, 1, (2,)), spaces.Discrete(2))
ENV = envs.linear()
AGENT = seqdec.agents.random(ENV)
LOG = ope.make_log(action=[0, 1], reward=[1.0, 0.0], propensity=[0.5, 0.5], num_actions=2)


class Like:
    """An os.PathLike that is not a pathlib.Path."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __fspath__(self) -> str:
        """The path."""
        return self.path


def service(folder: Any) -> None:
    with seqdec.OnlineAgent(seqdec.agents.random, SITE, seed=0, folder=folder) as one:
        one.learn(one.decide(np.zeros(2)).token, 1.0)
        os.chdir(os.environ["HOME"])


def run(path: Any) -> None:
    """A run that is interrupted, so that its checkpoint stays."""

    steps = []

    def update(bar: Any, count: int) -> None:
        os.chdir(os.environ["HOME"])
        steps.append(count)
        if sum(steps) > 100:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tqdm.tqdm.update", update)
        assert seqdec.run(AGENT, ENV, 200, seed=0, checkpoint=path, checkpoint_every=1).interrupted


def state(path: Any) -> None:
    seqdec.save(path, {"a": jnp.ones(1)})
    assert seqdec.inspect(path)["leaves"]
    assert seqdec.load(path, {"a": jnp.zeros(1)})["a"] == 1


def log(path: Any) -> None:
    LOG.save(path)
    assert len(ope.Log.load(path, num_actions=2).action) == 2


def study(path: Any) -> None:
    seqdec.bo.BayesianOptimizer([(0, 1)], seed=0).save(path)
    seqdec.bo.BayesianOptimizer.load(path)


def saved_run(path: Any) -> None:
    seqdec.run(AGENT, ENV, 200, seed=0).save(path)
    seqdec.Run.load(path)


def search(minimize: Callable[..., Any], path: Any) -> None:
    def fun(x: Any) -> float:
        os.chdir(os.environ["HOME"])
        return 1.0

    minimize(fun, [(0, 1)], n_calls=1, seed=0, progress=False, checkpoint=path)


WRITERS: dict[str, Callable[[Any], Any]] = {
    "seqdec.OnlineAgent": service,
    "seqdec.run": run,
    "seqdec.save": state,
    "seqdec.ope.Log.save": log,
    "seqdec.bo.BayesianOptimizer.save": study,
    "seqdec.Run.save": saved_run,
    "seqdec.minimize": functools.partial(search, seqdec.minimize),
    "seqdec.maximize": functools.partial(search, seqdec.maximize),
    "seqdec.compilation_cache": compilation_cache,
    "seqdec.data.write_kuairec": lambda path: data.write_kuairec(path, users=1, videos=1, seed=0),
}
EXTRA = {"seqdec.load": {"like": {}}}
MODULES = ("seqdec", "seqdec.bo", "seqdec.data", "seqdec.envs", "seqdec.integrations", "seqdec.service", "seqdec.ope")


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
for again in ("seqdec.service.OnlineAgent", "seqdec.bo.minimize"):
    del TAKING[again]  # those of seqdec
TAKING["seqdec.maximize"] = seqdec.maximize, "checkpoint"  # among its options
PAGE = "seqdec.bo.BayesianOptimizer.report"
"""Of files that need their suffix."""
READERS = sorted(TAKING.keys() - WRITERS.keys() - {PAGE})


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    """The home folder and the working directory."""
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(work)
    cache = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    yield home, work
    if jax.config.jax_compilation_cache_dir != cache:  # pyright: ignore[reportAttributeAccessIssue]
        seqdec.compilation_cache(cache)


def test_a_path_is_located(places: tuple[Path, Path]) -> None:
    home, work = places
    assert located("~") == home
    assert located("a/b") == work / "a" / "b"
    for path in ("~/a", Path("~/a"), Like("~/a"), np.str_("~/a")):
        assert located(path) == home / "a"
    for wrong in (None, 3, b"a", ["a"], Like(b"a")):  # pyright: ignore[reportArgumentType]
        with pytest.raises(TypeError, match=r"a path must be a str or an os\.PathLike"):
            located(wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="must not be empty"):
        located("")
    with pytest.raises(ValueError, match=r"no home folder '~nobody-here'; .* './~nobody-here/a'"):
        located("~nobody-here/a")


def test_all_functions_that_write_are_known() -> None:
    """Every function that takes a path is tested below: those that only read by the error for a missing file."""
    assert WRITERS.keys() <= TAKING.keys()
    assert len(READERS) > 20
    for name in ("path", "folder", "root", "directory", "checkpoint"):
        for place in MODULES:
            for function in vars(importlib.import_module(place)).values():
                parameters = inspect.signature(function).parameters if inspect.isfunction(function) else {}
                assert name not in parameters or "PathLike" in str(parameters[name].annotation), (function, name)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", WRITERS)
def test_what_is_written_is_where_the_path_says(name: str, places: tuple[Path, Path]) -> None:
    home, work = places
    for number, path in enumerate(("~/a0", Path("~/a1"), Like("~/a2"))):
        WRITERS[name](path)
        os.chdir(work)
        assert (home / f"a{number}").exists()
    for number, path in enumerate(("b0", Path("b1"), Like("./b2"))):
        WRITERS[name](path)
        os.chdir(work)
        assert (work / f"b{number}").exists()
    assert {item.name for item in home.iterdir()} == {"a0", "a1", "a2"}
    assert {item.name for item in work.iterdir()} == {"b0", "b1", "b2"}
    for wrong, kind in ((3, TypeError), (b"a", TypeError), ("", ValueError)):
        with pytest.raises(kind, match="a path must"):
            WRITERS[name](wrong)


def test_a_page_is_where_the_path_says(places: tuple[Path, Path]) -> None:
    home, work = places
    optimizer = seqdec.bo.BayesianOptimizer([(0, 1)], seed=0)
    optimizer.tell([0.5], 1.0)
    write = getattr(optimizer, PAGE.rpartition(".")[2])
    for number, path in enumerate(("~/a0.html", Path("~/a1.html"), Like("~/a2.html"), "a3.html")):
        assert write(path) == (home, home, home, work)[number] / f"a{number}.html"
    assert len(list(home.glob("*.html"))) == 3 and len(list(work.iterdir())) == 1
    for wrong, kind in ((3, TypeError), (b"a", TypeError), ("", ValueError)):
        with pytest.raises(kind, match="a path must"):
            write(wrong)


@pytest.mark.parametrize("name", READERS)
def test_what_is_read_is_where_the_path_says(name: str, places: tuple[Path, Path]) -> None:
    home, work = places
    function, parameter = TAKING[name]

    def read(path: Any) -> Any:
        return function(**EXTRA.get(name, {}), **{parameter: path})

    for given, place in (("~/a", home / "a"), (Path("~/a"), home / "a"), (Like("~/a"), home / "a"), ("a", work / "a")):
        with pytest.raises(FileNotFoundError, match=re.escape(str(place))):
            read(given)
    for wrong, kind in ((3, TypeError), (b"a", TypeError), ("", ValueError)):
        with pytest.raises(kind, match="a path must"):
            read(wrong)


def test_the_folder_of_data_sets(image_files: Path, places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    home, work = places
    (home / "data").symlink_to(image_files)
    monkeypatch.setenv("SEQDEC_DATA", "~/data")
    assert data_folder("mnist") == home / "data" / "mnist"
    assert len(seqdec.data.load_random_exposures().rewards)
    monkeypatch.setenv("SEQDEC_DATA", "data")
    assert data_folder("mnist") == work / "data" / "mnist"
    assert executors.worker_environment()["SEQDEC_DATA"] == str(work / "data")
    monkeypatch.setenv("SEQDEC_DATA", "")
    assert data_folder("mnist") is None


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
    assert "out" in paths
    made = kind(**needed.get(name, {}) | dict.fromkeys(paths, Path("~/x")))
    kept = kind(**needed.get(name, {}) | dict.fromkeys(paths, Path("x")))
    os.chdir(home)
    for option in paths:
        assert getattr(made, option) == home / "x"
        assert getattr(kept, option) == work / "x"
    if name == "ope":
        assert Path(made.log) == home / "log"
        assert kind(log="open-bandit", policy="~/p.csv").policy == str(home / "p.csv")
        assert kind(log="open-bandit").log == "open-bandit"
        assert kind(log="log").log == str(home / "log")


@pytest.mark.extended
def test_a_command_from_home(places: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    home, work = places
    command = ["run", "digits", "--agents", "linear", "--steps", "100", "--seeds", "1", "--out", "~/x"]
    assert cli.main([*command, "--compilation-cache", "~/programs"]) == 0
    assert cli.main(["run", "--resume", "~/x"]) == 0
    assert cli.main(["report", "~/x"]) == 0
    assert not list(work.iterdir())
    assert {item.name for item in home.iterdir()} >= {"x", "programs"}
    assert cli.main(["run", "--resume", ""]) == 2
    assert "a path must not be empty" in capsys.readouterr().err


KINDS = ("seqdec.save", "seqdec.bo.BayesianOptimizer.save", "seqdec.run", "seqdec.Run.save", "seqdec.OnlineAgent")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("suffix", [".xlsx", ".CSV", ".json", ".pkl", ".parquet.gz"])
@pytest.mark.parametrize("name", [*KINDS, "seqdec.ope.Log.save"])
def test_the_name_of_another_kind_of_file_is_refused(name: str, suffix: str, places: tuple[Path, Path]) -> None:
    """For a file or a folder; nothing is written."""
    _, work = places
    last = re.escape(Path(f"a{suffix}").suffix)
    with pytest.raises(ValueError, match=rf"would be a .* with the suffix '{last}'.*: call it .*a"):
        WRITERS[name](f"a{suffix}")
    assert not list(work.iterdir())


def test_a_table_is_known_by_its_suffix(places: tuple[Path, Path]) -> None:
    for name in ("a.parquet", "a.PQ", "a", "a.2024-05-01"):
        LOG.save(name)
        assert len(ope.Log.load(name, num_actions=2).action) == 2
    with pytest.raises(ValueError, match=r"call it a\.parquet \(known are \.parquet, \.pq and no suffix\)"):
        LOG.save("a.unknown")
    for name in ("a.safetensors", "a.state", "a.v1"):
        seqdec.save(name, {"a": jnp.ones(1)})
    with pytest.raises(ValueError, match=r"call it .*/results$"):
        seqdec.Run.save(seqdec.run(AGENT, ENV, 200, seed=0), "results.safetensors")


def test_the_folder_of_a_command_is_not_named_as_a_file(places: tuple[Path, Path], capsys: Any) -> None:
    command = ["run", "digits", "--agents", "linear", "--steps", "100", "--seeds", "1", "--out", "results.csv"]
    assert cli.main(command) != 0
    assert "would be a folder with the suffix '.csv' of a file: call it " in capsys.readouterr().err
    assert not list(places[1].iterdir())


ENCODINGS = {
    "utf-16": "UTF-16:",
    "utf-16-le": "UTF-16LE",
    "utf-16-be": "UTF-16",
    "utf-32": "UTF-32",
    "cp1252": "iconv -f WINDOWS-1252 -t UTF-8",
}


@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz", "log.tsv"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_text_that_is_not_utf8_says_how_to_convert_it(encoding: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    for names in (["b", "\u00e9"], ["\u00e9", "b"]):
        table = pd.DataFrame({"action": names, "reward": [1.0, 0.0], "propensity": [0.5, 0.5]})
        table.to_csv(path, index=False, encoding=encoding, sep="\t" if ".tsv" in name else ",")
        with pytest.raises(ValueError, match=rf"^{path} is not text in UTF-8.*{ENCODINGS[encoding]}") as found:
            ope.Log.load(path)
        assert str(found.value).count(name) == 1


def test_ascii_in_utf16_without_a_mark(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("action,reward,propensity\n0,1,0.5\n", encoding="utf-16-le")
    with pytest.raises(ValueError, match=r"is not text in UTF-8 but in UTF-16LE"):
        ope.Log.load(tmp_path / "log.csv")


@pytest.mark.parametrize("name", ["log.csv", "log.parquet", "log.csv.gz", "pipe.csv"])
def test_a_file_that_holds_nothing_is_named_once(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    os.mkfifo(path) if name == "pipe.csv" else path.touch()
    with pytest.raises(ValueError, match=f"^{path} is (empty|a pipe)") as found:
        ope.Log.load(path)
    assert str(found.value).count(name) == 1


@pytest.mark.parametrize("name", ["settings.json", "sweep.toml", "manifest.json"])
def test_settings_that_are_not_utf8(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = {
        "settings.json": ["run", "digits", "--settings", str(tmp_path / name)],
        "sweep.toml": ["sweep", str(tmp_path / name)],
        "manifest.json": ["report", str(tmp_path)],
    }
    for encoding, message in (("utf-16", "but in UTF-16:"), ("utf-8-sig", name)):
        (tmp_path / name).write_text("{", encoding=encoding)
        assert cli.main(commands[name]) > 0
        error = capsys.readouterr().err
        assert message in error and "BOM" not in error and error.count(name) == 1
