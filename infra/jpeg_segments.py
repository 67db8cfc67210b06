"""The segments of a JPEG file: a header without what no decoder needs.

A JPEG (ITU-T T.81, annex B) is SOI, then segments (FF, marker, two bytes of length, content), then from the
first SOS on entropy-coded data. Cameras and editors put metadata into APPn and COM segments, sometimes with
wrong lengths or padding between; libjpeg then warns of "extraneous bytes" although the picture is whole.
"""

from __future__ import annotations

_SOI = b"\xff\xd8"
_SOS = 0xDA
# What decoding depends on: tables (DQT, DHT, DAC, DRI), frames (SOFn), JFIF's and Adobe's colour marks.
_TABLES = frozenset({0xDB, 0xC4, 0xCC, 0xDD})
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_COLOUR_MARKS = {0xE0: b"JFIF\x00", 0xEE: b"Adobe"}


def without_metadata(data: bytes) -> bytes | None:
    """The same picture without metadata and without stray bytes between the segments of its header.

    Everything from the first SOS on is kept as it is.

    Returns:
        The new file, or None where the header cannot be followed to an SOS.
    """
    if data[:2] != _SOI:
        return None
    kept = [_SOI]
    position = 2
    while True:
        position = data.find(b"\xff", position)
        if position < 0 or position + 4 > len(data):
            return None
        marker = data[position + 1]
        if marker == _SOS:
            return b"".join((*kept, data[position:]))
        end = position + 2 + int.from_bytes(data[position + 2 : position + 4], "big")
        if not _is_segment(marker) or end > len(data):
            position += 1
            continue
        if marker in _TABLES or marker in _FRAMES or _is_colour_mark(marker, data, position + 4):
            kept.append(data[position:end])
        position = end


def _is_segment(marker: int) -> bool:
    """Whether a marker begins a segment that has a length. FF00, fill bytes, RSTn and such do not."""
    return marker >= 0xC0 and not 0xD0 <= marker <= 0xD9 and marker != 0xFF


def _is_colour_mark(marker: int, data: bytes, content: int) -> bool:
    mark = _COLOUR_MARKS.get(marker)
    return mark is not None and data.startswith(mark, content)
