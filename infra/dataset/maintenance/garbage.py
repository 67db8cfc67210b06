"""Choose the versions that are not kept, and remove them and the files that no manifest names.

Files that a kept manifest names, and files from which an interrupted run can continue, stay. The manifests of
dropped versions are removed first. If the collection is killed after that, the files that no manifest names
any more are removed by the next collection.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.lock import lock_for_removing
from shardmill.infra.dataset.maintenance.removed import delete_for_good, files_of_removed, removed_versions
from shardmill.infra.errors import NotFoundError, UsageError
from shardmill.infra.format.layout import croissant_file, data_dir, manifest_file, signature_file
from shardmill.infra.storage.filesystem import FileEntry, Storage


def outdated_versions(
    created: Mapping[int, datetime],
    *,
    keep_last: int | None,
    keep_days: float | None,
    protected: Collection[int],
    now: datetime,
) -> list[int]:
    """The versions that no rule keeps, in ascending order.

    Args:
        created: when each version was published.
        keep_last: keeps so many of the newest; None is no rule.
        keep_days: keeps those that are not older; None is no rule.
        protected: versions that are kept anyway. The newest is kept too.
        now: the time from which ages count.
    """
    if keep_last is None and keep_days is None:
        return []
    versions = sorted(created)
    kept = {*protected, *versions[-max(keep_last or 1, 1) :]}
    if keep_days is not None:
        kept |= {number for number in versions if now - created[number] <= timedelta(days=keep_days)}
    return [number for number in versions if number not in kept]


_DATA, _SPOOLS, _MANIFESTS = "data", "spool", "manifests"


@dataclass(frozen=True)
class Garbage:
    """Versions and files that a collection removes.

    Attributes:
        dataset: name of the dataset.
        dropped: numbers of the versions that are removed, in ascending order.
        kept: numbers of the versions that stay, in ascending order.
        files: files that no kept version needs, sorted by path.
        in_work: folders of data from which an interrupted run can continue; they stay.
        needed: files that kept versions need, and removed ones that may come back.
        deleted: removed versions whose days are over.
    """

    dataset: str
    dropped: list[int]
    kept: list[int]
    files: list[FileEntry]
    in_work: list[str]
    needed: frozenset[str] = field(default_factory=frozenset, repr=False)
    deleted: list[int] = field(default_factory=list)

    @property
    def num_bytes(self) -> int:
        """Total size of the files (bytes)."""
        return sum(entry.size_bytes for entry in self.files)


def find_garbage(
    catalog: Catalog, name: str, *, keep_last: int | None = None, drop: Collection[int] = ()
) -> Garbage:
    """Find the versions and files that a collection would remove, and remove nothing.

    Args:
        catalog: the root of the dataset.
        name: name of the dataset.
        keep_last: keep only this number of the newest versions; None keeps all.
        drop: numbers of further versions to remove.

    Raises:
        NotFoundError: there is no such dataset, or no such version to drop.
        UsageError: the newest version would be dropped. ConfigError: ``name`` cannot name a dataset.
        FormatVersionError, CorruptDataError: a kept manifest cannot be read, so its files are not known.
    """
    storage = catalog.dataset_storage(name)
    removed, now = removed_versions(storage), datetime.now(UTC)
    if not removed:
        catalog.open(name)  # says which datasets there are
    versions = catalog.versions(name)
    if unknown := sorted(set(drop) - set(versions)):
        raise NotFoundError(
            f"dataset {name} has no version {unknown[0]}", f"it has: {', '.join(map(str, versions))}"
        )
    if versions and (versions[-1] in drop or keep_last == 0):
        raise UsageError(
            f"{name}@{versions[-1]} is the newest version, which stays",
            "publish what you want in its place first: `shardmill rollback NAME@VERSION`",
        )
    old = versions[:-keep_last] if keep_last is not None else []
    dropped = sorted(set(drop) | set(old))
    kept = [version for version in versions if version not in dropped]
    needed = files_of_removed(storage, now)
    for version in kept:
        needed |= set(catalog.open(f"{name}@{version}").manifest.files())
    plans = [entry.path for entry in storage.list_files(_SPOOLS) if "/plans/" in entry.path]
    in_work = {data_dir(path.rpartition("/")[2].removesuffix(".arrow")) for path in plans}
    files = [
        entry
        for entry in storage.list_files(_DATA)
        if entry.path not in needed and entry.path.rpartition("/")[0] not in in_work
    ]
    over = [each.version for each in removed if each.manifest is not None and not each.is_kept(now)]
    return Garbage(name, dropped, kept, files, sorted(in_work), frozenset(needed), over)


def collect_garbage(
    catalog: Catalog, name: str, *, keep_last: int | None = None, drop: Collection[int] = ()
) -> Garbage:
    """Remove what ``find_garbage`` finds, and return it.

    Raises:
        LockedError: a version is being made at this moment.
    """
    storage = catalog.dataset_storage(name)
    find_garbage(catalog, name, keep_last=keep_last, drop=drop)  # before the lock's file makes a folder
    with lock_for_removing(storage, name):
        garbage = find_garbage(catalog, name, keep_last=keep_last, drop=drop)
        for version in garbage.dropped:
            storage.delete(signature_file(version))  # first: nothing would find it without its manifest
            storage.delete(manifest_file(version))
            storage.delete(croissant_file(version))
        delete_for_good(storage, datetime.now(UTC))
        remove_files(storage, garbage)
        # Temporary files of writers that were killed, also while they published a manifest.
        storage.sweep(_DATA)
        storage.sweep(_MANIFESTS)
    return garbage


def remove_files(storage: Storage, garbage: Garbage) -> None:
    """Remove the files, and the folders that become empty."""
    for entry in garbage.files:
        storage.delete(entry.path)
    # Not a folder with needed files, even if an old listing of an object store calls it empty.
    used = {_folder(path) for path in garbage.needed}
    for folder in {_folder(entry.path) for entry in garbage.files} - used:
        if not storage.list_files(folder):
            storage.delete_tree(folder)


def _folder(path: str) -> str:
    return path.rpartition("/")[0]
