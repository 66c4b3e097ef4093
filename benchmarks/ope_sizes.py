"""Seconds and memory of an off-policy evaluation: all standard estimators, with 1,000 bootstrap samples.

python benchmarks/ope_sizes.py [--rows 1000000] [--actions 10]
"""

import argparse
import resource
import time

import numpy as np

from seqdec import ope


def main() -> None:
    """Print times and memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--actions", type=int, default=10)
    options = parser.parse_args()
    rows, actions, rng = options.rows, options.actions, np.random.default_rng(0)
    log = ope.make_log(
        action=rng.integers(actions, size=rows),
        reward=(rng.random(rows) < 0.3) * 1.0,
        propensity=np.full(rows, 1 / actions),
        context=rng.normal(size=(rows, 5)),
        num_actions=actions,
    )
    target = rng.dirichlet(np.ones(actions), size=rows)
    predicted = rng.random((rows, actions))
    start = time.perf_counter()
    table = ope.evaluate(log, target, predicted, seed=0)
    middle = time.perf_counter()
    ope.overlap(log, target)
    end = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{rows:,} rows, {actions} actions: {len(table)} estimates {middle - start:.1f} s, overlap {end - middle:.1f} s"
    )
    print(f"largest resident memory {peak:.1f} GiB")


if __name__ == "__main__":
    main()
