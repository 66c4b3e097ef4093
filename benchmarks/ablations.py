"""Ablations of the papers on optimizers, small enough for two cores, with the papers' figures beside.

    python benchmarks/ablations.py [koala] [alice] [memory] [self_tuning] [condition] [--seeds 3] [--rates 3]

koala        KOALA++ symmetric or not, its initial variance, and the eigenvalues of its covariance; LeNet5 on MNIST
alice        tracking, switching and compensation of Alice; a transformer of 0.1 million parameters on source code
memory       parameters and state of LLaMA from 60 million to 1.3 billion parameters, by the shapes of the state
self_tuning  fixed momenta and self-tuning ones, SGD and Adam, and gradients of other minibatches; LeNet5 on MNIST
condition    condition numbers of the updates of Adam, FISMO and Muon; LeNet5 on MNIST

Runs have warm-up over a tenth and a cosine to a tenth of the learning rate. Each variant has its own learning rate, the
best of `--rates`, half a decade apart, on held-out data and a seed that is not reported; the figures of the reported
seeds are on the same data. "Ahead" is by how much a variant is better than the first of its table, paired over seeds,
with 95% intervals. The papers' figures are those of their own models and data, so that only their order compares.
"""

import argparse
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from seqdec import optim
from seqdec.experiments import tasks
from seqdec.experiments.tasks import Task
from seqdec.statistics import mean_and_margin

Make = Callable[[optax.Schedule], optax.GradientTransformationExtraArgs]


def training(task: Task, make: Make, steps: int, others: str = "") -> Callable[[float, int], jax.Array]:
    """A program (rate, seed) -> loss, and error or perplexity on held-out data at the end.

    With `others` the optimizer also gets gradients of a second minibatch as `validation_grads`: "alone", or "added" to
    those of the first.
    """
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1.0, steps // 10, steps, 0.1)
    transform = optax.with_extra_args_support(make(schedule))
    gradient = jax.value_and_grad(lambda params, batch: task.loss(params, batch)[0])

    def step(carry, number, data, rate, seed):
        params, state = carry
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), number))
        loss, gradients = gradient(params, task.draw(keys[0], data, task.batch))
        extra = {}
        if others:
            _, second = gradient(params, task.draw(keys[1], data, task.batch))
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


def table(title: str, task: Task, variants: Mapping[str, tuple], steps: int, options: argparse.Namespace) -> None:
    """Print the figures of variants by name, each compared with the first.

    A variant is (make, middle of the learning rates, figure of the paper), and perhaps `others` of `training`.
    """
    what = "perplexity" if task.perplexity else "error / %"
    print(f"\n{title}: {task.name}, {steps} steps, {options.seeds} seeds\n")
    print(f"| variant | rate | held-out loss | {what} | ahead | paper |\n|---|---|---|---|---|---|")
    first = None
    for name, (make, middle, published, *others) in variants.items():
        run = training(task, make, steps, *others)
        grid = middle * 10 ** (0.5 * (np.arange(options.rates) - (options.rates - 1) / 2))
        sweep = [np.nan_to_num(float(run(rate, options.seeds)[1]), nan=np.inf) for rate in grid]
        best = grid[int(np.argmin(sweep))]
        ends = np.array([run(best, seed) for seed in range(options.seeds)], float)
        first = ends if first is None else first
        cells = [mean_and_margin(values) for values in (ends[:, 0], ends[:, 1], first[:, 1] - ends[:, 1])]
        loss, figure, ahead = (f"{mean:.3f} ± {margin:.3f}" for mean, margin in cells)
        print(f"| {name} | {best:.2g} | {loss} | {figure} | {ahead} | {published} |", flush=True)


def koala(options: argparse.Namespace) -> None:
    """Table 8, and Figures 2 and 3, of KOALA++."""
    task = tasks.make("mnist")

    def make(**settings: Any) -> Make:
        return lambda schedule: optim.koala_plus_plus(schedule, **settings)

    variants = {
        "symmetric, p0 = 0.1": (make(), 1.0, "the better late in training"),
        "not symmetric": (make(symmetric=False), 1.0, "competitive, less stable"),
    }
    table("KOALA++, symmetric or not (Figure 2)", task, variants, options.steps, options)
    errors = {0.05: 22.95, 0.1: 22.04, 0.2: 21.80}
    variants = {f"p0 = {p}": (make(initial_variance=p, process_noise=0.2), 1.0, errors[p]) for p in errors}
    table("KOALA++, initial variance with q = 0.2 (Table 8)", task, variants, options.steps, options)
    _eigenvalues(task, options.steps)


