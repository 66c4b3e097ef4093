"""The recipes of CONTRIBUTING.md, followed to the letter in a copy: new file, registry line, test line."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("seqdec", "agents", "envs", "reproduction", "tests", "pyproject.toml", "seqdec_command.py")
FILE = re.compile(r"^New file `([\w.]+)` in `([\w/]+)`", re.MULTILINE)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINE = re.compile(r"^- (Registry|Test), (imports of|`\w+` in) `([\w/.]+)`[^:`]*:((?:.|\n(?!\n|- ))*)", re.MULTILINE)


class Recipe(NamedTuple):
    """One section."""

    name: str
    file: str
    code: str
    lines: tuple[tuple[str, str, str], ...]
    """(file, name of the mapping or "imports of", line)"""


def recipes(page: str) -> dict[str, Recipe]:
    """Title -> recipe."""
    found = {}
    chapter = page.partition("\n## Recipes\n")[2].partition("\n## ")[0]
    for section in chapter.split("\n### ")[1:]:
        title, _, text = section.partition("\n")
        (file,), block = FILE.findall(text), BLOCK.search(text)
        assert block is not None, title
        lines = [
            (where, place.replace(" in", "").strip("`"), line)
            for _, place, where, rest in LINE.findall(text)
            for line in re.findall(r"`(.+?)`(?: and|[;(,]| \(|$)", rest.replace("\n", " ").strip())
            if line.endswith(",") or "import" in line
        ]
        name = re.search(r'"([\w+-]+)"|import (\w+) as', lines[0][2])
        assert name is not None, title
        found[title] = Recipe(name[1] or name[2], f"{file[1].rstrip('/')}/{file[0]}", block[1], tuple(lines))
    return found


RECIPES = recipes((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
CONTRACTS = {
    "A filter": ("tests/test_agents.py", 20),
    "An agent that is not a filter": ("tests/test_agents.py tests/test_agent_options.py", 10),
    "A policy": ("tests/contracts/test_policies.py", 4),
    "An environment": ("tests/test_envs.py", 3),
    "An experiment": ("tests/test_registry.py tests/reproduction/test_experiments.py tests/test_cli.py", 2),
    "An optimizer": ("tests/contracts/test_optimizers.py", 4),
    "An estimator of off-policy evaluation": ("tests/test_ope.py", 1),
    "A surrogate of Bayesian optimization": ("tests/test_bo.py", 1),
}
"""Title -> files with the contract tests of the registry, and how many of them a new name passes at least."""


def add(text: str, place: str, line: str) -> str:
    """The text of a file with a line more, in the mapping of that name or among the imports."""
    if place == "imports of":
        return text.replace("\nfrom seqdec.", f"\n{line}\nfrom seqdec.", 1)
    opening = re.search(rf'^{place}\b(?:.*\n){{0,2}}?.*\{{\n(?=\s+"[^"]+": )', text, re.MULTILINE)
    assert opening is not None, f"there is no mapping {place}"
    return f"{text[: opening.end()]}    {line}\n{text[opening.end() :]}"


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What pytest prints of the contract tests, after all recipes were followed in a copy."""
    copy = tmp_path_factory.mktemp("copy")
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, copy / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / part, copy / part)
    for recipe in RECIPES.values():
        assert not (copy / recipe.file).exists(), recipe.file
        (copy / recipe.file).write_text(recipe.code, encoding="utf-8")
        for where, place, line in recipe.lines:
            text = (copy / where).read_text(encoding="utf-8")
            (copy / where).write_text(add(text, place, line), encoding="utf-8")
    files = sorted({file for files, _ in CONTRACTS.values() for file in files.split()})
    names = " or ".join(f"[{recipe.name} or -{recipe.name}" for recipe in RECIPES.values())
    options = ["-n", "0", "-v", "-p", "no:cacheprovider", "-k", f"({names} or is_under_test) and not [signed"]
    program = [sys.executable, "-m", "pytest", *options, *files]
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(program, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    assert "error" not in done.stdout.lower().splitlines()[-1], done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


def test_every_recipe_has_a_contract_and_a_name_of_its_own() -> None:
    assert set(RECIPES) == set(CONTRACTS)
    assert len({recipe.name for recipe in RECIPES.values()}) == len(RECIPES)


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_passes_the_contract_tests_of_its_registry(title: str, followed: str) -> None:
    files, least = CONTRACTS[title]
    results = [line for line in followed.splitlines() if line.startswith(tuple(files.split()))]
    own = [line for line in results if re.search(rf"[\[-]{RECIPES[title].name}[\]-]", line)]
    assert [line for line in results if " FAILED" in line or " ERROR" in line] == [], followed[-6000:]
    assert sum(" PASSED" in line for line in own) >= least, "\n".join(own)


def test_a_line_is_added_to_the_mapping_of_that_name() -> None:
    text = 'REGISTRY: Registry[Agent] = Registry(\n    "agent",\n    {\n        "a": a,\n    },\n)\n'
    text += 'SMALL = {\n    "b": {},\n}\n'
    assert '{\n    "c": c,\n        "a": a' in add(text, "REGISTRY", '"c": c,')
    assert 'SMALL = {\n    "c": {},\n    "b"' in add(text, "SMALL", '"c": {},')
    assert add("import optax\n\nfrom seqdec.x import y\n", "imports of", "import z").splitlines()[2] == "import z"
