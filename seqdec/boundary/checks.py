"""Numbers, seeds, keys, names and arrays of users, converted or refused."""

import contextlib
import functools
import math
import operator
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from numbers import Real
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from seqdec.registry import unknown

P = ParamSpec("P")
R = TypeVar("R")

TOLERANCE = 1e-5
"""Tolerance of probabilities and their sums, often of float32."""


# Integers, seeds and keys


def count(name: str, value: Any, minimum: int = 1) -> int:
    """`value` as an int. TypeError: no integer, or one of JAX; ValueError: below the minimum."""
    if isinstance(value, jax.Array):
        raise TypeError(
            f"{name} must be a Python integer, because it determines shapes; got {value!r} "
            f"(with optax.inject_hyperparams, name {name!r} among its static_args)"
        )
    number = _index(value)
    if number is None:
        raise TypeError(f"{name} must be an integer; got {value!r:.200}")
    if number < minimum:
        raise ValueError(f"{name} must be at least {minimum}; got {value}")
    return number


def seed(name: str, value: Any) -> int:
    """`value`, an integer or an array () of one, as an int. TypeError: no integer; ValueError: < 0 or >= 2^63."""
    number = _index(value)
    if number is None or not 0 <= number < 2**63:
        kind = TypeError if number is None else ValueError
        raise kind(f"{name} must be an integer from 0 to 2**63 - 1; got {value!r}")
    return number


def seeds(value: Any, number: int) -> range:
    """`number` seeds from `value` on; errors of `seed`."""
    first = seed("seed", value)
    if first + number > 2**63:
        raise ValueError(f"seed must be an integer from 0 to 2**63 - {number} for {number} seeds; got {value!r}")
    return range(first, first + number)


def seed_bits(seed: int) -> np.uint32:
    """32 bits for a key of JAX: the seed itself below 2^32, a digest of it above."""
    return np.uint32(seed if seed < 2**32 else np.random.SeedSequence(seed).generate_state(1)[0])


def _index(value: Any) -> int | None:
    """An integer, or an array () of one; None for all else, bools and traced values too."""
    try:
        is_bool = jnp.issubdtype(getattr(value, "dtype", type(value)), jnp.bool_)
        return None if is_bool or isinstance(value, Tracer) else operator.index(value)
    except TypeError:
        return None


def key(value: Any) -> None:
    """Refuse all but one random key of JAX. TypeError: no key, such as a seed; ValueError: several."""
    shape = _shape_of_keys("key must be a random key", "make one with jax.random.key(seed)", value)
    if shape:
        raise ValueError(f"key must be one random key; got an array of them, of shape {shape}: take one, or jax.vmap")


def keys(value: Any) -> None:
    """Refuse all but a vector of random keys of JAX. TypeError: no keys; ValueError: other axes."""
    shape = _shape_of_keys("keys must be random keys", "make them with jax.random.split(key, count)", value)
    if len(shape) != 1:
        raise ValueError(
            f"keys must be random keys, one for each decision; got shape {shape}: jax.random.split(key, count)"
        )


def _shape_of_keys(wanted: str, how: str, value: Any) -> tuple[int, ...]:
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", ())
    if dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return shape
    if dtype == np.uint32 and shape:
        return shape[:-1]
    raise TypeError(f"{wanted} of JAX; got {value!r:.80}: {how}")


def keyed(function: Callable[P, R]) -> Callable[P, R]:
    """`function` with a check of its first argument, a random key."""

    @functools.wraps(function)
    def checked(*arguments: P.args, **named: P.kwargs) -> R:
        key(arguments[0] if arguments else named["key"])
        return function(*arguments, **named)

    return checked


# Real numbers, which may be traced: of these nothing is known but their shape