def _eigenvalues(task: Task, steps: int) -> None:
    """Print the two eigenvalues other than zero of the least-norm P of KOALA++ along a run."""
    transform = optim.scale_by_koala_plus_plus()

    def step(carry, number):
        params, state = carry
        batch = task.draw(jax.random.fold_in(jax.random.key(0), number), task.data, task.batch)
        loss, gradients = jax.value_and_grad(lambda params: task.loss(params, batch)[0])(params)
        updates, state = transform.update(gradients, state, params, value=loss)
        squares = jnp.stack([jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(state.product)])
        scale = jnp.where(state.norm > 0, 1 / jnp.where(state.norm > 0, state.norm, 1), 0)
        width = jnp.sqrt(state.variance**2 + 4 * jnp.maximum(squares * scale**2 - state.variance**2, 0))
        return (optax.apply_updates(params, jax.tree.map(jnp.negative, updates)), state), (
            (state.variance - width) / 2,
            (state.variance + width) / 2,
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


def small_text() -> Task:
    """The task "text" with a transformer of two layers of width 64, and four windows in a minibatch."""
    task = tasks.make("text")
    characters = 1 + max(int(task.data.max()), int(task.held_out.max()))
    module = tasks.Transformer(characters, width=64, depth=2)

    def loss(params, windows):
        logits = jnp.asarray(jax.vmap(lambda x: module.apply({"params": params}, x))(windows[:, :-1]))
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, windows[:, 1:])
        return jnp.mean(losses), jnp.mean(jnp.argmax(logits, -1) == windows[:, 1:])

    def init(key):
        return module.init(key, jnp.zeros(module.length, jnp.int32))["params"]

    return task._replace(name="text, small", init=init, loss=loss, batch=4)


def alice(options: argparse.Namespace) -> None:
    """Table 5 and Figure 5 of Alice, at rank 8 with a switch in every 20 steps."""
    task = small_text()

    def make(**settings: Any) -> Make:
        return lambda schedule: optim.alice(schedule, rank=8, leading=3, interval=20, **settings)

    bare = {"switching": "none", "compensation": "none"}
    variants = {
        "Alice": (make(), 0.06, "21.95"),
        "without compensation": (make(compensation="none"), 0.06, "25.11"),
        "without switching and compensation": (make(**bare), 0.06, "27.35"),
        "without tracking, switching and compensation": (make(b3=0, **bare), 0.06, "26.96"),
        "without tracking": (make(b3=0), 0.06, "21.99"),
        "compensation fira_plus": (make(compensation="fira_plus"), 0.06, "behind Alice"),
        "compensation fira": (make(compensation="fira"), 0.06, "behind Alice"),
    }
    for switching in ("full_basis", "gaussian_mix", "gaussian"):
        settings = {"switching": switching, "compensation": "none"}
        variants[f"without compensation, {switching}"] = (make(**settings), 0.06, "behind 25.11")
    table("Alice, its parts (Table 5, Figure 5)", task, variants, options.steps, options)


LLAMA = {
    "60M": (512, 1376, 8, 128),
    "130M": (768, 2048, 12, 256),
    "350M": (1024, 2736, 24, 256),
    "1.3B": (2048, 5461, 24, 512),
}
"""Width, width of the MLP, layers, and the authors' rank."""
VOCABULARY = 32_000
MEMORY = {
    "adam": (0.32, 0.75, 2.05, 7.48),
    "galore": (0.26, 0.57, 1.29, 4.43),
    "fira": (0.26, 0.57, 1.29, 4.43),
    "apollo, mini": (0.23, 0.43, 0.93, 2.98),
    "apollo, svd": (0.26, 0.57, 1.29, 4.43),
    "racs": (0.23, 0.43, 0.93, 2.98),
    "alice_0": (0.26, 0.57, 1.29, 4.44),
    "alice": (0.26, 0.59, 1.33, 4.60),
}
"""Table 3, last layer by Adam, in GiB."""


def llama(size: str) -> dict[str, Any]:
    """Shapes of the parameters."""
    width, inner, layers, _ = LLAMA[size]
    attention = dict.fromkeys(("query", "key", "value", "merge"), (width, width))
    layer = attention | {"gate": (width, inner), "up": (width, inner), "down": (inner, width)}
    layer |= {"norm_0": (width,), "norm_1": (width,)}
    shapes: dict[str, Any] = {f"layer_{index}": layer for index in range(layers)}
    shapes |= {"embed": (VOCABULARY, width), "head": (width, VOCABULARY), "norm": (width,)}
    return jax.tree.map(
        lambda shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16), shapes, is_leaf=lambda leaf: isinstance(leaf, tuple)
    )


