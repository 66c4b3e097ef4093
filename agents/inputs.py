"""Checks of an agent's arguments."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax

from seqdec.boundary.checks import keyed, refuse_misfit
from seqdec.boundary.checks import keys as check_keys
from seqdec.boundary.spaces import check_context, check_feedback, spaces_of
from seqdec.core import Agent, Array, HasSpaces, Key, PyTree
from seqdec.runtime import alike, check_process


def refuse_unused(factory: Callable[..., Any], given: Mapping[str, Any], where: str) -> None:
    """Raise TypeError for keywords without effect that differ from their default.

    Args:
        factory: function whose signature has the defaults.
        given: values of the keywords.
        where: when they have no effect, such as "with a likelihood".

    Raises:
        TypeError: a value is not the default.
    """
    for name, value in given.items():
        default = inspect.signature(factory).parameters[name].default
        if value is not default and not (isinstance(value, int | float) and value == default):
            raise TypeError(f"{name}={value!r} has no effect {where}: leave it out")


def checked(agent: Agent, spaces: HasSpaces) -> Agent:
    """`agent`, which refuses what does not fit its spaces, and records them."""
    check_process()
    rows = spaces_of(spaces)

    def explained(function: Any, state: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            wrong = f"state is not one of this agent, {agent.name}"
            like = lambda: jax.eval_shape(agent.init, jax.random.key(0))  # noqa: E731
            refuse_misfit(error, state, like, wrong, "pass what agent.init(key) or agent.update returned")
            raise

    def asking(function: Any) -> Any:
        @keyed
        def ask(key: Key, state: Any, observation: PyTree) -> Any:
            state, context = alike((state, check_context(rows, observation)), key)
            return explained(function, state, key, state, context)

        return ask

    def update(state: Any, observation: PyTree, action: Array, feedback: Array) -> tuple[Any, Any]:
        state, lesson = alike((state, check_feedback(rows, observation, action, feedback)))
        return explained(agent.update, state, state, *lesson)

    def act_batch(keys: Key, state: Any, observations: PyTree) -> Any:
        check_keys(keys)
        state, observations = alike((state, observations), keys)
        return explained(agent.act_batch, state, keys, state, observations)

    def update_batch(state: Any, observations: PyTree, actions: Any, rewards: Any) -> tuple[Any, Any]:
        state, *lessons = alike((state, observations, actions, rewards))
        return explained(agent.update_batch, state, state, *lessons)

    return agent._replace(
        init=keyed(agent.init),
        act=asking(agent.act),
        update=update,
        act_batch=None if agent.act_batch is None else act_batch,
        assess=None if agent.assess is None else asking(agent.assess),
        update_batch=None if agent.update_batch is None else update_batch,
        spaces=rows,
    )
