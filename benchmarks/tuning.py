"""Grids from which the settings of the experiments were chosen, on seeds that they do not report.

    python benchmarks/tuning.py digits [AGENT ...]
    python benchmarks/tuning.py kuairec [AGENT ...]
    SEQDEC_DATA=folder python benchmarks/tuning.py random-exposures [AGENT ...]
    SEQDEC_DATA=folder python benchmarks/tuning.py mnist [AGENT ...]
    SEQDEC_DATA=folder python benchmarks/tuning.py cifar [AGENT ...]

Prints the mean reward of each agent and setting of its grid, for several seeds with its standard error. Settings that a
grid does not name are those of the experiment. The recommender logs are a synthetic one with another seed than the
experiment's and the real one in shuffled order; rewards are sums of watch ratios. The images of CIFAR-10 are in random
order too; rewards are right guesses.

Digits and CIFAR-10 take about twenty minutes on two cores, MNIST an hour, the recommender logs more.
"""

import itertools
import sys
from collections.abc import Callable
from typing import Any

import seqdec
from reproduction import kuairec
from reproduction.cifar import CIFAR
from reproduction.images import MNIST
from reproduction.kuairec import KuaiRec
from seqdec.commands.digits import Digits
from seqdec.core import Agent, Environment
from seqdec.data import load_random_exposures, synthetic_kuairec


def grid(**values: Any) -> list[dict[str, Any]]:
    """Every combination of the values, as keywords."""
    return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]


SWEEPS: dict[str, dict[str, list[dict[str, Any]]]] = {
    "digits": {
        "adamw": grid(learning_rate=(1e-4, 3e-4, 1e-3, 3e-3, 1e-2), inner_steps=(1, 5)),
        "koala++": grid(learning_rate=(0.1, 0.3, 1.0, 3.0, 10.0), inner_steps=(1, 5)),
        "hilofi": [
            {"rank": Digits.rank, "process_noise_last": setting["process_noise_hidden"], **setting}
            for setting in grid(
                process_noise_hidden=(1e-6, 1e-4, 1e-3), initial_std_hidden=(0.3, 1.0, 3.0), initial_std_last=(0.1, 0.3)
            )
        ],
        "lolofi": grid(
            process_noise_hidden=(1e-4, 1e-3, 1e-2), initial_std_last=(0.1, 0.3, 1.0), rank_hidden=(Digits.rank,),
            rank_last=(50,),
        ),
        "lrkf": grid(process_noise=(1e-3, 1e-2), initial_std=(1.0, 3.0), rank=(10, 20)),
    },
    "mnist": {
        "hilofi": grid(
            process_noise_hidden=(1e-4, 1e-3), initial_std_hidden=(1.0, 3.0), initial_std_last=(0.01, 0.1),
            process_noise_last=(0.0,),
        ),
        "lolofi": grid(
            process_noise_hidden=(1e-4, 3e-4, 1e-3), initial_std_last=(0.1, 1.0), policy=("epistemic_sampling",)
        ),
        "lrkf": grid(process_noise=(1e-4, 3e-4, 1e-3), policy=("epistemic_sampling", "predictive_sampling")),
    },
    "cifar": {
        "adamw": grid(learning_rate=(1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3)),
        "lrkf:1": [
            *grid(likelihood=(seqdec.likelihoods.categorical(),), initial_std=(0.1,), process_noise=(1e-3, 1e-2, 1e-1)),
            *grid(likelihood=(None,), noise_variance=(0.01, 0.1), initial_std=(0.1,), process_noise=(3e-4, 1e-3)),
        ],
    },
}  # fmt: skip
TABLES = tuple(
    {"user": (user, *3 * [rest]), "video": (video, *3 * [rest])}
    for user, video, rest in itertools.product((0.1, 0.2), (0.12, 0.2), (0.2, 0.3))
)
for task in ("kuairec", "random-exposures"):
    SWEEPS[task] = {
        "hilofi": grid(
            policy=("greedy", "ucb", "epistemic_sampling"), noise_variance=(0.05, 0.065, 0.08), initial_std_last=(0.1,),
            initial_std_table=TABLES,
        ),
        "lrkf": grid(initial_std=(0.1, 0.3, 1.0)),
        "adamw": grid(learning_rate=(3e-4, 1e-3, 3e-3, 1e-2), policy=("greedy", "epsilon_greedy")),
        "linear": grid(
            policy=("greedy", "ucb", "epistemic_sampling"), noise_variance=(0.03, 0.05), initial_std=(0.1, 1.0),
            initial_std_table=(0.05, 0.1, 0.2),
        ),
        "popularity": grid(prior_plays=(1.0, 3.0, 10.0), policy=("greedy", "epsilon_greedy")),
    }  # fmt: skip
RUNS: dict[str, dict[str, Any]] = {
    "cifar": {"num_steps": 500, "num_seeds": 1},
    "digits": {"num_steps": 1500, "num_seeds": 5},
    "kuairec": {"num_steps": 16_000, "num_seeds": 1},
    "mnist": {"num_steps": 20_000, "num_seeds": 1},
    "random-exposures": {"num_steps": 12_699, "num_seeds": 1},
}
MODELS = {"digits": Digits.model, "mnist": MNIST.model}


def setting(task: str) -> tuple[Environment, Callable[..., Agent]]:
    """The environment of a task, and (name, **settings) -> agent."""
    if task == "cifar":
        data = CIFAR().environment().params
        env = seqdec.envs.classification(data.images, data.labels, full_information=True)
        return env, lambda name, **settings: CIFAR().agent(name, env, **settings)
    if task in MODELS:
        env = seqdec.envs.make(task)
        return env, lambda name, **settings: seqdec.agents.make(name, env, model=MODELS[task], **settings)
    asked = KuaiRec(exposures=task == "random-exposures")
    log = load_random_exposures() if asked.exposures else synthetic_kuairec(seed=7)
    env = seqdec.envs.recommender_log(log, order="shuffled" if asked.exposures else "chronological")
    return env, lambda name, **settings: asked.agent(name, env, **settings)


if __name__ == "__main__":
    seqdec.use_all_cores()
    if len(sys.argv) < 2 or sys.argv[1] not in SWEEPS:
        sys.exit(__doc__)
    task = sys.argv[1]
    env, make = setting(task)
    for name in sys.argv[2:] or SWEEPS[task]:
        for options in SWEEPS[task][name]:
            run = seqdec.run(make(name, **options), env, seed=100, **RUNS[task])
            run = kuairec.in_watch_ratios(run) if task in ("kuairec", "random-exposures") else run
            total = run.rewards.sum(1)
            error = f" ± {total.std(ddof=1) / len(total) ** 0.5:.1f}" if len(total) > 1 else ""
            print(f"{name:8} {options}: {total.mean():,.1f}{error} of {RUNS[task]['num_steps']:,}", flush=True)
