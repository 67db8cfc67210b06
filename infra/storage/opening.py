"""Open the filesystem of a location."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from infra.errors import StorageError
from infra.storage.locations import object_location, object_path, public_location, without_secrets
from infra.storage.objects.azure import azure_filesystem


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
        filesystem, path = pafs.FileSystem.from_uri(location)
    except (pa.ArrowException, OSError, ValueError) as error:
        # Not `from error`: its text may hold the credentials of the URI.
        scheme = location.partition("://")[0]
        raise StorageError(
            f"cannot open storage {public_location(location)}: {without_secrets(str(error), location)}",
            f"check the URI and the credentials of {scheme}://",
        ) from None
    return filesystem, path
