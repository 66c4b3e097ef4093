"""Logs in the text formats of Vowpal Wabbit: what they mean, and lines that are refused by their number."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqdec import cli, ope

CB = """1:2:0.4 | a c
3:0.5:0.2 'tag |x b:2 c:-0.25 b:1 |y:0.5 b
2:-1:1.0 tag| a:1.5

"""
ADF = """shared |user age:31
| price:3
0:0.3:0.25 | price:5 new

| price:1
| price:2
1:-1:0.5 | price:4
"""


def load(folder: Path, text: str, **options: Any) -> ope.Log:
    (folder / "log.vw").write_text(text)
    return ope.load_vowpal_wabbit(folder / "log.vw", **options)


def test_a_line_is_a_decision(tmp_path: Path) -> None:
    log = load(tmp_path, CB)
    assert log.action.tolist() == [0, 2, 1] and log.num_actions == 3
    assert log.reward.tolist() == [-2, -0.5, 1] and log.propensity.tolist() == [0.4, 0.2, 1]
    # a, c, x^b, x^c, y^b
    assert log.context.tolist() == [[1, 1, 0, 0, 0], [0, 0, 3, -0.25, 0.5], [1.5, 0, 0, 0, 0]]
    assert ope.evaluate(log, np.full((3, 3), 1 / 3), seed=0, samples=10).loc["ips", "value"] == pytest.approx(
        (-2 / 0.4 - 0.5 / 0.2 + 1) / 9
    )
    again = load(tmp_path, CB.replace("1:2:", "0:2:"), first_action=0, num_actions=5, buckets=7)
    assert again.action.tolist() == [0, 3, 2] and again.num_actions == 5 and again.context.shape == (3, 7)
    assert np.abs(again.context).sum() == pytest.approx(np.abs(log.context).sum())  # no names share a bucket


def test_a_line_is_an_action(tmp_path: Path) -> None:
    log = load(tmp_path, ADF)
    assert log.action.tolist() == [1, 2] and log.mask.tolist() == [[True, True, False], [True, True, True]]
    assert log.context.tolist() == [[31], [0]] and log.action_features is not None
    assert log.action_features[..., 1].tolist() == [[3, 5, 0], [1, 2, 4]]  # new, price
    assert log.reward.tolist() == [-0.3, 1]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (CB.replace("0.5:0.2", "x:0.2"), {}, r"log\.vw, line 2: the label has 'x', which is not a finite number"),
        ("\n\n" + CB.replace("0.5:0.2", "0.5:0"), {}, r"line 4: the probability must lie in \(0, 1\]; got 0\.0"),
        (CB.replace("3:0.5:0.2", "3:0.5"), {}, "line 2: a label is action:cost:probability, such as .* got '3:0.5'"),
        (CB.replace("3:0.5:0.2", "3:0.5:0.2 1"), {}, "line 2: a line has one label"),
        (CB.replace("3:0.5:0.2", ""), {}, "line 2: there is no label .* empty lines must separate the decisions"),
        (CB.replace("| a:1.5", " a:1.5"), {}, "line 3: there is no bar before the features"),
        (CB.replace("b:2", "b:two"), {}, "line 2: the feature b has 'two', which is not a finite number"),
        (CB.replace("y:0.5", "y:inf"), {}, "line 2: the namespace y has 'inf'"),
        (CB.replace("1:2:", "0:2:"), {}, "line 1: the action is 0, outside of 1 to ...: pass first_action"),
        (CB, {"num_actions": 2}, "line 2: the action is 3, outside of 1 to 2"),
        (ADF.replace("0:0.3:0.25 ", ""), {}, "line 1: 0 lines of the decision have a label"),
        (ADF.replace("| price:2", "0:1:0.5 | price:2"), {}, "line 5: 2 lines of the decision have a label"),
        (ADF.replace("\n\n", "\nshared |\n"), {}, "line 4: only the first line of a decision is shared"),
        (ADF, {"num_actions": 3}, "num_actions is that of the lines of each decision"),
        ("\n \n", {}, "there is no line with a decision"),
        ("1:1:0.5 | " + " ".join(map(str, range(5000))), {}, "5,000 features, more than 4,096: hash them"),
    ],
)
def test_a_bad_line_is_refused(text: str, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        load(tmp_path, text, **options)


def test_the_command_reads_it(tmp_path: Path, capsys: Any) -> None:
    load(tmp_path, "1:-1:0.5 | a:0.5\n2:0:0.5 | a:0.1\n1:-1:0.5 | a:0.4\n2:-0.5:0.5 | a:0.7\n")
    given = ["--policy", "uniform", "--model", "linear", "--folds", "0", "--estimators", "snips, dr(shrinkage=2)"]
    assert cli.main(["ope", str(tmp_path / "log.vw"), *given, "--out", str(tmp_path / "out")]) == 0
    assert "\nsnips " in (out := capsys.readouterr().out) and "\ndr(shrinkage=2) " in out and "\nips " not in out


def test_no_file_at_all(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no file .*log\.vw"):
        ope.load_vowpal_wabbit(tmp_path / "log.vw")
