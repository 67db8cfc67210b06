"""Say what is wrong with the parameters of a run that was asked for (an ASGI wrapper of Prefect's server).

Prefect names the first wrong parameter, and a text of a wrong form by the regular expression that it misses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_ASKS = re.compile(r"/api/deployments/([0-9a-f-]{36})/create_flow_run/?")
_REFUSED = 409


class FormErrors:
    """Passes requests on. If a run is refused for its parameters, names every wrong one and what is right."""

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
    """Yield what is wrong with each parameter of a run, in words.

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
