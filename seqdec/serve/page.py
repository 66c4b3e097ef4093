"""The live page: what a reader sees of the deployments, as HTML without scripts."""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from seqdec.features import kinds

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --alarm: #d55e00; --soft: #8881; }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 0 auto; padding: 1rem; }
header { display: flex; flex-wrap: wrap; gap: .3rem 1rem; align-items: baseline; }
h1 { font-size: 1.4rem; margin: .5rem 0; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin: 1.8rem 0 .4rem; }
nav { margin-left: auto; } nav a { margin-left: 1rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; min-width: 100%; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
td.text { overflow-wrap: anywhere; min-width: 7rem; max-width: 24rem; } th { white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.alarm { border-left: 4px solid var(--alarm); background: var(--soft); padding: .5rem .8rem; margin: .6rem 0; }
.alarm p { margin: .2rem 0; overflow-wrap: anywhere; }
form { display: grid; gap: .6rem 1rem; grid-template-columns: repeat(auto-fill, minmax(14rem, 1fr)); align-items: end; }
label { display: grid; gap: .2rem; overflow-wrap: anywhere; }
input, select, button { font: inherit; padding: .35rem .5rem; width: 100%; min-width: 0; }
"""
_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_DIGEST}'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_REFRESH = 30
"""Seconds after which a page without a form is loaded again."""
_SHOWN = 20
"""Most arms, decisions and explained actions."""


class Html(str):
    """Text that is HTML already."""


class Field(NamedTuple):
    """A column of a context in the form."""

    name: str
    kind: str
    levels: tuple[str, ...] = ()
    value: str = ""


def element(tag: str, *content: Any, **attributes: str) -> Html:
    """An element; whatever is not `Html` is escaped."""
    given = "".join(f' {name.rstrip("_")}="{escape(value)}"' for name, value in attributes.items())
    return Html(f"<{tag}{given}>{joined(content)}</{tag}>")


def joined(parts: Iterable[Any]) -> Html:
    """Parts one after the other; what is not `Html` is escaped."""
    return Html("".join(part if isinstance(part, Html) else escape(str(part)) for part in parts))


def table(names: Sequence[str], rows: Iterable[Sequence[Any]], nothing: str) -> Html:
    """A table that scrolls on narrow screens, columns of numbers to the right; the text `nothing` without rows."""
    lines = list(rows)
    if not lines:
        return element("p", nothing)
    columns = zip(*lines, strict=True)
    kinds = ["number" if all(isinstance(cell, int | float | None) for cell in one) else "text" for one in columns]
    head = (element("th", name, class_=kind, scope="col") for name, kind in zip(names, kinds, strict=True))
    body = (
        element("tr", *(element("td", said(cell), class_=kind) for cell, kind in zip(line, kinds, strict=True)))
        for line in lines
    )
    whole = element("table", element("thead", element("tr", *head)), element("tbody", *body))
    return element("div", whole, class_="wide")


def said(cell: Any) -> Any:
    """A cell as text; "-" for None."""
    if cell is None:
        return "-"
    return f"{cell:.4g}" if isinstance(cell, float) else f"{cell:,}" if type(cell) is int else cell


def document(title: str, *body: Html, links: Mapping[str, str], live: bool) -> str:
    """A whole page."""
    refresh = Html(f'<meta http-equiv="refresh" content="{_REFRESH}">') if live else Html("")
    head = element(
        "head",
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        refresh,
        element("title", f"{title} - seqdec"),
        element("style", Html(_STYLE)),
    )
    nav = element("nav", *(element("a", text, href=place) for text, place in links.items()))
    content = element("body", element("header", element("h1", title), nav), element("main", *body))
    return f"<!doctype html>\n{element('html', head, content, lang='en')}\n"


def overview(deployments: Sequence[Mapping[str, Any]]) -> str:
    """All deployments, as `GET /v1` describes them."""
    rows = [
        (
            element("a", one["name"], href=f"/deployments/{one['name']}"),
            one["state"],
            one.get("counts", {}).get("decisions"),
            one.get("counts", {}).get("rewards"),
            one.get("items") or len(one.get("arms", ())) or None,
            one["reason"],
        )
        for one in deployments
    ]
    names = ("deployment", "state", "decisions", "rewards", "actions", "reason")
    return document("Deployments", table(names, rows, "There are no deployments."), links={}, live=True)


def deployment(about: Mapping[str, Any], found: Mapping[str, Any] | None) -> str:
    """One deployment, with its diagnostics where it is open."""
    name = about["name"]
    links = {"all deployments": "/"}
    if found is None:
        reason = element("p", f"This deployment is {about['state']}. {about['reason']}")
        return document(name, reason, links=links, live=True)
    links["explain a context"] = f"/deployments/{name}/explain"
    links["report"] = f"/deployments/{name}/report"
    arms = [(str(one["arm"]), *(one[key] for key in _OF_ARMS)) for one in found["arms"][:_SHOWN]]
    decisions = [
        (int(one["number"]), one["time"], str(one["action"]), *(one[key] for key in _OF_DECISIONS[3:]))
        for one in found["decisions"][:_SHOWN]
    ]
    counts = sorted(about.get("counts", {}).items())
    sections = [
        element("h2", "Diagnostics"),
        *map(_alarm, found["alarms"]),
        *([] if found["alarms"] else [element("p", "Nothing to look at.")]),
        element("ul", *(element("li", fact) for fact in found["facts"])),
        element("h2", "Arms"),
        element("p", found["comparison"]),
        table(
            ("arm", "decisions", "latest share", "reward", "low", "high", "least propensity"),
            arms,
            "There are no named actions, or no decisions yet.",
        ),
        element("h2", "Last decisions"),
        table(_OF_DECISIONS, decisions, "There are no decisions yet."),
        element("h2", "Counts"),
        table(("event", "count"), counts, "Nothing has happened yet."),
    ]
    return document(name, *sections, links=links, live=True)


def report(name: str, found: Mapping[str, Any], rule: str | None) -> str:
    """The report, and what is said about the rule of an apprentice; it reads the whole log, so it is not live."""
    parts = [part for answer in found.values() if answer is not None for part in _answer(answer)]
    if parts:
        parts.append(element("p", _ANYTIME))
    if rule is not None:
        note = "Of the later half of the decisions with a reward; the interval holds for one look."
        parts += [element("h2", "Would the agent earn more than today's rule?"), element("p", rule), element("p", note)]
    if not parts:
        parts = [element("p", "There are no arms to compare.")]
    links = {name: f"/deployments/{name}", "all deployments": "/"}
    return document(f"{name}: report", *parts, links=links, live=False)


def _answer(found: Mapping[str, Any]) -> list[Html]:
    """A question, its answer and its tables."""
    verdict = found["verdict"]
    parts = [
        element("h2", found["question"]),
        element("p", element("strong", verdict) if found["decided"] else verdict),
    ]
    if found["arms"]:
        parts.append(_compared(found["arms"]))
    for one in found["segments"]:
        parts += [element("h3", one["segment"]), _compared(one["arms"])]
    return parts


def _compared(arms: Sequence[Mapping[str, Any]]) -> Html:
    first = sorted(arms, key=lambda one: -one["decisions"])[:_SHOWN]
    rows = [(str(one["arm"]), *(one[key] for key in _OF_COMPARED), *one["difference"].values()) for one in first]
    return table(("arm", *_OF_COMPARED, "difference", "low", "high"), rows, "There are no decisions yet.")


def explained(
    name: str, fields: Sequence[Field], found: Sequence[Mapping[str, Any]] | None = None, refusal: str = ""
) -> str:
    """The form for a context, and what the agent believes in it."""
    place = f"/deployments/{name}"
    inputs = [element("label", field.name, _input(field)) for field in fields]
    button = element("button", "Explain")
    form = element("form", *inputs, button, method="post", action=f"{place}/explain", autocomplete="off")
    parts = [form]
    if refusal:
        parts.append(element("div", element("p", refusal), class_="alarm", role="alert"))
    if found is not None:
        likely = sorted(found, key=lambda one: -(one["probability"] or 0.0))[:_SHOWN]
        rows = [(str(one["action"]), *(one[key] for key in _OF_BELIEFS), _because(one)) for one in likely]
        parts += [element("h2", "Belief"), table(("action", *_OF_BELIEFS, "because"), rows, "There are no actions.")]
        parts.append(element("p", "Expected reward of each action, and how each column shifts it from the baseline."))
    return document(f"{name}: explain a context", *parts, links={name: place, "all deployments": "/"}, live=False)


_ANYTIME = (
    "The ends hold at 95% at all times together, for each question by itself: look as often as you like, and stop once "
    "it is decided. Probability of being best, and loss of always playing an arm from now on, are no tests."
)
_OF_COMPARED = ("decisions", "share", "reward", "best", "loss")
_OF_ARMS = ("decisions", "share", "reward", "low", "high", "least_propensity")
_OF_DECISIONS = ("number", "time", "action", "propensity", "reward", "source")
_OF_BELIEFS = ("mean", "deviation", "probability", "baseline")


def fields_of(columns: Mapping[str, kinds.Kind], given: Mapping[str, str]) -> list[Field]:
    """Fields of an encoder's columns, with the values given last."""
    return [
        Field(name, kinds.NAMES[type(kind)], tuple(map(str, getattr(kind, "levels", ()))), given.get(name, ""))
        for name, kind in columns.items()
    ]


def row_of(columns: Mapping[str, kinds.Kind], given: Mapping[str, str]) -> dict[str, Any]:
    """A row for the encoder; what is empty is missing. Raises ValueError for what is not a number or a date."""
    row: dict[str, Any] = {}
    for name, kind in columns.items():
        text = given.get(name, "").strip()
        if not text:
            row[name] = None
        elif isinstance(kind, kinds.Vector):
            row[name] = numbers_of(text)
        elif isinstance(kind, kinds.Tags | kinds.HashedTags):
            row[name] = [part.strip() for part in text.split(",")]
        else:
            row[name] = text == "true" if isinstance(kind, kinds.Bool) else text
    return row


def numbers_of(text: str) -> list[float]:
    """Numbers separated by commas. Raises ValueError."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"give numbers separated by commas; got {text!r:.80}") from None


def _alarm(alarm: Mapping[str, str]) -> Html:
    lines = (("", alarm["observed"]), ("Likely cause: ", alarm["cause"]), ("Action: ", alarm["action"]))
    return element("div", *(element("p", f"{head}{text}.") for head, text in lines), class_="alarm")


def _input(field: Field) -> Html:
    """An input; of known levels a choice, in which "" is missing."""
    choices = ("true", "false") if field.kind == "bool" else field.levels if field.kind != "tags" else ()
    if choices:
        options = [_option(choice, choice == field.value) for choice in ("", *choices)]
        return element("select", *options, name=field.name)
    hint = {"tags": f"of {', '.join(field.levels)}, separated by commas", "date": "2026-11-28T12:00"}
    hint["days"] = hint["date"]
    hint |= dict.fromkeys(("vector", "hashed_tags"), "separated by commas")
    given = {"name": field.name, "value": field.value, "placeholder": hint.get(field.kind, "")}
    return Html(element("input", **given).removesuffix("</input>"))


def _option(choice: str, chosen: bool) -> Html:
    return element("option", choice or "(missing)", value=choice, **({"selected": ""} if chosen else {}))


def _because(belief: Mapping[str, Any]) -> str:
    """The largest contributions."""
    known = [(name, part) for name, part in belief["contributions"].items() if part]
    largest = sorted(known, key=lambda one: -abs(one[1]))[:5]
    return ", ".join(f"{name} {part:+.3g}" for name, part in largest) or "-"
