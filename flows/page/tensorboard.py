"""Pass requests below /tensorboard on to TensorBoard, which listens on loopback alone (a reverse proxy).

So the rules of the page hold for TensorBoard too: its password, and who may ask.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse

_TIMEOUT_SECONDS = 60.0
_LARGEST_BODY_BYTES = 4 << 20
# Headers of one connection, and those that belong to the page alone.
_OF_CONNECTION = {
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer",
    "transfer-encoding", "upgrade", "host", "authorization", "cookie", "origin", "referer", "content-length",
    "server", "date",
}  # fmt: skip
_STARTING = "TensorBoard does not answer; it starts, or it has ended. Try again in some seconds.\n"


class TensorBoardProxy:
    """Passes requests on to one TensorBoard."""

    def __init__(self, url: str) -> None:
        """Pass on to ``url``, which has no path."""
        self._http = httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_SECONDS, trust_env=False)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def answer(self, request: Request) -> Response:
        """Return TensorBoard's answer."""
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > _LARGEST_BODY_BYTES:
                return PlainTextResponse("too large\n", 413)
        sent = self._http.build_request(
            request.method,
            httpx.URL(raw_path=_raw_path(request)),
            headers=[pair for pair in request.headers.raw if pair[0].decode("latin-1") not in _OF_CONNECTION],
            content=body,
        )
        try:
            found = await self._http.send(sent, stream=True)
        except httpx.HTTPError:
            return PlainTextResponse(_STARTING, 503, {"Retry-After": "3", "Refresh": "3"})
        answer = StreamingResponse(_parts(found), found.status_code, background=BackgroundTask(found.aclose))
        answer.raw_headers = [
            (name.lower(), value)
            for name, value in found.headers.raw
            if name.lower().decode("latin-1") not in _OF_CONNECTION
        ]
        # Some of its tabs are frames of its own.
        answer.headers["X-Frame-Options"] = "SAMEORIGIN"
        return answer


async def _parts(answer: httpx.Response) -> AsyncIterator[bytes]:
    """Yield the content unchanged, compressed or not; stop where the connection breaks off."""
    try:
        async for part in answer.aiter_raw():
            yield part
    except httpx.HTTPError:
        return


def _raw_path(request: Request) -> bytes:
    path: bytes = request.scope.get("raw_path") or request.url.path.encode("ascii", "replace")
    query: bytes = request.scope.get("query_string", b"")
    return path.partition(b"?")[0] + (b"?" + query if query else b"")


async def pass_on(request: Request) -> Response:
    """Answer a request below /tensorboard."""
    proxy: TensorBoardProxy | None = request.app.state.platform.tensorboard
    if proxy is None:
        return PlainTextResponse(
            "TensorBoard does not run here. See its curves: tensorboard --logdir RUNS\n", 404
        )
    if request.url.path == "/tensorboard":
        return RedirectResponse("/tensorboard/")
    return await proxy.answer(request)
