"""The surrogates that are baselines: networks trained by AdamW, LoFi, a Gaussian process on a buffer."""

from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from seqdec import agents, filters, kernels, likelihoods, models
from seqdec.bo.surrogates import contract as surrogates
from seqdec.bo.surrogates.contract import History

DIM, COUNT, ROWS = 3, 7, 16
FEATURES, SCALE = (4, 4), 0.5
X = np.random.default_rng(0).random((ROWS, DIM)).astype(np.float32)
Y = np.where(np.arange(ROWS) < COUNT, np.sin(5 * X[:, 0]) + X[:, 1], 0).astype(np.float32)
NEW = jnp.asarray(np.random.default_rng(1).random((6, DIM)), jnp.float32)


class Spaces(NamedTuple):
    """A context of one column, an action of two: together a row of the cube."""

    observation_space: gymnasium.Space = spaces.Box(0, 1, (1,), np.float32)
    action_space: gymnasium.Space = spaces.Box(0, 1, (2,), np.float32)


def history(count: int, dtype: Any = np.float32) -> History:
    return History(X.astype(dtype), Y.astype(dtype), np.int32(count))


def network() -> models.Network:
    plain = models.network(models.MLP(1, FEATURES), jnp.zeros(DIM))
    return plain._replace(apply=lambda params, x: plain.apply(params, SCALE * (2 * x - 1)))


@pytest.mark.parametrize(
    ("name", "memory"), [("last_layer_laplace", {"buffer": 3}), ("on_vbll", {"buffer": 3}), ("vbll", {})]
)
def test_a_trained_surrogate_is_the_agent_with_the_same_rows(name: str, memory: dict[str, int]) -> None:
    settings: dict[str, Any] = {"learning_rate": 1e-2, "inner_steps": 3, "noise_variance": 0.1, **memory}
    surrogate = surrogates.make(name, DIM, features=FEATURES, scale=SCALE, **settings)
    whole = {} if memory else {"batch_size": None, "capacity": ROWS}
    agent = agents.make(name, Spaces(), model=network(), policy="thompson", **settings, **whole)
    key = jax.random.key(3)
    state, learned, update = surrogate.init(key, history(0)), agent.init(key), jax.jit(agent.update)
    for count in (5, COUNT):  # the second time from the state before
        state = surrogate.fit(state, history(count))
    for x, y in zip(X[:COUNT], Y[:COUNT], strict=True):
        learned, info = update(learned, x[:1], x[1:], y)
        assert not info.rejected
    for a, b in zip(jax.tree.leaves((state.learned.params, state.learned.belief)),
                    jax.tree.leaves((learned.params, learned.belief)), strict=True):  # fmt: skip
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    posterior = surrogate.posterior(state)
    at, draws = posterior.joint(NEW), jax.vmap(lambda key: posterior.draw(key)(NEW))(jax.random.split(key, 4000))
    std = np.sqrt(np.diag(at.cov))
    assert std.min() > 0
    np.testing.assert_allclose(draws.mean(0), at.mean, atol=6 * std.max() / 4000**0.5)
    np.testing.assert_allclose(draws.std(0), std, rtol=6 / 8000**0.5)


def test_lofi_has_a_prior_for_each_kind_of_layer() -> None:
    options: dict[str, Any] = {"initial_std_hidden": 0.2, "initial_std_last": 0.7}
    common: dict[str, Any] = {"features": FEATURES, "scale": SCALE, "noise_variance": 0.1}
    low, full = (
        surrogates.make(name, DIM, rank=rank, **options, **common) for name, rank in (("lofi", 2), ("hilofi_mlp", 36))
    )
    key = jax.random.key(0)
    prior = [surrogate.posterior(surrogate.init(key, history(0))).joint(NEW) for surrogate in (low, full)]
    np.testing.assert_allclose(prior[0].cov, prior[1].cov, rtol=1e-4)
    rows = models.per_candidate(network())
    wrong = filters.lofi(rows, likelihoods.gaussian(0.1), rank=2, initial_std=jnp.ones(3))
    with pytest.raises(ValueError, match=r"one for each of the 41 parameters; got shape \(3,\)"):
        wrong.init(key, rows.init(key))


def test_a_buffered_process_is_conditioned_on_the_last_responses() -> None:
    surrogate = surrogates.make("buffered_gp", DIM, buffer=4, length_scale=0.3, variance=0.5, noise_variance=0.01)
    with jax.enable_x64(True):
        state = surrogate.init(jax.random.key(0), history(0, np.float64))
        for count in (2, COUNT):
            state = surrogate.fit(state, history(count, np.float64))
            last = slice(max(0, count - 4), count)
            x, new = X[last].astype(float), np.asarray(NEW, float)

            def cov(a: Any, b: Any) -> np.ndarray:
                return 1 + 0.5 * np.asarray(kernels.matern52(jnp.asarray(a / 0.3), jnp.asarray(b / 0.3)))

            gain = cov(new, x) @ np.linalg.inv(cov(x, x) + (0.01 + 1e-8) * np.eye(len(x)))
            at = surrogate.posterior(state).joint(jnp.asarray(new))
            np.testing.assert_allclose(at.mean, gain @ Y[last], rtol=1e-8)
            np.testing.assert_allclose(at.cov, cov(new, new) - gain @ cov(x, new), atol=1e-9)
