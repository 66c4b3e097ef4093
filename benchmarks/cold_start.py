"""CPU seconds from the import of seqdec to an agent's first decision and its first learned reward, nothing cached.

    python benchmarks/cold_start.py [--env digits] [--agent hilofi] [--unoptimized] [--cache DIR]

Prints the CPU time (all threads) of each stage. With --cache, the second call shows a start with the programs compiled.
"""

import time
from pathlib import Path

began = time.process_time()

import seqdec  # noqa: E402  (timed)

imported = time.process_time()

import jax  # noqa: E402
import numpy as np  # noqa: E402
import tyro  # noqa: E402


def main(env: str = "digits", agent: str = "hilofi", unoptimized: bool = False, cache: Path | None = None) -> None:
    """CPU seconds of the stages of a service's first request."""
    if cache is not None:
        seqdec.compilation_cache(cache)
    stages = {"import seqdec": imported - began}

    def timed(stage, function, *arguments):
        start = time.process_time()
        done = jax.block_until_ready(function(*arguments))
        stages[stage] = time.process_time() - start
        return done

    world = timed("environment", seqdec.envs.make, env)
    learner = timed("agent", lambda: seqdec.compiled(seqdec.agents.make(agent, world), optimize=not unoptimized))
    key, observation = jax.random.key(0), np.full(world.observation_space.shape, 0.1, np.float32)
    state = timed("init", learner.init, key)
    action = timed("first decision", learner.act, key, state, observation)
    timed("first update", learner.update, state, observation, action.value, 1.0)
    timed("second decision", learner.act, key, state, observation)
    for stage, seconds in {**stages, "all": sum(stages.values())}.items():
        print(f"{stage:16} {seconds:6.2f} s")


if __name__ == "__main__":
    tyro.cli(main)
