"""Optimizers on real training tasks: loss against step and against time, each with a learning-rate sweep of its own.

Every optimizer gets the same number of learning rates, half a decade apart around a rate of its kind, each tried once
on a seed that is not reported. The rate with the least training loss over the last tenth of the run is then run on the
reported seeds, on which AdamW and all others see the same initial weights and the same minibatches. Rates rise linearly
over the first tenth of a run and fall along a cosine to a tenth. Times are those of the quickest run of an optimizer,
without compilation.
"""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jax import lax
from matplotlib.figure import Figure
from optax import contrib
from tqdm import tqdm

from seqdec import optim
from seqdec.core import PyTree
from seqdec.experiments import tasks
from seqdec.experiments.tasks import Task
from seqdec.persistence import versions, write_file, write_json
from seqdec.results import mean_and_margin, with_margin

CURVES = "curves.parquet"
_BASELINE = "adamw"
_CHUNKS = 40
"""Points of a curve: the chunks of a run, which the compiled loop runs without coming back."""
_DECADE = 0.5
_DIVERGED = 100.0
"""Nats: a run that ends above has diverged, and counts as infinitely bad."""


class Contender(NamedTuple):
    """An optimizer and the middle of its grid of learning rates."""

    make: Callable[[optax.Schedule], optax.GradientTransformation]
    rate: float


def _muon(schedule: optax.Schedule) -> optax.GradientTransformation:
    """Optax's Muon on the matrices that the others here take too, Adam at a twentieth of its rate on the rest."""

    def dimensions(params):
        def of(leaf, matrix):
            return contrib.MuonDimensionNumbers(tuple(range(leaf.ndim - 1)), leaf.ndim - 1) if matrix else None

        return jax.tree.map(of, params, optim.hidden_matrices(params))

    return contrib.muon(
        schedule,
        adam_learning_rate=lambda step: 0.05 * jnp.asarray(schedule(step)),
        muon_weight_dimension_numbers=dimensions,
    )


def _sgd(momentum: float) -> Callable[[optax.Schedule], optax.GradientTransformation]:
    return lambda schedule: optax.sgd(schedule, momentum=momentum)


_LOW_RANK = {"rank": 32, "interval": 100}
_KOALA = functools.partial(optim.koala_plus_plus, initial_variance=10.0, process_noise=10.0)
CONTENDERS: dict[str, Contender] = {
    "adamw": Contender(optax.adamw, 3e-3),
    "sgd": Contender(_sgd(0.9), 0.1),
    "muon": Contender(_muon, 0.1),
    "shampoo": Contender(functools.partial(optim.shampoo, decay=0.95, interval=20), 0.03),
    "soap": Contender(functools.partial(optim.soap, b2=0.99, b3=0.95, interval=20), 3e-3),
    "koala_plus_plus": Contender(_KOALA, 0.1),
    "racs": Contender(optim.racs, 0.2),
    "alice": Contender(functools.partial(optim.alice, **_LOW_RANK), 0.06),
    "fismo": Contender(functools.partial(optim.fismo, interval=20), 0.1),
    "self_tuning_sgd": Contender(optim.self_tuning_sgd, 0.1),
    "sgd_0.01": Contender(_sgd(0.01), 0.1),
    "sgd_0.99": Contender(_sgd(0.99), 0.01),
    "self_tuning_adamw": Contender(optim.self_tuning_adamw, 1e-3),
    "self_tuning_muon": Contender(optim.self_tuning_muon, 0.1),
    "fismo_scale_free": Contender(functools.partial(optim.fismo, interval=20, statistics="scale_free", mu=0.1), 0.1),
    "eigen_adam": Contender(functools.partial(optim.eigen_adam, b2=0.99, b3=0.95, interval=20), 3e-3),
    "alice_0": Contender(functools.partial(optim.alice_0, **_LOW_RANK), 0.06),
    "koala_v": Contender(optim.koala_v, 0.6),
    "koala_m": Contender(optim.koala_m, 0.6),
    "swan": Contender(optim.swan, 0.2),
    "fira": Contender(functools.partial(optim.fira, **_LOW_RANK), 0.06),
    "apollo": Contender(functools.partial(optim.apollo, **_LOW_RANK), 0.02),
}
"""The settings and learning rates compared; a registered optimizer without a row takes part with its defaults."""
CONTENDERS |= {name: Contender(optim.REGISTRY[name], 0.1) for name in optim.REGISTRY if name not in CONTENDERS}


