"""Every optimizer by name: the contract of `seqdec.testing`, convergence, settings, and the wrappers of optax."""

import dataclasses
import functools
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import serialization
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from seqdec import optim, testing

# Learning rates for the targets below; they fall along a cosine.
RATES = {
    "alice": 0.3,
    "alice_0": 0.3,
    "apollo": 0.1,
    "eigen_adam": 0.1,
    "fira": 0.3,
    "fismo": 0.1,
    "koala_m": 0.1,
    "koala_plus_plus": 0.3,
    "koala_v": 0.3,
    "racs": 1.0,
    "self_tuning_adamw": 0.03,
    "self_tuning_muon": 0.1,
    "self_tuning_sgd": 0.003,
    "shampoo": 0.3,
    "soap": 0.1,
    "swan": 0.1,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "alice": {"rank": 2, "interval": 10},
    "alice_0": {"rank": 2, "interval": 10},
    "apollo": {"rank": 2, "interval": 10},
    "fira": {"rank": 2, "interval": 10},
    # The gradients of the targets are large, and the damping of the theory is of the size of their squares.
    "fismo": {"statistics": "scale_free", "eps": 1.0},
}
NAMES = sorted(RATES)
STEPS = 600


def make(name, learning_rate: Any = 0.1, **options):
    return getattr(optim, name)(learning_rate, **{**OPTIONS.get(name, {}), **options})


def test_every_optimizer_is_registered_listed_here_and_public():
    assert optim.REGISTRY.names() == tuple(NAMES)
    assert all(optim.REGISTRY[name] is getattr(optim, name) for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_contract(name):
    testing.check_optimizer(functools.partial(make, name))


# --- convergence


def quadratic(params):
    curvature = jnp.array([1.0, 4.0, 10.0])
    return (
        0.5 * jnp.sum(curvature[:, None] * (params["hidden"] - 0.3) ** 2)
        + jnp.sum((params["bias"] + 1) ** 2)
        + (params["scale"] - 2) ** 2
    )


def rosenbrock(params):
    x, y = params["hidden"]
    return jnp.mean(100 * (y - x**2) ** 2 + (1 - x) ** 2)


def factorization(params):
    truth = jnp.outer(jnp.arange(1.0, 5.0), jnp.array([1.0, -1.0, 0.5])) / 4 + jnp.eye(4, 3)
    return 0.5 * jnp.sum((params["left"] @ params["right"] - truth) ** 2)


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


STARTS = {
    "quadratic": {"hidden": normal(0, 3, 4), "bias": normal(1, 4), "scale": jnp.zeros(())},
    "rosenbrock": {"hidden": jnp.stack([-0.5 + 0.1 * normal(2, 3), 0.1 * normal(3, 3)])},
    "factorization": {"left": normal(4, 4, 3), "right": normal(5, 3, 3)},
}
TARGETS = {"quadratic": (quadratic, 1e-3), "rosenbrock": (rosenbrock, 0.05), "factorization": (factorization, 1e-2)}


def together(params):
    """All targets at once, each on parameters of its own."""
    return sum(loss_of(params[name]) for name, (loss_of, _) in TARGETS.items())


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", NAMES)
def test_converges(name):
    transform = make(name, optax.cosine_decay_schedule(RATES[name], STEPS))

    def step(carry, _):
        params, state = carry
        loss, gradients = jax.value_and_grad(together)(params)
        updates, state = transform.update(gradients, state, params, value=loss)
        return (optax.apply_updates(params, updates), state), None

    (end, _), _ = jax.jit(lambda params: jax.lax.scan(step, (params, transform.init(params)), length=STEPS))(STARTS)
    if name == "swan":  # it throws the means of the rows away, so they stay where they were
        start = STARTS["quadratic"]["hidden"] - 0.3
        error = end["quadratic"]["hidden"] - 0.3
        np.testing.assert_allclose(error, jnp.mean(start, 1, keepdims=True) + jnp.zeros(4), atol=0.03)
        return
    for target, (loss_of, share) in TARGETS.items():
        assert loss_of(end[target]) < share * loss_of(STARTS[target]), target


# --- settings

UNIT_INTERVAL = ("b1", "b2", "b3", "noise_decay")  # without 1; fismo with b2 = 1 is Muon


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_refuses_what_is_out_of_its_range(name):
    settings = {key: one.default for key, one in inspect.signature(getattr(optim, name)).parameters.items()}
    wrong = [(key, "nope") for key, default in settings.items() if isinstance(default, str)]
    wrong += [(key, -1) for key, default in settings.items() if type(default) in (int, float)]
    wrong += [(key, 1.0) for key in settings if key in UNIT_INTERVAL and (name, key) != ("fismo", "b2")]
    for key, value in wrong:
        with pytest.raises(ValueError, match=key):
            pytest.fail(f"{key}={value} is accepted: {make(name, **{key: value})}")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("alice", {"rank": 4, "leading": 5}, "leading must not exceed the rank 4; got 5"),
        ("alice", {"switching": "often"}, "unknown switching 'often': .*Known: complement, "),
        ("alice", {"b1": 1.0}, r"b1 must lie in \[0, 1\); got 1.0"),
        ("koala_v", {"noise": -1}, "noise must lie in"),
        ("racs", {"growth": 0.9}, r"growth must lie in \[1, inf\)"),
        ("racs", {"scale": 0.0}, r"scale must lie in \(0, inf\); got 0.0"),
        ("self_tuning_sgd", {"momenta": ()}, "momenta must name at least one candidate"),
        ("self_tuning_sgd", {"momenta": (0.5, 1.0)}, r"momenta must lie in \[0, 1\); got 1.0"),
    ],
)
def test_messages_have_the_value_and_the_range(name, options, message):
    with pytest.raises(ValueError, match=message):
        make(name, **options)


