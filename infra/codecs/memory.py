"""How much memory it takes to decode a file, by its header.

The figures are above the largest that ``python -m tests.benchmarks.prepare.large_memory`` measures. A file
that does not say its size counts as itself: it is refused before memory is taken for a picture.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from shardmill.infra.codecs.formats import ImageRejected, band_rows, sniff
from shardmill.infra.codecs.jpeg.segments import FRAMES, header_segments
from shardmill.infra.codecs.structure.boxes import bounded_boxes, heif_parts
from shardmill.infra.codecs.structure.heif_colors import heif_colors
from shardmill.infra.preparation import Preparation

if TYPE_CHECKING:
    from shardmill.infra.codecs.tiff.page import Page

_MOST_PIXELS = 1 << 40  # that a header can state
_APP2, _THREE_COMPONENTS = 0xE2, 15  # a marker; bytes of a frame header

# Bytes a pixel at the peak. Orientations are not read: each picture counts as one that must be turned, and so
# is held as a whole.
_OF_PIXEL = {"jpeg": 9, "png": 10, "webp": 17, "gif": 10, "bmp": 10, "jpeg2000": 18, "avif": 11, "heif": 11}
_CONVERTED_JPEG = 15  # by a profile, or from inks
_DEEPER = {"png": 8, "avif": 11, "heif": 11}  # in addition, where more than 8 bits may be converted
_PLANES = 5  # of a JPEG that becomes a JPEG, with the coefficients of a progressive one
_FILTERED = 5  # in addition, where a filter takes the picture as a whole
_DEEP = 20  # a sample, of images that are not stored in 8 bits of grey or RGB
_DICOM = 12  # a byte of the values of DICOM
_OTHERS = 8  # a byte of other files: NumPy's, which are not compressed, and those of unknown formats
_BANDS_BYTES = 24 << 20  # for the colours of a band


def decoding_bytes(data: bytes, how: Preparation) -> int:
    """Return how much memory the preparation of a file takes at most, with two copies of the file (bytes).

    A file of pages or frames may take more: they are prepared one by one.
    """
    found, files = sniff(data), 2 * len(data)
    if found not in (*_NUM_PIXELS, "jpeg", "dicom", "tiff"):
        return _OTHERS * len(data)
    try:
        if found == "dicom":
            return files + _DICOM * _values_of_dicom(data)
        page = _page_of_tiff(data) if found == "tiff" else None
        is_converted = False
        if page:
            pixels = page.height * page.width
        elif found == "jpeg":
            pixels, is_converted = _of_jpeg(data)
        else:
            pixels = _NUM_PIXELS[found](data)
        if pixels > how.max_pixels:
            return files  # refused by its header
        whole = how.resample != "area"
        kind = how.samples
        if kind is None or not kind.is_common:
            return files + pixels * _DEEP * (page.kind.samples if page else 4)
        if page:
            return files + _BANDS_BYTES + _of_tiff_at_its_peak(page, len(data), whole or how.allow_truncated)
        of_pixel = _OF_PIXEL[found]
        if is_converted:
            of_pixel = _CONVERTED_JPEG
        elif found == "jpeg" and how.encoding == "jpeg" and not whole:
            return files + pixels * _PLANES
        is_deep = data[24] > 8 if found == "png" else found in _DEEPER and heif_colors(data).bits > 8
        of_pixel += _DEEPER[found] if is_deep else 0
        return files + _BANDS_BYTES + pixels * (of_pixel + _FILTERED * whole)
    except (ImageRejected, LookupError, ValueError, StopIteration, struct.error, ModuleNotFoundError):
        return files


def _two(form: str, at: int) -> Callable[[bytes], int]:
    """Return a function that multiplies the two numbers at a place of a file."""

    def multiplied(data: bytes) -> int:
        width, height = struct.unpack_from(form, data, at)
        return abs(int(width) * int(height))

    return multiplied


def _of_jpeg(data: bytes) -> tuple[int, bool]:
    """Return the pixels of a JPEG, and whether it has a profile or inks: these may go through Pillow."""
    pixels, is_converted = None, False
    for marker, start, end in header_segments(data):
        if marker in FRAMES:
            pixels = _two(">HH", start + 1)(data) if pixels is None else pixels
            is_converted = is_converted or end - start > _THREE_COMPONENTS
        elif marker == _APP2:
            is_converted = is_converted or data[start : start + 4] == b"ICC_"
    if pixels is None:
        raise LookupError("no frame header")
    return pixels, is_converted


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


def _values_of_dicom(data: bytes) -> int:
    from shardmill.infra.codecs.dicom.decode import bytes_of_values

    return bytes_of_values(data)


def _page_of_tiff(data: bytes) -> Page:
    from shardmill.infra.codecs.tiff.page import read_page

    return read_page(data, _MOST_PIXELS)


def _of_tiff_at_its_peak(page: Page, file_bytes: int, whole: bool) -> int:
    """Return the memory for samples and pixels, beside those of a band (bytes)."""
    from shardmill.infra.codecs.tiff.decode import comes_in_bands
    from shardmill.infra.codecs.tiff.page import in_short_strips
    from shardmill.infra.codecs.tiff.strips import sample_type

    page = in_short_strips(page, file_bytes)
    of_pixel = 2 * page.kind.samples * sample_type(page).itemsize  # a strip, and its rows in the picture
    if whole or not comes_in_bands(page):
        return page.height * page.width * (of_pixel + _OF_PIXEL["png"])
    rows = min(page.height, max(page.rows, band_rows(page.width)))
    turned = page.height * page.width * _OF_PIXEL["png"] if page.orientation != 1 else 0
    return rows * page.width * of_pixel + turned


_NUM_PIXELS: dict[str, Callable[[bytes], int]] = {
    "png": _two(">II", 16),
    "gif": _two("<HH", 6),
    "bmp": _of_bmp,
    "webp": _of_webp,
    "avif": _of_heif,
    "heif": _of_heif,
    "jpeg2000": _of_jpeg2000,
}
