"""server: run one process of a Prefect server that has several."""

from __future__ import annotations

import contextlib
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from shardmill.flows.cli import options
from shardmill.flows.cli.server.service import Auth, Host
from shardmill.infra.errors import UsageError

if TYPE_CHECKING:
    from shardmill.flows.server.production.settings import Backends

_DEFAULT_PORT = 4200


class Part(StrEnum):
    """A process of Prefect's server."""

    MIGRATE = "migrate"
    API = "api"
    SERVICES = "services"


Which = Annotated[
    Part,
    typer.Argument(
        metavar="PART",
        help="migrate: make the tables of the database, before the others start, then end. "
        "api: the API and the web interface, as many as you like. "
        "services: the scheduler and the automations, one",
        show_default=False,
    ),
]
Database = Annotated[
    str,
    typer.Option(
        "--database",
        metavar="URL",
        envvar="PREFECT_SERVER_DATABASE_CONNECTION_URL",
        show_envvar=True,
        help="PostgreSQL, for example postgresql+asyncpg://user:password@host/name",
    ),
]
Redis = Annotated[
    str,
    typer.Option(
        "--redis",
        metavar="URL",
        envvar="PREFECT_REDIS_MESSAGING_URL",
        show_envvar=True,
        help="Redis, for example redis://host:6379/0",
    ),
]
Port = Annotated[
    int, typer.Option("--port", metavar="PORT", min=1, max=65535, help="Port of this API server")
]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="Address at which people and workers reach the API servers, such as that of a load balancer "
        "[default: the host and port]",
    ),
]


def server(
    part: Which,
    database: Database = "",
    redis: Redis = "",
    host: Host = "127.0.0.1",
    port: Port = _DEFAULT_PORT,
    url: Url = None,
    auth: Auth = None,
    json_output: options.Json = False,
) -> None:
    """Run one process of a Prefect server that has several.

    The server uses PostgreSQL and Redis. SIGTERM stops the process.

    Examples:
      export PREFECT_SERVER_DATABASE_CONNECTION_URL=postgresql+asyncpg://prefect:PASSWORD@db/prefect
      export PREFECT_REDIS_MESSAGING_URL=redis://redis:6379/0
      export PREFECT_SERVER_API_AUTH_STRING=team:LONG-PASSWORD
      shardmill platform server migrate
      shardmill platform server api --host 0.0.0.0 --url https://prefect.example.org
      shardmill platform server services --url https://prefect.example.org
    """
    from shardmill.flows.cli import output
    from shardmill.flows.home import server_url
    from shardmill.flows.server import service_process
    from shardmill.flows.server.production import preparing

    if part is Part.MIGRATE:
        preparing.migrate(_given(database, "--database"))
        _say({"database": "ready"}, "The database is ready", json_output)
        return
    backends = _backends(database, redis)
    if part is Part.API:
        from shardmill.flows.server.addresses import check_place

        check_place(host, port, auth or None, "--port")
    ui_url = (url or server_url(host, port)).rstrip("/")
    for warning in preparing.prepare(backends, ui_url, auth or None):
        output.note(f"warning: {warning}")
    with contextlib.suppress(KeyboardInterrupt):
        if part is Part.API:
            api_url = f"{server_url(host, port)}/api"
            _say({"api_url": api_url}, f"Prefect's API: {api_url}", json_output)
            service_process.serve(host, port, api_only=True)
        else:
            _say({"services": "running"}, "Prefect's services run", json_output)
            service_process.run_server_services()


def _say(found: dict[str, str], words: str, json_output: bool) -> None:
    from shardmill.flows.cli import output

    if json_output:
        output.print_json(found)
    else:
        output.say(words)


def _backends(database: str, redis: str) -> Backends:
    from shardmill.flows.server.production.settings import Backends

    return Backends(_given(database, "--database"), _given(redis, "--redis"))


def _given(value: str, option: str) -> str:
    if not value:
        raise UsageError(f"{option} is missing", "shardmill platform server --help shows examples")
    return value
