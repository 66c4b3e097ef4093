"""Tests that every part of a kind passes, as functions for parts of your own."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seqdec import ope
from seqdec.envs import check as check_environment
from seqdec.ope import ContinuousLog, Estimator, Evidence, Log, SlateLog, Terms

__all__ = ["check_environment", "check_estimator", "check_surrogate"]


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


ROWS = 60
"""Of the logs on which estimators are tried."""


def check_estimator(make: Callable[[], Estimator]) -> None:
    """Try an estimator on a log of 60 rows of the kind that it is for.

    Terms must be finite numbers of each row, equal when they are computed again, and leave the evidence as it was. What
    is not among its `needs` may be missing without a difference; `extended` terms of a row do not depend on the others.

    Args:
        make: returns the configured estimator, as its class does; arrays among its settings must fit 60 rows, three
            actions.

    Raises:
        AssertionError: in what way it breaks the contract.
    """
    estimator = make()
    assert isinstance(estimator, Estimator), f"{estimator!r} must be a seqdec.ope.Estimator"
    name, given = estimator.name, _evidence(estimator.log)
    assert make().name == name, f"{name}: equal settings must give equal names"
    before = _arrays(given)
    terms = estimator.terms(given)
    for part in terms:
        assert isinstance(part, np.ndarray) and len(part) == ROWS, f"{name}: terms must have one row for each row"
        assert np.isfinite(part).all(), f"{name}: terms must be finite where the log supports the policy"
    assert terms.numerator.shape == terms.denominator.shape, f"{name}: numerators and denominators must have one shape"
    assert np.isfinite(terms.point).all(), f"{name}: the estimate and its standard error must be finite"
    assert _same(terms, estimator.terms(given)), f"{name}: terms must be a function of the evidence: use its seed"
    assert all(map(np.array_equal, before, _arrays(given))), f"{name}: terms must not change the evidence"
    for other in estimator.references(given):
        assert isinstance(other, Estimator) and other.name != name, f"{name}: references must be other estimators"
    if isinstance(given, Evidence):
        _check_needs(estimator, given, terms)


def _check_needs(estimator: Estimator, given: Evidence, terms: Terms) -> None:
    name, rows = estimator.name, np.arange(0, ROWS, 2)
    nothing = given.target._replace(probabilities=np.zeros((0, 3)))
    batches = given._replace(
        log=given.log._replace(context=np.zeros((ROWS, 0)), action_features=None),
        target=nothing,
        predicted=given.predicted and given.predicted._replace(rewards=nothing.probabilities),
    )
    if "contexts" not in estimator.needs:
        assert _same(terms, estimator.terms(batches)), f'{name}: terms use what only "contexts" among its needs gives'
    if "predicted" not in estimator.needs:
        unknown = np.full(ROWS, np.nan)
        without = estimator.terms(given._replace(predicted=None, direct=unknown, residual=unknown))
        assert np.isfinite(without.value), f'{name}: terms use predictions, so that it needs "predicted"'
    if estimator.extended:
        part = given._replace(
            log=given.log.rows(rows),
            target=nothing,
            weights=given.weights[rows],
            direct=given.direct[rows],
            residual=given.residual[rows],
        )
        some = Terms(*(numbers[rows] for numbers in terms))
        assert _same(some, estimator.terms(part)), f"{name}: extended, but terms of a row depend on other rows"


def _evidence(kind: type) -> Any:
    """A log of the kind, with a policy to be evaluated and predicted rewards."""
    rng = np.random.default_rng(0)
    if kind is ContinuousLog:
        log = ope.make_continuous_log(action=rng.normal(size=ROWS), reward=rng.random(ROWS), density=np.full(ROWS, 0.3))
        return ope.evidence(log, rng.normal(size=ROWS), rng.random(ROWS), seed=0)
    policy = rng.dirichlet(np.ones(3), (ROWS, 2))
    if kind is SlateLog:
        action, reward = rng.integers(0, 3, (ROWS, 2)), rng.random((ROWS, 2))
        log = ope.make_slate_log(action=action, reward=reward, propensity=np.full((ROWS, 2), 1 / 3))
        return ope.evidence(log, policy, rng.random((ROWS, 2, 3)), seed=0)
    assert kind is Log, f"an estimator is for a Log, a SlateLog or a ContinuousLog; got {kind}"
    action = np.arange(ROWS) % 3
    log = ope.make_log(
        action=action,
        reward=rng.random(ROWS),
        propensity=np.full(ROWS, 1 / 3),
        context=rng.normal(size=(ROWS, 2)),
        action_features=np.eye(3),
    )
    return ope.evidence(log, policy[:, 0], rng.random((ROWS, 3)), seed=0)


def _arrays(evidence: Any) -> list[np.ndarray]:
    """Copies of the arrays in the evidence."""
    parts = [*evidence, *evidence.log, *(getattr(evidence, "target", None) or ())]
    return [part.copy() for part in parts if isinstance(part, np.ndarray)]


def _same(one: Terms, other: Terms) -> bool:
    return all(np.array_equal(left, right) for left, right in zip(one, other, strict=True))
