"""In-between uncertainty: predictive bands of filters on one-dimensional data with a gap, after a single pass.

Data are cut into points to learn from, held-out points among them, and a gap from which nothing is learned. The
deviation of the expected response should be small at the data, and large in the gap and outside.

DIR/manifest.json              options
DIR/bands.parquet              predictive of every filter and seed, after each number of observations, on a grid and at
                               the points: data, filter, seed, observations, where, x, y, mean, std (epistemic), noise
DIR/summary.csv                deviations, their ratios, coverage of 95% bands, errors, with 95% intervals over seeds
DIR/DATA-KIND.png              bands of one seed: a row for each rank, a column for each number of observations
DIR/deviation.png              deviation against input after all observations
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax.flatten_util import ravel_pytree

from seqdec import checks, filters, likelihoods, models
from seqdec.core import Filter
from seqdec.data import load_snelson
from seqdec.experiments import contenders
from seqdec.experiments import in_between_tables as tables
from seqdec.experiments.base import Choice, Located, check_choices, check_seeds, split_names
from seqdec.experiments.folder import key_of, read_manifest, save_parts, saved_parts, write_manifest, write_summary
from seqdec.persistence import read_table

_TRAIN = 120
_BANDS = "bands.parquet"
_PART = ["data", "filter"]
"""Observations of a run, as in the paper."""
_STAGES = (10, 30, _TRAIN)
"""Observations after which the predictive is recorded."""
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


class Data(NamedTuple):
    """One-dimensional data, cut for one seed."""

    x: np.ndarray
    """(n,) inputs to learn from, in their order"""
    y: np.ndarray
    held_out: tuple[np.ndarray, np.ndarray]
    """inputs and responses that are not learned from, where there are data"""
    gap: tuple[np.ndarray, np.ndarray]
    """likewise, where there are none"""
    grid: np.ndarray
    """inputs of the figures, beyond the data by two thirds of their width at either end"""
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
    """In-between uncertainty: what filters predict between and outside one-dimensional data, after a single pass."""

    name: ClassVar[str] = "in-between"
    choices: ClassVar[Mapping[str, Choice]] = {
        "data": Choice("data set", _DATA, several=True),
        "filters": Choice("filter", _KINDS, several=True, free=True),
    }

    data: str = "snelson,clusters"
    """Data sets, separated by commas: snelson, from $SEQDEC_DATA/snelson; clusters, generated."""
    filters: str = "hilofi:1,hilofi:10,hilofi:50,lrkf:1,lrkf:10,lrkf:50,lrkf:200"
    """Filters with their ranks, separated by commas: hilofi, whose rank is that of the hidden layers, and lrkf;
    hilofi:50.published has the settings of the paper."""
    published: bool = False
    """Filters with the settings of the paper beside ours."""
    seeds: int = 5
    """Runs of each filter, with seeds SEED, SEED + 1, ... of the weights, the order and the held-out points."""
    seed: int = 0
    """First seed."""
    out: Path = Path("results/in-between")
    """Folder for the bands, the table and the figures."""
    quick: bool = False
    """A small run for two cores: other defaults, named at the top of this help."""
    quick_options: ClassVar[Mapping[str, Any]] = {"filters": "hilofi:1,hilofi:50,lrkf:50", "seeds": 2}
    published_options: ClassVar[Mapping[str, Any]] = {
        "filters": "hilofi:50,hilofi:1.published,hilofi:50.published,lrkf:10.published,lrkf:50.published,"
        "lrkf:200.published"
    }

    def check(self) -> None:
        """Raises ValueError for wrong options and FileNotFoundError for missing data."""
        check_seeds(self.seed, self.seeds)
        for name in split_names("filter", self.filters):
            _filter(name)
        check_choices(self)
        for name in split_names("data set", self.data):
            _DATA[name](0)

    def restore(self) -> list[pd.DataFrame]:
        """The bands of the finished filters and data sets."""
        return saved_parts(self.out / _BANDS, _PART)

    def play(self, plan: None, finished: Sequence[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Yield the bands of one filter on one data set after the other, all seeds."""
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
        """Write the bands and the manifest. Raises OSError where that is impossible."""
        bands = pd.concat(parts, ignore_index=True)
        save_parts(self.out / _BANDS, bands)
        write_manifest(self.out, self)

    @staticmethod
    def report(folder: Path) -> str:
        """Write summary.csv and the figures of the bands in `folder`; returns the table as text."""
        read_manifest(folder)
        bands = read_table(folder / _BANDS)[0]
        table = tables.summarize(bands)
        shown = {"deviation.png": tables.deviation_figure(bands)}
        for data in dict.fromkeys(bands["data"]):
            kinds = dict.fromkeys(name.partition(":")[0] for name in bands["filter"])
            shown |= {f"{data}-{kind}.png": tables.bands_figure(bands, data, kind) for kind in kinds}
        write_summary(folder, table, shown)
        return tables.readable(table).to_string()


