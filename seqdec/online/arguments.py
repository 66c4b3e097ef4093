"""What callers pass to an `OnlineAgent`: checked, and in the form in which it is used."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np

from seqdec import agents, checks
from seqdec.checks import choice, positive
from seqdec.core import Agent, HasSpaces

_LARGEST = float(np.finfo(np.float32).max)


def factory(make: str | Callable[[HasSpaces], Agent]) -> Callable[[HasSpaces], Agent]:
    """A function that makes agents, perhaps given by name."""
    if isinstance(make, str):
        return agents.REGISTRY[make]
    if not callable(make):
        raise TypeError(
            "make must be a function (spaces) -> agent, such as seqdec.agents.auto or lambda spaces: "
            f"seqdec.agents.hilofi(spaces, rank=10), or the name of one, such as 'auto'; got {make!r:.80}"
        )
    return make


def check_rewards(
    rewards: str, known: Collection[str], reward_after: float | None, reward_default: float | None
) -> None:
    """Raises ValueError for settings that do not fit together."""
    choice("rewards", rewards, known)
    if reward_after is not None:
        positive("reward_after", reward_after)
        if rewards == "first" and reward_default is None:
            raise ValueError("reward_after needs a reward_default, such as 0.0, or rewards='sum', 'last' or 'max'")
    elif rewards != "first" or reward_default is not None:
        given = f"rewards={rewards!r}" if rewards != "first" else f"reward_default={reward_default!r}"
        raise ValueError(f"{given} needs reward_after, the seconds in which a decision takes rewards")


def sized(stacked: Any) -> tuple[Any, int]:
    """Stacked contexts as arrays, and their number. Raises ValueError where there is no axis to count."""
    parts = stacked if isinstance(stacked, Mapping) else {"contexts": stacked}
    arrays = {name: checks.as_array(name, part) for name, part in parts.items()}
    shapes = [array.shape for array in arrays.values()]
    sizes = {shape[:1] for shape in shapes}
    if len(sizes) != 1 or () in sizes:
        raise ValueError(f"contexts must be stacked along a first axis; got shapes {shapes}")
    return arrays if isinstance(stacked, Mapping) else arrays["contexts"], sizes.pop()[0]


def pair(given: Any) -> tuple[Any, Any]:
    """Token and reward. Raises TypeError for what is no pair, such as the key of a dict or a row as a dict."""
    parts = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str | Mapping) else ()
    if len(parts) != 2:
        raise TypeError(
            f"rewards must be told as pairs (token, reward); got {given!r:.80}: pass zip(tokens, rewards), or the "
            "items() of a dict"
        )
    return parts


def parsed(token: Any) -> tuple[int, bytes]:
    """Number and nonce of a token; what is none has number 0. Raises TypeError for what is no text."""
    if not isinstance(token, str):
        raise TypeError(f"a token is the text that `decide` returned; got {token!r:.60}")
    number, _, nonce = token.partition("-")
    try:
        return int(number) if number.isascii() and number.isdigit() and len(number) < 19 else 0, bytes.fromhex(nonce)
    except ValueError:
        return 0, b""


def checked_reward(reward: Any) -> float:
    """A finite number. Raises TypeError or ValueError."""
    try:
        given = np.asarray(checks.as_array("a reward", reward))
    except (TypeError, ValueError):
        given = np.array(())
    if given.shape != ():
        raise TypeError(f"a reward must be a number; got {reward!r:.60}: convert it, as with float()")
    if not abs(float(given)) <= _LARGEST:
        raise ValueError(f"a reward must be a finite number in float32; got {reward!r}")
    return float(given)
