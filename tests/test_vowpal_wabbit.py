"""Logs in the text formats of Vowpal Wabbit: what they mean, and lines that are refused by their number."""

import bz2
import gzip
import json
import lzma
import zipfile
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
    with pytest.warns(UserWarning, match=r"22\.2% of its decisions"):  # the last line could be of one action only
        table = ope.evaluate(log, np.full((3, 3), 1 / 3), seed=0, samples=10)
    assert table.loc["ips", "value"] == pytest.approx((-2 / 0.4 - 0.5 / 0.2 + 1) / 9)
    again = load(tmp_path, CB.replace("1:2:", "0:2:"), first_action=0, num_actions=5, buckets=7)
    assert again.action.tolist() == [0, 3, 2] and again.num_actions == 5 and again.context.shape == (3, 7)
    assert np.abs(again.context).sum() == pytest.approx(np.abs(log.context).sum())  # no names share a bucket


def test_labels_with_gaps_are_names(tmp_path: Path) -> None:
    log = load(tmp_path, CB.replace("1:2:", "101:2:").replace("3:0.5", "205:0.5"))
    assert log.action_names == (2, 101, 205) and [log.name(action) for action in log.action] == ["101", "205", "2"]
    assert load(tmp_path, CB.replace("1:2:", "3:2:"), num_actions=3).action_names is None


def test_a_line_is_an_action(tmp_path: Path) -> None:
    log = load(tmp_path, ADF)
    assert log.action.tolist() == [1, 2] and log.mask.tolist() == [[True, True, False], [True, True, True]]
    assert log.context.tolist() == [[31], [0]] and log.action_features is not None
    assert log.action_features[..., 1].tolist() == [[3, 5, 0], [1, 2, 4]]  # new, price
    assert log.reward.tolist() == [-0.3, 1]


DS: tuple[dict[str, Any], ...] = (
    {
        "_label_cost": 0.5,
        "_label_probability": 0.25,
        "_label_Action": 2,
        "_labelIndex": 1,
        "o": [{"v": -0.5, "EventId": "e1"}],
        "Timestamp": "2024-05-01T10:00:02.5160000Z",
        "EventId": "e1",
        "a": [2, 1],
        "p": [0.25, 0.75],
        "c": {
            "hour": 7,
            "_synthetic": False,
            "user": {"age": 31, "member": True, "city": "Rome", "_id": 3, "v": [0.5, 2], "no": None},
            "_multi": [{"_tag": "x", "price": 3}, {"price": 5, "i": [{"id": "b"}], "_text": "so new"}],
        },
    },
    {
        "_label_cost": -1,
        "_label_probability": 0.5,
        "_label_Action": 3,
        "Timestamp": "2024-05-01T10:00:01Z",
        "EventId": "e0",
        "a": [3, 1, 2],
        "p": [0.5, 0.3, 0.200001],
        "c": {"user": {"age": 5, "member": False}, "_multi": [{"price": 1}, {"price": 2}, {"price": 4}]},
    },
)


def ds(*changes: Any) -> str:
    """Lines of dsjson, with fields of the first decision replaced."""
    first = {**DS[0], **dict(changes)}
    return "".join(json.dumps(one) + "\n" for one in (first, DS[1]))


def test_json_lines_are_decisions(tmp_path: Path) -> None:
    others = ('["checkpoint"]', '{"RewardValue": 1.0, "EventId": "e7"}', json.dumps(DS[0] | {"_skipLearn": True}), "")
    log = load(tmp_path, "\r\n".join(others) + "\r\n" + ds())
    assert log.key is not None and log.key.tolist() == ["e0", "e1"]  # in the order of time
    assert log.action.tolist() == [2, 1] and log.reward.tolist() == [1, -0.5]
    assert log.mask.tolist() == [[True, True, True], [True, True, False]]
    assert log.logging is not None and log.action_features is not None
    np.testing.assert_allclose(log.logging, [[0.3, 0.2, 0.5], [0.75, 0.25, 0]], atol=1e-5)
    np.testing.assert_array_equal(log.propensity, log.logging[[0, 1], log.action])
    np.testing.assert_allclose(log.logging.sum(axis=1), 1, rtol=1e-12)
    assert log.context_names == ("hour", "user^age", "user^city=Rome", "user^member", "user^v^0", "user^v^1")
    assert log.context.tolist() == [[0, 5, 0, 0, 0, 0], [7, 31, 1, 1, 0.5, 2]]
    assert log.action_features[1].tolist() == [[0, 0, 3, 0], [1, 1, 5, 1], [0] * 4]  # i^id=b, new, price, so
    assert log.timestamp[1] - log.timestamp[0] == np.timedelta64(1516, "ms")


def test_events_that_are_repeated_are_counted(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="2 lines with an EventId that was before, as line 3 with 'e1'") as caught:
        log = load(tmp_path, ds() + ds(("_label_cost", 0)))
    assert caught[0].filename == __file__
    log.save(tmp_path / "log.parquet")
    for one in (log, ope.Log.load(tmp_path / "log.parquet")):
        assert one.key is not None and one.key.tolist() == ["e0", "e1"] and one.reward.tolist() == [1, -0.5]


