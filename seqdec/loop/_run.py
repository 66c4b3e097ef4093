"""`run`: an agent in an environment."""

import functools
import os
from collections.abc import Sequence
from typing import Any

import gymnasium
import jax
import numpy as np

from seqdec.boundary import checks
from seqdec.boundary.checks import count
from seqdec.boundary.spaces import check_environment
from seqdec.core import Agent, Environment
from seqdec.loop.checkpoint import Checkpoint
from seqdec.loop.device import mesh_for, on_device
from seqdec.loop.host import on_host
from seqdec.loop.record import Outcome, RunState
from seqdec.persistence import as_json, check_arrays_name, located, locked_file, remove, versions
from seqdec.results import COLUMNS, Run
from seqdec.runtime import check_process, is_traced, one_blas_thread


def run(
    agent: Agent,
    env: Environment | gymnasium.Env,
    num_steps: int,
    *,
    seed: int,
    num_seeds: int = 1,
    diagnostics: Sequence[str] = (),
    progress: bool | None = None,
    state: RunState | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 1000,
) -> Run:
    """Let `agent` act in `env` for `num_steps` steps, once for each of `num_seeds` seeds from `seed` on.

    In a functional environment a run is two compiled programs, kept for equal runs, with memory constant in
    `num_steps`. Seeds are spread over JAX's devices (`seqdec.use_all_cores` makes more), and run side by side on each,
    or in turns if matrices are factorized on a CPU. A gymnasium.Env is reset with seed + i and after each episode; its
    `info` may contain "action_mask", "regret", and "unknown_reward" if the reward is unknown.

    Ctrl-C returns a Run of the chunks done, with `interrupted` set; on the host, of the seeds finished or, in the first
    seed, of the steps done; KeyboardInterrupt if there are none.

    Args:
        agent: as `seqdec.agents.make` builds.
        env: a functional environment, or a gymnasium.Env.
        num_steps: steps of each seed.
        seed: the first seed.
        num_seeds: number of seeds, seed, seed + 1, ...
        diagnostics: fields of the agent's update info to keep for every step; "observation" keeps the observations, for
            `Run.log`, and "probabilities" those of all actions, if the agent computes them.
        progress: whether to show a bar on standard error; None: a bar on a terminal, elsewhere a line now and then.
        state: `Run.state` of an earlier run of this agent and environment with these seeds, continued identically.
        checkpoint: file of a run in progress, locked by it; continued identically if it exists, deleted at the end.
        checkpoint_every: steps between checkpoints, rounded up to chunks (a hundredth of the run, at most 1,000).

    Only a functional environment takes `state` or `checkpoint`. Environments of Gymnasium's registry whose episodes
    have several steps get a UserWarning: every step is learned as one of a bandit.

    Raises TypeError or ValueError for arguments of the wrong kind, an action that does not fit the action space, an
    unknown name in `diagnostics`, an agent built for other spaces, a state or a checkpoint of another run; OSError for
    a checkpoint that cannot be written, FileExistsError for one that another run uses.
    """
    from seqdec.progress import advance, bar, compiling

    check_process()
    num_steps, num_seeds = count("num_steps", num_steps), count("num_seeds", num_seeds)
    seeds = checks.seeds(seed, num_seeds)
    names = _check_diagnostics(diagnostics)
    if not isinstance(agent, Agent):
        raise TypeError(f"agent must be a seqdec.core.Agent, as seqdec.agents.make builds; got {type(agent).__name__}")
    if not isinstance(env, Environment | gymnasium.Env):
        raise TypeError(f"env must be a seqdec.core.Environment or a gymnasium.Env; got {type(env).__name__}")
    check_environment(agent, env)
    if is_traced(env.params if isinstance(env, Environment) else None):
        raise TypeError(
            "seqdec.run compiles by itself and is called from Python, not within jax.jit, jax.vmap or jax.grad: put "
            "jax.lax.scan over agent.act, env.step and agent.update there"
        )
    if not isinstance(env, Environment) and (state is not None or checkpoint is not None):
        raise ValueError(f"{env} cannot be continued: only a functional environment takes state or checkpoint")
    every = count("checkpoint_every", checkpoint_every)
    facts = _facts(agent, env, num_steps, seeds, names)
    path = None if checkpoint is None else located(checkpoint)
    kept = None if path is None else Checkpoint(path, every, facts)
    if path is not None:
        check_arrays_name(path)
    total = num_steps if isinstance(env, Environment) else num_steps * num_seeds
    with locked_file(path), bar(total, agent.name, "step", show=progress) as shown, one_blas_thread():
        compiling(shown)
        tick, tell = functools.partial(advance, shown), functools.partial(compiling, shown)
        if isinstance(env, Environment):
            outcome = on_device(agent, env, num_steps, seeds, names, tick, tell, mesh_for(num_seeds), state, kept)
        else:
            outcome = on_host(agent, env, num_steps, seeds, names, tick)
        if path is not None and not outcome.interrupted:
            remove(path)
    return _collect(outcome, agent, env, seeds)


def _facts(
    agent: Agent, env: Environment | gymnasium.Env, num_steps: int, seeds: range, names: tuple[str, ...]
) -> dict[str, Any]:
    """What a run must share with one it continues, as JSON values."""
    return as_json(
        {
            "agent": agent.name,
            "settings": dict(agent.settings),
            "env": _name(env),
            "num_steps": num_steps,
            "seeds": list(seeds),
            "diagnostics": names,
        }
    )


def _name(env: Environment | gymnasium.Env) -> str:
    if isinstance(env, Environment):
        return env.name
    return env.spec.id if env.spec else type(env.unwrapped).__name__


def _check_diagnostics(names: Sequence[str]) -> tuple[str, ...]:
    """`names` as a tuple; errors for a single string and names of columns of every run."""
    if isinstance(names, str):
        raise TypeError(f"diagnostics must be a sequence of names; got {names!r}: write ({names!r},)")
    for name in names:
        if name in COLUMNS:
            raise ValueError(f"diagnostics: {name!r} is the name of a column that every run has")
    return tuple(names)


def _collect(outcome: Outcome, agent: Agent, env: Environment | gymnasium.Env, seeds: range) -> Run:
    record = jax.tree.map(np.asarray, outcome.record)
    num_done, steps = record.reward.shape
    known_steps, known_seconds = zip((0, 0.0), *outcome.clock, strict=True)
    return Run(
        agent=agent.name,
        env=_name(env),
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
        settings=as_json(dict(agent.settings)),
        versions=versions(),
        state=outcome.state,
    )
