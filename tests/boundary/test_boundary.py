"""What users hand in: the same answer whatever holds it, or one error of ours that names it and changes nothing."""

import os
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import seqdec
from seqdec import agents, bo, envs, filters, likelihoods, models, ope
from seqdec.boundary.checks import seed_bits
from seqdec.rows import Rows
from tests.boundary.entries import CONDITIONAL, ENTRIES, KEY, KINDS, ROOT, SPARED, STATES, WRONG


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory of the test."""
    monkeypatch.chdir(tmp_path)


def leaves(result: Any) -> list[np.ndarray]:
    def plain(leaf: Any) -> np.ndarray:
        is_key = isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(leaf) if is_key else leaf)

    parts = jax.tree.map(lambda part: vars(part) if isinstance(part, Rows) else part, result)
    return [plain(leaf) for leaf in jax.tree.leaves(parts)]


def assert_same(one: Any, other: Any, what: str) -> None:
    found, wanted = leaves(one), leaves(other)
    assert len(found) == len(wanted), what
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype.isnative and (a.dtype.kind == b.dtype.kind or {a.dtype.kind, b.dtype.kind} == {"i", "u"}), what
        np.testing.assert_array_equal(a, b, err_msg=what)


def is_ours(error: Exception) -> bool:
    """Whether the last line that raised it is one of seqdec's, and says something."""
    raised = Path(os.path.realpath(traceback.extract_tb(error.__traceback__)[-1].filename))
    return raised.is_relative_to(ROOT) and bool(str(error))


def refused(call: Callable[[], Any], says: str, what: str) -> None:
    """By TypeError or ValueError from a line of ours that says this."""
    with pytest.raises((TypeError, ValueError)) as found:
        pytest.fail(f"{what} is taken: {call()}")
    assert is_ours(found.value) and re.search(says, str(found.value), re.DOTALL), (what, found.value)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ENTRIES)
def test_what_means_the_same_has_the_same_answer(name: str, tmp_path: Path) -> None:
    kind, good, take, _ = ENTRIES[name]
    alike = {what: value for what, value in kind.alike(good).items() if what not in SPARED.get(name, ())}
    answers = {}
    for what, value in {"": good, **alike}.items():
        (tmp_path / f"at {what}").mkdir()
        os.chdir(tmp_path / f"at {what}")  # where a path leads is another place each time
        answers[what] = take(value)
        assert [item.name for item in Path().iterdir()] == ["place"] * (kind is KINDS["path"]), what
        assert_same(answers[what], answers[""], what)


@pytest.mark.parametrize("name", ENTRIES)
def test_what_is_wrong_is_refused_by_name(name: str) -> None:
    kind, _, take, says = ENTRIES[name]
    for what, value in kind.wrong.items():
        if what not in SPARED.get(name, ()):
            refused(lambda value=value: take(value), says, what)
    assert not list(Path().iterdir())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [name for name, entry in ENTRIES.items() if entry.kind is KINDS["seed"]])
def test_a_large_seed_is_not_a_small_one(name: str) -> None:
    take = ENTRIES[name].take
    one, other = leaves(take(2**40 + 1)), leaves(take((2**40 + 1) % 2**32))
    assert any((a != b).any() for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**32 - 1])
def test_small_seeds_are_the_keys_of_jax(seed: int) -> None:
    assert_same(jax.random.key(seed_bits(seed)), jax.random.key(seed), "key")


@pytest.mark.parametrize("what", WRONG)
def test_a_single_call_is_refused(what: str) -> None:
    refused(*WRONG[what], what)


@pytest.mark.parametrize(("name", "call"), [(name, call) for name, state in STATES.items() for call in state.calls])
def test_a_wrong_call_changes_nothing(name: str, call: str) -> None:
    made = STATES[name]
    one = made.make()
    before = leaves(made.state(one))
    refused(lambda: made.calls[call](one), ".", call)
    for a, b in zip(before, leaves(made.state(one)), strict=True):
        assert a.tobytes() == b.tobytes()


# States and beliefs of others


def agent_states() -> Any:
    """Agents, and shapes of their states and of those of wider networks."""
    site = envs.linear([[1.0, 0.0], [0.0, 1.0]])
    made = [
        agents.linear(site),
        *(agents.lrkf(site, rank=2, model=models.MLP(2, (width,))) for width in (2, 3)),
        *(agents.adamw(site, model=models.MLP(2, (width,))) for width in (2, 3)),
    ]
    return [(agent, jax.eval_shape(agent.init, KEY)) for agent in made]


def test_the_state_of_another_agent_is_explained() -> None:
    known, x = agent_states(), jnp.ones(2)
    for agent, own in known:
        for state in [*(other for _, other in known if other is not own), None, 3]:
            for call in (
                lambda state, agent=agent: agent.act(KEY, state, x),
                lambda state, agent=agent: agent.update(state, x, jnp.int32(1), jnp.float32(1)),
            ):
                with pytest.raises(TypeError, match=f"state is not one of this agent, {agent.name}"):
                    jax.eval_shape(call, state) if state not in (None, 3) else call(state)
    with pytest.raises(TypeError, match=r"where .*bias.* has shape \(3,\) in place of shape \(2,\): pass what"):
        jax.eval_shape(lambda state: known[1][0].act(KEY, state, x), known[2][1])


