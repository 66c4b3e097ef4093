"""Time and memory of the filters and of the paper's algorithms as printed.

A step computes the moments of all arms, draws, and updates with the chosen arm's outcome. Inputs are random.

DIR/manifest.json              options
DIR/filters.parquet, .md, .png measurements, table and figure
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import tyro
from jax import lax

from seqdec import filters, likelihoods, linalg, models
from seqdec import params as parameters
from seqdec.commands.base import Choice, Located, check_choices, check_minimum, split_names
from seqdec.commands.folder import read_manifest, save_figure, write_manifest
from seqdec.core import Array, Filter
from seqdec.filters import jacobians, reference
from seqdec.filters._lrkf import pack_pieces
from seqdec.linalg import Pieces, Rows
from seqdec.models import Network
from seqdec.persistence import read_table, write_file, write_table
from seqdec.progress import bar
from seqdec.runtime import one_blas_thread

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES: tuple[str, ...] = ("lrkf", "lolofi", "hilofi")
_TABLE = "filters.parquet"
_STD, _Q, _NOISE = 1.0, 1e-4, 0.01
_LONG = 2.0


@dataclass(frozen=True, kw_only=True)
class Bench(Located):
    """Measure time and memory on this machine; print a table and save it with a figure."""

    name: ClassVar[str] = "bench"
    choices: ClassVar[Mapping[str, Choice]] = {
        "what": Choice("benchmark", ("filters",)),
        "filters": Choice("filter", NAMES, several=True),
    }

    what: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="{filters}")]
    """filters: compare the filters with the paper's algorithms as printed."""
    filters: str = "lrkf,lolofi,hilofi"
    """Filters, separated by commas."""
    sizes: tuple[int, ...] = (0, 40_000, 400_000, 2_000_000)
    """Numbers of parameters of the networks; 0 is LeNet5 (43,902 with ten arms)."""
    ranks: tuple[int, ...] = (10, 50, 200)
    """Ranks d of the hidden layers' covariance."""
    rank_last: int = 50
    """Rank of the last layer's covariance, for LoLoFi; at most its parameters."""
    arms: int = 10
    """Outputs of the network."""
    boxes: bool = True
    """Also measure the algorithms as printed."""
    repeats: int = 5
    """Repetitions of each measurement; the median is reported."""
    out: Path = Path("results/bench")
    """Folder for filters.parquet, filters.md and filters.png."""

    def check(self) -> None:
        check_choices(self)
        check_minimum(self, rank_last=1, arms=1, repeats=1)
        for name, values, least in (("sizes", self.sizes, _mlp_size(1, self.arms)), ("ranks", self.ranks, 1)):
            wrong = [value for value in values if value < least and not (name == "sizes" and value == 0)]
            if wrong or not values:
                raise ValueError(f"{name} must be one or more numbers of at least {least}; got {values}")

    def play(self, plan: None, finished: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        copied = copy_bandwidth()
        names = split_names("filter", self.filters)
        cases = [(name, size, rank) for size in self.sizes for rank in self.ranks for name in names]
        with bar(len(cases), "", "case") as shown, one_blas_thread():
            for name, size, rank in cases:
                shown.set_description(f"{name} D={size:,} d={rank}")
                yield _case(name, workload(size, self.arms), rank, self, copied)
                shown.update()

    def save(self, parts: list[dict[str, Any]]) -> None:
        write_table(self.out / _TABLE, pd.DataFrame(parts))
        write_manifest(self.out, self)

    @staticmethod
    def report(folder: Path) -> str:
        table = read_table(folder / _TABLE)[0]
        shown = text(table)
        write_file(folder / "filters.md", lambda path: path.write_text(shown + "\n"))
        save_figure(folder / "filters.png", picture(table, read_manifest(folder)["options"]["repeats"]))
        return shown


class Workload(NamedTuple):
    """A network and inputs for it."""

    network: Network
    inputs: Array
    """(n, ...)"""
    size: int
    """D"""


def workload(size: int, arms: int) -> Workload:
    """LeNet5 for size 0, else an MLP on 64 inputs with at most `size` parameters, the last hidden layer of 80 units."""
    width = (size - _mlp_size(0, arms)) // (_mlp_size(1, arms) - _mlp_size(0, arms))
    module = models.MLP(arms, features=(width, 80)) if size else models.LeNet5(arms)
    shape = (64,) if size else (28, 28)
    network = models.network(module, jnp.zeros(shape))
    inputs = jax.random.uniform(jax.random.key(1), (64, *shape))
    leaves = jax.tree.leaves(jax.eval_shape(network.init, jax.random.key(0)))
    return Workload(network, inputs, sum(leaf.size for leaf in leaves))


def _mlp_size(width: int, arms: int) -> int:
    return 65 * width + 80 * (width + 1) + 81 * arms


def make(name: str, network: Network, rank: int, rank_last: int, *, dtype: Any = None) -> Filter:
    """The filter `name` with the bench's settings."""
    likelihood, numerics = likelihoods.gaussian(_NOISE), filters.Numerics(dtype=dtype)
    if name == "lrkf":
        return filters.lrkf(network, likelihood, rank=rank, initial_std=_STD, process_noise=_Q, numerics=numerics)
    if name == "hilofi":
        return filters.hilofi(
            network, likelihood, rank=rank, initial_std_hidden=_STD, initial_std_last=_STD, process_noise_hidden=_Q,
            process_noise_last=_Q, per_output=True, numerics=numerics,
        )  # fmt: skip
    return filters.lolofi(
        network, likelihood, rank_hidden=rank, rank_last=rank_last, initial_std_hidden=_STD, initial_std_last=_STD,
        process_noise_hidden=_Q, process_noise_last=_Q, numerics=numerics,
    )  # fmt: skip


def _case(name: str, work: Workload, rank: int, options: Bench, copied: float) -> dict[str, Any]:
    params = work.network.init(jax.random.key(0))
    last = sum(leaf.size for leaf in parameters.split(params, work.network.is_last)[1])
    rank_last = min(options.rank_last, last)
    flt = make(name, work.network, rank, rank_last)
    belief = flt.init(jax.random.key(2), params)
    factor = belief.blocks[0].factor
    columns = factor.coefficients.shape[1]
    basis_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(factor.basis))
    # Copies, because the steps donate the buffers of the belief.
    arguments = jax.tree.map(jnp.copy, (params, factor))
    jacobian = _passing(_jacobians(work), arguments[0], work.inputs)
    products = _passing(_products(work, name), arguments, work.inputs)
    # As many steps as fill the buffer, so that its compression is timed as often as it happens.
    programs = [_stepping(flt, belief, work.inputs, columns - rank)]
    del belief, factor, arguments
    if options.boxes:
        printed = reference.make(
            name, work.network, likelihoods.gaussian(_NOISE), rank=rank, rank_last=rank_last, std=_STD, q=_Q
        )
        params = work.network.init(jax.random.key(0))  # the first ones were donated with the belief
        programs.append(_stepping(printed, printed.init(jax.random.key(2), params), work.inputs, 1))
    to_jacobian, to_products, *seconds = _in_turns(
        [jacobian, products, *(chunk for chunk, _ in programs)], options.repeats
    )
    row = {
        "filter": name,
        "network": "LeNet5" if work.inputs.ndim == 3 else "MLP",
        "D": work.size,
        "d": rank,
        "columns": columns,
        "ms": 1e3 * seconds[0],
        "ms_jacobian": 1e3 * to_jacobian,
        "ms_products": 1e3 * (to_products - to_jacobian),
        "ms_rest": 1e3 * (seconds[0] - to_products),
        "ms_boxes": np.nan,
        "ratio": np.nan,
        "bandwidth": 2 * basis_bytes / seconds[0] / copied,
        "mb": programs[0][1] / 1e6,
        "mb_boxes": np.nan,
        "gb_per_s_copy": copied / 1e9,
    }
    if options.boxes:
        row |= {"ms_boxes": 1e3 * seconds[1], "ratio": seconds[1] / seconds[0], "mb_boxes": programs[1][1] / 1e6}
    return row


