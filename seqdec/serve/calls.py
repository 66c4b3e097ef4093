"""Calls of a deployment: each with its right, message and answer."""

import asyncio
import math
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel
from starlette.responses import Response

from seqdec.ope import Log
from seqdec.runtime import short_turns
from seqdec.serve import messages
from seqdec.serve.access import Right
from seqdec.serve.config import Settings
from seqdec.serve.deployments import Against, Asked, ConflictError, Deployment, Deployments, UnavailableError
from seqdec.service import OnlineAgent
from seqdec.service.postgres import Postgres


class Call(NamedTuple):
    """A route: `answer(service, deployment, message)` returns what `answers` describes, or a response."""

    path: str
    right: Right | None
    """None: anybody's"""
    answer: Callable[..., Awaitable[Any]]
    takes: type[BaseModel] | None = None
    """None: GET"""
    answers: type[BaseModel] | None = None
    """None: no JSON"""
    is_audited: bool = False

    @property
    def name(self) -> str:
        return self.answer.__name__

    @property
    def summary(self) -> str:
        return (self.answer.__doc__ or "").strip()


class Service(NamedTuple):
    """Deployments and settings that calls use."""

    settings: Settings
    deployments: Deployments
    turns: asyncio.Semaphore
    """of calls that take long, so that others have threads and memory"""

    async def slowly(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """The result of a function that takes long."""
        async with self.turns:
            return await asyncio.to_thread(function, *arguments, **options)


async def decide(service: Service, deployment: Deployment, ask: messages.Ask) -> Any:
    """Choose an action for a context, and log it."""
    return (await _decided(deployment, [ask], ask.active))[0]


async def decide_many(service: Service, deployment: Deployment, ask: messages.AskMany) -> Any:
    """Choose an action for each of several contexts."""
    _check_rows(service, ask.rows)
    return {"decisions": await _decided(deployment, ask.rows, ask.active)}


async def learn(service: Service, deployment: Deployment, report: messages.Report) -> Any:
    """Log the reward of a decision, and learn it."""
    return {"result": (await _learned(deployment, [report]))[0]}


async def learn_many(service: Service, deployment: Deployment, report: messages.ReportMany) -> Any:
    """Log and learn several rewards."""
    _check_rows(service, report.reports)
    return {"results": await _learned(deployment, report.reports)}


async def activate(service: Service, deployment: Deployment, of: messages.OfToken) -> Any:
    """Mark a decision made with active=false as shown: its window begins."""
    return {"result": await asyncio.to_thread(deployment.agent.activate, of.token)}


async def withdraw(service: Service, deployment: Deployment, of: messages.OfToken) -> Any:
    """Mark a decision as never shown: nothing is learned from it."""
    return {"result": await asyncio.to_thread(deployment.agent.withdraw, of.token)}


async def explain(service: Service, deployment: Deployment, ask: messages.Question) -> Any:
    """The belief about every action in a context; nothing is logged."""
    context = deployment.context(ask.context)
    if deployment.declaration.items is not None and ask.context is None:
        context = None
    mask = deployment.masks([context], [ask.mask])[0]
    found = await service.slowly(deployment.agent.explain, context, mask, items=ask.items)
    columns = [part.tolist() for part in (found.mean, found.deviation, found.probability, found.baseline)]
    parts = [dict(zip(found.columns, map(_number, row), strict=True)) for row in found.contributions.tolist()]
    names = ("action", "mean", "deviation", "probability", "baseline", "contributions")
    rows = zip(found.actions, *([_number(value) for value in column] for column in columns), parts, strict=True)
    return {"actions": [dict(zip(names, row, strict=True)) for row in rows]}


async def diagnostics(service: Service, deployment: Deployment, message: None) -> Any:
    """Alarms of the latest decisions, and results by arm."""
    return await service.slowly(_diagnosed, service.deployments.place(deployment), deployment.agent)


async def comparison(service: Service, deployment: Deployment, message: None) -> Any:
    """Whether an apprentice would earn more than today's rule."""
    return await compared(service, deployment, "rule")


async def report(service: Service, deployment: Deployment, message: None) -> Any:
    """Which arm earns most, the agent's gain over control, and whether that is decided; valid at any time."""
    found = await service.slowly(_reported, deployment)
    said = service.deployments.said
    return {name: one and {**one, "verdict": said(one["verdict"])} for name, one in found.items()}


async def control(service: Service, deployment: Deployment, message: None) -> Any:
    """Whether the agent earns more than its control group."""
    return await compared(service, deployment, "control")


async def challenger(service: Service, deployment: Deployment, message: None) -> Any:
    """Whether the challenger would earn more than the agent."""
    return await compared(service, deployment, "challenger")


async def take_over(service: Service, deployment: Deployment, message: Any) -> Any:
    """Let an apprentice play by itself from now on, or a challenger."""
    await service.deployments.hand_over(deployment.name, service.settings.server.grace, back=False)
    return await about(service, deployment, None)


async def hand_back(service: Service, deployment: Deployment, message: Any) -> Any:
    """Let an apprentice that has taken over imitate today's rule again, or the first agent play."""
    await service.deployments.hand_over(deployment.name, service.settings.server.grace, back=True)
    return await about(service, deployment, None)


async def log(service: Service, deployment: Deployment, message: None) -> Any:
    """The decisions with known reward and propensity, for seqdec.ope, as parquet."""
    agent = deployment.agent

    def written() -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "log.parquet")
            found = agent.log()
            if not isinstance(found, Log):
                raise ValueError("actions are points of a box: read their log with seqdec.service.read_log(folder)")
            found.save(path)
            return path.read_bytes()

    return Response(await service.slowly(written), media_type="application/vnd.apache.parquet")


