"""Row files: the files of a source that a kind reads, and what each of them holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.beam_jobs.sources.files.container import Container, Ranges, Window
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import FoundFile
from shardmill.infra.errors import NotFoundError

Int64 = npt.NDArray[np.int64]


class RowFileBroken(Exception):
    """A row file cannot be read at all; its text says why."""


@dataclass(frozen=True)
class RowFile:
    """A file of the source whose rows are images.

    Attributes:
        folder: the source.
        uri: URI of the file, relative to the source.
        mtime_ns: time of its last change (nanoseconds since 1970); 0 if the source does not tell.
    """

    folder: SourceFolder
    uri: str
    mtime_ns: int

    def open(self) -> Container:
        """Open the file for reading at any place.

        Raises:
            SourceFault: it is gone or unreadable. StorageError: this machine is at fault.
        """
        return self.folder.open_container(self.uri)

    def ranges(self) -> Ranges:
        """Open the file for reading rows one after the other.

        Raises:
            SourceFault: it is gone or unreadable. StorageError: this machine is at fault.
        """
        container = self.open()
        return container if self.folder.is_local else Window(container)


@dataclass(frozen=True)
class FileRows:
    """The rows of a file, before labels and splits are understood.

    Attributes:
        file: the row file.
        positions: int64 [rows], place of each row for the reader of the kind.
        sizes: int64 [rows], length of each image (bytes); 0 if not known before it is read.
        labels: string [rows], the class as the file writes it; null if a row has none, and where the kind of
            labels is another.
        splits: string [rows], as the file writes them; None if the file has no such column.
        groups: string [rows]; None if the file has no such column.
        faults: string [rows], why a row cannot be used, null if it can; None if all can.
        names: number -> name of the classes, as the file itself gives them.
        damage: why the rows behind the last one cannot be read; None if there are no more.
        unit: what the URI of a row calls it.
        split: the split of all rows, if the kind knows it better than by the name of the file.
        label_values: the labels of kinds multi and targets that one column holds: a value or a list a row.
        label_name: name of that column.
        columns: name -> values or lists of values [rows] of the columns that ``asked_columns`` names.
        are_lists: these columns hold lists where a row has one value too.
    """

    file: RowFile
    positions: Int64
    sizes: Int64
    labels: pa.Array
    splits: pa.Array | None = None
    groups: pa.Array | None = None
    faults: pa.Array | None = None
    names: Mapping[int, str] = field(default_factory=dict)
    damage: str | None = None
    unit: str = "row"
    split: str | None = None
    label_values: pa.Array | None = None
    label_name: str = ""
    columns: Mapping[str, pa.Array] = field(default_factory=dict)
    are_lists: bool = False


def choose_files(
    folder: SourceFolder, files: Sequence[FoundFile], is_of_kind: Callable[[str], bool], what: str
) -> list[FoundFile]:
    """Return the files that a kind is to read, in order: of those that can be read, the ones of the kind.

    Where ``source.files`` names the files, all of them are meant, whatever their endings.

    Args:
        folder: the source.
        files: all files of the source.
        is_of_kind: tells by the URI in lower case whether a file is of the kind.
        what: the files of the kind, for the error.

    Raises:
        NotFoundError: there is none.
    """
    usable = [file for file in files if file.ignored_by is None and file.fault is None]
    chosen = [file for file in usable if folder.only is not None or is_of_kind(file.uri.lower())]
    if not chosen:
        seen = f"; its first file is {usable[0].uri}" if usable else ""
        raise NotFoundError(
            f"nothing to read in the source {folder.uri}: it holds no {what}{seen}",
            "give the folder that holds the files, or a pattern such as --set source.files='data/*'",
        )
    return chosen


def files_of(folder: SourceFolder, references: pa.Table) -> list[RowFile]:
    """Return the row files of images, sorted by URI.

    Args:
        folder: the source.
        references: REFERENCE_SCHEMA and MEMBER_COLUMNS.
    """
    places = references.group_by(["container", "mtime_ns"]).aggregate([])
    found = zip(places["container"].to_pylist(), places["mtime_ns"].to_pylist(), strict=True)
    return [RowFile(folder, container, mtime_ns) for container, mtime_ns in sorted(found)]
