"""Tables as bandits: files as published, and rewards worked out by hand."""

import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pooch
import pytest

from seqdec import data, envs, filters, likelihoods
from seqdec.core import Environment, TimeStep
from seqdec.data import Table
from tests.tables import OCCUPATIONS, write_tables
from tests.toys import network_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home") / "tabular"
    write_tables(home)
    return home


@pytest.fixture
def home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEQDEC_DATA", str(folder.parent))
    return folder


def test_features_are_standardized(folder: Path) -> None:
    load = {
        "mushroom": (data.load_mushroom(folder), 60),
        "adult": (data.load_adult(folder), 56),
        "statlog": (data.load_statlog(folder), 70),
        "covertype": (data.load_covertype(folder), 70),
        "census": (data.load_census(folder), 45),
        "jester": (data.load_jester(folder), 30),
    }
    for name, (table, count) in load.items():
        assert table.features.shape[0] == table.rewards.shape[0] == count, name
        assert table.features.dtype == table.rewards.dtype == np.float32
        np.testing.assert_allclose(table.features.mean(0), 0, atol=1e-5, err_msg=name)
        np.testing.assert_allclose(table.features.std(0), 1, atol=1e-4, err_msg=name)


def test_outliers_are_cut_and_constants_vanish() -> None:
    numbers = np.column_stack([np.arange(100.0) == 7, np.full(100, 3.0)])
    scaled = data.tabular.standardize(numbers)
    assert scaled.max() == 5 and (scaled[:, 1] == 0).all()


def test_rewards_of_the_tables(folder: Path) -> None:
    lines = (folder / "agaricus-lepiota.data").read_text().splitlines()
    mushroom = data.load_mushroom(folder)
    assert mushroom.spread is not None
    for line, reward, spread in zip(lines, mushroom.rewards, mushroom.spread, strict=True):
        assert reward.tolist() == [0, 5 if line[0] == "e" else -15]
        assert spread.tolist() == [0, 0 if line[0] == "e" else 20]
    adult = data.load_adult(folder)
    assert adult.rewards.argmax(1).tolist() == [sorted(OCCUPATIONS).index(job) for job in OCCUPATIONS * 4]
    assert data.load_statlog(folder).rewards.argmax(1).tolist() == (np.arange(70) % 7).tolist()
    assert data.load_census(folder, rows=20).rewards.argmax(1).tolist() == (np.arange(20) % 9).tolist()
    ratings = np.load(folder / "jester_data_40jokes_19181users.npy")
    np.testing.assert_allclose(data.load_jester(folder).rewards, ratings[:, 32:], rtol=1e-6)
    assert data.load_stocks(folder).shape == (50, 21)


def rewrite(name: str, change: Any) -> Any:
    def spoil(folder: Path) -> None:
        (folder / name).write_text(change((folder / name).read_text()))

    return spoil


