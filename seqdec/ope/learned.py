"""Policies learned from a log.

With w = pi(a | x) / propensity, rewards r and predicted rewards q, `learn` maximizes

    ips     mean(w r)
    snips   sum(w r) / sum(w)
    dr      mean(w (r - q(x, a)) + sum_b pi(b | x) q(x, b))

over a network f, pi(. | x) = softmax(f(x)) over the allowed actions (Dudik, Langford and Li, 2011; Swaminathan and
Joachims, 2015). `learn_by_classification`: Zhang et al., 2012.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from gymnasium import spaces as gym_spaces

from seqdec.boundary import checks
from seqdec.boundary.spaces import check_context, check_feedback, moderate, spaces_of
from seqdec.core import Action, Agent, Array, Assessment, HasSpaces, Key, Masked, Network, PyTree, Spaces
from seqdec.models import MLP, network, of, per_candidate
from seqdec.modules import Model
from seqdec.ope.contract import check_predicted
from seqdec.ope.log import Log, check_log, inputs
from seqdec.ope.rewards import predict_rewards, unfitted

OBJECTIVES: dict[str, Callable[[Array, Array, Array, Array], Array]] = {
    "ips": lambda w, reward, own, direct: jnp.mean(w * reward),
    "snips": lambda w, reward, own, direct: jnp.sum(w * reward) / jnp.sum(w),
    "dr": lambda w, reward, own, direct: jnp.mean(w * (reward - own) + direct),
}
"""(weights, rewards, predictions of the logged actions, expected predictions), all (n,) -> value ()"""


class _Rows(NamedTuple):
    x: Any
    mask: Any
    action: Any
    reward: Any
    propensity: Any
    predicted: Any


class Info(NamedTuple):
    """Of an update, which changes nothing."""

    rejected: Array
    """() bool, always False"""


def learn(
    log: Log,
    *,
    seed: int,
    objective: str = "dr",
    model: Model | None = None,
    optimizer: optax.GradientTransformation | None = None,
    predicted: np.ndarray | None = None,
    spaces: HasSpaces | None = None,
    epsilon: float = 0.0,
    held_out: float = 0.2,
    batch_size: int = 64,
    max_epochs: int = 200,
    patience: int = 20,
) -> Agent:
    """A policy that maximizes an estimate of its value: pi(. | x) = (1 - epsilon) softmax(f(x)) + epsilon uniform.

    Inputs are standardized. Parameters are the best epoch's, by the softmax objective on held-out rows.

    Args:
        log: with propensities, and at least as many rows as actions.
        seed: of initial parameters, held-out rows, minibatches and folds of the reward model.
        objective: one of `OBJECTIVES`.
        model: flax module or `seqdec.models.Network` from an observation to (k,) scores; None: an MLP with 50 hidden
            units and a linear path, of each action's row if actions have features.
        optimizer: of optax or its interface; None: Adam with learning rate 0.003.
        predicted: (n, k) for "dr"; None: `predict_rewards`.
        spaces: the agent's observation_space (a Box) and action_space; None: a Box of a row of `seqdec.ope.inputs`.
        epsilon: share of uniform exploration in [0, 1].
        held_out: share of rows in (0, 1).
        batch_size: rows in a step.
        max_epochs: largest number of passes.
        patience: epochs without improvement before stopping.

    Raises:
        TypeError: not a log; a model or optimizer of another kind.
        ValueError: no propensities, too few rows, predictions, spaces or a network that do not fit, a setting out of
            range, or a held-out objective that is not finite.
    """
    own = _spaces_for("learn", log, spaces, epsilon)
    seed = checks.seed("seed", seed)
    checks.choice("objective", objective, OBJECTIVES)
    checks.number("held_out", held_out, 0, 1, exclusive=True)
    batch_size, max_epochs = checks.count("batch_size", batch_size), checks.count("max_epochs", max_epochs)
    patience = checks.count("patience", patience)
    if predicted is not None and objective != "dr":
        raise ValueError(f"predicted has no effect with objective={objective!r}: leave it out")
    if optimizer is None:
        optimizer = optax.adam(0.003)
    if not callable(getattr(optimizer, "init", None)) or not callable(getattr(optimizer, "update", None)):
        raise TypeError(f"optimizer must be one of optax, such as optax.adam(0.003); got {optimizer!r:.80}")
    scaled, center, scale = _standardized(log, own)
    net = _network(model, scaled[0], log)
    if objective != "dr":
        q = np.zeros(log.mask.shape)
    elif predicted is None:
        q = predict_rewards(log, seed=seed, folds=min(5, len(log.action)))
    else:
        q = check_predicted(log, predicted)

    rng = np.random.default_rng(seed)
    order = rng.permutation(len(log.action))
    kept = min(max(1, round(held_out * len(order))), len(order) - 1)
    whole = _Rows(scaled, log.mask, log.action, *(part.astype(np.float32) for part in (log.reward, log.propensity, q)))
    valid, train = (jax.tree.map(lambda part, at=at: jnp.asarray(part[at]), whole) for at in np.split(order, [kept]))
    goal = OBJECTIVES[objective]

    def value(params: PyTree, rows: _Rows) -> Array:
        scores = jax.vmap(net.apply, (None, 0))(params, rows.x)
        law = jax.nn.softmax(jnp.where(rows.mask, scores, -jnp.inf))
        at = jnp.arange(len(rows.action)), rows.action
        return goal(law[at] / rows.propensity, rows.reward, rows.predicted[at], jnp.sum(law * rows.predicted, axis=1))

    def step(carry: Any, at: Array) -> Any:
        params, state = carry
        slope = jax.grad(lambda params: -value(params, jax.tree.map(lambda part: part[at], train)))(params)
        change, state = optimizer.update(slope, state, params)
        return (optax.apply_updates(params, change), state), None

    @jax.jit
    def epoch(params: PyTree, state: PyTree, batches: Array) -> Any:
        (params, state), _ = jax.lax.scan(step, (params, state), batches)
        return params, state, value(params, valid)

    params = net.init(jax.random.key(checks.seed_bits(seed)))
    state, best, top, since = optimizer.init(params), params, -np.inf, 0
    count = len(order) - kept
    batch = min(batch_size, count)
    for _ in range(max_epochs):
        batches = rng.permutation(count)[: count // batch * batch].reshape(-1, batch)
        params, state, found = epoch(params, state, jnp.asarray(batches))
        if not np.isfinite(found):
            raise ValueError(f"the objective of the held-out rows became {found}: take a smaller learning rate")
        best, top, since = (params, float(found), 0) if found > top else (best, top, since + 1)
        if since == patience:
            break
    center, scale = jnp.asarray(center), jnp.asarray(scale)
    settings = {"objective": objective, "rows": len(order), "seed": seed, "epsilon": float(epsilon)}
    return _fixed(lambda x: net.apply(best, (x - center) / scale), own, settings, greedy=False)


def learn_by_classification(
    log: Log, classifier: Any = None, *, spaces: HasSpaces | None = None, epsilon: float = 0.0
) -> Agent:
    """The prediction of a classifier fitted to logged actions with weights reward / propensity.

    The agent plays the most probable allowed action, or with probability epsilon a uniform one. Compiled code calls the
    classifier on the host.

    Args:
        log: with propensities, rewards >= 0, and at least as many rows as actions.
        classifier: unfitted, of scikit-learn, for flat standardized inputs, with `sample_weight`; without
            `predict_proba`, the first allowed action replaces a masked one. None: logistic regression.
        spaces: as in `learn`.
        epsilon: share of uniform exploration in [0, 1].

    Raises:
        TypeError: not a log, or a classifier of another kind.
        ValueError: no propensities or contexts, too few rows, a negative reward, rewards of one action only, spaces
            that do not fit, or epsilon out of range.
    """
    from sklearn.base import is_classifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.utils.validation import has_fit_parameter

    own = _spaces_for("learn_by_classification", log, spaces, epsilon)
    classifier = LogisticRegression(max_iter=1000) if classifier is None else classifier
    if (
        isinstance(classifier, type)
        or not is_classifier(classifier)
        or not has_fit_parameter(classifier, "sample_weight")
    ):
        raise TypeError(
            f"classifier must be one of scikit-learn whose fit takes sample_weight; got {classifier!r:.80}: such as "
            "sklearn.linear_model.LogisticRegression()"
        )
    if log.reward.min() < 0:
        raise ValueError(
            f"rewards are weights here and must be >= 0; got {log.reward.min():g} in row {int(log.reward.argmin())}: "
            "pass log.replace(reward=log.reward - log.reward.min()), or use seqdec.ope.learn"
        )
    scaled, center, scale = _standardized(log, own)
    if not scaled.size:
        raise ValueError("the log has no contexts, by which a classifier could tell actions: use seqdec.ope.learn")
    counted = log.reward > 0
    if len(np.unique(log.action[counted])) < 2:
        raise ValueError(
            "a classifier needs rewards > 0 of two actions at least: log more rows, or use seqdec.ope.learn"
        )
    made, row, size = unfitted(classifier), scaled.shape[1:], log.num_actions
    flat = scaled.reshape(len(scaled), -1)
    made.fit(flat[counted], log.action[counted], sample_weight=(log.reward / log.propensity)[counted])

    def scores(x: Any) -> np.ndarray:
        x = (np.asarray(x) - center) / scale
        several = x.shape[: x.ndim - len(row)]
        x = np.where(np.isfinite(x), x, 0.0).reshape(math.prod(several), -1)  # no decision is based on others
        found = np.zeros((len(x), size), np.float32)
        if hasattr(made, "predict_proba"):
            found[:, made.classes_] = made.predict_proba(x)
        else:
            found[np.arange(len(x)), made.predict(x)] = 1.0
        return found.reshape(*several, size)

    def asked(x: Array) -> Array:
        return jax.pure_callback(scores, jax.ShapeDtypeStruct((size,), jnp.float32), x, vmap_method="expand_dims")

    settings = {"classifier": type(classifier).__name__, "rows": len(log.action), "epsilon": float(epsilon)}
    return _fixed(asked, own, settings, greedy=True)


def _spaces_for(name: str, log: Log, spaces: HasSpaces | None, epsilon: float) -> Spaces:
    check_log(log)
    count, size = log.mask.shape
    if not log.known_propensities:
        raise ValueError(
            f"{name} needs propensities and the log has none: estimate them with seqdec.ope.estimate_propensities"
        )
    if count < max(size, 2):
        raise ValueError(f"a log of {count} rows teaches no choice among {size} actions: it needs {max(size, 2)} rows")
    checks.concrete("epsilon", epsilon)
    if not 0 <= epsilon <= 1:
        raise ValueError(f"epsilon must lie in [0, 1]; got {epsilon}")
    shape = inputs(log[:1]).shape[1:]
    if spaces is None:
        return Spaces(gym_spaces.Box(-np.inf, np.inf, shape, np.float32), gym_spaces.Discrete(size))
    seen, actions = own = spaces_of(spaces)
    if not isinstance(seen, gym_spaces.Box) or not isinstance(actions, gym_spaces.Discrete):
        raise TypeError(f"spaces must have Box observations and Discrete actions; got {seen} and {actions}")
    if math.prod(seen.shape) != math.prod(shape) or actions.n != size:
        raise ValueError(
            f"spaces must have observations of {math.prod(shape)} numbers and {size} actions, as the log; got "
            f"{seen} and {actions}"
        )
    return own


def _standardized(log: Log, own: Spaces) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x = inputs(log).reshape(len(log.action), *(own.observation_space.shape or ()))
    center, scale = x.mean(axis=0), x.std(axis=0)
    scale = np.where(scale > 0, scale, 1).astype(np.float32)
    return (x - center) / scale, center, scale


def _network(model: Any, example: np.ndarray, log: Log) -> Network:
    if model is None and log.action_features is not None and example.ndim == 2:
        return per_candidate(network(MLP(1, (50,), skip=True), example[0]))
    if model is None:
        model = MLP(log.num_actions, (50,), skip=True)
    net = of(model, example)
    found = jax.eval_shape(lambda: net.apply(net.init(jax.random.key(0)), jnp.asarray(example))).shape
    if found != (log.num_actions,):
        raise ValueError(f"the model's output has shape {found}; it must be ({log.num_actions},), one score per action")
    return net


def _fixed(scores: Callable[[Array], Array], own: Spaces, settings: Mapping[str, Any], *, greedy: bool) -> Agent:
    epsilon, size = settings["epsilon"], int(own.action_space.n)  # pyright: ignore[reportAttributeAccessIssue]

    def law(observation: PyTree) -> Array:
        """(k,) probabilities; NaN for an invalid observation."""
        observation = check_context(own, observation)
        x, mask = observation if isinstance(observation, Masked) else (observation, None)
        allowed = jnp.ones(size, bool) if mask is None else jnp.asarray(mask, bool)
        x = jnp.asarray(x, jnp.float32)
        given = jnp.where(allowed, scores(x), -jnp.inf)
        base = jax.nn.one_hot(jnp.argmax(given), size, dtype=given.dtype) if greedy else jax.nn.softmax(given)
        uniform = allowed.astype(given.dtype) / jnp.maximum(jnp.sum(allowed), 1).astype(given.dtype)
        found = (1 - epsilon) * base + epsilon * uniform
        return jnp.where(jnp.all(moderate(x)) & jnp.any(allowed), found, jnp.nan)

    def act(key: Key, state: Any, observation: PyTree) -> Action:
        found = law(observation)
        index = jax.random.categorical(key, jnp.log(found))
        return Action(index, found[index], found)

    def assess(key: Key, state: Any, observation: PyTree) -> Assessment:
        unknown = jnp.full(size, jnp.nan)
        return Assessment(unknown, unknown, law(observation))

    def update(state: Any, observation: PyTree, action: Any, feedback: Any) -> tuple[Any, Info]:
        check_feedback(own, observation, action, feedback)
        return state, Info(jnp.bool_(False))

    start = checks.keyed(lambda key: ())
    return Agent(start, checks.keyed(act), update, "learned", True, settings, spaces=own, assess=checks.keyed(assess))