PARAMS = {"hidden": normal(6, 3, 4), "bias": normal(7, 4), "scale": jnp.ones(()), "row": normal(8, 1, 3)}
GRADS = [jax.tree.map(lambda leaf, s=s: normal(s, *leaf.shape), PARAMS) for s in (10, 11)]


@pytest.mark.parametrize("name", NAMES)
def test_settings_that_are_arrays_leave_the_dtype_of_the_updates(name):
    narrow = functools.partial(jax.tree.map, lambda leaf: leaf.astype(jnp.bfloat16))
    known = inspect.signature(getattr(optim, name)).parameters
    arrays = {key: np.float32(0.01) for key in ("weight_decay", "rms") if key in known}
    transform = make(name, np.float32(0.1), **arrays)

    def step(params, gradient):
        return transform.update(gradient, transform.init(params), params, value=jnp.float32(1.5))[0]

    updates = jax.eval_shape(step, narrow(PARAMS), narrow(GRADS[0]))
    assert {leaf.dtype for leaf in jax.tree.leaves(updates)} == {jnp.dtype(jnp.bfloat16)}


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Module:
    """Parameters of a class with `__call__`, as equinox has them."""

    hidden: Any
    output: Any

    def __call__(self, x):
        return x @ self.hidden @ self.output


def test_routing_by_tree_function_and_default():
    params = {"hidden": jnp.ones((3, 4)), "output": jnp.ones((4, 2)), "bias": jnp.ones(3)}
    grads = jax.tree.map(jnp.ones_like, params)
    adam, _ = (a := optax.adam(0.1)).update(grads, a.init(params))

    def to_adam(matrices=None, params=params):
        transform, grads = optim.racs(0.1, matrices=matrices), jax.tree.map(jnp.ones_like, params)
        updates, _ = transform.update(grads, transform.init(params), params)
        updates = updates if isinstance(updates, dict) else vars(updates)
        return {name for name, update in updates.items() if np.allclose(update, adam[name])}

    assert to_adam() == {"output", "bias"}
    assert to_adam(functools.partial(optim.hidden_matrices, include_head=True)) == {"bias"}
    assert to_adam({"hidden": False, "output": True, "bias": False}) == {"hidden", "bias"}
    assert to_adam(lambda tree: jax.tree.map(lambda _: False, tree)) == set(params)
    # A tree that can be called is a tree, and a function that is a tree is a function.
    for mask in (Module(np.bool_(False), True), jax.tree_util.Partial(lambda _: Module(False, True))):
        assert to_adam(mask, Module(params["hidden"], params["output"])) == {"hidden"}


def test_weight_decay_is_decoupled_and_follows_the_group():
    params = {"hidden": jnp.full((3, 4), 2.0), "bias": jnp.full(3, 2.0)}
    zero = jax.tree.map(jnp.zeros_like, params)
    for rest, share in ((None, 0.1 * 0.5), (optax.adamw(0.2, weight_decay=0.4), 0.2 * 0.4), (optax.adam(0.2), 0)):
        transform = optim.alice(0.1, weight_decay=0.5, rest=rest)
        updates, _ = transform.update(zero, transform.init(params), params)
        np.testing.assert_allclose(updates["hidden"], -0.1 * 0.5 * 2, rtol=1e-6)
        np.testing.assert_allclose(updates["bias"], -share * 2, rtol=1e-6)


