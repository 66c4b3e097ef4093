"""Optimizers on real training tasks: loss against step and against time, each with a sweep of its own.

Every optimizer has the same number of learning rates, half a decade apart around a typical one, each tried once with
each weight decay on a seed that is not reported. The best of these is then run on the reported seeds; all optimizers
have the same initial weights and minibatches for a seed. Times are those of the fastest run of an optimizer, without
compilation.

The best is that with the lowest training loss over the last tenth of the run. With `--validation` runs are long enough
to overfit, and it is that with the best accuracy or perplexity on held-out data at the end, as papers on optimizers
choose it; the figures of the reported seeds are on the same held-out data. `--sweep-steps` makes the sweep's runs
shorter than the reported ones, each with a whole schedule.

With s(t), which rises from 0 to 1 over the first tenth of a run and then falls along a cosine to 0.1 (with
`--validation`: over the first twentieth, and to 0; or by a factor of 10 after 30, 60 and 90% of the run), a step is

    theta <- (1 - decay s(t)) theta - rate s(t) u

for the optimizer's direction u: the weight decay is decoupled from the rate, so that one grid serves all optimizers.

DIR/manifest.json      options
DIR/curves.parquet     loss and seconds of every run at 40 steps of it, bytes of the optimizer's state
DIR/summary.csv, .md   table: losses, differences to AdamW's, time, state
DIR/TASK.png           loss against step, time and learning rate
"""

import functools
import inspect
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jax import lax
from optax import contrib

from reproduction import tasks
from reproduction.tasks import Task
from seqdec import optim
from seqdec.boundary.checks import seed_bits
from seqdec.commands.base import Choice, Located, check_choices, check_minimum, check_seeds, split_names
from seqdec.commands.folder import key_of, save_figure, save_parts, save_table, saved_parts, write_manifest
from seqdec.core import PyTree
from seqdec.optim.common import promoting
from seqdec.persistence import read_table, write_file
from seqdec.progress import advance, bar, compiling
from seqdec.runtime import ahead
from seqdec.statistics import column_text, mean_and_margin, summarized

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVES = "curves.parquet"
_PART = ["task", "optimizer"]
_DECADE = 0.5
_JUDGED = 10
"""Points of a curve at which a run with `validation` is judged on held-out data."""


class Contender(NamedTuple):
    """An optimizer and the middle of its grid of learning rates."""

    make: Callable[[optax.Schedule], optax.GradientTransformation]
    rate: float


def as_published(
    make: Callable[..., optax.GradientTransformationExtraArgs], *, share: float = 0.05, **settings: Any
) -> Callable[[optax.ScalarOrSchedule], optax.GradientTransformationExtraArgs]:
    """At the scale of its paper, with Adam at a share of the learning rate on the parameters that are no matrices."""
    return functools.partial(_published, make, share=share, rms=None, **settings)


def _published(make, learning_rate, *, share, **settings):
    adam = optax.chain(optax.scale_by_adam(), optax.scale_by_learning_rate(learning_rate), optax.scale(share))
    return make(learning_rate, rest=adam, **settings)


def preset(make: Callable[..., Any]) -> str:
    """The settings of a contender that are not the defaults of its optimizer."""
    if not isinstance(make, functools.partial):
        return ""
    parameters = inspect.signature(make.args[0] if make.args else make.func).parameters
    given = {name: value for name, value in make.keywords.items() if name != "share"}
    changed = [
        f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={getattr(value, '__name__', value)}"
        for name, value in given.items()
        if name not in parameters or value != parameters[name].default
    ]
    share = make.keywords.get("share", 1)
    return ", ".join([*changed, *([f"Adam elsewhere at {share} of the rate"] if share != 1 else [])])


def _muon(schedule: optax.Schedule, *, share: float) -> optax.GradientTransformation:
    """Optax's Muon on the matrices that the others here take too, Adam at a share of its rate on the rest."""
    return contrib.muon(
        schedule,
        adam_learning_rate=lambda step: share * jnp.asarray(schedule(step)),
        muon_weight_dimension_numbers=optim.matrix_axes,
    )


