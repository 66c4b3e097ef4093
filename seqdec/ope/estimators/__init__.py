"""Estimators of off-policy evaluation."""

import ast
from typing import Any

from seqdec.ope.contract import Estimator
from seqdec.ope.estimators.automatic import Auto
from seqdec.ope.estimators.continuous import KernelDR, KernelIPS
from seqdec.ope.estimators.doubly_robust import DM, DR, SNDR, SubGaussianDR, SwitchDR
from seqdec.ope.estimators.embeddings import MIPS
from seqdec.ope.estimators.fitted import MRDR, BalancedIPW
from seqdec.ope.estimators.loggers import BalancedLoggers, WeightedLoggers
from seqdec.ope.estimators.sessions import PDIS, SequentialDR
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
        "pdis": PDIS,
        "replay": Replay,
        "sequential_dr": SequentialDR,
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
"""By name."""


def parsed(text: str) -> list[Estimator]:
    """The estimators in a text such as "snips, dr(shrinkage=slope)".

    Raises:
        TypeError: an unknown setting.
        ValueError: an unknown name, a setting out of range, or another text.
    """
    try:
        listed = ast.parse(f"[{text}]", mode="eval").body
        if not isinstance(listed, ast.List) or not listed.elts:
            raise SyntaxError
        return [REGISTRY.make(name, **settings) for name, settings in map(_call, listed.elts)]
    except SyntaxError:
        raise ValueError(f"estimators must be names such as \"snips, dr(shrinkage='slope')\"; got {text!r}") from None


def _call(node: ast.expr) -> tuple[str, dict[str, Any]]:
    """Raises SyntaxError for anything but a call."""
    function, settings = (node.func, node.keywords) if isinstance(node, ast.Call) and not node.args else (node, [])
    if not isinstance(function, ast.Name):
        raise SyntaxError
    return function.id, {str(setting.arg): _value(setting.value) for setting in settings}


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        return node.id
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise SyntaxError from None


STANDARD: tuple[Estimator, ...] = (
    Auto(),
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
    PDIS(),
    PDIS(normalized=True),
    SequentialDR(),
    SequentialDR(normalized=True),
)
"""Defaults of `seqdec.ope.evaluate`."""
