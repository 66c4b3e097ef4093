"""Factories by name: listed, described, and looked up with a suggestion for a misspelt name."""

import difflib
import importlib
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Generic, TypeVar

T = TypeVar("T")

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
        if name not in self._factories:
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
        """What the factory called `name` returns. Raises ValueError, with a suggestion, for an unknown name."""
        return self[name](*arguments, **options)

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


def unknown(kind: str, name: Any, known: Collection[str]) -> str:
    """The message for a name that is not among `known`: the closest one if there is one, and all of them."""
    text = str(name).lower()
    close = [full for full in known if full.startswith(f"{text}_")] or difflib.get_close_matches(text, known, n=1)
    if not close:
        close = [full for full in [ABBREVIATIONS.get(text.replace("-", "_"))] if full in known]
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"unknown {kind} {name!r}: {hint}Known: {', '.join(sorted(known))}"
