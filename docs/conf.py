"""The documentation as a web site, built by Sphinx from the Markdown pages, the notebooks and the docstrings.

    python -m sphinx -W --keep-going -c docs . build/site

With SEQDEC_VERSIONS="0.2 main", the side bar leads to the sites of these versions, in folders beside this one.

The source folder is the root of the repository, so that the links between pages, notebooks and files are the same here
and on GitHub; what is not named in `include_patterns` is left out.
"""

import functools
import inspect
import os
import pkgutil
import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import optax

import seqdec
from seqdec import agents, ope, optim, policies
from seqdec.bo.surrogates import contract as surrogates
from seqdec.registry import Registry

ROOT = Path(__file__).resolve().parents[1]

project = "seqdec"
author = "The seqdec authors"
project_copyright = "the seqdec authors"
version = release = seqdec.__version__

CHAPTERS = {
    "index": (
        *("start", "choosing", "concepts", "tutorial-service", "how-to", "gallery", "bandits", "services"),
        *("bayesian-optimization", "off-policy-evaluation", "optimizers", "command-line", "filters"),
        *("measurements/index", "notebooks", "comparison", "api/index"),
    ),
    "how-to": ("own-parts", "router", "personalizer", "faq", "when-not"),
    "bandits": ("agents", "environments", "features", "catalogs", "recommender"),
    "services": (*("service-log", "start-time", "serve", "serve-experiments", "many-servers", "runbook", "security"),),
    "bayesian-optimization": (
        *(
            "search-spaces",
            "search-knowledge",
            "search-noise",
            "search-surrogates",
            "search-integrations",
            "constraints",
        ),
    ),
    "optimizers": ("which-optimizer", "matrices"),
    "off-policy-evaluation": ("ope-logs", "ope-learning", "ope-arms"),
    "command-line": ("sweeps", "data"),
    "filters": ("mathematics", "missing-observations"),
    "measurements/index": (
        *("measurements/bandits", "measurements/recommender", "measurements/services"),
        *("measurements/off-policy-evaluation", "measurements/bayesian-optimization"),
        "measurements/optimizers",
        *("measurements/comparison", "measurements/speed"),
        *("measurements/reproduction", "measurements/reproduction-optimizers", "../benchmarks/README"),
    ),
    "notebooks": ("../notebooks/*",),
    "api/index": ("api/seqdec*", "../CONTRIBUTING", "../CHANGELOG"),
}
"""Pages of docs/ below the page that opens them in the side bar."""

FAMILIES: dict[str, tuple[str, Registry[Any]]] = {
    "agents": ("agents", agents.REGISTRY),
    "policies": ("policies", policies.REGISTRY),
    "surrogates": ("bo", surrogates.REGISTRY),
    "estimators": ("ope", ope.REGISTRY),
    "optimizers": ("optim", optim.REGISTRY),
}
"""Of docs/gallery.md: the package whose reference has them, and the registry."""

