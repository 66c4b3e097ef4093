"""What users see: `repr` of a few lines, HTML with a table, and the fields of named tuples."""

import ast
import importlib
import re
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from gymnasium import spaces

import seqdec
from seqdec import agents, bo, core, envs, introspection
from tests.test_packaging import MODULES
from tests.toys import toy_agent, toy_env

SITE = core.Spaces(spaces.Box(-5, 5, (4,)), spaces.Discrete(3))
PUBLIC = [value for name in seqdec.__all__ if isinstance(value := getattr(seqdec, name), ModuleType)]


def a_run() -> seqdec.Run:
    return seqdec.run(toy_agent(), toy_env(), 20, seed=3, num_seeds=2, diagnostics=("observation",), progress=False)


def an_optimizer(**options: Any) -> bo.BayesianOptimizer:
    return bo.BayesianOptimizer([(0.0, 1.0)] * 40, seed=5, **options)


def a_log() -> seqdec.ope.Log:
    return seqdec.ope.make_log(action=[0, 1, 2], reward=[0.0, 1.0, np.pi], propensity=[0.5, 0.25, 1], num_actions=4)


SHOWN = {
    "agent": (lambda: agents.lrkf(SITE, rank=7), ["lrkf", "Discrete(3)", "(4,)", "rank=7", "estimated"]),
    "agent without settings": (toy_agent, ["toy", "propensities"]),
    "environment": (lambda: envs.linear(), ["linear", "Box", "Discrete(5)", "bytes"]),
    "large environment": (lambda: envs.digits(), ["digits", "(64,)", "Discrete(10)", "2 arrays, 0.1 MB"]),
    "run": (a_run, ["toy", "2 seeds", "20 steps", "observation", "compilation", "reward"]),
    "log": (a_log, ["3 decisions", "4 actions", "3.142", "0.25 to 1"]),
    "optimizer": (an_optimizer, ["40 parameters", "gp", "log_expected_improvement", "seed 5", "0 trials", "minimum"]),
    "optimizer of two objectives": (
        lambda: an_optimizer(objectives=2, maximize=(True, False), outcome_constraints=1),
        ["maximum, minimum", "outcome constraints: 1", "hypervolume"],
    ),
    "service": (
        lambda: seqdec.OnlineAgent(agents.linear, SITE, seed=8, capacity=4),
        ["linear", "memory", "3 arms of 4", "0 decisions", "seed 8", "half_life"],
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", SHOWN)
def test_a_repr_has_a_few_lines_with_name_sizes_settings_and_counts(kind: str) -> None:
    make, words = SHOWN[kind]
    shown = repr(make())
    assert 1 <= len(shown.splitlines()) <= 5 and max(map(len, shown.splitlines())) <= 220, shown
    for word in words:
        assert word in shown, shown


def test_one_of_a_kind_is_singular() -> None:
    one = core.Spaces(spaces.Box(-1, 1, (1,)), spaces.Discrete(1))
    table = {"context_0": [0.5], "action": [0], "reward": [1.0], "propensity": [1.0]}
    encoder = seqdec.features.Encoder({"age": seqdec.features.Bool()})
    service = seqdec.OnlineAgent("random", one, seed=0, capacity=1)
    service.learn(service.decide(np.ones(1)).token, 1.0)
    shown = [
        repr(seqdec.run(toy_agent(), toy_env(), 1, seed=3, progress=False)._replace(rejected=np.ones((1, 1)))),
        repr(seqdec.ope.Log.from_pandas(pd.DataFrame(table))),
        repr(bo.BayesianOptimizer([(0.0, 1.0)], seed=0)),
        repr(encoder),
        repr(service),
        repr(service.explain(np.ones(1))),
        introspection.sized(np.zeros(1)),
    ]
    assert all(re.search(r"\b1 [a-z]+", text) for text in shown), shown
    assert not re.findall(r"(?<![.,])\b1 [a-z]+s\b", "\n".join(shown))


@pytest.mark.extended
def test_counts_follow_what_is_told() -> None:
    optimizer = bo.BayesianOptimizer({"rate": bo.Real(0.1, 1.0)}, seed=0)
    for value in (0.5, 0.25, None):
        trial = optimizer.ask()
        if value is not None:
            optimizer.tell(trial, value)
    optimizer.tell({"rate": 0.5}, failed=True)
    assert "4 trials: 2 complete, 1 failed, 1 pending" in repr(optimizer) and "best value 0.25 at {'rate': 0." in repr(
        optimizer
    )
    service = seqdec.OnlineAgent(agents.linear, SITE, seed=8)
    service.learn(service.decide(np.ones(4)).token, 1.0)
    assert "1 decision and 1 reward in the log; in this process 1 learned" in repr(service)
    service.close()
    assert ", closed" in repr(service)


def test_a_repr_knows_traced_and_missing_parts() -> None:
    def inside(x: jax.Array) -> jax.Array:
        assert "bytes" in repr(toy_env()._replace(params=x))
        return x

    jax.jit(inside)(jnp.zeros(3))
    run = a_run()
    unknown = run._replace(regret=np.full_like(run.regret, np.nan), rewards=np.full_like(run.rewards, np.nan))
    assert "reward per step: unknown; regret: unknown" in repr(unknown)


def test_tables_in_notebooks() -> None:
    shown = a_run()._repr_html_()
    assert shown.count("<tr") == 3 and "total reward" in shown and "&#x27;" not in shown.partition("<table")[2]
    assert a_log()._repr_html_().count("<tr") == 4

    def fun(x: Any) -> Any:
        return x[0] ** 2

    result = seqdec.minimize(fun, [(-1, 1)], n_calls=2, seed=0, progress=False)
    assert "<th>x[0]</th>" in result._repr_html_() and "<th>fun</th>" in result._repr_html_()
    named = seqdec.minimize(
        lambda x: (x["rate"], 1 - x["rate"]), {"rate": (0.0, 1.0)}, n_calls=2, objectives=2, seed=0, progress=False
    )
    assert named._repr_html_().count("<tr") == 3 and "<th>fun[1]</th>" in named._repr_html_()


def test_a_sampler_names_its_settings() -> None:
    pytest.importorskip("optuna", reason="Optuna is not installed")
    module = importlib.import_module("seqdec.integrations.optuna")
    shown = repr(module.Sampler(seed=3, surrogate="hilofi"))
    assert "seed=3" in shown and "surrogate='hilofi'" in shown and len(shown.splitlines()) <= 5


# Fields


def literals(tree: ast.Module) -> dict[tuple[str, str], bool]:
    """(class, field) -> whether a string is below it, of the named tuples of a source."""
    return {
        (kind.name, node.target.id): isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        for kind in tree.body
        if isinstance(kind, ast.ClassDef) and "NamedTuple" in map(ast.unparse, kind.bases)
        for node, after in zip(kind.body, [*kind.body[1:], None], strict=True)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def test_every_field_of_a_public_named_tuple_is_described() -> None:
    kinds = {
        value
        for module in PUBLIC
        for name, value in vars(module).items()
        if not name.startswith("_") and isinstance(value, type) and hasattr(value, "_fields")
        if value.__module__.startswith("seqdec")
    }
    assert len(kinds) > 40
    for kind in kinds:
        source = ast.parse(MODULES[kind.__module__].read_text(encoding="utf-8"))
        missing = [field for (name, field), told in literals(source).items() if name == kind.__name__ and not told]
        assert missing == [], kind


def test_all_documented_packages_are_attributes() -> None:
    for name in ("data", "executors", "results", "runtime", "service", "states"):
        assert getattr(seqdec, name) is importlib.import_module(f"seqdec.{name}")
