"""What an agent is given: checked wherever its functions are called, and keywords without effect refused."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp

from seqdec.core import Agent, Array, HasSpaces, Key, PyTree
from seqdec.runtime import check_process
from seqdec.spaces import check_context, check_lesson, spaces_of


def as_floats(feedback: Any) -> Array:
    """Feedback in JAX's default dtype of floats, in which agents keep and average it."""
    return jnp.asarray(feedback).astype(float)


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
    own = spaces_of(spaces)

    def act(key: Key, state: Any, observation: PyTree) -> Any:
        return agent.act(key, state, check_context(own, observation))

    def update(state: Any, observation: PyTree, action: Array, feedback: Array) -> tuple[Any, Any]:
        return agent.update(state, *check_lesson(own, observation, action, feedback))

    return agent._replace(act=act, update=update, spaces=own)
