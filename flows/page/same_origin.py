"""Refuse requests that pages of other origins make to a server on loopback (an ASGI wrapper).

Prefect's CORS and CSRF settings do not cover two ways into a server that has no password. Browsers let any
page open a websocket to it. And a page whose host name is pointed at 127.0.0.1 after it has loaded (DNS
rebinding) is of the same origin as the server.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

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
    """Return a WSGI application that refuses what ``SameOriginOnly`` does."""

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
