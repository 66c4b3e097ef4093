"""Off-policy evaluation and learning from logs."""

from typing import Any

from seqdec.ope.alignment import aligned
from seqdec.ope.arms import ArmComparison, compare_arms
from seqdec.ope.classification import learn_by_classification
from seqdec.ope.comparison import LOGGED, Comparison, Estimate, compare
from seqdec.ope.continuous import learn_continuous
from seqdec.ope.contract import (
    Estimator,
    Evidence,
    Target,
    check_predicted,
    check_target,
    evidence,
)
from seqdec.ope.diagnostics import Overlap, overlap
from seqdec.ope.estimators import (
    DM,
    DR,
    IPS,
    MIPS,
    MRDR,
    PDIS,
    REGISTRY,
    SNDR,
    SNIPS,
    STANDARD,
    Auto,
    BalancedIPW,
    BalancedLoggers,
    CascadeDR,
    KernelDR,
    KernelIPS,
    Replay,
    SequentialDR,
    SlateIPS,
    SlatePI,
    SubGaussianDR,
    SubGaussianIPS,
    SwitchDR,
    WeightedLoggers,
)
from seqdec.ope.estimators.continuous import ContinuousLog, make_continuous_log
from seqdec.ope.estimators.sessions import EpisodeLog, effective_sessions, predict_returns
from seqdec.ope.estimators.slates import SlateLog, make_slate_log
from seqdec.ope.evaluation import MARK, evaluate
from seqdec.ope.files import LogFile, LogFolder, scan_log
from seqdec.ope.formats import from_bandit_feedback
from seqdec.ope.gradients import OBJECTIVES, learn
from seqdec.ope.intervals import Interval, Terms, interval
from seqdec.ope.learning import cross_fit, expected_rewards, prequential
from seqdec.ope.log import Log, inputs, make_log, standardized
from seqdec.ope.pictures import difference_figure, estimates_figure, weights_figure
from seqdec.ope.propensities import estimate_propensities, estimated_policy
from seqdec.ope.rewards import choose_model, held_out_likelihood, predict_rewards
from seqdec.ope.selection import Selection, cross_fit_policy, select, target_of, warm_start
from seqdec.ope.vowpal_wabbit import load_vowpal_wabbit

__all__ = [
    "DM",
    "DR",
    "IPS",
    "LOGGED",
    "MARK",
    "MIPS",
    "MRDR",
    "OBJECTIVES",
    "PDIS",
    "REGISTRY",
    "SNDR",
    "SNIPS",
    "STANDARD",
    "ArmComparison",
    "Auto",
    "BalancedIPW",
    "BalancedLoggers",
    "CascadeDR",
    "Comparison",
    "ContinuousLog",
    "EpisodeLog",
    "Estimate",
    "Estimator",
    "Evidence",
    "Interval",
    "KernelDR",
    "KernelIPS",
    "Log",
    "LogFile",
    "LogFolder",
    "Overlap",
    "Replay",
    "Selection",
    "SequentialDR",
    "SlateIPS",
    "SlateLog",
    "SlatePI",
    "SubGaussianDR",
    "SubGaussianIPS",
    "SwitchDR",
    "Target",
    "Terms",
    "WeightedLoggers",
    "aligned",
    "check_predicted",
    "check_target",
    "choose_model",
    "compare",
    "compare_arms",
    "cross_fit",
    "cross_fit_policy",
    "difference_figure",
    "effective_sessions",
    "estimate_propensities",
    "estimated_policy",
    "estimates_figure",
    "evaluate",
    "evidence",
    "expected_rewards",
    "from_bandit_feedback",
    "held_out_likelihood",
    "inputs",
    "interval",
    "learn",
    "learn_by_classification",
    "learn_continuous",
    "load_vowpal_wabbit",
    "make_continuous_log",
    "make_log",
    "make_slate_log",
    "overlap",
    "predict_returns",
    "predict_rewards",
    "prequential",
    "scan_log",
    "select",
    "standardized",
    "target_of",
    "warm_start",
    "weights_figure",
]


def __getattr__(name: str) -> Any:
    """A registered estimator: `ope.Smoothed` of module "smoothed"."""
    for registered in () if name.startswith("_") else REGISTRY.own():
        if (found := REGISTRY[registered]).__name__ == name:
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