def bandit_step(flt: Filter) -> Callable[[Any, tuple[Array, Array]], tuple[Any, Array]]:
    """(belief, (x, key)) -> (belief, action): predictive sampling; arm 0 pays."""

    def step(belief, seen):
        x, key = seen
        at = flt.moments(belief, x)
        deviation = jnp.sqrt(jnp.maximum(jnp.diagonal(at.cov + at.noise), 0))
        action = jnp.argmax(at.mean + deviation * jax.random.normal(key, at.mean.shape, at.mean.dtype))
        belief, _ = flt.update(flt.predict(belief), x, (action == 0).astype(at.mean.dtype), action)
        return belief, action

    return step


def _stepping(flt: Filter, belief: Any, inputs: Array, steps: int) -> tuple[Callable[[], float], int]:
    """(steps -> seconds of one step), and peak memory in bytes."""

    def chunk(belief, keys, inputs):
        def step(belief, at):
            index, key = at
            return bandit_step(flt)(belief, (inputs[index % len(inputs)], key))

        return lax.scan(step, belief, (jnp.arange(len(keys)), keys))

    program = jax.jit(chunk, donate_argnums=0)
    keys = jax.random.split(jax.random.key(3), steps)
    compiled = program.lower(belief, keys, inputs).compile()
    used = compiled.memory_analysis()
    assert used is not None, "this backend does not report the memory of a program"
    memory = used.argument_size_in_bytes + used.output_size_in_bytes + used.temp_size_in_bytes
    memory -= used.alias_size_in_bytes

    def timed() -> float:
        nonlocal belief
        began = time.perf_counter()
        belief, _ = jax.block_until_ready(compiled(belief, keys, inputs))
        return (time.perf_counter() - began) / steps

    return timed, memory


