"""TFRecord files of others: records of ``tf.train.Example`` with an encoded image and a label.

Each record is an input, ``train-00000.tfrecord#row=0000017``; records are counted from 0. Files may be
compressed by gzip or zlib as a whole. A file that is cut short or damaged keeps the records in front of the
damage; one row stands for the rest. TensorFlow is not needed.

The framing is that of shardmill.infra.format.records, but these files are compressed as a whole, and may be
damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, Literal, cast

import pyarrow as pa

from shardmill.beam_jobs.config import PrepareConfig, RowCompression, SourceConfig
from shardmill.beam_jobs.schemas import FileRef
from shardmill.beam_jobs.sources.class_names import class_numbers, quoted
from shardmill.beam_jobs.sources.files.container import Ranges
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised
from shardmill.beam_jobs.sources.roles import needs_label
from shardmill.beam_jobs.sources.rows.detection import DetectionKeys
from shardmill.beam_jobs.sources.rows.examples import (
    FeatureMap,
    collect_rows,
    find_features,
    image_in,
    recognised_image,
)
from shardmill.beam_jobs.sources.rows.listing import Contents, list_contents, read_all, walk_files
from shardmill.beam_jobs.sources.rows.reading import RowReader
from shardmill.beam_jobs.sources.rows.row_files import (
    FileRows,
    RowFile,
    RowFileBroken,
    choose_files,
    files_of,
)
from shardmill.beam_jobs.sources.rows.unpacked import Inflated, PackedDataBroken, keep_unpacked, open_unpacked
from shardmill.infra.errors import CorruptDataError
from shardmill.infra.format.records import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES, payload_length, unframe
from shardmill.infra.progress import log
from shardmill.infra.storage.filesystem import Storage

_ENDINGS = (".tfrecord", ".tfrecords", ".tfrec", ".tfr", ".record", ".records")


def _is_tfrecord(uri: str) -> bool:
    """Tell by a lower-case URI whether a file is a TFRecord file: ``train.tfrecord-00000-of-00010`` too."""
    name = uri.rpartition("/")[2].removesuffix(".gz").removesuffix(".zlib")
    return name.endswith(_ENDINGS) or any(f"{ending}-" in name for ending in _ENDINGS)


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """List every record of the TFRecord files of a folder, with its label and split.

    Every file is read once for that, since labels stand beside the images.

    Raises:
        NotFoundError: there is no such folder, or no record in it.
        ConfigError: a feature is not there, or which one is meant cannot be told.
    """
    files, warnings = walk_files(folder, config)
    chosen = choose_files(folder, files, _is_tfrecord, "TFRecord file")
    found: list[FeatureMap] = []
    objects = None
    if config.source.label_kind == "multi" and needs_label(config.source.columns, "multi"):
        first = RowFile(folder, chosen[0].uri, chosen[0].ref.mtime_ns)
        objects = None if config.source.columns.label else _keys_of_objects(first, config.source)
    source = config.source if objects is None else objects.settings(config.source)
    settings, kind = source.columns, source.label_kind

    def find(file: RowFile, compression: str, payload: bytes) -> FeatureMap:
        features = find_features(file.uri, payload, settings, kind)
        log(f"{file.uri} was read as TFRecord ({compression}): {features.roles.in_words('feature')}")
        return features

    def read(file: RowFile) -> FileRows:
        compression = compression_of(file, config.source.rows.compression)
        with unpacked(file, compression) as stream:
            records = Frames(stream)
            each = ((frame.offset, frame.payload, frame.fault) for frame in records)
            rows = collect_rows(each, found, partial(find, file, compression))
        if rows is None:
            raise RowFileBroken(records.damage or "it holds no record")
        return rows.rows(file, records.damage)

    rows, broken = read_all(folder, chosen, read)
    contents = Contents(files, rows, broken, {}, warnings)
    listing = list_contents(folder, config.model_copy(update={"source": source}), contents)
    if objects is None:
        return listing
    return objects.with_objects(listing, class_numbers(config.source.columns, folder))


def _keys_of_objects(file: RowFile, settings: SourceConfig) -> DetectionKeys | None:
    """Return the lists of objects in the records of a file; None if it has none or cannot be read."""
    try:
        with unpacked(file, compression_of(file, settings.rows.compression)) as stream:
            return DetectionKeys.of((frame.payload, frame.fault) for frame in Frames(stream))
    except (RowFileBroken, SourceFault):
        return None


def make_readable(
    folder: SourceFolder, config: PrepareConfig, references: pa.Table, scratch: Storage
) -> None:
    """Unpack the compressed files that are to be read."""
    for file in files_of(folder, references):
        compression = compression_of(file, config.source.rows.compression)
        if compression != "none":
            keep_unpacked(file, compression, partial(unpacked, file, compression), scratch)


def recognise(glance: Glance, settings: SourceConfig) -> Recognised | None:
    """Recognise TFRecord files by their names, and those of the Object Detection API by their features."""
    files = [uri for uri in glance.files if _is_tfrecord(uri.lower())]
    if not files:
        return None
    why = f"it has TFRecord files: {quoted(files)}"
    is_free = settings.labels is None and settings.columns.label is None
    keys = _keys_of_objects(RowFile(glance.folder, files[0], 0), settings) if is_free else None
    if keys is None:
        return Recognised(why)
    found: dict[str, Any] = {"labels": "multi"}
    why += ", whose records hold objects as TensorFlow's Object Detection API writes them"
    maps = glance.ending_in(".pbtxt")
    if not keys.are_texts and len(maps) == 1:
        found["columns"] = {"classes_file": maps[0]}
        why += f", and {maps[0]} names their classes"
    return Recognised(why, found)


def open_reader(folder: SourceFolder, config: PrepareConfig, scratch: Storage | None) -> RowReader:
    """Open the reader of records."""
    image, compression = config.source.columns.image, config.source.rows.compression
    opens = partial(Records, image=image, compression=compression, scratch=scratch)
    return RowReader(folder, opens, by_number=False)


Compression = Literal["none", "gzip", "zlib"]

_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class Frame:
    """A record in a file.

    Attributes:
        offset: place of its frame, in the unpacked stream (bytes).
        payload: bytes of the record; empty if it is damaged.
        fault: why the record cannot be used, or None.
    """

    offset: int
    payload: bytes
    fault: str | None = None


def compression_of(file: RowFile, given: RowCompression) -> Compression:
    """Return how a file is compressed: as given, or by its first bytes.

    Raises:
        RowFileBroken: it is no TFRecord file.
    """
    if given != "auto":
        return given
    with file.open() as container:
        head = container.read_at(HEADER_BYTES, 0)
    try:
        payload_length(head)
    except CorruptDataError:
        if head.startswith(_GZIP_MAGIC):
            return "gzip"
        if len(head) > 1 and head[0] & 0x0F == 8 and int.from_bytes(head[:2], "big") % 31 == 0:  # RFC 1950
            return "zlib"
        raise RowFileBroken("it does not begin as a TFRecord file") from None
    return "none"


@contextmanager
def unpacked(file: RowFile, compression: Compression) -> Iterator[BinaryIO]:
    """Open what a file unpacks to, from its start."""
    with file.open() as container:
        stream = cast(BinaryIO, container)
        yield stream if compression == "none" else cast(BinaryIO, Inflated(stream, compression))


class Frames:
    """The records of an unpacked stream, in order; ends in front of a damage.

    Args:
        stream: the stream.

    Attributes:
        damage: why the records behind the last one cannot be found, once that was given; else None.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = _Buffered(stream)
        self.damage: str | None = None

    def __iter__(self) -> Iterator[Frame]:
        """The records."""
        offset = 0
        while head := self._stream.read(HEADER_BYTES):
            try:
                length = payload_length(head)
            except CorruptDataError as error:
                self.damage = f"at byte {offset:,}: {error.message}"
                return
            rest = self._stream.read(length + FOOTER_BYTES)
            if len(rest) < length + FOOTER_BYTES:
                self.damage = f"it ends within the record at byte {offset:,}"
                return
            try:
                yield Frame(offset, unframe(head + rest))
            except CorruptDataError as error:
                yield Frame(offset, b"", error.message)
            offset += HEADER_BYTES + length + FOOTER_BYTES
        self.damage = self._stream.damage


