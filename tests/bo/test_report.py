"""Figures, importances and the page of a search."""

import base64
import io
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib import image
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from seqdec.bo import (
    BayesianOptimizer,
    Categorical,
    Conditional,
    Integer,
    Linear,
    Ordinal,
    Real,
    importances,
    model,
    space_from,
)
from seqdec.bo.report import figures
from seqdec.bo.report.importance import total_effects, units
from seqdec.figures import finish_axis
from tests.bo.common import BOX, minimum, quick

NAMED = {
    "rate": Real(1e-5, 1.0, log=True),
    "width": Ordinal((32, 64, 128, 256)),
    "optimizer": Categorical(("adam", "sgd")),
    "momentum": Conditional(Real(0.0, 0.99), on="optimizer", values=("sgd",)),
    "nesterov": Conditional(Categorical((False, True)), on="optimizer", values=("sgd",)),
    "layers": Integer(1, 6),
}


def bowl(x: Any) -> float:
    return float(x[0] ** 2 + x[1])


def told(fun: Any, bounds: Any = BOX, calls: int = 12, **options: Any) -> BayesianOptimizer:
    """An optimizer with the values of `fun` at its initial points."""
    optimizer = quick(bounds, initial=calls, **options)
    for trial in optimizer.ask(calls):
        optimizer.tell(trial, fun(trial.x))
    return optimizer


def loss(x: Any) -> float:
    if x["rate"] > 0.1:
        return math.nan
    worse = (math.log10(x["rate"]) + 2.5) ** 2 + 0.1 * abs(math.log2(x["width"]) - 7)
    return worse + (abs(x["momentum"] - 0.9) if x["optimizer"] == "sgd" else 0.2)


def drawn(figure: Figure) -> Figure:
    """The figure, once it was written as an image."""
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=40)
    assert image.getvalue().startswith(b"\x89PNG")
    return figure


def axes(figure: Any) -> list[Any]:
    """The visible axes of a figure and of its parts."""
    return [axis for axis in figure.get_axes() if axis.get_visible()]


def texts(figure: Any) -> set[str]:
    return {text.get_text() for axis in axes(figure) for text in axis.texts}


def lines(axis: Any) -> dict[str, np.ndarray]:
    """The heights of the labeled lines."""
    return {line.get_label(): np.asarray(line.get_ydata(), float) for line in axis.lines if line.get_label()[0] != "_"}


# Importances


def test_the_indices_of_ishigami_s_function_are_the_known_ones() -> None:
    def ishigami(u: np.ndarray) -> np.ndarray:
        x = math.pi * (2 * u - 1)
        return np.sin(x[:, 0]) + 7 * np.sin(x[:, 1]) ** 2 + 0.1 * x[:, 2] ** 4 * np.sin(x[:, 0])

    first = 0.5 * (1 + 0.1 * math.pi**4 / 5) ** 2
    second, together = 7**2 / 8, 0.1**2 * math.pi**8 * (1 / 18 - 1 / 50)
    want = np.array([first + together, second, together]) / (first + second + together)
    assert total_effects(ishigami, 3) == pytest.approx(want, abs=0.005)


def test_a_constant_has_no_important_parameter() -> None:
    assert total_effects(lambda u: np.full(len(u), 3.0), 2).tolist() == [0.0, 0.0]


def test_importances_of_a_search_are_those_of_its_function() -> None:
    found = importances(told(lambda x: 3 * x[0] - x[1] + 100))
    assert found == pytest.approx({0: 0.9, 1: 0.1}, abs=0.02)


def test_inactive_parameters_have_no_importance() -> None:
    space = {"kind": Categorical(("a", "b")), "size": Conditional(Real(0.0, 1.0), on="kind", values=("a",))}
    found = importances(told(lambda x: x.get("size", 0.5), space, calls=16))
    assert found["size"] > 0.9 and found["kind"] > 0.3
    assert importances(told(lambda x: float(x["kind"] == "a"), space, calls=16))["size"] < 0.05


