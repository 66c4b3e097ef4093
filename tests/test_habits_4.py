"""Habits of users: derivatives of derivatives, strict transfers, folders and outputs that go away, wrong arguments."""

import inspect
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from gymnasium import spaces

import seqdec
from seqdec import bo, filters, likelihoods, linalg, optim
from seqdec.boundary.spaces import Spaces
from seqdec.core import Network
from seqdec.filters import Numerics
from seqdec.linalg import spectral
from seqdec.optim import linear
from seqdec.service import facade

HAS_FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


@pytest.mark.sampled(4)
@HAS_FULL
@pytest.mark.parametrize("arguments", ["list --zzz", "report nothing"])
def test_an_error_that_nobody_can_read_has_the_same_exit_code(arguments, tmp_path):
    """Of the parsers and of the command itself."""
    command = [sys.executable, "-m", "seqdec", *arguments.split()]
    with open("/dev/full", "w") as full:
        codes = [
            subprocess.run(command, cwd=tmp_path, check=False, stdout=out, stderr=err).returncode
            for out, err in ((subprocess.DEVNULL, full), (full, subprocess.DEVNULL))
        ]
    assert codes == ([1, 1] if arguments.startswith("report") else [2, 2])


def network(outputs: int) -> Network:
    """Two inputs, three hidden units."""

    def init(key):
        hidden, last = jax.random.split(key)
        kernels = {"hidden": jax.random.normal(hidden, (2, 3)), "last": jax.random.normal(last, (3, outputs))}
        return jax.tree.map(lambda leaf: leaf.astype(jnp.float64), kernels)

    return Network(init, lambda params, x: jnp.tanh(x @ params["hidden"]) @ params["last"], lambda path: "last" in path)


DOUBLE = Numerics(dtype=jnp.float64)
FILTERS = {
    "lrkf": lambda net, noise, q: filters.lrkf(net, noise, rank=4, process_noise=q, numerics=DOUBLE),
    "lofi": lambda net, noise, q: filters.lofi(net, noise, rank=4, process_noise=q, numerics=DOUBLE),
    "ekf": lambda net, noise, q: filters.ekf(net, noise, process_noise=q, numerics=DOUBLE),
    "hilofi": lambda net, noise, q: filters.hilofi(
        net, noise, rank=3, process_noise_hidden=q, process_noise_last=q, numerics=DOUBLE
    ),
    "lolofi": lambda net, noise, q: filters.lolofi(
        net, noise, rank_hidden=3, rank_last=2, process_noise_hidden=q, process_noise_last=q, numerics=DOUBLE
    ),
}


@pytest.mark.extended
@pytest.mark.usefixtures("double")
@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("q", [1e-2, 0.0])
def test_the_log_density_of_a_stream_has_second_derivatives(name, outputs, q):
    """From a prior with equal eigenvalues on; against a difference quotient of the gradient."""
    flt = FILTERS[name](network(outputs), likelihoods.gaussian(0.1), q)
    draws = np.random.default_rng(0)
    xs, ys = draws.normal(size=(2, 2)), draws.normal(size=(2, outputs))
    params = network(outputs).init(jax.random.key(0))

    def total(moves):
        belief, density = flt.init(jax.random.key(1), jax.tree.map(lambda leaf: (1 + moves[0]) * leaf, params)), 0.0
        for x, y in zip(xs, ys, strict=True):
            belief, info = flt.update(flt.predict(belief), jnp.asarray(x) * (1 + moves[1]), jnp.asarray(y))
            density += info.log_density
        return density

    @jax.jit
    def derivatives(moves):
        gradient = jax.grad(total)
        return gradient(moves), jax.jacfwd(gradient)(moves), jax.jacrev(gradient)(moves)

    zero, steps = jnp.zeros(2, jnp.float64), 1e-5 * jnp.eye(2, dtype=jnp.float64)
    wanted = np.stack([derivatives(step)[0] - derivatives(-step)[0] for step in steps]) / 2e-5
    for hessian in derivatives(zero)[1:]:
        np.testing.assert_allclose(hessian, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())


