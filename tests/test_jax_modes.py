"""JAX's own modes, which users set to find their mistakes: nothing of seqdec is one.

Promotion of ranks and the use of keys are refused while a function is traced, so nothing is compiled where a
trace shows it. Agents get all kinds of spaces, filters and optimizers all settings of their own.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Space

import seqdec
from seqdec import agents, bo, envs, filters, likelihoods, memory, models, ope, optim, policies
from seqdec.core import Marginals, Masked, Posterior, Predictive
from seqdec.optim import greedy

KEY = jax.random.key(0)
NEEDS_DATA = (
    "adult", "census", "covertype", "fashion-mnist", "financial", "idx", "jester", "mnist", "mushroom", "open-bandit",
    "permuted", "random-exposures", "statlog",
)  # fmt: skip
"""Environments that are made of downloaded files."""
QUICK = bo.Search(raw_samples=16, num_restarts=2, steps=2)


class Spaces(NamedTuple):
    """What an agent is told of its environment."""

    observation_space: Space
    action_space: Space


def numbers(*shape: int) -> Box:
    return Box(-1, 1, shape, np.float32)


ARMS = Discrete(3)
SPACES = {
    "numbers": Spaces(numbers(4), ARMS),
    "half": Spaces(Box(-1, 1, (4,), np.float16), ARMS),
    "bytes": Spaces(Box(0, 255, (5, 5), np.uint8), ARMS),
    "state": Spaces(Discrete(4, start=2), ARMS),
    "points": Spaces(numbers(4), numbers(2)),
    "integers": Spaces(Box(-5, 5, (4,), np.int32), Box(0, 5, (2,), np.int64)),
    "features": Spaces(Dict(features=numbers(3, 4)), ARMS),
    "ids": Spaces(Dict(features=numbers(3, 4), video=Box(0, 9, (3,), np.int32)), ARMS),
}
CLAIMED = {"points": "points", "integers": "points", "features": "features", "ids": "ids"}
"""What an agent acts on in these spaces; in the others on contexts."""
EVERYWHERE = ("ekf", "gp", "linear", "neural_linear", "popularity", "random", "replay_adamw")
"""One agent of each kind, which is tried in all spaces; the others with contexts of numbers, and with points."""


@contextlib.contextmanager
def strict() -> Iterator[None]:
    """No rank is promoted, and no key is used twice."""
    with (
        jax.numpy_rank_promotion("raise"),
        jax.debug_key_reuse(True),
        jax.legacy_prng_key("error"),
    ):
        yield


def shown(space: Space) -> Any:
    return jax.tree.map(jnp.asarray, dict(space.sample()) if isinstance(space, Dict) else space.sample())


def stacked(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), tree)


def small(name: str, space: Spaces, **options: Any) -> seqdec.core.Agent:
    """An agent with the smallest network, where it takes one."""
    if agents.capabilities(name).model and not isinstance(space.observation_space, Dict):
        outputs = int(space.action_space.n) if isinstance(space.action_space, Discrete) else 1
        options = {"model": models.MLP(outputs, (8,), skip=True), **options}
    if agents.capabilities(name).rank:
        options = {str(agents.capabilities(name).rank): 3, **options}
    return agents.make(name, space, **options)


def dtypes(tree: Any) -> list[Any]:
    return [leaf.dtype for leaf in jax.tree.leaves(tree)]


def traced(agent: seqdec.core.Agent, space: Spaces) -> None:
    """Everything that an agent does, with every kind of feedback, of which its state keeps the dtypes."""
    observations, actions = space
    context = shown(observations)
    drawn = jax.make_jaxpr(agent.init)(KEY).jaxpr.outvars
    assert len({id(leaf) for leaf in drawn}) == len(drawn), "a state with one array twice cannot be donated"
    state = jax.eval_shape(agent.init, KEY)
    action = shown(actions) if isinstance(actions, Box) else jnp.int32(1)
    jax.eval_shape(agent.act, KEY, state, context)
    assert dtypes(jax.eval_shape(agent.update, state, context, action, jnp.int32(1))[0]) == dtypes(state)
    if isinstance(actions, Discrete):
        jax.eval_shape(agent.act, KEY, state, Masked(context, jnp.array([True, False, True])))
        jax.eval_shape(agent.update, state, context, action, jnp.ones(3))
    if agent.update_batch is not None:
        jax.eval_shape(agent.update_batch, state, stacked(context), stacked(action), jnp.ones(2))
    if agent.act_batch is not None:
        jax.eval_shape(agent.act_batch, jax.random.split(jax.random.key(1), 2), state, stacked(context))


CASES = [
    (name, kind)
    for name in agents.names()
    for kind in SPACES
    if CLAIMED.get(kind, "contexts") in agents.capabilities(name).spaces
    and (name in EVERYWHERE or kind in ("numbers", "points"))
]


IN_DOUBLE = ("numbers", "half", "ids", "integers")
"""Spaces whose agents are tried with jax_enable_x64; both precisions see every agent, and every kind of space."""


@pytest.mark.sampled(16)
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_agents(name: str, kind: str) -> None:
    with jax.enable_x64(kind in IN_DOUBLE), strict():
        traced(small(name, SPACES[kind]), SPACES[kind])


@pytest.mark.sampled(6)
@pytest.mark.filterwarnings("error::FutureWarning")
@pytest.mark.parametrize("name", agents.names())
def test_a_state_of_single_precision_in_double(name: str) -> None:
    """A call of an agent within `jax.enable_x64()`, or after jax_enable_x64 was set in mid-process."""
    space = SPACES["numbers" if "contexts" in agents.capabilities(name).spaces else "ids"]
    agent, context = small(name, space), shown(space.observation_space)
    state = jax.eval_shape(agent.init, KEY)
    with jax.enable_x64(True):
        assert dtypes(jax.eval_shape(agent.update, state, context, jnp.int32(1), jnp.float32(1))[0]) == dtypes(state)


OPTIONS: dict[str, list[dict[str, Any]]] = {
    "ekf": [{"average": 0.1, "likelihood": likelihoods.poisson()}, {"process_noise": filters.Annealed(1e-2, 10.0)}],
    "ensemble": [{"bootstrap": "poisson"}],
    "last_layer_laplace": [{"over": "memory"}, {"over": "stream"}],
    "lofi": [{"process_noise": 1e-3}],
    "lrkf": [{"rehearsal": agents.Rehearsal(memory.reservoir(10), optimizer=optax.adamw(1e-2))}],
    "vbll": [{"head": "classification"}],
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "options"), [(name, one) for name, several in OPTIONS.items() for one in several])
def test_agents_with_settings(name: str, options: dict[str, Any]) -> None:
    with strict():
        traced(small(name, SPACES["numbers"], **options), SPACES["numbers"])


SETTINGS: dict[str, dict[str, Any]] = {
    "ekf": {},
    "hilofi": {"rank": 4, "per_output": True},
    "lofi": {"rank": 4},
    "lolofi": {"rank_hidden": 4, "rank_last": 4},
    "lrkf": {"rank": 4},
    "subspace": {"rank": 4},
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("x64", [False, True])
def test_filters(name: str, x64: bool) -> None:
    """Also in double precision, where integers of Python are of another type than those of states."""
    with jax.enable_x64(x64), strict():
        network = models.network(models.MLP(3, (4,)), jnp.zeros(4))
        params = jax.tree.map(lambda leaf: leaf.astype(float), network.init(KEY))
        noise = likelihoods.gaussian(jnp.array([0.1, 0.2, 0.3]))
        flt = getattr(filters, name)(network, noise, **SETTINGS[name])
        belief, x, y = jax.eval_shape(flt.init, jax.random.key(1), params), jnp.zeros(4), jnp.zeros(3)
        jax.eval_shape(flt.predict, belief)
        jax.eval_shape(flt.moments, belief, x)
        jax.eval_shape(flt.sample, jax.random.key(2), belief)
        jax.eval_shape(flt.update, belief, x, y)
        jax.eval_shape(flt.update, belief, x, y[:2], jnp.arange(2))
        if flt.update_batch is not None:
            jax.eval_shape(flt.update_batch, belief, stacked(x), stacked(y))
        if flt.marginals is not None:
            jax.eval_shape(lambda belief, x: flt.marginals(belief)(x), belief, x)


@pytest.mark.parametrize("name", policies.names())
def test_policies(name: str) -> None:
    mean, eye = jnp.arange(4.0), jnp.eye(4)
    mask: Any = np.array([True, False, True, True])
    question = Posterior(lambda _: mean, lambda _: Predictive(mean, eye, eye), lambda key: lambda _: mean)
    policy: Any = policies.make(name)
    with strict():
        for known in (question, question._replace(marginals=lambda _: Marginals(mean, mean + 1, mean))):
            jax.eval_shape(lambda key, known=known: policy.score(key, known, None, mask), KEY)
            if policy.probabilities is not None:
                jax.eval_shape(lambda key, known=known: policy.probabilities(key, known, None, None), KEY)


RANKED = {name: {"rank": 2} for name in ("alice", "alice_0", "apollo", "fira")}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", optim.REGISTRY.names())
@pytest.mark.parametrize("x64", [False, True])
def test_optimizers(name: str, x64: bool) -> None:
    """With a schedule of optax, which divides by the count, and parameters of several precisions."""
    shapes = {"hidden": ((4, 3), "float32"), "bias": ((3,), "float32"), "half": ((3, 5), "bfloat16")}
    params = {leaf: jnp.ones(*form) for leaf, form in shapes.items()}
    with jax.enable_x64(x64), strict():
        optimizer = getattr(optim, name)(optax.cosine_decay_schedule(0.1, 100), **RANKED.get(name, {}))
        state = jax.eval_shape(optimizer.init, params)
        updates = jax.eval_shape(lambda *given: optimizer.update(*given, value=jnp.float32(1)), params, state, params)
        assert dtypes(updates) == dtypes((params, state))


@pytest.mark.parametrize(
    "family",
    [greedy.spectral(2.0, 1.0), greedy.lyapunov(1.0), greedy.frobenius(1.0), greedy.diagonal(1.0, jnp.ones(3))],
    ids=["spectral", "lyapunov", "frobenius", "diagonal"],
)
def test_greedy_families(family: greedy.Family) -> None:
    with jax.enable_x64(True), strict():
        jax.eval_shape(family.optimum, jnp.eye(3))
        jax.eval_shape(family.gauge, jnp.eye(3), jnp.eye(3))


@pytest.mark.parametrize("name", [name for name in envs.names() if name not in NEEDS_DATA])
def test_environments(name: str) -> None:
    with strict():
        env = envs.make(name)
        state, _ = jax.eval_shape(env.reset, KEY, env.params)
        jax.eval_shape(env.step, jax.random.key(1), state, shown(env.action_space), env.params)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("surrogate", ["gp", "lrkf", "sparse_gp"])
def test_a_search(surrogate: str) -> None:
    """One surrogate for each way to fit and to ask; the other filters differ in what `test_filters` traces."""
    with strict():
        found = seqdec.minimize(
            lambda x: float(np.sum(x)), [(0, 1)], n_calls=3, initial=2, surrogate=surrogate, search=QUICK, seed=0
        )
    assert found.nfev == 3


@pytest.mark.extended
def test_a_search_with_outcomes() -> None:
    """Several objectives, a constraint and warped inputs are programs of their own."""
    box = [(0.0, 1.0), (0.0, 2.0)]
    with strict():
        seqdec.minimize(
            lambda x: ([x[0], x[1]], [x[0] - 0.5]), box, n_calls=3, initial=2, objectives=2, outcome_constraints=1,
            search=QUICK, seed=0,
        )  # fmt: skip
        seqdec.minimize(lambda x: x[0] + x[1], box, n_calls=3, initial=2, search=QUICK, seed=0)


def test_a_run_a_service_and_a_log(tmp_path: Path) -> None:
    """What is compiled on the way from a run to an estimate; seeds side by side transpose what loops read."""
    env = envs.linear([[1.0, 0.0], [0.0, 1.0]])
    with strict():
        seqdec.run(agents.linear(env), env, 6, seed=0, num_seeds=2, progress=False)
        run = seqdec.run(agents.random(env), env, 6, seed=0, diagnostics=("observation",), progress=False)
        log = run.log(0)
        network = models.network(models.MLP(2, ()), jnp.zeros(2))
        flt = filters.ekf(network, likelihoods.gaussian(0.1))
        predicted = ope.cross_fit(filters.learner(flt, network.init), log, seed=0, folds=2)
        assert len(ope.evaluate(log, np.full((len(log.action), 2), 0.5), predicted, seed=0))
        with seqdec.OnlineAgent(agents.linear, env, seed=0, folder=tmp_path / "site") as service:
            service.learn(service.decide([0, 1]).token, True)


def test_copies_of_an_environment() -> None:
    with strict():
        course = envs.FunctionalVectorEnv(envs.linear(), 2)
        course.reset(seed=0)
        course.step(np.array([0, 1]))


class Coin(gymnasium.Env):
    """On the host: reward 1 for the action shown."""

    observation_space = numbers(2)
    action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.ones(2, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.ones(2, np.float32), float(action), True, False, {}


@pytest.mark.extended
def test_without_compilation() -> None:
    """Where `jax.disable_jit` holds, values can be looked at within an agent."""
    env, seen = envs.linear([[1.0, 0.0], [0.0, 1.0]]), []
    plain = agents.random(env)

    def act(key: Any, state: Any, observation: Any) -> Any:
        seen.append(float(observation[0]))
        return plain.act(key, state, observation)

    compiled = seqdec.run(agents.linear(env), env, 3, seed=0, progress=False)
    with jax.disable_jit():
        seqdec.run(plain._replace(act=act), env, 3, seed=0, progress=False)
        eager = seqdec.run(agents.linear(env), env, 3, seed=0, progress=False)
        seqdec.run(agents.random(env), env, 1, seed=0, num_seeds=2, progress=False)
        seqdec.run(agents.random(Coin()), Coin(), 3, seed=0, progress=False)
    assert len(seen) == 3
    np.testing.assert_array_equal(eager.actions, compiled.actions)
    np.testing.assert_allclose(eager.rewards, compiled.rewards, rtol=1e-5)


@pytest.mark.extended
def test_a_search_without_compilation() -> None:
    options: dict[str, Any] = {"n_calls": 3, "initial": 2, "surrogate": "lrkf", "search": QUICK, "seed": 0}
    with jax.disable_jit():
        assert seqdec.minimize(lambda x: float(x[0]), [(0, 1)], **options).nfev == 3


@pytest.mark.extended
def test_keys_of_another_generator() -> None:
    env = envs.linear([[1.0, 0.0], [0.0, 1.0]])
    for name in ("adamw", "auto"):
        agent = small(name, Spaces(env.observation_space, env.action_space))
        state = jax.eval_shape(agent.init, jax.random.key(0, impl="rbg"))
        jax.eval_shape(agent.update, state, jnp.ones(2), jnp.int32(0), jnp.ones(()))


def test_a_saved_state_of_another_precision(tmp_path: Path) -> None:
    seqdec.save(tmp_path / "state", {"weights": jnp.zeros(2)})
    with jax.enable_x64(True), pytest.raises(ValueError, match="it was saved with jax_enable_x64 off"):
        seqdec.load(tmp_path / "state", {"weights": jnp.zeros(2)})


@pytest.mark.extended
def test_the_derivative_of_a_full_covariance() -> None:
    """By the noise, where the responses have equal variances, so that a matrix has equal eigenvalues."""
    network = models.network(models.MLP(2, ()), jnp.zeros(2))
    params = network.init(KEY)

    def surprise(noise: Any) -> Any:
        flt = filters.ekf(network, likelihoods.gaussian(noise))
        belief, _ = flt.update(flt.init(jax.random.key(1), params), jnp.ones(2), jnp.array([1.0, 2.0]))
        return flt.update(belief, -jnp.ones(2), jnp.ones(2))[1].log_density

    value, slope = jax.jit(jax.value_and_grad(surprise))(0.3)
    further = jax.jit(surprise)(0.31)
    np.testing.assert_allclose(slope, (further - value) / 0.01, rtol=0.05)
