"""reap: put the history of a Prefect server in order after processes were killed."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from shardmill.flows.cli import options

Every = Annotated[
    str | None,
    typer.Option(
        "--every", metavar="INTERVAL", help="Do it again and again, until a signal ends the command"
    ),
]


def reap(every: Every = None, json_output: options.Json = False) -> None:
    """Mark the runs of this machine whose process was killed.

    `shardmill up` does so every ten seconds. For a server of your own: run it on each machine that has a
    worker.

    Examples:
      shardmill platform reap        (PREFECT_API_URL=http://prefect:4200/api names your server)
      shardmill platform reap --every 30s
    """
    from shardmill.flows.cli import output
    from shardmill.flows.cli.server.planned import parse_interval
    from shardmill.flows.server.api import prefect_api

    interval = None if every is None else parse_interval(every)
    if interval is not None:
        _reap_again_and_again(interval.total_seconds(), json_output)
        return
    with prefect_api():
        from shardmill.flows.server.tidying.reaper import Reaper

        done = Reaper(has_worker=False).reap()
    if json_output:
        output.print_json({"done": done})
    else:
        output.say(*(done or ["Nothing to do"]))


def _reap_again_and_again(seconds: float, json_output: bool) -> None:
    """Reap until a signal ends this process; a server that does not answer is asked again."""
    from shardmill.flows.cli import output
    from shardmill.flows.server.api import ApiLost, prefect_api

    with prefect_api() as api:
        from shardmill.flows.server.tidying.reaper import Reaper

        reaper = Reaper(has_worker=False)
    output.note(f"Reaping every {seconds:g} s")
    while True:
        try:
            with prefect_api(api):
                done = reaper.reap()
            if json_output and done:
                output.print_json({"done": done})
            else:
                output.say(*done)
        except ApiLost as lost:
            output.note(f"warning: {lost.message}")
        time.sleep(seconds)
