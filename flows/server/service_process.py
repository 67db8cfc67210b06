"""Run a service of `shardmill up` in a process that ends with its parent (shardmill.flows.server.services).

Usage::

    python -m shardmill.flows.server.service_process KIND ...

    server HOST PORT    the API, its web interface and its scheduler
    worker POOL         runs each flow run in a process of its own
    page HOST PORT      the platform's own page (shardmill.flows.page)
    watch               sends messages about runs and problems, watches inboxes
    tensorboard PORT    TensorBoard on loopback, below /tensorboard
    deploy FILE         registers the deployments of a file, then ends

Prefect's own commands (`prefect server start`, `prefect worker start`, `prefect deploy`) outlive a parent
that is killed.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shardmill.infra.processes.process import follow_parent

_SHUTDOWN_SECONDS = 3
_RELOAD_SECONDS = 5  # TensorBoard looks for new points this often


def main(argv: Sequence[str] | None = None) -> int:
    """Run one service until a signal stops it."""
    follow_parent()
    parser = argparse.ArgumentParser(prog="shardmill.flows.server.service_process")
    kinds = parser.add_subparsers(dest="kind", required=True)
    server = kinds.add_parser("server")
    server.add_argument("host")
    server.add_argument("port", type=int)
    worker = kinds.add_parser("worker")
    worker.add_argument("pool")
    page = kinds.add_parser("page")
    page.add_argument("host")
    page.add_argument("port", type=int)
    kinds.add_parser("watch", aliases=["inboxes"])  # its name in earlier releases
    tensorboard = kinds.add_parser("tensorboard")
    tensorboard.add_argument("port", type=int)
    deploying = kinds.add_parser("deploy")
    deploying.add_argument("described")
    arguments = parser.parse_args(argv)
    if arguments.kind == "server":
        serve(arguments.host, arguments.port)
    elif arguments.kind == "page":
        _show_page(arguments.host, arguments.port)
    elif arguments.kind in ("watch", "inboxes"):
        watch()
    elif arguments.kind == "tensorboard":
        _show_curves(arguments.port)
    elif arguments.kind == "deploy":
        deploy(arguments.described)
    else:
        work(arguments.pool)
    return 0


def serve(host: str, port: int, *, api_only: bool = False) -> None:
    """Serve Prefect's API on ``host:port``.

    Args:
        host: address to listen on.
        port: port to listen on.
        api_only: leave scheduler, automations and the other services to ``run_server_services`` elsewhere.
    """
    import uvicorn
    from prefect.server.api.server import create_app

    from shardmill.flows.page.access import SameOriginOnly
    from shardmill.flows.server.answers import AgainWhileLocked, FormErrors, WithoutSecondUi

    prefect = create_app(final=True, webserver_only=api_only)
    if api_only:
        from shardmill.flows.server.answers import try_again_without_redis

        try_again_without_redis(prefect)
    app = WithoutSecondUi(FormErrors(AgainWhileLocked(prefect)))
    has_password = bool(os.environ.get("PREFECT_SERVER_API_AUTH_STRING"))
    uvicorn.run(
        # With a password no guard is needed: a browser never adds it to requests of pages of other origins.
        app if has_password else SameOriginOnly(app),
        host=host,
        port=port,
        log_level="warning",
        lifespan="on",
        # Browsers and workers keep websockets open, so do not wait until they close.
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )


def run_server_services() -> None:
    """Run the services of Prefect's server beside API servers without them."""
    from prefect.cli.server import start_services

    start_services(background=False)


def _show_page(host: str, port: int) -> None:
    """Serve the page of the platform, whose settings are in the environment, on ``host:port``."""
    from shardmill.flows.page.app import serve_page
    from shardmill.flows.page.options import options_of_environment

    serve_page(options_of_environment(), host, port)


def _show_curves(port: int) -> None:
    """Serve TensorBoard for the runs in SHARDMILL_RUNS; for an object store, for the page's copy of them.

    Its own command would load TensorFlow (700 MB, and a GPU's memory) for plugins that Shardmill writes
    nothing for.
    """
    from tensorboard import default, program

    from shardmill.flows.page.access import own_hosts_only
    from shardmill.training.run.files.stored import local_folder

    def on_own_hosts(app: Any, flags: Any) -> Any:
        return program.create_port_scanning_werkzeug_server(own_hosts_only(app), flags)

    board = program.TensorBoard(plugins=default.get_static_plugins(), server_class=on_own_hosts)
    board.configure(
        host="127.0.0.1",
        port=port,
        path_prefix="/tensorboard",
        logdir=str(local_folder(os.environ["SHARDMILL_RUNS"])),
        reload_interval=_RELOAD_SECONDS,
    )
    board.main()


def watch() -> None:
    """Send messages about runs and problems of the server, and watch its inboxes."""
    # A request that fails is made again by the next look.
    os.environ.setdefault("PREFECT_CLIENT_MAX_RETRIES", "0")
    os.environ.setdefault("PREFECT_API_REQUEST_TIMEOUT", "20")
    from shardmill.flows.server.alarm.watch import watch as watch_server

    watch_server()


def work(pool: str) -> None:
    """Run the flow runs of ``pool`` that are due."""
    from shardmill.flows.server import worker

    worker.work(pool)


def deploy(described: str) -> None:
    """Register all deployments of a file by Prefect's own command."""
    # Prefect looks for a project in the working folder; our project consists of this file alone.
    os.chdir(Path(described).parent)
    sys.argv = ["prefect", "--no-prompt", "deploy", "--all", "--prefect-file", described]
    runpy.run_module("prefect", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    sys.exit(main())
