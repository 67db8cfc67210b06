"""The annotation files that the settings name, and reading many small ones of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from shardmill.beam_jobs.config import AnnotationFile, ObjectsConfig
from shardmill.beam_jobs.schemas import FileRef
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.kinds.table.tables import Table, find_files_named
from shardmill.infra.errors import NotFoundError, ObjectRefused, StorageError

SETTING = "source.objects.annotations"
MOST_BYTES = 16 << 20  # largest file that describes one image

_READ_TOGETHER = 16  # files; of an object store most of the time is waiting
_AT_A_TIME = 1024  # files that are in memory

T = TypeVar("T")


@dataclass(frozen=True)
class AnnotationTable:
    """One annotation file.

    Attributes:
        table: the file.
        part: what the settings say of it.
    """

    table: Table
    part: AnnotationFile

    @property
    def name(self) -> str:
        """The file, for people."""
        return self.table.name

    def read(self) -> bytes:
        """Read the whole file."""
        return self.table.folder.read_bytes(self.table.path)

    def content(self) -> bytes | str:
        """Return the whole file, or why it cannot be read.

        Raises:
            StorageError: the store or the network is at fault, not the file.
        """
        try:
            return self.read()
        except (NotFoundError, StorageError) as error:
            if isinstance(error, NotFoundError | ObjectRefused) or self.table.folder.is_local:
                return error.message
            raise

    def row_uri(self, number: int) -> str:
        """Return the URI of the annotation of an image, counted from 1."""
        return f"{self.name}#image={number}"

    def path_of(self, name: str) -> str:
        """Return the path of an image of this name, relative to the source."""
        return "/".join(part for part in f"{self.part.images}/{name}".split("/") if part not in ("", "."))


def find_annotations(folder: SourceFolder, settings: ObjectsConfig) -> list[AnnotationTable]:
    """Find the annotation files that the settings name, in their order.

    Raises:
        NotFoundError: one of them is not there. ConfigError: a path is wrong.
    """
    return [
        AnnotationTable(table, part)
        for part in settings.annotations
        for table in find_files_named(folder, part.file, f"{SETTING}.file")
    ]


def read_together(read: Callable[[T], bytes | str], files: Sequence[T]) -> Iterator[tuple[T, bytes | str]]:
    """Yield each of many small files with its content, or why it cannot be read, in order.

    Args:
        read: reads one of them, as ``AnnotationTable.content``.
        files: to read, several at a time.
    """
    with ThreadPoolExecutor(_READ_TOGETHER, "annotations") as threads:
        for start in range(0, len(files), _AT_A_TIME):
            some = files[start : start + _AT_A_TIME]
            yield from zip(some, threads.map(read, some), strict=True)


def content_of(folder: SourceFolder, file: FileRef) -> bytes | str:
    """Return the content of a small file of the source, or why it cannot be read.

    Raises:
        StorageError: this machine or the store is at fault, not the file.
    """
    if file.size_bytes > MOST_BYTES:
        return f"{file.uri} has {file.size_bytes:,} bytes, at most {MOST_BYTES:,} are read"
    try:
        return folder.read(file)
    except SourceFault as fault:
        return f"{file.uri}: {fault.message}"
