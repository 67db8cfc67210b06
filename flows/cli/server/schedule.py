"""schedule: prepare a folder regularly on the server of `shardmill up`."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli import options
from infra.errors import EnvironmentFault, NotFoundError, UsageError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from flows.server.deployments import Schedule

Cron = Annotated[str | None, typer.Option("--cron", metavar="EXPRESSION", help='For example "0 3 * * *"')]
Every = Annotated[str | None, typer.Option("--every", metavar="INTERVAL", help="For example 30min, 6h or 1d")]
Timezone = Annotated[
    str | None,
    typer.Option("--timezone", metavar="ZONE", help="Time zone of --cron, for example Europe/Berlin"),
]
Train = Annotated[bool, typer.Option("--train", help="Also train, unless the version was trained on before")]
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
    """Prepare a folder regularly on the server of `shardmill up`. A run without changes takes seconds.

    [bold]Examples[/bold]

      shardmill schedule /data/photos --dataset photos --every 1h

      shardmill schedule /data/photos --dataset photos --cron "0 3 * * *" --train

      shardmill schedule --dataset photos --remove
    """
    from flows.cli import output
    from flows.server.api import prefect_api, standing_api

    if not remove:
        _check_schedule(source, cron, every, timezone)
    if standing_api() is None:
        raise EnvironmentFault(
            "there is no Prefect server that could keep a schedule", "start one: shardmill up --detach"
        )
    with prefect_api():
        from flows.server import deployments

        if remove:
            removed = deployments.remove_schedules(dataset)
            if not removed:
                raise NotFoundError(f"{dataset} has no schedule", "list the schedules: shardmill status")
            output.say(f"Removed {output.counted(removed, 'schedule')} of {dataset}")
            return
        assert source is not None
        wanted = _schedule(dataset, source, cron, every, timezone, train, config, overrides or [])
        deployments.set_schedule(wanted)
    output.say(f"Scheduled {wanted.flow} of {dataset}: {wanted}", "See it: shardmill status")


def _check_schedule(source: str | None, cron: str | None, every: str | None, timezone: str | None) -> None:
    if source is None:
        raise UsageError("which folder?", "shardmill schedule SOURCE --dataset NAME --every 1h")
    if (cron is None) == (every is None):
        raise UsageError("give either --cron or --every", "for example --every 1h")
    if timezone is not None and cron is None:
        raise UsageError(
            "--timezone goes with --cron: an interval is the same in every zone",
            'leave it out, or use --cron, for example --cron "0 3 * * *"',
        )


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
    from flows.cli.jobs.settings import checked_source, prepare_settings, train_settings
    from flows.server.deployments import Schedule
    from infra.settings import split_overrides

    interval = None if every is None else parse_interval(every)
    parameters: dict[str, object] = {"source": checked_source(source, dataset), "dataset": dataset}
    if train:
        by_section = split_overrides(overrides)
        parameters["prepare_config"] = _chosen(prepare_settings(config, by_section["prepare"]))
        parameters["train_config"] = _chosen(train_settings(config, by_section["train"]))
        parameters["only_when_changed"] = True
    else:
        parameters["config"] = _chosen(prepare_settings(config, overrides))
    flow = "pipeline" if train else "prepare"
    return Schedule(flow, dataset, parameters, cron=cron, every=interval, timezone=timezone)


def _chosen(settings: BaseModel) -> dict[str, Any]:
    """Return the settings that differ from the defaults.

    Only these are stored, so a schedule still works after a release removes another setting.
    """
    return settings.model_dump(mode="json", exclude_defaults=True)


def parse_interval(text: str) -> timedelta:
    """The interval of a text such as ``90s``, ``30min``, ``6h`` or ``1d``.

    Raises:
        UsageError: The text is not an interval, or the interval is shorter than 10 seconds.
    """
    units = {"s": "seconds", "min": "minutes", "m": "minutes", "h": "hours", "d": "days"}
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)", text.strip())
    if not match:
        raise UsageError(f"--every {text}: not an interval", "for example --every 30min, 6h or 1d")
    interval = timedelta(**{units[match[2]]: float(match[1])})
    if interval < timedelta(seconds=10):
        raise UsageError(f"--every {text}: shorter than 10 seconds", "for example --every 30min")
    return interval
