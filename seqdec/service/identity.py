"""Facts that an agent must share with its log, among them the agent's digest.

Library functions count by name, users' also by code and the globals that it names.
"""

import dataclasses
import functools
import hashlib
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from gymnasium import spaces

from seqdec.features import Encoder
from seqdec.introspection import listed
from seqdec.ope.log import Label
from seqdec.persistence import as_json
from seqdec.service.contexts import ITEM, USER, WHOLE

_LIBRARIES = {"seqdec", "jax", "jaxlib", "flax", "optax", "numpy", "scipy", "sklearn", "gymnasium"}
_LIBRARIES |= set(sys.stdlib_module_names) - {"__main__"}
_PLAIN = (bool, int, float, complex, str, bytes, np.generic, np.dtype)
_NAMED = {
    "record": "record of a context (name, type, shape)",
}
"""Names of facts in errors."""
_LEARNED = ("batch_size", "rewards", "reward_after", "reward_default", "reward_weights")
"""Settings that allow relearning."""


class ChangedError(ValueError):
    """The log was learned by another agent, and could be learned again."""


def check_facts(path: Path, facts: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """ValueError for facts of another agent that cannot learn the log again."""
    if other := encoder_difference(facts.get("encoder"), own["encoder"]):
        raise ValueError(
            f"{path} was written {other}, and its contexts cannot be encoded again: use the encoder of the log, "
            "seqdec.service.read_encoder(folder), or another folder"
        )
    for name in ("seed", "record", "reward_names"):
        if (found := facts.get(name)) != own[name]:
            raise ValueError(f"{path} belongs to an agent whose {_NAMED.get(name, name)} is {found}, not {own[name]}")


def check_arms(path: Path, known: Sequence[Label], own: Sequence[Label], first: int) -> None:
    """ValueError for other arms than those of the log in their order, of which there were `first` at first."""
    both = min(len(known), len(own))
    if known[:both] != own[:both] or len(own) < first or bool(known) != bool(own):
        raise ValueError(
            f"{path} belongs to an agent whose arms are {_quoted(known)}, not {_quoted(own)}: name these "
            "arms in this order; others that follow them are added"
        )


def _quoted(names: Sequence[Label]) -> str:
    return ", ".join(map(repr, names)) or "none (a Box, or a catalog)"


def has_changed(path: Path, facts: Mapping[str, Any], own: Mapping[str, Any], *, relearn: bool) -> bool:
    """Whether the log has to be learned again. Raises ChangedError then, unless `relearn`."""
    changed = [name for name in ("agent", "settings", "digest", *_LEARNED) if facts.get(name) != own[name]]
    if changed == ["digest"] and facts["versions"] != as_json(own["versions"]):
        return False  # other versions of the libraries may build the same agent of other functions
    if not changed or relearn:
        return bool(changed)
    options = [name for name in changed if name in _LEARNED]
    others = [name for name in changed if name not in options]
    before, here = (
        [f"{found['agent']} {found['settings']}"] * bool(others)
        + [listed({name: found.get(name) for name in options})] * bool(options)
        for found in (facts, own)
    )
    if others == ["digest"]:
        here[0] += ", of which the network, the policy or a function in them is another"
    raise ChangedError(
        f"{path} was written with {' and '.join(before)}, not {' and '.join(here)}: use that agent, or learn the log "
        "again with this one, relearn=True"
    )


def described_encoder(encoder: Encoder | Mapping[str, Encoder] | None) -> Any:
    """An encoder as JSON values, a dict by part for a catalog."""
    if not encoder:
        return None
    if isinstance(encoder, Mapping):
        return {name: described_encoder(part) for name, part in encoder.items()}
    if encoder.kinds:
        return encoder.to_json()
    return {"columns": list(encoder.columns), "features": list(encoder.names)}


def part_of(described: Any, part: str) -> Any:
    """The described encoder of a part of rows."""
    return described.get(part) if isinstance(described, Mapping) else None


def feature_names(described: Any) -> dict[str, list[str]]:
    """Names of features by field of a record, as far as known."""
    if described is None:
        return {}
    if isinstance(described, str):
        return {WHOLE: list(Encoder.from_json(described).names)}
    if "columns" in described:
        return {WHOLE: described["features"]}
    return {part: [f"{part} {name}" for name in feature_names(one)[WHOLE]] for part, one in described.items()}


def encoder_difference(before: Any, here: Any) -> str | None:
    """Difference of two described encoders; None where equal."""
    if before == here:
        return None
    for part in (ITEM, USER):
        old, new = part_of(before, part), part_of(here, part)
        if old != new:
            return f"{encoder_difference(old, new)} of each {part}"
    columns = [_columns(each) for each in (before, here)]
    if not all(columns):
        return "without an encoder" if before is None else "with an encoder"
    names = [name for name in {**columns[0], **columns[1]} if columns[0].get(name) != columns[1].get(name)]
    return f"with an encoder that has another {', '.join(names) or 'order of columns'}"


def _columns(described: Any) -> dict[str, Any]:
    if isinstance(described, str):
        return {name: repr(kind) for name, kind in Encoder.from_json(described).kinds.items()}
    return {} if described is None else dict.fromkeys(described["columns"], described["features"])


def digest(value: Any) -> str:
    """SHA-256 of a value, equal in all processes with the same versions of Python and the libraries."""
    return _digest(value, {}).hex()


def _digest(value: Any, known: dict[int, tuple[bytes, Any]]) -> bytes:
    """By parts; `known` keeps digests by id, so that cycles end."""
    if value is None or isinstance(value, _PLAIN):
        return hashlib.sha256(f"{type(value).__name__} {value!r}".encode()).digest()
    if id(value) not in known:
        known[id(value)] = b"itself", value  # kept, so that no other value gets its id
        parts = [_digest(part, known) for part in _held(value)]
        known[id(value)] = hashlib.sha256(b"".join([_name(value).encode(), *parts])).digest(), value
    return known[id(value)][0]


def _name(value: Any) -> str:
    """Name of a function, class or module, or of a value's class; with its module where a library's."""
    named = value if callable(value) and isinstance(getattr(value, "__qualname__", None), str) else type(value)
    if isinstance(value, types.ModuleType):
        return value.__name__
    return f"{named.__module__ if _of_library(named) else ''} {named.__qualname__}"


def _of_library(value: Any) -> bool:
    module = value.__globals__.get("__name__") if isinstance(value, types.FunctionType) else value.__module__
    return module is None or module.partition(".")[0] in _LIBRARIES


def _held(value: Any) -> list[Any]:
    if isinstance(value, jax.Array) and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        return [str(value.dtype), jax.random.key_data(value)]
    if isinstance(value, np.ndarray | jax.Array):
        array = np.asarray(value)
        return [array.dtype, array.shape, array.tolist() if array.dtype == object else array.tobytes()]
    if isinstance(value, spaces.Box):
        return [value.dtype, value.low, value.high]
    if isinstance(value, spaces.Space) and not isinstance(value, Mapping):
        return [repr(value)]
    if isinstance(value, Mapping):
        return [len(value), *(part for pair in value.items() for part in pair)]
    if isinstance(value, set | frozenset):
        return sorted(map(digest, value))
    if isinstance(value, tuple | list):
        return [len(value), *value]
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, types.FunctionType):
        return _of_function(value)
    if isinstance(value, types.CodeType):
        return [value.co_code, value.co_names, value.co_varnames, value.co_freevars, value.co_consts]
    if isinstance(value, type):
        own = {} if _of_library(value) else {name: part for name, part in vars(value).items() if callable(part)}
        return [*value.__bases__, own] if own else []
    if hasattr(value, "__wrapped__"):  # such as a function that is compiled
        return [value.__wrapped__]
    if isinstance(value, nn.Module):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return [type(value), {name: part for name, part in fields.items() if name != "parent"}]
    return [type(value), _attributes(value)]


