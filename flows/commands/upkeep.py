"""rollback, compact, gc, purge: what becomes of versions once they are published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from flows.commands import options

if TYPE_CHECKING:
    from beam_jobs.purge import ToPurge
    from infra.catalog import Catalog
    from infra.garbage import Garbage


def _whole_dataset(name: str) -> str:
    from infra.errors import UsageError

    if "@" in name:
        raise UsageError(
            f"{name} names a version, and this works on a dataset as a whole", f"say {name.partition('@')[0]}"
        )
    return name


Name = Annotated[str, typer.Argument(metavar="NAME", help="A dataset", callback=_whole_dataset)]
Apply = Annotated[bool, typer.Option("--apply", help="Do it; without this, only say what would be done")]

_SHOWN = 10


def rollback(
    dataset: Annotated[str, typer.Argument(metavar="NAME@VERSION", help="The version to bring back")],
    root: options.Root = None,
    json_output: options.Json = False,
) -> None:
    """Publish the content of an earlier version as the newest. Copies nothing and loses nothing.

    [bold]Examples[/bold]

      shardmill rollback photos@2
    """
    from flows.commands import output
    from infra.rollback import rollback as bring_back

    restored = bring_back(_catalog(root), dataset)
    if json_output:
        output.print_json(
            {"dataset": restored.name, "version": restored.version, "restores": restored.manifest.restores}
        )
    else:
        output.say(
            f"Published {restored.ref}: what {restored.name}@{restored.manifest.restores} holds",
            "The next prepare of a source that differs makes a version of the source again.",
        )


def compact(dataset: Name, root: options.Root = None, json_output: options.Json = False) -> None:
    """Write the newest version anew in as few shards as do, in balance. Copies; decodes nothing.

    [bold]Examples[/bold]

      shardmill compact photos
    """
    import sys

    from flows.commands import output
    from flows.commands.child import result_of

    argv = [sys.executable, "-m", "beam_jobs.compaction", "--dataset", dataset]
    found = result_of([*argv, "--root", _catalog(root).storage.location])
    if json_output:
        output.print_json(found)
    elif found["unchanged"]:
        output.say(f"{dataset}@{found['version']} is compact: {output.counted(found['num_shards'], 'shard')}")
    else:
        records, shards = (output.counted(found[f"num_{what}s"], what) for what in ("record", "shard"))
        output.say(
            f"Published {dataset}@{found['version']}: {records} in {shards}, "
            f"where there were {found['num_shards_before']:,}",
            f"The earlier versions keep theirs: `shardmill gc {dataset} --keep-last 1` would remove them",
        )


def gc(
    dataset: Name,
    keep_last: Annotated[
        int | None, typer.Option("--keep-last", metavar="N", min=1, help="Drop all but the newest N versions")
    ] = None,
    drop: Annotated[
        list[int] | None, typer.Option("--drop", metavar="V", help="Drop this version; may be repeated")
    ] = None,
    apply: Apply = False,
    root: options.Root = None,
    json_output: options.Json = False,
) -> None:
    """Drop versions, and remove the files that no version needs. Says what it would do unless told to.

    [bold]Examples[/bold]

      shardmill gc photos --keep-last 3

      shardmill gc photos --drop 2 --drop 4 --apply
    """
    from flows.commands import output
    from infra.garbage import collect_garbage, find_garbage

    work = collect_garbage if apply else find_garbage
    garbage = work(_catalog(root), dataset, keep_last=keep_last, drop=drop or ())
    if json_output:
        output.print_json(
            {
                "dataset": dataset,
                "applied": apply,
                "dropped": garbage.dropped,
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
    apply: Apply = False,
    root: options.Root = None,
    json_output: options.Json = False,
) -> None:
    """Remove inputs from every version for good, for requests of deletion. Says what it would do first.

    With each goes every other input that ever had the same bytes. What was purged never comes back, even
    where the file still lies in the source. A purge that was interrupted is finished, without --source too.

    [bold]Examples[/bold]

      shardmill purge photos --source cats/0001.jpg

      shardmill purge photos --source cats/0001.jpg --source dogs/0007.jpg --apply
    """
    from beam_jobs.purge import find_to_purge
    from beam_jobs.purge import purge as remove
    from flows.commands import output

    found = (remove if apply else find_to_purge)(_catalog(root), dataset, source or [])
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
            }
        )
    else:
        _show_purge(found, applied=apply)


def _show_purge(found: ToPurge, *, applied: bool) -> None:
    from flows.commands import output

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
        output.say(
            "Not touched: the source itself, copies and backups of the dataset, and models trained on it"
        )
    else:
        output.say("Nothing was removed: say --apply to do it")


def _show_garbage(garbage: Garbage, *, applied: bool) -> None:
    from flows.commands import output

    done = "Removed" if applied else "Would remove"
    if not garbage.dropped and not garbage.files:
        output.say(f"{garbage.dataset} has no garbage")
    else:
        versions = ", ".join(f"{garbage.dataset}@{version}" for version in garbage.dropped) or "no version"
        output.say(
            f"{done} {versions} and {output.counted(len(garbage.files), 'file')} "
            f"({output.readable_bytes(garbage.num_bytes)})",
            *(f"  {entry.path}" for entry in garbage.files[:_SHOWN]),
            *([f"  and {len(garbage.files) - _SHOWN:,} more"] if len(garbage.files) > _SHOWN else []),
            f"Kept: {', '.join(f'{garbage.dataset}@{version}' for version in garbage.kept)}",
        )
        if not applied:
            output.say("Nothing was removed: say --apply to do it")
    if garbage.in_work:
        output.note(
            f"note: {output.counted(len(garbage.in_work), 'folder')} of an interrupted prepare stay: "
            "the same prepare goes on from there, and the next version clears them away"
        )


def _catalog(root: str | None) -> Catalog:
    from flows.parameters import root_or_default
    from infra.catalog import Catalog

    return Catalog(root_or_default(root))
