"""`seqdec.envs.check` finds what is wrong with an environment, and `run` says the same words."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import seqdec
from seqdec import envs, testing
from seqdec.core import Environment, Masked, TimeStep
from tests.toys import toy_agent


@pytest.mark.sampled(16)
@pytest.mark.filterwarnings("ignore:environment .open-bandit.*none of 16 rewards is known")
@pytest.mark.parametrize("name", envs.names())
def test_every_environment_passes(name: str, image_home: Path) -> None:
    options = {"path": str(image_home / "mnist")} if name == "idx" else {}
    testing.check_environment(envs.make(name, **options))


def reset(key: Any, params: Any) -> Any:
    return jnp.float32(0), jnp.zeros(2)


def step(key: Any, state: Any, action: Any, params: Any) -> Any:
    reward = params[action] + jax.random.normal(key)
    return state + 1, TimeStep(jax.random.uniform(key, (2,)), reward, params.max() - params[action], jnp.bool_(False))


def own(**changes: Any) -> Environment:
    """A bandit with three arms and one fault."""
    space = spaces.Box(-5, 5, (2,))
    return Environment(reset, step, jnp.arange(3.0), space, spaces.Discrete(3), "own")._replace(**changes)


def stepping(change: Callable[[Any, TimeStep], Any]) -> dict[str, Any]:
    """A step whose result is changed."""
    return {"step": lambda key, state, action, params: change(*step(key, state, action, params))}


def with_field(**fields: Callable[[Any], Any]) -> dict[str, Any]:
    """A step with other fields of the time step."""
    return stepping(lambda s, t: (s, t._replace(**{name: change(getattr(t, name)) for name, change in fields.items()})))


DRAWS, CALLS = np.random.default_rng(0), itertools.count()
TABLE = np.arange(20_000.0, dtype=np.float32)


def branching(key: Any, state: Any, action: Any, params: Any) -> Any:
    return step(key, state, 0 if action > 0 else 1, params)


# What `run` refuses too, in the same words.
FORM: dict[str, tuple[dict[str, Any], str]] = {
    "reset without a state": ({"reset": lambda k, p: jnp.zeros(2)}, r"must return \(state, observation\).* float32"),
    "reset with info": ({"reset": lambda k, p: (*reset(k, p), {})}, r"reset must return .* a tuple \(.*, dict\)"),
    "masked alone": ({"reset": lambda k, p: Masked(jnp.zeros(2), jnp.ones(3, bool))}, "it returns Masked"),
    "step without a state": (stepping(lambda s, t: t), r"step must return \(state, .*TimeStep.* returns TimeStep"),
    "plain step": (stepping(lambda s, t: (s, *t)), "step must return"),
    "four values": (stepping(lambda s, t: (s, tuple(t[:4]))), r"step must return .*a tuple \(float32"),
    "no step": ({"step": lambda k, s, a, p: None}, "step must return .*NoneType"),
    "vector of rewards": (with_field(reward=lambda r: jnp.ones(3) * r), "one number.*shape .3,.*outcomes"),
    "no regret": (with_field(regret=lambda r: None), "regret must be one number.*NoneType: NaN where it is unknown"),
    "short outcomes": (with_field(outcomes=lambda o: jnp.ones(2)), "outcomes must hold the response of every action"),
    "longer observation": (with_field(observation=lambda o: jnp.ones(3)), "the observation must keep its shapes"),
    "integers first": ({"reset": lambda k, p: (jnp.float32(0), jnp.zeros(2, int))}, "is int32.*and float32"),
    "another state": (stepping(lambda s, t: (jnp.int32(s), t)), "the state must keep .* is float32 .* and int32"),
    "grown state": (stepping(lambda s, t: ({"step": s}, t)), "the state must keep .*missing"),
    "mask later": (with_field(observation=lambda o: Masked(o, jnp.ones(3, bool))), "the observation must keep"),
    "a list": ({"reset": lambda k, p: (jnp.float32(0), [0.0, 0.0])}, "the observation must keep"),
    "if": ({"step": branching}, "step cannot be compiled.*jax.lax.cond in place of if"),
    "numpy": (with_field(reward=lambda r: np.sqrt(np.asarray(r))), "cannot be compiled.*jax.numpy in place of numpy"),
    "float()": (with_field(reward=float), "step cannot be compiled"),
    "actions": ({"action_space": spaces.MultiDiscrete([2, 2])}, "action_space must be Discrete or a bounded Box"),
}  # fmt: skip
# What goes unnoticed in a run.
SENSE: dict[str, tuple[dict[str, Any], str]] = {
    "shape": ({"observation_space": spaces.Box(-5, 5, (3,))}, r"an array of shape \(3,\).*it is float32 of"),
    "numpy's random numbers": (with_field(reward=lambda r: r + DRAWS.normal()), "equal keys .*when it is traced again"),
    "a count outside": (with_field(reward=lambda r: r + next(CALLS)), "equal keys .*when it is traced again"),
    "integer reward": (with_field(reward=jnp.int32), r"reward must be float32; it is int32 of shape \(\)"),
    "number for done": (with_field(done=lambda d: 0), "done must be bool; it is int"),
    "integer observations": (
        {"reset": lambda k, p: (jnp.float32(0), jnp.zeros(2, int)), **with_field(observation=lambda o: o.astype(int))},
        "the observation must be float32; it is int32",
    ),
    "outside": (with_field(observation=lambda o: o + 5), r"the observation must lie in Box\(-5.*widen"),
    "not finite": (with_field(observation=lambda o: o / 0), "the observation must lie in Box"),
    "infinite": (with_field(reward=lambda r: r / 0), "a reward must be finite, or NaN"),
    "negative regret": (with_field(regret=lambda r: r - 1), "a regret must be at least 0, or NaN .*got -1"),
    "impossible mask": (
        {
            "reset": lambda k, p: (jnp.float32(0), Masked(jnp.zeros(2), jnp.zeros(3, bool))),
            **with_field(observation=lambda o: Masked(o, jnp.ones(3, bool))),
        },
        "a mask must allow at least one action",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [*FORM, *SENSE])
def test_a_fault_is_found(name: str) -> None:
    changes, message = {**FORM, **SENSE}[name]
    with pytest.raises((ValueError, TypeError), match=f"environment 'own': .*{message}"):
        envs.check(own(**changes))


@pytest.mark.parametrize("name", ["reset without a state", "plain step", "longer observation", "another state", "if"])
def test_a_run_and_an_adapter_refuse_what_they_cannot_play_in_the_same_words(name: str) -> None:
    changes, message = FORM[name]
    with pytest.raises((ValueError, TypeError), match=f"environment 'own': .*{message}"):
        seqdec.run(toy_agent(), own(**changes), 2, seed=0, progress=False)
    with pytest.raises((ValueError, TypeError), match=f"environment 'own': .*{message}"):
        envs.FunctionalEnv(own(**changes))


def test_what_is_right_passes() -> None:
    envs.check(own())
    envs.check(own(**with_field(regret=lambda r: jnp.float32(jnp.nan), outcomes=lambda o: jnp.ones(3))))
    python = stepping(
        lambda s, t: (s, t._replace(regret=float("nan"), done=False))
    )  # numbers of Python are of no dtype
    envs.check(own(**python))
    seqdec.run(toy_agent(), own(**python), 2, seed=0, progress=False)


def test_constants_and_unknown_rewards_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="20,000 numbers that its functions close over .* pass them in params"):
        envs.check(own(**with_field(reward=lambda r: r + jnp.asarray(TABLE)[jnp.int32(r) % 9])))
    with pytest.warns(UserWarning, match="none of 16 rewards is known"):
        envs.check(own(**with_field(reward=lambda r: jnp.float32(jnp.nan))))


def test_an_error_of_the_environment_keeps_its_traceback_and_says_where() -> None:
    with pytest.raises(KeyError, match="nothing") as caught:
        seqdec.run(toy_agent(), own(step=lambda k, s, a, p: {}["nothing"]), 2, seed=0, progress=False)
    assert caught.value.__notes__[-1] == "while step of the environment 'own' was traced"


def test_what_is_not_for_agents_is_refused() -> None:
    one_sided: Any = own(action_space=spaces.Box(-np.inf, 1, ()), step=lambda k, s, a, p: step(k, s, 0, p))
    wrong: list[tuple[Any, str]] = [
        (one_sided, "must be bounded"),
        (own(observation_space=spaces.MultiBinary(2)), "observation_space must be Box, Discrete or a Dict"),
        ("own", "env must be a seqdec.core.Environment.* got str"),
        (gymnasium.Env(), r"check it with gymnasium\.utils\.env_checker\.check_env"),
    ]
    for env, message in wrong:
        with pytest.raises(TypeError, match=message):
            envs.check(env)
