"""Estimators of off-policy evaluation, configured values that `seqdec.ope.evaluate` takes in a list."""

from seqdec.ope.contract import Estimator
from seqdec.ope.estimators.automatic import Auto
from seqdec.ope.estimators.continuous import KernelDR, KernelIPS
from seqdec.ope.estimators.doubly_robust import DM, DR, SNDR, SubGaussianDR, SwitchDR
from seqdec.ope.estimators.embeddings import MIPS
from seqdec.ope.estimators.fitted import MRDR, BalancedIPW
from seqdec.ope.estimators.loggers import BalancedLoggers, WeightedLoggers
from seqdec.ope.estimators.slates import CascadeDR, SlateIPS, SlatePI
from seqdec.ope.estimators.weighting import IPS, SNIPS, Replay, SubGaussianIPS
from seqdec.registry import Registry

REGISTRY: Registry[Estimator] = Registry(
    "estimator",
    {
        "auto": Auto,
        "balanced_ipw": BalancedIPW,
        "balanced_loggers": BalancedLoggers,
        "cascade_dr": CascadeDR,
        "dm": DM,
        "dr": DR,
        "ips": IPS,
        "kernel_dr": KernelDR,
        "kernel_ips": KernelIPS,
        "mips": MIPS,
        "mrdr": MRDR,
        "replay": Replay,
        "slate_ips": SlateIPS,
        "slate_pi": SlatePI,
        "sndr": SNDR,
        "snips": SNIPS,
        "sub_gaussian_dr": SubGaussianDR,
        "sub_gaussian_ips": SubGaussianIPS,
        "switch_dr": SwitchDR,
        "weighted_loggers": WeightedLoggers,
    },
)
"""Estimators by name. A new one is a line here."""

STANDARD: tuple[Estimator, ...] = (
    IPS(),
    SNIPS(),
    IPS(max_weight="bound"),
    Replay(),
    DM(),
    DR(),
    SNDR(),
    DR(shrinkage="bound"),
    SwitchDR(),
    SlateIPS(interaction="standard"),
    SlateIPS(interaction="independent"),
    SlateIPS(),
    SlatePI(),
    CascadeDR(),
    KernelIPS(),
    KernelIPS(normalized=True),
    KernelDR(),
)
"""What `seqdec.ope.evaluate` computes by default, of those that are for the kind of log and have what they need."""
