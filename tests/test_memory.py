"""Memories: what they keep, and that they keep it without bias."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqdec import memory


def filled_with(kind, number, seed=0):
    """A memory after `number` rows 1, 2, ..., whose places come from `seed`."""

    def add(state, value):
        key = jax.random.fold_in(jax.random.key(seed), value)
        return kind.add(key, state, {"value": value, "pair": jnp.stack([value, -value])}, True), None

    start = kind.init({"value": jnp.int32(0), "pair": jnp.zeros(2, jnp.int32)})
    return jax.lax.scan(add, start, jnp.arange(1, number + 1))[0]


@pytest.mark.parametrize("make", [memory.reservoir, memory.last])
def test_everything_is_kept_up_to_the_capacity_and_a_rejected_row_changes_nothing(make):
    kind, state = make(10), filled_with(make(10), 7)
    np.testing.assert_array_equal(state.rows["value"], [1, 2, 3, 4, 5, 6, 7, 0, 0, 0])
    np.testing.assert_array_equal(state.rows["pair"][:, 1], -state.rows["value"])
    assert memory.filled(state) == state.seen == 7
    row = {"value": jnp.int32(99), "pair": jnp.zeros(2, jnp.int32)}
    after = kind.add(jax.random.key(1), state, row, jnp.bool_(False))
    jax.tree.map(np.testing.assert_array_equal, after, state)


def test_last_keeps_the_newest_rows():
    assert sorted(filled_with(memory.last(4), 10).rows["value"].tolist()) == [7, 8, 9, 10]


def test_a_reservoir_keeps_every_row_with_the_same_probability():
    kind, number, runs = memory.reservoir(5), 20, 4000
    kept = jax.vmap(lambda seed: filled_with(kind, number, seed).rows["value"])(jnp.arange(runs))
    shares = np.bincount(np.asarray(kept).ravel(), minlength=number + 1)[1:] / runs
    assert all(len(set(row)) == 5 for row in np.asarray(kept[:50]).tolist())
    # Each share is 1/4 with standard error 0.007.
    np.testing.assert_allclose(shares, 5 / number, atol=0.03)


def test_rows_are_sampled_by_numbers_without_bias():
    kind, number, runs = memory.reservoir(5), 20, 4000

    def add(state, at):
        values, uniform = at
        return memory.sampled(state, values, uniform, True), None

    @jax.jit
    @jax.vmap
    def kept(key):
        values = jnp.arange(1, number + 1).reshape(-1, 2)  # two at a time
        uniform, drawn = (jax.random.uniform(each, (number // 2, 2, 2)) for each in jax.random.split(key))
        state = jax.lax.scan(add, kind.init(jnp.int32(0)), (values, uniform))[0]
        return state.rows, state.seen, memory.rows_at(state, drawn.ravel())

    rows, seen, drawn = (np.asarray(part) for part in kept(jax.random.split(jax.random.key(0), runs)))
    assert np.all(seen == number) and all(len(set(row)) == 5 for row in rows[:50].tolist())
    for values in (rows, drawn):  # each share is 1/20
        shares = np.bincount(values.ravel(), minlength=number + 1)[1:] / values.size
        np.testing.assert_allclose(shares, 1 / number, atol=0.006)
    state = memory.MemoryState(jnp.asarray(rows[0]), jnp.asarray(seen[0]))
    rejected = memory.sampled(state, jnp.zeros(2, int), jnp.zeros((2, 2)), False)
    np.testing.assert_array_equal(rejected.rows, rows[0])


def test_draws_are_uniform_over_the_rows_in_use():
    kind = memory.last(8)
    drawn = kind.draw(jax.random.key(0), filled_with(kind, 3), 30_000)
    counts = np.bincount(drawn["value"], minlength=4)
    assert counts[0] == 0
    np.testing.assert_allclose(counts[1:] / 30_000, 1 / 3, atol=0.015)


@pytest.mark.parametrize(("capacity", "error"), [(0, ValueError), (2.5, TypeError), (True, TypeError)])
def test_wrong_capacities_are_refused(capacity, error):
    with pytest.raises(error, match="capacity"):
        memory.reservoir(capacity)
