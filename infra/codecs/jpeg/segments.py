"""Follow the segments of a JPEG file (ITU-T T.81, annex B) as libjpeg does.

A JPEG is SOI, then segments (FF, marker, two bytes of length, content), then from each SOS on entropy-coded
data, in which a marker is FF followed by anything but 00 (a stuffed byte) and RSTn. Cameras and editors put
metadata into APPn and COM segments, sometimes with wrong lengths or padding between; libjpeg then warns of
"extraneous bytes" although the picture is whole. Other bytes stand between the picture and EOI. Behind EOI
cameras put more: pictures, films, positions.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

SOI = b"\xff\xd8"
EOI = b"\xff\xd9"
SOS = 0xDA
# Decoding depends on tables (DQT, DHT, DAC, DRI, DNL) and frame headers (SOFn).
_TABLES = frozenset({0xDB, 0xC4, 0xCC, 0xDD, 0xDC})
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_SEQUENTIAL = frozenset({0xC0, 0xC1})  # frames whose blocks come whole, from top to bottom
_SIZE = struct.Struct(">HH")  # height and width in a frame header, behind the byte of the precision
_BLOCK_ROWS = 16  # decoded together where chroma is halved
# The shortest JFIF segment: version 1.01, square pixels, no thumbnail.
_PLAIN_JFIF = b"\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"
_ADOBE_BYTES = 12  # "Adobe", version, two words of flags, colour transform

# Zeros before a marker. FF00 is a stuffed FF, so its zero belongs to the picture.
_PADDING = re.compile(rb"(\xff\x00|[^\xff\x00])\x00+(?=\xff[\xd0-\xd9])")
_MARKER_IN_SCAN = re.compile(rb"\xff+[^\x00\xd0-\xd7\xff]")


def header_segments(data: bytes | bytearray) -> Iterator[tuple[int, int, int]]:
    """Yield marker, and start and end of the content, of each segment up to the first SOS.

    Stray bytes between segments are skipped, as libjpeg does. There is no SOS if the file ends before it.
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
    """Yield marker and position of each marker behind ``start`` in entropy-coded data, up to EOI."""
    while (found := _MARKER_IN_SCAN.search(data, start)) is not None:
        position = found.end() - 2
        marker = data[position + 1]
        yield marker, position
        if marker == EOI[1]:
            return
        start = position + 2 + max(2, int.from_bytes(data[position + 2 : position + 4], "big"))


def first_rows(
    data: bytes | memoryview, size: tuple[int, int], rows: int
) -> tuple[bytes | memoryview | bytearray, int]:
    """Shorten a JPEG by lowering the height in its frame header, so that a decoder skips the rows below.

    A decoder warns of the bytes that it did not use. It gives the pixels of the whole picture, except in the
    last row, whose colour may be interpolated with the row below.

    Args:
        data: the file.
        size: height and width (pixels).
        rows: at least so many are left.

    Returns:
        The file and its height. It is ``data`` if the file would lose less than a row of blocks, if its
        header has another size, or if it does not send whole blocks from top to bottom.
    """
    height, width = size
    kept = -(-rows // _BLOCK_ROWS) * _BLOCK_ROWS
    if kept + _BLOCK_ROWS > height:
        return data, height
    shortened, frame = bytearray(data), 0
    for marker, start, end in header_segments(shortened):
        if marker in FRAMES:
            if frame or marker not in _SEQUENTIAL or end - start < 6:
                break
            frame = start
            if _SIZE.unpack_from(shortened, frame + 1) != size:
                break
        elif marker == SOS and frame and shortened[start] == shortened[frame + 5]:
            _SIZE.pack_into(shortened, frame + 1, kept, width)
            return shortened, kept
    return data, height


def without_metadata(data: bytes) -> bytes | None:
    """Remove metadata, stray bytes in the header, and everything behind the end of the picture.

    The JFIF and Adobe segments are cut down to the part that tells the colour space. The end of a truncated
    file is not mended.

    Returns:
        The new file, or None if the header has no SOS.
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


def without_padding(data: bytes) -> bytes:
    """Return the file without zeros between entropy-coded data and a marker.

    Some cameras pad their scans, and libjpeg warns of these bytes as it does of damage. If the rest decodes
    without a warning, they were not part of the picture.
    """
    return _PADDING.sub(rb"\1", data)


def cut_behind_scans(data: bytes, number: int) -> bytes | None:
    """Return the file up to the first marker behind its last scan, with EOI; None if it has no scan.

    Args:
        data: a JPEG.
        number: how many scans it has.
    """
    start = next((start for marker, start, _ in header_segments(data) if marker == SOS), None)
    if start is None:
        return None
    for marker, at in scan_markers(data, start):
        if number == 1:
            return data[:at] + EOI
        number -= marker == SOS
    return data + EOI


def without_stray_bytes(data: bytes, number: int, marker: int) -> Iterator[bytes]:
    """Yield the file without ``number`` bytes before one of its markers of a kind, the last marker first.

    Args:
        data: a JPEG.
        number: how many bytes the decoder did not use.
        marker: before which it did not use them.
    """
    begin = next((start for found, start, _ in header_segments(data) if found == SOS), len(data))
    at = data.rfind(bytes((0xFF, marker)), begin)
    while at > 0:
        end = len(data[:at].rstrip(b"\xff"))  # fill bytes
        if end - number > begin:
            yield data[: end - number] + data[at:]
        at = data.rfind(bytes((0xFF, marker)), begin, at)


def _scans(data: bytes, position: int) -> Iterator[bytes]:
    """Yield the scans from the first SOS on, and the tables between them, up to EOI."""
    start = position  # begin of the bytes that are not yet kept
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