MATRIX_METHODS = [name for name in NAMES if "rms" in inspect.signature(getattr(optim, name)).parameters]
LAYERS = {
    "embed": {"embedding": normal(20, 7, 4)},
    "one": {"kernel": normal(21, 4, 6), "bias": normal(22, 6)},
    "stack": {"kernel": normal(23, 3, 6, 5), "bias": normal(24, 3, 5)},
    "tall": {"kernel": 1e3 * normal(25, 9, 2)},
    "output": {"kernel": normal(26, 5, 3)},
}
AXES = functools.partial(optim.matrix_axes, scanned={"stack": 0})
IS_MATRIX = optim.hidden_matrices(LAYERS)


def steps_of(transform, dtype, count=10):
    """Updates of some steps, by gradients of sizes from 1e-6 to 1e6."""
    params = jax.tree.map(lambda leaf: leaf.astype(dtype), LAYERS)
    update, state = jax.jit(transform.update), transform.init(params)
    for number in range(count):
        sizes = [
            jnp.full_like(leaf, 10.0 ** ((5 * number + 3 * place) % 13 - 6))
            for place, leaf in enumerate(jax.tree.leaves(params))
        ]
        gradients = jax.tree.map(
            lambda leaf, size, number=number: size * jnp.roll(leaf, number),
            params,
            jax.tree.structure(params).unflatten(sizes),
        )
        updates, state = update(gradients, state, params)
        yield gradients, updates


@pytest.mark.parametrize("name", MATRIX_METHODS)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_updates_of_every_matrix_have_the_size_of_adamw(name, dtype):
    """In every step; layers of a stack each by itself, and decay and learning rate come after."""
    transform = make(name, lambda step: 0.1 / (1 + step), matrices=AXES, weight_decay=0.0)
    for number, (_, updates) in enumerate(steps_of(transform, dtype)):
        moved = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), updates)
        for matrix in (moved["one"]["kernel"], *moved["stack"]["kernel"], moved["tall"]["kernel"]):
            size = np.sqrt(np.mean(np.square(matrix)))
            np.testing.assert_allclose(size, 0.2 * 0.1 / (1 + number), rtol=0.01 if dtype == jnp.bfloat16 else 1e-5)


@pytest.mark.parametrize("name", MATRIX_METHODS)
def test_rest_is_that_optimizer_on_all_other_parameters(name):
    """To rounding; None is AdamW with the settings of the matrices."""
    rate, number = optax.linear_schedule(0.1, 0.01, 5), len(jax.tree.leaves(LAYERS))

    def mask(params):  # sees all parameters
        return jax.tree.map(lambda leaf: leaf.ndim < 3 and len(jax.tree.leaves(params)) == number, params)

    own = optax.lion(rate, weight_decay=0.3)
    for rest, plain in ((own, own), (None, optax.adamw(rate, weight_decay=0.5, mask=mask))):
        transform = make(name, rate, weight_decay=0.5, mask=mask, rest=rest, matrices=AXES)
        state = plain.init(LAYERS)
        for gradients, updates in steps_of(transform, jnp.float32, 3):
            wanted, state = jax.jit(plain.update)(gradients, state, LAYERS)
            found = jax.tree.map(lambda a, b: bool(np.allclose(a, b, 1e-6, 0)), updates, wanted)
            assert found == jax.tree.map(lambda matrix: not matrix, IS_MATRIX)


def test_rest_of_bfloat16_keeps_its_state_in_float32_and_its_values():
    """Also one that keeps parameters, as schedule-free optimizers do."""
    rest = optax.contrib.schedule_free_adamw(0.1)
    state = optim.racs(0.1, rest=rest).init(jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), LAYERS))
    kept = state.inner_states["rest"].inner_state[1].z["output"]["kernel"]
    assert kept.dtype == jnp.float32
    np.testing.assert_array_equal(kept, LAYERS["output"]["kernel"].astype(jnp.bfloat16).astype(jnp.float32))


