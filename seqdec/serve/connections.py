"""Connections that cannot block the server, and shutdown within a time limit."""

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
"""Most bytes of a request before its body, and beside it."""
_FRAME = 8
"""Bytes around a small chunk of a body."""
_READ = 2**16
"""Least bytes of an answer that a client reads in its time."""

_LOG = logging.getLogger("seqdec.serve.connections")
_LOG.setLevel(logging.ERROR)  # faults of clients could fill a disk


class Connection(HttpToolsProtocol):
    """A connection with time limits, which may be closed for a new one if there are too many.

    `since`: when its client was last waited for, or last went on.
    """

    patience: float
    idle: float
    most: int

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        self._head, self._left, self._is_half, self._is_head = 0, 0, True, True
        self.since, self.logger = time.monotonic(), _LOG
        super().connection_made(transport)
        if len(self.connections) > self.most:
            waiting: Any = [one for one in self.connections if one is not self and one.limit < math.inf]  # pyright: ignore
            min(waiting, key=lambda one: one.since, default=self).transport.abort()

    @property
    def limit(self) -> float:
        """Seconds for the client to read its answer or send a request; infinite while the server works."""
        if self._left:
            return self.patience
        if self.pipeline or (self.cycle and not self.cycle.response_complete and not self.cycle.more_body):
            return math.inf
        return self.patience if self._is_half else self.idle

    def data_received(self, data: bytes) -> None:
        self._head += len(data)
        super().data_received(data)
        if self._head > _HEAD and not self.transport.is_closing():
            self.transport.abort()

    def on_message_begin(self) -> None:
        self.since, self._is_half, self._is_head = time.monotonic(), True, True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_head:  # else a trailer, which would count as a header
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._head, self._is_head = 0, False
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._head -= len(body) + _FRAME
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.since, self._head, self._is_half = time.monotonic(), 0, False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self.since = time.monotonic()
        super().on_response_complete()

    def resume_writing(self) -> None:
        self.since, self._left = time.monotonic(), 0
        super().resume_writing()

    def shutdown(self) -> None:
        """End now where the client is waited for, else with the answer."""
        if math.isinf(self.limit) or self.cycle is None or self.cycle.response_complete:
            super().shutdown()
        else:
            self.transport.abort()

    def end_if_late(self, now: float) -> None:
        """End a connection whose client takes too long."""
        left = self.transport.get_write_buffer_size()
        if left and not 0 < self._left < left + _READ:  # it begins to read, or goes on
            self.since, self._left = now, left
        elif not left and self._left:
            self.since, self._left = now, 0
        if now - self.since > self.limit:
            self.transport.abort()


class Server(uvicorn.Server):
    """A server that looks at its connections once a second.

    leaves: end the process with it, without waiting for threads that compile.
    """

    leaves = False

    def handle_exit(self, sig: int, frame: Any) -> None:
        super().handle_exit(sig, frame)
        if self.leaves and not self.started:  # nothing was answered, and what compiles would be waited for
            os._exit(0)

    async def shutdown(self, sockets: Any = None) -> None:
        await super().shutdown(sockets)
        if self.leaves:
            logging.shutdown()
            os._exit(0)

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:
            now = time.monotonic()
            connections: Any = list(self.server_state.connections)  # ours
            for connection in connections:
                try:
                    connection.end_if_late(now)
                except Exception:  # such as of memory: it is looked at again
                    _LOG.exception("a connection could not be ended")
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
