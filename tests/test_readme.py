"""The README's Python blocks run as printed, and its first example comes early."""

import re
from pathlib import Path

import matplotlib
import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def test_first_example_ends_within_thirty_lines():
    assert README.read_text().index("```python") < len("\n".join(README.read_text().splitlines()[:30]))
    assert README.read_text().splitlines()[:30].count("```") == 1


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_block_runs(block, tmp_path, monkeypatch):
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {})
