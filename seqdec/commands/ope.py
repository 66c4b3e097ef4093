"""Comparison of a policy with the policy that wrote a log.

DIR/manifest.json                 options, comparison, overlap of the two policies, mean rewards
DIR/windows.parquet, .csv         difference in parts of the log
DIR/sequence.parquet, .csv        ends of the difference as the log grew, with --anytime
DIR/difference.png                both as a figure
DIR/estimates.parquet, .csv       value, interval and standard error of each estimator
DIR/estimates.png                 the same as a figure
DIR/weights.parquet, .png         the weight of each row
"""

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import tyro

from seqdec import data, filters, likelihoods, models, ope, policies
from seqdec import params as parameters
from seqdec.boundary.checks import choice, number
from seqdec.commands.base import (
    Choice,
    Distributed,
    check_choices,
    check_minimum,
    check_path,
    check_seeds,
    number_range,
    split_names,
)
from seqdec.commands.folder import read_manifest, save_figure, save_table, write_manifest
from seqdec.commands.logs import (
    CAMPAIGNS,
    ESTIMATED,
    NONE,
    as_log,
    is_folder,
    is_vowpal_wabbit,
    policy_columns,
    read,
    read_policy,
)
from seqdec.core import Learner
from seqdec.ope import Log, Overlap
from seqdec.ope.estimates import Estimates
from seqdec.ope.estimators import parsed
from seqdec.ope.windows import check_window
from seqdec.persistence import located, read_any_table, read_table, write_table
from seqdec.policies.common import played
from seqdec.service.logs import is_database
from seqdec.statistics import standard_error

_UNIFORM = "uniform"
_COLUMNS = "columns"
_LOGGED = (_UNIFORM, "bts", _COLUMNS)
"""Policies outside `policies.REGISTRY`, which need no belief of a model."""
_OF_TABLES = ("context", "action", "reward", "reward_default", "propensity", "time", "groups")
MODELS = ("linear", "hilofi", "lolofi", "lrkf")
_OF_ROWS = ("model", "folds", "context", "estimators", "groups", "window", "baseline", "anytime")
"""Options that need all rows of a log."""
_MODEL = "hilofi"
_HIDDEN = (32,)
_TOLD = ("verdict", "decision", "difference", "target", "baseline", "estimator")
"""Fields of a comparison in the manifest."""


