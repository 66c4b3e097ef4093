"""Optimizers on real training tasks: held-out data against step and time, each with a search of its own.

A run is of full length: its rate rises over the first twentieth and falls along a cosine s(t) to zero. A step is

    theta <- (1 - decay s(t)) theta - rate s(t) u          matrices
    theta <- (1 - decay s(t)) theta - share rate s(t) u    embeddings, head, norms and biases

for the optimizer's direction u. Rate and share are searched alike for all optimizers, by the loss or accuracy on one
half of the held-out data in runs on a seed that is not reported: rates half a decade apart, from a typical one
outwards until the best has worse ones on both sides; with this rate, shares likewise from 1 outwards. The best pair is
then run on the reported seeds, and judged by the other half. All optimizers have the same initial parameters and
minibatches for a seed. Times are those of the fastest run of an optimizer, without compilation.

DIR/manifest.json      options
DIR/curves.parquet     loss and seconds of every run at 40 steps of it, bytes of the optimizer's state
DIR/summary.csv, .md   table: held-out data, differences to AdamW, steps and time to AdamW's loss, memory
DIR/claims.csv         what the papers claim beside differences on every task, as far as both optimizers ran
DIR/TASK.png           held-out data against step, time and learning rate
"""

import functools
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
_JUDGED = 4
"""Points of a curve from one judgment on held-out data to the next."""


class Contender(NamedTuple):
    """An optimizer and the middle of its grid of learning rates."""

    make: Callable[[optax.Schedule], optax.GradientTransformation]
    rate: float


def preset(make: Callable[..., Any]) -> str:
    """The settings of a contender that are not the defaults of its optimizer."""
    if not isinstance(make, functools.partial):
        return ""
    return ", ".join(
        f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={getattr(value, '__name__', value)}"
        for name, value in make.keywords.items()
    )


def galore(rate: optax.ScalarOrSchedule, **settings: Any) -> optax.GradientTransformation:
    """Optax's GaLore, which projects the longer side, on the matrices that the others here take too."""

    def axes(params: Any) -> Any:
        return jax.tree.map(
            lambda own: contrib.GaLoreDimensionNumbers(*own),
            optim.matrix_axes(params),
            is_leaf=lambda value: isinstance(value, contrib.MuonDimensionNumbers),
        )

    def direction(known: Any) -> optax.GradientTransformation:
        has_matrices = bool(jax.tree.leaves(known))  # without any, that of optax raises
        made = contrib.scale_by_galore(weight_dimension_numbers=axes, **settings)
        return made if has_matrices else optax.identity()

    return optim.routed(direction, rate)


_LOW_RANK = {"rank": 32, "interval": 100}
_MUON = functools.partial(contrib.muon, muon_weight_dimension_numbers=optim.matrix_axes, consistent_rms=0.2)
_KOALA = functools.partial(optim.koala_plus_plus, initial_variance=10.0, process_noise=10.0)
CONTENDERS: dict[str, Contender] = {
    "adamw": Contender(functools.partial(optax.adamw, weight_decay=0.0), 3e-3),
    "sgd": Contender(functools.partial(optax.sgd, momentum=0.9), 0.1),
    "muon": Contender(_MUON, 3e-3),
    "galore": Contender(functools.partial(galore, rank=32, update_proj_gap=100), 3e-3),
    "shampoo": Contender(functools.partial(optim.shampoo, b2=0.95, interval=20), 3e-3),
    "koala_plus_plus": Contender(_KOALA, 0.316),
    "koala_plus_plus_published": Contender(functools.partial(optim.koala_plus_plus, first_twice=True), 1.0),
    "koala_v": Contender(optim.koala_v, 0.6),
    "koala_m": Contender(optim.koala_m, 0.6),
    "self_tuning_sgd": Contender(optim.self_tuning_sgd, 0.1),
    "alice": Contender(functools.partial(optim.alice, **_LOW_RANK), 3e-3),
    "alice_0": Contender(functools.partial(optim.alice_0, **_LOW_RANK), 3e-3),
    "fira": Contender(functools.partial(optim.fira, **_LOW_RANK), 3e-3),
    "apollo": Contender(functools.partial(optim.apollo, **_LOW_RANK), 3e-3),
}
"""The settings and middle learning rates compared; other registered optimizers take part with their defaults."""
CONTENDERS |= {name: Contender(optim.REGISTRY[name], 3e-3) for name in optim.REGISTRY if name not in CONTENDERS}


