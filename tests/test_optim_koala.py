"""KOALA against the dense Kalman algebra, its scalar recursions, and hand-worked special cases."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from seqdec import optim

P0, Q, R = 0.2, 0.1, 0.7


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def run(transform, gradients, losses, params=None):
    """Directions and states of a sequence of gradients (trees)."""
    params = jax.tree.map(jnp.zeros_like, gradients[0]) if params is None else params
    state = transform.init(params)
    directions, states = [], []
    update = jax.jit(transform.update)
    for gradient, loss in zip(gradients, losses, strict=True):
        direction, state = update(gradient, state, params, value=loss)
        directions.append(direction)
        states.append(state[0])
    return directions, states


def sequence(size, steps, seed=0, spread=0.5):
    """Gradients around a common one, as minibatches give them, so that covariances stay definite along them."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=size) + spread * rng.normal(size=(steps, size)), rng.uniform(0.5, 2.0, steps)


def least_norm(h, v, symmetric):
    """The matrix (symmetric or not) of least Frobenius norm with h P = v."""
    h, v = h[None], v[None]
    square = (h @ h.T).item()
    if not symmetric:
        return h.T @ v / square
    return (h.T @ v + v.T @ h) / square - (h @ v.T).item() * h.T @ h / square**2


def dense(gradients, losses, symmetric, first_twice=False):
    """KOALA++ with matrices: the Kalman filter whose covariance is replaced by the least norm one after each step."""
    size, directions, products = len(gradients[0]), [], []
    covariance, last = P0 * np.eye(size), None
    if first_twice:
        h, prior = gradients[0], (P0 + Q) * np.eye(size)
        covariance = prior - np.outer(prior @ h, h @ prior) / (h @ prior @ h + R)
    for h, loss in zip(gradients, losses, strict=True):
        if last is not None:
            h_then, v_then = last
            prior = least_norm(h_then, v_then, symmetric) + Q * np.eye(size)
            # The gain of the filter that kept v: K = (v + q H)^T / S.
            gain = (v_then + Q * h_then) / (h_then @ v_then + Q * h_then @ h_then + R)
            covariance = (np.eye(size) - np.outer(gain, h_then)) @ prior
        v = h @ covariance
        directions.append(loss * (v + Q * h) / (h @ v + Q * h @ h + R))
        products.append(v)
        last = (h, v)
    return directions, products


@pytest.mark.parametrize("first_twice", [True, False])
@pytest.mark.parametrize("symmetric", [True, False])
def test_plus_plus_is_the_dense_filter(symmetric, first_twice):
    gradients, losses = sequence(6, 12)
    options = {"symmetric": symmetric, "first_twice": first_twice}
    transform = optim.scale_by_koala_plus_plus(initial_variance=P0, process_noise=Q, noise=R, **options)
    got, states = run(transform, list(map(jnp.asarray, gradients)), losses)
    wanted, products = dense(gradients, losses, **options)
    np.testing.assert_allclose(got, wanted, rtol=1e-10)
    np.testing.assert_allclose([state.product for state in states], products, rtol=1e-10)


def test_scalars_are_of_each_tensor_or_of_all_parameters_as_one_vector():
    gradients, losses = sequence(6, 8)
    trees = [{"a": jnp.asarray(g[:2]), "b": jnp.asarray(g[2:]).reshape(2, 2)} for g in gradients]
    options = {"initial_variance": P0, "process_noise": Q, "noise": R}
    apart, _ = run(optim.scale_by_koala_plus_plus(**options), trees, losses)
    whole, _ = run(optim.scale_by_koala_plus_plus(**options, per_tensor=False), trees, losses)
    flat = [np.concatenate([tree["a"], tree["b"].ravel()]) for tree in whole]
    np.testing.assert_allclose(flat, dense(gradients, losses, True)[0], rtol=1e-10)
    for name, part in (("a", slice(0, 2)), ("b", slice(2, 6))):
        found = [np.ravel(tree[name]) for tree in apart]
        np.testing.assert_allclose(found, dense(gradients[:, part], losses, True)[0], rtol=1e-10)


