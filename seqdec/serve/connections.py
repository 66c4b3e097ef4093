"""Connections that do not hold the server up, and its end within a bound."""

import asyncio
import logging
import math
import os
import resource
import time
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_FILES = 128
"""Open files that are no connections."""
_HEAD = 2**16
"""Most bytes of a request before its body."""


class Connection(HttpToolsProtocol):
    """A connection that must go on in time, and gives way to a new one where there are too many.

    `since`: when it began to wait for its client, infinite while the server works; `limit`: how long it may.
    """

    patience: float
    idle: float
    most: int

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        if len(self.connections) >= self.most:
            oldest: Any = min(self.connections, key=lambda one: one.since)  # pyright: ignore
            (transport if math.isinf(oldest.since) else oldest.transport).abort()
        self._head = 0
        self._wait(self.patience)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._head += len(data)
        super().data_received(data)
        if self._head > _HEAD and not self.transport.is_closing():
            self.transport.abort()

    def on_message_begin(self) -> None:
        self._wait(self.patience)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head = -math.inf
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._head = 0
        if self.cycle.response_complete:  # refused before all of it had arrived
            self._wait(self.idle)
        else:
            self.since = math.inf
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._wait(self.idle)
        super().on_response_complete()

    def pause_writing(self) -> None:
        self._wait(self.patience)
        super().pause_writing()

    def resume_writing(self) -> None:
        self.since = math.inf
        super().resume_writing()

    def shutdown(self) -> None:
        """End now where the client is waited for, else with the answer."""
        if math.isinf(self.since) or self.cycle is None or self.cycle.response_complete:
            super().shutdown()
        else:
            self.transport.abort()

    def end_if_late(self, now: float) -> None:
        """End a connection whose client takes too long."""
        if now - self.since > self.limit:
            self.transport.abort()

    def _wait(self, limit: float) -> None:
        self.since, self.limit = time.monotonic(), limit


class Server(uvicorn.Server):
    """A server that looks at its connections once a second.

    leaves: end the process with it, without waiting for threads that compile.
    """

    leaves = False

    async def shutdown(self, sockets: Any = None) -> None:
        await super().shutdown(sockets)
        if self.leaves:
            logging.shutdown()
            os._exit(0)

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:
            now = time.monotonic()
            for connection in list(self.server_state.connections):
                connection.end_if_late(now)  # pyright: ignore[reportAttributeAccessIssue] (ours)
        return await super().on_tick(counter)


def server(app: Any, settings: Any) -> Server:
    """A server of these settings (`seqdec.serve.config.Server`), with as many files as the system allows."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    files = math.inf if hard == resource.RLIM_INFINITY else hard - _FILES
    limits = {"patience": settings.patience, "idle": settings.idle, "most": max(1, min(settings.connections, files))}
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=type("Connection", (Connection,), limits),
        ws="none",
        loop="uvloop",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=math.ceil(settings.idle),
        timeout_graceful_shutdown=math.ceil(settings.grace),
    )
    return Server(config)
