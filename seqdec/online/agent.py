"""`OnlineAgent`: an agent for a service that runs for months.

Every decision is in the log before it is handed out, and every reward before it is learned. The belief is what the
agent learns from its log: a process that starts again loads the last snapshot and learns what came after it, in the
same batches, to the bit.

FOLDER/decisions.sqlite     decisions and rewards (`seqdec.online.journal`)
FOLDER/state.safetensors    the last snapshot of the agent's state
"""

import functools
import math
import os
import secrets
import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as gym_spaces

from seqdec import agents, checks
from seqdec.checks import choice, count, positive
from seqdec.core import Agent, HasSpaces, PyTree, Spaces
from seqdec.features import Encoder
from seqdec.introspection import brief, described, listed
from seqdec.online import contexts, encoders
from seqdec.online.digests import digest
from seqdec.online.journal import (
    COLLECTED,
    DEFAULT,
    FORMAT,
    REPORTED,
    Arm,
    Entry,
    Journal,
    Reward,
    described_record,
)
from seqdec.online.learner import Belief, Learner, Lesson
from seqdec.ope.log import Log, check_log
from seqdec.persistence import as_json, check_format, check_writable, located, locked, versions
from seqdec.runtime import check_process, is_forked
from seqdec.spaces import spaces_of
from seqdec.states import load, save

SNAPSHOT = "state.safetensors"
_LARGEST = float(np.finfo(np.float32).max)
_PART = 1024
"""Decisions whose time is over that are learned as one batch."""
_DIFFERENT = ", of which the network, the policy or a function in them is another"
_MANY = 10_000
"""Rewards whose learning at the start shows a progress bar."""

P = ParamSpec("P")
R = TypeVar("R")
Result = Literal["learned", "repeated", "expired", "unknown", "rejected", "removed", "collected"]
_AGGREGATIONS: dict[str, Callable[[list[float]], float]] = {
    "first": lambda given: given[0],
    "sum": math.fsum,
    "last": lambda given: given[-1],
    "max": max,
}
"""(rewards of a decision, as they came) -> the one that is learned."""


class Decision(NamedTuple):
    """What to do, and how to report its reward."""

    action: Any
    """id of the arm, or the point of a Box"""
    propensity: float
    """probability with which the policy plays this arm; NaN where it is not estimated"""
    token: str
    """for `OnlineAgent.learn`"""


def _exclusive(method: Callable[Concatenate["OnlineAgent", P], R]) -> Callable[Concatenate["OnlineAgent", P], R]:
    """For one thread at a time, and after what an exception has left undone.

    Raises ValueError once the agent is closed, RuntimeError in a forked process.
    """

    @functools.wraps(method)
    def exclusive(self: "OnlineAgent", *arguments: P.args, **named: P.kwargs) -> R:
        check_process()
        # On one line: a tracer or debugger that raises at the start of a line then leaves no lock behind.
        with self._lock: return self._alone(method, *arguments, **named)  # fmt: skip  # noqa: E701

    return exclusive


