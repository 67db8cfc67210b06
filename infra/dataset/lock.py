"""The lock between processes that add versions to a dataset and processes that remove parts of it.

Those that add a version share the lock, since a new version names files of earlier ones. One that removes
something holds it alone. Readers take no lock: when a version is removed while it is read, reading ends with
an error.

The lock is a lease, also on local disks and network file systems: it is renewed while its process works, and
expires when that process vanishes or stands still.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.leases import DEFAULT_TIMES, SeenHolder
from shardmill.infra.storage.locking import Lock

_LOCK_FILE = "upkeep.lock"  # the name is part of the format: an older Shardmill must find the same lock


def lock_for_adding(dataset: Storage, name: str) -> AbstractContextManager[Lock]:
    """Hold the lock of a dataset to add a version; others may add at the same time.

    Raises:
        LockedError: something is being removed.
    """
    return dataset.shared_lock(_LOCK_FILE, f"removing parts of {name}", times=DEFAULT_TIMES)


def lock_for_removing(dataset: Storage, name: str) -> AbstractContextManager[Lock]:
    """Keep every other process from adding to a dataset or removing from it, to remove something.

    Raises:
        LockedError: a version is being added, or something else removed.
    """
    return dataset.exclusive_lock(_LOCK_FILE, f"making or removing a version of {name}", times=DEFAULT_TIMES)


def seen_holders(dataset: Storage) -> list[SeenHolder]:
    """Return who adds a version to a dataset or removes parts of it, also those whose lease has expired.

    Raises:
        StorageError: the dataset cannot be read.
    """
    return dataset.lease_holders(_LOCK_FILE)


def lock_for_run(dataset: Storage, path: str, purpose: str = "this work") -> AbstractContextManager[Lock]:
    """Keep every other process from the unfinished work of a run.

    Args:
        dataset: folder of the dataset.
        path: path of the lock, relative to the folder.
        purpose: the work of the holder, for the errors of other processes.

    Raises:
        LockedError: another process is at this work.
    """
    return dataset.exclusive_lock(path, purpose, times=DEFAULT_TIMES)
