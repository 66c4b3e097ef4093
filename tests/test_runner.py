"""The loop against plain Python loops."""

import os
import pickle
import subprocess
import sys
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import seqdec.loop.device
import seqdec.runtime
from seqdec.core import Action, Agent, Environment
from seqdec.loop._run import run
from seqdec.loop.device import chunk_length
from seqdec.results import Run
from tests.toys import NUM_ARMS, toy_agent, toy_env


class ToyGym(gymnasium.Env):
    """The toy environment behind gymnasium's interface, keys and all, so that both drivers must agree."""

    def __init__(self, env: Environment, **extra: Any) -> None:
        self.env, self.extra = env._replace(step=jax.jit(env.step)), extra
        self.observation_space, self.action_space = env.observation_space, env.action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        assert seed is not None
        reset_key, self.key = jax.random.split(jax.random.split(jax.random.key(seed))[0])
        self.state, observation = self.env.reset(reset_key, self.env.params)
        self.steps = 0
        return np.asarray(observation, np.float64), dict(self.extra)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        key = jax.random.fold_in(self.key, self.steps)
        self.state, timestep = self.env.step(key, self.state, action, self.env.params)
        self.steps += 1
        info = {"regret": float(timestep.regret)} | self.extra
        return np.asarray(timestep.observation, np.float64), float(timestep.reward), False, False, info


def by_hand(agent: Agent, env: Environment, num_steps: int, seed: int) -> dict[str, np.ndarray]:
    """The loop that `run` promises, in plain Python."""
    act, step, update = jax.jit(agent.act), jax.jit(env.step), jax.jit(agent.update)
    env_key, agent_key = jax.random.split(jax.random.key(seed))
    (reset_key, step_key), (init_key, act_key) = jax.random.split(env_key), jax.random.split(agent_key)
    state, observation = jax.jit(env.reset)(reset_key, env.params)
    belief = jax.jit(agent.init)(init_key)
    rows = []
    for t in range(num_steps):
        action = act(jax.random.fold_in(act_key, t), belief, observation)
        state, timestep = step(jax.random.fold_in(step_key, t), state, action.value, env.params)
        belief, info = update(belief, observation, action.value, timestep.reward)
        observation = timestep.observation
        rows.append((action.value, timestep.reward, timestep.regret, action.propensity, info.rejected, info.error))
    names = ("actions", "rewards", "regret", "propensities", "rejected", "error")
    return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def assert_same(result: Run, i: int, oracle: dict[str, np.ndarray]) -> None:
    for name in ("actions", "rewards", "regret", "propensities"):
        np.testing.assert_array_equal(getattr(result, name)[i], oracle[name], err_msg=name)
    assert result.rejected[i] == oracle["rejected"].sum()


