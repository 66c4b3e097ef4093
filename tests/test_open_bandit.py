"""The Open Bandit log: files as published, the policy that left them, replay, and what the sample says of bts."""

import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

from seqdec import data, envs, ope
from seqdec.commands import logs
from tests.tables import write_open_bandit


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write_open_bandit(tmp_path / "open_bandit")
    return tmp_path / "open_bandit"


def test_the_log_as_arrays(home: Path) -> None:
    log = data.load_open_bandit("bts", home)
    table = pd.read_csv(home / "bts_all" / "all.csv")
    np.testing.assert_array_equal(log.item, table["item_id"])
    np.testing.assert_array_equal(log.click, table["click"])
    np.testing.assert_array_equal(log.propensity, table["propensity_score"])
    assert log.context.shape == (400, 3 + 4 * 3) and (log.context.sum(1) == 5).all()
    np.testing.assert_array_equal(log.context[:, :3].argmax(1), table["position"] - 1)
    np.testing.assert_array_equal(log.item_features[:, 2, 1], table["user-item_affinity_2"])
    steps = np.diff(log.timestamp).astype(int)
    assert set(steps) == {1, 7 * 10**9 - 2}  # places of one page are told apart by a nanosecond
    as_log = logs.as_log(log)
    assert as_log.num_actions == 6 and ope.inputs(as_log).shape == (400, 6, 15 + 2)


def test_the_average_policy_is_that_over_time(tmp_path: Path) -> None:
    truth = write_open_bandit(tmp_path, rows=60_000)
    log = data.load_open_bandit("bts", tmp_path)
    found = data.average_policy(log)
    np.testing.assert_allclose(found.sum(1), 1)
    np.testing.assert_allclose(found, truth, atol=0.01)
    naive = [
        [log.propensity[(log.place == place) & (log.item == item)].mean() for item in range(6)] for place in range(3)
    ]
    assert np.abs(np.array(naive) - truth).max() > 0.03  # the mean of the propensities favors what was high
    assert np.abs(data.average_policy(data.load_open_bandit("random", tmp_path)) - 1 / 6).max() < 1e-12


def spoil(name: str, row: int, value: Any) -> Any:
    def apply(table: pd.DataFrame) -> pd.DataFrame:
        table[name] = table[name].astype(object)
        table.loc[row, name] = value
        return table

    return apply


BAD = {
    "missing column": (lambda t: t.drop(columns="click"), "has no column click"),
    "missing affinity": (lambda t: t.drop(columns="user-item_affinity_4"), "no column user-item_affinity_4"),
    "propensity 0": (spoil("propensity_score", 5, 0.0), r"column propensity_score: 0.0 at .* is not in \(0, 1\]"),
    "no date": (spoil("timestamp", 5, "noon"), "column timestamp, row 5: 'noon' is not a date"),
    "duplicate": (lambda t: pd.concat([t, t.iloc[[9]]]), "occurs twice with position 1: drop the copy"),
    "unknown item": (spoil("item_id", 5, 80), "column item_id: 80 at .* is not an item of"),
    "unknown place": (spoil("position", 5, 4), "column position: 4 at .* is not 1, 2 or 3"),
    "click unknown": (spoil("click", 5, np.nan), "column click: nan at"),
}


def test_campaigns_and_folders_as_published(home: Path) -> None:
    expected = data.load_open_bandit("bts", home)
    for campaign in ("men", "women"):
        folder = home / "bts" / campaign
        folder.mkdir(parents=True)
        for name, target in (("item_context", "item_context"), ("all", campaign)):
            (folder / f"{target}.csv").write_bytes((home / "bts_all" / f"{name}.csv").read_bytes())
        np.testing.assert_array_equal(data.load_open_bandit("bts", home, campaign=campaign).item, expected.item)
    table = pd.read_csv(folder / "women.csv", index_col=0).astype({"item_id": object})
    table.loc[7, "item_id"] = "seven"
    table.to_csv(folder / "women.csv")
    with pytest.raises(ValueError, match=r"women\.csv, column item_id: nan at line 9"):
        data.load_open_bandit("bts", home, campaign="women")
    with pytest.raises(FileNotFoundError, match=r"no random/men/men\.csv in"):
        data.load_open_bandit("random", home, campaign="men")
    with pytest.raises(ValueError, match="unknown campaign 'woman': did you mean 'women'"):
        data.load_open_bandit(campaign="woman")


@pytest.mark.parametrize("name", BAD)
def test_a_bad_log_is_refused(name: str, home: Path) -> None:
    change, message = BAD[name]
    path = home / "random_all" / "all.csv"
    change(pd.read_csv(path, index_col=0)).to_csv(path)
    with pytest.raises(ValueError, match=message):
        data.load_open_bandit("random", home)


def test_other_bad_files(home: Path) -> None:
    path = home / "random_all" / "all.csv"
    pd.read_csv(path).to_csv(path, sep=";")
    with pytest.raises(ValueError, match=r"has no column timestamp: the only column is .* is the separator a comma"):
        data.load_open_bandit("random", home)
    with pytest.raises(FileNotFoundError, match=r"no bts/all/all\.csv in .*nowhere: fetch the Open Bandit Dataset"):
        data.load_open_bandit("bts", home / "nowhere")
    with pytest.raises(ValueError, match="unknown policy 'BTS'"):
        data.load_open_bandit("BTS", home)
    (home / "bts_all" / "item_context.csv").unlink()
    with pytest.raises(FileNotFoundError, match=r"item_context\.csv; put it beside"):
        data.load_open_bandit("bts", home)


def test_replay_knows_the_clicks_of_what_was_shown(home: Path) -> None:
    log = data.load_open_bandit("random", home)
    env = envs.open_bandit(root=home)

    def run(key, params):
        state, first = env.reset(key, params)
        actions = jax.random.randint(key, (400,), 0, 6)
        return actions, first, jax.lax.scan(lambda s, a: env.step(key, s, a, params), state, actions)[1]

    actions, first, steps = jax.device_get(jax.jit(run)(jax.random.key(0), env.params))
    agrees = actions == log.item
    np.testing.assert_array_equal(steps.reward[agrees], log.click[agrees])
    assert np.isnan(steps.reward[~agrees]).all() and np.isnan(steps.regret).all()
    np.testing.assert_array_equal(np.concatenate([first[None], steps.observation[:-1]]), log.context)
    assert np.flatnonzero(steps.done).tolist() == [399]


@pytest.mark.skipif("SEQDEC_DATA" not in os.environ, reason="needs the published files in $SEQDEC_DATA")
def test_the_value_of_bts_from_the_random_log_covers_what_bts_earned() -> None:
    log, own = (data.load_open_bandit(policy) for policy in ("random", "bts"))
    target = data.average_policy(own)[log.place]
    table = ope.evaluate(logs.as_log(log), target, seed=0)
    for name in ("ips", "snips", "replay"):
        assert table.loc[name, "low"] < own.click.mean() < table.loc[name, "high"], name
    # Without scaling, the averages over time nearly sum to 1, as they would if nothing had been estimated.
    sums = [
        sum(
            1 / np.mean(1 / own.propensity[chosen])
            for item in range(80)
            if (chosen := (own.place == place) & (own.item == item)).any()
        )
        for place in range(3)
    ]
    np.testing.assert_allclose(sums, 1, atol=0.15)
