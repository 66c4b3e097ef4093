"""A client of `seqdec serve`, of the standard library alone."""

import http.client
import json
import threading
import uuid
from typing import Any
from urllib.parse import quote, urlsplit


class RefusedError(Exception):
    """The server refused a request; `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Client:
    """Calls deployments at a URL, over one connection per thread.

    >>> shop = Client("http://127.0.0.1:8000", key="seqdec_...")  # doctest: +SKIP
    >>> decision = shop.decide("banners", {"age": 31, "city": "Rome"})  # doctest: +SKIP
    >>> shop.learn("banners", decision["token"], 1.0)  # doctest: +SKIP
    'learned'
    """

    def __init__(self, url: str, *, key: str | None = None, timeout: float = 10.0) -> None:
        """`key`: of the API; `timeout`: seconds."""
        self._url, self._timeout, self._local = urlsplit(url), timeout, threading.local()
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})

    def decide(
        self, deployment: str, context: Any = None, *, key: str | None = None, fallback: Any = None, **options: Any
    ) -> dict[str, Any]:
        """Action, propensity and token; options: mask, items, active. A repeated key gets the first answer.

        If no server answers, or with 503, the action is `fallback`, if given, with propensity and token None.
        """
        body = {"context": context, "key": key or uuid.uuid4().hex, **options}
        try:
            return self.call(f"/v1/{quote(deployment, '')}/decide", body)
        except (OSError, RefusedError) as error:
            if fallback is None or (isinstance(error, RefusedError) and error.status != 503):
                raise
            return {"action": fallback, "propensity": None, "token": None}

    def learn(self, deployment: str, token: str, reward: Any, *, id: str | None = None) -> str:
        """Report the reward of a decision; returns what happened to it. A repeated id counts once."""
        body = {"token": token, "reward": reward, "id": id or uuid.uuid4().hex}
        return self.call(f"/v1/{quote(deployment, '')}/learn", body)["result"]

    def call(self, path: str, body: Any = None) -> Any:
        """The answer to any call: GET without a body, else POST. Raises RefusedError, and OSError.

        Repeatable requests (GET, a body with a key or id) are sent again if the server has closed the connection.
        """
        content = None if body is None else json.dumps(body, allow_nan=False)
        if body is not None and not body.keys() & {"key", "id"}:
            self.close()  # a new connection has not been closed
        while True:
            known = getattr(self._local, "connection", None)
            try:
                connection = known or self._connected()
                place = self._url.path.rstrip("/") + path
                connection.request("GET" if content is None else "POST", place, content, self._headers)
                response = connection.getresponse()
                answer = response.read()
                break
            except http.client.HTTPException as error:
                self.close()
                if known is None:
                    raise ConnectionError(f"the server does not speak HTTP: {error!r:.80}") from error
            except OSError as error:
                self.close()
                if known is None or isinstance(error, TimeoutError):  # else the server has closed an idle connection
                    raise
        is_json = response.headers.get_content_type() == "application/json"
        found: Any = json.loads(answer) if is_json else answer
        if response.status != 200:  # also of a proxy
            is_ours = isinstance(found, dict) and "error" in found
            raise RefusedError(response.status, found["error"] if is_ours else answer[:200].decode(errors="replace"))
        return found

    def close(self) -> None:
        """Close this thread's connection; the next call opens another."""
        connection = self._local.__dict__.pop("connection", None)
        if connection is not None:
            connection.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _connected(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        self._local.connection = kind(self._url.netloc, timeout=self._timeout)
        return self._local.connection
