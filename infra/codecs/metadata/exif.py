"""Read some tags of EXIF (CIPA DC-008) and of TIFF files.

Each of the three directories is read once, so a file that points back to itself ends too. A directory that
ends early counts with its whole entries, and an entry whose value lies outside of the file does not count.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import islice

from shardmill.infra.codecs.metadata.text import clean, iso_time
from shardmill.infra.codecs.structure.exif import Directories

MAKE, MODEL, ARTIST, COPYRIGHT = 0x010F, 0x0110, 0x013B, 0x8298
XMP, IPTC, C2PA = 700, 33_723, 0xCD41  # tags of TIFF files only

_EXIF_DIRECTORY, _GPS_DIRECTORY = 0x8769, 0x8825
_TAKEN_AT, _OFFSET_OF_TAKEN = 0x9003, 0x9011
_LATITUDE, _LONGITUDE = 0x0002, 0x0004
_TOP = frozenset({MAKE, MODEL, ARTIST, COPYRIGHT, XMP, IPTC, C2PA, _EXIF_DIRECTORY, _GPS_DIRECTORY})

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
    found = Directories.of(data, big_tiff=True)
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


def _read(found: Directories, start: int | None, wanted: frozenset[int]) -> dict[int, bytes]:
    """Return the values of the wanted tags of the directory at a place."""
    values: dict[int, bytes] = {}
    for tag, kind, number, at in islice(() if start is None else found.entries(start), _MAX_ENTRIES):
        if tag in wanted and tag not in values:
            value = _value(found, at, number * _SIZES.get(kind, 0))
            if value is not None:
                values[tag] = value
    return values


def _value(found: Directories, at: int, size: int) -> bytes | None:
    """Return the value of an entry; None if it has none, or lies outside of the file."""
    if not 0 < size <= _MAX_VALUE_BYTES:
        return None
    if size > (8 if found.big else 4):
        (place,) = struct.unpack_from(found.order + ("Q" if found.big else "I"), found.data, at)
        at = found.base + place
    value = found.data[at : at + size]
    return value if len(value) == size else None


def _number(found: Directories, value: bytes | None) -> int | None:
    """Return the number that a value of four or eight bytes is."""
    if value is None or len(value) not in (4, 8):
        return None
    return int.from_bytes(value, "little" if found.order == "<" else "big")


def _ascii(value: bytes | None) -> str | None:
    return value.partition(b"\x00")[0].decode("latin-1") if value else None
