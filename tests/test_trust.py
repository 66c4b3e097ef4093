"""Files and folders name no code: a "module:function" is for whoever types it, or for --trust."""

import json
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import seqdec
from seqdec import bo, cli, persistence
from seqdec.commands import EVERY
from seqdec.commands.folder import FORMAT, SETTINGS, read_manifest
from seqdec.persistence import as_json

PLANTED = "planted:run"
"""A module that leaves a file behind when it is imported."""


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that appears where code of the module has run."""
    mark = tmp_path / "ran"
    (tmp_path / "planted.py").write_text(f"open({str(mark)!r}, 'w').close()\ndef run(*a, **k): return None\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("planted", None)  # of the test before
    return mark


def config(environment: str = "linear = {}", agent: str = "linear = {}") -> str:
    return f"steps = 5\n[environments]\n{environment}\n[agents]\n{agent}\n"


def manifest(name: str, **options: object) -> None:
    """The folder of an experiment that was started, with other options."""
    kind = EVERY["digits" if name == PLANTED else name]
    given = {field.name: getattr(kind, field.name, None) for field in fields(kind)}  # pyright: ignore
    Path("out").mkdir(exist_ok=True)
    content = {"format": FORMAT, "experiment": name, "options": as_json(given | {"out": "out"} | options), "runs": []}
    Path("out/manifest.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    "text",
    [
        config(f"x = {{ environment = '{PLANTED}' }}"),
        config(f"'{PLANTED}' = {{}}"),
        config(agent=f"x = {{ agent = '{PLANTED}' }}"),
        config(agent=f"linear = {{ policy = '{PLANTED}' }}"),
        config(agent=f"linear = {{ policy = ['ucb', '{PLANTED}'] }}"),
    ],
)
def test_a_sweep_imports_nothing_that_its_file_or_folder_names(
    planted: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("sweep.toml").write_text(text)
    manifest("sweep", config="out/config.toml", backend="local")
    Path("out/config.toml").write_text(text)
    for command in (["sweep", "sweep.toml", "--out", "new"], ["sweep", "--resume", "out"]):
        assert cli.main(command) == 2
        assert f"names '{PLANTED}', which would import code" in capsys.readouterr().err
        assert not planted.exists() and not Path("new").exists()
    cli.main(["sweep", "sweep.toml", "--out", "new", "--trust"])  # it is unfit, but is asked
    assert planted.exists()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        (PLANTED, {}),
        ("digits", {"agents": PLANTED}),
        ("digits", {"agents": f"hilofi:5+{PLANTED}"}),
        ("digits", {"agents": "hilofi", "policy": PLANTED}),
        ("tune", {"experiment": PLANTED, "agent": "linear"}),
        ("tune", {"experiment": "digits", "agent": PLANTED}),
    ],
)
def test_a_folder_that_is_resumed_or_reported_imports_nothing(
    planted: Path, name: str, options: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    manifest(name, **options)
    for command in (["run", "--resume", "out"], ["report", "out"]):
        assert cli.main(command) != 0
        assert not planted.exists(), command
    assert read_manifest(Path("out"))["experiment"] == name


def test_a_file_of_settings_imports_nothing(planted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = {"hilofi": {"settings": {"policy": PLANTED}}}
    Path("s.json").write_text(json.dumps({"format": SETTINGS, "experiment": "digits", "agents": found}))
    assert cli.main(["run", "digits", "--agents", "hilofi", "--settings", "s.json"]) == 2
    assert "s.json: policy names" in capsys.readouterr().err
    assert not planted.exists()


@pytest.mark.parametrize("part", ["surrogate", "acquisition"])
def test_a_saved_search_imports_nothing(planted: Path, part: str) -> None:
    bo.BayesianOptimizer([(0, 1)], seed=0).save("search")
    tensors, content = persistence.read_arrays(Path("search"))
    content["settings"][part] = PLANTED
    content["used"]["used" if part == "surrogate" else part] = PLANTED
    persistence.write_arrays(Path("search"), tensors, content)
    with pytest.raises(ValueError, match="would import code"):
        bo.BayesianOptimizer.load("search")
    with pytest.raises(ValueError, match="would import code"):
        seqdec.minimize(lambda x: x[0], [(0, 1)], n_calls=2, checkpoint="search", progress=False)
    assert not planted.exists()
    with pytest.raises((TypeError, ValueError), match="planted:run"):
        bo.BayesianOptimizer.load("search", trust=[PLANTED])
    assert planted.exists()
