"""Purge: remove contents from every version of a dataset for good, for example on request of a person.

    find -> block list and journal -> shards, indexes, tables, manifests -> reports -> files and spools

The contents are named by their URIs; all other URIs that ever had the same bytes go with them. The block list
of purged images holds only SHA-256 digests, of contents and of URIs. The journal is deleted at the
very end. While it exists, the next purge finishes the one that was killed, whatever else it is asked for, and
other commands warn. No prepare takes over blocked contents.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardmill.beam_jobs.maintain.purge.finding import ToPurge, find_to_purge, write_journal
from shardmill.beam_jobs.maintain.purge.rewriting import Rewriter
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.croissant import write_croissant
from shardmill.infra.dataset.lock import lock_for_removing
from shardmill.infra.dataset.maintenance.garbage import find_garbage, remove_files
from shardmill.infra.dataset.maintenance.removed import PURGING_FILE, add_purged, delete_for_good
from shardmill.infra.dataset.publishing import record_report
from shardmill.infra.format.layout import croissant_file
from shardmill.infra.progress import progress, stage
from shardmill.infra.storage.filesystem import Storage

__all__ = ["ToPurge", "find_to_purge", "purge"]


def purge(catalog: Catalog, name: str, sources: Sequence[str]) -> ToPurge:
    """Remove contents from every version of a dataset, and keep them from coming back.

    Args:
        catalog: the datasets.
        name: name of the dataset.
        sources: URIs relative to the source, or paths of files; none to finish a purge that was killed.

    Raises:
        NotFoundError: no version ever knew one of the sources.
        UsageError: no source is given, and no purge has to be finished.
        LockedError: a version is being made at this moment.
        CorruptDataError: a record that stays cannot be copied; repair it and run again.
    """
    storage = catalog.dataset_storage(name)
    wanted = find_to_purge(catalog, name, sources)  # before the lock's file makes a folder
    if not wanted.uris:
        return wanted  # all of it is gone already
    with lock_for_removing(storage, name):
        wanted = find_to_purge(catalog, name, sources)
        delete_for_good(storage)  # removed versions may have the contents too
        write_journal(storage, wanted)
        contents = (bytes.fromhex(digest) for digest in wanted.digests)
        add_purged(storage, contents, [*wanted.uris, *wanted.other_uris])
        _rewrite_manifests(catalog, storage, wanted)
        _write_reports(catalog, storage, name)
        _remove_the_rest(catalog, storage, name)
        storage.delete(PURGING_FILE)
    return wanted


def _rewrite_manifests(catalog: Catalog, storage: Storage, wanted: ToPurge) -> None:
    stage("purge", len(wanted.rows), unit="versions")
    rewriter = Rewriter(storage, wanted)
    for done, number in enumerate(sorted(wanted.rows), 1):
        changed = rewriter.rewrite(catalog.open(f"{wanted.dataset}@{number}"))
        # It names files of the old manifest. Without it the version is whole; it comes with the reports.
        storage.delete(croissant_file(number))
        catalog.replace(changed)
        progress("purge", done, len(wanted.rows), unit="versions")


def _write_reports(catalog: Catalog, storage: Storage, name: str) -> None:
    """Write every report and description again: a report may show records of the purged version too."""
    from shardmill.beam_jobs.report import write_report  # its template engine is needed here only

    made: set[str] = set()
    for number in catalog.versions(name):
        manifest = catalog.open(f"{name}@{number}").manifest
        write_croissant(storage, manifest)
        if manifest.report is not None and manifest.report not in made:
            path = write_report(storage, manifest)
            record_report(catalog, name, path)
            made.add(path)


def _remove_the_rest(catalog: Catalog, storage: Storage, name: str) -> None:
    """Remove the spools, and all files that no version names any more."""
    for run in storage.list_folders("spool"):
        storage.delete_tree(f"spool/{run}")
    remove_files(storage, find_garbage(catalog, name))
    storage.sweep("data")
