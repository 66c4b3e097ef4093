"""The questions of twenty searches as digests, and the calls of a question between files.

    python benchmarks/questions.py             # 30 questions on each of 20 spaces, one line each
    python benchmarks/questions.py --calls     # calls from one file of seqdec to another in a warm question

Equal lines before and after a change of the code mean that it asks the same points and predicts the same values, to the
last bit, on one machine and with one version of JAX.
"""

import argparse
import hashlib
import math
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import seqdec
from seqdec.bo import BayesianOptimizer, Categorical, Conditional, Integer, Linear, Ordinal, Real, Search

QUICK = Search(raw_samples=128, num_restarts=4, steps=15)
BOX = [(-5.0, 10.0), (0.0, 15.0)]
MIXED = {
    "rate": Real(1e-4, 1.0, log=True),
    "layers": Integer(1, 5),
    "width": Ordinal((16, 32, 64, 128)),
    "activation": Categorical(("relu", "tanh", "gelu")),
}
TREE = {
    "kind": Categorical(("linear", "forest")),
    "penalty": Conditional(Real(1e-3, 10.0, log=True), "kind", ("linear",)),
    "trees": Conditional(Integer(10, 200), "kind", ("forest",)),
    "depth": Conditional(Integer(1, 12), "kind", ("forest",)),
}
CASES: dict[str, dict[str, Any]] = {
    "line": {"bounds": [(0.0, 1.0)]},
    "box": {"bounds": BOX},
    "six columns": {"bounds": [(0.0, 1.0)] * 6},
    "25 columns, trust region": {"bounds": [(-1.0, 1.0)] * 25},
    "mixed": {"bounds": MIXED},
    "conditional": {"bounds": TREE},
    "linear constraint": {"bounds": BOX, "constraints": [Linear({0: 1.0, 1: 1.0}, high=9.0)]},
    "function as constraint": {"bounds": MIXED, "constraints": [lambda x: x["rate"] * x["layers"] < 1]},
    "integers": {"bounds": [Integer(-3, 3), Integer(0, 9, log=False)]},
    "finite, noisy": {"bounds": [Integer(0, 4), Categorical(("a", "b"))], "noise_std": 0.3},
    "two objectives": {"bounds": BOX, "objectives": 2, "maximize": [False, True]},
    "three objectives, outcome": {"bounds": BOX, "objectives": 3, "outcome_constraints": 1, "search": QUICK},
    "outcomes": {"bounds": BOX, "outcome_constraints": 2},
    "failures": {"bounds": BOX},
    "pending": {"bounds": BOX, "initial": 4},
    "maximum": {"bounds": BOX, "maximize": True},
    "sparse_gp, ucb": {"bounds": BOX, "surrogate": "sparse_gp", "acquisition": "ucb", "standardize": False},
    "hilofi, thompson": {"bounds": MIXED, "surrogate": "hilofi", "acquisition": "thompson", "search": QUICK},
    "lrkf": {"bounds": BOX, "surrogate": "lrkf", "search": QUICK},
    "grid": {"bounds": BOX, "search": Search(grid=True, repeats=True), "warp": False},
}


def value(name: str, x: Any, number: int) -> tuple[Any, Any]:
    """(value, outcomes) of the function of a case at a point."""
    numbers = [v if isinstance(v, int | float) else 3.0 * len(v) for v in (x.values() if isinstance(x, dict) else x)]
    z = np.array(numbers, float)
    height = float(np.sum((np.log1p(np.abs(z)) - 1) ** 2) + np.cos(3 * z).sum())
    if "noisy" in name:
        height += 0.3 * math.sin(1e3 * number)
    if name == "failures" and z.sum() > 9:
        return math.nan, None
    if name.endswith("objectives, outcome"):
        return (height, -float(z[0]), float(np.sin(z).sum())), [float(z[0] - z[1])]
    if "objectives" in name:
        return (height, -float(z[0])), None
    return height, [float(z[0] - 3), float(z[1] - 12)] if name == "outcomes" else None


def digest(name: str, questions: int) -> str:
    """Of the points, three predictions and the recommendation."""
    optimizer = BayesianOptimizer(seed=3, **CASES[name])
    found, waiting = hashlib.sha256(), []
    for number in range(questions):
        trial = optimizer.ask()
        found.update(repr([float(v) if isinstance(v, float) else v for v in _flat(trial.x)]).encode())
        waiting.append(trial)
        if name != "pending" or len(waiting) == 3:
            for one in reversed(waiting):  # in another order than asked
                told, outcomes = value(name, one.x, one.number)
                optimizer.tell(one, told, outcomes=outcomes)
            waiting = []
        if number in (10, 20, 29) and number > optimizer.initial:
            found.update(repr(np.ravel(optimizer.predict(trial.x)).tolist()).encode())
    if optimizer.outputs.objectives == 1 and optimizer.is_feasible:
        found.update(repr(optimizer.recommend()[1:4]).encode())
    return found.hexdigest()[:16]


def _flat(x: Any) -> list[Any]:
    return [*x.items()] if isinstance(x, dict) else np.asarray(x, object).tolist()


def calls() -> Counter[str]:
    """Calls from one file of seqdec to another, during a question after eight values."""
    optimizer, root = BayesianOptimizer(BOX, seed=0), str(Path(seqdec.__file__).parent)
    for _ in range(8):
        trial = optimizer.ask()
        optimizer.tell(trial, value("box", trial.x, 0)[0])
    found: Counter[str] = Counter()

    def profile(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_back is not None:
            here, there = frame.f_code.co_filename, frame.f_back.f_code.co_filename
            if here != there and here.startswith(root) and there.startswith(root):
                found[f"{Path(there).relative_to(root)} -> {Path(here).relative_to(root)}"] += 1

    sys.setprofile(profile)
    optimizer.ask()
    sys.setprofile(None)
    return found


def main() -> None:
    """Print digests or calls."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", action="store_true", help="count calls between files instead")
    parser.add_argument("--questions", type=int, default=30, help="of each search")
    options = parser.parse_args()
    if options.calls:
        found = calls()
        for pair, count in found.most_common():
            print(f"{count:5d}  {pair}")
        files = {file for pair in found for file in pair.split(" -> ")}
        print(f"{sum(found.values())} calls between {len(files)} files")
        return
    for name in CASES:
        print(f"{digest(name, options.questions)}  {name}", flush=True)


if __name__ == "__main__":
    main()
