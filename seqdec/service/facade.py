"""`OnlineAgent`: a `Store` (log), `Learner` (belief), `Rewards` and `Actions`; `Transactions` run one call at a time.

FOLDER/decisions.sqlite     decisions and rewards (`seqdec.service.database`); while in use with SQLite's -wal and -shm
FOLDER/state.safetensors    the last snapshot of the agent's state
FOLDER/.lock                keeps others away
"""

import functools
import gc
import math
import os
import secrets
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as gym_spaces

from seqdec import agents
from seqdec.boundary import checks
from seqdec.boundary.spaces import spaces_of
from seqdec.core import Agent, HasSpaces, PyTree
from seqdec.features import Encoder
from seqdec.introspection import brief, counted, described, listed
from seqdec.ope.comparison import Comparison
from seqdec.ope.log import Label, Log, check_log
from seqdec.persistence import as_json, check_folder_name, check_writable, located, locked, versions
from seqdec.runtime import check_process, is_forked, short_turns
from seqdec.service import logs
from seqdec.service import retention as erasure
from seqdec.service.actions import NOTHING, Actions, Arms, Chosen, Points, Taken, label, no_catalog
from seqdec.service.challenger import Challenger
from seqdec.service.cluster import Cluster, this_process
from seqdec.service.contexts import Contexts, described_record
from seqdec.service.control import Control
from seqdec.service.database import FORMAT, Unit
from seqdec.service.explanation import Explanation, calibrated
from seqdec.service.identity import check_arms, check_facts, described_encoder, has_changed
from seqdec.service.items import ROWS, Catalog, Id, Items
from seqdec.service.learner import Learner, Result, beginning
from seqdec.service.model import Maker, identity_of
from seqdec.service.postgres import Postgres, SharedStore
from seqdec.service.report import Report, Units, report_of
from seqdec.service.retention import Retention
from seqdec.service.rewards import Rewards, make_rule, place_of, worth
from seqdec.service.snapshots import SNAPSHOT, File, Published, Snapshots
from seqdec.service.spool import Spool
from seqdec.service.store import Entry, KeysTakenError, Logged, Store, check_keys, split_number
from seqdec.service.transactions import Transactions

if TYPE_CHECKING:
    import pandas as pd

_PATIENCE = 10.0
"""Seconds that the end of the process waits for another thread's call."""


_REWARDS, _WRITTEN = 32, 256
"""Rewards learned while other calls wait: whole updates of about as many; written, where they are learned later."""


class Decision(NamedTuple):
    """An action, and the token for reporting its reward."""

    action: Any
    """name of the arm, id of the item, or point of a Box"""
    propensity: float
    """probability by which the action was drawn, of a point of a Box its density; NaN where unknown"""
    token: str
    """for `OnlineAgent.learn`"""
    probabilities: tuple[float, ...] | None = None
    """of all arms by id, their place in the order of adding, if the policy computes them and the model has at most 256
    outputs; else None"""


