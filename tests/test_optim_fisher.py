"""The structured Fisher family against the algorithm boxes in numpy, its identities, and each other."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqdec import optim
from seqdec.optim import common, linear
from seqdec.optim._alice import default_leading, switched
from seqdec.optim._racs import principal_pair
from tests.toys import of_matrices

M, N, STEPS = 4, 6, 7


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def gradients(m=M, n=N, steps=STEPS, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(m, n)) + 0.5 * rng.normal(size=(steps, m, n))


def run(transform, sequence):
    """Directions and states of the matrix, of a sequence of gradients."""
    state, update = transform.init(jnp.zeros_like(jnp.asarray(sequence[0]))), jax.jit(transform.update)
    directions, states = [], []
    for gradient in sequence:
        direction, state = update(jnp.asarray(gradient), state)
        directions.append(np.asarray(direction))
        states.append(jax.tree.map(np.asarray, of_matrices(state).matrices))
    return directions, states


def top(matrix, count=None):
    """Eigenvectors, largest eigenvalue first."""
    return np.linalg.eigh(matrix)[1][:, ::-1][:, :count]


def root(matrix, exponent):
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * values**exponent) @ vectors.T


# --- RACS


def test_racs_box():
    s = q = norm = 0.0
    directions, states = run(optim.scale_by_racs(rms=None, b2=0.9, scale=0.05, growth=1.01), gradients())
    for t, (gradient, direction) in enumerate(zip(gradients(), directions, strict=True)):
        squares, q_now = gradient**2, np.ones(M)
        for _ in range(5):
            s_now = squares.T @ q_now / (q_now @ q_now)
            q_now = squares @ s_now / (s_now @ s_now)
        s, q = 0.9 * s + 0.1 * s_now, 0.9 * q + 0.1 * q_now
        scaled = gradient / np.sqrt(np.outer(q, s))
        length = np.linalg.norm(scaled)
        eta = 1.01 / max(length / norm, 1.01) if t else 1.0
        assert not t or eta * length <= 1.01 * norm * (1 + 1e-12)
        norm = eta * length
        np.testing.assert_allclose(direction, 0.05 * eta * scaled, rtol=1e-10)
    np.testing.assert_allclose(states[-1].norm, norm, rtol=1e-10)


def test_racs_pair_of_tiny_squares_converges_to_the_principal_singular_pair():
    squares = np.random.default_rng(2).uniform(size=(M, N)) * 1e-200
    left, values, right = np.linalg.svd(squares)
    s, q = principal_pair(jnp.asarray(squares), 60)
    np.testing.assert_allclose(np.outer(q, s), values[0] * np.outer(left[:, 0], right[0]), rtol=1e-10)


# --- Eigen-Adam, SOAP, Shampoo, SWAN


def eigen_adam(sequence, interval, b1=0.9, b2=0.999, b3=0.99, phase=0):
    """Algorithm 7 as printed; with the phase of one of several matrices."""
    m = v = second = 0.0
    for t, gradient in enumerate(sequence, 1):
        second = b3 * second + (1 - b3) * gradient @ gradient.T
        m = b1 * m + (1 - b1) * gradient
        if t == 1 or (t + phase) % interval == 0:
            basis = top(second)
        v = b2 * v + (1 - b2) * (basis.T @ gradient) ** 2
        yield basis @ (basis.T @ m / np.sqrt(v))


def test_eigen_adam_box_of_several_matrices_that_take_turns_from_the_largest():
    shapes = {"a": (3, 4), "b": (4, 6), "c": (3, 5)}
    sequences = {name: gradients(*shape, seed=seed) for seed, (name, shape) in enumerate(shapes.items())}
    transform = optim.scale_by_eigen_adam(rms=None, b2=0.999, b3=0.99, eps=0.0, interval=3)
    state = transform.init({name: jnp.zeros(shape) for name, shape in shapes.items()})
    update = jax.jit(transform.update)
    boxes = {name: eigen_adam(sequences[name], 3, phase=phase) for name, phase in {"b": 0, "c": 1, "a": 2}.items()}
    for t in range(STEPS):
        directions, state = update({name: jnp.asarray(sequences[name][t]) for name in shapes}, state)
        for name, direction in directions.items():
            np.testing.assert_allclose(direction, next(boxes[name]), rtol=1e-8)


def test_soap_box_in_the_bases_it_kept():
    """With an eps, since in the first step the box divides rounding errors by each other."""
    sequence, left, right, m, v = gradients(5, 5), 0.0, 0.0, 0.0, 0.0
    found = zip(
        sequence, *run(optim.scale_by_soap(rms=None, b2=0.999, b3=0.9, eps=1e-6, interval=2), sequence), strict=True
    )
    for t, (gradient, direction, own) in enumerate(found, 1):
        left = 0.9 * left + 0.1 * gradient @ gradient.T
        right = 0.9 * right + 0.1 * gradient.T @ gradient
        m = 0.9 * m + 0.1 * gradient
        if t == 1 or t % 2 == 0:
            for basis, moment in ((own.left_basis, left), (own.right_basis, right)):
                turned = basis.T @ moment @ basis
                np.testing.assert_allclose(basis.T @ basis, np.eye(5), atol=1e-12)
                np.testing.assert_allclose(turned - np.diag(np.diag(turned)), 0, atol=1e-10 * turned.max())
        v = 0.999 * v + 0.001 * (own.left_basis.T @ gradient @ own.right_basis) ** 2
        wanted = own.left_basis @ (own.left_basis.T @ m @ own.right_basis / (np.sqrt(v) + 1e-6)) @ own.right_basis.T
        np.testing.assert_allclose(direction, wanted, rtol=1e-6)


@pytest.mark.parametrize(("decay", "interval"), [(None, 1), (0.9, 3)])
def test_shampoo_box(decay, interval):
    sequence = gradients()
    directions, _ = run(optim.scale_by_shampoo(rms=None, eps=1e-3, b2=decay, interval=interval), sequence)
    left, right = 1e-3 * np.eye(M), 1e-3 * np.eye(N)
    for t, (gradient, direction) in enumerate(zip(sequence, directions, strict=True), 1):
        keep, add = (1, 1) if decay is None else (decay, 1 - decay)
        left = keep * left + add * gradient @ gradient.T
        right = keep * right + add * gradient.T @ gradient
        if t == 1 or t % interval == 0:
            roots = root(left, -0.25), root(right, -0.25)
        np.testing.assert_allclose(direction, roots[0] @ gradient @ roots[1], rtol=1e-8)


def test_swan_box():
    gradient = gradients()[0]
    normal = (gradient - gradient.mean(1, keepdims=True)) / gradient.std(1, keepdims=True)
    (direction,), _ = run(optim.scale_by_swan(rms=None, polar="exact"), [gradient])
    np.testing.assert_allclose(direction, root(normal @ normal.T, -0.5) @ normal, rtol=1e-8)


@pytest.mark.parametrize("shape", [(5, 8), (9, 3)])
def test_polar_factors(shape):
    matrix = np.random.default_rng(5).normal(size=shape)
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    for method, steps in (("exact", 1), ("cubic", 40)):
        np.testing.assert_allclose(linear.polar(jnp.asarray(matrix), method, steps), left @ right, atol=1e-10)
        np.testing.assert_allclose(linear.polar(jnp.asarray(7 * matrix), method, steps), left @ right, atol=1e-10)
        assert np.all(linear.polar(jnp.zeros(shape), method, steps) == 0)
    for steps in (5, 12):
        moved = values / np.linalg.norm(values)
        for _ in range(steps):
            moved = 3.4445 * moved - 4.7750 * moved**3 + 2.0315 * moved**5
        quintic = linear.polar(jnp.asarray(matrix), "newton_schulz", steps)
        np.testing.assert_allclose(quintic, (left * moved) @ right, rtol=1e-6, atol=1e-9)
        assert moved.min() > 0.6 and moved.max() < 1.2


def test_newton_schulz_of_a_wide_matrix_of_low_rank_in_float32():
    """Singular values of zero neither grow nor turn into others."""
    rng = np.random.default_rng(6)
    left, right = (np.linalg.qr(rng.normal(size=(size, 3)))[0] for size in (40, 160))
    matrix = jnp.asarray(left * [3.0, 1.0, 1e-2] @ right.T, jnp.float32)
    for steps in (5, 9):
        values = np.linalg.svd(linear.polar(matrix, "newton_schulz", steps), compute_uv=False)
        assert values[:2].min() > 0.6 and values[0] < 1.2 and values[3] < 0.02


# --- Alice


def switch(basis, leading, key):
    """The library's own draw, in numpy: the first `leading` columns and the drawn ones of the complement."""
    m, r = basis.shape
    complement = np.linalg.qr(basis, mode="complete")[0][:, r:]
    drawn = np.asarray(jax.random.choice(key, m - r, (r - leading,), replace=False))
    return np.concatenate([basis[:, :leading], complement[:, drawn]], 1)


