"""`seqdec run kuairec`, from options to table, days and pictures."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from reproduction import kuairec
from seqdec import cli
from seqdec.commands import folder
from seqdec.data import synthetic_kuairec, write_kuairec

QUICK = "popularity,random"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A synthetic log of some 110 blocks in the place of the default."""
    monkeypatch.setattr(kuairec, "synthetic_kuairec", lambda: synthetic_kuairec(users=12, videos=100))


def run(out: Path, *arguments: str) -> int:
    return cli.main(["run", "kuairec", "--agents", QUICK, "--seeds", "2", *arguments, "--out", str(out)])


@pytest.mark.extended
def test_days_add_up_and_everything_is_marked_synthetic(small: None, tmp_path: Path, capsys: Any) -> None:
    assert run(tmp_path) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("kuairec SYNTHETIC") and "per step" in printed
    summary = pd.read_csv(tmp_path / "summary.csv", index_col="agent")
    assert set(summary["log"]) == {"kuairec SYNTHETIC"}
    runs = folder.load_runs(tmp_path)
    blocks = len(synthetic_kuairec(users=12, videos=100).rewards)
    days = pd.read_csv(tmp_path / "daily.csv", parse_dates=["period"])
    for name, saved in runs.items():
        assert saved.rewards.shape == (2, blocks) and saved.env == "kuairec SYNTHETIC"  # fewer blocks than steps
        total = np.expm1(saved.rewards).sum(1).mean()
        rows = days[days["agent"] == name]
        np.testing.assert_allclose(summary.loc[name, "reward"], total, rtol=1e-5)
        np.testing.assert_allclose(rows["cumulative"].iloc[-1], total, rtol=1e-5)
        np.testing.assert_allclose((rows["mean"] * rows["steps"]).sum(), total, rtol=1e-5)
        assert rows["steps"].sum() == blocks and rows["period"].is_monotonic_increasing
        assert rows["period"].iloc[0] == pd.Timestamp("2020-07-05")
    pictures = {path.name for path in tmp_path.glob("*.png")}
    assert pictures == {"comparison.png", "daily.png", "regret.png"}

    for name in ("summary.csv", "daily.csv", "daily.png"):
        (tmp_path / name).unlink()
    assert cli.main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == printed.split("\n\nResults")[0].strip()
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "summary.csv", index_col="agent"), summary)


@pytest.mark.extended
def test_only_generated_files_are_marked(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr("pooch.os_cache", lambda project: tmp_path / "cache")
    write_kuairec(tmp_path / "data", users=8, videos=60, seed=0)
    assert run(tmp_path / "out", "--data", str(tmp_path / "data"), "--steps", "20") == 0
    assert capsys.readouterr().out.startswith("kuairec SYNTHETIC  ")
    (tmp_path / "data" / "SYNTHETIC.txt").unlink()
    assert run(tmp_path / "out", "--data", str(tmp_path / "data"), "--steps", "20") == 0
    assert capsys.readouterr().out.startswith("kuairec  ")
    assert folder.load_runs(tmp_path / "out")["random"].rewards.shape == (2, 20)


def test_published_agents_have_the_settings_of_the_paper(small: None) -> None:
    options = kuairec.KuaiRec(agents="hilofi,hilofi.published,lrkf:3+ucb.published", published=True)
    env, team, steps, days = options.check()
    assert days is not None and days["period"].max() == 50 and steps == len(days)
    chosen = ("rank", "noise_variance", "process_noise_hidden", "policy")
    assert [team["hilofi.published"].settings[key] for key in chosen] == [20, 1e-4, 0.0, "thompson"]
    assert team["hilofi"].settings == kuairec.KuaiRec(agents="hilofi").check().agents["hilofi"].settings
    assert options.of_paper("hilofi", env)["model"].tables == ()
    chosen = ("rank", "policy", "noise_variance", "process_noise")
    assert [team["lrkf:3+ucb.published"].settings[key] for key in chosen] == [3, "ucb", 1e-2, 0.0]
    stated = options.of_paper("last_layer_laplace", env)
    assert (stated["buffer"], stated["inner_steps"]) == (10, 50)
    with pytest.raises(
        ValueError, match=r"adamw\.published: no published settings in kuairec; the paper has settings for hilofi, last"
    ):
        kuairec.KuaiRec(agents="adamw.published").check()


@pytest.mark.extended
def test_published_obeys_steps(small: None, tmp_path: Path, capsys: Any) -> None:
    for arguments, steps in ((["--steps", "3"], 3), (["--steps", "20000"], None), ([], None), (["--quick"], None)):
        options = cli._parse(["run", "kuairec", "--published", "--agents", QUICK, *arguments])
        assert options.check().steps == (steps or len(synthetic_kuairec(users=12, videos=100).rewards))
    assert cli._parse(["run", "kuairec", "--published"]).steps == 200_000
    assert run(tmp_path, "--published", "--steps", "3") == 0
    printed = capsys.readouterr().out
    assert cli.main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == printed.split("\n\nResults")[0].strip()


def test_every_filter_takes_rank_and_policy_by_name(small: None) -> None:
    options = kuairec.KuaiRec(agents="lofi:3+ucb,lolofi:4,hilofi:2.rehearsal", noise_variance=0.5)
    settings = {name: agent.settings for name, agent in options.check().agents.items()}
    assert [settings["lofi:3+ucb"][key] for key in ("rank", "policy", "noise_variance")] == [3, "ucb", 0.5]
    assert settings["lolofi:4"]["rank_hidden"] == 4 and settings["hilofi:2.rehearsal"]["rank"] == 2


@pytest.mark.extended
def test_the_real_slice(image_home: Path, tmp_path: Path, capsys: Any) -> None:
    assert run(tmp_path, "--exposures") == 0
    assert capsys.readouterr().out.startswith("kuairec random exposures")


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["--agents", "popularity+thompson"], "popularity has no uncertainty", 2),
        (["--exposures", "--published"], "leave out --data and --published", 2),
        (["--data", "/nowhere"], "data: no such file or folder: /nowhere", 2),
    ],
)
def test_misuse(small: None, arguments: list[str], message: str, code: int, tmp_path: Path, capsys: Any) -> None:
    assert cli.main(["run", "kuairec", *arguments, "--out", str(tmp_path / "out")]) == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.extended
@pytest.mark.slow
def test_filters_and_networks_learn_the_log(small: None, tmp_path: Path) -> None:
    out = str(tmp_path)
    assert cli.main(["run", "kuairec", "--agents", "hilofi,adamw,linear+ucb", "--seeds", "1", "--out", out]) == 0
    runs = folder.load_runs(tmp_path)
    assert all(np.isfinite(run.rewards).all() and run.rejected.sum() == 0 for run in runs.values())
