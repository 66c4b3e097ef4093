"""Time and memory of every optimizer on a transformer of 10.8 million parameters, beside optax.adamw and optax's Muon.

    python benchmarks/step_times.py [NAME ...] [--steps 40] [--turn 8] [--rms None] [--scanned]
    python benchmarks/step_times.py [NAME ...] --matrices 12 36 96 [--side 256]

The model is that of nanoGPT's example on Shakespeare's characters: six layers of width 384, 65 characters, and 64
windows of 256 in a batch. The settings are the defaults, except those in SETTINGS; NAME_short has no square matrix for
the sides of 1,536. An update takes gradients of the model, and its state is donated. The optimizers take turns of a few
steps. Times are processor time of all threads, which other programs lengthen less than time by the clock. Columns:
milliseconds of an update, median and largest over the steps after the first, and the first, which makes all bases; the
mean by that of Muon; bytes of state by those of AdamW; and the time of a whole training step by that of AdamW with
batches of 64 windows and of 8. A training step is the gradient, which is measured with 8 windows and counted eight
times for 64, and the mean of the updates after the first.

With `--matrices` nothing runs: the table shows the processor seconds in which an update of so many equal matrices is
traced and compiled, and the megabytes of its temporary arrays, at the largest number.
"""

import inspect
import time
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro
from harness import command, table

from reproduction.optimizers import CONTENDERS
from reproduction.tasks import Transformer
from seqdec import optim

CHARACTERS, WINDOW, WINDOWS, BATCH = 65, 256, 8, 64
SETTINGS = {"shampoo": {"interval": 20}}
SHORT = ("soap", "shampoo", "fismo")


def transformations(rms: float | None) -> dict[str, optax.GradientTransformationExtraArgs]:
    """AdamW, Muon on the matrices that the others take too, and all of `optim.REGISTRY`, by name."""
    peers = {"adamw": optax.adamw(1e-3), "muon": CONTENDERS["muon"].make(lambda step: 0.02)}
    own = {}
    for name in optim.REGISTRY:
        make = optim.REGISTRY[name]
        scale = {"rms": rms} if "rms" in inspect.signature(make).parameters else {}
        own[name] = make(1e-3, **scale, **SETTINGS.get(name, {}))
        if name in SHORT:
            own[f"{name}_short"] = make(1e-3, **scale, **SETTINGS.get(name, {}), max_side=1024)
    return {name: optax.with_extra_args_support(value) for name, value in (peers | own).items()}


def gradient_function(scanned: bool):
    """(params, windows) -> loss and gradient; and the parameters, those of the layers stacked if `scanned`."""
    module = Transformer(CHARACTERS, width=384, depth=6, heads=6, length=WINDOW, scanned=scanned)
    params = module.init(jax.random.key(0), jnp.zeros(WINDOW, jnp.int32))["params"]

    def loss_of(params, windows):
        logits = jax.vmap(lambda window: module.apply({"params": params}, window))(windows[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(jnp.asarray(logits), windows[:, 1:]).mean()

    return jax.jit(jax.value_and_grad(loss_of)), params


def seconds(function, *arguments):
    """Results, and the processor time that they took."""
    began = time.process_time()
    results = jax.block_until_ready(function(*arguments))
    return results, time.process_time() - began


class Run:
    """Parameters, state and times of the updates of one optimizer."""

    def __init__(self, transform: optax.GradientTransformationExtraArgs, params, gradients) -> None:
        def update(carry, gradients):
            params, state = carry
            updates, state = transform.update(gradients, state, params, value=jnp.asarray(4.0))
            return optax.apply_updates(params, updates), state

        self.carry = jax.tree.map(jnp.copy, (params, transform.init(params)))
        self.bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(self.carry[1]))
        self.update = jax.jit(update, donate_argnums=0).lower(self.carry, gradients).compile()
        self.times: list[float] = []

    def take(self, gradients) -> None:
        """One step."""
        self.carry, spent = seconds(self.update, self.carry, gradients)
        self.times.append(1e3 * spent)


def compiled(make: optax.GradientTransformationExtraArgs, count: int, side: int) -> tuple[float, float]:
    """Processor seconds of tracing and compiling an update of equal matrices, and megabytes of temporary arrays."""
    params = {f"layer_{index}": {"hidden": jax.ShapeDtypeStruct((side, side), jnp.float32)} for index in range(count)}

    def update(params, state, gradients):
        updates, state = make.update(gradients, state, params, value=jnp.float32(4.0))
        return optax.apply_updates(params, updates), state

    state = jax.eval_shape(make.init, params)
    began = time.process_time()
    program = jax.jit(update, donate_argnums=(0, 1)).lower(params, state, params).compile()
    spent = time.process_time() - began
    analysis = program.memory_analysis()
    return spent, 1e-6 * analysis.temp_size_in_bytes if analysis else float("nan")


def main(
    names: Annotated[tuple[str, ...], tyro.conf.Positional] = (),
    steps: int = 40,
    turn: int = 8,
    matrices: tuple[int, ...] = (),
    side: int = 256,
    rms: float | None = 0.2,
    scanned: bool = False,
) -> None:
    """Measure all optimizers, or those that are named, and print the table."""
    makers = transformations(rms)
    if matrices:
        compiled(makers["adamw"], 1, side)
        row = table("optimizer", *(f"{count} matrices {side} x {side} / s" for count in matrices), "temporary / MB")
        for name in dict.fromkeys(["adamw", *(names or makers)]):
            found = [compiled(makers[name], count, side) for count in matrices]
            row(name, *(f"{spent:.1f}" for spent, _ in found), f"{found[-1][1]:,.0f}")
        return
    gradient, params = gradient_function(scanned)
    windows = jax.random.randint(jax.random.key(1), (4, WINDOWS, WINDOW + 1), 0, CHARACTERS)
    gradients = [jax.block_until_ready(gradient(params, batch))[1] for batch in windows]
    runs = {
        name: Run(makers[name], params, gradients[0]) for name in dict.fromkeys(["adamw", "muon", *(names or makers)])
    }
    spent = []
    for begin in range(0, steps + 1, turn):
        spent.append(1e3 * seconds(gradient, params, windows[0])[1])
        for run in runs.values():
            for number in range(begin, min(begin + turn, steps + 1)):
                run.take(gradients[number % len(gradients)])

    def whole(name: str, batch: int) -> float:
        return float(np.median(spent)) * batch / WINDOWS + float(np.mean(runs[name].times[1:]))

    print(f"{sum(leaf.size for leaf in jax.tree.leaves(params)):,} parameters; gradient {np.median(spent):,.0f} ms")
    row = table("optimizer", "median / ms", "largest", "first", "by Muon's", "state", "step, 64 windows", "8 windows")
    for name, run in runs.items():
        times, state = run.times[1:], run.bytes / runs["adamw"].bytes
        muon = np.mean(times) / np.mean(runs["muon"].times[1:])
        ratios = [f"{whole(name, batch) / whole('adamw', batch):.2f}" for batch in (BATCH, WINDOWS)]
        milliseconds = [f"{value:,.0f}" for value in (np.median(times), max(times), run.times[0])]
        row(name, *milliseconds, f"{muon:.2f}", f"{state:.2f}", *ratios)


if __name__ == "__main__":
    command(main)
