"""The monitor of a service: its table of decisions, what it finds in it, and its command."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from gymnasium import spaces

import seqdec
from seqdec import cli
from seqdec.commands.monitor import _tables, monitor_figure
from seqdec.core import Spaces
from seqdec.features import Categorical, Encoder, Numeric
from seqdec.ope import make_log
from seqdec.service import read_history
from seqdec.service.diagnostics import drift
from seqdec.service.summary import _arm, summary
from tests.service.services import Clock
from tests.test_ope_comparison import adaptive

ENCODER = Encoder({"age": Numeric(40, 12), "city": Categorical(("Oslo", "Rome"))})
SITE = Spaces(ENCODER.space, spaces.Discrete(3))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A service with an encoder, whose visitors grow older."""
    place, rng = tmp_path_factory.mktemp("service"), np.random.default_rng(0)
    with seqdec.OnlineAgent("random", SITE, seed=0, encoder=ENCODER, folder=place) as service:
        for number in range(200):
            decision = service.decide({"age": 30 + number / 10 + rng.normal(), "city": "Rome"})
            if number % 4:
                service.learn(decision.token, float(decision.action == 1))
    return place


def test_the_history_has_every_decision(folder: Path) -> None:
    history: Any = read_history(folder)
    assert len(history) == 200 and list(history["number"]) == list(range(1, 201))
    assert list(history.columns[9:]) == list(ENCODER.names)
    assert history["reward"].isna().sum() == history["source"].isna().sum() == history["reward_time"].isna().sum() == 50
    known = history.dropna(subset="reward")
    assert np.all(known["reward"] == (known["action"] == 1)) and set(known["source"]) == {"reported"}
    assert np.all(known["reward_time"] > known["time"]) and history["time"].is_monotonic_increasing
    assert str(history["time"].dt.tz) == "UTC" and history["propensity"].between(0.3, 0.4).all()
    with seqdec.OnlineAgent("random", SITE, seed=0, encoder=ENCODER, folder=folder) as service:
        assert service.learn(history["token"].iloc[0], 0.0) == "learned"
        assert len(read_history(folder).dropna(subset="reward")) == 151  # also while it is in use


def test_delays_are_those_of_reports(clock: Clock, tmp_path: Path) -> None:
    site = Spaces(spaces.Box(-1, 1, (2,)), spaces.Discrete(2))
    log = make_log(action=[0] * 9, reward=[1.0] * 9, propensity=[0.5] * 9, context=np.zeros((9, 2)), num_actions=2)
    for name, options in (("first", {}), ("sum", {"rewards": "sum", "reward_after": 100, "reward_default": 0.0})):
        with seqdec.OnlineAgent("random", site, seed=0, folder=tmp_path / name, **options) as service:
            decisions = service.decide_many(np.zeros((3, 2)))
            for seconds in (10, 20):
                clock.seconds += seconds
                service.learn(decisions[0].token, 1.0)
            clock.seconds += 200
            service.warm_start(log)
        history, after = read_history(tmp_path / name), 10 if name == "first" else 30
        assert [fact for fact in summary(history).facts if "comes after" in fact] == [
            f"a reported reward comes after {after} s in the median, 95% of them within {after} s"
        ]
        assert (history["reward_time"] - history["time"]).iloc[0].total_seconds() == pytest.approx(after, abs=1e-3)


def test_the_history_of_points_and_of_nothing(tmp_path: Path) -> None:
    site = Spaces(spaces.Dict(a=spaces.Box(-1, 1, (2, 2))), spaces.Discrete(2))
    boxes = Spaces(spaces.Box(-1, 1, (2,)), spaces.Box(0, 1, (2,)))
    for name, where in (("candidates", site), ("boxes", boxes)):
        with seqdec.OnlineAgent("random", where, seed=0, folder=tmp_path / name):
            pass
        assert read_history(tmp_path / name).empty
    with seqdec.OnlineAgent("random", boxes, seed=0, folder=tmp_path / "boxes") as service:
        decision = service.decide([0.0, 1.0])
    row = read_history(tmp_path / "boxes").iloc[0]
    np.testing.assert_array_equal(row[["action_0", "action_1"]].to_numpy(np.float32), decision.action)
    assert list(row[["context_0", "context_1"]]) == [0.0, 1.0]
    found = summary(read_history(tmp_path / "boxes"))
    assert found.arms is None and "no reward is known yet" in found.facts
    monitor_figure(read_history(tmp_path / "boxes"), found, "points")
    with pytest.raises(FileNotFoundError, match="there is no decisions"):
        read_history(tmp_path)


def test_a_summary_finds_arms_rewards_and_drift(folder: Path) -> None:
    history: Any = read_history(folder)
    found = summary(history, periods=5)
    periods: Any = found.periods
    assert list(periods["decisions"]) == [40] * 5 and periods["known"].between(0.7, 0.8).all()
    arms: Any = found.arms
    assert arms["decisions"].sum() == 200 and arms.loc[1, "reward"] == 1 and arms.loc[0, "reward"] == 0
    assert 0.8 < arms.loc[1, "low"] < arms.loc[1, "high"] == 1  # never of width 0
    assert arms.loc[0, "low"] == 0 < arms.loc[0, "high"] < 0.2
    assert (periods["low"] < periods["reward"]).all() and (periods["reward"] < periods["high"]).all()
    shifts: Any = found.drift
    assert shifts.index[0] == "age" and shifts.loc["age", "beyond chance"] and shifts.loc["age", "shift"] > 5
    assert not shifts.drop("age")["beyond chance"].any()
    shuffled = history.sample(frac=1, random_state=0)
    assert not summary(shuffled.assign(time=history["time"].to_numpy())).drift["beyond chance"].any()


