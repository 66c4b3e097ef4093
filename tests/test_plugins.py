"""Agents, environments, policies and experiments from outside: of installed packages, and "module:function"."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from seqdec import agents, cli, commands, envs, plugins, policies
from seqdec.commands import folder, sweep

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
MINE = '''
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import seqdec
from seqdec.commands.bandits import Bandit


def narrow(network, likelihood, *, rank: int = 2):
    """LRKF of low rank."""
    return seqdec.filters.lrkf(network, likelihood, rank=rank)


agent = seqdec.agents.from_filter(narrow, "thompson")
number = 3


def world(noise_std: float = 0.1):
    """A linear bandit."""
    return seqdec.envs.linear(noise_std=noise_std)


def policy():
    """Greedy."""
    return seqdec.policies.greedy()


def nothing(*spaces):
    return 3


def alone():
    return None


@dataclass(frozen=True, kw_only=True)
class Three(Bandit):
    """Three arms."""

    name: ClassVar[str] = "three"
    agents: str = "random"
    steps: int = 20
    seeds: int = 1
    out: Path = Path("results/three")

    def environment(self):
        return seqdec.envs.bernoulli((0.1, 0.5, 0.9))
'''


def install(place: Path, name: str, version: str, declared: dict[str, dict[str, str]]) -> None:
    """Write what pip writes of a package's metadata."""
    home = place / f"{name}-{version}.dist-info"
    home.mkdir()
    (home / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    groups = (
        "\n".join([f"[{group}]", *(f"{key} = {value}" for key, value in names.items())])
        for group, names in declared.items()
    )
    (home / "entry_points.txt").write_text("\n\n".join(groups) + "\n", encoding="utf-8")


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is searched for modules and packages, with a module, and two packages of which one is broken."""
    home = tmp_path / "site"
    home.mkdir()
    (home / "mine.py").write_text(MINE, encoding="utf-8")
    good = {
        "seqdec.agents": {"narrow": "mine:agent", "linear": "mine:agent", "twice": "mine:agent"},
        "seqdec.environments": {"world": "mine:world"},
        "seqdec.policies": {"calm": "mine:policy"},
        "seqdec.experiments": {"three-arms": "mine:Three"},
    }
    install(home, "good", "1.5", good)
    bad = {"lost": "gone.away:f", "twice": "gone.away:f", "../up": "gone.away:f"}
    install(home, "bad", "0.1", {"seqdec.agents": bad, "seqdec.experiments": {"vanished": "gone.away:Class"}})
    monkeypatch.syspath_prepend(str(home))
    plugins.declared.cache_clear()
    yield home
    plugins.declared.cache_clear()
    sys.modules.pop("mine", None)


def test_declared_names_are_found_wherever_a_name_is_taken(mine: Path) -> None:
    env = envs.make("world", noise_std=0.2)
    agent = agents.make("narrow", env, rank=1, policy="calm")
    assert agents.capabilities("narrow") == agents.capabilities("lrkf")._replace(process_noise=())
    assert agent.settings["rank"] == 1 and agent.settings["policy"] == "calm"
    assert {"narrow", "world", "calm"} <= {*agents.names(), *envs.names(), *policies.names()}
    assert commands.EVERY["three-arms"] is commands.REGISTRY["mine:Three"]  # pyright: ignore
    assert agents.REGISTRY["linear"] is agents.linear, "a name of the library keeps its meaning"
    with pytest.raises(ValueError, match=r"unknown agent 'narow': did you mean 'narrow'\?"):
        agents.make("narow", env)
    with pytest.raises(TypeError, match=r"unknown keyword of narrow 'rnk': did you mean 'rank'"):
        agents.make("narrow", env, rnk=1)


def test_a_package_that_cannot_be_used_breaks_no_other(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=r"'lost' of bad 0\.1 cannot be loaded: .*pip uninstall bad"):
        agents.REGISTRY["lost"]
    with pytest.raises(ValueError, match=r"'twice' is declared by several packages \(bad 0\.1, .*; good 1\.5, mine:ag"):
        agents.REGISTRY["twice"]
    assert "../up" not in agents.REGISTRY and "../up" not in agents.names()
    assert cli.main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    found = {line.split()[0]: line for line in lines if line.startswith("  ")}
    assert found["narrow"].endswith("LRKF of low rank. (good 1.5, mine:agent)")
    assert "CANNOT BE USED" in found["lost"] and "CANNOT BE USED" in found["vanished"]
    assert "seqdec has this name itself; use mine:agent" in found["linear"] and "a name consists of" in found["../up"]
    assert cli.main(["run", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "three-arms" in shown and "vanished" not in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["digits", "--agents", "nowhere:f"], "there is no module 'nowhere': install its package, call the command in"),
        (["digits", "--agents", "mine:agnt"], "mine.py) has no 'agnt': did you mean 'agent'?"),
        (
            ["digits", "--agents", "mine:number"],
            "'mine:number' is not a valid agent, but 3: it must be a function (spaces",
        ),
        (["digits", "--agents", "mine:alone"], "'mine:alone' cannot be called as a function (spaces, *, keywords)"),
        (["digits", "--agents", "mine:nothing"], "'mine:nothing' returned 3: it must be a function (spaces"),
        (["digits", "--agents", "ekf", "--policy", "mine:world"], "'mine:world' returned Environment"),
        (["mine:agent"], "'mine:agent' is not a valid experiment"),
    ],
)
def test_a_wrong_reference_is_refused_before_any_work(
    arguments: list[str], message: str, mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", *arguments, "--out", str(tmp_path / "out")]) == 2
    shown = capsys.readouterr().err
    assert message in shown and shown.count("\n") == 1 and not (tmp_path / "out").exists()


def test_an_experiment_from_outside_is_recorded_resumed_and_reported(
    mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = MINE.replace("class Three", "class Other").replace('"three"', '"other"')
    (mine / "another.py").write_text(source, encoding="utf-8")
    out = tmp_path / "out"
    assert cli.main(["run", "another:Other", "--agents", "random,mine:nothing", "--out", str(out)]) == 2
    assert cli.main(["run", "another:Other", "--out", str(out)]) == 0
    manifest = folder.read_manifest(out)
    assert manifest["experiment"] == "another:Other" and manifest["runs"] == ["random"]
    printed = capsys.readouterr().out
    assert cli.main(["run", "--resume", str(out), "--trust"]) == 0 == cli.main(["report", str(out), "--trust"])
    assert capsys.readouterr().out.count(printed.splitlines()[1]) == 2
    assert commands.EVERY.name_of(commands.EVERY["mine:Three"]) == "three-arms"  # pyright: ignore


def test_a_sweep_takes_references_and_notices_a_changed_file(mine: Path, tmp_path: Path) -> None:
    config = tmp_path / "sweep.toml"
    config.write_text(
        'steps = 10\n[environments]\n"mine:world" = { noise_std = 0.1 }\n[agents]\n'
        'narrow = { policy = "mine:policy", rank = 1 }\nown = { agent = "linear" }\n',
        encoding="utf-8",
    )
    out = tmp_path / "out"
    assert cli.main(["sweep", str(config), "--workers", "1", "--out", str(out), "--trust"]) == 0
    table = pd.read_parquet(out / "sweep.parquet")
    assert set(table["environment"]) == {"mine:world"} and set(table["agent"]) == {"narrow", "own"}
    assert '"policy": "mine:policy"' in table.loc[table["agent"] == "narrow", "settings"].iloc[0]
    assert folder.read_manifest(out)["versions"]["good"] == "1.5"
    cells = sweep.read_cells(config)
    keys = [cell.key() for cell in cells]
    assert keys == folder.read_manifest(out)["cells"]
    (mine / "mine.py").write_text(f"{MINE}\nmore = 1\n", encoding="utf-8")
    assert not set(keys) & {cell.key() for cell in cells}, "a cell of another version of the file is not the same cell"


def blocks(language: str) -> Any:
    """The blocks of the documentation's section on names of one's own."""
    section = PAGE.partition("\n## Names of your own\n")[2].partition("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


def test_the_package_of_the_documentation_works_in_the_command(tmp_path: Path) -> None:
    """In a process of its own: the package is installed, and a module lies in the working directory."""
    (project,), (code,) = blocks("toml"), blocks("python")
    config = tomllib.loads(project)["project"]
    site, work = tmp_path / "site", tmp_path / "work"
    site.mkdir()
    work.mkdir()
    (site / "stubborn.py").write_text(code, encoding="utf-8")
    install(site, config["name"], config["version"], config["entry-points"])
    (work / "local.py").write_text("import stubborn\n\n\nagent = stubborn.stubborn\n", encoding="utf-8")
    (site / "command.py").write_text("from seqdec_command import main\nraise SystemExit(main())\n", encoding="utf-8")
    arguments = ["run", "digits", "--agents", "stubborn,local:agent", "--steps", "20", "--seeds", "1", "--out", "out"]
    done = subprocess.run(
        [sys.executable, str(site / "command.py"), *arguments],
        cwd=work, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    runs, manifest = folder.load_runs(work / "out"), folder.read_manifest(work / "out")
    assert list(runs) == ["stubborn", "local:agent"] and (runs["local:agent"].rewards == runs["stubborn"].rewards).all()
    assert manifest["options"]["agents"] == "stubborn,local:agent" and manifest["versions"]["stubborn"] == "1.0"