MOVE = np.random.default_rng(1).normal(size=(5, 5))
OF_SYMMETRIC = {
    "projector": lambda a: (kept := linalg.parted_eigenvectors(a, 2).kept) @ kept.T,
    "sylvester": lambda a: spectral.sylvester(a, -a, jnp.asarray(MOVE + MOVE.T)),
}


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("name", OF_SYMMETRIC)
def test_functions_of_equal_eigenvalues_have_second_derivatives(name):
    def value(t):
        moved = jnp.diag(jnp.array([2.0, 2.0, 2.0, 0.5, 0.5])) + t * jnp.asarray(MOVE + MOVE.T)
        return jnp.sum(OF_SYMMETRIC[name](moved) * jnp.outer(jnp.arange(5.0), jnp.arange(1.0, 6.0)))

    first, zero = jax.jit(jax.grad(value)), jnp.asarray(0.0, jnp.float64)
    wanted = (first(zero + 1e-5) - first(zero - 1e-5)) / 2e-5
    for second in (jax.jacfwd(jax.grad(value)), jax.grad(jax.jacfwd(value)), jax.grad(jax.grad(value))):
        np.testing.assert_allclose(jax.jit(second)(zero), wanted, rtol=1e-5)


OF_GRADIENTS = {
    "fismo": lambda a: linear.power(a @ a.T, -0.5),
    "shampoo": lambda a: linear.power(a @ a.T, -0.25),
    "polar": lambda a: linear.polar(a, "exact", 1),
    "subspace": lambda a: (vectors := linear.eigenvectors(a @ a.T, 2)) @ vectors.T,
}


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("name", OF_GRADIENTS)
@pytest.mark.parametrize("diagonal", [(1.5, 1.5, 1.0), (1.5 + 1e-9, 1.5, 1.0), (1.5, 1.2, 1.0)])
def test_functions_of_gradients_have_derivatives_where_eigenvalues_are_equal(name, diagonal):
    start, direction = np.diag(diagonal) @ np.eye(3, 4), np.random.default_rng(2).normal(size=(3, 4))

    @jax.jit
    def value(t):
        found = OF_GRADIENTS[name](start + t * direction)
        return jnp.sum(found * jnp.cos(jnp.arange(found.size, dtype=found.dtype)).reshape(found.shape))

    zero = jnp.asarray(0.0, jnp.float64)
    wanted = (value(zero + 1e-5) - value(zero - 1e-5)) / 2e-5
    np.testing.assert_allclose(jax.grad(value)(zero), wanted, rtol=1e-4)
    np.testing.assert_allclose(jax.jacfwd(value)(zero), wanted, rtol=1e-4)


@pytest.mark.sampled(32)
@pytest.mark.parametrize("name", sorted(optim.REGISTRY, key=lambda name: name != "fismo"))
def test_parameters_after_three_steps_have_derivatives_by_every_setting(name):
    """Also where the gradients are zero, or equal, or of equal singular values."""
    factory = optim.REGISTRY[name]
    taken = inspect.signature(factory).parameters
    settings = {key: value.default for key, value in taken.items() if isinstance(value.default, float)}
    settings["learning_rate"] = 0.1
    params = {"hidden": {"kernel": jnp.ones((3, 4)), "bias": jnp.zeros(4)}, "out": {"kernel": jnp.ones((4, 2))}}

    def squares(settings, gradients, moving):
        optimizer = factory(**settings)
        now, state = params, optimizer.init(params)
        for _ in range(3):
            updates, state = optimizer.update(gradients, state, now, value=jnp.float32(1.5))
            now = jax.tree.map(jnp.add, now, updates)
            gradients = jax.tree.map(jnp.add, gradients, now) if moving else gradients
        return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(now))

    gradient = jax.jit(jax.grad(squares), static_argnums=2)
    units = jax.tree.map(jnp.ones_like, params) | {"hidden": {"kernel": jnp.eye(3, 4), "bias": jnp.ones(4)}}
    zeros = jax.tree.map(jnp.zeros_like, params)
    for gradients, moving in ((zeros, False), (params, False), (units, False), (units, True)):
        slopes = gradient(settings, gradients, moving)
        assert all(np.isfinite(slope) for slope in slopes.values()), slopes


SPACES = Spaces(spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2))
CONTEXT = np.zeros(2, np.float32)


