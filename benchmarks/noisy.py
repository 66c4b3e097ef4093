"""The optimizer beside BoTorch's noisy expected improvement on Hartmann6 with noise of standard deviation 0.1.

    pip install botorch
    python benchmarks/noisy.py [--methods seqdec botorch] [--runs 40] [--calls 60]

One line for each method: mean with the half-width of its 95% t-interval, median and largest of the true value of the
recommended point minus the minimum over the runs, and CPU seconds of a run. `seqdec` is `BayesianOptimizer` with its
defaults; `botorch` is `SingleTaskGP` and `qLogNoisyExpectedImprovement` with theirs, `optimize_acqf` with 8 restarts
and 256 raw samples, after six Sobol points, and recommends the evaluated point with the best posterior mean.
"""

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import tyro

from seqdec.bo import BayesianOptimizer
from seqdec.envs import objectives
from seqdec.statistics import mean_and_margin

FUNCTION, NOISE = objectives.hartmann6(), 0.1


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


def main(methods: tuple[str, ...] = ("seqdec", "botorch"), runs: int = 40, calls: int = 60) -> None:
    """The table, one line as soon as it is measured."""
    assert FUNCTION.minimum is not None
    print(f"{'':8} {'mean':>7} {'±':>6} {'median':>7} {'largest':>8} {'s':>6}", flush=True)
    for method in methods:
        regrets, began = [], time.process_time()
        for seed in range(runs):
            generator = np.random.default_rng(seed)

            def observe(x: Any, generator: np.random.Generator = generator) -> float:
                return float(FUNCTION(np.asarray(x))) + NOISE * generator.standard_normal()

            x = {"seqdec": seqdec, "botorch": botorch}[method](observe, calls, seed)
            regrets.append(float(FUNCTION(np.asarray(x))) - FUNCTION.minimum)
        mean, margin = mean_and_margin(np.array(regrets))
        seconds = (time.process_time() - began) / runs
        median = float(np.median(regrets))
        print(f"{method:8} {mean:7.3f} {margin:6.3f} {median:7.3f} {max(regrets):8.2f} {seconds:6.2f}", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
