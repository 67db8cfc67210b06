"""schedule add, list, pause, resume and remove: what starts runs automatically on the server."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer

from shardmill.flows.cli import options, output
from shardmill.flows.cli.server.planned import Wish, planned_inbox, planned_rule, planned_schedule
from shardmill.flows.cli.server.schedule_rows import (
    RULE_NAME,
    print_schedules,
    rule_entries,
    rule_in_words,
    schedule_entries,
)
from shardmill.flows.server import automations as rules
from shardmill.flows.server import schedules
from shardmill.flows.server.api import need_api, prefect_api
from shardmill.infra.errors import NotFoundError
from shardmill.infra.storage.locations import public_location

_PURPOSE = "that could keep a schedule"

Name = Annotated[
    str, typer.Option("--name", metavar="NAME", help="Tells the schedules of one dataset apart, e.g. nightly")
]
Only = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="Only this one; by default all of the dataset")
]
Cron = Annotated[str | None, typer.Option("--cron", metavar="EXPRESSION", help='For example "0 3 * * *"')]
Every = Annotated[str | None, typer.Option("--every", metavar="INTERVAL", help="For example 30min, 6h or 1d")]
Timezone = Annotated[
    str | None,
    typer.Option("--timezone", metavar="ZONE", help="Time zone of --cron, for example Europe/Berlin"),
]
Train = Annotated[
    bool,
    typer.Option(
        "--train",
        help="Also train on what was not trained on before; without SOURCE, on each new version",
    ),
]
TrainWhen = Annotated[
    str | None,
    typer.Option(
        "--train-when",
        metavar="CONDITIONS",
        help="With --train: only if one holds since the last training, as in new=1000,share=0.1,days=7,drift",
    ),
]
Promote = Annotated[
    bool, typer.Option("--promote", help="With --train: then compare the model with the one in use")
]
IsInbox = Annotated[
    bool, typer.Option("--inbox", help="Watch the folder, and take up new files soon after they arrive")
]
Batch = Annotated[
    int | None,
    typer.Option("--batch", metavar="N", min=1, help="Take up so many new files at once [default: 100]"),
]
Within = Annotated[
    str | None,
    typer.Option("--within", metavar="INTERVAL", help="Or those there are after so long [default: 1min]"),
]
Settle = Annotated[
    str | None,
    typer.Option(
        "--settle", metavar="INTERVAL", help="A file is taken when it did not change so long [default: 10s]"
    ),
]
Maintain = Annotated[
    bool,
    typer.Option(
        "--maintain", help="Compact the dataset, and remove versions and files that are no longer kept"
    ),
]
OptionalSource = Annotated[
    str | None,
    typer.Argument(
        metavar="SOURCE", help="Folder of images, or a URI; none with --maintain, or to train alone"
    ),
]


def add(
    dataset: options.Dataset,
    source: OptionalSource = None,
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
    recipe: options.Recipe = None,
    config: options.Config = None,
    overrides: options.Overrides = None,
    json_output: options.Json = False,
) -> None:
    """Start runs by the clock, on new files, or on new versions.

    It takes the place of the one with the same dataset and --name. A run without changes takes seconds.

    Examples:
      shardmill schedule add /data/photos --dataset photos --every 1h
      shardmill schedule add /data/photos --dataset photos --cron "0 3 * * *" --train --name nightly
      shardmill schedule add /data/photos --dataset photos --every 1h --train --train-when new=1000 --promote
      shardmill schedule add /data/incoming --dataset photos --inbox --batch 500 --within 5min
      shardmill schedule add --dataset photos --train --train-when new=1000,days=7
      shardmill schedule add --dataset photos --maintain --every 1d
    """
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
        recipe=recipe,
        config=config,
        overrides=overrides or [],
    )
    wish.check()
    need_api(_PURPOSE)

    made = _set(wish)
    if json_output:
        output.print_json((rule_entries if wish.is_rule else schedule_entries)([made])[0])
        return
    if wish.inbox:
        output.say(f"Watching {public_location(made.source)} for {made.flow} of {dataset}: {made}")
    elif wish.is_rule:
        output.say(f"{dataset} is trained on when: {rule_in_words(made)}")
    else:
        output.say(f"Scheduled {made.flow} of {dataset}: {made}")
    if not made.is_active:
        output.say(f"It is paused, as before. Resume it: shardmill schedule resume --dataset {dataset}")
    output.say("See it: shardmill schedule list")


def list_(json_output: options.Json = False) -> None:
    """List what starts runs: schedules, inboxes, rules of training.

    Examples:
      shardmill schedule list
      shardmill schedule list --json
    """
    need_api(_PURPOSE)
    with prefect_api():
        found, training = schedules.all_schedules(), rules.training_rules()
    if json_output:
        output.print_json({"schedules": schedule_entries(found), "rules": rule_entries(training)})
    else:
        print_schedules(found, training)


def pause(dataset: options.Dataset, name: Only = None, json_output: options.Json = False) -> None:
    """Pause the schedules of a dataset, or the one of --name.

    Examples:
      shardmill schedule pause --dataset photos --name nightly
    """
    _change("Paused", dataset, name, json_output)


def resume(dataset: options.Dataset, name: Only = None, json_output: options.Json = False) -> None:
    """Resume the schedules of a dataset, or the one of --name.

    Examples:
      shardmill schedule resume --dataset photos
    """
    _change("Resumed", dataset, name, json_output)


def remove(dataset: options.Dataset, name: Only = None, json_output: options.Json = False) -> None:
    """Remove the schedules of a dataset, or the one of --name. Runs that have begun go on.

    Examples:
      shardmill schedule remove --dataset photos --name nightly
    """
    _change("Removed", dataset, name, json_output)


def _change(done: str, dataset: str, name: str | None, json_output: bool) -> None:
    need_api(_PURPOSE)
    with prefect_api():
        if done == "Removed":
            number = schedules.remove_schedules(dataset, name)
            number += name in (None, RULE_NAME) and rules.remove_training_rule(dataset)
        else:
            is_active = done == "Resumed"
            number = schedules.set_active(dataset, name, active=is_active)
            number += name in (None, RULE_NAME) and rules.set_rule_active(dataset, active=is_active)
    if not number:
        what = f"no schedule named {name}" if name else "no schedule"
        raise NotFoundError(f"{dataset} has {what}", "list the schedules: shardmill schedule list")
    output.answer(
        {"dataset": dataset, "name": name, done.lower(): number},
        json_output,
        f"{done} {output.counted(number, 'schedule')} of {dataset}",
    )


def _set(wish: Wish) -> Any:
    """Make the schedule, inbox or training rule that the options describe, and return it."""
    with prefect_api():
        if wish.inbox:
            watched = planned_inbox(wish)
            return replace(watched, is_active=schedules.set_inbox(watched))
        if wish.is_rule:
            rule = planned_rule(wish)
            return replace(rule, is_active=rules.set_training_rule(rule))
        wanted = planned_schedule(wish)
        return replace(wanted, is_active=schedules.set_schedule(wanted))
