"""up, down and status: run the Prefect server of this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli import options
from infra.errors import EnvironmentFault

if TYPE_CHECKING:
    from flows.server.up import UpOptions

_DEFAULT_PORT = 4200
_STOP_SECONDS = 60.0
_DETACH_SECONDS = 300.0

Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port of the server; 0 takes a free one")]
Host = Annotated[
    str,
    typer.Option("--host", help="Address to listen on; any but loopback admits others and requires --auth"),
]
Auth = Annotated[
    str | None,
    typer.Option(
        "--auth",
        metavar="USER:PASSWORD",
        envvar="PREFECT_SERVER_API_AUTH_STRING",
        help="Password of the server; required with any --host but loopback",
    ),
]
Detach = Annotated[bool, typer.Option("--detach", help="Run in the background; `shardmill down` stops it")]


def up(
    port: Port = _DEFAULT_PORT,
    host: Host = "127.0.0.1",
    root: options.Root = None,
    runs: options.Runs = None,
    auth: Auth = None,
    detach: Detach = False,
    json_output: options.Json = False,
) -> None:
    """Start a Prefect server, the deployments and a worker on this machine; Ctrl-C stops them all.

    [bold]Examples[/bold]

      shardmill up

      shardmill up --detach --port 4300 --root /data/datasets

      shardmill up --host 0.0.0.0 --auth team:LONG-PASSWORD
    """
    from flows import home
    from flows.cli import output
    from flows.parameters import root_or_default, runs_or_default
    from flows.server import services, up

    chosen = up.UpOptions(
        host, port or services.free_port(), root_or_default(root), runs_or_default(runs), auth or None
    )
    if detach:
        _detach(chosen)
        _say_where(json_output)
        return
    with up.running(chosen, output.note) as watch:
        _say_where(json_output)
        if not json_output:
            output.say(f"Logs:      {home.logs_folder()}", "", "Ctrl-C stops it all.")
        watch.keep_running()


def down() -> None:
    """Stop the `shardmill up` of this machine, with its worker and what runs there.

    [bold]Example[/bold]

      shardmill down
    """
    import psutil

    from flows import home
    from flows.cli import output

    process = home.up_process()
    if process is None:
        output.say("shardmill up is not running")
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_SECONDS
    while psutil.pid_exists(process):
        if time.monotonic() > deadline:
            raise EnvironmentFault(
                f"process {process} does not stop", f"kill -9 {process} ends it and its child processes"
            )
        time.sleep(0.1)
    output.say("Stopped; interrupted runs continue when they are run again")


def status(json_output: options.Json = False) -> None:
    """Print whether `shardmill up` is running, and what is scheduled.

    [bold]Examples[/bold]

      shardmill status

      shardmill status --json
    """
    from flows.cli import output
    from flows.server.api import prefect_api, standing_api

    api = standing_api()
    if api is None:
        if json_output:
            output.print_json({"running": False})
        else:
            output.say(
                "shardmill up is not running; each command starts a server of its own",
                "Start it: shardmill up --detach",
            )
        return
    with prefect_api():
        from flows.server.deployments import schedules

        found = schedules()
    if json_output:
        entries = [
            {"flow": entry.flow, "name": entry.slug, "when": str(entry), **entry.parameters}
            for entry in found
        ]
        output.print_json({"running": True, "ui_url": api.ui_url, "api_url": api.url, "schedules": entries})
        return
    output.say(f"Prefect UI: {api.ui_url}", f"API:        {api.url}")
    if found:
        rows = [[entry.flow, entry.slug, str(entry), entry.parameters.get("source", "")] for entry in found]
        output.print_table("Schedules", ["flow", "dataset", "when", "source"], rows)
    else:
        output.say("No schedules. Make one: shardmill schedule SOURCE --dataset NAME --every 1h")


def _detach(chosen: UpOptions) -> None:
    """Start `shardmill up` in the background, and wait until it is healthy.

    Raises:
        EnvironmentFault: It ended before it was healthy.
    """
    from flows import home
    from flows.cli import output
    from flows.server.up import check_address

    with home.up_lock():
        check_address(chosen)  # refuse here, not in a log
    log_path = home.logs_folder() / "up.log"
    arguments = [
        "--host",
        chosen.host,
        "--port",
        str(chosen.port),
        "--root",
        chosen.root,
        "--runs",
        chosen.runs,
    ]
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "flows.cli", "up", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # Not as an argument: every user of the machine can read those.
            env={**os.environ, **({"PREFECT_SERVER_API_AUTH_STRING": chosen.auth} if chosen.auth else {})},
        )
    output.note("Starting Prefect's server, the deployments and a worker ...")
    deadline = time.monotonic() + _DETACH_SECONDS
    while home.running_up() is None:
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise EnvironmentFault(
                f"it did not start:\n{log_path.read_text('utf-8', 'replace').strip()}", f"see {log_path}"
            )
        time.sleep(0.2)


def _say_where(json_output: bool) -> None:
    from flows import home
    from flows.cli import output

    running = home.running_up()
    assert running is not None
    if json_output:
        output.print_json(
            {
                "ui_url": running.ui_url,
                "api_url": running.api_url,
                "pid": running.pid,
                "root": running.root,
                "runs": running.runs,
            }
        )
        return
    output.say(
        f"Prefect UI: {running.ui_url}",
        f"Datasets:  {running.root}",
        "",
        "Next:",
        f"  shardmill prepare SOURCE --dataset NAME --root {running.root}      (its run shows in the UI)",
        "  shardmill schedule SOURCE --dataset NAME --every 1h",
        f"  or start a run from the form: {running.ui_url}/deployments",
    )
