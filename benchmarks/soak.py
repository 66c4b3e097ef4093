"""Agents as a service uses them, for a million steps in float32 with dirty inputs.

    python benchmarks/soak.py [--agents hilofi lrkf lolofi ekf linear] [--steps 1000000] [--dirty 0.01]

Eight numbers, five actions, rewards linear in the numbers with noise. In a share of the steps a number of the context
or the reward that is learned is NaN, infinite, or too large for its square. Every tenth of the run prints the memory of
the process, updates rejected so far, mean clean reward of that tenth, whether all of the state is finite, and the
smallest eigenvalue of a block of covariance over its largest. Exits with 1 if a state is not finite, an eigenvalue is
below -1e-5, or memory grows by more than 2% after the first tenth.
"""

import argparse
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from precision import definiteness

import seqdec
from seqdec.filters.covariance import Belief
from seqdec.runtime import one_blas_thread

BLOCK = 1000
"""Steps whose contexts are drawn together."""
ACTIONS, DIRT = 5, np.array([np.nan, np.inf, -np.inf, 1e30, -1e30], np.float32)


def memory() -> float:
    """Resident memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def soak(name: str, steps: int, share: float) -> bool:
    """One agent; returns whether it passed."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(ACTIONS, 8)).astype(np.float32) / 8**0.5
    agent = seqdec.compiled(seqdec.agents.make(name, seqdec.envs.linear(truth)), in_place=True)
    state, base, part = agent.init(jax.random.key(0)), jax.random.key(1), steps // (10 * BLOCK) * BLOCK
    finite = jax.jit(lambda tree: jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]).all())
    fold = jax.jit(jax.random.fold_in)
    rejected, sizes, passed, began = 0, [], True, time.perf_counter()
    for tenth in range(10):
        earned, clean = 0.0, 0
        for first in range(tenth * part, (tenth + 1) * part, BLOCK):
            contexts = rng.normal(size=(BLOCK, 8)).astype(np.float32)
            noise = 0.1 * rng.normal(size=BLOCK).astype(np.float32)
            dirty = rng.uniform(size=BLOCK) < share
            place, value = rng.integers(9, size=BLOCK), rng.choice(DIRT, size=BLOCK)
            infos = []
            for i in range(BLOCK):
                context = contexts[i]
                if dirty[i] and place[i] < 8:
                    context = context.copy()
                    context[place[i]] = value[i]
                action = agent.act(fold(base, np.uint32(first + i)), state, contexts[i]).value
                reward = truth[int(action)] @ contexts[i] + noise[i]
                earned += 0.0 if dirty[i] else float(reward)
                state, info = agent.update(state, context, action, value[i] if dirty[i] and place[i] == 8 else reward)
                infos.append(info.rejected)
            rejected, clean = rejected + int(np.sum(jax.device_get(infos))), clean + int(np.sum(~dirty))
        sizes.append(memory())
        ratio = float(jnp.min(definiteness(state))) if isinstance(state, Belief) else np.nan
        good = bool(finite(state)) and not ratio < -1e-5
        passed &= good
        print(
            f"{name:8} {(tenth + 1) * part:9,} steps: {sizes[-1]:6.0f} MB, {rejected:6,} rejected, "
            f"reward {earned / clean:.3f}, {'finite' if good else 'NOT FINITE'}, "
            f"eigenvalue {ratio:.1e}, {time.perf_counter() - began:.0f} s",
            flush=True,
        )
    return passed and sizes[-1] <= 1.02 * sizes[0]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--agents", nargs="*", default=["hilofi", "lrkf", "lolofi", "ekf", "linear"])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--dirty", type=float, default=0.01)
    asked = parser.parse_args()
    with one_blas_thread():
        results = {name: soak(name, asked.steps, asked.dirty) for name in asked.agents}
    print(results)
    sys.exit(not all(results.values()))
