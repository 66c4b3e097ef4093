"""Arrays in containers of any kind: everywhere the answer is that of a list of numbers."""

from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pyarrow as pa
import pytest
from gymnasium import spaces

import seqdec
from seqdec import agents, data, envs, filters, likelihoods, memory, models, ope, optim, policies, statistics
from seqdec.boundary import checks
from seqdec.core import Filter, Masked

SITE: Any = SimpleNamespace(observation_space=spaces.Box(-5, 5, (3,)), action_space=spaces.Discrete(2))
ROW, ROWS = [0.25, 0.5, 0.75], [[0.5, 0.25], [1.0, 0.0], [0.0, 1.0]]
TARGET = [[0.5, 0.5], [0.25, 0.75]] * 3
COLUMNS: dict[str, Any] = {
    "action": [0, 1, 0, 1, 1, 0],
    "reward": [1.0, 0.0, 0.5, 1.0, 0.0, 0.25],
    "propensity": [0.5] * 6,
    "timestamp": [1, 2, 3, 4, 5, 6],
    "context": [[0.5, 1.0]] * 6,
    "mask": [[True, True]] * 6,
}
LOG = ope.make_log(**COLUMNS)
NETWORK = models.network(models.MLP(2, ()), jnp.zeros(3))


def containers(values: Any) -> dict[str, Any]:
    """`values`, a list or a list of rows, in other containers."""
    array = np.array(values)
    back = range(len(values))[::-1]  # an index that counts downwards
    frozen = array.copy()
    frozen.setflags(write=False)
    result: dict[str, Any] = {
        "tuple": tuple(values),
        "big-endian": array.astype(array.dtype.newbyteorder(">")),
        "strided": np.repeat(array, 2, 0)[::2],
        "fortran": np.asfortranarray(array),
        "read-only": frozen,
        "jax": jnp.asarray(array),
        "list of jax": [jnp.asarray(part) for part in values],
        "list of arrays": [np.array(part) for part in values],
        "object": np.array(values, object),
        "arrow": pa.array(values),
    }
    if array.dtype.kind == "f":
        result |= {"float16": array.astype(np.float16), "big-endian float32": array.astype(">f4")}
    if array.dtype.kind == "i":
        result |= {"uint8": array.astype(np.uint8), "big-endian int16": array.astype(">i2")}
    if array.ndim == 2:
        return result | {
            "frame": pd.DataFrame(array, index=back),
            "arrow table": pa.table({str(place): column for place, column in enumerate(array.T)}),
            "list of series": [pd.Series(row, index=range(len(row))[::-1]) for row in values],
            "column of lists": pd.Series(list(values), index=back),
        }
    nullable = {"f": "Float64", "i": "Int64", "b": "boolean"}[array.dtype.kind]
    return result | {
        "series": pd.Series(values, index=back),
        "column": pd.DataFrame({"x": values}, index=back)["x"],
        "index": pd.Index(values),
        "nullable": pd.Series(values, dtype=nullable),
        "chunked": pa.chunked_array([values[:1], values[1:]]),
        "arrow scalars": list(pa.array(values)),
    }


def updated(flt: Filter, x: Any = (1.0, 1.0, 1.0), y: Any = (0.5, 1.0), observed: Any = None) -> Any:
    params = {"output": {"bias": jnp.zeros(2), "kernel": jnp.ones((3, 2)) / 4}}
    return flt.update(flt.init(jax.random.key(0), params), x, y, observed)[0]


def gaussian_filter(noise: Any = 0.1) -> Filter:
    return filters.ekf(NETWORK, likelihoods.gaussian(noise))


def vector_step(actions: Any) -> Any:
    copies = envs.FunctionalVectorEnv(envs.linear(), 2)
    copies.reset(seed=0)
    return copies.step(actions)[:2]


def service(context: Any = ROW, mask: Any = None) -> Any:
    with seqdec.OnlineAgent("linear", SITE, seed=0) as one:
        decision = one.decide(context, mask)
        one.learn(decision.token, 0.5)
        return decision[:2], one.state


def several(contexts: Any = (ROW, ROW), rewards: Any = (0.5, 1.0)) -> Any:
    with seqdec.OnlineAgent(ekf, SITE, seed=0) as one:
        decisions = one.decide_many(contexts)
        one.learn_many(zip([decision.token for decision in decisions], rewards, strict=True))
        return [decision[:2] for decision in decisions], one.state


def ekf(where: Any) -> Any:
    return agents.ekf(where, model=models.MLP(2, ()))


LINEAR, EKF = seqdec.compiled(agents.linear(SITE)), seqdec.compiled(ekf(SITE))
KNOWN, BELIEF = LINEAR.init(jax.random.key(0)), EKF.init(jax.random.key(0))
KEY = jax.random.key(0)


