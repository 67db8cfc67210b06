"""A walk through a local folder, in the order of URIs.

The walk uses the operating system's own calls, since names are bytes and symbolic links may lead in circles.
Nothing that it meets ends it: what cannot be listed or looked at becomes a row with a reason.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from shardmill.beam_jobs.reasons import BROKEN_LINK, PATH_TOO_LONG, SPECIAL_FILE, UNLISTED_FOLDER, UNREADABLE
from shardmill.beam_jobs.schemas import FileRef
from shardmill.infra.arguments import checked
from shardmill.infra.errors import StorageError, UnusableInput
from shardmill.infra.storage.locations import uri_of


class IgnorePatterns:
    """Finds the pattern that matches a file or folder.

    A pattern without ``/`` is matched against the last name of a path, one with ``/`` against the whole path
    relative to the source, where ``*`` also matches ``/``. The caller ignores all files in ignored folders.
    """

    @checked
    def __init__(self, patterns: Sequence[str]) -> None:
        self._of_names = [pattern for pattern in patterns if "/" not in pattern]
        self._of_paths = [pattern.strip("/") for pattern in patterns if "/" in pattern]
        self._names = _alternatives(self._of_names)
        self._paths = _alternatives(self._of_paths)

    def match(self, name: str, uri: str) -> str | None:
        """Return the first pattern that matches the entry ``name`` at ``uri``, or None."""
        is_name = name not in (".", "..")  # a part of an object's key, no hidden file
        if self._names is not None and is_name and (found := self._names.match(name)):
            return self._of_names[(found.lastindex or 1) - 1]
        if self._paths is not None and (found := self._paths.match(uri)):
            return self._of_paths[(found.lastindex or 1) - 1]
        return None

    def match_path(self, uri: str) -> str | None:
        """Return the pattern that matches the file or one of the folders above it, or None."""
        at = -1
        while (at := uri.find("/", at + 1)) >= 0:
            folder = uri[:at]
            if (by := self.match(folder.rpartition("/")[2], folder)) is not None:
                return by
        return self.match(uri.rpartition("/")[2], uri)


def _alternatives(patterns: Sequence[str]) -> re.Pattern[str] | None:
    """Join patterns to one expression with a group each, so that 20 patterns cost one call."""
    if not patterns:
        return None
    return re.compile("|".join(f"({fnmatch.translate(pattern)})" for pattern in patterns), re.IGNORECASE)


# Names of the top folders that hold a split, in lower case, and the split.
SPLIT_OF_FOLDER = {
    "train": "train", "training": "train",
    "validation": "validation", "val": "validation", "valid": "validation", "dev": "validation",
    "eval": "validation",
    "test": "test", "testing": "test",
}  # fmt: skip

_Identity = tuple[int, int]  # device and inode


class SourceFault(UnusableInput):
    """One file or folder of a source cannot be used. It becomes a row with the reason.

    Attributes:
        reason: of shardmill.beam_jobs.reasons.
        message: the fault, for a person; the same whenever it happens.
    """


class FoundFile(NamedTuple):
    """A file of a source, or a folder or special file that cannot be read as one.

    Attributes:
        ref: the file. The URI of a folder that cannot be listed ends in a slash. Size and time of change are
            0 if they cannot be read.
        ignored_by: the pattern that matches it or a folder above it, or None.
        fault: why it cannot be read, or None.
    """

    ref: FileRef
    ignored_by: str | None = None
    fault: SourceFault | None = None

    @property
    def uri(self) -> str:
        """The URI of the file, relative to the source."""
        return self.ref.uri


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder that the walk will enter.

    Attributes:
        path: on this machine.
        prefix: what the URIs in it begin with: "" or the folder's URI with a slash.
        ignored_by: the pattern that matches it or a folder above it, or None.
        above: identities of the folders above it, and of those that the walk must not enter.
        entered: URIs of the folders entered so far in the same class folder, by identity.
    """

    path: str
    prefix: str
    ignored_by: str | None
    above: frozenset[_Identity]
    entered: dict[_Identity, str]


