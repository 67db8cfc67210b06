"""notify: tell people by webhook or mail when something happens."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from shardmill.flows.cli import options, output
from shardmill.flows.flow_runs.api_requests import prefect_client
from shardmill.flows.server import services
from shardmill.flows.server.alarm import destinations
from shardmill.flows.server.alarm.destinations import Destination, Message, NotSent, check_url, kind_of, send
from shardmill.flows.server.api import need_api, prefect_api
from shardmill.infra.errors import EnvironmentFault, NotFoundError, UsageError

Url = Annotated[
    str | None,
    typer.Argument(
        metavar="URL",
        help="http(s)://: a webhook; any other: a URL of Apprise, such as mailtos://",
    ),
]
On = Annotated[
    list[str] | None,
    typer.Option(
        "--on",
        metavar="EVENT",
        help="failed, problem, completed, unchanged, published, failing or recovered; may be repeated "
        "[default: failed]",
    ),
]
Test = Annotated[
    bool, typer.Option("--test", help="Send a message now, to URL or to all, and say whether it was taken")
]
Remove = Annotated[
    str | None, typer.Option("--remove", metavar="NAME", help="Tell this one nothing any more")
]


def notify(
    url: Url = None,
    on: On = None,
    test: Test = False,
    remove: Remove = None,
    json_output: options.Json = False,
) -> None:
    """Tell people by webhook or mail when a run fails.

    Or when something else happens: see --on. Without URL, list whom to tell.

    Examples:
      shardmill notify https://example.com/hook --on failed --on published
      shardmill notify "mailtos://user:password@smtp.example.com?to=team@example.com"
      shardmill notify --test
    """
    if (test or remove is not None) and on:
        raise UsageError("--on goes with a URL alone", "shardmill notify URL --on failed")
    if remove is not None and (url is not None or test):
        raise UsageError(
            f"--remove {remove} goes without {'a URL' if url is not None else '--test'}",
            f"one after the other: shardmill notify --remove {remove}",
        )
    destinations.check_occasions(on or ())
    if url is not None:
        check_url(url)
    need_api("whose runs somebody could be told of")
    with prefect_api(), prefect_client() as client:
        if remove is not None:
            destinations.remove_destination(client, remove)
            output.answer({"removed": remove}, json_output, f"{remove} is told nothing any more")
            return
        known = destinations.read_destinations(client)
        if test:
            _test([destinations.Destination(url, frozenset())] if url else known, json_output)
        elif url is None:
            _list(known, json_output)
        else:
            wanted = on or [destinations.FAILED]
            told = destinations.set_destination(client, url, wanted)
            if not services.is_beating(services.WATCH):
                output.note("warning: no watch runs on this machine; messages are sent where one does")
            output.answer(
                _row(told),
                json_output,
                f"{told} is told when: {', '.join(sorted(told.on))}",
                "Try it: shardmill notify --test",
                f"Take it back: shardmill notify --remove {told.name}",
            )


def _row(one: Destination) -> dict[str, Any]:
    return {"name": one.name, "kind": kind_of(one.url), "on": sorted(one.on)}


def _test(told: list[Destination], json_output: bool) -> None:
    """Send a message to each of these.

    Raises:
        NotFoundError: there is nobody. EnvironmentFault: somebody did not take it.
    """
    if not told:
        raise NotFoundError("nobody is told anything", "shardmill notify URL")
    failed = []
    for one in told:
        check_url(one.url)
        at = datetime.now(UTC).isoformat()
        message = Message(
            "A test of shardmill notify: messages arrive here", "test", "shardmill.test", "test", at
        )
        try:
            send(one.url, message)
        except NotSent as error:
            failed.append(f"{one}: {error}")
        else:
            output.answer({"took": one.name}, json_output, f"{one} took a message")
    if failed:
        raise EnvironmentFault(
            "a message was not taken: " + "; ".join(failed), "check the URL and the service"
        )


def _list(told: list[Destination], json_output: bool) -> None:
    rows = [_row(one) for one in told]
    if json_output:
        output.print_json({"told": rows})
    elif not told:
        output.say("Nobody is told anything. Tell somebody: shardmill notify URL")
    else:
        table = [[row["name"], row["kind"], ", ".join(row["on"])] for row in rows]
        output.print_table("", ["name", "kind", "told when"], table)
