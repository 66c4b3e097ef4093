"""Every number of every public factory, and every option of every command, refuses what it cannot be, by its name."""

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, get_args, get_type_hints

import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from seqdec import agents, cli, commands, filters, likelihoods, memory, models, optim, policies
from seqdec.bo.surrogates import contract as surrogates
from seqdec.commands.bandits import Options
from seqdec.commands.folder import FORMAT
from seqdec.core import Spaces
from seqdec.persistence import write_json

CONTEXT = spaces.Box(-1, 1, (2,), np.float32)
ARMS, POINTS = Spaces(CONTEXT, spaces.Discrete(2)), Spaces(CONTEXT, spaces.Box(0, 1, (1,), np.float32))
ROWS = spaces.Dict(video=spaces.Box(0, 4, (2,), np.int32), features=spaces.Box(-1, 1, (2, 3), np.float32))
CANDIDATES = Spaces(ROWS, spaces.Discrete(2))
NETWORK = models.network(models.MLP(2, (4,)), jnp.zeros(2))
OF_POINTS = models.network(models.MLP(1, (4,)), jnp.zeros(3))


class Case(NamedTuple):
    """A factory, and what it needs to be called."""

    name: str
    factory: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    needed: Mapping[str, Any] = MappingProxyType({})


def parameters(factory: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(factory).parameters)


def factories() -> Iterator[Case]:
    for name in agents.names():
        factory, own = agents.REGISTRY[name], agents.capabilities(name)
        model = {"model": NETWORK} if own.model else {}
        yield Case(f"agents.{name}", factory, (ARMS if "contexts" in own.spaces else CANDIDATES,), model)
        if "num_candidates" in parameters(factory):
            model = {"model": OF_POINTS} if own.model else {}
            yield Case(f"agents.{name} of points", factory, (POINTS,), {"num_candidates": 8, **model})
    for name in ("ekf", "hilofi", "lofi", "lolofi", "lrkf", "subspace"):
        factory = getattr(filters, name)
        ranks = {key: 2 for key, one in parameters(factory).items() if one.default is one.empty}
        del ranks["network"], ranks["likelihood"]
        yield Case(f"filters.{name}", factory, (NETWORK, likelihoods.gaussian(0.1)), ranks)
    for name in policies.names():
        yield Case(f"policies.{name}", policies.REGISTRY[name])
    for name in optim.REGISTRY:
        yield Case(f"optim.{name}", optim.REGISTRY[name], (), {"learning_rate": 0.1})
    for name in surrogates.REGISTRY.own():
        needed = {"dim": 2} if "dim" in parameters(surrogates.REGISTRY[name]) else {}
        yield Case(f"bo.{name}", surrogates.REGISTRY[name], (), needed)
    for name in ("bernoulli", "categorical", "poisson"):
        yield Case(f"likelihoods.{name}", getattr(likelihoods, name))
    yield Case("likelihoods.gaussian", likelihoods.gaussian, (), {"noise_variance": 0.1})
    for name in ("last", "reservoir"):
        yield Case(f"memory.{name}", getattr(memory, name), (), {"capacity": 2})
    for name in ("members_head", "laplace", "neural_linear_head", "variational"):
        yield Case(f"agents.{name}", getattr(agents, name))


def numeric(case: Case) -> Iterator[str]:
    """The keywords that are numbers: by their default, or required."""
    for key, one in parameters(case.factory).items():
        default = case.needed.get(key, one.default)
        is_number = isinstance(default, int | float) and not isinstance(default, bool) and key != "seed"
        if is_number and not (case.name.endswith("points") and key not in case.needed):
            yield key


CASES = {f"{case.name}({key})": (case, key) for case in factories() for key in numeric(case)}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", CASES)
def test_a_keyword_refuses_what_is_not_a_number(name: str) -> None:
    case, keyword = CASES[name]
    annotation = parameters(case.factory)[keyword].annotation
    takes_none = type(None) in typing.get_args(annotation) or "None" in str(annotation)
    for value in ("x", True, np.bool_(True), float("nan"), 1j, [None], *([] if takes_none else [None])):
        with pytest.raises((TypeError, ValueError), match=keyword):
            pytest.fail(f"{value!r}: {case.factory(*case.arguments, **{**case.needed, keyword: value})}")


# Options of commands

NEEDED = {
    "tune": ["digits", "--agent", "hilofi"],
    "ope": ["log.csv"],
    "bench": ["filters"],
    "monitor": ["log.csv"],
    "sweep": ["sweep.toml"],
}
"""Arguments without which a command does not run."""
GOOD = {("classify", "ranks", ""), ("cifar", "ranks", ""), ("ope", "reward_default", "-1")}
"""Values that these options accept, though others of their type do not."""


def wrong_values(hint: Any) -> tuple[str, ...]:
    """What no option of this type accepts."""
    kinds = {hint, *get_args(hint)}
    if bool in kinds:
        return ()
    if Path in kinds:
        return ("/nowhere/at all",)
    if float in kinds:
        return ("-1", "nan", "inf")
    return ("-1",) if {int, tuple[int, ...], Ellipsis} & kinds else ("nope", "")


