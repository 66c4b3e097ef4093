"""Regressions with unknown noise, standard units, and the default agent, against closed forms in double precision."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from gymnasium import spaces
from jax.flatten_util import ravel_pytree
from scipy import stats

from seqdec import agents, models
from seqdec.agents.regression import conjugate, mixture, sparse, units
from seqdec.core import Spaces
from seqdec.policies import tempered_sampling
from tests.test_agents import ARMS, CONTEXT, NUM_ARMS, NUM_FEATURES, assert_same, contexts

N, F, T = 2, 3, 12
RNG = np.random.default_rng(0)
PHI, Y, PLAYED = RNG.normal(size=(T, F)), RNG.normal(size=(T, N)), RNG.integers(0, N, T)
APART = np.eye(F)[np.arange(T) % F] * PHI
"""Features that never occur together."""
REWARDS = jnp.array([1.0, -1.0, 0.5])
MU = np.array([[0.3, -0.2, 0.8], [0.0, 0.5, -0.4]])
"""Prior means of the weights."""


@pytest.fixture
def double_precision():
    with jax.enable_x64():
        yield


def forgotten(belief, half_life, step, good):
    """One belief after a step."""
    several = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), belief)
    return jax.tree.map(lambda leaf: leaf[1], conjugate.forgotten(several, (np.inf, half_life), step, good))


def learned(phis=PHI, diagonal=False, half_life=None):
    """The belief after one response in each row, and the log density of each."""

    def step(belief, at):
        phi, y, j, t = at
        good = jnp.bool_(True)
        belief, (_, density) = conjugate.learned(belief, phi, y[j][None], j[None], jnp.asarray(MU), good)
        return belief if half_life is None else forgotten(belief, half_life, t + 1, good), density[0]

    at = tuple(map(jnp.asarray, (phis, Y, PLAYED, np.arange(T, dtype=np.int32))))
    return jax.jit(lambda at: jax.lax.scan(step, conjugate.prior(N, F, diagonal=diagonal), at))(at)


def covariance(belief, j):
    """C of response j."""
    root = np.asarray(belief.root[j])
    return root @ root.T if root.ndim == 2 else np.diag(root**2)


def normal_inverse_gamma(j, until=T):
    """Mean, covariance / sigma^2 and residual sum of squares of response j, from all its rows at once."""
    rows = PHI[:until][PLAYED[:until] == j]
    y = Y[:until][PLAYED[:until] == j, j]
    start = MU[j]
    precision = np.eye(F) + rows.T @ rows
    mean = np.linalg.solve(precision, start + rows.T @ y)
    return mean, np.linalg.inv(precision), y @ y + start @ start - mean @ precision @ mean, len(y)


def test_a_regression_is_the_normal_inverse_gamma_posterior_and_predicts_a_student_t(double_precision):
    belief, densities = learned()
    at = belief.answer(jnp.asarray(PHI[0]), jnp.asarray(MU))
    for t in range(T // 2, T + 1):
        found = [normal_inverse_gamma(j, t) for j in range(N)]
        shared = sum(squares for _, _, squares, _ in found) / t
        for j, (mean, cov, squares, count) in enumerate(found):
            own = max(shared, (4 * shared + squares) / (4 + count))
            if t == T:
                np.testing.assert_allclose(at.mean[j], PHI[0] @ mean, rtol=1e-9)
                np.testing.assert_allclose(covariance(belief, j), cov, rtol=1e-9)
                np.testing.assert_allclose(belief.noise.squares[j], squares, rtol=1e-9)
                np.testing.assert_allclose(belief.noise.variance[j], own, rtol=1e-9)
            elif j == PLAYED[t]:
                scale = np.sqrt(own * (1 + PHI[t] @ cov @ PHI[t]))
                expected = stats.t.logpdf(Y[t, j], 4 + count, mean @ PHI[t], scale)
                np.testing.assert_allclose(densities[t], expected, rtol=1e-8)


def test_recomputing_a_belief_from_its_rows_changes_nothing(double_precision):
    belief, _ = learned()
    played = jnp.asarray(np.eye(N)[PLAYED])
    sums = conjugate.no_rows(belief.weights)
    for part in (slice(0, 5), slice(5, T)) * 2:  # in two blocks, each row twice with half the weight
        sums = sums.added(jnp.asarray(PHI[part]), jnp.asarray(Y[part]), 0.5 * played[part])
    again = belief.recomputed(sums)
    np.testing.assert_allclose(belief.weights, again.weights, rtol=1e-6, atol=1e-9)
    for j in range(N):
        np.testing.assert_allclose(covariance(belief, j), covariance(again, j), rtol=1e-6, atol=1e-9)


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
    half_life, phis = 8.0, APART if diagonal else PHI
    belief, densities = learned(phis, diagonal, half_life)
    if diagonal:
        np.testing.assert_allclose(densities, learned(phis, False, half_life)[1], rtol=1e-9)
    weights = 0.5 ** (2 * (T // 2 - np.arange(T) // 2) / half_life)  # row t is forgotten at the even steps after it
    at = belief.answer(jnp.asarray(PHI[0]), jnp.asarray(MU))
    for j in range(N):
        own = (j == PLAYED) * weights
        cov = np.linalg.inv(np.eye(F) + (own * phis.T) @ phis)
        mean = cov @ (MU[j] + phis.T @ (own * Y[:, j]))
        np.testing.assert_allclose(covariance(belief, j), cov, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(at.mean[j], PHI[0] @ mean, rtol=1e-9)
    assert_same(forgotten(belief, half_life, jnp.int32(2), jnp.bool_(False)), belief, rtol=0)


@pytest.mark.parametrize("diagonal", [False, True])
def test_what_was_not_observed_or_is_refused_changes_nothing(diagonal):
    belief = conjugate.prior(N, F, diagonal=diagonal)
    y, index, mu = jnp.ones(1), jnp.array([1]), jnp.asarray(MU, jnp.float32)
    same, _ = conjugate.learned(belief, jnp.full(F, jnp.nan), y, index, mu, jnp.bool_(False))
    assert_same(same, belief, rtol=0)
    one, _ = conjugate.learned(belief, jnp.ones(F), y, index, mu, jnp.bool_(True))
    assert_same([leaf[0] for leaf in jax.tree.leaves(one)], [leaf[0] for leaf in jax.tree.leaves(belief)], rtol=0)
    assert np.all(one.weights[1] != 0)


@pytest.mark.parametrize("diagonal", [False, True])
def test_draws_have_the_moments_of_the_belief(diagonal):
    belief, _ = learned(PHI, diagonal)
    mu, phi = jnp.asarray(MU, jnp.float32), jnp.asarray([0.3, -2.0, 3.0])
    normal = jax.random.normal(jax.random.key(0), (20_000, N, F))
    responses = np.asarray(jax.vmap(lambda numbers: belief.drawn(numbers, mu))(normal) @ phi)
    at = belief.answer(phi, mu)
    np.testing.assert_allclose(responses.var(0), at.variance, rtol=0.06)
    np.testing.assert_allclose(responses.mean(0), at.mean, atol=5 * float(jnp.sqrt(at.variance.max() / 20_000)))
    np.testing.assert_allclose(np.sum(belief.expected(mu) * phi, 1), at.mean, rtol=1e-4)
    none = conjugate.prior(N, F, diagonal=diagonal)
    mean = none.answer(phi, conjugate.usual_mean(none.weights, jnp.float32(2.5))).mean
    np.testing.assert_allclose(mean, 2.5, rtol=1e-6)  # of an action never played that of all rewards


def test_a_sparse_regression_is_that_of_the_columns_that_matter(double_precision):
    columns, rows = 40, 400
    phis = np.append(RNG.normal(size=(rows, columns)), np.full((rows, 1), 3.0), 1)
    chosen, played = [3, 17, columns], np.eye(N)[RNG.integers(0, N, rows)]
    y = phis[:, chosen] @ RNG.normal(size=(3, N)) + 0.3 * RNG.normal(size=(rows, N))
    belief = sparse.prior(N, columns + 1)
    sums = conjugate.no_rows(belief.weights).added(*map(jnp.asarray, (phis, y, played)))
    belief = jax.jit(sparse.Sparse.recomputed)(belief, sums)
    assert np.flatnonzero(np.any(belief.weights != 0, 0)).tolist() == chosen
    for j in range(N):
        own = phis[:, chosen] * played[:, j, None]
        cov = np.linalg.inv(np.eye(3) + own.T @ own)
        np.testing.assert_allclose(covariance(belief, j)[np.ix_(chosen, chosen)], cov, rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(belief.weights[j, chosen], cov @ own.T @ y[:, j], rtol=1e-6)
        error = np.sum(played[:, j] * y[:, j] ** 2) - y[:, j] @ own @ cov @ own.T @ y[:, j]
        np.testing.assert_allclose(belief.noise.squares[j], error, rtol=1e-6)


def test_standard_units_are_mean_and_deviation_of_all_values():
    seen = units.unknown((F,))
    for row in PHI:
        seen = units.measured(seen, jnp.asarray(100 + 7 * row, jnp.float32)[None], jnp.array([True]))
    seen = units.measured(seen, jnp.full((1, F), jnp.nan), jnp.array([False]))
    expected = (PHI[3] - PHI.mean(0)) / PHI.std(0)
    np.testing.assert_allclose(units.standard(seen, 100 + 7 * PHI[3]), expected, rtol=1e-3, atol=1e-4)
    same = units.measured(units.unknown((1,)), jnp.full((5, 1), 0.3), jnp.ones(5, bool))
    assert units.standard(same, jnp.array([0.3])) == 0 and units.varying(same) == 0 and units.varying(seen) == F
    assert units.bounded(seen, jnp.full(F, 1e6)).max() == 5


def test_an_absurd_value_is_cut_off_and_a_unit_that_grows_is_followed():
    @jax.jit
    def cut_off(values):
        def one(seen, value):
            value = units.cut(seen, value)
            return units.measured(seen, value[None], jnp.array([True])), value

        return jax.lax.scan(one, units.unknown(()), values)

    values = np.random.default_rng(1).normal(size=2000).astype(np.float32)
    absurd = np.where(np.arange(2000) == 300, np.float32(1e9), values)
    seen, kept = cut_off(absurd)
    assert 5 < kept[300] < 60
    np.testing.assert_array_equal(np.delete(kept, 300)[10:], np.delete(values, 300)[10:])
    assert float(jnp.sqrt(seen.squares / seen.seen)) < 1.5
    grown = np.where(np.arange(2000) < 100, values, np.float32(1e6) * values)
    np.testing.assert_array_equal(cut_off(grown)[1][120:], grown[120:])


def test_a_skip_connection_contains_the_linear_model():
    network = models.network(models.MLP(NUM_ARMS, (8,), skip=True), jnp.zeros(NUM_FEATURES))
    params = network.init(jax.random.key(0))
    kernel = jax.random.normal(jax.random.key(1), (NUM_FEATURES, NUM_ARMS))
    params["output"]["kernel"] = jnp.concatenate([kernel, jnp.zeros((8, NUM_ARMS))])
    np.testing.assert_allclose(network.apply(params, CONTEXT), CONTEXT @ kernel, rtol=1e-5)
    assert network.is_last(("output", "kernel"))
    assert not network.is_last(("hidden_0", "kernel"))


def test_weights_follow_the_member_that_predicts_best_now(double_precision):
    """Fixed share, against sums over all sequences of members in three steps; response 0 is observed in two of them."""
    kinds = mixture.Kind(1.0), mixture.Kind(1.0, 8.0)
    groups = (
        mixture.Group(lambda params, row: row, kinds),
        mixture.Group(lambda params, row: row, kinds[:1], log_weight=-3.0),
    )
    state = mixture.prior(groups, N, (jnp.zeros((1, 2, F)), jnp.zeros((1, 1, F))))
    share = np.array([1.0, 1.0, np.exp(-3)]) / (2 + np.exp(-3))
    start = np.array([0.96 / (1 + np.exp(-3)), 0.04, 0.96 * np.exp(-3) / (1 + np.exp(-3))])
    np.testing.assert_allclose(state.weights, np.stack([start] * N, 1), rtol=1e-9)
    lasting = mixture.prior(groups[1:], N, (jnp.zeros((1, 1, F)),))
    np.testing.assert_allclose(lasting.weights, np.ones((1, N)), rtol=1e-9)
    played = (0, 1, 0)
    densities, shares = RNG.normal(size=(3, 3)), state.shares
    for row, index in zip(densities, played, strict=True):
        shares = mixture.weighed(groups, shares, jnp.asarray(row)[:, None], jnp.array([index]))

    def summed(counts):
        """Weights by the densities of the steps that count."""
        total = np.zeros(3)
        for hazard, prior in ((1e-6, 0.9), (1e-4, 0.07), (1e-3, 0.02), (1e-2, 0.01)):
            moves = (1 - hazard) * np.eye(3) + hazard * share
            for path in np.ndindex(3, 3, 3, 3):
                chance = prior * start[path[0]]
                for t in range(3):
                    gain = np.exp(densities[t, path[t]] - 0.005 * (path[t] == 1)) if counts[t] else 1
                    chance *= gain * moves[path[t], path[t + 1]]
                total[path[3]] += chance
        return total / total.sum()

    found = mixture.Mixture((), shares, jnp.zeros(())).weights
    for response in range(N):
        own = summed([response == each for each in played])
        np.testing.assert_allclose(found[:, response], (summed([True] * 3) + own) / 2, rtol=1e-9)


# The agents


CHUNK = 300
FOLLOWERS = {
    "auto": lambda **options: agents.auto(
        ARMS, learning_rate=1e-2, half_lives=(50.0,), model=models.MLP(NUM_ARMS, (16,), skip=True), **options
    ),
    "linear": lambda: agents.linear(ARMS, half_life=50.0),
}
XS, NOISE = contexts(3 * CHUNK, seed=1), np.random.default_rng(2).normal(size=(3 * CHUNK, NUM_ARMS))
PLAIN = np.asarray(REWARDS) * np.asarray(XS)[:, :1] + 0.3 * NOISE


@functools.cache
def program(name):
    """An agent's one program: `CHUNK` steps."""
    agent = FOLLOWERS[name]()

    def step(state, at):
        key, x, rewards = at
        action = agent.act(key, state, x).value
        state, info = agent.update(state, x, action, rewards[action])
        return state, (action, getattr(info, "weights", jnp.zeros(7)), info.rejected)

    return jax.jit(agent.init), jax.jit(lambda state, *at: jax.lax.scan(step, state, at))


