"""The lock between processes that add versions to a dataset and processes that remove parts of it.

Those that add a version share the lock, since a new version names files of earlier ones. One that removes
something holds it alone. Readers take no lock: when a version is removed while it is read, reading ends with
an error.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from infra.storage.filesystem import Storage
from infra.storage.locks.locking import Lock

LOCK_FILE = "upkeep.lock"  # the name is part of the format: an older Shardmill must find the same lock


def lock_for_adding(dataset: Storage, name: str) -> AbstractContextManager[Lock]:
    """Hold the lock of a dataset to add a version; others may add at the same time.

    Raises:
        LockedError: something is being removed.
    """
    return dataset.shared_lock(LOCK_FILE, f"removing parts of {name}")


def lock_for_removing(dataset: Storage, name: str) -> AbstractContextManager[Lock]:
    """Hold the lock of a dataset alone, to remove something.

    Raises:
        LockedError: a version is being added, or something else removed.
    """
    return dataset.exclusive_lock(LOCK_FILE, f"making or removing a version of {name}")