class OnlineAgent:
    """An agent in a service: decides, learns from late rewards, and keeps a durable log of both. Thread-safe.

    >>> import seqdec
    >>> service = seqdec.OnlineAgent("linear", seqdec.envs.linear(), seed=0)
    >>> decision = service.decide(service.agent.spaces.observation_space.sample())
    >>> service.learn(decision.token, 1.0)  # at any later time, in any order
    'learned'

    Args:
        make, spaces, seed: (spaces) -> agent, or its name; anything with observation_space and action_space, or a
            `Catalog` of items; seed for all random choices.
        arms: names of the arms, texts or integers, as many as the action space has; None: the numbers in that space.
            Names beyond those of the log are added.
        encoder: encoder of contexts that are rows of mixed columns, to `encoder.space`.
        folder, fsync, snapshot_every, relearn: folder of log and snapshots (None: in memory); whether every call waits
            for the disk; batches of rewards between snapshots; whether to learn the log again, also one of
            another agent (with a `store`: only then).
        store: a schema of a PostgreSQL database instead of a folder, for any number of processes with equal arguments.
            All decide, one learns, and the others use its last belief: `learn` returns "collected" for rewards that are
            learned a moment later. The database's settings say whether a commit waits for the disk.
        spool: folder for decisions by the last belief while that database does not answer; None: `decide` then raises
            OSError, as other calls always do.
        capacity, batch_size: outputs of the model (None: a quarter to spare, or none if the agent can be widened);
            rewards per update.
        expire_after: seconds in which a decision accepts rewards; None: no limit.
        rewards, reward_after, reward_default, reward_weights: `reward_after` seconds after a decision, the first,
            sum, last or max of its rewards is learned, or the default; None: the first, at once. Named rewards,
            dicts, are learned as their weighted sum.
        retention: seconds after which decisions are removed from the log, as by `compact`, at most an hour later; None:
            never.
        control: share of the units for which a fixed rule decides, for comparison; `decide` then needs the unit.
        challenger: another agent, as `make`, that learns the log in a thread of its own but never plays: for
            `comparison`.

    Raises:
        ValueError: the log belongs to another agent, seed or space, or is damaged; a setting is out of range.
        TypeError: `make` does not make an agent, or a space is of another kind.
        FileExistsError: another process or object uses the folder.
        RuntimeError: this process was forked after seqdec had computed; in all methods but `close`, also once closed.
        OSError: the folder cannot be written or has gone; also in all calls that use the log.
    """

    def __init__(
        self,
        make: str | Callable[[HasSpaces], Agent],
        spaces: HasSpaces | Catalog,
        *,
        seed: int,
        arms: Sequence[Label] | None = None,
        encoder: Encoder | None = None,
        folder: str | os.PathLike[str] | None = None,
        store: Postgres | None = None,
        spool: str | os.PathLike[str] | None = None,
        expire_after: float | None = None,
        rewards: Literal["first", "sum", "last", "max"] = "first",
        reward_after: float | None = None,
        reward_default: float | Mapping[str, float] | None = None,
        reward_weights: Mapping[str, float] | None = None,
        control: Control | None = None,
        challenger: str | Callable[[HasSpaces], Agent] | None = None,
        capacity: int | None = None,
        batch_size: int = 16,
        snapshot_every: int = 10_000,
        fsync: bool = False,
        relearn: bool = False,
        retention: float | None = None,
    ) -> None:
        check_process()
        catalog = spaces if isinstance(spaces, Catalog) else None
        if expire_after is not None:
            checks.positive("expire_after", expire_after)
        self._rule = make_rule(rewards, reward_after, reward_default, reward_weights)
        if retention is not None:
            self._check_age("retention", retention)
        if store is not None and (folder is not None or fsync):
            raise ValueError("store= takes the place of folder= and fsync=: give one of them")
        if store is None and spool is not None:
            raise ValueError(f"spool={os.fspath(spool)!r} is for a store=, which may be away: leave it out")
        function, self._seed = _factory(make), checks.seed("seed", seed)
        self._spaces = spaces_of(spaces) if catalog is None else catalog.spaces(ROWS)  # pyright: ignore
        batch_size = checks.count("batch_size", batch_size)
        snapshot_every = checks.count("snapshot_every", snapshot_every)
        self._portion = batch_size * max(1, (_REWARDS if store is None else _WRITTEN) // batch_size)
        observations, actions = self._spaces
        _check_encoder(encoder, observations, catalog)
        contexts = Contexts(observations, encoder)
        names = _names(arms, actions if catalog is None else None)
        if catalog is not None and capacity is not None:
            raise ValueError(f"capacity={capacity} is for arms; a catalog needs none: leave it out")
        outputs = None if capacity is None else checks.count("capacity", capacity, max(len(names), 1))
        maker = Maker(function, self._spaces, names, self._seed, batch_size, contexts.record.itemsize)
        self._actions: Actions
        if catalog is not None:
            self._actions = Items(contexts, catalog, maker)
        elif names:
            self._actions = Arms(contexts, names, named=arms is not None)
        else:
            self._actions = Points(contexts, actions)  # pyright: ignore[reportArgumentType]
        facts = {
            "format": FORMAT,
            "versions": versions(),
            "seed": self._seed,
            "batch_size": batch_size,
            "record": described_record(contexts.record),
            "encoder": described_encoder(encoder if catalog is None else catalog.encoders),
            **self._rule.facts(),
        }
        self._folder = None if folder is None else located(folder)
        self._long, self._held = threading.RLock(), ExitStack()  # for what takes long; what is closed in the end
        try:
            if self._folder is not None:
                check_folder_name(self._folder)
                is_new = not self._folder.exists()
                check_writable(self._folder)
                if is_new:
                    self._folder.chmod(0o700)  # contexts are data of persons
                self._held.enter_context(locked(self._folder))
            snapshots: Snapshots | None = None
            if store is not None:
                away = None if spool is None else Spool(located(spool))
                if away is not None:
                    self._held.callback(away.close)
                self._store = SharedStore(store, away)
                snapshots = Published(self._store)
                self._held.callback(snapshots.close)
            else:
                self._store = Store(self._folder, fsync=fsync)
                snapshots = None if self._folder is None else File(self._folder, self._store)
            self._held.callback(self._store.close)
            value = functools.partial(worth, weights=self._rule.weights)
            self._learner = Learner(
                self._store, self._actions, contexts, maker, value, facts, snapshots, snapshot_every
            )
            self._rewards = Rewards(self._rule, expire_after, self._store, self._learner)
            self._transact = Transactions(self._store, self._learner, self._rewards)
            self._cluster = None
            if isinstance(self._store, SharedStore):
                self._cluster = Cluster(self._store, self._learner, self._rewards, self._transact)
                self._held.callback(self._cluster.close)
            self._open(facts, maker, outputs, relearn)
            self._control = control
            if control is not None:
                self._known_arms().check_control(control)
            other = None if challenger is None else maker._replace(make=_factory(challenger))
            if other is not None:
                self._known_arms()
                other.agent(self._learner.model.outputs)  # raises where it does not fit
        except BaseException:
            _close(self._held)
            raise
        self._challenger: Challenger | None = None
        if other is not None:
            given = other, self._store, self._known_arms(), contexts, value, self._transact
            self._challenger = Challenger(*given)
        self._retention = None if retention is None else self._retained(retention)
        every = self._challenger, self._retention, self._cluster
        self._threads = [thread for thread in every if thread is not None]
        if self._cluster is not None:
            self._cluster.start()
        # of garbage, and at the end
        self._free = weakref.finalize(self, _end, self._transact.lock, self._held, *self._threads)

    def _open(self, facts: dict[str, Any], maker: Maker, outputs: int | None, relearn: bool) -> None:
        """Begin or go on with the log; what changes it is the learner's."""
        if self._cluster is None:
            self._begun(facts, maker, outputs, relearn)
        elif not self._begun(facts, maker, outputs, relearn, only_follow=True):
            with self._cluster.opening():
                self._begun(facts, maker, outputs, relearn)

    def _begun(
        self, facts: dict[str, Any], maker: Maker, outputs: int | None, relearn: bool, *, only_follow: bool = False
    ) -> bool:
        """Whether the log is open; with `only_follow`, not if it would have to be changed."""
        found = self._store.facts()
        if not found:
            if not only_follow:
                self._learner.begin(outputs)
            return not only_follow
        check_facts(self._store.path, found, facts)
        known = tuple(arm.name for arm in self._store.arms().values())
        check_arms(self._store.path, known, maker.arms, found["first"])
        before, agent = found["outputs"], maker.agent(found["outputs"])
        changed = has_changed(self._store.path, found, {**facts, **identity_of(agent)}, relearn=relearn)
        if changed and agent.weighted and found["settings"] != as_json(dict(agent.settings)):
            raise ValueError(
                f"{self._store.path} has decisions of another law than that of {agent.name}, which counts its own: "
                "give it a folder of its own, and let it learn this log, warm_start(seqdec.service.read_log(folder))"
            )
        after = max(before, outputs or 0)
        again = changed or after > before or (relearn and self._cluster is None)  # of several, each would
        if only_follow and (again or maker.arms[len(known) :]):
            return False
        if changed and (base := self._store.base):
            raise ValueError(beginning(self._store.path, base))
        agent = maker.agent(after) if after > before else agent
        self._learner.resume(agent, after, found["generation"] + again, relearn=again)
        for name in maker.arms[len(known) :]:
            self._learner.add_arm(self._transact.patient, self._known_arms(), name)
        return True

    def __repr__(self) -> str:
        store, counts = self._store, self._rewards.counts
        where = "memory" if self._folder is None else str(self._folder)
        if self._cluster is not None:
            where, written = str(store.path), "learns" if self._learner.leads else "follows the process that learns"
        else:
            written = f"{counted(store.decisions, 'decision')} and {counted(store.rewards, 'reward')} in the log"
            if base := store.base:
                written += f", from which those up to number {base.number:,} were removed"
        here = ", ".join(f"{count:,} {result}" for result, count in counts.items())
        return described(
            f"OnlineAgent {self.agent.name} in {where}{'' if self._transact.is_open else ', closed'}",
            f"observations {brief(self._spaces.observation_space)}; actions: {self._actions}; seed {self._seed}",
            f"{written}{f'; in this process {here}' if here else ''}",
            f"settings: {listed(self.agent.settings)}" if self.agent.settings else "no settings",
        )

    @property
    def agent(self) -> Agent:
        """The agent, with an output for each arm and `capacity` in all."""
        return self._learner.model.agent

    @property
    def state(self) -> PyTree:
        """A copy of the agent's state."""
        return self._transact(lambda: jax.tree.map(jnp.copy, self._learner.model.belief.state))

    @property
    def arms(self) -> tuple[Label, ...]:
        """Names of the arms that may be played; empty for other actions."""
        return self._actions.live if isinstance(self._actions, Arms) else ()

    @property
    def items(self) -> tuple[Id, ...]:
        """Ids of the catalog's present items; empty without a catalog."""
        return tuple(self._actions.inventory.numbers) if isinstance(self._actions, Items) else ()

    @property
    def counts(self) -> Mapping[str, int]:
        """Numbers of decisions and rewards in the log and, in this process, of results of `learn` and other events.

        "clipped": contexts beyond the bounds of their Box; "outside": contexts with a number far outside of what was
        learned, which of each column warns once: of what its encoder was fitted to, or, in a vector without an encoder,
        of what an agent in standard units has learned; "known": rows of `warm_start` that the log had; "default":
        decisions that learned the default reward; "incomplete": decisions with some of their named rewards. "learned"
        includes combined rewards.
        """
        store, counts = self._store, self._rewards.counts
        return self._transact(lambda: {"decisions": store.decisions, "rewards": store.rewards, **counts})

    @property
    def lag(self) -> float:
        """Seconds since the first logged reward that this process's belief lacks; 0 without one, or without `store`."""
        if self._cluster is None:
            return 0.0
        return self._transact(self._cluster.lag, urgent=True)

    @property
    def learner(self) -> str | None:
        """Host and number of the learning process, this one without `store`; None if there is none."""
        if self._cluster is None:
            return this_process()
        return self._transact(self._cluster.learner, urgent=True)

    def warm_up(self, *, first: bool = False) -> None:
        """Compile all programs, while decisions continue and learning waits.

        Python's objects are exempted from garbage collection (`gc.freeze`), whose pass over them would stop all
        threads.

        Args:
            first: compile, without optimization, only what one decision needs; many are then made one by one, until
                another `warm_up` has compiled the rest.
        """
        if checks.flag("first", first):
            self._transact(lambda: self._actions.begin(self._learner.model), urgent=True)
            gc.freeze()
        else:
            self._slowly(self._warm_up)

    def decide(
        self,
        context: Any = None,
        mask: Any = None,
        *,
        items: Iterable[Id] | None = None,
        key: str | None = None,
        active: bool = True,
        taken: Label | None = None,
        chance: float = 1.0,
        unit: str | None = None,
    ) -> Decision:
        """Choose an action and commit it to the log.

        Args:
            context: an observation, a row as a dict (with an encoder), or the user's context (with a `Catalog`);
                clipped to the bounds of a Box of floats.
            mask: arms that may be played: a set or list of names, a dict of bools by name, or bools for all arms ever
                added, in the order of their ids; None: all. Arms beyond the length of bools are not allowed.
            items: ids of a `Catalog`'s items to choose from; None: all.
            key: your name for the decision, such as "ann/17": a retry with the same key returns the first decision, in
                any context, also after a restart. `forget` accepts it, or its part before a "/".
            active: False for a decision that may never be shown: it has no default reward and no time limit until
                `activate` or its first reward.
            taken, chance: the arm that another rule plays, such as today's, and its probability under that rule. The
                decision is then that arm; what the agent would have played is logged for `comparison`.
            unit: with a control group, your name for the user or other unit that the decision concerns, which stays in
                one group; the log has a digest of it. Not used where another rule plays.

        Raises TypeError or ValueError for a context, mask, id, key, unit or arm of another kind, shape or range, or if
        the first decision with the key is not allowed by the mask or items or has another taken arm, and OSError if the
        log cannot be written; the log is unchanged.
        """
        rule = () if taken is None else self._taken([taken], [chance])
        units = self._units(None if unit is None else [unit], rule)
        keys = () if key is None else check_keys([key])
        asked = self._actions.ask(context, mask, items)
        return self._transact(self._decide, asked, keys, checks.flag("active", active), rule, units, urgent=True)[0]

    def decide_many(
        self,
        contexts: Any,
        masks: Any = None,
        *,
        items: Iterable[Iterable[Id] | None] | None = None,
        keys: Sequence[str] | None = None,
        active: bool = True,
        taken: Sequence[Label] | None = None,
        chances: Sequence[float] | None = None,
        units: Sequence[str] | None = None,
    ) -> list[Decision]:
        """Choose an action for each of several contexts, as `decide`; all or none.

        More than 256 (16 with a `Catalog`) are decided in portions, each by the current belief, with other calls in
        between; decisions before an exception are withdrawn and erased.

        Args:
            contexts: stacked (n, ...), or a dict of such arrays; with an encoder a table, or a list of dicts.
            masks: (n, number of ids) bool, a table with a column for each name, or a list of masks as in `decide`;
                None: all arms.
            items: ids of items for each context; None: all.
            keys: one for each context; None: none.
            active: for all decisions, as in `decide`.
            taken, chances: arms that another rule plays, one for each context, and their probabilities; None: 1.
            units: one for each context.
        """
        rule = () if taken is None else self._taken(taken, chances)
        of = self._units(units, rule)
        given = () if keys is None else check_keys(checks.ordered("keys", keys, "a list of texts"))
        asked, size = self._actions.ask_many(contexts, masks, items), self._actions.portion
        checks.flag("active", active)
        if keys is not None and asked.size != len(given):
            raise ValueError(f"keys must be one for each of {asked.size} contexts; got {len(given)}")
        if taken is not None and asked.size != len(rule):
            raise ValueError(f"taken must be an arm for each of {asked.size} contexts; got {len(rule)}")
        if of and asked.size != len(of):
            raise ValueError(f"units must be one for each of {asked.size} contexts; got {len(of)}")
        if asked.size <= size:
            return self._transact(self._decide, asked, given, active, rule, of, urgent=True)
        asked, made = self._transact(self._actions.taken, asked, urgent=True), []
        before = self._store.last
        try:
            with short_turns():
                for start in range(0, asked.size, size):
                    part = slice(start, min(start + size, asked.size))
                    some = self._actions.some(asked, range(part.start, part.stop))
                    made += self._transact.patient(
                        self._decide, some, given[part], active, rule[part], of[part], urgent=True
                    )
        except BaseException:
            blocks = {split_number(number)[:2] for number in (before, self._store.last)}  # of this process
            numbers = [place_of(one.token)[0] for one in made]
            numbers = [number for number in numbers if number > before and split_number(number)[:2] in blocks]
            for start in range(0, len(numbers), size):
                self._transact.patient(self._store.erase, numbers[start : start + size], urgent=True)
            raise
        return made

    def decide_slate(
        self,
        count: int,
        context: Any = None,
        *,
        items: Iterable[Id] | None = None,
        key: str | None = None,
        active: bool = True,
    ) -> list[Decision]:
        """Choose `count` different items of a `Catalog` for a context, by the current belief.

        Each has its own token, and its propensity among the items not yet chosen. With a key the decisions have keys
        key/0, key/1, ....
        """
        asked = self._items().ask_slate(count, context, items)
        keys = () if key is None else [f"{check_keys([key])[0]}/{place}" for place in range(count)]
        return self._transact(self._decide, asked, keys, checks.flag("active", active), urgent=True)

    def explain(self, context: Any = None, mask: Any = None, *, items: Iterable[Id] | None = None) -> Explanation:
        """Belief about every arm or item in a context, with probabilities and contributions; nothing is logged.

        The first call compiles a program while others go on. Arguments and errors as in `decide`; also TypeError for
        points of a Box and agents without `Agent.assess`.
        """
        asked = self._actions.ask(context, mask, items)
        explained = self._transact(lambda: self._actions.explain(self._store, self._learner.model, asked), urgent=True)
        if self.agent.assess is None:
            raise TypeError(f"{self.agent.name} cannot explain its decisions: it has no `assess`")
        return explained(context)

    def calibration(self, most: int = 1000) -> "pd.DataFrame":
        """How well the belief predicts the rewards of the latest decisions of arms: a row for each fifth of them.

        Sorted by expected reward, with columns decisions, expected and observed (mean rewards), and std_error of their
        difference. The belief has learned these rewards, so it fits them slightly better than new ones.

        Raises TypeError for other actions and agents without `Agent.assess`, ValueError where no reward is known.
        """
        arms, most = self._known_arms(), checks.count("most", most)
        if self.agent.assess is None:
            raise TypeError(f"{self.agent.name} cannot report expected rewards: it has no `assess`")
        with short_turns():
            with logs.opened(self._store, self._transact) as database:
                found = logs.latest_rewarded(database, most)
            return calibrated(*self._transact(lambda: arms.expected(self._learner.model, *found))())

    def learn(self, token: str, reward: Any, *, key: str | None = None) -> Result:
        """Commit the reward of a decision to the log and learn it.

        Args:
            token: token of the decision.
            reward: a number, or a dict of named ones.
            key: your name for the report, such as an order number: where rewards are combined, only the first report
                with a key counts.

        Returns:
            "learned"; "collected": to be combined and learned later; "repeated": the decision keeps its first reward;
            "expired"; "unknown" token; "rejected": logged, but would make the belief infinite; "removed": logged, but
            the arm no longer has an output; "withdrawn": the decision was withdrawn.

        Raises TypeError or ValueError for a token that is not a str, a reward that is not finite, or wrong names, and
        OSError if the log cannot be written; the log is unchanged.
        """
        return self.learn_many([(token, reward, key)])[0]

    def learn_many(self, pairs: Iterable[tuple[str, Any] | tuple[str, Any, str | None]]) -> list[Result]:
        """Learn (token, reward) or (token, reward, key), `batch_size` per update of `update_batch`; as `learn`.

        Many are learned in portions, with other calls in between; an exception does not undo earlier portions.
        """
        parsed, results = self._rewards.parse(pairs), []
        if self._cluster is None:
            self._learner.is_warm.wait()
        size = self._portion
        if len(parsed) <= size + 1:  # of one reward alone `update` would be another program
            results = self._transact(self._rewards.report, parsed)
        else:
            with short_turns():
                while parsed:
                    some = parsed[: size + (len(parsed) == size + 1)]
                    results += self._transact.patient(self._rewards.report, some)
                    parsed = parsed[len(some) :]
        if self._cluster is None:
            self._learner.snapshot_if_due(self._transact)
        return results

    def activate(self, token: str) -> Result:
        """Log that a decision of `active=False` was shown: its default reward and its time begin now.

        Returns "activated", now, before or from the beginning; "withdrawn"; "unknown" token. Raises TypeError for a
        token that is not a str, OSError if the log cannot be written.
        """
        return self._transact(self._rewards.activate, *place_of(token))

    def withdraw(self, token: str) -> Result:
        """Log that a decision was never shown: nothing is learned from it, not even the default reward.

        Returns "withdrawn", now or before; "repeated": it keeps its reward; "unknown" token. Raises TypeError
        for a token that is not a str, OSError if the log cannot be written.
        """
        return self._transact(self._rewards.withdraw, *place_of(token))

    def forget(self, keys: Iterable[str] = (), *, older_than: float | None = None) -> int:
        """Erase contexts, masks, keys, tokens and probabilities from the log's files; returns of how many decisions.

        Their time, action, propensity and reward stay, for totals; those without a reward are withdrawn. The belief,
        and the memory of an agent that has one, keep what they learned, in a snapshot written before; learning the log
        again omits them, with a RuntimeWarning.

        Args:
            keys: tokens, keys of decisions, or parts of keys before a "/", such as a person.
            older_than: also all decisions older than so many seconds; for imported logs by their own times or, without,
                by the time of import.

        Raises TypeError or ValueError for keys that are not texts, OSError if a file cannot be written.
        """
        if isinstance(keys, str):
            raise TypeError(f"keys must be a list of texts; got {keys!r:.80}")
        if older_than is not None:
            checks.positive("older_than", older_than)
        names = [(key, *place_of(key)) for key in check_keys(keys)]
        with self._leading():
            return self._slowly(erasure.forget, self._store, self._learner, self._transact.patient, names, older_than)

    def compact(self, older_than: float) -> int:
        """Remove decisions older than so many seconds, with all that belongs to them; returns how many.

        The belief, which has learned them, is written to the log as its base, and the file shrinks, in short steps with
        other calls in between. From then on the log can only be learned from this base: by the same agent, or one with
        more arms through `Agent.widened`. Rewards of removed decisions are "unknown".

        Raises ValueError for less time than decisions accept rewards, or a damaged row; OSError if the log cannot be
        written.
        """
        self._check_age("older_than", older_than)
        with self._leading():
            return self._slowly(erasure.compact, self._store, self._learner, self._transact.patient, older_than)

    def warm_start(self, log: Log) -> None:
        """Import a log and learn it row by row, all or nothing, while other calls go on. Ends with a snapshot.

        Rows that this agent's log already has, its own or imported, are not learned again: rows with the same key, or
        without keys the same context, action, propensity, reward and time, as often as it has them. Row numbers do not
        count as times: without both, rows are compared by the rest if it distinguishes them, else from the first one
        on, with a RuntimeWarning if some are known. `counts` has the number of "known" rows.

        Args:
            log: contexts as long as a flattened observation, or action features if that is a Dict of one entry; actions
                by name, else by id; names are ids of a `Catalog`'s items. Names other than the arms' stand for the arms
                in their order, here and in all later logs. Estimated propensities are not kept.

        Raises ValueError if actions, columns or encoder of the log differ from the agent's or earlier logs', or it does
        not fit otherwise; OSError if it cannot be written.
        """
        check_log(log)
        with self._leading():
            merged = self._slowly(logs.import_log, self._store, self._actions, self._transact.patient, log, self._rule)
            self._count(merged._asdict())
            if merged.known < len(log):
                self._learner.follow(self._transact.patient)
                self._learner.try_snapshot(self._transact)

    def add_arm(self, name: Label | None = None) -> Label:
        """Add an arm, or bring a removed one back; returns its name when it may be played.

        Without a free output a wider model first learns the log, except rewards of removed arms, while other calls
        continue; agents with `Agent.widened` need not.

        Args:
            name: a text or an integer; None: the next number.

        Raises TypeError if actions are not arms, or only this arm lacks a name; ValueError for the name of a present
        arm, or a number other than the next.
        """
        with self._leading():
            return self._slowly(self._learner.add_arm, self._transact.patient, self._known_arms(), name)

    def remove_arm(self, arm: Label) -> None:
        """Stop playing an arm; rewards of earlier decisions are still learned.

        Raises TypeError where actions are not arms, ValueError for an unknown arm or the only one.
        """
        arms = self._known_arms()
        with self._leading():
            self._transact(lambda: self._learner.use(self._learner.model, arms.without(arm)))

    def add_items(self, items: Mapping[Any, Any]) -> None:
        """Add items to the catalog, or replace those with the same ids; all or none, while other calls go on.

        Args:
            items: features (d,) by id, a text or an integer; rows as dicts for an encoder.

        Raises TypeError or ValueError without a catalog, or for invalid ids or features; and OSError.
        """
        with self._leading():
            clipped = self._slowly(self._items().add, self._store, self._learner.model, self._transact.patient, items)
        self._count({"clipped": clipped})

    def remove_items(self, ids: Iterable[Id]) -> None:
        """Stop choosing items; rewards of earlier decisions are still learned.

        Raises TypeError without a catalog, ValueError for an unknown item, and OSError.
        """
        with self._leading():
            self._slowly(self._items().remove, self._store, self._learner.model, self._transact.patient, ids)

    def snapshot(self) -> None:
        """Write the state to the folder or store, so that the next start only learns later rewards."""
        with self._leading():
            self._learner.snapshot(self._transact)

    def backup(self, folder: str | os.PathLike[str]) -> None:
        """Write a snapshot, and a copy of it and the log to a new folder, while other calls go on.

        The copy is verified in full: ValueError if a bit of a row or an index has changed. An agent with that folder
        continues from it. Raises FileExistsError for an existing folder, OSError if it cannot be written; then nothing
        of it is left.
        """
        to = located(folder)
        if self._cluster is not None:
            raise TypeError(
                "back up a database with its own tools, such as pg_dump; `seqdec store copy` writes a folder"
            )
        self._slowly(self._learner.snapshot, self._transact)
        self._slowly(logs.back_up, self._store, self._transact, self._folder and self._folder / SNAPSHOT, to)

    def log(self) -> Any:
        """Decisions with known reward and propensity, for `seqdec.ope`: a `Log`, of points of a Box a `ContinuousLog`.

        Raises ValueError where there is none.
        """
        with short_turns(), logs.opened(self._store, self._transact) as database:
            return logs.log_of(database)

    def comparison(
        self,
        against: Literal["rule", "control", "challenger"] = "rule",
        *,
        seed: int,
        latest: int | None = None,
        reward_range: tuple[float, float] | None = None,
    ) -> Comparison:
        """Whether the agent earns more than another rule, or its challenger more than the agent.

        "rule": would it earn more than the rule that it imitated, in decisions with `taken`? The target is the agent's
        probabilities in each decision, or its choice if it does not compute them. They only depend on earlier rows, as
        the estimators of `seqdec.ope.compare` require.

        "control": does it earn more than the control group? The agent and the control group are two arms, whose
        propensities are their shares of units; rows of one unit depend on each other.

        "challenger": would the challenger earn more than the agent, in the last 100,000 of the agent's decisions that
        the challenger has learned since the start?

        Args:
            against: what to compare with.
            seed, reward_range: as in `seqdec.ope.compare`.
            latest: number of latest decisions with a reward to use; None: their later half, in which the agent had
                learned something.

        Raises ValueError if no such decision has a reward.
        """
        checks.choice("against", against, logs.COMPARED)
        seed, latest = checks.seed("seed", seed), None if latest is None else checks.count("latest", latest)
        laws = {} if self._challenger is None else dict(self._challenger.laws)
        with short_turns(), logs.opened(self._store, self._transact) as database:
            return logs.COMPARED[against](database, laws, latest, seed=seed, reward_range=reward_range)

    def report(
        self,
        *,
        reward_range: tuple[float, float] | None = None,
        segments: Sequence[str] = (),
        decisions: int = 1,
        within: float = 0.0,
    ) -> Report:
        """Which arm earns most, the gain over the control group, and whether a challenger would have earned more.

        Valid after every reward, however often it is called: for each question, conclusions hold at 95% at all times
        together.

        Args:
            reward_range: (low, high) of all possible rewards; None: (0, 1) for rewards of 0 and 1.
            segments: columns of the encoder for whose levels arms are compared as well; choose them before looking.
            decisions, within: for each unit of the control group's experiment, such as a user, rewards of the first
                `decisions` within `within` seconds of the first one count.

        Raises ValueError for columns without levels, or more than 20 levels in all; TypeError and ValueError for other
        settings out of range.
        """
        most = checks.count("decisions", decisions)
        checks.number("within", within, 0)
        if (most > 1) is not (within > 0):
            raise ValueError(f"several decisions of a unit need a time: got decisions={most}, within={within:g}")
        columns = checks.ordered("segments", segments, "a list of columns")
        laws = None if self._challenger is None else dict(self._challenger.laws)
        with short_turns(), logs.opened(self._store, self._transact) as database:
            return report_of(
                database,
                laws,
                reward_range=reward_range,
                segments=columns,
                units=Units(most, within),
            )

    def close(self) -> None:
        """Write a snapshot and release the folder. Does nothing after a fork."""
        if is_forked():
            return
        for thread in self._threads:
            thread.stop()
        with self._transact.lock, self._learner.writing: self._closed()  # fmt: skip  # noqa: E701

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

    def _check_age(self, called: str, seconds: float) -> None:
        """Raises ValueError for an age at which decisions may still wait for their rewards."""
        checks.positive(called, seconds)
        if self._rule.after is not None and seconds < self._rule.after:
            raise ValueError(
                f"{called}={seconds:g} must be at least reward_after={self._rule.after:g}, the seconds in which a "
                "decision takes rewards"
            )

    def _retained(self, seconds: float) -> Retention:
        """Begin to remove what is older. Holds no reference to this agent, which may become garbage."""
        store, learner, long = self._store, self._learner, self._long

        def removed(transact: Any) -> int:
            if not learner.leads:
                return 0
            with long, short_turns():
                return erasure.compact(store, learner, transact, seconds)

        return Retention(removed, store, self._transact.patient, seconds)

    def _taken(self, arms: Sequence[Label], chances: Sequence[float] | None) -> list[Taken]:
        """What another rule plays. Raises TypeError or ValueError."""
        self._known_arms()
        arms = checks.ordered("taken", arms, "a list of arms")
        chances = [1.0] * len(arms) if chances is None else checks.ordered("chances", chances, "a list of numbers")
        if len(chances) != len(arms):
            raise ValueError(f"chances must be one for each of {len(arms)} arms that are taken; got {len(chances)}")
        for chance in chances:
            if not 0 < checks.real("chance", chance) <= 1:
                raise ValueError(f"chance must be a probability above 0, of the arm that is taken; got {chance!r}")
        return list(map(Taken, arms, map(float, chances)))

    def _units(self, names: Sequence[str] | None, rule: Sequence[Taken]) -> list[Unit]:
        """The groups of units; none without a control group. Raises TypeError or ValueError."""
        if self._control is None:
            if names is not None:
                raise ValueError(f"units are for a control group, and this agent has none; got {names!r:.80}")
            return []
        if rule:
            return []
        if names is None:
            raise ValueError("with a control group, a decision needs the unit that it is for, such as a user's name")
        return [
            self._control.unit(self._learner.log, name) for name in check_keys(checks.ordered("units", names, "a list"))
        ]

    def _decide(
        self, asked: Any, keys: Sequence[str], active: bool, rule: Sequence[Taken] = (), units: Sequence[Unit] = ()
    ) -> list[Decision]:
        """Decide, or return the first decisions of these keys; where there is a rule, for it."""
        while True:
            with suppress(KeysTakenError):  # another process has decided meanwhile
                return self._decided(asked, keys, active, rule, units)

    def _decided(
        self, asked: Any, keys: Sequence[str], active: bool, rule: Sequence[Taken], units: Sequence[Unit]
    ) -> list[Decision]:
        if not keys:
            return self._logged(self._chosen(asked, rule, units), keys, active, units)
        stored = self._store.keyed(dict.fromkeys(keys))
        known = {key: _decision(found, self._actions.shown(found.action)) for key, found in stored.items()}
        played = {key: found.action for key, found in stored.items()}
        new = {key: place for place, key in reversed(list(enumerate(keys))) if key not in stored}
        places = sorted(new.values())
        own = [keys[place] for place in places]
        chosen, of = NOTHING, [units[place] for place in places] if units else ()
        if places:
            some = asked if len(places) == len(keys) else self._actions.some(asked, places)
            chosen = self._chosen(some, [rule[place] for place in places] if rule else (), of)
            played |= zip(own, chosen.written, strict=True)
        again = {place: played[key] for place, key in enumerate(keys) if new.get(key) != place}
        if (place := self._actions.forbidden(asked, again)) is not None:
            action = self._actions.shown(again[place])
            raise ValueError(
                f"the key {keys[place]!r} is of a decision for {action!r:.80}, which is not allowed here: give this "
                "decision a key of its own"
            )
        for place, action in again.items() if rule else ():
            if (first := self._actions.shown(action)) != rule[place].arm:
                raise ValueError(
                    f"the key {keys[place]!r} is of a decision for {first!r:.80}, and {rule[place].arm!r:.80} is taken "
                    "now: give this decision a key of its own"
                )
        known |= zip(own, self._logged(chosen, own, active, of), strict=True)
        return [known[key] for key in keys]

    def _chosen(self, asked: Any, rule: Sequence[Taken], units: Sequence[Unit]) -> Chosen:
        first = self._store.next_number()
        chosen = self._actions.choose(self._learner.model, first, asked)
        if rule:
            return self._known_arms().imitated(chosen, rule)
        if self._control is not None and any(unit.is_control for unit in units):
            draws = {place: (self._seed, first + place) for place, unit in enumerate(units) if unit.is_control}
            return self._known_arms().controlled(chosen, self._control, draws)
        return chosen

    def _logged(self, chosen: Chosen, keys: Sequence[str], active: bool, units: Sequence[Unit] = ()) -> list[Decision]:
        count = len(chosen.actions)
        if not count:
            return []
        content = secrets.token_bytes(8 * count)
        nonces = [content[8 * place : 8 * place + 8] for place in range(count)]
        laws, shadows = (
            [None if law is None else np.array(law, "<f4").tobytes() for law in given]
            for given in (chosen.probabilities, chosen.shadows or [None] * count)
        )
        parts = nonces, chosen.contexts, chosen.masks, chosen.written, chosen.propensities, keys or [None] * count
        entries = list(map(Entry, *parts, laws, shadows, [self._learner.model.belief.batch] * count))
        first = self._store.append_decisions(entries, units, active=active)
        if chosen.clipped:
            self._rewards.counts["clipped"] += chosen.clipped
        if chosen.outside:
            self._rewards.counts["outside"] += chosen.outside
        tokens = [f"{number}-{nonce.hex()}" for number, nonce in enumerate(nonces, first)]
        return list(map(Decision, chosen.actions, chosen.propensities, tokens, chosen.probabilities))

    def _warm_up(self) -> None:
        ready = self._learner.is_warm
        ready.clear()
        try:
            steps = self._actions.warm_up(self._learner.model)
            self._transact(next, steps, urgent=True)
            for learns in steps:
                if learns:
                    ready.set()
                if not self._transact.is_open:
                    return
                gc.collect()
                gc.freeze()
        finally:
            ready.set()

    def _leading(self) -> AbstractContextManager[None]:
        """While this process learns, as it always does without others."""
        return nullcontext() if self._cluster is None else self._cluster.leading()

    def _slowly(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a call that takes long, one at a time, while others go on."""
        with self._long, short_turns(): return call(*arguments)  # fmt: skip  # noqa: E701

    def _count(self, events: Mapping[str, int]) -> None:
        new = {event: count for event, count in events.items() if count}
        with self._transact.lock: self._rewards.counts.update(new)  # fmt: skip  # noqa: E701

    def _items(self) -> Items:
        if not isinstance(self._actions, Items):
            raise no_catalog()
        return self._actions

    def _known_arms(self) -> Arms:
        candidates = isinstance(self._spaces.observation_space, gym_spaces.Dict)
        if not isinstance(self._actions, Arms) or candidates:
            kind = "candidates, which a mask allows or not" if candidates else "points of a Box"
            kind = "items: use add_items and remove_items" if isinstance(self._actions, Items) else kind
            raise TypeError(f"arms can be added and removed where actions have an index; here they are {kind}")
        return self._actions

    def _closed(self) -> None:
        try:
            if self._transact.is_open and self._free.alive:
                self._transact.recover()
                self._learner.finish()
        finally:
            self._transact.is_open = self._learner.is_open = False
            self._free.detach()
            _close(self._held)


def _decision(found: Logged, action: Any) -> Decision:
    law = None if found.logging is None else tuple(np.frombuffer(found.logging, "<f4").tolist())
    propensity = math.nan if found.propensity is None else found.propensity
    return Decision(action, propensity, str(found.token), law)


def _factory(make: str | Callable[[HasSpaces], Agent]) -> Callable[[HasSpaces], Agent]:
    if isinstance(make, str):
        return agents.REGISTRY[make]
    if not callable(make):
        raise TypeError(
            "make must be a function (spaces) -> agent, such as seqdec.agents.auto or lambda spaces: "
            f"seqdec.agents.hilofi(spaces, rank=10), or the name of one, such as 'auto'; got {make!r:.80}"
        )
    return make


def _names(arms: Sequence[Label] | None, actions: gym_spaces.Space | None) -> tuple[Label, ...]:
    """Names of the arms in an action space; none for other actions, and where there is none for a catalog."""
    if not isinstance(actions, gym_spaces.Discrete):
        if arms is not None:
            raise TypeError(f"arms are for Discrete actions, which have an index; got arms={arms!r:.80} for {actions}")
        return ()
    start, size = int(actions.start), int(actions.n)
    if arms is None:
        return tuple(range(start, start + size))
    names = tuple(label("the name of an arm", name) for name in checks.ordered("arms", arms, "a list of names"))
    if len(names) != size or len(set(map(str, names))) < size:
        raise ValueError(
            f"arms must be {size} different names, as many as {actions} has; got {list(names)!r:.200}: names differ, "
            "also as text"
        )
    return names


def _check_encoder(encoder: Any, space: gym_spaces.Space, catalog: Catalog | None) -> None:
    """Refuse an encoder of another space or beside a catalog, and other objects."""
    if encoder is None:
        return
    if not isinstance(encoder, Encoder):
        raise TypeError(f"encoder must be a seqdec.features.Encoder; got {encoder!r:.80}")
    if catalog is not None:
        raise TypeError("a catalog has encoders of its own: Catalog(item=encoder, user=encoder), without encoder=")
    if encoder.space != space:
        raise ValueError(
            f"the observation space must be that of the encoder, encoder.space, of {len(encoder.names)} features; got "
            f"{space!r:.200}"
        )


def _end(lock: Any, held: ExitStack, *threads: Retention | Challenger | Cluster) -> None:
    """`_close` after another thread's call; SQLite and JAX crash in threads that use them while the process ends.

    A call longer than `_PATIENCE` keeps what it uses.
    """
    if is_forked():
        return
    for thread in threads:
        thread.stop()
    if lock.acquire(timeout=_PATIENCE):  # for ever
        held.close()


def _close(held: ExitStack) -> None:
    """Close the log and unlock the folder, unless forked: the copies are the parent's."""
    if not is_forked():
        held.close()
