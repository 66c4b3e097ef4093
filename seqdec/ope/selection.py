"""Agents on a log."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as gym_spaces

from seqdec.boundary import checks
from seqdec.core import Agent, Masked, Schema
from seqdec.ope.alignment import aligned
from seqdec.ope.contract import Estimator, check_predicted, check_target
from seqdec.ope.estimators import SNDR, SNIPS
from seqdec.ope.estimators.continuous import ContinuousLog
from seqdec.ope.evaluation import evaluate
from seqdec.ope.learning import in_chunks, scanned
from seqdec.ope.log import Log, check_log, folds_of, inputs, num_allowed
from seqdec.ope.rowwise import rowwise
from seqdec.ope.unseen import check_unseen, row_hashes

if TYPE_CHECKING:
    import pandas as pd

_BLOCK = 256


class Selection(NamedTuple):
    """The candidate with the largest lower bound."""

    chosen: str
    """its name"""
    table: "pd.DataFrame"
    """results of `evaluate` by name, by falling lower bound"""


def _aligned(agent: Agent, log: Log) -> Log:
    check_log(log)
    _check_agent(agent)
    return aligned(log, agent.schema)


def _check_agent(agent: Any) -> None:
    if not isinstance(agent, Agent):
        raise TypeError(f"agent must be a seqdec.core.Agent; got {agent!r:.80}")


def _numbers_seen(agent: Agent, log: ContinuousLog) -> np.ndarray:
    seen, actions = (None, None) if agent.spaces is None else agent.spaces
    one = isinstance(actions, gym_spaces.Box) and np.prod(actions.shape) == 1 and log.action.ndim == 1
    if not isinstance(seen, gym_spaces.Box) or not one:
        raise TypeError(
            f"{agent.name} must have Box observations and a Box of one number as action, as the log; got {seen}, "
            f"{actions} and logged actions {log.action.shape}: of points, the target is a density, (log) -> (n,)"
        )
    if np.prod(seen.shape) != log.context.shape[1]:
        raise ValueError(f"{agent.name} is for {seen}; the log has {log.context.shape[1]} features")
    return log.context.astype(np.float32).reshape(len(log), *seen.shape)


def _observations(agent: Agent, log: Log) -> np.ndarray:
    count, size = log.mask.shape
    seen, actions = (None, None) if agent.spaces is None else agent.spaces
    if not isinstance(seen, gym_spaces.Box) or not isinstance(actions, gym_spaces.Discrete):
        raise TypeError(f"{agent.name} must have Box observations and Discrete actions; got {seen} and {actions}")
    x = inputs(log).reshape(count, -1)
    if x.shape[1] != int(np.prod(seen.shape)) or actions.n != size:
        raise ValueError(f"{agent.name} is for {seen} and {actions}; the log has {x.shape[1]} features, {size} actions")
    return x.reshape(count, *seen.shape)


def target_of(agent: Agent, log: Log | ContinuousLog, *, seed: int, state: Any = None) -> np.ndarray:
    """An agent's probabilities (n, k) in the rows of a log, or its actions (n,) if they are numbers.

    Args:
        agent: with `assess`, a Box of observations and Discrete actions; for a `ContinuousLog`, with a Box of one
            number as action.
        log: observations are rows of `seqdec.ope.inputs`, or contexts of a `ContinuousLog`, reshaped. Actions and
            columns are those of the agent's schema by name; actions that only the agent has are masked out.
        seed: seed for drawn actions, estimated probabilities and the initial state.
        state: state of the agent, unchanged; None: the initial one.

    Raises:
        TypeError: not an agent or not a log, or an agent without spaces or probabilities.
        ValueError: features or actions of another schema, other numbers of them, rows that the agent was learned from,
            or unknown probabilities.
    """
    if isinstance(log, ContinuousLog):
        _check_agent(agent)
        x = _numbers_seen(agent, log)
        check_unseen(agent, log)
        found = _in_rows(agent, state, seed, lambda key, state, x: agent.act(key, state, x).value, x)
        return found.reshape(len(log)).astype(np.float64)
    given, log = log, _aligned(agent, log)
    x, masked = _observations(agent, log), (num_allowed(log) < log.num_actions).any()
    check_unseen(agent, log)
    if (assess := agent.assess) is None:
        raise TypeError(f"{agent.name} must have assess, which tells the probabilities of actions")

    def law(key: Any, state: Any, x: Any, mask: Any) -> Any:
        return assess(key, state, Masked(x, mask) if masked else x).probability

    target = _in_rows(agent, state, seed, law, x, log.mask).astype(np.float64)
    if np.isnan(target).any():
        raise ValueError(f"{agent.name} does not know the probabilities of its policy, or not in all rows of the log")
    target /= target.sum(axis=1, keepdims=True)
    own, wanted = (list(one.action_names or range(one.num_actions)) for one in (log, given))
    return rowwise(target if own == wanted else target[:, [own.index(name) for name in wanted]], given)


def _in_rows(agent: Agent, state: Any, seed: int, one: Callable[..., Any], *columns: np.ndarray) -> np.ndarray:
    """(n, ...) one(key, state, *row), with a key for each row."""
    start, key = jax.random.split(jax.random.key(checks.seed_bits(checks.seed("seed", seed))))
    state, count = agent.init(start) if state is None else state, len(columns[0])

    @jax.jit
    def several(state: Any, index: Any, *rows: Any) -> Any:
        return jax.vmap(lambda index, *row: one(jax.random.fold_in(key, index), state, *row))(index, *rows)

    at = np.arange(-(-count // _BLOCK) * _BLOCK) % count  # whole blocks: one program
    blocks = [several(state, jnp.asarray(rows), *(part[rows] for part in columns)) for rows in at.reshape(-1, _BLOCK)]
    return np.concatenate(blocks)[:count]


def warm_start(agent: Agent, log: Log, *, seed: int) -> Agent:
    """The agent after learning from a log's rows in their order.

    Propensities are ignored. To serve: `OnlineAgent(lambda spaces: warm_start(linear(spaces), log, seed=0), ...)`.

    Args:
        agent: agent with Box observations and Discrete actions.
        log: as in `target_of`.
        seed: seed for the initial state.

    Raises:
        TypeError: not an agent or not a log, or an agent of other spaces.
        ValueError: features or actions of another schema, or other numbers of them.
    """
    log = _aligned(agent, log)
    x = _observations(agent, log)
    start = agent.init(jax.random.key(checks.seed_bits(checks.seed("seed", seed))))

    def step(state, row):
        x, action, reward = row

        def learn(state):
            return agent.update(state, x, action, reward)[0]

        return jax.lax.cond(jnp.isfinite(reward), learn, lambda state: state, state), None

    rows = (x, log.action, log.reward.astype(np.float32))
    state, _ = in_chunks(scanned(step), start, rows, "learning")
    learned = {**agent.settings, "warm_start": len(log.action)}
    schema = (agent.schema or Schema())._replace(
        **{name: part for name, part in log.schema._asdict().items() if part is not None}
    )
    known = np.sort(np.concatenate([np.frombuffer(agent.learned_from, np.uint64), row_hashes(log)])).tobytes()
    return agent._replace(
        init=lambda key: jax.tree.map(jnp.copy, state), settings=learned, schema=schema, learned_from=known
    )


def cross_fit_policy(learn: Callable[[Log], Agent], log: Log, *, seed: int, folds: int = 5) -> np.ndarray:
    """(n, k) probabilities in each row of the agent learned from the other random folds.

    They evaluate, on all rows, a policy learned from a share 1 - 1 / folds of the rows.

    >>> from seqdec import ope
    >>> log = ope.make_log(action=[0, 1] * 10, reward=[0.0, 1.0] * 10, propensity=[0.5] * 20)
    >>> ope.cross_fit_policy(lambda rows: ope.learn(rows, seed=0), log, seed=0).shape
    (20, 2)

    Args:
        learn: function of a log to an agent, such as `learn` with its settings.
        log: rows to learn from and to judge by.
        seed: seed for the random folds and `target_of`.
        folds: number of folds, from 2 to the number of rows.

    Raises:
        TypeError: not a log, or not an agent.
        ValueError: an impossible number of folds, and what `target_of` refuses.
    """
    check_log(log)
    member, target = folds_of(log, folds, seed), np.zeros(log.mask.shape)
    for fold in range(folds):
        target[member == fold] = target_of(learn(log[member != fold]), log[member == fold], seed=seed)
    return rowwise(target, log)


def select(
    log: Log,
    candidates: Mapping[str, Agent | np.ndarray],
    *,
    seed: int,
    predicted: np.ndarray | None = None,
    estimator: Estimator | str | None = None,
    level: float = 0.95,
) -> Selection:
    """The candidate with the largest lower end of its interval.

    The m intervals have level 1 - (1 - level) / m (Bonferroni).

    Args:
        log: rows that no candidate was learned from.
        candidates: by name, agents in their initial state, or (n, k) probabilities.
        seed: seed for the bootstrap and `target_of`.
        predicted: as in `evaluate`.
        estimator: configured or by name; None: `SNDR` with predictions, else `SNIPS`.
        level: simultaneous confidence level of all intervals.

    Raises:
        TypeError: no dict, or neither agents nor numbers.
        ValueError: no candidates, none with support, or what `evaluate` and `target_of` refuse.
    """
    import pandas as pd

    check_log(log)
    checks.number("level", level, 0, 1, exclusive=True)
    if not isinstance(candidates, Mapping):
        raise TypeError(f"candidates must be a dict of agents or probabilities by name; got {candidates!r:.80}")
    if not candidates:
        raise ValueError("candidates must hold at least one policy; got an empty dict")
    if predicted is not None:
        predicted = check_predicted(log, predicted)
    if estimator is None:
        estimator = SNIPS() if predicted is None else SNDR()
    policies = {
        name: target_of(one, log, seed=seed) if isinstance(one, Agent) else one for name, one in candidates.items()
    }
    targets = {name: check_target(log, policy) for name, policy in policies.items()}  # before any is evaluated
    options: Any = {"seed": seed, "estimators": [estimator], "level": 1 - (1 - level) / len(targets)}
    tables = [evaluate(log, target, predicted, **options) for target in targets.values()]
    table = (
        pd.concat(tables)
        .set_axis(pd.Index(list(targets), name="candidate"))
        .sort_values(["low", "value"], ascending=False)
    )
    if np.isnan(table["low"].to_numpy()).all():
        raise ValueError("no candidate has support in the log: log the actions that they play")
    return Selection(str(table.index[0]), table)
