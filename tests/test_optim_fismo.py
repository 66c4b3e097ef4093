"""FISMO against Algorithm 1 in numpy, and its identities."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqdec import optim
from tests.toys import of_matrices

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
        states.append(jax.tree.map(np.asarray, of_matrices(state).matrices))
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


@pytest.mark.parametrize(
    ("shape", "damping", "polar"),
    [((M, N), "algorithm", {"polar": "exact"}), ((N, M), "theorem", {"polar": "cubic", "polar_steps": 40})],
)
def test_algorithm_1(shape, damping, polar):
    sequence = gradients(*shape)
    directions, states = run(fismo(damping=damping, **polar), sequence)
    wanted = list(algorithm_1(sequence, damping=damping))
    np.testing.assert_allclose(directions, [direction for direction, _, _ in wanted], rtol=1e-8)
    np.testing.assert_allclose([state.left for state in states], [p for _, p, _ in wanted], rtol=1e-9)
    np.testing.assert_allclose([state.right for state in states], [q for _, _, q in wanted], rtol=1e-9)


def test_scale_free_statistics():
    sequence = gradients(steps=12)
    for statistics, free in (("scale_free", True), ("printed", False)):
        transform = fismo(polar="exact", statistics=statistics)
        conditions = [np.linalg.cond(run(transform, scale * sequence)[0][-1]) for scale in (1e-4, 1.0)]
        assert (abs(conditions[0] / conditions[1] - 1) < 1e-6) == free
    # As printed, small gradients leave the factors at the identity: Muon.
    assert conditions[0] == pytest.approx(1, abs=1e-4)


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
    kept = [np.array_equal(b.right_root, a.right_root) for a, b in itertools.pairwise(states)]
    assert kept == [index not in due for index in range(1, 60)]


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


@pytest.mark.parametrize(
    ("kind", "damping"),
    [("one gradient", "algorithm"), ("three directions", "theorem"), ("zero rows and columns", "algorithm")],
)
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
