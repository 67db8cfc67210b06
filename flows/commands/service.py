"""up, down, status and schedule: Shardmill on a Prefect server of this machine, and by itself."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.commands import options
from infra.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from flows.deployments import Schedule
    from flows.up import UpOptions

_DEFAULT_PORT = 4200
_STOP_SECONDS = 60.0
_DETACH_SECONDS = 300.0

Port = Annotated[int, typer.Option("--port", help="Port of the server; 0 takes a free one")]
Host = Annotated[
    str,
    typer.Option(
        "--host", help="Address to listen on. Anything but loopback lets others in: set a password first"
    ),
]
Detach = Annotated[bool, typer.Option("--detach", help="Go on in the background; `shardmill down` stops it")]


def up(
    port: Port = _DEFAULT_PORT,
    host: Host = "127.0.0.1",
    root: options.Root = None,
    runs: options.Runs = None,
    detach: Detach = False,
    json_output: options.Json = False,
) -> None:
    """Start a Prefect server, the deployments and a worker on this machine; Ctrl-C stops them all.

    [bold]Examples[/bold]

      shardmill up

      shardmill up --detach --port 4300 --root /data/datasets
    """
    from flows import home, services, up
    from flows.commands import output
    from flows.parameters import root_or_default, runs_or_default

    chosen = up.UpOptions(
        host, port or services.free_port(host), root_or_default(root), runs_or_default(runs)
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
    """Stop the `shardmill up` of this machine, with its worker and what runs there."""
    from flows import home
    from flows.commands import output

    running = home.running_up()
    if running is None:
        output.say("shardmill up is not running")
        return
    os.kill(running.pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_SECONDS
    while home.running_up() is not None:
        if time.monotonic() > deadline:
            raise EnvironmentFault(
                f"process {running.pid} does not stop", f"kill -9 {running.pid} ends it and all of it"
            )
        time.sleep(0.1)
    output.say("Stopped; runs that were cut short go on when they are run again")


def status(json_output: options.Json = False) -> None:
    """Say whether `shardmill up` is running, and what is scheduled."""
    from flows.api import prefect_api, standing_api
    from flows.commands import output

    api = standing_api()
    if api is None:
        if json_output:
            output.print_json({"running": False})
        else:
            output.say(
                "shardmill up is not running; runs use a Prefect API of their own",
                "Start it: shardmill up --detach",
            )
        return
    with prefect_api():
        from flows.deployments import schedules

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


Cron = Annotated[str | None, typer.Option("--cron", metavar="EXPRESSION", help='For example "0 3 * * *"')]
Every = Annotated[str | None, typer.Option("--every", metavar="INTERVAL", help="For example 30min, 6h or 1d")]
Timezone = Annotated[
    str | None, typer.Option("--timezone", metavar="ZONE", help="Of --cron, for example Europe/Berlin")
]
Train = Annotated[bool, typer.Option("--train", help="Train too, whenever something new was published")]
Remove = Annotated[bool, typer.Option("--remove", help="Remove the schedule of the dataset")]
OptionalSource = Annotated[str | None, typer.Argument(metavar="SOURCE", help="Folder of images, or a URI")]


def schedule(
    dataset: options.Dataset,
    source: OptionalSource = None,
    cron: Cron = None,
    every: Every = None,
    timezone: Timezone = None,
    train: Train = False,
    remove: Remove = False,
    config: options.Config = None,
    overrides: options.Overrides = None,
) -> None:
    """Prepare a folder again and again, on the server of `shardmill up`; nothing new costs seconds.

    [bold]Examples[/bold]

      shardmill schedule /data/photos --dataset photos --every 1h

      shardmill schedule /data/photos --dataset photos --cron "0 3 * * *" --train

      shardmill schedule --dataset photos --remove
    """
    from flows.api import prefect_api, standing_api
    from flows.commands import output

    if not remove:
        _check_schedule(source, cron, every)
    if standing_api() is None:
        raise EnvironmentFault(
            "there is no Prefect server that could keep a schedule", "start one: shardmill up --detach"
        )
    with prefect_api():
        from flows import deployments

        if remove:
            removed = deployments.remove_schedules(dataset)
            output.say(f"Removed {removed} schedule(s) of {dataset}")
            return
        assert source is not None
        wanted = _schedule(dataset, source, cron, every, timezone, train, config, overrides or [])
        # At most one schedule a dataset: prepare it, or prepare it and train.
        deployments.remove_schedules(dataset)
        deployments.set_schedule(wanted)
    output.say(f"Scheduled {wanted.flow} of {dataset}: {wanted}", "See it: shardmill status")


def _check_schedule(source: str | None, cron: str | None, every: str | None) -> None:
    if source is None:
        raise UsageError("which folder?", "shardmill schedule SOURCE --dataset NAME --every 1h")
    if (cron is None) == (every is None):
        raise UsageError("say when: either --cron or --every", "for example --every 1h")


def _schedule(
    dataset: str,
    source: str,
    cron: str | None,
    every: str | None,
    timezone: str | None,
    train: bool,
    config: Path | None,
    overrides: list[str],
) -> Schedule:
    from flows.commands.jobs import checked_source, prepare_settings, train_settings
    from flows.deployments import Schedule
    from infra.settings import split_overrides

    interval = None if every is None else parse_interval(every)
    parameters: dict[str, object] = {"source": checked_source(source, dataset), "dataset": dataset}
    if train:
        by_section = split_overrides(overrides)
        parameters["prepare_config"] = prepare_settings(config, by_section["prepare"]).model_dump(mode="json")
        parameters["train_config"] = train_settings(config, by_section["train"]).model_dump(mode="json")
        parameters["only_when_changed"] = True
    else:
        parameters["config"] = prepare_settings(config, overrides).model_dump(mode="json")
    flow = "pipeline" if train else "prepare"
    return Schedule(flow, dataset, parameters, cron=cron, every=interval, timezone=timezone)


def parse_interval(text: str) -> timedelta:
    """``90s``, ``30min``, ``6h`` or ``1d`` as an interval.

    Raises:
        UsageError: it is none, or shorter than a server can keep.
    """
    units = {"s": "seconds", "min": "minutes", "m": "minutes", "h": "hours", "d": "days"}
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)", text.strip())
    if not match:
        raise UsageError(f"--every {text}: not an interval", "for example --every 30min, 6h or 1d")
    interval = timedelta(**{units[match[2]]: float(match[1])})
    if interval < timedelta(seconds=10):
        raise UsageError(f"--every {text}: shorter than 10 seconds", "for example --every 30min")
    return interval


def _detach(chosen: UpOptions) -> None:
    """Start `shardmill up` again in a session of its own, and wait until it is healthy.

    Raises:
        EnvironmentFault: it ended before it was.
    """
    from flows import home
    from flows.commands import output

    with home.up_lock():
        pass  # the second of two says so here, rather than in a log
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
    from flows.commands import output

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
