"""The parts of examples/parts, each added in a copy as its first lines say: file, registry line, case."""

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from seqdec import testing

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("seqdec", "agents", "envs", "reproduction", "tests", "pyproject.toml", "seqdec_command.py")
PLACE = re.compile(r'^""".*: copy to ([\w/.]+)\.$', re.MULTILINE)
LINE = re.compile(r"^(?:Registry|Case), (\w+) of ([\w/.]+):\n\n((?:    .+\n)+)", re.MULTILINE)


class Part(NamedTuple):
    """One of the files."""

    name: str
    place: str
    lines: tuple[tuple[str, str, str], ...]
    """(file, name of the mapping or "imports", line)"""


def read(source: str) -> Part:
    (place,), lines = PLACE.findall(source), LINE.findall(source.partition('\n"""')[0] + "\n")
    name = re.search(r'"([\w+-]+)"|import (\w+) as', lines[0][2])
    assert name is not None, source
    return Part(name[1] or name[2], place, tuple((file, mapping, text) for mapping, file, text in lines))


PARTS = {file.stem: read(file.read_text(encoding="utf-8")) for file in sorted((ROOT / "examples/parts").glob("*.py"))}
CONTRACTS = {
    "agent": ("tests/test_agents.py tests/test_agent_options.py", 10),
    "environment": ("tests/test_envs.py", 3),
    "estimator": ("tests/test_ope.py", 1),
    "experiment": ("tests/test_registry.py tests/reproduction/test_experiments.py tests/test_cli.py", 2),
    "filter": ("tests/test_agents.py", 20),
    "optimizer": ("tests/contracts/test_optimizers.py", 4),
    "policy": ("tests/contracts/test_policies.py", 4),
    "surrogate": ("tests/contracts/test_surrogates.py", 1),
}
"""Kind -> files with the contract tests of the registry, and how many of them a new name passes at least."""


CHECKS = {
    "environment": lambda make: testing.check_environment(make()),
    "estimator": testing.check_estimator,
    "filter": lambda make: testing.check_filter(make, linearized=False),
    "optimizer": testing.check_optimizer,
    "policy": testing.check_policy,
    "surrogate": testing.check_surrogate,
}


@pytest.mark.parametrize("kind", CHECKS)
def test_a_part_passes_the_check_for_parts_of_ones_own(kind: str) -> None:
    names: dict[str, Any] = runpy.run_path(str(ROOT / "examples" / "parts" / f"{kind}.py"))
    own = [value for value in names.values() if getattr(value, "__module__", None) == names["__name__"]]
    CHECKS[kind](own[-1])


def add(text: str, mapping: str, lines: str) -> str:
    """The text of a file with lines more, in the mapping of that name or among the imports."""
    if mapping == "imports":
        return text.replace("\nfrom seqdec.", f"\n{lines.strip()}\nfrom seqdec.", 1)
    opening = re.search(rf'^{mapping}\b(?:.*\n){{0,2}}?.*\{{\n(?=\s+"[^"]+": )', text, re.MULTILINE)
    assert opening is not None, f"there is no mapping {mapping}"
    return f"{text[: opening.end()]}{lines}{text[opening.end() :]}"


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What pytest prints of the contract tests, after all parts were added in a copy."""
    copy = tmp_path_factory.mktemp("copy")
    for item in COPIED:
        if (ROOT / item).is_dir():
            shutil.copytree(ROOT / item, copy / item, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / item, copy / item)
    for kind, part in PARTS.items():
        assert not (copy / part.place).exists(), part.place
        shutil.copy(ROOT / "examples" / "parts" / f"{kind}.py", copy / part.place)
        for file, mapping, lines in part.lines:
            text = (copy / file).read_text(encoding="utf-8")
            (copy / file).write_text(add(text, mapping, lines), encoding="utf-8")
    files = sorted({file for files, _ in CONTRACTS.values() for file in files.split()})
    names = " or ".join(f"[{part.name} or -{part.name}" for part in PARTS.values())
    options = ["-n", "0", "-v", "-p", "no:cacheprovider", "-k", f"({names} or is_under_test) and not [signed"]
    program = [sys.executable, "-m", "pytest", *options, *files]
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(program, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    assert "error" not in done.stdout.lower().splitlines()[-1], done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("kind", PARTS)
def test_a_part_passes_the_contract_tests_of_its_registry(kind: str, followed: str) -> None:
    files, least = CONTRACTS[kind]
    results = [line for line in followed.splitlines() if line.startswith(tuple(files.split()))]
    own = [line for line in results if re.search(rf"[\[-]{PARTS[kind].name}[\]-]", line)]
    assert [line for line in results if " FAILED" in line or " ERROR" in line] == [], followed[-6000:]
    assert sum(" PASSED" in line for line in own) >= least, "\n".join(own)
