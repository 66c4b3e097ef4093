"""What holds the house together: one direction of imports, and a package that is exactly what is declared."""

import ast
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import seqdec
from seqdec import envs, ope
from seqdec.core import Schema
from seqdec.gymnasium_ids import id_of
from tests.service import services

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {"seqdec": ROOT / "seqdec", "seqdec.envs": ROOT / "envs", "seqdec.agents": ROOT / "agents"}
# What `import seqdec` leaves to the functions that need it.
HEAVY = {"matplotlib", "pandas", "pooch", "pyarrow", "scipy", "sklearn", "tqdm", "tyro"}
GYMNASIUM_IDS = """
Ackley Branin Drifting DrawNN FailingBranin Hartmann6 Outliers Permuted Levy NoisyBranin Rosenbrock BernoulliBandit
Digits FashionMNIST GaussianBandit Idx KuaiRec LinearBandit MNIST RandomExposures WheelBandit Adult Census Covertype
Financial Jester Mushroom OpenBandit Statlog
"""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def folders_of(package: str) -> Iterator[tuple[str, Path, list[str]]]:
    """(dotted name, folder, Python files) of every folder with Python files; links are not followed."""
    for place, _, files in os.walk(FOLDERS[package]):
        python = sorted(name for name in files if name.endswith(".py"))
        if python:
            inner = Path(place).relative_to(FOLDERS[package]).parts
            yield ".".join((package, *inner)), Path(place), python


def modules() -> dict[str, Path]:
    """Dotted name -> file, of the whole library."""
    found = {}
    for package in FOLDERS:
        for dotted, folder, files in folders_of(package):
            for file in files:
                found[dotted if file == "__init__.py" else f"{dotted}.{file[:-3]}"] = folder / file
    return found


MODULES = modules()


