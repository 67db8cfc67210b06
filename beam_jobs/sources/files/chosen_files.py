"""The files of a source that a path or a pattern names: ``photos.tar``, ``train-*.tar``, ``*/part-?.zip``.

``*`` and ``?`` match no slash. Other files of the folder are not looked at, and are no part of the source.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import stat
from collections.abc import Iterator

from shardmill.beam_jobs.reasons import BAD_NAME, SPECIAL_FILE, UNREADABLE
from shardmill.beam_jobs.schemas import FileRef
from shardmill.beam_jobs.sources.files.walking import FoundFile, IgnorePatterns, SourceFault
from shardmill.infra.errors import NotFoundError
from shardmill.infra.storage.filesystem import FileEntry, Storage
from shardmill.infra.storage.locations import fault_of_key, name_of, public_location, uri_of

_WILD = re.compile("[*?]")


def is_pattern(path: str) -> bool:
    """Tell whether a path is a pattern that may match many files."""
    return _WILD.search(path) is not None


class ChosenFiles:
    """The files that a pattern names, sorted by URI.

    Args:
        root: the folder: a path on this machine, or a URI.
        storage: storage of the folder; None on this machine.
        pattern: relative to the folder.
        ignore: the patterns of ``filter.ignore``. They do not apply to a file that is named by its path.
    """

    def __init__(self, root: str, storage: Storage | None, pattern: str, ignore: IgnorePatterns) -> None:
        self._root = root
        self._storage = storage
        self._pattern = pattern.removeprefix("./")
        self._ignore = ignore

    def __iter__(self) -> Iterator[FoundFile]:
        """The files.

        Raises:
            NotFoundError: there is none.
        """
        found = self._local() if self._storage is None else self._remote(self._storage)
        files = sorted(found, key=lambda file: file.uri)
        if not files:
            raise NotFoundError(
                f"no file in {public_location(uri_of(self._root))} matches {self._pattern!r}",
                "correct the path; * and ? match no slash",
            )
        for file in files:
            by = self._ignore.match_path(file.uri) if is_pattern(self._pattern) else None
            yield FoundFile(file.ref, by, file.fault)

    def warnings(self) -> list[str]:
        """Return no warnings."""
        return []

    def _local(self) -> Iterator[FoundFile]:
        name = name_of(self._pattern)
        names = [name]
        if is_pattern(name):
            names = glob.glob(name.replace("[", "[[]"), root_dir=self._root, include_hidden=True)  # noqa: PTH207
        for name in names:
            path, uri = os.path.join(self._root, name), uri_of(name)  # noqa: PTH118, names are not text
            try:
                found = os.stat(path)  # noqa: PTH116
            except FileNotFoundError:
                continue
            except OSError as error:
                fault = SourceFault(UNREADABLE, f"cannot be read: {error.strerror}")
                yield FoundFile(FileRef(uri, 0, 0), None, fault)
                continue
            if stat.S_ISREG(found.st_mode):
                yield FoundFile(FileRef(uri, found.st_size, found.st_mtime_ns))
            elif not stat.S_ISDIR(found.st_mode):
                yield FoundFile(FileRef(uri, 0, 0), None, SourceFault(SPECIAL_FILE, "not a file"))

    def _remote(self, storage: Storage) -> Iterator[FoundFile]:
        name = name_of(self._pattern)
        if not is_pattern(name):
            try:
                entry = storage.entry(name)
            except NotFoundError:
                return
            yield found_object(entry)
            return
        parts = name.split("/")
        fixed = next(number for number, part in enumerate(parts) if is_pattern(part))
        for entry in storage.list_files("/".join(parts[:fixed]), recursive=len(parts) > fixed + 1):
            found = entry.path.split("/")
            if len(found) == len(parts) and all(map(_matches, found, parts)):
                yield found_object(entry)


def found_object(entry: FileEntry) -> FoundFile:
    """Return an object of a store as a file of the source."""
    why = fault_of_key(entry.path)
    fault = None if why is None else SourceFault(BAD_NAME, why)
    return FoundFile(FileRef(uri_of(entry.path), entry.size_bytes, entry.mtime_ns), None, fault)


def _matches(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))