def update_batch(contexts: Any = (ROW, ROW), actions: Any = (0, 1), rewards: Any = (0.5, 1.0)) -> Any:
    assert EKF.update_batch is not None
    return EKF.update_batch(BELIEF, contexts, actions, rewards)[0]


def act_batch(contexts: Any) -> Any:
    assert EKF.act_batch is not None
    return EKF.act_batch(jax.random.split(KEY, 2), BELIEF, contexts)


TAKERS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "bernoulli": (ROW, lambda x: envs.bernoulli(x).params),
    "gaussian": (ROW, lambda x: envs.gaussian(x).params),
    "gaussian, std": (ROW, lambda x: envs.gaussian(ROW, std=x).params),
    "linear": (ROWS, lambda x: envs.linear(x).params),
    "wheel": ([1.0, 1.0, 1.0, 1.0, 1.5], lambda x: envs.wheel(means=x).params),
    "tabular, features": (ROWS, lambda x: envs.tabular(data.Table(x, np.eye(3))).params),
    "tabular, rewards": (ROWS, lambda x: envs.tabular(data.Table(np.eye(3), x)).params),
    "tabular, spread": (ROWS, lambda x: envs.tabular(data.Table(np.eye(3), np.array(ROWS), x)).params),
    "classification": ([0, 1, 1], lambda x: envs.classification(np.arange(6, dtype=np.uint8).reshape(3, 2), x).params),
    "permuted": ([3, 5], lambda x: envs.permuted(envs.linear(), change_points=x).params),
    "objective": ([0.5, 0.25], lambda x: envs.branin()(x)),
    "black box": ([0.5, 0.25], lambda x: envs.noisy_branin().black_box(0)(x)),
    "vector environment": ([0, 1], vector_step),
    "likelihood": ([[0.5, 0.0], [0.0, 0.25]], lambda x: updated(gaussian_filter(x))),
    "likelihood, variances": ([0.5, 0.25], lambda x: updated(gaussian_filter(x))),
    "filter, x": (ROW, lambda x: updated(gaussian_filter(), x)),
    "filter, y": ([0.5, 1.0], lambda y: updated(gaussian_filter(), y=y)),
    "filter, observed": ([1, 0], lambda at: updated(gaussian_filter(), observed=at)),
    "momenta": ([0.5, 0.75], lambda x: optim.self_tuning_sgd(0.1, momenta=x).init({"w": jnp.ones(2)})),
    **{
        f"make_log, {name}": (values, lambda x, name=name: tuple(ope.make_log(**{**COLUMNS, name: x}))[:6])
        for name, values in COLUMNS.items()
    },
    "make_log, features": (ROWS[:2], lambda x: ope.make_log(**COLUMNS, action_features=x).action_features),
    "evaluate": (TARGET, lambda x: ope.evaluate(LOG, x, seed=0, samples=5)["low"].to_numpy()),
    "evaluate, predicted": (
        TARGET,
        lambda x: ope.evaluate(LOG, np.array(TARGET), x, seed=0, samples=5)["low"].to_numpy(),
    ),
    "overlap": (TARGET, lambda x: ope.overlap(LOG, x)[:3]),
    "evidence": (TARGET, lambda x: tuple(ope.DR().terms(ope.evidence(LOG, TARGET, x, seed=0)))),
    "form_blocks, user": ([0] * 10 + [1] * 10, lambda x: data.form_blocks(x, [*range(10)] * 2, [0.5] * 20).ids["user"]),
    "form_blocks, reward": ([0.5, 0.25] * 5, lambda x: data.form_blocks([0] * 10, [*range(10)], x).rewards),
    "form_blocks, features": (
        ROWS,
        lambda x: data.form_blocks([0] * 10, [*range(10)], [1.0] * 10, features=x, feature_row=[0] * 10).features,
    ),
    "act": (ROW, lambda x: LINEAR.act(KEY, KNOWN, x)),
    "act, mask": ([True, False], lambda mask: LINEAR.act(KEY, KNOWN, Masked(ROW, mask))),
    "act, not compiled": (ROW, lambda x: agents.linear(SITE).act(KEY, KNOWN, x)),
    "update": (ROW, lambda x: LINEAR.update(KNOWN, x, 1, 0.5)[0]),
    "update, rewards of all": ([0.5, 0.25], lambda y: LINEAR.update(KNOWN, ROW, 1, y)[0]),
    "update_batch": ([ROW, ROW], update_batch),
    "update_batch, actions": ([0, 1], lambda x: update_batch(actions=x)),
    "update_batch, rewards": ([0.5, 1.0], lambda x: update_batch(rewards=x)),
    "act_batch": ([ROW, ROW], act_batch),
    "OnlineAgent": (ROW, service),
    "OnlineAgent, mask": ([True, False], lambda mask: service(mask=mask)),
    "OnlineAgent, contexts": ([ROW, ROW], several),
    "mean_and_margin": (ROWS, statistics.mean_and_margin),
    "with_margin": (ROW, lambda x: np.frombuffer("".join(statistics.with_margin(x, ROW)).encode(), np.uint8)),
}
TAKEN_AS_NUMPY_DOES = {
    "with_margin": ("arrow scalars", "object"),
    "mean_and_margin": ("arrow", "column of lists", "object"),
}
"""Functions of NumPy arrays below `seqdec.boundary.checks`, which take what `np.asarray` takes."""


