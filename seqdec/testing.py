"""Checks of parts of one's own against their contracts; they raise AssertionError.

>>> from seqdec import filters, policies, testing
>>> testing.check_policy(policies.thompson)
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
from gymnasium.spaces import Box, Dict, Discrete

from seqdec import likelihoods, models, ope
from seqdec.boundary.spaces import spaces_of
from seqdec.core import (
    Acquisition,
    Action,
    Agent,
    Filter,
    HasSpaces,
    Masked,
    Network,
    Posterior,
    Predictive,
    PyTree,
    Spaces,
)
from seqdec.envs import check as check_environment
from seqdec.likelihoods import Likelihood
from seqdec.ope import ContinuousLog, EpisodeLog, Estimator, Evidence, Log, SlateLog, Terms
from seqdec.policies.common import played

__all__ = [
    "check_agent",
    "check_environment",
    "check_estimator",
    "check_filter",
    "check_optimizer",
    "check_policy",
    "check_surrogate",
]


def check_optimizer(
    make: Callable[[float], optax.GradientTransformation], *, params: PyTree | None = None, without_params: bool = True
) -> None:
    """An optimizer keeps the contract of optax, on odd gradients too.

    - The state keeps structure, shapes and dtypes; its arrays share no memory.
    - Unknown arguments, such as the loss as `value`, are ignored.
    - Zero gradients move nothing in the first step; NaN makes NaN; 1e20 leaves updates and state finite.
    - bfloat16 parameters get the bfloat16 updates of float32, from a float32 state.
    - `jax.vmap` over parameters and state gives each member its own result.

    Args:
        make: (learning rate) -> transformation.
        params: float32 tree; None: a matrix, a vector, a scalar and a row.
        without_params: `update` must not need the parameters.
    """
    random = np.random.default_rng(0)
    shapes = {"hidden": (3, 4), "bias": (4,), "scale": (), "row": (1, 3)}
    if params is None:
        params = {name: jnp.asarray(random.normal(size=shape), jnp.float32) for name, shape in shapes.items()}
    grads = [
        jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape), jnp.float32), params) for _ in range(2)
    ]
    transform = optax.with_extra_args_support(make(0.1))

    def advance(gradient, state, params, value):
        return transform.update(gradient, state, params, value=value, something_unknown=1)

    def two_steps(params, first, second):
        _, state = advance(first, transform.init(params), params, jnp.float32(1.5))
        return advance(second, state, params, jnp.float32(1.5))

    program: Any = jax.jit(advance)

    def step(gradient, state, params, value=1.5):
        return program(gradient, state, params, jnp.float32(value))

    start = transform.init(params)
    buffers = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(start) if leaf.size]
    assert len(set(buffers)) == len(buffers), "arrays of the first state share memory and could not be donated"
    _, state = step(grads[0], start, params)
    updates, state = step(grads[1], state, params)
    assert _kinds(state) == _kinds(start), f"the state changed from {_kinds(start)} to {_kinds(state)}"
    assert _kinds(updates) == _kinds(grads[1]), f"updates are not like gradients: {_kinds(updates)}"
    if without_params:
        jax.eval_shape(lambda gradient, state: advance(gradient, state, None, jnp.float32(1.5)), grads[0], start)

    zero = jax.tree.map(jnp.zeros_like, params)
    still, _ = step(zero, start, params)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(still)), "gradients of zero move parameters"
    assert _finite(step(zero, state, params)), "gradients of zero make updates or a state that are not finite"
    broken, _ = step(jax.tree.map(lambda leaf: leaf * jnp.nan, grads[0]), start, params)
    assert all(np.any(np.isnan(leaf)) for leaf in jax.tree.leaves(broken)), "NaN gradients make updates without NaN"
    huge = jax.tree.map(lambda leaf: 1e20 * leaf, grads[0])
    level = jax.tree.map(lambda leaf: jnp.full_like(leaf, -1e20), params)
    for sequence in ((grads[0], huge, *grads), (level,) * 3):
        after = start
        for gradient in sequence:
            moved, after = step(gradient, after, params, 1.5 if gradient is grads[0] else 1e20)
            assert _finite((moved, after)), "gradients of 1e20 make updates or a state that are not finite"

    def cast(tree, dtype):
        return jax.tree.map(lambda leaf: leaf.astype(dtype), tree)

    rounded = cast((params, *grads), jnp.bfloat16)
    narrow, narrow_state = jax.jit(two_steps)(*rounded)
    wide, _ = _two_steps(step, transform.init, *cast(rounded, jnp.float32))
    assert {leaf.dtype for leaf in jax.tree.leaves(narrow)} == {jnp.dtype(jnp.bfloat16)}, "updates are not bfloat16"
    dtypes = {leaf.dtype for leaf in jax.tree.leaves(narrow_state) if jnp.issubdtype(leaf.dtype, jnp.floating)}
    assert dtypes <= {jnp.dtype(jnp.float32)}, f"the state of bfloat16 parameters is kept in {dtypes}"
    _close(cast(narrow, jnp.float32), wide, 0.02, 2e-3, "updates in bfloat16")

    members = [(params, *grads), jax.tree.map(lambda leaf: 2 * leaf + 0.1, (params, *grads))]
    together, _ = jax.jit(jax.vmap(two_steps))(*jax.tree.map(lambda *leaves: jnp.stack(leaves), *members))
    for index, member in enumerate(members):
        alone, _ = _two_steps(step, transform.init, *member)
        _close(jax.tree.map(lambda leaf: leaf[index], together), alone, 2e-4, 1e-5, "updates under vmap")  # noqa: B023
    assert program._cache_size() == 1, "a step was compiled more than once"


def _two_steps(step: Any, init: Any, params: PyTree, first: PyTree, second: PyTree) -> tuple[PyTree, PyTree]:
    _, state = step(first, init(params), params)
    return step(second, state, params)


def check_filter(
    make: Callable[[Network, Likelihood], Filter], *, network: Network | None = None, linearized: bool = True
) -> None:
    """A filter keeps the contract of `seqdec.core.Filter`, for Gaussian responses of variance 0.1.

    - A belief keeps structure, shapes and dtypes.
    - `predict` leaves the mean; covariances are symmetric, variances not negative.
    - `update` reports innovation and log density, and reduces the variance of what it observed.
    - Responses and inputs that are not finite, and outputs out of range, are rejected and change nothing.
    - `sample` repeats for equal keys; `marginals` are those of `moments`; `update_batch` of one input is `update`;
      `recenter` moves the mean alone.

    Args:
        make: (network, likelihood) -> filter.
        network: several outputs, an input of one axis; None: a perceptron 3 -> 5 -> 4.
        linearized: the predictive mean must be the response at the mean parameters.
    """
    network = models.network(models.MLP(4, (5,)), jnp.zeros(3)) if network is None else network
    flt, random = make(network, likelihoods.gaussian(0.1)), np.random.default_rng(0)
    example: Any = network.example
    x = jnp.asarray(random.normal(size=np.shape(example)), jnp.float32)
    start = jax.jit(flt.init)(jax.random.key(1), network.init(jax.random.key(0)))
    update: Any = jax.jit(lambda belief, x, y, arm: flt.update(belief, x, y, arm))

    @jax.jit
    def look(belief, x, key):
        mean = flt.mean(belief)
        marginals = None if flt.marginals is None else flt.marginals(belief)(x)
        return (
            flt.predict(belief),
            flt.moments(belief, x),
            marginals,
            mean,
            flt.response(mean, x),
            flt.sample(key, belief),
        )

    belief, key = start, jax.random.key(2)
    for y, arm in ((0.3, 1), (-1.0, 0), (0.5, 1)):
        prior, *_, mean, _, _ = look(belief, x, key)
        _, before, _, predicted, _, _ = look(prior, x, key)
        _close(predicted, mean, 0, 0, "the mean after predict")
        belief, info = update(prior, x, jnp.float32(y), arm)
        assert _kinds(belief) == _kinds(start), f"the belief changed from {_kinds(start)} to {_kinds(belief)}"
        assert not info.rejected, f"the observation {y} of output {arm} was rejected"
        variance = before.cov[arm, arm] + before.noise[arm, arm]
        _close(info.innovation, y - before.mean[arm], 1e-4, 1e-5, "the innovation")
        density = -0.5 * ((y - before.mean[arm]) ** 2 / variance + np.log(2 * np.pi * variance))
        _close(info.log_density, density, 1e-3, 1e-4, "the log density")
        _, after, marginals, mean, response, one = look(belief, x, key)
        assert after.cov[arm, arm] < before.cov[arm, arm], "what was observed is no more certain than before"
        _close(after.cov, after.cov.mT, 1e-4, 1e-6, "the transpose of a covariance")
        assert np.all(np.linalg.eigvalsh(after.cov) > -1e-5 * np.trace(after.cov)), "a variance is negative"
    if linearized:
        _close(response, after.mean, 1e-4, 1e-6, "the response at the mean")
    assert _kinds(one) == _kinds(mean), "a sample is not like the parameters"
    *_, again = look(belief, x, key)
    *_, other = look(belief, x, jax.random.key(3))
    _close(one, again, 0, 0, "samples of one key")
    assert any(np.any(a != b) for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True)), "samples are equal"
    if marginals is not None:
        _close(marginals, (after.mean, np.diag(after.cov), np.diag(after.noise)), 1e-3, 1e-5, "the marginals")

    for where, (point, y, arm) in {
        "a response of NaN": (x, np.nan, 1),
        "an infinite response": (x, np.inf, 1),
        "an input of NaN": (jnp.asarray(np.where(np.arange(x.size) == 0, np.nan, x), x.dtype), 0.5, 1),
        "an index that no output has": (x, 0.5, len(after.mean)),
    }.items():
        same, info = update(belief, point, jnp.float32(y), arm)
        assert info.rejected, f"{where} was not rejected"
        _, still, *_ = look(same, x, key)
        _close(still, after, 1e-4, 1e-6, f"the predictive after {where}")
    assert update._cache_size() == 1, "a step was compiled more than once"

    every, info = jax.jit(flt.update)(belief, x, jnp.ones_like(after.mean))
    _close(info.innovation, 1 - after.mean, 1e-4, 1e-5, "the innovation of all outputs")
    assert _finite(every) and not info.rejected, "an observation of all outputs was rejected"
    if flt.update_batch is not None:
        several, _ = jax.jit(flt.update_batch)(belief, x[None], jnp.array([0.7]), jnp.array([1]))
        single, _ = update(belief, x, jnp.float32(0.7), 1)
        _close(flt.mean(several), flt.mean(single), 1e-3, 1e-5, "the mean after update_batch of one input")
    if flt.recenter is not None:
        _close(flt.mean(flt.recenter(belief, one)), one, 0, 0, "the mean after recenter")


def check_agent(make: Callable[[Spaces], Agent], *, spaces: HasSpaces | None = None, learns: bool = True) -> None:
    """An agent keeps the contract of `seqdec.core.Agent`.

    - The state keeps structure, shapes and dtypes, and stays finite.
    - Only allowed actions are played, also in a context of NaN; their propensities, in (0, 1], of points of a Box of
      floats densities, are those by which they are drawn.
    - Rewards and contexts that are not finite, and actions out of range, are rejected: `state.params`, or a state
      without, is unchanged.
    - The responses of all Discrete actions may replace a reward.
    - `act_batch` is `jax.vmap` of `act`; `update_batch` of one reward is `update`, and ignores NaN; `assess` has a
      number for each action.

    Args:
        make: (spaces) -> agent.
        spaces: None: four numbers and three Discrete actions.
        learns: False: the agent rejects nothing.
    """
    site = Spaces(Box(-1, 1, (4,), np.float32), Discrete(3)) if spaces is None else Spaces(*spaces_of(spaces))
    agent, actions = make(site), site.action_space
    count = int(actions.n) if isinstance(actions, Discrete) else 0
    seen = _observed(site.observation_space, _STEPS)
    context = jax.tree.map(lambda leaf: leaf[0], seen)
    masks = np.array([[count == 1 or arm != step % count for arm in range(count)] for step in range(_STEPS)])
    start = jax.eval_shape(agent.init, jax.random.key(0))
    # What is learned for good; then lessons from the same state: right ones, and wrong ones.
    rows = [_Lesson(step, step, 0.2 + 0.1 * step) for step in range(_STEPS)]
    rows += [_Lesson(step, step, 0.7) for step in range(_STEPS)]
    rows += [_Lesson(0, 0, wrong) for wrong in (np.nan, np.inf, -np.inf)]
    rows += [_Lesson(0, 0, 0.7, wrong) for wrong in (-1, count) if count]
    broken = _broken(context)
    if broken is not None:
        rows.append(_Lesson(_STEPS, 0, 0.7))
        seen = jax.tree.map(lambda leaf, lost: jnp.concatenate([leaf, lost[None]]), seen, broken)
    known, end = 2 * _STEPS, len(rows)
    rows += [_Lesson(0, 0, 0.7)] * (_DRAWS if count else 0)  # how often each action is played
    which, allowed, rewards, other = map(np.array, zip(*rows, strict=True))
    shown = jax.tree.map(lambda leaf: leaf[which], seen)
    shown = Masked(shown, jnp.asarray(masks[allowed])) if count else shown
    lessons = shown, jnp.asarray(other), jnp.asarray(rewards, float), jnp.arange(len(rows)) < _STEPS
    keys = jax.random.split(jax.random.key(1), len(rows))

    def live(keys, lessons, context):

        def step(known, at):
            state, one = known
            number, key, (observation, other, reward, kept) = at
            action = agent.act(key, state, observation)
            played = (
                jnp.where(other == _PLAYED, action.value, other.astype(action.value.dtype)) if count else action.value
            )
            fresh, info = agent.update(state, observation, played, reward)
            one = _choose(number == _STEPS, _learned(fresh), one)
            same = _unchanged(_learned(fresh), _learned(state))
            return (_choose(kept, fresh, state), one), (action, info.rejected, same)

        first, numbers = agent.init(keys[0]), jnp.arange(len(keys))
        (state, one), (played, rejected, same) = jax.lax.scan(step, (first, _learned(first)), (numbers, keys, lessons))
        found: dict[str, Any] = {"state": state, "played": played, "rejected": rejected, "same": same, "one": one}
        if count:
            found["full"] = agent.update(state, context, jnp.int32(0), jnp.linspace(0.0, 1.0, count))
        again = jax.tree.map(lambda leaf: leaf[_STEPS : 2 * _STEPS], (keys, lessons[0]))
        if agent.act_batch is not None:
            found["together"] = agent.act_batch(again[0], state, again[1])
        if agent.update_batch is not None:
            rewards = jnp.where(jnp.arange(_STEPS) == 0, 0.7, jnp.nan)
            found["several"] = agent.update_batch(state, again[1], played.value[_STEPS : 2 * _STEPS], rewards)
        if agent.assess is not None:
            found["assessed"] = agent.assess(keys[0], state, context)
        return found

    found: Any = jax.device_get(jax.jit(live)(keys, lessons, context))
    state, played, rejected, same = found["state"], found["played"], found["rejected"], found["same"]
    assert _kinds(state) == _kinds(start), f"the state changed from {_kinds(start)} to {_kinds(state)}"
    assert _finite(state), "the state is not finite after finite rewards"
    assert rejected.dtype == bool and rejected.ndim == 1, f"rejected is {rejected.dtype} of shape {rejected.shape[1:]}"
    assert not rejected[:known].any(), "a finite reward is rejected"
    assert not count or masks[allowed, played.value].all(), "an action that is not allowed is played"
    _check_actions(actions, jax.tree.map(lambda leaf: leaf[:known], played))
    assert broken is None or not np.isfinite(played.propensity[end - 1]), "a context of NaN has a propensity"
    if learns:
        assert not same[_STEPS], "a reward teaches nothing"
        for row in range(known, end):
            assert rejected[row] and same[row], f"{rows[row]}: what is not finite or out of range is learned"
        if count:
            assert not found["full"][1].rejected and _finite(found["full"][0]), (
                "the responses of all actions are rejected"
            )
    if count:
        _check_frequencies(jax.tree.map(lambda leaf: leaf[end:], played), count)
    if agent.act_batch is not None:
        each, together = jax.tree.map(lambda leaf: leaf[_STEPS:known], played), found["together"]
        assert np.array_equal(each.value, together.value), "act_batch chooses other actions than act"
        _close(together.propensity, each.propensity, 0, 1e-3, "propensities of act_batch")
    if agent.update_batch is not None:
        fresh, info = found["several"]
        assert info.rejected.tolist() == [False] + [True] * (_STEPS - 1), "update_batch rejects other rewards than NaN"
        _close(_learned(fresh), found["one"], 1e-3, 1e-4, "what update_batch learns of one reward")
    for part in found.get("assessed", ()):
        assert np.shape(part) == (count,), f"assess has shape {np.shape(part)} for {count} actions"


_STEPS, _DRAWS, _PLAYED = 6, 2000, -2


class _Lesson(NamedTuple):
    context: int
    mask: int
    reward: float
    action: int = _PLAYED
    """or another than the one played"""


def _observed(space: gymnasium.Space, count: int) -> PyTree:
    """Observations (count, ...), in JAX's dtypes."""
    space.seed(0)
    drawn = [space.sample() for _ in range(count)]
    if isinstance(space, Dict):
        return {name: jnp.asarray(np.stack([one[name] for one in drawn])) for name in space}
    array = np.stack(drawn)
    return jnp.asarray(np.clip(array, -(2**30), 2**30) if array.dtype == np.int64 else array)


