"""Detect whether a source has changed, by the names, sizes and times of its files."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import PurePosixPath

from shardmill.infra.digests import digest_of
from shardmill.infra.errors import EnvironmentFault, UsageError
from shardmill.infra.storage.filesystem import FileEntry, Storage

_STORES = ("s3", "gs", "gcs", "az", "abfs", "abfss", "file")


def files_of(source: str) -> dict[str, FileEntry] | None:
    """The files of a source by their paths; None if they cannot be listed.

    Args:
        source: a folder, a file, or a pattern of files; a path or a URI.
    """
    try:
        place = _place_of(source)
        if place is None:
            return None
        storage, pattern = place
        entries = storage.list_files(recursive=pattern is None)
    except (OSError, EnvironmentFault, UsageError):
        return None
    return {entry.path: entry for entry in entries if pattern is None or fnmatch(entry.path, pattern)}


def probe(source: str, *, fully: bool) -> bool:
    """Tell whether a source has any file or folder.

    Args:
        source: as for ``files_of``.
        fully: whether to list all of it too, and not its top alone.

    Raises:
        OSError, EnvironmentFault, UsageError: it cannot be listed, or does not exist.
    """
    place = _place_of(source)
    if place is None:  # not in a place that can be listed
        return True
    storage, pattern = place
    folder = storage.local_path()
    if folder is not None:  # a folder that does not exist is an error here
        names = [path.name for path in folder.iterdir()]
        if fully and pattern is None:
            storage.list_files()
    else:
        names = [one.path for one in storage.list_files(recursive=fully and pattern is None)]
        names += storage.list_folders() if not names else []
    return any(pattern is None or fnmatch(name, pattern) for name in names)


def _place_of(source: str) -> tuple[Storage, str | None] | None:
    """The folder to list and a pattern of the names in it; None if the source is not in such a place."""
    scheme, marked, _ = source.partition("://")
    if marked and scheme not in _STORES:
        return None
    folder, pattern = source, None
    name = PurePosixPath(source.partition("?")[0] if marked else source).name
    if not marked and any(mark in name for mark in "*?["):
        folder, pattern = source.rpartition("/")[0] or "/", name
    storage = Storage.at(folder)
    path = storage.local_path()
    if path is not None and path.is_file():
        storage, pattern = Storage.at(path.parent), path.name
    return storage, pattern


def mark_of(files: dict[str, FileEntry] | None) -> str:
    """A digest that changes when a file is added, removed or changed; empty if the files are not known."""
    if files is None:
        return ""
    return digest_of([[entry.path, entry.size_bytes, entry.mtime_ns] for _, entry in sorted(files.items())])
