"""Who may do what: API keys with roles, allowed hosts, rates, and the audit of operators' calls."""

import hashlib
import hmac
import math
import os
import secrets
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

import orjson

from seqdec.serve.config import Key, Role, Settings

Right = Literal["read", "decide", "operate"]
RIGHTS: Mapping[Role, frozenset[Right]] = {
    "reader": frozenset({"read"}),
    "decider": frozenset({"decide"}),
    "operator": frozenset({"read", "decide", "operate"}),
}
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_CALLERS = 10_000
"""Addresses whose rate is remembered."""
_PREFIX = "seqdec_"


class RefusedError(Exception):
    """A call that is not answered: `status` of HTTP, and why."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, dict(headers or {})


class Caller(NamedTuple):
    """Who calls: the name of a key, or an address."""

    name: str
    key: Key | None


def new_key() -> tuple[str, str]:
    """A random API key of 256 bits, and its SHA-256 for the settings."""
    key = _PREFIX + secrets.token_urlsafe(32)
    return key, _digest(key)


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


class Access:
    """Checks callers by the settings, and writes the audit to a file."""

    def __init__(self, settings: Settings, audit: Path) -> None:
        self._keys, self._rate, self._audit = settings.keys, settings.server.rate, audit
        hosts = settings.server.hosts or ([] if settings.keys else [*_LOOPBACK, settings.server.host])
        self._hosts = {host.lower().strip("[]") for host in hosts}
        self._buckets: dict[str, tuple[float, float]] = {}

    def check_host(self, host: str) -> None:
        """Raises RefusedError for a header Host that is not allowed, as of a page that has rebound its name."""
        if self._hosts and _name(host) not in self._hosts:
            raise RefusedError(421, f"this server is not called {host!r:.80}: add it to server.hosts")

    def caller(self, authorization: str | None, address: str) -> Caller:
        """Who calls. Raises RefusedError without a known key, or above the rate."""
        found = Caller(address, None)
        if self._keys:
            scheme, _, given = (authorization or "").partition(" ")
            digest, found = _digest(given.strip()), None
            for name, key in self._keys.items():  # all of them, in constant time
                for known in key.sha256:
                    if hmac.compare_digest(digest, known):
                        found = Caller(name, key)
            if found is None or scheme.lower() != "bearer":
                hint = {"WWW-Authenticate": "Bearer"}
                said = "this API key is unknown" if given else "give an API key: Authorization: Bearer KEY"
                raise RefusedError(401, said, hint)
        if self._rate is not None:
            self._take(found.name, self._rate)
        return found

    def check(self, caller: Caller, right: Right, deployment: str | None) -> None:
        """Raises RefusedError where the key of the caller has not this right."""
        if caller.key is None:
            return
        if right not in RIGHTS[caller.key.role]:
            raise RefusedError(403, f"the key {caller.name} has the role {caller.key.role}, which may not {right}")
        mine = caller.key.deployments
        if mine is not None and deployment not in mine:
            raise RefusedError(403, f"the key {caller.name} is for the deployments {', '.join(mine)}")

    def record(self, caller: Caller, address: str, call: str, deployment: str | None, status: int) -> None:
        """Append an operator's call to the audit."""
        when = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"time": when, "key": caller.name, "address": address, "call": call, "deployment": deployment}
        file = os.open(self._audit, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, orjson.dumps({**line, "status": status}) + b"\n")
        finally:
            os.close(file)

    def _take(self, name: str, rate: float) -> None:
        """One of the tokens that fill a bucket of a second, or of one call."""
        now, most = time.monotonic(), max(rate, 1.0)
        tokens, before = self._buckets.pop(name, (most, now))
        tokens = min(most, tokens + (now - before) * rate)
        self._buckets[name] = (max(tokens - 1, 0.0) if tokens >= 1 else tokens, now)
        if len(self._buckets) > _CALLERS:
            del self._buckets[next(iter(self._buckets))]
        if tokens < 1:
            wait = {"Retry-After": f"{math.ceil((1 - tokens) / rate)}"}
            raise RefusedError(429, f"{name} makes more than {rate:g} requests per second", wait)


def _name(host: str) -> str:
    """The name in a header Host, without its port."""
    host = host.lower()
    return host[1 : host.find("]")] if host.startswith("[") else host.partition(":")[0]
