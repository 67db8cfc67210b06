"""Make a whole backup, and restore one."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NotRequired, cast

from typing_extensions import TypedDict

from shardmill.flows.home import PRIVATE_FOLDER, hide
from shardmill.flows.server.backup.catalog_files import (
    Copied,
    back_up_dataset,
    check_aliases,
    check_dataset,
    copy_aliases,
    restore_dataset,
)
from shardmill.flows.server.backup.database import back_up_database, restore_database
from shardmill.flows.server.running_up import up_lock
from shardmill.infra import release
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.errors import NotFoundError, UsageError
from shardmill.infra.json_files import open_shape, read_json
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.strict_json import dump_json
from shardmill.training.aliases.history import FOLDER as ALIASES

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
    done.aliases = copy_aliases(Storage.at(places.runs).child(ALIASES), Storage.at(partial / ALIASES))
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
            check_aliases(aliases, Storage.at(places.runs).child(ALIASES))
        if done.database is not None:
            restore_database(folder, done.database, places.database, replace=replace)
        for name, source in datasets.items():
            done.datasets[name] = restore_dataset(source, catalog, name)
        if aliases is not None:
            done.aliases = copy_aliases(aliases, Storage.at(places.runs).child(ALIASES))
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
