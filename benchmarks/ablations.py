"""Ablations of the papers on optimizers, small enough for two cores, with the papers' figures beside.

    python benchmarks/ablations.py [NAME ...] [--seeds 3] [--rates 3] [--steps 400]

koala        KOALA++ symmetric or not, its initial variance, and the eigenvalues of its covariance; LeNet5 on MNIST
koala_runs   batch sizes, with the same number of images, and schedules of KOALA++ and SGD; LeNet5 on MNIST
alice        tracking, switching and compensation of Alice; a transformer of 0.1 million parameters on source code
alice_basis  how far the eigenvectors of Alice move at a renewal; the same transformer
one_rate     AdamW's learning rate for the optimizers of matrices, beside rates of their own; the same transformer
sides        SOAP, Shampoo and FISMO with a square matrix for the shorter side only; the same transformer
self_tuning  fixed momenta and self-tuning ones, SGD and Adam, and gradients of other minibatches; LeNet5 on MNIST
condition    condition numbers of the updates of Adam, FISMO and Muon; LeNet5 on MNIST

Runs have warm-up over a tenth and a cosine to a tenth of the learning rate, if not said otherwise. Each variant has
its own learning rate, the best of `--rates`, half a decade apart, on held-out data and a seed that is not reported; the
figures of the reported seeds are on the same data. "Ahead" is by how much a variant is better than the first of its
table, paired over seeds, with 95% intervals. The papers' figures are those of their own models and data, so that only
their order compares.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro
from harness import command, interval
from harness import table as head

from reproduction import tasks
from reproduction.optimizers import CONTENDERS, preset
from reproduction.tasks import Task
from seqdec import optim


class Options(NamedTuple):
    """Of all ablations."""

    seeds: int
    rates: int
    steps: int


Make = Callable[[optax.Schedule], optax.GradientTransformation]


def as_published(make: Callable[..., Any], *, share: float = 0.05, **settings: Any) -> Make:
    """At the scale of its paper, with Adam at a share of the learning rate on the parameters that are no matrices."""

    def published(rate: optax.ScalarOrSchedule) -> optax.GradientTransformation:
        adam = optax.chain(optax.scale_by_adam(), optax.scale_by_learning_rate(rate), optax.scale(share))
        return make(rate, rest=adam, rms=None, **settings)

    return published


def _warm_up(steps: int) -> optax.Schedule:
    """Rises in the first tenth of the steps and falls along a cosine to a tenth."""
    return optax.warmup_cosine_decay_schedule(0.0, 1.0, steps // 10, steps, 0.1)


class Variant(NamedTuple):
    """A line of a table."""

    make: Make
    rate: float
    """middle of the learning rates"""
    published: str
    """figure of the paper"""
    others: str = ""
    """gradients of a second minibatch as `validation_grads` too: "alone", or "added" to those of the first"""
    schedule: Callable[[int], optax.Schedule] = _warm_up
    """number of steps -> multiples of the learning rate"""
    batch: int | None = None
    """of a minibatch in the place of the task's, with as many fewer or more steps"""


def training(task: Task, variant: Variant, steps: int) -> Callable[[float, int], jax.Array]:
    """A program (rate, seed) -> loss, and error or perplexity on held-out data at the end."""
    size, others = variant.batch or task.batch, variant.others
    steps = steps * task.batch // size
    transform = optax.with_extra_args_support(variant.make(variant.schedule(steps)))
    gradient = jax.value_and_grad(lambda params, batch: task.loss(params, batch)[0])

    def step(carry, number, data, rate, seed):
        params, state = carry
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), number))
        loss, gradients = gradient(params, task.draw(keys[0], data, size))
        extra = {}
        if others:
            _, second = gradient(params, task.draw(keys[1], data, size))
            extra["validation_grads"] = optax.tree.add(gradients, second) if others == "added" else second
        updates, state = transform.update(gradients, state, params, value=loss, **extra)
        return (jax.tree.map(lambda p, u: p + rate * u, params, updates), state), None

    @jax.jit
    def run(data, held_out, rate, seed):
        params = task.init(jax.random.key(seed))
        body = functools.partial(step, data=data, rate=rate, seed=seed)
        (params, _), _ = jax.lax.scan(body, (params, transform.init(params)), jnp.arange(steps))
        loss, accuracy = (jnp.mean(part) for part in jax.lax.map(lambda batch: task.loss(params, batch), held_out))
        return jnp.stack([loss, jnp.exp(loss) if task.perplexity else 100 * (1 - accuracy)])

    return lambda rate, seed: run(task.data, task.held_out, rate, seed)


