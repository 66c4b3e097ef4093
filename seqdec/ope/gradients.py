"""Policies learned from a log by gradients.

With w = pi(a | x) / propensity, rewards r and predicted rewards q, all less the mean and divided by the deviation of
the rewards learned from, `learn` maximizes

    ips     mean(w r)
    snips   sum(w r) / sum(w)
    dr      mean(w (r - q(x, a)) + sum_b pi(b | x) q(x, b))
    dm      mean(sum_b pi(b | x) q(x, b))

less `pessimism` standard errors, less `regularization` times the divergence of pi from the logging policy, over a
network f, pi(. | x) = softmax(f(x)) over the allowed actions.

References:
    Dudik, Langford, Li, "Doubly robust policy evaluation and learning", 2011;
    Swaminathan, Joachims, "Counterfactual risk minimization", 2015 (standard errors);
    Swaminathan, Joachims, "The self-normalized estimator for counterfactual learning", 2015;
    Joachims, Swaminathan, de Rijke, "Deep learning with logged bandit feedback", 2018 (baselines).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from seqdec.boundary import checks
from seqdec.core import Agent, Array, HasSpaces, Network, PyTree
from seqdec.models import MLP, network, of, per_candidate
from seqdec.modules import Model
from seqdec.ope.contract import check_predicted
from seqdec.ope.learned import fixed, spaces_for, standardized_inputs
from seqdec.ope.log import Log, inputs
from seqdec.ope.rewards import predict_rewards

OBJECTIVES: dict[str, Callable[[Array, Array, Array, Array], tuple[Array, Array]]] = {
    "ips": lambda w, reward, own, direct: (w * reward, jnp.ones_like(w)),
    "snips": lambda w, reward, own, direct: (w * reward, w),
    "dr": lambda w, reward, own, direct: (w * (reward - own) + direct, jnp.ones_like(w)),
    "dm": lambda w, reward, own, direct: (direct, jnp.ones_like(w)),
}
"""(weights, rewards, predictions of the logged actions, expected predictions), all (n,) -> numerators and denominators
(n,) of an estimate, as in `Terms`"""
MODELED = ("dr", "dm")


class _Rows(NamedTuple):
    x: Any
    mask: Any
    action: Any
    reward: Any
    propensity: Any
    predicted: Any


def learn(
    log: Log,
    *,
    seed: int,
    objective: str = "dr",
    pessimism: float = 0.0,
    regularization: float = 0.0,
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

    A constant added to all rewards, or their unit, changes nothing. Inputs are standardized. Parameters are the best
    epoch's, by the same objective on held-out rows.

    Args:
        log: with propensities, except for "dm", and at least as many rows as actions.
        seed: seed for initial parameters, held-out rows, minibatches and folds of the reward model.
        objective: one of `OBJECTIVES`.
        pessimism: >= 0, number of standard errors of the estimate, with all rows learned from, to subtract.
        regularization: >= 0, factor of the subtracted mean of log(propensity / pi(a | x)), which keeps pi close to the
            logging policy; in standard deviations of the rewards. For L2, use optax.adamw.
        model: flax module or `seqdec.models.Network` from an observation to (k,) scores; None: an MLP with 50 hidden
            units and a linear path, of each action's row if actions have features.
        optimizer: an optax transformation; None: Adam with learning rate 0.003.
        predicted: (n, k) for "dr" and "dm"; None: `predict_rewards`.
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
    checks.choice("objective", objective, OBJECTIVES)
    own = spaces_for("learn", log, spaces, epsilon, weighted=objective != "dm")
    checks.number("pessimism", pessimism, 0)
    checks.number("regularization", regularization, 0)
    if predicted is not None and objective not in MODELED:
        raise ValueError(f"predicted has no effect with objective={objective!r}: leave it out")
    ascent = ascent_of(len(log), seed, optimizer, held_out, batch_size, max_epochs, patience)
    scaled, center, scale = standardized_inputs(inputs(log), own)
    net = network_of(model, scaled[0], log.num_actions, by_row=log.action_features is not None)
    middle, spread = log.reward[ascent.learned].mean(), log.reward[ascent.learned].std() or 1.0
    if objective not in MODELED:
        q = np.full(log.mask.shape, middle)
    elif predicted is None:
        q = predict_rewards(log, seed=seed, folds=min(5, len(log)))
    else:
        q = check_predicted(log, predicted)
    reward, q = (log.reward - middle) / spread, np.where(log.mask, q - middle, 0.0) / spread
    whole = _Rows(scaled, log.mask, log.action, *(part.astype(np.float32) for part in (reward, log.propensity, q)))
    count, goal = len(ascent.learned), OBJECTIVES[objective]

    def value(params: PyTree, rows: _Rows) -> Array:
        scores = jax.vmap(net.apply, (None, 0))(params, rows.x)
        log_law = jax.nn.log_softmax(jnp.where(rows.mask, scores, -jnp.inf))
        law, at = jnp.exp(log_law), (jnp.arange(len(rows.action)), rows.action)
        direct = jnp.sum(law * rows.predicted, axis=1)
        above, below = goal(law[at] / rows.propensity, rows.reward, rows.predicted[at], direct)
        found = jnp.sum(above) / jnp.sum(below)
        if pessimism:
            influence = (above - found * below) / jnp.mean(below)
            found -= pessimism * jnp.sqrt((jnp.mean(influence**2) + 1e-12) / count)
        return found + regularization * jnp.mean(log_law[at]) if regularization else found

    best = maximize(value, net, whole, ascent)
    center, scale = jnp.asarray(center), jnp.asarray(scale)
    settings = {
        "objective": objective,
        "pessimism": float(pessimism),
        "regularization": float(regularization),
        "rows": len(log),
        "seed": ascent.seed,
        "epsilon": float(epsilon),
    }
    return fixed(lambda x: net.apply(best, (x - center) / scale), own, settings, log, greedy=False)


class Ascent(NamedTuple):
    """Settings of `maximize`."""

    seed: int
    held_out: np.ndarray
    """rows by which the epoch is chosen"""
    learned: np.ndarray
    """rows of the gradients"""
    generator: np.random.Generator
    """of minibatches"""
    optimizer: optax.GradientTransformation
    batch_size: int
    max_epochs: int
    patience: int


def ascent_of(
    count: int, seed: int, optimizer: Any, held_out: float, batch_size: int, max_epochs: int, patience: int
) -> Ascent:
    """Checked settings for `count` rows, of which a random share is held out."""
    seed = checks.seed("seed", seed)
    checks.number("held_out", held_out, 0, 1, exclusive=True)
    batch_size, max_epochs = checks.count("batch_size", batch_size), checks.count("max_epochs", max_epochs)
    patience = checks.count("patience", patience)
    if optimizer is None:
        optimizer = optax.adam(0.003)
    if not callable(getattr(optimizer, "init", None)) or not callable(getattr(optimizer, "update", None)):
        raise TypeError(f"optimizer must be one of optax, such as optax.adam(0.003); got {optimizer!r:.80}")
    generator = np.random.default_rng(seed)
    order = generator.permutation(count)
    valid, train = np.split(order, [min(max(1, round(held_out * count)), count - 1)])
    return Ascent(seed, valid, train, generator, optimizer, batch_size, max_epochs, patience)


def maximize(value: Callable[[PyTree, Any], Array], net: Network, whole: PyTree, ascent: Ascent) -> PyTree:
    """Parameters of the epoch with the largest value(parameters, rows) of the held-out rows, of arrays of all rows.

    Raises ValueError for a value that is not finite.
    """
    valid, train = (
        jax.tree.map(lambda part, at=at: jnp.asarray(part[at]), whole) for at in (ascent.held_out, ascent.learned)
    )

    def step(carry: Any, at: Array) -> Any:
        params, state = carry
        slope = jax.grad(lambda params: -value(params, jax.tree.map(lambda part: part[at], train)))(params)
        change, state = ascent.optimizer.update(slope, state, params)
        return (optax.apply_updates(params, change), state), None

    @jax.jit
    def epoch(params: PyTree, state: PyTree, batches: Array) -> Any:
        (params, state), _ = jax.lax.scan(step, (params, state), batches)
        return params, state, value(params, valid)

    params = net.init(jax.random.key(checks.seed_bits(ascent.seed)))
    state, best, top, since = ascent.optimizer.init(params), params, -np.inf, 0
    count = len(ascent.learned)
    batch = min(ascent.batch_size, count)
    for _ in range(ascent.max_epochs):
        batches = ascent.generator.permutation(count)[: count // batch * batch].reshape(-1, batch)
        params, state, found = epoch(params, state, jnp.asarray(batches))
        if not np.isfinite(found):
            raise ValueError(f"the objective of the held-out rows became {found}: take a smaller learning rate")
        best, top, since = (params, float(found), 0) if found > top else (best, top, since + 1)
        if since == ascent.patience:
            break
    return best


def network_of(model: Any, example: np.ndarray, size: int, *, by_row: bool = False) -> Network:
    """The network of a model or the default one, from an observation like `example` to (size,) numbers."""
    if model is None and by_row and example.ndim == 2:
        return per_candidate(network(MLP(1, (50,), skip=True), example[0]))
    if model is None:
        model = MLP(size, (50,), skip=True)
    net = of(model, example)
    found = jax.eval_shape(lambda: net.apply(net.init(jax.random.key(0)), jnp.asarray(example))).shape
    if found != (size,):
        raise ValueError(f"the model's output has shape {found}; it must be ({size},), one number per action")
    return net