def _galore(schedule: optax.Schedule, *, share: float, **settings: Any) -> optax.GradientTransformation:
    """Optax's GaLore, which projects the longer side, on these matrices too."""

    def axes(params: Any) -> Any:
        return jax.tree.map(
            lambda own: contrib.GaLoreDimensionNumbers(*own),
            optim.matrix_axes(params),
            is_leaf=lambda value: isinstance(value, contrib.MuonDimensionNumbers),
        )

    direction = contrib.scale_by_galore(weight_dimension_numbers=axes, **settings)
    return as_published(functools.partial(optim.routed, direction), share=share)(schedule)


_LOW_RANK = {"rank": 32, "interval": 100}
_KOALA = functools.partial(optim.koala_plus_plus, initial_variance=10.0, process_noise=10.0)
CONTENDERS: dict[str, Contender] = {
    "adamw": Contender(optax.adamw, 3e-3),
    "sgd": Contender(functools.partial(optax.sgd, momentum=0.9), 0.1),
    "muon": Contender(functools.partial(_muon, share=0.05), 0.1),
    "shampoo": Contender(as_published(optim.shampoo, b2=0.95, interval=20), 0.01),
    "soap": Contender(as_published(optim.soap, b2=0.99, b3=0.95, interval=20, share=1), 3e-3),
    "koala_plus_plus": Contender(_KOALA, 0.316),
    "racs": Contender(as_published(optim.racs), 0.2),
    "alice": Contender(as_published(optim.alice, **_LOW_RANK), 0.06),
    "fismo": Contender(as_published(optim.fismo), 0.1),
    "self_tuning_sgd": Contender(optim.self_tuning_sgd, 0.1),
    "sgd_0.01": Contender(functools.partial(optax.sgd, momentum=0.01), 0.1),
    "sgd_0.99": Contender(functools.partial(optax.sgd, momentum=0.99), 0.01),
    "self_tuning_sgd_0.9": Contender(functools.partial(optim.self_tuning_sgd, momenta=(0.01, 0.9, 0.99)), 0.1),
    "self_tuning_adamw": Contender(optim.self_tuning_adamw, 1e-3),
    "self_tuning_muon": Contender(as_published(optim.self_tuning_muon), 0.1),
    "fismo_scale_free": Contender(as_published(optim.fismo, statistics="scale_free", eps=0.1), 0.0316),
    "eigen_adam": Contender(as_published(optim.eigen_adam, b2=0.99, b3=0.95, interval=20, share=1), 3e-3),
    "alice_0": Contender(as_published(optim.alice_0, **_LOW_RANK), 0.06),
    "koala_plus_plus_first_twice": Contender(functools.partial(optim.koala_plus_plus, first_twice=True), 1.0),
    "koala_v": Contender(optim.koala_v, 0.6),
    "koala_m": Contender(optim.koala_m, 0.6),
    "swan": Contender(as_published(optim.swan), 0.2),
    "fira": Contender(as_published(optim.fira, **_LOW_RANK), 0.06),
    "galore": Contender(functools.partial(_galore, share=0.05, rank=32, update_proj_gap=100, scale=0.3), 0.06),
    "apollo": Contender(as_published(optim.apollo, **_LOW_RANK, share=1), 0.02),
    "apollo_svd": Contender(as_published(optim.apollo, **_LOW_RANK, projection="svd", share=1), 0.02),
    "apollo_mini": Contender(as_published(optim.apollo, rank=1, interval=100, scale=128**0.5, share=1), 0.003),
}
"""The settings and learning rates compared; a registered optimizer without a row takes part with its defaults."""
CONTENDERS |= {name: Contender(optim.REGISTRY[name], 0.1) for name in optim.REGISTRY if name not in CONTENDERS}


