"""Pickling and showing of objects with functions defined inside functions.

By cloudpickle, with their code: the reading process needs the same versions of Python and libraries.
"""

import copy
import functools
import importlib
import io
import pickle
from typing import Any, TypeVar, cast

import cloudpickle

Kind = TypeVar("Kind", bound=type)


def portable(kind: Kind) -> Kind:
    """Class decorator: instances are pickled with the functions in their fields, which a named tuple shows by name."""
    methods = {"__reduce_ex__": _reduce, "__copy__": _copied, "__deepcopy__": _copied}
    if getattr(kind.__repr__, "__module__", "") == "collections":
        methods["__repr__"] = _shown
    for name, method in methods.items():
        setattr(kind, name, method)
    return kind


def _shown(self: Any) -> str:
    names = {name: getattr(value, "__qualname__", None) for name, value in self._asdict().items()}
    fields = (f"{name}={names[name] or repr(value)}" for name, value in self._asdict().items())
    return f"{type(self).__name__}({', '.join(fields)})".replace("<locals>.", "")


class _Pickler(cloudpickle.Pickler):
    """Stores portable objects by their fields, wrapped functions of modules by name."""

    def reducer_override(self, obj: Any) -> Any:
        if getattr(type(obj), "__reduce_ex__", None) is _reduce:
            return object.__reduce_ex__(obj, pickle.HIGHEST_PROTOCOL)
        if _is_public_wrapper(obj):
            return _named, (obj.__module__, obj.__qualname__)
        return super().reducer_override(obj)


def _reduce(self: Any, protocol: Any) -> tuple[Any, tuple[bytes]]:
    buffer = io.BytesIO()
    try:
        _Pickler(buffer).dump(self)
    except Exception as error:
        raise pickle.PicklingError(
            f"this {type(self).__name__} cannot be pickled: {error}; make it in the process that uses it"
        ) from error
    return pickle.loads, (buffer.getvalue(),)


def _copied(self: Any, memo: dict[int, Any] | None = None) -> Any:
    make, arguments, state = cast(Any, object.__reduce_ex__(self, pickle.HIGHEST_PROTOCOL)[:3])
    if memo is not None:
        arguments, state = copy.deepcopy((arguments, state), memo)
    copied = make(*arguments)
    if hasattr(copied, "__setstate__"):
        copied.__setstate__(state)
    elif state:
        vars(copied).update(state)
    return copied


def _is_public_wrapper(value: Any) -> bool:
    """Whether a decorator such as jax.jit made the value of a function of a module."""
    if isinstance(value, type) or not hasattr(value, "__wrapped__"):
        return False
    try:
        return _named(value.__module__, value.__qualname__) is value
    except (AttributeError, ImportError, TypeError, ValueError):
        return False


def _named(module: str, name: str) -> Any:
    return functools.reduce(getattr, name.split("."), importlib.import_module(module))
