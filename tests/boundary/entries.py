"""The arguments of public functions by kind: what means the same, and what is refused by name.

A new argument is a row "function(argument)": (a good value, what depends on it). The error for a wrong value names the
argument, or says what `SAYS` has for it.
"""

import functools
import os
from collections import namedtuple
from collections.abc import Callable
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from gymnasium import spaces
from sklearn.preprocessing import FunctionTransformer

import seqdec
from seqdec import agents, bo, data, envs, features, filters, likelihoods, memory, models, ope, optim, policies
from seqdec.boundary.checks import as_array
from seqdec.core import Masked, Posterior, Predictive, Spaces

ROOT = Path(os.path.realpath(seqdec.__file__)).parents[1]
SITE = Spaces(spaces.Box(-5, 5, (3,)), spaces.Discrete(2))
ROW, ROWS = [0.25, 0.5, 0.75], [[0.5, 0.25], [1.0, 0.0], [0.0, 1.0]]
TARGET = [[0.5, 0.5], [0.25, 0.75]] * 3
COLUMNS: dict[str, Any] = {
    "action": [0, 1, 0, 1, 1, 0],
    "reward": [1.0, 0.0, 0.5, 1.0, 0.0, 0.25],
    "propensity": [0.5] * 6,
    "context": [[0.5, 1.0]] * 6,
    "mask": [[True, True]] * 6,
}
LOG = ope.make_log(**COLUMNS)
NAMED: dict[str, Any] = {"action": ["age"], "reward": [1.0], "propensity": [1.0]}
GAUSSIAN = likelihoods.gaussian(0.1)
NETWORK = models.network(models.MLP(2, ()), jnp.zeros(3))
PARAMS = {"output": {"bias": jnp.zeros(2), "kernel": jnp.ones((3, 2)) / 4}}
KEY = jax.random.key(0)
LINEAR, EKF = seqdec.compiled(agents.linear(SITE)), seqdec.compiled(agents.ekf(SITE, model=models.MLP(2, ())))
KNOWN, BELIEF = LINEAR.init(KEY), EKF.init(KEY)
ARMS = envs.linear([[1.0, 0.0], [0.0, 1.0]])
BOX = [(0.0, 1.0), (0.0, 1.0)]
PEOPLE = [{"age": 31.0, "city": "Rome"}, {"age": 47.0, "city": "Oslo"}]
ENCODER = features.Encoder.fit(PEOPLE)
EVIDENCE = ope.evidence(LOG, TARGET, seed=0)


class Like:
    """An os.PathLike that is not a pathlib.Path, or an integer of a type of its own."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __fspath__(self) -> Any:
        """The path."""
        return self.value

    def __index__(self) -> int:
        """The integer."""
        return self.value


class Kind(NamedTuple):
    """Of an argument."""

    alike: Callable[[Any], dict[str, Any]]
    """(good value) -> values that mean the same"""
    wrong: dict[str, Any]
    """by what is wrong with them"""
    says: str = "{argument}"
    """in the error"""


def containers(values: Any) -> dict[str, Any]:
    """The same numbers, a list or a list of rows, in everything that holds numbers."""
    array = np.array(values)
    back, frozen = range(len(values))[::-1], array.copy()  # an index that counts downwards
    frozen.setflags(write=False)
    found: dict[str, Any] = {
        "tuple": tuple(values),
        "array": array,
        "big-endian": array.astype(array.dtype.newbyteorder(">")),
        "strided": np.repeat(array, 2, 0)[::2],
        "fortran": np.asfortranarray(array),
        "read-only": frozen,
        "objects": np.array(values, object),
        "jax": jnp.asarray(array),
        "list of arrays": [np.array(part) for part in values],
        "list of jax": [jnp.asarray(part) for part in values],
        "arrow": pa.array(values),
    }
    found |= {"f": {"float16": array.astype(np.float16)}, "i": {"uint8": array.astype(np.uint8)}}.get(
        array.dtype.kind, {}
    )
    if array.ndim == 2:
        columns = {str(place): column for place, column in enumerate(array.T)}
        tables = {"arrow table": pa.table(columns), "polars table": pl.DataFrame(columns)}
        lists = {"column of lists": pd.Series(list(values), index=back)}
        return found | tables | lists | {"table": pd.DataFrame(array, index=back)}
    nullable = {"f": "Float64", "i": "Int64", "b": "boolean"}[array.dtype.kind]
    return found | {
        "column": pd.Series(values, index=back),
        "nullable": pd.Series(values, dtype=nullable),
        "polars": pl.Series(values),
        "chunks": pa.chunked_array([values[:1], values[1:]]),
        "arrow scalars": list(pa.array(values)),
    }


def tables(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Tables of named columns."""
    frame = pd.DataFrame(rows, index=range(len(rows))[::-1])
    return {"pandas": frame, "arrow": pa.Table.from_pylist(rows), "polars": pl.DataFrame(rows), "tuple": tuple(rows)}