def online(folder: Path | None) -> seqdec.OnlineAgent:
    return seqdec.OnlineAgent(seqdec.agents.linear, SPACES, folder=folder, seed=0)


CALLS = {
    "decide": lambda agent, token: agent.decide(CONTEXT),
    "decide_many": lambda agent, token: agent.decide_many(np.zeros((2, 2))),
    "learn": lambda agent, token: agent.learn(token, 1.0),
    "add_arm": lambda agent, token: agent.add_arm(),
    "snapshot": lambda agent, token: agent.snapshot(),
    "log": lambda agent, token: agent.log(),
}


@pytest.mark.skipif(sys.platform == "win32", reason="an open folder cannot be moved there")
def test_an_agent_whose_folder_is_gone_says_so_and_goes_on_when_it_is_back(tmp_path):
    folder, elsewhere = tmp_path / "agent", tmp_path / "elsewhere"
    agent = online(folder)
    agent.learn(agent.decide(CONTEXT).token, 0.5)
    token = agent.decide(CONTEXT).token
    before = agent.counts
    folder.rename(elsewhere)
    for call in CALLS.values():
        with pytest.raises(FileNotFoundError, match=f"the folder {folder} of this agent was removed, renamed"):
            call(agent, token)
    assert not folder.exists()
    elsewhere.rename(folder)
    assert agent.counts["decisions"] == before["decisions"]
    for call in CALLS.values():
        call(agent, token)
    shutil.rmtree(folder)
    with pytest.raises(FileNotFoundError, match="put it back"):
        agent.decide(CONTEXT)
    with pytest.raises(FileNotFoundError, match="put it back"):
        agent.close()
    assert not folder.exists()
    with online(folder) as other:  # its lock is released
        assert other.counts["decisions"] == 0


@pytest.mark.extended
def test_a_search_goes_on_within_another_mesh():
    optimizer = bo.BayesianOptimizer([(0.0, 1.0)], seed=0, surrogate="lrkf", initial=2)

    def several(count):
        for _ in range(count):
            trial = optimizer.ask()
            optimizer.tell(trial, (trial.x[0] - 0.3) ** 2)

    several(3)
    with jax.set_mesh(jax.make_mesh((1,), ("own",))):
        several(2)
    several(1)
    assert np.isfinite(optimizer.best[1])


@pytest.mark.parametrize("key", ["text", 3])
def test_a_compiled_agent_explains_what_a_key_is(key):
    env = seqdec.envs.linear()
    plain = seqdec.agents.lofi(env)
    agent, x = seqdec.compiled(plain), np.zeros((3, *env.observation_space.shape), np.float32)
    assert agent.assess is not None
    for call in (lambda: agent.init(key), *(lambda f=f: f(key, None, x[0]) for f in (agent.act, agent.assess))):
        with pytest.raises(TypeError, match=r"key must be a random key of JAX; got .*jax.random.key\(seed\)"):
            call()
    several = r"keys must be random keys of JAX; got .*: make them with jax.random.split\(key, count\)"
    for made in (plain, agent):
        assert made.act_batch is not None
        with pytest.raises(TypeError, match=several):
            made.act_batch(key, None, x)
        with pytest.raises(ValueError, match=r"one for each decision; got shape \(\): jax.random.split"):
            made.act_batch(jax.random.key(0), None, x)


NETWORK = seqdec.models.network(seqdec.models.MLP(2, (3,)), np.zeros(2))


def beliefs(rank: int, network: Network):
    """By name of the filter: the filter, and its belief or the shapes of one."""
    ranks = {
        "lofi": ("rank",),
        "lrkf": ("rank",),
        "hilofi": ("rank",),
        "lolofi": ("rank_hidden", "rank_last"),
        "ekf": (),
    }
    for name, keywords in ranks.items():
        flt = getattr(filters, name)(network, likelihoods.gaussian(0.1), **dict.fromkeys(keywords, rank))
        yield name, flt, jax.eval_shape(lambda key, flt=flt: flt.init(key, network.init(key)), jax.random.key(0))