@pytest.mark.parametrize("name", ["alice", "self_tuning_muon"])
def test_without_rms_the_scale_is_that_of_the_method(name):
    """Directions differ by a factor for each matrix; zero stays zero, and what is huge finite."""
    scaled, own = (steps_of(make(name, None, matrices=AXES, rms=rms), jnp.float32, 3) for rms in (0.5, None))
    for (_, one), (_, other) in zip(scaled, own, strict=True):
        for found, wanted in zip(one["stack"]["kernel"], other["stack"]["kernel"], strict=True):
            size = np.sqrt(np.mean(np.square(wanted)))
            assert abs(size - 0.5) > 0.01
            np.testing.assert_allclose(found, 0.5 * wanted / size, rtol=1e-5)


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e30, 3e38])
def test_routed_directions_of_any_size(size):
    direction = optax.stateless(lambda updates, _: jax.tree.map(lambda leaf: size * leaf, updates))
    for dtype in (jnp.float32, jnp.bfloat16):
        transform = optim.routed(direction, 1.0)
        params = {"hidden": jnp.asarray([[1.0, -1.0, 0.5], [0.0, 1.0, 0.5]], dtype)}
        (moved,) = jax.tree.leaves(jax.jit(transform.update)(params, transform.init(params))[0])
        wanted = 0.2 * np.asarray(params["hidden"], float) / np.sqrt(3.5 / 6) * (size > 0)
        np.testing.assert_allclose(np.asarray(moved, float), -wanted, rtol=0.01)


@pytest.mark.parametrize("rest", [0.05, optax.adam])
def test_a_rest_that_is_no_optimizer_is_refused(rest):
    with pytest.raises(TypeError, match=r"rest must be an optax transformation, such as optax.adamw\(1e-3\); got "):
        optim.racs(0.1, rest=rest)


BIASES = {"hidden": {"kernel": False, "bias": True}, "scale": False}


@pytest.mark.parametrize(("name", "mask"), [*((name, BIASES) for name in NAMES), ("racs", lambda _: BIASES)])
def test_weight_decay_falls_on_the_parameters_of_its_mask(name, mask):
    """Gradients of zero move them alone."""
    params = {"hidden": {"kernel": jnp.ones((3, 4)), "bias": jnp.ones(4)}, "scale": jnp.ones(3)}
    transform, zero = make(name, weight_decay=0.5, mask=mask), jax.tree.map(jnp.zeros_like, params)
    step = jax.jit(lambda params: transform.update(zero, transform.init(params), params, value=jnp.float32(0.0))[0])
    assert jax.tree.map(lambda leaf: bool(np.all(leaf < 0)), step(params)) == BIASES


# --- optax


def leaves_close(one, other, rtol=2e-5, atol=1e-6):
    """Two trees, equal to rounding; integers exactly."""
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=rtol, atol=atol)


def second_updates(transform, params=PARAMS, grads=GRADS):
    """Of two steps."""
    state, update = transform.init(params), jax.jit(lambda g, s, p: transform.update(g, s, p, value=jnp.float32(1.5)))
    for gradient in grads:
        updates, state = update(gradient, state, params)
    return updates


@pytest.mark.parametrize("name", NAMES)
def test_a_model_without_hidden_matrices_keeps_the_shapes_of_the_state(name):
    params = {"output": {"kernel": jnp.ones((3, 2)), "bias": jnp.ones(2)}}
    transform = make(name)
    start = jax.eval_shape(transform.init, params)
    update = functools.partial(transform.update, value=jnp.float32(1.0))
    _, state = jax.eval_shape(update, params, start, params)
    assert kinds(state) == kinds(start)


