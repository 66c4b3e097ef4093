"""An agent compiled for calls from Python, as a service makes them."""

import functools
from collections.abc import Callable
from typing import Any

import jax

from seqdec.core import Agent, Key, PyTree
from seqdec.runtime import UNOPTIMISED, one_blas_thread, step_options

_QUICK: dict[str, str | bool] = {**UNOPTIMISED, "xla_cpu_use_fusion_emitters": False}
"""A fifth of the compile time; not for `seqdec.run`, because rounding then depends on the number of seeds."""


def compiled(agent: Agent, *, optimise: bool = True, in_place: bool = False) -> Agent:
    """`agent` with its functions compiled when they are first called.

    As `jax.jit` of each of them, except that `init`, which is called once, is compiled without optimisation.

    Args:
        agent: of `seqdec.agents`, or one's own.
        optimise: False compiles the others without optimisation too: the first decision and the first update
            then come several times as early, and each later one takes several times as long. For short runs, and for
            services in which a decision may take milliseconds.
        in_place: `update` writes into the state it is given, which must not be used again: JAX refuses it. Otherwise
            every update makes a copy of the state, of which a memory of observations may be by far the most.

    Returns:
        An agent for calls from Python only: JAX refuses to compile its functions into other programs.

    Raises:
        TypeError: not an agent.
    """
    if not isinstance(agent, Agent):
        raise TypeError(f"agent must be a seqdec.core.Agent, as seqdec.agents.make builds; got {type(agent).__name__}")
    options = step_options() if optimise else _QUICK
    start = jax.jit(agent.init, compiler_options=_QUICK)

    @functools.wraps(agent.init)  # for callers that trace it
    def init(key: Key) -> PyTree:
        # The one large factorisation.
        with one_blas_thread():
            return jax.block_until_ready(start(key))

    def learning(update: Callable[..., Any]) -> Callable[..., Any]:
        return jax.jit(update, compiler_options=options, donate_argnums=0 if in_place else ())

    return agent._replace(
        init=init,
        act=jax.jit(agent.act, compiler_options=options),
        update=learning(agent.update),
        update_batch=None if agent.update_batch is None else learning(agent.update_batch),
        act_batch=None if agent.act_batch is None else jax.jit(agent.act_batch, compiler_options=options),
    )
