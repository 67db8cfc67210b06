"""Access to the page and to Prefect's server, and security headers (ASGI wrappers).

**The same origin.** Prefect's CORS and CSRF settings do not cover two ways into a server that has no
password. Browsers let any page open a websocket to it. And a page whose host name is pointed at 127.0.0.1
after it has loaded (DNS rebinding) is of the same origin as the server.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shardmill.flows.home import LOOPBACK

_REFUSAL = "This server answers only its own pages, on loopback.\n"


class SameOriginOnly:
    """Passes on requests to a loopback name that come from no page, or from a page of the server itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request: 403 for a foreign page, for websockets before they are accepted."""
        if scope["type"] == "lifespan" or is_own(Headers(scope=scope)):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "foreign origin"})
        else:
            refusal = PlainTextResponse(_REFUSAL, 403)
            await refusal(scope, receive, send)


def own_hosts_only(app: Any) -> Any:
    """Return a WSGI application that refuses the same requests as ``SameOriginOnly``."""

    def answer(environ: dict[str, Any], start_response: Any) -> Any:
        names = {"host": "HTTP_HOST", "origin": "HTTP_ORIGIN"}
        given = {name: str(environ[key]) for name, key in names.items() if key in environ}
        if is_own(Headers(given)):
            return app(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "text/plain")])
        return [_REFUSAL.encode()]

    return answer


def is_own(headers: Headers) -> bool:
    """Tell whether a request names a loopback host, and comes from no page or from one of its own."""
    host, origin = headers.get("host", ""), headers.get("origin")
    try:
        names_loopback = urlsplit(f"//{host}").hostname in LOOPBACK
        return names_loopback and (origin is None or urlsplit(origin).netloc == host)
    except ValueError:  # half an IPv6 address
        return False


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
