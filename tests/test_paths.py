"""Wherever a path enters: "~" is the home folder, a relative path stays where it was, str and os.PathLike are alike."""

import dataclasses
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
import pytest
from gymnasium import spaces

import seqdec
from seqdec import cli, data, envs, executors, experiments, ope
from seqdec.data.folders import data_folder
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


WRITERS: dict[str, Callable[[Any], Any]] = {
    "seqdec.OnlineAgent": service,
    "seqdec.run": run,
    "seqdec.save": state,
    "seqdec.ope.Log.save": log,
    "seqdec.bo.BayesianOptimizer.save": study,
    "seqdec.Run.save": saved_run,
    "seqdec.compilation_cache": compilation_cache,
    "seqdec.data.write_kuairec": lambda path: data.write_kuairec(path, users=1, videos=1, seed=0),
}
EXTRA = {"seqdec.load": {"like": {}}}
MODULES = ("seqdec", "seqdec.bo", "seqdec.data", "seqdec.envs", "seqdec.integrations", "seqdec.online", "seqdec.ope")


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
del TAKING["seqdec.online.OnlineAgent"]  # seqdec.OnlineAgent
READERS = sorted(TAKING.keys() - WRITERS.keys())


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


@pytest.mark.sampled(3)
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


@pytest.mark.parametrize("name", list(experiments.EVERY))
def test_paths_among_the_options_of_a_command(name: str, places: tuple[Path, Path]) -> None:
    home, work = places
    kind: Any = experiments.EVERY[name]
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
