"""Every option of every experiment with a wrong value: a usage error in one line, before anything is computed."""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from seqdec import cli, commands
from seqdec.commands.bandits import Options

NEEDED = {
    "tune": ["digits", "--agent", "hilofi"],
    "ope": ["log.csv"],
    "bench": ["filters"],
    "monitor": ["log.csv"],
    "sweep": ["sweep.toml"],
}
"""Arguments without which a command does not run."""


def wrong_values(hint: Any) -> tuple[str, ...]:
    """What no option of this type accepts."""
    kinds = {hint, *get_args(hint)}
    if bool in kinds:
        return ()
    if Path in kinds:
        return ("/nowhere/at all",)
    if float in kinds:
        return ("-1", "nan", "inf")
    if int in kinds or tuple[int, ...] in kinds or Ellipsis in kinds:
        return ("-1",)
    return ("nope", "")


MEANINGFUL = {("classify", "ranks", ""), ("cifar", "ranks", "")}


def cases() -> Iterator[tuple[str, str, str]]:
    for name in commands.EVERY:
        kind = commands.EVERY[name]
        hints = get_type_hints(kind)
        for field in fields(kind):  # pyright: ignore[reportArgumentType] (a dataclass)
            if field.name not in ("out", "log", "experiment", "what", "config", "folder"):
                every = ((name, field.name, value) for value in wrong_values(hints[field.name]))
                yield from (case for case in every if case not in MEANINGFUL)


def never(self: Any, plan: Any, finished: Any) -> Any:
    raise AssertionError("computed")


def refused(arguments: list[str], capsys: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """The complaint about arguments, which must be a usage error of one line."""
    for name in commands.EVERY:
        monkeypatch.setattr(commands.EVERY[name], "play", never)
    code = cli.main(arguments)
    out, err = capsys.readouterr()
    assert code == 2 and out == "" and err.startswith("seqdec: ") and len(err.splitlines()) == 1, (code, err)
    return err


def command(name: str) -> list[str]:
    return [name] if name in commands.COMMANDS else ["run", name]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("name", "option", "value"), list(cases()))
def test_a_wrong_value_is_refused(
    name: str, option: str, value: str, image_home: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep.toml").write_text("steps = 5\nseeds = 1\n[environments]\nlinear = {}\n[agents]\nlinear = {}\n")
    (tmp_path / "log.csv").write_text("timestamp,action,reward,propensity\n0,0,1,0.5\n1,1,0,0.5\n")
    given = NEEDED.get(name, [])
    if Options in commands.EVERY[name].__mro__ and option != "agents":  # pyright: ignore
        given = ["--agents", "lrkf"]
    given = [part for i, part in enumerate(given) if not (option == "agent" and i)]
    flag = f"--{option.replace('_', '-')}"
    err = refused([*command(name), *given, f"{flag}={value}", "--out", str(tmp_path / "out")], capsys, monkeypatch)
    assert not (tmp_path / "out").exists()
    assert option.rstrip("s") in err.replace("-", "_") or repr(value)[1:-1] in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("ope nowhere.csv", "log: there is no HERE/nowhere.csv"),
        ("ope log.csv --policy nowhere.csv", "policy: there is no HERE/nowhere.csv"),
        ("ope log.csv --policy bts", "known for the log open-bandit only"),
        ("ope log.csv --estimators dr,drr", "unknown estimator 'drr': did you mean 'dr'?"),
        ("ope log.csv --estimators dr(shrinkages=slope)", "unknown keyword of ope.dr 'shrinkages'"),
        ("ope log.csv --estimators dr(2)", "estimators must be names such as"),
        ("ope log.csv --estimators slate_pi", "estimators: slate_pi is for another kind of log"),
        ("ope log.vw --estimators snips", "log: there is no HERE/log.vw"),
        ("ope log.csv --seed 9223372036854775808", "seed must be an integer from 0 to 2**63 - 1"),
        ("run mnist --settings log.csv", "log.csv is damaged"),
        ("run digits --settings .", "settings: there is no file HERE"),
        ("run digits --seed 9223372036854775807 --seeds 2", "seed must be an integer from 0 to 2**63 - 2 for 2 seeds"),
        ("run cifar --agents lrkf:x", "a filter's rank is an integer"),
        ("monitor nowhere", "folder: there is no HERE/nowhere"),
        ("monitor log.csv", "log.csv is not the folder of an OnlineAgent"),
        ("bench nope", "unknown benchmark 'nope'"),
        ("tune nope --agent hilofi", "unknown experiment 'nope'"),
    ],
)
def test_other_wrong_arguments(
    arguments: str, message: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEQDEC_DATA", "/nowhere")
    (tmp_path / "sweep.toml").write_text("steps = 5\nseeds = 1\n[environments]\nlinear = {}\n[agents]\nlinear = {}\n")
    (tmp_path / "log.csv").write_text("timestamp,action,reward,propensity\n0,0,1,0.5\n1,1,0,0.5\n")
    assert message.replace("HERE", str(tmp_path)) in refused(arguments.split(), capsys, monkeypatch)


def test_names_are_text() -> None:
    with pytest.raises(TypeError, match=r"tables must be a text of names separated by commas; got \('nope',\)"):
        commands.EVERY["tabular"](tables=("nope",)).check()  # pyright: ignore


@pytest.mark.parametrize("name", list(commands.EVERY))
def test_an_empty_path_is_refused(name: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a shell variable that is not set, in each option of a path; nothing is written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(commands.EVERY[name], "play", never)
    hints = get_type_hints(commands.EVERY[name])
    options = [field.name for field in fields(commands.EVERY[name]) if "Path" in str(hints[field.name])]  # pyright: ignore
    assert "out" in options
    needed = NEEDED.get(name, [])
    for option in (*options, "compilation_cache"):
        positional = option in ("config", "folder")
        given = [""] if positional else [*needed, f"--{option.replace('_', '-')}", ""]
        assert cli.main([*command(name), *given]) == 2
        words = " ".join(capsys.readouterr().err.replace("\u2502", "").split())
        assert "a path must not be empty; '.' is the working directory" in words
    assert not list(tmp_path.iterdir())


def test_the_empty_path_of_a_report_or_log_is_refused(capsys: Any) -> None:
    for arguments in (["report", ""], ["ope", ""], ["--resume", ""]):
        assert cli.main(arguments) == 2
        assert "a path must not be empty" in capsys.readouterr().err
