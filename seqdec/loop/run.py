"""Agent meets environment: `run` checks what it is given, drives, and collects a `Run`."""

import contextlib
import operator
import os
import sys
from collections.abc import Sequence

import gymnasium
import jax
import numpy as np
import scipy.linalg  # noqa: F401  (loads the BLAS whose threads `run` limits)
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from seqdec.core import Agent, Environment
from seqdec.loop.device import on_device
from seqdec.loop.host import on_host
from seqdec.loop.record import Outcome
from seqdec.persistence import as_json, versions
from seqdec.results import COLUMNS, Run


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _make_devices() -> None:
    """Let JAX take each core for a device, so that `run` can spread seeds over them, unless the user says otherwise.

    Vectorising over seeds fills the cores only in large products; what is small or a factorisation uses one of them.
    A program that does not ask for a device runs on the first, with the threads of all, as it did before.
    """
    chosen = "host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if getattr(jax.config, "jax_num_cpu_devices", 0) < 0 and not chosen:
        with contextlib.suppress(RuntimeError):  # JAX is in use already, and keeps the devices it has
            jax.config.update("jax_num_cpu_devices", available_cores())


# On import, because devices are made with the first array.
_make_devices()


def run(
    agent: Agent,
    env: Environment | gymnasium.Env,
    num_steps: int,
    *,
    seed: int,
    num_seeds: int = 1,
    diagnostics: Sequence[str] = (),
    progress: bool | None = None,
) -> Run:
    """Let `agent` act in `env` for `num_steps` steps, once for each of `num_seeds` seeds from `seed` on.

    `diagnostics` names fields of the agent's update info to keep for every step; "observation" keeps what the agent
    saw, of which `Run.log` makes a log for off-policy evaluation. `progress` shows a bar on standard error; None means
    only on a terminal. Ctrl-C returns a Run of the chunks done by then, with `interrupted` set; on
    the host, of the seeds finished by then or, in the first seed, of the steps done. If nothing is done yet,
    KeyboardInterrupt goes through.

    A functional environment costs two compilations (start and chunk), and device memory does not grow with `num_steps`.
    Its seeds run side by side on all of JAX's devices of this process; those of one device in turns if the agent or the
    environment factorises matrices with `jnp.linalg` on a CPU (see `linalg.sequential_vmap`). Importing seqdec before
    JAX computes anything makes each core of a CPU a device, unless jax_num_cpu_devices or XLA_FLAGS says how many there
    shall be.
    The chunks are of equal length, so the last may run a few steps too many (under one in a hundred); those are thrown
    away. A gymnasium.Env is reset with seed + i and after each episode; its `info` may hold "action_mask" and "regret".

    Raises TypeError or ValueError for arguments of the wrong kind, an action that does not fit the action space, or an
    unknown name in `diagnostics`.
    """
    num_steps, num_seeds = _whole("num_steps", num_steps, 1), _whole("num_seeds", num_seeds, 1)
    seeds = _check_seed(seed, num_seeds)
    names = _check_diagnostics(diagnostics)
    if not isinstance(agent, Agent):
        raise TypeError(f"agent must be a seqdec.core.Agent, as seqdec.agents.make builds; got {type(agent).__name__}")
    if not isinstance(env, Environment | gymnasium.Env):
        raise TypeError(f"env must be a seqdec.core.Environment or a gymnasium.Env; got {type(env).__name__}")
    show = sys.stderr.isatty() if progress is None else progress
    total = num_steps if isinstance(env, Environment) else num_steps * num_seeds
    bar = tqdm(total=total, desc=agent.name, unit="step", disable=not show, dynamic_ncols=True)
    # XLA takes small factorisations from SciPy's threaded BLAS, whose idle threads spin against XLA's own on
    # few cores. They gain nothing from threads, and products do not pass through BLAS at all.
    with bar, threadpool_limits(1, user_api="blas"):
        if isinstance(env, Environment):
            outcome = on_device(agent, env, num_steps, seeds, names, bar.update)
        else:
            outcome = on_host(agent, env, num_steps, seeds, names, bar.update)
    return _collect(outcome, agent, env, num_steps, seeds)


def _whole(name: str, value: int, minimum: int) -> int:
    """`value` as an int not below `minimum`."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer; got {value!r}")
    if operator.index(value) < minimum:
        raise ValueError(f"{name} must be at least {minimum}; got {value}")
    return operator.index(value)


def _check_seed(seed: int, num_seeds: int) -> range:
    """The seeds of a run, all below 2**32."""
    first = _whole("seed", seed, 0)
    if first + num_seeds > 2**32:
        raise ValueError(f"seed + num_seeds must not exceed 2**32; got {first} + {num_seeds}")
    return range(first, first + num_seeds)


def _check_diagnostics(names: Sequence[str]) -> tuple[str, ...]:
    """`names` as a tuple of names that leave the columns of a run alone."""
    if isinstance(names, str):
        raise TypeError(f"diagnostics must be a sequence of names; got {names!r}: write ({names!r},)")
    for name in names:
        if name in COLUMNS:
            raise ValueError(f"diagnostics: {name!r} is the name of a column that every run has")
    return tuple(names)


def _collect(outcome: Outcome, agent: Agent, env: Environment | gymnasium.Env, num_steps: int, seeds: range) -> Run:
    """Cut the record to the steps asked for and add what a reader must know about them."""
    record = jax.tree.map(lambda leaf: leaf[:, :num_steps], outcome.record)
    num_done, steps = record.reward.shape
    known_steps, known_seconds = zip((0, 0.0), *outcome.clock, strict=True)
    return Run(
        agent=agent.name,
        env=env.name if isinstance(env, Environment) else env.spec.id if env.spec else type(env.unwrapped).__name__,
        seeds=tuple(seeds[:num_done]),
        actions=record.action,
        rewards=record.reward,
        regret=record.regret,
        propensities=record.propensity,
        diagnostics=record.diagnostics,
        rejected=record.rejected.sum(axis=1),
        elapsed=np.interp(np.arange(1, steps + 1), known_steps, known_seconds),
        compile_seconds=outcome.compile_seconds,
        interrupted=outcome.interrupted,
        exact_propensity=agent.exact_propensity,
        settings=as_json(dict(agent.settings)),
        versions=versions(),
    )
