"""Have clients try again while Redis is away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request


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
    return JSONResponse({"exception_message": "Redis is away"}, 503)
