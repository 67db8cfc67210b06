"""rollback, compact, gc and purge: maintain published versions."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from shardmill.flows import home
from shardmill.flows.cli import options, output
from shardmill.flows.cli.folders import catalog_at, runs_folder, runs_location
from shardmill.infra.errors import UsageError
from shardmill.infra.processes.children import result_of
from shardmill.infra.processes.job_command import python_module
from shardmill.infra.readable import readable_bytes
from shardmill.infra.whole_job import shown_to_people

if TYPE_CHECKING:
    from shardmill.beam_jobs.maintain.purge import ToPurge
    from shardmill.infra.dataset.maintenance.garbage import Garbage
    from shardmill.training.promotion.purged import AffectedRun


def _whole_dataset(name: str) -> str:
    if "@" in name:
        raise UsageError(
            f"{name} names a version, but this command works on a whole dataset",
            f"give {name.partition('@')[0]}",
        )
    return name


Name = Annotated[str, typer.Argument(metavar="NAME", help="A dataset", callback=_whole_dataset)]

_SHOWN = 10


def rollback(
    dataset: Annotated[str, typer.Argument(metavar="NAME@VERSION", help="The version to bring back")],
    key: options.SigningKeyFile = None,
    root: options.Root = None,
    json_output: options.Json = False,
) -> None:
    """Publish the content of an earlier version as the newest.

    Nothing is copied or deleted. `shardmill model rollback` gives an alias back to the run before.

    Examples:
      shardmill rollback photos@2
    """
    from shardmill.infra.dataset.publishing import rollback as bring_back

    restored = bring_back(catalog_at(root, key), dataset)
    output.answer(
        {"dataset": restored.name, "version": restored.version, "restores": restored.manifest.restores},
        json_output,
        f"Published {restored.ref}: the content of {restored.name}@{restored.manifest.restores}",
        "The next prepare publishes the source again if it differs.",
    )


def compact(
    dataset: Name,
    key: options.SigningKeyFile = None,
    root: options.Root = None,
    now: options.Now = False,
    json_output: options.Json = False,
) -> None:
    """Rewrite the newest version in as few shards as possible.

    The shards are balanced, and images are not decoded.

    Examples:
      shardmill compact photos
    """
    if not now:
        home.take_turns()
    argv = python_module("shardmill.beam_jobs.maintain.compaction", "--dataset", dataset)
    argv += ["--root", catalog_at(root, key).storage.location]
    found = result_of([*argv, *(["--signing-key", key] if key is not None else [])])
    if json_output:
        output.print_json(found)
    elif found["unchanged"]:
        output.say(f"{dataset}@{found['version']} is compact: {output.counted(found['num_shards'], 'shard')}")
    else:
        records, shards = (output.counted(found[f"num_{what}s"], what) for what in ("record", "shard"))
        output.say(
            f"Published {dataset}@{found['version']}: {records} in {shards}, "
            f"before: {found['num_shards_before']:,}",
            f"Earlier versions keep their shards; `shardmill gc {dataset} --keep-last 1` removes them",
        )


def gc(
    dataset: Name,
    keep_last: Annotated[
        int | None, typer.Option("--keep-last", metavar="N", min=1, help="Drop all but the newest N versions")
    ] = None,
    drop: Annotated[
        list[int] | None, typer.Option("--drop", metavar="V", help="Drop this version; may be repeated")
    ] = None,
    apply: options.Apply = False,
    root: options.Root = None,
    json_output: options.Json = False,
) -> None:
    """Drop versions, and delete the files that no version needs. Does nothing without --apply.

    Examples:
      shardmill gc photos --keep-last 3
      shardmill gc photos --drop 2 --drop 4 --apply
    """
    from shardmill.infra.dataset.maintenance.garbage import collect_garbage, find_garbage

    work = collect_garbage if apply else find_garbage
    garbage = work(catalog_at(root), dataset, keep_last=keep_last, drop=drop or ())
    if json_output:
        output.print_json(
            {
                "dataset": dataset,
                "applied": apply,
                "dropped": garbage.dropped,
                "deleted": garbage.deleted,
                "kept": garbage.kept,
                "num_files": len(garbage.files),
                "num_bytes": garbage.num_bytes,
                "files": [entry.path for entry in garbage.files],
                "in_work": garbage.in_work,
            }
        )
    else:
        _show_garbage(garbage, applied=apply)


def purge(
    dataset: Name,
    source: Annotated[
        list[str] | None,
        typer.Option("--source", metavar="URI", help="An input, relative to the source; may be repeated"),
    ] = None,
    apply: options.Apply = False,
    root: options.Root = None,
    runs: options.Runs = None,
    json_output: options.Json = False,
) -> None:
    """Delete inputs from every version for good, for deletion requests. Does nothing without --apply.

    Deletes all other inputs with the same bytes too. Purged inputs never come back, even if the file is still
    in the source. An interrupted purge is finished by the next one, also without --source. Training runs that
    used the inputs are named and marked.

    Examples:
      shardmill purge photos --source cat/0001.jpg
      shardmill purge photos --source cat/0001.jpg --source dog/0007.jpg --apply
    """
    from shardmill.beam_jobs.maintain.purge import find_to_purge
    from shardmill.beam_jobs.maintain.purge import purge as remove
    from shardmill.infra.dataset.signatures import signed_versions
    from shardmill.training.promotion.purged import affected_runs, mark_runs
    from shardmill.training.run.files.stored import opened_run

    catalog, folder = catalog_at(root), runs_folder(runs)
    found = find_to_purge(catalog, dataset, source or [])
    with shown_to_people():
        models = affected_runs(catalog, folder, dataset, found.ids, found.rows)
    signed = signed_versions(catalog.dataset_storage(dataset))
    if apply:
        # First: a purge that is killed has removed some of it.
        for model in models:
            with opened_run(model.run, runs_location(runs)) as run:
                mark_runs(run.path.parent, [model], found.ids)
        found = remove(catalog, dataset, source or [])
    unsigned = sorted(signed - signed_versions(catalog.dataset_storage(dataset)))
    if json_output:
        output.print_json(
            {
                "dataset": dataset,
                "applied": apply,
                "uris": found.uris,
                "other_uris": found.other_uris,
                "rows": found.rows,
                "finished_an_earlier_one": found.pending,
                "purged_before": found.gone,
                "models": [asdict(model) for model in models],
                "signatures_removed": unsigned,
            }
        )
    else:
        _show_purge(found, applied=apply)
        _show_models(models, applied=apply)
        for version in unsigned:
            output.note(
                f"note: {dataset}@{version} is not signed any more, since it was changed: shardmill sign"
            )


def _show_purge(found: ToPurge, *, applied: bool) -> None:
    if found.gone:
        output.say("Nothing is left of:", *(f"  {uri}  (purged before)" for uri in found.gone))
    if not found.uris:
        return
    if found.pending:
        output.note("note: a purge of this dataset was interrupted; it is finished with this one")
    output.say(
        f"{'Purged' if applied else 'Would purge'}:",
        *(f"  {uri}" for uri in found.uris),
        *(f"  {uri}  (the same bytes)" for uri in found.other_uris),
        *(
            f"  {output.counted(count, 'row')} of {found.dataset}@{version}"
            for version, count in found.rows.items()
        ),
    )
    if applied:
        output.say("Not touched: the source itself, copies and backups of the dataset, and training runs")
    else:
        output.say("Nothing was removed; use --apply to do it")


def _show_models(models: list[AffectedRun], *, applied: bool) -> None:
    from shardmill.training.promotion.purged import in_words

    if not models:
        return
    done = "were marked" if applied else "would be marked"
    output.say(f"Training runs that used them, which {done}:", *(f"  {in_words(model)}" for model in models))
    output.say("To be rid of them: train on the newest version, promote that model, delete these folders")


def _show_garbage(garbage: Garbage, *, applied: bool) -> None:
    done = "Removed" if applied else "Would remove"
    if not garbage.dropped and not garbage.files:
        output.say(f"{garbage.dataset} has no garbage")
    else:
        versions = ", ".join(f"{garbage.dataset}@{version}" for version in garbage.dropped) or "no version"
        output.say(
            f"{done} {versions} and {output.counted(len(garbage.files), 'file')} "
            f"({readable_bytes(garbage.num_bytes)})",
            *(f"  {entry.path}" for entry in garbage.files[:_SHOWN]),
            *([f"  and {len(garbage.files) - _SHOWN:,} more"] if len(garbage.files) > _SHOWN else []),
            f"Kept: {', '.join(f'{garbage.dataset}@{version}' for version in garbage.kept)}",
        )
        if not applied:
            output.say("Nothing was removed; use --apply to do it")
    if garbage.in_work:
        output.note(
            f"note: {output.counted(len(garbage.in_work), 'folder')} of an interrupted prepare stay: "
            "the same prepare continues from there, and the next version clears them away"
        )
