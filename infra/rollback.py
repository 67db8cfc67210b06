"""Rollback: a new version with the content of an earlier one. Nothing is copied; nothing is lost."""

from __future__ import annotations

from datetime import UTC, datetime

from infra.catalog import Catalog, DatasetVersion
from infra.contract import Manifest
from infra.errors import CorruptDataError, PublishConflict, UsageError
from infra.upkeep import adding

_ATTEMPTS = 10


def rollback(catalog: Catalog, ref: str) -> DatasetVersion:
    """Publish the content of an earlier version as the newest.

    Args:
        ref: ``name@version``.

    Raises:
        NotFoundError: there is no such version. UsageError: it is the newest already.
        CorruptDataError: a file of it is missing.
    """
    wanted = catalog.open(ref)
    with adding(wanted.storage, wanted.name):
        if missing := wanted.missing_files():
            raise CorruptDataError(
                f"{wanted.ref} is not whole: {missing[0]} is not as it was written",
                f"run `shardmill verify {wanted.ref}`; restore the file from a copy",
            )
        for _ in range(_ATTEMPTS):
            newest = catalog.open(wanted.name)
            if newest.version == wanted.version:
                raise UsageError(f"{wanted.ref} is the newest version already", "name an earlier one")
            try:
                return catalog.publish(_restored(wanted, newest.version))
            except PublishConflict:
                continue
        raise PublishConflict(f"other writers keep publishing versions of {wanted.name}", "run again")


def _restored(wanted: DatasetVersion, newest: int) -> Manifest:
    return wanted.manifest.model_copy(
        update={
            "version": newest + 1,
            "parent": newest,
            "restores": wanted.version,
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
    )
