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
    "fismo": {"statistics": "scale_free", "eps": 1.0, "adam_ratio": 1.0},
    "racs": {"adam_ratio": 0.2},
    "self_tuning_muon": {"adam_ratio": 1.0},
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
    arrays = {key: np.float32(0.01) for key in ("weight_decay", "adam_ratio") if key in known}
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
    adam, _ = (a := optax.adam(0.05 * 0.1)).update(grads, a.init(params))

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
    transform = optim.alice(0.1, weight_decay=0.5, adam_ratio=0.2)
    updates, _ = transform.update(zero, transform.init(params), params)
    np.testing.assert_allclose(updates["hidden"], -0.1 * 0.5 * 2, rtol=1e-6)
    np.testing.assert_allclose(updates["bias"], -0.2 * 0.1 * 0.5 * 2, rtol=1e-6)


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


@pytest.mark.parametrize("name", ["alice", "koala_plus_plus"])
def test_composes_with_the_rest_of_optax(name):
    """One program: accumulation over hyperparameters in the state, beside a masked group and a finite guard."""
    static = [
        key for key, one in inspect.signature(getattr(optim, name)).parameters.items() if type(one.default) is int
    ]
    injected = optax.inject_hyperparams(getattr(optim, name), static)(learning_rate=0.1, **OPTIONS.get(name, {}))
    inner = optax.apply_if_finite(optax.chain(optax.clip_by_global_norm(1e6), injected), 3)
    accumulated = optax.MultiSteps(optax.with_extra_args_support(inner), 2)
    whole = optax.GradientTransformationExtraArgs(accumulated.init, accumulated.update)  # pyright: ignore
    mask = {"hidden": True, "bias": True, "scale": True, "row": True, "frozen": False}
    masked = optax.with_extra_args_support(optax.masked(whole, mask))
    params = {**PARAMS, "frozen": jnp.ones(2)}
    state, update = masked.init(params), jax.jit(lambda g, s, p: masked.update(g, s, p, value=1.5, unknown=2))
    optax.tree.map_params(make(name), lambda leaf: leaf, make(name).init(PARAMS))
    for gradient in GRADS:
        for _ in range(2):
            updates, state = update({**gradient, "frozen": jnp.full(2, 7.0)}, state, params)
    np.testing.assert_array_equal(updates.pop("frozen"), 7.0)
    leaves_close(updates, second_updates(make(name)))
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
    assert len(updates["hidden"].sharding.device_set) == 2
    whole = jax.tree.map(np.asarray, params)
    leaves_close(updates, second_updates(make("alice"), whole, [whole, whole]), 2e-4, 1e-5)


def test_fira_lets_the_part_outside_its_basis_grow_by_its_factor_a_step() -> None:
    """Gradients with one strong direction, the basis, and a rest that is small in the first step and large after it."""
    draw = np.random.default_rng(0)
    left, _ = np.linalg.qr(draw.normal(size=(4, 4)))
    right, _ = np.linalg.qr(draw.normal(size=(6, 6)))
    made = optim.scale_by_fira(rank=1, growth=1.5)
    state, lengths = made.init({"w": jnp.zeros((4, 6))}), []
    for rest in (1e-3, 5.0, 5.0, 5.0):
        gradient = 10 * np.outer(left[:, 0], right[0]) + rest * np.outer(left[:, 1], right[1] + right[0])
        updates, state = made.update({"w": jnp.asarray(gradient, jnp.float32)}, state, {"w": jnp.zeros((4, 6))})
        lengths.append(float(np.linalg.norm(left[:, 1:].T @ np.asarray(updates["w"]))))
    np.testing.assert_allclose(np.array(lengths[1:]) / lengths[:-1], 1.5, rtol=0.05)
