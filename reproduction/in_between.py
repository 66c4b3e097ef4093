"""In-between uncertainty: predictive bands of filters on one-dimensional data with a gap, after a single pass.

Data are cut into points to learn from, held-out points among them, and a gap from which nothing is learned. The
deviation of the expected response should be small at the data, and large in the gap and outside. For comparison, a
variational last layer is trained on all observations at once, in many epochs.

DIR/manifest.json              options
DIR/bands.parquet              predictive of every filter and seed, after each number of observations or epochs, on a
                               grid and at the points: data, filter, seed, observations, epochs, where, x, y, mean, std
                               (epistemic), noise (its variance)
DIR/summary.csv                deviations, their ratios, coverage of 95% bands, errors, with 95% intervals over seeds
DIR/DATA-KIND.png              bands of one seed: a row for each filter, a column for each stage
DIR/deviation.png              deviation against input at the last stage
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jax.flatten_util import ravel_pytree

from reproduction.data import load_snelson
from seqdec import filters, likelihoods, models
from seqdec.agents._neural.experience import Batch, Experience
from seqdec.agents._neural.vbll import variational
from seqdec.boundary import checks
from seqdec.commands import contenders
from seqdec.commands.base import Choice, Located, check_choices, check_seeds, split_names
from seqdec.commands.folder import key_of, read_manifest, save_parts, saved_parts, write_manifest, write_summary
from seqdec.core import Filter
from seqdec.introspection import fitted
from seqdec.persistence import read_table
from seqdec.statistics import column_text, summarized

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TRAIN = 120
"""Observations of a run, as in the paper."""
_BANDS = "bands.parquet"
_PART = ["data", "filter"]
_STAGES = (10, 30, _TRAIN)
"""Observations after which the predictive of a filter is recorded."""
_EPOCHS = (100, 1000, 10_000)
"""Epochs after which that of the variational last layer is recorded."""
_GAIN, _BIAS_STD, _INPUT_STD = 1.5, 1.0, 2.0
"""Initial hidden weights N(0, gain^2 / inputs), biases N(0, 1), and inputs scaled to this standard deviation: features
of the network that bend within the data, without which no belief over weights is uncertain between them."""
_STD = np.sqrt(0.5)
_KINDS: dict[str, Callable[..., Filter]] = {
    "hilofi": lambda *args, rank: filters.hilofi(*args, rank=rank, initial_std_hidden=0.03, initial_std_last=_STD),
    "lrkf": lambda *args, rank: filters.lrkf(*args, rank=rank, initial_std=_STD),
}
_PAPER: dict[str, Callable[..., Filter]] = {
    "hilofi": lambda *args, rank: filters.hilofi(
        *args,
        rank=rank,
        initial_std_hidden=_STD,
        initial_std_last=_STD,
        process_noise_hidden=0.0,
        process_noise_last=0.0,
    ),
    "lrkf": lambda *args, rank: filters.lrkf(*args, rank=rank, initial_std=_STD, process_noise=0.0),
}
"""The filters of the paper: covariances I / 2, no process noise; initial parameters N(0, 1/4), R = 0, inputs as they
are."""
_TRAINED = "vbll"
"""The variational last layer: AdamW with 1e-3 on all observations at once. The published one has flax's initialization,
inputs as they are, and sigma^2 = 1 at first."""


class Data(NamedTuple):
    """One-dimensional data, cut for one seed."""

    x: np.ndarray
    """(n,) inputs to learn from, in their order"""
    y: np.ndarray
    held_out: tuple[np.ndarray, np.ndarray]
    """inputs and responses among the data, not learned from"""
    gap: tuple[np.ndarray, np.ndarray]
    """inputs and responses in the gap, not learned from"""
    grid: np.ndarray
    """inputs of the figures, extending two thirds of the data's width beyond either end"""
    noise: float
    """variance R of the observations"""


