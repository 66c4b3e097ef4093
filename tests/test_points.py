"""Points of a Box: played by the density that is logged."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from seqdec import agents, ope
from seqdec.agents.assembly import agent, means_only
from seqdec.core import Agent, HasSpaces, Learner, Marginals, Posterior, Spaces
from seqdec.policies import common, epsilon_greedy, thompson

KEY, SEEN = jax.random.key(0), spaces.Box(-1, 1, (2,))
DRAWS = 20_000


def near(best: Any, site: HasSpaces, policy: Any, **settings: Any) -> Agent:
    """Uncertain about a peak at `best`, in edges of the box."""
    box: Any = site.action_space
    low, edges = box.low.ravel().astype(float), np.maximum(box.high.ravel().astype(float) - box.low.ravel(), 1)

    def mean(rows):
        return -jnp.sum(((rows[:, 2:] - low) / edges - jnp.asarray(best)) ** 2, axis=1)

    def moments(rows):
        return Marginals(mean(rows), jnp.full(len(rows), 0.003), jnp.full(len(rows), 0.1))

    def draw(key):
        return lambda rows: mean(rows) + 0.05 * jax.random.normal(key, (len(rows),))

    posterior = Posterior(mean, means_only(mean).joint, draw, moments)
    learner = Learner(lambda key: (), lambda state, *lesson: (state, None), lambda state: posterior)
    return agent(learner, policy, site, name="near", **settings)


def drawn(one: Agent) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points (n, d) in edges of the box, of integers in cells; densities per unit of these; actions."""
    box: Any = one.spaces and one.spaces.action_space
    state, x = one.init(KEY), jnp.zeros(2)
    keys = jax.random.split(jax.random.key(1), DRAWS)
    found = jax.jit(lambda: jax.lax.map(lambda key: one.act(key, state, x), keys, batch_size=500))()
    low, edges = box.low.astype(float), box.high.astype(float) - box.low + (box.dtype.kind == "i")
    points = (np.asarray(found.value, float) - low) / np.where(edges, edges, 1)
    return points.reshape(DRAWS, -1), np.asarray(found.propensity, float) * edges[edges > 0].prod(), found.value


def grid(box: spaces.Box) -> np.ndarray:
    """Points (m, d) of equal volume, in edges of the box: its integers, or 400 on each edge."""
    sizes = (
        box.high.astype(int) - box.low.astype(int) + 1
        if box.dtype.kind == "i"
        else np.where(box.high > box.low, 400, 1)
    )
    steps = [(np.arange(size) + (box.dtype.kind == "f") / 2) / size * (size > 1) for size in sizes]
    return np.stack(np.meshgrid(*steps), axis=-1).reshape(-1, len(steps))


BOXES = {
    "numbers": (spaces.Box(-2, 3, (1,)), 0.995),
    "points, one coordinate fixed": (
        spaces.Box(np.array([0, 5, 1e9], np.float32), np.array([2, 9, 1e9], np.float32)),
        np.array([0.2, 1.0, 0]),
    ),
    "integers": (spaces.Box(0, 9, (1,), np.int8), 0.3),
    "pairs of integers": (spaces.Box(-3, 4, (2,), np.int32), 0.7),
}


CASES = (
    ("numbers", "thompson", True),
    ("numbers", "epistemic_sampling", False),
    ("points, one coordinate fixed", "thompson", False),
    ("points, one coordinate fixed", "epsilon_greedy", True),
    ("integers", "thompson", True),
    ("pairs of integers", "epistemic_sampling", False),
)


@pytest.mark.parametrize(("case", "policy", "refine"), CASES)
def test_weights_have_the_mean_of_any_target(
    case: str, policy: str, refine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "_ALWAYS", 0.1)  # for weights whose error is known
    box, best = BOXES[case]
    made = {"thompson": thompson(propensity_samples=8), "epsilon_greedy": epsilon_greedy(0.2)}.get(policy, policy)
    one = near(best, Spaces(SEEN, box), made, num_candidates=12, refine=refine)
    points, density, value = drawn(one)
    assert all(box.contains(np.asarray(action)) for action in value[:200])
    regions: Any = (
        lambda at: at[:, 0] >= 0,
        lambda at: at[:, 0] < 0.5,
        lambda at: np.abs(at - best).max(1) < 0.25,
        lambda at: at[:, 0] > 0.985,
    )
    for region in regions:
        weights, volume = region(points) / density, region(grid(box)).mean()
        assert abs(weights.mean() - volume) < 4.5 * weights.std() / DRAWS**0.5 + 1e-6
    assert (np.abs(points - best).max(1) < 0.25).mean() > 0.4  # most are near the best


def test_policies_without_a_choice_and_narrow_floats_have_no_density() -> None:
    for policy, dtype in (
        ("greedy", np.float32),
        ("ucb", np.float32),
        (thompson(propensity_samples=0), np.float32),
        (thompson(), np.float16),
    ):
        one = near(0.5, Spaces(SEEN, spaces.Box(0, 1, (1,), dtype)), policy)
        assert np.isnan(one.act(KEY, (), jnp.zeros(2)).propensity)
    far = spaces.Box(1e6, 1e6 + 2, (1,))  # 32 numbers of float32
    assert np.isnan(near(0.5, Spaces(SEEN, far), "thompson").act(KEY, (), jnp.zeros(2)).propensity)


def test_uniform_points_have_the_density_of_the_box() -> None:
    points, density, _ = drawn(agents.random(Spaces(SEEN, spaces.Box(2, 4, (2,)))))
    np.testing.assert_allclose(density, 1, rtol=1e-6)
    assert np.histogram2d(*points.T, bins=4, range=[(0, 1), (0, 1)])[0].min() > 0.9 * DRAWS / 16


def test_a_log_of_points_tells_the_value_of_a_density() -> None:
    points, density, _ = drawn(near(np.array([0.3, 0.6]), Spaces(SEEN, spaces.Box(0, 1, (2,))), epsilon_greedy(0.3)))
    log = ope.make_continuous_log(action=points, reward=points[:, 0] + points[:, 1] ** 2, density=density)

    def target(log):
        return 2 * log.action[:, 0]  # of which the expected rewards are 2 / 3 and 1 / 3

    low, high, error = ope.evaluate(log, target, seed=0)[["low", "high", "std_error"]].to_numpy().T
    assert np.all((low < 1) & (high > 1) & (error < 0.05))
    assert ope.compare(log, target, seed=0).estimator == "kernel_ips(normalized=True)"
    assert ope.compare(log, lambda log: log.density, seed=0).decision == "no difference shown"
    refused: tuple[tuple[Any, Any, str], ...] = (
        (points[:, 0], None, "has 2 numbers, and kernels are for one: give the target's density"),
        (target, log.reward, "the target is a density: leave it out"),
        (lambda log: log.action, None, r"must hold \(20000,\) finite numbers; got shape \(20000, 2\)"),
        (lambda log: -log.density, None, "must be at least 0"),
    )
    for given, predicted, message in refused:
        with pytest.raises(ValueError, match=message):
            ope.evaluate(log, given, predicted, seed=0)
    with pytest.raises(TypeError, match="of points, the target is a density"):
        ope.target_of(near(0.5, Spaces(SEEN, spaces.Box(0, 1, (2,))), "thompson"), log, seed=0)
    with pytest.raises(
        ValueError, match="actions of the log have 2 numbers; only actions of one number can be learned"
    ):
        ope.learn_continuous(log, seed=0)