def test_alice_box_given_its_bases():
    """Algorithm 4 as printed, with the subspaces of the transformation, which are checked on their own."""
    m, n, r, leading, interval = 6, 8, 3, 1, 3
    sequence = gradients(m, n)
    directions, states = run(
        optim.scale_by_alice(rms=None, rank=r, leading=leading, interval=interval, b3=0.9), sequence
    )
    tracked = first = second = p = norm = 0.0
    for t, (gradient, direction, state) in enumerate(zip(sequence, directions, states, strict=True), 1):
        basis, before = state.basis, states[t - 2]
        np.testing.assert_allclose(basis.T @ basis, np.eye(r), atol=1e-12)
        if t == 1:
            np.testing.assert_allclose(np.abs(basis[:, 0]), np.abs(top(gradient @ gradient.T, 1)[:, 0]), atol=1e-9)
        elif t % interval == 0:
            old = before.basis
            moment = 0.9 * old @ before.tracked @ old.T + 0.1 * gradient @ gradient.T
            turned = np.linalg.qr(moment @ old)[0]
            ritz = turned @ top(turned.T @ moment @ turned)
            np.testing.assert_allclose(np.abs(basis[:, :leading]), np.abs(ritz[:, :leading]), atol=1e-9)
            np.testing.assert_allclose(basis[:, leading:].T @ ritz, 0, atol=1e-9)
        else:
            np.testing.assert_array_equal(basis, before.basis)
        inner = basis.T @ gradient
        tracked = 0.9 * tracked + 0.1 * inner @ inner.T
        first, second = 0.9 * first + 0.1 * inner, 0.9 * second + 0.1 * inner**2
        p = 0.9 * p + 0.1 * ((gradient**2).sum(0) - (inner**2).sum(0))
        rest = np.sqrt(m - r) * (gradient - basis @ inner) / np.sqrt(p)
        eta = 1.01 / max(np.linalg.norm(rest) / norm, 1.01) if norm > 0 else 1.0
        assert norm == 0 or eta * np.linalg.norm(rest) <= 1.01 * norm * (1 + 1e-12)
        norm = np.linalg.norm(eta * rest)
        np.testing.assert_allclose(basis.T @ rest, 0, atol=1e-10)
        np.testing.assert_allclose(
            direction, 0.3 * (basis @ (first / np.sqrt(second)) + 0.4 * eta * rest), rtol=1e-8, atol=1e-12
        )
    np.testing.assert_allclose(states[-1].tracked, tracked, rtol=1e-10)


