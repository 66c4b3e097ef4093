"""What holds for every surrogate."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import seqdec
from seqdec.bo.acquisition.feasibility import Incumbent
from seqdec.bo.acquisition.names import is_smooth, make
from seqdec.bo.acquisition.names import names as acquisition_names
from seqdec.bo.model import Trials
from seqdec.bo.search import ascent
from seqdec.bo.search.ascent import Plan
from seqdec.bo.search.candidates import Region, Search
from seqdec.bo.surrogates import contract as surrogates
from seqdec.bo.surrogates.contract import History
from seqdec.testing import check_surrogate

LEARNING: dict[str, dict[str, Any]] = {
    "hilofi": {"units": 64},
    "hilofi_mlp": {"features": (20, 20), "rank": 20},
    "last_layer_laplace": {"features": (20, 20)},
    "lofi": {"features": (20, 20), "rank": 20},
    "lolofi": {"features": (20, 20), "rank_hidden": 20, "rank_last": 21},
    "lrkf": {"features": (20, 20), "rank": 20},
    "on_vbll": {"features": (20, 20)},
    "vbll": {"features": (20, 20)},
}
SMALL: dict[str, dict[str, Any]] = {
    "ekf": {"features": (4,)},
    "hilofi": {"units": 8},
    "hilofi_mlp": {"features": (4,), "rank": 2},
    "last_layer_laplace": {"features": (4,), "inner_steps": 2},
    "lofi": {"features": (4,), "rank": 2},
    "lolofi": {"features": (4,), "rank_hidden": 2, "rank_last": 2},
    "lrkf": {"features": (4,), "rank": 2},
    "on_vbll": {"features": (4,), "inner_steps": 2},
    "vbll": {"features": (4,), "inner_steps": 2},
}
NAMES = sorted(surrogates.names(), key=lambda name: (name not in surrogates.REGISTRY.own(), name))
"""Those of others last."""


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in surrogates.REGISTRY.own() else pytest.mark.extended) for n in NAMES]
)
def test_every_surrogate_learns_a_function(name: str) -> None:
    check_surrogate(lambda dim: surrogates.make(name, dim, **LEARNING.get(name, {})))
    if name in surrogates.REGISTRY.own():
        assert getattr(seqdec.bo, name) is surrogates.REGISTRY[name]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", NAMES)
def test_every_acquisition_is_climbed_on_every_surrogate(name: str) -> None:
    """Traced only: compiled, each would take a second."""
    surrogate, search = surrogates.make(name, 3, **SMALL.get(name, {})), Search(2, 2, 3)
    dtype = surrogate.dtype
    points = np.zeros((2, 3), dtype)
    with jax.enable_x64(dtype == jnp.float64):
        known = History(np.zeros((64, 3), dtype), np.zeros(64, dtype), np.int32(40))
        state = surrogate.init(jax.random.key(0), known)
        trials = Trials(known.x, known.y, known.filled, np.int32(0), np.int32(0))
        arguments = jax.random.key(1), state, Incumbent(*np.zeros(2, dtype)), trials
        for acquisition in map(make, acquisition_names()):
            smooth = is_smooth(acquisition(Incumbent(*jnp.zeros(2))))
            plan = Plan(surrogate, acquisition, smooth, search)
            assert ascent.score.eval_shape(plan, *arguments, points).shape == (2,)
            if smooth:
                region, free = Region(np.zeros(3, dtype), np.ones(3, dtype)), np.ones((2, 3), bool)
                top, _ = ascent.climb.eval_shape(plan, *arguments, region, points, free)
                assert top.shape == (2, 3)