class _Buffered:
    """Reads a stream in large pieces; a damage is its end."""

    _CHUNK_BYTES = 1 << 20

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._data = b""
        self._at = 0
        self.damage: str | None = None

    def read(self, length: int) -> bytes:
        """Return ``length`` bytes; fewer only at the end."""
        parts, missing = [], length
        while missing:
            if self._at == len(self._data):
                try:
                    # Not all at once: a length may be a lie.
                    self._data, self._at = self._stream.read(self._CHUNK_BYTES), 0
                except PackedDataBroken as error:
                    self.damage = str(error)
                    self._data, self._at = b"", 0
                if not self._data:
                    break
            part = self._data[self._at : self._at + missing]
            self._at += len(part)
            missing -= len(part)
            parts.append(part)
        return b"".join(parts)


_SLACK_BYTES = 1024  # most bytes of a record besides its image


class Records:
    """The records of one open TFRecord file.

    Args:
        file: the file.
        image: name of the feature with the image; None to recognise it.
        compression: compression of the file.
        scratch: folder of the run, with unpacked copies; None outside of a run.

    Raises:
        RowFileBroken: it is no TFRecord file.
    """

    def __init__(
        self, file: RowFile, image: str | None, compression: RowCompression, scratch: Storage | None
    ) -> None:
        compression = compression_of(file, compression)
        opens = partial(unpacked, file, compression)
        self._image = image or _recognised(opens)
        self._ranges: Ranges = (
            file.ranges() if compression == "none" else open_unpacked(file, compression, opens, scratch)
        )

    def read(self, file: FileRef, position: int) -> bytes:
        """Return the image of a record.

        Raises:
            SourceFault: the record has none. RowFileBroken: the file is damaged there.
        """
        data = self._ranges.read_at(FRAME_BYTES + file.size_bytes + _SLACK_BYTES, position)
        try:
            length = FRAME_BYTES + payload_length(data[:HEADER_BYTES])
            if length > len(data):
                data += self._ranges.read_at(length - len(data), position + len(data))
            return image_in(unframe(memoryview(data)[:length]), self._image)
        except CorruptDataError as error:
            raise RowFileBroken(f"at byte {position:,}: {error.message}") from error

    def close(self) -> None:
        """Close the file."""
        self._ranges.close()


def _recognised(opens: Callable[[], AbstractContextManager[BinaryIO]]) -> str:
    """Return the name of the feature with the image, as the first records have it.

    Raises:
        RowFileBroken: none of them has an image.
    """
    with opens() as stream:
        return recognised_image((frame.payload, frame.fault) for frame in Frames(stream))