@dataclass(frozen=True, kw_only=True)
class Evaluation(Distributed):
    """Compare a policy with the one that wrote a log; print a verdict and save tables and figures."""

    name: ClassVar[str] = "ope"
    choices: ClassVar[Mapping[str, Choice]] = {
        "policy": Choice("policy", policies.REGISTRY, free=True),
        "model": Choice("model", MODELS),
        "backend": Choice("backend", ("local", "ray")),
    }

    log: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="LOG")]
    """Parquet or CSV file with the columns timestamp, action, reward, propensity, context_0, ..., or those named below;
    a folder of such parquet files, for logs of any size, read on all cores or a cluster; a .vw or .dsjson file of
    Vowpal Wabbit, optionally compressed; an OnlineAgent's folder or decisions.sqlite; or open-bandit, open-bandit-men
    or open-bandit-women.
    """
    policy: str = "greedy"
    """Policy to evaluate: a name of `seqdec list`, applied to the model's belief; uniform; bts, for open-bandit; a
    parquet or CSV file with the columns probability_0, probability_1, ..., and optionally out-of-sample predicted
    rewards, predicted_0, predicted_1, ...; or "columns", for these columns in the files of a folder.
    """
    baseline: str = "logged"
    """Comparison: logged, the mean reward of the log; uniform; or a file, as for the policy."""
    model: str | None = None
    """Filter of the policy: linear, hilofi, lolofi or lrkf, all but linear with a hidden layer of 32 units. With folds,
    rewards are predicted by it or by scikit-learn, whichever has the higher held-out likelihood. Default: hilofi, but
    no model for uniform, bts and files, which are compared by weights alone.
    """
    folds: int = 5
    """Folds for cross-fitting; 0 predicts each row from the rows before it."""
    context: str | None = None
    """Context columns, separated by commas: numbers, text or dates, encoded by seqdec.features.Encoder.fit."""
    action: str = "action"
    """Column of the actions: integers from 0, or names."""
    reward: str = "reward"
    """Column of the rewards."""
    reward_default: float | None = None
    """Reward of rows without one, such as 0 if only clicks are logged; by default such rows are an error."""
    propensity: str = "propensity"
    """Column of the propensities; or estimated, by a calibrated classifier; or none, for estimators that need none."""
    time: str | None = None
    """Column of the times; default: timestamp, or the order of the rows."""
    actions: int | None = None
    """Number of actions; needed only if the log does not define it."""
    estimators: str | None = None
    """Estimators in the table, with settings, separated by commas: "auto, snips, dr(shrinkage=slope)"."""
    groups: str | None = None
    """Column of groups of dependent rows, such as users."""
    window: str | None = None
    """Windows for which the difference is shown: a number of rows, or a time such as 7D; default: a fifth of all."""
    reward_range: str | None = None
    """Smallest and largest possible reward, separated by a comma; default: 0,1 if no other rewards occur."""
    anytime: bool = False
    """Make the interval of the difference valid at every reading of a growing log, also for a policy that learns."""
    samples: int = 1000
    """Bootstrap samples."""
    seed: int = 0
    """Seed of folds, beliefs, bootstrap and replay."""
    out: Path = Path("results/ope")
    """Folder for the tables and figures."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.log not in CAMPAIGNS:
            object.__setattr__(self, "log", str(located(self.log)))
        for name in ("policy", "baseline"):
            if _is_file(getattr(self, name)):
                object.__setattr__(self, name, str(located(getattr(self, name))))

    def check(self) -> None:
        if self.folds < 0 or self.folds == 1:
            raise ValueError(f"folds must be 0 (prequential) or at least 2; got {self.folds}")
        check_minimum(self, samples=2, actions=1)
        check_seeds(self.seed)
        check_choices(self)
        if _is_file(self.policy):
            check_path("policy", self.policy)
        elif not _is_policy(self.policy):
            choice("policy", self.policy, (*policies.names(), *_LOGGED))
        if _is_file(self.baseline):
            check_path("baseline", self.baseline)
        else:
            choice("baseline", self.baseline, (ope.LOGGED, _UNIFORM))
        number_range("reward_range", self.reward_range)
        if self.reward_default is not None:
            number("reward_default", self.reward_default, -np.inf, exclusive=True)
        if self.window is not None:
            check_window(self.window)
        if self.log not in CAMPAIGNS:
            check_path("log", self.log)
        self.check_backend()
        self._check_folder()
        if self.policy == "bts" and self.log not in CAMPAIGNS:
            raise ValueError(f"the policy bts is available only for open-bandit; got {self.log}")
        if self.estimators is not None:
            for one in parsed(self.estimators):
                if one.log is not Log:
                    raise ValueError(f"estimators: {one.name} is for another kind of log, of {one.log.__name__}")
        self._check_columns()

    def _check_folder(self) -> None:
        """Raises ValueError for options without effect on the log: a folder, or not."""
        here = is_folder(self.log)
        names = _OF_ROWS if here else ("backend", "address", "workers")
        given = [name for name in names if getattr(self, name) != getattr(type(self), name)]
        given += ["propensity"] * (here and self.propensity in (ESTIMATED, NONE))
        if given:
            raise ValueError(
                f"--{given[0].replace('_', '-')} does not apply to {self.log}, which is {'a' if here else 'not a'} "
                f"folder of parquet files; leave it out"
            )
        if here is not (self.policy in (_UNIFORM, _COLUMNS)) and (here or self.policy == _COLUMNS):
            need = "must be uniform or columns for" if here else "columns requires"
            raise ValueError(f"policy {need} a folder of parquet files; got {self.policy} for {self.log}")

    def _check_columns(self) -> None:
        given = {name: getattr(self, name) for name in _OF_TABLES}
        if self.propensity in (ESTIMATED, NONE):
            del given["propensity"]
        named = {name: value for name, value in given.items() if value != getattr(type(self), name)}
        if not named or is_folder(self.log):
            return
        if self.log in CAMPAIGNS or is_vowpal_wabbit(self.log) or is_database(self.log):
            name, value = next(iter(named.items()))
            raise ValueError(f"--{name.replace('_', '-')} {value} does not apply to {self.log}, which is not a table")
        named.pop("reward_default", None)
        known = list(map(str, read_any_table(Path(self.log))[0].columns))
        for name, value in named.items():
            for column in split_names("column", value) if name == "context" else [value]:
                if column not in known:
                    raise ValueError(f"{name}: {self.log} has no column {column!r}; it has {', '.join(known[:12])}")

    def play(self, plan: None, finished: Sequence["Result"]) -> Iterator["Result"]:
        yield evaluate(self)

    def save(self, parts: list["Result"]) -> None:
        (result,) = parts
        if result.weights is not None:
            write_table(self.out / "weights.parquet", pd.DataFrame({"weight": result.weights}))
        write_table(self.out / "estimates.parquet", result.estimates)
        found = result.comparison
        write_table(self.out / "windows.parquet", found.windows)
        if found.sequence is not None:
            write_table(self.out / "sequence.parquet", found.sequence)
        known = {"overlap": found.overlap._asdict(), "logged": result.logged, "known": result.known}
        known["comparison"] = {name: getattr(found, name) for name in _TOLD}
        write_manifest(self.out, self, log=self.log, **known)

    @staticmethod
    def report(folder: Path) -> str:
        manifest, table = read_manifest(folder), read_table(folder / "estimates.parquet")[0]
        policy, logged, known = manifest["options"]["policy"], manifest["logged"], manifest["known"]
        seen, told = Overlap(**manifest["overlap"]), manifest["comparison"]
        save_table(folder / "estimates.csv", table)
        title = f"Mean reward of {Path(policy).name}, estimated from {Path(manifest['log']).name}"
        if ope.MARK in table:
            title += "\nwith estimated propensities"
        save_figure(folder / "estimates.png", ope.estimates_figure(table, logged, known, title))
        others = {name: folder / f"{name}.parquet" for name in ("windows", "sequence")}
        tables = {name: read_table(path)[0] for name, path in others.items() if path.exists()}
        for name, part in tables.items():
            save_table(folder / f"{name}.csv", part)
        difference = ope.Estimate(*told["difference"])
        save_figure(folder / "difference.png", ope.difference_figure(difference, **tables, title=told["verdict"]))
        if (folder / "weights.parquet").exists():
            w = read_table(folder / "weights.parquet")[0]["weight"].to_numpy()
            if not np.isnan(w).any():
                title = f"Weights of the rows for {Path(policy).name}"
                save_figure(folder / "weights.png", ope.weights_figure(w, title))
        return "\n".join(
            [
                told["verdict"],
                f"difference: {difference}, {told['estimator']}",
                *(f"{name}: {ope.Estimate(*told[name])}" for name in ("target", "baseline")),
                "",
                repr(Estimates(table)),
                "",
                *_facts(Path(policy).name, logged, known, seen),
            ]
        )


class Result(NamedTuple):
    """Comparison, estimates and their reliability."""

    comparison: ope.Comparison
    estimates: pd.DataFrame
    logged: tuple[float, float]
    """mean reward of the log and its standard error"""
    known: tuple[float, float] | None
    """(mean, standard error) of the policy's own log, or None"""
    weights: np.ndarray | None
    """(n,), NaN where propensities are unknown; None for a folder"""


