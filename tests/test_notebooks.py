"""Every notebook runs from its first cell to its last."""

import subprocess
import sys
from pathlib import Path

import jupytext
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.py"))


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.slow
@pytest.mark.parametrize("source", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_executes(source, tmp_path):
    target = tmp_path / f"{source.stem}.ipynb"
    jupytext.write(jupytext.read(source), target)
    pytest_ = [sys.executable, "-m", "pytest", "--nbmake", "--nbmake-timeout=600", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run([*pytest_, target], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]
