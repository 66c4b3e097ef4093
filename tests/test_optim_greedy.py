"""Greedy optimizers: closed forms against random feasible ones, and the self-tuning methods against their boxes."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from seqdec import optim
from seqdec.optim import greedy
from tests.toys import of_matrices

D = 5
COSTS = np.array([0.5, 1.0, 2.0, 0.7, 1.3])
FAMILIES = {
    "frobenius": greedy.frobenius(2.3),
    "spectral": greedy.spectral(2.5, 1.0),
    "lyapunov": greedy.lyapunov(2.3),
    "diagonal": greedy.diagonal(2.3, jnp.asarray(COSTS)),
}
CONVEX = ["frobenius", "spectral", "diagonal"]


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def moment(seed=0, samples=20):
    sample = np.random.default_rng(seed).normal(size=(samples, D)) * np.array([3, 2, 1, 0.5, 0.2])
    return jnp.asarray(sample.T @ sample / samples)


@pytest.mark.parametrize("name", FAMILIES)
def test_optimum_is_feasible_and_no_random_member_beats_it(name):
    family, sigma = FAMILIES[name], moment()
    best, value = family.optimum(sigma)
    assert jnp.trace(best @ sigma) == pytest.approx(float(value))
    assert family.gauge(best, sigma) == pytest.approx(1)
    keys = jax.random.split(jax.random.key(0), 2000)

    def rate(key):
        draw = jax.random.normal(key, (D, D), jnp.float64)
        member = jnp.diag(jnp.diagonal(draw) ** 2) if name == "diagonal" else draw @ draw.T
        return jnp.trace(member @ sigma) / family.gauge(member, sigma)

    rates = jax.jit(jax.vmap(rate))(keys)
    assert jnp.all(jnp.isfinite(rates)) and jnp.max(rates) <= value
    assert jnp.max(rates) > 0.5 * value  # the draws come near enough to mean something


@pytest.mark.parametrize("name", CONVEX)
def test_optimum_is_the_gradient_of_the_maximum(name):
    family, sigma = FAMILIES[name], moment()
    best, _ = family.optimum(sigma)
    rng = np.random.default_rng(1)
    for _ in range(3):
        direction = rng.normal(size=(D, D))
        direction = jnp.asarray(direction + direction.T) * 1e-6
        slope = (family.optimum(sigma + direction)[1] - family.optimum(sigma - direction)[1]) / 2
        assert slope == pytest.approx(float(jnp.trace(best @ direction)), rel=1e-4, abs=1e-10)


def test_spectral_dual():
    sigma = moment()
    values = np.linalg.eigvalsh(sigma)
    dual = min(2.5 * nu + 1.0 * np.maximum(values - nu, 0).sum() for nu in np.append(values, 0))
    assert FAMILIES["spectral"].optimum(sigma)[1] == pytest.approx(dual)


def test_single_samples():
    g = jnp.array([1.0, -2.0, 0.5, 0.0, 3.0])
    sigma, square = jnp.outer(g, g), float(g @ g)
    np.testing.assert_allclose(greedy.frobenius(4.0).optimum(sigma)[0] @ g, 2.0 * g, atol=1e-12)
    np.testing.assert_allclose(greedy.lyapunov(4.0).optimum(sigma)[0] @ g, 2.0 * g / square**0.5, atol=1e-12)
    np.testing.assert_allclose(greedy.spectral(3.0, 0.5).optimum(sigma)[0] @ g, 0.5 * g, atol=1e-7)
    np.testing.assert_allclose(greedy.spectral(0.5, 3.0).optimum(sigma)[0] @ g, 0.5 * g, atol=1e-7)
    wanted = np.sqrt(4.0 / np.sum(np.array(g) ** 4 / COSTS)) * np.array(g) ** 3 / COSTS
    np.testing.assert_allclose(greedy.diagonal(4.0, jnp.asarray(COSTS)).optimum(sigma)[0] @ g, wanted, atol=1e-12)
    np.testing.assert_allclose(greedy.spectral(D * 0.5, 0.5).optimum(moment())[0], 0.5 * np.eye(D), atol=1e-12)


def test_gauges_are_infinite_outside_the_cone():
    indefinite, sigma = jnp.diag(jnp.array([1.0, -1.0, 1.0, 1.0, 1.0])), moment()
    assert all(jnp.isinf(family.gauge(indefinite, sigma)) for family in FAMILIES.values())
    assert jnp.isinf(FAMILIES["diagonal"].gauge(jnp.ones((D, D)), sigma))


# --- self-tuning

CONSTANT = [(1.0, 2.0)] * 12
TURNING = [(1.0, 2.0)] * 10 + [(-0.05, -0.1)] * 12


def run(transform, gradients, **extra):
    """Parameters after every step, and the states of the first transformation with scores."""
    params = jnp.zeros_like(jnp.asarray(gradients[0]))
    state, update = transform.init(params), jax.jit(transform.update)
    path, states = [], []
    for gradient in gradients:
        updates, state = update(jnp.asarray(gradient), state, params, **extra)
        params = optax.apply_updates(params, updates)
        path.append(np.asarray(params))
        states.append(next(part for part in state if hasattr(part, "scores")))
    return np.array(path), states


def test_golden_trace_of_the_hysteresis():
    path, states = run(optim.self_tuning_sgd(0.1, momenta=(0.9, 0.99)), TURNING)
    np.testing.assert_allclose(states[10].scores, [-0.633336, -0.332079], rtol=1e-5)
    np.testing.assert_allclose(states[15].scores, [-0.173109, -0.152699], rtol=1e-5)
    np.testing.assert_allclose(states[17].scores, [-0.129866, -0.146151], rtol=1e-5)
    assert [int(states[t].chosen) for t in (10, 15, 17)] == [1, 1, 0]
    # The counter says when the momenta were halved: after the steps 15 and 20.
    assert [int(state.negative_steps) for state in states[10:22]] == [1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2]
    np.testing.assert_allclose(path[21], [-9.928469, -19.856939], rtol=1e-6)


def test_golden_trace_of_adam():
    path, states = run(optim.self_tuning_adamw(0.01), CONSTANT)
    assert [int(state.chosen) for state in states] == [0] * 12
    np.testing.assert_allclose(states[0].scores, [8.264695, 1.943131], rtol=1e-6)
    np.testing.assert_allclose(path[0], [-0.06324553, -0.06324554], rtol=1e-6)
    np.testing.assert_allclose(states[11].scores, [20.705174, 11.877904], rtol=1e-6)
    np.testing.assert_allclose(path[11], [-1.05821407, -1.05821415], rtol=1e-7)


def test_the_momentum_of_autoregressive_gradients_is_their_correlation():
    candidates, rho = (0.01, 0.5, 0.9, 0.97, 0.99), 0.9
    transform = optim.scale_by_self_tuning(candidates)
    size, warm, steps = 400, 300, 400

    def step(carry, noise):
        gradient, state = carry
        gradient = rho * gradient + jnp.sqrt(1 - rho**2) * noise
        _, state = transform.update(gradient, state)
        return (gradient, state), state.chosen

    noise = jax.random.normal(jax.random.key(0), (warm + steps, size))
    start = (noise[0], transform.init(noise[0]))
    _, chosen = jax.jit(lambda noise: jax.lax.scan(step, start, noise))(noise)
    assert np.mean(np.array(candidates)[chosen[warm:]] == rho) >= 0.99


def test_one_candidate_is_plain_momentum_and_plain_adam():
    gradients = np.abs(np.random.default_rng(5).normal(size=(6, 3)))  # never discouraged
    one, _ = run(optim.self_tuning_sgd(0.1, momenta=(0.9,), weight_decay=0.01), gradients)
    other = optax.chain(optax.add_decayed_weights(0.01), optax.sgd(0.1, momentum=0.9))
    np.testing.assert_allclose(one, run_plain(other, gradients), rtol=1e-10)
    one, _ = run(optim.self_tuning_adamw(0.1, momenta=(0.9,), weight_decay=0.01), gradients)
    path, params, m, v = [], np.zeros(3), 0.0, 0.0
    for gradient in gradients:
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        params = params - 0.1 * (m / (np.sqrt(v) + 1e-8) + 0.01 * params)
        path.append(params)
    np.testing.assert_allclose(one, path, rtol=1e-10)


def run_plain(transform, gradients):
    params = jnp.zeros_like(jnp.asarray(gradients[0]))
    state, path = transform.init(params), []
    for gradient in gradients:
        updates, state = transform.update(jnp.asarray(gradient), state, params)
        params = optax.apply_updates(params, updates)
        path.append(np.asarray(params))
    return path


@pytest.mark.parametrize("make", [optim.identity, optim.diagonal_ema, optim.diagonal_sum])
def test_budget_matched_steps_are_equally_long_in_the_metric(make):
    gradients = np.random.default_rng(6).normal(size=(5, 3))
    for momentum in (0.1, 0.9):
        metric = make()
        transform = optim.scale_by_self_tuning((momentum,), metric, budget_matched=True)
        state = transform.init(jnp.zeros(3))
        for gradient in gradients:
            direction, state = transform.update(jnp.asarray(gradient), state)
        # The filter eta (1 - b) b^k P has the squared norm B in P^{-1} for eta = sqrt(B (1 + b) / ((1 - b) tr P)).
        trace = float(metric.trace(state.preconditioner))
        eta = np.sqrt((1 + momentum) / ((1 - momentum) * trace))
        assert eta**2 * (1 - momentum) / (1 + momentum) * trace == pytest.approx(1)
        wanted = eta * (1 - momentum) * metric.apply(state.momenta[0], state.preconditioner)
        np.testing.assert_allclose(direction, wanted, rtol=1e-6)
        assert state.scores[0] == pytest.approx(float(direction @ gradients[-1]), rel=1e-6)


def test_validation_gradients_judge_and_do_nothing_else():
    gradients = np.random.default_rng(8).normal(size=(4, 3))
    held_out = jnp.array([1.0, -1.0, 0.5])
    transform = optim.self_tuning_sgd(0.1, momenta=(0.3, 0.9))
    path, states = run(transform, gradients, validation_grads=held_out)
    momenta, params = np.zeros((2, 3)), np.zeros(3)
    betas = np.array([0.3, 0.9])
    for gradient, after, state in zip(gradients, path, states, strict=True):
        momenta = betas[:, None] * momenta + gradient
        scores = np.sqrt(1 - betas**2) * (momenta @ held_out)
        np.testing.assert_allclose(state.scores, scores, rtol=1e-10)
        params = params - 0.1 * momenta[np.argmax(scores)]
        np.testing.assert_allclose(after, params, rtol=1e-10)
    # Proposition 10: the choice is the best for the validation gradient, so none made otherwise is better.
    assert max(scores) >= scores[int(run(transform, gradients)[1][-1].chosen)]


def test_muon_is_judged_before_the_gradient_is_folded_in():
    rng = np.random.default_rng(9)
    gradients = 0.3 + rng.normal(size=(40, 3, 4))
    betas = (0.5, 0.95)
    transform = optim.scale_by_self_tuning_muon(momenta=betas, polar="exact", rms=None)
    state, update = transform.init(jnp.zeros((3, 4))), jax.jit(transform.update)
    momenta, chosen = np.zeros((2, 3, 4)), []
    for gradient in gradients:
        direction, state = update(jnp.asarray(gradient), state)
        own = of_matrices(state)
        orthogonal = [np.sqrt(4 / 3) * _polar(momentum) for momentum in momenta]
        np.testing.assert_allclose(own.scores, [np.sum(gradient * o) for o in orthogonal], rtol=1e-7, atol=1e-9)
        momenta = np.array(betas)[:, None, None] * momenta + gradient
        np.testing.assert_allclose(direction, np.sqrt(4 / 3) * _polar(momenta[int(own.chosen)]), rtol=1e-7, atol=1e-9)
        momenta = np.asarray(own.momenta)  # halved at times
        chosen.append(int(own.chosen))
    assert set(chosen) == {0, 1}  # with the gradient folded in, it would always be the first


def _polar(matrix):
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    return (left * (values > 1e-12)) @ right


@pytest.mark.parametrize(
    "make",
    [
        lambda: greedy.frobenius(0.0),
        lambda: greedy.lyapunov(-1.0),
        lambda: greedy.spectral(1.0, 0.0),
        lambda: greedy.diagonal(0.0, jnp.ones(2)),
    ],
)
def test_bad_budgets(make):
    with pytest.raises(ValueError, match=r"must lie in \(0, inf\)"):
        make()
