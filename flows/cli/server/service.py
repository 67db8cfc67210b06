"""up and down: run the Prefect server of this machine."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import psutil
import typer

from shardmill.flows import home
from shardmill.flows.cli import options, output
from shardmill.flows.parameters import root_or_default, runs_or_default
from shardmill.flows.server.running_up import RunningUp, running_up, up_lock, up_process
from shardmill.infra.errors import EnvironmentFault
from shardmill.infra.processes.job_command import python_module
from shardmill.infra.processes.ports import free_port
from shardmill.infra.processes.trees import lives

if TYPE_CHECKING:
    import psutil

    from shardmill.flows.server.up import UpOptions

_DEFAULT_PORT = 4200
# Flow runs get 20 s to report their end, then each of the five services 20 s at most
# (shardmill.flows.server.services).
_STOP_SECONDS = 150.0
_DETACH_SECONDS = 600.0

Port = Annotated[
    int,
    typer.Option("--port", metavar="PORT", min=0, max=65535, help="Port of the server; 0 takes a free one"),
]
Host = Annotated[
    str,
    typer.Option(
        "--host",
        metavar="HOST",
        help="Address to listen on; any but loopback admits others and requires --auth",
    ),
]
Auth = Annotated[
    str | None,
    typer.Option(
        "--auth",
        metavar="USER:PASSWORD",
        envvar="PREFECT_SERVER_API_AUTH_STRING",
        help="Password of server and page; required with any --host but loopback",
    ),
]
PagePort = Annotated[
    int | None,
    typer.Option(
        "--page-port",
        metavar="PORT",
        min=0,
        max=65535,
        help="Port of the platform's page; 0 takes a free one [default: the server's port + 1]",
    ),
]
Database = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL",
        envvar="PREFECT_SERVER_DATABASE_CONNECTION_URL",
        show_envvar=True,
        help="Database of Prefect's server, for example postgresql+asyncpg://user:password@host/name "
        "[default: SQLite in SHARDMILL_HOME]",
    ),
]
NoTensorBoard = Annotated[bool, typer.Option("--no-tensorboard", help="Do not start TensorBoard")]
Review = Annotated[
    bool, typer.Option("--review", help="Let the page write decisions about records: its Review decides")
]
Detach = Annotated[bool, typer.Option("--detach", help="Run in the background; `shardmill down` stops it")]


def up(
    port: Port = _DEFAULT_PORT,
    host: Host = "127.0.0.1",
    root: options.Root = None,
    runs: options.Runs = None,
    page_port: PagePort = None,
    no_tensorboard: NoTensorBoard = False,
    auth: Auth = None,
    database: Database = None,
    review: Review = False,
    detach: Detach = False,
    json_output: options.Json = False,
) -> None:
    """Start the platform on this machine: server, worker, page.

    That is Prefect's server, a worker, the page of datasets and runs, and TensorBoard. Ctrl-C stops them.

    Examples:
      shardmill up
      shardmill up --detach --port 4300 --root /data/datasets
      shardmill up --review
      shardmill up --host 0.0.0.0 --auth team:LONG-PASSWORD
      shardmill up --database postgresql+asyncpg://prefect:PASSWORD@localhost/prefect
    """
    from shardmill.flows.server import up

    server_port = port or free_port()
    after_server = server_port + 1 if port else 0
    chosen = up.UpOptions(
        host,
        server_port,
        root_or_default(root),
        runs_or_default(runs),
        (after_server if page_port is None else page_port) or free_port(other_than=(server_port,)),
        auth or None,
        not no_tensorboard,
        database or None,
        review,
    )
    if detach:
        _detach(chosen)
        _say_where(json_output)
        return
    with up.running(chosen, output.note if sys.stderr.isatty() else _note_with_time) as platform:
        _say_where(json_output)
        if not json_output:
            output.say(f"Logs:        {home.logs_folder()}", "", "Ctrl-C stops it all.")
        platform.keep_running()


def down(json_output: options.Json = False) -> None:
    """Stop the platform of this machine, and what runs there.

    Examples:
      shardmill down
    """
    process_id = up_process()
    if process_id is None:
        output.answer({"stopped": False}, json_output, "shardmill up is not running")
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(process_id)
        process.terminate()
        _wait_for_end(process)
    output.answer(
        {"stopped": True, "pid": process_id},
        json_output,
        "Stopped; interrupted runs continue when they are run again",
    )


def _wait_for_end(process: psutil.Process) -> None:
    """Wait until `shardmill up` has ended.

    Raises:
        EnvironmentFault: It takes longer than its services may take.
    """
    deadline = time.monotonic() + _STOP_SECONDS
    while lives(process):
        if time.monotonic() > deadline:
            raise EnvironmentFault(
                f"process {process.pid} does not stop",
                f"kill -9 {process.pid} ends it and its child processes",
            )
        time.sleep(0.1)


def _detach(chosen: UpOptions) -> None:
    """Start `shardmill up` in the background, and wait until it is healthy.

    Raises:
        EnvironmentFault: It ended before it was healthy.
    """
    with up_lock():
        chosen.check()  # refuse here, not in a log
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
        "--page-port",
        str(chosen.page_port),
        *([] if chosen.has_tensorboard else ["--no-tensorboard"]),
        *(["--review"] if chosen.review else []),
    ]
    # The log of an `up` that was killed tells what happened before.
    with open(log_path, "ab", opener=home.open_private) as log:
        begin = log.tell()
        process = subprocess.Popen(
            python_module("shardmill.flows.cli", "up", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **_passwords(chosen)},
        )
    output.note("Starting Prefect's server, the deployments, a worker and the page ...")
    deadline = time.monotonic() + _DETACH_SECONDS
    while running_up() is None:
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            said = log_path.read_bytes()[begin:].decode("utf-8", "replace").strip()
            raise EnvironmentFault(f"it did not start:\n{said}", f"see {log_path}")
        time.sleep(0.2)


def _note_with_time(text: str) -> None:
    output.note(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {text}")


def _passwords(chosen: UpOptions) -> dict[str, str]:
    """Return the passwords as environment variables: every user can read the arguments of a process."""
    found = {
        "PREFECT_SERVER_API_AUTH_STRING": chosen.auth,
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": chosen.database,
    }
    return {name: value for name, value in found.items() if value}


def _say_where(json_output: bool) -> None:
    running = running_up()
    assert running is not None
    if json_output:
        output.print_json(
            {
                "ui_url": running.ui_url,
                "api_url": running.api_url,
                "page_url": running.page_url,
                "tensorboard_url": _board_url(running),
                "pid": running.pid,
                "root": running.root,
                "runs": running.runs,
            }
        )
        return
    board = _board_url(running)
    output.say(
        f"Page:        {running.page_url}",
        f"Prefect UI:  {running.ui_url}",
        *([f"TensorBoard: {board}"] if board else []),
        f"Datasets:    {running.root}",
        "",
        "Next:",
        f"  shardmill prepare SOURCE --dataset NAME --root {running.root}      (its run shows in the UI)",
        "  shardmill schedule add SOURCE --dataset NAME --every 1h",
        f"  or start a run from the form: {running.ui_url}/deployments",
    )


def _board_url(running: RunningUp) -> str | None:
    return f"{running.page_url}/tensorboard/" if running.has_tensorboard else None
