"""Walk through the directories of EXIF (CIPA DC-008) and TIFF, and read the orientation.

A directory that ends early counts with its whole entries.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

_ORIENTATION = 0x0112
# Type and number of values -> form of the first value in its entry. Some files hold a pair of shorts.
_FORMS = {(3, 1): "H", (3, 2): "H", (8, 1): "H", (8, 2): "H", (4, 1): "I", (9, 1): "I"}
_PREFIX = b"Exif\x00\x00"
_BIG_TIFF = 43


@dataclass(frozen=True, slots=True)
class Directories:
    """The directories of an EXIF block or of a TIFF file.

    Attributes:
        data: the block or file, with or without ``Exif`` in front.
        base: where its TIFF header begins (bytes).
        order: "<" or ">" of struct.
        big: it is a BigTIFF.
        first: place of the first directory behind ``base`` (bytes).
    """

    data: bytes
    base: int
    order: str
    big: bool
    first: int

    @classmethod
    def of(cls, data: bytes, *, big_tiff: bool = False) -> Self | None:
        """Read the header; None if there is none. Only with ``big_tiff`` a BigTIFF is read as one."""
        base = len(_PREFIX) if data.startswith(_PREFIX) else 0
        order = {b"II": "<", b"MM": ">"}.get(data[base : base + 2])
        if order is None or len(data) < base + 8:
            return None
        big = big_tiff and struct.unpack_from(f"{order}H", data, base + 2)[0] == _BIG_TIFF
        if big and len(data) < base + 16:
            return None
        (first,) = struct.unpack_from(f"{order}Q" if big else f"{order}I", data, base + (8 if big else 4))
        return cls(data, base, order, big, first)

    def entries(self, start: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield tag, type, number of values and place of the value field of each entry of a directory."""
        head, entry_bytes, form = (8, 20, "HHQ") if self.big else (2, 12, "HHI")
        begin = self.base + start + head
        if begin > len(self.data):
            return
        (count,) = struct.unpack_from(self.order + ("Q" if self.big else "H"), self.data, self.base + start)
        entry = struct.Struct(self.order + form)
        within = (len(self.data) - begin) // entry_bytes
        for at in range(begin, begin + entry_bytes * min(count, within), entry_bytes):
            tag, kind, number = entry.unpack_from(self.data, at)
            yield tag, kind, number, at + entry.size


def orientation_in(exif: bytes) -> int:
    """Return the orientation (1 to 8) of an EXIF block, or 1 if it has none or is damaged.

    If the tag is there twice, the later one counts. The exported models do the same
    (shardmill.training.tensorflow.export.graph.orientation).

    Args:
        exif: a TIFF header and its directories (CIPA DC-008, 4.5), with or without ``Exif`` in front.
    """
    found = Directories.of(exif)
    if found is None:
        return 1
    value = 1
    for tag, kind, number, at in found.entries(found.first):
        form = _FORMS.get((kind, number))
        if tag == _ORIENTATION and form is not None:
            (value,) = struct.unpack_from(found.order + form, exif, at)
    return value if 1 <= value <= 8 else 1