@pytest.mark.extended
def test_a_filter_explains_a_belief_that_is_not_its_own():
    """Of another filter, or over another network, in each of its functions."""
    wider = seqdec.models.network(seqdec.models.MLP(2, (4,)), np.zeros(2))
    own, others = list(beliefs(2, NETWORK)), list(beliefs(2, wider))
    x, y = jnp.ones(2), jnp.ones(2)
    for name, flt, _ in own:
        functions = {
            "update": lambda belief, flt=flt: flt.update(belief, x, y),
            "moments": lambda belief, flt=flt: flt.moments(belief, x),
            "marginals": lambda belief, flt=flt: flt.marginals(belief)(x),
            "update_batch": lambda belief, flt=flt: flt.update_batch(belief, x[None], y[None]),
        }
        for other, _, belief in [*(entry for entry in own if entry[0] != name), *others]:
            drawn = {} if other == name else {"sample": lambda belief, flt=flt: flt.sample(jax.random.key(0), belief)}
            for function in (functions | drawn).values():
                with pytest.raises(TypeError, match=f"belief is not one of this filter, {name}: got Belief, where"):
                    jax.eval_shape(function, belief)
    lofi, ekf = own[0][1], own[-1][2]
    wanted = r"\.blocks\[0\]\.factor has FullRankFactor\(.*in place of Precision\(.*: pass what its init, predict or"
    with pytest.raises(TypeError, match=wanted):
        jax.eval_shape(lambda belief: lofi.update(belief, x, y), ekf)
    with pytest.raises(
        TypeError, match=r"params are not those of this network: .*has shape \(4,\) in place of .*\(3,\)"
    ):
        lofi.init(jax.random.key(0), wider.init(jax.random.key(0)))
    with pytest.raises(ValueError, match=r"takes an input of shape \(2,\); got \(3,\): pass inputs"):
        jax.eval_shape(lambda belief: lofi.update(belief, jnp.ones(3), y), own[0][2])


NAMED = {"action": ["b", "a", "b"], "reward": [0.5, 1.0, 0.25], "propensity": [0.5] * 3}
BY_NAME = {"b": [1.0, 0.0, 1.0], "a": [0.0, 1.0, 0.0]}


@pytest.mark.parametrize("made", [pd.DataFrame, pa.table], ids=["pandas", "Arrow"])
def test_columns_that_are_names_of_actions_count_by_name(made):
    log = seqdec.ope.make_log(**NAMED)
    by_place = np.array([BY_NAME["a"], BY_NAME["b"]]).T
    for function in (seqdec.ope.check_target, seqdec.ope.check_predicted):
        wanted = function(log, by_place)
        jax.tree.map(np.testing.assert_array_equal, function(log, made(BY_NAME)), wanted)
        jax.tree.map(
            np.testing.assert_array_equal, function(log, made({"x": by_place[:, 0], "y": by_place[:, 1]})), wanted
        )
        with pytest.raises(ValueError, match=r"must have a column for each action, \['a', 'b'\]; got \['b', 'c'\]"):
            function(log, made({"b": BY_NAME["b"], "c": BY_NAME["a"]}))
    mask = seqdec.ope.make_log(**NAMED, mask=made({"b": [True] * 3, "a": [False, True, False]})).mask
    np.testing.assert_array_equal(mask, [[False, True], [True, True], [False, True]])


def test_rows_and_numbers_of_actions_count_by_name():
    features = pd.DataFrame({"price": [2.0, 1.0]}, index=["b", "a"])
    np.testing.assert_array_equal(seqdec.ope.make_log(**NAMED, action_features=features).action_features[0], [[1], [2]])
    log = seqdec.ope.make_log(**(NAMED | {"action": [1, 0, 1]}))
    wanted = pd.DataFrame({0: BY_NAME["a"], 1: BY_NAME["b"]})
    for order in ([0, 1], [1, 0]):
        np.testing.assert_array_equal(seqdec.ope.check_predicted(log, wanted[order])[0], wanted)