def _snelson(seed: int) -> Data:
    """120 of Snelson's 200 points in random order; none from 2.4 to 3.7; R by Rice's estimate from the 120."""
    x, y = load_snelson()
    inside = (x > 2.4) & (x < 3.7)
    order = np.random.default_rng(seed).permutation(np.flatnonzero(~inside))
    train, rest = order[:_TRAIN], order[_TRAIN:]
    return _cut(x[train], y[train], (x[rest], y[rest]), (x[inside], y[inside]), rice(x[train], y[train]))


def _clusters(seed: int) -> Data:
    """The generated data of the paper's code: two clusters, and a sum of cosines without noise.

    x = (5 sign(n_1) + clip(n_2, -2, 2)) / 10 and y = sum_i cos(10 W_i x) / 2 over 30 W_i, all n and W from N(0, 1).
    R = 1e-4 instead of the paper's 0 keeps the filters definite in float32.
    """
    fixed = np.random.default_rng(0)
    waves = fixed.normal(size=30)
    signs, offsets = fixed.normal(size=(2, _TRAIN + 48))
    x = (5 * np.sign(signs) + np.clip(offsets, -2, 2)) / 10
    x = x[np.random.default_rng(seed).permutation(len(x))]
    gap = np.linspace(-0.25, 0.25, 21)
    y, middle = (np.cos(10 * waves * points[:, None]).sum(axis=1) / 2 for points in (x, gap))
    return _cut(x[:_TRAIN], y[:_TRAIN], (x[_TRAIN:], y[_TRAIN:]), (gap, middle), 1e-4)


_DATA = {"snelson": _snelson, "clusters": _clusters}


def _cut(x: np.ndarray, y: np.ndarray, held_out: Any, gap: Any, noise: float) -> Data:
    reach = np.ptp(x) * 2 / 3
    return Data(x, y, held_out, gap, np.linspace(x.min() - reach, x.max() + reach, 241), noise)


def rice(x: np.ndarray, y: np.ndarray) -> float:
    """Variance of the noise from differences of neighbors, mean (y_{i+1} - y_i)^2 / 2, over a smooth function.

    The largest twentieth of the steps in x, the gap among them, is left out. Source: Rice, "Bandwidth choice for
    nonparametric regression", 1984.
    """
    order = np.argsort(x)
    near = np.diff(x[order]) <= np.quantile(np.diff(x[order]), 0.95)
    return float(np.mean(np.diff(y[order])[near] ** 2) / 2)