class Claim(NamedTuple):
    """Of a paper: one optimizer is better than another."""

    paper: str
    better: str
    worse: str
    published: str
    """its figures for both, in this order"""


CLAIMS = [
    Claim("KOALA++", "koala_plus_plus_published", "sgd", "error on CIFAR-10, ResNet-50: 5.28, 6.19%"),
    Claim("KOALA++", "koala_plus_plus_published", "adamw", "error on CIFAR-10, ResNet-50: 5.28, 6.43%"),
    Claim("Alice, RACS", "alice", "adamw", "perplexity on C4, 130M: 21.95, 25.03"),
    Claim("Alice, RACS", "racs", "adamw", "perplexity on C4, 130M: 22.67, 25.03"),
    Claim("Alice, RACS", "alice", "galore", "perplexity on C4, 130M: 21.95, 27.18"),
    Claim("Alice, RACS", "alice", "fira", "perplexity on C4, 130M: 21.95, 25.21"),
    Claim("Alice, RACS", "alice", "apollo", "perplexity on C4, 130M (singular vectors): 21.95, 22.84"),
    Claim("Self-tuning momentum", "self_tuning_sgd", "sgd", "error on CIFAR-100: 21.94, 22.43%"),
    Claim("Self-tuning momentum", "self_tuning_adamw", "adamw", "error on CIFAR-100: 26.74, 26.80%"),
    Claim("FISMO", "fismo", "muon", "loss of GPT-2 and CIFAR-10, figures"),
    Claim("FISMO", "fismo", "shampoo", "loss of GPT-2 and CIFAR-10, figures"),
    Claim("FISMO", "fismo", "adamw", "loss of GPT-2 and CIFAR-10, figures"),
    Claim("FISMO", "fismo", "sgd", "loss of GPT-2 and CIFAR-10, figures"),
]


