"""Process noise that depends on the time step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqdec import filters, likelihoods, models
from seqdec.filters import Annealed

NETWORK = models.network(models.MLP(3, (5,)), jnp.zeros(3))
GAUSSIAN = likelihoods.gaussian(0.1)
MAKERS = {
    "lofi": lambda q: filters.lofi(NETWORK, GAUSSIAN, rank=4, initial_std=0.5, process_noise=q),
    "hilofi by output": lambda q: filters.hilofi(
        NETWORK, GAUSSIAN, rank=4, process_noise_hidden=q, process_noise_last=q, per_output=True
    ),
}
STEPS = 12


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def play(filter_at, start):
    """The belief after a stream in which step t is that of `filter_at(t)`; every third prediction has no update."""
    generator = np.random.default_rng(0)
    xs, ys, arms = generator.normal(size=(STEPS, 3)), generator.normal(size=STEPS), generator.integers(3, size=STEPS)

    def step(belief, seen):
        t, x, y, arm = seen
        flt = filter_at(t)
        belief = flt.predict(belief)
        return jax.lax.cond(t % 3 == 2, lambda b: b, lambda b: flt.update(b, x, y, arm)[0], belief), None

    def whole(key):
        params = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), NETWORK.init(key))
        return jax.lax.scan(step, start.init(key, params), (jnp.arange(STEPS), xs, ys, arms))[0]

    return jax.jit(whole)(jax.random.key(0))


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_a_schedule_is_a_filter_whose_process_noise_is_set_anew_each_step(name):
    make, schedule = MAKERS[name], Annealed(0.2, 4.0)
    scheduled = make(schedule)
    belief = play(lambda t: scheduled, scheduled)
    expected = play(lambda t: make(schedule(t)), make(jnp.array(0.1)))
    for block, other in zip(belief.blocks, expected.blocks, strict=True):
        assert block.steps == STEPS
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-10), block._replace(steps=None), other)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-10), belief.params, expected.params)


def test_annealed_noise_is_a_quarter_after_its_time():
    np.testing.assert_allclose(Annealed(0.4, 100.0)(jnp.array([0, 100, 900])), [0.4, 0.1, 0.004])


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (Annealed(-0.1, 10.0), r"process_noise.initial must be a finite number >= 0; got -0.1"),
        (Annealed(0.1, 0.0), r"process_noise.time must lie in \(0, inf\); got 0.0"),
    ],
)
def test_wrong_schedules_are_refused(schedule, message):
    with pytest.raises(ValueError, match=message):
        filters.lrkf(NETWORK, GAUSSIAN, rank=2, process_noise=schedule)
