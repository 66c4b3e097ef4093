"""The optimizer beside BoTorch's noisy expected improvement and TPE on Hartmann6 with noise.

    pip install botorch optuna
    python benchmarks/noisy.py [--noise normal] [--methods seqdec botorch tpe] [--seeds 40] [--calls 60]

The noise is normal with standard deviation 0.1, or there are outliers: 5 to 50 more with probability 0.08.

One line for each method: mean with the half-width of its 95% t-interval, median and largest of the true value of the
recommended point minus the minimum over the runs, and CPU seconds of a run. `seqdec` is `BayesianOptimizer` with its
defaults; `botorch` is `SingleTaskGP` and `qLogNoisyExpectedImprovement` with theirs, `optimize_acqf` with 8 restarts
and 256 raw samples, after six Sobol points, and recommends the evaluated point with the best posterior mean; `tpe` is
Optuna's, with its best point.
"""

import warnings
from collections.abc import Callable
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from harness import command, cpu, interval, table

from seqdec.bo import BayesianOptimizer
from seqdec.envs import objectives

FUNCTION, STD, CHANCE, OUTLIERS = objectives.hartmann6(), 0.1, 0.08, (5.0, 50.0)


def seqdec(observe: Callable[[Any], float], calls: int, seed: int) -> Any:
    """The recommended point."""
    optimizer = BayesianOptimizer([(low, high) for low, high in FUNCTION.bounds], seed=seed)
    for _ in range(calls):
        trial = optimizer.ask()
        optimizer.tell(trial, observe(trial.x))
    return optimizer.recommend().x


def botorch(observe: Callable[[Any], float], calls: int, seed: int) -> Any:
    """The recommended point."""
    import torch
    from botorch.acquisition.logei import qLogNoisyExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf
    from gpytorch.mlls import ExactMarginalLogLikelihood

    warnings.simplefilter("ignore")
    torch.manual_seed(seed)
    columns = len(FUNCTION.bounds)  # the function's box is the unit cube
    x = torch.quasirandom.SobolEngine(columns, scramble=True, seed=seed).draw(columns).double()
    y = torch.tensor([[-observe(row.numpy())] for row in x]).double()
    box = torch.stack([torch.zeros(columns), torch.ones(columns)]).double()

    def fitted() -> SingleTaskGP:
        model = SingleTaskGP(x, y)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        return model

    while len(x) < calls:
        acquisition = qLogNoisyExpectedImprovement(fitted(), x)
        point, _ = optimize_acqf(acquisition, box, q=1, num_restarts=8, raw_samples=256)
        x = torch.cat([x, point])
        y = torch.cat([y, torch.tensor([[-observe(point[0].numpy())]]).double()])
    return x[fitted().posterior(x).mean.argmax()].numpy()


def tpe(observe: Callable[[Any], float], calls: int, seed: int) -> Any:
    """The recommended point."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    names = [f"x{i}" for i in range(len(FUNCTION.bounds))]
    study.optimize(lambda trial: observe(np.array([trial.suggest_float(name, 0, 1) for name in names])), calls)
    return [study.best_params[name] for name in names]


def noise(kind: str, generator: np.random.Generator) -> float:
    """Of a call."""
    if kind == "normal":
        return STD * generator.standard_normal()
    return generator.uniform(*OUTLIERS) if generator.random() < CHANCE else 0.0


def main(
    noise_kind: Annotated[Literal["normal", "outliers"], tyro.conf.arg(name="noise")] = "normal",
    methods: tuple[Literal["seqdec", "botorch", "tpe"], ...] = ("seqdec", "botorch"),
    seeds: int = 40,
    calls: int = 60,
) -> None:
    """Print the table."""
    assert FUNCTION.minimum is not None
    row = table("method", "mean", "median", "largest", "CPU s of a run")
    for method in methods:
        regrets, spent = [], 0.0
        for seed in range(seeds):
            generator = np.random.default_rng(seed)

            def observe(x: Any, generator: np.random.Generator = generator) -> float:
                return float(FUNCTION(np.asarray(x))) + noise(noise_kind, generator)

            play = {"seqdec": seqdec, "botorch": botorch, "tpe": tpe}[method]
            x, seconds = cpu(lambda play=play, observe=observe, seed=seed: play(observe, calls, seed))
            spent += seconds
            regrets.append(float(FUNCTION(np.asarray(x))) - FUNCTION.minimum)
        found = f"{np.median(regrets):.3f}", f"{max(regrets):.2f}", f"{spent / seeds:.2f}"
        row(method, interval(regrets, ".3f"), *found)


if __name__ == "__main__":
    command(main)
