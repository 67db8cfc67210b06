"""schedule: start runs automatically on the server of `shardmill up`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli import completion, options
from flows.cli.server.planned import Wish, planned_inbox, planned_schedule
from infra.errors import EnvironmentFault, NotFoundError, UsageError
from infra.storage.locations import public_location

Dataset = Annotated[
    str | None,
    typer.Option("--dataset", metavar="NAME", help="Name of the dataset", autocompletion=completion.datasets),
]
Name = Annotated[
    str, typer.Option("--name", metavar="NAME", help="Tells the schedules of one dataset apart, e.g. nightly")
]
Cron = Annotated[str | None, typer.Option("--cron", metavar="EXPRESSION", help='For example "0 3 * * *"')]
Every = Annotated[str | None, typer.Option("--every", metavar="INTERVAL", help="For example 30min, 6h or 1d")]
Timezone = Annotated[
    str | None,
    typer.Option("--timezone", metavar="ZONE", help="Time zone of --cron, for example Europe/Berlin"),
]
Train = Annotated[bool, typer.Option("--train", help="Also train, unless the version was trained on before")]
TrainWhen = Annotated[
    str | None,
    typer.Option(
        "--train-when",
        metavar="CONDITIONS",
        help="With --train: only if one holds, as in new=1000,share=0.1,days=7,drift",
    ),
]
Promote = Annotated[
    bool, typer.Option("--promote", help="With --train: then compare the model with the one in use")
]
IsInbox = Annotated[
    bool, typer.Option("--inbox", help="Watch the folder, and take up new files soon after they arrive")
]
Batch = Annotated[
    int | None, typer.Option("--batch", min=1, help=r"Take up so many new files at once \[default: 100]")
]
Within = Annotated[
    str | None,
    typer.Option("--within", metavar="INTERVAL", help=r"Or those there are after so long \[default: 1min]"),
]
Settle = Annotated[
    str | None,
    typer.Option(
        "--settle", metavar="INTERVAL", help=r"A file is taken when it did not change so long \[default: 10s]"
    ),
]
Maintain = Annotated[
    bool,
    typer.Option(
        "--maintain", help="Compact the dataset, and remove versions and files that are no longer kept"
    ),
]
Remove = Annotated[
    bool, typer.Option("--remove", help="Remove the schedules of the dataset, or the one of --name")
]
Pause = Annotated[bool, typer.Option("--pause", help="Pause them")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume them")]
OptionalSource = Annotated[str | None, typer.Argument(metavar="SOURCE", help="Folder of images, or a URI")]


def schedule(
    source: OptionalSource = None,
    dataset: Dataset = None,
    name: Name = "",
    cron: Cron = None,
    every: Every = None,
    timezone: Timezone = None,
    train: Train = False,
    train_when: TrainWhen = None,
    promote: Promote = False,
    inbox: IsInbox = False,
    batch: Batch = None,
    within: Within = None,
    settle: Settle = None,
    maintain: Maintain = False,
    remove: Remove = False,
    pause: Pause = False,
    resume: Resume = False,
    config: options.Config = None,
    overrides: options.Overrides = None,
    json_output: options.Json = False,
) -> None:
    """Start runs automatically on the server of `shardmill up`; without options, list the schedules.

    A run without changes takes seconds.

    [bold]Examples[/bold]

      shardmill schedule /data/photos --dataset photos --every 1h

      shardmill schedule /data/photos --dataset photos --cron "0 3 * * *" --train --name nightly

      shardmill schedule /data/photos --dataset photos --every 1h --train --train-when new=1000 --promote

      shardmill schedule /data/incoming --dataset photos --inbox --batch 500 --within 5min

      shardmill schedule --maintain --dataset photos --every 1d

      shardmill schedule --dataset photos --name nightly --pause
    """
    given = {"--remove": remove, "--pause": pause, "--resume": resume}
    changes = [option for option, is_given in given.items() if is_given]
    wish = None
    if changes:
        _check_change(changes, source, dataset)
    elif not _is_listing(source, dataset, cron, every, inbox, maintain):
        if dataset is None:
            raise UsageError("which dataset?", "shardmill schedule SOURCE --dataset NAME --every 1h")
        wish = Wish(
            dataset=dataset,
            source=source,
            name=name,
            cron=cron,
            every=every,
            timezone=timezone,
            train=train,
            train_when=train_when,
            promote=promote,
            maintain=maintain,
            inbox=inbox,
            batch=batch,
            within=within,
            settle=settle,
            config=config,
            overrides=overrides or [],
        )
        wish.check()
    _need_server()
    if changes:
        assert dataset is not None
        _change(changes[0], dataset, name or None)
    elif wish is not None:
        _set(wish)
    else:
        _list(json_output)


def _is_listing(source: str | None, dataset: str | None, *others: object) -> bool:
    return source is None and dataset is None and not any(others)


def _check_change(changes: list[str], source: str | None, dataset: str | None) -> None:
    if len(changes) > 1:
        raise UsageError(
            f"{' and '.join(changes)}: give one of them", "shardmill schedule --help shows examples"
        )
    if source is not None:
        raise UsageError(f"{changes[0]} needs no SOURCE", f"shardmill schedule --dataset NAME {changes[0]}")
    if dataset is None:
        raise UsageError("which dataset?", f"shardmill schedule --dataset NAME {changes[0]}")


def _need_server() -> None:
    from flows.server.api import standing_api

    if standing_api() is None:
        raise EnvironmentFault(
            "there is no Prefect server that could keep a schedule", "start one: shardmill up --detach"
        )


def _change(change: str, dataset: str, name: str | None) -> None:
    from flows.cli import output
    from flows.server.api import prefect_api

    with prefect_api():
        from flows.server import schedules

        if change == "--remove":
            number, done = schedules.remove_schedules(dataset, name), "Removed"
        else:
            is_active = change == "--resume"
            number = schedules.set_active(dataset, name, active=is_active)
            done = "Resumed" if is_active else "Paused"
    if not number:
        what = f"no schedule named {name}" if name else "no schedule"
        raise NotFoundError(f"{dataset} has {what}", "list the schedules: shardmill schedule")
    output.say(f"{done} {output.counted(number, 'schedule')} of {dataset}")


def _set(wish: Wish) -> None:
    from flows.cli import output
    from flows.server.api import prefect_api

    with prefect_api():
        from flows.server import schedules

        if wish.inbox:
            watched = planned_inbox(wish)
            schedules.set_inbox(watched)
            folder = public_location(watched.source)
            output.say(f"Watching {folder} for {watched.flow} of {wish.dataset}: {watched}")
        else:
            wanted = planned_schedule(wish)
            schedules.set_schedule(wanted)
            output.say(f"Scheduled {wanted.flow} of {wish.dataset}: {wanted}")
    output.say("See it: shardmill status")


def _list(json_output: bool) -> None:
    from flows.cli import output
    from flows.cli.server.schedule_rows import print_schedules, schedule_entries
    from flows.server.api import prefect_api

    with prefect_api():
        from flows.server.schedules import all_schedules

        found = all_schedules()
    if json_output:
        output.print_json({"schedules": schedule_entries(found)})
    else:
        print_schedules(found)
