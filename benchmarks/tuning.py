"""What the settings of the experiments were chosen from, on seeds that they do not report.

    python benchmarks/tuning.py digits [AGENT ...]
    SEQDEC_DATA=folder python benchmarks/tuning.py mnist [AGENT ...]

Prints, for each agent and each setting of its grid, the mean reward; for several seeds with its standard error. The
digits take some twenty minutes on two cores, MNIST about an hour.
"""

import itertools
import sys
from typing import Any

import seqdec
from seqdec.experiments.bandit import MNIST, Digits


def grid(**values: Any) -> list[dict[str, Any]]:
    """Every combination of the values, as keywords."""
    return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]


SWEEPS: dict[str, dict[str, list[dict[str, Any]]]] = {
    "digits": {
        "adamw": grid(learning_rate=(1e-4, 3e-4, 1e-3, 3e-3, 1e-2), inner_steps=(1, 5)),
        "koala++": grid(learning_rate=(0.1, 0.3, 1.0, 3.0, 10.0), inner_steps=(1, 5)),
        "hilofi": grid(
            process_noise=(1e-6, 1e-4, 1e-3), initial_std_hidden=(0.3, 1.0, 3.0), initial_std_last=(0.1, 0.3)
        ),
        "lolofi": grid(process_noise=(1e-4, 1e-3, 1e-2), initial_std_last=(0.1, 0.3, 1.0), rank_last=(50,)),
        "lrkf": grid(process_noise=(1e-3, 1e-2), initial_std=(1.0, 3.0), rank=(10, 20)),
    },
    "mnist": {
        "hilofi": grid(
            process_noise=(1e-4, 1e-3), initial_std_hidden=(1.0, 3.0), initial_std_last=(0.01, 0.1),
            process_noise_last=(0.0,),
        ),
        "lolofi": grid(process_noise=(1e-4, 3e-4, 1e-3), initial_std_last=(0.1, 1.0), policy=("epistemic_sampling",)),
        "lrkf": grid(process_noise=(1e-4, 3e-4, 1e-3), policy=("epistemic_sampling", "predictive_sampling")),
    },
}  # fmt: skip
RUNS: dict[str, dict[str, Any]] = {
    "digits": {"num_steps": 1500, "num_seeds": 5},
    "mnist": {"num_steps": 20_000, "num_seeds": 1},
}
COMMON = {"digits": {"model": Digits.model, "rank": Digits.rank}, "mnist": {"model": MNIST.model}}

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in SWEEPS:
        sys.exit(__doc__)
    task = sys.argv[1]
    env = seqdec.envs.make(task)
    for name in sys.argv[2:] or SWEEPS[task]:
        common = {
            key: value for key, value in COMMON[task].items() if name not in ("adamw", "koala++") or key != "rank"
        }
        for options in SWEEPS[task][name]:
            run = seqdec.run(seqdec.agents.make(name, env, **{**common, **options}), env, seed=100, **RUNS[task])
            total = run.rewards.sum(1)
            error = f" ± {total.std(ddof=1) / len(total) ** 0.5:.1f}" if len(total) > 1 else ""
            print(f"{name:8} {options}: {total.mean():,.1f}{error} of {RUNS[task]['num_steps']:,}", flush=True)