def tuned(task: Task, variant: Variant, rates: int, steps: int, seeds: int) -> tuple[float, np.ndarray]:
    """The best of learning rates half a decade apart, and the figures (seeds, 2) with it."""
    run = training(task, variant, steps)
    grid = variant.rate * 10 ** (0.5 * (np.arange(rates) - (rates - 1) / 2))
    sweep = [np.nan_to_num(float(run(rate, seeds)[1]), nan=np.inf) for rate in grid] if rates > 1 else [0.0]
    best = grid[int(np.argmin(sweep))]
    return best, np.array([run(best, seed) for seed in range(seeds)], float)


def table(title: str, task: Task, variants: Mapping[str, Variant], steps: int, options: Options) -> None:
    """Print the figures of variants by name, each compared with the first."""
    what = "perplexity" if task.perplexity else "error / %"
    print(f"\n{title}: {task.name}, {steps} steps, {options.seeds} seeds\n")
    row = head("variant", "rate", "held-out loss", what, "ahead", "paper")
    first = None
    for name, variant in variants.items():
        best, ends = tuned(task, variant, options.rates, steps, options.seeds)
        first = ends if first is None else first
        cells = [interval(values, ".3f") for values in (ends[:, 0], ends[:, 1], first[:, 1] - ends[:, 1])]
        row(name, f"{best:.2g}", *cells, variant.published)


def koala(options: Options) -> None:
    """Table 8, and Figures 2 and 3, of KOALA++."""
    task = tasks.make("mnist")

    def make(**settings: Any) -> Make:
        return lambda schedule: optim.koala_plus_plus(schedule, **settings)

    variants = {
        "symmetric, p0 = 0.1": Variant(make(), 1.0, "the better late in training"),
        "not symmetric": Variant(make(symmetric=False), 1.0, "competitive, less stable"),
    }
    table("KOALA++, symmetric or not (Figure 2)", task, variants, options.steps, options)
    errors = {0.05: "22.95", 0.1: "22.04", 0.2: "21.80"}
    variants = {f"p0 = {p}": Variant(make(initial_variance=p, process_noise=0.2), 1.0, errors[p]) for p in errors}
    table("KOALA++, initial variance with q = 0.2 (Table 8)", task, variants, options.steps, options)
    _eigenvalues(task, options.steps)


def _steps(steps: int) -> optax.Schedule:
    """Falls by a factor of ten after 30, 60 and 90% of the steps."""
    return optax.piecewise_constant_schedule(1.0, {int(part * steps): 0.1 for part in (0.3, 0.6, 0.9)})


def koala_runs(options: Options) -> None:
    """Tables 6 and 7 of KOALA++: errors with other batches and schedules, and those of SGD beside."""
    task = tasks.make("mnist")
    methods = {
        "KOALA++": (lambda schedule: optim.koala_plus_plus(schedule), 1.0),
        "SGD": (functools.partial(optax.sgd, momentum=0.9), 0.1),
    }
    batches = {64: "20.27", 128: "20.38", 256: "21.78", 512: "23.63"}
    schedules = {
        "steps": (_steps, "21.80"),
        "cosine": (lambda steps: optax.cosine_decay_schedule(1.0, steps), "20.57"),
        "warm-up, then a cosine": (_warm_up, "ahead of a cosine with Swin-T: 32.18, 35.05"),
    }
    for method, (make, rate) in methods.items():
        own = method == "KOALA++"
        variants = {
            f"{size} images": Variant(make, rate, published if own else "", batch=size)
            for size, published in batches.items()
        }
        table(f"{method}, batch size (Table 6)", task, variants, options.steps, options)
        variants = {
            name: Variant(make, rate, published if own else "", schedule=schedule)
            for name, (schedule, published) in schedules.items()
        }
        table(f"{method}, schedule (Table 7)", task, variants, options.steps, options)