def leaves(result: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(result)]


@pytest.mark.sampled(24)
@pytest.mark.parametrize("name", TAKERS)
def test_any_container_is_a_list(name: str) -> None:
    values, take = TAKERS[name]
    expected = leaves(take(values))
    for kind, other in containers(values).items():
        if kind in TAKEN_AS_NUMPY_DOES.get(name, ()):
            continue
        found = leaves(take(other))
        assert len(found) == len(expected), kind
        for one, wanted in zip(found, expected, strict=True):
            assert one.dtype.kind == wanted.dtype.kind or {one.dtype.kind, wanted.dtype.kind} == {"i", "u"}, kind
            assert one.dtype.isnative
            np.testing.assert_array_equal(one, wanted, err_msg=kind)


WRONG: dict[str, Any] = {
    "text": ["a", "b", "c"],
    "missing": [0.5, None, 0.5],
    "nullable": pd.Series([0.5, None, 0.5], dtype="Float64"),
    "dates": pd.to_datetime(["2020-01-01"] * 3),
    "masked": np.ma.masked_equal([1.0, 2.0, 3.0], 2.0),
    "objects": np.array([0.5, object(), 0.5]),
    "complex": np.ones(3, complex),
    "sets": [{1}, {2}, {3}],
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_no_number_is_refused_by_name(kind: str) -> None:
    for name, take in (("probabilities", envs.bernoulli), ("context", service), ("noise_variance", gaussian_filter)):
        with pytest.raises((TypeError, ValueError), match=rf"{name} must"):
            take(WRONG[kind])
    with pytest.raises(ValueError, match=r"column reward must|reward must be known"):
        ope.make_log(action=[0, 1, 0], reward=WRONG[kind], propensity=[0.5] * 3)


def test_masked_entries_are_refused_where_text_and_dates_are_taken() -> None:
    masked: Any = np.ma.masked
    for given in ([0.5, masked] * 5, np.ma.masked_equal([0.5, 1.0] * 5, 1.0)):
        with pytest.raises(TypeError, match="reward must be an array without a mask"):
            data.form_blocks([0] * 10, [*range(10)], given)
    for name, values in (("action", ["a", "b"]), ("timestamp", np.array(["2024-01-01", "2024-01-02"], "M8[D]"))):
        wrong = {**COLUMNS, name: np.ma.masked_array([*values] * 3, [True] * 6)}
        with pytest.raises(TypeError, match=f"column {name} must be an array without a mask"):
            ope.make_log(**wrong)


def test_rows_of_different_lengths_are_refused() -> None:
    for rows in ([[1.0], [1.0, 2.0]], pd.Series([[1.0], [1.0, 2.0]]), pa.array([[1.0], [1.0, 2.0]])):
        with pytest.raises(ValueError, match="weights must hold rows of equal lengths"):
            envs.linear(rows)


@pytest.mark.parametrize(
    "times",
    [
        [datetime(2024, 1, day) for day in range(1, 7)],
        [f"2024-01-0{day}" for day in range(1, 7)],
        [datetime(2024, 1, day, tzinfo=UTC) for day in range(1, 7)],
        pd.Series(pd.date_range("2024-01-01", periods=6, tz="UTC"), index=range(6)[::-1]),
        list(pd.date_range("2024-01-01", periods=6)),
    ],
    ids=["dates", "text", "with a zone", "series with a zone", "timestamps"],
)
def test_dates_in_any_container(times: Any) -> None:
    log = ope.make_log(**{**COLUMNS, "timestamp": times})
    np.testing.assert_array_equal(log.timestamp, np.arange("2024-01-01", "2024-01-07", dtype="datetime64[D]"))


class Index:
    """An integer of a type of its own."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


def run(agent: Any, steps: Any = 20) -> Any:
    result = seqdec.run(agent, ENV, steps, seed=0, progress=False)
    return result.rewards


ENV = envs.linear()
SMALL = models.MLP(5, (16,))
COUNTS: dict[str, Callable[[Any], Any]] = {
    "steps": lambda n: run(agents.random(ENV), n),
    "horizon": lambda n: envs.FunctionalEnv(envs.bernoulli(horizon=n)).reset(seed=0)[0],
    "num_classes": lambda n: envs.classification(np.zeros((4, 2), np.uint8), [0, 1, 1, 0], num_classes=n).action_space,
    "capacity": lambda n: memory.reservoir(n).init(jnp.zeros(3)),
    "rank": lambda n: agents.hilofi(ENV, rank=n, model=models.MLP(5, (40,))).init(KEY),
    "rank_hidden": lambda n: agents.lolofi(ENV, rank_hidden=n, rank_last=n, model=models.MLP(5, (40,))).init(KEY),
    "buffer": lambda n: agents.lrkf(ENV, rank=5, numerics=filters.Numerics(buffer=n), model=SMALL).init(KEY),
    "gp": lambda n: agents.gp(ENV, buffer=n).init(KEY),
    "auto": lambda n: agents.auto(ENV, capacity=n, batch_size=n).init(KEY),
    "replay": lambda n: jax.eval_shape(agents.replay_adamw(ENV, batch_size=n, inner_steps=n).update, *STEP),
    "rehearsal": lambda n: agents.ekf(
        ENV, model=models.MLP(5, ()), rehearsal=agents.Rehearsal(memory.last(n), n, optax.sgd(0.1), n)
    ).init(KEY),
    "propensity_samples": lambda n: agents.linear(ENV, policy=policies.thompson(propensity_samples=n)).act(
        KEY, agents.linear(ENV).init(KEY), np.zeros(2)
    ),
    "independent": lambda n: filters.independent(gaussian_filter(), n) and None,
    "samples": lambda n: ope.evaluate(LOG, TARGET, seed=0, samples=n)["low"].to_numpy(),
    "objective": lambda n: envs.rosenbrock(n).bounds,
    "optimizer": lambda n: optim.alice(0.1, rank=n, leading=n, interval=n).init({"w": jnp.ones((200, 200))}),
}
STEP: Any = (jax.eval_shape(agents.replay_adamw(ENV).init, KEY), jnp.zeros(2), jnp.int32(0), jnp.float32(0))


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", COUNTS)
def test_a_small_integer_type_does_not_overflow(name: str) -> None:
    """Sizes are sums and products of what is given, which need not fit its type."""
    expected = leaves(COUNTS[name](100))
    for value in (np.int8(100), np.uint8(100), np.array(100), Index(100)):
        for one, wanted in zip(leaves(COUNTS[name](value)), expected, strict=True):
            assert one.dtype == wanted.dtype
            np.testing.assert_array_equal(one, wanted)


NAMES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "agents.make": ("linear", lambda name: agents.make(name, SITE).name),
    "agents.capabilities": ("ekf", agents.capabilities),
    "policy": ("greedy", lambda name: agents.make("ekf", SITE, policy=name).settings["policy"]),
    "policies.make": ("ucb", lambda name: policies.make(name).exact),
    "envs.make": ("linear", lambda name: envs.make(name).name),
    "permuted": ("linear", lambda name: envs.permuted(name, change_points=[3]).name),
    "order": ("sequential", lambda name: envs.digits(order=name).name),
    "OnlineAgent": ("linear", lambda name: seqdec.OnlineAgent(name, SITE, seed=0).close()),
    "minimize": (
        "gp",
        lambda name: (
            seqdec.minimize(lambda x: float(x[0]), [(0, 1)], n_calls=1, seed=0, surrogate=name, progress=False).x
        ),
    ),
    "fismo": ("exact", lambda name: optim.fismo(0.1, polar=name) and None),
    "apollo": ("svd", lambda name: optim.apollo(0.1, projection=name) and None),
}


@pytest.mark.parametrize("taker", NAMES)
def test_names_are_text_of_any_type(taker: str) -> None:
    name, take = NAMES[taker]
    for other in (np.str_(name), np.array([name])[0], pd.Series([name])[0]):
        assert take(other) == take(name)


@pytest.mark.parametrize("dtype", [">f8", "<f4", ">i2", "u1", "?", "f2"])
def test_a_state_of_any_dtype_and_layout_is_saved(dtype: str, tmp_path: Any) -> None:
    state = {"a": np.arange(6).astype(dtype).reshape(2, 3)[:, ::2], "b": np.array(1, dtype)}
    seqdec.save(tmp_path / "state", state)
    native = jax.tree.map(lambda leaf: leaf.astype(leaf.dtype.newbyteorder("=")), state)
    for like in (state, native):
        found = seqdec.load(tmp_path / "state", like)
        jax.tree.map(np.testing.assert_array_equal, found, state)
    with pytest.raises(TypeError, match="the leaf a must be an array, a random key or a number; got Series"):
        seqdec.save(tmp_path / "other", {"a": pd.Series([0.5, None], dtype="Float64")})


def test_an_iterator_is_refused() -> None:
    with pytest.raises(TypeError, match="x must hold real numbers; got <generator"):
        checks.numbers("x", (value for value in ROW))
