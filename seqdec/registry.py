"""Factories by name: listed, described, and looked up with a suggestion for a misspelt name."""

import difflib
import functools
import importlib
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Generic, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")
_PACKAGE = re.compile(r"seqdec\.(\w+)")

ABBREVIATIONS = {
    "ei": "log_expected_improvement",
    "eps": "epsilon_greedy",
    "eps_greedy": "epsilon_greedy",
    "expected_improvement": "log_expected_improvement",
    "koala": "koala++",
    "logei": "log_expected_improvement",
    "ps": "predictive_sampling",
    "thompson_sampling": "thompson",
    "ts": "thompson",
}
"""What people type for names that are spelt too differently for `difflib` to find them."""


class Registry(Generic[T]):
    """Factories of one kind by name, in the order in which they are listed. A name is given once.

    A factory is given as a function, or as "module:function", which is imported when it is first asked for.
    """

    def __init__(self, kind: str, *sources: Mapping[str, Callable[..., T] | str]):
        """`kind` is what an error message calls an entry, such as "policy".

        Raises ValueError for a name in two of the `sources`.
        """
        self.kind = kind
        self._factories: dict[str, Callable[..., T] | str] = {}
        for source in sources:
            for name, factory in source.items():
                self.add(name, factory)

    def add(self, name: str, factory: Callable[..., T] | str) -> None:
        """Register a factory. Raises ValueError for a name that is registered already."""
        if name in self._factories:
            raise ValueError(f"the {self.kind} {name!r} is registered already: choose another name")
        self._factories[name] = factory

    def __getitem__(self, name: str) -> Callable[..., T]:
        """The factory called `name`. Raises ValueError, with a suggestion, for an unknown name."""
        if not isinstance(name, str) or name not in self._factories:
            raise ValueError(unknown(self.kind, name, self._factories))
        factory = self._factories[name]
        if isinstance(factory, str):
            factory = self._factories[name] = load(factory)
        return factory

    def __iter__(self) -> Iterator[str]:
        return iter(self._factories)

    def __len__(self) -> int:
        return len(self._factories)

    def __contains__(self, name: object) -> bool:
        return name in self._factories

    def names(self) -> tuple[str, ...]:
        """The names, sorted."""
        return tuple(sorted(self._factories))

    def make(self, name: str, /, *arguments: Any, **options: Any) -> T:
        """What the factory called `name` returns.

        Raises ValueError for an unknown name, and TypeError for an unknown keyword, both with a suggestion.
        """
        factory = self[name]
        if options:
            package = _PACKAGE.match(getattr(factory, "__module__", ""))
            factory = spelled(name=f"{package[1]}.{name}" if package else name)(factory)  # as in seqdec.policies.ucb
        return factory(*arguments, **options)

    def parameters(self, name: str) -> tuple[str, ...]:
        """The names of the factory's parameters."""
        return tuple(inspect.signature(self[name]).parameters)

    def describe(self, name: str) -> str:
        """The first line of the factory's docstring."""
        return (self[name].__doc__ or "").strip().partition("\n")[0]


def load(reference: str) -> Any:
    """The function that "module:function" names; imports the module."""
    module, _, attribute = reference.partition(":")
    return getattr(importlib.import_module(module), attribute)


def spelled(
    *others: Callable[..., Any], name: str | None = None, hidden: Collection[str] = ()
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator: for a keyword that the function does not have it suggests the closest one, in a TypeError.

    `help` and `inspect` show the keywords of `others` in the place of **options.

    Args:
        others: what the function passes its **options on to; without, a function with **options takes any keyword.
        name: of the function in the message.
        hidden: keywords of `others` that the function chooses itself.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = _written_out(inspect.signature(function), others, hidden)
        known = _keywords(signature)
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())

        @functools.wraps(function)
        def checked(*arguments: P.args, **keywords: P.kwargs) -> R:
            for keyword in () if takes_any else keywords:
                if keyword not in known:
                    raise TypeError(unknown(f"keyword of {name or function.__name__}", keyword, known))
            return function(*arguments, **keywords)

        setattr(checked, "__signature__", signature)  # noqa: B010 (unknown to type checkers; `help` and editors read it)
        return checked

    return decorate


def spelled_fields(kind: type[T]) -> type[T]:
    """Class decorator: as `spelled` for the fields of a named tuple."""
    setattr(kind, "__new__", spelled(name=kind.__name__)(kind.__new__))  # noqa: B010 (read-only for type checkers)
    return kind


def _written_out(
    signature: inspect.Signature, others: Iterable[Callable[..., Any]], hidden: Collection[str]
) -> inspect.Signature:
    """The signature with the keywords of `others`, but for those that are `hidden`, in the place of **options."""
    if not others:
        return signature
    own = {key: part for key, part in signature.parameters.items() if part.kind is not part.VAR_KEYWORD}
    for other in others:
        theirs = inspect.signature(other)
        for key in _keywords(theirs):
            if key not in hidden:
                own.setdefault(key, theirs.parameters[key].replace(kind=inspect.Parameter.KEYWORD_ONLY))
    return signature.replace(parameters=list(own.values()))


def _keywords(signature: inspect.Signature) -> list[str]:
    """What a function takes by keyword."""
    parameters = signature.parameters.values()
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return [name for name in named if name not in ("self", "cls", "_cls")]


def unknown(kind: str, name: Any, known: Collection[str]) -> str:
    """The message for a name that is not among `known`: the closest one if there is one, and all of them."""
    text = str(name).lower()
    close = [full for full in known if full.startswith(f"{text}_")] or difflib.get_close_matches(text, known, n=1)
    if not close:
        close = [full for full in [ABBREVIATIONS.get(text.replace("-", "_"))] if full in known]
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"unknown {kind} {name!r}: {hint}Known: {', '.join(sorted(known))}"
