"""Access to the page, and its security headers (ASGI wrappers)."""

from __future__ import annotations

import base64
import binascii
import secrets

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Nothing inline, nothing from elsewhere: injected markup could neither run nor load anything.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class StrictHeaders:
    """Adds the policies above to every answer that has none of its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                # TensorBoard states a policy of its own, which allows its scripts.
                headers.setdefault("Content-Security-Policy", _POLICY)
            await send(message)

        await self._app(scope, receive, send_with_headers)


class PasswordOnly:
    """Answers only requests with the password, by HTTP basic authentication."""

    def __init__(self, app: ASGIApp, auth: str) -> None:
        """Ask for ``auth``, ``user:password``."""
        self._app, self._auth = app, auth.encode("utf-8")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request: 401 without the password; websockets are refused before they are accepted."""
        if scope["type"] == "lifespan" or self._is_known(Headers(scope=scope)):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "no password"})
        else:
            asking = {"WWW-Authenticate": 'Basic realm="Shardmill", charset="UTF-8"'}
            await PlainTextResponse("This page asks for a password.\n", 401, asking)(scope, receive, send)

    def _is_known(self, headers: Headers) -> bool:
        kind, _, encoded = headers.get("authorization", "").partition(" ")
        try:
            given = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            return False
        return kind.lower() == "basic" and secrets.compare_digest(given, self._auth)
