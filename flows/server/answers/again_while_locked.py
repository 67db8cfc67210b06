"""Answer a request again while SQLite is locked (an ASGI wrapper of Prefect's server).

Prefect reads and then writes in one transaction. SQLite refuses the write at once if another one came
between, and Prefect answers 503. Its own clients try again, browsers do not.
"""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
