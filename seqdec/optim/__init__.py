"""Optimizers of recent papers as optax transformations; `scale_by_x` is the direction, `x` has the learning rate."""

from seqdec.optim import greedy
from seqdec.optim.alice import alice, alice_0, scale_by_alice
from seqdec.optim.common import hidden_matrices
from seqdec.optim.eigen import eigen_adam, scale_by_eigen_adam, scale_by_soap, soap
from seqdec.optim.fismo import fismo, scale_by_fismo
from seqdec.optim.koala import (
    koala_m,
    koala_plus_plus,
    koala_v,
    scale_by_koala_m,
    scale_by_koala_plus_plus,
    scale_by_koala_v,
)
from seqdec.optim.lowrank import apollo, fira, scale_by_apollo, scale_by_fira
from seqdec.optim.racs import racs, scale_by_racs
from seqdec.optim.self_tuning import (
    Preconditioner,
    diagonal_ema,
    diagonal_sum,
    identity,
    scale_by_self_tuning,
    scale_by_self_tuning_muon,
    self_tuning_adamw,
    self_tuning_muon,
    self_tuning_sgd,
)
from seqdec.optim.shampoo import scale_by_shampoo, scale_by_swan, shampoo, swan

__all__ = [
    "Preconditioner",
    "alice",
    "alice_0",
    "apollo",
    "diagonal_ema",
    "diagonal_sum",
    "eigen_adam",
    "fira",
    "fismo",
    "greedy",
    "hidden_matrices",
    "identity",
    "koala_m",
    "koala_plus_plus",
    "koala_v",
    "racs",
    "scale_by_alice",
    "scale_by_apollo",
    "scale_by_eigen_adam",
    "scale_by_fira",
    "scale_by_fismo",
    "scale_by_koala_m",
    "scale_by_koala_plus_plus",
    "scale_by_koala_v",
    "scale_by_racs",
    "scale_by_self_tuning",
    "scale_by_self_tuning_muon",
    "scale_by_shampoo",
    "scale_by_soap",
    "scale_by_swan",
    "self_tuning_adamw",
    "self_tuning_muon",
    "self_tuning_sgd",
    "shampoo",
    "soap",
    "swan",
]
