"""Publish versions, or roll back to one, while others publish: the loser of a race starts again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.lock import lock_for_adding
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import CorruptDataError, PublishConflict, UsageError
from shardmill.infra.format.contract import Manifest
from shardmill.infra.progress import log

ATTEMPTS = 10

T = TypeVar("T")


def publish_on_newest(dataset: str, attempt: Callable[[], T]) -> T:
    """Attempt to publish, again after each version that another process publishes meanwhile.

    Args:
        dataset: its name.
        attempt: opens the newest version and publishes the next one.

    Returns:
        What the attempt that succeeded returns.

    Raises:
        PublishConflict: others published first ATTEMPTS times.
    """
    for number in range(1, ATTEMPTS + 1):
        try:
            return attempt()
        except PublishConflict:
            if number < ATTEMPTS:
                log("another process published a version meanwhile; starting again on top of it")
    raise PublishConflict(f"other writers keep publishing versions of {dataset}", "run again")


def rollback(catalog: Catalog, ref: str) -> DatasetVersion:
    """Publish the content of an earlier version as the newest.

    Args:
        catalog: the root of the dataset.
        ref: ``name@version``.

    Raises:
        NotFoundError: there is no such version. UsageError: it is the newest already.
        CorruptDataError: a file of it is missing.
    """
    wanted = catalog.open(ref)
    with lock_for_adding(wanted.storage, wanted.name):
        if missing := wanted.missing_files():
            raise CorruptDataError(
                f"{wanted.ref} is not whole: {missing[0]} is not as it was written",
                f"run `shardmill verify {wanted.ref}`; restore the file from a copy",
            )
        return publish_on_newest(wanted.name, partial(_restore, catalog, wanted))


def _restore(catalog: Catalog, wanted: DatasetVersion) -> DatasetVersion:
    """Publish the content of a version on top of the newest."""
    newest = catalog.open(wanted.name)
    if newest.version == wanted.version:
        raise UsageError(f"{wanted.ref} is the newest version already", "name an earlier one")
    return catalog.publish(_restored(wanted, newest.version))


def _restored(wanted: DatasetVersion, newest: int) -> Manifest:
    return wanted.manifest.model_copy(
        update={
            "version": newest + 1,
            "parent": newest,
            "restores": wanted.version,
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
    )