@pytest.mark.parametrize(
    "bounds", [NAMED, BOX, [Integer(1, 9, log=True), Categorical(("a", "b", "c")), Ordinal((1, 5))]]
)
def test_uniform_numbers_become_points_of_the_space(bounds: Any) -> None:
    space = space_from(bounds)
    found = units(space, np.random.default_rng(0).random((200, len(space.dimensions))))
    assert found == pytest.approx(np.stack([space.point(space.decode(unit)).unit for unit in found]))


def test_uniform_numbers_become_uniform_points() -> None:
    space, u = space_from(NAMED), np.random.default_rng(0).random((4000, 6))
    points = pd.DataFrame([space.decode(unit) for unit in units(space, u)])
    assert points["rate"].to_numpy() == pytest.approx(1e-5 ** (1 - u[:, 0]))
    for name, count in (("width", 4), ("optimizer", 2), ("layers", 6)):
        assert points[name].value_counts(normalize=True).to_numpy() == pytest.approx([1 / count] * count, abs=0.03)
    assert points["momentum"].isna().equals(points["optimizer"] == "adam")
    assert points["nesterov"].mean() == pytest.approx(0.5, abs=0.03)


# Figures


def test_progress_shows_every_value_the_best_the_failures_and_the_optimum() -> None:
    optimizer = told(lambda x: math.nan if x[0] > 6 else x[0] ** 2 + x[1])
    values = optimizer.evaluations()[1]
    for optimum, base in ((5.0, 0.0), (-1.0, -1.0)):  # the first is none: there are better values
        (axis,) = axes(drawn(optimizer.plot("progress", minimum=optimum)))
        shown = lines(axis)
        assert shown["evaluation"] == pytest.approx(values - base, nan_ok=True)
        assert shown["best so far"] == pytest.approx(np.fmin.accumulate(values - base))
        assert len(shown["failed"]) == np.isnan(values).sum() > 0
    assert "optimum" not in shown and axis.get_yscale() == "log" and axis.get_ylabel() == "distance from -1"
    (axis,) = axes(optimizer.plot("progress", minimum=5.0))
    assert lines(axis)["optimum"].tolist() == [5.0, 5.0] and axis.get_ylim()[0] < 5 < axis.get_ylim()[1]


@pytest.mark.parametrize("sign", [1, -1])
def test_progress_ends_at_what_decides(sign: int) -> None:
    optimizer = quick(maximize=sign < 0)
    for value in [90.0, *range(8), -2, 100.0]:
        optimizer.tell(optimizer.ask(), sign * value)
    (axis,) = axes(drawn(optimizer.plot("progress")))
    worst = axis.get_ylim()[sign > 0]
    assert 7 <= sign * worst < 90
    beyond = [line.get_xdata() for line in axis.lines if line.get_marker() == "^v"[sign < 0]]
    assert np.ravel(beyond).tolist() == [1, 11]


def test_random_search_is_expected_to_find_the_best_of_as_many_predictions() -> None:
    optimizer = told(bowl)
    study = figures.study_of(optimizer, None)
    expected = figures._random_search(study, 20)
    points = np.random.default_rng(1).random((20_000, 2))
    means = model.predictions(*optimizer.fitted(), points)[:, 0, 0]
    best = np.minimum.accumulate(means.reshape(-1, 20), axis=1)
    assert np.abs(expected - best.mean(0)).max() < 0.05 * means.std()
    up = told(lambda x: -bowl(x), maximize=True)
    assert figures._random_search(figures.study_of(up, None), 20) == pytest.approx(-expected, rel=0.01)


def test_random_search_keeps_to_the_constraints() -> None:
    optimizer = told(lambda x: x[0] + x[1], constraints=[Linear({0: 1.0, 1: 1.0}, low=15.0)])
    expected = figures._random_search(figures.study_of(optimizer, None), 500)
    assert 14.5 < expected[-1] < 16 < expected[0] < 20
    narrow = told(lambda x: x[0] + x[1], constraints=[Linear({0: 1.0, 1: 1.0}, low=23.0)])
    assert not len(figures._random_search(figures.study_of(narrow, None), 5))
    drawn(narrow.plot("progress"))


