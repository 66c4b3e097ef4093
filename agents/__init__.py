"""Learners that act: a filter joined with a policy, or a network with an optimizer.

    auto                        the default
    linear                      rewards linear in contexts or features: a tenth of the time of auto
    pooled                      the same for hundreds of actions and more, which learn from each other
    hashed                      the same for 100,000 hashed numbers and more; only the nonzero ones cost time
    hilofi, lrkf, lolofi, lofi  networks learned by one Kalman step per reward, without a memory of observations
    ekf                         the same with a full covariance, for small models; process_noise follows a drift
    subspace                    a Kalman filter in a random subspace of the weights
    popularity                  the best item for all users
    random                      uniform, with known propensities

Baselines of the papers, trained on a memory:

    adamw, muon, koala++        a network and its optimizer, epsilon-greedy
    replay_*                    the same on minibatches of all observations, without uncertainty
    last_layer_laplace          a belief over the last layer of a trained network by its curvature
    neural_linear               the same by Bayesian linear regression
    vbll, on_vbll               the same by variational inference, on a memory and online
    ensemble                    networks trained on bootstrap samples
    gp                          a Gaussian process on the last observations, for few, expensive decisions

`capabilities(name)` lists the spaces of each. `agent` builds one from any `seqdec.core.Learner` and policy,
`from_filter` from a filter, `neural` from a network and an optimizer. Wrappers for any of them: `exploring` adds a
propensity floor that falls with time, `guarded` bounds each arm's share, `conservative` guarantees a share of a control
arm's reward.
"""

if __name__ != "seqdec.agents":
    raise ImportError(f"import this package as seqdec.agents, not as {__name__}; is the repository's root on sys.path?")

from typing import TYPE_CHECKING

from seqdec.agents._gp import gp
from seqdec.agents._neural.ensemble import ensemble, members_head
from seqdec.agents._neural.laplace import laplace, last_layer_laplace
from seqdec.agents._neural.loop import neural
from seqdec.agents._neural.neural_linear import neural_linear, neural_linear_head
from seqdec.agents._neural.vbll import on_vbll, variational, vbll
from seqdec.agents.assembly import agent
from seqdec.agents.filtered import ekf, from_filter, hilofi, lofi, lolofi, lrkf, subspace
from seqdec.agents.networks import scorer
from seqdec.agents.recommender import popularity, random
from seqdec.agents.registry import REGISTRY, Capabilities, capabilities, make, names
from seqdec.agents.regression.auto import auto
from seqdec.agents.regression.hashed import hashed
from seqdec.agents.regression.linear import linear
from seqdec.agents.regression.pooled import pooled
from seqdec.agents.trained import (
    adamw,
    koala_plus_plus,
    muon,
    replay_adamw,
    replay_koala_plus_plus,
    replay_muon,
    replay_sgd,
)
from seqdec.agents.wrappers.averaging import averaging
from seqdec.agents.wrappers.conservative import conservative
from seqdec.agents.wrappers.exploring import exploring
from seqdec.agents.wrappers.guarded import guarded
from seqdec.agents.wrappers.rehearsal import Rehearsal, rehearsing

__all__ = [
    "REGISTRY",
    "Capabilities",
    "Rehearsal",
    "adamw",
    "agent",
    "auto",
    "averaging",
    "capabilities",
    "conservative",
    "ekf",
    "ensemble",
    "exploring",
    "from_filter",
    "gp",
    "guarded",
    "hashed",
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
    "pooled",
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

if not TYPE_CHECKING:

    def __getattr__(name: str):
        """A registered agent by its name."""
        if name in REGISTRY.own():
            return REGISTRY[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
