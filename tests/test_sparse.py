"""Sparse arrays of SciPy as contexts: the same decisions and logs as with dense ones, in less space."""

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from gymnasium import spaces
from scipy import sparse

import seqdec
from seqdec import ope
from seqdec.boundary.checks import dense
from seqdec.core import Spaces
from seqdec.features import Encoder
from seqdec.service import Catalog, contexts, read_history, read_log

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "benchmarks")]

import online_exceptions as exceptions  # noqa: E402  # pyright: ignore[reportMissingImports]

WIDTH = 400
SITE = Spaces(spaces.Box(-5, 5, (WIDTH,)), spaces.Discrete(3))
ROWS = np.zeros((6, WIDTH))
ROWS[np.arange(6), 7 * np.arange(6)] = np.arange(1, 7) / 2
KINDS: Any = [sparse.csr_matrix, sparse.csr_array, sparse.csc_matrix, sparse.coo_array]


def service(folder: Path | None = None, site: Any = SITE, make: Any = exceptions.means) -> seqdec.OnlineAgent:
    return seqdec.OnlineAgent(make, site, seed=0, folder=folder)


def logged(one: seqdec.OnlineAgent, site: Any = SITE) -> list[list[float]]:
    """The contexts of the log."""
    found = one._store.database.connection.execute("SELECT context FROM decisions ORDER BY number").fetchall()
    return contexts.Contexts(site.observation_space).unpack([context for (context,) in found]).tolist()


@pytest.mark.parametrize("kind", KINDS[:3], ids=lambda kind: kind.__name__)
def test_contexts_of_a_service(kind: Any) -> None:
    stacked, row = kind(ROWS), kind(ROWS[:1])
    with service() as plain, service() as one:
        for agent, many, single, several in ((plain, ROWS, ROWS[0], list(ROWS)), (one, stacked, row, [row, row])):
            first = agent.decide(single)
            agent.learn_many([(decision.token, 1.0) for decision in agent.decide_many(many)])
            assert agent.learn(first.token, 1.0) == "learned"
            agent.decide_many(several[:2])
        assert exceptions.bits(one) == exceptions.bits(plain)
        assert logged(one)[:7] == logged(plain)[:7] == [ROWS[0].tolist(), *ROWS.tolist()]
        log, expected = one.log(), plain.log()
        np.testing.assert_array_equal(log.context, expected.context)


@pytest.mark.parametrize("kind", KINDS[:2], ids=lambda kind: kind.__name__)
def test_shapes_that_are_refused(kind: Any) -> None:
    with service() as one:
        for wrong in (kind(ROWS), kind(ROWS.T), kind((1, WIDTH + 1)), kind((10**7, 10**7))):
            shape = wrong.shape if wrong.shape[0] > 1 else (WIDTH + 1,)
            with pytest.raises(ValueError, match=rf"context must have shape \({WIDTH},\).*got .*shape \({shape[0]},"):
                one.decide(wrong)
        with pytest.raises(ValueError, match=rf"must have shape \(6, {WIDTH}\).*got shape \(6, {WIDTH - 1}\)"):
            one.decide_many(kind(ROWS[:, 1:]))
        with pytest.raises(ValueError, match="contexts must hold sparse rows of equal lengths; got 400, 399"):
            one.decide_many([kind(ROWS[:1]), kind(ROWS[:1, 1:])])
        with pytest.raises(ValueError, match="finite numbers"):
            one.decide(kind(np.where(ROWS[:1], np.nan, 0)))
        assert one.counts["decisions"] == 0


def test_agents_and_logs() -> None:
    stacked, row = sparse.csr_array(ROWS), sparse.csr_array(ROWS[:1])
    agent = seqdec.agents.make("random", SITE)
    compiled, key = seqdec.compiled(agent), jax.random.key(0)
    state = agent.init(key)
    for each in (agent, compiled):
        assert each.act(key, state, row).value == each.act(key, state, ROWS[0]).value
        assert not each.update(state, row, 1, 1.0)[1].rejected
    given: Any = {"action": [0] * 6, "reward": ROWS.sum(1), "propensity": [1.0] * 6}
    log = ope.make_log(**given, context=stacked)
    np.testing.assert_array_equal(log.context, ROWS)
    with service() as one, service() as other:
        one.warm_start(log)
        other.warm_start(ope.make_log(**given, context=ROWS))
        assert exceptions.bits(one) == exceptions.bits(other)
    pandas = pytest.importorskip("pandas")
    names = [f"context_{place}" for place in range(5)]
    table = pandas.DataFrame.sparse.from_spmatrix(stacked[:, :5], columns=names).assign(**given)
    np.testing.assert_array_equal(ope.Log.from_pandas(table).context, ROWS[:, :5])
    np.testing.assert_array_equal(ope.Log.from_pandas(table, context=names).context, ROWS[:, :5])


def test_items_of_a_catalog() -> None:
    site = Catalog(spaces.Box(-5, 5, (WIDTH,)), spaces.Box(-5, 5, (WIDTH,)))
    with service(site=site, make=exceptions.rows) as one:
        one.add_items({"a": sparse.csr_array(ROWS[1:2]), "b": ROWS[2]})
        np.testing.assert_array_equal(one._actions.inventory.features, ROWS[1:3].astype(np.float32))


def test_a_pipeline_whose_features_are_sparse(tmp_path: Path) -> None:
    compose, preprocessing = pytest.importorskip("sklearn.compose"), pytest.importorskip("sklearn.preprocessing")
    rows = [{"city": f"c{number % 150}"} for number in range(300)]
    import pandas as pd

    one_hot = compose.make_column_transformer((preprocessing.OneHotEncoder(handle_unknown="ignore"), ["city"]))
    encoder = Encoder.of(one_hot.fit(pd.DataFrame(rows)), ["city"])
    assert sparse.issparse(one_hot.transform(pd.DataFrame(rows)))
    site = Spaces(encoder.space, spaces.Discrete(3))
    with seqdec.OnlineAgent(exceptions.means, site, seed=0, encoder=encoder, folder=tmp_path) as one:
        one.decide(rows[3])
        one.decide_many(rows[4:6])
        assert np.argmax(logged(one, site), axis=1).tolist() == np.argmax(encoder.transform(rows[3:6]), axis=1).tolist()


def test_the_log_is_compact_where_nearly_all_is_zero(tmp_path: Path) -> None:
    full = np.random.default_rng(0).normal(size=(2, WIDTH)).clip(-5, 5)
    with service(tmp_path) as one:
        made = one.decide_many(np.concatenate([ROWS, full]))
        one.learn_many([(decision.token, 1.0) for decision in made])
        lengths = [
            len(context)
            for (context,) in one._store.database.connection.execute("SELECT context FROM decisions ORDER BY number")
        ]
        assert max(lengths[:6]) < 100 and lengths[6:] == [4 * WIDTH] * 2
        expected = np.concatenate([ROWS, full]).astype(np.float32)
        np.testing.assert_array_equal(logged(one), expected)
        bits = exceptions.bits(one)
    (tmp_path / "state.safetensors").unlink()
    with service(tmp_path) as again:
        assert exceptions.bits(again) == bits
    np.testing.assert_array_equal(read_log(tmp_path).context, expected)
    np.testing.assert_array_equal(read_history(tmp_path)[f"context_{WIDTH - 1}"], expected[:, -1])


def test_what_is_not_sparse_stays() -> None:
    for value in ([1, 2], ROWS, (), "text", None, [sparse.csr_array(ROWS), 1]):
        assert dense("x", value) is value
