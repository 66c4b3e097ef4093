"""Deployments: an `OnlineAgent` each, made of a declaration.

Servers of one database agree on what is declared over HTTP, archived or has taken over: each looks every second.
"""

import asyncio
import functools
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from gymnasium import spaces

from seqdec import agents
from seqdec.core import HasSpaces, Spaces
from seqdec.ope import Comparison, Log
from seqdec.registry import unknown
from seqdec.serve.config import Declaration, Features, Floor, Found, Player, segments_in
from seqdec.serve.kept import Folder, Kept, Place, Table, check_moved
from seqdec.serve.queue import Batches
from seqdec.service import Catalog, Control, OnlineAgent, read_log
from seqdec.service.cluster import this_process
from seqdec.service.identity import ChangedError
from seqdec.service.logs import is_database
from seqdec.service.postgres import Postgres
from seqdec.service.report import Report, segments_of

_LOOK = 1.0
"""Seconds between looks for what other servers have done."""
_MOST = 256
"""Rows of one transaction."""
_NOTHING = np.zeros(1, np.float32)
"""The context where none is declared."""
Against = Literal["rule", "control", "challenger"]
State = Literal["opening", "open", "archived", "failed"]
log = logging.getLogger("seqdec.serve")


class Asked(NamedTuple):
    """A decision that is asked for."""

    context: Any
    mask: list[str | int] | None
    items: list[str | int] | None
    key: str | None
    unit: str | None
    taken: str | int | None
    chance: float


class UnavailableError(Exception):
    """The deployment cannot answer now; the message says why."""


class ConflictError(Exception):
    """The state of the deployments does not allow the call."""


