"""How much longer memory takes to read again when it has been left alone for a while.

    python benchmarks/caches.py

A filter reads its basis some times in a millisecond. Where the processor's caches are this program's own, a basis that
fits into them stays there; on a server that others use too they push it out meanwhile, and `seqdec bench filters`
finds the filters slower than elsewhere. The boxes, whose products of matrices wait for arithmetic, suffer less.
"""

import time

import numpy as np
from threadpoolctl import threadpool_limits

MEGABYTES = 0.5, 2, 6
PAUSES = 0.0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2
READS = 400


def seconds(matrix, vector, pause: float) -> float:
    """Median time of a read of the matrix, `pause` seconds after the one before; the program does not sleep."""
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
    with threadpool_limits(1, user_api="blas"):
        for megabytes in MEGABYTES:
            matrix, vector = np.ones((int(megabytes * 1e6 / 256), 64), np.float32), np.ones(64, np.float32)
            at_once, *later = (seconds(matrix, vector, pause) for pause in PAUSES)
            ratios = ", ".join(f"{t / at_once:.2f} after {1e3 * p:g}" for t, p in zip(later, PAUSES[1:], strict=True))
            print(f"{megabytes:3g} MB: {1e6 * at_once:4.0f} us at once; ms later, times as long: {ratios}", flush=True)
