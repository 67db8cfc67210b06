"""Requests to a web application without a server between."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
from starlette.applications import Starlette

ORIGIN = "http://localhost:4201"


def get(app: Starlette, path: str, **more: Any) -> httpx.Response:
    """Send a GET request, without quoting the path; return the answer."""
    return ask(app, "GET", path, **more)


def ask(app: Starlette, method: str, path: str, **more: Any) -> httpx.Response:
    """Return the answer to a request."""

    async def request() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=ORIGIN) as client:
            return await client.request(method, path, **more)

    return asyncio.run(request())