class Deployment:
    """A declaration, and its agent while it is open."""

    state: State
    reason: str

    def __init__(self, name: str, declaration: Declaration, *, archived: bool = False, took_over: bool = False) -> None:
        self.name, self.declaration, self.took_over = name, declaration, took_over
        self.state, self.reason = "archived" if archived else "opening", ""
        self.waits = False
        """It has failed because the database was away."""
        self.is_warm = False
        """It has all programs."""
        self._agent: OnlineAgent | None = None
        self._encoder = declaration.context and declaration.context.made()
        self._columns = frozenset(self._encoder.columns if self._encoder else ())

    @property
    def imitates(self) -> bool:
        """Whether it imitates today's rule."""
        return self.declaration.apprentice and not self.took_over

    @property
    def compared(self) -> list[Against]:
        """Possible arguments of `comparison`."""
        declared = self.declaration
        asked: dict[Against, Any] = {"rule": declared.apprentice, "control": declared.control}
        asked["challenger"] = declared.challenger
        return [against for against, there in asked.items() if there]

    @property
    def agent(self) -> OnlineAgent:
        """The open agent. Raises UnavailableError."""
        if self._agent is None or self.state != "open":
            raise UnavailableError(f"the deployment {self.name} is {self.state}{self.reason and f': {self.reason}'}")
        return self._agent

    def open(
        self, place: Path | Postgres, past: Log | None, *, spool: Path | None = None, relearn: bool = False
    ) -> None:
        """Open the log, and compile the first decision; in any thread. Raises as OnlineAgent."""
        declared = self.declaration
        exchanged = declared.challenger is not None and self.took_over
        agent = opened(declared.exchanged() if exchanged else declared, place, spool=spool, relearn=relearn)
        try:
            if past is not None and not agent.counts["decisions"]:
                agent.warm_start(past)
            agent.warm_up(first=True)
        except BaseException:
            agent.close()
            raise
        self._agent = agent

    def warm_up(self) -> None:
        """Compile all programs, while it answers; in any thread."""
        try:
            if self.state == "open":
                self.agent.warm_up()
                self.is_warm = True
                log.info("deployment %s has all its programs", self.name)
        except Exception as error:  # those that lack are compiled by the first call that needs them
            log.error("deployment %s has not compiled: %s: %s", self.name, type(error).__name__, error)

    def serve(self, room: int) -> None:
        """Begin to answer; in the event loop's thread."""
        self.decisions = Batches(f"{self.name} decides", self._decide, most=_MOST, room=room)
        self.reports = Batches(f"{self.name} learns", self._learn, most=_MOST, room=room)
        self.state = "open"

    def close(self, seconds: float) -> None:
        """Answer what waits and write a snapshot; what takes longer is left to the log. After `stop`."""
        until = time.monotonic() + seconds
        if self._agent is None:
            return
        for batches in (self.decisions, self.reports):
            batches.join(max(0.0, until - time.monotonic()))
        self._agent.close()
        self._agent = None

    def stop(self, state: State) -> None:
        """Refuse further calls."""
        if self.state == "open":
            self.decisions.close()
            self.reports.close()
        self.state = state

    def context(self, given: Any) -> Any:
        """The agent's context. Raises ValueError for an undeclared context, or a missing one."""
        if (given is None) is (self.declaration.context is not None):
            raise ValueError("give a context" if given is None else "the deployment has no context: leave it out")
        if self._columns and isinstance(given, Mapping):
            for name in given.keys() - self._columns:
                raise ValueError(unknown("column of the context", name, self._columns))
        return _NOTHING if given is None else given

    def check_players(self, taken: str | int | None, unit: str | None) -> None:
        """Raises ValueError for an arm without an apprentice, and for none before it has taken over; also for a unit.

        A unit belongs to a control group, and a control group to an agent that plays.
        """
        if unit is not None and self.declaration.control is None:
            raise ValueError(
                f"unit={unit!r:.80} is for a control group, and this deployment has none: leave it out, or declare "
                "control = { share = 0.1 }"
            )
        if unit is None and self.declaration.control is not None and not self.imitates:
            raise ValueError("this deployment has a control group: send the unit of the decision, such as a user")
        if taken is not None and not self.declaration.apprentice:
            raise ValueError(
                f"taken={taken!r:.80} is for an apprentice, and this deployment decides by itself: leave it out, or "
                "declare apprentice = true"
            )
        if taken is None and self.imitates:
            raise ValueError(
                "this deployment is an apprentice: send the arm that today's rule plays, as taken, and its chance, or "
                "let it take over"
            )

    def check_may_remove(self) -> None:
        """Raises ConflictError where arms have shares of their own: another arm could get the place of one."""
        shares = self.declaration.shares
        if self.declaration.conservative is not None:
            raise ConflictError(
                f"the deployment {self.name} has a bound against an arm: leave arms out by mask, or by off"
            )
        if shares is not None and (isinstance(shares.floor, dict) or isinstance(shares.ceiling, dict)):
            raise ConflictError(f"the deployment {self.name} has shares by arm: leave arms out by mask, or by off")

    def comparison(self, against: Against) -> Comparison:
        """Of the agent with another rule, or the challenger. Raises ValueError without decisions, UnavailableError."""
        declared = self.declaration
        return self.agent.comparison(against, seed=declared.seed, reward_range=declared.rewards.bounds)

    def report(self) -> Report:
        """At any time. Raises UnavailableError."""
        declared = self.declaration
        return self.agent.report(reward_range=declared.rewards.bounds, **declared.report.model_dump())

    def masks(self, contexts: Sequence[Any], given: Sequence[Any]) -> list[frozenset[Any] | None]:
        """Arms that may be played: those of each request (None: all), without those that are off in its context."""
        masks = [None if mask is None else frozenset(mask) for mask in given]  # a list of 0 and 1 would be bools
        if not self.declaration.off:
            return masks
        encoder, every = self._encoder, {str(arm): arm for arm in self.agent.arms}
        assert encoder is not None
        x = np.array([encoder(context) for context in contexts])
        for name, levels in self.declaration.off.items():
            found = segments_of(encoder, list(levels), x)
            for row in np.flatnonzero(np.any([found[segment] for segment in segments_in(levels)], axis=0)).tolist():
                allowed = masks[row]
                masks[row] = (frozenset(every.values()) if allowed is None else allowed) - {every.get(name)}
        return masks

    def _decide(self, rows: Sequence[Asked], active: bool, keyed: bool) -> Sequence[Any]:
        contexts = [self.context(row.context) for row in rows]
        masks, items = self.masks(contexts, [row.mask for row in rows]), [row.items for row in rows]
        imitates, declared = self.imitates, self.declaration
        assert self._agent is not None
        return self._agent.decide_many(
            contexts,
            masks if any(mask is not None for mask in masks) else None,
            items=items if any(one is not None for one in items) else None,
            keys=[row.key for row in rows] if keyed else None,  # pyright: ignore[reportArgumentType]
            active=active,
            taken=[row.taken for row in rows] if imitates else None,  # pyright: ignore[reportArgumentType]
            chances=[row.chance for row in rows] if imitates else None,
            units=None if declared.control is None or imitates else [row.unit for row in rows],  # pyright: ignore
        )

    def _learn(self, rows: Sequence[tuple[str, Any, str | None]]) -> Sequence[str]:
        assert self._agent is not None
        return self._agent.learn_many(rows)


