"""A folder of files: walked in the order of URIs, and read one whole file at a time.

Local folders are walked by the operating system's own calls, since names there are bytes and links may turn
in circles; anything else is listed through ``infra.storage``.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from beam_jobs.places import is_within, place_of
from beam_jobs.sources.ignore import IgnorePatterns
from infra.errors import NotFoundError, StorageError, UnusableInput
from infra.locations import absolute_path
from infra.names import name_of, uri_of
from infra.storage import Storage

MAX_SOURCE_BYTES = 1 << 31  # the most that image.max_bytes can allow

# Of the reasons for which a file cannot be read: those that may be over another time, the listing unchanged.
PASSING_REASONS = ("unreadable", "vanished", "changed")

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # our own machine's doing, not the file's


class SourceFault(UnusableInput):
    """One file cannot be read. Becomes a quarantine row.

    Attributes:
        reason: "vanished", "changed", "unreadable", "broken_link" or "too_large".
        message: what is wrong, for a person; the same whenever it happens.
    """


@dataclass(frozen=True, slots=True)
class FoundFile:
    """One regular file (or a link that should lead to one).

    Attributes:
        uri: relative to the source.
        size_bytes, mtime_ns: of the file; 0 where it could not be looked at.
        ignored_by: the pattern that names it or a folder above it, or None.
        fault: why it could not be looked at, or None.
    """

    uri: str
    size_bytes: int
    mtime_ns: int
    ignored_by: str | None = None
    fault: SourceFault | None = None


class SourceFolder:
    """The files below a local path or a URI. Cheap to make; picklable for reading.

    Args:
        location: a path as ``infra.names.uri_of`` gives it, or a URI.
        left_out: places (beam_jobs.places) of folders within it that are no part of it.
        max_bytes: of a file that is read: a film beside the photographs would fill the memory.
    """

    def __init__(
        self, location: str, left_out: Sequence[str] = (), max_bytes: int = MAX_SOURCE_BYTES
    ) -> None:
        self.left_out = tuple(left_out)
        self.max_bytes = max_bytes
        self.is_local = "://" not in location
        self._root = absolute_path(name_of(location)) if self.is_local else location
        # Text that JSON and Arrow can hold, whatever the bytes of the path.
        self.uri = uri_of(self._root) if self.is_local else location.rstrip("/")
        self._storage = None if self.is_local else Storage.at(location)

    def __reduce__(self) -> tuple[type[SourceFolder], tuple[str, tuple[str, ...], int]]:
        return SourceFolder, (self.uri, (), self.max_bytes)

    def files(self, ignore: IgnorePatterns) -> Iterator[FoundFile]:
        """Every file below, sorted by URI, the ignored ones too.

        Raises:
            NotFoundError: there is no such folder. StorageError: a folder cannot be listed.
        """
        if self._storage is not None:
            return self._remote_files(self._storage, ignore)
        if (fault := _why_no_folder(self._root)) is not None:
            raise NotFoundError(
                f"source {self.uri} is {fault}", "give the folder that holds the class folders"
            )
        return self._local_files(ignore)

    def _local_files(self, ignore: IgnorePatterns) -> Iterator[FoundFile]:
        closed = frozenset(_identity(Path(place).stat()) for place in self.left_out if Path(place).exists())
        # A stack of our own: folders may lie deeper within each other than Python recurses.
        stack = [_entries_of(_Folder(self._root, "", None, closed), ignore)]
        while stack:
            found = next(stack[-1], None)
            if found is None:
                stack.pop()
            elif isinstance(found, _Folder):
                stack.append(_entries_of(found, ignore))
            else:
                yield found

    def _remote_files(self, storage: Storage, ignore: IgnorePatterns) -> Iterator[FoundFile]:
        within = place_of(self.uri).rstrip("/")
        entries = [
            (uri_of(entry.path), entry)
            for entry in storage.list_files()
            if not any(is_within(f"{within}/{entry.path}", place) for place in self.left_out)
        ]
        for uri, entry in sorted(entries, key=lambda pair: pair[0]):
            yield FoundFile(uri, entry.size_bytes, entry.mtime_ns, _ignored_on_the_way(uri, ignore))

    def read(self, uri: str, size_bytes: int, mtime_ns: int) -> bytes:
        """The whole file, if it still is what was listed.

        Raises:
            SourceFault: it is gone, changed, unreadable or too large. StorageError: this machine is at fault.
        """
        if size_bytes > self.max_bytes:
            raise SourceFault(
                "too_large", f"{size_bytes:,} bytes, at most {self.max_bytes:,} are allowed: not read"
            )
        try:
            if self._storage is None:
                data, unchanged = _read_local(f"{self._root}/{name_of(uri)}", size_bytes, mtime_ns)
            else:
                data = self._storage.read_bytes(name_of(uri))
                unchanged = len(data) == size_bytes
        except (FileNotFoundError, NotFoundError) as error:
            raise SourceFault("vanished", "it was listed, but gone when it was to be read") from error
        except OSError as error:
            if error.errno in _EXHAUSTED:
                raise StorageError(f"cannot read {uri}: {error.strerror}") from error
            raise SourceFault("unreadable", f"cannot be read: {error.strerror}") from error
        if not unchanged:
            raise SourceFault("changed", "its size or time of change is no longer what was listed")
        return data


def _why_no_folder(path: str) -> str | None:
    try:
        is_folder = stat.S_ISDIR(Path(path).stat().st_mode)
    except FileNotFoundError:
        return "not there"
    except OSError as error:
        return f"not to be entered: {error.strerror}"
    return None if is_folder else "a file, not a folder"


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder to walk.

    Attributes:
        path: on this machine.
        prefix: of the URIs of what it holds.
        ignored_by: the pattern that names it or a folder above it, or None.
        closed: identities of the folders that are not to be entered: those above it, and those left out.
    """

    path: str
    prefix: str
    ignored_by: str | None
    closed: frozenset[tuple[int, int]]


