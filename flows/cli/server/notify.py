"""notify: tell people by webhook or mail when something happens."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli import options
from infra.errors import EnvironmentFault

Url = Annotated[
    str,
    typer.Argument(
        metavar="URL", help="http(s)://: a webhook; any other: a URL of Apprise, such as mailtos://"
    ),
]
On = Annotated[
    list[str] | None,
    typer.Option(
        "--on",
        metavar="EVENT",
        help="failed, completed, published, failing or recovered; may be repeated [default: failed]",
    ),
]


def notify(url: Url, on: On = None, json_output: options.Json = False) -> None:
    """Tell people by webhook or mail when a run fails.

    Or when something else happens: see --on.
    An automation of Prefect's server does it from now on; the web interface shows, pauses and deletes it.

    Examples:
      shardmill notify https://example.com/hook --on failed --on published
      shardmill notify "mailtos://user:password@smtp.example.com?to=team@example.com"
    """
    from flows.cli import output
    from flows.server.api import prefect_api, standing_api

    if standing_api() is None:
        raise EnvironmentFault(
            "there is no Prefect server that could tell anybody", "start one: shardmill up --detach"
        )
    with prefect_api():
        from flows.server.automations import notifications

        names = [notifications.set_notification(url, each) for each in on or ["failed"]]
    if json_output:
        output.print_json({"automations": names})
        return
    for name in names:
        output.say(f"Automation {name} tells {notifications.kind_of(url)}")
    output.say("Take it back: prefect automation delete NAME")
