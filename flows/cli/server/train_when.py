"""train-when: train automatically on new versions of a dataset, when a condition holds."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flows.cli import options
from flows.cli.server.planned import parse_interval
from infra.errors import EnvironmentFault, NotFoundError, UsageError

Name = Annotated[str | None, typer.Argument(metavar="[NAME]", help="A dataset; without it, list the rules")]
NewRecords = Annotated[
    int | None, typer.Option("--new-records", metavar="N", min=1, help="So many records are new")
]
NewShare = Annotated[
    float | None, typer.Option("--new-share", metavar="FRACTION", help="Such a share of records is new")
]
Days = Annotated[float | None, typer.Option("--days", metavar="N", help="So many days have passed")]
Drift = Annotated[bool, typer.Option("--drift", help="The images differ beyond a limit of drift")]
Every = Annotated[
    str, typer.Option("--every", metavar="INTERVAL", help="How often to ask when no version is published")
]
Promote = Annotated[
    bool, typer.Option("--promote", help="Then compare the model with the one that has the alias")
]
Remove = Annotated[bool, typer.Option("--remove", help="Remove the rule of the dataset")]


def train_when(
    dataset: Name = None,
    new_records: NewRecords = None,
    new_share: NewShare = None,
    days: Days = None,
    drift: Drift = False,
    every: Every = "1h",
    promote: Promote = False,
    remove: Remove = False,
    recipe: options.Recipe = None,
    config: options.Config = None,
    overrides: options.Overrides = None,
    json_output: options.Json = False,
) -> None:
    """Train automatically on new versions of a dataset, on the server of `shardmill up`.

    A run trains if one of the conditions holds since the last training with the same settings. It is
    started by each version that is published, and by the clock.

    [bold]Examples[/bold]

      shardmill train-when photos --new-records 1000 --days 7 --promote

      shardmill train-when photos --new-share 0.1 --recipe finetune

      shardmill train-when

      shardmill train-when photos --remove
    """
    from flows.cli import output
    from flows.server.api import prefect_api, standing_api
    from infra.storage.names import check_dataset_name

    interval = parse_interval(every)
    if dataset is not None:
        check_dataset_name(dataset)
    elif remove:
        raise UsageError("which dataset?", "shardmill train-when NAME --remove")
    if standing_api() is None:
        raise EnvironmentFault(
            "there is no Prefect server that could keep a rule", "start one: shardmill up --detach"
        )
    from flows.cli.jobs.settings import train_settings

    settings = train_settings(config, overrides or [], recipe)
    conditions = {"new_records": new_records, "new_share": new_share, "days": days, "drift": drift or None}
    with prefect_api():
        from flows.server.automations import training_rules as rules
        from flows.train_when import TrainWhen, in_words
        from infra.settings import validate

        if dataset is None:
            _list(rules.training_rules(), json_output)
            return
        if remove:
            if not rules.remove_training_rule(dataset):
                raise NotFoundError(f"{dataset} has no rule", "list the rules: shardmill train-when")
            output.say(f"Removed the rule of {dataset}")
            return
        given = {name: value for name, value in conditions.items() if value is not None}
        when = validate(TrainWhen, given, where="the conditions")
        parameters: dict[str, Any] = {
            "dataset": dataset,
            "config": settings.model_dump(mode="json", exclude_defaults=True),
            "when": when.model_dump(mode="json", exclude_defaults=True),
            "promote": promote,
        }
        rules.set_training_rule(rules.TrainingRule(dataset, parameters, interval))
    then = ", and its model promoted if it is better" if promote else ""
    output.say(f"{dataset} is trained on when: {in_words(when)}{then}", "See it: shardmill train-when")


def _list(rules: list[Any], json_output: bool) -> None:
    from flows.cli import output
    from flows.server.schedules import interval_in_words
    from flows.train_when import TrainWhen, in_words

    if json_output:
        listed = [
            {"dataset": rule.dataset, "every_seconds": rule.every.total_seconds(), **rule.parameters}
            for rule in rules
        ]
        output.print_json({"rules": listed})
    elif not rules:
        output.say("No rules. Make one: shardmill train-when NAME --new-records 1000 --days 7")
    else:
        rows = [
            [
                rule.dataset,
                in_words(TrainWhen.model_validate(rule.parameters["when"])),
                interval_in_words(rule.every),
                rule.parameters["promote"],
            ]
            for rule in rules
        ]
        output.print_table("", ["dataset", "trains when", "asks every", "promotes"], rows)
