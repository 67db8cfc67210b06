"""Garbage: versions that are no longer wanted, and files that no manifest names.

Never garbage: what a kept manifest names, and what a run that was interrupted can go on from. The manifests
of dropped versions go first, and with them the versions; a collection that is killed after that has left
files that no manifest names, which the next one removes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from infra.catalog import Catalog
from infra.contract import data_dir, manifest_file
from infra.errors import NotFoundError, UsageError
from infra.storage import FileEntry, Storage
from infra.upkeep import removing

_DATA, _SPOOLS, _MANIFESTS = "data", "spool", "manifests"


@dataclass(frozen=True)
class Garbage:
    """What goes, or would go.

    Attributes:
        dataset: its name.
        dropped: versions, rising.
        kept: versions, rising.
        files: that no kept version needs, sorted by path.
        in_work: folders of data that an interrupted run can go on from; they stay.
    """

    dataset: str
    dropped: list[int]
    kept: list[int]
    files: list[FileEntry]
    in_work: list[str]

    @property
    def num_bytes(self) -> int:
        """Size of all the files (bytes)."""
        return sum(entry.size_bytes for entry in self.files)


def find_garbage(
    catalog: Catalog, name: str, *, keep_last: int | None = None, drop: Collection[int] = ()
) -> Garbage:
    """What would go; nothing is removed.

    Args:
        keep_last: drop all versions but so many of the newest; None to keep all.
        drop: versions to drop besides.

    Raises:
        NotFoundError: there is no such dataset, or no such version to drop.
        UsageError: the newest version is among those to drop. ConfigError: ``name`` is no name of a dataset.
        FormatVersionError, CorruptDataError: a kept manifest cannot be read: nobody can tell what it needs.
    """
    storage = catalog.dataset_storage(name)
    catalog.open(name)  # says which datasets there are
    versions = catalog.versions(name)
    if unknown := sorted(set(drop) - set(versions)):
        raise NotFoundError(
            f"dataset {name} has no version {unknown[0]}", f"it has: {', '.join(map(str, versions))}"
        )
    if versions[-1] in drop or keep_last == 0:
        raise UsageError(
            f"{name}@{versions[-1]} is the newest version, which stays",
            "publish what you want in its place first: `shardmill rollback NAME@VERSION`",
        )
    old = versions[:-keep_last] if keep_last is not None else []
    dropped = sorted(set(drop) | set(old))
    kept = [version for version in versions if version not in dropped]
    needed: set[str] = set()
    for version in kept:
        needed |= set(catalog.open(f"{name}@{version}").manifest.files())
    in_work = folders_in_work(storage)
    files = [
        entry
        for entry in storage.list_files(_DATA)
        if entry.path not in needed and entry.path.rpartition("/")[0] not in in_work
    ]
    return Garbage(name, dropped, kept, files, sorted(in_work))


def collect_garbage(
    catalog: Catalog, name: str, *, keep_last: int | None = None, drop: Collection[int] = ()
) -> Garbage:
    """Remove what ``find_garbage`` finds; returns it.

    Raises:
        LockedError: a version is being made at this moment.
    """
    storage = catalog.dataset_storage(name)
    find_garbage(catalog, name, keep_last=keep_last, drop=drop)  # before the lock's file makes a folder
    with removing(storage, name):
        garbage = find_garbage(catalog, name, keep_last=keep_last, drop=drop)
        for version in garbage.dropped:
            storage.delete(manifest_file(version))
        remove_files(storage, [entry.path for entry in garbage.files])
        # Of writers that were killed; one killed as it published leaves its copy of the manifest.
        storage.sweep(_DATA)
        storage.sweep(_MANIFESTS)
    return garbage


def remove_files(storage: Storage, paths: Collection[str]) -> None:
    """Remove files of the dataset, and the folders of data that are empty then."""
    for path in paths:
        storage.delete(path)
    for folder in {path.rpartition("/")[0] for path in paths}:
        if not storage.list_files(folder):
            storage.delete_tree(folder)


def folders_in_work(storage: Storage) -> set[str]:
    """The folders of data that the plans in the spools name."""
    plans = [entry.path for entry in storage.list_files(_SPOOLS) if "/plans/" in entry.path]
    return {data_dir(path.rpartition("/")[2].removesuffix(".arrow")) for path in plans}