def points(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Points by name."""
    frame, row = pd.DataFrame(rows, index=[7, 3]), namedtuple("row", rows[0])
    return tables(rows) | {
        "batch": pa.RecordBatch.from_pandas(frame, preserve_index=False),
        "structs": pa.array(rows),
        "records": frame.to_records(index=False),
        "column of dicts": pd.Series(rows, index=[5, 1]),
        "rows": [row for _, row in frame.iterrows()],
        "named tuples": [row(**one) for one in rows],
        "backwards": [dict(reversed(one.items())) for one in rows],
    }


NUMBERS: dict[str, Any] = {str(one): one for one in ("x", True, float("nan"), 1j, [None], Fraction(1, 9), pd.NA)}
KINDS = {
    "array": Kind(
        containers,
        {
            "text": ["a", "b", "c"],
            "missing": [0.5, None, 0.5],
            "missing in a column": pd.Series([0.5, None, 0.5], dtype="Float64"),
            "missing in a list": pa.array([[1.0, None], [1.0, 2.0]]),
            "missing in a chunk": pa.chunked_array([[1.0], [None]]),
            "missing in a table": pa.table({"a": [1.0, None]}),
            "missing in polars": pl.Series([0.5, None]),
            "missing in a table of polars": pl.DataFrame({"a": [1.0, None]}),
            "missing in categories": pd.Series(pd.Categorical([1, None])),
            "dates": pd.to_datetime(["2020-01-01"] * 3),
            "durations": np.array([1, 2, 3], "timedelta64[s]"),
            "masked": np.ma.masked_equal([1.0, 2.0, 3.0], 2.0),
            "masked rows": [np.ma.masked_equal([1.0, 2.0], 2.0)] * 3,
            "objects": np.array([0.5, object(), 0.5]),
            "complex": np.ones(3, complex),
            "structured": np.zeros(3, [("a", "f4"), ("b", "f4")]),
            "sets": [{1}, {2}, {3}],
            "ragged": [[1.0], [1.0, 2.0]],
            "ragged in arrow": pa.array([[1.0], [1.0, 2.0]]),
            "a dict": {"a": 1.0},
            "an iterator": iter([1.0]),
        },
    ),
    "choices": Kind(containers, {"masked": np.ma.masked_equal([1, 2, 3], 2)}, "must be hashable; got masked"),
    "dates": Kind(
        lambda dates: {
            "text": [str(date) for date in dates],
            "with a zone": [date.replace(tzinfo=UTC) for date in dates],
            "column": pd.Series(pd.to_datetime(dates).tz_localize("UTC"), index=range(len(dates))[::-1]),
            "timestamps": list(pd.to_datetime(dates)),
        },
        {"nothing": [None] * 6, "sets": [{1}] * 6, "masked": np.ma.masked_array(["2024-01-01"] * 6, [True] * 6)},
    ),
    "points": Kind(points, {"text": "ab", "a set": {0.1, 0.2}, "nothing": object()}, "a point"),
    "table": Kind(
        tables,
        {
            "a dict": {"age": [1.0]},
            "records": pd.DataFrame(PEOPLE).to_records(index=False),
            "a column": pd.Series([1.0]),
            "a column twice": pd.DataFrame([[1.0, 2.0]], columns=["age", "age"]),
            "tuples": [("age", 1.0)],
        },
        r"must be a (table|dict|pandas)|occurs twice",
    ),
    "order": Kind(
        lambda names: {"tuple": tuple(names), "index": pd.Index(names), "array": np.array(names)},
        {"a set": {"age"}, "a frozen set": frozenset({"age"}), "text": "age", "a number": 3},
        r"must be .*a list of .*; got .*",
    ),
    "seed": Kind(
        lambda seed: {"int64": np.int64(seed), "array": np.array(seed), "big-endian": np.array(seed, ">i8")},
        {str(one): one for one in (-1, 2**63, True, 1.0, "0", [1.0], np.array([1.0]))},
        r"seed must be an integer from 0 to 2\*\*63 - 1; got ",
    ),
    "key": Kind(
        lambda key: {"raw": jax.random.PRNGKey(0)},
        {str(one): one for one in (0, np.int64(3), None, np.uint32(1), jax.random.split(KEY))},
        r"key must be (a|one) random key.*: (make one with jax.random.key\(seed\)|take one)",
    ),
    "size": Kind(
        lambda size: {"int8": np.int8(size), "uint8": np.uint8(size), "array": np.array(size), "own": Like(size)},
        {str(one): one for one in (-1, 0, 2.5, True, "20", np.array([20]), pd.NA)},
        r"{argument} must be (at least \d+|an integer); got ",
    ),
    "number": Kind(lambda x: {"float32": np.float32(x), "array": np.array(x), "jax": jnp.float32(x)}, NUMBERS),
    "reward": Kind(
        lambda x: {"arrow": pa.scalar(x), "half": jnp.bfloat16(x), "long": np.longdouble(x), "jax": jnp.array(x)},
        {k: v for k, v in NUMBERS.items() if k not in ("True", "nan")}
        | {"masked": np.ma.masked, "none": pa.scalar(None, pa.float64()), "a duration": np.timedelta64(1, "s")},
        "a reward must be a number|the value of fun must be",
    ),
    "name": Kind(
        lambda name: {"numpy": np.str_(name)},
        {str(one): one for one in ("nope", None, b"linear", 3, ["linear"])},
        "unknown|must be",
    ),
    "log": Kind(
        lambda log: {},
        {"a table": LOG.to_pandas(), "a tuple": tuple(LOG), "nothing": None},
        r"log must be a seqdec\.ope\.Log; got .*: make it with Log.from_pandas",
    ),
    "spaces": Kind(
        lambda site: {"environment": envs.FunctionalEnv(ARMS)},
        {"a name": "CartPole-v1", "nothing": None, "a space": SITE.action_space, "a function": envs.linear},
        "an observation_space and an action_space",
    ),
    "path": Kind(
        lambda path: {"Path": Path(path), "PathLike": Like(path), "numpy": np.str_(path)},
        {str(one): one for one in (3, b"a", "", "a\0b", "s3://bucket/log", Path("file:///a"), ["a"], Like(b"a"))},
        "a path must",
    ),
}  # fmt: skip


# What depends on an argument


EKF_OF = filters.ekf(NETWORK, GAUSSIAN)
KNOWN_OF = EKF_OF.init(KEY, PARAMS)


def updated(x: Any = (1.0, 1.0, 1.0), y: Any = (0.5, 1.0), observed: Any = None) -> Any:
    return EKF_OF.update(KNOWN_OF, x, y, observed)[0]


def update_batch(contexts: Any = (ROW, ROW), actions: Any = (0, 1), rewards: Any = (0.5, 1.0)) -> Any:
    return EKF.update_batch(BELIEF, contexts, actions, rewards)[0]  # pyright: ignore[reportOptionalCall]


@functools.cache
def site() -> seqdec.OnlineAgent:
    """One for all that is decided and learned."""
    return seqdec.OnlineAgent("linear", SITE, seed=0)


def decided(context: Any = ROW, mask: Any = None, reward: Any = 0.5) -> Any:
    """What stands in the log."""
    assert site().learn(site().decide(context, mask).token, reward) == "learned"
    log = site().log()
    return log.context[-1], log.mask[-1], log.reward[-1]


def several(contexts: Any) -> Any:
    site().learn_many([(decision.token, 1.0) for decision in site().decide_many(contexts)])
    return site().log().context[-2:]


def drawn(seed: Any = 0, folder: Any = None) -> Any:
    with seqdec.OnlineAgent("random", SITE, seed=seed, folder=folder) as one:
        return [one.decide(ROW).action for _ in range(20)]


def run(steps: Any = 20, seed: Any = 0) -> Any:
    env = envs.bernoulli([0.2, 0.8])
    found = seqdec.run(agents.random(env), env, steps, seed=seed, progress=False)
    return found.actions, found.rewards


def on_host(seed: Any) -> Any:
    env = envs.FunctionalEnv(envs.bernoulli([0.2, 0.8]))
    return seqdec.run(agents.random(env), env, 20, seed=seed, progress=False).rewards


def search(fun: Any = lambda x: float(x[0]), box: Any = BOX, **options: Any) -> Any:
    found = seqdec.minimize(fun, box, **{"n_calls": 1, "initial": 100, "seed": 0, "progress": False, **options})
    return found.func_vals, found.x_iters


BOTH = envs.FunctionalVectorEnv(envs.linear(), 2)


def copies(seed: Any = 0, actions: Any = (0, 1)) -> Any:
    return BOTH.reset(seed=seed)[0].copy(), BOTH.step(actions)[:2]


def told(point: Any) -> Any:
    return bo.BayesianOptimizer(BOX, seed=0).tell(point, 1.0).x


def logged(**columns: Any) -> Any:
    log = ope.make_log(**{**COLUMNS, **columns})
    return log[:6], log.action_features


def as_table(rows: Any) -> Any:
    """Dicts as a table, as a log takes it."""
    return pd.DataFrame(rows) if isinstance(rows, list | tuple) and isinstance(rows[0], dict) else rows


def posterior(policy: str) -> Callable[[Any], Any]:
    mean = Predictive(jnp.arange(2.0), jnp.eye(2), jnp.eye(2))
    known = Posterior(lambda _: jnp.arange(2.0), lambda _: mean, lambda key: lambda _: jax.random.normal(key, (2,)))
    return lambda key: policies.make(policy).score(key, known, None, None)


def of_log(**options: Any) -> Any:
    return ope.evaluate(LOG, **{"target": TARGET, "seed": 0, "samples": 9, **options})["low"].to_numpy()


def compared(log: Any = LOG, **options: Any) -> np.ndarray:
    return np.array(ope.compare(log, **{"target": TARGET, "seed": 0, "samples": 9, **options}).difference)


def projected(seed: Any) -> Any:
    params, optimizer = {"w": jnp.linspace(0, 1, 12).reshape(3, 4)}, optim.apollo(0.1, rank=1, seed=seed)
    return optimizer.update(params, optimizer.init(params), params)[0]


def replayed(seed: Any) -> Any:
    return ope.Replay().terms(ope.evidence(LOG, [[0.3, 0.7]] * 6, seed=seed))


def write_state(path: Any) -> None:
    seqdec.save(path, {"a": jnp.ones(1)})


def write_study(path: Any) -> None:
    bo.BayesianOptimizer([(0, 1)], seed=0).save(path)


def checkpointed(path: Any) -> None:
    search(checkpoint=path)


@functools.cache
def played() -> seqdec.Run:
    return seqdec.run(agents.random(ARMS), ARMS, 20, seed=0, progress=False)


def written_run(path: Any) -> None:
    played().save(path)


Row = tuple[Any, Callable[[Any], Any]]
TAKERS: dict[str, dict[str, Row]] = {
    "array": {
        "as_array(x)": (ROWS, lambda x: as_array("x", x)),
        "envs.bernoulli(probabilities)": (ROW, lambda x: envs.bernoulli(x).params),
        "envs.gaussian(std)": (ROW, lambda x: envs.gaussian(ROW, std=x).params),
        "envs.linear(weights)": (ROWS, lambda x: envs.linear(x).params),
        "envs.wheel(means)": ([1.0, 1.0, 1.0, 1.0, 1.5], lambda x: envs.wheel(means=x).params),
        "envs.tabular(features)": (ROWS, lambda x: envs.tabular(data.Table(x, np.eye(3))).params),
        "envs.tabular(rewards)": (ROWS, lambda x: envs.tabular(data.Table(np.eye(3), x)).params),
        "envs.classification(labels)": ([0, 1, 1], lambda x: envs.classification(np.eye(3, dtype="u1"), x).params),
        "envs.permuted(change_points)": ([3, 5], lambda x: envs.permuted("linear", change_points=x).params),
        "envs.branin(x)": ([0.5, 0.25], lambda x: envs.branin()(x)),
        "FunctionalVectorEnv.step(actions)": ([0, 1], lambda x: copies(actions=x)),
        "likelihoods.gaussian(noise_variance)": ([0.5, 0.25], lambda x: likelihoods.gaussian(x).cov(jnp.zeros(2))),
        "Filter.update(x)": (ROW, updated),
        "Filter.update(y)": ([0.5, 1.0], lambda y: updated(y=y)),
        "Filter.update(observed)": ([1, 0], lambda at: updated(observed=at)),
        "optim.self_tuning_sgd(momenta)": ([0.5, 0.75], lambda x: optim.self_tuning_sgd(0.1, momenta=x).init(PARAMS)),
        "Agent.act(context)": (ROW, lambda x: LINEAR.act(KEY, KNOWN, x)),
        "Agent.act(mask)": ([True, False], lambda x: LINEAR.act(KEY, KNOWN, Masked(ROW, x))),
        "Agent.act, not compiled(context)": (ROW, lambda x: agents.linear(SITE).act(KEY, KNOWN, x)),
        "Agent.update(context)": (ROW, lambda x: LINEAR.update(KNOWN, x, 1, 0.5)[0]),
        "Agent.update(reward)": ([0.5, 0.25], lambda y: LINEAR.update(KNOWN, ROW, 1, y)[0]),
        "Agent.update_batch(contexts)": ([ROW, ROW], update_batch),
        "Agent.update_batch(actions)": ([0, 1], lambda x: update_batch(actions=x)),
        "Agent.update_batch(rewards)": ([0.5, 1.0], lambda x: update_batch(rewards=x)),
        "OnlineAgent.decide(context)": (ROW, decided),
        "OnlineAgent.decide(mask)": ([True, False], lambda x: decided(mask=x)),
        "OnlineAgent.decide_many(context)": ([ROW, ROW], several),
        **{f"make_log({name})": (values, lambda x, name=name: logged(**{name: x})) for name, values in COLUMNS.items()},
        "make_log(action_features)": (ROWS[:2], lambda x: logged(action_features=x)),
        "ope.evaluate(target)": (TARGET, lambda x: of_log(target=x)),
        "ope.evaluate(predicted)": (TARGET, lambda x: of_log(predicted=x)),
        "ope.overlap(target)": (TARGET, lambda x: ope.overlap(LOG, x)[:3]),
        "ope.compare(target)": (TARGET, lambda x: compared(target=x)),
        "ope.compare(baseline)": (TARGET, lambda x: compared(baseline=x)),
        "ope.compare_arms(by)": (["a", "b"] * 3, lambda x: ope.compare_arms(LOG, reward_range=(0, 1), by=x).segments),
        "form_blocks(reward)": ([0.5, 0.25] * 5, lambda x: data.form_blocks([0] * 10, [*range(10)], x).rewards),
        "form_blocks(features)": (
            ROWS,
            lambda x: data.form_blocks([0] * 10, [*range(10)], [1.0] * 10, features=x, feature_row=[0] * 10).features,
        ),
        "minimize(bounds)": ([[0, 1], [0, 1]], lambda x: bo.space_from(x).columns),
        "minimize(x0)": ([[0.25, 0.5], [0.75, 1.0]], lambda x: search(x0=x, n_calls=3)),
        "minimize(y0)": ([1.0, 2.0], lambda y: search(x0=[[0.25, 0.5], [0.75, 1.0]], y0=y)),
        "minimize(objectives' y0)": (
            [[1.0, 4.0], [2.0, 3.0]],
            lambda y: search(lambda x: (5.0, 6.0), x0=[[0.25, 0.5], [0.75, 1.0]], y0=y, objectives=2),
        ),
        "what fun returns(value)": ([1.0, 2.0], lambda y: search(lambda x: y, objectives=2)),
        "BayesianOptimizer.tell(x)": ([0.25, 0.5], told),
    },
    "dates": {
        "make_log(timestamp)": (
            [datetime(2024, 1, day) for day in range(1, 7)],
            lambda dates: ope.make_log(**COLUMNS, timestamp=dates).timestamp.astype("int64"),
        )
    },
    "choices": {"bo.Categorical(choices)": ([1, 2, 3], lambda x: bo.space_from([bo.Categorical(x)]).point([2]).x)},
    "points": {
        "minimize(x0 by name)": (
            [{"b": 0.25, "a": 0.5}, {"b": 0.75, "a": 1.0}],
            lambda x: search(lambda x: x["a"], dict(zip("ba", BOX, strict=True)), x0=x, n_calls=2),
        )
    },
    "table": {
        "Encoder.fit(table)": (PEOPLE, lambda rows: features.Encoder.fit(rows).transform(PEOPLE)),
        "Encoder.transform(table)": (PEOPLE, ENCODER.transform),
        "Log.from_pandas(table)": (
            [{"action": 1, "reward": 0.5, "propensity": 0.25}],
            lambda rows: ope.Log.from_pandas(as_table(rows), num_actions=2)[:6],
        ),
    },
    "order": {
        "Categorical(levels)": (["age"], lambda x: features.Encoder({"age": features.Categorical(x)}).names),
        "Ordered(levels)": (["age"], lambda x: features.Encoder({"age": features.Ordered(x)}).names),
        "Tags(levels)": (["age"], lambda x: features.Encoder({"age": features.Tags(x)}).names),
        "Encoder.fit(columns)": (["age"], lambda x: features.Encoder.fit(PEOPLE, x).names),
        "Encoder.of(columns)": (
            ["age"],
            lambda x: (
                features.Encoder.of(
                    FunctionTransformer().fit(pd.DataFrame(PEOPLE)[["age"]]), x, example={"age": 1.0}
                ).columns
            ),
        ),
        "make_log(action_names)": (["age"], lambda x: ope.make_log(**NAMED, action_names=x).action_names),
        "Log.from_pandas(context)": (
            ["age"],
            lambda x: ope.Log.from_pandas(LOG.to_pandas().assign(age=1.0), context=x).context,
        ),
    },
    "seed": {
        "run(seed)": (2**40, lambda seed: run(seed=seed)),
        "run on the host(seed)": (2**40, on_host),
        "OnlineAgent(seed)": (2**40, lambda seed: drawn(seed)),
        "minimize(seed)": (2**40, lambda seed: search(seed=seed)),
        "BayesianOptimizer(seed)": (2**40, lambda seed: bo.BayesianOptimizer(BOX, seed=seed).ask().x),
        "FunctionalEnv(seed)": (2**40, lambda seed: envs.FunctionalEnv(envs.linear()).reset(seed=seed)[0]),
        "FunctionalVectorEnv(seed)": (2**40, lambda seed: copies(seed)),
        "drawnn(seed)": (2**40, lambda seed: envs.drawnn(3, seed=seed)(np.ones(3))),
        "black_box(seed)": (2**40, lambda seed: envs.noisy_branin().black_box(seed)(np.ones(2))),
        "apollo(seed)": (2**40, projected),
        "evidence(seed)": (2**40, replayed),
        "synthetic_kuairec(seed)": (2**40, lambda seed: data.synthetic_kuairec(users=3, videos=30, seed=seed).rewards),
    },
    "key": {
        "Network.init": (KEY, NETWORK.init),
        "Filter.init": (KEY, lambda key: EKF_OF.init(key, PARAMS)),
        "Filter.sample": (KEY, lambda key: EKF_OF.sample(key, KNOWN_OF)),
        "Agent.init": (KEY, agents.linear(SITE).init),
        "Agent.init of nothing": (KEY, agents.random(SITE).init),
        "Agent.act": (KEY, lambda key: agents.linear(SITE).act(key, KNOWN, ROW)),
        "compiled(agent).init": (KEY, LINEAR.init),
        "compiled(agent).act": (KEY, lambda key: LINEAR.act(key, KNOWN, ROW)),
        "Environment.reset": (KEY, lambda key: ARMS.reset(key, ARMS.params)),
        "Environment.step": (KEY, lambda key: ARMS.step(key, ARMS.reset(KEY, ARMS.params)[0], 0, ARMS.params)),
        **{
            f"policies.{name}": (KEY, posterior(name))
            for name in ("thompson", "epsilon_greedy", "predictive_sampling", "tempered_sampling")
        },
    },
    "size": {
        "run(num_steps)": (100, run),
        "envs.bernoulli(horizon)": (100, lambda n: envs.FunctionalEnv(envs.bernoulli(horizon=n)).reset(seed=0)[0]),
        "memory.reservoir(capacity)": (100, lambda n: memory.reservoir(n).init(jnp.zeros(3))),
        "agents.lrkf(rank)": (
            100,
            lambda n: jax.eval_shape(agents.lrkf(SITE, rank=n, model=models.MLP(2, (40,))).init, KEY),
        ),
        "agents.gp(buffer)": (100, lambda n: agents.gp(SITE, buffer=n).init(KEY)),
        "filters.Numerics(numerics.buffer)": (
            100,
            lambda n: filters.lrkf(NETWORK, GAUSSIAN, rank=2, numerics=filters.Numerics(buffer=n)).init(KEY, PARAMS),
        ),
        "thompson(propensity_samples)": (
            100,
            lambda n: agents.linear(SITE, policy=policies.thompson(propensity_samples=n)).act(KEY, KNOWN, ROW),
        ),
        "ope.evaluate(samples)": (100, lambda n: of_log(samples=n)),
        "optim.alice(rank)": (100, lambda n: optim.alice(0.1, rank=n).init({"w": jnp.ones((200, 200))})),
    },
    "number": {
        "optim.soap(learning_rate)": (0.25, lambda x: optim.soap(x) and None),
        "tempered_sampling(neglect)": (2.0, lambda x: policies.tempered_sampling(neglect=x) and None),
        "ope.IPS(max_weight)": (4.0, lambda x: ope.IPS(max_weight=x).terms(EVIDENCE).value),
        "filters.lrkf(process_noise)": (
            0.25,
            lambda x: filters.lrkf(NETWORK, GAUSSIAN, rank=2, process_noise=x) and None,
        ),
        "agents.auto(learning_rate)": (0.25, lambda x: agents.auto(SITE, learning_rate=x) and None),
    },
    "reward": {
        "OnlineAgent.learn(reward)": (0.5, lambda x: decided(reward=x)),
        "minimize(value)": (0.5, lambda x: search(lambda _: x)),
    },
    "name": {
        "agents.make": ("linear", lambda name: agents.make(name, SITE).name),
        "policies.make": ("ucb", lambda name: policies.make(name).needs),
        "envs.make": ("linear", lambda name: envs.make(name).name),
        "OnlineAgent(make)": ("linear", lambda name: seqdec.OnlineAgent(name, SITE, seed=0).close()),
        "minimize(surrogate)": ("gp", lambda name: search(surrogate=name)),
        "optim.fismo(polar)": ("exact", lambda name: optim.fismo(0.1, polar=name) and None),
    },
    "log": {
        "evaluate": (LOG, lambda log: ope.evaluate(log, TARGET, seed=0, samples=9)["low"].to_numpy()),
        "overlap": (LOG, lambda log: ope.overlap(log, TARGET)[:3]),
        "compare": (LOG, lambda log: compared(log)),
        "compare_arms": (LOG, lambda log: ope.compare_arms(log, reward_range=(0, 1)).table),
        "evidence": (LOG, lambda log: ope.evidence(log, TARGET, seed=0)[2]),
        "estimate_propensities": (LOG, lambda log: ope.estimate_propensities(log, seed=0)[2]),
        "warm_start": (LOG, lambda log: seqdec.OnlineAgent("linear", CONTEXTS, seed=0).warm_start(log) and None),
    },
    "spaces": {
        f"agents.{name}": (ARMS, lambda site, name=name: agents.make(name, site).spaces and None)
        for name in agents.names()
        if "contexts" in agents.capabilities(name).spaces
    },
    "path": {
        "OnlineAgent(folder)": ("place", lambda path: drawn(folder=path)),
        "save": ("place", write_state),
        "Log.save": ("place", LOG.save),
        "BayesianOptimizer.save": ("place", write_study),
        "Run.save": ("place", written_run),
        "minimize(checkpoint)": ("place", checkpointed),
        "write_kuairec": ("place", lambda path: data.write_kuairec(path, users=1, videos=1, seed=0)),
    },
}
CONTEXTS = Spaces(spaces.Box(-5, 5, (2,)), spaces.Discrete(2))
SAYS = {
    "as_array(x)": "x must (hold|be an array without a mask)",
    "Filter.update(x)": "x must|the network takes",
    "minimize(bounds)": "bounds",
    "minimize(x0)": r"a point|x\[",
    "minimize(objectives' y0)": "y0|value",
    "what fun returns(value)": "value|objectives",
    "BayesianOptimizer.tell(x)": r"a point|x\[",
    "thompson(propensity_samples)": "propensity_samples must be an integer",
}
"""Of arguments that errors call otherwise."""
SPARED: dict[str, tuple[str, ...]] = {
    "make_log(action)": ("text", "dates"),  # names of actions
    "minimize(bounds)": ("structured",),  # points by name
    "minimize(x0)": ("structured",),
    "minimize(y0)": ("missing in categories",),  # of a failed call
    "what fun returns(value)": ("missing in categories",),
    "bo.Categorical(choices)": ("list of arrays", "list of jax", "arrow scalars"),
    "minimize(value)": ("1/9",),
    "thompson(propensity_samples)": ("0",),
    "FunctionalVectorEnv(seed)": ("[1.0]", "[1.]"),  # one for each copy
}
"""What is no mistake for a single argument, or does not mean the same."""


class Entry(NamedTuple):
    """An argument of a public function."""

    kind: Kind
    good: Any
    take: Callable[[Any], Any]
    says: str
    """in an error, a regular expression"""


def _entry(kind: str, name: str, row: Row) -> Entry:
    argument = name.partition("(")[2].rstrip(")").replace(".", r"\.")
    return Entry(KINDS[kind], *row, SAYS.get(name, KINDS[kind].says.replace("{argument}", argument)))


ENTRIES = {name: _entry(kind, name, row) for kind, rows in TAKERS.items() for name, row in rows.items()}


# Single calls

WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "switches are choices": (lambda: bo.space_from([(False, True)]), r"bounds\[0\] must be numbers.*use a Categorical"),
    "a row that is a column": (lambda: ENCODER(pd.Series(PEOPLE[0])), "a row must be a dict; got Series: .*to_dict"),
    "kinds that are text": (lambda: features.Encoder.fit(PEOPLE, kinds="numeric"), "kinds must be a dict from columns"),
    "a duration as a number": (lambda: ENCODER({"age": np.timedelta64(5, "s")}), "must|is not"),
    "a level that is nan": (lambda: features.Encoder({"a": features.Categorical([np.nan])}), "a level must be a str"),
    "rewards without names": (lambda: logged(reward_parts=[1.0] * 6), "reward_parts must be a dict from names"),
    "runs without names": (lambda: seqdec.results.compare([]), "runs must be a dict from names to runs; got list"),
    "numbers and dates": (
        lambda: logged(context=pd.DataFrame({"a": [1.0] * 6, "b": pd.date_range("2024", periods=6)})),
        "column context must hold real numbers",
    ),
    "a count that is traced": (lambda: jax.jit(memory.reservoir)(3), "must be a Python integer.*inject_hyperparams"),
    "one key for several": (lambda: EKF.act_batch(KEY, BELIEF, [ROW]), r"one for each decision; got shape \(\)"),
    "seeds for keys": (lambda: EKF.act_batch([1, 2], BELIEF, [ROW] * 2), r"make them with jax.random.split"),
    "a point with a condition": (
        lambda: bo.space_from(CONDITIONAL).point({"kind": "a", "extra": 0.5}),
        "inactive at 'kind' = 'a': leave it out",
    ),
    "a dict for a point without names": (lambda: told({"b": 0.25, "a": 0.5}), "no names, is a list of values"),
    "complex parameters": (
        lambda: optim.soap(0.1).init({"w": jnp.ones((4, 3), complex)}),
        r"parameters must be real numbers; got complex64 of shape \(4, 3\)",
    ),
}  # fmt: skip
CONDITIONAL = {
    "kind": bo.Categorical(("a", "b")),
    "extra": bo.Conditional(bo.Real(0, 1), on="kind", values=("b",)),
}


# Objects that a wrong call leaves as they were


class Stateful(NamedTuple):
    """An object, what must not change, and calls that are wrong."""

    make: Callable[[], Any]
    state: Callable[[Any], Any]
    calls: dict[str, Callable[[Any], Any]]


def _service() -> seqdec.OnlineAgent:
    one = seqdec.OnlineAgent("linear", SITE, seed=0)
    one.learn(one.decide(ROW).token, 0.5)
    return one


def _optimizer() -> bo.BayesianOptimizer:
    one = bo.BayesianOptimizer({"a": (0.0, 1.0), "b": bo.Categorical(("x", "y"))}, seed=0, initial=5)
    one.tell(one.ask(), 1.0)
    return one


STATES = {
    "OnlineAgent": Stateful(
        _service,
        lambda one: (dict(one.counts), one.state, one.arms),
        {
            "a context of another shape": lambda one: one.decide([1.0]),
            "a context of text": lambda one: one.decide(["a", "b", "c"]),
            "a context that is not finite": lambda one: one.decide([0.0, float("nan"), 0.0]),
            "a context that is too large": lambda one: one.decide([0.0, 1e15, 0.0]),
            "a mask that allows nothing": lambda one: one.decide(ROW, [False, False]),
            "a mask that is too long": lambda one: one.decide(ROW, [True] * 3),
            "a key that is empty": lambda one: one.decide(ROW, key=""),
            "keys of other contexts": lambda one: one.decide_many([ROW, ROW], keys=["a"]),
            "a token that is no text": lambda one: one.withdraw(1),
            "a token that is a number": lambda one: one.activate(1),
            "an activity that is none": lambda one: one.decide(ROW, active="no"),
            "an age below zero": lambda one: one.forget(older_than=-1.0),
            "an age of nothing": lambda one: one.compact(0.0),
            "one of several contexts": lambda one: one.decide_many([ROW, [0.0, float("inf"), 0.0]]),
            "a token that is none": lambda one: one.learn(3, 1.0),
            "a dict of rewards": lambda one: one.learn_many({"token": 1.0}),
            "a table of rewards": lambda one: one.learn_many(pd.DataFrame({"token": ["a"], "reward": [1.0]})),
            "rewards of three": lambda one: one.learn_many([("token", 1.0, 0)]),
            "an arm that is not there": lambda one: one.remove_arm(9),
            "items without a catalog": lambda one: one.add_items({"a": [1.0]}),
            "a table in the place of a log": lambda one: one.warm_start(LOG.to_pandas()),
        },
    ),
    "BayesianOptimizer": Stateful(
        _optimizer,
        lambda one: [(trial.number, str(trial.x)) for trial in one.trials],
        {
            "a point of text": lambda one: one.tell("ab", 1.0),
            "a point outside": lambda one: one.tell({"a": 2.0, "b": "x"}, 1.0),
            "a point without a column": lambda one: one.tell({"a": 0.5}, 1.0),
            "a choice that is none": lambda one: one.tell({"a": 0.5, "b": "z"}, 1.0),
            "a name that occurs twice": lambda one: one.tell(pd.DataFrame([[0.5, "x", 0.1]], columns=[*"aba"]), 1.0),
            "a value of text": lambda one: one.tell({"a": 0.5, "b": "x"}, "1"),
            "several values": lambda one: one.tell({"a": 0.5, "b": "x"}, [1.0, 2.0]),
            "a masked value": lambda one: one.tell({"a": 0.5, "b": "x"}, np.ma.masked),
            "outcomes that are not asked for": lambda one: one.tell({"a": 0.5, "b": "x"}, 1.0, outcomes=[1.0]),
        },
    ),
}