def test_tables_and_lists_in_the_place_of_dicts(tmp_path):
    parts = pd.DataFrame({"click": [1.0, 0.0, 1.0]})
    np.testing.assert_array_equal(
        seqdec.ope.make_log(**NAMED, reward_parts=parts).reward_parts["click"], parts["click"]
    )
    with pytest.raises(TypeError, match="reward_parts must be a dict from names to rewards, or a table"):
        seqdec.ope.make_log(**NAMED, reward_parts=[1.0, 0.0, 1.0])
    for function in (seqdec.results.compare, seqdec.results.plot_comparison):
        with pytest.raises(TypeError, match=r"runs must be a dict from names to runs; got list: {run.agent: run"):
            function([])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": pd.date_range("2024", periods=3)}), "context must hold real numbers"),
        (np.zeros(3, [("a", "f4"), ("b", "f4")]), r"context must hold real numbers.*structured_to_unstructured\(\)"),
    ],
    ids=["numbers and dates", "structured"],
)
def test_arrays_of_several_kinds_are_refused_by_name(values, message):
    with pytest.raises(ValueError, match=f"(?s)column {message}"):
        seqdec.ope.make_log(**NAMED, context=values)


def test_a_run_within_a_transformation_says_what_to_write():
    env = seqdec.envs.linear()
    agent = seqdec.agents.random(env)

    def total(scale):
        scaled = env._replace(params=jax.tree.map(lambda leaf: scale * leaf, env.params))
        return jnp.sum(seqdec.run(agent, scaled, 2, seed=0, progress=False).rewards)

    for transformed in (jax.jit(total), jax.grad(total), jax.jit(lambda scale: scale + total(1.0))):
        with pytest.raises(
            TypeError, match=r"seqdec.run .* is called from Python, not within jax.jit.*jax.lax.scan over"
        ):
            transformed(1.0)


def test_a_log_is_made_outside_of_compiled_functions():
    with pytest.raises(TypeError, match="column reward is traced: a log holds NumPy arrays"):
        jax.jit(lambda x: seqdec.ope.make_log(**(NAMED | {"reward": x})).reward)(jnp.ones(3))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_a_filter_says_that_it_needs_32_bits(name, dtype):
    params = jax.tree.map(lambda leaf: leaf.astype(dtype), NETWORK.init(jax.random.key(0)))
    _, flt, _ = next(entry for entry in beliefs(2, NETWORK) if entry[0] == name)
    with pytest.raises(TypeError, match=rf"are {jnp.dtype(dtype)}: pass numerics=Numerics\(dtype=jnp.float32\)"):
        flt.init(jax.random.key(0), params)
    wide = filters.ekf(NETWORK, likelihoods.gaussian(0.1), numerics=Numerics(dtype=jnp.float32))
    assert wide.init(jax.random.key(0), params).params["output"]["bias"].dtype == jnp.float32


def test_the_end_of_the_process_closes_no_log_that_a_thread_writes(tmp_path, monkeypatch):
    """SQLite crashes where one thread closes what another uses."""
    monkeypatch.setattr(facade, "_PATIENCE", 0.0)
    agent, held, end = online(tmp_path / "agent"), threading.Event(), threading.Event()

    def call():
        with agent._transact.lock:
            held.set()
            end.wait()

    thread = threading.Thread(target=call)
    thread.start()
    held.wait()
    agent._free()  # as `weakref.finalize` does at the end
    end.set()
    thread.join()
    assert agent.decide(CONTEXT).token
    facade._close(agent._held)
    with pytest.raises(RuntimeError, match="is closed"):
        agent.decide(CONTEXT)


def test_contracts_are_static_arguments_of_compiled_functions():
    env = seqdec.envs.linear()
    traced = []

    def act(agent, state, key):
        traced.append(agent.name)
        return agent.act(key, state, jnp.zeros(2)).value

    compiled, key = jax.jit(act, static_argnums=0), jax.random.key(0)
    for name in ("random", "linear"):
        agent = seqdec.agents.make(name, env)
        state = agent.init(key)
        same, scaled = agent._replace(), agent._replace(settings={"weights": np.ones(2)})
        assert same == agent and {agent: 1, same: 2} == {agent: 2} and agent != seqdec.agents.make(name, env)
        for each in (agent, same, agent._replace(name=name)):
            compiled(each, state, key)
        assert scaled in [scaled] and {scaled: 1}[scaled] == 1
    assert traced == ["random", "linear"]
    for contract in (NETWORK, likelihoods.gaussian(0.1), seqdec.policies.ucb(1.0), seqdec.memory.last(3)):
        assert {contract: 1}[contract._replace()] == 1
    for _, flt, _ in beliefs(2, NETWORK):
        assert {flt: 1}[flt._replace()] == 1
