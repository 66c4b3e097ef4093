"""Whether a policy is better than what is done now."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from scipy.sparse import csr_array

import seqdec
from seqdec import ope
from seqdec.core import Spaces
from seqdec.ope import sequences

LAW = np.array([0.3, 0.25, 0.2, 0.15, 0.1])
TARGET = LAW + np.array([-0.05, -0.05, 0, 0.1, 0])


def draw(
    seed: int, rows: int = 1000, rate: float = 0.3, law: np.ndarray = LAW, gain: float = 0.6
) -> tuple[ope.Log, np.ndarray]:
    """A log of five actions, the fourth with `1 + gain` times the reward of the second, and the mean rewards."""
    rng, means = np.random.default_rng(seed), rate * np.array([0.7, 1, 1.3, 1 + gain, 0.9])
    action = rng.choice(5, size=rows, p=law)
    reward = (rng.random(rows) < means[action]) * 1.0
    return ope.make_log(action=action, reward=reward, propensity=law[action], num_actions=5), means


def repeated(target: np.ndarray, log: ope.Log) -> np.ndarray:
    return np.tile(target, (len(log), 1))


def test_the_paired_difference_decides_where_the_intervals_of_both_overlap() -> None:
    held, apart = [], []
    for seed in range(30):
        log, means = draw(seed)
        found = ope.compare(log, repeated(TARGET, log), seed=seed, samples=200, window=1000)
        held.append(found.difference.low <= (TARGET - LAW) @ means <= found.difference.high)
        apart.append(found.target.low > found.baseline.high)
        assert found.decision == "better" and found.verdict.startswith("Better by 0.0")
        assert found.difference.high - found.difference.low < 0.4 * (found.target.high - found.target.low)
    assert sum(held) >= 27 and not any(apart)


def test_a_worse_policy_and_one_that_changes_nothing() -> None:
    log, _ = draw(0)
    worse = ope.compare(log, repeated(2 * LAW - TARGET, log), seed=0)
    assert (worse.decision, worse.verdict[:11]) == ("worse", "Worse by 0.")
    same = ope.compare(log, repeated(LAW, log), seed=0)
    assert same.decision == "no difference shown" and same.difference == pytest.approx((0, 0, 0))


def test_a_difference_that_does_not_show_names_the_rows_it_would_need() -> None:
    log, _ = draw(1, rows=300, rate=0.05)
    found = ope.compare(log, repeated(TARGET, log), seed=0)
    assert found.decision == "no difference shown"
    assert "No difference that this log could show" in found.verdict and "rows" in found.verdict


def test_a_baseline_may_be_another_policy_and_rewards_may_be_predicted() -> None:
    log, means = draw(2)
    predicted = repeated(means, log)
    found = ope.compare(log, repeated(TARGET, log), predicted, seed=0, baseline=repeated(LAW, log))
    assert found.estimator == "sndr" and found.decision == "better" and "of the baseline" in found.verdict
    swapped = ope.compare(log, repeated(LAW, log), predicted, seed=0, baseline=repeated(TARGET, log))
    assert swapped.difference.value == pytest.approx(-found.difference.value)
    assert found.table.index[0] == "auto" and found.target.value == found.table.loc["auto", "value"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda log: log.replace(propensity=np.full(len(log), np.nan)), "without propensities"),
        (lambda log: log[log.action != 3], "25% of the policy's decisions were never logged"),
        (lambda log: log[:25], "25 rows"),
        (lambda log: log.replace(propensity=log.propensity / 4), "the propensities do not fit"),
    ],
)
def test_a_log_that_cannot_decide_says_why(change: Any, reason: str) -> None:
    log, means = draw(3)
    log = change(log)
    found = ope.compare(log, repeated(TARGET, log), repeated(means, log), seed=0)
    assert found.decision == "cannot decide" and found.verdict.startswith("Cannot decide: ")
    assert reason in found.verdict


def test_decisions_that_were_never_logged_count_with_the_whole_range() -> None:
    law = np.array([0.1, 0.5, 0.4, 0, 0])
    log, means = draw(7, rows=3000, rate=0.5, law=law)
    part, clear = np.array([0, 0, 0.8, 0.2, 0]), np.array([0, 0, 0.95, 0.05, 0])
    unsure, sure = (ope.compare(log, repeated(target, log), seed=0) for target in (part, clear))
    assert "20% of the policy's decisions were never logged" in unsure.verdict and sure.decision == "better"
    for found, target in ((unsure, part), (sure, clear)):
        assert found.difference.low < (target - law) @ means < found.difference.high
    tenfold = log.replace(reward=10 * log.reward)
    assert ope.compare(tenfold, repeated(clear, log), seed=0).decision == "cannot decide"
    assert ope.compare(tenfold, repeated(clear, log), seed=0, reward_range=(0, 10)).decision == "better"


def test_rows_of_a_group_depend_on_each_other() -> None:
    held = {False: [], True: []}
    for seed in range(25):
        rng = np.random.default_rng(seed)
        users, action = np.repeat(np.arange(60), 20), rng.integers(2, size=1200)
        likes = rng.normal(size=60)[users] * (2 * action - 1)  # which action a user likes
        log = ope.make_log(action=action, reward=likes + rng.normal(size=1200), propensity=np.full(1200, 0.5))
        for grouped in held:
            more: Any = {"groups": [f"user {user}" for user in users]} if grouped else {}
            found = ope.compare(log, np.tile([0.2, 0.8], (1200, 1)), seed=seed, samples=100, window=1200, **more)
            held[grouped].append(found.difference.low < 0 < found.difference.high)
    assert np.mean(held[True]) >= 0.88 and np.mean(held[False]) < 0.6


def test_changes_over_time_are_told() -> None:
    first, _ = draw(4, rows=2000)
    last, _ = draw(5, rows=2000, gain=-0.9)
    dates = np.datetime64("2026-01-01") + np.arange(4000) // 100
    log = first.replace(
        timestamp=dates, **{name: np.concatenate([getattr(first, name), getattr(last, name)]) for name in FIELDS}
    )
    for window, count in ((None, 5), (1000, 4), ("10D", 4)):
        found = ope.compare(log, repeated(TARGET, log), seed=0, window=window, samples=100)
        assert "the difference changes over time, from 0.0" in found.verdict and len(found.windows) == count
        assert found.windows["low"].iloc[0] > 0 > found.windows["high"].iloc[-1]
    steady = ope.compare(first, repeated(TARGET, first), seed=0, samples=100)
    assert "over time" not in steady.verdict
    for window, message in (("week", "window must be"), (0, "window must be"), (1, "at most 200 parts")):
        with pytest.raises(ValueError, match=message):
            ope.compare(log, repeated(TARGET, log), seed=0, window=window)
    with pytest.raises(ValueError, match="are not dates"):
        ope.compare(first, repeated(TARGET, first), seed=0, window="7D")


FIELDS = ("context", "action", "reward", "propensity", "mask")


def adaptive(logs: int, rows: int, seed: int) -> tuple[np.ndarray, ...]:
    """Actions, rewards and laws (logs, rows, 3) of an agent that plays the best arm so far, with a floor of 0.1."""
    rng, means = np.random.default_rng(seed), np.array([0.3, 0.4, 0.5])
    counts, sums, every = np.ones((logs, 3)), np.full((logs, 3), 0.5), np.arange(logs)
    actions, rewards, laws = (np.zeros((logs, rows, *more)) for more in ((), (), (3,)))
    for t in range(rows):
        law = 0.1 + 0.7 * np.eye(3)[(sums / counts).argmax(axis=1)]
        action = (rng.random(logs)[:, None] > law.cumsum(axis=1)).sum(axis=1)
        reward = (rng.random(logs) < means[action]) * 1.0
        counts[every, action] += 1
        sums[every, action] += reward
        actions[:, t], rewards[:, t], laws[:, t] = action, reward, law
    return actions.astype(int), rewards, laws, means


@pytest.mark.parametrize("known", [False, True])
def test_an_anytime_interval_holds_at_every_row_of_logs_of_an_agent_that_learns(known: bool) -> None:
    actions, rewards, laws, means = adaptive(200, 400, 0)
    target = np.array([0.1, 0.1, 0.8])
    truth = np.cumsum(target @ means - laws @ means, axis=1) / np.arange(1, 401)
    chance = np.take_along_axis(laws, actions[:, :, None], 2)[:, :, 0]
    left = 0
    for action, reward, p, law, exact in zip(actions, rewards, chance, laws, truth, strict=True):
        log = ope.make_log(action=action, reward=reward, propensity=p, num_actions=3)
        log = log.replace(logging=law) if known else log
        given = ope.evidence(log, repeated(target, log), seed=0)
        found = sequences.of_difference(given, (0.0, 1.0), 0.95)
        at = found.index.to_numpy() - 1
        left += bool(((found["low"] > exact[at]) | (found["high"] < exact[at])).any())
    assert left <= 10


def test_a_known_law_makes_an_anytime_interval_narrower() -> None:
    """By the mean of the rewards before, which is subtracted."""
    log, _ = draw(3, rows=4000)
    log = log.replace(reward=0.4 + 0.2 * log.reward)
    given = [ope.evidence(one, repeated(TARGET, one), seed=0) for one in (log, log.replace(logging=repeated(LAW, log)))]
    plain, known = (sequences.of_difference(one, (0.0, 1.0), 0.95).iloc[-1] for one in given)
    assert known["high"] - known["low"] < 0.85 * (plain["high"] - plain["low"])


def test_an_anytime_interval_waits_for_an_arm_that_is_hardly_played() -> None:
    """It earns much less, which rows without it do not show."""
    rng, left = np.random.default_rng(0), 0
    law, target = np.array([0.98, 0.02]), np.array([0.0, 1.0])
    for _ in range(100):
        action = (rng.random(100) < 0.02) * 1
        reward = (rng.random(100) < np.where(action == 0, 0.95, 0.05)) * 1.0
        log = ope.make_log(action=action, reward=reward, propensity=law[action], logging=np.tile(law, (100, 1)))
        found = sequences.of_difference(ope.evidence(log, repeated(target, log), seed=0), (0.0, 1.0), 0.95)
        left += bool((found["low"] > 0.98 * -0.9).any())
    assert left <= 10


def test_an_anytime_comparison_needs_exact_propensities_and_a_range() -> None:
    log, _ = draw(6, rows=4000)
    target = repeated(np.array([0, 0, 0, 1.0, 0]), log)
    found = ope.compare(log, target, seed=0, anytime=True)
    assert found.decision == "better" and found.sequence is not None and found.sequence.index[-1] == 4000
    plain = ope.compare(log, target, seed=0)
    assert found.difference.low < plain.difference.low < plain.difference.high < found.difference.high
    doubled = log.replace(reward=2 * log.reward)
    wider = ope.compare(doubled, target, seed=0, anytime=True, reward_range=(0, 2)).difference
    assert wider == pytest.approx(2 * np.array(found.difference))
    for wrong, settings, message in (
        (log.replace(estimated=True), {}, "exact propensities"),
        (doubled, {}, "the range of possible rewards"),
        (log, {"baseline": target}, "leave out baseline"),
        (log, {"groups": log.action}, "does not use groups"),
    ):
        with pytest.raises(ValueError, match=message):
            ope.compare(wrong, target, seed=0, anytime=True, **settings)  # pyright: ignore


def test_a_sequence_is_a_bound_of_the_running_mean_at_all_rows() -> None:
    rng, n = np.random.default_rng(0), 400
    means = np.where(np.arange(n) < 200, 0.2, 0.6)
    x = (rng.random((200, n)) < means) * 1.0
    truth = means.cumsum() / np.arange(1, n + 1)
    left = [(sequences.lower(row, 0.0, 0.05, guess=0.0) > truth).any() for row in x]
    assert sum(left) <= 15
    tight = sequences.lower(x[0], 0.0, 0.05)
    assert 0 < truth[-1] - tight[-1] < 0.2
    assert sequences.lower(x[0], -1e9, 0.05)[-1] < -1e6  # a bound that no rate allows


def of_one_slot(log: ope.Log) -> ope.SlateLog:
    return ope.make_slate_log(
        action=log.action[:, None], reward=log.reward[:, None], propensity=log.propensity[:, None]
    )


def test_two_equal_policies_have_a_difference_of_exactly_zero() -> None:
    log, _ = draw(8, rows=200)
    equal, other = repeated(TARGET, log), repeated(LAW, log)
    slates = ope.make_slate_log(
        action=log.action[:, None], reward=log.reward[:, None], propensity=LAW[log.action][:, None]
    )
    numbers = ope.make_continuous_log(action=log.propensity, reward=log.reward, density=np.ones(200))
    settings: Any = {"seed": 0, "samples": 50}
    for found in (
        ope.compare(log, equal, baseline=equal.copy(), **settings),
        ope.compare(log, csr_array(equal), baseline=csr_array(equal), **settings),
        ope.compare(log, other, **settings),
        ope.compare(log, other, anytime=True, **settings),
        ope.compare(slates, other[:, None], **settings),
        ope.compare(numbers, np.full(200, 0.2), baseline=np.full(200, 0.2), **settings),
    ):
        assert found.difference == (0, 0, 0) and found.decision == "no difference shown" and "equal" in found.verdict
        assert found.sequence is None or not found.sequence.to_numpy().any()
    law = np.where(np.arange(200)[:, None] % 2, LAW, LAW[[0, 1, 2, 4, 3]])  # another policy in actions that are rare
    known = log.replace(logging=law, propensity=law[np.arange(200), log.action])
    assert "equal" in ope.compare(known, law, **settings).verdict
    assert "equal" not in ope.compare(log[log.action == 2][:1], equal[:1], **settings).verdict  # of equal weight there
    assert "equal" not in ope.compare(known, np.where(log.action[:, None] < 3, other, law), **settings).verdict


def test_rows_that_would_be_needed_are_more_than_there_are() -> None:
    for rows, seed, anytime in ((1, 1, True), (1, 1, False), (7, 0, True), (40, 0, False), (300, 2, True)):
        log, _ = draw(seed, rows=rows)
        found = ope.compare(log, repeated(TARGET, log), seed=0, samples=50, reward_range=(0, 1), anytime=anytime)
        needed = re.findall(r"about ([\d,]+) rows", found.verdict)
        assert all(int(one.replace(",", "")) > rows for one in needed) and (not needed or rows > 30)
        assert rows > 1 or "differences below 1.0 do not show in 1 row." in found.verdict or not anytime


def test_all_kinds_of_logs_can_be_compared(tmp_path: Path) -> None:
    """Slates and sessions of one decision, and a file, say what the log says."""
    log, means = draw(9, rows=2000)
    target, other = repeated(TARGET, log), repeated(LAW[::-1], log)
    log.replace(timestamp=np.datetime64("2026-01-01") + np.arange(2000) // 100).save(tmp_path / "log.parquet")
    file, slates, sessions = (
        ope.scan_log(tmp_path / "log.parquet", batch_size=700),
        of_one_slot(log),
        ope.EpisodeLog(log, np.arange(2000)),
    )
    settings: Any = {"seed": 0, "samples": 50, "groups": np.arange(2000) // 2}
    for baseline in (None, other):
        more: Any = {} if baseline is None else {"baseline": baseline}
        plain = ope.compare(log, target, **settings, **more)
        in_file: Any = {name: lambda batch: np.tile(LAW[::-1], (len(batch), 1)) for name in more}
        found = ope.compare(file, lambda batch: np.tile(TARGET, (len(batch), 1)), window="7D", **settings, **in_file)
        assert found.difference == pytest.approx(plain.difference, rel=1e-9) and found.verdict == plain.verdict
        assert len(found.windows) == 3 and found.overlap == plain.overlap
        for kind, law in ((slates, lambda law: law[:, None]), (sessions, lambda law: law)):
            given = {name: law(one) for name, one in more.items()}
            found = ope.compare(kind, law(target), **settings, **given)
            assert found.difference == pytest.approx(plain.difference, abs=1e-3) and found.decision == plain.decision
            with pytest.raises(ValueError, match="is for a Log of discrete actions; got a"):
                ope.compare(kind, law(target), anytime=True, seed=0)
    with pytest.raises(ValueError, match="predicted holds the rewards of the target, which the baseline has not"):
        ope.compare(sessions, target, repeated(means, log), baseline=other, seed=0)
    uniform, wrong = (lambda batch, p=p: np.full((len(batch), 5), p) for p in (0.2, 0.3))
    with pytest.raises(ValueError, match=r"baseline: .*target, row 0: the probabilities do not"):
        ope.compare(file, uniform, baseline=wrong, seed=0)


def test_a_policy_of_numbers_is_compared_with_the_log_and_with_another() -> None:
    held, decided = [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=1500)
        action = 0.5 * x + rng.normal(size=1500)
        density = np.exp(-((action - 0.5 * x) ** 2) / 2) / np.sqrt(2 * np.pi)
        reward = rng.random(1500) < np.exp(-((action - x) ** 2))
        log = ope.make_continuous_log(action=action, reward=reward * 1.0, density=density, context=x[:, None])
        found = ope.compare(log, 0.9 * x, seed=0, samples=50, window=1500)
        truth = np.exp(-0.01 * x**2).mean() - (np.exp(-(0.25 * x**2) / 3) / np.sqrt(3)).mean()
        held.append(found.difference.low < truth < found.difference.high)
        decided.append(found.decision == "better")
        assert found.decision in ("better", "cannot decide") and found.estimator == "kernel_ips(normalized=True)"
        back = ope.compare(log, 0.2 * x, seed=0, samples=50, window=1500, baseline=0.9 * x)
        assert back.difference.value < 0 and back.decision != "better"
    assert sum(held) >= 7 and sum(decided) >= 4


def test_an_agent_is_no_policy_of_a_log(tmp_path: Path) -> None:
    log, _ = draw(10, rows=20)
    site = Spaces(spaces.Box(-1, 1, (1,)), spaces.Discrete(5))
    agent = seqdec.agents.random(site)
    numbers = ope.make_continuous_log(action=log.reward, reward=log.reward, density=np.ones(20))
    log.save(tmp_path / "log.parquet")
    for kind in (log, numbers, ope.EpisodeLog(log, np.arange(20)), ope.scan_log(tmp_path / "log.parquet")):
        with pytest.raises(TypeError, match=r"pass seqdec\.ope\.target_of\(agent, log, seed=0\)"):
            ope.compare(kind, agent, seed=0)
    with pytest.raises(TypeError, match="baseline must be a policy's actions or probabilities in each row"):
        ope.compare(log, repeated(LAW, log), baseline=agent, seed=0)
