"""Off-policy evaluation of a log: what another policy would have earned, by every estimator, with intervals.

DIR/manifest.json                 what was asked for, and what the log can tell
DIR/estimates.parquet, .csv       value, interval and standard error of each estimator
DIR/estimates.png                 the same as a picture
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from seqdec import data, figures, filters, likelihoods, models, ope, policies
from seqdec import params as parameters
from seqdec.core import Filter, PyTree
from seqdec.experiments.report import FORMAT, read_manifest, save_picture
from seqdec.ope import Log, Overlap
from seqdec.persistence import as_json, versions, write_file, write_json

OPEN_BANDIT = "open-bandit"
_HIDDEN = (32,)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What a log is asked."""

    name: ClassVar[str] = "ope"

    policy: str = "greedy"
    """Policy to value: one of `seqdec list`, acting on the model's belief; uniform; bts, for open-bandit; or a parquet
    or CSV file with the columns probability_0, probability_1, ..."""
    model: Literal["linear", "hilofi", "lolofi", "lrkf"] = "hilofi"
    """Filter that predicts rewards: linear has no hidden layer, the others one of 32 units."""
    folds: int = 5
    """Folds of the cross-fitting; 0 is prequential: each row is predicted from those before it."""
    actions: int | None = None
    """How many actions there are, where the log has neither masks nor features that tell."""
    samples: int = 1000
    """Bootstrap samples."""
    seed: int = 0
    """Seed of folds, beliefs, bootstrap and replay."""
    out: Path = Path("results/ope")
    """Folder for the table and the picture."""


class Result(NamedTuple):
    """What came out."""

    estimates: pd.DataFrame
    overlap: Overlap
    logged: tuple[float, float]
    """mean reward of the log and its standard error"""
    known: tuple[float, float] | None
    """the policy's own mean reward and its standard error, where its own log exists"""


def check(options: Evaluation) -> None:
    """Raises ValueError for options that make no sense."""
    if options.folds < 0 or options.folds == 1:
        raise ValueError(f"folds must be 0 (prequential) or at least 2; got {options.folds}")
    if options.samples < 2:
        raise ValueError(f"samples must be at least 2; got {options.samples}")
    if options.policy not in ("uniform", "bts") and not _is_file(options.policy):
        policies.make(options.policy)


def evaluate(log: str, options: Evaluation) -> Result:
    """Value the policy on the log, a file or "open-bandit". Raises ValueError or OSError where that is impossible."""
    if log == OPEN_BANDIT:
        shown = data.load_open_bandit("random")
        table = as_log(shown)
    else:
        shown, table = None, Log.load(log, num_actions=options.actions)
    known, target = None, np.empty(0)
    if options.policy == "bts":
        if shown is None:
            raise ValueError(f"the policy bts is known for the log {OPEN_BANDIT} only; got {log}")
        own = data.load_open_bandit("bts")
        target, known = data.average_policy(own)[shown.place], _mean(own.click)
    elif options.policy == "uniform":
        target = table.mask / table.mask.sum(axis=1, keepdims=True)
    elif _is_file(options.policy):
        target = _read_policy(options.policy)
    given = ope.check_target(table, target) if target.size else None  # before the model is fitted
    predicted, learnt = _learn(table, options, options.policy if given is None else None)
    target = ope.check_target(table, learnt) if given is None else given
    estimates = ope.evaluate(table, target, predicted, seed=options.seed, samples=options.samples)
    return Result(estimates, ope.overlap(table, target), _mean(table.reward), known)


def as_log(shown: data.OpenBandit) -> Log:
    """The Open Bandit log as a `seqdec.ope.Log`: the context is place and user, the features are those of the items."""
    return ope.make_log(
        action=shown.item,
        reward=shown.click,
        propensity=shown.propensity,
        timestamp=shown.timestamp,
        context=shown.context,
        action_features=shown.item_features,
    )


