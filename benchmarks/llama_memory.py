"""GiB of the parameters and the state of LLaMA at two bytes for each number, beside the paper of Alice (its Table 3).

    python benchmarks/llama_memory.py

From the shapes of the states; the last layer is trained by Adam. The paper counts r^2 of Alice at four bytes.
"""

from typing import Any

import jax
import jax.numpy as jnp
from harness import command, table

from seqdec import optim

LLAMA = {
    "60M": (512, 1376, 8, 128),
    "130M": (768, 2048, 12, 256),
    "350M": (1024, 2736, 24, 256),
    "1.3B": (2048, 5461, 24, 512),
}
"""Width, width of the MLP, layers, and the authors' rank."""
VOCABULARY = 32_000
MEMORY = {
    "adam": (0.32, 0.75, 2.05, 7.48),
    "fira": (0.26, 0.57, 1.29, 4.43),
    "apollo, mini": (0.23, 0.43, 0.93, 2.98),
    "apollo, svd": (0.26, 0.57, 1.29, 4.43),
    "racs": (0.23, 0.43, 0.93, 2.98),
    "alice_0": (0.26, 0.57, 1.29, 4.44),
    "alice": (0.26, 0.59, 1.33, 4.60),
}
"""Table 3, last layer by Adam, in GiB."""


def llama(size: str) -> dict[str, Any]:
    """Shapes of the parameters."""
    width, inner, layers, _ = LLAMA[size]
    attention = dict.fromkeys(("query", "key", "value", "merge"), (width, width))
    layer = attention | {"gate": (width, inner), "up": (width, inner), "down": (inner, width)}
    layer |= {"norm_0": (width,), "norm_1": (width,)}
    shapes: dict[str, Any] = {f"layer_{index}": layer for index in range(layers)}
    shapes |= {"embed": (VOCABULARY, width), "head": (width, VOCABULARY), "norm": (width,)}
    return jax.tree.map(
        lambda shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16), shapes, is_leaf=lambda leaf: isinstance(leaf, tuple)
    )


def main() -> None:
    """Print the table, here / paper."""
    row = table("", *LLAMA)
    for name, published in MEMORY.items():
        cells = []
        for size, figure in zip(LLAMA, published, strict=True):
            params, rank = llama(size), LLAMA[size][-1]
            numbers = sum(leaf.size for leaf in jax.tree.leaves(params))
            state = 2 * numbers if name == "adam" else _state_numbers(name, params, rank)
            cells.append(f"{2 * (numbers + state) / 2**30:.2f} / {figure:.2f}")
        row(name, *cells)


def _state_numbers(name: str, params: Any, rank: int) -> int:
    name, _, kind = name.partition(", ")
    settings: dict[str, Any] = {} if name == "racs" else {"rank": 1 if kind == "mini" else rank}
    settings |= {"projection": "svd"} if kind == "svd" else {}
    return int(optim.explain(optim.REGISTRY[name], params, **settings)["state_bytes"].sum()) // 4


if __name__ == "__main__":
    command(main)
