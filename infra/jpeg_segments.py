"""The segments of a JPEG file (ITU-T T.81, annex B), followed as libjpeg follows them.

A JPEG is SOI, then segments (FF, marker, two bytes of length, content), then from each SOS on entropy-coded
data, in which a marker is FF followed by anything but 00 (a stuffed byte) and RSTn. Cameras and editors put
metadata into APPn and COM segments, sometimes with wrong lengths or padding between; libjpeg then warns of
"extraneous bytes" although the picture is whole. Behind EOI cameras put more: pictures, films, positions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

SOI = b"\xff\xd8"
EOI = b"\xff\xd9"
SOS = 0xDA
# Tables (DQT, DHT, DAC, DRI, DNL) and frames (SOFn): what decoding depends on.
_TABLES = frozenset({0xDB, 0xC4, 0xCC, 0xDD, 0xDC})
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# JFIF as it says the least: version 1.01, square pixels, no thumbnail.
_PLAIN_JFIF = b"\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"
_ADOBE_BYTES = 12  # "Adobe", version, two words of flags, colour transform

_MARKER_IN_SCAN = re.compile(rb"\xff+[^\x00\xd0-\xd7\xff]")


def header_segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """(marker, start and end of its content) up to and with the first SOS.

    Ends without an SOS where the file does. Stray bytes between segments are stepped over, as libjpeg does.
    """
    position = 2
    while True:
        position = data.find(b"\xff", position)
        if position < 0 or position + 4 > len(data):
            return
        marker = data[position + 1]
        # FF00, fill bytes, RSTn and such have no length.
        if marker < 0xC0 or 0xD0 <= marker <= 0xD9 or marker == 0xFF:
            position += 1
            continue
        end = position + 2 + int.from_bytes(data[position + 2 : position + 4], "big")
        if marker == SOS:
            yield marker, position + 4, min(end, len(data))
            return
        if end > len(data):
            position += 1
            continue
        yield marker, position + 4, end
        position = end


def scan_markers(data: bytes, start: int) -> Iterator[tuple[int, int]]:
    """(marker, its position) after the entropy-coded data that begins at ``start``, up to and with EOI."""
    while (found := _MARKER_IN_SCAN.search(data, start)) is not None:
        position = found.end() - 2
        marker = data[position + 1]
        yield marker, position
        if marker == EOI[1]:
            return
        start = position + 2 + max(2, int.from_bytes(data[position + 2 : position + 4], "big"))


def without_metadata(data: bytes) -> bytes | None:
    """The same picture without metadata, without stray bytes in its header and without what follows its end.

    Of JFIF and Adobe's segment only what tells the colour space is kept. A file that ends early still does.

    Returns:
        The new file, or None where the header cannot be followed to an SOS.
    """
    if data[:2] != SOI:
        return None
    kept = [SOI]
    for marker, start, end in header_segments(data):
        if marker == SOS:
            kept += _scans(data, start - 4)
            return b"".join(kept)
        if marker in _TABLES or marker in FRAMES:
            kept.append(data[start - 4 : end])
        elif marker == 0xE0 and data.startswith(b"JFIF\x00", start):
            kept.append(_PLAIN_JFIF)
        elif marker == 0xEE and data.startswith(b"Adobe", start) and end - start >= _ADOBE_BYTES:
            kept.append(b"\xff\xee\x00\x0e" + data[start : start + _ADOBE_BYTES])
    return None


def _scans(data: bytes, position: int) -> Iterator[bytes]:
    """The scans from the first SOS on and the tables between them, to EOI."""
    start = position  # of what is not yet kept
    in_scan = position + 2 + int.from_bytes(data[position + 2 : position + 4], "big")
    for marker, at in scan_markers(data, in_scan):
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if marker == EOI[1]:
            yield data[start:at] + EOI
            return
        if 0xE0 <= marker <= 0xEF or marker == 0xFE:
            yield data[start:at]
            start = end
    yield data[start:]
