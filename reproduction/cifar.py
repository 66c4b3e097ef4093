"""Online classification of CIFAR-10's images by networks of millions of parameters.

Accuracy is one-step-ahead, in one pass over the images in their order. Files are those of `classify`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from reproduction.classify import Classification, Classify
from reproduction.data import load_cifar10
from seqdec import envs
from seqdec.commands.bandits import Plan
from seqdec.commands.base import Choice
from seqdec.core import Array, Environment
from seqdec.models import PatchConv


class VGG(nn.Module):
    """Convolutions of 3 x 3 in blocks of given widths, ELUs, average pooling after each block, two layers of 256 units.

    One image (32, 32, 3). The output layer is initially zero.
    """

    blocks: tuple[tuple[int, ...], ...] = ((64, 64), (128, 128), (256,))
    out: int = 10

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Responses (out,) to one image."""
        for block, widths in enumerate(self.blocks):
            for place, width in enumerate(widths):
                x = nn.elu(PatchConv(width, 3, padding=1, name=f"conv_{block}_{place}")(x))
            x = nn.pool(x, 0.0, jax.lax.add, (2, 2), (2, 2), "VALID") / 4
        x = jnp.ravel(x)
        for place in range(2):
            x = nn.elu(nn.Dense(256, name=f"hidden_{place}")(x))
        return nn.Dense(self.out, kernel_init=nn.initializers.zeros_init(), name="output")(x)


NETWORKS: Mapping[str, nn.Module] = {
    "vgg": VGG(),
    "vgg-block": VGG(((64, 64), (128, 128), (256,), (512, 512))),
}
"""The paper's two networks, of 1.7 and 4.7 million parameters."""


@dataclass(frozen=True, kw_only=True)
class CIFAR(Classification):
    """Online classification of CIFAR-10's first images by LRKF and AdamW, with 1.7 or 4.7 million parameters.

    CIFAR-10 is downloaded if missing; on one core, a step with vgg-block takes about a second.
    Example: seqdec run cifar --agents lrkf:1,adamw --steps 4000
    """

    name: ClassVar[str] = "cifar"
    choices: ClassVar[Mapping[str, Choice]] = {**Classification.choices, "network": Choice("network", NETWORKS)}
    quick_options: ClassVar[Mapping[str, Any]] = {"agents": "lrkf:1,adamw", "steps": 40, "seeds": 1}
    captions: ClassVar[Mapping[str, str]] = {
        "accuracy.png": "Paper, Table 4, accuracy in 10,000 images: LRKF of rank 1, 5, 10, AdamW: .3355, .3384, .3379, "
        ".3442 with VGG; .3129, .3141, .3148, .3097 with VGG+Block.",
    }
    # LRKF learns squared errors of the one-hot label, as in `classify`.
    tuned: ClassVar[dict[str, dict[str, Any]]] = {
        "adamw": {"learning_rate": 3e-5, "inner_steps": 1},
        "lrkf": {"likelihood": None, "noise_variance": 0.01, "initial_std": 0.1, "process_noise": 3e-4},
    }

    paper: ClassVar[Mapping[str, Mapping[str, Any]]] = {key: Classify.paper[key] for key in ("lrkf", "adamw")}
    """The ranks are the paper's; the other settings are as on MNIST."""
    published_options: ClassVar[Mapping[str, Any]] = {
        "agents": "lrkf:1,lrkf:1.published,lrkf:5.published,lrkf:10.published,adamw,adamw.published"
    }

    network: str = "vgg"
    """Network: vgg with 1.7 million parameters, vgg-block with 4.7."""
    published: bool = False
    """Add agents with the paper's settings: moments of the softmax for LRKF."""
    agents: str = "lrkf:1,lrkf:5,lrkf:10,adamw"
    steps: int = 10_000
    """Images, in one pass; at most as many as there are."""
    seeds: int = 1
    out: Path = Path("results/cifar")

    def check(self) -> Plan:
        plan = super().check()
        return plan._replace(steps=min(self.steps, len(plan.env.params.labels)))

    def environment(self) -> Environment:
        """The images in their order, with their labels as feedback."""
        data = load_cifar10()
        images, labels = (np.concatenate(parts) for parts in zip(data.train, data.test, strict=True))
        return envs.classification(images, labels, order="sequential", full_information=True, name="cifar10")

    def network_of(self, kind: str, env: Environment) -> nn.Module:
        """The network that the options ask for."""
        del kind, env
        return NETWORKS[self.network]
