"""The documentation site: every page is in its side bar, every public object is in the reference.

That it builds without warnings is checked by `.ci/run`, because Sphinx is not needed to develop.
"""

import importlib
import inspect
import os
import re
import runpy
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image

import seqdec

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
CONF = runpy.run_path(str(DOCS / "conf.py"))
CHAPTERS = CONF["CHAPTERS"]


def test_each_page_is_in_one_chapter():
    named = [name for pages in CHAPTERS.values() for name in pages]
    pages = [page for name in named for page in DOCS.glob(f"{name}.md") if ".." not in name]
    assert sorted(pages) == sorted({*DOCS.rglob("*.md")} - {DOCS / "index.md"})
    assert all(list((DOCS / name).parent.glob((DOCS / name).name + ".*")) for name in named if name.startswith(".."))
    assert len(CHAPTERS["index"]) <= 25 and {*CHAPTERS} <= {"index", *CHAPTERS["index"]}


def test_pages_are_short():
    """Code aside: a guide has at most 1,500 words, but for mathematics with its derivations, all pages 40,000."""
    words = {}
    for page in DOCS.rglob("*.md"):
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        words[page] = len([word for word in text.split() if re.search(r"\w", word)])
    assert {page.stem for page, count in words.items() if page.parent == DOCS and count > 1500} == {"mathematics"}
    assert sum(words.values()) <= 40_000


MODULES = ["seqdec", *(f"seqdec.{name}" for name in seqdec.__all__ if isinstance(getattr(seqdec, name), ModuleType))]


@pytest.mark.parametrize("name", MODULES)
def test_each_public_object_has_a_page_of_reference(name):
    text = (DOCS / "api" / f"{name}.md").read_text(encoding="utf-8")
    module = importlib.import_module(name)
    assert f".. automodule:: {name}\n" in text
    objects = [key for key in getattr(module, "__all__", ()) if inspect.isroutine(getattr(module, key))]
    objects += [key for key in getattr(module, "__all__", ()) if inspect.isclass(getattr(module, key))]
    assert [key for key in objects if f"\n   {key}\n" not in text and f"`seqdec.{key}`" not in text] == []


@pytest.mark.parametrize("family", CONF["FAMILIES"])
def test_the_gallery_shows_each_registered_object(family):
    """In a table made from the registry, which links to its reference, and in a picture that says what it shows."""
    package, registry = CONF["FAMILIES"][family]
    reference = (DOCS / "api" / f"seqdec.{package}.md").read_text(encoding="utf-8")
    entries = re.findall(rf"`(\S+) <seqdec\.{package}\.(\w+)>`", CONF["_entries"](f"<!-- all {family} -->"))
    assert [name for name, _ in entries] == sorted(registry.own())
    assert [key for _, key in entries if f"\n   {key}\n" not in reference] == []
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    assert f"<!-- all {family} -->" in page and f"(gallery-{family}.png)" in page
    with Image.open(DOCS / f"gallery-{family}.png") as picture:
        shown = picture.text["Description"].split()
    assert shown == sorted(registry.own()), f"draw it again: python benchmarks/gallery.py --families {family}"


def test_tables_and_cards_stand_on_their_own_page_alone():
    """Comments on other pages are read by other programs."""
    pages = {page: page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md")}
    assert [page for page, text in pages.items() if CONF["_entries"](text) != text] == [DOCS / "gallery.md"]
    assert [page for page, text in pages.items() if "<!-- cards -->" in text] == [DOCS / "index.md"]
    assert CONF["_cards"]().startswith("## Install") and "blob/main/docs" not in CONF["_cards"]()


def test_reference_pages_lead_to_what_names_them():
    text = (
        "`optim.alice(1e-3)`, `seqdec.load(x)`, `Log`, soap\n```python\nfrom seqdec.ope import DR, IPS\nrun.regret\n```"
    )
    named = {*CONF["_named_in"](text, {"Log": "seqdec.ope.Log"})}
    assert {f"seqdec.{name}" for name in ("optim.alice", "load", "ope.Log", "ope.DR", "ope.IPS")} <= named
    assert not {"seqdec.run", "seqdec.optim.soap"} & named
    pages = CONF["autosummary_context"]["used_in"]
    assert "/docs/optimizers" in pages["seqdec.optim.alice"] and "/docs/gallery" in pages["seqdec.policies.ucb"]
    assert all(len(pages) <= 5 for pages in pages.values())


def test_the_sites_of_versions_lead_to_each_other():
    """`.ci/run` builds the site of two."""
    if not (site := os.environ.get("SEQDEC_SITE")):
        pytest.skip("needs the built site in $SEQDEC_SITE")
    text = (Path(site) / "docs" / "start.html").read_text(encoding="utf-8")
    assert re.findall(r'href="([^"]*)/index.html">(?:first|second)<', text) == ["../../first", "../../second"]


def test_long_names_break_between_words_in_tables_alone():
    name = '<code><span class="pre">optim.koala_m(b2=0.95)</span></code>'
    context = {"body": f"<td><p>{name}</p></td>{name}"}
    CONF["_break"](None, "", "", context, None)
    assert context["body"] == f"<td><p>{name.replace('.koala_', '.<wbr>koala_<wbr>')}</p></td>{name}"