@dataclass(frozen=True, kw_only=True)
class Optimizers(Located):
    """Optimizers on MNIST, CIFAR-10 and source code: loss against step and time, memory, with tuned learning rates."""

    name: ClassVar[str] = "optimizers"
    choices: ClassVar[Mapping[str, Choice]] = {
        "tasks": Choice("task", tasks.names(), several=True),
        "optimizers": Choice("optimizer", CONTENDERS, several=True),
        "schedule": Choice("schedule", ("cosine", "steps")),
    }

    tasks: str = "mnist,cifar,text"
    """Tasks, separated by commas."""
    optimizers: str = ",".join(CONTENDERS)
    """Optimizers, separated by commas; adamw is always among them."""
    steps: int | None = None
    """Steps of each run; None leaves it to the tasks, 300 to 400."""
    sweep_steps: int | None = None
    """Steps of the runs that choose rate and decay; None: as many as those of the reported runs."""
    batch: int | None = None
    """Examples in a minibatch; None leaves it to the tasks, 8 windows of text to 64 digits."""
    rates: int = 5
    """Learning rates tried for each optimizer, half a decade apart."""
    decays: str = "0"
    """Weight decays tried with each rate, separated by commas: shares of the parameters that a step subtracts."""
    validation: bool = False
    """Accuracy or perplexity on held-out data after long runs, 2,000 to 4,680 steps, instead of the training loss."""
    schedule: str = "cosine"
    """Of the rate after its rise: cosine, or steps by a factor of 10."""
    seeds: int = 3
    """Reported runs of each optimizer, with seeds SEED, SEED + 1, ..."""
    seed: int = 0
    """First seed."""
    out: Path = Path("results/optimizers")
    """Folder for the curves, the table and the figures."""
    quick: bool = False
    """A small run for two cores: other defaults, named at the top of this help."""
    quick_options: ClassVar[Mapping[str, Any]] = {
        "tasks": "mnist",
        "optimizers": "adamw,muon,soap,koala_plus_plus",
        "steps": 80,
        "rates": 3,
        "seeds": 2,
    }

    def check(self) -> None:
        check_choices(self)
        check_minimum(self, steps=CHUNKS, sweep_steps=CHUNKS, batch=1, rates=1)
        for decay in self.weight_decays():
            if not 0 <= decay < 1:
                raise ValueError(f"decays must be at least 0 and below 1; got {self.decays!r}")
        check_seeds(self.seed, self.seeds)

    def weight_decays(self) -> list[float]:
        """`decays` as numbers. Raises ValueError where they are none."""
        try:
            return [float(decay) for decay in self.decays.split(",")]
        except ValueError:
            raise ValueError(f"decays must be numbers, separated by commas; got {self.decays!r}") from None

    def restore(self) -> list[pd.DataFrame]:
        return saved_parts(self.out / CURVES, _PART)

    def play(self, plan: None, finished: Sequence[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        done = {key_of(part, _PART) for part in finished}
        chosen = [BASELINE, *(name for name in split_names("optimizer", self.optimizers) if name != BASELINE)]
        names = split_names("task", self.tasks)
        runs = self.rates * len(self.weight_decays()) + self.seeds
        total = len(names) * len(chosen) * runs
        with bar(total, "", "run") as progress:
            for task_name in names:
                task = tasks.make(task_name)
                for name in chosen:
                    progress.set_description(f"{task_name} {name}")
                    if (task_name, name) in done:
                        progress.update(runs)
                        continue
                    compiling(progress)
                    yield _contest(task, name, self, functools.partial(advance, progress))

    def save(self, parts: list[pd.DataFrame]) -> None:
        curves = pd.concat(parts, ignore_index=True)
        save_parts(self.out / CURVES, curves)
        write_manifest(self.out, self)

    @staticmethod
    def report(folder: Path) -> str:
        curves = read_table(folder / CURVES)[0]
        table = summary(curves)
        text = "\n\n".join(markdown(str(task), rows) for task, rows in table.groupby("task", sort=False))
        save_table(folder / "summary.csv", table, index=False)
        write_file(folder / "summary.md", lambda path: path.write_text(text + "\n"))
        for task in dict.fromkeys(curves["task"]):
            figure = picture(curves.loc[curves["task"] == task], table.loc[table["task"] == task])
            save_figure(folder / f"{task}.png", figure)
        return text


def _contest(task: Task, name: str, options: Optimizers, done: Callable[[], Any]) -> pd.DataFrame:
    """The sweep of one optimizer on one task and its reported runs, as rows of curves."""
    steps = options.steps or (task.long_steps if options.validation else task.steps)
    trial = _Trial(task, CONTENDERS[name].make, steps, options)
    brief = options.sweep_steps
    short = trial if brief is None else _Trial(task, CONTENDERS[name].make, brief, options)
    grid = [CONTENDERS[name].rate * 10 ** (_DECADE * (i - (options.rates - 1) / 2)) for i in range(options.rates)]
    frames, ends = [], {}
    for rate, decay in itertools.product(grid, options.weight_decays()):
        frames.append(short.run(rate, decay, options.seed + options.seeds).assign(sweep=True))
        ends[rate, decay] = cost_of(frames[-1], task.perplexity) if options.validation else end_of(frames[-1])
        done()
    best, decay = min(ends, key=lambda pair: ends[pair])
    for seed in range(options.seed, options.seed + options.seeds):
        frames.append(trial.run(best, decay, seed).assign(sweep=False))
        done()
    edge = options.rates > 1 and best in (grid[0], grid[-1])
    extra: dict[str, Any] = {"task": task.name, "optimizer": name, "best_rate": best, "best_decay": decay, "edge": edge}
    extra["settings"] = preset(CONTENDERS[name].make)
    curves = pd.concat(frames, ignore_index=True)
    # Other programs can only slow a run down.
    extra["ms_per_step"] = 1e3 * min(column(frame, "seconds")[-1] / column(frame, "step")[-1] for frame in frames)
    curves["seconds"] = 1e-3 * extra["ms_per_step"] * curves["step"]
    return curves.assign(**extra, **trial.facts, perplexity=task.perplexity, validation=options.validation)


def _shape(options: Optimizers, steps: int) -> optax.Schedule:
    """s(t), see the head of this file."""
    rise = max(1, steps // (20 if options.validation else 10))
    if options.schedule == "cosine":
        return optax.warmup_cosine_decay_schedule(0.0, 1.0, rise, steps, 0.0 if options.validation else 0.1)
    falls = optax.piecewise_constant_schedule(1.0, {int(share * steps) - rise: 0.1 for share in (0.3, 0.6, 0.9)})
    return optax.join_schedules([optax.linear_schedule(0.0, 1.0, rise), falls], [rise])


class _Trial:
    """One optimizer on one task, compiled once for all rates, decays and seeds."""

    def __init__(self, task: Task, make: Callable, steps: int, options: Optimizers) -> None:
        # Every optimizer here is linear in its learning rate, so the peak can multiply its updates, as data.
        steps = steps // CHUNKS * CHUNKS
        shape = _shape(options, steps)
        self._task, self.steps = task, steps
        self._transform = promoting(make(shape))
        params = jax.eval_shape(task.init, jax.random.key(0))
        state = jax.eval_shape(self._transform.init, params)
        parameters, numbers = (sum(leaf.size for leaf in jax.tree.leaves(tree)) for tree in (params, state))
        size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))

        def step(carry, _, data, peak, decay, seed):
            params, state, count = carry
            batch_of = task.draw(jax.random.fold_in(jax.random.key(seed), count), data, options.batch or task.batch)
            (loss, _), gradients = jax.value_and_grad(task.loss, has_aux=True)(params, batch_of)
            updates, state = self._transform.update(gradients, state, params, value=loss)
            kept = 1 - decay * shape(count)
            params = jax.tree.map(lambda p, u: kept * p + peak * u, params, updates)
            return (params, state, count + 1), loss

        def chunk(carry, data, peak, decay, seed):
            body = functools.partial(step, data=data, peak=peak, decay=decay, seed=seed)
            carry, losses = lax.scan(body, carry, length=steps // CHUNKS)
            return carry, jnp.mean(losses)

        began = time.perf_counter()
        carry = (params, state, jax.ShapeDtypeStruct((), jnp.int32))
        number = jax.ShapeDtypeStruct((), jnp.float32)
        seed = jax.ShapeDtypeStruct((), jnp.uint32)
        self._chunk = ahead(jax.jit(chunk, donate_argnums=0), carry, task.data, number, number, seed)
        seconds = time.perf_counter() - began
        sizes = {"parameters": parameters, "state": numbers, "state_bytes": size}
        self.facts = {**sizes, "compile_seconds": seconds}
        self._judged = range(CHUNKS // _JUDGED - 1, CHUNKS, CHUNKS // _JUDGED) if options.validation else [CHUNKS - 1]
        self._held_out = task.held_out if options.validation else jax.tree.map(lambda part: part[:1], task.held_out)
        self._judge = jax.jit(lambda params, batches: lax.map(lambda batch: task.loss(params, batch), batches))

    def run(self, rate: float, decay: float, seed: int) -> pd.DataFrame:
        """Loss and seconds of every chunk of one run; loss and accuracy on held-out data at some, NaN at the others."""
        params: PyTree = self._task.init(jax.random.key(seed_bits(seed)))
        carry = (params, self._transform.init(params), jnp.zeros((), jnp.int32))
        numbers = jnp.float32(rate), jnp.float32(decay), seed_bits(seed)
        rows, seconds = [], 0.0
        for index in range(CHUNKS):
            began = time.perf_counter()
            carry, loss = self._chunk(carry, self._task.data, *numbers)
            row = {"step": self.steps // CHUNKS * (index + 1), "loss": float(loss)}
            seconds += time.perf_counter() - began
            judged = self._judge(carry[0], self._held_out) if index in self._judged else (np.nan, np.nan)
            test_loss, test_accuracy = (float(np.mean(part)) for part in judged)
            row |= {"judged": index in self._judged, "test_loss": test_loss, "test_accuracy": test_accuracy}
            rows.append({**row, "seconds": seconds})
        return pd.DataFrame(rows).assign(rate=rate, decay=decay, seed=seed)


BASELINE = "adamw"
CHUNKS = 40
"""Points of a curve."""
_DIVERGED = 100.0
"""Nats: the loss of a run that ends above it counts as infinite."""


def summary(curves: pd.DataFrame) -> pd.DataFrame:
    """One row for each task and optimizer, over the reported seeds.

    Columns: best_rate, best_decay, edge (the best rate lies at the end of its grid), settings that are not the
    optimizer's defaults; loss over the last tenth of the
    steps, test_loss, test_accuracy, perplexity, each with the half-width `_95` of its 95% t-interval over seeds;
    ahead_steps and ahead_time, by how much the loss lies below AdamW's (paired over seeds) after as many steps and
    after as much time; ahead_accuracy and ahead_perplexity, by how much these are better than AdamW's at the end;
    ms_per_step and its ratio to AdamW's; state, numbers kept per parameter, and state_bytes of all of them.
    """
    reported = curves.loc[~curves["sweep"]]
    rows = []
    for (task, name), group in reported.groupby(["task", "optimizer"], sort=False):  # pyright: ignore
        base = reported.loc[(reported["task"] == task) & (reported["optimizer"] == BASELINE)]
        runs, base_runs = _by_seed(group), _by_seed(base)
        row: dict[str, Any] = {"task": task, "optimizer": name}
        row |= {key: column(group, key)[0] for key in ("best_rate", "best_decay", "edge", "validation", "settings")}
        row["by_perplexity"] = column(group, "perplexity")[0]
        samples = {
            "loss": [end_of(run) for run in runs],
            "test_loss": [_test_loss(run) for run in runs],
            "test_accuracy": [_accuracy(run) for run in runs],
            "perplexity": [np.exp(_test_loss(run)) for run in runs],
            "ahead_steps": [end_of(b) - end_of(run) for run, b in zip(runs, base_runs, strict=True)],
            "ahead_time": [_ahead_in_time(run, b) for run, b in zip(runs, base_runs, strict=True)],
            "ahead_accuracy": [_accuracy(run) - _accuracy(b) for run, b in zip(runs, base_runs, strict=True)],
            "ahead_perplexity": [
                np.exp(_test_loss(b)) - np.exp(_test_loss(run)) for run, b in zip(runs, base_runs, strict=True)
            ],
        }
        with np.errstate(invalid="ignore"):  # of runs that diverged
            row |= summarized(samples)
        row["ms_per_step"] = column(group, "ms_per_step").min()
        row["time_ratio"] = row["ms_per_step"] / column(base, "ms_per_step").min()
        row["state"] = column(group, "state")[0] / column(group, "parameters")[0]
        row["state_bytes"] = column(group, "state_bytes")[0]
        rows.append(row)
    return pd.DataFrame(rows)


def column(frame: pd.DataFrame, name: str) -> np.ndarray:
    """The values of one column."""
    return frame[name].to_numpy()


def _by_seed(frame: pd.DataFrame) -> list[pd.DataFrame]:
    return [run for _, run in frame.groupby("seed")]


def _ahead_in_time(run: pd.DataFrame, base: pd.DataFrame) -> float:
    """How much lower the loss is than the baseline's at the moment when the quicker of the two is done."""
    moment = min(column(run, "seconds")[-1], column(base, "seconds")[-1])
    return _loss_at(base, moment) - _loss_at(run, moment)


def _loss_at(run: pd.DataFrame, moment: float) -> float:
    """Mean loss over the tenth of the run that ends at a moment."""
    done = max(1, int(np.searchsorted(column(run, "seconds"), moment, side="right")))
    return settled(column(run, "loss")[max(0, done - CHUNKS // 10) : done])


def end_of(frame: pd.DataFrame) -> float:
    """Training loss over the last tenth of a run; infinite where it diverged."""
    return settled(column(frame, "loss")[-CHUNKS // 10 :])


def cost_of(frame: pd.DataFrame, perplexity: bool) -> float:
    """What a run with validation is chosen by: the loss, or one minus the accuracy, on held-out data at its end."""
    return _test_loss(frame) if perplexity else 1 - _accuracy(frame)


def _test_loss(frame: pd.DataFrame) -> float:
    return settled(column(frame, "test_loss")[-1:])


def _accuracy(frame: pd.DataFrame) -> float:
    return float(column(frame, "test_accuracy")[-1])


def settled(losses: np.ndarray) -> float:
    """Their mean; infinite where the run diverged."""
    loss = float(losses.mean())
    return loss if loss < _DIVERGED else np.inf


def markdown(task: str, table: pd.DataFrame) -> str:
    """The rows of one task for people, the best first."""
    order = _order(table)
    table = table.sort_values(order, ascending=order != "test_accuracy")
    rates = [f"{rate:.2g}" + " (edge)" * edge for rate, edge in zip(table["best_rate"], table["edge"], strict=True)]
    cells = {"optimizer": table["optimizer"], "rate": rates}
    if order != "loss":
        ahead = {"test_accuracy": "ahead_accuracy", "perplexity": "ahead_perplexity"}[order]
        cells["decay"] = [f"{decay:.2g}" for decay in table["best_decay"]]
        title, unit = ("perplexity", 1) if order == "perplexity" else ("test accuracy / %", 100)
        cells[title] = column_text(table, order, unit)
        cells["ahead of AdamW"] = column_text(table, ahead, unit)
        cells["train loss"] = column_text(table, "loss")
    else:
        titles = {
            "loss": "train loss",
            "test_loss": "test loss",
            "test_accuracy": "test accuracy",
            "ahead_steps": "ahead of AdamW, steps",
            "ahead_time": "ahead, time",
        }
        cells |= {title: column_text(table, name) for name, title in titles.items()}
    return _rows(task, cells | _costs(table) | {"settings that are not defaults": table["settings"]})


def _order(table: pd.DataFrame) -> str:
    """The column by which the rows of one task are compared."""
    if not table["validation"].iloc[0]:
        return "loss"
    return "perplexity" if table["by_perplexity"].iloc[0] else "test_accuracy"


def _costs(table: pd.DataFrame) -> dict[str, Any]:
    return {
        "ms / step": [f"{ms:.1f}" for ms in table["ms_per_step"]],
        "of AdamW's": [f"{ratio:.2f}" for ratio in table["time_ratio"]],
        "state / kB": [f"{size / 1e3:,.1f}" for size in table["state_bytes"]],
        "state / parameters": [f"{state:.2f}" for state in table["state"]],
    }


def _rows(task: str, cells: dict[str, Any]) -> str:
    columns = list(cells)
    lines = [f"**{task}**", "", "| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in zip(*cells.values(), strict=True)]
    return "\n".join(lines)


_COLORS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")


def picture(curves: pd.DataFrame, table: pd.DataFrame) -> "Figure":
    """Training loss, or with validation the error rate or perplexity on held-out data, of AdamW and the six best.

    Against step and against time; and the end of all optimizers' sweeps against the learning rate, with its best decay.
    """
    table = table.sort_values(_order(table), ascending=_order(table) != "test_accuracy")
    best = [name for name in table["optimizer"] if name != BASELINE][: len(_COLORS) - 1]
    colors = dict(zip([BASELINE, *best], _COLORS, strict=False))
    from matplotlib.figure import Figure

    from seqdec import figures
    from seqdec.ticks import plain_ticks

    figure = Figure(figsize=(14, 4.6), dpi=140, layout="constrained")
    by_step, by_time, by_rate = figure.subplots(1, 3)
    for name, color in colors.items():
        runs = [_drawn(run) for run in _by_seed(curves.loc[(curves["optimizer"] == name) & ~curves["sweep"]])]
        mean, margin = mean_and_margin(np.stack([column(run, "drawn") for run in runs]))
        seconds = np.mean([column(run, "seconds") for run in runs], axis=0)
        for axes, x in ((by_step, column(runs[0], "step")), (by_time, seconds)):
            axes.plot(x, mean, color=color, label=name, lw=1.6)
            axes.fill_between(x, mean - margin, mean + margin, color=color, alpha=0.13, lw=0)
    for name in dict.fromkeys(curves["optimizer"]):
        sweep = curves.loc[(curves["optimizer"] == name) & curves["sweep"]]
        rates = np.unique(column(sweep, "rate"))
        ends = [
            min(column(_drawn(run), "drawn")[-1] for _, run in sweep.loc[sweep["rate"] == rate].groupby("decay"))
            for rate in rates
        ]
        by_rate.plot(rates / rates[len(rates) // 2], ends, "o-", color=colors.get(name, "0.8"), lw=1.2, ms=3)
    what, unit = _LABELS[_order(table)]
    limits = _range(_drawn(curves), unit)
    for axes, x, title in (
        (by_step, "step", f"{what} against step"),
        (by_time, "run time without compilation / s", f"{what} against time"),
        (by_rate, "learning rate over the middle of its grid", "End of the sweep's runs; others gray"),
    ):
        axes.set_title(title, fontsize=11, loc="left")
        axes.set(xlabel=x, ylabel=unit, **({"yscale": "log", "ylim": limits} if limits else {}))
        axes.grid(axis="y", which="both", color="0.92", lw=0.7)
        axes.spines[["top", "right"]].set_visible(False)
    by_rate.set_xscale("log")
    for axes in (by_step, by_time, by_rate):
        plain_ticks(axes.xaxis)
        plain_ticks(axes.yaxis)
    figures.legend(figure, [by_step], list(colors))
    task = str(curves["task"].iloc[0])
    seeds = curves.loc[~curves["sweep"], "seed"].nunique()
    return figures.titled(figure, f"{task} · {figures.mean_and_interval(seeds)}")


_LABELS = {
    "loss": ("Training loss", "cross-entropy / nats"),
    "test_accuracy": ("Held-out data", "error rate"),
    "perplexity": ("Held-out data", "perplexity"),
}


def _drawn(curves: pd.DataFrame) -> pd.DataFrame:
    """The points of curves that a picture shows, with the column `drawn`, of which less is better."""
    if not column(curves, "validation")[0]:
        smooth = [_smooth(column(run, "loss")) for _, run in curves.groupby(_RUN, sort=False)]
        return curves.assign(drawn=np.concatenate(smooth))
    judged = curves.loc[curves["judged"]]
    if column(curves, "perplexity")[0]:
        return judged.assign(drawn=np.exp(np.minimum(judged["test_loss"], _DIVERGED)))
    return judged.assign(drawn=1 - judged["test_accuracy"])


_RUN = ["optimizer", "sweep", "rate", "decay", "seed"]


def _smooth(losses: np.ndarray) -> np.ndarray:
    """Mean of the last tenth of the run's points, at every point."""
    return np.array([losses[max(0, i + 1 - CHUNKS // 10) : i + 1].mean() for i in range(len(losses))])


def _range(drawn: pd.DataFrame, unit: str) -> tuple[float, float] | None:
    """Limits of a logarithmic axis: from the least to a little above where the runs begin; None without any above 0."""
    values, steps = column(drawn, "drawn"), column(drawn, "step")
    known = np.isfinite(values) & (values > 0)
    if not known.any():
        return None
    first = steps[known] == steps[known].min()
    low, high = 0.8 * max(float(values[known].min()), 1e-4), 1.5 * float(np.median(values[known][first]))
    return low, max(2 * low, min(high, 1.0) if unit == "error rate" else high)
