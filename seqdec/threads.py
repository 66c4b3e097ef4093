"""Enough threads for XLA's CPU backend, whatever the machine has.

jaxlib 0.10 spreads a batched factorisation over the backend's thread pool and waits for it on a thread of that same
pool. Independent factorisations that run at once, such as those of two blocks of a belief with the seeds side by side,
can so occupy every thread of a small pool and wait for ever. A pool with more threads than a program has independent
factorisations cannot be filled by them.
"""

import os

_ENOUGH = 8


def widen_pool() -> None:
    """Ask for a pool of at least eight threads unless PJRT_NPROC is set; no effect once JAX has computed anything."""
    known = hasattr(os, "sched_getaffinity")
    available = len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1
    if available < _ENOUGH:
        os.environ.setdefault("PJRT_NPROC", str(_ENOUGH))