async def add_arm(service: Service, deployment: Deployment, of: messages.OfArm) -> Any:
    """Add an arm, or bring a removed one back."""
    await service.slowly(deployment.agent.add_arm, of.name)
    return await about(service, deployment, None)


async def remove_arm(service: Service, deployment: Deployment, of: messages.OfArm) -> Any:
    """Stop playing an arm; its rewards are still learned."""
    deployment.check_may_remove()
    await service.slowly(deployment.agent.remove_arm, of.name)
    return await about(service, deployment, None)


async def add_items(service: Service, deployment: Deployment, added: messages.Items) -> Any:
    """Add items, or replace those with the same ids."""
    await service.slowly(deployment.agent.add_items, added.items)
    return await about(service, deployment, None)


async def remove_items(service: Service, deployment: Deployment, of: messages.OfItems) -> Any:
    """Stop choosing items; their rewards are still learned."""
    await service.slowly(deployment.agent.remove_items, of.ids)
    return await about(service, deployment, None)


async def forget(service: Service, deployment: Deployment, forget: messages.Forget) -> Any:
    """Erase the contexts, keys and tokens of decisions from the log."""
    count = await service.slowly(deployment.agent.forget, forget.keys, older_than=forget.older_than)
    return {"count": count}


async def compact(service: Service, deployment: Deployment, compact: messages.Compact) -> Any:
    """Remove old decisions from the log, which then starts with the current belief."""
    return {"count": await service.slowly(deployment.agent.compact, compact.older_than)}


async def archive(service: Service, deployment: Deployment, message: Any) -> Any:
    """Close a deployment; its log stays."""
    await service.deployments.archive(deployment.name, service.settings.server.grace)
    return await about(service, deployment, None)


async def restore(service: Service, deployment: Deployment, restore: messages.Restore) -> Any:
    """Open an archived deployment, or one that failed; with relearn, learn its log again by the present declaration."""
    await service.deployments.restore(deployment.name, relearn=restore.relearn)
    return await about(service, deployment, None)


async def about(service: Service, deployment: Deployment, message: None) -> Any:
    """Declaration and state of a deployment."""
    found: dict[str, Any] = {
        "name": deployment.name,
        "state": deployment.state,
        "reason": deployment.reason,
        "declaration": deployment.declaration.model_dump(mode="json", exclude_unset=True),
        "imitates": deployment.imitates,
        "took_over": deployment.took_over,
    }
    if deployment.state == "open":
        agent = deployment.agent
        found |= {"arms": agent.arms, "items": len(agent.items)}
        with suppress(OSError):  # a database that is away
            found["counts"] = await asyncio.to_thread(lambda: dict(agent.counts))
    return found


async def deployments(service: Service, deployment: None, message: None) -> Any:
    """All deployments."""
    every = list(service.deployments.values())  # which may become more meanwhile
    return {"deployments": [await about(service, one, None) for one in every]}


async def create(service: Service, deployment: None, new: messages.New) -> Any:
    """Create a deployment."""
    return await about(service, await service.deployments.create(new.name, new.declaration), None)


async def health(service: Service, deployment: None, message: None) -> Any:
    """Whether the server is alive; reads no log."""
    return {"status": "ok"}


async def ready(service: Service, deployment: None, message: None) -> Any:
    """Whether all deployments that are not archived answer."""
    if not service.deployments.is_ready:
        states = [f"{name} {one.state}" for name, one in service.deployments.items()]
        waiting = ", ".join(state for state in states if not state.endswith((" open", " archived")))
        raise UnavailableError(waiting or "the database does not answer yet")
    return {"status": "ready"}


