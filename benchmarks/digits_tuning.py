"""What the digits experiment's tuned settings were chosen from, on seeds that the experiment does not report.

python benchmarks/digits_tuning.py
"""

import seqdec

SWEEPS = {
    "adamw": [{"learning_rate": rate, "inner_steps": n} for n in (1, 5) for rate in (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)],
    "lrkf": [{"rank": 20, "process_noise": q} for q in (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)],
    "lolofi": [{"rank": 20, "process_noise": q} for q in (1e-5, 1e-4, 1e-3)],
    "hilofi": [{"rank": 20, "process_noise": q} for q in (1e-7, 1e-6, 1e-5, 1e-4)],
}

if __name__ == "__main__":
    env = seqdec.envs.make("digits")
    for name, settings in SWEEPS.items():
        for options in settings:
            run = seqdec.run(seqdec.agents.make(name, env, **options), env, 1500, seed=100, num_seeds=5)
            print(f"{name:8} {options}: {run.rewards.sum(1).mean():.1f} of 1500")
