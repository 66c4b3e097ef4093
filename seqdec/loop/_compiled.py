"""An agent compiled for calls from Python, as a service makes them."""

import functools
from collections.abc import Callable
from typing import Any

import jax

from seqdec.agents.inputs import check_context, check_lesson
from seqdec.core import Agent, Key, PyTree
from seqdec.runtime import UNFUSED, UNOPTIMISED, check_process, one_blas_thread, step_options

_QUICK: dict[str, str | bool] = {**UNOPTIMISED, **UNFUSED}
"""A fifth of the compile time; not for `seqdec.run`, because rounding then depends on the number of seeds."""


class _Checked:
    """A compiled function whose arguments are checked by value before each call; it has the attributes of `jax.jit`."""

    def __init__(self, program: Any, check: Callable[..., None]):
        self._program, self._check = program, check

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        check_process()
        self._check(*arguments, **named)
        return self._program(*arguments, **named)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Checked, (self._program, self._check)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)


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
    check_process()
    options = step_options() if optimise else _QUICK
    start = jax.jit(agent.init, compiler_options=_QUICK)

    @functools.wraps(agent.init)  # for callers that trace it
    def init(key: Key) -> PyTree:
        check_process()
        # The one large factorisation.
        with one_blas_thread():
            return jax.block_until_ready(start(key))

    def program(function: Callable[..., Any] | None, check: Callable[..., None], donated: Any = ()) -> Any:
        return function and _Checked(jax.jit(function, compiler_options=options, donate_argnums=donated), check)

    spaces, donated = agent.spaces, 0 if in_place else ()

    def check_act(key, state, observation):
        if spaces is not None:
            check_context(spaces, observation)

    def check_update(state, observation, action, feedback):
        if spaces is not None:
            check_lesson(spaces, observation, action, feedback)

    def unchecked(*arguments, **named):
        del arguments, named

    return agent._replace(
        init=init,
        act=program(agent.act, check_act),
        update=program(agent.update, check_update, donated),
        update_batch=program(agent.update_batch, unchecked, donated),
        act_batch=program(agent.act_batch, unchecked),
    )