def _entries_of(folder: _Folder, ignore: IgnorePatterns) -> Iterator[FoundFile | _Folder]:
    """The files and folders directly in a folder."""
    try:
        identity = _identity(Path(folder.path).stat())
        with os.scandir(folder.path) as scan:
            entries = list(scan)
    except OSError as error:
        if folder.ignored_by is not None:
            return
        raise StorageError(
            f"cannot list the folder {uri_of(folder.path)}: {error.strerror}",
            "make it readable, or name it in filter.ignore",
        ) from error
    if identity in folder.closed:
        return  # left out, or a link back to a folder that we are in
    closed = folder.closed | {identity}
    # With "/" behind the names of folders, the order within each folder is that of whole URIs.
    for key, name, entry in sorted(_sort_keys(entries)):
        uri = folder.prefix + name
        by = folder.ignored_by or ignore.match(name, uri)
        if key.endswith("/"):
            yield _Folder(entry.path, f"{uri}/", by, closed)
        elif (file := _look_at(entry, uri, by)) is not None:
            yield file


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _sort_keys(entries: list[os.DirEntry[str]]) -> Iterator[tuple[str, str, os.DirEntry[str]]]:
    for entry in entries:
        name = uri_of(entry.name)
        try:
            is_folder = entry.is_dir()
        except OSError:  # a link to itself, say: looked at as a file, where its fault becomes a row
            is_folder = False
        yield (f"{name}/" if is_folder else name), name, entry


def _look_at(entry: os.DirEntry[str], uri: str, ignored_by: str | None) -> FoundFile | None:
    """The file behind an entry; None for what is no file (a socket, a device)."""
    try:
        found = entry.stat()
    except FileNotFoundError:
        if not entry.is_symlink():
            return None  # gone since the folder was listed: as if it never had been
        fault = SourceFault("broken_link", "a link to something that is not there")
        return FoundFile(uri, 0, 0, ignored_by, fault)
    except OSError as error:
        return FoundFile(
            uri, 0, 0, ignored_by, SourceFault("unreadable", f"cannot be read: {error.strerror}")
        )
    if not stat.S_ISREG(found.st_mode):
        return None
    return FoundFile(uri, found.st_size, found.st_mtime_ns, ignored_by)


def _ignored_on_the_way(uri: str, ignore: IgnorePatterns) -> str | None:
    """The pattern that names the file or one of the folders above it."""
    at = -1
    while (at := uri.find("/", at + 1)) >= 0:
        folder = uri[:at]
        if (by := ignore.match(folder.rpartition("/")[2], folder)) is not None:
            return by
    return ignore.match(uri.rpartition("/")[2], uri)


def _read_local(path: str, size_bytes: int, mtime_ns: int) -> tuple[bytes, bool]:
    """(content, whether it is what was listed). Looked at after reading, so a change meanwhile shows too."""
    # Without O_NONBLOCK a pipe that took the file's place would be waited for.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        data = os.read(descriptor, size_bytes + 1)
        while 0 < len(data) < size_bytes and (more := os.read(descriptor, size_bytes + 1 - len(data))):
            data += more
        found = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    unchanged = (found.st_size, found.st_mtime_ns, len(data)) == (size_bytes, mtime_ns, size_bytes)
    return data, unchanged and stat.S_ISREG(found.st_mode)