def _of_function(function: types.FunctionType) -> list[Any]:
    """Defaults, closure and wrapped function; of a user's function also code and globals."""
    cells = [cell.cell_contents for cell in function.__closure__ or () if cell != types.CellType()]
    held = [function.__defaults__, function.__kwdefaults__, cells, getattr(function, "__wrapped__", None)]
    if _of_library(function):
        return held
    code, known = function.__code__, function.__globals__
    return [*held, code, {name: known[name] for name in sorted(_names(code)) if name in known}]


def _names(code: types.CodeType) -> set[str]:
    inner = (_names(part) for part in code.co_consts if isinstance(part, types.CodeType))
    return set(code.co_names).union(*inner)


def _attributes(value: Any) -> dict[str, Any]:
    """Sorted attributes, without the standard library's, such as locks and loggers."""
    kind = type(value)
    if kind.__module__.partition(".")[0] in sys.stdlib_module_names and kind is not types.SimpleNamespace:
        return {}
    slots = {name for one in kind.__mro__ for name in _listed(vars(one).get("__slots__", ()))}
    held = {name: getattr(value, name) for name in slots if hasattr(value, name)} | getattr(value, "__dict__", {})
    cached = {name for name in held if isinstance(getattr(kind, name, None), functools.cached_property)}
    return {name: held[name] for name in sorted(held) if name not in {"__dict__", "__weakref__"} | cached}


def _listed(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)
