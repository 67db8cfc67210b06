"""Better answers of Prefect's server (ASGI wrappers).

**SQLite is locked.** Prefect reads and then writes in one transaction. SQLite refuses the write at once if
another one came between, and Prefect answers 503. Its own clients try again, browsers do not.

**A parameter is wrong.** Prefect names the first wrong parameter, and a text of a wrong form by the regular
expression that it misses.

**The second web interface** calls an analytics host from the browser, so it is refused. Prefect has no
setting that takes it off the server: ``PREFECT_SERVER_UI_V2_ENABLED`` only chooses what opens first, and the
first interface links to the second.

**Redis is away**: clients try again.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request

_DELAYS_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
_LARGEST_BODY_BYTES = 8 << 20
_UNAVAILABLE = 503


class AgainWhileLocked:
    """Passes requests on, and again if the answer is 503; those that are tried again go one after another."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._turn = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request, is_whole = await _read(receive)
        if not is_whole:
            await self._app(scope, _replayed(request, receive), send)
            return
        if await self._is_answered(scope, request, receive, send):
            return
        async with self._turn:
            for delay in _DELAYS_SECONDS:
                await asyncio.sleep(delay)
                if await self._is_answered(scope, request, receive, send):
                    return
        await self._app(scope, _replayed(request, receive), send)

    async def _is_answered(self, scope: Scope, request: list[Message], receive: Receive, send: Send) -> bool:
        """Pass a request on once; send the answer unless it is 503, and tell whether it was sent."""
        is_sent = True

        async def send_unless_locked(message: Message) -> None:
            nonlocal is_sent
            if message["type"] == "http.response.start" and message["status"] == _UNAVAILABLE:
                is_sent = False
            if is_sent:
                await send(message)

        try:
            await self._app(dict(scope), _replayed(request, receive), send_unless_locked)
        except Exception:  # Starlette answers 503, and then raises the error for the log
            if is_sent:
                raise
        return is_sent


async def _read(receive: Receive) -> tuple[list[Message], bool]:
    """Return the messages of a request so far, and whether they are all of it."""
    messages, size = [], 0
    while size <= _LARGEST_BODY_BYTES:
        message = await receive()
        messages.append(message)
        size += len(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body"):
            return messages, True
    return messages, False


def _replayed(messages: list[Message], receive: Receive) -> Receive:
    left = iter(messages)

    async def again() -> Message:
        message = next(left, None)
        return await receive() if message is None else message

    return again


_ASKS = re.compile(r"/api/deployments/([0-9a-f-]{36})/create_flow_run/?")
_REFUSED = 409


class FormErrors:
    """Passes requests on. If a run is refused for its parameters, names every wrong one and its remedy."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        found = _ASKS.fullmatch(scope.get("path", "")) if scope["type"] == "http" else None
        if found is None:
            await self._app(scope, receive, send)
            return
        asked, answer = bytearray(), list[Message]()

        async def hear() -> Message:
            message = await receive()
            asked.extend(message.get("body", b""))
            return message

        async def keep(message: Message) -> None:
            answer.append(message)

        await self._app(scope, hear, keep)
        if answer and answer[0].get("status") == _REFUSED:
            schema = await self._schema(found[1], Headers(scope=scope))
            wrong = list(wrong_parameters(schema, bytes(asked)))
            if wrong:
                refusal = JSONResponse({"detail": f"Not started. {'. '.join(wrong)}."}, _REFUSED)
                await refusal(scope, receive, send)
                return
        for message in answer:
            await send(message)

    async def _schema(self, deployment: str, headers: Headers) -> dict[str, Any]:
        """Return the schema of the parameters of a deployment; empty if it is not known."""
        passed = {name: headers[name] for name in ("authorization", "host") if name in headers}
        client = httpx.AsyncClient(transport=httpx.ASGITransport(self._app), base_url="http://127.0.0.1")
        async with client:
            answer = await client.get(f"/api/deployments/{deployment}", headers=passed)
        return dict(answer.json().get("parameter_openapi_schema") or {}) if answer.is_success else {}


def wrong_parameters(schema: dict[str, Any], body: bytes) -> Iterator[str]:
    """Yield a sentence about each wrong parameter of a run.

    Args:
        schema: JSON schema of the parameters.
        body: the request for a run, JSON with ``parameters``.
    """
    try:
        parameters = json.loads(body).get("parameters") or {}
    except (ValueError, AttributeError):
        return
    for error in Draft202012Validator(schema).iter_errors(parameters):
        nearest = best_match([error]) or error
        at = ".".join(map(str, nearest.absolute_path))
        yield f"{at}: {_in_words(nearest)}" if at else _in_words(nearest)


def _in_words(error: ValidationError) -> str:
    if error.validator != "pattern":
        return str(error.message)
    examples = " or ".join(map(str, error.schema.get("examples", ())))
    return f"{error.instance!r} does not match what is asked for" + (
        f", such as {examples}" if examples else ""
    )


_PATH = "/v2"
# Prefect stores in this cookie which interface a person chose, and redirects / to it.
_CHOICE_COOKIE = "prefect_ui_version"


class WithoutSecondUi:
    """Redirects every address of the second interface to the first."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        path = scope.get("path", "")
        if scope["type"] == "http" and (path == _PATH or path.startswith(f"{_PATH}/")):
            answer = RedirectResponse("/", 303)
            answer.delete_cookie(_CHOICE_COOKIE)
            await answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def try_again_without_redis(server: FastAPI) -> None:
    """Have Prefect's server answer 503 where Redis fails; its clients try that again, for about a minute.

    Prefect answers so when its database is away. Where Redis is, it answers 500, and a run whose end cannot
    be stored crashes.

    Args:
        server: Prefect's application, which mounts its API.
    """
    from fastapi import FastAPI
    from redis.exceptions import RedisError
    from starlette.routing import Mount

    for route in server.routes:
        if isinstance(route, Mount) and isinstance(route.app, FastAPI):
            route.app.add_exception_handler(RedisError, _unavailable)


async def _unavailable(_request: Request, _error: Any) -> JSONResponse:
    return JSONResponse({"exception_message": "Redis is away"}, _UNAVAILABLE)