@pytest.mark.parametrize("rows", [400])
def test_the_reward_of_an_arm_holds_in_logs_of_an_agent_that_learns(rows: int) -> None:
    actions, rewards, laws, means = adaptive(300, rows, 1)
    plain, weighted, held = [], [], []
    for action, reward, law in zip(actions, rewards, laws, strict=True):
        chance = np.take_along_axis(law, action[:, None], 1)[:, 0]
        found = [_arm(action == arm, reward, chance, 3, (0.0, 1.0)) for arm in range(3)]
        plain.append([reward[action == arm].mean() for arm in range(3)])
        weighted.append([value for value, _, _ in found])
        held.append([low <= mean <= high for (_, low, high), mean in zip(found, means, strict=True)])
    bias, before = (np.abs(np.mean(part, axis=0) - means) for part in (weighted, plain))
    assert np.mean(held, axis=0).min() > 0.93
    assert bias.max() < 0.6 * before.max()


def test_the_command_prints_tables_and_makes_a_page(folder: Path, tmp_path: Path, capsys: Any) -> None:
    assert cli.main(["monitor", str(folder), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "200 decisions from" in said and "Drift of the contexts" in said and "city=Rome" in said
    page = (tmp_path / "out" / "monitor.html").read_text(encoding="utf-8")
    assert "data:image/png;base64," in page and "city=Rome" in page and 'src="http' not in page
    assert pd.read_csv(tmp_path / "out" / "arms.csv")["decisions"].sum() == 200
    assert cli.main(["report", str(tmp_path / "out")]) == 0
    assert "200 decisions from" in capsys.readouterr().out
    assert cli.main(["monitor", str(folder), "--anytime", "--out", str(tmp_path / "daily")]) == 0
    said = capsys.readouterr().out
    assert "Which arm earns most? Arm 1 is best: better than the next, " in said and "control" not in said
    assert "Arm 1 is best" in (tmp_path / "daily" / "monitor.html").read_text(encoding="utf-8")


def test_what_was_withdrawn_or_erased_is_left_out(tmp_path: Path, capsys: Any) -> None:
    """Of the decisions, and of the drift of contexts."""
    with seqdec.OnlineAgent("random", SITE, seed=0, encoder=ENCODER, folder=tmp_path / "log") as service:
        for number in range(12):
            decision = service.decide({"age": 30 + number, "city": "Rome"}, key=f"{number}")
            if number < 4:
                service.withdraw(decision.token)
            else:
                service.learn(decision.token, 1.0)
        service.forget(["4", "5"])
    assert cli.main(["monitor", str(tmp_path / "log"), "--out", str(tmp_path / "out")]) == 0
    assert "8 decisions from" in capsys.readouterr().out
    assert pd.read_csv(tmp_path / "out" / "drift.csv")["distance"].notna().all()
    history = read_history(tmp_path / "log")
    assert not len(drift(history[history["token"].isna()]))


def test_what_is_no_service_is_refused(tmp_path: Path, capsys: Any) -> None:
    for periods, expected in (("0", "periods must be"), ("20", "is not the folder of an OnlineAgent")):
        assert cli.main(["monitor", str(tmp_path), "--periods", periods, "--out", str(tmp_path / "out")]) == 2
        assert expected in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_drift_is_beyond_chance_by_the_two_sample_bound() -> None:
    """Of 200 rows against 200, from a distance of 0.163 on, at 1%."""
    numbers = np.random.default_rng(0).permutation(np.arange(200.0))
    assert np.corrcoef(numbers[1:], numbers[:-1])[0, 1] < 0  # counts as none
    times = pd.Timestamp("2026-01-01", tz="UTC") + pd.to_timedelta(np.arange(800), unit="s")
    for shift, beyond in ((28, False), (40, True)):
        x = np.concatenate([numbers, np.zeros(400), numbers + shift])
        row = drift(pd.DataFrame({"time": times, "source": "reported", "x": x})).loc["x"]
        assert (row["distance"], row["beyond chance"]) == (pytest.approx(shift / 200), beyond)


def test_words_say_whether_contexts_drift(folder: Path) -> None:
    history: Any = read_history(folder)
    shuffled = history.sample(frac=1, random_state=0).assign(time=history["time"].to_numpy())
    assert "no drift: the first 50 and the last 50 contexts differ no more than by chance" in summary(shuffled).facts
    moved = shuffled.assign(age=np.where(np.arange(200) < 100, 0.0, 9.0) + shuffled["age"])
    assert "drift: the first 50 and the last 50 contexts differ in age" in summary(moved).facts
    for few in (history[:1], history[:12], history.assign(**dict.fromkeys(ENCODER.names, np.nan))):
        found = summary(few)
        assert "too few contexts tell of drift" in found.facts[-1]
        assert all(len(table) for _, table in _tables(found))
    assert not any("drift" in fact for fact in summary(history.drop(columns=list(ENCODER.names))).facts)
