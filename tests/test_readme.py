"""Each Python block of README.md and docs/ runs as printed, alone in an empty folder.

The blocks of a tutorial are one program.

A block that imports an extra runs only where that is installed.
"""

import importlib.util
import re
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path

import jax
import matplotlib
import pytest

import seqdec

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXTRAS = ("keras", "lightgbm", "mlflow", "optuna", "ray", "tensorboardX", "torch")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks_of(text):
    """The Python blocks of a page, each after as many empty lines as precede it, so that errors show the true line."""
    found = re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return ["\n" * text.count("\n", 0, match.start(1)) + match[1] for match in found]


def programs_of(page):
    """What is run of a page: its blocks or, of a tutorial, all of them in their order, each at its lines."""
    blocks = blocks_of(page.read_text(encoding="utf-8"))
    if not page.stem.startswith("tutorial"):
        return blocks
    lines = [""] * max(len(block.splitlines()) for block in blocks)
    for block in blocks:
        lines = [one or other for one, other in zip_longest(block.splitlines(), lines, fillvalue="")]
    return ["\n".join(lines)]


def is_runnable(block):
    """Whether the extras that a block imports are installed."""
    imports = " ".join(re.findall(r"^(?:import|from) .*", block, re.MULTILINE))
    return all(importlib.util.find_spec(name) for name in EXTRAS if re.search(rf"\b{name}\b", imports))


BLOCKS = {f"{page.stem}-{index}": (page.name, block) for page in PAGES for index, block in enumerate(programs_of(page))}


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """An empty working directory, no window for figures; the tests' compilation cache is restored."""
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    folder = jax.config.jax_compilation_cache_dir
    yield
    seqdec.compilation_cache(folder)


def test_every_block_defines_the_names_that_it_uses(tmp_path):
    for name, (_, block) in BLOCKS.items():
        (tmp_path / f"{name}.py").write_text(block, encoding="utf-8")
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.sampled(13)
@pytest.mark.slow
@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_runs_by_itself(name):
    page, block = BLOCKS[name]
    if not is_runnable(block):
        pytest.skip("it imports an extra that is not installed")
    names = {"__name__": "__main__"}
    exec(compile(block, page, "exec"), names)
    if name.startswith("tutorial-service"):  # uniform play has 0.19, the best offers 0.36
        assert names["truth"]["2024-04-08"]["service"] > 0.33
