"""What callers pass to an `OnlineAgent`: checked, and in the form in which it is used."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from seqdec import agents, checks
from seqdec.core import Agent, HasSpaces


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
    """Number and nonce of a token; 0 for what is not one. Raises TypeError for what is not a str."""
    if not isinstance(token, str):
        raise TypeError(f"a token is the text that `decide` returned; got {token!r:.60}")
    number, _, nonce = token.partition("-")
    try:
        return int(number) if number.isascii() and number.isdigit() and len(number) < 19 else 0, bytes.fromhex(nonce)
    except ValueError:
        return 0, b""
