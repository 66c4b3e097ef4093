"""Optimizers of recent papers as optax transformations.

`x` replaces `optax.adamw`; `scale_by_x` is `x` without learning rate and minus sign. `seqdec.optim.groups` defines
which parameters are matrices; `optim.explain` shows what happens to each. KOALA needs `update(grads, state, params,
value=loss)`. With `optax.inject_hyperparams`, name integers (rank, interval, sweeps, polar_steps) and masks that are
functions in `static_args`.

b1 is the decay of the first moment or momentum, b2 of second moments, b3 of products G G^T where squares are averaged
too; eps is added to denominators or diagonals; scale multiplies the direction. A setting out of its range raises
ValueError. Weight decay applies to all parameters, or those of `mask=`; only it needs `params` in `update`.

Matrix methods take the learning rate of AdamW: `rms` is the size of their steps at a rate of 1, and `rest` may be an
optimizer for the other parameters. `routed` explains both.

What is renewed every `interval` steps is computed for all matrices in the first step, then for the matrices in turn,
the largest first. Matrices of one shape with up to two megabytes of gradient and state, or stacks of them, take turns
in one compiled loop; each of the larger ones is compiled.

State and arithmetic are in float32 at least; updates have the dtype of the gradients. From the 21st step on, a gradient
is scaled down to five times the usual norm of its parameter or matrix, and in every step to a norm of 2.6e14 (max^{3/8}
of float32), except by KOALA, which filters gradients of any length. NaN gradients make NaN updates
(`optax.apply_if_finite`). Updates have derivatives by gradients and float settings, except those of `optax.adam` at a
gradient of exactly zero. Muon and GaLore are in `optax.contrib`.
"""

import functools as _functools
import inspect as _inspect
import types as _types

import optax

from seqdec.optim import greedy as greedy
from seqdec.optim._alice import alice as alice
from seqdec.optim._alice import alice_0 as alice_0
from seqdec.optim._alice import scale_by_alice as scale_by_alice
from seqdec.optim._explain import explain as explain
from seqdec.optim._fismo import fismo as fismo
from seqdec.optim._fismo import scale_by_fismo as scale_by_fismo
from seqdec.optim._koala_m import koala_m as koala_m
from seqdec.optim._koala_m import scale_by_koala_m as scale_by_koala_m
from seqdec.optim._koala_plus_plus import koala_plus_plus as koala_plus_plus
from seqdec.optim._koala_plus_plus import scale_by_koala_plus_plus as scale_by_koala_plus_plus
from seqdec.optim._koala_v import koala_v as koala_v
from seqdec.optim._koala_v import scale_by_koala_v as scale_by_koala_v
from seqdec.optim._racs import racs as racs
from seqdec.optim._racs import scale_by_racs as scale_by_racs
from seqdec.optim._shampoo import scale_by_shampoo as scale_by_shampoo
from seqdec.optim._shampoo import scale_by_swan as scale_by_swan
from seqdec.optim._shampoo import shampoo as shampoo
from seqdec.optim._shampoo import swan as swan
from seqdec.optim.chains import routed as routed
from seqdec.optim.eigen import eigen_adam as eigen_adam
from seqdec.optim.eigen import scale_by_eigen_adam as scale_by_eigen_adam
from seqdec.optim.eigen import scale_by_soap as scale_by_soap
from seqdec.optim.eigen import soap as soap
from seqdec.optim.groups import hidden_matrices as hidden_matrices
from seqdec.optim.groups import matrix_axes as matrix_axes
from seqdec.optim.groups import partition as partition
from seqdec.optim.lowrank import apollo as apollo
from seqdec.optim.lowrank import fira as fira
from seqdec.optim.lowrank import scale_by_apollo as scale_by_apollo
from seqdec.optim.lowrank import scale_by_fira as scale_by_fira
from seqdec.optim.self_tuning import Preconditioner as Preconditioner
from seqdec.optim.self_tuning import diagonal_ema as diagonal_ema
from seqdec.optim.self_tuning import diagonal_sum as diagonal_sum
from seqdec.optim.self_tuning import identity as identity
from seqdec.optim.self_tuning import scale_by_self_tuning as scale_by_self_tuning
from seqdec.optim.self_tuning import scale_by_self_tuning_muon as scale_by_self_tuning_muon
from seqdec.optim.self_tuning import self_tuning_adamw as self_tuning_adamw
from seqdec.optim.self_tuning import self_tuning_muon as self_tuning_muon
from seqdec.optim.self_tuning import self_tuning_sgd as self_tuning_sgd
from seqdec.registry import Registry

REGISTRY: Registry[optax.GradientTransformationExtraArgs] = Registry(
    "optimizer",
    {
        name: value
        for name, value in dict(vars()).items()
        if isinstance(value, _types.FunctionType | _functools.partial)
        and next(iter(_inspect.signature(value).parameters), "") == "learning_rate"
    },
)
"""Functions above whose first parameter is `learning_rate`, by name."""