@dataclass(frozen=True, kw_only=True)
class Optimizers:
    """Optimizers on MNIST, CIFAR-10 and source code: loss against step and time, memory, with tuned learning rates."""

    name: ClassVar[str] = "optimizers"

    tasks: str = "mnist,cifar,text"
    """Tasks, separated by commas."""
    optimizers: str = ",".join(CONTENDERS)
    """Optimizers, separated by commas; adamw is always among them."""
    steps: int | None = None
    """Steps of each run; None leaves it to the tasks, 300 to 400."""
    batch: int | None = None
    """Examples in a minibatch; None leaves it to the tasks, 8 windows of text to 64 digits."""
    rates: int = 5
    """Learning rates tried for each optimizer, half a decade apart."""
    seeds: int = 3
    """Reported runs of each optimizer, with seeds SEED, SEED + 1, ..."""
    seed: int = 0
    """First seed."""
    out: Path = Path("results/optimizers")
    """Folder for the curves, the table and the pictures."""


def check(options: Optimizers) -> None:
    """Raises ValueError for options that make no sense."""
    for field, known in (("tasks", tasks.names()), ("optimizers", tuple(CONTENDERS))):
        chosen = _split(getattr(options, field))
        if not chosen or len(set(chosen)) < len(chosen) or not set(chosen) <= set(known):
            raise ValueError(f"{field} must be some of {', '.join(known)}, each once; got {getattr(options, field)!r}")
    for field, minimum in (("steps", _CHUNKS), ("batch", 1), ("rates", 1), ("seeds", 1), ("seed", 0)):
        value = getattr(options, field)
        if value is not None and value < minimum:
            raise ValueError(f"{field} must be at least {minimum}; got {value}")


