"""What the digits experiment's tuned settings were chosen from, on seeds that the experiment does not report.

    python benchmarks/digits_tuning.py [AGENT ...]

Prints, for each agent and each setting of its grid, the mean reward and its standard error.
"""

import itertools
import sys

import seqdec
from seqdec.experiments.bandit import Digits


def grid(**values):
    """Every combination of the values, as keywords."""
    return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]


PRIORS = {"initial_std_hidden": (0.3, 1.0, 3.0), "initial_std_last": (0.03, 0.1, 0.3)}
SWEEPS = {
    "adamw": grid(learning_rate=(1e-4, 3e-4, 1e-3, 3e-3, 1e-2), inner_steps=(1, 5)),
    "hilofi": grid(process_noise=(1e-6, 1e-4, 1e-3, 1e-2), **PRIORS),
    "lolofi": grid(process_noise=(1e-4, 1e-3, 1e-2), process_noise_last=(1e-6, 1e-4), rank_last=(50,), **PRIORS),
    "lrkf": grid(process_noise=(1e-4, 1e-3, 1e-2, 1e-1), initial_std=(0.3, 1.0, 3.0)),
}

if __name__ == "__main__":
    env = seqdec.envs.make("digits")
    for name in sys.argv[1:] or SWEEPS:
        common = {"model": Digits.model} | ({} if name == "adamw" else {"rank": 20})
        for options in SWEEPS[name]:
            run = seqdec.run(seqdec.agents.make(name, env, **common, **options), env, 1500, seed=100, num_seeds=5)
            total = run.rewards.sum(1)
            print(f"{name:8} {options}: {total.mean():.1f} ± {total.std(ddof=1) / 5**0.5:.1f} of 1500", flush=True)