def _broken(context: PyTree) -> PyTree | None:
    """The context with NaN in its floats, if any."""
    leaves, tree = jax.tree.flatten(context)
    floats = [jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.size > 0 for leaf in leaves]
    if not any(floats):
        return None
    return tree.unflatten([leaf * jnp.nan if known else leaf for leaf, known in zip(leaves, floats, strict=True)])


def _learned(state: Any) -> Any:
    return getattr(state, "params", state)


def _choose(condition: jax.Array, new: PyTree, old: PyTree) -> PyTree:
    return jax.tree.map(lambda *pair: jnp.where(condition, *pair), new, old)


def _unchanged(new: PyTree, old: PyTree) -> jax.Array:
    """() bool: all leaves are equal, NaN to NaN."""
    pairs = zip(jax.tree.leaves(new), jax.tree.leaves(old), strict=True)
    return jnp.all(jnp.array([jnp.all((a == b) | ((a != a) & (b != b))) for a, b in pairs]))


def _check_actions(space: gymnasium.Space, found: Action) -> None:
    values, propensity = np.asarray(found.value), np.asarray(found.propensity)
    if isinstance(space, Discrete):
        assert values.dtype.kind in "iu" and np.all((values >= 0) & (values < space.n)), f"actions {values} of {space}"
    else:
        assert all(space.contains(np.asarray(value, space.dtype)) for value in values), f"{values} are not in {space}"
    known = ~np.isnan(propensity)
    most = 1 + 1e-6 if isinstance(space, Discrete) or np.issubdtype(space.dtype, np.integer) else np.inf
    assert np.all((propensity[known] > 0) & (propensity[known] <= most)), f"propensities {propensity}"
    if found.probabilities is not None:
        every = np.asarray(found.probabilities)
        _close(every.sum(1), np.ones(len(every)), 1e-4, 1e-4, "the sum of probabilities")
        _close(every[np.arange(len(every)), values], propensity, 1e-5, 1e-6, "the propensity among the probabilities")