def options() -> Iterator[tuple[str, str, str]]:
    for name in commands.EVERY:
        kind = commands.EVERY[name]
        hints = get_type_hints(kind)
        for field in fields(kind):  # pyright: ignore[reportArgumentType] (a dataclass)
            if field.name not in ("out", "log", "experiment", "what", "config", "folder"):
                for value in wrong_values(hints[field.name]):
                    if (name, field.name, value) not in GOOD:
                        yield name, field.name, value


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, image_home: Path) -> Path:
    """A working directory with a log and a sweep, in which no command computes anything."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep.toml").write_text("steps = 5\nseeds = 1\n[environments]\nlinear = {}\n[agents]\nlinear = {}\n")
    (tmp_path / "log.csv").write_text("timestamp,action,reward,propensity\n0,0,1,0.5\n1,1,0,0.5\n")

    def never(self: Any, plan: Any, finished: Any) -> Any:
        raise AssertionError("computed")

    for name in commands.EVERY:
        monkeypatch.setattr(commands.EVERY[name], "play", never)
    return tmp_path


def refused(arguments: list[str], capsys: Any) -> str:
    """The complaint about arguments, which must be a usage error of one line."""
    code = cli.main(arguments)
    out, err = capsys.readouterr()
    assert code == 2 and out == "" and err.startswith("seqdec: ") and len(err.splitlines()) == 1, (code, err)
    return err


def command(name: str) -> list[str]:
    return [name] if name in commands.COMMANDS else ["run", name]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("name", "option", "value"), list(options()))
def test_a_wrong_value_is_refused(name: str, option: str, value: str, folder: Path, capsys: Any) -> None:
    given = NEEDED.get(name, [])
    if Options in commands.EVERY[name].__mro__ and option != "agents":  # pyright: ignore
        given = ["--agents", "lrkf"]
    given = [part for i, part in enumerate(given) if not (option == "agent" and i)]
    flag = f"--{option.replace('_', '-')}"
    err = refused([*command(name), *given, f"{flag}={value}", "--out", str(folder / "out")], capsys)
    assert not (folder / "out").exists()
    assert option.rstrip("s") in err.replace("-", "_") or repr(value)[1:-1] in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("ope nowhere.csv", "log: no such file or folder: HERE/nowhere.csv"),
        ("ope log.csv --policy nowhere.csv", "policy: no such file or folder: HERE/nowhere.csv"),
        ("ope log.csv --policy bts", "available only for open-bandit"),
        ("ope log.csv --estimators dr,drr", "unknown estimator 'drr': did you mean 'dr'?"),
        ("ope log.csv --estimators dr(shrinkages=slope)", "unknown keyword of ope.dr 'shrinkages'"),
        ("ope log.csv --estimators slate_pi", "estimators: slate_pi is for another kind of log"),
        ("ope log.csv --seed 9223372036854775808", "seed must be an integer from 0 to 2**63 - 1"),
        ("run mnist --settings log.csv", "log.csv is damaged"),
        ("run digits --settings .", "settings: no such file: HERE"),
        ("run digits --seed 9223372036854775807 --seeds 2", "seed must be an integer from 0 to 2**63 - 2 for 2 seeds"),
        ("run cifar --agents lrkf:x", "a filter's rank is an integer"),
        ("monitor log.csv", "log.csv is not the folder of an OnlineAgent"),
        ("bench nope", "unknown benchmark 'nope'"),
        ("tune nope --agent hilofi", "unknown experiment 'nope'"),
    ],
)
def test_other_wrong_arguments(arguments: str, message: str, folder: Path, capsys: Any) -> None:
    assert message.replace("HERE", str(folder)) in refused(arguments.split(" "), capsys)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", list(commands.EVERY))
def test_an_empty_path_is_refused(name: str, folder: Path, capsys: Any) -> None:
    """As of a shell variable that is not set, in each option of a path; nothing is written."""
    hints = get_type_hints(commands.EVERY[name])
    own = [field.name for field in fields(commands.EVERY[name]) if "Path" in str(hints[field.name])]  # pyright: ignore
    for option in (*own, "compilation_cache"):
        positional = option in ("config", "folder")
        given = [""] if positional else [*NEEDED.get(name, []), f"--{option.replace('_', '-')}", ""]
        assert cli.main([*command(name), *given]) == 2
        words = " ".join(capsys.readouterr().err.replace("\u2502", "").split())
        assert "a path must not be empty; '.' is the working directory" in words
    assert {item.name for item in folder.iterdir()} == {"log.csv", "sweep.toml"}


def test_the_empty_path_of_a_report_or_log_is_refused(capsys: Any) -> None:
    for arguments in (["report", ""], ["ope", ""], ["--resume", ""]):
        assert cli.main(arguments) == 2
        assert "a path must not be empty" in capsys.readouterr().err


def test_resume_without_a_command(tmp_path: Path, capsys: Any) -> None:
    """It is answered as with one, here that the options are missing."""
    write_json(tmp_path / "manifest.json", {"format": FORMAT, "experiment": "digits"})
    given = ([], ["run"], ["run", "digits"])
    messages = {(cli.main([*one, "--resume", str(tmp_path)]), capsys.readouterr().err) for one in given}
    assert len(messages) == 1 and "leave out" not in messages.pop()[1]