def imported(source: str) -> set[str]:
    """The packages that a source imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def test_imports_go_one_way() -> None:
    """The rules are in pyproject.toml."""
    assert lint_imports(str(ROOT / "pyproject.toml"), cache_dir=None, no_cache=True) == EXIT_STATUS_SUCCESS


def test_declared_packages_are_the_folders_with_code():
    found = {name: files for package in FOLDERS for name, _, files in folders_of(package)}
    assert PROJECT["tool"]["setuptools"]["packages"] == sorted(found)
    assert [name for name, files in found.items() if "__init__.py" not in files] == []


def shadowed(package: str, source: str, known: set[str]) -> list[str]:
    """Names that a package's __init__ binds to something else than the module of that name in the package."""
    bound = {
        (alias.asname or alias.name): f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    own = {node.name: "" for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return [
        name
        for name, target in {**bound, **own}.items()
        if f"{package}.{name}" in known and target != f"{package}.{name}"
    ]


@pytest.mark.parametrize("package", sorted(name for name, path in MODULES.items() if path.name == "__init__.py"))
def test_no_module_has_the_name_of_a_public_function_beside_it(package):
    """Importing the module would put it in the place of the function."""
    assert shadowed(package, MODULES[package].read_text(encoding="utf-8"), set(MODULES)) == []


def test_an_editable_installation_is_a_path_that_editors_follow():
    """All packages lie under one folder: setuptools writes a path, and for anything else a hook of the import."""
    setuptools = PROJECT["tool"]["setuptools"]
    assert setuptools["package-dir"] == {"": "."}
    assert all((ROOT / name.replace(".", "/") / "__init__.py").is_file() for name in setuptools["packages"])


@pytest.mark.parametrize("room", ["envs", "agents"])
def test_rooms_at_the_root_are_linked_and_refuse_their_bare_name(room):
    link = ROOT / "seqdec" / room
    assert link.is_symlink() and os.readlink(link) == f"../{room}"
    spec = importlib.util.spec_from_file_location(room, ROOT / room / "__init__.py")
    assert spec is not None and spec.loader is not None
    with pytest.raises(ImportError, match=f"import this package as seqdec.{room}, not as {room}"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_requirements_have_a_lower_bound_and_nothing_else():
    texts = sum(PROJECT["project"]["optional-dependencies"].values(), PROJECT["project"]["dependencies"])
    for one in (Requirement(text) for text in texts if not text.startswith("seqdec[")):
        assert not one.url and [part.operator for part in one.specifier] == [">="], one


def test_every_package_that_the_library_imports_is_declared():
    extras = [
        text for name, texts in PROJECT["project"]["optional-dependencies"].items() if name != "dev" for text in texts
    ]
    declared = {canonicalize_name(Requirement(text).name) for text in [*PROJECT["project"]["dependencies"], *extras]}
    providers = importlib.metadata.packages_distributions()
    every = set().union(*(imported(path.read_text(encoding="utf-8")) for path in MODULES.values()))
    foreign = every - set(sys.stdlib_module_names) - {"seqdec", "seqdec_command"}
    names = {name: set(map(canonicalize_name, providers.get(name, [name]))) for name in foreign}
    assert {name for name, packages in names.items() if declared.isdisjoint(packages)} == set()


def test_version_is_the_same_everywhere():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = next(line for line in changelog.splitlines() if line.startswith("## "))
    assert newest.split()[1] == seqdec.__version__
    assert PROJECT["tool"]["setuptools"]["dynamic"] == {"version": {"attr": "seqdec.__version__"}}
    assert CITATION["version"] == seqdec.__version__


def test_command_and_types_are_installed():
    (command,) = importlib.metadata.entry_points(group="console_scripts", name="seqdec")
    assert callable(command.load())
    assert (Path(seqdec.__file__).parent / "py.typed").is_file()
    assert PROJECT["tool"]["setuptools"]["package-data"] == {"seqdec": ["py.typed"]}


def test_a_client_needs_no_jax_and_gymnasium_knows_all_environments_without_it():
    program = (
        "import sys, gymnasium, seqdec.client; assert not {'jax', 'flax'} & set(sys.modules);"
        "before = {name for name in gymnasium.registry if name.startswith('seqdec/')};"
        "from seqdec import envs; from seqdec.gymnasium_ids import NAMES, id_of;"
        "assert NAMES == tuple(sorted(envs.REGISTRY.own())) and before == set(map(id_of, NAMES))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_importing_is_silent_changes_no_configuration_and_imports_nothing_heavy(tmp_path):
    program = (
        "import os, sys, warnings, jax; before = dict(jax.config.values);"
        "import gymnasium, seqdec; from seqdec.runtime import check_process;"
        "warnings.filterwarnings('ignore', 'os.fork');"
        "child = os.fork();"  # before anything is computed
        "child or (check_process(), os._exit(0));"
        "assert os.waitpid(child, 0)[1] == 0;"
        "seqdec.envs.make('digits'); assert len(jax.devices()) == 1;"
        "assert all(hasattr(seqdec, name) for name in seqdec.__all__);"
        "assert 'envs' not in sys.modules and 'agents' not in sys.modules;"
        "changed = {name for name, value in jax.config.values.items() if name in before and value != before[name]};"
        f"assert not changed and not {HEAVY} & set(sys.modules), (changed, {HEAVY} & set(sys.modules));"
        "print(*[name for name in gymnasium.registry if name.startswith('seqdec/')])"
    )
    command = [sys.executable, "-W", "error", "-c", program]
    variables = {**os.environ, "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert {f"seqdec/{title}-v0" for title in GYMNASIUM_IDS.split()} <= set(done.stdout.split())
    assert {id_of(name) for name in envs.names()} == set(done.stdout.split())


def test_logs_and_services_need_nothing_of_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    full = {Requirement(line).name for line in PROJECT["project"]["optional-dependencies"]["full"]}
    absent = {name.replace("scikit-learn", "sklearn") for name in full}
    for name in absent | {name for name in sys.modules if name.partition(".")[0] in absent}:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError):
        from pandas import DataFrame  # noqa: F401
    names, context = ("b", "a"), np.zeros((4, 2))
    log = ope.make_log(
        action=["a", "b"] * 2, reward=[1, 0] * 2, propensity=[0.5] * 4, action_names=names, context=context
    )
    log = ope.aligned(log.replace(key=np.array(list("wxyz"))), Schema(("a", "b", "c")))
    assert log[[0, 0, 1]].key is None and "4 decisions among 3 actions" in repr(log) and "a 50.0%" in repr(log.report)
    assert ope.check_target(log[:2], np.eye(3)[[0, 1]]).weights.tolist() == [2, 2]
    assert ope.overlap(log, np.tile([0.5, 0.5, 0.0], (4, 1))).verdict
    with services.service(arms=[*names, "c"]) as one:
        one.learn(one.decide(services.X[0], key="k").token, 1.0)
        one.warm_start(log)
        assert one.log().action_names == ("b", "a", "c") and one.counts["rewards"] == 5
