"""Walk through the directories of EXIF (CIPA DC-008) and TIFF; read the orientation and some other tags.

Each directory is read once, so a file that points back to itself ends too. A directory that ends early counts
with its whole entries, and an entry whose value lies outside of the file does not count.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Self

from shardmill.infra.codecs.structure import geotiff
from shardmill.infra.codecs.structure.texts import clean, iso_time

_ORIENTATION = 0x0112
# Type and number of values -> form of the first value in its entry. Some files hold a pair of shorts.
_FORMS = {(3, 1): "H", (3, 2): "H", (8, 1): "H", (8, 2): "H", (4, 1): "I", (9, 1): "I"}
_PREFIX = b"Exif\x00\x00"
_BIG_TIFF = 43


@dataclass(frozen=True, slots=True)
class _Directories:
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
        """Read the header; None if there is none. A BigTIFF is only recognised with ``big_tiff``."""
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
    found = _Directories.of(exif)
    if found is None:
        return 1
    value = 1
    for tag, kind, number, at in found.entries(found.first):
        form = _FORMS.get((kind, number))
        if tag == _ORIENTATION and form is not None:
            (value,) = struct.unpack_from(found.order + form, exif, at)
    return value if 1 <= value <= 8 else 1


MAKE, MODEL, ARTIST, COPYRIGHT = 0x010F, 0x0110, 0x013B, 0x8298
XMP, IPTC, C2PA = 700, 33_723, 0xCD41  # tags of TIFF files only

_EXIF_DIRECTORY, _GPS_DIRECTORY = 0x8769, 0x8825
_TAKEN_AT, _OFFSET_OF_TAKEN = 0x9003, 0x9011
_LATITUDE, _LONGITUDE = 0x0002, 0x0004
_TOP = geotiff.TAGS | {MAKE, MODEL, ARTIST, COPYRIGHT, XMP, IPTC, C2PA, _EXIF_DIRECTORY, _GPS_DIRECTORY}

_MAX_ENTRIES = 1_000
_MAX_VALUE_BYTES = 1 << 26
# Bytes of a value by its type: TIFF 6.0, section 2; EXIF 3.0 (129); BigTIFF (13 and 16 to 18).
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8,
          13: 4, 16: 8, 17: 8, 18: 8, 129: 1}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ExifTags:
    """The fields of EXIF that are used.

    Attributes:
        values: tag of the first directory -> bytes of its value.
        taken_at: when the picture was taken, ISO 8601; None if it is not told.
        has_position: there is a latitude or a longitude.
    """

    values: dict[int, bytes]
    taken_at: str | None = None
    has_position: bool = False

    def text(self, tag: int) -> str | None:
        """Return the text of a tag of the first directory, or None."""
        value = self.values.get(tag)
        return clean(value) if value else None


NO_TAGS = ExifTags({})


def read_exif(data: bytes) -> ExifTags:
    """Read an EXIF block, or a whole TIFF file. A damaged one has no tags, or fewer.

    Args:
        data: a TIFF header and its directories, with or without ``Exif`` in front.
    """
    found = _Directories.of(data, big_tiff=True)
    if found is None:
        return NO_TAGS
    top = _read(found, found.first, _TOP)
    inner = _read(found, _number(found, top.get(_EXIF_DIRECTORY)), frozenset({_TAKEN_AT, _OFFSET_OF_TAKEN}))
    position = _read(found, _number(found, top.get(_GPS_DIRECTORY)), frozenset({_LATITUDE, _LONGITUDE}))
    return ExifTags(
        top,
        iso_time(_ascii(inner.get(_TAKEN_AT)), _ascii(inner.get(_OFFSET_OF_TAKEN))),
        any(any(value) for value in position.values()),  # some cameras write 0/0 without a position
    )


def _read(found: _Directories, start: int | None, wanted: frozenset[int]) -> dict[int, bytes]:
    """Return the values of the wanted tags of the directory at a place."""
    values: dict[int, bytes] = {}
    for tag, kind, number, at in islice(() if start is None else found.entries(start), _MAX_ENTRIES):
        if tag in wanted and tag not in values:
            value = _value(found, at, number * _SIZES.get(kind, 0))
            if value is not None:
                values[tag] = value
    return values


def _value(found: _Directories, at: int, size: int) -> bytes | None:
    """Return the value of an entry; None if it has none, or lies outside of the file."""
    if not 0 < size <= _MAX_VALUE_BYTES:
        return None
    if size > (8 if found.big else 4):
        (place,) = struct.unpack_from(found.order + ("Q" if found.big else "I"), found.data, at)
        at = found.base + place
    value = found.data[at : at + size]
    return value if len(value) == size else None


def _number(found: _Directories, value: bytes | None) -> int | None:
    """Return the number that a value of four or eight bytes is."""
    if value is None or len(value) not in (4, 8):
        return None
    return int.from_bytes(value, "little" if found.order == "<" else "big")


def _ascii(value: bytes | None) -> str | None:
    return value.partition(b"\x00")[0].decode("latin-1") if value else None
