"""The web application of the page, its addresses, wrappers and errors; ``serve_page`` serves it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from shardmill.flows.page import metrics
from shardmill.flows.page.access import PasswordOnly, SameOriginOnly, StrictHeaders
from shardmill.flows.page.options import PageOptions
from shardmill.flows.page.pages import datasets, overview, review, runs
from shardmill.flows.page.platform import Platform
from shardmill.flows.page.rendering import render, static_files
from shardmill.flows.page.tensorboard import pass_on
from shardmill.infra.errors import ConfigError, NotFoundError, ShardmillError, UsageError


def create_app(options: PageOptions) -> Starlette:
    """Return the application. Without a password it answers only requests of this machine's own pages."""
    platform = Platform(options)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        platform.open()
        try:
            yield
        finally:
            await platform.close()

    guard = (
        Middleware(SameOriginOnly) if options.auth is None else Middleware(PasswordOnly, auth=options.auth)
    )
    app = Starlette(
        routes=_routes(),
        middleware=[Middleware(StrictHeaders), guard, Middleware(GZipMiddleware, minimum_size=2000)],
        exception_handlers={
            ShardmillError: _said,
            HTTPException: _refused,
            Exception: _failed,
        },
        lifespan=lifespan,
    )
    app.state.platform = platform
    return app


def _routes() -> list[BaseRoute]:
    return [
        Route("/", overview.show),
        Route("/live", overview.live),
        Route("/health", _health),
        Route("/metrics", metrics.show),
        Route("/static/{name}", _static),
        Route("/datasets", datasets.list_all),
        Route("/datasets/{name}", datasets.show),
        Route("/datasets/{name}/{version:int}", datasets.show_version),
        Route("/datasets/{name}/{version:int}/report", datasets.report),
        Route("/datasets/{name}/{version:int}/pictures/{record}", review.picture),
        Route("/datasets/{name}/decisions", review.decide, methods=["POST"]),
        Route("/review", review.show),
        Route("/review/token", review.token),
        Route("/runs", runs.list_all),
        Route("/runs/{name}", runs.show),
        Route("/runs/{name}/live", runs.live),
        Route("/runs/{name}/report", runs.report),
        Route("/runs/{name}/files/{file}", runs.file),
        Route("/compare", runs.compare),
        Route("/lineage", datasets.lineage),
        Route("/aliases", datasets.aliases),
        Route("/tensorboard", pass_on),
        # TensorBoard's pages ask for many series at once by POST; they change nothing.
        Route("/tensorboard/{path:path}", pass_on, methods=["GET", "HEAD", "POST"]),
    ]


async def _health(_: Request) -> Response:
    return PlainTextResponse("true")


async def _static(request: Request) -> Response:
    found = static_files().get(request.path_params["name"])
    if found is None:
        raise HTTPException(404)
    # The address changes with the content.
    return Response(found[0], media_type=found[1], headers={"Cache-Control": "public, max-age=31536000"})


async def _said(request: Request, error: Exception) -> Response:
    assert isinstance(error, ShardmillError)
    is_absent = isinstance(error, NotFoundError | UsageError | ConfigError)
    return await _error_page(request, 404 if is_absent else 503, error.message, error.remedy)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return await _error_page(request, 404, "There is no such page.", "Begin at the overview.")
    return PlainTextResponse(f"{error.detail}\n", error.status_code, dict(error.headers or {}))


async def _failed(request: Request, error: Exception) -> Response:
    message = f"The page could not be made: {type(error).__name__}."
    return await _error_page(request, 500, message, "The log of the page has the details.")


async def _error_page(request: Request, status: int, message: str, remedy: str | None) -> Response:
    return await run_in_threadpool(
        render, request, "error.html.j2", status=status, title="Not shown", message=message, remedy=remedy
    )


_SHUTDOWN_SECONDS = 3


def serve_page(options: PageOptions, host: str, port: int) -> None:
    """Serve the page on ``host:port`` until a signal ends this process."""
    uvicorn.run(
        create_app(options),
        host=host,
        port=port,
        log_level="warning",
        lifespan="on",
        server_header=False,
        # There is no proxy in front of it, so forwarding headers are not trusted.
        proxy_headers=False,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
