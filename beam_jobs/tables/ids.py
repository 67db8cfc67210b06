"""Ids and digests of whole columns: of bytes and rows, of records, and of inputs with equal contents.

The content of an image is the SHA-256 of its bytes. Where images have masks it is the SHA-256 of both
digests, so an image whose mask was changed is decoded again. Inputs with equal contents become one record.

``part_lengths`` cuts a sorted table of URIs into parts that stay the same when other rows change. Whether a
part ends after a row depends on the hash of the row's URI. A row that is added or removed changes its own
part, and sometimes the next one. No part is longer than twice the mean, and only the last one may be shorter
than a quarter of it.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.beam_jobs.tables.features import PREFIX, canonical_bytes
from shardmill.infra.format.known_features import MASK_SHA256

UInt64 = npt.NDArray[np.uint64]

_HEX_DIGITS = np.array([f"{byte:02x}".encode() for byte in range(256)], dtype="S2").view(np.uint16)
_NO_DIGEST = pa.array([], pa.binary(32))


def digest_bytes(column: pa.ChunkedArray | pa.Array) -> npt.NDArray[np.uint8]:
    """Return the bytes of a column of SHA-256 digests: uint8 [N, 32]. Null rows hold arbitrary bytes."""
    array = column
    if isinstance(column, pa.ChunkedArray):
        # Joining one chunk would copy it.
        array = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays([_NO_DIGEST, *column.chunks])
    start, length = array.offset * 32, len(array) * 32
    raw = (
        np.frombuffer(array.buffers()[1], np.uint8)[start : start + length]
        if length
        else np.empty(0, np.uint8)
    )
    return raw.reshape(-1, 32)


def record_ids(digests: npt.NDArray[np.uint8]) -> UInt64:
    """Return the first 64 bits of each digest as a number: uint64 [N]."""
    return np.ascontiguousarray(digests[:, :8]).view(">u8").astype(np.uint64).reshape(-1)


def id_text(ids: UInt64) -> pa.Array:
    """Write record ids as text: uint64 [N] to string [N] of 16 hexadecimal digits."""
    return hex_text(ids.astype(">u8").view(np.uint8).reshape(-1, 8))


def hex_text(values: npt.NDArray[np.uint8]) -> pa.Array:
    """Write bytes as hexadecimal text: uint8 [N, K] to string [N] of 2K digits."""
    count, width = values.shape
    digits = _HEX_DIGITS[values].tobytes()
    offsets = np.arange(count + 1, dtype=np.int64) * (2 * width)
    text = pa.LargeStringArray.from_buffers(count, pa.py_buffer(offsets.tobytes()), pa.py_buffer(digits))
    return text if offsets[-1] > np.iinfo(np.int32).max else text.cast(pa.string())


def hex_bytes(column: pa.ChunkedArray | pa.Array, width: int) -> npt.NDArray[np.uint8]:
    """Read hexadecimal text: string [N] of 2 * width lower-case digits to uint8 [N, width].

    Raises:
        ValueError: a text is null or has another length.
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    text = array.cast(pa.large_string())
    if not len(text):
        return np.empty((0, width), np.uint8)
    _, offset_buffer, characters = text.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64)[text.offset : text.offset + len(text) + 1]
    if text.null_count or (np.diff(offsets) != 2 * width).any():
        raise ValueError(f"expected {len(text)} strings of {2 * width} hexadecimal digits each")
    digits = np.frombuffer(characters, np.uint8)[offsets[0] : offsets[-1]]
    values = digits - np.where(digits >= ord("a"), ord("a") - 10, ord("0")).astype(np.uint8)
    return np.asarray((values[0::2] << 4 | values[1::2]).reshape(-1, width), np.uint8)


DIGEST_ROWS = 65_536  # rows hashed together


def table_digest(table: pa.Table) -> str:
    """Return the SHA-256 (hexadecimal) of a table's rows, however the table is cut into chunks."""
    table = table.combine_chunks()  # a column of more than 2 GiB stays in several
    starts = range(0, table.num_rows, DIGEST_ROWS)
    parts = (table.slice(start, DIGEST_ROWS).combine_chunks() for start in starts)
    return batches_digest(table.schema, (batch for part in parts for batch in part.to_batches()))


def batches_digest(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> str:
    """Return the SHA-256 (hexadecimal) of rows in batches. It depends on where the batches are cut."""
    digest = hashlib.sha256(str(schema).encode())
    for batch in batches:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            digest.update(canonical_bytes(column) if name.startswith(PREFIX) else _column_bytes(column))
    return digest.hexdigest()


def _column_bytes(column: pa.Array) -> bytes:
    # A column that went through IPC once has no stray offsets or bits; the message's own framing is constant.
    return bytes(pa.record_batch([column], names=[""]).serialize())


_COLUMN = PREFIX + MASK_SHA256


def content_of(sha256: bytes, mask_sha256: bytes | None = None) -> bytes:
    """Return the content of an image: 32 bytes.

    Args:
        sha256: SHA-256 of the image.
        mask_sha256: SHA-256 of its mask; None if it has none.
    """
    return sha256 if mask_sha256 is None else hashlib.sha256(sha256 + mask_sha256).digest()


def contents_of(table: pa.Table) -> list[bytes]:
    """Return the contents of the rows of facts or of records that have a digest."""
    digests = table["sha256"].to_pylist()
    if _COLUMN not in table.schema.names:
        return [sha256 for sha256 in digests if sha256 is not None]
    masks = table[_COLUMN].to_pylist()
    return [
        content_of(sha256, None if mask is None else bytes.fromhex(mask))
        for sha256, mask in zip(digests, masks, strict=True)
        if sha256 is not None
    ]


_TEXTS_AT_A_TIME = 8192


def part_lengths(uris: pa.ChunkedArray | Iterable[pa.Array], mean: int) -> Iterator[int]:
    """Yield the number of rows of each part.

    Args:
        uris: string, sorted; may be read chunk by chunk.
        mean: number of rows of a part, on average.
    """
    shortest, longest = max(1, mean // 4), mean * 2
    # Past the shortest length each row ends its part with this probability, which gives about the mean.
    one_in = max(1, mean - shortest)
    length = 0
    for uri in _texts(uris.chunks if isinstance(uris, pa.ChunkedArray) else uris):
        length += 1
        at_cut = length >= shortest and _name_hash(uri) % one_in == 0
        if at_cut or length == longest:
            yield length
            length = 0
    if length:
        yield length


def _texts(chunks: Iterable[pa.Array]) -> Iterator[str]:
    """Yield the texts of a column, converting a few thousand at a time to Python values."""
    for chunk in chunks:
        for start in range(0, len(chunk), _TEXTS_AT_A_TIME):
            yield from map(str, chunk.slice(start, _TEXTS_AT_A_TIME).to_pylist())


def _name_hash(uri: str) -> int:
    # The CRC of numbered names has patterns in its remainders; multiplying (Knuth's constant) removes them.
    return (zlib.crc32(uri.encode()) * 2654435761 & 0xFFFFFFFF) >> 12
