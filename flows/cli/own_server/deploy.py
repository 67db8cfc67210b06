"""deploy: register the deployments at a Prefect server of one's own, on one work pool or several."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from shardmill.flows.cli import options
from shardmill.infra.errors import UsageError


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
    from shardmill.flows.cli import output
    from shardmill.flows.server.api import prefect_api
    from shardmill.flows.server.production import placing

    others = _parsed(place or [])
    described = placing.placed(pool, others)
    with prefect_api():
        created = placing.deploy(described, kind.value)
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
