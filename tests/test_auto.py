"""Regressions with unknown noise, standard units, and the default agent, against closed forms in double precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from gymnasium import spaces
from jax.flatten_util import ravel_pytree
from scipy import stats

from seqdec import agents, models
from seqdec.agents.regression import conjugate, mixture, units
from tests.test_agents import ARMS, CONTEXT, NUM_ARMS, NUM_FEATURES, Spaces, assert_same, contexts

N, F, T = 2, 3, 12
RNG = np.random.default_rng(0)
PHI, Y, PLAYED = RNG.normal(size=(T, F)), RNG.normal(size=(T, N)), RNG.integers(0, N, T)
REWARDS = jnp.array([1.0, -1.0, 0.5])


@pytest.fixture
def double_precision():
    with jax.enable_x64():
        yield


LOCATION = 2.5


def learned(steps=T):
    """A belief after some steps, and the log density of each."""
    location = jnp.asarray(LOCATION)
    step = jax.jit(lambda belief, phi, y, j: conjugate.learned(belief, phi, y, j, location, jnp.bool_(True)))
    belief, densities = conjugate.prior(N, F), []
    for t in range(steps):
        y, j = jnp.asarray(Y[t, PLAYED[t]])[None], jnp.asarray(PLAYED[t])[None]
        belief, (_, density) = step(belief, jnp.asarray(PHI[t]), y, j)
        densities.append(float(density[0]))
    return belief, densities


def covariance(belief, j):
    """C of response j."""
    return belief.root[j] @ belief.root[j].T


def normal_inverse_gamma(j, until=T):
    """Mean, covariance / sigma^2 and residual sum of squares of response j, from all its rows at once."""
    rows = PHI[:until][PLAYED[:until] == j]
    y = Y[:until][PLAYED[:until] == j, j]
    start = np.append(np.zeros(F - 1), LOCATION / 3)
    precision = np.eye(F) + rows.T @ rows
    mean = np.linalg.solve(precision, start + rows.T @ y)
    return mean, np.linalg.inv(precision), y @ y + start @ start - mean @ precision @ mean, len(y)


def test_a_regression_is_the_normal_inverse_gamma_posterior(double_precision):
    belief, _ = learned()
    total = sum(normal_inverse_gamma(j)[2] for j in range(N)) / T
    at = belief.answer(jnp.asarray(PHI[0]), jnp.asarray(LOCATION))
    for j in range(N):
        mean, cov, squares, count = normal_inverse_gamma(j)
        np.testing.assert_allclose(at.mean[j], PHI[0] @ mean, rtol=1e-9)
        np.testing.assert_allclose(covariance(belief, j), cov, rtol=1e-9)
        np.testing.assert_allclose(belief.noise.squares[j], squares, rtol=1e-9)
        own = max(total, (4 * total + squares) / (4 + count))
        np.testing.assert_allclose(belief.noise.variance[j], own, rtol=1e-9)


def test_the_prediction_is_a_student_t(double_precision):
    _, densities = learned()
    for t in range(T // 2, T):
        j = PLAYED[t]
        mean, cov, squares, count = normal_inverse_gamma(j, t)
        shared = sum(normal_inverse_gamma(i, t)[2] for i in range(N)) / t
        own = max(shared, (4 * shared + squares) / (4 + count))
        scale = np.sqrt(own * (1 + PHI[t] @ cov @ PHI[t]))
        np.testing.assert_allclose(densities[t], stats.t.logpdf(Y[t, j], 4 + count, mean @ PHI[t], scale), rtol=1e-8)


def test_recomputing_a_belief_from_its_rows_changes_nothing(double_precision):
    belief, _ = learned()
    played = jnp.asarray(np.eye(N)[PLAYED])
    once = conjugate.no_rows(belief.weights).added(jnp.asarray(PHI), jnp.asarray(Y), played)
    again = belief.recomputed(once)
    np.testing.assert_allclose(belief.weights, again.weights, rtol=1e-6, atol=1e-9)
    for j in range(N):
        np.testing.assert_allclose(covariance(belief, j), covariance(again, j), rtol=1e-6, atol=1e-9)
    halves = conjugate.no_rows(belief.weights)
    for part in (slice(0, 5), slice(5, T)) * 2:  # in two blocks, each row twice with half the weight
        halves = halves.added(jnp.asarray(PHI[part]), jnp.asarray(Y[part]), 0.5 * played[part])
    assert_same(belief.recomputed(halves), again, rtol=1e-6, atol=1e-9)


def test_members_are_recomputed_from_rows_by_their_ages(double_precision):
    kinds = mixture.Kind(1.0), mixture.Kind(1.0, 8.0)
    groups = (mixture.Group(lambda params, row: row, kinds, renewed=True),)
    phis, played, ages = jnp.asarray(np.stack([PHI, PHI], 1)), np.eye(N)[PLAYED], T - 1.0 - np.arange(T)

    def block(number):
        rows = phis, jnp.asarray(Y), jnp.asarray(2 * played), jnp.asarray(ages)
        half = [jax.lax.dynamic_slice_in_dim(part, number * (T // 2), T // 2) for part in rows]
        return (half[0],), half[1], half[2], half[3]

    known = mixture.prior(groups, N, (phis,))
    (members,) = mixture.recomputed(groups, known, jnp.asarray(Y), jnp.asarray(played > 0), jnp.int32(2), block).members
    for place, kind in enumerate(kinds):
        for j in range(N):
            own = 2 * played[:, j] * 0.5 ** (ages / kind.half_life)
            cov = np.linalg.inv(np.eye(F) + (own * PHI.T) @ PHI)
            np.testing.assert_allclose(members.weights[place, j], cov @ PHI.T @ (own * Y[:, j]), rtol=1e-9)
            root = members.root[place, j]
            np.testing.assert_allclose(root @ root.T, cov, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("diagonal", [False, True])
def test_a_belief_that_forgets_is_that_of_weighted_rows(double_precision, diagonal):
    """A diagonal belief is exact where features never occur together."""
    half_life, location = 8.0, jnp.asarray(LOCATION)
    phis = np.eye(F)[np.arange(T) % F] * PHI if diagonal else PHI
    assert conjugate.period(half_life) == 2

    @jax.jit
    def step(belief, phi, y, j, steps):
        belief, _ = conjugate.learned(belief, phi, y, j, location, jnp.bool_(True))
        return belief.forgotten(half_life, steps, jnp.bool_(True))

    belief = conjugate.prior(N, F, diagonal=diagonal)
    for t in range(T):
        y, j = jnp.asarray(Y[t, PLAYED[t]])[None], jnp.asarray(PLAYED[t])[None]
        belief = step(belief, jnp.asarray(phis[t]), y, j, jnp.int32(t + 1))
    weights = 0.5 ** (2 * (T // 2 - np.arange(T) // 2) / half_life)  # row t is forgotten at the even steps after it
    at = belief.answer(jnp.asarray(PHI[0]), location)
    for j in range(N):
        own = (j == PLAYED) * weights
        cov = np.linalg.inv(np.eye(F) + (own * phis.T) @ phis)
        mean = cov @ (np.append(np.zeros(F - 1), LOCATION / 3) + phis.T @ (own * Y[:, j]))
        root = np.diag(belief.root[j]) if diagonal else np.asarray(belief.root[j])
        np.testing.assert_allclose(root @ root.T, cov, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(at.mean[j], PHI[0] @ mean, rtol=1e-9)
    assert_same(belief.forgotten(half_life, jnp.int32(2), jnp.bool_(False)), belief, rtol=0)


def test_draws_have_the_moments_of_the_belief():
    belief, _ = learned()
    location, normal = jnp.float32(LOCATION), jax.random.normal(jax.random.key(0), (20_000, N, F))
    weights = jax.vmap(lambda numbers: belief.drawn(numbers, location))(normal)
    for j in range(N):
        cov = np.asarray(belief.noise.variance[j] * covariance(belief, j))
        size = np.sqrt(np.outer(np.diag(cov), np.diag(cov)))
        np.testing.assert_allclose((np.cov(weights[:, j].T) - cov) / size, 0, atol=0.05)
        mean = normal_inverse_gamma(j)[0]
        np.testing.assert_allclose((weights[:, j].mean(0) - mean) / np.sqrt(np.diag(cov)), 0, atol=0.05)
    np.testing.assert_allclose(belief.expected(location)[0], normal_inverse_gamma(0)[0], rtol=1e-3)


def test_standard_units_are_mean_and_deviation_of_all_values():
    seen = units.unknown((F,))
    for row in PHI:
        seen = units.measured(seen, jnp.asarray(100 + 7 * row, jnp.float32)[None], jnp.array([True]))
    seen = units.measured(seen, jnp.full((1, F), jnp.nan), jnp.array([False]))
    expected = (PHI[3] - PHI.mean(0)) / PHI.std(0)
    np.testing.assert_allclose(units.standard(seen, 100 + 7 * PHI[3]), expected, rtol=1e-3, atol=1e-4)
    same = units.measured(units.unknown((1,)), jnp.full((5, 1), 0.3), jnp.ones(5, bool))
    assert units.standard(same, jnp.array([0.3])) == 0
    assert units.bounded(seen, jnp.full(F, 1e6)).max() == 5


def test_a_skip_connection_contains_the_linear_model():
    network = models.network(models.MLP(NUM_ARMS, (8,), skip=True), jnp.zeros(NUM_FEATURES))
    params = network.init(jax.random.key(0))
    kernel = jax.random.normal(jax.random.key(1), (NUM_FEATURES, NUM_ARMS))
    params["output"]["kernel"] = jnp.concatenate([kernel, jnp.zeros((8, NUM_ARMS))])
    np.testing.assert_allclose(network.apply(params, CONTEXT), CONTEXT @ kernel, rtol=1e-5)
    assert network.is_last(("output", "kernel"))
    assert not network.is_last(("hidden_0", "kernel"))


def cut_off(values):
    """Units after values (t,), and the values as they were taken."""

    def one(seen, value):
        value = units.cut(seen, value)
        return units.measured(seen, value[None], jnp.array([True])), value

    return jax.lax.scan(one, units.unknown(()), jnp.asarray(values, jnp.float32))


def test_an_absurd_value_is_cut_off():
    values = np.random.default_rng(1).normal(size=2000)
    values[300] = 1e9
    seen, kept = cut_off(values)
    assert 5 < kept[300] < 60
    np.testing.assert_array_equal(np.delete(kept, 300)[10:], np.delete(np.float32(values), 300)[10:])
    assert float(jnp.sqrt(seen.squares / seen.seen)) < 1.5


def test_a_unit_that_grows_is_followed():
    values = np.random.default_rng(2).normal(size=400)
    values[100:] *= 1e6
    _, kept = cut_off(values)
    np.testing.assert_array_equal(kept[120:], np.float32(values[120:]))


@pytest.mark.parametrize("diagonal", [False, True])
def test_an_action_that_was_never_played_has_the_mean_of_all_rewards(diagonal):
    at = conjugate.prior(N, F, diagonal=diagonal).answer(jnp.asarray([0.3, -2.0, 3.0]), jnp.float32(LOCATION))
    np.testing.assert_allclose(at.mean, LOCATION, rtol=1e-6)


@pytest.mark.extended
@pytest.mark.parametrize("name", ["auto", "linear"])
def test_an_action_whose_first_rewards_were_all_zero_is_played_again(name):
    """Arm 1 pays nothing twenty times, by chance; it pays more than arm 0 afterwards."""
    agent = agents.make(name, Spaces(spaces.Box(0, 1, (1,), np.float32), spaces.Discrete(2)))
    x = jnp.ones(1)

    def seen(state, at):
        action, reward = at
        return agent.update(state, x, action, reward)[0], None

    def played(state, t):
        action = agent.act(jax.random.key(t), state, x).value
        won = jax.random.bernoulli(jax.random.key(10_000 + t), jnp.where(action == 1, 0.5, 0.1))
        return agent.update(state, x, action, won.astype(jnp.float32))[0], action

    @jax.jit
    def run():
        actions = jnp.arange(60) % 3 // 2  # arm 1 in every third step
        rewards = jnp.where((actions == 0) & (jnp.arange(60) % 20 == 0), 1.0, 0.0)
        state = jax.lax.scan(seen, agent.init(jax.random.key(0)), (actions, rewards))[0]
        return jax.lax.scan(played, state, jnp.arange(600))[1]

    assert run()[-200:].mean() > 0.5


# The agents


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["auto", "linear"])
def test_neither_unit_nor_origin_of_contexts_and_rewards_matters(name):
    """At most one action in a hundred differs after the first 16, where rounding decides between equal scores."""
    agent = agents.make(name, ARMS)
    xs, steps = contexts(400), jnp.arange(400)

    def step(state, at, scale, shift, unit, origin):
        t, x = at
        x = scale * x + shift
        action = agent.act(jax.random.key(t), state, x).value
        noise = 0.3 * jax.random.normal(jax.random.key(1000 + t))
        reward = origin + unit * (REWARDS[action] * at[1][0] + noise)
        return agent.update(state, x, action, reward)[0], action

    @jax.jit
    def play(*units):
        return jax.lax.scan(lambda state, at: step(state, at, *units), agent.init(jax.random.key(0)), (steps, xs))[1]

    plain = np.asarray(play(1.0, jnp.zeros(NUM_FEATURES), 1.0, 0.0))
    assert len(set(plain.tolist())) > 1
    scales = jnp.array([1e-6, 1e6, 3.0, 1.0])[:NUM_FEATURES]
    for others in (
        (1.0, jnp.zeros(NUM_FEATURES), 1.0, 30.0),
        (1.0, jnp.zeros(NUM_FEATURES), 1.0, -1000.0),
        (1.0, jnp.zeros(NUM_FEATURES), 1e-6, 0.0),
        (1.0, jnp.zeros(NUM_FEATURES), 1e6, 1e9),
        (scales, 50 * scales, 1.0, 0.0),
    ):
        same = np.asarray(play(*others)) == plain
        assert same[16:].mean() >= 0.99, others


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["auto", "linear"])
def test_an_action_that_always_pays_nothing_does_not_keep_the_others_from_being_tried(name):
    agent = agents.make(name, ARMS)
    update, act = jax.jit(agent.update), jax.jit(agent.act)
    state, chosen = agent.init(jax.random.key(0)), []
    for step, x in enumerate(contexts(60)):
        action = act(jax.random.key(step), state, x)
        assert np.isfinite(action.propensity)
        state, _ = update(state, x, action.value, jnp.where(action.value == 2, 1.0, 0.0))
        chosen.append(int(action.value))
    assert chosen[-20:].count(2) > 15


def test_weights_of_members_are_discounted_sums_of_log_densities():
    model = models.MLP(NUM_ARMS, (4,), skip=True)
    agent = agents.auto(ARMS, horizon=5.0, half_life=50.0, model=model)
    tree = ravel_pytree(models.network(model, jnp.zeros(NUM_FEATURES)).init(jax.random.key(0)))[1]
    state, update = agent.init(jax.random.key(0)), jax.jit(agent.update)
    change = state.mixture.change._replace(found=jnp.bool_(True))
    state = state._replace(mixture=state.mixture._replace(change=change))
    expected = np.array([0.0, 0, -100, -20, 0, -100])
    for step, x in enumerate(contexts(12)):
        before, action = state, jnp.int32(step % NUM_ARMS)
        state, info = update(state, x, action, REWARDS[action])
        z, layer = units.bounded(state.contexts, x), tree(before.features)["hidden_0"]
        deep = jnp.concatenate([jnp.ones(1), z, jax.nn.elu(z @ layer["kernel"] + layer["bias"])]) * 0.1**0.5
        phis = [jnp.append(scaled, 3.0) for scaled in (z, 10 * z, z, z, deep, deep)]
        y = (REWARDS[action] - state.rewards.origin)[None]
        beliefs = [
            jax.tree.map(lambda leaf, k=k: leaf[k], group)
            for group in before.mixture.members
            for k in range(len(group.weights))
        ]
        found = [
            conjugate.learned(belief, phi, y, action[None], state.rewards.location, jnp.bool_(True))[1][1][0]
            for belief, phi in zip(beliefs, phis, strict=True)
        ]
        expected = 0.8 * expected + np.array(found) - [0, 0, 0.2, 0, 0, 0.2]
        expected = np.maximum(expected - expected.max(), [-np.inf, -np.inf, -6, -np.inf, -np.inf, -6])
        np.testing.assert_allclose(info.weights, jax.nn.softmax(expected), rtol=1e-3, atol=1e-5)


def test_a_rise_of_the_squared_errors_is_a_change():
    """Against the means written out, with weights 1 / min(t, 200) on the newest."""
    rng = np.random.default_rng(0)
    # What comes before step 400 is the agent's own learning: a low there, and a rise, are no change.
    squares = rng.standard_exponential(900) * np.repeat([0.03, 0.9, 0.3, 1.8], [250, 130, 220, 300])
    squares[50] = 1e6  # counts as 9
    means, seconds, least, before, found = [], [], np.inf, 0.0, []
    mean = second = 0.0
    for t, s in enumerate(np.minimum(squares, 9), 1):
        mean, second = mean + (s - mean) / min(t, 200), second + (s**2 - second) / min(t, 200)
        error = np.sqrt((second - mean**2) / 400)
        if t > 400 and mean < least:
            least, before = mean, error
        found.append(mean - least > max(0.2, 6 * error, 12 * before))
        means.append(mean)
        seconds.append(second)

    def step(change, at):
        change = mixture.watched(change, *at)
        return change, change

    at = jnp.asarray(squares, jnp.float32), jnp.arange(1, 901, dtype=jnp.int32)
    changes = jax.lax.scan(step, mixture.unchanged(), at)[1]
    np.testing.assert_allclose(changes.mean, means, rtol=1e-3)
    np.testing.assert_allclose(changes.square, seconds, rtol=1e-3)
    np.testing.assert_array_equal(changes.found, np.logical_or.accumulate(found))
    assert not changes.found[599] and changes.found[720]


@pytest.mark.parametrize("tail", ["normal", "lognormal", "rare"])
def test_where_nothing_changes_no_change_is_found(tail):
    draws = {
        "normal": lambda rng: rng.normal(size=20_000) ** 2,
        "lognormal": lambda rng: (rng.lognormal(size=20_000) - np.exp(0.5)) ** 2 / 4.67,
        "rare": lambda rng: (rng.random(20_000) < 0.01) / 0.01,
    }
    squares = jnp.asarray(np.stack([draws[tail](np.random.default_rng(seed)) for seed in range(20)]), jnp.float32)

    def step(change, at):
        return mixture.watched(change, *at), None

    def last(squares):
        at = squares, jnp.arange(1, len(squares) + 1, dtype=jnp.int32)
        return jax.lax.scan(step, mixture.unchanged(), at)[0].found

    assert np.mean(jax.jit(jax.vmap(last))(squares)) <= 0.05


def test_what_a_linear_member_cannot_say_is_left_to_the_learned_one():
    agent = agents.auto(ARMS, learning_rate=1e-2, half_life=None, model=models.MLP(NUM_ARMS, (16,), skip=True))

    def step(state, at):
        x, t = at
        reward = jnp.abs(x[0]) - jnp.abs(x[1]) + 0.05 * jax.random.normal(jax.random.key(t))
        state, info = agent.update(state, x, t % NUM_ARMS, reward)
        return state, (info.weights[3], info.innovation[0])

    at = contexts(400), jnp.arange(400)
    learned, errors = jax.jit(lambda: jax.lax.scan(step, agent.init(jax.random.key(0)), at))()[1]
    assert learned[-1] > 0.99
    assert np.mean(errors[-100:] ** 2) < 0.3 * np.mean(errors[:100] ** 2)


FOLLOWERS = {
    "auto": lambda: agents.auto(ARMS, half_life=50.0, model=models.MLP(NUM_ARMS, (8,), skip=True)),
    "linear": lambda: agents.linear(ARMS, half_life=50.0),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", FOLLOWERS)
def test_a_world_that_changes_is_followed(name):
    """The weights of the actions are dealt out anew after two thirds of the steps."""
    agent = FOLLOWERS[name]()

    def step(state, at):
        key, before = at
        seen, acted, noisy = jax.random.split(key, 3)
        x = jax.random.normal(seen, (NUM_FEATURES,))
        means = jnp.roll(jnp.array([1.0, -1.0, 0.0]), ~before) * x[0] + jnp.roll(jnp.arange(3.0), ~before)
        action = agent.act(acted, state, x).value
        state, info = agent.update(state, x, action, means[action] + 0.3 * jax.random.normal(noisy))
        return state, (jnp.max(means) - means[action], getattr(info, "weights", jnp.zeros(6)))

    def played(key):
        at = jax.random.split(key, 900), jnp.arange(900) < 600
        return jax.lax.scan(step, agent.init(key), at)[1]

    regret, weights = jax.jit(jax.vmap(played))(jax.random.split(jax.random.key(0), 4))
    before, after = regret[:, 500:600].mean(1), regret[:, 800:].mean(1)
    assert np.all(before < 0.1) and np.all(after < 0.25), (before, after)
    forgetting = weights[..., jnp.array([2, 5])].sum(-1)
    assert np.all(forgetting[:, 100:600].mean(1) < 0.02)
    if name == "auto":
        assert np.all(forgetting[:, 620:700].mean(1) > 0.5)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("name", FOLLOWERS)
def test_members_that_forget_promote_no_ranks_and_keep_their_dtypes(name, x64):
    with jax.enable_x64(x64), jax.numpy_rank_promotion("raise"):
        agent = FOLLOWERS[name]()
        state = jax.eval_shape(agent.init, jax.random.key(0))
        x, reward = jax.ShapeDtypeStruct((NUM_FEATURES,), jnp.float32), jax.ShapeDtypeStruct((), jnp.float32)
        jax.eval_shape(agent.act, jax.random.key(0), state, x)
        fresh, _ = jax.eval_shape(agent.update, state, x, jax.ShapeDtypeStruct((), jnp.int32), reward)
    assert jax.tree.map(lambda a: (a.shape, a.dtype), fresh) == jax.tree.map(lambda a: (a.shape, a.dtype), state)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["auto", "linear"])
def test_a_rejected_update_leaves_the_state_as_it_was(name):
    agent = agents.make(name, ARMS)
    state, update = agent.init(jax.random.key(0)), jax.jit(agent.update)
    state, _ = update(state, CONTEXT, jnp.int32(0), 1.0)
    for x, reward in ((CONTEXT.at[0].set(jnp.nan), 1.0), (CONTEXT, jnp.inf)):
        fresh, info = update(state, x, jnp.int32(1), reward)
        assert info.rejected
        assert_same(fresh, state, rtol=0)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("space", "members"),
    [(spaces.Discrete(4), 3), (spaces.Box(0, 1, (8, 8), np.float32), 3), (spaces.Box(0, 255, (28, 28), np.uint8), 1)],
)
def test_auto_takes_numbers_states_and_images(space, members):
    agent = agents.auto(Spaces(space, spaces.Discrete(NUM_ARMS)))
    state = jax.eval_shape(agent.init, jax.random.key(0))
    assert len(state.mixture.members) == members
    x = jnp.zeros(space.shape, jnp.float32 if space.dtype == np.float32 else jnp.int32)
    assert jax.eval_shape(agent.act, jax.random.key(0), state, x).value.shape == ()
    fresh, _ = jax.eval_shape(agent.update, state, x, jnp.int32(0), jnp.float32(0))
    assert jax.tree.map(lambda a: (a.shape, a.dtype), fresh) == jax.tree.map(lambda a: (a.shape, a.dtype), state)


class Shared(nn.Module):
    """All actions share the parameters of the output layer."""

    @nn.compact
    def __call__(self, x):
        return jnp.broadcast_to(nn.Dense(1, name="output")(nn.tanh(nn.Dense(4, name="body")(x))), NUM_ARMS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizon": -1.0}, "horizon must be positive; got -1.0"),
        ({"half_life": 0.0}, "half_life must lie in .*; got 0.0"),
        ({"half_life": np.inf}, "half_life must lie in .*; got inf"),
        ({"batch_size": 0}, "batch_size must be at least 1; got 0"),
        ({"capacity": 0}, "capacity must be at least 1; got 0"),
    ],
)
def test_settings_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        agents.auto(ARMS, **options)


def test_an_output_layer_that_actions_share_is_refused():
    network = models.network(Shared(), jnp.zeros(NUM_FEATURES))._replace(is_last=lambda path: path[0] == "output")
    with pytest.raises(ValueError, match="each of the 3 actions has parameters of its own"):
        agents.auto(ARMS, model=network)
