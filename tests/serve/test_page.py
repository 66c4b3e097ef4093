"""The live page: its functions by themselves, its routes, and how it looks in a browser."""

import base64
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqdec.features import Bool, Categorical, Numeric, Tags, Vector
from seqdec.serve import page, reports
from tests.serve.conftest import Running, serving
from tests.service.histories import ARMS, histories, services
from tests.service.test_diagnostics import in_months

EVIL = '"><script>alert(1)</script>'
ABOUT: dict[str, Any] = {"name": "shop", "state": "open", "reason": "", "arms": list(ARMS), "counts": {EVIL: 3}}
COLUMNS = {
    "age": Numeric(40, 12),
    EVIL: Categorical((EVIL, "Rome")),
    "member": Bool(),
    "tags": Tags(("a", "b")),
    "spot": Vector((0.0, 0.0), (1.0, 1.0)),
}
ARM: dict[str, Any] = {
    **{"arm": EVIL, "decisions": 4000, "share": 0.5, "reward": 0.61, "std_error": 0.01, "best": 0.98, "loss": 0.0},
    "difference": {"value": 0.1, "low": 0.05, "high": 0.15},
}
ANSWER: dict[str, Any] = {
    **{"question": "Which arm earns most?", "verdict": EVIL, "decided": True, "rows": 8000, "difference": None},
    **{"total": None, "arms": [ARM, {**ARM, "arm": 3}], "segments": [{"segment": EVIL, "arms": [ARM]}]},
}
ANSWERS = {"arms": ANSWER, "control": {**ANSWER, "arms": [], "segments": [], "decided": False}, "challenger": None}
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Elements(HTMLParser):
    """Tags that are opened, and those left open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.left: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)
        if tag not in ("meta", "input"):
            self.left.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.left.pop() == tag


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    in_months(parts := services(2, 800, 1, 3.0))
    return reports.report(histories(parts)[1])


def pages_of(report: dict[str, Any]) -> list[str]:
    alarm = {"kind": "drift", "subject": EVIL, "observed": EVIL, "cause": EVIL, "action": EVIL}
    belief = {"action": EVIL, "mean": 0.1, "deviation": None, "probability": 0.5, "baseline": 0.0}
    fields = page.fields_of(COLUMNS, {"age": EVIL, EVIL: "Rome", "tags": EVIL})
    return [
        page.overview([ABOUT, {**ABOUT, "name": "b", "state": "failed", "reason": EVIL}]),
        page.deployment(ABOUT, {**report, "alarms": [*report["alarms"], alarm]}),
        page.deployment({**ABOUT, "state": "failed", "reason": EVIL}, None),
        page.report("shop", ANSWERS, EVIL),
        page.explained("shop", fields, [{**belief, "contributions": {EVIL: 0.2}}], EVIL),
    ]


def test_pages_are_whole_and_escape_what_users_wrote(report: dict[str, Any]) -> None:
    shown = pages_of(report)
    for text in shown:
        found = Elements(text)
        assert not found.left and "script" not in found.seen and "b" not in found.seen
    assert "&lt;b&gt;video&lt;/b&gt;" in shown[1] and "age is at its least or largest" in shown[1]
    assert all("alert(1)" in text for text in shown)


def test_a_report_has_arms_by_name_and_the_last_decisions(report: dict[str, Any]) -> None:
    assert {one["arm"] for one in report["arms"]} <= set(ARMS) and sum(
        one["decisions"] for one in report["arms"]
    ) == 800
    assert [one["number"] for one in report["decisions"]] == list(map(str, range(800, 780, -1)))
    assert all(type(one["action"]) in (str, int) for one in report["decisions"])
    assert "weighted by propensities" in report["comparison"]
    (plain,) = histories(services(1, 300, 2, 3.0))
    assert "no test" in reports.report(plain.assign(propensity=np.nan))["comparison"]
    assert reports.report(plain.iloc[:0])["latest"] == 0


def test_the_form_makes_a_row() -> None:
    given = {"age": " 31 ", "member": "true", "tags": "a, c", "spot": "1,2.5", EVIL: "Rome"}
    row = page.row_of(COLUMNS, given)
    assert row == {"age": "31", EVIL: "Rome", "member": True, "tags": ["a", "c"], "spot": [1.0, 2.5]}
    assert set(page.row_of(COLUMNS, {}).values()) == {None}
    with pytest.raises(ValueError, match="numbers separated by commas"):
        page.numbers_of("1,x")


def get(running: Running, path: str, key: str | None, form: str | None = None) -> tuple[int, str, Any]:
    """Status, text and headers, as a browser asks with a key as the password."""
    request = urllib.request.Request(f"http://127.0.0.1:{running.port}{path}", None if form is None else form.encode())
    if key is not None:
        request.add_header("Authorization", "Basic " + base64.b64encode(f"me:{key}".encode()).decode())
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode(), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server whose deployment "shop" has an arm of HTML and some decisions."""
    home = tmp_path_factory.mktemp("page")
    deployments = (Path(__file__).parent / "shop.toml").read_text(encoding="utf-8")
    with serving(home, deployments) as running:
        client = running.client()
        for number in range(12):
            made = client.decide("shop", {"age": 30 + number, "city": "Oslo"})
            client.learn("shop", made["token"], float(number % 2))
        yield running