def test_slices_are_the_predictions_around_the_recommended_point() -> None:
    optimizer = told(bowl)
    first, second = axes(drawn(optimizer.plot("slices")))
    assert (first.get_xlabel(), second.get_xlabel()) == ("x[0]", "x[1]")
    x, mean = max((line.get_data() for line in first.lines), key=lambda data: len(data[0]))
    at = optimizer.recommend().x
    want = [optimizer.predict([value, at[1]]).mean for value in x[::25]]
    assert mean[::25] == pytest.approx(want, rel=1e-6)


def meshes(figure: Figure) -> list[np.ndarray]:
    """The numbers that colors show: of the mean, and of half the interval."""
    found = (axis.collections[0].get_array() for axis in axes(drawn(figure))[:2])
    return [np.asarray(array, float) for array in found]


def test_a_plane_is_the_predictions_over_two_parameters_with_the_evaluations() -> None:
    optimizer = told(lambda x: bowl(x) + x[2], [*BOX, (0.0, 1.0)])
    figure = optimizer.plot((1, 0))
    first, second = axes(figure)[:2]
    assert (first.get_xlabel(), first.get_ylabel(), second.get_ylabel()) == ("x[1]", "x[0]", "")
    mean, half = meshes(figure)
    corners = [[x, y, optimizer.recommend().x[2]] for x in (-5.0, 10.0) for y in (0.0, 15.0)]
    want = optimizer.predict(corners)
    assert mean[[0, 0, -1, -1], [0, -1, 0, -1]] == pytest.approx(want.mean, rel=1e-6)
    assert half[[0, 0, -1, -1], [0, -1, 0, -1]] == pytest.approx((want.high - want.low) / 2, rel=1e-6)
    shown = {line.get_label(): line.get_xydata() for line in first.lines}
    assert shown["evaluation"] == pytest.approx(np.array([x[1::-1] for x in optimizer.evaluations()[0]]))
    assert shown["recommended point"] == pytest.approx(optimizer.recommend().x[1::-1][None])
    assert meshes(optimizer.plot("plane"))[0].shape == mean.shape


def test_a_plane_has_choices_logarithms_and_conditions() -> None:
    result = minimum(loss, NAMED, n_calls=24)
    (first, *_), choice = axes(result.plot(("rate", "optimizer"))), result.plot(("layers", "width"))
    assert (first.get_xscale(), [label.get_text() for label in first.get_yticklabels()]) == ("log", ["adam", "sgd"])
    assert sum(len(line.get_xdata()) for line in first.lines) == 25 and {line.get_label() for line in first.lines} == {
        *("evaluation", "failed", "recommended point")
    }
    assert meshes(choice)[0].shape == (4, 6)
    with_both = [x for x in result.x_iters if "momentum" in x]
    dots = [line.get_xydata() for line in axes(result.plot(("momentum", "rate")))[0].lines]
    assert sum(map(len, dots)) == len(with_both) + 1
    branches = {"kind": Categorical(("a", "b"))} | {
        kind: Conditional(Real(0.0, 1.0), on="kind", values=(kind,)) for kind in ("a", "b")
    }
    other = told(lambda x: x.get("a", x.get("b")) + (x["kind"] == "b"), branches)
    name = "best point that has both"
    assert other.recommend().x["kind"] == "a" and name in {
        line.get_label() for line in axes(drawn(other.plot(["b", "kind"])))[0].lines
    }
    with pytest.raises(ValueError, match="no evaluation with a value has both 'a' and 'b'"):
        other.plot(("a", "b"))


def test_a_plane_of_values_of_very_different_size_is_logarithmic() -> None:
    for sign in (1, -1):
        optimizer = told(lambda x, sign=sign: sign * 10 ** float(x[0]), maximize=sign < 0)
        bars = axes(drawn(optimizer.plot("plane")))[2:]
        assert [bar.get_yscale() for bar in bars] == ["log" if sign > 0 else "symlog", "log"]
    flat = told(lambda x: 1.0)
    assert len(axes(drawn(flat.plot("plane")))) == 4


def test_a_space_with_conditions_logarithms_and_choices_is_drawn() -> None:
    result = minimum(loss, NAMED, n_calls=24)
    assert np.isnan(result.func_vals).any()
    figure = drawn(result.plot())
    shown = {axis.get_xlabel(): axis for axis in axes(figure)}
    assert shown["rate"].get_xscale() == "log"
    assert [label.get_text() for label in shown["optimizer"].get_xticklabels()] == ["adam", "sgd"]
    assert [label.get_text() for label in shown["width"].get_xticklabels()] == ["32", "64", "128", "256"]
    assert "inactive" in texts(figure) and "24 evaluations, " in figure.get_suptitle()


