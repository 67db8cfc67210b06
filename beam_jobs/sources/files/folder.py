"""A source folder, local or remote: lists its files, and reads one whole file at a time."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from shardmill.beam_jobs.reasons import BAD_NAME, CHANGED, TOO_LARGE
from shardmill.beam_jobs.schemas import FileRef
from shardmill.beam_jobs.sources.files.chosen_files import ChosenFiles, found_object
from shardmill.beam_jobs.sources.files.container import Container, LocalRanges, faults_of
from shardmill.beam_jobs.sources.files.walking import FoundFile, IgnorePatterns, LocalWalk, SourceFault
from shardmill.infra.arguments import checked
from shardmill.infra.errors import NotFoundError, UsageError
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.locations import (
    absolute_path,
    below,
    default_runs,
    fault_of_key,
    name_of,
    public_location,
    uri_of,
)
from shardmill.infra.storage.objects.hub import without_revision

MAX_SOURCE_BYTES = 1 << 31  # the most that image.max_bytes can allow


class Walk(Protocol):
    """The files of a source, listed by iterating."""

    def __iter__(self) -> Iterator[FoundFile]:
        """The files, sorted by URI, the ignored ones too."""

    def warnings(self) -> list[str]:
        """Return warnings about the listing; complete once it has ended."""


@checked
class SourceFolder:
    """The files below a local path or a URI. Cheap to make; picklable for reading.

    Attributes:
        location: opens the same folder. It may hold credentials, so it is never shown or stored.
        uri: the place, for people and for comparison.
        uri_as_read: the same, with the commit that is read where the source is on the Hub.

    Args:
        location: a path as ``shardmill.infra.storage.locations.uri_of`` gives it, or a URI.
        left_out: places (shardmill.beam_jobs.sources.files.folder) of folders within it that are no part of
            it.
        max_bytes: longest file that is read: a film beside the photographs would fill the memory.
        only: path or pattern of the files that are listed, as ``source.files``; None for all.
    """

    def __init__(
        self,
        location: str,
        left_out: Sequence[str] = (),
        max_bytes: int = MAX_SOURCE_BYTES,
        only: str | None = None,
    ) -> None:
        self.only = only
        self.left_out = tuple(left_out)
        self.max_bytes = max_bytes
        self.is_local = "://" not in location
        self._root = absolute_path(name_of(location)) if self.is_local else location
        # Text that JSON and Arrow can hold, whatever the bytes of the path.
        self.location = uri_of(self._root) if self.is_local else location.rstrip("/")
        self.uri_as_read = public_location(self.location)
        self.uri = without_revision(self.uri_as_read)
        self._storage = None if self.is_local else Storage.at(location)

    def __reduce__(self) -> tuple[type[SourceFolder], tuple[str, tuple[str, ...], int]]:
        return SourceFolder, (self.location, (), self.max_bytes)

    def walk(self, ignore: IgnorePatterns, *, splits_on_top: bool = True) -> Walk:
        """Prepare to list every file below, the ignored ones too.

        Args:
            ignore: the patterns of ``filter.ignore``.
            splits_on_top: whether top folders with the name of a split hold class folders.

        Raises:
            NotFoundError: there is no such folder.
        """
        if self.only is not None:
            return ChosenFiles(self._root, self._storage, self.only, ignore)
        if self._storage is not None:
            return _RemoteWalk(self, self._storage, ignore)
        if (fault := _why_no_folder(self._root)) is not None:
            raise NotFoundError(
                f"source {self.uri} is {fault}", "give the folder that holds the class folders"
            )
        return LocalWalk(self._root, ignore, self.left_out, splits_on_top=splits_on_top)

    def names(self, prefix: str) -> tuple[list[str], list[str]]:
        """Return the names of the files and of the folders directly in a folder, as URIs, sorted.

        Args:
            prefix: URI of the folder with a slash, or "" for the top folder.

        Raises:
            NotFoundError: there is no such top folder.
        """
        if self._storage is not None:
            files = self._storage.list_files(name_of(prefix.rstrip("/")), recursive=False)
            folders = self._storage.list_folders(name_of(prefix.rstrip("/")))
            files = [file for file in files if fault_of_key(file.path) is None]
            folders = [folder for folder in folders if fault_of_key(folder) is None]
            return [uri_of(file.path.rpartition("/")[2]) for file in files], sorted(map(uri_of, folders))
        if not prefix and (fault := _why_no_folder(self._root)) is not None:
            raise NotFoundError(
                f"source {self.uri} is {fault}", "give a folder, a file or a pattern in quotes"
            )
        found: tuple[list[str], list[str]] = [], []
        with contextlib.suppress(OSError), os.scandir(f"{self._root}/{name_of(prefix)}") as entries:
            for entry in entries:
                found[entry.is_dir()].append(uri_of(entry.name))
        return sorted(found[0]), sorted(found[1])

    def read(self, file: FileRef) -> bytes:
        """Read a whole file, if it has not changed since it was listed.

        Raises:
            SourceFault: it is gone, changed, unreadable or too large. StorageError: this machine is at fault.
        """
        self.check_length(file.size_bytes)
        with faults_of(file.uri):
            if self._storage is None:
                data, unchanged = _read_local(f"{self._root}/{name_of(file.uri)}", file)
            else:
                data = self._storage.read_bytes(name_of(file.uri))
                unchanged = len(data) == file.size_bytes
        if not unchanged:
            raise SourceFault(CHANGED, "its size or time of change is no longer what was listed")
        return data

    def check_length(self, size_bytes: int) -> None:
        """Check that an image is not longer than ``image.max_bytes``.

        Raises:
            SourceFault: it is.
        """
        if size_bytes > self.max_bytes:
            raise SourceFault(
                TOO_LARGE, f"{size_bytes:,} bytes, at most {self.max_bytes:,} are allowed: not read"
            )

    def local_path(self, uri: str) -> str | None:
        """Return the path of a file of the source on this machine; None if the source is elsewhere."""
        return f"{self._root}/{name_of(uri)}" if self._storage is None else None

    def open_container(self, uri: str) -> Container:
        """Open a file of the source that holds many images, to read parts of it.

        Args:
            uri: relative to the source.

        Raises:
            SourceFault: it is gone or unreadable. StorageError: this machine is at fault.
        """
        with faults_of(uri):
            if self._storage is None:
                return Container(uri, LocalRanges(f"{self._root}/{name_of(uri)}"))
            return Container(uri, _RemoteRanges(self._storage, name_of(uri)))


class _RemoteRanges:
    """An open object."""

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage, self._path = storage, path
        self._entry = storage.entry(path)
        self._object = storage.open_object(path)
        self.size_bytes = self._entry.size_bytes

    def read_at(self, length: int, offset: int) -> bytes:
        with self._storage.reading(self._path):
            return self._object.read_at(length, offset)

    def mtime_ns(self) -> int:
        return self._entry.mtime_ns  # when it was opened: a request for each image would take too long

    def close(self) -> None:
        self._object.close()


class _RemoteWalk:
    """The files below a URI, sorted."""

    def __init__(self, source: SourceFolder, storage: Storage, ignore: IgnorePatterns) -> None:
        self._within = place_of(source.location).rstrip("/")
        self._left_out = source.left_out
        self._storage = storage
        self._ignore = ignore

    def __iter__(self) -> Iterator[FoundFile]:
        files = (
            found_object(entry)
            for entry in self._storage.list_files()
            if not any(_is_within(f"{self._within}/{entry.path}", place) for place in self._left_out)
        )
        for file in self._told_apart(sorted(files, key=lambda file: file.uri)):
            yield FoundFile(file.ref, self._ignore.match_path(file.uri), file.fault)

    def _told_apart(self, files: list[FoundFile]) -> list[FoundFile]:
        """Return the files, sorted by URI, with a URI for each.

        A key that ends or begins in a slash is listed without it, as if it were that of another object.
        """
        same = {before.uri for before, file in pairwise(files) if before.uri == file.uri}
        if not same:
            return files
        found = [file for file in files if file.uri not in same]
        for uri in same:
            size_bytes = -1
            with contextlib.suppress(NotFoundError):
                size_bytes = self._storage.entry(name_of(uri)).size_bytes
            named = [file.ref for file in files if file.uri == uri]
            named.sort(key=lambda ref: ref.size_bytes != size_bytes)
            words = "its key begins or ends in a slash, which is not opened: copy the object to another key"
            fault = SourceFault(BAD_NAME, words)
            found += [
                FoundFile(ref._replace(uri=uri + "/" * number), None, fault if number else None)
                for number, ref in enumerate(named)
            ]
        return sorted(found, key=lambda file: file.uri)

    def warnings(self) -> list[str]:
        return []


def _why_no_folder(path: str) -> str | None:
    try:
        is_folder = stat.S_ISDIR(Path(path).stat().st_mode)
    except FileNotFoundError:
        return "not there"
    except OSError as error:
        return f"not to be entered: {error.strerror}"
    return None if is_folder else "a file, not a folder"


def _read_local(path: str, file: FileRef) -> tuple[bytes, bool]:
    """Return (content, whether size and time of change, looked up after reading, are as listed)."""
    # Without O_NONBLOCK this would wait for the writer of a pipe that took the file's place.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        longest = file.size_bytes + 1
        data = os.read(descriptor, longest)
        while 0 < len(data) < file.size_bytes and (more := os.read(descriptor, longest - len(data))):
            data += more
        found = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    listed = (file.size_bytes, file.mtime_ns, file.size_bytes)
    unchanged = (found.st_size, found.st_mtime_ns, len(data)) == listed
    return data, unchanged and stat.S_ISREG(found.st_mode)


def place_of(location: str) -> str:
    """Return the real path of a local folder, or the URI of any other."""
    storage = Storage.at(location)
    local = storage.local_path()
    return str(local.resolve()) if local is not None else storage.uri


def _is_within(place: str, folder: str) -> bool:
    """Return whether a place is a folder or lies below it."""
    return place == folder or place.startswith(f"{folder.rstrip('/')}/")


def folders_of_ours(source: str, root: str, dataset: str) -> list[str]:
    """Find the folders within a source that Shardmill writes: datasets and training runs.

    Args:
        source: place of the source.
        root: folder of the datasets, as the user gave it.
        dataset: name of the dataset that the source becomes.

    Raises:
        UsageError: the source is the folder of the datasets, or lies where the dataset is written; or it is
            a dataset or a training run.
    """
    datasets, own = place_of(root), place_of(below(root, dataset))
    if _is_within(source, own):
        raise UsageError(
            f"the source {uri_of(source)} is in the folder of the dataset {dataset} ({own})",
            "give another --root: Shardmill writes there, and never into a source",
        )
    if source == datasets:
        raise UsageError(
            f"the source {uri_of(source)} is the folder of the datasets itself",
            "give another --root: a folder beside the source, or a new one within it",
        )
    if any(Path(source).glob("manifests/[0-9]*.json")):
        raise UsageError(
            f"the source {source} is a dataset of Shardmill, no folder of images",
            f"train on it: shardmill train {Path(source).name} --root {Path(source).parent}",
        )
    if (Path(source) / "run.json").is_file():
        raise UsageError(f"the source {source} is a training run, no folder of images", "give such a folder")
    found = [folder for folder in dict.fromkeys((datasets, own)) if _is_within(folder, source)]
    runs = place_of(default_runs())
    if _is_within(runs, source) and any(Path(runs).glob("*/run.json")):
        found.append(runs)
    return found