def test_scan_equals_python_loop() -> None:
    """Each of three seeds, which are shared out over the devices."""
    agent, env = toy_agent(), toy_env()
    result = run(agent, env, 230, seed=3, num_seeds=3, diagnostics=("error",))
    for i in range(3):
        oracle = by_hand(agent, env, 230, seed=3 + i)
        assert_same(result, i, oracle)
        np.testing.assert_array_equal(result.diagnostics["error"][i], oracle["error"])
    assert result.rejected.tolist() == [230 // 7] * 3
    assert len(np.unique(result.actions)) == NUM_ARMS


def test_agents_meet_the_same_environment() -> None:
    def always(arm: int) -> Agent:
        return toy_agent()._replace(act=lambda key, state, obs: Action(jnp.int32(arm), jnp.float32(1.0)))

    first, second = (run(always(arm), toy_env(noise=0.0), 20, seed=0) for arm in (0, 2))
    expected = np.where(np.isnan(first.rewards), np.nan, 0.7)
    np.testing.assert_allclose(second.rewards - first.rewards, expected, rtol=1e-6)


@pytest.mark.parametrize("num_steps", [1, 2, 7, 99, 100, 101, 199, 1009, 2000, 40_000, 60_000, 99_991, 1_000_003])
def test_chunks_are_short_and_divide_the_run_where_they_can(num_steps: int) -> None:
    length = chunk_length(num_steps)
    assert 1 <= length <= 1000
    assert -(-num_steps // length) >= min(num_steps, 25)
    assert num_steps % length == 0 or num_steps in (1009, 99_991, 1_000_003)


def count_compilations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A list that grows with every compilation from now on; the programs compiled before are forgotten."""
    compiled: list[Any] = []
    original = jax.stages.Lowered.compile

    def counting(self: Any, *args: Any, **kwargs: Any) -> Any:
        compiled.append(self)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(jax.stages.Lowered, "compile", counting)
    monkeypatch.setattr(seqdec.runtime, "_programs", {})
    return compiled


@pytest.mark.parametrize(("num_steps", "programs"), [(1003, 2), (1009, 3)])
def test_two_programs_and_one_for_a_shorter_last_chunk(
    num_steps: int, programs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = count_compilations(monkeypatch)
    traces = {"act": 0, "step": 0}
    agent, env = toy_agent(), toy_env()

    def act(*args: Any) -> Action:
        traces["act"] += 1
        return agent.act(*args)

    def step(*args: Any) -> Any:
        traces["step"] += 1
        return env.step(*args)

    run(agent._replace(act=act), env._replace(step=step), num_steps, seed=0, num_seeds=2)
    assert len(compiled) == programs
    assert traces["act"] == traces["step"] <= 2 * (programs - 1)


def test_equal_runs_share_their_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = count_compilations(monkeypatch)
    first = run(toy_agent(), toy_env(), 100, seed=0)
    again = run(toy_agent(), toy_env(), 100, seed=0)
    other = run(toy_agent(), toy_env(), 100, seed=7)
    longer = run(toy_agent(), toy_env(), 200, seed=0)  # chunks of two steps
    assert len(compiled) == 3
    np.testing.assert_array_equal(first.rewards, again.rewards)
    assert not np.array_equal(first.rewards, other.rewards)
    assert longer.rewards.shape == (1, 200)


def test_runs_that_differ_in_a_constant_or_a_callback_share_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = count_compilations(monkeypatch)
    env = toy_env(noise=0.0)
    plain = run(toy_agent(), env, 100, seed=0).rewards

    def raised(amount: Any) -> Environment:
        def step(*args: Any) -> Any:
            state, timestep = env.step(*args)
            return state, timestep._replace(reward=timestep.reward + amount())

        return env._replace(step=step)

    def told(value: float) -> Environment:
        shape = jax.ShapeDtypeStruct((), jnp.float32)
        return raised(lambda: jax.pure_callback(lambda: np.float32(value), shape, vmap_method="sequential"))

    for amounts in (lambda value: raised(lambda: value), lambda value: raised(lambda: jnp.full(5, value)[2]), told):
        for value in (1.0, 2.0):
            rewards = run(toy_agent(), amounts(value), 100, seed=0).rewards
            np.testing.assert_allclose(rewards[0, 0], plain[0, 0] + value, rtol=1e-6)
    # A start and a chunk for each but the start of those that differ in the step alone.
    assert len(compiled) == 2 + 6


def test_the_programs_kept_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    count_compilations(monkeypatch)
    monkeypatch.setattr(seqdec.runtime, "_PROGRAMS", 2)
    for noise in (1.0, 2.0):
        run(toy_agent(), toy_env(noise=noise), 5, seed=0)
        assert len(seqdec.runtime._programs) == 2


def test_environment_data_are_an_argument_of_the_programs() -> None:
    env, keys = toy_env(noise=0.0), jax.vmap(jax.random.key)(np.arange(2, dtype=np.uint32))
    programs = seqdec.loop.device._programs(
        toy_agent(), env, (), keys, env.params, seqdec.loop.device.mesh_for(1), print
    )
    _, record = programs.advance(6)(programs.start(keys, env.params + 10), env.params + 10)
    np.testing.assert_allclose(record.reward, np.array([10.2, 10.5, 10.9])[record.action], rtol=1e-6)


def test_device_memory_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    live = []
    get = jax.device_get

    def watching(record: Any) -> Any:
        live.append(sum(array.size for array in jax.live_arrays()))
        return get(record)

    monkeypatch.setattr(jax, "device_get", watching)
    run(toy_agent(), toy_env(), 1000, seed=0, num_seeds=4)
    assert len(live) == 100
    assert max(live[1:]) == live[1]


def interrupt_at(monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    """Make the given call (from 1) of jax.device_get, one a chunk, behave like Ctrl-C."""
    get, calls = jax.device_get, []

    def interrupting(record: Any) -> Any:
        calls.append(1)
        if len(calls) == call:
            raise KeyboardInterrupt
        return get(record)

    monkeypatch.setattr(jax, "device_get", interrupting)


def kept(*arguments: Any, **options: Any) -> Run:
    """The run that Ctrl-C ends, which would also end the tests."""
    try:
        return run(*arguments, **options)
    except KeyboardInterrupt:
        pytest.fail("what was done is lost")


def test_ctrl_c_keeps_the_chunks_that_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(toy_agent(), toy_env(), 2000, seed=0, num_seeds=2, diagnostics=("counts",))
    interrupt_at(monkeypatch, 4)
    part = kept(toy_agent(), toy_env(), 2000, seed=0, num_seeds=2, diagnostics=("counts",))
    assert part.interrupted and not whole.interrupted
    assert part.actions.shape == part.rewards.shape == part.regret.shape == part.propensities.shape == (2, 60)
    assert part.diagnostics["counts"].shape == (2, 60, NUM_ARMS) and part.elapsed.shape == (60,)
    np.testing.assert_array_equal(part.rewards, whole.rewards[:, :60])
    assert part.rejected.tolist() == [60 // 7] * 2


def test_ctrl_c_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_at(monkeypatch, 13)
    first = kept(toy_agent(), ToyGym(toy_env()), 30, seed=0, num_seeds=2)
    assert first.interrupted and first.rewards.shape == (1, 12) and first.seeds == (0,)
    monkeypatch.undo()
    interrupt_at(monkeypatch, 73)
    second = kept(toy_agent(), ToyGym(toy_env()), 30, seed=0, num_seeds=3)
    assert second.interrupted and second.rewards.shape == (2, 30) and second.seeds == (0, 1)


def test_host_loop_equals_compiled_loop() -> None:
    compiled = run(toy_agent(), toy_env(), 60, seed=5, num_seeds=2, diagnostics=("error", "nested"))
    hosted = run(toy_agent(), ToyGym(toy_env()), 60, seed=5, num_seeds=2, diagnostics=("error", "nested"))
    for name in ("actions", "rewards", "regret", "propensities", "rejected"):
        np.testing.assert_array_equal(getattr(hosted, name), getattr(compiled, name), err_msg=name)
    assert hosted.diagnostics.keys() == compiled.diagnostics.keys() == {"error", "nested.totals", "nested.counts"}
    np.testing.assert_array_equal(hosted.diagnostics["nested.totals"], compiled.diagnostics["nested.totals"])
    assert hosted.rewards.dtype == compiled.rewards.dtype and hosted.regret.dtype == compiled.regret.dtype
    assert hosted.env == "ToyGym" and hosted.seeds == (5, 6)


def test_host_compiles_three_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    traces = []
    agent = toy_agent()
    counted = agent._replace(
        act=lambda *args: traces.append("act") or agent.act(*args),
        update=lambda *args: traces.append("update") or agent.update(*args),
    )
    run(counted, ToyGym(toy_env()), 40, seed=0, num_seeds=2)
    assert traces.count("act") <= 2 and traces.count("update") <= 2


def test_action_mask_of_a_gymnasium_env_is_honored() -> None:
    mask = np.array([1, 1, 0], np.int8)
    result = run(toy_agent(), ToyGym(toy_env(), action_mask=mask), 40, seed=0)
    assert set(np.unique(result.actions)) == {0, 1}
    np.testing.assert_allclose(np.unique(result.propensities), [0.15, 0.85], rtol=1e-6)


class Corridor(gymnasium.Env):
    """Episodes of four steps, no regret; remembers what it was told."""

    observation_space, action_space = Discrete(5), Discrete(NUM_ARMS)

    def __init__(self) -> None:
        self.resets, self.played = [], []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.resets.append(seed)
        self.place = 0
        return self.place, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.played.append(int(action))
        self.place += 1
        return self.place, 1.0, self.place == 4, False, {}


def test_episodes_of_a_gymnasium_env() -> None:
    env = Corridor()
    result = run(toy_agent(), env, 10, seed=7, num_seeds=2)
    assert env.resets == [7, 7, None, None, 8, None, None]  # the first only shows the agent an observation
    assert result.actions.ravel().tolist() == env.played
    assert np.isnan(result.regret).all()
    assert result.rewards.tolist() == [[1.0] * 10] * 2


class Point(gymnasium.Env):
    """A box of actions in float64."""

    observation_space, action_space = Box(-1, 1, (2,), np.float64), Box(-1, 1, (2,), np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(2), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        return np.ones(2), float(action.sum()), False, True, {}


def box_agent(shape: tuple[int, ...] = (2,)) -> Agent:
    return Agent(
        init=lambda key: jnp.float32(0.0),
        act=lambda key, state, obs: Action(jax.random.uniform(key, shape), jnp.float32(jnp.nan)),
        update=lambda state, obs, action, feedback: (state + feedback, None),
        name="box",
        settings={},
    )


def test_box_actions_on_the_host() -> None:
    result = run(box_agent(), Point(), 6, seed=0, num_seeds=2)
    assert result.actions.shape == (2, 6, 2) and result.rejected.tolist() == [0, 0]
    np.testing.assert_allclose(result.rewards, result.actions.sum(-1), rtol=1e-6)


# Arguments that must be refused, and what the message must say.
REFUSED = [
    ({"seed": 2**63 - 1, "num_seeds": 2}, ValueError, r"seed must be an integer from 0 to 2\*\*63 - 2 for 2 seeds"),
    ({"num_seeds": 0}, ValueError, "num_seeds must be at least 1"),
    ({"diagnostics": "error"}, TypeError, r"write \('error',\)"),
    (
        {"diagnostics": ("errror",)},
        ValueError,
        "unknown diagnostic .*'errror': did you mean 'error'\\? Known: counts, error, nested, ob",
    ),
    ({"diagnostics": ("bound",)}, ValueError, "unknown diagnostic .*'bound'"),
    ({"diagnostics": ("reward",)}, ValueError, "a column that every run has"),
    ({"agent": "hilofi"}, TypeError, "agent must be a seqdec.core.Agent"),
    ({"env": "digits"}, TypeError, "env must be a seqdec.core.Environment or a gymnasium.Env; got str"),
    ({"agent": box_agent()}, ValueError, r"integer action; the agent plays float32 of shape \(2,\)"),
    ({"agent": box_agent((3,)), "env": Point()}, ValueError, r"shape \(2,\); the agent plays shape \(3,\)"),
]


@pytest.mark.parametrize(("changes", "error", "message"), REFUSED)
def test_bad_arguments_are_refused(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments = {"agent": toy_agent(), "env": toy_env(), "num_steps": 10, "seed": 0} | changes
    with pytest.raises(error, match=message):
        run(arguments.pop("agent"), arguments.pop("env"), arguments.pop("num_steps"), **arguments)


def test_progress_only_when_asked_or_on_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    for progress, shown in ((None, False), (False, False), (True, True)):
        run(toy_agent(), toy_env(), 20, seed=0, progress=progress)
        out, err = capfd.readouterr()
        assert out == "" and ("toy" in err) == shown and ("20/20" in err) == shown


def test_times_and_facts_of_a_run() -> None:
    result = run(toy_agent(settings={"epsilon": 0.3, "model": toy_env, "shape": (1, 2)}), toy_env(), 150, seed=0)
    assert result.compile_seconds > 0 and result.run_seconds > 0
    assert (np.diff(result.elapsed) > 0).all() and result.elapsed[-1] <= result.run_seconds
    assert result.settings["shape"] == [1, 2] and "toy_env" in result.settings["model"]
    assert result.versions["jax"] == jax.__version__ and result.agent == result.env == "toy"
    assert pickle.loads(pickle.dumps(result)).seeds == (0,)


_FACTORIZING = """
import os; os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
import jax, jax.numpy as jnp, seqdec
seqdec.use_all_cores()
env = seqdec.envs.make('bernoulli')
base = seqdec.agents.random(env)
start = base.init(jax.random.key(0))
agent = base._replace(
    init=lambda key: tuple(jax.random.normal(key, (2, 60, 60))),
    act=lambda key, state, observation: base.act(key, start, observation),
    update=lambda state, *seen: (tuple(jnp.linalg.qr(part)[0] for part in state), base.update(start, *seen)[1]),
)
print(seqdec.run(agent, env, 2000, seed=0, num_seeds=5).rewards.shape)
"""


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs a machine made small")
def test_independent_batched_factorizations_do_not_lock_up() -> None:
    """Batched by plain `jax.vmap`, they hang two threads of the CPU backend within these steps."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _FACTORIZING]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.stdout.strip() == "(5, 2000)", done.stderr


def test_seeds_whose_factorizations_are_computed_in_turns_give_what_they_give_alone() -> None:
    base = toy_agent()

    def update(state, *seen):
        state, info = base.update(state, *seen)
        return state, info._replace(error=jnp.linalg.cholesky(jnp.diag(state.counts))[1, 1])

    def play(seed, num_seeds):
        return run(base._replace(update=update), toy_env(), 40, seed=seed, num_seeds=num_seeds, diagnostics=("error",))

    together, alone = play(0, 5), play(3, 1)
    np.testing.assert_array_equal(together.actions[3], alone.actions[0])
    np.testing.assert_array_equal(together.diagnostics["error"][3], alone.diagnostics["error"][0])
    assert len(np.unique(alone.diagnostics["error"])) > 1


class _CountsFromFive(gymnasium.Env):
    """Refuses what is not in its action space, which starts at five; six is the good action."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3, start=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        return np.zeros(2, np.float32), float(action == 6), False, False, {}


def test_a_discrete_space_that_does_not_start_at_zero_is_played_and_learned():
    env = _CountsFromFive()
    run = seqdec.run(seqdec.agents.linear(env), env, 60, seed=0)
    assert set(run.actions.ravel()) <= {0, 1, 2}
    assert np.array_equal(run.rewards == 1, run.actions == 1)
    assert run.rewards[0, 30:].mean() > 0.8


def test_a_compiled_agent_decides_and_learns_as_the_agent_does() -> None:
    env = seqdec.envs.linear()
    agent, key, seen = seqdec.agents.linear(env), jax.random.key(0), np.full(env.observation_space.shape, 0.25, "f4")
    state = agent.init(key)
    for optimize in (True, False):
        fast = seqdec.compiled(agent, optimize=optimize)
        assert int(fast.act(key, fast.init(key), seen).value) == int(agent.act(key, state, seen).value)
        after, its = agent.update(state, seen, 3, 1.0)[0], fast.update(fast.init(key), seen, 3, 1.0)[0]
        jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4), after, its)
        fast.update(its, seen, 4, 0.0)
        assert fast.update._cache_size() == 1


def test_only_an_agent_can_be_compiled() -> None:
    with pytest.raises(TypeError, match="agent must be a seqdec"):
        seqdec.compiled("hilofi")  # pyright: ignore[reportArgumentType]


def test_episodes_of_several_steps_are_warned_of_once_and_bandits_of_our_own_are_not() -> None:
    env = gymnasium.make("FrozenLake-v1", is_slippery=False)
    with pytest.warns(UserWarning, match="FrozenLake-v1 has episodes of several steps.*as one of a bandit") as caught:
        run(toy_agent(), env, 10, seed=3, num_seeds=2)
    assert len(caught) == 1
    run(toy_agent(), gymnasium.make("seqdec/LinearBandit-v0"), 5, seed=0)  # pytest turns warnings into errors