_OF = "/v1/{deployment}"
CALLS = (
    Call(f"{_OF}/decide", "decide", decide, messages.Ask, messages.Decided),
    Call(f"{_OF}/learn", "decide", learn, messages.Report, messages.Learned),
    Call(f"{_OF}/decide_many", "decide", decide_many, messages.AskMany, messages.DecidedMany),
    Call(f"{_OF}/learn_many", "decide", learn_many, messages.ReportMany, messages.LearnedMany),
    Call(f"{_OF}/activate", "decide", activate, messages.OfToken, messages.Settled),
    Call(f"{_OF}/withdraw", "decide", withdraw, messages.OfToken, messages.Settled),
    Call("/health", None, health, None, messages.Health),
    Call("/ready", None, ready, None, messages.Health),
    Call(f"{_OF}/explain", "read", explain, messages.Question, messages.Explained),
    Call(f"{_OF}/diagnostics", "read", diagnostics, None, messages.Diagnosed),
    Call(f"{_OF}/report", "read", report, None, messages.Reported),
    Call(f"{_OF}/comparison", "read", comparison, None, messages.Compared),
    Call(f"{_OF}/control", "read", control, None, messages.Compared),
    Call(f"{_OF}/challenger", "read", challenger, None, messages.Compared),
    Call(f"{_OF}/log.parquet", "read", log, None, None, is_audited=True),
    Call(f"{_OF}/add_arm", "operate", add_arm, messages.OfArm, messages.About, is_audited=True),
    Call(f"{_OF}/remove_arm", "operate", remove_arm, messages.OfArm, messages.About, is_audited=True),
    Call(f"{_OF}/add_items", "operate", add_items, messages.Items, messages.About, is_audited=True),
    Call(f"{_OF}/remove_items", "operate", remove_items, messages.OfItems, messages.About, is_audited=True),
    Call(f"{_OF}/forget", "operate", forget, messages.Forget, messages.Forgotten, is_audited=True),
    Call(f"{_OF}/compact", "operate", compact, messages.Compact, messages.Compacted, is_audited=True),
    Call(f"{_OF}/take_over", "operate", take_over, messages.Nothing, messages.About, is_audited=True),
    Call(f"{_OF}/hand_back", "operate", hand_back, messages.Nothing, messages.About, is_audited=True),
    Call(f"{_OF}/archive", "operate", archive, messages.Nothing, messages.About, is_audited=True),
    Call(f"{_OF}/restore", "operate", restore, messages.Restore, messages.About, is_audited=True),
    Call(_OF, "read", about, None, messages.About),
    Call("/v1", "read", deployments, None, messages.Deployed),
    Call("/v1", "operate", create, messages.New, messages.About, is_audited=True),
)
"""Routes, those asked most first."""


async def _decided(deployment: Deployment, rows: Sequence[messages.AskRow], active: bool) -> Any:
    deployment.agent  # noqa: B018 (raises where it cannot answer)
    keyed = rows[0].key is not None
    if any((row.key is not None) is not keyed for row in rows):
        raise ValueError("give a key to all rows, or to none")
    for row in rows:
        deployment.check_players(row.taken, row.unit)
    asked = [Asked(row.context, row.mask, row.items, row.key, row.unit, row.taken, row.chance) for row in rows]
    decisions = await deployment.decisions.ask(asked, active, keyed)
    return [
        {"action": _action(one.action), "propensity": _number(one.propensity), "token": one.token} for one in decisions
    ]


async def _learned(deployment: Deployment, reports: Sequence[messages.Report]) -> Any:
    deployment.agent  # noqa: B018 (raises where it cannot answer)
    for report in reports:
        deployment.declaration.rewards.check_reported(report.reward)
    return await deployment.reports.ask([(report.token, report.reward, report.id) for report in reports])


async def compared(service: Service, deployment: Deployment, against: Against) -> Any:
    """As `messages.Compared`. Raises ConflictError where it is not declared, ValueError without decisions."""
    if against not in deployment.compared:
        wanted = {"rule": "apprentice = true", "control": "control", "challenger": "challenger"}[against]
        raise ConflictError(f"the deployment {deployment.name} has nothing to compare: declare {wanted}")
    found = await service.slowly(deployment.comparison, against)
    difference, low, high = map(_number, found.difference)
    return {
        "decision": found.decision,
        "verdict": found.verdict,
        "difference": difference,
        "low": low,
        "high": high,
        "warnings": found.overlap.warnings,
    }


def _diagnosed(place: Path | Postgres, agent: OnlineAgent) -> Any:
    from seqdec.serve import reports  # pandas is slow to import

    with short_turns():
        return reports.of_agent(place, agent)


def _reported(deployment: Deployment) -> Any:
    from seqdec.serve import reports  # pandas is slow to import

    return reports.answered(deployment.report())


def _check_rows(service: Service, rows: Sequence[Any]) -> None:
    if len(rows) > service.settings.server.rows:
        raise ValueError(f"one request has at most {service.settings.server.rows:,} rows; got {len(rows):,}")


def _action(action: Any) -> Any:
    return action.tolist() if isinstance(action, np.ndarray) else action


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
