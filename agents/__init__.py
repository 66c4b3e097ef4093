"""Learners that act: a filter joined with a policy, or a network with an optimizer."""

if __name__ != "seqdec.agents":
    raise ImportError(f"import this package as seqdec.agents, not as {__name__}; is the repository's root on sys.path?")

from seqdec.agents.auto import auto
from seqdec.agents.averaging import averaging
from seqdec.agents.ensemble import members_head
from seqdec.agents.filtering import filtering
from seqdec.agents.laplace import laplace
from seqdec.agents.linear import linear
from seqdec.agents.networks import scorer
from seqdec.agents.neural import neural
from seqdec.agents.neural_linear import neural_linear_head
from seqdec.agents.presets import REGISTRY, ekf, from_filter, hilofi, lofi, lolofi, lrkf, make, names, subspace
from seqdec.agents.recommender import popularity, random
from seqdec.agents.rehearsal import Rehearsal, rehearsing
from seqdec.agents.vbll import variational

__all__ = [
    "REGISTRY",
    "Rehearsal",
    "auto",
    "averaging",
    "ekf",
    "filtering",
    "from_filter",
    "hilofi",
    "laplace",
    "linear",
    "lofi",
    "lolofi",
    "lrkf",
    "make",
    "members_head",
    "names",
    "neural",
    "neural_linear_head",
    "popularity",
    "random",
    "rehearsing",
    "scorer",
    "subspace",
    "variational",
]