def test_an_indefinite_covariance_starts_anew():
    first = jnp.array([1.0, 0.0])
    options = {"initial_variance": 1.0, "process_noise": 0.01, "noise": 0.01}
    transform = optim.scale_by_koala_plus_plus(**options)
    state, empty = transform.init(first)
    state = state._replace(
        row=first,
        product=jnp.array([0.5, 3.0]),
        norm=jnp.ones(1),
        variance=jnp.array([0.5]),
        information=jnp.array([1 / 0.52]),
    )
    second = jnp.array([1.0, -1.0])
    # What the boxes say here: H P H^T + q |H|^2 < 0, a step uphill.
    covariance = least_norm(np.array(first), np.array(state.product), True)
    gain = (np.array(state.product) + 0.01 * np.array(first)) / 0.52
    covariance = (np.eye(2) - np.outer(gain, np.array(first))) @ (covariance + 0.01 * np.eye(2))
    assert second @ covariance @ second + 0.01 * second @ second < 0
    direction, (fresh, _) = transform.update(second, (state, empty), value=2.0)
    again, (like, _) = transform.update(second, transform.init(first), value=2.0)
    np.testing.assert_allclose(direction, again, rtol=1e-12)
    np.testing.assert_allclose(fresh.product, like.product, rtol=1e-12)
    assert direction @ second > 0


def test_koala_v_recursion_with_the_variance_of_the_tensor_that_tells_most():
    gradients, losses = sequence(4, 6)
    trees = [{"a": jnp.asarray(row[:1]), "b": jnp.asarray(row[1:])} for row in gradients]
    transform = optim.scale_by_koala_v(initial_variance=P0, process_noise=Q, noise=R)
    directions, states = run(transform, trees, losses)
    variance = P0
    for tree, loss, direction, state in zip(trees, losses, directions, states, strict=True):
        predicted = variance + Q
        innovations = {name: predicted * h @ h + R for name, h in tree.items()}
        for name, h in tree.items():
            np.testing.assert_allclose(direction[name], loss * predicted / innovations[name] * h, rtol=1e-12)
        variance = predicted * R / max(innovations.values())
        np.testing.assert_allclose(state.variance, variance, rtol=1e-12)


def test_koala_m_is_the_dense_filter_over_position_and_velocity():
    rng = np.random.default_rng(2)
    size, kappa, q_p, rate = 3, 0.9, 0.03, 0.4
    matrix, target = rng.normal(size=(size, size)), rng.normal(size=size)

    def loss_of(theta):
        return 0.5 * jnp.sum((matrix @ theta - target) ** 2)

    transform = optim.koala_m(
        rate, b1=kappa, initial_variance=P0, process_noise=Q, velocity_noise=q_p, noise=R, per_tensor=False
    )
    params = jnp.zeros(size)
    state = transform.init(params)
    # The dense filter: mean (theta, p), covariance (2 n, 2 n), with predictions before the gradients.
    mean, covariance = np.zeros(2 * size), P0 * np.eye(2 * size)
    transition = np.kron([[1, 1], [0, kappa]], np.eye(size))
    noise = np.kron(np.diag([Q, q_p]), np.eye(size))
    for _ in range(4):
        mean, covariance = transition @ mean, transition @ covariance @ transition.T + noise
        np.testing.assert_allclose(params, mean[:size], rtol=1e-9, atol=1e-12)
        value, gradient = jax.value_and_grad(loss_of)(params)
        observed = np.concatenate([gradient, np.zeros(size)])
        gain = covariance @ observed / (observed @ covariance @ observed + R)
        mean = mean - rate * float(value) * gain
        # The filter keeps (2 x 2) (x) I, so H^T H counts as |H|^2 I.
        small = covariance[::size, ::size]
        square = float(gradient @ gradient)
        small = small - square / (small[0, 0] * square + R) * np.outer(small[:, 0], small[0])
        covariance = np.kron(small, np.eye(size))
        updates, state = transform.update(gradient, state, params, value=value)
        params = optax.apply_updates(params, updates)
        corrected = params + rate * state[0].velocity
        np.testing.assert_allclose(corrected, mean[:size], rtol=1e-9, atol=1e-12)


