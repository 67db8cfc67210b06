"""Records in the TFRecord files of others: found one after the other, plain or in a stream of gzip or zlib.

The framing is that of shardmill.infra.format.records, but these files are compressed as a whole, and may be
damaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, Literal, cast

from shardmill.beam_jobs.config import RowCompression
from shardmill.beam_jobs.sources.rows.inflating import Inflated
from shardmill.beam_jobs.sources.rows.row_files import RowFile, RowFileBroken
from shardmill.beam_jobs.sources.rows.unpacked import PackedDataBroken
from shardmill.infra.errors import CorruptDataError
from shardmill.infra.format.records import FOOTER_BYTES, HEADER_BYTES, payload_length, unframe

Compression = Literal["none", "gzip", "zlib"]

_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class Frame:
    """A record in a file.

    Attributes:
        offset: of its frame, in the unpacked stream (bytes).
        payload: of the record; empty if it is damaged.
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