def evaluate(options: Evaluation) -> Result:
    """Compare the policy with the baseline on the log. Raises ValueError or OSError."""
    if is_folder(options.log):
        return _of_folder(options)
    campaign, policy, target, known, predicted = CAMPAIGNS.get(options.log), options.policy, None, None, None
    if campaign is None:
        log = read(options)
    else:
        shown = data.load_open_bandit("random", campaign=campaign)
        log = as_log(shown)
        if policy == "bts":
            own = data.load_open_bandit("bts", campaign=campaign)
            target, known = data.average_policy(own)[shown.place], _mean(own.click)
    if options.propensity == ESTIMATED:
        log = ope.estimate_propensities(log, seed=options.seed)
    elif options.propensity == NONE:
        log = log.replace(propensity=np.full(len(log.action), np.nan), estimated=False)
    if policy == _UNIFORM or _is_file(policy):
        target, predicted = _given(policy, log)
    baseline = options.baseline if options.baseline == ope.LOGGED else _given(options.baseline, log)[0]
    given = None if target is None else ope.check_target(log, target)  # before a model is fitted
    if given is None or (predicted is None and _needs_model(log, options)):
        predicted, law = _learn(log, options, policy if given is None else None)
        given = given or ope.check_target(log, law)
    reward_range = number_range("reward_range", options.reward_range)
    groups = None if options.groups is None else read_any_table(Path(options.log))[0][options.groups]
    settings: Any = {"seed": options.seed, "samples": options.samples, "reward_range": reward_range, "groups": groups}
    comparison = ope.compare(
        log,
        given,
        predicted,
        baseline=baseline,
        window=options.window,
        anytime=options.anytime,
        **settings,
    )
    estimates = comparison.table
    if options.estimators is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # those of the overlap, which the report has too
            estimates = ope.evaluate(log, given, predicted, estimators=options.estimators, **settings)
    return Result(comparison, estimates, _mean(log.reward), known, given.weights)


def _of_folder(options: Evaluation) -> Result:
    """Of a folder of parquet files, in processes or on a cluster."""
    with options.executor() as executor:
        log = ope.scan_log(
            options.log,
            executor=executor,
            action=options.action,
            num_actions=options.actions,
            reward=options.reward,
            reward_default=options.reward_default,
            propensity=options.propensity,
            time=options.time,
        )
        assert isinstance(log, ope.LogFolder)
        law, predicted = _uniform, None
        if options.policy == _COLUMNS:
            law, predicted = policy_columns(log.files[0])
        reward_range = number_range("reward_range", options.reward_range)
        settings: Any = {"seed": options.seed, "samples": options.samples, "reward_range": reward_range}
        found = ope.compare(log, law, predicted, **settings)
    mean, low, high = found.baseline
    return Result(found, found.table, (mean, (high - low) / 3.92), None, None)


