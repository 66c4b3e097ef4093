"""An agent compiled for calls from Python."""

import functools
from collections.abc import Callable
from typing import Any

import jax

from seqdec.boundary.checks import key as check_key
from seqdec.boundary.checks import keys as check_keys
from seqdec.boundary.checks import one_array
from seqdec.boundary.spaces import check_context, check_feedback, stacked
from seqdec.core import Agent, Key, PyTree
from seqdec.runtime import UNFUSED, UNOPTIMIZED, check_process, one_blas_thread, step_options

_QUICK: dict[str, str | bool] = {**UNOPTIMIZED, **UNFUSED}
"""A fifth of the compile time; in `seqdec.run` rounding would depend on the number of seeds."""


class _Checked:
    """A compiled function with checked arguments (`arrays`) and the attributes of `jax.jit`."""

    def __init__(self, program: Any, arrays: Callable[..., tuple[Any, ...]] | None):
        self._program, self._arrays = program, arrays

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        check_process()
        if self._arrays is None:
            return self._program(*arguments, **named)
        return self._program(*self._arrays(*arguments, **named))

    def __reduce__(self) -> tuple[Any, ...]:
        return _Checked, (self._program, self._arrays)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)


def compiled(agent: Agent, *, optimize: bool = True, in_place: bool = False) -> Agent:
    """`agent` with its functions compiled when first called, as by `jax.jit`; `init` without optimization.

    Args:
        agent: an Agent of `seqdec.agents` or your own; TypeError for anything else.
        optimize: False compiles without optimization: the first calls return several times sooner, later ones take
            several times as long.
        in_place: whether `update` overwrites its state, which cannot be used again; else it copies.

    Returns:
        An agent for calls from Python only: JAX refuses to compile its functions into other programs.
    """
    if not isinstance(agent, Agent):
        raise TypeError(f"agent must be a seqdec.core.Agent, as seqdec.agents.make builds; got {type(agent).__name__}")
    check_process()
    options = step_options() if optimize else _QUICK
    start = jax.jit(agent.init, compiler_options=_QUICK)

    @functools.wraps(agent.init)  # for callers that trace it
    def init(key: Key) -> PyTree:
        check_process()
        check_key(key)
        # The one large factorization.
        with one_blas_thread():
            return jax.block_until_ready(start(key))

    spaces: Any = agent.spaces
    donated = 0 if in_place else ()

    def program(function: Callable[..., Any] | None, arrays: Callable[..., tuple[Any, ...]], donated: Any = ()) -> Any:
        if function is None:
            return None
        made = jax.jit(function, compiler_options=options, donate_argnums=donated)
        return _Checked(made, None if spaces is None else arrays)

    def act(key, state, observation):
        check_key(key)
        return key, state, check_context(spaces, observation)

    def update(state, observation, action, feedback):
        return state, *check_feedback(spaces, observation, action, feedback)

    def act_batch(keys, state, observations):
        check_keys(keys)
        return keys, state, stacked(spaces, observations)

    def update_batch(state, observations, actions, rewards):
        return state, stacked(spaces, observations), one_array("actions", actions), one_array("rewards", rewards)

    return agent._replace(
        init=init,
        act=program(agent.act, act),
        update=program(agent.update, update, donated),
        act_batch=program(agent.act_batch, act_batch),
        assess=program(agent.assess, act),
        update_batch=program(agent.update_batch, update_batch, donated),
    )
