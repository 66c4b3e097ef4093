"""Learners that act: a filter joined with a policy, or a network with an optimizer."""

if __name__ != "seqdec.agents":
    raise ImportError(f"import this package as seqdec.agents, not as {__name__}; is the repository's root on sys.path?")

from seqdec.agents._auto import auto
from seqdec.agents._averaging import averaging
from seqdec.agents._ensemble import ensemble, members_head
from seqdec.agents._filtering import filtering
from seqdec.agents._gp import gp
from seqdec.agents._laplace import laplace, last_layer_laplace
from seqdec.agents._linear import linear
from seqdec.agents._neural import neural
from seqdec.agents._neural_linear import neural_linear, neural_linear_head
from seqdec.agents._vbll import on_vbll, variational, vbll
from seqdec.agents.networks import scorer
from seqdec.agents.presets import (
    adamw,
    ekf,
    from_filter,
    hilofi,
    koala_plus_plus,
    lofi,
    lolofi,
    lrkf,
    muon,
    replay_adamw,
    replay_koala_plus_plus,
    replay_muon,
    replay_sgd,
    subspace,
)
from seqdec.agents.recommender import popularity, random
from seqdec.agents.registry import REGISTRY, Capabilities, capabilities, make, names
from seqdec.agents.rehearsal import Rehearsal, rehearsing

__all__ = [
    "REGISTRY",
    "Capabilities",
    "Rehearsal",
    "adamw",
    "auto",
    "averaging",
    "capabilities",
    "ekf",
    "ensemble",
    "filtering",
    "from_filter",
    "gp",
    "hilofi",
    "koala_plus_plus",
    "laplace",
    "last_layer_laplace",
    "linear",
    "lofi",
    "lolofi",
    "lrkf",
    "make",
    "members_head",
    "muon",
    "names",
    "neural",
    "neural_linear",
    "neural_linear_head",
    "on_vbll",
    "popularity",
    "random",
    "rehearsing",
    "replay_adamw",
    "replay_koala_plus_plus",
    "replay_muon",
    "replay_sgd",
    "scorer",
    "subspace",
    "variational",
    "vbll",
]
