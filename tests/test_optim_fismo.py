"""FISMO against Algorithm 1 in numpy, and its identities."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqdec import optim

M, N, MU = 4, 6, 1e-3


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def gradients(m=M, n=N, steps=5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(m, n)) + 0.5 * rng.normal(size=(steps, m, n))


def run(transform, sequence):
    """Directions and states (of the matrix) of a sequence of gradients."""
    state, update = transform.init(jnp.zeros_like(sequence[0])), jax.jit(transform.update)
    directions, states = [], []
    for gradient in sequence:
        direction, state = update(jnp.asarray(gradient), state)
        directions.append(np.asarray(direction))
        states.append(jax.tree.map(np.asarray, state.matrices))
    return directions, states


def fismo(interval=1, **settings):
    """As printed: with new roots in every step."""
    return optim.scale_by_fismo(interval=interval, **settings)


def power(matrix, exponent):
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * values**exponent) @ vectors.T


def polar(matrix, rank=None):
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    return left[:, :rank] @ right[:rank]


def algorithm_1(sequence, beta=0.95, gamma=0.95, mu=MU, damping="algorithm", rank=None):
    """As printed, for gradients in matrices of this rank; -> direction, P, Q of every step."""
    m, n = sequence[0].shape
    p, q, momentum = np.eye(m), np.eye(n), np.zeros((m, n))
    for gradient in sequence:
        unit = mu * (np.trace(p) / m if damping == "algorithm" else np.trace(np.linalg.inv(q)) / n)
        mixed = gamma * p + (1 - gamma) * (gradient @ np.linalg.inv(q) @ gradient.T / n + unit * np.eye(m))
        p = m / np.trace(mixed) * mixed
        unit = mu * (np.trace(q) / n if damping == "algorithm" else np.trace(np.linalg.inv(p)) / m)
        mixed = gamma * q + (1 - gamma) * (gradient.T @ np.linalg.inv(p) @ gradient / m + unit * np.eye(n))
        q = n / np.trace(mixed) * mixed
        left, right = power(p, -0.5), power(q, -0.5)
        momentum = beta * momentum + (1 - beta) * left @ gradient @ right
        yield left @ polar(momentum, rank) @ right, p, q


@pytest.mark.parametrize("damping", ["algorithm", "theorem"])
@pytest.mark.parametrize("shape", [(M, N), (N, M)])
def test_algorithm_1(shape, damping):
    sequence = gradients(*shape)
    directions, states = run(fismo(polar="exact", damping=damping), sequence)
    wanted = list(algorithm_1(sequence, damping=damping))
    np.testing.assert_allclose(directions, [direction for direction, _, _ in wanted], rtol=1e-8)
    np.testing.assert_allclose([state.left for state in states], [p for _, p, _ in wanted], rtol=1e-9)
    np.testing.assert_allclose([state.right for state in states], [q for _, _, q in wanted], rtol=1e-9)


def test_invariants_of_the_factors():
    _, states = run(fismo(), gradients(seed=1))
    for state in states:
        for factor, size in ((state.left, M), (state.right, N)):
            assert np.trace(factor) == pytest.approx(size)
            np.testing.assert_array_equal(factor, factor.T)
            assert np.linalg.eigvalsh(factor)[0] > 0
        np.testing.assert_allclose(state.right_root @ state.right @ state.right_root, np.eye(N), atol=1e-9)
        norms = [np.linalg.norm(power(factor, -0.5), 2) for factor in (state.left, state.right)]
        assert norms[0] * norms[1] >= 1 - 1e-12


def test_damping_bounds_the_least_eigenvalue_where_the_gradient_says_nothing():
    """A rank-one gradient for long: the bound (1 - gamma) mu before the trace is normalized is nearly reached."""
    gradient = 100 * np.outer(np.arange(1.0, 5.0), np.ones(N))
    _, states = run(fismo(b2=0.5, eps=MU), [gradient] * 60)
    for t in (10, 59):
        whitened = gradient @ states[t - 1].right_root
        mixed = 0.5 * states[t - 1].left + 0.5 * (whitened @ whitened.T / N + MU * np.eye(M))
        assert np.linalg.eigvalsh(mixed)[0] >= 0.5 * MU * (1 - 1e-9)


def test_direction_is_optimal_in_its_metric():
    gradient = gradients()[0]
    (direction,), (state,) = run(fismo(polar="exact"), [gradient])
    left, right = power(state.left, 0.5), power(state.right, 0.5)
    assert np.linalg.norm(left @ direction @ right, 2) == pytest.approx(1)
    whitened = np.linalg.inv(left) @ gradient @ np.linalg.inv(right)
    assert np.sum(gradient * direction) == pytest.approx(np.linalg.norm(whitened, "nuc"))
    rng = np.random.default_rng(2)
    for _ in range(200):
        other = rng.normal(size=(M, N))
        other /= np.linalg.norm(left @ other @ right, 2)
        assert np.sum(gradient * other) <= np.sum(gradient * direction)


@pytest.mark.parametrize("options", [{"b2": 1.0}, {"eps": 1e12}])
def test_muon_is_the_limit(options):
    sequence, momentum = gradients(), 0.0
    directions, _ = run(fismo(polar="exact", **options), sequence)
    for gradient, direction in zip(sequence, directions, strict=True):
        momentum = 0.95 * momentum + 0.05 * gradient
        np.testing.assert_allclose(direction, polar(momentum), rtol=1e-7, atol=1e-10)


def test_first_step_and_constant_gradients_in_closed_form():
    gradient = gradients()[0]
    left, s, right = np.linalg.svd(gradient, full_matrices=False)
    directions, _ = run(fismo(polar="exact", b2=0.9, eps=0.01), [gradient] * 4)
    p, q, wide = np.ones(M), np.ones(N), np.append(s, np.zeros(N - M))
    for direction in directions:
        mixed = 0.9 * p + 0.1 * (s**2 / (N * q[:M]) + 0.01 * p.mean())
        p = M * mixed / mixed.sum()
        mixed = 0.9 * q + 0.1 * (wide**2 / (M * np.append(p, np.ones(N - M))) + 0.01 * q.mean())
        q = N * mixed / mixed.sum()
        np.testing.assert_allclose(direction, (left / np.sqrt(p * q[:M])) @ right, rtol=1e-8)


def test_weak_directions_get_the_larger_steps_in_the_long_run():
    gradient = gradients(M, M)[0]
    left, s, right = np.linalg.svd(gradient)
    directions, _ = run(fismo(polar="exact", b2=0.5, eps=1e-12), [gradient] * 80)
    wanted = s.mean() * (left / s) @ right
    np.testing.assert_allclose(
        directions[-1] / np.linalg.norm(directions[-1]), wanted / np.linalg.norm(wanted), rtol=1e-6
    )
    # p and q are proportional to s only up to a small shift from one to the other, which changes the length alone.
    assert np.linalg.norm(directions[-1]) == pytest.approx(np.linalg.norm(wanted), rel=0.05)


def test_factors_are_averages_of_normalized_statistics():
    sequence, gamma = gradients(), 0.9
    _, states = run(fismo(b2=gamma), sequence)
    whitened = sequence[1] @ states[0].right_root
    statistic = whitened @ whitened.T / N + MU * np.eye(M)
    tau = np.trace(statistic) / M
    assert tau == pytest.approx(MU + np.sum(sequence[1] @ np.linalg.inv(states[0].right) * sequence[1]) / (M * N))
    rho = (1 - gamma) * tau / (gamma + (1 - gamma) * tau)
    wanted = (1 - rho) * states[0].left + rho * M * statistic / np.trace(statistic)
    np.testing.assert_allclose(states[1].left, wanted, rtol=1e-9)


def test_directions_turn_with_the_gradients_but_do_not_transpose():
    rng, sequence = np.random.default_rng(3), gradients()
    left, right = (np.linalg.qr(rng.normal(size=(size, size)))[0] for size in (M, N))
    transform = fismo(polar="exact")
    once, _ = run(transform, sequence)
    turned, _ = run(transform, left @ sequence @ right.T)
    np.testing.assert_allclose(turned, [left @ direction @ right.T for direction in once], rtol=1e-7, atol=1e-10)
    flipped, _ = run(transform, sequence.transpose(0, 2, 1))
    assert np.max(np.abs(flipped[-1].T - once[-1])) > 1e-3


def test_condition_of_a_step_is_bounded_by_those_of_the_factors():
    directions, states = run(fismo(polar="exact"), gradients(M, M))
    for direction, state in zip(directions, states, strict=True):
        bound = np.sqrt(np.linalg.cond(state.left) * np.linalg.cond(state.right))
        assert np.linalg.cond(direction) <= bound * (1 + 1e-9)


def test_scale_free_statistics():
    sequence = gradients(steps=12)
    for statistics, free in (("scale_free", True), ("printed", False)):
        transform = fismo(polar="exact", statistics=statistics)
        conditions = [np.linalg.cond(run(transform, scale * sequence)[0][-1]) for scale in (1e-4, 1.0)]
        assert (abs(conditions[0] / conditions[1] - 1) < 1e-6) == free
    # As printed, small gradients leave the factors at the identity: Muon.
    assert conditions[0] == pytest.approx(1, abs=1e-4)


def test_newton_schulz_is_close_to_the_polar_factor():
    sequence = gradients()
    exact, _ = run(fismo(polar="exact"), sequence)
    cubic, _ = run(fismo(polar="cubic", polar_steps=40), sequence)
    np.testing.assert_allclose(cubic, exact, rtol=1e-7, atol=1e-9)
    rough, _ = run(fismo(), sequence)
    assert np.max(np.abs(rough[-1] - exact[-1])) < 0.5 * np.max(np.abs(exact[-1]))


def test_roots_are_kept_between_the_intervals():
    sequence = gradients(steps=6)
    _, states = run(fismo(interval=3), sequence)
    assert [bool(np.all(b.right_root == a.right_root)) for a, b in itertools.pairwise(states)] == [
        True, False, True, True, False,
    ]  # fmt: skip
    once, _ = run(fismo(), sequence[:1])
    np.testing.assert_allclose(run(fismo(interval=3), sequence[:1])[0], once, rtol=1e-12)


def test_factors_of_an_interval_are_those_of_every_kth_gradient():
    """Gradients of rank one, a new one in each step: none is seen twice, and the factors stay as they would be."""
    rng = np.random.default_rng(4)
    sequence = [np.outer(rng.normal(size=12), rng.normal(size=16)) for _ in range(60)]
    directions, states = run(fismo(interval=5), sequence)
    due = [0, *range(4, 60, 5)]
    wanted = list(algorithm_1([sequence[index] for index in due]))
    np.testing.assert_allclose([states[index].left for index in due], [p for _, p, _ in wanted], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose([states[index].right for index in due], [q for _, _, q in wanted], rtol=1e-7, atol=1e-9)
    assert max(np.linalg.norm(direction, 2) for direction in directions) < 5


def low_rank(kind, steps):
    """Gradients with entries around 10, far above the damping, and the rank of their sum."""
    rng, (m, n) = np.random.default_rng(5), (12, 20)
    left, right = rng.normal(size=(m, 3)), rng.normal(size=(3, n))
    if kind == "one gradient":
        return 10 * np.exp(rng.normal(size=(steps, 1, 1))) * np.outer(left[:, 0], right[0]), 1
    if kind == "three directions":
        return 10 * left @ (np.eye(3) + 0.5 * rng.normal(size=(steps, 3, 3))) @ right, 3
    dense = 10 * rng.normal(size=(steps, m, n))
    dense[:, ::3], dense[:, :, 1::4] = 0, 0
    return dense, 8


@pytest.mark.parametrize("damping", ["algorithm", "theorem"])
@pytest.mark.parametrize("kind", ["one gradient", "three directions", "zero rows and columns"])
def test_steps_of_gradients_without_full_rank_are_those_of_exact_arithmetic(kind, damping):
    """In float32: rounding errors, which the inverse roots multiply where no gradient was seen, move nothing."""
    sequence, rank = low_rank(kind, 80)
    directions, _ = run(fismo(polar="exact", damping=damping), sequence.astype(np.float32))
    for direction, (wanted, _, _) in zip(directions, algorithm_1(sequence, damping=damping, rank=rank), strict=True):
        assert np.linalg.norm(direction - wanted) < 0.02 * np.linalg.norm(wanted)


def test_steps_of_gradients_without_full_rank_keep_their_size_in_bfloat16():
    """Whose rounding errors are gradients of all directions; inverse roots multiply them by eps^{-1/4} at most."""
    limit = float(jnp.finfo(jnp.float32).eps) ** -0.25
    sequence, _ = low_rank("three directions", 80)
    for interval in (1, 20):
        directions, _ = run(fismo(interval), [jnp.asarray(gradient / 10, jnp.bfloat16) for gradient in sequence])
        assert max(np.linalg.norm(direction.astype(float), 2) for direction in directions) < limit