class OnlineAgent:
    """An agent in a service: it decides, learns from late rewards, and keeps a durable log of both. Thread-safe.

        service = seqdec.OnlineAgent(seqdec.agents.auto, site, seed=0, folder="bandit")
        decision = service.decide(features)
        service.learn(decision.token, reward)  # at any later time, in any order

    Arms have ids: 0, 1, ... for those of the action space, and the next number for each that is added. The model has
    `capacity` outputs, one for each arm. Where none is left for another arm, the belief is computed again from the log,
    without the rewards of removed arms, and with twice the outputs if the others need most of them. Where items come
    and go every day, describe them by features instead: observations that are a Dict of candidates.

    Args:
        make: (spaces) -> agent, such as `seqdec.agents.auto` or `lambda spaces: seqdec.agents.hilofi(spaces, rank=10)`;
            or the name of one, as in `seqdec.agents.make`.
        spaces: anything with observation_space and action_space.
        seed: of all random choices: equal seeds, contexts and rewards give equal results.
        encoder: for contexts that are rows of mixed columns, as dicts, or several of them as a table; the observation
            space must be `encoder.space`. The log keeps it (`seqdec.online.read_encoder`).
        folder: of log and snapshots, created if missing; what it holds is taken up again. None keeps the log in memory.
        expire_after: seconds after which a decision takes no reward any more; None: never.
        rewards: what becomes of several rewards of one decision. "first" learns the first when it comes. "sum", "last"
            and "max" collect them, and learn one reward of each decision `reward_after` seconds after it.
        reward_after: seconds in which a decision takes rewards; the first call after them learns what came or, where
            nothing did, `reward_default`. The time in which no process uses the folder counts.
        reward_default: for decisions without a reward, such as 0.0 where only clicks are reported; None: they teach
            nothing.
        capacity: outputs of the model; None is the number of arms.
        batch_size: rewards that `learn_many` learns in one update.
        snapshot_every: batches of rewards between snapshots, so the most that a start has to learn again.
        fsync: wait for the disk in every call, so that a loss of power loses nothing; otherwise the end of the process
            at any point loses nothing. Costs some milliseconds a call.
        relearn: where the folder's log was written with another agent or other settings, learn it again with this one.

    Raises:
        ValueError: the folder's log belongs to another agent, seed or space, or is damaged; a setting is out of range;
            no agent has the name.
        TypeError: `make` does not make an agent, or a space is of another kind.
        FileExistsError: another process, or another object of this one, uses the folder.
        RuntimeError: this process was forked after seqdec had computed; so in all methods but `close`.
        OSError: the folder cannot be written.

    An exception in the middle of a call, such as Ctrl-C or one that a signal handler raises, leaves the log right: the
    next call first learns what is in it and not learned.
    """

    def __init__(
        self,
        make: str | Callable[[HasSpaces], Agent],
        spaces: HasSpaces,
        *,
        seed: int,
        encoder: Encoder | None = None,
        folder: str | os.PathLike[str] | None = None,
        expire_after: float | None = None,
        rewards: Literal["first", "sum", "last", "max"] = "first",
        reward_after: float | None = None,
        reward_default: float | None = None,
        capacity: int | None = None,
        batch_size: int = 16,
        snapshot_every: int = 10_000,
        fsync: bool = False,
        relearn: bool = False,
    ) -> None:
        """See the class."""
        check_process()
        if expire_after is not None:
            positive("expire_after", expire_after)
        self._make, self._spaces, self._seed = _factory(make), spaces_of(spaces), checks.seed("seed", seed)
        self._batch_size, self._every = count("batch_size", batch_size), count("snapshot_every", snapshot_every)
        _check_rewards(rewards, reward_after, reward_default)
        self._collects, self._put_together = rewards != "first", _AGGREGATIONS[rewards]
        self._default = None if reward_default is None else _checked_reward(reward_default)
        self._window = None if reward_after is None else int(1e9 * reward_after)
        self._lifetime = min(1e9 * seconds for seconds in (expire_after, reward_after, math.inf) if seconds is not None)
        self._options = {
            "batch_size": self._batch_size,
            "rewards": rewards,
            "reward_after": None if reward_after is None else float(reward_after),
            "reward_default": self._default,
        }
        observations, actions = self._spaces
        self._record = contexts.record_of(observations)
        self._encoder = encoders.checked(encoder, observations)
        self._lock, self._held, self._open = threading.RLock(), ExitStack(), True
        self._free = weakref.finalize(self, _close, self._held)  # of garbage, and at the end of the process
        self._settled = True
        self._counts: Counter[str] = Counter()
        self._folder = None if folder is None else located(folder)
        first = int(actions.n) if isinstance(actions, gym_spaces.Discrete) else 0
        outputs = first if capacity is None else count("capacity", capacity, max(first, 1))
        try:
            if self._folder is not None:
                check_writable(self._folder)
                self._held.enter_context(locked(self._folder))
            self._journal = Journal(self._folder, fsync=fsync)
            self._held.callback(self._journal.close)
            self._take_up(first, outputs, relearn)
        except BaseException:
            self._free()
            raise

    def __repr__(self) -> str:
        where = "memory" if self._folder is None else str(self._folder)
        written = f"{self._journal.decisions:,} decisions and {self._journal.rewards:,} rewards in the log"
        here = ", ".join(f"{count:,} {result}" for result, count in self._counts.items())
        arms = f"{len(self.arms)} arms of {self._learner.outputs} outputs" if self._arms else "points of a Box"
        return described(
            f"OnlineAgent {self.agent.name} in {where}{'' if self._open else ', closed'}",
            f"observations {brief(self._spaces.observation_space)}; actions: {arms}; seed {self._seed}",
            f"{written}{f'; in this process {here}' if here else ''}",
            f"settings: {listed(self.agent.settings)}" if self.agent.settings else "no settings",
        )

    @property
    def arms(self) -> tuple[int, ...]:
        """The ids of the arms that may be played; empty for points of a Box."""
        return tuple(key for key, arm in self._arms.items() if not arm.removed)

    @property
    def agent(self) -> Agent:
        """The agent that `make` made, with an output for each arm and `capacity` in all."""
        return self._learner.agent

    @property
    def state(self) -> PyTree:
        """A copy of the agent's state."""
        return self._copied()

    @property
    def counts(self) -> Mapping[str, int]:
        """Decisions and rewards in the log; of this process also the results of `learn`, and others by these names.

        "clipped": contexts beyond the bounds of their Box; "default": decisions that have learned the default reward;
        "learned" also counts what was put together of "collected" rewards.
        """
        return self._counted()

    @_exclusive
    def warm_up(self) -> None:
        """Compile all programs, so that no later call has to. Changes nothing."""
        actions = self._spaces.action_space
        self._learner.warm_up(self._record, 0 if self._arms else np.zeros(actions.shape or (), np.float32))

    def decide(self, context: Any, mask: Any = None) -> Decision:
        """Choose an action, which is in the log when this returns.

        Args:
            context: an observation of the space, or with an encoder a row as a dict. Numbers beyond the bounds of a Box
                of floats are moved to them, and `counts` tells in how many contexts.
            mask: (number of ids) bool, whether each arm may be played; None: all. Removed arms never are.

        Raises:
            TypeError, ValueError: a context or mask of another kind, shape or range; nothing happens then.
            OSError: the log cannot be written; nothing happens then.
        """
        observation = context if self._encoder is None else self._encoder(context)
        record = contexts.checked(self._spaces.observation_space, self._record, observation)
        return self._decided(record[None], mask, ())[0]

    def decide_many(self, stacked: Any, masks: Any = None) -> list[Decision]:
        """Choose an action for each of several contexts, all by the present belief: as so many calls of `decide`.

        Args:
            stacked: n contexts, stacked: (n, ...), or a dict of such arrays; with an encoder a table, or a list of
                dicts.
            masks: (n, number of ids) bool; None: all arms may be played.

        Raises:
            As `decide`, for the first that is wrong; nothing happens then.
        """
        stacked, rows = _sized(stacked if self._encoder is None else self._encoder.transform(stacked))
        space, none = self._spaces.observation_space, np.empty(0, self._record)
        records = contexts.checked(space, self._record, stacked, rows) if rows else none
        return self._decided(records, masks, (rows,))

    def learn(self, token: str, reward: Any) -> Result:
        """Learn the reward of a decision, which is in the log when this returns.

        Returns:
            "learned"; or, where nothing is learned, "repeated": the decision has its reward, which stays; "expired";
            "unknown": no decision has this token; "rejected": it is in the log, but would make the belief infinite;
            "removed": it is in the log, but the arm has no output any more. "collected": it is in the log, and part of
            what is learned later.

        Raises:
            TypeError, ValueError: the token is no text, or the reward no finite number; nothing happens then.
            OSError: the log cannot be written; nothing happens then.
        """
        return self.learn_many([(token, reward)])[0]

    def learn_many(self, pairs: Iterable[tuple[str, Any]]) -> list[Result]:
        """Learn several rewards, those that are new in one update for each `batch_size` of them.

        Agents without `Agent.update_batch` learn one after the other.

        Args:
            pairs: (token, reward) of each.

        Returns:
            What became of each, as in `learn`.

        Raises:
            As `learn`, for the first that is wrong; nothing happens then.
        """
        return self._reported([(*_parsed(token), _checked_reward(reward)) for token, reward in map(_pair, pairs)])

    def warm_start(self, log: Log) -> None:
        """Learn a log of other decisions row by row, and keep it: all of it or, where that fails, nothing.

        Args:
            log: with contexts as long as a flattened observation, or action features where that is a Dict of one entry,
                and actions that are ids of arms. Estimated propensities are not kept.

        Raises:
            ValueError: the log does not fit.
            OSError: the log cannot be written.
        """
        check_log(log)
        rows, names = len(log.action), list(self._record.names or ())
        name = names[0]
        shape = contexts.shape_of(self._record, name)
        features = log.context if log.action_features is None else log.action_features
        if len(names) > 1 or features[0].size != math.prod(shape):
            raise ValueError(f"a row of the log has {features[0].shape} numbers; an observation has {self._record}")
        stacked = features.reshape(rows, *shape)
        whole = stacked if name == contexts.WHOLE else {name: stacked}
        records = contexts.checked(self._spaces.observation_space, self._record, whole, rows)
        rewards = [_checked_reward(reward) for reward in log.reward]
        self._add_history(records, log, rewards)

    @_exclusive
    def add_arm(self) -> int:
        """Admit another arm, of which nothing is known yet; returns its id.

        Takes as long as learning the whole log where no output is free.

        Raises TypeError where actions are points of a Box or candidates.
        """
        self._check_arms()
        key, used = len(self._arms), {arm.output for arm in self._arms.values()}
        free = next((output for output in range(self._learner.outputs) if output not in used), None)
        if free is not None:
            self._describe(self._learner, {**self._arms, key: Arm(free, removed=False)})
            return key
        live, outputs = [*self.arms, key], self._learner.outputs
        places = dict(zip(live, range(len(live)), strict=True))
        outputs = outputs if 2 * len(live) <= outputs else 2 * outputs
        learner = self._made(self._agent(outputs), outputs, self._learner.generation + 1)
        arms = {k: Arm(places.get(k), removed=k not in places) for k in (*self._arms, key)}
        self._catch_up(learner, arms)
        self._describe(learner, arms)
        self._try_snapshot()
        return key

    @_exclusive
    def remove_arm(self, arm: int) -> None:
        """Play an arm no more; rewards of its earlier decisions are still learned.

        Raises:
            TypeError: actions are points of a Box or candidates.
            ValueError: there is no such arm, or no other.
        """
        self._check_arms()
        if arm not in self.arms or len(self.arms) == 1:
            raise ValueError(f"arm must be one of {self.arms}, of which one has to stay; got {arm!r}")
        self._describe(self._learner, {**self._arms, arm: self._arms[arm]._replace(removed=True)})

    @_exclusive
    def snapshot(self) -> None:
        """Write the state to the folder, so that a start need not learn again what was learned before."""
        self._write_snapshot()

    @_exclusive
    def log(self) -> Log:
        """The decisions whose reward and propensity are known, for `seqdec.ope`. Raises ValueError where none is."""
        return self._journal.log(self._record)

    def close(self) -> None:
        """Write a snapshot and release the folder; the agent cannot be used any more.

        Does nothing in a forked process.
        """
        if is_forked():
            return
        with self._lock:
            try:
                if self._open and self._free.alive:
                    self._settle()
                    if self._saved != self._journal.batches:
                        self._write_snapshot()
            finally:
                self._open = False
                self._free()

    def __enter__(self) -> Self:
        check_process()
        return self

    def __reduce__(self) -> Any:
        raise TypeError(
            "an OnlineAgent cannot be pickled or copied: its state and its folder belong to one process; send contexts "
            "and rewards to that process, or give each worker an agent with a folder of its own"
        )

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _alone(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """What a method returns, for the thread that has the lock."""
        if not self._open:
            raise ValueError("this agent is closed; make another one with the same folder to go on")
        self._settle()
        self._settled = False
        self._end_windows()
        result = method(self, *arguments, **named)
        self._settled = True
        return result

    def _settle(self) -> None:
        """Follow the log, where an exception at any point of an earlier call has left something undone.

        Raises RuntimeError where the log cannot be read any more.
        """
        if self._settled:
            return
        try:
            self._journal.recover()
            facts, self._arms = self._journal.facts(), self._journal.arms()
            if self._learner.generation != facts["generation"]:
                self._learner = self._made(self._agent(facts["outputs"]), facts["outputs"], facts["generation"])
                self._restore()
            elif self._learner.belief.lost:
                self._learner.forget()
                self._restore()
            self._catch_up(self._learner, self._arms)
        except ValueError as error:  # which would blame the arguments of the call
            raise RuntimeError(f"this agent cannot learn again what its log holds: {error}") from error
        self._settled = True

    def _end_windows(self) -> None:
        """Learn the rewards of the decisions whose time is over."""
        if self._window is None:
            return
        due = self._journal.unrewarded(self._ended, self._journal.now() - self._window)
        for start in range(0, len(due), _PART):
            part = due[start : start + _PART]
            known = [(number, self._put_together(reports), COLLECTED) for number, reports in part if reports]
            if self._default is not None:
                known += [(number, self._default, DEFAULT) for number, reports in part if not reports]
            if known:
                numbers, rewards, sources = zip(*sorted(known), strict=True)
                self._journal.add_rewards(numbers, rewards, sources)
                results = self._catch_up(self._learner, self._arms)
                self._counts.update(
                    DEFAULT if source == DEFAULT else result for source, result in zip(sources, results, strict=True)
                )
                self._snapshot_if_due()
            self._ended = part[-1][0]

    @_exclusive
    def _copied(self) -> PyTree:
        return jax.tree.map(jnp.copy, self._learner.belief.state)

    @_exclusive
    def _counted(self) -> dict[str, int]:
        return {"decisions": self._journal.decisions, "rewards": self._journal.rewards, **self._counts}

    def _agent(self, outputs: int) -> Agent:
        """The agent with so many outputs."""
        actions = self._spaces.action_space
        if isinstance(actions, gym_spaces.Discrete):
            actions = gym_spaces.Discrete(outputs)
        agent = self._make(Spaces(self._spaces.observation_space, actions))
        if not isinstance(agent, Agent):
            raise TypeError(f"what make returns must be a seqdec.core.Agent; got {type(agent).__name__}")
        return agent

    def _made(self, agent: Agent, outputs: int, generation: int) -> Learner:
        """The learner of an agent, before it has learned anything."""
        return Learner(agent, _identity(agent), self._seed, outputs, self._batch_size, generation)

    def _take_up(self, first: int, outputs: int, relearn: bool) -> None:
        """Go on with the folder's log, or begin one."""
        facts, self._arms, self._saved = self._journal.facts(), self._journal.arms(), 0
        self._ended = self._journal.settled()
        if not facts:
            if self._folder is not None and (self._folder / SNAPSHOT).is_file():
                raise ValueError(
                    f"{self._folder / SNAPSHOT} belongs to a log, but {self._journal.path} is empty: restore it from a "
                    "copy, or delete the snapshot to begin a new log"
                )
            learner = self._made(self._agent(outputs), outputs, 0)
            self._describe(learner, {key: Arm(key, removed=False) for key in range(first)}, first=first)
            return
        check_format(self._journal.path, facts, FORMAT)
        if other := encoders.difference(facts.get("encoder"), encoders.described(self._encoder)):
            raise ValueError(
                f"{self._journal.path} was written {other}, and its contexts cannot be encoded anew: use the encoder "
                "of the log, seqdec.online.read_encoder(folder), or another folder"
            )
        own = {"seed": self._seed, "first": first, "record": described_record(self._record)}
        for name, value in own.items():
            if facts[name] != value:
                raise ValueError(f"{self._journal.path} belongs to an agent whose {name} is {facts[name]}, not {value}")
        agent = self._agent(facts["outputs"])
        told = {**_identity(agent), **self._options}
        changed = [name for name, value in told.items() if facts[name] != value]
        if changed == ["digest"] and facts["versions"] != as_json(versions()):
            changed = []  # other versions of the libraries may build the same agent of other functions
        if changed and not relearn:
            options = [name for name in self._options if name in changed]
            if options == changed:
                before, here = (listed({name: found[name] for name in options}) for found in (facts, told))
            else:
                before, here = (f"{found['agent']} {found['settings']}" for found in (facts, told))
            raise ValueError(
                f"{self._journal.path} was written with {before}, not {here}"
                f"{_DIFFERENT if changed == ['digest'] else ''}: make that agent, or pass relearn=True to learn the "
                "log again with this one"
            )
        wider = outputs > facts["outputs"]
        outputs = max(outputs, facts["outputs"])
        generation = facts["generation"] + bool(changed or wider)
        self._learner = self._made(self._agent(outputs) if wider else agent, outputs, generation)
        if not (changed or wider):
            self._restore()
        self._catch_up(self._learner, self._arms)
        self._describe(self._learner, self._arms)

    def _restore(self) -> None:
        """Load the snapshot, if there is one of this log and this generation of outputs."""
        if self._folder is None or not (self._folder / SNAPSHOT).is_file():
            return
        try:
            found = load(self._folder / SNAPSHOT, self._marked())
        except ValueError as error:
            warnings.warn(f"{error}; the belief is learned again from the log", RuntimeWarning, stacklevel=5)
            return
        if found["generation"] == self._learner.generation:
            if found["batch"] > self._journal.batches:
                raise ValueError(
                    f"{self._folder / SNAPSHOT} has learned {found['batch']} batches, of which the log has "
                    f"{self._journal.batches}: restore {self._journal.path} from a copy, or delete the snapshot"
                )
            self._learner.belief, self._saved = Belief(found["state"], int(found["batch"])), int(found["batch"])

    def _marked(self) -> PyTree:
        """What a snapshot holds."""
        learner = self._learner
        numbers = {"batch": learner.belief.batch, "generation": learner.generation}
        return {"state": learner.belief.state} | {name: np.int64(number) for name, number in numbers.items()}

    def _describe(self, learner: Learner, arms: Mapping[int, Arm], **facts: Any) -> None:
        """Write the arms, and what the log belongs to; then use them."""
        facts |= {"format": FORMAT, "versions": versions(), "seed": self._seed, "generation": learner.generation}
        facts |= {**learner.identity, **self._options}
        facts |= {"outputs": learner.outputs, "record": described_record(self._record)}
        facts |= {"encoder": encoders.described(self._encoder)}
        self._journal.describe(facts, arms)
        self._learner, self._arms = learner, dict(arms)

    def _check_arms(self) -> None:
        candidates = isinstance(self._spaces.observation_space, gym_spaces.Dict)
        if candidates or not self._arms:
            kind = "candidates, which a mask allows or not" if candidates else "points of a Box"
            raise TypeError(f"arms can be added and removed where actions have an index; here they are {kind}")

    def _allowed(self, mask: Any, lead: tuple[int, ...]) -> np.ndarray:
        """(*lead, ids) bool, whether each arm may be played."""
        live = np.array([not arm.removed for arm in self._arms.values()], bool)
        if mask is None:
            return np.broadcast_to(live, (*lead, len(live)))
        given = np.asarray(checks.as_array("the mask", mask))
        if given.dtype != bool or given.shape != (*lead, len(live)):
            raise ValueError(
                f"the mask must be bool of shape {(*lead, len(live))}, an entry for each id of an arm; "
                f"got {given.dtype} of shape {given.shape}"
            )
        allowed = given & live
        if not allowed.any(-1).all():
            raise ValueError(f"the mask must allow at least one of the arms {self.arms}; got {mask!r:.80}")
        return allowed

    @_exclusive
    def _decided(self, records: np.ndarray, mask: Any, lead: tuple[int, ...]) -> list[Decision]:
        """Decide, and write the decisions to the log; `mask` is (*lead, ids)."""
        if not len(records):
            return []
        allowed = np.broadcast_to(self._allowed(mask, lead), (len(records), len(self._arms)))
        records, clipped = contexts.clipped(self._spaces.observation_space, records)
        owners = {arm.output: key for key, arm in self._arms.items() if arm.output is not None}
        masks = np.zeros((len(records), self._learner.outputs), bool)
        masks[:, list(owners)] = allowed[:, list(owners.values())]
        values, propensities = self._learner.decide(self._journal.decisions + 1, records, masks)
        actions: list[Any] = [owners[int(output)] for output in values] if owners else list(map(_frozen, values))
        entries = [
            Entry(
                secrets.token_bytes(8),
                record.tobytes(),
                mask.tobytes() if owners else None,
                action if owners else action.astype(np.float32).tobytes(),
                float(propensity),
            )
            for record, mask, action, propensity in zip(records, allowed, actions, propensities, strict=True)
        ]
        first = self._journal.add_decisions(entries)
        if clipped:
            self._counts["clipped"] += clipped
        return [
            Decision(action, entry.propensity, f"{first + index}-{entry.nonce.hex()}")
            for index, (action, entry) in enumerate(zip(actions, entries, strict=True))
        ]

    @_exclusive
    def _reported(self, asked: Sequence[tuple[int, bytes, float]]) -> list[Result]:
        """Write to the log and learn what is new of (number, nonce, reward)."""
        results: list[Result] = ["repeated"] * len(asked)
        new: dict[int, int] = {}
        collected: list[int] = []
        oldest = self._journal.now() - self._lifetime
        for index, (number, nonce, _) in enumerate(asked):
            found = self._journal.find(number)
            if found is None or found.nonce != nonce:
                results[index] = "unknown"
            elif found.source == REPORTED or number in new:
                results[index] = "repeated"
            elif found.source is not None or found.time < oldest:
                results[index] = "expired"
            elif self._collects:
                results[index] = "collected"
                collected.append(index)
            else:
                new[number] = index
        if collected:
            numbers, _, rewards = zip(*(asked[index] for index in collected), strict=True)
            self._journal.add_reports(numbers, rewards)
        if new:
            rewards = [asked[index][2] for index in new.values()]
            self._journal.add_rewards(list(new), rewards, [REPORTED] * len(new))
            for index, result in zip(new.values(), self._catch_up(self._learner, self._arms), strict=True):
                results[index] = result
            self._snapshot_if_due()
        self._counts.update(results)
        return results

    @_exclusive
    def _add_history(self, records: np.ndarray, log: Log, rewards: Sequence[float]) -> None:
        """Write the decisions of another log to this one, and learn them."""
        if log.num_actions > len(self._arms):
            raise ValueError(f"the log has {log.num_actions} actions; this agent has {len(self._arms)} arms")
        records, clipped = contexts.clipped(self._spaces.observation_space, records)
        propensities = np.full(len(log.action), np.nan) if log.estimated else log.propensity
        decided = [
            Entry(secrets.token_bytes(8), record.tobytes(), mask.tobytes(), int(action), float(propensity))
            for record, mask, action, propensity in zip(records, log.mask, log.action, propensities, strict=True)
        ]
        self._journal.add_history(decided, rewards)
        if clipped:
            self._counts["clipped"] += clipped
        self._catch_up(self._learner, self._arms)
        self._snapshot_if_due()

    def _catch_up(self, learner: Learner, arms: Mapping[int, Arm]) -> list[Result]:
        """Learn all batches of the log after those that are learned; returns what became of the last one's rewards."""
        from seqdec.progress import advance, bar, compiling

        results: list[Result] = []
        total = self._journal.batches - learner.belief.batch
        if not total:
            return results
        with bar(total, "learn the log", "batch", show=False if total < _MANY else None) as shown:
            compiling(shown)
            for batch, rewards in self._journal.batches_after(learner.belief.batch):
                lessons = [self._lesson(reward, arms) for reward in rewards]
                accepted = iter(learner.learn([lesson for lesson in lessons if lesson is not None], batch))
                results = [
                    "removed" if lesson is None else "learned" if next(accepted) else "rejected" for lesson in lessons
                ]
                advance(shown)
        return results

    def _lesson(self, reward: Reward, arms: Mapping[int, Arm]) -> Lesson | None:
        """A reward for the present outputs; None where its arm has none any more."""
        record = contexts.unpacked(reward.context, self._record, 1)[0]
        if isinstance(reward.action, bytes):
            shape = self._spaces.action_space.shape or ()
            return Lesson(record, np.frombuffer(reward.action, np.float32).reshape(shape), reward.reward)
        output = arms[reward.action].output
        return None if output is None else Lesson(record, output, reward.reward)

    def _write_snapshot(self) -> None:
        if self._folder is not None:
            self._journal.flush()  # a snapshot must not outlast what it has learned
            save(self._folder / SNAPSHOT, self._marked(), self.agent)
        self._saved = self._learner.belief.batch

    def _snapshot_if_due(self) -> None:
        if self._learner.belief.batch - self._saved >= self._every:
            self._try_snapshot()

    def _try_snapshot(self) -> None:
        """One that cannot be written is tried again after the next rewards: the log has all that it would hold."""
        try:
            self._write_snapshot()
        except OSError as error:
            warnings.warn(
                f"{error}; the log has everything, and a later call tries again", RuntimeWarning, stacklevel=6
            )


def _identity(agent: Agent) -> dict[str, Any]:
    """What tells an agent from others that would learn something else from the same log."""
    return {"agent": agent.name, "settings": as_json(dict(agent.settings)), "digest": digest(agent)}


def _factory(make: str | Callable[[HasSpaces], Agent]) -> Callable[[HasSpaces], Agent]:
    """A function that makes agents, perhaps given by name."""
    if isinstance(make, str):
        return agents.REGISTRY[make]
    if not callable(make):
        raise TypeError(
            "make must be a function (spaces) -> agent, such as seqdec.agents.auto or lambda spaces: "
            f"seqdec.agents.hilofi(spaces, rank=10), or the name of one, such as 'auto'; got {make!r:.80}"
        )
    return make


def _check_rewards(rewards: str, reward_after: float | None, reward_default: float | None) -> None:
    """Raises ValueError for settings that do not fit together."""
    choice("rewards", rewards, _AGGREGATIONS)
    if reward_after is not None:
        positive("reward_after", reward_after)
        if rewards == "first" and reward_default is None:
            raise ValueError("reward_after needs a reward_default, such as 0.0, or rewards='sum', 'last' or 'max'")
    elif rewards != "first" or reward_default is not None:
        given = f"rewards={rewards!r}" if rewards != "first" else f"reward_default={reward_default!r}"
        raise ValueError(f"{given} needs reward_after, the seconds in which a decision takes rewards")


def _close(held: ExitStack) -> None:
    """Close the log and unlock the folder; a forked process has copies of both, which are its parent's."""
    if not is_forked():
        held.close()


def _sized(stacked: Any) -> tuple[Any, int]:
    """Stacked contexts as arrays, and their number. Raises ValueError where there is no axis to count."""
    parts = stacked if isinstance(stacked, Mapping) else {"contexts": stacked}
    arrays = {name: checks.as_array(name, part) for name, part in parts.items()}
    shapes = [array.shape for array in arrays.values()]
    sizes = {shape[:1] for shape in shapes}
    if len(sizes) != 1 or () in sizes:
        raise ValueError(f"contexts must be stacked along a first axis; got shapes {shapes}")
    return arrays if isinstance(stacked, Mapping) else arrays["contexts"], sizes.pop()[0]


def _frozen(point: np.ndarray) -> np.ndarray:
    """A copy that cannot be written."""
    own = point.copy()
    own.flags.writeable = False
    return own


def _pair(given: Any) -> tuple[Any, Any]:
    """Token and reward. Raises TypeError for what is no pair, such as the key of a dict or a row as a dict."""
    parts = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str | Mapping) else ()
    if len(parts) != 2:
        raise TypeError(
            f"rewards must be told as pairs (token, reward); got {given!r:.80}: pass zip(tokens, rewards), or the "
            "items() of a dict"
        )
    return parts


def _parsed(token: Any) -> tuple[int, bytes]:
    """Number and nonce of a token; what is none has number 0. Raises TypeError for what is no text."""
    if not isinstance(token, str):
        raise TypeError(f"a token is the text that `decide` returned; got {token!r:.60}")
    number, _, nonce = token.partition("-")
    try:
        return int(number) if number.isascii() and number.isdigit() and len(number) < 19 else 0, bytes.fromhex(nonce)
    except ValueError:
        return 0, b""


def _checked_reward(reward: Any) -> float:
    """A finite number. Raises TypeError or ValueError."""
    try:
        given = np.asarray(checks.as_array("a reward", reward))
    except (TypeError, ValueError):
        given = np.array(())
    if given.shape != ():
        raise TypeError(f"a reward must be a number; got {reward!r:.60}: convert it, as with float()")
    if not abs(float(given)) <= _LARGEST:
        raise ValueError(f"a reward must be a finite number in float32; got {reward!r}")
    return float(given)
