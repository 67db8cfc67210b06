"""TFRecord framing and the gzip container, without TensorFlow.

A framed record, after TensorFlow's ``tensorflow/core/lib/io/record_writer.h``::

    uint64 length | uint32 masked_crc32c(length) | payload | uint32 masked_crc32c(payload)      little-endian

In the container ``none`` a shard is framed records one after the other. In ``gzip`` each framed record is
one gzip member of its own (RFC 1952 lets members be concatenated): any gzip reader sees the same stream,
and one record costs one ``pread`` and one inflate.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, cast, get_args

import google_crc32c
from isal import igzip, isal_zlib

from shardmill.infra.errors import CorruptDataError

if TYPE_CHECKING:  # configurations name containers, and should not load Arrow for that
    from shardmill.infra.storage.filesystem import Storage

Container = Literal["gzip", "none"]
CONTAINERS: tuple[str, ...] = get_args(Container)

HEADER_BYTES = 12
FOOTER_BYTES = 4
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES

_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_MASK_DELTA = 0xA282EAD8
# JPEG payload hardly shrinks at any level (measured: 0 to 2 %), so the cheapest that
# still folds text and headers. The level is part of the stored bytes: a change needs a new FORMAT_VERSION.
_GZIP_LEVEL = 1
_CHUNK_BYTES = 1 << 18

IsalError = cast(type[Exception], isal_zlib.error)


def masked_crc32c(data: bytes | memoryview) -> int:
    """CRC-32C of ``data``, rotated and offset as TFRecord stores it."""
    crc: int = google_crc32c.value(bytes(data))
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def frame(payload: bytes) -> bytes:
    """The payload between TFRecord's length and checksums."""
    length = _LENGTH.pack(len(payload))
    return b"".join((length, _CRC.pack(masked_crc32c(length)), payload, _CRC.pack(masked_crc32c(payload))))


def payload_length(header: bytes | memoryview) -> int:
    """The length of the payload that the first ``HEADER_BYTES`` of a framed record give.

    Raises:
        CorruptDataError: the checksum is wrong, or the header is cut.
    """
    if len(header) < HEADER_BYTES:
        raise CorruptDataError(f"truncated record: {len(header)} bytes of a header of {HEADER_BYTES}")
    return _checked_length(memoryview(header))


def unframe(framed: bytes | memoryview) -> bytes:
    """The payload of exactly one framed record.

    Raises:
        CorruptDataError: a checksum or the length is wrong.
    """
    view = memoryview(framed)
    if len(view) < FRAME_BYTES:
        raise CorruptDataError(f"truncated record: {len(view)} bytes, fewer than a frame of {FRAME_BYTES}")
    length = _checked_length(view)
    if len(view) != length + FRAME_BYTES:
        raise CorruptDataError(f"record of {length} bytes in a frame of {len(view)} bytes")
    return _checked_payload(view, length)


def _checked_length(view: memoryview) -> int:
    if _CRC.unpack_from(view, 8)[0] != masked_crc32c(view[:8]):
        raise CorruptDataError("checksum of a record's length does not match")
    return cast(int, _LENGTH.unpack_from(view, 0)[0])


def _checked_payload(view: memoryview, length: int) -> bytes:
    payload = bytes(view[HEADER_BYTES : HEADER_BYTES + length])
    if _CRC.unpack_from(view, HEADER_BYTES + length)[0] != masked_crc32c(payload):
        raise CorruptDataError("checksum of a record's payload does not match")
    return payload


def pack_record(payload: bytes, container: Container) -> bytes:
    """The bytes of one record in a shard. The same payload always gives the same bytes."""
    framed = frame(payload)
    if container == "none":
        return framed
    return cast(bytes, igzip.compress(framed, _GZIP_LEVEL, mtime=0))


def unpack_record(stored: bytes | memoryview, container: Container) -> bytes:
    """The payload of one stored record.

    Raises:
        CorruptDataError: the gzip member or the frame is broken.
    """
    return unframe(stored if container == "none" else _inflate_record(stored))


def _inflate_record(stored: bytes | memoryview) -> bytes:
    """The framed record in ``stored``, which must be exactly one gzip member.

    Raises:
        CorruptDataError: the member is broken.
    """
    inflater = isal_zlib.decompressobj(wbits=31)
    try:
        framed = inflater.decompress(stored)
    except IsalError as error:
        raise CorruptDataError(f"broken gzip member: {error}") from error
    if not inflater.eof or inflater.unused_data:
        raise CorruptDataError("a gzip member that does not end where its index says")
    return framed


def iter_records(storage: Storage, path: str, container: Container) -> Iterator[tuple[int, int, bytes]]:
    """All records of a shard in order, as (offset_bytes, length_bytes, payload), in flat memory.

    Raises:
        CorruptDataError: names the shard and the offset of the first broken record.
    """
    cut = _cut_frame if container == "none" else _cut_member
    with storage.open_input(path) as stream:
        offset, pending, ended = 0, b"", False
        while True:
            try:
                found = cut(pending, ended)
            except CorruptDataError as error:
                raise CorruptDataError(f"{path} at byte {offset}: {error.message}") from error
            if found is not None:
                length, payload = found
                yield offset, length, payload
                offset, pending = offset + length, pending[length:]
            elif ended:
                return
            else:
                chunk = stream.read(_CHUNK_BYTES)
                ended = not chunk
                pending += chunk


def _cut_frame(pending: bytes, ended: bool) -> tuple[int, bytes] | None:
    """(stored length, payload) of the first framed record, or None if more bytes are needed."""
    if not pending:
        return None
    view = memoryview(pending)
    if len(view) >= HEADER_BYTES:
        length = _checked_length(view)
        if len(view) >= length + FRAME_BYTES:
            return length + FRAME_BYTES, _checked_payload(view, length)
    if ended:
        raise CorruptDataError(f"the shard ends within a record ({len(view)} bytes of it are there)")
    return None


def _cut_member(pending: bytes, ended: bool) -> tuple[int, bytes] | None:
    """(stored length, payload) of the first gzip member, or None if more bytes are needed."""
    if not pending:
        return None
    inflater = isal_zlib.decompressobj(wbits=31)
    try:
        framed = inflater.decompress(pending)
    except IsalError as error:
        raise CorruptDataError(f"broken gzip member: {error}") from error
    if inflater.eof:
        return len(pending) - len(inflater.unused_data), unframe(framed)
    if ended:
        raise CorruptDataError(f"the shard ends within a gzip member ({len(pending)} bytes of it are there)")
    return None
