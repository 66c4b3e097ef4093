"""Errors and interval coverage of off-policy estimates over twelve kinds of synthetic logs, whose true value is known.

    python benchmarks/coverage.py --logs 500 [--kinds rare small] [--picture coverage.png]

Rewards are 0 or 1 with a logistic mean unless the kind says otherwise; the target plays the action with the highest
score with probability 0.9. Each log has 1,000 rows, 10 actions and 5 features.
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from harness import command
from sklearn.linear_model import LogisticRegression, Ridge

from seqdec import ope

ESTIMATORS = [
    ope.IPS(),
    ope.SNIPS(),
    ope.DM(),
    ope.DR(),
    ope.SNDR(),
    ope.DR(shrinkage="bound"),
    ope.DR(shrinkage="slope"),
    ope.SubGaussianDR(),
    ope.SwitchDR(),
    ope.Auto(),
]
FEATURES = 5
WORLD = np.random.default_rng(99)
SCORES = {k: (WORLD.normal(size=(k, FEATURES)), WORLD.normal(size=k)) for k in (10, 100)}


class Kind(NamedTuple):
    """A kind of log."""

    actions: int = 10
    rows: int = 1000
    logging: Callable[[np.ndarray, np.ndarray], np.ndarray] = lambda x, z: softmax(0.5 * z)
    mean: Callable[[np.ndarray, np.ndarray], np.ndarray] = lambda x, z: sigmoid(0.7 * z)
    noise: Callable[[Any, int], np.ndarray] | None = None
    """Of rewards that are not 0 or 1"""
    greedy: float = 0.9


def softmax(z: np.ndarray) -> np.ndarray:
    """Probabilities (n, k) of logits."""
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def sigmoid(z: np.ndarray) -> np.ndarray:
    """Probabilities of logits."""
    return 1 / (1 + np.exp(-z))


def uniform(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """The policy (n, k) that plays all actions alike."""
    return np.full(z.shape, 1 / z.shape[1])


def best(z: np.ndarray) -> np.ndarray:
    """The policy (n, k) that plays the action with the largest score."""
    return np.eye(z.shape[1])[z.argmax(axis=1)]


def deficient(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Uniform, but for three actions that are never played in some contexts."""
    p = np.ones(z.shape)
    p[x[:, 0] > 1, 0] = 0
    p[x[:, 1] > 1, 1:3] = 0
    return p / p.sum(axis=1, keepdims=True)