def test_coordinates_are_those_of_the_points_and_the_best_is_darkest() -> None:
    optimizer = told(bowl)
    (axis,) = axes(optimizer.plot("parallel"))
    (collection,) = axis.collections
    order = np.argsort(-optimizer.evaluations()[1])
    heights = np.stack([segment[:, 1] for segment in collection.get_segments()])
    want = np.stack([optimizer.space.point(x).unit for x in optimizer.evaluations()[0]])[order]
    assert heights[:, :2] == pytest.approx(want) and heights[[0, -1], 2].tolist() == [1.0, 0.0]
    assert to_hex(collection.get_colors()[-1]) == "#440154" and axes(drawn(optimizer.plot("importances")))


def test_none_is_a_choice_and_not_inactive() -> None:
    optimizer = told(lambda x: x["a"] + (x["b"] is None), {"a": Real(0.0, 1.0), "b": Categorical((None, (1, 2), "x"))})
    assert "inactive" not in texts(drawn(optimizer.plot()))
    shown = {axis.get_xlabel(): axis for axis in axes(optimizer.plot("slices"))}
    assert [label.get_text() for label in shown["b"].get_xticklabels()] == ["None", "(1, 2)", "x"]
    assert any(len(line.get_xdata()) == 12 for line in shown["b"].lines)


@pytest.mark.parametrize(
    ("values", "note"),
    [
        ([math.nan] * 3, "no value yet"),
        ([1.0], "needs two values or more"),
        ([1.0, 1.0], ""),
        ([-1e-90, -1e250, 0.0], ""),
        ([1e-90, 1.0, 1e250], ""),
    ],
)
def test_few_values_are_drawn(values: list[float], note: str) -> None:
    optimizer = quick(maximize=values[0] < 0)
    for value in values:
        optimizer.tell(optimizer.ask(), value)
    figure = drawn(optimizer.plot())
    assert not note or note in texts(figure)


def test_values_of_very_different_size_are_drawn_on_a_logarithmic_scale() -> None:
    optimizer = told(lambda x: 10 ** float(x[0]))
    assert axes(optimizer.plot("progress"))[0].get_yscale() == "log"
    down = told(lambda x: -(10 ** float(x[0])), maximize=True)
    assert axes(drawn(down.plot("slices")))[0].get_yscale() == "symlog"


def test_drawing_leaves_the_search_as_it_is() -> None:
    one, other = (told(bowl) for _ in range(2))
    for optimizer in (one, other):
        optimizer.tell(optimizer.ask(), 3.0)
    one.plot()
    assert one.ask().x.tolist() == other.ask().x.tolist()


def test_what_cannot_be_drawn_is_refused() -> None:
    optimizer = told(lambda x: x[0], calls=2)
    with pytest.raises(ValueError, match=r"slice.*slices"):
        optimizer.plot("slice")
    for pair in ((0, 2), (0, 0), (0,), (0, 1, 1)):
        with pytest.raises(ValueError, match=r"two of the parameters that vary, \[0, 1\]; got \[0"):
            optimizer.plot(pair)
    with pytest.raises(ValueError, match=r"maximum=1\.0 has no effect: pass minimum"):
        optimizer.plot(maximum=1.0)
    with pytest.raises(ValueError, match="nothing to draw"):
        quick().plot()


def test_the_bar_shows_the_best_value_and_the_time_to_choose_a_point(capsys: Any) -> None:
    result = minimum(lambda x: x[0], n_calls=3, progress=True)
    shown = capsys.readouterr().err
    assert f"best={result.fun:.6g}, expected gain=" in shown and "s/point" in shown