def opened(
    declared: Declaration, place: Path | Postgres | None, *, spool: Path | None = None, relearn: bool = False
) -> OnlineAgent:
    """The agent of a declaration, in memory without a place."""
    rewards, context = declared.rewards, declared.context
    observed = _space(context) if context is not None else spaces.Box(0, 1, _NOTHING.shape)
    where: Any
    if declared.items is not None:
        where = Catalog(
            declared.items.made() or _space(declared.items),  # pyright: ignore[reportArgumentType] (a Box)
            None if context is None else context.made() or _space(context),  # pyright: ignore[reportArgumentType]
        )
    elif declared.box is not None:
        low, high = (np.array(end, np.float32) for end in (declared.box.low, declared.box.high))
        where = Spaces(observed, spaces.Box(low, high))
    else:
        where = Spaces(observed, spaces.Discrete(len(declared.arms or ())))
    names, beside = rewards.names, declared.challenger
    defaults = {name: one.default for name, one in names.items() if one.default is not None}
    places, floor = declared.model_dump_json(include={"context", "items", "box"}), declared.explore
    arms, careful = declared.arms or (), declared.conservative
    bounds = None if declared.shares is None else declared.shares.of(arms)
    careful = None if careful is None else careful.of(arms, rewards.bounds)

    def maker(player: Declaration | Player) -> Callable[[HasSpaces], Any]:
        text = f"{player.agent} {player.settings} {floor!r} {bounds!r} {careful!r} {places}"
        return lambda given: _agent(_Design(f"{given.action_space} {text}", player, floor, bounds, careful, given))

    return OnlineAgent(
        maker(declared),
        where,
        seed=declared.seed,
        arms=declared.arms,
        encoder=None if context is None or declared.items is not None else context.made(),
        folder=None if isinstance(place, Postgres) else place,
        store=place if isinstance(place, Postgres) else None,
        spool=spool,
        expire_after=rewards.expire_after,
        rewards=rewards.combine,
        reward_after=rewards.window,
        reward_default=(defaults or None) if names else rewards.default,
        reward_weights={name: one.weight for name, one in names.items()} or None,
        control=None if declared.control is None else Control(declared.control.share, declared.control.arm),
        challenger=None if beside is None else maker(beside),
        batch_size=declared.batch_size,
        fsync=declared.fsync and not isinstance(place, Postgres),
        relearn=relearn,
        retention=declared.retention,
    )


@dataclass(frozen=True)
class _Design:
    """What an agent is made of, all of it in the text."""

    text: str
    player: Declaration | Player = field(compare=False)
    floor: Floor | None = field(compare=False)
    bounds: tuple[Any, Any] | None = field(compare=False)
    careful: dict[str, Any] | None = field(compare=False)
    given: HasSpaces = field(compare=False)


