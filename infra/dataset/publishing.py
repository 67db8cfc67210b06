"""Publish versions, or roll back to one, while others publish; record reports in the manifests of versions.

The loser of a race to publish starts again.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.lock import lock_for_adding
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.digests import stream_sha256
from shardmill.infra.errors import PublishConflict, UsageError
from shardmill.infra.format.contract import Manifest
from shardmill.infra.progress import log
from shardmill.infra.storage.filesystem import Storage

_ATTEMPTS = 10

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
    for number in range(1, _ATTEMPTS + 1):
        try:
            return attempt()
        except PublishConflict:
            if number < _ATTEMPTS:
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
        wanted.check_whole()
        return publish_on_newest(wanted.name, partial(_restore, catalog, wanted))


def _restore(catalog: Catalog, wanted: DatasetVersion) -> DatasetVersion:
    newest = catalog.open(wanted.name)
    if newest.version == wanted.version:
        raise UsageError(f"{wanted.ref} is the newest version already", "name an earlier one")
    changes = {
        "version": newest.version + 1,
        "parent": newest.version,
        "restores": wanted.version,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return catalog.publish(wanted.manifest.model_copy(update=changes))


def with_report(storage: Storage, manifest: Manifest, path: str) -> Manifest:
    """Return the manifest with the report at ``path`` in the dataset's folder."""
    return manifest.model_copy(update={"report": path, "report_sha256": report_sha256(storage, path)})


def record_report(catalog: Catalog, name: str, path: str) -> None:
    """Write the SHA-256 of a report that was made again into every manifest of the dataset that names it.

    Signatures of these manifests are removed. The lock of the dataset must be held: a purge rewrites
    manifests too.
    """
    storage = catalog.dataset_storage(name)
    for version in catalog.versions(name):
        manifest = catalog.open(f"{name}@{version}").manifest
        if manifest.report != path:
            continue
        changed = with_report(storage, manifest, path)
        if changed != manifest:
            catalog.replace(changed)


def report_sha256(storage: Storage, path: str) -> str:
    """SHA-256 of the page at ``path``, as 64 hexadecimal digits.

    Raises:
        NotFoundError: there is no such page.
    """
    with storage.open_input(path) as stream:
        return stream_sha256(stream)
