"""Executes the notebooks' sources and writes each with its outputs beside it: NAME.py -> NAME.ipynb.

    python notebooks/build.py             all of them
    python notebooks/build.py 01 mnist    those whose names contain one of the words

A source runs in an empty folder. A warning, another line on standard error or a private path in the outputs is an
error: nothing is written then. Lines of progress are left out, so that outputs depend less on the machine.
"""

import argparse
import base64
import io
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from PIL import Image

FOLDER = Path(__file__).resolve().parent
SOURCES = sorted(FOLDER.glob("[0-9]*.py"))
FIGURES = {"dpi": 90, "metadata": {"Software": None}}
_PROGRESS = re.compile(r"\d+%\|")
_PRIVATE = re.compile(r"(?<![\w.:/])/(?:work|root|home|tmp|Users|var|private)/|[A-Z]:\\\\")


def texts(notebook: nbformat.NotebookNode) -> list[str]:
    """Everything that the outputs say, as text or HTML."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    shown = [text for output in outputs for kind, text in output.get("data", {}).items() if kind.startswith("text/")]
    return [*shown, *(output["text"] for output in outputs if "text" in output)]


def private_paths(notebook: nbformat.NotebookNode) -> list[str]:
    """The outputs' lines that name a file of the machine."""
    return [line for text in texts(notebook) for line in text.splitlines() if _PRIVATE.search(line)]


def executed(source: Path, folder: str) -> nbformat.NotebookNode:
    """The notebook of a source after its execution in `folder`, without what differs from run to run."""
    notebook = jupytext.read(source)
    options = ["--log-level=ERROR", f"--InlineBackend.print_figure_kwargs={FIGURES}"]
    resources = {"metadata": {"path": folder}}
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(FOLDER.parent), os.environ.get("PYTHONPATH")])),
        "PYTHONWARNINGS": "ignore:IProgress not found",  # without ipywidgets
    }
    client = NotebookClient(
        notebook, resources=resources, record_timing=False, coalesce_streams=True, extra_arguments=options
    )
    client.execute(env=environment)
    notebook.metadata["language_info"] = {"name": "python"}
    del notebook.metadata["jupytext"]["text_representation"]
    for place, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{place}"
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                output["data"]["image/png"] = with_palette(output["data"]["image/png"])
            if output.get("name") == "stderr":
                lines = output["text"].splitlines(keepends=True)
                output["text"] = "".join(line for line in lines if not _PROGRESS.search(line))
        if "outputs" in cell:
            cell["outputs"] = [output for output in cell["outputs"] if output.get("text") != ""]
    return notebook


def is_figure(data: dict[str, str]) -> bool:
    """Whether an output is a figure, of which %matplotlib inline makes a picture."""
    return data.get("text/plain", "").startswith("<Figure ")


def faults(notebook: nbformat.NotebookNode) -> list[str]:
    """What must not be in the outputs, as lines."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    errors = [line for o in outputs if o.get("name") == "stderr" for line in o["text"].splitlines()]
    undrawn = [
        data["text/plain"] for o in outputs if "image/png" not in (data := o.get("data", {})) and is_figure(data)
    ]
    return errors + private_paths(notebook) + undrawn


def with_palette(picture: str) -> str:
    """A picture, PNG in base64, with at most 128 colors: a third of the size."""
    reduced, written = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB").quantize(128), io.BytesIO()
    reduced.save(written, "PNG", optimize=True)
    return base64.b64encode(written.getvalue()).decode()


def cpu_seconds() -> float:
    """Of all processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def main() -> int:
    """Execute the sources and write the notebooks without faults; 1 if one has a fault, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="parts of names; all notebooks without")
    words, failed = parser.parse_args().words, 0
    for source in SOURCES:
        if words and not any(word in source.stem for word in words):
            continue
        start, before = time.perf_counter(), cpu_seconds()
        with tempfile.TemporaryDirectory() as folder:
            notebook = executed(source, folder)
        found = faults(notebook)
        if not found:
            nbformat.write(notebook, source.with_suffix(".ipynb"))
        failed += bool(found)
        seconds, cpu = time.perf_counter() - start, cpu_seconds() - before
        print(f"{source.stem}: {seconds:.0f} s, {cpu:.0f} s of CPU time", *found, sep="\n  ", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
