"""Digests of what a change of structure must leave equal to the bit: one line for each item.

    python benchmarks/frozen.py --write before.txt          # before the change; prints the lines as well
    python benchmarks/frozen.py --check before.txt          # after it: says which lines differ, and exits with 1
    python benchmarks/frozen.py filters bo --check before.txt

Groups: filters, agents, ope, bo, optim, service. A line is a SHA-256 of bytes, dtypes and shapes, on one machine, with
one version of JAX. XLA leaves out its optimizations, so that the bits depend on the operations and their order alone.
A line that ends in "state" differs also where the same numbers are kept in another form; its neighbors must not.
"""

import argparse
import functools
import hashlib
import math
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

_FLAGS = ("backend_optimization_level=0", "cpu_use_fusion_emitters=false", "cpu_parallel_codegen_split_count=1")
os.environ["XLA_FLAGS"] = " ".join(f"--xla_{flag}" for flag in _FLAGS)

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from gymnasium.spaces import Box, Discrete  # noqa: E402

import seqdec  # noqa: E402
from seqdec import agents, bo, core, data, envs, filters, likelihoods, models, ope, optim  # noqa: E402
from seqdec.bo import Categorical, Conditional, Integer, Linear, Ordinal, Real, Search  # noqa: E402

Lines = Iterator[tuple[str, Any]]
"""(name of the item, arrays and texts in any tree)"""


