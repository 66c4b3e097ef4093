"""Tests that every part of a kind passes, as functions for parts of your own."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def check_surrogate(make: Callable[[int], Any]) -> None:
    """Whether `make`, (columns) -> `seqdec.bo.Surrogate`, is a surrogate. Raises AssertionError where it is not.

    It learns a function of two columns from twelve responses; rows of the history beyond them are not read; moments and
    draws are finite and have its dtype; appended responses may be learned by `fit` or by `condition_on`; and what it
    stores has the structure of its state.
    """
    surrogate = make(2)
    generator = np.random.default_rng(0)
    points = generator.random((12, 2))
    values = np.sin(5 * points[:, 0]) + points[:, 1]
    values = (values - values.mean()) / values.std()
    dtype = np.dtype(surrogate.dtype)

    def history(count: int, rest: float = 1e3) -> Any:
        from seqdec.bo import History

        x, y = np.full((16, 2), 0.123), np.full(16, rest)
        x[:count], y[:count] = points[:count], values[:count]
        return History(x.astype(dtype), y.astype(dtype), np.int32(count))

    def moments(state: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        at = surrogate.posterior(state)
        joint, drawn = at.joint(jnp.asarray(points, dtype)), at.draw(jax.random.key(1))(jnp.asarray(points, dtype))
        assert joint.mean.dtype == joint.cov.dtype == drawn.dtype == dtype, "moments and draws have the dtype"
        mean = at.mean(jnp.asarray(points, dtype))
        np.testing.assert_allclose(mean, joint.mean, rtol=1e-3, atol=1e-3, err_msg="mean is that of joint")
        return np.asarray(joint.mean), np.diagonal(joint.cov), np.asarray(drawn)

    with jax.enable_x64(True):
        assert surrogate.growth >= 1, "growth is at least 1"
        key, known = jax.random.key(0), history(12)
        state = surrogate.fit(surrogate.init(key, known), known)
        mean, variances, drawn = moments(state)
        assert np.mean((mean - values) ** 2) < 0.5 * values.var(), "it learns a function"
        assert np.isfinite(drawn).all() and (variances > 0).all(), "draws are finite and variances positive"
        other = moments(surrogate.fit(surrogate.init(key, known), history(12, rest=-7.0)))
        for one, two in zip((mean, variances, drawn), other, strict=True):
            np.testing.assert_array_equal(one, two, "rows beyond the history are not read")
        first = surrogate.fit(surrogate.init(key, known), history(9))
        pending = moments(surrogate.condition_on(first, known))
        assert np.isfinite(pending[0]).all(), "appended responses are learned with equal hyperparameters"
        assert not np.array_equal(pending[0], moments(first)[0]), "appended responses change the belief"
        stored = surrogate.stored(state)
        assert jax.tree.structure(stored) == jax.tree.structure(state), "what is stored has the structure of the state"
        if surrogate.noise_variance is not None:
            assert float(surrogate.noise_variance(state)) >= 0, "the noise has a variance"