def _split(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def compare(options: Optimizers, progress: bool) -> tuple[pd.DataFrame, bool]:
    """Run everything and keep the curves in the folder, optimizer by optimizer; -> curves, and whether Ctrl-C came."""
    chosen = [_BASELINE, *(name for name in _split(options.optimizers) if name != _BASELINE)]
    pairs = [(task, name) for task in _split(options.tasks) for name in chosen]
    write_json(options.out / "manifest.json", {"experiment": "optimizers", "options": options.__dict__ | {
        "out": str(options.out)}, "versions": versions()})  # fmt: skip
    rows: list[pd.DataFrame] = []
    loaded: dict[str, Task] = {}
    try:
        with tqdm(total=len(pairs) * (options.rates + options.seeds), unit="run", disable=not progress) as bar:
            for task_name, name in pairs:
                if task_name not in loaded:
                    loaded = {task_name: tasks.make(task_name)}
                bar.set_description(f"{task_name} {name}")
                rows.append(_contest(loaded[task_name], name, options, bar.update))
                whole = pd.concat(rows, ignore_index=True)
                write_file(options.out / CURVES, lambda path, whole=whole: whole.to_parquet(path, index=False))
    except KeyboardInterrupt:
        if not rows:
            raise
    return pd.concat(rows, ignore_index=True), len(rows) < len(pairs)


def _contest(task: Task, name: str, options: Optimizers, done: Callable[[], Any]) -> pd.DataFrame:
    """The sweep of one optimizer on one task and its reported runs, as rows of curves."""
    steps = (options.steps or task.steps) // _CHUNKS * _CHUNKS
    trial = _Trial(task, CONTENDERS[name].make, steps, options.batch or task.batch)
    grid = [CONTENDERS[name].rate * 10 ** (_DECADE * (i - (options.rates - 1) / 2)) for i in range(options.rates)]
    frames = []
    for rate in grid:
        frames.append(trial.run(rate, options.seed + options.seeds).assign(sweep=True))
        done()
    ends = [_end(frame) for frame in frames]
    best = grid[int(np.argmin(ends))]
    for seed in range(options.seed, options.seed + options.seeds):
        frames.append(trial.run(best, seed).assign(sweep=False))
        done()
    edge = options.rates > 1 and best in (grid[0], grid[-1])
    extra: dict[str, Any] = {"task": task.name, "optimizer": name, "best_rate": best, "edge": edge}
    curves = pd.concat(frames, ignore_index=True)
    # Other programs can only slow a run down.
    extra["ms_per_step"] = 1e3 * min(_column(frame, "seconds")[-1] for frame in frames) / steps
    curves["seconds"] = 1e-3 * extra["ms_per_step"] * curves["step"]
    return curves.assign(
        **extra, parameters=trial.parameters, state=trial.state_size, compile_seconds=trial.compile_seconds
    )


def _end(frame: pd.DataFrame) -> float:
    """Training loss over the last tenth of a run; infinite where it diverged."""
    return _settled(_column(frame, "loss")[-_CHUNKS // 10 :])


def _settled(losses: np.ndarray) -> float:
    loss = float(losses.mean())
    return loss if loss < _DIVERGED else np.inf


class _Trial:
    """One optimizer on one task, compiled once for all rates and seeds."""

    def __init__(self, task: Task, make: Callable, steps: int, batch: int) -> None:
        # Every optimizer here is linear in its learning rate, so the peak can multiply its updates, as data.
        shape = optax.warmup_cosine_decay_schedule(0.0, 1.0, max(1, steps // 10), steps, 0.1)
        self._task, self._steps = task, steps
        self._transform = optax.with_extra_args_support(make(shape))
        params = jax.eval_shape(task.init, jax.random.key(0))
        state = jax.eval_shape(self._transform.init, params)
        self.parameters, self.state_size = (
            sum(leaf.size for leaf in jax.tree.leaves(tree)) for tree in (params, state)
        )

        def step(carry, _, data, peak, seed):
            params, state, count = carry
            batch_of = task.draw(jax.random.fold_in(jax.random.key(seed), count), data, batch)
            (loss, _), gradients = jax.value_and_grad(task.loss, has_aux=True)(params, batch_of)
            updates, state = self._transform.update(gradients, state, params, value=loss)
            params = optax.apply_updates(params, jax.tree.map(lambda u: peak * u, updates))
            return (params, state, count + 1), loss

        def chunk(carry, data, peak, seed):
            body = functools.partial(step, data=data, peak=peak, seed=seed)
            carry, losses = lax.scan(body, carry, length=steps // _CHUNKS)
            return carry, jnp.mean(losses)

        began = time.perf_counter()
        carry = (params, state, jax.ShapeDtypeStruct((), jnp.int32))
        number = jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32)
        lowered = jax.jit(chunk, donate_argnums=0).lower(carry, task.data, *number)
        self._chunk = lowered.compile()
        self.compile_seconds = time.perf_counter() - began
        self._judge = jax.jit(task.loss)

    def run(self, rate: float, seed: int) -> pd.DataFrame:
        """Loss and seconds of every chunk of one run, and how it ends on held-out data."""
        params: PyTree = self._task.init(jax.random.key(seed))
        carry = (params, self._transform.init(params), jnp.zeros((), jnp.int32))
        peak, number = jnp.float32(rate), jnp.int32(seed)
        losses, seconds = [], []
        for _ in range(_CHUNKS):
            began = time.perf_counter()
            carry, loss = self._chunk(carry, self._task.data, peak, number)
            losses.append(float(loss))
            seconds.append(time.perf_counter() - began)
        test_loss, test_accuracy = self._judge(carry[0], self._task.held_out)
        stride = self._steps // _CHUNKS
        return pd.DataFrame(
            {
                "rate": rate,
                "seed": seed,
                "step": stride * np.arange(1, _CHUNKS + 1),
                "loss": losses,
                "seconds": np.cumsum(seconds),
                "test_loss": float(test_loss),
                "test_accuracy": float(test_accuracy),
            }
        )


def summary(curves: pd.DataFrame) -> pd.DataFrame:
    """One row for each task and optimizer, over the reported seeds.

    Columns: rate, edge (the best rate lies at the end of its grid); loss over the last tenth of the steps, test_loss,
    test_accuracy, each with the half-width `_95` of its 95% t-interval over seeds; ahead_steps and ahead_time, by how
    much the loss lies below AdamW's (paired over seeds) after as many steps and after as much time; ms_per_step and its
    ratio to AdamW's; state, numbers kept per parameter.
    """
    reported = curves.loc[~curves["sweep"]]
    rows = []
    for (task, name), group in reported.groupby(["task", "optimizer"], sort=False):  # pyright: ignore
        base = reported.loc[(reported["task"] == task) & (reported["optimizer"] == _BASELINE)]
        runs, base_runs = _by_seed(group), _by_seed(base)
        row: dict[str, Any] = {"task": task, "optimizer": name}
        row |= {key: _column(group, key)[0] for key in ("best_rate", "edge")}
        samples = {
            "loss": [_end(run) for run in runs],
            "test_loss": [_settled(_column(run, "test_loss")[:1]) for run in runs],
            "test_accuracy": [_column(run, "test_accuracy")[0] for run in runs],
            "ahead_steps": [_end(b) - _end(run) for run, b in zip(runs, base_runs, strict=True)],
            "ahead_time": [_ahead_in_time(run, b) for run, b in zip(runs, base_runs, strict=True)],
        }
        for key, values in samples.items():
            with np.errstate(invalid="ignore"):  # of runs that diverged
                mean, margin = mean_and_margin(np.asarray(values, float))
            row |= {key: float(mean), f"{key}_95": float(margin)}
        row["ms_per_step"] = _column(group, "ms_per_step").min()
        row["time_ratio"] = row["ms_per_step"] / _column(base, "ms_per_step").min()
        row["state"] = _column(group, "state")[0] / _column(group, "parameters")[0]
        rows.append(row)
    return pd.DataFrame(rows)


def _column(frame: pd.DataFrame, name: str) -> np.ndarray:
    return frame[name].to_numpy()


def _by_seed(frame: pd.DataFrame) -> list[pd.DataFrame]:
    return [run for _, run in frame.groupby("seed")]


def _ahead_in_time(run: pd.DataFrame, base: pd.DataFrame) -> float:
    """How much lower the loss is than the baseline's at the moment when the quicker of the two is done."""
    moment = min(_column(run, "seconds")[-1], _column(base, "seconds")[-1])
    return _loss_at(base, moment) - _loss_at(run, moment)


def _loss_at(run: pd.DataFrame, moment: float) -> float:
    """Mean loss over the tenth of the run that ends at a moment."""
    done = max(1, int(np.searchsorted(_column(run, "seconds"), moment, side="right")))
    return _settled(_column(run, "loss")[max(0, done - _CHUNKS // 10) : done])


def write(curves: pd.DataFrame, folder: Path) -> str:
    """Save table and pictures of the curves; returns the table as text."""
    table = summary(curves)
    text = "\n\n".join(_markdown(str(task), rows) for task, rows in table.groupby("task", sort=False)) + "\n"
    write_file(folder / "summary.csv", lambda path: table.to_csv(path, index=False))
    write_file(folder / "summary.md", lambda path: path.write_text(text))
    for task in dict.fromkeys(curves["task"]):
        figure = picture(curves.loc[curves["task"] == task], table.loc[table["task"] == task])
        write_file(
            folder / f"{task}.png",
            lambda path, figure=figure: figure.savefig(path, format="png"),
        )
    return text


def rebuild(folder: Path) -> str:
    """Table and pictures again, from the curves in a folder."""
    return write(pd.read_parquet(folder / CURVES), folder)


def _markdown(task: str, table: pd.DataFrame) -> str:
    """The rows of one task for people, those with the least loss first."""
    table = table.sort_values("loss")
    cells = {
        "optimizer": table["optimizer"],
        "rate": [
            f"{rate:.2g}" + " (edge)" * edge for rate, edge in zip(table["best_rate"], table["edge"], strict=True)
        ],
        "train loss": with_margin(table["loss"].to_numpy(), table["loss_95"].to_numpy()),
        "test loss": with_margin(table["test_loss"].to_numpy(), table["test_loss_95"].to_numpy()),
        "test accuracy": with_margin(table["test_accuracy"].to_numpy(), table["test_accuracy_95"].to_numpy()),
        "ahead of AdamW, steps": with_margin(table["ahead_steps"].to_numpy(), table["ahead_steps_95"].to_numpy()),
        "ahead, time": with_margin(table["ahead_time"].to_numpy(), table["ahead_time_95"].to_numpy()),
        "ms / step": [f"{ms:.1f}" for ms in table["ms_per_step"]],
        "of AdamW's": [f"{ratio:.2f}" for ratio in table["time_ratio"]],
        "state / parameters": [f"{state:.2f}" for state in table["state"]],
    }
    columns = list(cells)
    lines = [f"**{task}**", "", "| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in zip(*cells.values(), strict=True)]
    return "\n".join(lines)


_COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")


def picture(curves: pd.DataFrame, table: pd.DataFrame) -> Figure:
    """Loss against step and against time of AdamW and the six best, and the end of all against the learning rate."""
    best = [name for name in table.sort_values("loss")["optimizer"] if name != _BASELINE][: len(_COLOURS) - 1]
    colours = dict(zip([_BASELINE, *best], _COLOURS, strict=False))
    figure = Figure(figsize=(14, 4.6), dpi=140, layout="constrained")
    by_step, by_time, by_rate = figure.subplots(1, 3)
    for name, colour in colours.items():
        runs = _by_seed(curves.loc[(curves["optimizer"] == name) & ~curves["sweep"]])
        mean, margin = mean_and_margin(np.stack([_smooth(_column(run, "loss")) for run in runs]))
        seconds = np.mean([_column(run, "seconds") for run in runs], axis=0)
        for axes, x in ((by_step, _column(runs[0], "step")), (by_time, seconds)):
            axes.plot(x, mean, color=colour, label=name, lw=1.6)
            axes.fill_between(x, mean - margin, mean + margin, color=colour, alpha=0.13, lw=0)
    for name in dict.fromkeys(curves["optimizer"]):
        sweep = curves.loc[(curves["optimizer"] == name) & curves["sweep"]]
        points = [(rate, _end(run)) for rate, run in sweep.groupby("rate")]
        rates, ends = zip(*points, strict=True)
        by_rate.plot(np.array(rates) / rates[len(rates) // 2], ends, "o-", color=colours.get(name, "0.8"), lw=1.2, ms=3)
    low, high = _range(curves)
    for axes, x, title in (
        (by_step, "step", "Training loss against step"),
        (by_time, "run time without compilation / s", "Training loss against time"),
        (by_rate, "learning rate over the middle of its grid", "End of the sweep's runs; others grey"),
    ):
        axes.set_title(title, fontsize=11, loc="left")
        axes.set(xlabel=x, ylabel="cross-entropy / nats", yscale="log", ylim=(low, high))
        axes.grid(axis="y", which="both", color="0.92", lw=0.7)
        axes.spines[["top", "right"]].set_visible(False)
    by_rate.set_xscale("log")
    handles, labels = by_step.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    task = str(curves["task"].iloc[0])
    figure.suptitle(f"{task}: mean and 95% interval over seeds", fontsize=12, fontweight="bold", x=0.01, ha="left")
    return figure


def _smooth(losses: np.ndarray) -> np.ndarray:
    """Mean of the last tenth of the run's points, at every point."""
    return np.array([losses[max(0, i + 1 - _CHUNKS // 10) : i + 1].mean() for i in range(len(losses))])


def _range(curves: pd.DataFrame) -> tuple[float, float]:
    """Limits of the loss axis: from the least to a little above where the runs begin."""
    losses, steps = _column(curves, "loss"), _column(curves, "step")
    start = np.nanmedian(losses[steps == steps.min()])
    return 0.8 * max(float(losses[np.isfinite(losses)].min()), 1e-4), 1.5 * float(start)