def test_alice_keeps_the_authors_number_of_columns():
    assert [default_leading(rank) for rank in (1, 32, 128, 256, 512)] == [1, 10, 40, 40, 160]


def test_alice_0_that_keeps_its_basis_is_galore_without_bias_correction():
    sequence, r = gradients(), 2
    options = {"rank": r, "leading": r, "interval": 100, "b2": 0.999, "scale": 1.0, "compensation": "none"}
    one, states = run(optim.alice_0(None, rms=None, **options), sequence)
    assert states[-1].tracked is None
    basis = np.linalg.svd(sequence[0])[0][:, :r]
    m = v = 0.0
    for gradient, direction in zip(sequence, one, strict=True):
        inner = basis.T @ gradient
        m, v = 0.9 * m + 0.1 * inner, 0.999 * v + 0.001 * inner**2
        np.testing.assert_allclose(direction, basis @ (m / np.sqrt(v)), rtol=1e-8)


@pytest.mark.parametrize("switching", ["complement", "full_basis", "none", "gaussian", "gaussian_mix"])
def test_switches_keep_the_leading_columns_and_the_lengths(switching):
    basis = np.linalg.qr(np.random.default_rng(7).normal(size=(9, 4)))[0]
    fresh = switched(jax.random.key(0), jnp.asarray(basis), 2, switching)
    gram = fresh.T @ fresh
    np.testing.assert_allclose(np.diag(gram), 1, rtol=1e-12)
    assert np.allclose(gram, np.eye(4), atol=1e-12) == (not switching.startswith("gaussian"))
    if switching != "gaussian":
        np.testing.assert_array_equal(fresh[:, :2], basis[:, :2])
    if switching == "complement":
        np.testing.assert_allclose(np.abs(fresh), np.abs(switch(basis, 2, jax.random.key(0))), atol=1e-12)


