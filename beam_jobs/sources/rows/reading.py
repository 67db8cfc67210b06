"""Reads rows of row files: the images of a block mostly lie in one file, which stays open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from shardmill.beam_jobs.reasons import BROKEN_CONTAINER, UNREADABLE
from shardmill.beam_jobs.schemas import FileRef
from shardmill.beam_jobs.sources.files.container import faults_of
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.rows.listing import row_of
from shardmill.beam_jobs.sources.rows.row_files import RowFile, RowFileBroken
from shardmill.infra.errors import StorageError


class Rows(Protocol):
    """The rows of one open row file."""

    def read(self, file: FileRef, position: int) -> bytes:
        """Return the image at a position, as the kind listed it.

        Raises:
            SourceFault: there is none. RowFileBroken: the file is damaged there.
        """

    def close(self) -> None:
        """Close the file."""


class RowReader:
    """Reads the rows of one row file after the other. Cheap to make; picklable.

    Args:
        folder: the source.
        open_rows: opens a row file of the kind; can be pickled.
        by_number: positions are the numbers of rows, so that a row is found by its URI alone.
    """

    def __init__(
        self, folder: SourceFolder, open_rows: Callable[[RowFile], Rows], by_number: bool = True
    ) -> None:
        self._made_of = (folder, open_rows, by_number)
        self._folder = folder
        self._open_rows = open_rows
        self._by_number = by_number
        self._current: RowFile | None = None
        self._rows: Rows | None = None

    def __reduce__(self) -> tuple[type[RowReader], tuple[SourceFolder, Callable[[RowFile], Rows], bool]]:
        return RowReader, self._made_of

    def read(self, file: FileRef) -> bytes:
        """Read the image of a row, if its file has not changed since it was listed.

        Raises:
            SourceFault: it is gone, changed, unreadable or too large. StorageError: this machine is at fault.
        """
        self._folder.check_length(file.size_bytes)
        container, position = file.container, file.position
        if container is None or position is None:
            row = row_of(file.uri)
            if row is None or not self._by_number:
                raise SourceFault(UNREADABLE, "an image is not found in its file by the URI alone")
            container, _, position = row
        try:
            with faults_of(file.uri):
                data = self._opened(RowFile(self._folder, container, file.mtime_ns)).read(file, position)
        except RowFileBroken as error:
            raise SourceFault(BROKEN_CONTAINER, f"its file is damaged there: {error}") from error
        except pa.ArrowException as error:  # also if a lying page asks for more memory than there is
            raise SourceFault(BROKEN_CONTAINER, f"its file is damaged there: {error}") from error
        except MemoryError as error:
            raise StorageError(f"cannot read {file.uri}: {error}") from error
        self._folder.check_length(len(data))
        return data

    def _opened(self, file: RowFile) -> Rows:
        """Open a row file, unless it is open already.

        Raises:
            SourceFault: it has changed or is gone. RowFileBroken: it cannot be read.
        """
        if self._rows is not None and self._current == file:
            return self._rows
        if self._rows is not None:
            self._rows.close()
            self._rows = None
        with file.open() as container:
            if file.mtime_ns:
                container.check_unchanged(file.mtime_ns)
        self._rows, self._current = self._open_rows(file), file
        return self._rows