def _uniform(log: Log) -> np.ndarray:
    return log.mask / log.mask.sum(axis=1, keepdims=True)


def _given(policy: str, log: Log) -> tuple[np.ndarray, np.ndarray | None]:
    """The law (n, k) and predicted rewards of the uniform policy, or of a file."""
    if policy == _UNIFORM:
        return _uniform(log), None
    return read_policy(policy, log)


def _needs_model(log: Log, options: Evaluation) -> bool:
    listed = [] if options.estimators is None else parsed(options.estimators)
    wanted = options.model is not None or any("predicted" in one.needs for one in listed)
    return wanted or not log.known_propensities


def _learn(log: Log, options: Evaluation, policy: str | None) -> tuple[np.ndarray, Any]:
    """Predicted rewards (n, k) out of sample, and the law (n, k) of a policy on the filter.

    Rewards are the filter's or `ope.predict_rewards`, whichever has the higher held-out likelihood.
    """
    scaled, seed = ope.standardized(log), options.seed
    acquisition = None if policy is None else policies.make(policy)

    def ask(key, posterior, x, mask):
        return posterior.mean(x), None if acquisition is None else played(acquisition, key, posterior, x, mask)[1]

    learner = model_for(scaled, options.model or _MODEL)
    if not options.folds:
        return ope.prequential(learner, scaled, ask, seed=seed)
    predicted, chances = ope.cross_fit(learner, scaled, ask, seed=seed, folds=options.folds)
    other = ope.predict_rewards(log, seed=seed, folds=options.folds)
    better = ope.held_out_likelihood(log, other) > ope.held_out_likelihood(log, predicted)
    return other if better else predicted, chances


def model_for(log: Log, kind: str) -> Learner:
    """A filter over a small network for `seqdec.ope.inputs(log)`: R = Var[r], last layers of deviation 0.3 sqrt(R)."""
    example = jnp.zeros(ope.inputs(log).shape[-1])
    hidden = () if kind == "linear" else _HIDDEN
    if log.action_features is None:
        network = models.network(models.MLP(log.num_actions, hidden), example)
    else:
        network = models.per_candidate(models.network(models.MLP(1, hidden), example))
    params = network.init(jax.random.key(0))
    variance = max(float(log.reward.var()), 1e-12)
    likelihood, std = likelihoods.gaussian(variance), 0.3 * variance**0.5
    blocks: dict[str, Any] = {"initial_std_hidden": 0.3, "initial_std_last": std, "process_noise_hidden": 1e-6}
    if kind == "linear":
        flt = filters.ekf(network, likelihood, initial_std=std)
    elif kind == "lrkf":
        flt = filters.lrkf(network, likelihood, rank=10, initial_std=std, process_noise=1e-6)
    elif kind == "hilofi":
        flt = filters.hilofi(network, likelihood, rank=10, **blocks)
    else:
        last = min(50, sum(leaf.size for leaf in parameters.split(params, network.is_last)[1]))
        flt = filters.lolofi(network, likelihood, rank_hidden=10, rank_last=last, **blocks)
    return filters.learner(flt, network.init)._replace(init=lambda key: flt.init(key, params))


def _is_file(policy: str) -> bool:
    return not _is_policy(policy) and (bool(Path(policy).suffix) or os.path.exists(policy))


def _is_policy(name: str) -> bool:
    return name in _LOGGED or name in policies.REGISTRY


def _mean(rewards: np.ndarray) -> tuple[float, float]:
    return float(rewards.mean()), standard_error(rewards)


def _facts(
    policy: str, logged: tuple[float, float], known: tuple[float, float] | None, overlap: Overlap
) -> Iterator[str]:
    yield f"the log itself: {logged[0]:.5g}, standard error {logged[1]:.2g}, {overlap.rows:,} rows"
    if known is not None:
        yield f"{policy} itself: {known[0]:.5g}, standard error {known[1]:.2g}"
    if not np.isnan(overlap.mean_weight):
        yield (
            f"effective sample size for {policy}: {overlap.effective_sample_size:,.1f}; "
            f"largest weight {overlap.largest_weight:.3g}; "
            f"mean weight {overlap.mean_weight:.3f}, standard error {overlap.mean_weight_error:.2g}"
        )
        yield (
            f"decisions without support: {overlap.unsupported:.1%}; effective share of the rows in the weakest cluster "
            f"of contexts: {overlap.weakest_cluster:.1%}; propensities too small by {overlap.miscalibration:.1f} errors"
        )
    yield from (f"warning: {warning}" for warning in overlap.warnings)
