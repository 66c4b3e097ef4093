"""Derivatives through filters, factorizations and optimizers, also where eigenvalues are equal."""

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqdec import filters, likelihoods, linalg, models, optim
from seqdec.filters import Numerics
from seqdec.linalg import spectral
from seqdec.optim import linear

NOISY: dict[str, dict[str, Any]] = {
    "lrkf": {"rank": 6, "process_noise": 1e-2},
    "hilofi": {"rank": 4, "process_noise_hidden": 1e-2, "process_noise_last": 1e-2},
    "lolofi": {"rank_hidden": 4, "rank_last": 4, "process_noise_hidden": 1e-2, "process_noise_last": 1e-2},
    "lofi": {"rank": 4, "process_noise": 1e-2},
    "ekf": {"process_noise": 1e-2},
}
OTHERS = [pytest.param(name, marks=pytest.mark.extended) for name in NOISY if name != "lrkf"]


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("name", ["lrkf", *OTHERS])
def test_the_derivative_by_every_number_of_a_belief(name: str) -> None:
    """Through two updates, the first of a prior, in which all directions have equal variances."""

    def after_two(numbers: Any = None) -> Any:
        """A prediction after two updates of a belief with these numbers; the numbers, where they are None."""
        network = models.network(models.MLP(2, (2,)), jnp.zeros(2))
        flt = getattr(filters, name)(network, likelihoods.gaussian(0.1), **NOISY[name])
        leaves, structure = jax.tree.flatten(flt.init(jax.random.key(1), network.init(jax.random.key(0))))
        places = [index for index, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.floating)]
        if numbers is None:
            return [leaves[index] for index in places]
        for index, leaf in zip(places, numbers, strict=True):
            leaves[index] = jnp.asarray(leaf)
        belief = flt.update(flt.predict(structure.unflatten(leaves)), jnp.array([1.0, 0.5]), jnp.array([0.3, 0.5]))[0]
        belief = flt.update(flt.predict(belief), jnp.array([-0.3, 1.0]), jnp.array(0.5), 1)[0]
        at = flt.moments(belief, jnp.array([0.2, 0.7]))
        return at.mean.sum() + at.cov[0, 0] + 2 * at.cov[0, 1]

    numbers = after_two()
    slopes = jax.jit(jax.grad(after_two))(numbers)
    draws = np.random.default_rng(0)
    # Single numbers are variances of noise that has yet to arrive.
    moves = [draws.normal(size=leaf.shape) if leaf.ndim else np.zeros(()) for leaf in numbers]
    with jax.enable_x64(True):
        at = jax.jit(after_two)
        left, right = (
            float(at([np.asarray(leaf, float) + by * move for leaf, move in zip(numbers, moves, strict=True)]))
            for by in (-1e-6, 1e-6)
        )
    slope = sum(np.sum(slope * move) for slope, move in zip(slopes, moves, strict=True))
    np.testing.assert_allclose(slope, (right - left) / 2e-6, rtol=0.02)


@pytest.mark.extended
@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("name", NOISY)
def test_the_log_density_of_a_stream_has_second_derivatives(name: str) -> None:
    """From a prior with equal eigenvalues on; against a difference quotient of the gradient."""
    network = models.network(models.MLP(2, (3,), jnp.tanh), jnp.zeros(2))
    params = jax.tree.map(lambda leaf: leaf.astype(float), network.init(jax.random.key(0)))
    flt = getattr(filters, name)(
        network, likelihoods.gaussian(0.1), **NOISY[name], numerics=Numerics(dtype=jnp.float64)
    )
    xs, ys = np.random.default_rng(0).normal(size=(2, 2, 2))

    def total(moves: Any) -> Any:
        belief, density = flt.init(jax.random.key(1), jax.tree.map(lambda leaf: (1 + moves[0]) * leaf, params)), 0.0
        for x, y in zip(xs, ys, strict=True):
            belief, info = flt.update(flt.predict(belief), jnp.asarray(x) * (1 + moves[1]), jnp.asarray(y))
            density += info.log_density
        return density

    gradient = jax.jit(jax.grad(total))
    steps = 1e-5 * jnp.eye(2)
    wanted = np.stack([gradient(step) - gradient(-step) for step in steps]) / 2e-5
    hessian = jax.jit(jax.jacfwd(jax.grad(total)))(jnp.zeros(2))
    np.testing.assert_allclose(hessian, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())


