"""The strips and tiles of a TIFF (TIFF 6.0, sections 7, 11, 15 and 22): whether they hold all rows.

Decoders read any bytes that are at the place of a strip. libtiff only warns of a JPEG or fax strip that ends
early, and Pillow reads uncompressed rows without looking at the length of their strip.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_WIDTH, _LENGTH, _BITS, _COMPRESSION, _PHOTOMETRIC, _FILL_ORDER = 256, 257, 258, 259, 262, 266
_STRIP_OFFSETS, _SAMPLES, _ROWS_PER_STRIP, _STRIP_COUNTS, _PLANAR = 273, 277, 278, 279, 284
_TILE_WIDTH, _TILE_LENGTH, _TILE_OFFSETS, _TILE_COUNTS = 322, 323, 324, 325
_UNCOMPRESSED, _GROUP_4, _JPEG = 1, 4, 7
# LZW, deflate (two numbers) and PackBits: libtiff refuses data that ends early.
_NOTICE_THEIR_END = (5, 8, 32_946, 32_773)
_YCBCR, _SEPARATE_PLANES, _LOW_BIT_FIRST = 6, 2, 2

_END_OF_JPEG = b"\xff\xd9"
_END_OF_FAX = f"{1:012b}" * 2  # EOFB of ITU-T T.6
_TAIL_BYTES = 64  # an end mark may be padded


@dataclass(frozen=True, slots=True)
class Strips:
    """Position of the picture in the file. A tile counts as a strip.

    Attributes:
        offsets: of each strip in the file (bytes).
        lengths: of each strip as the file says (bytes); empty if the file does not say.
        height: rows of the picture.
        rows: rows of a strip; the last strip of a picture may have fewer, the last tile may not.
        columns: columns of a strip.
        across: strips side by side.
        plane_bits: bits of a pixel in each plane; a picture whose samples lie together is one plane.
        tiled: the strips are tiles.
    """

    offsets: tuple[int, ...]
    lengths: tuple[int, ...]
    height: int
    rows: int
    columns: int
    across: int
    plane_bits: tuple[int, ...]
    tiled: bool

    @property
    def needed(self) -> int:
        """Number of strips that the picture's size needs."""
        return len(self.plane_bits) * -(-self.height // self.rows) * self.across

    def sizes(self) -> Iterator[int]:
        """Yield the size of each strip if it is not compressed (bytes)."""
        for bits in self.plane_bits:
            for top in range(0, self.height, self.rows):
                rows = self.rows if self.tiled else min(self.rows, self.height - top)
                yield from itertools.repeat(rows * -(-self.columns * bits // 8), self.across)


def directory_ends_early(data: bytes) -> bool:
    """Tell whether the first directory (often the last thing in a file) is cut off."""
    start, size, entry = (_first_directory(data), 8, 20) if _is_big(data) else (_first_directory(data), 2, 12)
    if start + size > len(data):
        return True
    count = int.from_bytes(data[start : start + size], "little" if data[:2] == b"II" else "big")
    return start + size + count * entry > len(data)


def strip_beyond_end(tags: Mapping[int, Any], size_bytes: int) -> bool:
    """Tell whether a strip reaches beyond the end of the file.

    Args:
        tags: of the directory.
        size_bytes: of the file.
    """
    return any(
        place + length > size_bytes
        for offsets, lengths in ((_STRIP_OFFSETS, _STRIP_COUNTS), (_TILE_OFFSETS, _TILE_COUNTS))
        for place, length in zip(_numbers(tags, offsets), _numbers(tags, lengths), strict=False)
    )


def bytes_beyond_end(tags: Mapping[int, Any], size_bytes: int) -> int | None:
    """Return how far strips reach beyond the end of the file, if that may be an overstated length (bytes).

    Args:
        tags: of the directory.
        size_bytes: of the file.

    Returns:
        None if no strip reaches beyond the end, or further than it would uncompressed, or if the compression
        is another than LZW, deflate or PackBits.
    """
    strips = _read_strips(tags)
    if strips is None or tags.get(_COMPRESSION) not in _NOTICE_THEIR_END:
        return None
    if len(strips.offsets) < strips.needed:
        return None
    ends = (place + length for place, length in zip(strips.offsets, strips.lengths, strict=False))
    beyond = max(ends, default=0) - size_bytes
    return beyond if 0 < beyond <= max(strips.sizes(), default=0) else None


def lacks_rows(data: bytes, tags: Mapping[int, Any]) -> bool:
    """Tell whether a strip is missing or shorter than its rows, so that a decoder would make up the rest.

    Strips that reach beyond the end of the file are left to the decoder, which notices those.

    Args:
        data: the file.
        tags: of the directory.
    """
    strips = _read_strips(tags)
    if strips is None:
        return False
    if len(strips.offsets) < strips.needed:
        return True
    compression = tags.get(_COMPRESSION, _UNCOMPRESSED)
    if compression == _UNCOMPRESSED:
        # Several pixels of YCbCr may share samples, so their size is not known.
        return tags.get(_PHOTOMETRIC) != _YCBCR and _has_short_strip(strips)
    tails = (
        data[max(place, place + length - _TAIL_BYTES) : place + length]
        for place, length in zip(strips.offsets, strips.lengths, strict=False)
    )
    if compression == _JPEG:
        return any(_END_OF_JPEG not in tail for tail in tails)
    if compression == _GROUP_4:
        mirrored = tags.get(_FILL_ORDER) == _LOW_BIT_FIRST
        return any(_END_OF_FAX not in _digits(tail, mirrored) for tail in tails)
    return False


def _has_short_strip(strips: Strips) -> bool:
    if strips.needed == 1 and strips.lengths[:1] == (0,):
        return False  # some writers state no length of their only strip
    return any(length < size for length, size in zip(strips.lengths, strips.sizes(), strict=False))


def _read_strips(tags: Mapping[int, Any]) -> Strips | None:
    """Return the position of the picture, or None if the tags do not say so in the usual way."""
    height, width = _number(tags, _LENGTH, 0), _number(tags, _WIDTH, 0)
    tiled = _TILE_OFFSETS in tags
    rows = _number(tags, _TILE_LENGTH, 0) if tiled else min(height, _number(tags, _ROWS_PER_STRIP, height))
    columns = _number(tags, _TILE_WIDTH, 0) if tiled else width
    if min(height, width, rows, columns) <= 0:
        return None
    samples = _number(tags, _SAMPLES, 1)
    bits = _numbers(tags, _BITS) or (1,)
    if len(bits) != samples:
        bits = bits[:1] * samples
    return Strips(
        _numbers(tags, _TILE_OFFSETS if tiled else _STRIP_OFFSETS),
        _numbers(tags, _TILE_COUNTS if tiled else _STRIP_COUNTS),
        height,
        rows,
        columns,
        across=-(-width // columns),
        plane_bits=bits if tags.get(_PLANAR) == _SEPARATE_PLANES else (sum(bits),),
        tiled=tiled,
    )


def _numbers(tags: Mapping[int, Any], tag: int) -> tuple[int, ...]:
    values = tags.get(tag, ())
    values = values if isinstance(values, tuple) else (values,)
    return values if all(isinstance(value, int) for value in values) else ()


def _number(tags: Mapping[int, Any], tag: int, default: int) -> int:
    return next(iter(_numbers(tags, tag)), default)


def _first_directory(data: bytes) -> int:
    """Return the offset of the first directory (bytes)."""
    offset = data[8:16] if _is_big(data) else data[4:8]
    return int.from_bytes(offset, "little" if data[:2] == b"II" else "big")


def _is_big(data: bytes) -> bool:
    """Tell whether the file is a BigTIFF, whose offsets have 8 bytes."""
    return data[2:4] in (b"+\x00", b"\x00+")


def _digits(content: bytes, mirrored: bool) -> str:
    """Return the bits as text; ``mirrored``: the low bit of each byte comes first."""
    digits = (f"{byte:08b}" for byte in content)
    return "".join(byte[::-1] if mirrored else byte for byte in digits)
