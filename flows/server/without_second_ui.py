"""Refuse Prefect's second web interface, which calls an analytics host from the browser (an ASGI wrapper).

Prefect has no setting that takes it off the server: ``PREFECT_SERVER_UI_V2_ENABLED`` only chooses what opens
first, and the first interface links to the second.
"""

from __future__ import annotations

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

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
