"""Check that a PNG holds all its rows (PNG specification, third edition, 7.2, 8.1 and 10).

If the compressed data ends early without an error, Pillow fills the missing rows with black. This module
detects that.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from isal.isal_zlib import crc32  # at ten times the speed of zlib's

from shardmill.infra.codecs.structure.png_chunks import PngFile, chunks

_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
# Adam7: first column and row, and the steps between columns and rows, of each pass.
_PASSES = (
    (0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2),
)  # fmt: skip
_MOST_INFLATED = 1032  # bytes that a byte of a deflate stream can stand for
_PIECE_BYTES = 1 << 20


def rows_bytes(file: PngFile) -> int:
    """Return the size of all rows with their filter types, before compression (bytes)."""
    passes = _PASSES if file.interlaced else ((0, 0, 1, 1),)
    total = 0
    for left, top, across, down in passes:
        width, height = -(-(file.width - left) // across), -(-(file.height - top) // down)
        if width > 0 and height > 0:
            total += height * (1 + -(-width * _SAMPLES.get(file.color_type, 1) * file.bit_depth // 8))
    return total


def can_hold_all_rows(file: PngFile) -> bool:
    """Tell whether the compressed data, if there is any, could be long enough were it compressed best."""
    size = sum(end - start for start, end in _data(file))
    return not size or size * _MOST_INFLATED >= rows_bytes(file)


def holds_all_rows(file: PngFile) -> bool:
    """Inflate the compressed data and tell whether it holds all rows."""
    needed = rows_bytes(file)
    for size, _ in _inflate(file):
        needed -= size
        if needed <= 0:
            return True
    return False


def is_undamaged(file: PngFile) -> bool:
    """Tell whether the compressed data matches its checksums.

    Some writers compute wrong ones for their chunks; then the checksum within the data decides.
    """
    picture = memoryview(file.picture)
    if all(
        crc32(picture[start - 4 : end]) == int.from_bytes(picture[end : end + 4], "big")
        for start, end in _data(file)
        if end + 4 <= len(picture)
    ):
        return True
    return any(ended for _, ended in _inflate(file))


def _inflate(file: PngFile) -> Iterator[tuple[int, bool]]:
    """Yield the sizes of pieces of the inflated data, and whether the data ended there with its checksum."""
    inflate = zlib.decompressobj()
    try:
        for start, end in _data(file):
            rest = file.picture[start:end]
            while rest and not inflate.eof:
                yield len(inflate.decompress(rest, _PIECE_BYTES)), inflate.eof
                rest = inflate.unconsumed_tail
    except zlib.error:
        return


def last_row_decoded(file: PngFile) -> int | None:
    """Return the row that a decoder fills last and to its end; None if no row is filled at once."""
    if not file.interlaced:
        return file.height - 1
    return file.height - 1 - file.height % 2 if file.height > 1 else None


def _data(file: PngFile) -> Iterator[tuple[int, int]]:
    """Yield start and end of the content of the chunks that hold the picture."""
    return ((start, end) for name, start, end in chunks(file.picture) if name == b"IDAT")
