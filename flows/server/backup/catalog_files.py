"""Copy the files of datasets and of aliases into a backup and back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.lock import lock_for_adding
from shardmill.infra.errors import PublishConflict, StorageError
from shardmill.infra.format.layout import version_of_manifest
from shardmill.infra.storage.filesystem import FileEntry, Storage

_COPY_BYTES = 8 << 20
_SHARDS = (".tfrecord", ".tfrecord.gz")
_LEFT_OUT = ("spool/",)  # unfinished work


@dataclass(slots=True)
class Copied:
    """The number of copied files and bytes; ``missing`` shards are neither here nor in the backup."""

    num_files: int = 0
    num_bytes: int = 0
    missing: int = 0

    def add(self, entry: FileEntry) -> None:
        """Count a file."""
        self.num_files += 1
        self.num_bytes += entry.size_bytes


def back_up_dataset(catalog: Catalog, name: str, to: Storage, *, with_shards: bool) -> Copied:
    """Copy a dataset; nothing of it is removed meanwhile. Manifests go last, so each is whole.

    Raises:
        LockedError: parts of the dataset are being removed.
    """
    storage, copied = catalog.dataset_storage(name), Copied()
    with contextlib.ExitStack() as held:
        # Where nothing can be written, nothing can be removed either.
        with contextlib.suppress(StorageError):
            held.enter_context(lock_for_adding(storage, name))
        versions = {f"manifests/{number:06d}.json" for number in catalog.versions(name)}
        entries = [entry for entry in storage.list_files() if _belongs(entry.path, with_shards)]
        manifests = [entry for entry in entries if entry.path in versions]
        for entry in [*(entry for entry in entries if entry.path not in versions), *manifests]:
            _copy(storage, to, entry, copied)
    return copied


def check_dataset(source: Storage, catalog: Catalog, name: str) -> None:
    """Check that no version of a dataset differs from the version in a backup.

    Raises:
        PublishConflict: one is.
    """
    storage = catalog.dataset_storage(name)
    for entry in source.list_files():
        if _is_manifest(entry):
            _check_same(source, storage, entry.path, f"version {entry.path} of dataset {name}")


def restore_dataset(source: Storage, catalog: Catalog, name: str) -> Copied:
    """Copy a dataset back, after ``check_dataset``. Keep the files that are there already.

    Raises:
        LockedError: parts of the dataset are being removed.
    """
    storage, copied = catalog.dataset_storage(name), Copied()
    entries = source.list_files()
    manifests = [entry for entry in entries if _is_manifest(entry)]
    with lock_for_adding(storage, name):
        for entry in [*(entry for entry in entries if entry not in manifests), *manifests]:
            if not storage.exists(entry.path):
                _copy(source, storage, entry, copied)
    copied.missing = sum(
        len(catalog.open(f"{name}@{number}").missing_files()) for number in catalog.versions(name)
    )
    return copied


def check_aliases(source: Storage, to: Storage) -> None:
    """Check that no record of an alias differs from the record in a backup.

    Raises:
        PublishConflict: one is.
    """
    for entry in source.list_files():
        _check_same(source, to, entry.path, f"the record {entry.path} of an alias")


def copy_aliases(source: Storage, to: Storage) -> Copied:
    """Copy records of aliases, which never change. Those that are there already stay."""
    copied = Copied()
    for entry in source.list_files():
        if not to.exists(entry.path):
            _copy(source, to, entry, copied)
    return copied


def _belongs(path: str, with_shards: bool) -> bool:
    if path.endswith(".lock") or path.startswith(_LEFT_OUT):
        return False
    return with_shards or not path.endswith(_SHARDS)


def _is_manifest(entry: FileEntry) -> bool:
    folder, _, name = entry.path.rpartition("/")
    return folder == "manifests" and version_of_manifest(name) is not None


def _check_same(source: Storage, to: Storage, path: str, what: str) -> None:
    if to.exists(path) and to.read_bytes(path) != source.read_bytes(path):
        raise PublishConflict(
            f"{what} is in {to.uri} already, with another content",
            "restore into an empty folder: --root DIR --runs DIR",
        )


def _copy(source: Storage, to: Storage, entry: FileEntry, copied: Copied) -> None:
    with to.atomic_writer(entry.path) as stream:
        for part in _parts(source, entry):
            stream.write(part)
    copied.add(entry)


def _parts(source: Storage, entry: FileEntry) -> Iterator[bytes]:
    for offset in range(0, entry.size_bytes, _COPY_BYTES):
        yield source.read_range(entry.path, offset, _COPY_BYTES)