def kinds(tree):
    """Structure, and shape and dtype of each leaf."""
    return jax.tree.structure(tree), [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("name", NAMES)
def test_state_survives_a_checkpoint(name):
    transform = make(name)
    state = jax.tree.map(lambda leaf: leaf + 1, transform.init(PARAMS))
    restored = serialization.from_bytes(transform.init(PARAMS), serialization.to_bytes(state))
    assert jax.tree.structure(restored) == jax.tree.structure(state)
    leaves_close(restored, state, 0, 0)


REST = optax.adamw(optax.linear_schedule(0.1, 0.01, 9), weight_decay=0.1)


@pytest.mark.parametrize(("name", "given"), [("alice", {}), ("alice", {"rest": REST}), ("koala_plus_plus", {})])
def test_composes_with_the_rest_of_optax(name, given):
    """One program: accumulation over hyperparameters in the state, beside a masked group and a finite guard."""
    static = [
        key for key, one in inspect.signature(getattr(optim, name)).parameters.items() if type(one.default) is int
    ]
    options = OPTIONS.get(name, {}) | given
    injected = optax.inject_hyperparams(getattr(optim, name), static)(learning_rate=0.1, **options)
    inner = optax.apply_if_finite(optax.chain(optax.clip_by_global_norm(1e6), injected), 3)
    accumulated = optax.MultiSteps(optax.with_extra_args_support(inner), 2)
    whole = optax.GradientTransformationExtraArgs(accumulated.init, accumulated.update)  # pyright: ignore
    mask = {"hidden": True, "bias": True, "scale": True, "row": True, "frozen": False}
    masked = optax.with_extra_args_support(optax.masked(whole, mask))
    params = {**PARAMS, "frozen": jnp.ones(2)}
    state, update = masked.init(params), jax.jit(lambda g, s, p: masked.update(g, s, p, value=1.5, unknown=2))
    alone = make(name, **given)
    optax.tree.map_params(alone, lambda leaf: leaf, alone.init(PARAMS))
    for gradient in GRADS:
        for _ in range(2):
            updates, state = update({**gradient, "frozen": jnp.full(2, 7.0)}, state, params)
    np.testing.assert_array_equal(updates.pop("frozen"), 7.0)
    leaves_close(updates, second_updates(alone))
    assert update._cache_size() == 1

    # A gradient that is not finite changes neither parameters nor the optimizer's state.
    broken = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), {**GRADS[0], "frozen": jnp.ones(2)})
    kept = state.inner_state.inner_opt_state.inner_state
    for _ in range(2):
        updates, state = update(broken, state, params)
    np.testing.assert_array_equal(updates["hidden"], 0)
    leaves_close(state.inner_state.inner_opt_state.inner_state, kept, 0, 0)


def test_a_schedule_of_any_number_may_be_injected():
    scheduled = optax.inject_hyperparams(optim.scale_by_racs, static_args="sweeps")(b2=lambda step: 0.5 + 0.1 * step)
    assert scheduled.init({"hidden": PARAMS["hidden"]}).hyperparams["b2"] == 0.5
    with pytest.raises(TypeError, match=r"with optax.inject_hyperparams, name 'rank' among its static_args"):
        optax.inject_hyperparams(optim.alice)(learning_rate=0.1).init(PARAMS)


def test_state_and_updates_are_sharded_as_the_parameters():
    """Arrays of their shape, the stacked momenta of the self-tuning methods, and the transposes of tall matrices."""
    mesh = Mesh(np.asarray(jax.devices()[:2]), ("model",))
    columns, rows, stacked = (
        NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((None, "model"), ("model", None), (None, None, "model"))
    )
    wanted = {(4, 6): columns, (4, 8): rows, (4, 2): columns, (2, 4, 6): stacked, (2, 8, 4): stacked}
    shapes = {"hidden": (4, 6), "tall": (8, 4), "output": (4, 2)}
    params = {name: jax.device_put(normal(0, *shape), columns) for name, shape in shapes.items()}
    for name in ("alice", "koala_plus_plus", "self_tuning_adamw", "self_tuning_muon", "soap"):
        for leaf in jax.tree.leaves(getattr(optim, name)(0.1).init(params)):
            if leaf.shape in wanted:
                assert leaf.sharding.is_equivalent_to(wanted[leaf.shape], leaf.ndim), (name, leaf.shape)
    updates = second_updates(make("alice"), params, [params, params])
    assert len(updates["hidden"].sharding.device_set) == mesh.size
    whole = jax.tree.map(np.asarray, params)
    leaves_close(updates, second_updates(make("alice"), whole, [whole, whole]), 2e-4, 1e-5)


def test_fira_lets_the_part_outside_its_basis_grow_by_its_factor_a_step() -> None:
    """Gradients with one strong direction, the basis, and a rest that is small in the first step and large after it."""
    draw = np.random.default_rng(0)
    left, _ = np.linalg.qr(draw.normal(size=(4, 4)))
    right, _ = np.linalg.qr(draw.normal(size=(6, 6)))
    made = optim.scale_by_fira(rank=1, growth=1.5, rms=None)
    state, lengths = made.init({"w": jnp.zeros((4, 6))}), []
    for rest in (1e-3, 5.0, 5.0, 5.0):
        gradient = 10 * np.outer(left[:, 0], right[0]) + rest * np.outer(left[:, 1], right[1] + right[0])
        updates, state = made.update({"w": jnp.asarray(gradient, jnp.float32)}, state, {"w": jnp.zeros((4, 6))})
        lengths.append(float(np.linalg.norm(left[:, 1:].T @ np.asarray(updates["w"]))))
    np.testing.assert_allclose(np.array(lengths[1:]) / lengths[:-1], 1.5, rtol=0.05)
