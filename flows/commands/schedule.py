"""schedule: prepare a folder again and again, on the server of `shardmill up`."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.commands import options
from infra.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from flows.deployments import Schedule

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
            output.say(f"Removed {output.counted(removed, 'schedule')} of {dataset}")
            return
        assert source is not None
        wanted = _schedule(dataset, source, cron, every, timezone, train, config, overrides or [])
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
