"""Grids from which the settings of `seqdec run tabular` were chosen, on seeds that it does not report.

    SEQDEC_DATA=folder python benchmarks/tabular.py [TABLE ...]

For each table and agent: cumulative regret in percent of uniform play's, mean over two seeds of 6,000 steps, one pass
on adult, for every setting of a grid. The settings of a grid run in one batch, so that each agent is compiled once.
"""

import itertools
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

from reproduction import tabular
from seqdec import envs, models
from seqdec.runtime import use_all_cores

STEPS, SEEDS = {"adult": 50_000}, (100, 101)
"""Steps where they are not 6,000, at most one pass. The settings that learn fastest on adult do not end best."""
_RATES = {"learning_rate": (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)}
_NEURAL = {"neural-epsilon-greedy": _RATES, "neural-greedy": _RATES}
GRIDS: dict[str, dict[str, dict[str, tuple[float, ...]]]] = {
    "statlog": {
        "hilofi": {
            "noise_variance": (1e-3, 1e-2),
            "initial_std_last": (0.1, 0.3),
            "process_noise_hidden": (1e-6, 1e-5),
        },
        "linear": {"noise": (1e-3, 1e-2), "initial_std": (0.03, 0.1, 0.3, 1.0)},
        **_NEURAL,
    },
    "mushroom": {
        "hilofi": {"noise_variance": (1.0, 10.0), "initial_std_last": (0.1, 0.3), "process_noise_hidden": (1e-4, 1e-3)},
        "linear": {"noise": (1.0, 10.0), "initial_std": (0.1, 0.3, 1.0, 3.0)},
        **_NEURAL,
    },
    "financial": {
        "hilofi": {
            "noise_variance": (1e-3, 1e-2),
            "initial_std_last": (0.1, 0.2),
            "process_noise_hidden": (1e-4, 1e-3),
        },
        "linear": {"noise": (1e-4, 1e-3), "initial_std": (0.1, 0.3, 1.0, 3.0)},
        **_NEURAL,
    },
    "adult": {
        "hilofi": {
            "noise_variance": (6e-3, 1e-2, 2e-2),
            "initial_std_last": (0.007,),
            "process_noise_hidden": (1e-6,),
            "process_noise_last": (0,),
        },
        "linear": {"noise": (0.01, 0.03, 0.1), "initial_std": (0.005, 0.01, 0.02)},
        **_NEURAL,
    },
}


def sweep(table: str, name: str, grid: dict[str, tuple[float, ...]]) -> tuple[np.ndarray, np.ndarray]:
    """Settings (s, names) and regret in percent of uniform (s, seeds)."""
    env = envs.make(table)
    # Built outside the compiled function, inside of which a network's last layer cannot be determined.
    model = {"model": models.network(tabular.module(env), jnp.zeros(env.observation_space.shape))}
    # Settings that are not varied stay Python numbers: process noise that is known to be zero is skipped.
    fixed = {name: values[0] for name, values in grid.items() if len(values) == 1}
    grid = {name: values for name, values in grid.items() if name not in fixed}
    settings = np.array(list(itertools.product(*grid.values())), np.float32)
    steps = min(STEPS.get(table, 6000), len(env.params.features))

    def play(params, seed, agent):
        env_key, agent_key = jax.random.split(jax.random.key(seed))
        state, observation = env.reset(env_key, params)

        def step(carry, t):
            state, observation, belief = carry
            action = agent.act(jax.random.fold_in(agent_key, t), belief, observation)
            state, timestep = env.step(jax.random.fold_in(env_key, t), state, action.value, params)
            belief, _ = agent.update(belief, observation, action.value, timestep.reward)
            return (state, timestep.observation, belief), timestep.regret

        start = (state, observation, agent.init(agent_key))
        return jnp.sum(jax.lax.scan(step, start, jnp.arange(steps))[1])

    def tuned(params, setting, seed):
        options = dict(zip(grid, setting, strict=True)) | fixed
        if "process_noise_hidden" in options:
            options = {"process_noise_last": options["process_noise_hidden"], **options}
        return play(params, seed, tabular.agent(name, env, **({} if name == "linear" else model), **options))

    def even(params, seed):
        return play(params, seed, tabular.uniform(env))

    seeds = jnp.asarray(SEEDS)
    over_settings = jax.vmap(jax.vmap(tuned, (None, None, 0)), (None, 0, None))
    regret = jax.jit(over_settings)(env.params, settings, seeds)
    return settings, 100 * np.asarray(regret) / np.asarray(jax.jit(jax.vmap(even, (None, 0)))(env.params, seeds))


if __name__ == "__main__":
    use_all_cores()
    for table in sys.argv[1:] or GRIDS:
        for name, grid in GRIDS[table].items():
            began = time.perf_counter()
            settings, regret = sweep(table, name, grid)
            varied = [key for key, values in grid.items() if len(values) > 1]
            print(f"{table} {name} ({time.perf_counter() - began:.0f} s)")
            for i in np.argsort(regret.mean(1)):
                chosen = ", ".join(f"{key}={value:g}" for key, value in zip(varied, settings[i], strict=True))
                print(f"    {chosen}: {regret[i].mean():.2f}  {regret[i].astype(float).round(2).tolist()}", flush=True)