def memory(options: argparse.Namespace) -> None:
    """Table 3 of Alice: GiB of parameters and state at two bytes for each number, by the shapes of the state."""
    del options
    print("\nMemory of LLaMA / GiB at two bytes for each number, here / paper (Table 3, where r^2 takes four)\n")
    print("| |", " | ".join(LLAMA), "|\n|---" + "|---" * len(LLAMA) + "|")
    for name, published in MEMORY.items():
        cells = []
        for size, figure in zip(LLAMA, published, strict=True):
            params, rank = llama(size), LLAMA[size][-1]
            numbers = sum(leaf.size for leaf in jax.tree.leaves(params))
            state = 2 * numbers if name == "adam" else _state_numbers(name, params, rank)
            cells.append(f"{2 * (numbers + state) / 2**30:.2f} / {figure:.2f}")
        print(f"| {name} |", " | ".join(cells), "|", flush=True)


def _state_numbers(name: str, params: Any, rank: int) -> int:
    name, _, kind = name.partition(", ")
    settings: dict[str, Any] = {} if name == "racs" else {"rank": 1 if kind == "mini" else rank}
    settings |= {"projection": "svd"} if kind == "svd" else {}
    return int(optim.explain(optim.REGISTRY[name], params, **settings)["state_bytes"].sum()) // 4


SGD = {0.01: 74.93, 0.1: 75.76, 0.2: 75.89, 0.5: 76.21, 0.8: 77.26, 0.9: 77.57, 0.95: 76.57, 0.98: 69.79, 0.99: 55.62}
ADAM = {0.1: 72.78, 0.2: 72.65, 0.5: 72.86, 0.8: 73.20, 0.9: 72.85, 0.95: 72.78, 0.98: 72.69, 0.99: 72.45}
"""Accuracies of fixed momenta on CIFAR-100, Tables 13 and 14."""


def self_tuning(options: argparse.Namespace) -> None:
    """Tables 13, 14 and 18 of the self-tuning momenta. Figures of the paper are errors."""
    task = tasks.make("mnist")

    def sgd(*momenta: float) -> Make:
        return lambda schedule: optim.self_tuning_sgd(schedule, momenta=momenta)

    def adam(*momenta: float) -> Make:
        return lambda schedule: optim.self_tuning_adamw(schedule, momenta=momenta)

    variants: dict[str, tuple] = {
        "0.01, 0.99 (self-tuning)": (sgd(0.01, 0.99), 0.3, "21.94"),
        "0.9, 0.95, 0.98, 0.99, 0.995": (sgd(0.9, 0.95, 0.98, 0.99, 0.995), 0.06, "21.67"),
    }
    for beta, accuracy in SGD.items():
        variants[f"{beta}"] = (
            functools.partial(optax.sgd, momentum=beta),
            0.3 * (1 - beta) ** 0.5,
            f"{100 - accuracy:.2f}",
        )
    table("Self-tuning SGD and fixed momenta (Table 13)", task, variants, options.steps, options)
    variants = {"0.8, 0.99 (self-tuning)": (adam(0.8, 0.99), 6e-3, "26.74")}
    for beta, accuracy in ADAM.items():
        make = functools.partial(optax.adamw, b1=beta, weight_decay=0.0)
        variants[f"{beta}"] = (make, 1e-2, f"{100 - accuracy:.2f}")
    table("Self-tuning AdamW and fixed first moments (Table 14)", task, variants, options.steps, options)
    variants = {
        "the gradient itself": (sgd(0.01, 0.99), 0.3, "21.94"),
        "that of another minibatch": (sgd(0.01, 0.99), 0.1, "22.90", "alone"),
        "their sum": (sgd(0.01, 0.99), 0.1, "21.70", "added"),
    }
    table("Self-tuning SGD, gradients that choose (Table 18)", task, variants, options.steps, options)


def condition(options: argparse.Namespace) -> None:
    """Figure 3 of FISMO: condition numbers of the updates in step 60."""
    del options
    task, steps = tasks.make("mnist"), 60
    muon = functools.partial(optax.contrib.scale_by_muon, weight_dimension_numbers=optim.matrix_axes)
    fismo = functools.partial(optim.scale_by_fismo, interval=1)
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


ABLATIONS = {"koala": koala, "alice": alice, "memory": memory, "self_tuning": self_tuning, "condition": condition}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(ABLATIONS), metavar="NAME")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rates", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400)
    arguments = parser.parse_args()
    for chosen in arguments.names:
        ABLATIONS[chosen](arguments)