def play(name, xs, rewards, state=None):
    """State, actions, weights of the members and rejections of a life among contexts (t, F) and rewards (t, n)."""
    init, chunk = program(name)
    state, parts = init(jax.random.key(0)) if state is None else state, []
    keys = jax.random.split(jax.random.key(1), len(xs))
    for start in range(0, len(xs), CHUNK):
        at = slice(start, start + CHUNK)
        state, found = chunk(state, keys[at], jnp.asarray(xs[at], float), jnp.asarray(rewards[at], float))
        parts.append(found)
    return state, *(np.concatenate(part) for part in zip(*parts, strict=True))


@pytest.mark.parametrize("name", FOLLOWERS)
def test_neither_unit_nor_origin_of_contexts_and_rewards_matters(name):
    """At most one action in a hundred differs after the first 16, where rounding decides between equal scores."""
    xs, rewards = np.asarray(XS[:CHUNK]), PLAIN[:CHUNK]
    plain = play(name, xs, rewards)[1]
    assert len(set(plain.tolist())) > 1
    scales = np.array([1e-6, 1e6, 3.0, 1.0])
    for seen, paid in (
        (xs, rewards + 30),
        (xs, rewards - 1000),
        (xs, 1e-6 * rewards),
        (xs, 1e6 * rewards + 1e9),
        (scales * xs + 50 * scales, rewards),
    ):
        same = play(name, seen, paid)[1] == plain
        assert same[16:].mean() >= 0.99