def number(name: str, value: Any, low: float = 0.0, high: float = math.inf, *, exclusive: bool = False) -> None:
    """Refuse numbers outside [low, high), or (low, high) if `exclusive` (ValueError), and all else (TypeError)."""
    at = concrete(name, value)
    if at is not None and not ((low < at if exclusive else low <= at) and at < high):
        bracket = "(" if exclusive else "["
        raise ValueError(f"{name} must lie in {bracket}{low:g}, {high:g}); got {value!r}")


def positive(name: str, value: Any) -> None:
    """Refuse numbers not above zero (ValueError); infinity passes."""
    at = concrete(name, value)
    if at is not None and not at > 0:
        raise ValueError(f"{name} must be positive; got {value!r}")


def non_negative(name: str, values: Any, *, max_ndim: int = 0) -> None:
    """Refuse negative or infinite numbers, or more than `max_ndim` axes (ValueError)."""
    at = concrete(name, values, max_ndim)
    if at is not None and not np.all(np.isfinite(at) & (at >= 0)):
        wanted = "a finite number >= 0" if max_ndim == 0 else f"finite numbers >= 0 in at most {max_ndim} axes"
        raise ValueError(f"{name} must be {wanted}; got {values!r}")


def rate(name: str, value: Any) -> None:
    """Refuse what is neither a finite number >= 0 nor a schedule, (step) -> number."""
    if not callable(value):
        number(name, value)


def concrete(name: str, values: Any, max_ndim: int = 0) -> np.ndarray | None:
    """`values` as an array of floats; None if traced.

    Raises:
        TypeError: bools, or no real numbers of JAX.
        ValueError: more than `max_ndim` axes.
    """
    array = as_array(name, values)
    if array.ndim == 0 and not isinstance(values, int | float | np.generic | np.ndarray | jax.Array):
        raise TypeError(
            f"{name} must be a number of Python, NumPy or JAX; got {values!r:.200}: convert it with float()"
        )
    if array.dtype == bool:
        raise TypeError(f"{name} must be {'a number' if max_ndim == 0 else 'numbers'}; got {values!r}")
    if array.ndim > max_ndim:
        wanted = "one number" if max_ndim == 0 else f"numbers in at most {max_ndim} axes"
        raise ValueError(f"{name} must be {wanted}; got shape {array.shape}")
    return None if isinstance(array, Tracer) else np.asarray(array, float)


def real(name: str, value: Any) -> float:
    """A number, or an array of one, as a float. TypeError: not one real number, or text."""
    if not is_number(value):
        try:
            array = as_array(name, value)
        except (TypeError, ValueError):
            array = np.array(())
        if array.size != 1:
            raise TypeError(f"{name} must be a number; got {value!r:.200}")
        value = array.reshape(())
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} must be a number that a float can hold; got an integer above 1e308") from None


def is_number(value: Any) -> bool:
    """Whether it is one real number or a bool, not a duration of NumPy."""
    return isinstance(value, Real | np.bool_) and not isinstance(value, np.timedelta64)


# Switches, names and lists


