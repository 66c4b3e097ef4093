"""The application: routes of `seqdec.serve.calls`, whose errors are answers, with metrics and limits."""

import asyncio
import logging
import os
import socket
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import Any, NamedTuple

import orjson
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from seqdec.persistence import locked
from seqdec.runtime import compilation_cache, one_blas_thread, short_turns
from seqdec.serve import browser
from seqdec.serve.access import Access, Caller, RefusedError
from seqdec.serve.calls import CALLS, Call, Service
from seqdec.serve.config import Found, said
from seqdec.serve.connections import server
from seqdec.serve.deployments import ConflictError, Deployments, UnavailableError
from seqdec.serve.openapi import openapi
from seqdec.serve.queue import FullError
from seqdec.service.cluster import this_process
from seqdec.service.database import DamagedError
from seqdec.service.identity import ChangedError

_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5)
_SOON = {"Retry-After": "1"}
_TURNS = 3
"""Calls at once that take long, fewer than the threads of an event loop."""
_MINUTE = 60.0
log = logging.getLogger("seqdec.serve")


def run(found: Found, *, trust: bool = False) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Raises ValueError for settings that cannot be served, FileExistsError where another process serves the folder.
    """
    _check_port(found.settings.server.host, found.settings.server.port)
    os.umask(0o077)  # logs hold what is personal
    logging.basicConfig(format="%(asctime)s %(message)s")
    logging.captureWarnings(True)
    for handler in logging.root.handlers:
        handler.addFilter(_Repeats())
    for name in ("seqdec.serve", "seqdec.service", "uvicorn"):
        logging.getLogger(name).setLevel(logging.INFO)
    found.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Else every deployment would be in use, and stay closed when it is not any more.
    with nullcontext() if found.settings.server.store else locked(found.folder):
        compilation_cache(found.folder / "programs")
        running = server(application(found, trust=trust), found.settings.server)
        running.leaves = True
        running.run()


class _Repeats(logging.Filter):
    """Leaves out lines that were written in the last minute, as each call writes one while a database is away."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        text, oldest = record.getMessage(), record.created - _MINUTE
        self._known = {line: at for line, at in self._known.items() if at > oldest}
        return self._known.setdefault(text, record.created) == record.created


def _check_port(host: str, port: int) -> None:
    """Raises ValueError, before anything is opened, for a port that cannot be had."""
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        raise ValueError(f"server.host = {host!r}, server.port = {port}: {error.strerror or error}") from error


def application(found: Found, *, trust: bool = False) -> ASGIApp:
    """The application of some settings. Raises ValueError for deployments that cannot be served."""
    settings = found.settings
    found.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    service = Service(settings, Deployments(found, trust=trust), asyncio.Semaphore(_TURNS))
    access, metrics = Access(settings, found.folder / "audit.jsonl"), Metrics(service)

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        with one_blas_thread(), short_turns():
            opening = asyncio.create_task(service.deployments.open())
            following = asyncio.create_task(service.deployments.follow())
            if settings.server.wait:
                await opening
            yield
            opening.cancel()
            following.cancel()
            closing = ThreadPoolExecutor(1)  # of its own: other calls may have all threads of the loop
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(closing, service.deployments.close, settings.server.grace)

    def route(call: Call) -> Route:
        method = "GET" if call.takes is None else "POST"
        return Route(call.path, _Endpoint(call, service, access, metrics), methods=[method], name=call.name)

    described = orjson.dumps(openapi(CALLS))

    async def shown(request: Request) -> Response:
        return Response(described, media_type="application/json")

    async def measured(request: Request) -> Response:
        try:
            caller = _caller(request, access)
            access.check(caller, "read", None)
        except RefusedError as error:
            return _refused(error.status, str(error), error.headers)
        text = await asyncio.to_thread(metrics.text)  # which asks the logs
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    routes = [*map(route, CALLS), Route("/openapi.json", shown), Route("/metrics", measured)]
    router = Router([*routes, *browser.routes(service, access)], redirect_slashes=False, lifespan=lifespan)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = router  # so that it raises for an unknown route
        try:
            await router(scope, receive, send)
        except HTTPException as error:
            message = f"{error.detail}: {scope['method']} {scope['path']:.200}"
            await _refused(error.status_code, message, error.headers)(scope, receive, send)

    return answer


