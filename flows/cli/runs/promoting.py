"""model promote, rollback and aliases: which run has an alias such as photos@production."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shardmill.flows.cli import options, output
from shardmill.flows.cli.folders import runs_folder, runs_location
from shardmill.flows.flow_runs.jobs import promote_command
from shardmill.flows.parameters import root_or_default
from shardmill.infra.errors import CorruptDataError, NotFoundError, UsageError
from shardmill.infra.near_names import near_miss
from shardmill.infra.processes.children import result_of
from shardmill.infra.settings import load_settings
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.whole_job import shown_to_people
from shardmill.training.aliases import PRODUCTION, AliasName, parse_alias
from shardmill.training.aliases.history import AliasHistory, AliasRecords, list_aliases
from shardmill.training.promotion.purged import num_purged, purged_in_words
from shardmill.training.promotion.rules import PromotionRules
from shardmill.training.run.files.stored import is_in_store, opened_run

if TYPE_CHECKING:
    from shardmill.training.aliases.record import AliasRecord

Alias = Annotated[str, typer.Option("--alias", metavar="ALIAS", help="Name of the alias")]
Reason = Annotated[
    str | None,
    typer.Option("--reason", metavar="TEXT", help="Decide by hand, and say why; nothing is compared"),
]
Rules = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A rule, for example minimum_gain=0.01; may be repeated"),
]
AliasOf = Annotated[
    str | None, typer.Argument(metavar="[NAME[@ALIAS]]", help="A dataset, or one alias of it")
]


def promote(
    run: options.Run,
    alias: Alias = PRODUCTION,
    reason: Reason = None,
    rules: Rules = None,
    root: options.Root = None,
    runs: options.Runs = None,
    json_output: options.Json = False,
) -> None:
    """Give an alias to a run, if it is better than the run that has it.

    Better beyond the noise: both are compared on the validation split of the newest version of their dataset
    (--set split=test: on the test split). With --reason you decide.

    Examples:
      shardmill model promote photos-v2-77cd
      shardmill model promote photos-v2-77cd --set metric=macro_f1 --set minimum_gain=0.01
      shardmill model promote photos-v2-77cd --alias staging --reason "asked for by the shop"
    """
    from shardmill.training.promote import summary

    folder = runs_location(runs)
    with opened_run(run, folder) as found:
        found.finished()
        AliasName(found.dataset_name, alias)
    named = found.name if is_in_store(folder) else str(found.path)
    settings = load_settings(PromotionRules, section="promote", overrides=rules or [])
    place = root_or_default(root)
    result = result_of(promote_command(named, alias, reason, settings, place, folder))
    output.answer(result, json_output, *summary(result).splitlines())


Back = Annotated[
    str, typer.Argument(metavar="NAME[@ALIAS]", help="An alias; of a dataset alone, its alias production")
]


def rollback(
    alias: Back,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Why the alias goes back, for its history")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--alias", metavar="ALIAS", help="Name of the alias, if NAME has none")
    ] = None,
    runs: options.Runs = None,
    json_output: options.Json = False,
) -> None:
    """Give an alias back to the run that had it before.

    Examples:
      shardmill model rollback photos@production --reason "wrong on night pictures"
    """
    from shardmill.training.promote import result_of, summary
    from shardmill.training.promotion.deciding import roll_back

    if alias.partition("@")[2].isdecimal():
        raise UsageError(f"{alias} is a version, not an alias", f"bring it back: shardmill rollback {alias}")
    whole = parse_alias(alias) if name is None else AliasName(alias, name)
    result = result_of(roll_back(whole, runs_location(runs), reason))
    output.answer(result, json_output, *summary(result).splitlines())


def aliases(name: AliasOf = None, runs: options.Runs = None, json_output: options.Json = False) -> None:
    """List the aliases of models, or the history of one dataset's aliases.

    Examples:
      shardmill model aliases
      shardmill model aliases photos
      shardmill model aliases photos@production --json
    """
    folder = runs_folder(runs)
    with shown_to_people():
        found = _histories(name, folder)
    if json_output:
        listed = [_described(history, folder) for history in found]
        output.print_json({"runs_dir": str(folder), "aliases": listed})
    elif not found:
        output.say(f"No aliases under {folder}", "Give one to a run: shardmill model promote RUN")
    elif name is None:
        rows = [_row(history, folder) for history in found]
        output.print_table("", ["alias", "run", "trained on", "since (UTC)", "by", ""], rows)
    else:
        for history in found:
            _show_history(history, folder)


def _histories(name: str | None, runs: Path) -> list[AliasRecords]:
    storage = Storage.at(runs)
    if name is None:
        return [history.read() for history in list_aliases(storage)]
    alias = parse_alias(name)
    wanted = [AliasHistory(storage, alias)] if "@" in name else list_aliases(storage, alias.dataset)
    found = [history.read() for history in wanted]
    if not any(history.sound or history.damaged for history in found):
        known = [str(history.name) for history in list_aliases(storage)]
        remedy = near_miss(name, known) or "give one to a run: shardmill model promote RUN"
        raise NotFoundError(f"no run under {runs} has or had the alias {name}", remedy)
    return found


def _holder(history: AliasRecords) -> AliasRecord | None:
    """Return the record that gave the alias to its run; None: none did, or a damaged one hides it."""
    try:
        return history.current()
    except CorruptDataError:
        return None


def _described(history: AliasRecords, runs: Path) -> dict[str, Any]:
    current = _holder(history)
    return {
        "alias": str(history.name),
        "run": None if current is None else current.run,
        "damaged": {number: str(error) for number, error in history.damaged.items()},
        "history": [
            {**record.model_dump(mode="json"), "num_purged": num_purged(runs / record.run)}
            for record in history.sound
        ],
    }


def _row(history: AliasRecords, runs: Path) -> list[object]:
    current = _holder(history)
    if current is None:
        unknown = "unknown: a record is damaged" if history.damaged else "none yet"
        return [str(history.name), unknown, "", "", "", ""]
    warning = purged_in_words(runs / current.run) or ""
    return [str(history.name), current.run, current.trained_on, _minute(current.at), current.by, warning]


def _minute(time: str) -> str:
    return time[:16].replace("T", " ")


def _show_history(history: AliasRecords, runs: Path) -> None:
    current = _holder(history)
    nobody = "unknown, since a record is damaged" if history.damaged else "no run has it"
    output.say(f"{history.name}: {current.run if current is not None else nobody}")
    for record in reversed(history.sound):
        output.say(
            f"  {record.number}. {_minute(record.at)}  {record.action}: {record.run}  (by {record.by})"
        )
        output.say(f"     trained on {record.trained_on}; {record.verdict}")
        if warning := purged_in_words(runs / record.run):
            output.say(f"     {warning}")
        if record.reason:
            output.say(f"     reason: {record.reason}")
