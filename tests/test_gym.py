"""The gymnasium adapters against gymnasium's checker and the functional environments they wrap."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box, Discrete
from gymnasium.utils import seeding
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import seqdec
from seqdec import envs
from seqdec.core import Array, Environment, Key, TimeStep
from seqdec.envs import FunctionalEnv, FunctionalVectorEnv
from seqdec.gymnasium_ids import id_of

IDS = {id_of(name) for name in envs.names()}
IMAGES = np.arange(5, dtype=np.uint8).reshape(5, 1)


def allowed(mask: np.ndarray, generator: np.random.Generator) -> int:
    """An action drawn from those allowed."""
    return int(generator.choice(np.flatnonzero(mask)))


@pytest.mark.sampled(8)
@pytest.mark.filterwarnings("ignore:.*recommend using a symmetric and normalized space")  # boxes are the functions' own
@pytest.mark.filterwarnings("ignore:seqdec/KuaiRec-v0. the log is SYNTHETIC")
@pytest.mark.parametrize("id_", sorted(IDS))
def test_check_env_finds_nothing(id_: str, image_home: Path) -> None:
    options = {"path": str(image_home / "mnist")} if id_ == "seqdec/Idx-v0" else {}
    check_env(gymnasium.make(id_, **options).unwrapped)  # pytest turns warnings into errors


def test_an_id_takes_the_options_of_its_environment() -> None:
    env = gymnasium.make("seqdec/Digits-v0", order="sequential", horizon=3, full_information=True)
    vector = gymnasium.make_vec("seqdec/Digits-v0", num_envs=2, horizon=3, autoreset_mode="SameStep")
    env.reset(seed=0)
    *_, info = env.step(np.int64(0))
    assert info["outcomes"].tolist() == np.eye(10)[0].tolist()  # the first digit is a zero
    assert isinstance(vector, FunctionalVectorEnv) and vector.autoreset_mode is AutoresetMode.SAME_STEP
    with pytest.raises(TypeError, match="ordr"):
        gymnasium.make("seqdec/Digits-v0", ordr="shuffle")


def test_plays_the_functional_environment_on_through_episodes() -> None:
    env = envs.gaussian(availability=0.5, horizon=4)
    adapter = FunctionalEnv(env)
    generator = np.random.default_rng(0)
    key = jax.random.key(seeding.np_random(11)[0].integers(2**32, dtype=np.uint32))
    key, reset_key = jax.random.split(key)
    state, expected = env.reset(reset_key, env.params)
    step = jax.jit(env.step)
    observation, info = adapter.reset(seed=11)
    for t in range(11):
        np.testing.assert_array_equal(observation, expected.observation)
        np.testing.assert_array_equal(info["action_mask"], expected.mask)
        action = allowed(info["action_mask"], generator)
        key, step_key = jax.random.split(key)
        last = info["action_mask"]
        state, timestep = step(step_key, state, jnp.int32(action), env.params)
        observation, reward, terminated, truncated, info = adapter.step(action)
        assert (reward, info["regret"]) == (float(timestep.reward), float(timestep.regret))
        assert terminated == (t % 4 == 3) == bool(timestep.done) and truncated is False
        expected = timestep.observation
        if terminated:
            np.testing.assert_array_equal(info["action_mask"], last)
            observation, info = adapter.reset()
            assert "regret" not in info


def test_the_final_observation_is_the_last_context_and_a_reset_in_mid_episode_starts_afresh() -> None:
    adapter = FunctionalEnv(envs.classification(IMAGES, np.arange(5), order="sequential", horizon=3))
    for _ in range(2):
        seen = [adapter.reset()[0], *(adapter.step(0)[0] for _ in range(3))]
        np.testing.assert_allclose(np.concatenate(seen) * 255, [0, 1, 2, 2], rtol=1e-6)
    adapter.reset()
    adapter.step(0)
    assert adapter.reset()[0] == 0.0


def test_seeds() -> None:
    adapter = FunctionalEnv(envs.linear())
    first, again, other = (adapter.reset(seed=seed)[0] for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    adapter.reset(seed=2**62)
    unseeded = [FunctionalEnv(envs.linear()).reset()[0] for _ in range(2)]
    assert (unseeded[0] != unseeded[1]).any()


def test_a_step_without_reset_or_with_an_action_out_of_range_is_refused() -> None:
    adapter = FunctionalEnv(envs.bernoulli(horizon=1))
    with pytest.raises(ResetNeeded, match="before the first step and after the end"):
        adapter.step(0)
    adapter.reset(seed=0)
    for action in (-1, 5, 0.5, np.float32(1), None, "0", np.zeros(1, int)):
        with pytest.raises(ValueError, match=r"action .* is not in Discrete\(5\)"):
            adapter.step(action)
    assert adapter.step(0)[4].keys() == {"regret"}  # and no harm done
    with pytest.raises(ResetNeeded):
        adapter.step(0)


def test_masked_out_action_is_refused() -> None:
    adapter = FunctionalEnv(envs.bernoulli(availability=0.0))
    mask = adapter.reset(seed=0)[1]["action_mask"]
    (awake,) = np.flatnonzero(mask)
    with pytest.raises(ValueError, match=rf"action {(awake + 1) % 5} is masked out; allowed now: \[{awake}\]"):
        adapter.step(int((awake + 1) % 5))


def test_discrete_actions_that_do_not_start_at_zero() -> None:
    env = envs.gaussian((1.0, 2.0, 3.0), std=0.0)._replace(action_space=Discrete(3, start=5))
    adapter, vector = FunctionalEnv(env), FunctionalVectorEnv(env, 3)
    adapter.reset(seed=0)
    vector.reset(seed=0)
    assert [adapter.step(action)[1] for action in (5, 6, 7)] == vector.step([5, 6, 7])[1].tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match="is not in"):
        adapter.step(4)


def test_box_actions() -> None:
    def step(key: Key, state: Array, action: Array, params: Array) -> tuple[Array, TimeStep]:
        return state, TimeStep(state, -jnp.sum((action - params) ** 2), jnp.float32(jnp.nan), jnp.bool_(False))

    space = Box(-1.0, 1.0, (2,), np.float32)
    env = Environment(lambda key, params: (jnp.ones(1), jnp.ones(1)), step, jnp.array([0.5, 0.0]), space, space, "bowl")
    env = env._replace(observation_space=Box(0.0, 1.0, (1,), np.float32))
    adapter, vector = FunctionalEnv(env), FunctionalVectorEnv(env, 2)
    adapter.reset(seed=0)
    vector.reset(seed=0)
    assert adapter.step(np.array([0.5, 1.0], np.float32))[1] == -1.0
    assert vector.step(np.array([[0.5, 1.0], [0.5, 0.0]], np.float32))[1].tolist() == [-1.0, 0.0]
    with pytest.raises(ValueError, match="is not in Box"):
        adapter.step(np.array([0.5, 2.0], np.float32))


def test_copies_play_as_single_environments_with_following_seeds() -> None:
    env = envs.gaussian(availability=0.5, horizon=3)
    vector, single = FunctionalVectorEnv(env, 2), FunctionalEnv(env)
    _, infos = vector.reset(seed=7)
    steps = []
    for _ in range(3):
        actions = infos["action_mask"].argmax(axis=1)
        _, rewards, ends, _, infos = vector.step(actions)
        steps.append((actions, rewards, ends, infos["regret"]))
    assert ends.all() and vector.step([0, 0])[1].tolist() == [0, 0]  # the reset that is due
    for place in range(2):
        single.reset(seed=7 + place)
        for actions, rewards, ends, regret in steps:
            _, reward, end, _, info = single.step(actions[place])
            assert (reward, end, info["regret"]) == (rewards[place], ends[place], regret[place])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda env: FunctionalVectorEnv(env, 0), ValueError, "num_envs must be at least 1; got 0"),
        (lambda env: FunctionalVectorEnv(env, 2, autoreset_mode="Never"), ValueError, "Never"),
        (lambda env: FunctionalVectorEnv("digits", 2), TypeError, "env must be a seqdec.core.Environment.* got str"),
        (lambda env: FunctionalEnv(None), TypeError, "env must be a seqdec.core.Environment.* got NoneType"),
        (lambda env: vector_of(env).step([0]), ValueError, r"actions must have shape \(2,\); got \(1,\)"),
        (lambda env: vector_of(env).step([0, 9]), ValueError, r"action .*9.* is not in Discrete\(5\)"),
        (lambda env: vector_of(env).reset(seed=-1), ValueError, "seed must be an integer from 0 to"),
    ],
)
def test_bad_input_is_refused(call: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        call(envs.bernoulli())


def vector_of(env: Environment) -> FunctionalVectorEnv:
    vector = FunctionalVectorEnv(env, 2)
    vector.reset(seed=0)
    return vector


def test_import_of_the_package_registers_the_ids() -> None:
    script = "import gymnasium, seqdec; print(gymnasium.make('seqdec/BernoulliBandit-v0').reset(seed=0))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0 and "array([1.]" in done.stdout, done.stderr


def test_unknown_rewards_are_zero_and_said_to_be_unknown(image_home: Path) -> None:
    env = gymnasium.make("seqdec/OpenBandit-v0")
    vector = gymnasium.make_vec("seqdec/OpenBandit-v0", num_envs=2)
    env.reset(seed=0)
    vector.reset(seed=0)
    functional = envs.open_bandit()
    shown = np.asarray(functional.params.item)
    for step, unknown in enumerate([False, True, True, False]):
        action = (int(shown[step]) + unknown) % int(functional.action_space.n)  # pyright: ignore[reportAttributeAccessIssue]
        _, reward, _, _, info = env.step(action)
        _, rewards, _, _, infos = vector.step(np.array([action, action]))
        assert info.get("unknown_reward", False) is unknown
        assert np.asarray(infos.get("unknown_reward", np.zeros(2, bool))).tolist() == [unknown] * 2
        assert np.isfinite([reward, *rewards]).all()


def test_the_run_of_an_adapter_knows_which_rewards_are_unknown(image_home: Path) -> None:
    env = envs.open_bandit()
    agent = seqdec.agents.linear(env)
    run = seqdec.run(agent, FunctionalEnv(env), 40, seed=0)
    shown = np.asarray(env.params.item)[np.arange(40) % len(env.params.item)]
    np.testing.assert_array_equal(np.isnan(run.rewards[0]), run.actions[0] != shown)


def test_an_id_without_what_it_needs_says_so() -> None:
    with pytest.raises(TypeError, match=r"write gymnasium.make\('seqdec/Idx-v0', path=...\); see seqdec.envs.idx"):
        gymnasium.make("seqdec/Idx-v0")


def test_a_synthetic_log_is_announced() -> None:
    with pytest.warns(UserWarning, match=r"seqdec/KuaiRec-v0: the log is SYNTHETIC.*pass data="):
        gymnasium.make("seqdec/KuaiRec-v0")


# Environments of others


class Given(gymnasium.Env):
    """An environment that returns what it is given."""

    def __init__(self, observations: gymnasium.Space, actions: gymnasium.Space, seen: Any, reward: Any = 1.0) -> None:
        self.observation_space, self.action_space, self.seen, self.reward = observations, actions, seen, reward
        self.played: list[Any] = []

    def _observation(self) -> Any:
        return self.seen(len(self.played)) if callable(self.seen) else self.seen

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        super().reset(seed=seed)
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        self.played.append(action)
        return self._observation(), self.reward, True, False, {}


TWO = Box(-1, 1, (2,))


def run_of(env: gymnasium.Env, steps: int = 3, agent: Any = seqdec.agents.random) -> seqdec.results.Run:
    return seqdec.run(agent(env), env, steps, seed=0, diagnostics=("observation",), progress=False)


CONTAINERS: dict[str, Any] = {
    "list": [0.5, 0.25],
    "tuple": (0.5, 0.25),
    "float16": np.array([0.5, 0.25], np.float16),
    "float64": np.array([0.5, 0.25]),
    "big-endian": np.array([0.5, 0.25], ">f4"),
    "strided": np.array([0.5, 9, 0.25, 9])[::2],
    "jax": jnp.array([0.5, 0.25]),
    "series": pd.Series([0.5, 0.25], index=[1, 0]),
    "integers first": lambda step: [0.5, 0.25] if step else np.array([0, 0]),
    "bools first": lambda step: [0.5, 0.25] if step else [False, True],
}


def test_observations_in_any_container() -> None:
    for container, value in CONTAINERS.items():
        seen = run_of(Given(TWO, Discrete(2), value)).diagnostics["observation"]
        assert seen.dtype == np.float32 and seen[0, 1:].tolist() == [[0.5, 0.25]] * 2, container


def test_observations_of_other_spaces_in_any_container() -> None:
    for space, values in (
        (Box(-1, 1, ()), (0.5, np.float64(0.5), np.array(0.5), jnp.float32(0.5))),
        (Discrete(3, start=1), (2, np.uint8(2), np.array(2), jnp.int32(2))),
        (Box(0, 255, (1,), np.uint8), ([2], np.array([2], np.int64), np.array([2.0]))),
    ):
        for value in values:
            seen = run_of(Given(space, Discrete(2), value), 1).diagnostics["observation"]
            assert seen.ravel().tolist() == [float(np.ravel(value)[0])]
    ids, features = np.array([3, 4], np.int64), [[0.5], [0.25]]
    space = spaces.Dict(video=Box(0, 9, (2,), np.int32), x=Box(-1, 1, (2, 1)))
    found = run_of(Given(space, Discrete(2), {"x": features, "video": ids}), 1).diagnostics
    assert found["observation.video"].tolist() == [[[3, 4]]] and found["observation.x"].tolist() == [[features]]


@pytest.mark.parametrize(
    ("space", "seen", "error", "message"),
    [
        (TWO, [0.1], ValueError, r"observation must have shape \(2,\).*got shape \(1,\)"),
        (TWO, [[1, 2], [1]], ValueError, "rows of different lengths"),
        (TWO, ["a", "b"], TypeError, "observation must hold real numbers"),
        (TWO, lambda step: np.zeros(2 + step), ValueError, r"got shape \(3,\)"),
        (Discrete(3), 1.0, TypeError, "observation must be an integer, a member of"),
        (
            Box(0, 9, (1,), int),
            lambda step: [step / 2] if step else [0],
            ValueError,
            r"got \[0\.5\]: declare a Box of floats",
        ),
        (
            Box(0, 255, (1,), np.uint8),
            lambda step: np.array([step], np.uint8) if step < 2 else [300],
            ValueError,
            "300",
        ),
        (spaces.Dict(x=Box(-1, 1, (2, 1))), {"y": 1}, TypeError, r"must be a dict with the entries \['x'\]"),
    ],
)
def test_observations_that_do_not_fit_are_refused(space: Any, seen: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        run_of(Given(space, Discrete(2), seen))


def test_rewards_that_are_not_numbers_are_refused() -> None:
    for reward in (None, "1", [1.0, 2.0], 1j, {}):
        with pytest.raises(TypeError, match="reward must be a number; got"):
            run_of(Given(TWO, Discrete(2), [0, 0], reward))


def test_the_api_before_gymnasium_is_called_so() -> None:
    def old(**methods: Any) -> gymnasium.Env:
        return type("Old", (Given,), methods)(TWO, Discrete(2), [0.0, 0.0])

    for env, message in (
        (old(reset=lambda self, **seed: np.zeros(3)), r"reset must return \(observation, info\).*got ndarray"),
        (old(reset=lambda self, **seed: np.zeros(2)), r"reset must return \(observation, info\)"),
        (old(reset=lambda self, **seed: ([0, 0], [0, 0])), "reset must return .* got a tuple of 2"),
        (old(reset=lambda self: ([0, 0], {})), "reset must take the keyword seed"),
        (old(step=lambda self, action: ([0, 0], 1.0, True, {})), "step must return .*truncated.* got a tuple of 4"),
        (old(step=lambda self, action: None), "step must return .* got NoneType"),
    ):
        with pytest.raises(ValueError, match=f"Old instance.*{message}.*API before Gymnasium 0.26"):
            run_of(env)


@pytest.mark.parametrize(
    "space",
    [Box(-2, 2, (2,), np.int8), Box(0, 3, (), np.uint8), Box(0, 1, (1,), np.bool_), Box(-1, 1, (1,), np.float64)],
)
def test_a_box_action_is_executed_as_it_is_recorded(space: Box) -> None:
    env = Given(TWO, space, [0.0, 0.0])
    run = run_of(env, 40)
    assert all(space.contains(action) for action in env.played)
    np.testing.assert_array_equal(run.actions[0], np.stack(env.played))
    if run.actions.dtype.kind != "f":
        assert run.actions.min() == space.low.min() and run.actions.max() == space.high.max()  # the ends, too


def test_integers_of_a_box_are_learned_on_the_device_and_in_a_service(tmp_path: Path) -> None:
    space = Box(-2, 2, (1,), np.int32)

    def step(key: Key, state: Array, action: Array, params: Array) -> tuple[Array, TimeStep]:
        assert action.dtype == jnp.int32
        return state, TimeStep(state, jnp.float32(action[0] == 2), jnp.float32(jnp.nan), jnp.bool_(False))

    env = Environment(lambda key, params: (jnp.ones(2), jnp.ones(2)), step, jnp.ones(1), TWO, space, "whole")
    run = seqdec.run(seqdec.agents.linear(env), env, 60, seed=0, progress=False)
    assert run.actions.dtype == np.int32 and (run.actions[0, -20:] == 2).all()
    with seqdec.OnlineAgent(seqdec.agents.linear, env, seed=0, folder=tmp_path) as service:
        for _ in range(3):
            decision = service.decide([1.0, 1.0])
            assert space.contains(decision.action)
            service.learn(decision.token, decision.action[0])
        state = service.state
    with seqdec.OnlineAgent(seqdec.agents.linear, env, seed=0, folder=tmp_path) as service:
        jax.tree.map(np.testing.assert_array_equal, service.state, state)


def test_floats_for_a_box_of_integers_are_refused() -> None:
    env = Given(TWO, Box(-2, 2, (1,), np.int32), [0.0, 0.0])
    agent = seqdec.agents.random(env)
    rounding = agent._replace(act=lambda *given: agent.act(*given)._replace(value=jnp.ones(1)))
    with pytest.raises(ValueError, match="wants integers; the agent plays float32: round them in its act"):
        run_of(env, agent=lambda env: rounding)
    with pytest.raises(ValueError, match="a Box of integers must lie within"):
        seqdec.agents.random(Given(TWO, Box(0, 2**30, (1,), np.int64), [0.0, 0.0]))


ACTIONS = (
    spaces.MultiDiscrete([2, 3], start=[1, -1]),
    spaces.MultiBinary([2, 2]),
    spaces.Tuple((Discrete(2), Discrete(2))),
    spaces.Dict(a=Discrete(2)),
    spaces.Text(2),
    spaces.Sequence(Discrete(2)),
    Box(-np.inf, 1.0, (1,)),
)


@pytest.mark.parametrize("space", ACTIONS, ids=str)
def test_the_remedy_for_other_actions_works(space: gymnasium.Space) -> None:
    env = Given(TWO, space, [0.0, 0.0])
    with pytest.raises((TypeError, ValueError), match="actions must be Discrete or Box, and bounded") as caught:
        seqdec.agents.random(env)
    found = re.fullmatch(r".* with (gymnasium\..*?\)\)?)(?:, where choices = (.*))?", str(caught.value), re.DOTALL)
    assert found is not None
    call, listed = found.groups()
    space.seed(0)
    if listed is not None and listed.startswith("numpy"):
        choices = eval(listed, {"numpy": np})
        assert len({str(choice) for choice in choices}) == len(choices)
    else:
        choices = [space.sample() for _ in range(3)]
    names = {
        "gymnasium": gymnasium,
        "env": env,
        "choices": choices,
        "low": -np.ones(1, np.float32),
        "high": np.ones(1, np.float32),
    }
    run_of(eval(call, names))
    for action in env.played:
        assert space.contains(np.asarray(action, space.dtype) if space.dtype in (np.int64, np.int8) else action)


OBSERVATIONS = (
    spaces.MultiDiscrete([2, 3]),
    spaces.Tuple((Discrete(2), TWO)),
    spaces.Dict(a=Discrete(2), b=TWO),
    spaces.Text(3),
    spaces.Sequence(Discrete(2)),
    spaces.Graph(TWO, None),
)


@pytest.mark.filterwarnings("ignore:.*")  # of Gymnasium's own wrappers
@pytest.mark.parametrize("space", OBSERVATIONS, ids=str)
def test_the_remedy_for_other_observations_works(space: gymnasium.Space) -> None:
    space.seed(0)
    env = Given(space, Discrete(2), lambda step: space.sample())
    with pytest.raises(TypeError, match=r"got .*gymnasium\.wrappers") as caught:
        seqdec.agents.random(env)
    call = re.search(r"gymnasium\.wrappers\..*\)$", str(caught.value))
    assert call is not None and ("Flatten" in call[0]) == space.is_np_flattenable
    names = {"gymnasium": gymnasium, "env": env, "function": lambda seen: np.zeros(2, np.float32), "box": TWO}
    run_of(eval(call[0], names))