@dataclass(frozen=True, kw_only=True)
class Optimizers(Located):
    """Optimizers on MNIST, CIFAR-10 and source code: held-out data against step and time, with rates that are searched.

    MNIST and CIFAR-10 are downloaded if missing; the source code is Python's. On one core, an optimizer takes half a
    minute to three minutes on a task, compiling included.
    Example: seqdec run optimizers --tasks text --optimizers soap,muon,racs
    """

    name: ClassVar[str] = "optimizers"
    choices: ClassVar[Mapping[str, Choice]] = {
        "tasks": Choice("task", tasks.names(), several=True),
        "optimizers": Choice("optimizer", CONTENDERS, several=True),
    }

    tasks: str = "mnist,cifar,text"
    """Tasks, separated by commas: mnist, cifar, text, scanned (a stacked transformer), lstm."""
    optimizers: str = ",".join(CONTENDERS)
    """Optimizers, separated by commas; adamw is always among them."""
    steps: int | None = None
    """Steps of each run; None leaves it to the tasks, 300 to 2,000."""
    batch: int | None = None
    """Examples in a minibatch; None leaves it to the tasks, 4 windows of text to 64 digits."""
    decay: float = 0.0
    """Weight decay: the share of the parameters that a step subtracts."""
    search: bool = True
    """Search rate and share; otherwise the middle of each grid and a share of 1."""
    shift: float = 0.0
    """Decades by which the grids of learning rates are moved: 0.25 tries the rates between those of 0."""
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
        "search": False,
        "seeds": 2,
    }

    def check(self) -> None:
        check_choices(self)
        check_minimum(self, steps=CHUNKS, batch=1)
        if not 0 <= self.decay < 1:
            raise ValueError(f"decay must be at least 0 and below 1; got {self.decay!r}")
        if not 0 <= self.shift < 0.5:
            raise ValueError(f"shift must be at least 0 and below the step of the grids, 0.5; got {self.shift!r}")
        check_seeds(self.seed, self.seeds)

    def restore(self) -> list[pd.DataFrame]:
        return saved_parts(self.out / CURVES, _PART)

    def play(self, plan: None, finished: Sequence[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        done = {key_of(part, _PART) for part in finished}
        chosen = [BASELINE, *(name for name in split_names("optimizer", self.optimizers) if name != BASELINE)]
        names = split_names("task", self.tasks)
        runs = self.seeds + (5 if self.search else 0)  # at least
        with bar(len(names) * len(chosen) * runs, "", "run") as progress:
            for task_name in names:
                task = tasks.make(task_name)
                for name in chosen:
                    progress.set_description(f"{task_name} {name}")
                    if (task_name, name) in done:
                        progress.update(runs)
                        continue
                    compiling(progress)
                    part = _contest(task, name, self, functools.partial(advance, progress))
                    progress.total += column(part, "searched")[0] + self.seeds - runs
                    yield part

    def save(self, parts: list[pd.DataFrame]) -> None:
        curves = pd.concat(parts, ignore_index=True)
        save_parts(self.out / CURVES, curves)
        write_manifest(self.out, self)

    @staticmethod
    def report(folder: Path) -> str:
        curves = read_table(folder / CURVES)[0]
        if "share" not in curves:
            raise ValueError(f"{folder / CURVES} was written before the share was searched: run the experiment again")
        table = summary(curves)
        text = "\n\n".join(markdown(str(task), rows) for task, rows in table.groupby("task", sort=False))
        save_table(folder / "summary.csv", table, index=False)
        save_table(folder / "claims.csv", claims(curves), index=False)
        write_file(folder / "summary.md", lambda path: path.write_text(text + "\n"))
        for task in dict.fromkeys(curves["task"]):
            figure = picture(curves.loc[curves["task"] == task], table.loc[table["task"] == task])
            save_figure(folder / f"{task}.png", figure)
        return text


def _contest(task: Task, name: str, options: Optimizers, done: Callable[[], Any]) -> pd.DataFrame:
    """The search of one optimizer on one task and its reported runs, as rows of curves."""
    trial = _Trial(task, CONTENDERS[name].make, options)
    frames: list[pd.DataFrame] = []

    def cost(rate: float, share: float) -> float:
        frames.append(trial.run(rate, share, options.seed + options.seeds).assign(sweep=True))
        done()
        return cost_of(frames[-1], task.perplexity)

    best, share = CONTENDERS[name].rate * 10**options.shift, 1.0
    if options.search:
        best, least = lowest(lambda rate: cost(rate, 1.0), best)
        share, _ = lowest(lambda share: cost(best, share), 1.0, least)
    for seed in range(options.seed, options.seed + options.seeds):
        frames.append(trial.run(best, share, seed).assign(sweep=False))
        done()
    curves = pd.concat(frames, ignore_index=True)
    # Other programs can only slow a run down.
    ms = 1e3 * min(column(frame, "seconds")[-1] / column(frame, "step")[-1] for frame in frames)
    curves["seconds"] = 1e-3 * ms * curves["step"]
    extra: dict[str, Any] = {"task": task.name, "optimizer": name, "ms_per_step": ms, "perplexity": task.perplexity}
    extra |= {"settings": preset(CONTENDERS[name].make), "searched": len(frames) - options.seeds}
    return curves.assign(**extra, **trial.facts)


_REACH = 4
"""Half decades that a search goes beyond its first three values."""


def lowest(cost: Callable[[float], float], middle: float, known: float | None = None) -> tuple[float, float]:
    """The argument of the least cost, half a decade apart, and this cost; `known` is the cost of the middle."""
    found = {} if known is None else {0: known}

    def at(place: int) -> None:
        if place not in found:
            value = cost(middle * 10 ** (place / 2))
            found[place] = value if np.isfinite(value) else np.inf

    def best() -> int:
        return min(found, key=lambda place: (found[place], abs(place)))

    for place in (0, -1, 1):
        at(place)
    for _ in range(_REACH):
        if best() not in (min(found), max(found)):
            break
        at(best() + (1 if best() == max(found) else -1))
    return middle * 10 ** (best() / 2), found[best()]


def _shape(steps: int) -> optax.Schedule:
    """s(t), see the head of this file."""
    return optax.warmup_cosine_decay_schedule(0.0, 1.0, max(1, steps // 20), steps, 0.0)


class _Trial:
    """One optimizer on one task, compiled once for all rates, shares and seeds."""

    def __init__(self, task: Task, make: Callable, options: Optimizers) -> None:
        # Every optimizer here is linear in its learning rate, so the peak can multiply its updates, as data.
        steps = (options.steps or task.steps) // CHUNKS * CHUNKS
        shape = _shape(steps)
        self._task, self.steps, self._init = task, steps, jax.jit(task.init)
        self._transform = promoting(make(shape))
        self._begin = jax.jit(self._transform.init)
        params = jax.eval_shape(task.init, jax.random.key(0))
        state = jax.eval_shape(self._transform.init, params)
        matrix = optim.hidden_matrices(params)
        parameters, numbers = (sum(leaf.size for leaf in jax.tree.leaves(tree)) for tree in (params, state))
        size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))

        def step(carry, _, data, peak, share, seed):
            params, state, count = carry
            batch_of = task.draw(jax.random.fold_in(jax.random.key(seed), count), data, options.batch or task.batch)
            (loss, _), gradients = jax.value_and_grad(task.loss, has_aux=True)(params, batch_of)
            updates, state = self._transform.update(gradients, state, params, value=loss)
            kept = 1 - options.decay * shape(count)
            params = jax.tree.map(
                lambda p, u, own: kept * p + (peak if own else share * peak) * u, params, updates, matrix
            )
            return (params, state, count + 1), loss

        def chunk(carry, data, peak, share, seed):
            body = functools.partial(step, data=data, peak=peak, share=share, seed=seed)
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
        self._judge = jax.jit(lambda params, batches: lax.map(lambda batch: task.loss(params, batch), batches))

    def run(self, rate: float, share: float, seed: int) -> pd.DataFrame:
        """Loss and seconds of every chunk of one run; loss and accuracy on held-out data at some, NaN at the others."""
        params: PyTree = self._init(jax.random.key(seed_bits(seed)))
        carry = (params, self._begin(params), jnp.zeros((), jnp.int32))
        numbers = jnp.float32(rate), jnp.float32(share), seed_bits(seed)
        rows, seconds = [], 0.0
        for index in range(CHUNKS):
            began = time.perf_counter()
            carry, loss = self._chunk(carry, self._task.data, *numbers)
            row = {"step": self.steps // CHUNKS * (index + 1), "loss": float(loss)}
            seconds += time.perf_counter() - began
            row["judged"] = index % _JUDGED == _JUDGED - 1
            judged = np.full((2, 2), np.nan)
            if row["judged"]:
                own = np.asarray(self._judge(carry[0], self._task.held_out))
                judged = own.reshape(2, 2, -1).mean(-1)
            row |= dict(zip(("choice_loss", "test_loss"), judged[0], strict=True))
            row |= dict(zip(("choice_accuracy", "test_accuracy"), judged[1], strict=True))
            rows.append({**row, "seconds": seconds})
        return pd.DataFrame(rows).assign(rate=rate, share=share, seed=seed)


BASELINE = "adamw"
CHUNKS = 40
"""Points of a curve."""
_DIVERGED = 100.0
"""Nats: the loss of a run that ends above it counts as infinite."""


def summary(curves: pd.DataFrame) -> pd.DataFrame:
    """One row for each task and optimizer, over the reported seeds.

    Columns: rate, share, searched (runs that chose them), settings that are not the optimizer's defaults; loss over the
    last tenth of the steps, and test_loss, test_accuracy, perplexity at the end, each with the half-width `_95` of its
    95% t-interval over seeds; ahead_accuracy and ahead_perplexity, by how much these are better than AdamW's, paired
    over seeds; steps_to_adamw and time_to_adamw, the shares of AdamW's steps and time after which the mean loss on
    held-out data is AdamW's at the end, NaN if never; ms_per_step and its ratio to AdamW's; state, numbers kept per
    parameter, and state_bytes of all of them.
    """
    reported = curves.loc[~curves["sweep"]]
    rows = []
    for (task, name), group in reported.groupby(["task", "optimizer"], sort=False):  # pyright: ignore
        base = reported.loc[(reported["task"] == task) & (reported["optimizer"] == BASELINE)]
        runs, base_runs = _by_seed(group), _by_seed(base)
        row: dict[str, Any] = {"task": task, "optimizer": name}
        row |= {key: column(group, key)[0] for key in ("rate", "share", "searched", "settings")}
        row["by_perplexity"] = column(group, "perplexity")[0]
        samples = {
            "loss": [end_of(run) for run in runs],
            "test_loss": [_test_loss(run) for run in runs],
            "test_accuracy": [_accuracy(run) for run in runs],
            "perplexity": [np.exp(_test_loss(run)) for run in runs],
            "ahead_accuracy": [_accuracy(run) - _accuracy(b) for run, b in zip(runs, base_runs, strict=True)],
            "ahead_perplexity": [
                np.exp(_test_loss(b)) - np.exp(_test_loss(run)) for run, b in zip(runs, base_runs, strict=True)
            ],
        }
        with np.errstate(invalid="ignore"):  # of runs that diverged
            row |= summarized(samples)
        row["ms_per_step"] = column(group, "ms_per_step").min()
        row["time_ratio"] = row["ms_per_step"] / column(base, "ms_per_step").min()
        row["steps_to_adamw"] = _share_to(group, base)
        row["time_to_adamw"] = row["steps_to_adamw"] * row["time_ratio"]
        row["state"] = column(group, "state")[0] / column(group, "parameters")[0]
        row["state_bytes"] = column(group, "state_bytes")[0]
        rows.append(row)
    return pd.DataFrame(rows)


def claims(curves: pd.DataFrame) -> pd.DataFrame:
    """A row for each of `CLAIMS` and each task on which both optimizers ran.

    Columns: paper, better, worse, published, task; gain of the first, in percentage points of accuracy or in nats of
    loss on held-out data, paired over seeds, gain_95, and "seen", "not seen" (the interval is above, below zero) or
    "open".
    """
    last = curves.loc[~curves["sweep"] & (curves["step"] == curves.groupby("task")["step"].transform("max"))]
    value = np.where(last["perplexity"], -last["test_loss"], 100 * last["test_accuracy"])
    ends = last.assign(value=value).set_index(["task", "optimizer", "seed"])["value"].sort_index()
    rows = []
    for claim in CLAIMS:
        for task in dict.fromkeys(last["task"]):
            names = ends.loc[task].index.get_level_values(0)
            if claim.better in names and claim.worse in names:
                gains = ends.loc[task, claim.better] - ends.loc[task, claim.worse]
                row = summarized({"gain": gains.to_numpy()})
                gain, margin = row["gain"], row["gain_95"]
                verdict = "seen" if gain > margin else "not seen" if gain < -margin else "open"
                rows.append({**claim._asdict(), "task": task, **row, "verdict": verdict})
    return pd.DataFrame(rows, columns=[*Claim._fields, "task", "gain", "gain_95", "verdict"])


def _share_to(group: pd.DataFrame, base: pd.DataFrame) -> float:
    """The share of the steps after which the mean held-out loss is that of the end of `base`; NaN if never."""
    mean = group.loc[group["judged"]].groupby("step")["test_loss"].mean()
    goal = base.loc[base["judged"]].groupby("step")["test_loss"].mean().iloc[-1]
    steps, losses = mean.index.to_numpy(float), np.minimum.accumulate(mean.to_numpy())
    if not losses[-1] <= goal:
        return float("nan")
    place = int(np.argmax(losses <= goal))
    if place == 0:
        return steps[0] / steps[-1]
    part = (losses[place - 1] - goal) / (losses[place - 1] - losses[place])
    return float((steps[place - 1] + part * (steps[place] - steps[place - 1])) / steps[-1])


def column(frame: pd.DataFrame, name: str) -> np.ndarray:
    """The values of one column."""
    return frame[name].to_numpy()


def _by_seed(frame: pd.DataFrame) -> list[pd.DataFrame]:
    return [run for _, run in frame.groupby("seed")]


def end_of(frame: pd.DataFrame) -> float:
    """Training loss over the last tenth of a run; infinite where it diverged."""
    return settled(column(frame, "loss")[-CHUNKS // 10 :])


def cost_of(frame: pd.DataFrame, perplexity: bool) -> float:
    """What a run is chosen by: the loss, or one minus the accuracy, on its half of the held-out data."""
    if perplexity:
        return settled(column(frame, "choice_loss")[-1:])
    return 1 - float(column(frame, "choice_accuracy")[-1])


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
    title, unit = ("perplexity", 1) if order == "perplexity" else ("accuracy / %", 100)
    ahead = {"test_accuracy": "ahead_accuracy", "perplexity": "ahead_perplexity"}[order]
    cells = {
        "optimizer": table["optimizer"],
        title: column_text(table, order, unit),
        "ahead of AdamW": column_text(table, ahead, unit),
        "steps to AdamW's loss": _shares(table["steps_to_adamw"]),
        "time": _shares(table["time_to_adamw"]),
        "train loss": column_text(table, "loss"),
        "rate": [f"{rate:.2g}" for rate in table["rate"]],
        "share": [f"{share:.2g}" for share in table["share"]],
        "ms / step": [f"{ms:.1f}" for ms in table["ms_per_step"]],
        "state / kB": [f"{size / 1e3:,.0f}" for size in table["state_bytes"]],
        "settings that are not defaults": table["settings"],
    }
    return _rows(task, cells)


def _shares(values: Any) -> list[str]:
    return ["never" if np.isnan(value) else f"{value:.2f}" for value in values]


def _order(table: pd.DataFrame) -> str:
    """The column by which the rows of one task are compared."""
    return "perplexity" if table["by_perplexity"].iloc[0] else "test_accuracy"


def _rows(task: str, cells: dict[str, Any]) -> str:
    columns = list(cells)
    lines = [f"**{task}**", "", "| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in zip(*cells.values(), strict=True)]
    return "\n".join(lines)


_COLORS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")


def picture(curves: pd.DataFrame, table: pd.DataFrame) -> "Figure":
    """Error rate or perplexity on held-out data, of AdamW and the six best.

    Against step and against time; and the end of all optimizers' searches against the learning rate, at a share of 1.
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
        sweep = curves.loc[(curves["optimizer"] == name) & curves["sweep"] & (curves["share"] == 1)]
        ends = {rate: column(_drawn(run), "drawn")[-1] for rate, run in sweep.groupby("rate")}
        if ends:
            by_rate.plot(
                np.array([*ends]) / min(ends, key=lambda rate: ends[rate]),
                [*ends.values()],
                "o-",
                color=colors.get(name, "0.8"),
                lw=1.2,
                ms=3,
                zorder=2 + (name in colors),
            )
    what, unit = _LABELS[_order(table)]
    limits = _range(_drawn(curves.loc[~curves["sweep"]]), unit)
    for axes, x, title in (
        (by_step, "step", f"{what} against step"),
        (by_time, "run time without compilation / s", f"{what} against time"),
        (by_rate, "learning rate by the best", "End of the search's runs; others gray"),
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
    "test_accuracy": ("Held-out data", "error rate"),
    "perplexity": ("Held-out data", "perplexity"),
}


def _drawn(curves: pd.DataFrame) -> pd.DataFrame:
    """The points of curves that a picture shows, with the column `drawn`, of which less is better."""
    judged = curves.loc[curves["judged"]]
    if column(curves, "perplexity")[0]:
        return judged.assign(drawn=np.exp(np.minimum(judged["test_loss"], _DIVERGED)))
    return judged.assign(drawn=1 - judged["test_accuracy"])


def _range(drawn: pd.DataFrame, unit: str) -> tuple[float, float] | None:
    """Limits of a logarithmic axis: from the least to a little above where the runs begin; None without any above 0."""
    values, steps = column(drawn, "drawn"), column(drawn, "step")
    known = np.isfinite(values) & (values > 0)
    if not known.any():
        return None
    first = steps[known] == steps[known].min()
    low, high = 0.8 * max(float(values[known].min()), 1e-4), 1.5 * float(np.median(values[known][first]))
    return low, max(2 * low, min(high, 1.0) if unit == "error rate" else high)
