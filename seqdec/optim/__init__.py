"""Optimizers of recent papers as optax transformations.

`scale_by_x` is the direction, for chains; `x` has the learning rate, weight decay and the routing of parameters by
their kind, and takes the place of `optax.adamw`. KOALA needs the loss as well, `update(grads, state, params,
value=loss)`; all others swallow it, so that one training loop serves them all. In `optax.inject_hyperparams` counts
(rank, interval, sweeps, polar_steps) belong to `static_args`, as they decide on shapes.

State and arithmetic are in float32 at least, whatever the parameters' dtype; updates have that of the gradients. NaN
gradients make NaN updates, as with optax's own methods: `optax.apply_if_finite` guards against them. GaLore and Muon
are in `optax.contrib`.
"""

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