def model_for(log: Log, kind: str) -> tuple[Filter, PyTree]:
    """A filter over a small network for `seqdec.ope.inputs(log)`, and the network's initial parameters.

    The prior is as wide as rewards vary: R = Var[r], and last layers start with standard deviation 0.3 sqrt(R).
    """
    example = jnp.zeros(ope.inputs(log).shape[-1])
    hidden = () if kind == "linear" else _HIDDEN
    if log.action_features is None:
        network = models.network(models.MLP(log.num_actions, hidden), example)
    else:
        network = models.per_candidate(models.network(models.MLP(1, hidden), example))
    params = network.init(jax.random.key(0))
    variance = max(float(log.reward.var()), 1e-12)
    likelihood, std = likelihoods.gaussian(variance), 0.3 * variance**0.5
    if kind == "linear":
        return filters.ekf(network, likelihood, initial_std=std), params
    if kind == "lrkf":
        return filters.lrkf(network, likelihood, rank=10, initial_std=std, process_noise=1e-6), params
    layers: dict[str, Any] = {
        "is_last": network.is_last,
        "initial_std_hidden": 0.3,
        "initial_std_last": std,
        "process_noise_hidden": 1e-6,
    }
    if kind == "hilofi":
        return filters.hilofi(network, likelihood, rank=10, **layers), params
    size = sum(leaf.size for leaf in parameters.split(params, network.is_last)[1])
    return filters.lolofi(network, likelihood, rank_hidden=10, rank_last=min(50, size), **layers), params


def _learn(log: Log, options: Evaluation, policy: str | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Predicted rewards (n, k) of a model that has not seen the row, and probabilities of a policy on its belief."""
    log = ope.standardised(log)
    flt, params = model_for(log, options.model)
    expected = ope.expected_rewards(flt)
    law = None if policy is None else policies.make(policy).probabilities

    def ask(key, belief, x, mask):
        chances = None if law is None else law(key, filters.posterior(flt, belief), x, mask)
        return expected(key, belief, x, mask), chances

    if options.folds:
        return ope.cross_fit(flt, params, log, ask, seed=options.seed, folds=options.folds)
    return ope.prequential(flt, params, log, ask, seed=options.seed)


def _is_file(policy: str) -> bool:
    return Path(policy).suffix.lower() in (".parquet", ".csv")


def _read_policy(path: str) -> np.ndarray:
    """Probabilities (n, k) from the columns probability_0, probability_1, ... of a file."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no policy {path}: a file with the columns probability_0, probability_1, ...")
    table = pd.read_csv(path) if Path(path).suffix.lower() == ".csv" else pd.read_parquet(path)
    names = [f"probability_{i}" for i in range(table.shape[1])]
    if set(names) != set(table.columns):
        raise ValueError(f"{path} must have the columns {names[0]} to {names[-1]}; got {', '.join(table.columns[:6])}")
    return table[names].to_numpy(np.float64)


def _mean(rewards: np.ndarray) -> tuple[float, float]:
    """Mean and its standard error."""
    return float(rewards.mean()), float(rewards.std(ddof=1) / np.sqrt(len(rewards)))


def save(result: Result, log: str, options: Evaluation) -> None:
    """Write the estimates and the manifest. Raises OSError where that is impossible."""
    write_file(options.out / "estimates.parquet", lambda path: result.estimates.to_parquet(path))
    told = {"log": log, "overlap": result.overlap._asdict(), "logged": result.logged, "known": result.known}
    manifest = {"format": FORMAT, "experiment": options.name, "options": as_json(asdict(options)), **as_json(told)}
    write_json(options.out / "manifest.json", manifest | {"runs": [], "versions": versions()})


def write_report(folder: Path) -> str:
    """Write estimates.csv and the picture from what `save` left in `folder`; returns what there is to say, as text."""
    manifest, table = read_manifest(folder), pd.read_parquet(folder / "estimates.parquet")
    policy, logged, known = manifest["options"]["policy"], manifest["logged"], manifest["known"]
    write_file(folder / "estimates.csv", lambda path: table.to_csv(path))
    title = f"Mean reward of {Path(policy).name}, estimated from {Path(manifest['log']).name}"
    save_picture(folder / "estimates.png", figures.estimates(table, logged, known, title))
    seen = Overlap(**manifest["overlap"])
    lines = [
        table.to_string(float_format=lambda value: f"{value:.5g}"),
        "",
        f"the log itself: {logged[0]:.5g}, standard error {logged[1]:.2g}, {seen.rows:,} rows",
        *([] if known is None else [f"{policy} itself: {known[0]:.5g}, standard error {known[1]:.2g}"]),
        f"effective sample size for {policy}: {seen.effective_sample_size:,.1f}; "
        f"largest weight {seen.largest_weight:.3g}; "
        f"mean weight {seen.mean_weight:.3f}, standard error {seen.mean_weight_error:.2g}",
        *(f"warning: {warning}" for warning in seen.warnings),
    ]
    return "\n".join(lines)