def beliefs(width: int) -> Any:
    """(name, filter, shapes of its belief) over a network of one hidden layer."""
    network = models.network(models.MLP(2, (width,)), jnp.zeros(2))
    ranks = {"lofi": ("rank",), "ekf": ()}
    for name, keywords in ranks.items():
        flt = getattr(filters, name)(network, likelihoods.gaussian(0.1), **dict.fromkeys(keywords, 2))
        yield name, flt, jax.eval_shape(lambda key, flt=flt: flt.init(key, network.init(key)), KEY)


def test_the_belief_of_another_filter_is_explained() -> None:
    own, x = list(beliefs(3)), jnp.ones(2)
    for name, flt, _ in own:
        functions = {
            "update": lambda belief, flt=flt: flt.update(belief, x, x),
            "moments": lambda belief, flt=flt: flt.moments(belief, x),
            "marginals": lambda belief, flt=flt: flt.marginals(belief)(x),
            "update_batch": lambda belief, flt=flt: flt.update_batch(belief, x[None], x[None]),
        }
        for other, _, belief in [*(entry for entry in own if entry[0] != name), *beliefs(4)]:
            drawn = {} if other == name else {"sample": lambda belief, flt=flt: flt.sample(KEY, belief)}
            for function in (functions | drawn).values():
                with pytest.raises(TypeError, match=f"belief is not one of this filter, {name}: got Belief, where"):
                    jax.eval_shape(function, belief)
    flt, network = own[0][1], models.network(models.MLP(2, (4,)), jnp.zeros(2))
    with pytest.raises(TypeError, match=r"params are not those of this network: .*\(4,\) in place of .*\(3,\)"):
        flt.init(KEY, network.init(KEY))
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), network.init(KEY))
    with pytest.raises(TypeError, match=r"are bfloat16: pass numerics=Numerics\(dtype=jnp.float32\)"):
        filters.ekf(network, likelihoods.gaussian(0.1)).init(KEY, half)


# By name

NAMED: dict[str, Any] = {"action": ["b", "a", "b"], "reward": [0.5, 1.0, 0.25], "propensity": [0.5] * 3}
BY_NAME = {"b": [1.0, 0.0, 1.0], "a": [0.0, 1.0, 0.0]}


@pytest.mark.parametrize("made", [pd.DataFrame, pa.table], ids=["pandas", "Arrow"])
def test_columns_and_rows_that_are_names_of_actions_count_by_name(made: Any) -> None:
    log = ope.make_log(**NAMED)
    by_place = np.array([BY_NAME["a"], BY_NAME["b"]]).T
    for function in (ope.check_target, ope.check_predicted):
        assert_same(function(log, made(BY_NAME)), function(log, by_place), "columns")
        for names in ("xy", "bc"):
            with pytest.raises(ValueError, match=f"a column for each action, 'a', 'b'; got '{names[0]}', '{names[1]}'"):
                function(log, made(dict(zip(names, by_place.T, strict=True))))
    mask = ope.make_log(**NAMED, mask=made({"b": [True] * 3, "a": [False, True, False]})).mask
    np.testing.assert_array_equal(mask, [[False, True], [True, True], [False, True]])
    rows = pd.DataFrame({"price": [2.0, 1.0]}, index=["b", "a"])
    np.testing.assert_array_equal(ope.make_log(**NAMED, action_features=rows).action_features[0], [[1], [2]])


def test_a_choice_that_is_a_tuple_is_not_a_point() -> None:
    layers = bo.space_from([bo.Categorical(((8,), (8, 8))), bo.Categorical(((1,), (2,)))])
    assert layers.listed([(8, 8), (2,)]) is None
    assert layers.listed([[(8, 8), (2,)], [(8,), (1,)]]) == [[(8, 8), (2,)], [(8,), (1,)]]


def test_a_table_of_trials_starts_another_search_inactive_parameters_included() -> None:
    given: Any = {"seed": 0, "initial": 100, "progress": False}
    first = seqdec.minimize(lambda x: len(x), CONDITIONAL, n_calls=8, **given)
    table = first.optimizer.trials_dataframe()
    assert 0 < np.sum(table["extra"].isna()) < 8
    for x0 in (table[[*CONDITIONAL]], pa.Table.from_pandas(table[[*CONDITIONAL]])):
        again = seqdec.minimize(lambda x: 1.0, CONDITIONAL, n_calls=1, x0=x0, y0=table["value"], **given)
        assert again.x_iters[:8] == first.x_iters and again.func_vals[:8].tolist() == first.func_vals.tolist()
    with pytest.raises(ValueError, match="unknown parameter 'number'"):
        seqdec.minimize(lambda x: 1.0, CONDITIONAL, n_calls=9, x0=table, **given)
