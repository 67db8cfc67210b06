"""The processes behind a Prefect API, each started by flows.services and gone when its parent is gone::

    python -m flows.service_process server HOST PORT    the API, its web interface and its scheduler
    python -m flows.service_process server HOST PORT --brief    the API alone, for one command
    python -m flows.service_process worker POOL    runs each flow run in a process of its own

Prefect's own commands (`prefect server start`, `prefect worker start`) do the same, but outlive a parent
that is killed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

from infra.process import follow_parent

_SHUTDOWN_SECONDS = 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run one service until it is told to stop."""
    follow_parent()
    parser = argparse.ArgumentParser(prog="flows.service_process")
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

    uvicorn.run(
        create_app(ephemeral=brief, final=True),
        host=host,
        port=port,
        log_level="warning",
        lifespan="on",
        # Browsers and workers hold websockets open; waiting for them to close would be waiting for ever.
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )


def work(pool: str) -> None:
    """Poll ``pool`` and run what is due."""
    from prefect.workers.process import ProcessWorker

    asyncio.run(ProcessWorker(work_pool_name=pool, create_pool_if_not_found=False).start())


if __name__ == "__main__":
    sys.exit(main())
