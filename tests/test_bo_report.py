"""The page of a search."""

import base64
import io
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from matplotlib import image

import seqdec
from seqdec.bo import BayesianOptimizer, Categorical, Real, Search

QUICK = Search(raw_samples=64, num_restarts=4, steps=10)


class Page(HTMLParser):
    """The rows of tables by their headings, all texts, and the sources of pictures."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.texts: list[str] = []
        self.pictures: list[str] = []
        self.heading, self.tag = "", ""
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tag = tag
        if tag == "tr":
            self.tables.setdefault(self.heading, []).append([])
        if tag == "img":
            self.pictures.append(dict(attrs)["src"])

    def handle_data(self, data: str) -> None:
        if self.tag == "h2" and data.strip():
            self.heading = data
        elif self.tag in ("th", "td") and data.strip():
            self.tables[self.heading][-1].append(data)
        self.texts.append(data)


def test_a_page_holds_the_search(tmp_path: Path) -> None:
    def loss(x: dict[str, Any]) -> float:
        if x["net"]["kind"] == "<b>":
            raise ValueError("no <b>")
        return (math.log10(x["net"]["rate"]) + 2) ** 2

    space = {"net": {"rate": Real(1e-4, 1, log=True), "kind": Categorical(("<b>", "a")), "depth": (3, 3)}}
    result = seqdec.minimize(loss, space, n_calls=8, seed=0, search=QUICK, catch=ValueError, progress=False)
    page = Page(result.report(tmp_path / "search.html"))
    assert result.message in page.texts and any("3 parameters" in text for text in page.texts)
    (heads, *best), (_, *failures) = page.tables["Best trials"], page.tables["Failures"]
    assert heads == ["number", "value", "net.rate", "net.kind", "net.depth", "seconds"]
    assert best[0][1] == f"{result.fun:.6g}" and len(best) == result.optimizer.feasibility().sum()
    assert [float(row[1]) for row in best] == sorted(float(row[1]) for row in best)
    assert failures == [[str(8 - len(best)), "ValueError: no <b>"]] and len(best) < 8
    assert ["seed", "0"] in page.tables["Settings"] and ["parameter net.depth", "Constant(3.0)"] in page.tables[
        "Settings"
    ]
    (source,) = page.pictures
    kind, _, data = source.partition("base64,")
    assert kind == "data:image/png;" and image.imread(io.BytesIO(base64.b64decode(data))).std() > 0.05
    assert not re.search(r"(src|href)=.http", (tmp_path / "search.html").read_text())


def test_a_page_of_several_objectives_has_the_front(tmp_path: Path) -> None:
    study = BayesianOptimizer([(0, 1)], seed=0, objectives=2, outcome_constraints=1, search=QUICK)
    for x in (0.1, 0.5, 0.3, 0.9):
        study.tell([x], (x, abs(x - 0.3)), outcomes=[x - 0.8])
    rows = Page(study.report(tmp_path / "front.htm")).tables["Front"]
    assert [float(row[1]) for row in rows[1:]] == [0.1, 0.3]


def test_a_page_of_failures_only_and_of_one_call(tmp_path: Path) -> None:
    study = BayesianOptimizer([(0, 1)], seed=0)
    study.tell([0.5], math.nan)
    assert "None." in Page(study.report(tmp_path / "page.html")).texts
    study.tell([0.1], 2.0)
    assert Page(study.report(tmp_path / "page.html")).tables["Best trials"][1][:2] == ["1", "2"]


def test_what_is_no_page_is_refused_and_leaves_the_file(tmp_path: Path) -> None:
    study = BayesianOptimizer([(0, 1)], seed=0)
    file = tmp_path / "page.html"
    file.write_text("before")
    with pytest.raises(ValueError, match="there is nothing to draw yet"):
        study.report(file)
    study.tell([0.5], 1.0)
    with pytest.raises(ValueError, match=r"page.png would be a page of HTML with another suffix: call it page.html"):
        study.report(tmp_path / "page.png")
    with pytest.raises(ValueError, match="values are minimized here"):
        study.report(file, maximum=3.0)
    assert file.read_text() == "before" and [one.name for one in tmp_path.iterdir()] == ["page.html"]
