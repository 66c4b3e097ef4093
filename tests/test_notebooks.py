"""Every notebook is its source with outputs, and every source runs from its first cell to its last."""

import base64

import jupytext
import nbformat
import pytest

from notebooks import build
from tests.test_docs import broken_links

PAIRS = [(source, source.with_suffix(".ipynb")) for source in build.SOURCES]
pairs = pytest.mark.parametrize(("source", "path"), PAIRS, ids=[source.stem for source, _ in PAIRS])


def pictures(notebook):
    """The PNG files among the outputs."""
    data = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])]
    return [base64.b64decode(kinds["image/png"]) for kinds in data if "image/png" in kinds]


def test_notebooks_are_numbered_and_each_has_its_pair():
    assert [source.stem[:2] for source, _ in PAIRS] == [f"{place:02}" for place in range(1, len(PAIRS) + 1)]
    assert [path for _, path in PAIRS] == sorted(build.FOLDER.glob("*.ipynb"))


@pairs
def test_a_pair_has_the_same_cells_and_clean_outputs(source, path):
    written, notebook = jupytext.read(source), nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert [(c.cell_type, c.source) for c in notebook.cells] == [(c.cell_type, c.source) for c in written.cells]
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert build.faults(notebook) == []
    assert pictures(notebook)
    assert path.stat().st_size < 300_000


@pairs
def test_links_of_a_notebook_lead_somewhere(source, path):
    text = "\n".join(cell.source for cell in jupytext.read(source).cells if cell.cell_type == "markdown")
    assert [*broken_links(path, text)] == []


@pytest.mark.sampled(10)
@pytest.mark.slow
@pytest.mark.usefixtures("image_home")
@pytest.mark.parametrize("source", build.SOURCES[2:] + build.SOURCES[:2], ids=lambda source: source.stem)
def test_a_source_runs_and_shows_pictures(source, tmp_path):
    """The third is among the quickest, and runs by default. MNIST is a made-up one of ten patterns here."""
    notebook = build.executed(source, tmp_path)
    assert pictures(notebook)
    assert build.faults(notebook) == []


def test_what_must_not_be_in_the_outputs_is_found():
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": "wrote 3/tmp of docs/home/x\nwrote /home/me/x.csv\n"},
        {"output_type": "stream", "name": "stderr", "text": "UserWarning: careful\n"},
        {"output_type": "display_data", "data": {"text/plain": "<Figure size 1 with 1 Axes>"}, "metadata": {}},
    ]
    cell = nbformat.v4.new_code_cell(outputs=[nbformat.from_dict(output) for output in outputs])
    notebook = nbformat.v4.new_notebook(cells=[cell])
    assert build.faults(notebook) == ["UserWarning: careful", "wrote /home/me/x.csv", "<Figure size 1 with 1 Axes>"]