def _check_frequencies(found: Action, count: int) -> None:
    is_played = np.asarray(found.value)[:, None] == np.arange(count)
    if found.probabilities is not None:
        _check_law(is_played, np.asarray(found.probabilities))
        return
    weights = is_played / np.asarray(found.propensity, float)[:, None]
    spread = 6 * weights.std(0) / len(weights) ** 0.5 + 1e-3
    fits = np.abs(weights.mean(0) - 1) <= spread
    assert np.all(fits | ~is_played.any(0) | np.isnan(weights).any()), f"mean weights {weights.mean(0)}, not 1"


def check_policy(make: Callable[[], Acquisition], *, draws: int = 4000) -> None:
    """A policy keeps the contract of `seqdec.core.Acquisition`, over the Gaussian posterior of four candidates.

    - Scores are finite for allowed candidates, -inf for others, equal for equal keys.
    - Probabilities, if known, sum to one, zero for candidates not allowed; actions are drawn by them, and nearly as
      often as their score is the largest.
    - No more than `needs` is asked of the posterior.

    Args:
        make: () -> acquisition.
        draws: keys for the frequencies.
    """
    policy, mask = make(), np.array([True, False, True, True])
    mean = jnp.array([0.3, 0.5, 0.1, 0.45])
    root = jnp.array([[0.6, 0.4, -0.1, 0.2], [0, 0.3, 0.2, 0.1], [0, 0, 0.5, -0.3], [0, 0, 0, 0.2]])
    asked: list[str] = []

    def answered(name, answer):
        return lambda *arguments: (asked.append(name), answer(*arguments))[1]

    def draw(key):
        sample = mean + jax.random.normal(key, mean.shape) @ root
        return lambda candidates: sample

    joint = Predictive(mean, root.T @ root, jnp.diag(jnp.array([0.04, 0.09, 0.01, 0.16])))
    known = Posterior(answered("mean", lambda _: mean), answered("joint", lambda _: joint), answered("draw", draw))
    keys = jax.random.split(jax.random.key(0), draws)

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, None))
    def acted(key, given):
        return policy.score(key, known, None, given), *played(policy, key, known, None, given)

    for allowed in (np.ones(4, bool), mask, np.arange(4) == 2):
        given = None if allowed.all() else jnp.asarray(allowed)
        scores, index, every = jax.device_get(acted(keys, given))
        assert scores.shape == (draws, 4), f"scores of four candidates have shape {scores.shape[1:]}"
        assert np.all(np.isfinite(scores[:, allowed])), "the score of an allowed candidate is not finite"
        assert np.all(scores[:, ~allowed] == -np.inf), "the score of a candidate that is not allowed is not -inf"
        same = policy.score(keys[0], known, None, given)
        _close(jnp.where(allowed, same, 0), np.where(allowed, scores[0], 0), 1e-4, 1e-5, "scores of one key")
        assert allowed[index].all(), "a candidate that is not allowed is played"
        if every is None:
            continue
        _close(every.sum(1), np.ones(draws), 1e-4, 1e-4, "the sum of probabilities")
        assert np.all(every >= 0) and not np.any(every[:, ~allowed]), f"probabilities {every[0]}, allowed is {allowed}"
        _check_law(np.eye(4)[index], every)
        largest, law = np.bincount(scores.argmax(1), minlength=4) / draws, every.mean(0)
        assert np.all(np.abs(law - largest) <= 6 * np.sqrt(law * (1 - law) / draws) + 0.01), (
            f"probabilities are {law}, the frequencies of the largest score {largest}"
        )
    dearest = max(asked, key=("mean", "joint", "draw").index)
    assert dearest == policy.needs, f"needs is {policy.needs!r}, but it asked for {dearest!r}"


