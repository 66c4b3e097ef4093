"""States on disk: equal to the bit after a round trip, refused where damaged or of another shape."""

import os
import random
from collections import OrderedDict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest

import seqdec
from seqdec import envs, filters, likelihoods, models, persistence, states
from tests.toys import toy_agent


def bits(tree: Any) -> list[tuple[str, bytes]]:
    """Dtype and bytes of every leaf."""
    return [(str(np.shape(leaf)), states.as_array("", leaf).tobytes()) for leaf in jax.tree.leaves(tree)]


def mixed() -> dict[str, Any]:
    """A tree of every kind of leaf."""
    return {
        "half": jnp.arange(5, dtype=jnp.bfloat16),
        "key": jax.random.key(3),
        "keys": jax.random.split(jax.random.key(1, impl="rbg"), 3),
        "empty": jnp.zeros((0, 3)),
        "flag": jnp.array(True),
        "number": 3,
        "double": np.float64(0.1),
        "nan": jnp.array([jnp.nan, jnp.inf, -0.0]),
    }


def test_every_kind_of_leaf_comes_back_to_the_bit(tmp_path: Path) -> None:
    states.save(tmp_path / "deep" / "state", mixed())
    loaded = states.load(tmp_path / "deep" / "state", mixed())
    assert bits(loaded) == bits(mixed()) and loaded["key"].dtype == mixed()["key"].dtype
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["state"]


def test_an_agent_goes_on_as_if_it_had_not_been_saved(tmp_path: Path) -> None:
    env = envs.linear()
    agent = seqdec.compiled(seqdec.agents.make("replay_adamw", env), optimize=False)
    env.observation_space.seed(0)
    x, action = env.observation_space.sample(), jnp.int32(1)
    state, _ = agent.update(agent.init(jax.random.key(0)), x, action, jnp.float32(1))
    seqdec.save(tmp_path / "state", state, agent)
    loaded = seqdec.load(tmp_path / "state", agent)
    assert bits(loaded) == bits(state)
    ours, theirs = (agent.update(one, x, action, jnp.float32(0))[0] for one in (loaded, state))
    assert bits(ours) == bits(theirs)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    assert (tmp_path / "state").stat().st_size < 1.1 * size + 20_000
    manifest = seqdec.inspect(tmp_path / "state")
    assert manifest["agent"] == agent.name and manifest["versions"]["jax"] == jax.__version__
    assert manifest["settings"] == persistence.as_json(dict(agent.settings))


def test_beliefs_and_optimizer_states(tmp_path: Path) -> None:
    network = models.network(models.MLP(2, (4,)), jnp.zeros(3))
    params = network.init(jax.random.key(0))
    belief = filters.ekf(network, likelihoods.gaussian(0.1)).init(jax.random.key(1), params)
    state = optax.adamw(1e-3).init(params)
    for tree in (belief, state, jax.random.key(5)):
        states.save(tmp_path / "tree", tree)
        assert bits(states.load(tmp_path / "tree", jax.eval_shape(lambda tree=tree: tree))) == bits(tree)


def test_another_shape_is_refused_with_the_remedy(tmp_path: Path) -> None:
    two, three = (toy_agent(settings={"rank": rank})._replace(init=lambda key, n=rank: jnp.zeros(n)) for rank in (2, 3))
    states.save(tmp_path / "state", jnp.zeros(2), two)
    with pytest.raises(ValueError, match=r"of shape \(2,\), where .*\(3,\) is expected.*toy with .*'rank': 2"):
        states.load(tmp_path / "state", three)
    with pytest.raises(ValueError, match=r"it has a leaf .*which is not expected|it has no leaf"):
        states.load(tmp_path / "state", {"mean": jnp.zeros(3)})
    with pytest.raises(FileNotFoundError, match="no such file"):
        states.load(tmp_path / "nothing", two)


def test_any_flipped_or_missing_byte_is_refused(tmp_path: Path) -> None:
    file, rng = tmp_path / "state", random.Random(0)
    states.save(file, mixed())
    whole = file.read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << rng.randrange(8)
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged"):
            states.load(file, mixed())
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="damaged"):
            states.load(file, mixed())


@pytest.mark.extended
def test_a_table_is_equal_or_refused(tmp_path: Path) -> None:
    """Parquet has bytes that do not matter; a flip of any other is refused."""
    file, rng = tmp_path / "table.parquet", random.Random(0)
    table = pd.DataFrame({"a": [1, 2], "b": [1.0, np.nan], "c": ["x", None], "d": pd.to_datetime(["2020-01-01"] * 2)})
    persistence.write_table(file, table, {"format": "x 1"})
    whole, refused = file.read_bytes(), 0
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << rng.randrange(8)
        file.write_bytes(damaged)
        try:
            found, manifest = persistence.read_table(file)
        except ValueError:
            refused += 1
        else:
            assert found.equals(table) and manifest == {"format": "x 1"}
    assert refused > 0


