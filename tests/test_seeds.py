"""Seeds: the same rule wherever one is taken; below 2**32 a seed is the key that JAX makes of it."""

from typing import Any

import jax
import numpy as np
import pytest

import seqdec
from seqdec import bo, data, ope, optim
from seqdec.boundary import checks
from seqdec.envs import objectives

LARGE = 2**40
WORDS = r"seed must be an integer from 0 to 2\*\*63 - 1; got "


def log() -> ope.Log:
    return ope.make_log(action=np.arange(12) % 2, reward=np.linspace(0, 1, 12), propensity=np.full(12, 0.5))


def drawn(result: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(result)]


def of_run(seed: Any) -> Any:
    env = seqdec.envs.bernoulli([0.2, 0.8])
    result = seqdec.run(seqdec.agents.random(env), env, 20, seed=seed, progress=False)
    return result.actions, result.rewards


def on_host(seed: Any) -> Any:
    env = seqdec.envs.FunctionalEnv(seqdec.envs.bernoulli([0.2, 0.8]))
    result = seqdec.run(seqdec.agents.random(env), env, 20, seed=seed, progress=False)
    return result.actions, result.rewards


def of_service(seed: Any) -> Any:
    env = seqdec.envs.linear(np.eye(5, 4).tolist())
    with seqdec.OnlineAgent(seqdec.agents.linear, env, seed=seed) as agent:
        return [agent.decide(np.ones(4)).action for _ in range(20)]


def of_optimizer(seed: Any) -> Any:
    return seqdec.minimize(lambda x: float(x[0]), [(0, 1)], n_calls=2, seed=seed).x


def of_environment(seed: Any) -> Any:
    env = seqdec.envs.FunctionalEnv(seqdec.envs.linear())
    return env.reset(seed=seed)[0]


def of_copies(seed: Any) -> Any:
    env = seqdec.envs.FunctionalVectorEnv(seqdec.envs.linear(), 2)
    return env.reset(seed=[seed, None] if seed is None else seed)[0]


def of_matrices(seed: Any) -> Any:
    params = {"w": np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)}
    optimizer = optim.apollo(0.1, rank=1, seed=seed)
    return optimizer.update(params, optimizer.init(params), params)[0]


def of_matrices_that_switch(seed: Any) -> Any:
    return optim.alice(0.1, rank=1, seed=seed).init({"w": np.ones((3, 4), np.float32)})


def of_sampler(seed: Any) -> Any:
    optuna = pytest.importorskip("optuna", reason="Optuna is not installed")
    from seqdec.integrations.optuna import Sampler

    study = optuna.create_study(sampler=Sampler(seed=seed))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    return study.trials[0].params


TAKERS = {
    "run": of_run,
    "run_on_host": on_host,
    "OnlineAgent": of_service,
    "minimize": of_optimizer,
    "BayesianOptimizer": lambda seed: bo.BayesianOptimizer([(0.0, 1.0)], seed=seed).ask(),
    "FunctionalEnv": of_environment,
    "FunctionalVectorEnv": of_copies,
    "drawnn": lambda seed: objectives.drawnn(3, seed=seed)(np.ones(3)),
    "black_box": lambda seed: objectives.noisy_branin().black_box(seed)(np.ones(2)),
    "apollo": of_matrices,
    "alice": of_matrices_that_switch,
    "evaluate": lambda seed: ope.evaluate(log(), np.full((12, 2), 0.5), seed=seed, samples=9)["low"].to_numpy(),
    "replay": lambda seed: ope.Replay().terms(ope.evidence(log(), np.tile([0.3, 0.7], (12, 1)), seed=seed))[1],
    "write_kuairec": lambda seed: data.synthetic_kuairec(users=3, videos=30, seed=seed).rewards.mean(),
    "sampler": of_sampler,
}
OPTIONAL = ("minimize", "FunctionalEnv", "FunctionalVectorEnv", "sampler")


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", TAKERS)
def test_any_integer_is_a_seed_and_large_ones_differ_from_small_ones(name: str) -> None:
    take = TAKERS[name]
    large = drawn(take(LARGE))
    for same in (np.int64(LARGE), np.array(LARGE), np.array(LARGE, ">u8")):
        for one, other in zip(large, drawn(take(same)), strict=True):
            np.testing.assert_array_equal(one, other)
    for one, other in zip(drawn(take(3)), drawn(take(jax.numpy.int32(3))), strict=True):
        np.testing.assert_array_equal(one, other)
    if name != "alice":  # its switches come after many steps
        assert any((one != other).any() for one, other in zip(large, drawn(take(LARGE % 2**32)), strict=True))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", TAKERS)
@pytest.mark.parametrize(
    ("seed", "error"),
    [(-1, ValueError), (2**63, ValueError), (True, TypeError), (1.0, TypeError), ("0", TypeError), (None, TypeError)],
)
def test_everything_else_is_refused_in_the_same_words(name: str, seed: Any, error: type[Exception]) -> None:
    if seed is None and name in OPTIONAL:
        return
    with pytest.raises(error, match=WORDS + str(seed).replace("0", "'?0'?" if seed == "0" else "0")):
        TAKERS[name](seed)


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**32 - 1])
def test_small_seeds_are_the_keys_of_jax(seed: int) -> None:
    own, other = (jax.random.key_data(jax.random.key(one)) for one in (checks.seed_bits(seed), seed))
    np.testing.assert_array_equal(own, other)


def test_large_seeds_have_keys_of_their_own() -> None:
    words = {
        int(checks.seed_bits(seed)) for seed in [*range(100), *range(2**32, 2**32 + 100), *range(2**62, 2**62 + 100)]
    }
    assert len(words) == 300
