"""Read the one tag of EXIF that matters here: the orientation."""

from __future__ import annotations

import struct

_ORIENTATION = 0x0112
# Type and number of values -> form of the first value in its entry. Some files hold a pair of shorts.
_FORMS = {(3, 1): "H", (3, 2): "H", (8, 1): "H", (8, 2): "H", (4, 1): "I", (9, 1): "I"}
_ENTRY_BYTES = 12
_PREFIX = b"Exif\x00\x00"


def orientation_in(exif: bytes) -> int:
    """Return the orientation (1 to 8) of an EXIF block, or 1 if it has none or is damaged.

    If the directory ends early, its whole entries count. If the tag is there twice, the later one counts. The
    exported models do the same (shardmill.training.tensorflow.export.graph.orientation).

    Args:
        exif: a TIFF header and its directories (CIPA DC-008, 4.5), with or without ``Exif`` in front.
    """
    base = len(_PREFIX) if exif.startswith(_PREFIX) else 0
    order = {b"II": "<", b"MM": ">"}.get(exif[base : base + 2])
    if order is None or len(exif) < base + 8:
        return 1
    (first,) = struct.unpack_from(f"{order}I", exif, base + 4)
    if base + first + 2 > len(exif):
        return 1
    (count,) = struct.unpack_from(f"{order}H", exif, base + first)
    begin = base + first + 2
    value = 1
    for entry in range(begin, min(begin + _ENTRY_BYTES * count, len(exif) - _ENTRY_BYTES + 1), _ENTRY_BYTES):
        tag, kind, number = struct.unpack_from(f"{order}HHI", exif, entry)
        form = _FORMS.get((kind, number))
        if tag == _ORIENTATION and form is not None:
            (value,) = struct.unpack_from(order + form, exif, entry + 8)
    return value if 1 <= value <= 8 else 1
