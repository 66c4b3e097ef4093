"""Off-policy evaluation: the value of a policy, estimated from the log of another."""

from seqdec.ope.estimators import (
    ESTIMATORS,
    REGISTRY,
    Estimator,
    Predicted,
    Target,
    Terms,
    check_predicted,
    check_target,
    clipped_ips,
    direct_method,
    doubly_robust,
    ips,
    replay,
    snips,
    switch_dr,
    weights,
)
from seqdec.ope.evaluation import MARK, Overlap, bootstrap, evaluate, overlap
from seqdec.ope.learning import cross_fit, expected_rewards, prequential
from seqdec.ope.log import Log, inputs, make_log, standardised
from seqdec.ope.propensities import estimate_propensities, estimated_policy

__all__ = [
    "ESTIMATORS",
    "MARK",
    "REGISTRY",
    "Estimator",
    "Log",
    "Overlap",
    "Predicted",
    "Target",
    "Terms",
    "bootstrap",
    "check_predicted",
    "check_target",
    "clipped_ips",
    "cross_fit",
    "direct_method",
    "doubly_robust",
    "estimate_propensities",
    "estimated_policy",
    "evaluate",
    "expected_rewards",
    "inputs",
    "ips",
    "make_log",
    "overlap",
    "prequential",
    "replay",
    "snips",
    "standardised",
    "switch_dr",
    "weights",
]
