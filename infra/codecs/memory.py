"""How much memory it takes to decode a file, by its header.

The figures are above the largest that ``python -m tests.benchmarks.prepare.large`` measures. A file that does
not say its size counts as itself: it is refused before memory is taken for a picture.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from shardmill.infra.codecs.formats import ImageRejected, sniff
from shardmill.infra.codecs.jpeg.segments import FRAMES, header_segments
from shardmill.infra.codecs.structure.boxes import bounded_boxes, heif_parts

# Bytes a pixel at the peak, beside the file.
_OF_PIXEL = {
    "jpeg": 15, "png": 20, "webp": 24, "gif": 20, "bmp": 20, "tiff": 24, "jpeg2000": 24, "avif": 20,
    "heif": 20,
}  # fmt: skip
_BITS_OF_24_BYTES = 64  # of all samples of a pixel; those of many channels take more


def decoding_bytes(data: bytes, max_pixels: int) -> int:
    """Return how much memory the decoding of a file takes at most, with the file (bytes).

    Args:
        data: the file.
        max_pixels: larger images are refused by their headers.
    """
    found = sniff(data)
    if found is None:
        return len(data)
    try:
        pixels = _NUM_PIXELS[found](data)
    except (ImageRejected, LookupError, ValueError, StopIteration, struct.error, ModuleNotFoundError):
        return len(data)
    return len(data) + (pixels * _OF_PIXEL[found] if pixels <= max_pixels else 0)


def _two(form: str, at: int) -> Callable[[bytes], int]:
    """Return a function that multiplies the two numbers at a place of a file."""

    def multiplied(data: bytes) -> int:
        width, height = struct.unpack_from(form, data, at)
        return abs(int(width) * int(height))

    return multiplied


def _of_jpeg(data: bytes) -> int:
    start = next(start for marker, start, _ in header_segments(data) if marker in FRAMES)
    return _two(">HH", 1)(data[start : start + 5])


def _of_bmp(data: bytes) -> int:
    return _two("<HH" if data[14] == 12 else "<ii", 18)(data)


def _of_webp(data: bytes) -> int:
    if data[12:16] == b"VP8X":
        return (1 + int.from_bytes(data[24:27], "little")) * (1 + int.from_bytes(data[27:30], "little"))
    if data[12:16] == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (1 + (bits & 0x3FFF)) * (1 + (bits >> 14 & 0x3FFF))
    width, height = struct.unpack_from("<HH", data, 26)
    return int((width & 0x3FFF) * (height & 0x3FFF))


def _of_heif(data: bytes) -> int:
    """Return the pixels of the largest item: its tiles, if it has any, are decoded one after the other."""
    properties = heif_parts(data)[b"iprp"]
    containers = [place for name, *place in bounded_boxes(data, *properties) if name == b"ipco"]
    sizes = [
        struct.unpack_from(">II", data, start + 4)
        for container in containers
        for name, start, _ in bounded_boxes(data, *container)
        if name == b"ispe"
    ]
    return max((width * height for width, height in sizes), default=0)


def _of_jpeg2000(data: bytes) -> int:
    at = data.index(b"\xff\x4f\xff\x51")
    right, bottom, left, top = struct.unpack_from(">IIII", data, at + 8)
    return int(max(0, right - left) * max(0, bottom - top))


def _of_tiff(data: bytes) -> int:
    from shardmill.infra.codecs.tiff.page import read_page

    page = read_page(data, 1 << 40)
    return page.height * page.width * -(-page.kind.samples * max(page.kind.bits) // _BITS_OF_24_BYTES)


_NUM_PIXELS: dict[str, Callable[[bytes], int]] = {
    "jpeg": _of_jpeg,
    "png": _two(">II", 16),
    "gif": _two("<HH", 6),
    "bmp": _of_bmp,
    "webp": _of_webp,
    "avif": _of_heif,
    "heif": _of_heif,
    "jpeg2000": _of_jpeg2000,
    "tiff": _of_tiff,
}
