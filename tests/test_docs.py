"""What documentation, docstrings and comments refer to exists (files, links, names, commands); spelling is American."""

import importlib.util
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seqdec import cli

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("agents", "benchmarks", "docs", "envs", "examples", "notebooks", "reproduction", "seqdec", "tests")
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md")),
        *(path for suffix in ("md", "yml") for path in (ROOT / ".github").rglob(f"*.{suffix}")),
    ]
)
SOURCES = sorted({path.resolve() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")})
OWN = Path(__file__).resolve()
EXEMPT = {ROOT / "CHANGELOG.md", OWN, *(ROOT / "examples" / "parts").glob("*.py")}
"""They name what does not exist."""
TEXTS = {path: path.read_text(encoding="utf-8") for path in (*PAGES, *SOURCES) if path != OWN}
EXTRAS = {"seqdec.integrations.optuna": "optuna"}
GROUPS = ("bench", "ope", "report", "run", "sweep")

PATH = re.compile(rf"(?<![\w/.$-])(?:{'|'.join(FOLDERS)})/(?:[\w.-]+/)*[\w-]+\.(?:py|md|png|toml|yaml)\b")
SPAN = re.compile(r"`([^`\n]+)`")
NAME = re.compile(r"^seqdec(?:\.\w+)+|(?<![\w./-])seqdec(?:\.\w+)+(?=\()")  # at the start, or called
COMMAND = re.compile(r"`seqdec ((?:run|sweep|ope|bench|list|report)\b[^`]*)`")
SHELL = re.compile(r"^(?:    .*?)?(?<![\w-])seqdec ((?:run|sweep|tune|ope|bench|list|report)\b.*)$", re.MULTILINE)
TOML = re.compile(r"^```toml\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
OURS = re.compile(
    r"https://(?:github\.com/seqdec/seqdec/(?:blob|tree)/main|raw\.githubusercontent\.com/seqdec/seqdec/main)/"
)
SITE = re.compile(r"https://seqdec\.github\.io/seqdec/(.*)\.html$")
COPIES = (
    "README",
    *(f"docs/measurements/{name}" for name in ("bandits", "bayesian-optimization", "comparison")),
    *(f"docs/measurements/{name}" for name in ("optimizers", "reproduction", "reproduction-optimizers")),
)
"""Pages whose tables with the columns "figure" and "details" copy figures from where the details lead."""
NUMBER = r"(?:\d+(?:,\d{3})*(?:\.\d+)?|\.\d+)(?:e[+-]?\d+)?"
FIGURE = re.compile(rf"(?<![\w.,])-?{NUMBER}(?: ± {NUMBER})?(?![\w])")
BRITISH = re.compile(
    r"(?:factor|general|linear|maxim|minim|normal|optim|orthogonal|penal|random|recogn|regular|standard|summar|vector)"
    r"is(?!ed Bayes)(?:e|ing|ation)|(?:behavi|col|fav|hon|neighb)our|centr(?:e|ing)|(?:label|model)l(?:ed|ing)|"
    r"\bgrey\b|catalogue|licence|learnt|spelt",
    re.IGNORECASE,
)
"""Stems whose American spelling is another one; but for the title of a paper."""


def missing_paths(text: str) -> list[str]:
    """Files of the repository that the text names and that do not exist."""
    return sorted({path for path in PATH.findall(text) if not (ROOT / path).is_file()})


def missing_names(text: str) -> list[str]:
    """Dotted names in backticks that are no module of the library and no attribute of one, but for absent extras."""
    names = {name for span in SPAN.findall(text) for name in NAME.findall(span)}
    absent = tuple(module for module, extra in EXTRAS.items() if not importlib.util.find_spec(extra))
    return sorted(name for name in names if not name.startswith(absent) and not resolves(name))


def resolves(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings."""
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


def place(page: Path, link: str) -> tuple[Path, str] | None:
    """The file of the repository and the anchor to which a link leads, also by its address; None: somewhere else."""
    path, _, anchor = link.partition("#")
    if own := OURS.match(path):
        return ROOT / path[own.end() :], anchor
    if site := SITE.match(path):
        return ROOT / f"{site[1]}.md", anchor
    return None if "://" in path else (page.parent / path if path else page, anchor)


def broken_links(page: Path, text: str) -> Iterator[str]:
    """Links into the repository that lead to no file, or to no heading of a page."""
    for link in LINK.findall(text):
        target, anchor = place(page, link) or (page, "")
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            yield link


def section(text: str, anchor: str) -> str:
    """The part of a page below the heading with this anchor, to the next one that is not below it; "": the page."""
    if not anchor:
        return text
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)  # a comment in a block is no heading
    headings = list(re.finditer(r"^(#+) .+$", text, re.MULTILINE))
    start = next(heading for heading in headings if anchors(heading[0]) == {anchor})
    after = (heading.start() for heading in headings if heading.start() > start.start() and heading[1] <= start[1])
    return text[start.start() : next(after, len(text))]


def copied_figures(text: str) -> Iterator[tuple[str, str]]:
    """(figure, link) for each figure of the tables with the columns "figure" and "details"."""
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        header, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
        if {"figure", "details"} <= set(header):
            for row in (dict(zip(header, cells, strict=True)) for cells in rows):
                for figure in FIGURE.findall(row["figure"]):
                    yield figure, row["details"]


def strange_figures(page: Path, text: str) -> Iterator[tuple[str, str]]:
    """Copied figures that the linked section does not have."""
    for figure, details in copied_figures(text):
        target, anchor = place(page, LINK.findall(details)[0]) or (page, "")
        if target.suffix == ".py":  # they stand on this page alone
            continue
        if figure not in FIGURE.findall(section(target.read_text(encoding="utf-8"), anchor)):
            yield figure, details


def faults(found: Any) -> dict[str, list[Any]]:
    """By file, where there are some."""
    listed = {str(path.relative_to(ROOT)): list(some) for path, some in found}
    return {path: some for path, some in listed.items() if some}


def test_named_files_and_objects_exist() -> None:
    texts = {path: text for path, text in TEXTS.items() if path not in EXEMPT}
    assert faults((path, missing_paths(text) + missing_names(text)) for path, text in texts.items()) == {}


def test_spelling_is_american() -> None:
    assert faults((path, BRITISH.findall(f"{path.relative_to(ROOT)}\n{text}")) for path, text in TEXTS.items()) == {}


def test_links_lead_somewhere() -> None:
    """Those of the README are addresses: the package index shows it too, where relative links lead nowhere."""
    assert faults((page, broken_links(page, TEXTS[page])) for page in PAGES) == {}
    links = LINK.findall(TEXTS[ROOT / "README.md"])
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


@pytest.mark.parametrize("name", COPIES)
def test_copied_figures_are_those_of_the_linked_section(name: str) -> None:
    page = ROOT / f"{name}.md"
    assert len(list(copied_figures(TEXTS[page]))) > 10
    assert list(strange_figures(page, TEXTS[page])) == []


def commands() -> list[str]:
    """Command lines of the pages, without those that have a placeholder or an ellipsis and the names of groups."""
    found = {
        " ".join(line.split()) for page in PAGES for form in (COMMAND, SHELL) for line in form.findall(TEXTS[page])
    }
    left = ("...", "EXPERIMENT", "--resume")
    return sorted(line for line in found if not any(word in line for word in left) and line not in GROUPS)


@pytest.mark.parametrize("command", commands())
def test_commands_are_understood(command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "_run", lambda options, resuming: 0)
    monkeypatch.setattr(cli, "_report", lambda folder: 0)
    (sweep,) = TOML.findall((ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8"))
    (tmp_path / "sweep.toml").write_text(sweep, encoding="utf-8")
    assert cli.main(command.split()) == 0


def test_what_does_not_exist_is_found() -> None:
    assert {"run digits", "sweep sweep.toml --workers 4 --out results/sweep"} <= set(commands())
    assert missing_paths("see `benchmarks/nothing.py` and seqdec/core.py") == ["benchmarks/nothing.py"]
    assert missing_names("`seqdec.core.Agent(x)` or `print(seqdec.core.nobody(1))`") == ["seqdec.core.nobody"]
    lost, found = ["none.md", "bandits.md#none"], ["data.md", "bandits.md#policies", "https://example.com/none.md"]
    links = " ".join(f"[x]({link})" for link in lost + found)
    assert list(broken_links(ROOT / "docs" / "index.md", links)) == lost
