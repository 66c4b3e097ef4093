"""Ask for points, tell their values: Bayesian optimisation one question at a time."""

import functools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from seqdec.bo import presets
from seqdec.bo.spaces import Categorical, Dimension, Integer, Real, Space, space_from
from seqdec.bo.suggest import Plan, Region, Search, Trials, sobol, start, suggest
from seqdec.bo.surrogates import History, Surrogate
from seqdec.core import Acquisition
from seqdec.persistence import write_file

if TYPE_CHECKING:
    import pandas as pd

_FORMAT = "seqdec optimizer 1"
_MANY_DIMENSIONS = 20
"""With more columns than these, the search keeps to a trust region."""
_ROUND = 16
_ENUMERABLE = 10_000
Status = Literal["pending", "complete", "failed"]


class Trial(NamedTuple):
    """A point to be evaluated, or evaluated."""

    number: int
    """From 0, in the order of asking."""
    x: Any
    """A numpy array where all dimensions are Real, else a list."""


class Exhausted(RuntimeError):
    """Every point of a finite space has been suggested."""


class _Entry(NamedTuple):
    """What is remembered of a trial."""

    trial: Trial
    unit: np.ndarray
    status: Status
    value: float
    reason: str


class BayesianOptimizer:
    """Bayesian optimisation by ask and tell.

        optimizer = BayesianOptimizer([(-5, 10), (0, 15)], seed=0)
        for _ in range(40):
            trial = optimizer.ask()
            optimizer.tell(trial, fun(trial.x))
        optimizer.best

    Trials may be told in any order, or never; points that were not asked for can be told as well. A trial that is still
    pending counts, for the next question, as if it had the value expected of it. A value that is not finite, or
    `failed=True`, marks a failed trial: the belief never sees it, but its neighbourhood loses attraction.

    The first `initial` points are spread evenly; then the surrogate, fitted to all answers, scores candidates. Equal
    arguments, calls and values give equal suggestions.

    Args:
        bounds: as `seqdec.bo.space_from` takes them: pairs (low, high), Real, Integer, Categorical, scipy Bounds, a
            gymnasium Box or Discrete.
        seed: of everything random, an integer >= 0.
        maximize: whether large values are wanted; else small ones.
        surrogate: "gp", "hilofi", "lolofi", "lrkf", "ekf", "auto" (by `capacity` and dimension), or a Surrogate.
        surrogate_options: keywords of the surrogate's function, `seqdec.bo.hilofi` for one.
        acquisition: "thompson", "predictive_sampling", "log_expected_improvement", "ucb", an Acquisition of
            `seqdec.policies`, or "auto": the one that goes with the surrogate.
        initial: points before the surrogate decides; None is one for each column of the unit cube, but at least two.
        capacity: trials to prepare for; more are possible at the price of a new compilation.
        trust_region: keep to a box around the best point that grows with success and shrinks without; None does so
            with more than 20 columns.
        standardize: responses to mean 0 and variance 1 before the surrogate sees them.
        search: how the acquisition is maximised.

    Raises:
        ValueError, TypeError: an argument does not fit; the message names it.
    """

    def __init__(
        self,
        bounds: Any,
        *,
        seed: int,
        maximize: bool = False,
        surrogate: str | Surrogate = "auto",
        surrogate_options: Mapping[str, Any] | None = None,
        acquisition: str | Acquisition = "auto",
        initial: int | None = None,
        capacity: int = 128,
        trust_region: bool | None = None,
        standardize: bool = True,
        search: Search | None = None,
    ) -> None:
        self.space = space_from(bounds)
        self.maximize, self.seed = bool(maximize), whole("seed", seed, 0)
        self.capacity, columns = whole("capacity", capacity, 1), self.space.columns
        self.initial = max(2, columns) if initial is None else whole("initial", initial, 1)
        self.trust_region = columns > _MANY_DIMENSIONS if trust_region is None else bool(trust_region)
        self.standardize, self.search = bool(standardize), _check_search(Search() if search is None else search)
        self.surrogate = presets.choose_surrogate(columns, self.capacity) if surrogate == "auto" else surrogate
        self._options = dict(surrogate_options or {})
        if isinstance(self.surrogate, str):
            belief = presets.make_surrogate(self.surrogate, columns, **self._options)
        elif isinstance(self.surrogate, Surrogate) and not self._options:
            belief = self.surrogate
        else:
            raise TypeError(f"surrogate must be a name (then with surrogate_options) or a Surrogate; got {surrogate!r}")
        self.acquisition = belief.acquisition if acquisition == "auto" else acquisition
        score = presets.make_acquisition(self.acquisition)
        smooth = presets.is_smooth(score(jnp.zeros(())))
        self._plan = Plan(self.space, belief, score, smooth, self.search)
        self._entries: list[_Entry] = []
        self._order: list[int] = []
        self._state: Any = None
        self._standard = (0.0, 1.0, 0)

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials, in the order of asking or telling."""
        return tuple(entry.trial for entry in self._entries)

    @property
    def best(self) -> tuple[Any, float]:
        """(x, value) of the best complete trial, the first of equals. Raises ValueError when there is none."""
        done = [entry for entry in self._entries if entry.status == "complete"]
        if not done:
            raise ValueError("no trial is complete yet: tell a finite value first")
        entry = (max if self.maximize else min)(done, key=lambda entry: entry.value)
        return entry.trial.x, entry.value

    @overload
    def ask(self) -> Trial: ...
    @overload
    def ask(self, n: int) -> list[Trial]: ...
    def ask(self, n: int | None = None) -> Trial | list[Trial]:
        """The next trial to evaluate, or a list of `n`. Raises Exhausted when no new point is left."""
        if n is None:
            return self._ask()
        return [self._ask() for _ in range(whole("n", n, 1))]

    def propose(self, x: Any) -> Trial:
        """A pending trial at a point of your own. Raises ValueError where it lies outside the bounds."""
        return self._add(x).trial

    def evaluations(self) -> tuple[list[Any], np.ndarray]:
        """Points and values of all trials that were told, in the order of their numbers; NaN for failures."""
        told = [entry for entry in self._entries if entry.status != "pending"]
        return [entry.trial.x for entry in told], np.array([entry.value for entry in told])

    def tell(self, trial: Any, value: float | None = None, *, failed: bool = False, reason: str = "") -> Trial:
        """Record the value of a trial, or of a point that was not asked for; returns the trial.

        Args:
            trial: a pending Trial, or a point.
            value: of the function there; None, NaN or infinite: the trial failed.
            failed: the trial failed, whatever `value` is.
            reason: for the failure.

        Raises:
            ValueError: the trial is not one of this optimiser's, or has been told before; the point is outside the
                bounds.
        """
        number = self._number(trial)
        good = not failed and value is not None and math.isfinite(value)
        if not good and not reason:
            reason = "failed" if failed or value is None else f"value {value}"
        entry = self._add(trial) if number is None else self._entries[number]
        status: Status = "complete" if good else "failed"
        recorded = float(value) if good and value is not None else math.nan
        self._entries[entry.trial.number] = entry._replace(status=status, value=recorded, reason="" if good else reason)
        if good:
            self._order.append(entry.trial.number)
        return entry.trial

    def trials_dataframe(self) -> "pd.DataFrame":
        """One row for each trial: number, state, value (NaN unless complete), x_0, x_1, ..., reason of a failure."""
        import pandas as pd

        rows = [
            {"number": e.trial.number, "state": e.status, "value": e.value}
            | {f"x_{i}": value for i, value in enumerate(e.trial.x)}
            | {"reason": e.reason}
            for e in self._entries
        ]
        names = [f"x_{i}" for i in range(len(self.space.dimensions))]
        return pd.DataFrame(rows, columns=["number", "state", "value", *names, "reason"])

    def _number(self, trial: Any) -> int | None:
        """The number of a pending trial; None for a point."""
        if not isinstance(trial, Trial):
            return None
        known = 0 <= trial.number < len(self._entries) and np.array_equal(
            np.asarray(self._entries[trial.number].trial.x, object), np.asarray(trial.x, object)
        )
        if not known:
            raise ValueError(
                f"trial {trial.number} was not asked from this optimizer; tell a point instead of a trial to add it"
            )
        if self._entries[trial.number].status != "pending":
            raise ValueError(f"trial {trial.number} has been told before: it is {self._entries[trial.number].status}")
        return trial.number

    def _add(self, x: Any, unit: np.ndarray | None = None) -> _Entry:
        """A new pending trial at `x`."""
        unit = self.space.encode(x) if unit is None else unit
        x = np.asarray(x, float).copy() if self.space.all_real else list(x)
        entry = _Entry(Trial(len(self._entries), x), unit, "pending", math.nan, "")
        self._entries.append(entry)
        return entry

    def _ask(self) -> Trial:
        unit = self._design() if self._early() else self._suggest()
        x = self.space.decode(unit)
        return self._add(x, self.space.encode(x)).trial

    def _early(self) -> bool:
        """Whether the points are still to be spread: too few asked, or no two answers to standardise by."""
        return len(self._entries) < self.initial or len(self._order) < 2

    def _design(self) -> np.ndarray:
        """The next point of a Sobol sequence, shifted at random; one that is new, if there is one."""
        generator = np.random.default_rng([self.seed, 0])
        index = len(self._entries)
        if self.search.grid:
            grid = sobol(self.search.raw_samples, self.space.columns, scramble=True)
            return self._first_new(generator.permutation(grid)[index % len(grid) :])
        shift = generator.random(self.space.columns)
        points = (sobol(1 << max(6, index.bit_length() + 1), self.space.columns)[index:] + shift) % 1
        return self._first_new(points)

    def _first_new(self, points: np.ndarray) -> np.ndarray:
        """The first of `points` (n, columns) that no trial has. Raises Exhausted where there is none at all."""
        known = {_identity(entry.trial.x) for entry in self._entries}
        for unit in points:
            if _identity(self.space.decode(unit)) not in known:
                return unit
        if self.space.size <= _ENUMERABLE:
            for x in self.space.points():
                if _identity(x) not in known:
                    return self.space.encode(x)
        raise Exhausted(f"all {len(known)} points of the space have been suggested")

    def _suggest(self) -> np.ndarray:
        """The acquisition's choice."""
        number, dtype = len(self._entries), self._plan.surrogate.dtype
        with jax.enable_x64(True):  # of 64-bit numbers only those that ask for it; see `Surrogate.dtype`
            key = jax.random.fold_in(jax.random.key(self.seed), number)
            trials, renewed = self._trials(dtype)
            if renewed:
                self._state = start(self._plan, jax.random.key(self.seed), History(trials.x, trials.y, trials.failed))
            low, high = (jnp.asarray(side, dtype) for side in self._region())
            grid = jnp.asarray(sobol(self.search.raw_samples, self.space.columns, self.search.grid), dtype)
            self._state, unit, new = suggest(self._plan, key, self._state, trials, Region(low, high), grid)
            unit, new = np.asarray(unit, float), bool(new)
        if new or self.search.repeats:
            return unit
        return self._first_new(np.random.default_rng([self.seed, number]).random((1000, self.space.columns)))

    def _trials(self, dtype: Any) -> tuple[Trials, bool]:
        """What the program gets, and whether the responses are standardised anew."""
        if len(self._entries) >= self.capacity:
            self.capacity *= 2
            self._state, self._standard = None, (0.0, 1.0, 0)
        answered = [self._entries[number] for number in self._order]
        others = [[e for e in self._entries if e.status == status] for status in ("pending", "failed")]
        values = np.array([entry.value for entry in answered]) * (1 if self.maximize else -1)
        renewed = self._state is None or len(values) >= self._standard[2] * self._plan.surrogate.growth
        if renewed:
            self._standard = (*self._scales(values), len(values))
        centre, scale, _ = self._standard
        length = -(-self.capacity // _ROUND) * _ROUND
        x, y = np.zeros((length, self.space.columns)), np.zeros(length)
        rows = [entry.unit for entry in answered + others[0] + others[1]]
        x[: len(rows)], y[: len(values)] = rows, (values - centre) / scale
        counts = [jnp.int32(len(group)) for group in (answered, *others)]
        return Trials(jnp.asarray(x, dtype), jnp.asarray(y, dtype), *counts), renewed

    def _scales(self, values: np.ndarray) -> tuple[float, float]:
        """Mean and standard deviation of the responses; 0 and 1 where they are left as they are."""
        if not self.standardize:
            return 0.0, 1.0
        std = float(values.std())
        return float(values.mean()), std if std > 0 else 1.0

    def _region(self) -> tuple[np.ndarray, np.ndarray]:
        """(low, high) of the box to search, each (columns,)."""
        low, high = np.zeros(self.space.columns), np.ones(self.space.columns)
        if not self.trust_region:
            return low, high
        values = np.array([self._entries[number].value for number in self._order]) * (1 if self.maximize else -1)
        length = _edge(values, self.initial, self.space.columns)
        centre, free = self._entries[self._order[int(np.argmax(values))]].unit, self.space.continuous
        low[free] = np.clip(centre - length / 2, 0, 1)[free]
        high[free] = np.clip(centre + length / 2, 0, 1)[free]
        return low, high

    def save(self, path: str | Path) -> None:
        """Write everything to one file, from which `load` goes on as if nothing had happened.

        Raises:
            TypeError: the surrogate or the acquisition is an object of yours, or a choice is no string or number: they
                cannot be written.
            OSError: the file cannot be written.
        """
        if not isinstance(self.surrogate, str) or not isinstance(self.acquisition, str):
            raise TypeError("only a surrogate and an acquisition given by name can be saved")
        leaves = {} if self._state is None else {f"state_{i}": leaf for i, leaf in enumerate(_unkey(self._state))}
        content = {
            "format": _FORMAT,
            "space": [[type(dimension).__name__, *dimension] for dimension in self.space.dimensions],
            "settings": {
                "seed": self.seed,
                "maximize": self.maximize,
                "surrogate": self.surrogate,
                "surrogate_options": self._options,
                "acquisition": self.acquisition,
                "initial": self.initial,
                "capacity": self.capacity,
                "trust_region": self.trust_region,
                "standardize": self.standardize,
                "search": self.search._asdict(),
            },
            "trials": [[list(e.trial.x), e.status, e.value, e.reason] for e in self._entries],
            "order": self._order,
            "standard": self._standard,
        }
        metadata = {"seqdec": json.dumps(content)}
        write_file(Path(path), lambda temporary: save_file(leaves, temporary, metadata))

    @classmethod
    def load(cls, path: str | Path) -> "BayesianOptimizer":
        """Read what `save` wrote. Raises FileNotFoundError where there is none, ValueError where it is damaged."""
        if not Path(path).is_file():
            raise FileNotFoundError(f"there is no file {path}")
        try:
            with safe_open(path, "numpy") as file:
                content = json.loads((file.metadata() or {}).get("seqdec", "{}"))
                leaves = [file.get_tensor(f"state_{i}") for i in range(len(file.keys()))]
            if content.get("format") != _FORMAT:
                raise ValueError(f"its format is {content.get('format')!r}, not {_FORMAT!r}")
            return cls._restore(content, leaves)
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is damaged or no saved optimizer: {error}") from error

    @classmethod
    def _restore(cls, content: dict[str, Any], leaves: list[np.ndarray]) -> "BayesianOptimizer":
        kinds: dict[str, type[Dimension]] = {"Real": Real, "Integer": Integer, "Categorical": Categorical}
        space = Space(tuple(kinds[kind](*numbers) for kind, *numbers in content["space"]))
        settings = content["settings"]
        settings["surrogate_options"] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in settings["surrogate_options"].items()
        }
        optimizer = cls(space, **settings | {"search": Search(**settings["search"])})
        for x, status, value, reason in content["trials"]:
            entry = optimizer._add(x)
            optimizer._entries[-1] = entry._replace(status=status, value=value, reason=reason)
        optimizer._order, optimizer._standard = content["order"], tuple(content["standard"])
        if leaves:
            optimizer._state = optimizer._rekey(leaves)
        return optimizer

    def _rekey(self, leaves: list[np.ndarray]) -> Any:
        """The surrogate's state from its arrays."""
        with jax.enable_x64(True):
            dtype = self._plan.surrogate.dtype
            length = -(-self.capacity // _ROUND) * _ROUND
            history = History(jnp.zeros((length, self.space.columns), dtype), jnp.zeros(length, dtype), jnp.int32(0))
            like = jax.eval_shape(functools.partial(start, self._plan), jax.random.key(0), history)
            shapes, structure = jax.tree.flatten(like)
            return structure.unflatten(
                jax.random.wrap_key_data(jnp.asarray(leaf)) if _is_key(shape) else jnp.asarray(leaf)
                for leaf, shape in zip(leaves, shapes, strict=True)
            )


def whole(name: str, value: Any, minimum: int) -> int:
    """`value` as an int not below `minimum`. Raises TypeError or ValueError, naming it."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer; got {value!r}")
    if int(value) < minimum:
        raise ValueError(f"{name} must be at least {minimum}; got {value}")
    return int(value)


def _check_search(search: Search) -> Search:
    raw_samples = whole("raw_samples", search.raw_samples, 1)
    if raw_samples & (raw_samples - 1):
        raise ValueError(f"raw_samples must be a power of two; got {raw_samples}")
    if not 1 <= search.num_restarts <= raw_samples or search.steps < 0:
        raise ValueError(f"num_restarts must be from 1 to raw_samples={raw_samples} and steps at least 0; got {search}")
    return search


def _identity(x: Any) -> tuple[Any, ...]:
    return tuple(x.tolist() if isinstance(x, np.ndarray) else x)


def _edge(values: np.ndarray, initial: int, columns: int) -> float:
    """Edge of the trust region after the responses (larger is better), of which the first `initial` do not count.

    It starts at 0.8, doubles (up to 1.6) after three improvements in a row and halves after as many failures in a row
    as there are columns, but four at least and ten at most; below 2^-7 it starts again. An improvement exceeds the best
    response so far by a thousandth of the responses' standard deviation.

    Source: Eriksson, Pearce, Gardner, Turner, Poloczek, "Scalable global optimization via local Bayesian optimization",
    2019, with more patience there.
    """
    length, wins, losses = 0.8, 0, 0
    patience = min(max(4, columns), 10)
    for i in range(initial, len(values)):
        if values[i] > values[:i].max() + 1e-3 * values[:i].std():
            wins, losses = wins + 1, 0
        else:
            wins, losses = 0, losses + 1
        if wins == 3:
            length, wins = min(1.6, 2 * length), 0
        elif losses == patience:
            length, losses = length / 2, 0
        if length < 2**-7:
            length = 0.8
    return length


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _unkey(state: Any) -> list[np.ndarray]:
    """The arrays of a state; keys as the integers they are made of."""
    return [np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf) for leaf in jax.tree.leaves(state)]