BAD = {
    "wrong separator": ("statlog", rewrite("shuttle.trn", lambda text: text.replace(" ", ",")), "separator another"),
    "no number": ("statlog", rewrite("shuttle.trn", lambda t: "x" + t[2:]), "line 1, column 1: 'x.*' is not a number"),
    "unknown label": ("mushroom", rewrite("agaricus-lepiota.data", lambda t: "q" + t[1:]), "line 1, column 1: 'q'"),
    "unknown class": ("statlog", rewrite("shuttle.trn", lambda t: t.replace(" 7\n", " 8\n")), "classes 1 to 7"),
    "no occupation": ("census", rewrite("USCensus1990.data.txt", lambda t: t.replace("dOccup", "x")), "no column dOcc"),
    "no array": (
        "jester",
        lambda folder: (folder / "jester_data_40jokes_19181users.npy").write_text("x"),
        "not an array",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_damaged_file_is_refused(name: str, tmp_path: Path) -> None:
    table, spoil, message = BAD[name]
    write_tables(tmp_path / "tabular")
    spoil(tmp_path / "tabular")
    with pytest.raises(ValueError, match=f"{message}.*get |{message}.*Get "):
        getattr(data, f"load_{table}")(tmp_path / "tabular")


def test_a_missing_file_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(url: str, *args: Any, **options: Any) -> str:
        raise OSError("no internet")

    monkeypatch.setattr(pooch, "retrieve", offline)
    monkeypatch.setenv("SEQDEC_DATA", str(tmp_path))
    for name in ("mushroom", "adult", "statlog", "covertype", "census", "jester", "stocks"):
        load = getattr(data, f"load_{name}")
        with pytest.raises(FileNotFoundError, match=r"holds no .*: fetch https://.* into the folder tabular of"):
            load(tmp_path)
        with pytest.raises(FileNotFoundError, match=r"fetch https://.* into the folder tabular of \$SEQDEC_DATA"):
            load()


def test_a_download_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def retrieve(url: str, known_hash: str | None, name: str, path: Path, **options: Any) -> str:
        asked.append((url, known_hash, name))
        return str(tmp_path / "cache" / name)

    write_tables(tmp_path / "cache")
    monkeypatch.delenv("SEQDEC_DATA", raising=False)
    monkeypatch.setattr(pooch, "retrieve", retrieve)
    assert data.load_statlog().features.shape == (70, 9)
    assert asked[0][0].startswith("https://") and asked[0][1].startswith("sha256:") and asked[0][2] == "shuttle.trn"
    assert data.load_census(rows=20).rewards.shape == (20, 9)
    assert asked[1][1:] == (None, "USCensus1990.data.txt")  # no checksum is known


# Environments


def play(env: Environment, seed: int, actions: np.ndarray) -> tuple[Any, TimeStep]:
    def run(key, actions, params):
        reset_key, step_key = jax.random.split(key)
        state, first = env.reset(reset_key, params)
        keys = jax.random.split(step_key, len(actions))
        _, steps = jax.lax.scan(lambda s, xs: env.step(xs[0], s, xs[1], params), state, (keys, actions))
        return (state, first), steps

    return jax.device_get(jax.jit(run)(jax.random.key(seed), jnp.asarray(actions), env.params))


def test_a_pass_shows_every_row_once_and_pays_its_reward() -> None:
    table = Table(np.arange(12.0)[:, None], np.arange(24.0).reshape(12, 2))
    (_, first), steps = play(envs.tabular(table), 0, np.ones(12, np.int32))
    shown = np.concatenate([first[None], steps.observation[:-1]])[:, 0].astype(int)
    assert sorted(shown) == list(range(12))
    np.testing.assert_array_equal(steps.reward, 2 * shown + 1)
    np.testing.assert_array_equal(steps.regret, 0)
    assert steps.done.tolist() == [False] * 11 + [True]


def test_a_poisonous_mushroom_kills_half_of_the_time(home: Path) -> None:
    env = envs.mushroom(horizon=4000)
    _, steps = play(env, 1, np.ones(4000, np.int32))
    assert set(np.unique(steps.reward)) == {-35, 5}
    poisonous = steps.regret == 15
    assert set(np.unique(steps.regret)) == {0, 15} and (steps.reward[~poisonous] == 5).all()
    deaths = (steps.reward[poisonous] == -35).mean()
    assert abs(deaths - 0.5) < 6 * 0.5 / np.sqrt(poisonous.sum())
    _, steps = play(env, 1, np.zeros(400, np.int32))
    assert (steps.reward == 0).all() and set(np.unique(steps.regret)) == {0, 5}


def test_a_portfolio_pays_its_weights_times_the_moves(home: Path) -> None:
    env = envs.financial(noise_std=0.01, order="sequential")
    moves = data.load_stocks()
    states = [play(env, seed, np.full(100, 3, np.int32)) for seed in (0, 1)]
    for (state, first), steps in states:
        weights = np.asarray(state.drawn, np.float64)
        np.testing.assert_allclose(np.linalg.norm(weights, axis=0), 1, rtol=1e-5)
        expected = np.tile(moves, (2, 1)) @ weights
        noise = (steps.reward - expected[:, 3]) / 0.01
        assert abs(noise.mean()) < 6 / 10 and abs(noise.std() - 1) < 6 / np.sqrt(200)
        np.testing.assert_allclose(steps.regret, expected.max(1) - expected[:, 3], atol=1e-5)
        scaled = (moves - moves.mean(0)) / moves.std(0)
        np.testing.assert_allclose(first, scaled[0], rtol=1e-4, atol=1e-5)
    assert not np.allclose(states[0][0][0].drawn, states[1][0][0].drawn)  # every run draws its own portfolios


def test_a_table_that_does_not_fit_is_refused() -> None:
    plain = Table(np.zeros((4, 1)), np.zeros((4, 2)))
    for table, message in (
        (plain._replace(features=np.zeros((3, 1))), "3 rows of features need as many rewards"),
        (plain._replace(features=np.full((4, 1), np.nan)), "features must be finite"),
        (plain._replace(rewards=np.zeros(4)), "rewards must be a non-empty array with 2 axes"),
        (plain._replace(spread=np.zeros((4, 3))), "rewards and spread"),
    ):
        with pytest.raises(ValueError, match=message):
            envs.tabular(table)
    with pytest.raises(ValueError, match="unknown order"):
        envs.tabular(plain, order="random")


def test_independent_arms_are_the_filter_over_all_of_them() -> None:
    def one(params, x):
        return (params[0] @ x + params[1])[None]

    def every(params, x):
        return params[0] @ x + params[1]

    params, rng = (jnp.zeros((4, 3)), jnp.zeros(4)), np.random.default_rng(0)
    likelihood, options = likelihoods.gaussian(0.1), {"initial_std": 0.7, "process_noise": 1e-3}
    apart = filters.independent(filters.ekf(network_of(one), likelihood, **options), 4)
    whole = filters.ekf(network_of(every), likelihood, **options)
    beliefs = [flt.init(jax.random.key(0), params) for flt in (apart, whole)]
    steps = [jax.jit(lambda b, x, y, o, f=flt: f.update(f.predict(b), x, y, observed=o)) for flt in (apart, whole)]
    for _ in range(8):
        x, y, arm = rng.normal(size=3).astype(np.float32), np.float32(rng.normal()), rng.integers(4)
        (left, one_info), (right, info) = (step(b, x, y, arm) for step, b in zip(steps, beliefs, strict=True))
        beliefs = [left, right]
        np.testing.assert_allclose(one_info.log_density, info.log_density, rtol=1e-3, atol=1e-4)
    x = jnp.asarray(rng.normal(size=3), jnp.float32)
    for left, right in zip(apart.moments(beliefs[0], x), whole.moments(beliefs[1], x), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-5)
    seen = [flt.update(b, x, jnp.arange(4.0))[0] for flt, b in zip((apart, whole), beliefs, strict=True)]
    for left, right in zip(jax.tree.leaves(apart.mean(seen[0])), jax.tree.leaves(whole.mean(seen[1])), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-4)
    draws = jax.vmap(lambda key: apart.response(apart.sample(key, seen[0]), x))(
        jax.random.split(jax.random.key(1), 4000)
    )
    at = apart.moments(seen[0], x)
    np.testing.assert_allclose(draws.mean(0), at.mean, atol=6 * float(jnp.sqrt(at.cov.max() / 4000)))
    np.testing.assert_allclose(np.cov(draws.T), at.cov, atol=8 * float(at.cov.max()) / np.sqrt(4000))


def test_independent_arms_refuse_what_they_cannot_do() -> None:
    flt = filters.independent(
        filters.ekf(network_of(lambda params, x: (params @ x)[None]), likelihoods.gaussian(0.1)), 4
    )
    with pytest.raises(ValueError, match=r"leading axis \(4,\); got \[\(3,\)\]"):
        flt.init(jax.random.key(0), jnp.zeros((3, 2)))
    belief = flt.init(jax.random.key(0), jnp.zeros((4, 2)))
    with pytest.raises(ValueError, match=r"observed must be one index or None; got shape \(2,\)"):
        flt.update(belief, jnp.ones(2), jnp.ones(2), observed=jnp.array([0, 1]))


@pytest.mark.skipif("SEQDEC_DATA" not in os.environ, reason="needs the published files in $SEQDEC_DATA")
def test_the_published_files_have_their_published_sizes() -> None:
    sizes = {"mushroom": (8124, 117, 2), "adult": (30718, 93, 14), "statlog": (43500, 9, 7)}
    for name, (rows, width, arms) in sizes.items():
        table = getattr(data, f"load_{name}")()
        assert table.features.shape == (rows, width) and table.rewards.shape == (rows, arms)
    assert data.load_stocks().shape == (3713, 21)
