"""`OnlineAgent`: an agent for a service that runs for months.

Every decision is in the log before it is handed out, and every reward before it is learned. The belief is what the
agent learns from its log: a process that starts again loads the last snapshot and learns what came after it, in the
same batches, to the bit.

FOLDER/decisions.sqlite     decisions and rewards (`seqdec.online.tables`)
FOLDER/state.safetensors    the last snapshot of the agent's state
"""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np

from seqdec import checks
from seqdec.core import Agent, HasSpaces, PyTree
from seqdec.features import Encoder
from seqdec.introspection import brief, counted, described, listed
from seqdec.online import contexts, explanation
from seqdec.online.arguments import pair, parsed, sized
from seqdec.online.calls import Decision, new_nonces
from seqdec.online.catalog import Catalog, Id, box_of, checked_items
from seqdec.online.explanation import Explanation
from seqdec.online.stock import Stock
from seqdec.online.turns import exclusive
from seqdec.online.upkeep import Result
from seqdec.ope.log import Log, check_log
from seqdec.runtime import check_process, short_turns


class OnlineAgent(Stock):
    """An agent in a service: it decides, learns from late rewards, and keeps a durable log of both. Thread-safe.

        service = seqdec.OnlineAgent(seqdec.agents.auto, site, seed=0, folder="bandit")
        decision = service.decide(features)
        service.learn(decision.token, reward)  # at any later time, in any order

    Arms have ids: 0, 1, ... for those of the action space, and the next number for each that is added. The model has
    `capacity` outputs, one for each arm. Where none is left for another arm, a wider model learns the log beside the
    one that serves, without the rewards of removed arms, and takes over; it has twice the outputs if the others need
    most of them. Where items come and go every day, describe them by features instead: in a `Catalog`.

    A decision waits for the decisions and rewards of other threads, one at a time, and for nothing that takes long: an
    arm that is added, a snapshot, the reading of the log, the learning of a warm start.

    Args:
        make: (spaces) -> agent, such as `seqdec.agents.auto` or `lambda spaces: seqdec.agents.hilofi(spaces, rank=10)`;
            or the name of one, as in `seqdec.agents.make`.
        spaces: anything with observation_space and action_space; or a `Catalog`, whose items have ids: those with which
            they are added.
        seed: of all random choices: equal seeds, contexts and rewards give equal results.
        encoder: for contexts that are rows of mixed columns, as dicts, or several of them as a table; the observation
            space must be `encoder.space`. The log keeps it (`seqdec.online.read_encoder`).
        folder: of log and snapshots, created if missing; what it holds is taken up again. None keeps the log in memory.
        expire_after: seconds after which a decision takes no reward any more; None: never.
        rewards: what is learned of several rewards of one decision: the first, their sum, the last or the largest. The
            first is learned when it comes, unless there is a `reward_default`; all else `reward_after` seconds after
            the decision.
        reward_after: seconds in which a decision takes rewards; the first call after them learns what came or, where
            nothing did, `reward_default`. The time in which no process uses the folder counts.
        reward_default: for decisions without a reward, such as 0.0 where only clicks are reported. Then no reward is
            learned before `reward_after`: a belief that knows the clicks of the last hour but not yet what was not
            clicked takes each arm for the better, the more it is shown. None: decisions without a reward teach nothing.
            Of named rewards a dict; decisions that lack one without a default teach nothing, and `counts` tells how
            many of them had others ("incomplete").
        reward_weights: of named rewards, such as {"click": 1.0, "revenue": 0.05}: a reward is a dict then, and their
            weighted sum is learned. With `reward_after` they may come in several dicts, and each name has its own
            first, sum, last or largest one. The log keeps them one by one, and is learned anew with other weights by
            `relearn`. None: rewards are numbers.
        capacity: outputs of the model; None is a quarter more than there are arms, or just these where an agent can be
            widened without its log (`Agent.widened`), has a fixed number of outputs or does not tell its spaces, and
            where arms cannot be added.
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
        RuntimeError: this process was forked after seqdec had computed; so in all methods but `close`, which raise it
            also once the agent is closed.
        OSError: the folder cannot be written.

    An exception in the middle of a call, such as Ctrl-C or one that a signal handler raises, leaves the log right: the
    next call first learns what is in it and not learned.
    """

    def __init__(
        self,
        make: str | Callable[[HasSpaces], Agent],
        spaces: HasSpaces | Catalog,
        *,
        seed: int,
        encoder: Encoder | None = None,
        folder: str | os.PathLike[str] | None = None,
        expire_after: float | None = None,
        rewards: Literal["first", "sum", "last", "max"] = "first",
        reward_after: float | None = None,
        reward_default: float | Mapping[str, float] | None = None,
        reward_weights: Mapping[str, float] | None = None,
        capacity: int | None = None,
        batch_size: int = 16,
        snapshot_every: int = 10_000,
        fsync: bool = False,
        relearn: bool = False,
    ) -> None:
        """See the class."""
        check_process()
        super().__init__(
            make=make, spaces=spaces, seed=seed, encoder=encoder, folder=folder, expire_after=expire_after,
            rewards=rewards, reward_after=reward_after, reward_default=reward_default, reward_weights=reward_weights,
            capacity=capacity, batch_size=batch_size, snapshot_every=snapshot_every, fsync=fsync, relearn=relearn,
        )  # fmt: skip

    def __repr__(self) -> str:
        where = "memory" if self._folder is None else str(self._folder)
        journal, outputs = self._journal, counted(self._learner.outputs, "output")
        written = f"{counted(journal.decisions, 'decision')} and {counted(journal.rewards, 'reward')} in the log"
        here = ", ".join(f"{count:,} {result}" for result, count in self._counts.items())
        arms = f"{counted(len(self.arms), 'arm')} of {outputs}" if self._arms else "points of a Box"
        arms = arms if self._catalog is None else f"{counted(len(self.items), 'item')} of a catalog"
        return described(
            f"OnlineAgent {self.agent.name} in {where}{'' if self._open else ', closed'}",
            f"observations {brief(self._spaces.observation_space)}; actions: {arms}; seed {self._seed}",
            f"{written}{f'; in this process {here}' if here else ''}",
            f"settings: {listed(self.agent.settings)}" if self.agent.settings else "no settings",
        )

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

    @exclusive
    def warm_up(self) -> None:
        """Compile all programs, so that no later call has to. Changes nothing."""
        actions, indexed = self._spaces.action_space, bool(self._arms) or self._catalog is not None
        action = 0 if indexed else np.zeros(actions.shape or (), np.float32)
        self._learner.warm_up(self._record, action, decides=self._catalog is None)
        if self._catalog is not None:
            self._compile(len(self.items))

    def decide(self, context: Any = None, mask: Any = None, *, items: Iterable[Id] | None = None) -> Decision:
        """Choose an action, which is in the log when this returns.

        Args:
            context: an observation of the space, or with an encoder a row as a dict; with a `Catalog` that of its user,
                or nothing where it has none. Numbers beyond the bounds of a Box of floats are moved to them, and
                `counts` tells in how many contexts.
            mask: (number of ids) bool, whether each arm may be played; None: all. Removed arms never are, nor those
                that were added after the mask was made, which then is shorter.
            items: ids of a `Catalog`'s items, of which one is chosen; None: all.

        Raises:
            TypeError, ValueError: a context, mask or id of another kind, shape or range; the log is unchanged.
            OSError: the log cannot be written; the log is unchanged.
        """
        if self._catalog is not None or items is not None:
            return self._chosen(self._users(context, mask), [items], new_nonces(1))[0]
        observation = context if self._encoder is None else self._encoder(context)
        record = contexts.checked(self._spaces.observation_space, self._record, observation)
        return self._decided(record[None], mask, (), new_nonces(1))[0]

    def decide_many(
        self, stacked: Any, masks: Any = None, *, items: Iterable[Iterable[Id] | None] | None = None
    ) -> list[Decision]:
        """Choose an action for each of several contexts, all by the present belief: as so many calls of `decide`.

        Args:
            stacked: n contexts, stacked: (n, ...), or a dict of such arrays; with an encoder a table, or a list of
                dicts.
            masks: (n, number of ids) bool; None: all arms may be played.
            items: ids of a `Catalog`'s items for each context; None: all.

        Raises:
            As `decide`, for the first that is wrong; the log is unchanged.
        """
        if self._catalog is not None or items is not None:
            users = self._users(stacked, masks, many=True)
            asked = [None] * len(users) if items is None else list(items)
            if len(asked) != len(users):
                raise ValueError(f"items must be one list of ids for each of {len(users)} contexts; got {len(asked)}")
            return self._chosen(users, asked, new_nonces(len(users)))
        stacked, rows = sized(stacked if self._encoder is None else self._encoder.transform(stacked))
        space, none = self._spaces.observation_space, np.empty(0, self._record)
        records = contexts.checked(space, self._record, stacked, rows) if rows else none
        return self._decided(records, masks, (rows,), new_nonces(rows))

    def decide_slate(self, count: int, context: Any = None, *, items: Iterable[Id] | None = None) -> list[Decision]:
        """Choose several different items of a `Catalog`, one after the other, by the present belief.

        Each is a decision of its own among the items that the ones before it have left: its propensity is that of its
        position after those, and its reward is reported with its own token.

        Args:
            count: how many.
            context: as in `decide`.
            items: as in `decide`; at least `count`.

        Raises:
            As `decide`.
        """
        count = checks.count("count", count)
        users = np.repeat(self._users(context, None), count)
        asked = [None if items is None else list(items)] * count
        return self._chosen(users, asked, new_nonces(count), different=True)

    def explain(self, context: Any = None, mask: Any = None, *, items: Iterable[Id] | None = None) -> Explanation:
        """What the agent believes of every arm in a context, how it would play, and why; nothing is logged or changed.

        The first call compiles a program, while others go on.

        Args:
            context: as in `decide`.
            mask: as in `decide`.
            items: as in `decide`.

        Returns:
            Mean, deviation and probability of every arm or item. Where contexts of arms are floats, also by how much
            each of them moves the mean away from that of the mean of the latest contexts; with an encoder, by columns
            of its table.

        Raises:
            TypeError, ValueError: as `decide`; or actions are points of a Box; or the agent, perhaps your own, has no
                `Agent.assess`.
        """
        indexed = bool(self._arms) or self._catalog is not None
        if not indexed or self.agent.assess is None:
            reason = "it has no `assess`" if indexed else "its actions are points of a Box, of which it tries some"
            raise TypeError(f"{self.agent.name} cannot explain how it would play: {reason}")
        if self._catalog is not None or items is not None:
            return self._explained(self._users(context, mask), items)
        observation = context if self._encoder is None else self._encoder(context)
        space = self._spaces.observation_space
        records = contexts.checked(space, self._record, observation)[None]
        known = self._known(records, mask)
        middle = None
        if explanation.has_contributions(space):
            latest = known.latest[contexts.WHOLE]
            middle = latest.mean(0, dtype=float).astype(latest.dtype)
        found = known.learner.explained(known.state, known.record, known.mask, middle)
        return explanation.made(known.outputs, found, known.record, self._encoder, context)

    def learn(self, token: str, reward: Any) -> Result:
        """Learn the reward of a decision, which is in the log when this returns.

        Returns:
            "learned"; or, where nothing is learned, "repeated": the decision has its reward, which stays; "expired";
            "unknown": no decision has this token; "rejected": it is in the log, but would make the belief infinite;
            "removed": it is in the log, but the arm has no output any more. "collected": it is in the log, and part of
            what is learned later.

        Raises:
            TypeError, ValueError: the token is not a str, or the reward not a finite number, or of named ones an
                unknown name, or not all names where they are not collected; the log is unchanged.
            OSError: the log cannot be written; the log is unchanged.
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
            As `learn`, for the first that is wrong; the log is unchanged.
        """
        results = self._reported([(*parsed(token), self._rule.told(reward)) for token, reward in map(pair, pairs)])
        self._snapshot_if_due()
        return results

    def warm_start(self, log: Log) -> None:
        """Learn a log of other decisions row by row, and keep it: all of it or, where that fails, nothing.

        A log that was kept before, also in another process, is not learned again. Ends with a snapshot. Other calls go
        on meanwhile.

        Args:
            log: with contexts as long as a flattened observation, or action features where that is a Dict of one entry,
                and actions that are ids of arms; with a `Catalog`, contexts of users and the ids of items as names of
                the actions, whose features are those of the log or, if it has none, of the catalog. Estimated
                propensities are not kept.

        Raises:
            ValueError: the log does not fit.
            OSError: the log cannot be written.
        """
        check_log(log)
        records, rewards = self._records_of(log), self._rule.of_log(log)
        with self._growing, short_turns(): new = self._add_history(records, log, rewards)  # fmt: skip  # noqa: E701
        if new:
            self._follow()
            self._try_snapshot()

    def add_arm(self) -> int:
        """Admit another arm, of which nothing is known yet; returns its id when it may be played.

        Where no output is free, this takes as long as learning the whole log, except for agents that know better
        (`Agent.widened`). Other calls go on meanwhile.

        Raises TypeError where actions are points of a Box or candidates.
        """
        self._check_arms()
        with self._growing, short_turns(): return self._grown()  # fmt: skip  # noqa: E701

    @exclusive
    def remove_arm(self, arm: int) -> None:
        """Stop playing an arm; rewards of its earlier decisions are still learned.

        Raises:
            TypeError: actions are points of a Box or candidates.
            ValueError: there is no such arm, or no other.
        """
        self._check_arms()
        if arm not in self.arms or len(self.arms) == 1:
            raise ValueError(f"arm must be one of {self.arms}, of which one has to stay; got {arm!r}")
        self._describe(self._learner, {**self._arms, arm: self._arms[arm]._replace(removed=True)})

    def add_items(self, items: Mapping[Any, Any]) -> None:
        """Add items to the catalog, all of them or, where that fails, none; they may be chosen when this returns.

        An item whose id is there takes its place. What was learned stays: of a new item the agent expects what it has
        learned of others with such features. Where a program of another size is needed and `warm_up` or a decision has
        compiled some, it is compiled first. Other calls go on meanwhile.

        Args:
            items: the features (d,) of each by its id, a text or an integer; rows as dicts, if the catalog's `item`
                is an encoder.

        Raises:
            TypeError, ValueError: no catalog; or ids or features of another kind or shape.
            OSError: the log cannot be written.
        """
        ids, features, clipped = checked_items(self._known_catalog().item, items)
        with self._growing, short_turns(): self._change_items(ids, features, (), clipped)  # fmt: skip  # noqa: E701

    def remove_items(self, ids: Iterable[Id]) -> None:
        """Choose items no more; rewards of their earlier decisions are still learned.

        Raises:
            TypeError: there is no catalog.
            ValueError: it has no such item.
            OSError: the log cannot be written.
        """
        item = box_of(self._known_catalog().item)
        none, gone = np.empty((0, *item.shape), self._shelf.features.dtype), list(ids)
        with self._growing, short_turns(): self._change_items((), none, gone)  # fmt: skip  # noqa: E701

    def snapshot(self) -> None:
        """Write the state to the folder, so that a start need not learn again what was learned before."""
        self._write_snapshot()

    def log(self) -> Log:
        """The decisions whose reward and propensity are known, for `seqdec.ope`. Raises ValueError where none is."""
        with short_turns(), closing(self._reader()) as reader:
            return reader.log(self._record)

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
