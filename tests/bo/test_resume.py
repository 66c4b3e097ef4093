"""`minimum(checkpoint=)`: a search that was killed goes on with the same result."""

import math
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqdec.bo import BayesianOptimizer, Categorical, Linear
from tests.bo.common import SQUARE, minimum
from tests.bo.searches import CALLS, differences, search

ROOT = Path(__file__).resolve().parents[2]
OPTIONS: dict[str, Any] = {"n_calls": 6}
PLACES = [
    ("one", "fun", 1), ("batch", "fun", 5), ("thread", "fun", 6), ("processes", "fun", 5), ("local", "fun", 4),
    ("one", "before", 1), ("one", "before", 8), ("batch", "before", 6), ("thread", "before", 9),
    ("one", "after", 1), ("one", "after", 9), ("batch", "after", 7), ("thread", "callback", 9),
    ("one", "callback", 5), ("batch", "callback", 2), ("processes", "after", 8),
    ("local", "after", 6),
]  # fmt: skip


def bowl(x: Any) -> float:
    return float((x[0] - 0.3) ** 2 + (x[1] - 0.4) ** 2)


@pytest.mark.slow
@pytest.mark.sampled(14)
@pytest.mark.parametrize(("kind", "place", "number"), PLACES)
def test_a_killed_search_goes_on_with_the_same_result(kind: str, place: str, number: int, tmp_path: Path) -> None:
    (whole := tmp_path / "whole").mkdir()
    (folder := tmp_path / "killed").mkdir()
    command = [sys.executable, "-m", "tests.bo.searches", str(folder), kind, place, str(number)]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    calls = (folder / "calls").read_text().splitlines() if (folder / "calls").exists() else []
    result, expected = search(folder, kind), search(whole, kind)
    assert differences(result, expected) == [] and np.isnan(result.func_vals).any()
    again = (folder / "calls").read_text().splitlines()[len(calls) :]
    if place == "fun" and kind in ("one", "batch", "thread", "local"):
        assert again[0] == calls[-1]  # under evaluation when it was killed
    reports = [int(line) for line in (folder / "reports").read_text().splitlines()]
    assert list(dict.fromkeys(reports)) == [*range(1, CALLS + 1)] == sorted(set(reports))
    # A callback is called again if the search was killed before the file said that it had returned.
    assert len(reports) - CALLS in {"callback": [1], "before": [0, 1]}.get(place, [0])
    assert not any(path.name.startswith(".") for path in folder.iterdir())
    assert search(folder, kind).message == result.message and len((folder / "reports").read_text().split()) == len(
        reports
    )


def failing(*_: Any) -> float:
    pytest.fail("called")


def test_a_finished_search_is_answered_at_once_and_goes_on_with_more_calls(tmp_path: Path) -> None:
    path = tmp_path / "study"
    first = minimum(bowl, SQUARE, checkpoint=path, **OPTIONS)
    again = minimum(failing, SQUARE, checkpoint=str(path), callback=failing, **OPTIONS)
    assert differences(first, again) == []
    np.testing.assert_array_equal(again.seconds, first.seconds)
    more = minimum(bowl, SQUARE, checkpoint=path, **OPTIONS | {"n_calls": 8, "seed": None})
    assert more.nfev == 8 and more.seed == 0
    np.testing.assert_array_equal(more.x_iters[:6], first.x_iters)
    assert len(BayesianOptimizer.load(path).trials) == 8


def test_a_search_without_a_seed_goes_on_with_the_one_it_drew(tmp_path: Path) -> None:
    first = minimum(bowl, SQUARE, checkpoint=tmp_path / "study", **OPTIONS | {"seed": None})
    again = minimum(failing, SQUARE, checkpoint=tmp_path / "study", **OPTIONS | {"seed": None})
    assert differences(first, again) == []