def wavy(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """A mean that no linear model predicts."""
    return sigmoid(2 * np.sin(2 * x[:, :1] + np.arange(z.shape[1])) * np.sign(x[:, 1:2]) + SCORES[10][1])


KINDS = {
    "uniform": Kind(logging=uniform),
    "small": Kind(rows=100),
    "near-deterministic": Kind(logging=lambda x, z: 0.98 * best(-z) + 0.02 / z.shape[1]),
    "rare": Kind(logging=uniform, mean=lambda x, z: 0.02 * sigmoid(0.7 * z)),
    "misspecified": Kind(logging=uniform, mean=wavy),
    "deficient": Kind(logging=deficient),
    "100 actions": Kind(actions=100, logging=uniform),
    "softmax": Kind(),
    "gaussian": Kind(mean=lambda x, z: 0.7 * z, noise=lambda rng, n: rng.normal(size=n)),
    "heavy tails": Kind(logging=uniform, mean=lambda x, z: 0.7 * z, noise=lambda rng, n: rng.standard_t(3, size=n)),
    "deterministic target": Kind(greedy=1.0),
    "adverse": Kind(logging=lambda x, z: softmax(-0.7 * z)),
}


def draw(kind: Kind, seed: int) -> tuple[ope.Log, np.ndarray, np.ndarray]:
    """A log, the target's probabilities and predicted rewards."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(kind.rows, FEATURES))
    z = score(kind, x)
    p, rows = kind.logging(x, z), np.arange(kind.rows)
    action = (rng.random((kind.rows, 1)) > p.cumsum(axis=1)).sum(axis=1).clip(max=kind.actions - 1)
    mean = kind.mean(x, z)[rows, action]
    reward = (rng.random(kind.rows) < mean) * 1.0 if kind.noise is None else mean + kind.noise(rng, kind.rows)
    log = ope.make_log(action=action, reward=reward, propensity=p[rows, action], context=x, num_actions=kind.actions)
    model = LogisticRegression(max_iter=300) if kind.noise is None else Ridge()
    return log, target(kind, z), ope.predict_rewards(log, seed=seed, model=model, folds=3)


def score(kind: Kind, x: np.ndarray) -> np.ndarray:
    """Scores (n, k) of actions at contexts."""
    slopes, levels = SCORES[kind.actions]
    return x @ slopes.T + levels


def target(kind: Kind, z: np.ndarray) -> np.ndarray:
    """The policy (n, k) to be evaluated."""
    return kind.greedy * best(z) + (1 - kind.greedy) / kind.actions


def truth(kind: Kind) -> float:
    """The target's value, over many contexts."""
    x = np.random.default_rng(12345).normal(size=(2_000_000 // kind.actions, FEATURES))
    z = score(kind, x)
    return float((target(kind, z) * kind.mean(x, z)).sum(axis=1).mean())


def measure(kind: Kind, logs: int, samples: int) -> pd.DataFrame:
    """Bias, error, coverage and width of each estimator."""
    value, found = truth(kind), []
    for seed in range(logs):
        log, chances, predicted = draw(kind, seed)
        given = {"seed": seed, "samples": samples, "estimators": ESTIMATORS}
        table = ope.evaluate(log, chances, predicted, **given)
        hit = (table["low"] <= value) & (table["high"] >= value)
        found.append(
            pd.DataFrame(
                {
                    "bias": table["value"] - value,
                    "rmse": (table["value"] - value) ** 2,
                    "coverage": hit * 1.0,
                    "width": table["high"] - table["low"],
                }
            )
        )
    mean = sum(found[1:], found[0]) / logs
    return mean.assign(rmse=np.sqrt(mean["rmse"]))


def draw_picture(tables: dict[str, pd.DataFrame], path: str) -> None:
    """Coverage of each kind, one mark for each estimator."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5), dpi=140, layout="constrained")
    axis = figure.subplots()
    names = list(tables)
    for place, name in enumerate(ESTIMATORS):
        ups = np.arange(len(names)) + (place - 4.5) * 0.07
        axis.plot([tables[kind].loc[name.name, "coverage"] for kind in names], ups, "o", ms=4, label=name.name)
    axis.axvline(0.95, color="0.35", lw=1)
    axis.set_yticks(range(len(names)), names)
    axis.set_xlabel("coverage of 95% intervals")
    figure.legend(loc="outside right upper", frameon=False)
    figure.savefig(path)


def main(
    logs: int = 500, samples: int = 500, kinds: tuple[str, ...] = tuple(KINDS), picture: str | None = None
) -> None:
    """Print the tables."""
    warnings.simplefilter("ignore", UserWarning)  # of logs without support
    tables = {}
    for name in kinds:
        tables[name] = measure(KINDS[name], logs, samples)
        print(f"\n{name}: true value {truth(KINDS[name]):.4f}\n{tables[name].round(4).to_string()}", flush=True)
    errors = pd.DataFrame({name: table["rmse"] / table["rmse"].min() for name, table in tables.items()})
    print("\nroot mean square error by that of the best estimator of the kind")
    print(errors.assign(mean=errors.mean(axis=1)).round(2).T.to_string())
    print("\ncoverage")
    print(pd.DataFrame({name: table["coverage"] for name, table in tables.items()}).round(3).T.to_string())
    if picture:
        draw_picture(tables, picture)


if __name__ == "__main__":
    command(main)