MOVE = np.random.default_rng(1).normal(size=(5, 5))
OF_SYMMETRIC = {
    "projector": lambda a: (kept := linalg.parted_eigenvectors(a, 2).kept) @ kept.T,
    "sylvester": lambda a: spectral.sylvester(a, -a, jnp.asarray(MOVE + MOVE.T)),
}


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("name", OF_SYMMETRIC)
def test_functions_of_equal_eigenvalues_have_second_derivatives(name: str) -> None:
    def value(t: Any) -> Any:
        moved = jnp.diag(jnp.array([2.0, 2.0, 2.0, 0.5, 0.5])) + t * jnp.asarray(MOVE + MOVE.T)
        return jnp.sum(OF_SYMMETRIC[name](moved) * jnp.outer(jnp.arange(5.0), jnp.arange(1.0, 6.0)))

    first, zero = jax.jit(jax.grad(value)), jnp.asarray(0.0)
    wanted = (first(zero + 1e-5) - first(zero - 1e-5)) / 2e-5
    for second in (jax.jacfwd(jax.grad(value)), jax.grad(jax.jacfwd(value)), jax.grad(jax.grad(value))):
        np.testing.assert_allclose(jax.jit(second)(zero), wanted, rtol=1e-5)


OF_GRADIENTS = {
    "fismo": lambda a: linear.power(a @ a.T, -0.5),
    "shampoo": lambda a: linear.power(a @ a.T, -0.25),
    "polar": lambda a: linear.polar(a, "exact", 1),
    "subspace": lambda a: (vectors := linear.eigenvectors(a @ a.T, 2)) @ vectors.T,
}


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("name", OF_GRADIENTS)
def test_functions_of_gradients_have_derivatives_where_eigenvalues_are_equal(name: str) -> None:
    direction = np.random.default_rng(2).normal(size=(3, 4))

    @jax.jit
    def value(t: Any, diagonal: Any) -> Any:
        found = OF_GRADIENTS[name](jnp.diag(diagonal) @ jnp.eye(3, 4) + t * direction)
        return jnp.sum(found * jnp.cos(jnp.arange(found.size, dtype=found.dtype)).reshape(found.shape))

    slopes, zero = jax.jit(lambda *at: (jax.grad(value)(*at), jax.jacfwd(value)(*at))), jnp.asarray(0.0)
    for diagonal in ((1.5, 1.5, 1.0), (1.5 + 1e-9, 1.5, 1.0), (1.5, 1.2, 1.0)):
        at = jnp.array(diagonal)
        wanted = (value(zero + 1e-5, at) - value(zero - 1e-5, at)) / 2e-5
        np.testing.assert_allclose(slopes(zero, at), [wanted] * 2, rtol=1e-4)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", sorted(optim.REGISTRY, key=lambda name: name != "fismo"))
def test_parameters_after_three_steps_have_derivatives_by_every_setting(name: str) -> None:
    """Also where the gradients are zero, or equal, or of equal singular values."""
    factory = optim.REGISTRY[name]
    taken = inspect.signature(factory).parameters
    settings = {key: value.default for key, value in taken.items() if isinstance(value.default, float)}
    settings["learning_rate"] = 0.1
    params = {"hidden": {"kernel": jnp.ones((3, 4)), "bias": jnp.zeros(4)}, "out": {"kernel": jnp.ones((4, 2))}}

    def squares(settings: Any, gradients: Any, moving: Any) -> Any:
        optimizer = factory(**settings)
        now, state = params, optimizer.init(params)
        for _ in range(3):
            updates, state = optimizer.update(gradients, state, now, value=jnp.float32(1.5))
            now = jax.tree.map(jnp.add, now, updates)
            gradients = jax.tree.map(jnp.add, gradients, now) if moving else gradients
        return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(now))

    gradient = jax.jit(jax.grad(squares), static_argnums=2)
    units = jax.tree.map(jnp.ones_like, params) | {"hidden": {"kernel": jnp.eye(3, 4), "bias": jnp.ones(4)}}
    zeros = jax.tree.map(jnp.zeros_like, params)
    for gradients, moving in ((zeros, False), (params, False), (units, False), (units, True)):
        slopes = gradient(settings, gradients, moving)
        assert all(np.isfinite(slope) for slope in slopes.values()), slopes
