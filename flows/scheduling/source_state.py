"""Detect whether a source has changed, and when to take up the new files of an inbox.

A source is compared by the names, sizes and times of its files. New files are taken up in batches, once they
no longer change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import PurePosixPath

from shardmill.infra.digests import digest_of
from shardmill.infra.errors import EnvironmentFault, UsageError
from shardmill.infra.storage.filesystem import FileEntry, Storage

_STORES = ("s3", "gs", "gcs", "az", "abfs", "abfss", "hf", "file")


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
    """Return the folder to list and the pattern of file names in it; None if the source cannot be listed."""
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


_State = tuple[int, int]  # size (bytes) and time of change (ns)


@dataclass(frozen=True, slots=True)
class Batching:
    """The conditions for taking up a batch.

    Attributes:
        settle_seconds: a file is taken when its size and time have not changed for so long.
        files: a batch is taken up when it has so many files,
        within_seconds: or when its first file has waited so long.
    """

    settle_seconds: float = 10.0
    files: int = 100
    within_seconds: float = 60.0


class Arrivals:
    """The new files of one inbox that no run has taken up yet.

    After a start, all files count as new, so that none that arrived meanwhile is missed. A run that finds
    nothing new ends in seconds.
    """

    def __init__(self, batching: Batching) -> None:
        self._batching = batching
        self._taken: dict[str, _State] = {}
        self._before: dict[str, _State] = {}
        self._seen: dict[str, tuple[_State, float]] = {}

    def observe(self, files: Mapping[str, FileEntry], now: float) -> int:
        """Look at a listing of the inbox.

        Args:
            files: the files that are in the inbox now.
            now: when it was listed (seconds of a clock that never goes back).

        Returns:
            The number of files of the batch that is due now; 0 if none is. They count as taken up from then.
        """
        states = {path: (entry.size_bytes, entry.mtime_ns) for path, entry in files.items()}
        self._seen = {
            path: self._seen[path] if path in self._seen and self._seen[path][0] == state else (state, now)
            for path, state in states.items()
            if self._taken.get(path) != state
        }
        settled = {
            path: since
            for path, (_, since) in self._seen.items()
            if now - since >= self._batching.settle_seconds
        }
        if not settled:
            return 0
        waited = now - min(settled.values())
        if len(settled) < self._batching.files and waited < self._batching.within_seconds:
            return 0
        self._before = dict(self._taken)
        self._taken |= {path: states[path] for path in settled}
        self._taken = {path: state for path, state in self._taken.items() if path in states}
        return len(settled)

    def give_back(self) -> None:
        """Count the last batch as not taken up, because its run failed."""
        self._taken = dict(self._before)