@pytest.mark.parametrize("objectives", [2, 3])
def test_several_objectives_have_a_panel_of_pairs(objectives: int) -> None:
    optimizer = quick(objectives=objectives, outcome_constraints=1)
    with pytest.raises(ValueError, match="nothing to draw"):
        optimizer.plot()
    for i, trial in enumerate(optimizer.ask(8)):
        values = [float(trial.x[k % 2] + k * math.sin(trial.x[0])) for k in range(objectives)]
        optimizer.tell(trial, values, outcomes=[trial.x[0] - 5], failed=i == 7)
    axes = [axis for axis in drawn(optimizer.plot()).axes if axis.get_visible()]
    assert len(axes) == objectives * (objectives - 1) // 2
    shown = {line.get_label(): line.get_xydata() for line in axes[0].lines}
    np.testing.assert_array_equal(shown["front"], optimizer.front().values[:, :2])
    assert {"evaluation", "infeasible"} < shown.keys() and sum(map(len, shown.values())) == 7 + len(shown["front"])
    with pytest.raises(ValueError, match="panel 'progress'"):
        optimizer.plot("progress")
    with pytest.raises(ValueError, match="several"):
        optimizer.plot(minimum=0.0)
    with pytest.raises(ValueError, match="several"):
        importances(optimizer)


def test_infeasible_values_are_not_the_best() -> None:
    optimizer = quick(outcome_constraints=1)
    optimizer.tell(optimizer.ask(), 4.0, outcomes=[1.0])
    assert "needs two values or more" in texts(drawn(optimizer.plot()))
    for value, outcome in ((3.0, -1.0), (1.0, 1.0), (2.0, 0.0)):
        optimizer.tell(optimizer.ask(), value, outcomes=[outcome])
    shown = {line.get_label(): line.get_xydata() for line in drawn(optimizer.plot("progress")).axes[0].lines}
    assert shown["best so far"][1:, 1].tolist() == [3.0, 3.0, 2.0] and len(shown["failed or infeasible"]) == 2


@pytest.mark.parametrize(
    ("limits", "expected"),
    [((0.55, 0.9), {"0.6", "0.7", "0.8", "0.9"}), ((300, 2500), {"500", "1,000", "2,000"}), ((1e-3, 1), None)],
)
def test_short_logarithmic_axes_have_plain_numbers(limits: tuple[float, float], expected: set[str] | None) -> None:
    axis = Figure().subplots()
    axis.set_yscale("log")
    axis.plot([1, 2, 3], np.geomspace(*limits, 3))
    finish_axis(axis, "", "step", "")
    shown = {tick.get_text() for tick in axis.get_yticklabels()}
    assert {tick.get_text() for tick in axis.get_xticklabels()} >= {"1", "2", "3"}
    assert any("10^" in text for text in shown) if expected is None else expected <= shown
    assert not any(tick.get_text() for tick in axis.get_yticklabels(minor=True))


# The page


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
    result = minimum(loss, space, catch=ValueError)
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
    study = quick([(0, 1)], objectives=2, outcome_constraints=1)
    for x in (0.1, 0.5, 0.3, 0.9):
        study.tell([x], (x, abs(x - 0.3)), outcomes=[x - 0.8])
    rows = Page(study.report(tmp_path / "front.htm")).tables["Front"]
    assert [float(row[1]) for row in rows[1:]] == [0.1, 0.3]


def test_a_page_of_failures_only_and_of_one_call(tmp_path: Path) -> None:
    study = quick([(0, 1)])
    study.tell([0.5], math.nan)
    assert "None." in Page(study.report(tmp_path / "page.html")).texts
    study.tell([0.1], 2.0)
    assert Page(study.report(tmp_path / "page.html")).tables["Best trials"][1][:2] == ["1", "2"]


def test_what_is_no_page_is_refused_and_leaves_the_file(tmp_path: Path) -> None:
    study = quick([(0, 1)])
    file = tmp_path / "page.html"
    file.write_text("before")
    with pytest.raises(ValueError, match="nothing to draw yet"):
        study.report(file)
    study.tell([0.5], 1.0)
    with pytest.raises(ValueError, match=r"page.png would be a page of HTML with another suffix: call it page.html"):
        study.report(tmp_path / "page.png")
    with pytest.raises(ValueError, match="values are minimized, so"):
        study.report(file, maximum=3.0)
    assert file.read_text() == "before" and [one.name for one in tmp_path.iterdir()] == ["page.html"]