class LocalWalk:
    """The files below a local folder, sorted by URI.

    Symbolic links are followed, but each real folder is entered only once below each class folder. Otherwise
    links between the class folders would multiply the files without bound.

    Args:
        root: path of the folder.
        ignore: the patterns of ``filter.ignore``.
        closed: paths of folders that the walk must not enter.
        splits_on_top: whether top folders with the name of a split hold class folders.

    Attributes:
        repeated: (URI of a link, URI under which its folder was listed before), of the links not followed.
    """

    def __init__(
        self, root: str, ignore: IgnorePatterns, closed: Sequence[str] = (), *, splits_on_top: bool = True
    ) -> None:
        self._root = root
        self._ignore = ignore
        self._closed = frozenset(_identity(Path(place).stat()) for place in closed if Path(place).exists())
        self._splits_on_top = splits_on_top
        self.repeated: list[tuple[str, str]] = []

    def __iter__(self) -> Iterator[FoundFile]:
        """The files.

        Raises:
            StorageError: the root itself cannot be listed.
        """
        # A stack of our own: folders may lie deeper within each other than Python recurses.
        stack = [self._entries(_Folder(self._root, "", None, self._closed, {}))]
        while stack:
            found = next(stack[-1], None)
            if found is None:
                stack.pop()
            elif isinstance(found, _Folder):
                stack.append(self._entries(found))
            else:
                yield found

    def warnings(self) -> list[str]:
        """Return warnings about folders that the walk left out; complete once it has ended."""
        if not self.repeated:
            return []
        link, folder = self.repeated[0]
        count = len(self.repeated)
        more = "" if count == 1 else f" (the first of {count:,} such folders)"
        return [f"{link!r} leads to the same folder as {folder!r}, so its files are listed only once{more}"]

    def _entries(self, folder: _Folder) -> Iterator[FoundFile | _Folder]:
        """The files and folders directly in a folder."""
        try:
            identity = _identity(Path(folder.path).stat())
            with os.scandir(folder.path) as scan:
                entries = list(scan)
        except OSError as error:
            yield self._unlisted(folder, error)
            return
        if identity in folder.above:
            return  # left out, or a link back to a folder above it
        if (before := folder.entered.setdefault(identity, folder.prefix)) != folder.prefix:
            self.repeated.append((folder.prefix.rstrip("/"), before.rstrip("/")))
            return
        above = folder.above | {identity}
        # With "/" behind the names of folders, files within each folder come in the order of their URIs.
        for key, name, entry in sorted(_sort_keys(entries)):
            uri = folder.prefix + name
            by = folder.ignored_by or self._ignore.match(name, uri)
            if key.endswith("/"):
                entered = {} if self._is_class_folder(uri) else folder.entered
                yield _Folder(entry.path, f"{uri}/", by, above, entered)
            elif (file := _look_at(entry, uri, by)) is not None:
                yield file

    def _is_class_folder(self, uri: str) -> bool:
        """Tell whether this is a top folder, or a folder in one that has the name of a split."""
        top, *below = uri.split("/")
        return not below or (len(below) == 1 and self._splits_on_top and top.lower() in SPLIT_OF_FOLDER)

    def _unlisted(self, folder: _Folder, error: OSError) -> FoundFile:
        """The row of a folder that cannot be listed."""
        if not folder.prefix:
            raise StorageError(
                f"cannot list the folder {uri_of(folder.path)}: {error.strerror}", "make it readable"
            ) from error
        reason = PATH_TOO_LONG if error.errno == errno.ENAMETOOLONG else UNLISTED_FOLDER
        fault = SourceFault(reason, f"the folder cannot be listed: {error.strerror}")
        return FoundFile(FileRef(folder.prefix, 0, 0), folder.ignored_by, fault)


def _identity(found: os.stat_result) -> _Identity:
    return found.st_dev, found.st_ino


def _sort_keys(entries: list[os.DirEntry[str]]) -> Iterator[tuple[str, str, os.DirEntry[str]]]:
    for entry in entries:
        name = uri_of(entry.name)
        try:
            is_folder = entry.is_dir()
        except OSError:  # for example a link to itself: looked at as a file, where its fault becomes a row
            is_folder = False
        yield (f"{name}/" if is_folder else name), name, entry


def _look_at(entry: os.DirEntry[str], uri: str, ignored_by: str | None) -> FoundFile | None:
    """Return the file behind an entry; None if it is gone."""
    try:
        found = entry.stat()
    except FileNotFoundError:
        if not entry.is_symlink():
            return None  # deleted since the folder was listed: no input
        fault = SourceFault(BROKEN_LINK, "a link to something that is not there")
    except OSError as error:
        reason = PATH_TOO_LONG if error.errno == errno.ENAMETOOLONG else UNREADABLE
        fault = SourceFault(reason, f"cannot be read: {error.strerror}")
    else:
        if stat.S_ISREG(found.st_mode):
            return FoundFile(FileRef(uri, found.st_size, found.st_mtime_ns), ignored_by)
        fault = SourceFault(SPECIAL_FILE, f"{_kind(found.st_mode)}, not a file")
    return FoundFile(FileRef(uri, 0, 0), ignored_by, fault)


def _kind(mode: int) -> str:
    """Return the kind of a special file, in words."""
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"
