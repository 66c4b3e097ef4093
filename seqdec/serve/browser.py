"""Routes of the page (`seqdec.serve.page`): for keys that may read, which a browser asks for as a password."""

import base64
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from seqdec.serve import calls, messages, page
from seqdec.serve.access import Access, Caller, RefusedError
from seqdec.serve.calls import Service
from seqdec.serve.deployments import Deployment, UnavailableError

_NUMBERS = "numbers"
_FORM = "application/x-www-form-urlencoded"
_LONGEST = 2**16
"""Bytes of a form."""


def routes(service: Service, access: Access) -> list[Route]:
    """The list of deployments, each of them, and its form."""

    def shown(answer: Callable[..., Any]) -> Callable[[Request], Any]:
        async def answered(request: Request) -> Response:
            try:
                caller = _caller(request, access)
                name = request.path_params.get("deployment")
                if name is None:
                    seen = [one for one in service.deployments if _may(access, caller, one)]
                    if not seen and service.deployments:
                        access.check(caller, "read", None)
                    return _page(await answer(service, seen))
                access.check(caller, "read", name)
                found = service.deployments.get(name)
                if found is None:
                    raise RefusedError(404, f"there is no deployment {name!r:.80}")
                return _page(await answer(service, found, request))
            except RefusedError as error:
                return _refused(error)
            except (UnavailableError, RuntimeError, OSError, ValueError) as error:
                said = service.deployments.said(error)
                return _refused(RefusedError(503, f"the deployment cannot answer now: {said}"))

        return answered

    return [
        Route("/", shown(_overview)),
        Route("/deployments/{deployment}", shown(_deployment)),
        Route("/deployments/{deployment}/report", shown(_report)),
        Route("/deployments/{deployment}/explain", shown(_explained), methods=["GET", "POST"]),
    ]


async def _overview(service: Service, names: list[str]) -> str:
    return page.overview([await calls.about(service, service.deployments[name], None) for name in names])


async def _deployment(service: Service, deployment: Deployment, request: Request) -> str:
    found = await calls.diagnostics(service, deployment, None) if deployment.state == "open" else None
    about = await calls.about(service, deployment, None)
    return page.deployment(about, found)


async def _report(service: Service, deployment: Deployment, request: Request) -> str:
    rule: str | None = None
    if "rule" in deployment.compared:
        try:
            rule = (await calls.compared(service, deployment, "rule"))["verdict"]
        except ValueError as error:
            rule = service.deployments.said(error)
    return page.report(deployment.name, await calls.report(service, deployment, None), rule)


async def _explained(service: Service, deployment: Deployment, request: Request) -> str:
    declared = deployment.declaration.context
    encoder = None if declared is None else declared.made()
    given = await _form(request) if request.method == "POST" else {}
    fields: list[page.Field] = []
    if encoder is not None:
        fields = page.fields_of(encoder.kinds, given)
    elif declared is not None:
        fields = [page.Field(_NUMBERS, "vector", value=given.get(_NUMBERS, ""))]
    if request.method == "GET":
        return page.explained(deployment.name, fields)
    try:
        context: Any = None
        if encoder is not None:
            context = page.row_of(encoder.kinds, given)
        elif declared is not None:
            context = page.numbers_of(given.get(_NUMBERS, ""))
        found = await calls.explain(service, deployment, messages.Question(context=context))
    except (ValueError, TypeError) as error:
        return page.explained(deployment.name, fields, refusal=str(error))
    return page.explained(deployment.name, fields, found["actions"])


async def _form(request: Request) -> Mapping[str, str]:
    """The fields of a form. Raises RefusedError."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise RefusedError(415, f"send a form, as Content-Type: {_FORM}")
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > _LONGEST:
            raise RefusedError(413, f"send at most {_LONGEST:,} bytes", {"Connection": "close"})
    return dict(parse_qsl(content.decode(errors="replace"), keep_blank_values=True))


def _caller(request: Request, access: Access) -> Caller:
    """Who asks, by a bearer's key or the password of HTTP Basic. Raises RefusedError, so that a browser asks for it."""
    access.check_host(request.headers.get("host", ""))
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            given = base64.b64decode(given, validate=True).decode().partition(":")[2]
        except ValueError:
            given = ""
    try:
        return access.caller(f"Bearer {given}" if given else None, request.client.host if request.client else "")
    except RefusedError as error:
        if error.status != 401:
            raise
        hint = {"WWW-Authenticate": 'Basic realm="seqdec: a key as the password", charset="UTF-8"'}
        raise RefusedError(
            401, "give an API key that may read as the password; the name does not matter", hint
        ) from None


def _may(access: Access, caller: Caller, name: str) -> bool:
    try:
        access.check(caller, "read", name)
    except RefusedError:
        return False
    return True


def _refused(error: RefusedError) -> Response:
    text = page.document(f"Error {error.status}", page.element("p", str(error)), links={}, live=False)
    return _page(text, error.status, error.headers)


def _page(text: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return HTMLResponse(text, status, {**page.HEADERS, **(headers or {})})
