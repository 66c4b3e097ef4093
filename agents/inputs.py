"""What an agent is given: checked wherever its functions are called, and keywords without effect refused."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp

from seqdec.checks import keyed
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


@contextmanager
def _explained(agent: Agent, state: PyTree) -> Iterator[None]:
    """Raises TypeError in place of an error within, where the state has another form than those of the agent."""
    try:
        yield
    except Exception as error:
        own, given = _form(jax.eval_shape(agent.init, jax.random.key(0))), _form(state)
        if own == given:
            raise
        place = next(place for place in [*own, *given] if own.get(place) != given.get(place))
        raise TypeError(
            f"state is not one of this agent, {agent.name}: got {type(state).__name__}, where {place or 'the state'} "
            f"has {given.get(place, 'no array')} in place of {own.get(place, 'no array')}: pass what agent.init(key) "
            "or agent.update returned"
        ) from error


def _form(state: PyTree) -> dict[str, str]:
    """The shapes of the leaves by place, in words."""
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return {jax.tree_util.keystr(path): f"shape {jnp.shape(leaf)}" for path, leaf in leaves}


def checked(agent: Agent, spaces: HasSpaces) -> Agent:
    """`agent`, which refuses what does not fit the spaces that it was built for, and records them."""
    check_process()
    own = spaces_of(spaces)

    @keyed
    def act(key: Key, state: Any, observation: PyTree) -> Any:
        context = check_context(own, observation)
        with _explained(agent, state):
            return agent.act(key, state, context)

    @keyed
    def assess(key: Key, state: Any, observation: PyTree) -> Any:
        assert agent.assess is not None
        context = check_context(own, observation)
        with _explained(agent, state):
            return agent.assess(key, state, context)

    def update(state: Any, observation: PyTree, action: Array, feedback: Array) -> tuple[Any, Any]:
        lesson = check_lesson(own, observation, action, feedback)
        with _explained(agent, state):
            return agent.update(state, *lesson)

    assessed = None if agent.assess is None else assess
    return agent._replace(init=keyed(agent.init), act=act, update=update, assess=assessed, spaces=own)
