"""The environments: one contract for all, and each one's rewards and regret against numbers worked out by hand."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqdec import envs
from seqdec.core import Environment, Masked, TimeStep
from seqdec.data import RecommenderLog, Table, form_blocks

IMAGES = np.random.default_rng(0).integers(0, 256, (12, 2, 3), dtype=np.uint8)
WEIGHTS = np.random.default_rng(0).normal(size=(3, 4))
TABLE = Table(
    features=np.random.default_rng(0).normal(size=(12, 3)),
    rewards=np.random.default_rng(1).normal(size=(12, 4)),
    spread=np.ones((12, 4)),
)
LABELS = np.array([0, 1, 2, 3, 0, 1, 2, 3, 3, 2, 1, 0])


def small_log(**options: Any) -> RecommenderLog:
    """Three users with 4 or 5 of 7 items, blocks of two, two features."""
    generator = np.random.default_rng(0)
    user = np.repeat([0, 1, 2], [4, 5, 5])
    time = np.arange(14) % 5 + 0.1 * user
    return form_blocks(
        user,
        generator.integers(0, 7, 14),
        generator.random(14),
        time=time,
        day=20200705 + (time > 2),
        features=generator.normal(size=(9, 2)).astype(np.float32),
        feature_row=generator.integers(0, 9, 14),
        size=2,
        **options,
    )


BUILDERS: dict[str, Callable[[], Environment]] = {
    "bernoulli": lambda: envs.make("bernoulli", horizon=7),
    "sleeping": lambda: envs.make("bernoulli", availability=0.4, horizon=7),
    "gaussian": lambda: envs.make("gaussian", std=(0.1, 0.2, 0.3, 0.4, 0.5), horizon=7),
    "linear": lambda: envs.make("linear", weights=WEIGHTS, horizon=7),
    "wheel": lambda: envs.make("wheel", delta=0.5, horizon=7),
    "digits": lambda: envs.make("digits", horizon=7),
    "digits-full": lambda: envs.make("digits", horizon=7, full_information=True),
    "replacement": lambda: envs.classification(IMAGES, LABELS, order="replacement", horizon=7),
    "sequential": lambda: envs.classification(IMAGES, LABELS, order="sequential", horizon=7),
    "signed": lambda: envs.classification(IMAGES, LABELS, pixels="signed", horizon=7),
    "tabular": lambda: envs.tabular(TABLE, horizon=7),
    "permuted": lambda: envs.nonstationary(build("digits-full"), [3, 9, 10]),
    "permuted-sleeping": lambda: envs.nonstationary(build("sleeping"), [3, 9, 10]),
    "drifting-digits": lambda: envs.nonstationary(build("digits"), [3, 9, 10], kind="drift"),
    "drifting-linear": lambda: envs.nonstationary(build("linear"), [3, 9, 10], kind="drift"),
    "outliers": lambda: envs.outliers(build("digits-full"), share=0.3),
    "outlying-sleeping": lambda: envs.make("outliers", env="bernoulli", share=0.3, availability=0.4, horizon=7),
    "recommender": lambda: envs.recommender_log(small_log(), horizon=7),
    "short-blocks": lambda: envs.recommender_log(small_log(keep_short=True), order="shuffled", horizon=7),
    "drifting-wheel": lambda: envs.nonstationary(build("wheel"), [3, 9, 10], kind="drift"),
}
"""The environments of the contract suite; all that need no files."""
ALWAYS_BEGIN_ALIKE = ("bernoulli", "gaussian", "sequential", "recommender")
CONTRACT = tuple(name for name in BUILDERS if name != "digits")  # another order of the same actions is in it


@cache
def build(name: str) -> Environment:
    """One environment of the contract suite."""
    return BUILDERS[name]()


STEPS = 20


def trajectory(env: Environment) -> Callable[..., tuple[Any, TimeStep]]:
    """(key, actions (t,), params) -> (first observation, time steps (t, ...)), to be jitted."""

    def run(key, actions, params):
        reset_key, step_key = jax.random.split(key)
        state, first = env.reset(reset_key, params)
        keys = jax.random.split(step_key, actions.shape[0])
        _, steps = jax.lax.scan(lambda s, xs: env.step(xs[0], s, xs[1], params), state, (keys, actions))
        return first, steps

    return run


def play(env: Environment, seed: int, actions: np.ndarray) -> tuple[Any, TimeStep]:
    """One compiled trajectory."""
    return jax.device_get(jax.jit(trajectory(env))(jax.random.key(seed), jnp.asarray(actions), env.params))


def play_all(env: Environment, seed: int, steps: int) -> tuple[Any, TimeStep]:
    """The same trajectory once for every action, which is played throughout; (n, t, ...)."""
    actions = np.repeat(np.arange(env.action_space.n)[:, None], steps, axis=1)
    run = jax.jit(jax.vmap(trajectory(env), (None, 0, None)))
    return jax.device_get(run(jax.random.key(seed), jnp.asarray(actions), env.params))


def random_actions(env: Environment, steps: int = STEPS) -> np.ndarray:
    return np.random.default_rng(1).integers(0, env.action_space.n, steps, dtype=np.int32)


def assert_same_numbers(a: Any, b: Any) -> None:
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), a, b)


def contexts(first: Any, steps: TimeStep) -> np.ndarray:
    """(t, ...) the observation each action was played in."""
    before, after = (o.observation if isinstance(o, Masked) else o for o in (first, steps.observation))
    return np.concatenate([before[None], after[:-1]])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CONTRACT)
def test_contract(name: str) -> None:
    """Beside `seqdec.envs.check`: seeds, masks, the ends of episodes, and actions out of range."""
    env, right, when = build(name), random_actions(build(name)), np.arange(STEPS) == 4
    actions = np.stack([right, right, *(np.where(when, action, right).astype(np.int32) for action in (-1, 10**6))])
    run = jax.jit(jax.vmap(trajectory(env), (0, 0, None)))
    batch = jax.device_get(run(jax.vmap(jax.random.key)(np.array([5, 6, 5, 5])), actions, env.params))
    (first, steps), other, *wrong = (jax.tree.map(lambda leaf, i=i: leaf[i], batch) for i in range(4))
    differ = [np.any(a != b) for a, b in zip(*map(jax.tree.leaves, (steps, other[1])), strict=True)]
    assert any(differ) != (name in ("sequential", "recommender"))
    begun = jax.vmap(env.reset, (0, None))(jax.random.split(jax.random.key(0), 8), env.params)[1]
    varies = [np.any(leaf != leaf[:1]) for leaf in jax.tree.leaves(begun)]
    assert any(varies) != (name in ALWAYS_BEGIN_ALIKE)
    allowed = mask_of(first, steps, right)
    np.testing.assert_array_equal(np.isfinite(steps.reward), allowed)
    np.testing.assert_array_equal(np.isfinite(steps.regret), allowed)
    assert np.flatnonzero(steps.done).tolist() == [6, 13]
    for _, found in wrong:  # NaN, and the run goes on as if nothing had been
        assert np.isnan(found.reward[when]) and np.isnan(found.regret[when])
        masked = steps._replace(**{part: np.where(when, np.nan, getattr(steps, part)) for part in ("reward", "regret")})
        assert_same_numbers(found, masked)


def mask_of(first: Any, steps: TimeStep, actions: np.ndarray) -> np.ndarray:
    """(t,) whether each action was allowed when it was played."""
    if not isinstance(first, Masked):
        return np.ones(len(actions), bool)
    masks = np.concatenate([first.mask[None], steps.observation.mask[:-1]])
    return masks[np.arange(len(actions)), actions]


@pytest.mark.parametrize("action", [np.float32(1.0), np.zeros(2, np.int32), np.bool_(True)])
def test_action_of_the_wrong_kind_is_refused_while_tracing(action: Any) -> None:
    for name in ("bernoulli", "digits", "permuted"):
        env = build(name)
        state, _ = jax.eval_shape(env.reset, jax.random.key(0), env.params)
        with pytest.raises(TypeError, match=r"an action must be a \(\) integer array; got .* of shape"):
            jax.eval_shape(env.step, jax.random.key(0), state, action, env.params)


@pytest.mark.parametrize("name", CONTRACT)
def test_data_are_passed_and_dtypes_do_not_depend_on_the_precision(name: str) -> None:
    env, actions = build(name), np.zeros(3, np.int32)
    state, _ = jax.eval_shape(env.reset, jax.random.key(0), env.params)
    jaxpr = jax.make_jaxpr(env.step)(jax.random.key(0), state, jnp.int32(0), env.params)
    assert sum(np.size(const) for const in jaxpr.consts) <= 16
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(env.params))
    shapes = jax.eval_shape(trajectory(env), jax.random.key(0), actions, env.params)
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        assert jax.eval_shape(trajectory(env), jax.random.key(0), actions, env.params) == shapes


def test_seeds_share_one_copy_of_the_data() -> None:
    images = np.zeros((20_000, 16, 16), np.uint8)
    env = envs.classification(images, np.zeros(20_000, int), num_classes=2)
    keys = jax.random.split(jax.random.key(0), 8)

    def rewards_of(key: jax.Array, params: Any) -> jax.Array:
        return trajectory(env)(key, np.zeros(50, np.int32), params)[1].reward

    memory = jax.jit(jax.vmap(rewards_of, (0, None))).lower(keys, env.params).compile().memory_analysis()
    orders = 8 * images.shape[0] * 4
    assert env.params.images.dtype == jnp.uint8
    assert memory.temp_size_in_bytes + memory.output_size_in_bytes < 4 * orders  # and the images are 8 orders large
    assert memory.argument_size_in_bytes < 1.1 * images.nbytes


# Bandits


def test_bernoulli_arms() -> None:
    env = envs.bernoulli((0.1, 0.5, 0.9))
    first, steps = play_all(env, 0, 4000)
    assert first.tolist() == [[1.0]] * 3
    assert set(np.unique(steps.reward)) == {0.0, 1.0}
    for arm, p in enumerate((0.1, 0.5, 0.9)):
        assert abs(steps.reward[arm].mean() - p) < 6 * np.sqrt(p * (1 - p) / 4000)
        np.testing.assert_allclose(steps.regret[arm], 0.9 - p, rtol=1e-6)


def test_gaussian_arms() -> None:
    env = envs.gaussian((-1.0, 2.0), std=(0.5, 3.0))
    _, steps = play_all(env, 0, 4000)
    for arm, (mean, std) in enumerate([(-1.0, 0.5), (2.0, 3.0)]):
        assert abs(steps.reward[arm].mean() - mean) < 6 * std / np.sqrt(4000)
        assert abs(steps.reward[arm].std() - std) < 6 * std / np.sqrt(8000)
    assert (steps.regret == [[3.0], [0.0]]).all()


def test_linear_arms() -> None:
    weights = np.array([[1.0, 0.0, 2.0], [0.0, -1.0, 0.5]], np.float32)
    env = envs.linear(weights, noise_std=0.2)
    first, steps = play_all(env, 0, 3000)
    x = contexts(first[0], jax.tree.map(lambda leaf: leaf[0], steps))
    expected = x @ weights.T
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(x.mean(axis=0), 0.0, atol=6 / np.sqrt(3 * 3000))
    np.testing.assert_allclose(x.T @ x / 3000, np.eye(3) / 3, atol=6 * np.sqrt(4 / 45 / 3000))
    np.testing.assert_allclose(steps.regret, (expected.max(axis=1, keepdims=True) - expected).T, atol=1e-6)
    noise = (steps.reward - expected.T) / 0.2
    assert abs(noise.mean()) < 6 / np.sqrt(3000) and abs(noise.std() - 1) < 6 / np.sqrt(6000)


def test_default_linear_arms_are_five_unit_vectors_72_degrees_apart() -> None:
    weights = np.asarray(envs.linear().params.weights)
    np.testing.assert_allclose((weights @ np.roll(weights, 1, axis=0).T).diagonal(), np.cos(np.deg2rad(72)), atol=1e-6)


def test_wheel_has_the_published_rewards() -> None:
    delta, count = 0.6, 6000
    env = envs.wheel(delta)
    first, steps = play_all(env, 1, count)
    x = contexts(first[0], jax.tree.map(lambda leaf: leaf[0], steps))
    radius = np.hypot(x[:, 0], x[:, 1])
    # uniform in the disc: the share within radius r is r^2, and all four quadrants are alike
    for r in (0.3, delta, 0.9):
        assert abs((radius <= r).mean() - r**2) < 6 * np.sqrt(r**2 * (1 - r**2) / count)
    expected = np.tile([1.0, 1.0, 1.0, 1.0, 1.2], (count, 1))
    for i, (a, b) in enumerate(x):
        if radius[i] >= delta:
            expected[i, {(True, True): 0, (True, False): 1, (False, True): 2, (False, False): 3}[a > 0, b > 0]] = 50.0
    assert (np.bincount(expected.argmax(axis=1), minlength=5) > 300).all()
    np.testing.assert_allclose(steps.reward.T, expected, atol=6 * 0.01)
    assert abs((steps.reward.T - expected).std() / 0.01 - 1) < 0.03
    np.testing.assert_allclose(steps.regret.T, expected.max(axis=1, keepdims=True) - expected, atol=1e-5)


def test_sleeping_arms() -> None:
    p = np.array([0.1, 0.5, 0.9], np.float32)
    env = envs.bernoulli(p, availability=0.3)
    first, steps = play_all(env, 0, 3000)
    mask = np.concatenate([first.mask[0][None], steps.observation.mask[0, :-1]])
    assert mask.any(axis=1).all()
    share = 0.3 + 0.7 / 3  # awake by itself, or the one that is woken
    np.testing.assert_allclose(mask.mean(axis=0), share, atol=6 * np.sqrt(share * (1 - share) / 3000))
    best = np.where(mask, p, -np.inf).max(axis=1)
    np.testing.assert_allclose(steps.regret.T, np.where(mask, best[:, None] - p, np.nan), rtol=1e-6)
    np.testing.assert_array_equal(np.isnan(steps.reward.T), ~mask)
    assert abs(np.nanmean(steps.reward[1]) - 0.5) < 6 * 0.5 / np.sqrt(mask[:, 1].sum())
    assert envs.bernoulli(p, availability=1.0).reset(jax.random.key(0), env.params)[1].mask.all()


# Classification


def shown(first: Any, steps: TimeStep, images: np.ndarray = IMAGES, peak: int = 255) -> np.ndarray:
    """(t,) which image each action was played in."""
    flat = images.reshape(len(images), -1).astype(np.float64) / peak
    distance = np.abs(contexts(first, steps).reshape(-1, 1, flat.shape[1]) - flat)
    assert distance.max(axis=2).min(axis=1).max() < 1e-6
    return distance.max(axis=2).argmin(axis=1)


def test_classification_pays_for_the_right_class_in_a_new_permutation_in_each_pass() -> None:
    env = envs.classification(IMAGES, LABELS, full_information=True)
    actions = random_actions(env, 48)
    first, steps = play(env, 0, actions)
    order = shown(first, steps)
    labels, passes = LABELS[order], order.reshape(4, 12)
    np.testing.assert_array_equal(steps.reward, actions == labels)
    np.testing.assert_array_equal(steps.regret, actions != labels)
    np.testing.assert_array_equal(steps.outcomes, np.eye(4)[labels])
    np.testing.assert_array_equal(np.sort(passes, axis=1), np.tile(np.arange(12), (4, 1)))
    assert len({tuple(order) for order in passes.tolist()}) == 4
    assert np.flatnonzero(steps.done).tolist() == [11, 23, 35, 47]
    assert env.action_space.n == 4 and envs.classification(IMAGES, LABELS, num_classes=7).action_space.n == 7


@pytest.mark.parametrize("horizon", [3, 5])
def test_all_orders_are_equally_likely(horizon: int) -> None:
    """First pass and second, with episodes as long as a pass and longer; chi^2 with 5 degrees of freedom."""
    images = np.arange(3, dtype=np.uint8).reshape(3, 1)
    env = envs.classification(images, np.arange(3), horizon=horizon)
    keys = jax.random.split(jax.random.key(0), 6000)
    first, steps = jax.jit(jax.vmap(trajectory(env), (0, None, None)))(keys, jnp.zeros(6, jnp.int32), env.params)
    seen = np.rint(np.concatenate([first[:, None], steps.observation], axis=1)[..., 0] * 255).astype(int)
    for start in (0, horizon):
        orders = seen[:, start : start + 2] @ [3, 1]  # the first two determine the third
        counts = np.array([(orders == 3 * a + b).sum() for a in range(3) for b in range(3) if a != b])
        assert counts.sum() == 6000 and ((counts - 1000) ** 2 / 1000).sum() < 25.7  # p = 1e-4


def test_horizon_shorter_and_longer_than_the_data() -> None:
    first, steps = play(envs.classification(IMAGES, LABELS, horizon=5), 0, np.zeros(25, np.int32))
    episodes = shown(first, steps).reshape(5, 5)
    assert all(len(set(episode)) == 5 for episode in episodes.tolist()) and len(set(episodes.ravel().tolist())) > 5
    first, steps = play(envs.classification(IMAGES, LABELS, horizon=30), 0, np.zeros(31, np.int32))
    order = shown(first, steps)
    assert sorted(order[:12]) == sorted(order[12:24]) == list(range(12)) and len(set(order[24:30])) == 6
    assert np.flatnonzero(steps.done).tolist() == [29]


def test_sequential_order_and_draws_with_replacement() -> None:
    first, steps = play(envs.classification(IMAGES, LABELS, order="sequential", horizon=15), 0, np.zeros(20, np.int32))
    assert shown(first, steps).tolist() == [*range(12), 0, 1, 2, 0, 1, 2, 3, 4]
    first, steps = play(envs.classification(IMAGES, LABELS, order="replacement"), 0, np.zeros(3000, np.int32))
    counts = np.bincount(shown(first, steps), minlength=12)
    assert ((counts - 250) ** 2 / 250).sum() < 37.4  # chi^2 with 11 degrees of freedom, p = 1e-4
    assert np.flatnonzero(steps.done)[:2].tolist() == [11, 23]


def test_pixels() -> None:
    images = np.array([[[0, 1], [127, 128], [200, 255]]], np.uint8)
    env = envs.classification(images, [0], pixels="unsigned", num_classes=2)
    _, observation = env.reset(jax.random.key(0), env.params)
    np.testing.assert_allclose(observation, images[0] / 255, rtol=1e-6)
    env = envs.classification(images, [0], pixels="signed", num_classes=2)
    _, observation = env.reset(jax.random.key(0), env.params)
    np.testing.assert_allclose(observation, np.array([[0, 1], [127, -128], [-56, -1]]) / 255, rtol=1e-6)
    assert env.observation_space.low.min() == np.float32(-128 / 255)


def test_digits_are_scikit_learns() -> None:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    env = envs.digits(order="sequential", full_information=True)
    first, steps = play(env, 0, np.zeros(1797, np.int32))
    np.testing.assert_allclose(contexts(first, steps), images / 16, rtol=1e-6)
    np.testing.assert_array_equal(steps.outcomes.argmax(axis=1), labels)
    assert env.observation_space.shape == (64,) and env.action_space.n == 10 and env.params.images.dtype == jnp.uint8
    assert np.flatnonzero(steps.done).tolist() == [1796]


def test_mnist_and_its_relatives(image_home: Path) -> None:
    for name in ("mnist", "fashion-mnist"):
        env = envs.make(name)
        assert env.name == name and env.params.images.shape == (60_000, 28, 28) and env.params.images.dtype == jnp.uint8
        assert envs.make(name, split="test").params.labels.shape == (10_000,)
        _, observation = env.reset(jax.random.key(0), env.params)
        assert observation.shape == (28, 28) and observation.dtype == jnp.float32
    env = envs.make("idx", path=image_home / "mnist", order="sequential")
    assert env.action_space.n == 10 and env.observation_space.shape == (28, 28)


# Changes


def test_labels_change_places_at_the_exact_steps() -> None:
    points = [3, 9, 10]
    inner = envs.classification(IMAGES, LABELS, order="sequential", full_information=True)
    env = envs.nonstationary(inner, points)
    actions = random_actions(env, 30)
    first, steps = play(env, 0, actions)
    labels = LABELS[np.arange(30) % 12]
    named = steps.outcomes.argmax(axis=1)
    np.testing.assert_array_equal(steps.reward, actions == named)
    np.testing.assert_array_equal(steps.regret, actions != named)
    names = {}
    for regime, (start, stop) in enumerate(zip([0, *points], [*points, 30], strict=True)):
        pairs = set(zip(labels[start:stop].tolist(), named[start:stop].tolist(), strict=True))
        names[regime] = dict(pairs)
        assert len(names[regime]) == len(pairs)  # one name for a label throughout a regime
    assert all(name == label for label, name in names[0].items())
    for before, after in ((0, 1), (1, 2), (1, 3), (2, 3)):
        common = names[before].keys() & names[after].keys()
        moved = [names[before][label] != names[after][label] for label in common]
        assert all(moved) or (before, after) == (1, 3)
    assert len(names[3]) == 4 and sorted(names[3].values()) == [0, 1, 2, 3]
    np.testing.assert_allclose(contexts(first, steps), IMAGES[np.arange(30) % 12] / 255, rtol=1e-6)


def test_drift_of_labels_exchanges_two_at_a_time() -> None:
    env = envs.nonstationary(envs.classification(IMAGES, LABELS, order="sequential"), [5, 6], kind="drift")
    _, steps = play_all(env, 3, 20)
    named, labels = steps.reward.argmax(axis=0), LABELS[np.arange(20) % 12]
    np.testing.assert_array_equal(steps.reward.sum(axis=0), 1.0)
    np.testing.assert_array_equal(named[:5], labels[:5])
    names = dict(zip(labels[6:].tolist(), named[6:].tolist(), strict=True))
    assert sum(label != name for label, name in names.items()) in (0, 3, 4)  # two exchanges: of the same two, or more


def test_means_drift_at_the_exact_steps_by_the_size_asked_for_and_regret_follows() -> None:
    env = envs.nonstationary(envs.gaussian(np.zeros(500), std=0.0), [4, 7], kind="drift", drift_std=0.3)
    _, steps = play_all(env, 0, 12)
    for start, stop in ((0, 4), (4, 7), (7, 12)):
        np.testing.assert_array_equal(steps.reward[:, start:stop], steps.reward[:, [start]].repeat(stop - start, 1))
    np.testing.assert_array_equal(steps.reward[:, 0], 0)
    np.testing.assert_allclose(steps.regret, steps.reward.max(axis=0) - steps.reward, rtol=1e-6)
    walked = np.diff(steps.reward[:, [0, 4, 7]], axis=1)
    assert abs(walked.std() - 0.3) < 6 * 0.3 / np.sqrt(2000)
    assert abs(np.mean(walked[:, 0] * walked[:, 1])) < 6 * 0.09 / 22


def test_probabilities_drift_within_bounds() -> None:
    env = envs.nonstationary(envs.bernoulli(horizon=30), range(1, 30), kind="drift", drift_std=0.5)
    _, steps = play_all(env, 0, 30)
    assert np.nanmax(steps.regret) <= 1.0 and set(np.unique(steps.reward)) <= {0.0, 1.0}
    assert np.ptp(steps.regret, axis=1).min() > 0.3


def test_change_points_count_through_episodes() -> None:
    inner = envs.classification(IMAGES, LABELS, order="sequential", horizon=4, full_information=True)
    _, steps = play(envs.nonstationary(inner, [6]), 0, np.zeros(12, np.int32))
    labels = LABELS[np.arange(12) % 4]
    np.testing.assert_array_equal(steps.outcomes.argmax(axis=1) == labels, np.arange(12) < 6)
    assert np.flatnonzero(steps.done).tolist() == [3, 7, 11]


def test_masks_change_places_with_their_arms() -> None:
    """Arms paid their own index: what a played arm pays tells which arm it is; awake arms pay, sleeping ones do not."""
    env = envs.nonstationary(envs.gaussian(np.arange(4.0), std=0.0, availability=0.5), [3, 8])
    first, steps = play_all(env, 0, 40)
    masks = np.concatenate([first.mask[0][None], steps.observation.mask[0, :-1]])
    np.testing.assert_array_equal(np.isfinite(steps.reward.T), masks)
    best = np.nanmax(steps.reward, axis=0)
    np.testing.assert_allclose(steps.regret, best - steps.reward)
    arms = [np.nanmean(steps.reward[:, a:b], axis=1) for a, b in ((0, 3), (8, 40))]
    assert sorted(arms[1]) == [0, 1, 2, 3]


def test_named_changes_are_those_of_the_function() -> None:
    for kind, name in (("permute", "permuted"), ("drift", "drifting")):
        named = envs.make(name, env="digits", change_points=[2, 5], full_information=True)
        assert named.name == f"digits-{kind}" and named.params.change_points.tolist() == [2, 5]
        expected = play(envs.nonstationary(build("digits-full"), [2, 5], kind=kind), 0, np.zeros(7, np.int32))[1]
        np.testing.assert_array_equal(play(named, 0, np.zeros(7, np.int32))[1].outcomes[:6], expected.outcomes[:6])


# Outliers


def test_outliers_flip_the_share_asked_for_and_regret_is_that_of_the_truth() -> None:
    clean = envs.classification(IMAGES, LABELS, full_information=True)
    actions = np.zeros(4000, np.int32)
    for share in (0.0, 0.1, 1.0):
        env = envs.outliers(clean, share=share)
        (_, seen), (_, truth) = play(env, 0, actions), play(clean, 0, actions)
        np.testing.assert_array_equal(seen.regret, truth.regret)
        np.testing.assert_array_equal(seen.observation, truth.observation)
        flipped = seen.reward != truth.reward
        np.testing.assert_array_equal(seen.reward, np.where(flipped, 1 - truth.reward, truth.reward))
        np.testing.assert_array_equal(seen.outcomes, np.where(flipped[:, None], 1 - truth.outcomes, truth.outcomes))
        assert abs(flipped.mean() - share) <= 6 * np.sqrt(share * (1 - share) / 4000)
        # As often where the reward was 1 as where it was 0.
        assert abs(flipped[truth.reward == 1].mean() - share) <= 6 * np.sqrt(share * (1 - share) / 1000)


# Bad input


def drifting(name: str, **options: Any) -> Environment:
    return envs.nonstationary(build(name), [5], kind="drift", **options)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: envs.make("digts"), ValueError, r"unknown environment 'digts': did you mean 'digits'\? Known: ackley"),
        (lambda: envs.make("digits", ordr="shuffle"), TypeError, "ordr"),
        (lambda: envs.bernoulli([0.5, 1.5]), ValueError, r"probabilities must be finite numbers from 0.0 to 1.0"),
        (lambda: envs.bernoulli([]), ValueError, r"probabilities must be a non-empty array .* got shape \(0,\)"),
        (lambda: envs.bernoulli(horizon=0), ValueError, "horizon must be at least 1; got 0"),
        (lambda: envs.bernoulli(availability=1.5), ValueError, "availability must be finite numbers from 0.0 to 1.0"),
        (lambda: envs.gaussian([0.0, 1.0], std=-1.0), ValueError, "std must be finite numbers from 0.0"),
        (lambda: envs.gaussian([0.0, 1.0], std=[1.0] * 3), ValueError, r"std must be one number or .* shape \(2,\)"),
        (lambda: envs.linear(noise_std=-0.1), ValueError, "noise_std must be finite numbers from 0.0"),
        (lambda: envs.wheel(1.5), ValueError, "delta must be finite numbers from 0.0 to 1.0; got 1.5"),
        (lambda: envs.wheel(means=[1.0, 2.0]), ValueError, r"means must hold the five arms' .* got shape \(2,\)"),
        (lambda: envs.classification(IMAGES / 255, LABELS), ValueError, "images must be uint8 .* got float64"),
        (lambda: envs.classification(IMAGES[:0], LABELS[:0]), ValueError, "n > 0"),
        (lambda: envs.classification(IMAGES, LABELS[:5]), ValueError, r"labels must be 12 integers; .*\(5,\)"),
        (lambda: envs.classification(IMAGES, LABELS / 1), ValueError, "labels must be 12 integers; got float64"),
        (lambda: envs.classification(IMAGES, LABELS - 1), ValueError, "labels must count from 0; the least is -1"),
        (lambda: envs.classification(IMAGES, LABELS, num_classes=3), ValueError, "num_classes .* at least 4; got 3"),
        (lambda: envs.classification(IMAGES, LABELS, peak=16), ValueError, "peak=16 must be the largest"),
        (lambda: envs.classification(IMAGES, LABELS, pixels="signd"), ValueError, "did you mean 'signed'"),
        (lambda: envs.idx("/nowhere"), FileNotFoundError, "no such folder: /nowhere"),
        (lambda: envs.nonstationary(build("digits"), []), ValueError, r"increase from 1 on; got \[\]"),
        (lambda: envs.nonstationary(build("digits"), [5, 5]), ValueError, r"increase from 1 on; got \[5, 5\]"),
        (lambda: envs.nonstationary(build("digits"), [2.5]), TypeError, "change_points must hold integers"),
        (lambda: drifting("digits", drift_std=0.1), ValueError, "drift_std=0.1 has no effect"),
        (lambda: envs.nonstationary(build("gaussian"), [5], drift_std=0.1), ValueError, "has no effect"),
        (lambda: drifting("gaussian", drift_std=-1.0), ValueError, "drift_std must be finite numbers from 0.0"),
        (lambda: envs.outliers("digits", share=1.5), ValueError, "share must be finite numbers .* got 1.5"),
        (lambda: envs.outliers(build("digits"), order="shuffle"), TypeError, "order: options go with the name"),
        (lambda: envs.nonstationary(envs.bernoulli([0.5]), [5]), TypeError, "two or more Discrete actions"),
    ],
)
def test_bad_input_is_refused(build: Callable[[], Environment], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        build()


def test_bad_split_is_refused(image_home: Path) -> None:
    with pytest.raises(ValueError, match="unknown split 'validation': Known: test, train"):
        envs.mnist(split="validation")


# Recommender's logs


def test_a_log_is_replayed_in_order_and_regret_is_against_the_best_of_the_block() -> None:
    log = small_log(keep_short=True)
    env = envs.recommender_log(log, standardize=False)
    steps = len(log.rewards) + 1
    _, played = play_all(env, 0, steps)
    order = np.arange(steps) % (steps - 1)
    mask = log.candidates[order]
    best = np.where(log.candidates, log.rewards, -np.inf).max(1)[order]
    for action in range(2):
        expected = np.where(mask[:, action], log.rewards[order, action], np.nan)
        np.testing.assert_allclose(played.reward[action], expected, rtol=1e-6)
        np.testing.assert_allclose(played.regret[action], best - expected, atol=1e-6)
    seen = jax.tree.map(lambda leaf: leaf[0], played.observation)
    upcoming = (np.arange(steps) + 1) % (steps - 1)
    np.testing.assert_array_equal(seen.mask, log.candidates[upcoming])
    np.testing.assert_array_equal(seen.observation["video"], log.ids["video"][upcoming])
    np.testing.assert_array_equal(seen.observation["features"][0], log.features[log.feature_rows[1]])
    assert np.flatnonzero(played.done[0]).tolist() == [steps - 2]


def test_shuffled_blocks_are_all_shown_once_and_the_same_to_all_agents() -> None:
    log = small_log()
    env = envs.recommender_log(log, order="shuffled")
    shown = []
    for seed in (0, 0, 1):
        _, played = play(env, seed, np.zeros(len(log.rewards), np.int32))
        shown.append(played.reward.tolist())
        np.testing.assert_allclose(np.sort(played.reward), np.sort(log.rewards[:, 0]), rtol=1e-6)
    assert shown[0] == shown[1] != shown[2]


def test_features_are_standardized_by_the_first_day() -> None:
    log = small_log()
    env = envs.recommender_log(log)
    first_day = log.feature_rows[log.days == log.days[0]]
    known = np.asarray(env.params.features)[first_day]
    np.testing.assert_allclose(known.mean((0, 1)), 0, atol=1e-6)
    np.testing.assert_allclose(known.std((0, 1)), 1, rtol=1e-5)


def test_a_bad_log_never_becomes_an_environment() -> None:
    log = small_log()
    with pytest.raises(ValueError, match="block 0 has no candidate"):
        envs.recommender_log(log._replace(candidates=np.zeros_like(log.candidates)))
    with pytest.raises(ValueError, match="unknown order"):
        envs.recommender_log(log, order="random")
