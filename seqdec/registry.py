"""Factories by name."""

import difflib
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from seqdec import plugins
from seqdec.plugins import load as load

T = TypeVar("T")
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
"""Names that `difflib` would not find."""


class Outside(NamedTuple):
    """What a registry takes from outside the library."""

    group: str
    """of the entry points of packages"""
    form: str
    """what a factory must be, for messages"""
    made: type = object
    """what a factory returns"""
    fits: Callable[[Any], bool] = callable
    """whether it may be a factory"""
    hint: str = ""
    """where to find further names, for messages"""


class Registry(Generic[T]):
    """Factories of one kind by name: functions, or "module:function", imported when first asked for.

    `outside` adds names declared by packages, after its own, and "module:function" as a name.
    """

    def __init__(self, kind: str, *sources: Mapping[str, Callable[..., T] | str], outside: Outside | None = None):
        """`kind`, such as "policy", is for messages.

        Raises ValueError for a name in two `sources`.
        """
        self.kind, self._outside = kind, outside
        self._factories: dict[str, Callable[..., T] | str] = {}
        for source in sources:
            for name, factory in source.items():
                self.add(name, factory)

    def add(self, name: str, factory: Callable[..., T] | str) -> None:
        """Register a factory. Raises ValueError for a registered name."""
        if name in self._factories:
            raise ValueError(f"the {self.kind} {name!r} is registered already: choose another name")
        self._factories[name] = factory

    def __getitem__(self, name: str) -> Callable[..., T]:
        """The factory called `name`.

        Raises ValueError, with a suggestion, for an unknown name or one without a factory.
        """
        if not isinstance(name, str) or name not in self._factories:
            return self._load(name)
        factory = self._factories[name]
        if isinstance(factory, str):
            factory = self._factories[name] = load(factory)
        return factory

    def _load(self, name: Any) -> Callable[..., T]:
        points = self._points(name)
        if self._outside is None or not (points or plugins.is_reference(name)):
            hint = self._outside.hint if self._outside else ""
            raise ValueError(f"{unknown(self.kind, name, self.names())}{hint}")
        if not points:
            plugins.check_source(name)
        found = plugins.load_declared(points, self.kind) if points else load(name)
        if not self._outside.fits(found):
            raise ValueError(f"{name!r} is not a valid {self.kind}, but {found!r:.80}: it must be {self._outside.form}")
        return found

    def _points(self, name: Any) -> tuple[plugins.Declared, ...]:
        return tuple(point for point in self._declared() if point.name == name)

    def _declared(self) -> list[plugins.Declared]:
        points = plugins.declared(self._outside.group) if self._outside else ()
        return [point for point in points if point.name not in self._factories and plugins.is_name(point.name)]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._factories, *(point.name for point in self._declared())]))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        outside = self._outside is not None and plugins.is_reference(name)
        return name in self._factories or outside or bool(self._points(name))

    def names(self) -> tuple[str, ...]:
        """The names, sorted."""
        return tuple(sorted(self))

    def own(self) -> tuple[str, ...]:
        """The library's own names."""
        return tuple(self._factories)

    def origin(self, name: str) -> str:
        """Package, version and "module:function" of a name from outside; "" for others."""
        return "; ".join(map(str, self._points(name)))

    def ignored(self) -> dict[str, str]:
        """Names that packages declare without effect -> why, and the remedy."""
        points = plugins.declared(self._outside.group) if self._outside else ()
        taken, bad = "seqdec has this name itself", "a name consists of letters, digits, _, + and -"
        return {
            point.name: f"{self.kind} of {point.origin}: "
            f"{taken if point.name in self._factories else bad}; use {point.reference}"
            for point in points
            if point.name in self._factories or not plugins.is_name(point.name)
        }

    def digest(self, name: str) -> str | None:
        """Of the file of a factory from outside; None for the library's own."""
        if name in self._factories:
            return None
        self[name]
        points = self._points(name)
        return plugins.digest(points[0].reference if points else name)

    def name_of(self, factory: Callable[..., T]) -> str:
        """The name of a factory, or its "module:function"."""
        reference = f"{factory.__module__}:{factory.__qualname__}"
        own = [name for name, one in self._factories.items() if one is factory or one == reference]
        names = own or [point.name for point in self._declared() if point.reference == reference]
        return names[0] if names else reference

    def make(self, name: str, /, *arguments: Any, **options: Any) -> T:
        """What the factory called `name` returns.

        Raises ValueError for an unknown name, TypeError for an unknown keyword, with a suggestion, or an unfit factory
        from outside.
        """
        factory = self[name]
        if options:
            self._check(name, factory, options)
        if self._outside is None or name in self._factories:
            return factory(*arguments, **options)
        try:
            inspect.signature(factory).bind(*arguments, **options)
        except TypeError as error:
            raise TypeError(f"{name!r} cannot be called as {self._outside.form}: {error}") from None
        made = factory(*arguments, **options)
        if not isinstance(made, self._outside.made):
            raise TypeError(f"{name!r} returned {made!r:.80}: it must be {self._outside.form}")
        return made

    def _check(self, name: str, factory: Callable[..., T], options: Mapping[str, Any]) -> None:
        signature = inspect.signature(factory)
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values()):
            return
        package = _PACKAGE.match(getattr(factory, "__module__", "")) if name in self._factories else None
        # as in seqdec.policies.ucb
        check_keywords(f"{package[1]}.{name}" if package else name, options, keywords(factory))

    def parameters(self, name: str) -> tuple[str, ...]:
        """The names of the factory's parameters."""
        return tuple(inspect.signature(self[name]).parameters)

    def describe(self, name: str) -> str:
        """The first line of the factory's docstring."""
        return (self[name].__doc__ or "").strip().partition("\n")[0]


def keywords(function: Callable[..., Any]) -> list[str]:
    """Names of parameters that a function takes by keyword."""
    parameters = inspect.signature(function).parameters.values()
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return [name for name in named if name not in ("self", "cls", "_cls")]


def check_keywords(function: str, options: Collection[str], known: Collection[str]) -> None:
    """Raises TypeError, with a suggestion, for a keyword that is not `known`."""
    for keyword in options:
        if keyword not in known:
            raise TypeError(unknown(f"keyword of {function}", keyword, known))


def unknown(kind: str, name: Any, known: Collection[str]) -> str:
    """The message for an unknown name: the closest known one, and all."""
    text = str(name).lower()
    close = [full for full in known if full.startswith(f"{text}_")] or difflib.get_close_matches(text, known, n=1)
    if not close:
        close = [full for full in [ABBREVIATIONS.get(text.replace("-", "_"))] if full in known]
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"unknown {kind} {name!r}: {hint}Known: {', '.join(sorted(known))}"
