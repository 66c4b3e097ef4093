"""Names: every registry suggests the right one for a misspelled one, from Python and from the command line."""

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import pytest

from seqdec import agents, cli, commands, envs, optim, policies
from seqdec.bo.surrogates import contract as surrogates
from seqdec.commands.base import Experiment, split_names
from seqdec.core import Action
from seqdec.loop.record import select
from seqdec.ope import estimators
from seqdec.registry import Registry, unknown

ROOT = Path(__file__).resolve().parents[1]
REGISTRIES: dict[str, Registry[Any]] = {
    "agent": agents.REGISTRY,
    "command": cli.COMMANDS,
    "environment": envs.REGISTRY,
    "estimator": estimators.REGISTRY,
    "experiment": commands.REGISTRY,
    "optimizer": optim.REGISTRY,
    "policy": policies.REGISTRY,
    "surrogate": surrogates.REGISTRY,
}


@pytest.mark.parametrize("kind", REGISTRIES)
def test_a_name_with_a_letter_missing_suggests_the_right_one(kind: str) -> None:
    registry = REGISTRIES[kind]
    for name in registry:
        misspelled = name[:1] + name[2:]
        if misspelled not in registry:
            with pytest.raises(ValueError, match=rf"^unknown {kind} '.*did you mean '.*Known: ") as error:
                registry[misspelled]
            assert str(error.value).startswith(unknown(kind, misspelled, list(registry)))


@pytest.mark.parametrize(("misspelled", "meant"), [("ts", "thompson"), ("EI", "log_expected_improvement")])
def test_another_name_of_a_policy_suggests_it(misspelled: str, meant: str) -> None:
    with pytest.raises(ValueError, match=rf"^unknown policy '{misspelled}': did you mean '{meant}'\? Known: "):
        policies.make(misspelled)


@pytest.mark.parametrize("kind", REGISTRIES)
def test_a_name_like_no_other_lists_them_all(kind: str) -> None:
    with pytest.raises(ValueError, match=rf"^unknown {kind} 'xyzzy': Known: ") as error:
        REGISTRIES[kind].make("xyzzy")
    assert str(error.value).partition("Known: ")[2].partition(". ")[0].split(", ") == sorted(REGISTRIES[kind])


def test_a_name_in_two_sources_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^the thing 'a' is registered already: choose another name$"):
        Registry("thing", {"a": int}, {"b": int, "a": "module:function"})


@pytest.mark.parametrize("kind", REGISTRIES)
def test_a_name_is_added_once(kind: str) -> None:
    registry = Registry(kind, {name: REGISTRIES[kind][name] for name in REGISTRIES[kind]})
    registry.add("new", int)
    assert list(registry) == [*REGISTRIES[kind], "new"] and registry.make("new", 3) == 3
    for name in registry:
        with pytest.raises(ValueError, match=f"^the {kind} {re.escape(repr(name))} is registered already"):
            registry.add(name, str)
    assert registry.make("new", 3) == 3


class Info(NamedTuple):
    """A toy agent's info."""

    innovation: float = 1.0


def test_a_diagnostic_is_suggested() -> None:
    with pytest.raises(
        ValueError, match="unknown diagnostic of the agent's Info 'inovation': did you mean 'innovation'"
    ):
        select(Info(), None, Action(jnp.int32(0), jnp.float32(1)), ("inovation",))


COMMAND_LINES = [
    ("rnu digits", "unknown command 'rnu': did you mean 'run'?"),
    ("foo", "unknown command 'foo': Known: bench, list, monitor, ope, report, run"),
    ("run digts", "unknown experiment 'digts': did you mean 'digits'?"),
    ("run digits --agents hilofy", "unknown agent 'hilofy': did you mean 'hilofi'?"),
    ("run digits --agents hilofi+ts", "unknown policy 'ts': did you mean 'thompson'?"),
    ("run classify --dataset mnits", "unknown dataset 'mnits': did you mean 'mnist'?"),
    ("run kuairec --matrix smal", "unknown matrix 'smal': did you mean 'small'?"),
    ("run tabular --tables statlok", "unknown table 'statlok': did you mean 'statlog'?"),
    ("run bo --functions brannin", "unknown function 'brannin': did you mean 'branin'?"),
    ("run bo --methods gp+ts", "unknown acquisition 'ts': did you mean 'thompson'?"),
    ("run optimizers --tasks cifr", "unknown task 'cifr': did you mean 'cifar'?"),
    ("run optimizers --optimizers shampo", "unknown optimizer 'shampo': did you mean 'shampoo'?"),
    ("bench filtres", "unknown benchmark 'filtres': did you mean 'filters'?"),
    ("bench filters --filters lrkv", "unknown filter 'lrkv': did you mean 'lrkf'?"),
    ("ope log.csv --model hilofy", "unknown model 'hilofy': did you mean 'hilofi'?"),
]


@pytest.mark.parametrize(("line", "message"), COMMAND_LINES)
def test_the_command_line_suggests_in_one_line_and_writes_nothing(
    line: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"seqdec: {message}") and len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", commands.EVERY.names())
def test_an_experiment_satisfies_the_contract(name: str) -> None:
    experiment: Any = commands.EVERY[name]
    assert experiment.name == name and dataclasses.is_dataclass(experiment)
    fields = {field.name: field for field in dataclasses.fields(experiment)}
    assert fields["out"].default == Path("results") / name
    for method in ("check", "play", "save", "report"):
        assert (
            inspect.signature(getattr(experiment, method)).parameters.keys()
            == inspect.signature(getattr(Experiment, method)).parameters.keys()
        ), method


def test_names_that_differ() -> None:
    assert split_names("agent", "a, b") == ["a", "b"]
    with pytest.raises(ValueError, match="agents must differ from each other; got 'a,a'"):
        split_names("agent", "a,a")


def test_the_beginning_of_a_name_suggests_it():
    assert "did you mean 'noise_variance'?" in unknown("keyword", "noise", ["policy", "noise_variance"])
    assert "did you mean 'rank_hidden'?" in unknown("keyword", "rank", ["rank_hidden", "rank_last"])
