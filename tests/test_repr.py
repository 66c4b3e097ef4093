"""What users see: `repr` of a few lines, HTML with a table."""

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from gymnasium import spaces

import seqdec
from seqdec import agents, bo, core, envs
from tests.toys import toy_agent, toy_env

SITE = core.Spaces(spaces.Box(-5, 5, (4,)), spaces.Discrete(3))


def a_run(steps: int = 20, **options: Any) -> seqdec.Run:
    return seqdec.run(toy_agent(), toy_env(), steps, seed=3, progress=False, **options)


def a_log(rows: int = 3) -> seqdec.ope.Log:
    columns = {"action": [0, 1, 2], "reward": [0.0, 1.0, np.pi], "propensity": [0.5, 0.25, 1]}
    return seqdec.ope.make_log(**{name: values[:rows] for name, values in columns.items()}, num_actions=4)


def an_optimizer(columns: int = 40, **options: Any) -> bo.BayesianOptimizer:
    return bo.BayesianOptimizer([(0.0, 1.0)] * columns, seed=5, **options)


def told() -> bo.BayesianOptimizer:
    optimizer = bo.BayesianOptimizer({"rate": bo.Real(0.1, 1.0)}, seed=0)
    for value in (0.5, 0.25):
        optimizer.tell(optimizer.ask(), value)
    optimizer.ask()
    optimizer.tell({"rate": 0.5}, failed=True)
    return optimizer


def a_service(learns: bool = False) -> seqdec.OnlineAgent:
    service = seqdec.OnlineAgent(agents.linear, SITE, seed=8, capacity=4)
    if learns:
        service.learn(service.decide(np.ones(4)).token, 1.0)
        service.close()
    return service


SHOWN: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "agent": (lambda: agents.lrkf(SITE, rank=7), ["lrkf", "Discrete(3)", "(4,)", "rank=7"]),
    "environment": (envs.linear, ["linear", "Box", "Discrete(5)", "bytes"]),
    "large environment": (envs.digits, ["digits", "(64,)", "Discrete(10)", "2 arrays, 0.1 MB"]),
    "run": (lambda: a_run(num_seeds=2), ["toy", "2 seeds", "20 steps", "compilation", "reward"]),
    "run of one": (lambda: a_run(1), ["1 seed", "1 step"]),
    "run of unknown rewards": (
        lambda: a_run().replace(rewards=np.full((1, 20), np.nan)),
        ["reward per step: unknown"],
    ),
    "log": (a_log, ["3 decisions", "4 actions", "3.142", "0.25 to 1"]),
    "log of one": (lambda: a_log(1), ["1 decision"]),
    "optimizer": (an_optimizer, ["40 parameters", "gp", "log_expected_improvement", "seed 5", "0 trials", "minimum"]),
    "optimizer of two objectives": (
        lambda: an_optimizer(objectives=2, maximize=(True, False), outcome_constraints=1),
        ["maximum, minimum", "outcome constraints: 1", "hypervolume"],
    ),
    "optimizer that was told": (
        told,
        ["4 trials: 2 complete, 1 failed, 1 pending", "best value 0.25 at {'rate': 0."],
    ),
    "service": (a_service, ["linear", "memory", "3 arms of 4", "0 decisions", "seed 8", "half_life"]),
    "service that learned": (
        lambda: a_service(True),
        ["1 decision and 1 reward in the log; in this process 1 learned", ", closed"],
    ),
}


def test_estimates_are_shown_in_eighty_columns() -> None:
    with pytest.warns(UserWarning, match="no support"):
        table = seqdec.ope.evaluate(a_log(), "3", seed=0)
    shown = repr(table)
    assert max(map(len, shown.splitlines())) <= 80 and " high" in shown and "100.0% of the decisions from" in shown
    assert repr(table[["value"]]) == repr(pd.DataFrame(table[["value"]]))


def test_functions_are_shown_by_name() -> None:
    assert repr(seqdec.policies.greedy()) == "Acquisition(score=greedy.score, needs='mean', law=None)"
    network = seqdec.models.network(seqdec.models.MLP(1, (4,)), jnp.zeros(1))
    likelihood = seqdec.likelihoods.gaussian(0.1)
    for one in (network, likelihood, seqdec.filters.hilofi(network, likelihood, rank=2)):
        assert " at 0x" not in repr(one) and f"{type(one).__name__}(" in repr(one)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", SHOWN)
def test_a_repr_has_a_few_lines_with_name_sizes_settings_and_counts(kind: str) -> None:
    make, words = SHOWN[kind]
    shown = repr(make())
    assert 1 <= len(shown.splitlines()) <= 5 and max(map(len, shown.splitlines())) <= 220, shown
    assert [word for word in words if word not in shown] == [], shown
    assert not re.findall(r"(?<![.,])\b1 [a-z]+s\b", shown), shown


def test_a_repr_knows_traced_parts() -> None:
    def inside(x: jax.Array) -> jax.Array:
        assert "bytes" in repr(toy_env()._replace(params=x))
        return x

    jax.jit(inside)(jnp.zeros(3))


def test_tables_in_notebooks() -> None:
    shown = a_run(num_seeds=2)._repr_html_()
    assert shown.count("<tr") == 3 and "total reward" in shown and "&#x27;" not in shown.partition("<table")[2]
    assert a_log()._repr_html_().count("<tr") == 4
    for fun, objectives in ((lambda x: x["rate"], 1), (lambda x: (x["rate"], 1 - x["rate"]), 2)):
        found = seqdec.minimize(fun, {"rate": (0.0, 1.0)}, n_calls=2, objectives=objectives, seed=0, progress=False)
        assert f"<th>fun{'[1]' * (objectives == 2)}</th>" in found._repr_html_()