def digest(tree: Any) -> str:
    """Of the leaves in their order."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        keyed = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        array = np.asarray(jax.random.key_data(leaf) if keyed else leaf)
        found.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
    return found.hexdigest()[:20]


FILTERS: dict[str, dict[str, Any]] = {
    "ekf": {"initial_std": 0.5, "process_noise": 1e-3},
    "hilofi": {"rank": 7, "process_noise_hidden": 1e-3, "process_noise_last": 2e-3},
    "lofi": {"rank": 7, "initial_std": 0.5, "process_noise": 1e-3},
    "lolofi": {"rank_hidden": 7, "rank_last": 9, "process_noise_hidden": 1e-3},
    "lrkf": {"rank": 7, "initial_std": 0.8, "process_noise": 1e-3},
    "subspace": {"rank": 9},
}


def _life(flt: core.Filter, key: core.Key, params: Any, rows: Any) -> Any:
    def step(belief: Any, at: Any) -> Any:
        x, y, which = at
        belief, info = flt.update(flt.predict(belief), x, y[which], which)
        return flt.update(flt.predict(belief), x, y)[0], info.log_density

    belief, densities = jax.lax.scan(step, flt.init(key, params), rows)
    return belief, (flt.moments(belief, rows[0][0]), flt.mean(belief), densities), flt.sample(key, belief)


def of_filters() -> Lines:
    """Belief, predictive and a sample after 50 updates, half of them of one response, in both precisions."""
    draw = np.random.default_rng(0)
    xs, ys, which = draw.normal(size=(25, 3)), draw.normal(size=(25, 4)), draw.integers(4, size=25)
    for wide in (True, False):
        with jax.enable_x64(wide):
            dtype = jnp.float64 if wide else jnp.float32
            network = models.network(models.MLP(4, (6, 5)), jnp.zeros(3))
            params = jax.tree.map(lambda leaf, dtype=dtype: leaf.astype(dtype), network.init(jax.random.key(1)))
            rows = (jnp.asarray(xs, dtype), jnp.asarray(ys, dtype), jnp.asarray(which))
            for name, settings in FILTERS.items():
                settings = {**settings, "numerics": filters.Numerics(dtype=dtype)}
                flt = getattr(filters, name)(network, likelihoods.gaussian(0.1), **settings)

                life = jax.jit(functools.partial(_life, flt))
                for item, found in zip(
                    ("state", "predictive", "sample"), life(jax.random.key(2), params, rows), strict=True
                ):
                    yield f"{name} float{64 if wide else 32} {item}", found


AGENTS: dict[str, dict[str, Any]] = {
    "auto": {"capacity": 200},
    "ensemble": {"capacity": 200, "members": 3},
    "gp": {"buffer": 30},
    "last_layer_laplace": {"buffer": 10, "inner_steps": 3, "over": "stream"},
    "lolofi": {"rank_hidden": 6, "rank_last": 8},
    "neural_linear": {"capacity": 200, "every": 20},
    "on_vbll": {"buffer": 10, "inner_steps": 3},
    "subspace": {"rank": 40},
    "vbll": {"capacity": 200, "inner_steps": 3},
    **{name: {"rank": 6} for name in ("hilofi", "lofi", "lrkf")},
    **{f"replay_{name}": {"capacity": 200} for name in ("adamw", "koala++", "muon", "sgd")},
}
ON_CANDIDATES = ("auto", "hilofi", "linear", "popularity", "random")
ON_POINTS = ("auto", "gp", "lrkf")


def candidates() -> core.Environment:
    """Blocks of three items with features, users and item numbers."""
    draw = np.random.default_rng(0)
    user, item, row = draw.integers(5, size=700), draw.integers(12, size=700), draw.integers(50, size=700)
    numbers = draw.normal(size=(50, 2)).astype(np.float32)
    reward = np.linspace(-1, 1, 12)[item] + 0.8 * numbers[row, 0] + 0.1 * draw.normal(size=700)
    told = {"features": numbers, "feature_row": row}
    return envs.recommender_log(data.form_blocks(user, item, reward, size=3, keep_short=True, **told))


def points() -> core.Environment:
    """A square; the reward falls with the distance from the context."""

    def reset(key: core.Key, params: Any) -> Any:
        context = jax.random.uniform(key, (2,), minval=-1.0)
        return context, context

    def step(key: core.Key, state: Any, action: Any, params: Any) -> Any:
        context, _ = reset(key, params)
        loss = jnp.sum((action - state) ** 2)
        return context, core.TimeStep(context, -loss, loss, jnp.bool_(False))

    return core.Environment(reset, step, (), Box(-1, 1, (2,)), Box(-1, 1, (2,)), "points")


def of_agents() -> Lines:
    """Actions, rewards, propensities and last state of 200 steps on arms; of some agents on candidates and points."""
    arms, blocks, square = envs.linear(jax.random.normal(jax.random.key(3), (3, 4))), candidates(), points()
    cases = [(name, arms) for name in agents.names() if "contexts" in agents.capabilities(name).spaces]
    cases += [(name, blocks) for name in ON_CANDIDATES] + [(name, square) for name in ON_POINTS]
    for name, env in cases:
        options = dict(AGENTS.get(name, {}))
        if agents.capabilities(name).model and env is arms:
            options["model"] = models.MLP(3, (8,))
        if agents.capabilities(name).model and env is blocks and name != "auto":
            options["model"] = agents.scorer(env, models.Score(dense=3, hidden=(6,)), width=3)
        run = seqdec.run(agents.make(name, env, **options), env, 200, seed=0, progress=False)
        yield f"{name} {env.name} actions", (run.actions, run.rewards, run.propensities)
        yield f"{name} {env.name} state", run.state.agent


def of_ope() -> Lines:
    """Estimates, errors and terms of every registered estimator, and whole tables."""
    draw, rows, k = np.random.default_rng(4), 300, 4
    law, target, predicted = draw.dirichlet(np.ones(k), rows), draw.dirichlet(np.ones(k), rows), draw.random((rows, k))
    law, places = 0.5 * law + 0.5 / k, draw.integers(2, size=(rows, 2))
    action = (draw.random((rows, 1)) > law.cumsum(1)).sum(1).clip(max=k - 1)
    chance, context = law[np.arange(rows), action], draw.normal(size=(rows, 3))
    reward = predicted[np.arange(rows), action] + draw.normal(size=rows)
    log = ope.make_log(action=action, reward=reward, propensity=chance, context=context, num_actions=k)
    slates = ope.make_slate_log(action=places, reward=draw.random((rows, 2)), propensity=np.full((rows, 2), 0.5))
    numbers = ope.make_continuous_log(action=draw.random(rows), reward=reward, density=0.5 + draw.random(rows))
    others = {
        "slate": (slates, draw.dirichlet(np.ones(2), (rows, 2)), draw.random((rows, 2, 2))),
        "kernel": (numbers, np.full(rows, 0.4), np.full(rows, 0.2)),
    }
    others["cascade"] = others["slate"]
    sessions = ope.EpisodeLog(log, np.arange(rows) // 3)
    others["pdis"] = others["sequential"] = (sessions, target, predicted)
    settings: dict[str, dict[str, Any]] = {
        "mips": {"embedding": action // 2, "law": [[1, 0], [1, 0], [0, 1], [0, 1]], "logging": law},
        "balanced_loggers": {"mixture": (chance + 0.25) / 2},
        "weighted_loggers": {"logger": draw.integers(2, size=rows)},
    }
    for name in ope.REGISTRY.names():
        given = ope.evidence(*others.get(name.split("_")[0], (log, target, predicted)), seed=0)
        terms = ope.REGISTRY.make(name, **settings.get(name, {})).terms(given)
        yield name, (terms.value, terms.std_error, terms.columns)
    for kind, one in (("numbers", log), ("clicks", log.replace(reward=(log.reward > 0.5) * 1.0))):
        table = ope.evaluate(one, target, predicted, seed=0, samples=100)
        yield f"table {kind}", (table.iloc[:, :4].to_numpy(), list(table["interval"]))
    yield "overlap", list(map(repr, ope.overlap(log, target)))


QUICK = Search(raw_samples=128, num_restarts=4, steps=15)
BOX = [(-5.0, 10.0), (0.0, 15.0)]
MIXED = {
    "rate": Real(1e-4, 1.0, log=True),
    "layers": Integer(1, 5),
    "width": Ordinal((16, 32, 64, 128)),
    "activation": Categorical(("relu", "tanh", "gelu")),
}
TREE = {
    "kind": Categorical(("linear", "forest")),
    "penalty": Conditional(Real(1e-3, 10.0, log=True), "kind", ("linear",)),
    "trees": Conditional(Integer(10, 200), "kind", ("forest",)),
    "depth": Conditional(Integer(1, 12), "kind", ("forest",)),
}
CASES: dict[str, dict[str, Any]] = {
    "line": {"bounds": [(0.0, 1.0)]},
    "box": {"bounds": BOX},
    "six columns": {"bounds": [(0.0, 1.0)] * 6},
    "25 columns, trust region": {"bounds": [(-1.0, 1.0)] * 25},
    "mixed": {"bounds": MIXED},
    "conditional": {"bounds": TREE},
    "linear constraint": {"bounds": BOX, "constraints": [Linear({0: 1.0, 1: 1.0}, high=9.0)]},
    "function as constraint": {"bounds": MIXED, "constraints": [lambda x: x["rate"] * x["layers"] < 1]},
    "integers": {"bounds": [Integer(-3, 3), Integer(0, 9, log=False)]},
    "finite, noisy": {"bounds": [Integer(0, 4), Categorical(("a", "b"))], "noise_std": 0.3},
    "two objectives": {"bounds": BOX, "objectives": 2, "maximize": [False, True]},
    "three objectives, outcome": {"bounds": BOX, "objectives": 3, "outcome_constraints": 1, "search": QUICK},
    "outcomes": {"bounds": BOX, "outcome_constraints": 2},
    "failures": {"bounds": BOX},
    "pending": {"bounds": BOX, "initial": 4},
    "maximum": {"bounds": BOX, "maximize": True},
    "sparse_gp, ucb": {"bounds": BOX, "surrogate": "sparse_gp", "acquisition": "ucb", "responses": "raw"},
    "hilofi, thompson": {"bounds": MIXED, "surrogate": "hilofi", "acquisition": "thompson", "search": QUICK},
    "lrkf": {"bounds": BOX, "surrogate": "lrkf", "search": QUICK},
    "grid": {"bounds": BOX, "search": Search(grid=True, repeats=True), "responses": "standardized"},
}


def value(name: str, x: Any, number: int) -> tuple[Any, Any]:
    """(value, outcomes) of the function of a case at a point."""
    numbers = [v if isinstance(v, int | float) else 3.0 * len(v) for v in (x.values() if isinstance(x, dict) else x)]
    z = np.array(numbers, float)
    height = float(np.sum((np.log1p(np.abs(z)) - 1) ** 2) + np.cos(3 * z).sum())
    if "noisy" in name:
        height += 0.3 * math.sin(1e3 * number)
    if name == "failures" and z.sum() > 9:
        return math.nan, None
    if name.endswith("objectives, outcome"):
        return (height, -float(z[0]), float(np.sin(z).sum())), [float(z[0] - z[1])]
    if "objectives" in name:
        return (height, -float(z[0])), None
    return height, [float(z[0] - 3), float(z[1] - 12)] if name == "outcomes" else None


def of_bo() -> Lines:
    """Points, three predictions and the recommendation of thirty questions on each of twenty spaces."""
    for name, options in CASES.items():
        optimizer, asked, predicted, waiting = bo.BayesianOptimizer(seed=3, **options), [], [], []
        for number in range(30):
            trial = optimizer.ask()
            asked.append(repr([*trial.x.items()] if isinstance(trial.x, dict) else [*map(float, trial.x)]))
            waiting.append(trial)
            if name != "pending" or len(waiting) == 3:
                for one in reversed(waiting):  # in another order than asked
                    told, outcomes = value(name, one.x, one.number)
                    optimizer.tell(one, told, outcomes=outcomes)
                waiting = []
            if number in (10, 20, 29) and number > optimizer.initial:
                predicted.append(np.ravel(optimizer.predict(trial.x)))
        if optimizer.outputs.objectives == 1 and optimizer.is_feasible:
            predicted.append(repr(optimizer.recommend()[1:4]))
        yield f"{name} asks", asked
        yield f"{name} predictions", predicted


def of_optim() -> Lines:
    """Updates of five steps, and the state after them."""
    draw, shapes = np.random.default_rng(5), {"hidden": (6, 8), "tall": (9, 4), "bias": (8,), "scale": ()}
    drawn = [{name: jnp.asarray(draw.normal(size=one), jnp.float32) for name, one in shapes.items()} for _ in range(6)]
    for name in optim.REGISTRY.names():
        ranked = name in ("alice", "alice_0", "apollo", "fira", "galore")
        made = optim.REGISTRY.make(name, 0.1, **({"rank": 2, "interval": 3} if ranked else {}))
        update = jax.jit(lambda g, s, p, value, made=made: made.update(g, s, p, value=value))
        state, updates = made.init(drawn[0]), []
        for number, gradients in enumerate(drawn[1:], 1):
            found, state = update(gradients, state, drawn[0], jnp.float32(1 / number))
            updates.append(found)
        yield from ((f"{name} updates", updates), (f"{name} state", state))


def of_service() -> Lines:
    """Decisions of a script of calls, rewards late, twice and in batches, and the log but for nonces and checksums."""
    arms, square = core.Spaces(Box(-5, 5, (2,)), Discrete(3)), core.Spaces(Box(-5, 5, (2,)), Box(-1, 1, (2,)))
    sums = {"reward_after": 30.0, "reward_default": 0.0, "rewards": "sum"}
    cases = {"first": ("linear", arms, {}), "auto": ("auto", arms, {}), "box": ("lrkf", square, {})}
    for name, (make, site, told) in (cases | {"sum": ("linear", arms, sums)}).items():
        draw, clock = np.random.default_rng(6), mock.Mock(return_value=10**18)
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(time, "time_ns", clock):
            with seqdec.OnlineAgent(make, site, seed=0, folder=folder, batch_size=4, **told) as service:
                made = [service.decide(draw.normal(size=2)) for _ in range(12)]
                for place in (3, 1, 7, 3):
                    clock.return_value += 10**10
                    service.learn(made[place].token, float(draw.normal()))
                made += service.decide_many(draw.normal(size=(6, 2)))
                service.learn_many([(one.token, float(draw.normal())) for one in made[8:16]])
                if site is arms:
                    service.add_arm()
                    service.remove_arm(1)
                clock.return_value += 10**11
                made += [service.decide(draw.normal(size=2)) for _ in range(6)]
                service.learn_many([(one.token, float(draw.normal())) for one in made[18:]])
                yield f"{name} decisions", [(np.asarray(one.action), one.propensity) for one in made]
                yield f"{name} counts", [f"{key} {value}" for key, value in sorted(service.counts.items())]
                yield f"{name} state", service.state
            with closing(sqlite3.connect(Path(folder) / "decisions.sqlite")) as db:
                for table in ("arms", "decisions", "rewards", "reports"):
                    columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
                    kept = ", ".join(one for one in columns if one not in ("nonce", "checksum"))
                    yield f"{name} log {table}", repr(db.execute(f"SELECT {kept} FROM {table}").fetchall())


GROUPS = {name: globals()[f"of_{name}"] for name in ("filters", "agents", "ope", "bo", "optim", "service")}


def main() -> None:
    """Print, write or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="group", help=", ".join(GROUPS))
    parser.add_argument("--write", type=Path, metavar="FILE")
    parser.add_argument("--check", type=Path, metavar="FILE")
    options = parser.parse_args()
    before = dict(line.split("  ", 1)[::-1] for line in options.check.read_text().splitlines()) if options.check else {}
    chosen, found, wrong = options.groups or list(GROUPS), {}, []
    seqdec.compilation_cache(Path(tempfile.gettempdir(), "seqdec-frozen"))
    for group in chosen:
        for item, tree in GROUPS[group]():
            name = f"{group}: {item}"
            found[name] = digest(tree)
            differs = bool(before) and before.get(name) != found[name]
            wrong += [name] * differs
            print(f"{found[name]}  {name}{'   DIFFERS' * differs}", flush=True)
    missing = [name for name in before if name.split(":")[0] in chosen and name not in found]
    if options.write:
        options.write.write_text("".join(f"{value}  {name}\n" for name, value in found.items()))
    if options.check:
        print(f"{len(found) - len(wrong)} equal, {len(wrong)} differ, {len(missing)} missing {', '.join(missing)}")
        sys.exit(bool(wrong or missing))


if __name__ == "__main__":
    main()
