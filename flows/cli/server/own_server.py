"""page, deploy and server: serve the page alone, and run or use a Prefect server of one's own."""

from __future__ import annotations

import contextlib
from enum import StrEnum
from typing import Annotated

import typer

from shardmill.flows.cli import options, output
from shardmill.flows.cli.folders import runs_location
from shardmill.flows.cli.server.service import Auth, Host, Review
from shardmill.flows.home import server_url
from shardmill.flows.page.options import PageOptions
from shardmill.flows.parameters import root_or_default
from shardmill.flows.server import production
from shardmill.flows.server.api import check_place, prefect_api, standing_api
from shardmill.flows.server.production import Backends
from shardmill.infra.errors import EnvironmentFault, UsageError
from shardmill.infra.processes.ports import free_port

_PAGE_PORT = 4201

PortOfPage = Annotated[
    int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="Port of the page; 0 takes a free one")
]


def page(
    root: options.Root = None,
    runs: options.Runs = None,
    port: PortOfPage = _PAGE_PORT,
    host: Host = "127.0.0.1",
    auth: Auth = None,
    review: Review = False,
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
        review=review,
    )
    output.answer(
        {"page_url": server_url(host, port)},
        json_output,
        f"Page: {server_url(host, port)}",
        "Ctrl-C stops it.",
    )
    serve_page(shown, host, port)


class PoolKind(StrEnum):
    """A type of work pool."""

    PROCESS = "process"
    DOCKER = "docker"
    KUBERNETES = "kubernetes"


Pool = Annotated[str, typer.Option("--pool", metavar="NAME", help="Work pool of the deployments")]
Place = Annotated[
    list[str] | None,
    typer.Option(
        "--place", metavar="POOL=NAMES", help="Another work pool for some deployments; may be repeated"
    ),
]
Kind = Annotated[
    PoolKind,
    typer.Option(
        "--type", metavar="process|docker|kubernetes", help="Type of the work pools that do not exist yet"
    ),
]


def deploy(
    pool: Pool = "shardmill",
    place: Place = None,
    kind: Kind = PoolKind.PROCESS,
    json_output: options.Json = False,
) -> None:
    """Register the deployments at the server of PREFECT_API_URL.

    Work pools that do not exist are created.

    `shardmill up` does so by itself, for its own server.

    Examples:
      shardmill platform deploy
      shardmill platform deploy --pool cpu --place gpu=train,train-torch,evaluate,promote,pipeline
      shardmill platform deploy --type kubernetes --pool cpu --place gpu=train,train-torch
    """
    others = _parsed(place or [])
    described = production.placed(pool, others)
    with prefect_api():
        created = production.deploy(described, kind.value)
    if json_output:
        places = {each["name"]: each["work_pool"]["name"] for each in described["deployments"]}
        output.print_json({"created": created, "deployments": places})
        return
    for name in created:
        output.say(f"Created work pool {name} ({kind.value})")
    for deployment in described["deployments"]:
        output.say(f"  {deployment['name']} on {deployment['work_pool']['name']}")
    output.say("Start a worker for each pool: prefect worker start --pool NAME")


def _parsed(places: list[str]) -> dict[str, str]:
    """Return name of deployment -> work pool, of the words of --place."""
    found: dict[str, str] = {}
    for word in places:
        pool, _, names = word.partition("=")
        if not pool or not names:
            raise UsageError(
                f"--place {word}: not a pool and its deployments", "for example --place gpu=train"
            )
        for name in names.split(","):
            if found.setdefault(name.strip(), pool) != pool:
                raise UsageError(f"--place puts {name.strip()} on {found[name.strip()]} and on {pool}")
    return found


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
    from shardmill.flows.server import production, service_process

    if part is Part.MIGRATE:
        production.migrate(_given(database, "--database"))
        output.answer({"database": "ready"}, json_output, "The database is ready")
        return
    backends = Backends(_given(database, "--database"), _given(redis, "--redis"))
    if part is Part.API:
        check_place(host, port, auth or None, "--port")
    ui_url = (url or server_url(host, port)).rstrip("/")
    for warning in production.prepare(backends, ui_url, auth or None):
        output.note(f"warning: {warning}")
    with contextlib.suppress(KeyboardInterrupt):
        if part is Part.API:
            api_url = f"{server_url(host, port)}/api"
            output.answer({"api_url": api_url}, json_output, f"Prefect's API: {api_url}")
            service_process.serve(host, port, api_only=True)
        else:
            output.answer({"services": "running"}, json_output, "Prefect's services run")
            service_process.run_server_services()


def _given(value: str, option: str) -> str:
    if not value:
        raise UsageError(f"{option} is missing", "shardmill platform server --help shows examples")
    return value
