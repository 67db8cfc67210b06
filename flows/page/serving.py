"""Serve the page from this process."""

from __future__ import annotations

import uvicorn

from shardmill.flows.page.app import create_app
from shardmill.flows.page.options import PageOptions

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
