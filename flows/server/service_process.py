"""Run Prefect's server or worker in a process that ends with its parent (started by flows.server.services).

Usage::

    python -m flows.server.service_process server HOST PORT    the API, its web interface and its scheduler
    python -m flows.server.service_process server HOST PORT --brief    the API alone, for one command
    python -m flows.server.service_process worker POOL    runs each flow run in a process of its own

Prefect's own commands (`prefect server start`, `prefect worker start`) outlive a parent that is killed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence

from infra.processes.process import follow_parent

_SHUTDOWN_SECONDS = 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run one service until a signal stops it."""
    follow_parent()
    parser = argparse.ArgumentParser(prog="flows.server.service_process")
    kinds = parser.add_subparsers(dest="kind", required=True)
    server = kinds.add_parser("server")
    server.add_argument("host")
    server.add_argument("port", type=int)
    server.add_argument("--brief", action="store_true", help="no web interface and no scheduler")
    worker = kinds.add_parser("worker")
    worker.add_argument("pool")
    arguments = parser.parse_args(argv)
    if arguments.kind == "server":
        serve(arguments.host, arguments.port, brief=arguments.brief)
    else:
        work(arguments.pool)
    return 0


def serve(host: str, port: int, *, brief: bool) -> None:
    """Serve Prefect's API on ``host:port``."""
    import uvicorn
    from prefect.server.api.server import create_app

    from flows.server.same_origin import SameOriginOnly

    app = create_app(ephemeral=brief, final=True)
    has_password = bool(os.environ.get("PREFECT_SERVER_API_AUTH_STRING"))
    uvicorn.run(
        # A browser never adds the password to requests of a foreign page, so no further guard is needed.
        app if has_password else SameOriginOnly(app),
        host=host,
        port=port,
        log_level="warning",
        lifespan="on",
        # Browsers and workers hold websockets open for ever, so do not wait for them to close.
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )


def work(pool: str) -> None:
    """Run the flow runs of ``pool`` that are due."""
    from prefect.workers.process import ProcessWorker

    asyncio.run(ProcessWorker(work_pool_name=pool, create_pool_if_not_found=False).start())


if __name__ == "__main__":
    sys.exit(main())