def flag(name: str, value: Any) -> bool:
    """`value` as a bool. TypeError: not True or False."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False; got {value!r}")
    return bool(value)


def choice(name: str, value: Any, known: Collection[str]) -> None:
    """Refuse a value that is not `known` (ValueError, with the closest one)."""
    if value not in known:
        raise ValueError(unknown(name, value, known))


def ordered(name: str, values: Any, kind: str) -> list[Any]:
    """The items of an ordered container. TypeError, naming the `kind`: no order."""
    is_text, is_set = isinstance(values, str | bytes), isinstance(values, set | frozenset)
    if is_text or is_set or not isinstance(values, Iterable):
        remedy = f": [{values!r:.80}]" if is_text else ": their order counts, sort them, as with sorted()" * is_set
        raise TypeError(f"{name} must be {kind}; got {values!r:.80}{remedy}")
    return list(values)


# Arrays

_PLAIN = frozenset(map(np.dtype, "?bhilqBHILQefd"))


def as_array(name: str, values: Any) -> Any:
    """Real numbers in any container as an array, in order.

    Arrays of JAX and traced values stay; lists, columns and tables of pandas, Polars and Arrow, sparse arrays of SciPy
    and arrays of any byte order become arrays of NumPy, or of JAX with traced values inside.

    Raises:
        TypeError: text, missing entries, masks, or anything but real numbers.
        ValueError: rows of different lengths.
    """
    if (
        is_real(values.dtype)
        if isinstance(values, jax.Array)
        else type(values) is np.ndarray and values.dtype in _PLAIN
    ):
        return values
    values = dense(name, values)
    parts = list(_parts(values))
    for part in parts:
        _refuse_mask(name, part)
        if _has_missing(part):
            raise TypeError(f"{name} must hold real numbers; got missing entries: fill them, or drop their rows")
    try:
        if any(isinstance(part, Tracer) for part in parts):
            values = jnp.asarray(values)
        array: Any = values if isinstance(values, jax.Array) else np.asarray(values)
        if array.dtype == object and array.ndim == 2 and hasattr(values, "iloc"):  # pandas: columns of several dtypes
            columns = getattr(values, "items")()  # noqa: B009 (unknown to type checkers)
            array = np.stack([np.asarray(column) for _, column in columns], axis=1)
        if array.dtype == object:
            array = _unpacked(name, array)
    except ValueError:
        raise ValueError(f"{name} must hold rows of equal lengths; got {values!r:.200}") from None
    except np.exceptions.DTypePromotionError:  # such as numbers and dates
        array = np.asarray(None)
    if not is_real(array.dtype):
        remedy = "convert it, as with float() or astype(float)"
        if array.dtype.names is not None:
            remedy = "convert it, as with numpy.lib.recfunctions.structured_to_unstructured()"
        elif _has_names(values):
            remedy = "encode rows of named columns, as with seqdec.features.Encoder, which OnlineAgent and Catalog take"
        raise TypeError(f"{name} must hold real numbers; got {values!r:.200}: {remedy}")
    if isinstance(array, jax.Array):
        return array
    return array.astype(np.float64 if array.dtype == np.longdouble else array.dtype.newbyteorder("="), copy=False)


def entries(name: str, values: Any, dtype: Any = None) -> np.ndarray:
    """Numbers, text or dates in a container as an array. TypeError: masked arrays or entries."""
    for part in _parts(values):
        _refuse_mask(name, part)
    try:
        return np.asarray(values, dtype)
    except ValueError:
        if dtype is not None:
            raise
        raise ValueError(f"{name} must hold rows of equal lengths; got {values!r:.200}") from None


def _refuse_mask(name: str, part: Any) -> None:
    if isinstance(part, np.ma.MaskedArray):
        raise TypeError(f"{name} must be an array without a mask; got {part!r:.200}: fill it, as with filled()")


def _has_names(values: Any) -> bool:
    first = values[0] if isinstance(values, list | tuple) and values else values
    return isinstance(first, Mapping) or hasattr(first, "columns")


def _parts(values: Any) -> Iterator[Any]:
    if isinstance(values, list | tuple):
        for value in values:
            if not isinstance(value, int | float):
                yield from _parts(value)
    else:
        yield values


def _has_missing(values: Any) -> bool:
    """Whether a column or table of pandas, Polars or Arrow has missing entries, which become NaN in NumPy."""
    nulls: Any = getattr(values, "null_count", None)
    if nulls is not None:  # a column of Arrow or a part of one, or anything of Polars
        inner = getattr(values, "chunks", [values.flatten()] if hasattr(values, "value_lengths") else [])
        return bool(np.asarray(nulls() if callable(nulls) else nulls).any()) or any(map(_has_missing, inner))
    if getattr(values, "ndim", 0) == 2 and hasattr(values, "iloc"):
        return any(_has_missing(column) for _, column in getattr(values, "items")())  # noqa: B009 (as above)
    if hasattr(values, "column_names"):  # a table of Arrow
        return any(map(_has_missing, values.columns))
    return hasattr(values, "isna") and not isinstance(values.dtype, np.dtype) and bool(values.isna().any())


def _unpacked(name: str, array: np.ndarray) -> np.ndarray:
    """Real numbers, or rows of them, out of an array of objects; other arrays stay."""
    items = [item.as_py() if hasattr(item, "as_py") else item for item in array.ravel().tolist()]  # scalars of Arrow
    if items and all(map(is_number, items)):
        return np.array(items).reshape(array.shape)
    if items and all(isinstance(item, list | tuple | np.ndarray) for item in items):
        rows = np.stack([as_array(name, item) for item in items])
        return rows.reshape(*array.shape, *rows.shape[1:])
    return array


def is_real(dtype: Any) -> bool:
    """Whether a dtype is of real numbers, integers or bools."""
    kinds = jnp.floating, jnp.integer, jnp.bool_
    return any(jnp.issubdtype(dtype, kind) for kind in kinds) and not jnp.issubdtype(dtype, np.timedelta64)


def is_sparse(values: Any) -> bool:
    """Whether it is a sparse array or matrix of SciPy."""
    module = sys.modules.get("scipy.sparse")
    return module is not None and module.issparse(values)


def dense(name: str, values: Any) -> Any:
    """A sparse array, or a list of sparse rows of one length, as a NumPy array; all else stays."""
    if is_sparse(values):
        return values.toarray()
    if isinstance(values, list | tuple) and values and all(map(is_sparse, values)):
        lengths = [row.shape[-1] for row in values]
        if len(set(lengths)) > 1:
            raise ValueError(f"{name} must hold sparse rows of equal lengths; got {', '.join(map(str, lengths[:12]))}")
        return np.concatenate([np.atleast_2d(row.toarray()) for row in values])
    return values


def only_row(values: Any) -> Any:
    """A sparse matrix of one row as this row; all else stays."""
    single = is_sparse(values) and values.ndim == 2 and values.shape[0] == 1
    return values.toarray()[0] if single else values


def array(name: str, values: Any, ndim: int, low: float = -math.inf, high: float = math.inf) -> jax.Array:
    """A float32 copy of `values`.

    Raises:
        TypeError: bools, or no real numbers.
        ValueError: empty, without `ndim` axes, not finite, or outside [low, high].
    """
    given = as_array(name, values)
    if given.dtype == bool:
        raise TypeError(f"{name} must hold numbers; got {values!r:.200}")
    numbers = np.array(given, np.float32)
    if numbers.ndim != ndim or numbers.size == 0:
        raise ValueError(f"{name} must be a non-empty array with {ndim} axes; got shape {numbers.shape}")
    if not np.all(np.isfinite(numbers) & (numbers >= low) & (numbers <= high)):
        raise ValueError(f"{name} must be finite numbers from {low} to {high}; got {numbers.tolist()}")
    return jnp.asarray(numbers)


def one_array(name: str, values: Any) -> Any:
    """`numbers` of one array or number. TypeError: a tree such as a dict."""
    array = numbers(name, values)
    if not isinstance(array, int | float | np.ndarray | jax.Array):
        raise TypeError(f"{name} must be one array of numbers; got {values!r:.200}")
    return array


def integers(name: str, values: Any) -> jax.Array:
    """`values` as an integer array of JAX. TypeError: other numbers; ValueError: too large."""
    try:
        given = as_array(name, values)
    except TypeError:
        given = np.array(np.nan)
    if not jnp.issubdtype(given.dtype, jnp.integer):
        raise TypeError(f"{name} must hold integers, which count from 0; got {values!r:.200}")
    return jnp.asarray(numbers(name, given))


def indices(name: str, values: Any, size: int, of: str) -> None:
    """Refuse indices outside [0, size), naming what they are `of` (ValueError); traced ones pass."""
    if isinstance(values, Tracer):
        return
    known = np.asarray(as_array(name, values))
    outside = known[(known < 0) | (known >= size)]
    if outside.size:
        raise ValueError(f"{name} must hold indices of the {size} {of}, from 0 to {size - 1}; got {outside.ravel()[0]}")


# Trees of arrays


def numbers(name: str, values: Any) -> Any:
    """A tree of numbers with arrays for its leaves, containers of any kind; single numbers stay.

    Lists and tuples of numbers are leaves; those of arrays, and named tuples, are parts of the tree.

    Raises:
        TypeError: a leaf that is not real numbers; or no leaf.
        ValueError: a ragged list, or an integer beyond JAX's default integers.
    """
    leaves, structure = jax.tree.flatten(values, is_leaf=_is_list)
    if not leaves:
        raise TypeError(f"{name} must hold numbers; got {values!r}")
    return structure.unflatten([_leaf(name, leaf) for leaf in leaves])


def _is_list(value: Any) -> bool:
    """Whether a value is a list or tuple of numbers, perhaps nested, or an iterator, which is refused later."""
    if isinstance(value, Iterator):
        return True
    if not isinstance(value, list | tuple) or hasattr(value, "_fields"):
        return False
    leaves = jax.tree.leaves(value)
    return bool(leaves) and all(np.ndim(leaf) == 0 for leaf in leaves)


def _leaf(name: str, value: Any) -> Any:
    array = as_array(name, value)
    if isinstance(array, np.ndarray) and array.dtype.kind in "iu" and array.dtype.itemsize > 4 and array.size:
        limits = jnp.iinfo(jax.dtypes.canonicalize_dtype(int))
        if array.min() < limits.min or array.max() > limits.max:
            raise ValueError(f"{name} must hold integers of at most {limits.bits} bits; got {value!r}: pass floats")
    return value if isinstance(value, int | float) else array


def refuse_misfit(error: Exception, value: Any, like: Callable[[], Any], otherwise: str, remedy: str) -> None:
    """Raise TypeError from an error, if keys or shapes of a tree are others.

    Args:
        error: of the tree.
        value: the tree.
        like: () -> a right tree or its shapes.
        otherwise: what is wrong, such as "state is not one of this agent".
        remedy: what to pass.
    """
    found = None
    with contextlib.suppress(Exception):  # of the user's code
        found = _difference(like(), value)
    if found is not None:
        place, wanted, given = found
        raise TypeError(
            f"{otherwise}: got {type(value).__name__}, where {place or 'the whole'} has {given} in place of {wanted}: "
            f"{remedy}"
        ) from error


def _difference(wanted: Any, given: Any, place: str = "") -> tuple[str, str, str] | None:
    """Where two trees first differ, and how."""
    parts, others = _parts_by_key(wanted), _parts_by_key(given)
    if parts is None or others is None:
        differ = not (parts is others and np.shape(wanted) == np.shape(given))
        return (place, _described(wanted, parts), _described(given, others)) if differ else None
    if parts.keys() != others.keys():
        return place, _described(wanted, parts), _described(given, others)
    found = (_difference(part, others[key], place + key) for key, part in parts.items())
    return next((difference for difference in found if difference is not None), None)


def _parts_by_key(tree: Any) -> dict[str, Any] | None:
    """The parts one level down, by their keys; None for a leaf."""
    parts = jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda part: part is not tree)
    return None if parts and not parts[0][0] else {jax.tree_util.keystr(path): part for path, part in parts}


def _described(tree: Any, parts: Mapping[str, Any] | None) -> str:
    if parts is not None:
        return f"{type(tree).__name__}({', '.join(parts)})"
    return f"shape {np.shape(tree)}" if hasattr(tree, "shape") or is_number(tree) else type(tree).__name__
