"""Off-policy evaluation: what a policy would have earned, from the log of another."""

from seqdec.ope.estimators import (
    Terms,
    clipped_ips,
    direct,
    doubly_robust,
    ips,
    replay,
    snips,
    switch_dr,
    weights,
)
from seqdec.ope.evaluation import Overlap, bootstrap, evaluate, overlap
from seqdec.ope.learning import cross_fit, expected_rewards, prequential
from seqdec.ope.log import Log, inputs, make_log

__all__ = [
    "Log",
    "Overlap",
    "Terms",
    "bootstrap",
    "clipped_ips",
    "cross_fit",
    "direct",
    "doubly_robust",
    "evaluate",
    "expected_rewards",
    "inputs",
    "ips",
    "make_log",
    "overlap",
    "prequential",
    "replay",
    "snips",
    "switch_dr",
    "weights",
]
