"""JAX's own modes, which users set to find their mistakes: nothing of seqdec is one.

Promotion of ranks and the use of keys are refused while a function is traced, so nothing is compiled where a
trace shows it. Agents get all kinds of spaces, filters and optimizers all settings of their own.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Space

import seqdec
from seqdec import agents, bo, envs, filters, likelihoods, models, ope, optim
from seqdec.core import Masked, Spaces
from tests.test_envs import CONTRACT, build
from tests.toys import toy_agent, toy_env

KEY = jax.random.key(0)
QUICK = bo.Search(raw_samples=16, num_restarts=2, steps=2)


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
IN_DOUBLE = ("numbers", "half", "ids", "integers")
"""Spaces whose agents are tried with jax_enable_x64; both precisions see every agent, and every kind of space."""


@contextlib.contextmanager
def strict(x64: bool = False) -> Iterator[None]:
    """No rank is promoted, and no key is used twice."""
    with (
        jax.numpy_rank_promotion("raise"),
        jax.debug_key_reuse(True),
        jax.legacy_prng_key("error"),
        jax.enable_x64(x64),
    ):
        yield


def shown(space: Space) -> Any:
    return jax.tree.map(jnp.asarray, dict(space.sample()) if isinstance(space, Dict) else space.sample())


def stacked(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), tree)


def dtypes(tree: Any) -> list[Any]:
    return [leaf.dtype for leaf in jax.tree.leaves(tree)]


def small(name: str, space: Spaces, **options: Any) -> seqdec.core.Agent:
    """An agent with the smallest network, where it takes one."""
    own = agents.capabilities(name)
    if own.model and not isinstance(space.observation_space, Dict):
        outputs = int(space.action_space.n) if isinstance(space.action_space, Discrete) else 1
        options = {"model": models.MLP(outputs, (8,), skip=True), **options}
    return agents.make(name, space, **({own.rank: 3} if own.rank else {}), **options)


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


@pytest.mark.sampled(16)
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_agents(name: str, kind: str) -> None:
    with strict(kind in IN_DOUBLE):
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


RANKS: dict[str, dict[str, Any]] = {
    "ekf": {},
    "hilofi": {"rank": 4, "per_output": True},
    "lofi": {"rank": 4},
    "lolofi": {"rank_hidden": 4, "rank_last": 4},
    "lrkf": {"rank": 4},
    "subspace": {"rank": 4},
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", RANKS)
@pytest.mark.parametrize("x64", [False, True])
def test_filters(name: str, x64: bool) -> None:
    """Also in double precision, where integers of Python are of another type than those of states."""
    with strict(x64):
        network = models.network(models.MLP(3, (4,)), jnp.zeros(4))
        params = jax.tree.map(lambda leaf: leaf.astype(float), network.init(KEY))
        flt = getattr(filters, name)(network, likelihoods.gaussian(jnp.array([0.1, 0.2, 0.3])), **RANKS[name])
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


RANKED = {name: {"rank": 2} for name in ("alice", "alice_0", "apollo", "fira")}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", optim.REGISTRY.names())
@pytest.mark.parametrize("x64", [False, True])
def test_optimizers(name: str, x64: bool) -> None:
    """With a schedule of optax, which divides by the count, and parameters of several precisions."""
    shapes = {"hidden": ((4, 3), "float32"), "bias": ((3,), "float32"), "half": ((3, 5), "bfloat16")}
    params = {leaf: jnp.ones(*form) for leaf, form in shapes.items()}
    with strict(x64):
        optimizer = getattr(optim, name)(optax.cosine_decay_schedule(0.1, 100), **RANKED.get(name, {}))
        state = jax.eval_shape(optimizer.init, params)
        updates = jax.eval_shape(lambda *given: optimizer.update(*given, value=jnp.float32(1)), params, state, params)
        assert dtypes(updates) == dtypes((params, state))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CONTRACT)
def test_environments(name: str) -> None:
    env = build(name)
    with strict():
        state, _ = jax.eval_shape(env.reset, KEY, env.params)
        jax.eval_shape(env.step, jax.random.key(1), state, shown(env.action_space), env.params)


def played(folder: Path) -> Any:
    """From a run to an estimate and a service; what was chosen."""
    env = envs.linear([[1.0, 0.0], [0.0, 1.0]])
    run = seqdec.run(agents.linear(env), env, 6, seed=0, num_seeds=2, diagnostics=("observation",), progress=False)
    log = run.log(0)
    ope.evaluate(log, np.full((len(log.action), 2), 0.5), seed=0, samples=9)
    with seqdec.OnlineAgent(agents.linear, env, seed=0, folder=folder / "site") as service:
        decision = service.decide([0, 1])
        assert service.learn(decision.token, True) == "learned"
    return run.actions, decision.action


def searched() -> Any:
    found = seqdec.minimize(
        lambda x: float(np.sum(x)), [(0, 1)], n_calls=3, initial=2, surrogate="lrkf", search=QUICK, seed=0
    )
    return found.x_iters


def test_the_whole_way_in_a_mode(tmp_path: Path) -> None:
    """The same choices where mistakes are looked for; in double precision random numbers are others."""
    plain = played(tmp_path / "plain"), searched()
    with strict(), jax.debug_nans(True):
        jax.tree.map(np.testing.assert_array_equal, (played(tmp_path / "strict"), searched()), plain)
    with jax.enable_x64(True):
        played(tmp_path / "double")


@pytest.mark.extended
def test_without_compilation() -> None:
    """Where `jax.disable_jit` holds, values can be looked at within an agent."""
    seen, plain = [], toy_agent()

    def act(key: Any, state: Any, observation: Any) -> Any:
        seen.append(float(observation[0]))
        return plain.act(key, state, observation)

    compiled = seqdec.run(plain, toy_env(), 3, seed=0, progress=False)
    with jax.disable_jit():
        eager = seqdec.run(plain._replace(act=act), toy_env(), 3, seed=0, progress=False)
    assert len(seen) == 3
    np.testing.assert_array_equal(eager.actions, compiled.actions)


def test_a_saved_state_of_another_precision(tmp_path: Path) -> None:
    seqdec.save(tmp_path / "state", {"weights": jnp.zeros(2)})
    with jax.enable_x64(True), pytest.raises(ValueError, match="it was saved with jax_enable_x64 off"):
        seqdec.load(tmp_path / "state", {"weights": jnp.zeros(2)})


def test_within_a_transformation_seqdec_says_what_to_write() -> None:
    env = envs.linear()

    def total(scale: Any) -> Any:
        scaled = env._replace(params=jax.tree.map(lambda leaf: scale * leaf, env.params))
        return jnp.sum(jnp.asarray(seqdec.run(agents.random(env), scaled, 2, seed=0, progress=False).rewards))

    for transformed in (jax.jit(total), jax.grad(total), jax.jit(lambda scale: scale + total(1.0))):
        with pytest.raises(TypeError, match=r"is called from Python, not within jax.jit.*jax.lax.scan over"):
            transformed(1.0)
    with pytest.raises(TypeError, match="column reward is traced: a log holds NumPy arrays"):
        jax.jit(lambda x: ope.make_log(action=[0], reward=x, propensity=[0.5]).reward)(jnp.ones(1))


def test_contracts_are_static_arguments_of_compiled_functions() -> None:
    env = envs.linear()
    traced = []

    def act(agent: Any, state: Any, key: Any) -> Any:
        traced.append(agent.name)
        return agent.act(key, state, jnp.zeros(2)).value

    compiled = jax.jit(act, static_argnums=0)
    for name in ("random", "linear"):
        agent = agents.make(name, env)
        same, scaled = agent._replace(), agent._replace(settings={"weights": np.ones(2)})
        assert same == agent and {agent: 1, same: 2} == {agent: 2} and agent != agents.make(name, env)
        for each in (agent, same, agent._replace(name=name)):
            compiled(each, agent.init(KEY), KEY)
        assert {scaled: 1}[scaled] == 1
    assert traced == ["random", "linear"]