def test_probabilities_that_contradict_each_other_are_said(tmp_path: Path) -> None:
    for changed in (("p", [0.75, 0.25]), ("p", [0.25, 0.25]), ("p", [0.25, -0.75])):
        with pytest.warns(UserWarning, match="p of 1 decision are not a distribution .* as in line 1: Log.logging"):
            log = load(tmp_path, ds(changed))
        assert log.logging is None and log.propensity.tolist() == [0.5, 0.25]
    assert load(tmp_path, ds(("a", None))).logging is None


@pytest.mark.parametrize("text", [CB, CB.replace("\n", "\n\n"), CB.replace("\n", " \r\n\r\n"), "\n \n" + CB])
def test_empty_lines_of_cb_are_skipped(text: str, tmp_path: Path) -> None:
    log, plain = load(tmp_path, text), load(tmp_path, CB)
    assert log.action.tolist() == plain.action.tolist() and log.context.tolist() == plain.context.tolist()
    assert log.context_names == ("a", "c", "x^b", "x^c", "y^b")


@pytest.mark.parametrize(
    "text", [ADF, "\n\n" + ADF.replace("\n\n", "\n \n\n") + "\n\n", ADF.replace("\n", "\r\n"), ADF.split("\n", 1)[1]]
)
def test_lines_of_actions_need_no_shared_line(text: str, tmp_path: Path) -> None:
    log = load(tmp_path, text)
    assert log.action.tolist() == [1, 2] and log.mask.tolist() == [[True, True, False], [True] * 3]


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)])
def test_compressed_files_are_read(suffix: str, pack: Any, tmp_path: Path) -> None:
    for text in (CB, ADF, ds()):
        plain, path = load(tmp_path, text), tmp_path / f"log{suffix}"
        path.write_bytes(pack(text.encode()))
        assert ope.load_vowpal_wabbit(path).to_pandas().equals(plain.to_pandas())
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=rf"log{suffix} is damaged"):
        ope.load_vowpal_wabbit(path)
    with zipfile.ZipFile(tmp_path / "log.zip", "w") as archive:
        archive.writestr("log.vw", CB)
    assert len(ope.load_vowpal_wabbit(tmp_path / "log.zip")) == 3


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
        ('{"c"\n', {}, r"log\.vw, line 1: it is not JSON \(.*\): drop it"),
        ('{"EventId": "e"}\n', {}, r"there is no line with a decision"),
        (ds(("c", {"_multi": []})), {}, "line 1: c has no list _multi of the actions"),
        (ds(("c", {"_multi": [{}], "_slots": [{}]})), {}, "line 1: c has no list .*decisions of several slots are not"),
        (ds(("pdrop", 0.9)), {}, "line 1: decisions were dropped with probability pdrop"),
        (ds(("_label_cost", None)), {}, "line 1: _label_cost has None, which is not a finite number"),
        (ds(("_label_probability", 0)), {}, r"line 1: the probability must lie in \(0, 1\]"),
        (ds(("_label_Action", 3)), {}, "line 1: the action _label_Action is 3, with _labelIndex 1; it must be one of"),
        (ds(("c", DS[0]["c"] | {"hour": float("nan")})), {}, "line 1: the feature hour has nan"),
        (json.dumps({"c": DS[1]["c"]}), {}, "line 1: there is no _label_cost: drop decisions without a label"),
        (ds(), {"num_actions": 3}, "num_actions is that of the lines of each decision"),
        ("1:1:0.5 | " + " ".join(map(str, range(5000))), {}, "5,000 features, more than 4,096: hash them"),
    ],
)
def test_a_bad_line_is_refused(text: str, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        load(tmp_path, text, **options)


def test_the_command_reads_it(tmp_path: Path, capsys: Any) -> None:
    lines = "1:-1:0.5 | a:0.5\n2:0:0.5 | a:0.1\n1:-1:0.5 | a:0.4\n2:-0.5:0.5 | a:0.7\n"
    (tmp_path / "log.vw.gz").write_bytes(gzip.compress(lines.encode()))
    given = ["--policy", "uniform", "--model", "linear", "--folds", "0", "--estimators", "snips, dr(shrinkage=2)"]
    assert cli.main(["ope", str(tmp_path / "log.vw.gz"), *given, "--out", str(tmp_path / "out")]) == 0
    assert "\nsnips " in (out := capsys.readouterr().out) and "\ndr(shrinkage=2) " in out and "\nips " not in out
    (tmp_path / "log.dsjson").write_text(ds() + ds().replace('"EventId": "e', '"EventId": "f'))
    assert cli.main(["ope", str(tmp_path / "log.dsjson"), *given, "--out", str(tmp_path / "out2")]) == 0


def test_no_file_at_all(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no such file: .*log\.vw"):
        ope.load_vowpal_wabbit(tmp_path / "log.vw")