@pytest.mark.parametrize("name", FOLLOWERS)
def test_a_rejected_update_leaves_the_state_as_it_was(name):
    state, *_ = play(name, XS[:CHUNK], PLAIN[:CHUNK])
    rows = np.arange(CHUNK)[:, None] % 2 == 0
    xs, rewards = np.where(rows, np.nan, XS[:CHUNK]), np.where(rows, PLAIN[:CHUNK], np.inf)
    fresh, _, _, rejected = play(name, xs, rewards, state)
    assert rejected.all()
    assert_same(fresh, state, rtol=0)


@pytest.mark.parametrize("name", FOLLOWERS)
def test_an_action_that_always_pays_nothing_does_not_keep_the_others_from_being_tried(name):
    _, actions, *_ = play(name, XS[:CHUNK], np.tile([0.0, 0.0, 1.0], (CHUNK, 1)))
    assert np.mean(actions[40:60] == 2) > 0.75


@pytest.mark.parametrize("name", FOLLOWERS)
def test_a_world_that_changes_is_followed(name):
    """The weights of the actions are dealt out anew after two thirds of the steps."""
    x = np.asarray(XS)[:, :1]
    means = np.where(
        np.arange(3 * CHUNK)[:, None] < 2 * CHUNK, [-1.0, 0.0, 1.0] * x + [1.0, 2.0, 0.0], [1.0, -1, 0] * x + [0, 1, 2]
    )
    _, actions, weights, _ = play(name, XS, means + 0.3 * NOISE)
    regret = means.max(1) - means[np.arange(3 * CHUNK), actions]
    assert regret[500:600].mean() < 0.1 and regret[800:].mean() < 0.25
    if name == "auto":
        forgetting = weights[:, [0, 3, 4]].sum(1)
        assert forgetting[100:600].mean() < 0.02 and forgetting[620:700].mean() > 0.5