def test_a_small_complement_keeps_more_columns():
    basis = jnp.eye(5, 4)
    fresh = switched(jax.random.key(0), basis, 1, "complement")
    np.testing.assert_array_equal(fresh[:, :3], basis[:, :3])
    np.testing.assert_allclose(fresh.T @ fresh, np.eye(4), atol=1e-12)


@pytest.mark.parametrize("compensation", ["fira", "fira_plus"])
def test_compensations_of_the_ablation(compensation):
    gradient, r = gradients()[0], 2
    (direction,), (state,) = run(
        optim.scale_by_alice(rms=None, rank=r, leading=r, scale=1.0, compensation=compensation, compensation_scale=0.5),
        [gradient],
    )
    assert state.residual is None
    basis = np.asarray(state.basis)
    inner = basis.T @ gradient
    within = 0.1 * inner / np.sqrt(0.1 * inner**2)
    rest = (gradient - basis @ inner) * np.linalg.norm(within, axis=0) / np.linalg.norm(inner, axis=0)
    if compensation == "fira_plus":
        rest *= np.linalg.norm(basis @ within) / np.linalg.norm(rest)
    np.testing.assert_allclose(direction, basis @ within + 0.5 * rest, rtol=1e-8)


# --- Fira, APOLLO


def adam(inner, moments, t):
    m, v = (0.9 * moments[0] + 0.1 * inner, 0.999 * moments[1] + 0.001 * inner**2)
    return m / (1 - 0.9**t) / np.sqrt(v / (1 - 0.999**t)), (m, v)


