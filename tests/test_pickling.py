"""Pickling: what worker processes take and return."""

import copy
import multiprocessing
import pickle
import threading
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from flax import linen as nn
from gymnasium import spaces

import seqdec
from seqdec import agents, bo, core, envs, filters, likelihoods, models, policies
from seqdec.bo.surrogates import contract as surrogates
from seqdec.envs import objectives
from tests.test_envs import CONTRACT, build

ENV = envs.linear(np.eye(3, 4).tolist())
ITEMS = core.Spaces(spaces.Dict(video=spaces.Box(0, 8, (3,), np.int32)), spaces.Discrete(3))
KEY = jax.random.key(0)
X = np.linspace(-1, 1, 4, dtype=np.float32)


def again(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


def program(function: Any, *arguments: Any) -> str:
    """What a function computes, as text."""
    return str(jax.make_jaxpr(function)(*arguments))


def network(activation: Any = nn.elu) -> models.Network:
    return models.network(models.MLP(3, (4,), activation), X)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", agents.names())
def test_agents(name: str) -> None:
    where, context = (ENV, X) if "contexts" in agents.capabilities(name).spaces else (ITEMS, {"video": np.arange(3)})
    agent = agents.make(name, where)
    other = again(agent)
    assert repr(other) == repr(agent) and other.spaces == agent.spaces
    assert program(other.init, KEY) == program(agent.init, KEY)
    state = jax.eval_shape(agent.init, KEY)
    assert program(other.act, KEY, state, context) == program(agent.act, KEY, state, context)


@pytest.mark.parametrize("name", policies.REGISTRY.names())
def test_policies(name: str) -> None:
    policy, candidates = policies.make(name), np.eye(3, 4, dtype=np.float32)

    def score(policy: core.Acquisition) -> str:
        def mean(x: Any) -> Any:
            return x.sum(1)

        joint = core.Predictive(np.zeros(3, np.float32), *2 * (np.eye(3, dtype=np.float32),))
        posterior = core.Posterior(mean, lambda _: joint, lambda _: mean)
        return program(lambda key: policy.score(key, posterior, candidates, None), KEY)

    assert score(again(policy)) == score(policy)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ekf", {}),
        ("hilofi", {"rank": 2}),
        ("lofi", {"rank": 2}),
        ("lolofi", {"rank_hidden": 2, "rank_last": 2}),
        ("lrkf", {"rank": 2}),
        ("subspace", {"rank": 2}),
    ],
)
def test_filters(name: str, options: dict[str, int]) -> None:
    flt = getattr(filters, name)(network(), likelihoods.gaussian(0.1), **options)
    params = network().init(KEY)
    assert program(again(flt).init, KEY, params) == program(flt.init, KEY, params)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CONTRACT)
def test_environments(name: str) -> None:
    env = build(name)
    other = again(env)
    assert program(other.reset, KEY, other.params) == program(env.reset, KEY, env.params)
    state = jax.eval_shape(env.reset, KEY, env.params)[0]
    assert program(other.step, KEY, state, 0, other.params) == program(env.step, KEY, state, 0, env.params)


def test_gymnasium_environments_in_the_middle_of_an_episode() -> None:
    one = envs.FunctionalEnv(ENV)
    one.reset(seed=3)
    two = again(one)
    assert one.step(1)[1] == two.step(1)[1]
    both = envs.FunctionalVectorEnv(ENV, 2)
    both.reset(seed=3)
    np.testing.assert_array_equal(again(both).step(np.array([0, 1]))[1], both.step(np.array([0, 1]))[1])


@pytest.mark.parametrize("kind", ["gaussian", "categorical", "poisson", "bernoulli"])
def test_likelihoods(kind: str) -> None:
    factory = getattr(likelihoods, kind)
    likelihood = factory(0.1) if kind == "gaussian" else factory()
    assert program(again(likelihood).cov, np.zeros(3)) == program(likelihood.cov, np.zeros(3))


@pytest.mark.parametrize("activation", [nn.elu, nn.relu, nn.gelu, np.tanh, lambda x: x])
def test_models_keep_activations(activation: Any) -> None:
    module = models.MLP(3, (4,), activation)
    other = again(module)
    if activation.__name__ != "<lambda>":
        assert other == module and other.activation is activation
    assert program(again(network(nn.gelu)).apply, network().init(KEY), X) == program(
        network(nn.gelu).apply, network().init(KEY), X
    )
    assert copy.copy(module) == module and copy.deepcopy(module).out == 3


def test_other_public_objects() -> None:
    for thing in (
        objectives.branin(),
        objectives.drawnn(3),
        seqdec.compiled(agents.linear(ENV)),
        surrogates.make("gp", 2),
        ENV.observation_space,
    ):
        assert type(again(thing)) is type(thing)
    optimizer = bo.BayesianOptimizer([(0.0, 1.0)], seed=0)
    for value in (1.0, 0.5, 0.7):
        optimizer.tell(optimizer.ask(), value)
    assert again(optimizer).ask() == optimizer.ask()


def test_copies_share_functions() -> None:
    agent = agents.linear(ENV)
    for other in (copy.copy(agent), copy.deepcopy(agent)):
        assert type(other) is core.Agent and other.init is agent.init and other.update is agent.update
    assert copy.copy(ENV).params is ENV.params
    optimizer = bo.BayesianOptimizer([(0.0, 1.0)], seed=0)
    assert copy.deepcopy(optimizer).ask().x == optimizer.ask().x


def test_what_cannot_be_pickled_says_what_to_do() -> None:
    lock = threading.Lock()
    agent = agents.linear(ENV)._replace(init=lambda key: lock)
    with pytest.raises(pickle.PicklingError, match=r"this Agent cannot be pickled: .*; make it in the"):
        pickle.dumps(agent)
    with (
        seqdec.OnlineAgent(agents.linear, ENV, seed=0) as service,
        pytest.raises(TypeError, match=r"an OnlineAgent cannot be pickled .*; send contexts and rewards"),
    ):
        pickle.dumps(service)


def in_worker(agent: core.Agent, env: core.Environment | gymnasium.Env) -> Any:
    run = seqdec.run(agent, env, 4, seed=0, progress=False)
    return run, agent, env, seqdec.minimize(lambda x: float(x[0]), [(0, 1)], n_calls=2, seed=0, workers=1)


@pytest.mark.extended
def test_a_process_pool_takes_and_returns_them() -> None:
    agent = agents.linear(ENV)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        run, back, env, found = pool.submit(in_worker, agent, ENV).result()
    here = seqdec.run(back, env, 4, seed=0, progress=False)
    np.testing.assert_array_equal(run.rewards, here.rewards)
    np.testing.assert_array_equal(run.actions, seqdec.run(agent, ENV, 4, seed=0, progress=False).actions)
    assert 0 <= found.x[0] <= 1 and len(found.optimizer.trials) == 2
