"""`seqdec tune`: what it writes, what experiments make of it, and what it refuses."""

import pandas as pd
import pytest

from seqdec.agents.ranges import ranges
from seqdec.cli import main
from seqdec.commands.bandits import Options
from seqdec.commands.digits import Digits
from seqdec.commands.folder import read_manifest, read_settings
from seqdec.results import Run


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """The folder of two trials of AdamW, and how often an agent was built."""
    folder, built = tmp_path_factory.mktemp("tune"), []
    with pytest.MonkeyPatch.context() as patch:
        plain = Options.agent
        patch.setattr(Options, "agent", lambda self, *rest, **other: built.append(rest) or plain(self, *rest, **other))
        arguments = ["--agent", "adamw", "--budget", "2", "--steps", "30", "--seeds", "3", "--out", str(folder)]
        assert main(["tune", "digits", *arguments]) == 0
    return folder, built


def test_trials_begin_with_the_present_settings_and_the_best_is_kept(tuned):
    trials = pd.read_parquet(tuned[0] / "trials.parquet")
    assert trials["trial"].tolist() == [0, 1]
    assert trials["learning_rate"][0] == pytest.approx(Digits.tuned["adamw"]["learning_rate"])
    assert trials["learning_rate"].between(1e-5, 1e-1).all()
    assert trials["learning_rate"].nunique() == 2
    options = Digits(agents="adamw", seed=1000, seeds=3, steps=30)
    ((_, run),) = options.play(options.check(), [])
    assert trials["reward"][0] == pytest.approx(run.rewards.mean()) != run.rewards[0].mean()
    entry = read_settings(tuned[0] / "settings.json", "digits")["adamw"]
    best = trials.loc[trials["reward"].idxmax()]
    assert entry["settings"] == {"learning_rate": best["learning_rate"]}
    assert (entry["budget"], entry["steps"], entry["seed"], entry["seeds"]) == (2, 30, 1000, 3)
    assert (tuned[0] / "tuning.png").is_file()


def test_all_trials_share_one_program(tuned):
    assert len(tuned[1]) == 1


@pytest.mark.extended
def test_an_experiment_takes_the_settings_and_names_them(tuned, tmp_path, capsys):
    file = tuned[0] / "settings.json"
    asked = ["run", "digits", "--agents", "adamw", "--steps", "20", "--seeds", "1", "--out", str(tmp_path)]
    assert main([*asked, "--settings", str(file)]) == 0
    rate = read_settings(file, "digits")["adamw"]["settings"]["learning_rate"]
    assert Run.load(tmp_path / "runs" / "adamw").settings["learning_rate"] == pytest.approx(rate)
    assert read_manifest(tmp_path)["tuned"]["adamw"]["settings"]["learning_rate"] == rate
    assert f"adamw: learning_rate {rate:.3g} (best of 2 trials of 30 steps" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tabular", "--agent", "hilofi"], "'tabular' is not a bandit, so its agents cannot be tuned"),
        (["digits", "--agent", "hilofi", "--seed", "3"], "seed must be larger than the experiment's seeds; got 3"),
        (["digits", "--agent", "hilofi", "--budget", "0"], "budget must be at least 1; got 0"),
        (["digits", "--agent", "hilofy"], "did you mean 'hilofi'"),
        (["digits", "--agent", "hilofi,lrkf"], "one agent"),
    ],
)
def test_wrong_options_are_usage_errors(arguments, message, capsys, tmp_path):
    assert main(["tune", *arguments, "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


def test_settings_of_another_experiment_are_refused(tuned):
    with pytest.raises(ValueError, match="has settings for 'digits', not for 'mnist'"):
        read_settings(tuned[0] / "settings.json", "mnist")
    with pytest.raises(ValueError, match="is not a settings file"):
        read_settings(tuned[0] / "manifest.json", "digits")


def test_zeros_and_other_kinds_of_settings_are_not_searched():
    defaults = {"noise_variance": 0.1, "process_noise": 0.0, "rank": 10, "policy": "greedy", "initial_std": None}
    assert ranges("lrkf", defaults) == {"noise_variance": (1e-4, 1.0)}
    assert ranges("koala++", {"learning_rate": 0.3}) == {"learning_rate": (1e-2, 1e2)}


@pytest.mark.extended
@pytest.mark.parametrize("name", ["auto", "neural_linear"])
def test_agents_with_a_belief_over_the_last_layer_can_be_tuned(name, tmp_path):
    """Their last layer is found while the program of a trial is built."""
    assert main(["tune", "digits", "--agent", name, "--budget", "1", "--steps", "10", "--out", str(tmp_path)]) == 0
    assert name in read_settings(tmp_path / "settings.json", "digits")