@pytest.mark.parametrize("name", ["fira", "apollo svd", "apollo", "apollo mini"])
def test_low_rank_boxes(name):
    r, interval, sequence = (1 if "mini" in name else 2), 3, gradients()
    options = {"rank": r, "interval": interval, "eps": 0.0, "scale": 0.3}
    if name == "fira":
        transform = optim.scale_by_fira(rms=None, **options)
    else:
        transform = optim.scale_by_apollo(rms=None, **options, projection="svd" if "svd" in name else "random", seed=3)
    directions, _ = run(transform, sequence)
    moments, norm, key = (0.0, 0.0), 0.0, jax.random.fold_in(jax.random.key(3), 0)
    for t, (gradient, direction) in enumerate(zip(sequence, directions, strict=True), 1):
        if name in ("apollo", "apollo mini"):
            basis = np.asarray(jax.random.normal(jax.random.fold_in(key, t // interval), (M, r))) / np.sqrt(r)
        elif t == 1 or t % interval == 0:
            # Signs of singular vectors are the library's own, since the moments keep their coordinates.
            basis = np.asarray(linear.eigenvectors(jnp.asarray(gradient @ gradient.T), r))
            np.testing.assert_allclose(np.abs(basis), np.abs(np.linalg.svd(gradient)[0][:, :r]), atol=1e-9)
        inner = basis.T @ gradient
        within, moments = adam(inner, moments, t)
        ratios = np.linalg.norm(within, axis=0) / np.linalg.norm(inner, axis=0)
        if name == "fira":
            rest = (gradient - basis @ inner) * ratios
            rest *= 1.01 / max(np.linalg.norm(rest) / norm, 1.01) if norm else 1.0
            norm = np.linalg.norm(rest)
            wanted = basis @ within + rest
        else:
            wanted = gradient * (ratios if r > 1 else np.linalg.norm(within) / np.linalg.norm(inner))
        np.testing.assert_allclose(direction, 0.3 * wanted, rtol=1e-7)


TRANSFORMS = {
    "racs": optim.scale_by_racs(rms=None),
    "alice": optim.scale_by_alice(rms=None, rank=2, interval=3),
    "shampoo": optim.scale_by_shampoo(rms=None),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_directions_do_not_depend_on_the_orientation(name):
    sequence = gradients(steps=4)
    once, _ = run(TRANSFORMS[name], sequence)
    turned, _ = run(TRANSFORMS[name], sequence.transpose(0, 2, 1))
    np.testing.assert_allclose([t.T for t in turned], once, rtol=1e-9)


@pytest.mark.parametrize("name", ["soap", "eigen_adam", "shampoo", "alice", "fira"])
def test_steps_stay_in_the_span_of_gradients_of_rank_one(name):
    """What is a rounding error of the gradient moves nothing, however small the second moments there."""
    options = {"rank": 4} if name in ("alice", "fira") else {}
    transform = getattr(optim, f"scale_by_{name}")(interval=3, **options)
    rng = np.random.default_rng(10)
    left, right = rng.normal(size=6), rng.normal(size=9)
    sequence = [np.float32(100 * share * np.outer(left, right)) for share in rng.uniform(0.5, 1.5, 8)]
    for direction in run(transform, sequence)[0]:
        sides = [(direction, left), (direction.T, right)][: 2 if name in ("soap", "shampoo") else 1]
        for side, known in sides:
            outside = side - np.outer(known, known @ side) / (known @ known)
            assert np.linalg.norm(outside) < 1e-4 * np.linalg.norm(side)


def size(tree):
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize("shape", [(N, M), (2, 2, N)])
def test_state_sizes_are_the_papers(shape):
    m, n, r = M, N, 2
    sizes = {
        optim.scale_by_racs(): m + n + 1,
        optim.scale_by_alice(rank=r): 2 * n * r + m * r + n + r * r + 1,
        optim.scale_by_alice(rank=r, b3=0): 2 * n * r + m * r + n + 1,
        optim.scale_by_eigen_adam(): 2 * m * n + 2 * m * m,
        optim.scale_by_soap(): 2 * m * n + 2 * m * m + 2 * n * n,
        optim.scale_by_shampoo(): m * m + n * n,
        optim.scale_by_shampoo(interval=2): 2 * m * m + 2 * n * n,
        optim.scale_by_swan(): 0,
        optim.scale_by_fira(rank=r): 2 * n * r + m * r + 1,
        optim.scale_by_apollo(rank=r, projection="svd"): 2 * n * r + m * r,
        optim.scale_by_apollo(rank=r): 2 * n * r,
        optim.scale_by_apollo(rank=1): 2 * n,
        optim.scale_by_fismo(interval=1): None,
    }
    for transform, wanted in sizes.items():
        rows, columns = int(np.prod(shape[:-1])), shape[-1]
        wanted = rows * columns + rows**2 + 2 * columns**2 + 2 if wanted is None else wanted
        assert size(of_matrices(transform.init(jnp.zeros(shape))).matrices) == wanted


def test_vectors_are_refused_as_matrices():
    with pytest.raises(ValueError, match=r"the parameter 'bias' of shape \(3,\), which is not a matrix: leave"):
        optim.racs(0.1, matrices=True).init({"bias": jnp.zeros(3)})


@pytest.mark.parametrize(("count", "interval"), [(1, 3), (2, 5), (7, 3), (36, 10)])
def test_bases_are_renewed_in_turn(count, interval):
    """All in the first step, and then each once in an interval: in every step as many as in any other."""
    numbers = jnp.arange(1, 2 * interval + 2)
    due = np.array([common.Step(numbers, jax.random.key(0), place, count).due(interval) for place in range(count)])
    assert due[:, 0].all()
    assert np.all(due[:, 1 : interval + 1].sum(1) == 1)
    np.testing.assert_array_equal(due[:, 1 : interval + 1], due[:, interval + 1 :])
    for largest in range(1, count + 1):
        assert np.ptp(due[:largest, 1 : interval + 1].sum(0)) <= 1
    assert count > 1 or due[0, interval - 1]


# --- FISMO


def fismo(interval=1, **settings):
    """As printed: with new roots in every step."""
    return optim.scale_by_fismo(rms=None, interval=interval, **settings)


def polar(matrix, rank=None):
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    return left[:, :rank] @ right[:rank]


def algorithm_1(sequence, beta=0.95, gamma=0.95, mu=1e-3, damping="algorithm", rank=None):
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
        left, right = root(p, -0.5), root(q, -0.5)
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
