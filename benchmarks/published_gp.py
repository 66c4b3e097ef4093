"""The Gaussian process of the published Bayesian optimization with other length scales.

    python benchmarks/published_gp.py [--functions hartmann6 ackley5] [--lengths 0.1 0.3] [--seeds 10]

The paper states the length scale 0.1, but not for which units of the inputs; here they are scaled to the unit cube.
"""

from typing import Any

from harness import command, interval, table

from reproduction.bo import PROBLEMS, _run, _settings


def main(
    functions: tuple[str, ...] = ("hartmann6", "ackley5"), lengths: tuple[float, ...] = (0.1, 0.3), seeds: int = 10
) -> None:
    """Print the smallest value found, mean over runs.

    Args:
        functions: of `seqdec run bo`.
        lengths: length scales.
        seeds: runs of each.
    """
    row = table("length scale", *functions)
    for length in lengths:
        settings: Any = _settings("gp.published")
        settings["surrogate_options"]["length_scale"] = length
        found = []
        for name in functions:
            problem = PROBLEMS[name]
            runs = (_run(problem.build(), problem.evaluations, "gp.published", settings, seed) for seed in range(seeds))
            found.append(interval([values.min() for values, _ in runs]))
        row(length, *found)


if __name__ == "__main__":
    command(main)