def _eigenvalues(task: Task, steps: int) -> None:
    """Print the two eigenvalues other than zero of the least-norm P of KOALA++ along a run."""
    transform = optim.scale_by_koala_plus_plus()

    def step(carry, number):
        params, state = carry
        batch = task.draw(jax.random.fold_in(jax.random.key(0), number), task.data, task.batch)
        loss, gradients = jax.value_and_grad(lambda params: task.loss(params, batch)[0])(params)
        updates, state = transform.update(gradients, state, params, value=loss)
        own, _ = state
        squares = jnp.stack([jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(own.product)])
        scale = jnp.where(own.norm > 0, 1 / jnp.where(own.norm > 0, own.norm, 1), 0)
        width = jnp.sqrt(own.variance**2 + 4 * jnp.maximum(squares * scale**2 - own.variance**2, 0))
        return (optax.apply_updates(params, jax.tree.map(jnp.negative, updates)), state), (
            (own.variance - width) / 2,
            (own.variance + width) / 2,
        )

    params = task.init(jax.random.key(0))
    _, (low, high) = jax.jit(lambda c: jax.lax.scan(step, c, jnp.arange(steps)))((params, transform.init(params)))
    print("\nEigenvalues of P, smallest and largest of all tensors, and the median of the largest (Figure 3: wide and")
    print(
        "growing in the first epoch, flat from the 30th)\n\n| step | smallest | largest | median |\n|---|---|---|---|"
    )
    for number in (1, 10, 30, 100, steps):
        low_then, high_then = np.asarray(low[number - 1]), np.asarray(high[number - 1])
        print(f"| {number} | {low_then.min():.2g} | {high_then.max():.2g} | {np.median(high_then):.2g} |")


def alice(options: Options) -> None:
    """Table 5 and Figure 5 of Alice, at rank 8 with a switch in every 20 steps."""
    task = tasks.make("text")

    def make(**settings: Any) -> Make:
        return as_published(optim.alice, rank=8, leading=3, interval=20, **settings)

    bare = {"switching": "none", "compensation": "none"}
    variants = {
        "Alice": Variant(make(), 0.06, "21.95"),
        "without compensation": Variant(make(compensation="none"), 0.06, "25.11"),
        "without switching and compensation": Variant(make(**bare), 0.06, "27.35"),
        "without tracking, switching and compensation": Variant(make(b3=0, **bare), 0.06, "26.96"),
        "without tracking": Variant(make(b3=0), 0.06, "21.99"),
        "compensation fira_plus": Variant(make(compensation="fira_plus"), 0.06, "behind Alice"),
        "compensation fira": Variant(make(compensation="fira"), 0.06, "behind Alice"),
    }
    for switching in ("full_basis", "gaussian_mix", "gaussian"):
        settings = {"switching": switching, "compensation": "none"}
        variants[f"without compensation, {switching}"] = Variant(make(**settings), 0.06, "behind 25.11")
    table("Alice, its parts (Table 5, Figure 5)", task, variants, options.steps, options)


