"""ArrayRecord files: records of ``tf.train.Example`` with an encoded image and a label.

Each record is an input, ``mnist-train.array_record-00000-of-00001#row=0000017``; records are counted from 0.
The features are found as for TFRecord files (shardmill.beam_jobs.sources.rows.examples). Needs the package
``array_record``, an extra. It reads local files only: of an object store, each process copies the file that
it reads.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from shardmill.beam_jobs.config import PrepareConfig, SourceConfig
from shardmill.beam_jobs.schemas import FileRef
from shardmill.beam_jobs.sources.class_names import quoted
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised
from shardmill.beam_jobs.sources.rows.examples import (
    FeatureMap,
    collect_rows,
    find_features,
    image_in,
    recognised_image,
)
from shardmill.beam_jobs.sources.rows.listing import Contents, list_contents, read_all, walk_files
from shardmill.beam_jobs.sources.rows.reading import RowReader
from shardmill.beam_jobs.sources.rows.row_files import FileRows, RowFile, RowFileBroken, choose_files
from shardmill.infra.errors import CorruptDataError
from shardmill.infra.extras import lacking
from shardmill.infra.progress import log
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.range_reader import Descriptor

_ENDINGS = (".array_record", ".arrayrecord")
_RECORDS_AT_A_TIME = 32  # a file may hold them in groups that are decompressed as a whole


def _is_array_record(uri: str) -> bool:
    """Tell by a lower-case URI whether it is an ArrayRecord file: ``a.array_record-00000-of-00010`` too."""
    name = uri.rpartition("/")[2]
    return name.endswith(_ENDINGS) or any(f"{ending}-" in name for ending in _ENDINGS)


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """List every record of the ArrayRecord files of a folder, with its label and split.

    Every file is read once for that, since labels stand beside the images.

    Raises:
        NotFoundError: there is no such folder, or no record in it.
        ConfigError: the package is missing, a feature is not there, or which one is meant cannot be told.
    """
    settings, kind = config.source.columns, config.source.label_kind
    files, warnings = walk_files(folder, config)
    chosen = choose_files(folder, files, _is_array_record, "ArrayRecord file")
    found: list[FeatureMap] = []

    def find(file: RowFile, payload: bytes) -> FeatureMap:
        features = find_features(file.uri, payload, settings, kind)
        log(f"{file.uri} was read as ArrayRecord: {features.roles.in_words('feature')}")
        return features

    def read(file: RowFile) -> FileRows:
        records = ArrayRecordFile(file)
        each = ((number, payload, fault) for number, (payload, fault) in enumerate(records.all()))
        rows = collect_rows(each, found, partial(find, file))
        if rows is None:
            raise RowFileBroken("it holds no record")
        return rows.rows(file, None)

    rows, broken = read_all(folder, chosen, read)
    return list_contents(folder, config, Contents(files, rows, broken, {}, warnings))


def open_reader(folder: SourceFolder, config: PrepareConfig, scratch: Storage | None) -> RowReader:
    """Open the reader of records."""
    return RowReader(folder, partial(ArrayRecords, image=config.source.columns.image))


def recognise(glance: Glance, settings: SourceConfig) -> Recognised | None:
    """Recognise ArrayRecord files by their names."""
    files = [uri for uri in glance.files if _is_array_record(uri.lower())]
    return Recognised(f"it has ArrayRecord files: {quoted(files)}") if files else None


class ArrayRecordFile:
    """An open ArrayRecord file.

    Args:
        file: the file.

    Raises:
        RowFileBroken: it is none, or its end is missing. ConfigError: the package is missing.
    """

    def __init__(self, file: RowFile) -> None:
        try:
            from array_record.python.array_record_module import ArrayRecordReader
        except ModuleNotFoundError as error:
            raise lacking("source.kind = 'array_record'", "array_record", "array_record") from error
        path = file.folder.local_path(file.uri)
        self._copy = None if path is not None else _own_copy(file)
        try:
            self._reader: Any = ArrayRecordReader(path or f"/proc/self/fd/{self._fd()}")
            self.num_records: int = self._reader.num_records() if self._reader.ok() else 0
        except (RuntimeError, ValueError, IndexError) as error:
            raise RowFileBroken(_in_words(error)) from error
        if not self._reader.ok():
            raise RowFileBroken("it cannot be read as ArrayRecord: its end is missing or damaged")

    def _fd(self) -> int:
        assert self._copy is not None, "of an object store"
        return self._copy.fileno()

    def all(self) -> Iterator[tuple[bytes, str | None]]:
        """The payload of each record, or why it cannot be read."""
        for start in range(0, self.num_records, _RECORDS_AT_A_TIME):
            yield from self.some(start)

    def some(self, start: int) -> list[tuple[bytes, str | None]]:
        """Read the records from a number on, some at a time: payload, or why it cannot be read."""
        stop = min(start + _RECORDS_AT_A_TIME, self.num_records)
        try:
            return [(payload, None) for payload in self._reader.read(start, stop)]
        except (RuntimeError, ValueError, IndexError):
            return [self._one(number) for number in range(start, stop)]

    def _one(self, number: int) -> tuple[bytes, str | None]:
        try:
            return self._reader.read([number])[0], None
        except (RuntimeError, ValueError, IndexError) as error:
            return b"", _in_words(error)

    def close(self) -> None:
        """Close the file."""
        self._reader.close()
        self._copy = None


class ArrayRecords:
    """The images of one open file.

    Args:
        file: the file.
        image: name of the feature with the image; None to recognise it.

    Raises:
        RowFileBroken: it is no ArrayRecord file.
    """

    def __init__(self, file: RowFile, image: str | None) -> None:
        self._file = ArrayRecordFile(file)
        self._image = image or recognised_image(self._file.all())
        self._start = 0  # first of the records that were read last
        self._records: list[tuple[bytes, str | None]] = []

    def read(self, file: FileRef, position: int) -> bytes:
        """Return the image of a record.

        Raises:
            SourceFault: the record has none. RowFileBroken: the file is damaged there.
        """
        if not 0 <= position < self._file.num_records:
            raise RowFileBroken(f"it has {self._file.num_records:,} records")
        if not self._start <= position < self._start + len(self._records):
            self._start = position
            self._records = self._file.some(position)
        payload, fault = self._records[position - self._start]
        if fault is not None:
            raise RowFileBroken(fault)
        try:
            return image_in(payload, self._image)
        except CorruptDataError as error:
            raise RowFileBroken(error.message) from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _own_copy(file: RowFile) -> Descriptor:
    """Copy a file to this machine; the copy has no name and goes with its descriptor."""
    number, name = tempfile.mkstemp(prefix="shardmill-")
    copy = Descriptor(number)
    Path(name).unlink()
    with file.open() as source, os.fdopen(os.dup(number), "wb") as sink:
        shutil.copyfileobj(source, sink, 4 << 20)
    return copy


def _in_words(error: Exception) -> str:
    """The first words of a message of the library, without the place in its source code."""
    return f"it cannot be read as ArrayRecord: {str(error).partition(';')[0].splitlines()[0]}"