def test_what_a_linear_member_cannot_say_is_left_to_the_learned_one():
    x = np.asarray(XS)
    bends = np.abs(x[:, :1]) - np.abs(x[:, 1:2]) + 0.05 * NOISE
    assert play("auto", XS[: 2 * CHUNK], bends[: 2 * CHUNK])[2][-1, 6] > 0.99


def test_of_contexts_that_never_differ_little_is_neglected():
    state, *_ = play("auto", np.full((CHUNK, 4), 2.0), NOISE[:CHUNK])
    policies = (None, tempered_sampling(neglect=1.0))
    first, second = (
        FOLLOWERS["auto"](policy=policy).act(jax.random.key(0), state, jnp.full(4, 2.0)) for policy in policies
    )
    assert first.propensity == second.propensity < 1


def test_costs_are_learned_by_their_logarithms_and_normal_rewards_are_not():
    truth = np.random.default_rng(3).normal(size=(NUM_ARMS, NUM_FEATURES))
    w = np.asarray(XS) @ truth.T
    assert play("auto", XS, -np.exp(w + NOISE - 0.5))[2][-1, 5] > 0.8
    assert play("auto", XS, w + 0.5 * NOISE)[2][-1, 5] < 0.1


@pytest.mark.extended
def test_an_action_whose_first_rewards_were_all_zero_is_played_again():
    """Arm 1 pays nothing in the first steps, by chance; it pays more than the others afterwards."""
    pays = np.random.default_rng(4).random((3 * CHUNK, NUM_ARMS)) < [0.1, 0.5, 0.1]
    _, actions, *_ = play(
        "linear", np.ones_like(XS), np.where(np.arange(3 * CHUNK)[:, None] < 60, [[0.1, 0, 0.1]], pays)
    )
    assert np.mean(actions[-200:] == 1) > 0.5