root_doc = "docs/index"
include_patterns = ["docs/**", "notebooks/*.ipynb", "benchmarks/README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
exclude_patterns = ["docs/_extra", "docs/_templates"]
templates_path = [str(ROOT / "docs/_templates")]

extensions = [
    *("myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.linkcode", "sphinx.ext.napoleon"),
    "sphinx_copybutton",
]

# Pages and notebooks: anchors of all headings, formulas between dollars, outputs as they are stored.
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 4
nb_execution_mode = "off"

# Docstrings: one pair of backticks is code, names are those that a user types, fields stay in their order.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 70
autodoc_typehints_format = "short"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False

highlight_language = "none"
html_theme = "furo"
html_math_renderer = "mathml"
html_title = f"seqdec {version}"
html_use_index = False
html_domain_indices = False
html_extra_path = ["_extra"]
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_context = {"versions": os.environ.get("SEQDEC_VERSIONS", "").split()}
html_theme_options = {
    "source_repository": "https://github.com/seqdec/seqdec/",
    "source_branch": "main",
    "source_directory": "",
}


_CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
_DOTTED = re.compile(r"(?<![\w.])[a-z]\w*(?:\.\w+)+")
_IMPORTED = re.compile(r"from (seqdec[\w.]*) import ([\w, ]+)")
_SECTION = re.compile(r"(Args|Returns|Raises|Yields|Examples?):$")
_NAME = re.compile(r"`seqdec(\.\w+)+`")
_LITERAL = re.compile(r'(?<=<span class="pre">)[^<]+')
_ADDRESS = re.compile(r"<(?:bound method|function) ([\w.<>]+)(?: of .*?)? at 0x[0-9a-f]+>")
_fields: dict[str, list[str]] = {}
_bar: list[str] = []


def _entries(text: str) -> str:
    """A page with a table of names and first lines of docstrings for each comment `all FAMILY`."""
    for family, (package, registry) in FAMILIES.items():
        rows = ["| name | |", "|---|---|"]
        for name in sorted(registry.own()):
            link = f"{name} <seqdec.{package}.{getattr(registry[name], '__name__', name)}>"
            rows.append(f"| {{py:obj}}`{link}` | {registry.describe(name)} |")
        text = text.replace(f"<!-- all {family} -->", "\n".join(rows))
    return text


def _named_in(text: str, alone: Mapping[str, str]) -> Iterator[str]:
    """The dotted names in the code of a page, also of what has no page; `alone` holds those that say enough."""
    for code in _CODE.findall(text):
        for name in _DOTTED.findall(code):
            parts = name.removeprefix("seqdec.").split(".")
            counts = (1, 2) if name.startswith("seqdec.") else (2,)
            yield from {f"seqdec.{'.'.join(parts[:count])}" for count in counts}
        for module, names in _IMPORTED.findall(code):
            yield from (f"{module}.{name}" for name in re.findall(r"\w+", names))
        first = re.match(r"`(\w+)", code)
        if first and first[1] in alone:
            yield alone[first[1]]


def _used_in() -> dict[str, list[str]]:
    """For each name, at most five guides and notebooks, those first that name it most often."""
    reference = {page.stem: page.read_text(encoding="utf-8") for page in (ROOT / "docs/api").glob("seqdec*.md")}
    objects = [(module, name) for module, text in reference.items() for name in re.findall(r"^   (\w+)$", text, re.M)]
    often = Counter(name for _, name in objects)
    alone = {name: f"{module}.{name}" for module, name in objects if often[name] == 1 and re.search("[A-Z_]", name)}
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    sources = [*(ROOT / "docs").glob("*.md"), *(ROOT / "notebooks").glob("[0-9]*.py")]
    for path in sorted(sources, key=lambda path: (path.stem == "gallery", path)):
        text = path.read_text(encoding="utf-8")
        text = _entries(text) if path.suffix == ".md" else f"```{text.replace('`', '')}```"
        for name in _named_in(text, alone):
            found[name][f"/{path.parent.name}/{path.stem}"] += 1
    return {name: [page for page, _ in pages.most_common(5)] for name, pages in found.items()}


autosummary_context = {"used_in": _used_in()}


def _cards() -> str:
    """README from its installation to its last card, with links to the pages of the site."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    cards = text[text.index("## Install") : text.index("## Where to go next")]
    return cards.replace("https://github.com/seqdec/seqdec/blob/main/docs/", "")


def _contents(_app: Any, page: str, text: list[str]) -> None:
    """The cards, the tables of the gallery, and the side bar, in blocks that GitHub does not show."""
    text[0] = _entries(text[0]).replace("<!-- cards -->", _cards())
    below = [posixpath.normpath(f"/docs/{name}") for name in CHAPTERS.get(page.removeprefix("docs/"), ())]
    if below:
        text[0] += "\n".join(("\n```{toctree}", ":hidden:", ":glob:", "", *below, "```\n"))


def _restructured(lines: list[str]) -> Iterator[str]:
    """A docstring as reStructuredText: indented paragraphs are literal blocks; | and * stand for themselves."""
    literal, section, example, previous = False, False, False, ""
    for line in lines:
        indented = line.startswith("    ")
        if line and not indented:
            literal, section = False, bool(_SECTION.match(line))
        elif indented and not (previous or literal or section):
            literal = True
            yield from ("::", "")
        previous, example = line, bool(line) and (example or line.lstrip().startswith(">>> "))
        parts = [line] if literal or example else re.split(r"(``?[^`]+``?)", line)
        parts[::2] = [part if literal or example else re.sub(r"([|*])", r"\\\1", part) for part in parts[::2]]
        parts[1::2] = [f":py:obj:{part}" if _NAME.fullmatch(part) else part for part in parts[1::2]]
        yield "".join(parts)


def _restructure(_app: Any, what: str, name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    lines[:] = _restructured(lines)
    if what in ("attribute", "property"):
        _fields[name] = list(lines)


def _restore(_app: Any, _what: str, name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """The docstring of a field as it was: napoleon takes what stands before a colon for a type."""
    lines[:] = _fields.pop(name, lines)


def _named(_app: Any, _what: str, _name: str, _object: Any, _options: Any, signature: str, returns: str) -> Any:
    """Functions that are defaults, and types of learning rates, by their names."""
    from sphinx.util.typing import stringify_annotation

    rates = stringify_annotation(optax.ScalarOrSchedule, "smart")
    signature = signature and _ADDRESS.sub(r"\1", signature).replace(rates, "optax.ScalarOrSchedule")
    return signature, returns


def _detach(app: Any, tree: Any) -> None:
    """Pages of objects are reached from their package and by search, not from the side bar; lists are not searched."""
    from sphinx.ext.autosummary import autosummary_toc

    for node in list(tree.findall(autosummary_toc)):
        node.parent.remove(node)
    if app.env.docname in ("CHANGELOG", "benchmarks/README", "docs/gallery"):
        app.env.metadata[app.env.docname]["nosearch"] = "True"


def _share(_app: Any, page: str, _template: str, context: dict[str, Any], _tree: Any) -> None:
    """One side bar for the pages of all objects: making each its own would take most of the build's time."""
    if page.startswith("docs/api/objects/"):
        make = context["toctree"]
        context["toctree"] = lambda **options: _bar[0] if _bar else _bar.append(make(**options)) or _bar[0]


def _break(_app: Any, _page: str, _template: str, context: dict[str, Any], _tree: Any) -> None:
    """A long name in a table breaks after its dots, slashes and underscores, not within a word."""

    def broken(cell: re.Match[str]) -> str:
        return _LITERAL.sub(lambda name: re.sub(r"(?<=[_./:=])(?=[A-Za-z])", "<wbr>", name[0]), cell[0])

    context["body"] = re.sub(r"<td>.*?</td>", broken, context.get("body", ""), flags=re.DOTALL)


def _mathml(writer: Any, node: Any) -> None:
    """A formula as MathML, which browsers draw without a script."""
    from docutils import nodes
    from docutils.utils.math.latex2mathml import tex2mathml

    writer.body.append(tex2mathml(node.astext(), as_block=isinstance(node, nodes.math_block)))
    raise nodes.SkipNode


def linkcode_resolve(_domain: str, info: dict[str, str]) -> str | None:
    """The address of an object's source."""
    try:
        found = inspect.unwrap(pkgutil.resolve_name(f"{info['module']}:{info['fullname']}"))
        lines, first = inspect.getsourcelines(found)
        path = Path(inspect.getsourcefile(found) or "").resolve().relative_to(ROOT)
    except (AttributeError, OSError, TypeError, ValueError):
        return None
    return f"https://github.com/seqdec/seqdec/blob/main/{path}#L{first}-L{first + len(lines) - 1}"


def setup(app: Any) -> None:
    """The side bar, and what autodoc does with docstrings and signatures, before napoleon and after it."""
    import furo

    app.connect("source-read", _contents)
    app.connect("doctree-read", _detach, priority=400)
    app.connect("html-page-context", _share, priority=400)
    app.connect("html-page-context", _break)
    app.add_html_math_renderer("mathml", (_mathml, None), (_mathml, None))
    furo.get_navigation_tree = functools.cache(furo.get_navigation_tree)
    app.connect("autodoc-process-docstring", _restructure, priority=400)
    app.connect("autodoc-process-docstring", _restore, priority=600)
    app.connect("autodoc-process-signature", _named)