def test_points_to_start_from_are_proposed_once(tmp_path: Path) -> None:
    x0 = [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]

    def interrupted(x: Any) -> float:
        if x[0] == 0.3:
            raise TimeoutError
        return bowl(x)

    with pytest.raises(TimeoutError):
        minimum(interrupted, SQUARE, x0=x0, checkpoint=tmp_path / "study", **OPTIONS)
    result = minimum(bowl, SQUARE, x0=x0, checkpoint=tmp_path / "study", **OPTIONS)
    assert differences(result, minimum(bowl, SQUARE, x0=x0, **OPTIONS)) == []  # the call that raised was repeated
    told = {"x0": x0, "y0": [1, math.nan, 3], "checkpoint": tmp_path / "known"}
    known = minimum(bowl, SQUARE, **told, **OPTIONS)
    assert known.nfev == 6 and len(known.x_iters) == 9
    assert differences(known, minimum(failing, SQUARE, **told, **OPTIONS)) == []
    with pytest.raises(ValueError, match="y0 is another"):
        minimum(failing, SQUARE, x0=x0, y0=[1, 2, 3], checkpoint=tmp_path / "known", **OPTIONS)
    with pytest.raises(ValueError, match="x0 is another"):
        minimum(failing, SQUARE, x0=x0[1:], checkpoint=tmp_path / "study", **OPTIONS)


def test_a_callback_ends_it_for_good_unless_more_calls_are_asked_for(tmp_path: Path) -> None:
    def third(intermediate_result: Any) -> bool:
        return intermediate_result.nfev == 3

    first = minimum(bowl, SQUARE, callback=third, checkpoint=tmp_path / "study", **OPTIONS)
    again = minimum(failing, SQUARE, callback=failing, checkpoint=tmp_path / "study", **OPTIONS)
    assert first.nfev == 3 and differences(first, again) == []
    more = minimum(bowl, SQUARE, callback=third, checkpoint=tmp_path / "study", **OPTIONS | {"n_calls": 7})
    assert more.nfev == 7


RULE = Linear({0: 1.0}, high=0.9)


@pytest.mark.parametrize(
    ("bounds", "options", "message"),
    [
        (SQUARE, {"seed": 1}, "seed is 0 there and 1 here"),
        (SQUARE, {"maximize": True}, "maximize is False there and True here"),
        (SQUARE, {"objectives": 2}, "objectives is 1 there and 2 here"),
        (SQUARE, {"surrogate": "gp"}, "surrogate is 'auto' there and 'gp' here"),
        (
            SQUARE,
            {"responses": "raw", "noise_std": 0.1},
            "responses is 'warped' there and 'raw' here; noise_std is None there and 0.1",
        ),
        (SQUARE[:1], {}, "the bounds or constraints are others"),
        (SQUARE, {"constraints": [RULE]}, "the bounds or constraints are others"),
        ({"a": (0, 1), "b": (0, 1)}, {}, "the bounds or constraints are others"),
        (SQUARE, {"constraints": [lambda x: True]}, "functions"),
    ],
)
def test_a_checkpoint_of_another_search_is_refused(
    bounds: Any, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    minimum(bowl, SQUARE, checkpoint=tmp_path / "study", **OPTIONS | {"n_calls": 1})
    before = (tmp_path / "study").read_bytes()
    with pytest.raises(ValueError, match=message):
        minimum(failing, bounds, checkpoint=tmp_path / "study", **OPTIONS | options)
    assert (tmp_path / "study").read_bytes() == before


def test_what_cannot_be_a_checkpoint_is_refused_before_a_call(tmp_path: Path) -> None:
    BayesianOptimizer(SQUARE, seed=0).save(tmp_path / "study")
    with pytest.raises(ValueError, match=r"is a study that BayesianOptimizer\.save wrote: pass its evaluations as x0"):
        minimum(failing, SQUARE, checkpoint=tmp_path / "study", **OPTIONS)
    (tmp_path / "damaged").write_bytes(b"text")
    with pytest.raises(ValueError, match="damaged"):
        minimum(failing, SQUARE, checkpoint=tmp_path / "damaged", **OPTIONS)
    with pytest.raises(TypeError, match="a study cannot hold"):
        minimum(failing, [Categorical((bowl, failing))], checkpoint=tmp_path / "functions", **OPTIONS)
    with pytest.raises(ValueError, match="suffix"):
        minimum(failing, SQUARE, checkpoint=tmp_path / "study.csv", **OPTIONS)
    with pytest.raises(TypeError, match="a path must be"):
        minimum(failing, SQUARE, checkpoint=3, **OPTIONS)


def test_the_bar_begins_at_the_calls_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    minimum(bowl, SQUARE, checkpoint=tmp_path / "study", **OPTIONS | {"n_calls": 3})
    minimum(bowl, SQUARE, checkpoint=tmp_path / "study", **OPTIONS | {"n_calls": 4, "progress": True})
    assert " 3/4 " in capsys.readouterr().err