def _in_turns(chunks: Sequence[Callable[[], float]], repeats: int) -> list[float]:
    for chunk in chunks:
        chunk()
    times: list[list[float]] = []
    began = time.perf_counter()
    while len(times) < repeats or time.perf_counter() - began < _LONG * len(chunks):
        times.append([chunk() for chunk in chunks])
    return [float(median) for median in np.median(times, axis=0)]


def _rows(work: Workload, params: Any, x: Array, *, hidden: bool = False) -> Rows:
    count, structure = len(jax.tree.leaves(params)), jax.tree.structure(params)
    found = jacobians.rows(lambda params, x: (work.network.apply(params, x), ()), params, x)[2]
    places = parameters.split(structure.unflatten(range(count)), work.network.is_last)[0] if hidden else range(count)
    return pack_pieces([found[place] for place in places])


def _jacobians(work: Workload) -> Callable[[Any, Array], Rows]:
    return lambda params, x: _rows(work, params, x)


def _products(work: Workload, name: str) -> Callable[[Any, Array], Pieces]:
    def products(arguments, x):
        params, factor = arguments
        crossed = linalg.cross(factor, _rows(work, params, x, hidden=name != "lrkf"))
        return linalg.times(factor, (crossed @ factor.coefficients.mT)[0])

    return products


def _passing(function: Callable[[Any, Array], Rows], arguments: Any, inputs: Array) -> Callable[[], float]:
    """Inputs -> seconds of one function(arguments, x)."""

    def passes(arguments, inputs):
        # Returned whole: XLA would not compute elements that nothing reads.
        def one(_, x):
            return function(arguments, x), None

        return lax.scan(one, jax.tree.map(jnp.zeros_like, function(arguments, inputs[0])), inputs)[0]

    inputs = inputs[: 64 if sum(leaf.size for leaf in jax.tree.leaves(arguments)) < 1e8 else 8]
    compiled = jax.jit(passes).lower(arguments, inputs).compile()

    def timed() -> float:
        began = time.perf_counter()
        jax.block_until_ready(compiled(arguments, inputs))
        return (time.perf_counter() - began) / len(inputs)

    return timed


def copy_bandwidth(size: int = 2**28) -> float:
    """Bytes per second, read and written, of copying `size` four-byte numbers; best of five."""
    source, target = np.ones(size, np.float32), np.ones(size, np.float32)
    times = []
    for _ in range(6):
        began = time.perf_counter()
        np.copyto(target, source)
        times.append(time.perf_counter() - began)
    return 2 * source.nbytes / min(times[1:])