def test_the_page_of_a_server(shop: Running) -> None:
    reader = shop.keys["reader"]
    status, text, headers = get(shop, "/", reader)
    assert status == 200 and 'href="/deployments/shop"' in text
    assert "default-src 'none'" in headers["Content-Security-Policy"] and headers["Cache-Control"] == "no-store"
    status, text, _ = get(shop, "/deployments/shop", reader)
    assert status == 200 and "&lt;b&gt;sale" in text and "12 decisions" in text
    status, text, _ = get(shop, "/deployments/shop/explain", reader, "age=31&city=Rome")
    assert status == 200 and 'value="31"' in text and "baseline" in text and "&lt;b&gt;sale" in text
    status, text, _ = get(shop, "/deployments/shop/explain", reader, "age=old&city=Rome")
    assert status == 200 and "not a number" in text
    found = shop.client("reader").call("/v1/shop/diagnostics")
    assert (
        found["latest"] == 12 and not found["alarms"] and {one["arm"] for one in found["arms"]} <= {"<b>sale", "news"}
    )


def test_the_page_is_for_keys_that_may_read(shop: Running) -> None:
    for key in (None, "wrong"):
        status, _, headers = get(shop, "/", key)
        assert status == 401 and headers["WWW-Authenticate"].startswith("Basic ")
    assert get(shop, "/deployments/shop", shop.keys["decider"])[0] == 403
    assert "shop" not in get(shop, "/", shop.keys["decider"])[1]
    assert get(shop, "/deployments/none", shop.keys["reader"])[0] == 404
    assert get(shop, "/v1/shop", shop.keys["reader"])[0] == 401  # calls that change something take no password


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
@pytest.mark.parametrize("width", [1200, 500])
def test_a_browser_shows_the_pages(report: dict[str, Any], width: int, tmp_path: Path) -> None:
    """Nothing is wider than the window but what scrolls, and the style counts though a policy forbids others."""
    for place, text in enumerate(pages_of(report)):
        probe = "<script>document.title = [document.documentElement.scrollWidth - innerWidth, "
        probe += "getComputedStyle(document.body).maxWidth]</script>"
        policy = page.HEADERS["Content-Security-Policy"].split(";")[1]
        meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        file = tmp_path / f"{place}.html"
        shown = re.sub("<meta http-equiv=.refresh[^>]*>", "", text).replace("<head>", f"<head>{meta}")
        file.write_text(shown.replace("</body>", f"{probe}</body>"), encoding="utf-8")
        command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900"]
        command += [
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--screenshot={tmp_path / f'{place}.png'}",
            "--dump-dom",
        ]
        found = subprocess.run([*command, file.as_uri()], capture_output=True, text=True, timeout=120, check=True)
        title = re.search("<title>(.*?)</title>", found.stdout)
        assert title is not None
        beyond, most = title[1].split(",")
        assert int(beyond) <= 0 and most == "1120px"
