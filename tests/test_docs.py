"""What documentation, docstrings and comments refer to exists (files, links, names, commands); spelling is American."""

import importlib.util
import pkgutil
import re
from pathlib import Path

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
# They name what does not exist.
EXEMPT = {ROOT / "CHANGELOG.md", Path(__file__).resolve(), *(ROOT / "examples" / "parts").glob("*.py")}

EXTRAS = {"seqdec.integrations.optuna": "optuna"}

GROUPS = ("bench", "ope", "report", "run", "sweep")

PATH = re.compile(rf"(?<![\w/.$-])(?:{'|'.join(FOLDERS)})/(?:[\w.-]+/)*[\w-]+\.(?:py|md|png|toml|yaml)\b")
SPAN = re.compile(r"`([^`\n]+)`")
NAME = re.compile(r"^seqdec(?:\.\w+)+|(?<![\w./-])seqdec(?:\.\w+)+(?=\()")  # at the start, or called
COMMAND = re.compile(r"`seqdec ((?:run|sweep|ope|bench|list|report)\b[^`]*)`")
SHELL = re.compile(r"^(?:    .*?)?(?<![\w-])seqdec ((?:run|sweep|tune|ope|bench|list|report)\b.*)$", re.MULTILINE)
TOML = re.compile(r"^```toml\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
OWN = re.compile(
    r"https://(?:github\.com/seqdec/seqdec/(?:blob|tree)/main|raw\.githubusercontent\.com/seqdec/seqdec/main)/"
)
SITE = re.compile(r"https://seqdec\.github\.io/seqdec/(.*)\.html$")

COPIES = (
    *("README", "docs/choosing", "docs/comparison", "docs/reproduction", "docs/reproduction-optimizers"),
    "docs/when-not",
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


def name_of(path):
    return str(path.relative_to(ROOT))


def missing_paths(text):
    """Files of the repository that the text names and that do not exist, sorted."""
    return sorted({path for path in PATH.findall(text) if not (ROOT / path).is_file()})


def missing_names(text):
    """Dotted names in backticks that are no module of the library and no attribute of one, sorted.

    Names of a module whose extra is not installed are left out.
    """
    names = {name for span in SPAN.findall(text) for name in NAME.findall(span)}
    absent = tuple(module for module, extra in EXTRAS.items() if not importlib.util.find_spec(extra))
    return sorted(name for name in names if not name.startswith(absent) and not resolves(name))


def resolves(name):
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def anchors(text):
    """The anchors of a page's headings."""
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


def place(page, link):
    """The file of the repository and the anchor to which a link leads, also by its address; None: somewhere else."""
    path, _, anchor = link.partition("#")
    if own := OWN.match(path):
        return ROOT / path[own.end() :], anchor
    if site := SITE.match(path):
        return ROOT / f"{site[1]}.md", anchor
    return None if "://" in path else (page.parent / path if path else page, anchor)


def broken_links(page, text):
    """Links into the repository that lead to no file, or to no heading of a page."""
    broken = []
    for link in LINK.findall(text):
        target, anchor = place(page, link) or (page, "")
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            broken.append(link)
    return broken


def section(text, anchor):
    """The part of a page below the heading with this anchor, to the next one that is not below it; "": the page."""
    if not anchor:
        return text
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)  # a comment in a block is no heading
    headings = list(re.finditer(r"^(#+) .+$", text, re.MULTILINE))
    start = next(heading for heading in headings if anchors(heading[0]) == {anchor})
    after = (heading.start() for heading in headings if heading.start() > start.start() and heading[1] <= start[1])
    return text[start.start() : next(after, len(text))]


def copied_figures(text):
    """(figure, link) for each figure of the tables with the columns "figure" and "details"."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        header, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
        if {"figure", "details"} <= set(header):
            cells = [dict(zip(header, row, strict=True)) for row in rows]
            found += [(figure, row["details"]) for row in cells for figure in FIGURE.findall(row["figure"])]
    return found


def strange_figures(page, text):
    """Copied figures that the linked section does not have."""
    strange = []
    for figure, details in copied_figures(text):
        target, anchor = place(page, LINK.findall(details)[0])
        if target.suffix == ".py":  # they stand on this page alone
            continue
        source = section(target.read_text(encoding="utf-8"), anchor)
        if figure not in FIGURE.findall(source):
            strange.append((figure, details))
    return strange


@pytest.mark.parametrize("path", [path for path in (*PAGES, *SOURCES) if path not in EXEMPT], ids=name_of)
def test_named_files_and_objects_exist(path):
    text = path.read_text(encoding="utf-8")
    assert missing_paths(text) == []
    assert missing_names(text) == []


@pytest.mark.parametrize("path", [path for path in (*PAGES, *SOURCES) if path != Path(__file__).resolve()], ids=name_of)
def test_spelling_is_american(path):
    assert BRITISH.findall(f"{name_of(path)}\n{path.read_text(encoding='utf-8')}") == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    assert broken_links(page, page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("name", COPIES)
def test_copied_figures_are_those_of_the_linked_section(name):
    page = ROOT / f"{name}.md"
    text = page.read_text(encoding="utf-8")
    assert len(copied_figures(text)) > 10
    assert strange_figures(page, text) == []


def commands():
    """Command lines of the pages, without those that have a placeholder or an ellipsis and the names of groups."""
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    found = {" ".join(line.split()) for text in texts for line in (*COMMAND.findall(text), *SHELL.findall(text))}
    return sorted(
        line
        for line in found
        if "..." not in line and "EXPERIMENT" not in line and "--resume" not in line and line not in GROUPS
    )


@pytest.mark.parametrize("command", commands())
def test_commands_are_understood(command, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "_run", lambda options, resuming: 0)
    monkeypatch.setattr(cli, "_report", lambda folder: 0)
    (sweep,) = TOML.findall((ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8"))
    (tmp_path / "sweep.toml").write_text(sweep, encoding="utf-8")
    assert cli.main(command.split()) == 0


def test_every_page_is_in_the_table_of_contents():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert pages == {link for link in LINK.findall(index) if link.endswith(".md") and "/" not in link}


def test_links_of_the_readme_are_addresses():
    """The package index shows it too, where relative links lead nowhere."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [link for link in LINK.findall(text) if not link.startswith(("https://", "#"))] == []


def test_commands_of_shell_blocks_are_found():
    assert {"run digits", "sweep sweep.toml --workers 4 --out results/sweep"} <= set(commands())
    assert SHELL.findall("    a && .venv/bin/seqdec run x --y\nseqdec sweep z\nor seqdec run not") == [
        "run x --y",
        "sweep z",
    ]


def test_what_does_not_exist_is_found():
    assert missing_paths("see `benchmarks/nothing.py` and seqdec/core.py") == ["benchmarks/nothing.py"]
    assert missing_names("`seqdec.core.Agent(x)` or `print(seqdec.core.nobody(1))`") == ["seqdec.core.nobody"]
    page = ROOT / "docs" / "index.md"
    assert broken_links(page, "[a](data.md), [b](none.md), [c](bandits.md#none)") == ["none.md", "bandits.md#none"]
    blob, raw = "https://github.com/seqdec/seqdec/blob/main", "https://raw.githubusercontent.com/seqdec/seqdec/main"
    site = "https://seqdec.github.io/seqdec/docs"
    lost = [f"{blob}/docs/none.md", f"{blob}/docs/bandits.md#none", f"{raw}/none.png", f"{site}/none.html"]
    found = [
        f"{blob}/docs/bandits.md#mnist",
        f"{raw}/docs/mnist.png",
        f"{site}/faq.html",
        "https://example.com/none.md",
    ]
    assert broken_links(page, " ".join(f"[x]({link})" for link in lost + found)) == lost


def test_a_figure_that_is_not_in_the_linked_section_is_found(tmp_path):
    (tmp_path / "there.md").write_text(
        "# One\n\n1.5 ± 0.2, -.07\n\n## Below\n\n4,000\n\n# Two\n\n7\n", encoding="utf-8"
    )
    rows = "".join(f"| {figure} | [one](there.md#one) |\n" for figure in ("1.5 ± 0.2", "1.5", "**-.07**", "4,000", "7"))
    text = f"| figure | details |\n|---|---|\n{rows}"
    assert [figure for figure, _ in strange_figures(tmp_path / "page.md", text)] == ["1.5", "7"]
