"""EXIF, of which one tag matters: how the camera was held."""

from __future__ import annotations

import struct

_ORIENTATION = 0x0112
_SHORT, _LONG = 3, 4
_PREFIX = b"Exif\x00\x00"


def orientation_in(exif: bytes) -> int:
    """The orientation (1 to 8) that an EXIF block says; 1 where it says none or is damaged.

    Args:
        exif: a TIFF header and its directories (CIPA DC-008, 4.5), with or without ``Exif`` in front.
    """
    base = len(_PREFIX) if exif.startswith(_PREFIX) else 0
    order = {b"II": "<", b"MM": ">"}.get(exif[base : base + 2])
    if order is None:
        return 1
    try:
        (first,) = struct.unpack_from(f"{order}I", exif, base + 4)
        (count,) = struct.unpack_from(f"{order}H", exif, base + first)
        for entry in range(base + first + 2, base + first + 2 + 12 * count, 12):
            tag, kind = struct.unpack_from(f"{order}HH", exif, entry)
            if tag == _ORIENTATION:
                form = {_SHORT: "H", _LONG: "I"}.get(kind)
                value = struct.unpack_from(order + form, exif, entry + 8)[0] if form else 1
                return value if 1 <= value <= 8 else 1
    except struct.error:
        pass  # the directory ends early; the pixels decide whether the image is sound
    return 1