def test_members_learn_as_regressions_of_their_own_and_are_weighted_by_their_densities():
    model = models.MLP(NUM_ARMS, (4,), skip=True)
    agent = agents.auto(ARMS, half_lives=(16.0,), model=model)
    tree = ravel_pytree(models.network(model, jnp.zeros(NUM_FEATURES)).init(jax.random.key(0)))[1]
    state, update = agent.init(jax.random.key(0)), jax.jit(agent.update)
    learn, half_lives = jax.jit(conjugate.learned), [16.0, np.inf, np.inf, np.inf, 512.0, np.inf, np.inf]
    kinds = tuple(mixture.Kind(1.0, *each) for each in ((16.0,), (), (), (np.inf, True), (512.0, True)))
    one, nothing = (mixture.Kind(1.0),), lambda params, row: row
    groups = (mixture.Group(nothing, kinds), mixture.Group(nothing, one, log_weight=-20.0), mixture.Group(nothing, one))
    for step, x in enumerate(contexts(12)):
        before, action = state, jnp.int32(step % NUM_ARMS)
        state, info = update(state, x, action, REWARDS[action])
        z, layer = units.bounded(state.contexts, x), tree(before.features)["hidden_0"]
        deep = jnp.concatenate([jnp.ones(1), z, jax.nn.elu(z @ layer["kernel"] + layer["bias"])]) * 0.1**0.5
        y, location, level = (
            (REWARDS[action] - state.rewards.origin)[None],
            state.rewards.location,
            before.mixture.level,
        )
        members = [(group, k) for group in range(3) for k in range(len(before.mixture.members[group].weights))]
        densities = []
        for place, (group, k) in enumerate(members):
            phi = jnp.append([z, z, 10 * z, z, z, z, deep][place], 3.0)
            center, mean = (level, 0 * location) if place in (3, 4) else (0, location)
            old, new = (jax.tree.map(lambda leaf, k=k: leaf[k], at.mixture.members[group]) for at in (before, state))
            mu = conjugate.usual_mean(old.weights, mean)
            if place in (0, 4):  # around the members that remember all
                mu = jax.tree.map(lambda leaf, k=place: leaf[{0: 1, 4: 3}[k]], before.mixture.members[0]).expected(mu)
            belief, (_, density) = learn(old, phi, y - center, action[None], mu, jnp.bool_(True))
            expected = forgotten(belief, half_lives[place], jnp.int32(step + 1), jnp.bool_(True))
            assert_same(new, expected, rtol=1e-3, atol=1e-5)
            densities.append(density[0])
        expected = mixture.weighed(groups, before.mixture.shares, jnp.stack(densities)[:, None], action[None])
        np.testing.assert_allclose(state.mixture.shares, expected, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(info.weights, expected[0].sum(0), rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(
            state.mixture.level, level + (y[0] - level) * max(1 - 0.5 ** (1 / 32), 1 / (step + 1)), rtol=1e-4, atol=1e-6
        )


def test_linear_is_the_regression_that_forgets_in_every_fourth_of_the_half_life():
    agent = agents.linear(ARMS, half_life=8.0)
    state, update, belief = (
        agent.init(jax.random.key(0)),
        jax.jit(agent.update),
        conjugate.prior(NUM_ARMS, NUM_FEATURES + 1),
    )
    for step, x in enumerate(contexts(5)):
        state, info = update(state, x, jnp.int32(step % NUM_ARMS), REWARDS[step % NUM_ARMS])
        phi = jnp.append(units.bounded(state.contexts, x), 3.0)
        y, index = (REWARDS - state.rewards.origin)[step % NUM_ARMS][None], jnp.array([step % NUM_ARMS])
        mu = conjugate.usual_mean(belief.weights, state.rewards.location)
        belief, (error, _) = conjugate.learned(belief, phi, y, index, mu, jnp.bool_(True))
        belief = forgotten(belief, 8.0, jnp.int32(step + 1), jnp.bool_(True))
        assert_same((state.belief, info.innovation), (belief, error), rtol=1e-4, atol=1e-6)


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


def test_an_image_has_only_the_member_of_the_network():
    agent = agents.auto(Spaces(spaces.Box(0, 255, (28, 28), np.uint8), spaces.Discrete(NUM_ARMS)))
    assert len(jax.eval_shape(agent.init, jax.random.key(0)).mixture.members) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"half_lives": (32.0, 0.0)}, "half_lives must lie in .*; got 0.0"),
        ({"half_lives": (np.inf,)}, "half_lives must lie in .*; got inf"),
        ({"batch_size": 0}, "batch_size must be at least 1; got 0"),
        ({"capacity": 0}, "capacity must be at least 1; got 0"),
    ],
)
def test_settings_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        agents.auto(ARMS, **options)


class Shared(nn.Module):
    """All actions share the parameters of the output layer."""

    @nn.compact
    def __call__(self, x):
        return jnp.broadcast_to(nn.Dense(1, name="output")(nn.tanh(nn.Dense(4, name="body")(x))), NUM_ARMS)


def test_an_output_layer_that_actions_share_is_refused():
    network = models.network(Shared(), jnp.zeros(NUM_FEATURES))._replace(is_last=lambda path: path[0] == "output")
    with pytest.raises(ValueError, match="each of the 3 actions has parameters of its own"):
        agents.auto(ARMS, model=network)