COLUMNS = {
    "filter": "",
    "network": "",
    "D": "parameters",
    "d": "rank of the hidden layers' covariance",
    "columns": "d + m, width of the lazy basis",
    "ms": "milliseconds a step",
    "ms_jacobian": "of which the Jacobian of all arms",
    "ms_products": "of which the products with the basis",
    "ms_rest": "of which the rest: small algebra, buffer, last layer",
    "ms_boxes": "milliseconds a step of the algorithms as printed",
    "ratio": "ms_boxes / ms",
    "bandwidth": "the basis twice a step, over the bandwidth of a large copy",
    "mb": "peak memory of the compiled step, in MB",
    "mb_boxes": "peak memory of the algorithms as printed, in MB",
    "gb_per_s_copy": "bandwidth of a large copy, read and written",
}


def exponents(table: pd.DataFrame, by: str, within: str) -> Iterator[tuple[str, int, float]]:
    """(filter, value of `within`, exponent b of ms ~ by^b), from at least three MLPs."""
    mlp = table[table["network"] == "MLP"]
    for name in sorted(set(mlp["filter"])):
        for value in sorted(set(mlp[within])):
            group = mlp.loc[(mlp["filter"] == name) & (mlp[within] == value)]
            if group[by].nunique() >= 3:
                yield name, int(value), float(np.polyfit(np.log(group[by]), np.log(group["ms"]), 1)[0])


def text(table: pd.DataFrame) -> str:
    """The table in markdown, with exponents and a legend."""
    digits = {name: 2 if name.startswith("ms") else 1 for name in COLUMNS} | {"bandwidth": 2}
    shown = table.drop(columns="gb_per_s_copy")
    for name in shown.select_dtypes("floating"):
        shown[name] = shown[name].round(digits[str(name)])
    lines = [_markdown(shown), "", f"A large copy moves {table.gb_per_s_copy.iloc[0]:.1f} GB/s, read and written.", ""]
    for by, within in (("D", "d"), ("d", "D")):
        for name, value, exponent in exponents(table, by, within):
            lines.append(f"- {name}, {within} = {value:,}: time grows as {by}^{exponent:.2f}")
    return "\n".join([*lines, "", *(f"- {name}: {what}" for name, what in COLUMNS.items() if what and name in shown)])


def _markdown(table: pd.DataFrame) -> str:
    cells = [
        [*table.columns],
        *(
            [f"{value:,}" if isinstance(value, int) else str(value) for value in row]
            for row in table.itertuples(index=False)
        ),
    ]
    widths = [max(len(row[i]) for row in cells) for i in range(len(table.columns))]
    lines = [
        "| " + " | ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|", *lines[1:]])


def picture(table: pd.DataFrame, repeats: int) -> "Figure":
    """Milliseconds per step against D or d, log axes."""
    colors = dict(zip(NAMES, ("#0072B2", "#009E73", "#D55E00"), strict=True))
    mlp = table.loc[table["network"] == "MLP"]
    mlp = mlp if len(mlp) else table
    panels = [("D", "d", "parameters D"), ("d", "D", "rank d")]
    panels = [panel for panel in panels if len(set(mlp[panel[0]])) > 1] or panels[:1]
    from matplotlib.figure import Figure

    from seqdec import figures
    from seqdec.ticks import plain_ticks

    figure = Figure(figsize=(5.4 * len(panels), 4.4), dpi=140, layout="constrained")
    for axes, (by, within, label) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        values = sorted(set(mlp[within]))
        value = values[len(values) // 2]
        for name in dict.fromkeys(mlp["filter"]):
            group = mlp.loc[(mlp[within] == value) & (mlp["filter"] == name)]
            axes.plot(group[by], group["ms"], "o-", color=colors[name], label=name)
            if group["ms_boxes"].notna().any():
                axes.plot(group[by], group["ms_boxes"], "o--", color=colors[name], mfc="white", label=f"{name}, boxes")
        axes.set(xscale="log", yscale="log", xlabel=label, ylabel="ms per step")
        plain_ticks(axes.xaxis)
        plain_ticks(axes.yaxis)
        axes.set_title(f"{within} = {value:,}", fontsize=11, loc="left")
        axes.grid(True, which="major", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    title = f"Time of a step · median of {repeats} measurement{'' if repeats == 1 else 's'}"
    figures.legend(figure, figure.axes[:1], figure.axes[0].get_legend_handles_labels()[1])
    return figures.titled(figure, title)