def test_newer_formats_and_foreign_files_are_refused(tmp_path: Path) -> None:
    persistence.write_arrays(tmp_path / "new", {}, {"format": "seqdec state 2", "versions": {"seqdec": "9.0"}})
    with pytest.raises(
        ValueError, match=r"'seqdec state 2', not 'seqdec state 1'; read it with the seqdec of version 9\.0"
    ):
        states.load(tmp_path / "new", {})
    persistence.write_arrays(tmp_path / "other", {}, {"format": "seqdec optimizer 3"})
    with pytest.raises(ValueError, match="is not a 'seqdec state 1': its manifest says 'seqdec optimizer 3'"):
        states.load(tmp_path / "other", {})


def test_files_have_the_mode_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        states.save(tmp_path / "state", mixed())
    finally:
        os.umask(before)
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o640


def test_what_cannot_be_saved_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states.save(tmp_path / "state", {"a": jnp.ones(3)})

    def full(tensors: Any, path: Path, metadata: Any) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.numpy.save_file", full)
    with pytest.raises(OSError, match=r"cannot write .*state: No space left on device"):
        states.save(tmp_path / "state", {"a": jnp.zeros(3)})
    with pytest.raises(TypeError, match=r"the leaf name must be an array, a random key or a number; got str"):
        states.save(tmp_path / "state", {"name": "abc"})
    assert states.load(tmp_path / "state", {"a": jnp.ones(3)})["a"].tolist() == [1, 1, 1]
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


ONE, TWO = jnp.ones(2), jnp.zeros(2)
ODD_KEYS: dict[str, Any] = {
    "a dot": {"a.b": ONE, "a": {"b": TWO}},
    "dots in both": {"a.b": {"c": ONE}, "a": {"b.c": TWO}},
    "nothing": {"": ONE, "state": TWO},
    "an integer and its text": OrderedDict([(1, ONE), ("1", TWO)]),
    "brackets": {"['a']": ONE, "a": TWO, "a.b": ONE, "['a'].b": TWO},
    "the name that the file reserves": {"__metadata__": ONE},
    "halves of a surrogate pair": {chr(0xD800): ONE, chr(0xDC00): TWO},
    "slashes and other letters": {"a/b": ONE, "ä☃": TWO, "\0": ONE},
    "tuples": {(1, 2): ONE, (1, 3): TWO},
    "bytes": {b"a": ONE},
    "integers": {0: ONE, 10: TWO, 2: ONE},
    "another order of bytes": {"a": np.arange(3, dtype=">f8"), "b": np.arange(3, dtype=">i2")},
}


@pytest.mark.parametrize("kind", ODD_KEYS)
def test_every_key_keeps_its_leaf(kind: str, tmp_path: Path) -> None:
    states.save(tmp_path / "state", ODD_KEYS[kind])
    found = states.load(tmp_path / "state", ODD_KEYS[kind])
    assert jax.tree.structure(found) == jax.tree.structure(ODD_KEYS[kind])
    jax.tree.map(np.testing.assert_array_equal, found, ODD_KEYS[kind])
    assert len(states.inspect(tmp_path / "state")["leaves"]) == len(jax.tree.leaves(ODD_KEYS[kind]))


@pytest.mark.parametrize(
    ("tree", "error", "message"),
    [
        (OrderedDict([(float("nan"), ONE), (float("nan"), TWO)]), ValueError, r"2 leaves .* same path \[nan\]"),
        ({1: ONE, "1": TWO}, ValueError, "cannot be sorted .*make all of them str"),
        ({"a": np.array([None])}, TypeError, "leaf a has the dtype object"),
        ({"a": np.array(["x"])}, TypeError, "leaf a has the dtype <U1"),
        ({"a": np.array(["2020-01-01"], "M8[D]")}, TypeError, "leaf a has the dtype datetime64"),
        ({"a": jnp.ones(2, jnp.float8_e4m3fn)}, TypeError, "leaf a has the dtype float8_e4m3fn"),
        ({"a": np.ones(2, np.complex128)}, TypeError, "leaf a has the dtype complex128"),
    ],
)
def test_what_would_not_come_back_is_refused_when_it_is_saved(
    tree: Any, error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        states.save(tmp_path / "state", tree)
    assert not list(tmp_path.iterdir())
