"""Scripts of measurements run to their end, with the fewest repetitions."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SMALL = {
    "ablations": "koala alice_basis condition --seeds 1 --rates 1 --steps 200",
    "action_times": "--actions 100 --numbers 3",
    "apprentice": "--seeds 1",
    "arms": "--runs 20",
    "bayesian_optimization": "--methods seqdec --tasks branin --seeds 1 --out {out}",
    "calibration": "--noises none --seeds 1",
    "cold_start": "",
    "comparison": "--logs 4 --samples 50",
    "concepts": "--out {out}",
    "constrained": "--designs spring --seeds 1 --calls 12",
    "coverage": "--logs 2 --samples 20",
    "deciders": "--seeds 2",
    "earned": "--runs 20",
    "exploring": "--seeds 2",
    "first_question": "--columns 2",
    "gallery": "--out {out}",
    "knowledge": "earlier --seeds 1",
    "late_rewards": "--seeds 1 --names exact",
    "llama_memory": "",
    "noisy": "--methods seqdec --seeds 1",
    "online_kills": "--kills 2",
    "ope_learning": "--seeds 1",
    "ope_sizes": "--rows 10000",
    "precision": "equality --steps 20",
    "published_gp": "--seeds 1",
    "published_mnist": "--steps 200 --seeds 1",
    "published_networks": "--steps 200 --seeds 1",
    "question_time": "--told 20 --surrogates gp",
    "questions": "--tasks branin --seeds 1 --calls 8",
    "recommender": "--steps 200 --seeds 1",
    "responses": "failures --seeds 1",
    "search_cv": "--candidates 4 --seeds 1",
    "several_objectives": "--problems gardner1 --seeds 1",
    "shares": "--decisions 10000",
    "spikes": "--out {out}/spikes.png",
    "step_times": "racs --steps 8",
    "streams": "--seeds 1 --steps 200",
    "table_2": "--steps 20 --turns 1",
    "trust_regions": "--budgets 5",
}


@pytest.mark.extended
@pytest.mark.parametrize("script", SMALL)
def test_a_script_runs_to_its_end(script, tmp_path):
    arguments = SMALL[script].format(out=tmp_path).split()
    command = [sys.executable, str(ROOT / "benchmarks" / f"{script}.py"), *arguments]
    found = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr[-2000:]
