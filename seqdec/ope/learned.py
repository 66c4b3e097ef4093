"""Policies learned from a log by gradients of an estimate of their value.

With w = pi(a | x) / propensity, reward r of the logged action a and predicted rewards q, `learn` maximizes

    ips     mean(w r)
    snips   sum(w r) / sum(w)
    dr      mean(w (r - q(x, a)) + sum_b pi(b | x) q(x, b))

over the parameters of a network f, where pi(. | x) = softmax(f(x)) over the allowed actions (Dudik, Langford and Li,
2011; Swaminathan and Joachims, 2015).
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
from seqdec.ope.fixed import fixed_agent, space_for, standardized_inputs
from seqdec.ope.log import Log
from seqdec.ope.rewards import predict_rewards

OBJECTIVES: dict[str, Callable[[Array, Array, Array, Array], Array]] = {
    "ips": lambda w, reward, own, direct: jnp.mean(w * reward),
    "snips": lambda w, reward, own, direct: jnp.sum(w * reward) / jnp.sum(w),
    "dr": lambda w, reward, own, direct: jnp.mean(w * (reward - own) + direct),
}
"""(weights, rewards, predicted rewards of the logged actions, expected predicted rewards), all (n,) -> value ()."""


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

    Inputs are standardized with the log's mean and standard deviation. The returned parameters are those with the best
    objective (of the softmax) on held-out rows, over all epochs. Judge the policy on a log that was not used here.

    Args:
        log: with propensities, and at least as many rows as actions.
        seed: of the initial parameters, the held-out rows, the minibatches and the folds of the reward model.
        objective: one of `OBJECTIVES`.
        model: flax module or `seqdec.models.Network` from an observation to (k,) scores; None is an MLP with one hidden
            layer of 50 units and a linear path, of each action's row where actions have features.
        optimizer: of optax, or any other with its interface; None is Adam with learning rate 0.003.
        predicted: (n, k) predicted rewards for "dr"; None takes `predict_rewards`.
        spaces: anything with the observation_space (a Box) and the action_space in which the agent acts; None is a Box
            with the shape of a row of `seqdec.ope.inputs`.
        epsilon: share of uniform exploration in [0, 1].
        held_out: share of the rows, in (0, 1), for early stopping.
        batch_size: rows in a step.
        max_epochs: passes over the rows, at most.
        patience: epochs without improvement after which learning stops.

    Raises:
        TypeError: not a log; a model or an optimizer of another kind.
        ValueError: a log without propensities or with too few rows, predictions or spaces that do not fit it, a network
            with another output, a setting out of its range, or a held-out objective that is not finite.
    """
    own = space_for("learn", log, spaces, epsilon)
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
    scaled, center, scale = standardized_inputs(log, own)
    net = _network(model, scaled[0], log)
    q = _rewards(log, predicted, seed) if objective == "dr" else np.zeros(log.mask.shape)

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
    return fixed_agent(lambda x: net.apply(best, (x - center) / scale), own, settings, greedy=False)


def _network(model: Any, example: np.ndarray, log: Log) -> Network:
    """The network of a model, or the default one, if it has an output for each action."""
    if model is None and log.action_features is not None and example.ndim == 2:
        return per_candidate(network(MLP(1, (50,), skip=True), example[0]))
    if model is None:
        model = MLP(log.num_actions, (50,), skip=True)
    net = of(model, example)
    found = jax.eval_shape(lambda: net.apply(net.init(jax.random.key(0)), jnp.asarray(example))).shape
    if found != (log.num_actions,):
        raise ValueError(f"the model's output has shape {found}; it must be ({log.num_actions},), one score per action")
    return net


def _rewards(log: Log, predicted: Any, seed: int) -> np.ndarray:
    if predicted is None:
        return predict_rewards(log, seed=seed, folds=min(5, len(log.action)))
    return check_predicted(log, predicted).rewards
