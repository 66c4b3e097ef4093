"""What an agent is given: checked wherever its functions are called, and keywords without effect refused."""

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import jax

from seqdec.checks import fitting, keyed
from seqdec.checks import keys as check_keys
from seqdec.core import Agent, Array, HasSpaces, Key, PyTree
from seqdec.runtime import alike, check_process
from seqdec.spaces import check_context, check_lesson, spaces_of


def refuse_unused(factory: Callable[..., Any], given: Mapping[str, Any], where: str) -> None:
    """Refuse keywords of a factory that have another value than their default although they have no effect.

    Args:
        factory: with the defaults of the keywords.
        given: their values.
        where: in which case they have no effect, such as "with a likelihood".

    Raises:
        TypeError: a value is not the default.
    """
    for name, value in given.items():
        default = inspect.signature(factory).parameters[name].default
        if value is not default and not (isinstance(value, int | float) and value == default):
            raise TypeError(f"{name}={value!r} has no effect {where}: leave it out")


def checked(agent: Agent, spaces: HasSpaces) -> Agent:
    """`agent`, which refuses what does not fit the spaces that it was built for, and records them."""
    check_process()
    rows = spaces_of(spaces)

    def own_state(state: Any) -> AbstractContextManager[None]:
        return fitting(
            state,
            lambda: jax.eval_shape(agent.init, jax.random.key(0)),
            f"state is not one of this agent, {agent.name}",
            "pass what agent.init(key) or agent.update returned",
        )

    @keyed
    def act(key: Key, state: Any, observation: PyTree) -> Any:
        state, context = alike((state, check_context(rows, observation)), key)
        with own_state(state):
            return agent.act(key, state, context)

    @keyed
    def assess(key: Key, state: Any, observation: PyTree) -> Any:
        assert agent.assess is not None
        state, context = alike((state, check_context(rows, observation)), key)
        with own_state(state):
            return agent.assess(key, state, context)

    def update(state: Any, observation: PyTree, action: Array, feedback: Array) -> tuple[Any, Any]:
        state, lesson = alike((state, check_lesson(rows, observation, action, feedback)))
        with own_state(state):
            return agent.update(state, *lesson)

    def act_batch(keys: Key, state: Any, observations: PyTree) -> Any:
        assert agent.act_batch is not None
        check_keys(keys)
        state, observations = alike((state, observations), keys)
        with own_state(state):
            return agent.act_batch(keys, state, observations)

    def update_batch(state: Any, observations: PyTree, actions: Any, rewards: Any) -> tuple[Any, Any]:
        assert agent.update_batch is not None
        state, observations, actions, rewards = alike((state, observations, actions, rewards))
        with own_state(state):
            return agent.update_batch(state, observations, actions, rewards)

    return agent._replace(
        init=keyed(agent.init),
        act=act,
        update=update,
        act_batch=None if agent.act_batch is None else act_batch,
        assess=None if agent.assess is None else assess,
        update_batch=None if agent.update_batch is None else update_batch,
        spaces=rows,
    )
