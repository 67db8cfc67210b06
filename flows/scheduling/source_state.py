"""Detect whether a source has changed, by the names, sizes and times of its files."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import PurePosixPath

from infra.digests import digest_of
from infra.errors import EnvironmentFault, UsageError
from infra.storage.filesystem import FileEntry, Storage

_STORES = ("s3", "gs", "gcs", "az", "abfs", "abfss", "file")


def files_of(source: str) -> dict[str, FileEntry] | None:
    """The files of a source by their paths; None if they cannot be listed.

    Args:
        source: a folder, a file, or a pattern of files; a path or a URI.
    """
    scheme, marked, _ = source.partition("://")
    if marked and scheme not in _STORES:
        return None
    folder, pattern = source, None
    name = PurePosixPath(source.partition("?")[0] if marked else source).name
    if not marked and any(mark in name for mark in "*?["):
        folder, pattern = source.rpartition("/")[0] or "/", name
    try:
        storage = Storage.at(folder)
        path = storage.local_path()
        if path is not None and path.is_file():
            storage, pattern = Storage.at(path.parent), path.name
        entries = storage.list_files(recursive=pattern is None)
    except (OSError, EnvironmentFault, UsageError):
        return None
    return {entry.path: entry for entry in entries if pattern is None or fnmatch(entry.path, pattern)}


def mark_of(files: dict[str, FileEntry] | None) -> str:
    """A digest that changes when a file is added, removed or changed; empty if the files are not known."""
    if files is None:
        return ""
    return digest_of([[entry.path, entry.size_bytes, entry.mtime_ns] for _, entry in sorted(files.items())])
