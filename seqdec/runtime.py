"""Settings of JAX: devices, compilation cache, compiler options."""

import contextlib
import functools
import hashlib
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.experimental.compilation_cache import compilation_cache as jax_cache

from seqdec.persistence import check_writable, located

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

UNOPTIMIZED: dict[str, str | bool] = {"xla_backend_optimization_level": "0"}
"""Compiler options of a program called a few times: half the compile time, slower calls."""

UNFUSED: dict[str, str | bool] = {"xla_cpu_use_fusion_emitters": False} if jax.__version_info__ < (0, 11, 1) else {}
"""Compiler options of a program on small arrays: two thirds of the compile time on a CPU; JAX up to 0.11.0.

Rounding may depend on the size of a batch."""


def computed(function: Callable[..., Any], *arguments: Any) -> Any:
    """`function(*arguments)` of NumPy arrays, once; also while tracing."""
    with jax.disable_jit(False):
        return jax.jit(function).lower(*arguments).compile(UNOPTIMIZED)(*arguments)


@functools.cache
def _first_process() -> int:
    return os.getpid()


def is_forked() -> bool:
    """Whether this process was forked after seqdec had computed."""
    return os.getpid() != _first_process()


def check_process() -> None:
    """Raises RuntimeError in a process forked after seqdec had computed: JAX would wait for its threads."""
    if is_forked():
        raise RuntimeError(
            f"process {os.getpid()} was forked from process {_first_process()} after seqdec had computed there, and "
            "JAX does not work in it: make agents, optimizers and environments after the fork (gunicorn: without "
            "--preload), or start processes with the method 'spawn' of multiprocessing"
        )


def alike(tree: T, *others: Any) -> T:
    """`tree`, marked as different on devices of `jax.shard_map` where its arrays or `others` are."""
    if not jax.sharding.get_abstract_mesh().manual_axes:
        return tree
    axes = frozenset().union(*map(_axes, jax.tree.leaves((tree, others))))

    def marked(leaf: Any) -> Any:
        for axis in sorted(axes - _axes(leaf), key=str) if isinstance(leaf, jax.Array) else ():
            leaf = jnp.where(jax.lax.axis_index(axis) < 0, leaf, leaf)
        return leaf

    return jax.tree.map(marked, tree)


def _axes(leaf: Any) -> frozenset[Any]:
    kind: Any = jax.typeof(leaf) if isinstance(leaf, jax.Array) else None
    before = getattr(kind, "vma", frozenset())  # JAX 0.9
    return getattr(getattr(kind, "manual_axis_type", None), "varying", before)


def scan(step: Callable[..., Any], carry: Any, rows: Any) -> tuple[Any, Any]:
    """`jax.lax.scan` over rows that may be random keys, passed as numbers."""

    def is_key(leaf: Any) -> bool:
        return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)

    def again(leaf: Any, bits: Any) -> Any:
        return jax.random.wrap_key_data(bits, impl=jax.random.key_impl(leaf)) if is_key(leaf) else bits

    plain = jax.tree.map(lambda leaf: jax.random.key_data(leaf) if is_key(leaf) else leaf, rows)
    return jax.lax.scan(lambda carry, row: step(carry, jax.tree.map(again, rows, row)), alike(carry, rows), plain)


def is_traced(tree: Any) -> bool:
    """Whether `jax.jit` or another transformation traces this call or the tree."""
    return any(isinstance(leaf, Tracer) for leaf in [jnp.zeros(()), *jax.tree.leaves(tree)])


def is_eager() -> bool:
    """Whether `jax.disable_jit` holds."""
    return jax.config.jax_disable_jit  # pyright: ignore[reportAttributeAccessIssue] (made when JAX is imported)


def ahead(program: Any, *arguments: Any, options: dict[str, str | bool] | None = None) -> Callable[..., Any]:
    """A program of `jax.jit` compiled for arguments or their shapes; unchanged under `jax.disable_jit`."""
    return program if is_eager() else program.lower(*arguments).compile(options)


_programs_lock = threading.Lock()
_programs: dict[tuple[Any, ...], Any] = {}
_pace: dict[bool, float] = {}
"""Seconds that each line of the latest program took to compile, with and without optimization."""
_SLOWER, _CACHED = 2.0, 1e-4
"""Optimized programs by others; seconds a line below which a program was in JAX's cache."""
_PROGRAMS, _LONGEST_TEXT = 16, 2**24
_ELSEWHERE = re.compile(r"callback|infeed|outfeed|stablehlo\.(send|recv)")
"""What the text of a program omits."""


