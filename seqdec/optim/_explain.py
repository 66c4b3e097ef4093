"""Table of what an optimizer does with each parameter."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import optax

from seqdec.core import PyTree
from seqdec.optim.common import Mask, mask_tree
from seqdec.optim.groups import axes_of, leaf_names, partition, resolved

if TYPE_CHECKING:
    import pandas as pd

_HEAVY = 4


def explain(
    optimizer: str | Callable[..., optax.GradientTransformationExtraArgs], params: PyTree, **settings: Any
) -> pd.DataFrame:
    """Table of an optimizer's parameters, with a row for shared state.

    Warns of matrices whose state is more than four times that of AdamW, which their reading may explain.

    Args:
        optimizer: function of this package, such as `seqdec.optim.alice`, or its name.
        params: parameters, or their shapes as from `jax.eval_shape`.
        settings: settings of the optimizer, except its learning rate.

    Returns:
        By path of the parameter: `shape`; `group`, as in `partition`; `reading`, "matrix m x n" (inputs x outputs) or
            "k matrices m x n"; `rule`, the name of the optimizer, "Adam", or "rest" if given; `rank` and `rms`, if any;
            `decay`, by `weight_decay`; `state_bytes`.

    Raises:
        TypeError, ValueError: `optimizer` is not an optimizer of this package, or not the name of one.
    """
    import pandas as pd

    from seqdec.optim import REGISTRY  # which is made from all modules of this package

    name = optimizer if isinstance(optimizer, str) else next((n for n in REGISTRY if REGISTRY[n] is optimizer), None)
    if name is None:
        raise TypeError(
            "explain takes an optimizer of seqdec.optim that has not been called, and its settings, such as "
            f"explain(optim.alice, params, rank=8); got {optimizer!r:.80}"
        )
    optimizer = REGISTRY[name]
    parameters = inspect.signature(optimizer).parameters
    given = {key: settings.get(key, value.default) for key, value in parameters.items()}
    state = jax.eval_shape(optimizer(0.0, **settings).init, params)
    paths, leaves = zip(*jax.tree_util.tree_flatten_with_path(params)[0], strict=True)
    sizes = _state_bytes(state, paths)
    readings, ranks = _readings(params, given)
    other = "Adam" if given.get("rest") is None else "rest"
    table = pd.DataFrame(
        {
            "shape": [np.shape(leaf) for leaf in leaves],
            "group": jax.tree.leaves(partition(params)),
            "reading": readings,
            "rule": [name if reading or "rest" not in given else other for reading in readings],
            "rank": pd.array(ranks, "Int64"),
            "rms": pd.array([given["rms"] if reading else None for reading in readings], "Float64"),
            "decay": _decays(params, given["weight_decay"], given["mask"]) if "mask" in given else False,
            "state_bytes": sizes[:-1],
        },
        index=pd.Index(leaf_names(params), name="parameter"),
    )
    shares = table.state_bytes / [8 * max(1, math.prod(shape)) for shape in table["shape"]]
    heavy = shares[(table.reading != "") & (shares > _HEAVY)]
    if len(heavy):
        warnings.warn(
            f"states above {_HEAVY} times AdamW's: {len(heavy)} parameters, above all {heavy.idxmax()!r}, read as "
            f"{table.reading[heavy.idxmax()]}, with {heavy.max():.1f} times. Name the axes of stacked layers with "
            "matrices=functools.partial(optim.matrix_axes, scanned=...), or lower max_side",
            stacklevel=2,
        )
    table.loc["(shared)"] = [(), "", "", "", pd.NA, pd.NA, False, sizes[-1]]
    return table


def _readings(params: PyTree, given: dict[str, Any]) -> tuple[list[str], list[int | None]]:
    """Reading and rank of each parameter."""
    if "matrices" not in given:
        count = len(jax.tree.leaves(params))
        return [""] * count, [None] * count
    axes = resolved(params, given["matrices"])
    readings, ranks = [], []
    for leaf, own in zip(jax.tree.leaves(params), jax.tree.structure(params).flatten_up_to(axes), strict=True):
        stack, *sides = axes_of(leaf, own)[0].sizes(np.shape(leaf)) if own else (0,)
        several = f"{stack} matrices" if stack > 1 else "matrix"
        readings.append(f"{several} {' x '.join(map(str, sides))}" if own else "")
        ranks.append(min(given["rank"], *sides) if own and "rank" in given else None)
    return readings, ranks


def _decays(params: PyTree, weight_decay: Any, mask: Mask | None) -> list[bool]:
    if isinstance(weight_decay, int | float) and not weight_decay:
        return [False] * len(jax.tree.leaves(params))
    tree = True if mask is None else mask_tree(mask, params)
    whole = jax.tree.map(lambda kept, part: jax.tree.map(lambda _: bool(kept), part), tree, params)
    return jax.tree.leaves(whole)


def _state_bytes(state: PyTree, paths: tuple[tuple, ...]) -> list[int]:
    """Bytes by parameter, whose path ends that of its state, and of the rest."""
    places = {path: place for place, path in enumerate(paths)}
    sizes = [0] * (len(paths) + 1)
    for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]:
        tails = (path[start:] for start in range(len(path) + 1))
        sizes[next((places[tail] for tail in tails if tail in places), -1)] += (
            math.prod(leaf.shape) * leaf.dtype.itemsize
        )
    return sizes
