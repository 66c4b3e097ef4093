"""What type checkers know: the Python blocks of the documentation, and the keywords of agents and of the optimizer."""

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from seqdec import agents
from tests.test_readme import BLOCKS, ROOT

UNKNOWN = {("bayesian-optimization.md", "search_result")}
"""Page and word of what no type checker can know: an attribute that is added to an exception of the user's."""
MISSPELLED = """
import seqdec
env = seqdec.envs.linear()
seqdec.agents.hilofi(env, rnak=3)
seqdec.agents.lrkf(env, rank_hidden=3)
seqdec.agents.ekf(env, rank=3)
seqdec.agents.hilofi(env, rank="three")
seqdec.agents.replay_adamw(env, capcity=3)
seqdec.agents.linear(env, neglct=3)
seqdec.agents.auto(env, capcity=3)
seqdec.envs.digits(horizn=3)
seqdec.optim.alice(0.1, rnk=3)
seqdec.minimize(lambda x: x[0], [(0, 1)], n_calls=3, seed=0, surogate="gp")
seqdec.maximize(lambda x: x[0], [(0, 1)], n_calls=3, seed=0, surogate="gp")
seqdec.bo.BayesianOptimizer([(0, 1)], seed=0, surogate="gp")
seqdec.service.OnlineAgnt
"""
KNOWN = """
import numpy as np
import seqdec
env = seqdec.envs.linear()
seqdec.agents.hilofi(env, rank=3, policy="greedy", noise_variance=0.1, initial_std_hidden=0.3, average=0.5)
seqdec.agents.lrkf(env, rank=3, process_noise=1e-6, rehearsal=seqdec.agents.Rehearsal(seqdec.memory.last(3)))
seqdec.agents.replay_sgd(env, batch_size=None, inner_steps=2)
search = seqdec.minimize(lambda x: x[0], [(0, 1)], n_calls=3, surrogate="gp", noise_std=0.1, initial=3)
search.x, search.fun, search.optimizer.best, search.plot().savefig
seqdec.service.read_log, seqdec.executors.Local, seqdec.data.form_blocks, seqdec.results.Run, seqdec.states.save
agent = seqdec.compiled(seqdec.agents.linear(env))
agent.update(None, np.zeros(3), 1, 0.5)
"""


def complaints(folder: Path, files: dict[str, str]) -> list[tuple[str, int, str]]:
    """(file, line, message) of each error that pyright finds in the files, with the library where it lies."""
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    settings = {"extraPaths": [str(ROOT)], "typeCheckingMode": "standard", "pythonVersion": "3.11"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": ""}, capture_output=True, text=True, check=False
    )
    return [
        (Path(fault["file"]).name, fault["range"]["start"]["line"], fault["message"])
        for fault in json.loads(done.stdout)["generalDiagnostics"]
        if fault["severity"] == "error"
    ]


@pytest.mark.extended
@pytest.mark.slow
def test_type_checkers_know_the_documentation_and_find_misspelled_keywords(tmp_path: Path) -> None:
    pytest.importorskip("pyright")
    pages = {f"{name.replace('-', '_')}.py": page for name, (page, _) in BLOCKS.items()}
    blocks = {file: block for file, (_, block) in zip(pages, BLOCKS.values(), strict=True)}
    found = complaints(tmp_path, {**blocks, "misspelled.py": MISSPELLED, "known.py": KNOWN})
    calls = [number for number, line in enumerate(MISSPELLED.splitlines()) if line.startswith("seqdec.")]
    assert sorted({line for file, line, _ in found if file == "misspelled.py"}) == calls
    rest = [
        (file, line + 1, message)
        for file, line, message in found
        if file != "misspelled.py"
        and not any(pages.get(file) == page and word in message for page, word in UNKNOWN)
        and "could not be resolved" not in message  # an extra that is not installed
    ]
    assert rest == []


def test_no_agent_hides_its_keywords() -> None:
    for name in agents.names():
        kinds = {parameter.kind for parameter in inspect.signature(agents.REGISTRY[name]).parameters.values()}
        assert inspect.Parameter.VAR_KEYWORD not in kinds, name