def compile_once(
    lowered: Any,
    options: dict[str, str | bool] | None,
    devices: tuple[Any, ...],
    tell: Callable[[float | None], Any] = lambda seconds: None,
) -> Any:
    """`lowered.compile(options)`, or one of the last 16 programs with its text and devices.

    Calls of Python and constants outside the text are compiled anew; `tell` gets the seconds that this may take.
    """
    text = lowered.as_text()
    elsewhere = getattr(jax.config, "jax_use_simplified_jaxpr_constants", True) or _ELSEWHERE.search(text)
    if elsewhere or len(text) > _LONGEST_TEXT:
        return _compiled(lowered, options, text, tell)
    forms = lowered.in_tree, lowered.out_tree, str(lowered.in_avals), str(lowered.out_info)
    settings = None if options is None else tuple(sorted(options.items()))
    key = (hashlib.sha256(text.encode()).digest(), *forms, settings, devices)
    found = _programs.get(key) or _compiled(lowered, options, text, tell)
    with _programs_lock:
        _programs.pop(key, None)
        _programs[key] = found
        while len(_programs) > _PROGRAMS:
            del _programs[next(iter(_programs))]
    return found


def _compiled(lowered: Any, options: Any, text: str, tell: Callable[[float | None], Any]) -> Any:
    fast, lines = options == UNOPTIMIZED, text.count("\n")
    pace = _pace.get(fast) or _SLOWER * _pace.get(True, 0.0)
    tell(pace * lines or None)
    began = time.perf_counter()
    found = lowered.compile(options)
    if (seconds := time.perf_counter() - began) > _CACHED * lines:
        _pace[fast] = seconds / lines
    return found


def step_options() -> dict[str, str | bool] | None:
    """Compiler options of a program called often: the first level of optimization on a CPU; None: JAX's own.

    A level in XLA_FLAGS takes precedence.
    """
    if jax.default_backend() != "cpu" or "xla_backend_optimization_level" in os.environ.get("XLA_FLAGS", ""):
        return None
    return {"xla_backend_optimization_level": "1"}


_blas_lock = threading.Lock()
_blas_limits: list[Any] = []


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """One thread for the BLAS of NumPy, SciPy and XLA's factorizations on a CPU.

    For the whole process, until the last context is left; `seqdec.run` uses it, and own loops of `act` and `update`
    should.
    """
    with _blas_lock:
        _blas_limits.append(None if _blas_limits else _blas().limit(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with _blas_lock:
            if len(_blas_limits) == 1:
                _blas_limits[0].restore_original_limits()
                _blas_limits.clear()
            else:
                _blas_limits.pop()


_turns_lock = threading.Lock()
_turns: list[float] = []
_TURN = 1e-4


@contextlib.contextmanager
def short_turns() -> Iterator[None]:
    """Python's threads switch every 0.1 ms instead of 5 ms, beside calls that must not wait."""
    with _turns_lock:
        _turns.append(sys.getswitchinterval() if not _turns else _turns[0])
        sys.setswitchinterval(min(_TURN, _turns[0]))
    try:
        yield
    finally:
        with _turns_lock:
            before = _turns.pop()
            if not _turns:
                sys.setswitchinterval(before)


@functools.cache
def _blas() -> Any:
    import scipy.linalg  # noqa: F401  (loads the BLAS, for only what is loaded can be limited)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_all_cores() -> None:
    """A JAX device for each core that this process may use: jax_num_cpu_devices = number of cores.

    For the seeds of `seqdec.run`. No effect once JAX has made its devices, or with a number set by jax_num_cpu_devices
    (JAX_NUM_CPU_DEVICES) or --xla_force_host_platform_device_count in XLA_FLAGS.
    """
    chosen = "host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if getattr(jax.config, "jax_num_cpu_devices", 0) < 0 and not chosen:
        with contextlib.suppress(RuntimeError):  # raised if JAX has made its devices
            jax.config.update("jax_num_cpu_devices", available_cores())


def compilation_cache(folder: str | os.PathLike[str] | None = None) -> Path:
    """Keep all programs that JAX compiles from now on in `folder`, for later processes; none is deleted.

    Args:
        folder: created if missing; None: "programs" in the user's cache folder of seqdec.

    Returns the folder. Raises OSError where it cannot be created or written.
    """
    if folder is None:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "seqdec" / "programs"
    path = located(folder)
    check_writable(path)
    with contextlib.suppress(PermissionError):  # another user's, shared with this one
        path.chmod(0o700)  # whoever writes a program there decides what runs
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax_cache.reset_cache()  # JAX decides at its first compilation whether there is a cache
    return path
