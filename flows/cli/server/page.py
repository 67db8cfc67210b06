"""page: serve the platform's own page alone."""

from __future__ import annotations

from typing import Annotated

import typer

from shardmill.flows.cli import options, output
from shardmill.flows.cli.folders import runs_location
from shardmill.flows.cli.server.service import Auth, Host
from shardmill.flows.home import server_url
from shardmill.flows.page.options import PageOptions
from shardmill.flows.parameters import root_or_default
from shardmill.flows.server.api import check_place, standing_api
from shardmill.infra.errors import EnvironmentFault
from shardmill.infra.processes.ports import free_port

_DEFAULT_PORT = 4201

Port = Annotated[
    int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="Port of the page; 0 takes a free one")
]


def page(
    root: options.Root = None,
    runs: options.Runs = None,
    port: Port = _DEFAULT_PORT,
    host: Host = "127.0.0.1",
    auth: Auth = None,
    json_output: options.Json = False,
) -> None:
    """Serve the page of datasets, versions and training runs. `shardmill up` starts it too.

    Without a Prefect server it shows the folders alone; runs that train still move.

    Examples:
      shardmill platform page
      shardmill platform page --root /data/datasets --runs /data/runs --port 8080
    """
    from shardmill.flows.page.app import serve_page

    port = port or free_port()
    check_place(host, port, auth or None, "--port")
    try:
        api = standing_api()
    except EnvironmentFault as fault:
        output.note(f"warning: {fault.message}; the page shows folders alone")
        api = None
    shown = PageOptions(
        root_or_default(root),
        runs_location(runs),
        auth=auth or None,
        api_url=api.url if api else None,
        api_auth=api.auth if api else None,
        ui_url=api.ui_url if api else None,
    )
    output.answer(
        {"page_url": server_url(host, port)},
        json_output,
        f"Page: {server_url(host, port)}",
        "Ctrl-C stops it.",
    )
    serve_page(shown, host, port)
