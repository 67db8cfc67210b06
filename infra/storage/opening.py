"""Open the filesystem of a location."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from shardmill.infra.errors import StorageError
from shardmill.infra.storage.locations import (
    object_location,
    object_path,
    public_location,
    with_plain_endpoint,
    without_secrets,
)
from shardmill.infra.storage.objects.stores import azure_filesystem

# Of Arrow's own repetitions of a request to Google's store, whose default is 15 minutes. Ours come on top.
_GOOGLE_RETRY_SECONDS = 20


def open_filesystem(location: str) -> tuple[pafs.FileSystem, str]:
    """The filesystem of a URI or local path, and the path in it.

    Raises:
        StorageError: the URI is wrong, or of a kind of storage that is not known here.
    """
    if "://" not in location:
        return pafs.LocalFileSystem(), str(Path(location).expanduser().absolute())
    try:
        found = object_location(location)
        if found is not None and found.scheme == "az":
            return azure_filesystem(found), object_path(location)
        filesystem, path = pafs.FileSystem.from_uri(_with_bounded_retries(location))
    except (pa.ArrowException, OSError, ValueError) as error:
        # Not `from error`: its text may hold the credentials of the URI.
        scheme = location.partition("://")[0]
        raise StorageError(
            f"cannot open storage {public_location(location)}: {without_secrets(str(error), location)}",
            f"check the URI and the credentials of {scheme}://",
        ) from None
    return filesystem, path


def _with_bounded_retries(location: str) -> str:
    """The location as Arrow takes it; in Google's store with a limit of Arrow's repetitions."""
    location = with_plain_endpoint(location)
    found = object_location(location)
    if found is None or found.scheme not in ("gs", "gcs") or "retry_limit_seconds=" in location:
        return location
    return f"{location}{'&' if '?' in location else '?'}retry_limit_seconds={_GOOGLE_RETRY_SECONDS}"