def alice_basis(options: Options) -> None:
    """Figure 6 of Alice: |cosine| between an eigenvector before and after a renewal, without switching."""
    task, interval, turns = tasks.make("text"), 20, options.steps // 20
    settings = {"rank": 8, "leading": 3, "interval": interval, "switching": "none", "compensation": "none"}
    print(f"\nEigenvectors of Alice, rank 8, a renewal in every {interval} steps: |cosine| between one and the next")
    print("(Figure 6: the leading ones of LLaMA hardly move); means over matrices, renewals and seeds\n")
    ranges = [(1, turns // 4), (turns // 4, turns // 2), (turns // 2, turns)]
    print("| eigenvector |", " | ".join(f"steps {a * interval} to {b * interval}" for a, b in ranges), "| moment |")
    print("|---" * (len(ranges) + 2) + "|")
    for title, b3 in {"tracked": 0.999, "of the last gradient": 0.0}.items():
        transform = as_published(optim.alice, b3=b3, **settings)(0.06)
        bases = [_bases(task, transform, interval, turns, seed) for seed in range(options.seeds)]
        for index in (1, 2, 4, 8):
            cells = [
                np.mean(
                    [
                        np.abs(np.sum(basis[a - 1 : b - 1, ..., index - 1] * basis[a:b, ..., index - 1], -1)).mean()
                        for run in bases
                        for basis in run
                    ]
                )
                for a, b in ranges
            ]
            print(f"| {index} |", " | ".join(f"{cell:.2f}" for cell in cells), f"| {title} |", flush=True)


def _bases(task: Task, transform: optax.GradientTransformationExtraArgs, interval: int, turns: int, seed: int):
    """(turns, ..., m, r) of each matrix, after every `interval` steps."""

    def step(carry, number):
        params, state = carry
        batch = task.draw(jax.random.fold_in(jax.random.key(seed), number), task.data, task.batch)
        gradients = jax.grad(lambda params: task.loss(params, batch)[0])(params)
        updates, state = transform.update(gradients, state, params)
        return (optax.apply_updates(params, updates), state), None

    def turn(carry, number):
        carry, _ = jax.lax.scan(step, carry, number * interval + jnp.arange(interval))
        return carry, optax.tree.get(carry[1], "basis")

    params = task.init(jax.random.key(seed))
    _, bases = jax.jit(lambda carry: jax.lax.scan(turn, carry, jnp.arange(turns)))((params, transform.init(params)))
    return [np.asarray(basis) for basis in jax.tree.leaves(bases)]


def one_rate(options: Options) -> None:
    """The best learning rate of AdamW for all optimizers, beside the scales of the papers with rates of their own."""
    task, low_rank = tasks.make("text"), {"rank": 8, "interval": 20}
    settings: dict[str, tuple[float, float, dict[str, Any]]] = {  # at the paper's scale: a typical rate, Adam's share
        "alice": (0.06, 0.05, low_rank),
        "racs": (0.2, 0.05, {}),
        "fismo": (0.1, 0.05, {}),
        "soap": (3e-3, 1, {}),
        "shampoo": (0.01, 0.05, {"b2": 0.95, "interval": 20}),
        "swan": (0.2, 0.05, {}),
        "self_tuning_muon": (0.1, 0.05, {}),
        "eigen_adam": (3e-3, 1, {}),
        "alice_0": (0.06, 0.05, low_rank),
        "fira": (0.06, 0.05, low_rank),
        "apollo": (0.02, 1, low_rank),
    }

    def muon_published(rate: optax.Schedule) -> optax.GradientTransformation:
        return optax.contrib.muon(
            rate,
            adam_learning_rate=lambda step: 0.05 * jnp.asarray(rate(step)),
            muon_weight_dimension_numbers=optim.matrix_axes,
        )

    pairs: dict[str, tuple[Make, Variant]] = {"muon": (CONTENDERS["muon"].make, Variant(muon_published, 0.1, ""))}
    for name, (rate, share, own) in settings.items():
        make = optim.REGISTRY[name]
        pairs[name] = (functools.partial(make, **own), Variant(as_published(make, share=share, **own), rate, ""))
    adamw = Variant(optax.adamw, CONTENDERS["adamw"].rate, "")
    rate, ends = tuned(task, adamw, 5, options.steps, options.seeds)
    print(f"\nOne learning rate, AdamW's best of five: {task.name}, {options.steps} steps, {options.seeds} seeds\n")
    row = head("optimizer", f"held-out loss at {rate:.2g}", "at the paper's scale", "its rate", "settings")
    row("adamw", interval(ends[:, 0], ".3f"), "", "", "")
    for name, (make, paper) in pairs.items():
        _, ends = tuned(task, Variant(make, rate, ""), 1, options.steps, options.seeds)
        best, others = tuned(task, paper, options.rates, options.steps, options.seeds)
        row(name, interval(ends[:, 0], ".3f"), interval(others[:, 0], ".3f"), f"{best:.2g}", preset(make))


def sides(options: Options) -> None:
    """SOAP, Shampoo and FISMO with a square matrix for both sides, or for the shorter one where a side has 256."""
    task = tasks.make("text")
    for name in ("soap", "shampoo", "fismo"):
        make = CONTENDERS[name].make
        variants = {
            "both sides": Variant(make, 3e-3, ""),
            "max_side=128": Variant(functools.partial(make, max_side=128), 3e-3, ""),
        }
        table(f"{name}, sides", task, variants, options.steps, options)


SGD = {0.01: 74.93, 0.1: 75.76, 0.2: 75.89, 0.5: 76.21, 0.8: 77.26, 0.9: 77.57, 0.95: 76.57, 0.98: 69.79, 0.99: 55.62}
ADAM = {0.1: 72.78, 0.2: 72.65, 0.5: 72.86, 0.8: 73.20, 0.9: 72.85, 0.95: 72.78, 0.98: 72.69, 0.99: 72.45}
"""Accuracies of fixed momenta on CIFAR-100, Tables 13 and 14."""


def self_tuning(options: Options) -> None:
    """Tables 13, 14 and 18 of the self-tuning momenta. Figures of the paper are errors."""
    task = tasks.make("mnist")

    def sgd(*momenta: float) -> Make:
        return lambda schedule: optim.self_tuning_sgd(schedule, momenta=momenta)

    def adam(*momenta: float) -> Make:
        return lambda schedule: optim.self_tuning_adamw(schedule, momenta=momenta)

    variants = {
        "0.01, 0.99 (self-tuning)": Variant(sgd(0.01, 0.99), 0.3, "21.94"),
        "0.9, 0.95, 0.98, 0.99, 0.995": Variant(sgd(0.9, 0.95, 0.98, 0.99, 0.995), 0.06, "21.67"),
    }
    for beta, accuracy in SGD.items():
        variants[f"{beta}"] = Variant(
            functools.partial(optax.sgd, momentum=beta),
            0.3 * (1 - beta) ** 0.5,
            f"{100 - accuracy:.2f}",
        )
    table("Self-tuning SGD and fixed momenta (Table 13)", task, variants, options.steps, options)
    variants = {"0.8, 0.99 (self-tuning)": Variant(adam(0.8, 0.99), 6e-3, "26.74")}
    for beta, accuracy in ADAM.items():
        make = functools.partial(optax.adamw, b1=beta, weight_decay=0.0)
        variants[f"{beta}"] = Variant(make, 1e-2, f"{100 - accuracy:.2f}")
    table("Self-tuning AdamW and fixed first moments (Table 14)", task, variants, options.steps, options)
    variants = {
        "the gradient itself": Variant(sgd(0.01, 0.99), 0.3, "21.94"),
        "that of another minibatch": Variant(sgd(0.01, 0.99), 0.1, "22.90", "alone"),
        "their sum": Variant(sgd(0.01, 0.99), 0.1, "21.70", "added"),
    }
    table("Self-tuning SGD, gradients that choose (Table 18)", task, variants, options.steps, options)


def condition(options: Options) -> None:
    """Figure 3 of FISMO: condition numbers of the updates in step 60."""
    del options
    task, steps = tasks.make("mnist"), 60
    muon = functools.partial(optax.contrib.scale_by_muon, weight_dimension_numbers=optim.matrix_axes)
    fismo = functools.partial(optim.scale_by_fismo, interval=1, rms=None)
    methods = {
        "Adam": (optax.scale_by_adam(), 3e-3, "> 1e8"),
        "FISMO, printed": (fismo(), 0.03, "100 to 1,000"),
        "FISMO, scale-free": (fismo(statistics="scale_free"), 0.01, "100 to 1,000"),
        "Muon, 5 steps": (muon(), 0.03, "below FISMO's"),
        "Muon, 7 steps": (muon(ns_steps=7), 0.03, "closer to 1"),
    }
    print(f"\nCondition numbers of the updates of hidden matrices in step {steps}, LeNet5 (FISMO's Figure 3)\n")
    print("| method | mean | median | largest | paper |\n|---|---|---|---|---|")
    for name, (method, rate, published) in methods.items():
        rest = optax.scale_by_adam()
        groups = {"matrix": optax.chain(method, optax.scale(-rate)), "rest": optax.chain(rest, optax.scale(-3e-3))}
        transform = optax.partition(groups, lambda tree: jax.tree.map(_label, optim.hidden_matrices(tree)))
        params = task.init(jax.random.key(0))
        state = transform.init(params)

        @jax.jit
        def step(params, state, number, transform=transform):
            batch = task.draw(jax.random.fold_in(jax.random.key(0), number), task.data, task.batch)
            gradients = jax.grad(lambda params: task.loss(params, batch)[0])(params)
            updates, state = transform.update(gradients, state, params)
            return optax.apply_updates(params, updates), state, updates

        for number in range(steps):
            params, state, updates = step(params, state, number)
        matrices = zip(jax.tree.leaves(updates), jax.tree.leaves(optim.hidden_matrices(params)), strict=True)
        numbers = [np.linalg.cond(np.asarray(leaf, float)) for leaf, own in matrices if own]
        print(f"| {name} | {np.mean(numbers):,.1f} | {np.median(numbers):,.1f} | {max(numbers):,.1f} | {published} |")


def _label(matrix: bool) -> str:
    return "matrix" if matrix else "rest"


ABLATIONS = {
    method.__name__: method
    for method in (koala, koala_runs, alice, alice_basis, one_rate, sides, self_tuning, condition)
}


def main(
    names: Annotated[tuple[str, ...], tyro.conf.Positional] = tuple(ABLATIONS),
    seeds: int = 3,
    rates: int = 3,
    steps: int = 400,
) -> None:
    """Print the tables of the ablations that are named."""
    for name in names:
        ABLATIONS[name](Options(seeds, rates, steps))


if __name__ == "__main__":
    command(main)