def _check_law(is_played: np.ndarray, every: np.ndarray) -> None:
    """Whether actions (n, k), one in each row, were drawn by probabilities (n, k)."""
    error = (is_played - every.astype(float)).sum(0)
    spread = 6 * np.sqrt((every * (1 - every.astype(float))).clip(0).sum(0)) + 1e-3
    assert np.all(np.abs(error) <= spread), f"played {is_played.sum(0)} times, by probabilities {every.sum(0)} times"


def check_surrogate(make: Callable[[int], Any]) -> None:
    """A surrogate keeps the contract of `seqdec.bo.Surrogate`.

    It learns a function of two columns from twelve responses, not from further rows; moments and draws are finite and
    of its dtype; `fit` or `condition_on` learns appended responses; states keep their structure.

    Args:
        make: (columns) -> surrogate.
    """
    surrogate = make(2)
    generator = np.random.default_rng(0)
    points = generator.random((12, 2))
    values = np.sin(5 * points[:, 0]) + points[:, 1]
    values = (values - values.mean()) / values.std()
    dtype = np.dtype(surrogate.dtype)

    def history(count: int, rest: float = 1e3) -> Any:
        from seqdec.bo import History

        x, y = np.full((16, 2), 0.123), np.full(16, rest)
        x[:count], y[:count] = points[:count], values[:count]
        return History(x.astype(dtype), y.astype(dtype), np.int32(count))

    def moments(state: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        at = surrogate.posterior(state)
        joint, drawn = at.joint(jnp.asarray(points, dtype)), at.draw(jax.random.key(1))(jnp.asarray(points, dtype))
        assert joint.mean.dtype == joint.cov.dtype == drawn.dtype == dtype, "moments and draws have the dtype"
        mean = at.mean(jnp.asarray(points, dtype))
        np.testing.assert_allclose(mean, joint.mean, rtol=1e-3, atol=1e-3, err_msg="mean is that of joint")
        return np.asarray(joint.mean), np.diagonal(joint.cov), np.asarray(drawn)

    with jax.enable_x64(True):
        assert surrogate.growth >= 1, "growth is at least 1"
        key, known = jax.random.key(0), history(12)
        state = surrogate.fit(surrogate.init(key, known), known)
        mean, variances, drawn = moments(state)
        share = np.mean((mean - values) ** 2) / values.var()
        assert share < 0.5, f"it learns a function: the mean square error is {share:.2g} of the variance, not below .5"
        assert np.isfinite(drawn).all() and (variances > 0).all(), "draws are finite and variances positive"
        other = moments(surrogate.fit(surrogate.init(key, known), history(12, rest=-7.0)))
        for one, two in zip((mean, variances, drawn), other, strict=True):
            np.testing.assert_array_equal(one, two, "rows beyond the history are not read")
        first = surrogate.fit(surrogate.init(key, known), history(9))
        pending = moments(surrogate.condition_on(first, known))
        assert np.isfinite(pending[0]).all(), "appended responses are learned with equal hyperparameters"
        assert not np.array_equal(pending[0], moments(first)[0]), "appended responses change the belief"
        assert np.isfinite(moments(surrogate.averaged(state, known, 8))[0]).all(), "the average is a belief"
        stored = surrogate.stored(state)
        assert jax.tree.structure(stored) == jax.tree.structure(state), "what is stored has the structure of the state"
        if surrogate.noise_variance is not None:
            assert float(surrogate.noise_variance(state)) >= 0, "the noise has a variance"


ROWS = 60
"""Of the logs on which estimators are tried."""


def check_estimator(make: Callable[[], Estimator]) -> None:
    """An estimator keeps its contract on a log of 60 rows.

    Terms are finite, one for each row, equal when computed again, and leave the evidence as it was. What is not among
    `needs` makes no difference.

    Args:
        make: () -> estimator; arrays among its settings fit 60 rows, three actions.
    """
    estimator = make()
    assert isinstance(estimator, Estimator), f"{estimator!r} must be a seqdec.ope.Estimator"
    name, given = estimator.name, _evidence(estimator.log)
    assert make().name == name, f"{name}: equal settings must give equal names"
    before = _arrays(given)
    terms = estimator.terms(given)
    for part in terms:
        assert isinstance(part, np.ndarray) and len(part) == ROWS, f"{name}: terms must have one row for each row"
        assert np.isfinite(part).all(), f"{name}: terms must be finite where the log supports the policy"
    assert terms.numerator.shape == terms.denominator.shape, f"{name}: numerators and denominators must have one shape"
    found = (terms.value, terms.std_error)
    assert np.isfinite(found).all(), f"{name}: the estimate and its standard error must be finite"
    assert _same(terms, estimator.terms(given)), f"{name}: terms must be a function of the evidence: use its seed"
    assert all(map(np.array_equal, before, _arrays(given))), f"{name}: terms must not change the evidence"
    for other in estimator.references(given):
        assert isinstance(other, Estimator) and other.name != name, f"{name}: references must be other estimators"
    if isinstance(given, Evidence):
        _check_needs(estimator, given, terms)


def _check_needs(estimator: Estimator, given: Evidence, terms: Terms) -> None:
    name, nothing = estimator.name, given.target._replace(probabilities=np.zeros((0, 3)))
    batches = given._replace(
        log=given.log.replace(context=np.zeros((ROWS, 0)), action_features=None, logging=None),
        target=nothing,
        predicted=None if given.predicted is None else nothing.probabilities,
    )
    if "contexts" not in estimator.needs:
        assert _same(terms, estimator.terms(batches)), f'{name}: terms use what only "contexts" among its needs gives'
    if "predicted" not in estimator.needs:
        unknown = np.full(ROWS, np.nan)
        without = estimator.terms(given._replace(predicted=None, direct=unknown, residual=unknown))
        assert np.isfinite(without.value), f'{name}: terms use predictions, so that it needs "predicted"'


def _evidence(kind: type) -> Any:
    rng = np.random.default_rng(0)
    if kind is ContinuousLog:
        log = ope.make_continuous_log(action=rng.normal(size=ROWS), reward=rng.random(ROWS), density=np.full(ROWS, 0.3))
        return ope.evidence(log, rng.normal(size=ROWS), rng.random(ROWS), seed=0)
    policy = rng.dirichlet(np.ones(3), (ROWS, 2))
    if kind is SlateLog:
        action, reward = rng.integers(0, 3, (ROWS, 2)), rng.random((ROWS, 2))
        log = ope.make_slate_log(action=action, reward=reward, propensity=np.full((ROWS, 2), 1 / 3))
        return ope.evidence(log, policy, rng.random((ROWS, 2, 3)), seed=0)
    if kind is EpisodeLog:
        member = np.repeat(np.arange(ROWS), 1 + np.arange(ROWS) % 3)
        decisions: dict[str, Any] = {"action": rng.integers(0, 3, len(member)), "reward": rng.random(len(member))}
        steps = ope.make_log(**decisions, propensity=np.full(len(member), 1 / 3), num_actions=3)
        law = rng.dirichlet(np.ones(3), len(member))
        return ope.evidence(EpisodeLog(steps, member), law, rng.random(law.shape), seed=0)
    assert kind is Log, f"an estimator is for a Log, SlateLog, ContinuousLog or EpisodeLog; got {kind}"
    action = np.arange(ROWS) % 3
    log = ope.make_log(
        action=action,
        reward=rng.random(ROWS),
        propensity=np.full(ROWS, 1 / 3),
        context=rng.normal(size=(ROWS, 2)),
        action_features=np.eye(3),
    )
    return ope.evidence(log, policy[:, 0], rng.random((ROWS, 3)), seed=0)


def _arrays(evidence: Any) -> list[np.ndarray]:
    parts = [*evidence, *vars(evidence.log).values(), *(getattr(evidence, "target", None) or ())]
    return [part.copy() for part in parts if isinstance(part, np.ndarray)]


def _same(one: Terms, other: Terms) -> bool:
    return all(np.array_equal(left, right) for left, right in zip(one, other, strict=True))


def _kinds(tree: PyTree) -> Any:
    return jax.tree.structure(tree), [(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in jax.tree.leaves(tree)]


def _finite(tree: PyTree) -> bool:
    floats = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in floats)


def _close(found: PyTree, wanted: PyTree, rtol: float, atol: float, what: str) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=rtol, atol=atol, err_msg=what)