@dataclass(frozen=True, kw_only=True)
class InBetween(Located):
    """In-between uncertainty: predictions of filters between and outside one-dimensional data, after a single pass.

    snelson must be fetched by hand, the error says from where; clusters is generated. The example takes half a minute.
    Example: seqdec run in-between --data clusters --filters hilofi:1,hilofi:50
    """

    name: ClassVar[str] = "in-between"
    choices: ClassVar[Mapping[str, Choice]] = {
        "data": Choice("data set", _DATA, several=True),
        "filters": Choice("filter", (*_KINDS, _TRAINED), several=True, free=True),
    }

    data: str = "snelson,clusters"
    """Data sets, separated by commas: snelson, from $SEQDEC_DATA/snelson; clusters, generated."""
    filters: str = "hilofi:1,hilofi:10,hilofi:50,lrkf:1,lrkf:10,lrkf:50,lrkf:200"
    """Filters with their ranks, separated by commas: hilofi (rank of the hidden layers) and lrkf; hilofi:50.published
    has the paper's settings. vbll is a variational last layer trained in many epochs."""
    published: bool = False
    """Add filters with the paper's settings."""
    seeds: int = 5
    """Runs of each filter, with seeds SEED, SEED + 1, ... of the weights, the order and the held-out points."""
    seed: int = 0
    """First seed."""
    out: Path = Path("results/in-between")
    """Folder for the bands, the table and the figures."""
    quick: bool = False
    """A small run for two cores; its defaults are at the top of this help."""
    quick_options: ClassVar[Mapping[str, Any]] = {"filters": "hilofi:1,hilofi:50,lrkf:50", "seeds": 2}
    published_options: ClassVar[Mapping[str, Any]] = {
        "filters": "hilofi:50,hilofi:1.published,hilofi:50.published,lrkf:10.published,lrkf:50.published,"
        "lrkf:200.published,vbll.published"
    }

    def check(self) -> None:
        check_seeds(self.seed, self.seeds)
        for name in split_names("filter", self.filters):
            _filter(name)
        check_choices(self)
        for name in split_names("data set", self.data):
            _DATA[name](0)

    def restore(self) -> list[pd.DataFrame]:
        return saved_parts(self.out / _BANDS, _PART)

    def play(self, plan: None, finished: Sequence[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        done = {key_of(part, _PART) for part in finished}
        for name in split_names("filter", self.filters):
            left = [data for data in split_names("data set", self.data) if (data, name) not in done]
            if not left:
                continue
            compiled = programs(name)
            for data in left:
                parts = [
                    single_pass(_DATA[data](seed), seed, compiled).assign(data=data, filter=name, seed=seed)
                    for seed in range(self.seed, self.seed + self.seeds)
                ]
                yield pd.concat(parts, ignore_index=True)

    def save(self, parts: list[pd.DataFrame]) -> None:
        bands = pd.concat(parts, ignore_index=True)
        save_parts(self.out / _BANDS, bands)
        write_manifest(self.out, self)

    @staticmethod
    def report(folder: Path) -> str:
        read_manifest(folder)
        bands = read_table(folder / _BANDS)[0]
        table = summarize(bands)
        drawn = {"deviation.png": deviation_figure(bands)}
        for data in dict.fromkeys(bands["data"]):
            kinds = dict.fromkeys(kind_of(name) for name in bands["filter"])
            drawn |= {f"{data}-{kind}.png": bands_figure(bands, data, kind) for kind in kinds}
        write_summary(folder, table, drawn)
        return fitted(readable(table))


def _filter(name: str) -> tuple[str, int | None, bool]:
    """Kind, rank, and whether it is that of the paper. Raises ValueError where one of them is missing or unknown."""
    kind, rank, policy, variant = contenders.split(name, (*_KINDS, _TRAINED))
    checks.choice("filter", kind, (*_KINDS, _TRAINED))
    ranked = rank is None if kind == _TRAINED else rank is not None and rank >= 1
    if not ranked or policy or variant == "rehearsal":
        raise ValueError(
            f"a filter needs a rank and nothing else but .published, as in hilofi:50, and vbll no rank; got {name!r}"
        )
    return kind, rank, variant == "published"


def plain() -> models.Network:
    """An MLP of four hidden layers of 128 ELUs on one number, with flax's initialization."""
    return models.network(models.MLP(1, (128,) * 4), jnp.zeros(1))


def network(published: bool = False) -> models.Network:
    """That of `plain`, with wide initial weights and biases; the initial parameters of the paper are N(0, 1/4)."""
    net = plain()

    def normal(key):
        values, unravel = ravel_pytree(net.init(key))
        return unravel(0.5 * jax.random.normal(key, values.shape))

    def init(key):
        params, biases = net.init(key), jax.random.fold_in(key, 1)
        for place, (name, layer) in enumerate(sorted(params.items())):
            if name != "output":
                noise = jax.random.normal(jax.random.fold_in(biases, place), layer["bias"].shape)
                params = {**params, name: {"kernel": _GAIN * layer["kernel"], "bias": _BIAS_STD * noise}}
        return params

    return net._replace(init=normal if published else init)


Stages = Iterator[tuple[int, int, Any]]
"""(observations, epochs, belief), from the first stage that is recorded on"""


class Programs(NamedTuple):
    """A filter's compiled functions and how its inputs are scaled."""

    stages: Callable[[Any, np.ndarray, np.ndarray, float], Stages]
    """(key, x (n,), y (n,), R) -> the beliefs to record"""
    predict: Callable[..., Any]
    """(belief, inputs (n,), R) -> mean, epistemic variance and variance of the noise, (n,) each"""
    published: bool
    """whether inputs are unscaled, and R = 0"""


def programs(name: str) -> Programs:
    """Those of a filter by name."""
    kind, rank, published = _filter(name)
    return _trained(published) if kind == _TRAINED else _filtered(kind, rank, published)


def _filtered(kind: str, rank: int | None, published: bool) -> Programs:
    """A filter, which sees the observations one after the other."""
    net = network(published)

    def build(noise):
        return (_PAPER if published else _KINDS)[kind](net, likelihoods.gaussian(noise), rank=rank)

    @jax.jit
    def start(key):
        weights, belief = jax.random.split(key)
        return build(1.0).init(belief, net.init(weights))

    @jax.jit
    def learn(belief, x, y, noise):
        return build(noise).update(belief, x[None], y[None])[0]

    def stages(key, x, y, noise):
        belief = start(key)
        for count, (one, response) in enumerate(zip(x, y, strict=True), 1):
            belief = learn(belief, one, response, jnp.float32(noise))
            if count in _STAGES:
                yield count, 1, belief

    @jax.jit
    def predict(belief, inputs, noise):
        return _moments(lambda x: build(noise).moments(belief, x), inputs)

    return Programs(stages, predict, published)


def _trained(published: bool) -> Programs:
    """A variational last layer, which sees all observations in every gradient step."""
    net = plain() if published else network(False)
    head = variational(noise_variance=1.0)(net)
    optimizer = optax.adamw(1e-3)

    @jax.jit
    def start(key):
        weights, belief = jax.random.split(key)
        params, _ = head.init(belief, net.init(weights))
        return params, optimizer.init(params)

    @jax.jit
    def train(state, x, y, epochs):
        rows = Experience(x[:, None], y[:, None], jnp.ones((len(y), 1), bool))
        batch = Batch(rows, jnp.ones(len(y)))

        def epoch(_, state):
            params, moments = state
            gradient, _ = jax.grad(head.loss, has_aux=True)(params, (), batch, jnp.int32(len(y)))
            updates, moments = optimizer.update(gradient, moments, params)
            return optax.apply_updates(params, updates), moments

        return jax.lax.fori_loop(0, epochs, epoch, state)

    def stages(key, x, y, noise):
        del noise  # is learned
        state, before = start(key), 0
        for epochs in _EPOCHS:
            state, before = train(state, x, y, epochs - before), epochs
            yield len(x), epochs, state

    @jax.jit
    def predict(state, inputs, noise):
        del noise
        return _moments(head.posterior(state[0], ()).joint, inputs)

    return Programs(stages, predict, published)


def _moments(joint: Callable[[Any], Any], inputs: Any) -> tuple[Any, Any, Any]:
    """Mean, epistemic variance and variance of the noise at inputs (n,), from the predictive at one (1,)."""

    def at(x):
        moments = joint(x[None])
        return moments.mean[0], moments.cov[0, 0], moments.noise[0, 0]

    return jax.vmap(at)(inputs)


def single_pass(data: Data, seed: int, filter_programs: Programs) -> pd.DataFrame:
    """The bands of one filter and seed at each stage."""
    if filter_programs.published:
        center, scale, data = 0.0, 1.0, data._replace(noise=0.0)
    else:
        center, scale = data.x.mean(), data.x.std() / _INPUT_STD
    places = {"grid": (data.grid, np.full_like(data.grid, np.nan)), "data": (data.x, data.y)}
    places |= {"held out": data.held_out, "gap": data.gap}
    where = np.repeat(list(places), [len(x) for x, _ in places.values()])
    inputs, responses = (np.concatenate(parts) for parts in zip(*places.values(), strict=True))
    padded = np.resize((inputs - center) / scale, -(-len(inputs) // 512) * 512).astype(np.float32)
    scaled = ((data.x - center) / scale).astype(np.float32)
    key, learned = jax.random.key(checks.seed_bits(seed)), data.y.astype(np.float32)
    parts = []
    for observations, epochs, belief in filter_programs.stages(key, scaled, learned, data.noise):
        found = filter_programs.predict(belief, padded, jnp.float32(data.noise))
        mean, variance, noise = (np.asarray(part)[: len(inputs)] for part in found)
        band = {"mean": mean, "std": np.sqrt(variance), "noise": noise}
        stage = {"observations": observations, "epochs": epochs}
        parts.append(pd.DataFrame({**stage, "where": where, "x": inputs, "y": responses, **band}))
    return pd.concat(parts, ignore_index=True)


_STAGE = ["observations", "epochs"]


def kind_of(name: str) -> str:
    """The kind of a filter: hilofi of hilofi:50.published."""
    return name.partition(".")[0].partition(":")[0]


def final(bands: pd.DataFrame) -> pd.DataFrame:
    """The rows of the last stage of each filter."""
    last = bands.groupby("filter")[_STAGE].transform("max")
    return bands.loc[(bands[_STAGE] == last).all(axis=1)]


def summarize(bands: pd.DataFrame) -> pd.DataFrame:
    """One row for each data set and filter, at the last stage: means over seeds and 95% half-widths `_95`.

    Columns: at_data, in_gap, the median deviations there; outside, the smaller of those a third of the data's width
    beyond either end; gap_ratio and outside_ratio to that at the data; coverage, the share of held-out points within
    the 95% band (noise included), and gap_coverage, that of the points in the gap; rmse, root mean squared error of the
    mean at held-out points.
    """
    rows = []
    groups: Any = final(bands).groupby(["data", "filter"], sort=False)
    for (data, name), group in groups:
        seeds = pd.DataFrame([_measures(run) for _, run in group.groupby("seed")])
        rows.append({"data": data, "filter": name, **summarized({key: seeds[key] for key in seeds})})
    return pd.DataFrame(rows).set_index(["data", "filter"])


def _measures(run: pd.DataFrame) -> dict[str, float]:
    """Those of one seed."""
    at: dict[str, Any] = {where: run.loc[run["where"] == where] for where in ("grid", "data", "held out", "gap")}
    low, high = at["data"]["x"].min(), at["data"]["x"].max()
    ends = np.interp([low - (high - low) / 3, high + (high - low) / 3], at["grid"]["x"], at["grid"]["std"])
    known, between, outside = float(at["data"]["std"].median()), float(at["gap"]["std"].median()), float(ends.min())
    with np.errstate(divide="ignore", invalid="ignore"):  # a filter may be certain at the data
        gap_ratio, outside_ratio = np.divide([between, outside], known)
    covered = {
        where: float(np.mean(np.abs(at[where]["y"] - at[where]["mean"]) <= 1.96 * total_std(at[where])))
        for where in ("held out", "gap")
    }
    return {
        "at_data": known,
        "in_gap": between,
        "outside": outside,
        "gap_ratio": float(gap_ratio),
        "outside_ratio": float(outside_ratio),
        "coverage": covered["held out"],
        "gap_coverage": covered["gap"],
        "rmse": float(np.sqrt(np.mean((at["held out"]["y"] - at["held out"]["mean"]) ** 2))),
    }


def total_std(rows: pd.DataFrame) -> np.ndarray:
    """Deviation of an observation: epistemic variance and noise."""
    return np.sqrt(rows["std"].to_numpy() ** 2 + rows["noise"].to_numpy())


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """The table of `summarize` as strings."""
    titles = {
        "at_data": ("std at data", 1),
        "gap_ratio": ("gap / data", 1),
        "outside_ratio": ("outside / data", 1),
        "coverage": ("covered / %", 100),
        "gap_coverage": ("in the gap / %", 100),
        "rmse": ("error", 1),
    }
    cells = {title: column_text(table, name, unit) for name, (title, unit) in titles.items()}
    return pd.DataFrame(cells, index=table.index)


def bands_figure(bands: pd.DataFrame, data: str, kind: str) -> "Figure":
    """Mean and 95% bands of the first seed, epistemic and with noise: a row for each filter, a column by stage."""
    from matplotlib.figure import Figure

    from seqdec import figures

    first = bands.loc[(bands["data"] == data) & (bands["seed"] == bands["seed"].min())]
    names = [name for name in dict.fromkeys(first["filter"]) if kind_of(name) == kind]
    own = first.loc[first["filter"].isin(names)]
    stages = sorted(set(own[_STAGE].itertuples(index=False, name=None)))
    figure = Figure(figsize=(1.0 + 3.6 * len(stages), 1.0 + 2.3 * len(names)), dpi=140, layout="constrained")
    axes = figure.subplots(len(names), len(stages), sharex=True, sharey=True, squeeze=False)
    color = figures.styles([kind])[0]["color"]
    for row, name in zip(axes, names, strict=True):
        for axis, (observations, epochs) in zip(row, stages, strict=True):
            at_stage = (own["observations"] == observations) & (own["epochs"] == epochs)
            here = own.loc[at_stage & (own["filter"] == name)]
            grid, seen = here.loc[here["where"] == "grid"], here.loc[here["where"] == "data"].iloc[:observations]
            for deviation, alpha in ((grid["std"].to_numpy(), 0.3), (total_std(grid), 0.15)):
                low, high = grid["mean"] - 1.96 * deviation, grid["mean"] + 1.96 * deviation
                axis.fill_between(grid["x"], low, high, color=color, alpha=alpha, lw=0)
            axis.plot(grid["x"], grid["mean"], color=color, lw=1.6)
            axis.plot(seen["x"], seen["y"], "k.", ms=3)
            which = name.removeprefix(kind).lstrip(":.").replace(".", ", ")
            parts = [f"rank {which}" if ":" in name else which, f"{observations} observations"]
            parts += [f"{epochs:,} epochs"] if epochs > 1 else []
            figures.finish_axis(axis, ", ".join(filter(None, parts)), "", "")
    for axis in axes[-1]:
        axis.set_xlabel("input")
    for axis in axes[:, 0]:
        axis.set_ylabel("response")
    reach = 3 * float(np.abs(first.loc[first["where"] == "data", "y"]).max())
    axes[0, 0].set_ylim(-reach, reach)
    title = f"{data} · {kind} · first seed, mean, 95% bands of the mean and of an observation"
    figures.note(figures.titled(figure, title), _PUBLISHED[kind])
    return figure


_PUBLISHED = {
    "hilofi": "Paper, Figures 1, 15 and 16 (R = 0): the band covers -10 to 10 at first, narrows at the data by 30 "
    "observations, and by 120 is wide only away from the data. Rank 1 shows nothing between them, rank 50 does.",
    "lrkf": "Paper, Figures 17 and 18 (R = 0): LRKF needs a rank of 200 for what HiLoFi shows with 50; rank 10 has no "
    "band.",
    "vbll": "Paper, Figure 19: VBLL, trained on all observations at once, takes about 10,000 epochs to converge.",
}


def deviation_figure(bands: pd.DataFrame) -> "Figure":
    """Epistemic deviation against input at the last stage, mean over seeds, a panel for each data set."""
    from seqdec import figures

    last = final(bands)
    last = last.loc[last["where"] == "grid"]
    names = list(dict.fromkeys(last["data"]))
    figure, axes = figures.panels(names)
    filters_shown = list(dict.fromkeys(last["filter"]))
    for data, axis in zip(names, axes, strict=True):
        for style, name in zip(figures.styles(filters_shown), filters_shown, strict=True):
            here = last.loc[(last["data"] == data) & (last["filter"] == name)]
            runs: Any = [run for _, run in here.groupby("seed")]
            inputs = np.mean([run["x"] for run in runs], axis=0)
            figures.curve(axis, inputs, np.stack([run["std"] for run in runs]), name, style, (0.0, np.inf))
        points = bands.loc[(bands["data"] == data) & (bands["where"] == "data"), "x"].unique()
        axis.plot(points, np.zeros_like(points), "|", color="0.4", ms=8, zorder=0, clip_on=False)
        figures.finish_axis(axis, data, "input; ticks: data", "epistemic deviation")
        axis.set_ylim(bottom=0)
    figures.legend(figure, axes, filters_shown)
    title = f"Deviation of the expected response · {figures.bands(last['seed'].nunique())}"
    return figures.titled(figure, title)