@functools.lru_cache(maxsize=64)
def _agent(design: _Design) -> Any:
    """One agent for equal deployments, which share its programs."""
    made = agents.make(design.player.agent, design.given, **design.player.settings)
    if design.floor is not None:
        made = agents.exploring(made, share=design.floor.share, power=design.floor.power)
    if design.bounds is not None:
        made = agents.guarded(made, floor=design.bounds[0], ceiling=design.bounds[1])
    return made if design.careful is None else agents.conservative(made, **design.careful)


def _log(path: Path) -> Log:
    """Of a table, or of an agent."""
    return read_log(path) if is_database(path) else Log.load(path)


def _space(features: Features) -> spaces.Box:
    encoder = features.made()
    if encoder is not None:
        return encoder.space
    assert features.size is not None
    return spaces.Box(features.low, features.high, (features.size,), np.float32)


class Deployments(Mapping[str, Deployment]):
    """All deployments of a folder by name. One change at a time; methods belong to the event loop's thread."""

    def __init__(self, found: Found, *, trust: bool = False) -> None:
        """Those of the folder and of the settings, not yet open. Raises ValueError for a damaged or untrusted one."""
        server = found.settings.server
        self._room, self._folder, self._logs, self._grace = server.waiting, found.folder, found.logs, server.grace
        self._spool = self._folder / "spool" if server.spool else None
        if server.store is not None:
            check_moved(self._folder)
        self._kept: Place = Folder(found.folder) if server.store is None else Table(server.store)
        self._trust, self._change, self._compiling = trust, asyncio.Lock(), asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._declared, self._known = found.settings.deployments, dict[str, Deployment]()
        self._is_known, self._was_ready, self._said = False, False, ""
        try:
            self._know()
        except OSError as error:
            if not self._kept.is_shared:
                raise
            self._say("this server waits for its database", error)

    def __getitem__(self, name: str) -> Deployment:
        """Raises UnavailableError while the database has not said which there are."""
        if not self._is_known:
            raise UnavailableError("the database does not answer yet")
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._known))  # for other threads

    def __len__(self) -> int:
        return len(self._known)

    @property
    def is_ready(self) -> bool:
        """Whether all that are not archived have been open at once, since the start."""
        are_open = all(one.state in ("open", "archived") for one in self._known.values())
        self._was_ready |= self._is_known and are_open
        return self._was_ready

    async def open(self) -> None:
        """Open them one after the other, then compile; one that fails says why, and the others go on."""
        while not self._is_known:
            await asyncio.sleep(_LOOK)
            try:
                await asyncio.to_thread(self._know)
            except (OSError, ValueError) as error:
                self._say("this server waits for its database", error)
        async with self._compiling:
            for deployment in list(self._known.values()):
                async with self._change:
                    if deployment.state == "opening":
                        await self._open(deployment)

    async def follow(self) -> None:
        """Do what other servers of the database have done, for ever."""
        spreads = None
        while self._kept.is_shared:
            await asyncio.sleep(_LOOK)
            if not self._is_known:
                continue
            try:
                async with self._change:
                    for name, kept in (await asyncio.to_thread(self._kept.read)).items():
                        await self._agree(name, kept)
                for deployment in list(self._known.values()):
                    async with self._change:
                        if deployment.state == "failed" and deployment.waits:
                            deployment.state = "opening"
                            await self._open(deployment)
                if spreads is None or spreads.done():  # it waits for leases
                    spreads = asyncio.create_task(asyncio.to_thread(self._spread))
                if self._said:
                    log.info("the database is back")
                self._said = ""
            except Exception as error:  # such as while the database is away
                self._say("what other servers do is not known", error)

    def _know(self) -> None:
        """Read what is kept. Raises OSError, ValueError for a damaged or untrusted one."""
        declared = dict(self._declared)
        known = {name: _made(name, kept, declared.pop(name, None)) for name, kept in self._kept.read().items()}
        known |= {name: Deployment(name, one) for name, one in declared.items()}
        for name, deployment in known.items():
            try:
                self._check(deployment.declaration)
            except ValueError as error:
                raise ValueError(f"deployments.{name}: {error}") from error
        self._known, self._is_known = known, True

    def _say(self, what: str, error: Exception) -> None:
        """Log an error, once while it stays the same."""
        if self._said != str(error):
            log.error("%s: %s: %s", what, type(error).__name__, error)
        self._said = str(error)

    def _spread(self) -> None:
        """Learn a deployment of the server that learns most, if this one learns at least two fewer."""
        with suppress(OSError, RuntimeError, UnavailableError):  # such as while the database is away, or one closes
            warm = [one for one in self._known.values() if one.is_warm and one.state == "open"]
            found = [(one.agent, one.agent.learner) for one in warm]
            counts = Counter(learner for _, learner in found if learner is not None)
            for most, number in counts.most_common(1):
                if number > counts[this_process()] + 1:
                    for agent in (agent for agent, learner in found if learner == most):
                        with suppress(OSError, ChangedError):  # such as of a log that another agent learns
                            agent.snapshot()  # which takes the lease
                            break

    async def _look(self, name: str) -> None:
        """Do what other servers have done with one, where the database can be asked."""
        with suppress(OSError):
            kept = (await asyncio.to_thread(self._kept.read)).get(name) if self._kept.is_shared else None
            if kept is not None:
                await self._agree(name, kept)

    async def _agree(self, name: str, kept: Kept) -> None:
        deployment = self._known.get(name)
        if deployment is None:
            deployment = self._known[name] = _made(name, kept, None)
            self._check(deployment.declaration)
        elif deployment.state == "open":
            is_other = kept.took_over is not deployment.took_over and deployment.declaration.challenger is not None
            if kept.archived or is_other:
                deployment.stop("archived" if kept.archived else "opening")
                await asyncio.to_thread(deployment.close, self._grace)
            deployment.took_over = kept.took_over
        elif deployment.state == "archived" and not kept.archived:
            deployment.state, deployment.took_over = "opening", kept.took_over
        if deployment.state == "opening":
            await self._open(deployment)

    async def create(self, name: str, declaration: Declaration) -> Deployment:
        """Raises ConflictError for a known name, ValueError or TypeError for what cannot be made."""
        async with self._change:
            if name in self:
                raise ConflictError(f"the deployment {name} exists already, {self._known[name].state}")
            self._check(declaration)
            trial = await asyncio.to_thread(opened, declaration, None)  # refuses before anything is written
            deployment = self._known[name] = Deployment(name, declaration)
            await self._open(deployment)
            trial.close()  # whose programs it has taken over
            if deployment.state == "failed":
                del self._known[name]
                raise UnavailableError(deployment.reason)
            return deployment

    async def archive(self, name: str, seconds: float) -> None:
        """Close a deployment until `restore`; its folder stays."""
        async with self._change:
            await self._look(name)
            deployment = self._known[name]
            if deployment.state != "archived":
                self._write(deployment, archived=True)
                deployment.stop("archived")
                await asyncio.to_thread(deployment.close, seconds)

    async def hand_over(self, name: str, seconds: float, *, back: bool) -> None:
        """Let an apprentice or a challenger play, or `back`, also after a restart.

        A challenger first learns the log once more, as the deployment's agent, which answers nothing meanwhile. Where
        that fails, the first agent plays on. Raises ConflictError, then and where there is neither.
        """
        async with self._change:
            deployment = self._known[name]
            declared = deployment.declaration
            if not declared.apprentice and declared.challenger is None:
                raise ConflictError(
                    f"the deployment {name} has neither apprentice = true nor a challenger: declare one"
                )
            deployment.agent  # noqa: B018 (raises where it is not open)
            if deployment.took_over is not back:
                return
            if declared.apprentice:
                self._write(deployment, archived=False, took_over=not back)
                deployment.took_over = not back
                return
            deployment.stop("opening")
            await asyncio.to_thread(deployment.close, seconds)
            deployment.took_over = not back
            await self._open(deployment, relearn=True)
            if deployment.state == "failed":
                reason, deployment.took_over = deployment.reason, back
                deployment.state, deployment.reason = "opening", ""
                await self._open(deployment)
                raise ConflictError(f"the deployment {name} is as before: {reason}")

    async def restore(self, name: str, *, relearn: bool = False) -> None:
        """Open an archived deployment, or one that failed; `relearn`: also if its log was learned by another.

        Raises ConflictError for `relearn` of an open one, UnavailableError where it fails.
        """
        async with self._change:
            await self._look(name)
            deployment = self._known[name]
            if deployment.state in ("archived", "failed"):
                deployment.state, deployment.reason = "opening", ""
                await self._open(deployment, relearn=relearn)
                if deployment.state == "failed":
                    raise UnavailableError(f"the deployment {name} has failed: {deployment.reason}")
            elif relearn:
                raise ConflictError(f"the deployment {name} is {deployment.state}: archive it before it learns again")

    def place(self, deployment: Deployment) -> Path | Postgres:
        """Of the agent's log."""
        return self._kept.agent(deployment.name)

    def close(self, seconds: float) -> None:
        """Close all, side by side; leaves those that take longer."""
        running = [one for one in self._known.values() if one.state == "open"]
        for one in running:
            one.stop("opening")
        threads = [threading.Thread(target=one.close, args=(seconds,), daemon=True) for one in running]
        for thread in threads:
            thread.start()
        until = time.monotonic() + seconds
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))

    def said(self, error: Exception | str) -> str:
        """Message of an error for clients: files without the server's folder."""
        return str(error).replace(f"{self._folder}{os.sep}", "")

    async def _open(self, deployment: Deployment, *, relearn: bool = False) -> None:
        try:
            path = self._logs.get(deployment.name)
            past = None if path is None else await asyncio.to_thread(_log, path)
            spool = self._spool and self._spool / deployment.name
            await asyncio.to_thread(deployment.open, self.place(deployment), past, spool=spool, relearn=relearn)
            self._write(deployment, archived=False)
        except Exception as error:
            before, deployment.reason = deployment.reason, f"{type(error).__name__}: {self.said(error)}"
            deployment.state = "failed"
            deployment.waits = self._kept.is_shared and isinstance(error, OSError)
            if isinstance(error, ChangedError):
                deployment.reason += f', POST /v1/{deployment.name}/restore {{"relearn": true}}'
            if deployment.reason != before:  # it is tried each second
                log.error("deployment %s failed: %s", deployment.name, error)
            return
        deployment.reason = ""
        deployment.serve(self._room)
        log.info("deployment %s is open", deployment.name)
        task = asyncio.create_task(self._compile(deployment))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _compile(self, deployment: Deployment) -> None:
        async with self._compiling:
            await asyncio.to_thread(deployment.warm_up)

    def _check(self, declaration: Declaration) -> None:
        if not self._trust:
            declaration.check_trusted()

    def _write(self, deployment: Deployment, *, archived: bool, took_over: bool | None = None) -> None:
        declaration = deployment.declaration.model_dump(mode="json", exclude_unset=True)
        self._kept.write(
            deployment.name,
            Kept(declaration, archived, deployment.took_over if took_over is None else took_over),
        )


def _made(name: str, kept: Kept, declared: Declaration | None) -> Deployment:
    """As kept, but for what is declared now."""
    declaration = declared or Declaration.model_validate(kept.declaration)
    return Deployment(name, declaration, archived=kept.archived, took_over=kept.took_over)