def _filter(name: str) -> tuple[str, int, bool]:
    """Kind, rank, and whether it is that of the paper. Raises ValueError where one of them is missing or unknown."""
    kind, rank, policy, variant = contenders.split(name, tuple(_KINDS))
    checks.choice("filter", kind, _KINDS)
    if rank is None or rank < 1 or policy or variant == "rehearsal":
        raise ValueError(f"a filter needs a rank and nothing else but .published, as in hilofi:50; got {name!r}")
    return kind, rank, variant == "published"


def network(published: bool = False) -> models.Network:
    """An MLP of four hidden layers of 128 ELUs on one number, with wide initial weights and biases.

    The parameters of the paper's are N(0, 1/4).
    """
    plain = models.network(models.MLP(1, (128,) * 4), jnp.zeros(1))

    def normal(key):
        values, unravel = ravel_pytree(plain.init(key))
        return unravel(0.5 * jax.random.normal(key, values.shape))

    def init(key):
        params, biases = plain.init(key), jax.random.fold_in(key, 1)
        for place, (name, layer) in enumerate(sorted(params.items())):
            if name != "output":
                noise = jax.random.normal(jax.random.fold_in(biases, place), layer["bias"].shape)
                params = {**params, name: {"kernel": _GAIN * layer["kernel"], "bias": _BIAS_STD * noise}}
        return params

    return plain._replace(init=normal if published else init)


class Programs(NamedTuple):
    """A filter: its compiled functions, and what it is given."""

    start: Callable[..., Any]
    """(key) -> belief"""
    learn: Callable[..., Any]
    """(belief, x, y, R) -> belief"""
    predict: Callable[..., Any]
    """(belief, inputs (n,)) -> mean and epistemic variance, (n,) each"""
    published: bool
    """whether inputs are given as they are, and R = 0"""


def programs(name: str) -> Programs:
    """Those of a filter by name."""
    kind, rank, published = _filter(name)
    net = network(published)

    def build(noise):
        return (_PAPER if published else _KINDS)[kind](net, likelihoods.gaussian(noise), rank=rank)

    def start(key):
        weights, belief = jax.random.split(key)
        return build(1.0).init(belief, net.init(weights))

    def learn(belief, x, y, noise):
        return build(noise).update(belief, x[None], y[None])[0]

    def predict(belief, inputs):
        def at(x):
            moments = build(1.0).moments(belief, x[None])
            return moments.mean[0], moments.cov[0, 0]

        return jax.vmap(at)(inputs)

    return Programs(jax.jit(start), jax.jit(learn), jax.jit(predict), published)


def single_pass(data: Data, seed: int, filter_programs: Programs) -> pd.DataFrame:
    """The bands of one filter and seed after each of the numbers of observations."""
    if filter_programs.published:
        center, scale, data = 0.0, 1.0, data._replace(noise=0.0)
    else:
        center, scale = data.x.mean(), data.x.std() / _INPUT_STD
    places = {"grid": (data.grid, np.full_like(data.grid, np.nan)), "data": (data.x, data.y)}
    places |= {"held out": data.held_out, "gap": data.gap}
    where = np.repeat(list(places), [len(x) for x, _ in places.values()])
    inputs, responses = (np.concatenate(parts) for parts in zip(*places.values(), strict=True))
    padded = np.resize((inputs - center) / scale, -(-len(inputs) // 512) * 512).astype(np.float32)
    belief, tables = filter_programs.start(jax.random.key(checks.word(seed))), []
    for count, (x, y) in enumerate(zip(data.x, data.y, strict=True), 1):
        scaled = jnp.float32((x - center) / scale)
        belief = filter_programs.learn(belief, scaled, jnp.float32(y), jnp.float32(data.noise))
        if count in _STAGES:
            mean, variance = (np.asarray(part)[: len(inputs)] for part in filter_programs.predict(belief, padded))
            band = {"mean": mean, "std": np.sqrt(variance), "noise": data.noise}
            tables.append(pd.DataFrame({"observations": count, "where": where, "x": inputs, "y": responses, **band}))
    return pd.concat(tables, ignore_index=True)
