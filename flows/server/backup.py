"""Back up and restore the state of a platform: catalog, aliases, and the database of Prefect.

::

    DIR/
      backup.json               what is in it; written last
      prefect.db | prefect.dump Prefect's database: of SQLite, or of PostgreSQL in the format of pg_dump
      datasets/<dataset>/...    manifests, indexes, inputs, reports; shards only if asked for
      aliases/...               the aliases of models, with their history
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NotRequired, cast

from typing_extensions import TypedDict

from shardmill.flows.home import PRIVATE_FOLDER, hide
from shardmill.flows.server.database import back_up_database, restore_database
from shardmill.flows.server.running_up import up_lock
from shardmill.infra import release
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.lock import lock_for_adding
from shardmill.infra.errors import NotFoundError, PublishConflict, StorageError, UsageError
from shardmill.infra.format.layout import version_of_manifest
from shardmill.infra.json_files import open_shape, read_json
from shardmill.infra.storage.filesystem import FileEntry, Storage
from shardmill.infra.strict_json import dump_json
from shardmill.training.aliases.history import FOLDER as ALIASES

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


def _check_aliases(source: Storage, to: Storage) -> None:
    """Check that no record of an alias differs from the record in a backup.

    Raises:
        PublishConflict: one is.
    """
    for entry in source.list_files():
        _check_same(source, to, entry.path, f"the record {entry.path} of an alias")


def _copy_aliases(source: Storage, to: Storage) -> Copied:
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


_LIST = "backup.json"
_FORMAT = 1
_STOP_FIRST = "stop it first: shardmill down; start it after the restore: shardmill up --detach"


@open_shape
class _Description(TypedDict):
    format: int
    database: NotRequired[str | None]
    datasets: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Places:
    """The data to back up or restore: folders of datasets and runs, and the URL of PostgreSQL or None."""

    root: str
    runs: str
    database: str | None = None


@dataclass(slots=True)
class Backup:
    """The content of a backup.

    Attributes:
        database: file of Prefect's database; None: there was none.
        datasets: name -> files of the dataset that were copied.
        aliases: files of aliases that were copied.
    """

    database: str | None
    datasets: dict[str, Copied] = field(default_factory=dict)
    aliases: Copied = field(default_factory=Copied)

    def as_json(self) -> dict[str, Any]:
        """The values that ``--json`` prints."""
        return {
            "database": self.database,
            "datasets": {
                name: {"num_files": done.num_files, "num_bytes": done.num_bytes, "missing": done.missing}
                for name, done in self.datasets.items()
            },
            "num_alias_records": self.aliases.num_files,
        }


def back_up(folder: Path, places: Places, *, with_shards: bool) -> Backup:
    """Make a backup in a new folder, which appears when it is whole.

    Raises:
        UsageError: the folder exists and is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists and is not empty", "give a new folder for each backup")
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.parent.mkdir(parents=True, exist_ok=True)
    partial.mkdir(mode=PRIVATE_FOLDER)
    done = Backup(back_up_database(partial, places.database))
    catalog = Catalog(places.root)
    for name in catalog.datasets():
        to = Storage.at(partial / "datasets" / name)
        done.datasets[name] = back_up_dataset(catalog, name, to, with_shards=with_shards)
    done.aliases = _copy_aliases(Storage.at(places.runs).child(ALIASES), Storage.at(partial / ALIASES))
    described = {
        "format": _FORMAT,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "release": release(),
        "with_shards": with_shards,
        **done.as_json(),
    }
    Storage.at(partial).write_atomic(_LIST, dump_json(described, indent=1).encode())
    hide(partial)
    if folder.exists():
        folder.rmdir()
    partial.rename(folder)
    return done


def restore(folder: Path, places: Places, *, replace: bool) -> Backup:
    """Restore a backup. Versions and records that are there already stay.

    Raises:
        NotFoundError: the folder holds no backup. LockedError: `shardmill up` of this home runs.
        UsageError: there is a history of Prefect already, and ``replace`` is false.
        PublishConflict: a version or a record is there with another content.
    """
    described = _described(folder)
    hide(folder)  # one of an earlier release
    done = Backup(described.get("database"))
    catalog = Catalog(places.root)
    datasets = {name: Storage.at(folder / "datasets" / name) for name in described["datasets"]}
    aliases = Storage.at(folder / ALIASES) if (folder / ALIASES).is_dir() else None
    with up_lock(_STOP_FIRST):
        # Nothing is changed before all of this is known to go well.
        for name, source in datasets.items():
            check_dataset(source, catalog, name)
        if aliases is not None:
            _check_aliases(aliases, Storage.at(places.runs).child(ALIASES))
        if done.database is not None:
            restore_database(folder, done.database, places.database, replace=replace)
        for name, source in datasets.items():
            done.datasets[name] = restore_dataset(source, catalog, name)
        if aliases is not None:
            done.aliases = _copy_aliases(aliases, Storage.at(places.runs).child(ALIASES))
    return done


def _described(folder: Path) -> dict[str, Any]:
    if not (folder / _LIST).exists():
        raise NotFoundError(
            f"{folder} holds no backup", "give a folder that `shardmill platform backup` made"
        )
    described = cast("dict[str, Any]", read_json(folder / _LIST, _Description, "restore an earlier backup"))
    if described.get("format") != _FORMAT:
        raise UsageError(
            f"{folder} is a backup of another release ({described.get('release')})",
            "restore it with that release",
        )
    return described