MAKERS = [optim.scale_by_koala_m, optim.scale_by_koala_plus_plus, optim.scale_by_koala_v]


@pytest.mark.parametrize("make", MAKERS)
def test_noise_is_tracked_from_the_loss_or_from_its_variance(make):
    transform = make(noise_decay=0.8, initial_noise=2.0)
    gradient = jnp.ones(2)
    _, (squared, _) = transform.update(gradient, transform.init(gradient), value=3.0)
    np.testing.assert_allclose(squared.noise, 0.8 * 2 + 0.2 * 9)
    _, (given, _) = transform.update(gradient, transform.init(gradient), value=3.0, value_variance=0.5)
    np.testing.assert_allclose(given.noise, 0.8 * 2 + 0.2 * 0.5)


def test_weight_decay_enters_gradient_and_loss():
    gradient, params, decay = jnp.array([1.0, -1.0]), jnp.array([2.0, 3.0]), 0.1
    options = {"initial_variance": P0, "process_noise": Q, "noise": R}
    decayed = optim.scale_by_koala_plus_plus(**options, weight_decay=decay)
    plain = optim.scale_by_koala_plus_plus(**options)
    got, _ = decayed.update(gradient, decayed.init(params), params, value=1.5)
    wanted, _ = plain.update(gradient + decay * params, plain.init(params), value=1.5 + 0.5 * decay * 13)
    np.testing.assert_allclose(got, wanted, rtol=1e-12)


@pytest.mark.parametrize("make", MAKERS)
def test_a_tensor_without_gradient_is_left_alone(make):
    transform = make(noise=R)
    tree = {"a": jnp.ones(2), "b": jnp.ones(3)}
    _, state = transform.update(tree, transform.init(tree), value=1.0)
    directions, fresh = transform.update({"a": jnp.zeros(2), "b": jnp.ones(3)}, state, value=1.0)
    if make is optim.scale_by_koala_plus_plus:
        np.testing.assert_array_equal(fresh[0].product["a"], state[0].product["a"])
        np.testing.assert_array_equal(fresh[0].norm[0], state[0].norm[0])
        np.testing.assert_array_equal(directions["a"], 0)
    assert np.all(np.isfinite(np.concatenate([leaf.ravel() for leaf in jax.tree.leaves((directions, fresh))])))
    assert np.all(directions["b"] != 0)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
@pytest.mark.parametrize("make", MAKERS)
def test_without_noise_steps_are_inverse_to_the_gradients_scale(make, scale):
    gradients, losses = sequence(4, 5)
    trees, scaled = ([{"a": c * row[:1], "b": c * row[1:]} for row in gradients] for c in (1.0, scale))
    for per_tensor in (True, False):
        transform = make(noise=0.0, per_tensor=per_tensor)
        wanted, _ = run(transform, trees, losses)
        got, _ = run(transform, scaled, losses)
        for one, other in zip(got, wanted, strict=True):
            np.testing.assert_allclose(scale * one["a"], other["a"], rtol=1e-9)
            np.testing.assert_allclose(scale * one["b"], other["b"], rtol=1e-9)


@pytest.mark.parametrize("make", MAKERS)
def test_bad_input(make):
    transform = make()
    params = jnp.ones(2)
    with pytest.raises(ValueError, match="value=loss"):
        transform.update(params, transform.init(params), params)
    with pytest.raises(ValueError, match=r"value must be the scalar loss; got shape \(3,\)"):
        transform.update(params, transform.init(params), params, value=jnp.ones(3))
    decayed = make(weight_decay=0.1)
    with pytest.raises(ValueError, match="needs the parameters"):
        decayed.update(params, decayed.init(params), value=1.0)
