"""How much slower a read of memory becomes when the memory was unused for a while.

    python benchmarks/caches.py

A filter reads its basis twice per step, that is, every few milliseconds. A basis that fits into the processor's caches
stays there, unless other programs on a shared server evict it between two reads; then `seqdec bench filters` measures
slower filters. The algorithm boxes, which are limited by arithmetic, are affected less.
"""

import time

import numpy as np

from seqdec.runtime import one_blas_thread

MEGABYTES = 0.5, 2, 6
PAUSES = 0.0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2
READS = 400


def seconds(matrix, vector, pause: float) -> float:
    """Median time of a matrix-vector product, `pause` seconds after the last one; the program waits in a busy loop."""
    times = []
    for _ in range(READS):
        began = time.perf_counter()
        while time.perf_counter() - began < pause:
            pass
        began = time.perf_counter()
        matrix @ vector
        times.append(time.perf_counter() - began)
    return float(np.median(times))


if __name__ == "__main__":
    with one_blas_thread():
        for megabytes in MEGABYTES:
            matrix, vector = np.ones((int(megabytes * 1e6 / 256), 64), np.float32), np.ones(64, np.float32)
            at_once, *later = (seconds(matrix, vector, pause) for pause in PAUSES)
            ratios = ", ".join(f"{t / at_once:.2f} after {1e3 * p:g}" for t, p in zip(later, PAUSES[1:], strict=True))
            print(
                f"{megabytes:3g} MB: {1e6 * at_once:4.0f} us without a pause; ratio after a pause in ms: {ratios}",
                flush=True,
            )