class _Endpoint(NamedTuple):
    """What answers a call, whatever a client sends."""

    call: Call
    service: Service
    access: Access
    metrics: "Metrics"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call, service, access = self.call, self.service, self.access
        request, caller = Request(scope, receive), None
        began, name = time.perf_counter(), request.path_params.get("deployment")
        try:
            if call.right is not None:
                caller = _caller(request, access)
                access.check(caller, call.right, name)
            message = None
            if call.takes is not None:
                message = call.takes.model_validate(await _body(request, service.settings.server.body_bytes))
            deployment = None if name is None else service.deployments.get(name)
            if name is not None and deployment is None:
                raise RefusedError(404, f"there is no deployment {name!r:.80}")
            found = await call.answer(service, deployment, message)
            response = found if isinstance(found, Response) else _json(found, 200)
        except Exception as error:
            response = _failed(error, service.deployments)
        if call.is_audited and caller is not None:
            _record(access, caller, _address(request), call.name, name, response.status_code)
        self.metrics.count(call.name, response.status_code, time.perf_counter() - began)
        await response(scope, receive, send)


def _record(access: Access, *line: Any) -> None:
    """Write the audit, to standard error where its file cannot be: the call is done, and its answer true."""
    try:
        access.record(*line)
    except OSError as error:
        log.error("the audit cannot be written: %s: %s", error, line)


def _caller(request: Request, access: Access) -> Caller:
    access.check_host(request.headers.get("host", ""))
    return access.caller(request.headers.get("authorization"), _address(request))


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


async def _body(request: Request, most: int) -> Any:
    """The JSON of a request. Raises RefusedError, without reading more than is allowed."""
    headers = request.headers
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RefusedError(415, "send JSON, as Content-Type: application/json")
    length, too_large = headers.get("content-length", "0"), f"send at most {most:,} bytes"
    if length.isdecimal() and int(length) > most:
        raise RefusedError(413, too_large)
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > most:
            raise RefusedError(413, too_large)
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise RefusedError(400, f"the body is not JSON: {error}") from None


def _failed(error: Exception, deployments: Deployments) -> Response:
    """The answer to an error: the client's own, or that the server cannot answer now."""
    match error:
        case RefusedError():
            return _refused(error.status, str(error), error.headers)
        case ValidationError():
            return _refused(422, said(error))
        case ConflictError() | ChangedError():
            return _refused(409, deployments.said(error))
        case FullError():
            return _refused(503, "too many requests wait: try again", _SOON)
        case UnavailableError():
            return _refused(503, str(error), _SOON)
        case ClientDisconnect():
            return Response(status_code=400)
        case DamagedError() | RuntimeError() | OSError() | MemoryError():
            log.error("%s: %s", type(error).__name__, error)
            return _refused(503, f"the deployment cannot answer: {type(error).__name__}; see the server's log", _SOON)
        case ValueError() | TypeError():
            return _refused(422, deployments.said(error))
    log.error("an error of the server", exc_info=error)
    return _refused(500, "an error of the server, which its log has")


def _json(content: Any, status: int, headers: Any = None) -> Response:
    return Response(orjson.dumps(content), status, headers, "application/json")


def _refused(status: int, message: str, headers: Any = None) -> Response:
    return _json({"error": message}, status, headers)


class Metrics:
    """Requests by call and status, their seconds, and what the deployments count, for Prometheus."""

    def __init__(self, service: Service) -> None:
        self._service, self._registry = service, CollectorRegistry()
        known: dict[str, Any] = {"registry": self._registry}
        self._requests = Counter("seqdec_requests", "Requests by call and status", ["call", "status"], **known)
        self._seconds = Histogram("seqdec_seconds", "Seconds of a request", ["call"], buckets=_BUCKETS, **known)
        self._waiting = Gauge("seqdec_waiting", "Decisions and reports that wait", ["deployment", "of"], **known)
        self._counts = Gauge("seqdec_count", "Of OnlineAgent.counts", ["deployment", "of"], **known)
        self._open = Gauge("seqdec_open", "Whether a deployment answers", ["deployment"], **known)
        self._lag = Gauge(
            "seqdec_lag_seconds", "Since the first reward that the belief here lacks", ["deployment"], **known
        )
        self._learns = Gauge("seqdec_learns", "Whether this process learns", ["deployment"], **known)
        self._seen: dict[tuple[str, int], Any] = {}

    def count(self, call: str, status: int, seconds: float) -> None:
        found = self._seen.get((call, status))
        if found is None:
            found = self._requests.labels(call, status), self._seconds.labels(call)
            self._seen[call, status] = found
        found[0].inc()
        found[1].observe(seconds)

    def text(self) -> bytes:
        for name, deployment in list(self._service.deployments.items()):
            self._open.labels(name).set(deployment.state == "open")
            if deployment.state == "open":
                self._waiting.labels(name, "decisions").set(deployment.decisions.waiting)
                self._waiting.labels(name, "reports").set(deployment.reports.waiting)
                with suppress(OSError, RuntimeError, UnavailableError):  # the other figures are true all the same
                    for event, number in deployment.agent.counts.items():
                        self._counts.labels(name, event).set(number)
                    self._lag.labels(name).set(deployment.agent.lag)
                    self._learns.labels(name).set(deployment.agent.learner == this_process())
        return generate_latest(self._registry)
