"""The lock between those who add to a dataset and those who take from it.

Who makes a version shares it, since a new version names files of earlier ones. Who removes something holds it
alone. Readers take no lock: a version that is removed while it is read ends that reading with an error.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from infra.storage import Storage

UPKEEP_LOCK = "upkeep.lock"


def adding(dataset: Storage, name: str) -> AbstractContextManager[None]:
    """For who makes a version out of what is there.

    Raises:
        LockedError: something is being removed.
    """
    return dataset.shared_lock(UPKEEP_LOCK, f"removing parts of {name}")


def removing(dataset: Storage, name: str) -> AbstractContextManager[None]:
    """For who removes something.

    Raises:
        LockedError: a version is being made, or something else removed.
    """
    return dataset.exclusive_lock(UPKEEP_LOCK, f"making or removing a version of {name}")
