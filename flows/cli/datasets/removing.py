"""versions and rm: list the versions of a dataset, remove some, and bring them back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from shardmill.flows.cli import options, output
from shardmill.flows.cli.datasets.maintenance import Name
from shardmill.flows.cli.folders import catalog_at, runs_folder
from shardmill.infra.errors import NotFoundError, UsageError
from shardmill.infra.readable import readable_bytes
from shardmill.infra.whole_job import shown_to_people

if TYPE_CHECKING:
    from shardmill.infra.dataset.catalog import Catalog

Refs = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME[@VERSION]...",
        help="Versions of one dataset; without a version, the whole dataset",
        autocompletion=options.references,
    ),
]
KeepDays = Annotated[
    float, typer.Option("--keep-days", metavar="N", min=0, max=3650, help="For so long they can be restored")
]
Purge = Annotated[bool, typer.Option("--purge", help="Delete them for good at once, with their files")]
Restore = Annotated[bool, typer.Option("--restore", help="Instead, bring removed versions back")]


def versions(
    dataset: Name, root: options.Root = None, runs: options.Runs = None, json_output: options.Json = False
) -> None:
    """List the versions of a dataset, and what was trained on each.

    Removed ones are listed too, with the day until which they can be restored.

    Examples:
      shardmill versions photos
    """
    catalog = catalog_at(root)
    found = _listed(catalog, dataset, _users(dataset, runs))
    if json_output:
        output.print_json({"dataset": dataset, "versions": found})
        return
    columns = ["version", "published", "records", "classes", "shards", "size", "restores", "trained on it"]
    rows = [
        [
            entry["version"],
            entry["state"] if entry["state"] != "published" else entry["created_at"],
            *(entry.get(key, "") for key in ("num_records", "num_classes", "num_shards")),
            readable_bytes(entry["num_bytes"]) if "num_bytes" in entry else "",
            entry.get("restores") or "",
            ", ".join(entry["runs"]),
        ]
        for entry in found
    ]
    output.print_table(dataset, columns, rows)


def rm(
    refs: Refs,
    keep_days: KeepDays = 7.0,
    purge: Purge = False,
    restore: Restore = False,
    apply: options.Apply = False,
    root: options.Root = None,
    runs: options.Runs = None,
    json_output: options.Json = False,
) -> None:
    """Remove versions or a dataset; for days they can be restored.

    Without --apply it only prints what it would do, and what was trained on the versions. Afterwards no
    command sees them; `shardmill gc` and the maintenance delete their files when the days are over.

    Examples:
      shardmill rm photos@2
      shardmill rm photos@2 photos@3 --apply
      shardmill rm photos@2 --restore --apply
      shardmill rm photos --purge --apply
    """
    from shardmill.infra.dataset.maintenance import removed

    if purge and restore:
        raise UsageError("--purge and --restore: one removes, the other brings back", "leave one of them out")
    catalog, (name, numbers) = catalog_at(root), _one_dataset(refs)
    if restore:
        _restore(catalog, name, numbers, apply, json_output)
        return
    wanted = removed.check_removable(catalog, name, numbers)
    users = {number: names for number, names in _users(name, runs).items() if number in wanted}
    num_files, num_bytes = _only_theirs(catalog, name, wanted)
    if apply:
        removed.remove_versions(catalog, name, numbers, keep_days=0 if purge else keep_days)
        if purge:
            from shardmill.infra.dataset.maintenance.garbage import collect_garbage

            collect_garbage(catalog, name)
    if json_output:
        told = {"dataset": name, "versions": wanted, "applied": apply, "purged": purge and apply}
        kept = None if purge else keep_days
        sizes = {"num_files": num_files, "num_bytes": num_bytes, "keep_days": kept}
        output.print_json({**told, **sizes, "trained_on": users})
        return
    what = ", ".join(f"{name}@{number}" for number in wanted)
    files = f"{output.counted(num_files, 'file')} ({readable_bytes(num_bytes)})"
    ending = "" if not purge else " for good"
    output.say(
        f"{'Removed' if apply else 'Would remove'}{ending} {what}: {files} that no other version needs"
    )
    for number, names in users.items():
        output.say(f"  trained on {name}@{number}: {', '.join(names)}")
    if not apply:
        output.say("Nothing was removed; use --apply to do it")
    elif not purge:
        again = " ".join(f"{name}@{number}" for number in wanted)
        output.say(f"For {keep_days:g} days: shardmill rm {again} --restore --apply brings them back")
        output.say(f"Then shardmill gc {name} --apply, or the maintenance, deletes the files")


def _restore(catalog: Catalog, name: str, numbers: list[int] | None, apply: bool, json_output: bool) -> None:
    from shardmill.infra.dataset.maintenance.removed import bring_back, check_restorable

    if apply:
        done = bring_back(catalog, name, numbers)
    else:
        done = [each.version for each in check_restorable(catalog, name, numbers)]
    if json_output:
        output.print_json({"dataset": name, "versions": done, "applied": apply, "restored": apply})
    else:
        what = ", ".join(f"{name}@{number}" for number in done)
        output.say(f"{'Restored' if apply else 'Would restore'} {what}")


def _one_dataset(refs: list[str]) -> tuple[str, list[int] | None]:
    """The dataset that references name, and their versions; None: all of them.

    Raises:
        UsageError: they name several datasets, or a version that is no number.
    """
    names = {ref.partition("@")[0] for ref in refs}
    if len(names) != 1:
        first = refs[0].partition("@")[0]
        of_first = [ref for ref in refs if ref.partition("@")[0] == first]
        raise UsageError("one dataset at a time", f"shardmill rm {' '.join(of_first)}")
    if any("@" not in ref for ref in refs):
        return names.pop(), None
    numbers = [ref.partition("@")[2] for ref in refs]
    if wrong := [number for number in numbers if not (number.isascii() and number.isdecimal())]:
        raise UsageError(f"@{wrong[0]}: give the number of a version", f"shardmill versions {names.pop()}")
    return names.pop(), [int(number) for number in numbers]


def _users(name: str, runs: str | None) -> dict[int, list[str]]:
    """Number of a version -> the runs that were trained on it, with the aliases that they have."""
    from shardmill.infra.storage.filesystem import Storage
    from shardmill.training.aliases.history import aliases_by_run
    from shardmill.training.results.run_files.run_folder import list_runs

    folder = runs_folder(runs)
    with shown_to_people():  # a warning names damaged runs
        used = [(run, run.versions_of(name)) for run in list_runs(folder)]
        names = {run.dataset_name for run, versions in used if versions}
        aliases = {each: aliases_by_run(Storage.at(folder), each) for each in names}
    found: dict[int, list[str]] = {}
    for run, versions in used:
        for version in versions:
            held = aliases[run.dataset_name].get(run.name, ())
            shown = f"{run.name} ({', '.join(held)})" if held else run.name
            found.setdefault(version, []).append(shown)
    return found


def _only_theirs(catalog: Catalog, name: str, wanted: list[int]) -> tuple[int, int]:
    """(number, total bytes) of the files that only these versions need."""
    manifests = {number: catalog.open(f"{name}@{number}").manifest for number in catalog.versions(name)}
    needed = {path for number, each in manifests.items() if number not in wanted for path in each.files()}
    theirs = {path for number in wanted for path in manifests[number].files()} - needed
    sizes = [
        entry.size_bytes for entry in catalog.dataset_storage(name).list_files("data") if entry.path in theirs
    ]
    return len(sizes), sum(sizes)


def _listed(catalog: Catalog, name: str, users: dict[int, list[str]]) -> list[dict[str, Any]]:
    from shardmill.infra.dataset.maintenance.removed import removed_versions

    published = catalog.versions(name)
    removed = removed_versions(catalog.dataset_storage(name))
    if not published and not removed:
        catalog.open(name)  # says which datasets there are
        raise NotFoundError(f"no dataset {name!r}")
    found = []
    for number in published:
        manifest = catalog.open(f"{name}@{number}").manifest
        found.append(
            {
                "version": number,
                "state": "published",
                "created_at": manifest.created_at,
                "num_records": manifest.accounting.num_records,
                "num_classes": len(manifest.classes),
                "num_shards": len(manifest.shards),
                "num_bytes": sum(shard.num_bytes for shard in manifest.shards),
                "restores": manifest.restores,
                "source": manifest.source,
                "runs": users.get(number, []),
            }
        )
    for each in removed:
        if each.version not in published:
            until = f"removed, kept until {each.until:%Y-%m-%d}" if each.manifest else "deleted"
            found.append({"version": each.version, "state": until, "runs": users.get(each.version, [])})
    return sorted(found, key=lambda entry: entry["version"])
